"""The first cell of a lesson: one line of versions, nothing on stderr; and errors that are meant to happen."""

import os
import re
import subprocess
import sys

import pytest

from helpers.course.lesson import fails_with, open_lesson, quiet_stderr

VERSIONS = r"Python 3\.\d+\.\d+, NumPy [\d.]+, h5py [\d.]+ \(HDF5 [\d.]+\), OpenCV [\d.]+"


def run_python(code: str) -> subprocess.CompletedProcess:
    """Run a piece of Python as a learner's kernel would: without the settings of this test run."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("TF_", "KERAS_"))}
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)


def test_open_lesson_prints_versions_and_imports_no_keras():
    """Without Keras the line has no device, and neither Keras nor TensorFlow is loaded."""
    code = (
        "import sys; from helpers.course.lesson import open_lesson; open_lesson()\n"
        "print(sorted({'keras', 'tensorflow'} & set(sys.modules)))"
    )
    done = run_python(code)
    assert re.fullmatch(rf"{VERSIONS}\n\[\]\n", done.stdout)
    assert done.stderr == ""


def test_open_lesson_with_keras_is_quiet():
    """Importing TensorFlow and training a first step leaves no line on stderr, C++ code included."""
    code = (
        "from helpers.course.lesson import open_lesson; open_lesson(keras=True)\n"
        "import keras, numpy as np\n"
        "model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(2)])\n"
        "model.compile('sgd', 'mse'); model.fit(np.zeros((8, 4)), np.zeros((8, 2)), verbose=0)"
    )
    done = run_python(code)
    assert re.fullmatch(rf"{VERSIONS}; Keras [\d.]+ on tensorflow [\d.]+, device: \S.*\n", done.stdout)
    assert done.stderr == ""


def test_open_lesson_twice_prints_the_same(capsys):
    """Running the first cell again is harmless."""
    open_lesson()
    first = capsys.readouterr().out
    open_lesson()
    assert capsys.readouterr().out == first


def test_quiet_stderr_drops_what_c_code_writes(capfd):
    """Lines written to file descriptor 2 itself are gone, and later ones are not."""
    with quiet_stderr():
        os.write(2, b"noise\n")
    os.write(2, b"signal\n")
    assert capfd.readouterr().err == "signal\n"


def test_quiet_stderr_shows_the_lines_of_a_failure(capfd):
    """When the lines under `with` fail, what was held back is shown: it may be the reason."""

    def fail():
        with quiet_stderr():
            os.write(2, b"the reason\n")
            raise ImportError("no keras")

    with pytest.raises(ImportError):
        fail()
    assert capfd.readouterr().err == "the reason\n"


def test_fails_with_prints_the_error_and_goes_on(capsys):
    """The expected error is shown as one line."""
    with fails_with(TypeError):
        raise TypeError("uint8 minus float\nand a long story")
    assert capsys.readouterr().out == "TypeError: uint8 minus float\n"


def test_fails_with_shows_as_many_lines_as_asked(capsys):
    """A message of several lines is cut where the lesson says."""
    with fails_with(ValueError, KeyError, lines=2):
        raise ValueError("one\ntwo\nthree")
    assert capsys.readouterr().out == "ValueError: one\ntwo\n"


def test_fails_with_lets_other_errors_through():
    """An error of another kind is not hidden."""
    with pytest.raises(KeyError), fails_with(TypeError):
        raise KeyError("x")


def test_fails_with_raises_when_nothing_fails():
    """When the error no longer comes, the lesson is wrong and its cell fails."""
    with pytest.raises(AssertionError) as caught, fails_with(TypeError, ValueError):
        pass
    assert str(caught.value) == "these lines should fail with TypeError or ValueError; they ran without an error."

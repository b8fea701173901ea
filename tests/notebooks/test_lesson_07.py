"""Lesson 07 outside of its classroom preset: the same cells serve the full run."""

import re
import subprocess
import sys

import keras
import pytest
from build import COURSE
from lesson_run import execute
from lesson_source import BuildError, assemble, read_lesson

NAME = "07_fit_generator_on_gpu"


def lesson_with(replacements):
    """The lesson's notebook with lines of its source replaced; each must be there once."""
    notebook = assemble(read_lesson(COURSE.sources / f"{NAME}.py"), None, None, None)
    for old, new in replacements.items():
        cells = [cell for cell in notebook.cells if cell.cell_type == "code" and old in cell.source]
        assert len(cells) == 1, f"{old!r} stands in {len(cells)} cells"
        cells[0].source = cells[0].source.replace(old, new)
    return notebook


def outputs(notebook):
    """Everything that the notebook printed."""
    return "".join(
        output.text for cell in notebook.cells for output in cell.get("outputs", []) if output.output_type == "stream"
    )


def test_full_preset_stops_with_one_sentence_where_something_is_missing(tmp_path):
    """Without a GPU or without the file, the full preset ends at its check and says what to do."""
    notebook = lesson_with({'PRESET = "classroom"  #': 'PRESET = "full"  #'})
    with pytest.raises(BuildError) as caught:
        execute(notebook, tmp_path, NAME)
    last_line = re.sub(r"\x1b\[[0-9;]*m", "", str(caught.value)).strip().splitlines()[-1]
    assert last_line.startswith("RuntimeError: ")
    assert 'pip install -e ".[gpu-tf]"' in last_line
    assert 'set PRESET = "classroom"' in last_line
    assert "ready:" not in outputs(notebook)
    assert not (tmp_path / "data").exists()


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy:DeprecationWarning")  # Keras 3.15
def test_full_preset_runs_through_on_a_small_food101_folder(tmp_path):
    """A folder in Food-101's layout, built as section 8 says, goes through every cell, in half precision.

    With MobileNetV2: compiling InceptionV3 takes minutes on two cores. Its weights come from a file, so that the base
    is frozen first, and then learns.
    """
    keras.applications.MobileNetV2(include_top=False, weights=None, input_shape=(96, 96, 3)).save_weights(
        tmp_path / "base.weights.h5"
    )
    data = tmp_path / "data"
    data.mkdir()
    for command in (
        f"data_scripts.make_toy_food --layout food101 --classes 6 --per-class 20 --size 96 --out {data / 'food-101'}",
        f"data_scripts.build_hdf5 {data / 'food-101'} --out {data / 'food101_299px.h5'} --size 96",
    ):
        subprocess.run([sys.executable, "-m", *command.split()], check=True, capture_output=True, timeout=120)
    notebook = lesson_with({
        'PRESET = "classroom"  #': 'PRESET = "full"  #',
        '"needs_gpu": (False, True)': '"needs_gpu": (False, False)',
        '"base": (None, "InceptionV3")': '"base": (None, "MobileNetV2")',
        '"weights": (None, "imagenet")': '"weights": (None, "base.weights.h5")',
        '"batch_size": (32, 64)': '"batch_size": (32, 16)',
        '"epochs": ((10, 2), (5, 15))': '"epochs": ((10, 2), (1, 1))',
    })
    execute(notebook, tmp_path, NAME)
    assert "ready: full" in outputs(notebook)
    assert (
        "MobileNetV2 starts from the weights in base.weights.h5; at first only the new last layer is trained.\n"
        "transfer_mobilenetv2 with"
    ) in outputs(notebook)
    assert "this run: mixed_float16 | last layer: float32" in outputs(notebook)

"""The first code cell of a lesson, and the one way to show an error that is meant to happen.

What a lesson's outputs depend on is set here and not in the environment, so that a plain JupyterLab, the build and the
tests show the same.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import platform
import sys
import tempfile
from collections.abc import Iterator
from importlib.metadata import version


def open_lesson(*, keras: bool = False) -> None:
    """Quiet TensorFlow's log, give OpenCV one thread, style the pictures; print one line of versions and device.

    ``keras=True`` imports Keras now (some seconds, some 600 MB), without the lines TensorFlow writes meanwhile. No seed
    is set: lessons set theirs where the reader sees it.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import cv2

    cv2.setNumThreads(1)  # one image at a time keeps one core busy; workers share the cores, not OpenCV's own threads
    from helpers.course import figures

    figures.use_style()
    print(_versions(cv2) + (f"; {_open_keras()}" if keras else ""))  # noqa: T201 - only lessons call this


@contextlib.contextmanager
def fails_with(*expected: type[BaseException], lines: int = 1) -> Iterator[None]:
    """Print the error that the lines under ``with`` are meant to raise, and go on.

    Prints ``TypeError: message``, the first ``lines`` lines of it.

    Raises
    ------
    AssertionError
        The lines ran without an error: what the lesson says is no longer true.
    """
    try:
        yield
    except expected as error:
        print("\n".join(f"{type(error).__name__}: {error}".splitlines()[:lines]))  # noqa: T201 - the same
    else:
        names = " or ".join(kind.__name__ for kind in expected)
        raise AssertionError(f"these lines should fail with {names}; they ran without an error.")


@contextlib.contextmanager
def quiet_stderr(*, show: bool = True) -> Iterator[None]:
    """Hold back what is written to file descriptor 2, C++ code included; show it only if the lines under ``with`` fail.

    ``show=False`` never shows it.

    TensorFlow writes to the descriptor itself while it is imported, at any log level (2.21), so that redirecting
    ``sys.stderr`` is not enough.
    """
    sys.stderr.flush()
    saved = os.dup(2)
    try:
        with tempfile.TemporaryFile() as held:
            os.dup2(held.fileno(), 2)
            try:
                yield
            except BaseException:
                _restore(saved)
                held.seek(0)
                if show:
                    sys.stderr.write(held.read().decode("utf-8", "replace"))
                raise
            finally:
                _restore(saved)
    finally:
        os.close(saved)


def _restore(saved: int) -> None:
    sys.stderr.flush()
    os.dup2(saved, 2)


def _versions(cv2) -> str:
    import h5py

    hdf5 = h5py.version.hdf5_version
    return (
        f"Python {platform.python_version()}, NumPy {version('numpy')}, h5py {h5py.__version__} (HDF5 {hdf5}), "
        f"OpenCV {cv2.__version__}"
    )


def _open_keras() -> str:
    """Import Keras and look for devices, both quietly: ``Keras 3.15.1 on tensorflow 2.21.0, device: CPU``."""
    with quiet_stderr():
        keras = importlib.import_module("keras")
        devices = keras.distribution.list_devices()
    backend = keras.backend.backend()
    return f"Keras {keras.__version__} on {backend} {version(backend)}, device: {_describe(devices)}"


def _describe(devices: list[str]) -> str:
    accelerators = [device.upper() for device in devices if not device.startswith("cpu")]
    return ", ".join(accelerators) or f"CPU ({os.cpu_count()} cores)"

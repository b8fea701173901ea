"""What every test gets: quiet TensorFlow, a watch for leaks, and a small file whose images say which row they are."""

from __future__ import annotations

import os

# Before anything imports TensorFlow or matplotlib: no log lines of TensorFlow's C++ side, no window.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("MPLBACKEND", "Agg")

import contextlib
import shutil
from pathlib import Path

import pytest
from coded import make_coded_file
from leaks import LeakWatch
from looker import Looker
from time_limits import own_time_limit, pytest_configure, pytest_unconfigure  # noqa: F401 - pytest finds them here


@pytest.fixture(scope="session", autouse=True)
def looker():
    """A child that is ready to look through files first (helpers.first_look), where that is possible."""
    with Looker() if hasattr(os, "fork") else contextlib.nullcontext() as looker:
        yield looker


@pytest.fixture(autouse=True)
def no_leaks():
    """Fail a test that leaves a child process, a shared-memory segment or an open HDF5 handle behind."""
    watch = LeakWatch()
    yield
    left = watch.left_behind()
    assert not left, f"this test left behind: {'; '.join(left)}"


@pytest.fixture(scope="session")
def coded_file_master(tmp_path_factory) -> Path:
    """The coded file, made once; tests use `coded_file`, a copy of their own."""
    return make_coded_file(tmp_path_factory.mktemp("coded") / "coded.h5")


@pytest.fixture
def coded_file(coded_file_master, tmp_path) -> Path:
    """103 train, 40 valid and 20 test images of 16x16 in 5 classes; `coded.rows_of(images)` reads the rows back."""
    return Path(shutil.copyfile(coded_file_master, tmp_path / "coded.h5"))

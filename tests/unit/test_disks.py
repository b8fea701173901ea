"""A disk without locks, played in a child process."""

import platform

import pytest

from helpers.course.disks import refuse_locks
from helpers.course.failures import run_in_child

CANNOT = platform.system() != "Linux" or platform.machine() not in {"x86_64", "aarch64"}
linux_only = pytest.mark.skipif(CANNOT, reason="needs Linux on x86_64 or aarch64")


@linux_only
def test_locks_are_refused_and_the_rest_works(coded_file):
    """HDF5 gets the error of a disk without locks; without locking the file reads as ever."""
    outcome = run_in_child(
        """
        import sys, h5py
        from helpers.course.disks import refuse_locks
        refuse_locks()
        with h5py.File(sys.argv[1], locking=False) as file:
            print(len(file["train_img"]))
        h5py.File(sys.argv[1])
        """,
        args=(coded_file,),
    )
    assert outcome.output.splitlines()[0] == "103"
    assert outcome.last_error_line == (
        "OSError: [Errno 37] Unable to synchronously open file (unable to lock file, errno = 37, error message = "
        "'No locks available')"
    )


def test_another_system_is_named(monkeypatch):
    """Elsewhere nothing is pretended."""
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    with pytest.raises(OSError, match=r"^\[Errno \d+\] a disk without locks can be played on Linux"):
        refuse_locks()

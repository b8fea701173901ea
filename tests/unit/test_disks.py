"""Disks without locks and without room, played in a child process."""

import platform

import pytest

from helpers.course.disks import refuse_locks, refuse_writes
from helpers.course.failures import run_in_child

CANNOT = platform.system() != "Linux" or platform.machine() not in {"x86_64", "aarch64"}
linux_only = pytest.mark.skipif(CANNOT, reason="needs Linux on x86_64 or aarch64")


@linux_only
def test_locks_are_refused_and_the_rest_works(coded_file):
    """HDF5 gets the error of a disk without locks; without locking the file reads as ever."""
    outcome = run_in_child(
        """
        import sys, h5py
        from helpers.course.disks import refuse_locks, refuse_writes
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


@linux_only
def test_hdf5_goes_on_where_locks_are_not_implemented(coded_file):
    """Of the numbers such disks answer with, HDF5 1.14 takes one, 38, as leave to go on without."""
    outcome = run_in_child(
        """
        import sys, h5py
        from helpers.course.disks import refuse_locks
        refuse_locks(38)
        print(len(h5py.File(sys.argv[1])["train_img"]))
        """,
        args=(coded_file,),
    )
    assert outcome.output == "103\n"


@linux_only
def test_writes_are_refused(tmp_path):
    """HDF5 gets the error of a full disk; closing the file after that may crash it, in the child."""
    outcome = run_in_child(
        """
        import sys, h5py
        from helpers.course.disks import refuse_writes
        with h5py.File(sys.argv[1], "w") as file:
            refuse_writes()
            file["x"] = 1
        """,
        args=(tmp_path / "new.h5",),
    )
    assert not outcome.ok
    assert "errno = 28" in outcome.output


def test_another_system_is_named(monkeypatch):
    """Elsewhere nothing is pretended."""
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    with pytest.raises(OSError, match=r"^\[Errno \d+\] such a disk can be played on Linux"):
        refuse_locks()
    with pytest.raises(OSError, match=r"^\[Errno \d+\] such a disk can be played on Linux"):
        refuse_writes()

"""Where data lie: the space on that disk, and whether HDF5 can write, lock and read there. Lines of helpers.doctor."""

from __future__ import annotations

import errno
import itertools
import os
import shutil
import tempfile
from pathlib import Path

import h5py

from helpers import layout
from helpers.check import Check, amount_check

DISK_GB, DISK_LEAST_GB = 4, 0.5  # the lessons' files and their builds; less than one lesson's
_NO_RIGHT = {errno.EACCES, errno.EPERM, errno.EROFS}
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT}
_HELD = {errno.EAGAIN, errno.EWOULDBLOCK, errno.EACCES}  # of a lock: another process has it
_ENDINGS = {".h5", ".hdf5", ".hdf", ".he5"}
_LOOKED_THROUGH = 10_000  # names in a folder


def disk(folder: Path) -> Check:
    """Free space where the lessons write."""
    try:
        free = shutil.disk_usage(folder).free
    except OSError as error:
        return Check("bad", f"the disk cannot be asked for its free space: {error}", "check the path, and the disk")
    return amount_check("free on this disk", free, DISK_GB, DISK_LEAST_GB, "make room, or work on another disk")


def locking(folder: Path, file: Path | None = None, *, writes: bool = True) -> Check:
    """Write, lock and read a small HDF5 file in ``folder``; where that is not allowed, open one to read, with a lock.

    ``file`` is the one to open then, else the first HDF5 file in the folder.
    """
    try:
        _write_and_read(folder)
    except (OSError, RuntimeError) as error:  # h5py closes a file that it cannot write out with a RuntimeError
        return _why_not_written(folder, error, file, writes)
    return _with_locks("HDF5 writes and locks files in this folder", "HDF5 writes files in this folder")


def _write_and_read(folder: Path) -> None:
    with tempfile.TemporaryDirectory(dir=folder, prefix=".doctor_") as name:
        path = Path(name) / "try.h5"
        with h5py.File(path, "w", locking=True) as file:
            file["x"] = 1
        with h5py.File(path, "r", locking=True) as file:
            file["x"][()]


def _with_locks(text: str, without: str) -> Check:
    if not locks_are_off():
        return Check("ok", text)
    return Check(
        "warn",
        f"{without}; it locks none, because HDF5_USE_FILE_LOCKING is {os.environ['HDF5_USE_FILE_LOCKING']}",
        "let nothing write to a file that is read; on a local disk, unset the variable",
    )


def locks_are_off() -> bool:
    """Whether HDF5 was told to lock no file; it hears on that variable more than on locking=True."""
    return os.environ.get("HDF5_USE_FILE_LOCKING") in {"FALSE", "0"}  # all others leave them on in HDF5 1.14


def _why_not_written(folder: Path, error: Exception, file: Path | None, writes: bool) -> Check:
    number = getattr(error, "errno", None)
    if _is_about_locks(error):
        return _no_locks(f"HDF5 cannot lock files in this folder: {error}", number)
    text = f"HDF5 cannot write in this folder: {error}"
    if number in _NO_RIGHT:
        return _read_only(folder, text, file, writes)
    if number in _NO_ROOM or "No space left" in str(error):
        return Check("bad", text, "make room, or work on another disk")
    if number in {errno.ENOENT, errno.ENOTDIR}:
        return Check("bad", text, "check the path of the folder")
    return Check("bad", text, "check the disk, or start in a folder on another one")


def _is_about_locks(error: BaseException) -> bool:
    return "unable to lock file" in str(error)


def _no_locks(text: str, number: int | None) -> Check:
    if number == errno.ENOSYS:  # the one answer after which HDF5 1.14 goes on without a lock, unless locking=True
        return Check("warn", text, "HDF5 goes on without: let nothing write to a file that is read")
    return Check(
        "bad", text, "work in a folder on a local disk, or set HDF5_USE_FILE_LOCKING=FALSE before Python starts"
    )


def _read_only(folder: Path, refused: str, file: Path | None, writes: bool) -> Check:
    """May the folder be used as it is? That one of its files opens with a lock is the proof."""
    path = file or _first_hdf5(folder)
    if path is None:
        return Check(
            "bad",
            f"{refused}; and no HDF5 file lies there that could be opened to read",
            "start in a folder where you may write, or name a file: --data FILE",
        )
    try:
        layout.open_file(path, locking=True).close()
    except OSError as error:
        return _why_not_opened(error)
    tried = f"this folder can only be read; {path.name} in it opens"
    found = _with_locks(f"{tried}, with a lock for reading", tried)
    if not writes or found.state != "ok":
        return found
    return Check("warn", found.text, "train from it as it is; for the lessons, start in a folder where you may write")


def _why_not_opened(error: OSError) -> Check:
    text = f"this folder can only be read, and a file in it does not open: {error}"
    if not _is_about_locks(error):
        return Check("bad", text, "check the rights, which ls -l shows, or name another file: --data FILE")
    if error.errno in _HELD:
        return Check("warn", text, "locks work here: somebody has this one. Ask again when the writer is done")
    return _no_locks(text, error.errno)


def _first_hdf5(folder: Path) -> Path | None:
    try:
        with os.scandir(folder) as entries:
            few = itertools.islice(entries, _LOOKED_THROUGH)
            names = [entry.name for entry in few if Path(entry.name).suffix.lower() in _ENDINGS and entry.is_file()]
    except OSError:
        return None
    return folder / min(names) if names else None

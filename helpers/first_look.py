"""Look through an HDF5 file in a child process first: on damaged bytes HDF5 itself can end the process that reads them.

HDF5 1.14 believes what stands in a file. Where links and texts are damaged it can crash, take memory without bound, or
never come back, and take the notebook with it (tests/faults/damaged_files.py counts how often). So a child that imports
only h5py walks through the links and attributes before this process does: 0.2 s, once a file, and 2.2 s where a file
has many thousands of them. What it has not come to by then is read without a look. Files whose links have checksums
(the format of HDF5 1.10 and later) and that hold no texts of variable length need no such look.

Run as a script, this module is that child.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import h5py

_WALK_S = 2.0  # of CPU time; a walk ends well when they are over: a large file is no damaged one
_CALL_S = 3  # more, for the call that was begun before: one that takes them goes round in a circle
_TIME_LIMIT_S = 120.0  # a slow disk costs no CPU time
_MEMORY_LIMIT_BYTES = 2**28  # for links and attributes; beyond what the imports took
_MOST_OBJECTS = 10_000  # some files have a group for each of a million images
_TOO_MUCH_MEMORY = 3  # exit code
_FAULTS = ("SIGSEGV", "SIGABRT", "SIGBUS", "SIGFPE", "SIGILL", "SIGXCPU")  # SIGKILL or SIGTERM come from others

# What the kit asks for by name (helpers.layout), also where a list of all names cannot be had.
ATTRIBUTES = ("class_names", "mean", "seed", "source", "source_digest", "kit_version", "complete", "image_shape")
DATASETS = tuple(f"{split}_{kind}" for split in ("train", "valid", "test") for kind in ("img", "labels", "crc32"))


def danger(file: h5py.File, *, needed: bool | None = None) -> str:
    """What reading an open file does to a process, in words; empty when that is nothing.

    ``needed``: whether a child shall look at all; None asks the file. The answer is kept as long as the file has the
    same size and time of writing. When the child found none (no process could be started, the disk did not answer
    within 120 s, somebody else ended it), the file passes, and the next call looks again.
    """
    if not (_is_needed(file) if needed is None else needed):
        return ""
    path = Path(file.filename).absolute()
    status = path.stat()
    try:
        return _danger(str(path), status.st_ino, status.st_size, status.st_mtime_ns)
    except _NotKnownError:
        return ""


def _is_needed(file: h5py.File) -> bool:
    if file.id.get_create_plist().get_version()[0] < 3:
        return True
    return any(has_no_fixed_size(file, name) for name in file.attrs)


def has_no_fixed_size(item: h5py.HLObject, name: str) -> bool:
    """Whether an attribute lies in the heap of texts, which has no checksum in any format."""
    kind = h5py.h5a.open(item.id, name.encode("utf-8", "surrogateescape")).get_type()
    if isinstance(kind, h5py.h5t.TypeStringID):
        return kind.is_variable_str()
    return any(kind.detect_class(each) for each in (h5py.h5t.VLEN, h5py.h5t.STRING, h5py.h5t.REFERENCE))


class _NotKnownError(Exception):
    """The child came to no answer; as an exception, because lru_cache keeps none."""


@functools.lru_cache(maxsize=256)
def _danger(path: str, *_state: int) -> str:
    code = run(path)
    if code == 0:
        return ""
    if code == _TOO_MUCH_MEMORY:
        return "HDF5 asks for more than 256 MB of memory"
    name = signal.Signals(-code).name if code is not None and code < 0 else ""
    if name not in _FAULTS:
        raise _NotKnownError
    return "HDF5 goes round in a circle" if name == "SIGXCPU" else f"HDF5 ends the process with {name}"


def run(path: str) -> int | None:
    """Exit code of a child that looks through the file; None where it cannot be started, or did not come back."""
    if not sys.executable or not hasattr(signal, "SIGXCPU"):  # not on Windows
        return None
    try:
        return subprocess.run(
            [sys.executable, "-P", __file__, path],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_TIME_LIMIT_S,
            check=False,
        ).returncode
    except (OSError, subprocess.TimeoutExpired):
        return None


# -- the child --------------------------------------------------------------------------------------------------------


def look_through(path: str) -> int:
    """Open objects and read their attributes, within limits. Returns the exit code.

    Errors that Python sees are left to whoever reads the file next: here only the end of the process counts.
    """
    end = time.process_time() + _set_limits()
    seen = []

    def look(name: str, item: h5py.HLObject) -> bool | None:
        seen.append(name)
        _read_attributes(item, end)
        return True if len(seen) >= _MOST_OBJECTS or time.process_time() > end else None  # True ends the walk

    with contextlib.suppress(Exception), h5py.File(path, "r") as file:
        look("/", file)
        for name in DATASETS:  # by name too: the walk may break off before it is there
            with contextlib.suppress(Exception):
                look(name, file[name])
        file.visititems(look)
    return 0


def _read_attributes(item: h5py.HLObject, end: float) -> None:
    names = list(ATTRIBUTES)
    with contextlib.suppress(Exception):
        names += list(item.attrs)
    for name in names:
        if time.process_time() > end:
            return
        try:
            item.attrs.get(name)
        except Exception as error:
            if isinstance(error, MemoryError) or "alloc" in str(error):
                os._exit(_TOO_MUCH_MEMORY)  # an exception would not pass HDF5's walk unchanged


def _set_limits() -> float:
    """Bound this process. Returns the seconds of CPU time that a walk may take."""
    import resource  # not on Windows

    signal.signal(signal.SIGXCPU, signal.SIG_DFL)  # a parent that ignores it hands that down
    _limit(resource.RLIMIT_CORE, 0)
    used = time.process_time()
    limit = _limit(resource.RLIMIT_CPU, math.ceil(used + _WALK_S) + _CALL_S)
    pages = Path("/proc/self/statm")
    if pages.exists():  # Linux
        _limit(resource.RLIMIT_AS, int(pages.read_text().split()[0]) * resource.getpagesize() + _MEMORY_LIMIT_BYTES)
    return min(_WALK_S, (limit - used) / 2)


def _limit(kind: int, wanted: int) -> int:
    """Set a limit of this process, below the one that it cannot raise (``ulimit``, a job of a cluster).

    Below, because a process that reaches the hard limit of CPU time ends with SIGKILL, which could be anybody's.
    """
    import resource

    hard = resource.getrlimit(kind)[1]
    limit = wanted if hard == resource.RLIM_INFINITY else min(wanted, max(0, hard - 1))
    resource.setrlimit(kind, (limit, hard))
    return limit


if __name__ == "__main__":
    sys.exit(look_through(sys.argv[1]))

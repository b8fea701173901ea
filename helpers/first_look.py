"""Look through an HDF5 file in a child process first: on damaged bytes HDF5 itself can end the process that reads them.

HDF5 1.14 believes what stands in a file. Where links and texts are damaged it can crash, take memory without bound, or
never come back, and take the notebook with it (tests/faults/damaged_files.py counts how often). So a child that imports
only h5py walks through the links and attributes before this process does: 0.2 s, once a file. Files whose links have
checksums (the format of HDF5 1.10 and later) and that hold no texts of variable length need no such look.

Run as a script, this module is that child.
"""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import subprocess
import sys
from pathlib import Path

import h5py

_CPU_LIMIT_S = 5  # a good file takes 0.2 s; a slow disk costs no CPU time
_TIME_LIMIT_S = 120.0
_MEMORY_LIMIT_BYTES = 2**28  # for links and attributes; beyond what the imports took
_MOST_OBJECTS = 10_000  # some files have a group for each of a million images
_TOO_MUCH_MEMORY = 3  # exit code

# What the kit asks for by name (helpers.layout), also where a list of all names cannot be had.
ATTRIBUTES = ("class_names", "mean", "seed", "source", "kit_version", "complete", "image_shape")
DATASETS = tuple(f"{split}_{kind}" for split in ("train", "valid", "test") for kind in ("img", "labels", "crc32"))


def danger(file: h5py.File, *, needed: bool | None = None) -> str:
    """What reading an open file does to a process, in words; empty when that is nothing.

    ``needed``: whether a child shall look at all; None asks the file. The answer is kept as long as the file has the
    same size and time of writing.
    """
    if not (_is_needed(file) if needed is None else needed):
        return ""
    path = Path(file.filename).absolute()
    status = path.stat()
    return _danger(str(path), status.st_ino, status.st_size, status.st_mtime_ns)


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


@functools.lru_cache(maxsize=256)
def _danger(path: str, *_state: int) -> str:
    code = run(path)
    if code == -signal.SIGXCPU:
        return "HDF5 goes round in a circle"
    if code < 0:
        return f"HDF5 ends the process with {signal.Signals(-code).name}"
    return "HDF5 asks for more than 256 MB of memory" if code == _TOO_MUCH_MEMORY else ""


def run(path: str) -> int:
    """Exit code of a child that looks through the file; 0 where none can be started."""
    if not sys.executable or not hasattr(signal, "SIGXCPU"):  # not on Windows
        return 0
    try:
        return subprocess.run(
            [sys.executable, "-P", __file__, path],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_TIME_LIMIT_S,
            check=False,
        ).returncode
    except subprocess.TimeoutExpired:
        return -signal.SIGXCPU
    except OSError:
        return 0


# -- the child --------------------------------------------------------------------------------------------------------


def look_through(path: str) -> int:
    """Open all objects and read all attributes, within limits. Returns the exit code.

    Errors that Python sees are left to whoever reads the file next: here only the end of the process counts.
    """
    _set_limits()
    seen = []

    def look(name: str, item: h5py.HLObject) -> bool | None:
        seen.append(name)
        _read_attributes(item)
        return True if len(seen) >= _MOST_OBJECTS else None  # True ends the walk

    with contextlib.suppress(Exception), h5py.File(path, "r") as file:
        look("/", file)
        for name in DATASETS:  # by name too: the walk may break off before it is there
            with contextlib.suppress(Exception):
                look(name, file[name])
        file.visititems(look)
    return 0


def _read_attributes(item: h5py.HLObject) -> None:
    names = list(ATTRIBUTES)
    with contextlib.suppress(Exception):
        names += list(item.attrs)
    for name in names:
        try:
            item.attrs.get(name)
        except Exception as error:
            if isinstance(error, MemoryError) or "alloc" in str(error):
                os._exit(_TOO_MUCH_MEMORY)  # an exception would not pass HDF5's walk unchanged


def _set_limits() -> None:
    import resource  # not on Windows

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (_CPU_LIMIT_S, _CPU_LIMIT_S + 1))
    pages = Path("/proc/self/statm")
    if pages.exists():  # Linux
        limit = int(pages.read_text().split()[0]) * resource.getpagesize() + _MEMORY_LIMIT_BYTES
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


if __name__ == "__main__":
    sys.exit(look_through(sys.argv[1]))

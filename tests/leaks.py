"""Finds what a test leaves behind: live child processes, shared-memory segments, open HDF5 handles."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing.forkserver
import multiprocessing.resource_tracker
import time
from pathlib import Path

import h5py
import psutil

SHARED_MEMORY = Path("/dev/shm")
GRACE_S = 2.0  # a closed pool may need a moment until its workers are gone and their segments unlinked


class LeakWatch:
    """Remembers what there was, and tells what was added since."""

    def __init__(self):
        self._children = _children()
        self._segments = _segments()
        self._handles = open_handles()

    def left_behind(self, grace_s: float = GRACE_S) -> list[str]:
        """One phrase for each kind of thing left; waits up to ``grace_s`` for it to go, and collects garbage first."""
        deadline = time.monotonic() + grace_s
        segments = _segments() - self._segments
        left = self._look(segments)
        if left:
            gc.collect()  # costs some 50 ms with TensorFlow loaded, so only where there is something to explain
            left = self._look(segments)
        while left and time.monotonic() < deadline:
            time.sleep(0.05)
            left = self._look(segments)
        return left

    def _look(self, segments: set[str]) -> list[str]:
        """What is there now; of the segments only those seen at first, as other programs make new ones all the time."""
        children = [_describe(process) for process in _children() - self._children]
        segments = sorted(name for name in segments & _segments() if not _held_by_others(name))
        handles = open_handles() - self._handles
        left = []
        if children:
            left.append(f"child processes {', '.join(children)}")
        if segments:
            left.append(f"shared-memory segments {', '.join(segments)}")
        if handles > 0:
            left.append(f"{handles} open HDF5 handles")
        return left


def open_handles() -> int:
    """Number of HDF5 files, datasets, groups and attributes that are open in this process."""
    kinds = (h5py.h5f.OBJ_FILE, h5py.h5f.OBJ_DATASET, h5py.h5f.OBJ_GROUP, h5py.h5f.OBJ_ATTR)
    return sum(h5py.h5f.get_obj_count(h5py.h5f.OBJ_ALL, kind) for kind in kinds)


def _children() -> set[psutil.Process]:
    servants = {
        multiprocessing.resource_tracker._resource_tracker._pid,  # lives as long as its process
        getattr(multiprocessing.forkserver._forkserver, "_forkserver_pid", None),  # the same
    }
    children = [child for child in _all_children() if child.pid not in servants]
    return {child for child in children if child.is_running() and not _is_zombie(child)}


def _all_children() -> list[psutil.Process]:
    """Processes that this one started. Linux lists them by thread; psutil looks at all processes of the machine."""
    lists = list(Path("/proc/self/task").glob("*/children"))
    if not lists:
        return psutil.Process().children()
    found = []
    for path in lists:
        with contextlib.suppress(OSError, psutil.NoSuchProcess):  # a thread, or a child, has just ended
            found += [psutil.Process(int(pid)) for pid in path.read_text().split()]
    return found


def _is_zombie(process: psutil.Process) -> bool:
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def _describe(process: psutil.Process) -> str:
    try:
        return f"{process.pid} ({' '.join(process.cmdline())[:80]})"
    except psutil.Error:
        return str(process.pid)


def _segments() -> set[str]:
    return {entry.name for entry in SHARED_MEMORY.iterdir()} if SHARED_MEMORY.is_dir() else set()


def _held_by_others(name: str) -> bool:
    """Whether a process outside of this test run maps the segment: other programs on the machine use /dev/shm too."""
    own = psutil.Process()
    family = {own.pid, *(child.pid for child in own.children(recursive=True))}
    for maps in Path("/proc").glob("[0-9]*/maps"):
        try:
            if int(maps.parent.name) not in family and f"{SHARED_MEMORY}/{name}\n" in maps.read_text():
                return True
        except (OSError, UnicodeDecodeError):
            continue
    return False

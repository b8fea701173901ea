"""Re-used slots of memory: batches lie in them on their way to the consumer, without being copied or allocated anew.

A fresh 17 MB array costs more in page faults than the bytes cost to read; a batch that is pickled through a pipe is
copied four times. A slot is page-aligned, is written once (by a thread here, or by a worker process through shared
memory), and is handed out as it is. TensorFlow and JAX wrap memory that is 64-byte aligned instead of copying it, so a
slot must not be written again while anything still refers to it: not after n more batches, not when the consumer seems
done, but when its memory has no user any more. That is what a finalizer knows.
"""

from __future__ import annotations

import math
import mmap
import os
import secrets
import tempfile
import weakref
from collections import deque

import numpy as np

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

_ALIGNMENT = 64  # bytes: what TensorFlow and JAX ask for to wrap an array


class Slots:
    """``count`` slots of at least ``slot_bytes`` each, private to this process or shared with others.

    :meth:`take` gives the number of a free slot, or None; :meth:`lend` its memory, which makes the slot free again when
    nobody refers to it any more; :meth:`give_back` frees a slot that was not lent. Safe in threads. Memory is touched
    only when a slot is first written; the slot used last is taken first, so that few are.
    """

    def __init__(self, count: int, slot_bytes: int, *, shared: bool = False):
        self.slot_bytes = -(-slot_bytes // mmap.PAGESIZE) * mmap.PAGESIZE
        size = count * self.slot_bytes
        self._shared = SharedMap(size) if shared else None
        self._memory = memoryview(self._shared.map if shared else _private_map(size))
        self._free = deque(range(count))

    @property
    def free_count(self) -> int:
        """Number of free slots."""
        return len(self._free)

    @property
    def shared(self) -> SharedMap | None:
        """What another process attaches to; None for private slots."""
        return self._shared

    def take(self) -> int | None:
        try:
            return self._free.pop()
        except IndexError:
            return None

    def give_back(self, slot: int) -> None:
        self._free.append(slot)

    def lend(self, slot: int) -> memoryview:
        """The memory of a slot that was taken, until nobody refers to it, or to any array made on it, any more."""
        # The array owns nothing and is never handed out: it is an object that a finalizer can watch, and that all views
        # of this loan, and views of these views, keep alive. A deque may be appended to from a finalizer, which runs at
        # any moment and in any thread; a lock may not be taken there.
        loan = np.ndarray(self.slot_bytes, np.uint8, buffer=slot_memory(self._memory, slot, self.slot_bytes))
        weakref.finalize(loan, self._free.append, slot).atexit = False
        return memoryview(loan)


def _private_map(size: int) -> mmap.mmap:
    if os.name == "nt":
        return mmap.mmap(-1, size)
    # A forked child that was given a batch keeps it as it was; in shared slots it has to copy what it keeps.
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


class SharedMap:
    """Memory that worker processes map as well; it is gone when the last of them and this process are.

    Linux: a memfd, which needs no room in /dev/shm (64 MB in many containers) and no clean-up after a kill. Other
    POSIX systems: a temporary file without a name. Windows: a named map, which the system drops with its last user.
    """

    def __init__(self, size: int):
        self.size = size
        if os.name == "nt":
            self.handle: int | str | None = f"helpers-{os.getpid()}-{secrets.token_hex(8)}"  # a tag
            self.map = mmap.mmap(-1, size, tagname=self.handle)
            return
        self.handle = scratch_file("helpers-slots")  # a file descriptor
        try:
            os.ftruncate(self.handle, size)
            self.map = mmap.mmap(self.handle, size)
        except BaseException:
            self.close_handle()
            raise

    @property
    def descriptors(self) -> tuple[int, ...]:
        """File descriptors that a child has to inherit to attach."""
        return (self.handle,) if isinstance(self.handle, int) else ()

    def close_handle(self) -> None:
        """All children have been started: the maps hold the memory from now on."""
        for descriptor in self.descriptors:
            os.close(descriptor)
        self.handle = None


def attach(handle: int | str, size: int) -> memoryview:
    """In a child: the memory of the ``SharedMap`` with that handle (an inherited file descriptor, or a Windows tag)."""
    if isinstance(handle, str):
        return memoryview(mmap.mmap(-1, size, tagname=handle))
    memory = memoryview(mmap.mmap(handle, size))
    os.close(handle)
    return memory


def slot_memory(memory: memoryview, slot: int, slot_bytes: int) -> memoryview:
    return memory[slot * slot_bytes : (slot + 1) * slot_bytes]


class Arena:
    """:meth:`empty` is ``np.empty``, taken from ``memory`` as long as that has room."""

    def __init__(self, memory: memoryview):
        self._memory = memory
        self._used = 0

    def empty(self, shape, dtype=np.float64) -> np.ndarray:
        """An array with any content, of ``shape`` and ``dtype``, C-contiguous and 64-byte aligned."""
        dtype = np.dtype(dtype)
        start = self._reserve(math.prod(shape) * dtype.itemsize)
        if start is None:
            return np.empty(shape, dtype)
        return np.ndarray(shape, dtype, buffer=self._memory[start : self._used])

    def place_of(self, part: memoryview) -> tuple[int, int] | None:
        """(start, stop) in ``memory`` where the bytes of ``part`` lie or were copied to; None: there is no room."""
        start = _address(part) - _address(self._memory)
        if not 0 <= start < len(self._memory):
            start = self._reserve(part.nbytes)
            if start is None:
                return None
            self._memory[start : start + part.nbytes] = part
        return start, start + part.nbytes

    def _reserve(self, count: int) -> int | None:
        start = -(-self._used // _ALIGNMENT) * _ALIGNMENT
        if count == 0 or start + count > len(self._memory):
            return None
        self._used = start + count
        return start


def _address(part: memoryview) -> int:
    return np.frombuffer(part, np.uint8).ctypes.data


def room_for(*sizes: int) -> int:
    """Bytes an :class:`Arena` needs for arrays of these sizes."""
    return sum(sizes) + _ALIGNMENT * len(sizes)


def scratch_file(name: str) -> int:
    """Descriptor of an empty file without a name, in memory where the system can (Linux)."""
    with _scratch(name) as file:
        if fcntl is None:
            return os.dup(file.fileno())
        # Above 0, 1 and 2, which are free in a program that was started without them: in a child they are its streams.
        return fcntl.fcntl(file.fileno(), fcntl.F_DUPFD_CLOEXEC, 3)


def _scratch(name: str):
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create(name), "r+b", buffering=0)
    return tempfile.TemporaryFile()

"""What of one file is in the page cache: asked by mincore, dropped or filled. Linux only."""

from __future__ import annotations

import ctypes
import mmap
import os
import time
from pathlib import Path

import numpy as np
import psutil

from .report import CannotRunError, progress_bar

READ_BYTES = 8 * 2**20  # larger reads are no faster
COLD_SHARE, WARM_SHARE = 0.001, 0.999  # of the file in the page cache
FITS_SHARE = 0.6  # of the available memory: a smaller file stays in the page cache when it is read


def prepare_cache(path: Path, cache: str) -> float:
    """Make the page cache "cold" or "warm" for the file; the share of the file that is in it now.

    Raises
    ------
    CannotRunError
        The file stays in the cache when it must not, or a file that would fit into memory does not stay.
    """
    if cache == "cold":
        return drop_pages(path)
    if cached_share(path) < WARM_SHARE:
        read_through(path)
    share = cached_share(path)
    if share < WARM_SHARE and path.stat().st_size < FITS_SHARE * psutil.virtual_memory().available:
        raise CannotRunError(
            f"{path.name} must be in the page cache for a warm pass; {share:.1%} of it stays after it was read, though "
            "it would fit. Other programs need the memory: end them and start again."
        )
    return share


def drop_pages(path: Path) -> float:
    """Take the file out of the page cache; the share that is left, at most 0.1 %. Raises CannotRunError if it stays."""
    with path.open("rb") as file:
        os.fsync(file.fileno())  # only what is on the disk can be dropped
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    share = cached_share(path)
    if share > COLD_SHARE:
        raise CannotRunError(
            f"{path.name} must be out of the page cache for a cold pass; {share:.1%} of it stays. Either another "
            "program maps it, or it lies on a disk in memory (tmpfs): give another --folder."
        )
    return share


def cached_share(path: Path) -> float:
    """Share of the file's pages that are in the page cache, as mincore says; 1 GB of addresses at a time."""
    step, cached = 2**30, 0
    libc = ctypes.CDLL(None, use_errno=True)
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        for start in range(0, size, step):
            with mmap.mmap(file.fileno(), min(step, size - start), access=mmap.ACCESS_READ, offset=start) as pages:
                cached += _cached_pages(libc, pages)
    return cached / -(-size // mmap.PAGESIZE)


def _cached_pages(libc: ctypes.CDLL, pages: mmap.mmap) -> int:
    answer = np.empty(-(-len(pages) // mmap.PAGESIZE), np.uint8)
    view = np.frombuffer(pages, np.uint8)
    address = view.ctypes.data
    del view  # while it lives, the mapping cannot be closed
    if libc.mincore(ctypes.c_void_p(address), ctypes.c_size_t(len(pages)), ctypes.c_void_p(answer.ctypes.data)):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return int(np.count_nonzero(answer & 1))


def read_through(path: Path) -> float:
    """Read the file from its first to its last byte; MB/s."""
    room, done = bytearray(READ_BYTES), 0
    start = time.perf_counter()
    with path.open("rb", buffering=0) as file, progress_bar("read", path.stat().st_size, "B") as bar:
        while count := file.readinto(room):
            done += count
            bar.update(count)
    return done / 1e6 / (time.perf_counter() - start)

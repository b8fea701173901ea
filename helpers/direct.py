"""Read rows past HDF5, where their bytes lie whole in the file: several threads at once, to their final place.

HDF5 has one lock for everything that a process does with it, unpacking gzip included. So it is asked once where the
rows lie (:func:`locate`); from then on they are read from the file itself, by position. That works for rows stored one
after the other (contiguous), and for chunks of whole rows, plain or gzip. Everything else is left to HDF5.

gzip is inflated by libdeflate (package ``deflate``), which checks the checksum and works without Python's lock. On 20
photographs of 299x299x3 stored with gzip-4, on two cores that others used as well, it inflated 1.9 times as many a
second as zlib, isal 1.55 times; with two threads each did 1.8 to 2.0 times its own one-thread rate. (On blurred noise
isal led, 1.9 to 1.7.) Both have wheels for Linux, macOS and Windows; one of deflate's serves every Python from 3.11 on.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from dataclasses import dataclass
from pathlib import Path

import deflate
import h5py
import numpy as np

from helpers.layout import HDF5FileError, open_file
from helpers.places import MISSING, Places

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

_NUMBERS = "biufc"  # kinds of NumPy types that HDF5 stores as they lie in memory
LARGEST_KEPT_BYTES = 64 * 2**20  # of one inflated chunk; as much as HDF5's own cache may take in a reader
_ADVICE_BYTES = 2**17  # Linux heeds one wish up to the disk's read-ahead window, 128 kB by default, and drops the rest


class DirectRows:
    """The rows of one dataset, as bytes at known places of its file. Made by :func:`locate`.

    Threads may share it. A pickled one carries the places, so that another process need not ask HDF5 again, and no
    descriptor; a forked child opens its own.
    """

    def __init__(self, places: Places, row_bytes: int, has_gzip: bool, path: Path, name: str, state: tuple[int, int]):
        self._path = path
        self._name = name
        self._state = state
        self._row_bytes = row_bytes
        self._rows_a_chunk = places.rows_a_chunk
        self._offsets, self._sizes = places.offsets, places.sizes
        # Bit 0 of the mask set: this chunk was stored without gzip.
        self._packed = (places.offsets != MISSING) & (places.masks & 1 == 0) & has_gzip
        self.files = FileOfProcess(path)
        self._forget()

    def read(self, rows: np.ndarray, out: np.ndarray) -> np.ndarray:
        """Read ``rows`` ((n,) int64, none negative) into ``out``; returns the positions left out, (m,) int64.

        These are rows of chunks that were never written. ``out`` is C-contiguous and of the dataset's type.

        Raises
        ------
        HDF5FileError
            The file is gone or was written anew, its bytes end too early, or a chunk does not inflate.
        """
        wanted = self._wanted(rows)
        file = self.files.get()
        try:
            self._read_plain(file, wanted, np.flatnonzero(wanted.stored & ~wanted.packed), out)
            if wanted.packed.any():
                self._read_packed(file, wanted, np.flatnonzero(wanted.packed), out)
        finally:  # also when that failed: then this is the reason
            check_unchanged(self._path, file.status(), self._state)
        return np.flatnonzero(~wanted.stored)

    def read_ahead(self, rows: np.ndarray) -> None:
        """Ask the system to bring the bytes of these rows into its cache soon, where it can be asked."""
        if not hasattr(os, "posix_fadvise"):
            return
        places, sizes = self._extents(self._wanted(rows))
        ends = places + sizes
        file = self.files.get()
        for start, stop in runs(len(places), places[1:] != ends[:-1]):
            file.advise(int(places[start]), int(ends[stop - 1] - places[start]))

    def close(self) -> None:
        """Let go of this process's descriptor: writers may come, and it is closed when no thread reads any more."""
        self.files.close()
        self._forget()

    def __getstate__(self):
        return {key: value for key, value in self.__dict__.items() if key not in {"_scratch", "_last"}}

    def __setstate__(self, state) -> None:
        self.__dict__.update(state)
        self._forget()

    def _forget(self) -> None:
        self._scratch = threading.local()  # a thread's own buffer for packed bytes
        self._last = None  # (chunk, its rows): set and taken in one step each, so that threads need no lock

    def _wanted(self, rows: np.ndarray) -> _Wanted:
        chunks, within = np.divmod(rows, self._rows_a_chunk)
        return _Wanted(rows, chunks, within, self._offsets[chunks] != MISSING, self._packed[chunks])

    def _extents(self, wanted: _Wanted) -> tuple[np.ndarray, np.ndarray]:
        """Offsets and lengths of what must be read: in file order, each once."""
        stored = wanted.stored
        chunks, within, packed = wanted.chunks[stored], wanted.within[stored], wanted.packed[stored]
        places = self._offsets[chunks] + np.where(packed, 0, within * self._row_bytes)
        places, first = np.unique(places, return_index=True)
        return places, np.where(packed, self._sizes[chunks], self._row_bytes)[first]

    def _read_plain(self, file: _File, wanted: _Wanted, positions: np.ndarray, out: np.ndarray) -> None:
        """Rows that lie in the file as in memory: one read for each run of neighbours in the file and in ``out``."""
        self._check_whole(wanted, positions)
        places = self._offsets[wanted.chunks[positions]] + wanted.within[positions] * self._row_bytes
        order = np.argsort(places, kind="stable")
        places, positions = places[order], positions[order]
        size = self._row_bytes
        found = runs(len(places), (np.diff(places) != size) | (np.diff(positions) != 1))
        places, positions = places.tolist(), positions.tolist()  # plain integers cost less, row by row
        reads = _Reads(file, [(places[start], (stop - start) * size) for start, stop in found])
        memory = memoryview(out.reshape(-1).view(np.uint8))
        for number, (start, stop) in enumerate(found):
            first = positions[start]
            try:
                reads.fill(number, memory[first * size : (first + stop - start) * size])
            except ReadError as error:
                raise self._damage(wanted.rows[first + error.done // size], error.reason) from error

    def _read_packed(self, file: _File, wanted: _Wanted, positions: np.ndarray, out: np.ndarray) -> None:
        """Rows of gzip chunks: each chunk is inflated once, whatever number of its rows is wanted."""
        positions = positions[np.argsort(self._offsets[wanted.chunks[positions]], kind="stable")]
        chunks, within = wanted.chunks[positions], wanted.within[positions].tolist()
        positions = positions.tolist()
        found = runs(len(chunks), np.diff(chunks) != 0)
        once = chunks[[start for start, _ in found]]
        reads = _Reads(file, list(zip(self._offsets[once].tolist(), self._sizes[once].tolist(), strict=True)))
        target = out.reshape(-1).view(np.uint8).reshape(len(out), self._row_bytes)
        for number, (start, stop) in enumerate(found):
            block = self._inflated(reads, number, int(once[number]), wanted.rows[positions[start]])
            for item in range(start, stop):
                target[positions[item]] = block[within[item]]

    def _inflated(self, reads: _Reads, number: int, chunk: int, row: int) -> np.ndarray:
        """All rows of a gzip chunk, (rows, bytes of a row) uint8.

        The last chunk of several rows is kept: when rows are read in order, the next batch begins in it.
        """
        last = self._last
        if last is not None and last[0] == chunk:
            return last[1]
        stored = self._scratch_of(int(self._sizes[chunk]))
        whole = self._rows_a_chunk * self._row_bytes
        try:
            reads.fill(number, stored)
            inflated = deflate.zlib_decompress(stored, whole)
        except ReadError as error:
            raise self._damage(row, error.reason) from error
        except deflate.DeflateError as error:
            raise self._damage(row, "its gzip chunk does not unpack") from error
        if len(inflated) != whole:
            raise self._damage(row, f"its gzip chunk holds {len(inflated)} bytes, not {whole}")
        block = np.frombuffer(inflated, np.uint8).reshape(self._rows_a_chunk, self._row_bytes)
        if self._rows_a_chunk > 1 and whole <= LARGEST_KEPT_BYTES:
            self._last = (chunk, block)
        return block

    def _scratch_of(self, size: int) -> memoryview:
        scratch = getattr(self._scratch, "bytes", b"")
        if len(scratch) < size:
            scratch = self._scratch.bytes = bytearray(size)
        return memoryview(scratch)[:size]

    def _check_whole(self, wanted: _Wanted, positions: np.ndarray) -> None:
        sizes = self._sizes[wanted.chunks[positions]]
        short = np.flatnonzero(sizes < self._rows_a_chunk * self._row_bytes)
        if len(short):
            row, size = wanted.rows[positions[short[0]]], sizes[short[0]]
            raise self._damage(row, f"its chunk is stored without gzip and has only {size} bytes")

    def _damage(self, row: int, reason: str) -> HDF5FileError:
        return unreadable(f"row {row} of {self._name}", self._path, reason)


@dataclass(frozen=True)
class _Wanted:
    """The rows of one call, (n,) each: their chunk, their number in it, and how that chunk is stored."""

    rows: np.ndarray
    chunks: np.ndarray
    within: np.ndarray
    stored: np.ndarray  # False: the chunk was never written
    packed: np.ndarray  # True: by gzip


def locate(
    data: h5py.Dataset, places: Places | None, path: Path, name: str, state: tuple[int, int]
) -> DirectRows | None:
    """The rows of an open dataset, or None when only HDF5 can read them.

    Parameters
    ----------
    data : the dataset ``name`` of the file ``path``.
    places : where its chunks lie; None when they lie elsewhere.
    state : :func:`file_state` of that file.
    """
    if places is None or not can_read(data, path):
        return None
    direct = DirectRows(places, _row_bytes(data), data.compression is not None, path, name, state)
    return direct if _agrees(direct, data) else None


def can_read(data: h5py.Dataset, path: Path) -> bool:
    """Whether type and layout of an open dataset let its rows be read past HDF5."""
    # A link inside the file may lead to another one.
    return Path(data.file.filename).samefile(path) and _is_plain_numbers(data) and holds_whole_rows(data)


def file_state(status: os.stat_result) -> tuple[int, int]:
    """What changes when a file is written: its size, and when that was, in ns."""
    return status.st_size, status.st_mtime_ns


def check_unchanged(path: Path, status: os.stat_result, state: tuple[int, int]) -> None:
    """Raise HDF5FileError when the file was written since it had this state."""
    if file_state(status) != state:
        raise HDF5FileError(
            errno.ESTALE,
            f"{path} was written anew since this reader was made: labels read before would no longer fit its "
            "images. Make a new one.",
        )


def unreadable(rows: str, path: Path, reason: str) -> HDF5FileError:
    """The error for rows that a damaged file or disk does not give; ``rows`` names them and their dataset."""
    return HDF5FileError(
        errno.EIO,
        f"{rows} in {path} cannot be read: {reason}. The file is damaged. "
        f"`python -m helpers.inspector {path} --verify` finds all such rows. Copy or build the file again.",
    )


class FileOfProcess:
    """One file, opened by each process for itself at its first read; a pickled one carries the path alone."""

    def __init__(self, path: Path):
        self._path = path
        self._files: dict[int, _File] = {}  # by process; more than one only for a moment, in a forked child

    def __getstate__(self):
        return {"_path": self._path, "_files": {}}

    def get(self) -> _File:
        """This process's open file. Raises HDF5FileError when it cannot be opened."""
        pid = os.getpid()
        file = self._files.get(pid)
        if file is None:
            for other in list(self._files):
                if other != pid:  # the parent's: a forked child closes its copy
                    self._files.pop(other, None)
            file = self._open()
            if _can_read_at():  # otherwise each read has a file of its own, as it must seek
                file = self._files.setdefault(pid, file)
        return file

    def close(self) -> None:
        """Let writers in; the descriptor is closed when no thread reads any more."""
        file = self._files.pop(os.getpid(), None)
        if file is not None:
            file.unlock()

    def _open(self) -> _File:
        try:
            file = _File(self._path)
            file.lock()
        except OSError:
            open_file(self._path).close()  # says in a sentence what is wrong
            raise
        return file


class _File:
    """A file that is read by position. It is closed when the last thread that uses it lets go.

    Closed by hand, its number could be given to another file while a thread is about to read: a wrong picture.
    """

    def __init__(self, path: Path):
        self.tells_cached = _can_read_at() and hasattr(os, "RWF_NOWAIT")
        self._descriptor = None
        self._descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))

    def __del__(self):
        if self._descriptor is not None:
            os.close(self._descriptor)

    def status(self) -> os.stat_result:
        return os.fstat(self._descriptor)

    def lock(self) -> None:
        """Keep writers out, as an open HDF5 file does. Raises BlockingIOError when one is in already."""
        if fcntl is None or os.environ.get("HDF5_USE_FILE_LOCKING", "").upper() in {"FALSE", "0"}:
            return
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError as error:
            if isinstance(error, BlockingIOError):
                raise
            # Otherwise it is a disk without locks. HDF5 opened the file there before, so the user allowed that.

    def unlock(self) -> None:
        """Let writers in, also while a forked child or the trace of an error still holds this file open."""
        if fcntl is not None:
            with contextlib.suppress(OSError):  # a disk without locks
                fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def advise(self, offset: int, size: int) -> None:
        with contextlib.suppress(OSError):  # a wish, on a kind of disk that does not take it
            for start in range(offset, offset + size, _ADVICE_BYTES):
                length = min(_ADVICE_BYTES, offset + size - start)
                os.posix_fadvise(self._descriptor, start, length, os.POSIX_FADV_WILLNEED)

    def fill(self, memory: memoryview, offset: int) -> None:
        """Read from ``offset`` until ``memory`` is full, however few bytes the system gives at a time."""
        rest = memory
        while rest:
            try:
                count = self._read_at(rest, offset + len(memory) - len(rest))
            except OSError as error:
                raise ReadError(len(memory) - len(rest), f"the system said {error.strerror!r}") from error
            if count == 0:
                raise ReadError(len(memory) - len(rest), "the file ends before its last byte")
            rest = rest[count:]

    def fill_cached(self, memory: memoryview, offset: int) -> bool:
        """Fill ``memory`` if all of it lies in the system's cache, without waiting; returns whether it did."""
        try:
            return os.preadv(self._descriptor, [memory], offset, os.RWF_NOWAIT) == len(memory)
        except BlockingIOError:
            return False
        except OSError:  # not on this kind of disk
            self.tells_cached = False
            return False

    def _read_at(self, memory: memoryview, offset: int) -> int:
        """Read into ``memory``; returns the number of bytes, 0 at the end of the file."""
        if _can_read_at():
            return os.preadv(self._descriptor, [memory], offset)
        os.lseek(self._descriptor, offset, os.SEEK_SET)
        with open(self._descriptor, "rb", buffering=0, closefd=False) as file:
            return file.readinto(memory)


class _Reads:
    """The reads of one batch, (offset, bytes) each, in the order of the file.

    At the first one that the system does not have in its cache, it is asked for all the rest, so that the disk works on
    many while this thread waits for one: 1.4 to 1.7 times the images a second (299x299x3, batch 64, full shuffle, file
    of 3 GB not in memory, one thread on a busy machine; two threads keep that disk busy by themselves, 1.0). Asking
    costs up to a third of reading from the cache, so nothing is asked while all comes from there.
    """

    def __init__(self, file: _File, extents: list[tuple[int, int]]):
        self._file = file
        self._extents = extents
        self._cached = file.tells_cached

    def fill(self, number: int, memory: memoryview) -> None:
        offset = self._extents[number][0]
        if self._cached:
            self._cached = self._file.fill_cached(memory, offset)
            if self._cached:
                return
            for place, size in self._extents[number:] if self._file.tells_cached else ():
                self._file.advise(place, size)
        self._file.fill(memory, offset)


class ReadError(Exception):
    """Why a read ended early, and after how many bytes: whoever asked knows which row that is."""

    def __init__(self, done: int, reason: str):
        super().__init__(reason)
        self.done = done
        self.reason = reason


def _can_read_at() -> bool:
    return hasattr(os, "preadv")  # not on Windows


def _is_plain_numbers(data: h5py.Dataset) -> bool:
    """Whether the bytes in the file are those in memory: numbers, and no conversion between the two types."""
    return data.dtype.kind in _NUMBERS and data.id.get_type() == h5py.h5t.py_create(data.dtype, logical=True)


def holds_whole_rows(data: h5py.Dataset) -> bool:
    """Whether each row lies in one piece of this file, not filtered or filtered by gzip alone."""
    if data.size == 0:
        return False
    created = data.id.get_create_plist()
    filters = [created.get_filter(number)[0] for number in range(created.get_nfilters())]
    if created.get_layout() == h5py.h5d.CHUNKED:
        return data.chunks[1:] == data.shape[1:] and filters in ([], [h5py.h5z.FILTER_DEFLATE])
    # No offset: nothing was written yet, or it lies in other files.
    return created.get_layout() == h5py.h5d.CONTIGUOUS and data.id.get_offset() is not None


def _row_bytes(data: h5py.Dataset) -> int:
    return int(np.prod(data.shape[1:], dtype=np.int64)) * data.dtype.itemsize


def _agrees(direct: DirectRows, data: h5py.Dataset) -> bool:
    """Read the first and the last stored row both ways: what an offset counts from is HDF5's affair."""
    stored = np.flatnonzero(direct._offsets != MISSING)
    if len(stored) == 0:
        return False
    rows = np.minimum([stored[0] * direct._rows_a_chunk, (stored[-1] + 1) * direct._rows_a_chunk - 1], len(data) - 1)
    out = np.empty((2, *data.shape[1:]), data.dtype)
    try:
        direct.read(rows, out)
        return all(data[row : row + 1].tobytes() == ours.tobytes() for row, ours in zip(rows, out, strict=True))
    except OSError:  # damaged: HDF5 shall say so when the row is read
        return False
    finally:
        direct.close()


def runs(count: int, breaks: np.ndarray) -> list[tuple[int, int]]:
    """Starts and stops of the runs among ``count`` items; ``breaks[i]`` says that item i + 1 begins a new one."""
    if count == 0:
        return []
    edges = (np.flatnonzero(breaks) + 1).tolist()
    return list(zip([0, *edges], [*edges, count], strict=True))

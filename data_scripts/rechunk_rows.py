"""Rows of an HDF5 dataset, block by block: each chunk is unpacked once, and memory has a bound whatever the chunks.

A *slab* is the rows of one or more whole chunks. One that fits :data:`SLAB_BYTES` is read into memory. A larger one
(chunks of thousands of rows that cut the images) is read in boxes of whole chunks into a scratch file without a name,
and its rows are taken from there. Chunks are asked for one by one: HDF5 then copies each as one piece, which is many
times faster than spreading the bytes of cut chunks over a large array itself.
"""

from __future__ import annotations

import itertools
import math
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from pathlib import Path

import h5py
import numpy as np

from data_scripts.rechunk_inflate import DamagedChunkError, has_large_gzip_chunks, inflated_blocks
from data_scripts.rechunk_scratch import Scratch
from helpers.places import Places, find_places

SLAB_BYTES = 128 * 2**20  # of a slab in memory; chunk, block and libraries beside it stay far below 600 MB
BLOCK_BYTES = 16 * 2**20  # rows handed on at once
GATHER_BYTES = 64 * 2**20  # small rows are put into their new order in memory up to this size, then in a scratch file
GZIP_LEVEL = 4
_SMALL_CHUNK_BYTES = 1024  # below, a call of HDF5 for each chunk costs more than HDF5's own spreading
_CACHE_BYTES = 2**20  # of a dataset's chunk cache in HDF5 1.14; a larger chunk without filters is not brought in whole
_RAGGED_ROWS = 16  # read first, when the size of a row of variable length is not known yet
_MOST_RAGGED_ROWS = 4096


class DamagedRowError(ValueError):
    """A row cannot be read, or is not what it should be. Nothing appears under the name of the result."""


def name_of(data: h5py.Dataset) -> str:
    """Name of a dataset without the slash in front."""
    return (data.name or "").lstrip("/")


def unreadable(data: h5py.Dataset, first: int, last: int, error: Exception) -> DamagedRowError:
    """The error that rows ``first`` to ``last`` cannot be read."""
    rows = f"row {first}" if first == last else f"one of the rows {first} to {last}, which share a chunk,"
    return DamagedRowError(
        f"{rows} of {name_of(data)} in {data.file.filename} cannot be read. Copy or build the file again. The reason: "
        f"{error}"
    )


def is_ragged(data: h5py.Dataset) -> bool:
    """Whether rows differ in length: JPEG bytes, texts of variable length."""
    return data.dtype.hasobject


def is_list_of_values(data: h5py.Dataset) -> bool:
    """Whether each row is one text or one list of numbers, of any length."""
    base = h5py.check_vlen_dtype(data.dtype)
    is_text = h5py.check_string_dtype(data.dtype) is not None
    return data.ndim == 1 and (is_text or (base is not None and not np.dtype(base).hasobject))


def row_bytes(data: h5py.Dataset) -> int:
    """Bytes of a row of fixed length, unpacked."""
    return math.prod(data.shape[1:]) * data.dtype.itemsize


def byte_rows(rows: np.ndarray) -> np.ndarray:
    """Rows of fixed length as (n, bytes of a row) uint8, without a copy where they lie in one piece."""
    wide = np.ascontiguousarray(rows).reshape(len(rows), math.prod(rows.shape[1:]))
    return wide.view(np.uint8).reshape(len(rows), wide.shape[1] * rows.dtype.itemsize)


def row_crcs(rows: np.ndarray) -> np.ndarray:
    """CRC-32 of the stored bytes of each row, (n,) uint32; of the text or the values where rows differ in length."""
    parts = map(_ragged_bytes, rows) if rows.dtype.hasobject else byte_rows(rows)
    return np.fromiter(map(zlib.crc32, parts), np.uint32, len(rows))


def block_bytes(rows: np.ndarray) -> int:
    """Bytes of all rows of a block."""
    return sum(len(_ragged_bytes(value)) for value in rows) if rows.dtype.hasobject else rows.nbytes


def _ragged_bytes(value) -> bytes | np.ndarray:
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape")
    return value if isinstance(value, bytes) else np.ascontiguousarray(value).reshape(-1).view(np.uint8)


# -- reading ----------------------------------------------------------------------------------------------------------


def slab_rows(data: h5py.Dataset) -> int:
    """Rows of a slab: those of whole chunks, except where HDF5 reads parts of a chunk without bringing in all of it."""
    step = data.chunks[0] if data.chunks else 1
    if data.chunks and not data.id.get_create_plist().get_nfilters():
        step = 1 if math.prod(data.chunks) * data.dtype.itemsize > _CACHE_BYTES else step
    return step * max(1, SLAB_BYTES // max(1, step * row_bytes(data)))


def scratch_bytes(data: h5py.Dataset) -> int:
    """Size of the scratch file that :func:`row_blocks` needs for a dataset; 0 for most."""
    if is_ragged(data) or not data.chunks or has_large_gzip_chunks(data, SLAB_BYTES // 2):
        return 0
    rows = min(len(data), slab_rows(data))
    return rows * row_bytes(data) if rows > 1 and rows * row_bytes(data) > SLAB_BYTES else 0


def large_chunk_bytes(data: h5py.Dataset) -> int:
    """Size of a chunk that must be unpacked whole and is larger than a slab; 0 where there is none."""
    if is_ragged(data) or not data.chunks or not data.id.get_create_plist().get_nfilters():
        return 0
    size = math.prod(data.chunks) * data.dtype.itemsize
    return size if size > SLAB_BYTES and not has_large_gzip_chunks(data, SLAB_BYTES // 2) else 0


def row_blocks(
    data: h5py.Dataset, folder: Path, start: int = 0, on_read: Callable[[int], object] = lambda _: None
) -> Iterator[tuple[int, np.ndarray]]:
    """(first row, rows) of all rows from ``start`` on; a block is valid until the next one is asked for.

    ``folder`` takes the scratch file; ``on_read`` is told the bytes read since its last call. Raises
    DamagedRowError, and HDF5FileError where the index of chunks cannot be true.
    """
    if is_ragged(data):
        yield from _ragged_blocks(data, start, on_read)
        return
    step, size = slab_rows(data), row_bytes(data)
    most = max(1, BLOCK_BYTES // max(1, size))
    places = _places(data)
    if has_large_gzip_chunks(data, SLAB_BYTES // 2):
        yield from _stream_blocks(data, start, most, on_read)
        return
    for first in range(start // step * step, len(data), step):
        last = min(first + step, len(data))
        _check_found(data, places, first, last)
        if scratch_bytes(data) and (last - first) * size > SLAB_BYTES:
            with Scratch(folder, data.shape[1:], data.dtype) as scratch:
                for corner, box in _boxes(data, first, last):
                    scratch.put_box(_filled(data, (first, *corner), (last - first, *box), on_read), corner)
                for row in range(max(first, start), last, most):
                    yield row, scratch.rows(row - first, min(row + most, last) - first)
        else:
            origin = (first,) + (0,) * (data.ndim - 1)
            slab = _filled(data, origin, (last - first, *data.shape[1:]), on_read)
            for row in range(max(first, start), last, most):
                yield row, slab[row - first : min(row + most, last) - first]


def _places(data: h5py.Dataset) -> Places | None:
    """Where the chunks of an input lie; of the part nobody needs to ask, and it has no name that leads to a file."""
    path = Path(data.file.filename)
    found = find_places(data, path, name_of(data)) if path.is_file() else None
    if found is not None and found.lying:
        row = min(found.lying) // found.chunks_a_row * found.rows_a_chunk
        _check_found(data, found, row, min(row + found.rows_a_chunk, len(data)))
    return found


def _check_found(data: h5py.Dataset, places: Places | None, first: int, last: int) -> None:
    """HDF5 reads a chunk that a damaged index hides as zeros: these would get a checksum in the new file."""
    if places is None:
        return
    try:
        places.check_found(data, first, last - first)
    except (OSError, RuntimeError) as error:
        step = places.rows_a_chunk
        for row in range(first, last, step) if last - first > step else ():  # which of them?
            _check_found(data, places, row, min(row + step, last))
        raise unreadable(data, first, last - 1, error) from error


def _stream_blocks(data, start, most, on_read) -> Iterator[tuple[int, np.ndarray]]:
    try:
        for first, rows in inflated_blocks(data, start, most):
            on_read(rows.nbytes)
            yield first, rows
    except DamagedChunkError as error:
        raise unreadable(data, error.first, error.last - 1, error) from error


def _ragged_blocks(data, start, on_read) -> Iterator[tuple[int, np.ndarray]]:
    count, longest = _RAGGED_ROWS, 1
    while start < len(data):
        try:
            rows = data[start : start + count]
        except OSError as error:
            raise _first_unreadable(data, start, min(start + count, len(data)), error) from error
        yield start, rows
        on_read(block_bytes(rows))
        start, longest = start + len(rows), max(longest, *(len(_ragged_bytes(value)) for value in rows))
        count = min(4 * count, _MOST_RAGGED_ROWS, max(1, BLOCK_BYTES // longest))


def _first_unreadable(data: h5py.Dataset, first: int, last: int, error: Exception) -> DamagedRowError:
    for row in range(first, last):
        try:
            data[row]
        except OSError as exact:
            return unreadable(data, row, row, exact)
    return unreadable(data, first, last - 1, error)


def _boxes(data: h5py.Dataset, first: int, last: int) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """(corner, shape) of boxes of whole chunks that tile an image; so many rows of a box fit into a slab."""
    shape, box = data.shape[1:], list(data.chunks[1:])
    left = SLAB_BYTES // ((last - first) * math.prod(box) * data.dtype.itemsize)
    for axis in reversed(range(len(box))):  # the last axes first: longer runs of bytes in the scratch file
        times = max(1, min(left, -(-shape[axis] // box[axis])))
        box[axis] *= times
        left //= times
    for corner in itertools.product(*(range(0, side, step) for side, step in zip(shape, box, strict=True))):
        yield corner, tuple(min(step, side - at) for at, side, step in zip(corner, shape, box, strict=True))


def _filled(data: h5py.Dataset, origin, shape, on_read) -> np.ndarray:
    """The part of a dataset at ``origin``; both are whole chunks, except at the dataset's end."""
    out = np.empty(shape, data.dtype)
    for corner, count in _pieces(data, origin, shape):
        place = tuple(slice(at - zero, at - zero + n) for at, zero, n in zip(corner, origin, count, strict=True))
        target = out[place]
        piece = target if target.flags.c_contiguous else np.empty(count, data.dtype)
        try:
            _read_into(data, corner, piece)
        except (OSError, RuntimeError) as error:
            first, last = corner[0], corner[0] + count[0]
            whole_chunk = data.chunks and all(n <= step for n, step in zip(count, data.chunks, strict=True))
            if whole_chunk:
                raise unreadable(data, first, last - 1, error) from error
            raise _first_unreadable(data, first, last, error) from error
        if piece is not target:
            target[...] = piece
        on_read(piece.nbytes)
    return out


def _pieces(data: h5py.Dataset, origin, shape) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    steps = data.chunks or data.shape
    if math.prod(steps) * data.dtype.itemsize < _SMALL_CHUNK_BYTES:
        steps = data.shape
    axes = [range(zero, zero + side, step) for zero, side, step in zip(origin, shape, steps, strict=True)]
    for corner in itertools.product(*axes):
        yield (
            corner,
            tuple(
                min(step, zero + side - at) for at, zero, side, step in zip(corner, origin, shape, steps, strict=True)
            ),
        )


def _read_into(data: h5py.Dataset, corner: tuple[int, ...], out: np.ndarray) -> None:
    in_file = data.id.get_space()
    in_file.select_hyperslab(corner, out.shape)
    data.id.read(h5py.h5s.create_simple(out.shape), in_file, out)


def write_rows(data: h5py.Dataset, first: int, rows: np.ndarray) -> None:
    """Write neighbouring rows from row ``first`` on."""
    if not rows.size:
        return
    in_file = data.id.get_space()
    in_file.select_hyperslab((first, *(0 for _ in rows.shape[1:])), rows.shape)
    data.id.write(h5py.h5s.create_simple(rows.shape), in_file, np.ascontiguousarray(rows))


# -- rows to their places ---------------------------------------------------------------------------------------------


class ScatteredRows:
    """Puts rows at any places of a dataset with one row a chunk, past HDF5's cache and filters."""

    def __init__(self, target: h5py.Dataset, pool: Executor):
        self._target, self._pool = target, pool
        self._tail = (0,) * (target.ndim - 1)
        self._gzip = target.compression is not None

    def write(self, rows: np.ndarray, places: np.ndarray) -> None:
        """Row i goes to ``places[i]``."""
        stored = byte_rows(rows)
        if self._gzip:
            stored = self._pool.map(lambda row: zlib.compress(row, GZIP_LEVEL), stored)
        for place, row in zip(places.tolist(), stored, strict=True):
            self._target.id.write_direct_chunk((place, *self._tail), row)

    def crcs(self, places: np.ndarray) -> np.ndarray:
        """CRC-32 of the rows at ``places``, read from the file again."""
        stored = (self._target.id.read_direct_chunk((place, *self._tail))[1] for place in places.tolist())
        if self._gzip:
            stored = self._pool.map(zlib.decompress, stored)
        return np.fromiter(map(zlib.crc32, stored), np.uint32, len(places))


class RaggedRows:
    """Puts rows of variable length at any places of a dataset."""

    def __init__(self, target: h5py.Dataset):
        access = h5py.h5p.create(h5py.h5p.DATASET_ACCESS)
        access.set_chunk_cache(10007, 16 * 2**20, 1.0)  # a million references: 16 bytes a row
        self._target = h5py.Dataset(h5py.h5d.open(target.file.id, target.name.encode(), access))

    def write(self, rows: np.ndarray, places: np.ndarray) -> None:
        """Row i goes to ``places[i]``."""
        for place, row in zip(places.tolist(), rows, strict=True):
            self._target[place] = row

    def crcs(self, places: np.ndarray) -> np.ndarray:
        """CRC-32 of the rows at ``places``, read from the file again."""
        return np.concatenate([row_crcs(self._target[place : place + 1]) for place in places.tolist()])


class GatheredRows:
    """Small rows put into their new order in memory or in a scratch file, then written in one go; a context manager."""

    def __init__(self, n: int, row_shape: tuple[int, ...], dtype: np.dtype, folder: Path):
        self.n, self.row_shape, self.dtype = n, row_shape, dtype
        self._row_bytes = math.prod(row_shape) * dtype.itemsize
        self._scratch = Scratch(folder, row_shape, dtype) if n * self._row_bytes > GATHER_BYTES else None
        self._rows = None if self._scratch else np.empty((n, self._row_bytes), np.uint8)

    def __enter__(self) -> GatheredRows:
        return self

    def __exit__(self, *_) -> None:
        if self._scratch is not None:
            self._scratch.__exit__()

    def write(self, rows: np.ndarray, places: np.ndarray) -> None:
        """Row i goes to ``places[i]``."""
        if self._scratch is None:
            self._rows[places] = byte_rows(rows)
            return
        for place, row in zip(places.tolist(), byte_rows(rows), strict=True):
            self._scratch.put_row(place, row)

    def store(self, target: h5py.Dataset, run: Callable) -> None:
        """Write all rows to ``target``, in blocks of whole chunks; ``run(function, *args)`` calls each."""
        chunk = target.chunks[0]
        step = chunk * max(1, BLOCK_BYTES // max(1, chunk * self._row_bytes))
        for first in range(0, self.n, step):
            last = min(first + step, self.n)
            if self._scratch is None:
                rows = self._rows[first:last].reshape(-1).view(self.dtype).reshape(last - first, *self.row_shape)
            else:
                rows = self._scratch.rows(first, last)
            run(write_rows, target, first, rows)

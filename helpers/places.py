"""Where HDF5 keeps the chunks of a dataset, and whether that can be true.

Files of HDF5's old format, which most programs write, have no checksum over their index. One flipped bit there makes
a chunk vanish (its images read as black) or lets it lie where other bytes are. So each chunk is looked up once and
compared with the file: inside it, as long as it should be, and not on top of another one.
"""

from __future__ import annotations

import errno
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import h5py
import numpy as np

from helpers.layout import HDF5FileError, clear_damage, dataset_names

MISSING = -1  # a chunk that was never written: HDF5 makes its rows from the fill value
_FEWEST_CHUNKS = 2**20  # that a shape may ask for, however small the file is
_MOST_UNPACKED = 1100  # times its stored bytes: gzip ends at 1032, lzf at 88
_FILTERS_THAT_PACK_SO = {
    h5py.h5z.FILTER_DEFLATE,
    h5py.h5z.FILTER_SHUFFLE,
    h5py.h5z.FILTER_FLETCHER32,
    h5py.h5z.FILTER_LZF,
}


@dataclass(frozen=True)
class Places:
    """Each chunk of a dataset in the order of its rows; rows stored in one piece are one chunk."""

    offsets: np.ndarray  # (chunks,) int64, in the file; MISSING where nothing was written
    sizes: np.ndarray  # (chunks,) int64, stored bytes
    masks: np.ndarray  # (chunks,) int64: bit i is set where filter i was left out
    chunks: tuple[int, ...]  # shape of a chunk
    grid: tuple[int, ...]  # how many of them lie along each axis
    has_checksum: bool = False  # the index; in all formats from HDF5 1.10 on
    found: set[int] = field(default_factory=set)  # chunks that HDF5 found by itself; threads may share it

    @property
    def rows_a_chunk(self) -> int:
        return self.chunks[0]

    @property
    def chunks_a_row(self) -> int:
        return math.prod(self.grid[1:])

    def check_found(self, data: h5py.Dataset, row: int, count: int) -> None:
        """Ask HDF5 for each stored chunk of neighbouring rows by itself, once. Raises RuntimeError when it finds none.

        In a damaged index a chunk can be listed and yet not be found; reading the rows then gives black images.
        """
        if self.has_checksum or data.chunks is None:
            return
        first, last = row // self.rows_a_chunk, (row + count - 1) // self.rows_a_chunk
        numbers = np.arange(first * self.chunks_a_row, (last + 1) * self.chunks_a_row)
        for number in numbers[self.offsets[numbers] != MISSING].tolist():
            if number not in self.found:
                place = np.unravel_index(number, self.grid)
                corner = tuple(int(step) * side for step, side in zip(place, self.chunks, strict=True))
                with h5py._objects.phil:  # HDF5's lock, which h5py 3.14 does not take in this call
                    data.id.read_direct_chunk(corner)
                self.found.add(number)

    def unwritten(self, rows: np.ndarray) -> np.ndarray:
        """Which of these rows lie in a chunk that was never written, (n,) bool."""
        missing = (self.offsets == MISSING).reshape(-1, self.chunks_a_row).any(axis=1)
        return missing[rows // self.rows_a_chunk]


def find_places(data: h5py.Dataset, path: Path, name: str) -> Places | None:
    """Where the bytes of an open dataset lie; None when they lie in other files, or in its header.

    Raises
    ------
    HDF5FileError
        The index cannot be read, or cannot be true.
    """
    file_size = Path(data.file.filename).stat().st_size
    layout = data.id.get_create_plist().get_layout()
    if data.size == 0 or layout not in {h5py.h5d.CHUNKED, h5py.h5d.CONTIGUOUS} or data.external:
        return None
    with clear_damage(path):
        places = _chunks(data, path, name, file_size) if layout == h5py.h5d.CHUNKED else _one_piece(data)
    _check(data, places, path, name, file_size)
    return places


def check_apart(data: h5py.Dataset, places: Places, path: Path, name: str) -> None:
    """Raise HDF5FileError when a chunk lies on top of another dataset of its file.

    Only for files whose index has no checksum: those of the formats before HDF5 1.10.
    """
    if _has_checksum(data):
        return
    others = list(_others(data))
    if _overlap(_extents(places, _headers(data, others))):
        raise _untrue(path, name, "it lies on top of a header")
    for other in others:
        try:
            theirs = find_places(other, path, other.name)
        except HDF5FileError:  # it is told of when that dataset is read
            continue
        if theirs is not None and _overlap(_extents(places, theirs)):
            raise _untrue(path, name, f"it lies on top of {other.name.lstrip('/')}")


def _has_checksum(data: h5py.Dataset) -> bool:
    return data.file.id.get_create_plist().get_version()[0] >= 3


def _headers(data: h5py.Dataset, others: list[h5py.Dataset]) -> Places:
    """Where the file and each dataset and its group begin; of how far they reach, only the first byte is certain."""
    items = [item for each in (data, *others) for item in (each, each.parent)]
    base = data.file.userblock_size
    begin = sorted({0, base, *(base + h5py.h5o.get_info(item.id).addr for item in (data.file, *items))})
    offsets = np.array(begin, np.int64)
    return Places(offsets, np.ones_like(offsets), np.zeros_like(offsets), (1,), offsets.shape)


def _others(data: h5py.Dataset) -> Iterator[h5py.Dataset]:
    own = h5py.h5o.get_info(data.id).addr
    for name in dataset_names(data.file):
        link = data.file.get(name, getlink=True)
        if isinstance(link, h5py.HardLink) and h5py.h5o.get_info(data.file[name].id).addr != own:
            yield data.file[name]


def _one_piece(data: h5py.Dataset) -> Places:
    offset = data.id.get_offset()  # None: nothing was written yet
    place = np.array([MISSING if offset is None else offset])
    return Places(place, np.array([data.id.get_storage_size()]), np.array([0]), data.shape, (1,) * data.ndim)


def _chunks(data: h5py.Dataset, path: Path, name: str, file_size: int) -> Places:
    grid = tuple(-(-side // step) for side, step in zip(data.shape, data.chunks, strict=True))
    count = math.prod(grid)
    if any(most is not None and step > most for step, most in zip(data.chunks, data.maxshape, strict=True)):
        raise _untrue(path, name, f"its shape {data.shape} cannot grow to the size of its chunks, {data.chunks}")
    if count > max(_FEWEST_CHUNKS, file_size):
        raise _untrue(path, name, f"its shape {data.shape} asks for {count:,} chunks in {file_size:,} bytes")
    found: list = []
    # One walk over the index, 0.1 to 0.7 s for 100,000 chunks; asking for each chunk by number would walk it each time.
    data.id.chunk_iter(found.append)
    corners = np.array([chunk.chunk_offset for chunk in found], np.uint64).reshape(-1, data.ndim)
    wrong = (corners % np.array(data.chunks, np.uint64) != 0) | (corners >= np.array(data.shape, np.uint64))
    if wrong.any():
        corner = tuple(corners[wrong.any(axis=1)][0].tolist())
        raise _untrue(path, name, f"it has a chunk at {corner}, in a shape of {data.shape}")
    numbers = np.ravel_multi_index(tuple((corners // np.array(data.chunks, np.uint64)).astype(np.int64).T), grid)
    if len(np.unique(numbers)) != len(numbers):
        raise _untrue(path, name, "it has two chunks for the same rows")
    places = []
    for name_of, empty in (("byte_offset", MISSING), ("size", 0), ("filter_mask", 0)):
        values = np.full(count, empty, np.int64)
        values[numbers] = np.array([getattr(chunk, name_of) for chunk in found], np.uint64).astype(np.int64)
        places.append(values)
    return Places(*places, data.chunks, grid, _has_checksum(data))


def _check(data: h5py.Dataset, places: Places, path: Path, name: str, file_size: int) -> None:
    stored = places.offsets != MISSING
    offsets, sizes = places.offsets[stored], places.sizes[stored]
    outside = (offsets < 0) | (sizes < 0) | (offsets > file_size) | (sizes > file_size - offsets)
    if outside.any():
        raise _untrue(path, name, f"it has a chunk at byte {offsets[outside][0]:,} of {file_size:,}")
    if _overlap(_extents(places)):
        raise _untrue(path, name, "two of its chunks lie on top of each other")
    unpacked = data.nbytes if data.chunks is None else math.prod(data.chunks) * data.id.get_type().get_size()
    if h5py.check_vlen_dtype(data.dtype) is not None or not len(sizes):
        return
    filters = _filters(data)
    if not filters and (sizes != unpacked).any():
        raise _untrue(path, name, f"a chunk of {unpacked:,} bytes has only {sizes[sizes != unpacked][0]:,} in the file")
    if filters <= _FILTERS_THAT_PACK_SO and (sizes * _MOST_UNPACKED < unpacked).any():
        raise _untrue(path, name, f"no filter packs {unpacked:,} bytes into {sizes.min():,}")


def _filters(data: h5py.Dataset) -> set[int]:
    created = data.id.get_create_plist()
    return {created.get_filter(number)[0] for number in range(created.get_nfilters())}


def _extents(*places: Places) -> tuple[np.ndarray, np.ndarray]:
    stored = [each.offsets != MISSING for each in places]
    return (
        np.concatenate([each.offsets[there] for each, there in zip(places, stored, strict=True)]),
        np.concatenate([each.sizes[there] for each, there in zip(places, stored, strict=True)]),
    )


def _overlap(extents: tuple[np.ndarray, np.ndarray]) -> bool:
    offsets, sizes = extents
    order = np.argsort(offsets, kind="stable")
    return bool((offsets[order][:-1] + sizes[order][:-1] > offsets[order][1:]).any())


def _untrue(path: Path, name: str, reason: str) -> HDF5FileError:
    return HDF5FileError(
        errno.EIO,
        f"the index of {name} in {path} is damaged: {reason}. Copy or build the file again.",
    )

"""Where HDF5 keeps the chunks of a dataset, and whether that can be true.

Files of HDF5's old format, which most programs write, have no checksum over their index. One flipped bit there makes
a chunk vanish (its images read as black) or lets it lie where other bytes are. So each chunk is looked up once and
compared with the file: inside it, as long as it should be, and not on top of another one.
"""

from __future__ import annotations

import errno
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import h5py
import numpy as np

from helpers.layout import HDF5FileError, clear_damage, dataset_names

MISSING = -1  # a chunk that was never written: HDF5 makes its rows from the fill value
_FEWEST_CHUNKS = 2**20  # that a shape may ask for, however small the file is
_MOST_OTHERS = 1000  # datasets that a chunk might lie on top of: 0.3 s
_CUT_CHUNKS = 8  # looked into for pixels beyond the shape
_CUT_BYTES = 2**25  # unpacked, of these chunks; one is looked into all the same
_MOST_UNPACKED = 1100  # times its stored bytes: gzip ends at 1032, lzf at 88
_FILTERS_THAT_PACK_SO = {
    h5py.h5z.FILTER_DEFLATE,
    h5py.h5z.FILTER_SHUFFLE,
    h5py.h5z.FILTER_FLETCHER32,
    h5py.h5z.FILTER_LZF,
}
_MASKS = ({h5py.h5z.FILTER_DEFLATE, h5py.h5z.FILTER_LZF}, {h5py.h5z.FILTER_FLETCHER32})  # that pack, that add 4 bytes


@dataclass(frozen=True)
class Places:
    """Each chunk of a dataset in the order of its rows; rows stored in one piece are one chunk."""

    offsets: np.ndarray  # (chunks,) int64, in the file; MISSING where nothing was written
    sizes: np.ndarray  # (chunks,) int64, stored bytes
    masks: np.ndarray  # (chunks,) int64: bit i is set where filter i was left out
    chunks: tuple[int, ...]  # shape of a chunk
    grid: tuple[int, ...]  # how many of them lie along each axis
    has_checksum: bool = False  # the index; in all formats from HDF5 1.10 on
    lying: frozenset[int] = frozenset()  # chunks whose mask and size cannot both be true
    found: set[int] = field(default_factory=set)  # chunks that HDF5 found by itself; threads may share it

    @property
    def rows_a_chunk(self) -> int:
        return self.chunks[0]

    @property
    def chunks_a_row(self) -> int:
        return math.prod(self.grid[1:])

    def check_found(self, data: h5py.Dataset, row: int, count: int) -> None:
        """Ask HDF5 for each stored chunk of neighbouring rows by itself, once. Raises RuntimeError when it finds none.

        In a damaged index a chunk can be listed and yet not be found; reading the rows then gives black images. Or it
        can claim to be stored without its filters, and be too short for that; HDF5 then gives what was in memory.
        """
        if data.chunks is None or (self.has_checksum and not self.lying):
            return
        first, last = row // self.rows_a_chunk, (row + count - 1) // self.rows_a_chunk
        numbers = np.arange(first * self.chunks_a_row, (last + 1) * self.chunks_a_row)
        if not self.lying.isdisjoint(numbers.tolist()):
            raise RuntimeError("the index says of a chunk that filters were left out, and its size does not fit that")
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
    if data.chunks is not None and not _has_header_checksum(data):
        _check_nothing_beyond(data, places, path, name)
    return places


def check_apart(data: h5py.Dataset, places: Places, path: Path, name: str) -> None:
    """Raise HDF5FileError when a chunk lies on top of another dataset of its file.

    Only for files whose index has no checksum: those of the formats before HDF5 1.10. Of the other datasets, 1,000
    count; those in the same group come first.
    """
    if _has_checksum(data):
        return
    begins, ends = _sorted_extents(places)
    others = list(itertools.islice(_others(data), _MOST_OTHERS))
    if _hits(begins, ends, _headers(data, others)):
        raise _untrue(path, name, "it lies on top of a header")
    for other in others:
        try:
            theirs = find_places(other, path, other.name)
        except HDF5FileError:  # it is told of when that dataset is read
            continue
        if theirs is not None and _hits(begins, ends, theirs):
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
    own, group = h5py.h5o.get_info(data.id).addr, data.name.lstrip("/").rpartition("/")[0]
    for name in sorted(dataset_names(data.file), key=lambda each: each.rpartition("/")[0] != group):
        if isinstance(data.file.get(name, getlink=True), h5py.HardLink):
            other = data.file[name]
            if h5py.h5o.get_info(other.id).addr != own:
                yield other


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
    return Places(*places, data.chunks, grid, _has_checksum(data), _lying(data, *places[1:]))


def _lying(data: h5py.Dataset, sizes: np.ndarray, masks: np.ndarray) -> frozenset[int]:
    """Chunks that left out filters which the dataset does not have, or all that pack, and have not all their bytes."""
    filters = _filter_list(data)
    if not masks.any() or not set(filters) <= _FILTERS_THAT_PACK_SO:
        return frozenset()
    packs, adds = (sum(1 << place for place, code in enumerate(filters) if code in codes) for codes in _MASKS)
    unpacked = math.prod(data.chunks) * data.id.get_type().get_size() + np.where(masks & adds, 0, 4 * bool(adds))
    is_whole = (masks & packs != packs) | (packs == 0) | (sizes == unpacked)
    return frozenset(np.flatnonzero((masks >> len(filters) != 0) | ~is_whole).tolist())


def _check(data: h5py.Dataset, places: Places, path: Path, name: str, file_size: int) -> None:
    stored = places.offsets != MISSING
    offsets, sizes = places.offsets[stored], places.sizes[stored]
    outside = (offsets < 0) | (sizes < 0) | (offsets > file_size) | (sizes > file_size - offsets)
    if outside.any():
        raise _untrue(path, name, f"it has a chunk at byte {offsets[outside][0]:,} of {file_size:,}")
    begins, ends = _sorted_extents(places)
    if (ends[:-1] > begins[1:]).any():
        raise _untrue(path, name, "two of its chunks lie on top of each other")
    unpacked = data.nbytes if data.chunks is None else math.prod(data.chunks) * data.id.get_type().get_size()
    if h5py.check_vlen_dtype(data.dtype) is not None or not len(sizes):
        return
    _check_shuffle(data, path, name)
    filters = set(_filter_list(data))
    if not filters and (sizes != unpacked).any():
        raise _untrue(path, name, f"a chunk of {unpacked:,} bytes has only {sizes[sizes != unpacked][0]:,} in the file")
    if filters <= _FILTERS_THAT_PACK_SO and (sizes * _MOST_UNPACKED < unpacked).any():
        raise _untrue(path, name, f"no filter packs {unpacked:,} bytes into {sizes.min():,}")


def _check_shuffle(data: h5py.Dataset, path: Path, name: str) -> None:
    """The filter that sorts the bytes of numbers must know how many there are: else it puts them elsewhere."""
    created, size = data.id.get_create_plist(), data.id.get_type().get_size()
    for code, _, values, _ in map(created.get_filter, range(created.get_nfilters())):
        if code == h5py.h5z.FILTER_SHUFFLE and values and values[0] != size:
            raise _untrue(
                path, name, f"its bytes were sorted as numbers of {values[0]} bytes, and its numbers have {size}"
            )


def _has_header_checksum(data: h5py.Dataset) -> bool:
    return h5py.h5o.get_info(data.id).hdr.version >= 2


def _check_nothing_beyond(data: h5py.Dataset, places: Places, path: Path, name: str) -> None:
    """Refuse images of which chunks hold more than the shape shows, as after one flipped bit in the shape.

    Where a shape has room to grow, the last chunk of an axis can reach beyond it, and HDF5 keeps fill values there. A
    look into a few chunks tells, because damage to the shape cuts all images alike.
    """
    for number in _cut_chunks(data, places):
        corner = tuple(
            int(at) * side for at, side in zip(np.unravel_index(number, places.grid), data.chunks, strict=True)
        )
        try:
            chunk = _whole_chunk(data, corner)
        except (OSError, RuntimeError, ValueError):  # it is told of when its rows are read
            continue
        shown = tuple(slice(0, side - first) for side, first in zip(data.shape, corner, strict=True))
        chunk[shown] = 0
        if ((chunk != 0) & (chunk != data.fillvalue)).any():
            raise _untrue(path, name, f"its chunks hold more than its shape {data.shape} shows")


def _cut_chunks(data: h5py.Dataset, places: Places) -> list[int]:
    """Numbers of a few stored chunks that reach beyond the shape of an image, along an axis with room to grow."""
    at_the_edge = np.zeros(places.grid, bool)
    for axis in range(1, data.ndim) if data.dtype.kind in "ui" else ():
        side, most = data.shape[axis], data.maxshape[axis]
        if side % data.chunks[axis] and (most is None or most > side):
            at_the_edge[(slice(None),) * axis + (-1,)] = True
    numbers = np.flatnonzero(at_the_edge.ravel() & (places.offsets != MISSING))
    few = max(1, min(_CUT_CHUNKS, _CUT_BYTES // (math.prod(data.chunks) * data.dtype.itemsize)))
    return numbers[:: max(1, len(numbers) // few)][:few].tolist()


def _whole_chunk(data: h5py.Dataset, corner: tuple[int, ...]) -> np.ndarray:
    """A stored chunk with what lies beyond the shape, which HDF5 shows only where the shape is the chunk's."""
    with h5py._objects.phil:  # as in check_found
        mask, stored = data.id.read_direct_chunk(corner)
    with h5py.File("a chunk", "w", driver="core", backing_store=False) as memory:
        space = h5py.h5s.create_simple(data.chunks)
        one = h5py.h5d.create(memory.id, b"chunk", data.id.get_type(), space, data.id.get_create_plist())
        one.write_direct_chunk((0,) * data.ndim, stored, mask)
        return h5py.Dataset(one)[:]


def _filter_list(data: h5py.Dataset) -> list[int]:
    created = data.id.get_create_plist()
    return [created.get_filter(number)[0] for number in range(created.get_nfilters())]


def _sorted_extents(places: Places) -> tuple[np.ndarray, np.ndarray]:
    """First byte of each stored chunk and the one after its last, in the order of the file: (stored,) int64 each."""
    stored = places.offsets != MISSING
    offsets, sizes = places.offsets[stored], places.sizes[stored]
    order = np.argsort(offsets, kind="stable")
    return offsets[order], offsets[order] + sizes[order]


def _hits(begins: np.ndarray, ends: np.ndarray, others: Places) -> bool:
    """Whether other chunks share a byte with these, which are sorted and do not overlap each other."""
    stored = others.offsets != MISSING
    offsets, sizes = others.offsets[stored], others.sizes[stored]
    before = np.searchsorted(begins, offsets + sizes) - 1  # the last that begins before the other one ends
    return bool((ends[before[before >= 0]] > offsets[before >= 0]).any())


def _untrue(path: Path, name: str, reason: str) -> HDF5FileError:
    return HDF5FileError(
        errno.EIO,
        f"the index of {name} in {path} is damaged: {reason}. Copy or build the file again.",
    )

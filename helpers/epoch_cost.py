"""What a shuffled epoch reads from a file, foretold from the places of its chunks; no pixel is read.

The order of a few hundred batches is drawn, and what ``helpers.RowReader`` would do for them is counted::

    rows are read     when                                        by
    past HDF5         whole rows, plain or gzip; JPEG bytes       one read a row; one read and one inflation a gzip
                                                                  chunk and batch
    through HDF5      other filters, chunks that cut rows         whole chunks, through the chunk cache
    through HDF5,     unfiltered chunks above the chunk cache,    the pieces of each row
    without cache     contiguous rows that need conversion

The index of the chunks, which HDF5 reads too, is not counted. ``tests/benchmarks/epoch_cost.py`` compares with what is
really read.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np

from helpers import direct, heap, reader, tree
from helpers.places import Places
from helpers.words import count_text, size_text

BATCH_ROWS = 64
_DRAWN_BATCHES = 1_000  # of longer epochs these stand for all
_SIEVE_BYTES = 2**16  # HDF5 1.14 reads small pieces of unfiltered data through a buffer of this size, one a dataset
_OBJECT_BYTES = 16  # of the header of a collection, and of each object in it
_MUCH = 3  # times the images' own bytes
_PAGE_BYTES = 4096


@dataclass(frozen=True)
class EpochCost:
    """Reading all rows once in random order, in batches of 64."""

    bytes_read: int
    reads: int
    inflations: int  # chunks that a filter unpacks
    inflated_bytes: int  # and what comes out of it
    own_bytes: int  # of the images: unpacked pixels, or JPEG bytes
    rows: int

    @property
    def ratio(self) -> float:
        """Bytes touched for each byte of an image: read or unpacked, whichever is more."""
        return max(self.bytes_read, self.inflated_bytes) / max(1, self.own_bytes)

    @property
    def is_much(self) -> bool:
        """Several times the images' own bytes, where an image counts as a page of the disk at least."""
        return max(self.bytes_read, self.inflated_bytes) > _MUCH * max(self.own_bytes, _PAGE_BYTES * self.rows)

    def __str__(self) -> str:
        unpacks = f"unpacks {count_text(self.inflations, 'chunk')}"
        if self.inflations:
            unpacks += f" to {size_text(self.inflated_bytes)}"
        return (
            f"reads {size_text(self.bytes_read)} in {count_text(self.reads, 'piece')}, {unpacks}; "
            f"{self.ratio:.3g}x the images' own bytes"
        )


def epoch_cost(data: h5py.Dataset, places: Places | None, rows: heap.HeapRows | None, path: Path) -> EpochCost | None:
    """The cost of a shuffled epoch over an open dataset of the file ``path``.

    Parameters
    ----------
    places : where its chunks lie (:func:`helpers.places.find_places`).
    rows : where its bytes lie when it holds JPEG bytes (:func:`helpers.heap.locate_heap`).

    Returns
    -------
    None where it cannot be foretold: virtual datasets, bytes in other files, texts, JPEG bytes that only HDF5 can
    read, and when nothing was written.
    """
    if rows is not None:
        return _of_jpeg(rows)
    if places is None or data.dtype.hasobject or not (places.sizes > 0).any():
        return None
    if direct.can_read(data, path):
        return _of_direct(data, places)
    return _of_contiguous(data) if data.chunks is None else _of_chunks(data, places)


# ------------------------------------------------------------------------------------------- one kind after another


def _of_direct(data: h5py.Dataset, places: Places) -> EpochCost:
    row_bytes, n = _row_bytes(data), len(data)
    if not tree.filter_words(data):
        return EpochCost(n * row_bytes, n, 0, 0, n * row_bytes, n)
    stored = _band_bytes(places)
    whole = data.chunks[0] * row_bytes
    loads, last = _Loads(), -1
    for rows in _batches(n):
        for band in np.unique(rows // data.chunks[0]).tolist():  # one inflation a batch; the last chunk is kept
            if band != last or data.chunks[0] == 1 or whole > direct.LARGEST_KEPT_BYTES:
                loads.add(stored[band], 1)
            last = band
    return loads.cost(_scale(n, 1, len(stored)), whole, n * row_bytes, n)


def _of_chunks(data: h5py.Dataset, places: Places) -> EpochCost:
    stored, row_bytes, n = _band_bytes(places), _row_bytes(data), len(data)
    chunk_bytes = math.prod(data.chunks) * data.dtype.itemsize
    cache_bytes = reader.chunk_cache_bytes(data)
    filtered = bool(tree.filter_words(data))
    if not filtered and chunk_bytes > cache_bytes:
        return _of_pieces(data)
    room = cache_bytes // (chunk_bytes * places.chunks_a_row)  # bands of chunks that fit into the cache
    loads, cache = _Loads(), _Cache(room)
    for rows in _batches(n):
        bands = np.sort(rows) // data.chunks[0]  # the order in which RowReader visits them
        for band in (bands if room == 0 else np.unique(bands)).tolist():
            if not cache.has(band):
                loads.add(stored[band], places.chunks_a_row)
    return loads.cost(_scale(n, room, len(stored)), chunk_bytes if filtered else 0, n * row_bytes, n)


def _of_pieces(data: h5py.Dataset) -> EpochCost:
    """Unfiltered chunks above the cache: of each chunk, the pieces of a row that lie in one place."""
    row_bytes, n = _row_bytes(data), len(data)
    inner = data.chunks[1:]
    whole_tail = next((k for k in range(len(inner)) if inner[k:] == data.shape[1 + k :]), len(inner))
    # Each chunk holds inner[:whole_tail - 1] pieces of a row; what follows these sides lies in one place.
    pieces = math.prod(inner[: max(0, whole_tail - 1)]) if whole_tail else 1
    piece_bytes = math.prod(inner) * data.dtype.itemsize // pieces
    a_row = math.prod(-(-side // step) for side, step in zip(data.shape[1:], inner, strict=True))
    span = math.prod(inner) * data.dtype.itemsize  # a row's part of a chunk lies in one stretch of the file
    if piece_bytes >= _SIEVE_BYTES:
        return EpochCost(n * a_row * span, n * a_row * pieces, 0, 0, n * row_bytes, n)
    windows = -(-span // _SIEVE_BYTES)
    return EpochCost(n * a_row * windows * _SIEVE_BYTES, n * a_row * windows, 0, 0, n * row_bytes, n)


def _of_contiguous(data: h5py.Dataset) -> EpochCost:
    """Contiguous rows that only HDF5 can read: large ones as they are, small ones through the sieve buffer."""
    row_bytes, n = _row_bytes(data), len(data)
    if row_bytes >= _SIEVE_BYTES:
        return EpochCost(n * row_bytes, n, 0, 0, n * row_bytes, n)
    end, loads, until = n * row_bytes, _Loads(), -1
    for rows in _batches(n):
        for place in (np.sort(rows) * row_bytes).tolist():
            if not until - _SIEVE_BYTES <= place <= until - row_bytes:
                loads.add(min(_SIEVE_BYTES, end - place), 1)
                until = place + _SIEVE_BYTES
    return loads.cost(_scale(n), 0, n * row_bytes, n)


def _of_jpeg(rows: heap.HeapRows) -> EpochCost | None:
    """Each row by itself: the beginning of its collection, and all of the collection when that does not reach."""
    references = rows.references[rows.references["length"] > 0]
    if not len(references):
        return None
    references = np.sort(references, order=("address", "number"))
    length = references["length"].astype(np.int64)
    _, first, collection = np.unique(references["address"], return_index=True, return_inverse=True)
    ends = np.cumsum(_OBJECT_BYTES + -(-length // 8) * 8)  # each object has a header, and is filled up to 8 bytes
    ends = _OBJECT_BYTES + ends - np.concatenate([[0], ends])[first][collection]
    held = np.maximum(heap.SMALLEST_COLLECTION, ends[np.append(first[1:], len(ends)) - 1])[collection]
    begun = np.maximum(heap.SMALLEST_COLLECTION, length + 64)
    again = np.where((ends > begun) & (held > begun), held, 0)
    reads = len(length) + int(np.count_nonzero(again))
    return EpochCost(int(begun.sum() + again.sum()), reads, 0, 0, int(length.sum()), len(length))


# ----------------------------------------------------------------------------------------------------------- parts


class _Loads:
    """Loads that were counted, and how they stand for a whole epoch."""

    def __init__(self):
        self._bytes = self._reads = 0

    def add(self, size: float, reads: int) -> None:
        self._bytes += size
        self._reads += reads

    def cost(self, scale: float, unpacked_bytes: int, own_bytes: int, rows: int) -> EpochCost:
        """``unpacked_bytes`` come out of each read; 0 when there is nothing to unpack."""
        reads = round(self._reads * scale)
        inflations = reads if unpacked_bytes else 0
        return EpochCost(round(self._bytes * scale), reads, inflations, inflations * unpacked_bytes, own_bytes, rows)


class _Cache:
    """The last ``room`` things that were used."""

    def __init__(self, room: int):
        self._room = room
        self._kept: OrderedDict[int, None] = OrderedDict()

    def has(self, thing: int) -> bool:
        """Whether it is there; afterwards it is."""
        there = thing in self._kept
        self._kept[thing] = None
        self._kept.move_to_end(thing)
        if len(self._kept) > self._room:
            self._kept.popitem(last=False)
        return there


def _band_bytes(places: Places) -> list[int]:
    """Stored bytes of each band: the chunks that hold the same rows."""
    return places.sizes.reshape(-1, places.chunks_a_row).sum(axis=1).tolist()


def _batches(n: int) -> Iterator[np.ndarray]:
    """Rows of the batches of one shuffled epoch, or of its first thousand."""
    chance = np.random.default_rng(0)
    if n <= _DRAWN_BATCHES * BATCH_ROWS:
        order = chance.permutation(n)
        yield from (order[start : start + BATCH_ROWS] for start in range(0, n, BATCH_ROWS))
    else:
        yield from chance.integers(0, n, (_DRAWN_BATCHES, BATCH_ROWS))


def _scale(n: int, room: int = 0, things: int = 1) -> float:
    """What the drawn batches are to be multiplied with; 1 when all things stay in a cache once they are read."""
    return 1.0 if room >= things else max(1.0, n / (_DRAWN_BATCHES * BATCH_ROWS))


def _row_bytes(data: h5py.Dataset) -> int:
    return math.prod(data.shape[1:]) * data.dtype.itemsize

"""One pass over images, all or a sample: rows that are empty, unreadable, no picture, or not what their CRC-32 says."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import cv2
import h5py
import numpy as np

from helpers.contact_sheet import thumbnail_pixels
from helpers.heap import HeapRows
from helpers.images import ImageError, decode_jpeg
from helpers.places import Places

SAMPLED_IMAGES = 256  # per split, a quarter of them at the end, where a killed writer leaves black images
SAMPLE_BYTES = 256 * 2**20  # read at most about this much for the sample: badly cut chunks cost 0.6 GB an image
LARGEST_IMAGE_BYTES = 256 * 2**20  # unpacked; a larger one is no image to train on
_BLOCK_BYTES = 8 * 2**20  # read at once
_LARGE_BLOCK_BYTES = 128 * 2**20  # where chunks hold parts of many images: each block reads and unpacks them again


@dataclass
class PixelScan:
    """Rows that something is wrong with, in the order of the file."""

    looked_at: int = 0
    empty: list[int] = field(default_factory=list)  # only zeros
    broken: list[int] = field(default_factory=list)  # JPEG bytes that do not decode
    unreadable: list[int] = field(default_factory=list)
    differ: list[int] = field(default_factory=list)  # from their CRC-32
    said: str = ""  # HDF5's words about the last unreadable row
    thumbnails: dict[int, np.ndarray | None] = field(default_factory=dict)  # of the rows that were asked for


class Images:
    """Rows of an image dataset as they are stored: pixels, or JPEG bytes, which are read past HDF5 where ``heap`` can.

    HDF5 can crash or hang on damaged JPEG rows (:mod:`helpers.heap`).
    """

    def __init__(self, data: h5py.Dataset, name: str, heap: HeapRows | None = None, places: Places | None = None):
        self.data = data
        self.name = name  # in the file that is inspected; the dataset itself may lie in another one
        self._heap = heap
        self._places = places

    def row(self, row: int) -> np.ndarray | Exception:
        """One row; the error instead of one that cannot be read."""
        try:
            return self._read(row, row + 1)[0] if self._heap is None else self._heap.read(row)
        except (OSError, RuntimeError) as error:
            return error

    def every_row(self) -> Iterator[tuple[int, np.ndarray | Exception]]:
        """(row, image) of all rows, read in blocks."""
        n, step = len(self.data), _rows_at_once(self.data)
        if self._heap is not None:
            yield from ((row, self.row(row)) for row in range(n))
            return
        for start in range(0, n, step):
            try:
                block = self._read(start, min(start + step, n))
            except (OSError, RuntimeError):  # one of them cannot be read: which?
                yield from ((row, self.row(row)) for row in range(start, min(start + step, n)))
            else:
                yield from enumerate(block, start)

    def _read(self, start: int, stop: int) -> np.ndarray:
        if self._places is not None:
            self._places.check_found(self.data, start, stop - start)
        return self.data[start:stop]


def scan_all(images: Images, sums: h5py.Dataset | None, thumbnails: Iterable[int], step: Callable) -> PixelScan:
    """Look at every image; ``sums`` holds their CRC-32, and ``step(rows)`` is called as rows are done."""
    return _scan(images.every_row(), sums, set(thumbnails), step)


def scan_rows(images: Images, rows: list[int], thumbnails: Iterable[int]) -> PixelScan:
    """Look at some images."""
    return _scan(((row, images.row(row)) for row in rows), None, set(thumbnails), lambda _: None)


def sampled_rows(images: h5py.Dataset, wanted: list[int]) -> list[int]:
    """Rows of the sample: some of the wanted ones, others all over the dataset, and a quarter at its end."""
    n = len(images)
    most = min(SAMPLED_IMAGES, max(4, SAMPLE_BYTES // _cost_of_one(images)))
    if n <= most:
        return list(range(n))
    tail = np.arange(n - most // 4, n)
    wanted = sorted(row for row in wanted if row < tail[0])[: (most - len(tail)) // 2]
    count = most - len(tail) - len(wanted)
    spread = np.linspace(0, n - len(tail) - len(wanted) - 1, count).astype(np.int64)
    for row in wanted:  # the others are counted past the wanted ones, so that no row comes twice
        spread[spread >= row] += 1
    return sorted([*wanted, *spread.tolist(), *tail.tolist()])


def image_bytes(images: h5py.Dataset) -> int:
    """Unpacked bytes of one row."""
    return max(1, math.prod(images.shape[1:]) * images.dtype.itemsize)


def _scan(rows: Iterable, sums: h5py.Dataset | None, wanted: set[int], step: Callable) -> PixelScan:
    scan, stored = PixelScan(), _Sums(sums)
    for row, image in rows:
        scan.looked_at += 1
        step(1)
        if isinstance(image, Exception):
            scan.unreadable.append(row)
            scan.said = str(image)
            continue
        image = np.asarray(image)
        if sums is not None and zlib.crc32(np.ascontiguousarray(image)) != stored.of(row):
            scan.differ.append(row)
        if not image.size or not image.any():
            scan.empty.append(row)
        elif image.ndim == 1 and not _decodes(image):
            scan.broken.append(row)
        if row in wanted:
            scan.thumbnails[row] = thumbnail_pixels(image)
    return scan


class _Sums:
    """The CRC-32 of each row, read a block at a time."""

    _ROWS = 2**16

    def __init__(self, data: h5py.Dataset | None):
        self._data = data
        self._start, self._block = 0, np.empty(0, np.uint32)

    def of(self, row: int) -> int:
        if not self._start <= row < self._start + len(self._block):
            self._start = row - row % self._ROWS
            self._block = self._data[self._start : self._start + self._ROWS]
        return int(self._block[row - self._start])


def _rows_at_once(images: h5py.Dataset) -> int:
    """Whole chunks where that is possible: of a chunk that is read in two parts, each part unpacks all of it."""
    size = image_bytes(images)
    step = max(1, _BLOCK_BYTES // size)
    if images.chunks is None or images.chunks[0] == 1:
        return step
    band = images.chunks[0]
    if band <= step:
        return step // band * band
    return min(band, max(1, _LARGE_BLOCK_BYTES // size))


def _cost_of_one(images: h5py.Dataset) -> int:
    """Bytes that HDF5 touches to read one image by itself."""
    if images.chunks is None:
        return image_bytes(images)
    pieces = math.prod(-(-side // step) for side, step in zip(images.shape[1:], images.chunks[1:], strict=True))
    return max(image_bytes(images), pieces * math.prod(images.chunks) * images.dtype.itemsize)


def _decodes(data: np.ndarray) -> bool:
    try:
        decode_jpeg(data)
    except (ImageError, cv2.error):
        return False
    return True

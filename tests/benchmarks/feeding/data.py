"""Files for the benchmark of feeding: the same images in every format, each carrying its row number and its class.

A patch in the middle of each image holds the low byte of the row, its high byte and the class in the three channels.
Flips, zooms and shears about the middle leave it there, so augmented work can be verified too. Around it lies smooth
noise with grain, which gzip finds as hard as a photograph: it saves about a tenth.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import cv2
import h5py
import numpy as np

from helpers import HDF5Writer

SIDE = 299
SHAPE = (SIDE, SIDE, 3)
IMAGE_BYTES = SIDE * SIDE * 3
CLASSES = 101
BATCH = 64
MAX_ROWS = 2**16  # what two bytes can number
MIDDLE = SIDE // 2
_PATCH = slice(MIDDLE - 6, MIDDLE + 7)  # wide enough for a warp whose middle is off by a pixel, and for zooms
_PHOTOGRAPHS = 16
_BLOCK = 64  # images in memory at a time while the files are made
_RECORD_FILES = 8  # TFRecord is read in parallel, and shuffled, by file
_COPIES = 4  # of each image on the disk: raw, contiguous, gzip (hardly smaller), TFRecord


@dataclass(frozen=True)
class Files:
    """Where the same ``n`` images lie: one image a chunk, contiguous, gzip-4 one image a chunk, TFRecord."""

    n: int
    raw: Path
    contiguous: Path
    gzip: Path
    records: tuple[Path, ...]

    def labels(self) -> np.ndarray:
        """One-hot labels (n, classes) float32 of all rows."""
        return np.eye(CLASSES, dtype=np.float32)[class_of_row(np.arange(self.n))]


def disk_bytes(n: int) -> int:
    """Bytes on the disk, and so in the page cache, for ``n`` images in all formats."""
    return _COPIES * n * IMAGE_BYTES


def checked_count(n: int) -> int:
    """``n`` again. Raises ValueError unless it makes two whole batches, and two bytes can number the images."""
    least = 2 * BATCH
    if not least <= n <= MAX_ROWS or n % BATCH:
        raise ValueError(f"the number of images must be a multiple of {BATCH} from {least} to {MAX_ROWS}; got {n}.")
    return n


def class_of_row(rows: np.ndarray) -> np.ndarray:
    """Class number of each row, (n,) int64; neighbours differ."""
    rows = np.asarray(rows, np.int64)
    return (7 * rows + rows // CLASSES) % CLASSES


def decode(images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Row numbers and class numbers, (batch,) int64 each, out of the pixels of (batch, height, width, 3) uint8."""
    middle = np.asarray(images[:, MIDDLE, MIDDLE, :]).astype(np.int64)
    return middle[:, 0] + 256 * middle[:, 1], middle[:, 2]


def photographs(count: int = _PHOTOGRAPHS, seed: int = 0) -> np.ndarray:
    """(count, 299, 299, 3) uint8: noise of many scales and the grain of a sensor."""
    rng = np.random.default_rng(seed)
    return np.stack([_photograph(rng) for _ in range(count)])


def images_of(rows: np.ndarray, pictures: np.ndarray) -> np.ndarray:
    """The images of these rows, (len(rows), 299, 299, 3) uint8: a picture moved round, with the code in its middle."""
    images = np.empty((len(rows), *SHAPE), np.uint8)
    numbers = class_of_row(rows).tolist()
    for image, row, number in zip(images, np.asarray(rows).tolist(), numbers, strict=True):
        image[:] = np.roll(pictures[row % len(pictures)], (37 * row) % SIDE, axis=0)
        image[_PATCH, _PATCH] = (row % 256, row // 256, number)
    return images


def make_files(folder: Path, n: int) -> Files:
    """Write all files of ``n`` images, from the same arrays."""
    n = checked_count(n)
    records = tuple(folder / f"train-{number}.tfrecord" for number in range(_RECORD_FILES))
    files = Files(n, folder / "raw.h5", folder / "contiguous.h5", folder / "gzip.h5", records)
    names = [f"class {number}" for number in range(CLASSES)]
    with (
        HDF5Writer(files.raw, SHAPE, names) as writer,
        _PlainFile(files.contiguous, n, chunks=None) as contiguous,
        _PlainFile(files.gzip, n, chunks=(1, *SHAPE)) as gzip,
        _Records(records) as tfrecords,
    ):
        for start, images, numbers in _blocks(n):
            writer.append("train", images, numbers)
            contiguous.write(start, images, numbers)
            gzip.write_compressed(start, images, numbers)
            tfrecords.write(images, numbers)
    return files


def warm(files: Files) -> None:
    """Read every file, so that all lie in the page cache, whatever ran meanwhile; the disk is scale.py's matter."""
    buffer = bytearray(2**24)
    for path in (files.raw, files.contiguous, files.gzip, *files.records):
        with path.open("rb", buffering=0) as file:
            while file.readinto(buffer):
                pass


def _blocks(n: int) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    pictures = photographs()
    for start in range(0, n, _BLOCK):
        rows = np.arange(start, min(start + _BLOCK, n))
        yield start, images_of(rows, pictures), class_of_row(rows)


def _photograph(rng: np.random.Generator) -> np.ndarray:
    image = np.full(SHAPE, 120, np.float32)
    for octave in range(1, 7):
        coarse = rng.normal(size=(2**octave + 1, 2**octave + 1, 3)).astype(np.float32)
        image += 60 / 1.7**octave * cv2.resize(coarse, (SIDE, SIDE), interpolation=cv2.INTER_CUBIC)
    image += rng.normal(scale=2.5, size=(SIDE, SIDE, 1)) + rng.normal(scale=1.2, size=SHAPE)
    return np.clip(image, 0, 255).astype(np.uint8)


class _PlainFile:
    """A file of the kit's names that h5py writes."""

    def __init__(self, path: Path, n: int, chunks: tuple | None):
        self._file = h5py.File(path, "w")
        packing = {} if chunks is None else {"compression": "gzip", "compression_opts": 4}
        self._images = self._file.create_dataset("train_img", (n, *SHAPE), np.uint8, chunks=chunks, **packing)
        self._labels = self._file.create_dataset("train_labels", (n, CLASSES), np.uint8)
        self._file.attrs["class_names"] = [f"class {number}" for number in range(CLASSES)]
        self._pool = ThreadPoolExecutor(os.cpu_count())

    def write(self, start: int, images: np.ndarray, numbers: np.ndarray) -> None:
        self._images[start : start + len(images)] = images
        self._write_labels(start, numbers)

    def write_compressed(self, start: int, images: np.ndarray, numbers: np.ndarray) -> None:
        """The same bytes as HDF5's own gzip-4, made on all cores."""
        packed = self._pool.map(lambda image: zlib.compress(image, 4), images)
        for row, chunk in enumerate(packed, start):
            self._images.id.write_direct_chunk((row, 0, 0, 0), chunk)
        self._write_labels(start, numbers)

    def _write_labels(self, start: int, numbers: np.ndarray) -> None:
        self._labels[start : start + len(numbers)] = np.eye(CLASSES, dtype=np.uint8)[numbers]

    def __enter__(self) -> _PlainFile:
        return self

    def __exit__(self, *exc_info) -> None:
        self._pool.shutdown()
        self._file.attrs["complete"] = True
        self._file.close()


class _Records:
    """TFRecord files of raw pixels and class numbers; image i goes to file i modulo their number."""

    def __init__(self, paths: tuple[Path, ...]):
        import tensorflow as tf  # costs seconds; worker processes of peers import this module for its codes alone

        self._tf, self._next = tf, 0
        self._writers = [tf.io.TFRecordWriter(str(path)) for path in paths]

    def write(self, images: np.ndarray, numbers: np.ndarray) -> None:
        for image, number in zip(images, numbers.tolist(), strict=True):
            self._writers[self._next % len(self._writers)].write(self._example(image, number))
            self._next += 1

    def _example(self, image: np.ndarray, number: int) -> bytes:
        train = self._tf.train
        feature = {
            "image": train.Feature(bytes_list=train.BytesList(value=[image.tobytes()])),
            "label": train.Feature(int64_list=train.Int64List(value=[number])),
        }
        return train.Example(features=train.Features(feature=feature)).SerializeToString()

    def __enter__(self) -> _Records:
        return self

    def __exit__(self, *exc_info) -> None:
        for writer in self._writers:
            writer.close()

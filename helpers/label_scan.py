"""One pass over the labels of a split: images a class, rows that are no label, and how the classes are mixed."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import h5py
import numpy as np

from helpers import layout

NEIGHBOURS = 32  # rows over which the mix of classes is judged: one batch of Keras' default size
MOST_CLASSES = 100_000  # a larger class number is an id, not a class; counting would need memory without bound
STRIP_PARTS = 120  # parts of a split, in the order of the file, for the picture of its mix
STRIP_BANDS = 12  # colours of the picture; of more classes neighbouring numbers share one
_BLOCK_BYTES = 8 * 2**20  # read at once


@dataclass(frozen=True)
class Mix:
    """How the classes of a split follow each other in the file."""

    neighbours: float  # classes among 32 neighbouring rows, on average
    shuffled: float  # how many shuffled rows would hold
    strip: np.ndarray  # (parts, bands) int64: images of each band of classes in each part of the split

    @property
    def is_sorted(self) -> bool:
        """Far fewer classes side by side than shuffled rows would have."""
        return self.shuffled > 1.5 and self.neighbours < self.shuffled / 2


@dataclass(frozen=True)
class LabelScan:
    """What one pass over the labels found."""

    counts: np.ndarray  # (classes,) int64: images of each class
    bad: int  # rows that are no label
    first_bad: int  # the first of them, or -1
    limit: int  # class numbers must be below
    first_rows: np.ndarray  # (classes,) int64: the first and the last row of each class, -1 without any
    last_rows: np.ndarray
    mix: Mix | None  # None: too few rows to tell


def scan_labels(labels: h5py.Dataset, names: int | None) -> LabelScan:
    """Look at every label row, block by block; ``names`` is the number of class names in the file."""
    width = labels.shape[1] if labels.ndim == 2 else None
    limit = width or names or MOST_CLASSES
    scan = _Scan(len(labels), width or names or 0)
    for start, block in _blocks(labels):
        wrong = _wrong_rows(block, limit)
        numbers = np.where(wrong, -1, block.argmax(axis=1) if width else block).astype(np.int64)
        scan.add(start, numbers)
    return scan.result(limit)


def class_limit_is_sane(labels: h5py.Dataset) -> bool:
    """Whether 32 rows of one-hot labels are of a size that can be read at once."""
    return labels.ndim == 1 or labels.shape[1] <= MOST_CLASSES


class _Scan:
    def __init__(self, n: int, classes: int):
        self._n = n
        self._counts = np.zeros(classes, np.int64)
        self._first, self._last = np.full(classes, -1, np.int64), np.full(classes, -1, np.int64)
        self._bad, self._first_bad = 0, -1
        self._mixes: list[np.ndarray] = []
        self._parts: dict[int, np.ndarray] = {}  # part of the strip -> images of each class in it

    def add(self, start: int, numbers: np.ndarray) -> None:
        """Class numbers of a block of rows, (rows,) int64; -1 where the label is none."""
        rows = np.flatnonzero(numbers >= 0)
        if len(rows) < len(numbers):
            if not self._bad:
                self._first_bad = start + int(np.argmax(numbers < 0))
            self._bad += len(numbers) - len(rows)
        numbers = numbers[rows]
        counts = np.bincount(numbers, minlength=len(self._counts))
        self._grow(len(counts))
        self._counts += counts
        present, first = np.unique(numbers, return_index=True)
        unseen = self._first[present] < 0
        self._first[present[unseen]] = start + rows[first[unseen]]
        present, last = np.unique(numbers[::-1], return_index=True)
        self._last[present] = start + rows[::-1][last]
        self._mixes.append(_classes_among_neighbours(numbers))
        parts = (start + rows) * STRIP_PARTS // self._n
        for part in np.unique(parts).tolist():
            self._parts[part] = _sum(self._parts.get(part, counts[:0]), np.bincount(numbers[parts == part]))

    def result(self, limit: int) -> LabelScan:
        return LabelScan(self._counts, self._bad, self._first_bad, limit, self._first, self._last, self._mix())

    def _grow(self, classes: int) -> None:
        more = classes - len(self._counts)
        if more > 0:
            self._counts = np.pad(self._counts, (0, more))
            self._first, self._last = (
                np.pad(rows, (0, more), constant_values=-1) for rows in (self._first, self._last)
            )

    def _mix(self) -> Mix | None:
        mixes = np.concatenate(self._mixes) if self._mixes else np.empty(0)
        if not len(mixes):
            return None
        shares = self._counts / max(1, self._counts.sum())
        shuffled = float(np.sum(1 - (1 - shares) ** NEIGHBOURS))  # classes among randomly drawn rows, expected
        return Mix(float(mixes.mean()), shuffled, self._strip())

    def _strip(self) -> np.ndarray:
        classes = max(1, len(self._counts))
        bands = min(STRIP_BANDS, classes)
        of_class = np.arange(classes) * bands // classes
        strip = np.zeros((STRIP_PARTS, bands), np.int64)
        for part, counts in self._parts.items():
            np.add.at(strip[part], of_class[: len(counts)], counts)
        return strip


def _blocks(labels: h5py.Dataset) -> Iterator[tuple[int, np.ndarray]]:
    row_bytes = math.prod(labels.shape[1:]) * labels.dtype.itemsize
    step = NEIGHBOURS * max(1, _BLOCK_BYTES // row_bytes // NEIGHBOURS)
    for start in range(0, len(labels), step):
        yield start, labels[start : start + step]


def _wrong_rows(block: np.ndarray, limit: int) -> np.ndarray:
    if block.ndim == 2:
        return layout.not_onehot(block)
    if block.dtype.kind == "f":
        return ~((block >= 0) & (block < limit) & (block == np.floor(block)))
    return (block < 0) | (block >= limit)


def _classes_among_neighbours(numbers: np.ndarray) -> np.ndarray:
    whole = numbers[: len(numbers) // NEIGHBOURS * NEIGHBOURS].reshape(-1, NEIGHBOURS)
    return 1 + np.count_nonzero(np.diff(np.sort(whole, axis=1), axis=1), axis=1)


def _sum(counts: np.ndarray, more: np.ndarray) -> np.ndarray:
    total = np.zeros(max(len(counts), len(more)), np.int64)
    total[: len(counts)] += counts
    total[: len(more)] += more
    return total

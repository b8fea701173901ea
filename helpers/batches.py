"""Batches of one split, made from (epoch, batch) alone: what a worker process needs, without Keras.

A batch's way: :mod:`helpers.order` says which rows, :mod:`helpers.reader` reads them through a handle that this process
opened, ``augment`` changes each image by chance drawn from (seed, epoch, row). Nothing depends on the number of
workers, on their kind or start method, or on which of them is faster. Importing Keras with TensorFlow costs 4 s and
600 MB; a worker process imports this module instead.
"""

from __future__ import annotations

import copy
import math
import os
import threading
from collections.abc import Callable, Sequence

import cv2
import h5py
import numpy as np

from helpers import layout
from helpers.augment import check_image
from helpers.order import EpochOrder
from helpers.places import find_places
from helpers.reader import RowReader

_LABEL_ROWS_AT_ONCE = 8_192  # under 1 MB of one-hot rows of 101 classes


class BatchSource:
    """``batch(epoch, index)`` for one split; :class:`helpers.HDF5Sequence` explains the arguments.

    All labels are read once, when the source is made, and checked. It pickles at any time, without its handle.
    """

    def __init__(
        self,
        path: str | os.PathLike,
        split: str = "train",
        batch_size: int = 32,
        *,
        images: str | None = None,
        labels: str | None = None,
        rows=None,
        classes: int | Sequence[str] | None = None,
        size: tuple[int, int] | None = None,
        shuffle: str | None = "auto",
        seed: int = 0,
        augment: Callable | None = None,
        label_kind: str = "onehot",
        drop_last: bool = False,
        shard: tuple[int, int] = (0, 1),
    ):
        if label_kind not in layout.LABEL_KINDS:
            raise ValueError(f'label_kind must be "onehot" or "sparse"; got {label_kind!r}.')
        if augment is not None and not callable(augment):
            raise TypeError(f"augment must be callable as augment(image, rng); got {augment!r}.")
        self.split_info = layout.read_split_info(path, split, images=images, labels=labels, classes=classes, size=size)
        self.label_kind = label_kind
        self.augment = augment
        self._reader = RowReader(path, self.split_info.images, size)
        self._class_numbers, self.num_classes = read_class_numbers(self.split_info)
        self._rows = None if rows is None else _checked_rows(rows, self.split_info)
        if self.n == 0:
            empty = f"{self.split_info.images} in {path} has no rows" if rows is None else "rows is empty"
            raise ValueError(f"{empty}: there is nothing to serve.")
        self._check_written()
        self.order = EpochOrder(
            self.n, batch_size, _resolve_shuffle(shuffle, split, rows), seed, shard=shard, drop_last=drop_last
        )
        self.image_shape = self._served_shape()
        self._closed = False
        self._local = threading.local()
        if augment is not None or self.split_info.storage == "jpeg":
            # Workers are the parallelism here; and OpenCV's own threads do not survive a fork.
            cv2.setNumThreads(1)

    @property
    def n(self) -> int:
        """Rows that are served in an epoch by all shards together."""
        return self.split_info.n if self._rows is None else len(self._rows)

    @property
    def class_numbers(self) -> np.ndarray:
        """Class number of each row of :attr:`n`, int64, in the order of the file (or of ``rows``); read-only."""
        return self._class_numbers if self._rows is None else _frozen(self._class_numbers[self._rows])

    def __len__(self) -> int:
        """Batches an epoch."""
        return len(self.order)

    @property
    def batch_bytes(self) -> int:
        """Bytes of the two arrays of a full batch."""
        label_bytes = 8 if self.label_kind == "sparse" else 4 * self.num_classes
        return self.order.batch_size * (math.prod(self.image_shape) + label_bytes)

    def item(self, item: int, empty: Callable = np.empty) -> tuple[np.ndarray, np.ndarray]:
        """Item g of the endless stream: batch ``g % len`` of epoch ``g // len``."""
        return self.batch(*divmod(item, len(self)), empty)

    def batch(self, epoch: int, index: int, empty: Callable = np.empty) -> tuple[np.ndarray, np.ndarray]:
        """Batch ``index`` of ``epoch``: images (batch, height, width, 3) uint8, and labels, in arrays from ``empty``.

        Labels are (batch, classes) float32, or (batch,) int64 when sparse. Raises IndexError outside the epoch; an
        error of reading or augmenting carries a note that names the batch, its rows and the file, and one of augmenting
        another one that names its row.
        """
        rows = self.rows_of(epoch, index)
        if self._closed:
            raise ValueError(f"this HDF5Sequence on {self.split_info.path} is closed. Make a new one.")
        self._local.row = None  # the one that is being augmented
        try:
            self._read_ahead(epoch, index)
            images = self._images(rows, epoch, empty)
        except Exception as error:
            error.add_note(f"while making {self.describe_batch(epoch, index)}")
            if self._local.row is not None:
                error.add_note(f"while augmenting row {self._local.row}")
            raise
        return images, self._labels(rows, empty)

    def rows_of(self, epoch: int, index: int) -> np.ndarray:
        """Row numbers in the file of batch ``index`` of ``epoch``, int64, in the order they are served."""
        order = self.order.batch(epoch, index)
        return order.copy() if self._rows is None else self._rows[order]

    def describe_batch(self, epoch: int, index: int) -> str:
        """Words for a batch in the sentences of errors: its number, epoch, rows, dataset and file."""
        rows = self.rows_of(epoch, index).tolist()
        shown = ", ".join(map(str, rows[:8])) + (" ..." if len(rows) > 8 else "")
        return f"batch {index} of epoch {epoch} (rows {shown}) of {self.split_info.images} in {self.split_info.path}"

    def __getstate__(self):
        return {name: value for name, value in self.__dict__.items() if name != "_local"}

    def __setstate__(self, state) -> None:
        self.__dict__.update(state)
        self._local = threading.local()

    def close(self) -> None:
        """Close this process's handle on the file. Closing twice is quiet."""
        self._reader.close()
        self._closed = True

    def _check_written(self) -> None:
        rows = np.arange(self.n) if self._rows is None else self._rows
        unwritten = rows[self._reader.unwritten(rows)]
        if len(unwritten):
            raise layout.IncompleteFileError(
                f"{len(unwritten)} rows of {self.split_info.images} in {self.split_info.path} were never written, and "
                f"would be black images; the first is row {unwritten[0]}. The process that wrote the file was stopped, "
                "or the file is damaged. Build it again, or leave these rows out: rows=."
            )

    def _labels(self, rows: np.ndarray, empty: Callable) -> np.ndarray:
        numbers = self._class_numbers[rows]
        if self.label_kind == "sparse":
            labels = empty(numbers.shape, np.int64)
            labels[:] = numbers
            return labels
        onehot = empty((len(rows), self.num_classes), np.float32)
        onehot[:] = 0
        onehot[np.arange(len(rows)), numbers] = 1
        return onehot

    def _images(self, rows: np.ndarray, epoch: int, empty: Callable) -> np.ndarray:
        result = empty((len(rows), *self.image_shape), np.uint8)
        if self.augment is None:
            return self._reader.read(rows, out=result)
        for position, image in enumerate(self._reader.read(rows, out=self._scratch(len(rows)))):
            self._local.row = int(rows[position])
            result[position] = self._augment_one(image, epoch, self._local.row)
        self._local.row = None
        return result

    def _read_ahead(self, epoch: int, index: int) -> None:
        rows = self.order.read_ahead(epoch, index)
        if len(rows):
            self._reader.read_ahead(rows if self._rows is None else np.sort(self._rows[rows]))

    def _scratch(self, count: int) -> np.ndarray:
        """Memory for ``count`` images as they are read, one piece a thread: a fresh array costs page faults."""
        if getattr(self._local, "images", None) is None:
            self._local.images = np.empty((self.order.batch_size, *self._reader.shape[1:]), np.uint8)
        return self._local.images[:count]

    def _augment_one(self, image: np.ndarray, epoch: int, row: int) -> np.ndarray:
        changed = self.augment(image, np.random.default_rng([self.order.seed, epoch, row]))
        check_image(changed, "augment must return")
        if changed.shape != self.image_shape:
            raise ValueError(
                f"augment must return images of one shape; row {row} became {changed.shape}, the first image "
                f"{self.image_shape}."
            )
        return changed

    def _served_shape(self) -> tuple[int, int, int]:
        """Shape after augmentation; an own function is asked with one image, which also shows its errors at once."""
        shape = self._reader.shape[1:]
        if self.augment is None:
            return shape
        row = 0 if self._rows is None else int(self._rows[0])
        with copy.copy(self._reader) as reader:  # a handle of its own, closed again: none is left to inherit
            image = reader.read([row])[0]
        changed = self.augment(image, np.random.default_rng([self.order.seed, 0, row]))
        check_image(changed, "augment must return")
        return changed.shape


def read_class_numbers(info: layout.SplitInfo) -> tuple[np.ndarray, int]:
    """Class number of every row of a split, (n,) int64 read-only, and the number of classes.

    Raises
    ------
    LayoutError
        A one-hot row is not one 1 among zeros, a number is outside the classes, or nothing says how many there are.
    """
    with layout.open_file(info.path) as file, layout.clear_damage(info.path):
        numbers = _stored_numbers(info, layout.find_dataset(file, info.labels))
    count = info.num_classes
    if count is None:
        raise layout.LayoutError(
            f"{info.labels} in {info.path} holds class numbers, and the file does not say how many classes there are. "
            "Pass classes= (their names, or their number)."
        )
    outside = np.flatnonzero((numbers < 0) | (numbers >= count))
    if len(outside):
        raise layout.LayoutError(
            f"row {outside[0]} of {info.labels} in {info.path} has class {numbers[outside[0]]}, but there are {count} "
            f"classes (0 to {count - 1}). Labels that start at 1 must be lowered by 1."
        )
    return _frozen(numbers), count


def _stored_numbers(info: layout.SplitInfo, data: h5py.Dataset) -> np.ndarray:
    places = find_places(data, info.path, info.labels)  # also says that there are as many rows as it claims
    unwritten = [] if places is None else np.flatnonzero(places.unwritten(np.arange(info.n)))
    if len(unwritten):
        raise layout.IncompleteFileError(
            f"{len(unwritten)} rows of {info.labels} in {info.path} were never written; the first is row "
            f"{unwritten[0]}. The process that wrote the file was stopped, or the file is damaged. Build it again."
        )
    if places is not None and info.n:
        places.check_found(data, 0, info.n)
    numbers = np.empty(info.n, dtype=np.int64)
    for start in range(0, info.n, _LABEL_ROWS_AT_ONCE):
        stored = data[start : start + _LABEL_ROWS_AT_ONCE]
        if info.label_kind == "onehot":
            _check_onehot(info, stored, start)
            stored = stored.argmax(axis=1)
        numbers[start : start + len(stored)] = stored
    return numbers


def _check_onehot(info: layout.SplitInfo, stored: np.ndarray, start: int) -> None:
    bad = np.flatnonzero(layout.not_onehot(stored))
    if len(bad):
        row = stored[bad[0]]
        raise layout.LayoutError(
            f"row {start + bad[0]} of {info.labels} in {info.path} is not one-hot: it sums to {row.sum()} and its "
            f"largest value is {row.max()}; expected one 1 among zeros. A row of zeros is the mark of a file whose "
            "writer was stopped: look at it with `python -m helpers.inspector`."
        )


def _checked_rows(rows, info: layout.SplitInfo) -> np.ndarray:
    array = np.array(rows)  # a copy: the caller's array is never reordered, and later changes to it change nothing
    if array.ndim != 1 or (array.dtype.kind not in "ui" and array.size):
        hint = " Turn a mask into rows with np.flatnonzero(mask)." if array.dtype.kind == "b" else ""
        raise TypeError(
            f"rows must be a one-dimensional integer array; got {array.dtype} of shape {array.shape}.{hint}"
        )
    outside = array[(array < 0) | (array >= info.n)]
    if len(outside):
        raise IndexError(f"rows holds {outside[0]}, but {info.images} in {info.path} has rows 0 to {info.n - 1}.")
    return _frozen(array.astype(np.int64))


def _resolve_shuffle(shuffle: str | None, split: str, rows) -> str | None:
    if shuffle != "auto":
        return shuffle
    return "full" if split == "train" or rows is not None else None


def _frozen(array: np.ndarray) -> np.ndarray:
    array.setflags(write=False)
    return array

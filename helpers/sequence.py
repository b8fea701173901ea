"""Feed Keras from one HDF5 file: a ``keras.utils.PyDataset`` whose batches depend on (seed, epoch, batch) alone.

The batches are made by :class:`helpers.batches.BatchSource`, which knows no Keras; this module adds what Keras asks of
a dataset: a length, items, epochs.
"""

from __future__ import annotations

import operator
import os
import threading
import warnings
from collections.abc import Callable, Sequence

import keras
import numpy as np

from helpers import preflight
from helpers.batches import BatchSource
from helpers.layout import SplitInfo


class KerasPoolWarning(UserWarning):
    """Keras' own worker processes read an HDF5Sequence, which then cannot tell when one of them dies."""


class HDF5Sequence(keras.utils.PyDataset):
    """Shuffled, augmented batches of one split of an HDF5 file, for any Keras backend.

    Parameters
    ----------
    path : the HDF5 file.
    split : "train", "valid" or "test".
    batch_size : images a batch, for this process.
    images, labels : names of the datasets in a foreign file, instead of a split.
    rows : integer array of row numbers to serve, e.g. the training half of a single pair of datasets.
    classes : class names, or their number; needed for one-hot labels when the file does not say.
    size : (height, width) of JPEG bytes in a foreign file.
    shuffle : "full", "block" or None; "auto" is "full" for train and for rows, None for valid and test.
    seed : fixes the order and the augmentation of every epoch.
    augment : :class:`helpers.Augment`, or any function of (image, rng) that returns a uint8 image. The image that it is
        given is lent for the call: its memory is used again.
    label_kind : "onehot" for categorical_crossentropy, "sparse" for sparse_categorical_crossentropy.
    drop_last : leave out a last batch that is not full.
    shard : (index, count) of this process among several that share the file.
    workers, use_multiprocessing, max_queue_size : how many threads (or processes) make batches, and how many batches
        ahead. Threads are as fast where rows are read directly and augmentation is OpenCV's; processes are for filters
        that only HDF5 can undo, and for augmentation in Python.
    stall_timeout_s : seconds without a batch after which waiting is an error.

    These four are for :func:`helpers.fit_generator`, which runs its own workers. ``Model.fit`` hands the first three to
    Keras' own pool, which keeps no clock, forks the process that runs TensorFlow, and waits for ever for a worker
    process that died; so a KerasPoolWarning says when it uses processes.

    Raises
    ------
    HDF5FileError, LayoutError
        The file cannot be opened, is incomplete, or does not hold what was asked for.
    ValueError, TypeError, IndexError
        An argument is out of its range.

    Notes
    -----
    ``sequence[i]`` gives images (batch, height, width, 3) uint8, and labels (batch, classes) float32 or (batch,) int64.
    The last batch may be smaller. All labels are read once, when the sequence is made, and checked; a flipped bit in
    the pixels is not seen here.

    ``on_epoch_end()`` moves to the next epoch. Keras calls it once too early, after it has looked at batches 0 and 1:
    a call before any other batch was asked for does nothing. Where that cannot be seen (fewer than three batches, or
    worker processes, which ask out of sight), the first call after construction or ``set_position`` does nothing and
    all later ones count. :func:`helpers.fit_generator` needs none of this.
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
        workers: int = 1,
        use_multiprocessing: bool = False,
        max_queue_size: int = 10,
        stall_timeout_s: float = 60,
    ):
        super().__init__(
            workers=preflight.checked_workers(workers),
            use_multiprocessing=preflight.checked_flag("use_multiprocessing", use_multiprocessing),
            max_queue_size=preflight.checked_queue_size(max_queue_size),
        )
        self.source = BatchSource(
            path,
            split,
            batch_size,
            images=images,
            labels=labels,
            rows=rows,
            classes=classes,
            size=size,
            shuffle=shuffle,
            seed=seed,
            augment=augment,
            label_kind=label_kind,
            drop_last=drop_last,
            shard=shard,
        )
        self.stall_timeout_s = _checked_seconds("stall_timeout_s", stall_timeout_s)
        self._warned = False
        self.set_position(0)

    @property
    def split_info(self) -> SplitInfo:
        return self.source.split_info

    @property
    def n(self) -> int:
        """Rows that are served in an epoch by all shards together."""
        return self.source.n

    @property
    def batch_size(self) -> int:
        return self.source.order.batch_size

    @property
    def seed(self) -> int:
        return self.source.order.seed

    @property
    def shuffle(self) -> str | None:
        return self.source.order.shuffle

    @property
    def augment(self) -> Callable | None:
        return self.source.augment

    @property
    def label_kind(self) -> str:
        return self.source.label_kind

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """(height, width, 3) of the images that are served, after augmentation."""
        return self.source.image_shape

    @property
    def num_classes(self) -> int:
        return self.source.num_classes

    @property
    def class_names(self) -> tuple[str, ...] | None:
        return self.source.split_info.class_names

    @property
    def class_numbers(self) -> np.ndarray:
        """Class number of each row of :attr:`n`, int64, in the order of the file (or of ``rows``); read-only."""
        return self.source.class_numbers

    @property
    def epoch(self) -> int:
        """The epoch whose batches ``sequence[i]`` gives."""
        return self._epoch

    @property
    def position(self) -> tuple[int, int]:
        """(epoch, batch) where :func:`helpers.fit_generator` goes on."""
        return self._epoch, self._start_batch

    def set_position(self, epoch: int, batch: int = 0) -> None:
        """Go to ``epoch``; ``batch`` is where :func:`helpers.fit_generator` starts within it."""
        epoch, batch = operator.index(epoch), operator.index(batch)
        if epoch < 0 or not 0 <= batch < len(self):
            raise ValueError(
                f"a position is (epoch, batch) with epoch >= 0 and batch from 0 to {len(self) - 1}; "
                f"got {(epoch, batch)}."
            )
        self._epoch, self._start_batch = epoch, batch
        self._asked_beyond_probe = False
        self._ignored_first_call = False

    def on_epoch_begin(self) -> None:
        """Called by Keras alone, in the epochs of its own ``fit``."""
        if self._in_keras_processes and not self._warned:
            self._warned = True
            warnings.warn(
                "Keras' own worker processes read this HDF5Sequence: they are started anew in every epoch, on Linux by "
                "a fork of the process that runs TensorFlow, and when one dies, fit waits for ever. Train with "
                "helpers.fit_generator(model, sequence), or leave use_multiprocessing out.",
                KerasPoolWarning,
                stacklevel=2,
            )

    def on_epoch_end(self) -> None:
        """Move to the next epoch; see the notes of the class for the one call that does nothing."""
        if self._is_early_call():
            self._ignored_first_call = True
            return
        self._epoch, self._start_batch = self._epoch + 1, 0
        self._asked_beyond_probe = False

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        if index > 1:
            self._asked_beyond_probe = True
        return self.source.batch(self._epoch, index)

    def batch(self, epoch: int, index: int) -> tuple[np.ndarray, np.ndarray]:
        """Batch ``index`` of ``epoch``, wherever the sequence stands. Raises IndexError outside the epoch."""
        return self.source.batch(epoch, index)

    def rows_of(self, epoch: int, index: int) -> np.ndarray:
        """Row numbers in the file of batch ``index`` of ``epoch``, int64, in the order they are served."""
        return self.source.rows_of(epoch, index)

    def close(self) -> None:
        """Close this process's handle on the file. Closing twice is quiet."""
        self.source.close()

    def __enter__(self) -> HDF5Sequence:
        return self

    def __exit__(self, *exc_info) -> None:
        self.close()

    def __repr__(self) -> str:
        return (
            f"HDF5Sequence({self.split_info.path.name!r}, {self.split_info.images!r}): {self.n} images "
            f"{self.image_shape}, {len(self)} batches of {self.batch_size}, shuffle={self.shuffle!r}, "
            f"epoch {self.epoch}"
        )

    def _is_early_call(self) -> bool:
        if len(self) > 2 and not self._in_keras_processes:
            return not self._asked_beyond_probe
        return not self._ignored_first_call

    @property
    def _in_keras_processes(self) -> bool:
        return bool(self.use_multiprocessing and self.workers > 0)


def _checked_seconds(name: str, value) -> float:
    if (
        isinstance(value, bool)
        or not isinstance(value, (int, float, np.number))
        or not 0 < value <= threading.TIMEOUT_MAX
    ):
        raise ValueError(f"{name} must be a number of seconds above 0; got {value!r}.")
    return value

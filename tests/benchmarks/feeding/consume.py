"""Those who take the batches: a Keras model whose step costs nearly nothing, and a plain loop. Both verify the work.

A rate is images a second from the end of the first epoch to the end of the last one: starting workers and tracing the
step are left out, for everybody; what an epoch's beginning costs each time is in. Each row must come exactly once an
epoch, with its own label, or there is no rate.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

import keras
import numpy as np
import tensorflow as tf

from .data import CLASSES, MIDDLE, SHAPE, decode


class WrongWorkError(AssertionError):
    """Rows were lost or repeated, or came with another row's label."""


class Tally:
    """Counts how often each of ``n`` rows came, and how many labels were wrong."""

    def __init__(self, n: int):
        self.seen = np.zeros(n, np.int64)
        self.wrong = 0

    def add(self, images, labels) -> None:
        """Count a batch: images (batch, height, width, 3) uint8, one-hot labels (batch, classes)."""
        rows, numbers = decode(np.asarray(images))
        np.add.at(self.seen, rows, 1)
        self.wrong += int(np.count_nonzero(np.asarray(labels).argmax(axis=1) != numbers))

    def verify(self, rows: np.ndarray, epochs: int) -> None:
        """Raise WrongWorkError unless each of ``rows`` came ``epochs`` times, no other row came, and labels fit."""
        expected = np.zeros_like(self.seen)
        expected[rows] = epochs
        unlike = np.flatnonzero(self.seen != expected)
        if len(unlike):
            row = unlike[0]
            raise WrongWorkError(
                f"each row must come once an epoch; {len(unlike)} rows did not: row {row} came {self.seen[row]} times "
                f"in {epochs} epochs."
            )
        if self.wrong:
            raise WrongWorkError(f"each image must come with its own label; {self.wrong} of them did not.")


class CountingModel(keras.Model):
    """A model whose training step reads one pixel of each image and counts: what is left is the feeding."""

    def __init__(self, n: int):
        super().__init__()
        self.head = keras.layers.Dense(CLASSES)  # never called; gives the model what helpers' checks look at
        self._seen = tf.Variable(tf.zeros(n, tf.int32), trainable=False)
        self._wrong = tf.Variable(0, trainable=False)
        self.compile("sgd", "categorical_crossentropy", jit_compile=False)

    def call(self, images):
        return self.head(tf.cast(images[:, MIDDLE, MIDDLE, :], tf.float32))

    def train_step(self, data):
        images, labels = data
        code = tf.cast(images[:, MIDDLE, MIDDLE, :], tf.int32)
        rows, numbers = code[:, 0] + 256 * code[:, 1], code[:, 2]
        self._seen.scatter_add(tf.IndexedSlices(tf.ones_like(rows), rows))
        unlike = tf.argmax(labels, axis=1, output_type=tf.int32) != numbers
        self._wrong.assign_add(tf.reduce_sum(tf.cast(unlike, tf.int32)))
        return {"loss": 0.0}

    def forget(self) -> None:
        """Count from nought again."""
        self._seen.assign(tf.zeros_like(self._seen))
        self._wrong.assign(0)

    def tally(self) -> Tally:
        seen = self._seen.numpy().astype(np.int64)
        tally = Tally(len(seen))
        tally.seen, tally.wrong = seen, int(self._wrong.numpy())
        return tally


class Clock(keras.callbacks.Callback):
    """When each epoch ended, and when the first and the last batch of each were trained, in seconds."""

    def __init__(self):
        super().__init__()
        self.epoch_ends: list[float] = []
        self.first_batches: list[float] = []
        self.last_batches: list[float] = []
        self._now = 0.0

    def on_train_batch_end(self, batch, logs=None) -> None:
        self._now = time.perf_counter()
        if batch == 0:
            self.first_batches.append(self._now)

    def on_epoch_end(self, epoch, logs=None) -> None:
        self.last_batches.append(self._now)
        self.epoch_ends.append(time.perf_counter())

    def pauses(self) -> list[float]:
        """From the last batch of each epoch to the first one of the next, one training step included."""
        return [first - last for last, first in zip(self.last_batches, self.first_batches[1:], strict=False)]


def rate_of_training(model: CountingModel, rows: np.ndarray, epochs: int, fit: Callable, repeats: int = 1) -> float:
    """Images a second of ``fit(epochs=, callbacks=)``, which trains ``model``; one epoch more than is timed.

    ``repeats`` is how often a row comes in an epoch.
    """
    clock = Clock()
    model.forget()
    fit(epochs=epochs + 1, callbacks=[clock])
    model.tally().verify(rows, repeats * (epochs + 1))
    return repeats * len(rows) * epochs / (clock.epoch_ends[-1] - clock.epoch_ends[0])


def rate_of_loop(n: int, rows: np.ndarray, epochs: int, batches: Callable[[], Iterable]) -> float:
    """Images a second of a plain loop over ``batches()``, which gives (images, labels) of one epoch a call."""
    tally, ends = Tally(n), []
    for _ in range(epochs + 1):
        for images, labels in batches():
            tally.add(images, labels)
        ends.append(time.perf_counter())
    tally.verify(rows, epochs + 1)
    return len(rows) * epochs / (ends[-1] - ends[0])


def constant_batch(size: int) -> tuple[np.ndarray, np.ndarray]:
    """Images and one-hot labels as NumPy allocates them."""
    images = np.zeros((size, *SHAPE), np.uint8)
    images[:, MIDDLE, MIDDLE, 0] = np.arange(size)
    return images, np.eye(CLASSES, dtype=np.float32)[np.zeros(size, np.int64)]


class ConstantBatches(keras.utils.PyDataset):
    """The same batch again and again: the most that Keras takes through its own interface."""

    def __init__(self, batches: int, size: int):
        super().__init__()
        self._batches, self._batch = batches, constant_batch(size)

    def __len__(self) -> int:
        return self._batches

    def __getitem__(self, index: int):
        return self._batch

"""The share of each training step that waited for data."""

from __future__ import annotations

import time

import keras
import numpy as np


class StallMeter(keras.callbacks.Callback):
    """Callback for :func:`helpers.fit_generator`: how long each step waited for its batch.

    A step runs from the end of the one before to its own end. It waited from its start, or from when its batch was
    asked for if that was later, until the batch was ready; a batch that was ready before costs no wait. Keras cannot
    say this itself: with TensorFlow the batch is fetched inside the compiled step, after ``on_train_batch_begin``
    (3.15). So ``fit_generator`` says when a batch is ready, for an HDF5Sequence and for a plain generator. Keras' own
    copy of a batch counts as work, not as waiting.

    Parameters
    ----------
    keep : False starts afresh with each training; True adds to what was there, for the phases of one run.

    Attributes
    ----------
    waits_s, steps_s : seconds waited and seconds in all, one number a step, over all epochs.
    """

    def __init__(self, *, keep: bool = False):
        super().__init__()
        self.keep = keep
        self._forget()
        self._begin()

    @property
    def shares(self) -> np.ndarray:
        """Share of each step that waited, (steps,) float64 from 0 to 1, for drawing.

        Raises
        ------
        RuntimeError
            Steps were trained, and nobody told the meter about a batch.
        """
        if self.steps_s and not self._heard:
            raise RuntimeError(
                "the meter heard of no batch. Pass it as callbacks=[meter] to helpers.fit_generator, with an "
                "HDF5Sequence or a plain generator."
            )
        return np.divide(self.waits_s, self.steps_s) if self.steps_s else np.zeros(0)

    @property
    def timed(self) -> np.ndarray:
        """(steps, 2) seconds waited and seconds in all, without the first step of each training.

        That one also compiles the model and starts the workers.
        """
        both = np.column_stack([self.waits_s, self.steps_s]) if self.shares.size else np.zeros((0, 2))
        return np.delete(both, [first for first in self._firsts if first < len(both)], axis=0)

    @property
    def share(self) -> float:
        """Share of the time that was waiting, of all steps in :attr:`timed`; nan if there is none."""
        waited, whole = self.timed.sum(axis=0)
        return float(waited / whole) if whole else float("nan")

    def batch_ready(self, number: int, asked_s: float) -> None:
        """Called by fit_generator, from any thread: the number of the batch in this training, when it was asked for."""
        self._heard = True
        self._ready[number] = asked_s, time.perf_counter()

    def on_train_begin(self, logs=None) -> None:
        del logs
        ready = self._ready  # the first batches may be ready before
        if not self.keep:
            self._forget()
        self._begin()
        self._firsts.append(len(self.steps_s))
        self._ready, self._heard = ready, bool(ready)

    def on_epoch_begin(self, epoch, logs=None) -> None:
        del epoch, logs
        self._first_of_epoch = self._next
        self._mark = time.perf_counter()

    def on_train_batch_end(self, batch, logs=None) -> None:
        del logs
        now = time.perf_counter()
        number = self._first_of_epoch + batch
        asked, ready = self._ready.get(number, (self._mark, self._mark))
        self.waits_s.append(min(max(ready - max(asked, self._mark), 0.0), now - self._mark))
        self.steps_s.append(now - self._mark)
        for seen in range(self._next, number + 1):
            self._ready.pop(seen, None)
        self._next, self._mark = number + 1, now

    def on_train_end(self, logs=None) -> None:
        del logs
        self._ready = {}

    def __repr__(self) -> str:
        return f"StallMeter: {len(self.steps_s)} steps, {100 * self.share:.0f} % of the time waiting for data"

    def _forget(self) -> None:
        self.waits_s: list[float] = []
        self.steps_s: list[float] = []
        self._firsts: list[int] = []

    def _begin(self) -> None:
        self._ready: dict[int, tuple[float, float]] = {}  # number of a batch: when it was asked for, and was ready
        self._heard = False
        self._next = self._first_of_epoch = 0
        self._mark = 0.0

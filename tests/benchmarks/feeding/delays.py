"""What a rate does not show: the first batch, the pause between epochs, and the time from a kill to an error."""

from __future__ import annotations

import os
import signal
import statistics
import time
from collections.abc import Callable

import keras
import psutil
import tensorflow as tf

from helpers import fit_generator
from helpers.training import WorkerDiedError

from .consume import Clock, constant_batch
from .contenders import Bench, sequence
from .data import BATCH
from .peers import WORKERS

KINDS = {"threads": False, "processes": True}
_KILL_AT = 20  # batches
_PAUSE_ROWS = 16 * BATCH  # an epoch of these is longer than the queue
_PAUSES = 5  # epochs less one of a run; the median of them is one round's value


def delays(bench: Bench) -> dict[str, float]:
    """One round of all delays, in seconds, by the names of their targets."""
    own = keras_pause(bench)
    return {
        **{f"first batch, {kind}": first_batch(bench, processes) for kind, processes in KINDS.items()},
        **{f"pause, {kind}": pause(bench, processes) - own for kind, processes in KINDS.items()},
        "kill": kill(bench),
    }


def first_batch(bench: Bench, processes: bool) -> float:
    """From before HDF5Sequence is made to the end of the first training step; the model was traced before."""
    clock = Clock()
    start = time.perf_counter()
    with sequence(bench, "raw", bench.rows(), workers=WORKERS, processes=processes) as data:
        fit_generator(bench.model, data, steps_per_epoch=1, epochs=1, callbacks=[clock], verbose=0)
    return clock.first_batches[0] - start


def pause(bench: Bench, processes: bool) -> float:
    """From the last step of an epoch to the end of the first step of the next one, the kit feeding."""
    with sequence(bench, "raw", bench.rows(_PAUSE_ROWS), workers=WORKERS, processes=processes) as data:
        return _median_pause(lambda epochs, clock: _fit(bench, data, epochs, [clock]))


def keras_pause(bench: Bench) -> float:
    """The same with one tensor repeated for ever: the least that Keras itself needs between two epochs."""
    data = tf.data.Dataset.from_tensors(constant_batch(BATCH)).repeat()
    return _median_pause(
        lambda epochs, clock: bench.model.fit(
            data, steps_per_epoch=8, epochs=epochs, callbacks=[clock], verbose=0, shuffle=False
        )
    )


def kill(bench: Bench) -> float:
    """From SIGKILL of a worker process to the error in the caller, which must be the kit's and name the signal."""
    killer = _Killer(set(psutil.Process().children(recursive=True)))
    with sequence(bench, "raw", bench.rows(), workers=WORKERS, processes=True) as data:
        try:
            _fit(bench, data, 10 + 100 * _KILL_AT // len(data), [killer])
        except WorkerDiedError as error:
            seconds = time.perf_counter() - killer.killed_at
            if "SIGKILL" not in str(error):
                raise AssertionError(f"the error must name the signal; got {error}") from error
            return seconds
    raise AssertionError("training went on after a worker was killed; no error was raised.")


class _Killer(keras.callbacks.Callback):
    """Kills one worker process of this training, once its feed has found its pace."""

    def __init__(self, others: set[psutil.Process]):
        super().__init__()
        self._others = others  # child processes that were there before
        self._steps = 0
        self.killed_at = 0.0

    def on_train_batch_end(self, batch, logs=None) -> None:
        self._steps += 1
        if self._steps == _KILL_AT:
            workers = [child for child in psutil.Process().children(recursive=True) if self._is_worker(child)]
            self.killed_at = time.perf_counter()
            os.kill(max(workers, key=lambda worker: worker.pid).pid, signal.SIGKILL)

    def _is_worker(self, child: psutil.Process) -> bool:
        return child not in self._others and not any("resource_tracker" in part for part in child.cmdline())


def _fit(bench: Bench, data, epochs: int, callbacks: list) -> None:
    fit_generator(bench.model, data, epochs=epochs, callbacks=callbacks, verbose=0)


def _median_pause(train: Callable[[int, Clock], None]) -> float:
    clock = Clock()
    train(_PAUSES + 1, clock)
    return statistics.median(clock.pauses())

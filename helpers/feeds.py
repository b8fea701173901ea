"""What :mod:`helpers.training` hands to Keras as training and validation data; one kind of feed a kind of source.

Each feed knows how many steps an epoch has, checks the model against its source, and is closed at the end of the call.
Errors that cross Keras (and TensorFlow, which turns them into text) are kept in ``failure`` with their cause.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import queue
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError

import h5py
import keras
import numpy as np

from helpers import preflight
from helpers.arguments import checked_flag
from helpers.hosts import check_hosts
from helpers.sequence import HDF5Sequence, KerasPoolWarning
from helpers.workers import WorkerPool

_PROBED = 2  # Keras looks at batches 0 and 1 before it trains (3.15, TensorFlow; JAX: at 0), then asks for them again
_PATIENCE_S = 2.0  # for the thread that feeds Keras' own workers, when they are stopped
_HDF5_OBJECTS = (h5py.File, h5py.Group, h5py.Dataset)
_CLASSIC_DEFAULTS = {"workers": 1, "use_multiprocessing": False, "max_queue_size": 10}  # of Model.fit_generator
_NO_BATCHES = (str, os.PathLike, np.ndarray, tuple, list, *_HDF5_OBJECTS)


class GeneratorRanDryError(ValueError):
    """A Python generator ended before all steps were trained."""


class StepsWarning(UserWarning):
    """Keras will not train on all batches of a dataset."""


def is_classic(model) -> bool:
    """Whether ``model`` is a tf_keras model; asks its class names, so tf_keras is not imported for it."""
    return _comes_from(model, "tf_keras")


class Feed:
    """Training data that Keras takes as it is: a ``tf.data.Dataset``, a data loader."""

    def __init__(self, source, steps: int | None, pool: dict | None = None):
        self.source = source
        self.steps = steps
        self._asked = {name: value for name, value in (pool or {}).items() if value is not None}
        self.listeners = []  # functions that hear of each ready batch: its number in this call, when Keras asked for it
        self.failure: BaseException | None = None
        self.cause: BaseException | None = None

    def data(self, classic: bool):  # noqa: ARG002 (the other feeds differ)
        return self.source

    def check(self, model) -> None:
        asked = {name: value for name, value in self._asked.items() if value != _CLASSIC_DEFAULTS[name]}
        if asked and not is_classic(model):
            given = ", ".join(f"{name}={value!r}" for name, value in asked.items())
            raise ValueError(
                f"{given} is for an HDF5Sequence or another PyDataset; got {type(self.source).__name__}, which makes "
                "its batches its own way. Leave it out."
            )

    def shuffle(self, asked: bool | None) -> bool:
        """Whether Keras has to mix the batches."""
        return asked is not None and checked_flag("shuffle", asked)

    def class_weight(self, weights: dict[int, float] | None) -> dict[int, float] | None:
        """What of the class weights Keras has to apply."""
        return weights

    def callbacks(self, classic: bool, others: list) -> list:  # noqa: ARG002
        """The callbacks of the user, and what the feed puts around them."""
        return others

    def queues(self) -> list[tuple[str, int, int]]:
        """(name, batches held, bytes a batch) of each queue, as far as it is known."""
        return []

    def message(self) -> str | None:
        """One line for the user about the steps of an epoch."""
        return None

    @property
    def overdue_error(self) -> Exception | None:
        """An error that Keras does not come to for long."""
        return None

    def close(self) -> None:
        pass

    def keep(self, error: BaseException) -> None:
        """Remember the first error; Keras removes the cause of what passes through it."""
        if self.failure is None:
            self.failure, self.cause = error, error.__cause__

    def __enter__(self):
        return self

    def __exit__(self, *exc_info) -> None:
        self.close()


class PyDatasetFeed(Feed):
    """Another ``PyDataset``: Keras runs its workers; settings given for this call are taken back at the end."""

    def __init__(self, source, steps, pool: dict):
        super().__init__(source, steps, pool)
        self._before = {name: getattr(source, name) for name in self._asked}
        for name, value in self._asked.items():
            setattr(source, name, value)

    def data(self, classic: bool):
        return (
            _classic_sequence(self.source.__getitem__, len(self.source), self.source.on_epoch_end)
            if classic
            else self.source
        )

    def check(self, model) -> None:
        _warn_about_keras_processes(self.source)
        length = self.source.num_batches
        pooled = self.source.workers > 1 or (self.source.workers > 0 and self.source.use_multiprocessing)
        if length is not None and self.steps is not None and self.steps < length and pooled and not is_classic(model):
            warnings.warn(
                f"with workers, Keras starts every epoch at batch 0 of {type(self.source).__name__} again: "
                f"{self.steps} steps of {length} batches leave rows out. Set workers=1, or leave steps_per_epoch out.",
                StepsWarning,
                stacklevel=3,
            )

    def shuffle(self, asked: bool | None) -> bool:
        return (asked is None or super().shuffle(asked)) and self.source.num_batches is not None

    def close(self) -> None:
        _stop_keras_workers(self.source)
        for name, value in self._before.items():
            setattr(self.source, name, value)
        self._before = {}


class IteratorFeed(Feed):
    """A Python generator; it must last for all steps. Keras 3 refuses class weights here, so they are applied here."""

    def __init__(self, source, steps, epochs: int, pool: dict):
        if steps is None:
            raise ValueError(
                "a Python generator has no length: pass steps_per_epoch (the number of batches that make an epoch)."
            )
        super().__init__(source, steps, pool)
        self._total = steps * epochs
        self._weights = None

    def data(self, classic: bool):  # noqa: ARG002
        return self._batches()

    def check(self, model) -> None:  # noqa: ARG002
        if self._asked.get("workers", 1) > 1 or self._asked.get("use_multiprocessing"):
            raise ValueError(
                "a Python generator can be read by one worker only: threads would collide in it, and processes would "
                "each repeat all of it. Leave workers and use_multiprocessing out, or pass an HDF5Sequence."
            )

    def class_weight(self, weights: dict[int, float] | None) -> None:
        self._weights = weights

    def _batches(self):
        for number in range(self._total):
            asked_s = time.perf_counter()
            try:
                batch = next(self.source)
                _check_rows(batch, "generator")
                batch = _weighted(batch, self._weights)
            except StopIteration:
                error = GeneratorRanDryError(
                    f"the generator ended after {number} of {self._total} batches ({self.steps} steps an epoch). Let "
                    "it loop for ever (while True), lower steps_per_epoch, or train fewer epochs."
                )
                self.keep(error)
                raise error from None
            except Exception as error:
                self.keep(error)
                raise
            _tell(self.listeners, number, asked_s)
            yield batch


class SequenceFeed(Feed):
    """The endless stream of an HDF5Sequence from its position on; the position moves along at the end."""

    def __init__(self, sequence: HDF5Sequence, steps, initial_epoch: int, epochs: int, pool: dict):
        _check_not_overridden(sequence)
        length = len(sequence)
        super().__init__(sequence, length if steps is None else steps)
        self.validation = Feed(None, None)  # whose workers may die while they are idle
        epoch, batch = sequence.position
        stands_at = epoch * length + batch
        self.start = initial_epoch * self.steps if initial_epoch else stands_at
        self.moved_from = stands_at if initial_epoch and stands_at not in {0, self.start} else None
        self._initial_epoch = initial_epoch
        self._done = 0  # steps of the first epoch that an earlier, interrupted call has trained
        self._cut = False
        self._weights = None
        self._total = self.steps * (epochs - initial_epoch)
        self._trained = 0
        self._pool = _pool_for(sequence, pool)
        self._last = None
        self._probed: dict[int, tuple] = {}
        self._epoch: int | None = None
        self._asked_for = self._handed = -1  # batch that Keras (its pipeline) asked for last, and got last
        self._lock = threading.RLock()  # taken itself, as in WorkerPool: for an interrupt
        self._news = threading.Condition(self._lock)

    def go_on(self, item: int, steps_done: int) -> None:
        """Start at an item of the stream, in the middle of the first epoch."""
        self.start, self._done, self.moved_from = item, steps_done, None
        self._total -= steps_done

    @property
    def next_item(self) -> int:
        """The item of the stream that nobody has trained on yet."""
        return self.start + self._trained

    @property
    def steps_done(self) -> int:
        """Steps of the running epoch, with those that an earlier call has trained."""
        return self._trained + self._done - (self._epoch - self._initial_epoch) * self.steps

    def data(self, classic: bool):
        self._pool.prepare(self.start, self.start + self._total)  # while Keras compiles its step
        if classic or self._cut_on_jax:
            return self._all_batches()
        return _tf_dataset(self.batch, self._total, self.source) if _on_tensorflow() else _Endless(self)

    @property
    def _cut_on_jax(self) -> bool:
        """Whether Keras gets a generator: a PyDataset whose epoch was cut it refuses (3.15, JAX)."""
        return self._done > 0 and not _on_tensorflow()

    def class_weight(self, weights: dict[int, float] | None) -> dict[int, float] | None:
        """Keras applies them, but not to a generator."""
        self._weights = weights if self._cut_on_jax else None
        return None if self._cut_on_jax else weights

    def check(self, model) -> None:
        preflight.check_labels(model, self.source)
        check_hosts(self.source)
        execution = 1 if is_classic(model) else model.steps_per_execution
        if self.steps % execution:
            raise ValueError(
                f"Keras trains steps_per_execution={execution} steps at a time, which does not divide the {self.steps} "
                f"steps of an epoch. Pass steps_per_epoch={max(1, self.steps // execution) * execution}."
            )

    def shuffle(self, asked: bool | None) -> bool:
        if asked is not None:
            raise ValueError(
                f"shuffle must be left out for an HDF5Sequence, which shuffles rows itself; got shuffle={asked!r}. "
                'Choose there: HDF5Sequence(shuffle="full", "block" or None).'
            )
        return False

    def callbacks(self, classic: bool, others: list) -> list:
        """First one that counts the steps, so that the position is right however the training ends."""
        callback = _callback_class(classic)
        hooks = {"on_epoch_begin": self._begin_epoch, "on_train_batch_end": self._end_step}
        if _on_tensorflow() and not classic:  # tf_keras would call a hook that is None
            hooks["on_train_batch_begin"] = self._wait_for_batch
        count, last = callback(**hooks), callback(on_train_batch_end=self._raise_overdue)
        if self._done:  # the rest of an epoch is trained first
            count.on_epoch_end = lambda *_, **__: self._end_cut_epoch(count.model)
            last.on_train_batch_end = lambda step, **_: self._cut_epoch(last.model, step)
        return [count, *others, last]

    def queues(self) -> list[tuple[str, int, int]]:
        return [("the queue of training batches", self._pool.most_held, self.source.source.batch_bytes)]

    def message(self) -> str | None:
        return " ".join(self._sentences()) or None

    def _sentences(self) -> Iterator[str]:
        if self.moved_from is not None:
            yield (
                f"Training starts at batch {self.start} of the stream (initial_epoch={self._initial_epoch} of "
                f"{self.steps} steps); the sequence stood at batch {self.moved_from}."
            )
        if self.steps != len(self.source):
            yield (
                f"An epoch is {self.steps} steps and one pass over the data is {len(self.source)} batches: each epoch "
                "goes on where the last one ended, and every row is used once a pass."
            )
        order = self.source.source.order
        if order.dropped_rows and not order.drop_last:
            yield (
                f"{order.dropped_rows} of {order.n} rows are left out in each pass: they are fewer than the "
                f"{order.shard[1]} shards."
            )

    def batch(self, index: int):
        """Batch ``index`` of this call."""
        self._asked_for, asked_s = index, time.perf_counter()
        batch = self._probed.pop(index, None)
        if batch is None:
            if self._last is not None and (index >= self._total or self._pool.closed):
                return self._last  # Keras reads ahead, past the end too; nobody trains on these
            batch = self._make(index)
            if index < _PROBED:
                self._probed[index] = batch
        if index >= _PROBED:
            self._probed.clear()
        self._last = batch
        _tell(self.listeners, index, asked_s)
        with self._lock:
            self._handed = index
            self._news.notify_all()
        return batch

    def close(self) -> None:
        if self._epoch is not None:  # first: a second Ctrl-C may end the waiting for the pool
            self.source.set_position(*divmod(self.start + self._trained, len(self.source)))
        self._last = None
        self._probed.clear()
        self._pool.close()

    def _make(self, index: int):
        try:
            return self._pool.get(self.start + index, self.start + self._total)
        except BaseException as error:  # without workers it may be sys.exit(), here in a thread of TensorFlow
            if self._pool.closed and isinstance(error, CancelledError):
                raise
            with self._lock:
                self.keep(error)
                self._news.notify_all()
            raise

    def _all_batches(self):
        for index in range(self._total):
            yield _weighted(self.batch(index), self._weights)

    def _begin_epoch(self, epoch: int, logs=None) -> None:
        del logs
        if self._epoch is None and epoch != self._initial_epoch:  # BackupAndRestore goes on at a later epoch
            self.start += (epoch - self._initial_epoch) * self.steps
            self._initial_epoch = epoch
            self._probed.clear()
        self._epoch = epoch

    def _wait_for_batch(self, step: int, logs=None) -> None:
        """Wait for a batch here, once the pipeline has asked for it: inside TensorFlow an interrupt is not heard."""
        del logs
        index = self._index(step)
        with self._lock:
            self._news.wait_for(
                lambda: self._asked_for < index or self._handed >= index or self.failure is not None,
                self.source.stall_timeout_s,
            )

    def _end_step(self, step: int, logs=None) -> None:
        del logs
        self._trained = self._index(step) + 1

    def _index(self, step: int) -> int:
        """Which batch of this call a step of the running epoch is."""
        epochs = self._epoch - self._initial_epoch
        return epochs * self.steps - (self._done if epochs else 0) + step

    def _cut_epoch(self, model, step: int) -> None:
        """End the first epoch of a call that goes on in its middle: Keras knows epochs of one length only."""
        self._raise_overdue(step)
        if self.steps_done == self.steps and self._epoch == self._initial_epoch and not model.stop_training:
            model.stop_training = self._cut = True

    def _end_cut_epoch(self, model) -> None:
        """The epoch is over, the training is not; a callback after this one may still stop it."""
        if self._cut:
            model.stop_training = self._cut = False

    def _raise_overdue(self, step: int, logs=None) -> None:
        """A slow model does not come to the broken batch for long: ten batches may be ready before it."""
        del step, logs
        error = self._pool.overdue_error or self.validation.overdue_error
        if error is not None and self._trained < self._total:
            self.keep(error)
            raise error


class Validation(Feed):
    """Validation data that Keras takes as it is; None too."""

    def check(self, model) -> None:
        if is_classic(model) and isinstance(self.source, keras.utils.PyDataset):
            self._classic_source = _classic_sequence(
                self.source.__getitem__, len(self.source), self.source.on_epoch_end
            )
        elif isinstance(self.source, keras.utils.PyDataset):
            _warn_about_keras_processes(self.source)

    def close(self) -> None:
        _stop_keras_workers(self.source)

    def data(self, classic: bool):
        return self._classic_source if classic and hasattr(self, "_classic_source") else self.source


class IteratorValidation(Feed):
    """A Python generator: each validation takes the next ``validation_steps`` batches, as in Keras 2.

    Keras 3.15 looks at two batches and puts them in front again at every validation: of a generator that ran dry it
    would evaluate these two for ever, without a word.
    """

    def __init__(self, source, steps):
        if steps is None:
            raise ValueError("validation_data is a Python generator, which has no length: pass validation_steps.")
        super().__init__(source, steps)
        self._probed: dict[int, tuple] = {}
        self._probing = True
        self._taken = 0

    def data(self, classic: bool):
        return self.source if classic else _Finite(self)

    def batch(self, index: int):
        """Batch ``index`` of the validation that is running: the next one, whatever the index."""
        if index in self._probed:
            self._probing = False
            return self._probed.pop(index)
        try:
            batch = next(self.source)
            _check_rows(batch, "validation_data")
        except StopIteration:
            error = GeneratorRanDryError(
                f"the generator of validation_data ended after {self._taken} batches, and each validation takes "
                f"{self.steps}. Let it loop for ever (while True), or lower validation_steps."
            )
            self.keep(error)
            raise error from None
        except Exception as error:
            self.keep(error)
            raise
        self._taken += 1
        if self._probing:
            self._probed[index] = batch
        return batch


class SequenceValidation(Feed):
    """Batches 0, 1, ... of an HDF5Sequence, the same at each validation, made by its own workers."""

    def __init__(self, sequence: HDF5Sequence, steps):
        _check_not_overridden(sequence)
        length = len(sequence)
        if steps is not None and steps > length:
            raise ValueError(
                f"validation_steps must be at most {length}, the number of batches in {sequence!r}; got {steps}. "
                "Leave it out to use all of them."
            )
        super().__init__(sequence, length if steps is None else steps)
        self._first = sequence.epoch * length
        self._pool = _pool_for(sequence, {})
        self._last = None

    def data(self, classic: bool):
        if classic:
            return _classic_sequence(self.batch, self.steps)
        return _tf_dataset(self.batch, self.steps, self.source, finite=True) if _on_tensorflow() else _Finite(self)

    def check(self, model) -> None:
        preflight.check_labels(model, self.source, "validation_data")
        check_hosts(self.source, "validation_data")

    def queues(self) -> list[tuple[str, int, int]]:
        return [("the queue of validation batches", self._pool.most_held, self.source.source.batch_bytes)]

    def batch(self, index: int):
        """Validation batch ``index``."""
        if self._pool.closed and self._last is not None:
            return self._last
        try:
            self._last = self._pool.get(self._first + index, self._first + self.steps)
        except BaseException as error:
            if not (self._pool.closed and isinstance(error, CancelledError)):
                self.keep(error)
            raise
        return self._last

    @property
    def overdue_error(self) -> Exception | None:
        return self._pool.overdue_error

    def close(self) -> None:
        self._pool.close()


class _Endless(keras.utils.PyDataset):
    """Without a length Keras asks for items 0, 1, 2, ... over all epochs; without workers it makes no pool."""

    def __init__(self, feed: SequenceFeed):
        super().__init__(workers=0)
        self._feed = feed

    @property
    def num_batches(self) -> None:
        return None

    def __getitem__(self, index: int):
        return self._feed.batch(index)


class _Finite(keras.utils.PyDataset):
    def __init__(self, feed: SequenceValidation | IteratorValidation):
        super().__init__(workers=0)
        self._feed = feed

    def __len__(self) -> int:
        return self._feed.steps

    def __getitem__(self, index: int):
        return self._feed.batch(index)


def _pool_for(sequence: HDF5Sequence, asked: dict) -> WorkerPool:
    """Workers as the call says, else as the sequence says."""
    chosen = {
        name: getattr(sequence, name) if asked.get(name) is None else asked[name]
        for name in ("workers", "use_multiprocessing", "max_queue_size")
    }
    return WorkerPool(
        sequence.source.item,
        chosen["workers"],
        processes=chosen["use_multiprocessing"],
        ahead=chosen["max_queue_size"],
        timeout_s=sequence.stall_timeout_s,
        describe=functools.partial(_describe, sequence.source),
        answer_bytes=sequence.source.batch_bytes,
    )


def _describe(source, item: int) -> str:
    return source.describe_batch(*divmod(item, len(source)))


def _on_tensorflow() -> bool:
    return keras.backend.backend() == "tensorflow"


def _tf_dataset(batch: Callable[[int], tuple], count: int, sequence: HDF5Sequence, *, finite: bool = False):
    """The batches as a ``tf.data.Dataset``, which Keras takes as it is.

    From a PyDataset Keras would make one itself, with an autotuned prefetch: that costs CPU that the workers need, and
    holds up the end of an epoch until the autotune thread looks up (TensorFlow 2.21). One batch is fetched ahead here,
    so that handing it over does not wait for the step.
    """
    import tensorflow as tf  # Keras runs on it

    labels = tf.TensorSpec((None,), tf.int64)
    if sequence.label_kind == "onehot":
        labels = tf.TensorSpec((None, sequence.num_classes), tf.float32)
    images = tf.TensorSpec((None, *sequence.image_shape), tf.uint8)
    # TensorFlow 2.21 keeps the function that makes the generator for ever, and after an error sometimes the generator:
    # neither may hold the pool's memory.
    batches = functools.partial(_each, weakref.WeakMethod(batch), count)
    dataset = tf.data.Dataset.from_generator(batches, output_signature=(images, labels)).prefetch(1)
    if finite:
        dataset = dataset.apply(tf.data.experimental.assert_cardinality(count))
    options = tf.data.Options()
    options.autotune.enabled = False
    options.threading.private_threadpool_size = 1
    return dataset.with_options(options)


def _each(batch: weakref.WeakMethod, count: int) -> Iterator[tuple]:
    for index in range(count):
        yield batch()(index)


def _classic_sequence(batch, length: int, on_epoch_end=lambda: None):
    """A ``tf_keras.utils.Sequence`` of ``batch(0) .. batch(length - 1)``."""
    from tf_keras.utils import Sequence  # only ever reached with a tf_keras model

    class ClassicSequence(Sequence):
        def __len__(self) -> int:
            return length

        def __getitem__(self, index: int):
            return batch(index)

        def on_epoch_end(self) -> None:
            on_epoch_end()

    return ClassicSequence()


def _is_classic_sequence(source) -> bool:
    """A ``tf_keras.utils.Sequence``; what ``ImageDataGenerator.flow`` gives can be called like a generator, too."""
    return _comes_from(source, "tf_keras") and hasattr(source, "__len__")


def _callback_class(classic: bool):
    if not classic:
        return keras.callbacks.LambdaCallback
    from tf_keras.callbacks import LambdaCallback  # only ever reached with a tf_keras model

    return LambdaCallback


def _comes_from(value, package: str) -> bool:
    return any(cls.__module__.split(".")[0] == package for cls in type(value).__mro__)


def _tell(listeners: list, number: int, asked_s: float) -> None:
    for listener in listeners:
        listener(number, asked_s)


def _check_rows(batch, name: str) -> None:
    """Of two images with one label Keras makes two with the same label, without a word."""
    parts = batch if isinstance(batch, (tuple, list)) else ()
    counts = [len(part) for part in parts if getattr(part, "ndim", 0)]
    if len(set(counts)) > 1:
        raise ValueError(
            f"images, labels and sample weights of a batch must be equally many; {name} gave {counts}. Cut all of them "
            "by the same rows."
        )


def _weighted(batch, weights: dict[int, float] | None):
    """(images, labels, sample weights), for a source that Keras 3 takes without class weights only."""
    if weights is None:
        return batch
    if not isinstance(batch, (tuple, list)) or len(batch) != 2:
        got = f"{len(batch)} parts" if isinstance(batch, (tuple, list)) else type(batch).__name__
        raise ValueError(
            f"class_weight needs batches of (images, labels); this generator yields {got}. "
            "Multiply the weights into its sample weights."
        )
    images, labels = batch
    numbers = np.asarray(labels)
    numbers = numbers.argmax(axis=-1) if numbers.ndim > 1 and numbers.shape[-1] > 1 else numbers.reshape(-1)
    numbers = numbers.astype(np.int64).tolist()
    missing = sorted(set(numbers) - set(weights))
    if missing:
        raise ValueError(
            f"class_weight must hold every class; a batch of this generator has class {missing[0]}, and the "
            f"weights are for {sorted(weights)}."
        )
    return images, labels, np.array([weights[number] for number in numbers], dtype=np.float32)


def _is_to_be_called(source) -> bool:
    return inspect.isroutine(source) or inspect.isclass(source)


def _check_not_overridden(sequence: HDF5Sequence) -> None:
    """Workers make the batches from the file, not through the sequence: what a subclass adds would be left out."""
    for name in ("__getitem__", "__len__", "batch", "on_epoch_begin", "on_epoch_end"):
        if getattr(type(sequence), name) is not getattr(HDF5Sequence, name):
            raise TypeError(
                f"fit_generator makes the batches of an HDF5Sequence in workers of its own and would not call "
                f"{type(sequence).__name__}.{name}. Put what it does into augment=, a layer of the model or a "
                "callback, or train with model.fit(sequence)."
            )


def _warn_about_keras_processes(source) -> None:
    if source.use_multiprocessing and source.workers > 0:
        warnings.warn(
            f"Keras' own worker processes make the batches of {type(source).__name__}: they are a fork of the process "
            "that runs TensorFlow (on Linux), and when one dies, training waits for ever. Leave use_multiprocessing "
            "out, or pass an HDF5Sequence.",
            KerasPoolWarning,
            stacklevel=4,
        )


def _stop_keras_workers(source) -> None:
    """After an error or an interrupt Keras 3.15 leaves the workers of a PyDataset running; nobody else ends them."""
    for thread in threading.enumerate():
        enqueuer = getattr(getattr(thread, "_target", None), "__self__", None)  # Keras gives nobody a handle on it
        if getattr(enqueuer, "py_dataset", None) is source and hasattr(enqueuer, "future_queue"):
            enqueuer.stop(drain_queue_and_join=False)
            deadline = time.monotonic() + _PATIENCE_S
            while thread.is_alive() and time.monotonic() < deadline:  # it may wait for room in its queue
                with contextlib.suppress(queue.Empty):
                    enqueuer.future_queue.get(timeout=0.05)


def training_feed(model, source, steps, initial_epoch: int, epochs: int, pool: dict) -> Feed:
    """The feed for what the user passed as ``generator``.

    Raises
    ------
    TypeError
        Nothing that gives batches, or a tf_keras Sequence for a Keras 3 model.
    """
    if isinstance(source, HDF5Sequence):
        return SequenceFeed(source, steps, initial_epoch, epochs, pool)
    if isinstance(source, keras.utils.PyDataset):
        return PyDatasetFeed(source, steps, pool)
    if hasattr(source, "__next__") and not _is_classic_sequence(source):
        return IteratorFeed(source, steps, epochs - initial_epoch, pool)
    if _comes_from(source, "tf_keras") and not is_classic(model):
        raise TypeError(
            f"{type(source).__name__} is a tf_keras Sequence and the model is a Keras 3 model. Derive it from "
            "keras.utils.PyDataset, or build the model with tf_keras."
        )
    if source is None or isinstance(source, _NO_BATCHES) or _is_to_be_called(source):
        hint = "For arrays call model.fit(x, y)."
        if _is_to_be_called(source):
            hint = "Call it: generator=NAME()."
        elif isinstance(source, (str, os.PathLike, *_HDF5_OBJECTS)):
            hint = "For an HDF5 file pass HDF5Sequence(PATH)."
        raise TypeError(
            "generator must give batches: an HDF5Sequence, another PyDataset, a Python generator or a tf.data.Dataset; "
            f"got {type(source).__name__}. {hint}"
        )
    return Feed(source, steps, pool)


def validation_feed(source, steps) -> Feed:
    """The feed for ``validation_data``."""
    if isinstance(source, HDF5Sequence):
        return SequenceValidation(source, steps)
    if isinstance(source, keras.utils.PyDataset) or _is_classic_sequence(source) or not hasattr(source, "__next__"):
        return Validation(source, steps)
    return IteratorValidation(source, steps)

"""``fit_generator``, the classic call, on today's Keras, and on the original one when the model is a tf_keras model.

::

    sequence --> WorkerPool --> SequenceFeed --> tf.data pipeline   --> Model.fit
                 (threads or    (item g is       (TensorFlow), or
                  processes)     batch g % len   endless PyDataset
                                 of pass g // len)

Keras' own worker pools are left out on purpose (3.15): with steps_per_epoch below the number of batches they start each
epoch again at batch 0 and never train on the rest; they are made anew every epoch by forking a process that runs
TensorFlow; a worker that dies stops them for ever, and an interrupt leaves them behind.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import traceback
import warnings

import keras
import numpy as np

from helpers import preflight
from helpers.arguments import whole_number
from helpers.backup import BackupAndResume, BackupError, find_backup
from helpers.feeds import (
    Feed,
    GeneratorRanDryError,
    PyDatasetFeed,
    StepsWarning,
    is_classic,
    training_feed,
    validation_feed,
)
from helpers.preflight import QueueMemoryWarning
from helpers.workers import WorkerDiedError, WorkerStalledError

__all__ = [
    "BackupAndResume",
    "BackupError",
    "GeneratorRanDryError",
    "QueueMemoryWarning",
    "StepsWarning",
    "WorkerDiedError",
    "WorkerStalledError",
    "balanced_class_weight",
    "fit_generator",
]

_LOG = logging.getLogger(__name__)


def fit_generator(
    model,
    generator,
    steps_per_epoch=None,
    epochs=1,
    verbose="auto",
    callbacks=None,
    validation_data=None,
    validation_steps=None,
    validation_freq=1,
    class_weight=None,
    max_queue_size=None,
    workers=None,
    use_multiprocessing=None,
    shuffle=None,
    initial_epoch=0,
):
    """Train ``model`` on batches from ``generator``, with the arguments that ``Model.fit_generator`` had.

    Parameters
    ----------
    model : a compiled Keras model; for a tf_keras model its own ``fit_generator`` is called.
    generator : :class:`helpers.HDF5Sequence`, another ``PyDataset``, a Python generator of (images, labels), or
        anything else with images and labels that ``Model.fit`` takes as ``x``, such as a ``tf.data.Dataset``.
    steps_per_epoch : batches an epoch. None: one pass over the data. A plain generator has no length and needs it.
    epochs, initial_epoch : number of the last epoch, and of the first one.
    verbose, callbacks, validation_data, validation_steps, validation_freq : as in ``Model.fit``. Validation on an
        HDF5Sequence keeps the workers of that sequence and reads its batches 0, 1, ... each time. With a
        :class:`BackupAndResume` among the callbacks, a training that was killed goes on after its last save, whatever
        ``initial_epoch`` and the position of the sequence say.
    class_weight : {class number: weight} with every class; see :func:`balanced_class_weight`.
    workers, use_multiprocessing, max_queue_size : None is "as the generator says"; a value counts for this call.
        Keras decides how far it reads ahead in a plain generator.
    shuffle : for other people's datasets; an HDF5Sequence shuffles rows itself.

    Returns
    -------
    History, whose ``history`` has the values of each epoch.

    Raises
    ------
    TypeError, ValueError
        An argument, a monitor name, a class weight, the labels or the image size do not fit. Asked before the first
        batch.
    GeneratorRanDryError
        A generator ended early.
    WorkerDiedError, WorkerStalledError
        No batch will come.
    Exception
        Whatever making a batch raised, with a note that names file, batch and rows.

    Notes
    -----
    An HDF5Sequence is one endless stream: item g is batch ``g % len`` of pass ``g // len``. Step k of epoch e is item
    ``e * steps_per_epoch + k``. A call with initial_epoch=0 adds the sequence's position, so a second call goes on
    where the first one ended, and ``set_position`` is heard; a call with initial_epoch > 0 starts at item
    ``initial_epoch * steps_per_epoch`` wherever the sequence stands. Afterwards, also after an error or an interrupt,
    the position is the first item that was not trained on.
    """
    _check_model(model)
    steps = _optional_steps("steps_per_epoch", steps_per_epoch)
    validation_steps = _optional_steps("validation_steps", validation_steps)
    epochs = whole_number("epochs", epochs, 1, "It is the number of the last epoch.")
    initial_epoch = whole_number("initial_epoch", initial_epoch, 0, "It is the number of the first epoch.")
    validation_freq = preflight.checked_validation_freq(validation_freq)
    if initial_epoch >= epochs:
        raise ValueError(
            f"epochs is the number of the last epoch, not how many more: initial_epoch={initial_epoch} with "
            f"epochs={epochs} trains nothing. Pass epochs={initial_epoch + epochs} for {epochs} more."
        )
    preflight.check_end(generator, steps, "generator", "steps_per_epoch")
    preflight.check_validation(validation_data, validation_steps, validation_freq)
    preflight.check_same_classes(generator, validation_data)
    callbacks = _callback_list(callbacks)
    preflight.check_callbacks(model, callbacks)
    preflight.check_monitors(model, callbacks, has_validation=validation_data is not None)
    weights = preflight.check_class_weight(
        class_weight, preflight.class_count(model, generator), preflight.class_names_of(generator)
    )
    pool = {
        "workers": None if workers is None else preflight.checked_workers(workers),
        "use_multiprocessing": (
            None if use_multiprocessing is None else preflight.checked_flag("use_multiprocessing", use_multiprocessing)
        ),
        "max_queue_size": None if max_queue_size is None else preflight.checked_queue_size(max_queue_size),
    }
    backup = find_backup(callbacks)
    place = None if backup is None else backup.find(generator, steps, epochs)
    if place is not None:
        initial_epoch = place.epoch
    with (
        training_feed(model, generator, steps, initial_epoch, epochs, pool) as feed,
        validation_feed(validation_data, validation_steps) as validation,
    ):
        feed.check(model)
        validation.check(model)
        if place is not None:
            feed.go_on(place.item, place.step)
            done = f", after {place.step} of {feed.steps} steps" if place.step else ""
            _say(f"Training goes on in epoch {place.epoch + 1} of {epochs}{done}.", verbose)
        if backup is not None:
            callbacks = backup.follow(feed, callbacks)
        preflight.warn_about_queue([*feed.queues(), *validation.queues()])
        feed.validation = validation
        feed.listeners = [one.batch_ready for one in callbacks if callable(getattr(one, "batch_ready", None))]
        _say(feed.message(), verbose)
        return _train(
            model,
            feed,
            validation,
            {"shuffle": shuffle, "class_weight": feed.class_weight(weights), **pool},
            epochs=epochs,
            initial_epoch=initial_epoch,
            verbose=verbose,
            callbacks=feed.callbacks(is_classic(model), callbacks),
            validation_freq=validation_freq,
        )


def balanced_class_weight(sequence) -> dict[int, float]:
    """Weights that let every class count the same: ``rows / (classes * rows of the class)``, {class number: weight}.

    ``sequence`` is an :class:`helpers.HDF5Sequence`. A class without rows gets 1.0: it is never met, and infinity
    would be refused. Use it as ``class_weight=balanced_class_weight(train)``.
    """
    counts = np.bincount(sequence.class_numbers, minlength=sequence.num_classes)
    share = counts.sum() / np.count_nonzero(counts)
    return {number: float(share / count) if count else 1.0 for number, count in enumerate(counts.tolist())}


def _train(model, feed: Feed, validation: Feed, settings: dict, **options):
    """Call Keras, and turn an error that TensorFlow made into text back into what was raised."""
    classic = is_classic(model)
    options |= {
        "steps_per_epoch": feed.steps,
        "validation_data": validation.data(classic),
        "validation_steps": validation.steps,
        "class_weight": settings["class_weight"],
    }
    try:
        if classic:
            return _fit_classic(model, feed, settings, options)
        return model.fit(feed.data(classic=False), shuffle=feed.shuffle(settings["shuffle"]), **options)
    except Exception as error:
        for source in (feed, validation):
            if source.failure is not None and (error is source.failure or _is_from_tensorflow(error)):
                _let_go(error)
                raise source.failure from source.cause
        raise
    except BaseException as error:
        _let_go(error)
        raise


def _fit_classic(model, feed: Feed, settings: dict, options: dict):
    """The real ``Model.fit_generator``; None becomes its own default, as it was in Keras 2."""
    feed.shuffle(settings["shuffle"])  # refuses what it must
    if type(feed) is Feed or type(feed) is PyDatasetFeed:
        for name in ("workers", "use_multiprocessing", "max_queue_size", "shuffle"):
            if settings[name] is not None:
                options[name] = settings[name]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*fit_generator.* is deprecated")
        return model.fit_generator(feed.data(classic=True), **options)


def _let_go(error: BaseException) -> None:
    """Empty the frames of Keras in a trace: IPython keeps the last one, and with it Keras' iterator and its batches."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        if frame.f_globals.get("__name__", "").split(".")[0] in {"keras", "tf_keras", "tensorflow"}:
            with contextlib.suppress(RuntimeError):  # it still runs, in another thread
                frame.clear()


def _check_model(model) -> None:
    if not is_classic(model) and not isinstance(model, keras.Model):
        raise TypeError(f"model must be a Keras or tf_keras model; got {type(model).__name__}.")


def _optional_steps(name: str, steps) -> int | None:
    hint = "len(sequence) is one pass over the data; leave it out for that."
    return None if steps is None else whole_number(name, steps, 1, hint)


def _callback_list(callbacks) -> list:
    if callbacks is None:
        return []
    if isinstance(callbacks, (list, tuple)):
        return [
            one for part in callbacks for one in (_callback_list(part) if isinstance(part, (list, tuple)) else [part])
        ]
    return list(getattr(callbacks, "callbacks", [callbacks]))


def _say(message: str | None, verbose) -> None:
    """One line where Keras' progress bar will stand too; always in the log."""
    if message is None:
        return
    _LOG.info(message)
    if verbose != 0:
        sys.stdout.write(message + "\n")


def _is_from_tensorflow(error: Exception) -> bool:
    return type(error).__module__.split(".")[0] == "tensorflow"

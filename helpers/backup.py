"""A training that may be killed: what it needs to go on at the very next batch, saved while it runs.

Keras' own ``BackupAndRestore`` (3.15) begins an interrupted epoch again, forgets the state of its random layers
(dropout), and what ``EarlyStopping`` and others have counted; and being killed while it saves leaves half a file.
Batches of an HDF5Sequence depend on (seed, epoch, row) alone, so one number says where the data stand.
"""

from __future__ import annotations

import contextlib
import json
import os
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import h5py
import keras
import numpy as np

from helpers.sequence import HDF5Sequence

_FILE, _PART = "training.h5", "training.part.h5"
_COUNTED = ("best", "wait", "cooldown_counter", "best_epoch", "stopped_epoch")  # what Keras' callbacks remember


class BackupError(ValueError):
    """A backup is of another training, or cannot be read."""


@dataclass(frozen=True)
class Place:
    """Where a training stands: ``step`` steps of ``epoch`` are done, and ``item`` of the stream comes next.

    ``run`` is what has to be the same when it goes on; ``counted`` is what each callback of Keras remembers.
    """

    epoch: int
    step: int
    item: int
    run: dict
    counted: list[dict]


class BackupAndResume(keras.callbacks.BackupAndRestore):
    """A callback for :func:`helpers.fit_generator`: killed at any moment, the same script goes on where it was.

    Saves all that the next step depends on: weights, optimizer, running metrics, the state of layers that draw random
    numbers, what EarlyStopping, ReduceLROnPlateau and ModelCheckpoint have counted, and the place in the data. Run the
    same script again and the training goes on after the last save. On a CPU, with the same number of threads, the
    final weights are those of a training that was never stopped, to the bit. A training that ends by itself deletes
    the backup.

    Parameters
    ----------
    backup_dir : a folder, made when it is missing; it holds one file, which is replaced as a whole at each save.
    save_freq : "epoch", or a number of steps, counted anew from each end of an epoch, when it saves too. A save writes
        the model and the optimizer: three times the weights, for Adam.

    Not the same to the bit: trainings with ``SwapEMAWeights``, or with layers that draw random numbers outside
    training, too. Not compared: the kinds of layers and optimizer where shapes are equal, augmentation, pixels.

    ``file`` is where it lies. Not saved are the rows of ``History`` (use ``CSVLogger(name, append=True)``) and what
    callbacks of your own remember.

    Raises
    ------
    BackupError
        The backup belongs to another model, file or setting, or does not open. Raised by ``fit_generator``.

    Examples
    --------
    >>> fit_generator(model, train, epochs=20, callbacks=[BackupAndResume("backup", save_freq=100)])  # doctest: +SKIP
    """

    def __init__(self, backup_dir: str | os.PathLike, save_freq: str | int = "epoch"):
        if not str(backup_dir):
            raise ValueError("backup_dir must be a folder; got an empty name.")
        if save_freq != "epoch" and (isinstance(save_freq, bool) or not isinstance(save_freq, int) or save_freq < 1):
            raise ValueError(f'save_freq must be "epoch" or a number of steps of at least 1; got {save_freq!r}.')
        super().__init__(str(backup_dir), save_freq)
        self.file = Path(backup_dir) / _FILE
        self._place: Place | None = None  # restored, until the first epoch begins
        self._feed = None

    # --- called by fit_generator

    def find(self, sequence, steps: int | None, epochs: int) -> Place | None:
        """The place to go on from, None for a new training; compared with what is to be trained now."""
        if not isinstance(sequence, HDF5Sequence):
            raise TypeError(
                "BackupAndResume needs an HDF5Sequence, whose batches can be made again from their number; got "
                f"{type(sequence).__name__}. For other data there is keras.callbacks.BackupAndRestore."
            )
        self._run = _identity(sequence, len(sequence) if steps is None else steps)
        self._last_epoch = epochs - 1
        self._place = _read_place(self.file)
        if self._place is not None:
            self._compare(self._place, epochs)
        return self._place

    def follow(self, feed, others: Iterable) -> list:
        """The callbacks to train with: this one restores before all others, and saves after them."""
        self._feed, self._others = feed, [other for other in others if other is not self]
        restore = keras.callbacks.LambdaCallback(
            on_train_begin=self._restore_model, on_epoch_begin=self._restore_counted
        )
        return [restore, *self._others, self]

    # --- called by Keras

    def on_train_begin(self, logs=None) -> None:
        del logs
        if self._feed is None:
            raise ValueError(
                "BackupAndResume works with helpers.fit_generator, which knows the place in the data. For model.fit "
                "there is keras.callbacks.BackupAndRestore."
            )

    def on_epoch_begin(self, epoch, logs=None) -> None:
        """Restore again what was saved within an epoch: other callbacks begin that epoch for the second time.

        A LearningRateScheduler, say, has lowered the learning rate once more. And Keras has reset the metrics.
        """
        del epoch, logs
        place, self._place = self._place, None
        if place is not None and place.step:
            self._build_metrics(place)
            with h5py.File(self.file, "r") as file:
                for group in _state(self.model):
                    self._load(file, group)

    def on_train_batch_end(self, batch, logs=None) -> None:
        del logs
        due = self._should_save_on_batch(batch)
        if due and self._feed.steps_done < self._feed.steps:  # at the end of an epoch only once it is over
            self._save_model()

    def on_epoch_end(self, epoch, logs=None) -> None:
        del logs
        self._last_batch_seen = 0
        self._current_epoch = epoch + 1
        over = epoch >= self._last_epoch or self.model.stop_training
        if not over:  # a training that is about to end has nothing to go on with
            self._save_model()

    def on_train_end(self, logs=None) -> None:
        """Delete the backup; the folder too when nothing else is in it."""
        del logs
        self._feed = None
        for path in (self.file, self.file.with_name(_PART)):
            path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self.file.parent.rmdir()

    def _save_model(self) -> None:
        part = self.file.with_name(_PART)
        part.parent.mkdir(parents=True, exist_ok=True)
        step = self._feed.steps_done % self._feed.steps
        place = Place(self._current_epoch, step, self._feed.next_item, self._run, _counted(self._others))
        with h5py.File(part, "w") as file:
            for group, variables in _state(self.model).items():
                _store(file, group, [_numbers(one) for one in variables])
                file[f"kinds/{group}"] = json.dumps(_kinds(variables))  # an attribute holds 64 kB, too little for some
            for number, callback in enumerate(_that_count(self._others)):
                _store(file, f"best_weights/{number}", getattr(callback, "best_weights", None) or [])
            file.attrs["place"] = json.dumps(asdict(place))
        _to_disk(part)
        part.replace(self.file)
        self._batches_seen_since_last_saving = 0

    # --- the parts

    def _compare(self, place: Place, epochs: int) -> None:
        begin = f"the backup in {self.file.parent} is of another training"
        end = "Train with what it was begun with, or delete the folder to begin anew."
        for name, now in self._run.items():
            if place.run.get(name) != now:
                raise BackupError(f"{begin}: it has {name}={place.run.get(name)!r}, and now it is {now!r}. {end}")
        if place.epoch >= epochs:
            raise BackupError(
                f"the backup in {self.file.parent} stands in epoch {place.epoch} (the first is 0), and "
                f"epochs={epochs} ends before that. Pass a larger epochs, or delete the folder to begin anew."
            )

    def _restore_model(self, logs=None) -> None:
        """Weights, optimizer and random states; the metrics follow when Keras has reset them."""
        del logs
        if self._place is None:
            return
        optimizer = getattr(self.model, "optimizer", None)
        if optimizer is not None and not optimizer.built:
            optimizer.build(self.model.trainable_variables)
        self._current_epoch, self._last_batch_seen = self._place.epoch, 0
        with h5py.File(self.file, "r") as file:
            for group in ("model", "optimizer"):
                self._load(file, group)

    def _restore_counted(self, epoch: int, logs=None) -> None:
        """What callbacks have counted: they forget it when a training begins, and use it when an epoch does."""
        del epoch, logs
        if self._place is None:
            return
        counts = zip(_that_count(self._others), self._place.counted, strict=False)
        with h5py.File(self.file, "r") as file:
            for number, (callback, counted) in enumerate(counts):
                if type(callback).__name__ == counted["callback"]:
                    vars(callback).update({name: value for name, value in counted.items() if name != "callback"})
                    _recall_best_weights(callback, file.get(f"best_weights/{number}"), self.model)

    def _build_metrics(self, place: Place) -> None:
        """Keras 3.15 makes the variables of metrics in the first step, which would be too late."""
        images, labels = self._feed.source.batch(*divmod(place.item, len(self._feed.source)))
        self.model.compute_metrics(images, labels, self.model(images, training=False))

    def _load(self, file: h5py.File, group: str) -> None:
        variables = _state(self.model)[group]
        _compare_kinds(self.file, group, json.loads(file[f"kinds/{group}"][()]), _kinds(variables))
        for number, variable in enumerate(variables):
            kind = _numbers(variable).dtype
            stored = np.asarray(file[f"{group}/{number}"][()])
            variable.assign(stored.view(kind) if stored.dtype.kind == "V" else stored)


def find_backup(callbacks: list) -> BackupAndResume | None:
    """The one among the callbacks, if any. Raises ValueError when there are two that keep a training."""
    found = [callback for callback in callbacks if isinstance(callback, keras.callbacks.BackupAndRestore)]
    ours = [callback for callback in found if isinstance(callback, BackupAndResume)]
    if ours and len(found) > 1:
        names = " and ".join(type(callback).__name__ for callback in found)
        raise ValueError(f"one backup is enough, and two would disagree; got {names}. Keep BackupAndResume.")
    return ours[0] if ours else None


# --- the file


def _read_place(path: Path) -> Place | None:
    if not path.exists():
        return None
    try:
        with h5py.File(path, "r") as file:
            return Place(**json.loads(file.attrs["place"]))
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise BackupError(
            f"{path} cannot be read as a backup of a training ({error}). Delete it to begin anew."
        ) from error


def _store(file: h5py.File, group: str, arrays: list[np.ndarray]) -> None:
    """Arrays 0, 1, ... of a group; types that HDF5 does not know (bfloat16) as plain bytes."""
    file.create_group(group)
    for number, array in enumerate(arrays):
        array = np.asarray(array)
        file[f"{group}/{number}"] = array.view(f"V{array.itemsize}") if array.dtype.kind == "V" else array


def _to_disk(path: Path) -> None:
    """Until then a power cut may leave the new name with the old, or with no, content."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())


# --- what is in it


def _state(model) -> dict[str, list]:
    """All variables that the next step depends on, and the metrics of the running epoch."""
    optimizer = getattr(model, "optimizer", None)
    return {
        "model": model.variables,  # with the state of layers that draw random numbers
        "optimizer": optimizer.variables if optimizer is not None else [],
        "metrics": model.metrics_variables,
    }


def _numbers(variable) -> np.ndarray:
    """Of a tensor, not of the variable: TensorFlow 2.21's variables do not know NumPy 2's way to copy, and warn."""
    return np.asarray(keras.ops.convert_to_tensor(variable))


def _kinds(variables: list) -> list[str]:
    """Shape and dtype of each: names differ from one building of the same model to the next."""
    return [f"{one.dtype} {tuple(one.shape)}" for one in variables]


def _compare_kinds(path: Path, group: str, stored: list[str], now: list[str]) -> None:
    if stored == now:
        return
    pairs = [f"one of {one} is {other} now" for one, other in zip(stored, now, strict=False) if one != other]
    raise BackupError(
        f"the backup in {path.parent} has {len(stored)} variables of the {group} and there are {len(now)} now"
        f"{', and ' * bool(pairs)}{pairs[0] if pairs else ''}. Build and compile the model as before, or delete the "
        "folder to begin anew."
    )


def _identity(sequence: HDF5Sequence, steps: int) -> dict:
    """What decides which rows come in which step; as JSON gives it back."""
    order = sequence.source.order
    return {
        "dataset": sequence.split_info.images,
        "rows": order.n,
        "labels_crc32": zlib.crc32(sequence.class_numbers.tobytes()),  # of other rows, or another file, they differ
        "batch_size": order.batch_size,
        "shuffle": order.shuffle,
        "seed": order.seed,
        "shard": list(order.shard),
        "drop_last": order.drop_last,
        "label_kind": sequence.label_kind,
        "steps_per_epoch": steps,
    }


def _that_count(callbacks: Iterable) -> Iterator:
    """Keras' callbacks that remember something from epoch to epoch."""
    for callback in callbacks:
        if type(callback).__module__.split(".")[0] == "keras" and not vars(callback).keys().isdisjoint(_COUNTED):
            yield callback


def _counted(callbacks: Iterable) -> list[dict]:
    return [
        {"callback": type(callback).__name__}
        | {name: _plain(value) for name, value in vars(callback).items() if name in _COUNTED}
        for callback in _that_count(callbacks)
    ]


def _plain(value) -> int | float | None:
    """A number that JSON can keep; Keras' callbacks hold whatever the logs held."""
    return value if value is None or isinstance(value, int) else float(value)


def _recall_best_weights(callback, group: h5py.Group | None, model) -> None:
    """EarlyStopping goes back to them at the end."""
    if group is not None and len(group):
        kinds = [weights.dtype for weights in model.get_weights()]
        arrays = [np.asarray(group[str(number)][()]) for number in range(len(group))]
        callback.best_weights = [
            array.view(kind) if array.dtype.kind == "V" else array for array, kind in zip(arrays, kinds, strict=True)
        ]

"""Questions that :func:`helpers.fit_generator` asks before the first batch, while the answer still costs nothing.

Each check raises with a sentence that says what to do, or passes. What cannot be known beforehand (models with several
outputs, own ``train_step``, callbacks that write logs themselves) is left to Keras.
"""

from __future__ import annotations

import difflib
import math
import warnings
from collections.abc import Container

import numpy as np
import psutil

from helpers.order import whole_number

_SPARSE_LOSSES = {"sparse_categorical_crossentropy", "SparseCategoricalCrossentropy"}
_ONEHOT_LOSSES = {
    "categorical_crossentropy",
    "CategoricalCrossentropy",
    "categorical_focal_crossentropy",
    "CategoricalFocalCrossentropy",
}
# Losses that compare number by number: with class numbers they fail in the graph, or broadcast without a word where
# batch size and classes are equal.
_ELEMENTWISE_LOSSES = {
    *("binary_crossentropy", "BinaryCrossentropy", "binary_focal_crossentropy", "BinaryFocalCrossentropy"),
    *("mean_squared_error", "MeanSquaredError", "mse", "mean_absolute_error", "MeanAbsoluteError", "mae"),
    *("kl_divergence", "KLDivergence", "kld", "huber", "Huber", "cosine_similarity", "CosineSimilarity"),
    *("hinge", "Hinge", "squared_hinge", "SquaredHinge", "categorical_hinge", "CategoricalHinge"),
}
_BINARY_LOSSES = {name for name in _ELEMENTWISE_LOSSES if name.lower().startswith("binary")}
_ONEHOT_METRICS = {
    *("categorical_accuracy", "CategoricalAccuracy", "categorical_crossentropy", "CategoricalCrossentropy"),
    *("top_k_categorical_accuracy", "TopKCategoricalAccuracy"),
}
_SPARSE_METRICS = {f"sparse_{name}" if name.islower() else f"Sparse{name}" for name in _ONEHOT_METRICS}
_WATCHERS = {"EarlyStopping", "ReduceLROnPlateau", "ModelCheckpoint"}
_KNOWN_PACKAGES = {"keras", "tf_keras", "helpers"}  # whose callbacks add nothing to the logs but the learning rate
_QUEUE_SHARE = 0.5  # of the free memory; the other half is for the model, the page cache and everything else
_SHOWN_CLASSES = 12  # longer suggestions of class_weight are cut


class QueueMemoryWarning(RuntimeWarning):
    """The batches that are made ahead may not fit into the free memory."""


def checked_workers(value) -> int:
    """A number of workers, 0 or more; raises like :func:`whole_number`."""
    return whole_number("workers", value, 0, "0 makes batches when they are asked for.")


def checked_queue_size(value) -> int:
    """A queue size, 1 or more; raises like :func:`whole_number`."""
    return whole_number("max_queue_size", value, 1, "It counts batches made ahead.")


def checked_flag(name: str, value) -> bool:
    """A yes or no. Raises TypeError for anything else: the words "no" and "False", for one, count as true in Python."""
    if isinstance(value, (bool, np.bool_)) or (isinstance(value, int) and value in {0, 1}):
        return bool(value)
    hint = " The number of workers goes to workers=." if isinstance(value, int) else ""
    raise TypeError(f"{name} must be True or False; got {value!r}.{hint}")


def check_validation(validation_data, validation_steps, validation_freq) -> None:
    """Raises ValueError for settings of a validation that will not take place."""
    if validation_data is not None:
        return
    given = [] if validation_steps is None else ["validation_steps"]
    if isinstance(validation_freq, Container) or validation_freq != 1:
        given.append("validation_freq")
    if given:
        names = " and ".join(given)
        raise ValueError(f"{names} without validation_data does nothing. Pass validation_data, or leave {names} out.")


def check_class_weight(class_weight, num_classes: int | None) -> dict[int, float] | None:
    """``class_weight`` as a full dict {class number: weight}, which is the only form that Keras does not misread.

    Keras ignores string keys silently and counts missing classes as 1. ``num_classes`` None: not known, not checked.

    Raises
    ------
    TypeError
        Not a dict, or keys that are no integers: the sentence shows the right dict.
    ValueError
        Classes are missing or unknown, or a weight is not a finite number of at least 0.
    """
    if class_weight is None:
        return None
    rule = "class_weight must be a dict {class number: weight} with every class"
    if not isinstance(class_weight, dict):
        shown = _suggestion(dict(enumerate(_as_list(class_weight))), num_classes)
        raise TypeError(f"{rule}; got {type(class_weight).__name__}. Pass class_weight={shown}.")
    if not all(isinstance(key, (int, np.integer)) and not isinstance(key, bool) for key in class_weight):
        shown = _suggestion(_int_keys(class_weight), num_classes)
        raise TypeError(f"{rule}; got keys {list(class_weight)[:5]}. Pass class_weight={shown}.")
    weights = {int(key): value for key, value in class_weight.items()}
    for number, value in weights.items():
        if not _is_weight(value):
            raise ValueError(f"the weight of class {number} must be a finite number of at least 0; got {value!r}.")
    if num_classes is not None and set(weights) != set(range(num_classes)):
        missing = sorted(set(range(num_classes)) - set(weights))
        unknown = sorted(set(weights) - set(range(num_classes)))
        got = " and ".join(
            f"{word} {numbers[:5]}" for word, numbers in (("lacks", missing), ("has unknown", unknown)) if numbers
        )
        raise ValueError(
            f"{rule} from 0 to {num_classes - 1}; it {got}. Pass class_weight={_suggestion(weights, num_classes)}."
        )
    return {number: float(weights[number]) for number in sorted(weights)}


def class_count(model, source) -> int | None:
    """Number of classes: as the sequence says, else as the model has outputs; None where neither can be known."""
    count = getattr(source, "num_classes", None)
    if count is None:
        count = _output_width(model)
    return None if count == 1 else count


def check_labels(model, sequence, name: str = "generator") -> None:
    """Compare what a sequence serves with what a model wants: kind of label, number of classes, size of image.

    Raises
    ------
    ValueError
        They do not fit.
    """
    losses = _loss_names(model)
    if sequence.label_kind == "onehot" and losses & _SPARSE_LOSSES:
        raise ValueError(
            f"the loss sparse_categorical_crossentropy wants class numbers, and {name} serves one-hot labels. Make the "
            'sequence with label_kind="sparse", or compile with loss="categorical_crossentropy".'
        )
    if sequence.label_kind == "sparse" and losses & _ONEHOT_LOSSES:
        raise ValueError(
            f"the loss categorical_crossentropy wants one-hot labels, and {name} serves class numbers. Make the "
            'sequence with label_kind="onehot", or compile with loss="sparse_categorical_crossentropy".'
        )
    outputs = _output_width(model)
    if not _fits(outputs, sequence, losses):
        raise ValueError(
            f"the model has {outputs} outputs and {name} has {sequence.num_classes} classes "
            f"({sequence.split_info.path}). Give the last layer {sequence.num_classes} units."
        )
    if sequence.label_kind == "sparse" and outputs not in {None, 1} and losses & _ELEMENTWISE_LOSSES:
        raise ValueError(
            f"the loss {max(losses & _ELEMENTWISE_LOSSES)} wants one number for each of the {outputs} outputs, and "
            f'{name} serves class numbers. Make the sequence with label_kind="onehot", or compile with '
            'loss="sparse_categorical_crossentropy".'
        )
    _check_metrics(model, sequence, name)
    wanted = _single_shape(model, "input_shape")
    served = tuple(sequence.image_shape)
    if wanted is not None and len(wanted) == 4 and not _same_shape(wanted[1:], served):
        raise ValueError(
            f"the model takes images of {tuple(wanted[1:])} and {name} serves {served}. Build the model with "
            f"image_shape={served}, or crop in the augmentation."
        )


def _fits(outputs: int | None, sequence, losses: set[str]) -> bool:
    """Whether a model of so many outputs can tell the classes apart; None: not known."""
    if outputs == 1 and sequence.label_kind == "sparse":
        return not losses & _SPARSE_LOSSES and (sequence.num_classes <= 2 or not losses & _BINARY_LOSSES)
    return outputs in {None, sequence.num_classes}


def _check_metrics(model, sequence, name: str) -> None:
    wrong = _metric_names(model) & (_ONEHOT_METRICS if sequence.label_kind == "sparse" else _SPARSE_METRICS)
    if wrong:
        wants, serves = ("one-hot labels", "class numbers") if sequence.label_kind == "sparse" else (
            "class numbers", "one-hot labels"
        )  # fmt: skip
        raise ValueError(
            f"the metric {max(wrong)} wants {wants}, and {name} serves {serves}: it would be wrong without a word. "
            'Compile with metrics=["accuracy"], which takes both.'
        )


def check_monitors(model, callbacks, has_validation: bool) -> None:
    """Compare what callbacks monitor with the names that this model reports.

    Raises
    ------
    ValueError
        A name that will never be reported: the sentence lists those that will.
    """
    if any(type(callback).__module__.split(".")[0] not in _KNOWN_PACKAGES for callback in callbacks):
        return
    names = _reported_names(model)
    if names is None:
        return
    known = [*names, *(f"val_{name}" for name in names)] if has_validation else names
    for callback in callbacks:
        monitor = _watched_name(callback)
        if monitor is None or monitor in known or monitor in {"learning_rate", "lr"}:
            continue
        near = [name for name in known if name.startswith(monitor)] or difflib.get_close_matches(monitor, known, n=1)
        advice = f'Use monitor="{near[0]}".' if near else "Use one of these names."
        if monitor.startswith("val_") and not has_validation:
            advice = "Pass validation_data, or monitor a name without val_."
        raise ValueError(
            f'{type(callback).__name__} monitors "{monitor}", which this model does not report; it reports '
            f"{', '.join(known)}. {advice}"
        )


def warn_about_queue(queues: list[tuple[str, int, int]]) -> None:
    """Warn when batches made ahead may fill the memory; ``queues`` lists (name, batches held, bytes a batch)."""
    needed = sum(batches * size for _, batches, size in queues)
    free = psutil.virtual_memory().available
    if needed > _QUEUE_SHARE * free:
        parts = " and ".join(
            f"{name} holds up to {batches} batches of {size / 1e6:.0f} MB" for name, batches, size in queues
        )
        warnings.warn(
            f"{parts}: {needed / 1e9:.1f} GB, and {free / 1e9:.1f} GB of memory are free. Lower max_queue_size, "
            "workers or batch_size.",
            QueueMemoryWarning,
            stacklevel=3,
        )


def _as_list(values) -> list:
    try:
        return list(values)
    except TypeError:
        return []


def _is_weight(value) -> bool:
    return isinstance(value, (int, float, np.number)) and math.isfinite(value) and value >= 0


def _int_keys(weights: dict) -> dict[int, object]:
    found = {}
    for key, value in weights.items():
        with_number = str(key).strip()
        if with_number.isdigit():
            found[int(with_number)] = value
    return found


def _suggestion(weights: dict[int, object], num_classes: int | None) -> str:
    """The dict as it should have been: every class, 1.0 where nothing was said; cut when long."""
    count = num_classes if num_classes is not None else max(weights, default=-1) + 1
    if not count:
        return "helpers.training.balanced_class_weight(sequence)"
    items = []
    for number in range(count):
        value = weights.get(number, 1.0)
        items.append(f"{number}: {float(value) if _is_weight(value) else 1.0:g}")
    shown = items if count <= _SHOWN_CLASSES else [*items[: _SHOWN_CLASSES - 1], "...", items[-1]]
    return "{" + ", ".join(shown) + "}"


def _compile_config(model) -> dict:
    """What compile() got, in serialized form; empty where Keras cannot say (an own loss that does not serialize)."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # serializing a lambda warns, and nothing here is loaded again
            return model.get_compile_config() or {}
    except Exception:  # own losses and metrics may raise anything; then nothing is known
        return {}


def _name_of(entry) -> str | None:
    """Name under which a serialized loss or metric reports, None when it cannot be told."""
    if isinstance(entry, str):
        return entry
    if isinstance(entry, dict):
        config = entry.get("config")
        return config.get("name") if isinstance(config, dict) else config if isinstance(config, str) else None
    return None


def _loss_names(model) -> set[str]:
    loss = _compile_config(model).get("loss")
    if isinstance(loss, dict):
        return {name for name in (loss.get("class_name"), _name_of(loss)) if name}
    return {loss} if isinstance(loss, str) else set()


def _metric_names(model) -> set[str]:
    """Names and classes of the metrics of a model, as far as Keras can say; a loss of the same name is none."""
    names = set()
    config = _compile_config(model)
    for group in (config.get("metrics"), config.get("weighted_metrics")):
        for entry in group if isinstance(group, (list, tuple)) else ():
            names |= {_name_of(entry), entry.get("class_name") if isinstance(entry, dict) else None}
    return names - {None}


def _reported_names(model) -> list[str] | None:
    config = _compile_config(model)
    own_step = type(model).train_step.__module__.split(".")[0] not in {"keras", "tf_keras"}
    if not config or own_step or len(getattr(model, "outputs", None) or ()) != 1:
        return None
    names = ["loss"]
    for group in (config.get("metrics"), config.get("weighted_metrics")):
        if isinstance(group, dict):
            return None
        names += [_name_of(entry) for entry in group or ()]
    return None if None in names else names


def _watched_name(callback) -> str | None:
    kind = next((cls.__name__ for cls in type(callback).__mro__ if cls.__name__ in _WATCHERS), None)
    if kind is None or (kind == "ModelCheckpoint" and not callback.save_best_only):
        return None
    return callback.monitor


def _single_shape(model, attribute: str) -> tuple | None:
    try:
        shape = getattr(model, attribute)
    except (AttributeError, ValueError, RuntimeError):  # not built yet, or a subclassed model
        return None
    return tuple(shape) if isinstance(shape, (tuple, list)) and not _is_nested(shape) else None


def _output_width(model) -> int | None:
    shape = _single_shape(model, "output_shape")
    return shape[-1] if shape is not None and len(shape) == 2 else None


def _is_nested(shape) -> bool:
    return any(isinstance(side, (tuple, list, dict)) for side in shape)


def _same_shape(wanted: tuple, served: tuple) -> bool:
    return len(wanted) == len(served) and all(side in {None, got} for side, got in zip(wanted, served, strict=True))

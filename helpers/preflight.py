"""Questions that :func:`helpers.fit_generator` asks before the first batch, while the answer still costs nothing.

Each check raises with a sentence that says what to do, or passes. What cannot be known beforehand (models with several
outputs, own ``train_step``, callbacks that write logs themselves) is left to Keras.
"""

from __future__ import annotations

import difflib
import inspect
import math
import os
import re
import string
import warnings
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

import numpy as np

from helpers import arguments
from helpers.arguments import whole_number
from helpers.machine import free_memory

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
_KERAS = {"keras", "tf_keras"}
_REPORTERS = "train_step", "test_step", "compute_loss", "compute_metrics", "get_metrics_result", "metrics"
_KNOWN_PACKAGES = {*_KERAS, "helpers"}  # whose callbacks add nothing to the logs but the learning rate
QUEUE_SHARE = 0.5  # of the free memory; the other half is for the model, the page cache and everything else
_SHOWN_CLASSES = 12  # longer suggestions of class_weight are cut
_LARGEST_WEIGHT = float(np.finfo(np.float32).max)  # Keras computes in float32, where more is infinite


class QueueMemoryWarning(RuntimeWarning):
    """The batches that are made ahead may not fit into the free memory."""


def checked_workers(value) -> int:
    """A number of workers, 0 or more; raises like :func:`whole_number`."""
    return whole_number("workers", value, 0, "0 makes batches when they are asked for.")


def checked_queue_size(value) -> int:
    """A queue size, 1 or more; raises like :func:`whole_number`."""
    return whole_number("max_queue_size", value, 1, "It counts batches made ahead.")


def checked_flag(name: str, value) -> bool:
    """A yes or no, as :func:`helpers.arguments.checked_flag`; a number is taken for that of the workers."""
    is_number = isinstance(value, int)
    return arguments.checked_flag(name, value, "The number of workers goes to workers=." if is_number else "")


def checked_validation_freq(value) -> int | list[int]:
    """Epochs from one validation to the next, or a list of epochs, which is the only collection that Keras takes.

    Keras looks at it after the first epoch, and never meets what is no whole number of at least 1.
    """
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        hint = "It is the number of epochs from one validation to the next, or a list of epochs."
        return whole_number("validation_freq", value, 1, hint)
    epochs = [whole_number("each epoch of validation_freq", epoch, 1, "Epochs count from 1.") for epoch in value]
    if not epochs:
        raise ValueError("validation_freq must name an epoch; got none. To train without validation leave it out.")
    return epochs


def check_end(source, steps: int | None, name: str, argument: str) -> None:
    """Look at the length of somebody else's data, as far as it has one, before it is trained or validated on.

    Keras trains an epoch without end on data without end, and none at all on an empty ``tf.data.Dataset``.

    Raises
    ------
    TypeError
        The length is no whole number.
    ValueError
        There are no batches; or there is no end, and ``steps`` does not say where an epoch ends.
    """
    length = _length_of(source)
    if length == 0:
        raise ValueError(f"{name} has no batches: the length of this {type(source).__name__} is 0.")
    if length == math.inf and steps is None:
        raise ValueError(f"{name} has no end: pass {argument}, the number of batches to take of it each time.")


def check_validation(validation_data, validation_steps, validation_freq) -> None:
    """Raises ValueError for settings of a validation that will not take place, TypeError for data that gives none."""
    if validation_data is not None:
        _check_validation_data(validation_data)
        check_end(validation_data, validation_steps, "validation_data", "validation_steps")
        return
    given = [] if validation_steps is None else ["validation_steps"]
    if isinstance(validation_freq, Container) or validation_freq != 1:
        given.append("validation_freq")
    if given:
        names = " and ".join(given)
        raise ValueError(f"{names} without validation_data does nothing. Pass validation_data, or leave {names} out.")


def _check_validation_data(data) -> None:
    """Keras looks at it after the first epoch."""
    if not (isinstance(data, (str, os.PathLike, np.ndarray)) or inspect.isroutine(data) or inspect.isclass(data)):
        return
    hint = "Call it: validation_data=NAME()."
    if isinstance(data, np.ndarray):
        hint = "Pass the labels too: (images, labels)."
    elif isinstance(data, (str, os.PathLike)):
        hint = 'For an HDF5 file pass HDF5Sequence(PATH, "valid").'
    raise TypeError(
        "validation_data must be (images, labels), or give batches: an HDF5Sequence, another PyDataset, a Python "
        f"generator or a tf.data.Dataset; got {type(data).__name__}. {hint}"
    )


def _length_of(source) -> float | None:
    """Batches of a PyDataset, a ``tf.data.Dataset`` or the like; ``math.inf``: no end. None: nobody knows."""
    if isinstance(source, (tuple, list, dict)):
        return None
    if callable(getattr(source, "cardinality", None)):
        known = int(source.cardinality())
        return known if known >= 0 else math.inf if known == -1 else None  # tf.data: -1 has no end, -2 is not known
    if not hasattr(type(source), "num_batches"):
        return None
    if hasattr(type(source), "__len__"):
        length = type(source).__len__(source)  # len() has no words for a number that is not whole
        if not isinstance(length, (int, np.integer)):
            hint = "Round it: math.ceil(rows / batch_size)."
            raise TypeError(f"the length of {type(source).__name__} must be a whole number; got {length!r}. {hint}")
    try:
        length = source.num_batches
    except NotImplementedError:  # Keras says what to do
        return None
    return math.inf if length is None else length


def check_class_weight(
    class_weight, num_classes: int | None, class_names: Sequence[str] | None = None
) -> dict[int, float] | None:
    """``class_weight`` as a full dict {class number: weight}, which is the only form that Keras does not misread.

    Keras ignores string keys silently and counts missing classes as 1. ``num_classes`` None: not known, not checked.
    ``class_names`` turn names that were given as keys into the numbers of the suggestion.

    Raises
    ------
    TypeError
        Not a dict, or keys that are no integers: the sentence shows the right dict.
    ValueError
        Classes are missing or unknown, a weight is not a finite number of at least 0, or all of them are 0.
    """
    if class_weight is None:
        return None
    rule = "class_weight must be a dict {class number: weight} with every class"
    if not isinstance(class_weight, Mapping):
        shown = _suggestion(dict(enumerate(_as_list(class_weight))), num_classes)
        raise TypeError(f"{rule}; got {type(class_weight).__name__}. Pass class_weight={shown}.")
    if not all(isinstance(key, (int, np.integer)) and not isinstance(key, bool) for key in class_weight):
        shown = _suggestion(_int_keys(class_weight, class_names or ()), num_classes)
        raise TypeError(f"{rule}; got keys {list(class_weight)[:5]}. Pass class_weight={shown}.")
    weights = {int(key): value for key, value in class_weight.items()}
    for number, value in weights.items():
        if not _is_weight(value):
            raise ValueError(f"the weight of class {number} must be a finite number of at least 0; got {value!r}.")
    if num_classes is None and (not weights or min(weights) < 0):
        raise ValueError(f"{rule} from 0 on; got classes {sorted(weights)[:5]}.")
    if num_classes is not None and set(weights) != set(range(num_classes)):
        missing = sorted(set(range(num_classes)) - set(weights))
        unknown = sorted(set(weights) - set(range(num_classes)))
        got = " and ".join(
            f"{word} {numbers[:5]}" for word, numbers in (("lacks", missing), ("has unknown", unknown)) if numbers
        )
        raise ValueError(
            f"{rule} from 0 to {num_classes - 1}; it {got}. Pass class_weight={_suggestion(weights, num_classes)}."
        )
    if not any(weights.values()):
        raise ValueError("class_weight must not be 0 for every class: nothing would be learned.")
    return {number: float(weights[number]) for number in sorted(weights)}


def check_same_classes(generator, validation_data) -> None:
    """Raises ValueError when both name their classes, and one name has two numbers: accuracy would mean nothing."""
    names, others = map(class_names_of, (generator, validation_data))
    if not names or not others:
        return
    numbers = {name: number for number, name in enumerate(others)}
    for number, name in enumerate(names):
        if numbers.get(name, number) != number:
            raise ValueError(
                f"class {number} of generator is {name!r}, which is class {numbers[name]} of validation_data. Build "
                "both files from one list of classes, or both splits in one file: data_scripts.build_hdf5."
            )


def class_names_of(source) -> list[str] | None:
    """Names as the source lists them; other people's datasets may mean something else by this attribute."""
    names = getattr(source, "class_names", None)
    return list(names) if isinstance(names, (list, tuple, np.ndarray)) else None


def class_count(model, source) -> int | None:
    """Number of classes: as the sequence says, else as the model has outputs; None where neither can be known."""
    count = getattr(source, "num_classes", None)
    if not isinstance(count, (int, np.integer)):
        count = _output_width(model)
    if count == 1:  # one output for a number, or for a yes or no
        return 2 if _loss_names(model) & _BINARY_LOSSES else None
    return count


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
    outputs = _output_width(model) if losses and _computes_its_loss_by_keras(model) else None
    if not _fits(outputs, sequence, losses):
        raise ValueError(
            f"the model has {outputs} outputs and {name} has {sequence.num_classes} classes "
            f"({sequence.split_info.path}). Give the last layer {sequence.num_classes} units."
        )
    if sequence.label_kind == "sparse" and outputs not in {None, 1} and losses & _ELEMENTWISE_LOSSES:
        raise ValueError(
            f"the loss {_snake_case(max(losses & _ELEMENTWISE_LOSSES))} wants one number for each of the {outputs} "
            f'outputs, and {name} serves class numbers. Make the sequence with label_kind="onehot", or compile with '
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
    if outputs is not None and losses & _SPARSE_LOSSES:
        return outputs >= sequence.num_classes  # a head for more classes than there are here may be wanted
    return outputs in {None, sequence.num_classes}


def _computes_its_loss_by_keras(model) -> bool:
    """Whether labels and outputs meet in Keras' own step: elsewhere outputs may be anything, an embedding, say."""
    return all(_is_of_keras(getattr(type(model), name, None)) for name in ("train_step", "compute_loss"))


def _is_of_keras(value) -> bool:
    """Whether a function, method or property is written in Keras; nothing at all counts as Keras' own."""
    function = value.fget if isinstance(value, property) else value
    return function is None or getattr(function, "__module__", "").split(".")[0] in _KERAS


def _check_metrics(model, sequence, name: str) -> None:
    wrong = _metric_names(model) & (_ONEHOT_METRICS if sequence.label_kind == "sparse" else _SPARSE_METRICS)
    if wrong:
        wants, serves = ("one-hot labels", "class numbers") if sequence.label_kind == "sparse" else (
            "class numbers", "one-hot labels"
        )  # fmt: skip
        raise ValueError(
            f"the metric {_snake_case(max(wrong))} wants {wants}, and {name} serves {serves}: it would be wrong "
            'without a word. Compile with metrics=["accuracy"], which takes both.'
        )


def check_callbacks(model, callbacks) -> None:
    """Raises TypeError for what is no callback, and for one of the other Keras, which would fail in the middle."""
    own, other = ("tf_keras", "keras") if "tf_keras" in _packages(model) else ("keras", "tf_keras")
    for callback in callbacks:
        if inspect.isclass(callback) or not hasattr(callback, "set_model"):
            got = f"the class {callback.__name__}" if inspect.isclass(callback) else repr(callback)
            raise TypeError(f"callbacks must be callbacks, made with their arguments; got {got}.")
        if other in _packages(callback) and own not in _packages(callback):
            name = type(callback).__name__
            raise TypeError(
                f"{name} is a callback of {other} and the model is one of {own}. Take it from {own}.callbacks."
            )


def check_monitors(model, callbacks, has_validation: bool) -> None:
    """Compare what callbacks monitor, and put into names of files, with the names that this model reports.

    Raises
    ------
    ValueError
        A name that will never be reported: the sentence lists those that will.
    """
    if any(_may_write_logs(callback) for callback in callbacks):
        return
    names = _reported_names(model)
    if names is None:
        return
    known = [*names, *(f"val_{name}" for name in names)] if has_validation else names
    for callback in callbacks:
        for name, use, better in _wanted_names(callback):
            if name in known or name in {"learning_rate", "lr"}:
                continue
            near = [other for other in known if other.startswith(name)] or difflib.get_close_matches(name, known, n=1)
            advice = f"Use {better.format(near[0])}." if near else "Use one of these names."
            if name.startswith("val_") and not has_validation:
                verb = "monitor" if better.startswith("monitor") else "write"
                advice = f"Pass validation_data, or {verb} a name without val_."
            raise ValueError(
                f"{type(callback).__name__} {use}, which this model does not report; it reports {', '.join(known)}. "
                f"{advice}"
            )


def queue_bytes(queues: list[tuple[str, int, int]]) -> int:
    """What queues hold in memory at most; each is (name, batches held, bytes a batch)."""
    return sum(batches * size for _, batches, size in queues)


def warn_about_queue(queues: list[tuple[str, int, int]]) -> None:
    """Warn when batches made ahead may fill the memory; ``queues`` lists (name, batches held, bytes a batch)."""
    needed = queue_bytes(queues)
    free = free_memory().free
    if needed > QUEUE_SHARE * free:
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
    is_number = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    return is_number and 0 <= value <= _LARGEST_WEIGHT


def _int_keys(weights: Mapping, class_names: Sequence[str]) -> dict[int, object]:
    """The numbers that wrong keys stand for: "0" of JSON, b"0" of HDF5, 0.0 of np.unique(), names of classes."""
    found = {}
    for key, value in weights.items():
        words = (key.decode(errors="replace") if isinstance(key, bytes) else str(key)).strip()
        if words in class_names:
            found[list(class_names).index(words)] = value
        elif re.fullmatch(r"[0-9]+(\.0*)?", words):
            found[int(words.partition(".")[0])] = value
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


def _keras_name(entry) -> str | None:
    """Class or function of a serialized loss or metric that is Keras' own, None for what a user wrote.

    The name that an instance reports under says nothing: a class of the user may inherit it.
    """
    if isinstance(entry, dict) and entry.get("class_name") == "function":
        return _name_of(entry)
    if isinstance(entry, dict):
        return entry.get("class_name") if str(entry.get("module")).split(".")[0] in _KERAS else None
    return entry if isinstance(entry, str) else None


def _loss_names(model) -> set[str]:
    """The one loss of the model, if it is Keras' own."""
    compiled = getattr(model, "loss", None)
    if inspect.isfunction(compiled) and not _is_of_keras(compiled):
        return set()
    name = _keras_name(_compile_config(model).get("loss"))
    return {name} - {None}


def _metric_names(model) -> set[str]:
    """Names and classes of the metrics of a model, as far as Keras can say; a loss of the same name is none."""
    names = set()
    config = _compile_config(model)
    for group in (config.get("metrics"), config.get("weighted_metrics")):
        for entry in group if isinstance(group, (list, tuple)) else ():
            names.add(_keras_name(entry))
    return names - {None}


def _reported_names(model) -> list[str] | None:
    config = _compile_config(model)
    if not config or not all(_is_of_keras(getattr(type(model), name, None)) for name in _REPORTERS):
        return None
    if len(getattr(model, "outputs", None) or ()) != 1:
        return None
    names = ["loss"]
    for group, prefix in ((config.get("metrics"), ""), (config.get("weighted_metrics"), "weighted_")):
        if isinstance(group, dict):
            return None
        for entry in group or ():
            if isinstance(entry, dict) and _keras_name(entry) is None:
                return None  # a metric of the user may report several names
            name = _reported_name(entry, "tf_keras" in _packages(model))
            if name is None:
                return None
            name = f"{prefix}{name}" if name in names else name  # the same metric, with and without weights
            again = sum(re.fullmatch(rf"{re.escape(name)}(_\d+)?", other) is not None for other in names)
            names.append(f"{name}_{again}" if name in names else name)
    of_layers = (metric.name for metric in model.metrics if not hasattr(metric, "metrics"))
    return list(dict.fromkeys([*names, *of_layers]))


def _reported_name(entry, classic: bool) -> str | None:
    """Keras 3 reports a function in small letters; tf_keras a class that was asked for by name under its own name."""
    name = _name_of(entry)
    if classic:
        return None if isinstance(entry, str) and entry != entry.lower() else name
    is_function = isinstance(entry, dict) and isinstance(entry.get("config"), str)
    return _snake_case(name) if is_function else name


def _snake_case(name: str) -> str:
    """``plainF1`` -> ``plain_f1``, as Keras 3.15 does it."""
    name = re.sub("(.)([A-Z][a-z]+)", r"\1_\2", re.sub(r"\W+", "", name))
    return re.sub("([a-z])([A-Z])", r"\1_\2", name).lower()


def _may_write_logs(callback) -> bool:
    """Whether a callback may report names of its own: one of the user, or functions of the user."""
    unknown = type(callback).__module__.split(".")[0] not in _KNOWN_PACKAGES
    return unknown or not {"on_epoch_begin", "on_epoch_end"}.isdisjoint(vars(callback))


def _wanted_names(callback) -> Iterator[tuple[str, str, str]]:
    """Each name that a callback waits for: the name, the words for it, and how to write a better one."""
    kind = next((cls.__name__ for cls in type(callback).__mro__ if cls.__name__ in _WATCHERS), None)
    if kind is not None and (kind != "ModelCheckpoint" or callback.save_best_only):
        yield callback.monitor, f'monitors "{callback.monitor}"', 'monitor="{}"'
    if kind == "ModelCheckpoint":
        for name in _fields(callback.filepath):
            yield name, f"puts {{{name}}} into the name of its file", "{{{}}}"


def _fields(pattern: str) -> list[str]:
    """Names in the braces of a pattern such as ``"{epoch:02d}-{val_loss:.2f}.keras"``, without those of the count."""
    try:
        fields = [field for _, field, _, _ in string.Formatter().parse(str(pattern)) if field]
    except ValueError:  # no pattern; Keras says so
        return []
    names = [re.split(r"[.\[]", field)[0] for field in fields]
    return [name for name in names if name not in {"epoch", "batch"}]


def _packages(value) -> set[str]:
    """Top packages of the classes of an object."""
    return {cls.__module__.split(".")[0] for cls in type(value).__mro__}


def _single_shape(model, attribute: str) -> tuple | None:
    if not isinstance(getattr(type(model), attribute, None), property):  # an attribute of the user's own
        return None
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

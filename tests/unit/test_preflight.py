"""Questions before the first batch: the whole sentence of each refusal, and what is let through."""

from __future__ import annotations

import keras
import numpy as np
import pytest
from coded import make_coded_file

from helpers import HDF5Sequence, fit_generator, preflight

SHAPE = (16, 16, 3)

BAD_WEIGHTS = {
    "string keys": (
        {"0": 9.0, "1": 1.0, "2": 1.0},
        TypeError,
        "class_weight must be a dict {class number: weight} with every class; got keys ['0', '1', '2']. Pass "
        "class_weight={0: 9, 1: 1, 2: 1}.",
    ),
    "class names": (
        {"apple": 9.0},
        TypeError,
        "class_weight must be a dict {class number: weight} with every class; got keys ['apple']. Pass "
        "class_weight={0: 1, 1: 1, 2: 1}.",
    ),
    "array": (
        np.array([2.0, 1.0, 1.0]),
        TypeError,
        "class_weight must be a dict {class number: weight} with every class; got ndarray. Pass class_weight={0: 2, 1: "
        "1, 2: 1}.",
    ),
    "the word balanced": (
        "balanced",
        TypeError,
        "class_weight must be a dict {class number: weight} with every class; got str. Pass class_weight={0: 1, 1: 1, "
        "2: 1}.",
    ),
    "missing": (
        {0: 9.0, 2: 1.0},
        ValueError,
        "class_weight must be a dict {class number: weight} with every class from 0 to 2; it lacks [1]. Pass "
        "class_weight={0: 9, 1: 1, 2: 1}.",
    ),
    "counted from 1": (
        {1: 9.0, 2: 1.0, 3: 1.0},
        ValueError,
        "class_weight must be a dict {class number: weight} with every class from 0 to 2; it lacks [0] and has unknown "
        "[3]. Pass class_weight={0: 1, 1: 9, 2: 1}.",
    ),
    "infinite": (
        {0: 9.0, 1: float("inf"), 2: 1.0},
        ValueError,
        "the weight of class 1 must be a finite number of at least 0; got inf.",
    ),
    "negative": (
        {0: -1, 1: 1, 2: 1},
        ValueError,
        "the weight of class 0 must be a finite number of at least 0; got -1.",
    ),
    "no number": (
        {0: "9", 1: 1, 2: 1},
        ValueError,
        "the weight of class 0 must be a finite number of at least 0; got '9'.",
    ),
}


@pytest.mark.parametrize("case", BAD_WEIGHTS)
def test_class_weights_that_keras_would_misread_are_refused(case):
    """The right dict is shown."""
    weights, error, message = BAD_WEIGHTS[case]
    with pytest.raises(error) as caught:
        preflight.check_class_weight(weights, 3)
    assert str(caught.value) == message


def test_a_long_suggestion_is_cut():
    """101 classes do not fill the screen."""
    with pytest.raises(TypeError) as caught:
        preflight.check_class_weight([1.0] * 101, 101)
    assert str(caught.value).endswith("9: 1, 10: 1, ..., 100: 1}.")


def test_good_class_weights_become_plain_numbers_in_order():
    """NumPy keys and values, in any order, are taken."""
    weights = preflight.check_class_weight({np.int64(1): np.float32(2), 0: 1}, 2)
    assert weights == {0: 1.0, 1: 2.0}
    assert [type(value) for pair in weights.items() for value in pair] == [int, float, int, float]
    assert preflight.check_class_weight({0: 1, 7: 2}, None) == {0: 1.0, 7: 2.0}
    assert preflight.check_class_weight(None, 3) is None


def make_model(loss="categorical_crossentropy", outputs=5, shape=SHAPE, metrics=("accuracy",)):
    model = keras.Sequential([keras.Input(shape), keras.layers.Flatten(), keras.layers.Dense(outputs)])
    model.compile("sgd", loss, metrics=list(metrics))
    return model


BAD_LABELS = {
    "one-hot for a sparse loss": (
        {"loss": "sparse_categorical_crossentropy"},
        "onehot",
        "the loss sparse_categorical_crossentropy wants class numbers, and generator serves one-hot labels. Make the "
        'sequence with label_kind="sparse", or compile with loss="categorical_crossentropy".',
    ),
    "one-hot for a sparse loss object": (
        {"loss": keras.losses.SparseCategoricalCrossentropy(from_logits=True)},
        "onehot",
        "the loss sparse_categorical_crossentropy wants class numbers, and generator serves one-hot labels. Make the "
        'sequence with label_kind="sparse", or compile with loss="categorical_crossentropy".',
    ),
    "numbers for a one-hot loss function": (
        {"loss": keras.losses.categorical_crossentropy},
        "sparse",
        "the loss categorical_crossentropy wants one-hot labels, and generator serves class numbers. Make the sequence "
        'with label_kind="onehot", or compile with loss="sparse_categorical_crossentropy".',
    ),
    "numbers for a loss that compares number by number": (
        {"loss": "mse"},
        "sparse",
        "the loss mse wants one number for each of the 5 outputs, and generator serves class numbers. Make the "
        'sequence with label_kind="onehot", or compile with loss="sparse_categorical_crossentropy".',
    ),
    "numbers for the object of such a loss": (
        {"loss": keras.losses.BinaryCrossentropy()},
        "sparse",
        "the loss binary_crossentropy wants one number for each of the 5 outputs, and generator serves class numbers. "
        'Make the sequence with label_kind="onehot", or compile with loss="sparse_categorical_crossentropy".',
    ),
    "five classes for one output and a binary loss": (
        {"loss": "binary_crossentropy", "outputs": 1},
        "sparse",
        "the model has 1 outputs and generator has 5 classes ({path}). Give the last layer 5 units.",
    ),
    "five classes for one output and a sparse loss": (
        {"loss": "sparse_categorical_crossentropy", "outputs": 1},
        "sparse",
        "the model has 1 outputs and generator has 5 classes ({path}). Give the last layer 5 units.",
    ),
    "a metric of one-hot labels": (
        {"loss": "sparse_categorical_crossentropy", "metrics": ["categorical_accuracy"]},
        "sparse",
        "the metric categorical_accuracy wants one-hot labels, and generator serves class numbers: it would be wrong "
        'without a word. Compile with metrics=["accuracy"], which takes both.',
    ),
    "a metric of class numbers": (
        {"metrics": [keras.metrics.SparseTopKCategoricalAccuracy(2)]},
        "onehot",
        "the metric sparse_top_k_categorical_accuracy wants class numbers, and generator serves one-hot labels: it "
        'would be wrong without a word. Compile with metrics=["accuracy"], which takes both.',
    ),
    "too few outputs": (
        {"outputs": 4},
        "onehot",
        "the model has 4 outputs and generator has 5 classes ({path}). Give the last layer 5 units.",
    ),
    "too many outputs": (
        {"outputs": 101},
        "onehot",
        "the model has 101 outputs and generator has 5 classes ({path}). Give the last layer 5 units.",
    ),
    "too few outputs for the class numbers": (
        {"outputs": 4, "loss": "sparse_categorical_crossentropy"},
        "sparse",
        "the model has 4 outputs and generator has 5 classes ({path}). Give the last layer 5 units.",
    ),
    "another size": (
        {"shape": (32, 16, 3)},
        "onehot",
        "the model takes images of (32, 16, 3) and generator serves (16, 16, 3). Build the model with "
        "image_shape=(16, 16, 3), or crop in the augmentation.",
    ),
}


@pytest.mark.parametrize("case", BAD_LABELS)
def test_a_model_that_does_not_fit_the_data_is_refused(coded_file, case):
    """Kind of label, number of classes and size of image are compared, for names, functions and objects of losses."""
    options, label_kind, message = BAD_LABELS[case]
    with HDF5Sequence(coded_file, label_kind=label_kind) as sequence, pytest.raises(ValueError) as caught:  # noqa: PT011
        preflight.check_labels(make_model(**options), sequence)
    assert str(caught.value) == message.format(path=coded_file)


def test_a_model_that_fits_is_let_through(coded_file):
    """Also one of free image size, one that is not built yet, several yes-or-no outputs, one output for a number."""
    with HDF5Sequence(coded_file) as onehot, HDF5Sequence(coded_file, label_kind="sparse") as sparse:
        preflight.check_labels(make_model(metrics=["categorical_accuracy"]), onehot)
        preflight.check_labels(make_model("binary_crossentropy"), onehot)
        preflight.check_labels(make_model("mse", outputs=1, metrics=["mae"]), sparse)
        preflight.check_labels(
            make_model("sparse_categorical_crossentropy", metrics=["sparse_categorical_accuracy"]), sparse
        )
        preflight.check_labels(make_model("sparse_categorical_crossentropy"), sparse)
        free = keras.Sequential([
            keras.Input((None, None, 3)),
            keras.layers.GlobalMaxPooling2D(),
            keras.layers.Dense(5),
        ])
        preflight.check_labels(free, onehot)
        preflight.check_labels(keras.Sequential([keras.layers.Flatten(), keras.layers.Dense(7)]), onehot)


BAD_MONITORS = {
    "old name": (
        keras.callbacks.EarlyStopping("val_acc", mode="max"),
        True,
        'EarlyStopping monitors "val_acc", which this model does not report; it reports loss, accuracy, val_loss, '
        'val_accuracy. Use monitor="val_accuracy".',
    ),
    "no validation": (
        keras.callbacks.ReduceLROnPlateau(),
        False,
        'ReduceLROnPlateau monitors "val_loss", which this model does not report; it reports loss, accuracy. Pass '
        "validation_data, or monitor a name without val_.",
    ),
    "something else": (
        keras.callbacks.ModelCheckpoint("best.keras", "precision", save_best_only=True),
        False,
        'ModelCheckpoint monitors "precision", which this model does not report; it reports loss, accuracy. Use one of '
        "these names.",
    ),
}


@pytest.mark.parametrize("case", BAD_MONITORS)
def test_a_monitor_that_is_never_reported_is_refused(case):
    """The sentence lists the names that will be."""
    callback, has_validation, message = BAD_MONITORS[case]
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        preflight.check_monitors(make_model(), [callback], has_validation)
    assert str(caught.value) == message


class WritesLogs(keras.callbacks.Callback):
    """A callback of the user, which may add what it likes."""


def test_monitors_that_may_be_reported_are_let_through():
    """Metric objects by their name, functions by theirs, the learning rate, checkpoints of every epoch, own logs."""
    top = keras.metrics.TopKCategoricalAccuracy(2, name="top2")
    model = make_model(metrics=[top, keras.metrics.categorical_accuracy])
    watch = keras.callbacks.EarlyStopping
    good = [
        watch("top2"),
        watch("categorical_accuracy"),
        watch("learning_rate"),
        watch("val_top2"),
        keras.callbacks.ModelCheckpoint("epoch.keras", "val_acc"),
    ]
    preflight.check_monitors(model, good, has_validation=True)
    preflight.check_monitors(model, [WritesLogs(), watch("f1")], has_validation=False)
    two = keras.Model(inputs := keras.Input((4,)), [keras.layers.Dense(2)(inputs), keras.layers.Dense(2)(inputs)])
    two.compile("sgd", ["mse", "mse"])
    preflight.check_monitors(two, [watch("dense_loss")], has_validation=False)


def test_a_loss_that_keras_cannot_serialize_is_let_through(coded_file):
    """An own function is not guessed about."""
    with HDF5Sequence(coded_file) as sequence:
        preflight.check_labels(make_model(lambda true, predicted: keras.ops.mean(true - predicted)), sequence)


def test_two_classes_fit_one_output(tmp_path):
    """Yes or no by class numbers and binary cross-entropy, the usual form of two classes."""
    path = make_coded_file(tmp_path / "two.h5", class_names=("no", "yes"))
    with HDF5Sequence(path, label_kind="sparse") as sequence:
        preflight.check_labels(make_model("binary_crossentropy", outputs=1), sequence)


USELESS_VALIDATION = {
    "steps": ((3, 1), "validation_steps without validation_data does nothing. Pass validation_data, or leave "
              "validation_steps out."),
    "frequency": ((None, 2), "validation_freq without validation_data does nothing. Pass validation_data, or leave "
                  "validation_freq out."),
    "both": ((3, [1, 5]), "validation_steps and validation_freq without validation_data does nothing. Pass "
             "validation_data, or leave validation_steps and validation_freq out."),
}  # fmt: skip


@pytest.mark.parametrize("case", USELESS_VALIDATION)
def test_settings_of_a_validation_that_does_not_take_place_are_refused(case):
    """Keras drops them without a word."""
    settings, message = USELESS_VALIDATION[case]
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        preflight.check_validation(None, *settings)
    assert str(caught.value) == message
    preflight.check_validation(("images", "labels"), *settings)
    preflight.check_validation(None, None, 1)


NO_FLAGS = {
    "a number of workers": (4, "use_multiprocessing must be True or False; got 4. The number of workers goes to "
                            "workers=."),
    "a word": ("False", "use_multiprocessing must be True or False; got 'False'."),
    "nothing": (None, "use_multiprocessing must be True or False; got None."),
}  # fmt: skip


@pytest.mark.parametrize("case", NO_FLAGS)
def test_what_is_neither_true_nor_false_is_refused(case):
    """Python would take the word False for true."""
    value, message = NO_FLAGS[case]
    with pytest.raises(TypeError) as caught:
        preflight.checked_flag("use_multiprocessing", value)
    assert str(caught.value) == message


@pytest.mark.parametrize("value", [True, False, 0, 1, np.True_, np.False_])
def test_true_and_false_of_every_kind_are_taken(value):
    """As a plain bool."""
    assert preflight.checked_flag("use_multiprocessing", value) is bool(value)


REFUSED_CALLS = {
    "validation_steps alone": ({"validation_steps": 2}, ValueError, "^validation_steps without validation_data does"),
    "validation_freq alone": ({"validation_freq": 2}, ValueError, "^validation_freq without validation_data does"),
    "a number for a flag": ({"use_multiprocessing": 4}, TypeError, "^use_multiprocessing must be True or False; got 4"),
    "a name that is nowhere": ({"worker": 4}, TypeError, "worker"),
}


@pytest.mark.parametrize("case", REFUSED_CALLS)
def test_fit_generator_asks(coded_file, case):
    """What these questions refuse is refused before the first batch, and the sequence stays where it is."""
    arguments, error, message = REFUSED_CALLS[case]
    with HDF5Sequence(coded_file) as sequence:
        with pytest.raises(error, match=message):
            fit_generator(make_model(), sequence, verbose=0, **arguments)
        assert sequence.position == (0, 0)


def test_a_sequence_asks_too(coded_file):
    """The word False would start processes."""
    with pytest.raises(TypeError, match="^use_multiprocessing must be True or False; got 'False'.$"):
        HDF5Sequence(coded_file, use_multiprocessing="False")

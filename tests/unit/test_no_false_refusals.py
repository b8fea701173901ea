"""What Keras trains rightly is not refused before the first batch: own losses, metrics, monitors and sources."""

from __future__ import annotations

import keras
import numpy as np
import pytest

from helpers import HDF5Sequence, fit_generator, preflight

SHAPE, CLASSES = (16, 16, 3), 5


class OneHotInside(keras.losses.CategoricalCrossentropy):
    """Takes class numbers; reports under the name that it inherits."""

    def call(self, y_true, y_pred):
        return super().call(keras.ops.one_hot(keras.ops.cast(y_true, "int32"), CLASSES), y_pred)


def categorical_crossentropy(y_true, y_pred):
    """The user's, of that name: one-hots inside."""
    numbers = keras.ops.cast(keras.ops.reshape(y_true, (-1,)), "int32")
    return keras.losses.categorical_crossentropy(keras.ops.one_hot(numbers, CLASSES), y_pred)


def spread(y_true, y_pred):
    """A loss on an embedding: it does not compare outputs with classes."""
    return keras.ops.mean(keras.ops.square(y_pred), axis=-1) + 0 * keras.ops.cast(keras.ops.sum(y_true), "float32")


class TwoMetrics(keras.metrics.Metric):
    """Its result is a dict: two names in the logs."""

    def update_state(self, y_true, y_pred, sample_weight=None):
        del y_true, y_pred, sample_weight

    def result(self):
        return {"recall_0": 1.0, "recall_1": 2.0}


class OwnTestStep(keras.Sequential):
    """Reports a name of its own for validation."""

    def test_step(self, data):
        """What Keras calls a step of validation."""
        return {**super().test_step(data), "f1": 1.0}


class OwnLoss(keras.Sequential):
    """Learns without any label."""

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        del x, y, sample_weight, training
        return keras.ops.mean(keras.ops.square(y_pred))


def model_of(outputs=CLASSES, kind=keras.Sequential, activation="softmax"):
    """Not compiled."""
    layers = [
        keras.layers.Rescaling(1 / 255),
        keras.layers.Flatten(),
        keras.layers.Dense(outputs, activation=activation),
    ]
    return kind([keras.Input(SHAPE, dtype="uint8"), *layers])


def compiled(*arguments, **options):
    model = model_of(**options)
    model.compile("sgd", *arguments)
    return model


def watch(monitor):
    return keras.callbacks.EarlyStopping(monitor, mode="max", patience=9)


sparse_top = keras.metrics.SparseTopKCategoricalAccuracy
LET_THROUGH = {  # label kind, model, callbacks
    "an embedding": ("sparse", lambda: compiled(spread, outputs=16, activation=None), ()),
    "an embedding of one-hot labels": ("onehot", lambda: compiled(spread, outputs=16, activation=None), ()),
    "a loss of the model's own": ("sparse", lambda: compiled(None, outputs=16, kind=OwnLoss), ()),
    "a head for more classes": ("sparse", lambda: compiled("sparse_categorical_crossentropy", outputs=9), ()),
    "a loss that inherits its name": ("sparse", lambda: compiled(OneHotInside()), ()),
    "a loss function of a known name": ("sparse", lambda: compiled(categorical_crossentropy), ()),
    "a metric by another one's name": (
        "sparse",
        lambda: compiled("sparse_categorical_crossentropy", None, [sparse_top(3, name="top_k_categorical_accuracy")]),
        (),
    ),
    "the same metric twice": (
        "sparse",
        lambda: compiled("sparse_categorical_crossentropy", None, [sparse_top(2), sparse_top(3), sparse_top(4)]),
        (watch("sparse_top_k_categorical_accuracy_1"), watch("val_sparse_top_k_categorical_accuracy_2")),
    ),
    "a metric of two names": (
        "onehot",
        lambda: compiled("categorical_crossentropy", None, [TwoMetrics()]),
        (watch("val_recall_0"),),
    ),
    "a test step of one's own": (
        "onehot",
        lambda: compiled("categorical_crossentropy", kind=OwnTestStep),
        (watch("val_f1"),),
    ),
    "callbacks in lists": (
        "onehot",
        lambda: compiled("categorical_crossentropy"),
        ([watch("loss")], watch("val_loss")),
    ),
}


@pytest.mark.parametrize("case", LET_THROUGH)
def test_what_keras_trains_is_trained(coded_file, case):
    """A step and a validation, and every callback hears the name that it waits for."""
    label_kind, build, callbacks = LET_THROUGH[case]
    with (
        HDF5Sequence(coded_file, batch_size=8, label_kind=label_kind) as train,
        HDF5Sequence(coded_file, "valid", batch_size=40, label_kind=label_kind) as valid,
    ):
        history = fit_generator(build(), train, 2, validation_data=valid, callbacks=list(callbacks), verbose=0)
    flat = [one for part in callbacks for one in (part if isinstance(part, list) else [part])]
    assert {one.monitor for one in flat} <= set(history.history)


class Flow(keras.utils.PyDataset):
    """Like what the legacy ImageDataGenerator.flow gives: a PyDataset that can be asked for the next batch, too."""

    class_names = np.array(["a", "b", "c", "d", "e"])

    def num_classes(self):
        """Something else by that name."""

    def __len__(self):
        return 3

    def __getitem__(self, index):
        return np.zeros((4, *SHAPE), "uint8"), np.eye(CLASSES)[[0, 1, 2, 3]]

    def __next__(self):
        return self[0]


def test_a_dataset_that_is_an_iterator_too_needs_no_steps():
    """As training and as validation data; its odd attributes are not taken for names and numbers of classes."""
    weights = dict.fromkeys(range(CLASSES), 1.0)
    model = compiled("categorical_crossentropy")
    history = fit_generator(model, Flow(), validation_data=Flow(), class_weight=weights, verbose=0)
    assert len(history.history["val_loss"]) == 1


def test_the_classic_defaults_are_no_wish():
    """workers=1 and its like, written out, change nothing for a tf.data.Dataset."""
    import tensorflow as tf

    data = tf.data.Dataset.from_tensors((np.zeros((4, *SHAPE), "uint8"), np.eye(CLASSES)[:4]))
    model = compiled("categorical_crossentropy")
    settings = {"workers": 1, "use_multiprocessing": False, "max_queue_size": 10}
    assert len(fit_generator(model, data, verbose=0, **settings).epoch) == 1


def test_a_classic_flow_needs_no_steps_and_may_have_workers():
    """tf_keras: a Sequence that can be called like a generator is a Sequence."""
    tf_keras = pytest.importorskip("tf_keras")

    class ClassicFlow(tf_keras.utils.Sequence):
        __len__, __getitem__, __next__ = Flow.__len__, Flow.__getitem__, Flow.__next__

    layers = [tf_keras.layers.Flatten(input_shape=SHAPE), tf_keras.layers.Dense(CLASSES, activation="softmax")]
    model = tf_keras.Sequential(layers)
    model.compile("sgd", "categorical_crossentropy")
    history = fit_generator(model, ClassicFlow(), validation_data=ClassicFlow(), workers=2, verbose=0)
    assert set(history.history) == {"loss", "val_loss"}


def test_an_attribute_called_output_shape_is_not_the_models():
    """A subclassed model may keep what it likes under that name."""

    class Decoder(keras.Model):
        def __init__(self):
            super().__init__()
            self.output_shape = (64, 64)

    assert preflight.class_count(Decoder(), None) is None


def test_a_metric_of_a_layer_can_be_monitored():
    """Keras reports it under its own name, beside those of compile()."""

    class Watched(keras.layers.Layer):
        def __init__(self):
            super().__init__()
            self.activity = keras.metrics.Mean(name="activity")

        def call(self, x):
            self.activity.update_state(x)
            return x

    model = model_of(kind=lambda layers: keras.Sequential([*layers, Watched()]))
    model.compile("sgd", "categorical_crossentropy", metrics=["accuracy"])
    preflight.check_monitors(model, [watch("activity"), watch("val_activity")], has_validation=True)
    with pytest.raises(ValueError, match="it reports loss, accuracy, activity, val_loss, val_accuracy, val_activity"):
        preflight.check_monitors(model, [watch("f1")], has_validation=True)

"""Settings, data and names that Keras would drop, misread or find wrong after an epoch without a word.

``fit_generator`` does what was asked, or says before the first batch what it cannot do.
"""

from __future__ import annotations

import inspect
import json
import math
import random
import re
import threading
import time
import types
from pathlib import Path

import keras
import numpy as np
import pytest
from coded import CLASS_NAMES, class_of_row, make_coded_file, rows_of

from helpers import HDF5Sequence, fit_generator, preflight
from helpers.training import GeneratorRanDryError, QueueMemoryWarning, balanced_class_weight

CLASSES, SHAPE = len(CLASS_NAMES), (16, 16, 3)
callbacks = keras.callbacks
# Keras 3.15 converts TensorFlow variables by np.array(), for which NumPy 2 asks for a new signature.
saves_models = pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy:DeprecationWarning")


class Recorder(keras.Model):
    """Trains nothing; writes down the rows and sample weights of every batch it is given."""

    def __init__(self):
        inputs = keras.Input(SHAPE, dtype="uint8")
        outputs = keras.layers.Dense(CLASSES)(keras.layers.Flatten()(keras.layers.Rescaling(1 / 255)(inputs)))
        super().__init__(inputs, outputs)
        self.rows: list[list[int]] = []
        self.weights_given: list = []
        self.compile("sgd", "mse", run_eagerly=True)

    def train_step(self, data):
        images, _, weights = keras.utils.unpack_x_y_sample_weight(data)
        self.rows.append(rows_of(np.asarray(images)).tolist())
        self.weights_given.append(None if weights is None else np.asarray(weights).tolist())
        return {"loss": 1.0}


def make_model(loss="categorical_crossentropy", outputs=CLASSES, package=keras, metrics=("accuracy",), **options):
    """A model whose weights never change: what it reports can be computed from its answers."""
    layers = package.layers
    last = layers.Dense(outputs, activation="sigmoid" if outputs == 1 else "softmax")
    model = package.Sequential([
        layers.InputLayer(SHAPE, dtype="uint8"),
        layers.Rescaling(1 / 255),
        layers.Flatten(),
        last,
    ])
    size = math.prod(SHAPE) * outputs
    model.set_weights([np.linspace(-0.1, 0.1, size).reshape(-1, outputs)[::-1], np.zeros(outputs)])
    model.compile(package.optimizers.SGD(0.0), loss, metrics=list(metrics), run_eagerly=True, **options)
    return model


@pytest.fixture(scope="module")
def tf_keras():
    """Keras 2, where the classic call comes from."""
    return pytest.importorskip("tf_keras")


@pytest.fixture
def sequence(coded_file):
    """The 103 training images in batches of 8."""
    with HDF5Sequence(coded_file, batch_size=8) as sequence:
        yield sequence


@pytest.fixture
def valid(coded_file):
    """The 40 validation images in batches of 8."""
    with HDF5Sequence(coded_file, "valid", batch_size=8) as valid:
        yield valid


class OtherDataset(keras.utils.PyDataset):
    """Somebody else's dataset of 6 batches of two images."""

    length = 6

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        return np.zeros((2, *SHAPE), np.uint8), np.eye(CLASSES, dtype=np.float32)[[index % CLASSES] * 2]


class Endless(OtherDataset):
    """One without an end."""

    num_batches = None


def batches(count: int = 10**6):
    """A plain generator of batches of two images."""
    dataset = OtherDataset()
    for number in range(count):
        yield dataset[number]


def tf_dataset(count: int):
    """``count`` batches of two images as a ``tf.data.Dataset``."""
    tf = pytest.importorskip("tensorflow")
    images, labels = np.zeros((2 * count, *SHAPE), np.uint8), np.eye(CLASSES, dtype=np.float32)[[0] * 2 * count]
    return tf.data.Dataset.from_tensor_slices((images, labels)).batch(2)


def refused(error, *arguments, **settings) -> str:
    """The sentence with which a call is refused, without a batch having been trained."""
    model = settings.pop("model", None) or make_model()
    trained = callbacks.LambdaCallback(on_train_batch_end=lambda step, logs: pytest.fail("a batch was trained"))
    if "callbacks" not in settings and not type(model).__module__.startswith("tf_keras"):
        settings["callbacks"] = trained
    with pytest.raises(error) as caught:
        fit_generator(model, *arguments, verbose=0, **settings)
    return str(caught.value)


# -- arguments --------------------------------------------------------------------------------------------------------


def test_the_call_has_the_arguments_of_the_classic_one(tf_keras):
    """Same names in the same order, so that old calls by position mean the same."""
    ours = list(inspect.signature(fit_generator).parameters)
    classic = list(inspect.signature(tf_keras.Model.fit_generator).parameters)
    assert ours == ["model", *classic[1:]]


COUNTS = [
    "steps_per_epoch",
    "epochs",
    "initial_epoch",
    "workers",
    "max_queue_size",
    "validation_steps",
    "validation_freq",
]


@pytest.mark.parametrize("name", COUNTS)
@pytest.mark.parametrize("value", [True, np.float64(2.0), "2"])
def test_what_is_no_count_is_refused(sequence, valid, name, value):
    """workers=True would be one worker, and steps_per_epoch=True one step; np.floor() gives a float."""
    told = refused(TypeError, sequence, **{"validation_data": valid, name: value})
    assert told.startswith(f"{name} must be a whole number; got {value!r}.")
    assert sequence.position == (0, 0)


def test_counts_of_numpy_are_taken(sequence, valid):
    """As they come out of arithmetic with arrays."""
    counts = dict(zip(COUNTS, np.array([2, 3, 1, 2, 3, 2, 1]), strict=True))
    model = make_model()
    history = fit_generator(model, sequence, verbose=0, validation_data=valid, **counts)
    assert (history.epoch, len(history.history["val_loss"])) == ([1, 2], 2)
    assert sequence.position == (0, 6)


@pytest.mark.parametrize("name", ["batch_size", "seed", "workers", "max_queue_size"])
def test_true_is_no_count_of_a_sequence(coded_file, name):
    """batch_size=True would be batches of one image."""
    with pytest.raises(TypeError, match=f"^{name} must be a whole number; got True."):
        HDF5Sequence(coded_file, **{name: True})


@pytest.mark.parametrize("value", ["False", "no", None, 2])
def test_drop_last_is_yes_or_no(coded_file, value):
    """The word False would drop the last batch."""
    with pytest.raises(TypeError) as caught:
        HDF5Sequence(coded_file, drop_last=value)
    assert str(caught.value) == f"drop_last must be True or False; got {value!r}."


@pytest.mark.parametrize("source", ["dataset", "generator", "tf_keras"])
def test_shuffle_is_yes_or_no(request, source):
    """The word False would mix the batches of somebody else's dataset."""
    model = make_model(package=request.getfixturevalue("tf_keras")) if source == "tf_keras" else None
    data, steps = (batches(), 2) if source == "generator" else (OtherDataset(), None)
    told = refused(TypeError, data, steps, model=model, shuffle="False")
    assert told == "shuffle must be True or False; got 'False'."


@pytest.mark.parametrize(("initial_epoch", "epochs"), [(1, 1), (3, 3), (3, 2)])
def test_a_call_that_trains_no_epoch_is_refused(sequence, initial_epoch, epochs):
    """initial_epoch=1 beside the default of epochs=1 is the usual way to train nothing; the sentence knows the cure."""
    told = refused(ValueError, sequence, initial_epoch=initial_epoch, epochs=epochs)
    assert told == (
        f"epochs is the number of the last epoch, not how many more: initial_epoch={initial_epoch} with "
        f"epochs={epochs} trains nothing. Pass epochs={initial_epoch + epochs} for {epochs} more."
    )


@pytest.mark.parametrize("value", [[1, 3], (1, 3), {1, 3}, range(1, 4, 2), np.array([1, 3])], ids=str)
def test_epochs_to_validate_come_in_any_collection(sequence, valid, value):
    """Keras takes a list alone, and says so after the first epoch."""
    history = fit_generator(make_model(), sequence, 1, 3, verbose=0, validation_data=valid, validation_freq=value)
    assert (len(history.history["loss"]), len(history.history["val_loss"])) == (3, 2)


NEVER = {
    "no epoch": ([], ValueError, "validation_freq must name an epoch; got none. To train without validation leave it "
                 "out."),
    "epoch 0": ([0, 2], ValueError, "each epoch of validation_freq must be at least 1; got 0. Epochs count from 1."),
    "words": (["2"], TypeError, "each epoch of validation_freq must be a whole number; got '2'. Epochs count from 1."),
    "a word": ("12", TypeError, "validation_freq must be a whole number; got '12'. It is the number of epochs from one "
               "validation to the next, or a list of epochs."),
}  # fmt: skip


@pytest.mark.parametrize("case", NEVER)
def test_epochs_that_keras_would_never_meet_are_refused(sequence, valid, case):
    """Otherwise the training ends without one validation."""
    value, error, message = NEVER[case]
    assert refused(error, sequence, validation_data=valid, validation_freq=value) == message


# -- workers and queues -----------------------------------------------------------------------------------------------


class Meeting:
    """Threads that make batches wait here until ``count`` of them have come, so that each one is seen."""

    def __init__(self, count: int):
        self.names, self._count = set(), count
        self._deadline = time.monotonic() + 20

    def __call__(self):
        self.names.add(threading.current_thread().name)
        while len(self.names) < self._count and time.monotonic() < self._deadline:
            time.sleep(0.005)


def test_as_many_threads_work_as_were_asked_for(coded_file):
    """Not one, because somebody lost the number on its way."""
    meeting = Meeting(3)

    def meet(image, rng):
        meeting()
        return image

    with HDF5Sequence(coded_file, batch_size=8) as sequence:
        sequence.source.augment = meet  # not tried in this thread first
        fit_generator(make_model(), sequence, verbose=0, workers=3)
    assert meeting.names == {"helpers-worker-1", "helpers-worker-2", "helpers-worker-3"}


def test_a_dataset_without_its_constructor_works_with_all_its_workers():
    """A PyDataset that forgot super().__init__(): Keras warns, and the number asked for is the number at work."""
    meeting = Meeting(3)

    class Forgot(OtherDataset):
        def __init__(self):
            pass

        def __getitem__(self, index):
            if threading.current_thread() is not threading.main_thread():  # where Keras looks at the first batches
                meeting()
            return super().__getitem__(index)

    with pytest.warns(UserWarning, match="should call `super"):
        fit_generator(make_model(), Forgot(), verbose=0, workers=3, shuffle=False)
    assert len(meeting.names) == 3


BAD_QUEUES = {0: "at least 1; got 0", -5: "at least 1; got -5", 2.5: "a whole number; got 2.5", "10": "a whole number"}


@pytest.mark.parametrize("size", BAD_QUEUES)
def test_a_queue_of_no_size_is_refused(coded_file, sequence, size):
    """0 means endless in other queues; asked of the call and of the sequence."""
    with pytest.raises((ValueError, TypeError)) as caught:
        HDF5Sequence(coded_file, max_queue_size=size)
    assert str(caught.value).startswith(f"max_queue_size must be {BAD_QUEUES[size]}")
    assert refused(type(caught.value), sequence, max_queue_size=size) == str(caught.value)


def test_a_queue_is_counted_in_bytes_of_uint8(tmp_path):
    """32 images of 299 x 299 are 8.6 MB as bytes, 34 MB as float32: four times as many fit into the same memory."""
    path = make_coded_file(tmp_path / "large.h5", rows={"train": 2}, shape=(299, 299, 3))
    with HDF5Sequence(path, batch_size=32) as sequence:
        assert sequence.source.batch_bytes == 32 * (299 * 299 * 3 + 4 * CLASSES)
        assert sequence[0][0].dtype == np.uint8


def test_the_warning_counts_training_and_validation(sequence, valid, monkeypatch):
    """Both hold batches at the same time; a queue that fits is not warned about."""
    fit_generator(make_model(), sequence, 1, verbose=0, validation_data=valid)  # warnings are errors here
    monkeypatch.setattr("psutil.virtual_memory", lambda: types.SimpleNamespace(available=250_000))
    with pytest.warns(QueueMemoryWarning) as caught:
        fit_generator(make_model(), sequence, 1, verbose=0, validation_data=valid, max_queue_size=2)
    told = str(caught[0].message)
    assert "the queue of training batches holds up to 9 batches" in told
    assert "the queue of validation batches holds up to 17 batches" in told
    assert told.endswith("Lower max_queue_size, workers or batch_size.")


# -- data -------------------------------------------------------------------------------------------------------------


class HalfLength(OtherDataset):
    """Its length comes from a division."""

    length = np.floor(6.5)


class Empty(OtherDataset):
    """A file of too few rows for one batch."""

    length = 0


ODD_LENGTHS = {
    "a float": (HalfLength, TypeError, "the length of HalfLength must be a whole number; got np.float64(6.0). Round "
                "it: math.ceil(rows / batch_size)."),
    "no batch": (Empty, ValueError, "{} has no batches: the length of this Empty is 0."),
    "no end": (Endless, ValueError, "{} has no end: pass {}, the number of batches to take of it each time."),
    "no batch of tf.data": (lambda: tf_dataset(0), ValueError, "{} has no batches: the length of this _BatchDataset is "
                            "0."),
    "no end of tf.data": (lambda: tf_dataset(2).repeat(), ValueError, "{} has no end: pass {}, the number of batches "
                          "to take of it each time."),
}  # fmt: skip


@pytest.mark.parametrize("case", ODD_LENGTHS)
@pytest.mark.parametrize("role", ["generator", "validation_data"])
def test_data_of_an_impossible_length_is_refused(sequence, case, role):
    """No epoch without end, none without a batch, and no error of Python about its own insides."""
    make, error, message = ODD_LENGTHS[case]
    told = refused(error, make()) if role == "generator" else refused(error, sequence, validation_data=make())
    assert told == message.format(role, "steps_per_epoch" if role == "generator" else "validation_steps")


@pytest.mark.parametrize("make", [Endless, lambda: tf_dataset(2).repeat()], ids=["PyDataset", "tf.data"])
def test_data_without_end_is_trained_and_validated_in_steps(make):
    """With the number of steps it is as good as any."""
    history = fit_generator(make_model(), make(), 3, 2, verbose=0, validation_data=make(), validation_steps=2)
    assert len(history.history["val_loss"]) == 2


NO_VALIDATION = {
    "a path": ("food.h5", 'str. For an HDF5 file pass HDF5Sequence(PATH, "valid").'),
    "a generator function": (batches, "function. Call it: validation_data=NAME()."),
    "a class": (OtherDataset, "type. Call it: validation_data=NAME()."),
    "images alone": (np.zeros((4, *SHAPE), np.uint8), "ndarray. Pass the labels too: (images, labels)."),
}


@pytest.mark.parametrize("case", NO_VALIDATION)
def test_what_gives_no_validation_is_refused(sequence, case):
    """Keras looks at it when the first epoch is over."""
    data, got = NO_VALIDATION[case]
    assert refused(TypeError, sequence, validation_data=data) == (
        "validation_data must be (images, labels), or give batches: an HDF5Sequence, another PyDataset, a Python "
        f"generator or a tf.data.Dataset; got {got}"
    )


@pytest.mark.parametrize("role", ["generator", "validation_data"])
@pytest.mark.parametrize("cut", [(2, 1), (1, 2), (2, 2, 1)], ids=str)
def test_images_without_their_labels_are_refused(sequence, role, cut):
    """Of two images and one label Keras makes two images of one class, without a word."""

    def uneven():
        images, labels = OtherDataset()[0]
        while True:
            yield tuple(part[:count] for part, count in zip((images, labels, np.ones(2)), cut, strict=False))

    source, more = uneven(), {}
    if role == "validation_data":
        source, more = sequence, {"validation_data": uneven(), "validation_steps": 1}
    with pytest.raises(ValueError) as caught:  # noqa: PT011 (the whole sentence is compared)
        fit_generator(make_model(), source, 1, verbose=0, **more)
    assert str(caught.value) == (
        f"images, labels and sample weights of a batch must be equally many; {role} gave {list(cut)}. Cut all of them "
        "by the same rows."
    )


NO_PAIRS = {
    "three parts": (lambda batch: (*batch, np.ones(2)), "3 parts"),
    "images alone": (lambda batch: batch[0], "ndarray"),
}


@pytest.mark.parametrize("case", NO_PAIRS)
def test_class_weights_for_batches_that_are_no_pairs_are_refused(case):
    """Two sets of weights, or no labels to weight by."""
    change, got = NO_PAIRS[case]
    told = refused(ValueError, map(change, batches()), 2, class_weight=dict.fromkeys(range(CLASSES), 1.0))
    assert told == (
        f"class_weight needs batches of (images, labels); this generator yields {got}. Multiply the weights into its "
        "sample weights."
    )


@pytest.mark.parametrize("count", [0, 1, 5])
@pytest.mark.parametrize("package", ["keras", "tf_keras"])
def test_a_generator_that_runs_dry_leaves_no_empty_epoch(package, count):
    """On either Keras, before, in and after the first epoch: an error, and no epoch of loss 0 for a checkpoint."""
    model, losses = make_model(package=pytest.importorskip(package)), []
    record = pytest.importorskip(package).callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: losses.append(logs["loss"])
    )
    with pytest.raises(GeneratorRanDryError, match=f"^the generator ended after {count} of 6 batches "):
        fit_generator(model, batches(count), 3, 2, verbose=0, callbacks=[record])
    assert len(losses) == count // 3
    assert all(loss > 0 for loss in losses)


@pytest.mark.parametrize(
    "settings", [{"workers": 2}, {"use_multiprocessing": True}, {"workers": 4, "use_multiprocessing": True}], ids=str
)
@pytest.mark.parametrize("package", ["keras", "tf_keras"])
def test_a_generator_for_several_workers_is_refused(package, settings):
    """On either Keras: threads would collide in it, processes would each repeat all of it."""
    told = refused(ValueError, batches(), 3, model=make_model(package=pytest.importorskip(package)), **settings)
    assert told.startswith("a Python generator can be read by one worker only: threads would collide in it")


# -- order and epochs -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("augment", [None, lambda image, rng: rng.permuted(image)], ids=["plain", "augmented"])
def test_batches_come_the_same_in_any_order_and_again(coded_file, augment):
    """No count of calls inside: an epoch read backwards, by chance and twice gives the batches of one read in order."""
    with HDF5Sequence(coded_file, batch_size=10, augment=augment) as sequence:
        sequence.set_position(3)
        in_order = [images.tobytes() + labels.tobytes() for images, labels in sequence]
        asked = [*range(11), *range(10, -1, -1), *np.random.default_rng(0).permutation(11)]
        for index in asked:
            images, labels = sequence[index]
            assert images.tobytes() + labels.tobytes() == in_order[index]
            assert len(images) == len(labels) == (3 if index == 10 else 10)
    assert len(set(in_order)) == 11


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("batch_size", [1, 10, 102, 103, 104])
def test_lengths_are_whole_and_count_what_is_served(coded_file, batch_size, drop_last):
    """Floor with drop_last, ceiling without; where nothing would be left the sentence has all the numbers."""
    if batch_size == 104 and drop_last:
        with pytest.raises(ValueError, match=r"^no batch is left of 103 rows with batch_size=104, .* drop_last=True\."):
            HDF5Sequence(coded_file, batch_size=batch_size, drop_last=drop_last)
        return
    with HDF5Sequence(coded_file, batch_size=batch_size, drop_last=drop_last) as sequence:
        served = [len(labels) for _, labels in sequence]
        assert type(len(sequence)) is int
        assert len(sequence) == len(served) == (103 // batch_size if drop_last else math.ceil(103 / batch_size))
        assert sum(served) == (103 // batch_size * batch_size if drop_last else 103)


def test_a_slow_on_epoch_begin_changes_no_epoch(coded_file):
    """Keras' workers start before that hook has ended; each epoch of plain fit still has the order of its own pass."""

    class Slow(HDF5Sequence):
        def on_epoch_begin(self):
            time.sleep(0.2)
            super().on_epoch_begin()

    model = Recorder()
    with Slow(coded_file, batch_size=26, workers=2) as sequence:
        model.fit(sequence, epochs=3, verbose=0, shuffle=False)
        assert model.rows == [sequence.rows_of(epoch, batch).tolist() for epoch in range(3) for batch in range(4)]


def test_rows_are_mixed_and_not_the_batches_alone(coded_file):
    """Rows sorted by class, two epochs: batches of several classes, in epochs of other batches, by the seed alone."""
    rows = np.argsort(class_of_row(np.arange(103)), kind="stable")
    epochs = []
    for seed in (1, 2):
        random.seed(seed)
        model = Recorder()
        with HDF5Sequence(coded_file, images="train_img", labels="train_labels", rows=rows, batch_size=10) as sequence:
            fit_generator(model, sequence, epochs=2, verbose=0)
        epochs.append(model.rows)
        for epoch in (model.rows[:11], model.rows[11:]):
            assert min(len(set(class_of_row(batch))) for batch in epoch[:10]) >= 3
            assert sorted(sum(epoch, [])) == list(range(103))
        assert not {frozenset(batch) for batch in model.rows[:11]} & {frozenset(batch) for batch in model.rows[11:]}
    assert epochs[0] == epochs[1]


@saves_models
def test_a_run_that_was_cut_off_goes_on_in_the_stream(coded_file, tmp_path):
    """BackupAndRestore: the second run trains what the first one had not finished, epoch by epoch."""
    steps = []

    def cut(step, logs):
        steps.append(step)
        if len(steps) == 8:
            raise InterruptedError("power cut")

    first, second = Recorder(), Recorder()
    stop = callbacks.LambdaCallback(on_train_batch_end=cut)
    both = [callbacks.BackupAndRestore(tmp_path / "backup"), stop]
    with HDF5Sequence(coded_file, batch_size=8) as sequence, pytest.raises(InterruptedError):
        fit_generator(first, sequence, 3, epochs=4, verbose=0, callbacks=both)
    backup = callbacks.BackupAndRestore(tmp_path / "backup")
    with HDF5Sequence(coded_file, batch_size=8) as sequence:
        fit_generator(second, sequence, 3, epochs=4, verbose=0, callbacks=backup)
        stream = [sequence.rows_of(0, batch).tolist() for batch in range(12)]
    assert first.rows == stream[:8]
    assert second.rows == stream[6:]


# -- numbers ----------------------------------------------------------------------------------------------------------


def loss_by_hand(model, sequence, weights: dict | None = None) -> float:
    """Mean over all images of an epoch of their own cross-entropies, each times the weight of its class."""
    images, labels = (np.concatenate(part) for part in zip(*sequence, strict=True))
    numbers = labels.argmax(axis=1) if labels.ndim == 2 else labels
    chosen = model.predict(images, verbose=0)[np.arange(len(numbers)), numbers]
    return float(np.mean([-np.log(p) * (weights or {}).get(n, 1.0) for p, n in zip(chosen, numbers, strict=True)]))


WEIGHTS = {number: number + 1.0 for number in range(CLASSES)}


@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["equal", "weighted"])
@pytest.mark.parametrize("kind", ["onehot", "sparse", "generator", "tf_keras"])
def test_the_loss_of_an_epoch_is_the_mean_over_its_images(coded_file, request, kind, weights):
    """Of 103 images in batches of 10 the last three count no more than others; class weights reach each of them."""
    package = request.getfixturevalue("tf_keras") if kind == "tf_keras" else keras
    label_kind = "sparse" if kind == "sparse" else "onehot"
    model = make_model(
        "sparse_categorical_crossentropy" if kind == "sparse" else "categorical_crossentropy", package=package
    )
    with HDF5Sequence(coded_file, batch_size=10, label_kind=label_kind) as sequence:
        expected = loss_by_hand(model, sequence, weights)
        data, steps = (iter(sequence), 11) if kind == "generator" else (sequence, None)
        history = fit_generator(model, data, steps, verbose=0, class_weight=weights)
    assert history.history["loss"][0] == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("package", ["keras", "tf_keras"])
def test_numbers_of_a_batch_are_its_own(package):
    """train_on_batch and test_on_batch: loss and metric of right, wrong and right batches jump as they should."""
    package = pytest.importorskip(package)
    identity = package.initializers.Identity(9)
    layers = [
        package.layers.InputLayer((3,)),
        package.layers.Dense(3, activation="softmax", kernel_initializer=identity),
    ]
    model = package.Sequential(layers)
    model.compile(package.optimizers.SGD(0.0), "categorical_crossentropy", metrics=["accuracy"])
    inputs = np.eye(3, dtype=np.float32)
    for method in (model.train_on_batch, model.test_on_batch):
        told = [method(inputs, np.roll(inputs, shift, axis=0)) for shift in (0, 1, 0)]
        np.testing.assert_allclose(told, [(0, 1), (9, 0), (0, 1)], atol=0.01)


# -- names ------------------------------------------------------------------------------------------------------------


def plainScore(true, predicted):  # noqa: N802 (Keras 3 reports it in small letters)
    """A metric of somebody who writes names like this."""
    return true[..., 0] * 0.0 + predicted[..., 0]


METRICS = {
    "none": [],
    "short": ["acc"],
    "two": ["accuracy", "mse"],
    "a class by name": ["CategoricalAccuracy"],
    "an own function": [plainScore],
    "with and without weights": (["accuracy", "mse"], ["accuracy"]),
}


@pytest.mark.parametrize("case", METRICS)
@pytest.mark.parametrize("package", ["keras", "tf_keras"])
def test_the_names_to_monitor_are_those_that_are_reported(package, case):
    """A guess that differs from what Keras does would refuse what is right, or let through what never comes."""
    package, metrics = pytest.importorskip(package), METRICS[case]
    plain, weighted = metrics if isinstance(metrics, tuple) else (metrics, [])
    model = make_model(package=package, metrics=plain, weighted_metrics=weighted)
    known = preflight._reported_names(model)
    images, labels = OtherDataset()[0]
    reported = model.fit(images, labels, verbose=0).history
    assert known is None or sorted(known) == sorted(reported)
    assert known is not None or (package is not keras and case == "a class by name")


def test_metric_objects_are_reported_under_their_names():
    """Two of a kind, one with a name of its own, and a loss as metric."""
    kinds = keras.metrics
    objects = [kinds.AUC(), kinds.AUC(curve="PR"), kinds.AUC(name="mine"), keras.losses.MeanSquaredError()]
    model = make_model(metrics=objects)
    reported = model.fit(*OtherDataset()[0], verbose=0).history
    assert sorted(preflight._reported_names(model)) == sorted(reported)


FILE_NAMES = {
    "an old name": ("{epoch:02d}-{acc:.2f}.keras", "puts {acc} into the name of its file, which this model does not "
                    "report; it reports loss, accuracy. Use {accuracy}."),
    "no validation": ("{val_loss:.2f}.keras", "puts {val_loss} into the name of its file, which this model does not "
                      "report; it reports loss, accuracy. Pass validation_data, or write a name without val_."),
}  # fmt: skip


@pytest.mark.parametrize("case", FILE_NAMES)
def test_a_file_name_that_cannot_be_filled_in_is_refused(sequence, case):
    """Keras would train an epoch, and fail when it saves."""
    pattern, message = FILE_NAMES[case]
    assert refused(ValueError, sequence, callbacks=callbacks.ModelCheckpoint(pattern)) == f"ModelCheckpoint {message}"


@saves_models
def test_a_file_name_that_can_be_filled_in_is_saved(sequence, valid, tmp_path):
    """Counts, reported names and their parts."""
    pattern = str(tmp_path / "{epoch:02d}-{val_accuracy:.0f}-{loss.real:.0f}.weights.h5")
    save = callbacks.ModelCheckpoint(pattern, save_weights_only=True)
    fit_generator(make_model(), sequence, 1, 2, verbose=0, validation_data=valid, callbacks=save)
    assert sorted(path.name[:2] for path in tmp_path.glob("*-*.weights.h5")) == ["01", "02"]


def test_the_lessons_save_models_under_names_that_keras_takes():
    """A learner copies them: .keras, unless the cell is there to show the error."""
    sources = (Path(__file__).parents[2] / "notebooks" / "_src").glob("[0-9]*.py")
    cells = [cell for path in sources for cell in path.read_text(encoding="utf-8").split("\n# %%") if cell[:1] != " ["]
    saved = [
        name
        for cell in cells
        if "fails_with(" not in cell
        for name in re.findall(r'ModelCheckpoint\([^)]*?"([^"]+)"', cell)
    ]
    assert len(saved) >= 2
    assert all(name.endswith(".keras") for name in saved)


@pytest.mark.parametrize("kind", [callbacks.EarlyStopping, callbacks.ReduceLROnPlateau, callbacks.ModelCheckpoint])
def test_every_callback_that_watches_is_asked(sequence, valid, kind):
    """An old name is refused for each of them; the right one is let through."""
    first = ["best.keras"] if kind is callbacks.ModelCheckpoint else []
    more = {"save_best_only": True} if first else {}
    told = refused(ValueError, sequence, validation_data=valid, callbacks=[kind(*first, monitor="val_acc", **more)])
    assert told.endswith('it reports loss, accuracy, val_loss, val_accuracy. Use monitor="val_accuracy".')
    preflight.check_monitors(make_model(), [kind(*first, monitor="val_accuracy", **more)], has_validation=True)


def test_a_function_that_reports_more_is_let_through(sequence):
    """A LambdaCallback may add a name to the logs, and another callback stop by it."""
    adds = callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: logs.update(f1=0.5))
    stops = callbacks.EarlyStopping("f1", mode="max", patience=1)
    history = fit_generator(make_model(), sequence, 1, 5, verbose=0, callbacks=[adds, stops])
    assert history.history["f1"] == [0.5, 0.5]


def test_a_callback_of_the_other_keras_is_refused(sequence, tf_keras):
    """tf_keras' ReduceLROnPlateau fails on a Keras 3 model when the first epoch is over; the reverse at once."""
    told = refused(TypeError, sequence, callbacks=[tf_keras.callbacks.ReduceLROnPlateau("loss")])
    assert told == (
        "ReduceLROnPlateau is a callback of tf_keras and the model is one of keras. Take it from keras.callbacks."
    )
    told = refused(TypeError, sequence, model=make_model(package=tf_keras), callbacks=[callbacks.EarlyStopping("loss")])
    assert told == (
        "EarlyStopping is a callback of keras and the model is one of tf_keras. Take it from tf_keras.callbacks."
    )


@pytest.mark.parametrize(("value", "got"), [(callbacks.EarlyStopping, "the class EarlyStopping"), ("early", "'early'")])
def test_what_is_no_callback_is_refused(sequence, value, got):
    """A class without its brackets, a name."""
    told = refused(TypeError, sequence, callbacks=[value])
    assert told == f"callbacks must be callbacks, made with their arguments; got {got}."


# -- class weights ----------------------------------------------------------------------------------------------------

RULE = "class_weight must be a dict {class number: weight} with every class"
ODD_WEIGHTS = {
    "keys of np.unique": ({0.0: 9.0, 1.0: 2.0}, 2, TypeError, f"{RULE}; got keys [0.0, 1.0]. Pass class_weight={{0: 9, "
                          "1: 2}."),
    "keys of JSON": (json.loads('{"0": 9, "1": 2}'), 2, TypeError, f"{RULE}; got keys ['0', '1']. Pass "
                     "class_weight={0: 9, 1: 2}."),
    "keys of HDF5": ({b"0": 9.0, b"1": 2.0}, 2, TypeError, f"{RULE}; got keys [b'0', b'1']. Pass class_weight={{0: 9, "
                     "1: 2}."),
    "a digit that is none": ({"²": 9.0}, 2, TypeError, f"{RULE}; got keys ['²']. Pass class_weight={{0: 1, 1: 1}}."),
    "nothing": ({}, 2, ValueError, f"{RULE} from 0 to 1; it lacks [0, 1]. Pass class_weight={{0: 1, 1: 1}}."),
    "nothing, and unknown classes": ({}, None, ValueError, f"{RULE} from 0 on; got classes []."),
    "below 0, and unknown classes": ({-1: 1.0, 0: 1.0}, None, ValueError, f"{RULE} from 0 on; got classes [-1, 0]."),
    "all zero": ({0: 0, 1: 0.0}, 2, ValueError, "class_weight must not be 0 for every class: nothing would be "
                 "learned."),
    "true": ({0: True, 1: 1}, 2, ValueError, "the weight of class 0 must be a finite number of at least 0; got True."),
    "complex": ({0: 1j, 1: 1}, 2, ValueError, "the weight of class 0 must be a finite number of at least 0; got 1j."),
    "no number": ({0: np.float32("nan"), 1: 1}, 2, ValueError, "the weight of class 0 must be a finite number of at "
                  "least 0; got np.float32(nan)."),
    "infinite as float32": ({0: 1, 1: 1e39}, 2, ValueError, "the weight of class 1 must be a finite number of at least "
                            "0; got 1e+39."),
}  # fmt: skip


@pytest.mark.parametrize("case", ODD_WEIGHTS)
def test_weights_that_would_count_as_others_are_refused(case):
    """The suggestion keeps the weights that can be told."""
    weights, classes, error, message = ODD_WEIGHTS[case]
    with pytest.raises(error) as caught:
        preflight.check_class_weight(weights, classes)
    assert str(caught.value) == message


def test_names_of_classes_are_turned_into_their_numbers(sequence):
    """The dict that is suggested has the weights of the one that was given."""
    told = refused(TypeError, sequence, class_weight={"egg": 9.0, "bread": 2})
    assert told.endswith("Pass class_weight={0: 1, 1: 2, 2: 1, 3: 1, 4: 9}.")


def test_weights_of_any_mapping_are_taken(sequence):
    """A read-only dict is as good as a dict, and so is what the kit counts itself."""
    frozen = types.MappingProxyType(balanced_class_weight(sequence))
    model = Recorder()
    fit_generator(model, sequence, 1, verbose=0, class_weight=frozen)
    expected = [frozen[number] for number in sequence.batch(0, 0)[1].argmax(axis=1)]
    assert model.weights_given[0] == pytest.approx(expected)


def test_a_yes_or_no_has_two_classes():
    """Of one output with a binary loss the weight of one class would leave the other at 1, without a word."""
    model = make_model("binary_crossentropy", outputs=1)
    told = refused(ValueError, OtherDataset(), model=model, class_weight={1: 9.0})
    assert told == f"{RULE} from 0 to 1; it lacks [0]. Pass class_weight={{0: 1, 1: 9}}."

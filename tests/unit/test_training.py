"""fit_generator: the Steps rule on both Keras, who decides, and how it ends."""

from __future__ import annotations

import logging
import re
import threading
import time

import keras
import numpy as np
import pytest
from children import KillsItselfOnRow, RaisesOnRow, SleepsOnRow
from coded import rows_of

from helpers import HDF5Sequence, fit_generator
from helpers.training import (
    GeneratorRanDryError,
    QueueMemoryWarning,
    StepsWarning,
    WorkerDiedError,
    WorkerStalledError,
    balanced_class_weight,
)

CLASSES = 5
SHAPE = (16, 16, 3)


class Recorder(keras.Model):
    """Trains nothing; writes down the rows of every batch it is given, and the sample weights."""

    def __init__(self, loss="categorical_crossentropy"):
        inputs = keras.Input(SHAPE, dtype="uint8")
        outputs = keras.layers.Dense(CLASSES)(keras.layers.Flatten()(keras.layers.Rescaling(1 / 255)(inputs)))
        super().__init__(inputs, outputs)
        self.rows: list[list[int]] = []
        self.weights_given: list[np.ndarray] = []
        self.compile("sgd", loss, run_eagerly=True)

    def train_step(self, data):
        images, _, weights = keras.utils.unpack_x_y_sample_weight(data)
        self.rows.append(rows_of(np.asarray(images)).tolist())
        self.weights_given.append(None if weights is None else np.asarray(weights))
        return {"loss": 1.0}


def make_model(package=keras, seed: int = 1):
    """A small compiled model of ``package`` (keras or tf_keras) whose weights come from ``seed``."""
    layers = package.layers
    model = package.Sequential([
        layers.InputLayer(SHAPE, dtype="uint8"),
        layers.Rescaling(1 / 127.5, offset=-1.0),
        layers.Conv2D(4, 3, activation="relu"),
        layers.Flatten(),
        layers.Dense(CLASSES, activation="softmax"),
    ])
    rng = np.random.default_rng(seed)
    model.set_weights([rng.normal(0, 0.05, weight.shape).astype(np.float32) for weight in model.get_weights()])
    model.compile(package.optimizers.SGD(0.05), "categorical_crossentropy", metrics=["accuracy"])
    return model


def stream(sequence, first: int, count: int) -> list[list[int]]:
    """Rows of items ``first .. first + count - 1`` of the endless stream, by the rule in DESIGN."""
    return [sequence.rows_of(*divmod(item, len(sequence))).tolist() for item in range(first, first + count)]


def after_step(function):
    """A callback that calls ``function(step)`` after each step."""
    return keras.callbacks.LambdaCallback(on_train_batch_end=lambda step, logs: function(step))  # noqa: ARG005


def endless_batches():
    """A plain generator of coded batches of one image."""
    while True:
        yield np.zeros((1, *SHAPE), np.uint8), np.eye(CLASSES, dtype=np.float32)[:1]


@pytest.mark.parametrize("workers", [0, 1, 2])
@pytest.mark.parametrize(
    ("length", "steps"),
    [(1, 1), (1, 3), (2, 1), (2, 2), (2, 5), (3, 2), (3, 3), (3, 7), (40, 10), (40, 40), (40, 50)],
)
def test_step_k_of_epoch_e_is_item_e_times_steps_plus_k(coded_file, length, steps, workers):
    """Steps below, equal to and above the length: each item of the endless stream is trained on once, in order."""
    rows = np.arange(2 * length - 1)  # the last batch of a pass holds one image
    with HDF5Sequence(coded_file, batch_size=2, rows=rows, seed=3) as sequence:
        model = Recorder()
        fit_generator(model, sequence, steps, epochs=3, verbose=0, workers=workers, max_queue_size=3)
        assert model.rows == stream(sequence, 0, 3 * steps)


def test_steps_default_to_one_pass(coded_file):
    """Without steps_per_epoch an epoch serves every row exactly once, in another order each time."""
    with HDF5Sequence(coded_file, batch_size=10) as sequence:
        model = Recorder()
        fit_generator(model, sequence, epochs=2, verbose=0)
    first, second = (sum(model.rows[i : i + 11], []) for i in (0, 11))
    assert sorted(first) == sorted(second) == list(range(103))
    assert first != second


def test_a_further_call_goes_on_where_the_first_ended(coded_file):
    """The position of the sequence moves along, so two calls train on one stream without gap or repeat."""
    with HDF5Sequence(coded_file, batch_size=8) as sequence:
        model = Recorder()
        fit_generator(model, sequence, 5, epochs=2, verbose=0)
        assert sequence.position == (0, 10)
        fit_generator(model, sequence, 5, epochs=1, verbose=0)
        assert model.rows == stream(sequence, 0, 15)
        assert sequence.position == (1, 2)


def test_a_resumed_run_reads_the_same_items(coded_file):
    """initial_epoch=2 on a fresh sequence starts at item 2 * steps, and so does one that was there already."""
    with HDF5Sequence(coded_file, batch_size=8) as fresh, HDF5Sequence(coded_file, batch_size=8) as used:
        model, other = Recorder(), Recorder()
        fit_generator(model, fresh, 5, epochs=4, initial_epoch=2, verbose=0)
        fit_generator(other, used, 5, epochs=2, verbose=0)
        other.rows.clear()
        fit_generator(other, used, 5, epochs=4, initial_epoch=2, verbose=0)
        assert model.rows == other.rows == stream(fresh, 10, 10)


def test_set_position_is_heard(coded_file):
    """Training starts at (epoch, batch) that set_position named."""
    with HDF5Sequence(coded_file, batch_size=8) as sequence:
        sequence.set_position(2, 4)
        model = Recorder()
        fit_generator(model, sequence, 3, verbose=0)
        assert model.rows == stream(sequence, 2 * 13 + 4, 3)


def test_backup_and_restore_goes_on_in_the_stream(coded_file):
    """An epoch that Keras' BackupAndRestore skips is skipped in the stream too."""
    with HDF5Sequence(coded_file, batch_size=8) as sequence:
        model = Recorder()
        skip = keras.callbacks.LambdaCallback(on_train_begin=lambda logs: setattr(model, "_initial_epoch", 2))  # noqa: ARG005
        fit_generator(model, sequence, 5, epochs=4, verbose=0, callbacks=[skip])
        assert model.rows == stream(sequence, 10, 10)
        assert sequence.position == (1, 7)


def test_early_stop_leaves_the_position_at_the_first_untrained_item(coded_file):
    """stop_training in the middle of an epoch: read-ahead batches do not count."""
    with HDF5Sequence(coded_file, batch_size=8) as sequence:
        model = Recorder()

        def stop(step):
            model.stop_training = step == 3

        fit_generator(model, sequence, epochs=3, verbose=0, callbacks=after_step(stop))
        assert len(model.rows) == 4
        assert sequence.position == (0, 4)


def test_worker_processes_serve_the_same_stream(coded_file):
    """Two spawned processes give the batches of the serial run, over the ends of epochs and passes."""
    with HDF5Sequence(coded_file, batch_size=16) as sequence:
        model = Recorder()
        fit_generator(model, sequence, 5, epochs=2, verbose=0, workers=2, use_multiprocessing=True)
        assert model.rows == stream(sequence, 0, 10)


def test_settings_of_the_sequence_are_used_and_a_value_overrides_them(coded_file):
    """None means "as the generator says"; a value counts for one call and leaves the sequence alone."""
    threads = set()

    def look(image, rng):
        del rng
        threads.add(threading.current_thread().name)
        return image

    with HDF5Sequence(coded_file, batch_size=8, workers=2, augment=look) as sequence:
        threads.clear()
        fit_generator(Recorder(), sequence, 2, verbose=0)
        assert threads <= {"helpers-worker-1", "helpers-worker-2"}
        assert threads
        threads.clear()
        fit_generator(Recorder(), sequence, 2, verbose=0, workers=0)
        assert not [name for name in threads if name.startswith("helpers-worker")]
        assert sequence.workers == 2


def test_validation_keeps_its_own_order_and_settings(coded_file):
    """Each validation sees batches 0, 1, ... of its split, and equals evaluate on it."""
    model = make_model()
    with HDF5Sequence(coded_file, batch_size=8) as train, HDF5Sequence(coded_file, "valid", 7, workers=2) as valid:
        history = fit_generator(model, train, 3, epochs=2, verbose=0, validation_data=valid, workers=1)
        expected = model.evaluate(*all_of(valid), verbose=0, batch_size=40, return_dict=True)
    assert history.history["val_loss"][-1] == pytest.approx(expected["loss"], rel=1e-5)
    assert history.history["val_accuracy"][-1] == pytest.approx(expected["accuracy"])
    assert valid.position == (0, 0)


def test_validation_steps_take_the_first_batches(coded_file):
    """validation_steps=2 evaluates on the first two batches each time."""
    model = make_model()
    with HDF5Sequence(coded_file, batch_size=8) as train, HDF5Sequence(coded_file, "valid", 10) as valid:
        history = fit_generator(
            model, train, 2, epochs=2, verbose=0, validation_data=valid, validation_steps=2, workers=2
        )
        images, labels = all_of(valid)
    loss = model.evaluate(images[:20], labels[:20], verbose=0, return_dict=True)["loss"]
    assert history.history["val_loss"][-1] == pytest.approx(loss, rel=1e-5)


def test_validation_may_be_arrays(coded_file):
    """A tuple of arrays is handed to Keras as it is."""
    with HDF5Sequence(coded_file, batch_size=8) as train, HDF5Sequence(coded_file, "valid", 10) as valid:
        history = fit_generator(make_model(), train, 2, verbose=0, validation_data=all_of(valid))
    assert len(history.history["val_loss"]) == 1


def test_steps_other_than_the_length_are_said_in_one_line(coded_file, capsys, caplog):
    """One line on stdout when Keras prints too, one line in the log always."""
    line = (
        "An epoch is 5 steps and one pass over the data is 13 batches: each epoch goes on where the last one ended, "
        "and every row is used once a pass."
    )
    with HDF5Sequence(coded_file, batch_size=8) as sequence, caplog.at_level(logging.INFO, logger="helpers"):
        fit_generator(Recorder(), sequence, 5, verbose=0)
        assert capsys.readouterr().out == ""
        assert [record.message for record in caplog.records] == [line]
        sequence.set_position(0)
        fit_generator(Recorder(), sequence, 5, verbose=2)
        assert capsys.readouterr().out.splitlines()[0] == line


def test_a_jump_of_the_position_is_said(coded_file, caplog):
    """initial_epoch wins over the position, and one line says that they differ."""
    with HDF5Sequence(coded_file, batch_size=8) as sequence, caplog.at_level(logging.INFO, logger="helpers"):
        sequence.set_position(1, 2)
        fit_generator(Recorder(), sequence, 5, epochs=3, initial_epoch=2, verbose=0)
    assert caplog.records[0].message == (
        "Training starts at batch 10 of the stream (initial_epoch=2 of 5 steps); the sequence stood at batch 15. "
        "An epoch is 5 steps and one pass over the data is 13 batches: each epoch goes on where the last one ended, "
        "and every row is used once a pass."
    )


def test_rows_that_no_shard_serves_are_said(coded_file, caplog):
    """A last global batch with fewer rows than shards is dropped, and one line says how many rows that leaves out."""
    with (
        HDF5Sequence(coded_file, batch_size=17, shard=(0, 3)) as sequence,
        caplog.at_level(logging.INFO, logger="helpers"),
    ):
        fit_generator(Recorder(), sequence, verbose=0)
    assert [record.message for record in caplog.records] == [
        "1 of 103 rows are left out in each pass: they are fewer than the 3 shards."
    ]


def test_an_error_while_reading_surfaces_with_its_place(coded_file):
    """The exception itself arrives, with a note that names batch, epoch, rows, dataset and file."""
    with HDF5Sequence(coded_file, batch_size=8, shuffle=None, augment=RaisesOnRow(37)) as sequence:
        with pytest.raises(ZeroDivisionError) as caught:
            fit_generator(make_model(), sequence, verbose=0, workers=2)
        assert sequence.position == (0, 4)
    assert str(caught.value) == "nothing to divide"
    assert caught.value.__notes__ == [
        f"while making batch 4 of epoch 0 (rows 32, 33, 34, 35, 36, 37, 38, 39) of train_img in {coded_file}",
        "while augmenting row 37",
    ]


def test_an_error_in_validation_surfaces_too(coded_file):
    """The validation sequence names its own split."""
    with (
        HDF5Sequence(coded_file, batch_size=8) as train,
        HDF5Sequence(coded_file, "valid", 8, augment=RaisesOnRow(9)) as valid,
        pytest.raises(ZeroDivisionError) as caught,
    ):
        fit_generator(make_model(), train, 2, verbose=0, validation_data=valid)
    assert "of valid_img in" in caught.value.__notes__[0]


def test_rows_past_the_end_are_not_read(coded_file):
    """Reading ahead stops at the last step."""
    seen = set()

    def look(image, rng):
        del rng
        seen.add(int(rows_of(image[None])[0]))
        return image

    with HDF5Sequence(coded_file, batch_size=8, shuffle=None, augment=look) as sequence:
        fit_generator(make_model(), sequence, 2, verbose=0, workers=2)
    assert seen == set(range(16))


def test_an_error_of_a_callback_is_not_replaced(coded_file):
    """A failed read-ahead batch does not hide what a callback raised before it was due."""

    def fail(step):
        raise LookupError(f"callback at step {step}")

    with HDF5Sequence(coded_file, batch_size=8, shuffle=None, augment=RaisesOnRow(20)) as sequence:
        callback = after_step(fail)
        with pytest.raises(LookupError, match="callback at step 0"):
            fit_generator(make_model(), sequence, verbose=0, workers=2, callbacks=[callback])


def test_a_killed_worker_is_an_error_that_names_the_batch(coded_file):
    """SIGKILL of a worker process ends the training with the batch and its rows, and leaves no process behind."""
    with (
        HDF5Sequence(coded_file, batch_size=8, shuffle=None, augment=KillsItselfOnRow(3)) as sequence,
        pytest.raises(WorkerDiedError) as caught,
    ):
        fit_generator(make_model(), sequence, verbose=0, workers=1, use_multiprocessing=True)
    assert re.sub(r"process \d+", "process N", str(caught.value)) == (
        "worker 1 (process N) was ended by SIGKILL while it made batch 0 of epoch 0 (rows 0, 1, 2, 3, 4, 5, 6, 7) of "
        f"train_img in {coded_file}. The usual cause is memory: lower workers, max_queue_size or batch_size."
    )


def test_a_stuck_worker_is_an_error(coded_file):
    """No batch within stall_timeout_s is an error that names the batch."""
    model = make_model()
    with HDF5Sequence(coded_file) as healthy:  # compiled now: that may take longer than the worker sleeps
        fit_generator(model, healthy, 1, verbose=0)
    with HDF5Sequence(coded_file, batch_size=8, shuffle=None, augment=SleepsOnRow(12), stall_timeout_s=0.3) as sequence:
        with pytest.raises(
            WorkerStalledError, match=r"^no answer for 0.3 s; waiting for batch 1 of epoch 0 \(rows 8, "
        ):
            fit_generator(model, sequence, verbose=0, workers=1)
        time.sleep(1.0)  # the thread that slept still holds the file


def test_an_interrupt_leaves_no_worker_and_keeps_the_position(coded_file):
    """KeyboardInterrupt passes through; threads are gone, and the position is the first untrained item."""

    def interrupt(step):
        if step == 2:
            raise KeyboardInterrupt

    with HDF5Sequence(coded_file, batch_size=8, workers=2) as sequence:
        callback = after_step(interrupt)
        with pytest.raises(KeyboardInterrupt):
            fit_generator(make_model(), sequence, verbose=0, callbacks=[callback])
        assert sequence.position == (0, 3)
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("helpers-worker")]


def test_a_refused_call_leaves_the_position(coded_file):
    """An argument that does not fit is found before anything moves."""
    with HDF5Sequence(coded_file, batch_size=8) as sequence:
        with pytest.raises(ValueError, match="steps_per_epoch must be at least 1; got 0"):
            fit_generator(make_model(), sequence, 0, epochs=5, initial_epoch=3)
        with pytest.raises(ValueError, match="validation_steps must be at most 13"):
            fit_generator(
                make_model(), sequence, epochs=5, initial_epoch=3, validation_data=sequence, validation_steps=14
            )
        assert sequence.position == (0, 0)


BAD_CALLS = {
    "steps float": (
        {"steps_per_epoch": 10.0},
        TypeError,
        "steps_per_epoch must be a whole number; got 10.0. len(sequence) is one pass over the data; leave it out for "
        "that.",
    ),
    "steps negative": (
        {"steps_per_epoch": -1},
        ValueError,
        "steps_per_epoch must be at least 1; got -1. len(sequence) is one pass over the data; leave it out for that.",
    ),
    "epochs zero": ({"epochs": 0}, ValueError, "epochs must be at least 1; got 0. It is the number of the last epoch."),
    "epochs below initial_epoch": (
        {"epochs": 2, "initial_epoch": 3},
        ValueError,
        "epochs is the number of the last epoch, not how many more: initial_epoch=3 with epochs=2 trains nothing. Pass "
        "epochs=5 for 2 more.",
    ),
    "shuffle": (
        {"shuffle": True},
        ValueError,
        "shuffle must be left out for an HDF5Sequence, which shuffles rows itself; got shuffle=True. Choose there: "
        'HDF5Sequence(shuffle="full", "block" or None).',
    ),
    "workers negative": (
        {"workers": -1},
        ValueError,
        "workers must be at least 0; got -1. 0 makes batches when they are asked for.",
    ),
    "queue of nothing": (
        {"max_queue_size": 0},
        ValueError,
        "max_queue_size must be at least 1; got 0. It counts batches made ahead.",
    ),
    "never validate": (
        {"validation_freq": 0},
        ValueError,
        "validation_freq must be at least 1; got 0. It is the number of epochs from one validation to the next, or a "
        "list of epochs.",
    ),
    "weights as a list": (
        {"class_weight": [9, 1, 1, 1, 1]},
        TypeError,
        "class_weight must be a dict {class number: weight} with every class; got list. Pass class_weight={0: 9, 1: 1, "
        "2: 1, 3: 1, 4: 1}.",
    ),
    "monitor": (
        {"callbacks": keras.callbacks.EarlyStopping("acc")},
        ValueError,
        'EarlyStopping monitors "acc", which this model does not report; it reports loss, accuracy. Use '
        'monitor="accuracy".',
    ),
}


@pytest.mark.parametrize("case", BAD_CALLS)
def test_a_bad_call_is_refused_before_training(coded_file, case):
    """Each sentence says the rule, what was got and what to do; no batch is read."""
    arguments, error, message = BAD_CALLS[case]
    with HDF5Sequence(coded_file, batch_size=8) as sequence, pytest.raises(error) as caught:
        fit_generator(make_model(), sequence, **arguments)
    assert str(caught.value) == message


NO_BATCHES = {
    "nothing": (None, "NoneType. For arrays call model.fit(x, y)."),
    "a path": ("food.h5", "str. For an HDF5 file pass HDF5Sequence(PATH)."),
    "arrays": ((np.zeros((4, *SHAPE)), np.zeros(4)), "tuple. For arrays call model.fit(x, y)."),
    "a generator function": (endless_batches, "function. Call it: generator=NAME()."),
}


@pytest.mark.parametrize("case", NO_BATCHES)
def test_what_gives_no_batches_is_refused(case):
    """In words, where Keras says "pop from an empty set" or "None values not supported"."""
    source, got = NO_BATCHES[case]
    with pytest.raises(TypeError) as caught:
        fit_generator(make_model(), source, 2)
    assert str(caught.value) == (
        "generator must give batches: an HDF5Sequence, another PyDataset, a Python generator or a tf.data.Dataset; "
        f"got {got}"
    )


def test_unknown_arguments_are_refused(coded_file):
    """Nothing is dropped silently (old names such as nb_epoch)."""
    with HDF5Sequence(coded_file) as sequence, pytest.raises(TypeError, match="nb_epoch"):
        fit_generator(make_model(), sequence, nb_epoch=3)


def test_something_that_is_no_model_is_refused(coded_file):
    """The generator and the model in the wrong order are named."""
    with HDF5Sequence(coded_file) as sequence, pytest.raises(TypeError) as caught:
        fit_generator(sequence, make_model())
    assert str(caught.value) == "model must be a Keras or tf_keras model; got HDF5Sequence."


def test_steps_per_execution_must_divide_the_steps(coded_file):
    """Keras would train on more items than an epoch has."""
    model = make_model()
    model.compile("sgd", "categorical_crossentropy", steps_per_execution=4)
    with HDF5Sequence(coded_file, batch_size=8) as sequence:
        with pytest.raises(ValueError, match=r"Pass steps_per_epoch=12\.$"):
            fit_generator(model, sequence, verbose=0)
        fit_generator(model, sequence, 12, verbose=0)
        assert sequence.position == (0, 12)


def test_a_queue_larger_than_the_memory_is_warned_about(coded_file, monkeypatch):
    """The estimate names the queue, its batches and the free memory."""
    monkeypatch.setattr("psutil.virtual_memory", lambda: type("Memory", (), {"available": 100_000})())
    with HDF5Sequence(coded_file, batch_size=100) as sequence, pytest.warns(QueueMemoryWarning) as caught:
        fit_generator(Recorder(), sequence, 1, verbose=0, max_queue_size=30)
    assert str(caught[0].message) == (
        "the queue of training batches holds up to 37 batches of 0 MB: 0.0 GB, and 0.0 GB of memory are free. Lower "
        "max_queue_size, workers or batch_size."
    )
    assert caught[0].filename == __file__


def test_class_weights_reach_the_loss(coded_file):
    """Each image is weighted by its class, from a sequence and from a plain generator."""
    weights = {number: number + 1.0 for number in range(CLASSES)}
    with HDF5Sequence(coded_file, batch_size=8) as sequence:
        model, other = Recorder(), Recorder()
        expected = [sequence.batch(0, index)[1].argmax(axis=1) + 1.0 for index in range(3)]
        fit_generator(model, sequence, 3, verbose=0, class_weight=weights)
        fit_generator(other, (sequence.batch(0, index) for index in range(3)), 3, verbose=0, class_weight=weights)
    for given, want in zip(model.weights_given + other.weights_given, expected + expected, strict=True):
        np.testing.assert_array_equal(given, want)


def test_balanced_class_weight_gives_every_class_the_same_share(coded_file):
    """Weight times rows is equal for all classes that have rows; a class without rows gets 1.0."""
    with HDF5Sequence(coded_file) as sequence:
        counts = np.bincount(sequence.class_numbers, minlength=CLASSES)
        weights = balanced_class_weight(sequence)
        rows = np.flatnonzero(sequence.class_numbers != 2)
    np.testing.assert_allclose([weights[number] * counts[number] for number in range(CLASSES)], 103 / 5)
    with HDF5Sequence(coded_file, rows=rows) as without:
        weights = balanced_class_weight(without)
    assert weights[2] == 1.0
    assert all(np.isfinite(list(weights.values())))


def test_a_class_without_weight_in_a_generator_is_refused(zero_model):
    """A model with one output does not say how many classes there are; the missing one must not count as 0."""
    with pytest.raises(ValueError, match=r"^class_weight must hold every class; .* has class 1, and .* for \[0\].$"):
        fit_generator(zero_model, numbered_batches(2), 2, verbose=0, class_weight={0: 2.0})
    with pytest.raises(ValueError, match=r"^class_weight must hold every class; .* has class 0, and .* for \[1\].$"):
        fit_generator(zero_model, numbered_batches(2), 2, verbose=0, class_weight={1: 2.0})


def numbered_batches(count: int):
    """Batches of one image whose label is its number: its mean squared distance from 0 is the number squared."""
    for number in range(count):
        yield np.zeros((1, 1), np.float32), np.full((1, 1), number, np.float32)


@pytest.fixture
def zero_model():
    """A model that answers 0 and learns nothing."""
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, kernel_initializer="zeros")])
    model.compile(keras.optimizers.SGD(0.0), "mse")
    return model


def test_each_validation_takes_the_next_batches_of_a_generator(zero_model):
    """As in Keras 2; Keras 3 itself evaluates the first two batches again and again."""
    for steps, losses in ((1, [0, 1, 4]), (2, [0.5, 6.5, 20.5]), (3, [5 / 3, 50 / 3, 149 / 3])):
        history = fit_generator(
            zero_model, numbered_batches(6), 2, epochs=3, verbose=0, validation_data=numbered_batches(3 * steps),
            validation_steps=steps,
        )  # fmt: skip
        assert history.history["val_loss"] == pytest.approx(losses)


def test_a_validation_generator_that_runs_dry_is_an_error(zero_model):
    """It says how many batches came, instead of a validation on fewer."""
    with pytest.raises(GeneratorRanDryError) as caught:
        fit_generator(
            zero_model, numbered_batches(6), 2, epochs=3, verbose=0, validation_data=numbered_batches(5),
            validation_steps=2,
        )  # fmt: skip
    assert str(caught.value) == (
        "the generator of validation_data ended after 5 batches, and each validation takes 2. Let it loop for ever "
        "(while True), or lower validation_steps."
    )


def test_a_generator_that_runs_dry_is_an_error():
    """No epoch with loss 0.0: the sentence says how many batches came."""
    model = Recorder()
    batches = (batch for batch, _ in zip(endless_batches(), range(7), strict=False))
    with pytest.raises(GeneratorRanDryError) as caught:
        fit_generator(model, batches, 5, epochs=2, verbose=0)
    assert str(caught.value) == (
        "the generator ended after 7 of 10 batches (5 steps an epoch). Let it loop for ever (while True), lower "
        "steps_per_epoch, or train fewer epochs."
    )
    assert len(model.rows) == 7


def test_a_generator_with_exactly_enough_batches_is_trained_to_its_end():
    """Keras' read-ahead does not ask for one more."""
    model = Recorder()
    batches = (batch for batch, _ in zip(endless_batches(), range(10), strict=False))
    fit_generator(model, batches, 5, epochs=2, verbose=0)
    assert len(model.rows) == 10


def test_an_error_inside_a_generator_surfaces():
    """It arrives as it was raised, not as TensorFlow's text."""

    def broken():
        yield next(endless_batches())
        raise ZeroDivisionError("in the generator")

    with pytest.raises(ZeroDivisionError, match="in the generator"):
        fit_generator(make_model(), broken(), 5, verbose=0)


BAD_GENERATOR_CALLS = {
    "no steps": (
        {},
        "a Python generator has no length: pass steps_per_epoch (the number of batches that make an epoch).",
    ),
    "two workers": (
        {"steps_per_epoch": 3, "workers": 2},
        "a Python generator can be read by one worker only: threads would collide in it, and processes would each "
        "repeat all of it. Leave workers and use_multiprocessing out, or pass an HDF5Sequence.",
    ),
    "validation without steps": (
        {"steps_per_epoch": 3, "validation_data": endless_batches()},
        "validation_data is a Python generator, which has no length: pass validation_steps.",
    ),
}


@pytest.mark.parametrize("case", BAD_GENERATOR_CALLS)
def test_a_bad_call_with_a_generator_is_refused(case):
    """What a plain generator cannot do is said before training."""
    arguments, message = BAD_GENERATOR_CALLS[case]
    with pytest.raises(ValueError) as caught:  # noqa: PT011 (the whole sentence is compared)
        fit_generator(make_model(), endless_batches(), **arguments)
    assert str(caught.value) == message


class OtherDataset(keras.utils.PyDataset):
    """Somebody else's dataset of 6 batches."""

    def __len__(self):
        return 6

    def __getitem__(self, index):
        return np.full((2, *SHAPE), index, np.uint8), np.eye(CLASSES, dtype=np.float32)[:2]


def test_another_pydataset_is_trained_with_the_settings_of_the_call():
    """Settings given for the call are used and taken back."""
    dataset = OtherDataset(workers=1)
    seen = []
    record = after_step(lambda step: seen.append((step, dataset.workers)))
    fit_generator(Recorder(), dataset, verbose=0, workers=2, callbacks=[record])
    assert seen == [(step, 2) for step in range(6)]
    assert dataset.workers == 1


def test_wrong_settings_for_another_pydataset_are_refused():
    """Keras itself takes any number of workers below 1 for none."""
    with pytest.raises(ValueError, match="^workers must be at least 0; got -2. 0 makes batches when"):
        fit_generator(Recorder(), OtherDataset(), verbose=0, workers=-2)


def test_another_pydataset_with_workers_and_few_steps_is_warned_about():
    """Keras' own pool would leave batches out."""
    with pytest.warns(StepsWarning, match="2 steps of 6 batches leave rows out"):
        fit_generator(Recorder(), OtherDataset(workers=2), 2, verbose=0)


@pytest.fixture(scope="module")
def tf_keras():
    """The original Keras 2, which still has Model.fit_generator."""
    return pytest.importorskip("tf_keras")


def test_keras_2_and_keras_3_agree_after_20_steps(coded_file, tf_keras):
    """The real Model.fit_generator and ours give the same weights to 1e-5: two epochs of 10 steps over 13 batches."""
    models = {package: make_model(package) for package in (keras, tf_keras)}
    for model in models.values():
        with HDF5Sequence(coded_file, batch_size=8) as sequence, HDF5Sequence(coded_file, "valid", 8) as valid:
            history = fit_generator(model, sequence, 10, epochs=2, verbose=0, validation_data=valid, workers=2)
            assert sequence.position == (1, 7)
            assert set(history.history) == {"loss", "accuracy", "val_loss", "val_accuracy"}
    moved = 0.0
    start = make_model().get_weights()
    for ours, theirs, first in zip(models[keras].get_weights(), models[tf_keras].get_weights(), start, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5)
        moved = max(moved, np.abs(ours - first).max())
    assert moved > 1e-2  # the 20 steps did something


@pytest.mark.parametrize("workers", [0, 2])
def test_evaluate_and_predict_are_repeatable_to_the_bit(coded_file, workers):
    """The same numbers each time, and the same without workers: test rows come in the order of the file."""
    model = make_model()
    results = []
    for count in (workers, workers, 0):
        with HDF5Sequence(coded_file, "test", batch_size=7, workers=count) as sequence:
            results.append((model.evaluate(sequence, verbose=0), model.predict(sequence, verbose=0).tobytes()))
    assert results[0] == results[1] == results[2]


@pytest.mark.parametrize(("length", "steps"), [(1, 3), (2, 1), (3, 7), (40, 10)])
def test_the_original_fit_generator_follows_the_steps_rule(coded_file, tf_keras, length, steps):
    """The same items in the same order, on a tf_keras model."""

    class ClassicRecorder(tf_keras.Sequential):
        def train_step(self, data):
            self.rows.append(rows_of(data[0].numpy()).tolist())
            return {"loss": 1.0}

    with HDF5Sequence(coded_file, batch_size=2, rows=np.arange(2 * length), seed=3) as sequence:
        model = ClassicRecorder([tf_keras.layers.Flatten(), tf_keras.layers.Dense(CLASSES)])
        model.rows = []
        model.compile("sgd", "categorical_crossentropy", run_eagerly=True)
        fit_generator(model, sequence, steps, epochs=2, verbose=0)
        assert [list(rows) for rows in model.rows] == stream(sequence, 0, 2 * steps)


def test_the_real_method_is_called_with_its_own_defaults(tf_keras, monkeypatch):
    """Other people's data on a tf_keras model: None is left out, a value is handed on."""
    calls = []
    real = tf_keras.Model.fit_generator

    def spy(self, generator, **arguments):
        calls.append(arguments)
        return real(self, generator, **arguments)

    monkeypatch.setattr(tf_keras.Model, "fit_generator", spy)
    fit_generator(make_model(tf_keras), OtherDataset(), verbose=0)
    fit_generator(make_model(tf_keras), OtherDataset(), verbose=0, workers=2, shuffle=False)
    fit_generator(make_model(tf_keras), endless_batches(), 3, verbose=0)
    settings = [
        {name: call[name] for name in ("workers", "use_multiprocessing", "max_queue_size", "shuffle") if name in call}
        for call in calls
    ]
    assert settings == [{}, {"workers": 2, "shuffle": False}, {}]


def test_a_tf_keras_sequence_for_a_keras_3_model_is_refused(tf_keras):
    """The two Kerases do not take each other's data."""

    class OldSequence(tf_keras.utils.Sequence):
        def __len__(self):
            return 1

        def __getitem__(self, index):
            return next(endless_batches())

    with pytest.raises(TypeError) as caught:
        fit_generator(make_model(), OldSequence())
    assert str(caught.value) == (
        "OldSequence is a tf_keras Sequence and the model is a Keras 3 model. Derive it from keras.utils.PyDataset, or "
        "build the model with tf_keras."
    )


def all_of(sequence) -> tuple[np.ndarray, np.ndarray]:
    """All images and labels of a sequence's epoch 0."""
    batches = [sequence.batch(0, index) for index in range(len(sequence))]
    return tuple(np.concatenate(part) for part in zip(*batches, strict=True))

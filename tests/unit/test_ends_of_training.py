"""How fit_generator ends when something beside the usual goes wrong: the error itself, at once, and nothing is left."""

from __future__ import annotations

import asyncio
import pickle
import sys
import threading
import time
from concurrent.futures import CancelledError

import h5py
import keras
import numpy as np
import psutil
import pytest
from coded import CLASS_NAMES, IMAGE_SHAPE, make_coded_file, rows_of

from helpers import HDF5Sequence, fit_generator
from helpers.sequence import KerasPoolWarning
from helpers.workers import WorkerDiedError

CLASSES = len(CLASS_NAMES)
linux_only = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux: Keras forks its workers there")


@pytest.fixture(scope="module")
def model():
    """The smallest model that trains on the coded file."""
    layers = [keras.layers.Rescaling(1 / 255), keras.layers.Flatten(), keras.layers.Dense(CLASSES)]
    model = keras.Sequential([keras.Input(IMAGE_SHAPE, dtype="uint8"), *layers])
    model.compile("sgd", "mse")
    return model


def after_step(function, hook: str = "on_train_batch_end"):
    """A callback that calls ``function(step)`` after each step."""
    return keras.callbacks.LambdaCallback(**{hook: lambda step, logs: function(step)})  # noqa: ARG005


class CannotBePrintedError(Exception):
    """Its own text fails."""

    def __str__(self):
        return self.missing


ENDS = [SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError]
ERRORS = [StopIteration, IndexError, CancelledError, RecursionError, CannotBePrintedError]


def raises_at_37(kind):
    """An augment function."""

    def augment(image, rng):
        del rng
        if rows_of(image[None])[0] == 37:
            raise kind("no such cheese")
        return image

    return augment


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("kind", [*ENDS, *ERRORS])
def test_whatever_augment_raises_ends_training_as_itself(coded_file, model, kind, workers):
    """Also what TensorFlow and Python's generators have their own use for; nobody waits for stall_timeout_s."""
    with HDF5Sequence(coded_file, batch_size=8, shuffle=None, workers=workers) as sequence:
        sequence.source.augment = raises_at_37(kind)
        expected = WorkerDiedError if kind in ENDS and workers else kind
        with pytest.raises(expected) as caught:
            fit_generator(model, sequence, verbose=0)
        assert type(caught.value) is expected
        assert expected is WorkerDiedError or sequence.position == (0, 4)
    where = f"batch 4 of epoch 0 (rows 32, 33, 34, 35, 36, 37, 38, 39) of train_img in {coded_file}"
    if kind in ERRORS:
        assert caught.value.__notes__ == [f"while making {where}", "while augmenting row 37"]
    elif workers:
        assert f"ended with {kind('no such cheese')!r} while it made {where}. " in str(caught.value)


@linux_only
def test_a_validation_worker_that_dies_while_idle_is_told_at_once(coded_file, model):
    """Not at the next validation, which may be an hour away."""
    validations, steps, workers = [], [], []

    def note_worker(step):
        if not workers:
            workers.extend(child for child in psutil.Process().children() if "worker_process" in command_of(child))

    def kill_and_go_slowly(step):
        if validations:
            workers[0].kill()
            steps.append(step)
            time.sleep(0.2)

    callbacks = [
        after_step(kill_and_go_slowly),
        after_step(note_worker, "on_test_batch_end"),
        keras.callbacks.LambdaCallback(on_test_end=lambda logs: validations.append(logs)),
    ]
    with (
        HDF5Sequence(coded_file, batch_size=4) as train,
        HDF5Sequence(coded_file, "valid", batch_size=8, workers=1, use_multiprocessing=True) as valid,
        pytest.raises(WorkerDiedError, match=f"was ended by SIGKILL while it waited, after batch 4 .* in {coded_file}"),
    ):
        fit_generator(model, train, epochs=3, verbose=0, validation_data=valid, callbacks=callbacks)
    assert len(validations) == 1
    assert len(steps) < len(train) - 1  # 26 steps of 0.2 s


OVERRIDDEN = ["__getitem__", "__len__", "batch", "on_epoch_begin", "on_epoch_end"]


@pytest.mark.parametrize("name", OVERRIDDEN)
def test_a_subclass_whose_method_would_not_be_called_is_refused(coded_file, model, name):
    """Its batches would be those of the class above, without a word; plain fit calls it."""

    def own(self, *arguments):
        return getattr(HDF5Sequence, name)(self, *arguments)

    own_class = type("Mixed", (HDF5Sequence,), {name: own})
    sentence = (
        f"fit_generator makes the batches of an HDF5Sequence in workers of its own and would not call Mixed.{name}. "
        "Put what it does into augment=, a layer of the model or a callback, or train with model.fit(sequence)."
    )
    with own_class(coded_file) as own_sequence, HDF5Sequence(coded_file) as sequence:
        for arguments in ({"generator": own_sequence}, {"generator": sequence, "validation_data": own_sequence}):
            with pytest.raises(TypeError) as caught:
                fit_generator(model, **arguments, verbose=0)
            assert str(caught.value) == sentence


def test_a_subclass_that_adds_something_else_is_trained(coded_file, model):
    """A constructor with defaults of one's own, or a method more, is nobody's business."""

    class Mine(HDF5Sequence):
        def __init__(self, path):
            super().__init__(path, batch_size=8)

        def first_rows(self):
            return self.rows_of(0, 0)

    with Mine(coded_file) as sequence:
        fit_generator(model, sequence, verbose=0)
        assert sequence.position == (1, 0)


NO_BATCHES = {
    "an open file": (lambda file: file, "File. For an HDF5 file pass HDF5Sequence(PATH)."),
    "an open dataset": (lambda file: file["train_img"], "Dataset. For an HDF5 file pass HDF5Sequence(PATH)."),
    "a path": (lambda file: file.filename, "str. For an HDF5 file pass HDF5Sequence(PATH)."),
    "the class": (lambda file: HDF5Sequence, "type. Call it: generator=NAME()."),
}


@pytest.mark.parametrize("case", NO_BATCHES)
def test_an_hdf5_object_in_place_of_a_generator_is_refused(coded_file, model, case):
    """In words that say what to pass; a closed one as well."""
    make, words = NO_BATCHES[case]
    with h5py.File(coded_file) as file:
        thing = make(file)
        with pytest.raises(TypeError, match="^generator must give batches: ") as caught:
            fit_generator(model, thing, verbose=0)
        assert str(caught.value).endswith(f"; got {words}")
    with pytest.raises(TypeError, match="^generator must give batches: "):
        fit_generator(model, thing, verbose=0)


def test_a_sequence_pickles_in_the_middle_of_a_training(coded_file, model):
    """A callback that saves or copies it gets a sequence of its own, with equal batches."""
    twins = []
    with HDF5Sequence(coded_file, batch_size=8, workers=2) as sequence:
        copying = after_step(lambda step: twins.append(pickle.loads(pickle.dumps(sequence))) if step == 3 else None)
        fit_generator(model, sequence, verbose=0, callbacks=[copying])
        with twins[0] as twin:
            for ours, theirs in zip(twin.batch(0, 5), sequence.batch(0, 5), strict=True):
                np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("compression", [None, "lzf"], ids=["past HDF5", "through HDF5"])
def test_a_sequence_closed_in_the_middle_of_a_training_is_said_to_be_closed(tmp_path, model, compression):
    """Threads are reading at that moment: it is not an identifier that is not valid, and no damaged file."""
    path = make_coded_file(tmp_path / "closed.h5", compression=compression)
    sequence = HDF5Sequence(path, batch_size=8, workers=2)
    closing = after_step(lambda step: sequence.close() if step == 3 else None)
    with pytest.raises(ValueError, match=r"is closed\. Make a new (one|RowReader)\."):
        fit_generator(model, sequence, verbose=0, epochs=30, callbacks=[closing])


class Other(keras.utils.PyDataset):
    """Somebody else's dataset, whose workers are Keras' own."""

    def __len__(self):
        return 30

    def __getitem__(self, index):
        time.sleep(0.01)
        return np.zeros((2, *IMAGE_SHAPE), np.uint8), np.zeros((2, CLASSES), np.float32)


def workers_of_keras() -> list[str]:
    """Threads and processes that Keras started, after a moment to end."""
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        threads = [thread.name for thread in threading.enumerate() if thread.name.startswith(("Worker_", "Thread-"))]
        left = threads + [
            f"process {child.pid}" for child in psutil.Process().children() if "pytest" in command_of(child)
        ]
        if not left:
            break
        time.sleep(0.05)
    return left


def command_of(process: psutil.Process) -> str:
    try:
        return "" if process.status() == psutil.STATUS_ZOMBIE else " ".join(process.cmdline())
    except psutil.Error:
        return ""


def interrupt(step):
    if step == 3:
        raise KeyboardInterrupt


@linux_only
@pytest.mark.parametrize("processes", [False, True], ids=["threads", "processes"])
@pytest.mark.parametrize("part", ["training", "validation"])
@pytest.mark.filterwarnings("ignore::helpers.sequence.KerasPoolWarning")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # Python 3.12+ warns of fork with threads
def test_an_interrupt_ends_the_workers_of_somebody_elses_dataset(coded_file, model, part, processes):
    """Keras leaves its threads and its processes behind; they are ended here."""
    other = Other(workers=2, use_multiprocessing=processes)
    hook = "on_train_batch_end" if part == "training" else "on_test_batch_end"
    with HDF5Sequence(coded_file, batch_size=32) as sequence:
        train, validation = (other, None) if part == "training" else (sequence, other)
        callbacks = [after_step(interrupt, hook)]
        with pytest.raises(KeyboardInterrupt):
            fit_generator(model, train, verbose=0, validation_data=validation, callbacks=callbacks)
    assert workers_of_keras() == []


@pytest.mark.parametrize("part", ["training", "validation"])
def test_processes_of_keras_are_warned_of(model, part):
    """For any dataset: a fork of TensorFlow's process, and an endless wait when a worker dies."""
    other, threads = Other(workers=2, use_multiprocessing=True), Other()

    def stop(*_):
        raise LookupError("far enough")

    stopping = keras.callbacks.LambdaCallback(on_train_begin=stop)
    train, validation = (other, None) if part == "training" else (threads, other)
    words = "^Keras' own worker processes make the batches of Other: "
    with pytest.warns(KerasPoolWarning, match=words), pytest.raises(LookupError):
        fit_generator(model, train, verbose=0, validation_data=validation, callbacks=[stopping])
    with pytest.raises(LookupError):  # and no warning, which would be an error here
        fit_generator(model, threads, verbose=0, callbacks=[stopping])

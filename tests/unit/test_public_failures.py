"""Failures that people report in public, held here where no other test file is the place for them.

Which test holds which failure is said in each docstring by its symptom.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import h5py
import keras
import numpy as np
import pytest
import training_memory
from coded import CLASS_NAMES, rows_of

from helpers import HDF5Sequence, RowReader, fit_generator

CLASSES = len(CLASS_NAMES)


@pytest.fixture
def model():
    """The smallest model that trains on the coded file."""
    layers = [keras.layers.Rescaling(1 / 255), keras.layers.Flatten(), keras.layers.Dense(CLASSES)]
    model = keras.Sequential([keras.Input((16, 16, 3), dtype="uint8"), *layers])
    model.compile("sgd", "mse")
    return model


def test_each_worker_process_is_new_light_and_blind_to_the_gpu(coded_file, model, tmp_path):
    """Deadlocks of forks and GPU memory of workers: exactly as many as asked for, none holds Keras, a GPU or our pid.

    A fork of this process would have TensorFlow among its modules from the start.
    """
    folder = str(tmp_path)

    def tell(image, rng):
        del rng
        mark = Path(folder, f"{os.getpid()}.json")
        if not mark.exists():
            heavy = sorted({"tensorflow", "keras", "jax", "torch"} & set(sys.modules))
            mark.write_text(json.dumps([heavy, os.environ.get("CUDA_VISIBLE_DEVICES")]))
            deadline = time.monotonic() + 30
            while len(list(Path(folder).glob("*.json"))) < 2 and time.monotonic() < deadline:
                time.sleep(0.01)  # until the other one has come
        return image

    with HDF5Sequence(coded_file, batch_size=8) as sequence:
        sequence.source.augment = tell  # not tried in this process first
        fit_generator(model, sequence, verbose=0, epochs=2, workers=2, use_multiprocessing=True)
    told = {path.stem: json.loads(path.read_text()) for path in tmp_path.glob("*.json")}
    assert list(told.values()) == [[[], ""]] * 2
    assert str(os.getpid()) not in told


def test_threads_are_the_default_and_as_many_as_asked(coded_file):
    """A number of workers that is dropped without a word: the sequence keeps what it was given."""
    with HDF5Sequence(coded_file) as sequence:
        assert (sequence.workers, sequence.use_multiprocessing, sequence.max_queue_size) == (1, False, 10)
    with HDF5Sequence(coded_file, workers=3, use_multiprocessing=True, max_queue_size=7) as sequence:
        assert (sequence.workers, sequence.use_multiprocessing, sequence.max_queue_size) == (3, True, 7)


def test_no_two_rows_and_no_two_epochs_draw_the_same_numbers(coded_file, model, tmp_path):
    """Twin augmentation: over two epochs in two worker processes each image has a first draw of its own."""
    folder = str(tmp_path)

    def note(image, rng):
        with Path(folder, f"{os.getpid()}.txt").open("a") as file:
            file.write(f"{rows_of(image[None])[0]} {rng.integers(2**62)}\n")
        return image

    with HDF5Sequence(coded_file, batch_size=8) as sequence:
        sequence.source.augment = note
        fit_generator(model, sequence, verbose=0, epochs=2, workers=2, use_multiprocessing=True)
    draws = [line.split() for path in tmp_path.glob("*.txt") for line in path.read_text().splitlines()]
    assert sorted(int(row) for row, _ in draws) == sorted([*range(103)] * 2)
    assert len({number for _, number in draws}) == 206


def test_global_random_numbers_are_neither_used_nor_moved(coded_file, model):
    """Batches that depend on somebody's seed: fit_generator draws nothing from Python's or NumPy's global state."""
    seen = []

    def note(image, rng):
        del rng
        seen.append(int(rows_of(image[None])[0]))
        return image

    for seed in (1, 2):
        with HDF5Sequence(coded_file, batch_size=8) as sequence:
            sequence.source.augment = note
            random.seed(seed)
            np.random.seed(seed)  # noqa: NPY002 (the state that must not matter)
            before = random.getstate(), np.random.get_state()[1].tolist()  # noqa: NPY002
            fit_generator(model, sequence, verbose=0, workers=0)
            assert (random.getstate(), np.random.get_state()[1].tolist()) == before  # noqa: NPY002
    assert seen[:103] == seen[103:]


NO_PATHS = {
    "file": lambda file: file,
    "dataset": lambda file: file["train_img"],
    "group": lambda file: file["/"],
}


@pytest.mark.parametrize("kind", NO_PATHS)
@pytest.mark.parametrize("make", [HDF5Sequence, lambda path: RowReader(path, "train_img")], ids=["sequence", "reader"])
def test_an_hdf5_object_in_place_of_a_path_is_refused(coded_file, make, kind):
    """Use after close, and handles in workers: refused at once, and the sentence knows whether it is closed."""
    rule = "path must name an HDF5 file, which each process opens for itself; got "
    with h5py.File(coded_file) as file:
        thing = NO_PATHS[kind](file)
        with pytest.raises(TypeError) as caught:
            make(thing)
        assert str(caught.value) == f"{rule}an open {kind} of {coded_file}. Pass the name of the file."
    with pytest.raises(TypeError) as caught:
        make(thing)
    assert str(caught.value) == f"{rule}a {kind} that is closed already. Pass the name of the file."


def test_an_error_in_a_worker_process_comes_fast_and_whole(coded_file, model, tmp_path):
    """The cause buried in a graph error: exception, batch, rows, file arrive within 5 s; training goes on after."""
    mark = tmp_path / "raised"

    def breaks(image, rng):
        del rng
        if rows_of(image[None])[0] == 37:
            mark.touch()
            raise ValueError("no such cheese")
        return image

    with HDF5Sequence(coded_file, batch_size=8, shuffle=None) as sequence:
        sequence.source.augment = breaks
        with pytest.raises(ValueError, match="no such cheese") as caught:
            fit_generator(model, sequence, verbose=0, workers=2, use_multiprocessing=True)
        assert time.time() - mark.stat().st_mtime < 5
        assert str(caught.value) == "no such cheese"
        assert caught.value.__notes__[0] == (
            f"while making batch 4 of epoch 0 (rows 32, 33, 34, 35, 36, 37, 38, 39) of train_img in {coded_file}"
        )
        assert sequence.position == (0, 4)
        sequence.source.augment = None
        fit_generator(model, sequence, verbose=0, workers=2, use_multiprocessing=True)
        assert sequence.position == (1, 4)


def test_an_error_under_plain_fit_names_batch_rows_and_file(coded_file, model):
    """Keras' own fit wraps what is raised: the text still says where."""

    def breaks(image, rng):
        del rng
        if rows_of(image[None])[0] == 37:
            raise ZeroDivisionError("no such cheese")
        return image

    with HDF5Sequence(coded_file, batch_size=8, shuffle=None) as sequence:
        sequence.source.augment = breaks
        with pytest.raises(Exception, match="no such cheese") as caught:  # noqa: PT011 (TensorFlow's own class)
            model.fit(sequence, verbose=0, shuffle=False)
    place = f"while making batch 4 of epoch 0 (rows 32, 33, 34, 35, 36, 37, 38, 39) of train_img in {coded_file}"
    assert place in "\n".join([str(caught.value), *getattr(caught.value, "__notes__", [])])


def test_an_error_in_on_epoch_end_ends_plain_fit(coded_file, model):
    """A hook that fails is not swallowed."""

    class Broken(HDF5Sequence):
        def on_epoch_end(self):
            super().on_epoch_end()
            if self.epoch:
                raise LookupError("no such epoch")

    with Broken(coded_file, batch_size=8) as sequence, pytest.raises(Exception, match="no such epoch"):  # noqa: PT011
        model.fit(sequence, verbose=0, epochs=2, shuffle=False)


def test_an_error_in_somebody_elses_dataset_is_raised(model):
    """A PyDataset whose worker fails: the error itself or TensorFlow's text of it, and no hang."""

    class Other(keras.utils.PyDataset):
        def __len__(self):
            return 6

        def __getitem__(self, index):
            if index == 4:
                raise ZeroDivisionError("no such cheese")
            return np.zeros((2, 16, 16, 3), np.uint8), np.zeros((2, CLASSES), np.float32)

    with pytest.raises(Exception, match="no such cheese"):  # noqa: PT011
        fit_generator(model, Other(workers=2), verbose=0)


@pytest.mark.nightly
def test_sixty_epochs_of_worker_processes_never_stand_still(coded_file, model):
    """Deadlocks that come from run to run: twenty calls of three epochs, each with new processes, all end."""
    with HDF5Sequence(coded_file, batch_size=8, workers=2, use_multiprocessing=True, stall_timeout_s=30) as sequence:
        for call in range(1, 21):
            fit_generator(model, sequence, verbose=0, epochs=3)
            assert sequence.position == (3 * call, 0)


@pytest.mark.nightly
def test_tensorflow_in_an_augmentation_finds_no_gpu_in_a_worker(coded_file, model):
    """CUDA in a forked child: an operation of TensorFlow works in a worker process, on the CPU."""

    def flip(image, rng):
        del rng
        import tensorflow as tf

        assert tf.config.list_physical_devices("GPU") == []
        return tf.image.flip_left_right(image).numpy()

    with HDF5Sequence(coded_file, batch_size=32) as sequence:
        sequence.source.augment = flip
        fit_generator(model, sequence, 3, verbose=0, workers=1, use_multiprocessing=True)
        assert sequence.position == (0, 3)


# --- memory


def memory_of_training(folder: Path, epochs: int) -> dict:
    """What ``tests/training_memory.py`` measured in a process of its own."""
    rollup = Path("/proc/self/smaps_rollup")
    if not rollup.exists() or "Pss_Shmem" not in rollup.read_text():
        pytest.skip("needs Linux 5.9: shared memory of processes")
    program = Path(__file__).parents[1] / "training_memory.py"
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(
        [sys.executable, program, folder, str(epochs)],
        env=environment, capture_output=True, text=True, timeout=250,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def memory(tmp_path_factory):
    """Measured once for the tests below."""
    return memory_of_training(tmp_path_factory.mktemp("memory"), epochs=20)


def test_memory_stands_still_from_epoch_to_epoch(memory):
    """Memory that climbs while training: over 20 epochs of two worker processes not even one batch an epoch stays."""
    later = np.array(memory["epochs_mb"])[6:]
    grown = later[-5:].mean() - later[:5].mean()  # nine epochs apart
    assert len(later) == 14
    assert grown < 0.5 * 9 * training_memory.BATCH_MB


def test_a_slow_consumer_costs_the_queue_and_no_more(memory):
    """A queue of finished batches: 40 instead of 2 cost 38 batches of uint8, however slow the training is."""
    small, large = (memory["queues_mb"][str(size)] for size in training_memory.QUEUES)
    queue = (40 - 2) * training_memory.BATCH_MB
    assert 0.5 * queue < large - small < 1.2 * queue  # below: the queue was not full, and nothing was measured


@pytest.mark.nightly
def test_memory_stands_still_over_200_epochs(tmp_path):
    """The same for longer, and over 50 calls with new workers each."""
    measured = memory_of_training(tmp_path, epochs=200)
    for name, count in (("epochs_mb", 200), ("calls_mb", 50)):
        values = np.array(measured[name])
        assert len(values) == count
        grown = values[-10:].mean() - values[count // 2 - 5 : count // 2 + 5].mean()
        assert grown < 0.2 * (count // 2) * training_memory.BATCH_MB, name


def test_train_on_batch_tells_the_loss_of_its_own_batch():
    """No running mean hides a jump, as in some releases of Keras 3: batches that are right, wrong, and right again."""
    layers = [
        keras.Input((3,)),
        keras.layers.Dense(3, activation="softmax", kernel_initializer=keras.initializers.Identity(9)),
    ]
    model = keras.Sequential(layers)
    model.compile(keras.optimizers.SGD(0.0), "categorical_crossentropy")
    inputs = np.eye(3, dtype=np.float32)
    losses = [model.train_on_batch(inputs, np.roll(inputs, shift, axis=0)) for shift in (0, 1, 0)]
    assert np.allclose(losses, [0.0, 9.0, 0.0], atol=0.01)

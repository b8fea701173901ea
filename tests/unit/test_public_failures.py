"""Failures that people report in public, held here where no other test file is the place for them.

Which test holds which failure is said in each docstring by its symptom.
"""

from __future__ import annotations

import errno
import json
import os
import platform
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
from coded import CLASS_NAMES, class_of_row, classes_of, coded_images, rows_of
from hard_folder import CLASSES as CLASSES_OF_FOLDER
from hard_folder import make_hard_folder
from PIL import Image

from data_scripts.build_hdf5 import BuildError, build_hdf5
from helpers import HDF5Sequence, HDF5Writer, RowReader, direct, fit_generator, inspect_file, layout
from helpers.course.failures import run_in_child

CLASSES = len(CLASS_NAMES)
linux_only = pytest.mark.skipif(platform.system() != "Linux", reason="needs Linux")


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


# --- locks, broken and half-made files


def photos(root: Path, counts: dict[str, int]) -> Path:
    """A folder of so many pictures in each class, all different; the class is in red: 50 times its number."""
    for number, (name, count) in enumerate(sorted(counts.items())):
        (root / name).mkdir(parents=True)
        for picture in range(count):
            Image.new("RGB", (20, 16), (50 * number, picture, 1)).save(root / name / f"{picture}.png")
    return root


def brighten(source: Path) -> None:
    """Make every picture of a folder another one."""
    for number, path in enumerate(sorted(source.rglob("*.png"))):
        Image.new("RGB", (20, 16), (250, number, 250)).save(path)


NO_LOCKS = """
import sys, warnings
import numpy as np
from helpers import HDF5Writer, RowReader, inspect_file
from helpers.course.disks import refuse_locks


def build(path):
    with HDF5Writer(path, (4, 4, 3), ["a"]) as writer:
        writer.append("train", np.zeros((1, 4, 4, 3), np.uint8), [0])
    print("built")

refuse_locks()
path, new = sys.argv[1:]
for job in (
    lambda: RowReader(path, "train_labels").read([0]),
    lambda: print(*inspect_file(path).faults),
    lambda: build(new),
):
    try:
        job()
    except OSError as error:
        print(error)
"""


@linux_only
def test_a_disk_without_locks_is_explained_and_can_be_used(coded_file, tmp_path):
    """No locks available on a network disk: reader and inspector name the cause, the way out and its risk.

    With that way out they read; files are built there without it.
    """
    told = run_in_child(NO_LOCKS, args=(coded_file, tmp_path / "new.h5")).output
    assert told.count("does not support file locks (common on network disks)") == 2
    assert told.count("If nothing writes to the file, set HDF5_USE_FILE_LOCKING=FALSE before Python starts.") == 2
    assert told.endswith("built\n")
    works = "import os; os.environ['HDF5_USE_FILE_LOCKING'] = 'FALSE'" + NO_LOCKS
    told = run_in_child(works, args=(coded_file, tmp_path / "new.h5")).output
    assert "file locks" not in told
    assert told.endswith("built\n")


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOSYS, 524, errno.EIO])
def test_every_error_of_a_disk_without_locks_is_explained(number):
    """Lustre, NFS and ZFS answer with different numbers; HDF5's words about the lock tell them from other errors."""
    error = OSError(number, f"Unable to synchronously open file (unable to lock file, errno = {number})")
    assert layout.explain_open_error("x.h5", error).startswith("The disk that holds x.h5 does not support file locks")


def test_a_build_does_not_disturb_a_training_that_reads_the_older_file(tmp_path):
    """A lock conflict between builder and training: the build succeeds, and no batch mixes the old file and the new."""
    path, source = tmp_path / "food.h5", photos(tmp_path / "photos", {"a": 9, "b": 9})
    build_hdf5(source, path, size=8, progress=False)
    with HDF5Sequence(path, batch_size=4, shuffle=None) as sequence, h5py.File(path) as held:
        old = sequence[0][0].copy()
        brighten(source)
        build_hdf5(source, path, size=8, progress=False)
        np.testing.assert_array_equal(held["train_img"][:4], old)
        try:
            again = sequence[0][0]
        except layout.HDF5FileError as error:  # a reader that had to open the file anew says so
            assert "changed" in str(error) or "anew" in str(error), error  # noqa: PT017
        else:
            np.testing.assert_array_equal(again, old)
    with HDF5Sequence(path, batch_size=4) as sequence:
        assert (sequence[0][0][..., 0] == 250).all()


def test_a_file_that_another_process_writes_names_the_likely_holder(coded_file):
    """A lock conflict with an old kernel: sequence, reader and inspector say who may hold the file."""
    code = f"import h5py; f = h5py.File({str(coded_file)!r}, 'r+'); print('open', flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        holder.stdout.readline()
        told = [sentence_of(open_it, coded_file) for open_it in OPENERS]
        holder.communicate(b"\n")
    for sentence in told:
        assert sentence.startswith(f"{coded_file} is open for writing in another process or notebook kernel.")


def cut_in_half(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def save_a_web_page(path: Path) -> None:
    path.write_text("<!DOCTYPE html><title>404</title>" * 99, encoding="utf-8")


def kill_its_writer(path: Path) -> None:
    code = (
        "import h5py, os, sys, numpy as np; f = h5py.File(sys.argv[1], 'w'); f['x'] = np.zeros((999, 999));"
        "os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", code, path], check=False)


OPENERS = [HDF5Sequence, lambda path: RowReader(path, "train_img"), inspect_file]
NO_FILES = {
    "cut in half": (cut_in_half, "{} is cut short: a copy, download or build stopped early. Copy or build it again."),
    "a web page": (save_a_web_page, "{} is not an HDF5 file, or the process that wrote it was killed before anything"),
    "never closed": (kill_its_writer, "{} cannot be opened as HDF5; it is probably damaged."),
}


def sentence_of(open_it, path: Path) -> str:
    """What a reader, a sequence or the inspector says of a file that does not open."""
    try:
        report = open_it(path)
    except OSError as error:
        return str(error)
    assert not report.readable
    return report.faults[0].message


@pytest.mark.parametrize("case", NO_FILES)
def test_a_broken_file_is_one_plain_sentence_whoever_opens_it(coded_file, case):
    """Truncated, never closed, or a page saved as .h5: cause and next step, the same from all, none of HDF5's alone."""
    make, start = NO_FILES[case]
    make(coded_file)
    sentences = [sentence_of(open_it, coded_file) for open_it in OPENERS]
    assert sentences[0].startswith(start.format(coded_file))
    assert "again." in sentences[0]
    assert len({sentence.partition(" HDF5 said: ")[0] for sentence in sentences}) == 1


def test_a_killed_build_leaves_nothing_under_the_final_name(tmp_path):
    """SIGKILL in the middle: no file of that name, or yesterday's, byte for byte; the next build is complete."""
    source, path = photos(tmp_path / "photos", {"a": 200, "b": 200}), tmp_path / "food.h5"
    code = "import sys; from data_scripts.build_hdf5 import build_hdf5; build_hdf5(*sys.argv[1:], size=299)"
    for older in (None, b"yesterday's"):
        if older:
            path.write_bytes(older)
        with subprocess.Popen([sys.executable, "-c", code, source, path], stderr=subprocess.DEVNULL) as build:
            deadline = time.monotonic() + 60
            part = path.with_name("food.h5.part")
            while build.poll() is None and not part.exists() and time.monotonic() < deadline:
                time.sleep(0.002)
            build.kill()
        assert build.returncode == -9
        assert (path.read_bytes() if path.exists() else None) == older
    build_hdf5(source, path, size=16, progress=False)
    assert inspect_file(path).ok


HALF_WRITTEN = """
import h5py, os, sys
import numpy as np

file = h5py.File(sys.argv[1], "w")
images = file.create_dataset("train_img", (100, 16, 16, 3), "uint8", chunks=(1, 16, 16, 3))
labels = file.create_dataset("train_labels", (100, 4), "uint8")
for row in range(50):
    images[row], labels[row] = row + 1, np.eye(4, dtype=np.uint8)[row % 4]
file.flush()
os.kill(os.getpid(), 9)
"""


def test_a_tail_that_was_never_written_is_found_and_not_trained_on(tmp_path):
    """Black images with all-zero labels at the end of a file: found by the inspector, refused for training."""
    path = tmp_path / "half.h5"
    subprocess.run([sys.executable, "-c", HALF_WRITTEN, path], check=False)
    codes = {fault.code for fault in inspect_file(path).faults}
    assert codes & {"never-written", "black-images"}
    assert "onehot-sum" in codes
    with pytest.raises(layout.LayoutError, match="row 50"):
        HDF5Sequence(path)


def test_a_part_that_is_not_complete_is_not_trained_on(tmp_path):
    """A tail that was never written, in the kit's own file: the mark of completeness is written last."""
    path = tmp_path / "food.h5"

    def stopped_build():
        with HDF5Writer(path, (16, 16, 3), ["a"]) as writer:
            writer.append("train", np.ones((5, 16, 16, 3), np.uint8), [0] * 5)
            writer.checkpoint({})
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        stopped_build()
    with pytest.raises(layout.IncompleteFileError, match="is incomplete: the process that wrote it stopped early"):
        HDF5Sequence(f"{path}.part")
    assert not path.exists()


def test_a_failed_cell_runs_again_without_a_new_kernel(tmp_path):
    """Unable to truncate a file which is already open: the error of the first run is still held, the second works.

    The older file stays as it was until then.
    """
    source, path = photos(tmp_path / "photos", {"a": 9, "b": 9}), tmp_path / "food.h5"
    build_hdf5(source, path, size=8, progress=False)
    older = path.read_bytes()
    (source / "a" / "broken.png").write_bytes(b"")
    held = []
    for _ in range(2):
        with pytest.raises(BuildError) as caught:
            build_hdf5(source, path, size=8, progress=False, on_error="stop")
        held.append(caught)  # with its traceback, and all that its frames refer to
        assert path.read_bytes() == older
    (source / "a" / "broken.png").unlink()
    brighten(source)
    build_hdf5(source, path, size=8, progress=False, on_error="stop")
    assert path.read_bytes() != older
    assert inspect_file(path).ok


# --- indexing, layout, speed


ODD_ROWS = {
    "backwards": [3, 1],
    "the same twice": [1, 1],
    "negative": [-1, -2],
    "mixed": [7, 2, 7, 0, -1],
    "none": [],
    "an array of unsigned numbers": np.array([9, 4], np.uint16),
}


@pytest.mark.parametrize("case", ODD_ROWS)
def test_row_lists_that_hdf5_refuses_are_served_in_the_order_asked_for(coded_file, case):
    """Indexing elements must be in increasing order: any order, repeats and negative rows equal NumPy's indexing."""
    rows = ODD_ROWS[case]
    for name in ("train_img", "train_labels"):
        with h5py.File(coded_file) as file:
            everything = file[name][:]
        with RowReader(coded_file, name) as reader:
            np.testing.assert_array_equal(reader.read(rows), everything[np.asarray(rows, np.int64)])
    with RowReader(coded_file, "train_img") as reader, pytest.raises(TypeError, match="sequence of integers"):
        reader.read([0.0, 1.0])


@pytest.mark.parametrize("chunks", [(1, 16, 16, 3), (7, 5, 16, 1)], ids=["whole images", "cut images"])
def test_no_list_of_rows_ever_reaches_hdf5(tmp_path, monkeypatch, chunks):
    """Seconds for a batch: rows are read one by one or in runs, whatever the storage, never by a list as index."""
    path, asked = tmp_path / "x.h5", []
    images = coded_images(np.arange(103))
    with h5py.File(path, "w") as file:
        file.create_dataset("a", data=images, chunks=chunks, compression="lzf" if chunks[0] > 1 else None)
        file["b"] = class_of_row(np.arange(103))
    read = h5py.Dataset.__getitem__

    def noted(data, index, **options):
        asked.append(index)
        return read(data, index, **options)

    monkeypatch.setattr(h5py.Dataset, "__getitem__", noted)
    with HDF5Sequence(path, images="a", labels="b", classes=CLASSES, batch_size=16, shuffle="full") as sequence:
        served = np.concatenate([rows_of(sequence[batch][0]) for batch in range(len(sequence))])
    assert sorted(served.tolist()) == list(range(103))
    flat = [part for index in asked for part in (index if isinstance(index, tuple) else (index,))]
    assert not [part for part in flat if isinstance(part, (list, np.ndarray)) and np.ndim(part)]


def test_labels_keep_to_their_images_in_any_order(coded_file):
    """Sorted reads, unsorted labels: for shuffled, repeated and negative rows the class in the pixels is the label."""
    rows = [7, 2, 7, 0, 102, 3, 3]
    with HDF5Sequence(coded_file, rows=rows, images="train_img", labels="train_labels", batch_size=7) as sequence:
        for epoch in range(5):
            sequence.set_position(epoch)
            images, labels = sequence[0]
            assert sorted(rows_of(images).tolist()) == sorted(rows)
            np.testing.assert_array_equal(labels.argmax(axis=1), classes_of(images))
    with RowReader(coded_file, "train_img") as images, RowReader(coded_file, "train_labels") as labels:
        asked = [7, 2, -1, 7, 0]
        np.testing.assert_array_equal(classes_of(images.read(asked)), labels.read(asked).argmax(axis=1))
        np.testing.assert_array_equal(rows_of(images.read(asked)), [7, 2, 102, 7, 0])


@pytest.mark.parametrize("options", [{}, {"compression": "gzip"}], ids=["raw", "gzip"])
def test_the_builder_never_leaves_chunks_to_hdf5(tmp_path, options):
    """Automatic chunks cut every image into pieces: the builder's hold one image, and the inspector warns of others."""
    path = tmp_path / "food.h5"
    build_hdf5(photos(tmp_path / "photos", {"a": 60, "b": 60}), path, size=64, progress=False, **options)
    with h5py.File(path) as file:
        assert file["train_img"].chunks == (1, 64, 64, 3)
        images = file["train_img"][:]
    assert {"cut-chunks", "large-chunks"}.isdisjoint(fault.code for fault in inspect_file(path).warnings)
    with h5py.File(path, "r+") as file:
        del file["train_img"]
        file.create_dataset("train_img", data=images, chunks=True)
    assert "cut-chunks" in {fault.code for fault in inspect_file(path).warnings}


def test_a_chunk_above_the_cache_is_warned_of_and_inflated_once_a_batch(tmp_path, monkeypatch):
    """Large gzip chunks that are unpacked for every row again: the inspector says so, and a batch unpacks each once."""
    path = tmp_path / "x.h5"
    images = np.random.default_rng(0).integers(0, 255, (64, 128, 128, 3), dtype=np.uint8)
    with h5py.File(path, "w") as file:
        file.create_dataset("train_img", data=images, chunks=(32, 128, 128, 3), compression="gzip", compression_opts=1)
        file["train_labels"] = np.eye(4, dtype=np.uint8)[np.arange(64) % 4]
    assert "large-chunks" in {fault.code for fault in inspect_file(path).warnings}
    rows = np.random.default_rng(1).permutation(64)
    unpacked = []
    inflate = direct.deflate.zlib_decompress

    def noted(stored, size):
        unpacked.append(size)
        return inflate(stored, size)

    monkeypatch.setattr(direct.deflate, "zlib_decompress", noted)
    with RowReader(path, "train_img") as reader:
        reader.read([0])  # the first read tries the first and the last chunk
        unpacked.clear()
        np.testing.assert_array_equal(reader.read(rows), images[rows])
    assert 1 <= len(unpacked) <= 2  # of 64 rows; the chunk that was read last may still be there


def test_a_class_sorted_folder_becomes_a_mixed_file(tmp_path):
    """One class a batch, unseen classes in the tail: each run of rows of a built file mixes the classes, its tail too.

    A sorted file is warned of.
    """
    path = tmp_path / "food.h5"
    build_hdf5(photos(tmp_path / "photos", dict.fromkeys("abcdef", 60)), path, size=8, progress=False)
    with h5py.File(path) as file:
        for split in layout.SPLITS:
            numbers = file[f"{split}_labels"][:].argmax(axis=1)
            tail = numbers[-max(12, len(numbers) // 10) :]
            assert set(tail) == set(range(6))
            for start in range(0, len(numbers) - 24, 24):
                assert len(set(numbers[start : start + 24])) == 6
    assert "class-sorted" not in {fault.code for fault in inspect_file(path).warnings}
    with h5py.File(path, "r+") as file:
        order = np.argsort(file["train_labels"][:].argmax(axis=1), kind="stable")
        for name in ("train_img", "train_labels", "train_crc32"):
            if name in file:
                file[name][:] = file[name][:][order]
    assert "class-sorted" in {fault.code for fault in inspect_file(path).warnings}


IN_LITTLE_MEMORY = """
import resource, sys
import numpy as np
from helpers import HDF5Writer, RowReader

path, megabytes = sys.argv[1], 40
with HDF5Writer(path, (64, 64, 3), ["a", "b"]) as writer:  # what a first use costs, not counted
    writer.append("train", np.zeros((2, 64, 64, 3), np.uint8), [0, 1])
with RowReader(path, "train_img") as reader:
    reader.read([1, 0])
with open("/proc/self/statm") as file:
    used = int(file.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + megabytes * 10**6,) * 2)
batch = np.random.default_rng(0).integers(0, 255, (256, 64, 64, 3), dtype=np.uint8)
with HDF5Writer(path, (64, 64, 3), ["a", "b"]) as writer:
    for _ in range(40):
        writer.append("train", batch, [0, 1] * 128)
with RowReader(path, "train_img") as images, RowReader(path, "train_labels") as labels:
    rows = np.random.default_rng(1).permutation(256 * 40)
    for start in range(0, len(rows), 256):
        asked = rows[start : start + 256]
        read = images.read(asked)
        assert (read == batch[asked % 256]).all()
        assert labels.read(asked).dtype == read.dtype == np.uint8
print(resource.getrlimit(resource.RLIMIT_AS)[0] - used)
"""


@linux_only
def test_a_file_larger_than_the_memory_is_built_and_read(tmp_path):
    """The whole set in RAM after all: 126 MB are written, then read shuffled, with 40 MB of memory to spare."""
    path = tmp_path / "large.h5"
    done = subprocess.run([sys.executable, "-c", IN_LITTLE_MEMORY, path], capture_output=True, text=True, check=False)
    assert (done.stderr, done.returncode) == ("", 0)
    assert path.stat().st_size > 3 * int(done.stdout)
    with HDF5Sequence(path, batch_size=64) as sequence:
        images, labels = sequence[0]
        assert (images.dtype, labels.dtype) == (np.uint8, np.float32)
    with h5py.File(path) as file:
        assert (file["train_img"].dtype, file["train_labels"].dtype) == (np.uint8, np.uint8)


# --- building: images and labels


@linux_only
@pytest.mark.parametrize("storage", ["raw", "jpeg"])
def test_a_folder_with_every_fault_becomes_a_correct_file(tmp_path, storage):
    """Grey, CMYK, palette, alpha, 16 bits, sideways, broken, odd names, links and copies: each file has its right fate.

    Written in its class and colour, skipped or ignored with its reason; the counts agree.
    """
    fates = make_hard_folder(tmp_path / "photos")
    report = build_hdf5(tmp_path / "photos", tmp_path / "x.h5", size=16, storage=storage, progress=False)
    told = [("skipped", file) for file in report.skipped_files] + [("ignored", file) for file in report.ignored_files]
    told = {file.path: (what, file.reason, file.twin) for what, file in told}
    expected = {path: (fate.what, fate.reason, fate.twin) for path, fate in fates.items() if fate.what != "written"}
    assert told == expected
    written = [(fate.class_name, fate.colour) for fate in fates.values() if fate.what == "written"]
    assert report.found == len(fates) == len(written) + len(told)
    assert (report.class_names, report.empty_classes, report.unreadable_classes) == (
        CLASSES_OF_FOLDER,
        ("hollow",),
        ("broken",),
    )
    assert sorted(rows_in(tmp_path / "x.h5", written, 4 if storage == "raw" else 8)) == sorted(written)
    lines = report.text(None).splitlines()
    assert all(line.isprintable() for line in lines)
    assert sum("new\\nline" in line or "latin" in line for line in lines) == 0  # they are good, and in no list
    assert inspect_file(tmp_path / "x.h5").ok


@linux_only
def test_a_folder_with_faults_can_stop_the_build_instead(tmp_path):
    """One truncated picture, by choice, ends the build with its name, and nothing is written."""
    make_hard_folder(tmp_path / "photos")
    with pytest.raises(BuildError, match=r"Nothing was written\.|--on-error skip"):
        build_hdf5(tmp_path / "photos", tmp_path / "x.h5", size=16, on_error="stop", progress=False)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["photos"]


def rows_in(path: Path, known: list, tolerance: int) -> list[tuple[str, tuple[int, int, int]]]:
    """(class name, colour) of each row of a file: the known colour that all its pixels have."""
    colours, rows = np.array([colour for _, colour in known]), []
    for split in layout.SPLITS:
        with HDF5Sequence(path, split, shuffle=None, batch_size=99) as sequence:
            images, labels = sequence[0]
            names = sequence.class_names
        for image, label in zip(images.astype(int), labels, strict=True):
            far = np.abs(image.reshape(1, -1, 3) - colours[:, None]).max(axis=(1, 2))
            assert far.min() <= tolerance
            rows.append((names[label.argmax()], known[int(far.argmin())][1]))
    return rows


@pytest.mark.parametrize("listing", ["sorted", "reversed", "mixed"])
def test_class_numbers_do_not_depend_on_the_order_of_the_folder(tmp_path, monkeypatch, listing):
    """Class numbers from directory order: sorted names, one mapping for all splits, stored, and read by every split.

    With a class that is missing in validation and test, and stray files beside the class folders.
    """
    source = photos(tmp_path / "photos", {"b": 20, "a": 1, "c": 20})
    (source / ".DS_Store").write_bytes(b"\0\0\0\1Bud1")
    (source / "cover.png").write_bytes(b"")
    real = {"scandir": os.scandir, "listdir": os.listdir}
    orders = {
        "sorted": sorted,
        "reversed": lambda names: sorted(names)[::-1],
        "mixed": lambda names: sorted(names)[1::2] + sorted(names)[::2],
    }
    monkeypatch.setattr(os, "listdir", lambda *path: orders[listing](real["listdir"](*path)))
    path = tmp_path / "x.h5"
    report = build_hdf5(source, path, size=8, progress=False)
    assert report.missing_classes("valid") == report.missing_classes("test") == ["a"]
    for split in layout.SPLITS:
        with HDF5Sequence(path, split, batch_size=99) as sequence:
            assert tuple(sequence.class_names) == ("a", "b", "c")
            images, labels = sequence[0]
            np.testing.assert_array_equal(labels.argmax(axis=1), images[:, 0, 0, 0] // 50)  # the class is in the pixels


def test_one_hot_rows_are_as_wide_as_the_class_list(tmp_path):
    """Expected 10, got 9: every batch of every split has the width of the stored class list."""
    path = tmp_path / "x.h5"
    build_hdf5(photos(tmp_path / "photos", {"a": 20, "b": 20, "z": 1}), path, size=8, progress=False)
    for kind in ("onehot", "sparse"):
        for split in layout.SPLITS:
            with HDF5Sequence(path, split, batch_size=1, label_kind=kind) as sequence:
                shapes = {sequence[batch][1].shape for batch in range(len(sequence))}
                assert shapes == {(1, 3) if kind == "onehot" else (1,)}
                assert sequence.num_classes == 3


def test_labels_that_start_at_one_are_refused(tmp_path):
    """One class too few: class numbers 1 to 3 of three classes name the first row that has none."""
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file["x"], file["y"] = np.zeros((6, 8, 8, 3), np.uint8), np.array([1, 2, 3, 1, 2, 3])
    with pytest.raises(layout.LayoutError, match="row 2"):
        HDF5Sequence(path, images="x", labels="y", classes=3)

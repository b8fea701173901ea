"""Makes each error of ``known_errors.toml`` happen and returns what is printed: for each code one function a text.

Most run in this process, in a folder of their own. What forks, crashes, or has a system call refused runs in a child.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import pickle
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import h5py
import keras
import numpy as np
from children import HangsOnRow, KillsItselfOnRow, end_at_once
from coded import CLASS_NAMES, make_coded_file
from PIL import Image
from provoked_child import open_without_locks, read_in_forks, read_whole, write_to_a_full_disk

from helpers import HDF5Sequence, RowReader, fit_generator
from helpers.course.failures import run_in_child

CLASSES = len(CLASS_NAMES)
FORK, FILTER = "fork", "a filter for system calls"
FORKING = {"handle-shared-by-workers"}  # what the texts of these take from Linux
FILTERED = {"no-locks-on-this-disk", "disk-full"}


def printed(fail: Callable[[], object]) -> str:
    """The last line that Python prints when ``fail`` ends in an error or a warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            fail()
        except (Exception, SystemExit) as error:
            name = type(error).__qualname__
            module = type(error).__module__
            return f"{name if module == 'builtins' else f'{module}.{name}'}: {error}"
    return "nothing happened"


def printed_by_child(job: Callable | str, *args, **limits) -> str:
    """All that a child prints."""
    return run_in_child(job, args=args, **limits).output


# --- A: handles


def shared_file_object(wanted: str) -> str:
    """Errors that four forked workers meet at one gzip file through one Python file object, with ``wanted`` in them."""
    with h5py.File("packed.h5", "w") as file:
        data = np.random.default_rng(0).integers(256, size=(400, 32, 32, 3), dtype=np.uint8)
        file.create_dataset("train_img", data=data, chunks=(1, 32, 32, 3), compression="gzip")
    found = run_in_child(read_in_forks, args=(str(Path("packed.h5").resolve()), wanted), needs=FORK)
    return found.result or found.output


def pickle_a_dataset():
    with h5py.File(coded()) as file:
        pickle.dumps(file["train_img"])


def send_a_handle_to_workers():
    with h5py.File(coded()) as file, HDF5Sequence(coded(), workers=1, use_multiprocessing=True) as sequence:
        data = file["train_img"]
        sequence.source.augment = lambda image, rng: data and image
        fit_generator(model(), sequence, verbose=0)


def coded() -> Path:
    """A coded file in this folder."""
    path = Path("food.h5")
    return path if path.exists() else make_coded_file(path, rows={"train": 40})


def closed_file():
    with h5py.File(coded()) as file:
        return file, file["train_img"], file["/"]


def iterate_after_close():
    next(iter(closed_file()[1]))


def look_up_after_close():
    closed_file()[2]["train_img"]


def list_after_close():
    list(closed_file()[0])


def closed_dataset_for_a_sequence():
    HDF5Sequence(closed_file()[1])


# --- B: locks and broken files


def no_locks(number: int) -> str:
    """What HDF5 prints on a disk that answers lock requests with this number."""
    return printed_by_child(open_without_locks, str(coded().resolve()), number, needs=FILTER)


def with_a_writer_elsewhere(fail: Callable[[Path], object]) -> str:
    """What ``fail(path)`` prints while another process has the file open for writing."""
    code = f"import h5py; f = h5py.File({str(coded().resolve())!r}, 'r+'); print('open', flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        holder.stdout.readline()
        try:
            return printed(lambda: fail(Path("food.h5")))
        finally:
            holder.communicate(b"\n")


def open_a_half():
    with h5py.File("half.h5", "w") as file:
        file.create_dataset("x", data=np.arange(20_000, dtype=np.int64))
    os.truncate("half.h5", Path("half.h5").stat().st_size // 2)
    h5py.File("half.h5", "r")


def open_a_page():
    Path("page.h5").write_text("<html>404</html>" * 100, encoding="utf-8")
    h5py.File("page.h5", "r")


def open_a_file_with_a_hole():
    """The root group's header as a killed writer leaves it: reserved in the file, never written."""
    with h5py.File("hole.h5", "w") as file:
        file["x"] = 1
        place = h5py.h5o.get_info(file.id).addr
    with Path("hole.h5").open("r+b") as raw:
        raw.seek(place)
        raw.write(bytes(16))
    h5py.File("hole.h5", "r")["x"]


def train_on_an_incomplete_file():
    HDF5Sequence(make_coded_file(Path("part.h5"), rows={"train": 40}, complete=False))


def create_twice():
    with h5py.File("mine.h5", "w"):
        h5py.File("mine.h5", "w")


# --- C: processes

CLASS_OF_A_CELL = """
import multiprocessing
class Generator:
    pass
if __name__ == "__main__":
    import __main__
    del __main__.__file__
    __main__.__spec__ = None
    with multiprocessing.get_context("spawn").Pool(1, initializer=print, initargs=(Generator(),)) as pool:
        pool.apply(abs, (-1,))
"""
NO_GUARD = "import multiprocessing; multiprocessing.get_context('spawn').Process(target=print).start()"


def class_of_a_cell() -> str:
    """A pool hands an object of a class of a notebook cell to spawned workers; it would go on for ever."""
    return printed_by_child(CLASS_OF_A_CELL, seconds=3, clock_starts_at="Can't get attribute")


def script_without_guard() -> str:
    """A script that starts a spawned process at its top."""
    Path("train.py").write_text(NO_GUARD, encoding="utf-8")
    return subprocess.run([sys.executable, "train.py"], capture_output=True, text=True, timeout=60).stderr


def train_with(augment, **settings):
    with HDF5Sequence(coded(), batch_size=8, workers=1, use_multiprocessing=True, shuffle=None, **settings) as sequence:
        sequence.source.augment = augment  # not tried in this process first
        fit_generator(model(), sequence, verbose=0)


def kill_a_worker():
    train_with(KillsItselfOnRow(20))


def exit_in_a_worker():
    train_with(KillsItselfOnRow(20, exit_code=1))


def stick_in_a_worker():
    train_with(HangsOnRow(20), stall_timeout_s=1)


def kill_a_worker_of_a_pool():
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        pool.submit(end_at_once).result()


def fail_in_somebody_elses_dataset():
    model().fit(Images(fail_at=3, workers=2), verbose=0)


# --- D: Keras


class Images(keras.utils.PyDataset):
    """A small index-based dataset, with the fault that is asked for."""

    def __init__(self, length=4, width=CLASSES, fail_at=None, super_init=True, **settings):
        if super_init:
            super().__init__(**settings)
        self.length, self.width, self.fail_at = length, width, fail_at

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        if index == self.fail_at:
            raise ValueError("no such cheese")
        return np.zeros((4, 16, 16, 3), np.uint8), np.zeros((4, self.width), np.uint8)


def model(kind: str = "sequential", loss: str = "categorical_crossentropy"):
    """The smallest model that trains on such images."""
    layers = [keras.layers.Flatten(), keras.layers.Dense(CLASSES, activation="softmax")]
    inputs = keras.Input((16, 16, 3))
    model = keras.Sequential([inputs, *layers])
    if kind == "functional":
        model = keras.Model(inputs, layers[1](layers[0](inputs)))
    model.compile("sgd", loss, metrics=["accuracy"])
    return model


def images_once() -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """A plain generator that ends after two batches."""
    for index in range(2):
        yield Images()[index]


def images_of_two_sizes() -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """A plain generator whose third batch has images of another size."""
    yield from images_once()
    yield np.zeros((4, 17, 16, 3), np.uint8), np.zeros((4, CLASSES), np.uint8)


def import_hdf5matrix():
    from keras.utils import HDF5Matrix  # noqa: F401


def monitor_val_acc():
    with HDF5Sequence(coded()) as train, HDF5Sequence(coded()) as valid:
        early = keras.callbacks.EarlyStopping(monitor="val_acc")
        fit_generator(model(), train, validation_data=valid, callbacks=[early], verbose=0)


def class_weight(weights, fit) -> str:
    """What ``fit`` says of class weights."""
    with HDF5Sequence(coded(), workers=0) as train:
        return printed(lambda: fit(model(), train, class_weight=weights, verbose=0))


# --- E, F, G, H, I


def images_minus_mean():
    images = np.zeros((1, 2, 2, 3), np.uint8)
    images -= 0.5


def images_by_255():
    images = np.zeros((1, 2, 2, 3), np.uint8)
    images /= 255.0


def add_300():
    np.zeros(3, np.uint8) + 300


def warp_without_scipy() -> str:
    """The old ImageDataGenerator in a Python that has no SciPy."""
    code = """
        import sys
        sys.modules["scipy"] = None
        import numpy as np, tensorflow as tf
        change = tf.keras.preprocessing.image.ImageDataGenerator(rotation_range=20)
        change.apply_transform(np.zeros((8, 8, 3)), {"theta": 20})
    """
    return printed_by_child(code, seconds=120)


def old_address():
    importlib.import_module("keras.preprocessing.image").ImageDataGenerator  # noqa: B018 - asked for, and not there


def import_from_old_address():
    from keras.preprocessing.image import ImageDataGenerator  # noqa: F401


def unsorted_rows():
    with h5py.File(coded()) as file:
        file["train_img"][[3, 1]]


def repeated_rows():
    with h5py.File(coded()) as file:
        file["train_img"][[3, 3]]


def mask_of_another_length():
    with h5py.File(coded()) as file:
        file["train_img"][np.zeros(3, bool)]


def whole_array():
    with h5py.File("hollow.h5", "w") as file:
        file.create_dataset("train_img", (40_000, 64, 64, 3), np.uint8, chunks=(1, 64, 64, 3))
    return printed_by_child(read_whole, str(Path("hollow.h5").resolve()), memory_mb=512)


def store(picture: np.ndarray):
    with h5py.File("new.h5", "w") as file:
        file.create_dataset("train_img", (4, 64, 64, 3), np.uint8)[0] = picture


def open_half_a_jpeg():
    Image.effect_noise((64, 64), 50).save("photo.jpg")
    os.truncate("photo.jpg", Path("photo.jpg").stat().st_size // 2)
    with Image.open("photo.jpg") as picture:
        picture.load()


def open_no_picture():
    Path("photo.jpg").write_bytes(b"not a picture")
    Image.open("photo.jpg")


def long_queue():
    with HDF5Sequence(coded(), batch_size=8, max_queue_size=10**8, workers=1) as train:
        fit_generator(model(), train, verbose=0, steps_per_epoch=1)


def read_a_damaged_row():
    damaged = make_coded_file(Path("damaged.h5"), rows={"train": 40}, compression="gzip")
    with h5py.File(damaged) as file:
        place = file["train_img"].id.get_chunk_info(7).byte_offset
    with damaged.open("r+b") as raw:
        raw.seek(place)
        raw.write(b"\xff" * 64)
    RowReader(damaged, "train_img").read([7])


def ask_for_images():
    with h5py.File(coded()) as file:
        file["images"]


def create_a_name_twice():
    with h5py.File("new.h5", "w") as file:
        file["x"] = 1
        file["x"] = 2


def create_a_dataset_twice():
    with h5py.File("new.h5", "w") as file:
        file.create_dataset("x", (4,), np.uint8)
        file.create_dataset("x", (4,), np.uint8)


def crash() -> str:
    """A script that reads memory at address 0, run by a shell as people do."""
    command = f"{sys.executable} -c 'import ctypes; ctypes.string_at(0)'; true"
    answer = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    return answer.stderr


def full_disk() -> str:
    """A disk that says at each write that it is full."""
    return printed_by_child(write_to_a_full_disk, str(Path("new.h5").resolve()), needs=FILTER)


def _all(*fails: Callable[[], object]) -> tuple[Callable[[], str], ...]:
    return tuple((lambda fail=fail: printed(fail)) for fail in fails)


# In the order of the texts of the entry.
PROVOKED: dict[str, tuple[Callable[[], str], ...]] = {
    "handle-shared-by-workers": (lambda: shared_file_object("filter returned failure"),),
    "handle-in-a-pickle": _all(pickle_a_dataset, send_a_handle_to_workers),
    "closed-handle": _all(iterate_after_close, look_up_after_close, list_after_close, closed_dataset_for_a_sequence),
    "no-locks-on-this-disk": tuple((lambda number=number: no_locks(number)) for number in (37, 524, 5)),
    "locked-by-a-writer": (
        lambda: with_a_writer_elsewhere(lambda path: h5py.File(path, "r")),
        lambda: with_a_writer_elsewhere(HDF5Sequence),
    ),
    "truncated": _all(open_a_half),
    "not-hdf5": _all(open_a_page),
    "never-closed": _all(open_a_file_with_a_hole),
    "never-written-rows": _all(train_on_an_incomplete_file),
    "already-open-here": _all(create_twice),
    "class-of-a-notebook-cell": (class_of_a_cell,),
    "no-main-guard": (script_without_guard,),
    "worker-died": _all(kill_a_worker, exit_in_a_worker, kill_a_worker_of_a_pool),
    "error-in-a-worker": _all(fail_in_somebody_elses_dataset),
    "worker-stalled": _all(stick_in_a_worker),
    "fit-generator-is-gone": _all(
        lambda: model().fit_generator(images_once()), lambda: model("functional").fit_generator(images_once())
    ),
    "workers-of-fit": _all(
        lambda: model().fit(Images(), workers=2),
        lambda: model().fit(Images(), use_multiprocessing=True),
        lambda: model().fit(Images(), max_queue_size=2),
    ),
    "no-super-init": _all(lambda: model().fit(Images(super_init=False), verbose=0)),
    "length-not-whole": _all(lambda: model().fit(Images(length=np.floor(103 / 10)), verbose=0)),
    "length-zero": _all(lambda: model().fit(Images(length=0), verbose=0)),
    "last-batch": _all(lambda: HDF5Sequence(coded())[7]),
    "ran-out-of-data": _all(
        lambda: model().fit(images_once(), steps_per_epoch=2, epochs=3, shuffle=False, verbose=0),
        lambda: fit_generator(model(), images_once(), steps_per_epoch=2, epochs=3, verbose=0),
    ),
    "rows-never-trained-on": _all(
        lambda: fit_generator(model(), Images(length=40, workers=2), steps_per_epoch=10, verbose=0)
    ),
    "generator-shared-by-threads": _all(lambda: ask_inside()),
    "fit-shuffles-batches-only": _all(lambda: fit_generator(model(), HDF5Sequence(coded()), shuffle=True)),
    "checkpoint-name": _all(
        lambda: keras.callbacks.ModelCheckpoint("best.hdf5"),
        lambda: keras.callbacks.ModelCheckpoint("best.keras", save_weights_only=True),
    ),
    "monitor-name": _all(monitor_val_acc),
    "uint8-arithmetic": _all(images_minus_mean, images_by_255, add_300),
    "image-data-generator": (warp_without_scipy, *_all(import_from_old_address, old_address)),
    "rows-not-increasing": _all(unsorted_rows, repeated_rows, mask_of_another_length),
    "whole-set-in-memory": (whole_array,),
    "odd-images": _all(
        lambda: store(np.zeros((64, 64), np.uint8)),
        lambda: store(np.zeros((64, 64, 4), np.uint8)),
        open_half_a_jpeg,
        open_no_picture,
    ),
    "one-hot-width": _all(lambda: model().fit(Images(width=9), verbose=0)),
    "class-weights-ignored": (
        lambda: class_weight({"0": 5.0, "1": 1.0}, fit_generator),
        lambda: class_weight([5.0, 1.0], lambda model, data, **settings: model.fit(data, **settings)),
    ),
    "queue-memory": _all(long_queue),
    "damaged-chunk": _all(read_a_damaged_row),
    "file-not-found-in-a-worker": _all(lambda: h5py.File("food.h5", "r")),
    "crash-in-c-code": (crash,),
    "disk-full": (full_disk,),
    "no-such-dataset": _all(ask_for_images, lambda: HDF5Sequence(coded(), images="images", labels="labels")),
    "batch-of-another-form": _all(
        lambda: model().fit(([batch] for batch in images_once()), verbose=0, shuffle=False),
        lambda: model().fit(images_of_two_sizes(), steps_per_epoch=3, verbose=0, shuffle=False),
    ),
    "hdf5matrix-is-gone": _all(import_hdf5matrix, lambda: keras.utils.HDF5Matrix),
    "name-already-exists": _all(create_a_name_twice, create_a_dataset_twice),
}


def ask_inside():
    """A generator that asks itself for a batch, as a second thread would while the first is inside."""

    def batches():
        yield next(stream)

    stream = batches()
    next(stream)

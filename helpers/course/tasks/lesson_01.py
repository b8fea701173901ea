"""Questions on lesson 01: what a file holds and costs, reading and writing it, its faults, a folder of your own."""

from __future__ import annotations

import gc
import os
import tempfile
import tracemalloc
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path
from unittest import mock

import cv2
import h5py
import numpy as np

from helpers.course.probes import (
    AnswerRaised,
    Wrong,
    a_function,
    a_list,
    a_number,
    describe,
    listed_backwards,
    of_shape,
    run,
    same,
    task,
    that,
)


def _several(value: object, what: str, expected: str) -> list:
    """``value`` as a list; ``expected`` is what the exercise calls it."""
    try:
        return a_list(value, what)
    except (Wrong, TypeError):  # TypeError: an array without axes
        raise Wrong("wrong type", f"{what}: {expected}", describe(value)) from None


# --- 01.1 -----------------------------------------------------------------------------------------------------------

_IMAGE, _CLASSES = 299 * 299 * 3, 101
_BYTES = {"uint8": 1, "float32": 4, "float64": 8}
_SIZES = [
    (1_000, "float32", "float64"),
    (101_000, "uint8", "uint8"),
    (20_200, "float64", "uint8"),
    (1, "uint8", "float32"),
]


def _gb(rows: int, image_type: str, label_type: str) -> float:
    return rows * (_IMAGE * _BYTES[image_type] + _CLASSES * _BYTES[label_type]) / 1e9


@task(
    "01.1",
    "How large is the file?",
    objective=2,
    points=2,
    hints={
        "MemoryError": "No array has to exist: count its numbers, and take bytes from np.dtype(name).itemsize.",
        "bytes, not GB": "The number of bytes is right. How many of them are one GB, as disks are sold?",
        "another unit": "The digits are right. Count the zeros between bytes and GB.",
        "powers of two": "1,024 x 1,024 x 1,024 bytes are a GiB. Here, as in the question, a GB has 10**9 bytes.",
        "one colour": "How many numbers has a pixel?",
        "types not used": "Other types gave the same size. How many bytes has one number of each type?",
        "bits for bytes": "The name of a type counts bits: 8 of them are a byte.",
        "labels left out": "The file holds a label for each image. They are few bytes, but they are asked for.",
        "one number a label": "One-hot: a label is a row of zeros with a single 1. How long is such a row?",
        "labels as the images": "Images and labels can have different types. Which one did you use for the labels?",
        "rounded": "Nearly. Give the number as it comes, without rounding.",
        "another size": "Work it out for one row by hand: numbers in an image and in a label, times the bytes of each.",
    },
    note="27.1 GB are bytes as the camera made them, with labels of small numbers; as float32 they would be 108.",
)
def size_of_the_file(answer):
    function = a_function(answer, "rows, image_type, label_type")
    found = {case: a_number(run(function, *case), f"answer{case}") for case in _SIZES}
    yield
    for case, got in found.items():
        _size_is_right(case, got)
    yield


def _size_is_right(case: tuple, got: float) -> None:
    rows, image, label = case[0], _BYTES[case[1]], _BYTES[case[2]]
    right = _gb(*case)
    mistakes = {
        "bytes, not GB": right * 1e9,
        "another unit": (right * 1e3, right * 1e6, right / 1e3),
        "powers of two": right * 1e9 / 2**30,
        "one colour": rows * (_IMAGE / 3 * image + _CLASSES * label) / 1e9,
        "types not used": rows * (_IMAGE + _CLASSES) / 1e9,
        "bits for bytes": 8 * right,
        "labels left out": rows * _IMAGE * image / 1e9,
        "one number a label": rows * (_IMAGE * image + label) / 1e9,
        "labels as the images": rows * (_IMAGE + _CLASSES) * image / 1e9,
    }
    if np.isclose(got, right, rtol=1e-6, atol=0):
        return
    what = f"answer{case}: {right:.9g}"
    for name, values in mistakes.items():
        that(not np.isclose(got, values, rtol=1e-6, atol=0).any(), name, what, f"{got:.9g}")
    that(not np.isclose(got, right, rtol=0.02, atol=0), "rounded", what, f"{got:.9g}")
    raise Wrong("another size", what, f"{got:.9g}")


# --- 01.2 -----------------------------------------------------------------------------------------------------------

_PIXELS = np.arange(4 * 6 * 5 * 3, dtype=np.uint8).reshape(4, 6, 5, 3)
_TREE = {
    "north/camera_1/images": _PIXELS,
    "north/camera_1/labels": np.array([0, 2, 1, 0]),
    "north/camera_2/images": _PIXELS[:3].astype("float32"),
    "south/images": _PIXELS[:2],
    "scale": np.float64(0.5),
    "weights": np.ones((3, 2)),
}
_EMPTY = "north/spare"  # a group with nothing in it
_NOTES = {
    "": {"made": "Monday", "version": 3},
    "north": {"place": "canteen"},
    "north/camera_2/images": {"mean": np.array([0.25, 0.5, 0.75])},
    _EMPTY: {"place": "cellar"},
}


@task(
    "01.2",
    "What is in this file?",
    objective=1,
    points=3,
    hints={
        "only the top": "A group can hold groups. How do you look into each of them, however deep they lie?",
        "groups among the datasets": "A group has no shape and no type. What tells a group from a dataset?",
        "the last part of the name": "Two cameras have `images` each. The whole name says which is which.",
        "reads the pixels": "Your function read a dataset. What knows its shape and type without reading a number?",
        "datasets missing": "Some datasets of the file are not in your dictionary.",
        "wrong entry": "Each entry is a pair: the shape, a tuple, and the type, such as 'uint8'.",
        "attributes of the file left out": "The file as a whole has notes, too. Does your walk visit the file itself?",
        "attributes of groups left out": "Groups carry notes, also groups that hold nothing.",
        "attributes of datasets left out": "Datasets carry notes, too.",
        "other names of attributes": "The name of what carries it, then @, then its own name: `camera_1@place`.",
        "other values of attributes": "Give the values as h5py reads them.",
        "emptied the file": "The file was another one afterwards. What does the mode do in which you open it?",
        "AttributeError": "You asked a group for what only a dataset has, or the other way round.",
    },
    note="A file that nobody described can be described in a few lines, and not one pixel is read for it.",
)
def what_is_in_the_file(answer):
    function = a_function(answer, "path")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        path = _tree_file(Path(folder) / "unknown.h5")
        with _watched_reads() as reads:
            result = _asked_about(function, path, "answer(path)")
        parts = _several(result, "answer(path)", "two dictionaries, (datasets, attributes)")
        that(len(parts) == 2, "wrong type", "two dictionaries, (datasets, attributes)", describe(result))
        datasets, attributes = (
            _by_name(part, name) for part, name in zip(parts, ("datasets", "attributes"), strict=True)
        )
    yield
    _datasets_are_right(datasets)
    that(not reads, "reads the pixels", "shapes and types, from the handles alone", "a dataset was read")
    yield
    _attributes_are_right(attributes)
    yield


def _tree_file(path: Path) -> Path:
    with h5py.File(path, "w") as file:
        for name, data in _TREE.items():
            file[name] = data
        file.create_group(_EMPTY)
        for name, notes in _NOTES.items():
            (file[name] if name else file).attrs.update(notes)
    return path


def _asked_about(function: Callable, path: Path, call: str) -> object:
    """What an answer says about a file, which must still be there, as it was."""
    size = path.stat().st_size
    try:
        result = run(function, path, call=call)
    except (AnswerRaised, Wrong):
        _is_as_it_was(path, size, call)
        raise
    _is_as_it_was(path, size, call)
    return result


def _is_as_it_was(path: Path, size: int, call: str) -> None:
    kept = path.is_file() and path.stat().st_size == size
    that(kept, "emptied the file", f"{call}: the file as it was before", "another one, or none")


def _by_name(part: object, what: str) -> dict[str, object]:
    that(isinstance(part, Mapping), "wrong type", f"{what}: a dictionary", describe(part))
    that(all(isinstance(key, str) for key in part), "wrong type", f"{what}: names as keys, text", describe(list(part)))
    return {key.lstrip("/"): value for key, value in part.items()}


def _datasets_are_right(datasets: dict) -> None:
    names, groups = set(_TREE), {name.rpartition("/")[0] for name in _TREE} | {"north", _EMPTY}
    expected = f"the {len(names)} datasets of the file, such as 'north/camera_1/images'"
    got = set(datasets)
    listed = f"{len(got)} names: {', '.join(sorted(got))}"
    that(not got & groups, "groups among the datasets", expected, listed)
    that(got - names or got != {"scale", "weights"}, "only the top", expected, listed)
    ends = {name.rpartition("/")[2] for name in names}
    that(not got & (ends - names), "the last part of the name", expected, listed)
    same(sorted(got), sorted(names), "datasets missing", "names of the datasets")
    for name, data in _TREE.items():
        shape, kind = _entry(name, datasets[name])
        right = f"{name}: ({data.shape}, '{data.dtype}')"
        that((shape, kind) == (data.shape, data.dtype), "wrong entry", right, describe(datasets[name]))


def _entry(name: str, entry: object) -> tuple:
    right = f"{name}: a pair (shape, type)"
    that(isinstance(entry, tuple | list) and len(entry) == 2, "wrong entry", right, describe(entry))
    shape, kind = entry
    that(isinstance(shape, tuple | list) and kind is not None, "wrong entry", right, describe(entry))
    try:
        return tuple(shape), np.dtype(kind)
    except (TypeError, ValueError):
        raise Wrong("wrong entry", right, describe(entry)) from None


def _attributes_are_right(attributes: dict) -> None:
    right = {f"{name}@{key}": value for name, notes in _NOTES.items() for key, value in notes.items()}
    missing = [name for name in right if name not in attributes]
    kinds = {
        "attributes of the file left out": [name for name in right if name.startswith("@")],
        "attributes of groups left out": ["north@place", f"{_EMPTY}@place"],
        "attributes of datasets left out": ["north/camera_2/images@mean"],
    }
    expected, got = f"the {len(right)} attributes of the file", f"without {', '.join(missing)}"
    strange = sorted(set(attributes) - set(right))
    that(
        not strange,
        "other names of attributes",
        "names such as 'north@place' and '@made'",
        ", ".join(map(repr, strange[:3])),
    )
    for name, ones in kinds.items():
        that(not set(ones) & set(missing), name, expected, got)
    for name, value in right.items():
        same(attributes[name], value, "other values of attributes", name)


@dataclass(frozen=True)
class _Read:
    """One read from a dataset: how many numbers, and whether a list of rows was the index."""

    numbers: int
    by_list: bool


@contextmanager
def _watched_reads() -> Iterator[list[_Read]]:
    """Notes each read of an h5py dataset."""
    reads: list[_Read] = []
    getitem, read_direct = h5py.Dataset.__getitem__, h5py.Dataset.read_direct

    def watched(self, args, *more, **named):
        result = getitem(self, args, *more, **named)
        index = args if isinstance(args, tuple) else (args,)
        reads.append(_Read(np.size(result), any(np.ndim(one) for one in index if isinstance(one, list | np.ndarray))))
        return result

    def watched_direct(self, dest, source_sel=None, dest_sel=None):
        read_direct(self, dest, source_sel, dest_sel)
        part = np.broadcast_to(0, self.shape)
        reads.append(_Read(part.size if source_sel is None else part[source_sel].size, by_list=False))

    with (
        mock.patch.object(h5py.Dataset, "__getitem__", watched),
        mock.patch.object(h5py.Dataset, "read_direct", watched_direct),
    ):
        yield reads


# --- 01.3 -----------------------------------------------------------------------------------------------------------

_MIXED = [7, 2, 21, 0, 13]
_ODD = [29, 4, 4, -1, 11, -30, 4]


@task(
    "01.3",
    "Rows in the order asked for",
    objective=3,
    points=4,
    hints={
        "TypeError": "HDF5 takes a list of rows only when it increases. There is another way to ask for rows.",
        "file order": "The rows came in the order of the file: an image would get another one's label.",
        "other rows": "Compare your result with `dataset[:][rows]`, on a small file.",
        "repeated rows once": "A row that is asked for three times is wanted three times.",
        "negative rows": "As in Python, row -1 is the last one.",
        "list of rows": "It is right, and slow: somewhere a list of rows is the index. The lesson timed it.",
        "reads more than asked": "More was read than the rows that were asked for. With 27 GB that does not go well.",
        "made for images": "Labels are a dataset as well. Take shape and type from the dataset.",
        "IndexError": "Which row numbers did your function ask for, and does the dataset have those?",
    },
    note="A shuffled batch costs its own bytes and no more, and its images stay with their labels.",
)
def rows_in_any_order(answer):
    function = a_function(answer, "dataset, rows")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        path = Path(name) / "rows.h5"
        rng = np.random.default_rng(0)
        data = {
            "images": rng.integers(0, 256, (30, 6, 5, 3), dtype=np.uint8),
            "labels": rng.random((30, 4), dtype="float32"),
        }
        with h5py.File(path, "w") as file:
            file.create_dataset("images", data=data["images"], chunks=(1, 6, 5, 3))
            file["labels"] = data["labels"]
        with h5py.File(path, "r") as file:
            yield from _reads_rows(function, file, data)


def _reads_rows(function: Callable, file: h5py.File, data: dict[str, np.ndarray]) -> Iterator[None]:
    got, _ = _rows_of(function, file, "images", _MIXED)
    of_shape(got, (len(_MIXED), 6, 5, 3), f"answer(images, {_MIXED})")
    that(got.dtype == np.uint8, "wrong type", f"answer(images, {_MIXED}): uint8, as in the dataset", f"{got.dtype}")
    yield
    _are_rows(got, data["images"], "images", _MIXED)
    labels, _ = _rows_of(function, file, "labels", _MIXED)
    what = f"answer(labels, {_MIXED})"
    as_asked = labels.shape == (len(_MIXED), 4) and labels.dtype == np.float32
    that(as_asked, "made for images", f"{what}: shape ({len(_MIXED)}, 4) of float32", describe(labels))
    _are_rows(labels, data["labels"], "labels", _MIXED)
    yield
    reads = {}
    for name in ("images", "labels"):
        got, reads[name] = _rows_of(function, file, name, _ODD)
        called = f"answer({name}, {_ODD})"
        that(len(got) != len(set(_ODD)), "repeated rows once", f"{called}: {len(_ODD)} rows", f"{len(got)} rows")
        of_shape(got, (len(_ODD), *data[name].shape[1:]), called)
        _are_rows(got, data[name], name, _ODD)
    yield
    for name, some in reads.items():
        most, numbers = len(_ODD) * data[name][0].size, sum(read.numbers for read in some)
        called = f"answer({name}, {len(_ODD)} rows)"
        that(numbers <= most, "reads more than asked", f"{called}: {most} numbers read, at most", f"{numbers}")
        that(not any(read.by_list for read in some), "list of rows", f"{called}: slices or single rows", "a list index")
    yield


def _rows_of(function: Callable, file: h5py.File, name: str, rows: list[int]) -> tuple[np.ndarray, list[_Read]]:
    call = f"answer({name}, {rows})"
    with _watched_reads() as reads:
        got = run(function, file[name], np.array(rows), call=call)
    that(hasattr(got, "dtype") and hasattr(got, "shape"), "wrong type", f"{call}: an array", describe(got))
    return np.asarray(got), reads


def _are_rows(got: np.ndarray, data: np.ndarray, name: str, rows: list[int]) -> None:
    called = f"answer({name}, {rows})"
    if np.array_equal(got, data[rows]):
        return
    that(
        not np.array_equal(got, data[np.sort(rows)]), "file order", f"{called}: in this order", "the order of the file"
    )
    positive = np.asarray(rows) >= 0
    if not positive.all() and np.array_equal(got[positive], data[rows][positive]):
        raise Wrong("negative rows", f"{called}: row -1 is row {len(data) - 1}", "other rows for the negative numbers")
    raise Wrong("other rows", f"{called}: these rows of the dataset", "other values")


# --- 01.4 -----------------------------------------------------------------------------------------------------------


class _PowerCut(Exception):  # noqa: N818 - what the batches' source raises in the middle
    """The source of the batches stops."""


@dataclass(frozen=True)
class _Job:
    """What the learner's writer is given: a kind, a shape, the labels of each batch, a number of classes."""

    kind: str
    shape: tuple[int, int, int]
    labels: list[list[int]]
    classes: int = 4

    @property
    def call(self) -> str:
        return f"answer(path, batches, {self.classes}, {self.kind!r})"

    @property
    def images(self) -> np.ndarray:
        return np.concatenate([self.pixels(number) for number in range(len(self.labels))])

    @property
    def one_hot(self) -> np.ndarray:
        return np.eye(self.classes, dtype=np.uint8)[list(chain(*self.labels))]

    def pixels(self, number: int) -> np.ndarray:
        rng = np.random.default_rng(number)
        return rng.integers(0, 256, (len(self.labels[number]), *self.shape), dtype=np.uint8)

    def batches(self, stop: int | None = None) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Batch after batch, made when it is asked for; the power goes before batch ``stop``."""
        for number, labels in enumerate(self.labels):
            if number == stop:
                raise _PowerCut("no more batches: the power failed")
            yield self.pixels(number), np.array(labels)


_JOBS = (  # class 3 has no image in the first: labels do not tell how many classes there are
    _Job("photos", (16, 12, 3), [[0, 2, 1], [2, 2, 0, 1, 0], [1]]),
    _Job("masks", (8, 10, 3), [[3, 1, 0, 2], [0, 1]]),
)
_LONG = _Job("photos", (32, 32, 3), [[0, 1, 2, 3, 3, 2, 1, 0]] * 48)  # 1.2 MB of images


@task(
    "01.4",
    "Write as the batches come",
    objective=4,
    points=5,
    hints={
        "no file": "After the call an HDF5 file has to lie at `path`, closed.",
        "datasets missing": "The file has two datasets, `train_img` and `train_labels`, at its top.",
        "rows lost": "Batches differ in length. Did every one get its own place?",
        "rows never written": "Rows that nobody wrote read as black images of no class. How long may the dataset be?",
        "not bytes": "Look at the type of the images in the file: four or eight times the room, for the same values.",
        "labels not one-hot": "A label becomes a row with a single 1, as long as there are classes.",
        "labels of another type": "`np.eye` makes float64 unless told otherwise, and a dataset takes it as it is.",
        "classes counted from labels": "A class may have no image in these batches. `classes` says how many there are.",
        "other pixels": "Compare an image of the file with the one that was given. Which numbers changed?",
        "labels do not fit": "Row i of the labels belongs to image i.",
        "chunks by chance": "To read one image at random, more than this image must be read. Look at `.chunks`.",
        "photographs packed": "Unpacking is paid for at each read, and photographs hardly shrink.",
        "masks not packed": "Masks shrink to next to nothing without losing a pixel. Which filter does that?",
        "holds all images": "Memory grew with each batch. With 27 GB it would not be enough. Write a batch, forget it.",
        "half a file": "The batches stopped in the middle, and at `path` lay a file that opens. Who would notice?",
        "older file lost": "An older, whole file lay at `path`. The new one was not finished, and the old one is gone.",
        "error swallowed": "The batches stopped with an error, and the caller was told nothing. Let it pass.",
        "trips over what is left": "After the stop the same call has to work. What did the stopped one leave behind?",
        "not marked complete": "The last thing that is written is the attribute `complete` of the file.",
    },
    note="Memory does not grow with the file, each image is one chunk, and what has the final name is whole.",
)
def write_as_they_come(answer):
    function = a_function(answer, "path, batches, classes, kind")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        paths = [folder / f"{job.kind}.h5" for job in _JOBS]
        for job, path in zip(_JOBS, paths, strict=True):
            _write(function, job, path, job.batches())
            _has_all_rows(job, path)
        yield
        for job, path in zip(_JOBS, paths, strict=True):
            _has_right_values(job, path)
        yield
        for job, path in zip(_JOBS, paths, strict=True):
            _is_stored_well(job, path)
        yield
        _writes_at_once(function, folder / "long.h5")
        yield
        _survives_a_power_cut(function, folder)
        yield


def _write(function: Callable, job: _Job, path: Path, batches: Iterator) -> None:
    run(function, path, batches, job.classes, job.kind, call=job.call, returns=False)


@contextmanager
def _written(job: _Job, path: Path) -> Iterator[h5py.File]:
    that(path.is_file(), "no file", f"{job.call}: a file at path", "none")
    try:
        file = h5py.File(path, "r")
    except OSError:
        raise Wrong("no file", f"{job.call}: a file that h5py opens", "it does not open") from None
    with file:
        yield file


def _has_all_rows(job: _Job, path: Path) -> None:
    with _written(job, path) as file:
        names, rows = ("train_img", "train_labels"), len(job.one_hot)
        missing = [name for name in names if not isinstance(file.get(name), h5py.Dataset)]
        that(not missing, "datasets missing", f"{job.call}: {' and '.join(names)}", f"no {' and no '.join(missing)}")
        for name in names:
            got = file[name].shape[:1]
            what = f"{job.call}: {name} of {rows} rows, in batches of {[len(part) for part in job.labels]}"
            that(got and got[0] >= rows, "rows lost", what, f"shape {file[name].shape}")
            that(got[0] == rows, "rows never written", what, f"shape {file[name].shape}")
        of_shape(file["train_img"], (rows, *job.shape), f"{job.call}: train_img")


def _has_right_values(job: _Job, path: Path) -> None:
    with _written(job, path) as file:
        images, labels = file["train_img"], file["train_labels"]
        that(images.dtype == np.uint8, "not bytes", f"{job.call}: images of uint8", f"of {images.dtype}")
        that(np.array_equal(images[:], job.images), "other pixels", "the images of the batches, in order", "others")
        that(labels.ndim == 2, "labels not one-hot", f"{job.call}: labels {job.one_hot.shape}", f"{labels.shape}")
        expected, got = f"{job.call}: labels {job.one_hot.shape}", f"{labels.shape}"
        that(labels.shape == job.one_hot.shape, "classes counted from labels", expected, got)
        fits = np.array_equal(labels[:], job.one_hot)
        that(fits, "labels do not fit", f"the class of each row: {list(chain(*job.labels))}", _classes_of(labels[:]))
        that(labels.dtype == np.uint8, "labels of another type", f"{job.call}: labels of uint8", f"of {labels.dtype}")


def _classes_of(labels: np.ndarray) -> str:
    ones = (labels == 1).sum(axis=1) == 1
    return f"{labels.argmax(axis=1).tolist()}" if ones.all() else "rows without a single 1"


def _is_stored_well(job: _Job, path: Path) -> None:
    with _written(job, path) as file:
        images = file["train_img"]
        right = (1, *job.shape)
        that(images.chunks == right, "chunks by chance", f"{job.call}: chunks of {right}", f"{images.chunks}")
        packed = images.compression
        if job.kind == "photos":
            that(not packed, "photographs packed", f"{job.call}: raw pixels", f"packed with {packed}")
        else:
            that(packed == "gzip", "masks not packed", f"{job.call}: packed with gzip", packed or "raw pixels")


def _writes_at_once(function: Callable, path: Path) -> None:
    """How much memory grows from batch to batch, against the images' own bytes."""
    held, was_on = [], tracemalloc.is_tracing()

    def batches():
        for batch in _LONG.batches():
            yield batch
            del batch
            held.append(tracemalloc.get_traced_memory()[0])

    if not was_on:
        tracemalloc.start()
    try:
        _write(function, _LONG, path, batches())
    finally:
        if not was_on:
            tracemalloc.stop()
    _has_all_rows(_LONG, path)
    third = len(held) // 3  # a small buffer, emptied from time to time, is empty once in each third
    grown = min(held[-third:]) - min(held[:third])
    few, got = "memory for a few at a time", "memory for nearly all of them"
    that(grown < _LONG.images.nbytes / 3, "holds all images", f"{len(held)} batches: {few}", got)


def _survives_a_power_cut(function: Callable, folder: Path) -> None:
    job, path = _JOBS[0], folder / "stopped.h5"
    for case in ("no older file", "an older file"):
        before = path.read_bytes() if path.exists() else None
        _is_cut(function, job, path)
        if before is None:
            that(not path.exists(), "half a file", f"{job.call}, stopped, {case}: nothing at path", "a file")
        else:
            that(path.exists(), "older file lost", f"{job.call}, stopped, {case}: the older file", "no file")
            kept = path.read_bytes() == before
            that(kept, "older file lost", f"{job.call}, stopped, {case}: the older file", "another one")
        _writes_once_more(function, job, path)
    with _written(job, path) as file:
        mark = file.attrs.get("complete")
        marked = isinstance(mark, bool | np.bool_ | int | np.integer) and bool(mark)
        that(marked, "not marked complete", f"{job.call}: attribute complete is True", describe(mark))


def _writes_once_more(function: Callable, job: _Job, path: Path) -> None:
    what = f"{job.call}, once more after the stop: a whole file"
    try:
        _write(function, job, path, job.batches())
        _has_all_rows(job, path)
        _has_right_values(job, path)
    except AnswerRaised as raised:
        raise Wrong("trips over what is left", what, type(raised.error).__name__) from None
    except Wrong as wrong:  # the first time all was well
        raise Wrong("trips over what is left", what, f"{wrong.got} ({wrong.name})") from None


def _is_cut(function: Callable, job: _Job, path: Path) -> None:
    try:
        run(function, path, job.batches(stop=2), job.classes, job.kind, call=job.call, returns=False)
    except AnswerRaised as raised:
        if not _comes_from_the_cut(raised.error):
            raise
    else:
        raise Wrong("error swallowed", f"{job.call}: the error of the batches reaches the caller", "no error")
    finally:
        gc.collect()  # the error held the answer's open file


def _comes_from_the_cut(error: BaseException | None) -> bool:
    while error is not None and not isinstance(error, _PowerCut):
        error = error.__cause__ or error.__context__
    return error is not None


# --- 01.5 -----------------------------------------------------------------------------------------------------------

_FAULTS = ("rows", "label", "type", "chunks", "order", "bytes")
_N, _SHAPE = 24, (8, 6, 3)
_GOOD = np.random.default_rng(2).permutation(_N) % 3  # classes of the rows


@dataclass(frozen=True)
class _Sample:
    """A file with these faults, or none, made by changes of a good one."""

    what: str
    faults: frozenset[str]
    changes: Mapping[str, object]


def _sample(what: str, faults: str = "", **changes) -> _Sample:
    return _Sample(what, frozenset(faults.split()), changes)


_SOUND = (
    _sample("a good file"),
    _sample("a good file that is not cut into chunks", chunks=None),
    _sample("a good file without train_crc32", sums=False),
    _sample("a good file that starts with rows of one class", numbers=np.array([0] * 6 + [0, 1, 2] * 6)),
)
_SINGLE = (
    _sample("a label too few", "rows", labels=-1),
    _sample("two images too few", "rows", labels=2),
    _sample("rows that were never written", "label", zero=(18, 24)),
    _sample("a row of two classes", "label", two=5),
    _sample("images of float32", "type", kind="float32", sums=False),
    _sample("images of int16", "type", kind="int16", sums=False),
    _sample("chunks of 8 images", "chunks", chunks=(8, *_SHAPE)),
    _sample("chunks that cut images", "chunks", chunks=(12, 4, 3, 1)),
    _sample("rows sorted by class", "order", numbers=np.sort(_GOOD)),
    _sample("classes one after the other, the last one first", "order", numbers=(np.sort(_GOOD) + 2) % 3),
    _sample("a changed byte in the last image", "bytes", damage=_N - 1),
    _sample("a changed byte in an image", "bytes", damage=11),
)
_SEVERAL = (
    _sample("sorted, in large chunks", "chunks order", chunks=(8, *_SHAPE), numbers=np.sort(_GOOD)),
    _sample("a label too few, and a changed byte", "rows bytes", labels=-1, damage=7),
    _sample("float64, and rows never written", "type label", kind="float64", zero=(18, 24), sums=False),
)


@task(
    "01.5",
    "What is wrong with this file?",
    objective=6,
    points=4,
    hints={
        "other names": "Use the names of the table.",
        "false alarm": "You found a fault that this file does not have. What exactly did your test ask?",
        "contiguous taken for a fault": "Without chunks, `.chunks` is None, and a row is read without its neighbours.",
        "rows missed": "How many images are there, and how many labels? It may be too few of either.",
        "label missed": "A row of labels has a single 1, and zeros. What about rows with none, or with two?",
        "type missed": "Only one type is right, so compare with that one.",
        "chunks missed": "What has to be read for one image: whole chunks. Compare their bytes with the image's.",
        "order missed": "Each class lay in one piece. It need not be sorted upwards: how often does the class change?",
        "bytes missed": "The sum is kept for each image. Did you compare every row?",
        "one fault only": "Some files have several faults. Does your function go on after the first?",
        "emptied the file": "The file was another one afterwards. In which mode do you open it?",
        "KeyError": "Not every file has `train_crc32`. Without it there is nothing to compare.",
        "TypeError": "A dataset without chunks has None for `.chunks`.",
    },
    note="Six questions that a file answers by itself, before a training of hours begins.",
)
def what_is_wrong(answer):
    function = a_function(answer, "path")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        paths = (folder / f"some_{number}.h5" for number in count())
        _found(function, next(paths), _SOUND[0])
        yield
        for sample in _SOUND:
            found, mistake = _found(function, next(paths), sample), "false alarm"
            if "chunks" in found and sample.changes.get("chunks", ()) is None:
                mistake = "contiguous taken for a fault"
            that(not found, mistake, f"{sample.what}: no fault", _listed(found))
        yield
        for sample in _SINGLE:
            found = _found(function, next(paths), sample)
            _has_found(sample, found)
        yield
        for sample in _SEVERAL:
            found = _found(function, next(paths), sample)
            missed = sample.faults - found
            that(not (missed and found), "one fault only", f"{sample.what}: {_listed(sample.faults)}", _listed(found))
            _has_found(sample, found)
        yield


def _has_found(sample: _Sample, found: set[str]) -> None:
    expected = f"{sample.what}: {_listed(sample.faults)}"
    for fault in sorted(sample.faults - found):
        raise Wrong(f"{fault} missed", expected, _listed(found))
    that(found == sample.faults, "false alarm", expected, _listed(found))


def _found(function: Callable, path: Path, sample: _Sample) -> set[str]:
    _make(path, **sample.changes)
    call = f"answer(path), {sample.what}"
    result = _asked_about(function, path, call)
    names = list(result) if isinstance(result, set | frozenset) else _several(result, call, "a set of names")
    that(all(isinstance(one, str) for one in names), "wrong type", f"{call}: names of faults, text", describe(result))
    strange = sorted(set(names) - set(_FAULTS))
    that(not strange, "other names", f"{call}: some of {', '.join(_FAULTS)}", ", ".join(strange[:3]))
    return {str(one) for one in names}


def _listed(faults) -> str:
    return " and ".join(fault for fault in _FAULTS if fault in faults) or "no fault"


def _make(
    path: Path,
    *,
    numbers=_GOOD,
    kind="uint8",
    chunks=(1, *_SHAPE),
    labels=0,
    zero=(0, 0),
    two=None,
    sums=True,
    damage=None,
):
    """A file of 24 images of 3 classes; some labels too many, rows of zeros, damage done after the sum."""
    images = np.random.default_rng(1).integers(0, 256, (_N, *_SHAPE)).astype(kind)
    crc32 = np.array([zlib.crc32(image.tobytes()) for image in images], np.uint32)
    one_hot = np.eye(3, dtype=np.uint8)[np.resize(numbers, _N + labels)]
    one_hot[slice(*zero)] = 0
    if two is not None:
        one_hot[two] = [1, 0, 1]
    if damage is not None:
        images[damage, 4, 2, 1] ^= 64
    with h5py.File(path, "w") as file:
        file.create_dataset("train_img", data=images, chunks=chunks)
        file["train_labels"] = one_hot
        if sums:
            file["train_crc32"] = crc32


# --- 01.6 -----------------------------------------------------------------------------------------------------------

_SPLITS = {"train": 7, "valid": 2, "test": 1}  # of ten
_USABLE = {"apple_pie": 20, "donuts": 10, "waffles": 20}  # pictures of each class that can be used
_LOST = ("bibimbap", "curry")  # folders without a usable picture: one empty, one with a broken file only


@dataclass(frozen=True)
class _Photos:
    """Which file of the folder is what."""

    good: frozenset[str]
    twins: frozenset[str]  # a picture twice in one class: one of the two is kept
    clash: frozenset[str]  # a picture in two classes
    broken: frozenset[str]
    other: frozenset[str]  # no pictures at all

    @property
    def all(self) -> frozenset[str]:
        return self.good | self.twins | self.clash | self.broken | self.other


@task(
    "01.6",
    "From your own folder",
    objective=5,
    points=5,
    hints={
        "ImageError": "One picture cannot be read. That must not stop the rest: it belongs to what is left out.",
        "names with the folder": "Names start with the folder of the class: `donuts/03.jpg`.",
        "files not accounted for": "Each file found is in a split or left out, so that the sum is right.",
        "file in two places": "A file is in one split, or left out: once, in one place.",
        "broken pictures kept": "A file that ends in .jpg need not be a whole picture. Who reads it, and when?",
        "not a picture": "There are files in such folders that nobody put there on purpose.",
        "copies kept": "The same bytes twice in one class: a picture to train and to test is a question with a known "
        "answer. One of them is enough.",
        "copies all dropped": "Of a picture that is twice in one class, one is kept.",
        "in two classes": "The same bytes lie in two classes: one label must be wrong, and you cannot know which.",
        "good pictures left out": "A picture that is fine was left out. Which of your tests did it not pass?",
        "files removed": "Leaving out is not deleting: the folder belongs to somebody else.",
        "numbers with gaps": "A class without a usable picture takes no number: an output of the network would never "
        "be right.",
        "other class numbers": "Numbers follow the names in the order of the alphabet, from 0.",
        "not stratified": "The sizes are right, but not in each class: 70/20/10 holds for each class alike.",
        "other sizes": "70 of 100 to train, 20 to validate, 10 to test: of the pictures that can be used.",
        "rows sorted by class": "In the list the classes lie one after the other. What does a batch of neighbours see?",
        "not drawn": "The first pictures of each class went to one split. Neighbours by name are often of one camera.",
        "cannot be repeated": "Two calls with one seed gave two results. Whose dice did you throw?",
        "seed not used": "Two seeds put the same pictures into the splits.",
        "order of the listing": "The folder was listed in another order, as it may elsewhere, and the result changed.",
    },
    note="Every file is accounted for, each class is split alike, and the seed alone decides who goes where.",
)
def from_a_folder(answer):
    function = a_function(answer, "folder, seed")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        photos = _photos(folder)
        splits, left_out = _planned(function, folder, 3, photos)
        yield
        _accounts_for_all(splits, left_out, photos)
        yield
        _has_class_numbers(splits)
        yield
        _is_stratified(splits)
        yield
        _is_drawn(function, folder, photos, splits)
        yield


def _photos(folder: Path) -> _Photos:
    rng = np.random.default_rng(7)
    picture = iter([cv2.imencode(".jpg", _picture(rng))[1].tobytes() for _ in range(60)])
    files = {f"{kind}/{number:02}.jpg": next(picture) for kind, total in _USABLE.items() for number in range(total)}
    good = set(files) - {"apple_pie/03.jpg"}
    files["apple_pie/pie (1).jpg"] = files["apple_pie/03.jpg"]
    files["donuts/lunch.jpg"] = files["waffles/lunch too.jpg"] = next(picture)
    files["donuts/90.jpg"] = next(picture)[:-120]
    files["waffles/91.jpg"] = b"<html>404 Not Found</html>"
    files["curry/00.jpg"] = b""
    files["waffles/.DS_Store"] = files["donuts/notes.txt"] = b"left behind"
    for kind in (*_USABLE, *_LOST):
        (folder / kind).mkdir()
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return _Photos(
        good=frozenset(good),
        twins=frozenset({"apple_pie/03.jpg", "apple_pie/pie (1).jpg"}),
        clash=frozenset({"donuts/lunch.jpg", "waffles/lunch too.jpg"}),
        broken=frozenset({"donuts/90.jpg", "waffles/91.jpg", "curry/00.jpg"}),
        other=frozenset({"waffles/.DS_Store", "donuts/notes.txt"}),
    )


def _picture(rng) -> np.ndarray:
    return cv2.resize(rng.integers(0, 256, (4, 4, 3), dtype=np.uint8), (24, 24))


def _planned(function: Callable, folder: Path, seed: int, photos: _Photos) -> tuple[dict[str, list], list[str]]:
    """The splits as lists of (name, class number), and the names left out."""
    call = f"answer(folder, {seed})"
    try:
        result = run(function, folder, seed, call=call)
    except AnswerRaised as raised:
        raised.error.args = tuple(str(one).replace(str(folder), "FOLDER") for one in raised.error.args)
        raise
    parts = _several(result, call, "(splits, left_out)")
    that(len(parts) == 2, "wrong type", f"{call}: (splits, left_out)", describe(result))
    still = {file.relative_to(folder).as_posix() for file in folder.glob("*/*")}
    that(
        photos.all <= still,
        "files removed",
        f"{call}: all files still in the folder",
        f"no {_some(photos.all - still)}",
    )
    splits, left_out = parts
    has_splits = isinstance(splits, Mapping) and set(splits) == set(_SPLITS)
    got = describe(list(splits)) if isinstance(splits, Mapping) else describe(splits)
    that(has_splits, "wrong type", f"{call}: splits has the keys {', '.join(_SPLITS)}", got)
    pairs = {
        split: [_pair(one, call) for one in _several(splits[split], f"{call}: {split}", "a list")] for split in _SPLITS
    }
    left = [
        _name(one, call)
        for one in _several([*left_out] if isinstance(left_out, Mapping) else left_out, "left_out", "a list")
    ]
    names = [name for split in pairs.values() for name, _ in split] + left
    strange = sorted(set(names) - photos.all)
    shown = [name.replace(folder.as_posix(), "FOLDER") for name in strange[:2]]
    that(not strange, "names with the folder", f"{call}: names such as 'donuts/03.jpg'", ", ".join(shown))
    return pairs, left


def _pair(one: object, call: str) -> tuple[str, int]:
    is_pair = isinstance(one, tuple | list | np.ndarray) and len(one) == 2
    that(is_pair, "wrong type", f"{call}: pairs (name, class number)", describe(one))
    number = one[1]
    is_number = isinstance(number, int | np.integer) and not isinstance(number, bool)
    that(is_number, "wrong type", f"{call}: a class number is a whole number", describe(number))
    return _name(one[0], call), int(number)


def _name(name: object, call: str) -> str:
    that(isinstance(name, str | os.PathLike), "wrong type", f"{call}: names are text", describe(name))
    return Path(name).as_posix()


def _accounts_for_all(splits: dict[str, list], left_out: list[str], photos: _Photos) -> None:
    used = [name for pairs in splits.values() for name, _ in pairs]
    kept, left = set(used), set(left_out)
    twice = {name for name in used if used.count(name) > 1} | kept & left
    total = f"{len(photos.all)} files, each in one place"
    that(not twice, "file in two places", total, _some(twice))
    for name, some in (("broken pictures kept", photos.broken), ("not a picture", photos.other)):
        that(not kept & some, name, "such files are left out", _some(kept & some))
    that(not kept & photos.clash, "in two classes", "both files left out", _some(kept & photos.clash))
    that(not photos.twins <= kept, "copies kept", "one of two copies in a class", _some(photos.twins))
    missing = photos.all - kept - left
    that(not missing, "files not accounted for", total, f"nowhere: {_some(missing)}")
    that(photos.twins & kept, "copies all dropped", "one of two copies in a class", "none of them")
    that(photos.good <= kept, "good pictures left out", "all good pictures in a split", _some(photos.good & left))


def _some(names) -> str:
    return ", ".join(sorted(names)[:3])


def _class(name: str) -> str:
    return name.partition("/")[0]


def _has_class_numbers(splits: dict[str, list]) -> None:
    found: dict[str, set] = {}
    for name, number in chain(*splits.values()):
        found.setdefault(_class(name), set()).add(number)
    right = {name: {number} for number, name in enumerate(_USABLE)}
    expected = f"{', '.join(f'{name} {number}' for number, name in enumerate(_USABLE))}"
    got = ", ".join(f"{name} {' and '.join(map(str, sorted(found[name])))}" for name in _USABLE)
    numbers = [min(found[name]) for name in _USABLE]
    gaps = all(len(some) == 1 for some in found.values()) and numbers[0] == 0 and numbers == sorted(set(numbers))
    that(found == right or not gaps, "numbers with gaps", expected, got)
    that(found == right, "other class numbers", expected, got)


def _is_stratified(splits: dict[str, list]) -> None:
    sizes = {split: len(pairs) for split, pairs in splits.items()}
    total = sum(_USABLE.values())
    right = {split: total * part // 10 for split, part in _SPLITS.items()}
    same(sizes, right, "other sizes", "pictures in each split")
    for kind, pictures in _USABLE.items():
        got = {split: sum(_class(name) == kind for name, _ in some) for split, some in splits.items()}
        same(got, {split: pictures * part // 10 for split, part in _SPLITS.items()}, "not stratified", kind)


def _is_drawn(function: Callable, folder: Path, photos: _Photos, splits: dict[str, list]) -> None:
    again, other = (_planned(function, folder, seed, photos)[0] for seed in (3, 4))
    for split in ("train", "valid"):  # two seeds: a few rows may come out sorted by chance
        mixed = any(_changes(one[split]) >= len(_USABLE) for one in (splits, other))
        that(mixed, "rows sorted by class", f"{split}: classes mixed", "one class after the other")
    that(again == splits, "cannot be repeated", "seed 3 twice: the same splits", "other splits")
    members = [{split: {name for name, _ in pairs} for split, pairs in one.items()} for one in (splits, other)]
    drawn = members[0] != members[1] or not all(_is_at_an_end(members[0], kind) for kind in _USABLE)
    that(drawn, "not drawn", "test pictures of each class drawn at random", _some(members[0]["test"]))
    that(members[0] != members[1], "seed not used", "seeds 3 and 4: other pictures in the splits", "the same")
    with listed_backwards():
        turned, _ = _planned(function, folder, 3, photos)
    that(turned == splits, "order of the listing", "one result, however the folder is listed", "another result")


def _changes(pairs: list[tuple[str, int]]) -> int:
    """How often the class changes from row to row."""
    kinds = [_class(name) for name, _ in pairs]
    return sum(one != other for one, other in zip(kinds, kinds[1:], strict=False))


def _is_at_an_end(members: dict[str, set], kind: str) -> bool:
    """Whether the test pictures of a class are its first ones, or its last ones."""
    names = sorted(name for name in set().union(*members.values()) if _class(name) == kind)
    test = {name for name in members["test"] if _class(name) == kind}
    return test in (set(names[: len(test)]), set(names[-len(test) :]))

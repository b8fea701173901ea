"""Questions of the capstone: diagnose a file that somebody left behind, repair it, and train on it."""

from __future__ import annotations

import hashlib
import math
import tempfile
from pathlib import Path

import h5py
import numpy as np

from helpers.course.bad_file import BadFile, bad_file
from helpers.course.probes import (
    Wrong,
    a_dict,
    a_function,
    a_list,
    a_text,
    a_truth,
    a_whole_number,
    an_array,
    attempt,
    of_shape,
    peak_bytes,
    run,
    same,
    task,
    that,
)

_FACTS = ("chunks_per_image", "packed", "sorted", "label_kind")
_MEMORY_SHARE = 0.6  # of all pixels, held at once: the task says half; 64 rows and a copy take 0.53
_STEPS = ("layout", "rows", "order", "memory")
_FEWER = 5  # times: what a shuffled epoch inflates afterwards; whole-image chunks reach 7 and more
_ACCURACY = 0.5  # chance is 0.25


def _known(made: BadFile) -> dict:
    """The true facts of a file."""
    with h5py.File(made.path, "r") as file:
        data, target = file[made.images], file[made.labels]
        cut = [
            math.ceil(side / part) for side, part in zip(data.shape[1:], (data.chunks or data.shape)[1:], strict=True)
        ]
        return {
            "chunks_per_image": math.prod(cut),
            "packed": data.compression is not None,
            "sorted": bool((np.diff(made.numbers) >= 0).all()),
            "label_kind": "onehot" if target.ndim == 2 else "numbers",
        }


def _wrong_chunks(made: BadFile) -> dict[int, str]:
    """Counts that come from known slips, and their names."""
    with h5py.File(made.path, "r") as file:
        data = file[made.images]
        chunk = data.chunks or data.shape
        all_chunks = math.prod(math.ceil(side / part) for side, part in zip(data.shape, chunk, strict=True))
        plane = math.prod(math.ceil(side / part) for side, part in zip(data.shape[1:3], chunk[1:3], strict=True))
    return {all_chunks: "chunks of the whole dataset", plane: "colours forgotten", chunk[0]: "images in a chunk"}


@task(
    "09.1",
    "Look before you touch",
    objective=1,
    points=4,
    hints={
        "chunks of the whole dataset": "That many chunks has the dataset. How many of them does one image lie in?",
        "colours forgotten": "A chunk has four sides, one for each axis. Colours may lie in different chunks, too.",
        "images in a chunk": "That is how many images share a chunk. How many chunks must be opened to see one image?",
        "a contiguous dataset": "dataset.chunks is None when the pixels lie in one piece: an image is then one read.",
        "wrong number of chunks": "Count along height, width and colour: how many chunks until the side is full?",
        "packing not seen": "dataset.compression says how chunks are packed, and None where they are not.",
        "a name, not a truth": 'The question is whether it is packed, not how: bool("gzip") is True.',
        "the empty tail counts": "Rows that were never written have the label 0, or none. Leave them out first.",
        "floats compared exactly": "Such labels are a little off: 2.0000001 may be followed by 1.9999998. Round first.",
        "order not seen": "Take the class number of each row: does it ever go down from one row to the next?",
        "label kind": "One-hot labels have one row of numbers an image, class numbers a single one: look at ndim.",
    },
    note="You know what is slow, what is missing and what is misleading before you change a byte.",
)
def facts(answer):
    function = a_function(answer, "path, images, labels")
    with tempfile.TemporaryDirectory() as folder:
        variants = (
            {"seed": 4, "chunks": (1, 16, 16, 3), "compression": None, "missing": 0, "label_kind": "numbers"},
            {"seed": 0},
            {"seed": 2},
            {"seed": 1, "sorted_rows": False, "label_kind": "onehot"},
            {"seed": 3, "chunks": False, "sorted_rows": False, "label_kind": "numbers"},
        )
        made = [bad_file(folder, per_class=24, **variant) for variant in variants]
        found = [_facts_of(function, one) for one in made]
        known = [_known(one) for one in made]
        mistakes = [_wrong_chunks(one) for one in made]
    for got, right, names in zip(found, known, mistakes, strict=True):
        count, wanted = got["chunks_per_image"], right["chunks_per_image"]
        fallback = "a contiguous dataset" if wanted == 1 else "wrong number of chunks"
        same(count, wanted, names.get(count, fallback) if wanted > 1 else fallback, "chunks that hold one image")
    yield
    for got, right in zip(found, known, strict=True):
        same(got["packed"], right["packed"], "packing not seen", "packed")
    yield
    for got, right, one in zip(found, known, made, strict=True):
        name = "order not seen"
        if right["sorted"] and not got["sorted"]:
            name = "the empty tail counts" if one.written < one.n else "floats compared exactly"
        same(got["sorted"], right["sorted"], name, "sorted by class, of the rows that were written")
    yield
    for got, right in zip(found, known, strict=True):
        same(got["label_kind"], right["label_kind"], "label kind", "label_kind")
    yield


def _facts_of(function, made: BadFile) -> dict:
    call = f'answer(path, "{made.images}", "{made.labels}")'
    found = a_dict(run(function, made.path, made.images, made.labels, call=call), _FACTS, call)
    return {
        "chunks_per_image": a_whole_number(found["chunks_per_image"], "chunks_per_image"),
        "packed": a_truth(found["packed"], "packed", "a name, not a truth"),
        "sorted": a_truth(found["sorted"], "sorted"),
        "label_kind": a_text(found["label_kind"], "label_kind"),
    }


@task(
    "09.2",
    "The rows that hold a picture",
    objective=2,
    points=3,
    hints={
        "every row": "The program that made the file was stopped. What does a row hold that nobody has written?",
        "stopped at the first black picture": "One picture in the middle is black, too. Pictures follow after it.",
        "the lens cap": "A black picture with a label teaches nothing. Look at the pixels, not at the labels.",
        "class 0 lost": "The label 0 is a class like the others. Only the pixels say that a row is empty.",
        "rows twice": "Some rows are in the list twice.",
        "one row off": "Compare the last number of your list with the first empty row: one of them is not the other's.",
        "positions in a batch": "Rows are counted from the start of the file: add the number of the batch's first row.",
        "a dark picture lost": "One pixel that is not 0 makes a picture, wherever it is, however dark.",
        "everything in memory": "The real file has 27 GB. Keep the row numbers of 64 images, forget the pixels, go on.",
        "wrong type": "A mask of True and False becomes row numbers by np.flatnonzero; mind where each batch begins.",
    },
    note="Empty rows are found by their pixels, and a label of 0 is not a sign of one.",
)
def usable_rows(answer):
    function = a_function(answer, "path, images")
    with tempfile.TemporaryDirectory() as folder:
        variants = ({"seed": 2}, {"seed": 0}, {"seed": 5, "missing": 0}, {"seed": 7, "sorted_rows": False})
        made = [bad_file(folder, per_class=24, **variant) for variant in variants]
        _darken(made[-1])
        calls = [f'answer(path, "{one.images}")' for one in made]
        found = [run(function, one.path, one.images, call=call) for one, call in zip(made, calls, strict=True)]
        large = bad_file(folder, 2, per_class=60)
        peak = peak_bytes(lambda: attempt(lambda: function(large.path, large.images), calls[0]))
        with h5py.File(large.path, "r") as file:
            share = peak / file[large.images].nbytes
    lists = [np.array(a_list(rows, call)) for rows, call in zip(found, calls, strict=True)]
    for rows, call in zip(lists, calls, strict=True):
        integers = rows.ndim == 1 and (rows.dtype.kind in "iu" or rows.size == 0)
        that(integers, "wrong type", f"{call}: a list of row numbers", f"{rows.dtype}, shape {rows.shape}")
    yield
    for one, rows, call in zip(made, lists, calls, strict=True):
        name = _row_mistake(one, np.unique(rows)) or ("rows twice" if len(rows) != len(np.unique(rows)) else "")
        if name or not np.array_equal(rows, one.usable):
            got = f"{len(rows)} rows" + (f", the last is {rows[-1]}" if rows.size else "")
            expected = f"{call}: {len(one.usable)} rows in the order of the file, the last is {one.usable[-1]}"
            raise Wrong(name or "one row off", expected, got)
    yield
    some = "64 images at a time, of 360"
    that(share <= _MEMORY_SHARE, "everything in memory", some, "all of them" if share >= 1 else "far more")
    yield


def _darken(made: BadFile) -> None:
    """Leave a single pixel of one picture, and take the first line of another: both are pictures still."""
    with h5py.File(made.path, "r+") as file:
        data = file[made.images]
        first, second = made.usable[[3, 5]]
        image = np.zeros(data.shape[1:], "uint8")
        image[-1, -1, 2] = 1
        data[first] = image
        data[second, 0] = 0


def _row_mistake(made: BadFile, rows: np.ndarray) -> str:
    """The name of the slip that these rows come from, or ''."""
    if rows.size and rows.max() < 64 < made.n // 2:
        return "positions in a batch"
    if np.array_equal(rows, np.arange(made.n)) and made.written < made.n:
        return "every row"
    if np.array_equal(rows, np.arange(made.capped)):
        return "stopped at the first black picture"
    if rows.size and not np.isin(made.usable[made.numbers[made.usable] == 0], rows).any():
        return "class 0 lost"
    if made.capped in rows:
        return "the lens cap"
    return "a dark picture lost" if np.array_equal(np.setdiff1d(made.usable, rows), made.usable[[3]]) else ""


@task(
    "09.3",
    "Floats that were class numbers",
    objective=3,
    points=3,
    hints={
        "cut instead of rounded": "astype(int) cuts: 1.9999998 becomes 1. Round first.",
        "one-hot not read": "A row such as 0, 0, 1, 0 stands for class 2: the place of its 1.",
        "numbers taken for one-hot": "Class numbers come as one number an image, (n,). There is no axis to look along.",
        "still floats": "Class numbers are counts: an integer type, such as int64. Losses and class weights want one.",
        "one-hot given": "Asked for is one class number an image: shape (n,).",
        "rows dropped": "A row of zeros, which nobody has written, keeps its place: the next labels must not move up.",
        "compared with 1": "0.9999998 stands for 1. Look for the largest number of a row, not for a certain one.",
        "a batch of one": "squeeze() also takes away the axis of the images when there is only one. Look along axis 1.",
    },
    note="Whatever kind of label a file has, you get class numbers that a loss can use.",
)
def class_numbers(answer):
    function = a_function(answer, "labels")
    rng = np.random.default_rng(11)
    cases = []
    for classes, n in ((5, 40), (6, 7), (4, 1)):
        numbers = rng.integers(1, classes, n)
        numbers[0] = classes - 1
        onehot = np.eye(classes, dtype="float32")[numbers]
        cases.append((onehot, numbers, True))
        if n > 20:
            cases.append((onehot * np.float32(0.9999998), numbers, True))
            cases.append((
                np.concatenate([onehot[:5], onehot[:2] * 0, onehot[5:]]),
                np.insert(numbers, 5, [0, 0]),
                True,
            ))
        cases.append((numbers - rng.uniform(1e-8, 3e-7, n), numbers, False))
        cases.append((numbers + rng.uniform(-3e-7, 3e-7, n).astype("float32"), numbers, False))
    results = []
    for labels, numbers, onehot in cases:
        call = f"answer(labels of shape {labels.shape}, {labels.dtype})"
        try:
            result = run(function, labels, call=call)
        except Exception as error:
            axis = isinstance(getattr(error, "error", None), np.exceptions.AxisError)
            if axis and not onehot:
                raise Wrong("numbers taken for one-hot", f"{call}: class numbers", str(error.error)) from None
            raise
        results.append((an_array(result, call), numbers, onehot, call))
    for array, _, _, call in results:
        that(array.dtype.kind != "f", "still floats", f"{call}: integers", f"an array of {array.dtype}")
        that(array.dtype.kind in "iu", "wrong type", f"{call}: integers", f"an array of {array.dtype}")
    yield
    for array, numbers, onehot, call in results:
        that(array.ndim != 2, "one-hot given", f"{call}: shape {numbers.shape}", f"shape {array.shape}")
        that(
            array.ndim or len(numbers) > 1, "a batch of one", f"{call}: shape {numbers.shape}", "a number without axes"
        )
        if array.ndim == 0 and not onehot:
            raise Wrong("numbers taken for one-hot", f"{call}: shape {numbers.shape}", "a number without axes")
        shorter = onehot and array.ndim == 1 and len(array) < len(numbers)
        name = ("compared with 1" if not array.size else "rows dropped") if shorter else "wrong shape"
        of_shape(array, numbers.shape, call, name)
    yield
    for array, numbers, onehot, call in results:
        if onehot and len(numbers) > 40:  # rows of zeros may be any class
            array, numbers = np.delete(array, [5, 6]), np.delete(numbers, [5, 6])
        same(array, numbers, "one-hot not read" if onehot else "cut instead of rounded", call)
    yield


@task(
    "09.4",
    "The repair",
    objective=4,
    points=4,
    hints={
        "no file": "The function writes a file at `out`, and closes it.",
        "other names": "The names are train_img, train_labels, valid_img and valid_labels.",
        "float images": "Pixels are whole numbers from 0 to 255: uint8. Floats take four or eight times the room.",
        "float labels": "Labels are class numbers of an integer type, or one-hot rows of uint8 (exercise 09.3).",
        "empty rows kept": "Some of the new rows are black. Which rows can be used? (exercise 09.2)",
        "rows lost": "Some rows with a picture are in none of the splits.",
        "a row in both splits": "A picture that the model trains on cannot tell how good it is on new ones.",
        "labels left behind": "The pictures moved to new places. Their labels have to move with them.",
        "a split without a class": "Each class needs a part of its pictures in both splits: about four to one.",
        "still sorted by class": "Neighbouring rows still have the same class. Mix them: draw an order with a seed.",
        "class names lost": "What is class 3? The old file says it in its attribute class_names. Take it along.",
        "chunks cut the images": "One image lies in one chunk, or all of them in one piece. chunks=True cuts them up.",
        "the inspector refuses it": "python -m helpers.inspector FILE says what is wrong with the new file.",
        "everything in memory": "The real file has 27 GB. Read a few dozen rows, write them, forget them, go on.",
    },
    note="Every picture is there once, mixed, in one read each. (Of a large old file, read each chunk once, in "
    "its order, and draw before that where its rows go.)",
)
def repair(answer):
    function = a_function(answer, "path, images, labels, out")
    # The small one first: what the answer imports is then there, and does not count as memory of the other.
    small = _repaired(function, 2, 16)
    clean = not any(small.mistakes[step] for step in _STEPS[:-1])
    judged = [small, _repaired(function, 1, 60)] if clean else [small]
    for step in _STEPS[:-1]:
        for one in judged:
            if one.mistakes[step]:
                raise one.mistakes[step]
        yield
    if judged[-1].mistakes["memory"]:  # the other file is so small that one image's chunks are half of it
        raise judged[-1].mistakes["memory"]
    yield


def _repaired(function, seed: int, per_class: int) -> _Repaired:
    with tempfile.TemporaryDirectory() as folder:
        made, out = bad_file(folder, seed, per_class=per_class), Path(folder, "repaired.h5")
        call = f'answer(path, "{made.images}", "{made.labels}", out)'
        peak = peak_bytes(lambda: attempt(lambda: function(made.path, made.images, made.labels, out), call))
        that(out.exists(), "no file", f"{call} writes out", "there is no such file")
        return _Repaired(made, out, peak)


class _Repaired:
    """What is wrong with a repaired file, question by question; the file is gone afterwards."""

    def __init__(self, made: BadFile, out: Path, peak: int):
        self.made, self.out, self.peak = made, out, peak
        self.mistakes = dict.fromkeys(_STEPS)
        for step in self.mistakes:
            try:
                getattr(self, f"_{step}")()
            except Wrong as wrong:
                self.mistakes[step] = wrong
                break

    def _layout(self) -> None:
        wanted = {f"{split}_{kind}" for split in ("train", "valid") for kind in ("img", "labels")}
        with attempt(lambda: h5py.File(self.out, "r"), "h5py.File(out)") as file:
            have = [name for name in file if isinstance(file[name], h5py.Dataset)]
            that(wanted <= set(have), "other names", f"datasets {', '.join(sorted(wanted))}", ", ".join(have) or "none")
            self.splits = {split: (file[f"{split}_img"][:], file[f"{split}_labels"][:]) for split in ("train", "valid")}
        with h5py.File(self.made.path, "r") as file:
            self.source = file[self.made.images][:]
        for split, (images, labels) in self.splits.items():
            that(images.dtype == np.uint8, "float images", f"{split}_img: uint8", images.dtype)
            that(labels.dtype.kind in "iu", "float labels", f"{split}_labels: integers", labels.dtype)
            of_shape(images, (None, *self.source.shape[1:]), f"{split}_img")
            lengths = f"{len(images)} images, {len(labels)} labels"
            that(len(images) == len(labels), "wrong shape", f"{split}: one label an image", lengths)

    def _rows(self) -> None:
        row_of = {_digest(self.source[row]): row for row in self.made.usable}
        rows, numbers = {}, {}
        for split, (images, labels) in self.splits.items():
            empty = sum(not image.any() for image in images)
            that(not empty, "empty rows kept", f"{split}_img: no black pictures", f"{empty} of them")
            rows[split] = [row_of.get(_digest(image), -1) for image in images]
            that(-1 not in rows[split], "rows lost", f"{split}_img: pictures of the old file", "others are among them")
            numbers[split] = labels.argmax(1) if labels.ndim == 2 else labels
        both = set(rows["train"]) & set(rows["valid"])
        that(not both, "a row in both splits", "no picture in train and valid", f"{len(both)} in both")
        every = sorted(rows["train"] + rows["valid"])
        that(every == list(self.made.usable), "rows lost", f"{len(self.made.usable)} rows once", f"{len(every)} rows")
        for split in rows:
            fits = sum(self.made.numbers[rows[split]] == numbers[split])
            that(fits == len(rows[split]), "labels left behind", f"{split}: every label its own", f"{fits} of them fit")
        self._shares(numbers)

    def _shares(self, numbers: dict[str, np.ndarray]) -> None:
        for number, name in enumerate(self.made.class_names):
            counts = [int((numbers[split] == number).sum()) for split in ("train", "valid")]
            share = counts[1] / sum(counts)
            that(0.1 <= share <= 0.35, "a split without a class", f"{name}: about a fifth in valid", f"{share:.0%}")

    def _order(self) -> None:
        from helpers import inspect_file

        for split, (_, labels) in self.splits.items():
            numbers = labels.argmax(1) if labels.ndim == 2 else labels
            repeats, chance = float(np.mean(numbers[1:] == numbers[:-1])), 1 / len(self.made.class_names)
            mixed = repeats < (1 + chance) / 2
            that(mixed, "still sorted by class", f"{split}: neighbours of many classes", f"{repeats:.0%} have the same")
        report = inspect_file(self.out)
        with h5py.File(self.out, "r") as file:
            for split in self.splits:
                data = file[f"{split}_img"]
                chunk = (data.chunks or data.shape)[1:]
                that(chunk == data.shape[1:], "chunks cut the images", f"chunks of whole images, {split}_img", chunk)
                inflated = (data.chunks or (1,))[0] if data.compression else 1
                that(inflated <= _FEWER, "chunks cut the images", "few images a packed chunk", f"{inflated} images")
            names = [str(one.decode() if isinstance(one, bytes) else one) for one in file.attrs.get("class_names", [])]
        that(
            names == list(self.made.class_names), "class names lost", "class_names as in the old file", names or "none"
        )
        faults = ", ".join(fault.code for fault in report.faults)
        that(report.ok, "the inspector refuses it", "inspect_file(out).ok", faults)

    def _memory(self) -> None:
        share = self.peak / self.source.nbytes
        limit = "at most half of the pixels in memory at once"
        that(share <= _MEMORY_SHARE, "everything in memory", limit, "all of them" if share >= 1 else "more")


def _digest(image: np.ndarray) -> bytes:
    return hashlib.blake2b(np.ascontiguousarray(image).tobytes(), digest_size=12).digest()


@task(
    "09.5",
    "Train on it",
    objective=5,
    points=2,
    limit_s=60,
    hints={
        "no model": "The function returns the trained model, not its history.",
        "wrong shape": "The last layer has one number a class. How many classes are in the file?",
        "pixels scaled outside": "The model gets pixels from 0 to 255, as they lie in the file. Scale in a layer.",
        "not trained": "It guesses. Is fit called, with enough epochs, and does the model that was trained come back?",
        "trained on wrong labels": "It calls the dishes by each other's names: do the labels belong to their pictures?",
    },
    note="From a file that nobody could use to a model that knows its dishes.",
)
def trained(answer):
    function = a_function(answer, "path")
    with tempfile.TemporaryDirectory() as folder:
        path = _good_file(Path(folder, "repaired.h5"))
        with h5py.File(path, "r") as file:
            images, numbers = file["valid_img"][:], file["valid_labels"][:].argmax(1)
            classes = file["valid_labels"].shape[1]
        model = run(function, path, call="answer(path)")
    that(hasattr(model, "predict"), "no model", "answer(path): a Keras model", type(model).__name__)
    scores = np.asarray(attempt(lambda: model.predict(images, verbose=0), "model.predict(images of uint8)"))
    of_shape(scores, (len(images), classes), "model.predict(images)")
    yield
    accuracy = float((scores.argmax(1) == numbers).mean())
    if accuracy < _ACCURACY:
        shown = f"validation accuracy of {_ACCURACY:.0%} or more"
        scaled = [images / np.float32(255), images / np.float32(127.5) - 1]
        guesses = [np.asarray(model.predict(inputs, verbose=0)).argmax(1) for inputs in scaled]
        shifted = max(float(((scores.argmax(1) + shift) % classes == numbers).mean()) for shift in range(1, classes))
        if any((guess == numbers).mean() >= _ACCURACY for guess in guesses):
            raise Wrong("pixels scaled outside", shown, "less; of scaled pixels it reaches that")
        name = "trained on wrong labels" if shifted >= _ACCURACY else "not trained"
        raise Wrong(name, shown, "less")
    yield


def _good_file(path: Path) -> Path:
    """A small repaired file, as exercise 09.4 makes it, one-hot."""
    from data_scripts.make_toy_food import make_toy_food

    make_toy_food(path, classes=4, per_class=130, size=32, seed=8, split=(0.77, 0.23, 0.0))
    return path

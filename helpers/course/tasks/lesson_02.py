"""Questions on lesson 02: the naive loop, its faults, and a fair one by hand."""

from __future__ import annotations

import contextlib
import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

import h5py
import numpy as np

from helpers.course.probes import (
    AnswerRaised,
    Wrong,
    a_dict,
    a_function,
    a_list,
    a_number,
    a_whole_number,
    close,
    describe,
    run,
    same,
    task,
    that,
)

# --- 02.1 -----------------------------------------------------------------------------------------------------------

_NEVER = 70_700 - 100 * 706


@task(
    "02.1",
    "The rows that nobody reads",
    objective=1,
    points=2,
    hints={
        "rows of one piece": "706 is the length of one piece. How many rows do all 100 pieces have together?",
        "rows that are read": "That is how many rows the loop reads. The question is how many of the 70,700 are left.",
        "times 50 epochs": "Each epoch reads the same rows again: 50 epochs leave out no more rows than one does.",
        "off by one": "A slice [0:706] has 706 rows: its stop is not one of them. How many have 100 such slices?",
        "another number": "Where does the last slice stop, and how far is that from the end of the file?",
    },
    note="A count typed by hand left 100 rows out, for ever, without an error.",
)
def rows_never_read(answer):
    count = a_whole_number(answer, "the number of rows")
    yield
    mistakes = {
        706: "rows of one piece",
        70_600: "rows that are read",
        50 * _NEVER: "times 50 epochs",
        _NEVER - 1: "off by one",
        _NEVER + 1: "off by one",
    }
    that(count == _NEVER, mistakes.get(count, "another number"), "the number of rows that no slice asks for", count)
    yield


# --- 02.2 -----------------------------------------------------------------------------------------------------------

_CASES = [(10, 3), (1_400, 32), (64, 64), (5, 64), (20_200, 64), (1, 1)]  # with and without a shorter last piece


@task(
    "02.2",
    "Pieces without a remainder",
    objective=1,
    points=3,
    hints={
        "rows left over": "n // batch_size counts full pieces alone. The rows after them need a shorter piece.",
        "stop beyond the end": "The last piece stops at n. A dataset forgives a larger stop, counting rows does not.",
        "an empty piece": "When batch_size divides n, the last full piece ends the file: no piece comes after it.",
        "rows read twice": "Each piece starts where the one before stopped, so that no row is in two pieces.",
        "not in order": "The first piece starts at row 0, the next where it stopped, and so on to the end.",
        "other sizes": "All pieces but the last have batch_size rows. Which is fixed: rows a piece, or pieces?",
    },
    note="The length comes from the data, and every row is in exactly one piece.",
)
def pieces(answer):
    function = a_function(answer, "n, batch_size")
    found = {case: a_list(run(function, *case), f"pieces of {case[0]} rows by {case[1]}") for case in _CASES}
    for case, parts in found.items():
        that(
            all(_is_plain_slice(part) for part in parts),
            "wrong type",
            "a list of slices, such as [slice(0, 3), slice(3, 6)]",
            f"{parts[:2]} for n={case[0]}, batch_size={case[1]}",
        )
    yield
    for (n, batch_size), parts in found.items():
        called = f"answer({n}, {batch_size})"
        rows = [row for part in parts for row in range(part.start or 0, n if part.stop is None else part.stop)]
        that(len(rows) == len(set(rows)), "rows read twice", f"{called}: each row once", "some rows twice")
        that(set(range(n)) <= set(rows), "rows left over", f"{called}: all {n} rows", f"{len(set(rows))} rows")
        that(max(rows) < n, "stop beyond the end", f"{called}: the last stop is {n}", parts[-1])
        that(rows == sorted(rows), "not in order", f"{called}: rows 0 to {n - 1} in order", f"{parts[0]} comes first")
    yield
    for (n, batch_size), parts in found.items():
        sizes = [len(range(n)[part]) for part in parts]
        right = [batch_size] * (n // batch_size) + [n % batch_size] * bool(n % batch_size)
        called = f"answer({n}, {batch_size})"
        that(0 not in sizes, "an empty piece", f"{called}: pieces: {len(right)}", f"{len(sizes)} of them")
        same(np.array(sizes), np.array(right), "other sizes", f"{called}: rows in each piece")
    yield


def _is_plain_slice(part: object) -> bool:
    """A slice forwards, without steps, with ends that are whole numbers."""
    if not isinstance(part, slice):
        return False
    ends = [end for end in (part.start, part.stop, part.step) if end is not None]
    return all(isinstance(end, int | np.integer) and end >= 0 for end in ends) and part.step in {None, 1}


# --- 02.3 -----------------------------------------------------------------------------------------------------------

_COSTS = {1: "g", 2: "k", 3: "e", 4: "b", 5: "l", 6: "d"}
_MISREAD = {  # fault -> the cost that people see in it, and that it does not have
    1: ("j", "an error at the end"),
    2: ("a", "epochs lost"),
    3: ("h", "trained on validation"),
    4: ("f", "no learning in any order"),
    5: ("i", "only bytes counted"),
    6: ("c", "the longer part alone"),
}
_LETTERS = set("abcdefghijkl")


@task(
    "02.3",
    "Six faults and their price",
    objective=2,
    points=3,
    hints={
        "not a letter": "Each of the six faults, 1 to 6, has one letter, a to l, in quotes.",
        "a fault left open": "A guess costs nothing. Which of the costs is gone when this fault is mended?",
        "an error at the end": "Compute the stop of the last slice. Is it beyond row 70,700, or before it?",
        "epochs lost": "Print both variables in a small copy of the two loops. How often does the inner one start?",
        "trained on validation": "Look at the arguments of `train_on_batch`. Which of the four arrays are among them?",
        "no learning in any order": "The lesson trained on a mixed file in file order. Did the model learn nothing?",
        "only bytes counted": "Bytes in the file are one thing. What does a model keep of 706 images, and how often "
        "does it change its weights?",
        "the longer part alone": "That would be so if both went on at the same time. Look at the timeline again.",
        "the cost of another fault": "Mend this one fault in your mind, and no other. Is that cost gone?",
    },
    note="Six faults, none of which raises an error: each has to be looked for.",
)
def faults_and_costs(answer):
    that(isinstance(answer, Mapping), "wrong type", 'a dictionary, such as {1: "a", 2: "b", ...}', describe(answer))
    given = {_fault_number(key): value for key, value in answer.items()}
    left_open = [fault for fault in _COSTS if given.get(fault) in {None, "", ...}]
    chosen = {fault: str(given.get(fault)).strip().lower() for fault in _COSTS}
    for fault in (fault for fault in _COSTS if fault not in left_open):
        one = f"fault {fault}: one letter from a to l"
        that(chosen[fault] in _LETTERS, "not a letter", one, describe(given[fault]))
    right = sum(chosen[fault] == cost for fault, cost in _COSTS.items())
    for _ in range(min(right // 2, 2)):  # a point for two faults, one for four, one for all
        yield
    asked = f"what fault {{}} costs ({right} of 6 are right)"
    those = ", ".join(map(str, left_open))
    that(not left_open, "a fault left open", f"a letter for each fault ({right} of 6 are right)", f"open: {those}")
    for fault, (letter, name) in _MISREAD.items():
        that(chosen[fault] != letter, name, asked.format(fault), f"{chosen[fault]!r}")
    for fault, cost in _COSTS.items():
        that(chosen[fault] == cost, "the cost of another fault", asked.format(fault), f"{chosen[fault]!r}")
    yield


def _fault_number(key: object) -> object:
    """1 for 1, "1" and 1.0; everything else as it is."""
    try:
        return int(key)
    except (TypeError, ValueError, OverflowError):
        return key


# --- what 02.4 and 02.6 give to the answer --------------------------------------------------------------------------


@dataclass
class _StandIn:
    """A model that computes nothing: it notes the batches it is given, and reports made-up values.

    An image says by its first pixel which row it is. ``losses`` and ``hits`` have a value a row; a label that is not
    that of its row is noted, and makes the loss large.
    """

    losses: np.ndarray
    hits: np.ndarray
    labels: np.ndarray
    images: np.ndarray
    rows: list = field(default_factory=list)  # of each batch
    trained: int = 0
    wrong_labels: int = 0

    def test_on_batch(self, x, y=None, sample_weight=None, return_dict=False):  # noqa: ARG002 - as Keras has it
        return self._report(np.asarray(x), np.asarray(y), return_dict)

    def train_on_batch(self, x, y=None, sample_weight=None, class_weight=None, return_dict=False):  # noqa: ARG002
        self.trained += 1
        return self._report(np.asarray(x), np.asarray(y), return_dict)

    def _report(self, images, labels, as_dict: bool):
        self._look_at(images, labels)
        rows = images.reshape(len(images), -1)[:, 0].astype(int)
        self.rows.append(rows)
        fits = np.array([np.array_equal(label, self.labels[row]) for label, row in zip(labels, rows, strict=True)])
        self.wrong_labels += int((~fits).sum())
        loss, accuracy = float(np.mean(self.losses[rows] + 10 * ~fits)), float(np.mean(self.hits[rows] & fits))
        return {"loss": loss, "accuracy": accuracy} if as_dict else [loss, accuracy]

    def _look_at(self, images, labels) -> None:
        """Raise Wrong for what no batch may be: another shape, another type, other pixels."""
        what = "the images of a batch"
        expected = f"{what}: uint8, of shape (rows, {', '.join(map(str, self.images.shape[1:]))})"
        fits = images.shape[1:] == self.images.shape[1:] and len(images) > 0
        that(fits, "wrong shape", expected, f"shape {images.shape}")
        that(images.dtype == np.uint8, "pixels changed", expected, f"{images.dtype}")
        rows = images.reshape(len(images), -1)[:, 0]
        known = rows.max() < len(self.images) and np.array_equal(images, self.images[rows])
        that(known, "pixels changed", f"{what}: as they stand in the file", "other values")
        same_length = labels.shape == (len(images), *self.labels.shape[1:])
        expected = f"labels of shape {(len(images), *self.labels.shape[1:])} with {len(images)} images"
        that(same_length, "wrong shape", expected, f"shape {labels.shape}")


def _data(n: int, classes: int, seed: int, *, in_order_of_class: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Images whose first pixel is the number of their row, and one-hot labels that are never told by the row alone."""
    rng = np.random.default_rng([7, seed])
    images = rng.integers(0, 256, (n, 4, 4, 3), dtype=np.uint8)
    images[:, 0, 0, 0] = np.arange(n)
    numbers = rng.integers(0, classes, n)
    return images, np.eye(classes, dtype=np.uint8)[np.sort(numbers) if in_order_of_class else numbers]


def _stand_in(images: np.ndarray, labels: np.ndarray, seed: int) -> _StandIn:
    rng = np.random.default_rng([8, seed])
    n = len(images)
    losses = rng.uniform(0.1, 1, n) + np.linspace(0, 3, n) ** 2  # rows are not alike, so batches are not
    return _StandIn(losses, rng.random(n) < np.linspace(0.9, 0.2, n), labels, images)


@contextlib.contextmanager
def _watched_reads(name: str):
    """Rows of each read of the dataset ``name`` by h5py's usual ways, in a list."""
    reads: list[int] = []
    get, direct = h5py.Dataset.__getitem__, h5py.Dataset.read_direct

    def watched_get(self, key, *args, **kwargs):
        values = get(self, key, *args, **kwargs)
        if self.name == f"/{name}":
            reads.append(len(values) if np.ndim(values) == self.ndim else 1)
        return values

    def watched_direct(self, target, *args, **kwargs):
        if self.name == f"/{name}":
            reads.append(len(target))
        return direct(self, target, *args, **kwargs)

    with (
        mock.patch.object(h5py.Dataset, "__getitem__", watched_get),
        mock.patch.object(h5py.Dataset, "read_direct", watched_direct),
    ):
        yield reads


def _called(function, *args, call: str, **kwargs):
    """``run``, with the Wrong that a stand-in raised inside the answer as what it is."""
    try:
        return run(function, *args, call=call, **kwargs)
    except AnswerRaised as raised:
        if isinstance(raised.error, Wrong):
            raise raised.error from None
        raise


# --- 02.4 -----------------------------------------------------------------------------------------------------------

_SPLITS = [(37, 8), (41, 40), (24, 8)]  # rows, batch_size: with and without a smaller last batch


@task(
    "02.4",
    "Validation by hand",
    objective=3,
    points=4,
    hints={
        "whole split in memory": "No more than batch_size images are in memory at once. Cut the rows into slices, as "
        "in 02.2, and read one slice at a time.",
        "weights changed": "Validation looks, and does not teach. Which method of the model changes no weights?",
        "rows left over": "The model never got some of the rows. Is the last batch, the smaller one, among yours?",
        "rows counted twice": "The model got some rows twice. Where does a batch begin, and where does it end?",
        "labels of other rows": "Images and labels of a batch come from the same rows: one slice for both.",
        "plain mean": "The last batch is smaller. In a plain mean each image in it counts more than the others.",
        "last batch taken for full": "You multiplied each value by batch_size. How many images has the last batch?",
        "a sum": "A mean does not grow with the number of rows. By what is your sum divided?",
        "divided by full batches": "You divided by batches times batch_size. How many rows have been looked at?",
        "the last batch alone": "That is the value of one batch. What is kept of those before?",
        "another mean": "Check it by hand: 64 images with 1.0 and 16 images with 0.5 have the mean 0.9.",
        "pixels changed": "The model takes the images as they stand in the file. Leave the bytes alone.",
        "TypeError": "Look at the line in the trace: what type has each thing there? The values of a batch come as a "
        "dictionary, if you ask for one with `return_dict=True`.",
        "AttributeError": "The model has the two methods of the task and no others; a dataset has fewer than an array.",
    },
    note="Validation by hand is a mean over batches, each weighted by its own number of images.",
)
def validation_by_hand(answer):
    function = a_function(answer, "model, images, labels, batch_size")
    asked = [(*split, seed) for seed, split in enumerate(_SPLITS)]
    found = {case: _validated(function, *case) for case in asked}
    yield
    for (n, batch_size, _), (model, _, reads) in found.items():
        called = f"{batch_size} of {n} rows at a time"
        most = max([*map(len, model.rows), *reads], default=0)
        that(model.trained == 0, "weights changed", "test_on_batch only", f"{model.trained} calls of train_on_batch")
        that(most <= batch_size, "whole split in memory", f"{called}: no more", f"{most} images at once")
        _each_row_once(model, n, called, "rows counted twice")
    yield
    for model, _, _ in found.values():
        that(model.wrong_labels == 0, "labels of other rows", "each image with its own label", "other labels")
    yield
    for (n, batch_size, _), (model, got, _) in found.items():
        for name, values in (("loss", model.losses), ("accuracy", model.hits)):
            what = f"{name} of {n} rows, {batch_size} at a time"
            _is_the_mean(got[name], values, model.rows, batch_size, what)
    yield


def _validated(function, n: int, batch_size: int, seed: int) -> tuple[_StandIn, dict, list[int]]:
    """(the model, what the answer gave, rows of each read of the images)."""
    images, labels = _data(n, 3, seed)
    model = _stand_in(images, labels, seed)
    call = f"answer(model, images, labels, {batch_size})"
    with (
        _file_of({"valid_img": images, "valid_labels": labels}) as path,
        h5py.File(path) as file,
        _watched_reads("valid_img") as reads,
    ):
        got = _called(function, _Same(model), file["valid_img"], file["valid_labels"], batch_size, call=call)
    got = a_dict(got, ["loss", "accuracy"], call)
    return model, {name: a_number(got[name], f"{call}: {name}") for name in ("loss", "accuracy")}, reads


def _each_row_once(model: _StandIn, n: int, called: str, twice: str) -> None:
    times = Counter(row for rows in model.rows for row in rows.tolist())
    if len(times) < n <= times.total():  # drawn with replacement, say
        raise Wrong(twice, f"{called}: each once", "some rows more than once")
    that(len(times) == n, "rows left over", f"{called}: all of them", f"{len(times)} different rows")
    that(max(times.values()) == 1, twice, f"{called}: each once", "some rows more than once")


def _is_the_mean(got: float, values: np.ndarray, batches: list[np.ndarray], batch_size: int, what: str) -> None:
    """``got`` is the mean over all rows, or one of the known mistakes."""
    parts, sizes = [float(values[rows].mean()) for rows in batches], [len(rows) for rows in batches]
    right, total = float(values.mean()), float(values.sum())
    mistakes = {
        "plain mean": np.mean(parts),
        "last batch taken for full": batch_size * sum(parts) / len(values),
        "divided by full batches": total / (batch_size * len(parts)),
        "a sum": total,
        "the last batch alone": parts[-1],
    }
    if np.isclose(got, right, rtol=1e-4):
        return
    more_sums = (sum(parts), total / len(parts))
    known = [name for name, value in mistakes.items() if np.isclose(got, value, rtol=1e-4)]
    known += ["a sum"] * any(np.isclose(got, value, rtol=1e-4) for value in more_sums)
    raise Wrong(known[0] if known else "another mean", f"{what}: {right:.4f}", f"{got:.4f} (batches of {sizes} images)")


class _Same:
    """Hands itself over where `run` would hand over a copy: what it notes must stay with the one who asks."""

    def __init__(self, one: object):
        self.__dict__["_one"] = one

    def __getattr__(self, name):
        return getattr(self.__dict__["_one"], name)

    def __deepcopy__(self, memo):
        return self

    def __repr__(self):
        return "model"


@contextlib.contextmanager
def _file_of(datasets: Mapping[str, np.ndarray]):
    """The path of an HDF5 file with these datasets, which is removed again."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "data.h5")
        with h5py.File(path, "w") as file:
            for name, values in datasets.items():
                file[name] = values
        yield path


# --- 02.5 -----------------------------------------------------------------------------------------------------------

_LANES = [  # the model's: (start, end, kind); not all reads are equally long, and not all clocks start at 0
    [(0, 30, "wait"), (30, 80, "train"), (80, 110, "wait"), (110, 160, "train")],
    [(100, 190, "wait"), (190, 200, "train"), (200, 230, "wait"), (230, 250, "train"), (250, 260, "wait")],
    [(0.0, 0.5, "wait"), (0.5, 0.75, "wait"), (0.75, 2.0, "train"), (2.0, 2.25, "wait"), (2.25, 4.0, "train")],
]


@task(
    "02.5",
    "How long does the model wait?",
    objective=5,
    points=3,
    hints={
        "bars counted": "Bars differ in length. Add up seconds (end minus start), and not how many bars there are.",
        "share of training": "That is the share of the time in which the model trains. Asked for is the other one.",
        "compared with training": "A share is a part of the whole: of waiting and training together.",
        "clock read from 0": "The end of the last bar is no length: where does the first bar start?",
        "in percent": "A share lies between 0 and 1.",
        "the two swapped": "These are the right numbers in the other order. Which one is asked for first?",
        "another share": "Add up end minus start of the bars of one kind, then of all bars.",
        "one part for all": "Reading beside training helps until the longer of the two is all that is left. Which of "
        "the two is longer here?",
        "the shorter part": "Both must be done. When they run at the same time, which of them ends last?",
        "the time saved": "That is which part of the time is saved. Asked for is how many times faster it gets.",
        "upside down": "Twice as fast is 2, not 0.5: the old time divided by the new one.",
        "another speed-up": "Try it with a step of 30 ms reading and 50 ms training: 80 ms become 50.",
    },
    note="The share of waiting says how much could be won, and the longer of the two parts how far it goes.",
)
def waiting(answer):
    function = a_function(answer, "spans")
    found = []
    for lane in _LANES:
        pair = a_list(run(function, lane, call=f"answer({describe(lane)})"), "what answer(spans) gives")
        that(len(pair) == 2, "wrong shape", "two numbers, (share, faster)", f"{len(pair)} of them")
        found.append([a_number(one, what) for one, what in zip(pair, ("the share", "faster"), strict=True)])
    yield
    for lane, (share, _) in zip(_LANES, found, strict=True):
        wait, train = _sums(lane)
        kinds = [kind for *_, kind in lane]
        mistakes = {
            "in percent": 100 * wait / (wait + train),
            "share of training": train / (wait + train),
            "compared with training": wait / train,
            "bars counted": kinds.count("wait") / len(kinds),
            "clock read from 0": wait / lane[-1][1],
        }
        mistakes["the two swapped"] = (wait + train) / max(wait, train)
        _is_number(share, wait / (wait + train), mistakes, "another share", f"share of waiting in {describe(lane)}")
    yield
    for lane, (_, faster) in zip(_LANES, found, strict=True):
        wait, train = _sums(lane)
        both, longer, shorter = wait + train, max(wait, train), min(wait, train)
        mistakes = {
            "upside down": longer / both,
            "the time saved": 1 - longer / both,
            "one part for all": both / train,
            "the shorter part": both / shorter,
        }
        _is_number(faster, both / longer, mistakes, "another speed-up", f"times faster, of {describe(lane)}")
    yield


def _sums(lane: list) -> tuple[float, float]:
    """Time of (waiting, training)."""
    return tuple(sum(end - start for start, end, kind in lane if kind == wanted) for wanted in ("wait", "train"))


def _is_number(got: float, right: float, mistakes: Mapping[str, float], otherwise: str, what: str) -> None:
    if not np.isclose(got, right, rtol=1e-2):
        known = [name for name, value in mistakes.items() if np.isclose(got, value, rtol=1e-2)]
        close(got, right, known[0] if known else otherwise, what)


# --- 02.6 -----------------------------------------------------------------------------------------------------------

_FAIR_N, _FAIR_SIZE = 45, 8
_PAIRS = [(0, 0), (0, 1), (1, 0), (1, 1), (0, 2)]  # (seed, epoch)


@task(
    "02.6",
    "A fair epoch, on your own file",
    objective=4,
    points=5,
    hints={
        "whole file in memory": "A file of 27 GB does not fit. Read the images of one batch, train, then the next.",
        "not trained": "The model learns nothing from this. Which of its methods changes the weights?",
        "pixels changed": "The model takes the images as they stand in the file: uint8, each pixel as it is.",
        "other batches": "All batches but the last have batch_size rows, and the last one has the rest.",
        "labels of other rows": "Reading by sorted rows gives images in the order of the file. In which order do you "
        "take the labels?",
        "rows left over": "Some rows were not trained on. Look at the last batch, and at how you count the batches.",
        "rows used twice": "Some rows were trained on twice, others not. A permutation has each number once.",
        "not shuffled": "The rows came in the order of the file.",
        "batches mixed alone": "The same rows stay together in a batch. In a file sorted by class each batch would "
        "hold one class. Mix rows, then cut.",
        "same order each epoch": "Two epochs had the same batches. What has to be different in an epoch's dice?",
        "seed ignored": "Two seeds gave the same order. Is it used where the dice are made?",
        "seed plus epoch": "Epoch 1 of seed 0 is epoch 0 of seed 1: their sum is the same. Seed by both numbers, not "
        "by one made of them.",
        "not repeatable": "The same call twice gave two orders. Whose dice are thrown, and who throws them, too?",
        "plain mean": "The last batch is smaller. In a plain mean of the losses its images count more than the others.",
        "last batch taken for full": "Each loss was counted batch_size times. How many images has the last batch?",
        "a sum": "The mean loss does not grow with the number of rows. By what is your sum divided?",
        "divided by full batches": "You divided by batches times batch_size. How many rows were there?",
        "the last batch alone": "That is the loss of the last batch. What is kept of those before?",
        "another mean": "Weight the loss of each batch by its number of images, then divide by all of them.",
        "TypeError": "If it speaks of indexing elements: a list of rows for h5py must be sorted, each row once. "
        "Section 6 has a reader without this rule. Otherwise look at the types in the line above.",
    },
    note="Shuffling by hand is an order of rows drawn from seed and epoch; and labels follow the same rows.",
)
def fair_epoch(answer):
    function = a_function(answer, "model, path, images, labels, epoch, seed, batch_size")
    arrays = _data(_FAIR_N, 4, 0, in_order_of_class=True)
    with _file_of({"plates": arrays[0], "dishes": arrays[1]}) as path, _watched_reads("plates") as reads:
        found = {pair: _trained(function, path, arrays, *pair, _FAIR_SIZE) for pair in _PAIRS}
        again = _trained(function, path, arrays, *_PAIRS[1], _FAIR_SIZE)
        whole = _trained(function, path, arrays, 0, 0, 15)  # 45 rows without a rest
    calls = [*found.values(), again, whole]
    most = max([*reads, *(len(rows) for model, _ in calls for rows in model.rows)])
    that(most <= 15, "whole file in memory", "images of one batch at a time", f"{most} images at once")
    yield
    for (model, _), size in zip(calls, [_FAIR_SIZE] * (len(calls) - 1) + [15], strict=True):
        _each_row_once(model, _FAIR_N, f"{_FAIR_N} rows by {size}", "rows used twice")
        sizes = [len(rows) for rows in model.rows]
        right = [size] * (_FAIR_N // size) + [_FAIR_N % size] * bool(_FAIR_N % size)
        that(sizes == right, "other batches", f"{_FAIR_N} rows by {size}: {right}", f"{sizes}")
    yield
    for model, _ in calls:
        fitting = _FAIR_N - model.wrong_labels
        that(not model.wrong_labels, "labels of other rows", "each label fits its image", f"{fitting} of {_FAIR_N} fit")
    yield
    _mixed_by_seed_and_epoch({pair: model.rows for pair, (model, _) in found.items()}, again[0].rows)
    yield
    for model, loss in calls:
        _is_the_mean(loss, model.losses, model.rows, len(model.rows[0]), f"mean loss of {_FAIR_N} rows")
    yield


def _trained(function, path, arrays, seed: int, epoch: int, batch_size: int) -> tuple[_StandIn, float]:
    """(the model, the mean loss that the answer gave)."""
    model = _stand_in(*arrays, seed)
    call = f'answer(model, path, "plates", "dishes", {epoch}, {seed}, {batch_size})'
    got = _called(function, _Same(model), path, "plates", "dishes", epoch, seed, batch_size, call=call)
    that(model.trained == len(model.rows) > 0, "not trained", "train_on_batch for each batch", f"{model.trained} calls")
    return model, a_number(got, f"{call}: the mean loss")


def _mixed_by_seed_and_epoch(batches: dict[tuple, list[np.ndarray]], again: list[np.ndarray]) -> None:
    """Each (seed, epoch) has batches of its own, from all over the file, and twice the same."""
    met = {pair: [frozenset(rows.tolist()) for rows in parts] for pair, parts in batches.items()}
    what = "seed 0, epoch 1"
    in_file = np.array_equal(np.concatenate(batches[0, 1]), np.arange(_FAIR_N))
    that(not in_file, "not shuffled", f"{what}: another order than the file's", "rows 0, 1, 2, ... as they stand")
    stretches = sum(max(rows) - min(rows) + 1 == len(rows) for rows in met[0, 1])
    that(stretches < 3, "batches mixed alone", f"{what}: rows from all over the file", "neighbours in each batch")
    same_calls = [rows.tolist() for rows in batches[0, 1]] == [rows.tolist() for rows in again]
    that(same_calls, "not repeatable", f"{what}, twice: the same batches", "other batches")
    that(met[0, 0] != met[0, 1] != met[0, 2], "same order each epoch", "other batches in each epoch", "the same ones")
    alone = set(met[0, 0]) != set(met[0, 1])
    that(alone, "batches mixed alone", "rows that meet in an epoch part in the next", "the same rows in each batch")
    that(met[0, 0] != met[1, 0], "seed ignored", "other batches for seeds 0 and 1", "the same ones")
    that(met[0, 1] != met[1, 0], "seed plus epoch", "(seed, epoch) = (0, 1) and (1, 0) differ", "the same batches")

"""Questions on lesson 07: one table of settings, a look at the file, the batch, the clock, the judge, going on."""

from __future__ import annotations

import csv
import math
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import h5py
import numpy as np

from helpers.course.probes import (
    AnswerRaised,
    Wrong,
    a_dict,
    a_function,
    a_list,
    a_number,
    a_text,
    a_whole_number,
    an_array,
    attempt,
    describe,
    is_known_mistake,
    run,
    same,
    task,
    that,
)

# --- 07.1 -----------------------------------------------------------------------------------------------------------

_LETTERS = set("abcdefghij")
_BY_HAND = set("bdgi")
_FROM_TABLE, _FROM_FILE = set("acfj"), set("eh")


@task(
    "07.1",
    "What one word does not reach",
    objective=1,
    points=2,
    hints={
        "all lines": "Some lines take all they need from the settings or from the file. Which ones?",
        "settings left to themselves": "What comes from `settings` is another number in the full run, by itself. The "
        "same holds for `path`, and for names made of `PRESET`.",
        "the file left to itself": "Classes and rows that are read from an open sequence follow the file, whichever "
        "it is.",
        "a rounded quotient": "How many validation rows has the full file, and how many of them would be looked at?",
        "fails at the end": "Go on behind the training: which line of the judging knows how many classes there are?",
        "a number by hand": "Which lines have a number where the table or the file should speak?",
    },
    note="Whatever differs between the runs comes from the table or from the file, never from a hand.",
)
def one_word(answer):
    letters = [a_text(one, "each line's letter").strip().lower() for one in a_list(answer, "the letters")]
    that(set(letters) <= _LETTERS, "wrong type", "letters from a to j", describe(answer))
    found, expected = set(letters), "the lines that fail, or still use a value of the trial run"
    that(found, "a number by hand", expected, "no line")
    yield
    got = ", ".join(sorted(found))
    that(found != _LETTERS, "all lines", expected, "all of them")
    that(not found & _FROM_TABLE, "settings left to themselves", expected, got)
    that(not found & _FROM_FILE, "the file left to itself", expected, got)
    missed = _BY_HAND - found
    that(missed != {"g"}, "a rounded quotient", expected, f"{got}, which leaves out one")
    that(missed != {"i"}, "fails at the end", expected, f"{got}, which leaves out one")
    that(not missed, "a number by hand", expected, f"{got}, which leaves out {len(missed)}")
    yield


# --- 07.2 -----------------------------------------------------------------------------------------------------------

_WORDS = ("incomplete", "lengths-differ", "labels", "class-sorted", "missing-class")
_ROWS = {"train": 160, "valid": 64, "test": 64}  # 32 or more of a class, and several times 32: an order can be seen
_CLASSES = 5


@task(
    "07.2",
    "Is this file worth an hour?",
    objective=2,
    points=4,
    hints={
        "a sound file refused": "There is nothing wrong with this file. What did your function take for a problem?",
        "floats refused": "One 1 among zeros is a good label in any type of number. What do you compare?",
        "other splits' classes": "The model learns from `train`. Another split may lack a class.",
        "words of its own": "The list holds the five words of the table, and nothing else. `inspect_file` has more "
        "codes than these; some of them mean the same word.",
        "stopped writer not seen": "The file says itself whether its writer got to the end. Where, and in what type?",
        "lengths not compared": "Images and labels are two datasets. What if one of them has more rows?",
        "only train looked at": "What holds for `train` holds for the other two splits, too. Did you look there?",
        "rows of zeros passed": "A row of zeros belongs to no class, but its largest number has a place, too: 0.",
        "soft labels passed": "The row sums to 1. Is there a single 1 in it?",
        "several ones passed": "The largest number of the row is 1. How many ones are in it?",
        "order not looked at": "One class after the other stands in this split. In `inspect_file`'s report this is no "
        "fault: look at its other list.",
        "sorted only upwards": "The classes stand one after the other, but not in the order of their numbers.",
        "missing class not seen": "Count the rows of each class in `train`: `report.splits` has these counts.",
        "stopped at the first problem": "The file has more than one problem. Does your function end after the first?",
        "sorted, and a class missing": "The classes that are there stand one after the other. Does your rule count on "
        "all of them?",
        "a problem hidden by others": "Where this problem is alone, your function sees it. Which other one is in its "
        "way?",
        "another problem named": "The list holds a problem that this file does not have.",
        "KeyError": "A report's `splits` and a file's names are `train`, `valid`, `test`: print them for one file.",
    },
    note="A second of looking says what would have spoiled hours.",
)
def worth_an_hour(answer):
    function = a_function(answer, "path")
    with tempfile.TemporaryDirectory() as name:
        files = _Files(function, Path(name))
        files.sound("shuffled rows")
        files.sound("labels of float32", "floats refused", dtype=np.float32)
        files.sound("a class that is in train, and not in valid", "other splits' classes", lacks=("valid", 2))
        yield
        files.has("incomplete", "a writer that was stopped", "stopped writer not seen", complete=False)
        files.has("lengths-differ", "more images than labels in train", "lengths not compared", more=("train", "img"))
        files.has(
            "lengths-differ", "more labels than images in valid", "only train looked at", more=("valid", "labels")
        )
        yield
        files.has("labels", "rows of zeros in train_labels", "rows of zeros passed", rows={3: [0] * 5, 90: [0] * 5})
        soft = [0.25, 0.25, 0.5, 0, 0]
        files.has("labels", "0.25, 0.25 and 0.5 in a row", "soft labels passed", rows={70: soft}, dtype=np.float32)
        files.has("labels", "two ones in a row", "several ones passed", rows={40: [0, 1, 0, 1, 0]})
        files.has("labels", "rows of zeros in test_labels", "only train looked at", rows={7: [0] * 5}, split="test")
        files.has("class-sorted", "one class after the other in train", "order not looked at", order=range(5))
        files.has("class-sorted", "classes in the order 3, 0, 4, 1, 2", "sorted only upwards", order=(3, 0, 4, 1, 2))
        yield
        files.has("missing-class", "no row of class 4 in train", "missing class not seen", lacks=("train", 4))
        files.has("missing-class", "no row of class 1 in train", "missing class not seen", lacks=("train", 1))
        many = {"complete": False, "more": ("test", "img"), "lacks": ("train", 0), "order": range(5)}
        files.has_several("incomplete lengths-differ class-sorted missing-class", "four of the five problems", **many)
        yield


class _Files:
    """Small files, each with one problem or none, and what an answer says of them."""

    def __init__(self, function: Callable, folder: Path):
        self._function, self._folder, self._made = function, folder, 0

    def sound(self, what: str, name: str = "a sound file refused", **how) -> None:
        found = self._words(what, how)
        that(not found, name, f"a file with {what}: []", sorted(found))

    def has(self, words: str, what: str, name: str, **how) -> None:
        right, found = set(words.split()), self._words(what, how)
        expected = f"a file with {what}: {sorted(right)}"
        that(right <= found, name, expected, sorted(found))
        that(found <= right, "another problem named", expected, sorted(found))

    def has_several(self, words: str, what: str, **how) -> None:
        right, found = set(words.split()), self._words(what, how)
        expected, missed = f"a file with {what}: {sorted(right)}", sorted(right - found)
        that(not missed or len(found) > 1, "stopped at the first problem", expected, sorted(found))
        names = {("class-sorted",): "sorted, and a class missing", ("lengths-differ",): "only train looked at"}
        without = f"{sorted(found)}, without {', '.join(missed)}"
        that(not missed, names.get(tuple(missed), "a problem hidden by others"), expected, without)
        that(found <= right, "another problem named", expected, sorted(found))

    def _words(self, what: str, how: dict) -> set[str]:
        self._made += 1
        path = self._folder / f"file_{self._made}.h5"
        _write(path, self._made, **how)
        call = f"answer(path) of a file with {what}"
        found = [
            a_text(one, f"{call}: each problem") for one in a_list(run(self._function, path, call=call), f"{call}")
        ]
        other = [one for one in found if one not in _WORDS]
        that(not other, "words of its own", f"some of {', '.join(_WORDS)}", ", ".join(other[:3]))
        return set(found)


def _write(
    path: Path,
    seed: int,
    *,
    complete: bool = True,
    dtype: type = np.uint8,
    more: tuple[str, str] = ("", ""),
    lacks: tuple[str, int] = ("", 0),
    rows: Mapping[int, list] = {},  # noqa: B006 - never changed
    split: str = "train",
    order: object = None,
) -> None:
    """A small file of the kit's layout: shuffled classes, one-hot labels, and the fault that is asked for."""
    rng = np.random.default_rng(seed)
    # Links with checksums, and texts of fixed size: helpers.first_look needs no child process for such a file.
    with h5py.File(path, "w", libver="latest") as file:
        file.attrs["class_names"] = np.array([f"dish {number}" for number in range(_CLASSES)], "S")
        file.attrs["complete"] = complete
        for name, n in _ROWS.items():
            classes = rng.permutation(np.arange(n) % _CLASSES)
            if name == "train" and order is not None:
                classes = np.repeat(list(order), n // _CLASSES)
            if name == lacks[0]:
                classes[classes == lacks[1]] = (lacks[1] + 1) % _CLASSES
            labels = np.eye(_CLASSES, dtype=dtype)[classes]
            for row, value in rows.items() if name == split else ():
                labels[row] = value
            images = rng.integers(0, 256, (n, 4, 4, 3), np.uint8)
            extra = more[1] if name == more[0] else ""
            file[f"{name}_img"] = np.concatenate([images, images[::-1][:3]]) if extra == "img" else images
            file[f"{name}_labels"] = np.concatenate([labels, labels[:3]]) if extra == "labels" else labels


# --- 07.3 -----------------------------------------------------------------------------------------------------------

_CARDS = [  # (GB free, weights, frozen ones among them, numbers kept for an image); each lies close to a power of two
    (1.5, 22_000_000, 0, 33_000_000),
    (2.84, 20_000_000, 0, 10_000_000),
    (2.76, 20_000_000, 0, 10_000_000),
    (2.68, 20_000_000, 0, 10_000_000),
    (2.6, 20_000_000, 0, 10_000_000),
    (2.5, 1_000_000, 0, 10_000_000),
    (2.62, 21_000_000, 20_000_000, 10_000_000),
    (2.74, 21_000_000, 20_000_000, 10_000_000),
    (0.3, 22_000_000, 0, 33_000_000),
    (0.45, 22_000_000, 0, 33_000_000),
]


def _fitting(free, weights, frozen, outputs, *, gb=10**9, copies=4, kept=1, width=4, rounded=math.floor, least=0):
    images = (free * gb - 4 * (copies * (weights - frozen) + kept * frozen)) / (width * outputs)
    return 2 ** rounded(math.log2(images)) if images >= 1 else least


_CARD_MISTAKES = {
    "forgets Adam's two numbers": {"copies": 2},
    "forgets one number of Adam": {"copies": 3},
    "forgets gradient and Adam": {"copies": 1},
    "forgets the weights": {"copies": 0, "kept": 0},
    "frozen weights count fully": {"kept": 4},
    "forgets the frozen weights": {"kept": 0},
    "one byte a number": {"width": 1},
    "half precision": {"width": 2},
    "eight bytes a number": {"width": 8},
    "GiB for GB": {"gb": 2**30},
    "rounded up": {"rounded": math.ceil},
    "rounded to the nearest": {"rounded": round},
    "one image that does not fit": {"least": 1},
}


@task(
    "07.3",
    "What fits on the card?",
    objective=3,
    points=3,
    hints={
        "forgets Adam's two numbers": "Weight and gradient are two numbers. What else does Adam keep for each weight?",
        "forgets one number of Adam": "You have three numbers for each weight. Section 3 of the lesson counts more.",
        "forgets gradient and Adam": "To train, a card needs more than the weights themselves.",
        "forgets the weights": "Take the smallest batch that you can think of. Is the card empty before it comes?",
        "frozen weights count fully": "No gradient is computed for a frozen weight. What does the optimizer need?",
        "forgets the frozen weights": "A frozen weight does not change. Is it therefore not on the card?",
        "one byte a number": "Images arrive as bytes. What the layers put out is of another type.",
        "half precision": "Two bytes a number is `mixed_float16`. The numbers here are float32.",
        "eight bytes a number": "Eight bytes is float64, NumPy's own choice. The numbers here are float32.",
        "GiB for GB": "The exercise says how many bytes a GB has.",
        "rounded up": "The batch has to fit: on which side of the limit is the next power of two?",
        "rounded to the nearest": "The nearest power of two may be above the limit. Does such a batch fit?",
        "one image that does not fit": "Here not even one image has room. What does the exercise ask for then?",
        "less than one image": "Less than one image fits: the task asks for 0 then.",
        "a part of an image": "A part of an image is no image. Which of the whole numbers is asked for?",
        "no power of two": "Of all batches that fit, those with 1, 2, 4, 8, 16, ... images count.",
        "another batch": "Do the first case by hand: bytes for the weights, bytes for an image, what is left.",
        "ValueError": "A logarithm of 0, or of less, has no value. What is left when the weights alone do not fit?",
    },
    note="Four numbers a trained weight, one a frozen one, and all outputs for each image: the rest is a division.",
)
def what_fits(answer):
    function = a_function(answer, "free_gb, weights, frozen, outputs")
    found = [_images(run(function, *case), f"answer{case}") for case in _CARDS]
    yield
    right = [_fitting(*case) for case in _CARDS]
    for name, how in _CARD_MISTAKES.items():
        if found == [_fitting(*case, **how) for case in _CARDS]:
            _first_difference(found, right, name)
    for case, batch in zip(_CARDS, found, strict=True):
        power = batch == 0 or (batch > 0 and batch & (batch - 1) == 0)
        that(power, "no power of two", f"answer{case}: a power of two, or 0", batch)
    yield
    _first_difference(found, right, "another batch")
    yield


def _images(value: object, call: str) -> int:
    """A whole number of images, also as a float, such as 8.0."""
    number = a_number(value, call)
    that(math.isfinite(number), "wrong type", f"{call}: a whole number", number)
    that(not 0 < number < 1, "less than one image", f"{call}: 0, or one image and more", describe(number))
    that(number.is_integer(), "a part of an image", f"{call}: a whole number", describe(number))
    return int(number)


def _first_difference(found: list[int], right: list[int], name: str) -> None:
    for case, got, wanted in zip(_CARDS, found, right, strict=True):
        same(got, wanted, name, f"answer{case}: images a batch")


# --- 07.4 -----------------------------------------------------------------------------------------------------------

_STEPS = [  # (seconds of waiting, seconds of the step), step by step
    ([6.0, 0.03, 0.03, 0.01, 0.05], [7.0, 0.05, 0.05, 0.04, 0.06]),
    ([0.5, 0.0, 0.0, 0.0], [9.0, 0.2, 0.25, 0.2]),
    ([0.0, 0.4, 0.0, 0.0, 0.0, 0.2], [3.0, 0.5, 0.1, 0.1, 0.1, 0.7]),
    ([4.0, 0.095, 0.0, 0.19], [5.0, 1.0, 1.0, 1.0]),  # 9.5 %: a gain of 1.105
    ([4.0, 0.085, 0.0, 0.17], [5.0, 1.0, 1.0, 1.0]),
]


@task(
    "07.4",
    "Which side is too slow?",
    objective=4,
    points=4,
    hints={
        "the first step counted": "The first step compiles the model and starts the workers. It says nothing about "
        "the others.",
        "first step dropped on one side": "The first step is missing in one of the sums and stands in the other.",
        "mean of the shares": "A long step counts as much as a short one here. Asked for is a share of the time.",
        "waiting by working": "The share is one of the whole time, waiting included.",
        "in percent": "A share lies between 0 and 1.",
        "share of the work": "That is the share in which the model was busy.",
        "seconds, not a share": "So many seconds were waited. Of how many?",
        "another share": "Add up by hand the first example of the exercise, without its first step.",
        "share added to one": "A step of 4 s with 1 s of waiting takes 3 s without it. How many times as fast is that?",
        "waiting only": "Whole time by waiting time is not what is gained. What is left when nobody waits?",
        "the time left": "A training that gets faster has a factor above 1. What is divided by what?",
        "rounded": "That is right, and rounded. Keep three digits after the point at least, or all of them.",
        "another gain": "Compare the time with the time without waiting, both without the first step.",
        "sides swapped": "Waiting for data: which side keeps the other one waiting?",
        "limit on the share": "The limit is one of the gain, not of the share. They differ near the limit.",
        "another side": 'The rule is a comparison of the gain with 1.1, and the words are "feed" and "model".',
    },
    note="Look at the share first: it bounds what a faster feed can bring, and whether a faster card brings anything.",
)
def which_side(answer):
    function = a_function(answer, "waits, steps")
    found, calls = [], [f"answer({waits}, {steps})" for waits, steps in _STEPS]
    for call, (waits, steps) in zip(calls, _STEPS, strict=True):
        given = run(function, waits, steps, call=call)
        three = f"{call}: three values (share, gain, side)"
        try:
            parts = a_list(given, three)
        except Wrong:
            raise Wrong("wrong type", three, describe(given)) from None
        that(len(parts) == 3, "wrong shape", three, f"{len(parts)} of them")
        share, gain = (
            a_number(one, f"{call}: {what}") for one, what in zip(parts, ("the share", "the gain"), strict=False)
        )
        found.append((share, gain, a_text(parts[2], f"{call}: the side")))
    yield
    shares, gains, sides = map(list, zip(*found, strict=True))
    cases = [tuple(map(np.asarray, case)) for case in _STEPS]
    rules = {name: [rule(w, s) for w, s in cases] for name, rule in _SHARES.items()}
    _all_close(shares, rules, calls, "the share", "another share")
    yield
    rules = {name: [rule(w, s) for w, s in cases] for name, rule in _GAINS.items()}
    _all_close(gains, rules, calls, "the gain", "another gain")
    yield
    right = ["feed" if gain > 1.1 else "model" for gain in gains]
    mistakes = {
        "sides swapped": ["model" if side == "feed" else "feed" for side in right],
        "limit on the share": ["feed" if share > 0.1 else "model" for share in shares],
    }
    named = next((name for name, values in mistakes.items() if values == sides), "another side")
    for call, got, wanted in zip(calls, sides, right, strict=True):
        same(got, wanted, named, f"{call}: the side")
    yield


_SHARES = {
    "": lambda w, s: w[1:].sum() / s[1:].sum(),
    "the first step counted": lambda w, s: w.sum() / s.sum(),
    "first step dropped on one side": lambda w, s: w[1:].sum() / s.sum(),
    "mean of the shares": lambda w, s: (w[1:] / s[1:]).mean(),
    "waiting by working": lambda w, s: w[1:].sum() / (s - w)[1:].sum(),
    "in percent": lambda w, s: 100 * w[1:].sum() / s[1:].sum(),
    "share of the work": lambda w, s: 1 - w[1:].sum() / s[1:].sum(),
    "seconds, not a share": lambda w, _: w[1:].sum(),
}
_GAINS = {
    "": lambda w, s: s[1:].sum() / (s - w)[1:].sum(),
    "the first step counted": lambda w, s: s.sum() / (s - w).sum(),
    "share added to one": lambda w, s: 1 + w[1:].sum() / s[1:].sum(),
    "waiting only": lambda w, s: s[1:].sum() / max(w[1:].sum(), 1e-300),
    "the time left": lambda w, s: (s - w)[1:].sum() / s[1:].sum(),
}


_NEAR = {"rtol": 1e-3, "atol": 1e-9}  # a value rounded to three digits after the point is right


def _all_close(found: list[float], rules: Mapping[str, list], calls: list[str], what: str, name: str) -> None:
    """All cases by the rule named ''; else the mistake whose rule gives what was found, else ``name``."""
    right = rules[""]
    if np.allclose(found, right, **_NEAR):
        return
    # A division by a waiting of 0 fails or is caught in some way: such cases do not tell mistakes apart.
    known = [one for one, values in rules.items() if one and _same_where_finite(found, values)]
    known += ["rounded"] * any(_is_rounded(np.array(found), right, digits) for digits in (1, 2))
    call, got, wanted = next(
        one for one in zip(calls, found, right, strict=True) if not np.isclose(one[1], one[2], **_NEAR)
    )
    raise Wrong([*known, name][0], f"{call}: {what}: {_digits(wanted)}", _digits(got))


def _is_rounded(found: np.ndarray, right: list[float], digits: int) -> bool:
    has_no_more = np.allclose(found, found.round(digits), rtol=1e-9)
    return has_no_more and np.allclose(found, right, rtol=0, atol=0.501 * 10.0**-digits)


def _digits(value: float) -> str:
    return f"{value:.3f}" if value == 0 or 0.1 <= abs(value) < 1e6 else f"{value:.4g}"


def _same_where_finite(found: list[float], values: list[float]) -> bool:
    pairs = [(one, other) for one, other in zip(found, values, strict=True) if abs(other) < 1e9]
    return np.allclose(*zip(*pairs, strict=True), **_NEAR)


# --- 07.5 -----------------------------------------------------------------------------------------------------------

_KEYS = ("matrix", "recall", "top5", "worst")
_DISHES = 8


@task(
    "07.5",
    "Judge a model",
    objective=5,
    points=5,
    hints={
        "rows and columns swapped": "True dish down, answer across: which of the two numbers is the row?",
        "counts as shares": "The matrix holds counts of images.",
        "another matrix": "Each image adds 1 in one place. Add up all numbers: is each image in it once?",
        "precision for recall": "Of the true pizzas, how many were found? Which sum do you divide by?",
        "accuracy for recall": "Recall looks at the images of one class alone.",
        "another recall": "For each class: its place on the diagonal by the number of its true images.",
        "the five least likely": "`argsort` puts the smallest number first.",
        "top one": "The right class may stand on any of the first five places.",
        "mean of the batches": "The last batch is smaller, and counts less: take all rows together.",
        "another top five": "For each row: is its true class one of the five of highest probability?",
        "rows of a batch": "A row number counts from the start of the file. Where does the second batch start?",
        "positions among the mistakes": "That is a place in the list of mistakes. To which row does it belong?",
        "least sure first": "Asked for are the mistakes where the model was most sure.",
        "right answers among them": "Some of these rows were answered rightly.",
        "by the true class": "How sure was the model of what it said? That is the probability of its answer.",
        "in another order": "The three rows are right, their order is not: the surest first.",
        "not three": "Three rows, or fewer where there are fewer mistakes.",
        "other rows": "Take the wrong answers alone, and sort them by the probability of the answer, highest first.",
        "IndexError": "Labels are one-hot rows. What takes the place of a class number?",
    },
    note="Accuracy is one number; the matrix says where it is lost, and the worst rows say what to look at.",
)
def judge(answer):
    function = a_function(answer, "batches")
    results = []
    for seed, sizes in enumerate([(32, 32, 32, 9), (40, 40, 3), (25, 25, 25, 25, 4), (64,)]):
        case = _Case(seed, sizes)
        results.append((case, a_dict(run(function, case.batches, call=case.call), _KEYS, case.call)))
    for case, result in results:
        an_array(result["matrix"], f"{case.call}: matrix", shape=(_DISHES, _DISHES))
        an_array(result["recall"], f"{case.call}: recall", shape=(_DISHES,))
        a_number(_plain(result["top5"]), f"{case.call}: top5")
        for row in a_list(_plain(result["worst"]), f"{case.call}: worst"):
            a_whole_number(row, f"{case.call}: a row of worst")
    yield
    for case, result in results:
        case.matrix_is(np.asarray(result["matrix"]))
    yield
    for case, result in results:
        case.recall_is(np.asarray(result["recall"], float))
    yield
    _top_five(results)
    yield
    for case, result in results:
        case.worst_are([int(row) for row in a_list(_plain(result["worst"]), "worst")])
    case = _Case(9, (30, 10), all_right=True)
    result = a_dict(run(function, case.batches, call=case.call), _KEYS, case.call)
    same(len(a_list(_plain(result["worst"]), "worst")), 0, "right answers among them", f"{case.call}: rows in worst")
    yield


def _plain(value: object) -> object:
    """A tensor as an array; everything else as it is."""
    return value.numpy() if hasattr(value, "numpy") else value


class _Case:
    """Probabilities and one-hot labels of a test split, in batches, with what is true of them."""

    def __init__(self, seed: int, sizes: tuple[int, ...], *, all_right: bool = False):
        rng, n = np.random.default_rng([7, seed]), sum(sizes)
        self.truth = rng.permutation(np.arange(n) % _DISHES)
        said = np.where(rng.random(n) < 0.55, self.truth, (self.truth * 3 + rng.integers(1, 4, n)) % _DISHES)
        said[:_DISHES] = np.arange(_DISHES)  # each class is an answer at least once
        self.answers = self.truth if all_right else said
        scores = rng.random((n, _DISHES)) ** 2
        scores[np.arange(n), self.answers] = scores.max(axis=1) * (1.05 + rng.random(n))
        if not all_right and len(sizes) > 1:  # a last batch of misses, which a mean of batches weighs too much
            for row in range(n - sizes[-1], n):
                scores[row, self.truth[row]] = 0.001 * (1 + rng.random()) * scores[row].min()
        self.probabilities = (scores / scores.sum(axis=1, keepdims=True)).astype(np.float32)
        self.answers = self.probabilities.argmax(axis=1)
        self.sizes, self.stops = sizes, np.cumsum(sizes)
        parts = (
            np.split(self.probabilities, self.stops[:-1]),
            np.split(np.eye(_DISHES, dtype=np.uint8)[self.truth], self.stops[:-1]),
        )
        self.batches = list(zip(*parts, strict=True))
        self.call = f"answer(batches) of {', '.join(map(str, sizes))} rows"
        self.matrix = np.zeros((_DISHES, _DISHES), int)
        np.add.at(self.matrix, (self.truth, self.answers), 1)

    @property
    def hits(self) -> np.ndarray:
        """Whether the true class is one of the five of highest probability."""
        best = np.argsort(-self.probabilities, axis=1)[:, :5]
        return (best == self.truth[:, None]).any(axis=1)

    def matrix_is(self, found: np.ndarray) -> None:
        right, what = self.matrix, f"{self.call}: matrix"
        that(
            not np.array_equal(found, right.T),
            "rows and columns swapped",
            f"{what}: the true dish down",
            "it lies across",
        )
        shares = [right / right.sum(), *(right / np.maximum(right.sum(axis=axis, keepdims=True), 1) for axis in (0, 1))]
        is_share = any(np.allclose(found, one) for one in shares)
        that(not is_share, "counts as shares", f"{what}: counts, {right.sum()} together", f"a sum of {found.sum():.3g}")
        row = int(np.argmax((found != right).any(axis=1)))
        that(
            np.array_equal(found, right),
            "another matrix",
            f"{what}, row {row}: {right[row].tolist()}",
            found[row].tolist(),
        )

    def recall_is(self, found: np.ndarray) -> None:
        diagonal, what = self.matrix.diagonal(), f"{self.call}: recall"
        right = diagonal / self.matrix.sum(axis=1)
        mistakes = {
            "precision for recall": diagonal / self.matrix.sum(axis=0),
            "accuracy for recall": diagonal / self.matrix.sum(),
        }
        name = next((one for one, value in mistakes.items() if np.allclose(found, value)), "another recall")
        that(np.allclose(found, right), name, f"{what}: {_rounded(right)}", _rounded(found))

    def worst_are(self, found: list[int]) -> None:
        wrong, what = np.flatnonzero(self.answers != self.truth), f"{self.call}: worst"
        sure, true = self.probabilities.max(axis=1), self.probabilities[np.arange(len(self.truth)), self.truth]
        right = wrong[np.argsort(-sure[wrong])]
        starts = np.repeat(self.stops - self.sizes, self.sizes)
        mistakes = {
            "rows of a batch": (right - starts[right])[:3],
            "positions among the mistakes": np.argsort(-sure[wrong])[:3],
            "least sure first": right[::-1][:3],
            "right answers among them": np.argsort(-sure)[:3],
            "by the true class": wrong[np.argsort(true[wrong])][:3],
        }
        right = right[:3].tolist()
        is_known_mistake(found, {name: rows.tolist() for name, rows in mistakes.items()}, right, what)
        that(len(found) == len(right), "not three", f"{what}: {len(right)} rows", f"{len(found)} rows")
        that(set(found) != set(right) or found == right, "in another order", f"{what}: {right}", found)
        is_wrong = all(row in wrong for row in found)
        that(is_wrong or max(found) >= len(self.truth), "right answers among them", f"{what}: {right}", found)
        same(found, right, "other rows", what)


def _top_five(results: list[tuple[_Case, dict]]) -> None:
    """Over all cases together: one case alone may not tell two mistakes apart."""
    found = [float(_plain(result["top5"])) for _, result in results]
    cases = [case for case, _ in results]
    rules = {
        "": [case.hits.mean() for case in cases],
        "the five least likely": [_lowest(case).mean() for case in cases],
        "top one": [(case.answers == case.truth).mean() for case in cases],
        "mean of the batches": [
            np.mean([part.mean() for part in np.split(case.hits, case.stops[:-1])]) for case in cases
        ],
    }
    _all_close(found, rules, [case.call for case in cases], "top5", "another top five")


def _lowest(case: _Case) -> np.ndarray:
    return (np.argsort(case.probabilities, axis=1)[:, :5] == case.truth[:, None]).any(axis=1)


def _rounded(values: np.ndarray) -> str:
    return str([round(float(value), 2) for value in values])


# --- 07.6 -----------------------------------------------------------------------------------------------------------

# The first run, epochs 0 to 4. Best: val_accuracy in 1, val_loss in 2, loss and accuracy in 3; last: 4.
_FIRST = {
    "loss": [1.9, 1.5, 1.2, 0.6, 0.8],
    "accuracy": [0.2, 0.4, 0.6, 0.9, 0.8],
    "val_loss": [1.8, 1.4, 1.0, 1.2, 1.3],
    "val_accuracy": [0.3, 0.6, 0.5, 0.45, 0.4],
}
# Then two runs more. One gets better for as long as its patience, dips once, and is never as good as the first one's
# best: an EarlyStopping with that best as its baseline stops at the dip. The other one is better.
_SECOND = {
    "loss": [0.9, 0.85, 0.8, 0.75, 0.7, 0.65],
    "accuracy": [0.8] * 6,
    "val_loss": [1.2, 1.15, 1.1, 1.05, 1.0, 0.95],
    "val_accuracy": [0.35, 0.4, 0.45, 0.5, 0.45, 0.55],
}
_THIRD = {"loss": [0.6], "accuracy": [0.9], "val_loss": [0.9], "val_accuracy": [0.7]}
# A run that gets worse after epoch 1, while its losses fall.
_WORSE = {
    "loss": [2.0 - 0.1 * epoch for epoch in range(10)],
    "accuracy": [0.2 + 0.05 * epoch for epoch in range(10)],
    "val_loss": [1.9 - 0.1 * epoch for epoch in range(10)],
    "val_accuracy": [0.5, 0.6, 0.4, 0.3, 0.2, 0.2, 0.2, 0.2, 0.2, 0.2],
}
_ARGUMENTS = ("initial_epoch", "epochs", "class_weight", "callbacks")
_COUNTS = [400, 100, 25, 75]


@task(
    "07.6",
    "A run that goes on",
    objective=6,
    points=5,
    hints={
        "keys of text": "Keras looks up class numbers, and finds no text. What type has each key?",
        "common classes count more": "Which class should count more, the one with many images or the one with few?",
        "weights not scaled": "The rare class counts more, as it should, but even classes would not get 1.0. Look at "
        "the formula.",
        "other weights": "Compute the weight of the first class by hand, with the formula of the exercise.",
        "epochs is how many more": "`epochs` is the number of the last epoch. How many are done when this run starts?",
        "last epoch once more": "The log counts epochs from 0. How many lines has it after the epochs 0, 1 and 2?",
        "heading counted": "The first line of the log is no epoch.",
        "negative epochs": "A log that is empty, or not there, has no header line either. How many epochs are done "
        "then?",
        "starts at 0 again": "The folder has a log. What does it say about the epochs that are done?",
        "other epochs": "How many epochs are in the log, and where is this run to end?",
        "empty log": "A run that is stopped in its first epoch leaves a log without a line. Try it on an empty file.",
        "FileNotFoundError": "At the first run the folder has no log. How many epochs are done then?",
        "unknown name": "Keras puts `val_` before the name of the metric as `compile` has it. Which names are there?",
        "no best model": "After the run there was no `best.keras` that Keras can load in the folder.",
        "no last model": "After the run there was no `last.keras` that Keras can load in the folder.",
        "watches the loss": "`best.keras` held the epoch of the lowest validation loss.",
        "watches the training": "`best.keras` held the epoch that is best on the training images.",
        "wrong direction": "`best.keras` held the worst epoch. Is a high accuracy good or bad?",
        "keeps the last epoch": "`best.keras` held the last epoch. Which argument keeps the best one alone?",
        "last is the best": "`last.keras` held an older epoch. A run goes on from where it stopped: save each epoch.",
        "another best": "`best.keras` held an epoch that is best in nothing.",
        "no log": "After the run `log.csv` did not have one line for each epoch. Which callback writes it?",
        "steps as large as before": "`val_loss` had not fallen for two epochs, and the learning rate was the same.",
        "smaller steps too early": "The learning rate fell when `val_loss` had not fallen for one epoch. What is "
        "watched, and for how long?",
        "smaller steps without need": "`val_loss` fell in each epoch, and the learning rate fell as well.",
        "never stops": "It trained on although `val_accuracy` fell. Which callback ends a training, and what does it "
        "watch?",
        "stops too early": "It ended sooner than `patience` says. What does it watch, and is the argument passed on?",
        "stops too late": "It ended later than `patience` says. Is the argument passed on?",
        "stopping looks at older runs": "The second run got better in each epoch but one, and was ended. Stopping "
        "looks at this run alone.",
        "log overwritten": "After the second run the first one's lines were gone. See the arguments of the logger.",
        "forgets the best of before": "The second run began by saving a worse model over the best one. Does the new "
        "checkpoint know how good the old one was?",
        "never saves again": "A later run was better than all before, and its model was not saved as the best.",
    },
    note="Model, log and seed are all that a run needs: the same call starts it, and goes on after a power cut.",
)
def goes_on(answer):
    function = a_function(answer, "folder, counts, more, patience")
    with tempfile.TemporaryDirectory() as name:
        first = _Run(function, Path(name), more=5, patience=4)
        first.epochs_are(0)
        empty = Path(name) / "empty"
        empty.mkdir()
        (empty / "log.csv").touch()
        _Run(function, empty, more=3, patience=4, name="empty log").epochs_are(0)
        yield
        first.weights_fit()
        yield
        ended = first.train(_FIRST)
        that(ended == 4, "stops too early", "patience 4, best epoch 1: no stop up to epoch 4", f"a stop at {ended}")
        first.leaves_files()
        yield
        _stops(function, Path(name))
        yield
        second = _Run(function, Path(name), more=6, patience=4)
        second.epochs_are(5)
        ended = second.train(_SECOND)
        rises = "patience 4, a second run that is worse than the epoch before in epoch 9 alone: no stop"
        that(ended == 10, "stopping looks at older runs", rises, f"a stop at {ended}")
        _log_has(Path(name), 11, "log overwritten")
        same(_saved(Path(name), "best"), 1, "forgets the best of before", "the epoch in best.keras after two runs")
        same(_saved(Path(name), "last"), 10, "last is the best", "the epoch in last.keras after two runs")
        third = _Run(function, Path(name), more=1, patience=4)
        third.epochs_are(11)
        third.train(_THIRD)
        same(_saved(Path(name), "best"), 11, "never saves again", "the epoch in best.keras after three runs")
        yield


class _Run:
    """One call of an answer, and a training with what it gave, in which nothing is trained."""

    def __init__(self, function: Callable, folder: Path, *, more: int, patience: int, name: str = ""):
        self.folder, self.more = folder, more
        self.call = f"answer(folder, {_COUNTS}, more={more}, patience={patience})" + (
            f" with an {name}" if name else ""
        )
        with _explained(name):
            returned = run(function, folder, list(_COUNTS), more, patience, call=self.call)
        self.arguments = a_dict(returned, _ARGUMENTS, self.call)
        self.callbacks = _callbacks(self.arguments["callbacks"])
        self.start, self.stop = (a_whole_number(self.arguments[one], f"{self.call}: {one}") for one in _ARGUMENTS[:2])
        that(isinstance(self.arguments["class_weight"], Mapping), "wrong type", "class_weight: a dictionary",
             describe(self.arguments["class_weight"]))  # fmt: skip

    def epochs_are(self, done: int) -> None:
        what, right = f"{self.call}, {done} epochs done: (initial_epoch, epochs)", (done, done + self.more)
        found = (self.start, self.stop)
        that(self.start >= 0, "negative epochs", f"{what}: {right}", found)
        mistakes = {
            "epochs is how many more": (done, self.more),
            "last epoch once more": (done - 1, done - 1 + self.more),
            "heading counted": (done + 1, done + 1 + self.more),
            "starts at 0 again": (0, self.more),
        }
        named = [name for name, value in mistakes.items() if value == found != right]
        if not named and found != right:
            named = [name for name, value in mistakes.items() if value[0] == found[0] != done]
        same(found, right, [*named, "other epochs"][0], what)

    def weights_fit(self) -> None:
        weights = dict(self.arguments["class_weight"])
        that(not any(isinstance(key, str) for key in weights), "keys of text", "the keys 0, 1, 2, 3", describe(weights))
        keys = {a_whole_number(key, "each key of class_weight") for key in weights}
        same(sorted(keys), list(range(len(_COUNTS))), "other weights", "keys of class_weight")
        found = np.array([a_number(weights[key], "each class weight") for key in sorted(weights)])
        counts = np.array(_COUNTS)
        right = counts.sum() / (len(counts) * counts)
        of_few = found[np.argsort(counts)]
        wrong_way = bool((np.diff(of_few) > 0).all())
        what = f"class_weight of {_COUNTS} images: {_rounded(right)}"
        that(not wrong_way, "common classes count more", what, _rounded(found))
        ratio = found / right
        scaled = np.allclose(ratio, ratio[0]) and not np.allclose(ratio, 1, atol=1e-3)
        that(not scaled, "weights not scaled", what, [float(f"{value:.3g}") for value in found])
        that(np.allclose(ratio, 1, atol=1e-3), "other weights", what, _rounded(found))

    def train(self, values: Mapping[str, list]) -> int:
        """Call the callbacks as fit does; the weight of the model is the number of the epoch. The last epoch."""
        import keras

        model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, use_bias=False)])
        model.compile("sgd", "mse", metrics=["accuracy"], run_eagerly=True)
        model.train_on_batch(np.zeros((1, 1)), np.zeros((1, 1)))  # so that the metrics have names
        model.stop_training = False
        model.set_weights([np.full((1, 1), -1.0)])
        self.rates = [float(model.optimizer.learning_rate)]

        def training() -> int:
            everything = keras.callbacks.CallbackList(self.callbacks, model=model, epochs=self.stop, verbose=0, steps=1)
            everything.on_train_begin()
            for place in range(len(values["loss"])):
                epoch = self.start + place
                everything.on_epoch_begin(epoch)
                model.set_weights([np.full((1, 1), float(epoch))])
                everything.on_epoch_end(epoch, {name: column[place] for name, column in values.items()})
                self.rates.append(float(model.optimizer.learning_rate))
                if model.stop_training:
                    break
            everything.on_train_end()
            return epoch

        return attempt(training, "fit_generator(model, train, validation_data=valid, **answer(...))")

    def leaves_files(self) -> None:
        best, last = _saved(self.folder, "best"), _saved(self.folder, "last")
        names = {0: "wrong direction", 2: "watches the loss", 3: "watches the training", 4: "keeps the last epoch"}
        same(best, 1, names.get(best, "another best"), "the epoch in best.keras")
        same(last, 4, "last is the best", "the epoch in last.keras")
        _log_has(self.folder, 5, "no log")
        falls = "a smaller learning rate after epochs 3 and 4"
        that(self.rates[-1] < self.rates[0], "steps as large as before", falls, "the same one")
        kept = "the same learning rate up to epoch {}"
        that(self.rates[3] == self.rates[0], "smaller steps without need", kept.format(2), "less")
        that(self.rates[4] == self.rates[0], "smaller steps too early", kept.format(3), "less")


def _stops(function: Callable, folder: Path) -> None:
    """One patience is enough: the first run, of another one, has not been stopped."""
    inner, patience = folder / "worse", 2
    inner.mkdir()
    worse = _Run(function, inner, more=10, patience=patience)
    last, right = worse.train(_WORSE), 1 + patience
    what = f"patience {patience}: the last epoch is {right}"
    that(last < 9, "never stops", what, "no stop")
    that(last >= right, "stops too early", what, last)
    that(last <= right, "stops too late", what, last)
    that(worse.rates[-1] == worse.rates[0], "smaller steps without need", "the learning rate stays", "it fell")


def _callbacks(value: object) -> list:
    import keras

    found = [value] if isinstance(value, keras.callbacks.Callback) else a_list(value, "callbacks")
    for callback in found:
        is_one = isinstance(callback, keras.callbacks.Callback)
        that(is_one, "wrong type", "callbacks: a list of Keras callbacks", f"in it: {describe(callback)}")
        monitor = getattr(callback, "monitor", "loss")
        that(monitor in _FIRST, "unknown name", f"one of {', '.join(_FIRST)}", f"monitor={monitor!r}")
    return found


@contextmanager
def _explained(name: str) -> Iterator[None]:
    """An error that an empty log makes has its own name; and errors about file names do not show the folder."""
    try:
        yield
    except AnswerRaised as raised:
        kind = type(raised.error).__name__
        if name:
            raise Wrong(name, "arguments, as at a first run", f"a {kind}") from None
        if isinstance(raised.error, FileNotFoundError):
            raise AnswerRaised(FileNotFoundError("a file that does not exist yet"), raised.call) from None
        if isinstance(raised.error, ValueError) and "filepath" in str(raised.error):
            raise Wrong("no best model", "file names that Keras takes", "a ValueError about a file name") from None
        raise


def _saved(folder: Path, name: str) -> int:
    """The epoch that a saved model holds."""
    import keras

    path = folder / f"{name}.keras"
    there = ", ".join(sorted(one.name for one in folder.iterdir() if one.is_file())) or "no file"
    that(path.is_file(), f"no {name} model", f"a file {path.name} in the folder", there)
    try:
        model = keras.saving.load_model(path, compile=False)
    except Exception:  # whatever else it is
        raise Wrong(f"no {name} model", f"{path.name} can be loaded", "Keras cannot load it") from None
    return round(float(model.get_weights()[0][0, 0]))


def _log_has(folder: Path, epochs: int, name: str) -> None:
    path, expected = folder / "log.csv", f"log.csv: the epochs 0 to {epochs - 1}"
    that(path.is_file(), "no log", expected, "no such file")
    with path.open(newline="") as file:
        found = [str(line.get("epoch")) for line in csv.DictReader(file)]
    that(found == [str(epoch) for epoch in range(epochs)], name, expected, ", ".join(found) or "no line")

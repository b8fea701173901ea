"""Questions on lesson 06: changes that keep labels true, uint8 arithmetic, pairs, a coupled generator, cost, crops."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import cloudpickle
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
    a_truth,
    a_whole_number,
    an_array,
    attempt,
    describe,
    is_known_mistake,
    of_shape,
    peak_bytes,
    run,
    same,
    task,
    that,
)

# --- 06.1 -----------------------------------------------------------------------------------------------------------

_TRUE = {
    "digits": {"small turn", "brightness", "colour"},
    "plates": {"mirror", "half turn", "small turn", "brightness"},
    "shoes": {"half turn", "small turn", "brightness", "colour"},
    "needles": {"brightness", "colour"},
    "grey cards": {"mirror", "half turn", "small turn", "colour"},
}
_CHANGES = ("mirror", "half turn", "small turn", "brightness", "colour")
_FALSE = {
    ("digits", "mirror"): "a mirrored digit",
    ("digits", "half turn"): "a turned six",
    ("shoes", "mirror"): "a mirrored shoe",
    ("plates", "colour"): "another soup",
    ("needles", "mirror"): "another angle",
    ("needles", "half turn"): "another angle",
    ("needles", "small turn"): "another angle",
    ("grey cards", "brightness"): "another shade",
}


@task(
    "06.1",
    "Which changes leave the label true?",
    objective=1,
    points=2,
    hints={
        "a mirrored digit": "Write a 3 on paper and look at it in a mirror, or from behind.",
        "a turned six": "Turn the paper upside down: which two digits change places?",
        "a mirrored shoe": "What does a left shoe look like in a mirror?",
        "another soup": "What tells the two soups apart?",
        "another angle": "The label is a number that is read from the picture. Which changes move the needle?",
        "another shade": "What is the label of a card, and which change touches just that?",
        "too careful": "Ask of each change you left out: which label of this data set would be false afterwards? "
        "If you find none, the change is safe.",
        "unknown name": "Use the names of the exercise, letter by letter.",
    },
    note="A change is allowed when no label of this data set becomes false: the data decide, not the tool.",
)
def true_labels(answer):
    given = a_dict(answer, list(_TRUE), "the answer")
    chosen = {name: _names_of_changes(given[name], name) for name in _TRUE}
    for name, wrong in _FALSE.items():
        that(
            name[1] not in chosen[name[0]], wrong, f"{name[0]}: changes that leave each label true", f"{name[1]!r}, too"
        )
    yield
    for name, right in _TRUE.items():
        left_out = len(right - chosen[name])
        that(not left_out, "too careful", f"{name}: every change that does no harm", f"{left_out} left out")
    yield


def _names_of_changes(value: object, name: str) -> set[str]:
    value = list(value) if isinstance(value, Set) else value
    changes = {a_text(change, f"{name}: each change") for change in a_list(value, name)}
    that(changes <= set(_CHANGES), "unknown name", f"{name}: some of {', '.join(_CHANGES)}", describe(sorted(changes)))
    return changes


# --- 06.2 -----------------------------------------------------------------------------------------------------------

_MOST = 60


@task(
    "06.2",
    "Brighter, and without its mean",
    objective=4,
    points=4,
    hints={
        "not bytes": "Look at the dtype of what comes back. What does `Augment` accept from a function?",
        "wraps around": "A value left the range 0 to 255 and came in again at the other end. What stops it there, and "
        "when must that happen: before or after the result becomes uint8?",
        "folded at 0": "Dark pixels became brighter when they should be 0: -40 is not 40. Which function takes the "
        "absolute value?",
        "another number for each value": "The picture came back with noise: one image, one number. How many did you "
        "draw, and for what `size`?",
        "one channel alone": "Only some of the channels changed. What does OpenCV make of a single number, when the "
        "image has three channels?",
        "another change": "Compare with an image of 100 everywhere: it comes back with one other value everywhere.",
        "too far": "The number lies between -60 and 60.",
        "an end is missing": "One end of -60 to 60 never came, in thousands of draws. Which numbers does your call "
        "of `rng` include?",
        "only one way": "Many draws, and always brighter or always darker: look at the bounds of your draw.",
        "always the same": "Several generators, and one result. What did you ask `rng` for?",
        "cannot be repeated": "Two generators of one seed gave two results. Is `rng` the only source of chance?",
        "in place on uint8": "NumPy refuses to put floats into the uint8 array it was given. In which array can the "
        "difference stand?",
        "mean wraps around": "A pixel darker than the mean should be below 0, and came out large. Which type did the "
        "subtraction happen in?",
        "float64": "Eight bytes a value, where four do. Which of the two types that meet is the larger one?",
        "another type": "The network computes with float32. Look at the dtype.",
        "blue first": "Each channel lost the mean of another one. In which order do your images have the channels, and "
        "in which order are the three means?",
        "mean of the batch": "What was subtracted is a mean of the images themselves. The mean of the training split "
        "is an argument.",
        "one mean for all": "All three channels lost the same number.",
        "cut to whole numbers": "The fractions of the mean are gone. When did they become whole numbers?",
        "scaled": "Nothing is divided here: values go from about -255 to 255.",
        "stopped at 0": "A pixel darker than the mean has a value below 0, and that is right: it is no picture now.",
        "mean added": "The mean was added. Which sign has a pixel that is darker than the mean?",
        "another difference": "Compute one pixel by hand: its three values less the three means.",
    },
    note="A picture stays uint8 and stops at 0 and 255; a difference is float32, made in an array of its own.",
)
def uint8_arithmetic(answer):
    functions = a_dict(answer, ["brighter", "centred"], "the answer")
    brighter = a_function(functions["brighter"], "image, rng")
    centred = a_function(functions["centred"], "images, mean")
    shifts = [_shift_of(brighter, seed) for seed in range(12)]
    yield
    _draws(brighter, shifts)
    yield
    _one_batch(centred, 0)
    yield
    for seed in range(5):
        _is_centred(centred, seed)
    yield


def _brightened(function: Callable, image: np.ndarray, seed: int, call: str) -> np.ndarray:
    with _names_in_place(call):
        result = run(function, image, np.random.default_rng(seed), call=call, keeps_input=False)
    what = f"{call}: an image"
    that(isinstance(result, np.ndarray) and result.dtype == np.uint8, "not bytes", f"{what} of uint8", _type_of(result))
    of_shape(result, image.shape, what)
    return result.astype(int)


def _shift_of(function: Callable, seed: int) -> int:
    """The number that was added: read from the middle greys, which no shift drives out of range."""
    call = f"brighter(image, np.random.default_rng({seed}))"
    image = np.random.default_rng(100 + seed).integers(0, 256, (9, 7, 3), dtype=np.uint8)
    image[4] = 128
    image[0, :, 0], image[0, :, 1], image[0, :, 2] = (0, 3, 20, 60, 200, 250, 255), 255, 0
    found = _brightened(function, image, seed, call)
    shifts = found[4] - 128
    per_channel = np.ptp(shifts, axis=0)
    if not per_channel.any() and np.ptp(shifts) and 0 in shifts:
        raise Wrong("one channel alone", f"{call}: three channels, one number", f"{shifts[0].tolist()} added to them")
    that(
        not np.ptp(shifts),
        "another number for each value",
        f"{call}: one number, added to every value",
        f"from {shifts.min()} to {shifts.max()} added",
    )
    shift = int(shifts[0, 0])
    that(abs(shift) <= _MOST, "too far", f"{call}: a number from -{_MOST} to {_MOST}", f"{shift:+d}")
    plain = image.astype(int) + shift
    right = plain.clip(0, 255)
    if np.array_equal(found, right):
        return shift
    at = np.unravel_index(np.argmax(np.abs(found - right)), right.shape)
    what = f"{call}: {shift:+d}, so {image[at]} becomes {right[at]}"
    wrapped = np.where((plain < 0) | (plain > 255), plain % 256, plain)
    that(not np.array_equal(found, wrapped), "wraps around", what, f"{found[at]}")
    that(not np.array_equal(found, np.minimum(abs(plain), 255)), "folded at 0", what, f"{found[at]}")
    raise Wrong("another change", what, f"{found[at]}")


def _draws(function: Callable, shifts: list[int]) -> None:
    image = np.full((1, 1, 3), 128, np.uint8)
    more = [
        int(attempt(lambda: function(image.copy(), np.random.default_rng(seed)), _BRIGHT)[0, 0, 0]) - 128  # noqa: B023 - called at once
        for seed in range(3_000)
    ]
    that(len(set(more)) > 1, "always the same", "3,000 generators: many numbers", f"{more[0]:+d} always")
    furthest = max(more, key=abs)
    that(abs(furthest) <= _MOST, "too far", f"numbers from -{_MOST} to {_MOST}", f"{furthest:+d} among them")
    both = min(more) < -_MOST // 2 and max(more) > _MOST // 2
    that(both, "only one way", f"numbers from -{_MOST} to {_MOST}", f"from {min(more):+d} to {max(more):+d}")
    ends = (min(more), max(more)) == (-_MOST, _MOST)
    that(ends, "an end is missing", f"numbers from -{_MOST} to {_MOST}", f"from {min(more):+d} to {max(more):+d}")
    that(more[: len(shifts)] == shifts, "cannot be repeated", "one seed, one number", "another number, asked again")


_BRIGHT = "brighter(image, np.random.default_rng(seed))"
_CENTRED = "centred(images, mean)"


def _one_batch(function: Callable, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    images = rng.integers(0, 256, (5, 6, 4, 3), dtype=np.uint8)
    mean = rng.uniform([30, 90, 150], [80, 140, 200])[:: 1 if seed % 2 else -1].copy()
    with _names_in_place(_CENTRED):
        result = an_array(run(function, images, mean, call=_CENTRED), _CENTRED)
    that(result.dtype != np.float64, "float64", f"{_CENTRED}: an array of float32", "an array of float64")
    if result.dtype == np.uint8:
        raise Wrong("mean wraps around", f"{_CENTRED}: an array of float32", "an array of uint8, which knows no minus")
    name = "cut to whole numbers" if result.dtype.kind in "iu" else "another type"
    that(result.dtype == np.float32, name, f"{_CENTRED}: an array of float32", f"an array of {result.dtype}")
    of_shape(result, images.shape, _CENTRED)
    return images, mean, result


def _is_centred(function: Callable, seed: int) -> None:
    images, mean, result = _one_batch(function, seed)
    right = images - mean
    if np.allclose(result, right, atol=1e-2):
        return
    whole = mean.astype(np.uint8)
    mistakes = {
        "blue first": images - mean[::-1],
        "mean of the batch": images - images.mean(axis=(0, 1, 2)),
        "one mean for all": images - mean.mean(),
        "mean added": images + mean,
    }
    for name, wrong in mistakes.items():
        that(not np.allclose(result, wrong, atol=1e-2), name, _pixel(right), _pixel(result))
    that(not np.allclose(result, right.clip(0, 255), atol=1), "stopped at 0", _pixel(right), _pixel(result))
    own = images - images.mean(axis=(1, 2), keepdims=True)
    that(not np.allclose(result, own, atol=1e-2), "mean of the batch", _pixel(right), _pixel(result))
    for name, wrong in {"mean of the batch": images - images.mean(), "mean wraps around": images - whole}.items():
        that(not np.allclose(result, wrong, atol=1e-2), name, _pixel(right), _pixel(result))
    wrapped = np.isclose(result, right % 256, atol=1) | np.isclose(result, right, atol=1)
    that(not (wrapped.all() and result.min() > -1), "mean wraps around", _pixel(right), _pixel(result))
    that(np.abs(result - right).max() > 1, "cut to whole numbers", _pixel(right), _pixel(result))
    ratio = np.abs(right).max() / max(float(np.abs(result).max()), 1e-9)
    that(not np.allclose(result * ratio, right, atol=0.5), "scaled", _pixel(right), _pixel(result))
    raise Wrong("another difference", _pixel(right), _pixel(result))


def _pixel(images: np.ndarray) -> str:
    values = np.asarray(images, np.float64)[0, 0, 0]
    return f"{_CENTRED}: a pixel of {', '.join(f'{value:.1f}' for value in values)}"


@contextmanager
def _names_in_place(call: str) -> Iterator[None]:
    """NumPy refuses floats in place under a name of its own, which differs between versions."""
    try:
        yield
    except AnswerRaised as raised:
        if isinstance(raised.error, TypeError) and "same_kind" in str(raised.error):
            raise Wrong("in place on uint8", f"{call}: an array of its own", "float64 does not go into uint8") from None
        raise


def _type_of(value: object) -> str:
    return f"an array of {value.dtype}" if isinstance(value, np.ndarray) else describe(value)


# --- 06.3 -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Feed:
    """A feed that keeps pairs, or not; ``order`` says which of n images stand where, ``labels`` which labels."""

    what: str
    mistake: str  # when the answer is wrong about it
    keeps: bool
    order: Callable = lambda n: np.arange(n)
    labels: Callable = lambda order: order
    change: Callable = lambda images: images

    def __call__(self, images, labels, batch_size=32):
        images, labels = np.asarray(images), np.asarray(labels)
        if images.dtype != np.uint8 or images.ndim != 4 or images.shape[3] != 3:
            raise ValueError(f"images must be (n, height, width, 3) uint8; got {images.shape} {images.dtype}.")
        if labels.ndim == 0 or len(labels) != len(images):
            raise ValueError(f"one label an image; got {len(images)} images and labels of shape {labels.shape}.")
        order = self.order(len(images))[: int(batch_size)]
        return self.change(images[order]).copy(), labels[self.labels(order)].copy()


def _mixed(n: int) -> np.ndarray:
    """An order in which none of n images (2 or more) stands where it stood."""
    circle = np.random.default_rng(n).permutation(n)
    order = np.empty(n, int)
    order[circle] = np.roll(circle, 1)
    return order


def _last_two_swapped(order: np.ndarray) -> np.ndarray:
    return np.concatenate([order[:-2], order[-2:][::-1]])


_FEEDS = (
    _Feed("keeps images and labels as they came", "an honest feed refused", True),
    _Feed("shuffles the images alone", "a mix-up missed", False, _mixed, lambda order: np.arange(len(order))),
    _Feed("moves all labels one place on", "a mix-up missed", False, labels=lambda order: np.roll(order, 1)),
    _Feed("swaps two labels", "a single swap missed", False, labels=_last_two_swapped),
    _Feed("shuffles images and labels together", "order taken for a fault", True, _mixed),
    _Feed("mirrors the images", "pixels compared", True, change=lambda images: images[:, :, ::-1]),
    _Feed("turns the images", "pixels compared", True, change=lambda images: np.rot90(images, axes=(1, 2))),
    _Feed("makes floats of the images", "type taken for a fault", True, change=lambda images: images.astype("float32")),
    _Feed(
        "shuffles, mirrors, swaps two labels",
        "a single swap missed",
        False,
        _mixed,
        _last_two_swapped,
        lambda images: images[:, :, ::-1],
    ),
)


@task(
    "06.3",
    "Do labels and images stay together?",
    objective=3,
    points=3,
    hints={
        "an honest feed refused": "This feed gave your images and labels back as they were. Print both, and compare "
        "them by hand. Does each of your marks fit into uint8?",
        "a mix-up missed": "All pairs were wrong and you did not see it. How does an image of yours say which label is "
        "its own? Are there several images, and is each label different?",
        "a single swap missed": "Two labels changed places, all others were right. Do you look at every pair, and "
        "are all your labels different?",
        "order taken for a fault": "Images and labels were shuffled together. A pair may stand at another place.",
        "pixels compared": "The feed moved the pixels about; it kept their colours. Which images look the same after "
        "that?",
        "type taken for a fault": "The images came back as float32, as from Keras' `flow`, with the values they had.",
        "ValueError": "The feed says what it takes: (n, height, width, 3) uint8, and one label an image.",
    },
    note="Images that carry their own number prove it: a label that is not the number on its image has lost its way.",
)
def pairs_stay(answer):
    function = a_function(answer, "feed")
    _judges(function, _FEEDS[:3])
    yield
    _judges(function, _FEEDS[3:5])
    yield
    _judges(function, _FEEDS[5:])
    yield


def _judges(function: Callable, feeds: tuple[_Feed, ...]) -> None:
    for feed in feeds:
        call = f"answer(a feed that {feed.what})"
        found = a_truth(run(function, _as_function(feed), call=call), call)
        that(found == feed.keeps, feed.mistake, f"{call}: {feed.keeps}", found)


def _as_function(kind: _Feed) -> Callable:
    def feed(images, labels, batch_size=32):
        return kind(images, labels, batch_size)

    feed.__qualname__ = "feed"  # an error about its arguments calls it so
    return feed


# --- 06.4 -----------------------------------------------------------------------------------------------------------

_ROWS, _HEIGHT, _WIDTH = 11, 6, 5
_CALL = "answer(path, 4, change, 3)"


@task(
    "06.4",
    "The wrapper, repaired: a generator coupled with changes",
    objective=2,
    points=5,
    hints={
        "no batch": "An object of your class has a length, and a method `batch(epoch, k)`.",
        "a float length": "`np.floor`, `np.ceil` and `/` give floats, and `len` takes none.",
        "last batch dropped": "Rounded down, the rows after the last full batch are never served. They are a smaller "
        "batch of their own.",
        "one batch too many": "When batch_size divides the rows, nothing is left over.",
        "no labels": "There is nothing to learn from images alone. A batch is a pair.",
        "not bytes": "Look at the dtype, in what you hand to `change` and in what you give back. Which line makes "
        "floats of bytes?",
        "size fixed before": "`change` cut a piece out. What size has the array that you put its results into?",
        "a batch at once": "`change` takes one image, (height, width, 3).",
        "wrong source of chance": "`change` asks for a generator as `np.random.default_rng(...)` makes it.",
        "not changed": "The images are those of the file. Where does the result of `change` go?",
        "pixels damaged": "`change` marks a corner here. The rest of each image should be as it is in the file.",
        "rows missing": "An epoch serves each row once.",
        "labels do not fit": "Images and labels of a batch came from different rows. Was one of them reordered alone?",
        "not shuffled": "The first epoch came in the order of the file.",
        "only batches shuffled": "The batches came in another order, but each holds the rows it always held.",
        "every epoch in one order": "Four epochs had one order. Where does the epoch come in?",
        "one draw for a batch": "All images of a batch were changed alike: the same random numbers for each.",
        "twins": "Images of two batches were changed by the same random numbers. Two workers would be twins.",
        "every epoch the same": "A row was changed in epoch 1 as in epoch 0: it is the same picture again.",
        "seed not used": "Seeds 3 and 4 gave the same. Order and changes depend on the seed, both of them.",
        "numbers added up": "Row 4 of epoch 0 and row 3 of epoch 1 are different cases with equal sums. What else can "
        "`default_rng` take than one number?",
        "depends on its place": "With another batch_size a row was changed in another way. Does chance know the row, "
        "or only its place in the batch?",
        "depends on other calls": "Asked for alone, in a new object, a batch was another one. What remembers the calls "
        "before: a counter, a generator that is kept, or global random numbers?",
        "a handle inside": "It cannot travel to a worker process. What does it hold, and what could it hold instead?",
        "the whole file in memory": "For one small batch it held more than half of the file's bytes in memory.",
        "rows out of order": "HDF5 takes a list of rows only when it increases. Lesson 02 has ways around that.",
        "ends like a generator": "Who asks by number may ask again and again. What counts the batches in your class?",
    },
    note="One image, one label, one source of chance from (seed, epoch, row): so a generator and changes are coupled.",
)
def coupled_generator(answer):
    function = a_function(answer, "path, batch_size, change, seed")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        file = _MarkedFile(Path(name) / "train.h5")
        made = _Coupled(function, file, 4, 3)
        made.has_length()
        made.raw(0, 0)
        yield
        epochs = [made.epoch(number) for number in range(4)]
        _other_sizes(function, file)
        yield
        other = _Coupled(function, file, 4, 4)
        _order_is_mixed(epochs, [other.epoch(number) for number in range(4)])
        yield
        _chance_of_each_row(function, file, epochs)
        yield
        _travels(made)
        _reads_little(function, Path(name) / "large.h5")
        yield


class _MarkedFile:
    """Eleven rows: red tells the row, a corner is free for marks; each row has a label of its own."""

    def __init__(self, path: Path):
        self.path = path
        self.images = np.random.default_rng(0).integers(1, 256, (_ROWS, _HEIGHT, _WIDTH, 3), dtype=np.uint8)
        self.images[..., 0] = 20 * np.arange(_ROWS)[:, None, None]
        self.images[:, 0, :2, 1:] = 0
        self.classes = np.random.default_rng(1).permutation(_ROWS)
        with h5py.File(path, "w") as file:
            file["train_img"] = self.images
            file["train_labels"] = np.eye(_ROWS, dtype=np.uint8)[self.classes]


@dataclass
class _Change:
    """Writes four random bytes into the corner of a copy, and notes what it was given."""

    faults: list = field(default_factory=list)

    def __call__(self, image, rng):
        if not isinstance(image, np.ndarray) or image.ndim != 3:
            self.faults.append(("a batch at once", "change(image, rng): one image", _kind(image)))
            return image
        if image.dtype != np.uint8:
            self.faults.append(("not bytes", "change(image, rng): an image of uint8", f"of {image.dtype}"))
        if not isinstance(rng, np.random.Generator):
            self.faults.append((
                "wrong source of chance",
                "change(image, rng): a NumPy generator",
                f"a {type(rng).__name__}",
            ))
            return image
        image = image.copy()
        image[0, :2, 1:] = rng.integers(1, 256, (2, 2))
        return image

    def complain(self) -> None:
        if self.faults:
            raise Wrong(*self.faults[0])


@dataclass
class _Batch:
    rows: list[int]
    marks: list[tuple]  # the random numbers that each row was changed by


class _Coupled:
    """An object of the learner's class on the marked file."""

    def __init__(self, function: Callable, file: _MarkedFile, batch_size: int, seed: int):
        self.file, self.batch_size = file, batch_size
        self.change = _Change()
        self.call = f"answer(path, {batch_size}, change, {seed})"
        self.made = _made(function, self.call, file.path, batch_size, self.change, seed)

    def has_length(self) -> None:
        right = -(-_ROWS // self.batch_size)
        found = _length(self.made, self.call)
        mistakes = {"last batch dropped": _ROWS // self.batch_size, "one batch too many": right + 1}
        is_known_mistake(found, mistakes, right, f"len({self.call})")
        same(found, right, "one batch too many", f"len({self.call})")

    def raw(self, epoch: int, k: int) -> tuple:
        call = f"{self.call}.batch({epoch}, {k})"
        try:
            pair = attempt(lambda: self.made.batch(epoch, k), call)
        except AnswerRaised as raised:
            self.change.complain()  # an odd argument may be why
            if isinstance(raised.error, StopIteration):
                raise Wrong("ends like a generator", f"{call} is a batch", "StopIteration") from None
            if isinstance(raised.error, TypeError) and "increasing order" in str(raised.error):
                raise Wrong("rows out of order", f"{call} is a batch", f"TypeError: {raised.error}") from None
            raise
        that(pair is not None, "forgot to return", f"{call} returns something", "None")
        self.change.complain()
        is_pair = isinstance(pair, tuple | list) and len(pair) == 2
        that(is_pair, "no labels", f"{call}: a pair (images, labels)", _type_of(pair))
        return pair

    def batch(self, epoch: int, k: int) -> _Batch:
        images, labels = self.raw(epoch, k)
        call = f"{self.call}.batch({epoch}, {k})"
        images, labels = an_array(images, f"{call}: images"), an_array(labels, f"{call}: labels")
        that(images.dtype == np.uint8, "not bytes", f"{call}: images of uint8", f"of {images.dtype}")
        of_shape(images, (None, _HEIGHT, _WIDTH, 3), f"{call}: images")
        rows = [int(image[-1, -1, 0]) // 20 for image in images]
        marks = [tuple(image[0, :2, 1:].ravel().tolist()) for image in images]
        that(all(row < _ROWS for row in rows), "pixels damaged", f"{call}: rows of the file", "other pixels")
        that(
            all(any(mark) for mark in marks),
            "not changed",
            f"{call}: images as `change` gave them",
            "those of the file",
        )
        plain = images.copy()
        plain[:, 0, :2, 1:] = 0
        that(
            np.array_equal(plain, self.file.images[rows]), "pixels damaged", f"{call}: rows of the file", "other pixels"
        )
        of_shape(labels, (len(rows), _ROWS), f"{call}: labels")
        fits = np.array_equal(labels.argmax(axis=1), self.file.classes[rows]) and np.all(labels.sum(axis=1) == 1)
        that(fits, "labels do not fit", f"{call}: the labels of rows {rows}", "other labels")
        return _Batch(rows, marks)

    def epoch(self, epoch: int) -> list[_Batch]:
        count = -(-_ROWS // self.batch_size)
        batches = [self.batch(epoch, k) for k in range(count)]
        sizes = [len(batch.rows) for batch in batches]
        right = [min(self.batch_size, _ROWS - k * self.batch_size) for k in range(count)]
        rows = sorted(row for batch in batches for row in batch.rows)
        that(rows == list(range(_ROWS)), "rows missing", f"{self.call}: each of {_ROWS} rows once an epoch", f"{rows}")
        same(np.array(sizes), np.array(right), "wrong shape", f"{self.call}: rows in each batch")
        return batches


def _made(function: Callable, call: str, path: Path, batch_size: int, change: Callable, seed: int) -> object:
    made = attempt(lambda: function(path, batch_size, change, seed), call)
    that(made is not None, "forgot to return", f"{call} returns something", "None")
    has = callable(getattr(made, "batch", None)) and hasattr(type(made), "__len__")
    that(has, "no batch", f"{call}: an object with len and batch(epoch, k)", _kind(made))
    return made


def _kind(value: object) -> str:
    return _type_of(value) if isinstance(value, np.ndarray | int | float | str) else f"a {type(value).__name__}"


def _length(made: object, call: str) -> int:
    try:
        return attempt(lambda: len(made), f"len({call})")
    except AnswerRaised as raised:
        if isinstance(raised.error, TypeError) and "float" in str(raised.error):
            raise Wrong("a float length", f"len({call}): a whole number", "a float") from None
        raise


def _other_sizes(function: Callable, file: _MarkedFile) -> None:
    """A change that crops; and a batch size that leaves nothing over."""
    call = "answer(path, 4, crop, 3)"
    made = _made(function, call, file.path, 4, lambda image, rng: image[1:5, :4].copy(), 3)  # noqa: ARG005 - called like Augment
    try:
        images = attempt(lambda: np.asarray(made.batch(0, 2)[0]), f"{call}.batch(0, 2)")
    except AnswerRaised as raised:
        if isinstance(raised.error, ValueError) and "broadcast" in str(raised.error):
            raise Wrong("size fixed before", f"{call}.batch(0, 2): images of 4 x 4", "a ValueError") from None
        raise
    of_shape(images, (3, 4, 4, 3), f"{call}.batch(0, 2): images")
    _Coupled(function, file, _ROWS, 3).has_length()


def _order_is_mixed(epochs: list[list[_Batch]], other_seed: list[list[_Batch]]) -> None:
    """Four epochs are compared at once: two may be alike by chance, where rows are sorted in each batch."""
    orders, others = (
        [[row for batch in epoch for row in batch.rows] for epoch in seed] for seed in (epochs, other_seed)
    )
    mixed = any(order != list(range(_ROWS)) for order in orders)
    that(mixed, "not shuffled", f"{_CALL}: rows mixed in epoch 0", "the order of the file")
    that(any(order != orders[0] for order in orders), "every epoch in one order", f"{_CALL}: many orders", "one order")
    parts = [{frozenset(batch.rows) for batch in epoch} for epoch in epochs]
    neighbours = sum(int(np.count_nonzero(np.diff(order) == 1)) for order in orders)  # of 40; 32 in whole blocks
    mixed = any(part != parts[0] for part in parts) and neighbours < 28
    that(mixed, "only batches shuffled", f"{_CALL}: rows mixed", "batches mixed")
    that(orders != others, "seed not used", f"{_CALL}: another order than for seed 4", "the same order")


def _chance_of_each_row(function: Callable, file: _MarkedFile, epochs: list[list[_Batch]]) -> None:
    for batch in epochs[0]:
        same_marks = len(set(batch.marks)) == 1
        that(
            not same_marks, "one draw for a batch", f"{_CALL}: each row with random numbers of its own", "all the same"
        )
    first, second = (_marks(epoch) for epoch in epochs[:2])
    _alone(function, file, epochs)
    that(len(set(first.values())) == _ROWS, "twins", f"{_CALL}: {_ROWS} rows, {_ROWS} different draws", "some twice")
    again = any(first[row] == second[row] for row in first)
    that(not again, "every epoch the same", f"{_CALL}: other draws in epoch 1", "those of epoch 0")
    smaller, other = _marks(_Coupled(function, file, 3, 3).epoch(0)), _marks(_Coupled(function, file, 4, 4).epoch(0))
    that(smaller == first, "depends on its place", "batch_size 3 and 4: one draw a row", "other draws")
    that(not any(other[row] == first[row] for row in first), "seed not used", "seed 4: other draws", "the same draws")
    draws = [*first.values(), *second.values(), *other.values()]
    that(len(set(draws)) == len(draws), "numbers added up", "no draw twice, in 2 epochs and 2 seeds", "some twice")


def _alone(function: Callable, file: _MarkedFile, epochs: list[list[_Batch]]) -> None:
    """The last batch of epoch 1, asked for first, in a new object, with the global random numbers elsewhere."""
    state = np.random.get_state()  # noqa: NPY002 - what answers may use
    try:
        np.random.seed(99)  # noqa: NPY002 - as above
        last = _Coupled(function, file, 4, 3).batch(1, len(epochs[1]) - 1)
    finally:
        np.random.set_state(state)  # noqa: NPY002 - as above
    same_batch = last == epochs[1][-1]
    that(same_batch, "depends on other calls", f"{_CALL}.batch(1, 2): the same at any time", "another batch")


def _marks(batches: list[_Batch]) -> dict[int, tuple]:
    return {row: mark for batch in batches for row, mark in zip(batch.rows, batch.marks, strict=True)}


def _travels(made: _Coupled) -> None:
    try:
        copy = cloudpickle.loads(cloudpickle.dumps(made.made))
    except Exception as error:
        name = type(error).__name__
        raise Wrong("a handle inside", "an object that can be pickled", f"{name} when it is") from None
    attempt(lambda: copy.batch(0, 0), f"batch(0, 0) of a copy of {made.call}")


def _reads_little(function: Callable, path: Path) -> None:
    """A batch of 4 rows out of 400 takes a small part of the file's bytes; modules are loaded by now."""
    with h5py.File(path, "w") as file:
        file["train_img"] = np.zeros((400, 64, 64, 3), np.uint8)
        file["train_labels"] = np.eye(8, dtype=np.uint8)[np.arange(400) % 8]
        size = file["train_img"].nbytes

    def one_batch() -> None:
        made = _made(function, _CALL, path, 4, lambda image, rng: image.copy(), 3)  # noqa: ARG005 - called like Augment
        attempt(lambda: made.batch(0, 0), f"{_CALL}.batch(0, 0)")

    peak = peak_bytes(one_batch)
    that(peak < size / 2, "the whole file in memory", "4 rows in memory, of 400", "more than half of the file's bytes")


# --- 06.5 -----------------------------------------------------------------------------------------------------------

_WORKS = [
    (1_400, 0.25, 0.75, 2.5, 2),
    (70_700, 1, 9, 4, 1),
    (70_700, 1, 9, 4, 2),
    (70_700, 1, 9, 4, 4),
    (500, 2, 8, 5, 2),
]
_SPEEDS = [(1, 9, 4), (1, 9, 5), (2, 8, 4), (0.25, 0.75, 2.5), (0.5, 7.5, 2), (3, 30, 2)]


@task(
    "06.5",
    "What it costs, and what it changes",
    objective=6,
    points=3,
    hints={
        "added up": "Workers read and change while the model trains. Which of two that work side by side decides how "
        "long both take?",
        "milliseconds": "The times are given in milliseconds; asked for are seconds.",
        "workers not counted": "Several workers share the images: each makes a part of them.",
        "training shared": "Workers share reading and changing. There is one model, which sees every image.",
        "training left out": "With so many workers, images wait for the model. It cannot train faster than it does.",
        "reading left out": "Before an image is changed, it is read, by the same worker.",
        "another time": "Take 1,000 images. How long do the workers need for them, how long does the model?",
        "a float": "`workers=` takes a whole number, an int; `np.ceil` and `/` give floats.",
        "rounded down": "So many workers are a little too slow: the model waits.",
        "one worker too many": "When it comes out even, that number of workers keeps up.",
        "another number of workers": "k workers make k images in the time in which one makes one. Try k = 1, 2, 3.",
        "the wrong way round": "A gap that has become smaller counts as positive: plain less augmented.",
        "the sign is lost": "A gap can grow, too: then it is closed by less than 0.",
        "the last epoch alone": "One epoch goes up and down by chance. Asked for is the mean of the last five.",
        "all epochs": "In the first epochs nothing is learned yet. Asked for is the mean of the last five.",
        "validation alone": "A gap lies between two curves of one run: training and validation.",
        "training alone": "The accuracy on training images falls with augmentation; a gap has a second curve, too.",
        "another gap": "For one run: the mean of the last 5 values of `accuracy`, less that of `val_accuracy`.",
    },
    note="Augmentation costs time only where the workers are the slower side; its gain shows in the gap.",
)
def cost_and_gap(answer):
    functions = a_dict(answer, ["seconds", "workers", "gap_closed"], "the answer")
    seconds = a_function(functions["seconds"], "n, read_ms, change_ms, train_ms, workers")
    workers = a_function(functions["workers"], "read_ms, change_ms, train_ms")
    gap = a_function(functions["gap_closed"], "plain, augmented")
    for case in _WORKS:
        _seconds(run(seconds, *case, call=f"seconds{case}"), case)
    yield
    for case in _SPEEDS:
        _workers(run(workers, *case, call=f"workers{case}"), case)
    yield
    for seed in range(3):
        plain, augmented = _history(seed), _history(seed + 10)
        pair = (augmented, plain) if seed == 2 else (plain, augmented)  # once the gap grows
        _gap(run(gap, *pair, call="gap_closed(plain, augmented)"), *pair)
    yield


def _seconds(value: object, case: tuple) -> None:
    what = f"seconds{case}"
    found, (n, read, change, train, count) = a_number(value, what), case
    right = n * max((read + change) / count, train) / 1000
    mistakes = {
        "milliseconds": 1000 * right,
        "added up": n * ((read + change) / count + train) / 1000,
        "workers not counted": n * max(read + change, train) / 1000,
        "training shared": n * max(read + change, train) / count / 1000,
        "training left out": n * (read + change) / count / 1000,
        "reading left out": n * max(change / count, train) / 1000,
    }
    _closest_mistake(found, right, {**mistakes, "added up ": n * (read + change + train) / 1000}, what, "another time")


def _workers(value: object, case: tuple) -> None:
    what = f"workers{case}"
    found, (read, change, train) = a_whole_number(value, what, "a float"), case
    ratio = (read + change) / train
    mistakes = {
        "reading left out": max(1, math.ceil(change / train)),
        "rounded down": math.floor(ratio),
        "one worker too many": math.ceil(ratio) + 1,
    }
    is_known_mistake(found, mistakes, math.ceil(ratio), what)
    same(found, math.ceil(ratio), "another number of workers", what)


def _gap(value: object, plain: Mapping, augmented: Mapping) -> None:
    what = "gap_closed(plain, augmented)"
    found, right = a_number(value, what), _closed(plain, augmented)
    val, train = (_tail(plain, key) - _tail(augmented, key) for key in ("val_accuracy", "accuracy"))
    mistakes = {
        "the sign is lost": abs(right),
        "the wrong way round": -right,
        "the last epoch alone": _closed(plain, augmented, slice(-1, None)),
        "all epochs": _closed(plain, augmented, slice(None)),
        "validation alone": -val,
        "validation alone ": val,
        "training alone": train,
        "training alone ": -train,
    }
    _closest_mistake(found, right, mistakes, what, "another gap")


def _closest_mistake(found: float, right: float, mistakes: Mapping[str, float], what: str, otherwise: str) -> None:
    for name, value in mistakes.items():
        is_it = math.isclose(found, value, rel_tol=1e-6) and not math.isclose(right, value, rel_tol=1e-6)
        that(not is_it, name.strip(), f"{what}: {right:.4g}", f"{found:.4g}")
    that(math.isclose(found, right, rel_tol=1e-6), otherwise, f"{what}: {right:.4g}", f"{found:.4g}")


def _history(seed: int) -> dict[str, list[float]]:
    """What ``fit(...).history`` looks like, 20 epochs long."""
    rng, epochs = np.random.default_rng(seed), np.arange(20)
    rise, most = 1 - np.exp(-epochs / 4), (0.6, 0.9) if seed < 10 else (0.7, 0.75)
    curves = {
        key: top * rise + rng.normal(0, 0.02, 20) for key, top in zip(("val_accuracy", "accuracy"), most, strict=True)
    }
    return {"loss": (2 - rise).tolist(), **{key: curve.tolist() for key, curve in curves.items()}}


def _tail(history: Mapping, key: str, part: slice = slice(-5, None)) -> float:
    return float(np.mean(history[key][part]))


def _closed(plain: Mapping, augmented: Mapping, part: slice = slice(-5, None)) -> float:
    gaps = [_tail(history, "accuracy", part) - _tail(history, "val_accuracy", part) for history in (plain, augmented)]
    return gaps[0] - gaps[1]


# --- 06.6 -----------------------------------------------------------------------------------------------------------

_IMAGE, _CROP = (20, 16), (12, 10)
_MIDDLE = (4, 3)


@task(
    "06.6",
    "Your own picture, as validation and training see it",
    objective=5,
    points=4,
    hints={
        "not bytes": "What a worker ships is uint8. Mean and scale belong into the model: look at the dtype.",
        "a fixed name": "`images` is the name of the dataset, and it differs from file to file.",
        "blue first": "Red and blue are exchanged. The file has red first; who reads it in another order?",
        "another row": "The pixels are those of another row of the file.",
        "validation is changed": "The first picture went through `change`. Validation measures: pictures as they are.",
        "validation by chance": "The first picture is a window that chance chose. Validation sees the middle.",
        "not the middle": "The space above and below the window should be equal, and so should that at its sides.",
        "the corner": "The first picture starts at the upper left corner. Where does a middle window start?",
        "not a window": "A picture is a window of the image: neighbours stay neighbours, nothing is made smaller.",
        "not changed": "The pictures of training did not go through `change`.",
        "always the same window": "Training sees the same window in every epoch.",
        "some windows never": "There are 20 - 12 + 1 places for the top of a window of 12 rows, the last one among "
        "them. Does your draw reach it?",
        "one draw for both sides": "Windows lay on a diagonal alone. How many numbers do you draw for a window?",
        "changes pile up": "A picture was changed that had been changed before. `change` may write into the array it "
        "is given: who still needs that array?",
        "all alike": "All epochs drew the same random numbers. Which numbers is `rng` made from?",
        "cannot be repeated": "The same call gave other pictures. Where do the random numbers come from?",
        "depends on n": "The first 3 of 6 pictures were not those of n = 3. Picture k is that of epoch k.",
        "numbers added up": "Row 4 in epoch 1 and row 5 in epoch 0 are different cases with equal sums.",
        "rows are twins": "Two rows of equal images got the same changes. Which numbers is `rng` made from?",
    },
    note="Random crop and change in the worker, the middle for validation, uint8 for both; the mean is the model's.",
)
def own_picture(answer):
    function = a_function(answer, "path, images, row, change, crop, n")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        file = _WindowFile(Path(name) / "own.h5")
        pictures = _pictures(function, file, 2, _kept, 4)
        yield
        _is_validation(function, file, pictures[0])
        yield
        _is_training(function, file)
        yield
        _is_repeatable(function, file)
        yield


class _WindowFile:
    """Rows of red, whose green tells how far down and whose blue how far right a pixel is; rows 4 and 5 are equal."""

    def __init__(self, path: Path):
        self.path, self.name, self.reds = path, "photos/pixels", [10, 50, 90, 130, 170, 170]
        images = np.zeros((len(self.reds), *_IMAGE, 3), np.uint8)
        images[..., 0] = np.array(self.reds)[:, None, None]
        images[..., 1] = 10 * np.arange(_IMAGE[0])[:, None]
        images[..., 2] = 10 * np.arange(_IMAGE[1])
        with h5py.File(path, "w") as file:
            file[self.name] = images


def _kept(image, rng):  # noqa: ARG001 - called like Augment
    """A change that changes nothing."""
    return image.copy()


def _adds_one(image, rng):  # noqa: ARG001 - called like Augment
    """A change that writes into the array it was given, as it may."""
    image[..., 0] += 1
    return image


def _red_by_chance(image, rng):
    image = image.copy()
    image[..., 0] = rng.integers(0, 256)
    return image


_OWN = "answer(path, images, row={row}, {change}, crop={crop}, n={n})"
_SAID = {_kept: "no_change", _adds_one: "add_one", _red_by_chance: "red_by_chance"}


def _pictures(function: Callable, file: _WindowFile, row: int, change: Callable, n: int, crop=_CROP) -> np.ndarray:
    call = _OWN.format(row=row, change=_SAID[change], crop=crop, n=n)
    try:
        value = attempt(lambda: function(file.path, file.name, row, change, crop, n), call)
    except AnswerRaised as raised:
        if isinstance(raised.error, KeyError):
            raise Wrong("a fixed name", f"{call}: images={file.name!r} is found", f"KeyError: {raised.error}") from None
        raise
    that(value is not None, "forgot to return", f"{call} returns something", "None")
    pictures = an_array(value, call)
    that(pictures.dtype == np.uint8, "not bytes", f"{call}: an array of uint8", f"an array of {pictures.dtype}")
    of_shape(pictures, (1 + n, *crop, 3), call)
    return pictures.astype(int)


def _places(pictures: np.ndarray) -> list[tuple[int, int]]:
    """Top and left of each window."""
    places = [(int(picture[0, 0, 1]) // 10, int(picture[0, 0, 2]) // 10) for picture in pictures]
    height, width = pictures.shape[1:3]
    for picture, (top, left) in zip(pictures, places, strict=True):
        whole = np.array_equal(picture[:, 0, 1], 10 * np.arange(top, top + height))
        whole = whole and np.array_equal(picture[0, :, 2], 10 * np.arange(left, left + width))
        that(whole, "not a window", f"a window of {height} x {width} of the image", "other pixels, or another order")
    return places


def _is_validation(function: Callable, file: _WindowFile, picture: np.ndarray) -> None:
    what, right = "the first picture", file.reds[2]
    that(int(picture[0, 0, 2]) != right, "blue first", f"{what}: red is {right}", f"blue is {right}")
    that(int(picture[0, 0, 0]) == right, "another row", f"{what}: red of row 2 is {right}", int(picture[0, 0, 0]))
    places = {_places(_pictures(function, file, row, _kept, 1)[:1])[0] for row in range(5)}
    that(
        len(places) == 1, "validation by chance", f"{what}: the middle for each row", f"{len(places)} different places"
    )
    place = places.pop()
    is_known_mistake(place, {"the corner": (0, 0)}, _MIDDLE, f"{what}: top and left")
    same(place, _MIDDLE, "not the middle", f"{what}: top and left")
    changed = _pictures(function, file, 2, _adds_one, 1)[0, 0, 0, 0]
    that(changed == right, "validation is changed", f"{what}: red is {right}, as in the file", changed)


def _is_training(function: Callable, file: _WindowFile) -> None:
    red = file.reds[2] + 1
    reds = _pictures(function, file, 2, _adds_one, 6)[1:, 0, 0, 0]
    that(not (reds == file.reds[2]).all(), "not changed", f"red of each is {red}, after add_one", reds[0])
    that((reds == red).all(), "changes pile up", f"red of each is {red}, after add_one", reds.tolist())
    reds = _pictures(function, file, 4, _red_by_chance, 6)[1:, 0, 0, 0]
    that(len(set(reds.tolist())) > 1, "all alike", "6 epochs: many reds, by chance", "one red in all")
    places = _places(_pictures(function, file, 2, _kept, 400)[1:])
    that(len(set(places)) > 1, "always the same window", "400 epochs: windows at many places", f"all at {places[0]}")
    tops, lefts = ({place[side] for place in places} for side in (0, 1))
    wanted = [side - part + 1 for side, part in zip(_IMAGE, _CROP, strict=True)]
    found = [len(tops), len(lefts)]
    that(len(set(places)) > 2 * max(wanted), "one draw for both sides", "400 epochs: about 63 places", len(set(places)))
    that(found == wanted, "some windows never", f"{wanted} places for top and left, in 400 epochs", f"{found}")
    _pictures(function, file, 1, _kept, 2, crop=_IMAGE)


def _is_repeatable(function: Callable, file: _WindowFile) -> None:
    state = np.random.get_state()  # noqa: NPY002 - what answers may use
    try:
        np.random.seed(99)  # noqa: NPY002 - as above
        six = _pictures(function, file, 4, _red_by_chance, 6)
        again = _pictures(function, file, 4, _red_by_chance, 6)
    finally:
        np.random.set_state(state)  # noqa: NPY002 - as above
    that(np.array_equal(six, again), "cannot be repeated", "the same call: the same pictures", "other pictures")
    three = _pictures(function, file, 4, _red_by_chance, 3)
    that(np.array_equal(six[:4], three), "depends on n", "n=6 begins as n=3", "other pictures")
    twin = _pictures(function, file, 5, _red_by_chance, 6)
    that(not np.array_equal(six[1:], twin[1:]), "rows are twins", "rows 4 and 5: other draws", "the same draws")
    that(
        not np.array_equal(six[2:], twin[1:-1]),
        "numbers added up",
        "row 4, epoch 1 and row 5, epoch 0: two draws",
        "one",
    )

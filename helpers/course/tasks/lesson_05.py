"""Questions on lesson 05: four rules, every row once, block shuffle, what a pipe costs, and the kit's own generator."""

from __future__ import annotations

import hashlib
import itertools
import math
import multiprocessing
import os
import pickle
import sys
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import cloudpickle
import h5py
import numpy as np

from helpers.course.failures import run_in_child
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
    of_shape,
    peak_bytes,
    run,
    same,
    task,
    that,
)

# --- 05.1 -----------------------------------------------------------------------------------------------------------

_WORKERS = {"a": "threads", "b": "threads", "c": "processes", "d": "processes"}
_SHUFFLES = {"e": "block", "f": "full", "g": "mix first", "h": "none"}
_CHOICES = {
    ("a", "processes"): "processes for OpenCV",
    ("b", "processes"): "processes for gzip",
    ("c", "threads"): "threads for Python code",
    ("d", "threads"): "threads for a filter of HDF5",
    ("e", "full"): "full shuffle on a slow disk",
    ("f", "block"): "block shuffle without need",
    ("g", "block"): "block shuffle of a sorted file",
    ("h", "full"): "shuffled validation",
}


@task(
    "05.1",
    "What would you take?",
    objective=5,
    points=2,
    hints={
        "unknown word": "The words to choose from stand in the task: two for a to d, four for e to h.",
        "processes for OpenCV": "Case a: does OpenCV keep Python's lock while it works?",
        "processes for gzip": "Case b: the kit unpacks such chunks itself. Whose lock does a thread need for that?",
        "threads for Python code": "Case c: how many threads of one process can be inside a Python loop at a time?",
        "threads for a filter of HDF5": "Case d: who must read here, and how many threads does it let in?",
        "full shuffle on a slow disk": "Case e: nearly every row of a full shuffle is a jump of the disk.",
        "block shuffle without need": "Case f: what does a jump cost on this disk, and what does the block shuffle "
        "do to a file that is sorted?",
        "block shuffle of a sorted file": "Case g: how many classes would a batch from the open blocks show?",
        "shuffled validation": "Case h: is anything learned there that an order could improve?",
        "another choice": "Read the two tables of lesson 05 again, and what the case says of disk and file.",
    },
    note="Python's lock and HDF5's lock decide about workers; the disk and the file decide about the shuffle.",
)
def choices(answer):
    given = a_dict(answer, "abcdefgh", "answer")
    given = {key: "none" if given[key] is None else a_text(given[key], f"case {key}") for key in "abcdefgh"}
    for right, allowed in ((_WORKERS, ("threads", "processes")), (_SHUFFLES, ("full", "block", "none", "mix first"))):
        words = {key: given[key].strip().lower() for key in right}
        for key, word in words.items():
            that(word in allowed, "unknown word", f"case {key}: one of {', '.join(allowed)}", describe(given[key]))
        for key, word in words.items():
            name = _CHOICES.get((key, word), "another choice")
            that(word == right[key], name, f"case {key}: another choice", describe(word))
        yield


# --- 05.2 -----------------------------------------------------------------------------------------------------------

_FINDINGS = ("missing", "repeated", "wrong label", "foreign")


@dataclass(frozen=True)
class _Epoch:
    """A few pictures as they stand in a file, and what a generator made of them."""

    what: str
    images: np.ndarray
    labels: np.ndarray
    served: list[int]  # rows; -1 is a picture that is not in the file
    swapped: tuple[int, ...] = ()  # positions that get the label of the row after theirs
    batch_size: int = 4

    @property
    def batches(self) -> list[tuple[np.ndarray, np.ndarray]]:
        foreign = np.full(self.images.shape[1:], 7, np.uint8)
        images = np.stack([foreign if row < 0 else self.images[row] for row in self.served])
        rows = [row + (place in self.swapped) for place, row in enumerate(self.served)]
        labels = self.labels[np.array(rows) % len(self.labels)].astype("float32")
        starts = range(0, len(images), self.batch_size)
        return [(images[at : at + self.batch_size], labels[at : at + self.batch_size]) for at in starts]

    @property
    def findings(self) -> dict[str, object]:
        counts = [self.served.count(row) for row in range(len(self.images))]
        return {
            "missing": [row for row, count in enumerate(counts) if count == 0],
            "repeated": [row for row, count in enumerate(counts) if count > 1],
            "wrong label": sorted({self.served[place] for place in self.swapped}),
            "foreign": self.served.count(-1),
        }


def _epochs_to_judge() -> list[_Epoch]:
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (10, 5, 4, 3), dtype=np.uint8)
    labels = np.eye(3, dtype=np.uint8)[np.arange(10) % 3]  # neighbours have different labels
    cases = {
        "a right epoch, mixed": ([3, 8, 0, 5, 9, 1, 7, 2, 6, 4],),
        "row 2 in the place of row 7": ([3, 8, 0, 5, 9, 1, 2, 2, 6, 4],),
        "row 6 three times": ([3, 6, 0, 5, 9, 1, 7, 2, 6, 6, 8, 4],),
        "the last batch missing": ([9, 1, 0, 2, 7, 6, 5, 4],),
        "two wrong labels": ([3, 8, 0, 5, 9, 1, 7, 2, 6, 4], (1, 6)),
        "one of two copies with a wrong label": ([3, 8, 0, 5, 9, 1, 8, 7, 2, 6, 4], (6,)),
        "both copies with a wrong label": ([3, 8, 0, 5, 9, 1, 8, 7, 2, 6, 4], (1, 6)),
        "two foreign pictures": ([3, 8, -1, 5, 9, -1, 7, 2, 6, 4],),
    }
    return [_Epoch(what, images, labels, *case) for what, case in cases.items()]


@task(
    "05.2",
    "Every row once: a judge",
    objective=2,
    points=4,
    hints={
        "missing not seen": "As many pictures as rows is no proof: one may have come in the place of another one.",
        "repeated not seen": "A set forgets how often something came. What counts?",
        "listed twice": "Each row number stands in a list once, however often its picture came.",
        "called missing or repeated": "A row was accused that came once. How do you find the row of a picture? The "
        "pictures come in mixed order, and the last batch may be smaller.",
        "foreign not seen": "A picture that equals no row of the file was served. How many are there?",
        "wrong label not seen": "A picture came with the label of another row: compare it with the file's label of "
        "the row that the picture shows, for each copy of it.",
        "labels compared by position": "Picture number k of an epoch need not be row k of the file. Whose label is it?",
        "right label accused": "The label had the right values, and another type than in the file. Compare values.",
        "KeyError": "A picture that is not in the file has no row. That is a finding, not an error.",
        "ValueError": "The last batch is smaller: batches do not fit into one array as they are.",
    },
    note="Pixels say what arrived: no row missing, none twice, each with its label, whoever reads.",
)
def every_row_once(answer):
    function = a_function(answer, "images, labels, batches")
    judged = [(epoch, _findings(function, epoch)) for epoch in _epochs_to_judge()]
    yield
    for epoch, found in judged:
        wanted = epoch.findings
        for key in ("missing", "repeated"):
            what, rows = f"{epoch.what}: {key!r}", found[key]
            that(set(wanted[key]) <= set(rows), f"{key} not seen", f"{what}: {wanted[key]}", rows)
            that(len(set(rows)) == len(rows), "listed twice", f"{what}: {wanted[key]}", rows)
            same(sorted(rows), wanted[key], "called missing or repeated", what)
    yield
    for epoch, found in judged:
        same(found["foreign"], epoch.findings["foreign"], "foreign not seen", f"{epoch.what}: 'foreign'")
    yield
    first, found = judged[0]
    apart = [(place, row) for place, row in enumerate(first.served) if (first.labels[place] != first.labels[row]).any()]
    for rows in map(sorted, zip(*apart, strict=True)):
        accused = sorted(found["wrong label"])
        that(accused != rows, "labels compared by position", f"{first.what}: 'wrong label': []", accused)
    for epoch, found in judged:
        what, rows, wanted = f"{epoch.what}: 'wrong label'", found["wrong label"], epoch.findings["wrong label"]
        that(set(wanted) <= set(rows), "wrong label not seen", f"{what}: {wanted}", rows)
        that(len(set(rows)) == len(rows), "listed twice", f"{what}: {wanted}", rows)
        same(sorted(rows), wanted, "right label accused", what)
    yield


def _findings(function: Callable, epoch: _Epoch) -> dict[str, object]:
    call = f"answer(images, labels, batches), {epoch.what}"
    found = a_dict(run(function, epoch.images, epoch.labels, epoch.batches, call=call), _FINDINGS, call)
    rows = {key: a_list(found[key], f"{call}: {key!r}") for key in _FINDINGS[:3]}
    rows = {key: [a_whole_number(row, f"{call}: each of {key!r}") for row in value] for key, value in rows.items()}
    return {**rows, "foreign": a_whole_number(found["foreign"], f"{call}: 'foreign'")}


# --- 05.3 -----------------------------------------------------------------------------------------------------------

_QUESTION = (32, 299, 299, 3)
_FEEDS = [  # (shape of a batch, type of a number, seconds to make it, workers, bytes a second through the pipe)
    (_QUESTION, "uint8", 0.02, 4, 1e9),
    (_QUESTION, "float32", 0.02, 4, 1e9),
    (_QUESTION, "uint8", 0.4, 8, 1e9),
    (_QUESTION, "uint8", 0.01, 1, 5e8),
    ((64, 64, 64, 3), "float32", 0.001, 2, 2e9),
    ((128, 32, 32, 1), "float16", 0.004, 3, 1e9),
    ((16, 96, 96, 3), "float64", 0.05, 2, 2e9),
]


def _bytes(shape: tuple, dtype: str) -> int:
    return math.prod(shape) * np.dtype(dtype).itemsize


def _by_pipe(shape, dtype, make_s, workers, pipe) -> float:
    send_s = _bytes(shape, dtype) / pipe
    return min(workers / (make_s + send_s), 1 / send_s)


def _one_byte(shape, _, make_s, workers, pipe) -> float:
    return _by_pipe(shape, "uint8", make_s, workers, pipe)


_PIPE_MISTAKES = {
    "one byte a number": _one_byte,
    "pipe for nothing": lambda _s, _d, make_s, workers, _p: workers / make_s,
    "receiver forgotten": lambda s, d, make_s, workers, p: workers / (make_s + _bytes(s, d) / p),
    "only the receiver": lambda s, d, _m, _w, p: p / _bytes(s, d),
    "sends while it makes": lambda s, d, make_s, workers, p: min(workers / make_s, p / _bytes(s, d)),
    "batch after batch": lambda s, d, make_s, workers, p: 1 / (make_s / workers + _bytes(s, d) / p),
}


@task(
    "05.3",
    "What a pipe costs",
    objective=4,
    points=3,
    hints={
        "the two swapped": "First the speed through the pipe, then with slots.",
        "seconds, not speed": "Asked for are batches a second. What you give are seconds a batch.",
        "images a second": "Asked for are batches a second, not images.",
        "one worker alone": "With slots, all workers make batches at the same time.",
        "not the slots' speed": "A slot costs no time: a worker makes a batch in make_s. How many do all make in 1 s?",
        "one byte a number": "How many bytes does one number of this dtype take?",
        "pipe for nothing": "Each byte that goes through the pipe costs time. The two speeds cannot be equal.",
        "receiver forgotten": "Many workers can send more than one process can receive. What is the most it receives?",
        "only the receiver": "The training process can receive that much. Do the workers make as many?",
        "sends while it makes": "A worker does one thing after the other: it makes a batch, then it sends it.",
        "batch after batch": "While the training process receives a batch, the other workers go on with theirs.",
        "not the pipe's speed": "Two limits: what all workers make and send in a second, and what one process "
        "receives. Which of the two counts?",
    },
    note="A pipe costs every byte twice, and its receiver is a limit that no number of workers lifts; a slot is free.",
)
def pipe_and_slots(answer):
    function = a_function(answer, "shape, dtype, make_s, workers, pipe_bytes_s")
    found = []
    for case in _FEEDS:
        pair = a_list(run(function, *case), f"answer{case}")
        that(len(pair) == 2, "wrong shape", f"answer{case}: two numbers", f"{len(pair)} of them")
        found.append([a_number(speed, f"answer{case}: each of the two") for speed in pair])
    yield
    pipes, slots = np.array(found).T
    right = np.array([workers / make_s for _, _, make_s, workers, _ in _FEEDS])
    right_pipes = np.array([_by_pipe(*case) for case in _FEEDS])
    sizes = np.array([shape[0] for shape, *_ in _FEEDS])
    makes = np.array([make_s for _, _, make_s, _, _ in _FEEDS])
    what = f"answer{_FEEDS[0]}, slots"
    for name, value in {"the two swapped": right_pipes, "one worker alone": 1 / makes}.items():
        that(not _near(slots, value), name, f"{what}: {right[0]:.1f}", f"{slots[0]:.1f}")
    for name, value in {"seconds, not speed": 1 / right, "images a second": right * sizes}.items():
        that(not _near(slots, value), name, f"{what}: {right[0]:.1f}", f"{slots[0]:.4g}")
    _speeds(slots, right, "not the slots' speed", "slots")
    yield
    for name, mistake in _PIPE_MISTAKES.items():
        wrong = np.array([mistake(*case) for case in _FEEDS])
        if _near(pipes, wrong):
            _speeds(pipes, right_pipes, name, "pipe")
    _speeds(pipes, right_pipes, "not the pipe's speed", "pipe")
    yield


def _near(one: np.ndarray, other: np.ndarray) -> bool:
    return np.allclose(one, other, rtol=0.01, atol=0)


def _speeds(got: np.ndarray, right: np.ndarray, name: str, which: str) -> None:
    for case, one, other in zip(_FEEDS, got, right, strict=True):
        that(_near(one, other), name, f"answer{case}, {which}: {other:.1f}", f"{one:.1f}")


# --- 05.4 -----------------------------------------------------------------------------------------------------------

_BLOCKS = [(240, 10, 20, 4), (107, 8, 10, 3), (48, 6, 6, 1), (50, 8, 100, 4), (96, 32, 8, 5)]  # n, batch, block, open
_SEEDS = [(0, 0), (0, 1), (1, 0), (7, 3)]  # (seed, epoch)


@task(
    "05.4",
    "Mix blocks",
    objective=3,
    points=4,
    hints={
        "rows that do not exist": "The last block may be shorter: where does it end?",
        "rows twice": "In an epoch some row came twice.",
        "rows left out": "Some rows never came. n need not be a multiple of the block or of the batch.",
        "short batch in the middle": "Only the last batch of an epoch may be smaller. A batch may take rows from two "
        "groups of blocks.",
        "too many blocks open": "A block is open from the first of its rows that is served to the last one. Count "
        "those that are open at the same time.",
        "one block at a time": "The open blocks are there, but a batch takes its rows from few of them. What is mixed "
        "with what?",
        "blocks in the order of the file": "The first blocks of the file were always served first. What is mixed "
        "before any block is opened?",
        "neighbours open together": "The blocks that are open together always lie side by side in the file. Mix "
        "single blocks.",
        "rows of a block in order": "The rows of each block came in the order of the file. Mix all rows of the open "
        "blocks.",
        "same order each epoch": "Two epochs had the same order. What does the random source start from?",
        "seed not used": "Two seeds gave the same order.",
        "seed and epoch added": "Seed 0 in epoch 1 gave the order of seed 1 in epoch 0. `default_rng` takes a list.",
        "cannot be repeated": "The same six arguments gave another order. Whose dice are thrown?",
    },
    note="A batch reaches into a few blocks only, so a slow disk reads long stretches; a mixed file makes that enough.",
)
def block_shuffle(answer):
    function = a_function(answer, "n, batch_size, block_rows, open_blocks, seed, epoch")
    orders = {(case, start): _row_batches(function, case, start) for case in _BLOCKS for start in _SEEDS}
    yield
    for (case, start), batches in orders.items():
        _each_row_once(batches, case, _called(case, start))
    yield
    for (case, start), batches in orders.items():
        opened, most = _most_open(_flat(batches), case)
        call = f"{_called(case, start)}: at most {case[3]} open"
        that(opened <= case[3], "too many blocks open", call, f"{opened} of {most} blocks")
    for case in _BLOCKS:
        _mixed([orders[case, start] for start in _SEEDS], case)
    yield
    _by_seed_and_epoch(function, orders)
    yield


def _called(case: tuple, start: tuple) -> str:
    return f"answer({', '.join(map(str, case + start))})"


def _row_batches(function: Callable, case: tuple, start: tuple) -> list[list[int]]:
    call = _called(case, start)
    returned = run(function, *case, *start, call=call)
    batches = a_list(_finite(returned), call)
    rows = [a_list(_finite(batch), f"{call}: each batch") for batch in batches]
    return [[a_whole_number(row, f"{call}: each row") for row in batch] for batch in rows]


def _finite(value: object) -> object:
    """A list of what an iterator gives; an endless one would be cut off."""
    return list(itertools.islice(value, 10_000)) if hasattr(value, "__next__") else value


def _flat(batches: list[list[int]]) -> list[int]:
    return [row for batch in batches for row in batch]


def _each_row_once(batches: list[list[int]], case: tuple, call: str) -> None:
    n, batch_size, *_ = case
    rows = _flat(batches)
    beyond = [row for row in rows if not 0 <= row < n]
    that(not beyond, "rows that do not exist", f"{call}: rows 0 to {n - 1}", f"row {beyond[:1]}")
    that(
        len(set(rows)) == len(rows),
        "rows twice",
        f"{call}: each row once",
        f"{len(rows)} rows, {len(set(rows))} different",
    )
    that(len(rows) == n, "rows left out", f"{call}: {n} rows", f"{len(rows)} rows")
    sizes = [len(batch) for batch in batches]
    right = [batch_size] * (n // batch_size) + [n % batch_size] * bool(n % batch_size)
    that(sizes == right, "short batch in the middle", f"{call}: sizes {right[:2]} ...", _odd_sizes(sizes, batch_size))


def _odd_sizes(sizes: list[int], batch_size: int) -> str:
    odd = [(place, size) for place, size in enumerate(sizes) if size != batch_size]
    return f"batch {odd[0][0]} with {odd[0][1]} rows" if odd else f"{len(sizes)} batches"


def _most_open(rows: list[int], case: tuple) -> tuple[int, int]:
    """The most blocks that were open at the same time, and how many there are."""
    blocks = np.array(rows) // case[2]
    count = int(blocks.max()) + 1
    places = [np.flatnonzero(blocks == block) for block in range(count)]
    open_at = np.zeros(len(rows), int)
    for place in places:
        open_at[place[0] : place[-1] + 1] += 1
    return int(open_at.max()), count


def _mixed(orders: list[list[list[int]]], case: tuple) -> None:
    n, batch_size, block_rows, open_blocks = case
    call = f"answer({', '.join(map(str, case))}, ...)"
    count = -(-n // block_rows)
    firsts = [list(dict.fromkeys(row // block_rows for row in _flat(batches)))[:open_blocks] for batches in orders]
    if count > open_blocks + 2:
        from_start = all(set(first) == set(range(len(first))) for first in firsts)
        that(not from_start, "blocks in the order of the file", f"{call}: blocks mixed", f"first: {sorted(firsts[0])}")
        beside = open_blocks > 1 and all(max(first) - min(first) < open_blocks for first in firsts)
        that(not beside, "neighbours open together", f"{call}: single blocks mixed", f"first: {sorted(firsts[0])}")
    if min(count, open_blocks) >= 3:
        touched = np.mean([len({row // block_rows for row in batch}) for batches in orders for batch in batches])
        least = 0.6 * min(batch_size, open_blocks, count)
        what = f"{call}: the rows of the open blocks mixed"
        that(touched >= least, "one block at a time", what, f"{touched:.1f} blocks a batch")
    rows = [row for batches in orders for row in _flat(batches)]
    epochs = [np.array(rows[at : at + n]) for at in range(0, len(rows), n)]
    forward = all(
        (np.diff(epoch[epoch // block_rows == block]) > 0).all() for epoch in epochs for block in range(count)
    )
    that(not forward, "rows of a block in order", f"{call}: the rows of a block mixed, too", "each block in file order")


def _by_seed_and_epoch(function: Callable, orders: dict) -> None:
    case = _BLOCKS[0]
    called = f"answer({', '.join(map(str, case))}, seed, epoch)"
    first = orders[case, (0, 0)]
    state = np.random.get_state()  # noqa: NPY002 - other people's dice: they must not matter, and are put back
    try:
        np.random.seed(5)  # noqa: NPY002 - as above
        again = _row_batches(function, case, (0, 0))
    finally:
        np.random.set_state(state)  # noqa: NPY002 - as above
    that(again == first, "cannot be repeated", f"{called}: twice the same order", "two orders")
    that(orders[case, (0, 1)] != first, "same order each epoch", f"{called}: another order in epoch 1", "the same")
    that(orders[case, (1, 0)] != first, "seed not used", f"{called}: another order for seed 1", "the same")
    is_sum = orders[case, (0, 1)] == orders[case, (1, 0)]
    that(not is_sum, "seed and epoch added", f"{called}: (0, 1) and (1, 0) have two orders", "the same order")


# --- 05.5 -----------------------------------------------------------------------------------------------------------

_SHAPE = (8, 6, 3)
_LARGER = (48, 64, 3)  # so that images in a pickle are much larger than all else in it


@dataclass(frozen=True)
class _Parts:
    """One data set in several small files, and what is in it."""

    paths: list[Path]
    pixels: np.ndarray
    targets: np.ndarray
    sizes: tuple[int, ...]
    row_of: dict[bytes, int] = field(repr=False)

    def length(self, batch_size: int) -> int:
        return -(-len(self.pixels) // batch_size)

    def file_of(self, row: int) -> int:
        return int(np.searchsorted(np.cumsum(self.sizes), row, side="right"))


def _write_parts(folder: Path, sizes: tuple[int, ...], shape: tuple = _SHAPE) -> _Parts:
    rng = np.random.default_rng(len(sizes))
    pixels = rng.integers(0, 256, (sum(sizes), *shape), dtype=np.uint8)
    targets = np.eye(4, dtype=np.uint8)[rng.permutation(len(pixels)) % 4]
    paths, start = [], 0
    for number, size in enumerate(sizes):
        paths.append(folder / f"part_{number}_of_{len(sizes)}_{shape[0]}px.h5")
        with h5py.File(paths[-1], "w") as file:
            file["train_img"] = pixels[start : start + size]
            file["train_labels"] = targets[start : start + size]
        start += size
    return _Parts(paths, pixels, targets, sizes, {image[1:].tobytes(): row for row, image in enumerate(pixels)})


@dataclass(frozen=True)
class _Served:
    """A batch of the learner's: its images, and the rows that they show."""

    images: np.ndarray
    labels: np.ndarray
    rows: list[int]


def marked(image: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """An augmentation that writes what it drew into the first pixel; the other rows of pixels still say which it is."""
    if not isinstance(rng, np.random.Generator):
        raise Wrong("another random source", "augment(image, rng), rng a np.random.Generator", describe(rng))
    changed = np.array(image)
    changed[0, 0] = rng.integers(0, 256, 3)
    return changed


class _Meeting:
    """An augmentation during which another thread asks the same object for a batch."""

    def __init__(self):
        self.entered, self.go = threading.Event(), threading.Event()

    def __call__(self, image, rng):
        if not self.entered.is_set():
            self.entered.set()
            self.go.wait(0.5)  # an object with a lock lets nobody in: then go on alone
        return marked(image, rng)


@task(
    "05.5",
    "Keep the four rules",
    objective=1,
    points=5,
    hints={
        "no batch by number": "Rule 4: an object has a length, and a method `batch(epoch, index)`.",
        "not an image for each row": "A batch has an image and a label for each of its rows; the last one may be "
        "smaller.",
        "the wrong file": "All rows came out of one file. Handles are kept: under what, beside the process?",
        "last batch dropped": "The rows after the last full batch are a batch as well, a smaller one.",
        "rows twice": "In an epoch some row came twice, so another one did not come.",
        "pixels changed": "Without an augmentation a batch holds what is in the file: same values, uint8.",
        "labels do not fit": "Image and label of a batch came from different rows. What was sorted, and what was not?",
        "never shuffled": "The rows came in the order of the files.",
        "files one after the other": "All rows of one file came before those of the next: the rows of all files are "
        "mixed together.",
        "same order each epoch": "Rule 3: two epochs had one order.",
        "depends on other calls": "Rules 3 and 4: a batch is decided by its numbers. The same two numbers gave another "
        "batch when it was asked for again, in another order, or of a second object.",
        "seed not used": "Two seeds gave the same order.",
        "numbers added up": "Rule 3: a sum makes one number of different pairs: 3 + 1 is 4 + 0. `default_rng` takes "
        "a list.",
        "augment not called": "The images came as they are in the file. What is done with `augment`?",
        "another random source": "An augmentation gets a np.random.Generator, made for this one image.",
        "chance left to others": "Rule 3: the same numbers gave another chance when asked again. Whose dice were "
        "thrown?",
        "same chance for each row": "Rule 3: rows were changed by the same chance. Which number does each have alone?",
        "same chance each epoch": "Rule 3: in each epoch a row was changed by the same chance.",
        "chance without the seed": "Rule 3: two seeds changed a row by the same chance.",
        "chance by the batch": "Rule 3: with another batch_size the same row was changed by another chance.",
        "threads disturb each other": "While one thread was making its batch, another asked for one, and the first "
        "batch came out wrong. What is kept in self during a batch?",
        "handle in the pickle": "Rule 1: a handle cannot travel. What does pickle take along, and who tells it?",
        "whole file in memory": "The object, or its pickle, is as large as all images. Which line reads them, and how "
        "many rows does a batch need?",
        "fails in a fresh process": "The pickled object arrived in a fresh Python, and made no batch there, or another "
        "one. What of it does not exist in another process?",
        "the parent's handle": "Rule 2: a forked process read, and did not open a file itself. Under which key "
        "are handles kept?",
        "opened for each batch": "Rule 2: a process opens a file once and keeps the handle.",
    },
    note="The same batches in threads, forked and spawned processes, from any number of files: that is the example "
    "that the article left out.",
)
def four_rules(answer):
    function = a_function(answer, "paths, batch_size, seed, augment")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        parts = _write_parts(Path(name), (8, 3, 5))
        one = _object(function, parts, 5)
        _served(one, 0, 0, parts)
        yield
        for epoch in (0, 1):
            _serves_all(one, epoch, parts, 5)
        _serves_all(_object(function, parts, 4), 0, parts, 4)  # 16 rows by 4: nothing left over
        yield
        _in_own_order(function, one, parts)
        yield
        _by_own_chance(function, parts)
        yield
        _with_threads(function, parts)
        larger = _write_parts(Path(name), (40, 30), _LARGER)
        _reads_little(function, larger)
        _with_processes(function, larger)
        yield


def _object(function: Callable, parts: _Parts, batch_size: int, seed: int = 3, augment=None) -> object:
    shown = "None" if augment is None else "augment"
    call = f"answer(paths, {batch_size}, {seed}, {shown})"
    paths = list(parts.paths)
    one = attempt(lambda: function(paths, batch_size, seed, augment), call)
    that(paths == parts.paths, "changed its input", f"{call}: paths stay as they are", "another list")
    is_one = callable(getattr(one, "batch", None)) and hasattr(type(one), "__len__")
    that(is_one, "no batch by number", f"{call} has a length, and a method batch", describe_type(one))
    try:
        length = a_whole_number(attempt(lambda: len(one), f"len({call})"), f"len({call})")
    except AnswerRaised as raised:
        if isinstance(raised.error, TypeError):
            text = f"TypeError: {raised.error}"
            raise Wrong("no batch by number", f"len({call}): a whole number", text) from None
        raise
    n = len(parts.pixels)
    what = f"len({call}) with {n} rows: {parts.length(batch_size)}"
    that(length >= parts.length(batch_size), "last batch dropped", what, length)
    that(length == parts.length(batch_size), "no batch by number", what, length)
    return one


def describe_type(value: object) -> str:
    """What kind of object it is: its own words may hold an address."""
    return f"an object of {type(value).__name__}" if value is not None else "None"


def _served(one: object, epoch: int, index: int, parts: _Parts, *, augmented: bool = False) -> _Served:
    call = f"answer(...).batch({epoch}, {index})"
    pair = a_list(attempt(lambda: one.batch(epoch, index), call), call)
    that(len(pair) == 2, "wrong shape", f"{call}: images and labels", f"{len(pair)} parts")
    images = an_array(pair[0], f"{call}: images", dtype=np.uint8, name="pixels changed")
    labels = an_array(pair[1], f"{call}: labels")
    of_shape(images, (None, *_SHAPE), f"{call}: images")
    of_shape(labels, (None, 4), f"{call}: labels")
    that(len(images) == len(labels), "not an image for each row", f"{call}: as many labels as images", len(labels))
    rows = [parts.row_of.get(image[1:].tobytes()) for image in images]
    known = None not in rows and (augmented or np.array_equal(images, parts.pixels[rows]))
    that(known, "pixels changed", f"{call}: images as they are in the files", "other images")
    return _Served(images.copy(), labels.copy(), rows)  # copies: memory of the learner's may be used again


def _epoch_of(one: object, epoch: int, parts: _Parts, *, augmented: bool = False) -> list[_Served]:
    return [_served(one, epoch, index, parts, augmented=augmented) for index in range(len(one))]


def _rows(batches: list[_Served]) -> list[int]:
    return [row for batch in batches for row in batch.rows]


def _serves_all(one: object, epoch: int, parts: _Parts, batch_size: int) -> None:
    batches = _epoch_of(one, epoch, parts)
    rows, n = _rows(batches), len(parts.pixels)
    call = f"epoch {epoch} of {len(parts.paths)} files with {n} rows"
    used = {parts.file_of(row) for row in rows}
    that(len(used) == len(parts.paths), "the wrong file", f"{call}: rows of all files", f"of {len(used)} alone")
    that(len(set(rows)) == len(rows), "rows twice", f"{call}: each row once", f"{len(set(rows))} different rows")
    that(len(rows) == n, "last batch dropped", f"{call}: all rows", f"{len(rows)} rows")
    sizes, right = [len(batch.rows) for batch in batches], [batch_size] * (n // batch_size) + [n % batch_size]
    right = [size for size in right if size]
    same(sizes, right, "not an image for each row", f"{call}: images in each batch")
    fits = all(np.array_equal(batch.labels, parts.targets[batch.rows]) for batch in batches)
    that(fits, "labels do not fit", f"{call}: each image with its label", "labels of other rows")


def _in_own_order(function: Callable, one: object, parts: _Parts) -> None:
    what = f"{len(parts.paths)} files"
    first, second = (_rows(_epoch_of(one, epoch, parts)) for epoch in (0, 1))
    that(sorted(first) != first, "never shuffled", f"{what}: rows in mixed order", "rows 0, 1, 2 ...")
    jumps = sum(parts.file_of(a) != parts.file_of(b) for a, b in itertools.pairwise(first))
    that(jumps >= len(parts.paths), "files one after the other", f"{what}: rows of all files mixed", "one by one")
    that(first != second, "same order each epoch", f"{what}: another order in epoch 1", "the same")
    other = _object(function, parts, 5)
    for index in [*reversed(range(len(one))), 1, 1, 0]:
        for asked in (one, other):
            again = _served(asked, 0, index, parts).rows
            expected = f"{what}: batch {index} of epoch 0 is one batch"
            start = index * 5
            that(again == first[start : start + len(again)], "depends on other calls", expected, "another batch")
    seeded = _rows(_epoch_of(_object(function, parts, 5, seed=4), 0, parts))
    that(seeded != first, "seed not used", f"{what}: another order for another seed", "the same")
    apart = "seed 3 in epoch 1 and seed 4 in epoch 0: two orders"
    that(seeded != second, "numbers added up", f"{what}: {apart}", "the same order")


def _by_own_chance(function: Callable, parts: _Parts) -> None:
    one = _object(function, parts, 5, augment=marked)
    plain = _rows(_epoch_of(_object(function, parts, 5), 0, parts))
    drawn, again, later = (_draws(one, epoch, parts) for epoch in (0, 0, 1))
    as_stored = all(np.array_equal(parts.pixels[row, 0, 0], drawn[row]) for row in drawn)
    that(not as_stored, "augment not called", "augment changes each image", "images as in the files")
    that(drawn == again, "chance left to others", "batches of epoch 0, twice: the same", "two kinds of batches")
    what = f"{len(plain)} rows, {len(plain)} chances"
    that(len(set(drawn.values())) == len(plain), "same chance for each row", what, f"{len(set(drawn.values()))}")
    alike = [row for row in drawn if drawn[row] == later[row]]
    that(not alike, "same chance each epoch", "another chance in epoch 1", "the same for a row")
    other_seed = _draws(_object(function, parts, 5, seed=4, augment=marked), 0, parts)
    that(drawn != other_seed, "chance without the seed", "another chance for another seed", "the same")
    apart = any(drawn[row] != later[row - 1] for row in drawn if row)
    that(apart, "numbers added up", "row 5 in epoch 0 and row 4 in epoch 1: two chances", "the same chance")
    other_size = _draws(_object(function, parts, 7, augment=marked), 0, parts)
    that(drawn == other_size, "chance by the batch", "batch_size 5 and 7: the same chance for a row", "two chances")


def _draws(one: object, epoch: int, parts: _Parts) -> dict[int, tuple]:
    """What ``marked`` drew for each row."""
    batches = _epoch_of(one, epoch, parts, augmented=True)
    pairs = [(row, image) for batch in batches for row, image in zip(batch.rows, batch.images, strict=True)]
    return {row: tuple(image[0, 0].tolist()) for row, image in pairs}


def _with_threads(function: Callable, parts: _Parts) -> None:
    wanted = _epoch_of(_object(function, parts, 5, augment=marked), 0, parts, augmented=True)
    meeting = _Meeting()
    one = _object(function, parts, 5, augment=meeting)
    meeting.entered.clear()  # the object may have tried its augmentation when it was made
    found: dict[int, object] = {}

    def ask(index: int) -> None:
        try:
            found[index] = _served(one, 0, index, parts, augmented=True)
        except (Wrong, AnswerRaised) as fault:
            found[index] = _kind(fault)

    # Daemons: a thread that never comes back must not keep the kernel from ending.
    first, second = (threading.Thread(target=ask, args=(index,), daemon=True) for index in (0, 1))
    first.start()
    meeting.entered.wait(5)
    second.start()
    second.join(1)  # with a lock in the object it waits for the first one, which goes on after half a second
    meeting.go.set()
    for thread in (first, second):
        thread.join(10)
    for index, right in enumerate(wanted[:2]):
        got = found.get(index, "it did not come back")
        equal = isinstance(got, _Served) and np.array_equal(got.images, right.images)
        equal = equal and np.array_equal(got.labels, right.labels)
        what = "another batch" if isinstance(got, _Served) else got
        that(equal, "threads disturb each other", "two threads at the same time: the batches of one", what)


def _kind(fault: Wrong | AnswerRaised) -> str:
    return type(fault.error).__name__ if isinstance(fault, AnswerRaised) else fault.name


def _reads_little(function: Callable, parts: _Parts) -> None:
    """An object and one batch of it take much less memory than all images."""

    def one_batch():
        one = _object(function, parts, 4)
        attempt(lambda: one.batch(0, 0), "answer(...).batch(0, 0)")

    taken = peak_bytes(one_batch)
    what = f"an object and one batch of 4: much less than all {len(parts.pixels)} images"
    that(taken < parts.pixels.nbytes / 2, "whole file in memory", what, "as much")


def _with_processes(function: Callable, parts: _Parts) -> None:
    one = _object(function, parts, 4, augment=marked)
    wanted = _digests(one)  # from here on there are handles that pickle must leave behind
    pickled = _pickled(one)
    that(len(pickled) < parts.pixels.nbytes / 2, "whole file in memory", "a pickle without images", "one with images")
    outcome = run_in_child(
        _read_elsewhere, args=(pickled, [os.path.realpath(path) for path in parts.paths]), seconds=40
    )
    if outcome.exit_code is None:  # not run
        return
    expected = "a fresh process makes the same batches"
    if not outcome.ok or outcome.result is None:
        ending = outcome.last_error_line.replace(str(parts.paths[0].parent), "") or "it did not end well"
        raise Wrong("fails in a fresh process", expected, ending)
    that(outcome.result["spawned"] == wanted, "fails in a fresh process", expected, "other batches")
    if "forked" not in outcome.result:  # this system has no fork
        return
    expected = "a forked process makes the same batches"
    that(outcome.result["forked"] == wanted, "the parent's handle", expected, "none, or others")
    opened = outcome.result["opened"]
    that(
        min(opened) > 0, "the parent's handle", "a forked process opens each file itself", "it opened none, or not all"
    )
    expected = "a process opens each file once"  # twice is allowed: once for the images, once for the labels
    that(max(opened) <= 2, "opened for each batch", expected, f"{max(opened)} times in one epoch")


def _pickled(value: object) -> bytes:
    try:
        return attempt(lambda: cloudpickle.dumps(value), "pickle.dumps(object)")
    except AnswerRaised as raised:
        if isinstance(raised.error, TypeError) and "h5py" in str(raised.error):
            text = f"TypeError: {raised.error}"
            raise Wrong("handle in the pickle", "an object that pickles after it has read", text) from None
        raise


def _digests(one: object) -> list[str]:
    batches = [one.batch(0, index) for index in range(len(one))]
    parts = [
        np.ascontiguousarray(images).tobytes() + np.asarray(labels, "uint8").tobytes() for images, labels in batches
    ]
    return [hashlib.sha256(part).hexdigest() for part in parts]


def _read_elsewhere(pickled: bytes, paths: list[str]) -> dict:
    """In a fresh process: make the batches there, and then in a fork of it, which inherits open handles."""
    one = pickle.loads(pickled)
    found = {"spawned": _digests(one)}
    if "fork" in multiprocessing.get_all_start_methods():
        context = multiprocessing.get_context("fork")
        mine, theirs = context.Pipe(duplex=False)
        process = context.Process(target=_read_in_fork, args=(one, paths, theirs))
        process.start()
        theirs.close()
        try:
            found |= mine.recv() if mine.poll(20) else {"forked": []}
        except EOFError:  # it crashed
            found |= {"forked": []}
        process.kill()
        process.join()
    return found


def _read_in_fork(one: object, paths: list[str], answers) -> None:
    by_hdf5, by_python, make = dict.fromkeys(paths, 0), set(), h5py.File.__init__

    def watched(self, name, *args, **kwargs):
        where = os.path.realpath(os.fsdecode(name)) if isinstance(name, str | bytes | os.PathLike) else ""
        if where in by_hdf5:
            by_hdf5[where] += 1
        make(self, name, *args, **kwargs)

    def hook(event, args):
        if event == "open" and isinstance(args[0], str | bytes):
            by_python.add(os.path.realpath(os.fsdecode(args[0])))

    h5py.File.__init__ = watched
    sys.addaudithook(hook)
    forked = _digests(one)
    opened = [max(by_hdf5[path], int(path in by_python)) for path in paths]  # the kit reads past HDF5 where it can
    answers.send({"forked": forked, "opened": opened})


# --- 05.6 -----------------------------------------------------------------------------------------------------------

_BATCH, _STEPS, _EPOCHS = 4, 5, 4


@dataclass(frozen=True)
class _Foreign:
    """A file that the kit did not write: other names, class numbers, sorted by class."""

    path: Path
    images: str
    labels: str
    pixels: np.ndarray
    numbers: np.ndarray
    row_of: dict[bytes, int] = field(repr=False)


def _foreign(folder: Path, names: tuple[str, str], n: int) -> _Foreign:
    rng = np.random.default_rng(n)
    pixels = rng.integers(0, 256, (n, 8, 6, 3), dtype=np.uint8)
    numbers = np.sort(np.arange(n) % 4)
    path = folder / f"{names[0].partition('/')[0]}.h5"
    with h5py.File(path, "w") as file:
        file[names[0]], file[names[1]] = pixels, numbers
    return _Foreign(path, *names, pixels, numbers, {image.tobytes(): row for row, image in enumerate(pixels)})


@task(
    "05.6",
    "The kit's generator, on your own file",
    objective=6,
    points=5,
    hints={
        "not an HDF5Sequence": "Both parts are objects of the kit's HDF5Sequence, in the order (train, valid).",
        "other datasets": "The pixels that were served are not those of `images`. Which names were passed?",
        "row in both parts": "Some rows are in both parts: the network would be examined on what it has learned.",
        "row in no part": "Some rows of the file are served by neither part. Look at the split, and at the last batch.",
        "wrong shares": "Of n rows, n * 8 // 10 are for training, and all others for validation.",
        "split in file order": "The file is sorted by class, and so is your split: one part lacks classes. Mix before "
        "you split.",
        "seed not used": "Two seeds gave the same split.",
        "another split each time": "One seed gave two splits. Whose dice were thrown?",
        "wrong batch size": "Batches have 4 images, the last one fewer: nothing is dropped.",
        "training not shuffled": "In two epochs the training rows came in the same order.",
        "validation shuffled": "The validation rows came in another order in the next epoch. What does `shuffle` do "
        "when `rows` is given, and you say nothing?",
        "pictures changed": "The model was given pictures that are not in the file. Nothing is augmented here; if you "
        "add it to your own training, leave the validation as it is.",
        "not trained": "The model was never asked to train. The function trains it before it returns.",
        "other steps": "The training has 4 epochs of 5 steps. Count what the model was given.",
        "rows never met": "The model met some training rows several times and others never. Section 12: whose epochs "
        "begin at batch 0 again?",
        "not validated": "The model was not asked about all validation rows after each epoch.",
        "validated on training rows": "The model was examined on rows that it had trained on. Which sequence is which?",
        "LayoutError": "Read the sentence: the file holds class numbers under names of its own. Which arguments tell "
        "that?",
        "DatasetNotFoundError": "The file has names of its own. Which arguments take them?",
        "TypeError": "Read the sentence: `rows` is a list of row numbers, not a mask.",
        "ValueError": "Read the sentence, and compare: what does the loss of the model want, and what are the labels?",
    },
    note="Two sequences on one file, no row in both, and a training that meets every row: on any file of images.",
)
def own_file(answer):
    function = a_function(answer, "model, path, images, labels, classes, seed")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        files = [_foreign(Path(name), names, n) for names, n in ((("photos", "kinds"), 100), (("x/pixels", "y"), 62))]
        results = [_trained(function, file, seed=3) for file in files]
        yield
        for file, (_, train, valid) in zip(files, results, strict=True):
            _is_split(file, _order(train, 0), _order(valid, 0))
        yield
        for file, (_, train, valid) in zip(files, results, strict=True):
            _is_set_up(file, train, valid)
        yield
        for file, (heard, train, valid) in zip(files, results, strict=True):
            _has_trained(file, heard, _order(train, 0), _order(valid, 0))
        yield
        first = _order(results[1][2], 0)
        again, other = (_order(_trained(function, files[1], seed=seed)[2], 0) for seed in (3, 4))
        that(sorted(again) == sorted(first), "another split each time", "seed 3, twice: one split", "two splits")
        that(sorted(other) != sorted(first), "seed not used", "seeds 3 and 4: two splits", "one split")
        yield


class _Heard:
    """What a model was given, in order: ("train" or "test", rows)."""

    def __init__(self):
        self.steps: list[tuple[str, list]] = []

    def rows(self, kind: str) -> list[list]:
        return [rows for one, rows in self.steps if one == kind]


def _listener(file: _Foreign, heard: _Heard):
    """A model that learns nothing, and writes down which rows it is given."""
    import keras

    class Listener(keras.Model):
        def train_step(self, data):
            return self._listen("train", data)

        def test_step(self, data):
            return self._listen("test", data)

        def _listen(self, kind, data):
            images = keras.ops.convert_to_numpy(data[0])
            heard.steps.append((kind, [file.row_of.get(image.astype(np.uint8).tobytes()) for image in images]))
            return {"loss": 0.0}

    inputs = keras.Input((8, 6, 3), dtype="uint8")
    flat = keras.layers.Flatten()(keras.layers.Rescaling(1 / 255)(inputs))
    model = Listener(inputs, keras.layers.Dense(4, activation="softmax")(flat))
    model.compile("sgd", "categorical_crossentropy", run_eagerly=True)
    return model


def _trained(function: Callable, file: _Foreign, seed: int) -> tuple:
    """What the model heard, and the two sequences."""
    from helpers.sequence import HDF5Sequence

    heard = _Heard()
    model = _listener(file, heard)
    call = f"answer(model, path, {file.images!r}, {file.labels!r}, 4, {seed})"
    args = model, file.path, file.images, file.labels, 4, seed
    returned = attempt(lambda: function(*args), call)
    that(returned is not None, "forgot to return", f"{call} returns (train, valid)", "None")
    pair = a_list(returned, call)
    that(len(pair) == 2, "wrong shape", f"{call}: two sequences", f"{len(pair)} of them")
    for one in pair:
        is_one = isinstance(one, HDF5Sequence)
        that(is_one, "not an HDF5Sequence", f"{call}: two HDF5Sequences", f"in it: {describe_type(one)}")
        is_named = (one.split_info.images, one.split_info.labels) == (file.images, file.labels)
        that(is_named, "other datasets", f"{call}: {file.images}, {file.labels}", one.split_info.images)
    return heard, *pair


def _order(sequence, epoch: int) -> list[int]:
    return [int(row) for index in range(len(sequence)) for row in sequence.rows_of(epoch, index)]


def _is_split(file: _Foreign, train: list[int], valid: list[int]) -> None:
    n, what = len(file.pixels), f"a file of {len(file.pixels)} rows"
    both, none = set(train) & set(valid), set(range(n)) - set(train) - set(valid)
    that(not both, "row in both parts", f"{what}: no row in both parts", f"{len(both)} rows in both")
    that(not none, "row in no part", f"{what}: each row in one part", f"{len(none)} rows in none")
    right = n * 8 // 10
    that(len(train) == right, "wrong shares", f"{what}: {right} for training", f"{len(train)} for training")
    edges = [sorted(valid) == list(range(valid_at, valid_at + len(valid))) for valid_at in range(n - len(valid) + 1)]
    that(not any(edges), "split in file order", f"{what}, sorted by class: a split by chance", "one stretch of rows")


def _is_set_up(file: _Foreign, train, valid) -> None:
    what = f"a file of {len(file.pixels)} rows"
    for one, n in ((train, train.n), (valid, valid.n)):
        length = -(-n // _BATCH)
        that(one.batch_size == _BATCH, "wrong batch size", f"{what}: batches of {_BATCH}", one.batch_size)
        that(len(one) == length, "wrong batch size", f"{what}: {length} batches of {n} rows", len(one))
    is_mixed = _order(train, 0) != _order(train, 1)
    that(is_mixed, "training not shuffled", f"{what}: another order each epoch", "the same order")
    fixed = _order(valid, 0) == _order(valid, 1)
    that(fixed, "validation shuffled", f"{what}: validation in one order", "another order each epoch")


def _has_trained(file: _Foreign, heard: _Heard, train: list[int], valid: list[int]) -> None:
    what = f"a file of {len(file.pixels)} rows"
    steps, tests = heard.rows("train"), heard.rows("test")
    that(steps, "not trained", f"{what}: {_STEPS * _EPOCHS} training steps", "none")
    that(tests, "not validated", f"{what}: validation after each epoch", "none")
    changed = None in _flat(steps) + _flat(tests)
    that(not changed, "pictures changed", f"{what}: the pictures of the file", "others")
    that(len(steps) == _STEPS * _EPOCHS, "other steps", f"{what}: {_STEPS * _EPOCHS} training steps", len(steps))
    places = [place for place, (kind, _) in enumerate(heard.steps) if kind == "train"]
    ends = [place for place, then in itertools.pairwise([*places, len(heard.steps)]) if then != place + 1]
    done = [places.index(place) + 1 for place in ends]
    wanted = [_STEPS * (epoch + 1) for epoch in range(_EPOCHS)]
    that(set(_flat(tests)) <= set(valid), "validated on training rows", f"{what}: the rows of valid", "other rows")
    whole = len(_flat(tests)) == _EPOCHS * len(valid) and set(_flat(tests)) == set(valid)
    that(whole, "not validated", f"{what}: all {len(valid)} rows, {_EPOCHS} times", f"{len(_flat(tests))} pictures")
    same(done, wanted, "other steps", f"{what}: training steps before each validation")
    missed = set(train) - set(_flat(steps))
    that(
        not missed, "rows never met", f"{what}: {_STEPS * _EPOCHS} steps meet every row", f"{len(missed)} rows not met"
    )

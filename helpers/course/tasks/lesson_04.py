"""Questions on lesson 04: who may open a file, what an experiment shows, and code that survives its workers."""

from __future__ import annotations

import contextlib
import errno
import functools
import io
import multiprocessing
import os
import pickle
import random
import re
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import cloudpickle
import h5py
import numpy as np

from helpers.course.failures import Outcome, run_in_child
from helpers.course.probes import (
    AnswerRaised,
    Wrong,
    a_dict,
    a_function,
    a_list,
    a_number,
    a_text,
    a_whole_number,
    attempt,
    describe,
    is_known_mistake,
    run,
    same,
    task,
    that,
)

# --- 04.1 -----------------------------------------------------------------------------------------------------------

_OUTCOMES = {1: "a", 2: "b", 3: "b", 4: "d", 5: "c", 6: "a", 7: "a", 8: "a"}
_MISJUDGED = [  # scene, what people say, and what they believe when they say so
    (1, "b", "readers lock readers"),
    (2, "a", "a writer beside a reader"),
    (3, "a", "a reader beside a writer"),
    (4, "a", "closed by the error"),
    (4, "b", "taken for another process"),
    (5, "b", "somebody must hold it"),
    (6, "c", "asks for a lock all the same"),
    (7, "b", "writes into the old file"),
    (8, "b", "locks that nobody asked for"),
]


@task(
    "04.1",
    "Who may open it?",
    objective=1,
    points=2,
    hints={
        "not a letter": "Each of the scenes 1 to 8 has one letter, a to d, in quotes.",
        "readers lock readers": "Two training runs read one file every day. Which lab opened a file twice for reading?",
        "a writer beside a reader": "Does a writer share a file with those who only read? Look at the first lab with "
        "both.",
        "a reader beside a writer": "The reader changes nothing. Would the writer's half-made changes harm it?",
        "closed by the error": "Which line would have closed the file, and was it run?",
        "taken for another process": "How many processes are in that scene? The error that names another one is "
        "worded differently.",
        "somebody must hold it": "Nobody else has that file open. Who refuses the lock then?",
        "asks for a lock all the same": "What does locking=False leave out?",
        "writes into the old file": "Into which name does `HDF5Writer` write, and when does it touch the other one?",
        "locks that nobody asked for": "Who of the two has asked for a lock? That nothing is said does not make it "
        "safe.",
        "another outcome": "Ask of a scene: how many processes are there, who writes, and has the disk locks at all?",
    },
    note="Readers share a file and a writer wants it alone; the number in the error says whether it was a process or "
    "the disk.",
)
def who_may_open_it(answer):
    chosen = _chosen(answer, _OUTCOMES, '{1: "a", 2: "b", ...}')
    right = sum(chosen[scene] == letter for scene, letter in _OUTCOMES.items())
    if right >= len(_OUTCOMES) / 2:
        yield
    expected = f"what happens in scene {{}} ({right} of {len(_OUTCOMES)} are right)"
    for scene, letter in chosen.items():
        known = letter in set("abcd")
        that(known, "not a letter", expected.format(scene) + ": one letter from a to d", _given(letter))
    for scene, letter, name in _MISJUDGED:
        that(chosen[scene] != letter, name, expected.format(scene), repr(letter))
    for scene, letter in _OUTCOMES.items():
        that(chosen[scene] == letter, "another outcome", expected.format(scene), repr(chosen[scene]))
    yield


def _chosen(answer: object, keys: Mapping, example: str) -> dict[object, str]:
    """The answer as key -> word, in any spelling of both; "" where there is none: what is there counts all the same."""
    that(isinstance(answer, Mapping), "wrong type", f"a dictionary, such as {example}", describe(answer))
    given = {_plain(key): value for key, value in answer.items()}
    return {key: _plain(given.get(str(key), "")) for key in keys}


def _given(word: str) -> str:
    return repr(word) if word else "nothing"


def _plain(word: object) -> str:
    """A key or an answer as a word: 1 for "1" and 1.0, "a" for " A "."""
    if isinstance(word, float) and word.is_integer():
        word = int(word)
    return (word if isinstance(word, str) else describe(word)).strip().lower()


# --- 04.2 -----------------------------------------------------------------------------------------------------------

_JUDGEMENTS = {"a": "no", "b": "no", "c": "yes", "d": "no", "e": "no", "f": "yes", "g": "yes", "h": "open", "i": "open"}
_MISTRIALS = [
    ("a", "yes", "readers lock readers"),
    ("b", "yes", "a lock cures a shared handle"),
    ("c", "no", "both read behind a lock"),
    ("d", "yes", "an inherited handle loses the file"),
    ("e", "yes", "opened late is enough"),
    ("f", "no", "harm comes with an error"),
    ("g", "no", "a control overlooked"),
    ("h", "yes", "believed without a crash"),
    ("i", "no", "believed without a crash"),
    ("h", "no", "none seen, so never"),
    ("i", "yes", "none seen, so never"),
]


@task(
    "04.2",
    "The article on trial",
    objective=6,
    points=3,
    hints={
        "not a verdict": 'Each statement, "a" to "i", has one of three texts: "yes", "no" or "open".',
        "readers lock readers": "Which experiment had two readers and nobody else? What did they get?",
        "a lock cures a shared handle": "One experiment had a shared handle and such a lock. Were its images right?",
        "both read behind a lock": "What did the timeline show: was there a moment in which both workers read?",
        "an inherited handle loses the file": "Find the experiment with that error. Had its worker inherited a handle?",
        "opened late is enough": "In one experiment the file was opened at the first batch. Whose handle was used?",
        "harm comes with an error": "Find the experiment with wrong images. Did it raise anything?",
        "a control overlooked": "One experiment is there to crash, so that you know what would be seen. Which one?",
        "believed without a crash": "Name the experiment in which it happened to an HDF5 file. There must be one.",
        "none seen, so never": "That something did not happen in 4,000 reads: does it show that it cannot happen?",
        "decided, left open": "One of the nine experiments speaks about this statement. One case can refute an "
        '"always", and one can prove a "can".',
    },
    note="One case refutes an always and proves a can; that nothing happened proves nothing, least of all without a "
    "control.",
)
def article_on_trial(answer):
    chosen = _chosen(answer, _JUDGEMENTS, '{"a": "yes", ...}')
    chosen = {letter: {"true": "yes", "false": "no"}.get(verdict, verdict) for letter, verdict in chosen.items()}
    right = sum(chosen[letter] == verdict for letter, verdict in _JUDGEMENTS.items())
    for _ in range(min(right // 3, 2)):  # a point for three statements, one for six, one for all
        yield
    expected = f"what the experiments say of statement {{}} ({right} of {len(_JUDGEMENTS)} are right)"
    for letter, verdict in chosen.items():
        known = verdict in {"yes", "no", "open"}
        that(known, "not a verdict", f'{expected.format(letter)}: "yes", "no" or "open"', _given(verdict))
    for letter, verdict, name in _MISTRIALS:
        that(chosen[letter] != verdict, name, expected.format(letter), repr(verdict))
    for letter, verdict in _JUDGEMENTS.items():
        that(chosen[letter] == verdict, "decided, left open", expected.format(letter), repr(chosen[letter]))
    yield


# --- 04.3 -----------------------------------------------------------------------------------------------------------

_ROWS = 60
_NAME = "plates"


@task(
    "04.3",
    "A reader that travels",
    objective=2,
    points=4,
    hints={
        "no method read": "The reader has a method `read`, which takes start and stop.",
        "RuntimeError": "Was the file of the dataset still open? Where does the `with` block end, and when is `read` "
        "called?",
        "other rows": "Rows start to stop - 1 of the dataset, as a slice gives them.",
        "whole file in memory": "That survives every journey, and needs memory for the whole file. Read the rows that "
        "are asked for.",
        "relative path": "The program went into another folder after the reader was made. From where does a "
        "relative path count, and when is it looked at?",
        "cannot be pickled": "Which attribute of the reader, or global variable, belongs to one process? Files, "
        "datasets and locks do. What goes into a pickle can be chosen.",
        "broken after the journey": "The reader arrived, and its read failed. What is in each attribute on the other "
        "side, and what does your test for an open handle make of that?",
        "handle shared with the child": "The forked child read without opening the file: it used the handle of its "
        "parent. When is the handle opened, and how does your object notice that it is in another process?",
        "opened at each read": "One process opened the file more than once for its reads. Where can the handle wait "
        "for the next read?",
        "fails with a fork": "The reader works until its process is forked. What does it do when it finds that it is "
        "in another one?",
    },
    note="What travels is the path; a handle is opened once in each process that reads, and stays there.",
)
def travelling_reader(answer):
    maker = a_function(answer, "path, name")
    with _plates_file() as (path, truth), _watched() as seen:
        reader = run(maker, path, _NAME, call=f'answer(path, "{_NAME}")')
        that(callable(getattr(reader, "read", None)), "no method read", "an object with a method read", _kind(reader))
        _reads_right(reader, truth, "read")
        that(max(seen["rows"], default=0) <= _MOST, "whole file in memory", "the rows asked for", "many more were read")
        yield
        _travels(maker, path, truth)
        that(max(seen["rows"], default=0) <= _MOST, "whole file in memory", "the rows asked for", "many more were read")
        yield
        _forks(maker, path, truth)
        yield
        del reader
        reader = run(maker, path, _NAME, call=f'answer(path, "{_NAME}")')
        seen["opens"] = 0
        for start in (0, 20, 7, 40):
            _read(reader, start, start + 3)
        opens = seen["opens"]
        del reader
        that(opens <= _FEW_OPENS, "opened at each read", "1 open for 4 reads in one process", f"{opens} opens")
        yield


_MOST = 8  # rows that are asked for at a time
_FEW_OPENS = 3  # a RowReader made in the process: it looks at the file, opens it, and reads past HDF5


def _kind(value: object) -> str:
    return "a generator" if hasattr(value, "send") else f"an object of type {type(value).__name__} without one"


@contextlib.contextmanager
def _plates_file() -> Iterator[tuple[str, np.ndarray]]:
    """An HDF5 file of random plates, and what is in it. A reader may keep it open: Windows then cannot remove it."""
    truth = np.random.default_rng(4).integers(0, 256, (_ROWS, 4, 5, 3), dtype=np.uint8)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        path = Path(folder, "plates.h5")
        with h5py.File(path, "w") as file:
            file.create_dataset(_NAME, data=truth, chunks=(1, 4, 5, 3))
        yield str(path), truth


@contextlib.contextmanager
def _watched() -> Iterator[dict]:
    """How often an HDF5 file is opened, by h5py or past it, and how many rows each read of a dataset gives."""
    seen = {"opens": 0, "rows": []}
    open_low, get, direct = h5py.h5f.open, h5py.Dataset.__getitem__, h5py.Dataset.read_direct
    open_past = os.open

    def watched_open(*args, **kwargs):
        seen["opens"] += 1
        return open_low(*args, **kwargs)

    def watched_open_past(path, *args, **kwargs):  # RowReader reads past HDF5 where it can
        seen["opens"] += str(path).endswith(".h5")
        return open_past(path, *args, **kwargs)

    def watched_get(self, key, *args, **kwargs):
        values = get(self, key, *args, **kwargs)
        seen["rows"].append(len(values) if np.ndim(values) == self.ndim and self.ndim else 1)
        return values

    def watched_direct(self, target, *args, **kwargs):
        seen["rows"].append(len(target))
        return direct(self, target, *args, **kwargs)

    with (
        mock.patch.object(h5py.h5f, "open", watched_open),
        mock.patch("os.open", watched_open_past),
        mock.patch.object(h5py.Dataset, "__getitem__", watched_get),
        mock.patch.object(h5py.Dataset, "read_direct", watched_direct),
    ):
        yield seen


def _read(reader: object, start: int, stop: int) -> object:
    return run(lambda first, last: reader.read(first, last), start, stop, call=f"reader.read({start}, {stop})")


def _reads_right(reader: object, truth: np.ndarray, what: str) -> None:
    for start, stop in ((3, 8), (0, 1), (_ROWS - 4, _ROWS)):
        _are_rows(_read(reader, start, stop), truth, start, stop, what)


def _are_rows(got: object, truth: np.ndarray, start: int, stop: int, what: str) -> None:
    expected = f"{what}({start}, {stop}): rows {start} to {stop - 1}"
    that(not isinstance(got, h5py.Dataset), "wrong type", f"{expected} as an array", "a dataset of the open file")
    try:
        array = np.asarray(got)
    except (TypeError, ValueError):
        raise Wrong("wrong type", f"{expected} as an array", describe(got)) from None
    that(array.dtype.kind in "uif", "wrong type", f"{expected} as an array", describe(got))
    right = array.shape == truth[start:stop].shape and np.array_equal(array, truth[start:stop])
    that(right, "other rows", expected, describe(array) if array.shape != truth[start:stop].shape else "other values")


def _travels(maker, path: str, truth: np.ndarray) -> None:
    """A reader works after a pickle, whether it was used before or not, and after the program changed its folder."""
    file = Path(path)
    with contextlib.chdir(file.parent):
        near = run(maker, file.name, _NAME, call=f'answer("{file.name}", "{_NAME}")')
        used = run(maker, file.name, _NAME, call=f'answer("{file.name}", "{_NAME}")')
        _read(used, 0, 2)
    with tempfile.TemporaryDirectory() as elsewhere, contextlib.chdir(elsewhere):
        for reader, what in ((near, "a new reader"), (used, "a reader that has read")):
            for one in (_sent(reader, what), reader):
                _read_there(one, truth, what)


def _sent(reader: object, what: str) -> object:
    expected = f"{what} goes through a pickle"
    try:
        packet = _pickled(reader)
    except Exception as error:
        raise Wrong("cannot be pickled", expected, _told(error)) from None
    try:
        return pickle.loads(packet)
    except Exception as error:
        that(not _is_not_found(error), "relative path", "the file is found from another folder", type(error).__name__)
        raise Wrong("broken after the journey", expected, _told(error)) from None


def _is_not_found(error: Exception) -> bool:
    return isinstance(error, OSError) and error.errno == errno.ENOENT


def _told(error: BaseException) -> str:
    """An error in one line, without the folder of the file, which is another one each time."""
    return re.sub(r"[^\s'\"]*plates\.h5", "plates.h5", f"{type(error).__name__}: {error}")


def _pickled(reader: object) -> bytes:
    """By name of the class where that goes; else with its code, as classes made in functions need it."""
    try:
        return pickle.dumps(reader)
    except (AttributeError, pickle.PicklingError):
        return cloudpickle.dumps(reader)


class _CodePickler(cloudpickle.Pickler):
    """For the code of an answer: what it keeps open, in a global name or a cache, stays here."""

    def reducer_override(self, thing):
        if isinstance(thing, h5py.HLObject | h5py.h5g.GroupID | h5py.h5d.DatasetID):
            return type(None), ()
        if isinstance(thing, functools._lru_cache_wrapper):
            return _cached_anew, (thing.__wrapped__, thing.cache_parameters()["maxsize"])
        return super().reducer_override(thing)


def _cached_anew(function, most: int | None):
    return functools.lru_cache(most)(function)


def _code_of(maker) -> bytes:
    packet = io.BytesIO()
    _CodePickler(packet).dump(maker)
    return packet.getvalue()


def _read_there(reader: object, truth: np.ndarray, what: str) -> None:
    try:
        got = _read(reader, 5, 9)
    except AnswerRaised as raised:
        error = raised.error
        that(not _is_not_found(error), "relative path", "the file is found from another folder", type(error).__name__)
        raise Wrong("broken after the journey", f"{what}, sent and received, reads", _told(error)) from None
    _are_rows(got, truth, 5, 9, f"{what}, sent and received: read")


def _forks(maker, path: str, truth: np.ndarray) -> None:
    """A forked child opens the file itself, and parent and child read right. Linux only: fork is behind glass there."""
    sent = attempt(lambda: _code_of(maker), "cloudpickle.dumps(answer)")
    outcome = run_in_child(_read_in_a_fork, args=(sent, path), seconds=20, needs="fork")
    if outcome.exit_code is None:  # no Linux
        return
    that(not outcome.timed_out, "did not end", "a forked child that reads, and ends", "nothing within 20 s")
    result = outcome.result or {"error": outcome.last_error_line or f"ended by {outcome.signal}"}
    ended = "parent and child read on after a fork"
    that(result["error"] is None, "fails with a fork", ended, result["error"])
    opens = result["opens"]
    that(opens > 0, "handle shared with the child", "the child opens the file itself", "no open in the child")
    that(opens <= _FEW_OPENS, "opened at each read", "1 open for 4 reads in the child", f"{opens} opens")
    _are_rows(result["child"], truth, 5, 9, "in a forked child: read")
    _are_rows(result["parent"], truth, 6, 8, "in the parent, after that: read")


def _read_in_a_fork(sent: bytes, path: str) -> dict:
    """Runs behind glass: read, fork, read in the child, then read on in the parent."""
    reader = pickle.loads(sent)(path, _NAME)
    with _watched() as seen:
        reader.read(0, 2)
        seen["opens"] = 0
        back, out = os.pipe()
        child = os.fork()
        if child == 0:
            _answer_and_end(reader, seen, out)
        os.close(out)
        with os.fdopen(back, "rb") as pipe:
            told = pipe.read()
        os.waitpid(child, 0)
        result = pickle.loads(told) if told else {"error": "the child died"}
        if result["error"] is None:
            result["parent"] = np.asarray(reader.read(6, 8))
    return result


def _answer_and_end(reader: object, seen: dict, out: int) -> None:
    """In the forked child: tell what two reads gave, and end without what a program does at its end."""
    try:
        for start in (0, 20, 7):
            reader.read(start, start + 3)
        result = {"child": np.asarray(reader.read(5, 9)), "opens": seen["opens"], "error": None}
    except BaseException as error:
        result = {"error": _told(error)}
    with os.fdopen(out, "wb") as pipe:
        pipe.write(pickle.dumps(result))
    os._exit(0)


# --- 04.4 -----------------------------------------------------------------------------------------------------------

_N, _SIZE = 23, 5
_PAIRS = [(0, 0), (0, 1), (1, 0), (1, 1), (0, 11), (11, 0)]  # (seed, epoch)


@task(
    "04.4",
    "Batches and dice for every worker",
    objective=3,
    points=4,
    hints={
        "rows and draws differ in number": "Each row of the batch has one random number, in the same order.",
        "not between 0 and 1": "Draws as `random()` of a generator gives them: from 0 to below 1.",
        "global dice": "NumPy's and Python's own generators have one state for the whole process, and a fork copies "
        "it. Whom does your function ask?",
        "global dice reseeded": "Other code of the process throws those dice, too: after your call its numbers start "
        "anew. Make a generator of your own.",
        "cannot be repeated": "Two equal calls gave different batches. What else than the five arguments does your "
        "function know: a clock, what it did before, a generator without a seed?",
        "depends on the worker": "Another process was asked for the same batch, and made another one. Which worker "
        "gets which batch is chance.",
        "number ignored": "All workers got the same batch. What does the number of a batch stand for?",
        "rows twice": "In one epoch some rows came twice. All batches of an epoch are cut from one order of rows.",
        "rows left over": "In one epoch some rows never came. How long is the last batch?",
        "other batches": "All batches have batch_size rows, but for the last, which has what is left.",
        "not shuffled": "The rows came as they stand in the file.",
        "batches mixed alone": "Rows that stand side by side always came together. What is shuffled: rows or batches?",
        "same order each epoch": "Two epochs had the same batches. Where does `epoch` come in?",
        "seed plus epoch": "(seed, epoch) = (0, 1) and (1, 0) had the same batches. How do the two numbers become one?",
        "seed not used": "Two seeds gave the same batches, or the same draws. Where does `seed` come in?",
        "one draw for all": "All rows of a batch got one number: every image would be changed in the same way.",
        "same draws each epoch": "In two epochs a row got the same number: it would be changed in the same way for "
        "ever.",
        "by place in the batch": "A row got another number when batch_size changed, or two batches got the same ones. "
        "The number of a row is made from what?",
        "depends on n": "A row got another number when n changed. What else did the generator draw before? Or is n in "
        "its seed?",
        "numbers added up": "Two different triples (seed, epoch, row) gave the same number. A sum of them, or their "
        "digits in a row, do not tell them apart.",
        "not spread over 0 to 1": "Thousands of draws should come from all of 0 to 1, each part as often.",
    },
    note="A batch made from its number, and dice made from (seed, epoch, row): whoever makes it makes the same.",
)
def batches_and_dice(answer):
    function = a_function(answer, "number, epoch, seed, n, batch_size")
    for number in (0, 2, 4):
        _batch(function, number, 0, 3)
    yield
    with _dice_put_back():
        _repeatable(function)
    yield
    epochs = {pair: _epoch(function, *pair, _N, _SIZE) for pair in _PAIRS[:4]}
    for pair, batches in epochs.items():
        _rows_of_an_epoch([rows for rows, _ in batches], pair)
    _orders_differ({pair: [rows for rows, _ in batches] for pair, batches in epochs.items()})
    yield
    _draws(function, epochs)
    yield


def _batch(function, number: int, epoch: int, seed: int, n: int = _N, size: int = _SIZE) -> tuple[list, list]:
    """(rows, draws) as lists of Python's numbers."""
    call = f"answer({number}, {epoch}, {seed}, {n}, {size})"
    pair = a_list(run(function, number, epoch, seed, n, size, call=call), f"{call}: a pair (rows, draws)")
    that(len(pair) == 2, "wrong shape", f"{call}: a pair (rows, draws)", f"{len(pair)} things")
    rows = [_row(row, call) for row in a_list(pair[0], f"{call}: rows")]
    draws = [a_number(draw, f"{call}: a draw") for draw in a_list(pair[1], f"{call}: draws")]
    counts = f"{len(rows)} rows and {len(draws)} draws"
    that(len(rows) == len(draws), "rows and draws differ in number", f"{call}: a draw for each row", counts)
    beyond = [f"{draw:.3g}" for draw in draws if not 0 <= draw < 1]
    that(not beyond, "not between 0 and 1", f"{call}: draws from 0 to below 1", ", ".join(beyond[:3]))
    return rows, draws


def _row(row: object, call: str) -> int:
    if isinstance(row, float | np.floating):
        raise Wrong("wrong type", f"{call}: a row as a whole number", f"a float, {float(row)}")
    return a_whole_number(row, f"{call}: a row")


def _repeatable(function) -> None:
    """The same call gives the same, whoever throws the global dice, in whichever process."""
    first, again, other = _after_seeding(function, 0), _batch(function, 2, 0, 3), _after_seeding(function, 1)
    what, differs = "answer(2, 0, 3, 23, 5), called again: the same batch", "another one"
    if not first == again == other:
        asks = _after_seeding(function, 0) == first == _after_seeding(function, 0)
        raise Wrong("global dice" if asks else "cannot be repeated", what, differs)
    elsewhere = os.getpid() + 7
    process = SimpleNamespace(name="ForkPoolWorker-7", _identity=(7,), pid=elsewhere, ident=elsewhere)
    with (
        mock.patch("os.getpid", return_value=elsewhere),
        mock.patch.object(multiprocessing, "current_process", return_value=process),
    ):
        there = _batch(function, 2, 0, 3)
    that(there == first, "depends on the worker", "the same batch from another process", differs)
    backwards = [_batch(function, number, 0, 3) for number in (4, 3, 2, 1, 0)][2]
    that(backwards == first, "cannot be repeated", "the same batch, whatever was asked before", differs)
    random.seed(2)
    np.random.seed(2)  # noqa: NPY002 - another state than a call may have left
    before = _global_dice()
    _batch(function, 2, 0, 3)
    untouched = before == _global_dice()
    that(untouched, "global dice reseeded", "the global generators stay as they are", "they are in another state")


def _after_seeding(function, seed: int) -> tuple[list, list]:
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002 - an answer that asks these dice must show
    return _batch(function, 2, 0, 3)


@contextlib.contextmanager
def _dice_put_back() -> Iterator[None]:
    """The learner's own global generators are afterwards as they were."""
    states = random.getstate(), np.random.get_state()  # noqa: NPY002
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])  # noqa: NPY002


def _global_dice() -> tuple:
    """The state of Python's and of NumPy's global generators."""
    name, key, *rest = np.random.get_state()  # noqa: NPY002 - those dice are asked about
    return random.getstate(), name, key.tobytes(), rest


def _epoch(function, seed: int, epoch: int, n: int, size: int) -> list[tuple[list, list]]:
    return [_batch(function, number, epoch, seed, n, size) for number in range(-(-n // size))]


def _rows_of_an_epoch(batches: list[list[int]], pair: tuple) -> None:
    rows = [row for batch in batches for row in batch]
    what = f"seed {pair[0]}, epoch {pair[1]}, {_N} rows by {_SIZE}"
    that(batches[0] != batches[1], "number ignored", f"{what}: batches 0 and 1 differ", "they are the same")
    that(len(rows) == len(set(rows)), "rows twice", f"{what}: each row once", "some rows twice")
    that(set(rows) <= set(range(_N)), "other batches", f"{what}: rows 0 to {_N - 1}", f"row {max(rows, key=abs)}")
    that(len(rows) == _N, "rows left over", f"{what}: {_N} rows", f"{len(rows)} rows")
    sizes = [len(batch) for batch in batches]
    same(sizes, [5, 5, 5, 5, 3], "other batches", f"{what}: rows in each batch")


def _orders_differ(epochs: dict[tuple, list]) -> None:
    rows = [row for batch in epochs[0, 0] for row in batch]
    that(rows != sorted(rows), "not shuffled", "another order than the file's", "rows 0, 1, 2, ... as they stand")
    close = sum(max(batch) - min(batch) + 1 == len(batch) for batch in epochs[0, 0])
    that(close < 3, "batches mixed alone", "rows from all over the file in a batch", "neighbours")
    that(epochs[0, 0] != epochs[0, 1], "same order each epoch", "other batches in the next epoch", "the same ones")
    that(epochs[0, 0] != epochs[1, 0], "seed not used", "other batches for another seed", "the same ones")
    that(epochs[0, 1] != epochs[1, 0], "seed plus epoch", "other batches for (0, 1) than for (1, 0)", "the same ones")


def _draws(function, epochs: dict[tuple, list]) -> None:
    by_row = {pair: _by_row(batches) for pair, batches in epochs.items()}
    alone = all(len(set(draws)) == 1 for batches in epochs.values() for _, draws in batches)
    that(not alone, "one draw for all", "a number for each row of a batch", "one for all of them")
    firsts = {tuple(draws[:3]) for _, draws in epochs[0, 0]}
    that(len(firsts) == len(epochs[0, 0]), "by place in the batch", "other numbers in each batch", "the same ones")
    that(by_row[0, 0] != by_row[0, 1], "same draws each epoch", "other numbers in the next epoch", "the same ones")
    that(by_row[0, 0] != by_row[1, 0], "seed not used", "other numbers for another seed", "the same ones")
    other_size = _by_row(_epoch(function, 0, 0, _N, 4))
    moved = f"{_N} rows by 4 and by {_SIZE}: each row has its number"
    that(other_size == by_row[0, 0], "by place in the batch", moved, "some rows have another one")
    many = [_by_row(_epoch(function, *pair, 1_200, 400)) for pair in _PAIRS]
    longer = {row: many[0][row] for row in range(_N)}
    kept = f"the same seed and epoch with {_N} and with 1200 rows: each row has its number"
    that(longer == by_row[0, 0], "depends on n", kept, "some rows have another one")
    values = [value for found in many for value in found.values()]
    twice = len(values) - len(set(values))  # float32 numbers meet now and then
    that(
        twice <= len(values) / 200,
        "numbers added up",
        "a number of its own for each (seed, epoch, row)",
        "some numbers twice",
    )
    counts = np.histogram(values, 4, (0, 1))[0] / len(values)
    that(np.all(np.abs(counts - 0.25) < 0.03), "not spread over 0 to 1", "a quarter below 0.25, and so on", "others")


def _by_row(batches: list[tuple[list, list]]) -> dict[int, float]:
    return {row: draw for rows, draws in batches for row, draw in zip(rows, draws, strict=True)}


# --- 04.5 -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _File:
    """A small file, some rows of which nobody has written; ``dark`` rows are black, and have a label."""

    rows: int
    side: int
    classes: int
    image_type: str
    label_type: str
    empty: tuple[int, ...]
    dark: tuple[int, ...]
    batch_size: int
    queue: int


_FILES = [
    _File(90, 8, 5, "uint8", "uint8", (31, 32, *range(80, 90)), (3, 50), 16, 10),
    _File(64, 12, 9, "float32", "float64", (), (7,), 8, 100),
    _File(40, 6, 4, "uint16", "uint8", (0, 39), (1, 38), 4, 3),
]
_KEYS = ("images", "labels", "queue", "empty")


@task(
    "04.5",
    "Before the night",
    objective=5,
    points=4,
    hints={
        "size in the file": "What lies on the disk may be packed, or never written. In memory an array has all its "
        "values, of a fixed number of bytes each.",
        "in MB": "The task asks for bytes.",
        "one byte a value": "Not every file holds uint8. What does the dataset say of its type?",
        "rows forgotten": "That is one image, or one label. How many are there?",
        "labels as they stand": "The labels of the file are not asked for, but those that `np.eye` would make of "
        "them, without a dtype.",
        "one number a label": "A one-hot label has a number for each class, not one.",
        "one batch alone": "How many batches wait in a full queue?",
        "queue of bytes": "The images wait as float32. How many bytes has a value then?",
        "queue of float64": "That is what `/ 255` makes of bytes; here they wait as float32.",
        "queue of all rows": "A batch has batch_size images, not all of them.",
        "another number of bytes": "Values times bytes a value. Which of the two is another one?",
        "whole file in memory": "The images need not be read to know their size, or which rows have a label. Read no "
        "more than batch_size of them at a time.",
        "black images counted": "Some good photographs are black. Which of the two datasets tells written rows from "
        "others?",
        "the end alone": "A writer may leave a gap, too. Look at all rows.",
        "all after the first gap": "After the first empty row others may have been written.",
        "a tuple of one array": "`np.where` gives a tuple with one array: take its `[0]`, or use "
        "`np.flatnonzero(...).tolist()`.",
        "a number, not rows": "Which rows, not how many: a list of their numbers.",
        "other rows": "A written label has a one in it. Which rows have none, counting from 0?",
    },
    note="Memory is values times bytes, known before a byte is read; an empty row is known by its label.",
)
def before_the_night(answer):
    function = a_function(answer, "path, images, labels, batch_size, queue")
    found = [(file, *_looked_at(function, file)) for file in _FILES]
    yield
    for file, got, stored in found:
        values = file.rows * file.side**2 * 3
        size = values * np.dtype(file.image_type).itemsize
        one = size // file.rows
        _bytes(got["images"], size, _what("images", file), {"one byte a value": values, "rows forgotten": one} | stored)
        numbers = file.rows * file.classes
        stands = numbers * np.dtype(file.label_type).itemsize
        mistakes = {
            "labels as they stand": stands,
            "one number a label": 8 * file.rows,
            "rows forgotten": 8 * file.classes,
        }
        _bytes(got["labels"], 8 * numbers, _what("labels", file), mistakes)
    yield
    for file, got, _ in found:
        values = file.side**2 * 3 * file.batch_size
        mistakes = {
            "one batch alone": 4 * values,
            "queue of bytes": values * file.queue,
            "queue of float64": 8 * values * file.queue,
            "queue of all rows": 4 * file.side**2 * 3 * file.rows * file.queue,
        }
        _bytes(got["queue"], 4 * values * file.queue, _what("queue", file), mistakes)
    yield
    for file, got, _ in found:
        what = _what("empty", file)
        listed = a_list(got["empty"], what, _kind_of_list(got["empty"]))
        packed = [one for one in listed if isinstance(one, np.ndarray | list | tuple)]
        of_where = isinstance(got["empty"], list | tuple) and len(listed) == 1 and isinstance(listed[0], np.ndarray)
        that(not of_where, "a tuple of one array", f"{what}: a list of row numbers", "an array inside of another thing")
        that(
            not packed,
            "wrong shape",
            f"{what}: a list of row numbers",
            f"in it: {', '.join(map(describe, packed[:2]))}",
        )
        rows = [a_whole_number(row, f"{what}: a row") for row in listed]
        right = sorted(file.empty)
        gaps = [row for row in right if set(range(row, file.rows)) <= set(right)]
        mistakes = {
            "black images counted": sorted([*file.empty, *file.dark]),
            "the end alone": gaps,
            "all after the first gap": list(range(min(right, default=file.rows), file.rows)),
        }
        is_known_mistake(sorted(rows), mistakes, right, what)
        same(sorted(rows), right, "other rows", what)
    yield


def _what(key: str, file: _File) -> str:
    images = f"images {file.side} x {file.side}"
    of = {
        "images": f"{file.rows} {images} of {file.image_type}",
        "labels": f"{file.rows} labels of {file.classes} classes",
        "queue": f"{file.queue} batches of {file.batch_size} {images}",
        "empty": f"{file.rows} rows",
    }
    return f'"{key}" of {of[key]}'


def _kind_of_list(value: object) -> str:
    return "a number, not rows" if isinstance(value, int | np.integer) else "wrong type"


def _bytes(got: object, right: int, what: str, mistakes: dict[str, int]) -> None:
    number = a_number(got, f"{what}: bytes")
    number = int(number) if number.is_integer() else number  # so that it is printed as a whole number
    given = describe(number)
    smaller = (1e3, 1e6, 1e9, 2.0**10, 2.0**20, 2.0**30)
    that(not any(np.isclose(number, right / part, rtol=0.01) for part in smaller), "in MB", f"{what}: {right}", given)
    is_known_mistake(number, mistakes, right, what)
    that(number == right, "another number of bytes", f"{what}: {right}", given)


def _looked_at(function, file: _File) -> tuple[dict, dict]:
    """What the answer says of a file made new, and what it says who looks at the disk. It may not read many images."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        path = str(Path(folder, "night.h5"))
        stored = {"size in the file": _write(path, file)}
        call = f'answer(path, "pictures", "targets", {file.batch_size}, {file.queue})'
        with _few_at_once("/pictures", file.batch_size):
            try:
                got = run(function, path, "pictures", "targets", file.batch_size, file.queue, call=call)
            except AnswerRaised as raised:
                if isinstance(raised.error, Wrong):
                    raise raised.error from None
                raise
    return a_dict(got, _KEYS, call), stored


@contextlib.contextmanager
def _few_at_once(name: str, most: int) -> Iterator[None]:
    """Reading more than ``most`` rows of one dataset at once ends in Wrong."""
    get, direct = h5py.Dataset.__getitem__, h5py.Dataset.read_direct

    def look(data, values):
        many = data.name == name and np.ndim(values) == data.ndim and len(values) > most
        that(not many, "whole file in memory", f"{most} images at once at most", "more were read")

    def watched_get(self, key, *args, **kwargs):
        values = get(self, key, *args, **kwargs)
        look(self, values)
        return values

    def watched_direct(self, target, *args, **kwargs):
        look(self, target)
        return direct(self, target, *args, **kwargs)

    with (
        mock.patch.object(h5py.Dataset, "__getitem__", watched_get),
        mock.patch.object(h5py.Dataset, "read_direct", watched_direct),
    ):
        yield


def _write(path: str, file: _File) -> int:
    """Make the file; the bytes that its images take on the disk."""
    rng = np.random.default_rng(file.rows)
    written = np.setdiff1d(np.arange(file.rows), file.empty)
    with h5py.File(path, "w") as new:
        shape = (file.rows, file.side, file.side, 3)
        images = new.create_dataset("pictures", shape, file.image_type, chunks=(1, *shape[1:]), compression="gzip")
        labels = new.create_dataset("targets", (file.rows, file.classes), file.label_type)
        for row in written:
            images[row] = 0 if row in file.dark else rng.integers(1, 200, shape[1:])
            labels[row] = np.eye(file.classes)[rng.integers(file.classes)]
        return images.id.get_storage_size()


# --- 04.6 -----------------------------------------------------------------------------------------------------------

_PICKLE = "TypeError: h5py objects cannot be pickled"
_LOCKED = (
    "BlockingIOError: [Errno 11] Unable to synchronously open file (unable to lock file, errno = 11, "
    "error message = 'Resource temporarily unavailable')"
)
_NO_CLASS = "AttributeError: Can't get attribute 'Generator' on <module '__main__' (built-in)>"
_TWO_THREADS = "ValueError: generator already executing"
_NEW = "ZeroDivisionError: division by zero"


def _ended(code: int = 0, error: str = "", *, result: int | None = None, late: bool = False) -> Outcome:
    name = {9: "SIGKILL", 11: "SIGSEGV", 15: "SIGTERM"}.get(-code)
    return Outcome(code, name, error, 100.0, 2.0, error, timed_out=late, result=result)


_ENDS = [  # what it is, steps asked for, the outcome, the right word; wrong words that have a name
    ("a job of 24 steps", 24, _ended(result=24), "fine", {}),
    ("an error", 24, _ended(1, _PICKLE), "A3", {"unknown error": "card not looked up"}),
    ("a lock error", 24, _ended(1, _LOCKED), "B2", {"unknown error": "card not looked up"}),
    ("a job whose time was up", 24, _ended(-9, late=True), "stands still", {"killed": "stopped by us, called killed"}),
    ("a job that the system killed", 24, _ended(-9), "killed", {"stands still": "killed, not waiting"}),
    (
        "a job that a colleague ended",
        24,
        _ended(-15),
        "killed",
        dict.fromkeys(("unknown error", "ran dry", "fine"), "one signal alone"),
    ),
    ("a job that ended after 10 of 24 steps", 24, _ended(result=10), "ran dry", {"fine": "ran dry unnoticed"}),
    ("a job that ended before its first step", 24, _ended(result=0), "ran dry", {"fine": "no step at all"}),
    ("a job that ended after 24 of 70 steps", 70, _ended(result=24), "ran dry", {"fine": "steps of another job"}),
    ("an error without a card", 24, _ended(1, _NEW), "unknown error", {}),
    (
        "exit code 3, no error",
        24,
        _ended(3),
        "unknown error",
        dict.fromkeys(("fine", "ran dry"), "exit code overlooked"),
    ),
    (
        "a thread that died in a job that ended well",
        24,
        _ended(0, _TWO_THREADS, result=24),
        "D7",
        {"fine": "error behind a good end", "unknown error": "card not looked up"},
    ),
    (
        "the same with an error without a card",
        24,
        _ended(0, _NEW, result=24),
        "unknown error",
        {"fine": "error behind a good end"},
    ),
    (
        "workers that died at birth, until the time was up",
        24,
        _ended(-9, _NO_CLASS, late=True),
        "C1",
        dict.fromkeys(("stands still", "killed"), "error behind the waiting"),
    ),
    (
        "a crash in C code",
        24,
        _ended(-11),
        "I3",
        dict.fromkeys(("killed", "unknown error"), "crash without its card"),
    ),
]


@task(
    "04.6",
    "What became of my job?",
    objective=4,
    points=4,
    hints={
        "the whole card": 'A card has a `number`, such as "A3". The text of the card is for people.',
        "card not looked up": "The kit knows this error. Which attribute of the outcome, or which function, finds its "
        "card?",
        "stopped by us, called killed": "Its time was up, and `run_in_child` ended it. Which attribute says so?",
        "killed, not waiting": "Nobody stopped it for being late: its time was not up.",
        "one signal alone": "Any signal counts, not SIGKILL alone: a colleague's `kill` sends SIGTERM.",
        "ran dry unnoticed": "No error, exit code 0, and fewer steps than were asked for. Compare.",
        "no step at all": "0 steps are few, too. What does Python make of 0 in `if`?",
        "exit code overlooked": "Print `outcome` for this one. Did it end well?",
        "error behind a good end": "Exit code 0 and all steps: but something died on the way, and left a line.",
        "error behind the waiting": "It had to be stopped, yes. But it left an error before, and that is the cause.",
        "crash without its card": "A crash in C code leaves no error line. The kit has a card for it all the same: "
        "print the outcome.",
        "steps of another job": "How many steps were asked for is an argument: it is not always the same.",
        "TypeError": "A job that did not get so far has no result. Look at the whole outcome before its result.",
        "another word": "Print such an outcome, and ask your function for each of its attributes in turn.",
    },
    note="First the error, then clock, signal and exit code, last the count of steps: some failures show only there.",
)
def what_became_of_it(answer):
    function = a_function(answer, "outcome, steps")
    found = [(*end, _said(function, end)) for end in _ENDS]
    yield
    for part in (found[:4], found[4:8], found[8:]):
        for what, _, _, right, mistakes, got in part:
            that(got == right, mistakes.get(got, "another word"), f"{what}: what became of it", repr(got))
        yield


def _said(function, end: tuple) -> str:
    what, steps, outcome, *_ = end
    call = f"answer(outcome, {steps}) for {what}"
    got = run(function, outcome, steps, call=call)
    card = outcome.diagnosis
    if card is not None and any(got == one for one in (card, str(card), card.title, card.code)):
        raise Wrong("the whole card", f"{call}: the number of the card", "the card, its title or its code")
    return a_text(got, call).strip()

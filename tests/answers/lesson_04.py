"""Right and wrong answers to the exercises of lesson 04; a wrong one stands under the name of its mistake."""

import functools
import hashlib
import multiprocessing
import os
import random
import sys
import threading
import weakref
from collections import UserDict
from pathlib import Path
from types import SimpleNamespace

import cloudpickle
import h5py
import numpy as np

from helpers import RowReader
from helpers.error_search import explain

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # a child needs no import of this file, as with a notebook

# --- 04.1 and 04.2 --------------------------------------------------------------------------------------------------

SCENES = {1: "a", 2: "b", 3: "b", 4: "d", 5: "c", 6: "a", 7: "a", 8: "a"}
VERDICTS = {"a": "no", "b": "no", "c": "yes", "d": "no", "e": "no", "f": "yes", "g": "yes", "h": "open", "i": "open"}

# --- 04.3 -----------------------------------------------------------------------------------------------------------


class OfLesson:
    """A path, and a handle a process, as in the lesson."""

    def __init__(self, path, name):
        self.path, self.name = Path(path).absolute(), name
        self.data = self.pid = None

    def read(self, start, stop):
        if self.pid != os.getpid():
            self.data, self.pid = h5py.File(self.path, "r")[self.name], os.getpid()
        return self.data[start:stop]

    def __getstate__(self):
        return {**vars(self), "data": None, "pid": None}


class HandleAProcess:
    """A dictionary of handles by process, a lock for threads, and __reduce__; rows row by row."""

    __slots__ = ("__weakref__", "files", "lock", "name", "path")

    def __init__(self, path, name):
        self.path, self.name = Path(path).resolve(), name
        with h5py.File(self.path) as file:
            file[name]
        self.files, self.lock = {}, threading.Lock()

    def __reduce__(self):
        return type(self), (str(self.path), self.name)

    def read(self, first, last):
        with self.lock:
            if os.getpid() not in self.files:
                self.files = {os.getpid(): h5py.File(self.path, "r", driver="stdio")}
            return [self.files[os.getpid()][self.name][row] for row in range(first, last)]


class ForgetsAtFork(OfLesson):
    """Opens in __init__, and lets the system tell it when it is forked."""

    def __init__(self, path, name):
        self.__setstate__({"path": Path(path).absolute(), "name": name})

    def _open(self):
        self.data = h5py.File(self.path)[self.name]

    def read(self, start, stop):
        return self.data[start:stop]

    def __getstate__(self):
        return {"path": self.path, "name": self.name}

    def __setstate__(self, state):
        vars(self).update(state)
        self._open()
        me = weakref.ref(self)
        os.register_at_fork(after_in_child=lambda: me() and me()._open())


@functools.lru_cache
def handle_of(path, name, pid):
    """A dataset, opened once for each process."""
    return h5py.File(path, "r")[name]


class Cached:
    """Handles wait in the cache of a function."""

    def __init__(self, path, name):
        self.where = str(Path(path).absolute()), name

    def read(self, start, stop):
        return handle_of(*self.where, os.getpid())[start:stop]

    def __del__(self):
        handle_of.cache_clear()


HANDLES = {}


class Global(Cached):
    """Handles wait in a dictionary of the module."""

    def read(self, start, stop):
        if os.getpid() not in HANDLES:
            HANDLES.clear()
        if self.where not in HANDLES.get(os.getpid(), {}):
            HANDLES.setdefault(os.getpid(), {})[self.where] = h5py.File(self.where[0], "r")[self.where[1]]
        return HANDLES[os.getpid()][self.where][start:stop]

    def __del__(self):
        HANDLES.get(os.getpid(), {}).pop(self.where, None)


def of_a_factory(path, name):
    """A class inside a function, which keeps what it needs around it."""
    path, kept = os.path.realpath(path), {}

    class Reader:
        def read(self, start, stop):
            if kept.get("pid") != os.getpid():
                kept.update(pid=os.getpid(), file=h5py.File(path, "r"))
            return kept["file"][name][start:stop]

        def __reduce__(self):
            return of_a_factory, (path, name)

    return Reader()


class MadeThere:
    """A RowReader for each process."""

    def __init__(self, path, name):
        self.where, self.pid = (Path(path).absolute(), name), None

    def read(self, start, stop):
        if self.pid != os.getpid():
            self.reader, self.pid = RowReader(*self.where), os.getpid()
        return self.reader.read(range(start, stop))

    def __getstate__(self):
        return {"where": self.where, "pid": None}


class OfTheKit:
    """RowReader, once a process."""

    def __init__(self, path, name):
        self.reader = RowReader(path, name)

    def read(self, start, stop):
        return self.reader.read(np.arange(start, stop))


CLOSES_INHERITED = type(
    "ClosesInherited",
    (OfLesson,),
    {
        "read": lambda self, start, stop: (
            self.data.file.close() if self.data is not None and self.pid != os.getpid() else None,
            OfLesson.read(self, start, stop),
        )[1]
    },
)


class OpensFirst:
    """A handle from the start, and nothing else."""

    def __init__(self, path, name):
        self.path, self.name = Path(path).absolute(), name
        self.data = h5py.File(path, "r")[name]

    def read(self, start, stop):
        return self.data[start:stop]


class TravelsOnly(OpensFirst):
    """The lesson's class of section 8: it opens when it is made, on both sides of the pickle."""

    def __getstate__(self):
        return {"path": self.path, "name": self.name}

    def __setstate__(self, state):
        self.__init__(**state)


class Lazy(OfLesson):
    """Opened at the first read; whoever did it."""

    def read(self, start, stop):
        if self.data is None:
            self.data = h5py.File(self.path, "r")[self.name]
        return self.data[start:stop]


class Locked(Lazy):
    """The article's lock around one handle; it stays at home when the reader is sent."""

    def __init__(self, path, name):
        super().__init__(path, name)
        self.lock = multiprocessing.get_context("spawn").Lock()

    def read(self, start, stop):
        with self.lock:
            return super().read(start, stop)

    def __getstate__(self):
        return {"path": self.path, "name": self.name}

    def __setstate__(self, state):
        self.__init__(**state)


class KeepsLock(OfLesson):
    """A lock that would travel."""

    def __init__(self, path, name):
        super().__init__(path, name)
        self.lock = threading.Lock()


class SendsItsId(OfLesson):
    """The handle stays at home, the process id travels."""

    def __getstate__(self):
        return {**vars(self), "data": None}


class Relative(OfLesson):
    """The path as it came."""

    def __init__(self, path, name):
        super().__init__(path, name)
        self.path = path


class EachTime(OfLesson):
    """Right everywhere, and opens for every read."""

    def read(self, start, stop):
        with h5py.File(self.path, "r") as file:
            return file[self.name][start:stop]


class AllInMemory(OfLesson):
    """No handle at all, after the whole file was read."""

    def read(self, start, stop):
        if self.data is None:
            with h5py.File(self.path, "r") as file:
                self.data = file[self.name][:]
        return self.data[start:stop]


class Guarded(OfLesson):
    """Says that it is in the wrong process, and does nothing about it."""

    def read(self, start, stop):
        if self.pid not in {None, os.getpid()}:
            raise RuntimeError("this reader was opened in another process.")
        return super().read(start, stop)


class ClosedAtOnce:
    """Keeps a dataset, and closes its file."""

    def __init__(self, path, name):
        with h5py.File(path, "r") as file:
            self.data = file[name]

    def read(self, start, stop):
        return self.data[start:stop]


class OneMore(OfLesson):
    """Counts stop as a row."""

    def read(self, start, stop):
        return super().read(start, stop + 1)


class NoArray(OfLesson):
    """A generator of rows."""

    def read(self, start, stop):
        return (super(NoArray, self).read(row, row + 1)[0] for row in range(start, stop))


class Prints(OfLesson):
    """Forgets its return."""

    def read(self, start, stop):
        print(super().read(start, stop).shape)


# --- 04.4 -----------------------------------------------------------------------------------------------------------


def mixed(number, epoch, seed, n, size):
    """Rows of a batch, mixed by seed and epoch."""
    return np.random.default_rng([seed, epoch]).permutation(n)[number * size : (number + 1) * size]


def of_row(epoch, seed, rows):
    """A number for each row."""
    return [np.random.default_rng([seed, epoch, row]).random() for row in rows]


def batch(rows=mixed, draws=of_row):
    """An answer to 04.4 with its rows or draws made in another way."""

    def answer(number, epoch, seed, n, batch_size):
        which = rows(number, epoch, seed, n, batch_size)
        return which, draws(epoch, seed, which)

    return answer


def all_at_once(number, epoch, seed, n, batch_size):
    """Draws for all rows from one generator of its own; arrays, and old dice for the order."""
    order = np.random.RandomState(np.random.SeedSequence((epoch, seed)).generate_state(4)).permutation(n)
    rows = np.array_split(order, range(batch_size, n, batch_size))[number]
    return np.array(rows), np.random.Generator(np.random.Philox([epoch, seed, 7])).random(n)[rows]


def drawn_after_the_order(number, epoch, seed, n, batch_size):
    """One generator for the order and for the draws: where these begin depends on n."""
    rng = np.random.default_rng([seed, epoch])
    rows = rng.permutation(n)[number * batch_size : (number + 1) * batch_size]
    return rows, rng.random(n)[rows]


def with_python(number, epoch, seed, n, batch_size):
    """Python's own dice, seeded with text, and a hash for the numbers."""
    order = list(range(n))
    random.Random(f"{seed}/{epoch}").shuffle(order)
    rows = order[number * batch_size :][:batch_size]

    def draw(row):
        return int.from_bytes(hashlib.sha256(f"{seed},{epoch},{row}".encode()).digest()[:6]) / 2**48

    return [rows, [draw(row) for row in rows]]


def from_spawned_seeds(number, epoch, seed, n, batch_size):
    """A tree of seeds."""
    tree = np.random.SeedSequence(entropy=seed, spawn_key=(epoch,))
    rows = np.random.default_rng(tree).permutation(n)[number * batch_size : (number + 1) * batch_size]
    seeds = [np.random.SeedSequence(entropy=seed, spawn_key=(epoch, int(row))) for row in rows]
    return tuple(rows.tolist()), np.array([np.random.default_rng(one).random() for one in seeds])


def global_rows(number, epoch, seed, n, size):
    """Mixed by whoever's turn it is."""
    return np.random.permutation(n)[:size]  # noqa: NPY002 - the mistake


def seeded_globally(number, epoch, seed, n, batch_size):
    """Repeatable, at the cost of all others."""
    np.random.seed(1_000 * seed + epoch)  # noqa: NPY002
    order = np.random.permutation(n)  # noqa: NPY002
    rows = order[number * batch_size : (number + 1) * batch_size]
    return rows, of_row(epoch, seed, rows)


def a_stream(number, epoch, seed, n, batch_size, state={}):  # noqa: B006 - it remembers
    """The next batch, whichever is asked for."""
    place = state["place"] = state.get("place", -1) + 1
    rows = mixed(place % 5, epoch, seed, n, batch_size)
    return rows, of_row(epoch, seed, rows)


def slices(number, epoch, seed, n, size):
    """Slices of the file, in mixed order; the shorter one comes last."""
    *full, last = [np.arange(start, min(n, start + size)) for start in range(0, n, size)]
    return [*(full[k] for k in np.random.default_rng([seed, epoch]).permutation(len(full))), last][number]


# --- 04.5 -----------------------------------------------------------------------------------------------------------


def looked(
    images=lambda x: x.nbytes,
    labels=lambda y: 8 * y.size,
    queue=lambda x, size, length: 4 * x.size // len(x) * size * length,
    empty=lambda x, y: np.flatnonzero(y.sum(axis=1) == 0),
):
    """An answer to 04.5 with one of its parts found in another way."""

    def answer(path, images_name, labels_name, batch_size, queue_size):
        with h5py.File(path) as file:
            x, y = file[images_name], file[labels_name]
            return {
                "images": images(x),
                "labels": labels(y),
                "queue": queue(x, batch_size, queue_size),
                "empty": empty(x, y[:]),
            }

    return answer


def by_hand(path, images, labels, batch_size, queue):
    """Sizes multiplied out, labels looked at in pieces."""
    with h5py.File(path) as file:
        n, height, width, colours = file[images].shape
        classes, gaps = file[labels].shape[1], set()
        for start in range(0, n, 10):
            gaps |= {start + k for k, label in enumerate(file[labels][start : start + 10]) if max(label) == 0}
        size = file[images].dtype.itemsize * height * width * colours * n
    queue_size = np.float64(height * width * colours * batch_size * queue * 4)
    return UserDict(images=size, labels=n * classes * 8, queue=queue_size, empty=gaps)


def by_trial(path, images, labels, batch_size, queue):
    """Makes one of each, and weighs it; reads batches of images, for no reason."""
    with h5py.File(path) as file:
        one = file[images][0]
        for start in range(0, len(file[images]), batch_size):
            file[images][start : start + batch_size].any(axis=(1, 2, 3))
        truth = file[labels][...]
        label = np.eye(truth.shape[1])[0]
        return {
            "images": one.nbytes * len(truth),
            "labels": label.nbytes * len(truth),
            "queue": one.astype("float32").nbytes * batch_size * queue,
            "empty": [row for row, label in enumerate(truth) if 1 not in label],
            "seconds": 0.1,
        }


def all_black(x, y):
    """Reads the images batch by batch, and takes black for empty."""
    return [row for row in range(len(x)) if not x[row].any()]


def end_alone(x, y):
    """Counts back from the end."""
    row = len(y)
    while row and not y[row - 1].any():
        row -= 1
    return list(range(row, len(y)))


def after_first(x, y):
    """Everything from the first empty row on."""
    gaps = np.flatnonzero(~y.any(axis=1))
    return np.arange(gaps[0], len(y)) if len(gaps) else []


# --- 04.6 -----------------------------------------------------------------------------------------------------------


def judge(**other):
    """An answer to 04.6; ``other`` are its questions, asked in another way."""
    asks = SimpleNamespace(
        card=lambda o: o.diagnosis and o.diagnosis.number,
        late=lambda o: o.timed_out,
        killed=lambda o: o.signal,
        error=lambda o: o.last_error_line or o.exit_code,
        dry=lambda o, steps: o.result < steps,
    )
    vars(asks).update(other)

    def answer(outcome, steps):
        if card := asks.card(outcome):
            return card
        if asks.late(outcome):
            return "stands still"
        if asks.killed(outcome):
            return "killed"
        if asks.error(outcome):
            return "unknown error"
        return "ran dry" if asks.dry(outcome, steps) else "fine"

    return answer


def from_the_end(outcome, steps):
    """From the last question to the first, and with the search."""
    said = "fine" if (outcome.result or 0) == steps else "ran dry"
    if outcome.last_error_line or outcome.exit_code not in (0, None):
        said = "unknown error"
    if outcome.exit_code < 0:
        said = "stands still" if outcome.timed_out else "killed"
    crashed = outcome.signal in ("SIGSEGV", "SIGBUS")
    card = explain("Segmentation fault" if crashed else outcome.last_error_line)
    return said if card is None else card.number


def by_match(outcome, steps):
    """With match."""
    match outcome.diagnosis, outcome.timed_out, outcome.signal, outcome.last_error_line, outcome.exit_code:
        case (card, *_) if card:
            return f"{card.number}"
        case (None, True, *_):
            return "stands still"
        case (None, False, str(), *_):
            return "killed"
        case (None, False, None, "", 0):
            return "ran dry" if steps > outcome.result else "fine"
        case _:
            return "unknown error"


def of_ok(outcome, steps):
    """Believes a good end."""
    return judge()(outcome, steps) if not outcome.ok or outcome.result != steps else "fine"


def clock_first(outcome, steps):
    """Asks the clock before the card."""
    return "stands still" if outcome.timed_out else judge()(outcome, steps)


RIGHT = {
    "04.1": {"as asked": SCENES, "texts, capitals": {str(scene): letter.upper() for scene, letter in SCENES.items()}},
    "04.2": {
        "as asked": VERDICTS,
        "capitals": UserDict({letter.upper(): f" {verdict.title()}" for letter, verdict in VERDICTS.items()}),
        "truths": {letter: {"yes": True, "no": False}.get(verdict, "open") for letter, verdict in VERDICTS.items()},
    },
    "04.3": {
        "as in the lesson": OfLesson,
        "a handle a process": HandleAProcess,
        "told by the system": ForgetsAtFork,
        "closes what it inherits": CLOSES_INHERITED,
        "of the kit": lambda path, name: OfTheKit(path, name),
        "of the kit, made in each process": MadeThere,
        "a cached function": Cached,
        "a dictionary of the module": Global,
        "a factory": of_a_factory,
    },
    "04.4": {
        "as in the lesson": batch(),
        "all at once": all_at_once,
        "in float32": batch(draws=lambda epoch, seed, rows: np.float32(of_row(epoch, seed, rows))),
        "with Python": with_python,
        "a tree of seeds": from_spawned_seeds,
    },
    "04.5": {"as arrays say": looked(), "by hand": by_hand, "by trial": by_trial},
    "04.6": {"in order": judge(), "from the end": from_the_end, "with match": by_match},
}
WRONG = {
    "04.1": {
        "wrong type": list(SCENES.values()),
        "not a letter": {**SCENES, 3: "errno = 11"},
        "readers lock readers": {**SCENES, 1: "b"},
        "a writer beside a reader": {**SCENES, 2: "a"},
        "a reader beside a writer": {**SCENES, 3: "a"},
        "closed by the error": {**SCENES, 4: "a"},
        "taken for another process": {**SCENES, 4: "b"},
        "somebody must hold it": {**SCENES, 5: "b"},
        "asks for a lock all the same": {**SCENES, 6: "c"},
        "writes into the old file": {**SCENES, 7: "b"},
        "locks that nobody asked for": {**SCENES, 8: "b"},
        "another outcome": {**SCENES, 8: "d"},
    },
    "04.2": {
        "wrong type": "no no yes no no yes yes open open",
        "not a verdict": {**VERDICTS, "h": "maybe"},
        "readers lock readers": {**VERDICTS, "a": "yes"},
        "a lock cures a shared handle": {**VERDICTS, "b": "yes"},
        "both read behind a lock": {**VERDICTS, "c": "no"},
        "an inherited handle loses the file": {**VERDICTS, "d": "yes"},
        "opened late is enough": {**VERDICTS, "e": "yes"},
        "harm comes with an error": {**VERDICTS, "f": "no"},
        "a control overlooked": {**VERDICTS, "g": "no"},
        "believed without a crash": {**VERDICTS, "h": "yes"},
        "none seen, so never": {**VERDICTS, "i": "yes"},
        "decided, left open": {**VERDICTS, "d": "open"},
    },
    "04.3": {
        "not a function": {"path": "food.h5"},
        "other arguments": lambda path: OfLesson(path, "train_img"),
        "no method read": lambda path, name: h5py.File(path)[name],
        "forgot to return": Prints,
        "wrong type": NoArray,
        "other rows": OneMore,
        "whole file in memory": AllInMemory,
        "cannot be pickled": OpensFirst,
        "broken after the journey": SendsItsId,
        "relative path": Relative,
        "handle shared with the child": Lazy,
        "fails with a fork": Guarded,
        "RuntimeError": ClosedAtOnce,
        "opened at each read": EachTime,
    },
    "04.4": {
        "not a function": batch()(0, 0, 0, 23, 5),
        "rows and draws differ in number": batch(draws=lambda epoch, seed, rows: of_row(epoch, seed, [*rows, 0])),
        "not between 0 and 1": batch(draws=lambda epoch, seed, rows: 1 + np.array(of_row(epoch, seed, rows))),
        "wrong type": batch(rows=lambda *call: mixed(*call) / 1, draws=lambda epoch, seed, rows: np.zeros(len(rows))),
        "wrong shape": lambda number, epoch, seed, n, size: list(mixed(number, epoch, seed, n, size)),
        "global dice": batch(rows=global_rows),
        "global dice reseeded": seeded_globally,
        "cannot be repeated": batch(draws=lambda epoch, seed, rows: np.random.default_rng().random(len(rows))),
        "depends on the worker": batch(
            draws=lambda epoch, seed, rows: np.random.default_rng([seed, epoch, os.getpid()]).random(len(rows))
        ),
        "number ignored": batch(rows=lambda number, *others: mixed(0, *others)),
        "rows twice": batch(
            rows=lambda number, epoch, seed, n, size: np.random.default_rng([seed, epoch, number]).permutation(n)[:size]
        ),
        "rows left over": batch(
            rows=lambda number, epoch, seed, n, size: mixed(number, epoch, seed, n, size)[: size if number < 4 else 0]
        ),
        "other batches": batch(
            rows=lambda number, epoch, seed, n, size: np.array_split(mixed(0, epoch, seed, n, n), 5)[number]
        ),
        "not shuffled": batch(
            rows=lambda number, epoch, seed, n, size: np.arange(n)[number * size : (number + 1) * size]
        ),
        "batches mixed alone": batch(rows=slices),
        "same order each epoch": batch(rows=lambda number, epoch, *others: mixed(number, 0, *others)),
        "seed plus epoch": batch(rows=lambda number, epoch, seed, *others: mixed(number, epoch + seed, 0, *others)),
        "seed not used": batch(rows=lambda number, epoch, seed, *others: mixed(number, epoch, 0, *others)),
        "one draw for all": batch(draws=lambda epoch, seed, rows: of_row(epoch, seed, rows[:1]) * len(rows)),
        "same draws each epoch": batch(draws=lambda epoch, seed, rows: of_row(0, seed, rows)),
        "by place in the batch": batch(
            draws=lambda epoch, seed, rows: np.random.default_rng([seed, epoch]).random(len(rows))
        ),
        "depends on n": drawn_after_the_order,
        "numbers added up": batch(
            draws=lambda epoch, seed, rows: [np.random.default_rng(seed + epoch + row).random() for row in rows]
        ),
        "not spread over 0 to 1": batch(draws=lambda epoch, seed, rows: np.square(of_row(epoch, seed, rows))),
    },
    "04.5": {
        "wrong type": lambda path, images, labels, batch_size, queue: (12_288_000, 64_000, 15_728_640, []),
        "size in the file": looked(images=lambda x: x.id.get_storage_size()),
        "in MB": looked(images=lambda x: x.nbytes / 2**20),
        "one byte a value": looked(images=lambda x: x.size),
        "rows forgotten": looked(images=lambda x: x[0].nbytes),
        "labels as they stand": looked(labels=lambda y: y.nbytes),
        "one number a label": looked(labels=lambda y: 8 * len(y)),
        "one batch alone": looked(queue=lambda x, size, length: 4 * x.size // len(x) * size),
        "queue of bytes": looked(queue=lambda x, size, length: x.size // len(x) * size * length),
        "queue of float64": looked(queue=lambda x, size, length: 8 * x.size // len(x) * size * length),
        "queue of all rows": looked(queue=lambda x, size, length: 4 * x.size * length),
        "another number of bytes": looked(queue=lambda x, size, length: 4 * x.shape[1] * x.shape[2] * size * length),
        "whole file in memory": looked(images=lambda x: x[:].nbytes),
        "black images counted": looked(empty=all_black),
        "the end alone": looked(empty=end_alone),
        "all after the first gap": looked(empty=after_first),
        "a tuple of one array": looked(empty=lambda x, y: np.where(~y.any(axis=1))),
        "wrong shape": looked(empty=lambda x, y: np.argwhere(~y.any(axis=1)).tolist()),
        "a number, not rows": looked(empty=lambda x, y: (~y.any(axis=1)).sum()),
        "other rows": looked(empty=lambda x, y: np.flatnonzero(~y.any(axis=1)) + 1),
    },
    "04.6": {
        "forgot to return": lambda outcome, steps: print(outcome),
        "wrong type": lambda outcome, steps: outcome.ok and outcome.result >= steps,
        "the whole card": judge(card=lambda o: o.diagnosis),
        "card not looked up": judge(card=lambda o: "I3" if o.signal == "SIGSEGV" else ""),
        "stopped by us, called killed": judge(late=lambda o: False),
        "one signal alone": judge(killed=lambda o: o.signal == "SIGKILL"),
        "killed, not waiting": judge(late=lambda o: o.signal == "SIGKILL"),
        "ran dry unnoticed": judge(dry=lambda o, steps: False),
        "no step at all": judge(dry=lambda o, steps: o.result and o.result < steps),
        "steps of another job": judge(dry=lambda o, steps: o.result < 24),
        "exit code overlooked": judge(error=lambda o: o.last_error_line, dry=lambda o, steps: (o.result or 0) < steps),
        "error behind a good end": of_ok,
        "error behind the waiting": clock_first,
        "crash without its card": judge(card=lambda o: (card := explain(o.last_error_line)) and card.number),
        "another word": judge(error=lambda o: "", dry=lambda o, steps: o.result is None or o.result < steps),
        "TypeError": lambda outcome, steps: "ran dry" if outcome.result < steps else "fine",
    },
}

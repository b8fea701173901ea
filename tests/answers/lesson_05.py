"""Right and wrong answers to the exercises of lesson 05; a wrong one stands under the name of its mistake."""

import collections
import os
import random
import sys
import threading

import cloudpickle
import h5py
import numpy as np

from helpers import EpochOrder, RowReader

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # a child process gets the classes, not this file

# --- 05.1 -----------------------------------------------------------------------------------------------------------

CHOSEN = {
    "a": "threads",
    "b": "threads",
    "c": "processes",
    "d": "processes",
    "e": "block",
    "f": "full",
    "g": "mix first",
    "h": "none",
}

# --- 05.2 -----------------------------------------------------------------------------------------------------------


def with_counters(images, labels, batches):
    """Python's Counter, sets, and a loop over the file."""
    served = [(image.tobytes(), label) for part in batches for image, label in zip(*part, strict=True)]
    count = collections.Counter(key for key, _ in served)
    keys = [image.tobytes() for image in images]
    return {
        "missing": {row for row, key in enumerate(keys) if key not in count},
        "repeated": {row for row, key in enumerate(keys) if count[key] > 1},
        "wrong label": {
            keys.index(key) for key, label in served if key in keys and (label != labels[keys.index(key)]).any()
        },
        "foreign": sum(number for key, number in count.items() if key not in keys),
    }


def by_comparing(images, labels, batches):
    """With NumPy: one table, every picture against every row."""
    pictures = np.concatenate([part for part, _ in batches])
    given = np.concatenate([part for _, part in batches])
    equal = (pictures[:, None] == images[None]).all(axis=(2, 3, 4))
    count, place = equal.sum(axis=0), equal.argmax(axis=1)
    known = equal.any(axis=1)
    other = (given.argmax(axis=1) != labels[place].argmax(axis=1)) & known
    return {
        "missing": np.flatnonzero(count == 0),
        "repeated": np.flatnonzero(count > 1),
        "wrong label": np.unique(place[other]),
        "foreign": np.count_nonzero(~known),
    }


def judged(change):
    """The right judge, with one finding spoilt."""
    return lambda images, labels, batches: with_counters(images, labels, batches) | change(images, labels, batches)


def counted_alone(images, labels, batches):
    """As many pictures as rows: nothing missing."""
    return {"missing": list(range(sum(len(part) for part, _ in batches), len(images)))}


def with_each_copy(images, labels, batches):
    """Lists a row as often as its picture came too often."""
    rows = {image.tobytes(): row for row, image in enumerate(images)}
    served = [rows.get(image.tobytes()) for part, _ in batches for image in part]
    return {"repeated": [row for place, row in enumerate(served) if row is not None and row in served[:place]]}


def by_position(images, labels, batches):
    """Label k of the epoch against label k of the file."""
    rows = {image.tobytes(): row for row, image in enumerate(images)}
    served = [(rows.get(image.tobytes()), label) for part in batches for image, label in zip(*part, strict=True)]
    return {
        "wrong label": sorted({
            row
            for k, (row, label) in enumerate(served[: len(labels)])
            if row is not None and (label != labels[k]).any()
        })
    }


def by_bytes(images, labels, batches):
    """Compares the bytes of a float32 with those of a uint8."""
    rows = {image.tobytes(): row for row, image in enumerate(images)}
    return {
        "wrong label": sorted({
            rows[image.tobytes()]
            for part in batches
            for image, label in zip(*part, strict=True)
            if image.tobytes() in rows and label.tobytes() != labels[rows[image.tobytes()]].tobytes()
        })
    }


def without_foreign(images, labels, batches):
    """Looks up every picture."""
    rows = {image.tobytes(): row for row, image in enumerate(images)}
    return {"missing": sorted(set(rows.values()) - {rows[image.tobytes()] for part, _ in batches for image in part})}


def by_place(images, labels, batches):
    """Takes picture k for row k."""
    served = np.concatenate([part for part, _ in batches])[: len(images)]
    kept = [row for row in range(len(served)) if np.array_equal(served[row], images[row])]
    return {"missing": [row for row in range(len(images)) if row not in kept]}


# --- 05.3 -----------------------------------------------------------------------------------------------------------


def size(shape, dtype):
    """Bytes of a batch."""
    return int(np.prod(shape)) * np.dtype(dtype).itemsize


def in_seconds(shape, dtype, make_s, workers, pipe_bytes_s):
    """Seconds a batch first: the slowest part has the most."""
    send_s = np.zeros(shape, dtype).nbytes / pipe_bytes_s
    seconds = max(send_s, (make_s + send_s) / workers)
    return [1 / seconds, 1 / (make_s / workers)]


def right_speeds(shape, dtype, make_s, workers, pipe):
    """As it is meant."""
    send_s = size(shape, dtype) / pipe
    return np.array([min(workers / (make_s + send_s), 1 / send_s), workers / make_s])


def with_pipe(formula):
    """The right speed of slots, and another one of the pipe."""
    return lambda shape, dtype, make_s, workers, pipe: (
        formula(size(shape, dtype) / pipe, make_s, workers),
        workers / make_s,
    )


def uint8_always(shape, dtype, make_s, workers, pipe):
    """Takes a number for a byte."""
    return right_speeds(shape, "uint8", make_s, workers, pipe)


# --- 05.4 -----------------------------------------------------------------------------------------------------------


def cut(order, batch_size):
    """Batches of an order."""
    return [list(order[start : start + batch_size]) for start in range(0, len(order), batch_size)]


def of_the_kit(n, batch_size, block_rows, open_blocks, seed, epoch):
    """The kit's own order."""
    return EpochOrder(n, batch_size, "block", seed, block_rows=block_rows, open_blocks=open_blocks).batches(epoch)


def with_a_window(n, batch_size, block_rows, open_blocks, seed, epoch):
    """Draws each row from the open blocks, and opens the next block when one is empty; Python's random numbers."""
    rng = random.Random(f"{seed} {epoch}")
    closed = [list(range(n))[start : start + block_rows] for start in range(0, n, block_rows)]
    rng.shuffle(closed)
    opened, order = [], []
    while closed or opened:
        while closed and len(opened) < open_blocks:
            opened.append(closed.pop())
        block = rng.choices(opened, weights=[len(one) for one in opened])[0]
        order.append(block.pop(rng.randrange(len(block))))
        opened = [one for one in opened if one]
    return tuple(tuple(order[start : start + batch_size]) for start in range(0, n, batch_size))


def as_a_generator(n, batch_size, block_rows, open_blocks, seed, epoch):
    """Gives batch after batch."""
    yield from of_the_kit(n, batch_size, block_rows, open_blocks, seed, epoch)


def blocks_by(
    *,
    blocks=True,
    groups=False,
    rows="together",
    source=lambda seed, epoch: np.random.default_rng([seed, epoch]),
    last=True,
    cut_groups=False,
    pad=False,
):
    """A block shuffle with a mistake or two."""

    def order(n, batch_size, block_rows, open_blocks, seed, epoch):
        rng = source(seed, epoch)
        starts = np.arange(0, n if last else max(1, n - n % block_rows), block_rows)
        if blocks:
            starts = rng.permutation(starts)
        parts = [starts[at : at + open_blocks] for at in range(0, len(starts), open_blocks)]
        if groups:
            parts = [parts[place] for place in rng.permutation(len(parts))]
        served = []
        for part in parts:
            opened = [np.arange(start, start + block_rows if pad else min(start + block_rows, n)) for start in part]
            if rows == "together":
                served.append(rng.permutation(np.concatenate(opened)))
            elif rows == "within":
                served.append(np.concatenate([rng.permutation(one) for one in opened]))
            elif rows == "in turns":
                left = [list(one) for one in opened]
                while any(left):
                    block = [one for one in left if one][rng.integers(sum(map(bool, left)))]
                    served.append([block.pop(0)])
            else:
                served.append(np.concatenate(opened))
        if cut_groups:
            return [batch for one in served for batch in cut(one, batch_size)]
        return cut(np.concatenate(served), batch_size)

    return order


def drawn_again(n, batch_size, block_rows, open_blocks, seed, epoch):
    """Each batch draws from the open blocks, also what was drawn before."""
    rng = np.random.default_rng([seed, epoch])
    return [list(rng.integers(0, n, len(part))) for part in cut(range(n), batch_size)]


def all_rows(n, batch_size, block_rows, open_blocks, seed, epoch):
    """A full shuffle."""
    return cut(np.random.default_rng([seed, epoch]).permutation(n), batch_size)


def one_too_many(n, batch_size, block_rows, open_blocks, seed, epoch):
    """Opens the next block when the last row of one is still to come."""
    return with_a_window(n, batch_size, block_rows, open_blocks + 1, seed, epoch)


# --- 05.5 -----------------------------------------------------------------------------------------------------------


class Parts:
    """The solution in small methods, so that mistakes can replace one of them."""

    def __init__(self, paths, batch_size, seed, augment):
        self.paths, self.batch_size, self.seed, self.augment = list(paths), batch_size, seed, augment
        self.files = {}
        labels = []
        for path in paths:
            with h5py.File(path, "r") as file:
                labels.append(file["train_labels"][:])
        self.labels = np.concatenate(labels)
        self.places = [(number, row) for number, part in enumerate(labels) for row in range(len(part))]

    def __len__(self):
        return (len(self.places) + self.batch_size - 1) // self.batch_size

    def order(self, epoch):
        return np.random.default_rng([self.seed, epoch]).permutation(len(self.places))

    def rows(self, epoch, index):
        return self.order(epoch)[index * self.batch_size : (index + 1) * self.batch_size]

    def batch(self, epoch, index):
        rows = self.rows(epoch, index)
        return np.stack([self.image(epoch, int(row)) for row in rows]), self.labels_of(rows)

    def labels_of(self, rows):
        return self.labels[rows]

    def image(self, epoch, row):
        image = self.read(row)
        return image if self.augment is None else self.augment(image, self.chance(epoch, row))

    def read(self, row):
        number, row = self.places[row]
        return self.handle(self.paths[number])["train_img"][row]

    def chance(self, epoch, row):
        return np.random.default_rng([self.seed, epoch, row])

    def handle(self, path):
        if (os.getpid(), path) not in self.files:
            self.files[os.getpid(), path] = h5py.File(path, "r")
        return self.files[os.getpid(), path]

    def __getstate__(self):
        return {**self.__dict__, "files": {}}


class WithReaders:
    """The kit's readers, the rows of a file at once, and one lock for everything."""

    def __init__(self, paths, batch_size, seed, augment):
        self.images = [RowReader(path, "train_img") for path in paths]
        self.targets = [RowReader(path, "train_labels") for path in paths]
        self.ends = np.cumsum([len(reader) for reader in self.images])
        self.batch_size, self.seed, self.augment, self.lock = batch_size, seed, augment, threading.Lock()

    def __len__(self):
        return int(np.ceil(self.ends[-1] / self.batch_size))

    def batch(self, epoch, index):
        with self.lock:
            order = np.argsort(np.random.default_rng([self.seed, epoch]).random(self.ends[-1]))
            rows = order[index * self.batch_size :][: self.batch_size]
            images, labels = {}, {}
            for number, end in enumerate(self.ends):
                start = self.ends[number - 1] if number else 0
                mine = rows[(rows >= start) & (rows < end)]
                images |= dict(zip(mine, self.images[number].read(mine - start), strict=True))
                labels |= dict(zip(mine, self.targets[number].read(mine - start), strict=True))
            if self.augment is not None:
                seeds = {row: np.random.SeedSequence([epoch, int(row), self.seed]) for row in rows}
                images = {row: self.augment(images[row], np.random.default_rng(seeds[row])) for row in rows}
            return np.array([images[row] for row in rows]), np.array([labels[row] for row in rows])

    def __reduce__(self):
        return _with_readers, (self.images, self.targets, self.ends, self.batch_size, self.seed, self.augment)


def _with_readers(images, targets, ends, *rest):
    made = WithReaders.__new__(WithReaders)
    made.images, made.targets, made.ends, made.lock = images, targets, ends, threading.Lock()
    made.batch_size, made.seed, made.augment = rest
    return made


class OfThreads(Parts):
    """A handle for each thread of each process; the order is kept, as it can be made again."""

    def __init__(self, *args):
        super().__init__(*args)
        self.orders = {}
        self.files = threading.local()

    def order(self, epoch):
        if epoch not in self.orders:
            self.orders[epoch] = super().order(epoch)
        return self.orders[epoch]

    def handle(self, path):
        if getattr(self.files, "process", None) != os.getpid():
            self.files.process, self.files.handles = os.getpid(), {}
        if path not in self.files.handles:
            self.files.handles[path] = h5py.File(path, "r")
        return self.files.handles[path]

    def __getstate__(self):
        return {name: value for name, value in self.__dict__.items() if name != "files"}

    def __setstate__(self, state):
        self.__dict__.update(state)
        self.files = threading.local()


class ByPath(Parts):
    """One handle a file, whichever process reads."""

    def handle(self, path):
        if path not in self.files:
            self.files[path] = h5py.File(path, "r")
        return self.files[path]


class WithHandle(Parts):
    """Keeps the rules but for pickles."""

    __getstate__ = object.__getstate__


class ByProcess(Parts):
    """A handle a process, as in the sketch of the lesson, for several files."""

    def handle(self, path):
        if os.getpid() not in self.files:
            self.files[os.getpid()] = h5py.File(path, "r")
        return self.files[os.getpid()]

    def read(self, row):
        images = self.handle(self.paths[0])["train_img"]
        return images[self.places[row][1] % len(images)]


class OpensEachTime(Parts):
    """A handle for each image."""

    def read(self, row):
        number, row = self.places[row]
        with h5py.File(self.paths[number], "r") as file:
            return file["train_img"][row]


class InMemory(Parts):
    """Reads everything when it is made."""

    def __init__(self, *args):
        super().__init__(*args)
        self.all = [self.handle(path)["train_img"][:] for path in self.paths]

    def read(self, row):
        number, row = self.places[row]
        return self.all[number][row]


class FullBatches(Parts):
    """Rounds down, as published code does."""

    def __len__(self):
        return int(np.floor(len(self.places) / self.batch_size))


class HalfEmpty(Parts):
    """Has a batch more than there are full ones, and leaves out rows of it."""

    def batch(self, epoch, index):
        images, labels = super().batch(epoch, index)
        full = len(images) == self.batch_size
        return (images, labels) if full else (images[:-1], labels[:-1])


class Repeats(Parts):
    """Draws rows with replacement."""

    def order(self, epoch):
        return np.random.default_rng([self.seed, epoch]).integers(0, len(self.places), len(self.places))


class Scales(Parts):
    """Divides by 255."""

    def batch(self, epoch, index):
        images, labels = super().batch(epoch, index)
        return images / 255, labels


class SortsImages(Parts):
    """Sorts the rows for HDF5, and forgets the labels."""

    def batch(self, epoch, index):
        rows = self.rows(epoch, index)
        return np.stack([self.image(epoch, int(row)) for row in np.sort(rows)]), self.labels_of(rows)


class Unshuffled(Parts):
    """The order of the files."""

    def order(self, epoch):
        return np.arange(len(self.places))


class FileByFile(Parts):
    """Mixes the rows of each file, and then the files."""

    def order(self, epoch):
        rng, numbers = np.random.default_rng([self.seed, epoch]), np.array([number for number, _ in self.places])
        parts = [rng.permutation(np.flatnonzero(numbers == number)) for number in rng.permutation(max(numbers) + 1)]
        return np.concatenate(parts)


class OneOrder(Parts):
    """Mixes once."""

    def order(self, epoch):
        return super().order(0)


class GlobalDice(Parts):
    """The dice of everybody, thrown when an epoch begins."""

    def __init__(self, *args):
        super().__init__(*args)
        np.random.seed(self.seed)  # noqa: NPY002 - the mistake
        self.now = None

    def rows(self, epoch, index):
        if self.now != epoch:
            self.kept, self.now = np.random.permutation(len(self.places)), epoch  # noqa: NPY002 - the mistake
        return self.kept[index * self.batch_size : (index + 1) * self.batch_size]


class Counter(Parts):
    """Walks on, whatever number is asked for."""

    def __init__(self, *args):
        super().__init__(*args)
        self.k = 0

    def rows(self, epoch, index):
        self.k, k = self.k + 1, self.k % len(self)
        return super().rows((self.k - 1) // len(self), k)


class NoSeed(Parts):
    """The epoch alone."""

    def order(self, epoch):
        return np.random.default_rng(epoch).permutation(len(self.places))


class Adds(Parts):
    """The order of a sum."""

    def order(self, epoch):
        return np.random.default_rng(self.seed + epoch).permutation(len(self.places))


class NotAugmented(Parts):
    """Forgets the augmentation."""

    def image(self, epoch, row):
        return self.read(row)


def chance(make):
    """The class with another random source for a row."""
    return type("Chance", (Parts,), {"chance": lambda self, epoch, row: make(self, epoch, row)})


class KeepsRows(Parts):
    """Keeps the rows of the batch in self."""

    def batch(self, epoch, index):
        self.now = self.rows(epoch, index)
        images = np.stack([self.image(epoch, int(row)) for row in self.now])
        return images, self.labels_of(self.now)


class AtHome(Parts):
    """Works only in the process that made it."""

    def __init__(self, *args):
        super().__init__(*args)
        self.home = os.getpid()

    def handle(self, path):
        if os.getpid() != self.home:
            raise RuntimeError("I live in another process.")
        return super().handle(path)


class OneRowTooFew(Parts):
    """Gives as many labels as a full batch has, whatever there is."""

    def labels_of(self, rows):
        return self.labels[np.resize(rows, self.batch_size + 1)]


# --- 05.6 -----------------------------------------------------------------------------------------------------------


def mixed(n, seed):
    """All rows, mixed by the seed."""
    return np.random.default_rng(seed).permutation(n)


def at_80(rows, n):
    """Four fifths, and the rest."""
    return rows[: n * 8 // 10], rows[n * 8 // 10 :]


def by_generator(fit_generator, model, train, valid):
    """The classic call."""
    fit_generator(model, train, steps_per_epoch=5, epochs=4, validation_data=valid, verbose=0)


def all_names(images, labels, classes):
    """What a foreign file needs."""
    return {"images": images, "labels": labels, "classes": classes}


def trains(split=mixed, shares=at_80, names=all_names, how=by_generator, valid_shuffle=None, **options):
    """An answer with two sequences and a training; each part can be replaced."""

    def answer(model, path, images, labels, classes, seed):
        from helpers import HDF5Sequence, fit_generator

        with h5py.File(path, "r") as file:
            n = file[labels].shape[0]
        one, other = shares(split(n, seed), n)
        common = {"batch_size": 4, "seed": seed} | names(images, labels, classes) | options
        train = HDF5Sequence(path, rows=one, **common)
        valid = HDF5Sequence(path, rows=other, **common | {"shuffle": valid_shuffle})
        how(fit_generator, model, train, valid)
        return train, valid

    return answer


def sorted_valid(rows, n):
    """The rest in the order of the file."""
    chosen = np.isin(np.arange(n), rows[: n * 8 // 10])
    return list(np.flatnonzero(chosen)), np.flatnonzero(~chosen).tolist()


def as_masks(rows, n):
    """True and False instead of row numbers."""
    return np.isin(np.arange(n), rows[: n * 8 // 10]), np.isin(np.arange(n), rows[n * 8 // 10 :])


def with_python(n, seed):
    """Python's own random numbers."""
    rows = list(range(n))
    random.Random(seed).shuffle(rows)
    return rows


def with_workers(fit_generator, model, train, valid):
    """Two threads, and other names for nothing."""
    fit_generator(model, train, 5, 4, 0, None, valid, workers=2, max_queue_size=2)


def epoch_by_epoch(fit_generator, model, train, valid):
    """Four calls: the position of the sequence is heard."""
    for _ in range(4):
        fit_generator(model, train, steps_per_epoch=5, validation_data=valid, verbose=0)


def by_fit(fit_generator, model, train, valid):
    """What Keras itself offers."""
    model.fit(train, steps_per_epoch=5, epochs=4, validation_data=valid, verbose=0)


def steps(**changed):
    """The classic call with other arguments."""
    wanted = {"steps_per_epoch": 5, "epochs": 4, "verbose": 0}
    return lambda fit, model, train, valid: fit(model, train, **wanted | {"validation_data": valid} | changed)


def on_training_rows(fit_generator, model, train, valid):
    """Examines what was learned."""
    from helpers import HDF5Sequence

    info = train.split_info
    rows = train.rows_of(0, 0)
    same_rows = HDF5Sequence(info.path, images=info.images, labels=info.labels, classes=4, rows=rows, batch_size=4)
    fit_generator(model, train, steps_per_epoch=5, epochs=4, validation_data=same_rows, verbose=0)


def of_keras(model, path, images, labels, classes, seed):
    """A dataset of Keras' own around the arrays."""
    import keras

    with h5py.File(path, "r") as file:
        pixels, numbers = file[images][:], keras.utils.to_categorical(file[labels][:], classes)
    model.fit(pixels, numbers, batch_size=4, epochs=4, verbose=0)
    return pixels, numbers


def its_own_copy(model, path, images, labels, classes, seed):
    """Writes the names that the kit expects into the file, and forgets the given ones."""
    from helpers import HDF5Sequence

    with h5py.File(path, "a") as file:
        if "train_img" not in file:
            file["train_img"], file["train_labels"] = file[images][:], file[labels][:]
    return [HDF5Sequence(path, "train", 4, classes=classes, rows=[0, 1]) for _ in range(2)]


def without_return(model, path, images, labels, classes, seed):
    """Trains, and keeps the sequences to itself."""
    trains()(model, path, images, labels, classes, seed)


RIGHT = {
    "05.1": {
        "in small letters": CHOSEN,
        "with capitals": {key: value.title() for key, value in CHOSEN.items()},
        "None as the kit has it": CHOSEN | {"h": None},
    },
    "05.2": {"with Counter": with_counters, "by comparing": by_comparing},
    "05.3": {"in seconds": in_seconds, "an array": right_speeds},
    "05.4": {"of the kit": of_the_kit, "with a window": with_a_window, "a generator": as_a_generator},
    "05.5": {"small methods": Parts, "the kit's readers and a lock": WithReaders, "handles of threads": OfThreads},
    "05.6": {
        "the classic call": trains(),
        "file order, threads": trains(split=with_python, shares=sorted_valid, how=with_workers),
        "epoch by epoch": trains(how=epoch_by_epoch),
    },
}
WRONG = {
    "05.1": {
        "wrong type": ["threads"] * 8,
        "unknown word": CHOSEN | {"h": "no shuffle"},
        "processes for OpenCV": CHOSEN | {"a": "processes"},
        "processes for gzip": CHOSEN | {"b": "processes"},
        "threads for Python code": CHOSEN | {"c": "threads"},
        "threads for a filter of HDF5": CHOSEN | {"d": "threads"},
        "full shuffle on a slow disk": CHOSEN | {"e": "full"},
        "block shuffle without need": CHOSEN | {"f": "block"},
        "block shuffle of a sorted file": CHOSEN | {"g": "block"},
        "shuffled validation": CHOSEN | {"h": "full"},
        "another choice": CHOSEN | {"f": "none"},
    },
    "05.2": {
        "wrong type": lambda images, labels, batches: len(batches) == len(images),
        "forgot to return": lambda images, labels, batches: print(len(batches)),
        "missing not seen": judged(counted_alone),
        "repeated not seen": judged(lambda *_: {"repeated": []}),
        "listed twice": judged(with_each_copy),
        "called missing or repeated": judged(by_place),
        "foreign not seen": judged(lambda *_: {"foreign": 0}),
        "wrong label not seen": judged(lambda *_: {"wrong label": []}),
        "labels compared by position": judged(by_position),
        "right label accused": judged(by_bytes),
        "KeyError": judged(without_foreign),
        "ValueError": judged(lambda images, labels, batches: {"foreign": len(np.stack([part for part, _ in batches]))}),
    },
    "05.3": {
        "wrong shape": lambda shape, dtype, make_s, workers, pipe: [1.0],
        "the two swapped": lambda *case: right_speeds(*case)[::-1],
        "seconds, not speed": lambda *case: 1 / right_speeds(*case),
        "images a second": lambda *case: case[0][0] * right_speeds(*case),
        "one worker alone": lambda shape, dtype, make_s, workers, pipe: (1 / make_s, 1 / make_s),
        "not the slots' speed": lambda shape, dtype, make_s, workers, pipe: (1.0, workers * make_s),
        "one byte a number": uint8_always,
        "pipe for nothing": with_pipe(lambda _, make_s, workers: workers / make_s),
        "receiver forgotten": with_pipe(lambda send_s, make_s, workers: workers / (make_s + send_s)),
        "only the receiver": with_pipe(lambda send_s, make_s, workers: 1 / send_s),
        "sends while it makes": with_pipe(lambda send_s, make_s, workers: min(workers / make_s, 1 / send_s)),
        "batch after batch": with_pipe(lambda send_s, make_s, workers: 1 / (make_s / workers + send_s)),
        "not the pipe's speed": with_pipe(lambda send_s, make_s, workers: send_s),
    },
    "05.4": {
        "rows that do not exist": blocks_by(pad=True),
        "rows twice": drawn_again,
        "rows left out": blocks_by(last=False),
        "short batch in the middle": blocks_by(cut_groups=True),
        "too many blocks open": all_rows,
        "one block at a time": blocks_by(rows="within"),
        "blocks in the order of the file": blocks_by(blocks=False),
        "neighbours open together": blocks_by(blocks=False, groups=True),
        "rows of a block in order": blocks_by(rows="in turns"),
        "same order each epoch": blocks_by(source=lambda seed, _: np.random.default_rng(seed)),
        "seed not used": blocks_by(source=lambda _, epoch: np.random.default_rng(epoch)),
        "seed and epoch added": blocks_by(source=lambda seed, epoch: np.random.default_rng(seed + epoch)),
        "cannot be repeated": blocks_by(source=lambda *_: np.random.default_rng()),
    },
    "05.5": {
        "no batch by number": lambda paths, batch_size, seed, augment: iter([]),
        "not an image for each row": OneRowTooFew,
        "the wrong file": ByProcess,
        "last batch dropped": FullBatches,
        "rows twice": Repeats,
        "pixels changed": Scales,
        "labels do not fit": SortsImages,
        "never shuffled": Unshuffled,
        "files one after the other": FileByFile,
        "same order each epoch": OneOrder,
        "depends on other calls": GlobalDice,
        "seed not used": NoSeed,
        "numbers added up": Adds,
        "augment not called": NotAugmented,
        "another random source": chance(lambda self, epoch, row: np.random),
        "chance left to others": chance(lambda self, epoch, row: np.random.default_rng()),
        "same chance for each row": chance(lambda self, epoch, row: np.random.default_rng([self.seed, epoch])),
        "same chance each epoch": chance(lambda self, epoch, row: np.random.default_rng([self.seed, row])),
        "chance without the seed": chance(lambda self, epoch, row: np.random.default_rng([epoch, row])),
        "chance by the batch": chance(
            lambda self, epoch, row: np.random.default_rng([
                self.seed,
                epoch,
                self.order(epoch).tolist().index(row),
                self.batch_size,
            ])
        ),
        "threads disturb each other": KeepsRows,
        "handle in the pickle": WithHandle,
        "whole file in memory": InMemory,
        "fails in a fresh process": AtHome,
        "the parent's handle": ByPath,
        "opened for each batch": OpensEachTime,
    },
    "05.6": {
        "not an HDF5Sequence": of_keras,
        "forgot to return": without_return,
        "other datasets": its_own_copy,
        "row in both parts": trains(shares=lambda rows, n: (rows[: n * 8 // 10], rows)),
        "row in no part": trains(shares=lambda rows, n: (rows[: n * 8 // 10], rows[n * 9 // 10 :])),
        "wrong shares": trains(shares=lambda rows, n: (rows[: n * 9 // 10], rows[n * 9 // 10 :])),
        "split in file order": trains(split=lambda n, _: np.arange(n)),
        "seed not used": trains(split=lambda n, _: mixed(n, 0)),
        "another split each time": trains(split=lambda n, _: np.random.default_rng().permutation(n)),
        "wrong batch size": trains(batch_size=32),
        "training not shuffled": trains(shuffle=None),
        "validation shuffled": trains(valid_shuffle="auto"),
        "pictures changed": trains(augment=lambda image, _: image[::-1]),
        "not trained": trains(how=lambda *_: None),
        "other steps": trains(how=steps(steps_per_epoch=None)),
        "rows never met": trains(how=by_fit),
        "not validated": trains(how=steps(validation_data=None)),
        "validated on training rows": trains(how=on_training_rows),
        "LayoutError": trains(names=lambda images, labels, classes: {"images": images, "labels": labels}),
        "DatasetNotFoundError": trains(names=lambda images, labels, classes: {"classes": classes}),
        "TypeError": trains(shares=as_masks),
        "ValueError": trains(label_kind="sparse"),
    },
}

"""Right and wrong answers to the exercises of lesson 03; a wrong one stands under the name of its mistake."""

import math
import os
import random
from pathlib import Path

import cv2
import h5py
import numpy as np

from helpers.images import decode_jpeg

# --- 03.2 -----------------------------------------------------------------------------------------------------------


def by_counting(n, batch_size):
    """Without any arithmetic: count the pieces."""
    starts = range(0, n, batch_size)
    full = [start for start in starts if start + batch_size <= n]
    return len(starts), (full[-1] + batch_size) % n


def with_divmod(n, batch_size):
    """NumPy's numbers, in an array."""
    full, rest = np.divmod(np.int64(n), batch_size)
    return np.array([full + (rest > 0), full * batch_size if rest else 0])


# --- 03.3 -----------------------------------------------------------------------------------------------------------


def plates(
    path_of=str,
    flip=True,
    dtype=None,
    scale=None,
    label_of=None,
    pairs=True,
    passes=None,
    drop=False,
    shuffle="each",
    dice="own",
    sort=True,
    align=True,
    key=None,
):
    """A directory generator; each argument is a way to get one thing wrong."""

    def directory_batches(folder, labels, batch_size, seed):
        rng = _dice(dice, seed)
        files = sorted(folder.iterdir()) if sort else list(folder.iterdir())
        kinds = [labels[key(file) if key else file.name] for file in files]
        done = 0
        while passes is None or done < passes:
            if shuffle == "each" or (shuffle == "once" and not done) or (shuffle == "later" and done):
                order = rng.sample(range(len(files)), len(files))
                files = [files[place] for place in order]
                kinds = [kinds[place] for place in order] if align else kinds
            done += 1
            stop = len(files) // batch_size * batch_size if drop else len(files)
            for start in range(0, stop, batch_size):
                images = [cv2.imread(path_of(file)) for file in files[start : start + batch_size]]
                images = np.stack([image[..., ::-1] for image in images] if flip else images)
                images = images if dtype is None else ((images.astype(dtype) - 128) / 128).astype(dtype)
                images = images if scale is None else (images / scale).astype(np.uint8)
                yield (images, np.array(kinds[start : start + batch_size])) if pairs else images

    return directory_batches


def _dice(kind, seed):
    if kind == "shared":
        random.seed(seed)
        return random
    return random.Random({"own": seed, "none": None, "fixed": 1}[kind])


def without_end(folder, labels, batch_size, seed):
    """The well-known one with paths, labels, bytes and colours mended, but not its passes."""
    names, place, rng = sorted(labels), 0, random.Random(seed)
    rng.shuffle(names)
    while True:
        images, kinds = [], []
        for _ in range(batch_size):
            if place == len(names):
                place = 0
                rng.shuffle(names)
            images.append(cv2.imread(str(folder / names[place]))[..., ::-1])
            kinds.append(labels[names[place]])
            place += 1
        yield np.array(images), np.array(kinds)


def drawn_with_repeats(folder, labels, batch_size, seed):
    """Draws each batch on its own: some files come twice."""
    rng, names = np.random.default_rng(seed), sorted(labels)
    while True:
        for size in (4, 4, 3):
            part = [names[row] for row in rng.integers(len(names), size=size)]
            yield np.stack([cv2.imread(str(folder / n))[..., ::-1] for n in part]), np.array([labels[n] for n in part])


def all_in_memory(folder, labels, batch_size, seed):
    """Reads the whole folder first."""
    rng, files = np.random.default_rng(seed), sorted(folder.iterdir())
    images = np.stack([cv2.imread(str(file))[..., ::-1] for file in files])
    kinds = np.array([labels[file.name] for file in files])
    while True:
        order = rng.permutation(len(files))
        for start in range(0, len(files), batch_size):
            yield images[order[start : start + batch_size]], kinds[order[start : start + batch_size]]


class Plates:
    """An iterator of its own class, with Keras-free decoding and lists of labels."""

    def __init__(self, folder, labels, batch_size, seed):
        self.folder, self.labels, self.size, self.rng = folder, labels, batch_size, random.Random(seed)
        self.waiting = []

    def __iter__(self):
        return self

    def __next__(self):
        if not self.waiting:
            self.waiting = sorted(os.listdir(self.folder))  # noqa: PTH208 - as the well-known answer lists it
            self.rng.shuffle(self.waiting)
        part, self.waiting = self.waiting[: self.size], self.waiting[self.size :]
        return [
            np.array([decode_jpeg(Path(self.folder, name).read_bytes()) for name in part]),
            [self.labels[name] for name in part],
        ]


def with_pillow(folder, labels, batch_size, seed):
    """Pillow decodes, a permutation a pass from (seed, number of the pass)."""
    from itertools import count

    from PIL import Image

    names = sorted(labels)
    for number in count():
        order = np.random.default_rng([seed, number]).permutation(names)
        for part in np.split(order, range(batch_size, len(names), batch_size)):
            yield np.stack([np.asarray(Image.open(folder / n)) for n in part]), np.array([labels[n] for n in part])


# --- 03.4 -----------------------------------------------------------------------------------------------------------


def callbacks(file="best.keras", best=None, stop=None):
    """The two callbacks; ``best`` and ``stop`` change their arguments, None for ``stop`` leaves it out."""

    def both(folder, patience):
        import keras

        saving = {"monitor": "val_accuracy", "save_best_only": True} | (best or {})
        stopping = {"monitor": "val_loss", "patience": patience} | ({} if stop is None else stop(patience))
        return [
            keras.callbacks.ModelCheckpoint(str(folder / file), **saving),
            keras.callbacks.EarlyStopping(**stopping),
        ]

    return both


def written_by_hand(folder, patience):
    """One callback of our own does both."""
    import keras

    class Keeper(keras.callbacks.Callback):
        best, lowest, waited = -1.0, math.inf, 0

        def on_epoch_end(self, epoch, logs=None):
            if logs["val_accuracy"] > self.best:
                self.best = logs["val_accuracy"]
                self.model.save(folder / "best.keras")
            self.waited = 0 if logs["val_loss"] < self.lowest else self.waited + 1
            self.lowest = min(self.lowest, logs["val_loss"])
            self.model.stop_training = self.waited >= patience

    return (Keeper(),)


def saved_at_the_start(folder, patience):
    """Writes the model before it is trained."""
    import keras

    class AtTheStart(keras.callbacks.Callback):
        def on_train_begin(self, logs=None):
            self.model.save(folder / "best.keras")

    return [AtTheStart(), keras.callbacks.EarlyStopping(patience=patience)]


def only(kind):
    """One callback instead of two."""

    def one(folder, patience):
        import keras

        if kind == "EarlyStopping":
            return [keras.callbacks.EarlyStopping(patience=patience)]
        return [keras.callbacks.ModelCheckpoint(folder / "best.keras", monitor="val_accuracy", save_best_only=True)]

    return one


# --- 03.5 -----------------------------------------------------------------------------------------------------------

POOL = ("workers", "use_multiprocessing", "max_queue_size")


def translated(name="x", pool=POOL, keep=True, queue=None, extra=None, other=None):
    """The two dictionaries; each argument is a way to get one thing wrong."""

    def split(old, batch_bytes, memory_bytes):
        for_fit = {name: old["generator"]}
        for_dataset = dict(extra or {})
        for key, value in old.items():
            if key in pool:
                for_dataset[key] = (other or {}).get(key, value)
            elif key != "generator" and (keep or key in {"epochs", "steps_per_epoch", "verbose", *POOL}):
                for_fit[key] = value
        if "max_queue_size" in for_dataset:
            fits = queue or (lambda old, fits: min(old, max(1, int(fits))))
            for_dataset["max_queue_size"] = fits(for_dataset["max_queue_size"], memory_bytes / batch_bytes)
        return for_fit, for_dataset

    return split


def by_popping(old, batch_bytes, memory_bytes):
    """Takes a copy apart; gives a list, and NumPy's number."""
    fit = dict(old)
    dataset = {key: fit.pop(key) for key in POOL if key in fit}
    fit = {"x": fit.pop("generator"), **fit}
    if (size := dataset.get("max_queue_size")) is not None:
        dataset["max_queue_size"] = np.clip(memory_bytes // batch_bytes, 1, size)
    return [fit, dataset]


def popping_the_original(old, batch_bytes, memory_bytes):
    """Takes the caller's dictionary apart."""
    dataset = {key: old.pop(key) for key in POOL if key in old}
    return {"x": old.pop("generator"), **old}, dataset


# --- 03.6 -----------------------------------------------------------------------------------------------------------


class Rows:
    """A dataset without Keras; subclasses get one thing wrong."""

    def __init__(self, path, images, labels, rows, batch_size, shuffle, seed):
        self.path, self.names, self.size = path, (images, labels), batch_size
        self.given, self.shuffle, self.seed, self.epoch = np.array(rows), shuffle, seed, 0

    def __len__(self):
        return math.ceil(len(self.given) / self.size)

    def order(self):
        rng = np.random.default_rng((self.seed, self.epoch))
        return rng.permutation(self.given) if self.shuffle else self.given

    def part(self, k):
        return self.order()[k * self.size : (k + 1) * self.size]

    def read(self, rows):
        with h5py.File(self.path) as file:
            return tuple(np.stack([file[name][row] for row in rows]) for name in self.names)

    def __getitem__(self, k):
        return self.read(self.part(k))

    def on_epoch_end(self):
        self.epoch += 1


class ListIndexUndone(Rows):
    """A sorted list index, put back into order; keeps the file open."""

    def read(self, rows):
        file = h5py.File(self.path)
        into_file = np.argsort(rows)
        back = np.argsort(into_file)
        return [file[name][rows[into_file]][back] for name in self.names]


class SortedWhenShuffled(Rows):
    """Inside a shuffled batch the order does not matter: there it is that of the file."""

    def part(self, k):
        return np.sort(super().part(k)) if self.shuffle else super().part(k)


class OwnDice(Rows):
    """Shuffles a copy in place, once an epoch, with dice of its own."""

    def __init__(self, *args):
        super().__init__(*args)
        self.rng, self.now = np.random.default_rng(self.seed), self.given.copy()
        self.shuffle and self.rng.shuffle(self.now)

    def order(self):
        return self.now

    def on_epoch_end(self):
        self.shuffle and self.rng.shuffle(self.now)


def of_keras(path, images, labels, rows, batch_size, shuffle, seed):
    """A PyDataset, made by a function."""
    import keras

    class OfKeras(keras.utils.PyDataset, Rows):
        def __init__(self, *args):
            super().__init__()
            Rows.__init__(self, *args)

        __len__, __getitem__, on_epoch_end = Rows.__len__, Rows.__getitem__, Rows.on_epoch_end

    return OfKeras(path, images, labels, rows, batch_size, shuffle, seed)


def of_the_kit(path, images, labels, rows, batch_size, shuffle, seed):
    """What the kit has ready."""
    from helpers import HDF5Sequence

    order = "full" if shuffle else None
    return HDF5Sequence(path, images=images, labels=labels, rows=rows, batch_size=batch_size, shuffle=order, seed=seed)


def a_generator(path, images, labels, rows, batch_size, shuffle, seed):
    """Batches one after the other."""
    with h5py.File(path) as file:
        while True:
            for start in range(0, len(rows), batch_size):
                part = np.sort(rows[start : start + batch_size])
                yield file[images][part], file[labels][part]


class FloatLength(Rows):
    """As a well-known class has it."""

    def __len__(self):
        return np.floor(len(self.given) / self.size)


class FullBatchesOnly(Rows):
    """Rounded down."""

    def __len__(self):
        return len(self.given) // self.size


class OneMore(Rows):
    """Always one more."""

    def __len__(self):
        return len(self.given) // self.size + 1


class ImagesOnly(Rows):
    """No labels."""

    def __getitem__(self, k):
        return super().__getitem__(k)[0]


class RowsOfTheFile(Rows):
    """Takes the number of the batch for rows of the file."""

    def part(self, k):
        return np.arange(k * self.size, min(len(self.given), (k + 1) * self.size))


class FilledUp(Rows):
    """The last batch is filled up with rows from the start."""

    def part(self, k):
        return np.take(self.order(), np.arange(k * self.size, (k + 1) * self.size), mode="wrap")


class InMemory(Rows):
    """Reads all rows at the start."""

    def __init__(self, *args):
        super().__init__(*args)
        with h5py.File(self.path) as file:
            self.all = [file[name][:] for name in self.names]

    def read(self, rows):
        return tuple(array[rows] for array in self.all)


class Scaled(Rows):
    """Scaled to 0 to 1."""

    def __getitem__(self, k):
        images, labels = super().__getitem__(k)
        return images / 255, labels


class MeanTaken(Rows):
    """A mean is subtracted from bytes, which wrap around."""

    def __getitem__(self, k):
        images, labels = super().__getitem__(k)
        images -= np.uint8(120)
        return images, labels


class ImagesSorted(Rows):
    """Images are read in the order of the file, labels in that of the rows."""

    def __getitem__(self, k):
        rows = self.part(k)
        return self.read(np.sort(rows))[0], self.read(rows)[1]


class Sorted(Rows):
    """Sorted for HDF5, also where the order counts."""

    def part(self, k):
        return np.sort(super().part(k))


class ShufflesValidation(Rows):
    """From the second epoch on it shuffles whatever was asked."""

    def on_epoch_end(self):
        self.epoch, self.shuffle = self.epoch + 1, True


class DrawsEachBatch(Rows):
    """Each batch is drawn by itself."""

    def part(self, k):
        if not self.shuffle:
            return super().part(k)
        rng = np.random.default_rng([self.seed, self.epoch, k])
        return rng.permutation(self.given)[: len(super().part(k))]


class NeverShuffled(Rows):
    """Knows no shuffle, as a well-known class."""

    def order(self):
        return self.given


class BatchesShuffled(Rows):
    """Shuffles the numbers of the batches, but for the last."""

    def part(self, k):
        numbers = np.arange(len(self))
        if self.shuffle:
            numbers[:-1] = np.random.default_rng([self.seed, self.epoch]).permutation(numbers[:-1])
        k = numbers[k]
        return self.given[k * self.size : (k + 1) * self.size]


class OneOrder(Rows):
    """The epoch is forgotten."""

    def on_epoch_end(self):
        pass


class NoSeed(OwnDice):
    """Shuffles with whatever dice there are."""

    def __init__(self, *args):
        super().__init__(*args)
        self.rng = np.random.default_rng()
        self.shuffle and self.rng.shuffle(self.now)


class SeedForgotten(Rows):
    """The epoch alone decides."""

    def order(self):
        return np.random.default_rng(self.epoch).permutation(self.given) if self.shuffle else self.given


class SharedDice(OwnDice):
    """Seeds NumPy's global dice, which everybody throws."""

    def __init__(self, *args):
        Rows.__init__(self, *args)
        np.random.seed(self.seed)  # noqa: NPY002 - the mistake
        self.rng, self.now = np.random, self.given.copy()
        self.shuffle and self.rng.shuffle(self.now)


class ShufflesAtTheEnd(OwnDice):
    """Moves to the next epoch when the last batch was asked for."""

    def __getitem__(self, k):
        batch = super().__getitem__(k)
        if k == len(self) - 1:
            super().on_epoch_end()
        return batch

    def on_epoch_end(self):
        pass


class CallersRows(OwnDice):
    """Shuffles the array it was given."""

    def __init__(self, path, images, labels, rows, batch_size, shuffle, seed):
        super().__init__(path, images, labels, rows, batch_size, shuffle, seed)
        self.now = rows


class RawListIndex(Rows):
    """Hands the rows to HDF5 as they are."""

    def read(self, rows):
        with h5py.File(self.path) as file:
            return tuple(file[name][rows] for name in self.names)


class FixedNames(Rows):
    """Knows the names of one file."""

    def __init__(self, *args):
        super().__init__(*args)
        self.names = "train_img", "train_labels"


class EndsAfterOnePass(Rows):
    """Counts its own batches, as a generator does."""

    asked = 0

    def __getitem__(self, k):
        if self.asked == len(self):
            raise StopIteration
        self.asked += 1
        return super().__getitem__(self.asked - 1)


RIGHT = {
    "03.1": {"a tuple": ("open", 0, 4), "of NumPy": np.array(["open", 0, 4], dtype=object)},
    "03.2": {
        "counted": by_counting,
        "of NumPy": with_divmod,
        "with ceil": lambda n, b: (math.ceil(n / b), n - n % b if n % b else 0),
    },
    "03.3": {"with random": plates(), "a class": Plates, "with Pillow": with_pillow},
    "03.4": {
        "direction said": callbacks(
            best={"mode": "max", "verbose": 1}, stop=lambda p: {"mode": "min", "restore_best_weights": True}
        ),
        "by hand": written_by_hand,
        "Path": lambda folder, patience: callbacks()(Path(folder), patience)[::-1],
    },
    "03.5": {"in a loop": translated(), "by popping": by_popping},
    "03.6": {
        "without Keras": Rows,
        "list index undone": ListIndexUndone,
        "sorted when shuffled": SortedWhenShuffled,
        "dice of its own": OwnDice,
        "a PyDataset": of_keras,
        "of the kit": of_the_kit,
    },
}
WRONG = {
    "03.1": {
        "wrong type": "open 0 4",
        "the call counted": ["open", "open", 0, 4],
        "one read ahead": ["open", 0, 4, 8],
        "one read behind": ["open", 0],
        "starts anew": ["open", 0, "open", 0],
        "ran to the end": ["open", 0, 4, 8, "close"],
        "only the loop": [0, 4],
        "another log": [],
    },
    "03.2": {
        "forgot to return": lambda n, b: print(-(-n // b)),
        "wrong type": lambda n, b: -(-n // b),
        "wrong shape": lambda n, b: (-(-n // b),),
        "a float": lambda n, b: (np.ceil(n / b), n // b * b % n),
        "rounded down": lambda n, b: (n // b, n // b * b % n),
        "one step too many": lambda n, b: (n // b + 1, n // b * b % n),
        "another number of steps": lambda n, b: (n // b + 2, n // b * b % n),
        "a row beyond the end": lambda n, b: (-(-n // b), n // b * b),
        "rows left over": lambda n, b: (-(-n // b), n % b),
        "always row 0": lambda n, b: (-(-n // b), 0),
        "last row of the epoch": lambda n, b: (-(-n // b), n // b * b - 1),
        "another row": lambda n, b: (-(-n // b), (n // b * b + 1) % n),
    },
    "03.3": {
        "other arguments": lambda folder, batch_size: iter(()),
        "wrong type": lambda folder, labels, batch_size, seed: 11,
        "file not found": plates(path_of=lambda file: file.name[0]),
        "labels missing": plates(pairs=False),
        "labels asked by path": plates(key=str),
        "not bytes": plates(dtype=float),
        "blue first": plates(flip=False),
        "other pixels": plates(scale=255),
        "wrong batch size": lambda folder, labels, batch_size, seed: plates()(folder, labels, 2 * batch_size, seed),
        "ran dry": plates(passes=1),
        "batches across the border": without_end,
        "last batch dropped": plates(drop=True),
        "files twice": drawn_with_repeats,
        "labels do not fit": plates(align=False),
        "all read at once": all_in_memory,
        "first pass not shuffled": plates(shuffle="later"),
        "every pass the same": plates(shuffle="once"),
        "cannot be repeated": plates(dice="none"),
        "seed not used": plates(dice="fixed"),
        "order of the listing": plates(sort=False),
    },
    "03.4": {
        "wrong type": lambda folder, patience: ["val_accuracy", "best.keras"],
        "unknown name": callbacks(best={"monitor": "val_acc"}),
        "old ending": callbacks(file="best.hdf5"),
        "weights alone": callbacks(file="best.weights.h5", best={"save_weights_only": True}),
        "another file name": callbacks(file="best_{epoch:02d}.keras"),
        "nothing saved": only("EarlyStopping"),
        "saves the last epoch": callbacks(best={"save_best_only": False}),
        "another epoch": saved_at_the_start,
        "watches the training": callbacks(best={"monitor": "accuracy"}),
        "watches the loss": callbacks(best={"monitor": "val_loss"}),
        "wrong direction": callbacks(best={"mode": "min"}),
        "never stops": only("ModelCheckpoint"),
        "stops too early": callbacks(stop=lambda patience: {"patience": 0}),
        "stops too late": callbacks(stop=lambda patience: {"monitor": "val_accuracy"}),
    },
    "03.5": {
        "wrong type": lambda old, b, m: ("x", "max_queue_size"),
        "wrong shape": lambda old, b, m: ({}, {}, {}),
        "changed its input": popping_the_original,
        "the two swapped": lambda old, b, m: translated()(old, b, m)[::-1],
        "generator kept its name": translated(name="generator"),
        "settings left in fit": translated(pool=()),
        "an argument lost": translated(keep=False),
        "an argument added": translated(extra={"workers": 1}),
        "another value": translated(other={"workers": 1}),
        "queue in a fraction": translated(queue=min),
        "queue too large": translated(queue=lambda old, fits: old),
        "queue of no batch": translated(queue=lambda old, fits: min(old, int(fits))),
        "queue enlarged": translated(queue=lambda old, fits: max(1, int(fits))),
        "queue too small": translated(queue=lambda old, fits: 1),
    },
    "03.6": {
        "other arguments": lambda path, batch_size: Rows(path, "train_img", "train_labels", [0], batch_size, True, 0),
        "no batch by number": a_generator,
        "length is no whole number": FloatLength,
        "labels missing": ImagesOnly,
        "rows not asked for": RowsOfTheFile,
        "rounded down": FullBatchesOnly,
        "one batch too many": OneMore,
        "wrong batch size": FilledUp,
        "whole file in memory": InMemory,
        "pixels changed": Scaled,
        "labels do not fit": ImagesSorted,
        "not in the order of rows": Sorted,
        "shuffled all the same": ShufflesValidation,
        "rows twice": DrawsEachBatch,
        "never shuffled": NeverShuffled,
        "only batches shuffled": BatchesShuffled,
        "same order each epoch": OneOrder,
        "cannot be repeated": NoSeed,
        "seed not used": SeedForgotten,
        "depends on other calls": SharedDice,
        "changed its input": CallersRows,
        "KeyError": FixedNames,
        "TypeError": RawListIndex,
        "ends like a generator": EndsAfterOnePass,
    },
}

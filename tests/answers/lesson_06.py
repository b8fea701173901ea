"""Right and wrong answers to the exercises of lesson 06; a wrong one stands under the name of its mistake."""

import math
import random
import sys
from itertools import chain

import cloudpickle
import cv2
import h5py
import numpy as np

from helpers import Augment, CenterCrop, RowReader
from helpers.batches import BatchSource

cloudpickle.register_pickle_by_value(sys.modules[__name__])

# --- 06.1 -----------------------------------------------------------------------------------------------------------

TRUE = {
    "digits": ["small turn", "brightness", "colour"],
    "plates": ["mirror", "half turn", "small turn", "brightness"],
    "shoes": ["half turn", "small turn", "brightness", "colour"],
    "needles": ["brightness", "colour"],
    "grey cards": ["mirror", "half turn", "small turn", "colour"],
}


def with_one(name, change):
    """One change too many."""
    return TRUE | {name: [*TRUE[name], change]}


# --- 06.2 -----------------------------------------------------------------------------------------------------------


def brighter(image, rng):
    """In int16, stopped, then bytes."""
    return (image.astype(np.int16) + rng.integers(-60, 61)).clip(0, 255).astype(np.uint8)


def by_opencv(image, rng):
    """OpenCV stops by itself; it writes into the image, as it may."""
    shift = int(rng.integers(-60, 61))
    size = np.full_like(image, abs(shift))
    image[:] = cv2.add(image, size) if shift > 0 else cv2.subtract(image, size)
    return image


def by_table(image, rng):
    """A table of 256 values, looked up."""
    return np.clip(np.arange(256) + rng.choice(range(-60, 61)), 0, 255).astype("u1")[image]


def in_float(image, rng):
    """In float32, a number with fractions, made whole."""
    return np.clip(image.astype(np.float32) + round(rng.uniform(-60, 60)), 0, 255).astype(np.uint8)


def centred(images, mean):
    """In float32."""
    return images.astype(np.float32) - mean.astype(np.float32)


def into_out(images, mean):
    """Straight into a new array."""
    return np.subtract(images, mean, out=np.empty(images.shape, np.float32), casting="unsafe")


def by_channel(images, mean):
    """One channel after the other, in an array of its own."""
    result = np.array(images, dtype="float32")
    for channel in range(3):
        result[..., channel] -= mean[channel]
    return result


def bytes_of(brighter=brighter, centred=centred):
    """Both functions, one of them another one."""
    return {"brighter": brighter, "centred": centred}


def shifted(image, rng, shift):
    """The right thing by any number."""
    del rng
    return np.clip(image.astype(int) + shift, 0, 255).astype(np.uint8)


def first_channel(image, rng):
    """What cv2.add makes of a single number for three channels."""
    result = image.copy()
    result[..., 0] = shifted(image[..., 0], None, rng.integers(1, 61))
    return result


def in_place(images, mean):
    """The line of the answer."""
    for channel in range(3):
        images[:, :, :, channel] -= mean[channel]
    return images


# --- 06.3 -----------------------------------------------------------------------------------------------------------

GREYS = np.arange(40, dtype=np.uint8)


def marked(values, height=6, width=6):
    """One image of one grey for each value."""
    return np.stack([np.full((height, width, 3), value, np.uint8) for value in values])


def by_mean(feed):
    """Labels are words, images are dark and bright; asked twice."""
    names = np.array([f"grey {value}" for value in GREYS])
    batches = [feed(marked(GREYS), names, size) for size in (40, 7)]
    return all(f"grey {round(image.mean())}" == name for batch in batches for image, name in zip(*batch, strict=True))


def by_colour(feed):
    """Rows in red and green, labels one-hot, images of no square shape."""
    rows = np.arange(300)
    images = np.zeros((300, 4, 6, 3), np.uint8)
    images[..., 0], images[..., 1] = (rows // 256)[:, None, None], (rows % 256)[:, None, None]
    seen, labels = feed(images, np.eye(300)[rows], batch_size=300)
    found = seen[:, 0, 0, 0].astype(int) * 256 + seen[:, 0, 0, 1].astype(int)
    return (found == labels.argmax(1)).all()


def exact_pixels(feed):
    """Looks the pixels of noise up."""
    images = np.random.default_rng(0).integers(0, 256, (20, 5, 5, 3), dtype=np.uint8)
    known = {image.tobytes(): row for row, image in enumerate(images)}
    seen, labels = feed(images, np.arange(20), 20)
    return all(known.get(image.astype(np.uint8).tobytes()) == label for image, label in zip(seen, labels, strict=True))


def probe(of_batch, values=GREYS, labels=None):
    """A proof that looks at a batch in one way or another."""

    def answer(feed):
        images, found = feed(marked(values), np.arange(len(values)) if labels is None else labels, len(values))
        return bool(of_batch(images, found))

    return answer


# --- 06.4 -----------------------------------------------------------------------------------------------------------


class Plain:
    """The generator in one piece; each part can be taken for another one."""

    float_images = no_labels = sorted_labels = False

    def __init__(self, path, batch_size, change, seed):
        self.path, self.batch_size, self.change, self.seed = path, batch_size, change, seed
        with h5py.File(path) as file:
            self.n = len(file["train_img"])

    def __len__(self):
        return math.ceil(self.n / self.batch_size)

    def order(self, epoch):
        return np.random.default_rng((self.seed, epoch)).permutation(self.n)

    def rng(self, epoch, k, place, row):
        del k, place
        return np.random.default_rng([self.seed, epoch, row])

    def pack(self, images):
        return np.stack(images)

    def read(self, file, rows):
        return np.stack([file["train_img"][row] for row in rows])

    def batch(self, epoch, k):
        rows = self.order(epoch)[k * self.batch_size : (k + 1) * self.batch_size]
        with h5py.File(self.path) as file:
            images = self.read(file, rows)
            labels = np.stack([file["train_labels"][row] for row in (sorted(rows) if self.sorted_labels else rows)])
        images = [
            self.change(image, self.rng(epoch, k, place, row))
            for place, (image, row) in enumerate(zip(images, rows, strict=True))
        ]
        images = self.pack(images)
        return images if self.no_labels else (images, labels)


class Sorted(Plain):
    """Rows of a batch in the order of the file, one spawned generator of random numbers each, lists."""

    def rng(self, epoch, k, place, row):
        return np.random.Generator(np.random.Philox(np.random.SeedSequence(self.seed, spawn_key=(epoch, int(row)))))

    def order(self, epoch):
        mixed = np.random.RandomState(1_000 * self.seed + epoch).permutation(self.n)
        parts = [np.sort(mixed[start : start + self.batch_size]) for start in range(0, self.n, self.batch_size)]
        return list(chain(*parts))

    def pack(self, images):
        return list(images)


def other(**parts):
    """A class like `Plain`, with some parts replaced."""
    return type("Other", (Plain,), parts)


def drawn_from(seeds):
    """A class like `Plain` with other random numbers."""
    return other(rng=lambda self, epoch, k, place, row: np.random.default_rng(seeds(self.seed, epoch, k, place, row)))


class KeepsGenerator(Plain):
    """One generator of random numbers for all calls."""

    def rng(self, epoch, k, place, row):
        self.kept = getattr(self, "kept", None) or np.random.default_rng(self.seed)
        return self.kept


class OneDraw(Plain):
    """The same numbers for each image."""

    def batch(self, epoch, k):
        numbers = np.random.default_rng([self.seed, epoch, k]).bit_generator.state
        self.rng = lambda *_: _restored(numbers)
        return super().batch(epoch, k)


def _restored(state):
    rng = np.random.default_rng(0)
    rng.bit_generator.state = state
    return rng


class WholeBatch(Plain):
    """Hands the batch to the change."""

    def batch(self, epoch, k):
        rows = self.order(epoch)[k * self.batch_size : (k + 1) * self.batch_size]
        with h5py.File(self.path) as file:
            images, labels = file["train_img"][:][rows], file["train_labels"][:][rows]
        return self.change(images, np.random.default_rng([self.seed, epoch, k])), labels


class IntoTheBatch(Plain):
    """As the wrapper does: results go into the array that was read."""

    def pack(self, images):
        batch = np.empty((len(images), 64, 64, 3) if self.n > 100 else (len(images), 6, 5, 3), np.uint8)
        for place, image in enumerate(images):
            batch[place] = image
        return batch


class AsInTheFile(Plain):
    """Calls the change and drops its result."""

    def batch(self, epoch, k):
        change, self.change = self.change, lambda image, rng: (change(image, rng), image)[1]
        try:
            return super().batch(epoch, k)
        finally:
            self.change = change


class WithHandle(Plain):
    """Opened once, in the constructor."""

    def __init__(self, path, batch_size, change, seed):
        super().__init__(path, batch_size, change, seed)
        self.file = h5py.File(path)


class AllInMemory(Plain):
    """Reads everything when it is made."""

    def __init__(self, path, batch_size, change, seed):
        super().__init__(path, batch_size, change, seed)
        with h5py.File(path) as file:
            self.all = file["train_img"][:]

    def read(self, file, rows):
        return self.all[rows]


class Counting(Plain):
    """Ends like a generator, after one pass."""

    made = 0

    def batch(self, epoch, k):
        self.made += 1
        if self.made > len(self):
            raise StopIteration
        return super().batch(epoch, k)


def half_shuffled(self, epoch):
    """Rows that come twice, and others that never come."""
    return np.random.default_rng([self.seed, epoch]).integers(0, self.n, self.n)


def batches_shuffled(self, epoch):
    """The batches of the file, in another order; the short one stays last."""
    starts = [*np.random.default_rng([self.seed, epoch]).permutation(self.n // self.batch_size) * self.batch_size]
    parts = [range(start, start + self.batch_size) for start in starts]
    return [*chain(*parts), *range(self.n // self.batch_size * self.batch_size, self.n)]


# --- 06.5 -----------------------------------------------------------------------------------------------------------


def seconds(n, read_ms, change_ms, train_ms, workers):
    """The slower of the two."""
    return max(n * (read_ms + change_ms) / workers, n * train_ms) / 1e3


def fewest(read_ms, change_ms, train_ms):
    """By trying."""
    return next(k for k in range(1, 1_000) if read_ms + change_ms <= k * train_ms)


def gap(history, part=slice(-5, None)):
    """Of one run."""
    return sum(np.subtract(history["accuracy"], history["val_accuracy"])[part]) / len(range(20)[part])


def closed(plain, augmented):
    """Both gaps."""
    return gap(plain) - gap(augmented)


def tail(history, key):
    """The mean of the last five."""
    return np.mean(history[key][-5:])


def costs(seconds=seconds, workers=fewest, gap_closed=closed):
    """All three, one of them another one."""
    return {"seconds": seconds, "workers": workers, "gap_closed": gap_closed}


# --- 06.6 -----------------------------------------------------------------------------------------------------------


def window(image, crop, rng):
    """A window at a random place."""
    top, left = (rng.integers(0, side - part, endpoint=True) for side, part in zip(image.shape, crop, strict=False))
    return image[top : top + crop[0], left : left + crop[1]]


def middle(image, crop, rng):
    """The window in the middle."""
    del rng
    top, left = (image.shape[0] - crop[0]) // 2, (image.shape[1] - crop[1]) // 2
    return image[top : top + crop[0], left : left + crop[1]]


def views(path, images, row, change, crop, n, *, valid=middle, valid_of=None, train=window, rng=None, pile=False):
    """The pictures, with parts that can be taken for others."""
    with h5py.File(path) as file:
        image = file[images][row]
    rng = rng or (lambda epoch, row, n: np.random.default_rng([epoch, row]))
    dice = [rng(epoch, row, n) for epoch in range(n)]
    first = image.copy() if valid_of is None else valid_of(image.copy(), np.random.default_rng(0), change)
    changed = [change(image if pile else image.copy(), one) for one in dice]
    if pile:
        changed = [one.copy() for one in changed]
    pictures = [valid(first, crop, np.random.default_rng(row))]
    return np.array(pictures + [train(one, crop, two) for one, two in zip(changed, dice, strict=True)])


def viewer(**parts):
    """`views` with some parts replaced."""
    return lambda path, images, row, change, crop, n: views(path, images, row, change, crop, n, **parts)


def piled(path, images, row, change, crop, n):
    """One array, changed again and again."""
    image = RowReader(path, images).read([row])[0]
    pictures = [CenterCrop(crop)(image)]
    for epoch in range(n):
        rng = np.random.default_rng([epoch, row])
        pictures.append(window(change(image, rng), crop, rng).copy())
    return np.stack(pictures)


def with_augment(path, images, row, change, crop, n):
    """The kit's own: cut first, then change."""
    image = RowReader(path, images).read([row])[0]
    augment = Augment(crop=crop, function=change)
    return np.stack([CenterCrop(crop)(image), *(augment(image, np.random.default_rng([7, k, row])) for k in range(n))])


def as_list(path, images, row, change, crop, n):
    """A list, with a generator for the window and another one for the change."""
    with h5py.File(path) as file:
        image = file[images][row]
    pictures = [middle(image, crop, None)]
    for k in range(n):
        one, two = (np.random.default_rng([row, k, part]) for part in (0, 1))
        pictures.append(window(change(image.copy(), one), crop, two))
    return pictures


def diagonal(image, crop, rng):
    """One draw for both sides."""
    share = rng.random()
    top, left = int(share * (image.shape[0] - crop[0] + 1)), int(share * (image.shape[1] - crop[1] + 1))
    return image[top : top + crop[0], left : left + crop[1]]


def never_last(image, crop, rng):
    """The upper end of a draw is not drawn."""
    top, left = (rng.integers(0, max(1, side - part)) for side, part in zip(image.shape, crop, strict=False))
    return image[top : top + crop[0], left : left + crop[1]]


def split_dice(path, images, row, change, crop, n):
    """New windows, and always the same change."""
    with h5py.File(path) as file:
        image = file[images][row]
    pictures = [middle(image, crop, None)]
    for k in range(n):
        pictures.append(window(change(image.copy(), np.random.default_rng(row)), crop, np.random.default_rng([k, row])))
    return np.array(pictures)


RIGHT = {
    "06.1": {
        "lists": TRUE,
        "sets": {name: set(changes) for name, changes in TRUE.items()},
        "tuples, backwards": {name: tuple(changes[::-1]) for name, changes in TRUE.items()},
        "arrays": {name: np.array(changes) for name, changes in TRUE.items()},
    },
    "06.2": {
        "int16": bytes_of(),
        "OpenCV, and out": bytes_of(by_opencv, into_out),
        "a table, by channel": bytes_of(by_table, by_channel),
        "float, then float32": bytes_of(in_float, lambda images, mean: (images - mean).astype("f4")),
        "OpenCV's scalar": bytes_of(
            lambda image, rng: cv2.add(image, (float(rng.integers(-60, 61)),) * 4),
            lambda images, mean: np.stack([cv2.subtract(one.astype("f4"), (*mean, 0)) for one in images]),
        ),
    },
    "06.3": {
        "by the mean": by_mean,
        "by colours": by_colour,
        "in one line": probe(lambda images, labels: np.array_equal(images.mean(axis=(1, 2, 3)), labels)),
        "as sets of pairs": probe(
            lambda images, labels: (
                {(int(image.max()), int(label)) for image, label in zip(images, labels, strict=True)}
                == {(value, value) for value in range(40)}
            )
        ),
    },
    "06.4": {
        "one piece": Plain,
        "sorted, lists": Sorted,
        "the kit's": lambda path, batch_size, change, seed: BatchSource(
            path, "train", batch_size, augment=change, seed=seed
        ),
        "the reader": other(read=lambda self, file, rows: RowReader(self.path, "train_img").read(rows)),
    },
    "06.5": {
        "by trying": costs(),
        "with NumPy": costs(
            lambda n, read, change, train, workers: np.float32(n) * np.maximum((read + change) / workers, train) / 1000,
            lambda read, change, train: int(np.ceil((read + change) / train)),
            lambda plain, augmented: float(np.diff([gap(augmented), gap(plain)])[0]),
        ),
        "rounded up by //": costs(workers=lambda read, change, train: int(-(-(read + change) // train))),
    },
    "06.6": {
        "with parts": viewer(),
        "the kit's": with_augment,
        "a list": as_list,
        "cut first": lambda path, images, row, change, crop, n: views(
            path,
            images,
            row,
            lambda image, rng: image,
            crop,
            n,
            train=lambda one, size, rng: change(window(one, size, rng).copy(), rng),
        ),
    },
}
WRONG = {
    "06.1": {
        "wrong type": TRUE | {"shoes": "half turn"},
        "unknown name": with_one("digits", "brighter"),
        "a mirrored digit": with_one("digits", "mirror"),
        "a turned six": with_one("digits", "half turn"),
        "a mirrored shoe": with_one("shoes", "mirror"),
        "another soup": with_one("plates", "colour"),
        "another angle": with_one("needles", "small turn"),
        "another shade": with_one("grey cards", "brightness"),
        "too careful": TRUE | {"shoes": ["brightness"]},
    },
    "06.2": {
        "wrong type": brighter,
        "not a function": bytes_of(centred=3),
        "not bytes": bytes_of(lambda image, rng: (image + rng.integers(-60, 61)).clip(0, 255)),
        "wraps around": bytes_of(
            lambda image, rng: (image + float(rng.integers(-60, 61))).astype(int).astype(np.uint8)
        ),
        "folded at 0": bytes_of(lambda image, rng: cv2.convertScaleAbs(image, beta=float(rng.integers(-60, 61)))),
        "another number for each value": bytes_of(
            lambda image, rng: (image + rng.integers(-60, 61, image.shape)).clip(0, 255).astype(np.uint8)
        ),
        "one channel alone": bytes_of(first_channel),
        "another change": bytes_of(lambda image, rng: (image * rng.uniform(0.7, 1.3)).clip(0, 255).astype(np.uint8)),
        "too far": bytes_of(lambda image, rng: shifted(image, rng, rng.integers(-90, 91))),
        "an end is missing": bytes_of(lambda image, rng: shifted(image, rng, rng.integers(-60, 60))),
        "only one way": bytes_of(lambda image, rng: shifted(image, rng, rng.integers(0, 61))),
        "always the same": bytes_of(lambda image, rng: shifted(image, rng, 60)),
        "cannot be repeated": bytes_of(lambda image, rng: shifted(image, rng, random.randint(-60, 60))),
        "in place on uint8": bytes_of(centred=in_place),
        "mean wraps around": bytes_of(centred=lambda images, mean: (images - mean.astype(np.uint8)).astype(np.float32)),
        "float64": bytes_of(centred=lambda images, mean: images - mean),
        "another type": bytes_of(centred=lambda images, mean: (images - mean).astype(np.float16)),
        "blue first": bytes_of(centred=lambda images, mean: centred(images, mean[::-1])),
        "mean of the batch": bytes_of(centred=lambda images, mean: centred(images, images.mean(axis=(0, 1, 2)))),
        "one mean for all": bytes_of(centred=lambda images, mean: centred(images, mean.mean())),
        "cut to whole numbers": bytes_of(centred=lambda images, mean: centred(images, mean.astype(int))),
        "scaled": bytes_of(centred=lambda images, mean: centred(images, mean) / np.float32(127.5)),
        "stopped at 0": bytes_of(centred=lambda images, mean: centred(images, mean).clip(0, 255)),
        "mean added": bytes_of(centred=lambda images, mean: centred(images, -mean)),
        "another difference": bytes_of(centred=lambda images, mean: centred(images, mean + 10)),
        "changed its input": bytes_of(centred=lambda images, mean: (centred(images, mean), images.fill(0))[0]),
    },
    "06.3": {
        "wrong type": lambda feed: "yes",
        "forgot to return": lambda feed: print(by_mean(feed)),
        "an honest feed refused": lambda feed: False,
        "a mix-up missed": lambda feed: True,
        "a single swap missed": probe(lambda images, labels: images[0].max() == labels[0]),
        "order taken for a fault": probe(
            lambda images, labels: np.array_equal(labels, GREYS) and np.array_equal(images[:, 0, 0, 0], GREYS)
        ),
        "pixels compared": exact_pixels,
        "type taken for a fault": probe(
            lambda images, labels: images.dtype == np.uint8 and np.array_equal(images[:, 0, 0, 0], labels)
        ),
        "ValueError": lambda feed: feed(np.zeros((8, 6, 6)), np.arange(8), 8),
    },
    "06.4": {
        "not a function": 3,
        "other arguments": lambda path, batch_size: None,
        "no batch": lambda path, batch_size, change, seed: iter([]),
        "a float length": other(__len__=lambda self: np.ceil(self.n / self.batch_size)),
        "last batch dropped": other(__len__=lambda self: self.n // self.batch_size),
        "one batch too many": other(__len__=lambda self: self.n // self.batch_size + 1),
        "no labels": other(no_labels=True),
        "not bytes": other(pack=lambda self, images: np.stack(images) * (1 / 255)),
        "size fixed before": IntoTheBatch,
        "a batch at once": WholeBatch,
        "wrong source of chance": other(rng=lambda self, *_: random.Random(0)),
        "not changed": AsInTheFile,
        "pixels damaged": other(pack=lambda self, images: np.stack(images)[..., ::-1]),
        "rows missing": other(order=half_shuffled),
        "labels do not fit": other(sorted_labels=True),
        "only batches shuffled": other(order=batches_shuffled),
        "not shuffled": other(order=lambda self, epoch: np.arange(self.n)),
        "every epoch in one order": other(
            order=lambda self, epoch: np.random.default_rng(self.seed).permutation(self.n)
        ),
        "one draw for a batch": OneDraw,
        "twins": drawn_from(lambda seed, epoch, k, place, row: [seed, epoch, place]),
        "every epoch the same": drawn_from(lambda seed, epoch, k, place, row: [seed, row]),
        "seed not used": drawn_from(lambda seed, epoch, k, place, row: [epoch, row]),
        "numbers added up": drawn_from(lambda seed, epoch, k, place, row: seed + epoch + row),
        "depends on its place": drawn_from(lambda seed, epoch, k, place, row: [seed, epoch, k, place]),
        "depends on other calls": KeepsGenerator,
        "a handle inside": WithHandle,
        "the whole file in memory": AllInMemory,
        "rows out of order": other(read=lambda self, file, rows: file["train_img"][rows]),
        "ends like a generator": Counting,
    },
    "06.5": {
        "wrong type": seconds,
        "added up": costs(lambda n, read, change, train, workers: n * ((read + change) / workers + train) / 1000),
        "milliseconds": costs(lambda *case: 1000 * seconds(*case)),
        "workers not counted": costs(lambda n, read, change, train, workers: seconds(n, read, change, train, 1)),
        "training shared": costs(lambda n, read, change, train, workers: seconds(n, read, change, train, 1) / workers),
        "training left out": costs(lambda n, read, change, train, workers: n * (read + change) / workers / 1000),
        "reading left out": costs(lambda n, read, change, train, workers: seconds(n, 0, change, train, workers)),
        "another time": costs(lambda n, read, change, train, workers: n / 1000),
        "a float": costs(workers=lambda read, change, train: np.ceil((read + change) / train)),
        "rounded down": costs(workers=lambda read, change, train: int((read + change) / train)),
        "one worker too many": costs(workers=lambda read, change, train: int((read + change) / train) + 1),
        "another number of workers": costs(workers=lambda read, change, train: 8),
        "the wrong way round": costs(gap_closed=lambda plain, augmented: closed(augmented, plain)),
        "the sign is lost": costs(gap_closed=lambda plain, augmented: abs(closed(plain, augmented))),
        "the last epoch alone": costs(
            gap_closed=lambda plain, augmented: gap(plain, slice(-1, None)) - gap(augmented, slice(-1, None))
        ),
        "all epochs": costs(gap_closed=lambda plain, augmented: gap(plain, slice(None)) - gap(augmented, slice(None))),
        "validation alone": costs(
            gap_closed=lambda plain, augmented: tail(augmented, "val_accuracy") - tail(plain, "val_accuracy")
        ),
        "training alone": costs(
            gap_closed=lambda plain, augmented: tail(plain, "accuracy") - tail(augmented, "accuracy")
        ),
        "another gap": costs(gap_closed=lambda plain, augmented: 0.5),
    },
    "06.6": {
        "wrong shape": lambda *args: views(*args)[1:] if len(args) == 6 else None,
        "not bytes": lambda path, images, row, change, crop, n: views(path, images, row, change, crop, n) / 255,
        "a fixed name": lambda path, images, row, change, crop, n: views(path, "train_img", row, change, crop, n),
        "blue first": lambda path, images, row, change, crop, n: views(path, images, row, change, crop, n)[..., ::-1],
        "not the middle": viewer(valid=lambda image, crop, rng: image[-crop[0] - 1 : -1, -crop[1] - 1 : -1]),
        "numbers added up": viewer(rng=lambda epoch, row, n: np.random.default_rng(epoch + row)),
        "another row": lambda path, images, row, change, crop, n: views(path, images, row - 1, change, crop, n),
        "validation is changed": viewer(valid_of=lambda image, rng, change: change(image, rng)),
        "validation by chance": viewer(valid=window),
        "the corner": viewer(valid=lambda image, crop, rng: image[: crop[0], : crop[1]]),
        "not a window": viewer(train=lambda image, crop, rng: cv2.resize(image, crop[::-1])),
        "not changed": lambda path, images, row, change, crop, n: views(
            path, images, row, lambda image, rng: image, crop, n
        ),
        "always the same window": viewer(train=middle),
        "some windows never": viewer(train=never_last),
        "one draw for both sides": viewer(train=diagonal),
        "changes pile up": piled,
        "all alike": split_dice,
        "cannot be repeated": viewer(rng=lambda epoch, row, n: np.random.default_rng()),
        "depends on n": viewer(rng=lambda epoch, row, n: np.random.default_rng([epoch, row, n])),
        "rows are twins": viewer(rng=lambda epoch, row, n: np.random.default_rng(epoch)),
    },
}

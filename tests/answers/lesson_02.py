"""Right and wrong answers to the exercises of lesson 02; a wrong one stands under the name of its mistake."""

import random
from collections import UserDict

import h5py
import numpy as np

from helpers import RowReader

# --- 02.2 -----------------------------------------------------------------------------------------------------------


def with_while(n, batch_size):
    """Another way to write it."""
    parts, start = [], 0
    while start < n:
        parts.append(slice(start, min(n, start + batch_size)))
        start += batch_size
    return tuple(parts)


def by_splitting(n, batch_size):
    """With NumPy."""
    starts = np.arange(0, n, batch_size)
    return [slice(int(start), int(stop)) for start, stop in zip(starts, [*starts[1:], n], strict=True)]


def of_numpy(n, batch_size):
    """Ends are NumPy's numbers, and the first one is left out."""
    ends = np.append(np.arange(batch_size, n, batch_size), n)
    return [slice(None, ends[0]), *(slice(a, b, 1) for a, b in zip(ends[:-1], ends[1:], strict=True))]


# --- 02.3 -----------------------------------------------------------------------------------------------------------

PAIRS = {1: "g", 2: "k", 3: "e", 4: "b", 5: "l", 6: "d"}

# --- 02.4 -----------------------------------------------------------------------------------------------------------


def starts_of(n, batch_size):
    """The first row of each batch."""
    return range(0, n, batch_size)


def by_average(model, images, labels, batch_size):
    """With NumPy's weighted mean, and the list that Keras gives without return_dict."""
    parts, sizes = [], []
    for start in starts_of(images.shape[0], batch_size):
        x, y = images[start : start + batch_size, ...], labels[start : start + batch_size, ...]
        parts.append(model.test_on_batch(x=x, y=y))
        sizes.append(len(x))
    loss, accuracy = np.average(parts, axis=0, weights=sizes)
    return UserDict(loss=loss, accuracy=accuracy)


def row_by_row(model, images, labels, batch_size):
    """One row at a time is slow and right; the labels all at once."""
    truth = np.asarray(labels)
    values = [model.test_on_batch(image[None], truth[[row]], return_dict=True) for row, image in enumerate(images)]
    return {name: np.float32(np.mean([one[name] for one in values])) for name in ("loss", "accuracy")}


def backwards(model, images, labels, batch_size):
    """The order does not matter, and a running mean needs no total."""
    seen, mean = 0, np.zeros(2)
    for start in reversed(starts_of(len(images), batch_size)):
        x = images[start : start + batch_size]
        seen += len(x)
        mean += (np.array(model.test_on_batch(x, labels[start : start + len(x)])) - mean) * len(x) / seen
    return {"accuracy": mean[1], "loss": mean[0], "rows": seen}


def validated(
    combine=lambda values, sizes, batch_size: np.average(values, axis=0, weights=sizes),
    method="test_on_batch",
    starts=starts_of,
    labels_from=lambda start: start,
    change=lambda images: images,
    overlap=0,
):
    """An answer to 02.4 with one thing done in another way."""

    def answer(model, images, labels, batch_size):
        values, sizes = [], []
        for start in starts(len(images), batch_size):
            x = change(images[start : start + batch_size + overlap][:batch_size])
            first = labels_from(start)
            values.append(getattr(model, method)(x, labels[first : first + len(x)]))
            sizes.append(len(x))
        loss, accuracy = combine(np.array(values), np.array(sizes), batch_size)
        return {"loss": float(loss), "accuracy": float(accuracy)}

    return answer


def whole_at_once(model, images, labels, batch_size):
    """Reads everything, then cuts."""
    return by_average(model, images[:], labels[:], batch_size)


def of_seed(model, images, labels, batch_size):
    """A slice too long by one row, which then is in two batches."""
    for start in range(0, len(images) - 1, batch_size - 1):
        values = model.test_on_batch(images[start : start + batch_size], labels[start : start + batch_size])
    return dict(zip(("loss", "accuracy"), values, strict=True))


def shifted_labels(model, images, labels, batch_size):
    """Labels are read by another slice than their images."""
    for start in starts_of(len(images), batch_size):
        x = images[start : start + batch_size]
        y = labels[:][(np.arange(start, start + len(x)) + 1) % len(images)]
        model.test_on_batch(x, y)
    return {"loss": 1.0, "accuracy": 0.5}


# --- 02.5 -----------------------------------------------------------------------------------------------------------


def totals(spans):
    """Time of (waiting, training)."""
    return [sum(end - start for start, end, kind in spans if kind == name) for name in ("wait", "train")]


def with_arrays(spans):
    """With NumPy, rounded."""
    took = np.array([end - start for start, end, _ in spans])
    wait = took[np.array([kind == "wait" for *_, kind in spans])].sum()
    share = wait / took.sum()
    return np.round([share, 1 / max(share, 1 - share)], 3)


def by_whole_time(spans):
    """From the ends of the timeline; a list."""
    whole = spans[-1][1] - spans[0][0]
    wait = totals(spans)[0]
    return [wait / whole, min(whole / (whole - wait), whole / wait)]


def timed(share=lambda wait, train: wait / (wait + train), faster=lambda a, b: (a + b) / max(a, b)):
    """An answer to 02.5 with one of the two numbers computed in another way."""
    return lambda spans: (share(*totals(spans)), faster(*totals(spans)))


def bars(spans):
    """Counts bars, which are not equally long."""
    return sum(kind == "wait" for *_, kind in spans) / len(spans), timed()(spans)[1]


# --- 02.6 -----------------------------------------------------------------------------------------------------------


def read_sorted(path, name, rows):
    """Images by h5py's list index, put back in the order asked for."""
    order = np.argsort(rows)
    with h5py.File(path, "r") as file:
        return file[name][rows[order]][np.argsort(order)]


def weighted(losses, sizes, batch_size):
    """The mean over rows."""
    return np.average(losses, weights=sizes)


def mixed(seed, epoch, n, batch_size):
    """Batches of rows, mixed by both numbers."""
    order = np.random.default_rng([seed, epoch]).permutation(n)
    return [order[start : start + batch_size] for start in range(0, n, batch_size)]


def trained(
    batches=mixed, combine=weighted, read=read_sorted, labels_of=lambda rows: rows, method="train_on_batch", **options
):
    """An answer to 02.6 with one thing done in another way."""

    def answer(model, path, images, labels, epoch, seed, batch_size):
        with h5py.File(path, "r") as file:
            truth = file[labels][:]
        losses, sizes = [], []
        for rows in batches(seed, epoch, len(truth), batch_size):
            values = getattr(model, method)(read(path, images, rows), truth[labels_of(rows)], **options)
            losses.append(values[0])
            sizes.append(len(rows))
        return combine(np.array(losses), np.array(sizes), batch_size)

    return answer


def in_order_of_the_file(model, path, images, labels, epoch, seed, batch_size):
    """Rows are mixed by Python's own dice and sorted inside of each batch, images and labels alike."""
    with h5py.File(path) as file:
        order = list(range(file[images].shape[0]))
        random.Random(f"{seed}/{epoch}").shuffle(order)
        seen = total = 0
        while order:
            rows, order = sorted(order[:batch_size]), order[batch_size:]
            loss, _ = model.train_on_batch(file[images][rows, ...], file[labels][rows, ...])
            seen, total = seen + len(rows), total + len(rows) * loss
    return total / seen


def class_of_batches(model, path, images, labels, epoch, seed, batch_size):
    """Old dice of NumPy with a seed made of both numbers by hand; one row is read at a time."""
    dice = np.random.RandomState(1_000 * seed + epoch)
    with h5py.File(path) as file:
        order = np.arange(len(file[labels]))
        dice.shuffle(order)
        values = []
        for piece in np.split(order, range(batch_size, len(order), batch_size)):
            x, y = (np.stack([file[name][int(row)] for row in piece]) for name in (images, labels))
            values += [model.train_on_batch(x=x, y=y, return_dict=True)["loss"]] * len(piece)
    return np.float64(np.mean(values))


def by_list_index(model, path, images, labels, epoch, seed, batch_size):
    """The rows as they were mixed, as an index of h5py."""
    with h5py.File(path) as file:
        for rows in mixed(seed, epoch, len(file[labels]), batch_size):
            model.train_on_batch(file[images][rows], file[labels][rows])
    return 0.0


def all_in_memory(model, path, images, labels, epoch, seed, batch_size):
    """Works for the toy file, and not for 27 GB."""
    with h5py.File(path) as file:
        x = file[images][:]
    return trained(read=lambda path, name, rows: x[rows])(model, path, images, labels, epoch, seed, batch_size)


def cut(order, batch_size):
    """Batches of rows in this order."""
    return [order[start : start + batch_size] for start in range(0, len(order), batch_size)]


def whole_batches(seed, epoch, n, batch_size):
    """Slices of the file, in a new order; the shorter one comes last."""
    *full, last = cut(np.arange(n), batch_size)
    return [*(full[k] for k in np.random.default_rng([seed, epoch]).permutation(len(full))), last]


def global_dice(seed, epoch, n, batch_size):
    """Nobody seeded them."""
    return cut(np.random.permutation(n), batch_size)  # noqa: NPY002 - the mistake


RIGHT = {
    "02.1": {"as a difference": 70_700 - 70_600, "of NumPy": np.int64(100)},
    "02.2": {"with while": with_while, "with NumPy": by_splitting, "NumPy's ends": of_numpy},
    "02.3": {"as asked": PAIRS, "texts, capitals": {str(fault): cost.upper() for fault, cost in PAIRS.items()}},
    "02.4": {"average": by_average, "row by row": row_by_row, "backwards": backwards, "as in the lesson": validated()},
    "02.5": {"arrays": with_arrays, "ends of the timeline": by_whole_time, "totals": timed()},
    "02.6": {
        "list index, put back": trained(),
        "RowReader, by position": trained(read=lambda path, name, rows: RowReader(path, name).read(rows)),
        "sorted inside of a batch": in_order_of_the_file,
        "old dice": class_of_batches,
    },
}
WRONG = {
    "02.1": {
        "wrong type": "100",
        "rows of one piece": 706,
        "rows that are read": 70_600,
        "times 50 epochs": 5_000,
        "off by one": 101,
        "another number": 0,
    },
    "02.2": {
        "not a function": [slice(0, 3)],
        "forgot to return": lambda n, batch_size: print([slice(0, n)]),
        "wrong type": lambda n, batch_size: [range(k, min(n, k + batch_size)) for k in range(0, n, batch_size)],
        "rows left over": lambda n, batch_size: [
            slice(k * batch_size, (k + 1) * batch_size) for k in range(n // batch_size)
        ],
        "stop beyond the end": lambda n, batch_size: [slice(k, k + batch_size) for k in range(0, n, batch_size)],
        "an empty piece": lambda n, batch_size: [
            slice(k * batch_size, min(n, (k + 1) * batch_size)) for k in range(n // batch_size + 1)
        ],
        "rows read twice": lambda n, batch_size: [
            slice(k, min(n, k + batch_size + 1)) for k in range(0, n, batch_size)
        ],
        "not in order": lambda n, batch_size: by_splitting(n, batch_size)[::-1],
        "other sizes": lambda n, batch_size: [
            slice(n * k // batch_size, n * (k + 1) // batch_size) for k in range(batch_size)
        ],
    },
    "02.3": {
        "wrong type": ["g", "k", "e", "b", "l", "d"],
        "not a letter": {**PAIRS, 2: "the epochs"},
        "a fault left open": {1: PAIRS[1], 2: PAIRS[2], 3: None},
        "an error at the end": {**PAIRS, 1: "j"},
        "epochs lost": {**PAIRS, 2: "a"},
        "trained on validation": {**PAIRS, 3: "h"},
        "no learning in any order": {**PAIRS, 4: "f"},
        "only bytes counted": {**PAIRS, 5: "i"},
        "the longer part alone": {**PAIRS, 6: "c"},
        "the cost of another fault": {**PAIRS, 4: "l", 5: "b"},
    },
    "02.4": {
        "whole split in memory": whole_at_once,
        "weights changed": validated(method="train_on_batch"),
        "rows left over": validated(starts=lambda n, size: range(0, n // size * size, size)),
        "rows counted twice": of_seed,
        "labels of other rows": shifted_labels,
        "plain mean": validated(lambda values, sizes, size: values.mean(axis=0)),
        "last batch taken for full": validated(lambda values, sizes, size: size * values.sum(axis=0) / sizes.sum()),
        "a sum": validated(lambda values, sizes, size: sizes @ values),
        "divided by full batches": validated(lambda values, sizes, size: sizes @ values / (size * len(sizes))),
        "the last batch alone": validated(lambda values, sizes, size: values[-1]),
        "another mean": validated(lambda values, sizes, size: np.median(values, axis=0)),
        "pixels changed": validated(change=lambda images: images / 255),
        "wrong shape": validated(change=lambda images: images.reshape(len(images), -1)),
        "TypeError": lambda model, images, labels, batch_size: (
            0.0 + model.test_on_batch(images[:batch_size], labels[:batch_size])
        ),
        "AttributeError": lambda model, images, labels, batch_size: model.evaluate(images, labels, batch_size),
    },
    "02.5": {
        "bars counted": bars,
        "clock read from 0": lambda spans: (totals(spans)[0] / spans[-1][1], timed()(spans)[1]),
        "share of training": timed(share=lambda wait, train: train / (wait + train)),
        "compared with training": timed(share=lambda wait, train: wait / train),
        "in percent": timed(share=lambda wait, train: 100 * wait / (wait + train)),
        "the two swapped": lambda spans: timed()(spans)[::-1],
        "another share": timed(share=lambda wait, train: 0.25),
        "one part for all": timed(faster=lambda wait, train: (wait + train) / train),
        "the shorter part": timed(faster=lambda wait, train: (wait + train) / min(wait, train)),
        "the time saved": timed(faster=lambda wait, train: 1 - max(wait, train) / (wait + train)),
        "upside down": timed(faster=lambda wait, train: max(wait, train) / (wait + train)),
        "another speed-up": timed(faster=lambda wait, train: 2),
    },
    "02.6": {
        "whole file in memory": all_in_memory,
        "not trained": lambda *args: 0.5 if len(args) == 7 else None,
        "pixels changed": trained(read=lambda *args: read_sorted(*args).astype("float32") / 255),
        "other batches": trained(batches=lambda seed, epoch, n, size: np.array_split(mixed(seed, epoch, n, n)[0], 3)),
        "labels of other rows": trained(
            read=lambda path, name, rows: read_sorted(path, name, np.sort(rows)), labels_of=lambda rows: rows
        ),
        "rows left over": trained(batches=lambda seed, epoch, n, size: mixed(seed, epoch, n, size)[: n // size]),
        "rows used twice": trained(
            batches=lambda seed, epoch, n, size: [*mixed(seed, epoch, n, size), mixed(seed, epoch, n, size)[0]]
        ),
        "not shuffled": trained(batches=lambda seed, epoch, n, size: cut(np.arange(n), size)),
        "batches mixed alone": trained(batches=whole_batches),
        "same order each epoch": trained(batches=lambda seed, epoch, n, size: mixed(seed, 0, n, size)),
        "seed ignored": trained(batches=lambda seed, epoch, n, size: mixed(0, epoch, n, size)),
        "seed plus epoch": trained(batches=lambda seed, epoch, n, size: mixed(seed + epoch, 0, n, size)),
        "not repeatable": trained(batches=global_dice),
        "plain mean": trained(combine=lambda losses, sizes, size: losses.mean()),
        "last batch taken for full": trained(combine=lambda losses, sizes, size: size * losses.sum() / sizes.sum()),
        "a sum": trained(combine=lambda losses, sizes, size: losses.sum()),
        "divided by full batches": trained(combine=lambda losses, sizes, size: sizes @ losses / size / len(sizes)),
        "the last batch alone": trained(combine=lambda losses, sizes, size: losses[-1]),
        "another mean": trained(combine=lambda losses, sizes, size: np.median(losses)),
        "TypeError": by_list_index,
    },
}

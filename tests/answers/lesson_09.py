"""Right and wrong answers to the capstone; a wrong one stands under the name of its mistake."""

import functools
import math

import h5py
import numpy as np


def numbers_of(values):
    """Class numbers of either kind of label."""
    return values.argmax(1) if values.ndim == 2 else np.rint(values).astype(int)


def look(path, images, labels, *, axes=slice(1, None), every=False, exact=False, **changed):
    """The facts, or with one of them gone wrong."""
    with h5py.File(path) as file:
        data, values = file[images], file[labels][()]
        chunk = data.chunks or data.shape
        written = np.ones(len(data), bool) if every else data[:].any((1, 2, 3))
        numbers = values if exact and values.ndim == 1 else numbers_of(values)
        sides = zip(data.shape[axes], chunk[axes], strict=True)
        facts = {
            "chunks_per_image": math.prod(math.ceil(side / part) for side, part in sides),
            "packed": data.compression is not None,
            "sorted": list(numbers[written]) == sorted(numbers[written]),
            "label_kind": {1: "numbers", 2: "onehot"}[values.ndim],
        }
        return facts | {name: change(data, facts) for name, change in changed.items()}


def look_slowly(path, images, labels):
    """Facts of NumPy types, counted chunk by chunk with h5py's own list."""
    with h5py.File(path) as file:
        data = file[images]
        count = np.int64(1)
        if data.chunks:
            every = [tuple(part.start for part in chunk) for chunk in data.iter_chunks()]
            count = np.int64(sum(start[0] == 0 for start in every))
    found = look(path, images, labels)
    return found | {"chunks_per_image": count, "sorted": np.bool_(found["sorted"])}


def pictures(path, images):
    """Row by row."""
    with h5py.File(path) as file:
        return np.array([row for row, image in enumerate(file[images]) if image.max() > 0])


def pictures_by_sum(path, images):
    """Another way, in slices, as a tuple."""
    with h5py.File(path) as file:
        data = file[images]
        return tuple(
            s + int(k) for s in range(0, len(data), 50) for k in np.flatnonzero(data[s : s + 50].sum((1, 2, 3)))
        )


def bright(path, images, row):
    """Bright on average."""
    with h5py.File(path) as file:
        return file[images][row].mean() > 1


def whole_file(path, images):
    """What one writes first."""
    with h5py.File(path) as file:
        return np.flatnonzero(file[images][:].reshape(len(file[images]), -1).any(1))


def mask(path, images):
    """True and False instead of numbers."""
    with h5py.File(path) as file:
        return [bool(image.any()) for image in file[images]]


def to_first_black(path, images):
    """Stops too early."""
    with h5py.File(path) as file:
        for row in range(len(file[images])):
            if not file[images][row].any():
                return list(range(row))
        return list(range(len(file[images])))


def by_labels(path, images, *, keep_first=False):
    """Asks the labels, where the pixels should be asked."""
    labels = {"archive/photos": "archive/kinds", "x": "y", "data/canteen/img": "data/canteen/target"}[images]
    with h5py.File(path) as file:
        values = file[labels][:]
        if keep_first:
            return np.flatnonzero(values.any(1) if values.ndim == 2 else values != 0)
        rows = pictures(path, images)
        return rows[numbers_of(values)[rows] > 0]


def in_batches(path, images):
    """Forgets where a batch began."""
    rows = []
    with h5py.File(path) as file:
        for start in range(0, len(file[images]), 64):
            rows += list(np.flatnonzero(file[images][start : start + 64].any((1, 2, 3))))
    return rows


def repair(path, images, labels, out, *, mistake=""):
    """With h5py alone; ``mistake`` switches one fault on."""
    with h5py.File(path) as old, h5py.File(out, "w") as new:
        data, names = old[images], [str(name) for name in old.attrs["class_names"]]
        if mistake == "everything in memory":
            everything = data[:]
        numbers, rng = numbers_of(old[labels][:]), np.random.default_rng(5)
        has = np.array([mistake == "empty rows kept" or data[row].any() for row in range(len(data))])
        rows = rng.permutation(np.flatnonzero(has))
        if mistake == "rows lost":
            rows = rows[:-3]
        rank = {row: np.flatnonzero(rows[numbers[rows] == numbers[row]] == row)[0] for row in rows}
        splits = {
            "train": [row for row in rows if rank[row] % 5],
            "valid": [row for row in rows if rank[row] % 5 == 0],
        }
        if mistake == "a split without a class":
            by_class = sorted(rows, key=lambda row: numbers[row])
            splits = {"train": by_class[: -len(rows) // 5], "valid": by_class[-len(rows) // 5 :]}
        if mistake == "a row in both splits":
            splits["train"] += splits["valid"][:5]
        if mistake == "still sorted by class":
            splits = {name: sorted(part, key=lambda row: numbers[row]) for name, part in splits.items()}
        for name, part in splits.items():
            chunks = True if mistake == "chunks cut the images" else (1, *data.shape[1:])
            kind = "float32" if mistake == "float images" else "uint8"
            packed = {"chunks": chunks, "compression": "gzip"}
            to = new.create_dataset(f"{name}_img", (len(part), *data.shape[1:]), kind, **packed)
            for place, row in enumerate(part):
                to[place] = everything[row] if mistake == "everything in memory" else data[row]
            mine = numbers[sorted(part)] if mistake == "labels left behind" else numbers[part]
            if mistake == "float labels":
                mine = mine.astype("float64")
            new["y_" + name if mistake == "other names" else f"{name}_labels"] = mine
        if mistake != "the inspector refuses it":
            new.attrs["class_names"], new.attrs["complete"] = names, True
        else:
            new.attrs["class_names"], new.attrs["complete"] = names, False
        if mistake == "class names lost":
            del new.attrs["class_names"]


def repair_with_the_kit(path, images, labels, out):
    """Through a clean copy and the kit's classes, with one-hot labels."""
    from helpers import HDF5Writer, RowReader

    with h5py.File(path) as file:
        values, names, shape = file[labels][:], list(file.attrs["class_names"]), file[images].shape[1:]
    reader, numbers = RowReader(path, images), numbers_of(values)
    rows = np.array([row for row in range(len(values)) if reader.read([row]).any()])
    np.random.default_rng(1).shuffle(rows)
    train, valid = [], []
    for number in range(len(names)):
        mine = rows[numbers[rows] == number]
        cut = round(0.8 * len(mine))
        train.extend(mine[:cut])
        valid.extend(mine[cut:])
    with HDF5Writer(out, shape, names, label_kind="sparse") as writer:
        for split, part in (("train", train), ("valid", valid)):
            for row in np.random.default_rng(2).permutation(part):
                writer.append(split, reader.read([row]), [numbers[row]])
    reader.close()


def no_file(path, images, labels, out):
    """Returns what it should have written."""
    return {"train_img": np.zeros((1, 8, 8, 3))}


def arrays(path, split):
    """Images and one-hot labels of one split, in memory: this file is small."""
    with h5py.File(path) as file:
        return file[f"{split}_img"][:], file[f"{split}_labels"][:].astype("float32")


def new_model(shape, classes, *, scaled=True):
    """A tiny network."""
    import keras

    keras.utils.set_random_seed(1)
    layers = keras.layers
    return keras.Sequential([
        keras.Input(shape),
        *([layers.Rescaling(1 / 127.5, -1.0)] if scaled else []),
        layers.Conv2D(16, 3, strides=2, activation="relu"),
        layers.BatchNormalization(momentum=0.8),
        layers.Conv2D(32, 3, strides=2, activation="relu"),
        layers.GlobalAveragePooling2D(),
        layers.Dense(classes, activation="softmax"),
    ])


def with_fit(path, *, scaled=True, shift=0, epochs=10, returns="model"):
    """Plain Keras; the arguments switch faults on."""
    import keras

    images, labels = arrays(path, "train")
    model = new_model(images.shape[1:], labels.shape[1], scaled=scaled)
    model.compile(keras.optimizers.Adam(4e-3), "categorical_crossentropy")
    inputs = images if scaled else images / np.float32(127.5) - 1
    history = model.fit(inputs, np.roll(labels, shift, axis=1), batch_size=16, epochs=epochs, verbose=0)
    return history if returns == "history" else model


def with_sequence(path):
    """The kit's generator, class numbers."""
    from helpers import HDF5Sequence, fit_generator
    from helpers.models import small_cnn

    with HDF5Sequence(path, batch_size=16, label_kind="sparse") as train:
        model = small_cnn(train.image_shape, train.num_classes, width=12)
        model.compile("adam", "sparse_categorical_crossentropy")
        fit_generator(model, train, epochs=5, verbose=0)
    return model


RIGHT = {
    "09.1": {"in one go": look, "with NumPy's types": look_slowly},
    "09.2": {"row by row": pictures, "by the sum": pictures_by_sum},
    "09.3": {
        "with rint": numbers_of,
        "of a smaller type": lambda labels: np.array(
            [
                round(float(one)) if np.ndim(one) == 0 else int(max(range(len(one)), key=one.__getitem__))
                for one in labels
            ],
            "uint8",
        ),
    },
    "09.4": {"with h5py": repair, "with the kit": repair_with_the_kit},
    "09.5": {"with fit": with_fit, "with a sequence": with_sequence},
}
WRONG = {
    "09.1": {
        "chunks of the whole dataset": functools.partial(look, axes=slice(None)),
        "colours forgotten": functools.partial(look, axes=slice(1, 3)),
        "images in a chunk": functools.partial(
            look, chunks_per_image=lambda data, facts: data.chunks[0] if data.chunks else 1
        ),
        "a contiguous dataset": functools.partial(
            look, chunks_per_image=lambda data, facts: facts["chunks_per_image"] if data.chunks else 0
        ),
        "wrong number of chunks": functools.partial(
            look, chunks_per_image=lambda data, facts: max(1, facts["chunks_per_image"] - 3)
        ),
        "packing not seen": functools.partial(look, packed=lambda data, facts: data.chunks is not None),
        "a name, not a truth": functools.partial(look, packed=lambda data, facts: data.compression or "none"),
        "the empty tail counts": functools.partial(look, every=True),
        "floats compared exactly": functools.partial(look, exact=True),
        "order not seen": functools.partial(look, sorted=lambda data, facts: True),
        "label kind": functools.partial(look, label_kind=lambda data, facts: "onehot"),
    },
    "09.2": {
        "every row": lambda path, images: list(range(len(h5py.File(path)[images]))),
        "stopped at the first black picture": to_first_black,
        "the lens cap": functools.partial(by_labels, keep_first=True),
        "class 0 lost": by_labels,
        "rows twice": lambda path, images: sorted([*pictures(path, images), *pictures(path, images)[:2]]),
        "one row off": lambda path, images: pictures(path, images)[:-1],
        "positions in a batch": in_batches,
        "a dark picture lost": lambda path, images: [
            row for row in pictures(path, images) if bright(path, images, row)
        ],
        "everything in memory": whole_file,
        "wrong type": mask,
    },
    "09.3": {
        "cut instead of rounded": lambda labels: labels.argmax(1) if labels.ndim == 2 else labels.astype(int),
        "one-hot not read": lambda labels: (
            labels.max(1).astype(int) if labels.ndim == 2 else np.rint(labels).astype(int)
        ),
        "numbers taken for one-hot": lambda labels: labels.argmax(1),
        "still floats": lambda labels: labels.argmax(1) if labels.ndim == 2 else np.round(labels),
        "one-hot given": lambda labels: (
            labels.astype(int) if labels.ndim == 2 else np.eye(9, dtype=int)[np.rint(labels).astype(int)]
        ),
        "rows dropped": lambda labels: np.nonzero(labels)[1] if labels.ndim == 2 else np.rint(labels).astype(int),
        "compared with 1": lambda labels: (
            np.nonzero(labels == 1)[1] if labels.ndim == 2 else np.rint(labels).astype(int)
        ),
        "a batch of one": lambda labels: np.squeeze(numbers_of(labels)),
    },
    "09.4": {
        "no file": no_file,
        **{
            mistake: functools.partial(repair, mistake=mistake)
            for mistake in (
                "other names",
                "float images",
                "float labels",
                "empty rows kept",
                "rows lost",
                "a row in both splits",
                "labels left behind",
                "a split without a class",
                "still sorted by class",
                "chunks cut the images",
                "class names lost",
                "the inspector refuses it",
                "everything in memory",
            )
        },
    },
    "09.5": {
        "no model": functools.partial(with_fit, epochs=1, returns="history"),
        "wrong shape": lambda path: new_model((32, 32, 3), 8),
        "pixels scaled outside": functools.partial(with_fit, scaled=False),
        "not trained": lambda path: new_model((32, 32, 3), 4),
        "trained on wrong labels": functools.partial(with_fit, shift=1),
    },
}

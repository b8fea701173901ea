"""Right and wrong answers to the exercises of lesson 01; a wrong one stands under the name of its mistake."""

import contextlib
import os
import random
import tempfile
import zlib
from collections import defaultdict
from pathlib import Path

import h5py
import numpy as np

from helpers import HDF5Writer, RowReader
from helpers.images import ImageError, read_image

# --- 01.1 -----------------------------------------------------------------------------------------------------------

IMAGE = 299 * 299 * 3
BYTES = {"uint8": 1, "float32": 4, "float64": 8}


def by_broadcasting(rows, image_type, label_type):
    """Arrays that take no memory say how large they would be."""
    image = np.broadcast_to(np.zeros((), image_type), (rows, 299, 299, 3))
    label = np.broadcast_to(np.zeros((), label_type), (rows, 101))
    return (image.nbytes + label.nbytes) / 10**9


def by_the_name(rows, image_type, label_type):
    """The bits stand in the name."""
    bits = [int(kind.strip("uintfloa")) for kind in (image_type, label_type)]
    return np.float64(rows) * (IMAGE * bits[0] + 101 * bits[1]) / 8 / 1e9


def size(rows, image_type, label_type, *, image=IMAGE, label=101, unit=1e9):
    """The right formula, with one thing exchanged at a time by the wrong answers."""
    return rows * (image * BYTES[image_type] + label * BYTES[label_type]) / unit


# --- 01.2 -----------------------------------------------------------------------------------------------------------


def by_recursion(path):
    """Own recursion, names with a slash in front, types as objects."""
    datasets, attributes = {}, {}

    def walk(item):
        for key in item.attrs:
            attributes[f"{item.name}@{key}"] = item.attrs[key]
        if hasattr(item, "shape"):
            datasets[item.name] = [item.shape, item.dtype]
        else:
            for child in item.values():
                walk(child)

    with h5py.File(path) as file:
        walk(file)
    return datasets, attributes


def with_a_stack(path):
    """A list of things to look at; shape by len and the handle's shape, types by name."""
    file = h5py.File(str(path), "r")
    datasets, attributes, waiting = {}, {}, [file]
    while waiting:
        item = waiting.pop()
        name = item.name.strip("/")
        attributes |= {name + "@" + key: value for key, value in item.attrs.items()}
        if isinstance(item, h5py.Group):
            waiting += list(item.values())
        else:
            datasets[name] = (item.shape, item.dtype.name)
    file.close()
    return [datasets, attributes]


def walked(
    path, *, keep=lambda item: isinstance(item, h5py.Dataset), root=True, entry=None, name=str, notes=h5py.HLObject
):
    """The right walk, with one thing exchanged at a time by the wrong answers."""
    entry = entry or (lambda item: (item.shape, str(item.dtype)))
    datasets, attributes = {}, {}

    def look(whole, item):
        if keep(item):
            datasets[name(whole)] = entry(item)
        if isinstance(item, notes):
            attributes.update({f"{whole}@{key}": value for key, value in item.attrs.items()})

    with h5py.File(path, "r") as file:
        if root:
            look("", file)
        file.visititems(look)
    return datasets, attributes


def top_only(path):
    """Looks at the first level."""
    with h5py.File(path, "r") as file:
        datasets = {key: (item.shape, str(item.dtype)) for key, item in file.items() if isinstance(item, h5py.Dataset)}
        return datasets, dict(file.attrs)


def asks_groups(path):
    """Takes all for datasets."""
    with h5py.File(path, "r") as file:
        return {key: (file[key].shape, str(file[key].dtype)) for key in file}, {}


def opened_to_write(path):
    """A mode typed from memory."""
    with h5py.File(path, "w") as file:
        return {name: (item.shape, str(item.dtype)) for name, item in file.items()}, dict(file.attrs)


def other_attribute_names(path):
    """With dots."""
    datasets, attributes = walked(path)
    return datasets, {name.replace("@", "."): value for name, value in attributes.items()}


def attributes_as_text(path):
    """Values as they are printed."""
    datasets, attributes = walked(path)
    return datasets, {name: str(value) for name, value in attributes.items()}


def half_of_them(path):
    """Only what is called images."""
    datasets, attributes = walked(path)
    return {name: entry for name, entry in datasets.items() if "images" in name}, attributes


# --- 01.3 -----------------------------------------------------------------------------------------------------------


def into_an_empty_array(dataset, rows):
    """Sorted by row, each to its place, a repeated row read once."""
    rows = np.asarray(rows) % len(dataset)
    out = np.empty((len(rows), *dataset.shape[1:]), dataset.dtype)
    for row in sorted(set(rows.tolist())):
        out[rows == row] = dataset[row : row + 1]
    return out


def read_direct(dataset, rows):
    """Past the detour of h5py's own arrays."""
    out = np.zeros((len(rows),) + dataset.shape[1:], dataset.dtype)
    for place, row in enumerate(rows):
        dataset.read_direct(out, np.s_[int(row) % len(dataset)], np.s_[place])
    return out


def with_a_reader(dataset, rows):
    """The kit's own."""
    with RowReader(dataset.file.filename, dataset.name) as reader:
        return reader.read(rows)


def unique_list(dataset, rows):
    """Right, by a list."""
    unique, back = np.unique(rows % len(dataset), return_inverse=True)
    return dataset[unique][back]


def one_slice(dataset, rows):
    """Reads all that lies between."""
    rows = rows % len(dataset)
    return dataset[rows.min() : rows.max() + 1][rows - rows.min()]


def sorted_in_place(dataset, rows):
    """As in the published answer."""
    rows.sort()
    return dataset[rows, ...]


def for_images(dataset, rows):
    """Shape and type are typed by hand."""
    out = np.zeros((len(rows), 6, 5, 3), np.uint8)
    for place, row in enumerate(rows):
        out[place] = dataset[row].reshape(-1)[:1] if dataset.ndim < 4 else dataset[row]
    return out


def slices_of_one(dataset, rows):
    """dataset[-1:0] is empty, so that negative rows are the first ones here."""
    return np.concatenate([dataset[max(row, 0) : max(row, 0) + 1] for row in rows])


def beyond(dataset, rows):
    """Counts from 1."""
    return np.stack([dataset[len(dataset) + row] for row in rows])


# --- 01.4 -----------------------------------------------------------------------------------------------------------


def with_the_writer(path, batches, classes, kind):
    """The kit's own writer."""
    batches = iter(batches)
    images, labels = next(batches)
    names = [f"class {number}" for number in range(classes)]
    with HDF5Writer(path, images.shape[1:], names, compression="gzip" if kind == "masks" else None) as writer:
        writer.append("train", images, labels)
        for images, labels in batches:
            writer.append("train", images, labels)


def labels_at_the_end(path, batches, classes, kind):
    """Labels are small: they may wait. A folder of its own for what is not finished; grows by doubling."""
    with tempfile.TemporaryDirectory(dir=Path(path).parent) as folder:
        name, numbers, images = f"{folder}/new", [], None
        file = h5py.File(name, "w")
        try:
            for pixels, some in batches:
                if images is None:
                    images = file.create_dataset(
                        "train_img",
                        (1, *pixels.shape[1:]),
                        maxshape=(None, *pixels.shape[1:]),
                        dtype=pixels.dtype,
                        chunks=(1, *pixels.shape[1:]),
                        **({"compression": "gzip", "compression_opts": 9} if kind == "masks" else {}),
                    )
                start, stop = len(numbers), len(numbers) + len(pixels)
                if stop > len(images):
                    images.resize(2 * stop, axis=0)
                for row, image in enumerate(pixels, start):
                    images[row] = image
                numbers.extend(some.tolist())
            images.resize(len(numbers), axis=0)
            file["train_labels"] = (np.array(numbers)[:, None] == np.arange(classes)).astype("u1")
            file.attrs["complete"] = np.True_
        finally:
            file.close()
        os.replace(name, path)  # noqa: PTH105 - another way to write it


def writer(
    path,
    batches,
    classes,
    kind,
    *,
    part=True,
    kinds="uint8",
    scale=1,
    eye="uint8",
    chunks=True,
    packs=None,
    done=True,
    mode="w",
):
    """A right writer, with one thing exchanged at a time by the wrong answers."""
    packed = packs[kind] if packs else {"masks": "gzip", "photos": None}[kind]
    name = Path(f"{path}.new") if part else Path(path)
    with h5py.File(name, mode) as file:
        for images, labels in batches:
            one_hot = np.eye(classes, dtype=eye)[labels] if eye else labels
            shape = (1, *images.shape[1:]) if chunks is True else chunks
            if "train_img" not in file:
                none = (None, *images.shape[1:])
                file.create_dataset(
                    "train_img", data=images * scale, dtype=kinds, maxshape=none, chunks=shape, compression=packed
                )
                file.create_dataset("train_labels", data=one_hot, maxshape=(None, *one_hot.shape[1:]), chunks=True)
                continue
            for key, rows in (("train_img", images * scale), ("train_labels", one_hot)):
                file[key].resize(len(file[key]) + len(rows), axis=0)
                file[key][-len(rows) :] = rows
        if done:
            file.attrs["complete"] = True
    if part:
        name.replace(path)


def with_changes(change, **how):
    """The right writer, and a change of the finished file."""

    def answer(path, batches, classes, kind):
        writer(path, batches, classes, kind, **how)
        with h5py.File(path, "r+") as file:
            change(file)

    return answer


def replaced(file, name, data, **how):
    """Put other data in the place of a dataset."""
    del file[name]
    file.create_dataset(name, data=data, **how)


def all_in_a_list(path, batches, classes, kind):
    """Collects everything, and then writes."""
    images, labels = zip(*batches, strict=True)
    writer(path, [(np.concatenate(images), np.concatenate(labels))], classes, kind)


def removes_the_path(path, batches, classes, kind):
    """Cleans up, and the older file with it."""
    try:
        writer(path, batches, classes, kind, part=False)
    except BaseException:
        Path(path).unlink()
        raise


def swallows(path, batches, classes, kind):
    """Keeps quiet."""
    with contextlib.suppress(Exception):
        writer(path, batches, classes, kind)


def equal_batches(path, batches, classes, kind):
    """Place i * n, with the length of the first batch."""
    parts = list(batches)
    n = len(parts[0][0])
    images = np.zeros((n * len(parts), *parts[0][0].shape[1:]), np.uint8)
    for number, (pixels, _) in enumerate(parts):
        images[number * n : (number + 1) * n] = pixels[:n]
    writer(path, [(images[:-1], np.zeros(len(images) - 1, int))], classes, kind)


# --- 01.5 -----------------------------------------------------------------------------------------------------------


def with_a_list_of_tests(path):
    """Each question a line."""
    with h5py.File(path) as file:
        images, labels = file["train_img"][:], file["train_labels"][:]
        chunks, sums = file["train_img"].chunks, file.get("train_crc32")
        kinds = [int(np.argmax(row)) for row in labels]
        pieces = [kinds[0]] + [two for one, two in zip(kinds, kinds[1:], strict=False) if one != two]
        tests = {
            "rows": images.shape[0] != labels.shape[0],
            "label": any(sorted(row.tolist()) != [0, 0, 1] for row in labels),
            "type": str(images.dtype) != "uint8",
            "chunks": chunks is not None and chunks != (1, *images.shape[1:]),
            "order": len(pieces) == len(set(pieces)),
            "bytes": sums is not None and [zlib.crc32(image.tobytes()) for image in images] != sums[:].tolist(),
        }
    return [name for name, is_wrong in tests.items() if is_wrong]


def looked_over(path, *, leave_out=(), first_only=False, **tests):
    """The right tests, with some exchanged by the wrong answers."""
    with h5py.File(path, "r") as file:
        images, labels = file["train_img"], file["train_labels"][:]
        numbers = labels.argmax(axis=1)
        known = {
            "rows": lambda: len(images) != len(labels),
            "label": lambda: ((labels != 0).sum(axis=1) != 1).any(),
            "type": lambda: images.dtype != np.uint8,
            "chunks": lambda: images.chunks is not None and images.chunks[0] > 1,
            "order": lambda: (np.diff(numbers) != 0).sum() < 3,
            "bytes": lambda: (
                "train_crc32" in file
                and any(zlib.crc32(row) != one for row, one in zip(images[:], file["train_crc32"][:], strict=True))
            ),
        }
        changed = {name: (lambda test=test: test(file, images, labels, numbers)) for name, test in tests.items()}
        found = [name for name, test in (known | changed).items() if name not in leave_out and test()]
    return set(found[:1] if first_only else found)


def looked_into(path):
    """A mode typed from memory, once more."""
    with h5py.File(path, "w") as file:
        return {"rows"} if len(file["train_img"]) != len(file["train_labels"]) else set()


def with_change(**how):
    """Answers with one test exchanged."""
    return lambda path: looked_over(path, **how)


# --- 01.6 -----------------------------------------------------------------------------------------------------------


def in_plain_python(folder, seed):
    """Lists and random.Random, all bytes in a dictionary."""
    dice, by_bytes, left_out, by_class = random.Random(seed), defaultdict(list), [], defaultdict(list)
    for place in sorted(os.listdir(folder)):  # noqa: PTH208 - another way to write it
        for name in sorted(os.listdir(folder / place)):  # noqa: PTH208
            by_bytes[(folder / place / name).read_bytes()].append(f"{place}/{name}")
    for names in by_bytes.values():
        places = {name.split("/")[0] for name in names}
        try:
            read_image(os.path.join(folder, names[0]))  # noqa: PTH118
            keep = names[-1] if len(places) == 1 else None
        except ImageError:
            keep = None
        left_out += [name for name in names if name != keep]
        if keep:
            by_class[places.pop()].append(keep)
    splits = {"train": [], "valid": [], "test": []}
    for number, place in enumerate(sorted(by_class)):
        names = by_class[place]
        dice.shuffle(names)
        for position, name in enumerate(names):
            split = ("test", "valid", "valid", *["train"] * 7)[position % 10]
            splits[split].append([name, number])
    for names in splits.values():
        dice.shuffle(names)
    return splits, tuple(left_out)


def planned(
    folder,
    seed,
    *,
    reads=True,
    copies="one",
    clash=True,
    gaps=False,
    cut=(7, 9),
    draw=True,
    mix=True,
    by_class=True,
    dice=None,
    ordered=True,
    pattern="*",
):
    """A right plan, with one thing exchanged at a time by the wrong answers."""
    rng = (dice or np.random.default_rng)(seed)
    files = [file for place in folder.iterdir() for file in place.glob(pattern)]
    files = sorted(files) if ordered else files
    places = defaultdict(list)
    for file in files:
        places[file.read_bytes()].append(file)
    usable, left_out = defaultdict(list), []
    for file in files:
        twins, name = places[file.read_bytes()], file.relative_to(folder).as_posix()
        in_two = len({twin.parent for twin in twins}) > 1
        is_copy = not in_two and len(twins) > 1 and (copies == "none" or copies == "one" and file != twins[0])
        if (in_two and clash) or is_copy or (reads and not _reads(file)):
            left_out.append(name)
        else:
            usable[file.parent.name].append(name)
    kinds = sorted(place.name for place in folder.iterdir()) if gaps else sorted(usable)
    pairs = [[(name, kinds.index(kind)) for name in usable[kind]] for kind in sorted(usable)]
    if not by_class:
        pairs = [[pair for some in pairs for pair in some]]
    splits = {"train": [], "valid": [], "test": []}
    for some in pairs:
        some = [some[place] for place in (rng.permutation(len(some)) if draw else range(len(some)))]
        first, second = (len(some) * part // 10 for part in cut)
        splits["train"] += some[:first]
        splits["valid"] += some[first:second]
        splits["test"] += some[second:]
    for some in splits.values():
        if mix:
            rng.shuffle(some)
    return splits, left_out


def _reads(file):
    try:
        read_image(file)
    except ImageError:
        return False
    return True


def with_plan(change=lambda splits, left_out, folder: (splits, left_out), **how):
    """Answers with one thing exchanged, and then a change of the result."""
    return lambda folder, seed: change(*planned(folder, seed, **how), folder)


def renamed(splits, left_out, folder):
    """Names as open() takes them."""
    return {key: [(str(folder / name), number) for name, number in some] for key, some in splits.items()}, left_out


def stops_at_a_broken_one(folder, seed):
    """Reads each picture, and has no plan for those that cannot be read."""
    for file in sorted(folder.rglob("*.jpg")):
        read_image(file)
    return planned(folder, seed)


def cleaned_up(splits, left_out, folder):
    """Deletes what it leaves out."""
    for name in left_out:
        (folder / name).unlink()
    return splits, left_out


def renumbered(splits, left_out, folder):
    """From 1."""
    return {key: [(name, number + 1) for name, number in some] for key, some in splits.items()}, left_out


RIGHT = {
    "01.1": {"by broadcasting": by_broadcasting, "by the name": by_the_name, "by a table": size},
    "01.2": {"by recursion": by_recursion, "with a stack": with_a_stack, "with visititems": lambda path: walked(path)},
    "01.3": {
        "into an empty array": into_an_empty_array,
        "with read_direct": read_direct,
        "with a reader": with_a_reader,
        "slices of one row": lambda dataset, rows: np.concatenate([
            dataset[row : row + 1] for row in (rows % len(dataset)).tolist()
        ]),
    },
    "01.4": {
        "with the kit's writer": with_the_writer,
        "labels at the end": labels_at_the_end,
        "in a file beside it": lambda path, batches, classes, kind: writer(path, batches, classes, kind),
    },
    "01.5": {"a list of tests": with_a_list_of_tests, "a set": looked_over},
    "01.6": {"in plain Python": in_plain_python, "with NumPy": with_plan()},
}

KEEP_ALL = {"masks": "gzip", "photos": "gzip"}
WRONG = {
    "01.1": {
        "wrong type": lambda *case: f"{size(*case)} GB",
        "MemoryError": lambda *case: np.zeros((10**9, 10**9), case[1]).nbytes / 1e9,
        "bytes, not GB": lambda *case: size(*case, unit=1),
        "another unit": lambda *case: size(*case, unit=1e6),
        "powers of two": lambda *case: size(*case, unit=2**30),
        "one colour": lambda *case: size(*case, image=299 * 299),
        "types not used": lambda rows, image_type, label_type: size(rows, "uint8", "uint8"),
        "bits for bytes": lambda *case: size(*case, unit=1e9 / 8),
        "labels left out": lambda *case: size(*case, label=0),
        "one number a label": lambda *case: size(*case, label=1),
        "labels as the images": lambda rows, image_type, label_type: size(rows, image_type, image_type),
        "rounded": lambda *case: round(size(*case), 2),
        "another size": lambda *case: size(*case, image=224 * 224 * 3),
    },
    "01.2": {
        "only the top": top_only,
        "AttributeError": asks_groups,
        "groups among the datasets": lambda path: walked(
            path, keep=lambda item: item.name != "/", entry=lambda item: getattr(item, "shape", ())
        ),
        "the last part of the name": lambda path: walked(path, name=lambda whole: whole.split("/")[-1]),
        "reads the pixels": lambda path: walked(path, entry=lambda item: (item[()].shape, str(item[()].dtype))),
        "datasets missing": half_of_them,
        "emptied the file": opened_to_write,
        "wrong entry": lambda path: walked(path, entry=lambda item: item.shape),
        "attributes of the file left out": lambda path: walked(path, root=False),
        "attributes of groups left out": lambda path: _without_groups(path),
        "attributes of datasets left out": lambda path: walked(path, notes=h5py.Group),
        "other names of attributes": other_attribute_names,
        "other values of attributes": attributes_as_text,
    },
    "01.3": {
        "forgot to return": lambda dataset, rows: print([dataset[row] for row in rows]),
        "wrong type": lambda dataset, rows: [dataset[row] for row in rows],
        "TypeError": lambda dataset, rows: dataset[rows],
        "file order": lambda dataset, rows: dataset[np.sort(rows)],
        "changed its input": sorted_in_place,
        "other rows": lambda dataset, rows: dataset[: len(rows)],
        "repeated rows once": lambda dataset, rows: np.stack([dataset[row] for row in dict.fromkeys(rows.tolist())]),
        "negative rows": slices_of_one,
        "list of rows": unique_list,
        "reads more than asked": lambda dataset, rows: dataset[:][rows],
        "made for images": for_images,
        "IndexError": beyond,
    },
    "01.4": {
        "no file": lambda path, batches, classes, kind: list(batches),
        "datasets missing": with_changes(lambda file: file.move("train_labels", "labels")),
        "rows lost": equal_batches,
        "rows never written": with_changes(lambda file: file["train_img"].resize(100, axis=0)),
        "wrong shape": with_changes(lambda file: replaced(file, "train_img", file["train_img"][..., 0])),
        "not bytes": lambda *given: writer(*given, kinds="float64", scale=1 / 255),
        "labels not one-hot": lambda *given: writer(*given, eye=None),
        "labels of another type": lambda *given: writer(*given, eye="float64"),
        "classes counted from labels": with_changes(
            lambda file: replaced(
                file, "train_labels", file["train_labels"][:][:, : file["train_labels"][:].argmax(axis=1).max() + 1]
            )
        ),
        "other pixels": lambda *given: writer(*given, scale=3),
        "labels do not fit": with_changes(lambda file: replaced(file, "train_labels", file["train_labels"][:][::-1])),
        "chunks by chance": lambda *given: writer(*given, chunks=None),
        "photographs packed": lambda *given: writer(*given, packs=KEEP_ALL),
        "masks not packed": lambda *given: writer(*given, packs={"masks": None, "photos": None}),
        "holds all images": all_in_a_list,
        "half a file": lambda *given: writer(*given, part=False),
        "older file lost": removes_the_path,
        "error swallowed": swallows,
        "trips over what is left": lambda *given: writer(*given, mode="x"),
        "not marked complete": lambda *given: writer(*given, done=False),
    },
    "01.5": {
        "other names": lambda path: {"chunk"} if looked_over(path) else {"none"},
        "wrong type": lambda path: bool(looked_over(path)),
        "false alarm": with_change(order=lambda file, images, labels, numbers: len(set(numbers[:6])) == 1),
        "contiguous taken for a fault": with_change(
            chunks=lambda file, images, labels, numbers: images.chunks != (1, *images.shape[1:])
        ),
        "rows missed": with_change(rows=lambda file, images, labels, numbers: len(labels) < len(images)),
        "label missed": with_change(label=lambda file, images, labels, numbers: (labels.sum(axis=1) == 0).any()),
        "type missed": with_change(type=lambda file, images, labels, numbers: images.dtype.kind == "f"),
        "chunks missed": with_change(leave_out=("chunks",)),
        "order missed": with_change(order=lambda file, images, labels, numbers: (np.diff(numbers) >= 0).all()),
        "bytes missed": with_change(
            bytes=lambda file, images, labels, numbers: (
                "train_crc32" in file
                and any(zlib.crc32(images[row]) != file["train_crc32"][row] for row in range(min(16, len(images))))
            )
        ),
        "emptied the file": looked_into,
        "one fault only": with_change(first_only=True),
        "KeyError": with_change(
            bytes=lambda file, images, labels, numbers: any(
                zlib.crc32(images[row]) != file["train_crc32"][row] for row in range(len(images))
            )
        ),
        "TypeError": with_change(chunks=lambda file, images, labels, numbers: images.chunks[0] > 1),
    },
    "01.6": {
        "ImageError": stops_at_a_broken_one,
        "names with the folder": with_plan(renamed),
        "files not accounted for": with_plan(lambda splits, left_out, folder: (splits, left_out[:2])),
        "file in two places": with_plan(
            lambda splits, left_out, folder: (splits | {"test": splits["train"][:5]}, left_out)
        ),
        "broken pictures kept": with_plan(reads=False),
        "not a picture": lambda folder, seed: _with_notes(folder, seed),
        "copies kept": with_plan(copies="all"),
        "copies all dropped": with_plan(copies="none"),
        "in two classes": with_plan(clash=False),
        "good pictures left out": with_plan(
            lambda splits, left_out, folder: (
                splits | {"test": splits["test"][1:]},
                [*left_out, splits["test"][0][0]],
            )
        ),
        "files removed": with_plan(cleaned_up),
        "numbers with gaps": with_plan(gaps=True),
        "other class numbers": with_plan(renumbered),
        "not stratified": with_plan(by_class=False),
        "other sizes": with_plan(cut=(8, 9)),
        "rows sorted by class": with_plan(mix=False),
        "not drawn": with_plan(draw=False),
        "cannot be repeated": with_plan(dice=lambda seed: np.random.default_rng()),
        "seed not used": with_plan(dice=lambda seed: np.random.default_rng(0)),
        "order of the listing": with_plan(ordered=False),
    },
}


def _without_groups(path):
    datasets, attributes = walked(path)
    return datasets, {key: value for key, value in attributes.items() if key[0] == "@" or key.split("@")[0] in datasets}


def _with_notes(folder, seed):
    """Takes a file that is no picture for one, if it says .txt."""
    splits, left_out = planned(folder, seed)
    return splits | {"train": [*splits["train"], ("donuts/notes.txt", 1)]}, [n for n in left_out if "notes" not in n]

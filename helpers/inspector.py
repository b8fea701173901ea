"""Look into an HDF5 file of images before training on it: what is in it, what is wrong with it, what to do.

``python -m helpers.inspector FILE`` prints the report; exit code 0: can be trained on (warnings allowed), 1: has
faults, 2: cannot be read. Opens the file read-only; memory does not depend on its size. Labels are read whole; of the
images a sample is looked at, or all of them with ``verify=True`` (``--verify``).
"""

from __future__ import annotations

import argparse
import errno
import math
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import h5py
import numpy as np

from helpers import layout
from helpers.images import ImageError, decode_jpeg
from helpers.report import Report, SplitReport, size_text

CHUNK_CACHE_BYTES = 2**20  # a dataset's chunk cache in HDF5 1.14, which h5py 3.14 contains, unless set otherwise
NEIGHBOURS = 32  # rows over which the mix of classes is judged: one batch of Keras' default size
SAMPLED_IMAGES = 256  # per split, a quarter of them at the end, where a killed writer leaves black images
SAMPLE_BYTES = 256 * 2**20  # read at most about this much for the sample: badly cut chunks cost 0.6 GB an image
_ROWS_SHOWN = 20  # in a sentence
BLOCK_BYTES = 8 * 2**20  # read at once
MOST_CLASSES = 100_000  # a larger class number is an id, not a class; counting would need memory without bound

_NAMES = {
    "train": "train",
    "training": "train",
    "valid": "valid",
    "val": "valid",
    "validation": "valid",
    "test": "test",
}
_NEXT_STEP = {
    "missing": "List the folder: the name may be spelled differently.",
    "folder": "python -m data_scripts.build_hdf5 FOLDER --out FILE.h5",
    "locked": "List who has it open: lsof FILE (Linux, macOS).",
    "never-closed": "If nothing writes to it, h5clear -s FILE removes the mark; its last rows may be missing.",
    "truncated": "Compare its size and checksum with those of the original.",
    "not-hdf5": "Look at its first bytes: head -c 100 FILE.",
    "damaged": "Compare its checksum with that of the original.",
    "permission": "ls -l FILE shows whose it is.",
}


def inspect_file(
    path: str | os.PathLike, *, images: str | None = None, labels: str | None = None, verify: bool = False
) -> Report:
    """Inspect ``path``; what is wrong with the file is in the report, not raised.

    ``images`` and ``labels`` name the datasets of a foreign file; without them pairs are guessed by name and shape.
    ``verify`` looks at every image instead of a sample. Raises LayoutError when only one of the two names is given.
    """
    if (images is None) != (labels is None):
        raise layout.LayoutError(
            f"images and labels name a pair of datasets: give both or neither; got {images!r} and {labels!r}."
        )
    report = Report(Path(path))
    try:
        with layout.open_file(path, rdcc_nbytes=2 * BLOCK_BYTES) as file:
            report.size_bytes = report.path.stat().st_size
            _inspect_open(report, file, images, labels, verify)
    except layout.HDF5FileError as error:
        code = _open_code(report.path, error)
        report.add_fault(code, error.strerror, _NEXT_STEP[code])
    except (OSError, RuntimeError, KeyError) as error:  # what h5py raises for damage below the root
        message = f"{path} opens, but what is in it cannot be read. HDF5 said: {error}"
        report.add_fault("damaged", message, _NEXT_STEP["damaged"])
    return report


def _open_code(path: Path, error: layout.HDF5FileError) -> str:
    said = str(error.__cause__ or "")
    if error.errno in {errno.ENOENT, errno.ENAMETOOLONG}:
        return "missing"
    if error.errno == errno.EISDIR:
        return "folder"
    for clue, code in (
        ("h5clear", "never-closed"),
        ("unable to lock file", "locked"),
        ("already open", "locked"),
        ("truncated file", "truncated"),
        ("ermission denied", "permission"),
    ):
        if clue in said:
            return code
    if "file signature not found" in said:
        with path.open("rb") as file:
            return "not-hdf5" if any(file.read(8)) else "never-closed"
    return "damaged"


def _inspect_open(report: Report, file: h5py.File, images, labels, verify: bool) -> None:
    report.datasets = {name: _describe(file[name]) for name in layout.dataset_names(file)}
    report.readable = True
    report.attributes = {name: _short(value) for name, value in file.attrs.items()}
    info = layout.file_info(file)
    report.class_names = info.class_names
    if info.complete is False or (info.complete is None and info.kit_version is not None):
        report.add_fault(
            "incomplete",
            f"the process that wrote {report.path} stopped before its end; its last rows may be empty.",
            "Build it again. A builder of this kit leaves such a file only under the name FILE.part.",
        )
    pairs = {_split_name(images): (images, labels)} if images else guess_pairs(file)
    if not pairs:
        report.add_fault(
            "no-images",
            f"no pair of images and labels was recognised among {', '.join(report.datasets) or 'no datasets'}.",
            "Name the datasets: --images NAME --labels NAME, or images= and labels=.",
        )
    for split, (image_name, label_name) in pairs.items():
        _inspect_split(report, file, split, image_name, label_name, verify)
    if report.splits and report.ok and not _rows_to_train_on(report):
        report.add_fault(
            "no-rows",
            f"no image to train on is in {report.path}.",
            "Build it again with a training split, or name other datasets: --images NAME --labels NAME.",
        )
    if pairs and info.class_names is None:
        report.add_warning(
            "no-class-names",
            f"{report.path} does not say what its classes are called.",
            "Pass classes= to HDF5Sequence, or store them: file.attrs['class_names'] = [...].",
        )
    if report.splits:
        how = "all images" if verify else f"a sample of up to {SAMPLED_IMAGES} images a split (all: --verify)"
        report.checked = f"Looked at every label and at {how}."


def _rows_to_train_on(report: Report) -> int:
    rows = {name: split.n for name, split in report.splits.items()}
    return rows.get("train", max(rows.values()))


# ------------------------------------------------------------------------------------------------ foreign files


def guess_pairs(file: h5py.File) -> dict[str, tuple[str, str]]:
    """Pairs of image and label datasets, by split; the kit's own names first, else by shape and words in the name."""
    own = {split: (layout.image_dataset(split), layout.label_dataset(split)) for split in layout.SPLITS}
    if found := {split: pair for split, pair in own.items() if pair[0] in file and pair[1] in file}:
        return found
    names = layout.dataset_names(file)
    pairs: dict[str, tuple[str, str]] = {}
    for image in (name for name in names if _looks_like_images(file[name])):
        labels = [name for name in names if name != image and _looks_like_labels(file[name])]
        if labels:
            best = max(labels, key=lambda name, image=image: _fit(file, image, name))
            split = _split_name(image)
            pairs[split if split not in pairs else image] = (image, best)
    return pairs


def _looks_like_images(data: h5py.Dataset) -> bool:
    vlen = h5py.check_vlen_dtype(data.dtype)
    if data.ndim == 1:
        return vlen is not None and np.dtype(vlen) == np.uint8
    return data.ndim in {3, 4} and data.dtype.kind in "uif" and min(data.shape[1:3]) > 2


def _looks_like_labels(data: h5py.Dataset) -> bool:
    return data.ndim in {1, 2} and data.dtype.kind in "uif" and data.size > 0


def _words(name: str) -> set[str]:
    return {_NAMES.get(word, word) for word in re.split(r"[^a-z]+", name.lower()) if word}


def _fit(file: h5py.File, image: str, label: str) -> tuple:
    looks = bool(_words(label) & {"label", "labels", "y", "target", "targets", "class", "classes"})
    return len(_words(image) & _words(label)), len(file[image]) == len(file[label]), looks, file[label].ndim == 2


def _split_name(image: str) -> str:
    return next((split for split in layout.SPLITS if split in _words(image)), image)


# ---------------------------------------------------------------------------------------------------- one split


def _inspect_split(report: Report, file: h5py.File, split: str, image_name: str, label_name: str, verify: bool) -> None:
    missing = [name for name in (image_name, label_name) if not isinstance(file.get(name), h5py.Dataset)]
    for name in missing:
        report.add_fault(
            "no-dataset", f"{report.path} has no dataset {name!r}.", f"It has: {', '.join(report.datasets)}."
        )
    if missing:
        return
    before = len(report.faults)
    images, labels = file[image_name], file[label_name]
    rows, label_rows = layout.row_count(images), layout.row_count(labels)
    if rows != label_rows:
        report.add_fault(
            "lengths-differ",
            f"{image_name} has {rows} rows but {label_name} has {label_rows}.",
            "Rebuild the file: HDF5Writer.append writes both together.",
        )
    _check_form(report, images, labels)
    if len(report.faults) == before:
        _check_layout_agrees(report, image_name, label_name)
    _check_chunks(report, images)
    if rows:
        _guarded(report, images, lambda: _check_pixels(report, images, verify))
    counts: tuple[int, ...] = ()
    if _looks_like_labels(labels):
        counts = _guarded(report, labels, lambda: _check_labels(report, labels)) or ()
    report.splits[split] = SplitReport(image_name, label_name, rows, counts)


def _guarded(report: Report, data: h5py.Dataset, check):
    """Run ``check``; an error of HDF5 while reading is a fault of the file."""
    try:
        return check()
    except (OSError, RuntimeError) as error:
        report.add_fault(
            "unreadable-rows",
            f"rows of {_name(data)} cannot be read. HDF5 said: {error}",
            "Copy or build the file again.",
        )


def _check_form(report: Report, images: h5py.Dataset, labels: h5py.Dataset) -> None:
    name = _name(images)
    if images.ndim > 1 and images.dtype.kind == "f":
        report.add_fault(
            "float-images",
            f"{name} holds {images.dtype}: {images.dtype.itemsize} times the bytes of uint8, to read in every epoch.",
            "Store uint8 and scale in the model: helpers.models.normalization. data_scripts.build_hdf5 does it.",
        )
    elif images.ndim > 1 and (images.ndim != 4 or images.shape[-1] != 3 or images.dtype != np.uint8):
        report.add_fault(
            "image-shape",
            f"{name} has shape {images.shape} and type {images.dtype}; expected (n, height, width, 3) uint8.",
            "Rebuild the file from the images: data_scripts.build_hdf5.",
        )
    if not (labels.ndim == 2 and labels.shape[1] and labels.dtype.kind in "uif") and not (
        labels.ndim == 1 and labels.dtype.kind in "ui"
    ):
        report.add_fault(
            "label-shape",
            f"{_name(labels)} has shape {labels.shape} and type {labels.dtype}; expected one-hot rows (n, classes) "
            "or class numbers (n,) of an integer type.",
            "Store class numbers as int64, or one-hot rows as uint8.",
        )
    elif labels.ndim == 2 and report.class_names is not None and len(report.class_names) != labels.shape[1]:
        report.add_fault(
            "class-count",
            f"{_name(labels)} has {labels.shape[1]} columns, but the file names {len(report.class_names)} classes.",
            "Rebuild the labels from the list of names.",
        )


def _check_layout_agrees(report: Report, image_name: str, label_name: str) -> None:
    """What layout refuses, a sequence cannot serve: whatever the checks above did not name."""
    try:
        layout.read_split_info(report.path, images=image_name, labels=label_name)
    except layout.IncompleteFileError:
        return  # reported for the whole file
    except layout.LayoutError as error:
        report.add_fault("layout", str(error), "")


def _check_chunks(report: Report, images: h5py.Dataset) -> None:
    if images.chunks is None or images.ndim < 2:
        return
    chunk_bytes = math.prod(images.chunks) * images.dtype.itemsize
    touched = math.prod(-(-side // step) for side, step in zip(images.shape[1:], images.chunks[1:], strict=True))
    advice = "Build it again from its images (data_scripts.build_hdf5): one image a chunk."
    if touched > 1:
        report.add_warning(
            "cut-chunks",
            f"chunks {images.chunks} of {_name(images)} cut the images: to read one image, {touched:,} chunks of "
            f"{size_text(touched * chunk_bytes)} are fetched.",
            advice,
        )
    elif images.chunks[0] > 1 and chunk_bytes > CHUNK_CACHE_BYTES and _filters(images):
        report.add_warning(
            "large-chunks",
            f"a chunk of {_name(images)} holds {images.chunks[0]} images, {size_text(chunk_bytes)} unpacked, more than "
            f"the chunk cache ({size_text(CHUNK_CACHE_BYTES)}): shuffled reading unpacks all of it for each image.",
            advice,
        )


def _check_pixels(report: Report, images: h5py.Dataset, verify: bool) -> None:
    name = _name(images)
    if missing := _chunks_never_written(images):
        report.add_fault(
            "never-written",
            f"{missing[0]:,} of {missing[1]:,} chunks of {name} were never written; their images read as black.",
            "The process that wrote the file was stopped. Build it again.",
        )
        return
    empty, broken, unreadable, looked_at = [], [], [], 0
    for row, image in _images_to_look_at(images, verify):
        looked_at += 1
        if isinstance(image, OSError):
            unreadable.append(row)
            said = image
        elif not image.size or not image.any():
            empty.append(row)
        elif image.ndim == 1 and not _decodes(image):
            broken.append(row)
    of = f"{looked_at} images looked at" if looked_at < len(images) else f"{looked_at} images"
    if unreadable:
        rows = ", ".join(map(str, unreadable[:_ROWS_SHOWN])) + (" ..." if len(unreadable) > _ROWS_SHOWN else "")
        report.add_fault(
            "unreadable-rows",
            f"{len(unreadable)} of {of} in {name} cannot be read: rows {rows}. HDF5 said: {said}",
            "Copy or build the file again, or leave these rows out: rows=.",
        )
    if empty:
        report.add_fault(
            "black-images",
            f"{len(empty)} of {of} in {name} hold only zeros; the first is row {empty[0]}.",
            "They were never written, or their source is empty. Build the file again, or leave these rows out: rows=.",
        )
    if broken:
        report.add_fault(
            "broken-images",
            f"{len(broken)} of {of} in {name} are not JPEG bytes; the first is row {broken[0]}.",
            "Build the file again from the images.",
        )


def _chunks_never_written(data: h5py.Dataset) -> tuple[int, int] | None:
    if data.chunks is None:
        return None
    total = math.prod(-(-side // step) for side, step in zip(data.shape, data.chunks, strict=True))
    written = data.id.get_num_chunks()
    return (total - written, total) if written < total else None


def _images_to_look_at(data: h5py.Dataset, verify: bool) -> Iterator[tuple[int, np.ndarray | OSError]]:
    """(row, image) of all images or of a sample; the error instead of an image that HDF5 cannot read."""
    row_bytes = max(1, math.prod(data.shape[1:]) * data.dtype.itemsize)
    if verify:
        step = max(1, BLOCK_BYTES // row_bytes)
        for start in range(0, len(data), step):
            try:
                yield from enumerate(data[start : start + step], start)
            except OSError:
                yield from ((row, _row_or_error(data, row)) for row in range(start, min(start + step, len(data))))
        return
    chunks = data.chunks or (1, *data.shape[1:])
    pieces = math.prod(-(-side // step) for side, step in zip(data.shape[1:], chunks[1:], strict=True))
    cost = max(row_bytes, pieces * math.prod(chunks) * data.dtype.itemsize if data.chunks else 0)
    for row in _sampled_rows(len(data), min(SAMPLED_IMAGES, max(4, SAMPLE_BYTES // cost))):
        yield row, _row_or_error(data, row)


def _row_or_error(data: h5py.Dataset, row: int) -> np.ndarray | OSError:
    try:
        return data[row]
    except OSError as error:
        return error


def _sampled_rows(n: int, most: int) -> list[int]:
    if n <= most:
        return list(range(n))
    tail = np.arange(n - most // 4, n)
    spread = np.linspace(0, n - len(tail) - 1, most - len(tail)).astype(np.int64)
    return np.concatenate([spread, tail]).tolist()


def _decodes(data: np.ndarray) -> bool:
    try:
        decode_jpeg(data)
    except ImageError:
        return False
    return True


# ------------------------------------------------------------------------------------------------------- labels


def _check_labels(report: Report, labels: h5py.Dataset) -> tuple[int, ...]:
    """Check every label row, block by block. Returns the images of each class."""
    width = labels.shape[1] if labels.ndim == 2 else None
    limit = width or (len(report.class_names) if report.class_names is not None else MOST_CLASSES)
    counts, bad, first_bad, mixes = np.zeros(width or 0, np.int64), 0, -1, []
    for start, block in _label_blocks(labels):
        wrong = _wrong_rows(block, limit)
        if wrong.any() and first_bad < 0:
            first_bad = start + int(wrong.argmax())
        bad += int(wrong.sum())
        numbers = (block.argmax(axis=1) if width else block.astype(np.int64))[~wrong]
        counts = _add(counts, np.bincount(numbers))
        mixes.append(_classes_among_neighbours(numbers))
    if bad:
        _report_bad_labels(report, labels, bad, first_bad, limit)
    if report.class_names is not None:
        counts = _add(counts, np.zeros(len(report.class_names), np.int64))
    _check_order(report, labels, counts, np.concatenate(mixes))
    return tuple(counts.tolist())


def _label_blocks(labels: h5py.Dataset) -> Iterator[tuple[int, np.ndarray]]:
    row_bytes = math.prod(labels.shape[1:]) * labels.dtype.itemsize
    step = NEIGHBOURS * max(1, BLOCK_BYTES // row_bytes // NEIGHBOURS)
    for start in range(0, len(labels), step):
        yield start, labels[start : start + step]


def _wrong_rows(block: np.ndarray, limit: int) -> np.ndarray:
    if block.ndim == 2:
        return layout.not_onehot(block)
    if block.dtype.kind == "f":
        return ~((block >= 0) & (block < limit) & (block == np.floor(block)))
    return (block < 0) | (block >= limit)


def _add(counts: np.ndarray, more: np.ndarray) -> np.ndarray:
    total = np.zeros(max(len(counts), len(more)), np.int64)
    total[: len(counts)] += counts
    total[: len(more)] += more
    return total


def _classes_among_neighbours(numbers: np.ndarray) -> np.ndarray:
    whole = numbers[: len(numbers) // NEIGHBOURS * NEIGHBOURS].reshape(-1, NEIGHBOURS)
    return 1 + np.count_nonzero(np.diff(np.sort(whole, axis=1), axis=1), axis=1)


def _report_bad_labels(report: Report, labels: h5py.Dataset, bad: int, first_bad: int, limit: int) -> None:
    if labels.ndim == 2 and np.isclose(labels[first_bad].sum(dtype=np.float64), 1, atol=1e-3):
        report.add_fault(
            "soft-labels",
            f"{bad} of {len(labels)} rows of {_name(labels)} sum to 1, but not as one 1 among zeros; the first is row "
            f"{first_bad}.",
            "Store one-hot rows or class numbers; smooth labels in the loss: label_smoothing=.",
        )
    elif labels.ndim == 2:
        report.add_fault(
            "onehot-sum",
            f"{bad} of {len(labels)} rows of {_name(labels)} do not sum to 1; the first is row {first_bad}.",
            "Rows of zeros were never written: build the file again. Otherwise store one 1 a row.",
        )
    else:
        report.add_fault(
            "label-range",
            f"{bad} of {len(labels)} class numbers in {_name(labels)} are not in 0 to {limit - 1}; the first is "
            f"{labels[first_bad]} in row {first_bad}.",
            "Number the classes from 0, in the order of class_names.",
        )


def _check_order(report: Report, labels: h5py.Dataset, counts: np.ndarray, mixes: np.ndarray) -> None:
    if len(mixes) < 2:
        return
    shares = counts / max(1, counts.sum())
    shuffled = float(np.sum(1 - (1 - shares) ** NEIGHBOURS))  # expected number of classes among randomly drawn rows
    if shuffled > 1.5 and mixes.mean() < shuffled / 2:
        report.add_warning(
            "class-sorted",
            f"{_name(labels)} is sorted by class: {NEIGHBOURS} neighbouring rows hold {mixes.mean():.1f} classes on "
            f"average; shuffled rows would hold {shuffled:.1f}.",
            'Train with shuffle="full", and never cut validation rows off its end; or build it again: '
            "data_scripts.build_hdf5 mixes the rows.",
        )


# --------------------------------------------------------------------------------------------------------- words


def _name(data: h5py.Dataset) -> str:
    return data.name.lstrip("/")


def _filters(data: h5py.Dataset) -> str:
    plist = data.id.get_create_plist()
    names = {h5py.h5z.FILTER_DEFLATE: "gzip", h5py.h5z.FILTER_SHUFFLE: "shuffle", h5py.h5z.FILTER_LZF: "lzf"}
    used = [plist.get_filter(place)[0] for place in range(plist.get_nfilters())]
    return "+".join(names.get(code, f"filter {code}") for code in used)


def _describe(data: h5py.Dataset) -> str:
    vlen = h5py.check_vlen_dtype(data.dtype)
    kind = f"variable-length {np.dtype(vlen)}" if vlen is not None else str(data.dtype)
    chunks = f"chunks {data.chunks}" if data.chunks else "one piece (contiguous)"
    return f"{data.shape} {kind}, {chunks}, {_filters(data) or 'not compressed'}"


def _short(value) -> str:
    if isinstance(value, np.ndarray):
        parts = [f"{part:.4g}" if value.dtype.kind == "f" else layout.as_text(part) for part in value.ravel()[:4]]
        return ", ".join(parts) + (f" and {value.size - 4} more" if value.size > 4 else "")
    text = layout.as_text(value)
    return text if len(text) <= 80 else text[:77] + "..."


def main(argv: list[str] | None = None) -> int:
    """The command line. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m helpers.inspector", description=__doc__.split("\n\n")[0])
    parser.add_argument("file", help="an HDF5 file")
    parser.add_argument("--images", help="name of the image dataset of a foreign file")
    parser.add_argument("--labels", help="name of its label dataset")
    parser.add_argument("--verify", action="store_true", help="look at every image, not at a sample")
    options = parser.parse_args(argv)
    if (options.images is None) != (options.labels is None):
        parser.error("--images and --labels name a pair of datasets: give both or neither.")
    report = inspect_file(options.file, images=options.images, labels=options.labels, verify=options.verify)
    print(report)  # noqa: T201 - a command line program
    return report.exit_code


if __name__ == "__main__":
    sys.exit(main())

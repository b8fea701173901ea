"""All checks of one split: a pair of datasets, images and labels. Findings go into the report."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np

from helpers import heap, layout, outside, places, tree
from helpers.direct import file_state
from helpers.epoch_cost import EpochCost, epoch_cost
from helpers.label_checks import report_labels
from helpers.label_scan import MOST_CLASSES, LabelScan, class_limit_is_sane, scan_labels
from helpers.pairs import looks_like_labels
from helpers.pixel_checks import check_pixels, verify_pixels
from helpers.pixel_scan import LARGEST_IMAGE_BYTES, Images, image_bytes
from helpers.report import Report, SplitReport
from helpers.words import RECHUNK, listed, size_text

CHUNK_CACHE_BYTES = 2**20  # a dataset's chunk cache in HDF5 1.14, which h5py 3.14 contains, unless set otherwise
_MOST_PACKED = 1100  # gzip packs a byte run at most 1032 to 1: a shape that claims more than that is not in the file
_REBUILD = "Build the file again from the images: data_scripts.build_hdf5."
_COPY = "Copy or build the file again."


def check_split(
    report: Report, file: h5py.File, split: str, names: tuple[str, str], step: Callable | None = None
) -> None:
    """Check one pair of datasets; ``names`` are those of images and labels.

    ``step(rows)`` is called while every image is looked at; None looks at a sample.
    """
    images, labels = (_opened(report, file, name) for name in names)
    if images is None or labels is None:
        return
    rows, label_rows = layout.row_count(images), layout.row_count(labels)
    before = len(report.faults)
    if rows != label_rows:
        report.add_fault(
            "lengths-differ",
            f"{names[0]} has {rows} rows but {names[1]} has {label_rows}.",
            "Rebuild the file: HDF5Writer.append writes both together.",
        )
    _check_form(report, images, labels)
    if len(report.faults) == before:
        _check_layout_agrees(report, file, names)
    if all([_is_plausible(report, images), _is_plausible(report, labels)]):
        stored, label_places = _stored(report, images), _stored(report, labels)
        if stored is not None and label_places is not None:
            _check_chunks(report, images)
            scan = _scanned(report, labels, label_places)
            _check_images(
                report, file, split, (Images(images, names[0], stored.heap, stored.places), stored), scan, step
            )
            _report_labels(report, labels, label_places, scan)
            cost = _guarded(report, images, lambda: _check_cost(report, images, stored))
            counts, mix = ((), None) if scan is None else (tuple(scan.counts.tolist()), scan.mix)
            report.splits[split] = SplitReport(*names, rows, counts, mix, cost)


def rows_to_verify(file: h5py.File, name: str) -> int:
    """Rows of an image dataset; 0 when it cannot be opened."""
    try:
        data = outside.find(file, name)[0]
        return layout.row_count(data) if isinstance(data, h5py.Dataset) else 0
    except tree.DAMAGE:
        return 0


# ------------------------------------------------------------------------------------------------------ the dataset


def _opened(report: Report, file: h5py.File, name: str) -> h5py.Dataset | None:
    """The dataset ``name``; None, and a fault, when it or a file that it comes from is missing."""
    data, sources = outside.find(file, name)
    missing = [source for source in sources if source.fault]
    for source in missing:
        code = "broken-link" if source.way == outside.EXTERNAL_LINK else "missing-source"
        if code == "missing-source" or not any(fault.code == code for fault in report.faults):
            report.add_fault(
                code,
                f"{source.missing}: HDF5 serves empty rows in its place, without a word.",
                "Bring the other file back, or build this one again.",
            )
    if missing:
        return None
    if not isinstance(data, h5py.Dataset):
        have = listed(report.datasets) or "no datasets"
        report.add_fault("no-dataset", f"{report.path} has no dataset {name!r}.", f"It has: {have}.")
        return None
    if sources:
        report.add_warning(
            "outside-file",
            f"{name} lies outside this file: {layout.where_outside(sources)} is read as well.",
            f"Whoever changes that changes your data. {RECHUNK} brings all into one file.",
        )
    return data


def _is_plausible(report: Report, data: h5py.Dataset) -> bool:
    """Whether rows are worth reading: the file can hold as much as the shape claims, and an image fits into memory."""
    name = tree.object_name(data)
    if layout.row_count(data) and image_bytes(data) > LARGEST_IMAGE_BYTES:
        report.add_fault(
            "image-size",
            f"one row of {name} takes {size_text(image_bytes(data))}: its shape is {data.shape}.",
            "No row was looked at. If that is not meant, the file is damaged: copy or build it again.",
        )
        return False
    size = data.size * data.dtype.itemsize if data.size else 0
    held = data.id.get_storage_size()
    is_here = data.id.get_create_plist().get_layout() in {h5py.h5d.CHUNKED, h5py.h5d.CONTIGUOUS}
    if size > 2**30 and is_here and size > _MOST_PACKED * held:
        report.add_fault(
            "never-written",
            f"{name} should hold {size_text(size)}, and {size_text(held)} of it were written.",
            "The process that wrote the file was stopped, or the file is damaged. Build it again.",
        )
        return False
    return True


@dataclass(frozen=True)
class _Stored:
    """Where the bytes of a dataset lie, as far as that can be known."""

    places: places.Places | None
    heap: heap.HeapRows | None  # of variable-length rows

    @property
    def unwritten(self) -> tuple[int, int] | None:
        """How many chunks were never written, and of how many; None when all were."""
        if self.places is None:
            return None
        missing = int(np.count_nonzero(self.places.offsets == places.MISSING))
        return (missing, len(self.places.offsets)) if missing else None


def _stored(report: Report, data: h5py.Dataset) -> _Stored | None:
    """Look up where the bytes lie; None, and a fault, when the index cannot be true. A reader refuses the same."""
    if not data.shape:
        return _Stored(None, None)  # a single value, or none at all
    name = tree.object_name(data)
    try:
        found = places.find_places(data, report.path, name)
        if found is not None:
            places.check_apart(data, found, report.path, name)
        state = file_state(Path(report.path).stat())
        is_vlen = h5py.check_vlen_dtype(data.dtype) is not None
        return _Stored(found, heap.locate_heap(data, found, report.path, name, state) if is_vlen else None)
    except layout.HDF5FileError as error:
        report.add_fault("damaged-index", str(error), _COPY)
        return None


def _scanned(report: Report, labels: h5py.Dataset, stored: _Stored) -> LabelScan | None:
    if not (looks_like_labels(labels) and class_limit_is_sane(labels)) or _is_column(report, labels):
        return None

    def scan() -> LabelScan:
        if stored.places is not None:
            stored.places.check_found(labels, 0, len(labels))
        return scan_labels(labels, len(report.class_names or ()) or None)

    return _guarded(report, labels, scan)


def _is_column(report: Report, labels: h5py.Dataset) -> bool:
    """Labels (n, 1): class numbers, most likely; one-hot rows only where the file names one class."""
    return labels.ndim == 2 and labels.shape[1] == 1 and len(report.class_names or ()) != 1


def _check_images(
    report: Report,
    file: h5py.File,
    split: str,
    images: tuple[Images, _Stored],
    labels: LabelScan | None,
    step: Callable | None,
) -> None:
    rows, stored = images
    data = rows.data
    if not layout.row_count(data) or _report_unwritten(report, data, stored, "images read as black"):
        return
    if step is None:
        _guarded(report, data, lambda: check_pixels(report, split, rows, labels))
    else:
        _guarded(report, data, lambda: verify_pixels(report, split, rows, labels, file, step))
    if stored.heap is not None:
        stored.heap.close()


def _report_labels(report: Report, labels: h5py.Dataset, stored: _Stored, scan: LabelScan | None) -> None:
    _report_unwritten(report, labels, stored, "labels read as zeros")
    if scan is not None:
        report_labels(report, labels, scan)


def _report_unwritten(report: Report, data: h5py.Dataset, stored: _Stored, what: str) -> bool:
    if stored.unwritten is None:
        return False
    missing, total = stored.unwritten
    report.add_fault(
        "never-written",
        f"{missing:,} of {total:,} chunks of {tree.object_name(data)} were never written; their {what}.",
        "The process that wrote the file was stopped. Build it again.",
    )
    return True


def _guarded(report: Report, data: h5py.Dataset, check: Callable):
    """Run ``check``; an error of HDF5 while reading is a fault of the file."""
    try:
        return check()
    except tree.DAMAGE as error:
        message = f"rows of {tree.object_name(data)} cannot be read. HDF5 said: {error}"
        report.add_fault("unreadable-rows", message, _COPY)
        return None


def _check_form(report: Report, images: h5py.Dataset, labels: h5py.Dataset) -> None:
    name = tree.object_name(images)
    if images.ndim > 1 and images.dtype.kind == "f":
        report.add_fault(
            "float-images",
            f"{name} holds {images.dtype}: {images.dtype.itemsize} times the bytes of uint8, to read in every epoch.",
            "Store uint8 and scale in the model: helpers.models.normalization. data_scripts.build_hdf5 does it.",
        )
    elif images.ndim > 1 and (images.ndim != 4 or images.shape[-1] != 3 or images.dtype != np.uint8):
        report.add_fault(
            "image-shape",
            f"{name} has shape {images.shape} and type {tree.type_words(images)}; "
            "expected (n, height, width, 3) uint8.",
            _REBUILD,
        )
    _check_label_form(report, labels)


def _check_label_form(report: Report, labels: h5py.Dataset) -> None:
    name = tree.object_name(labels)
    onehot = labels.ndim == 2 and labels.shape[1] and labels.dtype.kind in "uif"
    if not onehot and not (labels.ndim == 1 and labels.dtype.kind in "ui"):
        report.add_fault(
            "label-shape",
            f"{name} has shape {labels.shape} and type {tree.type_words(labels)}; expected one-hot rows (n, classes) "
            "or class numbers (n,) of an integer type.",
            "Store class numbers as int64, or one-hot rows as uint8.",
        )
    elif _is_column(report, labels):
        report.add_fault(
            "label-shape",
            f"{name} has shape {labels.shape}: class numbers in a column, most likely.",
            "Store class numbers as (n,): labels[:, 0].",
        )
    elif onehot and labels.shape[1] > MOST_CLASSES:
        report.add_fault(
            "label-shape",
            f"{name} has one-hot rows of {labels.shape[1]:,} classes.",
            "Store class numbers as int64.",
        )
    elif onehot and report.class_names is not None and len(report.class_names) != labels.shape[1]:
        report.add_fault(
            "class-count",
            f"{name} has {labels.shape[1]} columns, but the file names {len(report.class_names)} classes.",
            "Rebuild the labels from the list of names.",
        )
    elif not onehot and len(report.class_names or ()) > np.iinfo(labels.dtype).max + 1:
        report.add_warning(
            "label-type",
            f"{name} holds {labels.dtype}, which ends at {np.iinfo(labels.dtype).max}, but the file names "
            f"{len(report.class_names)} classes: numbers above may have wrapped around to other classes.",
            "Store class numbers as int64; build the file again if there were such images.",
        )


def _check_layout_agrees(report: Report, file: h5py.File, names: tuple[str, str]) -> None:
    """What layout refuses, a sequence cannot serve: whatever the checks above did not name."""
    try:
        layout.split_info(file, report.path, *names, quiet=True)
    except layout.IncompleteFileError:
        return  # reported for the whole file
    except layout.LayoutError as error:
        report.add_fault("layout", str(error), "")


# -------------------------------------------------------------------------------------------------- chunks and cost


def _check_chunks(report: Report, images: h5py.Dataset) -> None:
    if images.chunks is None or images.ndim < 2:
        return
    name = tree.object_name(images)
    chunk_bytes = math.prod(images.chunks) * images.dtype.itemsize
    touched = math.prod(-(-side // step) for side, step in zip(images.shape[1:], images.chunks[1:], strict=True))
    if touched > 1:
        report.add_warning(
            "cut-chunks",
            f"chunks {images.chunks} of {name} cut the images: to read one image, {touched:,} chunks of "
            f"{size_text(chunk_bytes)} each are fetched.",
            f"{RECHUNK} stores one image a chunk.",
        )
    elif images.chunks[0] > 1 and chunk_bytes > CHUNK_CACHE_BYTES and tree.filter_words(images):
        report.add_warning(
            "large-chunks",
            f"a chunk of {name} holds {images.chunks[0]} images, {size_text(chunk_bytes)} unpacked, more than "
            f"the chunk cache ({size_text(CHUNK_CACHE_BYTES)}): shuffled reading unpacks all of it for each image.",
            f"{RECHUNK} stores one image a chunk.",
        )


def _check_cost(report: Report, images: h5py.Dataset, stored: _Stored) -> EpochCost | None:
    cost = epoch_cost(images, stored.places, stored.heap, report.path)
    explained = any(warning.code in {"cut-chunks", "large-chunks"} for warning in report.warnings)
    if cost is not None and cost.is_much and not explained and stored.heap is None:
        report.add_warning(
            "costly-epoch",
            f"a shuffled epoch over {tree.object_name(images)} {cost}.",
            f"{RECHUNK} stores one image a chunk.",
        )
    return cost

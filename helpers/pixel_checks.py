"""The images of a split: look at all or at a sample, note what is wrong, and keep some for the contact sheet."""

from __future__ import annotations

from collections.abc import Callable

import h5py
import numpy as np

from helpers import layout, outside
from helpers.contact_sheet import MOST_A_SPLIT, Thumbnail
from helpers.label_scan import LabelScan
from helpers.pixel_scan import SAMPLED_IMAGES, Images, PixelScan, sampled_rows, scan_all, scan_rows
from helpers.report import Report
from helpers.words import RECHUNK, listed, printable


def check_pixels(report: Report, split: str, images: Images, labels: LabelScan | None) -> None:
    """Look at a sample of the images of a split; ``labels`` say which to show, None when they are unusable."""
    wanted = _rows_to_show(labels, len(images.data))
    rows = sampled_rows(images.data, list(wanted))
    scan = scan_rows(images, rows, wanted if set(wanted) & set(rows) else rows[:MOST_A_SPLIT])
    _note(report, split, images, scan, wanted)
    report.checked = f"Looked at every label and at a sample of up to {SAMPLED_IMAGES} images a split (all: --verify)."


def verify_pixels(
    report: Report, split: str, images: Images, labels: LabelScan | None, file: h5py.File, step: Callable
) -> None:
    """The same for every image, compared with its CRC-32 where ``file`` has these; ``step(rows)`` as rows are done."""
    wanted = _rows_to_show(labels, len(images.data))
    sums = _sums_of(report, file, images)
    scan = scan_all(images, sums, wanted, step)
    _note(report, split, images, scan, wanted)
    report.checked = report.checked or "Looked at every label and at all images."
    if sums is None:
        report.checked += f" {printable(images.name)} has no CRC-32: a changed byte of a pixel cannot be seen."


def _note(report: Report, split: str, images: Images, scan: PixelScan, wanted: dict[int, int]) -> None:
    of = f"{scan.looked_at} images looked at" if scan.looked_at < len(images.data) else f"{scan.looked_at} images"
    _report_pixels(report, images.name, scan, of)
    report.sheet[printable(split)] = [
        _thumbnail(report, row, wanted.get(row, -1), pixels) for row, pixels in scan.thumbnails.items()
    ]


def _report_pixels(report: Report, name: str, scan: PixelScan, of: str) -> None:
    if scan.unreadable:
        report.add_fault(
            "unreadable-rows",
            f"{len(scan.unreadable)} of {of} in {name} cannot be read: rows {listed(scan.unreadable)}. "
            f"HDF5 said: {scan.said}",
            "Copy or build the file again, or leave these rows out: rows=.",
        )
    if scan.empty:
        report.add_fault(
            "black-images",
            f"{len(scan.empty)} of {of} in {name} hold only zeros; the first is row {scan.empty[0]}.",
            "They were never written, or their source is empty. Build the file again, or leave these rows out: rows=.",
        )
    if scan.broken:
        report.add_fault(
            "broken-images",
            f"{len(scan.broken)} of {of} in {name} are not JPEG bytes; the first is row {scan.broken[0]}.",
            "Build the file again from the images: data_scripts.build_hdf5.",
        )
    if scan.differ:
        report.add_fault(
            "crc-mismatch",
            f"{len(scan.differ)} of {of} in {name} of {report.path} are not as they were written, by their CRC-32: "
            f"rows {listed(scan.differ)}.",
            "Bytes of the file have changed: copy or build it again, or leave these rows out: rows=.",
        )


def _sums_of(report: Report, file: h5py.File, images: Images) -> h5py.Dataset | None:
    """The CRC-32 of each image; None, and perhaps a fault, when there is nothing to compare with."""
    name, n = layout.crc_dataset(images.name), len(images.data)
    sums, sources = outside.find(file, name)
    if sums is None or any(source.fault for source in sources):
        return None
    form = (sums.shape, str(sums.dtype)) if isinstance(sums, h5py.Dataset) else ("a group", "")
    if form != ((n,), "uint32"):
        report.add_fault(
            "crc-shape",
            f"{name} has shape {form[0]} and type {form[1]}; expected {(n,)} uint32, one CRC-32 an image.",
            f"Images were added or removed without it. {RECHUNK} writes it anew.",
        )
        return None
    return sums


def _rows_to_show(labels: LabelScan | None, n: int) -> dict[int, int]:
    """Rows of the contact sheet and their class numbers: spread over the classes, or over the rows (-1)."""
    if labels is None or labels.bad or not labels.counts.any():
        return dict.fromkeys(np.linspace(0, n - 1, min(n, MOST_A_SPLIT)).astype(int).tolist(), -1)
    present = np.flatnonzero(labels.counts)
    chosen = present[np.linspace(0, len(present) - 1, min(len(present), MOST_A_SPLIT)).astype(int)]
    rows = dict(zip(labels.first_rows[chosen].tolist(), chosen.tolist(), strict=True))
    for number in chosen.tolist():  # of few classes, another image each
        if len(rows) < MOST_A_SPLIT:
            rows.setdefault(int(labels.last_rows[number]), number)
    return {row: number for row, number in rows.items() if row < n}


def _thumbnail(report: Report, row: int, number: int, pixels: np.ndarray | None) -> Thumbnail:
    names = report.class_names or ()
    label = names[number] if 0 <= number < len(names) else f"class {number}" if number >= 0 else ""
    return Thumbnail(row, printable(label), number, pixels)

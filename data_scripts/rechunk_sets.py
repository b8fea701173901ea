"""Which datasets of a file belong together row by row: pairs of images and labels, and what moves with them."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import h5py
import numpy as np

from data_scripts.rechunk_copy import Survey, identity
from data_scripts.rechunk_rows import is_list_of_values, is_ragged, row_bytes
from helpers import layout
from helpers.pairs import guess_pairs, split_name

_NAMES_SHOWN = 20  # in a sentence
_LABEL_WORDS = re.compile(r"label|target|class|(?<![a-z])y(?![a-z])", re.IGNORECASE)
WIDE_ROW_BYTES = 4096  # companions with longer rows get one row a chunk; shorter ones many


class RechunkError(ValueError):
    """The file cannot be rechunked with these options. Nothing was written."""


@dataclass
class RowSet:
    """Datasets whose rows belong together, and the order that they get."""

    labels: str
    images: list[str]
    n: int
    order: np.ndarray | None = None  # input row of each output row, (n,) int64; None: as they are
    companions: list[str] = field(default_factory=list)  # moved with the images; empty when the order is kept

    @property
    def split(self) -> str | None:
        """The split that the images are named for, if any."""
        split = split_name(self.images[0])
        return split if split in layout.SPLITS else None

    @property
    def places(self) -> np.ndarray:
        """Output row of each input row, (n,) int64."""
        places = np.arange(self.n)
        if self.order is not None:
            places[self.order] = np.arange(self.n)
        return places


def moved_names(rows: RowSet) -> list[str]:
    """Datasets of a set that are written row by row: labels and companions first, then images."""
    return [rows.labels, *rows.companions, *rows.images]


def is_wide(data: h5py.Dataset) -> bool:
    """Whether one row a chunk is the right size."""
    return row_bytes(data) >= WIDE_ROW_BYTES


# -- which datasets ---------------------------------------------------------------------------------------------------


def row_sets(
    file: h5py.File, names: Sequence[str], named: Sequence[tuple[str, str]], keep: Sequence[str]
) -> list[RowSet]:
    """The named pairs of images and labels, or those found; pairs that share their labels are one set.

    Images in ``keep`` are not looked for.
    """
    pairs = list(named) or _found_pairs(file, keep)
    if not pairs:
        have = ", ".join(names[:_NAMES_SHOWN]) + (" ..." if len(names) > _NAMES_SHOWN else "")
        raise RechunkError(
            f"no pair of images and labels was recognised in {file.filename}. Datasets in it: {have or 'none'}. Name "
            "the pair: --images NAME --labels NAME."
        )
    sets: dict[str, RowSet] = {}
    for image, label in pairs:
        images, labels = (layout.find_dataset(file, name, quiet=True) for name in (image, label))
        _check_images(image, images, file)
        n = layout.row_count(labels)
        if not labels.shape or layout.row_count(images) != n:
            raise RechunkError(
                f"{image} has {layout.row_count(images)} rows but {label} has {n} in {file.filename}. Name the right "
                "pair: --images NAME --labels NAME."
            )
        sets.setdefault(label, RowSet(label, [], n)).images.append(image)
    _refuse_clashes(file, sets.values())
    return list(sets.values())


def _found_pairs(file: h5py.File, keep: Sequence[str]) -> list[tuple[str, str]]:
    """A dataset may have several names, and a guess finds all of them: the first is taken."""
    pairs = list(guess_pairs(file).values())
    first = {identity(file[image]): (image, label) for image, label in reversed(pairs)}
    kept = {identity(layout.find_dataset(file, name, quiet=True)) for name in keep}
    return [pair for pair in pairs if pair in first.values() and identity(file[pair[0]]) not in kept]


def _check_images(name: str, images: h5py.Dataset, file: h5py.File) -> None:
    vlen = h5py.check_vlen_dtype(images.dtype)
    if images.ndim == 1 and vlen is not None and np.dtype(vlen) == np.uint8:
        return
    if images.ndim < 2 or images.dtype.kind not in "buif" or not math.prod(images.shape[1:]):
        raise RechunkError(
            f"{name} in {file.filename} has shape {images.shape} and type {images.dtype}; expected images "
            "(n, height, width, channels) or (n, height, width) of numbers, or JPEG bytes (one variable-length uint8 "
            "a row). Name the right pair: --images NAME --labels NAME."
        )
    if images.chunks is None:
        return
    total = math.prod(-(-side // step) for side, step in zip(images.shape, images.chunks, strict=True))
    if (written := images.id.get_num_chunks()) < total:
        raise RechunkError(
            f"{total - written:,} of {total:,} chunks of {name} in {file.filename} were never written; their images "
            f"read as black, the first in row {_first_missing_row(images)}. The process that wrote the file was "
            "stopped: build it again."
        )


def _first_missing_row(images: h5py.Dataset) -> int:
    """First row of the first chunk that is not in the file."""
    pieces = math.prod(-(-side // step) for side, step in zip(images.shape[1:], images.chunks[1:], strict=True))
    written = np.zeros(-(-len(images) // images.chunks[0]), np.int64)  # chunks of each row of chunks

    def count(info) -> None:
        written[info.chunk_offset[0] // images.chunks[0]] += 1

    images.id.chunk_iter(count)
    return int(np.argmax(written < pieces)) * images.chunks[0]


def _refuse_clashes(file: h5py.File, sets) -> None:
    used: dict[tuple[int, int], str] = {}
    sums: dict[str, str] = {}
    for name in (name for rows in sets for name in (rows.labels, *rows.images)):
        first = used.get(identity(file[name]))
        if first is not None:
            what = (
                f"{name} is named"
                if first == name
                else f"{first} and {name} are two names of one dataset, which is named"
            )
            raise RechunkError(f"{what} more than once. Name each pair once.")
        used[identity(file[name])] = name
    for name in (name for rows in sets for name in rows.images):
        sums_name = layout.crc_dataset(name)
        if sums.setdefault(sums_name, name) != name:
            raise RechunkError(
                f"the CRC-32 sums of {sums[sums_name]} and {name} would both be called {sums_name}. Rename one of them."
            )
        there = file.get(sums_name)
        if there is not None and not is_crc_dataset(there, len(file[name])):
            raise RechunkError(
                f"{sums_name} must hold one CRC-32 (uint32) for each of the {len(file[name])} rows of {name}; the one "
                f"in {file.filename} is something else. Rename it."
            )


def is_crc_dataset(item, n: int) -> bool:
    """Whether ``item`` can hold the CRC-32 of n rows."""
    return isinstance(item, h5py.Dataset) and item.shape == (n,) and item.dtype == np.uint32


# -- what moves with the images ---------------------------------------------------------------------------------------


def share_orders(sets: list[RowSet]) -> None:
    """Give sets that were found, not named, one order where their rows may belong together.

    ``depth`` and ``depth_scale`` look like a pair, and belong to ``img`` and ``labels`` all the same. Only names of two
    splits tell sets of one size apart. Raises RechunkError where it is not clear to which split one belongs.
    """
    for n in {rows.n for rows in sets}:
        same = [rows for rows in sets if rows.n == n]
        splits = {rows.split for rows in same} - {None}
        loose = [rows for rows in same if rows.split is None]
        if len(splits) > 1 and loose and any(rows.order is not None for rows in same):
            pairs = " and ".join(rows.images[0] for rows in same if rows.split)
            raise RechunkError(
                f"{loose[0].images[0]} has {n} rows, as many as {pairs}: which of them it belongs to is not clear. "
                "Name the pairs of the splits (--images NAME --labels NAME), or keep the order of all (--order keep)."
            )
        for split in splits or {None}:
            _share_order([rows for rows in same if rows.split in {split, None}])


def _share_order(sets: list[RowSet]) -> None:
    """That of the first set that is mixed; one whose labels are called so comes before one with other numbers."""
    mixed = [rows for rows in sets if rows.order is not None]
    if mixed:
        order = max(mixed, key=lambda rows: bool(_LABEL_WORDS.search(rows.labels))).order
        for rows in sets:
            rows.order = order


def add_companions(file: h5py.File, found: Survey, sets: list[RowSet], keep: Sequence[str]) -> None:
    """Find what moves with each set that is mixed. Raises RechunkError where that is not clear."""
    for name in keep:
        layout.find_dataset(file, name, quiet=True)
    if not any(rows.order is not None for rows in sets):
        return
    sets = [*sets, *_other_splits(file, sets)]
    kept = {identity(file[name]) for name in (*keep, *_members(file, sets))}
    for name, data in found.datasets():
        if not data.shape or identity(data) in kept:
            continue
        owners = _owners(name, [rows for rows in sets if rows.n == data.shape[0]])
        if not any(rows.order is not None for rows in owners):
            continue
        if any(rows.order is not owners[0].order for rows in owners):
            pairs = " and ".join(rows.images[0] for rows in owners)
            raise RechunkError(
                f"{name} has {data.shape[0]} rows, as many as {pairs}: which of them it belongs to is not clear. Leave "
                f"it alone (--keep {name}), or keep the order of all (--order keep)."
            )
        _check_companion(name, data)
        owners[0].companions.append(name)


def _other_splits(file: h5py.File, sets: list[RowSet]) -> list[RowSet]:
    """Pairs that were not named and stay as they are: those of another split than each named pair of their size."""
    images = {name for rows in sets for name in rows.images}
    labels = {rows.labels for rows in sets}
    others = []
    for image, label in guess_pairs(file).values():
        other = RowSet(label, [image], layout.row_count(file[image]))
        splits = {rows.split for rows in sets if rows.n == other.n}
        if image not in images and label not in labels and other.split and not splits & {other.split, None}:
            others.append(other)
    return others


def _members(file: h5py.File, sets: list[RowSet]) -> set[str]:
    """Images, labels and sums of ``sets``."""
    images = {name for rows in sets for name in rows.images}
    members = {*images, *(rows.labels for rows in sets), *map(layout.crc_dataset, images)}
    return {name for name in members if isinstance(file.get(name), h5py.Dataset)}


def _owners(name: str, sets: list[RowSet]) -> list[RowSet]:
    """The sets of that many rows whose names fit best: same group, and words such as train in common."""
    if not sets:
        return []
    scores = [max(_kinship(name, image) for image in (rows.labels, *rows.images)) for rows in sets]
    return [rows for rows, score in zip(sets, scores, strict=True) if score == max(scores)]


def _kinship(name: str, other: str) -> tuple[int, int]:
    same_group = name.rpartition("/")[0] == other.rpartition("/")[0]
    words = [set(re.split(r"[^a-z0-9]+", text.lower())) - {""} for text in (name, other)]
    return len(words[0] & words[1]), int(same_group)


def _check_companion(name: str, data: h5py.Dataset) -> None:
    way_out = f"Leave it alone (--keep {name}), or keep the order (--order keep)."
    if data.shape == (data.shape[0],) * 2:
        raise RechunkError(
            f"{name} has shape {data.shape}, one row and one column for each image; only rows can be moved. {way_out}"
        )
    if is_ragged(data) and not is_list_of_values(data):
        raise RechunkError(
            f"the rows of {name} belong to the images, but their type ({data.dtype}, shape {data.shape}) cannot be "
            f"moved row by row. {way_out}"
        )

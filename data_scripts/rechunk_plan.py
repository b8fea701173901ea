"""What rechunk will do to a file, decided before anything is written: pairs, companions, order of rows, disk space."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import zlib
from dataclasses import asdict, dataclass
from pathlib import Path

import h5py
import numpy as np

from data_scripts.rechunk_copy import Survey, is_outside, survey
from data_scripts.rechunk_rows import (
    GATHER_BYTES,
    is_ragged,
    large_chunk_bytes,
    row_blocks,
    row_bytes,
    row_crcs,
    scratch_bytes,
)
from data_scripts.rechunk_sets import (
    RechunkError,
    RowSet,
    add_companions,
    is_wide,
    moved_names,
    row_sets,
    share_orders,
)
from data_scripts.splits import spread_order
from helpers import label_scan, layout, outside
from helpers.pairs import looks_like_labels
from helpers.part_file import PartFile

ORDERS = ("keep", "mix", "auto")
COMPRESSIONS = (None, "gzip")
_ROW_WORDS = {"row", "rows", "index", "indices", "idx", "fold", "folds", "split", "splits"}


@dataclass(frozen=True)
class Options:
    """The options of a run, checked."""

    images: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()
    order: str = "auto"
    compression: str | None = None
    seed: int = 0
    to_uint8: bool = False

    def __post_init__(self):
        for name in ("images", "labels", "keep"):
            value = getattr(self, name)
            names = () if value is None else (value,) if isinstance(value, str) else tuple(value)
            object.__setattr__(self, name, tuple(text.strip("/") for text in names))
        if len(self.images) != len(self.labels):
            raise RechunkError(
                "images and labels name pairs of datasets: give as many of one as of the other; got "
                f"{len(self.images)} and {len(self.labels)}."
            )
        for name, choices in (("order", ORDERS), ("compression", COMPRESSIONS)):
            if getattr(self, name) not in choices:
                words = ", ".join(map(str, choices))
                raise RechunkError(f"{name} must be one of {words}; got {getattr(self, name)!r}.")
        if not isinstance(self.seed, (int, np.integer)) or self.seed < 0:
            raise RechunkError(f"seed must be a whole number from 0 up; got {self.seed!r}.")
        object.__setattr__(self, "seed", int(self.seed))


@dataclass
class Plan:
    """All that a run needs; ``digest`` tells whether an unfinished run was the same."""

    source: Path
    found: Survey
    sets: list[RowSet]
    digest: str
    needed: int  # bytes in the folder of the result
    bytes_to_read: int  # of rows, about
    notes: list[str]


def spread_classes(numbers: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Order of rows, (n,) int64, that spreads each class evenly; ``numbers`` (n,) are their classes.

    The rows of a class are shuffled, and take the places that the builder gives to as many pictures.
    """
    order = rng.permutation(len(numbers))
    order = order[np.argsort(numbers[order], kind="stable")]
    return order[spread_order(np.unique(numbers, return_counts=True)[1], rng)]


def make_plan(file: h5py.File, source: Path, out: Path, options: Options) -> Plan:
    """Look at the open ``file`` and decide. Raises RechunkError, CopyError or a LayoutError: nothing was written."""
    try:
        return _make_plan(file, source, out, options)
    except (layout.LayoutError, layout.HDF5FileError):
        raise
    except (OSError, RuntimeError, KeyError, TypeError) as error:  # what h5py raises for damage below the root
        raise RechunkError(
            f"{source} opens, but what is in it cannot be read. Compare its checksum with that of the original. HDF5 "
            f"said: {error}"
        ) from error


def _make_plan(file: h5py.File, source: Path, out: Path, options: Options) -> Plan:
    _refuse_incomplete(file, source)
    found, folder = survey(file), out.resolve().parent
    if out.exists() and any(path.samefile(out) for path in found.outside):
        raise RechunkError(f"{source} takes part of its content from {out}. Give the result another name.")
    named = list(zip(options.images, options.labels, strict=True))
    sets = row_sets(file, found.dataset_names, named, options.keep)
    for rows in sets:
        _decide_order(file, rows, folder, options)
    if not named:
        share_orders(sets)
    add_companions(file, found, sets, options.keep)
    state = {
        "kit": layout.KIT_VERSION,
        "source": _stamp(source),
        "outside": sorted(map(_stamp, found.outside)),
        "options": asdict(options),
        "sets": [[rows.labels, rows.images, rows.n, _order_crc(rows), rows.companions] for rows in sets],
    }
    digest = hashlib.sha256(json.dumps(state).encode()).hexdigest()
    needed = _needed_bytes(file, found, sets, options)
    return Plan(source, found, sets, digest, needed, _bytes_to_read(file, sets), _notes(file, found, sets, options))


def _order_crc(rows: RowSet) -> int | None:
    return None if rows.order is None else zlib.crc32(rows.order.tobytes())


def _notes(file: h5py.File, found: Survey, sets: list[RowSet], options: Options) -> list[str]:
    notes = [f"brought in {line}" for line in found.brought_in]
    if file.userblock_size:
        notes.append(f"the user block in front ({file.userblock_size} bytes) is not copied")
    images = [name for rows in sets for name in rows.images]
    for name in images:
        if options.compression and is_ragged(file[name]):
            notes.append(f"{name} holds JPEG bytes: {options.compression} would not make them smaller and is not used")
        if options.to_uint8 and (is_ragged(file[name]) or file[name].dtype == np.uint8):
            notes.append(f"{name} holds uint8 already")
        if large := large_chunk_bytes(file[name]):
            size = f"{large / 1e6:,.1f} MB"
            notes.append(f"a chunk of {name} is {size} unpacked, which HDF5 holds in memory whole, and more than once")
    if any(rows.order is not None for rows in sets):
        notes += [
            f"{name} looks like a list of row numbers; it was not changed and counts in the old order"
            for name, data in found.datasets()
            if data.ndim == 1 and data.dtype.kind in "ui" and _ROW_WORDS & set(re.split(r"[^a-z]+", name.lower()))
            if name not in {moved for rows in sets for moved in moved_names(rows)}
        ]
    return notes


def _stamp(path: Path) -> list:
    status = path.stat()
    return [str(path.resolve()), status.st_size, status.st_mtime_ns]


def _refuse_incomplete(file: h5py.File, source: Path) -> None:
    info = layout.file_info(file)
    if info.complete is False or (info.complete is None and info.kit_version is not None):
        raise layout.IncompleteFileError(
            f"{source} is incomplete: the process that wrote it stopped early, and its last rows may be empty. "
            "Build it again."
        )


# -- which order ------------------------------------------------------------------------------------------------------


def _decide_order(file: h5py.File, rows: RowSet, folder: Path, options: Options) -> None:
    mix = options.order == "mix"
    if options.order == "auto":
        mix = _is_sorted(file, rows.labels)
    if mix:
        numbers = class_numbers(file[rows.labels], folder)
        rows.order = spread_classes(numbers, np.random.default_rng(options.seed))


def _is_sorted(file: h5py.File, labels: str) -> bool:
    """The inspector's own rule; labels that it does not know are not sorted."""
    data, names = file[labels], layout.file_info(file).class_names
    if not looks_like_labels(data) or not label_scan.class_limit_is_sane(data):
        return False
    mix = label_scan.scan_labels(data, None if names is None else len(names)).mix
    return mix is not None and mix.is_sorted


def class_numbers(labels: h5py.Dataset, folder: Path) -> np.ndarray:
    """A number for the class of each row, (n,); equal labels have equal numbers, whatever their type."""
    blocks = [_numbers(rows) for _, rows in row_blocks(labels, folder)]
    return np.concatenate([*blocks, np.empty(0, np.int64)])


def _numbers(rows: np.ndarray) -> np.ndarray:
    if rows.ndim == 2 and rows.shape[1] > 1 and rows.dtype.kind in "buif":
        return rows.argmax(axis=1)
    if rows.ndim == 1 and rows.dtype.kind in "ui":
        return rows.astype(np.int64)
    return row_crcs(rows).astype(np.int64)


# -- disk space -------------------------------------------------------------------------------------------------------


def _needed_bytes(file: h5py.File, found: Survey, sets: list[RowSet], options: Options) -> int:
    """Bytes of the new file, at most, and of scratch files beside it."""
    total = sum(path.stat().st_size for path in {Path(file.filename).resolve(), *found.outside})
    scratch = 0
    for name, is_image in ((name, name in rows.images) for rows in sets for name in moved_names(rows)):
        data = file[name]
        if is_ragged(data):
            continue
        size = len(data) * row_bytes(data)
        stored = size if is_outside(data) else data.id.get_storage_size()
        total += (size // data.dtype.itemsize if is_image and options.to_uint8 else size) - stored
        gathered = size if size > GATHER_BYTES and not (is_image or is_wide(data)) else 0
        scratch = max(scratch, scratch_bytes(data) + gathered)
    return max(total, 0) + scratch + sum(200 * rows.n for rows in sets)  # an entry of the index of chunks, a sum ...


def _bytes_to_read(file: h5py.File, sets: list[RowSet]) -> int:
    """Unpacked bytes of all rows that are moved; of JPEG bytes all that the file holds beside the others."""
    moved = [file[name] for rows in sets for name in moved_names(rows)]
    fixed = [data for data in moved if not is_ragged(data)]
    total = sum(len(data) * row_bytes(data) for data in fixed)
    if len(fixed) < len(moved):
        total += max(0, Path(file.filename).stat().st_size - sum(data.id.get_storage_size() for data in fixed))
    return total


def space_sentence(plan: Plan, folder: Path) -> str:
    """What is needed and what is free. Raises RechunkError when that is too little."""
    free = shutil.disk_usage(folder).free
    if plan.needed > free:
        raise RechunkError(
            f"up to {plan.needed / 1e6:,.1f} MB are needed in {folder}, but only {free / 1e6:,.1f} MB are free. Make "
            "room, or write to another disk."
        )
    return f"at most {plan.needed / 1e6:,.1f} MB are needed in {folder}; {free / 1e6:,.1f} MB are free."


def explained(error: OSError | RuntimeError, plan: Plan, folder: Path) -> OSError:
    """An error of writing; a full disk says how much was needed."""
    number = getattr(error, "errno", None)
    if number not in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}:
        return error if isinstance(error, OSError) else OSError(errno.EIO, f"HDF5 said: {error}")
    return OSError(
        number,
        f"{os.strerror(number)}: up to {plan.needed / 1e6:,.1f} MB are needed in {folder} in all, and "
        f"{shutil.disk_usage(folder).free / 1e6:,.1f} MB are free now",
    )


def checked_paths(source: str | os.PathLike, out: str | os.PathLike) -> tuple[Path, Path]:
    """Both as paths. Raises RechunkError where writing one would change the other."""
    source, out = layout.file_path(source), layout.file_path(out)
    part = PartFile(out).part
    same = [path for path in (out, part) if outside.exists(path) and path.samefile(source)]
    if same or source.resolve() in {out.resolve(), part}:
        raise RechunkError(f"{out} and {source} are the same file. Give the result another name.")
    return source, out

"""Moves the rows of a plan into a new file, checkpoint by checkpoint, and reads each of them again.

A dataset is written, then compared, then done. Images can be gone on with in their middle: their CRC-32 sums are stored
at each checkpoint. Labels and companions are begun again.
"""

from __future__ import annotations

import contextlib
import time
from concurrent.futures import Executor
from pathlib import Path

import h5py
import numpy as np
from tqdm import tqdm

from data_scripts.rechunk_copy import copy_all, identity, is_outside, link_options
from data_scripts.rechunk_plan import Options, Plan
from data_scripts.rechunk_rows import (
    BLOCK_BYTES,
    GZIP_LEVEL,
    DamagedRowError,
    GatheredRows,
    RaggedRows,
    ScatteredRows,
    block_bytes,
    is_ragged,
    row_blocks,
    row_bytes,
    row_crcs,
)
from data_scripts.rechunk_sets import RechunkError, RowSet, is_wide, moved_names
from helpers import layout
from helpers.part_file import PartFile

LABEL_CHUNK_ROWS = 1024  # of labels, small companions and references to JPEG bytes: one read serves many batches
LABEL_CHUNK_BYTES = 2**20  # what HDF5 1.14 caches of a dataset
CHECKPOINT_BYTES = 256 * 2**20  # of rows between two checkpoints
CHECKPOINT_SECONDS = 10
_RAGGED_ROWS = 1024  # compared at once


class Mover:
    """One run, or the rest of one that was stopped."""

    def __init__(
        self, file: h5py.File, part: PartFile, plan: Plan, options: Options, folder: Path, pool: Executor, bar: tqdm
    ):
        self._file, self._part, self._plan, self._options = file, part, plan, options
        self._folder, self._pool, self._bar = folder, pool, bar
        self._state = part.state or {"plan": plan.digest, "rows": {}, "verified": {}, "scale": {}}
        self._moved = {identity(file[name]): name for rows in plan.sets for name in moved_names(rows)}
        self._images = {name for rows in plan.sets for name in rows.images}
        self._labels = {rows.labels for rows in plan.sets}
        sums = [layout.crc_dataset(name) for name in self._images]
        self._sums = {identity(file[name]) for name in sums if name in file}  # in the input; computed anew
        self._last_checkpoint = time.monotonic()
        self._bytes_since = 0
        self._written = 0  # rows of the images that are moved at this moment

    @property
    def verified(self) -> dict[str, int]:
        """Dataset -> rows that were read again and found equal."""
        return self._state["verified"]

    def scale_words(self, name: str) -> str:
        """How the numbers of an image dataset became uint8; empty when they were left as they are."""
        scale = self._state["scale"].get(name)
        return "" if scale is None else f"all values lie in 0 to {255 // scale}, times {scale}, rounded"

    def run(self) -> None:
        """Do all that is left; the part is whole then, but not finished."""
        if self._part.state is None:
            self._begin()
        for rows in self._plan.sets:
            places = rows.places
            for name in moved_names(rows):
                if name in self.verified:
                    self._bar.update(2 * rows.n * row_bytes(self._file[name]))
                elif name in self._images:
                    self._move_images(rows, name, places)
                else:
                    self._move_others(rows, name, places)
        self._part.run(self._mark, True)
        if self._bar.total is not None:
            self._bar.total = self._bar.n
            self._bar.refresh()

    # -- the empty file -----------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        if self._options.to_uint8:
            for name in sorted(self._images):
                self._decide_scale(name)
        copy_all(self._plan.found, self._part, self._folder, self._create)
        self._part.run(self._create_all_sums)
        self._part.run(self._mark, False)
        self._part.checkpoint(self._state)

    def _create_all_sums(self) -> None:
        for rows in self._plan.sets:
            for name in rows.images:
                if layout.crc_dataset(name) not in self._part.file:
                    self._create_sums(layout.crc_dataset(name), rows.n)

    def _create(self, path: str, data: h5py.Dataset) -> bool:
        """Make the dataset ``path`` if its rows are moved."""
        if identity(data) in self._sums:
            self._create_sums(path, len(data))
            return True
        name = self._moved.get(identity(data))
        if name is None:
            return False
        rows = self._chunk_rows(name, data)
        kind = _memory_type(data) if rows == 1 else data.id.get_type().copy()
        if name in self._state["scale"]:
            kind = h5py.h5t.NATIVE_UINT8
        create_rows(self._part.file, path, data, kind, rows, self._packed(name, data))
        return True

    def _chunk_rows(self, name: str, data: h5py.Dataset) -> int:
        if is_ragged(data):
            return LABEL_CHUNK_ROWS
        if name in self._images or is_wide(data):
            return 1
        return max(1, min(LABEL_CHUNK_ROWS, LABEL_CHUNK_BYTES // max(1, row_bytes(data))))

    def _packed(self, name: str, data: h5py.Dataset) -> bool:
        """Whether by gzip: images as asked for, labels never, companions if they were compressed somehow."""
        if is_ragged(data) or name in self._labels:
            return False
        if name in self._images:
            return self._options.compression == "gzip"
        return data.id.get_create_plist().get_nfilters() > 0

    def _create_sums(self, name: str, n: int) -> None:
        chunks = (min(LABEL_CHUNK_ROWS, max(1, n)),)
        self._part.file.create_dataset(name, (n,), np.uint32, chunks=chunks, maxshape=(None,))

    def _decide_scale(self, name: str) -> None:
        data = self._file[name]
        if is_ragged(data) or data.dtype == np.uint8:
            return
        low, high = np.inf, -np.inf
        for first, rows in row_blocks(data, self._folder):
            if rows.dtype.kind == "f" and not np.isfinite(rows).all():
                row = first + int(np.argmin(np.isfinite(rows).all(axis=tuple(range(1, rows.ndim)))))
                raise RechunkError(
                    f"row {row} of {name} holds values that are no numbers. --to-uint8 needs finite values."
                )
            low, high = min(low, float(rows.min())), max(high, float(rows.max()))
        if low < 0 or high > 255:
            raise RechunkError(
                f"{name} holds values from {low:g} to {high:g}; --to-uint8 takes 0 to 1 or 0 to 255. Undo the scaling "
                "where the file is made."
            )
        self._state["scale"][name] = 255 if high <= 1 and data.dtype.kind in "fb" else 1

    def _mark(self, complete: bool) -> None:
        """The attribute ``complete``, where the input has it."""
        attributes = self._part.file.attrs
        if layout.COMPLETE in attributes and np.asarray(attributes[layout.COMPLETE]).dtype == bool:
            attributes.modify(layout.COMPLETE, complete)

    # -- rows ---------------------------------------------------------------------------------------------------------

    def _move_images(self, rows: RowSet, name: str, places: np.ndarray) -> None:
        source, writer = self._file[name], self._part.run(self._scattered, name)
        start = self._state["rows"].get(name, 0)
        self._bar.update(start * row_bytes(source))
        crcs = self._part.run(self._sums_of, name)[places] if start else np.zeros(rows.n, np.uint32)
        try:
            self._write_images(name, writer, crcs, places, start)
        except KeyboardInterrupt:  # also the next one ends this
            with contextlib.suppress(OSError, ValueError):
                self._checkpoint(name, self._written, crcs, places)
            raise
        self._compare(name, writer, crcs, places)
        wrong = np.flatnonzero(self._part.run(self._sums_of, name) != _at(places, crcs))
        self._refuse_difference(layout.crc_dataset(name), wrong)

    def _write_images(self, name: str, writer, crcs: np.ndarray, places: np.ndarray, start: int) -> None:
        source, self._written = self._file[name], start
        stored, scale = self._stored_sums(name), self._state["scale"].get(name)
        for first, block in row_blocks(source, self._folder, start, self._bar.update):
            last = first + len(block)
            crcs[first:last] = row_crcs(block)
            _compare_with_stored(source, first, crcs[first:last], stored)
            if scale is not None:
                block = _to_uint8(block, scale)
                crcs[first:last] = row_crcs(block)
            self._part.run(writer.write, block, places[first:last])
            self._written = last
            self._bytes_since += block_bytes(block)
            if last == len(crcs) or self._is_due():
                self._checkpoint(name, last, crcs, places)

    def _scattered(self, name: str) -> ScatteredRows | RaggedRows:
        target = self._part.file[name]
        return RaggedRows(target) if is_ragged(target) else ScatteredRows(target, self._pool)

    def _sums_of(self, name: str) -> np.ndarray:
        return self._part.file[layout.crc_dataset(name)][:]

    def _move_others(self, rows: RowSet, name: str, places: np.ndarray) -> None:
        source = self._file[name]
        crcs = np.zeros(rows.n, np.uint32)
        if is_ragged(source) or self._chunk_rows(name, source) == 1:
            writer = self._part.run(self._scattered, name)
            self._write_all(source, writer, crcs, places)
            self._part.run(self._part.file.flush)
            self._compare(name, writer, crcs, places)
            return
        target = self._part.run(self._part.file.get, name)
        with GatheredRows(rows.n, source.shape[1:], source.dtype, self._folder) as writer:
            self._write_all(source, writer, crcs, places)
            writer.store(target, self._part.run)
        self._part.run(self._part.file.flush)
        wanted = _at(places, crcs)
        blocks = row_blocks(target, self._folder, 0, self._bar.update)
        while (found := self._part.run(next, blocks, None)) is not None:
            first, block = found
            self._refuse_difference(name, first + np.flatnonzero(row_crcs(block) != wanted[first : first + len(block)]))
        self._done(name, rows.n)

    def _write_all(self, source: h5py.Dataset, writer, crcs: np.ndarray, places: np.ndarray) -> None:
        for first, block in row_blocks(source, self._folder, 0, self._bar.update):
            last = first + len(block)
            crcs[first:last] = row_crcs(block)
            self._part.run(writer.write, block, places[first:last])

    def _stored_sums(self, name: str) -> np.ndarray | None:
        there = self._file.get(layout.crc_dataset(name))
        return None if there is None else there[:]

    # -- the second reading -------------------------------------------------------------------------------------------

    def _compare(self, name: str, writer: ScatteredRows | RaggedRows, crcs: np.ndarray, places: np.ndarray) -> None:
        """Read the rows again in the order in which they lie on the disk."""
        size = row_bytes(self._file[name])
        step = _RAGGED_ROWS if is_ragged(self._file[name]) else max(1, BLOCK_BYTES // max(1, size))
        for first in range(0, len(crcs), step):
            some = places[first : first + step]
            wrong = self._part.run(writer.crcs, some) != crcs[first : first + step]
            self._refuse_difference(name, some[wrong])
            self._bar.update(len(some) * size)
        self._done(name, len(crcs))

    def _refuse_difference(self, name: str, wrong: np.ndarray) -> None:
        if len(wrong):
            raise DamagedRowError(
                f"row {wrong.min()} of {name} was read from {self._part.part} and is not what was written there: the "
                "disk or the memory of this machine is faulty. Run it again on another disk."
            )

    def _done(self, name: str, n: int) -> None:
        self.verified[name] = n
        self._part.checkpoint(self._state)

    # -- checkpoints --------------------------------------------------------------------------------------------------

    def _is_due(self) -> bool:
        return self._bytes_since >= CHECKPOINT_BYTES or time.monotonic() - self._last_checkpoint >= CHECKPOINT_SECONDS

    def _checkpoint(self, name: str, done: int, crcs: np.ndarray, places: np.ndarray) -> None:
        self._part.run(self._store_sums, name, _at(places, crcs))
        self._state["rows"][name] = done
        self._part.checkpoint(self._state)
        self._last_checkpoint, self._bytes_since = time.monotonic(), 0

    def _store_sums(self, name: str, values: np.ndarray) -> None:
        self._part.file[layout.crc_dataset(name)][:] = values


def create_rows(file: h5py.File, path: str, source: h5py.Dataset, dtype, rows: int, gzip: bool) -> None:
    """An empty dataset like ``source``, with ``rows`` whole rows a chunk."""
    old, new = source.id.get_create_plist(), h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    n, rest = source.shape[0], source.shape[1:]
    new.set_chunk((max(1, min(rows, n)), *(max(1, side) for side in rest)))
    new.set_attr_creation_order(old.get_attr_creation_order())
    if gzip:
        new.set_deflate(GZIP_LEVEL)
    if not is_ragged(source) and old.fill_value_defined() == h5py.h5d.FILL_VALUE_USER_DEFINED:
        value = np.zeros((), source.dtype)
        old.get_fill_value(value)
        new.set_fill_value(value)
    limits = tuple(h5py.h5s.UNLIMITED if side is None else side for side in source.maxshape)
    limits = limits if all(limits) else (h5py.h5s.UNLIMITED,) * len(limits)  # a chunk has at least one row
    h5py.h5d.create(file.id, path.encode(), dtype, h5py.h5s.create_simple(source.shape, limits), new, link_options())


def describe(data: h5py.Dataset) -> str:
    """Shape, type, chunks and compression in a few words."""
    vlen = h5py.check_vlen_dtype(data.dtype)
    kind = f"variable-length {np.dtype(vlen)}" if vlen is not None else str(data.dtype)
    created = data.id.get_create_plist()
    filters = "+".join(created.get_filter(place)[3].decode() for place in range(created.get_nfilters()))
    if is_outside(data):
        chunks = "virtual" if data.is_virtual else "external storage"
    else:
        chunks = f"chunks {data.chunks}" if data.chunks else "one piece (contiguous)"
    return f"{data.shape} {kind}, {chunks}, {filters or 'not compressed'}"


def _memory_type(data: h5py.Dataset) -> h5py.h5t.TypeID:
    """The stored type, if its bytes are those that NumPy has in memory, else NumPy's: rows are written as they are."""
    stored = data.id.get_type().copy()
    return stored if stored.equal(h5py.h5t.py_create(data.dtype)) else h5py.h5t.py_create(data.dtype, logical=True)


def _to_uint8(rows: np.ndarray, scale: int) -> np.ndarray:
    return np.rint(rows.astype(np.float64) * scale).astype(np.uint8)


def _compare_with_stored(data: h5py.Dataset, first: int, crcs: np.ndarray, stored: np.ndarray | None) -> None:
    if stored is None:
        return
    wrong = np.flatnonzero(crcs != stored[first : first + len(crcs)])
    if len(wrong):
        raise DamagedRowError(
            f"row {first + wrong[0]} of {data.name.lstrip('/')} in {data.file.filename} is damaged: its bytes do not "
            "have the CRC-32 that was stored with them. Copy or build the file again."
        )


def _at(places: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Values of input rows in the order of the result."""
    out = np.empty_like(values)
    out[places] = values
    return out

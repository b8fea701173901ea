"""A scratch file: rows go in as boxes or one by one, in any order, and come out in theirs; no memory is held."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path

import numpy as np


class Scratch:
    """Rows of one shape in a file without a name, which is gone with the process; a context manager."""

    def __init__(self, folder: Path, row_shape: tuple[int, ...], dtype: np.dtype):
        self.row_shape, self.dtype = row_shape, dtype
        self._strides = [math.prod(row_shape[axis:]) * dtype.itemsize for axis in range(len(row_shape) + 1)]
        self._file = tempfile.TemporaryFile(dir=folder, prefix=".rechunk-", buffering=0)  # noqa: SIM115 - closed by exit

    def __enter__(self) -> Scratch:
        return self

    def __exit__(self, *_) -> None:
        self._file.close()

    def put_box(self, box: np.ndarray, corner: tuple[int, ...]) -> None:
        """Store (rows, sides of the box) at ``corner`` of rows 0 and up."""
        cut = [axis for axis, side in enumerate(self.row_shape) if box.shape[axis + 1] != side]
        last = cut[-1] if cut else 0  # from this axis on, bytes of the box are neighbours in the file
        outer = box.shape[: last + 1]
        shift = sum(at * stride for at, stride in zip(corner, self._strides[1:], strict=True))
        for index in np.ndindex(outer):
            self._write(shift + sum(at * self._strides[axis] for axis, at in enumerate(index)), box[index])

    def put_row(self, place: int, row: np.ndarray) -> None:
        """Store the bytes of one row, (bytes of a row,) uint8."""
        self._write(place * self._strides[0], row)

    def rows(self, first: int, last: int) -> np.ndarray:
        """Rows ``first`` to ``last`` (not included)."""
        out = np.empty((last - first, *self.row_shape), self.dtype)
        view = memoryview(out.reshape(-1).view(np.uint8))
        self._file.seek(first * self._strides[0])
        while view:
            got = self._file.readinto(view)
            if not got:
                raise OSError("the scratch file is shorter than what was written to it; is its disk full?")
            view = view[got:]
        return out

    def _write(self, offset: int, values: np.ndarray) -> None:
        view = memoryview(np.ascontiguousarray(values).reshape(-1).view(np.uint8))
        self._file.seek(offset)
        while view:
            view = view[self._file.write(view) :]

"""Read rows of variable length, as JPEG bytes are stored, past HDF5.

Such a dataset holds references of 16 bytes (length, address, number): the bytes of a row are object ``number`` of the
"global heap collection" at ``address``. HDF5 1.14 believes what stands there: on damaged bytes it goes round in a
circle for ever, or takes memory without bound, and holds the lock that all else in the process waits for. Here each
step is bounded, and bytes that do not fit their reference are an error. The format: HDF5 File Format Specification,
"Global Heap".
"""

from __future__ import annotations

import errno
import struct
from pathlib import Path

import h5py
import numpy as np

from helpers.direct import DirectRows, FileOfProcess, ReadError, check_unchanged, holds_whole_rows, unreadable
from helpers.layout import HDF5FileError
from helpers.places import Places

_REFERENCE = np.dtype([("length", "<u4"), ("address", "<u8"), ("number", "<u4")])
_COLLECTION = struct.Struct("<4sB3xQ")  # signature, version, bytes of the whole collection
_OBJECT = struct.Struct("<HHIQ")  # number, references to it, reserved, bytes of its content
SMALLEST_COLLECTION = 4096  # that HDF5 makes; often the first read brings the object too
_DAMAGED = "the heap of its bytes is damaged"


class HeapRows:
    """The bytes of each row, at known places of the file. Made by :func:`locate_heap`; threads may share it."""

    def __init__(self, references: np.ndarray, base: int, path: Path, name: str, state: tuple[int, int]):
        self.references = references  # (n,) of (length, address, number)
        self._base = base  # what addresses count from
        self._path = path
        self._name = name
        self._state = state
        self.files = FileOfProcess(path)

    def read(self, row: int) -> np.ndarray:
        """Stored bytes of one row, (length,) uint8; none where nothing was written.

        Raises
        ------
        HDF5FileError
            The file is gone, was written anew, or is damaged there.
        """
        length, address, number = self.references[row].item()
        if length == 0:
            return np.empty(0, np.uint8)
        file = self.files.get()
        try:
            return self._object(file, self._base + address, number, length)
        except ReadError as error:
            raise unreadable(f"row {row} of {self._name}", self._path, error.reason) from error
        finally:  # also when that failed: then this is the reason
            check_unchanged(self._path, file.status(), self._state)

    def close(self) -> None:
        """Let go of this process's descriptor."""
        self.files.close()

    def _object(self, file, address: int, number: int, length: int) -> np.ndarray:
        end = self._state[0]
        start = self._bytes(file, address, min(max(SMALLEST_COLLECTION, length + 64), end - address))
        if len(start) < _COLLECTION.size:
            raise ReadError(0, _DAMAGED)
        signature, version, size = _COLLECTION.unpack_from(start)
        if (signature, version) != (b"GCOL", 1) or not length < size <= end - address:
            raise ReadError(0, _DAMAGED)
        place = _find(start[:size], number, length)
        if place is None and size > len(start):  # further on
            start = self._bytes(file, address, size)
            place = _find(start, number, length)
        if place is None:
            raise ReadError(0, _DAMAGED)
        return start[place : place + length]

    def _bytes(self, file, address: int, size: int) -> np.ndarray:
        if size <= 0:
            raise ReadError(0, _DAMAGED)
        content = np.empty(size, np.uint8)
        file.fill(memoryview(content), address)
        return content


def locate_heap(
    data: h5py.Dataset, places: Places | None, path: Path, name: str, state: tuple[int, int]
) -> HeapRows | None:
    """The rows of an open dataset of variable-length uint8, or None when only HDF5 can read them.

    Raises HDF5FileError when two rows share their bytes, which HDF5 never writes: the references are damaged.
    """
    if places is None or not _has_plain_references(data, path):
        return None
    stored = np.zeros((len(data), _REFERENCE.itemsize), np.uint8)
    rows = DirectRows(places, _REFERENCE.itemsize, data.compression is not None, path, name, state)
    try:
        rows.read(np.arange(len(data)), stored)
    finally:
        rows.close()
    references = stored.view(_REFERENCE)[:, 0]
    used = np.sort(references[references["length"] > 0], order=("address", "number"))
    if (used[1:][["address", "number"]] == used[:-1][["address", "number"]]).any():
        raise HDF5FileError(
            errno.EIO,
            f"{name} in {path} is damaged: two of its rows refer to the same bytes. Copy or build the file again.",
        )
    return HeapRows(references, data.file.userblock_size, path, name, state)


def _has_plain_references(data: h5py.Dataset, path: Path) -> bool:
    kind = h5py.check_vlen_dtype(data.dtype)
    return (
        kind is not None
        and np.dtype(kind) == np.uint8
        and Path(data.file.filename).samefile(path)
        and data.file.id.get_create_plist().get_sizes() == (8, 8)
        and holds_whole_rows(data)
    )


def _find(collection: np.ndarray, number: int, length: int) -> int | None:
    """Where the content of object ``number`` begins, if the object is there, of this length, and whole."""
    place = _COLLECTION.size
    while place + _OBJECT.size <= len(collection):
        found, _, _, size = _OBJECT.unpack_from(collection, place)
        place += _OBJECT.size
        if found == number:
            return place if size == length and place + length <= len(collection) else None
        if found == 0:  # free space: the last one
            return None
        place += -(-size // 8) * 8
    return None

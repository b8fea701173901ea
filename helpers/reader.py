"""Read rows of one dataset: any order, repeats, negative numbers; safe in threads, forked and spawned processes.

A list of rows is never handed to HDF5. For a chunked file that would be two orders of magnitude slower than reading
row by row, and HDF5 takes only increasing, unique rows. Here rows are visited in the order of the file, neighbours are
read in one go, and every row lands at its final place in the output: there is no sorting to undo afterwards. Where it
can be, the bytes are read past HDF5 (:mod:`helpers.direct`); both ways give the same.
"""

from __future__ import annotations

import errno
import os
import zlib
from pathlib import Path

import h5py
import numpy as np

from helpers import images
from helpers.direct import check_unchanged, file_state, locate, runs, unreadable
from helpers.heap import locate_heap
from helpers.layout import (
    HDF5FileError,
    LayoutError,
    checked_size,
    clear_damage,
    crc_dataset,
    file_path,
    find_dataset,
    open_file,
    stored_image_shape,
)
from helpers.places import check_apart, find_places

_SMALLEST_CACHE_BYTES = 2**20  # HDF5 1.14's own default
_LARGEST_CACHE_BYTES = 64 * 2**20  # a worker each: two workers stay below 128 MiB, whatever the file looks like

# Handles that a forked child got from its parent. They are kept, never used, and never closed here: a handle belongs to
# the process that opened it, and what closing a copy does to the parent's depends on HDF5's version and driver.
_INHERITED: list[h5py.Dataset | None] = []


class RowReader:
    """Rows of ``dataset`` in the file ``path``, through a handle that each process opens for itself.

    The file is opened at the first read in a process and stays open until :meth:`close`; nobody else can write to it
    meanwhile. A pickled reader carries the path, never the handle, and a forked child never uses its parent's handle.
    Threads may share a reader; when it is :attr:`direct` they read at the same time, otherwise one after the other.

    Parameters
    ----------
    path : the HDF5 file.
    dataset : name of the dataset; one-dimensional variable-length uint8 is taken as JPEG bytes. Where the file has
        their CRC-32 (:func:`helpers.layout.crc_dataset`), all bytes are checked before they are decoded, because OpenCV
        makes some picture of damaged bytes without a word.
    size : (height, width) that JPEG bytes are resized to, for files that do not say, or hold mixed sizes.

    Raises
    ------
    HDF5FileError, LayoutError
        The file does not open, is damaged where it says how and where the rows are stored, has no such dataset, or the
        dataset has no rows (a single value).

    ``RowReader("food.h5", "train_img").read([7, 2, 7])`` gives rows 7, 2 and 7 as one array.
    """

    def __init__(self, path: str | os.PathLike, dataset: str, size: tuple[int, int] | None = None):
        self.path = file_path(path).absolute()  # a worker may have another working directory
        self.dataset = dataset
        self._handles: dict[int, h5py.Dataset] = {}
        self._closed = False
        self._resize_to = size = checked_size(size)
        with open_file(self.path) as file, clear_damage(self.path):
            # Of the file that is open: another one may have come under its name meanwhile.
            self._state = file_state(os.fstat(file.id.get_vfd_handle()))
            self._look_at(find_dataset(file, dataset))

    def _look_at(self, data: h5py.Dataset) -> None:
        if not data.shape:
            raise LayoutError(f"{self.dataset} in {self.path} has no rows: it is a single value, not an array.")
        _check_filters(data, self.path, self.dataset)
        self._is_jpeg = h5py.check_vlen_dtype(data.dtype) is not None
        self._row_shape = _row_shape(data, self._resize_to) if self._is_jpeg else data.shape[1:]
        self.dtype = np.dtype(np.uint8) if self._is_jpeg else data.dtype
        self._n = len(data)
        where = self.path, self.dataset
        self._places = find_places(data, *where)
        if self._places is not None:
            check_apart(data, self._places, *where)
        self._heap = locate_heap(data, self._places, *where, self._state) if self._is_jpeg else None
        self._sums = _stored_sums(data, *where) if self._is_jpeg else None
        self._direct = None if self._is_jpeg else locate(data, self._places, *where, self._state)

    def __len__(self) -> int:
        return self._n

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the whole dataset as it is read: ``(n, height, width, 3)`` for images."""
        return (self._n, *self._row_shape)

    @property
    def direct(self) -> bool:
        """Whether rows are read past HDF5. Rows that were never written, fill values, are HDF5's all the same."""
        return self._direct is not None or self._heap is not None

    def unwritten(self, rows) -> np.ndarray:
        """Which of ``rows`` were never written, (n,) bool: they read as fill values, black images."""
        rows = self._checked_rows(rows)
        return np.zeros(len(rows), bool) if self._places is None else self._places.unwritten(rows)

    def read(self, rows, out: np.ndarray | None = None) -> np.ndarray:
        """Read ``rows`` in the order asked for.

        Parameters
        ----------
        rows : integers, in any order, repeated or negative (from the end) as in NumPy.
        out : C-contiguous array of shape ``(len(rows), *shape[1:])`` and the dataset's dtype to read into.

        Returns
        -------
        numpy.ndarray of shape ``(len(rows), *shape[1:])``; JPEG bytes come decoded, as RGB uint8.

        Raises
        ------
        HDF5FileError
            The file is gone, was written anew since the reader was made, or is damaged where a row lies.
        TypeError, IndexError
            Rows that are not integers, or lie outside the dataset.
        ValueError
            ``out`` does not fit, or the reader was closed.
        """
        rows = self._checked_rows(rows)
        out = self._checked_out(out, len(rows))
        self._check_open()
        try:
            self._read(rows, out)
        except Exception:
            self._check_open()  # closed meanwhile by another thread: that is the error, not what HDF5 makes of it
            raise
        return out

    def read_ahead(self, rows) -> None:
        """Ask the system to bring the bytes of ``rows`` into its cache soon; returns at once.

        Does nothing for JPEG bytes, for rows that only HDF5 reads, and where the system takes no such wish. Raises as
        :meth:`read`.
        """
        rows = self._checked_rows(rows)
        self._check_open()
        if self._direct is not None:
            self._direct.read_ahead(rows)

    def close(self) -> None:
        """Close this process's handle. Closing twice is quiet; a closed reader cannot read any more."""
        self._closed = True  # first: a thread that comes now opens nothing any more
        data = self._handles.pop(os.getpid(), None)
        for past_hdf5 in (self._direct, self._heap):
            if past_hdf5 is not None:
                past_hdf5.close()
        if data is not None and data:
            data.file.close()

    def __enter__(self) -> RowReader:
        return self

    def __exit__(self, *exc_info) -> None:
        self.close()

    def __getstate__(self):
        return {**self.__dict__, "_handles": {}}

    def __repr__(self) -> str:
        state = ", closed" if self._closed else ""
        return f"RowReader({self.path.name!r}, {self.dataset!r}): shape {self.shape}, {self.dtype}{state}"

    def _check_open(self) -> None:
        if self._closed:
            raise ValueError(f"this reader of {self.dataset} in {self.path} is closed. Make a new RowReader.")

    def _data(self) -> h5py.Dataset:
        data = self._handles.get(os.getpid())
        return self._open() if data is None else data

    def _open(self) -> h5py.Dataset:
        for pid in list(self._handles):
            if pid != os.getpid():  # the own one may be there by now, from another thread
                _INHERITED.append(self._handles.pop(pid, None))
        file = open_file(self.path, look_first=False)  # __init__ has looked
        try:
            check_unchanged(self.path, self.path.stat(), self._state)
        except OSError:
            file.close()
            raise
        with clear_damage(self.path):
            data = find_dataset(file, self.dataset, quiet=True)  # __init__ has warned
            _check_filters(data, self.path, self.dataset)  # a worker process may lack what this one has
            data = _with_chunk_cache(data)
        kept = self._handles.setdefault(os.getpid(), data)
        if kept is not data:  # another thread was faster
            file.close()
        if self._closed:  # meanwhile, by another thread, which may not have seen this handle
            self.close()
            self._check_open()
        return kept

    def _read(self, rows: np.ndarray, out: np.ndarray) -> None:
        if self._is_jpeg:
            self._read_jpeg(rows, out)
        elif self._direct is None:
            self._read_runs(self._data(), rows, np.arange(len(rows)), out)
        else:
            left = self._direct.read(rows, out)
            if len(left):
                self._read_runs(self._data(), rows[left], left, out)

    def _checked_rows(self, rows) -> np.ndarray:
        array = np.asarray(rows)
        if array.size == 0:
            return np.empty(0, dtype=np.int64)
        if array.ndim != 1 or array.dtype.kind not in "ui":
            hint = " Turn a mask into rows with np.flatnonzero(mask)." if array.dtype.kind == "b" else ""
            raise TypeError(
                f"rows must be a one-dimensional sequence of integers; got shape {array.shape} of {array.dtype}.{hint}"
            )
        outside = array[(array < -self._n) | (array >= self._n)]
        if len(outside):
            raise IndexError(
                f"row {outside[0]} was asked for, but {self.dataset} in {self.path} has {self._n} rows "
                f"(0 to {self._n - 1})."
            )
        array = array.astype(np.int64)
        return np.where(array < 0, array + self._n, array)

    def _checked_out(self, out: np.ndarray | None, count: int) -> np.ndarray:
        shape = (count, *self._row_shape)
        if out is None:
            return np.empty(shape, dtype=self.dtype)
        if out.shape != shape or out.dtype != self.dtype or not out.flags.c_contiguous or not out.flags.writeable:
            raise ValueError(
                f"out must be a writable C-contiguous array of shape {shape} and type {self.dtype}; "
                f"got shape {out.shape} and type {out.dtype}."
            )
        return out

    def _read_runs(self, data: h5py.Dataset, rows: np.ndarray, positions: np.ndarray, out: np.ndarray) -> None:
        """Read ``rows`` to ``out[positions]``: one HDF5 read for each run of neighbours in the file and in ``out``."""
        order = np.argsort(rows, kind="stable")  # the order of the file: kind to disks, and to chunks of many images
        rows, positions = rows[order], positions[order]
        # HDF5's own calls: Dataset.read_direct spends more time on describing a row (0.2 ms) than HDF5 on reading it.
        in_file = data.id.get_space()
        rest = data.shape[1:]
        for start, stop in runs(len(rows), (np.diff(rows) != 1) | (np.diff(positions) != 1)):
            row, position, count = int(rows[start]), int(positions[start]), stop - start
            in_file.select_hyperslab((row, *(0 for _ in rest)), (count, *rest))
            in_memory = h5py.h5s.create_simple((count, *rest))
            try:
                if self._places is not None:
                    self._places.check_found(data, row, count)
                data.id.read(in_memory, in_file, out[position : position + count])
            except (OSError, RuntimeError) as error:
                asked = f"row {row}" if count == 1 else f"one of the rows {row} to {row + count - 1}"
                raise unreadable(f"{asked} of {self.dataset}", self.path, f"HDF5 said: {error}") from error

    def _read_jpeg(self, rows: np.ndarray, out: np.ndarray) -> None:
        for position in np.argsort(rows, kind="stable"):
            row = int(rows[position])
            stored = self._stored_bytes(row)
            if self._sums is not None and zlib.crc32(stored) != self._sums[row]:
                raise unreadable(f"row {row} of {self.dataset}", self.path, "its bytes do not have their CRC-32")
            out[position] = self._decoded(stored, row)

    def _stored_bytes(self, row: int) -> np.ndarray:
        if self._heap is not None:
            return self._heap.read(row)
        try:
            return self._data()[row]
        except (OSError, RuntimeError) as error:
            raise unreadable(f"row {row} of {self.dataset}", self.path, f"HDF5 said: {error}") from error

    def _decoded(self, stored: np.ndarray, row: int) -> np.ndarray:
        try:
            image = images.decode_jpeg(stored)
        except images.ImageError as error:
            raise images.ImageError(f"row {row} of {self.dataset} in {self.path}: {error}") from error
        if self._resize_to is not None:
            image = images.resize_image(image, self._resize_to)
        if image.shape != self._row_shape:
            raise images.ImageError(
                f"row {row} of {self.dataset} in {self.path} holds an image of shape {image.shape}, others have "
                f"{self._row_shape}. Pass size=(height, width) to bring all to one size."
            )
        return image


def chunk_cache_bytes(data: h5py.Dataset) -> int:
    """Size of the chunk cache that a reader gives to a chunked dataset: twice the chunks of one row, 1 to 64 MiB."""
    wanted = 2 * _chunks_a_row(data) * int(np.prod(data.chunks)) * data.dtype.itemsize
    return min(max(wanted, _SMALLEST_CACHE_BYTES), _LARGEST_CACHE_BYTES)


def _with_chunk_cache(data: h5py.Dataset) -> h5py.Dataset:
    """The same dataset with a chunk cache that holds all chunks of one row: each is then inflated once, not per row."""
    if data.chunks is None or data.size == 0:
        return data
    access = h5py.h5p.create(h5py.h5p.DATASET_ACCESS)
    slots = max(521, 10 * _chunks_a_row(data) + 1)  # about ten slots a chunk keep collisions rare (HDF5 user guide)
    # 0.75, HDF5's own: with 1.0, HDF5 1.14.6 keeps every chunk that was not read whole, however large the cache gets.
    access.set_chunk_cache(slots, chunk_cache_bytes(data), 0.75)
    file, name = data.file.id, data.name.encode()
    data.id.close()  # while a dataset is open, HDF5 opens it a second time with the settings of the first
    return h5py.Dataset(h5py.h5d.open(file, name, access))


def _check_filters(data: h5py.Dataset, path: Path, name: str) -> None:
    """Raise HDF5FileError when this process lacks a filter that the rows are packed with."""
    created = data.id.get_create_plist()
    for number, _, _, words in map(created.get_filter, range(created.get_nfilters())):
        if not h5py.h5z.filter_avail(number):
            raise HDF5FileError(
                errno.ENOSYS,
                f"{name} in {path} is packed with HDF5 filter {number} ({words.decode(errors='replace')}), and process "
                f"{os.getpid()} does not have it. Import the package that brings it before the file is read (often "
                "hdf5plugin); for worker processes also set os.environ['HDF5_PLUGIN_PATH'] = hdf5plugin.PLUGIN_PATH, "
                "or use threads: use_multiprocessing=False.",
            )


def _chunks_a_row(data: h5py.Dataset) -> int:
    return int(np.prod([-(-side // chunk) for side, chunk in zip(data.shape[1:], data.chunks[1:], strict=True)]))


def _stored_sums(data: h5py.Dataset, path: Path, name: str) -> np.ndarray | None:
    """CRC-32 of the stored bytes of each row, (n,) uint32: 4 bytes an image, read once; None in a file without them."""
    if data.file.get(crc_dataset(name), getlink=True) is None:
        return None
    sums = data.file[crc_dataset(name)]  # an error when it is there, and damaged
    if not isinstance(sums, h5py.Dataset):
        return None
    if sums.shape != data.shape or sums.dtype != np.uint32:
        raise LayoutError(
            f"{crc_dataset(name)} in {path} has shape {sums.shape} and type {sums.dtype}; expected one uint32 for each "
            f"of the {len(data)} rows of {name}. Build the file again."
        )
    return sums[:]


def _row_shape(data: h5py.Dataset, size: tuple[int, int] | None) -> tuple[int, int, int]:
    shape = stored_image_shape(data, size)
    if shape is None:
        raise LayoutError(
            f"{data.name.lstrip('/')} in {data.file.filename} holds JPEG bytes without saying their size. "
            "Pass size=(height, width)."
        )
    return shape

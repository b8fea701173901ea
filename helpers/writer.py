"""Write one HDF5 file of the kit: append images split by split; the file appears under its name only when it is whole.

::

    with HDF5Writer("food.h5", (299, 299, 3), ["bread", "soup"]) as writer:
        writer.append("train", images, labels)  # as often as needed, in any order of splits

Everything goes to ``food.h5.part``. At the end of the block the mean is stored, then ``complete``; the bytes are forced
to the disk and the file is renamed. After an exception the part is removed, and an older ``food.h5`` is still there.
"""

from __future__ import annotations

import contextlib
import errno
import os
import weakref
from collections.abc import Sequence
from pathlib import Path

import cv2
import h5py
import numpy as np

from helpers import layout
from helpers.images import decode_jpeg, encode_jpeg

CHUNK_ROWS = 1024  # rows of a chunk of labels or of references to JPEG bytes: one read serves many batches
CHUNK_BYTES = 2**20  # HDF5 1.14 caches 1 MiB a dataset; a larger chunk would be written again at every append

_writers: weakref.WeakValueDictionary[str, HDF5Writer] = weakref.WeakValueDictionary()  # open in this process, by part


class HDF5Writer:
    """Streams images and labels into one file, in a ``with`` block; memory does not depend on the number of rows.

    Parameters
    ----------
    path : the file to make. An existing one is replaced at the end, and only if all went well.
    image_shape : (height, width, 3).
    class_names : one name a class; class number i has name i.
    storage : "raw" (uint8 pixels, one image a chunk) or "jpeg" (encoded here at quality 95).
    label_kind : "onehot" (n, classes) uint8, or "sparse" (n,) int64.
    seed, source : kept as attributes, for people who ask later where the file came from.

    Raises
    ------
    ValueError
        An argument is wrong.
    HDF5FileError
        On entering the block: the file cannot be made there, or another writer is making it.
    """

    def __init__(
        self,
        path: str | os.PathLike,
        image_shape: Sequence[int],
        class_names: Sequence[str],
        *,
        storage: str = "raw",
        label_kind: str = "onehot",
        seed: int | None = None,
        source: str | None = None,
    ):
        self.path = Path(path)
        # The working directory may change inside the block; a link is followed, its large file stays on its own disk.
        self._final = self.path.resolve()
        self.part = self._final.with_name(self._final.name + ".part")
        self.image_shape = _checked_shape(image_shape)
        self.class_names = _checked_names(class_names)
        self.storage = _one_of("storage", storage, layout.STORAGES)
        self.label_kind = _one_of("label_kind", label_kind, layout.LABEL_KINDS)
        self.seed = _checked_seed(seed)
        self.source = source
        self.rows = dict.fromkeys(layout.SPLITS, 0)  # split -> rows written so far
        self._file: h5py.File | None = None
        self._sums = [0, 0, 0]  # of the training pixels, per channel; Python integers do not overflow
        self._part_id: tuple[int, int] | None = None  # of the part file as it was made

    def __repr__(self) -> str:
        state = "open" if self._file is not None else "closed"
        rows = ", ".join(f"{split} {rows}" for split, rows in self.rows.items())
        return f"<HDF5Writer {self.path} ({state}): {rows}; {self.storage}, {self.label_kind}>"

    def __enter__(self) -> HDF5Writer:
        self._file = _create(self.path, self.part)
        self._part_id = _file_id(self.part)
        _writers[str(self.part.resolve())] = self
        self.rows = dict.fromkeys(layout.SPLITS, 0)
        self._sums = [0, 0, 0]
        try:
            self._create_attributes()
            for split in layout.SPLITS:
                self._create_datasets(split)
        except BaseException:
            self.discard()
            raise
        return self

    def __exit__(self, kind, *_) -> None:
        if kind is not None:
            self.discard()
            return
        self._writable()
        try:
            self._finish()
        except BaseException:
            self.discard()
            raise

    def append(self, split: str, images: np.ndarray, labels) -> None:
        """Add rows to ``split``.

        Parameters
        ----------
        split : "train", "valid" or "test".
        images : (k, height, width, 3) uint8 RGB, decoded, for both storages.
        labels : (k,) class numbers of an integer type, or (k, classes) one-hot; stored as ``label_kind`` says.

        Raises
        ------
        ValueError
            Split, shape, type, length or a class number is wrong. Nothing of this call is written then.
        """
        file = self._writable()
        _one_of("split", split, layout.SPLITS)
        self._check_images(images)
        numbers = self._class_numbers(labels, len(images))
        try:
            self._write(file, split, images, numbers)
        except BaseException:
            self.discard()  # half a row may be in the file: it must not be finished
            raise

    def discard(self) -> None:
        """Close and remove the part file; the final name is not touched. A second call does nothing."""
        if self._file is None:
            return
        with contextlib.suppress(OSError, RuntimeError):  # on a full disk closing fails as well
            self._file.close()
        self._release()
        if _file_id(self.part) == self._part_id:
            self.part.unlink(missing_ok=True)

    # -- steps of the block -------------------------------------------------------------------------------------------

    def _create_attributes(self) -> None:
        attributes = self._file.attrs
        attributes[layout.COMPLETE] = False
        attributes.create(layout.CLASS_NAMES, list(self.class_names), dtype=h5py.string_dtype("utf-8"))
        attributes[layout.VERSION] = layout.KIT_VERSION
        if self.seed is not None:
            attributes[layout.SEED] = self.seed
        if self.source is not None:
            attributes[layout.SOURCE] = self.source

    def _create_datasets(self, split: str) -> None:
        images, labels = layout.image_dataset(split), layout.label_dataset(split)
        if self.storage == "raw":
            self._create_dataset(images, self.image_shape, np.uint8, rows=1)  # any order of rows costs the same
        else:
            self._create_dataset(images, (), h5py.vlen_dtype(np.uint8), rows=CHUNK_ROWS)
            self._file[images].attrs[layout.IMAGE_SHAPE] = self.image_shape
        if self.label_kind == "onehot":
            classes = len(self.class_names)
            self._create_dataset(labels, (classes,), np.uint8, rows=min(CHUNK_ROWS, max(1, CHUNK_BYTES // classes)))
        else:
            self._create_dataset(labels, (), np.int64, rows=CHUNK_ROWS)

    def _create_dataset(self, name: str, row_shape: tuple[int, ...], dtype, rows: int) -> None:
        self._file.create_dataset(name, (0, *row_shape), dtype, maxshape=(None, *row_shape), chunks=(rows, *row_shape))

    def _write(self, file: h5py.File, split: str, images: np.ndarray, numbers: np.ndarray) -> None:
        start = self.rows[split]
        if self.storage == "jpeg":
            encoded = [np.frombuffer(encode_jpeg(image), np.uint8) for image in images]
            images = map(decode_jpeg, encoded)  # the mean is that of the pixels a reader will get
            _extend(file[layout.image_dataset(split)], start, encoded)
        else:
            _extend(file[layout.image_dataset(split)], start, images)
        _extend(file[layout.label_dataset(split)], start, self._stored_labels(numbers))
        if split == "train":
            self._add_to_mean(images)
        self.rows[split] += len(numbers)

    def _stored_labels(self, numbers: np.ndarray) -> np.ndarray:
        if self.label_kind == "sparse":
            return numbers
        return (numbers[:, np.newaxis] == np.arange(len(self.class_names))).astype(np.uint8)

    def _add_to_mean(self, images) -> None:
        for image in images:
            for channel, value in enumerate(cv2.sumElems(image)[:3]):  # doubles, exact up to 2**53
                self._sums[channel] += int(value)

    def _finish(self) -> None:
        file = self._file
        pixels = self.rows["train"] * self.image_shape[0] * self.image_shape[1]
        if pixels:
            file.attrs[layout.MEAN] = np.array([total / pixels for total in self._sums])
        file.flush()
        file.attrs[layout.COMPLETE] = True
        file.close()
        if _file_id(self.part) != self._part_id:  # where disks cannot lock, nothing keeps two writers apart
            raise layout.HDF5FileError(
                errno.EBUSY,
                f"another HDF5Writer made {self.part} anew while this one wrote {self.path.name}; what this one wrote "
                "is lost. Wait for the other, then build again.",
            )
        _force_to_disk(self.part)
        self.part.replace(self._final)
        _force_folder_to_disk(self._final.parent)
        self._release()

    def _release(self) -> None:
        self._file = None
        _writers.pop(str(self.part.resolve()), None)

    # -- checks -------------------------------------------------------------------------------------------------------

    def _writable(self) -> h5py.File:
        if self._file is None:
            raise ValueError(
                f"the writer of {self.path} is not open. Use it as `with HDF5Writer(...) as writer:`; after an append "
                "that failed while writing, start the file again."
            )
        return self._file

    def _check_images(self, images) -> None:
        wanted = f"(k, {', '.join(map(str, self.image_shape))}) uint8"
        if not isinstance(images, np.ndarray):
            raise ValueError(f"images must be {wanted}; got {type(images).__name__}.")
        if images.dtype != np.uint8:
            raise ValueError(
                f"images must be {wanted}; got type {images.dtype}. Keep pixels at 0 to 255: "
                "scaling belongs into the model."
            )
        if images.shape == self.image_shape:
            raise ValueError(f"images must be {wanted}; got one image {images.shape}. Pass images[np.newaxis].")
        if images.ndim != 4 or images.shape[1:] != self.image_shape:
            raise ValueError(f"images must be {wanted}; got shape {images.shape}. Resize them first.")

    def _class_numbers(self, labels, n: int) -> np.ndarray:
        labels, classes = np.asarray(labels), len(self.class_names)
        if labels.ndim not in {1, 2} or len(labels) != n:
            raise ValueError(
                f"labels must have one entry for each of the {n} images; got shape {labels.shape}. "
                "Pass class numbers (k,) or one-hot rows (k, classes)."
            )
        if n == 0:
            return np.empty(0, np.int64)
        if labels.ndim == 2:
            return _numbers_of_onehot(labels, classes)
        if labels.dtype.kind not in "iu":
            raise ValueError(f"labels (k,) must be class numbers of an integer type; got type {labels.dtype}.")
        wrong = labels[(labels < 0) | (labels >= classes)]
        if len(wrong):
            raise ValueError(
                f"labels must be class numbers from 0 to {classes - 1}, for {classes} class names; got {wrong[0]}."
            )
        return labels.astype(np.int64)


def _extend(data: h5py.Dataset, start: int, values: np.ndarray | list[np.ndarray]) -> None:
    data.resize(start + len(values), axis=0)
    if isinstance(values, np.ndarray):
        data[start:] = values
    else:  # rows of different length
        for row, value in enumerate(values, start):
            data[row] = value


def _numbers_of_onehot(labels: np.ndarray, classes: int) -> np.ndarray:
    if labels.shape[1] != classes:
        raise ValueError(
            f"one-hot labels must have {classes} columns, one for each class name; got {labels.shape[1]}. "
            "Take the width from the list of classes, never from the labels of one batch."
        )
    good = (labels != 0).sum(axis=1) == 1
    good &= (labels == 1).any(axis=1)
    if not good.all():
        row = int(np.argmin(good))
        raise ValueError(f"each one-hot row must hold a single 1 and zeros; row {row} is {labels[row].tolist()}.")
    return labels.argmax(axis=1)


def _checked_shape(image_shape: Sequence[int]) -> tuple[int, int, int]:
    shape = tuple(image_shape)
    if len(shape) != 3 or shape[2] != 3 or not all(isinstance(side, (int, np.integer)) and side > 0 for side in shape):
        raise ValueError(f"image_shape must be (height, width, 3) in whole pixels; got {image_shape!r}.")
    return tuple(int(side) for side in shape)


def _checked_names(class_names: Sequence[str]) -> tuple[str, ...]:
    names = () if isinstance(class_names, str) else tuple(class_names)
    if not names or not all(isinstance(name, str) for name in names):
        raise ValueError(f"class_names must be a list with one string for each class; got {class_names!r}.")
    for name in names:
        if "\0" in name or name.encode("utf-8", "replace").decode() != name:
            raise ValueError(f"class_names must be text that HDF5 can store: no zero byte, UTF-8; got {name!a}.")
    twice = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
    if twice:
        raise ValueError(f"class_names must differ from each other; got {twice[0]!r} more than once.")
    return names


def _checked_seed(seed) -> int | None:
    if seed is not None and (not isinstance(seed, (int, np.integer)) or not -(2**63) <= seed < 2**63):
        raise ValueError(f"seed must be None or a whole number of at most 64 bits; got {seed!r}.")
    return seed


def _one_of(name: str, value: str, choices: tuple[str, ...]) -> str:
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}; got {value!r}.")
    return value


# -- files ------------------------------------------------------------------------------------------------------------


def _create(path: Path, part: Path) -> h5py.File:
    """Make the part file. One left behind by a writer that was killed is replaced; one in use is refused."""
    if path.is_dir():
        raise layout.HDF5FileError(
            errno.EISDIR, f"{path} is a folder; an HDF5 file cannot replace it. Give a file name inside it."
        )
    if path.exists() and not path.is_file():
        raise layout.HDF5FileError(
            errno.EINVAL, f"{path} is a device, a pipe or the like; an HDF5 file cannot replace it. Give another name."
        )
    if not part.parent.is_dir():
        raise layout.HDF5FileError(errno.ENOENT, f"the folder {path.parent} does not exist. Create it first.")
    if str(part.resolve()) in _writers or _is_locked(part):
        raise layout.HDF5FileError(
            errno.EBUSY,
            f"{path} is being written by another HDF5Writer (its {part.name} is in use), in this or another process. "
            "Wait for it, or stop it.",
        )
    try:
        part.unlink(missing_ok=True)
        # "v108" stores attributes above 64 kB (more than 4,000 class names); every HDF5 since 2008 reads it
        return h5py.File(part, "x", libver=("v108", "latest"))
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise layout.HDF5FileError(
            error.errno or errno.EIO, f"{part} cannot be made: {reason}. Choose a folder that this user may write to."
        ) from error


def _file_id(path: Path) -> tuple[int, int] | None:
    """What tells this file from another one that gets its name later; None when there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _is_locked(part: Path) -> bool:
    """Whether another process holds HDF5's lock on this file; creating over it would cut it before the lock is seen."""
    if not part.is_file():
        return False
    try:
        h5py.File(part, "r+").close()
    except OSError as error:
        return "unable to lock file" in str(error) and error.errno in {errno.EAGAIN, errno.EWOULDBLOCK, errno.EACCES}
    return False


def _force_to_disk(path: Path) -> None:
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def _force_folder_to_disk(folder: Path) -> None:
    """Make a rename last through a power cut; Windows does so by itself and cannot open folders."""
    if os.name == "nt":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

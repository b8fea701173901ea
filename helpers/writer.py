"""Write one HDF5 file of the kit: append images split by split; the file appears under its name only when it is whole.

::

    with HDF5Writer("food.h5", (299, 299, 3), ["bread", "soup"]) as writer:
        writer.append("train", images, labels)  # as often as needed, in any order of splits

Everything goes to ``food.h5.part`` (:mod:`helpers.part_file`). At the end of the block the mean is stored, then
``complete``; the bytes are forced to the disk and the file is renamed. After an exception an older ``food.h5`` is still
there, and the part is removed, unless :meth:`HDF5Writer.checkpoint` was called: ``resume=True`` goes on from there.
"""

from __future__ import annotations

import errno
import os
import unicodedata
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import cv2
import deflate
import h5py
import numpy as np

from helpers import layout
from helpers.images import decode_jpeg, encode_jpeg
from helpers.part_file import PartFile

CHUNK_ROWS = 1024  # rows of a chunk of labels or of references to JPEG bytes: one read serves many batches
CHUNK_BYTES = 2**20  # HDF5 1.14 caches 1 MiB a dataset; a larger chunk would be written again at every append
GZIP_LEVEL = 4  # h5py's own default
CHECKED_BYTES = 2**24  # rows of a resumed part are read again in pieces of this size


@dataclass(frozen=True)
class PackedRows:
    """Images as they are stored, with what the file says of them; made by :func:`pack_rows`, in any process."""

    stored: np.ndarray | list[np.ndarray | bytes]  # (k, height, width, 3) uint8, JPEG bytes, or gzip bytes
    crc32: np.ndarray  # (k,) uint32
    sums: tuple[int, int, int]  # of the pixels that a reader will get, per channel


def pack_rows(images: np.ndarray, storage: str = "raw", compression: str | None = None) -> PackedRows:
    """Images (k, height, width, 3) uint8 in the form in which the file holds them."""
    if storage == "jpeg":
        stored = [np.frombuffer(encode_jpeg(image), np.uint8) for image in images]
        return PackedRows(stored, _crc32(stored), _sums(map(decode_jpeg, stored)))
    stored = images if compression is None else [_gzip(image) for image in images]
    return PackedRows(stored, _crc32(images), _sums(images))


class HDF5Writer:
    """Streams images and labels into one file, in a ``with`` block; memory does not depend on the number of rows.

    Parameters
    ----------
    path : the file to make. An existing one is replaced at the end, and only if all went well.
    image_shape : (height, width, 3).
    class_names : one name a class; class number i has name i.
    storage : "raw" (uint8 pixels, one image a chunk) or "jpeg" (encoded here at quality 95).
    label_kind : "onehot" (n, classes) uint8, or "sparse" (n,) int64.
    compression : None, or "gzip" (level 4) for raw pixels. Photographs become little smaller and are read more slowly.
    seed, source, source_digest : kept as attributes, for people who ask later where the file came from.
    resume : go on from the last :meth:`checkpoint` of a writer that was stopped; :attr:`rows` says what is there, and
        :attr:`state` what that writer noted. Where there is nothing to go on with, the file is begun anew.

    Raises
    ------
    ValueError
        An argument is wrong.
    HDF5FileError
        On entering the block: the file cannot be made there, another writer is making it, or what is to be resumed was
        begun with other arguments.
    """

    def __init__(
        self,
        path: str | os.PathLike,
        image_shape: Sequence[int],
        class_names: Sequence[str],
        *,
        storage: str = "raw",
        label_kind: str = "onehot",
        compression: str | None = None,
        seed: int | None = None,
        source: str | None = None,
        source_digest: str | None = None,
        resume: bool = False,
    ):
        self._part_file = PartFile(path, resume=resume)
        self.path, self.part = self._part_file.path, self._part_file.part
        self.image_shape = _checked_shape(image_shape)
        self.class_names = _checked_names(class_names)
        self.storage = _one_of("storage", storage, layout.STORAGES)
        self.label_kind = _one_of("label_kind", label_kind, layout.LABEL_KINDS)
        self.compression = _checked_compression(compression, storage)
        self.seed = _checked_seed(seed)
        self.source = source
        self.source_digest = source_digest
        self.rows = dict.fromkeys(layout.SPLITS, 0)  # split -> rows written so far
        self._is_discarded = False
        self.state: dict | None = None  # given to the last checkpoint of the writer that is resumed
        self._sums = [0, 0, 0]  # of the training pixels, per channel
        self._label_crc32 = dict.fromkeys(layout.SPLITS, 0)  # of all label rows so far

    def __repr__(self) -> str:
        state = "open" if self._part_file.is_open else "closed"
        rows = ", ".join(f"{split} {rows}" for split, rows in self.rows.items())
        return f"<HDF5Writer {self.path} ({state}): {rows}; {self.storage}, {self.label_kind}>"

    def __enter__(self) -> HDF5Writer:
        self._part_file.__enter__()
        self._is_discarded = False
        try:
            if self._part_file.state is None:
                self._part_file.run(self._begin)
            else:
                self._part_file.run(self._check_same_arguments)
                self._go_on(self._part_file.state)
        except BaseException:
            self._part_file.abandon()
            raise
        return self

    def __exit__(self, kind, *_) -> None:
        if kind is None and not self._is_discarded:
            self._writable()
            try:
                self._finish()
            except BaseException:
                self._part_file.abandon()
                raise
        self._part_file.abandon()

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
        self._writable()
        _one_of("split", split, layout.SPLITS)
        self._check_images(images)
        self._class_numbers(labels, len(images))
        self.append_packed(split, pack_rows(images, self.storage, self.compression), labels)

    def append_packed(self, split: str, rows: PackedRows, labels) -> None:
        """Add rows that :func:`pack_rows` made, in a worker process perhaps, for the same storage and compression."""
        file = self._writable()
        _one_of("split", split, layout.SPLITS)
        numbers = self._class_numbers(labels, len(rows.stored))
        try:
            self._part_file.run(self._write, file, split, rows, numbers)
        except BaseException:
            self._part_file.abandon()  # half a row may be in the file: it must not be finished
            raise

    def checkpoint(self, state: dict | None = None) -> None:
        """What was appended so far outlives this process; ``state`` (what JSON can hold) is given to who resumes."""
        self._writable()
        own = {"rows": self.rows, "sums": self._sums, "label_crc32": self._label_crc32}
        self._part_file.checkpoint({**own, "state": state})

    def check_rows(self) -> Iterator[int]:
        """Compare all images and labels with their CRC-32, as after a power cut; gives the rows of each piece checked.

        Raises
        ------
        HDF5FileError
            A row is not what was written.
        """
        file = self._writable()
        for split in layout.SPLITS:
            images = file[layout.image_dataset(split)]
            sums = file[layout.crc_dataset(images.name.lstrip("/"))]
            step = max(1, CHECKED_BYTES // int(np.prod(self.image_shape)))
            for start in range(0, len(images), step):
                stored, crc32 = self._part_file.run(_read_both, images, sums, start, start + step)
                wrong = np.flatnonzero(_crc32(stored) != crc32)
                if len(wrong):
                    raise self._lost(f"row {start + wrong[0]} of {images.name.lstrip('/')}")
                yield len(stored)
            labels = layout.label_dataset(split)
            if self._part_file.run(_crc32_of_all, file[labels]) != self._label_crc32[split]:
                raise self._lost(f"a row of {labels}")

    def _lost(self, what: str) -> layout.HDF5FileError:
        return layout.HDF5FileError(
            errno.EIO,
            f"{what} in {self.part} is not what was written (a power cut can do that). It cannot be resumed: begin the "
            "file anew.",
        )

    def discard(self) -> None:
        """Close and remove the part file; the final name is not touched. A second call does nothing."""
        self._is_discarded = True
        self._part_file.discard()

    # -- steps of the block -------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        self.state = None
        self.rows = dict.fromkeys(layout.SPLITS, 0)
        self._sums = [0, 0, 0]
        self._label_crc32 = dict.fromkeys(layout.SPLITS, 0)
        self._create_attributes()
        for split in layout.SPLITS:
            self._create_datasets(split)

    def _go_on(self, state: dict) -> None:
        self.state = state["state"]
        self.rows = state["rows"]
        self._sums = state["sums"]
        self._label_crc32 = state["label_crc32"]

    def _check_same_arguments(self) -> None:
        file = self._part_file.file
        images, labels = file[layout.image_dataset("train")], file[layout.label_dataset("train")]
        seed = file.attrs.get(layout.SEED)
        begun = {
            "class_names": tuple(file.attrs[layout.CLASS_NAMES]),
            "storage": "raw" if images.ndim == 4 else "jpeg",
            "image_shape": tuple(images.shape[1:]) if images.ndim == 4 else layout.stored_image_shape(images),
            "label_kind": "onehot" if labels.ndim == 2 else "sparse",
            "compression": images.compression,
            "seed": None if seed is None else int(seed),
            "source": file.attrs.get(layout.SOURCE),
        }
        for name, value in begun.items():
            if getattr(self, name) != value:
                raise layout.HDF5FileError(
                    errno.EINVAL,
                    f"{self.part} was begun with {name}={value!r}, and is to be resumed with {getattr(self, name)!r}. "
                    "Use the same arguments, or begin anew, without resuming.",
                )

    def _create_attributes(self) -> None:
        attributes = self._part_file.file.attrs
        attributes[layout.COMPLETE] = False
        attributes.create(layout.CLASS_NAMES, list(self.class_names), dtype=h5py.string_dtype("utf-8"))
        attributes[layout.VERSION] = layout.KIT_VERSION
        if self.seed is not None:
            attributes[layout.SEED] = self.seed
        if self.source is not None:
            attributes[layout.SOURCE] = self.source
        if self.source_digest is not None:
            attributes[layout.SOURCE_DIGEST] = self.source_digest

    def _create_datasets(self, split: str) -> None:
        images, labels = layout.image_dataset(split), layout.label_dataset(split)
        if self.storage == "raw":  # any order of rows costs the same
            self._create_dataset(images, self.image_shape, np.uint8, rows=1, compression=self.compression)
        else:
            data = self._create_dataset(images, (), h5py.vlen_dtype(np.uint8), rows=CHUNK_ROWS)
            data.attrs[layout.IMAGE_SHAPE] = self.image_shape
        if self.label_kind == "onehot":
            classes = len(self.class_names)
            self._create_dataset(labels, (classes,), np.uint8, rows=min(CHUNK_ROWS, max(1, CHUNK_BYTES // classes)))
        else:
            self._create_dataset(labels, (), np.int64, rows=CHUNK_ROWS)
        self._create_dataset(layout.crc_dataset(images), (), np.uint32, rows=CHUNK_ROWS)

    def _create_dataset(self, name: str, row_shape: tuple[int, ...], dtype, rows: int, compression=None):
        return self._part_file.file.create_dataset(
            name,
            (0, *row_shape),
            dtype,
            maxshape=(None, *row_shape),
            chunks=(rows, *row_shape),
            compression=compression,
            compression_opts=None if compression is None else GZIP_LEVEL,
        )

    def _write(self, file: h5py.File, split: str, rows: PackedRows, numbers: np.ndarray) -> None:
        start, name = self.rows[split], layout.image_dataset(split)
        _extend(file[name], start, rows.stored, packed=self.compression is not None)
        labels = self._stored_labels(numbers)
        _extend(file[layout.label_dataset(split)], start, labels)
        _extend(file[layout.crc_dataset(name)], start, rows.crc32)
        if split == "train":
            self._sums = [total + more for total, more in zip(self._sums, rows.sums, strict=True)]
        self._label_crc32[split] = zlib.crc32(labels.tobytes(), self._label_crc32[split])
        self.rows[split] += len(numbers)

    def _stored_labels(self, numbers: np.ndarray) -> np.ndarray:
        if self.label_kind == "sparse":
            return numbers
        return (numbers[:, np.newaxis] == np.arange(len(self.class_names))).astype(np.uint8)

    def _finish(self) -> None:
        self._part_file.run(self._complete, self._part_file.file)
        self._part_file.finish()

    def _complete(self, file: h5py.File) -> None:
        pixels = self.rows["train"] * self.image_shape[0] * self.image_shape[1]
        if pixels:
            file.attrs[layout.MEAN] = np.array([total / pixels for total in self._sums])
        file.attrs[layout.COMPLETE] = True

    # -- checks -------------------------------------------------------------------------------------------------------

    def _writable(self) -> h5py.File:
        if not self._part_file.is_open:
            raise ValueError(
                f"the writer of {self.path} is not open. Use it as `with HDF5Writer(...) as writer:`; after an append "
                "that failed while writing, start the file again."
            )
        return self._part_file.file

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
        labels, classes = _as_array(labels), len(self.class_names)
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


def _crc32_of_all(labels: h5py.Dataset) -> int:
    total, step = 0, CHUNK_ROWS
    for start in range(0, len(labels), step):
        total = zlib.crc32(labels[start : start + step].tobytes(), total)
    return total


def _read_both(images: h5py.Dataset, sums: h5py.Dataset, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
    return images[start:stop], sums[start:stop]


def _extend(data: h5py.Dataset, start: int, values: np.ndarray | list, *, packed: bool = False) -> None:
    data.resize(start + len(values), axis=0)
    if packed:  # chunks of one image
        for row, value in enumerate(values, start):
            data.id.write_direct_chunk((row, 0, 0, 0), value)
    elif isinstance(values, np.ndarray):
        data[start:] = values
    else:  # rows of different length
        for row, value in enumerate(values, start):
            data[row] = value


def _gzip(image: np.ndarray) -> bytes:
    """What HDF5's gzip filter would store; by libdeflate, which is faster."""
    return bytes(deflate.zlib_compress(np.ascontiguousarray(image), GZIP_LEVEL))


def _sums(images) -> tuple[int, int, int]:
    # Python integers do not overflow; OpenCV's doubles are exact up to 2**53, and an image's sum is less.
    totals = [0, 0, 0]
    for image in images:
        for channel, value in enumerate(cv2.sumElems(image)[:3]):
            totals[channel] += int(value)
    return tuple(totals)


def _crc32(rows) -> np.ndarray:
    """CRC-32 of each row's bytes, (n,) uint32."""
    return np.fromiter((zlib.crc32(np.ascontiguousarray(row)) for row in rows), np.uint32, len(rows))


def _as_array(labels) -> np.ndarray:
    try:
        return np.asarray(labels)
    except ValueError as error:
        raise ValueError(
            "labels must be class numbers (k,) or one-hot rows (k, classes); got rows of different length."
        ) from error


def _numbers_of_onehot(labels: np.ndarray, classes: int) -> np.ndarray:
    if labels.shape[1] == 1 and classes > 1:
        raise ValueError(
            f"labels of shape {labels.shape} are class numbers in a column. Pass them as (k,): labels[:, 0]."
        )
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
    is_list = not isinstance(class_names, str) and np.iterable(class_names) and not layout.is_unordered(class_names)
    names = tuple(class_names) if is_list else ()
    if not names or not all(isinstance(name, str) for name in names):
        raise ValueError(f"class_names must be a list with one string for each class; got {class_names!r}.")
    for name in names:
        if "\0" in name or name.encode("utf-8", "replace").decode() != name:
            raise ValueError(f"class_names must be text that HDF5 can store: no zero byte, UTF-8; got {name!a}.")
    # In NFC, because an e with accent looks the same as one character and as two.
    counts = Counter(unicodedata.normalize("NFC", name) for name in names)
    if len(counts) < len(names):
        twice = min(name for name, count in counts.items() if count > 1)
        raise ValueError(f"class_names must differ from each other; got {twice!r} more than once.")
    return names


def _checked_compression(compression: str | None, storage: str) -> str | None:
    if compression not in {None, "gzip"}:
        raise ValueError(f'compression must be None or "gzip"; got {compression!r}.')
    if compression and storage == "jpeg":
        raise ValueError('compression="gzip" is for storage="raw"; JPEG bytes are packed already. Leave it out.')
    return compression


def _checked_seed(seed) -> int | None:
    if seed is not None and (not isinstance(seed, (int, np.integer)) or not -(2**63) <= seed < 2**63):
        raise ValueError(f"seed must be None or a whole number of at most 64 bits; got {seed!r}.")
    return seed


def _one_of(name: str, value: str, choices: tuple[str, ...]) -> str:
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}; got {value!r}.")
    return value

"""What a file of the kit holds: names of datasets and attributes, and how to open it. Every other module asks here.

::

    /train_img     (n, height, width, 3) uint8, or (n,) JPEG bytes
    /train_labels  (n, classes) uint8 one-hot, or (n,) int64 class numbers
    /train_crc32   (n,) uint32: CRC-32 of each image as it is stored (pixels before compression, or JPEG bytes)
    /valid_..., /test_...                                     the same
    attributes     class_names, mean, seed, source, source_digest, kit_version, complete (written last)

Files that something else wrote are read too: pass the names of their datasets as ``images`` and ``labels``.
"""

from __future__ import annotations

import errno
import operator
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np

from helpers import first_look, outside
from helpers.words import listed

SPLITS = ("train", "valid", "test")
STORAGES = ("raw", "jpeg")
LABEL_KINDS = ("onehot", "sparse")
KIT_VERSION = "0.2.0"  # of the files too: 0.2 added the CRC-32 of each row

# Names of the attributes on the root group.
CLASS_NAMES = "class_names"
MEAN = "mean"
SEED = "seed"
SOURCE = "source"
SOURCE_DIGEST = "source_digest"  # of the names and sizes of the pictures, and the options
VERSION = "kit_version"
COMPLETE = "complete"

IMAGE_SHAPE = "image_shape"  # on a dataset of JPEG bytes: what they decode to

_MOST_OBJECTS = 20_000  # looked at for the names of datasets: 0.5 s
_LARGEST_JPEG_SIDE = 65_535  # two bytes each, in the format
_MOST_DEPTH = 64  # of groups within groups

_said: set[tuple[Path, str]] = set()  # (file, dataset) whose data outside was warned about in this process


class HDF5FileError(OSError):
    """The file cannot be opened: missing, locked, cut short, or not HDF5."""

    def __str__(self) -> str:
        return self.strerror or super().__str__()  # the sentence, without "[Errno 2]" in front


class LayoutError(ValueError):
    """The file opens, but what is in it cannot be used as asked."""


class DatasetNotFoundError(LayoutError, KeyError):
    """The file has no dataset of this name."""

    __str__ = ValueError.__str__  # KeyError would print the message between quotes


class IncompleteFileError(LayoutError):
    """The writer of this file was stopped before its end."""


class OutsideFileWarning(UserWarning):
    """A dataset lies outside the file that was given: the sentence names the files that are read too."""


def image_dataset(split: str) -> str:
    """Name of the image dataset of a split: ``train_img``."""
    return f"{split}_img"


def label_dataset(split: str) -> str:
    """Name of the label dataset of a split: ``train_labels``."""
    return f"{split}_labels"


def crc_dataset(images: str) -> str:
    """Name of the dataset of CRC-32 sums that belongs to an image dataset: ``train_crc32``, for others NAME_crc32."""
    return f"{images.removesuffix('_img')}_crc32"


@dataclass(frozen=True)
class FileInfo:
    """Attributes of a file; a foreign file has few of them, and what it lacks is None (``complete`` too)."""

    path: Path
    class_names: tuple[str, ...] | None
    mean: tuple[float, float, float] | None
    seed: int | None
    source: str | None
    source_digest: str | None
    kit_version: str | None
    complete: bool | None
    splits: dict[str, int]  # split name -> rows, for the splits the file has under the kit's names


@dataclass(frozen=True)
class SplitInfo:
    """Shape and kind of one split: a pair of datasets with as many images as labels."""

    path: Path
    images: str  # dataset name
    labels: str  # dataset name
    n: int
    image_shape: tuple[int, int, int] | None  # None: foreign JPEG bytes, whose size only a decoder knows
    storage: str  # "raw" | "jpeg"
    label_kind: str  # "onehot" | "sparse": how the file stores them
    class_names: tuple[str, ...] | None
    num_classes: int | None


def open_file(path: str | os.PathLike, *, look_first: bool = True, **options) -> h5py.File:
    """Open ``path`` read-only; ``options`` go to ``h5py.File`` (``rdcc_nbytes=``, ``locking=`` ...).

    ``look_first`` lets a child process read the file first where HDF5 might not survive it
    (:mod:`helpers.first_look`); not needed for a file that this program has read before.

    Raises
    ------
    HDF5FileError
        Missing, a folder, not HDF5, cut short, locked by a writer, or so damaged that HDF5 does not survive it: the
        sentence says which and what to do.
    """
    path = file_path(path)
    try:
        exists = path.exists()
    except OSError as error:  # a folder that may not be entered, a name longer than disks take
        raise HDF5FileError(error.errno, f"{path} cannot be opened: {error.strerror}. Check the path.") from error
    if not exists:
        raise HDF5FileError(errno.ENOENT, _why_missing(path))
    if path.is_dir():
        raise HDF5FileError(
            errno.EISDIR, f"{path} is a folder, not an HDF5 file. Build one from it: data_scripts.build_hdf5."
        )
    if not path.is_file():
        raise HDF5FileError(errno.ESPIPE, f"{path} is a device or a pipe, not a file. Check the path.")
    try:
        file = h5py.File(path, "r", **options)
    except OSError as error:
        raise HDF5FileError(error.errno or errno.EIO, explain_open_error(path, error)) from error
    if look_first:
        _check_danger(path, file)
    return file


def _why_missing(path: Path) -> str:
    if path.is_symlink():
        return (
            f"{path} is a link to {path.readlink()}, which does not exist or leads back to the link. Is its disk "
            "there? Correct the link, or build the file first."
        )
    unfinished = path.with_name(path.name + ".part")
    hint = f" {unfinished.name} lies beside it: its builder has not finished." if outside.exists(unfinished) else ""
    return f"{path} does not exist.{hint} Check the path, or build the file first."


def _check_danger(path: Path, file: h5py.File) -> None:
    try:
        with clear_damage(path):
            danger = first_look.danger(file)
        if danger:
            raise HDF5FileError(
                errno.EIO,
                f"{path} is damaged: when it is read, {danger}. A child process tried. Build or copy it again.",
            )
    except BaseException:
        file.close()
        raise


@contextmanager
def clear_damage(path: str | os.PathLike) -> Iterator[None]:
    """Errors of h5py about what is in an open file become an HDF5FileError that names it; the kit's own pass.

    h5py meets damaged bytes with KeyError, RuntimeError, ValueError, TypeError, OverflowError or MemoryError.
    """
    try:
        yield
    except (HDF5FileError, LayoutError):
        raise
    except (OSError, RuntimeError, KeyError, ValueError, TypeError, OverflowError, MemoryError) as error:
        raise HDF5FileError(
            getattr(error, "errno", None) or errno.EIO,
            f"{path} opens, but what is in it cannot be read; it is probably damaged. Build or copy it again. "
            f"HDF5 said: {error}",
        ) from error


def file_path(path) -> Path:
    """``path`` as a Path.

    Raises TypeError for all else, such as an HDF5 object: it belongs to one process, and dies with its file.
    """
    if isinstance(path, (str, os.PathLike)):
        return Path(path)
    kind = type(path).__name__
    if isinstance(path, (h5py.File, h5py.Group, h5py.Dataset)):
        got = f"an open {kind.lower()} of {path.file.filename}" if path else f"a {kind.lower()} that is closed already"
    else:
        got = "nothing" if path is None else f"an object of type {kind}"
    raise TypeError(
        f"path must name an HDF5 file, which each process opens for itself; got {got}. Pass the name of the file."
    )


def explain_open_error(path: str | os.PathLike, error: OSError) -> str:
    """Turn HDF5's error of opening ``path`` into one sentence that says what happened and what to do."""
    text = str(error)
    if "h5clear" in text:  # a mark in the file, in the formats from HDF5 1.10 on; a lock would have been met before it
        return (
            f"{path} was never closed: the process that wrote it was killed, or writes to it still. If nothing does, "
            f"its last rows may be missing: build it again, or remove the mark with h5clear -s FILE. HDF5 said: {text}"
        )
    if "unable to lock file" in text or "file is already open" in text:
        if error.errno in {errno.EAGAIN, errno.EWOULDBLOCK, errno.EACCES} or "already open" in text:
            return (
                f"{path} is open for writing in another process or notebook kernel. Close it there "
                f"(shut down the old kernel), then try again. HDF5 said: {text}"
            )
        return (
            f"The disk that holds {path} does not support file locks (common on network disks). If nothing writes to "
            f"the file, set HDF5_USE_FILE_LOCKING=FALSE before Python starts. HDF5 said: {text}"
        )
    if "truncated file" in text:
        return (
            f"{path} is cut short: a copy, download or build stopped early. Copy or build it again. HDF5 said: {text}"
        )
    if "file signature not found" in text:
        return (
            f"{path} is not an HDF5 file, or the process that wrote it was killed before anything was saved "
            f"(an HTML error page saved under this name is common). Build or download it again. HDF5 said: {text}"
        )
    if error.errno == errno.EACCES or "Permission denied" in text:
        return f"{path} may not be read by this user (permission denied). Change its permissions."
    return f"{path} cannot be opened as HDF5; it is probably damaged. Build or copy it again. HDF5 said: {text}"


def read_file_info(path: str | os.PathLike) -> FileInfo:
    """Read the attributes and split sizes of ``path``. Raises HDF5FileError like :func:`open_file`."""
    with open_file(path) as file, clear_damage(path):
        return file_info(file)


def file_info(file: h5py.File) -> FileInfo:
    """The same for a file that is open already."""
    return FileInfo(
        path=Path(file.filename),
        class_names=_convert(file.attrs.get(CLASS_NAMES), _texts),
        mean=_convert(file.attrs.get(MEAN), _three_floats),
        seed=_convert(file.attrs.get(SEED), int),
        source=_convert(file.attrs.get(SOURCE), as_text),
        source_digest=_convert(file.attrs.get(SOURCE_DIGEST), as_text),
        kit_version=_convert(file.attrs.get(VERSION), as_text),
        complete=_convert(file.attrs.get(COMPLETE), bool),
        splits={
            split: row_count(file[image_dataset(split)])
            for split in SPLITS
            if isinstance(file.get(image_dataset(split)), h5py.Dataset)
        },
    )


def read_split_info(
    path: str | os.PathLike,
    split: str = "train",
    *,
    images: str | None = None,
    labels: str | None = None,
    classes: int | Sequence[str] | None = None,
    size: tuple[int, int] | None = None,
) -> SplitInfo:
    """Look at one split and check that it can be trained on.

    Parameters
    ----------
    split : "train", "valid" or "test"; not used when ``images`` and ``labels`` name the datasets.
    images, labels : dataset names of a foreign file, both or neither.
    classes : class names, or their number, where the file does not say.
    size : (height, width) of JPEG bytes whose size the file does not say.

    Raises
    ------
    HDF5FileError
        The file does not open.
    DatasetNotFoundError
        No such dataset; the sentence lists those that there are.
    IncompleteFileError
        The writer was stopped before the end (attribute ``complete`` is false).
    LayoutError
        Lengths differ, images are not (n, height, width, 3) uint8 or JPEG bytes, labels are neither one-hot nor
        class numbers.
    """
    if (images is None) != (labels is None):
        raise LayoutError(
            f"images and labels name a pair of datasets: give both or neither; got images={images!r} and "
            f"labels={labels!r}."
        )
    if images is None and split not in SPLITS:
        raise LayoutError(
            f"split must be one of {', '.join(SPLITS)}; got {split!r}. For other dataset names pass images= and "
            "labels=."
        )
    images, labels = images or image_dataset(split), labels or label_dataset(split)
    size = checked_size(size)
    with open_file(path) as file, clear_damage(path):
        return split_info(file, Path(path), images, labels, classes, size)


def split_info(
    file: h5py.File, path: Path, images: str, labels: str, classes=None, size=None, *, quiet: bool = False
) -> SplitInfo:
    """The same for a file that is open already; ``quiet`` as in :func:`find_dataset`."""
    info = file_info(file)
    if info.complete is False:
        raise IncompleteFileError(
            f"{path} is incomplete: the process that wrote it stopped early, and its last rows may be empty. "
            "Build it again."
        )
    image_data, label_data = find_dataset(file, images, quiet=quiet), find_dataset(file, labels, quiet=quiet)
    for data in (image_data, label_data):
        _check_bits(path, data)
    _check_full_size(path, image_data)
    shape, storage = _image_kind(path, image_data, size)
    label_kind, width = _label_kind(path, label_data)
    if len(image_data) != len(label_data):
        raise LayoutError(
            f"{images} has {len(image_data)} rows but {labels} has {len(label_data)} in {path}. "
            "Rebuild the file: HDF5Writer.append writes both together."
        )
    names, number = _class_names(path, labels, info.class_names, classes, width)
    return SplitInfo(path, images, labels, len(image_data), shape, storage, label_kind, names, number)


def dataset_names(file: h5py.Group) -> list[str]:
    """Full names of the datasets in ``file``, in the order of their names; links to datasets count, if they lead there.

    Of a group that is met twice, through links, one name counts. Damaged objects and links to groups are passed over,
    and so is what lies deeper than 64 groups, or beyond the first 20,000 objects.
    """
    found: list[str] = []
    seen: set[int] = {h5py.h5o.get_info(file.id).addr}
    groups = [("", file.id)]
    left = _MOST_OBJECTS
    while groups and left > 0:
        prefix, group = groups.pop()
        names = _link_names(group, left)
        left -= len(names)
        for name in names:
            full = prefix + os.fsdecode(name)
            kind, address = _kind_of_member(group, name)
            if kind == h5py.h5o.TYPE_DATASET:
                found.append(full)
            elif kind == h5py.h5o.TYPE_GROUP and address not in seen and full.count("/") < _MOST_DEPTH:
                seen.add(address)
                groups.append((f"{full}/", h5py.h5g.open(group, name)))
    return sorted(found)


def find_dataset(file: h5py.File, name: str, *, quiet: bool = False) -> h5py.Dataset:
    """The dataset ``name`` of an open file.

    Data that lies in another file (an external link, a virtual dataset, external storage) is warned about by an
    :class:`OutsideFileWarning`, once for each file and dataset, and not at all when ``quiet``.

    Raises
    ------
    DatasetNotFoundError
        There is none; the sentence lists the datasets that there are.
    LayoutError
        It lies in another file that is missing, or that has not the rows: HDF5 itself would serve fill values.
    """
    item, sources = outside.find(file, name)
    missing = next((source.missing for source in sources if source.fault), None)
    if missing:
        raise LayoutError(
            f"{name} in {file.filename} is not complete: {missing}. HDF5 would serve empty images in its place. Bring "
            "that file back, or build this one again."
        )
    if not isinstance(item, h5py.Dataset):
        have = listed(dataset_names(file)) or "none"
        raise DatasetNotFoundError(f"{file.filename} has no dataset {name!r}. Datasets in it: {have}.")
    if sources and not quiet:
        _warn_outside(file, name, sources)
    return item


def _warn_outside(file: h5py.File, name: str, sources: list[outside.Source]) -> None:
    key = Path(file.filename).absolute(), name
    if key in _said:
        return
    _said.add(key)
    warnings.warn(
        f"{name} in {file.filename} lies outside this file: {where_outside(sources)} is read as well. Whoever changes "
        "that changes your data. `python -m data_scripts.rechunk IN.h5 OUT.h5` brings all into one file.",
        OutsideFileWarning,
        stacklevel=4,
    )


def where_outside(sources: Sequence[outside.Source]) -> str:
    """The other files in words: ``more.h5 (external link)``."""
    places = list(dict.fromkeys(f"{source.file} ({source.way})" for source in sources))
    return ", ".join(places[:5]) + (f" and {len(places) - 5} more" if len(places) > 5 else "")


def _link_names(group: h5py.h5g.GroupID, most: int) -> list[bytes]:
    names: list[bytes] = []
    group.links.iterate(lambda name: names.append(name) or (True if len(names) >= most else None))
    return names


def _kind_of_member(group: h5py.h5g.GroupID, name: bytes) -> tuple[int | None, int]:
    """Type and address of a member of a group; links to datasets count as these, and to sound files only."""
    try:
        if group.links.get_info(name).type == h5py.h5l.TYPE_HARD:
            info = h5py.h5o.get_info(group, name)
            return info.type, info.addr
        is_dataset = isinstance(outside.find(h5py.Group(group), os.fsdecode(name))[0], h5py.Dataset)
        return (h5py.h5o.TYPE_DATASET if is_dataset else None), 0
    except (OSError, RuntimeError, KeyError, ValueError, TypeError):  # damaged
        return None, 0


def checked_size(size) -> tuple[int, int] | None:
    """``size`` as (height, width); None stays None. Raises LayoutError when it is something else."""
    if size is None:
        return None
    try:
        height, width = (operator.index(side) for side in size)
    except (TypeError, ValueError):
        height = width = 0
    if height < 1 or width < 1:
        raise LayoutError(f"size must be (height, width) in whole pixels, at least 1 each; got {size!r}.")
    return height, width


def row_count(data: h5py.Dataset) -> int:
    """Rows of a dataset; 0 for a single value and for one without any (h5py has no ``len`` for these)."""
    return data.shape[0] if data.shape else 0


def not_onehot(rows: np.ndarray) -> np.ndarray:
    """Which of (n, classes) rows are something else than one 1 among zeros: (n,) bool."""
    return (np.count_nonzero(rows, axis=1) != 1) | (rows.max(axis=1, initial=0) != 1)


def stored_image_shape(data: h5py.Dataset, size: tuple[int, int] | None = None) -> tuple[int, int, int] | None:
    """Shape of the images in a dataset of JPEG bytes: ``size`` if given, else what the file says, else None."""
    if size is not None:
        return (*size, 3)
    stored = data.attrs.get(IMAGE_SHAPE)
    if stored is None:
        return None
    shape = tuple(int(side) for side in stored)
    if len(shape) != 3 or shape[2] != 3 or not all(0 < side <= _LARGEST_JPEG_SIDE for side in shape):
        raise LayoutError(
            f"{data.name.lstrip('/')} in {data.file.filename} says that its images have shape {shape}; expected "
            f"(height, width, 3), at most {_LARGEST_JPEG_SIDE:,} pixels a side. The file is damaged: build it again."
        )
    return shape


def _check_bits(path, data: h5py.Dataset) -> None:
    """Refuse integers of which only some bits count: no program stores pixels so, but one flipped bit does."""
    kind = data.id.get_type()
    kind = kind.get_super() if isinstance(kind, h5py.h5t.TypeEnumID) else kind
    if data.dtype.kind in "ui" and kind.get_precision() != 8 * kind.get_size():
        raise LayoutError(
            f"{data.name.lstrip('/')} in {path} says that of the {8 * kind.get_size()} bits of a number only "
            f"{kind.get_precision()} count. Most likely the file is damaged. Copy or build it again."
        )


def _check_full_size(path, data: h5py.Dataset) -> None:
    """Refuse a shape that no program makes, but one flipped bit does: then images are a part of what was stored.

    Only rows in chunks, or in other files, may have room to grow; whether chunks hold more than the shape shows,
    :mod:`helpers.places` asks them.
    """
    grows = data.chunks is not None or data.is_virtual or data.external
    for side, most in zip(data.shape[1:], data.maxshape[1:], strict=True) if data.shape else ():
        if most is not None and (side > most or (side < most and not grows)):
            raise LayoutError(
                f"{data.name.lstrip('/')} in {path} has shape {data.shape}, but was made for {data.maxshape}. Most "
                "likely the file is damaged. Copy or build it again."
            )


def _image_kind(path, data: h5py.Dataset, size: tuple[int, int] | None) -> tuple[tuple[int, int, int] | None, str]:
    vlen = h5py.check_vlen_dtype(data.dtype)
    if data.ndim == 1 and vlen is not None and np.dtype(vlen) == np.uint8:
        return stored_image_shape(data, size), "jpeg"
    name = data.name.lstrip("/")
    if data.ndim != 4 or data.shape[-1] != 3 or data.dtype != np.uint8:
        raise LayoutError(
            f"{name} in {path} has shape {data.shape} and type {data.dtype}; expected (n, height, width, 3) uint8, "
            "or JPEG bytes (one variable-length uint8 a row). Rebuild the file from the images: "
            "data_scripts.build_hdf5."
        )
    if size is not None and size != data.shape[1:3]:
        raise LayoutError(
            f"size {size} was asked for, but {name} in {path} holds images of {data.shape[1:3]}. Leave size out."
        )
    return tuple(data.shape[1:]), "raw"


def _label_kind(path, data: h5py.Dataset) -> tuple[str, int | None]:
    if data.ndim == 2 and data.shape[1] and data.dtype.kind in "uif":
        return "onehot", data.shape[1]
    if data.ndim == 1 and data.dtype.kind in "ui":
        return "sparse", None
    raise LayoutError(
        f"{data.name.lstrip('/')} in {path} has shape {data.shape} and type {data.dtype}; expected one-hot rows "
        "(n, classes) or class numbers (n,) of an integer type."
    )


def _class_names(path, labels, stored, given, width) -> tuple[tuple[str, ...] | None, int | None]:
    _check_classes(given)
    if given is None:
        names, number = stored, len(stored) if stored is not None else width
    elif isinstance(given, (int, np.integer)):
        names, number = (stored if stored is not None and len(stored) == given else None), int(given)
    else:
        names = tuple(as_text(name) for name in given)
        number = len(names)
        _check_order(path, names, stored)
    if given is not None and number < 1:
        raise LayoutError(f"classes must be at least 1; got {given!r}.")
    if width == 1 and (number != 1 or (stored is None and given is None)):
        raise LayoutError(
            f"{labels} in {path} has one column: class numbers (n, 1), most likely, or one-hot rows of one class. "
            "Store class numbers as (n,): labels[:, 0]."
        )
    if width is not None and number != width:
        raise LayoutError(
            f"{labels} in {path} has {width} columns, but there are {number} classes. Pass the right classes=."
        )
    return names, number


def is_unordered(names) -> bool:
    """Whether names of classes have no order of their own: that of a set changes from run to run."""
    return isinstance(names, (set, frozenset, Mapping))


def _check_classes(given) -> None:
    is_number = isinstance(given, (int, np.integer)) and not isinstance(given, bool)
    if isinstance(given, str) or not (given is None or is_number or np.iterable(given)):
        raise LayoutError(f"classes must be a list of names, or their number; got {given!r}.")
    if is_unordered(given):
        raise LayoutError(
            f"classes must be a list, in the order of the class numbers; got a {type(given).__name__}, whose order "
            "says nothing about these. Pass a list."
        )


def _check_order(path, given: tuple[str, ...], stored: tuple[str, ...] | None) -> None:
    if stored is not None and given != stored and sorted(given) == sorted(stored):
        raise LayoutError(
            f"classes must be in the order of the class numbers, which in {path} is {listed(stored)}; got "
            f"{listed(given)}. Leave classes out: the file has them."
        )


def as_text(value) -> str:
    """A stored text or number as str; bytes that are not UTF-8 (old files hold Latin-1) as ``\\xe9``."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return str(value).encode("utf-8", "backslashreplace").decode()


def _texts(values) -> tuple[str, ...]:
    return tuple(as_text(value) for value in np.ravel(values))


def _three_floats(values) -> tuple[float, float, float]:
    first, second, third = map(float, values)
    return first, second, third


def _convert(value, kind):
    """The attribute as ``kind``; None when it is missing, or is something else under the same name (foreign files)."""
    try:
        return None if value is None or isinstance(value, h5py.Empty) else kind(value)
    except (TypeError, ValueError):
        return None

"""A small HDF5 file whose images carry their own row number and class, to prove that nothing is lost, mixed or shifted.

Channel 0 holds the low byte of the row, channel 1 the class and the high bits of the row, both the same over the whole
image: flips, rotations, crops and zooms leave them readable. Channel 2 differs from pixel to pixel and from split to
split: a read that is off by one byte, line or split shows there.
"""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np

ROWS = {"train": 103, "valid": 40, "test": 20}
IMAGE_SHAPE = (16, 16, 3)
CLASS_NAMES = ("apple", "bread", "cheese", "dumpling", "egg")
MAX_ROWS, MAX_CLASSES = 2048, 32  # what fits into 8 + 3 bits and 5 bits
SPLIT_OFFSETS = {"train": 0, "valid": 85, "test": 170}


def class_of_row(rows: np.ndarray, classes: int = len(CLASS_NAMES)) -> np.ndarray:
    """Class number of each row, (n,) int64; mixed, not sorted by class."""
    rows = np.asarray(rows, np.int64)
    return (3 * rows + rows // classes) % classes


def coded_images(
    rows: np.ndarray, split: str = "train", shape: tuple[int, int, int] = IMAGE_SHAPE, classes: int = len(CLASS_NAMES)
) -> np.ndarray:
    """Images (n, height, width, 3) uint8 of these rows."""
    rows = np.asarray(rows, np.int64)
    images = np.empty((len(rows), *shape), np.uint8)
    images[..., 0] = (rows % 256)[:, None, None]
    images[..., 1] = (class_of_row(rows, classes) + 32 * (rows // 256))[:, None, None]
    pattern = 3 * np.arange(shape[0])[:, None] + 7 * np.arange(shape[1])[None, :] + SPLIT_OFFSETS[split]
    images[..., 2] = (pattern[None] + 11 * rows[:, None, None]) % 256
    return images


def rows_of(images: np.ndarray) -> np.ndarray:
    """Row numbers, (n,) int64, read back from the pixels of images (n, height, width, 3) of any number type."""
    center = _centers(images)
    return center[:, 0] + 256 * (center[:, 1] // 32)


def classes_of(images: np.ndarray) -> np.ndarray:
    """Class numbers, (n,) int64, read back from the pixels."""
    return _centers(images)[:, 1] % 32


def one_hot(numbers: np.ndarray, classes: int = len(CLASS_NAMES)) -> np.ndarray:
    """One-hot rows (n, classes) uint8."""
    return np.eye(classes, dtype=np.uint8)[np.asarray(numbers, np.int64)]


def make_coded_file(
    path: Path,
    *,
    rows: dict[str, int] = ROWS,
    shape: tuple[int, int, int] = IMAGE_SHAPE,
    class_names: tuple[str, ...] = CLASS_NAMES,
    label_kind: str = "onehot",
    chunk_rows: int | None = 1,
    compression: str | None = None,
    complete: bool = True,
) -> Path:
    """Write a coded file with plain h5py under the kit's names; ``chunk_rows=None`` makes contiguous datasets."""
    classes = len(class_names)
    assert max(rows.values()) <= MAX_ROWS, f"at most {MAX_ROWS} rows carry their number; got {rows}"
    assert classes <= MAX_CLASSES, f"at most {MAX_CLASSES} classes fit into the code; got {classes}"
    with h5py.File(path, "w") as file:
        for split, n in rows.items():
            images = coded_images(np.arange(n), split, shape, classes)
            numbers = class_of_row(np.arange(n), classes)
            chunks = None if chunk_rows is None else (chunk_rows, *shape)
            file.create_dataset(f"{split}_img", data=images, chunks=chunks, compression=compression)
            labels = one_hot(numbers, classes) if label_kind == "onehot" else numbers
            file.create_dataset(f"{split}_labels", data=labels)
        file.attrs["class_names"] = list(class_names)
        file.attrs["mean"] = file["train_img"][:].mean(axis=(0, 1, 2)) if "train" in rows else np.zeros(3)
        file.attrs["seed"] = 0
        file.attrs["source"] = "coded test images"
        file.attrs["kit_version"] = "0.1.0"
        file.attrs["complete"] = complete
    return path


def _centers(images: np.ndarray) -> np.ndarray:
    images = np.asarray(images)
    return np.rint(images[:, images.shape[1] // 2, images.shape[2] // 2, :]).astype(np.int64)

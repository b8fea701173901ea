"""The capstone's file: one that somebody left behind, with the faults that such files have.

Pictures in chunks by default and packed with gzip, rows sorted by class, labels as floats, and a tail of rows that were
never written, because the program that made it was stopped. Each seed gives another file: other names, sizes, classes.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np

from data_scripts.menu import MENU
from data_scripts.plates import draw_plate

_NAMES = (("archive/photos", "archive/kinds"), ("x", "y"), ("data/canteen/img", "data/canteen/target"))
_SIZES = (48, 56, 64)
_BLUR = 3e-7  # what float arithmetic left of a class number: 2 became 1.9999997


@dataclass(frozen=True)
class BadFile:
    """A bad file, and what is true of it; ``numbers`` are the class numbers of the rows that were written."""

    path: Path
    images: str
    labels: str
    class_names: tuple[str, ...]
    n: int
    numbers: np.ndarray

    @property
    def written(self) -> int:
        """How many rows were written: the rest of the file is empty."""
        return len(self.numbers)

    @property
    def capped(self) -> int:
        """The row of the picture that was taken with the lens cap on: it is black, and has a label."""
        return self.written // 2

    @property
    def usable(self) -> np.ndarray:
        """The rows with a picture, in the order of the file."""
        return np.delete(np.arange(self.written), self.capped)


def bad_file(
    folder,
    seed: int = 0,
    *,
    per_class: int = 60,
    label_kind: str | None = None,
    missing: int | None = None,
    sorted_rows: bool = True,
    chunks: bool | tuple = True,
    compression: str | None = "gzip",
) -> BadFile:
    """Make ``folder/left_behind_SEED.h5``, and the folder; what the keywords leave open is drawn from ``seed``.

    Parameters
    ----------
    per_class : pictures of each of the 4 to 6 dishes; an eighth of the last dish at least is missing, a half at most.
    label_kind : "onehot", float32 rows of 0 and 1, or "numbers", float64 class numbers that are a little off.
    missing : rows at the end that were never written.
    sorted_rows, chunks, compression : the other faults, to switch off.

    One picture in the middle is black, and has a label: somebody forgot the lens cap.
    """
    rng = np.random.default_rng([seed, 9])
    classes, size = 4 + int(rng.integers(3)), int(rng.choice(_SIZES))
    images, labels = _NAMES[rng.integers(len(_NAMES))]
    kind = label_kind or ("onehot", "numbers")[rng.integers(2)]
    missing = int(rng.integers(per_class // 8, per_class // 2)) if missing is None else missing
    numbers, pixels = np.repeat(np.arange(classes), per_class), _pictures(classes, per_class, size, seed)
    order = np.arange(len(numbers)) if sorted_rows else rng.permutation(len(numbers))
    numbers, written = numbers[order], len(numbers) - missing
    path = Path(folder) / f"left_behind_{seed}.h5"
    names = tuple(dish.name for dish in MENU[:classes])
    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "w") as file:
        layout = {"chunks": chunks or None, "compression": compression if chunks else None}
        data = file.create_dataset(images, pixels.shape, "uint8", **layout)
        data[:written] = pixels[order][:written]
        data[written // 2] = 0
        target = file.create_dataset(labels, **_label_layout(kind, len(numbers), classes))
        target[:written] = _float_labels(kind, numbers[:written], classes, rng)
        file.attrs["class_names"] = names
    return BadFile(path, images, labels, names, len(numbers), numbers[:written])


@functools.lru_cache(maxsize=8)
def _pictures(classes: int, per_class: int, size: int, seed: int) -> np.ndarray:
    """(classes * per_class, size, size, 3) uint8, sorted by class."""
    return np.stack([draw_plate(dish, k, size, seed) for dish in range(classes) for k in range(per_class)])


def _label_layout(kind: str, n: int, classes: int) -> dict:
    return {"shape": (n, classes), "dtype": "float32"} if kind == "onehot" else {"shape": (n,), "dtype": "float64"}


def _float_labels(kind: str, numbers: np.ndarray, classes: int, rng: np.random.Generator) -> np.ndarray:
    if kind == "onehot":
        return np.eye(classes, dtype="float32")[numbers]
    return numbers + rng.uniform(-_BLUR, _BLUR, len(numbers))

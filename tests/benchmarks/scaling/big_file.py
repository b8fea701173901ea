"""The large file: what its images look like, and how it is built.

``python -m scaling.big_file FILE IMAGES`` builds it and prints one line of JSON; scale.py watches the memory meanwhile.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import h5py
import numpy as np

from helpers import layout
from helpers.writer import HDF5Writer

from .report import progress_bar

SIDE = 299
IMAGE_SHAPE = (SIDE, SIDE, 3)
IMAGE_BYTES = SIDE * SIDE * 3
CLASSES = 101
SOURCE = "tests/benchmarks/scale.py, pixel code 1"  # the mark of a file that may be used again
APPEND_ROWS = 64  # 17 MB
GRAIN = 8  # grey levels: gzip saves as little as on a photograph


def image_count(gigabytes: float) -> int:
    """Images in a file of about this size: as many of each class, at least one."""
    return CLASSES * max(1, round(gigabytes * 1e9 / IMAGE_BYTES / CLASSES))


def class_of_row(rows: np.ndarray) -> np.ndarray:
    """Class number of each row, (n,) int64; neighbours differ."""
    return rows % CLASSES


def write_code(images: np.ndarray, rows: np.ndarray) -> None:
    """Put row number (3 bytes) and class (1 byte) into the first and the last bytes of images (n, 299, 299, 3)."""
    code = rows.astype("<u4").view(np.uint8).reshape(-1, 4)
    code[:, 3] = class_of_row(rows)
    flat = images.reshape(len(images), -1)
    flat[:, :4] = code
    flat[:, -4:] = code


def photograph(rng: np.random.Generator, height: int) -> np.ndarray:
    """A strip (height, 299, 3) uint8 of flat shapes under grain."""
    shapes = rng.integers(30, 226, (-(-height // 24), -(-SIDE // 24), 3))
    flat = np.kron(shapes, np.ones((24, 24, 1)))[:height, :SIDE]
    return np.clip(flat + rng.normal(0, GRAIN, flat.shape), 0, 255).astype(np.uint8)


def image_batches(images: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """(rows, images) of the whole file, in one array that is used again.

    Each image is another window of one strip: all it costs is a copy of its bytes.
    """
    rng = np.random.default_rng(0)
    strip = photograph(rng, 8 * SIDE).reshape(-1)
    room = np.empty((APPEND_ROWS, *IMAGE_SHAPE), np.uint8)
    for start in range(0, images, APPEND_ROWS):
        rows = np.arange(start, min(start + APPEND_ROWS, images))
        batch = room[: len(rows)]
        for image, first in zip(batch, rng.integers(0, strip.size - IMAGE_BYTES, len(rows)).tolist(), strict=True):
            image.reshape(-1)[:] = strip[first : first + IMAGE_BYTES]
        write_code(batch, rows)
        yield rows, batch


def build(path: Path, images: int) -> dict[str, float]:
    """Write the file; seconds until its last byte is on the disk."""
    names = [f"class {number:03d}" for number in range(CLASSES)]
    start = time.perf_counter()
    with HDF5Writer(path, IMAGE_SHAPE, names, source=SOURCE) as writer, progress_bar("build", images) as bar:
        for rows, batch in image_batches(images):
            writer.append("train", batch, class_of_row(rows))
            bar.update(len(rows))
    seconds = time.perf_counter() - start
    return {
        "seconds": seconds,
        "images_per_second": images / seconds,
        "mb_per_second": path.stat().st_size / 1e6 / seconds,
    }


def is_usable(path: Path, images: int) -> bool:
    """Whether ``path`` is a complete file of this benchmark with so many images."""
    try:
        with h5py.File(path) as file:
            is_ours = file.attrs.get(layout.SOURCE) == SOURCE and bool(file.attrs.get(layout.COMPLETE))
            return is_ours and file[layout.image_dataset("train")].shape == (images, *IMAGE_SHAPE)
    except (OSError, KeyError):
        return False


def main() -> int:
    try:
        print(json.dumps(build(Path(sys.argv[1]), int(sys.argv[2]))))
    except KeyboardInterrupt:  # the writer has removed what it had written
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())

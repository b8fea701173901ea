"""Make toy data: drawn plates of food, as one HDF5 file, as a folder of JPEGs, or in the layout of Food-101.

::

    python -m data_scripts.make_toy_food --out toy.h5
    python -m data_scripts.make_toy_food --out toy_folder --layout folder --classes 16 --per-class 100

The same arguments give the same pictures on every machine (JPEG bytes: with the same OpenCV). Picture k of a class
depends on the seed alone, not on how many are made, how large, or by how many processes.

An HDF5 file that this script made is replaced, in one step and only when the new one is whole. Any other file, and a
folder with anything in it, is refused.
"""

from __future__ import annotations

import argparse
import errno
import json
import os
import shutil
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property
from multiprocessing import get_context
from pathlib import Path

import cv2
import numpy as np
from tqdm import tqdm

from data_scripts.menu import MENU
from data_scripts.pen import Draws
from data_scripts.plates import DRAWING, SMALLEST, draw_plate
from helpers import layout as file_layout
from helpers.images import encode_jpeg
from helpers.writer import HDF5Writer

LAYOUTS = ("hdf5", "folder", "food101")
SPLIT = (0.7, 0.2, 0.1)  # train, valid, test
MOST_PER_CLASS = 1_000_000  # ids of pictures: a million for each dish
CHUNK_BYTES = 2**24  # pixels drawn between two appends: 16 MiB is a thousand small pictures or sixty of 299x299
SOURCE = "data_scripts.make_toy_food"

# Where plates.draw_plate has the number of a dish, so that no order shares its draws with a picture.
_PICTURE_ORDER, _ROW_ORDER = 1_000, 2_000


@dataclass(frozen=True)
class ToyFood:
    """What to make; checked here, once. The parameters are those of :func:`make_toy_food`."""

    layout: str = "hdf5"
    classes: int = 8
    per_class: int = 250
    size: int = 64
    seed: int = 0
    split: tuple[float, float, float] = SPLIT

    def __post_init__(self):
        if self.layout not in LAYOUTS:
            raise ValueError(f"layout must be one of {', '.join(LAYOUTS)}; got {self.layout!r}.")
        _check_whole("classes", self.classes, 1, len(MENU), "the menu has no more dishes")
        _check_whole("per_class", self.per_class, 1, MOST_PER_CLASS, "a picture's id has six digits for it")
        _check_whole("size", self.size, SMALLEST, 4096, "pixels a side")
        _check_whole("seed", self.seed, 0, 2**32 - 1, "32 bits")
        object.__setattr__(self, "split", _checked_split(self.split))
        if self.layout != "hdf5" and self.split != SPLIT:
            raise ValueError(
                f"split is for the layout hdf5; got {self.split} with layout {self.layout!r}. Leave it out: "
                "data_scripts.build_hdf5 splits a folder."
            )

    @cached_property
    def dishes(self) -> list[int]:
        """Places in the menu, in the order of their names: class number c of the data is dish ``dishes[c]``."""
        return sorted(range(self.classes), key=lambda dish: MENU[dish].name)

    @cached_property
    def class_names(self) -> list[str]:
        """Names in the order of class numbers: the one in which any reader of folders finds them."""
        return [MENU[dish].name for dish in self.dishes]

    @property
    def file_name(self) -> str:
        """A name that holds all parameters, and the version of the drawing."""
        split = "" if self.split == SPLIT else "_split" + "-".join(f"{100 * share:g}" for share in self.split)
        ending = ".h5" if self.layout == "hdf5" else f"_{self.layout}"
        return f"toy_food_{self.classes}x{self.per_class}_{self.size}px_seed{self.seed}{split}_drawing{DRAWING}{ending}"


def make_toy_food(
    out: str | os.PathLike,
    *,
    layout: str = "hdf5",
    classes: int = 8,
    per_class: int = 250,
    size: int = 64,
    seed: int = 0,
    split: Sequence[float] = SPLIT,
    workers: int = 1,
    progress: bool | None = None,
) -> Path:
    """Draw ``classes * per_class`` plates of food and write them to ``out``; returns its path.

    Parameters
    ----------
    out : the HDF5 file, or the folder, to make. Its parent must exist.
    layout : "hdf5": the kit's file, rows of each split shuffled, each class split alike. "folder": OUT/CLASS/ID.jpg.
        "food101": OUT/images/CLASS/ID.jpg and OUT/meta, three quarters of each class in train.txt.
    classes : 1 to 101, the first of the menu.
    per_class : pictures of each class.
    size : pixels a side, at least 16.
    seed : of pictures and order.
    split : shares of train, valid and test of the layout hdf5.
    workers : processes that draw; 1 draws in this one. A script that asks for more needs a ``__main__`` guard.
    progress : show a bar; None shows it in a terminal only.

    Raises
    ------
    ValueError
        An argument is out of its range.
    FileExistsError
        ``out`` is there and was not made by this function, or is a folder that is not empty.
    OSError
        ``out`` cannot be written.
    """
    toys = ToyFood(layout, classes, per_class, size, seed, split)
    _check_whole("workers", workers, 1, 1024, "processes")
    out = Path(out)
    make = {"hdf5": _make_file, "folder": _make_folder, "food101": _make_food101}[layout]
    with tqdm(total=classes * per_class, unit="plate", desc=out.name, disable=_quiet(progress)) as bar:
        make(out, toys, workers, bar.update)
    return out


def toy_food_file(
    folder: str | os.PathLike = "data", *, workers: int = 1, progress: bool | None = None, **params
) -> Path:
    """Path of toy data with these parameters (those of :func:`make_toy_food`) in ``folder``; made when it is missing.

    The name holds all parameters, and nothing half made ever has it: what is there is used as it is, but for an HDF5
    file that an older version of the kit made.
    """
    toys = ToyFood(**params)
    path = Path(folder) / toys.file_name
    if not path.exists() or (toys.layout == "hdf5" and _kit_version(path) != file_layout.KIT_VERSION):
        path.parent.mkdir(parents=True, exist_ok=True)
        make_toy_food(path, **asdict(toys), workers=workers, progress=progress)
    return path


def _kit_version(path: Path) -> str | None:
    """Of the kit that made the file; None when something else did."""
    try:
        return file_layout.read_file_info(path).kit_version
    except file_layout.HDF5FileError:
        return None


# -- checks -----------------------------------------------------------------------------------------------------------


def _check_whole(name: str, value, low: int, high: int, what: str) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or not low <= value <= high:
        raise ValueError(f"{name} must be a whole number from {low} to {high} ({what}); got {value!r}.")


def _checked_split(split: Sequence[float]) -> tuple[float, float, float]:
    shares = tuple(float(share) for share in split)
    if len(shares) != 3 or min(shares) < 0 or not abs(sum(shares) - 1) <= 1e-9:
        raise ValueError(f"split must be three shares, of train, valid and test, that add up to 1; got {shares}.")
    return shares


def _quiet(progress: bool | None) -> bool | None:
    return None if progress is None else not progress  # tqdm's None: off unless stderr is a terminal


def _check_replaceable(path: Path) -> None:
    """Only what this script made may be replaced."""
    if not path.is_file():
        return  # HDF5Writer speaks about folders
    try:
        source = file_layout.read_file_info(path).source
    except OSError:
        source = None
    if source != SOURCE:
        raise FileExistsError(
            errno.EEXIST, f"{path} exists and was not made by make_toy_food. Remove it, or choose another name."
        )


@contextmanager
def _new_folder(out: Path) -> Iterator[Path]:
    """A folder to fill, that gets the name ``out`` when the block ends well and is removed when it does not."""
    if out.exists() and not (out.is_dir() and not any(out.iterdir())):
        raise FileExistsError(errno.EEXIST, f"{out} exists and is not empty. Remove it, or choose another name.")
    if not out.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, f"the folder {out.parent} does not exist. Create it first.")
    part = Path(tempfile.mkdtemp(prefix=f"{out.name}.part-", dir=out.parent))
    try:
        yield part
        part.chmod(0o777 & ~_umask())  # mkdtemp makes it private
        if out.is_dir():
            out.rmdir()  # empty; Windows does not rename over it
        part.rename(out)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


# -- order ------------------------------------------------------------------------------------------------------------


def rows_of_splits(toys: ToyFood) -> dict[str, np.ndarray]:
    """(rows, 2) int64 for each split: class number and picture number, in the order they are written.

    Each class gives the same number of rows to a split; within a split all rows are shuffled.
    """
    bounds = np.cumsum([0, *_shares(toys.per_class, toys.split)])
    pictures = [_picture_order(toys, dish) for dish in toys.dishes]
    splits = {}
    for number, name in enumerate(file_layout.SPLITS):
        part = slice(bounds[number], bounds[number + 1])
        rows = np.array([(label, k) for label, order in enumerate(pictures) for k in order[part]], np.int64)
        splits[name] = rows.reshape(-1, 2)[Draws(toys.seed, _ROW_ORDER + number).order(len(rows))]
    return splits


def _shares(n: int, split: Sequence[float]) -> list[int]:
    """Split ``n`` into whole numbers; what is left of rounding down goes to the largest remainders."""
    exact = [n * share for share in split]
    whole = [int(share + 1e-6) for share in exact]  # 0.7 * 10 may be a hair below 7
    for number in sorted(range(len(split)), key=lambda number: whole[number] - exact[number])[: n - sum(whole)]:
        whole[number] += 1
    return whole


def _picture_order(toys: ToyFood, dish: int) -> np.ndarray:
    return Draws(toys.seed, _PICTURE_ORDER + dish).order(toys.per_class)


# -- drawing, in this process or in several ---------------------------------------------------------------------------


def draw_rows(toys: ToyFood, rows: np.ndarray) -> np.ndarray:
    """Pictures of ``rows`` (class number, picture number): (n, size, size, 3) uint8."""
    images = np.empty((len(rows), toys.size, toys.size, 3), np.uint8)
    for image, (label, number) in zip(images, rows.tolist(), strict=True):
        image[:] = draw_plate(toys.dishes[label], number, toys.size, toys.seed)
    return images


def _save_rows(toys: ToyFood, rows: np.ndarray, folder: Path) -> int:
    for label, number in rows.tolist():
        image = draw_plate(toys.dishes[label], number, toys.size, toys.seed)
        (folder / f"{_picture_id(toys, label, number)}.jpg").write_bytes(encode_jpeg(image))
    return len(rows)


def _picture_id(toys: ToyFood, label: int, number: int) -> str:
    """``CLASS/ID``, as in Food-101's lists; ids of different classes differ."""
    return f"{toys.class_names[label]}/{(toys.dishes[label] + 1) * MOST_PER_CLASS + number}"


def _chunks(toys: ToyFood, rows: np.ndarray) -> list[np.ndarray]:
    step = max(1, min(256, CHUNK_BYTES // (3 * toys.size**2)))
    return [rows[start : start + step] for start in range(0, len(rows), step)]


def _results(function: Callable, jobs: Sequence[tuple], workers: int) -> Iterator:
    """``function(*job)`` of each job, in order; a few ahead at most, so that memory does not depend on their number."""
    if workers == 1:
        yield from (function(*job) for job in jobs)
        return
    pool = ProcessPoolExecutor(workers, get_context("spawn"), initializer=cv2.setNumThreads, initargs=(1,))
    try:
        ahead = deque()
        for job in jobs:
            ahead.append(pool.submit(function, *job))
            if len(ahead) > 2 * workers:
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


# -- the three layouts ------------------------------------------------------------------------------------------------


def _make_file(out: Path, toys: ToyFood, workers: int, advance: Callable[[int], object]) -> None:
    _check_replaceable(out)
    splits = rows_of_splits(toys)
    chunks = [(split, chunk) for split in splits for chunk in _chunks(toys, splits[split])]
    shape = (toys.size, toys.size, 3)
    with HDF5Writer(out, shape, toys.class_names, seed=toys.seed, source=SOURCE) as writer:
        images = _results(draw_rows, [(toys, rows) for _, rows in chunks], workers)
        for (split, rows), pictures in zip(chunks, images, strict=True):
            writer.append(split, pictures, rows[:, 0])
            advance(len(rows))


def _make_folder(out: Path, toys: ToyFood, workers: int, advance: Callable[[int], object]) -> None:
    with _new_folder(out) as part:
        _save_pictures(part, toys, workers, advance)


def _make_food101(out: Path, toys: ToyFood, workers: int, advance: Callable[[int], object]) -> None:
    with _new_folder(out) as part:
        _save_pictures(part / "images", toys, workers, advance)
        _write_meta(part / "meta", toys)


def _save_pictures(folder: Path, toys: ToyFood, workers: int, advance: Callable[[int], object]) -> None:
    for name in toys.class_names:
        (folder / name).mkdir(parents=True)
    rows = np.array([(label, k) for label in range(toys.classes) for k in range(toys.per_class)], np.int64)
    for done in _results(_save_rows, [(toys, chunk, folder) for chunk in _chunks(toys, rows)], workers):
        advance(done)


def _write_meta(folder: Path, toys: ToyFood) -> None:
    """The six lists of Food-101."""
    folder.mkdir()
    _write_lines(folder / "classes.txt", toys.class_names)
    _write_lines(folder / "labels.txt", [MENU[dish].label for dish in toys.dishes])
    train = round(toys.per_class * 0.75)
    for name, part in (("train", slice(None, train)), ("test", slice(train, None))):
        ids = {
            MENU[dish].name: [_picture_id(toys, label, k) for k in sorted(_picture_order(toys, dish)[part].tolist())]
            for label, dish in enumerate(toys.dishes)
        }
        _write_lines(folder / f"{name}.txt", [picture for pictures in ids.values() for picture in pictures])
        (folder / f"{name}.json").write_text(json.dumps(ids), encoding="utf-8")


def _write_lines(path: Path, lines: Sequence[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")


# -- command line -----------------------------------------------------------------------------------------------------


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m data_scripts.make_toy_food",
        description="Draw plates of food and write them as an HDF5 file, a folder of JPEGs, or a Food-101 folder. "
        "The same arguments give the same pictures on every machine.",
        epilog="A file that this script made is replaced; any other file, and a folder that is not empty, is refused.",
    )
    parser.add_argument("--out", required=True, type=Path, metavar="PATH", help="the file or folder to make")
    parser.add_argument("--layout", default="hdf5", choices=LAYOUTS, help="what to make (default: %(default)s)")
    parser.add_argument("--classes", default=8, type=int, metavar="N", help="1 to 101 dishes (default: %(default)s)")
    parser.add_argument(
        "--per-class", default=250, type=int, metavar="N", help="pictures a class (default: %(default)s)"
    )
    parser.add_argument("--size", default=64, type=int, metavar="PIXELS", help="a side, 16 up (default: %(default)s)")
    parser.add_argument("--seed", default=0, type=int, metavar="N", help="other pictures (default: %(default)s)")
    parser.add_argument(
        "--split", default=SPLIT, type=float, nargs=3, metavar=("TRAIN", "VALID", "TEST"),
        help="shares that add up to 1, for the layout hdf5 (default: 0.7 0.2 0.1)",
    )  # fmt: skip
    parser.add_argument("--workers", default=1, type=int, metavar="N", help="drawing processes (default: %(default)s)")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status: 0, or 1 when the data cannot be made, 2 for wrong arguments."""
    options = vars(_parser().parse_args(arguments))
    try:
        path = make_toy_food(**options)
    except ValueError as error:
        print(f"make_toy_food: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"make_toy_food: {error.strerror or error}", file=sys.stderr)
        return 1
    print(_summary(path, options))
    return 0


def _summary(path: Path, options: dict) -> str:
    pictures, side = options["classes"] * options["per_class"], options["size"]
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    megabytes = sum(file.stat().st_size for file in files) / 1e6
    return f"{path}: {pictures:,} pictures of {options['classes']} classes, {side}x{side} pixels, {megabytes:.1f} MB"


if __name__ == "__main__":
    sys.exit(main())

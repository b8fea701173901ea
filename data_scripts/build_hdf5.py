"""A folder of pictures, one folder a class, becomes one HDF5 file for training.

::

    python -m data_scripts.build_hdf5 photos --out photos.h5 --size 128

The rules, each with a test:

- **Classes** are the folders directly in SOURCE, sorted by name; pictures may lie deeper inside them. A folder gets a
  class number only if at least one of its pictures can be read; the others are reported. A Food-101 folder
  (``images/CLASS/ID.jpg`` with ``meta/train.txt`` and ``meta/test.txt``) is recognised.
- **Pictures** are files named as PNG, JPEG, WebP, BMP or GIF, and files of another name whose first bytes are those of
  one of the first four. Everything else is *ignored* and listed: hidden files (a dot in front), files outside the class
  folders, links to folders (except class folders). Equal copies count as different pictures.
- **Broken pictures** are *skipped* with the reason, or stop the build. Each file found is written, skipped or ignored.
- **Splits** are stratified: of n pictures of a class, a split with share s gets n*s, rounded down or up so that the
  totals over all classes stay right as well. The first readable picture of a class always trains. The official split
  keeps Food-101's lists and takes a fifth of the training list, class by class, for validation. A picture found broken
  while writing is missing from its split, and nothing else moves.
- **Rows** are shuffled by the seed, and the pictures of a class spread evenly: every block of rows is a mix of classes.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
from tqdm import tqdm

from helpers.images import RESIZE_MODES, ImageError, quiet_pillow, read_image, resize_image
from helpers.layout import SPLITS, STORAGES, HDF5FileError
from helpers.writer import HDF5Writer

SUFFIXES = {".png", ".jpg", ".jpeg", ".jpe", ".jfif", ".webp", ".bmp", ".gif"}
ON_ERROR = ("skip", "stop")
DEFAULT_SPLIT = (0.7, 0.2, 0.1)
OFFICIAL_VALID = (Fraction(4, 5), Fraction(1, 5), Fraction(0))  # of Food-101's training list; its test list stays whole
APPEND_BYTES = 2**24  # images handed to the writer at once: enough to be fast, little beside the rest of the process
SHOWN = 20  # names in each list of a report on screen; the report file has them all


class BuildError(ValueError):
    """The file cannot be built from this source with these options."""


class BrokenImageError(BuildError):
    """A picture cannot be read, and ``on_error="stop"`` was asked for."""


@dataclass(frozen=True)
class LeftOut:
    """A file that is not in the result: its path below SOURCE, and why."""

    path: str
    reason: str


@dataclass(frozen=True)
class Options:
    """The options of a build, checked."""

    size: int = 299
    resize: str = "stretch"
    storage: str = "raw"
    split: tuple[float, float, float] | str = DEFAULT_SPLIT
    seed: int = 0
    on_error: str = "skip"

    def __post_init__(self):
        if not isinstance(self.size, (int, np.integer)) or not 1 <= self.size <= 65_500:  # 65,500 is JPEG's limit
            raise BuildError(f"size must be a whole number of pixels from 1 to 65500; got {self.size!r}.")
        if not isinstance(self.seed, (int, np.integer)) or not 0 <= self.seed < 2**63:  # the attribute has 64 bits
            raise BuildError(f"seed must be a whole number from 0 to 2**63 - 1; got {self.seed!r}.")
        for name, choices in (("resize", RESIZE_MODES), ("storage", STORAGES), ("on_error", ON_ERROR)):
            if getattr(self, name) not in choices:
                raise BuildError(f"{name} must be one of {', '.join(choices)}; got {getattr(self, name)!r}.")
        if self.split != "official":
            object.__setattr__(self, "split", _checked_shares(self.split))

    @property
    def shares(self) -> tuple[Fraction, ...]:
        """The split as exact fractions that sum to 1."""
        exact = [Fraction(share).limit_denominator(1_000_000) for share in self.split]
        return tuple(share / sum(exact) for share in exact)

    def describe(self, source: Path) -> str:
        """What the attribute ``source`` of the file says."""
        split = self.split if self.split == "official" else " ".join(map(str, self.split))
        return f"{source.resolve().name}: {self.size}x{self.size} {self.resize}, split {split}"


def _checked_shares(split) -> tuple[float, float, float]:
    shares = () if isinstance(split, str) else tuple(split)
    good = len(shares) == 3 and all(isinstance(share, (int, float)) and 0 <= share <= 1 for share in shares)
    if not good or abs(sum(shares) - 1) > 1e-6 or shares[0] == 0:
        raise BuildError(
            "split must be 'official' or three shares (train, valid, test) that sum to 1, train above 0; "
            f"got {split!r}."
        )
    return shares


# -- what lies in the folder ------------------------------------------------------------------------------------------


@dataclass
class Found:
    """Everything below SOURCE; paths are relative to it, with forward slashes, in the order of their names."""

    source: Path
    classes: dict[str, list[str]]  # class folder -> its pictures, as far as names and first bytes can tell
    ignored: list[LeftOut]
    files: int

    @property
    def pictures(self) -> int:
        return sum(map(len, self.classes.values()))


def find_pictures(source: Path) -> Found:
    """List the class folders of ``source`` and the files in them. Raises BuildError when there is nothing to build."""
    if not source.is_dir():
        what = "is a file, not a folder" if source.exists() else "does not exist"
        raise BuildError(f"{source} {what}. Give the folder that holds one folder of pictures for each class.")
    root = source / "images" if is_food101(source) else source
    found = Found(source, {folder.name: [] for folder in _class_folders(root)}, [], 0)
    if not found.classes:
        raise BuildError(
            f"{source} has no class folders. Put the pictures of each class into a folder of its own: "
            "CLASS/picture.jpg."
        )
    for path in _files(source, root):
        found.files += 1
        name = path.relative_to(source).as_posix()
        reason = _why_ignored(path, name, root)
        if reason:
            found.ignored.append(LeftOut(name, reason))
        else:
            found.classes[path.relative_to(root).parts[0]].append(name)
    if not found.pictures:
        raise BuildError(
            f"{source} has {len(found.classes)} class folders and {found.files} files, but no picture: none is a PNG, "
            "JPEG, WebP, BMP or GIF file in a class folder."
        )
    return found


def is_food101(source: Path) -> bool:
    """Whether ``source`` has the layout of Food-101."""
    return (source / "images").is_dir() and all(path.is_file() for path in _list_files(source))


def _list_files(source: Path) -> tuple[Path, Path]:
    return source / "meta" / "train.txt", source / "meta" / "test.txt"


def _class_folders(root: Path) -> list[Path]:
    folders = sorted(path for path in root.iterdir() if path.is_dir() and not path.name.startswith("."))
    for folder in folders:
        try:
            folder.name.encode("utf-8")
        except UnicodeEncodeError:
            raise BuildError(f"the class folder {folder.name!a} has a name that is not UTF-8. Rename it.") from None
    return folders


def _files(folder: Path, root: Path) -> Iterator[Path]:
    """All files below ``folder`` in the order of names; a link to a folder counts as a file, unless it is a class."""
    for path in sorted(folder.iterdir()):
        if path.is_dir() and (root in {folder, path} or not path.is_symlink()):
            yield from _files(path, root)
        else:
            yield path


def _why_ignored(path: Path, name: str, root: Path) -> str | None:
    if any(part.startswith(".") for part in name.split("/")):
        return "hidden"
    if path.is_dir():
        return "a link to a folder"
    if not path.is_file():
        return "no regular file (a broken link, a pipe ...)"
    if not path.is_relative_to(root) or path.parent == root:
        return "outside the class folders"
    if path.suffix.lower() in SUFFIXES or _starts_like_a_picture(path):
        return None
    return "not a picture"


def _starts_like_a_picture(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            head = file.read(18)
    except OSError:
        return False
    # BMP's mark is two letters; the four zeros and the size of the second header tell it from a text
    bmp = (
        head[:2] == b"BM" and head[6:10] == b"\0\0\0\0" and head[14:18] in {b"\x28\0\0\0", b"\x6c\0\0\0", b"\x7c\0\0\0"}
    )
    webp = head[:4] == b"RIFF" and head[8:12] == b"WEBP"
    return head.startswith((b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff")) or webp or bmp


# -- which picture goes into which row --------------------------------------------------------------------------------


@dataclass
class Plan:
    """The rows of each split, planned before the first is written."""

    class_names: tuple[str, ...]
    rows: dict[str, list[tuple[str, int]]]  # split -> (path, class number), in the order of writing
    skipped: list[LeftOut]  # found broken while looking for a readable picture of each class
    ignored: list[LeftOut]
    empty_classes: tuple[str, ...]  # class folders without any picture
    unreadable_classes: tuple[str, ...]  # class folders whose pictures are all broken
    not_found: tuple[str, ...]  # named in Food-101's lists, absent from the folder


def plan_rows(found: Found, options: Options) -> Plan:
    """Give each picture its split and its place. Reads at least one picture of each class.

    Raises
    ------
    BuildError
        No picture can be read, or the official lists are missing or contradict each other.
    BrokenImageError
        One cannot be read, and ``on_error`` is "stop".
    """
    rng = np.random.default_rng(options.seed)
    official = _official_lists(found) if options.split == "official" else None
    plan = Plan((), {}, [], list(found.ignored), (), (), () if official is None else official.not_found)
    parts: list[tuple[list[str], list[str], list[str]]] = []
    behind = [Fraction(0)] * 3
    for name, files in found.classes.items():
        shuffled = [files[position] for position in rng.permutation(len(files))]
        candidates = [shuffled, []] if official is None else official.divide(shuffled, plan.ignored)
        if not any(candidates):
            plan.empty_classes += (name,)
        elif not _drop_broken_fronts(candidates, found.source, options, plan.skipped):
            plan.unreadable_classes += (name,)
        else:
            shares = options.shares if official is None else OFFICIAL_VALID
            counts, behind = share_out(len(candidates[0]), shares, behind)
            train, valid, test = _cut(candidates[0], counts)
            parts.append((train, valid, test + candidates[1]))
            plan.class_names += (name,)
    if not parts:
        raise BuildError(_nothing_readable(found, plan))
    for index, split in enumerate(SPLITS):
        plan.rows[split] = spread([part[index] for part in parts], rng)
    return plan


def share_out(n: int, shares, behind) -> tuple[list[int], list[Fraction]]:
    """Divide ``n`` pictures of a class by ``shares``: each split gets n * share, rounded down or up.

    ``behind`` is what the earlier classes left each split short of; those furthest behind are rounded up. Returns the
    counts, which sum to ``n`` with at least one in train, and the new ``behind``.
    """
    wanted = [n * share for share in shares]
    counts = [int(want) for want in wanted]
    behind = [short + want - count for short, want, count in zip(behind, wanted, counts, strict=True)]
    uneven = [split for split, want in enumerate(wanted) if want != counts[split]]
    uneven.sort(key=lambda split: (split == 0 and counts[0] == 0, behind[split]), reverse=True)
    for split in uneven[: n - sum(counts)]:
        counts[split] += 1
        behind[split] -= 1
    return counts, behind


def spread(classes: list[list[str]], rng: np.random.Generator) -> list[tuple[str, int]]:
    """(path, class number) of all pictures, shuffled so that each class is spread evenly over the rows.

    The k pictures of a class get one random place in each k-th of the rows.
    """
    rows = [(path, number) for number, paths in enumerate(classes) for path in paths]
    places = [(np.arange(len(paths)) + rng.random(len(paths))) / max(1, len(paths)) for paths in classes]
    return [rows[index] for index in np.argsort(np.concatenate(places), kind="stable")]


def _cut(files: list[str], counts: list[int]) -> list[list[str]]:
    ends = np.cumsum(counts).tolist()
    return [files[end - count : end] for count, end in zip(counts, ends, strict=True)]


def _drop_broken_fronts(candidates: list[list[str]], source: Path, options: Options, skipped: list[LeftOut]) -> bool:
    """Remove broken pictures from the front of each list until one can be read; False when there is none."""
    for files in candidates:
        while files:
            if _read(files[0], source, options, skipped) is not None:
                return True
            files.pop(0)
    return False


def _nothing_readable(found: Found, plan: Plan) -> str:
    if not plan.skipped:
        return f"{found.source} holds no picture that is named in meta/train.txt or meta/test.txt."
    first, number = plan.skipped[0], len(plan.skipped)
    return f"none of the {number} pictures in {found.source} can be read; the first, {first.path}: {first.reason}."


@dataclass
class OfficialLists:
    """Food-101's own lists: pictures by their path below ``images``, without the ending."""

    train: set[str]
    test: set[str]
    not_found: tuple[str, ...]

    def divide(self, files: list[str], ignored: list[LeftOut]) -> list[list[str]]:
        """[files of the training list, files of the test list]; those in neither are added to ``ignored``."""
        unlisted = [path for path in files if _key(path) not in self.train | self.test]
        ignored.extend(LeftOut(path, "in neither meta/train.txt nor meta/test.txt") for path in sorted(unlisted))
        return [[path for path in files if _key(path) in names] for names in (self.train, self.test)]


def _official_lists(found: Found) -> OfficialLists:
    if not is_food101(found.source):
        raise BuildError(
            f"--split official needs a Food-101 folder, with images/, meta/train.txt and meta/test.txt; {found.source} "
            "has no such lists. Give three shares instead: --split 0.7 0.2 0.1."
        )
    train, test = (_read_list(path) for path in _list_files(found.source))
    both = sorted(train & test)
    if both:
        raise BuildError(
            f"{both[0]} is in meta/train.txt and in meta/test.txt, {len(both)} pictures in all. "
            "Correct the lists, or give three shares instead: --split 0.7 0.2 0.1."
        )
    present = {_key(path) for paths in found.classes.values() for path in paths}
    return OfficialLists(train, test, tuple(sorted((train | test) - present)))


def _read_list(path: Path) -> set[str]:
    lines = path.read_text(encoding="utf-8-sig").splitlines()
    return {_key(f"images/{line.strip()}") for line in lines if line.strip()}


def _key(path: str) -> str:
    name = path.removeprefix("images/")
    stem, dot, ending = name.rpartition(".")
    return stem if dot + ending.lower() in SUFFIXES else name


# -- building ---------------------------------------------------------------------------------------------------------


@dataclass
class BuildReport:
    """What became of every file: ``written + skipped + ignored == found``. Print it, or ask for ``text(None)``."""

    path: Path
    options: Options
    class_names: tuple[str, ...]
    class_counts: dict[str, list[int]]  # split -> rows of each class
    found: int
    skipped_files: list[LeftOut]
    ignored_files: list[LeftOut]
    empty_classes: tuple[str, ...]
    unreadable_classes: tuple[str, ...]
    not_found: tuple[str, ...]
    size_bytes: int
    seconds: float

    @property
    def rows(self) -> dict[str, int]:
        return {split: sum(counts) for split, counts in self.class_counts.items()}

    @property
    def written(self) -> int:
        return sum(self.rows.values())

    @property
    def skipped(self) -> int:
        return len(self.skipped_files)

    @property
    def ignored(self) -> int:
        return len(self.ignored_files)

    def missing_classes(self, split: str) -> list[str]:
        """Names of the classes without a row in ``split``."""
        return [name for name, n in zip(self.class_names, self.class_counts[split], strict=True) if not n]

    def __str__(self) -> str:
        return self.text(SHOWN)

    def text(self, limit: int | None) -> str:
        """The report with at most ``limit`` names in each list (None: all of them)."""
        size, options = self.options.size, self.options
        lines = [
            f"{self.path}: {self.written} images of {size}x{size} ({options.resize}, {options.storage}) in "
            f"{len(self.class_names)} classes, {self.size_bytes / 1e6:.1f} MB",
            f"  rows: {', '.join(f'{split} {rows}' for split, rows in self.rows.items())}",
            f"  {self.found} files found = {self.written} written + {self.skipped} skipped + {self.ignored} ignored",
        ]
        lines += _section(
            "skipped, cannot be read", [f"{file.path}: {file.reason}" for file in self.skipped_files], limit
        )
        for reason, paths in _by_reason(self.ignored_files).items():
            lines += _section(f"ignored, {reason} ({_endings(paths)})", paths, limit)
        lines += _section("class folders without a picture, no class number", self.empty_classes, limit)
        lines += _section("class folders without a readable picture, no class number", self.unreadable_classes, limit)
        lines += _section("in Food-101's lists, but not in the folder", self.not_found, limit)
        for split, rows in self.rows.items():
            if rows:
                lines += _section(f"classes without a row in {split}", self.missing_classes(split), limit)
            else:
                lines.append(f"  {split} has no rows")
        return "\n".join(lines)


def _by_reason(files: list[LeftOut]) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    for file in files:
        groups.setdefault(file.reason, []).append(file.path)
    return groups


def _endings(paths: list[str]) -> str:
    counts = Counter(Path(path).suffix.lower() or "no ending" for path in paths)
    return ", ".join(f"{n} {ending}" for ending, n in sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:8])


def _section(title: str, names, limit: int | None) -> list[str]:
    if not names:
        return []
    shown = list(names)[:limit]
    more = [] if len(shown) == len(names) else [f"    ... and {len(names) - len(shown)} more"]
    printable = [name.encode("utf-8", "backslashreplace").decode() for name in shown]  # file names need not be UTF-8
    return [f"  {title}: {len(names)}", *(f"    {name}" for name in printable), *more]


def build_hdf5(
    source,
    out,
    *,
    size: int = 299,
    resize: str = "stretch",
    storage: str = "raw",
    split: tuple[float, float, float] | str = DEFAULT_SPLIT,
    seed: int = 0,
    on_error: str = "skip",
    progress: bool = True,
) -> BuildReport:
    """Build the HDF5 file ``out`` from the folder ``source``; the rules are at the top of this module.

    Parameters
    ----------
    source : a folder with one folder a class, or a Food-101 folder.
    out : the file to make; an older one is replaced only when the new one is whole.
    size : side of the square images, in pixels.
    resize : "stretch" (all of the picture) or "crop" (its centre, not distorted).
    storage : "raw" pixels, or "jpeg" (quality 95).
    split : shares of (train, valid, test), or "official" for Food-101's own lists.
    seed : of splits and row order; the same folder and seed give the same file, byte for byte.
    on_error : "skip" broken pictures and report them, or "stop".
    progress : draw a progress bar with the rate on stderr.

    Raises
    ------
    BuildError
        An option or the folder is not usable; BrokenImageError when a broken picture stopped the build.
    HDF5FileError
        ``out`` cannot be written.

    Warns
    -----
    UserWarning
        There is only one class.
    """
    start, source, out = time.perf_counter(), Path(source), Path(out)
    options = Options(size, resize, storage, split, seed, on_error)
    found = find_pictures(source)
    with quiet_pillow():
        plan = plan_rows(found, options)
        if len(plan.class_names) == 1:
            warnings.warn(_one_class(source, plan.class_names[0]), stacklevel=2)
        counts = _write(plan, source, out, options, progress)
    return BuildReport(
        path=out,
        options=options,
        class_names=plan.class_names,
        class_counts=counts,
        found=found.files,
        skipped_files=sorted(plan.skipped, key=lambda file: file.path),
        ignored_files=sorted(plan.ignored, key=lambda file: file.path),
        empty_classes=plan.empty_classes,
        unreadable_classes=plan.unreadable_classes,
        not_found=plan.not_found,
        size_bytes=out.stat().st_size,
        seconds=time.perf_counter() - start,
    )


def _one_class(source: Path, name: str) -> str:
    return (
        f"{source} has one class only, {name}: a model cannot learn from it. If the classes are the folders inside it, "
        f"pass {source / name} instead."
    )


def _write(plan: Plan, source: Path, out: Path, options: Options, progress: bool) -> dict[str, list[int]]:
    """Write all rows of the plan; returns the rows of each class, by split, and adds to ``plan.skipped``."""
    shape = (options.size, options.size, 3)
    counts = {split: [0] * len(plan.class_names) for split in SPLITS}
    total = sum(map(len, plan.rows.values()))
    description = options.describe(source)
    with (
        HDF5Writer(
            out, shape, plan.class_names, storage=options.storage, seed=options.seed, source=description
        ) as writer,
        tqdm(total=total, unit="img", disable=not progress) as bar,
    ):
        for split in SPLITS:
            rows = _images(plan.rows[split], source, options, plan.skipped, bar)
            for images, numbers in _grouped(rows, max(1, APPEND_BYTES // int(np.prod(shape)))):
                writer.append(split, images, numbers)
                for number in numbers:
                    counts[split][number] += 1
    return counts


def _images(
    rows, source: Path, options: Options, skipped: list[LeftOut], bar: tqdm
) -> Iterator[tuple[np.ndarray, int]]:
    """The resized image and class number of each row whose picture can be read, in order."""
    for path, number in rows:
        image = _read(path, source, options, skipped)
        if image is not None:
            yield resize_image(image, (options.size, options.size), options.resize), number
        bar.update()


def _read(path: str, source: Path, options: Options, skipped: list[LeftOut]) -> np.ndarray | None:
    """The picture, or None when it is broken: then it is in ``skipped``."""
    try:
        return read_image(source / path)
    except ImageError as error:
        if options.on_error == "stop":
            raise BrokenImageError(
                f"{path} cannot be read: {error}. Nothing was written. Repair or remove it, or use --on-error skip."
            ) from error
        skipped.append(LeftOut(path, str(error)))
        return None


def _grouped(rows: Iterator[tuple[np.ndarray, int]], n: int) -> Iterator[tuple[np.ndarray, list[int]]]:
    images: list[np.ndarray] = []
    numbers: list[int] = []
    for image, number in rows:
        images.append(image)
        numbers.append(number)
        if len(images) == n:
            yield np.stack(images), numbers
            images, numbers = [], []
    if images:
        yield np.stack(images), numbers


# -- command line -----------------------------------------------------------------------------------------------------

EXAMPLES = """
examples:
  python -m data_scripts.build_hdf5 photos --out photos.h5 --size 128
  python -m data_scripts.build_hdf5 food-101 --out food.h5
  python -m data_scripts.build_hdf5 food-101 --out food.h5 --split official --storage jpeg
  python -m data_scripts.build_hdf5 photos --out photos.h5 --resize crop --on-error stop

exit status: 0 the file is written (broken pictures are in the report); 1 the build stopped, an older file of that name
is untouched; 2 it could not start.
"""


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    given = _parser().parse_args(arguments)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("default")
            warnings.showwarning = _print_warning
            report = build_hdf5(
                given.source,
                given.out,
                size=given.size,
                resize=given.resize,
                storage=given.storage,
                split=_split(given.split),
                seed=given.seed,
                on_error=given.on_error,
            )
    except BrokenImageError as error:
        return _fail(str(error), 1)
    except (BuildError, HDF5FileError) as error:
        return _fail(str(error), 2)
    except OSError as error:
        return _fail(f"the build stopped: {error}. Nothing was written under {given.out}.", 1)
    except KeyboardInterrupt:
        return _fail(f"interrupted. Nothing was written under {given.out}.", 1)
    print(report)
    print(f"  {report.seconds:.1f} s, {report.written / report.seconds:.0f} images a second")
    _save_report(report)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m data_scripts.build_hdf5",
        description="Build one HDF5 file from a folder of pictures with one folder a class.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("source", type=Path, help="folder with one folder a class (nested below is fine), or a Food-101 folder")
    add("--out", type=Path, required=True, metavar="FILE", help="the HDF5 file to make; FILE.report.txt lies beside it")
    add("--size", type=int, default=299, metavar="N", help="side of the square images in pixels (default 299)")
    add("--resize", choices=RESIZE_MODES, default="stretch", help="all of the picture, or its centre (default stretch)")
    add("--storage", choices=STORAGES, default="raw", help="pixels, or JPEG bytes of quality 95 (default raw)")
    add(
        "--split",
        nargs="+",
        default=list(map(str, DEFAULT_SPLIT)),
        metavar="SHARE",
        help="shares of train, valid and test (default 0.7 0.2 0.1), or the word official: Food-101's lists, "
        "a fifth of its training list for validation",
    )
    add("--seed", type=int, default=0, help="of the splits and the order of rows (default 0)")
    add("--on-error", choices=ON_ERROR, default="skip", help="what a broken picture does (default skip)")
    return parser


def _split(words: list[str]) -> tuple[float, ...] | str:
    if words == ["official"]:
        return "official"
    with contextlib.suppress(ValueError):
        return tuple(map(float, words))
    return " ".join(words)  # Options refuses it, with the rule


def _print_warning(message, *_) -> None:
    print(f"warning: {message}", file=sys.stderr)


def _fail(sentence: str, status: int) -> int:
    print(f"build_hdf5: {sentence}", file=sys.stderr)
    return status


def _save_report(report: BuildReport) -> None:
    path = report.path.with_name(report.path.name + ".report.txt")
    try:
        path.write_text(report.text(None) + "\n", encoding="utf-8")
        print(f"  all names: {path}")
    except OSError as error:
        print(f"warning: the HDF5 file is whole, but its report was not saved: {error}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())

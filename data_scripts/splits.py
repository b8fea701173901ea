"""Which picture goes into which split and row: planned before the first one is written."""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np

from data_scripts.folder import SUFFIXES, BuildError, Found, LeftOut, equal_files, is_food101, list_files
from helpers.images import ImageError, read_image
from helpers.layout import SPLITS

DEFAULT_SPLIT = (0.7, 0.2, 0.1)
OFFICIAL_VALID = (Fraction(4, 5), Fraction(1, 5), Fraction(0))  # of Food-101's training list; its test list stays whole


class BrokenImageError(BuildError):
    """A picture cannot be read, and ``on_error="stop"`` was asked for."""


@dataclass
class Plan:
    """The rows of each split."""

    class_names: tuple[str, ...]
    rows: dict[str, list[tuple[str, int]]]  # split -> (path, class number), in the order of writing
    skipped: list[LeftOut]  # found broken while looking for a readable picture of each class
    ignored: list[LeftOut]
    empty_classes: tuple[str, ...]  # class folders without any picture
    unreadable_classes: tuple[str, ...]  # class folders whose pictures are all skipped
    not_found: tuple[str, ...]  # named in Food-101's lists, absent from the folder
    copies: tuple[str, ...]  # files with the same bytes that the official lists name all the same

    @property
    def pictures(self) -> int:
        return sum(map(len, self.rows.values()))

    def digest(self, options: str) -> str:
        """A text that is the same for the same names of pictures, classes, order and options."""
        return hashlib.sha256(ascii((options, self.class_names, self.rows)).encode()).hexdigest()


def plan_rows(found: Found, shares: tuple[Fraction, ...] | None, seed: int, *, stop: bool = False) -> Plan:
    """Give each picture its split and its place; ``shares`` None: Food-101's lists. Reads a picture of each class.

    Raises
    ------
    BuildError
        No picture can be read, or the official lists are missing or contradict each other.
    BrokenImageError
        One cannot be read, and ``stop`` is true.
    """
    rng = np.random.default_rng(seed)
    official = None if shares is not None else _official_lists(found)
    copies = () if official is None else _listed_copies(found)
    not_found = () if official is None else official.not_found
    plan = Plan((), {}, list(found.skipped), list(found.ignored), (), (), not_found, copies)
    parts: list[tuple[list[str], list[str], list[str]]] = []
    behind = [Fraction(0)] * 3
    for name, files in found.classes.items():
        shuffled = [files[position] for position in rng.permutation(len(files))]
        candidates = [shuffled, []] if official is None else official.divide(shuffled, plan.ignored)
        if name in found.empty or (official is not None and not any(candidates)):
            plan.empty_classes += (name,)
        elif not _drop_broken_fronts(candidates, found.source, plan.skipped, stop=stop):
            plan.unreadable_classes += (name,)
        else:
            counts, behind = share_out(len(candidates[0]), OFFICIAL_VALID if shares is None else shares, behind)
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
    """(path, class number) of all pictures, shuffled so that each class is spread evenly over the rows."""
    rows = [(path, number) for number, paths in enumerate(classes) for path in paths]
    return [rows[index] for index in spread_order(map(len, classes), rng)]


def spread_order(counts: Iterable[int], rng: np.random.Generator) -> np.ndarray:
    """Order that spreads each class evenly, (n,) int64, of rows that lie class by class, ``counts`` of each.

    The k rows of a class get one random place in each k-th of the rows.
    """
    places = [(np.arange(k) + rng.random(k)) / max(1, k) for k in counts]
    return np.argsort(np.concatenate([*places, np.empty(0)]), kind="stable")


def _cut(files: list[str], counts: list[int]) -> list[list[str]]:
    ends = np.cumsum(counts).tolist()
    return [files[end - count : end] for count, end in zip(counts, ends, strict=True)]


def _drop_broken_fronts(candidates: list[list[str]], source: Path, skipped: list[LeftOut], *, stop: bool) -> bool:
    """Remove broken pictures from the front of each list until one can be read; False when there is none."""
    for files in candidates:
        while files:
            try:
                read_image(source / files[0])
                return True
            except ImageError as error:
                if stop:
                    raise broken(files[0], str(error)) from error
                skipped.append(LeftOut(files.pop(0), str(error)))
    return False


def broken(path: str, reason: str) -> BrokenImageError:
    """The error that stops a build at the picture ``path``."""
    return BrokenImageError(f"{path} cannot be used: {reason}. Repair or remove it, or use --on-error skip.")


def _nothing_readable(found: Found, plan: Plan) -> str:
    if not plan.skipped:
        return f"{found.source} holds no picture that is named in meta/train.txt or meta/test.txt."
    first, number = plan.skipped[0], len(plan.skipped)
    return f"none of the {number} pictures in {found.source} can be used; the first, {first.path}: {first.reason}."


# -- Food-101's own lists ---------------------------------------------------------------------------------------------


@dataclass
class OfficialLists:
    """Pictures by their path below ``images``, without the ending."""

    train: set[str]
    test: set[str]
    not_found: tuple[str, ...]

    def divide(self, files: list[str], ignored: list[LeftOut]) -> list[list[str]]:
        """[files of the training list, files of the test list]; those in neither are added to ``ignored``."""
        listed = self.train | self.test
        unlisted = [path for path in files if _key(path) not in listed]
        ignored.extend(LeftOut(path, "in neither meta/train.txt nor meta/test.txt") for path in sorted(unlisted))
        return [[path for path in files if _key(path) in names] for names in (self.train, self.test)]


def _official_lists(found: Found) -> OfficialLists:
    if not is_food101(found.source):
        raise BuildError(
            f"--split official needs a Food-101 folder, with images/, meta/train.txt and meta/test.txt; {found.source} "
            "has no such lists. Give three shares instead: --split 0.7 0.2 0.1."
        )
    train, test = (_read_list(path) for path in list_files(found.source))
    both = sorted(train & test)
    if both:
        raise BuildError(
            f"{both[0]} is in meta/train.txt and in meta/test.txt, {len(both)} pictures in all. "
            "Correct the lists, or give three shares instead: --split 0.7 0.2 0.1."
        )
    present = {_key(path) for paths in found.classes.values() for path in paths}
    return OfficialLists(train, test, tuple(sorted((train | test) - present)))


def _listed_copies(found: Found) -> tuple[str, ...]:
    """The lists are a published benchmark: what they name is written, copies too, and the report names these."""
    paths = sorted(path for paths in found.classes.values() for path in paths)
    return tuple(" = ".join(group) for group in equal_files(found.source, paths))


def _read_list(path: Path) -> set[str]:
    lines = path.read_text(encoding="utf-8-sig").splitlines()
    return {_key(f"images/{line.strip()}") for line in lines if line.strip()}


def _key(path: str) -> str:
    name = unicodedata.normalize("NFC", path.removeprefix("images/"))
    stem, dot, ending = name.rpartition(".")
    return stem if dot + ending.lower() in SUFFIXES else name

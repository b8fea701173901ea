"""What the inspector says about a file: findings, tables, and their words for a terminal."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from helpers import report_html
from helpers.contact_sheet import Sheet, sheet_png
from helpers.epoch_cost import EpochCost
from helpers.label_scan import NEIGHBOURS, Mix
from helpers.tree import Entry
from helpers.words import count_text, printable, size_text

SHOWN_CLASSES = 20  # of more classes only totals and extremes are shown
SHOWN_ENTRIES = 100  # lines of the table of datasets


@dataclass(frozen=True)
class Fault:
    """One finding: a stable ``code``, what is the matter, and what to do."""

    code: str
    message: str
    advice: str

    def __str__(self) -> str:
        return f"{self.code}: {self.message}" + (f"\n  Do: {self.advice}" if self.advice else "")


@dataclass(frozen=True)
class SplitReport:
    """What one pair of datasets holds."""

    images: str
    labels: str
    n: int
    counts: tuple[int, ...]  # images of each class, by class number
    mix: Mix | None = None  # None: too few rows to tell
    cost: EpochCost | None = None  # of a shuffled epoch; None: it cannot be foretold


@dataclass
class Report:
    """What :func:`inspect_file` found. ``ok``: the file can be trained on; ``readable``: it opens at all.

    It holds all that it shows: the file may be gone. A notebook shows tables and a contact sheet, ``print`` the words.
    """

    path: Path
    size_bytes: int = 0
    readable: bool = False
    entries: list[Entry] = field(default_factory=list)  # groups, datasets and links, in the order of their names
    entries_complete: bool = True  # False: the file has more than these
    attributes: dict[str, str] = field(default_factory=dict)  # of the file
    class_names: tuple[str, ...] | None = None
    splits: dict[str, SplitReport] = field(default_factory=dict)
    sheet: Sheet = field(default_factory=dict)  # some images of each split
    checked: str = ""  # which images were looked at
    faults: list[Fault] = field(default_factory=list)
    warnings: list[Fault] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.faults

    @property
    def exit_code(self) -> int:
        """0: can be trained on, 1: has faults, 2: cannot be read."""
        return 0 if self.ok else (1 if self.readable else 2)

    @property
    def datasets(self) -> dict[str, str]:
        """Name of each dataset, and its shape, type, chunks and compression in words."""
        return {entry.name: entry.words for entry in self.entries if entry.kind == "dataset"}

    @property
    def verdict(self) -> str:
        """One line: the file, its size, and whether it can be trained on."""
        path = printable(str(self.path))
        if not self.readable:
            return f"{path}: cannot be read"
        state = "can be trained on" if self.ok else f"cannot be trained on, {count_text(len(self.faults), 'fault')}"
        extra = f", {count_text(len(self.warnings), 'warning')}" if self.warnings else ""
        return f"{path}: HDF5, {size_text(self.size_bytes)}, {state}{extra}"

    def __str__(self) -> str:
        tables = [
            ("Datasets", _columns(self.entry_rows())),
            ("Attributes", _columns(self.attribute_rows())),
            ("Images a class", _grid(self.balance_rows())),
            (f"Classes among {NEIGHBOURS} neighbouring rows", _columns(self.mix_rows())),
            ("A shuffled epoch", _columns(self.cost_rows())),
        ]
        parts = [self.verdict]
        parts += ["\n".join([title, *("  " + line for line in lines)]) for title, lines in tables if lines]
        if self.checked:
            parts.append(self.checked)
        parts += [f"FAULT {fault}" for fault in self.faults] + [f"warning {fault}" for fault in self.warnings]
        return "\n\n".join(parts)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return report_html.fragment(self)

    def html_page(self) -> str:
        """The view of a notebook as a page of its own."""
        return report_html.page(self)

    def sheet_png(self) -> bytes:
        """The contact sheet as a PNG picture. Raises ValueError when no image could be shown."""
        if not any(self.sheet.values()):
            raise ValueError(f"there is no image to show in {self.path}: the report says why.")
        return sheet_png(self.sheet)

    def add_fault(self, code: str, message: str, advice: str) -> None:
        """Note what makes the file unfit for training."""
        self.faults.append(Fault(code, printable(message), printable(advice)))

    def add_warning(self, code: str, message: str, advice: str) -> None:
        """Note what costs time or accuracy, but does not stop training."""
        self.warnings.append(Fault(code, printable(message), printable(advice)))

    def entry_rows(self) -> list[tuple[str, str]]:
        """Lines of the tree: indented name, words."""
        shown = self.entries[:SHOWN_ENTRIES]
        rows = [("  " * entry.depth + _last(entry) + "/" * (entry.kind == "group"), entry.words) for entry in shown]
        left = len(self.entries) - len(shown)
        more = f"{left:,} more" if self.entries_complete else f"more than {left:,} more"
        return rows + ([("...", more)] if left or not self.entries_complete else [])

    def attribute_rows(self) -> list[tuple[str, str]]:
        """Attributes of the file, then those of groups and datasets, whose names come first."""
        rows = list(self.attributes.items())
        for entry in self.entries[:SHOWN_ENTRIES]:
            rows += [(f"{entry.name}: {name}", words) for name, words in entry.attributes.items()]
        return rows

    def balance_rows(self) -> list[list[str]]:
        """Cells of the table class x split, its head first; of many classes totals and extremes, without a head."""
        splits = {printable(name): split for name, split in self.splits.items()}
        k = max((len(split.counts) for split in splits.values()), default=0)
        known = self.class_names or ()
        names = [printable(known[c]) if c < len(known) else str(c) for c in range(k)]
        if k > SHOWN_CLASSES:
            return [[f"{name}:", _extremes(split, names)] for name, split in splits.items()]
        counts = [
            [name, *(str(each.counts[c] if c < len(each.counts) else 0) for each in splits.values())]
            for c, name in enumerate(names)
        ]
        return [["", *splits], *counts, ["all", *(str(split.n) for split in splits.values())]] if splits else []

    def mix_rows(self) -> list[tuple[str, str]]:
        """How the classes are mixed in each split, in words."""
        return [
            (printable(name), f"{mix.neighbours:.1f} on average; shuffled rows would hold {mix.shuffled:.1f}")
            for name, mix in ((name, split.mix) for name, split in self.splits.items())
            if mix is not None
        ]

    def cost_rows(self) -> list[tuple[str, str]]:
        """What a shuffled epoch over each split costs, in words."""
        return [(printable(name), str(split.cost)) for name, split in self.splits.items() if split.cost is not None]


def _columns(rows: list[tuple[str, str]]) -> list[str]:
    width = max((len(name) for name, _ in rows), default=0)
    return [f"{name:<{width}}  {text}" for name, text in rows]


def _last(entry: Entry) -> str:
    return entry.name.rsplit("/", 1)[-1]


def _grid(rows: list[list[str]]) -> list[str]:
    """Lines of a table with a head: the first column to the left, numbers to the right."""
    if not rows or rows[0][0]:
        return [" ".join(row) for row in rows]
    widths = [max(8 * (place > 0), *(len(row[place]) for row in rows)) for place in range(len(rows[0]))]
    return [
        "  ".join([f"{row[0]:<{widths[0]}}", *(f"{cell:>{w}}" for cell, w in zip(row[1:], widths[1:], strict=True))])
        for row in rows
    ]


def _extremes(split: SplitReport, names: list[str]) -> str:
    if not split.counts:
        return f"{split.n} images"
    counts = np.asarray(split.counts)
    least, most = int(counts.argmin()), int(counts.argmax())
    return (
        f"{split.n} images of {len(counts)} classes; fewest {names[least]} ({counts[least]}), "
        f"median {np.median(counts):g}, most {names[most]} ({counts[most]})"
    )

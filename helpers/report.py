"""What the inspector says about a file: findings, tables, and their words for a terminal and a notebook."""

from __future__ import annotations

import html
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

SHOWN_CLASSES = 20  # of more classes only totals and extremes are shown


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


@dataclass
class Report:
    """What :func:`inspect_file` found. ``ok``: the file can be trained on; ``readable``: it opens at all."""

    path: Path
    size_bytes: int = 0
    readable: bool = False
    datasets: dict[str, str] = field(default_factory=dict)  # name -> shape, type, chunks, compression in words
    attributes: dict[str, str] = field(default_factory=dict)
    class_names: tuple[str, ...] | None = None
    splits: dict[str, SplitReport] = field(default_factory=dict)
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
    def verdict(self) -> str:
        """One line: the file, its size, and whether it can be trained on."""
        if not self.readable:
            return f"{self.path}: cannot be read"
        state = "can be trained on" if self.ok else f"cannot be trained on, {count_text(len(self.faults), 'fault')}"
        extra = f", {count_text(len(self.warnings), 'warning')}" if self.warnings else ""
        return f"{self.path}: HDF5, {size_text(self.size_bytes)}, {state}{extra}"

    def __str__(self) -> str:
        parts = [self.verdict]
        for title, table in (("Datasets", self.datasets), ("Attributes", self.attributes)):
            if table:
                width = max(map(len, table))
                parts.append("\n".join([title, *(f"  {name:<{width}}  {text}" for name, text in table.items())]))
        if self.splits:
            parts.append("\n".join(["Images a class", *("  " + line for line in _balance(self))]))
        if self.checked:
            parts.append(self.checked)
        parts += [f"FAULT {fault}" for fault in self.faults] + [f"warning {fault}" for fault in self.warnings]
        return "\n\n".join(parts)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        found = "".join(
            f"<li><b>{kind} {item.code}</b>: {html.escape(item.message)}<br>{html.escape(item.advice)}</li>"
            for kind, items in (("Fault", self.faults), ("Warning", self.warnings))
            for item in items
        )
        rows = "".join(
            f"<tr><td style='text-align:left'><code>{html.escape(name)}</code></td>"
            f"<td style='text-align:left'>{html.escape(text)}</td></tr>"
            for name, text in (*self.datasets.items(), *((f"@{name}", text) for name, text in self.attributes.items()))
        )
        balance = html.escape("\n".join(_balance(self))) if self.splits else ""
        return (
            f"<p><b>{html.escape(self.verdict)}</b></p><table>{rows}</table>"
            f"<details><summary>Images a class</summary><pre>{balance}</pre></details>"
            f"<ul>{found}</ul><p>{html.escape(self.checked)}</p>"
        )

    def add_fault(self, code: str, message: str, advice: str) -> None:
        """Note what makes the file unfit for training."""
        self.faults.append(Fault(code, message, advice))

    def add_warning(self, code: str, message: str, advice: str) -> None:
        """Note what costs time or accuracy, but does not stop training."""
        self.warnings.append(Fault(code, message, advice))


def size_text(count: int) -> str:
    for step, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= step:
            return f"{count / step:.3g} {unit}"
    return f"{count} bytes"


def count_text(number: int, word: str) -> str:
    return f"{number} {word}" + ("" if number == 1 else "s")


def _balance(report: Report) -> list[str]:
    """Lines of the table class x split; for many classes only the totals and extremes of each split."""
    splits = report.splits
    k = max(len(split.counts) for split in splits.values())
    names = [report.class_names[c] if report.class_names and c < len(report.class_names) else str(c) for c in range(k)]
    if k > SHOWN_CLASSES:
        return [f"{name}: {_extremes(split, names)}" for name, split in splits.items()]
    width = max([len("all"), *map(len, names)])
    lines = [f"{'':<{width}}" + "".join(f"  {name:>8}" for name in splits)]
    for c, name in enumerate(names):
        lines.append(
            f"{name:<{width}}"
            + "".join(f"  {s.counts[c] if c < len(s.counts) else 0:>{max(8, len(n))}}" for n, s in splits.items())
        )
    return [*lines, f"{'all':<{width}}" + "".join(f"  {s.n:>{max(8, len(n))}}" for n, s in splits.items())]


def _extremes(split: SplitReport, names: list[str]) -> str:
    if not split.counts:
        return f"{split.n} images"
    counts = np.asarray(split.counts)
    least, most = int(counts.argmin()), int(counts.argmax())
    return (
        f"{split.n} images of {len(counts)} classes; fewest {names[least]} ({counts[least]}), "
        f"median {np.median(counts):g}, most {names[most]} ({counts[most]})"
    )

"""What became of every file of a build, for people."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from data_scripts.folder import LeftOut
from helpers.words import printable

SHOWN = 20  # names in each list of a report on screen; the report file has them all


@dataclass
class BuildReport:
    """What became of every file: ``written + skipped + ignored == found``. Print it, or ask for ``text(None)``."""

    path: Path
    form: str  # size, resize mode, storage, in words
    class_names: tuple[str, ...]
    class_counts: dict[str, list[int]]  # split -> rows of each class
    found: int
    skipped_files: list[LeftOut]
    ignored_files: list[LeftOut]
    empty_classes: tuple[str, ...]
    unreadable_classes: tuple[str, ...]
    not_found: tuple[str, ...]
    copies: tuple[str, ...]
    size_bytes: int
    seconds: float
    resumed_at: int | None = None  # pictures that an earlier, stopped build had done; None: it began here
    had_nothing_to_resume: bool = False
    joined: tuple[str, ...] = ()  # classes of several folders, whose names are one in NFC
    was_complete: bool = False  # there was nothing to resume: nothing was written

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
        classes = "1 class" if len(self.class_names) == 1 else f"{len(self.class_names)} classes"
        head = f"{self.path}: {self.written} images of {self.form} in {classes}, {self.size_bytes / 1e6:.1f} MB"
        rows = f"  rows: {', '.join(f'{split} {rows}' for split, rows in self.rows.items())}"
        if self.was_complete:
            return f"{head}\n{rows}\n  it was complete already: there was nothing to resume, and nothing was written"
        lines = [head, rows]
        ends = f"{self.written} written + {self.skipped} skipped + {self.ignored} ignored"
        lines.append(f"  {self.found} files found = {ends}")
        if self.resumed_at is not None:
            lines.append(f"  resumed: the first {self.resumed_at} pictures were done before")
        if self.had_nothing_to_resume:
            lines.append("  there was nothing to resume: it was built from the first picture on")
        lines += _section("class folders of one name (in Unicode's NFC), taken together", self.joined, limit)
        lines += _section("skipped", [f"{file.path}: {file.reason}" for file in self.skipped_files], limit)
        for reason, files in _by_reason(self.ignored_files).items():
            lines += _section(f"ignored, {reason} ({_endings(files)})", list(map(_with_twin, files)), limit)
        lines += _section("class folders without a picture, no class number", self.empty_classes, limit)
        lines += _section("class folders without a usable picture, no class number", self.unreadable_classes, limit)
        lines += _section("in Food-101's lists, but not in the folder", self.not_found, limit)
        lines += _section("the same bytes twice, written because the lists name both", self.copies, limit)
        for split, count in self.rows.items():
            if count:
                lines += _section(f"classes without a row in {split}", self.missing_classes(split), limit)
            else:
                lines.append(f"  {split} has no rows")
        return "\n".join(lines)


def _by_reason(files: list[LeftOut]) -> dict[str, list[LeftOut]]:
    groups: dict[str, list[LeftOut]] = {}
    for file in files:
        groups.setdefault(file.reason, []).append(file)
    return groups


def _with_twin(file: LeftOut) -> str:
    return f"{file.path} = {file.twin}" if file.twin else file.path


def _endings(files: list[LeftOut]) -> str:
    counts = Counter(Path(file.path).suffix.lower() or "no ending" for file in files)
    return ", ".join(f"{n} {ending}" for ending, n in sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:8])


def _section(title: str, names, limit: int | None) -> list[str]:
    if not names:
        return []
    shown = list(names)[:limit]
    more = [] if len(shown) == len(names) else [f"    ... and {len(names) - len(shown)} more"]
    return [f"  {title}: {len(names)}", *(f"    {printable(name)}" for name in shown), *more]

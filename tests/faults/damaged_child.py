"""The far end of ``damaged_files.py``: damages one file after the other and puts it through the kit.

It lives in a process of its own, because HDF5 may end the process in which it reads a damaged file.
"""

from __future__ import annotations

import dataclasses
import faulthandler
import json
import random
import resource
import sys
import time
import traceback
from pathlib import Path

import psutil
from coded import one_hot
from damage import BASES, KINDS, Whole, damaged, whole
from damaged_files import GOOD, Outcome
from looker import Looker

from helpers import HDF5Sequence, inspect_file
from helpers.images import ImageError
from helpers.layout import HDF5FileError, LayoutError

MEMORY_LIMIT_BYTES = 2**30  # of addresses, beyond what the imports took
PEAK_LIMIT_BYTES = 256 * 2**20  # of memory that one file of 100 kB may cost
BATCH_SIZE = 16
CLEAR = (HDF5FileError, LayoutError, ImageError)


def planned(number: int, seed: int) -> tuple[str, str, random.Random]:
    """Base, kind of damage and chance of one file: all bases and kinds in turn, each file by itself."""
    bases, kinds = list(BASES), list(KINDS)
    base, kind = bases[number // len(kinds) % len(bases)], kinds[number % len(kinds)]
    return base, kind, random.Random(f"{seed} {number}")


class Child:
    """Puts one damaged file after the other through the kit; its parent reads what it says."""

    def __init__(self, folder: Path, seed: int):
        self._path = folder / "damaged.h5"
        self._seed = seed
        self._goods = {name: whole(base, folder / "good.h5") for name, base in BASES.items()}
        limit = psutil.Process().memory_info().vms + MEMORY_LIMIT_BYTES
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

    def work(self) -> None:
        """Numbers of files come in as lines; stages and outcomes go out as lines of JSON."""
        say({"ready": True})
        for line in sys.stdin:
            number = int(line)
            _forget_peak()
            start, before = time.monotonic(), _peak_bytes()
            outcome = self.file(number)
            outcome.seconds = time.monotonic() - start
            outcome.peak_bytes = max(0, _peak_bytes() - before)
            if outcome.peak_bytes > PEAK_LIMIT_BYTES and outcome.end in GOOD:
                outcome.end = "memory"
            say({"outcome": dataclasses.asdict(outcome)})

    def file(self, number: int) -> Outcome:
        """Damage one file and see what comes of it."""
        name, kind, chance = planned(number, self._seed)
        good = self._goods[name]
        outcome = Outcome(number, name, kind)
        say({"begin": dataclasses.asdict(outcome)})
        content = damaged(good, kind, chance)
        self._path.unlink(missing_ok=True)
        self._path.write_bytes(content)
        try:
            self._try(outcome, good, content)
        except Exception as error:  # whatever is not an error of the kit
            outcome.end, outcome.told = "unclear", f"{type(error).__name__}: {error}\n{traceback.format_exc()}"
        return outcome

    def _try(self, outcome: Outcome, good: Whole, content: bytes) -> None:
        _enter(outcome, "inspect")
        report = inspect_file(self._path, verify=True, **good.base.names)
        outcome.code = report.exit_code
        if not str(report) or not report._repr_html_():
            outcome.end = "unclear"
        try:
            self._serve(outcome, good, content)
        except CLEAR as error:
            outcome.told = f"{type(error).__name__}: {error}"
            outcome.contained = "A child process tried" in str(error)
            outcome.end = "error" if str(self._path) in str(error) else "unclear"
            if report.ok and "Pass size=" not in str(error):  # which can be trained on, when told the size
                outcome.end = "missed"
        if outcome.end in {"pixel", "place"} and good.has_crc and report.ok:
            outcome.end, outcome.told = "missed", "a pixel changed, and the inspector does not see its CRC-32"

    def _serve(self, outcome: Outcome, good: Whole, content: bytes) -> None:
        """All batches of an epoch. Raises what the sequence raises."""
        _enter(outcome, "open")
        outcome.end = "right"
        error = None
        with HDF5Sequence(self._path, batch_size=BATCH_SIZE, shuffle=None, **good.base.names) as sequence:
            _enter(outcome, "read")
            if good.class_names and sequence.class_names != good.class_names:
                outcome.end, outcome.told = "names", f"class names {sequence.class_names}"
            if sequence.n != len(good.images):
                outcome.end, outcome.told = "wrong", f"{sequence.n} rows"
            for index in range(len(sequence)):
                rows = sequence.rows_of(0, index)
                try:
                    images, labels = sequence[index]
                except CLEAR as caught:  # the other batches must be right all the same
                    error = caught
                    continue
                _judge(outcome, good, content, rows, images, labels)
        if error is not None and outcome.end != "wrong":
            raise error


def _enter(outcome: Outcome, stage: str) -> None:
    outcome.stage = stage
    say({"stage": stage})


def _judge(outcome: Outcome, good: Whole, content: bytes, rows, images, labels) -> None:
    """Compare a batch with the good file; damage where nothing has a checksum may show."""
    if images.shape[1:] != good.images.shape[1:] or rows.max() >= len(good.images):
        outcome.end, outcome.told = "wrong", f"rows {rows}, images {images.shape[1:]}"
        return
    other_pixels = rows[(images != good.images[rows]).any(axis=(1, 2, 3))]
    if len(other_pixels):
        _note(outcome, _end_of_pictures(good, content, other_pixels), f"pictures of rows {other_pixels}")
    expected = one_hot(good.numbers[rows])
    if labels.shape[1:] != expected.shape[1:]:
        _note(outcome, "wrong", f"labels {labels.shape[1:]}")
        return
    other_labels = rows[(labels != expected).any(axis=1)]
    if len(other_labels):
        touched = [_touched(good.label_places[row], good.content, content) for row in other_labels]
        _note(outcome, "label" if all(touched) else "wrong", f"labels of rows {other_labels}")


def _end_of_pictures(good: Whole, content: bytes, rows: list[int]) -> str:
    """The end for rows whose pictures are others: good ones only where the file holds no checksum that could tell."""
    if good.base.checksums or (good.has_crc and good.jpeg):
        return "wrong"
    rest = [row for row in rows if not _touched(good.image_places[row], good.content, content)]
    if not rest:
        return "pixel"
    moved = not good.base.index_checksums and all(_address_changed(good, content, row) for row in rest)
    return "place" if moved else "wrong"


def _address_changed(good: Whole, content: bytes, row: int) -> bool:
    """Whether the only place that leads to the bytes of a row is not what it was."""
    address = good.image_places[row][0].to_bytes(8, "little")
    return good.content.count(address) > content.count(address)


def _note(outcome: Outcome, end: str, told: str) -> None:
    if outcome.end != "wrong":
        outcome.end, outcome.told = end, told


def _touched(place: tuple[int, int], good: bytes, content: bytes) -> bool:
    return good[slice(*place)] != content[slice(*place)]


def say(message: dict) -> None:
    """One line for the parent."""
    print(json.dumps(message), flush=True)  # noqa: T201 - the child speaks to its parent


def _forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def _peak_bytes() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line.split()[1] for line in lines if line.startswith("VmHWM:")))


def main() -> None:
    """``damaged_child.py FOLDER SEED``."""
    faulthandler.enable()
    with Looker():
        Child(Path(sys.argv[1]), int(sys.argv[2])).work()


if __name__ == "__main__":
    main()

"""One line of :mod:`helpers.doctor`, and the training that it can be about."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from helpers.words import printable

GB = 1e9
_COLORS = {"ok": "\033[32m", "warn": "\033[33m", "bad": "\033[31m"}


@dataclass(frozen=True)
class Plan:
    """A training that the machine is held against: its file, and how batches are made of it."""

    file: Path
    split: str = "train"
    images: str | None = None
    labels: str | None = None
    batch_size: int = 32
    max_queue_size: int = 10
    workers: int = 2


@dataclass(frozen=True)
class Check:
    """One line of the doctor: state is "ok", "warn" or "bad"; a bad one says what to do."""

    state: str
    text: str
    advice: str = ""

    def __post_init__(self):
        if self.state == "bad" and not self.advice:
            raise ValueError(f"a bad line must say what to do; got none for {self.text!r}.")

    def line(self, *, color: bool = False) -> str:
        """The line as printed."""
        mark = f"{_COLORS[self.state]}{self.state:<4}\033[0m" if color else f"{self.state:<4}"
        return f"{mark}  {printable(self.text)}" + (f" -> {printable(self.advice)}" if self.advice else "")


def amount_check(what: str, have: float, enough_gb: float, least_gb: float, advice: str) -> Check:
    """An amount of bytes: enough, little, or less than the least."""
    text = f"{have / GB:.1f} GB {what}"
    if have >= enough_gb * GB:
        return Check("ok", text)
    return Check("warn" if have >= least_gb * GB else "bad", f"{text} ({enough_gb:g} GB are comfortable)", advice)

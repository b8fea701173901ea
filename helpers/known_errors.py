"""Failures that people meet in this job: what is printed or seen, why, and what to do.

The table is ``known_errors.toml``. ``python -m helpers.doctor --error "TEXT"`` searches it, the labs of lesson 04 print
its cards, and ``notebooks/ERRORS.md`` is made from it.
"""

from __future__ import annotations

import textwrap
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

TABLE = Path(__file__).with_name("known_errors.toml")
_WIDTH = 74  # characters; JupyterLab breaks longer lines in the middle of a word where the window is 800 pixels wide
GROUPS = {
    "A": "HDF5 handles in processes and threads",
    "B": "Locks, broken and half-made files",
    "C": "Processes: their start, notebooks, CUDA, their death",
    "D": "Keras: its calls, epochs and steps",
    "E": "Chance and augmentation",
    "F": "Rows, chunks and speed",
    "G": "Building: images and labels",
    "H": "Class weights and queues",
    "I": "What else happens on the way",
}


@dataclass(frozen=True)
class KnownError:
    """One failure. ``str()`` is its diagnosis card.

    ``texts`` are printed by the pinned versions, ``also`` by others; ``symptoms`` are what people see. ``taught`` is
    the lesson and section that shows it, ``"04 · 8. A handle in a pickle"``; ``wraps``: its message stands around
    others.
    """

    code: str
    number: str
    title: str
    texts: tuple[str, ...]
    also: tuple[str, ...]
    symptoms: tuple[str, ...]
    what: str
    why: str
    look: str
    fix: str
    taught: str
    wraps: bool = False

    def __str__(self) -> str:
        lines = {
            "What happened": self.what,
            "Why": self.why,
            "Where to look": self.look,
            "Fix": self.fix,
            "Shown in": f"lesson {self.taught}",
        }
        card = [f"{self.number} · {self.title} ({self.code})", *(f"{name}: {text}" for name, text in lines.items())]
        return "\n  ".join(map(_wrapped, card))


def _wrapped(line: str) -> str:
    return textwrap.fill(line, _WIDTH, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)


@cache
def known_errors() -> tuple[KnownError, ...]:
    """All failures, in the order of their numbers."""
    return tuple(
        KnownError(**{name: tuple(value) if isinstance(value, list) else value for name, value in entry.items()})
        for entry in _table()["error"]
    )


@cache
def errors_elsewhere() -> tuple[str, ...]:
    """Errors in much the same words that are about something else, and so have no entry."""
    return tuple(_table()["elsewhere"]["texts"])


def _table() -> dict:
    return tomllib.loads(TABLE.read_text(encoding="utf-8"))

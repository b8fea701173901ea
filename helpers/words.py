"""Numbers, sizes and names from a file as words: short, and safe for a terminal."""

from __future__ import annotations

from collections.abc import Iterable

NAMES_SHOWN = 20  # in a sentence
RECHUNK = "python -m data_scripts.rechunk IN.h5 OUT.h5"  # the advice against bad chunks and a bad order


def size_text(count: float) -> str:
    """Bytes for people: ``27.1 GB``."""
    for step, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= step:
            return f"{count / step:.3g} {unit}"
    return f"{count:.0f} bytes"


def count_text(number: int, word: str) -> str:
    """``1 fault``, ``2 faults``."""
    return f"{number:,} {word}" + ("" if number == 1 else "s")


def listed(names: Iterable, most: int = NAMES_SHOWN) -> str:
    """``a, b, c``; of a long list the beginning."""
    names = list(map(str, names))
    return ", ".join(names[:most]) + (" ..." if len(names) > most else "")


def printable(text: str) -> str:
    """The text with control characters spelled out: a name in a file can neither clear a terminal nor break a line."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in text)


def shortened(text: str, most: int = 80) -> str:
    """At most ``most`` characters."""
    return text if len(text) <= most else text[: most - 3] + "..."

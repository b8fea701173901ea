"""The page ``notebooks/ERRORS.md``, made from the table of known errors."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import groupby

from helpers.known_errors import GROUPS, KnownError, known_errors

NAME = "ERRORS.md"
_SYMPTOMS_SHOWN = 2
_HEAD = """\
<!-- Made by notebooks/_src/build.py from helpers/known_errors.toml; edit that. -->
# When training from an HDF5 file fails: an index of errors

What people meet when they train Keras from HDF5 files, with the cause and the fix. `HDF5Sequence`, `RowReader`,
`fit_generator` and the like are those of this repository ([README](../README.md)): a package that makes most of these
failures impossible, and a course that shows each of them.

Look for your error with the search of your browser, or let the table look:

```bash
.venv/bin/python -m helpers.doctor --error "h5py objects cannot be pickled"
.venv/bin/python -m helpers.doctor --error "half of my pictures are black"
```

It takes a pasted error, a part of one, or what you see in your own words. (`--error -` reads a long traceback from the
standard input.)

In the tables, `like this` is printed: a test provokes each of these texts, on the versions of requirements.txt, each
time the tests run. "Like this" is what people say that they see. The last column is the section of the
course that makes it happen, explains and repairs it. Below the tables stand the [words of other versions and
systems](#other-words).
"""
_OTHER = """\
## Other words

The same failures as other versions, systems and machines print them, and as people describe them. No test provokes
these.

| | failure | also printed | also said |
| --- | --- | --- | --- |"""


def page(lessons: list[str]) -> str:
    """The whole page; ``lessons`` are the names of the notebooks, such as ``04_when_workers_break``."""
    tables = [
        f"## {letter}. {GROUPS[letter]}\n\n{_table(list(entries), lessons)}"
        for letter, entries in groupby(known_errors(), lambda entry: entry.number[0])
    ]
    others = [
        f"| {entry.number} | {entry.title} | {_joined(entry.also, _code)} | {_said(entry)} |"
        for entry in known_errors()
    ]
    return "\n".join([_HEAD, *tables, _OTHER, *others, ""])


def _table(entries: list[KnownError], lessons: list[str]) -> str:
    rows = [
        f"| {_anchor(entry)}{entry.number} | **{entry.title}**<br>{_seen(entry)} | "
        f"{_cell(f'{entry.what} {entry.why}')} | {_cell(entry.fix)} | {_link(entry.taught, lessons)} |"
        for entry in entries
    ]
    return "\n".join(["| | you see | cause | fix | shown in |", "| --- | --- | --- | --- | --- |", *rows, ""])


def _anchor(entry: KnownError) -> str:
    """A place to link to, ``ERRORS.md#a1``: at the first of the entries that share a number."""
    first = next(other for other in known_errors() if other.number == entry.number)
    return f'<a id="{entry.number.lower()}"></a>' if entry is first else ""


def _seen(entry: KnownError) -> str:
    return "<br>".join(filter(None, (_joined(entry.texts, _code), _joined(entry.symptoms[: _shown(entry)], _spoken))))


def _shown(entry: KnownError) -> int:
    return 1 if entry.texts else _SYMPTOMS_SHOWN


def _said(entry: KnownError) -> str:
    return _joined(entry.symptoms[_shown(entry) : _shown(entry) + _SYMPTOMS_SHOWN], _spoken)


def _joined(texts: tuple[str, ...], shown: Callable[[str], str]) -> str:
    return "<br>".join(dict.fromkeys(map(shown, texts)))


def _spoken(text: str) -> str:
    return f'"{_cell(text)}"'


def _code(text: str) -> str:
    """A code span that holds any text: backticks inside need a longer fence, pipes an escape, in a table."""
    fence = "``" if "`" in text else "`"
    padding = " " if "`" in text else ""
    return f"{fence}{padding}{text.replace('|', chr(92) + '|')}{padding}{fence}"


def _cell(text: str) -> str:
    """Text as it is: what Markdown takes for marks is escaped."""
    return re.sub(r"([|_*`~\[\]])", r"\\\1", text).replace("<", "&lt;")


def _link(taught: str, lessons: list[str]) -> str:
    number, section = taught.split(" · ")
    name = next(lesson for lesson in lessons if lesson.startswith(number))
    return f"[{taught}]({name}.ipynb#{section.replace(' ', '-').replace('`', '')})"

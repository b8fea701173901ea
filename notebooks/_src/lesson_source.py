"""A lesson's source (jupytext percent) becomes a notebook without outputs; head table, footer and cell ids are added.

Everything here is a pure function of the sources and of the numbers that the last build measured.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

import jupytext
import nbformat
from nbformat import NotebookNode

SOURCES = Path(__file__).resolve().parent
NOTEBOOKS = SOURCES.parent
FACTS = "<!-- facts -->"
_OPENINGS = r"In (?:this lesson you will build|these exercises you will)"
PROMISE = re.compile(rf"\*\*{_OPENINGS}\*\*\s+(.+?)(?:\n\n|\Z)", re.DOTALL)
IGNORE = "nbval-ignore-output"

# The same for every Python version, so that a build on another one gives equal bytes.
KERNEL_METADATA = {
    "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
    "language_info": {
        "codemirror_mode": {"name": "ipython", "version": 3},
        "file_extension": ".py",
        "mimetype": "text/x-python",
        "name": "python",
        "nbconvert_exporter": "python",
        "pygments_lexer": "ipython3",
    },
}


class BuildError(Exception):
    """A lesson cannot be built; the message names the notebook and what to do."""


@dataclass(frozen=True)
class Measured:
    """What a lesson declares, from its last build: whole minutes and MB of peak memory of its kernel."""

    minutes: int
    memory_mb: int


@dataclass(frozen=True)
class Lesson:
    """One source file; ``cells`` and ``head`` are as the author wrote them."""

    path: Path
    head: dict
    cells: list[NotebookNode]

    @property
    def name(self) -> str:
        """``02_naive_train_on_batch``."""
        return self.path.stem

    @property
    def title(self) -> str:
        """``02 · The naive loop``, from the first line of the first cell."""
        return self.cells[0].source.splitlines()[0].lstrip("# ").strip() if self.cells else self.name

    @property
    def promise(self) -> str:
        """What the learner will build, one line, for README's table."""
        found = PROMISE.search(self.cells[0].source) if self.cells else None
        return " ".join(found.group(1).split()).rstrip(".") if found else ""


def lesson_paths(sources: Path = SOURCES) -> list[Path]:
    """The sources ``NN_name.py`` in the order of the course."""
    return sorted(path for path in sources.glob("[0-9][0-9]_*.py"))


def read_lesson(path: Path) -> Lesson:
    """Read one source. Raises BuildError when its head lacks the ``lesson`` block."""
    notebook = jupytext.reads(path.read_text(encoding="utf-8"), fmt="py:percent")
    head = notebook.metadata.get("lesson")
    if not isinstance(head, dict):
        raise BuildError(f"{path.name} has no lesson block. Start it with '# ---', '# jupyter:', '#   lesson:'.")
    return Lesson(path, dict(head), [cell for cell in notebook.cells if cell.source.strip()])


def assemble(
    lesson: Lesson,
    measured: Measured | None,
    before: Lesson | None,
    after: Lesson | None,
    exercises: str | None = None,
) -> NotebookNode:
    """The notebook of a lesson, without outputs; ``before`` and ``after`` are its neighbours in the course.

    ``exercises`` is the path of the lesson's exercises, for the link at its end.
    """
    cells = [clean(cell) for cell in lesson.cells]
    cells[0].source = cells[0].source.replace(FACTS, f"{FACTS}\n{facts_table(lesson, measured)}")
    cells.append(nbformat.v4.new_markdown_cell(footer(before, after, exercises)))
    number_cells(cells)
    return NotebookNode(
        nbformat=4,
        nbformat_minor=5,
        metadata=nbformat.from_dict(KERNEL_METADATA | {"lesson": lesson_metadata(lesson, measured)}),
        cells=cells,
    )


def lesson_metadata(lesson: Lesson, measured: Measured | None) -> dict:
    """What tests read from the notebook: the author's head and the numbers of the last build."""
    numbers = {} if measured is None else {"minutes": measured.minutes, "memory_mb": measured.memory_mb}
    return dict(sorted((lesson.head | numbers).items()))


def facts_table(lesson: Lesson, measured: Measured | None) -> str:
    """Minutes, memory, GPU and files, as one table."""
    minutes = "not measured yet" if measured is None else plural(measured.minutes, "minute")
    memory = "not measured yet" if measured is None else f"{measured.memory_mb} MB"
    gpu, files = lesson.head.get("gpu", "not needed"), lesson.head.get("files", "none")
    rows = (
        "runs in | memory | GPU | files it makes",
        "--- | --- | --- | ---",
        f"{minutes} | {memory} | {gpu} | {files}",
    )
    return "\n".join(f"| {row} |" for row in rows)


def footer(before: Lesson | None, after: Lesson | None, exercises: str | None = None) -> str:
    """Links to the neighbours and to the lesson's exercises, and the reminder to free the memory."""
    links = []
    if exercises:
        links.append(f"practise: [the exercises of this lesson]({exercises})")
    if before:
        links.append(f"previous: [{before.title}]({before.name}.ipynb)")
    if after:
        links.append(f"next: [{after.title}]({after.name}.ipynb)")
    reminder = "Before you open another lesson, **shut down this kernel** (menu *Kernel*, *Shut Down Kernel*)"
    return "---\n" + " | ".join([*links, f"{reminder}: that gives its memory back."])


def plural(count: int, noun: str) -> str:
    """``1 minute``, ``2 minutes``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def tags(cell: NotebookNode) -> list[str]:
    """The tags of a cell."""
    return cell.metadata.get("tags", [])


def clean(cell: NotebookNode) -> NotebookNode:
    """A copy of a cell as jupytext read it, with its tags alone as metadata, and no outputs."""
    metadata = nbformat.from_dict({"tags": cell.metadata["tags"]} if cell.metadata.get("tags") else {})
    fields = {"cell_type": cell.cell_type, "metadata": metadata, "source": cell.source}
    if cell.cell_type == "code":
        fields |= {"execution_count": None, "outputs": []}
    return NotebookNode(fields)


def number_cells(cells: list[NotebookNode]) -> None:
    """Give each cell an id made from its source: equal ids mean equal sources."""
    seen: dict[str, int] = {}
    for cell in cells:
        text = f"{cell.cell_type}\n{' '.join(tags(cell))}\n{cell.source}"
        digest = hashlib.sha256(text.encode()).hexdigest()[:12]
        seen[digest] = seen.get(digest, 0) + 1
        cell["id"] = digest if seen[digest] == 1 else f"{digest}-{seen[digest]}"

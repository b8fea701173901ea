"""An exercise source is written as its solution; from it come the blank notebook and the solved one, both for nbgrader.

A cell with ``### BEGIN SOLUTION`` and ``### END SOLUTION`` is an answer: in the blank notebook the lines between them
become the stub. A cell that ends in ``check("05.3", answer).points`` is graded. Everything else is given, and locked.
The marks and the metadata (schema 3) are nbgrader's own: it releases the solved notebook as the blank one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import nbformat
from lesson_source import FACTS, KERNEL_METADATA, Lesson, Measured, clean, facts_table, number_cells, read_lesson
from nbformat import NotebookNode

from helpers.course.tasks import find_task

FOLDER = "exercises"  # of sources, and of blank notebooks
SOLUTIONS = "solutions"
BEGIN, END = "### BEGIN SOLUTION", "### END SOLUTION"
STUB = "answer = None  # your code"
CHECK = re.compile(r'^check\("(\d\d\.\d+)", answer\)\.points\s*\Z', re.MULTILINE)
HOW = "<!-- how -->"
HOW_TEXT = (
    "**How it works.** Run every cell from the top. Put your code in the place of `None`, run the cell, then run the "
    "check below it. The check says what it expected and what it got, and gives a hint; try as often as you like. All "
    "exercises call their result `answer`, so run the cell of an exercise before its check. A link to a section opens "
    "the lesson; if it opens at the top, follow the link once more, and it goes to the section. Work on a copy, which "
    "is never overwritten: `python -m helpers.course.copy_exercises` in a terminal, then open `notebooks/work/`."
)


@dataclass(frozen=True)
class Kind:
    """Blank or solved: the folder it lies in, and whether answers are blanked."""

    folder: str
    blank: bool


KINDS = (Kind(FOLDER, blank=True), Kind(SOLUTIONS, blank=False))


def exercise_paths(sources: Path) -> list[Path]:
    """The sources ``exercises/NN_name.py`` in order."""
    return sorted((sources / FOLDER).glob("[0-9][0-9]_*.py"))


def read_exercises(sources: Path) -> list[Lesson]:
    """All exercise sources. Raises BuildError when one has no head."""
    return [read_lesson(path) for path in exercise_paths(sources)]


def assemble_exercises(lesson: Lesson, measured: Measured | None, kind: Kind, others: list[Lesson]) -> NotebookNode:
    """The notebook of one kind, without outputs; ``others`` are all exercises, for the links at the end."""
    cells = [clean(cell) for cell in lesson.cells]
    facts = f"{FACTS}\n{facts_table(lesson, measured)}"
    cells[0].source = cells[0].source.replace(FACTS, facts).replace(HOW, HOW_TEXT)
    mark_cells(cells)
    for cell in cells:
        if kind.blank and cell.cell_type == "code":
            cell.source = blanked(cell.source)
    cells.append(nbformat.v4.new_markdown_cell(footer(lesson, others)))
    number_cells(cells)
    numbers = {} if measured is None else {"minutes": measured.minutes, "memory_mb": measured.memory_mb}
    metadata = nbformat.from_dict(KERNEL_METADATA | {"lesson": dict(sorted((lesson.head | numbers).items()))})
    return NotebookNode(nbformat=4, nbformat_minor=5, metadata=metadata, cells=cells)


def blanked(source: str) -> str:
    """The source with each solution replaced by the stub, as nbgrader does it: an indented mark indents the stub."""
    lines, inside = [], False
    for line in source.split("\n"):
        if BEGIN in line:
            inside = True
            lines.append(line[: len(line) - len(line.lstrip())] + STUB)
        elif END in line:
            inside = False
        elif not inside:
            lines.append(line)
    return "\n".join(lines)


def mark_cells(cells: list[NotebookNode]) -> None:
    """Give each code cell nbgrader's metadata: an answer, a graded check, or given and locked."""
    code = [cell for cell in cells if cell.cell_type == "code"]
    for place, cell in enumerate(code):
        answer, number = BEGIN in cell.source, graded_number(cell)
        marks = {"schema_version": 3, "solution": answer, "grade": number is not None, "locked": not answer}
        if number is not None:
            marks |= {"grade_id": _grade_id("check", number), "points": find_task(number).points}
        else:
            following = next(filter(None, map(graded_number, code[place:])), None)
            marks["grade_id"] = _grade_id("answer", following) if answer and following else f"given-{place + 1:02}"
        cell.metadata["nbgrader"] = nbformat.from_dict(dict(sorted((marks | {"task": False}).items())))


def _grade_id(kind: str, number: str) -> str:
    return f"{kind}-{number.replace('.', '-')}"


def graded_number(cell: NotebookNode) -> str | None:
    """The exercise that a code cell grades, such as ``05.3``, or None."""
    found = CHECK.search(cell.source) if cell.cell_type == "code" else None
    return found.group(1) if found else None


def footer(lesson: Lesson, others: list[Lesson]) -> str:
    """Links to the neighbours among the exercises, and the reminder to free the memory."""
    place = [other.name for other in others].index(lesson.name)
    links = []
    if place:
        links.append(f"previous: [{others[place - 1].title}]({others[place - 1].name}.ipynb)")
    if place + 1 < len(others):
        links.append(f"next: [{others[place + 1].title}]({others[place + 1].name}.ipynb)")
    reminder = "Before you open another notebook, **shut down this kernel** (menu *Kernel*, *Shut Down Kernel*)."
    return "---\n" + " | ".join([*links, reminder])

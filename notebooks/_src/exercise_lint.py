"""The rules that every exercise notebook keeps: those of lessons that make sense here, and its own.

Each rule is a function of a `Page`; it yields its faults, as in `lesson_lint`.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import lesson_lint
from exercise_source import BEGIN, END, HOW, HOW_TEXT, STUB, graded_number
from lesson_lint import Fault, Page, code_lines, prose, str_fault
from lesson_source import FACTS
from nbformat import NotebookNode

from helpers.course.tasks import tasks_of

FEWEST, MOST = 4, 6
MAX_SOLUTION_LINES = 40
TITLE = re.compile(r"^## (\d\d\.\d+) · (.+)$")


def lint_exercises(notebook: NotebookNode, path: Path, *, executed: bool = True) -> list[str]:
    """All faults of an exercise notebook as sentences; ``executed=False`` leaves out the rules on outputs."""
    page = Page(notebook, path.stem, executed)
    rules = SOURCE_RULES + (lesson_lint.OUTPUT_RULES if executed else ())
    return [str_fault(Fault(rule.__name__, message, cell), path) for rule in rules for message, cell in rule(page)]


def head(page: Page):
    """The first cell says what it is about, what is needed, how it works, and holds the table of facts."""
    first = page.cells[0].source if page.cells and page.cells[0].cell_type == "markdown" else ""
    if not re.match(rf"# (Exercises|Capstone) {page.name[:2]} · \S", first):
        yield f"exercises start with '# Exercises {page.name[:2]} · Title'; got {first.splitlines()[:1]}.", 0
    for words in ("**In these exercises you will**", "**You need**", FACTS):
        if words not in first:
            yield f"the first cell lacks {words!r}. Add it: see the other exercises.", 0
    if HOW not in first and HOW_TEXT not in first:
        yield f"the first cell says how exercises work. Put {HOW} into it.", 0


def numbering(page: Page):
    """Sections are the tasks of the lesson, 1, 2, 3 ..., each with its title and points; the first is a warm-up."""
    titles = [(cell, line) for cell, text in page.texts for line in prose(text) if line.startswith("## ")]
    found = [match.groups() for _, line in titles if (match := TITLE.match(line))]
    lesson = page.name[:2]
    wanted = [(one.number, one.title) for one in tasks_of(lesson)]
    if [number for number, _ in found] != [number for number, _ in wanted]:
        yield f"sections are the tasks {[number for number, _ in wanted]}; got {[number for number, _ in found]}.", None
        return
    graded = [number for _, cell in page.code if (number := graded_number(cell))]
    if graded != [number for number, _ in wanted]:
        yield f"each section has its check, in order: {[number for number, _ in wanted]}; got {graded}.", None
    if not FEWEST <= len(found) <= MOST:
        yield f"a lesson has {FEWEST} to {MOST} exercises; got {len(found)}.", None
    for (number, title), (_, right) in zip(found, wanted, strict=True):
        if title != right:
            yield f"exercise {number} is called {right!r} in its task; got {title!r}. Use one title.", None


def tasks_in_full(page: Page):
    """Each section says the task and where to look again; the last one leads to the learner's own data."""
    sections = [(cell, text) for cell, text in page.texts if TITLE.search(text.splitlines()[0])]
    for cell, text in sections:
        rest = "\n".join(text for other, text in page.texts if cell <= other < _next_section(page, cell))
        for words in ("**Task.**", "**Look again at**"):
            if words not in rest:
                yield f"an exercise has a paragraph {words!r}. Add it.", cell
    if sections and "your own" not in "\n".join(text for cell, text in page.texts if cell >= sections[-1][0]).lower():
        yield "the last exercise says how to do it on your own data. Add a sentence.", sections[-1][0]


def answers(page: Page):
    """Each graded cell follows the one answer cell of its exercise; the blank of an answer is the stub alone."""
    place, waiting = None, None
    for number, cell in page.code:
        is_answer = BEGIN in cell.source or STUB in cell.source
        if is_answer and waiting is not None:
            yield "an answer is followed by its check. Add check(...).points, or merge the cells.", waiting
        if is_answer:
            waiting, place = number, number
            yield from _answer_faults(number, cell)
        elif graded_number(cell):
            if place is None:
                yield "a check follows the answer cell of its exercise. Add one.", number
            waiting = place = None
            if cell.source.strip() != f'check("{graded_number(cell)}", answer).points':
                yield "a graded cell holds the check alone.", number
    if waiting is not None:
        yield "an answer is followed by its check. Add check(...).points.", waiting


def answer_is_read_by_check_alone(page: Page):
    """No cell but the check reads an answer: a blank notebook must run from top to bottom."""
    for number, cell, tree in page.trees:
        if graded_number(cell) or BEGIN in cell.source:
            continue
        loads = [node for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id == "answer"]
        if any(isinstance(node.ctx, ast.Load) for node in loads):
            yield "only check(...) reads `answer`. Take this line out.", number


def code_lengths(page: Page):
    """Given cells are short; a solution can be read at once."""
    for number, cell in page.code:
        most = MAX_SOLUTION_LINES if BEGIN in cell.source else lesson_lint.MAX_LINES_LONG
        if code_lines(cell.source) > most:
            yield f"a cell has at most {most} lines of code; got {code_lines(cell.source)}. Ask for less.", number


def compared(page: Page):
    """Checks are compared: they are facts, and a blank prints one fixed line."""
    for number, cell in page.code:
        if graded_number(cell) and lesson_lint.ignored(cell):
            yield "a check's output is compared. Take its tag away.", number


def _answer_faults(number: int, cell: NotebookNode):
    lines = cell.source.split("\n")
    if BEGIN in cell.source:
        begins, ends = lines.count(BEGIN), lines.count(END)
        if (begins, ends) != (1, 1) or lines[-1] != END:
            yield f"an answer cell has one {BEGIN!r} and ends in one {END!r}, not indented.", number
            return
        lines = lines[: lines.index(BEGIN)] + [STUB]
    if lines[-1] != STUB or any(line.strip() and not line.startswith("#") for line in lines[:-1]):
        yield f"the blank of an answer cell is comments and {STUB!r}; put given code into a cell of its own.", number


def _next_section(page: Page, cell: int) -> int:
    return next((other for other, text in page.texts if other > cell and text.startswith("## ")), len(page.cells))


SOURCE_RULES = (
    head, numbering, tasks_in_full, answers, answer_is_read_by_check_alone, code_lengths, compared,
    lesson_lint.opening, lesson_lint.imports, lesson_lint.magics, lesson_lint.semicolons, lesson_lint.network,
    lesson_lint.paths, lesson_lint.known_tags, lesson_lint.quiet_training, lesson_lint.markdown_pictures,
)  # fmt: skip

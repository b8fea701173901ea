"""Build the notebooks from their sources: executed, with stored outputs, the same bytes each time.

    python notebooks/_src/build.py [NAME ...]          build all lessons and exercises, or those named
    python notebooks/_src/build.py 02 exercises/02     a lesson; the exercises of a lesson, blank and solved
    python notebooks/_src/build.py --check             compare sources and notebooks, without executing
    python notebooks/_src/build.py NAME --lint         check the rules for sources, without executing
    python notebooks/_src/build.py NAME --text         only texts changed: update them, keep all outputs
    python notebooks/_src/build.py NAME --fresh        new outputs also for cells whose output is not compared

A cell tagged ``nbval-ignore-output`` (times, losses, versions) keeps its output while its source is unchanged.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path, PurePath

import error_index
import nbformat
import objectives_table
from exercise_lint import lint_exercises
from exercise_source import FOLDER, KINDS, Kind, assemble_exercises, graded_number, read_exercises
from lesson_lint import lint
from lesson_run import Run, execute
from lesson_source import (
    IGNORE,
    NOTEBOOKS,
    BuildError,
    Lesson,
    Measured,
    assemble,
    lesson_paths,
    plural,
    read_lesson,
    tags,
)
from nbformat import NotebookNode

README = NOTEBOOKS.parent / "README.md"
BEGIN, END = "<!-- notebooks:begin -->", "<!-- notebooks:end -->"
MEMORY_STEP_MB = 50


@dataclass(frozen=True)
class Product:
    """One notebook that the build makes: from which source, where it lies, and how it is put together and checked."""

    lesson: Lesson
    names: tuple[str, ...]  # what it is called on the command line, its full name first
    path: Path
    make: Callable[[Measured | None], NotebookNode]
    lint: Callable[..., list[str]]

    @property
    def name(self) -> str:
        """``02_naive_train_on_batch`` or ``exercises/02_naive_train_on_batch``."""
        return self.names[0]

    def stored(self) -> NotebookNode | None:
        """The notebook as it lies on disk, or None."""
        return nbformat.read(self.path, as_version=4) if self.path.exists() else None


@dataclass(frozen=True)
class Course:
    """The folders a build works on: sources, notebooks, and the README that holds the table."""

    sources: Path
    notebooks: Path
    readme: Path

    def lessons(self) -> list[Lesson]:
        """All lessons in order."""
        return [read_lesson(path) for path in lesson_paths(self.sources)]

    def exercises(self) -> list[Lesson]:
        """All exercises in order."""
        return read_exercises(self.sources)

    def products(self) -> list[Product]:
        """Every notebook: the lessons, then the exercises, each blank and solved."""
        lessons, exercises = self.lessons(), self.exercises()
        products = [self._lesson_product(place, lessons, exercises) for place in range(len(lessons))]
        return products + [self._exercise_product(one, exercises, kind) for one in exercises for kind in KINDS]

    def path(self, lesson: Lesson) -> Path:
        """Where the notebook of a lesson lies."""
        return self.notebooks / f"{lesson.name}.ipynb"

    def stored(self, lesson: Lesson) -> NotebookNode | None:
        """The notebook of a lesson as it lies on disk, or None."""
        path = self.path(lesson)
        return nbformat.read(path, as_version=4) if path.exists() else None

    def _lesson_product(self, place: int, lessons: list[Lesson], exercises: list[Lesson]) -> Product:
        lesson = lessons[place]
        before = lessons[place - 1] if place else None
        after = lessons[place + 1] if place + 1 < len(lessons) else None
        link = f"{FOLDER}/{lesson.name}.ipynb" if lesson.name in {one.name for one in exercises} else None
        names = (lesson.name, lesson.name[:2])
        return Product(lesson, names, self.path(lesson), lambda m: assemble(lesson, m, before, after, link), lint)

    def _exercise_product(self, lesson: Lesson, exercises: list[Lesson], kind: Kind) -> Product:
        path = self.notebooks / kind.folder / f"{lesson.name}.ipynb"
        names = (f"{kind.folder}/{lesson.name}", f"{FOLDER}/{lesson.name}", f"{FOLDER}/{lesson.name[:2]}", FOLDER)
        return Product(lesson, names, path, lambda m: assemble_exercises(lesson, m, kind, exercises), lint_exercises)


COURSE = Course(NOTEBOOKS / "_src", NOTEBOOKS, README)


def main(arguments: list[str] | None = None, course: Course = COURSE) -> int:
    """Command line; returns the exit code: 0 fine, 1 faults or a failed cell, 2 unknown name."""
    options = _parser().parse_args(arguments)
    try:
        chosen = choose(course.products(), options.names)
    except BuildError as error:
        return _report([str(error)]) and 2
    if options.check:
        return _report(check(course, chosen))
    if options.lint:
        return _report(fault for product in chosen for fault in lint_source(product))
    return build_all(course, chosen, fresh=options.fresh, text_only=options.text)


def choose(products: list[Product], names: list[str]) -> list[Product]:
    """The notebooks called for: all without names; a name may be the number alone, and may end in .py or .ipynb."""
    wanted = [str(PurePath(name).with_suffix("")) for name in names]
    chosen = [product for product in products if not wanted or set(wanted) & set(product.names)]
    unknown = [name for name in wanted if not any(name in product.names for product in products)]
    if unknown:
        have = ", ".join(product.name for product in products) or "none"
        raise BuildError(f"there is no lesson {', '.join(unknown)}. Lessons: {have}.")
    return chosen


def build_all(course: Course, products: list[Product], *, fresh: bool, text_only: bool) -> int:
    """Build each notebook, then the pages made from all; goes on after a failed one: then 1."""
    faults = []
    for product in products:
        try:
            faults += update_text(product) if text_only else build(product, fresh=fresh)
        except BuildError as error:
            faults.append(str(error))
    write_readme(course)
    write_pages(course)
    return _report(faults)


def build(product: Product, *, fresh: bool = False) -> list[str]:
    """Execute one notebook and write it; returns the lint's faults. Raises BuildError when a cell fails."""
    old = product.stored()
    notebook = product.make(None)
    product.path.parent.mkdir(exist_ok=True)
    run = execute(notebook, product.path.parent, product.name)
    over = over_budget(product, run)
    if old is not None and not fresh:
        keep_ignored_outputs(notebook, old)
    for cell in notebook.cells:
        _stabilize(cell)
    finished = with_outputs(product.make(settle(run, measured_of(old))), notebook.cells)
    write_notebook(finished, product.path)
    print(f"{product.name}: {run.seconds:.0f} s, {run.peak_mb:.0f} MB")
    return over + product.lint(finished, product.path)


def update_text(product: Product) -> list[str]:
    """Write the notebook with its stored outputs and new texts. Raises BuildError when a code cell changed."""
    old = product.stored()
    notebook = product.make(measured_of(old))
    stored = [cell for cell in old.cells if cell.cell_type == "code"] if old else []
    if [cell.id for cell in notebook.cells if cell.cell_type == "code"] != [cell.id for cell in stored]:
        raise BuildError(f"{product.name}: its code changed too. Build it without --text.")
    finished = with_outputs(notebook, stored)
    write_notebook(finished, product.path)
    return product.lint(finished, product.path)


def with_outputs(notebook: NotebookNode, executed: Iterable[NotebookNode]) -> NotebookNode:
    """Move outputs into ``notebook``, from cells that have the same code in the same order."""
    outputs = iter([cell for cell in executed if cell.cell_type == "code"])
    for cell in notebook.cells:
        if cell.cell_type == "code":
            source = next(outputs)
            cell.execution_count, cell.outputs = source.execution_count, source.outputs
    return notebook


def keep_ignored_outputs(notebook: NotebookNode, old: NotebookNode) -> None:
    """Give cells whose output is not compared the output they had, where their source is the same."""
    known = {cell.id: cell for cell in old.cells if cell.cell_type == "code" and cell.outputs}
    for cell in notebook.cells:
        if cell.cell_type == "code" and IGNORE in tags(cell) and cell.id in known:
            cell.outputs = known[cell.id].outputs


def measured_of(notebook: NotebookNode | None) -> Measured | None:
    """The numbers that a stored notebook declares, or None."""
    lesson = {} if notebook is None else notebook.metadata.get("lesson", {})
    return Measured(lesson["minutes"], lesson["memory_mb"]) if "minutes" in lesson else None


def settle(run: Run, before: Measured | None) -> Measured:
    """Round a run up to whole minutes and 50 MB; numbers that still hold are kept, so that builds give equal bytes."""
    minutes = max(1, math.ceil(run.seconds / 60))
    memory_mb = math.ceil(run.peak_mb / MEMORY_STEP_MB) * MEMORY_STEP_MB
    if before is not None and abs(before.minutes - minutes) <= 1:
        minutes = before.minutes
    near_mb = max(2 * MEMORY_STEP_MB, 0.1 * memory_mb)
    # A test fails above 1.2 times the number: one that a run comes close to does not hold any more.
    if before is not None and run.peak_mb < 1.1 * before.memory_mb and before.memory_mb - memory_mb <= near_mb:
        memory_mb = before.memory_mb
    return Measured(minutes, memory_mb)


def over_budget(product: Product, run: Run) -> list[str]:
    """Faults of a run that took more than the lesson's head allows."""
    faults = []
    minutes, memory_mb = product.lesson.head.get("max_minutes"), product.lesson.head.get("max_memory_mb")
    if minutes is not None and run.seconds > 60 * minutes:
        faults.append(f"{product.name} took {run.seconds:.0f} s; its head allows {minutes} minutes.")
    if memory_mb is not None and run.peak_mb > memory_mb:
        faults.append(f"{product.name} took {run.peak_mb:.0f} MB; its head allows {memory_mb} MB.")
    return faults


def lint_source(product: Product) -> list[str]:
    """Faults of a source that can be seen without executing it."""
    return product.lint(product.make(None), product.lesson.path, executed=False)


def check(course: Course, products: list[Product]) -> list[str]:
    """Where notebooks and pages differ from the sources; nothing is executed."""
    faults = [fault for product in products for fault in _check_product(product)]
    known = {product.path for product in course.products()}
    folders = [course.notebooks, *(course.notebooks / kind.folder for kind in KINDS)]
    found = [path for folder in folders for path in folder.glob("*.ipynb")]
    for path in sorted(set(found) - known):
        faults.append(f"{path.name} has no source in {course.sources.name}/. Delete it, or write its source.")
    return faults + _check_readme(course) + _check_pages(course)


def _check_product(product: Product) -> list[str]:
    stored, name = product.stored(), f"{product.name}.ipynb"
    advice = f"Run python notebooks/_src/build.py {product.names[1] if len(product.names) > 2 else product.name}."
    if stored is None:
        return [f"{name} does not exist. {advice}"]
    expected = product.make(measured_of(stored))
    if stored.metadata != expected.metadata:
        return [f"{name} has another head than its source. {advice}"]
    for number, (old, new) in enumerate(zip(stored.cells, expected.cells, strict=False)):
        if _source_of(old) != _source_of(new):
            return [f"{name} differs from its source at cell {number}. {advice}"]
    if len(stored.cells) != len(expected.cells):
        return [f"{name} has {len(stored.cells)} cells, its source makes {len(expected.cells)}. {advice}"]
    return []


def _source_of(cell: NotebookNode) -> tuple:
    return cell.id, cell.cell_type, cell.source, dict(cell.metadata)


def readme_table(course: Course) -> str:
    """The table of notebooks, from the stored notebooks."""
    lines = ["| lesson | you build | minutes | memory | practise |", "| --- | --- | --- | --- | --- |"]
    exercises = {one.name: one for one in course.exercises()}
    for lesson in course.lessons():
        link = f"[{lesson.title}]({course.notebooks.name}/{lesson.name}.ipynb)"
        practise = _practise(course, exercises.pop(lesson.name, None))
        lines.append(_readme_row(link, lesson, course.stored(lesson), practise))
    for lesson in exercises.values():  # those of no single lesson
        blank = next(product for product in course.products() if product.name == f"{FOLDER}/{lesson.name}")
        link = f"[{lesson.title}]({course.notebooks.name}/{FOLDER}/{lesson.name}.ipynb)"
        lines.append(_readme_row(link, lesson, blank.stored(), "it is one"))
    return "\n".join(lines)


def _readme_row(link: str, lesson: Lesson, stored: NotebookNode | None, practise: str) -> str:
    measured = measured_of(stored)
    minutes, memory = ("-", "-") if measured is None else (measured.minutes, f"{measured.memory_mb} MB")
    return f"| {link} | {lesson.promise} | {minutes} | {memory} | {practise} |"


def _practise(course: Course, exercises: Lesson | None) -> str:
    if exercises is None:
        return "-"
    count = sum(graded_number(cell) is not None for cell in exercises.cells)
    return f"[{plural(count, 'exercise')}]({course.notebooks.name}/{FOLDER}/{exercises.name}.ipynb)"


def new_readme(course: Course) -> str | None:
    """README's text with the table of today; None where README has no markers."""
    text = course.readme.read_text(encoding="utf-8") if course.readme.exists() else ""
    if BEGIN not in text or END not in text:
        return None
    before, after = text.split(BEGIN, 1)[0], text.split(END, 1)[1]
    return f"{before}{BEGIN}\n{readme_table(course)}\n{END}{after}"


def write_readme(course: Course) -> None:
    """Bring README's table up to date, where README has a place for it."""
    text = new_readme(course)
    if text is not None and text != course.readme.read_text(encoding="utf-8"):
        write_atomically(course.readme, text)


def _check_readme(course: Course) -> list[str]:
    text = new_readme(course)
    if text is None:
        return [f"{course.readme.name} has no place for the table of notebooks. Put {BEGIN} and {END} into it."]
    if text != course.readme.read_text(encoding="utf-8"):
        return [f"{course.readme.name} has an old table of notebooks. Run python notebooks/_src/build.py NAME --text."]
    return []


def pages(course: Course) -> dict[Path, str]:
    """The pages that are made from all sources, and what they hold today; a course has those that it has a file of."""
    lessons = course.lessons()
    texts = {
        error_index.NAME: lambda: error_index.page([lesson.name for lesson in lessons]),
        objectives_table.NAME: lambda: objectives_table.page(lessons, course.exercises()),
    }
    return {path: text() for name, text in texts.items() if (path := course.notebooks / name).exists()}


def write_pages(course: Course) -> None:
    """Bring the pages up to date."""
    for path, text in pages(course).items():
        write_atomically(path, text)


def _check_pages(course: Course) -> list[str]:
    advice = "Run python notebooks/_src/build.py NAME --text."
    return [
        f"{path.name} differs from what it is made from. {advice}"
        for path, text in pages(course).items()
        if path.read_text(encoding="utf-8") != text
    ]


def write_notebook(notebook: NotebookNode, path: Path) -> None:
    """Write a notebook as Jupyter does. Raises nbformat.ValidationError for a broken one."""
    nbformat.validate(notebook)
    write_atomically(path, nbformat.writes(notebook, version=4) + "\n")


def write_atomically(path: Path, text: str) -> None:
    """Write a text file so that its name holds either the old text or the new one, never a half."""
    part = path.with_name(path.name + ".part")
    part.write_text(text, encoding="utf-8")
    part.replace(path)


def _stabilize(cell: NotebookNode) -> None:
    """Remove what differs from run to run without meaning: metadata of outputs."""
    for output in cell.get("outputs", []):
        if output.output_type in {"display_data", "execute_result"}:
            output.metadata = NotebookNode()


def _report(faults: Iterable[str]) -> int:
    faults = list(faults)
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="02, 02_naive_train_on_batch, exercises/02, exercises")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--check", action="store_true", help="compare, do not execute")
    how.add_argument("--lint", action="store_true", help="check the sources' rules, do not execute")
    how.add_argument("--text", action="store_true", help="update texts, keep outputs")
    how.add_argument("--fresh", action="store_true", help="do not keep outputs of ignored cells")
    return parser


if __name__ == "__main__":
    sys.exit(main())

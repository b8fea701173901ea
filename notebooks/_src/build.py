"""Build the notebooks from their sources: executed, with stored outputs, the same bytes each time.

    python notebooks/_src/build.py [NAME ...]          build all lessons, or those named
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
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import error_index
import nbformat
from lesson_lint import lint
from lesson_run import Run, execute
from lesson_source import IGNORE, NOTEBOOKS, BuildError, Lesson, Measured, assemble, lesson_paths, read_lesson, tags
from nbformat import NotebookNode

README = NOTEBOOKS.parent / "README.md"
BEGIN, END = "<!-- notebooks:begin -->", "<!-- notebooks:end -->"
MEMORY_STEP_MB = 50


@dataclass(frozen=True)
class Course:
    """The folders a build works on: sources, notebooks, and the README that holds the table."""

    sources: Path
    notebooks: Path
    readme: Path

    def lessons(self) -> list[Lesson]:
        """All lessons in order."""
        return [read_lesson(path) for path in lesson_paths(self.sources)]

    def path(self, lesson: Lesson) -> Path:
        """Where the notebook of a lesson lies."""
        return self.notebooks / f"{lesson.name}.ipynb"

    def stored(self, lesson: Lesson) -> NotebookNode | None:
        """The notebook as it lies on disk, or None."""
        path = self.path(lesson)
        return nbformat.read(path, as_version=4) if path.exists() else None


COURSE = Course(NOTEBOOKS / "_src", NOTEBOOKS, README)


def main(arguments: list[str] | None = None, course: Course = COURSE) -> int:
    """Command line; returns the exit code: 0 fine, 1 faults or a failed cell, 2 unknown name."""
    options = _parser().parse_args(arguments)
    try:
        chosen = choose(course.lessons(), options.names)
    except BuildError as error:
        return _report([str(error)]) and 2
    if options.check:
        return _report(check(course, chosen))
    if options.lint:
        return _report(fault for lesson in chosen for fault in lint_source(course, lesson))
    return build_all(course, chosen, fresh=options.fresh, text_only=options.text)


def choose(lessons: list[Lesson], names: list[str]) -> list[Lesson]:
    """The lessons called for: all without names; a name may be the number alone, and may end in .py or .ipynb."""
    wanted = [Path(name).stem for name in names]
    chosen = [lesson for lesson in lessons if not wanted or lesson.name in wanted or lesson.name[:2] in wanted]
    unknown = [name for name in wanted if not any(name in {lesson.name, lesson.name[:2]} for lesson in lessons)]
    if unknown:
        have = ", ".join(lesson.name for lesson in lessons) or "none"
        raise BuildError(f"there is no lesson {', '.join(unknown)}. Lessons: {have}.")
    return chosen


def build_all(course: Course, lessons: list[Lesson], *, fresh: bool, text_only: bool) -> int:
    """Build each lesson, then README's table and the index of errors; goes on after a failed one: then 1."""
    faults = []
    for lesson in lessons:
        try:
            faults += update_text(course, lesson) if text_only else build(course, lesson, fresh=fresh)
        except BuildError as error:
            faults.append(str(error))
    write_readme(course)
    write_error_index(course)
    return _report(faults)


def build(course: Course, lesson: Lesson, *, fresh: bool = False) -> list[str]:
    """Execute one lesson and write its notebook; returns the lint's faults. Raises BuildError when a cell fails."""
    old = course.stored(lesson)
    notebook = assemble(lesson, None, *neighbours(course, lesson))
    run = execute(notebook, course.notebooks, lesson.name)
    over = over_budget(lesson, run)
    if old is not None and not fresh:
        keep_ignored_outputs(notebook, old)
    for cell in notebook.cells:
        _stabilize(cell)
    measured = settle(run, measured_of(old))
    finished = with_outputs(assemble(lesson, measured, *neighbours(course, lesson)), notebook.cells)
    write_notebook(finished, course.path(lesson))
    print(f"{lesson.name}: {run.seconds:.0f} s, {run.peak_mb:.0f} MB")
    return over + lint(finished, course.path(lesson))


def update_text(course: Course, lesson: Lesson) -> list[str]:
    """Write the notebook with its stored outputs and new texts. Raises BuildError when a code cell changed."""
    old = course.stored(lesson)
    notebook = assemble(lesson, measured_of(old), *neighbours(course, lesson))
    stored = [cell for cell in old.cells if cell.cell_type == "code"] if old else []
    if [cell.id for cell in notebook.cells if cell.cell_type == "code"] != [cell.id for cell in stored]:
        raise BuildError(f"{lesson.name}: its code changed too. Build it without --text.")
    finished = with_outputs(notebook, stored)
    write_notebook(finished, course.path(lesson))
    return lint(finished, course.path(lesson))


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


def over_budget(lesson: Lesson, run: Run) -> list[str]:
    """Faults of a run that took more than the lesson's head allows."""
    faults = []
    minutes, memory_mb = lesson.head.get("max_minutes"), lesson.head.get("max_memory_mb")
    if minutes is not None and run.seconds > 60 * minutes:
        faults.append(f"{lesson.name} took {run.seconds:.0f} s; its head allows {minutes} minutes.")
    if memory_mb is not None and run.peak_mb > memory_mb:
        faults.append(f"{lesson.name} took {run.peak_mb:.0f} MB; its head allows {memory_mb} MB.")
    return faults


def neighbours(course: Course, lesson: Lesson) -> tuple[Lesson | None, Lesson | None]:
    """The lessons before and after this one."""
    lessons = course.lessons()
    place = [other.name for other in lessons].index(lesson.name)
    return lessons[place - 1] if place else None, lessons[place + 1] if place + 1 < len(lessons) else None


def lint_source(course: Course, lesson: Lesson) -> list[str]:
    """Faults of a lesson that can be seen without executing it."""
    return lint(assemble(lesson, None, *neighbours(course, lesson)), lesson.path, executed=False)


def check(course: Course, lessons: list[Lesson]) -> list[str]:
    """Where notebooks and README differ from the sources; nothing is executed."""
    faults = [fault for lesson in lessons for fault in _check_lesson(course, lesson)]
    known = {course.path(lesson) for lesson in course.lessons()}
    for path in sorted(course.notebooks.glob("*.ipynb")):
        if path not in known:
            faults.append(f"{path.name} has no source in {course.sources.name}/. Delete it, or write its source.")
    return faults + _check_readme(course) + _check_error_index(course)


def _check_lesson(course: Course, lesson: Lesson) -> list[str]:
    stored = course.stored(lesson)
    advice = f"Run python notebooks/_src/build.py {lesson.name}."
    if stored is None:
        return [f"{lesson.name}.ipynb does not exist. {advice}"]
    expected = assemble(lesson, measured_of(stored), *neighbours(course, lesson))
    if stored.metadata != expected.metadata:
        return [f"{lesson.name}.ipynb has another head than its source. {advice}"]
    for number, (old, new) in enumerate(zip(stored.cells, expected.cells, strict=False)):
        if _source_of(old) != _source_of(new):
            return [f"{lesson.name}.ipynb differs from its source at cell {number}. {advice}"]
    if len(stored.cells) != len(expected.cells):
        return [f"{lesson.name}.ipynb has {len(stored.cells)} cells, its source makes {len(expected.cells)}. {advice}"]
    return []


def _source_of(cell: NotebookNode) -> tuple:
    return cell.id, cell.cell_type, cell.source, dict(cell.metadata)


def readme_table(course: Course) -> str:
    """The table of notebooks, from the stored notebooks."""
    lines = ["| lesson | you build | minutes | memory |", "| --- | --- | --- | --- |"]
    for lesson in course.lessons():
        measured = measured_of(course.stored(lesson))
        minutes, memory = ("-", "-") if measured is None else (measured.minutes, f"{measured.memory_mb} MB")
        link = f"[{lesson.title}]({course.notebooks.name}/{lesson.name}.ipynb)"
        lines.append(f"| {link} | {lesson.promise} | {minutes} | {memory} |")
    return "\n".join(lines)


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


def write_error_index(course: Course) -> None:
    """Bring ``ERRORS.md`` up to date, in a course that has one."""
    path = course.notebooks / error_index.NAME
    if path.exists():
        write_atomically(path, _error_index(course))


def _error_index(course: Course) -> str:
    return error_index.page([lesson.name for lesson in course.lessons()])


def _check_error_index(course: Course) -> list[str]:
    path = course.notebooks / error_index.NAME
    if path.exists() and path.read_text(encoding="utf-8") != _error_index(course):
        return [f"{path.name} differs from helpers/known_errors.toml. Run python notebooks/_src/build.py NAME --text."]
    return []


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
    parser.add_argument("names", nargs="*", metavar="NAME", help="a lesson: 02_naive_train_on_batch, or 02")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--check", action="store_true", help="compare, do not execute")
    how.add_argument("--lint", action="store_true", help="check the sources' rules, do not execute")
    how.add_argument("--text", action="store_true", help="update texts, keep outputs")
    how.add_argument("--fresh", action="store_true", help="do not keep outputs of ignored cells")
    return parser


if __name__ == "__main__":
    sys.exit(main())

"""``notebooks/OBJECTIVES.md``: what each lesson promises, where it teaches it, and which exercise finds out.

Everything comes from the sources and from the tasks of the exercises: a promise without a checkpoint or an exercise
cannot be hidden here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from lesson_source import Lesson

from helpers.course.tasks import tasks_of

NAME = "OBJECTIVES.md"
HEAD = """\
<!-- Made by notebooks/_src/build.py from the lessons and the exercises; edit those. -->
# What the course promises, and how it finds out

Each lesson begins with what you can do at its end. For each of these promises: the section with the checkpoint on it,
the exercises that test it, and the mistakes that their checks know by name. ([How to teach with it](TEACHING.md))
"""
_OBJECTIVES = re.compile(r"\*\*You can, at the end,\*\*(.*?)\*\*You need\*\*", re.DOTALL)


@dataclass(frozen=True)
class Objective:
    """One promise of a lesson; ``section`` is the heading above its first checkpoint, '' where it has none."""

    number: int
    text: str
    section: str


def objectives_of(lesson: Lesson) -> list[Objective]:
    """The promises of a lesson, in order."""
    found = _OBJECTIVES.search(lesson.cells[0].source)
    items = re.findall(r"^(\d+)\. (.+?)(?=^\d+\. |\Z)", found[1] if found else "", re.MULTILINE | re.DOTALL)
    sections = _sections_of_checkpoints(lesson)
    return [Objective(int(n), " ".join(text.split()).rstrip(";."), sections.get(int(n), "")) for n, text in items]


def page(lessons: list[Lesson], exercises: list[Lesson]) -> str:
    """The page, as Markdown."""
    taught = {lesson.name for lesson in lessons}
    others = [_table_of_tasks(one) for one in exercises if one.name not in taught]
    return "\n".join([HEAD, *(_table(lesson, exercises) for lesson in lessons), *others])


def _table(lesson: Lesson, exercises: list[Lesson]) -> str:
    rows = [_row(lesson, objective, exercises) for objective in objectives_of(lesson)]
    head = ["| you can | section, with its checkpoint | exercises | mistakes they name |", "| --- | --- | --- | --- |"]
    return "\n".join([f"## {lesson.title}", "", *head, *rows, ""])


def _table_of_tasks(exercise: Lesson) -> str:
    """Exercises that belong to no single lesson: the capstone."""
    rows = [
        f"| {_exercise_link(task, exercise.name)} | {', '.join(_own(task))} |" for task in tasks_of(exercise.name[:2])
    ]
    return "\n".join([f"## {exercise.title}", "", "| exercises | mistakes they name |", "| --- | --- |", *rows, ""])


def _row(lesson: Lesson, objective: Objective, exercises: list[Lesson]) -> str:
    tasks = [task for task in tasks_of(lesson.name[:2]) if task.objective == objective.number]
    anchor = objective.section.replace(" ", "-").replace("`", "")
    section = f"[{objective.section}]({lesson.name}.ipynb#{anchor})" if objective.section else ""
    name = next((one.name for one in exercises if one.name[:2] == lesson.name[:2]), "")
    links = [_exercise_link(task, name) for task in tasks]
    mistakes = [f"{task.number}: {', '.join(_own(task))}" for task in tasks]
    return f"| {objective.number}. {objective.text} | {section} | {'<br>'.join(links)} | {'<br>'.join(mistakes)} |"


def _exercise_link(task, name: str) -> str:
    anchor = f"{task.number} · {task.title}".replace(" ", "-").replace("`", "")
    return f"[{task.number} {task.title}](exercises/{name}.ipynb#{anchor})"


def _own(task) -> list[str]:
    """The mistakes that this exercise names, without errors of Python."""
    return [name for name in task.hints if not name.endswith("Error")]


def _sections_of_checkpoints(lesson: Lesson) -> dict[int, str]:
    section, found = "", {}
    for cell in lesson.cells:
        if cell.cell_type != "markdown":
            continue
        for line in cell.source.splitlines():
            section = line[3:] if line.startswith("## ") else section
            if match := re.match(r"\*\*Checkpoint (\d+)", line):
                found.setdefault(int(match[1]), section)
    return found

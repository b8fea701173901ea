"""The exercises' questions, one module a lesson; a module is imported when one of its exercises is checked."""

from __future__ import annotations

import importlib
import pkgutil

from helpers.course.probes import TASKS, Task


def find_task(number: str) -> Task:
    """The task of an exercise such as "05.3". Raises ValueError when there is none."""
    text = number.strip() if isinstance(number, str) else ""
    lesson, _, _ = text.partition(".")
    if lesson in lesson_numbers():
        _load(lesson)
    if text not in TASKS:
        have = ", ".join(one for one in TASKS if one.startswith(lesson + ".")) or ", ".join(lesson_numbers())
        raise ValueError(f'there is no exercise {number!r}; its number is text, such as "05.3". There are: {have}.')
    return TASKS[text]


def lesson_numbers() -> list[str]:
    """The lessons that have exercises: "01", "02", ..."""
    names = [module.name for module in pkgutil.iter_modules(__path__)]
    return sorted(name.removeprefix("lesson_") for name in names if name.startswith("lesson_"))


def tasks_of(lesson: str) -> list[Task]:
    """The tasks of one lesson ("05"), in order; none when it has no exercises."""
    if lesson in lesson_numbers():
        _load(lesson)
    return [TASKS[number] for number in sorted(TASKS) if number.startswith(f"{lesson}.")]


def all_tasks() -> dict[str, Task]:
    """Every task by its number, in order."""
    for lesson in lesson_numbers():
        _load(lesson)
    return dict(sorted(TASKS.items()))


def _load(lesson: str) -> None:
    importlib.import_module(f"{__name__}.lesson_{lesson}")

"""The checks of the exercises: right answers pass however they are written, each known mistake gets its own hint."""

import importlib

import pytest

from helpers.course.checks import check
from helpers.course.probes import COMMON_HINTS, RAISED_HINT
from helpers.course.tasks import all_tasks, lesson_numbers

TASKS = all_tasks()
FEWEST_WRONG, FEWEST_RIGHT = 4, 2


def answers(kind):
    """All answers of one kind: exercise -> name -> answer."""
    modules = [importlib.import_module(f"answers.lesson_{lesson}") for lesson in lesson_numbers()]
    return {number: named for module in modules for number, named in getattr(module, kind).items()}


RIGHT, WRONG = answers("RIGHT"), answers("WRONG")
TRAINS = {"pixels scaled outside", "trained on wrong labels"}  # wrong answers that take seconds: nightly


def cases(named):
    """One case for each answer."""
    return [
        pytest.param(number, name, id=f"{number} {name}", marks=pytest.mark.nightly if name in TRAINS else ())
        for number, answers in named.items()
        for name in answers
    ]


@pytest.mark.parametrize(("number", "name"), cases(RIGHT))
def test_a_right_answer_has_all_points(number, name, capsys):
    """Any way to write it passes, and nothing but the verdict is printed."""
    result = check(number, RIGHT[number][name])
    assert result.status == "right", str(result)
    assert (result.points, type(result.points)) == (TASKS[number].points, float)
    assert capsys.readouterr() == (f"{result}\n", "")


@pytest.mark.parametrize(("number", "name"), cases(WRONG))
def test_a_known_mistake_is_called_by_its_name(number, name, capsys):
    """A wrong answer fails with the name, and so with the hint, of its mistake, and without full points."""
    result = check(number, WRONG[number][name])
    assert (result.status, result.name) == ("raised" if name.endswith("Error") else "wrong", name), str(result)
    assert result.points < TASKS[number].points
    assert dict(result.lines)["hint"] == TASKS[number].hint(name)
    assert capsys.readouterr() == (f"{result}\n", "")


@pytest.mark.parametrize("number", TASKS)
def test_each_exercise_is_proved(number):
    """An exercise has right answers of two kinds and wrong ones of four, and every hint of its own is provoked."""
    assert len(RIGHT[number]) >= FEWEST_RIGHT
    assert len(WRONG[number]) >= FEWEST_WRONG
    assert set(TASKS[number].hints) <= set(WRONG[number]), "a hint that no wrong answer shows"


@pytest.mark.parametrize("number", TASKS)
def test_each_mistake_has_a_hint_of_its_own(number):
    """No two mistakes of an exercise share a hint, and none falls back to the general one."""
    hints = [TASKS[number].hint(name) for name in WRONG[number]]
    assert len(set(hints)) == len(hints)
    assert RAISED_HINT not in hints


def test_common_mistakes_are_not_all_that_is_known():
    """Each exercise knows two mistakes at least that are its own."""
    assert [number for number, task in TASKS.items() if len(set(task.hints) - set(COMMON_HINTS)) < 2] == []


def test_no_answer_belongs_to_an_exercise_that_is_gone():
    """Answers and exercises have the same numbers."""
    assert set(RIGHT) == set(WRONG) == set(TASKS)

"""The table of promises: each has its section, its checkpoint and its exercise, and every link leads there."""

import re

import nbformat
import pytest
from build import COURSE
from objectives_table import NAME, objectives_of, page

from helpers.course.tasks import all_tasks, tasks_of

LESSONS = COURSE.lessons()
TEXT = page(LESSONS, COURSE.exercises())
PRACTISED = [lesson for lesson in LESSONS if tasks_of(lesson.name[:2])]


def by_name(lesson):
    """Name of a lesson, as the test's id."""
    return lesson.name


def test_the_stored_page_is_that_of_today():
    """What is stored is what lessons and exercises make."""
    assert (COURSE.notebooks / NAME).read_text(encoding="utf-8") == TEXT


@pytest.mark.parametrize("lesson", LESSONS, ids=by_name)
def test_every_promise_has_its_section(lesson):
    """Each objective has a checkpoint, and so a section."""
    assert [one.number for one in objectives_of(lesson) if not one.section] == []


@pytest.mark.parametrize("lesson", PRACTISED, ids=by_name)
def test_every_promise_has_its_exercise(lesson):
    """Each objective of a lesson with exercises is the objective of one of them, and the other way round."""
    assert {one.number for one in objectives_of(lesson)} == {task.objective for task in tasks_of(lesson.name[:2])}


def test_every_exercise_and_its_mistakes_are_in_the_table():
    """No exercise, and no name of a mistake, is left out."""
    for number, task in all_tasks().items():
        assert f"[{number} {task.title}](" in TEXT
        assert all(name in TEXT for name in task.hints if not name.endswith("Error"))


def test_links_lead_to_a_heading():
    """Each link is the address that JupyterLab gives to a heading of that notebook."""
    for target, anchor in re.findall(r"\]\(([^)#]+\.ipynb)#((?:[^()]|\([^()]*\))+)\)", TEXT):
        cells = nbformat.read(COURSE.notebooks / target, as_version=4).cells
        lines = [line[3:] for cell in cells for line in cell.source.splitlines() if line.startswith("## ")]
        assert anchor in {line.replace(" ", "-").replace("`", "") for line in lines}, f"{target}#{anchor}"

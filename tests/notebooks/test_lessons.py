"""The lessons of the course: they keep the rules for learners, and their notebooks are what their sources make."""

import nbformat
import pytest
from build import COURSE, check, lint_source
from lesson_lint import lint

LESSONS = COURSE.lessons()


def by_name(lesson):
    """Name of a lesson, as the test's id."""
    return lesson.name


def test_notebooks_are_built_from_their_sources():
    """No notebook differs from its source, none is without source, and README's table is the one of the last build."""
    assert check(COURSE, LESSONS) == []


@pytest.mark.parametrize("lesson", LESSONS, ids=by_name)
def test_source_keeps_the_rules(lesson):
    """A source breaks no rule for learners."""
    assert lint_source(COURSE, lesson) == []


@pytest.mark.parametrize("lesson", LESSONS, ids=by_name)
def test_notebook_keeps_the_rules(lesson):
    """A notebook breaks no rule, its stored outputs included."""
    path = COURSE.path(lesson)
    assert lint(nbformat.read(path, as_version=4), path) == []

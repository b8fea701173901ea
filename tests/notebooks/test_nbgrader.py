"""nbgrader itself releases our blanks from our solutions, and grades as the checks do. It is no part of the course."""

import csv
import os
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from build import COURSE
from exercise_source import FOLDER, SOLUTIONS, STUB, graded_number

from helpers.course.nbgrader_course import make_course
from helpers.course.tasks import find_task

NBGRADER = shutil.which("nbgrader", path=str(Path(sys.executable).parent))
pytestmark = [
    pytest.mark.nightly,
    pytest.mark.timeout(900),
    pytest.mark.skipif(NBGRADER is None, reason='nbgrader is not installed (pip install -e ".[teach]")'),
]
NAMES = [one.name for one in COURSE.exercises()]
LEARNERS = ("blank", "solved", "first")


def nbgrader(course, *arguments):
    """Run nbgrader as a teacher does, with the environment activated; returns what it printed."""
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    environment.pop("PYTEST_CURRENT_TEST", None)
    done = subprocess.run(
        [NBGRADER, *arguments], cwd=course, env=environment, capture_output=True, text=True, timeout=800, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def most(name):
    """All points of the exercises of one notebook."""
    numbers = filter(None, map(graded_number, next(one for one in COURSE.exercises() if one.name == name).cells))
    return [find_task(number).points for number in numbers]


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    """A course as TEACHING.md makes it, with everything released."""
    folder = tmp_path_factory.mktemp("class") / "course"
    make_course(folder)
    nbgrader(folder, "generate_assignment", "--force", *NAMES[:1])
    for name in NAMES[1:]:
        nbgrader(folder, "generate_assignment", name)
    return folder


def read(path):
    """A notebook of format 4."""
    return nbformat.read(path, as_version=4)


@pytest.mark.parametrize("name", NAMES)
def test_nbgrader_releases_our_blanks(course, name):
    """generate_assignment makes of each solution the blank that the kit has, source by source."""
    released = read(course / "release" / name / f"{name}.ipynb")
    ours = read(COURSE.notebooks / FOLDER / f"{name}.ipynb")
    assert [cell.source for cell in released.cells[1:]] == [cell.source for cell in ours.cells[1:]]


@pytest.mark.parametrize("name", NAMES)
def test_nbgrader_grades_as_the_checks_do(course, name):
    """Autograded: nothing for a blank, everything for the solution, and part of it for the first exercise alone."""
    blank, solved = course / "release" / name / f"{name}.ipynb", COURSE.notebooks / SOLUTIONS / f"{name}.ipynb"
    for learner in LEARNERS:
        folder = course / "submitted" / learner / name
        folder.mkdir(parents=True)
        notebook = read(blank)
        answered = {"blank": 0, "solved": len(notebook.cells), "first": 1}[learner]
        for cell, solution in zip(notebook.cells, read(solved).cells, strict=True):
            if cell.source.endswith(STUB) and answered:
                cell.source, answered = solution.source, answered - 1
        nbformat.write(notebook, folder / f"{name}.ipynb")
    nbgrader(course, "autograde", name, "--create")
    nbgrader(course, "export", "--to", "grades.csv")
    rows = list(csv.DictReader((course / "grades.csv").read_text(encoding="utf-8").splitlines()))
    scores = {row["student_id"]: float(row["score"]) for row in rows if row["assignment"] == name}
    assert scores == {"blank": 0.0, "solved": sum(most(name)), "first": most(name)[0]}

"""The exercise notebooks: blanks are worth nothing and run untouched, solutions are worth everything."""

import re

import nbformat
import pytest
from build import COURSE
from exercise_source import BEGIN, END, FOLDER, SOLUTIONS, STUB, blanked, graded_number
from lesson_lint import Page, objectives

from helpers.course.nbgrader_course import STUB as STUB_OF_NBGRADER
from helpers.course.submissions import run_again
from helpers.course.tasks import find_task, lesson_numbers, tasks_of

EXERCISES = {one.name: one for one in COURSE.exercises()}
LESSONS = {one.name[:2]: one for one in COURSE.lessons()}


def read(folder, name):
    """A notebook as it is stored."""
    return nbformat.read(COURSE.notebooks / folder / f"{name}.ipynb", as_version=4)


def graded(notebook):
    """Exercise -> what its check printed, and its value as shown."""
    found = {}
    for cell in notebook.cells:
        if number := graded_number(cell):
            printed = "".join(output.text for output in cell.outputs if output.output_type == "stream")
            values = [out.data["text/plain"] for out in cell.outputs if out.output_type == "execute_result"]
            found[number] = (printed, *values)
    return found


@pytest.mark.parametrize("name", EXERCISES)
def test_a_blank_is_worth_nothing(name):
    """Each check of a blank notebook prints its fixed line, and its value is 0.0."""
    found = graded(read(FOLDER, name))
    assert list(found) == [task.number for task in tasks_of(name[:2])]
    for number, (printed, value) in found.items():
        assert printed.startswith(f"{number} · not answered yet: 0 of {find_task(number).points} points. ")
        assert value == "0.0"


@pytest.mark.parametrize("name", EXERCISES)
def test_a_solution_is_worth_everything(name):
    """Each check of a solved notebook gives all points, as the last value of its cell."""
    found = graded(read(SOLUTIONS, name))
    assert list(found) == [task.number for task in tasks_of(name[:2])]
    for number, (printed, value) in found.items():
        assert printed.startswith(f"{number} · right: ")
        assert value == str(float(find_task(number).points))


@pytest.mark.parametrize("name", EXERCISES)
def test_blank_and_solution_differ_in_answers_alone(name):
    """Both notebooks have the same cells, marks and texts, but for what stands between the marks."""
    blank, solved = read(FOLDER, name), read(SOLUTIONS, name)
    assert len(blank.cells) == len(solved.cells)
    for one, other in zip(blank.cells[1:], solved.cells[1:], strict=True):
        assert one.source == blanked(other.source)
        assert one.metadata == other.metadata


@pytest.mark.parametrize("name", EXERCISES)
def test_marks_are_those_of_nbgrader(name):
    """Schema 3: ids are unique, answers are open, checks are graded and locked, everything else is locked."""
    cells = [cell for cell in read(FOLDER, name).cells if cell.cell_type == "code"]
    marks = [cell.metadata.nbgrader for cell in cells]
    assert {mark.schema_version for mark in marks} == {3}
    assert len({mark.grade_id for mark in marks}) == len(marks)
    for cell, mark in zip(cells, marks, strict=True):
        assert mark.solution == cell.source.endswith(STUB)
        assert mark.locked != mark.solution
        assert mark.grade == (graded_number(cell) is not None)
        assert ("points" in mark) == mark.grade
        assert mark.task is False


ALONE = [pytest.param(name, marks=() if name[:2] == "01" else pytest.mark.nightly, id=name) for name in EXERCISES]


@pytest.mark.parametrize("name", ALONE)
def test_a_blank_runs_where_nothing_else_is(name):
    """As a grader runs it, in a new folder without data, a blank raises nowhere: what it draws, it makes itself."""
    notebook, path = read(FOLDER, name), COURSE.notebooks / FOLDER / f"{name}.ipynb"
    assert run_again(notebook, path) == ""
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert [output.evalue for output in outputs if output.output_type == "error"] == []


BLANKED = {
    "a solution alone": (f"{BEGIN}\nanswer = 1\n{END}", STUB),
    "comments stay": (f"# a hint\n{BEGIN}\nx = 1\nanswer = x\n{END}", f"# a hint\n{STUB}"),
    "indented": (f"if True:\n    {BEGIN}\n    answer = 1\n    {END}", f"if True:\n    {STUB}"),
    "nothing to blank": ("x = 1", "x = 1"),
}


@pytest.mark.parametrize("case", BLANKED)
def test_the_stub_takes_the_place_of_a_solution(case):
    """What stands between the marks is replaced, as nbgrader does it, and nothing else."""
    source, expected = BLANKED[case]
    assert blanked(source) == expected


def test_nbgrader_is_told_the_same_stub():
    """The settings of a teacher's course use the stub of the blanks."""
    assert STUB == STUB_OF_NBGRADER


def anchors(name):
    """The headings of a notebook, as JupyterLab links to them."""
    path = (COURSE.notebooks / FOLDER / name).resolve()
    lines = (line for cell in nbformat.read(path, as_version=4).cells for line in cell.source.splitlines())
    return {re.sub(r"^#+ ", "", line).replace("`", "").replace(" ", "-") for line in lines if re.match(r"#+ ", line)}


@pytest.mark.parametrize("name", EXERCISES)
def test_links_lead_to_a_section(name):
    """Each link of an exercise leads to a notebook that is there, and to a heading of it."""
    texts = "\n".join(cell.source for cell in EXERCISES[name].cells if cell.cell_type == "markdown")
    links = re.findall(r"\]\(((?:\.\./)?[^)#]+\.(?:ipynb|md))(?:#([^\s]+?))?\)", texts)
    assert links
    for target, anchor in links:
        assert (COURSE.notebooks / FOLDER / target).resolve().exists(), target
        if anchor and target.endswith("ipynb"):
            assert anchor in anchors(target), f"{target}#{anchor}"


@pytest.mark.parametrize("lesson", [number for number in lesson_numbers() if number in LESSONS])
def test_each_objective_is_tested_by_an_exercise(lesson):
    """What a lesson promises is what its exercises find out."""
    wanted = {int(number) for number in objectives(Page(COURSE.stored(LESSONS[lesson]), LESSONS[lesson].name, True))}
    assert {task.objective for task in tasks_of(lesson)} == wanted


def test_every_lesson_after_the_first_has_exercises():
    """01 to 08, and the capstone."""
    assert [name[:2] for name in EXERCISES] == [f"{number:02}" for number in range(1, 10)]

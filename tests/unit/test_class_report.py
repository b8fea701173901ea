"""What a class handed in, read and counted: any layout, any damage, and what learners changed in the checks."""

import csv

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook, new_output

from helpers.course import class_report as report_module
from helpers.course.class_report import class_report, main
from helpers.course.submissions import EXERCISES, learner_of, submitted_notebooks

NAME = "02_naive_train_on_batch"
BLANK = "02.1 · not answered yet: 0 of 2 points. Replace None in the cell above."
RIGHT = "02.1 · right: 2 of 2 points. Well."
RIGHT_2 = "02.2 · right: 3 of 3 points."
WRONG = "02.2 · not yet: 1 of 3 points (rows left over)\n  expected: all\n  got:      few\n  hint:     Look."
RAISED = "02.2 · your code raised an error: 0 of 3 points (ZeroDivisionError)\n  error:     ZeroDivisionError: 1"


def hand_in(path, *printed, graded=("02.1", "02.2")):
    """Save a notebook whose checks printed these verdicts; '' for a check that was not run."""
    cells = []
    for number, text in zip(graded, printed, strict=False):
        cell = new_code_cell(f'check("{number}", answer).points', metadata={"nbgrader": {"grade": True}})
        if text:
            cell.outputs = [new_output("stream", name="stdout", text=text + "\n")]
        cells.append(cell)
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(new_notebook(cells=cells), path)


@pytest.fixture
def school(tmp_path):
    """Four learners in nbgrader's layout."""
    for learner, printed in {
        "anna": (RIGHT, RIGHT_2),
        "ben": (RIGHT, WRONG),
        "cem": (BLANK, WRONG),
        "dora": ("", RAISED),
    }.items():
        hand_in(tmp_path / learner / NAME / f"{NAME}.ipynb", *printed)
    return tmp_path


def test_the_page_shows_each_exercise_by_learner(school):
    """Points, blanks and checks that were not run, a line a learner; how many have it right."""
    lines = str(class_report(school)).splitlines()
    assert lines[0] == "4 learners, 4 notebooks with exercises."
    table = {line.split()[0]: line.split()[1:] for line in lines[3:10] if line}
    assert table["anna"][:2] == ["2", "3"]
    assert table["ben"][:2] == ["2", "1"]
    assert table["cem"][:2] == [".", "1"]
    assert table["dora"][:2] == ["-", "0"]
    assert table["right"][:2] == ["2", "1"]


def test_misconceptions_are_counted_by_name(school):
    """The commonest mistake of an exercise stands first, with its hint."""
    report = class_report(school)
    assert report.misconceptions == {"02.2": {"rows left over": 2, "ZeroDivisionError": 1}}
    page = str(report)
    assert "  2 x rows left over: n // batch_size counts full pieces alone." in page
    assert page.index("2 x rows left over") < page.index("1 x ZeroDivisionError")


def test_the_best_of_two_notebooks_counts(school):
    """A notebook handed in twice does not lower anybody's points."""
    hand_in(school / "anna" / "old" / f"{NAME}.ipynb", BLANK, WRONG)
    hand_in(school / "cem" / "second" / f"{NAME}.ipynb", RIGHT, BLANK)
    best = class_report(school).best
    assert best["anna", "02.2"].status == "right"
    assert (best["cem", "02.1"].points, best["cem", "02.2"].name) == (2.0, "rows left over")


@pytest.mark.parametrize(
    ("path", "learner"),
    [
        (f"anna/{NAME}/{NAME}.ipynb", "anna"),
        (f"submitted/anna/{NAME}/{NAME}.ipynb", "anna"),
        (f"autograded/anna/{NAME}/{NAME}.ipynb", "anna"),
        (f"anna_{NAME}.ipynb", "anna"),
        (f"Anna Berg - {NAME}.ipynb", "Anna Berg"),
        ("anna.ipynb", "anna"),
        (f"s4711_{NAME}.ipynb", "s4711"),
        (f"ben98_{NAME}-Copy1.ipynb", "ben98"),
        (f"Anna Berg_12345_assignsubmission_file_{NAME} (1).ipynb", "Anna Berg_12345_assignsubmission_file"),
        (f"{NAME}.ipynb", NAME),
    ],
)
def test_learners_are_found_in_every_layout(tmp_path, path, learner):
    """nbgrader's folders, a folder each, or notebooks side by side."""
    assert learner_of(tmp_path / path, tmp_path) == learner


def test_copies_that_are_not_handed_in_are_left_out(school):
    """Checkpoints, and the teacher's source and release, are nobody's work."""
    for folder in (".ipynb_checkpoints", "source", "release", "feedback"):
        hand_in(school / folder / f"{NAME}.ipynb", RIGHT, RIGHT_2)
    assert len(submitted_notebooks(school)) == 4


BROKEN = {
    "not JSON": b"{",
    "not text": b"\xff\xfe\x00",
    "empty": b"",
    "another format": b"[1, 2]",
    "a cell without source": b'{"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": [{"cell_type": "code"}]}',
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_notebook_that_cannot_be_read_is_named(school, case):
    """Damage ends no report: it is said whose, and which."""
    (school / "eve").mkdir()
    (school / "eve" / f"{NAME}.ipynb").write_bytes(BROKEN[case])
    page = str(class_report(school))
    assert "5 learners, 5 notebooks" in page
    assert f"  eve, {NAME}.ipynb: cannot be read as a notebook (" in page


def test_notebooks_without_checks_are_no_submissions(school):
    """Other notebooks of a learner are not counted."""
    nbformat.write(new_notebook(cells=[new_code_cell("1 + 1")]), school / "anna" / "notes.ipynb")
    assert len(class_report(school).submissions) == 4


def test_csv_holds_a_row_for_each_learner_and_exercise(school, tmp_path, capsys):
    """What a spreadsheet needs."""
    target = tmp_path / "class.csv"
    assert main([str(school), "--csv", str(target)]) == 0
    rows = list(csv.reader(target.read_text(encoding="utf-8").splitlines()))
    assert rows[0] == ["learner", "exercise", "points", "of", "status", "mistake"]
    assert ["ben", "02.2", "1.0", "3", "wrong", "rows left over"] in rows
    assert len(rows) == 9


def test_run_again_grades_what_the_code_does(tmp_path):
    """A faked verdict and a changed check do not count when the notebook is run again with the kit's checks."""
    notebook = nbformat.read(EXERCISES / f"{NAME}.ipynb", as_version=4)
    for cell in notebook.cells:
        kind = cell.metadata.get("nbgrader", {}).get("grade_id", "")
        if kind == "answer-02-1":
            cell.source = "answer = 706"
        if kind == "check-02-1":
            cell.source = 'print("02.1 · right: 2 of 2 points.")'
            cell.outputs = [new_output("stream", name="stdout", text=RIGHT)]
    notebook.cells = notebook.cells[:5]
    path = tmp_path / "ben" / f"{NAME}.ipynb"
    path.parent.mkdir()
    nbformat.write(notebook, path)
    before = path.read_bytes()
    best = class_report(tmp_path, rerun=True).best
    assert (best["ben", "02.1"].status, best["ben", "02.1"].name) == ("wrong", "rows of one piece")
    assert path.read_bytes() == before


def test_run_again_forgets_old_verdicts_and_puts_back_deleted_checks(tmp_path):
    """A kernel that was ended by the answer leaves no stored "right"; a deleted check is not answered."""
    notebook = nbformat.read(EXERCISES / f"{NAME}.ipynb", as_version=4)
    notebook.cells = [
        cell for cell in notebook.cells if cell.metadata.get("nbgrader", {}).get("grade_id") != "check-02-1"
    ]
    for cell in notebook.cells:
        if cell.metadata.get("nbgrader", {}).get("grade_id") == "answer-02-2":
            cell.source = "import os\nos._exit(1)"
        if cell.metadata.get("nbgrader", {}).get("grade_id") == "check-02-2":
            cell.outputs = [new_output("stream", name="stdout", text=RIGHT_2)]
    (tmp_path / "ben").mkdir()
    nbformat.write(notebook, tmp_path / "ben" / f"{NAME}-Copy1.ipynb")
    report = class_report(tmp_path, rerun=True)
    assert report.submissions[0].problem == "a cell killed its kernel"
    assert {number: one.status for (_, number), one in report.best.items() if number in {"02.1", "02.2"}} == {
        "02.1": "not run",
        "02.2": "not run",
    }


def test_empty_and_missing_folders_are_said(tmp_path, capsys):
    """Exit codes and sentences for a wrong folder."""
    assert main([str(tmp_path)]) == 1
    assert capsys.readouterr().err == f"{tmp_path} holds no notebook with exercises: no cell calls check(...).\n"
    assert main([str(tmp_path / "none")]) == 2
    assert "is not a folder. Give the one that holds a folder for each learner." in capsys.readouterr().err


def test_help_shows_how_it_is_called(capsys):
    """--help prints the module's own words."""
    with pytest.raises(SystemExit):
        main(["--help"])
    assert report_module.__doc__.splitlines()[0] in capsys.readouterr().out

"""Exercises in a folder of one's own: copied once, never overwritten; and the course folder for nbgrader."""

import pytest

from helpers.course import copy_exercises as module
from helpers.course.copy_exercises import copy_exercises, main
from helpers.course.nbgrader_course import CONFIG, SOLUTIONS, STUB, make_course
from helpers.course.submissions import EXERCISES

NAME = "02_naive_train_on_batch.ipynb"


def test_every_exercise_is_copied(tmp_path):
    """The copy is the kit's notebook, byte for byte."""
    copied, kept = copy_exercises(tmp_path / "work")
    assert (len(copied), kept) == (len(list(EXERCISES.glob("*.ipynb"))), [])
    assert (tmp_path / "work" / NAME).read_bytes() == (EXERCISES / NAME).read_bytes()


def test_an_answer_is_never_overwritten(tmp_path, capsys):
    """What is there stays, whatever it is, and is named."""
    (tmp_path / NAME).write_text("my answers", encoding="utf-8")
    assert main(["02", "--to", str(tmp_path)]) == 0
    assert (tmp_path / NAME).read_text(encoding="utf-8") == "my answers"
    assert f"kept   {NAME}: it is there already\n" in capsys.readouterr().out


def test_a_link_is_not_followed(tmp_path):
    """A link of that name, even a dead one, is kept as well."""
    (tmp_path / NAME).symlink_to(tmp_path / "elsewhere.ipynb")
    _, kept = copy_exercises(tmp_path, ["02"])
    assert [path.name for path in kept] == [NAME]
    assert not (tmp_path / "elsewhere.ipynb").exists()


def test_an_unknown_lesson_is_refused(tmp_path, capsys):
    """Nothing is copied when one of the numbers is wrong."""
    assert main(["02", "77", "--to", str(tmp_path / "work")]) == 2
    assert "there are no exercises 77. There are: 0" in capsys.readouterr().err
    assert not (tmp_path / "work").exists()


def test_without_the_repository_it_says_so(tmp_path):
    """Installed alone, the package has no exercises to copy."""
    with pytest.raises(FileNotFoundError, match="Run this from a clone of the kit"):
        copy_exercises(tmp_path, source=tmp_path / "none")


def test_the_default_folder_is_ignored_by_git():
    """Answers are never committed by accident, nor collected as tests."""
    ignored = (EXERCISES.parents[1] / ".gitignore").read_text(encoding="utf-8").splitlines()
    assert f"notebooks/{module.WORK.name}/" in ignored


def test_a_course_holds_the_solutions_and_the_stub(tmp_path):
    """nbgrader's folder: one assignment a lesson, settings with the stub; what is there is kept."""
    written = make_course(tmp_path)
    assert (tmp_path / "source" / NAME.removesuffix(".ipynb") / NAME).read_bytes() == (SOLUTIONS / NAME).read_bytes()
    assert (tmp_path / "nbgrader_config.py").read_text(encoding="utf-8") == CONFIG
    assert STUB in CONFIG
    assert len(written) == 1 + len(list(SOLUTIONS.glob("*.ipynb")))
    (tmp_path / "nbgrader_config.py").write_text("mine", encoding="utf-8")
    assert make_course(tmp_path) == []
    assert (tmp_path / "nbgrader_config.py").read_text(encoding="utf-8") == "mine"

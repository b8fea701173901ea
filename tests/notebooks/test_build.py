"""The build: the same bytes twice, outputs kept where they are not compared, and clear words when a cell fails."""

import shutil

import build
import nbformat
import pytest
from lesson_run import Run
from lesson_source import Measured
from sample_lessons import good_source, make_course, replaced, with_cell


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A course of two lessons, built once; tests copy it before they change it."""
    folder = tmp_path_factory.mktemp("course")
    course = make_course(folder, {"01_count": good_source(picture=True), "02_more": good_source("02")})
    assert build.main([], course) == 0
    return folder


@pytest.fixture
def course(built, tmp_path):
    """A copy of the built course."""
    shutil.copytree(built, tmp_path / "course")
    root = tmp_path / "course"
    return build.Course(root / "notebooks" / "_src", root / "notebooks", root / "README.md")


def stored(course, name="01_count"):
    """The notebook on disk."""
    return nbformat.read(course.notebooks / f"{name}.ipynb", as_version=4)


def code_cells(notebook):
    """Its code cells."""
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def change(course, old, new, name="01_count"):
    """Replace a text in a source."""
    path = course.sources / f"{name}.py"
    path.write_text(replaced(old, new, path.read_text(encoding="utf-8")), encoding="utf-8")


def test_second_build_gives_equal_bytes(course):
    """Building again changes no byte, a measured time and a picture included."""
    path = course.notebooks / "01_count.ipynb"
    before = path.read_bytes()
    assert build.main(["01_count"], course) == 0
    assert path.read_bytes() == before


def test_fresh_build_renews_ignored_outputs(course):
    """With --fresh, a measured time is the new one; compared outputs stay equal."""
    before = code_cells(stored(course))
    assert build.main(["01", "--fresh"], course) == 0
    after = code_cells(stored(course))
    assert after[2].outputs != before[2].outputs
    assert [cell.outputs for cell in after[3:]] == [cell.outputs for cell in before[3:]]


def test_changed_source_renews_its_ignored_output(course):
    """An output that is not compared is made again when the source of its cell changes."""
    before = code_cells(stored(course))[2].outputs
    change(course, "range(1000)", "range(1001)")
    assert build.main(["01"], course) == 0
    assert code_cells(stored(course))[2].outputs != before


def test_notebook_metadata_does_not_name_the_python_version(course):
    """A build on another Python gives the same metadata."""
    assert "version" not in stored(course).metadata.language_info


def test_cells_carry_stable_ids_without_execution_times(course):
    """Cell ids come from the sources; no cell stores when it ran, and none but tags as metadata."""
    notebook = stored(course)
    assert len({cell.id for cell in notebook.cells}) == len(notebook.cells)
    assert {key for cell in notebook.cells for key in cell.metadata} == {"tags"}


def test_opening_cell_and_readme_hold_the_measured_numbers(course):
    """Minutes and memory are written by the build: head table, metadata, README."""
    declared = stored(course).metadata.lesson
    row = f"| {declared.minutes} minute | {declared.memory_mb} MB | not needed | none |"
    assert row in stored(course).cells[0].source
    line = f"](notebooks/01_count.ipynb) | a counter of batches | {declared.minutes} | {declared.memory_mb} MB |"
    assert line in course.readme.read_text(encoding="utf-8")
    assert course.readme.read_text(encoding="utf-8").endswith("\n\nThe end.\n")


def test_footer_leads_to_the_neighbours(course):
    """The last cell links the lessons before and after, and says how to free the memory."""
    first, second = stored(course).cells[-1].source, stored(course, "02_more").cells[-1].source
    assert "next: [02 · Count the batches](02_more.ipynb)" in first
    assert "previous" not in first
    assert "previous: [01 · Count the batches](01_count.ipynb)" in second
    assert "**shut down this kernel**" in second


SETTLED = {
    "first build rounds up": (Run(61, 410), None, Measured(2, 450)),
    "a little more keeps the numbers": (Run(70, 460), Measured(1, 450), Measured(1, 450)),
    "a little less keeps the numbers": (Run(50, 380), Measured(2, 450), Measured(2, 450)),
    "what a test would refuse changes them": (Run(20, 258), Measured(1, 200), Measured(1, 300)),
    "much more changes them": (Run(200, 900), Measured(1, 450), Measured(4, 900)),
    "much less changes them": (Run(20, 200), Measured(4, 450), Measured(1, 200)),
}


@pytest.mark.parametrize("case", SETTLED)
def test_numbers_change_only_when_they_no_longer_hold(case):
    """Measured numbers are rounded up, and kept from build to build while they are about right."""
    run, before, expected = SETTLED[case]
    assert build.settle(run, before) == expected


def test_check_passes_after_a_build(course):
    """--check has nothing to say about a fresh build."""
    assert build.main(["--check"], course) == 0


CHANGES = {
    "text": (
        lambda course: change(course, "Four: the last", "4: the last"),
        "01_count.ipynb differs from its source at cell 4. Run python notebooks/_src/build.py 01_count.",
    ),
    "code": (
        lambda course: change(course, "103, 32", "104, 32"),
        "01_count.ipynb differs from its source at cell 3. Run python notebooks/_src/build.py 01_count.",
    ),
    "tag": (
        lambda course: change(course, "# %%\nrows", '# %% tags=["long"]\nrows'),
        "01_count.ipynb differs from its source at cell 3. Run python notebooks/_src/build.py 01_count.",
    ),
    "head": (
        lambda course: change(course, "max_minutes: 1", "max_minutes: 2"),
        "01_count.ipynb has another head than its source. Run python notebooks/_src/build.py 01_count.",
    ),
    "cell dropped at the end": (
        lambda course: drop_last_cell(course),
        "01_count.ipynb has 13 cells, its source makes 14. Run python notebooks/_src/build.py 01_count.",
    ),
    "notebook missing": (
        lambda course: (course.notebooks / "02_more.ipynb").unlink(),
        "02_more.ipynb does not exist. Run python notebooks/_src/build.py 02_more.",
    ),
    "source missing": (
        lambda course: shutil.copy(course.notebooks / "01_count.ipynb", course.notebooks / "09_old.ipynb"),
        "09_old.ipynb has no source in _src/. Delete it, or write its source.",
    ),
    "README's table": (
        lambda course: course.readme.write_text(course.readme.read_text().replace("a counter", "a count")),
        "README.md has an old table of notebooks. Run python notebooks/_src/build.py NAME --text.",
    ),
    "README without markers": (
        lambda course: course.readme.write_text("# Kit\n"),
        "README.md has no place for the table of notebooks. "
        "Put <!-- notebooks:begin --> and <!-- notebooks:end --> into it.",
    ),
}


def drop_last_cell(course):
    """Cut the footer off a stored notebook."""
    notebook = stored(course)
    notebook.cells.pop()
    build.write_notebook(notebook, course.notebooks / "01_count.ipynb")


@pytest.mark.parametrize("case", CHANGES)
def test_check_names_what_differs(case, course, capsys):
    """--check fails, without executing anything, and says where source and notebook differ."""
    changed, message = CHANGES[case]
    changed(course)
    assert build.main(["--check"], course) == 1
    assert message in capsys.readouterr().err.splitlines()


def test_text_update_keeps_outputs(course):
    """--text writes new texts and keeps every output; nothing is executed."""
    before = [cell.outputs for cell in code_cells(stored(course))]
    change(course, "Four: the last one holds 7 rows.", "Four, and the last one holds 7 rows.")
    assert build.main(["01", "--text"], course) == 0
    assert [cell.outputs for cell in code_cells(stored(course))] == before
    assert build.main(["--check"], course) == 0


def test_text_update_refuses_changed_code(course, capsys):
    """--text does not put old outputs under new code."""
    change(course, "103, 32", "104, 32")
    assert build.main(["01", "--text"], course) == 1
    assert capsys.readouterr().err == "01_count: its code changed too. Build it without --text.\n"


def test_failing_cell_is_named_and_the_old_notebook_stays(tmp_path, course, capsys):
    """A cell that raises ends the build with notebook, cell and error; the stored notebook is untouched."""
    before = (course.notebooks / "01_count.ipynb").read_bytes()
    change(course, "rows, batch_size = 103, 32", "rows, batch_size = 103, 0")
    assert build.main(["01"], course) == 1
    error = capsys.readouterr().err
    assert error.startswith("01_count, cell 3 raised an error.\n--- the cell ---\nrows, batch_size = 103, 0\n")
    assert "ZeroDivisionError" in error
    assert (course.notebooks / "01_count.ipynb").read_bytes() == before
    assert not list(tmp_path.rglob("*.part"))


def test_cell_that_kills_its_kernel_is_named(tmp_path, capsys):
    """A killed kernel is an error at once, not a wait."""
    course = make_course(tmp_path, {"01_count": with_cell("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)")})
    assert build.main([], course) == 1
    assert capsys.readouterr().err.startswith("01_count, cell 4 killed its kernel.\n")


def test_run_above_its_head_is_a_fault(tmp_path, capsys):
    """A lesson that needs more than its head allows fails the build."""
    course = make_course(tmp_path, {"01_count": replaced("max_memory_mb: 500", "max_memory_mb: 20")})
    assert build.main([], course) == 1
    assert "MB; its head allows 20 MB." in capsys.readouterr().err


def test_output_of_children_and_c_code_is_stored(tmp_path):
    """What a child process writes to the terminal lands in the notebook, as in JupyterLab."""
    course = make_course(tmp_path, {"01_count": with_cell("import subprocess\n_ = subprocess.run(['echo', 'child'])")})
    build.main([], course)
    assert code_cells(stored(course))[1].outputs[0].text == "4 batches\n"
    assert code_cells(stored(course))[2].outputs[0].text == "child\n"


def test_unknown_name_lists_the_lessons(course, capsys):
    """A name that is no lesson ends with exit code 2."""
    assert build.main(["03_missing"], course) == 2
    assert capsys.readouterr().err == "there is no lesson 03_missing. Lessons: 01_count, 02_more.\n"


def test_source_without_lesson_block_is_refused(tmp_path, capsys):
    """A source says what it needs in its head."""
    course = make_course(tmp_path, {"01_count": "# %%\nprint(1)\n"})
    assert build.main([], course) == 2
    message = "01_count.py has no lesson block. Start it with '# ---', '# jupyter:', '#   lesson:'.\n"
    assert capsys.readouterr().err == message

"""Lessons in a real JupyterLab in headless Chromium: they run from top to bottom, clean, and every picture is drawn."""

import nbformat
import pytest
from build import COURSE
from exercise_source import FOLDER, SOLUTIONS
from lab import CHROMIUM, answer_exercise, browser_page, copied, run_notebook, running_lab
from lesson_source import KERNEL_METADATA
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from helpers.course.tasks import find_task

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed (apt-get install chromium)"),
    pytest.mark.timeout(600),
]
EACH_TIME = "00_start_here"  # and the exercises below; the others run nightly
NOTEBOOKS = [
    pytest.param(product.path, id=product.name, marks=() if product.name == EACH_TIME else pytest.mark.nightly)
    for product in COURSE.products()
    if product.path.parent.name != SOLUTIONS
]
BAD_CELLS = {
    "import sys\nprint('careful', file=sys.stderr)": "code cell 1 wrote to stderr: careful\n",
    "import warnings\nwarnings.warn('old')": "code cell 2 wrote to stderr: ",
    # What a program prints passes through a thread of the kernel, and may be shown under a later cell.
    "import os\n_ = os.system('echo W0000 00:00:17 oneDNN')": "shows a line of a log: W0000",
    "from IPython.display import HTML\nHTML('<img src=\"data:image/png;base64,aGk=\">')": "picture without alt text",
    "1 / 0": "code cell 5 raised ZeroDivisionError: division by zero",
}


def run(notebook):
    """Run a notebook in a JupyterLab of its own."""
    with copied(notebook) as (folder, name), running_lab(folder) as address, browser_page() as page:
        return run_notebook(page, address, name)


@pytest.mark.parametrize("path", NOTEBOOKS)
def test_notebook_runs_in_jupyterlab(path):
    """Run All leaves no error, no warning, no leaked log line, no request to the network, no picture without alt."""
    assert run(path).faults == []


def test_an_exercise_is_answered_wrong_and_right():
    """Typed into a blank notebook: a mistake shows its hint, a right answer its points, and nothing else is shown."""
    notebook = COURSE.notebooks / FOLDER / "02_naive_train_on_batch.ipynb"
    with copied(notebook) as (folder, name), running_lab(folder) as address, browser_page() as page:
        assert run_notebook(page, address, name).faults == []
        blank = "02.1 · not answered yet: 0 of 2 points."
        assert page.locator(".jp-OutputArea", has_text=blank).count() == 1
        wrong = answer_exercise(page, "02.1", "answer = 706")
        assert "02.1 · not yet: 1 of 2 points (rows of one piece)" in wrong
        assert f"hint: {find_task('02.1').hint('rows of one piece')}" in " ".join(wrong.split())  # it wraps
        assert wrong.rstrip().endswith("1.0")
        right = answer_exercise(page, "02.1", "answer = 70_700 - 100 * 706")
        assert right.startswith("02.1 · right: 2 of 2 points.")
        assert right.rstrip().endswith("2.0")


def test_faults_are_seen(tmp_path):
    """What a learner should not see is found: stderr, a warning, a log line, a bare picture, an error."""
    notebook = new_notebook(cells=[new_markdown_cell("# Bad"), *(new_code_cell(source) for source in BAD_CELLS)])
    notebook.metadata |= KERNEL_METADATA
    nbformat.write(notebook, tmp_path / "bad.ipynb")
    faults = run(tmp_path / "bad.ipynb").faults
    for expected in BAD_CELLS.values():
        assert any(expected in fault for fault in faults), f"{expected!r} is not among {faults}"

"""Lessons in a real JupyterLab in headless Chromium: they run from top to bottom, clean, and every picture is drawn."""

import nbformat
import pytest
from build import COURSE
from lab import CHROMIUM, browser_page, copied, run_notebook, running_lab
from lesson_source import KERNEL_METADATA
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed (apt-get install chromium)"),
    pytest.mark.timeout(600),
]
EACH_TIME = ("00", "02")  # without Keras and with it; the others run nightly
LESSONS = [
    pytest.param(lesson, id=lesson.name, marks=() if lesson.name[:2] in EACH_TIME else pytest.mark.nightly)
    for lesson in COURSE.lessons()
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
    with copied(notebook) as folder, running_lab(folder) as address, browser_page() as page:
        return run_notebook(page, address, notebook.name)


@pytest.mark.parametrize("lesson", LESSONS)
def test_lesson_runs_in_jupyterlab(lesson):
    """Run All leaves no error, no warning, no leaked log line, no request to the network, no picture without alt."""
    assert run(COURSE.path(lesson)).faults == []


def test_faults_are_seen(tmp_path):
    """What a learner should not see is found: stderr, a warning, a log line, a bare picture, an error."""
    notebook = new_notebook(cells=[new_markdown_cell("# Bad"), *(new_code_cell(source) for source in BAD_CELLS)])
    notebook.metadata |= KERNEL_METADATA
    nbformat.write(notebook, tmp_path / "bad.ipynb")
    faults = run(tmp_path / "bad.ipynb").faults
    for expected in BAD_CELLS.values():
        assert any(expected in fault for fault in faults), f"{expected!r} is not among {faults}"

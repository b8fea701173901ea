"""Strict nbval: every gap through which a broken notebook would pass is closed, shown by one broken notebook each."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook, new_output
from nbval.plugin import get_sanitize_patterns
from strict_nbval import SANITIZE_FILE, over_budget

REPOSITORY = Path(__file__).parents[2]
CELL_TIMEOUT_S = 10  # what the hanging cell costs; enough for the others on a busy machine

# Cells that do not do what their stored output says, all in one notebook: name -> (source, words of the report).
# The stored output of each is "4 batches".
BROKEN_CELLS = {
    "other output": ("print('5 batches')", "'4 batches\\n' == '5 batches\\n'"),
    "no output": ("four = 4", "Missing output fields from running code: {'stdout'}"),
    "an error": ("print('4 batches')\n1 / 0", "ZeroDivisionError: division by zero"),
    "stderr": ("import sys\nprint('4 batches')\nprint('x', file=sys.stderr)", "from running code: {'stderr'}"),
    "C code on stderr": ("import os\nprint('4 batches')\n_ = os.write(2, b'x')", "from running code: {'stderr'}"),
    "semicolon": ("print('4 batches')\n40 + 2;", "Unexpected output fields from running code: {'text/plain'}"),
    "magic": ("print('4 batches')\n%unknown_magic", "from running code: {'stderr'}"),
    "network": ("import urllib.request\nurllib.request.urlopen('http://example.com')", "Connection refused"),
}
GOOD_CELLS = {
    "Python": "print('4 batches')",
    "a child process": "import subprocess\n_ = subprocess.run(['echo', '4 batches'])",
    "C code": "import os\n_ = os.write(1, b'4 batches\\n')",
}
DECLARED = {"minutes": 1, "memory_mb": 500}
# Notebooks that break a limit: name -> (source of their one cell, what they declare, item that fails, words).
BROKEN_NOTEBOOKS = {
    "kills": ("import os\nos.kill(os.getpid(), 9)", DECLARED, "Cell 0", "this cell killed its kernel."),
    "hangs": ("while True: pass", DECLARED, "Cell 0", f"Timeout of {CELL_TIMEOUT_S} seconds exceeded executing cell"),
    "greedy": (
        GOOD_CELLS["Python"],
        DECLARED | {"memory_mb": 10},
        "time and memory",
        "it declares 10 MB, the limit is",
    ),
    "slow": (GOOD_CELLS["Python"], DECLARED | {"minutes": 0}, "time and memory", "it declares 0 min, the limit is 3"),
    "silent": (GOOD_CELLS["Python"], {}, "time and memory", "this notebook declares no minutes and memory."),
}


def executed_cell(number: int, source: str):
    """A code cell whose stored output is four batches."""
    output = new_output("stream", name="stdout", text="4 batches\n")
    return new_code_cell(source, execution_count=number, outputs=[output])


def write(folder: Path, name: str, sources, declared: dict) -> None:
    """Write a notebook with these cells, each with the stored output of four batches."""
    notebook = new_notebook(cells=[executed_cell(number, source) for number, source in enumerate(sources, 1)])
    notebook.metadata["lesson"] = declared
    if name == "cells":
        notebook.cells.append(new_code_cell("print('never run')"))
    nbformat.write(notebook, folder / f"{name}.ipynb")


@pytest.fixture(scope="module")
def report(tmp_path_factory) -> str:
    """What pytest says about good and broken notebooks, in one run with the settings of the README's command."""
    folder = tmp_path_factory.mktemp("strict")
    shutil.copy(REPOSITORY / "notebooks" / "conftest.py", folder)
    write(folder, "good", GOOD_CELLS.values(), DECLARED)
    write(folder, "cells", [source for source, _ in BROKEN_CELLS.values()], DECLARED)
    for name, (source, declared, _, _) in BROKEN_NOTEBOOKS.items():
        write(folder, name, [source], declared)
    options = ["-v", "-c", REPOSITORY / "pyproject.toml", "--rootdir", REPOSITORY, "-p", "no:cacheprovider"]
    options += ["--color=no", f"--nbval-cell-timeout={CELL_TIMEOUT_S}", folder]
    run = subprocess.run([sys.executable, "-m", "pytest", *options], capture_output=True, text=True, check=False)
    assert run.returncode == 1, run.stdout + run.stderr
    return re.sub(r"\x1b\[[0-9;]*m", "", run.stdout)


def outcomes(report: str, name: str) -> dict[str, str]:
    """Item -> PASSED, FAILED ... of one notebook."""
    return dict(re.findall(rf"^\S*\b{name}\.ipynb::(.+?) ([A-Z]+) +\[", report, re.MULTILINE))


def failure(report: str, item: str, source: str) -> str:
    """The part of the report on one failed cell."""
    parts = [part for part in re.split(r"^_{4,} ", report, flags=re.MULTILINE) if part.startswith(f"::{item} ")]
    return next(part for part in parts if f"Input:\n{source}\n" in part)


def test_good_notebook_passes(report):
    """What Python, a child process and C code print is found as it was stored."""
    items = [*(f"Cell {number}" for number in range(len(GOOD_CELLS))), "time and memory"]
    assert outcomes(report, "good") == dict.fromkeys(items, "PASSED")


@pytest.mark.parametrize("name", BROKEN_CELLS)
def test_broken_cell_fails(name, report):
    """A cell that does something else than what is stored fails, and the report says what differs."""
    (source, words), number = BROKEN_CELLS[name], list(BROKEN_CELLS).index(name)
    assert outcomes(report, "cells")[f"Cell {number}"] == "FAILED"
    assert words in failure(report, f"Cell {number}", source)


def test_unexecuted_cell_fails(report):
    """A cell that was never executed has nothing to compare with, and fails for that."""
    assert outcomes(report, "cells")[f"Cell {len(BROKEN_CELLS)}"] == "FAILED"
    words = "this cell was never executed. Build the notebook: python notebooks/_src/build.py."
    assert words in failure(report, f"Cell {len(BROKEN_CELLS)}", "print('never run')")


@pytest.mark.parametrize("name", BROKEN_NOTEBOOKS)
def test_broken_limit_fails(name, report):
    """A killed kernel, a hanging cell, and a lesson above its minutes or memory each fail with their own words."""
    _, _, item, words = BROKEN_NOTEBOOKS[name]
    assert outcomes(report, name)[item] == "FAILED"
    assert words in report


BUDGETS = {
    "both within": (170, 590, []),
    "time": (181, 590, ["the lesson took 181 s; it declares 1 min, the limit is 3 times that."]),
    "memory": (170, 601, ["the kernel took 601 MB; it declares 500 MB, the limit is 1.2 times that."]),
}


@pytest.mark.parametrize("case", BUDGETS)
def test_budget_has_margins(case):
    """Three times the declared minutes and 1.2 times the declared memory are allowed, not more."""
    seconds, peak_mb, expected = BUDGETS[case]
    assert over_budget({"minutes": 1, "memory_mb": 500}, seconds, peak_mb) == expected


def sanitize(text: str) -> str:
    """Apply the sanitize file as nbval does."""
    for pattern, replacement in dict(get_sanitize_patterns(SANITIZE_FILE.read_text(encoding="utf-8"))).items():
        text = re.sub(pattern, replacement, text)
    return text


def test_sanitize_file_is_read_in_full():
    """nbval understands each pair: it silently drops one whose second line is not 'replace: '."""
    text = SANITIZE_FILE.read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    assert 2 * len(get_sanitize_patterns(text)) == len(lines)


def test_sanitize_file_hides_bytes_of_pictures_and_nothing_else():
    """Bytes of a picture are not compared; its alt text and all other text are."""
    shown = '<img width="800" alt="Two bars." src="data:image/png;base64,iVBORw0KGgo/+aA==">'
    assert sanitize(shown) == '<img width="800" alt="Two bars." src="PNG">'
    for text in ("103 rows of (64, 64, 3) uint8", "0.5 seconds", "<td>12</td>"):
        assert sanitize(text) == text

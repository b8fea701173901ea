"""Notebooks that learners hand in: whose they are, and what their checks say.

A verdict is read from what a check printed (``helpers.course.checks.Result``), so a notebook counts as it was saved, or
as it comes out when it is run again.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from helpers.words import printable

EXERCISES = Path(__file__).parents[2] / "notebooks" / "exercises"
CELL_TIMEOUT_S = 240  # as long as the tests give a cell
_CHECK = re.compile(r"""^\s*check\(\s*["'](\d\d\.\d+)["']""", re.MULTILINE)
_VERDICT = re.compile(
    r"^(?P<number>\d\d\.\d+) · (?P<said>not answered yet|right|not yet|your code raised an error): "
    r"(?P<points>[\d.]+) of (?P<most>\d+) points(?: \((?P<name>.+)\))?",
    re.MULTILINE,
)
_STATUS = {"not answered yet": "blank", "right": "right", "not yet": "wrong", "your code raised an error": "raised"}
_SKIPPED = {".ipynb_checkpoints", ".venv", "source", "release", "feedback"}


@dataclass(frozen=True)
class Verdict:
    """What one check said: ``status`` is "blank", "right", "wrong", "raised", or "not run" where it printed nothing."""

    number: str
    status: str
    points: float = 0.0
    max_points: int = 0
    name: str = ""  # of the mistake


@dataclass(frozen=True)
class Submission:
    """One notebook of one learner; ``problem`` says why there is nothing to read, or is ''."""

    learner: str
    path: Path
    verdicts: tuple[Verdict, ...] = ()
    problem: str = field(default="")


def read_submissions(folder: Path, *, rerun: bool = False) -> Iterator[Submission]:
    """The notebooks with exercises below ``folder``, one by one.

    Parameters
    ----------
    folder : one folder a learner, as nbgrader lays them out (``LEARNER/ASSIGNMENT/NAME.ipynb``), or notebooks called
        ``LEARNER_02_naive_train_on_batch.ipynb`` side by side.
    rerun : run each notebook again first, in a copy, with the graded cells as the kit has them.
    """
    for path in submitted_notebooks(folder):
        learner = learner_of(path, folder)
        try:
            notebook = nbformat.read(path, as_version=4)
        except Exception as error:  # whatever was handed in: not a notebook, not JSON, not text
            yield Submission(learner, path, problem=f"cannot be read as a notebook ({type(error).__name__})")
            continue
        if rerun:
            put_back_graded_cells(notebook, path)
        problem = run_again(notebook, path) if rerun and _has_checks(notebook) else ""
        yield Submission(learner, path, tuple(verdicts(notebook)), problem)


def submitted_notebooks(folder: Path) -> list[Path]:
    """Every notebook below ``folder``, but for checkpoints and what nbgrader keeps for the teacher."""
    found = (path for path in folder.rglob("*.ipynb") if not _SKIPPED & set(path.relative_to(folder).parts[:-1]))
    return sorted(found)


def learner_of(path: Path, folder: Path) -> str:
    """Whose notebook it is: the first folder below ``folder``, or what stands before the exercises' name."""
    parts = path.relative_to(folder).parts
    if parts[0] in {"submitted", "autograded"} and len(parts) > 2:
        parts = parts[1:]
    if len(parts) > 1:
        return printable(parts[0])
    return printable(re.sub(r"[ _-]*\d\d_\w+$", "", path.stem) or path.stem)


def verdicts(notebook: NotebookNode) -> Iterator[Verdict]:
    """What each check of a notebook said, in order; the last verdict counts where a cell holds several."""
    for cell in notebook.cells:
        if cell.cell_type != "code":
            continue
        found = {match["number"]: _verdict(match) for match in _VERDICT.finditer(_printed(cell))}
        for number in dict.fromkeys(_CHECK.findall(cell.source)):
            yield found.get(number, Verdict(number, "not run"))


def run_again(notebook: NotebookNode, path: Path) -> str:
    """Run a notebook in a folder of its own with copies of its files; returns what went wrong, or ''.

    This runs the learner's code with your rights, as any autograder does.
    """
    from jupyter_client.kernelspec import KernelSpecManager
    from jupyter_client.manager import AsyncKernelManager
    from nbclient import NotebookClient
    from nbclient.exceptions import CellTimeoutError, DeadKernelError

    with tempfile.TemporaryDirectory(prefix="submission_") as name:
        here = Path(name, "exercises")  # data goes to ../data, as in the kit
        here.mkdir()
        for extra in path.parent.iterdir():
            if extra.is_file() and extra.suffix != ".ipynb":
                shutil.copy(extra, here)
        client = NotebookClient(
            notebook,
            km=AsyncKernelManager(kernel_spec_manager=KernelSpecManager(kernel_dirs=[])),  # the kernel of this Python
            timeout=CELL_TIMEOUT_S,
            allow_errors=True,
            resources={"metadata": {"path": str(here)}},
        )
        try:
            client.execute(cleanup_kc=True, stderr=subprocess.DEVNULL)  # what a kernel logs is not for the teacher
        except CellTimeoutError:
            return f"a cell took longer than {CELL_TIMEOUT_S} s"
        except DeadKernelError:
            return "a cell killed its kernel"
    return ""


def put_back_graded_cells(notebook: NotebookNode, path: Path) -> None:
    """Give the graded cells the kit's own source, whatever a learner made of them."""
    original = next((one for one in EXERCISES.glob("*.ipynb") if path.stem.endswith(one.stem)), None)
    if original is None:
        return
    graded = {_grade_id(cell): cell.source for cell in nbformat.read(original, as_version=4).cells if _is_graded(cell)}
    for cell in notebook.cells:
        cell.source = graded.get(_grade_id(cell), cell.source)


def _grade_id(cell: NotebookNode) -> str | None:
    return cell.metadata.get("nbgrader", {}).get("grade_id")


def _is_graded(cell: NotebookNode) -> bool:
    return cell.metadata.get("nbgrader", {}).get("grade", False)


def _verdict(match: re.Match) -> Verdict:
    status = _STATUS[match["said"]]
    return Verdict(match["number"], status, float(match["points"]), int(match["most"]), match["name"] or "")


def _printed(cell: NotebookNode) -> str:
    texts: Iterable = (output.get("text", "") for output in cell.get("outputs", []) if output.get("name") == "stdout")
    return "".join(text if isinstance(text, str) else "".join(text) for text in texts)


def _has_checks(notebook: NotebookNode) -> bool:
    return any(_CHECK.search(cell.source) for cell in notebook.cells)

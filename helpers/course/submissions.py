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
    r"(?P<points>\d{1,3}(?:\.\d{1,6})?) of (?P<most>\d{1,3}) points(?: \((?P<name>.+)\))?",
    re.MULTILINE,
)
_STATUS = {"not answered yet": "blank", "right": "right", "not yet": "wrong", "your code raised an error": "raised"}
_COPY = re.compile(r"([ _-]*\(\d+\)|[ _-]*Copy\d*)+$")  # what browsers and JupyterLab add to a second copy
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
            notebook = nbformat.reads(path.read_text(encoding="utf-8-sig"), as_version=4)
            original = _original_of(notebook, path) if rerun else None
            problem = run_again(notebook, path, original) if rerun and (original or _has_checks(notebook)) else ""
            found = tuple(verdicts(notebook, original))
        except Exception as error:  # whatever was handed in: not a notebook, not JSON, not text
            yield Submission(learner, path, problem=f"cannot be read as a notebook ({type(error).__name__})")
            continue
        yield Submission(learner, path, found, problem)


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
    stem = _COPY.sub("", path.stem)
    known = next((one.stem for one in EXERCISES.glob("*.ipynb") if stem.endswith(one.stem)), None)
    name = stem.removesuffix(known) if known else re.sub(r"(?<!\d)\d\d_[a-z]\w*$", "", stem)
    return printable(name.strip(" _-") or stem)


def verdicts(notebook: NotebookNode, original: NotebookNode | None = None) -> Iterator[Verdict]:
    """What each check of a notebook said, in order; with the kit's ``original``, its graded cells alone count."""
    wanted = {} if original is None else _graded_cells(original)
    for cell in notebook.cells:
        if cell.cell_type != "code" or (wanted and _grade_id(cell) not in wanted):
            continue
        found = {match["number"]: _verdict(match) for match in _VERDICT.finditer(_printed(cell))}
        for number in dict.fromkeys(_CHECK.findall(cell.source)):
            yield found.get(number, Verdict(number, "not run"))


def run_again(notebook: NotebookNode, path: Path, original: NotebookNode | None = None) -> str:
    """Run a notebook in a folder of its own with copies of its files; returns what went wrong, or ''.

    Its old outputs are dropped first, and the graded cells get the source that they have in ``original``. This runs the
    learner's code with your rights, as any autograder does.
    """
    from jupyter_client.kernelspec import KernelSpecManager
    from jupyter_client.manager import AsyncKernelManager
    from nbclient import NotebookClient
    from nbclient.exceptions import CellTimeoutError, DeadKernelError

    _restore(notebook, original)
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


def _restore(notebook: NotebookNode, original: NotebookNode | None) -> None:
    """Drop all outputs; give the graded cells the kit's own source, and put back those that were deleted."""
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    if original is None:
        return
    graded = _graded_cells(original)
    for cell in notebook.cells:
        cell.source = graded.pop(_grade_id(cell)).source if _grade_id(cell) in graded else cell.source
    for cell in graded.values():
        blank = {"source": f"answer = None\n{cell.source}", "outputs": [], "execution_count": None}
        notebook.cells.append(nbformat.from_dict(cell | blank))


def _original_of(notebook: NotebookNode, path: Path) -> NotebookNode | None:
    """The kit's exercise notebook that a submission was made from: by its name, or by the graded cells in it."""
    ids = {_grade_id(cell) for cell in notebook.cells} - {None}
    for one in sorted(EXERCISES.glob("*.ipynb")):
        original = nbformat.read(one, as_version=4)
        if one.stem in path.stem or ids & set(_graded_cells(original)):
            return original
    return None


def _graded_cells(notebook: NotebookNode) -> dict[str, NotebookNode]:
    return {_grade_id(cell): cell for cell in notebook.cells if cell.metadata.get("nbgrader", {}).get("grade", False)}


def _grade_id(cell: NotebookNode) -> str | None:
    return cell.metadata.get("nbgrader", {}).get("grade_id")


def _verdict(match: re.Match) -> Verdict:
    status = _STATUS[match["said"]]
    return Verdict(match["number"], status, float(match["points"]), int(match["most"]), match["name"] or "")


def _printed(cell: NotebookNode) -> str:
    texts: Iterable = (output.get("text", "") for output in cell.get("outputs", []) if output.get("name") == "stdout")
    return "".join(text if isinstance(text, str) else "".join(text or []) for text in texts)


def _has_checks(notebook: NotebookNode) -> bool:
    return any(_CHECK.search(cell.source) for cell in notebook.cells)

"""Lay out an nbgrader course with the kit's exercises: one assignment a lesson, ready to be released and graded.

    python -m helpers.course.nbgrader_course FOLDER
    cd FOLDER && nbgrader generate_assignment 02_naive_train_on_batch

What is there already stays as it is. nbgrader itself comes with: pip install -e ".[teach]".
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from helpers.course.copy_exercises import write_new
from helpers.course.submissions import CELL_TIMEOUT_S, EXERCISES

SOLUTIONS = EXERCISES.parent / "solutions"
STUB = "answer = None  # your code"
CONFIG = f'''"""Settings of nbgrader for the exercises: a blank answer is the stub that their checks know."""

c = get_config()  # noqa: F821 - nbgrader provides it

c.CourseDirectory.course_id = "hdf5_keras"
c.ClearSolutions.code_stub = {{"python": "{STUB}"}}
c.Execute.timeout = {CELL_TIMEOUT_S}  # seconds for one cell; nbgrader's own limit of 30 is short for a training
'''


def make_course(folder: Path, *, solutions: Path = SOLUTIONS) -> list[Path]:
    """Write ``nbgrader_config.py`` and ``source/NAME/NAME.ipynb`` for each lesson; returns what was written.

    Raises FileNotFoundError when the kit's solutions are not beside the package.
    """
    notebooks = sorted(solutions.glob("[0-9][0-9]_*.ipynb"))
    if not notebooks:
        raise FileNotFoundError(f"there are no solutions in {solutions}. Run this from a clone of the kit.")
    files = {folder / "nbgrader_config.py": CONFIG.encode()}
    files |= {folder / "source" / path.stem / path.name: path.read_bytes() for path in notebooks}
    written = []
    for path, content in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        if write_new(path, content):
            written.append(path)
    return written


def main(arguments: list[str] | None = None) -> int:
    """Command line; returns the exit code: 0 fine, 2 it cannot be written."""
    parser = argparse.ArgumentParser(
        prog="python -m helpers.course.nbgrader_course",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="of the course; made where it is missing")
    options = parser.parse_args(arguments)
    try:
        written = make_course(options.folder)
    except OSError as error:
        print(error, file=sys.stderr)  # noqa: T201 - a command line program
        return 2
    for path in written:
        print(f"wrote {path.relative_to(options.folder)}")  # noqa: T201 - the same
    print(f"{len(written)} files written; what was there is kept.")  # noqa: T201 - the same
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Copy the exercises into a folder of your own, where git does not look: answers are never overwritten.

    python -m helpers.course.copy_exercises                 all, into notebooks/work/
    python -m helpers.course.copy_exercises 02 03 --to DIR  some, somewhere else

What is there already stays as it is, byte for byte.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from helpers.course.submissions import EXERCISES

WORK = EXERCISES.parent / "work"


def copy_exercises(folder: Path, lessons: list[str] | None = None, *, source: Path = EXERCISES) -> tuple[list, list]:
    """Copy the exercise notebooks of ``lessons`` (all without it) into ``folder``.

    Returns
    -------
    (list of Path, list of Path)
        What was copied, and what was there and was kept.

    Raises
    ------
    ValueError
        A lesson has no exercises.
    FileNotFoundError
        The kit's notebooks are not beside the package: it was installed without its repository.
    """
    notebooks = sorted(source.glob("[0-9][0-9]_*.ipynb"))
    if not notebooks:
        raise FileNotFoundError(f"there are no exercises in {source}. Run this from a clone of the kit.")
    chosen = [path for path in notebooks if not lessons or path.name[:2] in lessons or path.stem in lessons]
    have = {path.name[:2] for path in notebooks} | {path.stem for path in notebooks}
    if unknown := [name for name in lessons or [] if name not in have]:
        numbers = ", ".join(path.name[:2] for path in notebooks)
        raise ValueError(f"there are no exercises {', '.join(unknown)}. There are: {numbers}.")
    folder.mkdir(parents=True, exist_ok=True)
    copied, kept = [], []
    for path in chosen:
        target = folder / path.name
        (copied if write_new(target, path.read_bytes()) else kept).append(target)
    return copied, kept


def write_new(target: Path, content: bytes) -> bool:
    """Write a file that does not exist yet, whole or not at all; False where there is one, or a link."""
    if os.path.lexists(target):
        return False
    part = target.with_name(f"{target.name}.part")
    try:
        part.write_bytes(content)
        part.rename(target)
    finally:
        part.unlink(missing_ok=True)
    return True


def main(arguments: list[str] | None = None) -> int:
    """Command line; returns the exit code: 0 fine, 2 no such exercises."""
    options = _parser().parse_args(arguments)
    try:
        copied, kept = copy_exercises(options.to, options.lessons)
    except (ValueError, OSError) as error:
        print(error, file=sys.stderr)  # noqa: T201 - a command line program
        return 2
    for path in copied:
        print(f"copied {path.name}")  # noqa: T201 - the same
    for path in kept:
        print(f"kept   {path.name}: it is there already")  # noqa: T201 - the same
    print(f"Your exercises lie in {options.to}. In JupyterLab: File, Open from Path.")  # noqa: T201 - the same
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m helpers.course.copy_exercises",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("lessons", nargs="*", metavar="NN", help="numbers of lessons; all without")
    parser.add_argument("--to", type=Path, default=WORK, metavar="DIR", help=f"folder (default {WORK.name}/ beside it)")
    return parser


if __name__ == "__main__":
    sys.exit(main())

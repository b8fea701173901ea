"""What all parts of the run share: progress bars, and the error for what is not here."""

from __future__ import annotations

import os
import sys

from tqdm import tqdm

BAR_FD = "SCALE_BAR_FD"  # in the environment: where a terminal for progress bars is, when stderr is a log


class CannotRunError(RuntimeError):
    """Something that this benchmark needs is not here."""


def progress_bar(what: str, total: int, unit: str = "img") -> tqdm:
    """A bar on the terminal, where there is one."""
    file = open(int(os.environ[BAR_FD]), "w", closefd=False) if BAR_FD in os.environ else sys.stderr  # noqa: PTH123, SIM115
    return tqdm(total=total, desc=what, unit=unit, unit_scale=True, disable=None, file=file)

"""Strict nbval: its comparison of stored outputs, with the gaps closed through which a broken lesson would pass.

nbval 0.11 lets a never executed cell pass, waits for a killed kernel until the cell's time is up, starts
kernels in which ipykernel does not capture what C code prints, and has no budgets of time and memory.
"""

from __future__ import annotations

import subprocess
import tempfile
import time
from pathlib import Path
from queue import Empty

import pytest
from lesson_run import CELL_TIMEOUT_S, kernel_environment, new_kernel_manager, peak_memory_mb
from nbval.kernel import RunningKernel
from nbval.plugin import IPyNbCell, IPyNbFile, NbCellError, get_sanitize_patterns

SANITIZE_FILE = Path(__file__).parent / "notebooks" / "sanitize.cfg"
TIME_FACTOR, MEMORY_FACTOR = 3.0, 1.2
POLL_S = 1.0
OUTPUT_TIMEOUT_S = 30  # nbval waits 5 s for the outputs of a finished cell; a busy machine may take longer


def pytest_collect_file(file_path: Path, parent):
    """Collect each notebook as a LessonFile."""
    return LessonFile.from_parent(parent, path=file_path) if file_path.suffix == ".ipynb" else None


class LessonKernel(RunningKernel):
    """A kernel with a learner's environment, whose death is seen within a second."""

    def __init__(self, folder: Path):
        self._ipython_folder = tempfile.TemporaryDirectory()
        self.km = new_kernel_manager()
        environment = kernel_environment(self._ipython_folder.name)
        self.km.start_kernel(cwd=str(folder), env=environment, stderr=subprocess.DEVNULL)
        self.pid = self.km.provisioner.pid
        self.kc = self.km.client()
        self.kc.start_channels()
        self.kc.wait_for_ready(timeout=60)
        self._ensure_iopub_up()

    def get_message(self, stream: str, timeout: float | None = None):
        """The next message of a channel. Raises Empty after ``timeout``, NbCellError when the kernel died."""
        deadline = time.monotonic() + (CELL_TIMEOUT_S if timeout is None else timeout)
        while True:
            try:
                return super().get_message(stream, timeout=max(0.0, min(POLL_S, deadline - time.monotonic())))
            except Empty:
                if not self.is_alive():
                    raise NbCellError(-1, "this cell killed its kernel. Run dangerous code in a child.", "") from None
                if time.monotonic() >= deadline:
                    raise

    def stop(self):
        """End the kernel and wait for it; twice is fine."""
        if hasattr(self, "km"):
            self.kc.stop_channels()
            self.km.shutdown_kernel(now=True)
            self.km.cleanup_resources()
            del self.km
        self._ipython_folder.cleanup()


class LessonFile(IPyNbFile):
    """A notebook: its code cells, then its budget."""

    seconds = 0.0

    def setup(self):
        """Start the kernel in the notebook's folder, and read the sanitize file."""
        self.kernel = LessonKernel(self.path.parent)
        self.sanitize_patterns.update(get_sanitize_patterns(SANITIZE_FILE.read_text(encoding="utf-8")))

    def collect(self):
        """One item a code cell, and one for the budget."""
        for item in super().collect():
            yield LessonCell.from_parent(
                self, name=item.name, cell_num=item.cell_num, cell=item.cell, options=item.options
            )
        yield Budget.from_parent(self, name="time and memory")

    def teardown(self):
        """Stop the kernel, dead or alive."""
        if self.kernel is not None:
            self.kernel.stop()


class LessonCell(IPyNbCell):
    """One code cell: executed, and its outputs compared."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.output_timeout = OUTPUT_TIMEOUT_S

    def runtest(self):
        """Run and compare, on the notebook's clock."""
        if self.cell.execution_count is None:
            self.raise_cell_error("this cell was never executed. Build the notebook: python notebooks/_src/build.py.")
        started = time.perf_counter()
        try:
            super().runtest()
        finally:
            self.parent.seconds += time.perf_counter() - started


class Budget(pytest.Item):
    """The minutes and megabytes that a lesson declares, against what it just took."""

    def runtest(self):
        """Fail when time or memory are far above what the opening cell says."""
        declared = self.parent.nb.metadata.get("lesson", {})
        if "minutes" not in declared:
            raise BudgetError("this notebook declares no minutes and memory. Build it: python notebooks/_src/build.py.")
        if not self.parent.kernel.is_alive():
            raise BudgetError("the kernel is gone, so its memory cannot be read.")
        over = over_budget(declared, self.parent.seconds, peak_memory_mb(self.parent.kernel.pid))
        if over:
            raise BudgetError(" ".join(over))

    def repr_failure(self, excinfo, style=None):
        """The sentence alone."""
        return str(excinfo.value) if isinstance(excinfo.value, BudgetError) else super().repr_failure(excinfo, style)

    def reportinfo(self):
        """Where the failure stands in the report."""
        return self.path, 0, f"{self.path.name}: time and memory"


class BudgetError(Exception):
    """A lesson took more than it declares."""


def over_budget(declared: dict, seconds: float, peak_mb: float) -> list[str]:
    """Sentences on what was exceeded: 3 times the minutes, 1.2 times the memory."""
    minutes, memory_mb = declared["minutes"], declared["memory_mb"]
    over = []
    if seconds > TIME_FACTOR * 60 * minutes:
        over.append(f"the lesson took {seconds:.0f} s; it declares {minutes} min, the limit is 3 times that.")
    if peak_mb > MEMORY_FACTOR * memory_mb:
        over.append(f"the kernel took {peak_mb:.0f} MB; it declares {memory_mb} MB, the limit is 1.2 times that.")
    return over

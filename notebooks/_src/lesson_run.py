"""Executes a notebook in a kernel of this Python, as the build and the tests both do, and measures it."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from jupyter_client.manager import AsyncKernelManager, KernelManager
from lesson_source import BuildError
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from nbformat import NotebookNode
from nbval.kernel import CURRENT_ENV_KERNEL_NAME, NbvalKernelspecManager

CELL_TIMEOUT_S = 240  # the longest training cell takes about 20 s; below pytest's own limit for a test
DEAD_PROXY = "http://127.0.0.1:9"  # nothing listens there: a lesson that asks the network fails at once

# What a test run or a shell may set, and a learner's JupyterLab does not: outputs must not depend on it.
# With PYTEST_CURRENT_TEST ipykernel (7.4) does not capture what C code and children write to the descriptors 1 and 2.
_NOT_INHERITED = re.compile(r"PYTEST_.*|COV_.*|MPLBACKEND|TF_.*|KERAS_.*|PYTHONHASHSEED|PYTHONWARNINGS|OMP_NUM_THREADS")


def kernel_environment(ipython_folder: str) -> dict[str, str]:
    """Environment of a lesson's kernel: no settings of a test run, no network, no start-up files of this user."""
    inherited = {name: value for name, value in os.environ.items() if not _NOT_INHERITED.fullmatch(name)}
    proxies = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), DEAD_PROXY)
    return inherited | proxies | {"no_proxy": "localhost,127.0.0.1", "IPYTHONDIR": ipython_folder}


def new_kernel_manager(kind: type[KernelManager] = KernelManager) -> KernelManager:
    """Manager of a kernel that runs the Python of this process, whatever kernels are installed."""
    return kind(kernel_name=CURRENT_ENV_KERNEL_NAME, kernel_spec_manager=NbvalKernelspecManager())


def peak_memory_mb(pid: int) -> float:
    """Largest resident memory of a process until now, in MB (10**6 bytes): the kernel's VmHWM. Needs Linux."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", status).group(1)) * 1024 / 1e6


@dataclass(frozen=True)
class Run:
    """What the execution of one notebook took."""

    seconds: float
    peak_mb: float


def execute(notebook: NotebookNode, folder: Path, name: str, cell_timeout_s: float = CELL_TIMEOUT_S) -> Run:
    """Run all cells of ``notebook`` in ``folder`` and fill in their outputs.

    Raises
    ------
    BuildError
        A cell raised, took longer than ``cell_timeout_s``, or killed the kernel: names the cell, shows the error.
    """
    with tempfile.TemporaryDirectory() as ipython_folder:
        client = NotebookClient(
            notebook,
            km=new_kernel_manager(AsyncKernelManager),  # with a blocking one nbclient never sees that the kernel died
            timeout=cell_timeout_s,
            record_timing=False,
            store_widget_state=False,
            coalesce_streams=True,
            force_raise_errors=True,
            resources={"metadata": {"path": str(folder)}},
        )
        environment = kernel_environment(ipython_folder)
        # nbclient leaves a kernel of a given manager alive, unless it is told to clean up.
        with client.setup_kernel(cleanup_kc=True, env=environment, stderr=subprocess.DEVNULL):
            started = time.perf_counter()
            for number, cell in enumerate(notebook.cells):
                _execute_cell(client, cell, number, name)
            return Run(time.perf_counter() - started, peak_memory_mb(client.km.provisioner.pid))


def _execute_cell(client: NotebookClient, cell: NotebookNode, number: int, name: str) -> None:
    try:
        client.execute_cell(cell, number)
    except CellExecutionError as error:
        raise BuildError(_failure(name, number, cell, "raised an error", error.traceback)) from None
    except CellTimeoutError:
        what = f"took longer than {client.timeout:g} s"
        raise BuildError(_failure(name, number, cell, what, "Make it do less, or fix what it waits for.")) from None
    except DeadKernelError:
        advice = "Dangerous code belongs into a child: helpers.course.failures."
        raise BuildError(_failure(name, number, cell, "killed its kernel", advice)) from None


def _failure(name: str, number: int, cell: NotebookNode, what: str, details: str) -> str:
    return f"{name}, cell {number} {what}.\n--- the cell ---\n{cell.source}\n--- what happened ---\n{details}"

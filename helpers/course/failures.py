"""Failure labs behind glass: run code that fails in a child with limits, and say what happened; the kernel lives on.

The child is a fresh Python in a process group of its own. It gets an address-space limit (Linux), a time limit after
which the whole group is killed, and no core dumps; when the kernel dies, Linux kills the group too. What is known about
its error comes from ``helpers.known_errors``, the table behind ``python -m helpers.doctor --error``.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import re
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import cloudpickle
import psutil

from helpers.course.child import FUNCTION, REPORT, RESULT, SNIPPET, peak_memory_mb
from helpers.error_search import explain
from helpers.known_errors import KnownError

_POLL_S = 0.02  # also how often the peak memory of a child that gets killed is looked at
_TRACKER_GRACE_S = 2.0  # it needs a few milliseconds, and Python to start when its processes were killed early
_START_S = 120  # for what comes before the clock of a lab starts: imports of Keras on a busy machine
_ERROR_LINE = re.compile(r"^(?:\w+\.)*\w*(?:Error|Exception|Interrupt|StopIteration)(?::.*)?$", re.MULTILINE)
_OUTPUT = "output"  # name of the file that catches what the child and its children print
_CRASHES = {"SIGSEGV": " (a crash in C code)", "SIGABRT": " (C code gave up)", "SIGBUS": " (a crash in C code)"}


@dataclass(frozen=True)
class Outcome:
    """How a child ended. ``str()`` holds nothing that differs from run to run; times and memory are attributes."""

    exit_code: int | None  # as subprocess: 0 fine, -9 killed by signal 9; None: not run
    signal: str | None  # "SIGKILL"
    last_error_line: str  # "TypeError: h5py objects cannot be pickled", or ""
    peak_mb: float  # peak resident memory of the child, without its own children
    seconds: float
    output: str = field(repr=False)  # stdout and stderr together, cleaned of paths, process ids and addresses
    timed_out: bool = False
    result: object = field(default=None, repr=False)  # what the function returned; None when it did not get so far

    @property
    def ok(self) -> bool:
        """True when the child ended by itself with exit code 0."""
        return self.exit_code == 0

    @property
    def diagnosis(self) -> KnownError | None:
        """What the kit knows about the last error line, or a crash; None when it is not in the table.

        Its ``str()`` is the diagnosis card: what happened, why, where to look, the fix, and the section that shows it.
        """
        if self.last_error_line:
            return explain(self.last_error_line)
        return explain("Segmentation fault") if self.signal in {"SIGSEGV", "SIGBUS"} else None

    def __str__(self) -> str:
        lines = [self._ending()]
        if self.last_error_line:
            lines.append(f"Last error line: {self.last_error_line}")  # in one piece, for those who search for it
        if self.diagnosis:
            lines.append(str(self.diagnosis))
        return "\n".join(lines)

    __repr__ = __str__

    def _ending(self) -> str:
        if self.exit_code is None:
            return self.output
        if self.timed_out:
            return "The child did not end within its time limit and was stopped."
        if self.signal:
            return f"The child was killed by {self.signal}{_CRASHES.get(self.signal, '')}."
        if self.exit_code:
            return f"The child stopped with exit code {self.exit_code}."
        return "The child ended normally."


def free_address() -> str:
    """ "127.0.0.1:PORT" with a port that nobody on this machine listens to now: where processes of a lab can meet."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


def run_in_child(
    job: str | Callable,
    *,
    memory_mb: int | None = None,
    seconds: float = 30,
    args: tuple = (),
    clock_starts_at: str | None = None,
    needs: str | None = None,
) -> Outcome:
    """Run ``job`` in a fresh Python and report how it ended; never raises for what the job does.

    Parameters
    ----------
    job : a snippet of Python, run as a script would be, or a function, also one defined in a notebook cell: it finds
        the ``__main__`` of a notebook, a module without a file. What it returns is ``outcome.result``.
    memory_mb : limit of the child's address space (all memory it may ask for, not only what it uses). Linux only.
    seconds : limit after which the child and all processes it started are killed.
    args : arguments of a function; a snippet finds them, as text, in ``sys.argv[1:]``.
    clock_starts_at : text in the child's output from which on ``seconds`` count; imports take long on a busy machine.
    needs : what the lab takes from Linux ("fork"); elsewhere it is not run, and the outcome says so in one line.

    Raises
    ------
    ValueError
        ``seconds`` or ``memory_mb`` is 0 or less.
    """
    if seconds <= 0 or (memory_mb is not None and memory_mb <= 0):
        raise ValueError(f"limits must be above 0; got seconds={seconds}, memory_mb={memory_mb}.")
    needs = needs or ("a memory limit for one process" if memory_mb is not None else None)
    if needs is not None and sys.platform != "linux":
        return Outcome(None, None, "", 0.0, 0.0, f"This lab needs Linux: {needs}.")
    with tempfile.TemporaryDirectory(prefix="lab_") as name:
        folder = Path(name)
        _write_job(folder, job, args)
        child = _start(folder, memory_mb, () if callable(job) else args)
        code, peak_mb, duration, timed_out = _watch(child, folder, seconds, clock_starts_at)
        return _outcome(folder, code, peak_mb, duration, timed_out)


def _write_job(folder: Path, job: str | Callable, args: tuple) -> None:
    if callable(job):
        (folder / FUNCTION).write_bytes(cloudpickle.dumps((job, args)))
    else:
        (folder / SNIPPET).write_text(textwrap.dedent(job).lstrip("\n"), encoding="utf-8")


def _start(folder: Path, memory_mb: int | None, args: tuple) -> subprocess.Popen:
    command = [sys.executable, "-m", "helpers.course.child", str(folder), str(int(memory_mb or 0)), *map(str, args)]
    with (folder / _OUTPUT).open("wb") as output:
        return subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=output, stderr=output, env=_environment(), start_new_session=True
        )


def _watch(child: subprocess.Popen, folder: Path, seconds, clock_starts_at) -> tuple[int, float, float, bool]:
    """Wait for the end; exit code, peak MB, seconds from the start, whether the time limit ended it."""
    start, peak_mb, timed_out = time.perf_counter(), 0.0, False
    limit, waiting = (seconds, False) if clock_starts_at is None else (_START_S, True)
    try:
        while not _has_ended(child):
            peak_mb = max(peak_mb, peak_memory_mb(child.pid))
            now = time.perf_counter() - start
            if waiting and clock_starts_at.encode() in (folder / _OUTPUT).read_bytes():
                limit, waiting = now + seconds, False
            if now > limit:
                timed_out = True
                break
            time.sleep(_POLL_S)
    finally:
        _kill_group(child)
        child.stdin.close()
    return child.wait(), peak_mb, time.perf_counter() - start, timed_out


def _environment() -> dict[str, str]:
    fixed = {
        "OMP_NUM_THREADS": "1",  # each BLAS thread reserves address space: the limit would depend on the machine
        "OPENBLAS_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),  # a function's module is found as it was here
        "PYTHON_COLORS": "0",  # the kernel asks for colours, which Python 3.13 then writes into tracebacks
        "PYTHONWARNINGS": "ignore::UserWarning:multiprocessing.resource_tracker",  # it says what the killed left
        "PYTHONUNBUFFERED": "1",  # what was printed before a SIGKILL is kept
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }
    return {**os.environ, **fixed}


def _has_ended(child: subprocess.Popen) -> bool:
    """Whether the child has ended, without collecting it: its process id, and so its group, stays ours until we do."""
    if not hasattr(os, "waitid"):
        return child.poll() is not None
    return os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _kill_group(child: subprocess.Popen) -> None:
    if hasattr(os, "killpg"):
        _let_tracker_clean_up(child.pid)
        with contextlib.suppress(ProcessLookupError, PermissionError):  # macOS: no right to signal a group of zombies
            os.killpg(child.pid, signal.SIGKILL)
        return
    with contextlib.suppress(psutil.NoSuchProcess):
        for process in psutil.Process(child.pid).children(recursive=True):
            process.kill()
    child.kill()


def _let_tracker_clean_up(group: int) -> None:
    """Kill all of a process group but multiprocessing's resource tracker, and give that a moment.

    It removes the named semaphores of the killed when the last of them is gone; killed with them, it would leave
    these in /dev/shm for ever.
    """
    members = [process for process in psutil.process_iter() if _group_of(process) == group]
    trackers = [process for process in members if _is_tracker(process)]
    if not trackers:
        return
    for process in set(members) - set(trackers):
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(trackers, timeout=_TRACKER_GRACE_S)


def _group_of(process: psutil.Process) -> int | None:
    with contextlib.suppress(OSError):
        return os.getpgid(process.pid)
    return None


def _is_tracker(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return any("multiprocessing.resource_tracker" in word for word in process.cmdline())
    return False


def _outcome(folder: Path, code: int, peak_mb: float, duration: float, timed_out: bool) -> Outcome:
    report, result = {}, None
    with contextlib.suppress(OSError, ValueError):  # a killed child leaves none, or half of one
        report = json.loads((folder / REPORT).read_text(encoding="utf-8"))
    with contextlib.suppress(OSError):
        result = pickle.loads((folder / RESULT).read_bytes()) if code == 0 else None
    output = clean((folder / _OUTPUT).read_text(encoding="utf-8", errors="replace"), folder)
    lines = _ERROR_LINE.findall(output)
    return Outcome(
        exit_code=code,
        signal=signal.Signals(-code).name if code < 0 else None,
        last_error_line=clean(report.get("error_line") or _last_line(lines), folder),
        peak_mb=round(max(peak_mb, report.get("peak_mb", 0.0)), 1),
        seconds=round(duration, 3),
        output=output,
        timed_out=timed_out,
        result=result,
    )


def _last_line(lines: list[str]) -> str:
    """The last one; where workers die in turn, the one that most of them wrote: two at a time write into each other."""
    return max(enumerate(lines), key=lambda item: (lines.count(item[1]), item[0]), default=(0, ""))[1]


def clean(text: str, folder: Path) -> str:
    """Replace what differs between runs, machines and Pythons: folders, process ids, addresses, clock times."""
    for path in {str(folder), os.path.realpath(folder)}:
        text = text.replace(path + os.sep, "").replace(path, "lab")
    text = re.sub(r"[^\s\"']*site-packages/", "", text)
    text = re.sub(re.escape(str(Path(os.__file__).parent)) + r"/", "", text)
    text = text.replace(str(Path.cwd()) + os.sep, "").replace(str(Path.home()) + os.sep, "~/")
    text = re.sub(r"\b0x[0-9a-f]{6,}\b", "0x...", text)
    text = re.sub(r"<module '__main__' \(.*?\)>", "<module '__main__' (built-in)>", text)  # worded anew in Python 3.12
    text = re.sub(r"(\bpid|\bPID|\bprocess id|\(process|PoolWorker-|Process-)([ =:]*)\d+", r"\1\2N", text)
    return re.sub(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d+)?", "TIME", text)

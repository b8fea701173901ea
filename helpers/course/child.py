"""The child's side of ``failures.run_in_child``: set the limits, run the job, report. Standard library only.

Run as ``python -m helpers.course.child FOLDER MEMORY_MB [ARGS]``: FOLDER holds ``snippet.py`` or ``function.pkl`` and
gets ``report.json``, and ``result.pkl`` with what the function returned; MEMORY_MB 0 means no limit.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import runpy
import sys
import traceback
import types
from collections.abc import Callable
from pathlib import Path

REPORT, RESULT, SNIPPET, FUNCTION = "report.json", "result.pkl", "snippet.py", "function.pkl"


def peak_memory_mb(pid: int | str = "self") -> float:
    """Peak resident memory of a process in MB so far, or 0 where /proc does not tell."""
    with contextlib.suppress(OSError), Path(f"/proc/{pid}/status").open(encoding="ascii", errors="replace") as lines:
        for line in lines:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024 / 1e6  # VmHWM is in KiB
    return 0.0


def main(folder: Path, memory_mb: int, args: list[str]) -> int:
    """Run the job in ``folder``; the return value is the exit code."""
    sys.argv = [SNIPPET, *args]
    _die_with_parent()
    _limit(memory_mb)
    report = {"error_line": ""}
    try:
        _run(folder)
    except SystemExit:
        raise
    except BaseException as error:
        frames = 2 if (folder / FUNCTION).exists() else 5  # this module's and runpy's own
        text = "".join(traceback.format_exception(error.with_traceback(_skip(error.__traceback__, frames))))
        lines = "".join(traceback.format_exception_only(error)).splitlines()
        report["error_line"] = next(
            line for line in lines if not line.startswith(" ")
        )  # a SyntaxError starts with File
        sys.stderr.write(text)
        return 1
    finally:
        report["peak_mb"] = peak_memory_mb()
        (folder / REPORT).write_text(json.dumps(report), encoding="utf-8")
    return 0


def _run(folder: Path) -> None:
    if (folder / FUNCTION).exists():
        function, args = pickle.loads((folder / FUNCTION).read_bytes())
        _stand_in_for_the_notebook(function)
        result = function(*args)
        (folder / RESULT).write_bytes(pickle.dumps(result))
    else:
        runpy.run_path(str(folder / SNIPPET), run_name="__main__")


def _stand_in_for_the_notebook(function: Callable) -> None:
    """Give a function of a cell the ``__main__`` it had: a module without a file that holds the names of the cells.

    Processes that the function spawns then find what those of a notebook find, which is nothing.
    """
    if getattr(function, "__module__", None) == "__main__" and hasattr(function, "__globals__"):
        notebook = types.ModuleType("__main__")
        vars(notebook).update({name: value for name, value in function.__globals__.items() if name != "__file__"})
        sys.modules["__main__"] = notebook


def _skip(trace, frames: int):
    for _ in range(frames):
        trace = trace.tb_next if trace is not None and trace.tb_next is not None else trace
    return trace


def _limit(memory_mb: int) -> None:
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource  # not on Windows

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a crash of a lesson leaves no core file
        if memory_mb:
            resource.setrlimit(resource.RLIMIT_AS, (memory_mb * 2**20,) * 2)


def _die_with_parent() -> None:
    """Ask Linux to kill this process group when the parent's end of our stdin closes, which it does at its death.

    A signal of the pipe needs no thread, so a snippet that forks still starts from a process with one thread.
    """
    pipe = os.dup(0)
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    if sys.platform == "linux":
        import fcntl  # not on Windows
        import signal

        fcntl.fcntl(pipe, fcntl.F_SETOWN, -os.getpgrp())
        fcntl.fcntl(pipe, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(pipe, fcntl.F_SETFL, fcntl.fcntl(pipe, fcntl.F_GETFL) | os.O_ASYNC)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]))

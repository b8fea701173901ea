"""The build and the passes, each a process of its own whose memory is watched from here."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

import psutil

from .memory import Peak, family
from .report import BAR_FD

LOOK_EVERY_S, LOOK_SHARE = 0.05, 0.05  # memory is looked at every 50 ms; less often when that takes 5 % of a core
PATIENCE_S = 10.0  # for a process that was asked to stop
_TENSORFLOW_STARTS = re.compile("[IW]0000 |WARNING: All log messages before absl")  # printed whatever its log level


class PartFailedError(RuntimeError):
    """The build or a pass ended with an error, which it has printed."""


def run_part(name: str, *arguments) -> dict:
    """Run a module of this package; what it reports, and the peak of its memory.

    Raises
    ------
    PartFailedError
        It ended with another status than 0.
    """
    command = [sys.executable, "-m", f"{__package__}.{name}", *map(str, arguments)]
    with tempfile.TemporaryFile("w+") as log, start(command, log) as part:
        try:
            peak = watch_memory(part)
            output = part.stdout.read()
        finally:
            stop(part)
            log.seek(0)
            sys.stderr.writelines(line for line in log if not _TENSORFLOW_STARTS.match(line))
    if part.returncode:
        shown = " ".join([name, *map(str, arguments[1:])])  # without the path
        raise PartFailedError(f"{shown} ended with status {part.returncode}; see above.")
    return {**json.loads(output.splitlines()[-1]), **peak.as_dict()}


def start(command: list[str], log) -> subprocess.Popen:
    """Start a part: its report comes by a pipe, all else that it says goes to ``log``, bars to the terminal.

    In a session of its own: a Ctrl-C in the terminal comes here alone, and the part is then stopped in order.
    """
    bars = os.dup(sys.stderr.fileno())
    environment = {**os.environ, BAR_FD: str(bars), "PYTHONPATH": os.pathsep.join(sys.path)}
    try:
        return subprocess.Popen(
            command, env=environment, pass_fds=[bars], start_new_session=True,
            stdout=subprocess.PIPE, stderr=log, text=True,
        )  # fmt: skip
    finally:
        os.close(bars)


def watch_memory(part: subprocess.Popen) -> Peak:
    """The peak of a process and its children, watched until it ends."""
    peak = Peak()
    while part.poll() is None:
        before = time.process_time()
        peak.look(part.pid)
        cost = time.process_time() - before
        with contextlib.suppress(subprocess.TimeoutExpired):
            part.wait(max(LOOK_EVERY_S, cost / LOOK_SHARE))
    return peak


def stop(part: subprocess.Popen) -> None:
    """End a part that is still running, as Ctrl-C does; kill it and its workers when they do not end."""
    if part.poll() is not None:
        return
    processes = family(part.pid)
    part.send_signal(signal.SIGINT)
    with contextlib.suppress(subprocess.TimeoutExpired):
        part.wait(PATIENCE_S)
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):  # the usual case
            process.kill()

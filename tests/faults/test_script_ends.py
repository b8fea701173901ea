"""However a script ends, with a pool that nobody closed: promptly, with its own exit code, leaving nothing."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import psutil
import pytest
from leaks import LeakWatch
from remote import ERROR_LIMIT_S, lives, still_there

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux: signals, /proc")

SCRIPT = """
import os, sys, threading, time
from helpers.batches import BatchSource
from helpers.workers import WorkerPool
def sticks(image, rng):
    if STUCK and os.getpid() != HOME or threading.current_thread() is not threading.main_thread() and STUCK:
        time.sleep(3600)
    return image
file, kind, STUCK, ending = sys.argv[1], sys.argv[2], sys.argv[3] == "stuck", sys.argv[4]
HOME = os.getpid()
source = BatchSource(file, "train", 8, augment=sticks)
pool = WorkerPool(source.item, 2, processes=kind == "processes", answer_bytes=source.batch_bytes)
pool.prepare(0) if STUCK else pool.get(0)
time.sleep(1.0 if STUCK else 0.1)
if ending == "forked" and os.fork() == 0:
    time.sleep(9)
    os._exit(0)
print("ready", flush=True)
if ending == "exit":
    sys.exit(3)
if ending == "error":
    raise LookupError("in the main thread")
if ending in ("killed", "forked"):
    time.sleep(60)
"""
ENDINGS = [("exit", 3), ("error", 1), ("end", 0), ("killed", -signal.SIGKILL), ("forked", -signal.SIGKILL)]


def children_of(pid: int) -> list[psutil.Process]:
    """The children that live; none when the process has ended."""
    try:
        return [child for child in psutil.Process(pid).children() if lives(child)]
    except psutil.NoSuchProcess:
        return []


@pytest.mark.parametrize("state", ["idle", "stuck"])
@pytest.mark.parametrize("kind", ["threads", "processes"])
def test_a_script_ends_promptly_and_leaves_nothing(coded_file, tmp_path, kind, state):
    """sys.exit, an exception, the last line, SIGKILL, and SIGKILL while a forked child holds copies of all pipes."""
    watch = LeakWatch()
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    running = []
    for ending, expected in ENDINGS:
        command = [sys.executable, path, coded_file, kind, state, ending]
        output = (tmp_path / f"{ending}.txt").open("w+")
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=output, text=True)
        running.append((ending, expected, process, output))
    try:
        for ending, expected, process, output in running:
            assert process.stdout.readline() == "ready\n", output.seek(0) or output.read()
            asked = time.monotonic()
            family = [child for child in children_of(process.pid) if str(path) not in child.cmdline()]
            if ending in {"killed", "forked"}:
                process.kill()
            assert process.wait(30) == expected, ending
            assert time.monotonic() - asked < ERROR_LIMIT_S, ending
            assert still_there(family, ERROR_LIMIT_S) == [], ending
            output.seek(0)
            last = output.read().splitlines()[-1:]
            assert last == (["LookupError: in the main thread"] if ending == "error" else []), ending
    finally:
        for _, _, process, output in running:
            process.kill()
            process.wait()
            process.stdout.close()
            output.close()
    assert watch.left_behind(10) == []

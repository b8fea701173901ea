"""Time limits of tests: one with a longer limit of its own may take it, one that is stuck in C code ends the run."""

import subprocess
import sys
from pathlib import Path

import time_limits

TESTS = '''
import ctypes
import pytest
from time_limits import *  # a conftest of its own

def sleep_in_c(seconds):
    ctypes.PyDLL(None).usleep(int(seconds * 1e6))  # keeps Python's lock: no signal is heard

@pytest.mark.timeout({limit})
def test_sleeps():
    """Longer than all others."""
    sleep_in_c({sleeps})
'''


def run(folder: Path, limit: float, sleeps: float) -> subprocess.CompletedProcess:
    """pytest with a faulthandler limit of 0.5 s for all tests, on one that sleeps in C code."""
    (folder / "conftest.py").write_text("from time_limits import *")
    (folder / "test_sleeps.py").write_text(TESTS.format(limit=limit, sleeps=sleeps))
    settings = (
        "faulthandler_timeout=0.5",
        "faulthandler_exit_on_timeout=true",
        f"pythonpath={Path(__file__).parents[1]}",
    )
    options = [option for setting in settings for option in ("-o", setting)]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, str(folder)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=folder)


def test_a_test_may_take_the_time_that_it_declares(tmp_path):
    """Longer than the limit of all others, and the run goes on."""
    done = run(tmp_path, limit=20, sleeps=1.5)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_test_stuck_in_c_code_ends_the_run_with_its_stack(tmp_path):
    """Its own limit and the grace are over: the stack is printed, and the run ends."""
    limit = 1 - time_limits.GRACE_S
    done = run(tmp_path, limit=limit, sleeps=20)
    assert done.returncode == 1
    assert done.stderr.startswith("Timeout (0:00:01)!\n")
    assert "in sleep_in_c\n" in done.stderr

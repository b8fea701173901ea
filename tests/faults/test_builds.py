"""Builds killed at random moments or out of room: no bad file, equal when resumed; three here, a hundred nightly."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux: SIGKILL, limits, /proc")
BUILDS = Path(__file__).with_name("builds.py")


@pytest.mark.parametrize(
    "count", [3, pytest.param(100, marks=[pytest.mark.nightly, pytest.mark.timeout(3600)])], ids=["short", "full"]
)
def test_builds_stopped_at_random_moments(count):
    """Each kind of stop and each storage, or a hundred builds: the program finds nothing wrong."""
    done = subprocess.run(
        [sys.executable, BUILDS, f"--builds={count}", "--seed=1"],
        capture_output=True,
        text=True,
        timeout=30 * count + 100,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{count} builds, 0 bad; " in done.stdout.splitlines()[-1]

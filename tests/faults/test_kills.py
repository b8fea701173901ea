"""Kills at random moments: no hang, no wrong batch, nothing left; short here, a hundred in the nightly run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux: signals, /proc")
KILLS = Path(__file__).with_name("kills.py")


@pytest.mark.parametrize(
    "count", [3, pytest.param(100, marks=[pytest.mark.nightly, pytest.mark.timeout(1800)])], ids=["short", "full"]
)
def test_kills_at_random_moments(tmp_path, count):
    """Six kills, one of each kind, or a hundred: the program finds nothing wrong."""
    done = subprocess.run(
        [sys.executable, KILLS, f"--kills={count}", "--seed=1", f"--json={tmp_path / 'kills.json'}"],
        capture_output=True,
        text=True,
        timeout=20 * count + 120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1].startswith("training afterwards is healthy: True")

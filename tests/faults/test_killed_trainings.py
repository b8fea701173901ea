"""A training that is killed by SIGKILL and started again ends as one that was never killed, to the bit."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from backed_up import STEPS

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux: SIGKILL")
PROGRAM = Path(__file__).parents[1] / "backed_up.py"


def train(file, folder, result, kill_after: int = 0, backend: str = "tensorflow") -> int:
    """The exit code of a training in a process of its own."""
    command = [sys.executable, PROGRAM, file, folder, result, str(kill_after)]
    done = subprocess.run(
        command, env={**os.environ, "KERAS_BACKEND": backend}, capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode in {0, -signal.SIGKILL}, done.stderr
    return done.returncode


def assert_same_end(one: Path, other: Path) -> None:
    """Weights, optimizer, random layers and the loss of each epoch that both trained."""
    with np.load(one) as first, np.load(other) as second:
        names = set(first.files) - {"losses"}
        assert names == set(second.files) - {"losses"}
        assert [name for name in sorted(names) if not np.array_equal(first[name], second[name])] == []
        assert second["losses"].tolist() == first["losses"][-len(second["losses"]) :].tolist()


def test_a_training_killed_in_mid_epoch_goes_on(coded_file, tmp_path):
    """In the second epoch, three steps after a save; workers and their memory go with it."""
    assert train(coded_file, tmp_path / "unused", tmp_path / "whole.npz") == 0
    assert train(coded_file, tmp_path / "backup", tmp_path / "killed.npz", STEPS + 8) == -signal.SIGKILL
    assert not (tmp_path / "killed.npz").exists()
    assert train(coded_file, tmp_path / "backup", tmp_path / "resumed.npz") == 0
    assert_same_end(tmp_path / "whole.npz", tmp_path / "resumed.npz")
    assert not (tmp_path / "backup").exists()


@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.parametrize("backend", ["tensorflow", "jax"])
def test_a_training_killed_again_and_again_goes_on(coded_file, tmp_path, backend):
    """Five kills at random steps: some before anything new was saved, some in the last epoch."""
    steps = random.Random(backend)
    assert train(coded_file, tmp_path / "unused", tmp_path / "whole.npz", backend=backend) == 0
    kills = [
        train(coded_file, tmp_path / "backup", tmp_path / "end.npz", steps.randint(1, 9), backend) for _ in range(5)
    ]
    assert kills == [-signal.SIGKILL] * 5
    assert train(coded_file, tmp_path / "backup", tmp_path / "end.npz", backend=backend) == 0
    assert_same_end(tmp_path / "whole.npz", tmp_path / "end.npz")

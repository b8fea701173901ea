"""Keras on JAX: tests of the package, run again by that backend. Batches and steps have tables of their own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = [f"tests/unit/test_{name}.py" for name in ("backup", "device", "judging", "meters", "models")]


def passed_on_jax(*options: str) -> int:
    """How many tests passed, in a pytest of its own; none may fail."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--color=no", *options, *FILES]
    environment = {**os.environ, "KERAS_BACKEND": "jax"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    last = done.stdout.splitlines()[-1]
    assert " passed" in last
    return int(last.split(" passed")[0].split()[-1])


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_models_devices_judges_and_backups_work_on_jax():
    """All tests of the modules that compute with Keras."""
    assert passed_on_jax() > 80

"""The benchmark of lesson 08's cost model: it reads all rows of all files, and says what it foretold."""

import json
import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).parents[1] / "benchmarks" / "cost_model.py"


def run(*arguments) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, PROGRAM, *map(str, arguments)], capture_output=True, text=True, timeout=100, check=False
    )


def test_a_small_run_compares_every_way(tmp_path):
    """Warm from one file and from four, and cold where the file can leave the page cache."""
    done = run("--gigabytes", 0.02, "--folder", tmp_path, "--json", tmp_path / "cost.json")
    results = json.loads((tmp_path / "cost.json").read_text(encoding="utf-8"))["results"]
    assert {(each["cache"], each["files"]) for each in results} >= {("warm", 1), ("warm", 4)}
    assert all(each["measured_s"] > 0 and each["predicted_s"] > 0 for each in results)
    wrong = sum(not 0.5 <= each["measured_s"] / each["predicted_s"] <= 2 for each in results)
    assert done.stdout.splitlines()[-1].startswith(f"{wrong} of {len(results)} predictions are off by more than ")
    assert done.returncode == (1 if wrong else 0), done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["cost.json"]


def test_too_small_a_disk_is_said_before_anything_is_written(tmp_path):
    """What is needed, what is free, and what to do."""
    done = run("--gigabytes", 10**6, "--folder", tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("the files need 1000000.2 GB at a time and ")
    assert done.stderr.endswith("Lower --gigabytes, or name another disk by --folder.\n")

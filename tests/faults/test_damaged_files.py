"""Damaged files: an error or the right data, whatever was hit; a few hundred here, ten thousand in the nightly run."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest
from damage import BASES, KINDS, damaged, whole

from helpers import inspect_file

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux: limits of memory, /proc")
DAMAGED_FILES = Path(__file__).with_name("damaged_files.py")
EACH_ONCE = len(BASES) * len(KINDS)


@pytest.mark.parametrize(
    "count",
    [EACH_ONCE, pytest.param(10_000, marks=[pytest.mark.nightly, pytest.mark.timeout(7200)])],
    ids=["short", "full"],
)
def test_damaged_files_end_well(tmp_path, count):
    """Every kind of damage to every kind of file: no crash, no hang, no wrong picture, no error without the file."""
    done = subprocess.run(
        [sys.executable, DAMAGED_FILES, f"--files={count}", "--seed=1", f"--json={tmp_path / 'ends.json'}"],
        capture_output=True,
        text=True,
        timeout=0.7 * count + 200,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    ends = [json.loads(line)["end"] for line in (tmp_path / "ends.json").read_text().splitlines()]
    assert len(ends) == count
    assert {"right", "error", "pixel"} <= set(ends)


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_damages(tmp_path, kind):
    """Each kind of damage changes the file, and the same chance changes it the same way."""
    good = whole(BASES["writer"], tmp_path / "good.h5")
    one, same, other = (damaged(good, kind, random.Random(seed)) for seed in (1, 1, 2))
    assert one == same != other
    assert one != good.content


@pytest.mark.parametrize("name", BASES)
def test_good_files_are_what_they_are_said_to_be(tmp_path, name):
    """Where the images and labels of a good file lie is known: their places hold all of it, and nothing else."""
    good = whole(BASES[name], tmp_path / "good.h5")
    held = sum(last - first for first, last in set(good.image_places + good.label_places))
    other = sum(last - first for first, last in good.other_places)
    assert held + other == len(good.content)
    report = inspect_file(tmp_path / "good.h5", **good.base.names)
    assert report.ok, str(report)  # a file with faults of its own would hide those that damage makes
    assert len(good.images) == len(good.numbers) == 103

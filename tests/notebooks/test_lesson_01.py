"""Functions that lesson 01 teaches, against their twins in helpers."""

import ast
import io
import re
import shlex

import h5py
import numpy as np
import pytest
from lesson_source import SOURCES

from data_scripts import build_hdf5, rechunk
from data_scripts.make_toy_food import make_toy_food
from helpers import RowReader, inspector

ROWS = [7, 2, 102, 3, 4, 2]


@pytest.fixture(scope="module")
def taught() -> dict:
    """The functions and classes of the lesson, by name; nothing else of it is run."""
    tree = ast.parse((SOURCES / "01_build_the_hdf5_file.py").read_text(encoding="utf-8"))
    tree.body = [node for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    names = {"np": np, "h5py": h5py, "io": io}
    exec(compile(tree, "lesson 01", "exec"), names)
    return names


def test_row_by_row_equals_the_reader(taught, coded_file):
    """Rows in any order, also repeated, are the same images from the lesson's function and from RowReader."""
    with h5py.File(coded_file) as file, RowReader(coded_file, "train_img") as reader:
        np.testing.assert_array_equal(taught["row_by_row"](file["train_img"], ROWS), reader.read(ROWS))


def test_by_list_reads_the_sorted_rows(taught, coded_file):
    """The slow way gives the right images, in the order of the file."""
    with h5py.File(coded_file) as file, RowReader(coded_file, "train_img") as reader:
        np.testing.assert_array_equal(taught["by_list"](file["train_img"], [7, 2, 3]), reader.read([2, 3, 7]))


def test_bytes_read_counts_the_bytes_of_a_contiguous_dataset_exactly(taught, tmp_path):
    """Where no index of chunks has to be read, the count is the size of the slice."""
    with h5py.File(tmp_path / "plain.h5", "w") as file:
        file["numbers"] = np.arange(100_000, dtype=np.int64)
    count = taught["bytes_read"]
    assert count(tmp_path / "plain.h5", "numbers", lambda numbers: numbers) == 0
    assert count(tmp_path / "plain.h5", "numbers", lambda numbers: numbers[500:1500]) == 8000
    assert count(tmp_path / "plain.h5", "numbers", lambda numbers: numbers[:]) == 800_000


def test_the_commands_for_your_own_folder_run(tmp_path, monkeypatch, capsys):
    """What the last section tells to type works as it stands, and each command ends with 0."""
    monkeypatch.chdir(tmp_path)
    make_toy_food("FOLDER", layout="folder", classes=2, per_class=8, size=32)
    with h5py.File("FOREIGN.h5", "w") as file:
        file.create_dataset("pictures", data=np.zeros((8, 32, 32, 3), np.uint8) + 9, chunks=True)
        file["targets"] = np.arange(8) % 2
    programs = {"data_scripts.build_hdf5": build_hdf5, "helpers.inspector": inspector, "data_scripts.rechunk": rechunk}
    text = (SOURCES / "01_build_the_hdf5_file.py").read_text(encoding="utf-8")
    section = text[text.index("## 11. On your own folder") :]
    commands = [shlex.split(line, comments=True) for line in re.findall(r"^# python -m (.+)$", section, re.MULTILINE)]
    assert [name for name, *_ in commands] == list(programs)
    assert {name: programs[name].main(arguments) for name, *arguments in commands} == dict.fromkeys(programs, 0)
    capsys.readouterr()

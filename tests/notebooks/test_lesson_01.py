"""Functions that lesson 01 teaches, against their twins in helpers."""

import ast
import io

import h5py
import numpy as np
import pytest
from lesson_source import SOURCES

from helpers import HDF5Writer, RowReader
from helpers.images import decode_jpeg, read_image, resize_image

ROWS = [7, 2, 102, 3, 4, 2]


@pytest.fixture(scope="module")
def taught() -> dict:
    """The functions and classes of the lesson, by name; nothing else of it is run."""
    tree = ast.parse((SOURCES / "01_build_the_hdf5_file.py").read_text(encoding="utf-8"))
    tree.body = [node for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    names = {"np": np, "h5py": h5py, "io": io, "decode_jpeg": decode_jpeg}
    names |= {"read_image": read_image, "resize_image": resize_image}
    exec(compile(tree, "lesson 01", "exec"), names)
    return names


def test_row_by_row_equals_the_reader(taught, coded_file):
    """Rows in any order, also repeated, are the same images from the lesson's function and from RowReader."""
    with h5py.File(coded_file) as file, RowReader(coded_file, "train_img") as reader:
        np.testing.assert_array_equal(taught["row_by_row"](file["train_img"], ROWS), reader.read(ROWS))


def test_decoded_equals_the_reader(taught, tmp_path):
    """JPEG bytes of rows come out of the lesson's function as they come out of RowReader."""
    images = np.random.default_rng(0).integers(0, 256, (5, 16, 24, 3), dtype=np.uint8)
    with HDF5Writer(tmp_path / "food.h5", (16, 24, 3), ["soup"], storage="jpeg") as writer:
        writer.append("train", images, np.zeros(5, np.int64))
    with h5py.File(tmp_path / "food.h5") as file, RowReader(tmp_path / "food.h5", "train_img") as reader:
        np.testing.assert_array_equal(taught["decoded"](file["train_img"], [3, 0, 4]), reader.read([3, 0, 4]))


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

"""The dataset that lesson 03 builds, against its twin in helpers."""

import ast

import keras
import numpy as np
import pytest
from lesson_source import SOURCES

from helpers import HDF5Sequence, RowReader


@pytest.fixture(scope="module")
def taught() -> dict:
    """The classes of the lesson, by name; nothing else of it is run."""
    tree = ast.parse((SOURCES / "03_from_loop_to_generator.py").read_text(encoding="utf-8"))
    tree.body = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    names = {"np": np, "keras": keras, "RowReader": RowReader}
    exec(compile(tree, "lesson 03", "exec"), names)
    return names


@pytest.mark.parametrize("split", ["train", "valid"])
def test_batches_are_those_of_hdf5_sequence(taught, coded_file, split):
    """Same rows, images and classes in every batch of two epochs, shuffled or in the order of the file."""
    dataset = taught["Batches"](coded_file, split, 16, shuffle=split == "train", seed=3)
    with HDF5Sequence(coded_file, split, 16, seed=3) as sequence:
        assert len(dataset) == len(sequence)
        for epoch in range(2):
            for index in range(len(dataset)):
                images, labels = dataset[index]
                expected_images, expected_labels = sequence.batch(epoch, index)
                np.testing.assert_array_equal(images, expected_images)
                np.testing.assert_array_equal(labels, expected_labels)
            dataset.on_epoch_end()
    dataset.images.close()
    dataset.labels.close()

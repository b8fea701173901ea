"""The ways to augment that lesson 06 builds: what its text says of them holds on coded images too."""

import ast
import random

import h5py
import numpy as np
import pytest
import tensorflow
from coded import class_of_row, classes_of, one_hot, rows_of
from lesson_source import SOURCES

from helpers import Augment

LEGACY = tensorflow.keras.preprocessing.image

# Keras 2's augmentation asks SciPy under a name that SciPy 1.17 still has (Keras 3.15).
pytestmark = pytest.mark.filterwarnings("ignore:Please import `affine_transform`:DeprecationWarning")


@pytest.fixture(scope="module")
def taught() -> dict:
    """The functions and classes of the lesson, by name; nothing else of it is run."""
    tree = ast.parse((SOURCES / "06_augmentation.py").read_text(encoding="utf-8"))
    tree.body = [node for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    names = {"np": np, "random": random}
    names |= {"ImageDataGenerator": LEGACY.ImageDataGenerator, "Iterator": LEGACY.Iterator}
    exec(compile(tree, "lesson 06", "exec"), names)
    return names


@pytest.fixture
def images(coded_file) -> np.ndarray:
    """All 103 training images of the coded file, which say their row and class."""
    with h5py.File(coded_file) as file:
        return file["train_img"][:]


def test_iterator_serves_every_row_with_its_label(taught, images):
    """Keras' iterator on our rows loses no row and no label, whatever it does to the pixels."""
    changes = LEGACY.ImageDataGenerator(zoom_range=(0.8, 1.0), shear_range=6, horizontal_flip=True)
    labels = one_hot(class_of_row(np.arange(len(images))))
    iterator = taught["HDF5Iterator"](images, labels, changes, batch_size=16, seed=0)
    served, served_labels = (np.concatenate(parts) for parts in zip(*map(iterator.__getitem__, range(7)), strict=True))
    assert sorted(rows_of(served).tolist()) == list(range(103))
    np.testing.assert_array_equal(served_labels.argmax(axis=1), classes_of(served))


def test_wrapper_serves_whole_batches_once_in_the_order_of_the_file(taught, images):
    """The transform wrapper leaves the last rows out, never shuffles, and ends after one pass."""
    wrapper = taught["TransformWrapper"](images, 16, scale=1)
    served = [row for _ in range(6) for row in rows_of(next(wrapper)).tolist()]
    assert served == list(range(96))
    with pytest.raises(StopIteration):
        next(wrapper)


@pytest.mark.parametrize("zoom", [0.8, 0.9, 1.0])
def test_zoom_means_the_same_to_keras_and_to_augment(zoom):
    """A factor below 1 shows the middle of the image, to within a rounding of the pixel values."""
    image = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    by_keras = LEGACY.ImageDataGenerator().apply_transform(image, {"zx": zoom, "zy": zoom})
    by_augment = Augment(zoom=(zoom, zoom))(image, np.random.default_rng(0))
    assert np.abs(by_keras.astype(int) - by_augment.astype(int)).max() <= 2


def test_a_patch_hides_part_of_the_image(taught):
    """The own function of the lesson paints one square of 24 pixels, at a place that its random numbers choose."""
    image = np.zeros((64, 64, 3), np.uint8)
    hidden = Augment(function=taught["hide_a_patch"])(image, np.random.default_rng(0))
    assert np.count_nonzero(hidden == 128) == 24 * 24 * 3
    assert not image.any()

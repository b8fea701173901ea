"""Which datasets of a foreign file are images, and which are their labels."""

import h5py
import numpy as np
import pytest

from helpers.pairs import guess_pairs

FOREIGN = [
    (
        "keras style",
        {"x_train": (12, 8, 8, 3), "y_train": (12,), "x_test": (12, 8, 8, 3), "y_test": (12,)},
        {"train": ("x_train", "y_train"), "test": ("x_test", "y_test")},
    ),
    (
        "groups",
        {"train/images": (12, 8, 8, 3), "train/labels": (12, 4), "val/images": (6, 8, 8, 3), "val/labels": (6, 4)},
        {"train": ("train/images", "train/labels"), "valid": ("val/images", "val/labels")},
    ),
    (
        "one pair beside others",
        {"images": (12, 8, 8, 3), "category_id": (9,), "labels": (12,), "weights": (12, 2)},
        {"images": ("images", "labels")},
    ),
    ("labels of another length", {"data": (12, 8, 8, 3), "labels": (11,)}, {"data": ("data", "labels")}),
    ("no images", {"labels": (12,), "scores": (12, 2)}, {}),
]


@pytest.mark.parametrize(("shapes", "pairs"), [case[1:] for case in FOREIGN], ids=[case[0] for case in FOREIGN])
def test_pairs_of_a_foreign_file_are_guessed(tmp_path, shapes, pairs):
    """Image and label datasets are paired by their words, lengths and shapes."""
    path = tmp_path / "foreign.h5"
    with h5py.File(path, "w") as file:
        for name, shape in shapes.items():
            file.create_dataset(name, shape, np.uint8)
        assert guess_pairs(file) == pairs


def test_checksums_are_no_labels(tmp_path):
    """The CRC-32 of the images are one number an image too, and are passed over."""
    path = tmp_path / "foreign.h5"
    with h5py.File(path, "w") as file:
        file["pics"] = np.zeros((12, 8, 8, 3), np.uint8)
        file["pics_crc32"] = np.zeros(12, np.uint32)
        assert guess_pairs(file) == {}
        file["answers"] = np.zeros(12, np.int64)
        assert guess_pairs(file) == {"pics": ("pics", "answers")}


def test_pairs_behind_links_are_found(tmp_path):
    """Many files gather the datasets of others by links."""
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["x"], file["y"] = np.zeros((12, 8, 8, 3), np.uint8), np.zeros(12, np.int64)
    with h5py.File(tmp_path / "all.h5", "w") as file:
        file["images"], file["labels"] = h5py.ExternalLink("other.h5", "x"), h5py.ExternalLink("other.h5", "y")
        file["lost"] = h5py.ExternalLink("gone.h5", "x")
        assert guess_pairs(file) == {"images": ("images", "labels")}


def test_a_file_of_single_images_has_no_pairs(tmp_path):
    """With one dataset an image there is nothing to pair, and thousands of them are looked at once each."""
    with h5py.File(tmp_path / "foreign.h5", "w") as file:
        for number in range(200):
            file[f"photo {number}"] = np.zeros((8, 8, 3), np.uint8)
        file["labels"] = np.zeros(200, np.int64)
        assert guess_pairs(file) == {}

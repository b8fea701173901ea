"""The file of the capstone: each seed gives another one, with the faults that the exercises ask for."""

import h5py
import numpy as np
import pytest

from helpers import inspect_file
from helpers.course.bad_file import bad_file

SEEDS = range(4)


@pytest.mark.parametrize("seed", SEEDS)
def test_it_has_every_fault(tmp_path, seed):
    """Chunks that cut images, gzip, float labels, a tail of zeros, one black picture, and sorted rows."""
    made = bad_file(tmp_path, seed, per_class=24)
    with h5py.File(made.path, "r") as file:
        data, labels = file[made.images], file[made.labels]
        assert data.chunks[1:] != data.shape[1:]
        assert data.compression == "gzip"
        assert labels.dtype.kind == "f"
        assert "complete" not in file.attrs
        pixels = data[:]
    assert np.array_equal(np.flatnonzero(pixels.any((1, 2, 3))), made.usable)
    assert len(made.usable) == made.written - 1 < made.n - 1
    assert (np.diff(made.numbers) >= 0).all()
    assert not inspect_file(made.path).ok


@pytest.mark.parametrize("kind", ["onehot", "numbers"])
def test_labels_say_the_class_of_each_written_row(tmp_path, kind):
    """Rounded, or by the place of the 1, floats are the true class numbers; the tail has none."""
    made = bad_file(tmp_path, 1, per_class=20, label_kind=kind)
    with h5py.File(made.path, "r") as file:
        labels = file[made.labels][:]
    numbers = labels.argmax(1) if kind == "onehot" else np.round(labels)
    assert np.array_equal(numbers[: made.written], made.numbers)
    assert not labels[made.written :].any()
    if kind == "numbers":
        assert (labels[: made.written] != made.numbers).any()


def test_each_fault_can_be_switched_off(tmp_path):
    """A file without faults, for questions that must not see any."""
    made = bad_file(tmp_path, 2, per_class=20, missing=0, sorted_rows=False, chunks=False)
    with h5py.File(made.path, "r") as file:
        assert (file[made.images].chunks, file[made.images].compression) == (None, None)
    assert made.written == made.n
    assert (np.diff(made.numbers) < 0).any()


def test_a_seed_gives_the_same_file_again_and_another_seed_another_one(tmp_path):
    """Probes are fresh, and repeatable."""
    made = [bad_file(tmp_path, seed, per_class=20) for seed in SEEDS]
    again = bad_file(tmp_path, 2, per_class=20)
    assert np.array_equal(again.numbers, made[2].numbers)
    assert again.images == made[2].images
    assert len({(one.images, one.n, one.written) for one in made}) > 2

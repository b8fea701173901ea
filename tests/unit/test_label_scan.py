"""One pass over the labels: counts, wrong rows, first and last row of each class, and how the classes are mixed."""

import h5py
import numpy as np
import pytest

from helpers import label_scan
from helpers.label_scan import scan_labels


def scan(tmp_path, labels, names=None, **options):
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("y", data=labels, **options)
        return scan_labels(file["y"], names)


NUMBERS = np.array([2, 0, 0, 1, 2, 0])


@pytest.mark.parametrize("blocks", [1, 8 * 2**20])
@pytest.mark.parametrize("labels", [NUMBERS, NUMBERS.astype(float), np.eye(3)[NUMBERS], np.eye(3, dtype=bool)[NUMBERS]])
def test_counts_and_rows_of_each_class(tmp_path, monkeypatch, labels, blocks):
    """The same for numbers and one-hot rows of any type, in blocks of any size."""
    monkeypatch.setattr(label_scan, "_BLOCK_BYTES", blocks)
    found = scan(tmp_path, np.tile(labels, (20,) + (1,) * (labels.ndim - 1)))
    assert found.counts.tolist() == [60, 20, 40]
    assert (found.first_rows.tolist(), found.last_rows.tolist()) == ([1, 3, 0], [119, 117, 118])
    assert (found.bad, found.first_bad) == (0, -1)


def test_wrong_rows_are_counted_and_left_out(tmp_path):
    """Numbers outside the classes, fractions, and rows that are not one 1 among zeros."""
    assert scan(tmp_path, np.array([0, 5, 1, -1]), names=2).bad == 2
    assert scan(tmp_path, np.array([0, 0.5, np.nan, 1])).bad == 2
    found = scan(tmp_path, np.array([[1, 0], [0, 0], [0.5, 0.5], [0, 1]]))
    assert (found.bad, found.first_bad, found.counts.tolist()) == (2, 1, [1, 1])


def test_mix_of_sorted_and_shuffled_rows(tmp_path):
    """Sorted rows have one class side by side; shuffled ones as many as chance gives."""
    sorted_rows = np.repeat(np.arange(10), 320)
    found = scan(tmp_path, sorted_rows).mix
    assert (found.neighbours, found.is_sorted) == (1.0, True)
    found = scan(tmp_path, np.random.default_rng(0).permutation(sorted_rows)).mix
    assert found.neighbours == pytest.approx(found.shuffled, rel=0.02)
    assert found.shuffled == pytest.approx(10 * (1 - 0.9**32))
    assert not found.is_sorted


def test_strip_has_all_rows_in_their_place(tmp_path):
    """Each column of the picture counts the classes of its part of the file; many classes share twelve colours."""
    strip = scan(tmp_path, np.repeat(np.arange(24), 50)).mix.strip
    assert strip.shape == (label_scan.STRIP_PARTS, label_scan.STRIP_BANDS)
    assert strip.sum() == 1200
    assert strip.argmax(axis=1).tolist() == np.repeat(np.arange(12), 10).tolist()


def test_few_rows_have_no_mix(tmp_path):
    """Fewer rows than are compared say nothing."""
    assert scan(tmp_path, np.zeros(31, int)).mix is None

"""Measures of a shuffle, against values worked out by hand."""

import math

import numpy as np
import pytest

from helpers import EpochOrder
from helpers.course.mixing import distinct_a_batch, distinct_by_chance, measure_mixing, neighbour_entropy

BY_CHANCE_IN_TWOS = math.log(12) / 12 + 5 / 12 * math.log(12 / 5) + math.log(4) / 2  # four rows, batches of two


def epoch_of(shuffle, n=2000, **blocks):
    return np.concatenate(EpochOrder(n, 20, shuffle, seed=0, **blocks).batches(0))


def test_distinct_values_are_counted_in_full_batches():
    """Batches of 3: two values, then one; the 9 of the short batch does not count."""
    assert distinct_a_batch([1, 1, 2, 3, 3, 3, 9], 3) == 1.5


def test_distinct_values_by_chance():
    """Two rows of four, two a value: each value is missed with probability 2/4 x 1/3, so 2 x 5/6 values are seen."""
    assert distinct_by_chance([2, 2], 2) == pytest.approx(5 / 3)
    assert distinct_by_chance([2, 2], 1) == pytest.approx(1)
    assert distinct_by_chance([1, 2, 3], 6) == 3


def test_a_full_shuffle_gives_what_chance_gives():
    """Blocks a batch of a full shuffle come out at the expected number, within the noise of 100 batches."""
    blocks = epoch_of("full") // 50
    assert distinct_a_batch(blocks, 20) == pytest.approx(distinct_by_chance([50] * 40, 20), abs=0.5)


def test_entropy_of_neighbours_by_hand():
    """Rows 0 2 1 3: the next row comes 2, -1 and 2 places later; by chance, d places have probability (4 - d) / 12."""
    found = math.log(3) - 2 / 3 * math.log(2)
    by_chance = 2 * (3 / 12 * math.log(12 / 3) + 2 / 12 * math.log(12 / 2) + 1 / 12 * math.log(12))
    assert neighbour_entropy([0, 2, 1, 3], 1) == pytest.approx(found / by_chance)


def test_entropy_of_neighbours_in_batches_by_hand():
    """The same in batches of 2: distances of 1, -1 and 1; by chance -2, -1, 0 and 1 have 1, 5, 3 and 3 of 12."""
    found = math.log(3) - 2 / 3 * math.log(2)
    assert neighbour_entropy([0, 2, 1, 3], 2) == pytest.approx(found / BY_CHANCE_IN_TWOS)


def test_entropy_runs_from_file_order_to_full_shuffle():
    """Nothing mixed is 0, forwards and backwards; all mixed is nearly 1; more open blocks are nearer to 1."""
    assert str(neighbour_entropy(np.arange(100), 10)) == "0.0"  # not "-0.0"
    assert neighbour_entropy(np.arange(100)[::-1], 10) == 0
    assert 0.98 < neighbour_entropy(epoch_of("full"), 20) < 1.01
    few, some, many = (
        neighbour_entropy(epoch_of("block", block_rows=50, open_blocks=count), 20) for count in (2, 8, 32)
    )
    assert 0.2 < few < some - 0.1 < many - 0.2 < 0.8


def test_all_measures_of_a_small_epoch():
    """Blocks of 2 rows, served as 2 3, 0 1: one block a batch; the classes alternate, so both are in each batch."""
    mixing = measure_mixing([2, 3, 0, 1], [0, 1, 0, 1], batch_size=2, block_rows=2)
    assert (mixing.blocks, mixing.classes) == (1, 2)
    assert (mixing.blocks_by_chance, mixing.classes_by_chance) == pytest.approx((5 / 3, 5 / 3))
    found = math.log(3) - 2 / 3 * math.log(2)  # distances 1, -3 and 1 places: 0, -2 and 0 batches
    assert mixing.neighbour_entropy == pytest.approx(found / BY_CHANCE_IN_TWOS)
    assert str(mixing) == ("1.0 blocks and 2.0 classes a batch (by chance 1.7 and 1.7), entropy of neighbours 0.50")


REFUSED = {
    "a row twice": (lambda: neighbour_entropy([0, 1, 1], 1), "order must hold each row of the file, 0 to n - 1, once."),
    "one batch": (
        lambda: neighbour_entropy([1, 0], 2),
        "an epoch must be longer than a batch; got 2 rows and batch_size=2.",
    ),
    "no full batch": (
        lambda: distinct_a_batch([1, 2], 3),
        "batch_size must be at most the 2 rows of the epoch; got 3.",
    ),
    "more than all rows": (
        lambda: distinct_by_chance([1, 1], 3),
        "batch_size must be at most the 2 rows of the epoch; got 3.",
    ),
    "too few classes": (
        lambda: measure_mixing([1, 0], [0], batch_size=1, block_rows=1),
        "class_numbers must have one number a row; got shape (1,) for 2 rows.",
    ),
    "empty blocks": (
        lambda: measure_mixing([1, 0], [0, 1], batch_size=1, block_rows=0),
        "block_rows must be at least 1; got 0.",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_measured_is_refused(case):
    """Each wrong argument names the rule and what came."""
    measure, sentence = REFUSED[case]
    with pytest.raises(ValueError) as caught:  # noqa: PT011, the whole sentence is compared
        measure()
    assert str(caught.value) == sentence

"""EpochOrder: every row once an epoch, pure in (seed, epoch), equal over shards, pinned to literal orders."""

import itertools
import pickle

import numpy as np
import pytest

from helpers import EpochOrder

ALL_SHUFFLES = ["full", "block", None]
PINNED = {
    "full, epoch 0": [2, 4, 3, 6, 5, 0, 1, 7],
    "full, epoch 1": [1, 3, 7, 6, 0, 4, 2, 5],
    "block, epoch 0": [1, 0, 5, 4, 3, 7, 2, 6],
}


def rows_of_epoch(order, epoch=0):
    return np.concatenate(order.batches(epoch)).tolist()


@pytest.mark.parametrize("shuffle", ALL_SHUFFLES)
@pytest.mark.parametrize("n", [1, 2, 5, 103, 1000])
def test_every_row_once_per_epoch(shuffle, n):
    """Each epoch holds every row exactly once, whatever the shuffle."""
    order = EpochOrder(n, 10, shuffle, seed=3, block_rows=7, open_blocks=3)
    for epoch in range(3):
        assert sorted(rows_of_epoch(order, epoch)) == list(range(n))


def test_orders_are_pinned():
    """These orders never change: resumed runs and stored notebook outputs rely on them."""
    full = EpochOrder(8, 4, "full", seed=0)
    block = EpochOrder(8, 4, "block", seed=0, block_rows=2, open_blocks=2)
    assert rows_of_epoch(full, 0) == PINNED["full, epoch 0"]
    assert rows_of_epoch(full, 1) == PINNED["full, epoch 1"]
    assert rows_of_epoch(block, 0) == PINNED["block, epoch 0"]


def test_order_is_a_pure_function_of_seed_and_epoch():
    """Epochs can be asked for in any order, by any copy, and come out the same."""
    order = EpochOrder(50, 8, "full", seed=1)
    first = [rows_of_epoch(order, epoch) for epoch in (0, 1, 2, 3)]
    again = EpochOrder(50, 8, "full", seed=1)
    assert [rows_of_epoch(again, epoch) for epoch in (3, 2, 1, 0)] == first[::-1]
    assert [rows_of_epoch(pickle.loads(pickle.dumps(order)), epoch) for epoch in range(4)] == first


@pytest.mark.parametrize("shuffle", ["full", "block"])
def test_epochs_and_seeds_differ(shuffle):
    """Another epoch or another seed gives another order."""
    order = EpochOrder(100, 10, shuffle, seed=0)
    assert rows_of_epoch(order, 0) != rows_of_epoch(order, 1)
    assert rows_of_epoch(order, 0) != rows_of_epoch(EpochOrder(100, 10, shuffle, seed=1), 0)


def test_no_shuffle_is_file_order():
    """shuffle=None serves the rows as they lie in the file, in every epoch."""
    order = EpochOrder(7, 3, None, seed=9)
    assert [rows.tolist() for rows in order.batches(4)] == [[0, 1, 2], [3, 4, 5], [6]]


def test_block_shuffle_touches_few_blocks_at_a_time():
    """Eight open blocks of 10 rows: the first 80 rows come from exactly eight blocks, and are mixed."""
    order = EpochOrder(400, 20, "block", seed=0, block_rows=10, open_blocks=8)
    first = np.array(rows_of_epoch(order)[:80])
    assert len(set(first // 10)) == 8
    assert np.mean(np.diff(first) == 1) < 0.1


def test_block_shuffle_leaves_no_lonely_block():
    """Nine blocks with eight open are mixed as five and four, never as eight and one."""
    order = EpochOrder(90, 10, "block", seed=0, block_rows=10, open_blocks=8)
    rows = np.array(rows_of_epoch(order))
    assert len(set(rows[:50] // 10)) == 5
    assert len(set(rows[50:] // 10)) == 4


def test_read_ahead_names_the_next_group_in_file_order():
    """Two groups of two blocks of 3 rows, in batches of 2: each batch names the next third of the group to come."""
    order = EpochOrder(12, 2, "block", seed=1, block_rows=3, open_blocks=2)
    assert rows_of_epoch(order, 0) == [3, 0, 1, 4, 2, 5, 7, 11, 8, 9, 10, 6]
    assert rows_of_epoch(order, 1)[:6] == [2, 8, 7, 1, 6, 0]
    named = [order.read_ahead(0, index).tolist() for index in range(6)]
    assert named == [[0, 1, 2, 3, 4, 5, 6, 7], [8, 9], [10, 11], [0, 1], [2, 6], [7, 8]]


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("batch_size", [1, 4, 10, 40])
@pytest.mark.parametrize("n", [125, 133, 250])
def test_read_ahead_names_what_a_shard_will_serve_and_in_time(n, batch_size, count, drop_last):
    """A shard names each row that it serves, with its batch or up to two groups before, and no other row."""
    soon = 2 * 15 // (batch_size * count) + 2  # batches that two groups reach into; the last of an epoch may be short
    for index in range(count):
        order = EpochOrder(n, batch_size, "block", 2, (index, count), drop_last, block_rows=5, open_blocks=3)
        places = list(itertools.product(range(4), range(len(order))))
        served = [set(order.batch(*place).tolist()) for place in places]
        named = [set(order.read_ahead(*place).tolist()) for place in places]
        for item in range(3 * len(order)):
            assert served[item] <= set().union(*named[max(0, item - soon) : item + 1])
            assert named[item] <= set().union(*served[item : item + soon + 1])


@pytest.mark.parametrize("count", [1, 3])
def test_read_ahead_names_each_row_once_an_epoch(count):
    """Groups of 12 to 15 rows in batches of one row: no request is made twice."""
    for index in range(count):
        order = EpochOrder(123, 1, "block", 2, (index, count), block_rows=5, open_blocks=3)
        waiting = np.zeros(123, dtype=int)  # how often each row was named and not yet served
        for place in itertools.product(range(3), range(len(order))):
            waiting[order.read_ahead(*place)] += 1
            waiting[order.batch(*place)] -= 1
            assert waiting.min() == 0
        assert waiting.sum() <= 15  # the first group of epoch 3


def test_read_ahead_holds_at_most_two_groups():
    """Rows of the group that is served, and rows named for later, never make more than two groups."""
    order = EpochOrder(1000, 8, "block", seed=0, block_rows=10, open_blocks=4)
    waiting = set()
    for epoch, batch in itertools.product(range(2), range(len(order))):
        waiting |= set(order.read_ahead(epoch, batch).tolist())
        assert len(waiting) <= 2 * 40
        waiting -= set(order.batch(epoch, batch).tolist())


def test_read_ahead_is_spread_evenly_over_long_stretches():
    """Groups of 8 blocks of 128 rows in batches of 64: each batch names 64 rows of one or two blocks, side by side."""
    order = EpochOrder(8192, 64, "block", seed=0)
    named = [order.read_ahead(0, index) for index in range(1, len(order))]
    assert {len(rows) for rows in named} == {64}
    assert max(np.count_nonzero(np.diff(rows) > 1) for rows in named) <= 1


def test_read_ahead_of_a_file_of_one_group_names_each_row_once():
    """Where all blocks are open, batch 0 names the file for this epoch and the next, each row once."""
    order = EpochOrder(20, 20, "block", seed=0)
    assert order.read_ahead(0, 0).tolist() == list(range(20))
    assert order.read_ahead(1, 0).tolist() == list(range(20))


def test_read_ahead_is_a_pure_function_of_epoch_and_batch():
    """Workers that ask out of turn, in copies of their own, get the same rows."""
    order = EpochOrder(200, 8, "block", seed=4, block_rows=7, open_blocks=3)
    asked = list(itertools.product(range(2), range(len(order))))
    first = [order.read_ahead(*place).tolist() for place in asked]
    again = pickle.loads(pickle.dumps(order))
    assert [again.read_ahead(*place).tolist() for place in asked[::-1]] == first[::-1]


@pytest.mark.parametrize("shuffle", ["full", None])
def test_other_orders_read_nothing_ahead(shuffle):
    """In a full shuffle nothing is worth it, and the order of the file is read ahead by the system itself."""
    assert EpochOrder(100, 10, shuffle, seed=0).read_ahead(0, 0).tolist() == []


def test_drop_last_leaves_out_the_partial_batch():
    """103 rows in batches of 10 are 10 batches with drop_last and 11 without."""
    assert [len(rows) for rows in EpochOrder(103, 10, "full", seed=0, drop_last=True).batches(0)] == [10] * 10
    assert [len(rows) for rows in EpochOrder(103, 10, "full", seed=0).batches(0)] == [10] * 10 + [3]


@pytest.mark.parametrize("count", [1, 2, 3, 4])
@pytest.mark.parametrize("n", [12, 13, 25, 103])
@pytest.mark.parametrize("shuffle", ALL_SHUFFLES)
def test_shards_are_slices_of_the_global_batches(n, count, shuffle):
    """Batch b of shard (i, c) is rows [i::c] of the global batch b; all shards have equally many batches."""
    whole = EpochOrder(n, 4 * count, shuffle, seed=5)
    shards = [EpochOrder(n, 4, shuffle, seed=5, shard=(index, count)) for index in range(count)]
    assert len({len(shard) for shard in shards}) == 1
    for batch_index in range(len(shards[0])):
        global_rows = whole.batch(2, batch_index)
        for index, shard in enumerate(shards):
            assert shard.batch(2, batch_index).tolist() == global_rows[index::count].tolist()


def test_global_batch_smaller_than_the_shards_is_dropped_and_counted():
    """With two shards of 4, a last global batch of 5 rows is kept; one of 1 row is dropped and counted."""
    kept = [EpochOrder(13, 4, None, 0, shard=(index, 2)) for index in range(2)]
    assert sorted(sum((rows_of_epoch(order) for order in kept), [])) == list(range(13))
    assert [order.dropped_rows for order in kept] == [0, 0]
    dropped = [EpochOrder(9, 4, None, 0, shard=(index, 2)) for index in range(2)]
    assert sorted(sum((rows_of_epoch(order) for order in dropped), [])) == list(range(8))
    assert [order.dropped_rows for order in dropped] == [1, 1]


def test_batches_cannot_be_sorted_in_place():
    """A caller that sorts its batch in place is stopped, instead of reordering the epoch for everybody."""
    order = EpochOrder(10, 5, "full", seed=0)
    with pytest.raises(ValueError, match="read-only"):
        order.batch(0, 0).sort()


REFUSED = {
    "no rows": ({"n": 0}, ValueError, "no batch is left of 0 rows with batch_size=4, shard=(0, 1) and "
                "drop_last=False. Lower batch_size, or set drop_last=False."),
    "fewer rows than a batch, last one dropped": ({"n": 3, "drop_last": True}, ValueError, "no batch is left of 3 rows "
                "with batch_size=4, shard=(0, 1) and drop_last=True. Lower batch_size, or set drop_last=False."),
    "batch_size 0": ({"batch_size": 0}, ValueError, "batch_size must be at least 1; got 0."),
    "float batch_size": ({"batch_size": 2.5}, TypeError, "batch_size must be a whole number; got 2.5."),
    "negative seed": ({"seed": -1}, ValueError, "seed must be at least 0; got -1."),
    "unknown shuffle": ({"shuffle": True}, ValueError, 'shuffle must be "full", "block" or None; got True.'),
    "shard beyond count": ({"shard": (2, 2)}, ValueError,
                           "shard must be (index, count) with 0 <= index < count; got (2, 2)."),
    "shard is a number": ({"shard": 3}, TypeError, "shard must be a pair of integers (index, count); got 3."),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_bad_arguments_are_refused_with_a_whole_sentence(case):
    """Each wrong argument names itself, what it was and what is right."""
    arguments, error, sentence = REFUSED[case]
    with pytest.raises(error) as caught:
        EpochOrder(**{"n": 10, "batch_size": 4, "shuffle": "full", "seed": 0, **arguments})
    assert str(caught.value) == sentence


@pytest.mark.parametrize("index", [-1, 3, 99])
@pytest.mark.parametrize("shuffle", ALL_SHUFFLES)
@pytest.mark.parametrize("question", [EpochOrder.batch, EpochOrder.read_ahead])
def test_batch_outside_the_epoch_is_an_index_error(question, shuffle, index):
    """Batches are numbered from 0; nothing wraps around."""
    with pytest.raises(IndexError) as caught:
        question(EpochOrder(10, 4, shuffle, seed=0), 0, index)
    assert str(caught.value) == f"batch {index} was asked for, but an epoch has batches 0 to 2."


def test_repr_says_what_it_serves():
    """The repr shows the arguments and the number of batches."""
    assert repr(EpochOrder(10, 4, "full", seed=0)) == (
        "EpochOrder(n=10, batch_size=4, shuffle='full', seed=0, shard=(0, 1), drop_last=False): 3 batches an epoch"
    )

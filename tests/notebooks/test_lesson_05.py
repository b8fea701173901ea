"""The generator that lesson 05 builds, against its twins in helpers."""

import ast
import math
import mmap
import os
import pickle
import weakref
from pathlib import Path

import h5py
import keras
import numpy as np
import pytest
from lesson_source import SOURCES

from helpers import Augment, EpochOrder, HDF5Sequence
from helpers.batches import BatchSource
from helpers.slots import Arena
from helpers.slots import Slots as KitSlots


@pytest.fixture(scope="module")
def taught() -> dict:
    """The functions and classes of the lesson, by name; nothing else of it is run."""
    tree = ast.parse((SOURCES / "05_safe_per_worker_generator.py").read_text(encoding="utf-8"))
    tree.body = [node for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    names = {"np": np, "h5py": h5py, "os": os, "Path": Path, "keras": keras}
    names |= {"math": math, "mmap": mmap, "weakref": weakref}
    exec(compile(tree, "lesson 05", "exec"), names)
    return names


@pytest.fixture
def safe_batches(taught, coded_file):
    """Makes a SafeBatches on the coded file; its handles are closed after the test."""
    made = []

    def make(**options):
        made.append(taught["SafeBatches"](coded_file, **options))
        return made[-1]

    yield make
    for batches in made:
        close(batches)


def close(batches) -> None:
    """Close the handles of a SafeBatches, which the lesson leaves to the end of the process."""
    for file in batches._files.values():
        file.close()


def assert_same_batch(actual, expected) -> None:
    """Both parts of two batches are equal, their types too."""
    for one, two in zip(actual, expected, strict=True):
        np.testing.assert_array_equal(one, two)
        assert one.dtype == two.dtype


def test_rows_of_equals_the_full_order(taught):
    """The lesson's function gives the rows of EpochOrder, the smaller last batch too."""
    order = EpochOrder(103, 16, "full", seed=3)
    for epoch in (0, 1, 7):
        for index in range(len(order)):
            actual = taught["rows_of"](103, 16, seed=3, epoch=epoch, index=index)
            np.testing.assert_array_equal(actual, order.batch(epoch, index))


@pytest.mark.parametrize("split", ["train", "valid", "test"])
@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize(
    "augment",
    [None, Augment(horizontal_flip=True), Augment(rotation=20, zoom=(0.8, 1), crop=(12, 12))],
    ids=["plain", "flip", "crop"],
)
def test_safe_batches_equal_the_batch_source(safe_batches, coded_file, split, shuffle, augment):
    """The thirty lines of the lesson and BatchSource make the same batches in every epoch."""
    options = {"split": split, "batch_size": 16, "seed": 5, "augment": augment}
    ours = safe_batches(shuffle=shuffle, **options)
    kit = BatchSource(coded_file, shuffle="full" if shuffle else None, **options)
    assert len(ours) == len(kit)
    for epoch in (0, 2):
        for index in range(len(kit)):
            assert_same_batch(ours.batch(epoch, index), kit.batch(epoch, index))
    kit.close()


def test_safe_batches_refuse_what_the_batch_source_refuses(safe_batches, coded_file):
    """Both raise IndexError outside of the epoch."""
    kit = BatchSource(coded_file, batch_size=16)
    for batches in (safe_batches(batch_size=16), kit):
        for index in (-1, 7):
            with pytest.raises(IndexError, match=rf"batch {index} was asked for"):
                batches.batch(0, index)


def test_safe_batches_pickle_without_their_handle(taught, safe_batches, coded_file, monkeypatch):
    """A copy made after a read carries no handle, knows the way from another folder, and reads the same."""
    ours = safe_batches(batch_size=16, seed=5)
    expected = ours.batch(1, 3)
    monkeypatch.setattr(taught["SafeBatches"], "__module__", __name__)
    monkeypatch.setitem(globals(), "SafeBatches", taught["SafeBatches"])
    monkeypatch.chdir(coded_file.parent.parent)
    copy = pickle.loads(pickle.dumps(ours))
    assert copy._files == {}
    assert_same_batch(copy.batch(1, 3), expected)
    close(copy)


def test_safe_batches_open_one_handle_a_process(safe_batches, monkeypatch):
    """The same process finds its handle again; under another process number a new one is opened."""
    ours = safe_batches(batch_size=16)
    first = ours._file()
    assert ours._file() is first
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert ours._file() is not first
    assert len(ours._files) == 2


def test_safe_generator_serves_what_the_sequence_serves(taught, safe_batches, coded_file):
    """As Keras datasets both have the same length and items, in the first epoch and in the next."""
    ours = taught["SafeGenerator"](safe_batches(batch_size=16, seed=5), workers=2)
    with HDF5Sequence(coded_file, batch_size=16, seed=5) as kit:
        assert (len(ours), ours.workers) == (len(kit), 2)
        for epoch in (0, 1):
            kit.set_position(epoch)
            assert ours.epoch == kit.epoch
            for index in range(len(kit)):
                assert_same_batch(ours[index], kit[index])
            ours.on_epoch_end()


@pytest.fixture(params=["lesson", "kit"])
def lend(request, taught):
    """Lends (4, 3) uint8 arrays out of three slots, as the lesson and as the kit do; and counts the free slots."""
    if request.param == "lesson":
        slots = taught["Slots"](3, (4, 3))
        return slots.empty, lambda: len(slots.free)
    kit = KitSlots(3, 12)

    def empty():
        slot = kit.take()
        return np.empty((4, 3), np.uint8) if slot is None else Arena(kit.lend(slot)).empty((4, 3), np.uint8)

    return empty, lambda: kit.free_count


def test_slots_are_free_when_nobody_refers_to_their_memory(lend):
    """In the lesson's class and in the kit's, a view of a view keeps its slot, and letting go frees it."""
    empty, free = lend
    array = empty()
    view = array[1:][0]
    assert free() == 2
    del array
    assert free() == 2
    del view
    assert free() == 3


def test_slots_never_lend_memory_twice(lend):
    """Whoever keeps more arrays than there are slots gets fresh memory, and no array changes another."""
    empty, free = lend
    kept = [empty() for _ in range(5)]
    for number, array in enumerate(kept):
        array[:] = number
    assert [array.max() for array in kept] == [array.min() for array in kept] == [0, 1, 2, 3, 4]
    assert free() == 0

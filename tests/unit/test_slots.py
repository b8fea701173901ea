"""Slots: memory that is used again when nobody refers to it, and not before."""

from __future__ import annotations

import gc
import mmap
import os
import subprocess
import sys
import tempfile

import numpy as np
import pytest

from helpers import slots
from helpers.slots import Arena, Slots, room_for


@pytest.fixture(params=[False, True], ids=["private", "shared"])
def three_slots(request) -> Slots:
    """Three slots of a page and a bit, so of two pages each."""
    made = Slots(3, mmap.PAGESIZE + 1, shared=request.param)
    yield made
    if request.param:
        made.shared.close_handle()


def test_slots_are_whole_pages_and_start_at_one(three_slots):
    """Arrays in them are aligned for TensorFlow, and two slots never share a page."""
    assert three_slots.slot_bytes == 2 * mmap.PAGESIZE
    loans = [three_slots.lend(three_slots.take()) for _ in range(3)]
    addresses = [slots._address(loan) for loan in loans]
    assert [address % mmap.PAGESIZE for address in addresses] == [0, 0, 0]
    assert np.diff(sorted(addresses)).tolist() == [three_slots.slot_bytes] * 2


def test_there_are_no_more_than_there_are(three_slots):
    """A slot that is taken is not given twice; without one the answer is None."""
    assert sorted([three_slots.take(), three_slots.take(), three_slots.take()]) == [0, 1, 2]
    assert three_slots.take() is None
    three_slots.give_back(1)
    assert (three_slots.free_count, three_slots.take()) == (1, 1)


USERS = {
    "the loan": lambda loan: loan,
    "a part": lambda loan: loan[10:20],
    "an array": lambda loan: Arena(loan).empty((4,), np.uint8),
    "a view": lambda loan: Arena(loan).empty((4, 4), np.uint8)[1:, 2],
    "a view of a view": lambda loan: Arena(loan).empty((4, 4), np.float32).reshape(16)[3:].view(np.int32)[::2],
    "a second array": lambda loan: (lambda arena: (arena.empty((4,)), arena.empty((2,)))[1])(Arena(loan)),
    "a buffer of a view": lambda loan: memoryview(Arena(loan).empty((8,), np.uint8)[2:]),
    "frombuffer": lambda loan: np.frombuffer(loan[:8], np.uint8),
    "what TensorFlow does": lambda loan: np.asarray(Arena(loan).empty((4,), np.uint8), order="C"),
}


@pytest.mark.parametrize("use", USERS.values(), ids=USERS.keys())
def test_a_slot_is_free_when_its_last_user_is_gone(three_slots, use):
    """Whatever refers to the memory of a slot keeps it; then the slot goes back at once, without a collection."""
    gc.disable()
    try:
        user = use(three_slots.lend(three_slots.take()))
        assert three_slots.free_count == 2
        del user
        assert three_slots.free_count == 3
    finally:
        gc.enable()


def test_kept_arrays_outlive_the_slots():
    """Who keeps a batch keeps its memory, also when the pool is long gone."""
    made = Slots(2, 100)
    kept = Arena(made.lend(made.take())).empty((100,), np.uint8)
    kept[:] = 7
    del made
    gc.collect()
    assert kept.sum() == 700


def test_an_arena_gives_aligned_arrays_until_it_is_full():
    """After that they come from elsewhere; arrays of no bytes too."""
    memory = memoryview(bytearray(4096))
    arena = Arena(memory)
    arrays = [
        arena.empty((10,), np.uint8),
        arena.empty((3, 5), np.float32),
        arena.empty((0, 9)),
        arena.empty((4000,), "u1"),
    ]
    assert [array.shape for array in arrays] == [(10,), (3, 5), (0, 9), (4000,)]
    assert [array.dtype.str for array in arrays] == ["|u1", "<f4", "<f8", "|u1"]
    places = [slots._address(memoryview(array).cast("B")) - slots._address(memory) for array in (arrays[0], arrays[1])]
    assert places == [0, 64]
    assert arrays[3].flags.owndata
    assert all(array.flags.c_contiguous and array.flags.writeable for array in arrays)


def test_room_for_is_enough_for_arrays_of_these_sizes():
    """Each may lose up to an alignment."""
    arena = Arena(memoryview(bytearray(room_for(1, 65, 130))))
    assert not any(arena.empty((count,), np.uint8).flags.owndata for count in (1, 65, 130))


def test_place_of_knows_what_lies_in_the_arena_and_copies_what_does_not():
    """The bytes are there in both cases; what does not fit has no place."""
    memory = memoryview(bytearray(256))
    arena = Arena(memory)
    inside = arena.empty((10,), np.uint8)
    assert arena.place_of(memoryview(inside)[2:5]) == (2, 5)
    outside = memoryview(bytes(range(100)))
    assert arena.place_of(outside) == (64, 164)
    assert memory[64:164] == outside
    assert arena.place_of(memoryview(bytes(100))) is None


CHILD = """
import sys
from helpers.slots import attach, slot_memory
name, size, slot_bytes = (int(value) for value in sys.argv[1:])
memory = slot_memory(attach(name, size), 1, slot_bytes)
memory[:3] = bytes(value + 1 for value in memory[:3])
"""


def test_another_process_writes_into_a_slot():
    """A child that inherits the descriptor sees the memory, and we see what it writes."""
    made = Slots(2, 100, shared=True)
    loans = {made.take(): None for _ in range(2)}
    loan = {slot: made.lend(slot) for slot in loans}[1]
    loan[:3] = b"abc"
    numbers = map(str, (made.shared.handle, made.shared.size, made.slot_bytes))
    subprocess.run([sys.executable, "-c", CHILD, *numbers], pass_fds=made.shared.descriptors, check=True)
    made.shared.close_handle()
    assert bytes(loan[:3]) == b"bcd"


def test_without_memfd_a_file_without_a_name_does_the_same(monkeypatch, tmp_path):
    """Systems other than Linux: nothing is left in the temporary folder, even while it is in use."""
    monkeypatch.delattr(os, "memfd_create", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    test_another_process_writes_into_a_slot()
    made = Slots(2, 100, shared=True)
    assert list(tmp_path.iterdir()) == []
    made.shared.close_handle()


def test_shared_slots_need_no_room_in_dev_shm():
    """More bytes than a container's 64 MB of /dev/shm, and no name anywhere."""
    made = Slots(4, 40_000_000, shared=True)
    loan = made.lend(made.take())
    loan[-1:] = b"x"
    made.shared.close_handle()
    assert made.shared.descriptors == ()
    assert bytes(loan[-1:]) == b"x"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_keeps_what_it_got_from_private_slots():
    """The parent writes the slot again; the child still sees its batch."""
    made = Slots(1, 100)
    loan = made.lend(made.take())
    loan[:1] = b"a"
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.read(reading, 1)
        os._exit(loan[0])
    loan[:1] = b"b"
    os.write(writing, b"x")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == ord("a")
    os.close(reading)
    os.close(writing)

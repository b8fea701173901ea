"""The training process is killed by SIGKILL: within seconds no worker lives and no shared memory is left."""

from __future__ import annotations

import signal
import sys
import time

import pytest
from leaks import LeakWatch
from remote import ERROR_LIMIT_S, Trainer, place_of, still_there

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux: signals, /proc")


def as_the_pool_starts(trainer, command):
    trainer.send(**command)
    trainer.wait_for_workers(1)


def at_the_end_of_an_epoch(trainer, command):
    trainer.send(**command)
    trainer.wait_for("step", 30, step=13)


def while_a_worker_is_busy(trainer, command):
    trainer.send(**command, fault="sleep")
    deadline = time.monotonic() + 30
    while not command["stamp"].exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)


MOMENTS = [as_the_pool_starts, at_the_end_of_an_epoch, while_a_worker_is_busy]


def test_workers_and_memory_go_with_their_parent(coded_file, stamp):
    """As the pool starts, between two epochs, and while a worker is busy for an hour; ``kills.py`` has more."""
    watch = LeakWatch()
    _, row = place_of(coded_file, 5)
    command = {"file": coded_file, "processes": True, "epochs": 5, "step_s": 0.02, "row": row, "stamp": stamp}
    trainers = [Trainer() for _ in MOMENTS]  # they import Keras at the same time
    try:
        for trainer, reach in zip(trainers, MOMENTS, strict=True):
            reach(trainer.wait_until_ready(), command)
            family = trainer.descendants()
            assert family, reach.__name__
            trainer.signal(signal.SIGKILL)
            assert still_there(family, ERROR_LIMIT_S) == [], reach.__name__
    finally:
        for trainer in trainers:
            trainer.close()
    assert watch.left_behind() == []

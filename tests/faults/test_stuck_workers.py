"""A worker that lives and does not answer: an error after ``stall_timeout_s`` that shows where it is."""

from __future__ import annotations

import sys

import pytest
from remote import ERROR_LIMIT_S, NOTHING_LEFT, Trainer, moment_of, place_of, trains_well

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux: signals, /proc")
STALL_S = 1.5

STUCK = [
    pytest.param("sleep", " in sleeps_in_augment\n", id="sleep", marks=pytest.mark.nightly),  # daily for threads
    pytest.param("loop", " in loops_in_augment\n", id="loop"),
    pytest.param("lock", " in waits_for_a_lock\n", id="lock", marks=pytest.mark.nightly),  # the same
    pytest.param("SIGSTOP", "\n  (it does not write its stack; the system says it is: stopped)", id="SIGSTOP"),
]


def expected_start(where: str, kind: str) -> str:
    return (
        f"no answer for {STALL_S} s; waiting for {where} from 2 worker {kind}, which are alive. Often it is a disk "
        "that does not answer, or an augment function that never returns: the stack below shows where. Raise "
        "stall_timeout_s if a batch may take that long.\nworker "
    )


@pytest.mark.parametrize(("fault", "stack"), STUCK)
def test_a_stuck_process_is_shown_with_its_stack(trainer, coded_file, stamp, fault, stack):
    """The sentence names batch, rows and file, then the process and the function it is in; then training works."""
    where, row = place_of(coded_file, 5)
    answer = trainer.run(file=coded_file, processes=True, fault=fault, row=row, stamp=stamp, stall_timeout_s=STALL_S)
    moment, pid = moment_of(stamp)
    assert answer["error"] == "WorkerStalledError"
    assert answer["message"].startswith(expected_start(where, "processes"))
    assert f"(process {pid}) is at {where}:\n" in answer["message"]
    assert stack in answer["message"] + "\n"
    assert answer["at"] - moment < STALL_S + ERROR_LIMIT_S
    assert (answer["steps"], answer["wrong"], answer["left"]) == (5, [], NOTHING_LEFT)
    assert trains_well(trainer, coded_file, processes=True)


def test_stuck_threads_are_shown_and_do_not_keep_the_program_alive(coded_file, stamp):
    """A thread cannot be killed: it is left behind, the next call works, and the program ends with its exit code."""
    where, row = place_of(coded_file, 5)
    with Trainer() as trainer:
        for fault, function in [("sleep", "sleeps_in_augment"), ("lock", "waits_for_a_lock")]:
            command = {"fault": fault, "row": row, "stamp": stamp, "stall_timeout_s": STALL_S, "grace_s": 0.1}
            answer = trainer.run(file=coded_file, processes=False, **command)
            assert answer["error"] == "WorkerStalledError"
            assert answer["message"].startswith(expected_start(where, "threads"))
            assert f"in {function}\n" in answer["message"]
            assert answer["at"] - moment_of(stamp)[0] < STALL_S + ERROR_LIMIT_S
            assert len(answer["left"]["threads"]) == 1
            assert (answer["steps"], answer["wrong"]) == (5, [])
        assert trains_well(trainer, coded_file, processes=False)
        assert trainer.end(3, ERROR_LIMIT_S) == 3

"""A worker process that dies, in whatever way: an error that says all within seconds, nothing is left."""

from __future__ import annotations

import re
import signal
import sys
import time

import pytest
from remote import ERROR_LIMIT_S, NOTHING_LEFT, moment_of, place_of, trains_well

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux: signals, /proc")

MEMORY = "The usual cause is memory: lower workers, max_queue_size or batch_size."
DEATHS = [
    ("SIGKILL", "was ended by SIGKILL", MEMORY),
    ("SIGKILL with a grandchild", "was ended by SIGKILL", MEMORY),
    ("os._exit", "ended with exit code 3", "Something in it called os._exit() or sys.exit()."),
    ("SystemExit", "ended with exit code 1", "Something in it called os._exit() or sys.exit()."),
]


@pytest.mark.parametrize(("fault", "how", "advice"), DEATHS, ids=[case[0] for case in DEATHS])
def test_a_dead_worker_is_an_error_that_says_all(trainer, coded_file, stamp, fault, how, advice):
    """Worker, process, signal, batch, rows, dataset and file stand in one sentence; the next call trains."""
    where, row = place_of(coded_file, 5)
    answer = trainer.run(file=coded_file, processes=True, fault=fault, row=row, stamp=stamp)
    moment, pid = moment_of(stamp)
    assert answer["error"] == "WorkerDiedError"
    worker = re.match(r"worker [12]", answer["message"]).group()
    assert answer["message"] == f"{worker} (process {pid}) {how} while it made {where}. {advice}"
    assert answer["at"] - moment < ERROR_LIMIT_S
    assert (answer["wrong"], answer["left"]) == ([], NOTHING_LEFT)
    assert trains_well(trainer, coded_file, processes=True)


def test_a_crash_in_native_code_shows_its_stack(trainer, coded_file, stamp):
    """SIGSEGV: the same sentence, and below it the lines in which the worker was."""
    where, row = place_of(coded_file, 5)
    answer = trainer.run(file=coded_file, processes=True, fault="SIGSEGV", row=row, stamp=stamp)
    moment, pid = moment_of(stamp)
    sentence, stack = answer["message"].split("\n", 1)
    assert re.sub("worker [12]", "worker N", sentence) == (
        f"worker N (process {pid}) was ended by SIGSEGV while it made {where}. That is a crash in native code, here:"
    )
    assert " in dies_by_sigsegv\n" in stack
    assert answer["at"] - moment < ERROR_LIMIT_S
    assert (answer["wrong"], answer["left"]) == ([], NOTHING_LEFT)


def test_a_worker_without_memory_is_wrong_in_no_batch(trainer, coded_file, stamp):
    """Wherever the missing memory strikes, there is an error that names a batch, or all batches are right."""
    where, row = place_of(coded_file, 5)
    answer = trainer.run(file=coded_file, processes=True, fault="no memory left", row=row, stamp=stamp)
    moment, _ = moment_of(stamp)
    if answer["error"] is None:
        assert answer["steps"] == answer["all_steps"]
    else:
        assert answer["at"] - moment < ERROR_LIMIT_S
        assert f"of train_img in {coded_file}" in " ".join([answer["message"], *answer["notes"]]), where
    assert (answer["wrong"], answer["left"]) == ([], NOTHING_LEFT)
    assert trains_well(trainer, coded_file, processes=True)


def test_a_death_does_not_wait_for_a_slow_model(trainer, coded_file):
    """With ten batches ready and a second a step, the error comes within the limit, not when its batch has its turn."""
    trainer.send(file=coded_file, processes=True, max_queue_size=10, step_s=1.0, epochs=9)
    trainer.wait_for("step", 30, step=1)
    worker = trainer.workers()[0]
    worker.send_signal(signal.SIGKILL)
    killed = time.monotonic()
    answer = trainer.wait_for("end", 30)
    assert (answer["error"], answer["wrong"]) == ("WorkerDiedError", [])
    assert f"(process {worker.pid}) was ended by SIGKILL while" in answer["message"]
    assert answer["at"] - killed < ERROR_LIMIT_S

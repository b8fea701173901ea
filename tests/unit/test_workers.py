"""WorkerPool: the answers of a function, whoever makes them, and an end in every case."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import types
from concurrent.futures import CancelledError
from pathlib import Path

import psutil
import pytest
from children import NeedsTwoError, pid_of_worker

from helpers.workers import WorkerDiedError, WorkerPool, WorkerStalledError


def square(item: int) -> int:
    return item * item


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_answers_are_those_of_the_function(workers):
    """Items asked for in order, again from the start, and after a jump."""
    with WorkerPool(square, workers, ahead=4) as pool:
        assert [pool.get(item) for item in [*range(10), 0, 1, 2, 50, 51]] == [
            square(item) for item in [*range(10), 0, 1, 2, 50, 51]
        ]


def test_a_slow_item_does_not_change_the_order():
    """Workers overtake each other; the caller does not see it."""

    def uneven(item):
        time.sleep(0.02 if item % 3 == 0 else 0)
        return item

    with WorkerPool(uneven, 3, ahead=5) as pool:
        assert [pool.get(item) for item in range(12)] == list(range(12))


def test_at_most_ahead_items_are_made_and_none_from_stop_on():
    """The queue is bounded, and nothing is read past the end."""
    made = []
    with WorkerPool(made.append, 1, ahead=3) as pool:
        pool.get(0, stop=5)
        time.sleep(0.1)
        assert made == [0, 1, 2]
        for item in range(1, 5):
            pool.get(item, stop=5)
        time.sleep(0.1)
        assert made == [0, 1, 2, 3, 4]


def test_items_are_made_by_several_threads_at_once():
    """Two workers are two: each waits for the other."""
    together = threading.Barrier(2, timeout=5)

    def meet(item):
        if item < 2:
            together.wait()
        return item

    with WorkerPool(meet, 2, ahead=2) as pool:
        assert [pool.get(0), pool.get(1)] == [0, 1]


def test_an_exception_arrives_and_the_pool_goes_on():
    """One bad item is one error."""

    def fails_at_two(item):
        if item == 2:
            raise LookupError("two")
        return item

    with WorkerPool(fails_at_two, 2) as pool:
        assert pool.get(1) == 1
        with pytest.raises(LookupError, match="two"):
            pool.get(2)
        assert pool.get(3) == 3


def test_a_time_out_of_the_function_itself_is_not_a_stall():
    """TimeoutError from a disk is handed on as it is."""

    def slow_disk(item):
        raise TimeoutError(f"disk at {item}")

    with WorkerPool(slow_disk, 1) as pool, pytest.raises(TimeoutError, match="disk at 0") as caught:
        pool.get(0)
    assert not isinstance(caught.value, WorkerStalledError)


def test_no_answer_in_time_is_an_error():
    """The sentence names the item and the workers."""
    release = threading.Event()
    with WorkerPool(lambda item: release.wait(5), 2, timeout_s=0.1, describe="batch {}".format) as pool:  # noqa: ARG005
        with pytest.raises(WorkerStalledError) as caught:
            pool.get(7)
        release.set()
    assert str(caught.value) == (
        "no answer for 0.1 s; waiting for batch 7 from 2 worker threads, which are alive. The usual cause is a disk "
        "that does not answer; raise stall_timeout_s if a batch may take that long."
    )


def test_a_closed_pool_has_no_threads_and_closes_twice_quietly():
    """After close() an answer is refused, not waited for."""
    pool = WorkerPool(square, 2)
    assert repr(pool) == "WorkerPool(2 threads, 10 ahead): not started"
    pool.get(0)
    pool.close()
    pool.close()
    with pytest.raises(CancelledError):
        pool.get(1)
    assert repr(pool) == "WorkerPool(2 threads, 10 ahead): closed"
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("helpers-worker")]


def test_processes_answer_for_a_function_that_cannot_be_imported():
    """A function made on the spot, as in a notebook cell, travels by value."""
    factor = 3
    with WorkerPool(lambda item: item * factor, 2, processes=True) as pool:
        assert [pool.get(item) for item in range(6)] == [0, 3, 6, 9, 12, 15]


def test_the_exception_of_a_process_keeps_its_notes_and_its_trace():
    """What the worker knew arrives with the error."""

    def fails(item):
        error = LookupError("worker")
        error.add_note(f"item {item}")
        raise error

    with WorkerPool(fails, 1, processes=True) as pool, pytest.raises(LookupError, match="worker") as caught:
        pool.get(4)
    assert caught.value.__notes__ == ["item 4"]
    assert "in fails" in str(caught.value.__cause__)


NOTEBOOK_ERROR = """
from helpers.workers import WorkerPool
class TooDark(Exception):
    pass
def fails(item):
    raise TooDark("plate 7")
with WorkerPool(fails, 1, processes=True, ahead=1) as pool:
    try:
        pool.get(0)
    except TooDark as error:
        print("caught", error)
"""


def test_an_exception_class_of_the_main_script_comes_back_as_itself(tmp_path):
    """A class from a script or a notebook cell, which workers cannot import, is caught by its own name."""
    path = tmp_path / "own_error.py"
    path.write_text(NOTEBOOK_ERROR)
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == ("caught plate 7\n", "")


def test_an_exception_that_cannot_be_pickled_arrives_as_its_text():
    """It is not taken for a killed worker, and keeps its notes and its trace."""

    def fails(item):
        error = NeedsTwoError("a.jpg", "too dark")
        error.add_note(f"item {item}")
        raise error

    with WorkerPool(fails, 1, processes=True, ahead=1) as pool, pytest.raises(RuntimeError) as caught:
        pool.get(4)
    assert str(caught.value) == "NeedsTwoError: a.jpg: too dark"
    assert caught.value.__notes__ == ["item 4"]
    assert "in fails" in str(caught.value.__cause__)


def test_what_cannot_travel_to_a_process_is_refused_by_name():
    """A lock in the function is a TypeError that says what to do."""
    lock = threading.Lock()
    with WorkerPool(lambda item: lock.locked(), 1, processes=True) as pool, pytest.raises(TypeError) as caught:  # noqa: ARG005
        pool.get(0)
    assert str(caught.value) == (
        "what the workers run cannot be sent to a process: cannot pickle '_thread.lock' object. It, or the augment "
        "function in it, holds something that belongs to one process: an open file, a lock, a generator. Make that "
        "inside the function, or use threads: use_multiprocessing=False."
    )


def test_a_module_that_is_missing_in_the_worker_is_named(monkeypatch):
    """What cannot be loaded there is that error, not a killed worker."""
    module = types.ModuleType("made_here")
    exec("def answer(item): return item", module.__dict__)
    monkeypatch.setitem(sys.modules, "made_here", module)
    with WorkerPool(module.answer, 1, processes=True) as pool, pytest.raises(ModuleNotFoundError) as caught:
        pool.get(0)
    assert str(caught.value) == "No module named 'made_here'"
    assert caught.value.__notes__ == ["while a worker process loaded the function it runs"]


def test_a_worker_killed_between_two_calls_is_reported():
    """The next call finds the pool broken: the same error, with the item."""
    with WorkerPool(pid_of_worker, 1, processes=True, ahead=1) as pool:
        os.kill(pool.get(0), signal.SIGKILL)
        deadline = time.monotonic() + 10
        while not pool._executor._broken and time.monotonic() < deadline:
            time.sleep(0.01)
        with pytest.raises(WorkerDiedError, match="before item 1 was made"):
            pool.get(1)


@pytest.mark.parametrize("timeout_s", [0.2, 60])
def test_closing_does_not_wait_for_a_worker_process_that_hangs(monkeypatch, timeout_s):
    """After a stall, and after an interrupt, a stuck process is killed; the pool's own thread ends without a trace."""
    monkeypatch.setattr("helpers.workers._PATIENCE_S", 0.1)

    def hangs_from_one_on(item):
        time.sleep(60 * min(item, 1))

    for _ in range(3):
        pool = WorkerPool(hangs_from_one_on, 1, processes=True, ahead=20)
        pool.get(0)
        pool._timeout_s = timeout_s
        if timeout_s < 1:
            with pytest.raises(WorkerStalledError):
                pool.get(1)
        start = time.monotonic()
        pool.close()
        assert time.monotonic() - start < 10


@pytest.mark.parametrize("processes", [False, True])
def test_who_waits_while_the_pool_is_closed_is_sent_away(monkeypatch, processes):
    """Closing from another thread cancels; it is not taken for a death."""
    monkeypatch.setattr("helpers.workers._PATIENCE_S", 0.1)
    caught = []

    def waits(item):
        time.sleep(0.5 if item == 1 else 0)

    pool = WorkerPool(waits, 1, processes=processes, ahead=3)
    pool.get(0)

    def ask_for_two():
        try:
            pool.get(2)
        except CancelledError as error:
            caught.append(error)

    thread = threading.Thread(target=ask_for_two)
    thread.start()
    time.sleep(0.1)
    pool.close()
    thread.join()
    assert len(caught) == 1


SCRIPT = """
import sys
from helpers.workers import WorkerPool
print("main runs")
def loaded(item):
    import os, sys
    from helpers import batches
    return os.getpid(), sorted({"keras", "tensorflow"} & set(sys.modules)), os.environ["CUDA_VISIBLE_DEVICES"]
pool = WorkerPool(loaded, 1, processes=True, ahead=1)
pid, modules, gpus = pool.get(0)
print(pid, modules, repr(gpus), flush=True)
if len(sys.argv) > 1:
    sys.stdin.read()
pool.close()
"""


@pytest.fixture
def script(tmp_path) -> Path:
    """A script without a main guard."""
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    return path


def test_a_script_needs_no_main_guard_and_its_workers_load_no_keras(script):
    """The main script runs once; a worker that makes batches imports neither Keras nor TensorFlow, and sees no GPU."""
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60, check=True)
    first, second = done.stdout.splitlines()
    assert first == "main runs"
    assert second.split(" ", 1)[1] == "[] ''"
    assert done.stderr == ""


def test_workers_end_when_their_parent_is_killed(script):
    """SIGKILL of the parent leaves no worker behind."""
    parent = subprocess.Popen(
        [sys.executable, script, "wait"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with parent:
        parent.stdout.readline()
        worker = psutil.Process(int(parent.stdout.readline().split()[0]))
        parent.kill()
    deadline = time.monotonic() + 5
    while worker.is_running() and worker.status() != psutil.STATUS_ZOMBIE and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not worker.is_running() or worker.status() == psutil.STATUS_ZOMBIE

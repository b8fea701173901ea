"""WorkerPool: the answers of a function, whoever makes them, and an end in every case."""

from __future__ import annotations

import ast
import collections
import ctypes
import gc
import mmap
import os
import re
import signal
import subprocess
import sys
import threading
import time
import types
from concurrent.futures import CancelledError
from pathlib import Path

import numpy as np
import psutil
import pytest
from children import NeedsTwoError, filled, pid_of_worker, sticks_at_one, view_of_one_array

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


STALLED = (
    "no answer for {} s; waiting for batch 1 from 1 worker {}, which are alive. Often it is a disk that does not "
    "answer, or an augment function that never returns: the stack below shows where. Raise stall_timeout_s if a batch "
    "may take that long.\nworker 1{} is at batch 1:\n"
)


@pytest.mark.parametrize("processes", [False, True])
def test_no_answer_in_time_is_an_error_with_the_stack_of_the_worker(monkeypatch, processes):
    """The sentence names the item and the workers; the lines below it say where the worker is."""
    monkeypatch.setattr("helpers.workers._PATIENCE_S", 0.1)
    release = threading.Event()

    def stuck_here(item):
        if item == 1:
            release.wait(20) if not processes else sticks_at_one(item)
        return os.getpid()

    if processes:
        release = None
    with WorkerPool(stuck_here, 1, processes=processes, timeout_s=15, describe="batch {}".format) as pool:
        pid = pool.get(0)
        pool._timeout_s = 0.3
        with pytest.raises(WorkerStalledError) as caught:
            pool.get(1)
        if release:
            release.set()
    text = str(caught.value)
    kind, words = ("processes", f" (process {pid})") if processes else ("threads", "")
    assert text.startswith(STALLED.format("0.3", kind, words))
    assert "stuck_here" in text
    assert "_read_tasks" not in text
    assert "helpers/workers.py" not in text


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="needs signals")
def test_a_stopped_process_is_told_by_its_state():
    """It cannot say where it is; the system says that it is stopped."""
    with WorkerPool(pid_of_worker, 1, processes=True, ahead=1, describe="batch {}".format) as pool:
        pid = pool.get(0)
        os.kill(pid, signal.SIGSTOP)
        pool._timeout_s = 0.2
        with pytest.raises(WorkerStalledError) as caught:
            pool.get(1)
    assert str(caught.value) == STALLED.format("0.2", "processes", f" (process {pid})") + (
        "  (it does not write its stack; the system says it is: stopped)"
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


def test_an_exception_class_that_only_the_worker_knows_arrives_as_its_text():
    """Its module cannot be imported here; what it says, and where, is not lost."""

    def fails(item):
        module = types.ModuleType("only_there")
        exec("class OwnError(Exception): pass", module.__dict__)
        sys.modules["only_there"] = module
        error = module.OwnError("plate 7")
        error.add_note(f"item {item}")
        raise error

    with WorkerPool(fails, 1, processes=True, ahead=1) as pool, pytest.raises(RuntimeError) as caught:
        pool.get(4)
    assert str(caught.value) == "OwnError: plate 7"
    assert caught.value.__notes__ == ["item 4"]
    assert "in fails" in str(caught.value.__cause__)


def test_closing_does_not_wait_for_a_process_that_even_sigkill_does_not_end(monkeypatch):
    """It is in the kernel, at a disk that does not answer; the error of the stall must reach the user."""
    monkeypatch.setattr("helpers.workers._PATIENCE_S", 0.1)
    monkeypatch.setattr("helpers.workers._Process.end", lambda process: None)
    pool = WorkerPool(pid_of_worker, 1, processes=True, ahead=1)
    os.kill(pool.get(0), signal.SIGSTOP)
    process = pool._workers[0].maker._process
    start = time.monotonic()
    pool.close()
    assert time.monotonic() - start < 5
    process.kill()
    process.wait()


def test_an_error_that_is_overdue_is_told_until_it_was_met(monkeypatch):
    """A slow consumer can look for errors ahead of it; one that it met, and lived with, is not told again."""
    monkeypatch.setattr("helpers.workers._OVERDUE_S", 0.0)

    def fails_at_two(item):
        if item == 2:
            raise LookupError("two")
        return item

    with WorkerPool(fails_at_two, 1, ahead=4) as pool:
        pool.get(0)
        deadline = time.monotonic() + 5
        while pool.overdue_error is None and time.monotonic() < deadline:
            time.sleep(0.01)
        assert str(pool.overdue_error) == "two"
        pool.get(1)
        with pytest.raises(LookupError):
            pool.get(2)
        assert pool.overdue_error is None


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
    """The next call finds the process gone; the sentence names worker, process, signal and item, again and again."""
    with WorkerPool(pid_of_worker, 1, processes=True, ahead=1) as pool:
        pid = pool.get(0)
        os.kill(pid, signal.SIGKILL)
        for item in (1, 2):
            with pytest.raises(WorkerDiedError) as caught:
                pool.get(item)
            assert re.sub("waited, after item 0", "made item 1", str(caught.value)) == (  # noticed before it was asked?
                f"worker 1 (process {pid}) was ended by SIGKILL while it made item 1. The usual cause is memory: lower "
                "workers, max_queue_size or batch_size."
            )


def test_an_idle_worker_that_dies_is_noticed():
    """Nobody asks for anything, as when the other worker gets all the work: the death is known within seconds."""
    with WorkerPool(pid_of_worker, 1, processes=True, ahead=1) as pool:
        pid = pool.get(0)
        assert pool.overdue_error is None
        os.kill(pid, signal.SIGKILL)
        deadline = time.monotonic() + 5
        while pool.overdue_error is None and time.monotonic() < deadline:
            time.sleep(0.02)
        with pytest.raises(WorkerDiedError) as caught:
            pool.get(1)
    assert caught.value is pool.overdue_error
    assert str(caught.value).startswith(f"worker 1 (process {pid}) was ended by SIGKILL while it waited, after item 0.")


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


DEATHS = {
    "killed": (
        lambda: os.kill(os.getpid(), signal.SIGKILL),
        "was ended by SIGKILL while it made item 1. The usual cause is memory: lower workers, max_queue_size or "
        "batch_size.",
    ),
    "os._exit": (
        lambda: os._exit(3),
        "ended with exit code 3 while it made item 1. Something in it called os._exit() or sys.exit().",
    ),
    "sys.exit": (
        lambda: sys.exit(4),
        "ended with exit code 4 while it made item 1. Something in it called os._exit() or sys.exit().",
    ),
    "a job system": (
        lambda: os.kill(os.getpid(), signal.SIGTERM),
        "was ended by SIGTERM while it made item 1. Somebody, or a job system, ended it.",
    ),
    "a crash": (
        lambda: ctypes.string_at(0),
        "was ended by SIGSEGV while it made item 1. That is a crash in native code, here:\nFatal Python error: "
        "Segmentation fault",
    ),
}


@pytest.mark.parametrize(("die", "words"), DEATHS.values(), ids=DEATHS.keys())
def test_a_death_is_told_with_its_cause(die, words):
    """Worker, process, signal or exit code, item and advice; the other worker's answers do not hide it."""

    def function(item):
        if item == 1:
            die()
        return os.getpid()

    with WorkerPool(function, 2, processes=True) as pool, pytest.raises(WorkerDiedError) as caught:
        _ = [pool.get(item) for item in range(20)]
    assert re.sub(r"^worker [12] \(process \d+\) ", "", str(caught.value)).startswith(words)


BYTES = 100_000 + 12
BOTH = pytest.mark.parametrize("processes", [False, True], ids=["threads", "processes"])


def check_filled(answer, item):
    images, labels, extra, words = answer
    assert (images == item % 251).all()
    assert labels.tolist() == [item] * 3
    assert (extra.tolist(), words) == ([item, -item], {"item": item})


@BOTH
def test_arrays_lie_in_slots_that_are_used_again(processes):
    """A consumer that lets go sees few different places of memory, page-aligned, whatever the number of items."""
    places = set()
    with WorkerPool(filled, 2, processes=processes, ahead=3, answer_bytes=BYTES) as pool:
        for item in range(60):
            answer = pool.get(item)
            check_filled(answer, item)
            places.add(answer[0].ctypes.data)
            assert answer[0].flags.writeable
            del answer
    assert len(places) <= pool.most_held == 11
    assert not any(place % mmap.PAGESIZE for place in places)


@BOTH
def test_kept_answers_stay_as_they_are(processes):
    """A careless list of all answers: past a number of slots the pool hands out copies, and waits for nobody."""
    with WorkerPool(filled, 2, processes=processes, ahead=3, answer_bytes=BYTES) as pool:
        kept = [pool.get(item) for item in range(60)]
    for item, answer in enumerate(kept):
        check_filled(answer, item)


@BOTH
def test_a_slow_consumer_with_a_few_batches_in_hand_sees_no_change(processes):
    """Two are held while the next are made, as a prefetch does; none is written again."""
    held = collections.deque(maxlen=3)
    with WorkerPool(filled, 2, processes=processes, ahead=4, answer_bytes=BYTES) as pool:
        for item in range(40):
            held.append((item, pool.get(item)))
            if item % 7 == 0:
                time.sleep(0.02)
            for number, answer in held:
                check_filled(answer, number)


@BOTH
def test_views_of_a_slot_arrive_as_they_are(processes):
    """Also read-only ones, and such as are not contiguous."""
    with WorkerPool(view_of_one_array, 1, processes=processes, answer_bytes=200) as pool:
        for item in range(30):
            expected = view_of_one_array(item, np.empty)
            answer = pool.get(item)
            assert [part.tolist() for part in answer] == [part.tolist() for part in expected]
            assert not answer[1].flags.writeable


@BOTH
def test_an_answer_larger_than_said_arrives_too(processes):
    """The slot is too small: the arrays come another way."""
    with WorkerPool(filled, 1, processes=processes, answer_bytes=50_000) as pool:
        for item in range(20):
            check_filled(pool.get(item), item)


@BOTH
def test_a_failure_gives_its_slot_back(processes):
    """Many errors do not use the slots up."""

    def fails_at_odd(item, empty):
        answer = filled(item, empty)
        if item % 2:
            raise LookupError(item)
        return answer

    places = set()
    with WorkerPool(fails_at_odd, 1, processes=processes, ahead=2, answer_bytes=BYTES) as pool:
        for item in range(60):
            if item % 2:
                with pytest.raises(LookupError):
                    pool.get(item)
                gc.collect()  # an exception and its frames hold each other, and the slot, until then
            else:
                places.add(pool.get(item)[0].ctypes.data)
    assert len(places) <= pool.most_held


def test_without_workers_arrays_are_new():
    """Nothing is shared, and nothing is re-used."""
    with WorkerPool(filled, 0, answer_bytes=BYTES) as pool:
        kept = [pool.get(item) for item in range(5)]
    for item, answer in enumerate(kept):
        check_filled(answer, item)


@BOTH
def test_a_forgotten_pool_ends_its_workers(processes):
    """Without close(), when the last reference goes."""
    pool = WorkerPool(pid_of_worker, 2, processes=processes)
    pid = pool.get(0)
    assert psutil.pid_exists(pid)
    del pool
    gc.collect()
    assert processes != psutil.pid_exists(pid)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("helpers-worker")]


ENDS = """
import sys, threading, time
from helpers.workers import WorkerPool
def function(item):
    while item == 3:
        time.sleep(0.01)
    return item
pool = WorkerPool(function, 2, processes=sys.argv[1] == "True")
print(pool.get(0), flush=True)
time.sleep(0.3)
{end}
"""


@BOTH
@pytest.mark.parametrize(
    ("end", "code"),
    [
        pytest.param("", 0, marks=pytest.mark.nightly),
        ("sys.exit(5)", 5),
        pytest.param("1 / 0", 1, marks=pytest.mark.nightly),
    ],
)
def test_python_ends_with_a_pool_that_nobody_closed(tmp_path, processes, end, code):
    """Also with a worker that is stuck, thread or process: promptly, and with its own exit code."""
    path = tmp_path / "ends.py"
    path.write_text(ENDS.format(end=end))
    done = subprocess.run(
        [sys.executable, path, str(processes)], capture_output=True, text=True, timeout=30, check=False
    )
    assert (done.stdout, done.returncode) == ("0\n", code)
    assert done.stderr.rstrip().endswith("ZeroDivisionError: division by zero" if code == 1 else "")


FORKS = """
import os, sys
from helpers.workers import WorkerPool
pool = WorkerPool(lambda item: item, 1, processes=True, ahead=1)
print(pool.get(0), flush=True)
if os.fork() == 0:
    sys.exit(0)
os.wait()
print(pool.get(1), flush=True)
pool.close()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_that_ends_leaves_the_workers_of_its_parent_alone(tmp_path):
    """Its copy of the pool is not its own."""
    path = tmp_path / "forks.py"
    path.write_text(FORKS)
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, timeout=30, check=False)
    assert (done.stdout, done.stderr) == ("0\n1\n", "")


def test_what_a_worker_prints_does_not_disturb_the_answers(capfd):
    """It goes to standard error; and reading the keyboard there finds nothing."""

    def talks(item):
        os.write(1, b"raw\n")
        sys.stdout.write(f"printed {item} {sys.stdin.read()!r}\n")
        sys.stdout.flush()
        return item

    with WorkerPool(talks, 1, processes=True, ahead=1) as pool:
        assert pool.get(0) == 0
    captured = capfd.readouterr()
    assert captured.out == ""
    assert captured.err == "raw\nprinted 0 ''\n"


def test_prepare_begins_before_the_first_question():
    """Keras may compile its step meanwhile."""
    made = []
    with WorkerPool(made.append, 1, ahead=3) as pool:
        pool.prepare(4, stop=6)
        deadline = time.monotonic() + 5
        while len(made) < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert made == [4, 5]


def test_several_threads_may_ask_at_once():
    """Each gets its own answer, in whatever order they come."""
    found = {}
    with WorkerPool(square, 2, ahead=3) as pool:
        threads = [
            threading.Thread(
                target=lambda start: found.update({i: pool.get(i) for i in range(start, 60, 3)}), args=(n,)
            )
            for n in range(3)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert found == {item: square(item) for item in range(60)}


MODULES = """
import sys
from helpers.workers import WorkerPool
from helpers import Augment
from helpers.batches import BatchSource
def modules(item):
    source.item(item)
    return sorted({name.partition(".")[0] for name, module in sys.modules.items() if getattr(module, "__file__", None)})
source = BatchSource(sys.argv[1], augment=Augment(rotation=10))
with WorkerPool(modules, 1, processes=True, ahead=1) as pool:
    found = set(pool.get(0)) - sys.stdlib_module_names
print(sorted(found))
"""


def test_a_worker_that_makes_batches_imports_four_packages_and_the_kit(coded_file, tmp_path):
    """NumPy, h5py, OpenCV and cloudpickle, and the library that inflates; what these import is their own business."""
    path = tmp_path / "modules.py"
    path.write_text(MODULES)
    done = subprocess.run([sys.executable, path, coded_file], capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr == ""
    found = set(ast.literal_eval(done.stdout)) - {name for name in ast.literal_eval(done.stdout) if name[0] == "_"}
    assert found <= {"cloudpickle", "cv2", "deflate", "h5py", "helpers", "isal", "numpy"}

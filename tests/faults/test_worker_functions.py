"""What the function of a worker may do, and how a program may have been started: an answer, or one clear error."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import subprocess
import sys
import threading
from pathlib import Path

import cloudpickle
import pytest
from leaks import LeakWatch

import helpers
from helpers.workers import WorkerDiedError, WorkerPool

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # as from a notebook cell: workers cannot import this file
BOTH = pytest.mark.parametrize("processes", [False, True], ids=["threads", "processes"])
KIT = str(Path(helpers.__file__).parents[1])
linux_only = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux: fork, shells, /proc")


def answer_of(function, *, processes: bool, items: int = 3) -> list:
    """What a pool of one worker gives for items 0, 1, ...; ``function`` goes wrong at item 1."""

    def at_one(item):
        if item == 1:
            function()
        return item

    with WorkerPool(at_one, 1, processes=processes, ahead=1) as pool:
        return [pool.get(item) for item in range(items)]


def raises_what_has_no_text():
    class NoTextError(Exception):
        def __str__(self):
            return self.missing

    error = NoTextError()
    error.add_note("plate 7")
    raise error


def raises_what_drops_its_notes():
    try:
        json.loads("{")
    except ValueError as error:
        error.add_note("plate 7")
        raise


def raises_what_does_not_come_back():
    class OtherError(Exception):
        def __reduce__(self):
            return str, ("no exception",)

    error = OtherError("too dark")
    error.add_note("plate 7")
    raise error


ODD = {
    "no text": (raises_what_has_no_text, "NoTextError", None),
    "notes that do not travel": (raises_what_drops_its_notes, "JSONDecodeError", None),
    "a pickle that is something else": (raises_what_does_not_come_back, "RuntimeError", "OtherError: too dark"),
}


@pytest.mark.parametrize("case", ODD)
def test_an_odd_exception_of_a_worker_process_is_no_death(case):
    """It arrives, by its name or as its text, with its notes and the trace: nothing called os._exit()."""
    function, name, text = ODD[case]
    with pytest.raises(Exception) as caught:  # noqa: PT011 - its class is compared by name
        answer_of(function, processes=True)
    assert type(caught.value).__name__ == name
    assert caught.value.__notes__ == ["plate 7"]
    assert f"in {function.__name__}" in str(caught.value.__cause__)
    assert text is None or str(caught.value) == text


ENDS = {"GeneratorExit": GeneratorExit, "CancelledError": asyncio.CancelledError}


@BOTH
@pytest.mark.parametrize("name", ENDS)
def test_what_no_except_clause_catches_names_the_worker_and_the_item(processes, name):
    """What ends a program, other than sys.exit(), is told by its own name, by a thread and by a process."""

    def ends():
        raise ENDS[name]("too late")

    with pytest.raises(WorkerDiedError) as caught:
        answer_of(ends, processes=processes)
    assert str(caught.value).partition(" ended with ")[2] == (
        f"{name}('too late') while it made item 1. Something in it called sys.exit(), or raised what ends a program."
    )


def prints_a_lot():
    for _ in range(2_000):
        print("x" * 100)  # noqa: T201 - this is the fault


def closes_its_streams():
    sys.stdin.close()
    sys.stdout.close()
    os.close(0)
    os.close(1)


def forgets_where_it_is():
    os.environ.clear()
    os.chdir("/")


def starts_processes_of_its_own():
    subprocess.run([sys.executable, "-c", ""], check=True)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.map(abs, [-3]) == [3]


def leaves_a_fork_that_ends():
    if os.fork() == 0:
        os._exit(0)


def raises_in_a_thread_of_its_own():
    threading.excepthook = lambda _: None
    thread = threading.Thread(target=lambda: 1 / 0)
    thread.start()
    thread.join()


HARMLESS = [
    prints_a_lot,
    closes_its_streams,
    forgets_where_it_is,
    starts_processes_of_its_own,
    leaves_a_fork_that_ends,
    raises_in_a_thread_of_its_own,
]


@linux_only
def test_what_a_careless_function_does_to_its_own_process_stays_there():
    """Streams, environment, folder and children of a worker process are its own: all answers come."""

    def careless(item):
        HARMLESS[item]()
        return item

    with WorkerPool(careless, 1, processes=True, ahead=1) as pool:
        assert [pool.get(item) for item in range(len(HARMLESS))] == list(range(len(HARMLESS)))


def run(*command, source: str | None = None, **options) -> subprocess.CompletedProcess:
    """A Python program with the kit on its path."""
    return subprocess.run(
        [sys.executable, *map(str, command)],
        input=source,
        env=os.environ | {"PYTHONPATH": KIT},
        capture_output=True,
        text=True,
        timeout=60,
        **options,
    )


TRAINS_WHEN_IMPORTED = """
from helpers.workers import WorkerPool
print("the module runs", flush=True)
def augment(item):
    return item
with WorkerPool(augment, 1, processes=True, ahead=1, timeout_s=5) as pool:
    print(pool.get(0))
"""


def test_a_module_that_trains_when_it_is_imported_starts_no_chain_of_workers(tmp_path):
    """Its worker imports it to find the function, and would train too, in a worker that imports it, and so on."""
    (tmp_path / "training_module.py").write_text(TRAINS_WHEN_IMPORTED)
    watch = LeakWatch()
    done = run("-c", f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import training_module")
    assert (done.returncode, done.stdout) == (1, "the module runs\n")
    assert done.stderr.splitlines()[-2] == (
        "RuntimeError: a worker process must not start workers of its own while it imports what it will run: the "
        "module of that function starts a training as soon as it is imported. Put the training into a function, or "
        'below `if __name__ == "__main__":`.'
    )
    assert done.stderr.count("the module runs") == 1  # in the worker, once
    assert watch.left_behind() == []


CHANGES_FOLDER = """
import os, sys
sys.path.insert(0, "")  # as in a notebook
os.chdir({kit!r})
from helpers.workers import WorkerPool
os.chdir({elsewhere!r})
with WorkerPool(abs, 1, processes=True, ahead=1) as pool:
    print(pool.get(-3))
"""


def test_workers_use_the_kit_that_their_parent_uses(tmp_path):
    """The folder changed after the import, and another file called helpers lies in the new one."""
    (tmp_path / "helpers.py").write_text("raise ImportError('the wrong helpers')\n")
    done = run("-c", CHANGES_FOLDER.format(kit=KIT, elsewhere=str(tmp_path)))
    assert (done.stdout, done.stderr) == ("3\n", "")


PRINTS = """
import sys
from helpers.workers import WorkerPool
def talks(item, empty):
    print("talking", flush=True)
    answer = empty((10,))
    answer[:] = item
    return answer
with WorkerPool(talks, 1, processes=True, ahead=1, answer_bytes=1000) as pool:
    open(sys.argv[1], "w").write(str(pool.get(3).sum()))
"""


@linux_only
@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_program_without_standard_streams_has_workers(tmp_path, closed):
    """As a service may be started: descriptors 0 to 2 are free, and what a pool opens must not land there."""
    (tmp_path / "script.py").write_text(PRINTS)
    command = f'exec "{sys.executable}" script.py answer.txt {closed}'
    done = subprocess.run(["sh", "-c", command], cwd=tmp_path, env=os.environ | {"PYTHONPATH": KIT}, timeout=60)
    assert done.returncode == 0
    assert (tmp_path / "answer.txt").read_text() == "30.0"


FROM_STANDARD_INPUT = """
from helpers.workers import WorkerPool
class Doubles:
    def __call__(self, item):
        return 2 * item
with WorkerPool(Doubles(), 1, processes=True, ahead=1) as pool:
    print(pool.get(4))
"""

UNDER_MULTIPROCESSING = """
import multiprocessing, sys
from helpers.workers import WorkerPool
def job():
    with WorkerPool(lambda item: 2 * item, 1, processes=True, ahead=1) as pool:
        print(pool.get(4), flush=True)
if __name__ == "__main__":  # multiprocessing needs it
    multiprocessing.set_start_method(sys.argv[1])
    process = multiprocessing.Process(target=job, daemon=True)
    with WorkerPool(lambda item: item, 1, processes=True, ahead=1) as pool:
        print(pool.get(1), flush=True)
    process.start()
    process.join(30)
    sys.exit(process.exitcode)
"""


def test_a_program_from_standard_input_has_workers():
    """There is no file that a worker could import its class from."""
    done = run("-", source=FROM_STANDARD_INPUT)
    assert (done.stdout, done.stderr) == ("8\n", "")


@linux_only
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_the_start_method_of_a_program_does_not_matter(tmp_path, method):
    """Workers of the main process, and of a daemon that multiprocessing started, which may have no children."""
    path = tmp_path / "script.py"
    path.write_text(UNDER_MULTIPROCESSING)
    done = run(path, method)
    assert (done.returncode, done.stdout, done.stderr) == (0, "1\n8\n", "")

"""The failure labs: whatever a child does, the kernel lives on and can say how it ended."""

import signal
import socket
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import psutil
import pytest

from helpers.course.failures import clean, free_address, run_in_child

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")

ENDINGS = [
    ("fine", "print('done')", 0, None, "The child ended normally."),
    (
        "error",
        "raise ValueError('rows differ')",
        1,
        None,
        "The child stopped with exit code 1.\nLast error line: ValueError: rows differ",
    ),
    (
        "syntax error",
        "x = (",
        1,
        None,
        "The child stopped with exit code 1.\nLast error line: SyntaxError: '(' was never closed",
    ),
    ("exit code", "raise SystemExit(3)", 3, None, "The child stopped with exit code 3."),
    (
        "killed",
        "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
        -9,
        "SIGKILL",
        "The child was killed by SIGKILL.",
    ),
    (
        "crash",
        "import ctypes; ctypes.string_at(0)",
        -11,
        "SIGSEGV",
        "The child was killed by SIGSEGV (a crash in C code).",
    ),
]


@linux_only
@pytest.mark.parametrize(
    ("code", "exit_code", "name", "text"), [case[1:] for case in ENDINGS], ids=[case[0] for case in ENDINGS]
)
def test_each_ending_has_its_own_words(code, exit_code, name, text):
    """Exit code, signal and the printed text tell how the child ended; a card follows where the ending is known."""
    outcome = run_in_child(code)
    said = str(outcome).removesuffix(f"\n{outcome.diagnosis}")
    assert (outcome.exit_code, outcome.signal, said) == (exit_code, name, text)
    assert repr(outcome) == str(outcome)


@linux_only
def test_a_crash_has_a_card():
    """A child that died without a word is still explained where its signal says enough."""
    assert run_in_child("import ctypes; ctypes.string_at(0)").diagnosis.code == "crash-in-c-code"
    assert run_in_child("raise SystemExit(3)").diagnosis is None


def test_time_limit_stops_child_and_grandchildren():
    """After the time limit no process of the lab is left, also not one that the child started."""
    outcome = run_in_child(
        """
        import subprocess, sys, time
        grandchild = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
        print("grandchild", grandchild.pid)
        time.sleep(60)
        """,
        seconds=2,
    )
    assert outcome.timed_out
    assert str(outcome) == "The child did not end within its time limit and was stopped."
    assert 2 <= outcome.seconds < 10
    assert _gone(int(outcome.output.split()[1]))


def test_grandchild_left_behind_is_killed():
    """A child that ends and leaves a process running leaves none after run_in_child."""
    outcome = run_in_child(
        """
        import subprocess, sys
        print(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]).pid)
        """
    )
    assert outcome.ok
    assert _gone(int(outcome.output))


@linux_only
def test_nothing_survives_the_death_of_the_kernel(tmp_path):
    """When the process that called run_in_child is killed, child and grandchild die at once."""
    note = tmp_path / "pids"
    snippet = textwrap.dedent(
        f"""
        import os, pathlib, subprocess, sys, time
        grandchild = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
        pathlib.Path({str(note)!r} + "_").write_text(f"{{os.getpid()}} {{grandchild.pid}}")
        os.rename({str(note)!r} + "_", {str(note)!r})
        time.sleep(60)
        """
    )
    kernel = subprocess.Popen([
        sys.executable,
        "-c",
        f"from helpers.course.failures import run_in_child; run_in_child({snippet!r})",
    ])
    _wait_for(note.exists)
    kernel.send_signal(signal.SIGKILL)
    kernel.wait()
    assert all(_gone(int(pid)) for pid in note.read_text().split())


@linux_only
def test_memory_limit_ends_in_a_memory_error():
    """Asking for more than the limit raises MemoryError in the child; the kernel's own memory does not grow."""
    outcome = run_in_child("block = bytearray(600 * 2**20)", memory_mb=400)
    assert outcome.last_error_line == "MemoryError"
    assert outcome.peak_mb < 100


@linux_only
@pytest.mark.parametrize("ending", ["", "\nimport os, time; time.sleep(0.3); os.kill(os.getpid(), 9)"])
def test_peak_memory_is_that_of_the_child(ending):
    """The peak is the child's own, not the caller's, also when the child was killed."""
    ballast = bytearray(200 * 2**20)
    outcome = run_in_child("block = b'x' * (50 * 2**20)" + ending)
    assert 50 < outcome.peak_mb < 120
    assert len(ballast) > 100 * 2**20


@pytest.mark.parametrize(
    ("wants", "said"),
    [({"memory_mb": 400}, "a memory limit for one process"), ({"needs": "fork"}, "fork")],
    ids=["memory limit", "fork"],
)
def test_lab_that_needs_linux_is_one_line_elsewhere(monkeypatch, wants, said):
    """On another system such a lab is one line, and nothing runs."""
    monkeypatch.setattr(sys, "platform", "darwin")
    outcome = run_in_child("raise SystemExit(1)", **wants)
    assert (outcome.exit_code, outcome.ok, outcome.result) == (None, False, None)
    assert str(outcome) == f"This lab needs Linux: {said}."


def test_clock_starts_when_the_child_says_so():
    """The time limit counts from a text in the output; what comes before it may take longer."""
    outcome = run_in_child(
        "import time; time.sleep(1.5); print('training starts'); time.sleep(60)",
        seconds=1,
        clock_starts_at="training starts",
    )
    assert outcome.timed_out
    assert outcome.output == "training starts\n"
    assert outcome.seconds > 2.5


def test_importable_function_gets_its_arguments():
    """A function from a module runs in the child with the arguments given."""
    outcome = run_in_child(_fail_about, args=("labels",))
    assert outcome.last_error_line == "KeyError: 'no such dataset: labels'"
    assert outcome.output.splitlines()[0] == "looking for labels"


def test_function_of_a_notebook_cell_travels():
    """A function that no module holds, as one of a notebook cell, runs in the child."""
    cell = {"__name__": "__main__"}
    exec("def lab(n):\n    print(sum(range(n)))", cell)
    assert run_in_child(cell["lab"], args=(5,)).output == "10\n"


CELLS = """
class Generator:
    pass

def pickle_one():
    import pickle
    return pickle.dumps(Generator()).count(b"__main__")

def spawn_one():
    import multiprocessing
    process = multiprocessing.get_context("spawn").Process(target=print, args=(Generator(),))
    process.start()
    process.join()
    return process.exitcode
"""


def test_function_of_a_cell_finds_the_main_of_a_notebook():
    """A class of a cell can be pickled by its name, and a spawned process cannot find it, as in a notebook."""
    cell = {"__name__": "__main__"}
    exec(CELLS, cell)
    assert run_in_child(cell["pickle_one"]).result == 1
    spawned = run_in_child(cell["spawn_one"])
    assert spawned.result == 1
    assert spawned.last_error_line.startswith("AttributeError: Can't get attribute 'Generator' on <module '__main__'")


def test_returned_value_is_the_result():
    """What the function returns comes back; a function that fails has no result."""
    assert run_in_child(divmod, args=(7, 2)).result == (3, 1)
    assert run_in_child(divmod, args=(7, 0)).result is None


def test_snippet_finds_arguments_in_argv():
    """Arguments of a snippet are the command line of a script."""
    assert run_in_child("import sys; print(sys.argv)", args=("a.h5", 3)).output == "['snippet.py', 'a.h5', '3']\n"


def test_snippet_is_a_real_main_module():
    """A class of the snippet can be pickled and found again by a spawned process, as in a script."""
    outcome = run_in_child(
        """
        import multiprocessing as mp

        class Generator:
            pass

        def work(generator):
            print(type(generator).__name__, "arrived")

        if __name__ == "__main__":
            process = mp.get_context("spawn").Process(target=work, args=(Generator(),))
            process.start()
            process.join()
        """
    )
    assert outcome.output == "Generator arrived\n"


def test_tracebacks_have_no_colours(monkeypatch):
    """Also where the environment asks for colours, as a notebook's kernel does, none are in the output."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    outcome = run_in_child("import threading; threading.Thread(target=lambda: 1 / 0).start()")
    assert outcome.last_error_line == "ZeroDivisionError: division by zero"
    assert "\x1b" not in outcome.output


def test_trace_starts_in_the_snippet():
    """The traceback shows the lesson's lines only, without paths of this machine."""
    outcome = run_in_child("def read():\n    raise OSError('truncated file')\n\nread()")
    assert outcome.output.splitlines()[:3] == [
        "Traceback (most recent call last):",
        '  File "snippet.py", line 4, in <module>',
        "    read()",
    ]
    assert "helpers" not in outcome.output


def test_last_error_line_of_a_killed_child():
    """When the child hangs after a worker's error, that error is the last line."""
    outcome = run_in_child(
        """
        import threading, time
        threading.Thread(target=lambda: {}["images"], daemon=True).start()
        time.sleep(60)
        """,
        seconds=1,
    )
    assert outcome.last_error_line == "KeyError: 'images'"


def test_error_lines_that_run_into_each_other_are_not_the_last_one():
    """Two workers that die at a time write into each other; what most of them wrote is the error."""
    outcome = run_in_child(
        """
        import sys
        for line in ("KeyError: 'a'", "KeyError: 'a'", "KeyErrorKeyError: : 'a''a'"):
            print(line, file=sys.stderr)
        sys.exit(1)
        """
    )
    assert outcome.last_error_line == "KeyError: 'a'"


def test_output_that_c_code_writes_is_caught():
    """What goes straight to the file descriptor is in the output, not on the notebook's terminal."""
    assert run_in_child("import os; os.write(2, b'from C')").output == "from C"


def test_known_error_is_explained_under_the_outcome():
    """What helpers.doctor knows about an error follows it, in lines that fit a small window; the error is not cut."""
    outcome = run_in_child("raise TypeError('h5py objects cannot be pickled')")
    assert str(outcome).splitlines()[:4] == [
        "The child stopped with exit code 1.",
        "Last error line: TypeError: h5py objects cannot be pickled",
        "A3 · An open file cannot be pickled (handle-in-a-pickle)",
        "  What happened: Something that is sent to a worker process holds an open",
    ]
    assert str(outcome).endswith(f"\n{outcome.diagnosis}")
    assert [line[2:].split(":")[0] for line in str(outcome.diagnosis).splitlines()[1:] if line[2] != " "] == [
        *("What happened", "Why", "Where to look", "Fix", "Shown in")
    ]


SCRUBBED = [
    ("temporary folder", "no /tmp/lab_x1/data.h5", "no data.h5"),
    ("folder itself", "left /tmp/lab_x1", "left lab"),
    ("process id", "worker (pid 4711) and pid=12 died", "worker (pid N) and pid=N died"),
    ("worker of a pool", "Process SpawnPoolWorker-12:", "Process SpawnPoolWorker-N:"),
    ("worker of the kit", "worker 1 (process 4711) was ended", "worker 1 (process N) was ended"),
    ("address", "<object at 0x7f3a5c1b2d30>", "<object at 0x...>"),
    ("clock time", "2024-05-01 10:11:12.345678: W tensorflow", "TIME: W tensorflow"),
    ("package folder", 'File "/opt/v/lib/python3.11/site-packages/h5py/x.py"', 'File "h5py/x.py"'),
    ("current folder", f"open {Path.cwd()}/data/toy.h5", "open data/toy.h5"),
    (
        "main module in Python 3.12",
        "on <module '__main__' (<class '_frozen_importlib.BuiltinImporter'>)>",
        "on <module '__main__' (built-in)>",
    ),
    ("number that counts", "got 4711 rows", "got 4711 rows"),
]


@pytest.mark.parametrize(("text", "expected"), [case[1:] for case in SCRUBBED], ids=[case[0] for case in SCRUBBED])
def test_what_differs_between_runs_is_replaced(text, expected):
    """Output compared by the notebook tests holds no path, process id, address or time."""
    assert clean(text, Path("/tmp/lab_x1")) == expected


def test_two_runs_print_the_same():
    """A lab that shows its temporary folder and process id prints equal text twice."""
    code = "import os; print('pid', os.getpid(), object(), __file__); raise RuntimeError(os.getpid() * 0)"
    first, second = run_in_child(code), run_in_child(code)
    assert (str(first), first.output) == (str(second), second.output)


@pytest.mark.parametrize(
    ("limits", "got"), [({"seconds": 0}, "seconds=0, memory_mb=None"), ({"memory_mb": 0}, "seconds=30, memory_mb=0")]
)
def test_limits_must_be_above_zero(limits, got):
    """A limit of nothing is a mistake of the lesson, said before anything runs."""
    with pytest.raises(ValueError, match=f"^limits must be above 0; got {got}\\.$"):
        run_in_child("pass", **limits)


def test_importing_the_module_imports_no_keras():
    """Labs that need HDF5 only do not pay for TensorFlow."""
    code = (
        "import helpers.course.failures, sys; print([m for m in ('keras', 'tensorflow', 'h5py') if m in sys.modules])"
    )
    assert run_in_child(code).output == "[]\n"


def _fail_about(name: str) -> None:
    print(f"looking for {name}")  # noqa: T201 - the child's output is what the test reads
    raise KeyError(f"no such dataset: {name}")


def _is_over(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE  # dead; waits for a parent to collect it
    except psutil.NoSuchProcess:
        return True


def _gone(pid: int) -> bool:
    return _wait_for(lambda: _is_over(pid))


def _wait_for(condition, seconds: float = 20.0) -> bool:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


LEAVES_SEMAPHORES = """
import multiprocessing, time
locks = [multiprocessing.get_context("spawn").Lock() for _ in range(3)]
print("three named semaphores", flush=True)
time.sleep(60)
"""


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="needs /dev/shm")
def test_a_killed_lab_leaves_no_named_semaphores():
    """The resource tracker of a killed child removes what the child had, and says nothing of it in the output."""
    before = set(Path("/dev/shm").glob("sem.mp-*"))
    outcome = run_in_child(LEAVES_SEMAPHORES, seconds=2)
    assert (outcome.timed_out, outcome.output) == (True, "three named semaphores\n")
    assert set(Path("/dev/shm").glob("sem.mp-*")) <= before


def test_a_free_address_can_be_listened_to():
    """Two are different while the first is in use."""
    address, port = free_address().split(":")
    with socket.socket() as listener:
        listener.bind((address, int(port)))
        listener.listen()
        assert free_address() != f"{address}:{port}"

"""The doctor: each check in its three states, and what it says of an error."""

import io
import os
import subprocess
import sys
import textwrap
from collections import namedtuple
from pathlib import Path

import h5py
import pytest
from packaging.specifiers import SpecifierSet

from helpers import doctor
from helpers.doctor import Check

Usage = namedtuple("Usage", "total used free")


# -- looking an error up ----------------------------------------------------------------------------------------------

CARD = """\
A3 · An open file cannot be pickled (handle-in-a-pickle)
  What happened: Something that is sent to a worker process holds an open
    file or dataset.
  Why: Spawned workers (Windows, macOS, Python 3.14 on Linux) get their
    objects as a pickle, and an open file cannot travel in one.
  Where to look: The attributes of the object that is sent: self.file,
    self.data, anything of h5py, locks.
  Fix: Keep the path. Open in the worker, and leave the handle out in
    __getstate__. HDF5Sequence pickles at any time.
  Shown in: lesson 04 · 8. A handle in a pickle
Or is it this? A2 · Opened on first use, and still inherited (opened-late-still-inherited)
"""
PICKLED = "TypeError: h5py objects cannot be pickled"


def test_error_option_prints_the_card(capsys):
    """--error prints the card and what else it may be, with exit code 0."""
    assert doctor.main(["--error", PICKLED]) == 0
    assert capsys.readouterr().out == CARD


def test_error_is_read_from_the_standard_input(capsys, monkeypatch):
    """--error - takes a whole traceback, which no shell has to quote."""
    trace = f'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\n    train()\n{PICKLED}\n'
    monkeypatch.setattr("sys.stdin", io.StringIO(trace))
    assert doctor.main(["--error", "-"]) == 0
    assert capsys.readouterr().out.startswith("A3 · An open file cannot be pickled (handle-in-a-pickle)\n")


def test_unknown_error_is_one_line_and_exit_code_1(capsys):
    """--error with an unknown text says so in one line."""
    assert doctor.main(["--error", "what is this"]) == 1
    assert capsys.readouterr().out == (
        "Nothing found. Paste the last line of the error, or say in a sentence what you see.\n"
    )


# -- the checks of the machine ----------------------------------------------------------------------------------------

PACKAGES = [
    ("as pinned", SpecifierSet(">=3"), h5py.__version__, Check("ok", f"h5py {h5py.__version__}")),
    (
        "other than the pin",
        SpecifierSet(">=3"),
        "3.0.1",
        Check("warn", f"h5py {h5py.__version__}; the stored outputs were made with 3.0.1", "pip install h5py==3.0.1"),
    ),
    (
        "out of range",
        SpecifierSet(">=99"),
        None,
        Check("bad", f"h5py {h5py.__version__} (needs >=99)", "pip install 'h5py>=99'"),
    ),
]


@pytest.mark.parametrize(
    ("wanted", "pin", "check"), [case[1:] for case in PACKAGES], ids=[case[0] for case in PACKAGES]
)
def test_package_versions(wanted, pin, check):
    """Out of range is bad, another version than the pin a warning."""
    assert doctor.package("h5py", wanted, pin) == check


def test_missing_package():
    """A package that helpers needs is bad when missing; one that only the tests pin is a warning."""
    assert doctor.package("no-such-package", SpecifierSet(">=1"), "1.2").state == "bad"
    assert doctor.package("no-such-package", None, "1.2") == Check(
        "warn", "no-such-package is not installed", "pip install no-such-package==1.2"
    )


def test_pins_are_read_from_requirements(tmp_path):
    """Pins are the lines name==version; comments and the editable line are not."""
    path = tmp_path / "requirements.txt"
    path.write_text("# numpy==9\n-e .\nh5py==3.14.0   # reason\ntf-keras==2.21.0\n")
    assert doctor.read_pins(path) == {"h5py": "3.14.0", "tf-keras": "2.21.0"}
    assert doctor.read_pins(tmp_path / "none.txt") == {}


@pytest.mark.parametrize(("free", "state"), [(10e9, "ok"), (2e9, "warn"), (0.1e9, "bad")])
def test_disk_space(monkeypatch, tmp_path, free, state):
    """Little space is a warning, too little for one lesson is bad."""
    monkeypatch.setattr("shutil.disk_usage", lambda _: Usage(0, 0, free))
    check = doctor.disk(tmp_path)
    assert check.state == state
    assert check.text.startswith(f"{free / 1e9:.1f} GB free on this disk")


def test_memory_counts_the_limit_of_a_container(tmp_path, monkeypatch):
    """In a container with a memory limit, what is left of it counts, not the machine's memory."""
    (tmp_path / "memory.max").write_text("1500000000\n")
    (tmp_path / "memory.current").write_text("1000000000\n")
    assert doctor._container_rest(tmp_path) == 500_000_000
    assert doctor._container_rest(tmp_path / "none") == float("inf")
    monkeypatch.setattr(doctor, "_container_rest", lambda: 500_000_000)
    assert doctor.memory().line() == (
        "bad   0.5 GB memory free (2 GB are comfortable) -> "
        "close other notebooks and programs; lessons 00, 01 and 04 need the least"
    )


def test_shared_memory_of_a_default_container(monkeypatch, tmp_path):
    """The 64 MB that containers get by default are a warning with the option to set."""
    monkeypatch.setattr("shutil.disk_usage", lambda _: Usage(0, 0, 64e6))
    assert doctor.shared_memory(tmp_path) == Check(
        "warn", "64 MB of shared memory (/dev/shm)", "start the container with --shm-size=1g"
    )


def test_locking_works_here_and_leaves_nothing(tmp_path):
    """On a local disk the trial succeeds and removes its files."""
    assert doctor.locking(tmp_path) == Check("ok", "HDF5 writes and locks files in this folder")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (OSError(37, "unable to lock file, errno = 37"), "HDF5 cannot lock files in this folder"),
        (PermissionError(13, "Permission denied"), "HDF5 cannot write in this folder"),
    ],
)
def test_folder_without_locks_or_rights_is_bad(monkeypatch, tmp_path, error, text):
    """A disk without locks and a folder without write access have advice of their own."""

    def refuse(*_, **__):
        raise error

    monkeypatch.setattr(h5py, "File", refuse)
    check = doctor.locking(tmp_path)
    assert (check.state, check.text) == ("bad", f"{text}: {error}")
    assert check.advice


def test_no_gpu_is_fine(monkeypatch):
    """A machine without nvidia-smi is a good one for this course."""
    monkeypatch.setattr("shutil.which", lambda _: None)
    assert doctor.gpu().state == "ok"


def test_gpu_names_come_from_nvidia_smi(monkeypatch, tmp_path):
    """What nvidia-smi lists is shown, without importing TensorFlow."""
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho 'NVIDIA T4'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr("importlib.util.find_spec", lambda _: object())
    assert doctor.gpu() == Check("ok", "GPU: NVIDIA T4")


def test_run_prints_one_line_a_check_and_a_summary(capsys, monkeypatch, tmp_path):
    """Every line begins with its state, the last one is for bug reports; exit code 1 exactly when one is bad."""
    monkeypatch.chdir(tmp_path)
    code = doctor.main([])
    lines = capsys.readouterr().out.splitlines()
    assert all(line[:6] in {"ok    ", "warn  ", "bad   "} for line in lines[:-1])
    assert lines[-1] == f"For bug reports: {doctor.summary()}"
    assert str(Path.home()) not in lines[-1]
    assert code == int(any(line.startswith("bad") for line in lines))


def test_a_python_without_the_kit_is_bad(monkeypatch, tmp_path):
    """The doctor is asked when an install went wrong: it must not fail itself."""
    monkeypatch.setattr(doctor, "PROJECT", "hdf5-keras-kit-of-nobody")
    checks = doctor.examine(tmp_path)
    assert checks[0] == Check(
        "bad", f"hdf5-keras-kit-of-nobody is not installed in {sys.executable}", "pip install -r requirements.txt"
    )
    assert len(checks) == 9


def test_a_bad_line_makes_exit_code_1(capsys, monkeypatch):
    """One bad check is enough, and its advice is on its line."""
    monkeypatch.setattr(doctor, "examine", lambda _: [Check("ok", "fine"), Check("bad", "disk full", "make room")])
    assert doctor.main([]) == 1
    assert capsys.readouterr().out.splitlines()[:2] == ["ok    fine", "bad   disk full -> make room"]


def test_doctor_imports_no_keras():
    """The doctor answers in a second on a machine where TensorFlow does not even load."""
    code = textwrap.dedent(
        """
        import sys
        from helpers import doctor
        doctor.examine(doctor.Path.cwd())
        print([name for name in ("keras", "tensorflow", "tf_keras") if name in sys.modules])
        """
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout == "[]\n"

"""The checks of the machine: each in its states, with files and folders out of order, and what a run prints."""

import ast
import errno
import inspect
import os
import platform
import subprocess
import sys
import tempfile
import textwrap
from collections import namedtuple
from pathlib import Path

import h5py
import numpy as np
import pytest
from packaging.specifiers import SpecifierSet

from helpers import check, doctor, file_checks, folder_checks, machine
from helpers.check import Check, Plan
from helpers.course.failures import run_in_child
from helpers.images import encode_jpeg
from helpers.machine import FreeMemory, Gpu, GpuUser, NvidiaSmiError
from helpers.writer import HDF5Writer

Usage = namedtuple("Usage", "total used free")
MIB = 2**20
LINUX = platform.system() == "Linux" and platform.machine() in {"x86_64", "aarch64"}


def lines_of(checks) -> list[str]:
    return [each.line() for each in checks]


def with_memory(monkeypatch, free: float) -> None:
    monkeypatch.setattr(machine, "free_memory", lambda: FreeMemory(int(free)))


def raises(error: BaseException):
    def refuse(*_, **__):
        raise error

    return refuse


# -- the install ------------------------------------------------------------------------------------------------------

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
    ("wanted", "pin", "expected"), [case[1:] for case in PACKAGES], ids=[case[0] for case in PACKAGES]
)
def test_package_versions(wanted, pin, expected):
    """Out of range is bad, another version than the pin a warning."""
    assert doctor.package("h5py", wanted, pin) == expected


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


def test_a_python_without_the_kit_is_bad(monkeypatch, tmp_path):
    """The doctor is asked when an install went wrong: it must not fail itself."""
    monkeypatch.setattr(doctor, "PROJECT", "hdf5-keras-kit-of-nobody")
    checks = doctor.examine(tmp_path)
    assert checks[0] == Check(
        "bad", f"hdf5-keras-kit-of-nobody is not installed in {sys.executable}", "pip install -r requirements.txt"
    )
    assert len(checks) >= 9


def test_a_missing_package_does_not_end_the_look_at_a_file(monkeypatch, tmp_path):
    """Looking into files needs more packages than the doctor itself."""
    monkeypatch.delitem(sys.modules, "helpers.file_checks")
    monkeypatch.setitem(sys.modules, "helpers.inspector", None)
    assert lines_of(doctor._file(Plan(tmp_path / "a.h5"))) == [
        f"bad   {tmp_path / 'a.h5'} was not looked into: import of helpers.inspector halted; None in sys.modules -> "
        "pip install -r requirements.txt"
    ]


# -- disk and locks ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("free", "state"), [(10e9, "ok"), (2e9, "warn"), (0.1e9, "bad")])
def test_disk_space(monkeypatch, tmp_path, free, state):
    """Little space is a warning, too little for one lesson is bad."""
    monkeypatch.setattr("shutil.disk_usage", lambda _: Usage(0, 0, free))
    found = doctor.disk(tmp_path)
    assert found.state == state
    assert found.text.startswith(f"{free / 1e9:.1f} GB free on this disk")


def test_locking_works_here_and_leaves_nothing(tmp_path):
    """On a local disk the trial succeeds and removes its files."""
    assert doctor.locking(tmp_path) == Check("ok", "HDF5 writes and locks files in this folder")
    assert list(tmp_path.iterdir()) == []


DISKS = [
    (
        "no locks",
        OSError(errno.ENOLCK, "unable to lock file, errno = 37"),
        "bad   HDF5 cannot lock files in this folder: [Errno 37] unable to lock file, errno = 37 -> "
        "work in a folder on a local disk, or set HDF5_USE_FILE_LOCKING=FALSE before Python starts",
    ),
    (
        "locks are not implemented",
        OSError(errno.ENOSYS, "unable to lock file, errno = 38"),
        "warn  HDF5 cannot lock files in this folder: [Errno 38] unable to lock file, errno = 38 -> "
        "HDF5 goes on without: let nothing write to a file that is read",
    ),
    (
        "no right, in a folder whose name has 'lock' in it",
        PermissionError(errno.EACCES, "Permission denied", "/blocks"),
        "bad   HDF5 cannot write in this folder: [Errno 13] Permission denied: '/blocks'; and no HDF5 file lies there "
        "that could be opened to read -> start in a folder where you may write, or name a file: --data FILE",
    ),
    (
        "full",
        OSError(errno.ENOSPC, "No space left on device"),
        "bad   HDF5 cannot write in this folder: [Errno 28] No space left on device -> "
        "make room, or work on another disk",
    ),
    (
        "full when the file is closed",
        RuntimeError("Can't decrement id ref count (file write failed, error message = 'No space left on device')"),
        "bad   HDF5 cannot write in this folder: Can't decrement id ref count (file write failed, error message = "
        "'No space left on device') -> make room, or work on another disk",
    ),
    (
        "over the quota",
        OSError(errno.EDQUOT, "Disk quota exceeded"),
        "bad   HDF5 cannot write in this folder: [Errno 122] Disk quota exceeded -> make room, or work on another disk",
    ),
    (
        "gone",
        FileNotFoundError(errno.ENOENT, "No such file or directory"),
        "bad   HDF5 cannot write in this folder: [Errno 2] No such file or directory -> check the path of the folder",
    ),
    (
        "broken",
        OSError(errno.EIO, "Input/output error"),
        "bad   HDF5 cannot write in this folder: [Errno 5] Input/output error -> "
        "check the disk, or start in a folder on another one",
    ),
]


@pytest.mark.skipif(not LINUX, reason="the numbers of errors are those of Linux")
@pytest.mark.parametrize(("error", "line"), [case[1:] for case in DISKS], ids=[case[0] for case in DISKS])
def test_a_folder_that_refuses(monkeypatch, tmp_path, error, line):
    """Disks without locks, without room or out of order, and missing rights, have advice of their own."""
    monkeypatch.setattr(h5py, "File", raises(error))
    assert doctor.locking(tmp_path).line() == line
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there(tmp_path):
    """It is bad to the disk and to the trial, and raises nothing."""
    gone = tmp_path / "gone"
    assert [doctor.disk(gone).state, doctor.locking(gone).state] == ["bad", "bad"]


@pytest.mark.skipif(not LINUX, reason="a filter of system calls plays the disk")
@pytest.mark.parametrize(("number", "state"), [(37, "bad"), (38, "warn"), (524, "bad")])
def test_a_disk_without_locks(tmp_path, number, state):
    """HDF5 itself is told so by the system: the numbers that such disks answer with are recognised."""
    outcome = run_in_child(
        """
        import sys
        from pathlib import Path
        from helpers import doctor
        from helpers.course.disks import refuse_locks
        refuse_locks(int(sys.argv[2]))
        print(doctor.locking(Path(sys.argv[1])).line())
        """,
        args=(tmp_path, number),
    )
    assert outcome.output.startswith(f"{state:<4}  HDF5 cannot lock files in this folder: [Errno {number}]")


@pytest.mark.parametrize("value", ["FALSE", "0"])
def test_locks_that_were_switched_off(monkeypatch, tmp_path, value):
    """HDF5 then locks nothing, whatever h5py asks for: what the trial cannot show is said."""
    monkeypatch.setenv("HDF5_USE_FILE_LOCKING", value)
    assert doctor.locking(tmp_path).line() == (
        f"warn  HDF5 writes files in this folder; it locks none, because HDF5_USE_FILE_LOCKING is {value} -> "
        "let nothing write to a file that is read; on a local disk, unset the variable"
    )
    assert "(HDF5 1.14.6), no locks;" in doctor.summary().replace(h5py.version.hdf5_version, "1.14.6")


# -- a folder that can only be read -----------------------------------------------------------------------------------


@pytest.fixture
def read_only(monkeypatch):
    """Make every folder one that can only be read, as far as the doctor sees."""
    error = OSError(errno.EROFS, "Read-only file system")
    monkeypatch.setattr(tempfile, "TemporaryDirectory", raises(error))
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)


def test_a_folder_that_can_only_be_read_is_no_fault(read_only, coded_file):
    """A file in it opens with a lock: that is enough to train from, and the lessons are told that they need more."""
    folder = coded_file.parent
    (folder / "notes.txt").write_text("no HDF5")
    text = "this folder can only be read; coded.h5 in it opens, with a lock for reading"
    assert doctor.locking(folder, writes=False) == Check("ok", text)
    assert doctor.locking(folder, coded_file, writes=False) == Check("ok", text)
    assert doctor.locking(folder) == Check(
        "warn", text, "train from it as it is; for the lessons, start in a folder where you may write"
    )


def test_a_disk_that_is_only_read_may_be_full(read_only, monkeypatch, coded_file):
    """Free space counts only where something can be written."""
    monkeypatch.setattr("shutil.disk_usage", lambda _: Usage(0, 0, 0))
    assert [each.state for each in doctor._folder(coded_file.parent, coded_file, writes=False)] == ["ok"]
    assert [each.state for each in doctor._folder(coded_file.parent, None, writes=True)] == ["bad", "warn"]


def test_no_file_to_try_in_a_folder_that_can_only_be_read(read_only, tmp_path):
    """Pipes and folders with the name of an HDF5 file are passed over."""
    (tmp_path / "folder.h5").mkdir()
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe.h5")
    found = doctor.locking(tmp_path, writes=False)
    assert found.line() == (
        "bad   HDF5 cannot write in this folder: [Errno 30] Read-only file system; and no HDF5 file lies there that "
        "could be opened to read -> start in a folder where you may write, or name a file: --data FILE"
    )


def test_a_folder_of_many_files_is_not_read_to_its_end(read_only, monkeypatch, tmp_path):
    """Of a folder with a million pictures the first names are looked at."""
    monkeypatch.setattr(folder_checks, "_LOOKED_THROUGH", 20)
    asked = []
    scandir = os.scandir

    class Counted:
        def __init__(self, folder):
            self._entries = scandir(folder)

        def __enter__(self):
            return self

        def __exit__(self, *_):
            self._entries.close()

        def __iter__(self):
            for entry in self._entries:
                asked.append(entry.name)
                yield entry

    for number in range(50):
        (tmp_path / f"{number}.jpg").touch()
    monkeypatch.setattr(folder_checks.os, "scandir", Counted)
    assert doctor.locking(tmp_path, writes=False).state == "bad"
    assert len(asked) == 20


def test_a_file_that_somebody_writes_shows_that_locks_work(read_only, tmp_path):
    """A lock that is refused because another process has it is no fault of the disk."""
    path = tmp_path / "held.h5"
    code = f"import h5py; f = h5py.File({str(path)!r}, 'w'); print('open', flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        holder.stdout.readline()
        try:
            found = doctor.locking(tmp_path, writes=False)
        finally:
            holder.communicate(b"\n")
    assert found.state == "warn"
    assert f"{path} is open for writing in another process" in found.text
    assert found.advice == "locks work here: somebody has this one. Ask again when the writer is done"


NOT_OPENED = [
    (
        "no lock to be had",
        OSError(errno.ENOLCK, "unable to lock file, errno = 37"),
        ("bad", "work in a folder on a local disk, or set HDF5_USE_FILE_LOCKING=FALSE before Python starts"),
    ),
    (
        "no locks there",
        OSError(errno.ENOSYS, "unable to lock file, errno = 38"),
        ("warn", "HDF5 goes on without: let nothing write to a file that is read"),
    ),
    (
        "no right",
        PermissionError(errno.EACCES, "Permission denied"),
        ("bad", "check the rights, which ls -l shows, or name another file: --data FILE"),
    ),
]


@pytest.mark.parametrize(("error", "expected"), [case[1:] for case in NOT_OPENED], ids=[case[0] for case in NOT_OPENED])
def test_a_file_that_does_not_open_in_a_folder_that_can_only_be_read(
    read_only, monkeypatch, coded_file, error, expected
):
    """What was tried last is said, with advice of its own."""
    monkeypatch.setattr(folder_checks.layout, "open_file", raises(error))
    found = doctor.locking(coded_file.parent, writes=False)
    assert (found.state, found.advice) == expected
    assert found.text == f"this folder can only be read, and a file in it does not open: {error}"


# -- memory -----------------------------------------------------------------------------------------------------------

MEMORY = [
    ("enough", FreeMemory(int(8e9)), "ok    8.0 GB memory free"),
    (
        "little",
        FreeMemory(int(1.5e9)),
        "warn  1.5 GB memory free (2 GB are comfortable) -> "
        "close other notebooks and programs; lessons 00, 01 and 04 need the least",
    ),
    (
        "a container",
        FreeMemory(int(0.5e9), machine.CONTAINER, int(4e9)),
        "bad   0.5 GB memory free of this container's or job's 4.0 GB (2 GB are comfortable) -> give it more "
        "(docker run --memory, --mem of a Slurm job); lessons 00, 01 and 04 need the least",
    ),
    (
        "ulimit -v",
        FreeMemory(int(0.5e9), machine.ULIMIT, int(3e9)),
        "bad   0.5 GB memory free of the 3.0 GB that ulimit -v allows (2 GB are comfortable) -> "
        "ulimit -v unlimited, in the shell that starts Python",
    ),
]


@pytest.mark.parametrize(("found", "line"), [case[1:] for case in MEMORY], ids=[case[0] for case in MEMORY])
def test_memory(monkeypatch, found, line):
    """What is free, and which limit says so; each limit has advice of its own."""
    monkeypatch.setattr(machine, "free_memory", lambda: found)
    assert doctor.memory().line() == line


# -- a file -----------------------------------------------------------------------------------------------------------


def test_a_file_and_its_queue_against_the_memory(monkeypatch, coded_file):
    """The numbers are those of fit_generator: 10 ahead, 2 in work, 6 with Keras, of 32 images and one-hot labels."""
    with_memory(monkeypatch, 1e9)
    assert lines_of(doctor._file(Plan(coded_file))) == [
        f"ok    {coded_file}: HDF5, {coded_file.stat().st_size / 1000:.3g} kB, can be trained on",
        f"ok    the file has {coded_file.stat().st_size / 1000:.3g} kB, and 1 GB of memory are free: after the first "
        "epoch it is read from memory",
        "ok    a queue (batch_size=32, max_queue_size=10, workers=2; validation has its own) holds up to 18 x 25.2 kB "
        "= 454 kB (1.78 MB were it float32); 1 GB of memory are free",
    ]


@pytest.mark.parametrize(
    ("free", "state", "advice"),
    [
        (10_000_000, "ok", ""),
        (600_000, "warn", "lower max_queue_size, workers or batch_size"),
        (400_000, "bad", "lower max_queue_size, workers or batch_size"),
    ],
)
def test_a_queue_that_fills_the_memory(monkeypatch, coded_file, free, state, advice):
    """454 kB: above half of the free memory fit_generator warns, above all of it a training ends."""
    with_memory(monkeypatch, free)
    found = list(doctor._file(Plan(coded_file)))[-1]
    assert found.text.startswith("a queue ")
    assert (found.state, found.advice) == (state, advice)


@pytest.mark.parametrize(
    ("options", "held"),
    [
        ({"workers": 0}, "1 x 25.2 kB = 25.2 kB "),
        ({"workers": 4, "max_queue_size": 100}, "110 x 25.2 kB = 2.77 MB "),
        ({"batch_size": 1}, "18 x 788 bytes = 14.2 kB "),
    ],
)
def test_the_queue_is_counted_as_asked(coded_file, options, held):
    """The options of the command line are those of HDF5Sequence."""
    assert f" holds up to {held}" in list(doctor._file(Plan(coded_file, **options)))[-1].text


def test_a_file_larger_than_the_memory(monkeypatch, coded_file):
    """It is read from the disk in every epoch; that costs time, and says how to lessen it."""
    with_memory(monkeypatch, coded_file.stat().st_size)
    found = next(each for each in doctor._file(Plan(coded_file)) if each.text.startswith("the file has"))
    assert found.state == "warn"
    assert found.text.endswith("it does not stay there, so every epoch reads from the disk, row by row")
    assert 'HDF5Sequence(shuffle="block")' in found.advice


@pytest.fixture
def images():
    """Forty images of 8x8, each of its own color."""
    return np.random.default_rng(0).integers(1, 255, (40, 8, 8, 3), dtype=np.uint8)


def test_chunks_that_cost_time_point_to_the_inspector(tmp_path, images):
    """One line, with the inspector's own words and the command that shows more."""
    path = tmp_path / "cut.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("train_img", data=images, chunks=(10, 4, 4, 3))
        file["train_labels"] = np.arange(40) % 4
    found = [each for each in doctor._file(Plan(path)) if "fetched" in each.text]
    assert lines_of(found) == [
        "warn  chunks (10, 4, 4, 3) of train_img cut the images: to read one image, 4 chunks of 480 bytes each are "
        "fetched. -> python -m data_scripts.rechunk IN.h5 OUT.h5 stores one image a chunk. "
        f"python -m helpers.inspector {path} shows what an epoch costs."
    ]


def make_foreign(path, images, labels="Y"):
    with h5py.File(path, "w") as file:
        file["X"] = images
        file[labels] = np.arange(40) % 4


def test_names_that_are_not_the_kits(tmp_path, images):
    """The pair that was taken is named with the options to give; with these the line is gone."""
    path = tmp_path / "theirs.h5"
    make_foreign(path, images)
    lines = lines_of(doctor._file(Plan(path)))
    assert (
        "warn  its datasets do not have this kit's names; taken: X and Y -> name them, here and in "
        "HDF5Sequence(images=, labels=): --images X --labels Y"
    ) in lines
    assert lines[-1].startswith("ok    a queue ")
    named = lines_of(doctor._file(Plan(path, images="X", labels="Y")))
    assert [line for line in lines if "do not have" not in line] == named


def test_no_images_recognised(tmp_path):
    """A file without anything like images is one warning: it may be a good file that needs names."""
    path = tmp_path / "table.h5"
    with h5py.File(path, "w") as file:
        file["prices"] = np.arange(5.0)
    lines = lines_of(doctor._file(Plan(path)))
    assert lines[0] == (
        "warn  no pair of images and labels was recognised among prices. -> "
        "name its datasets: --images NAME --labels NAME"
    )
    assert len(lines) == 2


def test_a_split_that_is_not_there(tmp_path, images):
    """Those with images are named."""
    path = tmp_path / "train_only.h5"
    with h5py.File(path, "w") as file:
        file["train_img"], file["train_labels"] = images, np.arange(40) % 4
    assert list(doctor._file(Plan(path, "valid")))[-1].line() == (
        "warn  it has no images to serve in the split valid -> --split takes one of: train"
    )


def test_a_split_without_images(tmp_path, images):
    """The kit's own files have all three splits, empty ones too."""
    path = tmp_path / "no_test.h5"
    with HDF5Writer(path, (8, 8, 3), ("a", "b", "c", "d")) as writer:
        writer.append("train", images, np.arange(40) % 4)
    assert list(doctor._file(Plan(path, "test")))[-1].line() == (
        "warn  it has no images to serve in the split test -> --split takes one of: train"
    )


def test_jpeg_bytes_of_unknown_size(tmp_path, images):
    """What a queue holds is then not known; what HDF5Sequence would ask for is said."""
    path = tmp_path / "jpeg.h5"
    with h5py.File(path, "w") as file:
        data = file.create_dataset("X", (40,), dtype=h5py.vlen_dtype(np.uint8))
        for row, image in enumerate(images):
            data[row] = np.frombuffer(encode_jpeg(image), np.uint8)
        file["Y"] = np.arange(40) % 4
    found = list(doctor._file(Plan(path)))[-1]
    assert found.state == "warn"
    assert found.text.startswith("what a queue of its batches holds is not known: ")
    assert "size=" in found.text
    assert found.advice == f"python -m helpers.inspector {path}"


def test_data_outside_of_the_file(tmp_path, images):
    """Bytes in other files are not in the sum, and that is said; there is no warning of Python's in between."""
    make_foreign(tmp_path / "theirs.h5", images)
    path = tmp_path / "links.h5"
    with h5py.File(path, "w") as file:
        file["train_img"] = h5py.ExternalLink("theirs.h5", "X")
        file["train_labels"] = np.arange(40) % 4
    lines = lines_of(doctor._file(Plan(path)))
    assert " of memory are free (other files, which it names, are not counted): " in lines[1]
    assert lines[-1].startswith("ok    a queue ")


HOSTILE = [
    ("missing", lambda path: None, "does not exist. Check the path"),
    ("a folder's name in its place", lambda path: path.mkdir(), "is a folder, not an HDF5 file"),
    ("a link to itself", lambda path: path.symlink_to(path), "is a link to"),
    ("empty", lambda path: path.touch(), "is not an HDF5 file"),
    ("a web page", lambda path: path.write_text("<html>404</html>" * 99), "is not an HDF5 file"),
    ("a pipe", lambda path: os.mkfifo(path), "is a device or a pipe, not a file"),
    ("in the place of a folder", lambda path: path.parent.joinpath("x").touch(), "does not exist"),
]


@pytest.mark.skipif(os.name == "nt", reason="pipes and links are those of POSIX systems")
@pytest.mark.parametrize(("make", "words"), [case[1:] for case in HOSTILE], ids=[case[0] for case in HOSTILE])
def test_what_is_no_file_of_images(tmp_path, make, words):
    """One bad line with advice, and no other line about the file."""
    path = tmp_path / "x.h5"
    make(path)
    found = list(doctor._file(Plan(path)))
    assert [each.state for each in found] == ["bad"]
    assert words in found[0].text
    assert found[0].advice


def test_a_file_with_several_faults_is_one_line(tmp_path, images):
    """The first fault, how many more there are, and the command that lists them."""
    path = tmp_path / "faults.h5"
    with h5py.File(path, "w") as file:
        file["train_img"] = images.astype(np.float32)
        file["train_labels"] = np.zeros((39, 4, 2))
    found = list(doctor._file(Plan(path)))
    assert [each.state for each in found[:2]] == ["bad", "ok"]
    assert found[0].text == "train_img has 40 rows but train_labels has 39."
    assert found[0].advice == (
        f"Rebuild the file: HDF5Writer.append writes both together. 2 faults more: python -m helpers.inspector {path}"
    )


def test_a_file_that_vanishes_meanwhile(monkeypatch, coded_file):
    """Removed between two looks, it is told of, and nothing is raised."""
    inspect_file = file_checks.inspect_file

    def inspect_and_remove(path, **names):
        report = inspect_file(path, **names)
        path.unlink()
        return report

    monkeypatch.setattr(file_checks, "inspect_file", inspect_and_remove)
    found = list(file_checks.data_file(Plan(coded_file)))[-1]
    assert found.state == "warn"
    assert f"{coded_file} does not exist" in found.text


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such names")
def test_a_name_cannot_break_a_line(tmp_path, capsys):
    """Control characters and bytes that are no text are spelled out."""
    path = tmp_path / "a\n\x1b[2Jb\udcff.h5"
    doctor.main(["--data", str(path)])
    out = capsys.readouterr().out
    assert r"a\n\x1b[2Jb\udcff.h5 does not exist." in out
    assert all(line[:6] in {"ok    ", "warn  ", "bad   ", "For bu"} for line in out.splitlines())


def test_a_terminal_without_the_letters(tmp_path):
    """A name that the encoding of the output lacks does not end the program."""
    answer = subprocess.run(
        [sys.executable, "-m", "helpers.doctor", "--data", str(tmp_path / "Küche.h5")],
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 1
    assert r"K\xfcche.h5 does not exist." in answer.stdout
    assert answer.stdout.splitlines()[-1].startswith("For bug reports: ")


# -- processes --------------------------------------------------------------------------------------------------------


def test_shared_memory_of_a_default_container(monkeypatch, tmp_path):
    """The 64 MB that containers get by default are a warning for the sake of other libraries."""
    monkeypatch.setattr("shutil.disk_usage", lambda _: Usage(0, 0, 64e6))
    assert doctor.shared_memory(tmp_path) == Check(
        "warn",
        "64 MB of shared memory (/dev/shm): workers of this kit use none, those of other libraries can die of it",
        "start the container with --shm-size=1g",
    )
    monkeypatch.setattr("shutil.disk_usage", lambda _: Usage(0, 0, 64e9))
    assert doctor.shared_memory(tmp_path) == Check("ok", "64.0 GB of shared memory (/dev/shm)")


def test_systems_without_shared_memory_folder(tmp_path):
    """macOS and Windows have no /dev/shm, and need none."""
    assert doctor.shared_memory(tmp_path / "none").state == "ok"


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="Linux: slots of shared memory")
def test_workers_of_this_kit_need_no_shared_memory_folder():
    """What the doctor says of /dev/shm holds: the slots of a pool of processes take nothing from it."""
    from helpers.slots import SharedMap

    shared = SharedMap(100 * MIB)
    assert not Path(f"/proc/self/fd/{shared.handle}").readlink().is_relative_to("/dev/shm")
    shared.close_handle()


@pytest.mark.parametrize(("count", "state"), [(1, "warn"), (2, "ok")])
def test_cores(monkeypatch, count, state):
    """One core is enough, and slow."""
    monkeypatch.setattr(doctor, "usable_cores", lambda: count)
    assert doctor.cores().state == state


@pytest.mark.parametrize(
    ("method", "meaning"),
    [
        ("fork", "copies of this process, which can hang once Keras has run; this kit's workers are none"),
        (
            "spawn",
            "other libraries' pools need if __name__ == '__main__' in a script; this kit's workers need no guard",
        ),
        (
            "forkserver",
            "other libraries' pools need if __name__ == '__main__' in a script; this kit's workers need no guard",
        ),
    ],
)
def test_start_method(monkeypatch, method, meaning):
    """The first that Python lists is its default: fork on Linux up to 3.13, spawn or forkserver elsewhere."""
    monkeypatch.setattr("multiprocessing.get_start_method", lambda allow_none: None)
    monkeypatch.setattr("multiprocessing.get_all_start_methods", lambda: [method, "other"])
    assert doctor.start_method() == Check("ok", f"processes start by {method} unless told otherwise: {meaning}")
    assert f"; start method {method}" in doctor.summary()


LIMITS = [
    ("none", None, None, []),
    ("usual", None, 1024, []),
    (
        "few files",
        None,
        64,
        ["warn  ulimit -n allows 64 open files -> ulimit -n 1024, in the shell that starts Python"],
    ),
    (
        "some addresses",
        int(16e9),
        None,
        [
            "warn  ulimit -v allows 16.0 GB of addresses, and TensorFlow maps more than it uses -> ulimit -v unlimited,"
            " in the shell that starts Python; limit the memory of the container or job instead"
        ],
    ),
    (
        "too few addresses",
        int(2e9),
        256,
        [
            "bad   ulimit -v allows 2.0 GB of addresses, and TensorFlow maps more than it uses -> ulimit -v unlimited, "
            "in the shell that starts Python; limit the memory of the container or job instead"
        ],
    ),
]


@pytest.mark.parametrize(
    ("addresses", "files", "lines"), [case[1:] for case in LIMITS], ids=[case[0] for case in LIMITS]
)
def test_limits_of_the_shell(monkeypatch, addresses, files, lines):
    """They have a line only where they can stop a training."""
    monkeypatch.setattr(machine, "address_limit", lambda: addresses)
    monkeypatch.setattr(machine, "open_files_limit", lambda: files)
    assert lines_of(doctor.limits()) == lines


# -- GPUs and Keras ---------------------------------------------------------------------------------------------------


@pytest.fixture
def on_tensorflow(monkeypatch):
    """Keras on TensorFlow with CUDA libraries, JAX without; nothing hidden, nobody on the GPU."""
    monkeypatch.setenv("KERAS_BACKEND", "tensorflow")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(machine, "has_cuda", lambda name: name == "tensorflow")
    monkeypatch.setattr(machine, "gpu_users", list)
    monkeypatch.setattr(doctor, "_version", lambda name: "1.2.3")


def with_gpus(monkeypatch, *gpus) -> None:
    monkeypatch.setattr(machine, "gpus", lambda: list(gpus))


T4 = Gpu("Tesla T4", int(16e9), int(15e9))
CUDA_LINE = "ok    tensorflow: CUDA libraries, jax: no CUDA libraries"


def test_no_gpu_is_fine(monkeypatch):
    """A machine without a GPU is a good one for this course."""
    with_gpus(monkeypatch)
    assert [each.state for each in doctor.gpu()] == ["ok"]


def test_gpus_with_their_free_memory(monkeypatch, on_tensorflow):
    """A line each, and one about the libraries; what nvidia-smi does not tell is no fault."""
    with_gpus(monkeypatch, T4, Gpu("GB10", None, None))
    assert lines_of(doctor.gpu()) == [
        "ok    GPU: Tesla T4, 15.0 of 16.0 GB free",
        "ok    GPU: GB10; its free memory is not told",
        CUDA_LINE,
    ]


@pytest.mark.parametrize(
    ("users", "who"),
    [
        ([], "another notebook kernel, or another user"),
        ([GpuUser(os.getpid(), "python", int(15e9))], "this process with 15.0 GB"),
        (
            [GpuUser(11, "python", int(9e9)), GpuUser(12, "", None)],
            "python (process 11) with 9.0 GB, process (process 12)",
        ),
    ],
    ids=["nobody is named", "this process", "two"],
)
def test_a_gpu_that_another_kernel_holds(monkeypatch, on_tensorflow, users, who):
    """Little free memory is a warning that names who has it, where nvidia-smi tells."""
    with_gpus(monkeypatch, Gpu("Tesla T4", int(16e9), int(0.4e9)))
    monkeypatch.setattr(machine, "gpu_users", lambda: users)
    assert next(doctor.gpu()).line() == (
        f"warn  GPU: Tesla T4, 0.4 of 16.0 GB free -> shut down what holds the rest: {who}"
    )


@pytest.mark.parametrize(
    ("total", "free", "state"), [(8e9, 2.1e9, "ok"), (8e9, 1.9e9, "warn"), (140e9, 10e9, "warn"), (140e9, 15e9, "ok")]
)
def test_little_free_memory(total, free, state):
    """Less than 2 GB, or than a tenth."""
    assert doctor._gpu_memory(Gpu("T4", int(total), int(free))).state == state


@pytest.mark.parametrize("value", ["", "-1"])
def test_a_gpu_that_is_hidden(monkeypatch, on_tensorflow, value):
    """nvidia-smi lists it, and Keras would not see it."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
    with_gpus(monkeypatch, T4)
    assert lines_of(doctor.gpu())[1] == (
        f"warn  CUDA_VISIBLE_DEVICES='{value}' hides the GPU from Keras -> unset it before Python starts"
    )


@pytest.mark.parametrize(("backend", "extra"), [("tensorflow", "and-cuda"), ("jax", "cuda12")])
def test_cuda_libraries_that_are_missing(monkeypatch, on_tensorflow, backend, extra):
    """The backend that Keras will take is the one that needs them."""
    with_gpus(monkeypatch, T4)
    monkeypatch.setenv("KERAS_BACKEND", backend)
    monkeypatch.setattr(machine, "has_cuda", lambda name: name != backend)
    assert lines_of(doctor.gpu())[-1] == (
        f"warn  {backend} has no CUDA libraries, and will not use the GPU -> "
        f"pip install '{backend}[{extra}]==1.2.3' (Linux, or WSL on Windows)"
    )


FAILING = [
    (
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure ...",
        "load or install the driver: sudo modprobe nvidia, or restart the machine",
    ),
    (
        "Failed to initialize NVML: Driver/library version mismatch",
        "the driver was updated: restart the machine",
    ),
    ("Failed to initialize NVML: Unknown Error", "the container lost its GPU: start the container again"),
    ("no answer within 20 s", "the GPU or its driver hangs: restart the machine"),
    (
        "No devices were found",
        "ask for a GPU: --gpus all for a container, --gres=gpu:1 for a Slurm job",
    ),
    ("something new", "install the NVIDIA driver again"),
]


@pytest.mark.parametrize(("said", "advice"), FAILING, ids=[said[:40] for said, _ in FAILING])
def test_nvidia_smi_that_fails(monkeypatch, said, advice):
    """Its words are shown, with what to do; the lessons run all the same."""
    monkeypatch.setattr(machine, "gpus", raises(NvidiaSmiError(said)))
    assert lines_of(doctor.gpu()) == [
        f"warn  GPU: not known, nvidia-smi fails: {said} -> {advice}; all lessons run without a GPU"
    ]


BACKENDS = [
    ("variable", "jax", '{"backend": "torch"}', "jax"),
    ("file", None, '{"backend": "jax"}', "jax"),
    ("empty variable", "", '{"backend": "jax"}', "jax"),
    ("no file", None, None, "tensorflow"),
    ("broken file", None, "{", "tensorflow"),
    ("file of another kind", None, "[1]", "tensorflow"),
    ("file without it", None, "{}", "tensorflow"),
]


@pytest.mark.parametrize(
    ("variable", "text", "name"), [case[1:] for case in BACKENDS], ids=[case[0] for case in BACKENDS]
)
def test_backend_is_looked_up_as_keras_does(monkeypatch, tmp_path, variable, text, name):
    """The variable first, then keras.json, then TensorFlow."""
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    if variable is None:
        monkeypatch.delenv("KERAS_BACKEND", raising=False)
    else:
        monkeypatch.setenv("KERAS_BACKEND", variable)
    if text is not None:
        (tmp_path / "keras.json").write_text(text)
    assert doctor.keras_backend() == name


@pytest.mark.parametrize(
    ("name", "installed", "line"),
    [
        ("tensorflow", True, "ok    Keras runs on tensorflow"),
        (
            "torch",
            True,
            "warn  Keras runs on torch; this kit is tested on tensorflow and jax -> set KERAS_BACKEND=tensorflow",
        ),
        ("jax", False, "bad   Keras would run on jax, which is not installed -> pip install -r requirements.txt"),
        ("torch", False, "bad   Keras would run on torch, which is not installed -> set KERAS_BACKEND=tensorflow"),
        (
            "theano",
            True,
            "bad   Keras has no backend 'theano' (KERAS_BACKEND, or keras.json) -> "
            "set KERAS_BACKEND to one of: tensorflow, jax",
        ),
    ],
)
def test_backend(monkeypatch, name, installed, line):
    """A backend that Keras does not know, or that is not installed, is bad."""
    monkeypatch.setenv("KERAS_BACKEND", name)
    monkeypatch.setattr("importlib.util.find_spec", lambda _: object() if installed else None)
    assert doctor.backend().line() == line


@pytest.mark.parametrize(
    ("jupyter", "chromium", "state"), [(True, True, "ok"), (True, False, "warn"), (False, False, "bad")]
)
def test_browser(monkeypatch, jupyter, chromium, state):
    """JupyterLab is needed; a browser only by some tests."""
    monkeypatch.setattr("importlib.util.find_spec", lambda _: object() if jupyter else None)
    monkeypatch.setattr("shutil.which", lambda _: "/bin/chromium" if chromium else None)
    assert doctor.browser().state == state


# -- the whole run ----------------------------------------------------------------------------------------------------


def test_run_prints_one_line_a_check_and_a_summary(capsys, monkeypatch, tmp_path):
    """Every line begins with its state, the last one is for bug reports; exit code 1 exactly when one is bad."""
    monkeypatch.chdir(tmp_path)
    code = doctor.main([])
    lines = capsys.readouterr().out.splitlines()
    assert all(line[:6] in {"ok    ", "warn  ", "bad   "} for line in lines[:-1])
    assert lines[-1].startswith("For bug reports: hdf5-keras-kit ")
    assert code == int(any(line.startswith("bad") for line in lines))


def test_a_bad_line_makes_exit_code_1(capsys, monkeypatch):
    """One bad check is enough, and its advice is on its line."""
    checks = [Check("ok", "fine"), Check("bad", "disk full", "make room")]
    monkeypatch.setattr(doctor, "examine", lambda *_, **__: checks)
    assert doctor.main([]) == 1
    assert capsys.readouterr().out.splitlines()[:2] == ["ok    fine", "bad   disk full -> make room"]


def test_summary_says_nothing_about_the_person(monkeypatch, tmp_path):
    """No path, no name of a user or a process, no text of an odd variable; GPU, backend and limits are in."""
    monkeypatch.setenv("KERAS_BACKEND", "/home/anna\nx")
    monkeypatch.setattr(machine, "container_limit", lambda: int(4e9))
    checks = [Check("ok", f"{Path.home()} is fine"), Check("warn", "GPU: T4, 0.1 of 16.0 GB free", "anna (process 1)")]
    line = doctor.summary(checks)
    assert not [word for word in (str(Path.home()), "anna", "\n", "process 1", sys.prefix) if word in line]
    end = line.partition(" cores, ")[2]
    assert end.partition(" GB")[2] == (
        ", container limit 4.0 GB; GPU: T4, 0.1 of 16.0 GB free; backend unknown; "
        f"start method {doctor._start_method()}"
    )


def test_summary_without_gpu_and_limit(monkeypatch):
    """What there is not is said shortly, or not at all."""
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    monkeypatch.setattr(machine, "container_limit", lambda: None)
    assert "GB; no GPU; backend jax; start method " in doctor.summary([Check("ok", "no NVIDIA GPU seen")])


PLACES = [
    ("nothing given, no data folder", [], ".", None),
    ("nothing given, a data folder", ["data"], "data", None),
    ("a folder", ["other"], "other", None),
    ("a file", ["other", "other/x.h5"], "other", "other/x.h5"),
    ("a file that is not there", [], "none", "none/x.h5"),
]


@pytest.mark.parametrize(("made", "folder", "file"), [case[1:] for case in PLACES], ids=[case[0] for case in PLACES])
def test_where_the_disk_is_tried(monkeypatch, tmp_path, made, folder, file):
    """In the folder that was named, in that of the file, in data, or here; lessons write in the last two."""
    monkeypatch.chdir(tmp_path)
    for name in made:
        (tmp_path / name).touch() if name.endswith(".h5") else (tmp_path / name).mkdir()
    asked = []
    monkeypatch.setattr(doctor, "examine", lambda *args, **options: asked.append((args, options)) or [])
    given = file or (folder if folder == "other" else None)
    assert doctor.main(["--data", given] if given else []) == 0
    (found, plan), options = asked[0]
    assert found.resolve() == (tmp_path / folder).resolve()
    assert (plan and str(plan.file)) == (file and str(Path(file)))
    assert options == {"writes": given is None}


def test_a_path_that_is_not_there_is_one_bad_line(capsys, tmp_path):
    """The disk of a folder that does not exist is not tried."""
    path = tmp_path / "none" / "x.h5"
    assert list(doctor._folder(path.parent, path, writes=False)) == []
    assert doctor.main(["--data", str(path)]) == 1
    assert f"\nbad   {path} does not exist." in capsys.readouterr().out


def test_options_reach_the_plan(monkeypatch):
    """Every option of a training is handed on."""
    asked = []
    monkeypatch.setattr(doctor, "examine", lambda folder, plan, **_: asked.append(plan) or [])
    given = "--split valid --images X --labels Y --batch-size 8 --max-queue-size 3 --workers 0"
    doctor.main(["--data", "x.h5", *given.split()])
    assert asked == [Plan(Path("x.h5"), "valid", "X", "Y", 8, 3, 0)]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--batch-size", "0"], "argument --batch-size: it must be a whole number, at least 1; got 0."),
        (["--max-queue-size", "many"], "argument --max-queue-size: it must be a whole number, at least 1; got many."),
        (["--workers", "-1"], "argument --workers: it must be a whole number, at least 0; got -1."),
        (["--images", "X"], "--images and --labels name a pair of datasets: give both or neither."),
        (["--split", "dev"], "argument --split: invalid choice: 'dev'"),
    ],
)
def test_options_are_checked(capsys, options, words):
    """What cannot be is said before anything is looked at."""
    with pytest.raises(SystemExit):
        doctor.main(["--data", "x.h5", *options])
    assert words in capsys.readouterr().err


def test_doctor_imports_no_keras(coded_file):
    """The doctor answers in a second on a machine where TensorFlow does not even load, with a file too."""
    code = textwrap.dedent(
        """
        import sys
        from helpers import doctor
        doctor.main(["--data", sys.argv[1]])
        print([name for name in ("keras", "tensorflow", "tf_keras", "jax") if name in sys.modules])
        """
    )
    answer = subprocess.run(
        [sys.executable, "-c", code, str(coded_file)],
        capture_output=True,
        text=True,
        check=True,
        stdin=subprocess.DEVNULL,
    )
    assert answer.stdout.splitlines()[-1] == "[]"


def test_doctor_itself_needs_few_packages():
    """It is asked when an install is not complete: what only looking into files needs is not imported before."""
    code = (
        "import sys, helpers.doctor; print([n for n in ('cv2', 'deflate', 'tqdm', 'cloudpickle') if n in sys.modules])"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout == "[]\n"


# -- every way to be bad ----------------------------------------------------------------------------------------------


def functions_that_can_be_bad() -> set[str]:
    """Names of the functions that call Check with "bad" among its first argument."""
    found = set()
    for module in (check, doctor, file_checks, folder_checks):
        for function in ast.walk(ast.parse(inspect.getsource(module))):
            if isinstance(function, ast.FunctionDef):
                calls = [node for node in ast.walk(function) if isinstance(node, ast.Call) and node.args]
                states = [call.args[0] for call in calls if getattr(call.func, "id", "") == "Check"]
                constants = [node for state in states for node in ast.walk(state) if isinstance(node, ast.Constant)]
                if any(node.value == "bad" for node in constants):
                    found.add(function.name)
    return found


def test_every_function_that_can_be_bad_was_seen_so():
    """A new way to be bad gets a test above, and its name here."""
    assert functions_that_can_be_bad() == {
        "not_installed",  # test_a_python_without_the_kit_is_bad
        "python_version",  # test_another_python_is_bad
        "package",  # test_package_versions, test_missing_package
        "_file",  # test_a_missing_package_does_not_end_the_look_at_a_file
        "limits",  # test_limits_of_the_shell
        "backend",  # test_backend
        "browser",  # test_browser
        "disk",  # test_a_folder_that_is_not_there
        "amount_check",  # test_disk_space, test_memory
        "_why_not_written",  # test_a_folder_that_refuses
        "_no_locks",  # test_a_folder_that_refuses, test_a_disk_without_locks
        "_read_only",  # test_no_file_to_try_in_a_folder_that_can_only_be_read
        "_why_not_opened",  # test_a_file_that_does_not_open_in_a_folder_that_can_only_be_read
        "_verdict",  # test_what_is_no_file_of_images
        "queue",  # test_a_queue_that_fills_the_memory
    }


def test_another_python_is_bad(monkeypatch):
    """A Python outside of the range, above or below."""
    monkeypatch.setattr("platform.python_version", lambda: "3.10.1")
    assert doctor.python_version().line() == (
        f"bad   Python 3.10.1 (needs {doctor.importlib.metadata.metadata(doctor.PROJECT)['Requires-Python']}) -> "
        "make the environment with a Python in this range"
    )


def test_a_bad_line_without_advice_cannot_be_made():
    """Whatever is bad says what to do, also in lines that are added later."""
    with pytest.raises(ValueError, match=r"a bad line must say what to do; got none for 'no luck'\."):
        Check("bad", "no luck")
    assert Check("warn", "some luck").line() == "warn  some luck"


def test_a_line_is_one_line():
    """Words of other programs can neither break it nor clear the terminal."""
    assert Check("warn", "a\nb\x1b[2J", "c\r").line() == r"warn  a\nb\x1b[2J -> c\r"


def test_lines_have_colors_on_a_terminal():
    """The state alone is colored, and the columns stay."""
    assert Check("bad", "a", "b").line(color=True) == "\033[31mbad \033[0m  a -> b"

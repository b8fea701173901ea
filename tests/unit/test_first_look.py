"""A file that ends the process that reads it ends a child process, and the caller gets a sentence."""

import signal
import struct
import subprocess
import sys

import h5py
import numpy as np
import pytest
from coded import make_coded_file

from helpers import HDF5Sequence, RowReader, first_look, inspect_file, layout
from helpers.layout import HDF5FileError, open_file

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGXCPU"), reason="needs Linux or macOS: limits of CPU time")


def damage_texts(path):
    """Zeros in the heap of texts, where HDF5 1.14 goes round in a circle for ever."""
    content = path.read_bytes()
    place = content.index(b"GCOL")
    size = struct.unpack_from("<Q", content, place + 8)[0]
    path.write_bytes(content[: place + 16] + bytes(size - 16) + content[place + size :])


@pytest.fixture
def hostile_file(tmp_path, monkeypatch, looker):
    """A coded file that HDF5 does not survive; the child is started as outside of these tests."""
    monkeypatch.setattr(first_look, "run", looker.alone)
    path = make_coded_file(tmp_path / "coded.h5", rows={"train": 8})
    damage_texts(path)
    return path


def sentence(path):
    said = "when it is read, HDF5 goes round in a circle. A child process tried."
    return f"{path} is damaged: {said} Build or copy it again."


def test_a_file_that_hdf5_does_not_survive_is_a_sentence(hostile_file):
    """Sequence, reader and inspector come back, and say what happened; the child is started once."""
    for use in (HDF5Sequence, open_file, lambda path: RowReader(path, "train_img")):
        with pytest.raises(HDF5FileError) as caught:
            use(hostile_file)
        assert str(caught.value) == sentence(hostile_file)
    report = inspect_file(hostile_file)
    assert (report.exit_code, [fault.code for fault in report.faults]) == (2, ["damaged"])
    assert report.faults[0].message == sentence(hostile_file)


EXITS = {
    -signal.SIGSEGV: "HDF5 ends the process with SIGSEGV",
    -signal.SIGXCPU: "HDF5 goes round in a circle",
    3: "HDF5 asks for more than 256 MB of memory",
    0: "",
}
NOT_KNOWN = [
    1,  # Python's own troubles: whoever reads the file meets them, if they come from it
    -signal.SIGKILL,  # the system ran out of memory
    -signal.SIGTERM,
    None,  # no child could be started, or it did not come back
]


@pytest.mark.parametrize("code", EXITS)
def test_each_end_of_the_child_has_its_words(coded_file, monkeypatch, code):
    """A signal, a circle and too much memory are told apart; errors that Python sees are not its business."""
    monkeypatch.setattr(first_look, "run", lambda path: code)
    with h5py.File(coded_file) as file:
        assert first_look.danger(file) == EXITS[code]


@pytest.mark.parametrize("code", NOT_KNOWN)
def test_a_child_without_an_answer_is_no_damage_and_asked_again(coded_file, monkeypatch, code):
    """Somebody ended the child, or the disk slept: the file passes, and the next opening looks again."""
    codes = [-signal.SIGSEGV, code]
    monkeypatch.setattr(first_look, "run", lambda path: codes.pop())
    with h5py.File(coded_file) as file:
        assert first_look.danger(file) == ""
        assert first_look.danger(file) == "HDF5 ends the process with SIGSEGV"


@pytest.mark.parametrize("failure", [subprocess.TimeoutExpired("python", 120.0), OSError("no process"), None])
def test_a_child_that_does_not_come_back_has_no_exit_code(coded_file, monkeypatch, looker, failure):
    """A time-out, a process that cannot be started, and a Python that does not know its own place."""

    def fails(*_, **__):
        raise failure

    if failure is None:
        monkeypatch.setattr(sys, "executable", "")
    else:
        monkeypatch.setattr(subprocess, "run", fails)
    assert looker.alone(str(coded_file)) is None


def test_the_answer_is_kept_until_the_file_changes(coded_file, monkeypatch):
    """One child a file: later opens cost nothing, a file written anew is looked at again."""
    runs = []
    monkeypatch.setattr(first_look, "run", lambda path: runs.append(path) or 0)
    for _ in range(3):
        open_file(coded_file).close()
    with h5py.File(coded_file, "r+") as file:
        file.attrs["more"] = 1
        file.create_dataset("more", data=np.arange(1000))
    open_file(coded_file).close()
    assert runs == [str(coded_file)] * 2


@pytest.mark.parametrize(
    ("libver", "text", "needed"),
    [
        ("earliest", None, True),
        ("latest", None, False),
        ("latest", "variable", True),
        ("latest", np.bytes_(b"fixed"), False),
        ("latest", np.arange(3), False),
    ],
)
def test_files_with_checksums_and_no_loose_texts_need_no_look(tmp_path, monkeypatch, libver, text, needed):
    """The format of HDF5 1.10 has a checksum over links and numbers, and texts of fixed length lie among them."""
    runs = []
    monkeypatch.setattr(first_look, "run", lambda path: runs.append(path) or 0)
    with h5py.File(tmp_path / "x.h5", "w", libver=libver) as file:
        file["x"] = np.arange(3)
        if text is not None:
            file.attrs["class_names"] = text
    open_file(tmp_path / "x.h5").close()
    assert bool(runs) is needed


def test_the_names_are_those_of_the_kit():
    """The child imports nothing of the kit, and knows the same names."""
    own = (layout.CLASS_NAMES, layout.MEAN, layout.SEED, layout.SOURCE, layout.SOURCE_DIGEST)
    assert (*own, layout.VERSION, layout.COMPLETE, layout.IMAGE_SHAPE) == first_look.ATTRIBUTES
    datasets = [(layout.image_dataset(split), layout.label_dataset(split)) for split in layout.SPLITS]
    pairs = [(images, labels, layout.crc_dataset(images)) for images, labels in datasets]
    assert tuple(name for each in pairs for name in each) == first_look.DATASETS


def test_a_good_file_passes_in_a_child_of_its_own(coded_file, looker):
    """Started as a script, as outside of these tests, the child has no objection."""
    assert looker.alone(str(coded_file)) == 0


def groups_in_groups(path):
    """3,000 groups, each in the one before: HDF5 takes longer for each of them."""
    with h5py.File(path, "w") as file:
        group = file
        for _ in range(3000):
            group = group.create_group("g")


def many_attributes(path):
    """30 groups of 5,000 numbers; a walk through all of them takes 7 s."""
    space = h5py.h5s.create(h5py.h5s.SCALAR)
    with h5py.File(path, "w") as file:
        first = file.create_group("first")
        for number in range(5000):
            h5py.h5a.create(first.id, b"%d" % number, h5py.h5t.NATIVE_INT32, space)
        for number in range(29):
            file.copy(first, f"copy {number}")


@pytest.mark.parametrize("make", [groups_in_groups, many_attributes])
def test_a_large_file_is_no_damaged_one(tmp_path, looker, make):
    """The walk through a sound file of any size ends by itself, in a child of its own."""
    make(tmp_path / "large.h5")
    assert looker.alone(str(tmp_path / "large.h5")) == 0


UNDER_A_LIMIT = """
import resource, sys
from helpers import first_look
resource.setrlimit(resource.RLIMIT_CPU, (3, 3))
print([first_look.run(path) for path in sys.argv[1:]])
"""


def test_limits_that_cannot_be_raised_are_kept(tmp_path, hostile_file):
    """Where a process may have 3 s of CPU time, a sound file passes all the same, and a circle is told from it."""
    groups_in_groups(tmp_path / "large.h5")
    command = [sys.executable, "-c", UNDER_A_LIMIT, str(tmp_path / "large.h5"), str(hostile_file)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == f"[0, {-signal.SIGXCPU}]\n"

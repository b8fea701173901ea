"""A path that leads to no good file: whoever opens or makes it says the same, in one sentence that says what to do."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import h5py
import numpy as np
import pytest
from PIL import Image

from data_scripts.build_hdf5 import build_hdf5
from data_scripts.rechunk import rechunk
from helpers import HDF5Sequence, HDF5Writer, RowReader, inspect_file, layout
from helpers.course.diagrams import file_tree
from helpers.images import ImageError, read_image
from helpers.layout import HDF5FileError
from helpers.models import WeightsError, normalization, transfer_model
from helpers.words import printable

pytestmark = pytest.mark.skipif(os.name == "nt", reason="needs links, pipes and signals as Linux has them")


def inspected(path) -> None:
    """The inspector reports, and raises nothing: its first fault is raised here."""
    report = inspect_file(path)
    assert (report.readable, report.exit_code, len(report.faults)) == (False, 2, 1)
    assert report.faults[0].advice
    raise HDF5FileError(0, report.faults[0].message)


READERS = {
    "open_file": layout.open_file,
    "read_file_info": layout.read_file_info,
    "read_split_info": layout.read_split_info,
    "RowReader": lambda path: RowReader(path, "train_img"),
    "HDF5Sequence": HDF5Sequence,
    "normalization": normalization,
    "inspect_file": inspected,
    "rechunk": lambda path: rechunk(path, "never_made.h5", progress=False),
    "file_tree": file_tree,
}


def sentences(openers: dict, path) -> dict[str, str]:
    """What each of them says of a path, without HDF5's own words."""
    told = {}
    for name, open_it in openers.items():
        with pytest.raises(HDF5FileError) as caught:
            open_it(path)
        told[name] = str(caught.value).partition(" HDF5 said: ")[0]
    return told


# -- to read ----------------------------------------------------------------------------------------------------------


def _python(code: str, path: Path) -> None:
    subprocess.run([sys.executable, "-c", f"import h5py, os, sys\n{code}", path], check=False)


def _cut(good: Path) -> Path:
    os.truncate(good, good.stat().st_size - 1)
    return good


def _other(content: bytes):
    def made(good: Path) -> Path:
        good.write_bytes(content)
        return good

    return made


def _killed(libver: str):
    def made(good: Path) -> Path:
        _python(
            f"f = h5py.File(sys.argv[1], 'w', libver={libver!r}); f['x'] = [1]; f.flush(); os.kill(os.getpid(), 9)",
            good,
        )
        return good

    return made


def _folder(good: Path) -> Path:
    return good.parent


def _pipe(good: Path) -> Path:
    os.mkfifo(good.with_name("pipe.h5"))
    return good.with_name("pipe.h5")


def _socket(good: Path) -> Path:
    with socket.socket(socket.AF_UNIX) as end:
        end.bind(str(good.with_name("s.h5")))
    return good.with_name("s.h5")


def _link_to_nothing(good: Path) -> Path:
    good.with_name("link.h5").symlink_to("/gone/food.h5")
    return good.with_name("link.h5")


def _links_in_a_circle(good: Path) -> Path:
    good.with_name("a.h5").symlink_to("b.h5")
    good.with_name("b.h5").symlink_to("a.h5")
    return good.with_name("a.h5")


NOT_HDF5 = (
    "{} is not an HDF5 file, or the process that wrote it was killed before anything was saved (an HTML error page "
    "saved under this name is common). Build or download it again."
)
MISSING = "{} does not exist. Check the path, or build the file first."
LINK = (
    "{{}} is a link to {}, which does not exist or leads back to the link. Is its disk there? Correct the link, or "
    "build the file first."
)
UNREADABLE = {
    "missing": (lambda good: good.with_name("none.h5"), MISSING),
    "below a file": (lambda good: good / "x.h5", MISSING),
    "a zero byte in the name": (lambda good: Path(f"{good}\0"), MISSING),
    "a long name": (lambda good: good.with_name("x" * 252), MISSING),
    "a name too long": (
        lambda good: good.with_name("x" * 300),
        "{} cannot be opened: File name too long. Check the path.",
    ),
    "a link to nothing": (_link_to_nothing, LINK.format("/gone/food.h5")),
    "links in a circle": (_links_in_a_circle, LINK.format("b.h5")),
    "a folder": (_folder, "{} is a folder, not an HDF5 file. Build one from it: data_scripts.build_hdf5."),
    "a pipe": (_pipe, "{} is a device or a pipe, not a file. Check the path."),
    "a socket": (_socket, "{} is a device or a pipe, not a file. Check the path."),
    "a device": (lambda _: Path("/dev/zero"), "{} is a device or a pipe, not a file. Check the path."),
    "empty": (_other(b""), NOT_HDF5),
    "zeros": (_other(bytes(4096)), NOT_HDF5),
    "a web page": (_other(b"<!DOCTYPE html><title>404</title>" * 99), NOT_HDF5),
    "a NumPy file": (_other(b"\x93NUMPY\x01\0" * 99), NOT_HDF5),
    "cut by one byte": (_cut, "{} is cut short: a copy, download or build stopped early. Copy or build it again."),
    "written by another format": (
        _other(b"\x89HDF\r\n\x1a\n\xff" + bytes(4096)),
        "{} cannot be opened as HDF5; it is probably damaged. Build or copy it again.",
    ),
    "never closed": (
        _killed("latest"),
        "{} was never closed: the process that wrote it was killed, or writes to it still. If nothing does, its last "
        "rows may be missing: build it again, or remove the mark with h5clear -s FILE.",
    ),
}


@pytest.mark.parametrize("case", UNREADABLE)
def test_whoever_opens_a_bad_path_says_the_same(coded_file, case, monkeypatch):
    """Readers, sequence, inspector, repair and drawings: one sentence that names the file, and no file is made."""
    monkeypatch.chdir(coded_file.parent)
    make, sentence = UNREADABLE[case]
    path = make(coded_file)
    before = sorted(coded_file.parent.iterdir())
    told = sentences(READERS, path)
    assert printable(told.pop("inspect_file")) == printable(sentence.format(path))
    assert set(told.values()) == {sentence.format(path)}
    assert sorted(coded_file.parent.iterdir()) == before


def test_a_file_that_a_writer_holds_is_in_use_for_all(coded_file, monkeypatch):
    """The lock of another process is the same sentence everywhere, and nothing is taken for damage."""
    monkeypatch.chdir(coded_file.parent)
    code = f"import h5py; f = h5py.File({str(coded_file)!r}, 'r+'); print('open', flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        holder.stdout.readline()
        told = sentences(READERS, coded_file)
        holder.communicate(b"\n")
    assert set(told.values()) == {
        f"{coded_file} is open for writing in another process or notebook kernel. Close it there (shut down the old "
        "kernel), then try again."
    }


WITHOUT_RIGHTS = """
import os, sys
from data_scripts.rechunk import rechunk
from helpers import HDF5Writer, RowReader, inspect_file, layout

file, folder = sys.argv[1:]
if os.getuid() == 0:
    os.setgroups([])
    os.setuid(65534)


def write(path):
    with HDF5Writer(path, (4, 4, 3), ["a"]):
        pass


def report(path):
    fault = inspect_file(path).faults[0]
    print(fault.code, fault.message)


for job in (lambda p: RowReader(p, "train_img"), report, lambda p: rechunk(p, p + "2", progress=False), write):
    for path in (file, folder + "/x.h5"):
        try:
            job(path)
        except layout.HDF5FileError as error:
            print(error)
"""


def test_files_and_folders_without_rights_are_said_so(coded_file):
    """A file that may not be read, and a folder that may not be entered or written to: for readers and writers."""
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        file, folder = root / "food.h5", root / "closed"
        file.write_bytes(coded_file.read_bytes())
        folder.mkdir()
        for path, mode in ((file, 0), (folder, 0), (root, 0o555)):
            path.chmod(mode)
        done = subprocess.run(
            [sys.executable, "-c", WITHOUT_RIGHTS, file, folder], capture_output=True, text=True, check=False
        )
        root.chmod(0o755)
        folder.chmod(0o755)
    assert done.stderr == ""
    file_told = f"{file} may not be read by this user (permission denied). Change its permissions."
    folder_told = f"{folder}/x.h5 cannot be opened: Permission denied. Check the path."
    assert done.stdout.splitlines() == [
        file_told,
        folder_told,
        f"permission {file_told}",
        f"permission {folder_told}",
        file_told,
        folder_told,
        f"{file}.part cannot be made: Permission denied. Choose a folder that this user may write to.",
        f"{folder}/x.h5 cannot be made: Permission denied. Give another name or folder.",
    ]


def test_weights_that_do_not_open_say_why(coded_file):
    """A download that broke off is the same sentence for trained weights as for images."""
    for make, sentence in (UNREADABLE["cut by one byte"], UNREADABLE["a web page"]):
        path = make(coded_file)
        with pytest.raises(WeightsError) as caught:
            transfer_model((32, 32, 3), 2, "MobileNetV2", weights=path)
        assert str(caught.value).partition(" HDF5 said: ")[0] == sentence.format(path)


# -- to make ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def photos(tmp_path) -> Path:
    for name in ("a", "b"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(4):
            Image.new("RGB", (9, 9), (50 * number, ord(name), 1)).save(tmp_path / "photos" / name / f"{number}.png")
    return tmp_path / "photos"


def _write(path) -> None:
    with HDF5Writer(path, (4, 4, 3), ["a"]) as writer:
        writer.append("train", np.ones((1, 4, 4, 3), np.uint8), [0])


def writers(photos: Path, source: Path) -> dict:
    """All that makes an HDF5 file."""
    return {
        "HDF5Writer": _write,
        "rechunk": lambda path: rechunk(source, path, progress=False),
        "build": lambda path: build_hdf5(photos, path, size=8, progress=False),
        "build, resumed": lambda path: build_hdf5(photos, path, size=8, progress=False, resume=True),
    }


CIRCLE = "{} is a link that leads to itself. Give another name."
NO_TARGET = {
    "below a file": (lambda good: good / "x.h5", "{} cannot be made: Not a directory. Give another name or folder."),
    "a folder that is not there": (
        lambda good: good.parent / "none" / "x.h5",
        "the folder {0.parent} does not exist. Create it first.",
    ),
    "a link to such a folder": (_link_to_nothing, "the folder /gone does not exist. Create it first."),
    "a zero byte in the name": (
        lambda good: Path(f"{good.parent}/\0"),
        "'{0.parent}/\\x00' is no name of a file. Give another one.",
    ),
    "a long name": (
        lambda good: good.with_name("x" * 252),
        "{} cannot be made: File name too long. Give another name or folder.",
    ),
    "links in a circle": (_links_in_a_circle, CIRCLE),
    "a folder": (_folder, "{} is a folder; an HDF5 file cannot replace it. Give a file name inside it."),
    "a pipe": (
        _pipe,
        "{} is a device, a pipe or the like; an HDF5 file cannot replace it. Give another name.",
    ),
    "a device": (
        lambda _: Path("/dev/null"),
        "{} is a device, a pipe or the like; an HDF5 file cannot replace it. Give another name.",
    ),
}


@pytest.mark.parametrize("case", NO_TARGET)
def test_whoever_makes_a_file_refuses_a_bad_name_alike(coded_file, photos, case):
    """Writer, builder and repair: one sentence before any image is read, and nothing is left behind."""
    make, sentence = NO_TARGET[case]
    path = make(coded_file)
    before = sorted(coded_file.parent.iterdir())
    told = sentences(writers(photos, coded_file), path)
    assert set(told.values()) == {sentence.format(path)}
    assert sorted(coded_file.parent.iterdir()) == before


NO_PATHS = {
    "nothing": (None, "nothing"),
    "a number": (3, "an object of type int"),
    "bytes": (b"food.h5", "an object of type bytes"),
    "a list": (["food.h5"], "an object of type list"),
}


@pytest.mark.parametrize("case", NO_PATHS)
def test_what_is_no_path_is_refused_alike(coded_file, photos, case):
    """A Python file object, for one, would be shared by all workers; readers and writers take the name of a file."""
    value, got = NO_PATHS[case]
    openers = {**READERS, **writers(photos, coded_file)}
    del openers["file_tree"]  # a drawing of the lessons, whose path is written there
    for name, open_it in openers.items():
        with pytest.raises(TypeError) as caught:
            open_it(value)
        assert str(caught.value) == (
            f"path must name an HDF5 file, which each process opens for itself; got {got}. Pass the name of the file."
        ), name
    with coded_file.open("rb") as file, pytest.raises(TypeError, match="got an object of type BufferedReader"):
        RowReader(file, "train_img")


def test_resuming_does_not_replace_a_file_that_is_in_use(tmp_path, photos):
    """Whether it is whole cannot be seen while another process writes to it: --resume says so, and leaves it alone."""
    path = tmp_path / "food.h5"
    build_hdf5(photos, path, size=8, progress=False)
    code = f"import h5py; f = h5py.File({str(path)!r}, 'r+'); print('open', flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        holder.stdout.readline()
        before = path.stat().st_ino
        with pytest.raises(HDF5FileError, match="is open for writing in another process"):
            build_hdf5(photos, path, size=8, progress=False, resume=True)
        assert path.stat().st_ino == before
        holder.communicate(b"\n")
    assert build_hdf5(photos, path, size=8, progress=False, resume=True).was_complete


def test_a_killed_writer_of_every_format_is_replaced_by_the_next_build(tmp_path, photos):
    """What a kill left under the name, readable or not, is no obstacle: the new file is whole."""
    path = tmp_path / "food.h5"
    for libver in ("earliest", "v110", "latest"):
        _killed(libver)(path)
        for resume in (False, True):
            build_hdf5(photos, path, size=8, progress=False, resume=resume)
            assert inspect_file(path).ok
            assert h5py.is_hdf5(path)


@pytest.mark.timeout(20)
def test_a_device_is_no_picture():
    """Reading it would fill the memory, and never end."""
    with pytest.raises(ImageError, match=r"^it is a device, not a file$"):
        read_image("/dev/zero")

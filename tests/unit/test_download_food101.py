"""Food-101 ends as one whole folder, or the command says in one sentence what stopped it and goes on next time."""

from __future__ import annotations

import errno
import gzip
import hashlib
import io
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from file_server import cuts, file_server, stalls, without_length
from PIL import Image

from data_scripts import build_hdf5, fetch
from data_scripts import download_food101 as module
from data_scripts.download_food101 import CannotStartError, DownloadError, download_food101, main
from helpers.words import size_text

CLASSES = ("apple_pie", "baby_back_ribs")


def picture(number: int) -> bytes:
    """A JPEG of its own colour."""
    file = io.BytesIO()
    Image.new("RGB", (24, 16), (40 * number, 90, 200)).save(file, format="JPEG")
    return file.getvalue()


def food101(classes=CLASSES, per_class: int = 5) -> dict[str, bytes]:
    """The files of a small Food-101, by their paths."""
    ids = {name: [f"{name}/{100 * label + k}" for k in range(per_class)] for label, name in enumerate(classes)}
    train = [one for names in ids.values() for one in names[:-1]]
    test = [names[-1] for names in ids.values()]
    files = {f"images/{one}.jpg": picture(number) for number, one in enumerate(train + test)}
    files |= {"meta/train.txt": "\n".join(train).encode(), "meta/test.txt": ("\n".join(test) + "\n").encode()}
    return files | {"README.txt": np.random.default_rng(0).bytes(100_000)}  # does not compress, as photographs


def packed(files: dict[str, bytes], folder: str = "food-101") -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as tar:
        for name, data in files.items():
            info = tarfile.TarInfo(f"{folder}/{name}")
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return file.getvalue()


FILES = food101()
ARCHIVE = packed(FILES)


def tree(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.fixture
def server():
    with file_server(ARCHIVE) as running:
        yield running


@pytest.fixture(autouse=True)
def no_waits(monkeypatch):
    """Waits take no time, and no proxy stands between the tests and their server."""
    monkeypatch.setattr(fetch, "sleep", lambda seconds: None)
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def quiet(out: Path, server, **options) -> Path:
    sha256 = options.pop("sha256", digest(server.body))
    return download_food101(out, url=server.url, sha256=sha256, progress=False, **options)


def arguments(out: Path, server, *more: str) -> list[str]:
    return ["--out", str(out), "--url", server.url, "--sha256", digest(server.body), *more]


def sentences(captured) -> list[str]:
    """What was said on stderr beside the progress bars."""
    return [line for line in re.split(r"[\r\n]+", captured.err) if line.startswith(("download_food101: ", "  "))]


@pytest.fixture
def no_network(monkeypatch):
    """Any use of the network fails the test."""

    def refuse():
        raise AssertionError("the network was used")

    monkeypatch.setattr(fetch, "_opener", refuse)


# -- done -------------------------------------------------------------------------------------------------------------


def test_the_folder_is_the_archive(tmp_path, server):
    """All files with their bytes are in DIR/food-101, and nothing else is in DIR, which is made when it is missing."""
    assert quiet(tmp_path / "data", server) == tmp_path / "data" / "food-101"
    assert tree(tmp_path / "data" / "food-101") == FILES
    assert names(tmp_path / "data") == ["food-101"]


def test_the_archive_can_be_kept(tmp_path, server):
    """--keep-archive leaves it under its own name, byte for byte."""
    quiet(tmp_path, server, keep_archive=True)
    assert (tmp_path / "food-101.tar.gz").read_bytes() == ARCHIVE
    assert names(tmp_path) == ["food-101", "food-101.tar.gz"]


def test_the_command_says_what_comes_next(tmp_path, server, capsys, monkeypatch):
    """The last line is a command that works: it builds an HDF5 file from the new folder."""
    out = tmp_path / "my data"
    assert main(arguments(out, server)) == 0
    first, following = capsys.readouterr().out.splitlines()
    assert first == f"{out / 'food-101'}: 10 pictures of 2 classes"
    assert following == f"next: python -m data_scripts.build_hdf5 '{out / 'food-101'}' --out food.h5 --size 299"
    monkeypatch.chdir(tmp_path)
    assert build_hdf5.main(shlex.split(following)[4:]) == 0
    assert (tmp_path / "food.h5").is_file()


def test_the_builder_takes_the_folder_with_its_official_lists(tmp_path, server):
    """--split official, which is for Food-101 only, finds its lists: the test list is the test split."""
    folder = quiet(tmp_path, server)
    report = build_hdf5.build_hdf5(folder, tmp_path / "food.h5", size=8, split="official", progress=False)
    assert report.class_names == CLASSES
    assert report.class_counts["test"] == [1, 1]


def test_a_whole_folder_is_recognised(tmp_path, server, capsys):
    """A second run asks nobody, changes nothing, says so and gives the next command again."""
    quiet(tmp_path, server)
    server.asked.clear()
    assert main(arguments(tmp_path, server)) == 0
    captured = capsys.readouterr()
    assert sentences(captured) == [f"  {tmp_path / 'food-101'} is there and complete: nothing to do."]
    assert captured.out.startswith(f"{tmp_path / 'food-101'}: 10 pictures of 2 classes\nnext: ")
    assert server.asked == []


@pytest.mark.parametrize("keep", [False, True])
def test_an_archive_fetched_by_hand_needs_no_network(tmp_path, no_network, keep):
    """--archive takes the file wherever it lies, and leaves it there; --keep-archive makes no copy of it."""
    archive = tmp_path / "by_hand.tar.gz"
    archive.write_bytes(ARCHIVE)
    options = {"sha256": digest(ARCHIVE), "progress": False, "keep_archive": keep}
    folder = download_food101(tmp_path / "data", archive=archive, **options)
    assert tree(folder) == FILES
    assert archive.read_bytes() == ARCHIVE
    assert names(tmp_path / "data") == ["food-101"]


def test_an_archive_in_the_folder_is_found(tmp_path, no_network):
    """One that somebody put at DIR/food-101.tar.gz is used, and not removed."""
    (tmp_path / "food-101.tar.gz").write_bytes(ARCHIVE)
    assert tree(download_food101(tmp_path, sha256=digest(ARCHIVE).upper(), progress=False)) == FILES
    assert names(tmp_path) == ["food-101", "food-101.tar.gz"]


def test_the_defaults_are_those_of_food101():
    """Without options it is ETH Zurich's archive, by its digest and its size."""
    assert module.URL == "http://data.vision.ee.ethz.ch/cvl/food-101.tar.gz"
    assert module.SHA256 == "d97d15e438b7f4498f96086a4f7e2fa42a32f2712e87d3295441b2b6314053a4"
    assert module.SIZE == 4_996_278_331
    given = module._parser().parse_args(["--out", "data"])
    assert (given.sha256, given.timeout, given.retries, given.keep_archive) == (module.SHA256, 30, 8, False)


# -- stopped, and gone on ---------------------------------------------------------------------------------------------


def test_a_cut_download_goes_on_in_the_next_run(tmp_path, server, capsys):
    """The command stops with status 1 and one sentence; the same command ends with the whole folder."""
    server.answers = [cuts(50_000)]
    assert main(arguments(tmp_path, server, "--retries", "0")) == 1
    assert sentences(capsys.readouterr()) == [
        f"download_food101: {server.url}: the connection was cut after 50,000 bytes. Further tries that brought "
        "nothing new: 0. What is there is kept: the same command goes on from it. --url names a mirror, --archive a "
        "file fetched in another way."
    ]
    assert names(tmp_path) == ["food-101.tar.gz.part", "food-101.tar.gz.part.json"]
    assert main(arguments(tmp_path, server)) == 0
    assert server.asked[1]["Range"] == "bytes=50000-"
    assert tree(tmp_path / "food-101") == FILES
    assert names(tmp_path) == ["food-101"]


@pytest.mark.parametrize("answer", [cuts(len(ARCHIVE)), without_length])
def test_an_interrupt_while_unpacking_costs_no_download(tmp_path, server, capsys, monkeypatch, answer):
    """Ctrl-C is one sentence; nothing half-filled is left, and the next run only unpacks."""
    server.answers = [answer]
    with monkeypatch.context() as patch:
        patch.setattr(tarfile, "copyfileobj", interrupt)
        assert main(arguments(tmp_path, server)) == 1
    assert sentences(capsys.readouterr()) == [
        "download_food101: interrupted. The same command goes on where it stopped."
    ]
    assert names(tmp_path) == ["food-101.tar.gz.part", "food-101.tar.gz.part.json"]
    assert main(arguments(tmp_path, server)) == 0
    assert len(server.asked) == 1
    assert names(tmp_path) == ["food-101"]


def interrupt(*_) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_stopped_process_goes_on(tmp_path, server, number):
    """Ctrl-C, the end of a job and even a kill leave what is there, and the next run goes on from it."""
    server.answers = [stalls(50_000)]
    command = [sys.executable, "-m", "data_scripts.download_food101", *arguments(tmp_path, server)]
    part = tmp_path / "food-101.tar.gz.part"
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + 60
        while not (part.exists() and part.stat().st_size) and time.monotonic() < deadline:
            time.sleep(0.01)
        process.send_signal(number)
        said = process.communicate(timeout=60)[1]
    if number != signal.SIGKILL:
        assert process.returncode == 1
        assert said.splitlines()[-1] == "download_food101: interrupted. The same command goes on where it stopped."
    begun = part.stat().st_size
    assert tree(quiet(tmp_path, server)) == FILES
    assert server.asked[1]["Range"] == f"bytes={begun}-"


def test_what_a_killed_run_was_unpacking_is_removed(tmp_path, server):
    """A half-filled folder beside the target, and the lock of a dead process, do not stand in the way."""
    (tmp_path / "food-101.unpacking" / "food-101").mkdir(parents=True)
    (tmp_path / "food-101.unpacking" / "food-101" / "half").write_bytes(b"x")
    (tmp_path / "food-101.lock").touch()
    assert tree(quiet(tmp_path, server)) == FILES
    assert names(tmp_path) == ["food-101"]


def test_a_wrong_digest_unpacks_nothing(tmp_path, server, capsys):
    """A download with another digest is removed, and the sentence names both digests."""
    wanted = "0" * 64
    assert main(["--out", str(tmp_path), "--url", server.url, "--sha256", wanted]) == 1
    assert sentences(capsys.readouterr()) == [
        f"download_food101: {tmp_path / 'food-101.tar.gz.part'} is not the archive that was wanted: its SHA-256 must "
        f"be {wanted}; it is {digest(ARCHIVE)}. It was removed; the same command downloads it anew."
    ]
    assert names(tmp_path) == []


def test_a_wrong_archive_of_the_user_is_left_alone(tmp_path, no_network):
    """A file that was given is checked too, and never removed."""
    archive = tmp_path / "food-101.tar.gz"
    archive.write_bytes(b"<html>")
    with pytest.raises(DownloadError) as caught:
        download_food101(tmp_path, progress=False)
    assert str(caught.value) == (
        f"{archive} is not the archive that was wanted: its SHA-256 must be {module.SHA256}; it is "
        f"{digest(b'<html>')}. Nothing was unpacked. Fetch the file again."
    )
    assert names(tmp_path) == ["food-101.tar.gz"]


def without(name: str) -> bytes:
    return packed({path: data for path, data in FILES.items() if path != name})


UNUSABLE = {
    "no tar": (b"<html>", "{part} is not unpacked: it is not a .tar.gz archive. Nothing of it was kept."),
    "cut": (ARCHIVE[:-9], "{part} is not unpacked: it is damaged or cut short. Nothing of it was kept."),
    "hostile": (
        packed(FILES | {"../../outside": b"x"}),
        "{part} is not unpacked: its member 'food-101/../../outside' leads out of its folder. Nothing of it was kept.",
    ),
    "another data set": (
        packed(FILES, "food-11"),
        "{part} is no whole Food-101: meta/train.txt cannot be read. Nothing of it was kept.",
    ),
    "no list": (
        without("meta/test.txt"),
        "{part} is no whole Food-101: meta/test.txt cannot be read. Nothing of it was kept.",
    ),
    "list of another code": (
        packed(FILES | {"meta/test.txt": b"\xff"}),
        "{part} is no whole Food-101: meta/test.txt cannot be read. Nothing of it was kept.",
    ),
    "a picture missing": (
        without("images/apple_pie/0.jpg"),
        "{part} is no whole Food-101: 1 of the 10 pictures in its lists are missing, such as images/apple_pie/0.jpg. "
        "Nothing of it was kept.",
    ),
}


@pytest.mark.parametrize(("body", "sentence"), UNUSABLE.values(), ids=UNUSABLE)
def test_an_archive_that_is_no_food101_is_refused(tmp_path, server, capsys, body, sentence):
    """With a digest of one's own, whatever arrives is still checked: no folder of that name appears."""
    server.body = body
    out = tmp_path / "data"
    assert main(arguments(out, server)) == 1
    part = out / "food-101.tar.gz.part"
    assert sentences(capsys.readouterr()) == [f"download_food101: {sentence.format(part=part)}"]
    assert names(out) == ["food-101.tar.gz.part", "food-101.tar.gz.part.json"]
    assert names(tmp_path) == ["data"]


def test_what_lies_beside_the_folder_in_the_archive_is_dropped(tmp_path, server):
    """Only food-101 is kept of an archive, and files such as ._food-101 of a Mac are not."""
    data = tarfile.TarInfo("._food-101")
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:") as tar:
        tar.addfile(data)
    server.body = gzip.compress(file.getvalue()[:512] + gzip.decompress(ARCHIVE))
    assert tree(quiet(tmp_path, server)) == FILES
    assert names(tmp_path) == ["food-101"]


# -- the disk ---------------------------------------------------------------------------------------------------------


def free(monkeypatch, n: int) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=n))


def test_food101_needs_its_space_before_the_first_request(tmp_path, no_network, monkeypatch, capsys):
    """The room for archive and pictures is looked at first, with status 2."""
    free(monkeypatch, 9_000_000_000)
    assert main(["--out", str(tmp_path)]) == 2
    assert sentences(capsys.readouterr()) == [
        f"download_food101: {tmp_path} needs 10.4 GB of free space: 5 GB for the download and 5.4 GB for the "
        "pictures; 9 GB are free. Free some, or choose another --out."
    ]
    assert names(tmp_path) == []


def test_the_rest_of_a_download_needs_less(tmp_path, server, monkeypatch):
    """Bytes that are there already are not asked for again, neither from the server nor from the disk."""
    server.answers = [cuts(len(ARCHIVE) - 1000)]
    with pytest.raises(DownloadError):
        quiet(tmp_path, server, retries=0)
    free(monkeypatch, int(len(ARCHIVE) * module.GROWTH) + 999)
    with pytest.raises(CannotStartError, match=r": 1 kB for the download and [\d.]+ kB for the pictures; "):
        quiet(tmp_path, server)
    free(monkeypatch, int(len(ARCHIVE) * module.GROWTH) + 1000)
    assert tree(quiet(tmp_path, server)) == FILES


def test_an_archive_by_hand_needs_space_for_the_pictures_only(tmp_path, monkeypatch):
    """Without a download the sentence asks for the pictures alone."""
    archive = tmp_path / "food-101.tar.gz"
    archive.write_bytes(ARCHIVE)
    free(monkeypatch, 5)
    with pytest.raises(CannotStartError) as caught:
        download_food101(tmp_path, sha256=digest(ARCHIVE), progress=False)
    pictures = size_text(int(len(ARCHIVE) * module.GROWTH))
    assert str(caught.value) == (
        f"{tmp_path} needs {pictures} of free space: 0 bytes for the download and {pictures} for the pictures; 5 bytes "
        "are free. Free some, or choose another --out."
    )
    assert names(tmp_path) == ["food-101.tar.gz"]


def test_a_disk_that_fills_up_while_unpacking_keeps_the_archive(tmp_path, server, capsys, monkeypatch):
    """One sentence; the half-filled folder is gone, and the next run only unpacks."""

    def full(*_) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(tarfile, "copyfileobj", full)
        assert main(arguments(tmp_path, server)) == 1
    part = tmp_path / "food-101.tar.gz.part"
    assert sentences(capsys.readouterr()) == [
        f"download_food101: {part} cannot be unpacked: the disk is full. The archive is kept. Free some space, then "
        "run the same command again."
    ]
    assert names(tmp_path) == ["food-101.tar.gz.part", "food-101.tar.gz.part.json"]
    assert main(arguments(tmp_path, server)) == 0
    assert len(server.asked) == 1


# -- could not start --------------------------------------------------------------------------------------------------


def test_a_folder_that_is_not_whole_is_not_touched(tmp_path, server, capsys):
    """A folder of that name from elsewhere is named, with the first picture that is missing."""
    folder = quiet(tmp_path, server)
    (folder / "images" / "apple_pie" / "2.jpg").unlink()
    left = tree(folder)
    assert main(arguments(tmp_path, server)) == 2
    assert sentences(capsys.readouterr()) == [
        f"download_food101: {folder} is no whole Food-101: 1 of the 10 pictures in its lists are missing, such as "
        "images/apple_pie/2.jpg. Move it away, or choose another --out."
    ]
    assert tree(folder) == left


def test_two_at_once_are_refused(tmp_path, server, capsys):
    """While one is at work in a folder, a second one is told so."""
    with module._only_one(tmp_path):
        assert main(arguments(tmp_path, server)) == 2
    assert sentences(capsys.readouterr()) == [
        f"download_food101: another download_food101 is at work in {tmp_path}. Wait for it, or choose another --out."
    ]
    assert server.asked == []


def test_a_lock_that_was_just_removed_guards_nothing(tmp_path, monkeypatch):
    """A run that opened the lock while its owner removed it takes the new one, which keeps the third run out."""
    path, lock, calls = tmp_path / "food-101.lock", module._lock, []

    def lock_after_the_owner_left(descriptor: int) -> None:
        if not calls:
            path.unlink()
        calls.append(descriptor)
        lock(descriptor)

    monkeypatch.setattr(module, "_lock", lock_after_the_owner_left)
    with module._only_one(tmp_path):
        assert (len(calls), names(tmp_path)) == (2, ["food-101.lock"])
        with pytest.raises(CannotStartError, match="another download_food101 is at work"), module._only_one(tmp_path):
            pass
        assert names(tmp_path) == ["food-101.lock"]
    assert names(tmp_path) == []


def test_a_disk_without_locks_is_used_all_the_same(tmp_path, server, monkeypatch):
    """Some network disks cannot lock a file; the download works there."""

    def no_locks(_: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(module, "_lock", no_locks)
    assert tree(quiet(tmp_path, server)) == FILES


CANNOT_START = {
    "a file as folder": (["--out", "file"], "file is a file, not a folder. Choose another --out."),
    "no parent": (["--out", "no/data"], "no does not exist. Make it, or choose another --out."),
    "below a file": (["--out", "file/data"], "file/data cannot be made: Not a directory. Choose another --out."),
    "no archive": (["--out", ".", "--archive", "no"], "--archive must be the file food-101.tar.gz; no is no file."),
    "a folder as archive": (
        ["--out", ".", "--archive", "."],
        "--archive must be the file food-101.tar.gz; . is no file.",
    ),
    "digest": (["--out", ".", "--sha256", "85eeb1"], "--sha256 must have 64 hexadecimal digits; got '85eeb1'."),
    "address": (
        ["--out", ".", "--url", "mirror"],
        "--url must be an address that begins with http:// or https://; got 'mirror'.",
    ),
    "timeout": (["--out", ".", "--timeout", "0"], "--timeout must be above 0 and at most 86400 seconds; got 0."),
    "retries": (["--out", ".", "--retries", "-1"], "--retries must be at least 0; got -1."),
}


@pytest.mark.parametrize(("given", "sentence"), CANNOT_START.values(), ids=CANNOT_START)
def test_what_cannot_start_says_why(tmp_path, monkeypatch, capsys, no_network, given, sentence):
    """Wrong arguments and folders end with status 2, the rule and what was given."""
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    assert main(given) == 2
    assert sentences(capsys.readouterr()) == [f"download_food101: {sentence}"]
    assert names(tmp_path) == ["file"]


def test_a_folder_that_cannot_be_written_is_refused(tmp_path, monkeypatch):
    """A folder of somebody else is said before anything is asked."""
    opens = Path.open

    def refuse(path: Path, mode: str = "r", **more):
        if path.name == "food-101.lock":
            raise PermissionError(errno.EACCES, "Permission denied")
        return opens(path, mode, **more)

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(CannotStartError) as caught:
        download_food101(tmp_path, progress=False)
    assert str(caught.value) == f"{tmp_path} cannot be written: Permission denied. Choose another --out."


def test_an_archive_and_an_address_together_are_refused(tmp_path, capsys):
    """Only one place can be meant."""
    with pytest.raises(SystemExit):
        main(["--out", str(tmp_path), "--archive", "a", "--url", "http://example.org/a"])
    assert capsys.readouterr().err.endswith("error: argument --url: not allowed with argument --archive\n")

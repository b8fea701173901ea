"""Files in the making: killed at every single step, resumed, and equal to what an uninterrupted writer makes."""

import contextlib
import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
from photos import content, names

from helpers import HDF5Writer, layout, part_file
from helpers.part_file import PartFile

SHAPE = (12, 16, 3)
NAMES = ["bread", "soup"]
BATCHES = [("train", 5), ("valid", 2), ("train", 7), ("test", 1), ("train", 4)]
CASES = {  # options, and of how many steps one is tried: rows of JPEG bytes have the most tables that change in place
    "raw": ({}, 7),
    "gzip": ({"compression": "gzip"}, 11),
    "jpeg, class numbers": ({"storage": "jpeg", "label_kind": "sparse"}, 1),
}
LAST_STEPS = 8  # renaming and tidying up: each of them is tried
NEVER = 10**6  # steps


def batches():
    """(split, images, labels), the same in every call."""
    rng = np.random.default_rng(0)
    for split, count in BATCHES:
        yield split, rng.integers(0, 256, (count, *SHAPE), np.uint8), rng.integers(0, 2, count)


def write(path, options, resume=False):
    """Write all batches with a checkpoint after each; returns at which batch it began."""
    with HDF5Writer(path, SHAPE, NAMES, seed=3, source="test", resume=resume, **options) as writer:
        begin = writer.state["batches"] if writer.state else 0
        assert sum(writer.rows.values()) == sum(count for _, count in BATCHES[:begin])
        assert sum(writer.check_rows()) == sum(writer.rows.values())
        for number, (split, images, labels) in enumerate(batches()):
            if number >= begin:
                writer.append(split, images, labels)
                writer.checkpoint({"batches": number + 1})
    return begin


class Death:
    """From step ``number`` on, of which half is still done, nothing reaches the disk: what a kill leaves behind."""

    def __init__(self, monkeypatch, number):
        self.left = number
        file, path = part_file._JournaledFile, part_file.Path
        put, cut, write_all = file._put, file.cut, part_file._write_all
        replace, unlink = path.replace, path.unlink
        cuts = {
            "put": (
                file,
                "_put",
                lambda self, data: put(self, data),
                lambda self, data: put(self, data[: len(data) // 2]),
            ),
            "cut": (file, "cut", cut, lambda self, size: size),
            "journal": (part_file, "_write_all", write_all, lambda fd, data: write_all(fd, data[: len(data) // 2])),
            "rename": (path, "replace", replace, lambda self, target: target),
            "unlink": (path, "unlink", unlink, lambda self, missing_ok=False: None),
        }
        for target, name, whole, half in cuts.values():
            monkeypatch.setattr(target, name, self.step(whole, half))

    def step(self, whole, half):
        def function(*args, **kwargs):
            self.left -= 1
            if self.left > 0:
                return whole(*args, **kwargs)
            if self.left == 0:
                return half(*args, **kwargs)
            return len(args[1]) if args[1:] and isinstance(args[1], (bytes, memoryview)) else None

        return function


def write_until_killed(path, options, number, resume=False):
    """Write, killed at step ``number``; returns the steps that were left, 0 or less if it was killed."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        death = Death(monkeypatch, number)
        try:
            write(path, options, resume)
        except (OSError, RuntimeError, ValueError, KeyError):
            assert death.left <= 0  # what is left of the program, which a real kill ends, meets odd things
    return death.left


def steps_of(path, options, stride, resume=False):
    """Numbers of the steps to be killed at."""
    count = NEVER - write_until_killed(path, options, NEVER, resume)
    return [*range(1, count - LAST_STEPS, stride), *range(count - LAST_STEPS, count + 1)]


def fail_after_a_checkpoint(part, writer=None):
    part.file["a"] = [1, 2, 3]
    (part if writer is None else writer).checkpoint({"done": 3})
    part.file["a"][...] = 0
    raise ZeroDivisionError


def fail_after_rows(writer, images):
    """Where row 2 lies in the part, once a checkpoint holds it."""
    writer.append("train", images, [0, 1, 0, 1])
    writer.checkpoint()
    PLACES.append(writer._part_file.file["train_img"].id.get_chunk_info(2).byte_offset)
    raise ZeroDivisionError


PLACES: list[int] = []


@pytest.mark.parametrize(("options", "stride"), CASES.values(), ids=CASES)
def test_killed_at_any_step_it_is_resumed_and_equal(tmp_path, options, stride):
    """After each prefix of the steps that reach the disk, resuming ends with equal content, and loses no checkpoint."""
    path, begun = tmp_path / "killed.h5", []
    steps = steps_of(path, options, stride)
    path = path.rename(tmp_path / "whole.h5").with_name("killed.h5")
    wanted = content(tmp_path / "whole.h5")
    for number in steps:
        assert write_until_killed(path, options, number) <= 0
        if path.exists():
            assert content(path) == wanted
        begun.append(write(path, options, resume=True))
        assert content(path) == wanted
        assert names(tmp_path) == ["killed.h5", "whole.h5"]
        path.unlink()
    renamed = begun.index(5) + begun[begun.index(5) :].index(0)  # nothing is left to resume once it has its name
    assert begun[:renamed] == sorted(begun[:renamed])  # a later kill never loses an earlier checkpoint
    assert set(begun) == {0, 1, 2, 3, 4, 5}


@pytest.mark.parametrize(("options", "stride"), CASES.values(), ids=CASES)
def test_the_resuming_may_be_killed_too(tmp_path, options, stride):
    """Killed at each step of taking the part back and going on, no checkpoint is lost."""
    whole, left, path = tmp_path / "whole.h5", tmp_path / "left", tmp_path / "again" / "killed.h5"
    count = NEVER - write_until_killed(whole, options, NEVER)
    wanted = content(whole)
    left.mkdir()
    write_until_killed(left / "killed.h5", options, int(0.7 * count))
    assert set(names(left)) >= {"killed.h5.part", "killed.h5.part.journal"}
    shutil.copytree(left, path.parent)
    for number in steps_of(path, options, stride, resume=True):
        shutil.rmtree(path.parent)
        shutil.copytree(left, path.parent)
        assert write_until_killed(path, options, number, resume=True) <= 0
        assert path.exists() or write(path, options, resume=True) >= 3
        assert content(path) == wanted


def test_a_killed_process_leaves_a_part_that_can_be_resumed(tmp_path):
    """SIGKILL itself, with HDF5's own caches full of what was not written yet."""
    path = tmp_path / "food.h5"
    code = (
        "import os, signal, sys, numpy as np; from helpers import HDF5Writer\n"
        "with HDF5Writer(sys.argv[1], (12, 16, 3), ['a'], storage='jpeg') as writer:\n"
        "    writer.append('train', np.full((50, 12, 16, 3), 7, np.uint8), [0] * 50)\n"
        "    writer.checkpoint({'read': 50})\n"
        "    writer.append('train', np.full((900, 12, 16, 3), 8, np.uint8), [0] * 900)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)"
    )
    assert subprocess.run([sys.executable, "-c", code, str(path)], check=False).returncode == -9
    with HDF5Writer(path, SHAPE, ["a"], storage="jpeg", resume=True) as writer:
        assert (writer.rows["train"], writer.state) == (50, {"read": 50})
    assert layout.read_file_info(path).splits["train"] == 50


def test_after_an_exception_a_part_with_a_checkpoint_stays(tmp_path):
    """And the older file of that name, too; a writer that does not resume begins anew."""
    path = tmp_path / "food.h5"
    path.write_bytes(b"older")
    with pytest.raises(ZeroDivisionError), PartFile(path) as part:
        fail_after_a_checkpoint(part)
    assert path.read_bytes() == b"older"
    assert names(tmp_path) == ["food.h5", "food.h5.part", "food.h5.part.journal"]
    with PartFile(path, resume=True) as part:
        assert part.state == {"done": 3}
        assert part.file["a"][:].tolist() == [1, 2, 3]
    with PartFile(path) as part:
        assert part.state is None
        assert list(part.file) == []
    assert names(tmp_path) == ["food.h5"]


def test_a_full_disk_costs_nothing_of_the_last_checkpoint(tmp_path, monkeypatch):
    """Wherever the room ends, in the file or in its journal: one OSError, and it can go on."""
    path = tmp_path / "food.h5"
    whole = tmp_path / "whole.h5"
    write(whole, {})
    put, write_all = part_file._JournaledFile._put, part_file._write_all
    begun = []
    for room in range(2_000, 90_000, 5_000):
        left = [room]

        def full(function, data, *args, left=left):
            left[0] -= len(data)
            if left[0] < 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return function(*args)

        with monkeypatch.context() as patch:
            patch.setattr(part_file._JournaledFile, "_put", lambda file, data: full(put, data, file, data))
            patch.setattr(part_file, "_write_all", lambda to, data: full(write_all, data, to, data))
            with contextlib.suppress(OSError):
                write(path, {})
        begun.append(5 if path.exists() else write(path, {}, resume=True))
        assert content(path) == content(whole)
        path.unlink()
    assert len(set(begun)) > 3


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()], ids=repr)
@pytest.mark.parametrize("step", ["put_back", "cut", "begin_journal"])
def test_a_part_that_cannot_be_taken_back_stays(tmp_path, monkeypatch, step, error):
    """A disk that is still full, or Ctrl-C while it is resumed, costs nothing: the next time it is."""

    def stop(*_):
        raise error

    path = tmp_path / "food.h5"
    with pytest.raises(ZeroDivisionError), PartFile(path) as part:
        fail_after_a_checkpoint(part)
    with monkeypatch.context() as patch:
        patch.setattr(part_file._JournaledFile, step, stop)
        with pytest.raises(type(error)), PartFile(path, resume=True):
            pytest.fail("the block ran")
    with PartFile(path, resume=True) as part:
        assert (part.state, part.file["a"][:].tolist()) == ({"done": 3}, [1, 2, 3])


@pytest.mark.parametrize(
    ("size", "records", "reach"),
    [
        (0, [], 0),
        (5, [(5, b"12"), (6, b"345")], 9),
        (5, [(6, b"345")], 5),  # a gap: what was there is lost
        (9, [(0, b"12"), (3, b"3")], 9),
        (0, [(0, b"12"), (0, b"12"), (0, b"12")], 2),  # saved after each of three checkpoints
    ],
)
def test_a_checkpoint_needs_all_its_bytes(size, records, reach):
    """A journal whose part is lost or cut short is not taken for one that can be resumed."""
    assert part_file._reach(size, records) == reach


def test_what_was_begun_with_other_arguments_is_not_resumed(tmp_path):
    """Rows of two kinds never come into one file."""
    path = tmp_path / "food.h5"
    with pytest.raises(ZeroDivisionError), HDF5Writer(path, SHAPE, NAMES, seed=1) as writer:
        fail_after_a_checkpoint(writer._part_file, writer)
    with pytest.raises(layout.HDF5FileError) as caught, HDF5Writer(path, SHAPE, ["soup", "bread"], seed=1, resume=True):
        pytest.fail("the block ran")
    assert str(caught.value) == (
        f"{path}.part was begun with class_names=('bread', 'soup'), and is to be resumed with ('soup', 'bread'). Use "
        "the same arguments, or begin anew, without resuming."
    )
    with HDF5Writer(path, SHAPE, NAMES, seed=1, resume=True) as writer:
        assert writer.state == {"done": 3}


def test_rows_that_a_power_cut_lost_are_noticed(tmp_path):
    """A row of the part that is not what was written is named before anything is added."""
    path = tmp_path / "food.h5"
    images = np.arange(4 * 576).reshape(4, *SHAPE).astype(np.uint8)
    with pytest.raises(ZeroDivisionError), HDF5Writer(path, SHAPE, NAMES) as writer:
        fail_after_rows(writer, images)
    with writer.part.open("r+b") as file:
        file.seek(PLACES.pop() + 5)
        file.write(b"\xff\xfe")
    with (
        pytest.raises(layout.HDF5FileError) as caught,
        HDF5Writer(path, SHAPE, NAMES, resume=True) as writer,
    ):
        list(writer.check_rows())
    assert str(caught.value) == (
        f"row 2 of train_img in {path}.part is not what was written (a power cut can do that). It cannot be resumed: "
        "begin the file anew."
    )


def test_labels_that_a_power_cut_lost_are_noticed(tmp_path):
    """Zeros where labels were written are not taken for labels."""
    path = tmp_path / "food.h5"
    with pytest.raises(ZeroDivisionError), HDF5Writer(path, SHAPE, NAMES, label_kind="sparse") as writer:
        fail_after_rows(writer, np.zeros((4, *SHAPE), np.uint8))
    with h5py.File(writer.part, "r+") as file:
        file["train_labels"][:] = 0
    with (
        pytest.raises(layout.HDF5FileError) as caught,
        HDF5Writer(path, SHAPE, NAMES, label_kind="sparse", resume=True) as writer,
    ):
        list(writer.check_rows())
    assert str(caught.value) == (
        f"a row of train_labels in {path}.part is not what was written (a power cut can do that). It cannot be "
        "resumed: begin the file anew."
    )


def test_no_open_file_is_renamed_or_removed(tmp_path, monkeypatch):
    """Windows refuses that: journals are closed first."""

    def is_open(path):
        return any(str(path) == os.path.realpath(entry) for entry in Path("/proc/self/fd").iterdir())

    seen = []
    for name in ("replace", "unlink"):
        function = getattr(part_file.Path, name)

        def watched(self, *args, function=function, **options):
            seen.append((self.name.removeprefix("food.h5"), is_open(self)))
            return function(self, *args, **options)

        monkeypatch.setattr(part_file.Path, name, watched)
    with PartFile(tmp_path / "food.h5") as part:
        part.checkpoint({})
        part.checkpoint({})
        part.discard()
    assert (".part.journal.new", False) in seen
    assert [name for name, was_open in seen if was_open and "journal" in name] == []


def test_a_failed_write_is_never_forgotten(tmp_path, monkeypatch):
    """Who catches the error of a full disk cannot finish the file all the same: it would not be whole."""
    monkeypatch.setattr(part_file._JournaledFile, "_put", full_disk)
    with pytest.raises(OSError, match="No space left on device"), PartFile(tmp_path / "food.h5") as part:
        ignore_a_full_disk(part)
    assert names(tmp_path) == []


def ignore_a_full_disk(part):
    with contextlib.suppress(OSError):
        part.run(part.file.create_dataset, "a", (1_000_000,), "f8", np.zeros(1_000_000))
    part.finish()


def full_disk(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("cut", [0, 5, 30])
def test_a_journal_that_says_nothing_is_no_checkpoint(tmp_path, cut):
    """Empty, cut short or foreign: the file is begun anew."""
    path = tmp_path / "food.h5"
    with pytest.raises(ZeroDivisionError), PartFile(path) as part:
        fail_after_a_checkpoint(part)
    journal = tmp_path / "food.h5.part.journal"
    text = journal.read_bytes()
    journal.write_bytes(text[:cut])
    with PartFile(path, resume=True) as part:
        assert part.state is None


def test_a_forgotten_part_file_ends_quietly(tmp_path):
    """Never closed, at Python's end: no crash, no message, and no part without a checkpoint."""
    code = (
        "import sys; from helpers.part_file import PartFile\n"
        "part = PartFile(sys.argv[1]).__enter__(); part.file['a'] = [1] * 100_000; print('end')"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "food.h5")]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout, result.stderr) == (0, "end\n", "")
    assert names(tmp_path) == []


def test_outside_of_the_block_there_is_no_file(tmp_path):
    """The sentence says how to use it; abandoning and discarding twice is quiet."""
    part = PartFile(tmp_path / "food.h5")
    with pytest.raises(ValueError, match=r"^the part file of .*food\.h5 is not open\. Use it as `with PartFile"):
        _ = part.file
    with part:
        assert repr(part) == f"<PartFile {tmp_path / 'food.h5'} (open)>"
    part.abandon()
    part.discard()
    assert repr(part) == f"<PartFile {tmp_path / 'food.h5'} (closed)>"

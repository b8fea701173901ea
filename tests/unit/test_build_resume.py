"""A build that stops, wherever and why, leaves no bad file, says how to go on, and ends equal to one that did not."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest
from photos import content, folder_of, names, picture, quiet

from data_scripts import build_hdf5 as module
from data_scripts.build_hdf5 import BrokenImageError, BuildError, BuildStoppedError, LeftOut, main
from data_scripts.reading import PictureReader
from data_scripts.splits import plan_rows
from helpers import layout, part_file

GROUP, PICTURES, GROUPS = 4, 42, 11  # 30 pictures train, 8 validate, 4 test
PART, JOURNAL = "photos.h5.part", "photos.h5.part.journal"
KEPT = (
    "{} of 42 pictures are done and kept in photos.h5.part: go on with --resume (in Python resume=True), or delete it."
)


@pytest.fixture(autouse=True)
def small_groups(monkeypatch):
    """Four pictures are read at once, and a checkpoint follows each group."""
    monkeypatch.setattr(module, "GROUP_PICTURES", GROUP)
    monkeypatch.setattr(module, "CHECKPOINT_BYTES", 1)


@pytest.fixture
def source(tmp_path):
    """Two classes in 11 groups, with two broken pictures."""
    source = folder_of(tmp_path / "photos", {"a": 24, "b": 18})
    (source / "a" / "0005.png").write_bytes(b"")
    (source / "b" / "0003.png").write_bytes(b"x")
    return source


@pytest.fixture
def out(tmp_path):
    (tmp_path / "out").mkdir()
    return tmp_path / "out" / "photos.h5"


@pytest.fixture
def whole(source, tmp_path):
    """What an uninterrupted build makes: the file's content, and the report."""
    report = quiet(source, tmp_path / "whole.h5")
    assert (report.skipped, report.written) == (2, 40)
    return content(tmp_path / "whole.h5"), told(report)


TOLD_APART = {"path", "seconds", "size_bytes", "resumed_at", "had_nothing_to_resume"}


def told(report):
    """A report but for times and places."""
    fields = dataclasses.asdict(report)
    return {name: value for name, value in fields.items() if name not in TOLD_APART}


def plan(source):
    """Groups of paths, in the order of reading."""
    plan = plan_rows(module.find_pictures(source), module.Options().shares, 0)
    return [[file.path for file in group.pictures] for group in module._groups(plan, GROUP)]


def at_group(monkeypatch, number, action):
    """Call ``action`` in this process before group ``number`` is read, for builds with one worker."""
    read = PictureReader.read

    def read_or_act(reader, group, empty):
        if group == number:
            action()
        return read(reader, group, empty)

    monkeypatch.setattr(PictureReader, "read", read_or_act)


def after_group(monkeypatch, number, action):
    """Call ``action`` in this process when so many groups are written and kept, for any number of workers."""

    class Bar(module.tqdm):
        groups = 0

        def update(self, n=1):
            super().update(n)
            Bar.groups += 1
            if Bar.groups == number + 1:  # the checkpoint follows the bar: one later, all of them are kept
                action()

    monkeypatch.setattr(module, "tqdm", Bar)


def raising(error):
    def action():
        raise error

    return action


def groups_of(pictures):
    """Groups with so many pictures: the eighth, the last one of train, has two."""
    return (pictures + 2) // GROUP


def resume_and_compare(source, out, whole, groups, **options):
    """Resume where ``groups`` groups were done; the content and the report are those of an uninterrupted build."""
    report = quiet(source, out, resume=True, **options)
    assert report.resumed_at == (GROUP * groups - 2 * (groups >= 8) if groups else None)
    assert report.had_nothing_to_resume == (not groups)
    assert (content(out), told(report)) == whole
    assert names(out.parent) == ["photos.h5"]


# -- stops of every kind, and going on --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error", [KeyboardInterrupt(), ZeroDivisionError("a bug"), OSError(errno.EIO, "Input/output error")], ids=repr
)
def test_stopped_before_any_group_it_goes_on(source, out, whole, error):
    """Nothing that was done is lost, and until the new file is whole the older one has the same bytes."""
    for number in range(GROUPS):
        out.write_bytes(b"older")
        with pytest.MonkeyPatch.context() as monkeypatch:
            at_group(monkeypatch, number, raising(error))
            with pytest.raises(type(error)):
                quiet(source, out)
        assert out.read_bytes() == b"older"
        assert names(out.parent) == (["photos.h5", PART, JOURNAL] if number else ["photos.h5"])
        resume_and_compare(source, out, whole, number)


@pytest.mark.parametrize("every", [1, 2**40], ids=["checkpoints", "none"])
def test_stopped_by_the_bar_it_goes_on(source, out, whole, monkeypatch, every):
    """Ctrl-C between two groups keeps both, also when no checkpoint was due yet."""
    monkeypatch.setattr(module, "CHECKPOINT_BYTES", every)
    with pytest.MonkeyPatch.context() as patch:
        after_group(patch, 3, raising(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt) as raised:
            quiet(source, out)
    assert raised.value.__notes__ == [KEPT.format(16)]
    resume_and_compare(source, out, whole, 4)


def test_stopped_twice_it_goes_on(source, out, whole):
    """The second run begins where the first one stopped, and the third where the second did."""
    for number in (3, 7):
        with pytest.MonkeyPatch.context() as monkeypatch:
            at_group(monkeypatch, number, raising(KeyboardInterrupt))
            with pytest.raises(KeyboardInterrupt):
                quiet(source, out, resume=True)
    resume_and_compare(source, out, whole, 7)


@pytest.mark.parametrize("options", [{"compression": "gzip"}, {"storage": "jpeg", "label_kind": "sparse"}], ids=str)
def test_every_storage_goes_on(source, out, tmp_path, options):
    """With other numbers of workers, too."""
    report = quiet(source, tmp_path / "whole.h5", **options)
    with pytest.MonkeyPatch.context() as monkeypatch:
        at_group(monkeypatch, 5, raising(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            quiet(source, out, **options)
    resume_and_compare(source, out, (content(tmp_path / "whole.h5"), told(report)), 5, workers=2, **options)


def test_a_broken_picture_stops_it_and_skipping_goes_on(source, out, whole):
    """on_error="stop": picture, reason and what is kept; then on_error="skip", or a repaired picture."""
    stops = next(number for number, group in enumerate(plan(source)) if {"a/0005.png", "b/0003.png"} & set(group))
    assert stops > 0
    with pytest.raises(BrokenImageError) as raised:
        quiet(source, out, on_error="stop")
    path, reason = ("a/0005.png", "the file is empty")
    if path not in plan(source)[stops]:
        path, reason = "b/0003.png", "its bytes are not those of a PNG, JPEG, WebP, BMP or GIF picture"
    assert str(raised.value) == f"{path} cannot be used: {reason}. Repair or remove it, or use --on-error skip."
    assert raised.value.__notes__ == [KEPT.format(GROUP * stops)]
    resume_and_compare(source, out, whole, stops)


def test_what_nobody_can_go_on_with_is_not_kept(source, out):
    """A broken picture in the first group: no part, and no advice to resume."""
    first = plan(source)[0]
    for path in first[1:]:
        (source / path).write_bytes(b"")
    with pytest.raises(BrokenImageError) as raised:
        quiet(source, out, on_error="stop")
    assert not hasattr(raised.value, "__notes__")
    assert names(out.parent) == []


def test_a_failed_notebook_cell_can_be_run_again(source, out, whole):
    """At once, in the same process, although IPython keeps the exception with all its frames; resumed or anew."""
    kept = []
    for resume in (False, False, True, True):
        with pytest.MonkeyPatch.context() as monkeypatch:
            at_group(monkeypatch, 4, raising(ZeroDivisionError("a bug")))
            try:
                quiet(source, out, workers=1, resume=resume)
            except ZeroDivisionError as error:
                kept.append(error)
    assert len(kept) == 4
    resume_and_compare(source, out, whole, 4)


# -- what is there to go on with --------------------------------------------------------------------------------------


def stopped(source, out, number=5, **options):
    """Leave a part with ``number`` groups."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        at_group(monkeypatch, number, raising(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            quiet(source, out, **options)


def nothing(source, out):
    pass


def junk(source, out):
    (out.parent / PART).write_bytes(b"junk" * 1000)


def junk_and_journal(source, out):
    junk(source, out)
    (out.parent / JOURNAL).write_bytes(b"junk" * 1000)


def without_journal(source, out):
    stopped(source, out)
    (out.parent / JOURNAL).unlink()


def journal_alone(source, out):
    stopped(source, out)
    (out.parent / PART).unlink()


def part_cut_short(source, out):
    stopped(source, out)
    os.truncate(out.parent / PART, 3000)


def older_file(source, out):
    out.write_bytes(b"no HDF5 file")


@pytest.mark.parametrize(
    "make", [nothing, junk, junk_and_journal, without_journal, journal_alone, part_cut_short, older_file]
)
def test_without_anything_to_go_on_with_it_builds_as_usual(source, out, whole, make):
    """--resume may always be given: in a job script, the first time too."""
    make(source, out)
    resume_and_compare(source, out, whole, 0)


@pytest.mark.parametrize("resume", [False, True])
def test_without_resume_it_begins_anew(source, out, whole, resume):
    """A part from before is not used unless asked for."""
    stopped(source, out)
    report = quiet(source, out, resume=resume)
    assert report.resumed_at == (20 if resume else None)
    assert (content(out), told(report)) == whole


def test_a_complete_file_is_left_alone(source, out, capsys):
    """Status 0, words that say so, and not a byte or time of it changes."""
    assert main([str(source), "--out", str(out), "--size", "8"]) == 0
    before = out.read_bytes(), out.stat().st_mtime_ns, names(out.parent)
    capsys.readouterr()
    assert main([str(source), "--out", str(out), "--size", "8", "--resume", "--on-error", "skip"]) == 0
    printed = capsys.readouterr()
    assert printed.out.splitlines()[1:] == [
        "  rows: train 29, valid 7, test 4",
        "  it was complete already: there was nothing to resume, and nothing was written",
    ]
    assert printed.err == ""
    assert (out.read_bytes(), out.stat().st_mtime_ns, names(out.parent)) == before


@pytest.mark.parametrize(
    "options",
    [
        {"seed": 1},
        {"size": 9},
        {"resize": "crop"},
        {"compression": "gzip"},
        {"label_kind": "sparse"},
        {"split": (1, 0, 0)},
    ],
    ids=str,
)
def test_a_complete_file_of_other_options_is_refused(source, out, options):
    """It is neither what was asked for nor half of it: the sentence says what it is, and how to replace it."""
    quiet(source, out)
    before = out.read_bytes()
    with pytest.raises(BuildError) as raised:
        quiet(source, out, resume=True, **options)
    assert str(raised.value) == (
        f"{out} is complete, and was built from other pictures or with other options (photos: 8x8 (stretch, raw), "
        "onehot, split 0.7 0.2 0.1, seed 0): there is nothing to resume. To replace it, leave out --resume."
    )
    assert (out.read_bytes(), names(out.parent)) == (before, ["photos.h5"])


@pytest.mark.parametrize(
    ("options", "argument", "begun", "wanted"),
    [
        ({"size": 9}, "image_shape", (8, 8, 3), (9, 9, 3)),
        ({"seed": 1}, "seed", 0, 1),
        ({"storage": "jpeg"}, "storage", "raw", "jpeg"),
        ({"compression": "gzip"}, "compression", None, "gzip"),
        ({"label_kind": "sparse"}, "label_kind", "onehot", "sparse"),
        (
            {"resize": "crop"},
            "source",
            "photos: 8x8 (stretch, raw), onehot, split 0.7 0.2 0.1",
            "photos: 8x8 (crop, raw), onehot, split 0.7 0.2 0.1",
        ),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_part_of_other_options_is_refused(source, out, whole, options, argument, begun, wanted):
    """And stays as it is, for who gives the right ones."""
    stopped(source, out)
    with pytest.raises(layout.HDF5FileError) as raised:
        quiet(source, out, resume=True, **options)
    assert str(raised.value) == (
        f"{out}.part was begun with {argument}={begun!r}, and is to be resumed with {wanted!r}. Use the same "
        "arguments, or begin anew, without resuming."
    )
    assert not hasattr(raised.value, "__notes__")
    resume_and_compare(source, out, whole, 5)


@pytest.mark.parametrize("change", ["a new picture", "a renamed one"])
def test_a_part_of_another_folder_is_refused(source, out, whole, capsys, change):
    """Rows would be twice or missing; with the folder as it was, the same part goes on."""
    stopped(source, out)
    new = picture(source / "a" / "new.png", 200) if change == "a new picture" else source / "a" / "new.png"
    if change != "a new picture":
        (source / "a" / "0001.png").rename(new)
    assert main([str(source), "--out", str(out), "--size", "8", "--resume"]) == 2
    assert capsys.readouterr().err == (
        f"build_hdf5: {out}.part was begun with other pictures or options, so it cannot be gone on with. Restore them, "
        "or build anew: leave out --resume.\n"
    )
    if change == "a new picture":
        new.unlink()
    else:
        new.rename(source / "a" / "0001.png")
    resume_and_compare(source, out, whole, 5)


@pytest.mark.parametrize("which", ["read", "not yet"])
def test_pictures_that_changed_meanwhile(source, out, whole, which):
    """Rows of the old picture and of the new one never come into one file; what was not read may still change."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        at_group(monkeypatch, 5, raising(KeyboardInterrupt()))
        with pytest.raises(KeyboardInterrupt):
            quiet(source, out)
    changed = source / plan(source)[0 if which == "read" else 9][0]
    picture(changed, 999)
    if which == "not yet":
        assert quiet(source, out, resume=True).resumed_at == 20
        return
    with pytest.raises(BuildError) as caught:
        quiet(source, out, resume=True)
    assert str(caught.value) == (
        f"pictures in {source} changed since {out}.part was made of them, so it cannot be gone on with. Build anew: "
        "leave out --resume."
    )


def test_a_complete_file_of_another_folder_is_no_complete_file(source, out, tmp_path):
    """A folder of the same name with one picture more is said to be another one; a copy of the folder is the same."""
    quiet(source, out)
    copy = tmp_path / "elsewhere" / source.name
    shutil.copytree(source, copy)
    assert quiet(copy, out, resume=True).was_complete
    picture(copy / "a" / "more.png", 999)
    with pytest.raises(BuildError, match=r"is complete, and was built from other pictures or with other options"):
        quiet(copy, out, resume=True)


def test_a_file_that_is_no_picture_changes_nothing(source, out, whole):
    """The folder may get a note meanwhile: it is in the report, and the part goes on."""
    stopped(source, out)
    (source / "a" / "note.txt").write_text("remember", encoding="utf-8")
    report = quiet(source, out, resume=True)
    assert (report.resumed_at, content(out)) == (20, whole[0])
    assert report.ignored_files == [LeftOut("a/note.txt", "not a picture")]


def test_where_out_is_a_link_the_part_lies_beside_its_target(source, out, tmp_path, whole):
    """And is found there: an older complete file is not taken for the end of this build."""
    (tmp_path / "disk").mkdir()
    out.symlink_to(tmp_path / "disk" / "photos.h5")
    quiet(source, out, seed=1)
    stopped(source, out)
    assert names(tmp_path / "disk") == ["photos.h5", PART, JOURNAL]
    resume_and_compare(source, out, whole, 5)


# -- a source that goes away ------------------------------------------------------------------------------------------


def rename(source):
    source.rename(source.with_name("elsewhere"))
    return lambda: source.with_name("elsewhere").rename(source)


def empty(source):
    """As where a disk was mounted: the folder is still there."""
    back = rename(source)
    source.mkdir()

    def restore():
        source.rmdir()
        back()

    return restore


def other_disk(source):
    """Another disk is mounted there now: what was looked for is not in it."""
    back = rename(source)
    folder_of(source, {"c": 3})

    def restore():
        shutil.rmtree(source)
        back()

    return restore


def class_folder(source):
    return rename(source / "a")


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("lose", [rename, empty, other_disk, class_folder])
def test_a_lost_source_stops_the_build(source, out, whole, monkeypatch, lose, workers):
    """No picture is called broken; when the disk is back, the same part goes on."""
    restore = []
    with monkeypatch.context() as patch:
        after_group(patch, 2, lambda: restore.append(lose(source)))
        with pytest.raises(BuildStoppedError) as raised:
            quiet(source, out, workers=workers)
    restore[0]()
    told = re.fullmatch(
        re.escape(f"{source} cannot be read any more (")
        + r"[ab]/\d{4}\.png: No such file or directory"
        + re.escape("). Is its disk still there? ")
        + r"(\d+)"
        + re.escape(KEPT.format("")),
        str(raised.value),
    )
    assert told, raised.value
    kept = int(told[1])
    assert kept == 12 if workers == 1 and lose is not class_folder else 12 <= kept < PICTURES
    resume_and_compare(source, out, whole, groups_of(kept))


def linked(tmp_path):
    """A source of links to pictures of two other disks."""
    for name, class_number in (("a", 0), ("b", 1)):
        folder_of(tmp_path / "disks" / name, {"x": 21}, first=class_number)
        (tmp_path / "links" / name).mkdir(parents=True)
        for path in (tmp_path / "disks" / name / "x").iterdir():
            (tmp_path / "links" / name / path.name).symlink_to(path)
    return tmp_path / "links"


def test_a_lost_disk_behind_links_stops_the_build(out, tmp_path):
    """Eight pictures that were there at first are not one picture's fault; none of them is kept as skipped."""
    source = linked(tmp_path)
    report = quiet(source, tmp_path / "whole.h5")
    disk = tmp_path / "disks" / "a"
    with pytest.MonkeyPatch.context() as monkeypatch:
        at_group(monkeypatch, 3, lambda: disk.rename(tmp_path / "away"))
        with pytest.raises(BuildStoppedError) as raised:
            quiet(source, out)
    (tmp_path / "away").rename(disk)
    sentence = re.sub(r"\d+ pictures that", "N pictures that", re.sub(r"a/\d{4}", "a/NUMBER", str(raised.value)))
    assert sentence == (
        f"{source} cannot be read any more: N pictures that were there at first are not, such as a/NUMBER.png (it "
        "cannot be read: No such file or directory). Is its disk still there? "
        + KEPT.format(12).replace("go on", "bring the missing pictures back and go on")
    )
    resume_and_compare(source, out, (content(tmp_path / "whole.h5"), told(report)), 3)


@pytest.mark.parametrize(("count", "is_built"), [(1, True), (7, True), (8, False)])
def test_a_few_deleted_pictures_are_skipped(source, out, count, is_built):
    """Somebody tidies up while a build runs; eight and more are a disk that is gone."""
    coming = [path for group in plan(source)[2:] for path in group if path not in {"a/0005.png", "b/0003.png"}]

    def delete():
        for path in coming[:count]:
            (source / path).unlink()

    with pytest.MonkeyPatch.context() as monkeypatch:
        at_group(monkeypatch, 2, delete)
        with (
            contextlib.nullcontext() if is_built else pytest.raises(BuildStoppedError, match=r"^.* cannot be read any")
        ):
            report = quiet(source, out)
    if is_built:
        gone = [LeftOut(path, "it cannot be read: No such file or directory") for path in coming[:count]]
        assert [file for file in report.skipped_files if file in gone] == sorted(gone, key=lambda file: file.path)
        assert (report.written, report.skipped) == (40 - count, 2 + count)
    assert out.exists() == is_built


# -- workers that die -------------------------------------------------------------------------------------------------


def kill_who_opens(pipe: Path) -> None:
    """Wait until a worker process reads from ``pipe``, and end it."""
    while True:
        try:
            writer = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
            break
        except OSError:  # nobody reads yet
            time.sleep(0.01)
    try:
        for worker in psutil.Process().children():
            files = Path(f"/proc/{worker.pid}/fd")
            if any(os.path.realpath(file) == str(pipe.resolve()) for file in files.iterdir()):
                worker.kill()
    finally:
        os.close(writer)


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux: /proc, pipes with names")
def test_a_worker_that_is_killed_stops_the_build(source, out, whole):
    """The sentence names its pictures and the signal; what was done is kept."""
    groups = plan(source)
    pipe = source / groups[9][1]
    data = pipe.read_bytes()

    def block():
        pipe.unlink()
        os.mkfifo(pipe)

    killer = threading.Thread(target=kill_who_opens, args=[pipe])
    with pytest.MonkeyPatch.context() as monkeypatch:
        after_group(monkeypatch, 1, lambda: (block(), killer.start()))
        with pytest.raises(BuildStoppedError) as raised:
            quiet(source, out, workers=2)
    killer.join()
    pipe.unlink()
    pipe.write_bytes(data)
    assert f" was ended by SIGKILL while it made the pictures {groups[9][0]} to {groups[9][-1]} (4 of valid)" in str(
        raised.value
    )
    kept = int(re.search(r"(\d+) of 42 pictures are done", str(raised.value))[1])
    assert kept in range(8, 37)
    resume_and_compare(source, out, whole, groups_of(kept))


# -- a full disk ------------------------------------------------------------------------------------------------------


def no_room(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_disk_that_does_not_answer_is_no_hang(source, out, whole, monkeypatch):
    """When no picture comes for long, the build stops with what it waits for, and goes on later."""
    with monkeypatch.context() as patch:
        patch.setattr(module, "STALL_S", 0.001)
        with pytest.raises(BuildStoppedError) as caught:
            quiet(source, out, workers=2)
    assert re.sub("the pictures .*", "the pictures", str(caught.value)) == (
        f"{source} does not answer: no picture came for 0.001 s, while waiting for the pictures"
    )
    resume_and_compare(source, out, whole, 0)


def test_a_disk_that_is_full_in_the_middle(source, out, whole, capsys):
    """How much the whole file needs, how much there was, what is kept; status 1."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        at_group(monkeypatch, 5, lambda: monkeypatch.setattr(part_file._JournaledFile, "_put", no_room))
        assert main([str(source), "--out", str(out), "--size", "8"]) == 1
    sentence = capsys.readouterr().err.splitlines()[-1]
    assert re.sub(r"[\d.]+ (kB|MB|GB|TB)", "N", sentence) == (
        f"build_hdf5: the disk of {out} is full: the whole file needs about N, and N were there for it. "
        + KEPT.format(20)
    )
    resume_and_compare(source, out, whole, 5)


def test_a_disk_that_is_full_at_the_start(source, out):
    """Nothing is kept, and nothing is said of it."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        at_group(monkeypatch, 0, lambda: monkeypatch.setattr(part_file._JournaledFile, "_put", no_room))
        with pytest.raises(BuildStoppedError, match=r"^the disk of .* is full: .* were there for it\.$"):
            quiet(source, out)
    assert names(out.parent) == []


def test_a_disk_that_is_full_at_the_last_step(source, out, whole):
    """Network disks say so when the file is forced to the disk: every picture is kept."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(os, "fsync", no_room)
        with pytest.raises(BuildStoppedError) as raised:
            quiet(source, out)
    assert str(raised.value).endswith(" were there for it. " + KEPT.format(42))
    resume_and_compare(source, out, whole, GROUPS)


def test_a_disk_that_is_still_full_when_resuming(source, out, whole):
    """Not even the part can be taken back: it stays for the next time."""
    stopped(source, out)
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(part_file, "_write_all", no_room)
        with pytest.raises(BuildStoppedError, match=r"^the disk of .* is full: "):
            quiet(source, out, resume=True)
    resume_and_compare(source, out, whole, 5)


LIMITED = """
import resource, sys
from data_scripts import build_hdf5
build_hdf5.GROUP_PICTURES, build_hdf5.CHECKPOINT_BYTES = 4, 1
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), resource.RLIM_INFINITY))
sys.exit(build_hdf5.main(sys.argv[2:]))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs a limit on the size of files")
def test_a_file_that_may_not_grow(source, out, whole):
    """The limit of FAT32, or of an account: the sentence says so, and without the limit the part goes on."""
    command = [sys.executable, "-c", LIMITED, "40000", str(source), "--out", str(out), "--size", "8"]
    child = subprocess.run(command, capture_output=True, text=True, check=False)
    sentence = child.stderr.splitlines()[-1]
    kept = re.search(r"(\d+) of 42 pictures", sentence)
    assert (child.returncode, child.stdout) == (1, "")
    assert re.sub(r"about [\d.]+ kB", "about N", sentence) == (
        f"build_hdf5: {out} may not become larger: the whole file needs about N, and its disk (FAT32 ends at 4 GB) or "
        "a limit of this account (ulimit -f) takes no file of that size. Raise the limit, or choose another disk. "
        + KEPT.format(kept[1])
    )
    resume_and_compare(source, out, whole, groups_of(int(kept[1])))


@pytest.fixture
def small_disk(tmp_path):
    """A disk of 200 kB, where this user may mount one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("this user may not mount a small disk")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_real_disk_that_fills_up(source, small_disk, whole):
    """Something else takes the room in the middle; when it is gone, the part goes on."""
    out, other = small_disk / "photos.h5", small_disk / "other"

    def fill():
        with contextlib.suppress(OSError), other.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(512))

    with pytest.MonkeyPatch.context() as monkeypatch:
        at_group(monkeypatch, 3, fill)
        with pytest.raises(BuildStoppedError, match=r"^the disk of .* is full: the whole file needs about ") as raised:
            quiet(source, out)
    other.unlink()
    kept = int(re.search(r"(\d+) of 42 pictures", str(raised.value))[1])
    assert 12 <= kept < PICTURES
    report = quiet(source, out, resume=True)
    assert (report.resumed_at, content(out), told(report)) == (kept, *whole)


# -- Ctrl-C -----------------------------------------------------------------------------------------------------------

INTERRUPTED = """
import sys
from data_scripts import build_hdf5
build_hdf5.GROUP_PICTURES, build_hdf5.CHECKPOINT_BYTES = 4, 1
class Bar(build_hdf5.tqdm):
    def update(self, n=1):
        super().update(n)
        print(flush=True)
        sys.stdin.readline()
build_hdf5.tqdm = Bar
sys.exit(build_hdf5.main(sys.argv[1:]))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX signals")
@pytest.mark.parametrize("seed", range(5))
def test_ctrl_c_is_one_sentence_and_no_trace(source, out, whole, seed):
    """At a random moment, to all processes as a terminal does; no child is left, and the part goes on."""
    chance = random.Random(seed)
    command = [sys.executable, "-c", INTERRUPTED, str(source), "--out", str(out), "--size", "8", "--workers", "2"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, start_new_session=True, **pipes) as child:
        for _ in range(chance.randint(1, 6)):  # groups; at the one after them it waits for the interrupt
            child.stdout.readline()
            child.stdin.write("go on\n")
            child.stdin.flush()
        workers = psutil.Process(child.pid).children(recursive=True)
        time.sleep(chance.uniform(0, 0.003))
        os.killpg(child.pid, signal.SIGINT)
        _, said = child.communicate(timeout=60)
    if child.returncode == 0 and "Exception ignored in" in said:  # Python drops an interrupt that comes in a finalizer
        assert content(out) == whole[0]
        return
    assert "Traceback" not in said
    assert child.returncode == 1, said
    sentence = said.splitlines()[-1]
    kept = int(re.search(r"(\d+) of 42 pictures", sentence)[1])
    assert sentence == "build_hdf5: interrupted. " + KEPT.format(kept)
    assert psutil.wait_procs(workers, timeout=10)[1] == []
    resume_and_compare(source, out, whole, groups_of(kept))

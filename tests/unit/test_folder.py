"""Every file of a folder is a picture, skipped, or ignored, by stated rules for links, copies and names."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import pytest
from photos import folder_of, food101, messy_folder, picture

from data_scripts.folder import BuildError, LeftOut, equal_files, find_pictures, set_copies_aside

COPY = "a copy of a picture of the same class"
NO_FILE = "it cannot be read: No such file or directory"
MESSY_IGNORED = [
    LeftOut(".trash/old.png", "hidden"),
    LeftOut("bread/.DS_Store", "hidden"),
    LeftOut("bread/Thumbs.db", "not a picture"),
    LeftOut("cover.png", "outside the class folders"),
    LeftOut("notes.txt", "outside the class folders"),
    LeftOut("soup/._0001.png", "hidden"),
    LeftOut("soup/BMP-notes", "not a picture"),
    LeftOut("soup/gone", "no regular file (a broken link, a pipe ...)"),
    LeftOut("soup/loop", "a link to a folder"),
]


def without_copies(source: Path):
    found = find_pictures(source)
    set_copies_aside(found)
    return found


def test_every_file_is_in_one_list(tmp_path):
    """Litter is ignored with its reason, a broken link named as a picture is skipped, a copy gives way."""
    found = find_pictures(messy_folder(tmp_path / "photos"))
    assert found.ignored == MESSY_IGNORED
    assert found.skipped == [LeftOut("soup/gone.jpg", NO_FILE)]
    assert {name: len(paths) for name, paths in found.classes.items()} == {
        "bread": 23,
        "broken": 1,
        "hollow": 0,
        "soup": 23,
    }
    assert (found.files, found.empty) == (57, ("hollow",))
    set_copies_aside(found)
    assert found.ignored == [*MESSY_IGNORED, LeftOut("soup/linked.png", COPY, "soup/0001.png")]


def test_a_class_of_broken_links_is_not_empty(tmp_path):
    """Its pictures are lost, which the report must say; a folder without any other class is no folder of litter."""
    source = tmp_path / "photos"
    (source / "a").mkdir(parents=True)
    (source / "a" / "one.jpg").symlink_to("nowhere.jpg")
    found = find_pictures(source)
    assert (found.empty, found.skipped, found.pictures) == ((), [LeftOut("a/one.jpg", NO_FILE)], 0)


# -- links ------------------------------------------------------------------------------------------------------------


def test_a_link_to_a_file_is_the_picture_it_leads_to(tmp_path):
    """Data sets are gathered so; the target may lie anywhere."""
    target = picture(tmp_path / "disk" / "x.png")
    source = folder_of(tmp_path / "photos", {"a": 2, "b": 2}, first=1)
    (source / "a" / "linked.png").symlink_to(target)
    assert without_copies(source).classes["a"] == ["a/0000.png", "a/0001.png", "a/linked.png"]


def test_a_class_folder_may_be_a_link_that_leads_out(tmp_path):
    """A link into SOURCE, or to a folder around it, is no class: its pictures would be in two."""
    source = folder_of(tmp_path / "photos", {"a": 2, "b": 2})
    folder_of(tmp_path / "disk", {"c": 2}, first=2)
    for name, target in (("c", "../disk/c"), ("again", "a"), ("self", "."), ("around", "..")):
        (source / name).symlink_to(target, target_is_directory=True)
    found = find_pictures(source)
    assert found.classes == {name: [f"{name}/0000.png", f"{name}/0001.png"] for name in "abc"}
    assert found.ignored == [LeftOut(name, "a link to a folder") for name in ("again", "around", "self")]


def test_the_images_of_food101_may_be_a_link(tmp_path):
    """The pictures often lie on another disk than the lists."""
    source = food101(tmp_path / "food-101")
    (source / "images").rename(tmp_path / "disk")
    (source / "images").symlink_to(tmp_path / "disk", target_is_directory=True)
    assert find_pictures(source).pictures == 40


# -- copies -----------------------------------------------------------------------------------------------------------


def test_of_copies_in_a_class_one_stays(tmp_path):
    """The first by path, a file before a link: no picture is in two splits."""
    source = folder_of(tmp_path / "photos", {"a": 3, "b": 1})
    for name in ("z.png", "z (1).png"):
        picture(source / "a" / name, 99)
    (source / "a" / "a link.png").symlink_to("z.png")
    found = without_copies(source)
    assert found.classes["a"] == ["a/0000.png", "a/0001.png", "a/0002.png", "a/z (1).png"]
    assert sorted(found.ignored, key=lambda file: file.path) == [
        LeftOut("a/a link.png", COPY, "a/z (1).png"),
        LeftOut("a/z.png", COPY, "a/z (1).png"),
    ]
    assert found.skipped == []


def test_copies_in_two_classes_are_all_left_out(tmp_path):
    """One of the labels is wrong, and nobody knows which; each names a file of another class."""
    source = folder_of(tmp_path / "photos", {"a": 2, "b": 2})
    for name in ("a/x.png", "a/y.png", "b/x.png"):
        picture(source / name, 99)
    found = without_copies(source)
    reason = "the same bytes as {}, in another class: one of the labels is wrong"
    assert found.skipped == [
        LeftOut("a/x.png", reason.format("b/x.png"), "b/x.png"),
        LeftOut("a/y.png", reason.format("b/x.png"), "b/x.png"),
        LeftOut("b/x.png", reason.format("a/x.png"), "a/x.png"),
    ]
    assert (found.ignored, found.pictures) == ([], 4)


def test_equal_broken_pictures_keep_their_own_reason(tmp_path):
    """Thirty equal error pages are thirty pages, not copies; empty files are never copies of each other."""
    source = folder_of(tmp_path / "photos", {"a": 2, "b": 2})
    for name in ("a/1.jpg", "a/2.jpg", "b/1.jpg"):
        (source / name).write_text("<html>404</html>", encoding="utf-8")
        (source / name).with_suffix(".png").write_bytes(b"")
    found = without_copies(source)
    page = "it is a web page, not a picture: the download went wrong"
    assert found.skipped == [LeftOut(name, page) for name in ("a/1.jpg", "a/2.jpg", "b/1.jpg")]
    assert found.ignored == []


def test_equal_files_are_equal_to_the_last_byte(tmp_path):
    """Same size and same end are not enough; a file that cannot be read is in no group."""
    for name, data in {"a": b"1" * 9000, "b": b"2" + b"1" * 8999, "c": b"1" * 9000, "d": b"", "e": b""}.items():
        (tmp_path / name).write_bytes(data)
    assert equal_files(tmp_path, ["a", "b", "c", "d", "e", "gone"]) == [["a", "c"]]


# -- names ------------------------------------------------------------------------------------------------------------


def test_folders_whose_names_look_the_same_are_one_class(tmp_path):
    """A Mac writes an e with accent as two characters, Linux as one: both hold pictures of one class, named in NFC."""
    composed = "caf\u00e9"
    source = folder_of(tmp_path / "photos", {composed: 2, unicodedata.normalize("NFD", composed): 3, "tea": 1})
    found = find_pictures(source)
    assert {name: len(paths) for name, paths in found.classes.items()} == {composed: 5, "tea": 1}


@pytest.mark.parametrize("name", ["__MACOSX", "@eaDir", "$RECYCLE.BIN", "System Volume Information", "lost+found"])
@pytest.mark.parametrize("inside", ["", "a/"])
def test_folders_of_systems_are_no_classes(tmp_path, name, inside):
    """Nor are the thumbnails in them pictures, at the top or in a class."""
    source = folder_of(tmp_path / "photos", {"a": 1, "b": 1})
    picture(source / inside / name / "x.png", 9)
    found = find_pictures(source)
    assert list(found.classes) == ["a", "b"]
    assert found.ignored == [LeftOut(f"{inside}{name}/x.png", "in a folder of the system")]


def test_a_folder_of_splits_is_refused(tmp_path):
    """train and test would become the classes; a folder of that name among others is a class."""
    source = tmp_path / "photos"
    for split in ("Test", "train"):
        folder_of(source / split, {"a": 1, "b": 1})
    with pytest.raises(BuildError) as raised:
        find_pictures(source)
    assert str(raised.value) == (
        f"{source} holds splits, not classes: Test, train. Give one of them ({source / 'Test'}), or move the folders "
        "of each class together: build_hdf5 splits them itself."
    )
    picture(source / "bus" / "x.png")
    assert list(find_pictures(source).classes) == ["Test", "bus", "train"]

"""The report says what became of every file, in words that people read on a screen."""

from __future__ import annotations

import pytest
from photos import folder_of, messy_folder, picture, quiet

from data_scripts.folder import LeftOut
from helpers import layout

REPORT = """\
photos.h5: 42 images of 8x8 (stretch, raw) in 2 classes, 0.1 MB
  rows: train 29, valid 9, test 4
  57 files found = 42 written + 5 skipped + 10 ignored
  skipped: 5
    bread/cut.jpg: it is cut short
    bread/empty.png: the file is empty
    broken/one.jpg: the file is empty
    soup/gone.jpg: it cannot be read: No such file or directory
    soup/letter.jpg: its bytes are not those of a PNG, JPEG, WebP, BMP or GIF picture
  ignored, hidden (2 .png, 1 no ending): 3
    .trash/old.png
    bread/.DS_Store
    soup/._0001.png
  ignored, not a picture (1 .db, 1 no ending): 2
    bread/Thumbs.db
    soup/BMP-notes
  ignored, outside the class folders (1 .png, 1 .txt): 2
    cover.png
    notes.txt
  ignored, no regular file (a broken link, a pipe ...) (1 no ending): 1
    soup/gone
  ignored, a copy of a picture of the same class (1 .png): 1
    soup/linked.png = soup/0001.png
  ignored, a link to a folder (1 no ending): 1
    soup/loop
  class folders without a picture, no class number: 1
    hollow
  class folders without a usable picture, no class number: 1
    broken"""


def test_report_for_people(tmp_path, monkeypatch):
    """The whole text: counts first, then each list with its names."""
    monkeypatch.chdir(tmp_path)
    report = quiet(messy_folder(tmp_path / "photos"), "photos.h5")
    report.size_bytes = 50_000
    assert str(report) == REPORT
    assert report.written + report.skipped + report.ignored == report.found


def test_a_resumed_and_a_finished_build_say_so(tmp_path):
    """How much was there already; and that nothing was written to a file that was complete."""
    source = folder_of(tmp_path / "photos", {"a": 5, "b": 5})
    report = quiet(source, tmp_path / "photos.h5")
    assert "  resumed: " not in str(report)
    report.resumed_at = 4
    assert str(report).splitlines()[3] == "  resumed: the first 4 pictures were done before"
    again = quiet(source, tmp_path / "photos.h5", resume=True)
    again.size_bytes = 50_000
    assert str(again).splitlines() == [
        f"{tmp_path / 'photos.h5'}: 10 images of 8x8 (stretch, raw) in 2 classes, 0.1 MB",
        "  rows: train 7, valid 2, test 1",
        "  it was complete already: there was nothing to resume, and nothing was written",
    ]


def test_long_lists_are_cut_on_screen_only(tmp_path):
    """Twenty names are shown; text(None) has every one."""
    source = folder_of(tmp_path / "photos", {"a": 3, "b": 3})
    for number in range(25):
        (source / "a" / f"{number}.txt").write_text("x", encoding="utf-8")
    report = quiet(source, tmp_path / "photos.h5")
    assert "    ... and 5 more" in str(report)
    assert str(report).count(".txt\n") == 20
    assert report.text(None).count(".txt\n") == 25


def test_classes_missing_in_a_split_are_named(tmp_path):
    """A class too small for every split keeps its number in all of them."""
    report = quiet(folder_of(tmp_path / "photos", {"large": 20, "tiny": 1}), tmp_path / "photos.h5")
    assert {split: report.missing_classes(split) for split in layout.SPLITS} == {
        "train": [],
        "valid": ["tiny"],
        "test": ["tiny"],
    }
    assert "\n  classes without a row in test: 1\n    tiny" in str(report)
    assert layout.read_split_info(tmp_path / "photos.h5", "test").num_classes == 2


@pytest.mark.parametrize(
    ("name", "shown"),
    [("new\nline.png", "new\\nline.png"), ("\x1b[2J.png", "\\x1b[2J.png"), ("\udce9.png", "\\udce9.png")],
)
def test_a_name_cannot_break_a_line(tmp_path, name, shown):
    """Control characters, and bytes that are no UTF-8, are spelled out."""
    source = folder_of(tmp_path / "photos", {"a": 3, "b": 3})
    picture(source / "a" / name).write_bytes(b"")
    report = quiet(source, tmp_path / "photos.h5")
    assert report.skipped_files == [LeftOut(f"a/{name}", "the file is empty")]
    assert f"    a/{shown}: the file is empty\n" in str(report) + "\n"

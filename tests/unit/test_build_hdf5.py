"""A folder of pictures becomes a correct file or none, and every file of the folder is accounted for."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import h5py
import numpy as np
import pytest
from PIL import Image

from data_scripts import build_hdf5 as module
from data_scripts.build_hdf5 import BrokenImageError, BuildError, LeftOut, build_hdf5, main, share_out, spread
from helpers import layout
from helpers.images import decode_jpeg

SHARES = (Fraction(7, 10), Fraction(2, 10), Fraction(1, 10))


def picture(path: Path, number: int = 0, class_number: int = 0, kind: str = "PNG") -> Path:
    """A one-coloured picture whose red says its class, and green and blue which one it is. PNG keeps them exactly."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (20, 16), (40 * class_number, number % 256, number // 256)).save(path, format=kind)
    return path


def folder_of(root: Path, counts: dict[str, int], kind: str = "PNG") -> Path:
    """A source with so many pictures in each class; all pictures differ."""
    for class_number, (name, n) in enumerate(sorted(counts.items())):
        (root / name).mkdir(parents=True)
        for number in range(n):
            picture(root / name / f"{number:04d}.{kind.lower()}", number, class_number, kind)
    return root


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def food101(root: Path, train: int = 15, test: int = 5) -> Path:
    """Two classes in the layout of Food-101, with its four other files."""
    lists = {"train": [], "test": []}
    for class_number, name in enumerate(["apple_pie", "baby_back_ribs"]):
        for number in range(train + test):
            picture(root / "images" / name / f"{number}.jpg", number, class_number)
            lists["train" if number < train else "test"].append(f"{name}/{number}")
    (root / "meta").mkdir()
    for name, lines in lists.items():
        (root / "meta" / f"{name}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (root / "meta" / "classes.txt").write_text("apple_pie\nbaby_back_ribs\n", encoding="utf-8")
    (root / "README.txt").write_text("Food-101", encoding="utf-8")
    return root


def contents(path: Path) -> dict[str, list[tuple[int, int]]]:
    """Split -> (class number, picture number) of each row, both read from the pixels; the labels must agree."""
    rows = {}
    with h5py.File(path) as file:
        for split in layout.SPLITS:
            images, labels = file[f"{split}_img"][:], file[f"{split}_labels"][:]
            assert (labels.sum(axis=1) == 1).all()
            rows[split] = [(int(red) // 40, int(green) + 256 * int(blue)) for red, green, blue in images[:, 4, 4]]
            assert [number for number, _ in rows[split]] == labels.argmax(axis=1).tolist()
    return rows


def quiet(source, out, **options):
    return build_hdf5(source, out, progress=False, **{"size": 8, **options})


# -- what is in the file ----------------------------------------------------------------------------------------------


def test_every_picture_is_in_one_row_with_its_class(tmp_path):
    """Splits are 70/20/10 of each class, no picture is lost or twice, and classes are sorted by name."""
    source = folder_of(tmp_path / "photos", {"b": 30, "a": 10, "C": 20})
    report = quiet(source, tmp_path / "photos.h5")
    rows = contents(tmp_path / "photos.h5")
    everything = sorted(row for split in rows.values() for row in split)
    assert everything == [(0, n) for n in range(20)] + [(1, n) for n in range(10)] + [(2, n) for n in range(30)]
    assert report.class_counts == {"train": [14, 7, 21], "valid": [4, 2, 6], "test": [2, 1, 3]}
    assert report.rows == {"train": 42, "valid": 12, "test": 6}
    info = layout.read_file_info(tmp_path / "photos.h5")
    assert (info.class_names, info.splits, info.complete) == (("C", "a", "b"), report.rows, True)
    assert (info.seed, info.source) == (0, "photos: 8x8 stretch, split 0.7 0.2 0.1")


def test_the_same_folder_and_seed_give_the_same_bytes(tmp_path, monkeypatch):
    """Also when the system lists the folder in another order; another seed gives another file."""
    source = folder_of(tmp_path / "photos", {"a": 12, "b": 9})
    listing = Path.iterdir
    quiet(source, tmp_path / "one.h5")
    quiet(source, tmp_path / "seed.h5", seed=1)
    monkeypatch.setattr(Path, "iterdir", lambda folder: sorted(listing(folder), reverse=True))
    quiet(source, tmp_path / "two.h5")
    one, two, seed = (
        hashlib.sha256((tmp_path / f"{name}.h5").read_bytes()).digest() for name in ("one", "two", "seed")
    )
    assert one == two != seed


def test_rows_are_pinned(tmp_path):
    """The plan for seed 0 is a literal: files built in the past and builds resumed later rely on it."""
    quiet(folder_of(tmp_path / "photos", {"a": 5, "b": 5}), tmp_path / "photos.h5")
    assert contents(tmp_path / "photos.h5") == {
        "train": [(0, 2), (1, 4), (1, 1), (0, 4), (0, 3), (1, 2), (0, 0)],
        "valid": [(0, 1), (1, 0)],
        "test": [(1, 3)],
    }


def test_every_block_of_rows_is_a_mix_of_classes(tmp_path):
    """In any 20 rows in sequence, a class that fills a share of the split fills about that share of the block."""
    del tmp_path
    rows = spread([["x"] * 400, ["y"] * 100, ["z"] * 300], np.random.default_rng(3))
    numbers = np.array([number for _, number in rows])
    assert np.bincount(numbers).tolist() == [400, 100, 300]
    blocks = np.lib.stride_tricks.sliding_window_view(numbers, 20)
    for number, expected in ((0, 10), (1, 2.5), (2, 7.5)):
        assert np.abs((blocks == number).sum(axis=1) - expected).max() <= 2
    assert len({tuple(block) for block in blocks[::20].tolist()}) > 30  # and no fixed pattern


@pytest.mark.parametrize("storage", ["raw", "jpeg"])
def test_both_storages_hold_the_same_pictures(tmp_path, storage):
    """A JPEG folder comes out with the right colours, resized, in either storage."""
    source = folder_of(tmp_path / "photos", {"a": 50, "b": 50}, kind="JPEG")
    report = quiet(source, tmp_path / "photos.h5", storage=storage, size=16)
    assert report.written == 100
    with h5py.File(tmp_path / "photos.h5") as file:
        labels = file["train_labels"][:].argmax(axis=1)
        images = file["train_img"][:]
        images = images if storage == "raw" else np.stack([decode_jpeg(row) for row in images])
    assert images.shape == (70, 16, 16, 3)
    np.testing.assert_allclose(images[..., 0].mean(axis=(1, 2)), 40 * labels, atol=4)


def test_crop_and_stretch_differ(tmp_path):
    """--resize reaches the pixels: the sides of a wide picture are kept by one and cut by the other."""
    wide = np.zeros((10, 30, 3), np.uint8)
    wide[:, 10:20] = 255
    (tmp_path / "photos" / "a").mkdir(parents=True)
    (tmp_path / "photos" / "b").mkdir()
    for name in "ab":
        Image.fromarray(wide).save(tmp_path / "photos" / name / "wide.png")
    means = {}
    for how in ("stretch", "crop"):
        quiet(tmp_path / "photos", tmp_path / f"{how}.h5", resize=how, size=10)
        means[how] = layout.read_file_info(tmp_path / f"{how}.h5").mean[0]
    assert means["crop"] == 255
    assert 75 < means["stretch"] < 95


# -- splits -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n", "counts"),
    [
        (0, [0, 0, 0]),
        (1, [1, 0, 0]),
        (2, [2, 0, 0]),
        (3, [2, 1, 0]),
        (5, [4, 1, 0]),
        (10, [7, 2, 1]),
        (1000, [700, 200, 100]),
    ],
)
def test_small_classes_are_shared_out_without_loss(n, counts):
    """Rounded down or up, never lost, and the first picture trains."""
    assert share_out(n, SHARES, [Fraction(0)] * 3)[0] == counts


def test_rounding_is_right_in_total_and_for_each_class():
    """For 300 classes of random size, each split of a class is its share rounded down or up, and so are the totals."""
    rng = np.random.default_rng(0)
    for shares in (SHARES, (Fraction(1, 3),) * 3, (Fraction(3, 4), Fraction(1, 4), Fraction(0))):
        behind, totals, sizes = [Fraction(0)] * 3, np.zeros(3, int), rng.integers(4, 60, 300).tolist()
        for n in sizes:
            counts, behind = share_out(n, shares, behind)
            assert sum(counts) == n
            assert counts[0] >= 1
            assert all(abs(count - n * share) < 1 for count, share in zip(counts, shares, strict=True))
            totals += counts
        assert all(abs(total - sum(sizes) * share) <= 1 for total, share in zip(totals.tolist(), shares, strict=True))


def test_many_classes_of_one_picture_do_not_distort_a_large_one():
    """All the single pictures train, and the class of 1,000 behind them is still split 70/20/10 within one picture."""
    behind = [Fraction(0)] * 3
    for _ in range(100):
        counts, behind = share_out(1, SHARES, behind)
        assert counts == [1, 0, 0]
    assert share_out(1000, SHARES, behind)[0] == [700, 200, 100]


def test_food101_counts():
    """The numbers of the question: 101 classes of 1,000 give 70,700 / 20,200 / 10,100."""
    behind, totals = [Fraction(0)] * 3, np.zeros(3, int)
    for _ in range(101):
        counts, behind = share_out(1000, module.Options().shares, behind)
        totals += counts
    assert totals.tolist() == [70_700, 20_200, 10_100]


def test_food101_is_pooled_by_default(tmp_path):
    """Pictures of both lists are mixed; the lists themselves and the README are ignored files."""
    report = quiet(food101(tmp_path / "food-101"), tmp_path / "food.h5")
    assert report.rows == {"train": 28, "valid": 8, "test": 4}
    assert report.class_names == ("apple_pie", "baby_back_ribs")
    assert [file.path for file in report.ignored_files] == [
        "README.txt",
        "meta/classes.txt",
        "meta/test.txt",
        "meta/train.txt",
    ]
    assert {file.reason for file in report.ignored_files} == {"outside the class folders"}
    train = contents(tmp_path / "food.h5")["train"]
    assert {number >= 15 for _, number in train} == {True, False}


def test_official_split_keeps_the_lists(tmp_path):
    """The test list is the test split; a fifth of each class's training list becomes validation."""
    source = food101(tmp_path / "food-101")
    picture(source / "images" / "apple_pie" / "unlisted.jpg", 99)
    with (source / "meta" / "test.txt").open("a", encoding="utf-8") as file:
        file.write("apple_pie/gone\n\n")
    report = quiet(source, tmp_path / "food.h5", split="official")
    rows = contents(tmp_path / "food.h5")
    assert {number for _, number in rows["test"]} == set(range(15, 20))
    assert {number for _, number in rows["train"] + rows["valid"]} == set(range(15))
    assert report.class_counts == {"train": [12, 12], "valid": [3, 3], "test": [5, 5]}
    assert report.not_found == ("apple_pie/gone",)
    unlisted = LeftOut("images/apple_pie/unlisted.jpg", "in neither meta/train.txt nor meta/test.txt")
    assert unlisted in report.ignored_files
    assert report.written + report.skipped + report.ignored == report.found == 45


def test_a_split_may_be_empty(tmp_path):
    """Shares of 0 give datasets without rows, and the report says so."""
    report = quiet(folder_of(tmp_path / "photos", {"a": 4, "b": 4}), tmp_path / "photos.h5", split=(1, 0, 0))
    assert report.rows == {"train": 8, "valid": 0, "test": 0}
    assert layout.read_split_info(tmp_path / "photos.h5", "test").n == 0
    assert "\n  valid has no rows\n  test has no rows" in str(report)


def test_classes_missing_in_a_split_are_named(tmp_path):
    """A class too small for every split keeps its number in all of them."""
    report = quiet(folder_of(tmp_path / "photos", {"large": 20, "tiny": 1}), tmp_path / "photos.h5")
    assert {split: report.missing_classes(split) for split in layout.SPLITS} == {
        "train": [],
        "valid": ["tiny"],
        "test": ["tiny"],
    }
    assert "\n  classes without a row in test: 1\n    tiny" in str(report)
    with h5py.File(tmp_path / "photos.h5") as file:
        assert file["test_labels"].shape[1] == 2


# -- files that are no pictures, and pictures that are broken ---------------------------------------------------------


def messy_folder(root: Path) -> Path:
    """Two good classes, one of broken pictures only, one empty, and all the litter that real folders have."""
    folder_of(root, {"bread": 20, "soup": 20})
    picture(root / "bread" / "deep" / "nested.jpg", 250)
    Image.effect_noise((64, 64), 50).save(root / "bread" / "cut.jpg")
    os.truncate(root / "bread" / "cut.jpg", 1200)
    (root / "bread" / "empty.png").write_bytes(b"")
    (root / "soup" / "letter.jpg").write_text("Dear reader", encoding="utf-8")
    (root / "soup" / "no_ending").write_bytes((root / "soup" / "0000.png").read_bytes())
    (root / "soup" / "BMP-notes").write_text("BMW and other cars", encoding="utf-8")
    (root / "broken").mkdir()
    (root / "broken" / "one.jpg").write_bytes(b"")
    (root / "hollow").mkdir()
    (root / "bread" / "Thumbs.db").write_bytes(b"\xd0\xcf\x11\xe0")
    (root / "bread" / ".DS_Store").write_bytes(b"\0\0\0\1Bud1")
    picture(root / ".trash" / "old.png")
    picture(root / "soup" / "._0001.png")
    picture(root / "cover.png")
    (root / "notes.txt").write_text("x", encoding="utf-8")
    (root / "soup" / "gone.jpg").symlink_to(root / "nowhere.jpg")
    (root / "soup" / "loop").symlink_to(root, target_is_directory=True)
    (root / "soup" / "linked.png").symlink_to(root / "soup" / "0001.png")
    return root


EMPTY = "the file is empty"
MESSY_SKIPPED = [
    LeftOut("bread/cut.jpg", "it is cut short"),
    LeftOut("bread/empty.png", EMPTY),
    LeftOut("broken/one.jpg", EMPTY),
    LeftOut("soup/letter.jpg", "its bytes are not those of a PNG, JPEG, WebP, BMP or GIF picture"),
]
MESSY_IGNORED = {
    ".trash/old.png": "hidden",
    "bread/.DS_Store": "hidden",
    "bread/Thumbs.db": "not a picture",
    "cover.png": "outside the class folders",
    "notes.txt": "outside the class folders",
    "soup/._0001.png": "hidden",
    "soup/BMP-notes": "not a picture",
    "soup/gone.jpg": "no regular file (a broken link, a pipe ...)",
    "soup/loop": "a link to a folder",
}


def test_every_file_is_written_skipped_or_ignored(tmp_path):
    """Each broken picture and each file that is none is named with its reason, and the rest is all there."""
    report = quiet(messy_folder(tmp_path / "photos"), tmp_path / "photos.h5")
    assert report.skipped_files == MESSY_SKIPPED
    assert {file.path: file.reason for file in report.ignored_files} == MESSY_IGNORED
    assert report.written == 20 + 1 + 20 + 2  # nested.jpg; no_ending and linked.png
    assert report.written + report.skipped + report.ignored == report.found == 43 + 4 + 9
    assert (report.class_names, report.empty_classes, report.unreadable_classes) == (
        ("bread", "soup"),
        ("hollow",),
        ("broken",),
    )
    rows = contents(tmp_path / "photos.h5")
    assert sum(map(len, rows.values())) == 43
    assert {number for split in rows.values() for name, number in split if name == 0} == {*range(20), 250}


def test_a_class_folder_may_be_a_link(tmp_path):
    """Large collections are often gathered by links; one level of them is followed."""
    folder_of(tmp_path / "elsewhere", {"b": 5})
    source = folder_of(tmp_path / "photos", {"a": 5})
    (source / "b").symlink_to(tmp_path / "elsewhere" / "b", target_is_directory=True)
    report = quiet(source, tmp_path / "photos.h5")
    assert (report.class_names, report.written, report.ignored) == (("a", "b"), 10, 0)


def test_the_images_of_food101_may_be_a_link(tmp_path):
    """The pictures often lie on another disk than the lists."""
    source = food101(tmp_path / "food-101")
    (source / "images").rename(tmp_path / "disk")
    (source / "images").symlink_to(tmp_path / "disk", target_is_directory=True)
    assert quiet(source, tmp_path / "food.h5").written == 40


@pytest.mark.parametrize("seed", range(5))
def test_the_only_readable_picture_of_a_class_trains(tmp_path, seed):
    """Whatever the seed, broken pictures cannot push a class out of the training split."""
    source = folder_of(tmp_path / "photos", {"a": 10, "b": 10})
    for number in range(10):
        if number != 4:
            (source / "b" / f"{number:04d}.png").write_bytes(b"")
    report = quiet(source, tmp_path / "photos.h5", seed=seed)
    assert report.class_counts["train"][1] == 1
    assert (report.written, report.skipped) == (11, 9)


def test_report_for_people(tmp_path):
    """The whole text: counts first, then each list with its names."""
    report = quiet(messy_folder(tmp_path / "photos"), tmp_path / "photos.h5")
    report.path, report.size_bytes = Path("photos.h5"), 50_000
    assert str(report) == REPORT


REPORT = """\
photos.h5: 43 images of 8x8 (stretch, raw) in 2 classes, 0.1 MB
  rows: train 30, valid 8, test 5
  56 files found = 43 written + 4 skipped + 9 ignored
  skipped, cannot be read: 4
    bread/cut.jpg: it is cut short
    bread/empty.png: the file is empty
    broken/one.jpg: the file is empty
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
  ignored, no regular file (a broken link, a pipe ...) (1 .jpg): 1
    soup/gone.jpg
  ignored, a link to a folder (1 no ending): 1
    soup/loop
  class folders without a picture, no class number: 1
    hollow
  class folders without a readable picture, no class number: 1
    broken"""


def test_long_lists_are_cut_on_screen_only(tmp_path):
    """Twenty names are shown; text(None) has every one."""
    source = folder_of(tmp_path / "photos", {"a": 3, "b": 3})
    for number in range(25):
        (source / "a" / f"{number}.txt").write_text("x", encoding="utf-8")
    report = quiet(source, tmp_path / "photos.h5")
    assert "    ... and 5 more" in str(report)
    assert str(report).count(".txt\n") == 20
    assert report.text(None).count(".txt\n") == 25


def test_pillow_warnings_do_not_reach_the_user(tmp_path):
    """Damaged EXIF data is no reason to print or, under warnings as errors, to stop."""
    source = folder_of(tmp_path / "photos", {"a": 3, "b": 3})
    odd = b"Exif\x00\x00MM\x00*\xff\xff\xff\xff\x00"
    Image.new("RGB", (20, 16)).save(source / "a" / "odd.jpg", exif=odd)
    assert quiet(source, tmp_path / "photos.h5").skipped == 0


# -- stopping, and what cannot be built -------------------------------------------------------------------------------


def test_on_error_stop_leaves_the_older_file(tmp_path):
    """The sentence names the picture and the reason; no part is left and yesterday's file has the same bytes."""
    source = folder_of(tmp_path / "photos", {"a": 10, "b": 10})
    quiet(source, tmp_path / "photos.h5")
    before = (tmp_path / "photos.h5").read_bytes()
    (source / "b" / "0003.png").write_bytes(b"")
    with pytest.raises(BrokenImageError) as raised:
        quiet(source, tmp_path / "photos.h5", on_error="stop")
    assert str(raised.value) == (
        "b/0003.png cannot be read: the file is empty. Nothing was written. "
        "Repair or remove it, or use --on-error skip."
    )
    assert (tmp_path / "photos.h5").read_bytes() == before
    assert names(tmp_path) == ["photos", "photos.h5"]


def one_class(root: Path) -> Path:
    return folder_of(root, {"images": 5})


def test_one_class_only_is_a_warning(tmp_path):
    """The file is built, and the usual cause, a folder given one level too high, is named."""
    source = one_class(tmp_path / "photos")
    expected = (
        f"{source} has one class only, images: a model cannot learn from it. If the classes are the folders inside it, "
        f"pass {source}/images instead."
    )
    with pytest.warns(UserWarning, match=f"^{re.escape(expected)}$"):
        report = quiet(source, tmp_path / "photos.h5")
    assert report.written == 5


def no_classes(root: Path) -> Path:
    picture(root / "cover.png")
    return root


def no_pictures(root: Path) -> Path:
    (root / "a").mkdir(parents=True)
    (root / "a" / "x.txt").write_text("x", encoding="utf-8")
    return root


def all_broken(root: Path) -> Path:
    (root / "a").mkdir(parents=True)
    (root / "a" / "x.png").write_bytes(b"")
    return root


def not_utf8(root: Path) -> Path:
    (root / os.fsdecode(b"caf\xe9")).mkdir(parents=True)
    return root


def a_file(root: Path) -> Path:
    root.write_text("x", encoding="utf-8")
    return root


def in_both_lists(root: Path) -> Path:
    food101(root)
    (root / "meta" / "test.txt").write_text("apple_pie/3\n", encoding="utf-8")
    return root


def good(root: Path) -> Path:
    return folder_of(root, {"a": 2, "b": 2})


SPLIT_RULE = "split must be 'official' or three shares (train, valid, test) that sum to 1, train above 0; got "
CANNOT_START = [
    ("missing", lambda root: root, [],
     "{source} does not exist. Give the folder that holds one folder of pictures for each class."),
    ("file", a_file, [],
     "{source} is a file, not a folder. Give the folder that holds one folder of pictures for each class."),
    ("no classes", no_classes, [],
     "{source} has no class folders. Put the pictures of each class into a folder of its own: CLASS/picture.jpg."),
    ("no pictures", no_pictures, [],
     "{source} has 1 class folders and 1 files, but no picture: none is a PNG, JPEG, WebP, BMP or GIF file in a class "
     "folder."),
    ("all broken", all_broken, [],
     "none of the 1 pictures in {source} can be read; the first, a/x.png: the file is empty."),
    ("not UTF-8", not_utf8, [], "the class folder 'caf\\udce9' has a name that is not UTF-8. Rename it."),
    ("no lists", good, ["--split", "official"],
     "--split official needs a Food-101 folder, with images/, meta/train.txt and meta/test.txt; {source} has no such "
     "lists. Give three shares instead: --split 0.7 0.2 0.1."),
    ("both lists", in_both_lists, ["--split", "official"],
     "apple_pie/3 is in meta/train.txt and in meta/test.txt, 1 pictures in all. Correct the lists, or give three "
     "shares instead: --split 0.7 0.2 0.1."),
    ("size", good, ["--size", "0"], "size must be a whole number of pixels from 1 to 65500; got 0."),
    ("seed", good, ["--seed", "-1"], "seed must be a whole number from 0 to 2**63 - 1; got -1."),
    ("seed of 65 bits", good, ["--seed", str(2**64)], "seed must be a whole number from 0 to 2**63 - 1; got "
     "18446744073709551616."),
    ("sum", good, ["--split", "0.7", "0.2", "0.2"], SPLIT_RULE + "(0.7, 0.2, 0.2)."),
    ("no train", good, ["--split", "0", "0.5", "0.5"], SPLIT_RULE + "(0.0, 0.5, 0.5)."),
    ("two shares", good, ["--split", "0.7", "0.3"], SPLIT_RULE + "(0.7, 0.3)."),
    ("nan", good, ["--split", "nan", "0.5", "0.5"], SPLIT_RULE + "(nan, 0.5, 0.5)."),
    ("a word", good, ["--split", "offical"], SPLIT_RULE + "'offical'."),
    ("no folder", good, ["--out", "{folder}/none/photos.h5"],
     "the folder {folder}/none does not exist. Create it first."),
    ("out is a folder", good, ["--out", "{folder}"],
     "{folder} is a folder; an HDF5 file cannot replace it. Give a file name inside it."),
]  # fmt: skip


@pytest.mark.parametrize(("case", "make", "options", "message"), CANNOT_START, ids=[case[0] for case in CANNOT_START])
def test_what_cannot_start_is_one_sentence_and_status_2(tmp_path, capsys, case, make, options, message):
    """No trace of Python, nothing on stdout, no file made."""
    source, out = make(tmp_path / "photos"), tmp_path / f"{case}.h5"
    options = [option.format(folder=tmp_path) for option in options]
    assert main([str(source), "--out", str(out), "--size", "8", *options]) == 2
    printed = capsys.readouterr()
    lines = [line for line in printed.err.splitlines() if line.startswith("build_hdf5: ")]
    assert lines == ["build_hdf5: " + message.format(source=source, folder=tmp_path)]
    assert "Traceback" not in printed.err
    assert printed.out == ""
    assert set(names(tmp_path)) <= {"photos"}


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("resize", "pad", "resize must be one of stretch, crop; got 'pad'."),
        ("storage", "png", "storage must be one of raw, jpeg; got 'png'."),
        ("on_error", "ignore", "on_error must be one of skip, stop; got 'ignore'."),
        ("size", 8.5, "size must be a whole number of pixels from 1 to 65500; got 8.5."),
        ("split", "train", SPLIT_RULE + "'train'."),
    ],
)
def test_wrong_options_in_python(tmp_path, option, value, message):
    """What the command line refuses by its choices is refused by the function, too."""
    with pytest.raises(BuildError) as raised:
        quiet(good(tmp_path / "photos"), tmp_path / "photos.h5", **{option: value})
    assert str(raised.value) == message


def test_command_line_builds_and_keeps_the_report(tmp_path):
    """Status 0, the report on stdout and, with every name, beside the file; the bar with its rate on stderr."""
    messy_folder(tmp_path / "photos")
    command = [sys.executable, "-m", "data_scripts.build_hdf5", str(tmp_path / "photos"), "--out", "photos.h5"]
    done = subprocess.run([*command, "--size", "8"], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[1:-2] == REPORT.splitlines()[1:]
    assert lines[-1] == "  all names: photos.h5.report.txt"
    assert "46/46" in done.stderr
    assert "img/s" in done.stderr
    assert (tmp_path / "photos.h5.report.txt").read_text(encoding="utf-8").splitlines()[1:] == lines[1:-2]
    assert names(tmp_path) == ["photos", "photos.h5", "photos.h5.report.txt"]


def test_command_line_stops_with_status_1(tmp_path, capsys):
    """--on-error stop: one sentence, no file, no report."""
    source = messy_folder(tmp_path / "photos")
    assert main([str(source), "--out", str(tmp_path / "photos.h5"), "--size", "8", "--on-error", "stop"]) == 1
    assert "cannot be read: " in capsys.readouterr().err
    assert names(tmp_path) == ["photos"]


def test_command_line_full_disk_is_status_1(tmp_path, capsys, monkeypatch):
    """An error of the system in the middle of the build ends in one sentence, and leaves no file."""

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("helpers.writer._extend", full)
    out = tmp_path / "photos.h5"
    assert main([str(good(tmp_path / "photos")), "--out", str(out), "--size", "8"]) == 1
    expected = f"build_hdf5: the build stopped: [Errno 28] No space left on device. Nothing was written under {out}.\n"
    assert capsys.readouterr().err.endswith(expected)
    assert names(tmp_path) == ["photos"]


def test_command_line_warns_of_one_class(tmp_path, capsys):
    """As a line for people, without the place in the source that Python adds."""
    source = one_class(tmp_path / "photos")
    assert main([str(source), "--out", str(tmp_path / "photos.h5"), "--size", "8"]) == 0
    assert capsys.readouterr().err.startswith(f"warning: {source} has one class only, images: ")


def test_help_has_examples(capsys):
    """--help ends with lines to copy and the meaning of the exit status."""
    with pytest.raises(SystemExit) as raised:
        main(["--help"])
    assert raised.value.code == 0
    text = capsys.readouterr().out
    assert "python -m data_scripts.build_hdf5 food-101 --out food.h5 --split official" in text
    assert "exit status: 0 the file is written" in text

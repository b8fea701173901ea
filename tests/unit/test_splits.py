"""Splits have the right sizes, rows are mixed, and the plan never changes for the same folder and seed."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from photos import folder_of, food101, picture, quiet, rows_in

from data_scripts.build_hdf5 import Options
from data_scripts.folder import LeftOut, find_pictures
from data_scripts.splits import plan_rows, share_out, spread
from helpers import layout

SHARES = (Fraction(7, 10), Fraction(2, 10), Fraction(1, 10))


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
        counts, behind = share_out(1000, Options().shares, behind)
        totals += counts
    assert totals.tolist() == [70_700, 20_200, 10_100]


def test_every_block_of_rows_is_a_mix_of_classes():
    """In any 20 rows in sequence, a class that fills a share of the split fills about that share of the block."""
    rows = spread([["x"] * 400, ["y"] * 100, ["z"] * 300], np.random.default_rng(3))
    numbers = np.array([number for _, number in rows])
    assert np.bincount(numbers).tolist() == [400, 100, 300]
    blocks = np.lib.stride_tricks.sliding_window_view(numbers, 20)
    for number, expected in ((0, 10), (1, 2.5), (2, 7.5)):
        assert np.abs((blocks == number).sum(axis=1) - expected).max() <= 2
    assert len({tuple(block) for block in blocks[::20].tolist()}) > 30  # and no fixed pattern


def test_rows_are_pinned(tmp_path):
    """The plan for seed 0 is a literal: files built in the past and builds resumed later rely on it."""
    plan = plan_rows(find_pictures(folder_of(tmp_path / "photos", {"a": 5, "b": 5})), SHARES, 0)
    names = {
        split: [path.replace(".png", "").replace("000", "") for path, _ in rows] for split, rows in plan.rows.items()
    }
    assert names == {
        "train": ["a/2", "b/4", "b/1", "a/4", "a/3", "b/2", "a/0"],
        "valid": ["a/1", "b/0"],
        "test": ["b/3"],
    }


def test_the_digest_of_a_plan_sees_every_change(tmp_path):
    """What a stopped build is compared with: the same folder, seed and options give the same text, others do not."""
    source = folder_of(tmp_path / "photos", {"a": 5, "b": 5})

    def digest(seed=0, options="x"):
        return plan_rows(find_pictures(source), SHARES, seed).digest(options)

    digests = [digest(), digest(seed=1), digest(options="y")]
    assert digest() == digests[0]
    (source / "a" / "note.txt").write_text("no picture", encoding="utf-8")
    assert digest() == digests[0]
    (source / "a" / "0001.png").rename(source / "a" / "one.png")
    digests.append(digest())
    picture(source / "b" / "new.png", 77)
    digests.append(digest())
    assert len(set(digests)) == 5


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


def test_food101_is_pooled_by_default(tmp_path):
    """Pictures of both lists are mixed; the lists themselves and the README are ignored files."""
    report = quiet(food101(tmp_path / "food-101"), tmp_path / "food.h5")
    assert report.rows == {"train": 28, "valid": 8, "test": 4}
    assert report.class_names == ("apple_pie", "baby_back_ribs")
    assert report.ignored_files == [
        LeftOut(name, "outside the class folders")
        for name in ("README.txt", "meta/classes.txt", "meta/test.txt", "meta/train.txt")
    ]
    train = rows_in(tmp_path / "food.h5")["train"]
    assert {number >= 15 for _, number in train} == {True, False}


def test_official_split_keeps_the_lists(tmp_path):
    """The test list is the test split; a fifth of each class's training list becomes validation."""
    source = food101(tmp_path / "food-101")
    picture(source / "images" / "apple_pie" / "unlisted.jpg", 99)
    with (source / "meta" / "test.txt").open("a", encoding="utf-8") as file:
        file.write("apple_pie/gone\n\n")
    report = quiet(source, tmp_path / "food.h5", split="official")
    rows = rows_in(tmp_path / "food.h5")
    assert {number for _, number in rows["test"]} == set(range(15, 20))
    assert {number for _, number in rows["train"] + rows["valid"]} == set(range(15))
    assert report.class_counts == {"train": [12, 12], "valid": [3, 3], "test": [5, 5]}
    assert report.not_found == ("apple_pie/gone",)
    unlisted = LeftOut("images/apple_pie/unlisted.jpg", "in neither meta/train.txt nor meta/test.txt")
    assert unlisted in report.ignored_files
    assert report.written + report.skipped + report.ignored == report.found == 45


def test_official_split_keeps_copies_and_names_them(tmp_path):
    """The lists are a published benchmark: what they name is written, in both classes too."""
    source = food101(tmp_path / "food-101")
    twin = source / "images" / "baby_back_ribs" / "3.jpg"
    twin.write_bytes((source / "images" / "apple_pie" / "19.jpg").read_bytes())
    report = quiet(source, tmp_path / "food.h5", split="official")
    assert (report.written, report.copies) == (40, ("images/apple_pie/19.jpg = images/baby_back_ribs/3.jpg",))
    assert "\n  the same bytes twice, written because the lists name both: 1\n    images/apple_pie/19.jpg = " in str(
        report
    )


def test_a_split_may_be_empty(tmp_path):
    """Shares of 0 give datasets without rows, and the report says so."""
    report = quiet(folder_of(tmp_path / "photos", {"a": 4, "b": 4}), tmp_path / "photos.h5", split=(1, 0, 0))
    assert report.rows == {"train": 8, "valid": 0, "test": 0}
    assert layout.read_split_info(tmp_path / "photos.h5", "test").n == 0
    assert "\n  valid has no rows\n  test has no rows" in str(report)

"""A folder of pictures becomes a correct file or none: content, options and the command line."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import unicodedata
import zlib
from collections import namedtuple
from pathlib import Path

import h5py
import numpy as np
import pytest
from photos import folder_of, food101, messy_folder, names, picture, quiet, rows_in
from PIL import Image

from data_scripts import build_hdf5 as module
from data_scripts.build_hdf5 import BuildError, main
from data_scripts.make_toy_food import make_toy_food
from helpers import HDF5Sequence, layout

STORAGES = {"raw": {}, "gzip": {"compression": "gzip"}, "jpeg": {"storage": "jpeg", "label_kind": "sparse"}}


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


# -- what is in the file ----------------------------------------------------------------------------------------------


def test_every_picture_is_in_one_row_with_its_class(tmp_path):
    """Splits are 70/20/10 of each class, no picture is lost or twice, and classes are sorted by name."""
    source = folder_of(tmp_path / "photos", {"b": 30, "a": 10, "C": 20})
    report = quiet(source, tmp_path / "photos.h5")
    rows = rows_in(tmp_path / "photos.h5")
    everything = sorted(row for split in rows.values() for row in split)
    assert everything == [(0, n) for n in range(20)] + [(1, n) for n in range(10)] + [(2, n) for n in range(30)]
    assert report.class_counts == {"train": [14, 7, 21], "valid": [4, 2, 6], "test": [2, 1, 3]}
    assert report.rows == {"train": 42, "valid": 12, "test": 6}
    info = layout.read_file_info(tmp_path / "photos.h5")
    assert (info.class_names, info.splits, info.complete) == (("C", "a", "b"), report.rows, True)
    assert (info.seed, info.source) == (0, "photos: 8x8 (stretch, raw), onehot, split 0.7 0.2 0.1")


def test_every_file_is_written_skipped_or_ignored(tmp_path):
    """Each broken picture and each file that is none is named with its reason, and the rest is all there."""
    report = quiet(messy_folder(tmp_path / "photos"), tmp_path / "photos.h5")
    assert {file.path: file.reason for file in report.skipped_files} == {
        "bread/cut.jpg": "it is cut short",
        "bread/empty.png": "the file is empty",
        "broken/one.jpg": "the file is empty",
        "soup/gone.jpg": "it cannot be read: No such file or directory",
        "soup/letter.jpg": "its bytes are not those of a PNG, JPEG, WebP, BMP or GIF picture",
    }
    assert report.written == 20 + 1 + 20 + 1  # nested.jpg; no_ending
    assert report.written + report.skipped + report.ignored == report.found == 42 + 5 + 10
    assert (report.class_names, report.empty_classes, report.unreadable_classes) == (
        ("bread", "soup"),
        ("hollow",),
        ("broken",),
    )
    rows = rows_in(tmp_path / "photos.h5")
    numbers = sorted(row for split in rows.values() for row in split)
    assert numbers == [(0, n) for n in (*range(20), 250)] + [(1, n) for n in (*range(20), 251)]


def test_the_same_folder_and_seed_give_the_same_bytes(tmp_path, monkeypatch):
    """Also when the system lists the folder in another order; another seed gives another file."""
    source = folder_of(tmp_path / "photos", {"a": 12, "b": 9})
    listing = Path.iterdir
    quiet(source, tmp_path / "one.h5")
    quiet(source, tmp_path / "seed.h5", seed=1)
    monkeypatch.setattr(Path, "iterdir", lambda folder: iter(sorted(listing(folder), reverse=True)))
    quiet(source, tmp_path / "two.h5")
    assert digest(tmp_path / "one.h5") == digest(tmp_path / "two.h5") != digest(tmp_path / "seed.h5")


@pytest.mark.parametrize("options", STORAGES.values(), ids=STORAGES)
def test_the_number_of_workers_changes_no_byte(tmp_path, monkeypatch, options):
    """Nor any word of the report; checkpoints are made by counted bytes, so that they come at the same rows."""
    source = folder_of(tmp_path / "photos", {"a": 40, "b": 30}, kind="JPEG")
    (source / "a" / "0007.jpeg").write_bytes(b"")
    (source / "b" / "0011.jpeg").write_bytes(b"x")
    monkeypatch.setattr(module, "GROUP_PICTURES", 8)
    monkeypatch.setattr(module, "CHECKPOINT_BYTES", 16 * 16 * 16 * 3)
    monkeypatch.setattr(module, "WORKERS_FROM", 0)
    found = []
    for workers in (1, 2, 3, None):
        report = quiet(source, tmp_path / "photos.h5", size=16, workers=workers, **options)
        found.append((digest(tmp_path / "photos.h5"), report.text(None), report.class_counts))
    assert report.skipped == 2
    assert found == found[:1] * 4


@pytest.mark.parametrize("options", STORAGES.values(), ids=STORAGES)
def test_every_storage_holds_the_same_pictures(tmp_path, options):
    """A JPEG folder comes out with the right colours, resized; the sequence gives the labels in the form asked for."""
    source = folder_of(tmp_path / "photos", {"a": 50, "b": 50}, kind="JPEG")
    report = quiet(source, tmp_path / "photos.h5", size=16, **options)
    assert report.written == 100
    info = layout.read_split_info(tmp_path / "photos.h5")
    assert (info.n, info.image_shape, info.label_kind) == (70, (16, 16, 3), options.get("label_kind", "onehot"))
    with HDF5Sequence(tmp_path / "photos.h5", batch_size=70, shuffle=None) as sequence:
        images, labels = sequence[0]
    numbers = labels if labels.ndim == 1 else labels.argmax(axis=1)
    assert images.shape == (70, 16, 16, 3)
    np.testing.assert_allclose(images[..., 0].mean(axis=(1, 2)), 40 * numbers, atol=4)


@pytest.mark.parametrize("options", STORAGES.values(), ids=STORAGES)
def test_every_row_has_its_crc32(tmp_path, options):
    """Of the pixels in C order, or of the JPEG bytes: a flipped byte can be found later."""
    quiet(folder_of(tmp_path / "photos", {"a": 10, "b": 10}), tmp_path / "photos.h5", **options)
    with h5py.File(tmp_path / "photos.h5") as file:
        for split, n in (("train", 14), ("valid", 4), ("test", 2)):
            stored = [zlib.crc32(np.ascontiguousarray(row).tobytes()) for row in file[f"{split}_img"]]
            assert file[f"{split}_crc32"][:].tolist() == stored
            assert (file[f"{split}_crc32"].dtype, len(stored)) == (np.uint32, n)


@pytest.mark.parametrize(("label_kind", "dtype", "shape"), [("onehot", np.uint8, (14, 2)), ("sparse", np.int64, (14,))])
def test_labels_are_one_hot_or_class_numbers(tmp_path, label_kind, dtype, shape):
    """The width comes from the classes of the folder."""
    quiet(folder_of(tmp_path / "photos", {"a": 10, "b": 10}), tmp_path / "photos.h5", label_kind=label_kind)
    with h5py.File(tmp_path / "photos.h5") as file:
        labels, images = file["train_labels"][:], file["train_img"][:]
    assert (labels.dtype, labels.shape) == (dtype, shape)
    assert (images[:, 4, 4, 0] // 40).tolist() == (labels if labels.ndim == 1 else labels.argmax(axis=1)).tolist()


def test_class_names_come_back_as_text(tmp_path):
    """In any script, sorted, in NFC whatever the folder is called."""
    given = ["apple pie", unicodedata.normalize("NFD", "crème brûlée"), "寿司", "Борщ", "🍰", "a,b;c"]
    quiet(folder_of(tmp_path / "photos", dict.fromkeys(given, 3)), tmp_path / "photos.h5")
    stored = layout.read_file_info(tmp_path / "photos.h5").class_names
    assert stored == tuple(sorted(unicodedata.normalize("NFC", name) for name in given))
    assert all(type(name) is str for name in stored)


def test_crop_and_stretch_differ(tmp_path):
    """--resize reaches the pixels: the sides of a wide picture are kept by one and cut by the other."""
    wide = np.zeros((10, 30, 3), np.uint8)
    wide[:, 10:20] = 255
    for level, name in enumerate("ab"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        Image.fromarray(wide).save(tmp_path / "photos" / name / "wide.png", compress_level=level)
    means = {}
    for how in ("stretch", "crop"):
        quiet(tmp_path / "photos", tmp_path / f"{how}.h5", resize=how, size=10)
        means[how] = layout.read_file_info(tmp_path / f"{how}.h5").mean[0]
    assert means["crop"] == 255
    assert 75 < means["stretch"] < 95


def test_pillow_warnings_do_not_reach_the_user(tmp_path):
    """Damaged EXIF data is no reason to print or, under warnings as errors, to stop."""
    source = folder_of(tmp_path / "photos", {"a": 3, "b": 3})
    odd = b"Exif\x00\x00MM\x00*\xff\xff\xff\xff\x00"
    Image.new("RGB", (20, 16)).save(source / "a" / "odd.jpg", exif=odd)
    assert quiet(source, tmp_path / "photos.h5").skipped == 0


# -- room on the disk -------------------------------------------------------------------------------------------------

Usage = namedtuple("Usage", "total used free")


def free(monkeypatch, count: int) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(10**12, 10**12 - count, count))


@pytest.fixture(scope="module")
def photographs(tmp_path_factory) -> Path:
    return make_toy_food(tmp_path_factory.mktemp("toy") / "photos", layout="folder", classes=6, per_class=50, size=96)


@pytest.mark.parametrize("options", STORAGES.values(), ids=STORAGES)
def test_the_estimate_is_near_the_size(tmp_path, monkeypatch, photographs, options):
    """On drawn photographs, within 15 % for every storage: with less room the build does not start."""
    size = quiet(photographs, tmp_path / "photos.h5", size=96, **options).size_bytes
    free(monkeypatch, int(0.85 * size))
    with pytest.raises(BuildError, match=r"^.*other\.h5 needs about "):
        quiet(photographs, tmp_path / "other.h5", size=96, **options)
    assert names(tmp_path) == ["photos.h5"]
    free(monkeypatch, int(1.15 * size))
    quiet(photographs, tmp_path / "other.h5", size=96, **options)


@pytest.mark.parametrize(
    ("storage", "smaller"), [("raw", "a smaller size or storage jpeg"), ("jpeg", "a smaller size")]
)
def test_too_little_room_is_said_before_anything_is_written(tmp_path, capsys, monkeypatch, storage, smaller):
    """Needed, free and what to do, with status 2; what a part takes already counts as room."""
    free(monkeypatch, 600)
    out = tmp_path / "photos.h5"
    command = [str(folder_of(tmp_path / "photos", {"a": 2, "b": 2})), "--out", str(out), "--size", "8"]
    command += ["--storage", storage]
    assert main(command) == 2
    assert re.sub(r"about [\d.]+ kB", "about N kB", capsys.readouterr().err) == (
        f"build_hdf5: {out} needs about N kB (4 images of 8x8 (stretch, {storage})), and its disk has 600 bytes free. "
        f"Free some, choose another disk, or take {smaller}.\n"
    )
    assert names(tmp_path) == ["photos"]
    (tmp_path / "photos.h5.part").write_bytes(bytes(3000))
    assert main(command) == 0


def test_a_system_that_does_not_say_is_believed(tmp_path, monkeypatch):
    """Some network disks do not know their room."""

    def unknown(path):
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(shutil, "disk_usage", unknown)
    assert quiet(folder_of(tmp_path / "photos", {"a": 2, "b": 2}), tmp_path / "photos.h5").written == 4


# -- what cannot be built ---------------------------------------------------------------------------------------------


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


def broken_links(root: Path) -> Path:
    (root / "a").mkdir(parents=True)
    (root / "a" / "x.png").symlink_to("nowhere.png")
    return root


def splits(root: Path) -> Path:
    for split in ("train", "test"):
        folder_of(root / split, {"a": 1})
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
     "none of the 1 pictures in {source} can be used; the first, a/x.png: the file is empty."),
    ("broken links", broken_links, [],
     "none of the 1 pictures in {source} can be used; the first, a/x.png: it cannot be read: No such file or "
     "directory."),
    ("splits", splits, [],
     "{source} holds splits, not classes: test, train. Give one of them ({source}/test), or move the folders of each "
     "class together: build_hdf5 splits them itself."),
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
    ("workers", good, ["--workers", "0"], "workers must be None or a whole number from 1 to 256; got 0."),
    ("gzip of JPEG", good, ["--compression", "gzip", "--storage", "jpeg"],
     "compression must be None, or gzip with storage raw; got 'gzip' with jpeg."),
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
        ("label_kind", "text", "label_kind must be one of onehot, sparse; got 'text'."),
        ("compression", "lzf", "compression must be None, or gzip with storage raw; got 'lzf' with raw."),
        ("workers", 0, "workers must be None or a whole number from 1 to 256; got 0."),
        ("workers", 2.0, "workers must be None or a whole number from 1 to 256; got 2.0."),
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
    """Status 0; the report on stdout and, with every name, beside the file; on stderr the bar with its rate, and a line
    for each picture that is skipped meanwhile."""
    source = messy_folder(tmp_path / "photos")
    command = [sys.executable, "-m", "data_scripts.build_hdf5", str(source), "--out", "photos.h5", "--size", "8"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    *report, rate, place = done.stdout.splitlines()
    assert report[1:3] == [
        "  rows: train 29, valid 9, test 4",
        "  57 files found = 42 written + 5 skipped + 10 ignored",
    ]
    assert re.fullmatch(r"  \d+\.\d s, \d+ images a second", rate)
    assert place == "  all names: photos.h5.report.txt"
    assert (tmp_path / "photos.h5.report.txt").read_text(encoding="utf-8").splitlines() == report
    lines = re.split(r"[\r\n]+", done.stderr)
    assert {line for line in lines if line.startswith("skipped ")} == {
        "skipped bread/cut.jpg: it is cut short",
        "skipped bread/empty.png: the file is empty",
        "skipped soup/letter.jpg: its bytes are not those of a PNG, JPEG, WebP, BMP or GIF picture",
    }
    assert any("45/45" in line and "img/s" in line for line in lines)
    assert names(tmp_path) == ["photos", "photos.h5", "photos.h5.report.txt"]


def test_command_line_passes_every_option(tmp_path, capsys):
    """Each flag reaches the file."""
    source = food101(tmp_path / "food-101")
    out = tmp_path / "food.h5"
    flags = "--size 9 --resize crop --compression gzip --label-kind sparse --split official --seed 5 --workers 1"
    assert main([str(source), "--out", str(out), *flags.split()]) == 0
    info = layout.read_file_info(out)
    assert (info.source, info.seed) == ("food-101: 9x9 (crop, raw gzip), sparse, split official", 5)
    with h5py.File(out) as file:
        assert (file["train_img"].compression, file["train_img"].chunks) == ("gzip", (1, 9, 9, 3))
    assert main([str(source), "--out", str(out), "--storage", "jpeg", "--on-error", "stop"]) == 0
    assert layout.read_split_info(out).storage == "jpeg"


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

"""make_toy_food: three layouts of the same pictures, exact splits, order from the seed alone, clear refusals."""

import json
import subprocess
import sys
from collections import Counter

import h5py
import numpy as np
import pytest

from data_scripts import make_toy_food as module
from data_scripts.make_toy_food import ToyFood, main, make_toy_food, rows_of_splits, toy_food_file
from data_scripts.menu import MENU
from data_scripts.plates import DRAWING, draw_plate
from helpers import layout
from helpers.images import decode_jpeg, encode_jpeg
from helpers.layout import read_file_info

CLASSES = ("apple_pie", "donuts", "greek_salad")  # the first three of the menu
PINNED_ROWS = [[1, 8], [1, 7], [2, 6], [0, 1], [0, 7], [2, 3]]

REFUSED = [  # case, arguments, message
    ("layout", {"layout": "zip"}, "layout must be one of hdf5, folder, food101; got 'zip'."),
    (
        "classes",
        {"classes": 102},
        "classes must be a whole number from 1 to 101 (the menu has no more dishes); got 102.",
    ),
    (
        "no pictures",
        {"per_class": 0},
        "per_class must be a whole number from 1 to 1000000 (a picture's id has six digits for it); got 0.",
    ),
    ("size", {"size": 15}, "size must be a whole number from 16 to 4096 (pixels a side); got 15."),
    ("float", {"size": 64.0}, "size must be a whole number from 16 to 4096 (pixels a side); got 64.0."),
    ("seed", {"seed": -1}, "seed must be a whole number from 0 to 4294967295 (32 bits); got -1."),
    ("workers", {"workers": 0}, "workers must be a whole number from 1 to 1024 (processes); got 0."),
    (
        "shares",
        {"split": (0.7, 0.2, 0.2)},
        "split must be three shares, of train, valid and test, that add up to 1; got (0.7, 0.2, 0.2).",
    ),
    (
        "split of a folder",
        {"layout": "folder", "split": (0.5, 0.3, 0.2)},
        "split is for the layout hdf5; got (0.5, 0.3, 0.2) with layout 'folder'. Leave it out: "
        "data_scripts.build_hdf5 splits a folder.",
    ),
]


@pytest.fixture(scope="module")
def toy_file(tmp_path_factory):
    """Three classes of 20 pictures at 16 pixels."""
    return make_toy_food(tmp_path_factory.mktemp("toys") / "toy.h5", classes=3, per_class=20, size=16)


def contents(path):
    with h5py.File(path) as file:
        return {name: file[name][:] for name in layout.dataset_names(file)}


# -- HDF5 -------------------------------------------------------------------------------------------------------------


def test_file_says_what_it_holds(toy_file):
    """Class names in the order of their numbers, seed, source, sizes and `complete`."""
    info = read_file_info(toy_file)
    assert info.class_names == CLASSES
    assert (info.seed, info.source, info.complete) == (0, "data_scripts.make_toy_food", True)
    assert info.splits == {"train": 42, "valid": 12, "test": 6}


def test_each_class_is_split_exactly(toy_file):
    """70, 20 and 10 percent of each class, not only of the whole."""
    data = contents(toy_file)
    counts = {split: data[f"{split}_labels"].sum(axis=0).tolist() for split in layout.SPLITS}
    assert counts == {"train": [14, 14, 14], "valid": [4, 4, 4], "test": [2, 2, 2]}


def test_every_row_is_the_picture_of_its_label(toy_file):
    """Images and labels stay together, and each picture of each class lies in the file once."""
    rows = rows_of_splits(ToyFood(classes=3, per_class=20, size=16))
    data, seen = contents(toy_file), Counter()
    for split in layout.SPLITS:
        assert data[f"{split}_labels"].argmax(axis=1).tolist() == rows[split][:, 0].tolist()
        for image, (label, number) in zip(data[f"{split}_img"], rows[split].tolist(), strict=True):
            assert np.array_equal(image, draw_plate(label, number, 16))
            seen[label, number] += 1
    assert seen == Counter((label, number) for label in range(3) for number in range(20))


def test_order_is_pinned():
    """The order of rows never changes: stored notebook outputs rely on it."""
    rows = rows_of_splits(ToyFood(classes=3, per_class=10))
    assert rows["valid"].tolist() == PINNED_ROWS


def test_rows_are_shuffled_and_depend_on_the_seed():
    """Classes are mixed within a split, and another seed mixes them in another way."""
    labels = [rows_of_splits(ToyFood(seed=seed))["train"][:, 0] for seed in (0, 1)]
    assert np.count_nonzero(np.diff(labels[0])) > 1000  # sorted by class there would be 7 changes
    assert not np.array_equal(*labels)


@pytest.mark.parametrize(
    ("per_class", "split", "expected"),
    [
        (250, (0.7, 0.2, 0.1), [175, 50, 25]),
        (1, (0.7, 0.2, 0.1), [1, 0, 0]),
        (5, (0.7, 0.2, 0.1), [4, 1, 0]),
        (7, (0.7, 0.2, 0.1), [5, 1, 1]),
        (10, (1, 0, 0), [10, 0, 0]),
        (1000, (0.1, 0.2, 0.7), [100, 200, 700]),
    ],
)
def test_rows_of_a_split(per_class, split, expected):
    """Shares that come out even are exact; others are at most one row off, and none is lost."""
    rows = rows_of_splits(ToyFood(classes=1, per_class=per_class, split=split))
    assert [len(rows[name]) for name in layout.SPLITS] == expected


def test_the_mean_of_a_file_without_training_rows_is_left_out(tmp_path):
    """A file of validation rows alone is written and read."""
    path = make_toy_food(tmp_path / "valid.h5", classes=2, per_class=3, size=16, split=(0, 1, 0))
    assert read_file_info(path).mean is None
    assert read_file_info(path).splits == {"train": 0, "valid": 6, "test": 0}


def test_two_processes_write_what_one_writes(toy_file, tmp_path):
    """The file does not depend on the number of workers."""
    other = make_toy_food(tmp_path / "two.h5", classes=3, per_class=20, size=16, workers=2)
    expected, actual = contents(toy_file), contents(other)
    assert actual.keys() == expected.keys()
    for name, values in expected.items():
        assert np.array_equal(actual[name], values)


def test_batches_do_not_show(toy_file, tmp_path, monkeypatch):
    """Rows written in batches of one are those written at once."""
    monkeypatch.setattr(module, "CHUNK_BYTES", 1)
    other = make_toy_food(tmp_path / "ones.h5", classes=3, per_class=20, size=16)
    assert np.array_equal(contents(other)["train_img"], contents(toy_file)["train_img"])


# -- folders ----------------------------------------------------------------------------------------------------------


def test_folder_holds_a_jpeg_of_each_picture(tmp_path):
    """OUT/CLASS/ID.jpg, and the pixels are those of the drawing, but for JPEG."""
    out = make_toy_food(tmp_path / "toys", layout="folder", classes=3, per_class=4, size=32)
    names = sorted(str(path.relative_to(out).as_posix()) for path in out.rglob("*.jpg"))
    assert names == [f"{name}/{number}00000{k}.jpg" for number, name in enumerate(CLASSES, 1) for k in range(4)]
    assert sorted(path.name for path in out.iterdir()) == list(CLASSES)
    assert (out / "donuts/2000003.jpg").read_bytes() == encode_jpeg(draw_plate(1, 3, 32))
    assert decode_jpeg((out / "donuts/2000003.jpg").read_bytes()).shape == (32, 32, 3)


def test_two_processes_fill_a_folder_as_one_does(tmp_path):
    """Every file has the same bytes."""
    folders = [
        make_toy_food(tmp_path / str(workers), layout="folder", classes=2, per_class=5, size=16, workers=workers)
        for workers in (1, 2)
    ]
    first, second = ({path.name: path.read_bytes() for path in folder.rglob("*.jpg")} for folder in folders)
    assert len(first) == 10
    assert first == second


def test_food101_has_its_lists(tmp_path):
    """images/CLASS/ID.jpg; classes, labels; three quarters of each class in train, the rest in test, text and JSON."""
    out = make_toy_food(tmp_path / "food-101", layout="food101", classes=3, per_class=8, size=16)
    assert sorted(path.name for path in out.iterdir()) == ["images", "meta"]
    meta = {path.name: path.read_text(encoding="utf-8") for path in (out / "meta").iterdir()}
    assert sorted(meta) == ["classes.txt", "labels.txt", "test.json", "test.txt", "train.json", "train.txt"]
    assert meta["classes.txt"] == "apple_pie\ndonuts\ngreek_salad\n"
    assert meta["labels.txt"] == "Apple pie\nDonuts\nGreek salad\n"
    train, test = meta["train.txt"].split(), meta["test.txt"].split()
    assert Counter(line.split("/")[0] for line in train) == dict.fromkeys(CLASSES, 6)
    assert Counter(line.split("/")[0] for line in test) == dict.fromkeys(CLASSES, 2)
    images = {str(path.relative_to(out / "images").with_suffix("").as_posix()) for path in out.rglob("*.jpg")}
    assert images == {*train, *test}
    assert len(images) == len(train) + len(test) == 24
    for name, lines in (("train.json", train), ("test.json", test)):
        lists = json.loads(meta[name])
        assert list(lists) == list(CLASSES)
        assert [line for lines_of_class in lists.values() for line in lines_of_class] == lines


def test_class_numbers_follow_the_names_for_all_dishes():
    """Class names are sorted, as a reader of folders sorts them, whatever the order of the menu."""
    toys = ToyFood(classes=101)
    assert toys.class_names == sorted(dish.name for dish in MENU)
    assert [MENU[dish].name for dish in toys.dishes] == toys.class_names


# -- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("arguments", "message"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED])
def test_wrong_arguments_are_refused(arguments, message, tmp_path):
    """A sentence says what is allowed and what was given, and nothing is made."""
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the whole sentence is compared
        make_toy_food(tmp_path / "toy", **arguments)
    assert str(caught.value) == message
    assert list(tmp_path.iterdir()) == []


def test_a_file_of_ours_is_replaced(tmp_path):
    """Made again with other arguments, the file is the new one."""
    for per_class in (2, 3):
        path = make_toy_food(tmp_path / "toy.h5", classes=2, per_class=per_class, size=16)
        assert sum(read_file_info(path).splits.values()) == 2 * per_class


def test_a_file_of_others_is_refused(tmp_path):
    """Somebody's HDF5 file or text stays what it is."""
    foreign, text = tmp_path / "real.h5", tmp_path / "notes.h5"
    with h5py.File(foreign, "w") as file:
        file["train_img"] = np.zeros(3)
    text.write_text("not HDF5")
    for path in (foreign, text):
        before = path.read_bytes()
        with pytest.raises(FileExistsError) as caught:
            make_toy_food(path, classes=2, per_class=2, size=16)
        assert caught.value.strerror == (
            f"{path} exists and was not made by make_toy_food. Remove it, or choose another name."
        )
        assert path.read_bytes() == before


@pytest.mark.parametrize("layout_name", ["folder", "food101"])
def test_a_folder_with_anything_in_it_is_refused(layout_name, tmp_path):
    """A folder is filled when it is new or empty, never mixed into."""
    out = tmp_path / "toys"
    out.mkdir()
    make_toy_food(out, layout=layout_name, classes=1, per_class=2, size=16)
    with pytest.raises(FileExistsError) as caught:
        make_toy_food(out, layout=layout_name, classes=1, per_class=2, size=16)
    assert caught.value.strerror == f"{out} exists and is not empty. Remove it, or choose another name."


def test_a_missing_parent_is_named(tmp_path):
    """The folder to create first is in the sentence."""
    out = tmp_path / "missing" / "toys"
    with pytest.raises(FileNotFoundError) as caught:
        make_toy_food(out, layout="folder", classes=1, per_class=1, size=16)
    assert caught.value.strerror == f"the folder {out.parent} does not exist. Create it first."


@pytest.mark.parametrize("layout_name", ["hdf5", "folder", "food101"])
def test_an_interrupted_run_leaves_nothing(layout_name, tmp_path, monkeypatch):
    """When drawing stops half way, neither the target nor its unfinished part is left."""

    def stops(dish, number, size, seed):
        if number == 2:
            raise KeyboardInterrupt
        return draw_plate(dish, number, size, seed)

    monkeypatch.setattr(module, "draw_plate", stops)
    with pytest.raises(KeyboardInterrupt):
        make_toy_food(tmp_path / "toy", layout=layout_name, classes=2, per_class=4, size=16)
    assert list(tmp_path.iterdir()) == []


# -- cache and command line -------------------------------------------------------------------------------------------


def test_cached_file_is_made_once(tmp_path):
    """The second call returns the file of the first, untouched; the name holds the parameters."""
    first = toy_food_file(tmp_path / "data", classes=2, per_class=2, size=16)
    stamp = first.stat().st_mtime_ns
    assert first == tmp_path / "data" / f"toy_food_2x2_16px_seed0_drawing{DRAWING}.h5"
    assert toy_food_file(tmp_path / "data", classes=2, per_class=2, size=16) == first
    assert first.stat().st_mtime_ns == stamp


def test_what_an_older_kit_made_is_made_again(tmp_path):
    """Its files lack what today's have: the lessons would not find it."""
    path = toy_food_file(tmp_path, classes=2, per_class=2, size=16)
    with h5py.File(path, "r+") as file:
        file.attrs["kit_version"] = "0.1.0"
        del file["train_crc32"]
    assert toy_food_file(tmp_path, classes=2, per_class=2, size=16) == path
    with h5py.File(path, "r") as file:
        assert len(file["train_crc32"]) == len(file["train_img"])


@pytest.mark.parametrize(
    "params",
    [{"classes": 3}, {"per_class": 3}, {"size": 17}, {"seed": 1}, {"split": (0.5, 0.25, 0.25)}, {"layout": "folder"}],
    ids=lambda params: next(iter(params)),
)
def test_every_parameter_is_in_the_name(params):
    """Two sets of parameters never share a cached file."""
    assert ToyFood(**params).file_name != ToyFood().file_name


def test_cached_folder(tmp_path):
    """Folders are cached in the same way."""
    folder = toy_food_file(tmp_path, layout="food101", classes=1, per_class=2, size=16)
    assert (folder / "meta" / "classes.txt").is_file()
    assert toy_food_file(tmp_path, layout="food101", classes=1, per_class=2, size=16) == folder


def test_command_line_makes_the_file_and_says_so(tmp_path):
    """`python -m data_scripts.make_toy_food` ends with one line; no bar where there is no terminal."""
    arguments = ["--out", "toy.h5", "--classes", "2", "--per-class", "5", "--size", "16", "--workers", "2"]
    command = [sys.executable, "-m", "data_scripts.make_toy_food", *arguments]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "toy.h5: 10 pictures of 2 classes, 16x16 pixels, 0.0 MB\n"
    assert read_file_info(tmp_path / "toy.h5").splits == {"train": 8, "valid": 2, "test": 0}


def test_command_line_explains_wrong_arguments(tmp_path, capsys):
    """One line on stderr; status 2 for arguments, 1 for a target that cannot be made."""
    assert main(["--out", str(tmp_path / "toy.h5"), "--classes", "102"]) == 2
    assert capsys.readouterr().err == (
        "make_toy_food: classes must be a whole number from 1 to 101 (the menu has no more dishes); got 102.\n"
    )
    (tmp_path / "taken").write_text("")
    assert main(["--out", str(tmp_path / "taken"), "--layout", "folder", "--classes", "1", "--per-class", "1"]) == 1
    assert capsys.readouterr().err == (
        f"make_toy_food: {tmp_path / 'taken'} exists and is not empty. Remove it, or choose another name.\n"
    )


def test_bar_counts_pictures(tmp_path, capsys):
    """With progress=True a bar on stderr reaches the number of pictures."""
    make_toy_food(tmp_path / "toy.h5", classes=2, per_class=5, size=16, progress=True)
    assert "10/10" in capsys.readouterr().err

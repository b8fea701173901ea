"""The inspector: a sound file passes, and each kind of damage is named with its place and what to do."""

import os
import subprocess
import sys
import tracemalloc
from pathlib import Path

import h5py
import numpy as np
import pytest

from helpers import inspector
from helpers.images import encode_jpeg
from helpers.inspector import guess_pairs, inspect_file
from helpers.layout import LayoutError
from helpers.writer import HDF5Writer

NAMES = ["bread", "cake", "ramen", "soup"]


def make_file(path: Path, n: int = 128, **options) -> Path:
    """A sound file of the kit: ``n`` training images of 8 x 8, classes mixed, and a quarter as many for validation."""
    with HDF5Writer(path, (8, 8, 3), NAMES, **options) as writer:
        for split, rows in (("train", n), ("valid", n // 4)):
            writer.append(split, np.full((rows, 8, 8, 3), 7, np.uint8), np.random.default_rng(0).permutation(rows) % 4)
    return path


@pytest.fixture
def good(tmp_path):
    return make_file(tmp_path / "good.h5")


def codes(report) -> tuple[list[str], list[str]]:
    """Codes of faults and of warnings."""
    return [fault.code for fault in report.faults], [warning.code for warning in report.warnings]


@pytest.mark.parametrize("options", [{}, {"storage": "jpeg"}, {"label_kind": "sparse"}], ids=["raw", "jpeg", "sparse"])
def test_a_file_of_the_writer_is_sound(tmp_path, options):
    """Whatever HDF5Writer finishes has neither faults nor warnings."""
    report = inspect_file(make_file(tmp_path / "x.h5", **options))
    assert codes(report) == ([], [])
    assert report.ok
    assert report.splits["train"].counts == (32, 32, 32, 32)
    assert report.splits["valid"].counts == (8, 8, 8, 8)
    assert report.class_names == tuple(NAMES)


def test_report_in_words(good, monkeypatch):
    """The printed report has verdict, datasets, attributes, the balance of classes and what was looked at."""
    monkeypatch.chdir(good.parent)
    size = good.stat().st_size / 1e3
    assert str(inspect_file("good.h5")).replace(f"{size:.3g} kB", "SIZE") == (
        "good.h5: HDF5, SIZE, can be trained on\n"
        "\n"
        "Datasets\n"
        "  test_img      (0, 8, 8, 3) uint8, chunks (1, 8, 8, 3), not compressed\n"
        "  test_labels   (0, 4) uint8, chunks (1024, 4), not compressed\n"
        "  train_img     (128, 8, 8, 3) uint8, chunks (1, 8, 8, 3), not compressed\n"
        "  train_labels  (128, 4) uint8, chunks (1024, 4), not compressed\n"
        "  valid_img     (32, 8, 8, 3) uint8, chunks (1, 8, 8, 3), not compressed\n"
        "  valid_labels  (32, 4) uint8, chunks (1024, 4), not compressed\n"
        "\n"
        "Attributes\n"
        "  class_names  bread, cake, ramen, soup\n"
        "  complete     True\n"
        "  kit_version  0.1.0\n"
        "  mean         7, 7, 7\n"
        "\n"
        "Images a class\n"
        "            train     valid      test\n"
        "  bread        32         8         0\n"
        "  cake         32         8         0\n"
        "  ramen        32         8         0\n"
        "  soup         32         8         0\n"
        "  all         128        32         0\n"
        "\n"
        "Looked at every label and at a sample of up to 256 images a split (all: --verify)."
    )


def test_many_classes_are_summed_up(tmp_path):
    """With more classes than fit on a screen, each split shows its extremes."""
    path = tmp_path / "x.h5"
    with HDF5Writer(path, (4, 4, 3), [f"class {c}" for c in range(30)]) as writer:
        labels = np.concatenate([np.arange(30), [3, 3, 5]])
        writer.append("train", np.ones((33, 4, 4, 3), np.uint8), labels)
    assert "train: 33 images of 30 classes; fewest class 0 (1), median 1, most class 3 (3)" in str(inspect_file(path))


def test_html_report_is_escaped(tmp_path):
    """Names from the file cannot put markup into the notebook."""
    path = tmp_path / "x.h5"
    with HDF5Writer(path, (4, 4, 3), ["<script>", "b"]) as writer:
        writer.append("train", np.ones((2, 4, 4, 3), np.uint8), np.array([0, 1]))
    text = inspect_file(path)._repr_html_()
    assert "&lt;script&gt;" in text
    assert "<script>" not in text


# -- files that do not open -------------------------------------------------------------------------------------------


def _cut(path):
    os.truncate(path, path.stat().st_size // 2)


def _page(path):
    path.write_text("<html>404</html>" * 100)


def _zeros(path):
    path.write_bytes(bytes(4096))


def _empty(path):
    path.write_bytes(b"")


def _header_broken(path):
    with path.open("r+b") as file:
        file.seek(48)
        file.write(b"\xff" * 400)


UNREADABLE = [
    ("missing", os.unlink),
    ("folder", lambda path: (path.unlink(), path.mkdir())),
    ("truncated", _cut),
    ("not-hdf5", _page),
    ("never-closed", _zeros),
    ("never-closed", _empty),
    ("damaged", _header_broken),
]


@pytest.mark.parametrize(("code", "damage"), UNREADABLE)
def test_file_that_does_not_open(good, code, damage):
    """Each reason has a code, a sentence and a next step; the exit code is 2."""
    damage(good)
    report = inspect_file(good)
    assert codes(report) == ([code], [])
    assert (report.ok, report.readable, report.exit_code) == (False, False, 2)
    assert str(good) in report.faults[0].message
    assert report.faults[0].advice
    assert inspector.main([str(good)]) == 2


def test_file_held_by_a_writer(good):
    """A file that another process writes is locked, not damaged."""
    code = f"import h5py; f = h5py.File({str(good)!r}, 'r+'); print('open', flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        holder.stdout.readline()
        report = inspect_file(good)
        holder.communicate(b"\n")
    assert codes(report) == (["locked"], [])
    assert inspect_file(good).ok


def test_writer_killed_with_the_newest_format(tmp_path):
    """A file of the newest format whose writer was killed carries a mark, and is told from a locked one."""
    path = tmp_path / "x.h5"
    code = (
        f"import h5py, os, signal; f = h5py.File({str(path)!r}, 'w', libver='latest'); f['x'] = [1]; f.flush(); "
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", code], check=False)
    assert codes(inspect_file(path)) == (["never-closed"], [])


# -- files that open, with faults -------------------------------------------------------------------------------------


def _half_written(file):
    for name in ("train_img", "train_labels"):
        old = file[name]
        data, chunks = old[:64], old.chunks
        del file[name]
        new = file.create_dataset(
            name, (128, *data.shape[1:]), data.dtype, chunks=(chunks[0] if "img" in name else 16, *chunks[1:])
        )
        new[:64] = data


def _some_black(file):
    file["train_img"][100:103] = 0


def _bad_onehot(file):
    file["train_labels"][5] = [1, 1, 0, 0]
    file["train_labels"][9] = 0


def _soft_labels(file):
    _replace(file, "train_labels", np.full((128, 4), 0.25, np.float32))


def _labels_of_no_class(file):
    _replace(file, "train_labels", np.zeros((128, 0), np.uint8))


def _labels_one_number(file):
    _replace(file, "train_labels", 3)


def _images_one_number(file):
    _replace(file, "train_img", 3)


def _no_training_rows(file):
    file["train_img"].resize(0, axis=0)
    file["train_labels"].resize(0, axis=0)


def _one_label_short(file):
    file["train_labels"].resize(127, axis=0)


def _replace(file, name, data, **options):
    del file[name]
    file.create_dataset(name, data=data, **options)


def _labels_out_of_range(file):
    numbers = np.random.default_rng(1).integers(0, 4, 128)
    numbers[[7, 20]] = 4, -1
    _replace(file, "train_labels", numbers)


def _float_images(file):
    _replace(file, "train_img", file["train_img"][:].astype(np.float32))


def _grey_images(file):
    _replace(file, "train_img", file["train_img"][..., 0])


def _text_labels(file):
    _replace(file, "train_labels", np.array([b"bread"] * 128))


def _another_class_name(file):
    file.attrs["class_names"] = [*NAMES, "tea"]


def _never_finished(file):
    file.attrs["complete"] = False


def _no_end_mark(file):
    del file.attrs["complete"]


def _images_gone(file):
    del file["train_img"]
    del file["valid_img"]
    del file["test_img"]


def _damaged_chunk(file):
    _replace(file, "train_img", file["train_img"][:], chunks=(1, 8, 8, 3), compression="gzip")
    place = file["train_img"].id.get_chunk_info(3).byte_offset
    name = file.filename
    file.close()
    with Path(name).open("r+b") as raw:
        raw.seek(place)
        raw.write(b"\xff" * 16)


def _sorted_rows(file):
    _replace(file, "train_labels", np.eye(4, dtype=np.uint8)[np.repeat(np.arange(4), 32)])


def _cut_chunks(file):
    _replace(file, "train_img", file["train_img"][:], chunks=(16, 4, 4, 1))


def _large_chunks(file):
    data = np.random.default_rng(0).integers(1, 9, (64, 80, 80, 3), dtype=np.uint8)
    _replace(file, "train_img", data, chunks=(64, 80, 80, 3), compression="gzip")
    file["train_labels"].resize(64, axis=0)


def _nameless(file):
    del file.attrs["class_names"]


FAULTS = [
    (
        _half_written,
        ["never-written", "onehot-sum"],
        [],
        "64 of 128 chunks of train_img were never written; their images read as black.",
    ),
    (_some_black, ["black-images"], [], "3 of 128 images in train_img hold only zeros; the first is row 100."),
    (_bad_onehot, ["onehot-sum"], [], "2 of 128 rows of train_labels do not sum to 1; the first is row 5."),
    (
        _soft_labels,
        ["soft-labels"],
        [],
        "128 of 128 rows of train_labels sum to 1, but not as one 1 among zeros; the first is row 0.",
    ),
    (
        _labels_of_no_class,
        ["label-shape"],
        [],
        "train_labels has shape (128, 0) and type uint8; expected one-hot rows (n, classes) or class numbers (n,) of "
        "an integer type.",
    ),
    (
        _labels_one_number,
        ["lengths-differ", "label-shape"],
        [],
        "train_img has 128 rows but train_labels has 0.",
    ),
    (_images_one_number, ["lengths-differ"], [], "train_img has 0 rows but train_labels has 128."),
    (_no_training_rows, ["no-rows"], [], "no image to train on is in PATH."),
    (_one_label_short, ["lengths-differ"], [], "train_img has 128 rows but train_labels has 127."),
    (
        _labels_out_of_range,
        ["label-range"],
        [],
        "2 of 128 class numbers in train_labels are not in 0 to 3; the first is 4 in row 7.",
    ),
    (
        _float_images,
        ["float-images"],
        [],
        "train_img holds float32: 4 times the bytes of uint8, to read in every epoch.",
    ),
    (
        _grey_images,
        ["image-shape"],
        [],
        "train_img has shape (128, 8, 8) and type uint8; expected (n, height, width, 3) uint8.",
    ),
    (
        _text_labels,
        ["label-shape"],
        [],
        "train_labels has shape (128,) and type |S5; expected one-hot rows (n, classes) or class numbers (n,) of an "
        "integer type.",
    ),
    (
        _another_class_name,
        ["class-count"] * 3,
        [],
        "train_labels has 4 columns, but the file names 5 classes.",
    ),
    (
        _never_finished,
        ["incomplete"],
        [],
        "the process that wrote PATH stopped before its end; its last rows may be empty.",
    ),
    (
        _no_end_mark,
        ["incomplete"],
        [],
        "the process that wrote PATH stopped before its end; its last rows may be empty.",
    ),
    (
        _images_gone,
        ["no-images"],
        [],
        "no pair of images and labels was recognised among test_labels, train_labels, valid_labels.",
    ),
    (_damaged_chunk, ["unreadable-rows"], [], None),
    (
        _sorted_rows,
        [],
        ["class-sorted"],
        "train_labels is sorted by class: 32 neighbouring rows hold 1.0 classes on average; "
        "shuffled rows would hold 4.0.",
    ),
    (
        _cut_chunks,
        [],
        ["cut-chunks"],
        "chunks (16, 4, 4, 1) of train_img cut the images: to read one image, 12 chunks of 3.07 kB are fetched.",
    ),
    (
        _large_chunks,
        [],
        ["large-chunks"],
        "a chunk of train_img holds 64 images, 1.23 MB unpacked, more than the chunk cache (1.05 MB): shuffled reading "
        "unpacks all of it for each image.",
    ),
    (_nameless, [], ["no-class-names"], "PATH does not say what its classes are called."),
]


@pytest.mark.parametrize("verify", [False, True])
def test_rows_that_cannot_be_read_are_all_named(good, verify):
    """One damaged chunk hides neither its neighbours nor another damaged one."""
    with h5py.File(good, "r+") as file:
        _replace(file, "train_img", file["train_img"][:], chunks=(2, 8, 8, 3), compression="gzip")
        places = [file["train_img"].id.get_chunk_info(number).byte_offset for number in (1, 7)]
    with good.open("r+b") as raw:
        for place in places:
            raw.seek(place)
            raw.write(b"\xff" * 4)
    fault = inspect_file(good, verify=verify).faults[0]
    assert (fault.code, fault.message.partition(". HDF5 said: ")[0]) == (
        "unreadable-rows",
        "4 of 128 images in train_img cannot be read: rows 2, 3, 14, 15",
    )


@pytest.mark.parametrize(
    ("damage", "faults", "warnings", "message"), FAULTS, ids=[case[0].__name__[1:] for case in FAULTS]
)
def test_fault_is_named(good, damage, faults, warnings, message):
    """Each fault has its code, its place in the file and advice; warnings alone leave the file trainable."""
    with h5py.File(good, "r+") as file:
        damage(file)
    report = inspect_file(good)
    assert codes(report) == (faults, warnings)
    found = [*report.faults, *report.warnings]
    if message is not None:
        assert found[0].message.replace(str(good), "PATH") == message
    assert all(item.advice for item in found)
    assert report.exit_code == inspector.main([str(good)]) == int(bool(faults))


def test_what_passes_can_be_served(good):
    """A file without faults is one that HDF5Sequence takes: warnings do not stop training."""
    from helpers.layout import read_split_info

    with h5py.File(good, "r+") as file:
        _cut_chunks(file)
        _nameless(file)
    assert inspect_file(good).ok
    assert read_split_info(good).n == 128


def test_verify_looks_at_every_image(tmp_path):
    """A black image between the rows of the sample is found by --verify only, and the report says which was done."""
    path = make_file(tmp_path / "x.h5", n=2000)
    with h5py.File(path, "r+") as file:
        file["train_img"][1] = 0
    sampled, verified = inspect_file(path), inspect_file(path, verify=True)
    assert codes(sampled) == ([], [])
    assert sampled.checked == "Looked at every label and at a sample of up to 256 images a split (all: --verify)."
    assert codes(verified) == (["black-images"], [])
    assert verified.checked == "Looked at every label and at all images."
    assert inspector.main([str(path), "--verify"]) == 1


def test_black_tail_is_always_in_the_sample(tmp_path):
    """The last rows, which a killed writer leaves black, are looked at whatever the size of the file."""
    path = make_file(tmp_path / "x.h5", n=2000)
    with h5py.File(path, "r+") as file:
        file["train_img"][-3:] = 0
    assert [fault.message for fault in inspect_file(path).faults] == [
        "3 of 256 images looked at in train_img hold only zeros; the first is row 1997."
    ]


def test_broken_jpeg_bytes_are_found(tmp_path):
    """Rows of JPEG storage must decode, and empty rows count as never written."""
    path = make_file(tmp_path / "x.h5", storage="jpeg")
    with h5py.File(path, "r+") as file:
        file["train_img"][4] = np.frombuffer(b"not a picture", np.uint8)
        file["train_img"][6] = np.zeros(0, np.uint8)
    assert [fault.message for fault in inspect_file(path).faults] == [
        "1 of 128 images in train_img hold only zeros; the first is row 6.",
        "1 of 128 images in train_img are not JPEG bytes; the first is row 4.",
    ]


# -- foreign files ----------------------------------------------------------------------------------------------------

FOREIGN = [
    (
        "keras style",
        {"x_train": (12, 8, 8, 3), "y_train": (12,), "x_test": (12, 8, 8, 3), "y_test": (12,)},
        {"train": ("x_train", "y_train"), "test": ("x_test", "y_test")},
    ),
    (
        "groups",
        {"train/images": (12, 8, 8, 3), "train/labels": (12, 4), "val/images": (6, 8, 8, 3), "val/labels": (6, 4)},
        {"train": ("train/images", "train/labels"), "valid": ("val/images", "val/labels")},
    ),
    (
        "one pair beside others",
        {"images": (12, 8, 8, 3), "category_id": (9,), "labels": (12,), "weights": (12, 2)},
        {"images": ("images", "labels")},
    ),
    ("labels of another length", {"data": (12, 8, 8, 3), "labels": (11,)}, {"data": ("data", "labels")}),
    ("no images", {"labels": (12,), "scores": (12, 2)}, {}),
]


@pytest.mark.parametrize(("shapes", "pairs"), [case[1:] for case in FOREIGN], ids=[case[0] for case in FOREIGN])
def test_pairs_of_a_foreign_file_are_guessed(tmp_path, shapes, pairs):
    """Image and label datasets are paired by their words, lengths and shapes."""
    path = tmp_path / "foreign.h5"
    with h5py.File(path, "w") as file:
        for name, shape in shapes.items():
            file.create_dataset(name, shape, np.uint8)
        assert guess_pairs(file) == pairs


def test_named_pair_of_a_foreign_file(tmp_path, capsys):
    """--images and --labels inspect this pair and no other."""
    path = tmp_path / "foreign.h5"
    with h5py.File(path, "w") as file:
        file["pictures"] = np.ones((4, 8, 8, 3), np.uint8)
        file["a"] = np.array([0, 1, 2, 1])
        file["b"] = np.array([0, 1, 2])
    report = inspect_file(path, images="pictures", labels="a")
    assert codes(report) == ([], ["no-class-names"])
    assert report.splits["pictures"].counts == (1, 2, 1)
    assert inspector.main([str(path), "--images", "pictures", "--labels", "b"]) == 1
    assert "FAULT lengths-differ: pictures has 4 rows but b has 3." in capsys.readouterr().out


def test_unknown_name_lists_what_there_is(good):
    """A misspelt dataset name is a fault that lists the names."""
    report = inspect_file(good, images="train_imgs", labels="train_labels")
    assert codes(report) == (["no-dataset"], [])
    assert report.faults[0].advice == (
        "It has: test_img, test_labels, train_img, train_labels, valid_img, valid_labels."
    )


def test_half_a_pair_is_refused(good):
    """One name without the other is a mistake of the call."""
    with pytest.raises(LayoutError, match="^images and labels name a pair of datasets: give both or neither; "):
        inspect_file(good, images="train_img")


def test_foreign_attributes_of_the_same_name(tmp_path):
    """An attribute called mean that is no mean counts as missing."""
    path = tmp_path / "foreign.h5"
    with h5py.File(path, "w") as file:
        file["images"] = np.ones((4, 8, 8, 3), np.uint8)
        file["labels"] = np.array([0, 1, 2, 1])
        file.attrs["mean"] = "unknown"
    assert codes(inspect_file(path)) == ([], ["no-class-names"])


def test_odd_datasets_and_attributes_do_not_stop_the_report(tmp_path):
    """Empty datasets, single numbers and bytes that are not UTF-8 lie in other people's files."""
    path = tmp_path / "foreign.h5"
    with h5py.File(path, "w") as file:
        file["images"] = np.ones((4, 8, 8, 3), np.uint8)
        file["labels"] = np.array([0, 1, 2, 1])
        file["train_img"] = 3
        file["nothing"] = h5py.Empty("f")
        file.attrs["author"] = np.bytes_(b"Caf\xe9")
        file.attrs["class_names"] = h5py.Empty("f")
    report = inspect_file(path)
    assert codes(report) == ([], ["no-class-names"])
    assert report.attributes["author"] == "Caf\\xe9"
    named = inspect_file(path, images="nothing", labels="labels")
    assert codes(named)[0] == ["lengths-differ"]


def test_a_name_that_no_disk_takes_is_missing(tmp_path):
    """The system's refusal of a path is not damage of the file."""
    report = inspect_file(tmp_path / ("x" * 300))
    assert (codes(report), report.exit_code) == ((["missing"], []), 2)
    assert report.faults[0].message.endswith("xxx cannot be opened: File name too long. Check the path.")


def test_foreign_jpeg_bytes(tmp_path):
    """Variable-length bytes are recognised as images."""
    path = tmp_path / "foreign.h5"
    with h5py.File(path, "w") as file:
        data = file.create_dataset("photos", (2,), h5py.vlen_dtype(np.uint8))
        for row in range(2):
            data[row] = np.frombuffer(encode_jpeg(np.full((8, 8, 3), 99, np.uint8)), np.uint8)
        file["labels"] = np.array([0, 1])
    assert codes(inspect_file(path)) == ([], ["no-class-names"])


# -- bounds -----------------------------------------------------------------------------------------------------------


def test_inspected_file_is_not_changed(good):
    """Looking at a file leaves it byte for byte as it was."""
    before = good.read_bytes()
    inspect_file(good, verify=True)
    assert good.read_bytes() == before


def test_memory_does_not_depend_on_rows(tmp_path):
    """A file of 60 MB is verified in less than half of that."""
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        images = file.create_dataset("train_img", (20_000, 32, 32, 3), np.uint8, chunks=(100, 32, 32, 3))
        for start in range(0, 20_000, 1000):
            images[start : start + 1000] = np.ones((1000, 32, 32, 3), np.uint8)
        file["train_labels"] = np.arange(20_000) % 10
    tracemalloc.start()
    report = inspect_file(path, verify=True)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert report.splits["train"].counts == (2000,) * 10
    assert peak < 25e6


def test_huge_class_numbers_need_no_memory(tmp_path):
    """Ids stored as labels are a fault, not an array of a billion counts."""
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file["train_img"] = np.ones((40, 4, 4, 3), np.uint8)
        file["train_labels"] = np.arange(40) + 10**12
    assert codes(inspect_file(path)) == (["label-range"], ["no-class-names"])


def test_inspector_imports_no_keras():
    """The inspector runs on a machine that has 100 MB to spare."""
    code = (
        "import helpers.inspector, sys; print([m for m in ('keras', 'tensorflow', 'matplotlib') if m in sys.modules])"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout == "[]\n"

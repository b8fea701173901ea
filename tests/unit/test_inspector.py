"""The inspector: a sound file passes, and each kind of damage is named with its place and what to do."""

import base64
import os
import re
import subprocess
import sys
import time
import tracemalloc
import zlib
from pathlib import Path

import cv2
import h5py
import numpy as np
import pytest

from helpers import inspector, split_checks
from helpers.images import encode_jpeg
from helpers.inspector import inspect_file
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
        "  test_crc32    (0,) uint32, chunks (1024,), not compressed\n"
        "  test_img      (0, 8, 8, 3) uint8, chunks (1, 8, 8, 3), not compressed\n"
        "  test_labels   (0, 4) uint8, chunks (1024, 4), not compressed\n"
        "  train_crc32   (128,) uint32, chunks (1024,), not compressed\n"
        "  train_img     (128, 8, 8, 3) uint8, chunks (1, 8, 8, 3), not compressed\n"
        "  train_labels  (128, 4) uint8, chunks (1024, 4), not compressed\n"
        "  valid_crc32   (32,) uint32, chunks (1024,), not compressed\n"
        "  valid_img     (32, 8, 8, 3) uint8, chunks (1, 8, 8, 3), not compressed\n"
        "  valid_labels  (32, 4) uint8, chunks (1024, 4), not compressed\n"
        "\n"
        "Attributes\n"
        "  class_names  bread, cake, ramen, soup\n"
        "  complete     True\n"
        "  kit_version  0.2.0\n"
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
        "Classes among 32 neighbouring rows\n"
        "  train  4.0 on average; shuffled rows would hold 4.0\n"
        "  valid  4.0 on average; shuffled rows would hold 4.0\n"
        "\n"
        "A shuffled epoch\n"
        "  train  reads 24.6 kB in 128 pieces, unpacks 0 chunks; 1x the images' own bytes\n"
        "  valid  reads 6.14 kB in 32 pieces, unpacks 0 chunks; 1x the images' own bytes\n"
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
    ("empty", _empty),
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


def _training_images_gone(file):
    del file["train_img"]


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
        ["never-written", "never-written", "onehot-sum"],
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
        "no pair of images and labels was recognised among test_crc32, test_labels, train_crc32, train_labels, "
        "valid_crc32, valid_labels.",
    ),
    (
        _training_images_gone,
        ["no-dataset"],
        [],
        "PATH was written by this kit, and has no dataset train_img.",
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
        "chunks (16, 4, 4, 1) of train_img cut the images: to read one image, 12 chunks of 256 bytes each are fetched.",
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
    """An image that changed between the rows of the sample is found by --verify only, which the report says."""
    path = make_file(tmp_path / "x.h5", n=2000)
    with h5py.File(path, "r+") as file:
        file["train_img"][1001] = 0
    sampled, verified = inspect_file(path), inspect_file(path, verify=True)
    assert codes(sampled) == ([], [])
    assert sampled.checked == "Looked at every label and at a sample of up to 256 images a split (all: --verify)."
    assert codes(verified) == (["black-images", "crc-mismatch"], [])
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


# -- checksums --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("storage", ["raw", "jpeg"])
def test_verify_finds_a_flipped_byte(tmp_path, storage):
    """One bit of a pixel, or of JPEG bytes that still decode: the rows and the file are named."""
    path = make_file(tmp_path / "x.h5", storage=storage)
    assert inspect_file(path, verify=True).ok
    with h5py.File(path, "r+") as file:
        for row in (5, 77):
            stored = file["train_img"][row]
            stored.reshape(-1)[-4] ^= 1
            file["train_img"][row] = stored
    assert inspect_file(path).ok
    report = inspect_file(path, verify=True)
    assert codes(report) == (["crc-mismatch"], [])
    assert report.faults[0].message == (
        f"2 of 128 images in train_img of {path} are not as they were written, by their CRC-32: rows 5, 77."
    )
    assert inspector.main([str(path), "--verify"]) == 1


def test_verify_names_twenty_rows(tmp_path):
    """Of many rows the first are named."""
    path = make_file(tmp_path / "x.h5")
    with h5py.File(path, "r+") as file:
        file["train_crc32"][:] = 0
    message = inspect_file(path, verify=True).faults[0].message
    assert message.endswith("rows 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19 ....")


@pytest.mark.parametrize(
    ("sums", "form"),
    [(np.zeros(127, np.uint32), "shape (127,) and type uint32"), (np.zeros(128), "shape (128,) and type float64")],
)
def test_checksums_of_another_form_are_a_fault(good, sums, form):
    """One CRC-32 an image, or they mean nothing."""
    with h5py.File(good, "r+") as file:
        _replace(file, "train_crc32", sums)
    report = inspect_file(good, verify=True)
    assert codes(report) == (["crc-shape"], [])
    assert report.faults[0].message == (f"train_crc32 has {form}; expected (128,) uint32, one CRC-32 an image.")


def test_verify_says_when_there_are_no_checksums(good):
    """In files without them a changed byte of a pixel cannot be seen; a foreign file may have its own."""
    with h5py.File(good, "r+") as file:
        del file["train_crc32"]
    assert inspect_file(good, verify=True).checked == (
        "Looked at every label and at all images. train_img has no CRC-32: a changed byte of a pixel cannot be seen."
    )
    with h5py.File(good, "r+") as file:
        file.move("train_img", "a/pics")
        file["a/pics_crc32"] = np.array([zlib.crc32(image) for image in file["a/pics"]], np.uint32)
    names = {"images": "a/pics", "labels": "train_labels"}
    assert inspect_file(good, verify=True, **names).checked == "Looked at every label and at all images."
    with h5py.File(good, "r+") as file:
        file["a/pics"][3, 0, 0] = 0
    assert codes(inspect_file(good, verify=True, **names))[0] == ["crc-mismatch"]


def test_verify_shows_how_far_it_is(good, capsys):
    """A bar with rate and remaining time, on a terminal only."""
    inspect_file(good, verify=True, progress=True)
    assert re.search(r"verify: 100%.* 160/160 \[00:\d\d<00:00, .* images/s\]", capsys.readouterr().err)
    inspector.main([str(good), "--verify"])
    assert capsys.readouterr().err == ""


# -- pictures and pages -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("storage", ["raw", "jpeg"])
def test_sheet_shows_every_class_of_each_split(tmp_path, storage):
    """Images spread over the classes, with their names; the report keeps them when the file is gone."""
    path = make_file(tmp_path / "x.h5", storage=storage)
    report = inspect_file(path)
    path.unlink()
    for split in ("train", "valid"):
        labels = [each.label for each in report.sheet[split]]
        assert {label: labels.count(label) for label in NAMES} == dict.fromkeys(NAMES, 2)
        assert all((each.pixels[:, :, 0] >= 5).all() for each in report.sheet[split])
    assert report.sheet_png().startswith(b"\x89PNG")
    assert "data:image/jpeg;base64," in report._repr_html_()
    assert len(report._repr_html_()) < 150_000


def test_sheet_of_a_file_that_is_expensive_to_read_has_few_images(tmp_path):
    """When one image costs 128 MB to read, the sample of four is all that is looked at."""
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("images", (2000, 256, 256, 1), np.uint8, chunks=(2000, 256, 256, 1), compression="gzip")
        file["images"][:] = 1
        file["labels"] = np.arange(2000) % 5
    report = inspect_file(path)
    assert 0 < len(report.sheet["images"]) <= 4


def test_sheet_without_usable_labels(tmp_path):
    """Rows take the place of class names."""
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file["images"] = np.full((40, 8, 8), 0.5)
        file["labels"] = np.zeros((40, 3))
    shown = inspect_file(path).sheet["images"]
    assert [each.row for each in shown][:3] == [0, 2, 5]
    assert {each.label for each in shown} == {""}
    assert (shown[0].pixels == 128).all()


def test_command_line_writes_sheet_and_page(good, tmp_path, capsys):
    """--sheet and --html; a file without any image gets a line instead of an empty picture."""
    sheet, page = tmp_path / "sheet.png", tmp_path / "page.html"
    assert inspector.main([str(good), "--sheet", str(sheet), "--html", str(page)]) == 0
    assert sheet.read_bytes().startswith(b"\x89PNG")
    text = page.read_text(encoding="utf-8")
    assert text.startswith("<!DOCTYPE html>")
    assert "can be trained on" in text
    assert inspector.main([str(tmp_path / "none.h5"), "--sheet", str(tmp_path / "other.png")]) == 2
    assert capsys.readouterr().err == f"{tmp_path / 'other.png'} was not written: there is no image to show.\n"
    assert not (tmp_path / "other.png").exists()


def test_half_a_pair_on_the_command_line(good, capsys):
    """argparse's own exit code, and a sentence."""
    with pytest.raises(SystemExit) as ended:
        inspector.main([str(good), "--images", "train_img"])
    assert ended.value.code == 2
    assert "--images and --labels name a pair of datasets: give both or neither." in capsys.readouterr().err


def test_html_of_a_file_that_does_not_open(tmp_path):
    """Verdict and reason, and nothing that is empty."""
    text = inspect_file(tmp_path / "none.h5")._repr_html_()
    assert "cannot be read" in text
    assert "<details" not in text


def test_pictures_of_the_mix_have_words(good):
    """Each picture of the page has a text for those who do not see it, and is whole."""
    text = inspect_file(good)._repr_html_()
    assert 'alt="Classes along train, from its first row to its last."' in text
    for data in re.findall('base64,([^"]+)"', text):
        assert cv2.imdecode(np.frombuffer(base64.b64decode(data), np.uint8), cv2.IMREAD_UNCHANGED) is not None
    assert text.count("<img") == text.count("alt=") == 3


# -- hostile files ----------------------------------------------------------------------------------------------------


def test_a_damaged_root_group_is_a_report(good):
    """What h5py raises for it, a bare KeyError, does not reach the caller."""
    with h5py.File(good) as file:
        place = h5py.h5o.get_info(file.id).addr
    with good.open("r+b") as raw:
        raw.seek(place)
        raw.write(b"\xff" * 60)
    report = inspect_file(good)
    assert codes(report) == (["damaged"], [])
    assert (report.readable, report.exit_code) == (False, 2)


def test_errors_of_any_kind_become_a_report(good, monkeypatch):
    """A check that meets what nobody thought of ends in a fault; the other split is still looked at."""
    check = split_checks.check_split

    def fail_once(report, file, split, *rest):
        if split == "train":
            raise OverflowError("a length that no machine has")
        check(report, file, split, *rest)

    monkeypatch.setattr(split_checks, "check_split", fail_once)
    report = inspect_file(good)
    assert codes(report) == (["damaged"], [])
    assert report.faults[0].message.endswith("HDF5 said: a length that no machine has")
    assert list(report.splits) == ["valid", "test"]


def _claims_many_rows(file):
    _replace(file, "train_img", file["train_img"][:], maxshape=(None, 8, 8, 3), chunks=(1, 8, 8, 3))
    file["train_img"].resize(2**40, axis=0)


def _claims_large_images(file):
    del file["train_img"]
    file.create_dataset("train_img", (128, 50_000, 50_000, 3), np.uint8, chunks=(1, 100, 100, 3))


def _claims_many_labels(file):
    del file["train_labels"]
    file.create_dataset("train_labels", (2**40,), np.int64, chunks=(1024,))


def _claims_many_classes(file):
    del file["train_labels"]
    file.create_dataset("train_labels", (128, 10**9), np.uint8, chunks=(1, 10**6))


@pytest.mark.parametrize("claim", [_claims_many_rows, _claims_large_images, _claims_many_labels, _claims_many_classes])
def test_shapes_that_are_not_in_the_file_cost_nothing(good, claim):
    """A header can claim any size: nothing of that size is read, counted or allocated."""
    with h5py.File(good, "r+") as file:
        claim(file)
    tracemalloc.start()
    start = time.perf_counter()
    report = inspect_file(good, verify=True)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert not report.ok
    assert peak < 100e6
    assert time.perf_counter() - start < 20


def test_one_dataset_an_image(tmp_path):
    """Thousands of small datasets are a file without a pair; the report shows the first."""
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        for number in range(2500):
            file[f"{number:05}"] = np.zeros((8, 8, 3), np.uint8)
    report = inspect_file(path)
    assert codes(report) == (["no-images"], [])
    assert "\n  ...    more than 1,900 more\n" in str(report)
    assert len(report._repr_html_()) < 50_000


def test_a_pipe_is_not_waited_for(tmp_path):
    """Opening it would never end."""
    os.mkfifo(tmp_path / "pipe.h5")
    report = inspect_file(tmp_path / "pipe.h5")
    assert (codes(report), report.exit_code) == ((["not-a-file"], []), 2)


def test_control_characters_do_not_reach_the_terminal(tmp_path):
    """Names of classes and datasets come from a stranger."""
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file["images\x1b[2J"] = np.ones((64, 8, 8, 3), np.uint8)
        file["labels"] = np.arange(64) % 2
        file.attrs["class_names"] = ["a\x1b[31m", "b\nc"]
    report = inspect_file(path)
    assert codes(report) == ([], [])
    assert "\x1b" not in str(report) + report._repr_html_()
    assert "b\\nc" in str(report)


# -- foreign files ----------------------------------------------------------------------------------------------------


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
        "It has: test_crc32, test_img, test_labels, train_crc32, train_img, train_labels, valid_crc32, valid_img, "
        "valid_labels."
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


def test_a_part_that_a_stopped_build_left_can_be_gone_on_with(tmp_path):
    """Whether it opens or not, the advice is to resume; an empty file is called empty."""
    with pytest.raises(ZeroDivisionError), HDF5Writer(tmp_path / "food.h5", (8, 8, 3), ["a"]) as writer:
        stop_after_a_checkpoint(writer)
    report = inspect_file(tmp_path / "food.h5.part")
    advice = "This is what a stopped build left: run the same command again with --resume."
    assert [(fault.code, fault.advice) for fault in report.faults][0] == ("incomplete", advice)
    (tmp_path / "cut.h5.part").write_bytes((tmp_path / "food.h5.part").read_bytes()[:3000])
    report = inspect_file(tmp_path / "cut.h5.part")
    assert [(fault.code, fault.advice) for fault in report.faults] == [("truncated", advice)]
    (tmp_path / "empty.h5").write_bytes(b"")
    report = inspect_file(tmp_path / "empty.h5")
    assert [(fault.code, fault.advice) for fault in report.faults] == [
        ("empty", "Nothing was written to it: build or download it again.")
    ]


def stop_after_a_checkpoint(writer):
    writer.append("train", np.full((3, 8, 8, 3), 9, np.uint8), [0, 0, 0])
    writer.checkpoint()
    raise ZeroDivisionError


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--sheet", "no/s.png"], "no/s.png cannot be written: the folder {}/no does not exist."),
        (["--html", "no/a.html"], "no/a.html cannot be written: the folder {}/no does not exist."),
        (["--sheet", "s.txt"], "--sheet writes a PNG picture: give a name that ends with .png; got s.txt."),
    ],
    ids=["no folder for the sheet", "no folder for the page", "no picture"],
)
def test_outputs_that_cannot_be_written_are_said_first(tmp_path, monkeypatch, capsys, options, sentence):
    """Before a file of any size is read: status 2, one sentence."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as caught:
        inspector.main(["absent.h5", *options])
    assert caught.value.code == 2
    assert (
        capsys.readouterr().err.splitlines()[-1] == f"python -m helpers.inspector: error: {sentence.format(tmp_path)}"
    )

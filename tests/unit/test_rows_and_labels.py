"""Row numbers, layouts, labels and class names of every kind: served right, or refused with what to do."""

from __future__ import annotations

import struct
from pathlib import Path

import h5py
import keras
import numpy as np
import pytest
from coded import IMAGE_SHAPE, class_of_row, classes_of, coded_images, make_coded_file, one_hot, rows_of

from data_scripts.rechunk import rechunk
from data_scripts.rechunk_rows import DamagedRowError
from helpers import HDF5Sequence, HDF5Writer, RowReader, contact_sheet, fit_generator, inspect_file
from helpers.batches import BatchSource
from helpers.layout import HDF5FileError, LayoutError

# -- rows -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def many_rows(tmp_path_factory) -> Path:
    """300 rows: more than an int8 or uint8 can count."""
    return make_coded_file(tmp_path_factory.mktemp("rows") / "coded.h5", rows={"train": 300})


ROWS = {
    **{f"an array of {kind}": np.array([7, 2, 7, 0, 120], kind) for kind in "bBhHiIqQ"},
    "numbers of the other byte order": np.array([7, 2, 299], ">i4"),
    "unsigned numbers of the other byte order": np.array([7, 2, 299], ">u8"),
    "a tuple": (7, 2, 7),
    "a range": range(299, 0, -40),
    "every third of a large array": np.arange(300)[::-3],
    "one number seen many times": np.broadcast_to(np.uint8(3), 4),
    "numbers of NumPy in a list": [np.uint8(255), np.int64(7)],
}


@pytest.mark.parametrize("case", ROWS)
def test_whole_numbers_of_any_form_are_rows(many_rows, case):
    """Lists, ranges and arrays of every integer type, for a reader and as the rows of a split."""
    wanted = [int(row) for row in ROWS[case]]
    with RowReader(many_rows, "train_img") as reader:
        assert rows_of(reader.read(ROWS[case])).tolist() == wanted
    source = BatchSource(many_rows, rows=ROWS[case], shuffle=None, batch_size=512)
    images, labels = source.batch(0, 0)
    source.close()
    assert rows_of(images).tolist() == wanted
    assert labels.argmax(axis=1).tolist() == classes_of(images).tolist() == source.class_numbers.tolist()


def test_small_numbers_count_from_the_end_without_wrapping(many_rows):
    """-1 as an int8 is row 299 of 300, which no int8 can hold."""
    with RowReader(many_rows, "train_img") as reader:
        assert rows_of(reader.read(np.array([-1, -128, 127], np.int8))).tolist() == [299, 172, 127]


NO_ROWS = {
    "a slice": (slice(0, 3), TypeError, "shape () of object"),
    "one number": (3, TypeError, "shape () of int64"),
    "a set": ({1, 2}, TypeError, "shape () of object"),
    "a generator": ((row for row in [1]), TypeError, "shape () of object"),
    "a text": ("12", TypeError, "shape () of <U2"),
    "texts": (["1"], TypeError, "shape (1,) of <U1"),
    "whole floats": (np.array([1.0]), TypeError, "shape (1,) of float64"),
    "no numbers": ([np.nan], TypeError, "shape (1,) of float64"),
    "a mask": (np.arange(300) < 3, TypeError, "shape (300,) of bool. Turn a mask into rows with np.flatnonzero(mask)."),
    "a column": ([[1], [2]], TypeError, "shape (2, 1) of int64"),
    "times": (np.array([1], "m8[s]"), TypeError, "shape (1,) of timedelta64[s]"),
    "a number of 65 bits": ([2**64], TypeError, "shape (1,) of object"),
    "one too large": ([300], IndexError, "300"),
    "one too low": ([-301], IndexError, "-301"),
    "the largest number": (np.array([2**64 - 1], np.uint64), IndexError, "18446744073709551615"),
    "the lowest number": ([-(2**63)], IndexError, "-9223372036854775808"),
}


@pytest.mark.parametrize("case", NO_ROWS)
def test_what_is_no_row_is_refused_by_its_form(many_rows, case):
    """The sentence shows what came, and nothing is cast, cut or wrapped into some other row."""
    rows, error, said = NO_ROWS[case]
    with RowReader(many_rows, "train_img") as reader, pytest.raises(error) as caught:
        reader.read(rows)
    assert said in str(caught.value)
    with pytest.raises(error) as caught:
        BatchSource(many_rows, rows=rows)
    shape, of, kind = said.partition(" of ")
    assert f"{kind.split('.')[0]}{of}{shape}" in str(caught.value) if of else said in str(caught.value)


# -- layouts ----------------------------------------------------------------------------------------------------------

N = 37
SHAPE = (N, *IMAGE_SHAPE)
CHUNKS = [
    *((rows, *IMAGE_SHAPE) for rows in (1, 2, 5, 36, 37)),
    *((64, *IMAGE_SHAPE), (4, 32, 16, 3), (1, 16, 17, 3), (7, 16, 16, 4)),  # larger than the images, or their number
    *((1, 7, 16, 3), (3, 16, 5, 2), (36, 1, 16, 3), (5, 1, 1, 1)),  # parts of images
]
FILTERS = [
    {},
    {"compression": "gzip"},
    {"compression": "lzf"},
    {"shuffle": True, "compression": 9},
    {"fletcher32": True},
]


def _compact(file: h5py.File) -> None:
    created = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    created.set_layout(h5py.h5d.COMPACT)
    h5py.h5d.create(file.id, b"x", h5py.h5t.STD_U8LE, h5py.h5s.create_simple(SHAPE), created)
    file["x"][:] = coded_images(np.arange(N))


def _external(file: h5py.File) -> None:
    place = [(f"{file.filename}.raw", 3, h5py.h5f.UNLIMITED)]
    file.create_dataset("x", SHAPE, "u1", external=place)[:] = coded_images(np.arange(N))


def _virtual(file: h5py.File) -> None:
    file["even"], file["odd"] = coded_images(np.arange(0, N, 2)), coded_images(np.arange(1, N, 2))
    layout = h5py.VirtualLayout(SHAPE, "u1")
    layout[::2] = h5py.VirtualSource(".", "even", (19, *IMAGE_SHAPE))
    layout[1::2] = h5py.VirtualSource(".", "odd", (18, *IMAGE_SHAPE))
    file.create_virtual_dataset("x", layout)


def _chunked(chunks: tuple, filters: dict):
    room = {"maxshape": (None,) * 4}
    return lambda file: file.create_dataset("x", data=coded_images(np.arange(N)), chunks=chunks, **room, **filters)


LAYOUTS = {
    "contiguous": lambda file: file.create_dataset("x", data=coded_images(np.arange(N))),
    "compact": _compact,
    "external": _external,
    "virtual": _virtual,
    **{f"{chunks}": chunks for chunks in CHUNKS},
}


@pytest.mark.parametrize("libver", ["earliest", "latest"])
@pytest.mark.parametrize("case", LAYOUTS)
@pytest.mark.filterwarnings("ignore::helpers.layout.OutsideFileWarning")
def test_rows_are_right_in_every_layout(tmp_path, case, libver):
    """Any order with repeats, however the bytes lie: odd chunks with every filter, pieces of other datasets."""
    made = LAYOUTS[case]
    rows = np.random.default_rng(0).integers(-N, N, 60)
    for number, make in enumerate([_chunked(made, each) for each in FILTERS] if isinstance(made, tuple) else [made]):
        path = tmp_path / f"{number}.h5"
        with h5py.File(path, "w", libver=libver) as file:
            make(file)
            file["y"] = one_hot(class_of_row(np.arange(N)))
        with RowReader(path, "x") as reader:
            np.testing.assert_array_equal(reader.read(rows), coded_images(np.arange(N))[rows])
        report = inspect_file(path, images="x", labels="y")
        assert not report.faults, str(report)


# -- labels -----------------------------------------------------------------------------------------------------------

NUMBERS = np.arange(8) % 3


def with_labels(path: Path, labels, **attributes) -> Path:
    """A foreign file of eight images with these labels."""
    with h5py.File(path, "w") as file:
        file["x"], file["y"] = coded_images(np.arange(len(labels))), labels
        file.attrs.update(attributes)
    return path


def labels_of(path: Path, classes=None) -> list[int]:
    source = BatchSource(path, images="x", labels="y", classes=classes, shuffle=None)
    labels = source.batch(0, 0)[1]
    source.close()
    assert labels.argmax(axis=1).tolist() == source.class_numbers.tolist()
    return source.class_numbers.tolist()


GOOD_LABELS = {
    **{f"numbers, {kind}": NUMBERS.astype(kind) for kind in ("i1", "u1", ">i4", "u8")},
    "an enumeration": NUMBERS.astype(h5py.enum_dtype({"bread": 0, "cake": 1, "soup": 2}, basetype="i1")),
    **{f"one-hot, {kind}": one_hot(NUMBERS, 3).astype(kind) for kind in ("u1", "i8", "f2", ">f8")},
}


@pytest.mark.parametrize("case", GOOD_LABELS)
def test_labels_of_every_number_type_are_served(tmp_path, case):
    """Class numbers and one-hot rows, also where HDF5 calls the numbers by names."""
    path = with_labels(tmp_path / "x.h5", GOOD_LABELS[case])
    assert labels_of(path, classes=3) == NUMBERS.tolist()
    assert inspect_file(path).ok


COLUMN = (
    "y in {} has one column: class numbers (n, 1), most likely, or one-hot rows of one class. Store class numbers as"
)
EXPECTED = "; expected one-hot rows (n, classes) or class numbers (n,) of an integer type."
BAD_LABELS = {
    "a column of class numbers": (NUMBERS[:, None], 3, COLUMN, "label-shape"),
    "a column of yes and no": ((NUMBERS[:, None] > 0).astype("u1"), None, COLUMN, "label-shape"),
    "floats": (NUMBERS / 1.0, 3, "y in {} has shape (8,) and type float64" + EXPECTED, "label-shape"),
    "texts": (NUMBERS.astype("S"), 3, "y in {} has shape (8,) and type |S21" + EXPECTED, "label-shape"),
    "yes and no": (NUMBERS > 0, 2, "y in {} has shape (8,) and type bool" + EXPECTED, "label-shape"),
    "one-hot rows of yes and no": (
        one_hot(NUMBERS, 3) > 0,
        None,
        "y in {} has shape (8, 3) and type bool" + EXPECTED,
        "label-shape",
    ),
    "minus one": (NUMBERS - 1, 3, "row 0 of y in {} has class -1, but there are 3 classes (0 to 2).", "label-range"),
    "the largest number": (np.full(8, 2**64 - 1), 3, "row 0 of y in {} has class", "label-range"),
    "minus one in one-hot rows": (-one_hot(NUMBERS, 3).astype("i8"), None, "row 0 of y in {} is not", "onehot-sum"),
    "no numbers in one-hot rows": (np.full((8, 3), np.nan), None, "row 0 of y in {} is not one-hot", "onehot-sum"),
    "soft rows": (np.full((8, 3), 1 / 3), None, "row 0 of y in {} is not one-hot", "soft-labels"),
}


@pytest.mark.parametrize("case", BAD_LABELS)
def test_labels_that_mean_something_else_are_refused(tmp_path, case):
    """By the sequence with a sentence, by the inspector with one fault that has the same cause."""
    labels, classes, sentence, code = BAD_LABELS[case]
    path = with_labels(tmp_path / "x.h5", labels)
    with pytest.raises(LayoutError) as caught:
        labels_of(path, classes)
    assert str(caught.value).startswith(sentence.format(path))
    assert [fault.code for fault in inspect_file(path, images="x", labels="y").faults] == [code]


def test_one_class_is_one_column(tmp_path):
    """A file that names one class may hold one-hot rows of one column."""
    path = with_labels(tmp_path / "x.h5", np.ones((8, 1), "u1"), class_names=["all"])
    assert labels_of(path) == [0] * 8
    assert inspect_file(path).ok


def test_numbers_too_small_for_the_classes_are_warned_of(tmp_path):
    """Class 256 of 300 becomes class 0 in uint8, without a word from NumPy: the inspector counts."""
    path = with_labels(tmp_path / "x.h5", np.arange(8, dtype=np.uint8), class_names=[f"c{i}" for i in range(257)])
    warning = next(each for each in inspect_file(path).warnings if each.code == "label-type")
    assert warning.message == (
        "y holds uint8, which ends at 255, but the file names 257 classes: numbers above may have wrapped around to "
        "other classes."
    )
    path = with_labels(tmp_path / "y.h5", np.arange(8, dtype=np.uint8), class_names=[f"c{i}" for i in range(256)])
    assert not inspect_file(path).warnings


@pytest.mark.parametrize("label_kind", ["onehot", "sparse"])
@pytest.mark.parametrize("classes", [1, 256, 257, 300, 70_000])
def test_any_number_of_classes_comes_back(tmp_path, label_kind, classes):
    """More than a byte, and more than two, can count: the last class and those around each limit keep their number."""
    path, names = tmp_path / "x.h5", [f"class {number}" for number in range(classes)]
    numbers = sorted({min(number, classes - 1) for number in (0, 127, 128, 255, 256, 32_768, 65_535, 65_536, 69_999)})
    with HDF5Writer(path, IMAGE_SHAPE, names, label_kind=label_kind) as writer:
        writer.append("train", coded_images(np.arange(len(numbers))), numbers)
    source = BatchSource(path, shuffle=None)
    labels = source.batch(0, 0)[1]
    source.close()
    assert labels.shape == (len(numbers), classes)
    assert labels.argmax(axis=1).tolist() == numbers
    assert source.split_info.class_names == tuple(names)
    assert inspect_file(path).ok


APPENDED = {
    "a list": [0, 1, 2],
    "uint8": np.array([0, 1, 2], "u1"),
    "uint64 of the other byte order": np.array([0, 1, 2], ">u8"),
    "one-hot floats": np.eye(3),
    "one-hot yes and no": np.eye(3, dtype=bool),
    "one-hot lists": np.eye(3, dtype=int).tolist(),
}
NOT_APPENDED = {
    "a column": (
        [[0], [1], [2]],
        "labels of shape (3, 1) are class numbers in a column. Pass them as (k,): labels[:, 0].",
    ),
    "rows of different length": (
        [[0], [1, 2], [0]],
        "labels must be class numbers (k,) or one-hot rows (k, classes); got rows of different length.",
    ),
    "floats": (np.array([0.0, 1, 2]), "labels (k,) must be class numbers of an integer type; got type float64."),
    "texts": (["a", "b", "c"], "labels (k,) must be class numbers of an integer type; got type <U1."),
    "yes and no": ([True, False, True], "labels (k,) must be class numbers of an integer type; got type bool."),
    "one too large": ([0, 1, 3], "labels must be class numbers from 0 to 2, for 3 class names; got 3."),
    "minus one": ([0, -1, 2], "labels must be class numbers from 0 to 2, for 3 class names; got -1."),
    "soft": (np.full((3, 3), 1 / 3), "each one-hot row must hold a single 1 and zeros; row 0 is [0.33"),
    "no numbers": (np.full((3, 3), np.nan), "each one-hot row must hold a single 1 and zeros; row 0 is [nan"),
    "nothing": (None, "labels must have one entry for each of the 3 images; got shape ()."),
}


@pytest.mark.parametrize("label_kind", ["onehot", "sparse"])
def test_labels_are_stored_alike_in_whatever_form_they_come(tmp_path, label_kind):
    """Class numbers of any type, and one-hot rows of numbers or of yes and no."""
    with HDF5Writer(tmp_path / "x.h5", IMAGE_SHAPE, ["a", "b", "c"], label_kind=label_kind) as writer:
        for labels in APPENDED.values():
            writer.append("train", coded_images(np.arange(3)), labels)
        for labels, sentence in NOT_APPENDED.values():
            with pytest.raises(ValueError) as caught:  # noqa: PT011 (the sentence is compared)
                writer.append("train", coded_images(np.arange(3)), labels)
            assert str(caught.value).startswith(sentence)
    source = BatchSource(tmp_path / "x.h5", shuffle=None)
    source.close()
    assert source.class_numbers.tolist() == [0, 1, 2] * len(APPENDED)


# -- names of classes -------------------------------------------------------------------------------------------------


def test_odd_names_come_back_as_they_were(tmp_path):
    """Slashes, line ends, quotes, other scripts, differences of case, long and empty names; the report prints them."""
    names = [
        "a/b",
        "c\nd",
        "caf\u00e9",
        "\u65e5\u672c",
        "\U0001f35c",
        " x ",
        "'q'",
        "..",
        "<script>",
        "%s {x}",
        "Pizza",
        "pizza",
    ]
    names += ["", "x" * 70_000, "\u202eabc"]
    with HDF5Writer(tmp_path / "x.h5", IMAGE_SHAPE, names) as writer:
        writer.append("train", coded_images(np.arange(len(names))), np.arange(len(names)))
    source = BatchSource(tmp_path / "x.h5")
    source.close()
    assert source.split_info.class_names == tuple(names)
    report = inspect_file(tmp_path / "x.h5")
    assert report.ok
    assert all(line.isprintable() for line in str(report).splitlines())
    assert "<script>" not in report._repr_html_()


def test_a_name_of_any_length_fits_its_caption(monkeypatch):
    """A caption is cut a character at a time; one of 70,000 took minutes."""
    asked = []
    size_of = contact_sheet.cv2.getTextSize
    monkeypatch.setattr(contact_sheet.cv2, "getTextSize", lambda *text: asked.append(text) or size_of(*text))
    thumbnail = contact_sheet.Thumbnail(0, "x" * 70_000, 0, None)
    assert contact_sheet.sheet_png({"train": [thumbnail]}).startswith(b"\x89PNG")
    assert 1 < len(asked) < 1000


NO_NAMES = {
    "a set": {"a", "b"},
    "a dict": {"a": 1, "b": 0},
    "nothing": None,
    "a number": 2,
    "one text": "ab",
    "bytes": [b"a", b"b"],
    "numbers": [0, 1],
}


@pytest.mark.parametrize("case", NO_NAMES)
def test_names_without_an_order_of_their_own_are_no_names(tmp_path, case):
    """Class numbers from a set are other ones in the next run: the writer takes a list of texts."""
    with pytest.raises(ValueError, match="^class_names must be a list with one string for each class; got "):
        HDF5Writer(tmp_path / "x.h5", IMAGE_SHAPE, NO_NAMES[case])


def test_names_that_look_the_same_are_one_name(tmp_path):
    """An e with accent is one character on Linux and two on a Mac; in a list of any length two are told from one."""
    for names, twice in (
        (["caf\u00e9", "cafe\u0301"], "caf\u00e9"),
        ([*map(str, range(50_000)), "7"], "7"),
    ):
        with pytest.raises(ValueError, match=f"^class_names must differ from each other; got '{twice}' more than once"):
            HDF5Writer(tmp_path / "x.h5", IMAGE_SHAPE, names)


BAD_CLASSES = {
    "a set": ({"a", "b", "c"}, "classes must be a list, in the order of the class numbers; got a set, whose order"),
    "a dict": ({"a": 2, "b": 1, "c": 0}, "classes must be a list, in the order of the class numbers; got a dict"),
    "yes": (True, "classes must be a list of names, or their number; got True."),
    "a float": (3.0, "classes must be a list of names, or their number; got 3.0."),
    "no names": ([], "classes must be at least 1; got []."),
}


@pytest.mark.parametrize("case", BAD_CLASSES)
def test_classes_without_an_order_are_refused(tmp_path, case):
    """What Keras' flow_from_directory calls class_indices, for one, says by its values which class has which number."""
    classes, sentence = BAD_CLASSES[case]
    with pytest.raises(LayoutError) as caught:
        labels_of(with_labels(tmp_path / "x.h5", NUMBERS), classes)
    assert str(caught.value).startswith(sentence)


def test_given_names_keep_to_the_order_of_the_file(tmp_path):
    """The file's own mapping cannot be turned round by an argument; other words for the classes may be given."""
    path = with_labels(tmp_path / "x.h5", NUMBERS, class_names=["a", "b", "c"])
    with pytest.raises(LayoutError) as caught:
        labels_of(path, ["c", "b", "a"])
    assert str(caught.value) == (
        f"classes must be in the order of the class numbers, which in {path} is a, b, c; got c, b, a. Leave classes "
        "out: the file has them."
    )
    for classes in (["a", "b", "c"], ["apple", "bread", "cake"], np.array([b"a", b"b", b"c"]), 3, None):
        assert labels_of(path, classes) == NUMBERS.tolist()


def test_training_and_validation_number_their_classes_alike(tmp_path):
    """Two files of two folders, one of which lacks a class: refused before the first batch; other words may differ."""
    served = {}
    for name, classes in (("train", "abc"), ("same", "abc"), ("turned", "acb"), ("lacks", "ac"), ("words", "xyz")):
        path = with_labels(tmp_path / f"{name}.h5", NUMBERS % len(classes), class_names=list(classes))
        served[name] = HDF5Sequence(path, images="x", labels="y", batch_size=4)
    layers = [keras.Input(IMAGE_SHAPE, dtype="uint8"), keras.layers.Flatten(), keras.layers.Dense(3)]
    model = keras.Sequential([*layers, keras.layers.Softmax()])
    model.compile("sgd", "categorical_crossentropy")
    for name, said in (
        ("turned", "class 1 of generator is 'b', which is class 2 of validation_data."),
        ("lacks", "class 2 of generator is 'c', which is class 1 of validation_data."),
    ):
        with pytest.raises(ValueError, match=f"^{said}"):
            fit_generator(model, served["train"], validation_data=served[name], verbose=0)
    for name in ("same", "words"):
        fit_generator(model, served["train"], validation_data=served[name], verbose=0)


def test_stored_names_of_any_form_are_texts(tmp_path):
    """Bytes, texts and numbers, in a row or in a column."""
    for number, names in enumerate((["0", "1", "2"], [b"0", b"1", b"2"], [0, 1, 2], [["0"], ["1"], ["2"]])):
        path = with_labels(tmp_path / f"{number}.h5", NUMBERS, class_names=names)
        assert inspect_file(path).class_names == ("0", "1", "2")


# -- damage that only labels and filters show -------------------------------------------------------------------------


def test_class_numbers_without_names_are_a_fault_of_a_kit_file(tmp_path):
    """Its sequence cannot say how many classes there are; in a foreign file they can be given."""
    with HDF5Writer(tmp_path / "x.h5", IMAGE_SHAPE, ["a", "b", "c"], label_kind="sparse") as writer:
        writer.append("train", coded_images(np.arange(8)), NUMBERS)
    with h5py.File(tmp_path / "x.h5", "r+") as file:
        del file.attrs["class_names"]
    report = inspect_file(tmp_path / "x.h5")
    assert [fault.code for fault in report.faults] == ["no-class-names"]
    assert report.exit_code == 1
    report = inspect_file(with_labels(tmp_path / "y.h5", NUMBERS))
    assert (report.faults, [warning.code for warning in report.warnings]) == ([], ["no-class-names"])


def replace_once(path: Path, old: bytes, new: bytes) -> None:
    content = path.read_bytes()
    assert content.count(old) == 1
    path.write_bytes(content.replace(old, new))


def refused_by_rechunk(path: Path) -> str:
    """What the repair says of a damaged file; it writes nothing."""
    out = path.with_name("out.h5")
    with pytest.raises(DamagedRowError) as caught:
        rechunk(path, out, images="x", labels="y", progress=False)
    assert not out.exists()
    return str(caught.value)


def test_labels_in_a_chunk_that_hdf5_does_not_find_are_an_error(tmp_path):
    """HDF5 gives class 0 for each of its rows, without a word: no reader takes that, no repair seals it."""
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file["x"] = coded_images(np.arange(40))
        data = file.create_dataset("y", data=np.arange(40) % 3, chunks=(8,), compression="gzip")
        sizes = [data.id.get_chunk_info_by_coord((row,)).size for row in (8, 16)]
    first, second = (struct.pack("<II2Q", size, 0, row, 0) for size, row in zip(sizes, (8, 16), strict=True))
    replace_once(path, first, first[:8] + second[8:])  # out of order: HDF5 looks for row 16 on the wrong side
    replace_once(path, second, second[:8] + first[8:])
    with h5py.File(path) as file:
        assert not file["y"][16:24].any()
    with pytest.raises(HDF5FileError, match="chunk storage is not allocated"):
        labels_of(path, classes=3)
    assert [fault.code for fault in inspect_file(path, images="x", labels="y").faults] == ["unreadable-rows"]
    assert refused_by_rechunk(path).startswith(
        f"one of the rows 16 to 23, which share a chunk, of y in {path} cannot be"
    )


@pytest.mark.parametrize("mask", [0b01, 0b10, 0b11, 103, 2**31])
def test_chunks_that_deny_their_filters_are_an_error(tmp_path, mask):
    """One changed number in the index makes HDF5 serve packed bytes as pixels: size and mask tell, row by row.

    A mask of the first filter alone, which only sorts bytes, changes nothing in numbers of one byte.
    """
    path = tmp_path / "x.h5"
    images = coded_images(np.arange(40))
    with h5py.File(path, "w") as file:
        chunks = (8, 8, 16, 3)
        data = file.create_dataset("x", data=images, chunks=chunks, compression="gzip", shuffle=True)
        file["y"] = one_hot(class_of_row(np.arange(40)))
        chunk = data.id.get_chunk_info_by_coord((16, 8, 0, 0))
    key = struct.pack("<II", chunk.size, 0) + struct.pack("<5Q", 16, 8, 0, 0, 0)
    replace_once(path, key, struct.pack("<II", chunk.size, mask) + key[8:])
    with RowReader(path, "x") as reader:
        np.testing.assert_array_equal(reader.read([15, 24, 0]), images[[15, 24, 0]])
        if mask == 0b01:
            np.testing.assert_array_equal(reader.read([16]), images[[16]])
            return
        with pytest.raises(HDF5FileError, match="row 20 of x in .* filters were left out, and its size does not fit"):
            reader.read([20])
    report = inspect_file(path, images="x", labels="y")
    assert [fault.code for fault in report.faults] == ["unreadable-rows"]
    assert report.faults[0].message.startswith(
        "8 of 40 images in x cannot be read: rows 16, 17, 18, 19, 20, 21, 22, 23"
    )
    assert refused_by_rechunk(path).startswith(
        f"one of the rows 16 to 23, which share a chunk, of x in {path} cannot be"
    )


def test_bytes_sorted_for_numbers_of_another_size_are_an_error(tmp_path):
    """One flipped bit in the header: HDF5 would put the bytes of each chunk to other places, without a word."""
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        images, chunks = coded_images(np.arange(40)), (4, *IMAGE_SHAPE)
        file.create_dataset("x", data=images, chunks=chunks, compression="lzf", shuffle=True)
        file["y"] = one_hot(class_of_row(np.arange(40)))
    filter_entry = b"shuffle\0" + struct.pack("<I", 1)
    replace_once(path, filter_entry, b"shuffle\0" + struct.pack("<I", 129))
    sentence = (
        f"the index of x in {path} is damaged: its bytes were sorted as numbers of 129 bytes, and its numbers have 1. "
        "Copy or build the file again."
    )
    with pytest.raises(HDF5FileError) as caught:
        RowReader(path, "x")
    assert str(caught.value) == sentence
    fault = inspect_file(path, images="x", labels="y").faults[0]
    assert (fault.code, fault.message) == ("damaged-index", sentence)


def test_an_image_that_hdf5_does_not_find_is_not_sealed_by_the_repair(tmp_path):
    """It reads as black: rechunk would give it a checksum, and nobody could tell any more."""
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        data = file.create_dataset("x", data=coded_images(np.arange(40)), chunks=(1, *IMAGE_SHAPE), compression="lzf")
        file["y"] = class_of_row(np.arange(40))
        size = data.id.get_chunk_info_by_coord((5, 0, 0, 0)).size
    key = struct.pack("<II5Q", size, 0, 5, 0, 0, 0, 0)
    replace_once(path, key, key[:-8] + struct.pack("<Q", 1))
    assert refused_by_rechunk(path).startswith(f"row 5 of x in {path} cannot be read. Copy or build the file again.")

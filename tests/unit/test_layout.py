"""What a file says about itself, and each sentence on why a file cannot be used, provoked with a real file."""

from __future__ import annotations

import errno
import os
import struct
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

from helpers import layout
from helpers.images import encode_jpeg
from helpers.layout import (
    DatasetNotFoundError,
    HDF5FileError,
    IncompleteFileError,
    LayoutError,
    explain_open_error,
    open_file,
    read_file_info,
    read_split_info,
)
from helpers.writer import HDF5Writer

SHAPE = (6, 8, 3)


def kit_file(folder: Path, **options) -> Path:
    path = folder / "kit.h5"
    with HDF5Writer(path, SHAPE, ["bread", "soup"], **options) as writer:
        writer.append("train", np.full((5, *SHAPE), 9, np.uint8), [0, 1, 1, 0, 1])
        writer.append("valid", np.zeros((2, *SHAPE), np.uint8), [1, 0])
    return path


def foreign_file(folder: Path, **datasets) -> Path:
    """A file that something else wrote: datasets by name, no attributes."""
    path = folder / "foreign.h5"
    with h5py.File(path, "w") as file:
        for name, values in datasets.items():
            file[name] = values
    return path


# -- what is read -----------------------------------------------------------------------------------------------------


def test_names_of_datasets():
    """The names that every other module asks for."""
    assert [layout.image_dataset(split) for split in layout.SPLITS] == ["train_img", "valid_img", "test_img"]
    assert [layout.label_dataset(split) for split in layout.SPLITS] == ["train_labels", "valid_labels", "test_labels"]
    assert [layout.crc_dataset(name) for name in ("train_img", "a/pics")] == ["train_crc32", "a/pics_crc32"]


@pytest.mark.parametrize("storage", ["raw", "jpeg"])
@pytest.mark.parametrize("label_kind", ["onehot", "sparse"])
def test_splits_of_a_kit_file(tmp_path, storage, label_kind):
    """Everything a reader needs to know comes from the file alone."""
    path = kit_file(tmp_path, storage=storage, label_kind=label_kind)
    assert read_split_info(path, "valid") == layout.SplitInfo(
        path=path,
        images="valid_img",
        labels="valid_labels",
        n=2,
        image_shape=SHAPE,
        storage=storage,
        label_kind=label_kind,
        class_names=("bread", "soup"),
        num_classes=2,
    )


def test_attributes_of_a_kit_file(tmp_path):
    """Types are Python's own, ready to print or compare."""
    path = kit_file(tmp_path, seed=3, source="by hand")
    info = read_file_info(path)
    assert (info.path, info.class_names, info.seed, info.source) == (path, ("bread", "soup"), 3, "by hand")
    assert (info.kit_version, info.complete) == (layout.KIT_VERSION, True)
    assert info.splits == {"train": 5, "valid": 2, "test": 0}
    assert info.mean == pytest.approx((9, 9, 9), abs=0)


def test_attributes_of_a_foreign_file(tmp_path):
    """What a file does not say is None, never a guess."""
    path = foreign_file(tmp_path, x=np.zeros(3))
    assert read_file_info(path) == layout.FileInfo(path, *[None] * 7, {})


def test_class_names_in_bytes_are_read(tmp_path):
    """Other tools store fixed-length bytes."""
    path = foreign_file(tmp_path, x=np.zeros(3))
    with h5py.File(path, "r+") as file:
        file.attrs["class_names"] = np.array([b"bread", "crème".encode()])
    assert read_file_info(path).class_names == ("bread", "crème")


def test_texts_that_are_not_utf_8_are_read(tmp_path):
    """Old files hold Latin-1: the bytes are shown, and nothing fails."""
    path = foreign_file(tmp_path, x=np.zeros(3))
    with h5py.File(path, "r+") as file:
        file.attrs["class_names"] = np.array([b"bread", "cr\u00e8me".encode("latin-1")])
        file.attrs["source"] = np.bytes_(b"caf\xe9")
    info = read_file_info(path)
    assert (info.class_names, info.source) == (("bread", "cr\\xe8me"), "caf\\xe9")


def test_foreign_attributes_of_the_same_name_count_as_missing(tmp_path):
    """An empty class list, a mean of four numbers, train_img that is one number or a group."""
    path = foreign_file(tmp_path, train_img=7)
    with h5py.File(path, "r+") as file:
        file.create_group("valid_img")
        file.attrs["class_names"] = h5py.Empty("f")
        file.attrs["mean"] = [1.0, 2.0, 3.0, 4.0]
    assert read_file_info(path) == layout.FileInfo(path, *[None] * 7, {"train": 0})


def test_foreign_names_and_groups(tmp_path):
    """A pair of datasets anywhere in the file will do; the number of classes comes from one-hot labels."""
    path = foreign_file(tmp_path, **{"data/x": np.zeros((4, *SHAPE), np.uint8), "data/y": np.eye(4, 3)})
    info = read_split_info(path, images="data/x", labels="data/y")
    assert (info.n, info.image_shape, info.label_kind, info.class_names, info.num_classes) == (
        4,
        SHAPE,
        "onehot",
        None,
        3,
    )


def test_classes_of_a_foreign_file_can_be_given(tmp_path):
    """As a number or as names; class numbers alone leave the number of classes open."""
    path = foreign_file(tmp_path, x=np.zeros((4, *SHAPE), np.uint8), y=np.array([0, 1, 2, 1]))

    def classes(given):
        info = read_split_info(path, images="x", labels="y", classes=given)
        return info.label_kind, info.class_names, info.num_classes

    assert classes(None) == ("sparse", None, None)
    assert classes(3) == ("sparse", None, 3)
    assert classes(["a", "b", "c"]) == ("sparse", ("a", "b", "c"), 3)


def test_size_of_foreign_jpeg_bytes(tmp_path):
    """Only a decoder knows it, unless the caller says."""
    path = tmp_path / "foreign.h5"
    with h5py.File(path, "w") as file:
        images = file.create_dataset("x", (2,), h5py.vlen_dtype(np.uint8))
        for row in range(2):
            images[row] = np.frombuffer(encode_jpeg(np.zeros(SHAPE, np.uint8)), np.uint8)
        file["y"] = np.array([0, 1])
    assert read_split_info(path, images="x", labels="y").image_shape is None
    assert read_split_info(path, images="x", labels="y", size=(6, 8)).image_shape == SHAPE


def test_dataset_names_look_into_groups(tmp_path):
    """Full names, sorted; groups themselves are no datasets."""
    path = foreign_file(tmp_path, **{"b/y": np.zeros(1), "a": np.zeros(1), "b/c/x": np.zeros(1)})
    with open_file(path) as file:
        assert layout.dataset_names(file) == ["a", "b/c/x", "b/y"]


def test_dataset_names_follow_links_to_datasets(tmp_path):
    """Soft and external links to datasets count; a group behind two names is looked into once, a dead link never."""
    path = foreign_file(tmp_path, **{"a/x": np.zeros(1), "y": np.zeros(1)})
    with h5py.File(path, "r+") as file:
        file["a/a"] = file["a"]
        file["soft"], file["dead"] = h5py.SoftLink("/y"), h5py.SoftLink("/z")
        file["group"] = h5py.SoftLink("/a")
        file["far"], file["gone"] = h5py.ExternalLink("other.h5", "z"), h5py.ExternalLink("none.h5", "z")
    with h5py.File(tmp_path / "other.h5", "w") as other:
        other["z"] = np.zeros(1)
    with open_file(path) as file:
        assert layout.dataset_names(file) == ["a/x", "far", "soft", "y"]


def test_errors_about_damage_name_the_file(tmp_path):
    """Whatever h5py raises for damaged bytes becomes an HDF5FileError; the kit's own errors pass as they are."""
    for error in (KeyError("'bad object header'"), RuntimeError("bad"), ValueError("bad"), OverflowError("bad")):
        with pytest.raises(HDF5FileError) as raised, layout.clear_damage("x.h5"):
            raise error
        assert str(raised.value) == (
            "x.h5 opens, but what is in it cannot be read; it is probably damaged. Build or copy it again. "
            f"HDF5 said: {error}"
        )
        assert raised.value.__cause__ is error
    with pytest.raises(IncompleteFileError, match="^not all$"), layout.clear_damage("x.h5"):
        raise IncompleteFileError("not all")


def test_options_reach_h5py(tmp_path):
    """The chunk cache is the caller's choice."""
    with open_file(kit_file(tmp_path), rdcc_nbytes=0) as file:
        assert file.id.get_access_plist().get_cache()[2] == 0


# -- files that do not open -------------------------------------------------------------------------------------------


def make_missing(folder: Path) -> Path:
    return folder / "none.h5"


def make_unfinished(folder: Path) -> Path:
    (folder / "none.h5.part").write_bytes(b"")
    return folder / "none.h5"


def make_pipe(folder: Path) -> Path:
    os.mkfifo(folder / "pipe.h5")
    return folder / "pipe.h5"


def make_cut(folder: Path) -> Path:
    path = kit_file(folder)
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    return path


def make_web_page(folder: Path) -> Path:
    path = folder / "page.h5"
    path.write_text("<html>404 Not Found</html>", encoding="utf-8")
    return path


def make_damaged(folder: Path) -> Path:
    path = kit_file(folder)
    data = bytearray(path.read_bytes())
    data[8] = 255  # the version of the superblock
    path.write_bytes(data)
    return path


CLOSED_FILES = [
    ("missing", make_missing, errno.ENOENT, "{path} does not exist. Check the path, or build the file first."),
    (
        "unfinished",
        make_unfinished,
        errno.ENOENT,
        "{path} does not exist. none.h5.part lies beside it: its builder has not finished. "
        "Check the path, or build the file first.",
    ),
    (
        "folder",
        lambda folder: folder,
        errno.EISDIR,
        "{path} is a folder, not an HDF5 file. Build one from it: data_scripts.build_hdf5.",
    ),
    (
        "pipe",
        make_pipe,
        errno.ESPIPE,
        "{path} is a device or a pipe, not a file. Check the path.",
    ),
    (
        "cut short",
        make_cut,
        errno.EIO,
        "{path} is cut short: a copy, download or build stopped early. Copy or build it again. HDF5 said: ",
    ),
    (
        "web page",
        make_web_page,
        errno.EIO,
        "{path} is not an HDF5 file, or the process that wrote it was killed before anything was saved (an HTML error "
        "page saved under this name is common). Build or download it again. HDF5 said: ",
    ),
    (
        "damaged",
        make_damaged,
        errno.EIO,
        "{path} cannot be opened as HDF5; it is probably damaged. Build or copy it again. HDF5 said: ",
    ),
]


@pytest.mark.parametrize(("case", "make", "number", "message"), CLOSED_FILES, ids=[case[0] for case in CLOSED_FILES])
def test_files_that_do_not_open(tmp_path, case, make, number, message):
    """What happened and what to do; HDF5's own words come last, where it has some."""
    path = make(tmp_path)
    with pytest.raises(HDF5FileError) as raised:
        open_file(path)
    text, ours, theirs = str(raised.value).partition(" HDF5 said: ")
    assert text + ours == message.format(path=path), case
    assert bool(ours) == bool(theirs)
    assert raised.value.errno == number


def test_file_open_for_writing_in_another_process(tmp_path):
    """HDF5's lock, errno 11, becomes the same sentence."""
    path = kit_file(tmp_path)
    code = "import h5py, sys; file = h5py.File(sys.argv[1], 'r+'); print('open', flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", code, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout.readline() == "open\n"
        with pytest.raises(HDF5FileError) as raised:
            open_file(path)
    assert str(raised.value).startswith(IN_USE.format(path=path))
    assert raised.value.errno == errno.EAGAIN


IN_USE = (
    "{path} is open for writing in another process or notebook kernel. Close it there (shut down the old kernel), "
    "then try again. HDF5 said: "
)

# Errors that need a special disk or another user: the sentence is made from HDF5's real words.
SIMULATED = [
    (
        OSError(errno.ENOLCK, "Unable to synchronously open file (unable to lock file, errno = 37)"),
        "The disk that holds x.h5 does not support file locks (common on network disks). If nothing writes to the "
        "file, set HDF5_USE_FILE_LOCKING=FALSE before Python starts. "
        "HDF5 said: [Errno 37] Unable to synchronously open file (unable to lock file, errno = 37)",
    ),
    (
        PermissionError(errno.EACCES, "Unable to synchronously open file (error message = 'Permission denied')"),
        "x.h5 may not be read by this user (permission denied). Change its permissions.",
    ),
]


@pytest.mark.parametrize(("error", "message"), SIMULATED, ids=["no locks", "permission"])
def test_errors_of_special_disks(error, message):
    """Network disks and permissions, which a test cannot make as root."""
    assert explain_open_error("x.h5", error) == message


# -- files that open, and cannot be trained on ------------------------------------------------------------------------


def test_incomplete_file_is_refused(tmp_path):
    """A file whose writer stopped has a tail that nobody wrote."""
    path = kit_file(tmp_path)
    with h5py.File(path, "r+") as file:
        file.attrs["complete"] = False
    with pytest.raises(IncompleteFileError) as raised:
        read_split_info(path)
    assert str(raised.value) == (
        f"{path} is incomplete: the process that wrote it stopped early, and its last rows may be empty. "
        "Build it again."
    )


IMAGES, LABELS = np.zeros((4, *SHAPE), np.uint8), np.zeros((4, 2), np.uint8)
PAIR = {"images": "x", "labels": "y"}
WANTED_IMAGES = (
    "expected (n, height, width, 3) uint8, or JPEG bytes (one variable-length uint8 a row). "
    "Rebuild the file from the images: data_scripts.build_hdf5."
)
WANTED_LABELS = "expected one-hot rows (n, classes) or class numbers (n,) of an integer type."
UNUSABLE = [
    ("one name", {"x": IMAGES}, {"images": "x"}, LayoutError,
     "images and labels name a pair of datasets: give both or neither; got images='x' and labels=None."),
    ("split", {"x": IMAGES}, {"split": "dev"}, LayoutError,
     "split must be one of train, valid, test; got 'dev'. For other dataset names pass images= and labels=."),
    ("no split", {"x": IMAGES, "y": LABELS}, {}, DatasetNotFoundError,
     "{path} has no dataset 'train_img'. Datasets in it: x, y."),
    ("no dataset", {}, PAIR, DatasetNotFoundError, "{path} has no dataset 'x'. Datasets in it: none."),
    ("a group", {"x/z": IMAGES, "y": LABELS}, PAIR, DatasetNotFoundError,
     "{path} has no dataset 'x'. Datasets in it: x/z, y."),
    ("float images", {"x": IMAGES / 255, "y": LABELS}, PAIR, LayoutError,
     "x in {path} has shape (4, 6, 8, 3) and type float64; " + WANTED_IMAGES),
    ("grey images", {"x": IMAGES[..., 0], "y": LABELS}, PAIR, LayoutError,
     "x in {path} has shape (4, 6, 8) and type uint8; " + WANTED_IMAGES),
    ("channels first", {"x": IMAGES.transpose(0, 3, 1, 2), "y": LABELS}, PAIR, LayoutError,
     "x in {path} has shape (4, 3, 6, 8) and type uint8; " + WANTED_IMAGES),
    ("other size", {"x": IMAGES, "y": LABELS}, {**PAIR, "size": (9, 9)}, LayoutError,
     "size (9, 9) was asked for, but x in {path} holds images of (6, 8). Leave size out."),
    ("float numbers", {"x": IMAGES, "y": np.zeros(4)}, PAIR, LayoutError,
     "y in {path} has shape (4,) and type float64; " + WANTED_LABELS),
    ("cubic labels", {"x": IMAGES, "y": np.zeros((4, 2, 2), int)}, PAIR, LayoutError,
     "y in {path} has shape (4, 2, 2) and type int64; " + WANTED_LABELS),
    ("labels of no class", {"x": IMAGES, "y": np.zeros((4, 0), int)}, PAIR, LayoutError,
     "y in {path} has shape (4, 0) and type int64; " + WANTED_LABELS),
    ("a single value", {"x": 3, "y": LABELS}, PAIR, LayoutError,
     "x in {path} has shape () and type int64; " + WANTED_IMAGES),
    ("size of one number", {"x": IMAGES, "y": LABELS}, {**PAIR, "size": 6}, LayoutError,
     "size must be (height, width) in whole pixels, at least 1 each; got 6."),
    ("size below 1", {"x": IMAGES, "y": LABELS}, {**PAIR, "size": (0, 8)}, LayoutError,
     "size must be (height, width) in whole pixels, at least 1 each; got (0, 8)."),
    ("classes as one text", {"x": IMAGES, "y": LABELS}, {**PAIR, "classes": "ab"}, LayoutError,
     "classes must be a list of names, or their number; got 'ab'."),
    ("no classes", {"x": IMAGES, "y": LABELS}, {**PAIR, "classes": 0}, LayoutError,
     "classes must be at least 1; got 0."),
    ("lengths", {"x": IMAGES, "y": LABELS[:3]}, PAIR, LayoutError,
     "x has 4 rows but y has 3 in {path}. Rebuild the file: HDF5Writer.append writes both together."),
    ("classes", {"x": IMAGES, "y": LABELS}, {**PAIR, "classes": 5}, LayoutError,
     "y in {path} has 2 columns, but there are 5 classes. Pass the right classes=."),
    ("class names", {"x": IMAGES, "y": LABELS}, {**PAIR, "classes": ["a"]}, LayoutError,
     "y in {path} has 2 columns, but there are 1 classes. Pass the right classes=."),
]  # fmt: skip


@pytest.mark.parametrize(
    ("case", "datasets", "arguments", "error", "message"), UNUSABLE, ids=[case[0] for case in UNUSABLE]
)
def test_what_cannot_be_trained_on(tmp_path, case, datasets, arguments, error, message):
    """Rule, what was found, in which file, what to do."""
    path = foreign_file(tmp_path, **datasets)
    with pytest.raises(error) as raised:
        read_split_info(path, **arguments)
    assert type(raised.value) is error, case
    assert str(raised.value) == message.format(path=path)


def test_errors_can_be_caught_as_built_ins():
    """Learners catch what they know: OSError for files, ValueError for contents, KeyError for names."""
    assert issubclass(HDF5FileError, OSError)
    assert issubclass(LayoutError, ValueError)
    assert issubclass(DatasetNotFoundError, KeyError)
    assert issubclass(IncompleteFileError, LayoutError)


def test_rows_in_one_piece_have_no_room_to_grow(tmp_path):
    """HDF5 makes no such dataset: its shape was damaged, and each image would be read from the wrong place."""
    path = foreign_file(tmp_path, x=np.zeros((4, *SHAPE), np.uint8), y=np.zeros(4, int))
    shape, content = struct.pack("<8Q", 4, *SHAPE, 4, *SHAPE), path.read_bytes()
    assert content.count(shape) == 1
    path.write_bytes(content.replace(shape, struct.pack("<8Q", 4, 5, 8, 3, 4, *SHAPE)))
    with pytest.raises(LayoutError) as raised:
        read_split_info(path, images="x", labels="y")
    assert str(raised.value) == (
        f"x in {path} has shape (4, 5, 8, 3), but was made for (4, 6, 8, 3). Most likely the file is damaged. Copy or "
        "build it again."
    )

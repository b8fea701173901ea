"""The writer: what lands in the file, and that a file under its final name is always whole."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time

import h5py
import numpy as np
import pytest

from helpers import layout
from helpers.images import decode_jpeg
from helpers.writer import HDF5Writer

SHAPE = (12, 16, 3)
NAMES = ["apple pie", "crème brûlée", "寿司"]


def pictures(n: int, seed: int = 0) -> np.ndarray:
    """Smooth images (n, 12, 16, 3) uint8, all different: JPEG keeps them nearly as they are."""
    corners = np.random.default_rng(seed).integers(0, 256, (n, 2, 1, 3))
    mix = np.linspace(0, 1, 16).reshape(1, 1, 16, 1)
    rows = corners[:, :1] * (1 - mix) + corners[:, 1:] * mix
    return np.broadcast_to(rows, (n, *SHAPE)).astype(np.uint8)


def write_good_file(path) -> None:
    with HDF5Writer(path, SHAPE, NAMES) as writer:
        writer.append("train", pictures(4), [0, 1, 2, 0])


@pytest.mark.parametrize("storage", ["raw", "jpeg"])
@pytest.mark.parametrize("label_kind", ["onehot", "sparse"])
@pytest.mark.parametrize("given", ["numbers", "onehot"])
def test_rows_come_back_in_the_order_they_were_appended(tmp_path, storage, label_kind, given):
    """Several appends to several splits in turn, for both storages, and both kinds of labels stored and given."""
    images, numbers = pictures(10), np.array([0, 1, 2, 2, 1, 0, 1, 1, 2, 0])
    labels = numbers if given == "numbers" else np.eye(3)[numbers]
    path = tmp_path / "food.h5"
    with HDF5Writer(path, SHAPE, NAMES, storage=storage, label_kind=label_kind) as writer:
        for start in range(0, 8, 4):
            writer.append("train", images[start : start + 4], labels[start : start + 4])
            writer.append("valid", images[8 + start // 4 :][:1], labels[8 + start // 4 :][:1])
        assert writer.rows == {"train": 8, "valid": 2, "test": 0}
    with h5py.File(path) as file:
        for split, expected, number in (("train", images[:8], numbers[:8]), ("valid", images[8:], numbers[8:])):
            stored, found = file[f"{split}_img"][:], file[f"{split}_labels"][:]
            if storage == "raw":
                np.testing.assert_array_equal(stored, expected)
            else:
                decoded = np.stack([decode_jpeg(row) for row in stored]).astype(int)
                assert np.abs(decoded - expected).max() <= 12  # JPEG at quality 95
            wanted = np.eye(3, dtype=np.uint8)[number] if label_kind == "onehot" else number.astype(np.int64)
            assert found.dtype == wanted.dtype
            np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("storage", ["raw", "jpeg"])
def test_layout_understands_what_the_writer_wrote(tmp_path, storage):
    """The round trip of everything that is no pixel: attributes, shapes, kinds, and splits without rows."""
    path = tmp_path / "food.h5"
    with HDF5Writer(path, SHAPE, NAMES, storage=storage, seed=7, source="drawn") as writer:
        writer.append("train", pictures(4), [0, 1, 2, 0])
    info = layout.read_file_info(path)
    assert (info.class_names, info.seed, info.source) == (tuple(NAMES), 7, "drawn")
    assert (info.kit_version, info.complete) == (layout.KIT_VERSION, True)
    assert info.splits == {"train": 4, "valid": 0, "test": 0}
    for split, n in info.splits.items():
        found = layout.read_split_info(path, split)
        assert (found.n, found.image_shape, found.storage) == (n, SHAPE, storage)
        assert (found.label_kind, found.class_names, found.num_classes) == ("onehot", tuple(NAMES), 3)


def test_chunks_hold_one_image_and_many_labels(tmp_path):
    """A random row costs one chunk; labels lie together, but a chunk stays below HDF5's cache of 1 MiB."""
    cases = [
        ("raw", "onehot", 3, (1, *SHAPE), (1024, 3)),
        ("jpeg", "sparse", 3, (1024,), (1024,)),
        ("raw", "onehot", 5000, (1, *SHAPE), (209, 5000)),
    ]
    for storage, label_kind, classes, image_chunks, label_chunks in cases:
        path = tmp_path / f"{storage}{classes}.h5"
        with HDF5Writer(path, SHAPE, [f"c{i}" for i in range(classes)], storage=storage, label_kind=label_kind):
            pass
        with h5py.File(path) as file:
            assert file["train_img"].chunks == image_chunks
            assert file["train_labels"].chunks == label_chunks
            assert file["train_img"].maxshape[0] is None


def test_ten_thousand_classes_fit_into_the_attribute(tmp_path):
    """Class names may exceed the 64 kB that old HDF5 files give to an attribute."""
    names = [f"species number {i}" for i in range(10_000)]
    with HDF5Writer(tmp_path / "many.h5", SHAPE, names, label_kind="sparse") as writer:
        writer.append("train", pictures(1), [9_999])
    assert layout.read_file_info(tmp_path / "many.h5").class_names == tuple(names)


@pytest.mark.parametrize("storage", ["raw", "jpeg"])
def test_mean_is_exact_and_of_the_training_split_alone(tmp_path, storage):
    """Equal to the mean of the decoded training pixels, from integer sums; validation rows do not count."""
    path = tmp_path / "food.h5"
    with HDF5Writer(path, SHAPE, NAMES, storage=storage) as writer:
        for seed in range(5):
            writer.append("train", pictures(3, seed), [0, 1, 2])
            writer.append("valid", np.full((2, *SHAPE), 255, np.uint8), [0, 1])
    with h5py.File(path) as file:
        rows = file["train_img"][:]
        pixels = rows if storage == "raw" else np.stack([decode_jpeg(row) for row in rows])
        sums = pixels.sum(axis=(0, 1, 2), dtype=np.int64)
        assert file.attrs["mean"].tolist() == [int(total) / (15 * 12 * 16) for total in sums]


def test_without_training_rows_there_is_no_mean(tmp_path):
    """No number is better than one that nobody computed."""
    with HDF5Writer(tmp_path / "test.h5", SHAPE, NAMES) as writer:
        writer.append("test", pictures(1), [0])
    assert layout.read_file_info(tmp_path / "test.h5").mean is None


def test_the_same_calls_give_the_same_bytes(tmp_path):
    """No time stamp and no random number gets into the file."""
    digests = []
    for name in ("one.h5", "two.h5"):
        write_good_file(tmp_path / name)
        digests.append(hashlib.sha256((tmp_path / name).read_bytes()).hexdigest())
        time.sleep(1.1)  # HDF5's time stamps count seconds
    assert digests[0] == digests[1]


def test_the_final_name_appears_at_the_end_only(tmp_path):
    """While the block runs there is the part alone, marked incomplete; afterwards the file alone."""
    path = tmp_path / "food.h5"
    with HDF5Writer(path, SHAPE, NAMES) as writer:
        writer.append("train", pictures(1), [0])
        assert [file.name for file in tmp_path.iterdir()] == ["food.h5.part"]
        with pytest.raises(
            layout.HDF5FileError, match=r"food\.h5\.part lies beside it: its builder has not finished\."
        ):
            layout.read_file_info(path)
        assert not writer._part_file.file.attrs["complete"]
    assert [file.name for file in tmp_path.iterdir()] == ["food.h5"]


@pytest.mark.parametrize("error", [RuntimeError("a bug"), KeyboardInterrupt()], ids=["error", "interrupt"])
def test_after_an_exception_the_older_file_is_untouched(tmp_path, error):
    """The part is gone, the good file of yesterday has the same bytes, and the same cell can be run again at once."""
    path = tmp_path / "food.h5"
    write_good_file(path)
    before = path.read_bytes()

    def notebook_cell():
        with HDF5Writer(path, SHAPE, NAMES) as writer:
            writer.append("train", pictures(2), [0, 1])
            raise error

    for _ in range(2):
        with pytest.raises(type(error)):
            notebook_cell()
        assert [file.name for file in tmp_path.iterdir()] == ["food.h5"]
        assert path.read_bytes() == before
    write_good_file(path)
    assert layout.read_file_info(path).complete is True


def test_failed_write_cannot_be_finished(tmp_path, monkeypatch):
    """When the disk is full in the middle of an append, catching the error does not lead to a file with half a row."""
    path = tmp_path / "food.h5"

    def careless_cell():
        with HDF5Writer(path, SHAPE, NAMES) as writer:
            with pytest.raises(OSError, match="No space left on device"):
                writer.append("train", pictures(2), [0, 1])
            assert "closed" in repr(writer)

    monkeypatch.setattr(HDF5Writer, "_stored_labels", _disk_full)
    with pytest.raises(ValueError, match=r"^the writer of .*food\.h5 is not open"):
        careless_cell()
    assert list(tmp_path.iterdir()) == []


def test_failed_rename_leaves_no_part(tmp_path, monkeypatch):
    """An error after the last row still removes the part and lets another writer start."""
    monkeypatch.setattr(os, "fsync", _disk_full)
    with pytest.raises(OSError, match="No space left on device"):
        write_good_file(tmp_path / "food.h5")
    assert list(tmp_path.iterdir()) == []
    monkeypatch.undo()
    write_good_file(tmp_path / "food.h5")


def _disk_full(*_):
    raise OSError(28, "No space left on device")


def test_part_of_a_killed_writer_is_replaced(tmp_path):
    """SIGKILL leaves a part that HDF5 cannot even open; the next writer starts afresh."""
    path = tmp_path / "food.h5"
    code = (
        "import os, sys, numpy as np; from helpers.writer import HDF5Writer\n"
        "with HDF5Writer(sys.argv[1], (12, 16, 3), ['a']) as writer:\n"
        "    writer.append('train', np.zeros((9, 12, 16, 3), np.uint8), [0] * 9); os.kill(os.getpid(), 9)"
    )
    killed = subprocess.run([sys.executable, "-c", code, str(path)], check=False)
    assert killed.returncode == -9
    assert [file.name for file in tmp_path.iterdir()] == ["food.h5.part"]
    write_good_file(path)
    assert [file.name for file in tmp_path.iterdir()] == ["food.h5"]
    assert layout.read_split_info(path).n == 4


IN_USE = (
    "{path} is being written by another HDF5Writer (its food.h5.part is in use), in this or another process. "
    "Wait for it, or stop it."
)


def test_second_writer_in_this_process_is_refused(tmp_path):
    """The first one goes on undisturbed."""
    path = tmp_path / "food.h5"
    with HDF5Writer(path, SHAPE, NAMES) as writer:
        writer.append("train", pictures(2), [0, 1])
        with pytest.raises(layout.HDF5FileError) as raised, HDF5Writer(path, SHAPE, NAMES):
            pass
        assert str(raised.value) == IN_USE.format(path=path)
        writer.append("train", pictures(2), [0, 1])
    assert layout.read_split_info(path).n == 4


def test_second_writer_in_another_process_is_refused(tmp_path):
    """HDF5's lock is looked at before anything is cut."""
    path = tmp_path / "food.h5"
    code = (
        "import sys; from helpers.writer import HDF5Writer\n"
        "try: HDF5Writer(sys.argv[1], (12, 16, 3), ['a']).__enter__()\n"
        "except OSError as error: print(error)"
    )
    with HDF5Writer(path, SHAPE, NAMES) as writer:
        writer.append("train", pictures(2), [0, 1])
        child = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
        assert child.stdout == IN_USE.format(path=path) + "\n"
        writer.append("train", pictures(2), [0, 1])
    assert layout.read_split_info(path).n == 4


def test_writers_that_no_lock_keeps_apart_never_leave_half_a_file(tmp_path):
    """On disks without locks the second writer takes the part; the first one says so and touches nothing of it."""
    path = tmp_path / "food.h5"
    code = (
        "import sys, numpy as np; from helpers.writer import HDF5Writer\n"
        "with HDF5Writer(sys.argv[1], (12, 16, 3), ['a']) as writer:\n"
        "    writer.append('train', np.zeros((7, 12, 16, 3), np.uint8), [0] * 7)\n"
        "    print('open', flush=True); sys.stdin.readline()"
    )
    no_locks = {**os.environ, "HDF5_USE_FILE_LOCKING": "FALSE"}
    command = [sys.executable, "-c", code, str(path)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env=no_locks, **pipes) as first:
        first.stdout.readline()
        with subprocess.Popen(command, env=no_locks, **pipes) as second:
            second.stdout.readline()
            _, said = first.communicate("go on\n", timeout=60)
            assert not path.exists()
            assert f"HDF5FileError: another HDF5Writer made {path}.part anew while this one wrote food.h5" in said
            second.communicate("go on\n", timeout=60)
            assert (first.returncode, second.returncode) == (1, 0)
    assert layout.read_split_info(path).n == 7


def test_the_working_directory_may_change_inside_the_block(tmp_path, monkeypatch):
    """A relative path means the folder that was current when the writer was made."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    with HDF5Writer("food.h5", SHAPE, NAMES) as writer:
        writer.append("train", pictures(2), [0, 1])
        monkeypatch.chdir(tmp_path / "elsewhere")
    assert sorted(file.name for file in tmp_path.rglob("*")) == ["elsewhere", "food.h5"]
    assert layout.read_split_info(tmp_path / "food.h5").n == 2


def test_a_link_is_followed(tmp_path):
    """The part and the file lie where the link points, often a larger disk."""
    (tmp_path / "large_disk").mkdir()
    (tmp_path / "food.h5").symlink_to(tmp_path / "large_disk" / "real.h5")
    with HDF5Writer(tmp_path / "food.h5", SHAPE, NAMES) as writer:
        writer.append("train", pictures(2), [0, 1])
        assert (tmp_path / "large_disk" / "real.h5.part").exists()
    assert (tmp_path / "food.h5").is_symlink()
    assert layout.read_split_info(tmp_path / "large_disk" / "real.h5").n == 2


def test_memory_does_not_depend_on_the_number_of_rows(tmp_path):
    """A file 16 times as large costs no more than a few megabytes of the process, HDF5's own included."""
    code = (
        "import resource, sys, numpy as np; from helpers.writer import HDF5Writer\n"
        "images = np.zeros((32, 64, 64, 3), np.uint8)\n"
        "with HDF5Writer(sys.argv[1], (64, 64, 3), ['a']) as writer:\n"
        "    for _ in range(int(sys.argv[2])): writer.append('train', images, np.zeros(32, int))\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)"
    )

    def peak_mb(appends: int) -> int:
        command = [sys.executable, "-c", code, str(tmp_path / "many.h5"), str(appends)]
        return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

    small, large = peak_mb(20), peak_mb(320)
    assert (tmp_path / "many.h5").stat().st_size > 100 * 2**20
    assert large - small < 10


GOOD_ARGUMENTS = {"image_shape": SHAPE, "class_names": NAMES}
BAD_ARGUMENTS = [
    ("two numbers", {"image_shape": (12, 16)}, "image_shape must be (height, width, 3) in whole pixels; got (12, 16)."),
    ("grey", {"image_shape": (2, 2, 1)}, "image_shape must be (height, width, 3) in whole pixels; got (2, 2, 1)."),
    ("no pixel", {"image_shape": (0, 2, 3)}, "image_shape must be (height, width, 3) in whole pixels; got (0, 2, 3)."),
    ("no class", {"class_names": []}, "class_names must be a list with one string for each class; got []."),
    ("one string", {"class_names": "abc"}, "class_names must be a list with one string for each class; got 'abc'."),
    ("numbers", {"class_names": [1]}, "class_names must be a list with one string for each class; got [1]."),
    ("twice", {"class_names": ["a", "b", "a"]}, "class_names must differ from each other; got 'a' more than once."),
    ("zero byte", {"class_names": ["a\0b"]},
     "class_names must be text that HDF5 can store: no zero byte, UTF-8; got 'a\\x00b'."),
    ("not UTF-8", {"class_names": ["\udce9"]},
     "class_names must be text that HDF5 can store: no zero byte, UTF-8; got '\\udce9'."),
    ("seed of 71 bits", {"seed": 2**70},
     "seed must be None or a whole number of at most 64 bits; got 1180591620717411303424."),
    ("seed in words", {"seed": "one"}, "seed must be None or a whole number of at most 64 bits; got 'one'."),
    ("storage", {"storage": "png"}, "storage must be one of raw, jpeg; got 'png'."),
    ("label kind", {"label_kind": "text"}, "label_kind must be one of onehot, sparse; got 'text'."),
]  # fmt: skip


@pytest.mark.parametrize(("case", "arguments", "message"), BAD_ARGUMENTS, ids=[case[0] for case in BAD_ARGUMENTS])
def test_wrong_arguments_are_refused_at_the_door(tmp_path, case, arguments, message):
    """Before any file is touched, in one sentence with the rule and the value."""
    with pytest.raises(ValueError) as raised:  # noqa: PT011, the whole sentence is compared
        HDF5Writer(tmp_path / f"{case}.h5", **{**GOOD_ARGUMENTS, **arguments})
    assert str(raised.value) == message


WANTED = "images must be (k, 12, 16, 3) uint8; got "
NUMBERS = "labels must be class numbers from 0 to 2, for 3 class names; got "
LENGTHS = "labels must have one entry for each of the 2 images; got shape "
KINDS = ". Pass class numbers (k,) or one-hot rows (k, classes)."
BAD_ROWS = [
    ("split", "dev", pictures(2), [0, 1], "split must be one of train, valid, test; got 'dev'."),
    ("list", "train", [[0]], [0], WANTED + "list."),
    ("float", "train", pictures(2) / 255, [0, 1],
     WANTED + "type float64. Keep pixels at 0 to 255: scaling belongs into the model."),
    ("one image", "train", pictures(1)[0], [0], WANTED + "one image (12, 16, 3). Pass images[np.newaxis]."),
    ("size", "train", pictures(2)[:, :8], [0, 1], WANTED + "shape (2, 8, 16, 3). Resize them first."),
    ("too few labels", "train", pictures(2), [0], LENGTHS + "(1,)" + KINDS),
    ("too many labels", "train", pictures(2), np.eye(3), LENGTHS + "(3, 3)" + KINDS),
    ("one number", "train", pictures(2), 1, LENGTHS + "()" + KINDS),
    ("from 1", "train", pictures(2), [1, 3], NUMBERS + "3."),
    ("negative", "train", pictures(2), [0, -1], NUMBERS + "-1."),
    ("float numbers", "train", pictures(2), [0.0, 1.0],
     "labels (k,) must be class numbers of an integer type; got type float64."),
    ("narrow one-hot", "train", pictures(2), np.eye(2),
     "one-hot labels must have 3 columns, one for each class name; got 2. "
     "Take the width from the list of classes, never from the labels of one batch."),
    ("two ones", "train", pictures(2), [[0, 1, 0], [1, 1, 0]],
     "each one-hot row must hold a single 1 and zeros; row 1 is [1, 1, 0]."),
    ("zeros", "train", pictures(2), [[0, 0, 0], [0, 1, 0]],
     "each one-hot row must hold a single 1 and zeros; row 0 is [0, 0, 0]."),
    ("smoothed", "train", pictures(2), [[0, 1, 0], [0.0, 0.0, 0.9]],
     "each one-hot row must hold a single 1 and zeros; row 1 is [0.0, 0.0, 0.9]."),
]  # fmt: skip


@pytest.mark.parametrize(("case", "split", "images", "labels", "message"), BAD_ROWS, ids=[row[0] for row in BAD_ROWS])
def test_wrong_rows_are_refused_and_nothing_is_written(tmp_path, case, split, images, labels, message):
    """The sentence names the fault; rows before and after it are not touched by it."""
    path = tmp_path / f"{case}.h5"
    with HDF5Writer(path, SHAPE, NAMES) as writer:
        writer.append("train", pictures(2), [0, 1])
        with pytest.raises(ValueError) as raised:  # noqa: PT011, the whole sentence is compared
            writer.append(split, images, labels)
        writer.append("train", pictures(1), [2])
    assert str(raised.value) == message
    assert layout.read_file_info(path).splits == {"train": 3, "valid": 0, "test": 0}


def test_no_rows_are_no_error(tmp_path):
    """An empty append, with the empty float array that NumPy makes of [], adds nothing."""
    with HDF5Writer(tmp_path / "none.h5", SHAPE, NAMES, storage="jpeg") as writer:
        writer.append("train", np.empty((0, *SHAPE), np.uint8), [])
    assert layout.read_split_info(tmp_path / "none.h5").n == 0


def make_nothing(folder):
    return folder / "missing" / "food.h5"


def make_folder(folder):
    (folder / "food.h5").mkdir()
    return folder / "food.h5"


def make_pipe(folder):
    os.mkfifo(folder / "food.h5")
    return folder / "food.h5"


def make_photograph(folder):
    (folder / "food.jpg").write_bytes(b"a photograph")
    return folder / "food.jpg"


BAD_TARGETS = [
    (
        "a photograph",
        make_photograph,
        "{path} is there, and is no HDF5 file: it would be lost. Give another name, or remove it first.",
    ),
    ("a pipe", make_pipe, "{path} is a device, a pipe or the like; an HDF5 file cannot replace it. Give another name."),
    ("no folder", make_nothing, "the folder {path.parent} does not exist. Create it first."),
    ("a folder", make_folder, "{path} is a folder; an HDF5 file cannot replace it. Give a file name inside it."),
]


@pytest.mark.parametrize(("case", "make", "message"), BAD_TARGETS, ids=[case[0] for case in BAD_TARGETS])
def test_targets_that_cannot_be_written(tmp_path, case, make, message):
    """Said on entering the block, before the first image is read."""
    path = make(tmp_path)
    with pytest.raises(layout.HDF5FileError) as raised, HDF5Writer(path, SHAPE, NAMES):
        pytest.fail(f"the block ran: {case}")
    assert str(raised.value) == message.format(path=path)


def test_folder_that_may_not_be_written(tmp_path, monkeypatch):
    """The system's reason is in the sentence. (Simulated: tests may run as root, who may write anywhere.)"""
    monkeypatch.setattr(os, "open", _denied)
    path = tmp_path / "food.h5"
    with pytest.raises(layout.HDF5FileError) as raised, HDF5Writer(path, SHAPE, NAMES):
        pytest.fail("the block ran")
    assert str(raised.value) == (
        f"{path}.part cannot be made: Permission denied. Choose a folder that this user may write to."
    )


def _denied(*_, **__):
    raise PermissionError(13, "Permission denied")


def test_append_needs_the_with_block(tmp_path):
    """Outside of the block the sentence says how to use the writer."""
    path = tmp_path / "food.h5"
    with pytest.raises(ValueError) as raised:  # noqa: PT011, the whole sentence is compared
        HDF5Writer(path, SHAPE, NAMES).append("train", pictures(1), [0])
    assert str(raised.value) == (
        f"the writer of {path} is not open. Use it as `with HDF5Writer(...) as writer:`; after an append that failed "
        "while writing, start the file again."
    )


def test_a_block_that_discards_its_part_ends_quietly(tmp_path):
    """Whoever gives a file up inside the block leaves nothing, and gets no error for it."""
    with HDF5Writer(tmp_path / "food.h5", SHAPE, NAMES) as writer:
        writer.append("train", pictures(2), [0, 1])
        writer.checkpoint()
        writer.discard()
    assert list(tmp_path.iterdir()) == []


def test_repr_tells_the_state(tmp_path):
    """Fit for a notebook cell: file, state and rows so far."""
    path = tmp_path / "food.h5"
    with HDF5Writer(path, SHAPE, NAMES) as writer:
        writer.append("train", pictures(2), [0, 1])
        assert repr(writer) == f"<HDF5Writer {path} (open): train 2, valid 0, test 0; raw, onehot>"
    assert repr(writer) == f"<HDF5Writer {path} (closed): train 2, valid 0, test 0; raw, onehot>"
    writer.discard()  # closed already: quiet, and the file stays
    assert path.exists()

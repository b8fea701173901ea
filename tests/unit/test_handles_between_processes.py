"""Handles on a file: each process and each copy has its own, none is inherited, none is used when it was closed."""

from __future__ import annotations

import copy
import ctypes
import os
import pickle
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import h5py
import numpy as np
import pytest
from coded import make_coded_file, rows_of

import helpers
from helpers import HDF5Writer, RowReader, direct, inspect_file, reader
from helpers.batches import BatchSource
from helpers.layout import HDF5FileError
from helpers.workers import WorkerPool

KIT = str(Path(helpers.__file__).parents[1])
STORAGES = {"past HDF5": None, "through HDF5": "lzf"}
linux_only = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux: fork, /proc")


@pytest.fixture(params=STORAGES)
def file(request, tmp_path) -> Path:
    """The coded file, whose rows are read past HDF5, or through it."""
    return make_coded_file(tmp_path / "file.h5", compression=STORAGES[request.param])


@pytest.fixture
def slow_file(tmp_path) -> Path:
    """The coded file, read through HDF5."""
    return make_coded_file(tmp_path / "slow.h5", compression="lzf")


COPIES = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    **{f"pickle {protocol}": lambda thing, p=protocol: pickle.loads(pickle.dumps(thing, p)) for protocol in range(6)},
}


@pytest.mark.parametrize("way", COPIES)
def test_a_copy_of_a_used_reader_and_the_reader_live_on_without_each_other(file, way):
    """However it was copied: either one may be closed, and the other reads on."""
    first = RowReader(file, "train_img")
    first.read([3])
    second, third = COPIES[way](first), COPIES[way](first)
    assert rows_of(second.read([7, 2])).tolist() == [7, 2]
    first.close()
    assert rows_of(second.read([9])).tolist() == [9]
    second.close()
    assert rows_of(third.read([8])).tolist() == [8]
    third.close()
    with h5py.File(file, "r+"):  # and all let go of the file
        pass


@pytest.mark.parametrize("way", [name for name in COPIES if name != "copy"])
def test_a_copy_of_a_used_source_of_batches_lives_without_it(file, way):
    """A source that is closed leaves the batches of its copy as they were."""
    source = BatchSource(file)
    expected = source.batch(1, 2)
    twin = COPIES[way](source)
    source.close()
    for ours, theirs in zip(twin.batch(1, 2), expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    twin.close()


def test_others_in_this_process_may_close_the_same_file(file):
    """A second reader and somebody's h5py.File on it come and go; the first reader is not touched."""
    with RowReader(file, "train_img") as first:
        first.read([1])
        with RowReader(file, "train_img") as second, h5py.File(file) as other:
            assert rows_of(second.read([2])).tolist() == [2]
            assert other["train_img"].shape == first.shape
        assert rows_of(first.read([3])).tolist() == [3]


def test_a_reader_closed_in_the_middle_of_a_read_says_so(slow_file, monkeypatch):
    """Another thread closes it: not "identifier is not of specified type", and the file is not called damaged."""
    shut = RowReader(slow_file, "train_img")

    def close_first(*arguments):
        shut.close()
        return direct.runs(*arguments)

    monkeypatch.setattr(reader, "runs", close_first)
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the whole sentence is compared
        shut.read([5, 1])
    assert str(caught.value) == f"this reader of train_img in {slow_file} is closed. Make a new RowReader."


def test_a_reader_closed_while_it_opens_its_file_leaves_it_free(slow_file, monkeypatch):
    """The other thread saw no handle to close; the one that opens closes it."""
    shut = RowReader(slow_file, "train_img")
    monkeypatch.setattr(reader, "open_file", lambda *a, **k: (shut.close(), h5py.File(slow_file))[1])
    with pytest.raises(ValueError, match="is closed. Make a new RowReader"):
        shut.read([5])
    assert shut._handles == {}
    with h5py.File(slow_file, "r+"):
        pass


def test_threads_that_read_and_one_that_closes_end_in_one_of_two_ways(file):
    """The right rows, or "is closed": twenty times three threads, closed at any moment."""
    wrong = []

    def read_until_closed(shared):
        rng = np.random.default_rng(threading.get_ident())
        try:
            while True:
                rows = rng.integers(0, 103, 30)
                if rows_of(shared.read(rows)).tolist() != rows.tolist():
                    wrong.append(rows)
        except ValueError as error:
            if "is closed. Make a new RowReader" not in str(error):
                wrong.append(error)
        except Exception as error:
            wrong.append(error)

    for _ in range(20):
        shared = RowReader(file, "train_img")
        shared.read([0])
        threads = [threading.Thread(target=read_until_closed, args=(shared,)) for _ in range(3)]
        for thread in threads:
            thread.start()
        shared.close()
        for thread in threads:
            thread.join()
    assert wrong == []


def test_a_file_is_opened_once_a_process_not_once_a_batch(file, monkeypatch):
    """Three epochs of two threads open nothing after the first batch."""
    opened = []
    with closing(BatchSource(file, batch_size=8)) as source:
        source.batch(0, 0)
        open_file, make = reader.open_file, direct._File.__init__
        monkeypatch.setattr(reader, "open_file", lambda *a, **k: opened.append(a) or open_file(*a, **k))
        monkeypatch.setattr(direct._File, "__init__", lambda *a: opened.append(a) or make(*a))
        with WorkerPool(source.item, 2, answer_bytes=source.batch_bytes) as pool:
            for item in range(3 * len(source)):
                pool.get(item)
    assert opened == []


@linux_only
@pytest.mark.parametrize("processes", [False, True], ids=["threads", "processes"])
def test_pools_leave_no_descriptor_and_no_thread(file, processes):
    """Three pools one after the other: what the first one needed is all that there ever is."""

    def open_now():
        return sorted(Path("/proc/self/fd").iterdir()), len(threading.enumerate())

    source = BatchSource(file, batch_size=8)
    source.batch(0, 0)
    before = open_now()
    for _ in range(3):
        with WorkerPool(source.item, 2, processes=processes, answer_bytes=source.batch_bytes) as pool:
            pool.get(0)
        assert open_now() == before
    source.close()


def test_a_relative_name_means_the_folder_of_the_moment_it_was_given(file, monkeypatch, tmp_path):
    """Handles are opened later, by others: the folder changed meanwhile, and a worker process has yet another one."""
    monkeypatch.chdir(file.parent)
    late, source = RowReader(file.name, "train_img"), BatchSource(file.name, shuffle=None)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert rows_of(late.read([4])).tolist() == [4]
    with WorkerPool(source.item, 1, processes=True, ahead=1) as pool:
        assert rows_of(pool.get(0)[0]).tolist() == list(range(32))
    late.close()
    source.close()


FORKS = """
import os, subprocess, sys
from helpers import RowReader
from coded import rows_of
def can_write():
    command = [sys.executable, "-c", "import h5py, sys; h5py.File(sys.argv[1], 'r+')", sys.argv[1]]
    return subprocess.run(command, stderr=subprocess.DEVNULL).returncode == 0
reader = RowReader(sys.argv[1], "train_img")
reader.read([1])
for end in ("sys.exit(0)", "reader.close(); os._exit(0)", "reader.read([2]); reader.close(); sys.exit(0)"):
    child = os.fork()
    if child == 0:
        exec(end)
    assert os.waitpid(child, 0)[1] == 0, end
    print(rows_of(reader.read([3, 1])).tolist(), can_write(), flush=True)
"""


@linux_only
def test_a_forked_child_that_closes_or_ends_takes_nothing_from_its_parent(file):
    """The parent reads on, and its lock still keeps writers out."""
    paths = os.pathsep.join([KIT, str(Path(__file__).parents[1])])
    done = subprocess.run(
        [sys.executable, "-c", FORKS, file],
        env=os.environ | {"PYTHONPATH": paths}, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("[3, 1] False\n" * 3, "")


WRITES = """
import os, sys
import numpy as np
from helpers import HDF5Writer
image = np.ones((1, 4, 4, 3), np.uint8)
with HDF5Writer(sys.argv[1], (4, 4, 3), ["a"]) as writer:
    writer.append("train", image, [0])
    child = os.fork()
    if child == 0:
        try:
            writer.append("train", image + 9, [0])
        except RuntimeError as error:
            print(str(error).replace(str(os.getpid()), "CHILD").replace(str(os.getppid()), "PARENT"), flush=True)
        sys.exit(0)  # leaves the block as well
    assert os.waitpid(child, 0)[1] == 0
    writer.append("train", image + 1, [0])
"""


@linux_only
def test_a_forked_writer_refuses_to_write(tmp_path):
    """Two processes would write the same bytes of one file; the parent's file is whole."""
    path = tmp_path / "new.h5"
    done = subprocess.run(
        [sys.executable, "-c", WRITES, path],
        env=os.environ | {"PYTHONPATH": KIT}, capture_output=True, text=True, timeout=30,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == (
        f"{path} is written by process PARENT, and process CHILD is a fork of it. Append in the process that opened "
        "the writer; let others make the rows and send them.\n",
        "",
    )
    with RowReader(path, "train_img") as rows:
        assert rows.read([0, 1])[:, 0, 0, 0].tolist() == [1, 2]
    assert inspect_file(path).ok


NO_PATHS = {"file": lambda file: file, "dataset": lambda file: file["train_img"]}


@pytest.mark.parametrize("kind", NO_PATHS)
@pytest.mark.parametrize(
    "make",
    [inspect_file, BatchSource, lambda path: HDF5Writer(path, (4, 4, 3), ["a"])],
    ids=["inspect_file", "BatchSource", "HDF5Writer"],
)
def test_every_door_that_takes_a_path_refuses_an_hdf5_object(coded_file, make, kind):
    """Open or closed, in the same words."""
    with h5py.File(coded_file) as open_file:
        thing = NO_PATHS[kind](open_file)
        with pytest.raises(TypeError, match=f"^path must name an HDF5 file, .* got an open {kind} of {coded_file}. "):
            make(thing)
    with pytest.raises(TypeError, match=f"^path must name an HDF5 file, .* got a {kind} that is closed already. "):
        make(thing)


FILTER = 32_055  # of HDF5's range for tests
FILTER_FUNCTION = ctypes.CFUNCTYPE(
    ctypes.c_size_t,
    ctypes.c_uint, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_void_p,
)  # fmt: skip


class FilterClass(ctypes.Structure):
    """H5Z_class2_t: what a package like hdf5plugin gives to HDF5."""

    _fields_ = [
        ("version", ctypes.c_int), ("number", ctypes.c_int), ("packs", ctypes.c_uint), ("unpacks", ctypes.c_uint),
        ("name", ctypes.c_char_p), ("can", ctypes.c_void_p), ("set", ctypes.c_void_p), ("function", FILTER_FUNCTION),
    ]  # fmt: skip


@pytest.fixture
def filtered_file(tmp_path):
    """The coded file, packed with a filter that only this process has, and only for the test."""
    function = FILTER_FUNCTION(lambda flags, count, values, used, size, buffer: used)
    kind = FilterClass(1, FILTER, 1, 1, b"own filter", None, None, function)
    assert h5py.h5z.register_filter(ctypes.addressof(kind))
    path = make_coded_file(tmp_path / "filtered.h5")
    with h5py.File(path, "r+") as file:
        images = file["train_img"][:]
        del file["train_img"]
        file.create_dataset("train_img", data=images, chunks=(1, 16, 16, 3), compression=FILTER)
    yield path
    if h5py.h5z.filter_avail(FILTER):
        h5py.h5z.unregister_filter(FILTER)


def test_a_filter_that_a_worker_process_lacks_is_named_and_nothing_is_called_damaged(filtered_file):
    """Filters of a package belong to the process that imported it: threads read, a process says what is missing."""
    with closing(BatchSource(filtered_file, shuffle=None)) as source:
        with WorkerPool(source.item, 1) as pool:
            assert rows_of(pool.get(0)[0]).tolist() == list(range(32))
        with WorkerPool(source.item, 1, processes=True) as pool, pytest.raises(HDF5FileError) as caught:
            pool.get(0)
    text = str(caught.value)
    assert f"train_img in {filtered_file} is packed with HDF5 filter {FILTER} (own filter), and process " in text
    assert "or use threads: use_multiprocessing=False." in text
    assert "damaged" not in text


def test_a_filter_that_is_missing_is_named_before_the_first_batch(filtered_file):
    """When the reader is made, not in the middle of an epoch."""
    h5py.h5z.unregister_filter(FILTER)
    with pytest.raises(HDF5FileError, match=rf"train_img in {filtered_file} is packed with HDF5 filter {FILTER} \(own"):
        BatchSource(filtered_file)

"""Rows read past HDF5 are, byte for byte, the rows that HDF5 gives; what HDF5 alone can read is left to it."""

import dataclasses
import errno
import multiprocessing
import os
import pickle
import sys
import threading
import tracemalloc
import zlib

import children
import h5py
import numpy as np
import psutil
import pytest
from coded import make_coded_file, rows_of

from helpers import RowReader, direct, reader
from helpers.layout import HDF5FileError
from helpers.places import find_places

N, ROW = 23, (5, 4, 3)
RAW_ROW_BYTES = 60


def early_chunks():
    """A creation list for chunks that are allocated when the dataset is made: later found without an index."""
    created = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    created.set_chunk((1, *ROW))
    created.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    return created


def values(dtype="u1", shape=(N, *ROW), seed=0):
    """Random bytes, as an array of this type (bool: 0 and 1)."""
    dtype = np.dtype(dtype)
    rng = np.random.default_rng(seed)
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    return rng.integers(0, 256, (*shape, dtype.itemsize), np.uint8).view(dtype)[..., 0]


def make(path, options, data=None, *, libver="earliest", userblock=0):
    """Write ``data`` as dataset x of a new file; ``options`` go to create_dataset."""
    data = values() if data is None else data
    with h5py.File(path, "w", libver=libver, userblock_size=userblock) as file:
        file["before"] = np.arange(7)  # so that x does not begin at a round place
        file.create_dataset("x", data.shape, data.dtype, **options)[:] = data
    return path


def orders(n=N):
    """Row lists: none, all, backwards, repeated, negative, runs, and random ones."""
    rng = np.random.default_rng(1)
    fixed = [[], range(n), range(n)[::-1], [7, 2, 7, 7, 0], [-1, -n, 5, -2], [3, 4, 5, 9, 10, 2], [n - 1]]
    return [*fixed, *(rng.integers(-n, n, size) for size in (1, 5, 17, 40))]


def assert_twins(path, *, is_direct, uses_hdf5=None):
    """Both ways give equal bytes for every order; HDF5 was opened for reading only where it is needed."""
    with RowReader(path, "x") as ours, RowReader(path, "x") as theirs:
        theirs._direct = None
        assert ours.direct is is_direct
        for rows in orders():
            assert ours.read(list(rows)).tobytes() == theirs.read(list(rows)).tobytes(), rows
        assert bool(ours._handles) == ((not is_direct) if uses_hdf5 is None else uses_hdf5)


CHUNKED = {
    "one row a chunk": {"chunks": (1, *ROW)},
    "four rows a chunk, the last in part": {"chunks": (4, *ROW)},
    "one chunk": {"chunks": (N, *ROW)},
    "chunk larger than the dataset": {"chunks": (32, *ROW), "maxshape": (None, *ROW)},
    "growing one way": {"chunks": (4, *ROW), "maxshape": (None, *ROW)},
    "growing all ways": {"chunks": (4, *ROW), "maxshape": (None, None, *ROW[1:])},
    "gzip, one row a chunk": {"chunks": (1, *ROW), "compression": "gzip"},
    "gzip, four rows a chunk": {"chunks": (4, *ROW), "compression": "gzip", "compression_opts": 9},
    "gzip, one chunk": {"chunks": (N, *ROW), "compression": "gzip"},
    "gzip, growing one way": {"chunks": (4, *ROW), "maxshape": (None, *ROW), "compression": "gzip"},
    "gzip, growing all ways": {"chunks": (4, *ROW), "maxshape": (None, None, *ROW[1:]), "compression": "gzip"},
}
DIRECT = {"contiguous": {}, **CHUNKED}


@pytest.mark.parametrize("userblock", [0, 1024])
@pytest.mark.parametrize("libver", ["earliest", "latest"])
@pytest.mark.parametrize("case", [*DIRECT, "allocated early"])
def test_direct_rows_equal_those_of_hdf5(tmp_path, case, libver, userblock):
    """Whole rows, raw or gzip, under every kind of chunk index, are read without HDF5, and are the same."""
    options = {"dcpl": early_chunks()} if case == "allocated early" else DIRECT[case]
    path = make(tmp_path / "x.h5", options, libver=libver, userblock=userblock)
    assert_twins(path, is_direct=True)
    with RowReader(path, "x") as reader:
        assert reader.read(range(N)).tobytes() == values().tobytes()


@pytest.mark.parametrize("options", [{}, {"chunks": (8,)}, {"chunks": (8,), "compression": "gzip"}])
def test_single_numbers_are_rows_too(tmp_path, options):
    """A one-dimensional dataset, as of class numbers, is read past HDF5 as well."""
    assert_twins(make(tmp_path / "x.h5", options, values("i8", (N,))), is_direct=True)


@pytest.mark.parametrize("dtype", ["u1", "i2", ">u2", "f2", "f4", ">f4", "f8", "c8", "?", "enum"])
@pytest.mark.parametrize("options", [{}, CHUNKED["gzip, four rows a chunk"]], ids=["contiguous", "gzip"])
def test_numbers_of_every_kind_are_direct(tmp_path, dtype, options):
    """Types whose bytes are the same in file and memory, of either byte order."""
    kind = h5py.enum_dtype({f"n{number}": number for number in range(256)}, "u1") if dtype == "enum" else dtype
    assert_twins(make(tmp_path / "x.h5", options, values(kind)), is_direct=True)


HDF5_ONLY = {
    "shuffle": {"chunks": (4, *ROW), "shuffle": True},
    "shuffle and gzip": {"chunks": (4, *ROW), "shuffle": True, "compression": "gzip"},
    "checksums": {"chunks": (4, *ROW), "fletcher32": True},
    "gzip and checksums": {"chunks": (4, *ROW), "fletcher32": True, "compression": "gzip"},
    "lzf": {"chunks": (4, *ROW), "compression": "lzf"},
    "scaleoffset": {"chunks": (4, *ROW), "scaleoffset": 0},
    "chunks that cut rows": {"chunks": (4, 5, 2, 3)},
    "chunks wider than a row": {"chunks": (4, 8, 4, 3), "maxshape": (None, None, 4, 3)},
    "another file": {"external": [("x.raw", 0, h5py.h5f.UNLIMITED)]},
}


@pytest.mark.parametrize("case", HDF5_ONLY)
@pytest.mark.filterwarnings("ignore::helpers.layout.OutsideFileWarning")
def test_other_filters_and_layouts_are_left_to_hdf5(tmp_path, monkeypatch, case):
    """Filters besides gzip, chunks that are not whole rows and bytes in other files go through HDF5."""
    monkeypatch.chdir(tmp_path)  # where the external file is looked for
    assert_twins(make(tmp_path / "x.h5", HDF5_ONLY[case], values() // 2), is_direct=False)


@pytest.mark.parametrize("dtype", ["S5", "V5", [("a", "u1"), ("b", "f4")], h5py.string_dtype()], ids=str)
def test_what_is_no_number_is_left_to_hdf5(tmp_path, dtype):
    """Texts, opaque bytes and records go through HDF5."""
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("x", (N,), np.dtype(dtype))
        file.create_dataset("y", (N,), "u1")
        places = find_places(file["x"], tmp_path / "x.h5", "x")
        assert direct.locate(file["x"], places, tmp_path / "x.h5", "x", (0, 0)) is None


def test_numbers_that_hdf5_must_convert_are_left_to_it(tmp_path):
    """Twelve bits somewhere in two bytes, as cameras store them, are moved to their place by HDF5."""
    camera = h5py.h5t.STD_U16LE.copy()
    camera.set_precision(12)
    camera.set_offset(4)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        h5py.h5d.create(file.id, b"x", camera, h5py.h5s.create_simple((N, 8)))
        file["x"][1:-1] = np.arange(N * 8).reshape(N, 8)[1:-1]  # first and last row are zeros, the same in both types
    assert_twins(tmp_path / "x.h5", is_direct=False)


def test_compact_virtual_and_unwritten_datasets_are_left_to_hdf5(tmp_path):
    """Bytes inside the header, in other datasets, or nowhere yet have no place that can be read."""
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        compact = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        compact.set_layout(h5py.h5d.COMPACT)
        file.create_dataset("compact", data=values(), dcpl=compact)
        file["source"] = values()
        layout = h5py.VirtualLayout(shape=(N, *ROW), dtype="u1")
        layout[:] = h5py.VirtualSource(file["source"])
        file.create_virtual_dataset("virtual", layout)
        file.create_dataset("unwritten", (N, *ROW), "u1", fillvalue=7)
        file.create_dataset("unwritten chunks", (N, *ROW), "u1", chunks=(4, *ROW), fillvalue=7)
        file.create_dataset("no rows", (0, *ROW), "u1")
    for name in ("compact", "virtual", "unwritten", "unwritten chunks", "no rows"):
        with RowReader(path, name) as reader, h5py.File(path) as file:
            assert not reader.direct, name
            rows = range(len(reader))
            assert reader.read(rows).tobytes() == file[name][:].tobytes(), name


@pytest.mark.parametrize("libver", ["earliest", "latest"])
@pytest.mark.parametrize("case", CHUNKED)
def test_rows_of_missing_chunks_are_fill_values(tmp_path, case, libver):
    """Chunks that were never written give HDF5's fill value, between rows that are read directly."""
    with h5py.File(tmp_path / "x.h5", "w", libver=libver) as file:
        data = file.create_dataset("x", (N, *ROW), "u1", fillvalue=9, **CHUNKED[case])
        data[8:9] = values()[8:9]
    assert_twins(tmp_path / "x.h5", is_direct=True, uses_hdf5=CHUNKED[case]["chunks"][0] < N)


@pytest.mark.parametrize("libver", ["earliest", "latest"])
@pytest.mark.parametrize("case", [case for case in CHUNKED if case.startswith("gzip")])
def test_chunks_stored_without_their_filter_are_obeyed(tmp_path, case, libver):
    """A chunk whose mask says that gzip was left out is taken as it is, its neighbours are inflated."""
    options, images = CHUNKED[case], values()
    rows = options["chunks"][0]
    with h5py.File(tmp_path / "x.h5", "w", libver=libver) as file:
        data = file.create_dataset("x", (N, *ROW), "u1", **options)
        for start in range(0, N, rows):
            chunk = np.zeros((rows, *ROW), np.uint8)
            chunk[: len(images[start : start + rows])] = images[start : start + rows]
            plain = start // rows % 2 == 0
            stored = chunk.tobytes() if plain else zlib.compress(chunk.tobytes())
            data.id.write_direct_chunk((start, 0, 0, 0), stored, filter_mask=1 if plain else 0)
    assert_twins(tmp_path / "x.h5", is_direct=True)
    with RowReader(tmp_path / "x.h5", "x") as reader:
        assert reader.read(range(N)).tobytes() == images.tobytes()


def test_offsets_that_do_not_fit_are_noticed(tmp_path, monkeypatch):
    """When HDF5's offsets do not lead to its own bytes, all is left to HDF5."""
    path = make(tmp_path / "x.h5", {})

    def shifted(data, path, name):
        places = find_places(data, path, name)
        return dataclasses.replace(places, offsets=places.offsets + 1)

    monkeypatch.setattr(reader, "find_places", shifted)
    assert_twins(path, is_direct=False)


@pytest.fixture(params=["raw", "gzip"])
def coded(request, tmp_path):
    """103 images that carry their row, raw and one a chunk, or gzip and four a chunk."""
    options = {"raw": {}, "gzip": {"compression": "gzip", "chunk_rows": 4}}[request.param]
    return make_coded_file(tmp_path / "coded.h5", **options)


def read_in_threads(reader, threads=8, batches=40):
    """What is wrong after many threads read random rows at once; empty when all is right."""
    wrong = []

    def work(seed):
        rng = np.random.default_rng(seed)
        out = np.empty((8, 16, 16, 3), np.uint8)
        for _ in range(batches):
            rows = rng.integers(0, 103, 8)
            if rows_of(reader.read(rows, out)).tolist() != rows.tolist():
                wrong.append(rows)

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return wrong


@pytest.fixture
def nervous_threads():
    """Threads take turns a thousand times as often as they do by themselves."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(interval / 1000)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.usefixtures("nervous_threads")
def test_eight_threads_share_a_reader(coded):
    """All threads get the right rows through one descriptor."""
    with RowReader(coded, "train_img") as reader:
        assert reader.direct
        assert read_in_threads(reader) == []
        assert list(reader._direct.files._files) == [os.getpid()]


@pytest.mark.usefixtures("nervous_threads")
def test_without_positional_reads_all_is_the_same(coded, monkeypatch):
    """On a system that has no preadv each read seeks in a file of its own; threads do not disturb each other."""
    monkeypatch.delattr(os, "preadv")
    with RowReader(coded, "train_img") as reader:
        assert reader.direct
        assert read_in_threads(reader) == []
        assert reader._direct.files._files == {}


def test_hdf5_is_not_touched(coded):
    """While another thread holds HDF5's lock, rows are read all the same."""
    got = []
    with RowReader(coded, "train_img") as reader:
        worker = threading.Thread(target=lambda: got.append(rows_of(reader.read([5, 90, 5])).tolist()))
        with h5py._objects.phil:
            worker.start()
            worker.join(20)
            stuck = worker.is_alive()
        worker.join()
    assert (stuck, got) == (False, [[5, 90, 5]])


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # Python 3.12+ warns of fork with threads
def test_child_reads_without_hdf5(coded, method):
    """However a child was started, it opens the file without HDF5, and the parent reads on."""
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip(f"needs {method}")
    context = multiprocessing.get_context(method)
    with RowReader(coded, "train_img") as reader:
        reader.read([0])
        receiving, sending = context.Pipe(duplex=False)
        child = context.Process(target=children.read_rows, args=(reader, [42, 1, 42], sending))
        child.start()
        sending.close()
        _, inherited, own, pixels = receiving.recv()
        receiving.close()
        child.join()
        assert (pixels, inherited, own) == ([42, 1, 42], [], [])
        assert rows_of(reader.read([5])).tolist() == [5]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_forked_child_has_a_descriptor_of_its_own(coded):
    """The parent's descriptor is not used in a forked child, and closing there does not close it here."""
    context = multiprocessing.get_context("fork")
    receiving, sending = context.Pipe(duplex=False)

    def work(reader):
        parents = list(reader._direct.files._files)
        with reader:
            reader.read([1])
            sending.send((parents, list(reader._direct.files._files)))

    with RowReader(coded, "train_img") as reader:
        reader.read([0])
        child = context.Process(target=work, args=(reader,))
        child.start()
        assert receiving.recv() == ([os.getpid()], [child.pid])
        child.join()
        assert rows_of(reader.read([5])).tolist() == [5]
    receiving.close()
    sending.close()


def test_pickle_carries_places_and_no_descriptor(coded, monkeypatch):
    """A copy in another process asks HDF5 for nothing: it knows where the rows lie."""
    with RowReader(coded, "train_img") as reader:
        reader.read([0, 1])
        stored = pickle.dumps(reader)
    monkeypatch.setattr(h5py, "File", None)
    with pickle.loads(stored) as copy:
        assert copy._direct.files._files == {}
        assert rows_of(copy.read([9, 4])).tolist() == [9, 4]


def test_close_waits_for_a_thread_that_reads(coded, tmp_path, monkeypatch):
    """A descriptor closed in the middle of a read is not given to another file before that read is done."""
    preadv, others = os.preadv, []
    (tmp_path / "other").write_bytes(b"wrong" * 100_000)
    with RowReader(coded, "train_img") as reader:
        reader.read([0])

        def close_first(*arguments):
            reader.close()
            others.append(os.open(tmp_path / "other", os.O_RDONLY))
            return preadv(*arguments)

        monkeypatch.setattr(os, "preadv", close_first)
        assert rows_of(reader.read([7, 80])).tolist() == [7, 80]
    for descriptor in others:
        os.close(descriptor)


def test_close_frees_the_descriptor(coded):
    """After close() no descriptor of the file is open, and closing twice is quiet."""
    reader = RowReader(coded, "train_img")
    assert str(coded) not in [file.path for file in psutil.Process().open_files()]
    reader.read([0])
    assert str(coded) in [file.path for file in psutil.Process().open_files()]
    reader.close()
    reader.close()
    assert str(coded) not in [file.path for file in psutil.Process().open_files()]
    for use in (reader.read, reader.read_ahead):
        with pytest.raises(ValueError) as caught:  # noqa: PT011 - the whole sentence is compared
            use([0])
        assert str(caught.value) == f"this reader of train_img in {coded} is closed. Make a new RowReader."


def test_nothing_large_is_allocated(tmp_path):
    """With out= given, reading a batch of raw rows takes next to no memory."""
    path = make_coded_file(tmp_path / "coded.h5", shape=(64, 64, 3))
    out = np.empty((50, 64, 64, 3), np.uint8)
    with RowReader(path, "train_img") as reader:
        reader.read(range(50), out)
        tracemalloc.start()
        try:
            reader.read(range(50)[::-1], out)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert peak < 32_768 < out.nbytes / 10


def test_each_chunk_is_inflated_once(tmp_path, monkeypatch):
    """All rows of a chunk come from one inflation, also when the next batch begins in it."""
    path = make(tmp_path / "x.h5", CHUNKED["gzip, four rows a chunk"])
    inflate, sizes = direct.deflate.zlib_decompress, []
    with RowReader(path, "x") as reader:
        monkeypatch.setattr(
            direct.deflate, "zlib_decompress", lambda stored, size: sizes.append(size) or inflate(stored, size)
        )
        for rows, inflations in [([5, 1, 6, 0, 5], 2), ([7, 4], 0), ([7, 8], 1), (range(N), 6)]:
            sizes.clear()
            assert reader.read(rows).tobytes() == values()[rows].tobytes()
            assert sizes == [4 * RAW_ROW_BYTES] * inflations, rows


def test_neighbours_are_one_read(tmp_path, monkeypatch):
    """Rows that are neighbours in the file and in the output are read in one go, in the order of the file."""
    path = make(tmp_path / "x.h5", {})
    preadv, reads = os.preadv, []
    with RowReader(path, "x") as reader:
        start = int(reader._direct._offsets[0])

        def note(descriptor, buffers, offset, *flags):
            reads.append(((offset - start) // RAW_ROW_BYTES, len(buffers[0]) // RAW_ROW_BYTES))
            return preadv(descriptor, buffers, offset, *flags)

        monkeypatch.setattr(os, "preadv", note)
        assert reader.read([9, 10, 11, 3, 4, 20]).tobytes() == values()[[9, 10, 11, 3, 4, 20]].tobytes()
    assert list(dict.fromkeys(reads)) == [(3, 2), (9, 3), (20, 1)]


@pytest.mark.parametrize(
    ("breaks", "expected"),
    [([], [(0, 1)]), ([False, False], [(0, 3)]), ([True, False, True], [(0, 1), (1, 3), (3, 4)])],
)
def test_runs_start_where_something_breaks(breaks, expected):
    """A break before an item ends one run and begins the next."""
    assert direct.runs(len(breaks) + 1, np.array(breaks, bool)) == expected
    assert direct.runs(0, np.array([], bool)) == []


def test_short_reads_go_on(coded, monkeypatch):
    """A system that gives a few bytes at a time gives the right rows in the end."""
    preadv = os.preadv
    with RowReader(coded, "train_img") as reader:
        monkeypatch.setattr(os, "preadv", lambda fd, buffers, *rest: preadv(fd, [buffers[0][:100]], *rest))
        assert rows_of(reader.read([9, 10, 4])).tolist() == [9, 10, 4]


def failing(descriptor, buffers, offset, *flags):
    raise OSError(errno.EIO, "Input/output error")


SILENT_DISKS = {
    "end of file": (lambda *arguments: 0, "the file ends before its last byte"),
    "disk error": (failing, "the system said 'Input/output error'"),
}


@pytest.mark.parametrize("case", SILENT_DISKS)
def test_bytes_that_do_not_come_name_the_row(coded, monkeypatch, case):
    """A file that ends too early and a failing disk are errors that name row, dataset and file, and say what to do."""
    preadv, reason = SILENT_DISKS[case]
    with RowReader(coded, "train_img") as reader:
        monkeypatch.setattr(os, "preadv", preadv)
        with pytest.raises(HDF5FileError) as caught:
            reader.read([70, 60])
    assert str(caught.value) == sentence(60, coded, reason)


def sentence(row, path, reason, dataset="train_img"):
    return (
        f"row {row} of {dataset} in {path} cannot be read: {reason}. The file is damaged. "
        f"`python -m helpers.inspector {path} --verify` finds all such rows. Copy or build the file again."
    )


def test_the_row_named_is_the_one_that_breaks_off(tmp_path, monkeypatch):
    """In a run of rows, the row at whose bytes the file ends is named."""
    path = make(tmp_path / "x.h5", {})
    preadv = os.preadv
    with RowReader(path, "x") as reader:
        end = int(reader._direct._offsets[0]) + 12 * RAW_ROW_BYTES + 1  # one byte of row 12 is left

        def cut(descriptor, buffers, offset, *flags):
            return preadv(descriptor, [buffers[0][: max(0, end - offset)]], offset, *flags)

        monkeypatch.setattr(os, "preadv", cut)
        with pytest.raises(HDF5FileError, match="^row 12 of x in "):
            reader.read([2, *range(8, 20)])


def overwrite(path, name, chunk, content):
    """Write over the stored bytes of a chunk, past HDF5."""
    with h5py.File(path) as file:
        place = file[name].id.get_chunk_info(chunk).byte_offset
    with path.open("r+b") as raw:
        raw.seek(place)
        raw.write(content)


@pytest.mark.parametrize("content", [b"\xff" * 20, b"\x78\x9c" + b"\0" * 20], ids=["no gzip", "gzip cut short"])
@pytest.mark.parametrize("chunk", [10, 0])
def test_damaged_chunk_is_an_error_never_a_picture(tmp_path, chunk, content):
    """A chunk that does not inflate names its row, whichever way it was read, and rows beside it are read."""
    path = make_coded_file(tmp_path / "coded.h5", compression="gzip")
    overwrite(path, "train_img", chunk, content)
    with RowReader(path, "train_img") as reader:
        assert reader.direct is (chunk != 0)  # the first row is compared with HDF5's, which cannot read it either
        for _ in range(2):
            with pytest.raises(HDF5FileError) as caught:
                reader.read([50, chunk, 20])
        assert rows_of(reader.read([50, 20])).tolist() == [50, 20]
    said = "HDF5 said: Can't synchronously read data (filter returned failure during read)"
    assert str(caught.value) == sentence(chunk, path, "its gzip chunk does not unpack" if chunk else said)


@pytest.mark.parametrize(
    ("stored", "mask", "reason"),
    [
        (zlib.compress(b"x" * 50), 0, "its gzip chunk holds 50 bytes, not 60"),
        (zlib.compress(b"x" * 70), 0, "its gzip chunk does not unpack"),
        (b"x" * 50, 1, "its chunk is stored without gzip and has only 50 bytes"),
    ],
    ids=["inflates to less", "inflates to more", "plain and too short"],
)
def test_chunk_of_a_wrong_size_is_an_error(tmp_path, stored, mask, reason):
    """HDF5 fills up such a row with whatever was in memory; here it is an error."""
    path = make(tmp_path / "x.h5", CHUNKED["gzip, one row a chunk"])
    with h5py.File(path, "r+") as file:
        file["x"].id.write_direct_chunk((5, 0, 0, 0), stored, filter_mask=mask)
    with RowReader(path, "x") as reader:
        with pytest.raises(HDF5FileError) as caught:
            reader.read([4, 5, 6])
        assert str(caught.value) == sentence(5, path, reason, "x")
        assert reader.read([4, 6]).tobytes() == values()[[4, 6]].tobytes()


def age(path):
    """Set the file's time of writing to the past, so that the next write cannot fall into the same tick."""
    os.utime(path, (10**9, 10**9))


@pytest.mark.parametrize("opened", [False, True], ids=["before the first read", "between two reads"])
@pytest.mark.parametrize("change", ["write", "cut"])
def test_a_file_written_anew_is_noticed(coded, opened, change):
    """A file that was written or cut since the reader was made is refused, also while it is open."""
    age(coded)
    with RowReader(coded, "train_img") as reader:
        if opened:
            reader.read([0])
        with coded.open("r+b") as raw:
            raw.write(b"\x89") if change == "write" else raw.truncate(5000)
        with pytest.raises(HDF5FileError) as caught:
            reader.read([50, 60])
    assert str(caught.value) == (
        f"{coded} was written anew since this reader was made: labels read before would no longer fit its images. "
        "Make a new one."
    )


def test_a_file_that_is_gone_is_named(coded):
    """A file removed before the first read gives the sentence of a missing file."""
    with RowReader(coded, "train_img") as reader:
        coded.unlink()
        with pytest.raises(HDF5FileError) as caught:
            reader.read([0])
    assert str(caught.value) == f"{coded} does not exist. Check the path, or build the file first."


@pytest.mark.skipif(direct.fcntl is None, reason="needs file locks of Unix")
def test_writers_are_kept_out_while_rows_are_read(coded):
    """As with an HDF5 handle, nobody can open the file for writing until the reader is closed."""
    with RowReader(coded, "train_img") as reader:
        reader.read([0])
        held = reader._direct.files.get()  # as the trace of an error holds it
        with pytest.raises(BlockingIOError, match="unable to lock file"):
            h5py.File(coded, "r+")
    with h5py.File(coded, "r+"):
        assert held.status().st_size == coded.stat().st_size


@pytest.mark.skipif(direct.fcntl is None, reason="needs file locks of Unix")
def test_a_writer_that_came_first_is_an_error(coded, monkeypatch):
    """A file that is open for writing is refused with HDF5's words, unless the user switched locks off."""
    with RowReader(coded, "train_img") as reader, coded.open("r+b") as writer:
        direct.fcntl.flock(writer, direct.fcntl.LOCK_EX)
        with pytest.raises(HDF5FileError, match=f"^{coded} is open for writing in another process"):
            reader.read([0])
        monkeypatch.setenv("HDF5_USE_FILE_LOCKING", "FALSE")
        assert rows_of(reader.read([3])).tolist() == [3]


@pytest.mark.skipif(direct.fcntl is None, reason="needs file locks of Unix")
def test_a_disk_without_locks_is_read(coded, monkeypatch):
    """Where the disk has no locks, rows are read without one."""

    def refuse(descriptor, operation):
        raise OSError(errno.ENOLCK, "No locks available")

    with RowReader(coded, "train_img") as reader:
        monkeypatch.setattr(direct.fcntl, "flock", refuse)
        assert rows_of(reader.read([3])).tolist() == [3]


@pytest.fixture
def advice(monkeypatch):
    """The (offset, bytes) that the system was asked to read ahead."""
    if not hasattr(os, "posix_fadvise"):
        pytest.skip("needs posix_fadvise")
    asked = []
    monkeypatch.setattr(os, "posix_fadvise", lambda fd, offset, size, how: asked.append((offset, size)))
    return asked


def test_read_ahead_asks_for_each_place_once(tmp_path, advice):
    """Rows are asked for in file order, neighbours together; of a gzip chunk its packed bytes."""
    with RowReader(make(tmp_path / "x.h5", {}), "x") as reader:
        reader.read_ahead([9, 5, -19, 9])
        start = int(reader._direct._offsets[0])
    assert advice == [(start + 4 * RAW_ROW_BYTES, 2 * RAW_ROW_BYTES), (start + 9 * RAW_ROW_BYTES, RAW_ROW_BYTES)]
    advice.clear()
    path = make(tmp_path / "gzip.h5", CHUNKED["gzip, four rows a chunk"])
    with RowReader(path, "x") as reader, h5py.File(path) as file:
        reader.read_ahead([22, 1, 2, 0])
        chunks = [file["x"].id.get_chunk_info(number) for number in (0, 5)]
    assert advice == [(chunk.byte_offset, chunk.size) for chunk in chunks]


def test_read_ahead_asks_in_pieces_of_128_kib(tmp_path, advice):
    """Linux drops what one request asks beyond the disk's read-ahead window, so long stretches go out in parts."""
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("x", data=np.ones((3, 100_000), np.uint8))
    with RowReader(tmp_path / "x.h5", "x") as reader:
        reader.read_ahead([0, 1, 2])
        start = int(reader._direct._offsets[0])
    assert advice == [(start, 2**17), (start + 2**17, 2**17), (start + 2**18, 300_000 - 2**18)]


def test_read_ahead_leaves_other_rows_alone(tmp_path, advice):
    """Nothing is asked for rows that only HDF5 reads, or that were never written."""
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("x", (N, *ROW), "u1", chunks=(1, *ROW))[5] = 1
    for path in (make(tmp_path / "lzf.h5", HDF5_ONLY["lzf"]), tmp_path / "x.h5"):
        with RowReader(path, "x") as reader:
            reader.read_ahead([0, 1])
            reader.read_ahead([])
    assert advice == []


def test_read_ahead_is_nothing_where_the_system_cannot(coded, monkeypatch):
    """Without posix_fadvise the wish is ignored; rows outside the dataset are an error all the same."""
    monkeypatch.delattr(os, "posix_fadvise", raising=False)
    with RowReader(coded, "train_img") as reader:
        reader.read_ahead([0, 1])
        with pytest.raises(IndexError, match="row 103 was asked for"):
            reader.read_ahead([103])


@pytest.mark.skipif(not hasattr(os, "RWF_NOWAIT"), reason="needs reads that do not wait")
@pytest.mark.parametrize("case", ["contiguous", "gzip, one row a chunk"])
def test_rows_that_are_not_in_memory_are_asked_for_at_once(tmp_path, advice, monkeypatch, case):
    """At the first row that must come from the disk the rest of the batch is asked for; in memory, nothing is."""
    path = make(tmp_path / "x.h5", DIRECT[case])
    preadv = os.preadv
    with RowReader(path, "x") as reader:
        reader.read([9, 1, 5])
        assert advice == []
        calls = []

        def warm_then_cold(descriptor, buffers, offset, flags=0):
            calls.append((offset, flags))
            if flags and len(calls) == 2:
                raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
            return preadv(descriptor, buffers, offset, flags)

        monkeypatch.setattr(os, "preadv", warm_then_cold)
        assert reader.read([9, 1, 5]).tobytes() == values()[[9, 1, 5]].tobytes()
    first, second, third = sorted({offset for offset, _ in calls})
    assert calls == [(first, os.RWF_NOWAIT), (second, os.RWF_NOWAIT), (second, 0), (third, 0)]
    assert [offset for offset, _ in advice] == [second, third]


@pytest.mark.skipif(not hasattr(os, "RWF_NOWAIT"), reason="needs reads that do not wait")
def test_a_disk_that_cannot_tell_is_asked_once(coded, advice, monkeypatch):
    """Where reads cannot say whether they would wait, they are tried once, and nothing is asked for."""
    preadv, tries = os.preadv, []

    def simple(descriptor, buffers, offset, flags=0):
        if flags:
            tries.append(offset)
            raise OSError(errno.EOPNOTSUPP, "Operation not supported")
        return preadv(descriptor, buffers, offset)

    with RowReader(coded, "train_img") as reader:
        monkeypatch.setattr(os, "preadv", simple)
        for _ in range(3):
            assert rows_of(reader.read([9, 1, 5])).tolist() == [9, 1, 5]
    assert (len(tries), advice) == (1, [])


@pytest.mark.filterwarnings("ignore::helpers.layout.OutsideFileWarning")
def test_a_link_to_another_file_is_left_to_hdf5(tmp_path):
    """Its offsets count in the other file: from this one they would give wrong pictures, but for the first and last."""
    images = np.random.default_rng(0).integers(0, 256, (20, 8, 8, 3), dtype=np.uint8)
    others = images.copy()
    others[1:-1] = 255 - others[1:-1]
    for name, data in (("here.h5", others), ("there.h5", images)):
        with h5py.File(tmp_path / name, "w") as file:
            file["x"] = data
    with h5py.File(tmp_path / "here.h5", "r+") as file:
        file["linked"] = h5py.ExternalLink("there.h5", "x")
    with RowReader(tmp_path / "here.h5", "linked") as reader, RowReader(tmp_path / "here.h5", "x") as direct:
        assert (reader.direct, direct.direct) == (False, True)
        assert (reader.read(np.arange(20)) == images).all()

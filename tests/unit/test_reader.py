"""RowReader gives what NumPy indexing gives, in any process, and never a list index to HDF5."""

import multiprocessing
import os
import pickle
import threading
import zlib

import children
import h5py
import numpy as np
import pytest
from coded import IMAGE_SHAPE, make_coded_file, rows_of

from helpers import RowReader
from helpers.images import encode_jpeg
from helpers.layout import DatasetNotFoundError, HDF5FileError, LayoutError

ROW_LISTS = {
    "increasing": [0, 1, 2, 50, 51],
    "shuffled": [7, 2, 9, 3, 101, 0],
    "repeated": [7, 2, 7, 0, 0],
    "negative": [-1, -103, 5, -2],
    "one run": list(range(20, 60)),
    "decreasing": [9, 8, 7, 6],
    "runs that interleave": [4, 30, 5, 31, 6, 32],
    "none": [],
}
LAYOUTS = {
    "one image a chunk": {},
    "contiguous": {"chunk_rows": None},
    "four images a chunk": {"chunk_rows": 4},
    "gzip": {"compression": "gzip", "chunk_rows": 4},
    "lzf, which only HDF5 reads": {"compression": "lzf", "chunk_rows": 4},
}


@pytest.fixture
def hdf5_file(tmp_path):
    """A coded file whose images only HDF5 can read: for what is about HDF5's handles."""
    return make_coded_file(tmp_path / "coded.h5", compression="lzf")


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("case", ROW_LISTS)
def test_rows_equal_numpy_indexing(tmp_path, layout, case):
    """Every row list on every storage layout gives what NumPy's fancy indexing gives."""
    path = make_coded_file(tmp_path / "coded.h5", **LAYOUTS[layout])
    rows = np.array(ROW_LISTS[case], dtype=np.int64)
    with h5py.File(path) as file:
        expected_images, expected_labels = file["train_img"][:][rows], file["train_labels"][:][rows]
    with RowReader(path, "train_img") as images, RowReader(path, "train_labels") as labels:
        np.testing.assert_array_equal(images.read(rows), expected_images)
        np.testing.assert_array_equal(labels.read(rows), expected_labels)


def test_random_row_lists_equal_numpy_indexing(coded_file):
    """A hundred random lists with repeats and negative numbers, all equal to NumPy."""
    rng = np.random.default_rng(0)
    with h5py.File(coded_file) as file:
        everything = file["train_img"][:]
    with RowReader(coded_file, "train_img") as reader:
        for _ in range(100):
            rows = rng.integers(-103, 103, size=rng.integers(0, 40))
            np.testing.assert_array_equal(reader.read(rows), everything[rows])


def test_auto_chunked_images_read_right(tmp_path):
    """Chunks that cut images into pieces give the right pixels too."""
    images = np.random.default_rng(0).integers(0, 256, (40, 33, 35, 3), dtype=np.uint8)
    with h5py.File(tmp_path / "cut.h5", "w") as file:
        data = file.create_dataset("train_img", data=images, chunks=(16, 8, 9, 1), compression="gzip")
        assert data.chunks == (16, 8, 9, 1)
    with RowReader(tmp_path / "cut.h5", "train_img") as reader:
        np.testing.assert_array_equal(reader.read([39, 0, 17]), images[[39, 0, 17]])


def test_out_is_filled_and_returned(coded_file):
    """With out= the rows land in the caller's array, and that array is returned."""
    out = np.full((3, *IMAGE_SHAPE), 77, dtype=np.uint8)
    with RowReader(coded_file, "train_img") as reader:
        assert reader.read([5, 3, 5], out=out) is out
    assert rows_of(out).tolist() == [5, 3, 5]


BAD_ROWS = {
    "beyond the end": ([3, 103], IndexError, "row 103 was asked for, but train_img in {path} has 103 rows (0 to 102)."),
    "below minus n": ([-104], IndexError, "row -104 was asked for, but train_img in {path} has 103 rows (0 to 102)."),
    "floats": ([1.0], TypeError,
               "rows must be a one-dimensional sequence of integers; got shape (1,) of float64."),
    "a mask": ([True, False], TypeError, "rows must be a one-dimensional sequence of integers; got shape (2,) of bool."
               " Turn a mask into rows with np.flatnonzero(mask)."),
    "two dimensions": ([[1, 2]], TypeError,
                       "rows must be a one-dimensional sequence of integers; got shape (1, 2) of int64."),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_ROWS)
def test_bad_rows_are_refused_with_a_whole_sentence(coded_file, case):
    """Rows outside the dataset and things that are not rows name themselves."""
    rows, error, sentence = BAD_ROWS[case]
    with RowReader(coded_file, "train_img") as reader, pytest.raises(error) as caught:
        reader.read(rows)
    assert str(caught.value) == sentence.format(path=coded_file)


@pytest.mark.parametrize(
    "out",
    [
        np.empty((2, *IMAGE_SHAPE), np.float32),
        np.empty((3, *IMAGE_SHAPE), np.uint8),
        np.empty((2, 16, 3, 16), np.uint8).swapaxes(2, 3),
    ],
    ids=["dtype", "length", "not contiguous"],
)  # fmt: skip
def test_out_that_does_not_fit_is_refused(coded_file, out):
    """A wrong dtype, shape or memory order of out= is an error, not a silent cast."""
    with RowReader(coded_file, "train_img") as reader, pytest.raises(ValueError, match=r"^out must be a writable C-"):
        reader.read([0, 1], out=out)


def test_missing_file_and_dataset_are_named(coded_file, tmp_path):
    """A wrong path or dataset name fails when the reader is made, and the datasets are listed."""
    with pytest.raises(HDF5FileError, match="nowhere.h5 does not exist"):
        RowReader(tmp_path / "nowhere.h5", "train_img")
    with pytest.raises(DatasetNotFoundError, match="no dataset 'images'. Datasets in it: test_img, test_labels"):
        RowReader(coded_file, "images")


def test_a_thread_that_comes_second_gets_the_handle_of_the_first(hdf5_file):
    """Both found no handle and opened one: the later is closed again, and the file is free after close()."""
    with RowReader(hdf5_file, "train_img") as reader:
        reader.read([0])
        first = reader._data()
        assert reader._open() is first
    with h5py.File(hdf5_file, "r+"):
        pass


@pytest.mark.parametrize("value", [7, h5py.Empty("f")], ids=["one number", "nothing"])
def test_a_dataset_without_rows_is_named(tmp_path, value):
    """A single value has no rows, and no len() in h5py."""
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file["x"] = value
    with pytest.raises(LayoutError, match=f"^x in {path} has no rows: it is a single value, not an array.$"):
        RowReader(path, "x")


def test_close_twice_is_quiet_and_reading_after_is_an_error(coded_file):
    """close() may be called again; a closed reader says that it is closed, and of what."""
    reader = RowReader(coded_file, "train_img")
    reader.read([0])
    reader.close()
    reader.close()
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the whole sentence is compared
        reader.read([0])
    assert str(caught.value) == f"this reader of train_img in {coded_file} is closed. Make a new RowReader."


def test_pickle_carries_no_handle(hdf5_file):
    """A reader pickles after it was used; the copy opens its own handle and reads the same."""
    with RowReader(hdf5_file, "train_img") as reader:
        expected = reader.read([9, 4])
        with pickle.loads(pickle.dumps(reader)) as copy:
            assert copy._handles == {}
            np.testing.assert_array_equal(copy.read([9, 4]), expected)


def test_many_threads_share_one_reader(hdf5_file):
    """Eight threads on one reader get the right rows, and one handle is left open."""
    wrong = []
    with RowReader(hdf5_file, "train_img") as reader:

        def work(seed):
            rng = np.random.default_rng(seed)
            for _ in range(30):
                rows = rng.integers(0, 103, 8)
                if rows_of(reader.read(rows)).tolist() != rows.tolist():
                    wrong.append(rows)

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(reader._handles) == 1
    assert wrong == []


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # Python 3.12+ warns of fork with threads
def test_child_opens_its_own_handle(hdf5_file, method):
    """However the child was started, it reads the right rows through a handle that it opened itself."""
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip(f"needs {method}")
    context = multiprocessing.get_context(method)
    with RowReader(hdf5_file, "train_img") as reader:
        reader.read([0])  # the parent's handle is open before the fork
        receiving, sending = context.Pipe(duplex=False)
        child = context.Process(target=children.read_rows, args=(reader, [42, 1, 42], sending))
        child.start()
        sending.close()  # so that a child that dies is an EOFError here, not an endless wait
        pid, inherited, own, pixels = receiving.recv()
        receiving.close()
        child.join()
        assert pixels == [42, 1, 42]
        assert own == [pid]
        assert inherited == ([os.getpid()] if method == "fork" else [])
        assert rows_of(reader.read([5])).tolist() == [5]  # the parent's handle still works


def test_a_file_written_anew_is_refused_by_hdf5s_way_too(hdf5_file):
    """A file that changed between making the reader and its first read is refused, and left closed."""
    os.utime(hdf5_file, (10**9, 10**9))
    with RowReader(hdf5_file, "train_img") as reader:
        assert not reader.direct
        os.utime(hdf5_file)
        with pytest.raises(HDF5FileError, match=f"^{hdf5_file} was written anew since this reader was made: "):
            reader.read([0])
    with h5py.File(hdf5_file, "r+"):
        pass


def test_damaged_chunk_names_its_rows(hdf5_file):
    """What HDF5 cannot read names rows, dataset and file, keeps HDF5's words, and says what to do."""
    with h5py.File(hdf5_file) as file:
        place = file["train_img"].id.get_chunk_info(7).byte_offset
    with hdf5_file.open("r+b") as raw:
        raw.seek(place)
        raw.write(b"\xff" * 8)
    with RowReader(hdf5_file, "train_img") as reader:
        with pytest.raises(HDF5FileError) as caught:
            reader.read([30, 5, 6, 7])
        assert rows_of(reader.read([30, 6])).tolist() == [30, 6]
    assert str(caught.value) == (
        f"one of the rows 5 to 7 of train_img in {hdf5_file} cannot be read: HDF5 said: Can't synchronously read data "
        "(filter returned failure during read). The file is damaged. "
        f"`python -m helpers.inspector {hdf5_file} --verify` finds all such rows. Copy or build the file again."
    )


def make_jpeg_file(path, shapes, image_shape=None, **options):
    """A file of JPEG bytes: one grey level a row, images of the given (height, width)."""
    with h5py.File(path, "w") as file:
        data = file.create_dataset("pictures", (len(shapes),), dtype=h5py.vlen_dtype(np.uint8), **options)
        for row, shape in enumerate(shapes):
            data[row] = np.frombuffer(encode_jpeg(np.full((*shape, 3), 40 * row, np.uint8)), np.uint8)
        if image_shape is not None:
            data.attrs["image_shape"] = image_shape
    return path


def test_jpeg_rows_come_decoded(tmp_path):
    """Rows of JPEG bytes come as RGB images, in the order asked for."""
    path = make_jpeg_file(tmp_path / "jpeg.h5", [(16, 24)] * 4, image_shape=(16, 24, 3))
    with RowReader(path, "pictures") as reader:
        assert reader.shape == (4, 16, 24, 3)
        images = reader.read([3, 0, 3])
    assert images.dtype == np.uint8
    assert images[:, 8, 8, 0].tolist() == [120, 0, 120]


def test_foreign_jpeg_of_mixed_size_needs_size(tmp_path):
    """JPEG bytes that do not say their size ask for size=; with it every image is resized."""
    path = make_jpeg_file(tmp_path / "jpeg.h5", [(16, 24), (20, 20)])
    with pytest.raises(LayoutError, match=r"without saying their size. Pass size=\(height, width\)"):
        RowReader(path, "pictures")
    with RowReader(path, "pictures", size=(8, 12)) as reader:
        assert reader.read([1, 0]).shape == (2, 8, 12, 3)


@pytest.mark.parametrize("shape", [(16, 2**40, 3), (0, 16, 3), (16, 16, 1), (16, 16)], ids=str)
def test_shapes_that_no_jpeg_has_are_refused(tmp_path, shape):
    """A damaged note of the shape does not make a batch take memory without bound."""
    path = make_jpeg_file(tmp_path / "jpeg.h5", [(16, 16)], image_shape=shape)
    with pytest.raises(LayoutError) as caught:
        RowReader(path, "pictures")
    assert str(caught.value) == (
        f"pictures in {path} says that its images have shape {shape}; expected (height, width, 3), at most 65,535 "
        "pixels a side. The file is damaged: build it again."
    )


def test_broken_jpeg_names_its_row(tmp_path):
    """Bytes that are no picture name row, dataset and file."""
    path = make_jpeg_file(tmp_path / "jpeg.h5", [(16, 16)] * 3, image_shape=(16, 16, 3))
    with h5py.File(path, "r+") as file:
        file["pictures"][1] = np.frombuffer(b"<html>", np.uint8)
    with RowReader(path, "pictures") as reader, pytest.raises(ValueError, match=f"^row 1 of pictures in {path}: "):
        reader.read([0, 1, 2])


def with_sums(path):
    """Add the CRC-32 of each row's JPEG bytes; returns them."""
    with h5py.File(path, "r+") as file:
        sums = np.array([zlib.crc32(stored) for stored in file["pictures"][:]], np.uint32)
        file["pictures_crc32"] = sums
    return sums


def flip_in_jpeg(path, row):
    """Change one byte in the middle of the JPEG bytes of a row, past HDF5."""
    with h5py.File(path) as file:
        stored = file["pictures"][row].tobytes()
    content = bytearray(path.read_bytes())
    content[content.index(stored) + len(stored) // 2] ^= 4
    path.write_bytes(content)


@pytest.mark.parametrize("options", [{}, {"compression": "lzf", "chunks": (2,)}], ids=["past HDF5", "through HDF5"])
def test_damaged_jpeg_bytes_are_found_by_their_crc(tmp_path, options):
    """OpenCV makes a picture of damaged bytes without a word; their CRC-32 tells, before they are decoded."""
    path = make_jpeg_file(tmp_path / "jpeg.h5", [(64, 64)] * 4, image_shape=(64, 64, 3), **options)
    with RowReader(path, "pictures") as reader:
        images = reader.read([0, 3, 2])
        assert reader.direct is not bool(options)
    with_sums(path)
    flip_in_jpeg(path, 2)
    with RowReader(path, "pictures") as reader:
        with pytest.raises(HDF5FileError) as caught:
            reader.read([0, 2, 3])
        np.testing.assert_array_equal(reader.read([0, 3]), images[:2])
    assert str(caught.value) == (
        f"row 2 of pictures in {path} cannot be read: its bytes do not have their CRC-32. The file is damaged. "
        f"`python -m helpers.inspector {path} --verify` finds all such rows. Copy or build the file again."
    )


def test_sums_that_do_not_fit_are_refused(tmp_path):
    """A file whose CRC-32 are not one for each row was changed by something that does not know them."""
    path = make_jpeg_file(tmp_path / "jpeg.h5", [(16, 16)] * 4, image_shape=(16, 16, 3))
    with h5py.File(path, "r+") as file:
        file["pictures_crc32"] = np.zeros(3, np.uint32)
    with pytest.raises(LayoutError) as caught:
        RowReader(path, "pictures")
    assert str(caught.value) == (
        f"pictures_crc32 in {path} has shape (3,) and type uint32; expected one uint32 for each of the 4 rows of "
        "pictures. Build the file again."
    )


def test_jpeg_bytes_that_hdf5_cannot_read_name_their_row(tmp_path):
    """Where only HDF5 can read the bytes, its error names row, dataset and file too."""
    path = make_jpeg_file(tmp_path / "jpeg.h5", [(16, 16)] * 4, image_shape=(16, 16, 3), compression="lzf", chunks=(1,))
    with h5py.File(path) as file:
        place = file["pictures"].id.get_chunk_info(1).byte_offset
    with path.open("r+b") as raw:
        raw.seek(place)
        raw.write(b"\xff" * 8)
    with RowReader(path, "pictures") as reader:
        with pytest.raises(HDF5FileError, match=f"^row 1 of pictures in {path} cannot be read: HDF5 said: "):
            reader.read([0, 1])
        assert reader.read([3, 2]).shape == (2, 16, 16, 3)


def test_rows_never_written_can_be_asked_for(tmp_path):
    """Rows of chunks that were never written are known, whichever way they are read."""
    with h5py.File(tmp_path / "x.h5", "w") as file:
        for name, options in [("x", {}), ("packed", {"compression": "lzf"})]:
            file.create_dataset(name, (9, 4), "u1", chunks=(2, 4), **options)[3:6] = 1
        file["whole"] = np.ones((9, 4), np.uint8)
    rows = [8, 3, -5, 1, 3]
    for name, expected in [("x", [1, 0, 0, 1, 0]), ("packed", [1, 0, 0, 1, 0]), ("whole", [0] * 5)]:
        with RowReader(tmp_path / "x.h5", name) as reader:
            assert reader.unwritten(rows).tolist() == expected


def test_repr_is_short_and_true(coded_file):
    """The repr names file, dataset, shape and dtype, and whether it is closed."""
    with RowReader(coded_file, "train_img") as reader:
        assert repr(reader) == "RowReader('coded.h5', 'train_img'): shape (103, 16, 16, 3), uint8"
    assert repr(reader).endswith(", closed")


def test_sums_that_cannot_be_opened_are_an_error(tmp_path):
    """A dataset of CRC-32 that is listed and damaged does not count as none: its images would go unchecked."""
    path = make_jpeg_file(tmp_path / "jpeg.h5", [(16, 16)] * 4, image_shape=(16, 16, 3))
    with_sums(path)
    with h5py.File(path) as file:
        header = h5py.h5o.get_info(file["pictures_crc32"].id).addr
    with path.open("r+b") as raw:
        raw.seek(header)
        raw.write(b"\xff")
    with pytest.raises(HDF5FileError, match=f"^{path} opens, but what is in it cannot be read; "):
        RowReader(path, "pictures")

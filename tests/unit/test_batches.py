"""What cannot be served right is refused when the source is made: rows that were never written, damaged bytes."""

import struct

import h5py
import numpy as np
import pytest
from coded import CLASS_NAMES, IMAGE_SHAPE, class_of_row, coded_images, make_coded_file, one_hot, rows_of

from helpers.batches import BatchSource
from helpers.layout import HDF5FileError, IncompleteFileError, LayoutError


def half_written(path, *, images=True, labels=True, **options):
    """A file of 40 rows in which the second half of the images or labels was never written."""
    with h5py.File(path, "w") as file:
        data = file.create_dataset("train_img", (40, *IMAGE_SHAPE), "u1", chunks=(4, *IMAGE_SHAPE), **options)
        data[: 40 if images else 20] = coded_images(np.arange(40 if images else 20))
        numbers = file.create_dataset("train_labels", (40,), "i8", chunks=(4,))
        numbers[: 40 if labels else 20] = class_of_row(np.arange(40 if labels else 20))
        file.attrs["class_names"] = np.array(CLASS_NAMES, "S")
    return path


@pytest.mark.parametrize("compression", [None, "gzip", "lzf"])
def test_images_never_written_are_refused(tmp_path, compression):
    """HDF5 would give black images with the labels of others; rows that were written can be served."""
    path = half_written(tmp_path / "half.h5", images=False, compression=compression)
    with pytest.raises(IncompleteFileError) as caught:
        BatchSource(path)
    assert str(caught.value) == (
        f"20 rows of train_img in {path} were never written, and would be black images; the first is row 20. The "
        "process that wrote the file was stopped, or the file is damaged. Build it again, or leave these rows out: "
        "rows=."
    )
    source = BatchSource(path, rows=np.arange(20), shuffle=None)
    assert rows_of(source.batch(0, 0)[0]).tolist() == list(range(20))
    source.close()


def test_class_numbers_never_written_are_refused(tmp_path):
    """HDF5 would give class 0 for each of them."""
    path = half_written(tmp_path / "half.h5", labels=False)
    with pytest.raises(IncompleteFileError) as caught:
        BatchSource(path)
    assert str(caught.value) == (
        f"20 rows of train_labels in {path} were never written; the first is row 20. The process that wrote the file "
        "was stopped, or the file is damaged. Build it again."
    )


def test_labels_that_do_not_unpack_are_a_sentence(tmp_path):
    """Damaged bytes under the labels are an error of the kit that names the file."""
    path = make_coded_file(tmp_path / "coded.h5")
    with h5py.File(path, "r+") as file:
        del file["train_labels"]
        labels = one_hot(class_of_row(np.arange(103)))
        data = file.create_dataset("train_labels", data=labels, chunks=labels.shape, compression="gzip")
        place = data.id.get_chunk_info(0).byte_offset
    with path.open("r+b") as raw:
        raw.seek(place)
        raw.write(b"\xff" * 8)
    with pytest.raises(HDF5FileError) as caught:
        BatchSource(path)
    assert str(caught.value) == (
        f"{path} opens, but what is in it cannot be read; it is probably damaged. Build or copy it again. HDF5 said: "
        "Can't synchronously read data (filter returned failure during read)"
    )


@pytest.mark.parametrize("name", ["train_img", "train_labels"])
def test_numbers_of_some_bits_are_refused(tmp_path, name):
    """One flipped bit in the description of the type makes HDF5 read 4 of the 8 bits of each pixel, without a word."""
    path = make_coded_file(tmp_path / "coded.h5")
    with h5py.File(path, "r+") as file:
        stored = file[name][:]
        del file[name]
        half = h5py.h5t.STD_U8LE.copy()
        half.set_precision(4)
        h5py.h5d.create(file.id, name.encode(), half, h5py.h5s.create_simple(stored.shape))
        file[name][:] = stored % 16
    with pytest.raises(LayoutError) as caught:
        BatchSource(path)
    assert str(caught.value) == (
        f"{name} in {path} says that of the 8 bits of a number only 4 count. Most likely the file is damaged. Copy or "
        "build it again."
    )


def test_a_chunk_that_hdf5_lists_and_does_not_find_is_an_error(tmp_path):
    """HDF5 gives black images for it: the last number of its key, of the bytes within a pixel, is not 0 any more."""
    path = make_coded_file(tmp_path / "coded.h5", compression="lzf", rows={"train": 8})
    with h5py.File(path) as file:
        chunk = file["train_img"].id.get_chunk_info_by_coord((5, 0, 0, 0))
    key = struct.pack("<II5Q", chunk.size, 0, 5, 0, 0, 0, 0)
    content = path.read_bytes()
    assert content.count(key) == 1
    path.write_bytes(content.replace(key, key[:-8] + struct.pack("<Q", 1)))
    source = BatchSource(path, batch_size=2, shuffle=None)
    assert rows_of(source.batch(0, 1)[0]).tolist() == [2, 3]
    with pytest.raises(HDF5FileError) as caught:
        source.batch(0, 2)
    source.close()
    assert str(caught.value) == (
        f"one of the rows 4 to 5 of train_img in {path} cannot be read: HDF5 said: Can't get storage size of chunk "
        f"(chunk storage is not allocated). The file is damaged. `python -m helpers.inspector {path} --verify` finds "
        "all such rows. Copy or build the file again."
    )


def test_images_cut_by_their_shape_are_refused(tmp_path):
    """One flipped bit in the shape of a dataset leaves a part of each image, without a word from HDF5."""
    path = make_coded_file(tmp_path / "coded.h5")
    content = path.read_bytes()
    shape = struct.pack("<8Q", 103, *IMAGE_SHAPE, 103, *IMAGE_SHAPE)
    assert content.count(shape) == 1
    path.write_bytes(content.replace(shape, struct.pack("<8Q", 103, 8, 16, 3, 103, *IMAGE_SHAPE)))
    with pytest.raises(HDF5FileError) as caught:
        BatchSource(path)
    assert str(caught.value) == (
        f"the index of train_img in {path} is damaged: its chunks hold more than its shape (103, 8, 16, 3) shows. Copy "
        "or build the file again."
    )

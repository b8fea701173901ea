"""An index that cannot be true is an error, in files whose format has no checksum over it."""

import struct

import h5py
import numpy as np
import pytest
from coded import IMAGE_SHAPE, make_coded_file

from helpers import places
from helpers.layout import HDF5FileError, read_split_info
from helpers.places import MISSING, check_apart, find_places
from helpers.reader import RowReader


def places_of(path, name):
    """What find_places says about a dataset."""
    with h5py.File(path) as file:
        return find_places(file[name], path, name)


def chunk_offset(path, row, name="train_img"):
    """Where the chunk of this row lies."""
    with h5py.File(path) as file:
        return file[name].id.get_chunk_info_by_coord((row, 0, 0, 0)).byte_offset


def replace_once(path, old, new):
    """Replace bytes that occur once in a file."""
    content = path.read_bytes()
    assert content.count(old) == 1
    path.write_bytes(content.replace(old, new))


def number(value):
    return struct.pack("<Q", value)


@pytest.mark.parametrize("libver", ["earliest", "latest"])
@pytest.mark.parametrize("chunks", [(1, 4, 4, 3), (4, 4, 4, 3), (4, 2, 3, 3), (40, 4, 4, 3)], ids=str)
def test_each_chunk_is_where_hdf5_has_it(tmp_path, libver, chunks):
    """Offset, size and mask of every chunk, in the order of rows; what was never written is marked."""
    path = tmp_path / "x.h5"
    with h5py.File(path, "w", libver=libver) as file:
        data = file.create_dataset("x", (23, 4, 4, 3), "u1", chunks=chunks, maxshape=(None, 4, 4, 3), compression=1)
        data[:9] = 1
        data[20:] = 1
    found = places_of(path, "x")
    with h5py.File(path) as file:
        data = file["x"]
        grid = [range(0, side, step) for side, step in zip(data.shape, chunks, strict=True)]
        corners = [(a, b, c, d) for a in grid[0] for b in grid[1] for c in grid[2] for d in grid[3]]
        infos = [data.id.get_chunk_info_by_coord(corner) for corner in corners]
        written = [info.byte_offset is not None for info in infos]
        assert (found.offsets != MISSING).tolist() == written
        assert found.offsets[written].tolist() == [info.byte_offset for info in infos if info.byte_offset is not None]
        assert found.sizes[written].tolist() == [info.size for info in infos if info.byte_offset is not None]
        starts = [row // chunks[0] * chunks[0] for row in range(23)]
        unwritten = [data.id.get_chunk_info_by_coord((start, 0, 0, 0)).byte_offset is None for start in starts]
    assert found.unwritten(np.arange(23)).tolist() == unwritten


def test_rows_in_one_piece_are_one_chunk(tmp_path):
    """A contiguous dataset has one place; one that was never written is marked."""
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["x"] = np.ones((7, 5), np.uint8)
        file.create_dataset("empty", (7, 5), "u1")
    found, empty = places_of(tmp_path / "x.h5", "x"), places_of(tmp_path / "x.h5", "empty")
    assert (found.sizes.tolist(), found.rows_a_chunk, found.unwritten(np.arange(7)).any()) == ([35], 7, False)
    assert empty.unwritten(np.arange(7)).all()


def test_what_lies_elsewhere_has_no_places(tmp_path):
    """Compact, virtual and external datasets, and those without rows, are HDF5's."""
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["source"] = np.ones((7, 5), np.uint8)
        virtual = h5py.VirtualLayout((7, 5), "u1")
        virtual[:] = h5py.VirtualSource(file["source"])
        file.create_virtual_dataset("virtual", virtual)
        file.create_dataset("external", (7,), "u1", external=[("raw", 0, 7)])
        file.create_dataset("no rows", (0, 5), "u1", chunks=(1, 5), maxshape=(None, 5))
        compact = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        compact.set_layout(h5py.h5d.COMPACT)
        file.create_dataset("compact", data=np.ones(5), dcpl=compact)
        names = ["virtual", "external", "no rows", "compact"]
        assert [find_places(file[name], tmp_path / "x.h5", name) for name in names] == [None] * 4


def to_that_of_row_7(path):
    return chunk_offset(path, 7)


def into_row_7(path):
    return chunk_offset(path, 7) + 10


def beyond_the_end(path):
    return path.stat().st_size - 10


def into_the_labels(path):
    with h5py.File(path) as file:
        return file["train_labels"].id.get_offset()


def into_the_header(path):
    with h5py.File(path) as file:
        return h5py.h5o.get_info(file.id).addr - 8


def to_the_beginning(path):
    return 0


POINTERS = {
    "the header of the root group": (into_the_header, "it lies on top of a header"),
    "the beginning of the file": (to_the_beginning, "it lies on top of a header"),
    "the chunk of another row": (to_that_of_row_7, "two of its chunks lie on top of each other"),
    "part of another chunk": (into_row_7, "two of its chunks lie on top of each other"),
    "beyond the end": (beyond_the_end, "it has a chunk at byte {place:,} of {size:,}"),
    "the labels": (into_the_labels, "it lies on top of train_labels"),
}


@pytest.mark.parametrize("compression", [None, "lzf"])
@pytest.mark.parametrize("case", POINTERS)
def test_a_chunk_that_lies_where_it_cannot_is_an_error(tmp_path, case, compression):
    """An address in the index that leads to other bytes is seen before any row is read, never a wrong picture."""
    path = make_coded_file(tmp_path / "coded.h5", compression=compression)
    where, reason = POINTERS[case]
    place, size = where(path), path.stat().st_size
    replace_once(path, number(chunk_offset(path, 50)), number(place))
    with pytest.raises(HDF5FileError) as caught:
        RowReader(path, "train_img")
    assert str(caught.value) == (
        f"the index of train_img in {path} is damaged: {reason.format(place=place, size=size)}. "
        "Copy or build the file again."
    )


def test_it_lies_on_top_of_a_far_piece(tmp_path):
    """A chunk in the middle of a long dataset, whose rows another short one follows, is seen as well."""
    path = make_coded_file(tmp_path / "coded.h5", rows={"train": 8, "valid": 3})
    with h5py.File(path, "r+") as file:
        file["long"] = np.full(100_000, 7, np.uint8)
        middle = file["long"].id.get_offset() + 50_000
    replace_once(path, number(chunk_offset(path, 5)), number(middle))
    with pytest.raises(HDF5FileError, match="it lies on top of long"):
        RowReader(path, "train_img")


def test_other_datasets_are_compared_in_linear_time(tmp_path):
    """Hundreds of small datasets beside many chunks: the chunks are sorted once, not once for each of them."""
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=np.ones((100, 2), np.uint8), chunks=(1, 2))
        for other in range(200):
            file[f"other {other}"] = np.arange(3)
    sorts = []
    with h5py.File(path) as file, pytest.MonkeyPatch.context() as patch:
        found = find_places(file["x"], path, "x")
        argsort = np.argsort
        patch.setattr(np, "argsort", lambda values, **options: sorts.append(len(values)) or argsort(values, **options))
        check_apart(file["x"], found, path, "x")
    assert (sorts.count(100), set(sorts)) == (1, {100, 1})  # the others sort their one piece


def test_datasets_of_the_same_group_come_first(tmp_path, monkeypatch):
    """Of many others a stated number is looked at: the labels beside the images are among them."""
    monkeypatch.setattr(places, "_MOST_OTHERS", 3)
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        for other in range(5):
            file[f"a/{other}"] = np.arange(3)
        file["food/x"], file["food/y"] = np.ones((4, 2)), np.ones(4)
        looked = []
        monkeypatch.setattr(places, "find_places", lambda data, *_: looked.append(data.name))
        check_apart(file["food/x"], places.Places(*[np.array([0])] * 3, (4, 2), (1, 1)), path, "food/x")
    assert looked == ["/food/y", "/a/0", "/a/1"]


def test_other_datasets_that_are_damaged_do_not_matter(coded_file):
    """Training on one split goes on when the index of another is damaged."""
    replace_once(coded_file, number(chunk_offset(coded_file, 5, "test_img")), number(2**40))
    with h5py.File(coded_file) as file:
        found = find_places(file["train_img"], coded_file, "train_img")
        check_apart(file["train_img"], found, coded_file, "train_img")
    with pytest.raises(HDF5FileError):
        RowReader(coded_file, "test_img")


def test_more_chunks_than_bytes_cannot_be(tmp_path):
    """A shape that asks for memory without bound is refused before any is taken."""
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("x", (2**40, *IMAGE_SHAPE), "u1", chunks=(1, *IMAGE_SHAPE))
    size = path.stat().st_size
    with pytest.raises(HDF5FileError) as caught:
        RowReader(path, "x")
    assert str(caught.value) == (
        f"the index of x in {path} is damaged: its shape (1099511627776, 16, 16, 3) asks for 1,099,511,627,776 chunks "
        f"in {size:,} bytes. Copy or build the file again."
    )


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, "a chunk of 768 bytes has only 700 in the file"),
        ({"compression": "lzf"}, None),
        ({"compression": "gzip", "shape": (1, 1000, 1000, 3)}, "no filter packs 3,000,000 bytes into 700"),
    ],
    ids=["plain", "packed", "packed beyond belief"],
)
def test_stored_sizes_that_cannot_be(tmp_path, options, reason):
    """A plain chunk has all its bytes, and a packed one was not packed a thousand times."""
    path = tmp_path / "x.h5"
    shape = options.pop("shape", (1, *IMAGE_SHAPE))
    with h5py.File(path, "w") as file:
        data = file.create_dataset("x", shape, "u1", chunks=shape, **options)
        data.id.write_direct_chunk((0, 0, 0, 0), bytes(700))
    if reason is None:
        assert places_of(path, "x").sizes.tolist() == [700]
        return
    with pytest.raises(HDF5FileError) as caught:
        places_of(path, "x")
    assert str(caught.value) == f"the index of x in {path} is damaged: {reason}. Copy or build the file again."


def test_a_shape_smaller_than_its_chunks_is_an_error(tmp_path):
    """HDF5 makes no such dataset; where the stored shape was damaged it would give a part of each image."""
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=np.ones((5, 99, 16, 3), np.uint8), chunks=(1, 99, 16, 3), compression="lzf")
    shape = struct.pack("<8Q", 5, 99, 16, 3, 5, 99, 16, 3)  # and the largest that it may grow to
    replace_once(path, shape, shape.replace(number(99), number(50)))
    with pytest.raises(HDF5FileError) as caught:
        RowReader(path, "x")
    assert str(caught.value) == (
        f"the index of x in {path} is damaged: its shape (5, 50, 16, 3) cannot grow to the size of its chunks, "
        "(1, 99, 16, 3). Copy or build the file again."
    )


GROWN = {
    "chunks of the images": {"chunks": (1, 13, 16, 3)},
    "chunks of the largest image": {"chunks": (2, 16, 16, 3), "compression": "gzip", "fillvalue": 9},
    "pieces": {"chunks": (2, 5, 6, 3), "compression": "lzf", "shuffle": True},
    "any size": {"chunks": (1, 16, 16, 3), "maxshape": (None, None, None, 3)},
}


@pytest.mark.parametrize("libver", ["earliest", "latest"])
@pytest.mark.parametrize("case", GROWN)
def test_images_with_room_to_grow_are_served(tmp_path, case, libver):
    """A sound file whose largest shape is beyond that of its images, grown or shrunk to it, reads as it was stored."""
    path = tmp_path / "x.h5"
    images = np.random.default_rng(0).integers(1, 256, (5, 13, 16, 3), np.uint8)
    with h5py.File(path, "w", libver=libver) as file:
        options = {"maxshape": (None, 16, 16, 3), **GROWN[case]}
        file.create_dataset("x", data=images, **options)
        shrunk = file.create_dataset("shrunk", (5, 16, 16, 3), "u1", **options)
        shrunk[:] = 7
        shrunk.resize(images.shape)
        shrunk[:] = images
        file["y"] = np.arange(5)
    for name in ("x", "shrunk"):
        assert read_split_info(path, images=name, labels="y").image_shape == (13, 16, 3)
        with RowReader(path, name) as reader:
            np.testing.assert_array_equal(reader.read(range(5)), images)


@pytest.mark.parametrize("side", [8, 15])
@pytest.mark.parametrize("case", GROWN)
def test_images_cut_by_a_damaged_shape_are_an_error(tmp_path, case, side):
    """One number of the shape that became smaller: chunks beyond it, or pixels in them, are there to tell."""
    path = tmp_path / "x.h5"
    images = np.random.default_rng(0).integers(1, 256, (5, 16, 16, 3), np.uint8)
    options = {"maxshape": (None, 16, 16, 3), **GROWN[case]}
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=images, **options)
    with h5py.File(path) as file:
        most = b"".join(number(2**64 - 1 if side is None else side) for side in file["x"].maxshape)
    shape = struct.pack("<4Q", *images.shape) + most
    replace_once(path, shape, struct.pack("<4Q", 5, side, 16, 3) + most)
    with pytest.raises(HDF5FileError) as caught:
        RowReader(path, "x")
    assert str(caught.value).startswith(f"the index of x in {path} is damaged: ")
    assert f"(5, {side}, 16, 3)" in str(caught.value)


def test_a_damaged_chunk_at_the_edge_is_told_of_when_it_is_read(tmp_path):
    """The look beyond the shape leaves it to the reader: all other rows are served."""
    path = tmp_path / "x.h5"
    images = np.random.default_rng(0).integers(1, 256, (5, 13, 16, 3), np.uint8)
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=images, chunks=(1, 16, 16, 3), maxshape=(5, 16, 16, 3), compression="gzip")
        place = file["x"].id.get_chunk_info(2).byte_offset
    with path.open("r+b") as file:
        file.seek(place)
        file.write(bytes(8))
    with RowReader(path, "x") as reader:
        np.testing.assert_array_equal(reader.read([0, 1, 3, 4]), images[[0, 1, 3, 4]])
        with pytest.raises(HDF5FileError):
            reader.read([2])

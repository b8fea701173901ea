"""A badly laid out file becomes a good one with the same rows, or none; kills, damage and odd contents included."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import subprocess
import sys
import tracemalloc
import zlib
from pathlib import Path

import h5py
import numpy as np
import pytest
from coded import CLASS_NAMES, class_of_row, coded_images, make_coded_file, one_hot, rows_of

from data_scripts import rechunk_copy, rechunk_move, rechunk_plan, rechunk_rows
from data_scripts.rechunk import main, rechunk
from data_scripts.rechunk_copy import CopyError
from data_scripts.rechunk_plan import spread_classes
from data_scripts.rechunk_rows import DamagedRowError, row_blocks
from data_scripts.rechunk_sets import RechunkError
from data_scripts.splits import spread
from helpers import HDF5Writer, RowReader, inspect_file, layout
from helpers.images import encode_jpeg
from helpers.part_file import PartFile

ROOT = Path(__file__).parents[2]
N, SHAPE = 103, (16, 16, 3)
BAD_CHUNKS = (13, 5, 7, 1)

LAYOUTS = {
    "contiguous": {},
    "cut chunks": {"chunks": BAD_CHUNKS},
    "cut chunks, gzip": {"chunks": BAD_CHUNKS, "compression": "gzip"},
    "cut chunks, lzf": {"chunks": BAD_CHUNKS, "compression": "lzf"},
    "all rows in a chunk": {"chunks": (N, 3, 16, 3), "compression": "gzip"},
    "large gzip chunks": {"chunks": (50, 16, 16, 3), "compression": "gzip"},
    "shuffle and checksum": {"chunks": (10, 16, 8, 3), "compression": "gzip", "shuffle": True, "fletcher32": True},
    "scale-offset": {"chunks": (10, 16, 16, 3), "scaleoffset": 8},
    "tiny chunks": {"chunks": (3, 4, 4, 1)},
    "resizable, chunk above the rows": {"chunks": (200, 20, 16, 3), "maxshape": (None, None, 16, 3)},
    "gzip chunk above the rows": {"chunks": (200, 20, 16, 3), "maxshape": (None, None, 16, 3), "compression": "gzip"},
    "one image a chunk": {"chunks": (1, 16, 16, 3)},
}


def quiet(source, out, **options):
    return rechunk(source, out, progress=False, **options)


def sorted_rows(n: int = N) -> np.ndarray:
    """Coded row numbers in the order of a file that is sorted by class."""
    return np.argsort(class_of_row(np.arange(n)), kind="stable")


def make_foreign(path: Path, rows: np.ndarray | None = None, images="pics", labels="labels", **layout_options) -> Path:
    """A file without any attribute: coded images of these rows, class numbers beside them."""
    rows = np.arange(N) if rows is None else rows
    with h5py.File(path, "w") as file:
        file.create_dataset(images, data=coded_images(rows), **layout_options)
        file[labels] = class_of_row(rows)
    return path


def make_sorted(path: Path, **layout_options) -> Path:
    """The same, sorted by class, with companions of several kinds."""
    rows = sorted_rows()
    make_foreign(path, rows, **layout_options)
    with h5py.File(path, "a") as file:
        file["boxes"] = rows[:, None] + np.arange(4.0)
        file["names"] = [f"photo {row}.jpg" for row in rows]
        file["sub/ids"] = rows.astype(">u2")
        file.create_dataset(
            "masks", data=coded_images(rows, shape=(64, 64, 3))[..., 0], chunks=(7, 9, 64), compression="lzf"
        )
        parts = file.create_dataset("parts", (len(rows),), h5py.vlen_dtype(np.float32))
        for place, row in enumerate(rows):
            parts[place] = np.full(row % 3, row)
        file["class_table"] = np.arange(5)
    return path


def content(path: Path) -> dict:
    """All that a file holds, for comparison: datasets, links and attributes with their types."""
    found = {}
    with h5py.File(path) as file:

        def add(name, item):
            attributes = {key: _plain(item.attrs[key]) for key in item.attrs}
            kinds = {key: str(h5py.h5a.open(item.id, key.encode()).dtype) for key in item.attrs}
            value = _plain(item[()]) if isinstance(item, h5py.Dataset) else None
            found[name] = (str(getattr(item, "dtype", "")), value, attributes, kinds)

        add("", file["/"])
        file.visititems(add)
    return found


def _plain(value):
    value = np.asarray(value) if not isinstance(value, h5py.Empty) else value
    if not isinstance(value, np.ndarray):
        return repr(value)
    if value.dtype.hasobject:
        return [np.asarray(each).tolist() for each in value.ravel()]
    return value.dtype.str, value.shape, zlib.crc32(np.ascontiguousarray(value).tobytes())


def check_pair(path: Path, images="pics", labels="labels", sums="pics_crc32") -> np.ndarray:
    """Labels and sums belong to the images, and chunks are whole images; returns the coded rows."""
    with h5py.File(path) as file:
        pixels, numbers = file[images][:], file[labels][:]
        rows = rows_of(pixels)
        np.testing.assert_array_equal(pixels, coded_images(rows))
        np.testing.assert_array_equal(numbers, class_of_row(rows))
        assert file[images].chunks == (1, *SHAPE)
        assert file[sums].dtype == np.uint32
        assert file[sums][:].tolist() == [zlib.crc32(image.tobytes()) for image in pixels]
    return rows


# -- layouts ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("slab_bytes", "cache_bytes"),
    [(2**27, 2**20), (20_000, 2**20), (20_000, 0), (1, 2**20)],
    ids=["in memory", "scratch file", "parts of chunks", "least memory"],
)
@pytest.mark.parametrize("name", LAYOUTS)
def test_rows_are_the_same_whatever_the_layout(tmp_path, monkeypatch, name, slab_bytes, cache_bytes):
    """Any chunks and filters, in memory or through the scratch file: each row is there, in order, with its label."""
    monkeypatch.setattr(rechunk_rows, "SLAB_BYTES", slab_bytes)
    monkeypatch.setattr(rechunk_rows, "BLOCK_BYTES", 5_000)
    monkeypatch.setattr(rechunk_rows, "_CACHE_BYTES", cache_bytes)
    source = make_foreign(tmp_path / "in.h5", **LAYOUTS[name])
    report = quiet(source, tmp_path / "out.h5")
    assert check_pair(tmp_path / "out.h5").tolist() == list(range(N))
    assert report.verified == {"labels": N, "pics": N}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.h5", "out.h5"]


# Tiny chunks are read many at a time, and large gzip chunks of whole images as a stream, once by construction.
EACH_CHUNK = sorted(LAYOUTS.keys() - {"contiguous", "tiny chunks", "large gzip chunks", "gzip chunk above the rows"})


@pytest.mark.parametrize("slab_bytes", [2**27, 20_000, 1])
@pytest.mark.parametrize("name", EACH_CHUNK)
def test_each_chunk_is_read_once(tmp_path, monkeypatch, name, slab_bytes):
    """No chunk is unpacked twice, whatever the memory."""
    asked = []
    read = rechunk_rows._read_into
    monkeypatch.setattr(rechunk_rows, "SLAB_BYTES", slab_bytes)
    monkeypatch.setattr(rechunk_rows, "_SMALL_CHUNK_BYTES", 0)  # these images are small, and so are their chunks
    monkeypatch.setattr(
        rechunk_rows, "_read_into", lambda data, corner, out: (asked.append(corner), read(data, corner, out))
    )
    with h5py.File(make_foreign(tmp_path / "in.h5", **LAYOUTS[name])) as file:
        for _ in row_blocks(file["pics"], tmp_path):
            pass
        stored = [
            file["pics"].id.get_chunk_info(index).chunk_offset for index in range(file["pics"].id.get_num_chunks())
        ]
    assert sorted(asked) == sorted(stored)


@pytest.mark.parametrize("start", [0, 1, 12, 13, 57, 102])
def test_reading_begins_at_any_row(tmp_path, monkeypatch, start):
    """A run that goes on gets exactly the rows that are missing."""
    monkeypatch.setattr(rechunk_rows, "SLAB_BYTES", 9_000)
    monkeypatch.setattr(rechunk_rows, "BLOCK_BYTES", 3_000)
    with h5py.File(make_foreign(tmp_path / "in.h5", chunks=BAD_CHUNKS)) as file:
        blocks = [(first, block.copy()) for first, block in row_blocks(file["pics"], tmp_path, start)]
    assert [first for first, _ in blocks] == [start, *np.cumsum([len(block) for _, block in blocks[:-1]]) + start]
    np.testing.assert_array_equal(np.concatenate([block for _, block in blocks]), coded_images(np.arange(start, N)))


KINDS = {
    "greyscale": (lambda images: images[..., 0], (9, 5, 16)),
    "float32": (lambda images: images.astype(np.float32) / 255, (9, 5, 16, 3)),
    "float16": (lambda images: images.astype(np.float16), (9, 5, 16, 3)),
    "big-endian uint16": (lambda images: images.astype(">u2") * 100, (9, 5, 16, 3)),
    "four channels": (lambda images: images[..., [0, 1, 2, 0]], (9, 5, 16, 2)),
    "bool": (lambda images: images > 7, (9, 16, 16, 3)),
}


@pytest.mark.parametrize("compression", [None, "gzip"])
@pytest.mark.parametrize("name", KINDS)
def test_numbers_of_any_type_and_shape_keep_them(tmp_path, name, compression):
    """Images of other types and shapes are put into whole-image chunks without a change of a bit."""
    convert, chunks = KINDS[name]
    images = convert(coded_images(np.arange(N)))
    with h5py.File(tmp_path / "in.h5", "w") as file:
        file.create_dataset("x", data=images, chunks=chunks, compression="gzip")
        file["y"] = class_of_row(np.arange(N)).astype(np.int32)
    quiet(tmp_path / "in.h5", tmp_path / "out.h5", images="x", labels="y", compression=compression)
    with h5py.File(tmp_path / "out.h5") as file:
        data = file["x"]
        assert (data.dtype, data.chunks, data.compression) == (images.dtype, (1, *images.shape[1:]), compression)
        np.testing.assert_array_equal(data[:], images)
        assert file["x_crc32"][:].tolist() == [zlib.crc32(image.tobytes()) for image in images]
        assert (file["y"].dtype, file["y"].chunks) == (np.int32, (N,))


@pytest.mark.parametrize("order", ["keep", "mix"])
def test_jpeg_bytes_stay_as_they_are(tmp_path, order):
    """JPEG bytes are not decoded; each goes with its label, and gzip does not apply."""
    rows = np.arange(N)
    encoded = [encode_jpeg(image) for image in coded_images(rows)]
    with h5py.File(tmp_path / "in.h5", "w") as file:
        images = file.create_dataset("x", (N,), h5py.vlen_dtype(np.uint8), chunks=(5,))
        for row, stored in enumerate(encoded):
            images[row] = np.frombuffer(stored, np.uint8)
        images.attrs["image_shape"] = SHAPE
        file["y"] = one_hot(class_of_row(rows))
        file["number"] = rows
    report = quiet(tmp_path / "in.h5", tmp_path / "out.h5", images="x", labels="y", order=order, compression="gzip")
    with h5py.File(tmp_path / "out.h5") as file:
        moved = file["number"][:]
        assert sorted(moved) == rows.tolist()
        assert (moved.tolist() == rows.tolist()) == (order == "keep")
        assert [stored.tobytes() for stored in file["x"]] == [encoded[row] for row in moved]
        assert file["x_crc32"][:].tolist() == [zlib.crc32(encoded[row]) for row in moved]
        np.testing.assert_array_equal(file["y"][:], one_hot(class_of_row(moved)))
        assert file["x"].attrs["image_shape"].tolist() == [16, 16, 3]
    assert report.notes == ["x holds JPEG bytes: gzip would not make them smaller and is not used"]


@pytest.mark.parametrize("storage", ["raw", "jpeg"])
def test_a_file_of_the_kit_stays_one(tmp_path, storage):
    """All splits are done, class names, mean, seed and source stay, and a sequence can read the result."""
    with HDF5Writer(tmp_path / "in.h5", SHAPE, CLASS_NAMES, storage=storage, seed=3, source="toys") as writer:
        for split, n in (("train", 40), ("valid", 20), ("test", 0)):
            writer.append(split, coded_images(np.arange(n), split), class_of_row(np.arange(n)))
    report = quiet(tmp_path / "in.h5", tmp_path / "out.h5", order="keep")
    before, after = content(tmp_path / "in.h5"), content(tmp_path / "out.h5")
    assert {name: after[name] for name in before} == before
    assert [each.images for each in report.images] == ["train_img", "valid_img", "test_img"]
    assert inspect_file(tmp_path / "out.h5", verify=True).faults == []
    info = layout.read_file_info(tmp_path / "out.h5")
    assert (info.complete, info.class_names, info.seed, info.source) == (True, CLASS_NAMES, 3, "toys")


def test_the_repaired_file_has_no_fault_left(tmp_path):
    """The inspector's warnings about chunks and order are gone."""
    make_coded_file(tmp_path / "bad.h5", rows={"train": 200, "valid": 64, "test": 20})
    with h5py.File(tmp_path / "bad.h5", "a") as file:
        order = sorted_rows(200)
        for name, chunks in (("train_img", BAD_CHUNKS), ("train_labels", None)):
            values = file[name][:][order]
            del file[name]
            file.create_dataset(name, data=values, chunks=chunks, compression="gzip" if chunks else None)
    assert {"cut-chunks", "class-sorted"} <= {warning.code for warning in inspect_file(tmp_path / "bad.h5").warnings}
    report = quiet(tmp_path / "bad.h5", tmp_path / "good.h5")
    assert [(each.images, each.mixed) for each in report.images] == [
        ("train_img", True),
        ("valid_img", False),
        ("test_img", False),
    ]
    after = inspect_file(tmp_path / "good.h5", verify=True)
    assert (after.faults, after.warnings) == ([], [])
    rows = RowReader(tmp_path / "good.h5", "train_img").read([5, 0, 5])
    with h5py.File(tmp_path / "good.h5") as file:
        np.testing.assert_array_equal(rows, file["train_img"][:][[5, 0, 5]])


def test_an_unfinished_file_says_so(tmp_path, monkeypatch):
    """The attribute `complete` is false until everything was compared."""
    source, write, calls = make_coded_file(tmp_path / "in.h5"), rechunk_rows.ScatteredRows.write, []

    def interrupted(self, rows, places):
        calls.append(len(rows))
        if len(calls) == 3:
            raise KeyboardInterrupt
        write(self, rows, places)

    monkeypatch.setattr(rechunk_rows.ScatteredRows, "write", interrupted)
    with pytest.raises(KeyboardInterrupt):
        quiet(source, tmp_path / "out.h5")
    with PartFile(tmp_path / "out.h5", resume=True) as part:
        assert sorted(part.state["verified"]) == [
            "test_labels",
            "train_img",
            "train_labels",
            "valid_img",
            "valid_labels",
        ]
        assert not part.file.attrs["complete"]
    quiet(source, tmp_path / "out.h5", resume=True)
    assert layout.read_file_info(tmp_path / "out.h5").complete is True


def test_files_without_rows_are_copied(tmp_path):
    """A pair of no rows gives a pair of no rows."""
    with h5py.File(tmp_path / "in.h5", "w") as file:
        file.create_dataset("x", (0, 8, 8, 3), np.uint8)
        file.create_dataset("y", (0,), np.int64)
    report = quiet(tmp_path / "in.h5", tmp_path / "out.h5", images="x", labels="y", order="mix")
    assert report.verified == {"y": 0, "x": 0}
    with h5py.File(tmp_path / "out.h5") as file:
        assert {name: file[name].shape for name in file} == {"x": (0, 8, 8, 3), "x_crc32": (0,), "y": (0,)}


# -- order ------------------------------------------------------------------------------------------------------------


def test_mixing_spreads_each_class_evenly():
    """Of k rows of a class, one lies in each k-th of the rows, give or take a few places."""
    numbers = np.repeat([0, 1, 2, 3], [400, 200, 100, 7])
    mixed = numbers[spread_classes(numbers, np.random.default_rng(1))]
    for number, k in enumerate([400, 200, 100, 7]):
        places = np.flatnonzero(mixed == number) / len(mixed) * k
        assert np.abs(places - (np.arange(k) + 0.5)).max() < 0.5 + 8 * k / len(mixed)


def test_mixing_follows_the_rule_of_the_builder():
    """The places of classes are those that data_scripts.build_hdf5 gives to as many pictures."""
    numbers = np.random.default_rng(0).permutation(np.repeat([0, 1, 2], [9, 30, 4]))
    rng = np.random.default_rng(5)
    rng.permutation(len(numbers))  # which row of a class gets which of its places
    paths = [[str(number)] * int((numbers == number).sum()) for number in range(3)]
    expected = [number for _, number in spread(paths, rng)]
    assert numbers[spread_classes(numbers, np.random.default_rng(5))].tolist() == expected


def test_the_order_of_a_seed_is_pinned():
    """Other people's row numbers rely on it."""
    order = spread_classes(np.array([7, 7, 7, 7, 2, 2, 2, 2, 5]), np.random.default_rng(0))
    assert order.tolist() == PINNED
    assert sorted(order) == list(range(9))
    assert spread_classes(np.empty(0, np.int64), np.random.default_rng(0)).tolist() == []


PINNED = [2, 4, 5, 3, 0, 6, 8, 1, 7]


def test_rows_of_a_class_are_shuffled_too():
    """Within a class, the order of the input is not kept: its last rows may be the odd ones."""
    order = spread_classes(np.zeros(200, np.int64), np.random.default_rng(0))
    assert np.abs(np.diff(order)).mean() > 40


LABELS = {
    "class numbers": lambda numbers: numbers,
    "one-hot": one_hot,
    "one-hot float": lambda numbers: one_hot(numbers).astype(np.float32),
    "big-endian": lambda numbers: numbers.astype(">i4"),
    "one column": lambda numbers: numbers[:, None],
    "names": lambda numbers: np.array([CLASS_NAMES[number].encode() for number in numbers]),
    "texts": lambda numbers: np.array([CLASS_NAMES[number].encode() for number in numbers], object),
}


@pytest.mark.parametrize("kind", LABELS)
def test_labels_of_any_kind_are_mixed_by_class(tmp_path, kind):
    """Class numbers, one-hot rows and names all spread their classes, and keep their type."""
    rows = sorted_rows()
    labels = LABELS[kind](class_of_row(rows))
    with h5py.File(tmp_path / "in.h5", "w") as file:
        file["pics"], file["labels"] = coded_images(rows), labels
    quiet(tmp_path / "in.h5", tmp_path / "out.h5", images="pics", labels="labels", order="mix", seed=4)
    with h5py.File(tmp_path / "out.h5") as file:
        moved = rows_of(file["pics"][:])
        assert file["labels"].dtype == labels.dtype
        assert file["labels"].shape == labels.shape
        np.testing.assert_array_equal(file["labels"][:], LABELS[kind](class_of_row(moved)))
    classes = class_of_row(moved)
    assert sorted(moved) == list(range(N))
    assert min(len(set(classes[first : first + 20])) for first in range(0, 80, 20)) == 5


@pytest.mark.parametrize(
    ("order", "is_sorted", "mixed"),
    [("auto", True, True), ("auto", False, False), ("keep", True, False), ("mix", False, True)],
)
def test_order_says_when_rows_are_mixed(tmp_path, order, is_sorted, mixed):
    """Auto mixes only what is sorted by class; keep and mix do what they say."""
    source = make_foreign(tmp_path / "in.h5", sorted_rows() if is_sorted else np.arange(N))
    report = quiet(source, tmp_path / "out.h5", order=order)
    rows = check_pair(tmp_path / "out.h5")
    assert report.images[0].mixed == mixed
    assert (rows.tolist() == rows_of(h5py_rows(source))[:].tolist()) != mixed


def h5py_rows(path: Path) -> np.ndarray:
    with h5py.File(path) as file:
        return file["pics"][:]


def test_the_same_seed_gives_the_same_order_and_another_another(tmp_path):
    """Mixing depends on the seed alone."""
    source = make_sorted(tmp_path / "in.h5")
    orders = []
    for number, seed in enumerate((3, 3, 4)):
        quiet(source, tmp_path / f"{number}.h5", seed=seed)
        orders.append(check_pair(tmp_path / f"{number}.h5").tolist())
    assert orders[0] == orders[1] != orders[2]


# -- companions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gather_bytes", [2**26, 1], ids=["in memory", "scratch file"])
def test_companions_move_with_their_images(tmp_path, monkeypatch, gather_bytes):
    """Boxes, texts, ids in another group, masks and lists of numbers still belong to their image."""
    monkeypatch.setattr(rechunk_rows, "GATHER_BYTES", gather_bytes)
    monkeypatch.setattr(rechunk_rows, "BLOCK_BYTES", 5_000)
    source = make_sorted(tmp_path / "in.h5", chunks=BAD_CHUNKS)
    report = quiet(source, tmp_path / "out.h5", images="pics", labels="labels")
    rows = check_pair(tmp_path / "out.h5")
    assert report.images[0].companions == ("boxes", "masks", "names", "parts", "sub/ids")
    with h5py.File(tmp_path / "out.h5") as file:
        np.testing.assert_array_equal(file["boxes"][:], rows[:, None] + np.arange(4.0))
        assert file["names"].asstr()[:].tolist() == [f"photo {row}.jpg" for row in rows]
        assert (file["sub/ids"].dtype, file["sub/ids"][:].tolist()) == (np.dtype(">u2"), rows.tolist())
        np.testing.assert_array_equal(file["masks"][:], coded_images(rows, shape=(64, 64, 3))[..., 0])
        assert (file["masks"].chunks, file["masks"].compression) == ((1, 64, 64), "gzip")
        assert [part.tolist() for part in file["parts"]] == [[row] * (row % 3) for row in rows]
        assert file["class_table"][:].tolist() == [0, 1, 2, 3, 4]
    assert report.copied == 1
    assert report.verified == dict.fromkeys(["labels", "boxes", "masks", "names", "parts", "sub/ids", "pics"], N)


def test_kept_datasets_stay_where_they_are(tmp_path):
    """--keep leaves a dataset alone although it has as many rows as there are images."""
    source = make_sorted(tmp_path / "in.h5")
    report = quiet(source, tmp_path / "out.h5", images="pics", labels="labels", keep=["boxes", "masks"])
    with h5py.File(source) as before, h5py.File(tmp_path / "out.h5") as after:
        np.testing.assert_array_equal(after["boxes"][:], before["boxes"][:])
        assert after["masks"].chunks == (7, 9, 64)
    assert report.images[0].companions == ("names", "parts", "sub/ids")


def test_companions_of_two_splits_of_one_size_go_by_name(tmp_path):
    """Where train and valid have as many rows, the name decides; masks that share labels move with them."""
    rows = sorted_rows()
    with h5py.File(tmp_path / "in.h5", "w") as file:
        for split in ("train", "valid"):
            file[f"{split}_img"], file[f"{split}_labels"] = coded_images(rows, split), class_of_row(rows)
            file[f"{split}_ids"] = rows
            file[f"{split}_crc32"] = [zlib.crc32(image.tobytes()) for image in coded_images(rows, split)]
    with h5py.File(tmp_path / "in.h5", "a") as file:
        for split in ("train", "valid"):
            sums = file[f"{split}_crc32"][:].astype(np.uint32)
            del file[f"{split}_crc32"]
            file[f"{split}_crc32"] = sums
    report = quiet(tmp_path / "in.h5", tmp_path / "out.h5")
    assert [each.companions for each in report.images] == [("train_ids",), ("valid_ids",)]
    with h5py.File(tmp_path / "out.h5") as file:
        for split in ("train", "valid"):
            ids = file[f"{split}_ids"][:]
            np.testing.assert_array_equal(rows_of(file[f"{split}_img"][:]), ids)
            sums = [zlib.crc32(image.tobytes()) for image in coded_images(ids, split)]
            assert file[f"{split}_crc32"][:].tolist() == sums


def test_a_pair_that_was_not_named_stays(tmp_path):
    """Naming one pair leaves the others of the file alone, even when they have as many rows."""
    rows = sorted_rows()
    with h5py.File(tmp_path / "in.h5", "w") as file:
        for split in ("train", "valid"):
            file[f"{split}_img"], file[f"{split}_labels"] = coded_images(rows, split), class_of_row(rows)
    report = quiet(tmp_path / "in.h5", tmp_path / "out.h5", images="train_img", labels="train_labels")
    assert [(each.images, each.companions) for each in report.images] == [("train_img", ())]
    with h5py.File(tmp_path / "out.h5") as file:
        assert rows_of(file["valid_img"][:]).tolist() == rows.tolist()
        assert "valid_crc32" not in file


def make_two_pairs(path: Path, **names) -> Path:
    """Images sorted by class, and beside them a second pair: images and a number each, which its name ties to them."""
    rows = sorted_rows()
    with h5py.File(path, "w") as file:
        for split, (images, numbers) in zip(("train", "valid"), names.items(), strict=True):
            file[images], file[numbers] = coded_images(rows, split), class_of_row(rows) if split == "train" else rows
    return path


SECOND_PAIRS = {
    "both found": ({"img": "labels", "depth": "depth_scale"}, {}),
    "both found, mixed on request": ({"img": "labels", "depth": "depth_scale"}, {"order": "mix"}),
    "one named": ({"img": "labels", "mask": "mask_id"}, {"images": "img", "labels": "labels"}),
    "in a split": ({"train_x": "train_y", "train_mask": "train_mask_id"}, {"images": "train_x", "labels": "train_y"}),
    "beside a split": ({"train_x": "train_y", "depth": "depth_scale"}, {}),
}


@pytest.mark.parametrize("case", SECOND_PAIRS)
def test_what_looks_like_a_second_pair_moves_with_the_images(tmp_path, case):
    """A depth map with a number of its own still lies in the row of its image."""
    names, options = SECOND_PAIRS[case]
    quiet(make_two_pairs(tmp_path / "in.h5", **names), tmp_path / "out.h5", **options)
    (images, labels), (second, numbers) = names.items()
    with h5py.File(tmp_path / "out.h5") as file:
        rows = rows_of(file[images][:])
        assert rows.tolist() != sorted_rows().tolist()
        np.testing.assert_array_equal(file[labels][:], class_of_row(rows))
        np.testing.assert_array_equal(file[second][:], coded_images(rows, "valid"))
        np.testing.assert_array_equal(file[numbers][:], rows)
        classes = class_of_row(rows)
    assert min(len(set(classes[first : first + 20])) for first in range(0, 80, 20)) == 5


def test_a_second_pair_can_be_kept(tmp_path):
    """--keep leaves images alone that would be found as a pair of their own."""
    source = make_two_pairs(tmp_path / "in.h5", img="labels", depth="depth_scale")
    report = quiet(source, tmp_path / "out.h5", keep=["depth", "depth_scale"])
    assert [each.images for each in report.images] == ["img"]
    with h5py.File(tmp_path / "out.h5") as file:
        assert rows_of(file["img"][:]).tolist() != sorted_rows().tolist()
        np.testing.assert_array_equal(file["depth"][:], coded_images(sorted_rows(), "valid"))
        assert file["depth_scale"][:].tolist() == sorted_rows().tolist()


def test_what_belongs_to_a_split_that_was_not_named_stays_with_it(tmp_path):
    """The ids of a split are nearer to its own images than to those of the pair that is mixed."""
    source = make_two_pairs(tmp_path / "in.h5", train_x="train_y", valid_x="valid_y")
    with h5py.File(source, "a") as file:
        file["valid_ids"] = file["train_ids"] = sorted_rows()
    report = quiet(source, tmp_path / "out.h5", images="train_x", labels="train_y")
    assert [each.companions for each in report.images] == [("train_ids",)]


def test_pairs_that_share_their_labels_stay_together(tmp_path):
    """Two image datasets over one label dataset get one order."""
    rows = sorted_rows()
    with h5py.File(tmp_path / "in.h5", "w") as file:
        file["left"], file["right"] = coded_images(rows), coded_images(rows, "valid")
        file["labels"] = class_of_row(rows)
    quiet(tmp_path / "in.h5", tmp_path / "out.h5", images=["left", "right"], labels=["labels", "labels"])
    with h5py.File(tmp_path / "out.h5") as file:
        left, right = rows_of(file["left"][:]), rows_of(file["right"][:])
        assert left.tolist() == right.tolist() != rows.tolist()
        assert file["labels"][:].tolist() == class_of_row(left).tolist()


# -- everything else --------------------------------------------------------------------------------------------------


def test_attributes_groups_links_and_scales_are_copied(tmp_path):
    """Attributes keep their stored types, links and second names stay, dimension scales are attached again."""
    source = make_sorted(tmp_path / "in.h5", chunks=BAD_CHUNKS)
    with h5py.File(source, "a") as file:
        file.attrs["text"] = "caf\u00e9"
        file.attrs["bytes"] = np.bytes_("latin \xe9".encode("latin-1"))
        file.attrs.create("names", ["\u00e4", "b"], dtype=h5py.string_dtype("utf-8"))
        file.attrs.create("fixed", np.array([b"a", b"bc"]), dtype=h5py.string_dtype("utf-8", 5))
        file.attrs["flag"] = True
        file.attrs.create("big", np.arange(3), dtype=">i2")
        file.attrs["nothing"] = h5py.Empty("f4")
        file.attrs.create("colour", 1, dtype=h5py.enum_dtype({"red": 0, "green": 1}, "u1"))
        file.attrs["point"] = np.array([(1, 2.5)], dtype=[("x", "i4"), ("y", "f8")])
        file.create_group("empty/inside", track_order=True).attrs["why"] = "kept"
        file["pics"].attrs["image_shape"] = SHAPE
        file["labels"].attrs["classes"] = 5
        file["again"] = file["pics"]
        file["sub/same"] = file["class_table"]
        file["soft"] = h5py.SoftLink("/sub/ids")
        file["nowhere"] = h5py.SoftLink("/not/here")
        file["kind"] = np.dtype([("x", "i4")])
        file["number"] = 4
        file.create_dataset("void", data=h5py.Empty("f4"))
        file["width"] = np.arange(16)
        file["width"].make_scale("the width")
        file["pics"].dims[2].attach_scale(file["width"])
        file["pics"].dims[2].label = "x"
        file["sub/ids"].make_scale("row")
        file["pics"].dims[0].attach_scale(file["sub/ids"])
    quiet(source, tmp_path / "out.h5", images="pics", labels="labels", order="keep")
    before, after = content(source), content(tmp_path / "out.h5")
    for item in (*before.values(), *after.values()):
        for name in ("DIMENSION_LIST", "REFERENCE_LIST"):
            item[2].pop(name, None)
    del after["pics_crc32"]
    assert after == before
    with h5py.File(tmp_path / "out.h5") as file:
        assert file["again"] == file["pics"]
        assert file["sub/same"] == file["class_table"]
        assert file.get("soft", getlink=True).path == "/sub/ids"
        assert file.get("nowhere", getlink=True).path == "/not/here"
        assert (file["pics"].dims[2]["the width"], file["pics"].dims[2].label) == (file["width"], "x")
        assert file["pics"].dims[0]["row"] == file["sub/ids"]
        assert file["empty/inside"].id.get_create_plist().get_link_creation_order() != 0


def test_second_names_of_a_pair_are_no_second_pair(tmp_path):
    """A guess that finds one dataset under two names takes it once."""
    with h5py.File(make_foreign(tmp_path / "in.h5", chunks=BAD_CHUNKS), "a") as file:
        file["again"] = file["pics"]
    report = quiet(tmp_path / "in.h5", tmp_path / "out.h5")
    assert len(report.images) == 1
    name = report.images[0].images
    assert check_pair(tmp_path / "out.h5", images=name, sums=f"{name}_crc32").tolist() == list(range(N))
    with h5py.File(tmp_path / "out.h5") as file:
        assert file["again"] == file["pics"]


def test_a_user_block_is_left_behind_with_a_note(tmp_path):
    """MATLAB writes 512 bytes in front of an HDF5 file; the report says that they are not in the new one."""
    with h5py.File(tmp_path / "in.h5", "w", userblock_size=512) as file:
        file.create_dataset("pics", data=coded_images(np.arange(N)), chunks=(50, *SHAPE), compression="gzip")
        file["labels"] = class_of_row(np.arange(N))
    report = quiet(tmp_path / "in.h5", tmp_path / "out.h5")
    assert report.notes == ["the user block in front (512 bytes) is not copied"]
    assert check_pair(tmp_path / "out.h5").tolist() == list(range(N))


def test_copied_datasets_keep_their_chunks_and_filters(tmp_path):
    """What is not a pair is copied with its own layout."""
    with h5py.File(make_foreign(tmp_path / "in.h5"), "a") as file:
        file.create_dataset("other", data=np.arange(600).reshape(30, 20), chunks=(7, 3), compression="lzf", fillvalue=9)
    quiet(tmp_path / "in.h5", tmp_path / "out.h5")
    with h5py.File(tmp_path / "out.h5") as file:
        other = file["other"]
        assert (other.chunks, other.compression, other.fillvalue) == ((7, 3), "lzf", 9)
        np.testing.assert_array_equal(other[:], np.arange(600).reshape(30, 20))


def _others(file: h5py.File) -> None:
    """Datasets of many kinds that have another number of rows than the images."""
    numbers = np.arange(60_000, dtype=">i4").reshape(300, 200)
    file.create_dataset("chunks", data=numbers, chunks=(7, 30), compression="lzf", fillvalue=9, shuffle=True)
    sparse = file.create_dataset("sparse", (3000, 50), np.float32, chunks=(100, 7), fillvalue=3, maxshape=(None, 50))
    sparse[200:900] = 1
    sparse.attrs["why"] = "kept"
    file["flat"] = numbers
    file["table"] = np.array([(row, row / 7, b"abc") for row in range(5000)], dtype="<u2,>f8,S5")
    file["switch"] = np.arange(3000) % 2 == 0
    lists = file.create_dataset("lists", (300,), h5py.vlen_dtype(np.float32), chunks=(50,))
    file.create_dataset("texts", data=["caf\u00e9" * (row % 5) for row in range(300)], dtype=h5py.string_dtype())
    file.create_dataset("ascii", data=["abc"] * 300, dtype=h5py.string_dtype("ascii"), chunks=(7,))
    file.create_dataset("words", data=np.full((150, 2), "a", object), dtype=h5py.string_dtype())
    for row in range(200):
        lists[row] = np.full(row % 3, row)


def test_large_datasets_are_copied_bit_by_bit(tmp_path, monkeypatch):
    """What is copied block by block has the type, layout, filters and values that it had, whatever they are."""
    monkeypatch.setattr(rechunk_copy, "LARGE_BYTES", 0)
    monkeypatch.setattr(rechunk_copy, "BLOCK_BYTES", 5_000)
    source = make_foreign(tmp_path / "in.h5")
    with h5py.File(source, "a") as file:
        _others(file)
    quiet(source, tmp_path / "out.h5", images="pics", labels="labels")
    before, after = content(source), content(tmp_path / "out.h5")
    assert {name: after[name] for name in before} == before
    with h5py.File(source) as before, h5py.File(tmp_path / "out.h5") as after:
        for name in set(before) - {"pics", "labels"}:
            assert rechunk_move.describe(after[name]) == rechunk_move.describe(before[name])
            assert after[name].maxshape == before[name].maxshape
            if h5py.check_vlen_dtype(before[name].dtype) is None and not before[name].dtype.hasobject:
                assert after[name].fillvalue == before[name].fillvalue
                assert after[name].id.get_storage_size() == before[name].id.get_storage_size()


def test_content_of_other_files_is_brought_in(tmp_path):
    """External links, virtual datasets and external storage end as plain data, and the report says so."""
    rows = np.arange(N)
    make_foreign(tmp_path / "far.h5", images="pics", labels="deep/labels", chunks=BAD_CHUNKS)
    with h5py.File(tmp_path / "far.h5", "a") as file:
        file["deep/soft"] = h5py.SoftLink("/deep/labels")
    (tmp_path / "raw.bin").write_bytes(np.arange(50, dtype="<i4").tobytes())
    virtual = h5py.VirtualLayout((N, *SHAPE), np.uint8)
    virtual[:] = h5py.VirtualSource("far.h5", "pics", (N, *SHAPE))
    with h5py.File(tmp_path / "in.h5", "w") as file:
        file.create_virtual_dataset("pics", virtual)
        file["deep"] = h5py.ExternalLink("far.h5", "/deep")
        file.create_dataset("stored", (50,), "<i4", external=[(str(tmp_path / "raw.bin"), 0, 200)])
        notes = h5py.VirtualLayout((2,), h5py.string_dtype())
        notes[:] = h5py.VirtualSource("far.h5", "notes", (2,))
    report = quiet(tmp_path / "in.h5", tmp_path / "out.h5", images="pics", labels="deep/labels", order="keep")
    assert report.notes == [
        f"brought in deep: content of /deep in {tmp_path / 'far.h5'} (was an external link)",
        f"brought in pics: content of {tmp_path / 'far.h5'} (was a virtual dataset)",
        f"brought in stored: content of {tmp_path / 'raw.bin'} (was external storage)",
    ]
    for name in ("far.h5", "raw.bin", "in.h5"):
        (tmp_path / name).unlink()
    assert check_pair(tmp_path / "out.h5", labels="deep/labels").tolist() == rows.tolist()
    with h5py.File(tmp_path / "out.h5") as file:
        assert (file["stored"][:].tolist(), file["stored"].external) == (list(range(50)), None)
        assert file["deep/soft"] == file["deep/labels"]


# -- uint8 ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (lambda images: images.astype(np.float32) / 255, "all values lie in 0 to 1, times 255, rounded"),
        (lambda images: images.astype(np.float64), "all values lie in 0 to 255, times 1, rounded"),
        (lambda images: images.astype(np.int64), "all values lie in 0 to 255, times 1, rounded"),
    ],
    ids=["0 to 1", "0 to 255", "whole numbers"],
)
def test_numbers_become_uint8_on_request(tmp_path, values, words):
    """--to-uint8 looks at all values, says what it found, and gives the pixels back."""
    images = coded_images(np.arange(N))
    with h5py.File(tmp_path / "in.h5", "w") as file:
        file.create_dataset("pics", data=values(images), chunks=BAD_CHUNKS)
        file["labels"] = class_of_row(np.arange(N))
    report = quiet(tmp_path / "in.h5", tmp_path / "out.h5", to_uint8=True)
    assert report.images[0].scale == words
    assert f"    to uint8: {words}" in str(report).splitlines()
    assert check_pair(tmp_path / "out.h5").tolist() == list(range(N))


# -- damage -----------------------------------------------------------------------------------------------------------


def test_a_row_that_cannot_be_unpacked_is_named(tmp_path):
    """Damaged compressed bytes stop the run with the row; nothing is left behind."""
    source = make_foreign(tmp_path / "in.h5", chunks=(1, *SHAPE), compression="gzip")
    with h5py.File(source) as file:
        chunk = file["pics"].id.get_chunk_info_by_coord((7, 0, 0, 0))
    flip(source, chunk.byte_offset + 20, 30)
    with pytest.raises(DamagedRowError) as caught:
        quiet(source, tmp_path / "out.h5")
    start = f"row 7 of pics in {source} cannot be read. Copy or build the file again. The reason: "
    assert str(caught.value).startswith(start)
    assert [path.name for path in tmp_path.iterdir()] == ["in.h5"]


def flip(path: Path, offset: int, count: int = 1) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        old = file.read(count)
        file.seek(offset)
        file.write(bytes(255 - value for value in old))


def test_rows_of_a_damaged_chunk_are_named(tmp_path):
    """A chunk of many rows names them all."""
    source = make_foreign(tmp_path / "in.h5", chunks=(13, 16, 16, 1), fletcher32=True)
    with h5py.File(source) as file:
        chunk = file["pics"].id.get_chunk_info_by_coord((26, 0, 0, 1))
    flip(source, chunk.byte_offset + 20)
    with pytest.raises(DamagedRowError, match="^one of the rows 26 to 38, which share a chunk, of pics in "):
        quiet(source, tmp_path / "out.h5")


@pytest.mark.parametrize("place", ["first bytes", "checksum at the end"])
def test_damage_of_a_large_gzip_chunk_is_found(tmp_path, monkeypatch, place):
    """A chunk that is unpacked as a stream is checked to its end, and its rows are named."""
    monkeypatch.setattr(rechunk_rows, "SLAB_BYTES", 10_000)
    source = make_foreign(tmp_path / "in.h5", chunks=(50, *SHAPE), compression="gzip")
    with h5py.File(source) as file:
        chunk = file["pics"].id.get_chunk_info_by_coord((50, 0, 0, 0))
    flip(source, chunk.byte_offset + (20 if place == "first bytes" else chunk.size - 1))
    with pytest.raises(
        DamagedRowError, match="^one of the rows 50 to 99, which share a chunk, of pics in .* The reason: "
    ):
        quiet(source, tmp_path / "out.h5")
    assert [path.name for path in tmp_path.iterdir()] == ["in.h5"]


def test_large_chunks_that_gzip_left_out_are_read(tmp_path, monkeypatch):
    """HDF5 may store single chunks of a gzip dataset as they are, and says so beside them."""
    monkeypatch.setattr(rechunk_rows, "SLAB_BYTES", 10_000)
    monkeypatch.setattr(rechunk_rows, "BLOCK_BYTES", 5_000)
    source = make_foreign(tmp_path / "in.h5", chunks=(50, *SHAPE), compression="gzip")
    with h5py.File(source, "a") as file:
        file["pics"].id.write_direct_chunk((50, 0, 0, 0), coded_images(np.arange(50, 100)).tobytes(), filter_mask=1)
    quiet(source, tmp_path / "out.h5")
    assert check_pair(tmp_path / "out.h5").tolist() == list(range(N))


def test_stored_sums_are_checked(tmp_path):
    """A pixel that changed since the file was built is found, with its row."""
    quiet(make_foreign(tmp_path / "in.h5"), tmp_path / "good.h5")
    with h5py.File(tmp_path / "good.h5", "a") as file:
        file["pics"][42, 3, 3, 2] ^= 1
    with pytest.raises(DamagedRowError) as caught:
        quiet(tmp_path / "good.h5", tmp_path / "out.h5")
    assert str(caught.value) == (
        f"row 42 of pics in {tmp_path / 'good.h5'} is damaged: its bytes do not have the CRC-32 that was stored with "
        "them. Copy or build the file again."
    )
    assert not (tmp_path / "out.h5").exists()


WRITERS = {"pics": "ScatteredRows", "labels": "GatheredRows", "names": "RaggedRows"}


@pytest.mark.parametrize("name", WRITERS)
def test_a_row_that_was_written_wrong_is_found(tmp_path, monkeypatch, name):
    """Every dataset that is moved is read again: two rows exchanged while writing stop the run, and no file appears."""
    writer = getattr(rechunk_rows, WRITERS[name])
    write, calls = writer.write, []

    def exchange(self, rows, places):
        calls.append(len(rows))
        order = [*range(3), 9, *range(4, 9), 3, *range(10, len(rows))] if len(calls) == 1 else slice(None)
        write(self, rows[order], places)

    rows = np.arange(N)
    with h5py.File(make_foreign(tmp_path / "in.h5", rows), "a") as file:
        file["names"] = [str(row) for row in rows]
        if name == "labels":
            file["labels"][...] = rows
    monkeypatch.setattr(writer, "write", exchange)
    with pytest.raises(DamagedRowError) as caught:
        quiet(tmp_path / "in.h5", tmp_path / "out.h5", order="mix", keep=() if name == "names" else "names")
    order = spread_classes(rows if name == "labels" else class_of_row(rows), np.random.default_rng(0))
    row = min(np.flatnonzero(order == 3)[0], np.flatnonzero(order == 9)[0])
    assert str(caught.value) == (
        f"row {row} of {name} was read from {tmp_path / 'out.h5.part'} and is not what was written there: the disk or "
        "the memory of this machine is faulty. Run it again on another disk."
    )
    assert [path.name for path in tmp_path.iterdir()] == ["in.h5"]


# -- what is refused --------------------------------------------------------------------------------------------------


def _file(path: Path, **datasets) -> Path:
    with h5py.File(path, "w") as file:
        for name, values in datasets.items():
            file[name] = values
    return path


def _incomplete(folder):
    return make_coded_file(folder / "in.h5", complete=False)


def _never_written(folder):
    with h5py.File(folder / "in.h5", "w") as file:
        data = file.create_dataset("pics", (20, 8, 8, 3), np.uint8, chunks=(5, 4, 8, 3))
        data[:12] = 1
        file["labels"] = np.arange(20)
    return folder / "in.h5"


def _referenced(folder):
    with h5py.File(make_foreign(folder / "in.h5"), "a") as file:
        file["refs"] = np.array([file["pics"].ref, file["labels"].ref], dtype=h5py.ref_dtype)
    return folder / "in.h5"


def _attribute_reference(folder):
    with h5py.File(make_foreign(folder / "in.h5"), "a") as file:
        file["labels"].attrs["of"] = file["pics"].ref
    return folder / "in.h5"


def _missing_link(folder):
    with h5py.File(make_foreign(folder / "in.h5"), "a") as file:
        file["more"] = h5py.ExternalLink("gone.h5", "/x")
    return folder / "in.h5"


def _missing_virtual(folder):
    virtual = h5py.VirtualLayout((N, *SHAPE), np.uint8)
    virtual[:] = h5py.VirtualSource("gone.h5", "pics", (N, *SHAPE))
    with h5py.File(folder / "in.h5", "w") as file:
        file.create_virtual_dataset("pics", virtual)
        file["labels"] = class_of_row(np.arange(N))
    return folder / "in.h5"


def _short_storage(folder):
    (folder / "raw.bin").write_bytes(bytes(150))
    with h5py.File(make_foreign(folder / "in.h5"), "a") as file:
        file.create_dataset("stored", (50,), "<i4", external=[(str(folder / "raw.bin"), 0, 200)])
    return folder / "in.h5"


def _two_of_a_size(folder):
    rows = sorted_rows()
    images = coded_images(rows)
    names = {"train_img": images, "valid_img": images, "train_labels": class_of_row(rows)}
    return _file(folder / "in.h5", **names, valid_labels=class_of_row(rows), boxes=np.zeros((N, 4)))


def _pair_beside_two_splits(folder):
    with h5py.File(make_two_pairs(folder / "in.h5", train_x="train_y", valid_x="valid_y"), "a") as file:
        file["depth"], file["depth_scale"] = file["train_x"][:], np.zeros(N)
    return folder / "in.h5"


PICS = np.ones((20, 8, 8, 3), np.uint8)
NUMBERS = np.arange(20) // 10
MIX = {"images": "pics", "labels": "labels", "order": "mix"}

REFUSED = {
    "incomplete": (
        _incomplete,
        {},
        "{source} is incomplete: the process that wrote it stopped early, and its last rows may be empty. Build it "
        "again.",
    ),
    "no pair": (
        lambda folder: _file(folder / "in.h5", a=np.zeros(3)),
        {},
        "no pair of images and labels was recognised in {source}. Datasets in it: a. Name the pair: --images NAME "
        "--labels NAME.",
    ),
    "no such dataset": (
        lambda folder: _file(folder / "in.h5", pics=PICS, labels=NUMBERS),
        {"images": "x", "labels": "labels"},
        "{source} has no dataset 'x'. Datasets in it: labels, pics.",
    ),
    "one name of two": (
        lambda folder: _file(folder / "in.h5", pics=PICS, labels=NUMBERS),
        {"images": "pics"},
        "images and labels name pairs of datasets: give as many of one as of the other; got 1 and 0.",
    ),
    "lengths differ": (
        lambda folder: _file(folder / "in.h5", pics=PICS, labels=NUMBERS[:19]),
        {},
        "pics has 20 rows but labels has 19 in {source}. Name the right pair: --images NAME --labels NAME.",
    ),
    "no images": (
        lambda folder: _file(folder / "in.h5", pics=np.array([b"a"] * 20), labels=NUMBERS),
        {"images": "pics", "labels": "labels"},
        "pics in {source} has shape (20,) and type |S1; expected images (n, height, width, channels) or (n, height, "
        "width) of numbers, or JPEG bytes (one variable-length uint8 a row). Name the right pair: --images NAME "
        "--labels NAME.",
    ),
    "never written": (
        _never_written,
        {},
        "2 of 8 chunks of pics in {source} were never written; their images read as black, the first in row 15. The "
        "process that wrote the file was stopped: build it again.",
    ),
    "named twice": (
        lambda folder: _file(folder / "in.h5", pics=PICS, labels=NUMBERS),
        {"images": ["pics", "/pics/"], "labels": ["labels", "labels"]},
        "pics is named more than once. Name each pair once.",
    ),
    "sums are something else": (
        lambda folder: _file(folder / "in.h5", pics=PICS, labels=NUMBERS, pics_crc32=np.zeros(20)),
        {"images": "pics", "labels": "labels"},
        "pics_crc32 must hold one CRC-32 (uint32) for each of the 20 rows of pics; the one in {source} is something "
        "else. Rename it.",
    ),
    "references": (
        _referenced,
        {},
        "refs holds references, which would point to the wrong place in a new file. Remove it first, or store names "
        "instead.",
    ),
    "reference in an attribute": (
        _attribute_reference,
        {},
        "attribute of of /labels holds references, which would point to the wrong place in a new file. Remove it "
        "first, or store names instead.",
    ),
    "missing link": (
        _missing_link,
        {},
        "more needs gone.h5 (external link), which does not exist. Put it there: HDF5 itself would go on without a "
        "word.",
    ),
    "missing virtual source": (
        _missing_virtual,
        {"images": "pics", "labels": "labels"},
        "pics needs gone.h5 (virtual dataset), which does not exist. Put it there: HDF5 itself would go on without a "
        "word.",
    ),
    "short storage": (
        _short_storage,
        {},
        "stored needs {folder}/raw.bin (external storage), which has 150 bytes instead of 200. Put it there: HDF5 "
        "itself would go on without a word.",
    ),
    "two owners": (
        _two_of_a_size,
        {},
        "boxes has 103 rows, as many as train_img and valid_img: which of them it belongs to is not clear. Leave it "
        "alone (--keep boxes), or keep the order of all (--order keep).",
    ),
    "two splits of a pair": (
        _pair_beside_two_splits,
        {},
        "depth has 103 rows, as many as train_x and valid_x: which of them it belongs to is not clear. Name the pairs "
        "of the splits (--images NAME --labels NAME), or keep the order of all (--order keep).",
    ),
    "a row and a column an image": (
        lambda folder: _file(folder / "in.h5", pics=PICS, labels=NUMBERS, near=np.zeros((20, 20))),
        MIX,
        "near has shape (20, 20), one row and one column for each image; only rows can be moved. Leave it alone "
        "(--keep near), or keep the order (--order keep).",
    ),
    "texts in a table": (
        lambda folder: _file(folder / "in.h5", pics=PICS, labels=NUMBERS, words=np.full((20, 2), "a", object)),
        MIX,
        "the rows of words belong to the images, but their type (object, shape (20, 2)) cannot be moved row by row. "
        "Leave it alone (--keep words), or keep the order (--order keep).",
    ),
    "keep of nothing": (
        lambda folder: _file(folder / "in.h5", pics=PICS, labels=NUMBERS),
        {"keep": "boxes"},
        "{source} has no dataset 'boxes'. Datasets in it: labels, pics.",
    ),
    "values below 0": (
        lambda folder: _file(folder / "in.h5", pics=PICS - 1.5, labels=NUMBERS),
        {"to_uint8": True},
        "pics holds values from -0.5 to -0.5; --to-uint8 takes 0 to 1 or 0 to 255. Undo the scaling where the file is "
        "made.",
    ),
    "no numbers": (
        lambda folder: _file(
            folder / "in.h5", pics=np.where(np.arange(20)[:, None, None, None] == 6, np.nan, PICS), labels=NUMBERS
        ),
        {"to_uint8": True},
        "row 6 of pics holds values that are no numbers. --to-uint8 needs finite values.",
    ),
    "order": (_incomplete, {"order": "sort"}, "order must be one of keep, mix, auto; got 'sort'."),
    "compression": (_incomplete, {"compression": "lzf"}, "compression must be one of None, gzip; got 'lzf'."),
    "seed": (_incomplete, {"seed": -1}, "seed must be a whole number from 0 up; got -1."),
    "missing": (
        lambda folder: folder / "in.h5",
        {},
        "{source} does not exist. Check the path, or build the file first.",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_unusable_input_is_refused_with_a_sentence(tmp_path, name):
    """What cannot be done right is not begun: one sentence, and nothing in the folder changes."""
    make, options, sentence = REFUSED[name]
    source = make(tmp_path)
    before = sorted(tmp_path.iterdir())
    with pytest.raises((RechunkError, CopyError, layout.LayoutError, layout.HDF5FileError)) as caught:
        quiet(source, tmp_path / "out.h5", **options)
    assert str(caught.value) == sentence.format(source=source, folder=tmp_path)
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("way", ["same name", "symbolic link", "hard link", "link as input", "its own part"])
def test_input_and_output_must_differ(tmp_path, way):
    """The input is never overwritten, whatever name the output gives it."""
    source = out = make_foreign(tmp_path / "in.h5")
    if way == "its own part":
        source, out = source.rename(tmp_path / "out.h5.part"), tmp_path / "out.h5"
    elif way == "hard link":
        out = tmp_path / "other.h5"
        out.hardlink_to(source)
    elif way != "same name":
        link = tmp_path / "other.h5"
        link.symlink_to(source)
        source, out = (link, source) if way == "link as input" else (source, link)
    before = source.read_bytes()
    with pytest.raises(RechunkError) as caught:
        quiet(source, out)
    assert str(caught.value) == f"{out} and {source} are the same file. Give the result another name."
    assert source.read_bytes() == before


def test_a_file_that_the_input_reads_from_is_not_replaced(tmp_path):
    """An external link's target cannot be the result."""
    make_foreign(tmp_path / "far.h5")
    with h5py.File(tmp_path / "in.h5", "w") as file:
        file["pics"], file["labels"] = h5py.ExternalLink("far.h5", "pics"), h5py.ExternalLink("far.h5", "labels")
    with pytest.raises(RechunkError) as caught:
        quiet(tmp_path / "in.h5", tmp_path / "far.h5", images="pics", labels="labels")
    assert str(caught.value) == (
        f"{tmp_path / 'in.h5'} takes part of its content from {tmp_path / 'far.h5'}. Give the result another name."
    )


def test_too_little_disk_is_said_before_anything_is_written(tmp_path, monkeypatch):
    """The estimate counts the new file and the scratch file."""
    source = make_foreign(tmp_path / "in.h5", chunks=(N, 5, 16, 3))
    monkeypatch.setattr(rechunk_rows, "SLAB_BYTES", 10_000)
    monkeypatch.setattr(rechunk_plan.shutil, "disk_usage", lambda path: type("Usage", (), {"free": 150_000}))
    with pytest.raises(RechunkError) as caught:
        quiet(source, tmp_path / "out.h5")
    size = source.stat().st_size
    with h5py.File(source) as file:
        needed = size + 79_104 - file["pics"].id.get_storage_size() + 79_104 + 200 * N
    assert str(caught.value) == (
        f"up to {needed / 1e6:.1f} MB are needed in {tmp_path}, but only 0.1 MB are free. Make room, or write to "
        "another disk."
    ).replace("0.1 MB are free", f"{0.15:.1f} MB are free")
    assert [path.name for path in tmp_path.iterdir()] == ["in.h5"]


def test_chunks_that_need_much_memory_are_pointed_out(tmp_path, monkeypatch):
    """Compressed chunks that cut the images must be unpacked whole, however large they are."""
    source = make_foreign(tmp_path / "in.h5", chunks=(N, 3, 16, 3), compression="gzip")
    assert quiet(source, tmp_path / "out.h5").notes == []
    monkeypatch.setattr(rechunk_rows, "SLAB_BYTES", 10_000)
    notes = quiet(source, tmp_path / "out.h5").notes
    assert notes == ["a chunk of pics is 0.0 MB unpacked, which HDF5 holds in memory whole, and more than once"]


def test_lists_of_row_numbers_are_pointed_out(tmp_path):
    """Mixing cannot know what a list of rows means; the report says that it was left as it is."""
    with h5py.File(make_sorted(tmp_path / "in.h5"), "a") as file:
        file["test_idx"] = np.arange(20)
    report = quiet(tmp_path / "in.h5", tmp_path / "out.h5", images="pics", labels="labels")
    assert report.notes == ["test_idx looks like a list of row numbers; it was not changed and counts in the old order"]
    assert "  note: " + report.notes[0] in str(report).splitlines()


# -- kills ------------------------------------------------------------------------------------------------------------

CHILD = """
import json, os, signal, sys
from data_scripts import rechunk_move, rechunk_rows
from data_scripts.rechunk import rechunk
from helpers.part_file import PartFile
source, out, kill, resume = json.loads(sys.argv[1])
rechunk_rows.BLOCK_BYTES = 5_000
rechunk_move.CHECKPOINT_BYTES = 20_000

class Counter:
    left = kill
    @classmethod
    def count(cls):
        cls.left -= 1
        if cls.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

def counted(owner, name):
    old = getattr(owner, name)
    def method(self, *args):
        Counter.count()
        result = old(self, *args)
        Counter.count()
        return result
    setattr(owner, name, method)

counted(PartFile, "checkpoint")
counted(PartFile, "finish")
for writer in (rechunk_rows.ScatteredRows, rechunk_rows.RaggedRows, rechunk_rows.GatheredRows):
    counted(writer, "write")
rechunk(source, out, images="pics", labels="labels", compression="gzip", resume=resume, progress=False)
print(10**6 - Counter.left if kill == 10**6 else "whole")
"""


def child(source: Path, out: Path, kill: int, resume: bool = False) -> subprocess.CompletedProcess:
    arguments = json.dumps([str(source), str(out), kill, resume])
    command = [sys.executable, "-c", CHILD, arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False, timeout=120)


def make_jpeg(path: Path) -> Path:
    """A sorted file of JPEG bytes."""
    rows = sorted_rows()
    with h5py.File(path, "w") as file:
        images = file.create_dataset("pics", (N,), h5py.vlen_dtype(np.uint8))
        for place, image in enumerate(coded_images(rows)):
            images[place] = np.frombuffer(encode_jpeg(image), np.uint8)
        file["labels"] = class_of_row(rows)
    return path


@pytest.fixture(scope="module", params=["raw", "jpeg"])
def storages(request, tmp_path_factory) -> tuple[Path, dict, int]:
    """Like `killable`, for both kinds of images."""
    return _killable(tmp_path_factory, make_jpeg if request.param == "jpeg" else make_sorted)


@pytest.fixture(scope="module")
def killable(tmp_path_factory) -> tuple[Path, dict, int]:
    """A sorted file with companions, the content that it should become, and the number of moments to kill at."""
    return _killable(tmp_path_factory, lambda path: make_sorted(path, chunks=BAD_CHUNKS))


def _killable(tmp_path_factory, make) -> tuple[Path, dict, int]:
    folder = tmp_path_factory.mktemp("kills")
    source = make(folder / "in.h5")
    result = child(source, folder / "whole.h5", 10**6)
    assert result.returncode == 0, result.stderr
    return source, content(folder / "whole.h5"), int(result.stdout)


@pytest.mark.parametrize("place", [1, 3, *(pytest.param(place, marks=pytest.mark.nightly) for place in (0, 2, 4))])
def test_a_killed_run_is_gone_on_with(tmp_path, storages, place):
    """SIGKILL at any moment: no file under the final name, and --resume ends with the content of an unbroken run."""
    source, expected, moments = storages
    rng = np.random.default_rng(place)
    for attempt in range(2):
        killed = child(source, tmp_path / "out.h5", int(rng.integers(1, moments * 3 // 4)), resume=attempt > 0)
        assert killed.returncode in {-signal.SIGKILL, 0}, killed.stderr
        assert (tmp_path / "out.h5").exists() == (killed.returncode == 0)
    if killed.returncode == 0:
        (tmp_path / "out.h5").unlink()
    quiet(source, tmp_path / "out.h5", images="pics", labels="labels", compression="gzip", resume=True)
    assert content(tmp_path / "out.h5") == expected
    assert [path.name for path in tmp_path.iterdir()] == ["out.h5"]


def test_going_on_does_not_begin_again(tmp_path, killable, monkeypatch):
    """A run that goes on writes only the rows that are missing; without resume it begins anew."""
    source, expected, moments = killable
    assert child(source, tmp_path / "out.h5", moments - 12).returncode == -signal.SIGKILL
    written = []
    write = rechunk_rows.ScatteredRows.write

    def counting(self, rows, places):
        if self._target.name == "/pics":
            written.append(len(places))
        write(self, rows, places)

    monkeypatch.setattr(rechunk_rows.ScatteredRows, "write", counting)
    quiet(source, tmp_path / "out.h5", images="pics", labels="labels", compression="gzip", resume=True)
    assert 0 < sum(written) < N / 2
    assert content(tmp_path / "out.h5") == expected
    written.clear()
    quiet(source, tmp_path / "out.h5", images="pics", labels="labels", compression="gzip")
    assert sum(written) == N


@pytest.mark.parametrize("change", ["options", "input"])
def test_a_part_of_another_input_or_other_options_is_refused(tmp_path, killable, capsys, change):
    """An unfinished file of something else is not gone on with, and not lost: what it was begun with ends it."""
    source, out = tmp_path / "in.h5", tmp_path / "out.h5"
    source.write_bytes(killable[0].read_bytes())
    status = source.stat()
    assert child(source, out, killable[2] - 12).returncode == -signal.SIGKILL
    if change == "input":
        os.utime(source, ns=(0, 0))
    command = [str(source), str(out), "--images", "pics", "--labels", "labels", "--compression", "gzip", "--resume"]
    assert main([*command, "--seed", "1" if change == "options" else "0"]) == 2
    assert capsys.readouterr().err.splitlines()[-1] == (
        f"rechunk: {out}.part was begun with another input or other options, so it cannot be gone on with. Restore "
        "them, or begin anew: leave out --resume."
    )
    os.utime(source, ns=(status.st_atime_ns, status.st_mtime_ns))
    with PartFile(out, resume=True) as part:
        assert part.state["verified"]
    assert main(command) == 0
    assert content(out) == killable[1]


def test_an_older_file_stays_until_the_new_one_is_whole(tmp_path, killable):
    """The name always leads to a whole file."""
    (tmp_path / "out.h5").write_bytes(b"old")
    assert child(killable[0], tmp_path / "out.h5", killable[2] // 2).returncode == -signal.SIGKILL
    assert (tmp_path / "out.h5").read_bytes() == b"old"
    quiet(killable[0], tmp_path / "out.h5", images="pics", labels="labels", compression="gzip")
    assert content(tmp_path / "out.h5") == killable[1]


FULL_DISK = """
import resource, signal, sys
from data_scripts.rechunk import main
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))
sys.exit(main(sys.argv[1:]))
"""


def test_a_full_disk_ends_with_a_sentence(tmp_path):
    """A write that fails in the middle stops the run with exit status 1 and without a file of the final name."""
    source = make_foreign(tmp_path / "in.h5", chunks=BAD_CHUNKS)
    command = [sys.executable, "-c", FULL_DISK, str(source), str(tmp_path / "out.h5")]
    result = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False, timeout=120)
    assert result.returncode == 1, result.stderr
    assert "Traceback" not in result.stderr
    said = r"the run stopped: File too large: up to 0\.1 MB are needed in \S+ in all, and [\d,.]+ MB are free now\."
    assert re.search(said, result.stderr)
    assert not (tmp_path / "out.h5").exists()


def _unmoved(file: h5py.File, kind: str) -> None:
    numbers = np.random.default_rng(0).integers(0, 256, (400, 50_000), np.uint8)
    if kind == "rows of any length":
        data = file.create_dataset("other", (400,), h5py.vlen_dtype(np.uint8))
        for row, values in enumerate(numbers):
            data[row] = values
    else:
        file.create_dataset("other", data=numbers, chunks=(1, 50_000) if kind == "chunks" else None)


@pytest.mark.parametrize("kind", ["chunks", "one piece", "rows of any length"])
def test_a_full_disk_does_not_fill_the_memory(tmp_path, monkeypatch, kind):
    """The first block that cannot be written ends the run: the other 19 MB of a dataset are not even read."""
    resource = pytest.importorskip("resource", reason="Windows has no limit for the size of a file")
    monkeypatch.setattr(rechunk_copy, "LARGE_BYTES", 2**20)
    monkeypatch.setattr(rechunk_copy, "BLOCK_BYTES", 100_000)
    monkeypatch.setattr(rechunk_rows, "BLOCK_BYTES", 100_000)
    with h5py.File(make_foreign(tmp_path / "in.h5"), "a") as file:
        _unmoved(file, kind)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    tracemalloc.start()
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (2**20, limits[1]))
        with pytest.raises(OSError, match="^.Errno 27. File too large: up to ") as caught:
            quiet(tmp_path / "in.h5", tmp_path / "out.h5", images="pics", labels="labels")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        tracemalloc.stop()
    assert caught.value.errno == errno.EFBIG
    assert peak < 5e6
    assert [path.name for path in tmp_path.iterdir()] == ["in.h5"]


MEMORY = """
import resource, sys
from data_scripts import rechunk_rows
from data_scripts.rechunk import rechunk
rechunk_rows.SLAB_BYTES, rechunk_rows.BLOCK_BYTES = 16 * 2**20, 4 * 2**20
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
rechunk(sys.argv[1], sys.argv[2], progress=False)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


IN_MEMORY = {
    "cut chunks": {"chunks": (500, 20, 38, 1)},
    "contiguous": {},
    "one chunk": {"chunks": (500, 299, 299, 3)},
    "one gzip chunk": {"chunks": (500, 299, 299, 3), "compression": "gzip", "compression_opts": 1},
}


@pytest.mark.parametrize("name", IN_MEMORY)
def test_memory_does_not_depend_on_the_input(tmp_path, name):
    """134 MB in chunks over all rows are repaired with the memory of a slab (16 MB here) and a few blocks."""
    images = np.zeros((500, 299, 299, 3), np.uint8)
    images[:, ::40] = np.arange(500)[:, None, None, None] % 200 + 1
    with h5py.File(tmp_path / "in.h5", "w") as file:
        file.create_dataset("pics", data=images, **IN_MEMORY[name])
        file["labels"] = np.arange(500) % 7
    del images
    command = [sys.executable, "-c", MEMORY, str(tmp_path / "in.h5"), str(tmp_path / "out.h5")]
    result = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True, timeout=120)
    assert int(result.stdout) < 70


# -- command line -----------------------------------------------------------------------------------------------------


def test_the_command_prints_what_was_done(tmp_path, capsys):
    """Exit status 0, a report of before and after, and the estimate of disk space on stderr."""
    source = make_sorted(tmp_path / "in.h5", chunks=BAD_CHUNKS)
    out = tmp_path / "out.h5"
    options = ["--images", "pics", "--labels", "labels", "--keep", "parts", "--seed", "2", "--compression", "gzip"]
    assert main([str(source), str(out), *options]) == 0
    printed = capsys.readouterr()
    lines = printed.out.splitlines()
    sizes = [f"{path.stat().st_size / 1e6:.1f} MB" for path in (out, source)]
    assert lines[:-1] == [
        f"{out}: {sizes[0]}, made from {source} ({sizes[1]})",
        "  pics, labels: 103 rows, order mixed (seed 2)",
        "    before: (103, 16, 16, 3) uint8, chunks (13, 5, 7, 1), not compressed",
        "    after:  (103, 16, 16, 3) uint8, chunks (1, 16, 16, 3), deflate",
        "    moved with them: boxes, masks, names, sub/ids",
        "  other datasets copied unchanged: 2",
        "  read again and equal, row by row: labels 103, boxes 103, masks 103, names 103, sub/ids 103, pics 103",
    ]
    assert re.fullmatch(r"  \d+\.\d s", lines[-1])
    needed = rf"rechunk: at most \d+\.\d MB are needed in {re.escape(str(tmp_path))}; [\d,]+\.\d MB are free\."
    assert re.search(needed, printed.err)


def test_what_cannot_start_has_exit_status_2(tmp_path, capsys):
    """One sentence on stderr, nothing on stdout."""
    assert main([str(tmp_path / "in.h5"), str(tmp_path / "out.h5")]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == f"rechunk: {tmp_path / 'in.h5'} does not exist. Check the path, or build the file first.\n"


def test_what_stops_on_the_way_has_exit_status_1(tmp_path, capsys):
    """A damaged row ends the command with its sentence."""
    quiet(make_foreign(tmp_path / "in.h5"), tmp_path / "good.h5")
    with h5py.File(tmp_path / "good.h5", "a") as file:
        file["pics"][5] = 0
    assert main([str(tmp_path / "good.h5"), str(tmp_path / "out.h5")]) == 1
    assert capsys.readouterr().err.splitlines()[-1] == (
        f"rechunk: row 5 of pics in {tmp_path / 'good.h5'} is damaged: its bytes do not have the CRC-32 that was "
        f"stored with them. Copy or build the file again. Nothing was written under {tmp_path / 'out.h5'}."
    )


def test_an_interrupt_can_be_gone_on_from(tmp_path, capsys, monkeypatch):
    """Ctrl-C leaves the part, says so, and --resume ends with the same file."""
    source = make_sorted(tmp_path / "in.h5")
    command = [str(source), str(tmp_path / "out.h5"), "--images", "pics", "--labels", "labels"]
    write, calls = rechunk_rows.ScatteredRows.write, []

    def interrupted(self, rows, places):
        calls.append(len(rows))
        if len(calls) == 9:
            raise KeyboardInterrupt
        write(self, rows, places)

    monkeypatch.setattr(rechunk_rows, "BLOCK_BYTES", 5_000)
    monkeypatch.setattr(rechunk_move, "CHECKPOINT_BYTES", 20_000)
    with monkeypatch.context() as patch:
        patch.setattr(rechunk_rows.ScatteredRows, "write", interrupted)
        assert main(command) == 1
    assert capsys.readouterr().err.splitlines()[-1] == (
        f"rechunk: interrupted. Nothing was written under {tmp_path / 'out.h5'}. out.h5.part stays: --resume goes on "
        "with it."
    )
    assert main([*command, "--resume"]) == 0
    quiet(source, tmp_path / "again.h5", images="pics", labels="labels")
    assert content(tmp_path / "out.h5") == content(tmp_path / "again.h5")


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_what_was_done(tmp_path, capsys, monkeypatch, stop):
    """Ctrl-C and SIGTERM end the command with a sentence, and the rows that were written until then are kept."""
    source, out = make_foreign(tmp_path / "in.h5", sorted_rows()), tmp_path / "out.h5"
    write, calls = rechunk_rows.ScatteredRows.write, []

    def stopped(self, rows, places):
        write(self, rows, places)
        calls.append(len(rows))
        if len(calls) == 9:
            os.kill(os.getpid(), stop)

    monkeypatch.setattr(rechunk_rows, "BLOCK_BYTES", 5_000)
    with monkeypatch.context() as patch:
        patch.setattr(rechunk_rows.ScatteredRows, "write", stopped)
        assert main([str(source), str(out)]) == 1
    assert capsys.readouterr().err.splitlines()[-1] == (
        f"rechunk: interrupted. Nothing was written under {out}. out.h5.part stays: --resume goes on with it."
    )
    with PartFile(out, resume=True) as part:
        assert part.state["rows"]["pics"] >= sum(calls[:8])
    assert main([str(source), str(out), "--resume"]) == 0
    quiet(source, tmp_path / "again.h5")
    assert content(out) == content(tmp_path / "again.h5")

"""JPEG bytes read past HDF5 are those that HDF5 gives, and damage that it does not survive is an error."""

import os
import struct
import threading

import h5py
import numpy as np
import pytest

from helpers.direct import file_state
from helpers.heap import locate_heap
from helpers.layout import HDF5FileError
from helpers.places import find_places

SIZES = [1, 7, 8, 9, 500, 0, 4000, 4096, 70_000, 3, 300_000, 64, 64]


def rows_of_bytes(seed=0):
    rng = np.random.default_rng(seed)
    return [rng.integers(0, 256, size, np.uint8) for size in SIZES]


def make(path, *, libver="earliest", userblock=0, **options):
    """Write rows of these sizes as dataset x; ``options`` go to create_dataset."""
    with h5py.File(path, "w", libver=libver, userblock_size=userblock) as file:
        data = file.create_dataset("x", (len(SIZES),), h5py.vlen_dtype(np.uint8), **options)
        for row, content in enumerate(rows_of_bytes()):
            data[row] = content
    return path


def located(path):
    """The rows of x past HDF5, or None."""
    with h5py.File(path) as file:
        return locate_heap(file["x"], find_places(file["x"], path, "x"), path, "x", file_state(path.stat()))


LAYOUTS = {
    "contiguous": {},
    "chunks": {"chunks": (4,)},
    "growing": {"chunks": (4,), "maxshape": (None,)},
    "gzip": {"chunks": (4,), "compression": "gzip"},
}


@pytest.mark.parametrize("userblock", [0, 1024])
@pytest.mark.parametrize("libver", ["earliest", "latest"])
@pytest.mark.parametrize("case", LAYOUTS)
def test_bytes_equal_those_of_hdf5(tmp_path, case, libver, userblock):
    """Rows of every size, under every kind of index, come as they were written; rows may be asked for again."""
    rows = located(make(tmp_path / "x.h5", libver=libver, userblock=userblock, **LAYOUTS[case]))
    for row in [*range(len(SIZES)), 4, 0]:
        assert rows.read(row).tobytes() == rows_of_bytes()[row].tobytes()
    rows.close()


def test_rows_never_written_are_empty(tmp_path):
    """A row without a reference has no bytes."""
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("x", (9,), h5py.vlen_dtype(np.uint8), chunks=(2,))[4] = np.arange(5, dtype=np.uint8)
    rows = located(tmp_path / "x.h5")
    assert [len(rows.read(row)) for row in range(9)] == [0, 0, 0, 0, 5, 0, 0, 0, 0]
    rows.close()


@pytest.mark.parametrize(
    ("dtype", "options"),
    [(h5py.vlen_dtype(np.uint8), {"chunks": (4,), "compression": "lzf"}), (h5py.vlen_dtype(np.int32), {}), ("u1", {})],
    ids=["lzf", "other numbers", "no vlen"],
)
def test_the_rest_is_left_to_hdf5(tmp_path, dtype, options):
    """References under another filter, and other kinds of rows, are not read here."""
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("x", (9,), dtype, **options)[0] = np.arange(5) if dtype != "u1" else 5
    assert located(tmp_path / "x.h5") is None


def test_threads_share_it(tmp_path):
    """Many threads read at once and get their own rows."""
    rows, expected, wrong = located(make(tmp_path / "x.h5")), rows_of_bytes(), []

    def work():
        for row in [*range(len(SIZES))] * 20:
            if rows.read(row).tobytes() != expected[row].tobytes():
                wrong.append(row)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    rows.close()
    assert wrong == []


def collection_of(path, row):
    """Place and object number of the bytes of a row, from its reference."""
    content = path.read_bytes()
    with h5py.File(path) as file:
        start = file["x"].id.get_offset() + 16 * row
    _, address, number = struct.unpack_from("<IQI", content, start)
    return address, number


def with_bytes(path, place, new):
    with path.open("r+b") as raw:
        raw.seek(place)
        raw.write(new)


def no_signature(path, address, content):
    with_bytes(path, address, b"GCOX")


def other_version(path, address, content):
    with_bytes(path, address + 4, b"\x02")


def endless_size(path, address, content):
    with_bytes(path, address + 8, struct.pack("<Q", 2**62))


def objects_of_no_size(path, address, content):
    """Where HDF5 goes round in a circle: a long row of zeros in the place of objects."""
    with_bytes(path, address + 16, bytes(4000))


def other_object_size(path, address, content):
    with_bytes(path, content - 8, struct.pack("<Q", 499))


def other_number(path, address, content):
    with_bytes(path, content - 16, struct.pack("<H", 77))


HEAP_DAMAGE = [no_signature, other_version, endless_size, objects_of_no_size, other_object_size, other_number]


@pytest.mark.parametrize("damage", HEAP_DAMAGE, ids=lambda damage: damage.__name__)
def test_a_damaged_heap_is_an_error_that_names_the_row(tmp_path, damage):
    """What does not fit the reference is never taken for a picture, and nothing runs for ever."""
    path = make(tmp_path / "x.h5")
    place = path.read_bytes().index(rows_of_bytes()[4].tobytes())
    damage(path, collection_of(path, 4)[0], place)
    rows = located(path)
    with pytest.raises(HDF5FileError) as caught:
        rows.read(4)
    rows.close()
    assert str(caught.value) == (
        f"row 4 of x in {path} cannot be read: the heap of its bytes is damaged. The file is damaged. "
        f"`python -m helpers.inspector {path} --verify` finds all such rows. Copy or build the file again."
    )


@pytest.mark.parametrize("address", [0, 2**20, 2**63, 2**64 - 1])
def test_a_reference_to_nowhere_is_an_error(tmp_path, address):
    """An address outside the file, or of something else, is refused."""
    path = make(tmp_path / "x.h5")
    with h5py.File(path) as file:
        start = file["x"].id.get_offset() + 16 * 4
    with_bytes(path, start + 4, struct.pack("<Q", address))
    rows = located(path)
    with pytest.raises(HDF5FileError, match=r"^row 4 of x in .* cannot be read: the heap of its bytes is damaged\."):
        rows.read(4)
    assert rows.read(3).tobytes() == rows_of_bytes()[3].tobytes()
    rows.close()


def test_two_rows_of_the_same_bytes_are_an_error(tmp_path):
    """A reference that became another row's would be a wrong picture."""
    path = make(tmp_path / "x.h5")
    with h5py.File(path) as file:
        start = file["x"].id.get_offset()
    with_bytes(path, start + 16 * 11, path.read_bytes()[start + 16 * 12 : start + 16 * 13])
    with pytest.raises(HDF5FileError) as caught:
        located(path)
    assert str(caught.value) == (
        f"x in {path} is damaged: two of its rows refer to the same bytes. Copy or build the file again."
    )


def test_a_file_written_anew_is_noticed(tmp_path):
    """Rows of another file under the same name are refused."""
    path = make(tmp_path / "x.h5")
    os.utime(path, (10**9, 10**9))
    rows = located(path)
    rows.read(0)
    os.utime(path)
    with pytest.raises(HDF5FileError, match="was written anew since this reader was made"):
        rows.read(0)
    rows.close()

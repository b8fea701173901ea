"""Data outside of the file that names it: which files those are, and what is said when one of them is missing."""

import os
import pickle
from pathlib import Path

import h5py
import numpy as np
import pytest

from helpers import RowReader, layout, outside
from helpers.batches import BatchSource
from helpers.inspector import inspect_file
from helpers.layout import DatasetNotFoundError, LayoutError, OutsideFileWarning, read_split_info

IMAGES = np.arange(4 * 6 * 8 * 3, dtype=np.uint8).reshape(4, 6, 8, 3)
LABELS = np.array([0, 1, 1, 0])
PAIR = {"images": "x", "labels": "y"}


def source_file(folder: Path, rows: int = 4) -> Path:
    """The other file: images called ``pics``."""
    path = folder / "other.h5"
    with h5py.File(path, "w") as file:
        file["pics"] = IMAGES[:rows]
    return path


def linked(file: h5py.File) -> None:
    file["x"] = h5py.ExternalLink("other.h5", "pics")


def virtual(file: h5py.File, name: str = "other.h5", dataset: str = "pics") -> None:
    made_of = h5py.VirtualLayout(IMAGES.shape, np.uint8)
    made_of[:] = h5py.VirtualSource(name, dataset, IMAGES.shape)
    file.create_virtual_dataset("x", made_of)


def stored_outside(file: h5py.File) -> None:
    place = str(Path(file.filename).parent / "other.h5")
    file.create_dataset("x", IMAGES.shape, np.uint8, external=[(place, 0, h5py.h5f.UNLIMITED)])


def main_file(folder: Path, make) -> Path:
    path = folder / "main.h5"
    with h5py.File(path, "w") as file:
        make(file)
        file["y"] = LABELS
        file.attrs["class_names"] = ["a", "b"]
    return path


WAYS = {"external link": linked, "virtual dataset": virtual, "external storage": stored_outside}


def make_sources(folder: Path, way: str) -> Path:
    path = source_file(folder)
    if way == "external storage":
        path.write_bytes(IMAGES.tobytes())
    return path


@pytest.mark.parametrize("way", WAYS)
def test_reading_outside_is_said_once(tmp_path, way, recwarn):
    """The sentence names the other file, once for each file and dataset; the rows are right."""
    other, path = make_sources(tmp_path, way), main_file(tmp_path, WAYS[way])
    with pytest.warns(OutsideFileWarning) as said:
        assert read_split_info(path, **PAIR).n == 4
    assert [str(warning.message) for warning in said] == [
        f"x in {path} lies outside this file: {other} ({way}) is read as well. Whoever changes that changes your data. "
        "`python -m data_scripts.rechunk IN.h5 OUT.h5` brings all into one file."
    ]
    with RowReader(path, "x") as reader:
        assert (reader.read(range(4)) == IMAGES).all()
    assert not recwarn.list


def test_a_reader_in_another_process_says_nothing(tmp_path, monkeypatch):
    """The warning belongs to whoever made the reader; a worker that got it pickled reads in silence."""
    source_file(tmp_path)
    path = main_file(tmp_path, linked)
    with pytest.warns(OutsideFileWarning), RowReader(path, "x") as reader:
        sent = pickle.dumps(reader)
    monkeypatch.setattr(layout, "_said", set())  # as in a new process
    with pickle.loads(sent) as received:
        assert (received.read([2]) == IMAGES[2]).all()


def test_a_sequence_says_what_it_reads(tmp_path):
    """Batches from another file come with the warning."""
    source_file(tmp_path)
    path = main_file(tmp_path, linked)
    with pytest.warns(OutsideFileWarning, match=r"other\.h5 \(external link\)"):
        source = BatchSource(path, **PAIR, batch_size=4, shuffle=None)
    images, _ = source.batch(0, 0)
    source.close()
    assert (images == IMAGES).all()


def gone(folder: Path) -> None:
    (folder / "other.h5").unlink()


def pipe(folder: Path) -> None:
    gone(folder)
    os.mkfifo(folder / "other.h5")


def another_dataset(folder: Path) -> None:
    with h5py.File(folder / "other.h5", "w") as file:
        file["others"] = IMAGES


def fewer_rows(folder: Path) -> None:
    source_file(folder, rows=3)


def fewer_bytes(folder: Path) -> None:
    os.truncate(folder / "other.h5", 100)


MISSING = [
    ("external link", gone, "x needs other.h5 (external link), which does not exist"),
    ("external link", pipe, "x needs {other} (external link), which is not a regular file"),
    (
        "external link",
        another_dataset,
        "x needs {other} (external link), which cannot be opened as HDF5, or has no 'pics'",
    ),
    ("virtual dataset", gone, "x needs other.h5 (virtual dataset), which does not exist"),
    ("virtual dataset", pipe, "x needs {other} (virtual dataset), which is not a regular file"),
    ("virtual dataset", another_dataset, "x needs {other} (virtual dataset), which has no dataset 'pics'"),
    ("virtual dataset", fewer_rows, "x needs {other} (virtual dataset), which has 3 rows in 'pics' instead of 4"),
    ("external storage", gone, "x needs {other} (external storage), which does not exist"),
    ("external storage", pipe, "x needs {other} (external storage), which is not a regular file"),
    ("external storage", fewer_bytes, "x needs {other} (external storage), which has 100 bytes instead of 576"),
]


@pytest.mark.parametrize(("way", "damage", "sentence"), MISSING, ids=[f"{c[0]}, {c[1].__name__}" for c in MISSING])
def test_a_missing_source_is_named(tmp_path, way, damage, sentence):
    """HDF5 would serve fill values, or wait for ever: here it is an error, and a fault in the inspector's report."""
    other, path = make_sources(tmp_path, way), main_file(tmp_path, WAYS[way])
    damage(tmp_path)
    sentence = sentence.format(other=other)
    with pytest.raises(LayoutError) as raised:
        RowReader(path, "x")
    assert str(raised.value) == (
        f"x in {path} is not complete: {sentence}. HDF5 would serve empty images in its place. Bring that file back, "
        "or build this one again."
    )
    report = inspect_file(path, **PAIR)
    assert [fault.code for fault in report.faults] == ["broken-link" if way == "external link" else "missing-source"]
    assert report.faults[0].message.startswith(sentence)
    assert report.exit_code == 1


@pytest.mark.parametrize("way", WAYS)
def test_the_inspector_names_files_outside(tmp_path, way):
    """Data outside is a warning: the file can be trained on."""
    other, path = make_sources(tmp_path, way), main_file(tmp_path, WAYS[way])
    report = inspect_file(path, **PAIR)
    assert [fault.code for fault in report.faults] == []
    assert [warning.code for warning in report.warnings] == ["outside-file"]
    assert report.warnings[0].message == f"x lies outside this file: {other} ({way}) is read as well."


def test_virtual_datasets_of_the_same_file_are_inside(tmp_path):
    """A source called "." is the file itself; what is missing there is named all the same."""
    path = tmp_path / "main.h5"
    with h5py.File(path, "w") as file:
        file["pics"] = IMAGES
        virtual(file, ".")
    with RowReader(path, "x") as reader:
        assert (reader.read(range(4)) == IMAGES).all()
    with h5py.File(path, "r+") as file:
        del file["pics"]
    with pytest.raises(LayoutError, match=r"which has no dataset '/?pics'"):
        RowReader(path, "x")


def test_sources_of_sources_are_found(tmp_path):
    """A link to a virtual dataset whose own source is gone is not served either."""
    source_file(tmp_path)
    with h5py.File(tmp_path / "middle.h5", "w") as file:
        virtual(file)
    path = main_file(tmp_path, lambda file: file.__setitem__("x", h5py.ExternalLink("middle.h5", "x")))
    with pytest.warns(
        OutsideFileWarning, match=r"middle\.h5 \(external link\), .*other\.h5 \(virtual dataset\) is read"
    ):
        RowReader(path, "x").close()
    gone(tmp_path)
    with pytest.raises(LayoutError, match=r"other\.h5 \(virtual dataset\), which does not exist"):
        RowReader(path, "x")


def test_links_that_go_round_in_circles_end(tmp_path):
    """Soft links to each other, and a link into the file itself, lead to no dataset."""
    path = tmp_path / "main.h5"
    with h5py.File(path, "w") as file:
        file["a"], file["b"] = h5py.SoftLink("/b"), h5py.SoftLink("/a")
        file["c"] = h5py.ExternalLink("main.h5", "/c")
        file["y"] = LABELS
    with h5py.File(path) as file:
        assert outside.find(file, "a") == (None, [])
        with pytest.raises(DatasetNotFoundError, match="has no dataset 'a'. Datasets in it: y."):
            layout.find_dataset(file, "a")
    assert "broken-link" in [fault.code for fault in inspect_file(path).faults]


def test_places_are_those_of_hdf5(tmp_path, monkeypatch):
    """The folder of the file counts before the working directory; an absolute name that is gone loses its folder."""
    (tmp_path / "here").mkdir()
    (tmp_path / "there").mkdir()
    source_file(tmp_path / "there")
    other = source_file(tmp_path / "here")
    path = main_file(tmp_path / "here", lambda file: file.__setitem__("x", h5py.ExternalLink("/gone/other.h5", "pics")))
    monkeypatch.chdir(tmp_path / "there")
    with h5py.File(path) as file:
        item, sources = outside.find(file, "x")
        assert [source.file for source in sources] == [other]
        assert item.file.filename == str(other)
        item.file.close()

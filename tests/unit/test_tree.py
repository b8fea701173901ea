"""The tree of a file: every kind of object has words, and nothing in a file can make the walk fail or never end."""

import h5py
import numpy as np

from helpers import layout, tree
from helpers.tree import read_tree


def test_exotic_types_have_words(tmp_path):
    """Records, enums, texts, references, empty datasets and single values are described, not read."""
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file["enum"] = np.zeros(3, h5py.enum_dtype({"no": 0, "yes": 1}))
        file["empty"] = h5py.Empty("f4")
        file["one"] = 3.5
        file["records"] = np.zeros(2, [("a", "i4"), ("b", "f8")])
        file["text"] = "hello"
        file["fixed"] = np.bytes_(b"abc")
        file.create_dataset("references", (2,), h5py.ref_dtype)
        file.create_dataset("rows", (2,), h5py.vlen_dtype(np.uint8))
        file["kind"] = np.dtype("i8")
    with h5py.File(path) as file:
        found = read_tree(file)
    assert {
        entry.name: entry.words.partition(", chunks")[0].partition(", one piece")[0] for entry in found.entries
    } == {
        "empty": "empty, float32",
        "enum": "(3,) enum uint8 of 2 names",
        "fixed": "() |S3",
        "kind": "named type",
        "one": "() float64",
        "records": "(2,) records (a, b)",
        "references": "(2,) references",
        "rows": "(2,) variable-length uint8",
        "text": "() text",
    }
    assert found.complete


def test_links_and_circles(tmp_path):
    """A group that contains itself is entered once; links are named, not walked through; dead ones are noted."""
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file["a/x"] = 1
        file["a/again"] = file["a"]
        file["soft"] = h5py.SoftLink("/a/x")
        file["dead"] = h5py.SoftLink("/a/y")
        file["far"] = h5py.ExternalLink("gone.h5", "z")
    with h5py.File(path) as file:
        found = read_tree(file)
        assert layout.dataset_names(file) == ["a/x", "soft"]
    assert [(entry.name, entry.depth, entry.kind, entry.words) for entry in found.entries] == [
        ("a", 0, "group", "group"),
        ("a/again", 1, "group", "group that is shown already, under another name"),
        ("a/x", 1, "dataset", "() int64, one piece (contiguous), not compressed"),
        ("dead", 0, "link", "link to /a/y"),
        ("far", 0, "link", "external link to z in gone.h5"),
        ("soft", 0, "link", "link to /a/x"),
    ]
    assert found.broken_links == [
        "dead is a link to /a/y, which is not there",
        "far needs gone.h5 (external link), which does not exist",
    ]


def test_names_cannot_play_tricks(tmp_path):
    """Control characters in names and attributes are spelled out, bytes that are not UTF-8 too."""
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file["clear\x1b[2Jscreen"] = 1
        h5py.h5g.create(file.id, b"caf\xe9")
        file.attrs["two\nlines"] = "a\rb"
    with h5py.File(path) as file:
        assert [entry.name for entry in read_tree(file).entries] == ["caf\\xe9", "clear\\x1b[2Jscreen"]
        assert tree.attribute_words(file) == {"two\\nlines": "a\\rb"}


def test_attributes_of_all_objects(tmp_path):
    """Attributes of groups and datasets are there; huge ones are named by their size, of many the first are shown."""
    path = tmp_path / "x.h5"
    with h5py.File(path, "w", libver="latest") as file:
        file["g/x"] = 1
        file["g"].attrs["author"] = "me"
        file["g/x"].attrs["huge"] = np.zeros(300_000)
        for number in range(60):
            file["g/x"].attrs[f"n{number:02}"] = number
    with h5py.File(path) as file:
        group, data = read_tree(file).entries
    assert group.attributes == {"author": "me"}
    assert data.attributes["huge"] == "(300000,) values, 2.4 MB"
    assert (len(data.attributes), data.attributes["..."]) == (tree.MOST_ATTRIBUTES + 1, "more attributes")


def test_many_and_deep_groups_are_cut_off(tmp_path):
    """The walk is bounded in width and depth, and the tree says that there is more."""
    with h5py.File(tmp_path / "wide.h5", "w") as file:
        for number in range(3000):
            h5py.h5g.create(file.id, b"%d" % number)
        found = read_tree(file)
    assert (len(found.entries), found.complete) == (tree.MOST_OBJECTS, False)
    with h5py.File(tmp_path / "deep.h5", "w") as file:
        group = file
        for _ in range(500):
            group = group.create_group("g")
        found = read_tree(file)
        assert layout.dataset_names(file) == []
    assert (len(found.entries), found.complete) == (tree.MOST_DEPTH, False)


def test_a_damaged_object_is_an_entry(tmp_path):
    """One object that cannot be read hides no other."""
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        for name in "abc":
            file.create_group(name)["x"] = 1
        place = h5py.h5o.get_info(file["b"].id).addr
    with path.open("r+b") as raw:
        raw.seek(place)
        raw.write(b"\xff" * 8)
    with h5py.File(path) as file:
        found = read_tree(file)
    assert [(entry.name, entry.kind) for entry in found.entries] == [
        ("a", "group"),
        ("a/x", "dataset"),
        ("b", "damaged"),
        ("c", "group"),
        ("c/x", "dataset"),
    ]

"""The tree of a file in words: groups, datasets, links and their attributes, whatever lies in there.

The walk is bounded in every direction: links are named and not walked through, a group is entered once, and of many
objects, deep groups and large attributes the beginning is shown. What is damaged becomes an entry that says so.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field

import h5py
import numpy as np

from helpers import first_look, layout, outside
from helpers.words import printable, shortened, size_text

MOST_OBJECTS = 2_000  # described in one file; each costs 0.2 ms
MOST_MEMBERS = 20_000  # of one group whose names are fetched
MOST_DEPTH = 32  # of groups within groups
MOST_ATTRIBUTES = 50  # of one object
_ATTRIBUTE_BYTES = 2**20  # of a larger attribute the type is shown, not the value

DAMAGE = (OSError, RuntimeError, KeyError, ValueError, TypeError, OverflowError, MemoryError)  # h5py, on damaged bytes
_FILTERS = {h5py.h5z.FILTER_DEFLATE: "gzip", h5py.h5z.FILTER_SHUFFLE: "shuffle", h5py.h5z.FILTER_LZF: "lzf"}
_FILTERS |= {h5py.h5z.FILTER_FLETCHER32: "fletcher32", h5py.h5z.FILTER_SCALEOFFSET: "scaleoffset"}


@dataclass(frozen=True)
class Entry:
    """One object or link of a file."""

    name: str  # full name, printable
    depth: int  # 0 in the root group
    kind: str  # "group" | "dataset" | "link" | "other" | "damaged"
    words: str
    attributes: dict[str, str] = field(default_factory=dict)


@dataclass
class Tree:
    """All entries in the order of their names, and what is wrong among them."""

    entries: list[Entry] = field(default_factory=list)
    broken_links: list[str] = field(default_factory=list)  # sentences
    complete: bool = True  # False: the file has more than is shown

    def names(self, kind: str) -> list[str]:
        """Full names of the entries of one kind."""
        return [entry.name for entry in self.entries if entry.kind == kind]


def read_tree(file: h5py.File) -> Tree:
    """Walk through an open file. Raises what h5py raises when its root group is damaged."""
    tree = Tree()
    seen = {_address(file)}
    stack = [_sorted_members(file, tree)]
    groups = [("", file)]
    while stack:
        name = next(stack[-1], None)
        if name is None:
            stack.pop()
            groups.pop()
        elif len(tree.entries) >= MOST_OBJECTS:
            tree.complete = False
            break
        elif (entered := _note(tree, groups[-1], name, len(groups) - 1, seen)) is not None:
            stack.append(entered[0])
            groups.append((f"{groups[-1][0]}{name}/", entered[1]))
    return tree


def attribute_words(item: h5py.HLObject) -> dict[str, str]:
    """Attributes of an object, shortened."""
    names: list[bytes] = []
    h5py.h5a.iterate(item.id, lambda name: names.append(name) or (True if len(names) > MOST_ATTRIBUTES else None))
    words = {printable(layout.as_text(name)): _attribute(item, name) for name in names[:MOST_ATTRIBUTES]}
    return words | ({"...": "more attributes"} if len(names) > MOST_ATTRIBUTES else {})


def filter_words(data: h5py.Dataset) -> str:
    """Filters of a dataset: ``shuffle+gzip``; empty without any."""
    created = data.id.get_create_plist()
    codes = [created.get_filter(place)[0] for place in range(created.get_nfilters())]
    return "+".join(_FILTERS.get(code, f"filter {code}") for code in codes)


def dataset_words(data: h5py.Dataset) -> str:
    """Shape, type, chunks and compression of a dataset."""
    kind = type_words(data)
    if data.shape is None:
        return f"empty, {kind}"
    return f"{data.shape} {kind}, {_storage_words(data)}"


def type_words(data: h5py.Dataset) -> str:
    """The type of the elements."""
    try:
        dtype = data.dtype
    except TypeError:
        return "a type that NumPy does not have"
    if h5py.check_string_dtype(dtype) is not None:
        return "text" if dtype.kind == "O" else str(dtype)
    if (inner := h5py.check_vlen_dtype(dtype)) is not None:
        return f"variable-length {np.dtype(inner)}"
    if (names := h5py.check_enum_dtype(dtype)) is not None:
        return shortened(f"enum {dtype} of {len(names)} names")
    if h5py.check_ref_dtype(dtype) is not None:
        return "references"
    if dtype.names:
        return shortened(f"records ({', '.join(printable(name) for name in dtype.names)})")
    return shortened(str(dtype))


def object_name(item: h5py.HLObject) -> str:
    """Name of an object as it is shown: printable, without the first slash."""
    return printable(layout.as_text((item.name or "").lstrip("/").encode("utf-8", "surrogateescape")))


def _note(tree: Tree, owner: tuple[str, h5py.Group], name: str, depth: int, seen: set[int]):
    """Add the entry of one member; the names in it and the group itself when it is a group to enter."""
    prefix, group = owner
    shown = printable(layout.as_text(f"{prefix}{name}".encode("utf-8", "surrogateescape")))
    try:
        link = group.get(name, getlink=True)
        if not isinstance(link, h5py.HardLink):
            tree.entries.append(Entry(shown, depth, "link", _link_words(tree, group, name, shown, link)))
            return None
        item = group[name]
        if not isinstance(item, h5py.Group):
            tree.entries.append(_entry_of(item, shown, depth))
            return None
        return _enter(tree, item, shown, depth, seen)
    except DAMAGE as error:
        tree.entries.append(Entry(shown, depth, "damaged", f"cannot be read: {shortened(printable(str(error)), 200)}"))
        return None


def _enter(tree: Tree, group: h5py.Group, shown: str, depth: int, seen: set[int]):
    address = _address(group)
    if address in seen:
        tree.entries.append(Entry(shown, depth, "group", "group that is shown already, under another name"))
        return None
    seen.add(address)
    if depth + 1 >= MOST_DEPTH:
        tree.complete = False
        tree.entries.append(Entry(shown, depth, "group", "group; what is in it is not shown, it lies too deep"))
        return None
    members = _sorted_members(group, tree)
    tree.entries.append(Entry(shown, depth, "group", "group", attribute_words(group)))
    return members, group


def _entry_of(item: h5py.HLObject, shown: str, depth: int) -> Entry:
    if isinstance(item, h5py.Dataset):
        return Entry(shown, depth, "dataset", dataset_words(item), attribute_words(item))
    return Entry(shown, depth, "other", "named type")


def _link_words(tree: Tree, group: h5py.Group, name: str, shown: str, link) -> str:
    if isinstance(link, h5py.ExternalLink):
        words = f"external link to {printable(link.path)} in {printable(link.filename)}"
        source = outside.link_source(group, name, link)
        missing = f"{shown} needs {source.file} (external link), which {source.fault}" if source.fault else ""
    elif isinstance(link, h5py.SoftLink):
        words = f"link to {printable(link.path)}"
        missing = f"{shown} is a link to {link.path}, which is not there" if _leads_nowhere(group, name) else ""
    else:
        return "link of a kind that h5py does not know"
    if missing:
        tree.broken_links.append(missing)
    return words


def _leads_nowhere(group: h5py.Group, name: str) -> bool:
    item, sources = outside.find(group, name)
    return item is None and not any(source.fault for source in sources)  # that one is named at its own link


def _storage_words(data: h5py.Dataset) -> str:
    created = data.id.get_create_plist()
    if created.get_layout() == h5py.h5d.VIRTUAL:
        return f"virtual, of {created.get_virtual_count():,} pieces"
    if created.get_external_count():
        return "in other files (external storage)"
    chunks = f"chunks {data.chunks}" if data.chunks else "one piece (contiguous)"
    return f"{chunks}, {filter_words(data) or 'not compressed'}"


def _attribute(item: h5py.HLObject, name: bytes) -> str:
    try:
        attribute = h5py.h5a.open(item.id, name)
        size = attribute.get_storage_size()
        if size > _ATTRIBUTE_BYTES:
            return f"{attribute.shape} values, {size_text(size)}"
        loose = first_look.has_no_fixed_size(item, os.fsdecode(name))
        if loose and (danger := first_look.danger(item.file, needed=True)):
            return f"cannot be read: {danger}"
        return _value_words(item.attrs[os.fsdecode(name)])
    except DAMAGE as error:
        return f"cannot be read: {shortened(printable(str(error)))}"


def _value_words(value) -> str:
    """A stored value in words, shortened."""
    if isinstance(value, h5py.Empty):
        return "empty"
    if isinstance(value, np.ndarray):
        floats = value.dtype.kind == "f"
        parts = [f"{part:.4g}" if floats else shortened(layout.as_text(part)) for part in value.ravel()[:4]]
        return printable(", ".join(parts) + (f" and {value.size - 4} more" if value.size > 4 else ""))
    return printable(shortened(layout.as_text(value)))


def _sorted_members(group: h5py.Group, tree: Tree) -> Iterator[str]:
    names: list[bytes] = []
    group.id.links.iterate(lambda name: names.append(name) or (True if len(names) > MOST_MEMBERS else None))
    tree.complete = tree.complete and len(names) <= MOST_MEMBERS
    return iter(sorted(os.fsdecode(name) for name in names))


def _address(group: h5py.Group) -> int:
    return h5py.h5o.get_info(group.id).addr

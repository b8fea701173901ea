"""What is in an HDF5 file besides rows of images: groups, attributes, links, dimension scales; and copying all of it.

What lies in other files (external links, virtual datasets, external storage) is brought into the new file.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import h5py
import numpy as np

from data_scripts.rechunk_rows import BLOCK_BYTES, is_list_of_values, is_ragged, row_blocks, write_rows
from helpers import outside
from helpers.part_file import PartFile

LARGE_BYTES = 64 * 2**20  # of a dataset that is not copied in one go
_STORED = "external storage"
_SCALE_ATTRIBUTES = {b"DIMENSION_LIST", b"REFERENCE_LIST"}  # references between datasets and scales: made anew


class CopyError(ValueError):
    """Something in the file cannot be copied as it is."""


@dataclass(frozen=True)
class Entry:
    """One name in the new file. Objects are opened when they are asked for: a file may have very many."""

    path: str  # without the slash in front; "" is the root
    kind: str  # "group" | "dataset" | "type" | "same" (a second name) | "soft"
    home: h5py.File | None = None  # the file that the object lies in
    inside: str = "/"  # its name there
    target: str = ""  # of "same": the first name; of "soft": the text of the link

    @property
    def item(self) -> h5py.Group | h5py.Dataset | h5py.Datatype:
        return self.home[self.inside]


@dataclass
class Survey:
    """All names of a file, groups before what is in them, and what of it lies outside."""

    entries: list[Entry] = field(default_factory=list)
    brought_in: list[str] = field(default_factory=list)  # one sentence each
    outside: set[Path] = field(default_factory=set)  # files whose content is brought in
    paths: dict[tuple[int, int], str] = field(default_factory=dict)  # identity of an object -> its first name

    @property
    def dataset_names(self) -> list[str]:
        return [entry.path for entry in self.entries if entry.kind == "dataset"]

    def datasets(self) -> Iterator[tuple[str, h5py.Dataset]]:
        """(name, dataset) of all, opened one by one."""
        return ((entry.path, entry.item) for entry in self.entries if entry.kind == "dataset")


def identity(item) -> tuple[int, int]:
    """What tells an object from all others, whatever its names."""
    info = h5py.h5o.get_info(item.id)
    return info.fileno, info.addr


def survey(file: h5py.File) -> Survey:
    """Walk through ``file``, and through what it links to in other files.

    Raises
    ------
    CopyError
        A source outside is missing or too short, or there are references that would point to the wrong rows or places.
    """
    found = Survey()
    _add(found, "", file["/"], Entry("", "group", file))
    return found


def _add(found: Survey, path: str, item, entry: Entry) -> None:
    first = found.paths.get(identity(item))
    if first is not None:
        found.entries.append(Entry(path, "same", target=first))
        return
    found.paths[identity(item)] = path
    _refuse_references(path, item)
    found.entries.append(entry)
    if entry.kind == "dataset":
        _note_outside(found, path, item)
    elif entry.kind == "group":
        for name in item:
            _add_link(found, f"{path}/{name}".lstrip("/"), item, name, entry)


def _add_link(found: Survey, path: str, group: h5py.Group, name: str, parent: Entry) -> None:
    if path.encode("utf-8", "replace").decode() != path:
        raise CopyError(f"the name {path!a} is not UTF-8. Rename it.")
    link = group.get(name, getlink=True)
    if isinstance(link, h5py.SoftLink) and parent.home == found.entries[0].home:
        found.entries.append(Entry(path, "soft", target=link.path))
        return
    if isinstance(link, h5py.ExternalLink):
        source = outside.link_source(group, name, link)
        _check_source(source)
        found.outside.add(source.file.resolve())
        found.brought_in.append(f"{path}: content of {link.path} in {source.file} (was an external link)")
    try:
        item = group[name]
    except (KeyError, OSError, RuntimeError) as error:
        raise CopyError(
            f"{path} in {group.file.filename} cannot be opened. Repair or remove it. HDF5 said: {error}"
        ) from error
    home, inside = (parent.home, f"{parent.inside.rstrip('/')}/{name}")
    if isinstance(link, h5py.ExternalLink):
        home, inside = item.file, item.name
    kind = {h5py.Dataset: "dataset", h5py.Group: "group"}.get(type(item), "type")
    _add(found, path, item, Entry(path, kind, home, inside))


def _refuse_references(path: str, item) -> None:
    for attribute in _attributes(item):
        if attribute.name not in _SCALE_ATTRIBUTES and _has_references(attribute.get_type()):
            raise CopyError(
                f"attribute {attribute.name.decode(errors='backslashreplace')} of /{path} holds references, which "
                "would point to the wrong place in a new file. Remove it first, or store names instead."
            )
    if isinstance(item, h5py.Dataset) and _has_references(item.id.get_type()):
        raise CopyError(
            f"{path} holds references, which would point to the wrong place in a new file. Remove it first, or store "
            "names instead."
        )


def _has_references(kind: h5py.h5t.TypeID) -> bool:
    return bool(kind.detect_class(h5py.h5t.REFERENCE))


def _attributes(item) -> Iterator[h5py.h5a.AttrID]:
    for index in range(h5py.h5a.get_num_attrs(item.id)):
        yield h5py.h5a.open(item.id, index=index)


# -- content in other files -------------------------------------------------------------------------------------------


def is_outside(data: h5py.Dataset) -> bool:
    """Whether the values of a dataset lie in other files or datasets."""
    return bool(data.is_virtual or data.external)


def _note_outside(found: Survey, path: str, data: h5py.Dataset) -> None:
    if not is_outside(data):
        return
    if data.is_virtual and any("%b" in source.file_name + source.dset_name for source in data.virtual_sources()):
        raise CopyError(
            f"{path} is a virtual dataset over a pattern of names, of which nobody can tell whether all are there. "
            "Name its sources one by one."
        )
    sources = outside.sources_of(data)
    for source in sources:
        _check_source(source)
        found.outside.add(source.file.resolve())
    names = ", ".join(str(source.file) for source in sources) or "other datasets"
    found.brought_in.append(f"{path}: content of {names} (was {'a virtual dataset' if data.is_virtual else _STORED})")


def _check_source(source: outside.Source) -> None:
    if source.fault:
        raise CopyError(f"{source.missing}. Put it there: HDF5 itself would go on without a word.")


# -- copying ----------------------------------------------------------------------------------------------------------


def copy_all(found: Survey, part: PartFile, folder: Path, create_moved) -> None:
    """Make all names of ``found`` in the empty file ``part``, in order; each step of HDF5 in ``part.run``.

    ``create_moved(path, source)`` makes a dataset whose rows are written later and returns True, or returns False.
    """
    for entry in found.entries:
        if entry.kind == "dataset" and not part.run(create_moved, entry.path, entry.item):
            _copy_dataset(entry, part, folder)
        elif entry.kind != "dataset":
            part.run(_copy_small, entry, part.file)
        if entry.kind == "dataset":
            part.run(lambda entry=entry: copy_attributes(entry.item, part.file[entry.path]))
    part.run(_attach_scales, found, part.file)


def _copy_small(entry: Entry, target: h5py.File) -> None:
    if entry.kind == "soft":
        target[entry.path] = h5py.SoftLink(entry.target)
    elif entry.kind == "same":
        target[entry.path] = target[f"/{entry.target}"]
    elif entry.kind == "group":
        _copy_group(entry, target)
    else:
        _copy_object(entry, target)
        copy_attributes(entry.item, target[entry.path])


def _copy_group(entry: Entry, target: h5py.File) -> None:
    if entry.path:
        order = entry.item.id.get_create_plist().get_link_creation_order()
        target.create_group(entry.path, track_order=bool(order))
    copy_attributes(entry.item, target[f"/{entry.path}"])


def _copy_object(entry: Entry, target: h5py.File) -> None:
    options = h5py.h5p.create(h5py.h5p.OBJECT_COPY)
    options.set_copy_object(h5py.h5o.COPY_WITHOUT_ATTR_FLAG)
    try:
        h5py.h5o.copy(entry.item.id, b".", target.id, entry.path.encode(), options, link_options())
    except (OSError, RuntimeError) as error:
        raise _not_copied(entry.path, error) from error


def _not_copied(path: str, error: Exception) -> OSError:
    return OSError(f"{path} cannot be read or copied. HDF5 said: {error}")


def _copy_dataset(entry: Entry, part: PartFile, folder: Path) -> None:
    """Without attributes. A large one goes block by block, so that a write that fails ends it soon."""
    source = entry.item
    if is_outside(source):
        _bring_in(entry, part, folder)
        return
    made = part.run(_create_like, entry, part.file) if _is_large(source) else None
    if made is None:
        part.run(_copy_object, entry, part.file)
    elif is_ragged(source):
        _copy_rows(source, made, part, folder)
    elif source.chunks:
        _copy_chunks(entry.path, source, made, part)
    else:
        _copy_flat(entry.path, source, made, part)


def _is_large(source: h5py.Dataset) -> bool:
    if is_ragged(source):  # where its values lie, and how many bytes they are, HDF5 does not tell
        return is_list_of_values(source) and source.file.id.get_filesize() > LARGE_BYTES
    return source.id.get_storage_size() > LARGE_BYTES


def _create_like(entry: Entry, target: h5py.File) -> h5py.Dataset | None:
    """An empty dataset like that of the entry; None where HDF5 cannot make one, as for want of its filter."""
    source = entry.item
    options, kind = source.id.get_create_plist(), source.id.get_type().copy()
    options.set_obj_track_times(False)
    try:
        made = h5py.h5d.create(
            target.id, entry.path.encode(), kind, source.id.get_space(), options, lcpl=link_options()
        )
    except (OSError, RuntimeError, ValueError):
        return None
    return h5py.Dataset(made)


def _copy_chunks(path: str, source: h5py.Dataset, made: h5py.Dataset, part: PartFile) -> None:
    """Chunks as they are stored."""
    corners = array("Q")
    source.id.chunk_iter(lambda chunk: corners.extend(chunk.chunk_offset))
    corners = np.frombuffer(corners, np.uint64).reshape(-1, source.ndim)
    done = 0
    while done < len(corners):
        done = part.run(_copy_some_chunks, path, source, made, corners, done)


def _copy_some_chunks(path: str, source: h5py.Dataset, made: h5py.Dataset, corners: np.ndarray, done: int) -> int:
    """Copy chunks from number ``done`` on, a block of bytes or the rest; returns how many are done."""
    left = BLOCK_BYTES
    while done < len(corners) and left > 0:
        corner = tuple(corners[done].tolist())
        try:
            left_out, stored = source.id.read_direct_chunk(corner)
            made.id.write_direct_chunk(corner, stored, left_out)
        except (OSError, RuntimeError) as error:
            raise _not_copied(path, error) from error
        done, left = done + 1, left - len(stored)
    return done


def _copy_flat(path: str, source: h5py.Dataset, made: h5py.Dataset, part: PartFile) -> None:
    """Bytes as they are stored, whatever their type."""
    step = max(1, BLOCK_BYTES // (math.prod(source.shape[1:]) * source.id.get_type().get_size()))
    for first in range(0, len(source), step):
        part.run(_copy_some_bytes, path, source, made, first, min(first + step, len(source)))


def _copy_some_bytes(path: str, source: h5py.Dataset, made: h5py.Dataset, first: int, last: int) -> None:
    kind, shape = source.id.get_type(), (last - first, *source.shape[1:])
    rows, memory = np.empty(math.prod(shape) * kind.get_size(), np.uint8), h5py.h5s.create_simple(shape)
    try:
        for data, move in ((source, source.id.read), (made, made.id.write)):
            in_file = data.id.get_space()
            in_file.select_hyperslab((first, *(0 for _ in shape[1:])), shape)
            move(memory, in_file, rows, kind)
    except (OSError, RuntimeError) as error:
        raise _not_copied(path, error) from error


def _copy_rows(source: h5py.Dataset, made: h5py.Dataset, part: PartFile, folder: Path) -> None:
    for first, rows in row_blocks(source, folder):
        part.run(write_rows, made, first, rows)


def _bring_in(entry: Entry, part: PartFile, folder: Path) -> None:
    source = entry.item
    data = part.run(_create_plain, entry, part.file)
    if source.shape == ():
        part.run(lambda: data.__setitem__((), source[()]))
    elif source.shape is not None:
        _copy_rows(source, data, part, folder)


def _create_plain(entry: Entry, target: h5py.File) -> h5py.Dataset:
    source = entry.item
    space = h5py.h5s.create_simple(source.shape, source.shape) if source.shape else source.id.get_space()
    kind = source.id.get_type().copy()
    return h5py.Dataset(h5py.h5d.create(target.id, entry.path.encode(), kind, space, lcpl=link_options()))


def link_options() -> h5py.h5p.PropLCID:
    """For names in UTF-8."""
    options = h5py.h5p.create(h5py.h5p.LINK_CREATE)
    options.set_char_encoding(h5py.h5t.CSET_UTF8)
    return options


def copy_attributes(source, target) -> None:
    """Copy all attributes with their stored types; those that tie datasets to dimension scales are made anew later."""
    for attribute in _attributes(source):
        if attribute.name in _SCALE_ATTRIBUTES:
            continue
        kind, space = attribute.get_type(), attribute.get_space()
        try:
            made = h5py.h5a.create(target.id, attribute.name, kind.copy(), space)
            if space.get_simple_extent_type() != h5py.h5s.NULL:
                values = np.empty(attribute.shape, attribute.dtype)
                attribute.read(values)
                made.write(values)
        except (TypeError, OSError, ValueError) as error:
            raise CopyError(
                f"attribute {attribute.name.decode(errors='backslashreplace')} of {source.name} has a type that "
                f"cannot be copied. Remove it first. The reason: {error}"
            ) from error


def _attach_scales(found: Survey, target: h5py.File) -> None:
    for path, data in found.datasets():
        if b"DIMENSION_LIST" not in {attribute.name for attribute in _attributes(data)}:
            continue
        for axis, dimension in enumerate(data.dims):
            for scale in dimension.values():
                name = found.paths.get(identity(scale))
                if name is None:
                    raise CopyError(f"a dimension scale of {path} has no name in the file. Remove it first.")
                target[path].dims[axis].attach_scale(target[name])

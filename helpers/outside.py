"""Data outside of the file that names it: external links, virtual datasets and external raw storage.

HDF5 follows all three without a word. Where a source is missing it serves fill values, black images, just as quietly;
where it is a pipe, opening it never ends. So the places are looked up here first, in the order in which HDF5 1.14 tries
them, and only then is HDF5 let in.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, replace
from pathlib import Path

import h5py

EXTERNAL_LINK, VIRTUAL, EXTERNAL_STORAGE = "external link", "virtual dataset", "external storage"
_MOST_STEPS = 16  # links that lead to links, virtual datasets made of virtual ones: HDF5 stops at 16 too
_DAMAGE = (OSError, RuntimeError, KeyError, ValueError, TypeError)  # what h5py raises for an object that is damaged


@dataclass(frozen=True)
class Source:
    """Another file that data comes from: by which way, to which link or dataset, and what is wrong with it."""

    way: str  # EXTERNAL_LINK | VIRTUAL | EXTERNAL_STORAGE
    name: str  # the link or dataset that leads there
    file: Path  # where it lies; as it is stored in the file, when it is not found
    fault: str = ""  # "does not exist", ...; empty when all is well

    @property
    def missing(self) -> str:
        """The fault as a sentence; empty when there is none."""
        return f"{self.name} needs {self.file} ({self.way}), which {self.fault}" if self.fault else ""


def find(file: h5py.Group, name: str) -> tuple[h5py.HLObject | None, list[Source]]:
    """The object ``name`` of an open file, or None, and the other files on the way to it and below it.

    A source may be at fault (:attr:`Source.fault`); then nothing of it was opened.
    """
    sources: list[Source] = []
    item = _follow(file, name, sources, _MOST_STEPS)
    if isinstance(item, h5py.Dataset):
        sources += sources_of(item)
    return item, sources


def sources_of(data: h5py.Dataset) -> list[Source]:
    """The other files that the bytes of an open dataset come from; one of each."""
    return _sources_of(data, _MOST_STEPS)


def link_source(group: h5py.Group, name: str, link: h5py.ExternalLink) -> Source:
    """Where an external link leads, and whether that can be opened. Opens the other file when it looks sound."""
    source = _located(EXTERNAL_LINK, name, group, link.filename, "HDF5_EXT_PREFIX")
    if source.fault:
        return source
    try:
        item = group.get(name)
    except _DAMAGE as error:
        return replace(source, fault=f"cannot be read: {error}")
    if item is None:
        return replace(source, fault=f"cannot be opened as HDF5, or has no {link.path!r}")
    return replace(source, file=Path(item.file.filename))


def _follow(here: h5py.HLObject | None, path: str, sources: list[Source], steps: int) -> h5py.HLObject | None:
    if path.startswith("/"):
        here = here.file
    for part in path.split("/"):
        if part in {"", "."}:
            continue
        if not isinstance(here, h5py.Group) or steps == 0:
            return None
        link = here.get(part, getlink=True)
        if isinstance(link, h5py.SoftLink):
            here = _follow(here, link.path, sources, steps - 1)
            continue
        if isinstance(link, h5py.ExternalLink):
            sources.append(link_source(here, part, link))
            if sources[-1].fault:
                return None
        here = here.get(part)
    return here


def _sources_of(data: h5py.Dataset, steps: int) -> list[Source]:
    created = data.id.get_create_plist()
    found = _raw_files(data, created)
    if created.get_layout() == h5py.h5d.VIRTUAL and steps:
        found += _virtual_files(data, created, steps)
    return list(dict.fromkeys(found))


def _raw_files(data: h5py.Dataset, created) -> list[Source]:
    found = []
    for number in range(created.get_external_count()):
        name, offset, size = created.get_external(number)
        source = _located(EXTERNAL_STORAGE, _name(data), data, os.fsdecode(name), "HDF5_EXTFILE_PREFIX")
        if not source.fault:
            wanted = offset + (data.size * data.dtype.itemsize if size == h5py.h5f.UNLIMITED else size)
            have = source.file.stat().st_size
            if have < wanted:  # HDF5 fills up with zeros
                source = replace(source, fault=f"has {have} bytes instead of {wanted}")
        found.append(source)
    return found


def _virtual_files(data: h5py.Dataset, created, steps: int) -> list[Source]:
    """Sources of a virtual dataset: each other file is opened once, to see that the rows are there."""
    wanted: dict[tuple[str, str], int] = {}  # (file, dataset) -> rows that are mapped from it
    for number in range(created.get_virtual_count()):
        key = created.get_virtual_filename(number), created.get_virtual_dsetname(number)
        wanted[key] = max(wanted.get(key, 0), _rows_needed(created, number))
    found = []
    for (name, dataset), rows in wanted.items():
        if name == ".":
            found += _source_faults(_name(data), data.file, Path(data.file.filename), dataset, rows, steps)
            continue
        source = _located(VIRTUAL, _name(data), data, name.replace("%b", "0"), "HDF5_VDS_PREFIX")
        found.append(source)
        if not source.fault:
            found[-1:] = _opened_source(source, dataset.replace("%b", "0"), rows, steps)
    return found


def _opened_source(source: Source, dataset: str, rows: int, steps: int) -> list[Source]:
    try:
        with h5py.File(source.file, "r") as file:
            inner = _source_faults(source.name, file, source.file, dataset, rows, steps)
    except _DAMAGE as error:
        return [replace(source, fault=f"cannot be opened as HDF5: {error}")]
    return inner if any(each.file == source.file for each in inner) else [source, *inner]


def _source_faults(owner: str, file: h5py.File, path: Path, dataset: str, rows: int, steps: int) -> list[Source]:
    """What is wrong with the dataset that a virtual one is made of, and the files that it in turn comes from."""
    inner: list[Source] = []
    item = _follow(file, dataset, inner, steps - 1)
    if not isinstance(item, h5py.Dataset):
        return inner or [Source(VIRTUAL, owner, path, f"has no dataset {dataset!r}")]
    have = item.shape[0] if item.shape else 0
    if have < rows:
        return [*inner, Source(VIRTUAL, owner, path, f"has {have} rows in {dataset!r} instead of {rows}")]
    return inner + _sources_of(item, steps - 1)


def _rows_needed(created: h5py.h5p.PropDCID, number: int) -> int:
    """One more than the last row that a piece of a virtual dataset takes from its source; 0 when it has no end."""
    source, target = created.get_virtual_srcspace(number), created.get_virtual_vspace(number)
    try:
        if source.get_select_type() != h5py.h5s.SEL_ALL:
            return int(source.get_select_bounds()[1][0]) + 1
        first, last = target.get_select_bounds()  # as many as there is room for: every second row, perhaps
        points_a_row = math.prod(int(end) - int(start) + 1 for start, end in zip(first[1:], last[1:], strict=True))
        return target.get_select_npoints() // points_a_row
    except (ValueError, RuntimeError, IndexError):  # a selection without end
        return 0


def _located(way: str, name: str, item: h5py.HLObject, stored: str, prefix_variable: str) -> Source:
    """The first file that HDF5 will find under a stored name, and whether it is a file at all."""
    there = [place for place in _places(way, Path(item.file.filename), stored, prefix_variable) if exists(place)]
    if not there:
        return Source(way, name, Path(stored), "does not exist")
    odd = [place for place in there if not place.is_file()]  # a pipe would hold up HDF5 for ever
    return Source(way, name, odd[0], "is not a regular file") if odd else Source(way, name, there[0])


def _places(way: str, owner: Path, stored: str, prefix_variable: str) -> list[Path]:
    """Where HDF5 looks for a stored file name, in its order (H5F_prefix_open_file, H5D__build_file_prefix)."""
    prefix = os.environ.get(prefix_variable, "").replace("${ORIGIN}", str(owner.absolute().parent))
    if way == EXTERNAL_STORAGE:  # counts from the working directory
        return [Path(prefix) / stored]
    name = Path(stored).name if Path(stored).is_absolute() else stored
    folders = [*filter(None, prefix.split(os.pathsep)), owner.absolute().parent, Path(), owner.resolve().parent]
    first = [Path(stored)] if Path(stored).is_absolute() else []
    return first + [Path(folder) / name for folder in folders]


def exists(path: Path) -> bool:
    """Whether something lies there; False where that cannot be found out."""
    try:
        return path.exists()
    except (OSError, ValueError):  # a name longer than disks take, or with a zero byte in it
        return False


def _name(data: h5py.Dataset) -> str:
    return (data.name or "a dataset").lstrip("/")

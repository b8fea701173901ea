"""What lies in a folder of pictures with one folder a class: every file is a picture, skipped, or ignored for a reason.

The rules are in :mod:`data_scripts.build_hdf5`, for its users.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from helpers.images import ImageError, picture_kind, read_image

SUFFIXES = {".png", ".jpg", ".jpeg", ".jpe", ".jfif", ".webp", ".bmp", ".gif"}
SYSTEM_FOLDERS = {"__MACOSX", "@eaDir", "$RECYCLE.BIN", "System Volume Information", "lost+found"}
SPLIT_NAMES = {"train", "training", "valid", "val", "validation", "test", "testing"}
_END_BYTES = 4096  # files of one size mostly differ here


class BuildError(ValueError):
    """The file cannot be built from this source with these options."""


@dataclass(frozen=True)
class LeftOut:
    """A file that is not in the result: its path below SOURCE, and why."""

    path: str
    reason: str
    twin: str = ""  # a file with the same bytes


@dataclass
class Found:
    """Everything below SOURCE; paths are relative to it, with forward slashes, in the order of their names."""

    source: Path
    classes: dict[str, list[str]]  # name of the class -> its pictures, as far as names and first bytes can tell
    ignored: list[LeftOut] = field(default_factory=list)
    skipped: list[LeftOut] = field(default_factory=list)
    files: int = 0
    joined: tuple[str, ...] = ()  # classes of several folders, whose names are one in NFC
    empty: tuple[str, ...] = ()  # class folders without any picture

    @property
    def pictures(self) -> int:
        return sum(map(len, self.classes.values()))


def find_pictures(source: Path) -> Found:
    """List the class folders of ``source`` and the files in them. Raises BuildError when there is nothing to build."""
    if not source.is_dir():
        what = "is a file, not a folder" if source.exists() else "does not exist"
        raise BuildError(f"{source} {what}. Give the folder that holds one folder of pictures for each class.")
    root = source / "images" if is_food101(source) else source
    folders = _class_folders(root)
    names = Counter(folders.values())
    joined = tuple(sorted(name for name, count in names.items() if count > 1))
    found = Found(source, {name: [] for name in sorted(names)}, joined=joined)
    if not found.classes:
        raise BuildError(
            f"{source} has no class folders. Put the pictures of each class into a folder of its own: "
            "CLASS/picture.jpg."
        )
    _check_no_splits(source, root, folders)
    filled = set()  # classes with a picture, good or not
    for path in _files(source, root, folders):
        found.files += 1
        name = path.relative_to(source).as_posix()
        reason = _why_ignored(path, name, root, folders)
        if reason:
            found.ignored.append(LeftOut(name, reason))
            continue
        class_name = folders[root / path.relative_to(root).parts[0]]
        filled.add(class_name)
        broken = None if path.is_file() else _why_broken(path)  # a link; one that breaks later is a lost disk
        if broken is None:
            found.classes[class_name].append(name)
        else:
            found.skipped.append(LeftOut(name, broken))
    found.empty = tuple(name for name in found.classes if name not in filled)
    if not filled:
        raise BuildError(
            f"{source} has {len(found.classes)} class folders and {found.files} files, but no picture: none is a PNG, "
            "JPEG, WebP, BMP or GIF file in a class folder."
        )
    return found


def is_food101(source: Path) -> bool:
    """Whether ``source`` has the layout of Food-101."""
    return (source / "images").is_dir() and all(path.is_file() for path in list_files(source))


def list_files(source: Path) -> tuple[Path, Path]:
    """The lists of training and test pictures in a Food-101 folder."""
    return source / "meta" / "train.txt", source / "meta" / "test.txt"


def _class_folders(root: Path) -> dict[Path, str]:
    """Class folder -> name of the class: in NFC, because a Mac writes an e with accent as two characters."""
    folders = {}
    for path in sorted(root.iterdir()):
        if path.is_dir() and not path.name.startswith(".") and path.name not in SYSTEM_FOLDERS and _may_be_class(path):
            try:
                path.name.encode("utf-8")
            except UnicodeEncodeError:
                raise BuildError(f"the class folder {path.name!a} has a name that is not UTF-8. Rename it.") from None
            folders[path] = unicodedata.normalize("NFC", path.name)
    return folders


def _may_be_class(path: Path) -> bool:
    """A link leads to a class only if that lies elsewhere: not in SOURCE, and not around it."""
    if not path.is_symlink():
        return True
    target, root = path.resolve(), path.parent.resolve()
    return not (target.is_relative_to(root) or root.is_relative_to(target))


def _check_no_splits(source: Path, root: Path, folders: dict[Path, str]) -> None:
    names = sorted(folders.values())
    if len(names) > 1 and {name.lower() for name in names} <= SPLIT_NAMES and all(map(_has_folders, folders)):
        raise BuildError(
            f"{source} holds splits, not classes: {', '.join(names)}. Give one of them ({root / names[0]}), or move "
            "the folders of each class together: build_hdf5 splits them itself."
        )


def _has_folders(folder: Path) -> bool:
    try:
        return any(path.is_dir() for path in folder.iterdir())
    except OSError:  # said when its files are listed
        return False


def _files(folder: Path, root: Path, classes: dict[Path, str]) -> Iterator[Path]:
    """All files below ``folder`` in the order of names; a link to a folder counts as a file, unless it is a class."""
    for path in _entries(folder, root, classes):
        if path.is_dir() and (path in classes or path == root or not path.is_symlink()):
            yield from _files(path, root, classes)
        else:
            yield path


def _entries(folder: Path, root: Path, classes: dict[Path, str]) -> list[Path]:
    """What lies in a folder. One that cannot be opened stops the build only where pictures are expected in it."""
    try:
        return sorted(folder.iterdir())
    except OSError as error:
        if folder != root and not any(part in classes for part in (folder, *folder.parents)):
            return []
        raise BuildError(
            f"the folder {folder} cannot be opened: {error.strerror}. Change its permissions, or move it elsewhere."
        ) from error


def _why_ignored(path: Path, name: str, root: Path, classes: dict[Path, str]) -> str | None:
    parts = name.split("/")
    if any(part.startswith(".") for part in parts):
        return "hidden"
    if any(part in SYSTEM_FOLDERS for part in parts[:-1]):
        return "in a folder of the system"
    if path.is_dir():
        return "a link to a folder"
    in_class = path.is_relative_to(root) and path.parent != root and root / path.relative_to(root).parts[0] in classes
    is_named_so = path.suffix.lower() in SUFFIXES
    # A broken link that is named as a picture is a lost one (a disk not mounted, a large-file store not fetched).
    if not path.is_file() and not (path.is_symlink() and in_class and is_named_so):
        return "no regular file (a broken link, a pipe ...)"
    if not in_class:
        return "outside the class folders"
    return None if is_named_so or _starts_like_a_picture(path) else "not a picture"


def _starts_like_a_picture(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return picture_kind(file.read(18)) is not None  # also of a kind that cannot be read: not silently lost
    except OSError:
        return False


def stamp(path: Path, *, time: bool) -> tuple[int, ...]:
    """Size of a picture, and ``time`` of its last change: what tells whether it is another one now."""
    try:
        status = path.stat()
    except OSError:  # a picture that cannot be read is skipped when its turn comes
        return ()
    return (status.st_size, status.st_mtime_ns) if time else (status.st_size,)


# -- copies -----------------------------------------------------------------------------------------------------------


def set_copies_aside(found: Found) -> None:
    """Of files with the same bytes, keep one a class; those in two classes are skipped, as one label must be wrong."""
    class_of = {path: name for name, paths in found.classes.items() for path in paths}
    aside = set()
    for paths in equal_files(found.source, list(class_of)):
        paths.sort(key=lambda path: (_is_link(found.source, path), path))
        broken = _why_broken(found.source / paths[0])
        firsts = {class_of[path]: path for path in sorted(paths, reverse=True)}  # of each class
        for path in paths:
            other = min((first for name, first in firsts.items() if name != class_of[path]), default=None)
            if broken is None and other is None and path == paths[0]:
                continue
            aside.add(path)
            if broken is not None:
                found.skipped.append(LeftOut(path, broken))
            elif other is not None:
                reason = f"the same bytes as {other}, in another class: one of the labels is wrong"
                found.skipped.append(LeftOut(path, reason, other))
            else:
                found.ignored.append(LeftOut(path, "a copy of a picture of the same class", paths[0]))
    for name, paths in found.classes.items():
        found.classes[name] = [path for path in paths if path not in aside]


def equal_files(source: Path, paths: list[str]) -> list[list[str]]:
    """Groups of files with the same bytes; empty files and those that cannot be read are in none."""
    groups = _divided(source, paths, lambda path: path.stat().st_size or None)
    for key in (_end, _digest):  # the slower ones only for files that are still equal
        groups = [same for group in groups for same in _divided(source, group, key)]
    return groups


def _divided(source: Path, paths: list[str], key: Callable[[Path], object]) -> list[list[str]]:
    groups = defaultdict(list)
    for path in paths:
        with contextlib.suppress(OSError):  # what cannot be read gets its reason later, from read_image
            groups[key(source / path)].append(path)
    groups.pop(None, None)
    return [group for group in groups.values() if len(group) > 1]


def _end(path: Path) -> bytes:
    with path.open("rb") as file:
        file.seek(-min(_END_BYTES, os.fstat(file.fileno()).st_size), os.SEEK_END)
        return file.read()


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _is_link(source: Path, path: str) -> bool:
    return (source / path).is_symlink()


def _why_broken(path: Path) -> str | None:
    try:
        read_image(path)
    except ImageError as error:
        return str(error)
    return None

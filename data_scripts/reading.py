"""Pictures are read, resized and packed for the file, a group at a time: in this process, or in several others."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from data_scripts.folder import stamp
from helpers.images import ImageError, quiet_pillow, read_image, resize_image, reuse_memory
from helpers.writer import PackedRows, pack_rows

_OWN_FAULT = {errno.EACCES, errno.EPERM, errno.ELOOP, errno.ENAMETOOLONG}  # of one file, whatever the disk does


class SourceLostError(OSError):
    """The folder of pictures cannot be read any more: unplugged, unmounted, deleted."""

    def __str__(self) -> str:
        return self.strerror  # the sentence, without "[Errno 2]" in front


@dataclass(frozen=True)
class Picture:
    """A picture to read: its path below SOURCE, and its class number."""

    path: str
    label: int


@dataclass(frozen=True)
class Group:
    """Pictures of one split that are read, and become rows, together."""

    split: str
    pictures: tuple[Picture, ...]

    def __len__(self) -> int:
        return len(self.pictures)

    def describe(self) -> str:
        """Words for the sentences of errors."""
        return f"the pictures {self.pictures[0].path} to {self.pictures[-1].path} ({len(self)} of {self.split})"


@dataclass(frozen=True)
class ReadGroup:
    """The pictures of a group that could be read, packed in their order, and (place in the group, reason) of others."""

    rows: PackedRows
    failures: tuple[tuple[int, str], ...]
    lost: tuple[int, ...]  # places of those that are not there, or that the disk does not give
    stamps: tuple[tuple[int, ...], ...]  # of each picture of the group, as it was read


def stamps_of(source: Path, group: Group) -> tuple[tuple[int, ...], ...]:
    """Size and time of change of each picture."""
    return tuple(stamp(source / picture.path, time=True) for picture in group.pictures)


@dataclass(frozen=True)
class PictureReader:
    """``read(number)`` reads group ``number``; it travels to worker processes."""

    source: Path
    groups: list[Group]
    size: int
    resize: str
    storage: str
    compression: str | None

    def read(self, number: int, empty: Callable = np.empty) -> ReadGroup:
        """Group ``number``; raw pixels lie in an array from ``empty``.

        Raises
        ------
        SourceLostError
            The folder of a picture, in which it was before, is gone or empty.
        """
        group = self.groups[number]
        stamps = stamps_of(self.source, group)
        reuse_memory()
        raw = self.storage == "raw" and self.compression is None
        images = (empty if raw else np.empty)((len(group), self.size, self.size, 3), np.uint8)
        failures, lost = [], []
        with quiet_pillow():
            for place, picture in enumerate(group.pictures):
                try:
                    image = read_image(self.source / picture.path)
                except ImageError as error:
                    if _is_lost(error):
                        self._check_folder(picture, error)
                        lost.append(place)
                    failures.append((place, str(error)))
                else:
                    images[place - len(failures)] = resize_image(image, (self.size, self.size), self.resize)
        read = images[: len(group) - len(failures)]
        return ReadGroup(pack_rows(read, self.storage, self.compression), tuple(failures), tuple(lost), stamps)

    def mean_bytes(self, numbers: list[tuple[int, int]]) -> float:
        """Mean stored bytes of the pictures at these places (group, place in it); 0 when none can be read."""
        sizes = []
        for number, place in numbers:
            path = self.source / self.groups[number].pictures[place].path
            try:
                image = resize_image(read_image(path), (self.size, self.size), self.resize)
            except ImageError:
                continue
            sizes.append(len(pack_rows(image[np.newaxis], self.storage, self.compression).stored[0]))
        return sum(sizes) / max(1, len(sizes))

    def _check_folder(self, picture: Picture, error: ImageError) -> None:
        """One picture that is not there any more was deleted perhaps; a whole folder was not."""
        try:
            is_there = any((self.source / picture.path).parent.iterdir())
        except OSError:
            is_there = False
        if not is_there:
            reason = os.strerror(error.__cause__.errno)
            raise SourceLostError(
                error.__cause__.errno,
                f"{self.source} cannot be read any more ({picture.path}: {reason}). Is its disk still there?",
            ) from error


def _is_lost(error: ImageError) -> bool:
    cause = error.__cause__
    return isinstance(cause, OSError) and bool(cause.errno) and cause.errno not in _OWN_FAULT

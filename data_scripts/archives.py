"""Unpack a .tar.gz of somebody else without trusting it: plain files and folders, inside the target, within limits.

::

    unpack(Path("food-101.tar.gz"), Path("new_folder"), Limits(members=110_000, stream_bytes=6 * 10**9), bar.update)

The archive is read once, front to back. Each member is checked before anything of it is written, and the first bad one
ends it: the folder is removed with all that was unpacked. Owners, times and permissions of the archive are not taken
over, so a set-user-id bit or a read-only folder in it means nothing here.

A damaged header in the middle of a tar looks to :mod:`tarfile` like its end. Here an archive ends with the block of
zeros that the format asks for, or it counts as damaged.
"""

from __future__ import annotations

import gzip
import io
import shutil
import tarfile
import unicodedata
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

BLOCK = 512  # bytes; a tar is made of such blocks
HEADER_BYTES = 2**16  # that tarfile may read for one member: far more than a name needs, and memory stays small
GLOBAL_KEYS = 100  # of headers that hold for all members that follow: tarfile keeps them all
NAME_CHARS = 200  # of a member's path; Windows allows 260 in all
WINDOWS_FORBIDS = frozenset('<>:"|?*\\') | frozenset(map(chr, range(32)))
WINDOWS_DEVICES = {"con", "prn", "aux", "nul", *(f"{port}{number}" for port in ("com", "lpt") for number in range(10))}
KINDS = {
    tarfile.SYMTYPE: "a symbolic link",
    tarfile.LNKTYPE: "a hard link",
    tarfile.CHRTYPE: "a device",
    tarfile.BLKTYPE: "a device",
    tarfile.FIFOTYPE: "a named pipe",
}
# Python's own check of paths, behind ours; it is missing before 3.11.4
FILTER = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
NOT_READABLE = (gzip.BadGzipFile, zlib.error, EOFError, tarfile.TarError, ValueError, RecursionError)


class ArchiveError(ValueError):
    """The archive is damaged, is none, or holds something that is not unpacked."""


@dataclass(frozen=True)
class Limits:
    """What an archive may become: so many files and folders, and so many bytes with the headers between them."""

    members: int
    stream_bytes: int


def unpack(archive: Path, folder: Path, limits: Limits, advance: Callable[[int], object]) -> None:
    """Unpack ``archive`` into the new ``folder``; after any exception ``folder`` is gone again.

    ``advance`` is called with the bytes of the archive read since its last call.

    Raises
    ------
    ArchiveError
        The archive is refused; the message says which member, and why.
    OSError
        The archive cannot be read or the folder cannot be written, for example because the disk is full.
    """
    folder.mkdir()
    try:
        with archive.open("rb") as packed, gzip.GzipFile(fileobj=packed, mode="rb") as plain:
            _unpack(_Stream(plain, limits.stream_bytes), folder, limits, _steps(packed, advance))
    except NOT_READABLE as error:
        _remove(folder)
        why = str(error) if isinstance(error, ArchiveError) else _damage(error)
        raise ArchiveError(f"{archive} is not unpacked: {why}. Nothing of it was kept.") from error
    except BaseException:
        _remove(folder)
        raise


def _remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)  # the first exception is the one to see


def _damage(error: Exception) -> str:
    if isinstance(error, gzip.BadGzipFile) and str(error).startswith("Not a gzipped file"):
        return "it is not a .tar.gz archive"
    return "it is damaged or cut short"


def _steps(packed: io.BufferedReader, advance: Callable[[int], object]) -> Callable[[], None]:
    """A function that reports how far the archive was read since its last call."""
    last = 0

    def step() -> None:
        nonlocal last
        now = packed.tell()
        advance(now - last)
        last = now

    return step


def _unpack(stream: _Stream, folder: Path, limits: Limits, step: Callable[[], None]) -> None:
    checked = _Members(limits, stream)
    with tarfile.TarFile(fileobj=stream, mode="r", encoding="utf-8", errors="surrogateescape") as tar:
        while (member := tar.next()) is not None:
            checked.accept(member, tar)
            stream.header_left = None
            tar.extract(member, folder, set_attrs=False, **FILTER)
            stream.header_left = HEADER_BYTES
            tar.members.clear()  # tarfile keeps every member otherwise
            step()
    if stream.last != bytes(BLOCK):
        raise ArchiveError("it is damaged or cut short")
    stream.header_left = None
    while stream.read(2**16):  # to the end, where gzip has the CRC-32 of all
        pass
    step()


class _Members:
    """Which names and how many members the archive had so far."""

    def __init__(self, limits: Limits, stream: _Stream):
        self._limits = limits
        self._stream = stream
        self._files: set[str] = set()
        self._folders: set[str] = set()

    def accept(self, member: tarfile.TarInfo, tar: tarfile.TarFile) -> None:
        """Note a member that may be unpacked. Raises ArchiveError for any other."""
        refusal = _bad_name(member.name) or _bad_kind(member) or self._bad_place(member) or self._too_much(member)
        if refusal:
            raise ArchiveError(f"its member {member.name!a} {refusal}")
        if len(tar.pax_headers) > GLOBAL_KEYS:
            raise ArchiveError(f"it has more than {GLOBAL_KEYS} headers for all its members")

    def _bad_place(self, member: tarfile.TarInfo) -> str | None:
        """Why it cannot lie where it wants to; otherwise its name and those of the folders around it are noted."""
        parts = _parts(member.name)
        names = ["/".join(parts[: n + 1]) for n in range(len(parts))]
        around = names if member.isdir() else names[:-1]
        if not self._files.isdisjoint(around):
            return "needs a folder where an earlier member is a file"
        self._folders.update(around)
        if member.isdir():
            return None
        if not names or names[-1] in self._files or names[-1] in self._folders:
            return "has the name of an earlier member"
        self._files.add(names[-1])
        return None

    def _too_much(self, member: tarfile.TarInfo) -> str | None:
        if len(self._files) + len(self._folders) > self._limits.members:
            return f"is one too many: at most {self._limits.members:,} files and folders are unpacked"
        end = self._stream.tell() + member.size
        if end > self._limits.stream_bytes:
            return f"would make it {end:,} bytes; at most {self._limits.stream_bytes:,} are unpacked"
        return None


def _parts(name: str) -> list[str]:
    """The parts of a path as file systems compare them that ignore case or the way an accent is stored."""
    return [part for part in unicodedata.normalize("NFC", name).casefold().split("/") if part != "."]


def _bad_name(name: str) -> str | None:
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:  # bytes that are not UTF-8 arrive as surrogates
        return "has a name that is not UTF-8"
    parts = name.split("/")
    if name.startswith("/"):
        return "has an absolute path"
    if ".." in parts:
        return "leads out of its folder"
    if not all(parts):
        return "has an empty part in its path"
    if len(name) > NAME_CHARS:
        return f"has a path of more than {NAME_CHARS} characters"
    if any(_windows_refuses(part) for part in parts if part != "."):
        return "has a name that Windows does not allow"
    return None


def _windows_refuses(part: str) -> bool:
    device = part.split(".")[0].strip().lower() in WINDOWS_DEVICES
    return device or part[-1] in ". " or not WINDOWS_FORBIDS.isdisjoint(part)


def _bad_kind(member: tarfile.TarInfo) -> str | None:
    if member.issparse():
        return "is a sparse file"
    if member.isdir() or member.type in {tarfile.REGTYPE, tarfile.AREGTYPE}:
        return None
    return f"is {KINDS.get(member.type, 'neither a file nor a folder')}"


class _Stream(io.RawIOBase):
    """What tarfile reads: forward only, so many bytes in all, and few of them for the headers of one member.

    ``header_left`` is None while the bytes of a member are copied; ``last`` holds the bytes of the last read.
    """

    def __init__(self, plain: gzip.GzipFile, limit: int):
        self._plain = plain
        self._limit = limit
        self._position = 0
        self.header_left: int | None = HEADER_BYTES
        self.last = b""

    def tell(self) -> int:
        return self._position

    def read(self, size: int = -1) -> bytes:
        if self.header_left is not None and not 0 <= size <= self.header_left:
            raise ArchiveError(f"it has a header of more than {HEADER_BYTES:,} bytes")
        if self._position + size > self._limit:
            raise ArchiveError(f"it unpacks to more than {self._limit:,} bytes")
        self.last = self._plain.read(size)
        self._position += len(self.last)
        if self.header_left is not None:
            self.header_left -= len(self.last)
        return self.last

    def seek(self, position: int, whence: int = io.SEEK_SET) -> int:
        if whence != io.SEEK_SET or position < self._position:
            raise ArchiveError("it is damaged or cut short")
        self.read(position - self._position)
        return self._position

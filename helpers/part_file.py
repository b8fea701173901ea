"""An HDF5 file in the making that survives a kill: it gets its name when it is whole, and can be gone on with.

::

    with PartFile("food.h5", resume=True) as part:
        done = part.state["rows"] if part.state else 0      # what the last checkpoint said
        part.run(write_more, part.file)                     # a function of yours that writes to the open h5py.File
        part.checkpoint({"rows": done})                     # from now on a kill costs nothing up to here
        part.finish()                                       # only now there is a food.h5

Everything goes to ``food.h5.part``. HDF5 itself does not promise that a file whose writer was killed can be opened: it
changes its tables in place, in an order of its own. So it writes through a Python file object here, and before bytes
that the last checkpoint needs are changed, they are saved in ``food.h5.part.journal``. Taking the part back means to
put them back, the last one first, and to cut off what was appended. (SQLite's rollback journal works so: "Atomic Commit
In SQLite", sqlite.org.) A checkpoint is one new journal under the old one's name.

Two things never reach HDF5, whose error paths are not sound (1.14.6 crashed in a flush after a write that failed). A
write that fails, as on a full disk, is remembered, and raised by :meth:`PartFile.check` and whatever calls it. And all
calls of HDF5 run in a thread of their own (:meth:`PartFile.run`), since Ctrl-C raises in the main thread, wherever that
is.

What this is proof against is the end of the process at any moment, and a full disk. A power cut may lose what the
system has not written yet: whoever resumes should check what is there (:class:`helpers.HDF5Writer` compares every row
with its CRC-32).
"""

from __future__ import annotations

import errno
import io
import json
import os
import struct
import weakref
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import h5py

from helpers.layout import HDF5FileError, file_path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None
    import msvcrt

HDF5_SUFFIXES = {".h5", ".hdf5", ".hdf", ".he5"}
_WRITE = os.O_WRONLY | getattr(os, "O_BINARY", 0)
_LOCKED = {errno.EAGAIN, errno.EWOULDBLOCK, errno.EACCES, errno.EDEADLK}
_RECORD = struct.Struct("<QII")  # offset in the part, bytes that follow, their CRC-32
_HEADER = struct.Struct("<II")  # bytes of the checkpoint's JSON text, their CRC-32


class PartFile:
    """The file ``path`` while it is written, in a ``with`` block.

    Parameters
    ----------
    path : the file to make. An existing one stays until :meth:`finish`.
    resume : go on with a part that was left behind; without one, or when it has no checkpoint, the file is begun anew.

    Raises
    ------
    HDF5FileError
        On entering the block: the file cannot be made there, or somebody else is making it.
    """

    def __init__(self, path: str | os.PathLike, *, resume: bool = False):
        self.path = file_path(path)
        # The working directory may change inside the block; a link is followed, its large file stays on its own disk.
        self._final = _resolved(self.path)
        self.part = self._final.with_name(self._final.name + ".part")
        self.state: dict | None = None  # of the checkpoint that was resumed
        self._journal_path = self.part.with_name(self.part.name + ".journal")
        self._resume = resume
        self._file: h5py.File | None = None
        self._raw: _JournaledFile | None = None
        self._thread: ThreadPoolExecutor | None = None
        self._end: weakref.finalize | None = None

    def __repr__(self) -> str:
        return f"<PartFile {self.path} ({'open' if self.is_open else 'closed'})>"

    @property
    def is_open(self) -> bool:
        return self._file is not None

    @property
    def file(self) -> h5py.File:
        """The HDF5 file, open for writing. Raises ValueError outside of the block."""
        if self._file is None:
            raise ValueError(f"the part file of {self.path} is not open. Use it as `with PartFile(...) as part:`.")
        return self._file

    @property
    def size_bytes(self) -> int:
        """Bytes of the part on the disk by now."""
        return os.fstat(self._raw.fileno()).st_size

    def __enter__(self) -> PartFile:
        _check_place(self.path, self.part)
        self._raw = _lock_part(self.path, self.part)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="helpers-part-file")
        self._owner = os.getpid()
        is_new = False
        try:
            self.state = self._take_back() if self._resume else None
            is_new = self.state is None
            if is_new:
                self._begin_anew()
            self._file = self.run(_open_part, self._raw, is_new)
        except BaseException:
            self._thread.shutdown()
            # A part that could not be taken back, for want of room perhaps, may be the next time.
            _close_raw(self._raw, self.part if is_new else None)
            raise
        self._end = weakref.finalize(self, _abandon, os.getpid(), self._thread, self._raw, self._file, self.part)
        return self

    def __exit__(self, *_) -> None:
        self.abandon()

    def run(self, function: Callable, *args):
        """``function(*args)``, which may use :attr:`file`, out of reach of Ctrl-C. Raises what a write failed with."""
        if os.getpid() != self._owner:  # its copy of the file, written too, would damage it; and the thread is not here
            raise RuntimeError(
                f"{self.path} is written by process {self._owner}, and process {os.getpid()} is a fork of it. Append "
                "in the process that opened the writer; let others make the rows and send them."
            )
        try:
            return self._thread.submit(function, *args).result()
        finally:
            self.check()

    def check(self) -> None:
        """Raise the OSError of a write that failed, or HDF5FileError when another writer has taken the part.

        Only disks without locks let that happen.
        """
        if self._raw.failure is not None:
            raise self._raw.failure
        journal = self._raw.journal_id
        if _file_id(self.part) != _file_id(self._raw.fileno()) or journal not in {None, _file_id(self._journal_path)}:
            raise HDF5FileError(
                errno.EBUSY,
                f"another HDF5Writer made {self.part} anew while this one wrote {self.path.name}; what this one wrote "
                "is lost. Wait for the other, then build again.",
            )

    def checkpoint(self, state: dict) -> None:
        """Save all that was written, and ``state`` (what JSON can hold) with it: a resumed part begins here."""
        self.run(self.file.flush)
        self._raw.begin_journal(self._journal_path, state)

    def finish(self) -> None:
        """Close the file, force it to the disk and give it its name; an older file of that name is replaced."""
        self.run(self.file.close)
        os.fsync(self._raw.fileno())
        if os.name == "nt":  # an open file cannot be renamed there
            self._raw.close()
        self.part.replace(self._final)
        self._remove_journal()
        _force_folder_to_disk(self._final.parent)
        self.abandon()

    def abandon(self) -> None:
        """Close; the part stays if a checkpoint was made, for whoever resumes it. A second call does nothing."""
        if self._end is not None:
            self._end()
        self._file = self._raw = self._thread = self._end = None

    def discard(self) -> None:
        """Close and remove the part; the final name is not touched. A second call does nothing."""
        if self._raw is not None:
            self._raw.has_checkpoint = False
            self._raw.close_journal()
            self._remove_journal()
        self.abandon()

    def _begin_anew(self) -> None:
        """A new part, not the old one emptied: on a disk without locks, somebody else may write to that."""
        self._remove_journal()
        if self.size_bytes:
            old = self._raw
            if os.name == "nt":
                old.close()
            self.part.unlink(missing_ok=True)
            self._raw = _lock_part(self.path, self.part)
            old.close()

    def _remove_journal(self) -> None:
        for path in (self._journal_path, _next_journal(self._journal_path)):
            path.unlink(missing_ok=True)

    def _take_back(self) -> dict | None:
        """Undo what was written since the last checkpoint; returns its state, or None where there is none."""
        try:
            journal = self._journal_path.read_bytes()
        except FileNotFoundError:
            return None
        checkpoint, records = _read_journal(journal)
        if checkpoint is None or checkpoint["size"] > _reach(self.size_bytes, records):
            return None
        for offset, old in reversed(records):
            self._raw.put_back(offset, old)
        self._raw.cut(checkpoint["size"])
        self._raw.begin_journal(self._journal_path, checkpoint["state"])
        return checkpoint["state"]


class _JournaledFile(io.FileIO):
    """A file that saves the bytes of the last checkpoint in a journal before they are changed; it never fails.

    After a write that failed, or when nobody wants the file any more, what HDF5 writes is kept in memory, where it
    finds it again: little, since nobody goes on for long then.
    """

    def __init__(self, descriptor: int):
        super().__init__(descriptor, "r+")
        self.has_checkpoint = False
        self.failure: BaseException | None = None
        self.is_abandoned = False
        self._needed = 0  # bytes from the start that the last checkpoint needs
        self._journal: int | None = None
        self._unwritten: list[tuple[int, bytes]] = []  # offset and bytes

    @property
    def journal_id(self) -> tuple[int, int] | None:
        return None if self._journal is None else _file_id(self._journal)

    def write(self, data) -> int:
        start, view = self.tell(), memoryview(data).cast("B")
        if not self._changes(start, start + len(view), self._put, view):
            self._unwritten.append((start, bytes(view)))
            self.seek(start + len(view))
        return len(view)

    def truncate(self, size=None) -> int:
        size = self.tell() if size is None else size
        self._changes(size, self._needed, self.cut, size)
        return size

    def readinto(self, buffer) -> int:
        start, view = self.tell(), memoryview(buffer).cast("B")
        count = super().readinto(view)
        for offset, data in self._unwritten:
            low, high = max(start, offset), min(start + len(view), offset + len(data))
            if low < high:
                view[low - start : high - start] = data[low - offset : high - offset]
                count = max(count, high - start)
        return count

    def put_back(self, offset: int, old: bytes) -> None:
        self.seek(offset)
        self._put(memoryview(old))

    def cut(self, size: int) -> int:
        return super().truncate(size)

    def _put(self, data: memoryview) -> None:
        while data:  # a nearly full disk takes a part, and refuses the rest
            data = data[super().write(data) :]

    def begin_journal(self, path: Path, state: dict) -> None:
        """The bytes that are in the file now are a checkpoint: a new journal, with no byte to put back, says so."""
        size = os.fstat(self.fileno()).st_size
        text = json.dumps({"size": size, "state": state}).encode()
        new = _next_journal(path)
        try:
            descriptor = os.open(new, os.O_CREAT | os.O_TRUNC | _WRITE, 0o666)
            try:
                _write_all(descriptor, _HEADER.pack(len(text), zlib.crc32(text)) + text)
            finally:
                os.close(descriptor)  # Windows renames no open file, and replaces none
            self.close_journal()
            new.replace(path)
        except BaseException:
            new.unlink(missing_ok=True)
            raise
        self._journal, self._needed, self.has_checkpoint = os.open(path, os.O_APPEND | _WRITE), size, True

    def close(self) -> None:
        self.close_journal()
        super().close()

    def _changes(self, start: int, stop: int, change: Callable, *args) -> bool:
        """Save what the last checkpoint needs of these bytes, and change them; whether that was done."""
        if self.failure is not None or self.is_abandoned:
            return False
        try:
            self._save(start, stop)
            self.seek(start)
            change(*args)
        except BaseException as error:  # also an interrupt, which main threads other than ours get
            self.failure = error
            return False
        return True

    def _save(self, start: int, stop: int) -> None:
        count = min(stop, self._needed) - start
        if count <= 0:
            return
        self.seek(start)
        old = bytearray(count)
        got = super().readinto(old)
        old = bytes(old[:got])
        _write_all(self._journal, _RECORD.pack(start, len(old), zlib.crc32(old)) + old)

    def close_journal(self) -> None:
        if self._journal is not None:
            os.close(self._journal)
            self._journal = None


def _next_journal(path: Path) -> Path:
    """Where a journal lies until it replaces the one before."""
    return path.with_name(path.name + ".new")


def _read_journal(journal: bytes) -> tuple[dict | None, list[tuple[int, bytes]]]:
    """The checkpoint, and (offset, old bytes) in the order of writing. A record cut short was not needed yet."""
    if len(journal) < _HEADER.size:
        return None, []
    length, crc = _HEADER.unpack_from(journal)
    place = _HEADER.size + length
    text = journal[_HEADER.size : place]
    if len(text) < length or zlib.crc32(text) != crc:
        return None, []
    records = []
    while place + _RECORD.size <= len(journal):
        offset, length, crc = _RECORD.unpack_from(journal, place)
        place += _RECORD.size + length
        old = journal[place - length : place]
        if len(old) < length or zlib.crc32(old) != crc:
            break
        records.append((offset, old))
    return json.loads(text), records


def _reach(size: int, records: list[tuple[int, bytes]]) -> int:
    """Bytes from the start that are there without a gap, once the records are put back."""
    for offset, old in sorted(records):
        if offset <= size:
            size = max(size, offset + len(old))
    return size


def _open_part(raw: _JournaledFile, is_new: bool) -> h5py.File:
    # "v108" stores attributes above 64 kB (more than 4,000 class names); every HDF5 since 2008 reads it
    if not is_new:
        return h5py.File(raw, "r+", libver=("v108", "latest"))
    # As h5py.File does, which has no switch for times: without them the same rows are the same bytes.
    how, access = h5py.h5p.create(h5py.h5p.FILE_CREATE), h5py.h5p.create(h5py.h5p.FILE_ACCESS)
    how.set_obj_track_times(False)
    access.set_libver_bounds(h5py.h5f.LIBVER_V18, h5py.h5f.LIBVER_LATEST)
    access.set_fclose_degree(h5py.h5f.CLOSE_STRONG)
    access.set_fileobj_driver(h5py.h5fd.fileobj_driver, raw)
    return h5py.File(h5py.h5f.create(repr(raw).encode(), h5py.h5f.ACC_TRUNC, how, access))


def _abandon(owner: int, thread: ThreadPoolExecutor, raw: _JournaledFile, file: h5py.File, part: Path) -> None:
    """Also at the end of Python, and when the object was forgotten: HDF5 must not call a Python that is gone."""
    if os.getpid() != owner:  # a forked child that ends: the file is its parent's
        return
    try:
        thread.submit(_close, raw, file, part)
    except RuntimeError:  # Python ends, and takes no new work
        _close(raw, file, part)
    thread.shutdown()


def _close(raw: _JournaledFile, file: h5py.File, part: Path) -> None:
    raw.is_abandoned = True
    file.close()
    if raw.closed:  # finished on Windows
        return
    unwanted = not raw.has_checkpoint and _file_id(part) == _file_id(raw.fileno())
    _close_raw(raw, part if unwanted else None)


def _close_raw(raw: _JournaledFile, unwanted: Path | None) -> None:
    """Close, and remove the part if it is ``unwanted``: while it is locked, so that nobody else's is, where one can."""
    if unwanted is not None and os.name != "nt":
        unwanted.unlink(missing_ok=True)
    raw.close()
    if unwanted is not None and os.name == "nt":
        unwanted.unlink(missing_ok=True)


# -- the place --------------------------------------------------------------------------------------------------------


def _resolved(path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, RuntimeError) as error:  # Python 3.13 resolves a circle without a word, and opening it fails
        raise HDF5FileError(errno.ELOOP, f"{path} is a link that leads to itself. Give another name.") from error
    except ValueError as error:
        raise HDF5FileError(errno.EINVAL, f"{str(path)!a} is no name of a file. Give another one.") from error


def _check_place(path: Path, part: Path) -> None:
    try:
        part.stat()
    except FileNotFoundError:
        pass
    except OSError as error:  # a name longer than disks take, a file in place of a folder
        raise HDF5FileError(
            error.errno, f"{path} cannot be made: {error.strerror}. Give another name or folder."
        ) from error
    if path.is_dir():
        raise HDF5FileError(
            errno.EISDIR, f"{path} is a folder; an HDF5 file cannot replace it. Give a file name inside it."
        )
    if path.exists() and not path.is_file():
        raise HDF5FileError(
            errno.EINVAL, f"{path} is a device, a pipe or the like; an HDF5 file cannot replace it. Give another name."
        )
    if not part.parent.is_dir():
        folder = part.parent if path.is_symlink() else path.parent
        raise HDF5FileError(errno.ENOENT, f"the folder {folder} does not exist. Create it first.")
    if path.is_file() and not _may_be_replaced(path):
        raise HDF5FileError(
            errno.EEXIST,
            f"{path} is there, and is no HDF5 file: it would be lost. Give another name, or remove it first.",
        )


def _may_be_replaced(path: Path) -> bool:
    """Only what is HDF5, was meant to be, or is empty: a slip in the name must not cost somebody's photograph."""
    return path.suffix.lower() in HDF5_SUFFIXES or not path.stat().st_size or h5py.is_hdf5(path)


def _lock_part(path: Path, part: Path) -> _JournaledFile:
    """Open the part and lock it. One left behind by a process that was killed is taken over; one in use is refused."""
    while True:
        try:
            descriptor = os.open(part, os.O_CREAT | os.O_RDWR | getattr(os, "O_BINARY", 0), 0o666)
        except OSError as error:
            reason = os.strerror(error.errno)
            raise HDF5FileError(
                error.errno, f"{part} cannot be made: {reason}. Choose a folder that this user may write to."
            ) from error
        raw = _JournaledFile(descriptor)
        try:
            _lock(descriptor)
        except OSError as error:
            raw.close()
            if error.errno not in _LOCKED:
                raise
            raise HDF5FileError(
                errno.EBUSY,
                f"{path} is being written by another HDF5Writer (its {part.name} is in use), in this or another "
                "process. Wait for it, or stop it.",
            ) from error
        if _file_id(part) == _file_id(descriptor):
            return raw
        raw.close()  # its writer finished or removed it in this moment


def _lock(descriptor: int) -> None:
    """The lock that HDF5 takes, too; it goes with the process. Raises OSError where somebody else holds it."""
    if os.environ.get("HDF5_USE_FILE_LOCKING", "").upper() in {"FALSE", "0"}:  # HDF5's switch, for disks without locks
        return
    if fcntl is None:
        os.lseek(descriptor, 2**40, os.SEEK_SET)  # a byte that no file has: locked bytes cannot be read by others
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        os.lseek(descriptor, 0, os.SEEK_SET)
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _LOCKED:
            raise  # other errors: a disk without locks


def _file_id(file: Path | int) -> tuple[int, int] | None:
    """What tells this file from another one that gets its name later; None when there is none."""
    try:
        status = os.fstat(file) if isinstance(file, int) else file.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _force_folder_to_disk(folder: Path) -> None:
    """Make a rename last through a power cut; Windows does so by itself and cannot open folders."""
    if os.name == "nt":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

"""An archive is unpacked as plain files inside its folder, or refused in one sentence with nothing left behind."""

from __future__ import annotations

import errno
import gzip
import io
import os
import tarfile
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from data_scripts import archives as module
from data_scripts.archives import ArchiveError, Limits, unpack

LIMITS = Limits(members=20, stream_bytes=100_000)
TREE = {"food-101/README.txt": b"read me", "food-101/cr\xe8me": b"", "food-101/images/soup/1.jpg": b"\xff\xd8" * 5000}


def member(name: str, data: bytes = b"", **fields) -> tuple[tarfile.TarInfo, bytes]:
    """A member with a name, its bytes, and what else a test says about it."""
    info = tarfile.TarInfo(name)
    for field, value in {"size": len(data), **fields}.items():
        setattr(info, field, value)
    return info, data


def tar_bytes(members, format: int = tarfile.GNU_FORMAT) -> bytes:
    """The members as an uncompressed tar."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:", format=format, encoding="utf-8", errors="surrogateescape") as tar:
        for info, data in members:
            tar.addfile(info, io.BytesIO(data))
    return file.getvalue()


def packed(members, format: int = tarfile.GNU_FORMAT) -> bytes:
    return gzip.compress(tar_bytes(members, format), mtime=0)


def good(more=()) -> bytes:
    """An archive of two files with their folders, then more members."""
    folders = [member(name, type=tarfile.DIRTYPE, mode=0o755) for name in ("food-101", "food-101/images/")]
    return packed([*folders, *(member(name, data) for name, data in TREE.items()), *more])


def tree(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def unpacked(tmp_path: Path, data: bytes, limits: Limits = LIMITS) -> Path:
    archive = tmp_path / "a.tar.gz"
    archive.write_bytes(data)
    steps: list[int] = []
    unpack(archive, tmp_path / "new", limits, steps.append)
    assert sum(steps) == len(data)
    return tmp_path / "new"


# -- what is unpacked -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("format", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT, tarfile.USTAR_FORMAT])
def test_files_and_folders_are_unpacked(tmp_path, format):
    """All files with their bytes, in each format of tar, and every byte of the archive counted."""
    names = [f"food-101/{'long_' * 30}{number}.jpg" for number in range(3)] + ["./food-101/cr\xe8me.txt"]
    if format == tarfile.USTAR_FORMAT:
        names = ["food-101/1.jpg"]
    data = packed([member("./", type=tarfile.DIRTYPE), *(member(name, name.encode()) for name in names)], format)
    assert tree(unpacked(tmp_path, data)) == {name.removeprefix("./"): name.encode() for name in names}


def test_modes_times_and_owners_are_not_taken_over(tmp_path):
    """A set-user-id program, a file and a folder that nobody may read: all become plain files of the user."""
    data = good([
        member("food-101/program", b"#!", mode=0o6777, uid=0, uname="root", mtime=0),
        member("food-101/shut", type=tarfile.DIRTYPE, mode=0),
        member("food-101/shut/secret", b"x", mode=0),
    ])
    folder = unpacked(tmp_path, data) / "food-101"
    plain = (folder / "README.txt").stat()
    for name in ("program", "shut/secret"):
        found = (folder / name).stat()
        assert (found.st_mode, found.st_uid) == (plain.st_mode, os.getuid())
        assert found.st_mtime > 1e9
    assert plain.st_mode & 0o7133 == 0


def test_folders_may_be_named_twice(tmp_path):
    """A folder that comes again, or after its files, does no harm."""
    again = [member(name, type=tarfile.DIRTYPE) for name in ("food-101/images", "food-101/images/soup")]
    assert tree(unpacked(tmp_path, good(again))) == TREE


# -- what is refused --------------------------------------------------------------------------------------------------

HOSTILE = {
    "dots": (member("food-101/../../outside", b"x"), "'food-101/../../outside'", "leads out of its folder"),
    "dots alone": (member("..", type=tarfile.DIRTYPE), "'..'", "leads out of its folder"),
    "absolute": (member("/tmp/outside", b"x"), "'/tmp/outside'", "has an absolute path"),
    "drive": (member("C:/outside", b"x"), "'C:/outside'", "has a name that Windows does not allow"),
    "backslash": (
        member("food-101\\..\\outside", b"x"),
        r"'food-101\\..\\outside'",
        "has a name that Windows does not allow",
    ),
    "stream": (member("food-101/a:b", b"x"), "'food-101/a:b'", "has a name that Windows does not allow"),
    "device name": (member("food-101/nul.jpg", b"x"), "'food-101/nul.jpg'", "has a name that Windows does not allow"),
    "last dot": (member("food-101/a./b", b"x"), "'food-101/a./b'", "has a name that Windows does not allow"),
    "line break": (member("food-101/a\nb", b"x"), r"'food-101/a\nb'", "has a name that Windows does not allow"),
    "not UTF-8": (member("food-101/\udcff.jpg", b"x"), r"'food-101/\udcff.jpg'", "has a name that is not UTF-8"),
    "empty part": (member("food-101//a", b"x"), "'food-101//a'", "has an empty part in its path"),
    "no name": (member("", b"x"), "''", "has an empty part in its path"),
    "long": (member("f/" * 101, b"x"), repr("f/" * 101), "has an empty part in its path"),
    "longer": (member("f/" * 101 + "f", b"x"), repr("f/" * 101 + "f"), "has a path of more than 200 characters"),
    "symbolic link": (
        member("food-101/link", type=tarfile.SYMTYPE, linkname="README.txt"),
        "'food-101/link'",
        "is a symbolic link",
    ),
    "hard link": (
        member("food-101/link", type=tarfile.LNKTYPE, linkname="food-101/README.txt"),
        "'food-101/link'",
        "is a hard link",
    ),
    "device": (member("food-101/tty", type=tarfile.CHRTYPE), "'food-101/tty'", "is a device"),
    "block device": (member("food-101/disk", type=tarfile.BLKTYPE), "'food-101/disk'", "is a device"),
    "pipe": (member("food-101/pipe", type=tarfile.FIFOTYPE), "'food-101/pipe'", "is a named pipe"),
    "contiguous": (member("food-101/c", type=tarfile.CONTTYPE), "'food-101/c'", "is neither a file nor a folder"),
    "unknown kind": (member("food-101/u", type=b"Q"), "'food-101/u'", "is neither a file nor a folder"),
    "same name": (member("food-101/README.txt", b"x"), "'food-101/README.txt'", "has the name of an earlier member"),
    "same name with a dot": (
        member("./food-101/README.txt", b"x"),
        "'./food-101/README.txt'",
        "has the name of an earlier member",
    ),
    "same name on Windows": (
        member("food-101/readme.TXT", b"x"),
        "'food-101/readme.TXT'",
        "has the name of an earlier member",
    ),
    "same name on a Mac": (
        member("food-101/cre\u0300me", b"x"),
        r"'food-101/cre\u0300me'",
        "has the name of an earlier member",
    ),
    "file for a folder": (member("food-101/images", b"x"), "'food-101/images'", "has the name of an earlier member"),
    "file for all": (member(".", b"x"), "'.'", "has the name of an earlier member"),
    "folder for a file": (
        member("food-101/README.txt/a", b"x"),
        "'food-101/README.txt/a'",
        "needs a folder where an earlier member is a file",
    ),
    "folder named as a file": (
        member("food-101/README.txt", type=tarfile.DIRTYPE),
        "'food-101/README.txt'",
        "needs a folder where an earlier member is a file",
    ),
    "too large": (
        member("food-101/zeros", bytes(100_000)),
        "'food-101/zeros'",
        "would make it 113,824 bytes; at most 100,000 are unpacked",
    ),
}


@pytest.mark.parametrize(("bad", "name", "why"), HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_member_is_refused(tmp_path, bad, name, why):
    """One sentence names the member and the reason; what was unpacked before it is gone, and nothing lies outside."""
    with pytest.raises(ArchiveError) as caught:
        unpacked(tmp_path, good([bad]))
    assert (
        str(caught.value)
        == f"{tmp_path / 'a.tar.gz'} is not unpacked: its member {name} {why}. Nothing of it was kept."
    )
    assert [path.name for path in tmp_path.iterdir()] == ["a.tar.gz"]


def header_only(info: tarfile.TarInfo, format: int = tarfile.GNU_FORMAT) -> bytes:
    return info.tobuf(format, "utf-8", "surrogateescape")


def sparse_pax(**headers) -> bytes:
    info, data = member(
        "food-101/sparse", b"x" * 512, pax_headers={f"GNU.sparse.{key}": v for key, v in headers.items()}
    )
    return packed([(info, data)], tarfile.PAX_FORMAT)


def sparse_gnu() -> bytes:
    info, data = member("food-101/sparse", b"x" * 512, type=tarfile.GNUTYPE_SPARSE)
    return packed([(info, data)])


def bomb() -> bytes:
    """An archive of 50 MB of zeros in 50 kB."""
    return packed([member(f"food-101/{number}", bytes(500_000)) for number in range(100)])


def long_name(n: int) -> bytes:
    """A header that says that the name of the next member has n bytes, followed by as many."""
    info = tarfile.TarInfo("././@LongLink")
    info.type, info.size = tarfile.GNUTYPE_LONGNAME, n
    return gzip.compress(header_only(info) + b"a" * n)


def negative() -> tarfile.TarInfo:
    info = tarfile.TarInfo("food-101/negative")
    info.size = -512
    return info


def many_globals() -> bytes:
    headers = {f"comment{number}": "x" for number in range(200)}
    return gzip.compress(tarfile.TarInfo.create_pax_global_header(headers) + tar_bytes([member("food-101/a", b"x")]))


def broken_header() -> bytes:
    data = bytearray(tar_bytes([member("food-101/a", b"x"), member("food-101/b", b"x")]))
    data[1024] ^= 1
    return gzip.compress(bytes(data))


DAMAGED = "it is damaged or cut short"
NOT_WHOLE = {
    "not gzip": (b"<html>Please log in</html>", "it is not a .tar.gz archive"),
    "empty": (b"", DAMAGED),
    "gzip of nothing": (gzip.compress(b""), DAMAGED),
    "gzip of a text": (gzip.compress(b"text " * 500), DAMAGED),
    "short text": (gzip.compress(b"text"), DAMAGED),
    "cut gzip": (
        good()[:-50],
        DAMAGED,
    ),
    "cut in the check sum": (good()[:-5], DAMAGED),
    "cut tar in a header": (
        gzip.compress(gzip.decompress(good())[:1700]),
        DAMAGED,
    ),
    "cut tar in a file": (
        gzip.compress(gzip.decompress(good())[:6000]),
        DAMAGED,
    ),
    "no end": (
        gzip.compress(gzip.decompress(good()).rstrip(b"\0") + bytes(-len(gzip.decompress(good()).rstrip(b"\0")) % 512)),
        DAMAGED,
    ),
    "damaged header": (broken_header(), DAMAGED),
    "bomb": (bomb(), "its member 'food-101/0' would make it 500,512 bytes; at most 100,000 are unpacked"),
    "sparse": (sparse_gnu(), "its member 'food-101/sparse' is a sparse file"),
    "sparse 0.0": (
        sparse_pax(size="9", offset="0", numbytes="9"),
        "its member 'food-101/sparse' is a sparse file",
    ),
    "sparse 0.1": (sparse_pax(map="0,9"), "its member 'food-101/sparse' is a sparse file"),
    "sparse map that is none": (
        sparse_pax(map="many"),
        DAMAGED,
    ),
    "sparse map without end": (
        sparse_pax(major="1", minor="0"),
        DAMAGED,
    ),
    "endless name": (long_name(70_000), "it has a header of more than 65,536 bytes"),
    "endless name after a file": (
        gzip.compress(tar_bytes([member("food-101/a", b"x")])[:1024] + gzip.decompress(long_name(70_000))),
        "it has a header of more than 65,536 bytes",
    ),
    "endless end": (gzip.compress(gzip.decompress(good()) + bytes(200_000)), "it unpacks to more than 100,000 bytes"),
    "negative size": (
        gzip.compress(tar_bytes([member("food-101/a", b"x")])[:1024] + header_only(negative()) + bytes(50_000)),
        DAMAGED,
    ),
    "many global headers": (many_globals(), "it has more than 100 headers for all its members"),
    "many files": (
        packed([member(f"food-101/{number}", b"x") for number in range(30)]),
        "its member 'food-101/19' is one too many: at most 20 files and folders are unpacked",
    ),
    "many folders": (
        packed([member(f"food-101/{'d/' * 40}0")]),
        f"its member {'food-101/' + 'd/' * 40 + '0'!a} is one too many: at most 20 files and folders are unpacked",
    ),
}


@pytest.mark.parametrize(("data", "why"), NOT_WHOLE.values(), ids=NOT_WHOLE)
def test_a_bad_archive_is_refused(tmp_path, data, why):
    """Damage, bombs and tricks of the format end in one sentence, with nothing left behind."""
    with pytest.raises(ArchiveError) as caught:
        unpacked(tmp_path, data)
    assert str(caught.value) == f"{tmp_path / 'a.tar.gz'} is not unpacked: {why}. Nothing of it was kept."
    assert [path.name for path in tmp_path.iterdir()] == ["a.tar.gz"]


@pytest.mark.parametrize(("level", "position"), [(9, 40), (0, 3000)])
def test_a_flipped_byte_is_refused(tmp_path, level, position):
    """What zlib cannot unpack is damage, and so is what it can, when the CRC-32 at the end is another."""
    data = bytearray(gzip.compress(gzip.decompress(good()), level))
    data[position] ^= 0xFF
    with pytest.raises(ArchiveError, match=DAMAGED):
        unpacked(tmp_path, bytes(data))


def test_python_checks_paths_as_well(tmp_path, monkeypatch):
    """Should our own checks ever miss a path, tarfile's filter for data refuses it."""
    monkeypatch.setattr(module._Members, "accept", lambda *_: None)
    with pytest.raises(ArchiveError, match=DAMAGED) as caught:
        unpacked(tmp_path, good([member("food-101/../../outside", b"x")]))
    assert isinstance(caught.value.__cause__, tarfile.OutsideDestinationError)
    assert [path.name for path in tmp_path.iterdir()] == ["a.tar.gz"]


def test_a_thousand_damaged_archives_do_no_harm(tmp_path):
    """Damaged headers give the files or an ArchiveError, whatever the damage; nothing ever lies outside."""
    rng = np.random.default_rng(0)
    whole = gzip.decompress(good())
    headers = [position for position in range(0, len(whole), 512) if whole[position + 257 : position + 262] == b"ustar"]
    refused = 0
    for _ in range(1000):
        data = bytearray(whole)
        start = int(rng.choice(headers))
        for position in rng.integers(0, 512, rng.integers(1, 6)):
            data[start + position] = rng.integers(256)
        data[start + 148 : start + 156] = b"%06o\0 " % tarfile.calc_chksums(data[start : start + 512])[0]
        refused += not _unpacks(tmp_path, gzip.compress(bytes(data), 1))
        assert [path.name for path in tmp_path.iterdir()] == ["a.tar.gz"]
    assert 300 < refused < 1000


def _unpacks(tmp_path: Path, data: bytes) -> bool:
    try:
        folder = unpacked(tmp_path, data)
    except ArchiveError:
        return False
    module._remove(folder)
    return True


# -- the disk, and the user -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()])
def test_a_stop_leaves_nothing(tmp_path, monkeypatch, error):
    """A full disk or Ctrl-C while a file is written: the error comes through, the folder is gone."""

    def stop(*_) -> None:
        raise error

    data = good()
    monkeypatch.setattr(tarfile, "copyfileobj", stop)
    with pytest.raises(type(error)):
        unpacked(tmp_path, data)
    assert [path.name for path in tmp_path.iterdir()] == ["a.tar.gz"]


def test_an_existing_folder_is_left_alone(tmp_path):
    """The target must be new: nothing is unpacked into other people's files."""
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "mine").write_bytes(b"mine")
    with pytest.raises(FileExistsError):
        unpacked(tmp_path, good())
    assert tree(tmp_path / "new") == {"mine": b"mine"}


def test_memory_stays_small(tmp_path):
    """A large file passes through in small pieces, and nothing is kept of the members that are done."""
    data = packed([member("food-101/zeros", bytes(2**24)), *(member(f"food-101/{n}") for n in range(2000))])
    (tmp_path / "a.tar.gz").write_bytes(data)
    tracemalloc.start()
    try:
        unpack(tmp_path / "a.tar.gz", tmp_path / "new", Limits(3000, 2**26), lambda n: None)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 800_000

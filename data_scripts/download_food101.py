"""Fetch Food-101, 101,000 photographs of 101 dishes, and unpack it.

::

    python -m data_scripts.download_food101 --out data

Food-101 is the work of Lukas Bossard, Matthieu Guillaumin and Luc Van Gool at ETH Zurich, who publish it as one archive
of 5.0 GB. The address is the one that torchvision (``datasets.Food101``) uses. The archive is the one with

- SHA-256 ``d97d15e438b7f4498f96086a4f7e2fa42a32f2712e87d3295441b2b6314053a4``, which is checked here, and
- MD5 ``85eeb15f3717b99a5da872d97d918f87``, for people who compare with other tools.

The rules, each with a test:

- **In DIR** lies ``food-101.tar.gz.part`` while the archive arrives, and ``food-101`` at the end. The pictures are
  unpacked beside it and renamed, so a folder of that name is whole. A whole one is recognised, and nothing is done.
- **A download goes on** where it stopped, after any error and in any later run, if the server can do that and its file
  is the same. Otherwise it starts again, and says so. An error of the network is tried again after a growing wait.
- **The digest** is checked before anything is unpacked. A wrong download is removed.
- **By hand**: an archive given with ``--archive``, or one at ``DIR/food-101.tar.gz``, is used without any network. It
  is checked too, and never removed.
- **Proxies** are those of the system, or of the variables ``http_proxy`` and ``https_proxy``.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import os
import shlex
import shutil
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import IO

from tqdm import tqdm

from data_scripts.archives import ArchiveError, Limits, unpack
from data_scripts.fetch import (
    CannotStartError,
    DownloadError,
    Notify,
    Part,
    Source,
    check_digest,
    disk_error,
    fetch,
    progress_bar,
)
from data_scripts.stops import sigterm_interrupts
from helpers.words import size_text

URL = "http://data.vision.ee.ethz.ch/cvl/food-101.tar.gz"  # the digest is the proof, so no secure connection is needed
SHA256 = "d97d15e438b7f4498f96086a4f7e2fa42a32f2712e87d3295441b2b6314053a4"
SIZE = 4_996_278_331  # bytes of that archive
GROWTH = 1.08  # photographs do not compress: unpacked they need the same, and a half-filled disk block for each
LIMITS = Limits(members=110_000, stream_bytes=6_000_000_000)  # Food-101 has 101,000 pictures, in 5 GB
NAME = "food-101"  # of the folder in the archive, and of the result

if os.name == "nt":
    import msvcrt

    def _lock(descriptor: int) -> None:
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)

else:
    import fcntl

    def _lock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def download_food101(
    out,
    *,
    url: str = URL,
    sha256: str = SHA256,
    timeout_s: float = 30,
    retries: int = 8,
    archive=None,
    keep_archive: bool = False,
    progress: bool = True,
    notify: Notify | None = None,
) -> Path:
    """Make the folder ``out/food-101``; returns its path. The rules are at the top of this module.

    Parameters
    ----------
    out : the folder to make it in; made if only itself is missing.
    url, sha256 : of a mirror, or of another archive that holds the same folders; the default is that of ETH Zurich.
    timeout_s : seconds without a byte that count as an error.
    retries : tries in a row that may bring nothing new.
    archive : the file ``food-101.tar.gz``, fetched by hand. Nothing uses the network then.
    keep_archive : keep a downloaded archive as ``out/food-101.tar.gz``.
    progress : draw progress bars with rate and remaining time on stderr.
    notify : called with one sentence at each retry, new start, and so on.

    Raises
    ------
    CannotStartError
        An argument, the folder, the free space or the address is not usable; the same call will fail again.
    DownloadError
        The network, the digest, the archive or the disk stopped it. The same call goes on from there.
    """
    out, notify = Path(out), notify or _say_nothing
    source = Source(url, sha256, SIZE if sha256.lower() == SHA256 else None, LIMITS.stream_bytes, timeout_s, retries)
    target = out / NAME
    _make_folder(out)
    with _only_one(out):
        if target.exists():
            _check_whole(target)
            notify(f"{target} is there and complete: nothing to do.")
            return target
        given = _given_archive(archive, out)
        part = Part(out / f"{NAME}.tar.gz.part", source.sha256)
        if given is None:
            fetch(part, source, partial(_check_space, out), progress, notify)
        else:
            check_digest(given, source.sha256, "Nothing was unpacked. Fetch the file again.", progress)
        _unpack(given or part.path, target, progress)
        part.finish(out / f"{NAME}.tar.gz" if keep_archive and given is None else None)
    return target


def _say_nothing(_: str) -> None:
    pass


# -- the folder -------------------------------------------------------------------------------------------------------


def _make_folder(out: Path) -> None:
    try:
        out.mkdir(exist_ok=True)
    except FileExistsError:
        raise CannotStartError(f"{out} is a file, not a folder. Choose another --out.") from None
    except FileNotFoundError:
        raise CannotStartError(f"{out.parent} does not exist. Make it, or choose another --out.") from None
    except OSError as error:
        raise CannotStartError(f"{out} cannot be made: {error.strerror}. Choose another --out.") from error


@contextlib.contextmanager
def _only_one(out: Path) -> Iterator[None]:
    """Refuse a second download into the same folder while the first runs. A killed one does not stand in the way."""
    path = out / f"{NAME}.lock"
    with _locked_file(path):
        try:
            yield
        finally:
            with contextlib.suppress(OSError):  # Windows removes no open file: then an empty one stays
                path.unlink()


def _locked_file(path: Path) -> IO[bytes]:
    """Open and lock the file of that name. One that its owner removes in this moment guards nothing: then another."""
    while True:
        try:
            file = path.open("ab")
        except OSError as error:
            raise CannotStartError(
                f"{path.parent} cannot be written: {error.strerror}. Choose another --out."
            ) from error
        if not _locked(file.fileno()):
            file.close()
            raise CannotStartError(
                f"another download_food101 is at work in {path.parent}. Wait for it, or choose another --out."
            )
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                return file
        file.close()


def _locked(descriptor: int) -> bool:
    """Lock an open file for this process until it is closed; False if another process has it."""
    try:
        _lock(descriptor)
    except OSError as error:
        return error.errno not in {errno.EWOULDBLOCK, errno.EACCES, errno.EDEADLK}  # some network disks have no locks
    return True


def _given_archive(archive, out: Path) -> Path | None:
    """The archive that somebody fetched by hand, if there is one."""
    if archive is None:
        path = out / f"{NAME}.tar.gz"
        return path if path.is_file() else None
    if not Path(archive).is_file():
        raise CannotStartError(f"--archive must be the file food-101.tar.gz; {archive} is no file.")
    return Path(archive)


def _check_space(folder: Path, download: int, archive_bytes: int) -> None:
    """Raise CannotStartError unless the rest of the download and the pictures fit on the disk of ``folder``."""
    pictures = int(archive_bytes * GROWTH)
    free = shutil.disk_usage(folder).free
    if free < download + pictures:
        raise CannotStartError(
            f"{folder} needs {size_text(download + pictures)} of free space: {size_text(download)} for the download "
            f"and {size_text(pictures)} for the pictures; {size_text(free)} are free. Free some, or choose another "
            "--out."
        )


def _count(folder: Path) -> tuple[int, int]:
    """Pictures and classes of the lists of a Food-101 folder. Raises DownloadError when not all pictures are there."""
    names: list[str] = []
    for path in ("meta/train.txt", "meta/test.txt"):
        try:
            names += (folder / path).read_text(encoding="utf-8").split()
        except (OSError, UnicodeDecodeError):
            raise DownloadError(f"{path} cannot be read") from None
    classes = {name.split("/")[0] for name in names}
    there = {f"{name}/{file.stem}" for name in classes for file in (folder / "images" / name).glob("*.jpg")}
    missing = [name for name in names if name not in there]
    if missing:
        total = f"{len(missing):,} of the {len(names):,} pictures in its lists"
        raise DownloadError(f"{total} are missing, such as images/{missing[0]}.jpg")
    return len(names), len(classes)


def _check_whole(target: Path) -> None:
    try:
        _count(target)
    except DownloadError as error:
        raise CannotStartError(
            f"{target} is no whole Food-101: {error}. Move it away, or choose another --out."
        ) from None


def _unpack(archive: Path, target: Path, progress: bool) -> None:
    """Unpack beside ``target``, see that it is whole, and rename."""
    beside = target.with_name(f"{NAME}.unpacking")
    if beside.exists():
        shutil.rmtree(beside)  # of a run that was killed
    _check_space(target.parent, 0, archive.stat().st_size)
    try:
        with progress_bar(f"unpacking {archive.name}", archive.stat().st_size, 0, progress) as bar:
            unpack(archive, beside, LIMITS, bar.update)
        _count(beside / NAME)
        (beside / NAME).rename(target)
    except ArchiveError as error:
        raise DownloadError(str(error)) from error
    except DownloadError as error:
        raise DownloadError(f"{archive} is no whole Food-101: {error}. Nothing of it was kept.") from error
    except OSError as error:
        raise disk_error(error, f"{archive} cannot be unpacked", "The archive is kept") from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)


# -- command line -----------------------------------------------------------------------------------------------------

EXAMPLES = """
examples:
  python -m data_scripts.download_food101 --out data
  python -m data_scripts.download_food101 --out data --archive Downloads/food-101.tar.gz
  python -m data_scripts.download_food101 --out data --url https://mirror.example/food-101.tar.gz

It needs 5.0 GB for the archive and 5.4 GB for the pictures. The archive is removed at the end unless --keep-archive is
given. After any stop, the same command goes on.

exit status: 0 the folder is complete; 1 it stopped, and the same command goes on; 2 it could not start.
"""


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    given = _parser().parse_args(arguments)
    try:
        with sigterm_interrupts():
            folder = download_food101(
                given.out,
                url=given.url or URL,
                sha256=given.sha256,
                timeout_s=given.timeout,
                retries=given.retries,
                archive=given.archive,
                keep_archive=given.keep_archive,
                notify=lambda sentence: tqdm.write(f"  {sentence}", file=sys.stderr),
            )
            pictures, classes = _count(folder)
    except CannotStartError as error:
        return _fail(str(error), 2)
    except DownloadError as error:
        return _fail(str(error), 1)
    except OSError as error:
        return _fail(f"it stopped: {error}.", 1)
    except KeyboardInterrupt:
        return _fail("interrupted. The same command goes on where it stopped.", 1)
    print(f"{folder}: {pictures:,} pictures of {classes} classes")
    print(f"next: python -m data_scripts.build_hdf5 {_quoted(folder)} --out food.h5 --size 299")
    return 0


def _quoted(path: Path) -> str:
    return f'"{path}"' if os.name == "nt" else shlex.quote(str(path))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m data_scripts.download_food101",
        description="Download Food-101, check it, and unpack it.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--out", type=Path, required=True, metavar="DIR", help="the folder in which food-101 is made")
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--archive", type=Path, metavar="FILE", help="food-101.tar.gz, fetched by hand: no network at all"
    )
    where.add_argument("--url", help=f"of a mirror (default {URL})")
    add("--sha256", default=SHA256, metavar="HEX", help="of the archive, if it is another (default: that of Food-101)")
    add("--keep-archive", action="store_true", help="keep the download as DIR/food-101.tar.gz")
    add(
        "--timeout",
        type=float,
        default=30,
        metavar="S",
        help="seconds without a byte that count as an error (default 30)",
    )
    add("--retries", type=int, default=8, metavar="N", help="tries in a row that may bring nothing new (default 8)")
    return parser


def _fail(sentence: str, status: int) -> int:
    print(f"download_food101: {sentence}", file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main())

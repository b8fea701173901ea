"""Download one large file over any number of tries and runs. The only module of the kit that uses the network.

The file grows as PART, beside a note, ``PART.json``, of what its server said about it. A request asks for the bytes
that are missing, and names the version of the file they must belong to. What the answer means:

======================================  ============================================================================
the rest of the same file (206)         appended
the whole file (200)                    it cannot go on there, or the file has changed: begun again, and said
nothing at that place (416)             all was there, if its length says so; otherwise begun again, and said
no answer, cut, silent, busy, 500 up    tried again after 1, 2, 4 ... 60 s; given up after so many tries without news
any other                               given up at once: the address is wrong
======================================  ============================================================================

Whether the bytes are the right ones, the digest says, when all are there.
"""

from __future__ import annotations

import errno
import hashlib
import http.client
import json
import re
import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import sleep

from tqdm import tqdm

PIECE = 2**20  # bytes read at once
LONGEST_WAIT = 60  # seconds between two tries
PASSING = {408, 425, 429}  # answers of 400 to 499 that another try may change
CANNOT_GO_ON = "the server cannot go on in the middle of the file"
CHANGED = "the file on the server has changed"

Notify = Callable[[str], object]
Fits = Callable[[int, int], object]
Answer = http.client.HTTPResponse | urllib.error.HTTPError


class DownloadError(OSError):
    """Fetching or unpacking stopped; the message says why, and what to do."""


class CannotStartError(DownloadError):
    """It did not begin: an argument, the folder, the space or the address is not usable."""


class _DroppedError(Exception):
    """The network failed in a way that another try may not."""


@dataclass(frozen=True)
class Source:
    """Where the archive comes from, and how long to wait for it; checked here."""

    url: str
    sha256: str
    size: int | None = None  # bytes, where they are known before the server is asked
    limit: int = 2**40  # bytes that are accepted from a server that does not say how many come
    timeout_s: float = 30  # without a byte
    retries: int = 8  # in a row that bring nothing new

    def __post_init__(self):
        if not _usable(self.url):
            raise CannotStartError(f"--url must be an address that begins with http:// or https://; got {self.url!a}.")
        if not re.fullmatch("[0-9a-fA-F]{64}", self.sha256):
            raise CannotStartError(f"--sha256 must have 64 hexadecimal digits; got {self.sha256!a}.")
        object.__setattr__(self, "sha256", self.sha256.lower())
        if not 0 < self.timeout_s <= 86_400:
            raise CannotStartError(f"--timeout must be above 0 and at most 86400 seconds; got {self.timeout_s:g}.")
        if self.retries < 0:
            raise CannotStartError(f"--retries must be at least 0; got {self.retries}.")


def _usable(url: str) -> bool:
    try:
        parts = urllib.parse.urlsplit(url)
        good = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0  # .port raises if it is none
    except ValueError:
        return False
    return bool(good) and url.isascii() and url.isprintable() and " " not in url


# -- the archive in the making ----------------------------------------------------------------------------------------


class Part:
    """The file that a download grows, and beside it a note of what the server said about it."""

    def __init__(self, path: Path, sha256: str):
        self.path = path
        self._sha256 = sha256
        self._note_path = path.with_name(path.name + ".json")
        self._next_note_path = path.with_name(path.name + ".json.new")
        self.note = self._read_note()

    def _read_note(self) -> dict:
        """The note, or an empty one where there is none for an archive with this digest."""
        try:
            note = json.loads(self._note_path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return note if isinstance(note, dict) and note.get("sha256") == self._sha256 else {}

    @property
    def have(self) -> int:
        """Bytes that are there and belong to this archive."""
        return self.path.stat().st_size if self.note and self.path.exists() else 0

    @property
    def size(self) -> int | None:
        """Bytes of the whole archive, as far as the server said."""
        return self.note.get("size")

    def begin(self, note: dict) -> None:
        """Start with an empty file."""
        self.remove()
        self._write_note(note | {"sha256": self._sha256})
        self.path.touch()

    def _write_note(self, note: dict) -> None:
        """Put the new note in place of the old one at once: a kill must not leave half of one beside gigabytes."""
        if note == self.note:
            return
        self._next_note_path.write_text(json.dumps(note), encoding="utf-8")
        self._next_note_path.replace(self._note_path)
        self.note = note

    def set_size(self, size: int) -> None:
        """Note the size that the server had not said at the beginning."""
        self._write_note(self.note | {"size": size})

    def remove(self) -> None:
        """Forget all of it."""
        for path in (self.path, self._note_path, self._next_note_path):
            path.unlink(missing_ok=True)
        self.note = {}

    def finish(self, keep: Path | None) -> None:
        """The archive was unpacked: keep it under that name, or remove it."""
        if keep is not None:
            self.path.replace(keep)
        self.remove()


# -- the network ------------------------------------------------------------------------------------------------------


def fetch(part: Part, source: Source, fits: Fits, progress: bool, notify: Notify) -> None:
    """Download what is missing of ``part``, and check the digest; a file with a wrong one is removed.

    ``fits(download, archive)`` gets the bytes to come and those of the whole archive, before the first byte comes, and
    raises if the disk has no room. ``notify`` gets one sentence at each retry and each new start.

    Raises
    ------
    CannotStartError
        The address is wrong, or ``fits`` says so.
    DownloadError
        The server failed too often, the disk is full, or the digest is wrong.
    """
    if part.path.exists() and not part.note:
        notify(f"{part.path} is of another archive: starting from the first byte.")
    if size := part.size or source.size:
        fits(max(0, size - part.have), size)
    with progress_bar(part.path.with_suffix("").name, size, part.have, progress) as bar:
        _try(part, source, fits, bar, notify)
    try:
        check_digest(part.path, source.sha256, "It was removed; the same command downloads it anew.", progress)
    except DownloadError:
        part.remove()
        raise


def _try(part: Part, source: Source, fits: Fits, bar: tqdm, notify: Notify) -> None:
    """Ask until the part is as long as the server says."""
    best, failed = part.have, 0
    while True:
        try:
            if _download(part, source, fits, bar, notify):
                return
        except _DroppedError as error:
            failed = 1 if part.have > best else failed + 1
            best = max(best, part.have)
            _wait(failed, f"{error} after {part.have:,} bytes", source, notify)


def _wait(failed: int, what: str, source: Source, notify: Notify) -> None:
    if failed > source.retries:
        raise DownloadError(
            f"{source.url}: {what}. Further tries that brought nothing new: {source.retries}. What is there is kept: "
            "the same command goes on from it. --url names a mirror, --archive a file fetched in another way."
        )
    seconds = min(LONGEST_WAIT, 2 ** (failed - 1))
    notify(f"{what}; trying again in {seconds} s ({failed} of {source.retries}).")
    sleep(seconds)


def _download(part: Part, source: Source, fits: Fits, bar: tqdm, notify: Notify) -> bool:
    """At most one request. True when the archive is there; False when another has to start from nothing."""
    if part.have and part.have == part.size:
        return True
    if part.size is not None and part.have > part.size:
        return _start_again(part, f"{part.path} is longer than the archive", notify)
    try:
        response = _ask(part, source)
    except urllib.error.HTTPError as error:
        with error:
            return _refused(error, part, source, notify)
    with response:
        if part.have and not _goes_on(response, part, source, notify):
            return False
        if not part.have:
            _begin(response, part, source, fits)
        _receive(response, part, source.limit, bar)
    return True


def _start_again(part: Part, why: str, notify: Notify) -> bool:
    notify(f"{why}: starting again from the first byte.")
    part.remove()
    return False


def _ask(part: Part, source: Source) -> http.client.HTTPResponse:
    """The server's answer to a request for what is missing. Raises HTTPError for answers from 300 on."""
    request = urllib.request.Request(
        source.url, headers={"User-Agent": "hdf5-keras-kit", "Accept-Encoding": "identity"}
    )
    if part.have:
        request.add_header("Range", f"bytes={part.have}-")
        if part.note.get("validator") and part.note.get("url") == source.url:
            request.add_header("If-Range", part.note["validator"])
    try:
        return _opener().open(request, timeout=source.timeout_s)
    except urllib.error.HTTPError:
        raise
    except (OSError, http.client.HTTPException) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        if isinstance(reason, (str, ssl.SSLCertVerificationError, http.client.InvalidURL)):
            raise CannotStartError(f"{source.url} cannot be asked: {reason}. Check --url.") from error
        raise _DroppedError(_network_reason(reason)) from error


def _opener() -> urllib.request.OpenerDirector:
    """Opens http and https addresses and nothing else, wherever a redirection points."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler,
        urllib.request.HTTPHandler,
        urllib.request.HTTPSHandler,
        urllib.request.HTTPRedirectHandler,
        urllib.request.HTTPDefaultErrorHandler,
        urllib.request.HTTPErrorProcessor,
        urllib.request.UnknownHandler,
    ):
        opener.add_handler(handler())
    return opener


def _network_reason(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "the server was silent for too long"
    if isinstance(error, ConnectionRefusedError):
        return "the server refused the connection"
    if isinstance(error, (ConnectionError, http.client.IncompleteRead)):
        return "the connection was cut"
    return f"the connection failed ({str(error) or type(error).__name__})"


def _refused(error: urllib.error.HTTPError, part: Part, source: Source, notify: Notify) -> bool:
    """What an answer from 300 on means: True and False as for `_download`."""
    if error.code == 416 and part.have:
        return _ends_there(error, part, source, notify)
    if 300 <= error.code < 400:
        what = "redirects in a circle, or to an address that is neither http nor https"
    else:
        what = f"answers {error.code} {error.reason}".rstrip()
    if error.code >= 500 or error.code in PASSING:
        raise _DroppedError(f"the server {what}") from error
    raise CannotStartError(
        f"{source.url} {what}. Check --url, or fetch food-101.tar.gz in another way and pass it with --archive."
    ) from error


def _ends_there(error: urllib.error.HTTPError, part: Part, source: Source, notify: Notify) -> bool:
    """Nothing comes after the part: True when it is as long as the server's file. Otherwise it is emptied.

    A run that was killed between the last byte and the note of a size that no head had named leaves a whole part.
    """
    place = re.fullmatch(r"bytes \*/(\d+)", error.headers.get("Content-Range", ""))
    if place is None:
        return _start_again(part, CANNOT_GO_ON, notify)
    size = int(place[1])
    if not _same_version(error, part, source) or part.size not in {None, size}:
        return _start_again(part, CHANGED, notify)
    if size != part.have:
        why = f"{part.path} is longer than the file on the server" if size < part.have else CANNOT_GO_ON
        return _start_again(part, why, notify)
    part.set_size(size)
    return True


def _goes_on(response: http.client.HTTPResponse, part: Part, source: Source, notify: Notify) -> bool:
    """Whether the answer is the rest of the part. If it is all of the file, the part is emptied for it."""
    if _is_rest(response, part, source):
        return True
    _start_again(part, CANNOT_GO_ON if _same_version(response, part, source) else CHANGED, notify)
    return response.status == 200


def _is_rest(response: http.client.HTTPResponse, part: Part, source: Source) -> bool:
    """Whether the answer begins at the byte that is missing, and belongs to the same file as far as one can see."""
    place = re.fullmatch(r"bytes (\d+)-\d+/(\d+)", response.headers.get("Content-Range", ""))
    if response.status != 206 or place is None or int(place[1]) != part.have:
        return False
    if not _same_version(response, part, source) or part.size not in {None, int(place[2])}:
        return False
    part.set_size(int(place[2]))
    return True


def _same_version(response: Answer, part: Part, source: Source) -> bool:
    """Whether nothing speaks against it; two mirrors name the same version differently."""
    known, now = part.note.get("validator"), _validator(response)
    return known == now or None in {known, now} or part.note.get("url") != source.url


def _validator(response: Answer) -> str | None:
    """What tells this version of the file from others: a strong ETag, or the date of its last change."""
    etag = response.headers.get("ETag", "")
    return etag if etag.startswith('"') else response.headers.get("Last-Modified")


def _begin(response: http.client.HTTPResponse, part: Part, source: Source, fits: Fits) -> None:
    """Look at the head of the answer, and start the part. Raises CannotStartError when it cannot be the archive."""
    size = response.length  # None when the server does not say
    if response.status != 200:
        raise CannotStartError(f"{source.url} answers {response.status} to a request for a file. Check --url.")
    if None not in {size, source.size} and size != source.size:
        raise CannotStartError(
            f"{source.url} offers a file of {size:,} bytes; Food-101 has {source.size:,}. Check --url, or whether a "
            "login page of your network answers in its place."
        )
    if size is not None:
        fits(size, size)
    part.begin({"url": source.url, "size": size, "validator": _validator(response)})


def _receive(response: http.client.HTTPResponse, part: Part, limit: int, bar: tqdm) -> None:
    """Append what arrives. Raises _DroppedError when it ends too early."""
    have, limit = part.have, part.size or limit
    bar.total = part.size
    bar.update(have - bar.n)
    try:
        with part.path.open("ab") as file:
            while piece := _read(response):
                file.write(piece)
                have += len(piece)
                bar.update(len(piece))
                if have > limit:
                    break
    except OSError as error:
        raise disk_error(error, f"{part.path} cannot grow", f"{part.have:,} bytes are there") from error
    if part.have > limit:
        part.remove()
        raise DownloadError(f"the server sends more than {limit:,} bytes. Nothing was kept. Check --url.")
    if part.size is None:
        part.set_size(part.have)  # the end of the answer is the end of the archive
    elif part.have < part.size:
        raise _DroppedError("the connection was cut")


def _read(response: http.client.HTTPResponse) -> bytes:
    try:
        return response.read1(PIECE)
    except (OSError, http.client.HTTPException) as error:
        raise _DroppedError(_network_reason(error)) from error


# -- also for the other steps -----------------------------------------------------------------------------------------


def check_digest(archive: Path, sha256: str, then: str, progress: bool) -> None:
    """Read the file. Raises DownloadError, ending with ``then``, when its SHA-256 is another."""
    digest = hashlib.sha256()
    with (
        archive.open("rb") as file,
        progress_bar(f"checking {archive.name}", archive.stat().st_size, 0, progress) as bar,
    ):
        while piece := file.read(PIECE):
            digest.update(piece)
            bar.update(len(piece))
    if digest.hexdigest() != sha256:
        raise DownloadError(
            f"{archive} is not the archive that was wanted: its SHA-256 must be {sha256}; it is {digest.hexdigest()}. "
            f"{then}"
        )


def progress_bar(what: str, total: int | None, start: int, progress: bool) -> tqdm:
    """Bytes done, rate and remaining time, on stderr."""
    return tqdm(desc=what, total=total, initial=start, unit="B", unit_scale=True, disable=not progress)


def disk_error(error: OSError, what: str, kept: str) -> DownloadError:
    """What to say when files cannot be written; ``kept`` says what is still there."""
    reason = "the disk is full" if error.errno in {errno.ENOSPC, errno.EDQUOT} else f"{error.strerror or error}"
    do = "Free some space, then" if error.errno in {errno.ENOSPC, errno.EDQUOT} else "When that is put right,"
    return DownloadError(f"{what}: {reason}. {kept}. {do} run the same command again.")

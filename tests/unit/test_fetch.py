"""A download ends with the right bytes or with a clear sentence, whatever server and network do."""

from __future__ import annotations

import ast
import errno
import hashlib
import json
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from file_server import (
    chunked,
    cuts,
    endless,
    file_server,
    ignores_ranges,
    resets,
    says,
    serves,
    stalls,
    without_length,
)

from data_scripts import fetch as module
from data_scripts.fetch import CannotStartError, DownloadError, Part, Source, fetch

BODY = np.random.default_rng(0).bytes(300_000)
DIGEST = hashlib.sha256(BODY).hexdigest()
ROOT = Path(module.__file__).parents[1]
NETWORK = {"urllib.request", "http", "socket", "requests", "httpx", "aiohttp", "urllib3", "ftplib", "asyncio", "ssl"}


@pytest.fixture
def server():
    with file_server(BODY) as running:
        yield running


@pytest.fixture(autouse=True)
def waits(monkeypatch) -> list[float]:
    """The seconds of each wait, which takes no time here; and no proxy between the tests and their server."""
    taken: list[float] = []
    monkeypatch.setattr(module, "sleep", taken.append)
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    return taken


class Download:
    """A part file in a folder, and what was said while it was fetched."""

    def __init__(self, folder: Path, server):
        self.path = folder / "food-101.tar.gz.part"
        self.note = folder / "food-101.tar.gz.part.json"
        self.server = server
        self.said: list[str] = []
        self.fits: list[tuple[int, int]] = []

    def fetch(self, url: str | None = None, sha256: str = DIGEST, **options) -> bytes:
        """Fetch as a new run does; returns the bytes."""
        source = Source(url or self.server.url, sha256, **options)
        fetch(Part(self.path, sha256), source, lambda *sizes: self.fits.append(sizes), False, self.said.append)
        return self.path.read_bytes()

    def stop_at(self, n: int) -> None:
        """An earlier run that was cut after n bytes."""
        self.server.answers = [cuts(n)]
        with pytest.raises(DownloadError, match=rf"the connection was cut after {n:,} bytes"):
            self.fetch(retries=0)
        assert self.path.read_bytes() == BODY[:n]
        self.server.asked.clear()
        self.fits.clear()

    def stop_in_chunks(self, n: int) -> None:
        """An earlier run that was cut after n bytes, of a server that did not say how many there are."""
        self.server.answers = [chunked(n)]
        with pytest.raises(DownloadError, match=rf"the connection was cut after {n:,} bytes"):
            self.fetch(retries=0)
        self.server.asked.clear()

    def ranges(self) -> list[tuple[str | None, str | None]]:
        """Range and If-Range of each request."""
        return [(asked.get("Range"), asked.get("If-Range")) for asked in self.server.asked]


@pytest.fixture
def download(tmp_path, server) -> Download:
    return Download(tmp_path, server)


# -- what arrives -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("answer", [serves, ignores_ranges, without_length, chunked()])
def test_the_bytes_are_those_of_the_server(download, answer):
    """One request brings the file, with a length, without one, and in chunks."""
    download.server.answers = [answer]
    assert (download.fetch(), download.said) == (BODY, [])
    assert download.ranges() == [(None, None)]


def test_a_whole_file_is_not_asked_for_again(download):
    """A second run with all bytes there asks no server, also when the server had not said how many there are."""
    download.server.answers = [without_length]
    assert (download.fetch(), download.fetch()) == (BODY, BODY)
    assert len(download.server.asked) == 1


def test_a_closed_connection_goes_on_where_it_broke(download, waits):
    """After each cut only the missing bytes are asked for, and of the same version of the file."""
    download.server.answers = [cuts(100_000), cuts(250_000)]
    assert download.fetch() == BODY
    assert download.ranges() == [(None, None), ("bytes=100000-", '"one"'), ("bytes=250000-", '"one"')]
    assert download.said == [
        "the connection was cut after 100,000 bytes; trying again in 1 s (1 of 8).",
        "the connection was cut after 250,000 bytes; trying again in 1 s (1 of 8).",
    ]
    assert waits == [1, 1]


def test_a_reset_connection_goes_on(download):
    """A reset is a cut too; bytes that it overtook are asked for again."""
    download.server.answers = [resets(100_000)]
    assert download.fetch() == BODY
    assert re.fullmatch(r"the connection was cut after [\d,]+ bytes; trying again in 1 s \(1 of 8\)\.", *download.said)


def test_a_cut_of_chunks_is_seen(download):
    """Chunks without their end are not taken for the whole file, and neither is a cut rest."""
    download.server.answers = [chunked(100_000), cuts(200_000)]
    assert download.fetch() == BODY
    assert download.ranges() == [(None, None), ("bytes=100000-", '"one"'), ("bytes=200000-", '"one"')]


def test_the_next_run_goes_on(download):
    """A later run asks for the missing bytes, and for room for these only."""
    download.stop_at(100_000)
    assert (download.fetch(), download.said) == (BODY, [])
    assert download.ranges() == [("bytes=100000-", '"one"')]
    assert download.fits == [(200_000, 300_000)]


def test_going_on_leaves_the_note_alone(download):
    """A note that says all already is not written again: nothing can tear it."""
    download.stop_at(100_000)
    before = download.note.stat()
    assert download.fetch() == BODY
    after = download.note.stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_a_kill_while_the_note_is_written_costs_no_byte(download, monkeypatch):
    """The old note is whole until the new one is: the next run goes on from the same byte."""
    download.stop_in_chunks(100_000)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_text", writes_half)
        with pytest.raises(KeyboardInterrupt):
            download.fetch()
    download.server.asked.clear()
    assert (download.fetch(), download.said) == (BODY, [])
    assert download.ranges() == [("bytes=100000-", '"one"')]
    assert json.loads(download.note.read_text())["size"] == len(BODY)


def writes_half(path: Path, text: str, **options) -> None:
    """What a kill in the middle of `write_text` leaves."""
    with path.open("w", **options) as file:
        file.write(text[: len(text) // 2])
    raise KeyboardInterrupt


def test_a_kill_before_the_first_byte_leaves_nothing_strange(download, monkeypatch, tmp_path):
    """A run that was killed while it began is no archive of somebody else, and half its note goes with the part."""
    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_text", writes_half)
        with pytest.raises(KeyboardInterrupt):
            download.fetch()
    half = tmp_path / "food-101.tar.gz.part.json.new"
    assert list(tmp_path.iterdir()) == [half]
    assert (download.fetch(), download.said) == (BODY, [])
    half.touch()
    Part(download.path, DIGEST).remove()
    assert list(tmp_path.iterdir()) == []


def test_a_whole_part_is_not_fetched_again_though_no_size_was_noted(download):
    """A kill after the last byte, before its size was noted: the server says that nothing is missing."""
    download.server.answers = [without_length]
    assert download.fetch() == BODY
    download.note.write_text(json.dumps(json.loads(download.note.read_text()) | {"size": None}))
    assert (download.fetch(), download.said) == (BODY, [])
    assert download.ranges() == [(None, None), ("bytes=300000-", '"one"')]
    assert download.fetch() == BODY
    assert len(download.server.asked) == 2


def test_another_mirror_goes_on(download):
    """A part of one mirror is finished by another, whose names for versions mean nothing here."""
    download.stop_at(100_000)
    download.server.etag = '"of the mirror"'
    assert (download.fetch(download.server.url + "?mirror"), download.said) == (BODY, [])
    assert download.ranges() == [("bytes=100000-", None)]


def test_a_date_tells_versions_apart_where_a_strong_tag_is_missing(download):
    """A weak ETag must not be used in If-Range; the date of the last change is."""
    date = "Mon, 01 Dec 2014 10:00:00 GMT"
    download.server.answers = [
        says(200, BODY[:1000], Content_Length=len(BODY), ETag='W/"weak"', Last_Modified=date),
        says(206, BODY[1000:], Content_Range="bytes 1000-299999/300000", ETag='W/"weak"', Last_Modified=date),
    ]
    assert download.fetch() == BODY
    assert download.ranges() == [(None, None), ("bytes=1000-", date)]


# -- starting again ---------------------------------------------------------------------------------------------------

CANNOT = "the server cannot go on in the middle of the file: starting again from the first byte."
CHANGED = "the file on the server has changed: starting again from the first byte."
REST = {"body": BODY[100_000:], "ETag": '"one"'}
STARTS_AGAIN = {
    "ignores ranges": (ignores_ranges, CANNOT, 1),
    "rest without a place": (says(206, **REST), CANNOT, 2),
    "rest from elsewhere": (says(206, **REST, Content_Range="bytes 99999-299999/300000"), CANNOT, 2),
    "rest of another length": (says(206, **REST, Content_Range="bytes 100000-299999/300001"), CANNOT, 2),
    "changed, though If-Range was ignored": (
        says(206, **REST | {"ETag": '"two"'}, Content_Range="bytes 100000-299999/300000"),
        CHANGED,
        2,
    ),
    "nothing at that place": (says(416, Content_Range="bytes */9"), CHANGED, 2),
    "nothing there, of another version": (says(416, Content_Range="bytes */300000", ETag='"two"'), CHANGED, 2),
    "nothing there, though it is": (says(416, Content_Range="bytes */300000", ETag='"one"'), CANNOT, 2),
    "nothing there, without a length": (says(416), CANNOT, 2),
}


@pytest.mark.parametrize(("answer", "sentence", "requests"), STARTS_AGAIN.values(), ids=STARTS_AGAIN)
def test_what_does_not_fit_starts_again(download, answer, sentence, requests):
    """An answer that is not the rest of the same file is never appended: all is fetched anew, and said so."""
    download.stop_at(100_000)
    download.server.answers = [answer]
    assert download.fetch() == BODY
    assert download.said == [sentence.format(path=download.path)]
    assert len(download.server.asked) == requests


def test_a_changed_file_starts_again(download):
    """A server that has a newer file sends all of it, because If-Range names the older one."""
    download.stop_at(100_000)
    download.server.etag = '"two"'
    assert (download.fetch(), download.said) == (BODY, [CHANGED])
    assert json.loads(download.note.read_text())["validator"] == '"two"'


def test_a_part_that_is_too_long_starts_again(download):
    """More bytes than the archive has are thrown away before anybody is asked."""
    download.stop_at(100_000)
    download.path.write_bytes(BODY + b"more")
    assert download.fetch() == BODY
    assert download.said == [f"{download.path} is longer than the archive: starting again from the first byte."]
    assert download.ranges() == [(None, None)]


def test_a_part_that_is_longer_than_the_servers_file_starts_again(download):
    """Where no head named a size, the server's word that the file ends earlier is believed."""
    download.stop_in_chunks(100_000)
    download.server.answers = [says(416, Content_Range="bytes */99999")]
    assert download.fetch() == BODY
    assert download.said[-1] == (
        f"{download.path} is longer than the file on the server: starting again from the first byte."
    )
    assert download.ranges() == [("bytes=100000-", '"one"'), (None, None)]


@pytest.mark.parametrize("note", [None, "", "[]", '{"sha256": "other", "size": 300000}'])
def test_a_part_of_unknown_origin_starts_again(download, note):
    """Without a note that fits, nobody knows of which file the bytes are."""
    download.path.write_bytes(b"x" * 1000)
    if note is not None:
        download.note.write_text(note)
    assert download.fetch() == BODY
    assert download.said == [f"{download.path} is of another archive: starting from the first byte."]


# -- giving up --------------------------------------------------------------------------------------------------------

KEPT = (
    "What is there is kept: the same command goes on from it. --url names a mirror, --archive a file fetched in "
    "another way."
)


@pytest.mark.parametrize("status", ["408 Request Timeout", "429 Too Many Requests", "500 Internal Server Error"])
def test_a_busy_server_is_asked_again_with_growing_waits(download, waits, status):
    """Answers that may pass are tried again up to --retries times."""
    download.server.answers = [says(int(status[:3]))] * 9
    with pytest.raises(DownloadError) as caught:
        download.fetch()
    sentence = (
        f"{download.server.url}: the server answers {status} after 0 bytes. Further tries that brought nothing new"
    )
    assert str(caught.value) == f"{sentence}: 8. {KEPT}"
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60]


def test_progress_earns_new_tries(download, waits):
    """Only tries that bring nothing new count; one that does starts the waits from 1 s again."""
    download.server.answers = [says(503), says(503), cuts(1000), says(503), cuts(2000)]
    assert download.fetch(retries=2) == BODY
    assert waits == [1, 2, 1, 2, 1]


def test_a_server_that_always_breaks_at_one_place_is_given_up(download, waits):
    """A cut at the same byte again and again is no progress, though each try begins anew and brings bytes."""
    download.server.answers = [says(200, BODY[:1000], Content_Length=len(BODY))] * 9
    with pytest.raises(DownloadError, match=r"the connection was cut after 1,000 bytes\. Further tries"):
        download.fetch(retries=3)
    assert waits == [1, 2, 4]


@pytest.mark.parametrize("stop", [None, 1000])
def test_a_silent_server_is_an_error_and_no_hang(download, stop):
    """After --timeout seconds without a byte the next try begins, before the answer and in its middle alike."""
    download.server.answers = [stalls(stop)]
    begin = time.perf_counter()
    assert download.fetch(timeout_s=0.3) == BODY
    assert time.perf_counter() - begin < 4
    assert download.said == [
        f"the server was silent for too long after {stop or 0:,} bytes; trying again in 1 s (1 of 8)."
    ]


def test_nobody_listens(download, waits):
    """A refused connection is tried again, then given up."""
    download.server.server_close()
    with pytest.raises(DownloadError) as caught:
        download.fetch(retries=1)
    sentence = "the server refused the connection after 0 bytes. Further tries that brought nothing new: 1."
    assert str(caught.value) == f"{download.server.url}: {sentence} {KEPT}"
    assert waits == [1]


WRONG_ADDRESS = {
    "404": (says(404), "answers 404 Not Found"),
    "403": (says(403), "answers 403 Forbidden"),
    "416 for all": (says(416), "answers 416 Requested Range Not Satisfiable"),
    "circle": (says(302, Location="/circle"), "redirects in a circle, or to an address that is neither http nor https"),
    "to a file": (
        says(302, Location="file:///etc/passwd"),
        "redirects in a circle, or to an address that is neither http nor https",
    ),
}


@pytest.mark.parametrize(("answer", "what"), WRONG_ADDRESS.values(), ids=WRONG_ADDRESS)
def test_a_wrong_address_is_given_up_at_once(download, waits, answer, what):
    """Answers that no second try changes end it, and say what to do."""
    download.server.answers = [answer] * 12
    with pytest.raises(CannotStartError) as caught:
        download.fetch()
    do = "Check --url, or fetch food-101.tar.gz in another way and pass it with --archive."
    assert str(caught.value) == f"{download.server.url} {what}. {do}"
    assert waits == []
    assert not download.path.exists()


def test_a_redirection_is_followed(download):
    """Servers move; the range goes with the request."""
    download.stop_at(1000)
    download.server.answers = [says(302, Location="/elsewhere")]
    assert download.fetch() == BODY
    assert [(asked["path"], asked["Range"]) for asked in download.server.asked] == [
        ("/food-101.tar.gz", "bytes=1000-"),
        ("/elsewhere", "bytes=1000-"),
    ]


@pytest.mark.parametrize("place", ["ftp://127.0.0.1/food", "data:,food"])
def test_only_the_web_is_asked(download, place):
    """A redirection to another kind of address is refused."""
    download.server.answers = [says(302, Location=place)]
    with pytest.raises(CannotStartError, match="unknown url type|neither http nor https"):
        download.fetch()


def test_part_of_a_file_is_no_answer_to_the_whole(download):
    """206 without a range in the request is refused."""
    download.server.answers = [says(206, b"abc")]
    with pytest.raises(CannotStartError) as caught:
        download.fetch()
    assert str(caught.value) == f"{download.server.url} answers 206 to a request for a file. Check --url."


def test_a_login_page_is_no_archive(download):
    """Where the size is known, a file of another size is refused before its first byte."""
    with pytest.raises(CannotStartError) as caught:
        download.fetch(size=4_996_278_331)
    assert str(caught.value) == (
        f"{download.server.url} offers a file of 300,000 bytes; Food-101 has 4,996,278,331. Check --url, or whether a "
        "login page of your network answers in its place."
    )
    assert not download.path.exists()


@pytest.mark.parametrize("answer", [endless, without_length, chunked()])
def test_an_endless_answer_ends(download, answer):
    """A server that does not say how much it sends may send so much only."""
    download.server.answers = [answer]
    with pytest.raises(DownloadError) as caught:
        download.fetch(limit=200_000)
    assert str(caught.value) == "the server sends more than 200,000 bytes. Nothing was kept. Check --url."
    assert not download.path.exists()


def test_a_wrong_digest_names_both_and_removes_the_file(download, tmp_path):
    """The next run starts anew, because the file and its note are gone."""
    wanted = "ab" * 32
    with pytest.raises(DownloadError) as caught:
        download.fetch(sha256=wanted)
    assert str(caught.value) == (
        f"{download.path} is not the archive that was wanted: its SHA-256 must be {wanted}; it is {DIGEST}. It was "
        "removed; the same command downloads it anew."
    )
    assert list(tmp_path.iterdir()) == []


# -- the disk ---------------------------------------------------------------------------------------------------------


def test_room_is_asked_for_before_the_first_byte(download):
    """When the disk has no room, nothing is written; the caller decides, with the bytes to come and the size."""

    def no_room(coming: int, whole: int) -> None:
        raise CannotStartError(f"{coming} of {whole}")

    with pytest.raises(CannotStartError, match="300000 of 300000"):
        fetch(Part(download.path, DIGEST), Source(download.server.url, DIGEST), no_room, False, download.said.append)
    assert not download.path.exists()


def test_a_known_size_needs_no_server_to_be_refused(download):
    """Where the size is known, a full disk is seen before anybody is asked."""

    def no_room(coming: int, whole: int) -> None:
        raise CannotStartError("no room")

    source = Source(download.server.url, DIGEST, size=len(BODY))
    with pytest.raises(CannotStartError, match="no room"):
        fetch(Part(download.path, DIGEST), source, no_room, False, download.said.append)
    assert download.server.asked == []


DISK_ERRORS = {
    "full": (
        errno.ENOSPC,
        "the disk is full. 1,000 bytes are there. Free some space, then run the same command again.",
    ),
    "broken": (
        errno.EIO,
        "Input/output error. 1,000 bytes are there. When that is put right, run the same command again.",
    ),
}


@pytest.mark.parametrize(("number", "sentence"), DISK_ERRORS.values(), ids=DISK_ERRORS)
def test_a_disk_that_fails_keeps_what_is_there(download, monkeypatch, number, sentence):
    """A full disk is one sentence; what is there stays, and the next run goes on from it."""
    download.stop_at(1000)
    opens = Path.open
    with monkeypatch.context() as patch:
        patch.setattr(
            Path, "open", lambda path, mode="r", **more: Failing(number) if mode == "ab" else opens(path, mode, **more)
        )
        with pytest.raises(DownloadError) as caught:
            download.fetch()
    assert str(caught.value) == f"{download.path} cannot grow: {sentence}"
    assert download.fetch() == BODY


class Failing:
    """A file on a disk that fails."""

    def __init__(self, number: int):
        self.number = number

    def __enter__(self):
        return self

    def __exit__(self, *_) -> None:
        pass

    def write(self, data: bytes) -> None:
        raise OSError(self.number, "Input/output error")


# -- arguments, and who uses the network ------------------------------------------------------------------------------

BAD_SOURCES = {
    "no address": ({"url": "food"}, "--url must be an address that begins with http:// or https://; got 'food'."),
    "a file": (
        {"url": "file:///etc/passwd"},
        "--url must be an address that begins with http:// or https://; got 'file:///etc/passwd'.",
    ),
    "no host": ({"url": "http://"}, "--url must be an address that begins with http:// or https://; got 'http://'."),
    "a port that is none": (
        {"url": "http://h:x/"},
        "--url must be an address that begins with http:// or https://; got 'http://h:x/'.",
    ),
    "a blank": (
        {"url": "http://h/a b"},
        "--url must be an address that begins with http:// or https://; got 'http://h/a b'.",
    ),
    "other letters": (
        {"url": "http://h/\xe9"},
        "--url must be an address that begins with http:// or https://; got 'http://h/\\xe9'.",
    ),
    "a line break": (
        {"url": "http://h/\n"},
        "--url must be an address that begins with http:// or https://; got 'http://h/\\n'.",
    ),
    "short digest": ({"sha256": "abc"}, "--sha256 must have 64 hexadecimal digits; got 'abc'."),
    "no time": ({"timeout_s": 0}, "--timeout must be above 0 and at most 86400 seconds; got 0."),
    "not a number": ({"timeout_s": float("nan")}, "--timeout must be above 0 and at most 86400 seconds; got nan."),
    "endless": ({"timeout_s": float("inf")}, "--timeout must be above 0 and at most 86400 seconds; got inf."),
    "retries": ({"retries": -1}, "--retries must be at least 0; got -1."),
}


@pytest.mark.parametrize(("options", "message"), BAD_SOURCES.values(), ids=BAD_SOURCES)
def test_bad_arguments_are_refused(options, message):
    """Each argument has a rule, and the sentence says it."""
    with pytest.raises(CannotStartError) as caught:
        Source(**{"url": "http://example.org/a", "sha256": DIGEST} | options)
    assert str(caught.value) == message


def test_a_proxy_is_honoured(download, monkeypatch):
    """With http_proxy set, the request goes there, and names the whole address."""
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{download.server.server_port}")
    assert download.fetch("http://no.such.host.invalid/food.tar.gz") == BODY
    assert download.server.asked[0]["path"] == "http://no.such.host.invalid/food.tar.gz"


def network_imports(code: str) -> set[str]:
    """Modules with a network in them that some code imports, at its top or later."""
    found = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.update({node.module} | {f"{node.module}.{alias.name}" for alias in node.names})
    return {name for name in found if any(f"{name}.".startswith(f"{module}.") for module in NETWORK)}


def test_no_other_module_uses_the_network():
    """Only fetch.py reaches another machine; lessons do not. Two more need the socket module, for other things."""
    paths = [path for folder in ("helpers", "data_scripts", "notebooks/_src") for path in (ROOT / folder).rglob("*.py")]
    users = {path.name for path in paths if network_imports(path.read_text(encoding="utf-8"))}
    assert users == {
        "fetch.py",
        "failures.py",  # finds a free port of this machine
        "models.py",  # sets a time limit to Keras' own download of ImageNet weights
    }


@pytest.mark.parametrize("code", ["import socket", "def f():\n  from urllib import request", "import http.client as h"])
def test_network_imports_are_seen(code):
    """The search finds each way to import such a module."""
    assert network_imports(code)


def test_importing_starts_nothing():
    """Importing the scripts opens no connection and writes no file."""
    code = (
        "import sys\n"
        "def refuse(event, args):\n"
        "    writes = event == 'open' and isinstance(args[1], str) and set(args[1]) & set('wax+')\n"
        "    if event.startswith('socket.') or writes: raise SystemExit(f'{event} {args}')\n"
        "sys.dont_write_bytecode = True\n"
        "import tqdm, numpy, multiprocessing\n"
        "sys.addaudithook(refuse)\n"
        "import data_scripts.download_food101\n"
        "print('quiet')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("quiet\n", "")


def test_the_bar_shows_rate_and_remaining_time(download, capsys):
    """A bar of a resumed download begins where it stands."""
    download.stop_at(100_000)
    source = Source(download.server.url, DIGEST)
    fetch(Part(download.path, DIGEST), source, lambda *_: None, True, download.said.append)
    drawn = capsys.readouterr().err
    assert re.search(r"food-101\.tar\.gz:  33%\|[^|]*\| 100k/300k \[", drawn)
    assert re.search(r"food-101\.tar\.gz: 100%\|[^|]*\| 300k/300k \[\d\d:\d\d<00:00, ", drawn)
    assert "checking food-101.tar.gz.part: 100%" in drawn

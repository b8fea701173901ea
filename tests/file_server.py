"""A web server on this machine, for the tests of downloads: it answers well, or as badly as a test wants."""

from __future__ import annotations

import contextlib
import re
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class FileServer(ThreadingHTTPServer):
    """Serves ``body`` under any path, with ranges. ``answers`` are functions of the handler for the next requests."""

    def __init__(self, body: bytes):
        super().__init__(("127.0.0.1", 0), Handler)
        self.body = body
        self.etag = '"one"'
        self.asked: list[dict[str, str]] = []  # the path and the headers of each request
        self.answers: list[Callable[[Handler], None]] = []
        self.released = threading.Event()  # ends the silence of `stalls`

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/food-101.tar.gz"

    def handle_error(self, request, client_address) -> None:
        """Say nothing: the clients of these tests leave early."""


class Handler(BaseHTTPRequestHandler):
    """One request; answers are functions of it."""

    protocol_version = "HTTP/1.1"
    server: FileServer

    def do_GET(self) -> None:  # noqa: N802 - http.server calls it so
        self.server.asked.append({"path": self.path, **self.headers})
        self.close_connection = True
        answer = self.server.answers.pop(0) if self.server.answers else serves
        answer(self)

    def log_message(self, *_) -> None:
        """Say nothing."""

    def head(self, status: int, **headers) -> None:
        self.send_response(status)
        for name, value in headers.items():
            if value is not None:
                self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()


@contextlib.contextmanager
def file_server(body: bytes) -> Iterator[FileServer]:
    """The server at work, in a thread."""
    with FileServer(body) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.released.set()
            server.shutdown()
            thread.join()


# -- answers ----------------------------------------------------------------------------------------------------------


def serves(handler: Handler, stop: int | None = None) -> None:
    """The file, or the rest of it that was asked for, as the standard says; ``stop`` cuts it there."""
    server = handler.server
    start = range_start(handler)
    if start >= len(server.body):
        handler.head(416, Content_Range=f"bytes */{len(server.body)}", Content_Length=0)
        return
    size = len(server.body)
    place = f"bytes {start}-{size - 1}/{size}" if start else None
    handler.head(
        206 if start else 200, Content_Length=size - start, Content_Range=place, ETag=server.etag, Accept_Ranges="bytes"
    )
    handler.wfile.write(server.body[start:stop])


def range_start(handler: Handler) -> int:
    """The first byte asked for; 0 when If-Range names another version of the file."""
    if handler.headers.get("If-Range") not in {None, handler.server.etag}:
        return 0
    return int(re.fullmatch(r"bytes=(\d+)-", handler.headers.get("Range", "bytes=0-"))[1])


def cuts(stop: int) -> Callable[[Handler], None]:
    """The connection is closed after byte ``stop`` of the file."""
    return lambda handler: serves(handler, stop)


def resets(stop: int) -> Callable[[Handler], None]:
    """The connection is reset soon after byte ``stop`` of the file was sent."""

    def answer(handler: Handler) -> None:
        serves(handler, stop)
        handler.wfile.flush()
        handler.server.released.wait(0.2)  # a reset overtakes bytes that were not read yet
        handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        handler.connection.close()

    return answer


def stalls(stop: int | None = None) -> Callable[[Handler], None]:
    """Silence after byte ``stop`` of the file, or before any answer."""

    def answer(handler: Handler) -> None:
        if stop is not None:
            serves(handler, stop)
            handler.wfile.flush()
        handler.server.released.wait(60)

    return answer


def says(status: int, body: bytes = b"", **headers) -> Callable[[Handler], None]:
    """This status with these headers."""

    def answer(handler: Handler) -> None:
        handler.head(status, **({"Content_Length": len(body)} | headers))
        handler.wfile.write(body)

    return answer


def ignores_ranges(handler: Handler) -> None:
    """The whole file, whatever was asked for."""
    handler.head(200, Content_Length=len(handler.server.body), ETag=handler.server.etag)
    handler.wfile.write(handler.server.body)


def without_length(handler: Handler) -> None:
    """The whole file, which ends where the connection ends."""
    handler.head(200, ETag=handler.server.etag)
    handler.wfile.write(handler.server.body)


def endless(handler: Handler) -> None:
    """Bytes without a length and without an end, until nobody listens."""
    handler.head(200)
    while not handler.server.released.is_set():
        handler.wfile.write(bytes(100_000))


def chunked(stop: int | None = None) -> Callable[[Handler], None]:
    """The file in chunks; with ``stop`` without its end."""

    def answer(handler: Handler) -> None:
        handler.head(200, Transfer_Encoding="chunked", ETag=handler.server.etag)
        body = handler.server.body[:stop]
        handler.wfile.write(b"%x\r\n%b\r\n" % (len(body), body))
        if stop is None:
            handler.wfile.write(b"0\r\n\r\n")

    return answer

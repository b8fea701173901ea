"""What child processes of tests run: spawned children import it from here, as they cannot import a test module."""

from __future__ import annotations

import os

from coded import rows_of


def read_rows(reader, rows, connection) -> None:
    """Read ``rows`` and send back (pid, pids of inherited handles, pids of own handles, row numbers in the pixels)."""
    inherited = list(reader._handles)
    with reader:
        pixels = rows_of(reader.read(rows)).tolist()
        connection.send((os.getpid(), inherited, list(reader._handles), pixels))


def serve_batches(sequence, batches, connection) -> None:
    """Make ``(epoch, index)`` batches of a sequence and send back their images and labels."""
    with sequence:
        connection.send([sequence.batch(epoch, index) for epoch, index in batches])

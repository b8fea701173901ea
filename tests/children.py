"""What child processes of tests run: spawned children import it from here, as they cannot import a test module."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time

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


class RaisesOnRow:
    """An augmentation that fails at one row of the coded file."""

    def __init__(self, row: int):
        self.row = row

    def __call__(self, image, rng):
        del rng
        if rows_of(image[None])[0] == self.row:
            raise ZeroDivisionError("nothing to divide")
        return image


class KillsItselfOnRow(RaisesOnRow):
    """An augmentation that ends its worker process at one row, as the system does when memory is short."""

    def __call__(self, image, rng):
        del rng
        if rows_of(image[None])[0] == self.row and multiprocessing.parent_process() is not None:
            os.kill(os.getpid(), signal.SIGKILL)
        return image


class SleepsOnRow(RaisesOnRow):
    """An augmentation that takes a second at one row."""

    def __call__(self, image, rng):
        del rng
        if rows_of(image[None])[0] == self.row:
            time.sleep(1.0)
        return image


class NeedsTwoError(Exception):
    """An error that does not come back from a pickle, as many people write them."""

    def __init__(self, path, why):
        super().__init__(f"{path}: {why}")


def pid_of_worker(item: int) -> int:
    """Process id of the worker that answers."""
    return os.getpid()

"""What child processes of tests run: spawned children import it from here, as they cannot import a test module."""

from __future__ import annotations

import os
import signal
import time

import numpy as np
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
    """An augmentation that ends its worker process at one row: by SIGKILL, as when memory is short, or by itself."""

    def __init__(self, row: int, exit_code: int | None = None):
        super().__init__(row)
        self.parent, self.exit_code = os.getpid(), exit_code

    def __call__(self, image, rng):
        del rng
        if rows_of(image[None])[0] == self.row and os.getpid() != self.parent:
            end_at_once(self.exit_code)
        return image


class SleepsOnRow(RaisesOnRow):
    """An augmentation that takes a second at one row."""

    def __call__(self, image, rng):
        del rng
        if rows_of(image[None])[0] == self.row:
            time.sleep(1.0)
        return image


class HangsOnRow(RaisesOnRow):
    """An augmentation that never comes back from one row."""

    def __call__(self, image, rng):
        del rng
        while rows_of(image[None])[0] == self.row:
            time.sleep(0.01)
        return image


def end_at_once(exit_code: int | None = None) -> None:
    """End this process without a word: by SIGKILL, or with an exit code."""
    if exit_code is None:
        os.kill(os.getpid(), signal.SIGKILL)
    os._exit(exit_code)


class NeedsTwoError(Exception):
    """An error that does not come back from a pickle, as many people write them."""

    def __init__(self, path, why):
        super().__init__(f"{path}: {why}")


def pid_of_worker(item: int) -> int:
    """Process id of the worker that answers."""
    return os.getpid()


def sticks_at_one(item: int, *_) -> int:
    """An augmentation that never comes back, at item 1."""
    while item == 1:
        time.sleep(0.01)
    return item


def filled(item, empty):
    """An answer with arrays in the slot and out of it."""
    images = empty((1000, 100), np.uint8)
    images[:] = item % 251
    labels = empty((3,), np.float32)
    labels[:] = item
    return images, labels, np.array([item, -item]), {"item": item}


def view_of_one_array(item, empty):
    """Parts of one slot array, twice, read-only and transposed."""
    images = empty((10, 20), np.uint8)
    images[:] = np.arange(200, dtype=np.uint8).reshape(10, 20) + item
    frozen = images[2:4]
    frozen.setflags(write=False)
    return images, frozen, images.T

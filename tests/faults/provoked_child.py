"""The part of :mod:`provoked` that runs in children: light, as some have a limit of memory."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import h5py
import numpy as np

from helpers.course.disks import refuse_locks, refuse_writes


def read_in_forks(path: str, wanted: str) -> str:
    """Let four forked workers read through one Python file object; an error with ``wanted`` in it, if there was one."""
    with Path(path).open("rb") as raw:
        data = h5py.File(raw, "r")["train_img"]
        fork = multiprocessing.get_context("fork")
        answers = fork.SimpleQueue()
        workers = [fork.Process(target=_collect_errors, args=(data, number, answers)) for number in range(4)]
        for worker in workers:
            worker.start()
        found = {line for _ in workers for line in answers.get()}
        for worker in workers:
            worker.join()
    return next((line for line in sorted(found) if wanted in line), f"only {sorted(found)}")


def _collect_errors(data, number: int, answers) -> None:
    errors = set()
    for row in np.random.default_rng(number).integers(len(data), size=3000):
        try:
            data[row]
        except OSError as error:
            errors.add(f"OSError: {error}")
    answers.put(errors)


def open_without_locks(path: str, number: int) -> None:
    """Open a file on a disk that answers lock requests with this error number."""
    refuse_locks(number)
    h5py.File(path, "r")


def write_to_a_full_disk(path: str) -> None:
    """Write to a disk that says at each write that it is full."""
    with h5py.File(path, "w") as file:
        data = file.create_dataset("x", (10, 100_000), np.uint8, chunks=(1, 100_000))
        refuse_writes()
        data[:] = 1


def read_whole(path: str) -> None:
    """Read a dataset into one array."""
    with h5py.File(path) as file:
        file["train_img"][:]

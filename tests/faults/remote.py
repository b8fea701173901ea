"""The near end of ``trainer.py``: starts it, sends commands, waits for answers with a limit, kills what it must."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from helpers.batches import BatchSource

HERE = Path(__file__).parent
START_LIMIT_S = 90.0  # importing Keras takes 4 s, and more on a machine that is busy
ERROR_LIMIT_S = 5.0  # from a fault to the error: what the kit promises
NOTHING_LEFT = {"children": [], "threads": [], "memfds": [], "shared_bytes": 0}
BATCH_SIZE = 8


class HangError(Exception):
    """No answer in time; the message ends with the stacks of the trainer."""


class Trainer:
    """A child process in a session of its own that trains on command.

    ``with Trainer() as trainer: trainer.run(file=..., processes=True)`` gives the answer as a dict.
    """

    def __init__(self):
        self._log = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115 - open as long as the trainer
        paths = [str(HERE.parent), os.environ.get("PYTHONPATH", "")]
        self.process = subprocess.Popen(
            [sys.executable, HERE / "trainer.py"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            start_new_session=True,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))},
        )
        self._unread = b""
        self._is_ready = False
        self._is_training = False

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    @property
    def ready(self) -> bool:
        """Whether it waits for a command."""
        return self.alive and self._is_ready and not self._is_training

    def wait_until_ready(self) -> Trainer:
        if not self._is_ready:
            self.wait_for("ready", START_LIMIT_S)
            self._is_ready = True
        return self

    def run(self, limit_s: float = 30, **command) -> dict:
        """Train, and wait for the end of it."""
        self.send(**command)
        return self.wait_for("end", limit_s)

    def send(self, **command) -> None:
        """Let it begin. Commands of ``trainer.train``: file, processes, and what differs from a healthy epoch."""
        self.wait_until_ready()
        self._is_training = True
        self.process.stdin.write((json.dumps(command, default=str) + "\n").encode())
        self.process.stdin.flush()

    def wait_for(self, event: str, limit_s: float, **values) -> dict:
        """The next answer of this kind, with these values. Raises HangError, or EOFError when the trainer is gone."""
        deadline = time.monotonic() + limit_s
        while True:
            answer = self.next_answer(deadline)
            if answer is None:
                raise HangError(f"no {event!r} within {limit_s:g} s. {self._stacks()}")
            self._is_training = self._is_training and answer["event"] != "end"
            if answer["event"] == "end" != event:
                raise HangError(f"training ended before {event!r} {values}: {answer}")
            if answer["event"] == event and all(answer[name] == value for name, value in values.items()):
                return answer

    def next_answer(self, deadline: float) -> dict | None:
        """The next line; None when it is not there in time."""
        while b"\n" not in self._unread:
            ready, _, _ = select.select([self.process.stdout], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                return None
            data = os.read(self.process.stdout.fileno(), 65536)
            if not data:
                raise EOFError(f"the trainer is gone: exit code {self.process.wait()}. {self.log()[-3000:]}")
            self._unread += data
        line, self._unread = self._unread.split(b"\n", 1)
        return json.loads(line)

    def workers(self) -> list[psutil.Process]:
        """The worker processes that live now."""
        return [process for process in self.descendants() if "helpers.worker_process" in _command_line(process)]

    def descendants(self) -> list[psutil.Process]:
        try:
            return [child for child in psutil.Process(self.process.pid).children(recursive=True) if lives(child)]
        except psutil.NoSuchProcess:
            return []

    def wait_for_workers(self, count: int, limit_s: float = 20) -> list[psutil.Process]:
        deadline = time.monotonic() + limit_s
        while len(found := self.workers()) < count:
            if time.monotonic() > deadline:
                raise HangError(f"{len(found)} of {count} workers after {limit_s:g} s. {self._stacks()}")
            time.sleep(0.005)
        return found

    def has_ended(self) -> bool:
        """Whether the training that was sent last is over; its answer is then kept for :meth:`wait_for`."""
        while (answer := self.next_answer(time.monotonic())) is not None:
            if answer["event"] == "end":
                self._unread = (json.dumps(answer) + "\n").encode() + self._unread
                return True
        return False

    def signal(self, number: int, *, group: bool = False) -> None:
        if group:
            os.killpg(self.process.pid, number)
        else:
            os.kill(self.process.pid, number)

    def end(self, exit_code: int, limit_s: float) -> int:
        """Let it call ``sys.exit``; the exit code it really ends with."""
        self.send(exit=exit_code)
        return self.process.wait(limit_s)

    def log(self) -> str:
        """What the trainer and its workers wrote to stdout and stderr."""
        self._log.seek(0)
        return self._log.read()

    def close(self) -> None:
        """End the trainer and what is left of it."""
        left = self.descendants()
        if self.alive:
            self.process.kill()
        self.process.wait()
        for process in left:
            if lives(process):
                process.kill()
        self.process.stdin.close()
        self.process.stdout.close()
        self._log.close()

    def __enter__(self) -> Trainer:
        return self

    def __exit__(self, *exc_info) -> None:
        self.close()

    def _stacks(self) -> str:
        if self.alive and self._is_ready:
            self.signal(signal.SIGUSR1)
            time.sleep(0.3)
        return f"Stacks and log:\n{self.log()[-6000:]}"


def lives(process: psutil.Process) -> bool:
    """Whether it runs; a zombie does not."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def still_there(processes: list[psutil.Process], limit_s: float) -> list[str]:
    """Command lines of the processes that are alive when ``limit_s`` are over; returns at once when all are gone."""
    deadline = time.monotonic() + limit_s
    while any(map(lives, processes)) and time.monotonic() < deadline:
        time.sleep(0.02)
    return [f"{process.pid} {_command_line(process)[:100]}" for process in processes if lives(process)]


def named_segments(processes: list[psutil.Process]) -> set[Path]:
    """Files in /dev/shm that these processes map: such a name would outlive a killed process."""
    found = set()
    for process in processes:
        with contextlib.suppress(psutil.Error):
            found.update(Path(part.path) for part in process.memory_maps() if part.path.startswith("/dev/shm/"))
    return found


def place_of(file: Path, batch: int) -> tuple[str, int]:
    """Words that an error has for a batch of epoch 0 as the trainer makes it, and a row in the middle of it."""
    source = BatchSource(file, "train", BATCH_SIZE)
    row = int(source.rows_of(0, batch)[BATCH_SIZE // 2])
    return source.describe_batch(0, batch), row


def moment_of(stamp: Path) -> tuple[float, int]:
    """When a fault happened (seconds of the monotonic clock), and in which process."""
    seconds, pid = stamp.read_text().split()
    return float(seconds), int(pid)


def trains_well(trainer: Trainer, file: Path, **command) -> bool:
    """Whether the next call in the same process trains on exactly the right batches and leaves nothing behind."""
    answer = trainer.run(file=file, **command)
    told = (answer["error"], answer["wrong"], answer["steps"], answer["left"])
    assert told == (None, [], answer["all_steps"], NOTHING_LEFT), answer
    return True


def _command_line(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""

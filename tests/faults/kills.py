"""Kills at random moments while a model trains through ``fit_generator``, and what came of it, as a table.

    python tests/faults/kills.py --kills 100 --seed 0 --json kills.json

Each kill hits a training that feeds from worker processes (an interrupt: sometimes from threads), at a moment between
its first line and its end: a worker by SIGKILL, SIGSEGV or SIGSTOP (it lives, and does not answer), the parent by
SIGINT (alone, or with its group) or by SIGKILL. Unless the parent was killed, the next training runs in the same
process, and every batch of every training is compared with what it should be. The exit code is 1 when anything went
wrong.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import random
import signal
import statistics
import sys
import tempfile
import time
from pathlib import Path

import psutil
from remote import (
    ERROR_LIMIT_S,
    NOTHING_LEFT,
    HangError,
    Trainer,
    named_segments,
    still_there,
)

STALL_S = 1.0
LONGEST_DELAY_S = 2.5  # a training takes about as long: some kills come as the pool starts, some as it ends
HANG_S = 30.0
WORKER_KINDS = {"worker SIGKILL": signal.SIGKILL, "worker SIGSEGV": signal.SIGSEGV, "worker SIGSTOP": signal.SIGSTOP}
KINDS = [*WORKER_KINDS, "parent SIGINT", "group SIGINT", "parent SIGKILL"]
COLUMNS = ["kills", "clear", "ended", "median s", "max s", "hangs", "wrong", "unclear", "late", "leaks", "orphans"]


@dataclasses.dataclass
class Kill:
    """One kill and what came of it; ``seconds`` is from the kill to the error, or to the end of the last worker."""

    kind: str
    delay_s: float
    processes: bool
    seconds: float = 0.0
    error: str | None = None
    told: str = ""
    ended_before: bool = False  # training ended with all steps: the kill came too late to matter
    hang: bool = False
    wrong_batches: int = 0
    unclear: bool = False  # not the error that it should be, or without batch, dataset and file
    leaks: int = 0
    orphans: int = 0

    @property
    def limit_s(self) -> float:
        return ERROR_LIMIT_S + (STALL_S if self.kind == "worker SIGSTOP" else 0.0)

    @property
    def late(self) -> bool:
        return not self.ended_before and self.seconds > self.limit_s

    @property
    def faulty(self) -> bool:
        return bool(self.hang or self.wrong_batches or self.unclear or self.late or self.leaks or self.orphans)


class Killer:
    """Trains and kills; keeps one trainer in use and one being started, as importing Keras takes seconds."""

    def __init__(self, file: Path, seed: int):
        self._file = file
        self._chance = random.Random(seed)
        self._trainer = Trainer()
        self._next: Trainer | None = None

    def make_file(self) -> None:
        self._trainer.run(make=self._file)

    def kill(self, kill: Kill) -> None:
        if kill.kind == "parent SIGKILL" and self._next is None:
            self._next = Trainer()
        command = {"file": self._file, "epochs": 9, "step_s": 0.02, "processes": kill.processes}
        if kill.kind == "worker SIGSTOP":
            command["stall_timeout_s"] = STALL_S
        self._trainer.send(**command)
        time.sleep(kill.delay_s)
        try:
            if kill.kind == "parent SIGKILL":
                self._kill_parent(kill)
            else:
                self._hit(kill)
        except HangError as error:
            kill.hang, kill.told = True, str(error)
            self._replace()
        except EOFError as error:  # the training process itself is gone
            kill.unclear, kill.told = True, str(error)
            self._replace()

    def healthy(self) -> bool:
        """Whether the trainer that lived through all this trains well."""
        answer = self._trainer.run(file=self._file, processes=True)
        return (answer["error"], answer["wrong"], answer["left"]) == (None, [], NOTHING_LEFT)

    def close(self) -> None:
        for trainer in (self._trainer, self._next):
            if trainer is not None:
                trainer.close()

    def _kill_parent(self, kill: Kill) -> None:
        family = self._trainer.descendants()
        names = named_segments([psutil.Process(self._trainer.process.pid), *family])
        killed = time.monotonic()
        self._trainer.signal(signal.SIGKILL)
        kill.orphans = len(still_there(family, ERROR_LIMIT_S))
        kill.seconds = time.monotonic() - killed
        kill.leaks = sum(name.exists() for name in names)
        self._replace()

    def _hit(self, kill: Kill) -> None:
        if kill.kind in WORKER_KINDS:
            worker = self._some_worker()
            where = f"(process {worker.pid})" if worker else ""
            killed = time.monotonic()
            if worker:
                worker.send_signal(WORKER_KINDS[kill.kind])
        else:
            where = ""
            killed = time.monotonic()
            self._trainer.signal(signal.SIGINT, group=kill.kind == "group SIGINT")
        self._judge(kill, self._trainer.wait_for("end", HANG_S), killed, where)

    def _some_worker(self) -> psutil.Process | None:
        """One of the two workers, once they live; None when training ends before that."""
        deadline = time.monotonic() + HANG_S
        while time.monotonic() < deadline:
            workers = self._trainer.workers()
            if len(workers) == 2:
                return self._chance.choice(workers)
            if self._trainer.has_ended():
                return None
            time.sleep(0.005)
        raise HangError(f"no two workers within {HANG_S} s")

    def _judge(self, kill: Kill, answer: dict, killed: float, worker: str) -> None:
        kill.seconds = answer["at"] - killed
        kill.error = answer["error"]
        kill.told = answer.get("message", "")
        kill.wrong_batches = len(answer["wrong"])
        kill.leaks = len(answer["left"]["memfds"]) + bool(answer["left"]["shared_bytes"])
        kill.orphans = len(answer["left"]["children"]) + len(answer["left"]["threads"])
        if answer["error"] is None:
            kill.ended_before = answer["steps"] == answer["all_steps"]
            kill.unclear = not kill.ended_before
        elif kill.kind in WORKER_KINDS:
            error = "WorkerStalledError" if kill.kind == "worker SIGSTOP" else "WorkerDiedError"
            parts = [worker, " of epoch ", "(rows ", f" of train_img in {self._file}"]
            parts += [] if kill.kind == "worker SIGSTOP" else [kill.kind.split()[1]]
            kill.unclear = kill.error != error or not all(part in kill.told for part in parts)
        else:
            kill.unclear = kill.error != "KeyboardInterrupt"

    def _replace(self) -> None:
        self._trainer.close()
        self._trainer = self._next or Trainer()
        self._next = None


def planned(count: int, seed: int) -> list[Kill]:
    """``count`` kills, each kind as often as the others, at random moments and in random order."""
    chance = random.Random(seed)
    kinds = (KINDS * (count // len(KINDS) + 1))[:count]
    chance.shuffle(kinds)
    return [
        Kill(kind, chance.uniform(0, LONGEST_DELAY_S), "SIGINT" not in kind or chance.random() < 0.5) for kind in kinds
    ]


def table(kills: list[Kill]) -> str:
    """One line a kind, and one for all."""
    lines = [f"{'':16}" + "".join(f"{name:>9}" for name in COLUMNS)]
    for kind in [*KINDS, "all"]:
        lines.append(
            f"{kind:16}" + "".join(f"{cell:>9}" for cell in _cells([k for k in kills if kind in (k.kind, "all")]))
        )
    return "\n".join(lines)


def _cells(kills: list[Kill]) -> list:
    told = [kill.seconds for kill in kills if not kill.ended_before and not kill.hang]
    return [
        len(kills),
        sum(not kill.faulty and not kill.ended_before for kill in kills),
        sum(kill.ended_before for kill in kills),
        f"{statistics.median(told):.2f}" if told else "-",
        f"{max(told):.2f}" if told else "-",
        sum(kill.hang for kill in kills),
        sum(kill.wrong_batches for kill in kills),
        sum(kill.unclear for kill in kills),
        sum(kill.late for kill in kills),
        sum(kill.leaks for kill in kills),
        sum(kill.orphans for kill in kills),
    ]


def run(count: int, seed: int) -> tuple[list[Kill], bool]:
    """All kills, and whether training was healthy after the last one."""
    kills = planned(count, seed)
    with tempfile.TemporaryDirectory() as folder:
        killer = Killer(Path(folder) / "coded.h5", seed)
        try:
            killer.make_file()
            for kill in kills:
                killer.kill(kill)
            return kills, killer.healthy()
        finally:
            killer.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="write every kill there")
    options = parser.parse_args()
    start = time.monotonic()
    kills, healthy = run(options.kills, options.seed)
    print(table(kills))  # noqa: T201 - a command line program
    print(f"training afterwards is healthy: {healthy}; {time.monotonic() - start:.0f} s in all")  # noqa: T201
    for kill in filter(lambda kill: kill.faulty, kills):
        print(kill)  # noqa: T201
    if options.json:
        options.json.write_text(json.dumps([dataclasses.asdict(kill) for kill in kills], indent=1))
    return int(not healthy or any(kill.faulty for kill in kills))


if __name__ == "__main__":
    sys.exit(main())

"""Damaged HDF5 files through inspector and sequence, and what came of each, as a table.

    python tests/faults/damaged_files.py --files 10000 --seed 0 --json damaged.json

Good files of every storage (tests/faults/damage.py) are damaged at random: flipped bytes, zeroed or swapped blocks, cut
ends, numbers of the headers blown up, places exchanged. Each goes through `inspect_file(verify=True)` and through all
batches of an `HDF5Sequence`, in a child process with limits of time and memory. Good ends are

    right    the pictures and labels of the good file
    error    an error of the kit that names the file
    pixel    a byte of a picture changed that has no checksum in the file; if it has a CRC-32, the inspector found it
    place    the address of a picture changed, in an index that has no checksum (before HDF5 1.10), and leads to bytes
             that nothing else uses; CRC-32 as above
    label    a byte of a label changed: another class of those that there are
    names    a byte of a class name changed

and bad ends a wrong picture or label (where a checksum or the index could have told), a file that the inspector praises
although the sequence refuses it (missed), another error (unclear), memory without bound, a hang and a crash. The exit
code is 1 when there was one. `--only 4711` does one file of the run again and says what happened.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tqdm import tqdm

HERE = Path(__file__).parent
FILE_LIMIT_S = 60.0  # a file of 100 kB takes 0.03 s; one on which HDF5 goes round in a circle, 5 s of CPU time
START_LIMIT_S = 120.0  # importing Keras on a busy machine
GOOD = ["right", "error", "pixel", "place", "label", "names"]
BAD = ["wrong", "missed", "unclear", "memory", "hang", "crash"]


@dataclasses.dataclass
class Outcome:
    """What came of one damaged file."""

    number: int
    base: str = ""
    kind: str = ""
    end: str = ""  # one of GOOD or BAD
    stage: str = ""  # where: inspect, open, read
    told: str = ""
    code: int | None = None  # the inspector's exit code
    contained: bool = False  # HDF5 did not survive it, in the child that looks first
    seconds: float = 0.0
    peak_bytes: int = 0


# -- the parent -------------------------------------------------------------------------------------------------------


class Runner:
    """Gives files to a child, one at a time, and starts another child when it dies or hangs."""

    def __init__(self, seed: int):
        self._seed = seed
        self._folder = tempfile.TemporaryDirectory(prefix="damaged-")
        self._child: subprocess.Popen | None = None
        self.starts = 0

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *exc_info) -> None:
        self._end()
        self._folder.cleanup()

    def run(self, number: int) -> Outcome:
        """Put one file through; whatever happens to the child is its outcome."""
        if self._child is None:
            self._start()
        outcome = Outcome(number)
        self._child.stdin.write(f"{number}\n".encode())
        self._child.stdin.flush()
        deadline = time.monotonic() + FILE_LIMIT_S
        while True:
            message = self._listen(deadline - time.monotonic())
            if message is None:
                outcome.end, outcome.told = self._how_it_ended()
                return outcome
            if "outcome" in message:
                return Outcome(**message["outcome"])
            if "begin" in message:
                outcome = Outcome(**message["begin"])
            outcome.stage = message.get("stage", "")

    def _start(self) -> None:
        self.starts += 1
        command = [sys.executable, "-W", "error::RuntimeWarning", str(HERE / "damaged_child.py")]
        paths = os.pathsep.join([str(HERE.parent), os.environ.get("PYTHONPATH", "")])
        quiet = {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
        self._errors = (Path(self._folder.name) / "errors.txt").open("w+")
        self._child = subprocess.Popen(
            [*command, self._folder.name, str(self._seed)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env={**os.environ, "PYTHONPATH": paths, **quiet},
        )
        self._heard = b""
        if self._listen(START_LIMIT_S) is None:
            end, told = self._how_it_ended()
            raise RuntimeError(f"the child did not start: {end}, {told}")

    def _listen(self, seconds: float) -> dict | None:
        """The next message; None when there is none in time, or no child any more."""
        deadline = time.monotonic() + seconds
        while b"\n" not in self._heard:
            ready, _, _ = select.select([self._child.stdout], [], [], max(0, deadline - time.monotonic()))
            more = os.read(self._child.stdout.fileno(), 2**16) if ready else b""
            if not more:
                return None
            self._heard += more
        line, self._heard = self._heard.split(b"\n", 1)
        return json.loads(line)

    def _how_it_ended(self) -> tuple[str, str]:
        hangs = False
        try:
            self._child.wait(2)
        except subprocess.TimeoutExpired:
            hangs = True
        code = self._child.poll()
        self._end()
        said = self._last_words
        if hangs:
            return "hang", said
        return "crash", f"{signal.Signals(-code).name if code < 0 else f'exit code {code}'}: {said}"

    def _end(self) -> None:
        if self._child is None:
            return
        if self._child.poll() is None:
            self._child.send_signal(signal.SIGABRT)  # faulthandler says where it is
            try:
                self._child.wait(5)
            except subprocess.TimeoutExpired:
                self._child.kill()
        self._child.wait()
        self._child.stdin.close()
        self._child.stdout.close()
        self._errors.seek(0)
        self._last_words = self._errors.read()[-2500:]
        self._errors.close()
        self._child = None


def table(outcomes: list[Outcome]) -> str:
    """A line for each kind of damage and one for all, a column for each end."""
    kinds = sorted({outcome.kind for outcome in outcomes})
    counts = collections.Counter((outcome.kind, outcome.end) for outcome in outcomes)
    lines = [f"{'':24}{'files':>8}" + "".join(f"{end:>9}" for end in (*GOOD, *BAD)) + f"{'max s':>9}{'max MB':>9}"]
    for kind in [*kinds, "all"]:
        these = [outcome for outcome in outcomes if kind in (outcome.kind, "all")]
        cells = [sum(counts[each, end] for each in kinds if kind in (each, "all")) for end in (*GOOD, *BAD)]
        slowest = max((outcome.seconds for outcome in these), default=0)
        largest = max((outcome.peak_bytes for outcome in these), default=0)
        lines.append(
            f"{kind:24}{len(these):>8}"
            + "".join(f"{cell:>9}" for cell in cells)
            + f"{slowest:>9.2f}{largest / 1e6:>9.0f}"
        )
    return "\n".join(lines)


def _noted(outcome: Outcome, path: Path | None) -> Outcome:
    if path:
        with path.open("a") as file:
            file.write(json.dumps(dataclasses.asdict(outcome)) + "\n")
    return outcome


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, help="the number of one file of the run")
    parser.add_argument("--json", type=Path, help="write every outcome there, one a line")
    options = parser.parse_args()
    if options.json:
        options.json.write_text("")
    start = time.monotonic()
    numbers = range(options.files) if options.only is None else [options.only]
    with Runner(options.seed) as runner:
        outcomes = [_noted(runner.run(number), options.json) for number in tqdm(numbers, unit="file")]
    bad = [outcome for outcome in outcomes if outcome.end in BAD]
    for outcome in outcomes if options.only is not None else bad:
        print(outcome)  # noqa: T201 - a command line program
    print(table(outcomes))  # noqa: T201
    took = time.monotonic() - start
    contained = sum(outcome.contained for outcome in outcomes)
    print(f"HDF5 itself did not survive {contained} of them, in a child process that looked first.")  # noqa: T201
    print(f"{len(outcomes)} files in {took:.0f} s, {runner.starts} child processes; bad: {len(bad)}")  # noqa: T201
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())

"""Does the cost model of lesson 08 hold? Seconds of a shuffled epoch, foretold from a small file, against large ones.

::

    python tests/benchmarks/cost_model.py [--gigabytes 1 4] [--folder DIR] [--json FILE]

The model: an epoch reads every byte once, in one read a row, at the rate that a file of a quarter of a gigabyte was
read at. Checked from the page cache and, where Linux can drop a file from it, from the disk; also with the rows dealt
out over four files. Rows come in random order, in batches of 64, by helpers.RowReader on one thread. Exit status 1 when
a prediction is off by more than a factor of 2, 2 when there is no room.
"""

from __future__ import annotations

import argparse
import datetime
import json
import shutil
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from feed import machine
from feeding.data import IMAGE_BYTES, SHAPE, photographs
from scaling.page_cache import drop_pages, read_through
from scaling.report import CannotRunError

from helpers import HDF5Writer, RowReader

FACTOR = 2.0
PROBE_GB = 0.25
SHARDS = 4
_BATCH, _ROUNDS = 64, 3
_CACHES = {"warm": read_through, "cold": drop_pages}


@dataclass(frozen=True)
class Result:
    """One epoch: what was foretold and what it took."""

    gigabytes: float
    cache: str
    files: int
    predicted_s: float
    measured_s: float

    @property
    def ok(self) -> bool:
        return 1 / FACTOR <= self.measured_s / self.predicted_s <= FACTOR

    def __str__(self) -> str:
        rate = self.gigabytes * 1000 / self.measured_s
        return (
            f"{self.gigabytes:5.2f} GB, {self.cache}, {self.files} file{'s' * (self.files > 1):1}  foretold "
            f"{self.predicted_s:6.2f} s  took {self.measured_s:6.2f} s ({self.measured_s / self.predicted_s:.2f} of "
            f"it), {rate:,.0f} MB/s"
        )


class Shards:
    """Files that hold the rows 0, 1, 2, ... in turn, read as one."""

    def __init__(self, folder: Path, gigabytes: float, count: int):
        self.rows = int(gigabytes * 1e9 / IMAGE_BYTES) // count * count
        self.paths = [folder / f"{gigabytes:g}-{number}-of-{count}.h5" for number in range(count)]
        pictures = photographs(4)
        for path in self.paths:
            with HDF5Writer(path, SHAPE, ["noise"]) as writer:
                for start in range(0, self.rows // count, _BATCH):
                    few = np.arange(start, min(start + _BATCH, self.rows // count))
                    writer.append("train", pictures[few % len(pictures)], np.zeros(len(few), int))

    @property
    def gigabytes(self) -> float:
        return self.rows * IMAGE_BYTES / 1e9

    def epoch_s(self, cache: str, seed: int) -> float:
        """Seconds to read all rows in random order; the files are put into the page cache, or out of it, before."""
        for path in self.paths:
            _CACHES[cache](path)
        order, buffer = np.random.default_rng(seed).permutation(self.rows), np.empty((_BATCH, *SHAPE), np.uint8)
        readers = [RowReader(path, "train_img") for path in self.paths]
        try:
            start = time.perf_counter()
            for batch in range(0, self.rows, _BATCH):
                rows = order[batch : batch + _BATCH]
                first = 0
                for number, reader in enumerate(readers):
                    mine = rows[rows % len(readers) == number] // len(readers)
                    reader.read(mine, out=buffer[first : first + len(mine)])
                    first += len(mine)
            return time.perf_counter() - start
        finally:
            for reader in readers:
                reader.close()

    def remove(self) -> None:
        for path in self.paths:
            path.unlink()


def main(arguments: list[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="cost-", dir=options.folder) as folder:
        needed, free = 1e9 * (PROBE_GB + max(options.gigabytes)), shutil.disk_usage(folder).free
        if free < needed:
            print(f"the files need {needed / 1e9:.1f} GB at a time and {free / 1e9:.1f} GB are free in {folder}. Lower "
                  "--gigabytes, or name another disk by --folder.", file=sys.stderr)  # fmt: skip
            return 2
        results = measure(Path(folder), options.gigabytes)
    if options.json:
        stored = {
            "date": datetime.date.today().isoformat(),
            "machine": machine(),
            "results": list(map(asdict, results)),
        }
        options.json.write_text(json.dumps(stored, indent=1) + "\n", encoding="utf-8")
    wrong = [result for result in results if not result.ok]
    print(f"{len(wrong)} of {len(results)} predictions are off by more than a factor of {FACTOR:g}")
    return 1 if wrong else 0


def measure(folder: Path, sizes: list[float]) -> list[Result]:
    """All sizes, caches and numbers of files; each line is printed as it is known."""
    probe, results = Shards(folder, PROBE_GB, 1), []
    for gigabytes in sizes:
        for count in (1, SHARDS):
            shards = Shards(folder, gigabytes, count)
            for cache in _CACHES:
                try:
                    results.append(_compare(probe, shards, cache))
                except CannotRunError as error:
                    print(f"left out: {cache}, {error}")
                    continue
                print(results[-1], flush=True)
            shards.remove()
    return results


def _compare(probe: Shards, shards: Shards, cache: str) -> Result:
    """Medians of rounds in which both take turns: other programs slow both down."""
    rounds = [(probe.epoch_s(cache, seed), shards.epoch_s(cache, seed)) for seed in range(_ROUNDS)]
    per_gb, measured = (
        np.median([small / probe.gigabytes for small, _ in rounds]),
        np.median([big for _, big in rounds]),
    )
    size = round(shards.gigabytes, 3)
    return Result(size, cache, len(shards.paths), round(float(per_gb * size), 3), round(float(measured), 3))


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    made.add_argument("--gigabytes", type=_positive, nargs="+", default=[1.0, 4.0], help="sizes (default: 1 4)")
    made.add_argument("--folder", type=Path, help="where the temporary files go: the disk to measure")
    made.add_argument("--json", type=Path, metavar="FILE", help="write all results there")
    return made


def _positive(text: str) -> float:
    number = float(text)
    if not number > 0:
        raise argparse.ArgumentTypeError(f"must be above 0; got {number}.")
    return number


if __name__ == "__main__":
    sys.exit(main())

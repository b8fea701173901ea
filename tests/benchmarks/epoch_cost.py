"""Does the inspector foretell what a shuffled epoch costs? Predicted and really read, for nine ways to store images.

::

    python tests/benchmarks/epoch_cost.py [--images N] [--side PIXELS] [--folder DIR] [--json FILE]

All rows are read once in random order, in batches of 64, by helpers.RowReader. The system counts the bytes and calls
of its reads (/proc/self/io, Linux). Chunks that are unpacked are counted one by one: those read past HDF5 in a wrapper
of the inflate function, those read by HDF5 in a second epoch through a Python file that notes every read, since HDF5
unpacks a chunk whenever it reads one. Exit status 1 when a prediction is off by more than a factor of 2.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from unittest import mock

import h5py
import numpy as np

from helpers import HDF5Writer, RowReader, direct, reader
from helpers.direct import file_state
from helpers.epoch_cost import BATCH_ROWS, EpochCost, epoch_cost
from helpers.heap import locate_heap
from helpers.places import find_places

FACTOR = 2.0
FIELDS = {"bytes_read": "bytes", "reads": "reads", "inflations": "unpacked"}
_LARGE_CHUNK_ROWS = 64
JPEG = "JPEG bytes, by HDF5Writer"


@dataclass(frozen=True)
class Result:
    """One file: what was foretold and what was read."""

    name: str
    file_bytes: int
    predicted: dict[str, int]
    measured: dict[str, int]

    @property
    def ratios(self) -> dict[str, float]:
        """Predicted for each measured one; 1 where both are 0."""
        return {key: _ratio(self.predicted[key], self.measured[key]) for key in FIELDS}

    @property
    def ok(self) -> bool:
        return all(1 / FACTOR <= ratio <= FACTOR for ratio in self.ratios.values())


def ways(n: int, shape: tuple[int, int, int]) -> dict[str, dict]:
    """Options of ``create_dataset`` for each way to store ``n`` images."""
    large = min(n, _LARGE_CHUNK_ROWS)
    return {
        "one image a chunk": {"chunks": (1, *shape)},
        "contiguous": {},
        "one image a chunk, gzip": {"chunks": (1, *shape), "compression": "gzip"},
        "chunks=True": {"chunks": True},
        "chunks=True, gzip": {"chunks": True, "compression": "gzip"},
        "large chunks": {"chunks": (large, *shape)},
        "large chunks, gzip": {"chunks": (large, *shape), "compression": "gzip"},
        "large chunks, shuffle and gzip": {"chunks": (large, *shape), "compression": "gzip", "shuffle": True},
        JPEG: {"storage": "jpeg"},
    }


def make_file(path: Path, n: int, shape: tuple[int, int, int], options: dict) -> Path:
    """A file of ``n`` images that gzip packs to about half, like photographs stored without loss."""
    chance = np.random.default_rng(0)
    if options.get("storage") == "jpeg":
        with HDF5Writer(path, shape, ["noise"], storage="jpeg") as writer:
            for _ in range(n):
                writer.append("train", chance.integers(0, 16, (1, *shape), np.uint8), [0])
        return path
    with h5py.File(path, "w") as file:
        data = file.create_dataset("train_img", (n, *shape), np.uint8, **options)
        for start in range(0, n, _LARGE_CHUNK_ROWS):
            rows = min(_LARGE_CHUNK_ROWS, n - start)
            data[start : start + rows] = chance.integers(0, 16, (rows, *shape), np.uint8)
    return path


def compare(name: str, path: Path) -> Result:
    """Foretell and measure one file."""
    with h5py.File(path, "r") as file:
        data = file["train_img"]
        places = find_places(data, path, "train_img")
        state = file_state(path.stat())
        rows = locate_heap(data, places, path, "train_img", state) if data.ndim == 1 else None
        predicted = epoch_cost(data, places, rows, path)
        packed = data.compression is not None
    return Result(name, path.stat().st_size, _numbers(predicted), measure(path, packed))


def measure(path: Path, packed: bool) -> dict[str, int]:
    """Bytes, reads and inflations of one epoch over ``train_img``."""
    inflations = 0

    def inflate(*arguments):
        nonlocal inflations
        inflations += 1
        return inflate_really(*arguments)

    inflate_really = direct.deflate.zlib_decompress
    with RowReader(path, "train_img") as rows, mock.patch.object(direct.deflate, "zlib_decompress", inflate):
        rows.read([0])  # opens the file; HDF5 reads its headers
        before, inflations = io_counts(), 0
        _read_epoch(rows)
        after = io_counts()
        is_direct = rows.direct
    if packed and not is_direct:
        inflations = _chunks_fetched(path)
    return {"bytes_read": after[0] - before[0], "reads": after[1] - before[1], "inflations": inflations}


def _read_epoch(rows: RowReader) -> None:
    order = np.random.default_rng(7).permutation(len(rows))
    for start in range(0, len(order), BATCH_ROWS):
        rows.read(order[start : start + BATCH_ROWS])


def io_counts() -> tuple[int, int]:
    """Bytes and calls of all reads of this process so far."""
    fields = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(fields["rchar"]), int(fields["syscr"])


def _chunks_fetched(path: Path) -> int:
    """How often HDF5 fetches a chunk in an epoch; each time it unpacks it."""
    with h5py.File(path, "r") as file:
        places = set()
        file["train_img"].id.chunk_iter(lambda chunk: places.add(chunk.byte_offset))
    fetched: list[int] = []
    with _NotingFile(path, fetched) as noted, RowReader(path, "train_img") as rows:
        file = h5py.File(noted, "r")  # rows closes it
        with mock.patch.object(reader, "open_file", return_value=file):
            _read_epoch(rows)
    return sum(place in places for place in fetched)


class _NotingFile(io.FileIO):
    """A file that notes from where it is read."""

    def __init__(self, path: Path, places: list[int]):
        super().__init__(path, "r")
        self._places = places

    def readinto(self, memory) -> int:
        self._places.append(self.tell())
        return super().readinto(memory)


def _numbers(cost: EpochCost) -> dict[str, int]:
    return {key: getattr(cost, key) for key in FIELDS}


def _ratio(predicted: int, measured: int) -> float:
    return 1.0 if predicted == measured else predicted / measured if measured else float("inf")


def table(results: list[Result]) -> str:
    """The results for a terminal: predicted, measured and their ratio."""
    head = "".join(f"{word + ', foretold':>22}{'measured':>16}{'ratio':>7}" for word in FIELDS.values())
    lines = [f"{'':<32}{head}"]
    for result in results:
        cells = (f"{result.predicted[key]:>22,}{result.measured[key]:>16,}{result.ratios[key]:>7.2f}" for key in FIELDS)
        lines.append(f"{result.name:<32}{''.join(cells)}")
    return "\n".join(lines)


def run(folder: Path, n: int, side: int) -> list[Result]:
    """All ways to store images, one file after the other; each is removed before the next is made."""
    results = []
    for name, options in ways(n, (side, side, 3)).items():
        path = make_file(folder / "images.h5", n, (side, side, 3), options)
        results.append(compare(name, path))
        path.unlink()
    return results


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    if not Path("/proc/self/io").exists():
        print("this needs Linux: /proc/self/io counts what a process reads", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="epoch-cost-", dir=options.folder) as folder:
        results = run(Path(folder), options.images, options.side)
    print(table(results))
    wrong = [result.name for result in results if not result.ok]
    far = f"off by more than a factor of {FACTOR:g}: {', '.join(wrong)}"
    print(far if wrong else f"all within a factor of {FACTOR:g}")
    if options.json:
        stored = {"images": options.images, "side": options.side, "files": [asdict(result) for result in results]}
        options.json.write_text(json.dumps(stored, indent=1) + "\n", encoding="utf-8")
    return 1 if wrong else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=1000, help="images a file (default: 1000)")
    parser.add_argument("--side", type=int, default=160, help="their height and width in pixels (default: 160)")
    parser.add_argument("--folder", type=Path, help="where the files are made: images x side x side x 3 bytes")
    parser.add_argument("--json", type=Path, help="write the results to this file")
    return parser


if __name__ == "__main__":
    sys.exit(main())

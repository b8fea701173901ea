"""How fast is Keras fed? Prints all figures of README's speed table, each as a ratio within this run.

::

    python tests/benchmarks/feed.py [--images N] [--repeat R] [--only NAME ...] [--json FILE] [--chart FILE]
    python tests/benchmarks/feed.py --readme       # bring README's tables up to feed.json and scale.json

The kit's HDF5Sequence, as fit_generator feeds it, against Keras fed one constant batch, the generators of the
best-known answers, Keras' own processes, tf.data, TFRecord, and PyTorch's DataLoader and Grain where they are
installed. All read the same images, 299x299x3, from files in the page cache, shuffled, in batches of 64. Every row must
come exactly once an epoch with its own label, which is read back from the pixels within the time that is measured.

The contenders take turns in random order, R rounds; a figure is the median of its ratios within a round. Exit status 1
when a figure is not reached, 2 when the arguments or the room on the disk are not right.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import importlib.metadata
import json
import os
import platform
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import scaling.figures
from feeding import figures
from feeding.data import BATCH, IMAGE_BYTES, Files, checked_count, disk_bytes, make_files, warm

HERE = Path(__file__).parent
STORED, STORED_LARGE, README = HERE / "feed.json", HERE / "scale.json", HERE.parents[1] / "README.md"
PACKAGES = ("h5py", "numpy", "opencv-python-headless", "tensorflow", "keras", "torch", "grain")
_PROCESS_BYTES = 3e9  # of this process and the workers of a contender, measured
DELAYS = "delays"  # what --only calls the figures in seconds


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    if options.readme:
        return update_readme()
    with tempfile.TemporaryDirectory(prefix="feed-", dir=options.folder) as folder:
        if fault := _too_small(Path(folder), options.images):
            print(fault, file=sys.stderr)
            return 2
        print(needs(options.images), flush=True)
        result = measure(make_files(Path(folder), options.images), options)
    print(figures.rates_table(result["rates"], result["words"]))
    print(figures.table_of([figures.Figure(**figure) for figure in result["figures"]]))
    store(result, options)
    return verdict(result)


def measure(files: Files, options: argparse.Namespace) -> dict:
    """All rounds; what is stored as JSON."""
    from feeding.contenders import Bench

    bench = Bench(files)
    chosen, left_out = _chosen(bench, options.only)
    rates: figures.Rates = {figures.rate_key(contender.work, contender.name): [] for contender in chosen}
    seconds: dict[str, list[float]] = {}
    start = time.perf_counter()
    for number in range(options.repeat):
        warm(files)
        _rates_round(chosen, rates, random.Random(number))
        if options.only is None or DELAYS in options.only:
            _delays_round(bench, seconds)
        print(f"round {number + 1} of {options.repeat}, {time.perf_counter() - start:.0f} s, {_load()}", flush=True)
    return {
        "date": datetime.date.today().isoformat(),
        "machine": machine(),
        "images": files.n,
        "rounds": options.repeat,
        "left_out": left_out,
        "words": {figures.rate_key(contender.work, contender.name): contender.words for contender in chosen},
        "rates": {key: [round(rate, 1) for rate in values] for key, values in rates.items()},
        "seconds": {key: [round(second, 4) for second in values] for key, values in seconds.items()},
        "figures": [dataclasses.asdict(figure) for figure in figures.figures(rates, seconds)],
    }


def machine() -> dict:
    """Cores, processor, versions: what somebody needs who compares."""
    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "cpu": _cpu(),
        "system": platform.system(),
        "python": platform.python_version(),
        "packages": versions,
    }


def needs(n: int) -> str:
    """What a run of ``n`` images takes, before it is taken."""
    return (
        f"{n:,} images in four formats: {disk_bytes(n) / 1e9:.1f} GB on the disk, removed at the end, and in the page "
        f"cache; up to {(_PROCESS_BYTES + n * IMAGE_BYTES / 4) / 1e9:.1f} GB of memory beside it. Making the files ..."
    )


def store(result: dict, options: argparse.Namespace) -> None:
    """Write the files that were asked for."""
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    if options.chart:
        from feeding.chart import chart_bytes

        options.chart.write_bytes(chart_bytes(result))


def verdict(result: dict) -> int:
    """Say what was missed; the exit status."""
    late = figures.missed(figures.Figure(**figure) for figure in result["figures"])
    print(f"{len(late)} of {len(result['figures'])} figures not reached: {'; '.join(late)}" if late else "all reached")
    return 1 if late else 0


def update_readme() -> int:
    """Write README's tables from the stored JSON of this program and of scale.py."""
    stored, large = (json.loads(path.read_text(encoding="utf-8")) for path in (STORED, STORED_LARGE))
    text = figures.new_readme(README.read_text(encoding="utf-8"), stored, (large, scaling.figures.figures(large)))
    README.write_text(text, encoding="utf-8")
    return 0


def _chosen(bench, only: list[str] | None) -> tuple[list, dict[str, str]]:
    """The contenders that were asked for and can run here, and why others cannot."""
    from feeding.contenders import contenders, missing

    asked = [each for each in contenders(bench) if only is None or each.name in only or each.work in only]
    left_out = {each.name: reason for each in asked if (reason := missing(each))}
    for name, reason in left_out.items():
        print(f"left out: {name}, {reason}")
    return [each for each in asked if each.name not in left_out], left_out


def _rates_round(chosen: list, rates: figures.Rates, chance: random.Random) -> None:
    """Each contender once; those of one kind of work follow each other, so that their ratios are of one moment."""
    for work in sorted({contender.work for contender in chosen}):
        group = [contender for contender in chosen if contender.work == work]
        chance.shuffle(group)
        for contender in group:
            rates[figures.rate_key(work, contender.name)].append(contender.run())


def _delays_round(bench, seconds: dict[str, list[float]]) -> None:
    from feeding.delays import delays

    for name, value in delays(bench).items():
        seconds.setdefault(name, []).append(value)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--images", type=_images, default=4096, help=f"a multiple of {BATCH} (default: 4096)")
    parser.add_argument("--repeat", type=_positive, default=5, help="rounds (default: 5)")
    parser.add_argument(
        "--only", nargs="+", metavar="NAME", help=f"contenders, kinds of work (raw gzip augmented), or {DELAYS}"
    )
    parser.add_argument("--folder", type=Path, help="where the temporary files go (default: the system's place)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all rates and figures there")
    parser.add_argument("--chart", type=Path, metavar="FILE", help="draw the rates as a PNG")
    parser.add_argument("--readme", action="store_true", help="write README's tables from the stored JSON, and end")
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1; got {number}.")
    return number


def _images(text: str) -> int:
    try:
        return checked_count(int(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _too_small(folder: Path, n: int) -> str | None:
    free = shutil.disk_usage(folder).free
    if free >= disk_bytes(n):
        return None
    return (
        f"{n:,} images need {disk_bytes(n) / 1e9:.1f} GB on the disk of the temporary folder; {free / 1e9:.1f} GB are "
        "free. Lower --images, or name another disk by --folder."
    )


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()


def _load() -> str:
    return f"load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""


if __name__ == "__main__":
    sys.exit(main())

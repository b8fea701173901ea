"""How fast is a build, and what does it take? One worker against two, for each storage, beside OpenCV's plain decoding.

::

    python tests/benchmarks/build.py --images 4000 [--source DIR] [--size 299] [--folder DIR] [--json FILE]

The source is a Food-101 folder of JPEGs of 512 pixels drawn by make_toy_food, or ``--source``. In each of three rounds
every build runs once, one after the other, in a process of its own, and so does the decoding: all figures are medians,
and a ratio compares what ran in the same minutes. A round before them warms the page cache and watches the memory.

**Images a second** are those of the whole build as its report says: looking through the folder and for copies,
planning, starting processes, reading, writing, and forcing the file to the disk. **Decoding** is ``cv2.imdecode`` of
the bytes of some of the same pictures, which lie in memory already, on one core: no program that uses it and one core
is faster. **Memory** is that of the builder and all its workers together (scaling/memory.py), over their whole life.
Exit status 1: two workers are less than 1.7 times as fast as one for raw pixels, or the memory is above 600 MB.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
from scaling.parts import watch_memory
from tqdm import tqdm

from data_scripts.make_toy_food import make_toy_food
from helpers.images import read_image, resize_image

STORAGES = {"raw": {}, "jpeg": {"storage": "jpeg"}, "gzip": {"compression": "gzip"}}
WORKERS = (1, 2)
ROUNDS = 3
CLASSES, DRAWN_SIZE = 40, 512  # Food-101 has 512 pixels at the longer side
DECODED = 400  # pictures
LEAST_RATIO, MOST_MB = 1.7, 600
CHILD = """
import json, sys
from data_scripts.build_hdf5 import build_hdf5
report = build_hdf5(*sys.argv[1:3], progress=False, **json.loads(sys.argv[3]))
print(json.dumps([report.written / report.seconds, report.written, report.size_bytes]))
"""


def build(source: Path, folder: Path, options: dict, *, watched: bool = False) -> dict:
    """Build in a process of its own; images a second, images and bytes of the file, and the peak of its memory."""
    out = folder / "build.h5"
    command = [sys.executable, "-c", CHILD, str(source), str(out), json.dumps(options)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as child:
        peak = watch_memory(child).megabytes if watched else None
        printed = child.stdout.read()
    if child.returncode:
        raise SystemExit(f"the build with {options} failed; see above.")
    rate, images, size = json.loads(printed)
    out.unlink()
    return {"images_per_s": rate, "images": images, "bytes": size, "peak_mb": peak}


def decode_rate(pictures: list[Path], decode: Callable[[Path, np.ndarray], object]) -> float:
    """Pictures a second on one core, their bytes in memory."""
    data = [np.fromfile(path, np.uint8) for path in pictures]
    cv2.setNumThreads(1)
    start = time.perf_counter()
    for path, encoded in zip(pictures, data, strict=True):
        decode(path, encoded)
    return len(data) / (time.perf_counter() - start)


def measure(source: Path, folder: Path, size: int) -> dict:
    """All rates of all rounds, and the peaks of memory."""
    pictures = sorted((source / "images").rglob("*.jpg")) or sorted(source.rglob("*.jpg"))
    sample = pictures[:: max(1, len(pictures) // DECODED)][:DECODED]
    decoders = {
        "cv2.imdecode": lambda path, encoded: cv2.imdecode(encoded, cv2.IMREAD_COLOR),
        "read_image and resize_image": lambda path, encoded: resize_image(read_image(path), (size, size)),
    }
    builds = [(name, workers) for name in STORAGES for workers in WORKERS]
    rates, first = defaultdict(list), {}
    with tqdm(total=(ROUNDS + 1) * (len(builds) + len(decoders)), disable=None) as bar:
        for number in range(ROUNDS + 1):
            for name, decode in decoders.items():
                rate = decode_rate(sample, decode)
                if number:
                    rates[name].append(rate)
                bar.update()
            for name, workers in builds:
                options = {"size": size, "workers": workers, **STORAGES[name]}
                result = build(source, folder, options, watched=not number)
                if number:
                    rates[f"{name}, {workers}"].append(result["images_per_s"])
                else:
                    first[f"{name}, {workers}"] = result
                bar.update()
    return {
        "images": first["raw, 1"]["images"],
        "picture_bytes": statistics.mean(path.stat().st_size for path in pictures),
        "size": size,
        "cores": os.cpu_count(),
        "images_per_s": dict(rates),
        "file_bytes": {name: first[f"{name}, 1"]["bytes"] for name in STORAGES},
        "peak_mb": {name: result["peak_mb"] for name, result in first.items()},
    }


def text(found: dict) -> str:
    """The table for people."""
    middle = {name: statistics.median(rates) for name, rates in found["images_per_s"].items()}
    lines = [
        f"{found['images']:,} JPEG pictures of {found['picture_bytes'] / 1000:.0f} kB to {found['size']} pixels, "
        f"{found['cores']} cores; images a second, medians of {ROUNDS} rounds",
        f"{'':12}{'1 worker':>10}{'2 workers':>11}{'ratio':>8}{'spread of ratio':>18}{'memory MB':>11}{'file MB':>9}",
    ]
    for name in STORAGES:
        one, two = middle[f"{name}, 1"], middle[f"{name}, 2"]
        each = ratios(found, name)
        lines.append(
            f"{name:12}{one:>10.0f}{two:>11.0f}{statistics.median(each):>8.2f}"
            f"{f'{min(each):.2f} to {max(each):.2f}':>18}"
            f"{found['peak_mb'][f'{name}, 2']:>11.0f}{found['file_bytes'][name] / 1e6:>9.0f}"
        )
    for name in ("cv2.imdecode", "read_image and resize_image"):
        share = middle["raw, 1"] / middle[name]
        lines.append(f"{name} on one core: {middle[name]:.0f}; a raw build with one worker runs at {share:.0%} of it")
    return "\n".join(lines)


def ratios(found: dict, storage: str) -> list[float]:
    """Two workers against one, round by round."""
    rates = found["images_per_s"]
    return [two / one for one, two in zip(rates[f"{storage}, 1"], rates[f"{storage}, 2"], strict=True)]


def missed(found: dict) -> list[str]:
    """Sentences on the targets that were not met."""
    ratio, peak = statistics.median(ratios(found, "raw")), max(found["peak_mb"].values())
    sentences = []
    if ratio < LEAST_RATIO:
        sentences.append(f"two workers are {ratio:.2f} times as fast as one; the target is {LEAST_RATIO}.")
    if peak > MOST_MB:
        sentences.append(f"a build takes {peak:.0f} MB; the target is {MOST_MB}.")
    return sentences


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=4000, help="to draw (default: %(default)s)")
    parser.add_argument("--source", type=Path, metavar="DIR", help="build this folder of JPEGs instead")
    parser.add_argument("--size", type=int, default=299, help="pixels of the side in the file (default: %(default)s)")
    parser.add_argument("--folder", type=Path, metavar="DIR", help="where to make all files (default: a temporary one)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        source = options.source
        if source is None:
            source = Path(name) / "food-101"
            classes = min(CLASSES, options.images)
            counts = {"classes": classes, "per_class": options.images // classes, "workers": os.cpu_count() or 1}
            make_toy_food(source, layout="food101", size=DRAWN_SIZE, **counts)
        found = measure(source, Path(name), options.size)
    print(text(found))
    for sentence in missed(found):
        print(f"missed: {sentence}")
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return int(bool(missed(found)))


if __name__ == "__main__":
    sys.exit(main())

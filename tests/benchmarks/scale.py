"""Does the kit hold at full size? Builds a file of 27.1 GB, trains over it, and prints memory and speed. Linux only.

::

    python tests/benchmarks/scale.py --gigabytes 1 --json one.json
    python tests/benchmarks/scale.py --gigabytes 27.1 --against one.json --json tests/benchmarks/scale.json

The build streams images of 299x299x3 through HDF5Writer. Each pass is a training of a tiny model over all rows, with
fit_generator and HDF5Sequence(batch_size=64), in a process of its own; the model looks at every 32nd pixel only, so
that feeding it is what is measured. Exit status 1: a row was lost, doubled or mixed up, or a target was missed; 2: it
cannot run here; 130: stopped. The file is deleted at the end, also after Ctrl-C, unless --keep is given; a complete
file of the right size that is there already is used again.

**Rows.** The first and the last bytes of each image hold its row number and class. The model counts the rows it sees,
compares both ends of each image with each other, and the class with the label.

**Memory** is PSS, summed over the process that builds or trains and all its children, over their whole life, imports
included; this process looks at it up to 20 times a second and does not count itself. In PSS a page that two processes
share counts one half for each, so once in the sum; shared memory that nobody maps counts nowhere. The page cache,
which holds what was read from the file or will be written to it, is not part of PSS: the system takes it back whenever
memory is short. One thing differs from PSS: program files count whole, once, as on a machine where nobody else runs
the same libraries. A pass begins with 20 steps, and a pause in which the queue of batches fills up: with a real model,
which is slower, it is always full, and with this one chance would say how full.

**Speed** is images a second from the end of the first step to the end of the last, after those 20 steps. *Cold*: the
file's pages were dropped after an fsync, and mincore says that they are gone; the host of a virtual machine may have
them still. *Warm*: the file was read once just before; of a file larger than the memory a part stays, and the line says
how much. What was read from the disk is counted by the kernel for the training process and its workers. The roofline
of a cold pass is the rate at which one thread reads the same cold file from its first to its last byte, just after the
pass; two workers that read at once can be above it. The first read after the build is a figure of its own: it can be
several times slower, while the host of a virtual machine fetches the file.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import math
import os
import platform
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

import psutil
from scaling.big_file import IMAGE_BYTES, IMAGE_SHAPE, image_count, is_usable
from scaling.figures import build_line, difference, figures, missed, pass_line
from scaling.page_cache import drop_pages, read_through
from scaling.parts import PartFailedError, run_part
from scaling.report import CannotRunError

# Name -> shuffle, cache, workers. In this order a warm pass finds in the cache what the one before has left there.
PASSES = {
    "full-warm": ("full", "warm", "threads"),
    "block-warm": ("block", "warm", "threads"),
    "full-cold": ("full", "cold", "threads"),
    "block-cold": ("block", "cold", "threads"),
    "full-cold-processes": ("full", "cold", "processes"),
}
SPARE_DISK = 1.02  # for labels and the index of chunks, and not to fill a disk to its last byte


def measure(path: Path, images: int, only: list[str]) -> dict:
    """Build the file where it is needed, and run all parts."""
    result = {"machine": machine(), "versions": versions(), "data": {}, "build": None, "disk": None, "passes": {}}
    if not is_usable(path, images):
        result["build"] = run_part("big_file", path, images)
        say(build_line(result["build"]))
    size = path.stat().st_size
    result["data"] = {"gigabytes": size / 1e9, "images": images, "image_shape": IMAGE_SHAPE}
    for name in only:
        is_first_cold = "cold" in PASSES[name] and result["disk"] is None
        if is_first_cold:
            result["disk"] = {"first_mb_per_second": read_cold(path)}
            say(f"disk: {result['disk']['first_mb_per_second']:,.0f} MB/s when the file is read for the first time")
        one = result["passes"][name] = run_part("one_pass", path, *PASSES[name])
        if "cold" in PASSES[name]:
            one["disk_mb_per_second"] = read_cold(path)
        say(pass_line(name, one))
    return result


def read_cold(path: Path) -> float:
    """MB/s of plain reads of the file from its first to its last byte, when none of it is in the page cache."""
    drop_pages(path)
    return read_through(path)


def machine() -> dict:
    """What the figures depend on."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "system": f"{platform.system()} {platform.release().partition('-')[0]}",
        "processor": models[0] if models else platform.machine(),
        "cores": os.cpu_count(),
        "memory_gb": psutil.virtual_memory().total / 1e9,
        "load": os.getloadavg()[0],
        "date": time.strftime("%Y-%m-%d"),
    }


def versions() -> dict[str, str]:
    names = ("h5py", "numpy", "keras", "tensorflow")
    return {"python": platform.python_version(), **{name: importlib.metadata.version(name) for name in names}}


# -- command line -----------------------------------------------------------------------------------------------------


def parse(arguments: list[str] | None) -> argparse.Namespace:
    passes = f"run only some of the passes: {', '.join(PASSES)}"
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=27.1, metavar="G", help="size of the file (27.1)")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()), help="where the file is built")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    parser.add_argument("--against", type=Path, metavar="FILE", help="JSON of a run of another size: compare peaks")
    parser.add_argument("--keep", action="store_true", help="leave the file for the next run")
    parser.add_argument("--only", nargs="+", choices=PASSES, default=list(PASSES), metavar="PASS", help=passes)
    return parser.parse_args(arguments)


def check(options: argparse.Namespace) -> None:
    """Look at the arguments and the system. Raises CannotRunError."""
    if not hasattr(os, "posix_fadvise") or not Path("/proc/self/smaps_rollup").exists():
        raise CannotRunError("scale.py needs Linux: it asks /proc for memory and empties the page cache of one file.")
    if not options.folder.is_dir():
        raise CannotRunError(f"--folder must be a folder that exists; got {options.folder}.")
    if not 0 < options.gigabytes < math.inf:
        raise CannotRunError(f"--gigabytes must be above 0; got {options.gigabytes:g}.")
    if options.json and not options.json.absolute().parent.is_dir():
        raise CannotRunError(f"the folder of --json must exist; got {options.json}.")


def check_disk(path: Path, images: int) -> None:
    """Is there room for the file? Raises CannotRunError."""
    needed, free = images * IMAGE_BYTES * SPARE_DISK / 1e9, shutil.disk_usage(path.parent).free / 1e9
    if needed > free and not is_usable(path, images):
        raise CannotRunError(
            f"the file needs {needed:,.1f} GB and {path.parent} has {free:,.1f} GB free. Free some, give another "
            "--folder, or ask for fewer --gigabytes."
        )


def read_result(file: Path, only: list[str]) -> dict:
    """What --json wrote. Raises CannotRunError."""
    try:
        result = json.loads(file.read_text(encoding="utf-8"))
        if set(only) & set(result["passes"]):
            return result
    except (OSError, ValueError, KeyError, TypeError):
        pass
    raise CannotRunError(f"--against must be a file that --json wrote, with one of the passes of this run; got {file}.")


def say(line: str) -> None:
    print(line, flush=True)


def remove(path: Path) -> None:
    """Delete the file, and what a build that was killed has left of it."""
    path.unlink(missing_ok=True)
    path.with_name(path.name + ".part").unlink(missing_ok=True)


def report(result: dict, file: Path | None) -> int:
    """Print the table, write the JSON; the exit status."""
    result["figures"] = figures(result)
    result["missed"] = missed(result)
    if file:
        file.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    width = max(len(what) for what, _, _ in result["figures"])
    for what, value, target in result["figures"]:
        say(f"{what:{width}}  {value}{f' ({target})' if target else ''}")
    say("\n".join(f"missed: {phrase}" for phrase in result["missed"]) or "all targets reached")
    return 1 if result["missed"] else 0


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    try:
        check(options)
        images = image_count(options.gigabytes)
        path = options.folder / f"scale-{images}.h5"
        check_disk(path, images)
        other = read_result(options.against, options.only) if options.against else None
        return run(options, path, images, other)
    except CannotRunError as error:
        print(error, file=sys.stderr)
        return 2
    except PartFailedError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("stopped.", file=sys.stderr)
        return 130


def run(options: argparse.Namespace, path: Path, images: int, other: dict | None) -> int:
    """Measure, compare, report; the exit status. The file is gone afterwards, unless it is to be kept."""
    try:
        result = measure(path, images, options.only)
    finally:
        if not options.keep:
            remove(path)
    if other:
        result["difference"] = difference(result, other)
    return report(result, options.json)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what ends a job elsewhere cleans up as Ctrl-C does
    sys.exit(main())

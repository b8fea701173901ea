"""Check this machine for the course: ``python -m helpers.doctor``; look an error up: ``... --error "TEXT"``.

One line a check: ok, warn (the course runs, something is worse) or bad (it will fail), with what to do. Exit code 1
when a line is bad, or when the error is not known. Imports neither Keras nor TensorFlow; asks nvidia-smi for GPUs.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import multiprocessing
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import h5py
import psutil
from packaging.requirements import Requirement  # comes with matplotlib
from packaging.specifiers import SpecifierSet

from helpers.known_errors import explain

PROJECT = "hdf5-keras-kit"
GB = 1e9
DISK_GB, DISK_LEAST_GB = 4, 0.5  # the lessons' files and their builds; less than one lesson's
MEMORY_GB, MEMORY_LEAST_GB = 2, 1  # Keras and a small model; lessons without Keras stay below 1 GB
SHM_GB = 0.25  # for a few batches of Keras' or other people's workers; this kit's own do not depend on it
_COLORS = {"ok": "\033[32m", "warn": "\033[33m", "bad": "\033[31m"}


@dataclass(frozen=True)
class Check:
    """One line of the doctor: state is "ok", "warn" or "bad"."""

    state: str
    text: str
    advice: str = ""

    def line(self, *, color: bool = False) -> str:
        """The line as printed."""
        mark = f"{_COLORS[self.state]}{self.state:<4}\033[0m" if color else f"{self.state:<4}"
        return f"{mark}  {self.text}" + (f" -> {self.advice}" if self.advice else "")


def examine(folder: Path) -> list[Check]:
    """All checks; ``folder`` is where the lessons would write their files."""
    return [
        *([not_installed()] if _version(PROJECT) == "missing" else [python_version(), *packages()]),
        disk(folder),
        locking(folder),
        memory(),
        cores(),
        shared_memory(),
        start_method(),
        gpu(),
        browser(),
    ]


def not_installed() -> Check:
    """Run from the folder by a Python that does not have the kit: what it needs cannot be looked up."""
    return Check("bad", f"{PROJECT} is not installed in {sys.executable}", "pip install -r requirements.txt")


def python_version() -> Check:
    """Python against the range of the project's metadata."""
    wanted = importlib.metadata.metadata(PROJECT)["Requires-Python"]
    text = f"Python {platform.python_version()} (needs {wanted})"
    if SpecifierSet(wanted).contains(platform.python_version(), prereleases=True):
        return Check("ok", text)
    return Check("bad", text, "make the environment with a Python in this range")


def packages() -> Iterator[Check]:
    """Installed packages: outside the package's range is bad, other than the pin of requirements.txt a warning."""
    ranges = {
        need.name: need.specifier
        for need in map(Requirement, importlib.metadata.requires(PROJECT) or ())
        if not need.marker
    }
    pins = read_pins(Path(__file__).parents[1] / "requirements.txt")
    found = [package(name, ranges.get(name), pins.get(name)) for name in dict.fromkeys([*ranges, *pins])]
    good = [check for check in found if check.state == "ok"]
    if good:
        yield Check("ok", f"{len(good)} packages as they should be")
    yield from (check for check in found if check.state != "ok")


def read_pins(path: Path) -> dict[str, str]:
    """Exact pins ``name==version`` of a requirements file; an installed copy without that file has none."""
    if not path.exists():
        return {}
    return dict(re.findall(r"^([\w.-]+)==(\S+)", path.read_text(encoding="utf-8"), re.MULTILINE))


def package(name: str, wanted: SpecifierSet | None, pin: str | None) -> Check:
    """One package against its range and its pin; either may be missing."""
    install = f"pip install {name}=={pin}" if pin else f"pip install '{name}{wanted}'"
    try:
        have = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return Check("bad" if wanted else "warn", f"{name} is not installed", install)
    if wanted and not wanted.contains(have, prereleases=True):
        return Check("bad", f"{name} {have} (needs {wanted})", install)
    if pin and have != pin:
        return Check("warn", f"{name} {have}; the stored outputs were made with {pin}", install)
    return Check("ok", f"{name} {have}")


def disk(folder: Path) -> Check:
    """Free space where the lessons write."""
    return _amount(
        "free on this disk",
        shutil.disk_usage(folder).free,
        DISK_GB,
        DISK_LEAST_GB,
        "make room, or work on another disk",
    )


def memory() -> Check:
    """Free memory, or what is left of a container's limit when that is less."""
    advice = "close other notebooks and programs; lessons 00, 01 and 04 need the least"
    return _amount(
        "memory free", min(psutil.virtual_memory().available, _container_rest()), MEMORY_GB, MEMORY_LEAST_GB, advice
    )


def _container_rest(folder: Path = Path("/sys/fs/cgroup")) -> float:
    try:
        limit, used = ((folder / name).read_text().strip() for name in ("memory.max", "memory.current"))
    except OSError:
        return float("inf")
    return float("inf") if limit == "max" else max(0.0, float(limit) - float(used))


def _amount(what: str, have: float, enough_gb: float, least_gb: float, advice: str) -> Check:
    text = f"{have / GB:.1f} GB {what}"
    if have >= enough_gb * GB:
        return Check("ok", text)
    return Check("warn" if have >= least_gb * GB else "bad", f"{text} ({enough_gb:g} GB are comfortable)", advice)


def locking(folder: Path) -> Check:
    """Write, lock and read a small HDF5 file in ``folder``."""
    try:
        with tempfile.TemporaryDirectory(dir=folder, prefix=".doctor_") as name:
            path = Path(name) / "try.h5"
            with h5py.File(path, "w", locking=True) as file:
                file["x"] = 1
            with h5py.File(path, "r", locking=True) as file:
                file["x"][()]
    except OSError as error:
        if "lock" in str(error):
            advice = "work in a folder on a local disk, or set HDF5_USE_FILE_LOCKING=FALSE before Python starts"
            return Check("bad", f"HDF5 cannot lock files in this folder: {error}", advice)
        return Check("bad", f"HDF5 cannot write in this folder: {error}", "start in a folder where you may write")
    return Check("ok", "HDF5 writes and locks files in this folder")


def cores() -> Check:
    """Processor cores that this process may use."""
    count = usable_cores()
    if count > 1:
        return Check("ok", f"{count} processor cores")
    return Check(
        "warn", "1 processor core", "training and reading take turns; expect the lessons to take twice as long"
    )


def usable_cores() -> int:
    """Cores this process may run on, which a container or scheduler may have cut."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def shared_memory(folder: Path = Path("/dev/shm")) -> Check:
    """Room for batches that process workers hand over in shared memory."""
    if not folder.is_dir():
        return Check("ok", "no /dev/shm on this system; shared memory is made another way")
    free = shutil.disk_usage(folder).free
    if free >= SHM_GB * GB:
        return Check("ok", f"{free / GB:.1f} GB of shared memory (/dev/shm)")
    return Check("warn", f"{free / 1e6:.0f} MB of shared memory (/dev/shm)", "start the container with --shm-size=1g")


def start_method() -> Check:
    """How Python starts processes here unless told otherwise."""
    method = multiprocessing.get_all_start_methods()[0]
    return Check("ok", f"processes start by {method} unless told otherwise")


def gpu() -> Check:
    """GPUs that nvidia-smi lists, and whether TensorFlow's CUDA libraries are installed."""
    names = _gpu_names()
    if not names:
        return Check("ok", "no NVIDIA GPU seen: all lessons run without; lesson 07 takes its classroom preset")
    if importlib.util.find_spec("nvidia") is None:
        return Check(
            "warn", f"GPU: {', '.join(names)}; CUDA libraries are missing", "pip install 'tensorflow[and-cuda]'"
        )
    return Check("ok", f"GPU: {', '.join(names)}")


def _gpu_names() -> list[str]:
    command = shutil.which("nvidia-smi")
    if command is None:
        return []
    try:
        query = [command, "--query-gpu=name", "--format=csv,noheader"]
        answer = subprocess.run(query, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return answer.stdout.splitlines()


def browser() -> Check:
    """JupyterLab for the lessons, Chromium for the tests that open them."""
    if importlib.util.find_spec("jupyterlab") is None:
        return Check("bad", "JupyterLab is not installed", "pip install -r requirements.txt")
    names = ("chromium", "chromium-browser", "google-chrome")
    if any(map(shutil.which, names)):
        return Check("ok", "JupyterLab and a Chromium for its tests")
    return Check(
        "warn",
        "JupyterLab, but no Chromium: tests that open lessons in a browser are skipped",
        "install chromium with the package manager of the system (apt-get install chromium)",
    )


def summary() -> str:
    """One line that a bug report can carry: versions and sizes, nothing about the person."""
    shown = ("numpy", "tensorflow", "keras", "tf-keras", "jupyterlab")
    versions = ", ".join(f"{name} {_version(name)}" for name in shown)
    hdf5 = f"h5py {h5py.__version__} (HDF5 {h5py.version.hdf5_version})"
    machine = f"{usable_cores()} cores, {psutil.virtual_memory().total / GB:.0f} GB"
    return (
        f"{PROJECT} {_version(PROJECT)}; {platform.system()} {platform.machine()}; "
        f"Python {platform.python_version()}; {hdf5}; {versions}; {machine}"
    )


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "missing"


def main(argv: list[str] | None = None) -> int:
    """The command line. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m helpers.doctor", description="Check this machine for the course.")
    parser.add_argument("--error", metavar="TEXT", help="say what an error means and what to do")
    options = parser.parse_args(argv)
    lines, code = _look_up(options.error) if options.error is not None else _examine_here()
    print("\n".join(lines))  # noqa: T201 - a command line program
    return code


def _look_up(text: str) -> tuple[list[str], int]:
    entry = explain(text)
    if entry is None:
        return ["This error is not in the table. Paste its last line, from the name of the error on."], 1
    return [str(entry)], 0


def _examine_here() -> tuple[list[str], int]:
    checks = examine(Path.cwd())
    color = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    lines = [check.line(color=color) for check in checks]
    return [*lines, f"For bug reports: {summary()}"], int(any(check.state == "bad" for check in checks))


if __name__ == "__main__":
    sys.exit(main())

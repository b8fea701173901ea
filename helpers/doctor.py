"""Check this machine for the course: ``python -m helpers.doctor``; look an error up: ``... --error "TEXT"``.

One line a check: ok, warn (it runs, something is worse) or bad (it will fail), with what to do. Exit code 1 when a line
is bad, or when the error is not known. Imports neither Keras nor TensorFlow; asks nvidia-smi for GPUs.

``--data FOLDER`` tries the disk of that folder instead of the one where the lessons write. ``--data FILE`` also looks
into the file with :mod:`helpers.inspector`, and holds it and the queue of its batches against the free memory. Without
a file nothing is said about queues: those of the lessons' pictures of 64 pixels take 7 MB, which tells nobody anything.
"""

from __future__ import annotations

import argparse
import errno
import importlib.metadata
import importlib.util
import itertools
import json
import math
import multiprocessing
import os
import platform
import re
import shlex
import shutil
import sys
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import h5py
import psutil
from packaging.requirements import Requirement  # comes with matplotlib
from packaging.specifiers import SpecifierSet

from helpers import layout, machine, preflight
from helpers.batches import BatchSource
from helpers.error_search import find
from helpers.inspector import inspect_file
from helpers.machine import usable_cores
from helpers.report import Report, SplitReport
from helpers.words import count_text, printable, size_text
from helpers.workers import WorkerPool

PROJECT = "hdf5-keras-kit"
GB = 1e9
DISK_GB, DISK_LEAST_GB = 4, 0.5  # the lessons' files and their builds; less than one lesson's
MEMORY_GB, MEMORY_LEAST_GB = 2, 1  # Keras and a small model; lessons without Keras stay below 1 GB
GPU_GB, GPU_SHARE = 2, 0.1  # the CUDA libraries and a small model; a rest below a tenth is what another kernel left
SHM_GB = 0.25  # for a few batches of worker processes of other libraries; this kit's own do not use it
ADDRESSES_LEAST_GB = 4  # TensorFlow 2.21 maps 3.2 GB to train a small model on two cores
OPEN_FILES = 256  # Keras, a notebook and a few workers; systems allow 256 (macOS) or 1024
CACHED_SHARE = 0.6  # of the free memory: a smaller file stays in the page cache
_COLORS = {"ok": "\033[32m", "warn": "\033[33m", "bad": "\033[31m"}
_BACKENDS = ("tensorflow", "jax")  # that the kit is tested on
_OTHER_BACKENDS = ("torch", "numpy", "openvino")
_NO_RIGHT = {errno.EACCES, errno.EPERM, errno.EROFS}
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT}
_ENDINGS = {".h5", ".hdf5", ".hdf", ".he5"}
_LOOKED_THROUGH = 10_000  # names in a folder
_COSTLY_CHUNKS = {"cut-chunks", "large-chunks", "costly-epoch"}  # the inspector's codes
_WITHOUT_GPU = "all lessons run without a GPU"
_NVIDIA_ADVICE = (  # what nvidia-smi says, and what to do
    ("communicate with the NVIDIA driver", "load or install the driver: sudo modprobe nvidia, or restart the machine"),
    ("version mismatch", "the driver was updated: restart the machine"),
    ("Unknown Error", "the container lost its GPU: start the container again"),
    ("no answer", "the GPU or its driver hangs: restart the machine"),
    ("No devices", "ask for a GPU: --gpus all for a container, --gres=gpu:1 for a Slurm job"),
)


@dataclass(frozen=True)
class Check:
    """One line of the doctor: state is "ok", "warn" or "bad"; a bad one says what to do."""

    state: str
    text: str
    advice: str = ""

    def __post_init__(self):
        if self.state == "bad" and not self.advice:
            raise ValueError(f"a bad line must say what to do; got none for {self.text!r}.")

    def line(self, *, color: bool = False) -> str:
        """The line as printed."""
        mark = f"{_COLORS[self.state]}{self.state:<4}\033[0m" if color else f"{self.state:<4}"
        return f"{mark}  {printable(self.text)}" + (f" -> {printable(self.advice)}" if self.advice else "")


@dataclass(frozen=True)
class Plan:
    """A training that the machine is held against: its file, and how batches are made of it."""

    file: Path
    split: str = "train"
    images: str | None = None
    labels: str | None = None
    batch_size: int = 32
    max_queue_size: int = 10
    workers: int = 2


def examine(folder: Path, plan: Plan | None = None, *, writes: bool = True) -> list[Check]:
    """All checks; ``folder`` is where the data lie.

    ``writes``: files are written there too, as the lessons do; without, a folder that can only be read will do.
    """
    return [
        *([not_installed()] if _version(PROJECT) == "missing" else [python_version(), *packages()]),
        *_folder(folder, plan.file if plan else None, writes),
        memory(),
        *(data_file(plan) if plan else ()),
        cores(),
        shared_memory(),
        start_method(),
        *limits(),
        *gpu(),
        backend(),
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


# -- the data folder --------------------------------------------------------------------------------------------------


def _folder(folder: Path, file: Path | None, writes: bool) -> Iterator[Check]:
    if file is not None and not folder.is_dir():
        return  # a wrong path: the check of the file says so
    if writes or os.access(folder, os.W_OK):  # a disk that is only read may be full
        yield disk(folder)
    yield locking(folder, file, writes=writes)


def disk(folder: Path) -> Check:
    """Free space where the lessons write."""
    try:
        free = shutil.disk_usage(folder).free
    except OSError as error:
        return Check("bad", f"the disk cannot be asked for its free space: {error}", "check the path, and the disk")
    return _amount("free on this disk", free, DISK_GB, DISK_LEAST_GB, "make room, or work on another disk")


def locking(folder: Path, file: Path | None = None, *, writes: bool = True) -> Check:
    """Write, lock and read a small HDF5 file in ``folder``; where that is not allowed, open one to read, with a lock.

    ``file`` is the one to open then, else the first HDF5 file in the folder.
    """
    try:
        _write_and_read(folder)
    except (OSError, RuntimeError) as error:  # h5py closes a file that it cannot write out with a RuntimeError
        return _why_not_written(folder, error, file, writes)
    return _with_locks("HDF5 writes and locks files in this folder", "HDF5 writes files in this folder")


def _write_and_read(folder: Path) -> None:
    with tempfile.TemporaryDirectory(dir=folder, prefix=".doctor_") as name:
        path = Path(name) / "try.h5"
        with h5py.File(path, "w", locking=True) as file:
            file["x"] = 1
        with h5py.File(path, "r", locking=True) as file:
            file["x"][()]


def _with_locks(text: str, without: str) -> Check:
    if not _locks_are_off():
        return Check("ok", text)
    return Check(
        "warn",
        f"{without}; it locks none, because HDF5_USE_FILE_LOCKING is {os.environ['HDF5_USE_FILE_LOCKING']}",
        "let nothing write to a file that is read; on a local disk, unset the variable",
    )


def _locks_are_off() -> bool:
    return os.environ.get("HDF5_USE_FILE_LOCKING") in {"FALSE", "0"}  # all others leave them on in HDF5 1.14


def _why_not_written(folder: Path, error: Exception, file: Path | None, writes: bool) -> Check:
    number = getattr(error, "errno", None)
    if _is_about_locks(error):
        return _no_locks(f"HDF5 cannot lock files in this folder: {error}")
    text = f"HDF5 cannot write in this folder: {error}"
    if number in _NO_RIGHT:
        return _read_only(folder, text, file, writes)
    if number in _NO_ROOM or "No space left" in str(error):
        return Check("bad", text, "make room, or work on another disk")
    if number in {errno.ENOENT, errno.ENOTDIR}:
        return Check("bad", text, "check the path of the folder")
    return Check("bad", text, "check the disk, or start in a folder on another one")


def _is_about_locks(error: BaseException) -> bool:
    return "unable to lock file" in str(error)


def _no_locks(text: str) -> Check:
    return Check(
        "bad", text, "work in a folder on a local disk, or set HDF5_USE_FILE_LOCKING=FALSE before Python starts"
    )


def _read_only(folder: Path, refused: str, file: Path | None, writes: bool) -> Check:
    """May the folder be used as it is? That one of its files opens with a lock is the proof."""
    path = file or _first_hdf5(folder)
    if path is None:
        return Check(
            "bad",
            f"{refused}; and no HDF5 file lies there that could be opened to read",
            "start in a folder where you may write, or name a file: --data FILE",
        )
    try:
        layout.open_file(path, locking=True).close()
    except OSError as error:
        if _is_about_locks(error):
            return _no_locks(f"this folder can only be read, and a file in it cannot be locked: {error}")
        return Check(
            "bad", f"this folder can only be read, and not that: {error}", "check the rights: ls -l shows them"
        )
    name = path.name
    tried = f"this folder can only be read; {name} in it opens"
    found = _with_locks(f"{tried}, with a lock for reading", tried)
    if not writes or found.state != "ok":
        return found
    return Check("warn", found.text, "train from it as it is; for the lessons, start in a folder where you may write")


def _first_hdf5(folder: Path) -> Path | None:
    try:
        with os.scandir(folder) as entries:
            few = itertools.islice(entries, _LOOKED_THROUGH)
            names = [entry.name for entry in few if Path(entry.name).suffix.lower() in _ENDINGS and entry.is_file()]
    except OSError:
        return None
    return folder / min(names) if names else None


# -- memory, and a file against it ------------------------------------------------------------------------------------


def memory() -> Check:
    """Free memory, or what is left of a limit when that is less."""
    found = machine.free_memory()
    what, advice = "memory free", "close other notebooks and programs; lessons 00, 01 and 04 need the least"
    if found.bound == machine.CONTAINER:
        what = f"memory free of this container's or job's {found.limit / GB:.1f} GB"
        advice = "give it more (docker run --memory, --mem of a Slurm job); lessons 00, 01 and 04 need the least"
    elif found.bound:
        what = f"memory free of the {found.limit / GB:.1f} GB that {found.bound} allows"
        advice = f"{found.bound} unlimited, in the shell that starts Python"
    return _amount(what, found.free, MEMORY_GB, MEMORY_LEAST_GB, advice)


def _amount(what: str, have: float, enough_gb: float, least_gb: float, advice: str) -> Check:
    text = f"{have / GB:.1f} GB {what}"
    if have >= enough_gb * GB:
        return Check("ok", text)
    return Check("warn" if have >= least_gb * GB else "bad", f"{text} ({enough_gb:g} GB are comfortable)", advice)


def data_file(plan: Plan) -> Iterator[Check]:
    """Does the file open, do it and its queue fit into the memory, do its chunks suit shuffled reading?"""
    report = inspect_file(plan.file, images=plan.images, labels=plan.labels)
    yield _verdict(report)
    if not report.readable:
        return
    yield _file_in_memory(report)
    yield from _chunks(report)
    pair, odd = _pair(report, plan)
    if odd is not None:
        yield odd
    if pair is not None:
        yield from queue(plan, pair, report)


def _inspector(report: Report) -> str:
    return f"python -m helpers.inspector {shlex.quote(str(report.path))}"


def _verdict(report: Report) -> Check:
    if report.ok:
        return Check("ok", report.verdict)
    fault = report.faults[0]
    if fault.code == "no-images":
        return Check("warn", fault.message, "name its datasets: --images NAME --labels NAME")
    more = len(report.faults) - 1
    others = f" {count_text(more, 'fault')} more: {_inspector(report)}" if more else ""
    return Check("bad", fault.message, (fault.advice + others).strip() or _inspector(report))


def _file_in_memory(report: Report) -> Check:
    free = machine.free_memory().free
    text = f"the file has {size_text(report.size_bytes)}, and {size_text(free)} of memory are free"
    if any(warning.code == "outside-file" for warning in report.warnings):
        text += " (other files, which it names, are not counted)"
    if report.size_bytes <= CACHED_SHARE * free:
        return Check("ok", f"{text}: after the first epoch it is read from memory")
    return Check(
        "warn",
        f"{text}: it does not stay there, so every epoch reads from the disk, row by row",
        'on a hard disk or a network disk copy it to a local SSD, or use HDF5Sequence(shuffle="block")',
    )


def _chunks(report: Report) -> Iterator[Check]:
    found = next((warning for warning in report.warnings if warning.code in _COSTLY_CHUNKS), None)
    if found is not None:
        yield Check("warn", found.message, f"{found.advice} {_inspector(report)} shows what an epoch costs.")


def _pair(report: Report, plan: Plan) -> tuple[SplitReport | None, Check | None]:
    """The datasets that are meant, and what is odd about that."""
    pairs = report.splits
    if plan.images is not None or not pairs:
        return next(iter(pairs.values()), None), None
    pair = pairs.get(plan.split)
    if all(each.images != layout.image_dataset(split) for split, each in pairs.items()):
        pair = pair or next(iter(pairs.values()))
        names = f"--images {shlex.quote(pair.images)} --labels {shlex.quote(pair.labels)}"
        text = f"its datasets do not have this kit's names; taken: {pair.images} and {pair.labels}"
        return pair, Check("warn", text, f"name them, here and in HDF5Sequence(images=, labels=): {names}")
    if pair is None or not pair.n:
        filled = [split for split, each in pairs.items() if each.n]
        text = f"it has no images to serve in the split {plan.split}"
        return None, Check("warn", text, f"--split takes one of: {', '.join(filled) or 'none'}")
    return pair, None


def queue(plan: Plan, pair: SplitReport, report: Report) -> Iterator[Check]:
    """Batches that wait for the model, as :func:`helpers.fit_generator` counts them, against the free memory."""
    try:
        held, batch_bytes, float_bytes = _queue_sizes(plan, pair, report)
    except Exception as error:  # of a file that is odd, or gone meanwhile; what it says is what HDF5Sequence would say
        if report.ok:
            yield Check("warn", f"what a queue of its batches holds is not known: {error}", _inspector(report))
        return
    needed, free = preflight.queue_bytes([("", held, batch_bytes)]), machine.free_memory().free
    text = (
        f"a queue (batch_size={plan.batch_size}, max_queue_size={plan.max_queue_size}, workers={plan.workers}) holds up "
        f"to {count_text(held, 'batch').replace('batchs', 'batches')} of {size_text(batch_bytes)}, {size_text(needed)} "
        f"in all ({size_text(held * float_bytes)} were they float32); {size_text(free)} of memory are free"
    )
    if needed <= preflight.QUEUE_SHARE * free:
        yield Check("ok", text)
    else:
        yield Check("warn" if needed <= free else "bad", text, "lower max_queue_size, workers or batch_size")


def _queue_sizes(plan: Plan, pair: SplitReport, report: Report) -> tuple[int, int, int]:
    """Batches held at most, and the bytes of one: as it is, and with float32 pixels."""
    classes = (
        len(pair.counts) if report.class_names is None else None
    )  # the file does not say; sizes hardly depend on it
    with warnings.catch_warnings(action="ignore", category=layout.OutsideFileWarning):
        source = BatchSource(
            plan.file, batch_size=plan.batch_size, images=pair.images, labels=pair.labels, classes=classes
        )
    with closing(source):
        held = WorkerPool(source.item, plan.workers, ahead=plan.max_queue_size).most_held  # asked, never started
        pixels = plan.batch_size * math.prod(source.image_shape)
        return held, source.batch_bytes, source.batch_bytes + 3 * pixels


# -- processes --------------------------------------------------------------------------------------------------------


def cores() -> Check:
    """Processor cores that this process may use."""
    count = usable_cores()
    if count > 1:
        return Check("ok", f"{count} processor cores")
    return Check(
        "warn", "1 processor core", "training and reading take turns; expect the lessons to take twice as long"
    )


def shared_memory(folder: Path = Path("/dev/shm")) -> Check:
    """Room for what worker processes of other libraries hand over; helpers.slots needs none of it."""
    try:
        free = shutil.disk_usage(folder).free
    except OSError:
        return Check("ok", "no /dev/shm on this system; shared memory is made another way")
    if free >= SHM_GB * GB:
        return Check("ok", f"{free / GB:.1f} GB of shared memory (/dev/shm)")
    return Check(
        "warn",
        f"{free / 1e6:.0f} MB of shared memory (/dev/shm): workers of this kit use none, those of other libraries can "
        "die of it",
        "start the container with --shm-size=1g",
    )


def start_method() -> Check:
    """How Python starts processes here unless told otherwise, and what that means."""
    method = _start_method()
    if method == "fork":
        meaning = "copies of this process, which can hang once Keras has run"
    else:
        meaning = "pools of other libraries need if __name__ == '__main__' in a script"
    return Check("ok", f"processes start by {method} unless told otherwise: {meaning}; workers of this kit do neither")


def _start_method() -> str:
    return multiprocessing.get_start_method(allow_none=True) or multiprocessing.get_all_start_methods()[0]


def limits() -> Iterator[Check]:
    """Limits of the shell that stop a training; no line where there are none."""
    addresses, files = machine.address_limit(), machine.open_files_limit()
    if addresses is not None:
        text = f"ulimit -v allows {addresses / GB:.1f} GB of addresses, and TensorFlow maps more than it uses"
        advice = (
            "ulimit -v unlimited, in the shell that starts Python; limit the memory of the container or job instead"
        )
        yield Check("bad" if addresses < ADDRESSES_LEAST_GB * GB else "warn", text, advice)
    if files is not None and files < OPEN_FILES:
        yield Check("warn", f"ulimit -n allows {files} open files", "ulimit -n 1024, in the shell that starts Python")


# -- GPUs and Keras ---------------------------------------------------------------------------------------------------


def gpu() -> Iterator[Check]:
    """GPUs that nvidia-smi lists, the free memory of each, and whether the backend of Keras can use them."""
    try:
        found = machine.gpus()
    except machine.NvidiaSmiError as error:
        said = str(error)
        advice = next((advice for clue, advice in _NVIDIA_ADVICE if clue in said), "install the NVIDIA driver again")
        yield Check("warn", f"GPU: not known, nvidia-smi fails: {said}", f"{advice}; {_WITHOUT_GPU}")
        return
    if not found:
        yield Check("ok", "no NVIDIA GPU seen: all lessons run without; lesson 07 takes its classroom preset")
        return
    yield from map(_gpu_memory, found)
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
    if hidden is not None and hidden.strip() in {"", "-1"}:
        yield Check(
            "warn", f"CUDA_VISIBLE_DEVICES={hidden!r} hides the GPU from Keras", "unset it before Python starts"
        )
    yield from _cuda()


def _gpu_memory(found: machine.Gpu) -> Check:
    if found.free is None or found.total is None:
        return Check("ok", f"GPU: {found.name}; its free memory is not told")
    text = f"GPU: {found.name}, {found.free / GB:.1f} of {found.total / GB:.1f} GB free"
    if found.free >= max(GPU_GB * GB, GPU_SHARE * found.total):
        return Check("ok", text)
    users = ", ".join(map(_user_words, machine.gpu_users()))
    return Check("warn", text, f"shut down what holds the rest: {users or 'another notebook kernel, or another user'}")


def _user_words(user: machine.GpuUser) -> str:
    name = "this process" if user.pid == os.getpid() else f"{user.name or 'process'} (process {user.pid})"
    return name if user.used is None else f"{name} with {user.used / GB:.1f} GB"


def _cuda() -> Iterator[Check]:
    able = {name: machine.has_cuda(name) for name in _BACKENDS if _version(name) != "missing"}
    chosen = keras_backend()
    if able.get(chosen) is False:
        extra = "and-cuda" if chosen == "tensorflow" else "cuda12"
        text = f"{chosen} has no CUDA libraries, and will not use the GPU"
        yield Check("warn", text, f"pip install '{chosen}[{extra}]=={_version(chosen)}' (Linux, or WSL on Windows)")
    elif able:
        yield Check("ok", ", ".join(f"{name}: {'' if cuda else 'no '}CUDA libraries" for name, cuda in able.items()))


def backend() -> Check:
    """The backend that Keras will take, and whether it is installed."""
    name = keras_backend()
    if name not in {*_BACKENDS, *_OTHER_BACKENDS}:
        advice = f"set KERAS_BACKEND to one of: {', '.join(_BACKENDS)}"
        return Check("bad", f"Keras has no backend {name!r} (KERAS_BACKEND, or keras.json)", advice)
    if importlib.util.find_spec(name) is None:
        install = "pip install -r requirements.txt" if name in _BACKENDS else "set KERAS_BACKEND=tensorflow"
        return Check("bad", f"Keras would run on {name}, which is not installed", install)
    if name in _BACKENDS:
        return Check("ok", f"Keras runs on {name}")
    return Check(
        "warn", f"Keras runs on {name}; this kit is tested on {' and '.join(_BACKENDS)}", "set KERAS_BACKEND=tensorflow"
    )


def keras_backend() -> str:
    """KERAS_BACKEND, else what keras.json says, else tensorflow, as Keras looks it up."""
    if name := os.environ.get("KERAS_BACKEND"):
        return name
    folder = os.environ.get("KERAS_HOME") or Path("~/.keras").expanduser()
    try:
        return str(json.loads((Path(folder) / "keras.json").read_text(encoding="utf-8"))["backend"])
    except (OSError, ValueError, LookupError, TypeError):
        return "tensorflow"


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


def summary(checks: Sequence[Check] = ()) -> str:
    """One line that a bug report can carry: versions and sizes, nothing about the person. GPUs are taken from checks."""
    shown = ("numpy", "tensorflow", "keras", "tf-keras", "jax", "jupyterlab")
    versions = ", ".join(f"{name} {_version(name)}" for name in shown)
    hdf5 = f"h5py {h5py.__version__} (HDF5 {h5py.version.hdf5_version})" + ", no locks" * _locks_are_off()
    limit = machine.container_limit()
    size = f"{usable_cores()} cores, {psutil.virtual_memory().total / GB:.0f} GB"
    if limit is not None:
        size += f", container limit {limit / GB:.1f} GB"
    gpus = [check.text for check in checks if check.text.startswith("GPU: ")] or ["no GPU"]
    known = keras_backend() in {*_BACKENDS, *_OTHER_BACKENDS}
    return printable(
        f"{PROJECT} {_version(PROJECT)}; {platform.system()} {platform.machine()}; "
        f"Python {platform.python_version()}; {hdf5}; {versions}; {size}; {'; '.join(gpus)}; "
        f"backend {keras_backend() if known else 'unknown'}; start method {_start_method()}"
    )


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "missing"


def main(argv: list[str] | None = None) -> int:
    """The command line. Returns the exit code."""
    options = _options(argv)
    lines, code = _look_up(options.error) if options.error is not None else _examine_here(options)
    print("\n".join(lines))  # noqa: T201 - a command line program
    return code


def _options(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m helpers.doctor",
        description="Check this machine for the course, or for a file of yours; or look an error up.",
        epilog="One line a check: ok, warn (it runs, something is worse) or bad (it will fail), with what to do; the "
        "last line is for bug reports. Exit code 1 when a line is bad, or when nothing is known about the error.",
    )
    parser.add_argument(
        "--error", metavar="TEXT", help="say what an error, or what you see, means and what to do; - reads it"
    )
    parser.add_argument(
        "--data",
        metavar="PATH",
        type=Path,
        help="a folder: try its disk and its locks; an HDF5 file: also hold it and the queue of its batches against "
        "the free memory (without: the folder data, or this one)",
    )
    batches = parser.add_argument_group("with --data FILE, how it is trained on")
    batches.add_argument("--split", choices=layout.SPLITS, default="train", help="which images (default: train)")
    batches.add_argument("--images", metavar="NAME", help="name of the image dataset of a foreign file")
    batches.add_argument("--labels", metavar="NAME", help="name of its label dataset")
    for name, least, default, text in (
        ("batch_size", 1, Plan.batch_size, "images a batch"),
        ("max_queue_size", 1, Plan.max_queue_size, "batches made ahead"),
        ("workers", 0, Plan.workers, "threads or processes that make them"),
    ):
        option = "--" + name.replace("_", "-")
        text = f"{text} (default: {default})"
        batches.add_argument(option, metavar="N", type=_whole_number(least), default=default, help=text)
    options = parser.parse_args(argv)
    if (options.images is None) != (options.labels is None):
        parser.error("--images and --labels name a pair of datasets: give both or neither.")
    return options


def _whole_number(least: int):
    def convert(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"it must be a whole number, at least {least}; got {text}.")
        return int(text)

    return convert


def _look_up(text: str) -> tuple[list[str], int]:
    matches = find(sys.stdin.read() if text == "-" else text)
    if not matches:
        return ["Nothing found. Paste the last line of the error, or say in a sentence what you see."], 1
    first, *others = [match.entry for match in matches]
    return [str(first), *(f"Or is it this? {entry.number} · {entry.title} ({entry.code})" for entry in others)], 0


def _examine_here(options: argparse.Namespace) -> tuple[list[str], int]:
    checks = examine(*_place(options), writes=options.data is None)
    color = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    lines = [check.line(color=color) for check in checks]
    return [*lines, f"For bug reports: {summary(checks)}"], int(any(check.state == "bad" for check in checks))


def _place(options: argparse.Namespace) -> tuple[Path, Plan | None]:
    """The data folder, and the file if one was named."""
    if options.data is None:
        return (Path.cwd() / "data" if Path("data").is_dir() else Path.cwd()), None
    if _is_folder(options.data):
        return options.data, None
    names = ("split", "images", "labels", "batch_size", "max_queue_size", "workers")
    return options.data.parent, Plan(options.data, **{name: getattr(options, name) for name in names})


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:  # in a folder that may not be entered, for one
        return False


if __name__ == "__main__":
    sys.stdout.reconfigure(errors="backslashreplace")  # a name that the terminal's encoding lacks must not end this
    sys.exit(main())

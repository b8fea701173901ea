"""Check this machine for the course: ``python -m helpers.doctor``; look an error up: ``... --error "TEXT"``.

One line a check: ok, warn (it runs, something is worse) or bad (it will fail), with what to do. Exit code 1 when a line
is bad, or when the error is not known. Imports neither Keras nor TensorFlow; asks nvidia-smi for GPUs.

``--data FOLDER`` tries the disk of that folder instead of the one where the lessons write. ``--data FILE`` also looks
into the file with :mod:`helpers.inspector`, and holds it and the queue of its batches against the free memory. Without
a file nothing is said about queues: those of the lessons' pictures of 64 pixels take 7 MB, which tells nobody anything.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import multiprocessing
import os
import platform
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import h5py
import psutil
from packaging.requirements import Requirement  # comes with matplotlib
from packaging.specifiers import SpecifierSet

from helpers import layout, machine
from helpers.check import GB, Check, Plan, amount_check
from helpers.error_search import find
from helpers.folder_checks import disk, locking, locks_are_off
from helpers.machine import usable_cores
from helpers.words import printable

PROJECT = "hdf5-keras-kit"
MEMORY_GB, MEMORY_LEAST_GB = 2, 1  # Keras and a small model; lessons without Keras stay below 1 GB
GPU_GB, GPU_SHARE = 2, 0.1  # the CUDA libraries and a small model; a rest below a tenth is what another kernel left
SHM_GB = 0.25  # for a few batches of worker processes of other libraries; this kit's own do not use it
ADDRESSES_LEAST_GB = 4  # TensorFlow 2.21 maps 3.2 GB to train a small model on two cores
OPEN_FILES = 256  # Keras, a notebook and a few workers; systems allow 256 (macOS) or 1024
_BACKENDS = ("tensorflow", "jax")  # that the kit is tested on
_OTHER_BACKENDS = ("torch", "numpy", "openvino")
_WITHOUT_GPU = "all lessons run without a GPU"
_NVIDIA_ADVICE = (  # what nvidia-smi says, and what to do
    ("communicate with the NVIDIA driver", "load or install the driver: sudo modprobe nvidia, or restart the machine"),
    ("version mismatch", "the driver was updated: restart the machine"),
    ("Unknown Error", "the container lost its GPU: start the container again"),
    ("no answer", "the GPU or its driver hangs: restart the machine"),
    ("No devices", "ask for a GPU: --gpus all for a container, --gres=gpu:1 for a Slurm job"),
)


def examine(folder: Path, plan: Plan | None = None, *, writes: bool = True) -> list[Check]:
    """All checks; ``folder`` is where the data lie.

    ``writes``: files are written there too, as the lessons do; without, a folder that can only be read will do.
    """
    return [
        *([not_installed()] if _version(PROJECT) == "missing" else [python_version(), *packages()]),
        *_folder(folder, plan.file if plan else None, writes),
        memory(),
        *(_file(plan) if plan else ()),
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


def _folder(folder: Path, file: Path | None, writes: bool) -> Iterator[Check]:
    if file is not None and not folder.is_dir():
        return  # a wrong path: the check of the file says so
    if writes or os.access(folder, os.W_OK):  # a disk that is only read may be full
        yield disk(folder)
    yield locking(folder, file, writes=writes)


def _file(plan: Plan) -> Iterator[Check]:
    try:
        from helpers.file_checks import data_file  # of more packages, and the doctor is asked when one is missing
    except ImportError as error:
        yield Check("bad", f"{plan.file} was not looked into: {error}", "pip install -r requirements.txt")
    else:
        yield from data_file(plan)


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
    return amount_check(what, found.free, MEMORY_GB, MEMORY_LEAST_GB, advice)


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
        meaning = "copies of this process, which can hang once Keras has run; this kit's workers are none"
    else:
        meaning = "other libraries' pools need if __name__ == '__main__' in a script; this kit's workers need no guard"
    return Check("ok", f"processes start by {method} unless told otherwise: {meaning}")


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
    """One line that a bug report can carry: versions and sizes, nothing about the person; GPUs come from ``checks``."""
    shown = ("numpy", "tensorflow", "keras", "tf-keras", "jax", "jupyterlab")
    versions = ", ".join(f"{name} {_version(name)}" for name in shown)
    hdf5 = f"h5py {h5py.__version__} (HDF5 {h5py.version.hdf5_version})" + ", no locks" * locks_are_off()
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

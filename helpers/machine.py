"""What this process may use of the machine: cores, memory, open files, GPUs. Facts; helpers.doctor judges them.

Of memory that is the least of three: what the system could still give, what is left of the limits of the control groups
above this process (containers, jobs of a cluster, services), and what is left of ``ulimit -v``. Files that the system
keeps in memory count as free everywhere: a container that has read a large file is not full.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import subprocess
from collections.abc import Iterator
from ctypes.util import find_library
from dataclasses import dataclass
from pathlib import Path

import psutil

try:
    import resource
except ImportError:  # Windows
    resource = None

CONTAINER, ULIMIT = "container", "ulimit -v"
_NO_LIMIT = 2**62  # bytes; version 1 of control groups writes the largest number of pages instead of "max"
_ANSWER_S = 20  # for nvidia-smi: it takes a second or two on a machine of eight GPUs, and never ends on a broken one


def usable_cores() -> int:
    """Cores this process may run on, which a container or scheduler may have cut."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


# -- memory -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FreeMemory:
    """Bytes that this process can still use, and the limit that says so: CONTAINER, ULIMIT, or "" for the machine."""

    free: int
    bound: str = ""
    limit: int | None = None  # bytes; None: the machine itself


def free_memory() -> FreeMemory:
    """What is left of the tightest limit."""
    found = [FreeMemory(psutil.virtual_memory().available)]
    found += [FreeMemory(free, CONTAINER, limit) for limit, free in container_limits()]
    limit = address_limit()
    if limit is not None:
        found.append(FreeMemory(max(0, limit - psutil.Process().memory_info().vms), ULIMIT, limit))
    return min(found, key=lambda memory: memory.free)


def container_limit() -> int | None:
    """The tightest limit of a control group above this process, in bytes; None where there is none."""
    return min((limit for limit, _ in container_limits()), default=None)


def container_limits(
    root: Path = Path("/sys/fs/cgroup"), membership: Path = Path("/proc/self/cgroup")
) -> Iterator[tuple[int, int]]:
    """(limit, free) in bytes of each control group above this process that limits memory; none on other systems."""
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:  # version 2
            names = ("memory.max", "memory.current", ("inactive_file", "active_file"))
            yield from _limits(root, path, names)
        elif "memory" in controllers.split(","):
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", ("total_inactive_file", "total_active_file"))
            yield from _limits(root / "memory", path, names)


def _limits(base: Path, path: str, names: tuple) -> Iterator[tuple[int, int]]:
    """Limits from the group of this process up to ``base``; a container often sees only that, which is its own."""
    parts = [part for part in path.split("/") if part]
    if ".." in parts:  # a group outside of what this process can see
        parts = []
    for count in range(len(parts), -1, -1):
        with contextlib.suppress(OSError, ValueError):  # not there, not readable, or "max"
            yield _limit(base.joinpath(*parts[:count]), *names)


def _limit(folder: Path, limit_name: str, used_name: str, cached: tuple[str, ...]) -> tuple[int, int]:
    limit = int((folder / limit_name).read_text())
    if limit >= _NO_LIMIT:
        raise ValueError("no limit")
    used = int((folder / used_name).read_text())
    with contextlib.suppress(OSError, ValueError):
        pairs = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
        used -= sum(int(pairs.get(name, 0)) for name in cached)  # given back when somebody needs it
    return limit, min(limit, max(0, limit - used))


def address_limit() -> int | None:
    """Bytes of addresses that this process may have (``ulimit -v``); None: any number."""
    return _soft_limit("RLIMIT_AS")


def open_files_limit() -> int | None:
    """Files that this process may have open (``ulimit -n``); None: any number."""
    return _soft_limit("RLIMIT_NOFILE")


def _soft_limit(name: str) -> int | None:
    if resource is None or not hasattr(resource, name):
        return None
    soft = resource.getrlimit(getattr(resource, name))[0]
    return None if soft == resource.RLIM_INFINITY else soft


# -- GPUs -------------------------------------------------------------------------------------------------------------


class NvidiaSmiError(Exception):
    """nvidia-smi is there and tells nothing: its words."""


@dataclass(frozen=True)
class Gpu:
    """One GPU as nvidia-smi lists it; what it does not tell is None."""

    name: str
    total: int | None  # bytes
    free: int | None


@dataclass(frozen=True)
class GpuUser:
    """A process that holds memory of a GPU; ``used`` in bytes, None where nvidia-smi does not tell."""

    pid: int
    name: str  # without its folder
    used: int | None


def gpus() -> list[Gpu]:
    """NVIDIA GPUs; none where there is no nvidia-smi. Raises NvidiaSmiError when it fails, or does not answer."""
    if shutil.which("nvidia-smi") is None:
        return []
    lines = _ask_nvidia_smi("--query-gpu=name,memory.total,memory.free")
    found = [Gpu(parts[0].strip(), _mib(parts[1]), _mib(parts[2])) for parts in _columns(lines, 3)]
    if lines and not found:
        raise NvidiaSmiError(lines[0])
    return found


def gpu_users() -> list[GpuUser]:
    """Processes that hold memory of a GPU, as far as nvidia-smi tells: in a container it often names none."""
    try:
        lines = _ask_nvidia_smi("--query-compute-apps=pid,process_name,used_memory")
    except NvidiaSmiError:
        return []
    found = []
    for line in lines:
        pid, _, rest = line.partition(",")
        name, _, used = rest.rpartition(",")
        if pid.strip().isdecimal():
            found.append(GpuUser(int(pid), name.strip().replace("\\", "/").rpartition("/")[2], _mib(used)))
    return found


def has_cuda(package: str) -> bool:
    """Whether what "tensorflow" or "jax" needs to use a GPU is installed; imports neither."""
    if package == "jax":
        return any(importlib.util.find_spec(f"jax_cuda{version}_plugin") for version in (12, 13))
    return _is_importable("nvidia.cudnn") or find_library("cudnn") is not None  # by pip, or by the system


def _is_importable(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # of what is in front of the dot
        return False


def _columns(lines: list[str], count: int) -> list[list[str]]:
    """Lines with that many columns; names with a comma keep it."""
    rows = [line.rsplit(",", count - 1) for line in lines]
    return [row for row in rows if len(row) == count]


def _mib(text: str) -> int | None:
    """Bytes of a number of MiB; None for "[N/A]" and the like."""
    text = text.strip().removesuffix("MiB").strip()
    return int(text) * 2**20 if text.isdecimal() else None


def _ask_nvidia_smi(query: str) -> list[str]:
    command = ["nvidia-smi", query, "--format=csv,noheader,nounits"]
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
    except OSError as error:
        raise NvidiaSmiError(f"it cannot be started: {error.strerror}") from error
    try:
        said, _ = process.communicate(timeout=_ANSWER_S)
    except subprocess.TimeoutExpired:
        process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(1)  # no longer: what waits for a broken GPU cannot be killed
        process.stdout.close()
        raise NvidiaSmiError(f"no answer within {_ANSWER_S} s") from None
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    if process.returncode:
        raise NvidiaSmiError(lines[0] if lines else f"exit code {process.returncode}")
    return lines

"""Memory of a family of processes, as PSS. Linux only."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path

import psutil

MB = 1e6


@dataclass
class Peak:
    """The most memory of a family of processes; megabytes (1e6 bytes).

    The sum of PSS of heap and shared memory, and the program files of the process that maps most of them. Those count
    whole: in PSS they count less while programs outside of the family run the same libraries, which says nothing here.
    """

    megabytes: float = 0.0
    processes: tuple[dict, ...] = ()  # parts of each process at that time; the first is the oldest

    def look(self, pid: int) -> None:
        """Add what ``pid`` and its children use now."""
        parts = tuple(part for part in (memory_parts(process.pid) for process in family(pid)) if part)
        now = sum(part["heap_mb"] + part["shared_mb"] for part in parts)
        now += max((part["program_files_mb"] for part in parts), default=0.0)
        if now > self.megabytes:
            self.megabytes, self.processes = now, parts

    def as_dict(self) -> dict:
        return {"peak_mb": self.megabytes, "processes": self.processes}


def family(pid: int) -> list[psutil.Process]:
    """The process ``pid`` and all its descendants that are alive."""
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    return []


def memory_parts(pid: int) -> dict[str, float] | None:
    """PSS of one process; its heap and shared memory, as PSS, and all its program files. None: it has ended."""
    try:
        rollup, status = (_fields(Path(f"/proc/{pid}/{name}")) for name in ("smaps_rollup", "status"))
        return {
            "pss_mb": _mb(rollup["Pss"]),
            "heap_mb": _mb(rollup["Pss_Anon"]),
            "shared_mb": _mb(rollup["Pss_Shmem"]),
            "program_files_mb": _mb(status["RssFile"]),
        }
    except (OSError, KeyError):  # a process that ends loses its memory first
        return None


def _fields(file: Path) -> dict[str, str]:
    return dict(line.split(":", 1) for line in file.read_text().splitlines() if ":" in line)


def _mb(value: str) -> float:
    """``1234 kB`` in millions of bytes."""
    return int(value.split()[0]) * 1024 / MB

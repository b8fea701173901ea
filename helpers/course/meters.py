"""Meters for lessons: seconds of a function, megabytes above the start, and the share of a step that waits for data."""

from __future__ import annotations

import gc
import statistics
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil

_SAMPLE_S = 0.01  # between two looks at the memory: short enough to see one batch, long enough to cost under 1 %
_STATUS = Path("/proc/self/status")
_CLEAR_REFS = Path("/proc/self/clear_refs")
_MB = 1e6


@dataclass(frozen=True)
class Timing:
    """Seconds of each run of one function; ``items`` is what one run handles (images, rows)."""

    runs: tuple[float, ...]
    items: int = 1

    @property
    def seconds(self) -> float:
        """Median of the runs: one slow run, from another program on the machine, does not move it."""
        return statistics.median(self.runs)

    @property
    def per_second(self) -> float:
        """Items a second."""
        return self.items / self.seconds

    @property
    def seconds_per_item(self) -> float:
        return self.seconds / self.items

    def times_faster_than(self, other: Timing) -> float:
        """How many items this handles while ``other`` handles one."""
        return other.seconds_per_item / self.seconds_per_item

    def __str__(self) -> str:
        return f"{self.seconds:.3g} s (median of {len(self.runs)}), {self.per_second:,.0f} items/s"


def benchmark(function: Callable[[], object], *, repeat: int = 5, warmup: int = 1, items: int = 1) -> Timing:
    """Run ``function()`` ``warmup`` times unmeasured, then ``repeat`` times with a clock.

    Garbage collection waits meanwhile, as in ``timeit``. What the function returns is dropped before the next run.

    Raises
    ------
    ValueError
        ``repeat`` or ``items`` is below 1, or ``warmup`` below 0.
    """
    for name, value, lowest in (("repeat", repeat, 1), ("warmup", warmup, 0), ("items", items, 1)):
        if value < lowest:
            raise ValueError(f"{name} must be at least {lowest}; got {value}.")
    for _ in range(warmup):
        function()
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return Timing(tuple(_seconds_of(function) for _ in range(repeat)), items)
    finally:
        if was_enabled:
            gc.enable()


def _seconds_of(function: Callable[[], object]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


class MemoryMeter:
    """Context manager: the most memory used inside it, above what was used before.

    Parameters
    ----------
    children : count child processes too (PSS on Linux: a page shared by n processes counts 1/n for each).

    Attributes
    ----------
    baseline_mb : memory at the start, millions of bytes.
    peak_mb : the most memory above the baseline; final when the block has ended.

    On Linux the peak of the own process is the kernel's own mark, which misses nothing. Elsewhere, and for children,
    a thread looks every 10 ms, and a shorter peak can be missed.

    >>> with MemoryMeter() as meter:
    ...     block = bytearray(50_000_000)
    >>> 45 < meter.peak_mb < 60
    True
    """

    def __init__(self, children: bool = False):
        self.children = children
        self.baseline_mb = 0.0
        self.peak_mb = 0.0
        self._thread: threading.Thread | None = None

    def __enter__(self) -> MemoryMeter:
        gc.collect()
        self._stop = threading.Event()
        self._uses_mark = not self.children and _reset_peak_mark()
        self.baseline_mb = self._used_mb()
        self.peak_mb = 0.0
        if not self._uses_mark:
            self._thread = threading.Thread(target=self._sample, name="MemoryMeter")
            self._thread.start()
        return self

    def __exit__(self, *exc_info) -> None:
        if self._thread is not None:
            self._stop.set()
            self._thread.join()
            self._thread = None
        self._look()

    def __repr__(self) -> str:
        return f"MemoryMeter(children={self.children}): peak {self.peak_mb:.0f} MB above {self.baseline_mb:.0f} MB"

    def _sample(self) -> None:
        while not self._stop.wait(_SAMPLE_S):
            self._look()

    def _look(self) -> None:
        used = _status_mb("VmHWM") if self._uses_mark else self._used_mb()
        self.peak_mb = max(self.peak_mb, used - self.baseline_mb)

    def _used_mb(self) -> float:
        if self._uses_mark:
            return _status_mb("VmRSS")
        own = psutil.Process()
        if not self.children:
            return own.memory_info().rss / _MB
        return sum(_pss_mb(process) for process in [own, *own.children(recursive=True)])


def _reset_peak_mark() -> bool:
    """Set the kernel's mark of the peak to what is used now; False where that cannot be done."""
    try:
        _CLEAR_REFS.write_text("5")
        return _status_mb("VmHWM") < _status_mb("VmRSS") + 1  # some sandboxes take the write and do nothing
    except (OSError, StopIteration):
        return False


def _status_mb(field: str) -> float:
    """A line such as ``VmRSS:  42764 kB`` of this process's status."""
    lines = _STATUS.read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field + ":")) * 1024 / _MB


def _pss_mb(process: psutil.Process) -> float:
    try:
        full = process.memory_full_info()
        return getattr(full, "pss", full.rss) / _MB
    except psutil.Error:  # it has just ended
        return 0.0


def __getattr__(name: str):
    """``StallMeter`` is a Keras callback; the other meters must not cost lessons without Keras 600 MB."""
    if name == "StallMeter":
        from helpers.course.stall import StallMeter

        return StallMeter
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""From measurements to figures: targets, lines of text, rows of a table."""

from __future__ import annotations

from collections import Counter

from .big_file import IMAGE_BYTES
from .memory import MB

TARGETS = {"build_mb": 600, "training_mb": 1500, "first_batch_s": 2.0, "difference": 0.05}
EXACTLY_ONCE = "every row once"


def figures(result: dict) -> list[tuple[str, str, str]]:
    """(what, value, target) of each figure, as text for a table; the target is empty where there is none.

    ``result`` is what ``--json`` writes.
    """
    return [(what, value, target) for what, value, target, _ in _judged(result)]


def missed(result: dict) -> list[str]:
    """A phrase for each target that was not reached."""
    return [f"{what}: {value}, not {target}" for what, value, target, good in _judged(result) if not good]


def _judged(result: dict) -> list[tuple[str, str, str, bool]]:
    size, passes = f"{result['data']['gigabytes']:.3g} GB", result["passes"]
    rows = []
    if result["build"]:
        peak = result["build"]["peak_mb"]
        rows.append(_at_most(f"building {size}: peak memory", peak, TARGETS["build_mb"], "{:,.0f} MB"))
        rows.append((f"building {size}: speed", f"{result['build']['mb_per_second']:,.0f} MB/s", "", True))
    if passes:
        rows += _judged_training(size, passes)
    if difference := result.get("difference"):
        what = f"training on {size} against {difference['gigabytes']:.3g} GB: difference of peaks"
        rows.append(_at_most(what, difference["largest"], TARGETS["difference"], "{:.1%}"))
    for one in passes.values():
        rows.append((f"training on {size}, {_words(one)}", _speed(one), "", True))
    return rows


def _judged_training(size: str, passes: dict) -> list[tuple[str, str, str, bool]]:
    faults = sum((Counter(one["faults"]) for one in passes.values()), Counter())
    peak = max(one["peak_mb"] for one in passes.values())
    first = max(one["first_batch_s"] for one in passes.values())
    return [
        _at_most(f"training on {size}: peak memory", peak, TARGETS["training_mb"], "{:,.0f} MB"),
        (f"training on {size}: rows in each pass", _words_for(faults), EXACTLY_ONCE, not faults),
        _at_most(f"training on {size}: first batch after", first, TARGETS["first_batch_s"], "{:.1f} s"),
    ]


def _at_most(what: str, value: float, limit: float, text: str) -> tuple[str, str, str, bool]:
    return what, text.format(value), f"at most {text.format(limit)}", value <= limit


def _words(one: dict) -> str:
    """``full shuffle, cold, 2 threads``; of a warm pass the share that was in the cache, when it was not all."""
    cached = f" ({one['cached_before']:.0%} cached)" if one["cache"] == "warm" and one["cached_before"] < 0.995 else ""
    return f"{one['shuffle']} shuffle, {one['cache']}{cached}, {one['workers']}"


def _speed(one: dict) -> str:
    per_second = f"{one['images_per_second']:,.0f} images/s"
    if one["cache"] == "warm":
        return per_second
    return f"{per_second}, {_disk_share(one):.0%} of the disk's {one['disk_mb_per_second']:,.0f} MB/s"


def _disk_share(one: dict) -> float:
    """Rate of a cold pass against plain reads of the same file."""
    return one["images_per_second"] * IMAGE_BYTES / MB / one["disk_mb_per_second"]


def _words_for(faults: dict[str, int]) -> str:
    return ", ".join(f"{count:,} {fault}" for fault, count in faults.items() if count) or EXACTLY_ONCE


def difference(result: dict, other: dict) -> dict:
    """How far the peaks of equal passes lie apart in two results."""
    both = [key for key in result["passes"] if key in other["passes"]]
    apart = {key: result["passes"][key]["peak_mb"] / other["passes"][key]["peak_mb"] - 1 for key in both}
    return {"gigabytes": other["data"]["gigabytes"], "passes": apart, "largest": max(map(abs, apart.values()))}


def build_line(build: dict) -> str:
    return (
        f"build: {build['seconds']:.0f} s, {build['images_per_second']:,.0f} images/s, "
        f"{build['mb_per_second']:,.0f} MB/s; peak {build['peak_mb']:,.0f} MB"
    )


def pass_line(name: str, one: dict) -> str:
    return (
        f"{name}: {_speed(one)}; first batch after {one['first_batch_s']:.2f} s; "
        f"{one['cached_before']:.0%} of the file cached before, {one['read_from_disk']:.1%} read from the disk; "
        f"peak {one['peak_mb']:,.0f} MB; {_words_for(one['faults'])}"
    )

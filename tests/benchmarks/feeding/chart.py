"""The rates of a run as one picture: a bar a contender, the kit's own in blue."""

from __future__ import annotations

import statistics

from matplotlib.figure import Figure

from helpers.course.style import BLUE, GREY, SKY, new_figure, number, png_bytes, styled

from .figures import OURS

WORKS = ("raw", "gzip", "augmented")


def chart_bytes(result: dict) -> bytes:
    """PNG of the rates that ``feed.py`` stores."""
    return png_bytes(rates_chart(result))


@styled
def rates_chart(result: dict) -> Figure:
    """Median images a second of each contender on a scale of powers of ten, fastest first, a block a kind of work."""
    medians = {key: statistics.median(values) for key, values in result["rates"].items()}
    fastest = sorted(medians, key=medians.get, reverse=True)
    blocks = {work: [key for key in fastest if _work(key) == work] for work in WORKS}
    blocks = {work: keys for work, keys in blocks.items() if keys}
    figure = new_figure(1 + 0.3 * len(medians) + 0.5 * len(blocks), _alt(blocks, medians, result["words"]))
    heights = [len(keys) for keys in blocks.values()]
    all_axes = figure.subplots(len(blocks), sharex=True, squeeze=False, height_ratios=heights)[:, 0]
    for axes, (work, keys) in zip(all_axes, blocks.items(), strict=True):
        _block(axes, work, keys, medians, result["words"])
    all_axes[-1].set_xlabel("images a second")
    return figure


def _alt(blocks: dict[str, list[str]], medians: dict[str, float], words: dict[str, str]) -> str:
    lists = {work: "; ".join(f"{words[key]} {medians[key]:,.0f}" for key in keys) for work, keys in blocks.items()}
    return " ".join(f"{work}, images a second: {text}." for work, text in lists.items())


def _block(axes, work: str, keys: list[str], medians: dict[str, float], words: dict[str, str]) -> None:
    bars = axes.barh(range(len(keys)), [medians[key] for key in keys], color=[_colour(key) for key in keys])
    axes.bar_label(bars, [number(medians[key]) for key in keys], padding=3)
    axes.set_yticks(range(len(keys)), [words[key] for key in keys])
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_title(work)
    axes.grid(axis="y", visible=False)
    axes.margins(x=0.15)


def _colour(key: str) -> str:
    name = key.partition(": ")[2]
    return BLUE if name in {*OURS, "1 worker"} else GREY if name == "roofline" else SKY


def _work(key: str) -> str:
    return key.partition(": ")[0]

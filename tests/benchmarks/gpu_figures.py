"""From the rates of ``gpu.py`` to its figures, its chart, and what README says of them."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

BEGIN, END = "<!-- gpu:begin -->", "<!-- gpu:end -->"
GPU_MODEL = "InceptionV3 at 299x299"
WORDS = {
    "constant": "one constant batch, no file",
    "sequence": "HDF5Sequence",
    "rows": "a generator, row by row",
    "list": "a generator, list index",
}
BACKENDS = {"tensorflow": "TensorFlow", "jax": "JAX"}


@dataclass(frozen=True)
class Run:
    """One training: images a second, and the share of the time that steps waited for data."""

    rate: float
    share: float


@dataclass(frozen=True)
class Figure:
    """A median over the rounds, with its smallest and largest value; ``reached`` is None where there is no target."""

    words: str
    value: float
    low: float
    high: float
    unit: str
    target: float | None = None
    reached: bool | None = None


FIGURES = {  # name: words, unit, target, and what a round says
    "constant": ("HDF5Sequence, against one constant batch", "times", 0.98, lambda runs: _ratio(runs, "constant")),
    "stall": ("share of the steps that waited for data", "share", 0.02, lambda runs: runs["sequence"].share),
    "rows": ("HDF5Sequence, against row by row", "times", None, lambda runs: _ratio(runs, "rows")),
    "list": ("HDF5Sequence, against a list index", "times", None, lambda runs: _ratio(runs, "list")),
}


def figures(rounds: list[dict[str, Run]]) -> dict[str, Figure]:
    """All figures, each the median of what the rounds say."""
    made = {}
    for name, (words, unit, target, of_round) in FIGURES.items():
        values = [of_round(runs) for runs in rounds]
        value = statistics.median(values)
        reached = None if target is None else value >= target if unit == "times" else value <= target
        made[name] = Figure(words, value, min(values), max(values), unit, target, reached)
    return made


def line(figure: dict) -> str:
    """One line of the printed table."""
    low, high = (shown(figure[end], figure["unit"]) for end in ("low", "high"))
    text = f"{figure['words']:44} {shown(figure['value'], figure['unit']):>7}  ({low} to {high})"
    if figure["target"] is None:
        return text
    side = "at least" if figure["unit"] == "times" else "at most"
    verdict = "reached" if figure["reached"] else "NOT REACHED"
    return f"{text}  {side} {shown(figure['target'], figure['unit'])}: {verdict}"


def shown(value: float, unit: str) -> str:
    """Cut, not rounded: 0.979 is not shown as 0.98."""
    return f"{100 * value:.1f}%" if unit == "share" else f"{int(value * 100) / 100:g}x"


def new_readme(text: str, stored: dict[str, dict]) -> str:
    """README's text with the lines about a GPU. Raises ValueError when it has no place for them."""
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        raise ValueError(f"README.md has no place for the GPU table. Put {BEGIN} and {END} into it, once each.")
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    return f"{before}{BEGIN}\n{section(stored)}\n{END}{after}"


def section(stored: dict[str, dict]) -> str:
    """README's table from the stored JSON of each backend; what was not measured is said to be so."""
    lines = [f"| on a GPU, {GPU_MODEL} | {' | '.join(BACKENDS.values())} | target |", "| --- | --- | --- | --- |"]
    for name, (words, unit, target, _) in FIGURES.items():
        values = " | ".join(_cell(stored.get(backend), name) for backend in BACKENDS)
        sign = "" if target is None else ("≥ " if unit == "times" else "≤ ") + shown(target, unit)
        lines.append(f"| {words} | {values} | {sign} |")
    said = [
        f"{BACKENDS[backend]}: measured on {result['date']}, {result['device']}, batches of "
        f"{result['settings']['batch_size']}."
        for backend, result in stored.items()
    ]
    missing = [words for backend, words in BACKENDS.items() if backend not in stored]
    if missing:
        said.append(f"No GPU was at hand for {' and '.join(missing)}: these figures are yet to be measured.")
    said.append("`python tests/benchmarks/gpu.py` prints the table, in a few minutes.")
    return "\n".join([*lines, "", " ".join(said)])


def chart_bytes(medians: dict[str, float], device: str) -> bytes:
    """PNG of the median rates: a bar a way, the kit's own in blue."""
    from helpers.course.style import BLUE, GREY, SKY, new_figure, number, png_bytes, styled

    @styled
    def chart():
        names = sorted(medians, key=medians.get, reverse=True)
        text = "; ".join(f"{WORDS[name]} {medians[name]:,.0f}" for name in names)
        figure = new_figure(2.4, f"Images a second on {device}: {text}.")
        axes = figure.subplots()
        colours = {"sequence": BLUE, "constant": GREY}
        bars = axes.barh(range(len(names)), [medians[name] for name in names],
                         color=[colours.get(name, SKY) for name in names])  # fmt: skip
        axes.bar_label(bars, [number(medians[name]) for name in names], padding=3)
        axes.set_yticks(range(len(names)), [WORDS[name] for name in names])
        axes.invert_yaxis()
        axes.set(xlabel="images a second", title=device)
        axes.margins(x=0.15)
        axes.grid(axis="y", visible=False)
        return figure

    return png_bytes(chart())


def _ratio(runs: dict[str, Run], other: str) -> float:
    return runs["sequence"].rate / runs[other].rate


def _cell(stored: dict | None, name: str) -> str:
    if stored is None:
        return "yet to be measured"
    figure = stored["figures"][name]
    return shown(figure["value"], figure["unit"]) + ("" if figure["reached"] is not False else ", not reached")

"""From rates to figures: ratios within a round, targets, the table that is printed and the one in README."""

from __future__ import annotations

import math
import operator
import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass

BEGIN, END = "<!-- speed:begin -->", "<!-- speed:end -->"
OURS = ("2 threads", "2 processes")
PEERS = ("PyDataset", "from_generator", "tfrecord", "PyTorch", "Grain")

Rates = dict[str, list[float]]  # "work: name" -> images a second, one a round
Large = tuple[dict, list[tuple[str, str, str]]]  # the stored JSON of scale.py, and the rows that it makes of it


@dataclass(frozen=True)
class Target:
    """A figure to reach. A ratio is ``upper`` over ``lower``; of several names on one side the best counts."""

    name: str
    words: str
    value: float
    unit: str  # "times": at least; "s": at most
    work: str = ""
    upper: tuple[str, ...] = ()
    lower: tuple[str, ...] = ()

    @property
    def at_least(self) -> bool:
        return self.unit == "times"


@dataclass(frozen=True)
class Figure:
    """What was measured for a target: the median, and the smallest and the largest of the rounds."""

    name: str
    words: str
    value: float
    low: float
    high: float
    target: float
    unit: str
    reached: bool
    against: str = ""  # the best on the other side


TARGETS = (
    Target("threads", "2 threads, against Keras fed one constant batch", 0.65, "times", "raw", OURS[:1], ("roofline",)),
    Target(
        "processes", "2 processes, against Keras fed one constant batch", 0.65, "times", "raw", OURS[1:], ("roofline",)
    ),
    Target("chunked", "against a list index, one-image chunks", 150, "times", "raw", OURS, ("list index, chunked",)),
    Target(
        "contiguous", "against a list index, contiguous file", 12, "times", "raw", OURS, ("list index, contiguous",)
    ),
    Target("keras", "against Keras' own 2 processes", 15, "times", "raw", OURS, ("keras processes",)),
    Target("peers", "against the best peer", 2.5, "times", "raw", OURS, PEERS),
    Target(
        "legacy", "augmented, against ImageDataGenerator.apply_transform", 28, "times", "augmented", OURS, ("legacy",)
    ),
    Target("augmented peers", "augmented, against the best peer with OpenCV", 1.5, "times", "augmented", OURS, PEERS),
    Target("gzip workers", "gzip, 2 workers against 1", 1.6, "times", "gzip", OURS, ("1 worker",)),
    Target("gzip peers", "gzip, against the best peer", 1.6, "times", "gzip", OURS, PEERS),
    Target("first batch, threads", "first batch after construction, 2 threads", 2, "s"),
    Target("first batch, processes", "first batch after construction, 2 processes", 2, "s"),
    Target("pause, threads", "pause between epochs beyond Keras' own, 2 threads", 0.1, "s"),
    Target("pause, processes", "pause between epochs beyond Keras' own, 2 processes", 0.1, "s"),
    Target("kill", "from SIGKILL of a worker to a clear error", 5, "s"),
)


def rate_key(work: str, name: str) -> str:
    """How a contender is called among the rates."""
    return f"{work}: {name}"


def figures(rates: Rates, seconds: dict[str, list[float]], targets: Iterable[Target] = TARGETS) -> list[Figure]:
    """All figures whose contenders were measured, in the order of the targets."""
    made = (_ratio(target, rates) if target.at_least else _seconds(target, seconds) for target in targets)
    return [figure for figure in made if figure is not None]


def missed(measured: Iterable[Figure]) -> list[str]:
    """Words of the figures that were not reached."""
    return [figure.words for figure in measured if not figure.reached]


def line(figure: Figure) -> str:
    """One line of the printed table."""
    side, sign = ("at least" if figure.unit == "times" else "at most"), _shown(figure.target, figure.unit)
    return (
        f"{figure.words:58} {_shown(figure.value, figure.unit):>8}  ({_shown(figure.low, figure.unit)} to "
        f"{_shown(figure.high, figure.unit)})  {side} {sign}: {'reached' if figure.reached else 'NOT REACHED'}"
        + (f"  [{figure.against}]" if figure.against else "")
    )


def rates_table(rates: Rates, words: dict[str, str]) -> str:
    """Median, smallest and largest rate of each contender, the fastest of each work first."""
    lines, last = [], ""
    for key in sorted(rates, key=lambda key: (_work(key), -statistics.median(rates[key]))):
        if _work(key) != last:
            last = _work(key)
            lines.append(f"{last}, img/s")
        values = rates[key]
        lines.append(
            f"  {words.get(key, key):62} {statistics.median(values):>9,.0f}  ({min(values):,.0f} to {max(values):,.0f})"
        )
    return "\n".join(lines)


def speed_table(stored: dict, large: Large | None = None) -> str:
    """README's tables out of the stored JSON of a run, and of a run of ``scale.py`` over a large file."""
    machine = stored["machine"]
    peers = ", ".join(name for name in PEERS if rate_key("raw", name) in stored["rates"])
    sentence = (
        f"Measured on {stored['date']} with {machine['cores']} cores ({machine['cpu']}), Python {machine['python']}: "
        f"{stored['images']:,} images of 299x299x3 in the page cache, batches of 64, shuffled; medians of "
        f"{stored['rounds']} rounds, each ratio within a round, every row verified. The best peer is the fastest of "
        f"{peers}. `python tests/benchmarks/feed.py` prints the table, all rates and their spread."
    )
    table = [*_HEADER, *map(_row, stored["figures"])]
    return "\n".join(["## How fast", "", *table, "", sentence, *(_large_table(*large) if large else ())])


def new_readme(text: str, stored: dict, large: Large | None = None) -> str:
    """README's text with the tables of ``stored`` and ``large``. Raises ValueError when it has no place for them."""
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        raise ValueError(f"README.md has no place for the speed table. Put {BEGIN} and {END} into it, once each.")
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    return f"{before}{BEGIN}\n{speed_table(stored, large)}\n\n{END}{after}"


def _large_table(large: dict, figures_of_it: list[tuple[str, str, str]]) -> list[str]:
    machine = large["machine"]
    rows = (f"| {what} | {value} | {target.replace('at most', '≤')} |" for what, value, target in figures_of_it)
    sentence = (
        f"Measured on {machine['date']} with {machine['cores']} cores and {machine['memory_gb']:.0f} GB of memory: "
        f"{large['data']['images']:,} images, written and trained on by a tiny model, batches of 64. Memory is that of "
        "all processes together. `python tests/benchmarks/scale.py` prints the table."
    )
    return ["", *_HEADER, *rows, "", sentence]


_HEADER = ["| figure | measured | target |", "| --- | --- | --- |"]


def _ratio(target: Target, rates: Rates) -> Figure | None:
    upper, lower = (_best(target.work, names, rates) for names in (target.upper, target.lower))
    if upper is None or lower is None:
        return None
    ratios = list(map(operator.truediv, rates[upper], rates[lower]))
    against = lower.partition(": ")[2] if len(target.lower) > 1 else ""
    return _figure(target, ratios, against)


def _seconds(target: Target, seconds: dict[str, list[float]]) -> Figure | None:
    return _figure(target, seconds[target.name], "") if target.name in seconds else None


def _figure(target: Target, values: list[float], against: str) -> Figure:
    value = statistics.median(values)
    reached = value >= target.value if target.at_least else value <= target.value
    return Figure(
        target.name, target.words, value, min(values), max(values), target.value, target.unit, reached, against
    )


def _best(work: str, names: tuple[str, ...], rates: Rates) -> str | None:
    """The contender with the highest median of those that were measured."""
    there = [key for key in (rate_key(work, name) for name in names) if key in rates]
    return max(there, key=lambda key: statistics.median(rates[key]), default=None)


def _row(figure: dict) -> str:
    target = ("≥ " if figure["unit"] == "times" else "≤ ") + _shown(figure["target"], figure["unit"])
    against = f" ({figure['against']})" if figure["against"] else ""
    mark = "" if figure["reached"] else ", not reached"
    return f"| {figure['words']}{against} | {_shown(figure['value'], figure['unit'])} | {target}{mark} |"


def _work(key: str) -> str:
    return key.partition(": ")[0]


def _shown(value: float, unit: str) -> str:
    """Two digits that count, rounded away from the target: a ratio of 0.648 is not shown as 0.65."""
    if unit == "s":
        return f"{math.ceil(value * 100) / 100:g} s"
    digits = 2 if value < 1 else 1 if value < 100 else 0
    return f"{math.floor(value * 10**digits) / 10**digits:g}x"


def table_of(measured: Iterable[Figure], show: Callable[[Figure], str] = line) -> str:
    """The printed table."""
    return "\n".join(show(figure) for figure in measured)

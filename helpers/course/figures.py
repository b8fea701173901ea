"""Pictures of the lessons: charts here, diagrams from ``diagrams``, all in the look of ``style``.

Every function returns a matplotlib ``Figure`` whose ``alt`` says in words what it shows; pyplot stays untouched.
``show(figure)`` puts it into the notebook.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.colors import BoundaryNorm, ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from helpers.course.diagrams import batch_life, chunks_and_reads, chunks_touched, file_tree, fork_and_handles
from helpers.course.style import (
    BLUE,
    CYCLE,
    FONT_PT,
    GREY,
    ORANGE,
    PINK,
    SKY,
    WIDTH_IN,
    join,
    lead,
    new_figure,
    number,
    png_bytes,
    show,
    styled,
    use_style,
    wrap,
)
from helpers.words import count_text

__all__ = [
    "bar_panels",
    "bars",
    "batch_life",
    "chunks_and_reads",
    "chunks_touched",
    "class_counts",
    "confusion_matrix",
    "curves",
    "file_tree",
    "fork_and_handles",
    "image_grid",
    "order_strip",
    "png_bytes",
    "show",
    "stall_shares",
    "timeline",
    "timelines",
    "use_style",
]


@styled
def image_grid(images, titles: Sequence | None = None, *, columns: int | None = None, title: str = "") -> Figure:
    """Show images side by side.

    ``images`` is (n, height, width, 3) uint8, or a list of images; ``titles`` has one text an image.
    Raises ValueError when there are no images, or not as many titles as images.
    """
    images = list(images)
    titles = [""] * len(images) if titles is None else [str(text) for text in titles]
    if not images or len(titles) != len(images):
        raise ValueError(f"image_grid needs one title an image; got {len(images)} images and {len(titles)} titles.")
    columns = columns or min(len(images), 6)
    rows = math.ceil(len(images) / columns)
    side = WIDTH_IN / columns
    # A class name such as greek_salad may take two lines; an argument such as width_shift=0.3 stays as it is.
    texts = [wrap(text.replace("_", " ") if text.isidentifier() else text, side) for text in titles]
    lines = max(text.count("\n") + 1 for text in texts) if any(texts) else 0
    tall = max(image.shape[0] / image.shape[1] for image in images)
    alt = f"{count_text(len(images), 'image')} in {count_text(rows, 'row')} of {columns}"
    figure = new_figure(rows * (side * min(tall, 2) + 0.2 * lines) + (0.35 if title else 0.05), alt)
    figure.alt += f": {join(titles)}." if any(titles) else "."
    if title:
        figure.suptitle(title, x=0.01, ha="left")
        figure.alt = f"{title}. {figure.alt}"
    for axes in (grid := figure.subplots(rows, columns, squeeze=False).ravel()):
        axes.set_axis_off()
    for axes, image, text in zip(grid, images, texts, strict=False):
        axes.imshow(image, interpolation="nearest" if image.shape[0] < 96 else "antialiased")
        axes.set_title(text, fontsize=FONT_PT, fontweight="normal", loc="center")
    return figure


@styled
def bars(
    labels: Sequence[str],
    values: Sequence[float],
    unit: str,
    *,
    log: bool = False,
    title: str = "",
    highlight: str | None = None,
) -> Figure:
    """Compare a few values, first label on top: a ladder of speeds. ``highlight`` names the bar to stress.

    Raises ValueError when labels and values differ in number, or a log scale is asked for values of 0 or less.
    """
    labels, values = [str(label) for label in labels], [float(value) for value in values]
    if len(labels) != len(values) or not labels:
        raise ValueError(f"bars needs one value a label; got {len(labels)} labels and {len(values)} values.")
    if log and min(values) <= 0:
        raise ValueError(
            f"a log scale needs values above 0; got {min(values):g} for {labels[int(np.argmin(values))]!r}."
        )
    texts = [wrap(label, 2.3) for label in labels]
    lines = sum(max(1, text.count("\n") + 1) for text in texts)
    shown = [f"{label}: {number(value)}" for label, value in zip(labels, values, strict=True)]
    scale = ", log scale" if log else ""
    figure = new_figure(
        0.9 + 0.22 * len(labels) + 0.2 * lines, f"{lead(title)}Bars in {unit}{scale}. {'; '.join(shown)}."
    )
    axes = figure.subplots()
    colors = [ORANGE if label == highlight else BLUE for label in labels]
    drawn = axes.barh(range(len(labels)), values, color=colors, height=0.72, log=log)
    axes.bar_label(drawn, [number(value) for value in values], padding=4, fontsize=FONT_PT)
    axes.set(xlabel=unit + scale, title=title, ylim=(len(labels) - 0.5, -0.5))
    axes.set_yticks(range(len(labels)), texts)
    axes.grid(visible=False, axis="y")
    _room_for_labels(axes, values, log)
    return figure


def _room_for_labels(axes, values, log: bool) -> None:
    if log:
        low = 10 ** math.floor(math.log10(min(values)) - 0.01)
        axes.set_xlim(low, max(values) * (max(values) / low) ** 0.2)
    else:
        axes.set_xlim(min(0, *values) * 1.15, max(0, *values) * 1.18 or 1)


@styled
def bar_panels(
    labels: Sequence[str], panels: Mapping[str, Sequence[float]], *, title: str = "", highlight: str | None = None
) -> Figure:
    """Compare a few things by several measures, side by side: ``panels`` maps a unit to one value a label.

    Raises ValueError when a panel has not as many values as there are labels.
    """
    labels = [str(label) for label in labels]
    panels = {str(unit): [float(value) for value in values] for unit, values in panels.items()}
    if not labels or not panels or any(len(values) != len(labels) for values in panels.values()):
        got = ", ".join(f"{unit}: {len(values)}" for unit, values in panels.items()) or "no panels"
        raise ValueError(f"bar_panels needs one value a label in each panel; got {len(labels)} labels and {got}.")
    alt = "; ".join(
        f"{unit}: " + ", ".join(f"{label} {number(value)}" for label, value in zip(labels, values, strict=True))
        for unit, values in panels.items()
    )
    figure = new_figure(1.0 + 0.42 * len(labels), f"{lead(title)}Bars in {len(panels)} panels. {alt}.")
    if title:
        figure.suptitle(title, x=0.01, ha="left")
    colors = [ORANGE if label == highlight else BLUE for label in labels]
    all_axes = figure.subplots(1, len(panels), sharey=True, squeeze=False).ravel()
    for axes, (unit, values) in zip(all_axes, panels.items(), strict=True):
        drawn = axes.barh(range(len(labels)), values, color=colors, height=0.72)
        axes.bar_label(drawn, [number(value) for value in values], padding=4, fontsize=FONT_PT)
        axes.set_title(wrap(unit, 5.2 / len(panels)), fontsize=FONT_PT, fontweight="normal")
        axes.set(xticks=[], xlim=(0, 1.6 * max(0, *values) or 1), ylim=(len(labels) - 0.5, -0.5))
        axes.spines["bottom"].set_visible(False)
        axes.tick_params(length=0)
        axes.grid(visible=False)
    all_axes[0].set_yticks(range(len(labels)), [wrap(label, 1.5) for label in labels])
    return figure


@styled
def curves(history, *, title: str = "", x: str = "epoch", y: str | None = None) -> Figure:
    """Draw training curves; ``NAME`` and ``val_NAME`` share a panel, validation dashed.

    ``history`` is what fit returns, or a dict of name -> values. With ``y`` all series share one panel of that label:
    ``curves({"plain": [...], "augmented": [...]}, y="validation accuracy")``.
    Raises ValueError when there is nothing to draw.
    """
    series = {name: [float(value) for value in values] for name, values in getattr(history, "history", history).items()}
    if not any(series.values()):
        raise ValueError("curves has nothing to draw: the history is empty. Train for at least one epoch.")
    panels: dict[str, list[str]] = {}
    for name in series:
        panels.setdefault(y or name.removeprefix("val_"), []).append(name)
    ends = "; ".join(
        f"{name} from {number(values[0])} to {number(values[-1])}" for name, values in series.items() if values
    )
    figure = new_figure(3.2 * math.ceil(len(panels) / 2), f"{lead(title)}Curves over each {x}: {ends}.")
    if title:
        figure.suptitle(title, x=0.01, ha="left")
    grid = figure.subplots(math.ceil(len(panels) / 2), min(2, len(panels)), squeeze=False).ravel()
    for axes, (label, names) in zip(grid, panels.items(), strict=False):
        _draw_panel(axes, {name: series[name] for name in names}, paired=y is None)
        axes.set(xlabel=x, ylabel=label.replace("_", " "))
    for axes in grid[len(panels) :]:
        axes.set_axis_off()
    return figure


def _draw_panel(axes, series: Mapping[str, list[float]], *, paired: bool) -> None:
    for place, (name, values) in enumerate(series.items()):
        held_out = paired and name.startswith("val_")
        label = ("validation" if held_out else "training") if paired else name
        style = (
            {"color": ORANGE, "linestyle": "--", "marker": "s"}
            if held_out
            else {"color": CYCLE[place % 8], "marker": "o"}
        )
        axes.plot(range(1, len(values) + 1), values, label=label, **style)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8))
    if max(len(values) for values in series.values()) == 1:
        axes.set(xlim=(0.5, 1.5), xticks=[1])
    axes.legend()


@styled
def class_counts(counts, class_names: Sequence[str] | None = None, *, title: str = "") -> Figure:
    """Show how many images each class has. ``counts`` is (classes,) integers, or split name -> (classes,) integers.

    Raises ValueError when the splits differ in their number of classes.
    """
    splits = {str(name): np.asarray(values) for name, values in _as_mapping(counts).items()}
    k = len(next(iter(splits.values())))
    names = [str(name) for name in (class_names if class_names is not None else range(k))]
    if any(values.shape != (k,) for values in splits.values()) or len(names) != k:
        raise ValueError(f"class_counts needs {len(names)} counts a split; got {[v.shape for v in splits.values()]}.")
    total = np.sum(list(splits.values()), axis=0)
    alt = f"{lead(title)}Images a class: {int(total.sum())} images of {k} classes; "
    alt += f"most {names[int(total.argmax())]} ({total.max()}), fewest {names[int(total.argmin())]} ({total.min()})."
    draw = _counts_by_name if k <= 20 else _counts_by_number
    return draw(splits, names, title, alt)


def _as_mapping(counts) -> Mapping:
    return counts if isinstance(counts, Mapping) else {"images": counts}


def _counts_by_name(splits, names, title, alt) -> Figure:
    figure = new_figure(1.3 + 0.28 * len(names), alt)
    axes, left = figure.subplots(), np.zeros(len(names), int)
    for color, (split, values) in zip(CYCLE, splits.items(), strict=False):
        axes.barh(range(len(names)), values, left=left, color=color, height=0.75, label=split, edgecolor="white")
        left = left + values
    axes.set(xlabel="images", ylim=(len(names) - 0.5, -0.5), title=title)
    axes.set_yticks(range(len(names)), [wrap(name, 2) for name in names])
    axes.grid(visible=False, axis="y")
    if len(splits) > 1:
        figure.legend(loc="outside lower center", ncols=len(splits))
    return figure


def _counts_by_number(splits, names, title, alt) -> Figure:
    figure = new_figure(3.2, alt)
    axes, low = figure.subplots(), np.zeros(len(names), int)
    for color, (split, values) in zip(CYCLE, splits.items(), strict=False):
        axes.bar(range(len(names)), values, bottom=low, color=color, width=1.0, label=split)
        low = low + values
    axes.set(xlabel=f"class number, 0 ({names[0]}) to {len(names) - 1} ({names[-1]})", ylabel="images", title=title)
    axes.set_xlim(-0.5, len(names) - 0.5)
    axes.grid(visible=False, axis="x")
    if len(splits) > 1:
        figure.legend(loc="outside lower center", ncols=len(splits))
    return figure


@styled
def order_strip(
    strips: Mapping[str, Sequence[int]],
    *,
    kind: str = "class",
    class_names: Sequence[str] | None = None,
    batch_size: int | None = None,
    title: str = "",
) -> Figure:
    """Show what was served when: one strip a name, left to right, one coloured line an image.

    ``strips`` maps a name to (n,) class numbers (``kind="class"``) or row numbers (``kind="row"``) in the order served.
    A well shuffled epoch looks like noise; a class-sorted file shows blocks.
    """
    strips = {name: np.asarray(values) for name, values in strips.items()}
    if kind not in {"class", "row"} or not strips or not all(values.size for values in strips.values()):
        raise ValueError(f"order_strip needs strips with images and kind 'class' or 'row'; got kind {kind!r}.")
    highest = max(int(values.max()) for values in strips.values())
    few = kind == "class" and highest < len(CYCLE)
    alt = f"{lead(title)}Order in which images are served, by {kind}. " + "; ".join(
        f"{name}: {len(values)} images, {_changes(values, kind)}" for name, values in strips.items()
    )
    figure = new_figure(1.1 + 0.65 * len(strips) + (0.4 if few else 0.0), alt + ".")
    grid = figure.subplots(len(strips), 1, squeeze=False).ravel()
    colors = (
        {"cmap": ListedColormap(CYCLE), "norm": BoundaryNorm(np.arange(9) - 0.5, 8)}
        if few
        else {"vmin": 0, "vmax": highest}
    )
    for axes, (name, values) in zip(grid, strips.items(), strict=True):
        drawn = axes.imshow(
            values[None, :], aspect="auto", interpolation="nearest", extent=(0, len(values), 0, 1), **colors
        )
        axes.set_title(name, fontsize=FONT_PT, fontweight="normal", pad=3)
        axes.set_yticks([])
        axes.grid(visible=False)
        if axes is not grid[-1] and len(values) == len(strips[list(strips)[-1]]):
            axes.set_xticks([])
        for edge in np.arange(batch_size, len(values), batch_size) if batch_size else ():
            axes.axvline(edge, color="white", linewidth=1)
    grid[-1].set_xlabel("position" + (f" (white lines: batches of {batch_size})" if batch_size else ""))
    if title:
        figure.suptitle(title, x=0.01, ha="left")
    if few:
        names = class_names if class_names is not None else [f"class {k}" for k in range(highest + 1)]
        handles = [Patch(color=CYCLE[k], label=str(names[k])) for k in range(highest + 1)]
        figure.legend(handles=handles, loc="outside lower center", ncols=4, columnspacing=1.2, handlelength=1.2)
    else:
        figure.colorbar(drawn, ax=list(grid), label="class number" if kind == "class" else "row in the file", pad=0.02)
    return figure


def _changes(values: np.ndarray, kind: str) -> str:
    if kind == "class":
        changes = int(np.count_nonzero(np.diff(values)))
        return f"the class changes {changes} times of {len(values) - 1}"
    steps = int(np.count_nonzero(np.diff(values) == 1))
    return f"{steps} of {len(values) - 1} images follow their neighbour in the file"


@styled
def confusion_matrix(matrix, class_names: Sequence[str] | None = None, *, title: str = "") -> Figure:
    """Show (classes, classes) counts, true classes down, predicted ones across; colour is the share of the row."""
    matrix = np.asarray(matrix)
    k = len(matrix)
    names = [str(name) for name in (class_names if class_names is not None else range(k))]
    if matrix.shape != (k, k) or len(names) != k:
        raise ValueError(f"a confusion matrix is (classes, classes); got shape {matrix.shape} and {len(names)} names.")
    share = matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1)
    right = np.trace(matrix) / max(matrix.sum(), 1)
    alt = f"{lead(title)}Confusion matrix of {int(matrix.sum())} images: {right:.0%} right"
    if worst := _worst_pair(matrix, names):
        alt += f"; most common mistake: {worst}"
    figure = new_figure(min(6.4, 2.2 + 0.5 * k), alt + ".")
    axes = figure.subplots()
    drawn = axes.imshow(share, cmap="Blues", vmin=0, vmax=1, interpolation="nearest")
    axes.set(xlabel="predicted", ylabel="true", title=title)
    axes.grid(visible=False)
    if k <= 24:
        axes.set_xticks(range(k), names, rotation=45, ha="right", rotation_mode="anchor")
        axes.set_yticks(range(k), names)
    if k <= 12:
        for (row, column), count in np.ndenumerate(matrix):
            color = "white" if share[row, column] > 0.55 else "black"
            axes.text(column, row, f"{count:g}", ha="center", va="center", color=color)
    figure.colorbar(drawn, ax=axes, label="share of the true class")
    return figure


def _worst_pair(matrix, names) -> str:
    wrong = matrix - np.diag(np.diag(matrix))
    true, predicted = np.unravel_index(int(wrong.argmax()), wrong.shape)
    count = wrong[true, predicted]
    return f"{names[true]} taken for {names[predicted]} ({count:g})" if count > 0 else ""


LANE_COLORS = {"read": SKY, "augment": PINK, "train": BLUE, "wait": ORANGE, "other": GREY}


@styled
def timeline(lanes: Mapping[str, Sequence[tuple]], *, unit: str = "s", title: str = "") -> Figure:
    """Show who is busy when: lane name -> (start, end, kind) bars; kind is read, augment, train, wait or other.

    Raises ValueError for a bar that ends before it starts, or an unknown kind.
    """
    _check_lanes(lanes)
    figure = new_figure(1.3 + 0.5 * len(lanes) + (0.3 if title else 0), f"{lead(title)}{_lanes_text(lanes, unit)}.")
    axes = figure.subplots()
    _draw_lanes(axes, lanes)
    axes.set(xlabel=f"time ({unit})", title=title)
    _lane_legend(figure, [lanes])
    return figure


@styled
def timelines(runs: Mapping[str, Mapping[str, Sequence[tuple]]], *, unit: str = "s") -> Figure:
    """Compare runs under one clock: name of the run -> its lanes as in :func:`timeline`, each run starting at 0.

    Raises ValueError when there is no run, or for what ``timeline`` refuses.
    """
    if not runs or not all(runs.values()):
        raise ValueError(f"timelines needs at least one run, and each run a lane; got {dict(runs)!r}.")
    for lanes in runs.values():
        _check_lanes(lanes)
    alt = "; ".join(f"{name}: {_lanes_text(lanes, unit)}" for name, lanes in runs.items())
    heights = [len(lanes) for lanes in runs.values()]
    figure = new_figure(1.1 + 0.5 * len(runs) + 0.42 * sum(heights), f"Timelines of {len(runs)} runs. {alt}.")
    panels = figure.subplots(len(runs), 1, sharex=True, squeeze=False, height_ratios=heights).ravel()
    for axes, (name, lanes) in zip(panels, runs.items(), strict=True):
        start = min((span[0] for spans in lanes.values() for span in spans), default=0)
        _draw_lanes(axes, {lane: [(a - start, b - start, kind) for a, b, kind in lanes[lane]] for lane in lanes})
        axes.set_title(name)
    panels[-1].set_xlabel(f"time ({unit})")
    _lane_legend(figure, list(runs.values()))
    return figure


def _check_lanes(lanes) -> None:
    for name, spans in lanes.items():
        for start, end, kind in spans:
            if end < start or kind not in LANE_COLORS:
                raise ValueError(
                    f"a bar is (start, end, kind) with kind one of {', '.join(LANE_COLORS)}; "
                    f"got {(start, end, kind)!r} in lane {name!r}."
                )


def _draw_lanes(axes, lanes) -> None:
    for place, spans in enumerate(lanes.values()):
        bars_of_lane = [(start, end - start) for start, end, _ in spans]
        colors = [LANE_COLORS[kind] for _, _, kind in spans]
        axes.broken_barh(bars_of_lane, (place - 0.38, 0.76), facecolors=colors, edgecolor="white", linewidth=0.6)
    axes.set_ylim(len(lanes) - 0.5, -0.5)
    axes.set_yticks(range(len(lanes)), [wrap(name, 1.6) for name in lanes])
    axes.grid(visible=False, axis="y")


def _lane_legend(figure: Figure, runs: list) -> None:
    found = {span[2] for lanes in runs for spans in lanes.values() for span in spans}
    handles = [Patch(color=LANE_COLORS[kind], label=kind) for kind in LANE_COLORS if kind in found]
    figure.legend(handles=handles, loc="outside lower center", ncols=max(1, len(handles)))


def _lanes_text(lanes, unit: str) -> str:
    return f"Timeline of {join(lanes)}. " + "; ".join(_busy(name, spans, unit) for name, spans in lanes.items())


def _busy(name, spans, unit) -> str:
    sums: dict[str, float] = {}
    for start, end, kind in spans:
        sums[kind] = sums.get(kind, 0.0) + end - start
    return f"{name}: " + ", ".join(f"{kind} {number(total)} {unit}" for kind, total in sums.items())


_STALL_BARS = 80  # a run; more are narrower than a learner can see


@styled
def stall_shares(runs: Mapping[str, Sequence], *, title: str = "") -> Figure:
    """Show when steps waited for data: name of a run -> (steps, 2) seconds waited and in all, as ``StallMeter.timed``.

    Over the seconds of training; height is the share of the time, so the orange area is the time lost. Long runs are
    drawn in at most 80 groups of steps. Raises ValueError for a run without steps, or one that waits longer than its
    steps last.
    """
    timed = {str(name): np.asarray(values, float).reshape(-1, 2) for name, values in runs.items()}
    for name, values in timed.items():
        if not len(values) or (values[:, 0] > values[:, 1]).any() or (values[:, 0] < 0).any():
            raise ValueError(
                f"stall_shares needs (seconds waited, seconds in all) of each step, 0 <= waited <= all; got "
                f"{values[:3].tolist()} for {name!r}. Pass StallMeter.timed after a training."
            )
    texts = [f"{name}: {_waited(values)}" for name, values in timed.items()]
    figure = new_figure(
        0.9 + 1.45 * len(timed) + (0.3 if title else 0),
        f"{lead(title)}Share of the time that training waited for data, over its steps. {'; '.join(texts)}.",
    )
    if title:
        figure.suptitle(title, x=0.01, ha="left")
    for axes, values, text in zip(
        figure.subplots(len(timed), 1, squeeze=False).ravel(), timed.values(), texts, strict=True
    ):
        _draw_stalls(axes, values)
        axes.set_title(text, fontsize=FONT_PT, fontweight="normal")
    axes.set_xlabel("seconds of training")
    handles = [Patch(color=LANE_COLORS[kind], label=kind) for kind in ("train", "wait")]
    figure.legend(handles=handles, loc="outside lower center", ncols=2)
    return figure


def _draw_stalls(axes, values: np.ndarray) -> None:
    groups = np.array_split(values, min(len(values), _STALL_BARS))
    waited, whole = np.array([group.sum(axis=0) for group in groups]).T
    edges = np.concatenate([[0], np.cumsum(whole)])
    axes.stairs(np.full(len(groups), 100), edges, fill=True, color=LANE_COLORS["train"])
    axes.stairs(100 * waited / whole, edges, fill=True, color=LANE_COLORS["wait"])
    axes.set(xlim=(0, edges[-1]), ylim=(0, 100), ylabel="% of the time")
    axes.grid(visible=False)


def _waited(values: np.ndarray) -> str:
    waited, whole = values.sum(axis=0)
    return f"{waited / whole:.0%} of the time waiting, {count_text(len(values), 'step')}"

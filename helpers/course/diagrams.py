"""Diagrams of the lessons, drawn by code: chunks, handles, the life of a batch, the tree of a file."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path

import h5py
import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Patch, Rectangle
from matplotlib.ticker import MaxNLocator

from helpers.course.style import (
    BLACK,
    BLUE,
    FONT_PT,
    GREEN,
    GREY,
    ORANGE,
    PALE,
    VERMILLION,
    WIDTH_IN,
    join,
    lead,
    new_figure,
    styled,
)
from helpers.layout import open_file
from helpers.words import size_text


def chunks_touched(
    shape: Sequence[int], chunks: Sequence[int] | None, row: int = 0, *, itemsize: int = 1
) -> tuple[int, int]:
    """Chunks, and bytes, that HDF5 must fetch to serve image ``row`` of a dataset; no chunks: the image alone.

    Example: ``chunks_touched((75750, 299, 299, 3), (2368, 10, 19, 1))`` is ``(1440, 647884800)``.
    """
    if not 0 <= row < shape[0]:
        raise ValueError(f"row must be 0 to {shape[0] - 1}; got {row}.")
    if chunks is None:
        return 1, math.prod(shape[1:]) * itemsize
    count = math.prod(math.ceil(side / step) for side, step in zip(shape[1:], chunks[1:], strict=True))
    return count, count * math.prod(chunks) * itemsize


@styled
def chunks_and_reads(shape: Sequence[int], chunks, *, row: int = 0, title: str = "") -> Figure:
    """Draw which chunks are fetched to read one image.

    ``shape`` is (n, height, width, channels); ``chunks`` one chunk shape, or name -> chunk shape for panels to compare.
    Across: rows (images) of the dataset; down: lines of pixels. Orange: fetched. Black: the image asked for.
    """
    panels = dict(chunks) if isinstance(chunks, Mapping) else {f"chunks {tuple(chunks)}": chunks}
    wanted = math.prod(shape[1:])
    facts = {name: chunks_touched(shape, chunk, row) for name, chunk in panels.items()}
    alt = f"{lead(title)}To read one image of {size_text(wanted)}: " + "; ".join(
        f"with {name}, {count:,} {_plural('chunk', count)} of {size_text(total)} in all"
        for name, (count, total) in facts.items()
    )
    figure = new_figure(0.9 + 2.2 * len(panels), alt + ".")
    if title:
        figure.suptitle(title, x=0.01, ha="left")
    window = min(shape[0], max(24, max(int(1.6 * chunk[0]) for chunk in panels.values())))
    first = min(max(0, row - window // 2), shape[0] - window)
    for axes, (name, chunk) in zip(figure.subplots(len(panels), 1, squeeze=False).ravel(), panels.items(), strict=True):
        _draw_chunks(axes, shape, chunk, row, first, window)
        count, total = facts[name]
        axes.set_title(
            f"{name}: {count:,} {_plural('chunk', count)}, {size_text(total)} for {size_text(wanted)}", fontsize=FONT_PT
        )
        axes.set(ylabel="line of pixels", xlabel="row (image) of the dataset")
    handles = [
        Patch(color=BLACK, label=f"image {row}, asked for"),
        Patch(color=ORANGE, label="fetched from the disk with it"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=2)
    return figure


def _draw_chunks(axes, shape, chunk, row: int, first: int, window: int) -> None:
    images, lines = chunk[0], chunk[1]
    start = row // images * images
    axes.add_patch(Rectangle((first, 0), window, shape[1], facecolor=PALE, edgecolor="none"))
    axes.add_patch(Rectangle((start, 0), min(images, shape[0] - start), shape[1], facecolor=ORANGE, edgecolor="none"))
    if window / images <= 80:  # more lines than this would be a grey wall
        axes.vlines(np.arange(first // images * images, first + window, images), 0, shape[1], color=GREY, linewidth=0.7)
    axes.hlines(np.arange(0, shape[1], lines), first, first + window, color=GREY, linewidth=0.7)
    axes.add_patch(Rectangle((row, 0), max(1, window / 400), shape[1], facecolor=BLACK, edgecolor="none"))
    axes.set(xlim=(first, first + window), ylim=(shape[1], 0))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(visible=False)


def _plural(word: str, count: int) -> str:
    return word if count == 1 else word + "s"


def _canvas(height_in: float, alt: str, *, tall: float = 10.0):
    """An empty drawing board, 0..14 across (two units an inch) and 0..``tall`` down."""
    figure = Figure(figsize=(WIDTH_IN, height_in))
    figure.alt = alt
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, 14), ylim=(tall, 0))
    axes.set_axis_off()
    return figure, axes


def _box(axes, x, y, width, height, text: str, *, fill=PALE, edge=BLUE, weight="normal") -> None:
    shape = FancyBboxPatch(
        (x, y), width, height, boxstyle="round,pad=0,rounding_size=0.18", facecolor=fill, edgecolor=edge, linewidth=1.6
    )
    axes.add_patch(shape)
    axes.text(x + width / 2, y + height / 2, text, ha="center", va="center", fontweight=weight)


def _arrow(axes, start, end, *, color=GREY) -> None:
    arrow = FancyArrowPatch(
        start, end, arrowstyle="-|>", mutation_scale=14, color=color, linewidth=1.8, shrinkA=0, shrinkB=0
    )
    axes.add_patch(arrow)


@styled
def fork_and_handles() -> Figure:
    """Draw one handle inherited by forked workers beside one handle opened by each worker."""
    figure, axes = _canvas(
        4.3,
        "Left, one handle inherited: the parent opens the file, both forked workers get copies of the handle, "
        "and all use one open file with one position, so that one worker's seek moves the other's. "
        "Right, one handle a process: each worker opens the file by its path and has its own open file and position.",
        tall=8.6,
    )
    axes.text(0.2, 0.45, "One handle, inherited by fork", fontweight="bold", fontsize=FONT_PT + 1, va="center")
    axes.text(7.4, 0.45, "One handle a process", fontweight="bold", fontsize=FONT_PT + 1, va="center")
    axes.plot([7, 7], [0.2, 8.4], color="#CCCCCC", linewidth=1)
    _handles(axes, 0.2, shared=True)
    _handles(axes, 7.4, shared=False)
    return figure


def _handles(axes, left: float, *, shared: bool) -> None:
    _box(axes, left + 1.7, 0.9, 3.0, 1.2, "parent\nhandle open" if shared else "parent\npath only", edge=BLACK)
    for place in (0, 1):
        x = left + 3.4 * place
        _arrow(axes, (left + 2.4 + 1.6 * place, 2.1), (x + 1.5, 3.0), color=GREY)
        _box(axes, x, 3.0, 3.0, 1.2, f"worker {place + 1}\n{'copied handle' if shared else 'own handle'}", edge=BLACK)
        goal = (left + 2.6 + 1.2 * place, 5.2) if shared else (x + 1.5, 5.2)
        _arrow(axes, (x + 1.5, 4.2), goal, color=VERMILLION if shared else GREEN)
        if not shared:
            _box(axes, x, 5.2, 3.0, 1.2, "open file,\nown position", fill="#E3F4EE", edge=GREEN)
            _arrow(axes, (x + 1.5, 6.4), (left + 2.6 + 1.2 * place, 7.3), color=GREEN)
    if shared:
        _box(axes, left + 0.9, 5.2, 4.6, 1.2, "one open file,\nONE position for all", fill="#FBE6DA", edge=VERMILLION)
        _arrow(axes, (left + 3.2, 6.4), (left + 3.2, 7.3), color=VERMILLION)
    _box(axes, left + 1.2, 7.3, 4.0, 0.9, "train.h5 on disk", fill="white", edge=BLUE)


_STOPS = (
    ("order", "row numbers\nof batch 37"),
    ("reader", "uint8 images,\nown handle"),
    ("augment", "each image by\nits own seed"),
    ("queue", "finished\nbatches"),
    ("Keras", "scales, trains\non the device"),
)
_BOX_WIDTH, _STEP = 2.1, 2.9


@styled
def batch_life(*, slots: bool = False) -> Figure:
    """Draw the life of one batch, from the order of rows to Keras; with ``slots``, how it leaves a worker process."""
    figure, axes = _batch_with_slots() if slots else _batch_with_queue()
    return figure


def _batch_with_queue():
    figure, axes = _canvas(
        2.0,
        "The life of a batch: order gives row numbers; in the workers, reader reads the images with its own handle and "
        "augment changes each by its own seed; the queue holds finished batches; Keras takes them, scales on the "
        "device and trains.",
        tall=4.0,
    )
    _worker_field(axes, 2.8, 5.5, 3.7)
    _draw_stops(axes, _STOPS)
    return figure, axes


def _batch_with_slots():
    figure, axes = _canvas(
        2.75,
        "The life of a batch that a worker process makes: it works out the rows, reads them and augments the images; "
        "these come to lie in a slot of shared memory, where Keras uses them as they are. Through the pipe go only the "
        "number of the batch, to the worker, and the number of the slot, back. When Keras lets go of the batch, the "
        "slot is free for another one.",
        tall=5.5,
    )
    _worker_field(axes, 0.03, 8.22, 3.7)
    _draw_stops(axes, (*_STOPS[:3], ("slot", "shared memory,\nused again"), _STOPS[4]))
    pipe = 4.8
    axes.plot([_middle(1), _middle(4)], [pipe, pipe], color=GREY, linewidth=1.8)
    _arrow(axes, (_middle(1), pipe), (_middle(1), 3.85))
    _arrow(axes, (_middle(4), pipe), (_middle(4), 3.5))
    axes.text(8.45, pipe + 0.4, 'the pipe: "make batch 37", "it lies in slot 3"', ha="center", va="center")
    release = FancyArrowPatch((12.3, 3.5), (_middle(3), 3.5), connectionstyle="arc3,rad=-0.3", color=GREEN)
    release.set(arrowstyle="-|>", mutation_scale=14, linewidth=1.8)
    axes.add_patch(release)
    axes.text(9.7, 4.2, "let go: free again", ha="right", va="center", color=GREEN)
    return figure, axes


def _middle(place: int) -> float:
    return 0.15 + _STEP * place + _BOX_WIDTH / 2


def _worker_field(axes, left: float, width: float, height: float) -> None:
    field = Rectangle((left, 0.1), width, height, facecolor="#FFF6E0", edgecolor=ORANGE, linewidth=1.2, linestyle="--")
    axes.add_patch(field)
    axes.text(left + width / 2, 0.5, "in each worker", ha="center", va="center")


def _draw_stops(axes, stops) -> None:
    for place, (name, text) in enumerate(stops):
        left = _middle(place) - _BOX_WIDTH / 2
        _box(axes, left, 0.95, _BOX_WIDTH, 1.1, name, weight="bold")
        axes.text(_middle(place), 2.9, text, ha="center", va="center")
        if place:
            _arrow(axes, (left - 0.77, 1.5), (left - 0.03, 1.5), color=BLUE)


@styled
def file_tree(path) -> Figure:
    """Draw the groups, datasets and attributes of an HDF5 file, read from the file itself."""
    path = Path(path)
    with open_file(path) as file:
        lines = [(0, path.name, "the file, also the root group /", BLACK), *_attribute_lines(file, 1)]
        _tree_lines(file, 1, lines)
    said = "; ".join(f"{name} ({text})" if text else name for _, name, text, _ in lines[1:])
    figure, axes = _canvas(0.3 + 0.28 * len(lines), f"Contents of {path.name}: {said}.", tall=len(lines) + 0.4)
    for place, (depth, name, text, color) in enumerate(lines):
        y, x = place + 0.7, 0.35 + 0.7 * depth
        if depth:
            axes.plot([x - 0.45, x - 0.45, x - 0.1], [_parent_y(lines, place), y, y], color=GREY, linewidth=1)
        left = axes.text(x, y, name, va="center", color=color, fontweight="bold" if color != GREY else "normal")
        axes.annotate(text, (1, 0.5), xytext=(12, 0), xycoords=left, textcoords="offset points", va="center")
    return figure


def _parent_y(lines, place: int) -> float:
    depth = lines[place][0]
    return next(above for above in range(place - 1, -1, -1) if lines[above][0] < depth) + 1.0


def _attribute_lines(item, depth: int) -> list[tuple]:
    return [(depth, f"@{name}", _short(value), GREY) for name, value in item.attrs.items()]


def _short(value) -> str:
    if isinstance(value, np.ndarray) and value.dtype.kind == "f":
        value = [float(f"{part:.4g}") for part in value.ravel()[:4]]
    text = join(value, 3) if isinstance(value, (np.ndarray, list, tuple)) else str(value)
    return textwrap.shorten(text, 48, placeholder=" ...")


def _tree_lines(group, depth: int, lines: list[tuple]) -> None:
    for name, item in group.items():
        if isinstance(item, h5py.Group):
            lines.append((depth, f"{name}/", "group", GREEN))
            lines += _attribute_lines(item, depth + 1)
            _tree_lines(item, depth + 1, lines)
        else:
            kind = "variable-length bytes" if h5py.check_vlen_dtype(item.dtype) is not None else str(item.dtype)
            chunks = f", chunks {item.chunks}" if item.chunks else ""
            lines.append((depth, name, f"{item.shape} {kind}{chunks}", BLUE))
            lines += _attribute_lines(item, depth + 1)

"""The look of every picture: colours, letters, sizes, and how a figure reaches the notebook with its alt text."""

from __future__ import annotations

import base64
import contextlib
import functools
import html
import io
import math
import sys
import textwrap
from collections.abc import Iterator

import matplotlib
from matplotlib.figure import Figure

# Okabe and Ito's colours: told apart under all common kinds of colour blindness.
BLUE, ORANGE, GREEN, PINK = "#0072B2", "#E69F00", "#009E73", "#CC79A7"
SKY, VERMILLION, YELLOW, BLACK = "#56B4E9", "#D55E00", "#F0E442", "#000000"
CYCLE = (BLUE, ORANGE, GREEN, PINK, SKY, VERMILLION, YELLOW, BLACK)
GREY, PALE = "#6B6B6B", "#EEF3F7"

WIDTH_PX = 700  # the text column of a notebook on a 1024 pixel wide screen
WIDTH_IN = WIDTH_PX / 100
FONT_PT = 11  # still readable at the back of a classroom at this width
_INCH_PER_LETTER = FONT_PT * 0.56 / 72  # mean width of DejaVu Sans, for wrapping labels

STYLE = {
    "axes.axisbelow": True,
    "axes.edgecolor": GREY,
    "axes.grid": True,
    "axes.labelsize": FONT_PT,
    "axes.prop_cycle": matplotlib.cycler(color=CYCLE),
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": FONT_PT + 1,
    "axes.titleweight": "bold",
    "figure.dpi": 100,
    "figure.facecolor": "white",
    "figure.figsize": (WIDTH_IN, 3.6),
    "figure.titlesize": FONT_PT + 1,
    "figure.titleweight": "bold",
    "font.family": "DejaVu Sans",  # comes with matplotlib: the same letters on every machine
    "font.size": FONT_PT,
    "grid.color": "#DDDDDD",
    "image.cmap": "viridis",
    "legend.fontsize": FONT_PT,
    "legend.frameon": False,
    "lines.linewidth": 2.2,
    "lines.markersize": 5,
    "savefig.dpi": 150,  # sharp on a projector, shown at 700 pixels
    "xtick.labelsize": FONT_PT,
    "ytick.labelsize": FONT_PT,
}


def use_style() -> None:
    """Apply the style to matplotlib figures that a notebook makes itself; the functions here use it anyway."""
    matplotlib.rcParams.update(STYLE)


def show(figure: Figure, alt: str | None = None) -> None:
    """Display ``figure`` in the notebook with its alt text. Raises ValueError when it has none.

    It goes out as HTML: JupyterLab 4 drops the alt text of a bare PNG output, and nbval then compares the text.
    """
    from IPython.display import display  # notebooks only; the package runs without IPython

    text = alt or getattr(figure, "alt", "")
    if not text.strip():
        raise ValueError("a figure needs a text for those who cannot see it; got none. Pass alt='what it shows'.")
    image = base64.b64encode(png_bytes(figure)).decode("ascii")
    tag = (
        f'<img class="course-figure" width="{WIDTH_PX}" alt="{html.escape(text)}" src="data:image/png;base64,{image}">'
    )
    display({"text/html": tag, "text/plain": f"Figure: {text}"}, raw=True)
    if pyplot := sys.modules.get("matplotlib.pyplot"):
        pyplot.close(figure)  # or the notebook would draw a figure of pyplot a second time


def png_bytes(figure: Figure) -> bytes:
    """The figure as PNG bytes; equal figures give equal bytes (no version or date inside)."""
    buffer = io.BytesIO()
    with _only_our_style():
        figure.savefig(buffer, format="png", metadata={"Software": None})
    return buffer.getvalue()


@contextlib.contextmanager
def _only_our_style() -> Iterator[None]:
    """Matplotlib's defaults and ours on top; afterwards the notebook's own settings again."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(STYLE)
        yield


def styled(draw):
    """Run ``draw`` under the style, whatever the notebook has set."""

    @functools.wraps(draw)
    def styled(*args, **kwargs) -> Figure:
        with _only_our_style():
            return draw(*args, **kwargs)

    return styled


def new_figure(height_in: float, alt: str) -> Figure:
    figure = Figure(figsize=(WIDTH_IN, height_in), layout="constrained")
    figure.alt = alt
    return figure


def wrap(text, width_in: float) -> str:
    return textwrap.fill(str(text), max(8, int(width_in / _INCH_PER_LETTER)), break_long_words=False)


def join(words, most: int = 12) -> str:
    words = [str(word) for word in words]
    return ", ".join(words[:most]) + (f" and {len(words) - most} more" if len(words) > most else "")


def number(value: float) -> str:
    """A number as a label: three digits that count, thousands with a comma."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    text = f"{value:,.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def lead(title: str) -> str:
    return f"{title}. " if title else ""

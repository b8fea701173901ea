"""A report as HTML: the view of a notebook, and the same as a page of its own.

The verdict comes first; tables are folded. Colours are those of the page, so that it can be read in a dark theme.
"""

from __future__ import annotations

import base64
import html

import cv2
import numpy as np

from helpers.contact_sheet import sheet_jpeg, sheet_words
from helpers.label_scan import NEIGHBOURS
from helpers.words import printable

# One prefix for every class, so that nothing else on the page changes. Colours come from the page, with an alpha.
_STYLE = """<style>
.hki{max-width:60em;line-height:1.45;overflow-wrap:anywhere}
.hki p{margin:.4em 0}
.hki details{margin:.3em 0}
.hki summary{cursor:pointer}
.hki .hki-wide{overflow-x:auto}
.hki table{border-collapse:collapse;margin:.3em 0;font-size:.92em}
.hki td{text-align:left!important;vertical-align:baseline;padding:.1em .9em .1em 0;border:0;background:none!important}
.hki tr{background:none!important}
.hki td.hki-number{text-align:right!important}
.hki td:first-child{white-space:pre;font-family:monospace}
.hki .hki-found{border-left:.3em solid;padding:.1em .7em;margin:.5em 0}
.hki .hki-fault{border-color:#d1242f}
.hki .hki-warning{border-color:#bf8700}
.hki .hki-good{border-color:#1a7f37}
.hki img{max-width:100%;height:auto;display:block}
.hki img.hki-strip{width:15em;height:1.6em;image-rendering:pixelated}
</style>"""
_PAGE_STYLE = """<style>
:root{color-scheme:light dark}
body{font-family:system-ui,sans-serif;margin:1.5em}
</style>"""

# Twelve colours that differ from their neighbours in hue and in brightness.
_COLOURS = np.array(
    [
        (31, 119, 180), (255, 187, 120), (44, 160, 44), (197, 176, 213), (214, 39, 40), (158, 218, 229),
        (140, 86, 75), (247, 182, 210), (127, 127, 127), (219, 219, 141), (23, 120, 130), (255, 152, 150),
    ],
    np.uint8,
)  # fmt: skip
_STRIP_HEIGHT = 24  # pixels


def page(report) -> str:
    """A page of its own for a :class:`helpers.report.Report`."""
    title = html.escape(printable(f"{report.path.name}: inspection"))
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"{_PAGE_STYLE}</head><body>{fragment(report)}</body></html>\n"
    )


def fragment(report) -> str:
    """The view of a notebook for a :class:`helpers.report.Report`."""
    tables = [
        _folded("Order of the classes, and what an epoch costs", _splits(report), is_open=True),
        _folded("Images a class", _balance(report.balance_rows())),
        _folded("Contact sheet", _sheet(report.sheet), is_open=True),
        _folded(f"Datasets ({len(report.datasets):,})", _table(report.entry_rows())),
        _folded(f"Attributes ({len(report.attribute_rows()):,})", _table(report.attribute_rows())),
    ]
    checked = f"<p>{html.escape(report.checked)}</p>" if report.checked else ""
    return f'{_STYLE}<div class="hki">{_verdict(report)}{_findings(report)}{checked}{"".join(tables)}</div>'


def strip_png(strip: np.ndarray) -> bytes:
    """The mix of classes along a split as a picture: (parts, bands) counts, one column a part, one colour a band."""
    shares = np.cumsum(strip, axis=1) / np.maximum(1, strip.sum(axis=1, keepdims=True))
    heights = (np.arange(_STRIP_HEIGHT) + 0.5) / _STRIP_HEIGHT
    band = (heights[:, None, None] > shares[None]).sum(axis=2)  # (height, parts)
    band = np.minimum(band, strip.shape[1] - 1)
    opaque = np.where(strip.any(axis=1), 255, 0).astype(np.uint8)  # a short split has parts without any row
    picture = np.dstack([_COLOURS[band][..., ::-1], np.broadcast_to(opaque, band.shape)])
    return cv2.imencode(".png", picture)[1].tobytes()


def _verdict(report) -> str:
    kind = "fault" if report.faults else "warning" if report.warnings else "good"
    return f'<p class="hki-found hki-{kind}"><b>{html.escape(report.verdict)}</b></p>'


def _findings(report) -> str:
    return "".join(
        f'<div class="hki-found hki-{kind.lower()}"><b>{kind}</b> <code>{html.escape(item.code)}</code>: '
        f"{html.escape(item.message)}" + (f"<br>Do: {html.escape(item.advice)}" if item.advice else "") + "</div>"
        for kind, items in (("Fault", report.faults), ("Warning", report.warnings))
        for item in items
    )


def _folded(title: str, content: str, is_open: bool = False) -> str:
    if not content:
        return ""
    return f"<details{' open' if is_open else ''}><summary>{html.escape(title)}</summary>{content}</details>"


def _table(rows) -> str:
    cells = "".join(f"<tr><td>{html.escape(name)}</td><td>{html.escape(text)}</td></tr>" for name, text in rows)
    return f'<div class="hki-wide"><table>{cells}</table></div>' if cells else ""


def _balance(rows: list[list[str]]) -> str:
    if not rows or rows[0][0]:  # without a head: sentences
        return _table(rows)
    lines = ("".join(f'<td class="hki-number">{html.escape(cell)}</td>' for cell in row[1:]) for row in rows)
    cells = "".join(f"<tr><td>{html.escape(row[0])}</td>{line}</tr>" for row, line in zip(rows, lines, strict=True))
    return f'<div class="hki-wide"><table>{cells}</table></div>'


def _splits(report) -> str:
    rows = "".join(_split_row(name, split) for name, split in report.splits.items())
    return f"<p>From the first row to the last; one colour a class.</p><table>{rows}</table>" if rows else ""


def _split_row(name: str, split) -> str:
    name = printable(name)
    parts, mix = [], split.mix
    if mix is not None:
        alt = f"Classes along {name}, from its first row to its last."
        words = f"{mix.neighbours:.1f} classes among {NEIGHBOURS} neighbouring rows; shuffled: {mix.shuffled:.1f}"
        parts.append(_image(strip_png(mix.strip), "png", alt, "hki-strip") + words)
    if split.cost is not None:
        parts.append(html.escape(f"a shuffled epoch {split.cost}"))
    return f"<tr><td>{html.escape(name)}</td><td>{'<br>'.join(parts)}</td></tr>" if parts else ""


def _sheet(sheet) -> str:
    return _image(sheet_jpeg(sheet), "jpeg", sheet_words(sheet)) if any(sheet.values()) else ""


def _image(data: bytes, kind: str, words: str, style: str = "") -> str:
    encoded = base64.b64encode(data).decode("ascii")
    extra = f' class="{style}"' if style else ""
    return f'<img{extra} src="data:image/{kind};base64,{encoded}" alt="{html.escape(words)}">'

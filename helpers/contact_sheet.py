"""A contact sheet: some images of each split, small, with the names of their classes, as one picture.

The thumbnails are made while the inspector looks at its sample of the images, so the sheet costs no further reads and
stays when the file is gone.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass

import cv2
import numpy as np

from helpers.images import ImageError, decode_jpeg

ACROSS = 8  # thumbnails side by side: with 84 pixels each, a sheet fits into a narrow window
MOST_A_SPLIT = 16
TILE = 84  # pixels
_GAP, _CAPTION, _TITLE = 6, 16, 26  # pixels
_BACK, _INK, _FAINT = (38, 38, 38), (235, 235, 235), (165, 165, 165)  # readable on a bright and on a dark page
_EMBEDDED_BYTES = 90_000  # of the JPEG inside a page; in base64 a third more


@dataclass(frozen=True)
class Thumbnail:
    """One image of the sheet: (TILE, TILE, 3) uint8 RGB, None when it cannot be shown."""

    row: int
    label: str  # name of its class; empty when nobody knows
    number: int  # of its class, or -1
    pixels: np.ndarray | None

    @property
    def caption(self) -> str:
        """What is written under it: OpenCV's font has no letters beyond ASCII."""
        plain = "".join(c for c in unicodedata.normalize("NFKD", self.label) if not unicodedata.combining(c))
        if plain and plain.isascii():
            return plain
        return f"class {self.number}" if self.number >= 0 else f"row {self.row}"


Sheet = dict[str, list[Thumbnail]]  # split -> thumbnails


def thumbnail_pixels(stored: np.ndarray) -> np.ndarray | None:
    """A stored image, pixels of any kind or JPEG bytes, as (TILE, TILE, 3) uint8; None when it is no image."""
    try:
        return _fitted(decode_jpeg(stored) if stored.ndim == 1 else as_rgb(stored))
    except (ImageError, cv2.error, ValueError, TypeError):  # an empty tile; the report says what is wrong
        return None


def as_rgb(image: np.ndarray) -> np.ndarray:
    """A stored image of any layout and type as (height, width, 3) uint8, as a person would want to see it.

    Channels may come first or last, or be one; numbers up to 1 are stretched to 255, numbers outside 0 to 255 are
    stretched from the smallest to the largest. Raises ValueError when it is not an image.
    """
    if image.ndim == 3 and image.shape[0] in {1, 3, 4} and image.shape[-1] not in {1, 3, 4}:
        image = image.transpose(1, 2, 0)
    if image.ndim == 2:
        image = image[..., None]
    if image.ndim != 3 or not image.size:
        raise ValueError(f"an image has two or three dimensions; got shape {image.shape}.")
    image = image[..., :3] if image.shape[-1] >= 3 else np.repeat(image[..., :1], 3, axis=-1)
    return image if image.dtype == np.uint8 else _as_bytes(image)


def sheet_png(sheet: Sheet) -> bytes:
    """The sheet as a PNG picture."""
    return cv2.imencode(".png", _drawn(sheet)[..., ::-1])[1].tobytes()


def sheet_jpeg(sheet: Sheet) -> bytes:
    """The sheet as a JPEG picture of at most 90 kB, for a page."""
    picture = _drawn(sheet)[..., ::-1]
    for quality in (85, 70, 50, 30, 10):
        data = cv2.imencode(".jpg", picture, [cv2.IMWRITE_JPEG_QUALITY, quality])[1].tobytes()
        if len(data) <= _EMBEDDED_BYTES:
            break
    return data


def sheet_words(sheet: Sheet) -> str:
    """What the sheet shows, for those who do not see it."""
    words = {split: (each.label or f"row {each.row}" for each in shown) for split, shown in sheet.items()}
    return "Contact sheet. " + "; ".join(f"{split}: {', '.join(labels)}" for split, labels in words.items())


def _as_bytes(image: np.ndarray) -> np.ndarray:
    values = np.nan_to_num(image.astype(np.float32), nan=0, posinf=255, neginf=0)
    low, high = float(values.min()), float(values.max())
    if low < 0 or high > 255:
        values = (values - low) * (255 / max(high - low, 1e-30))
    elif high <= 1 and image.dtype.kind == "f":
        values = values * 255
    return np.clip(np.rint(values), 0, 255).astype(np.uint8)


def _fitted(image: np.ndarray) -> np.ndarray:
    """The image on a dark square of the size of a tile, its proportions kept."""
    scale = TILE / max(image.shape[:2])
    size = max(1, round(image.shape[1] * scale)), max(1, round(image.shape[0] * scale))
    how = cv2.INTER_AREA if scale < 1 else cv2.INTER_NEAREST
    small = cv2.resize(np.ascontiguousarray(image), size, interpolation=how)
    tile = np.full((TILE, TILE, 3), _BACK, np.uint8)
    top, left = (TILE - size[1]) // 2, (TILE - size[0]) // 2
    tile[top : top + size[1], left : left + size[0]] = small
    return tile


def _drawn(sheet: Sheet) -> np.ndarray:
    width = _GAP + ACROSS * (TILE + _GAP)
    heights = [_TITLE + -(-len(shown) // ACROSS) * (TILE + _CAPTION + _GAP) for shown in sheet.values()]
    canvas = np.full((max(1, sum(heights)), width, 3), _BACK, np.uint8)
    top = 0
    for (split, shown), height in zip(sheet.items(), heights, strict=True):
        _write(canvas, split, (_GAP, top + 18), 0.48, _INK, width - 2 * _GAP)
        for number, each in enumerate(shown):
            y = top + _TITLE + number // ACROSS * (TILE + _CAPTION + _GAP)
            _draw(canvas, each, y, _GAP + number % ACROSS * (TILE + _GAP))
        top += height
    return canvas


def _draw(canvas: np.ndarray, each: Thumbnail, y: int, x: int) -> None:
    if each.pixels is None:
        cv2.rectangle(canvas, (x, y), (x + TILE - 1, y + TILE - 1), _FAINT, 1)
        cv2.line(canvas, (x, y), (x + TILE - 1, y + TILE - 1), _FAINT, 1, cv2.LINE_AA)
    else:
        canvas[y : y + TILE, x : x + TILE] = each.pixels
    _write(canvas, each.caption, (x, y + TILE + 12), 0.36, _FAINT, TILE)


def _write(canvas: np.ndarray, text: str, place: tuple[int, int], size: float, ink, most: int) -> None:
    text = text[:most].encode("ascii", "replace").decode()  # a character takes a pixel or more
    while len(text) > 1 and cv2.getTextSize(text, cv2.FONT_HERSHEY_SIMPLEX, size, 1)[0][0] > most:
        text = text.rstrip(".")[:-1] + ".."
    cv2.putText(canvas, text, place, cv2.FONT_HERSHEY_SIMPLEX, size, ink, 1, cv2.LINE_AA)

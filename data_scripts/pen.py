"""Random draws and drawing in whole numbers, so that a picture is the same to the byte on every machine.

Three things make pictures differ in a last bit between machines, and none of them is used:

- NumPy may change how ``Generator`` turns random bits into numbers. ``Draws`` takes the bits themselves (the streams of
  ``SeedSequence`` and ``PCG64`` are guaranteed) and scales them by an integer product.
- sin, cos and exp differ by processor and C library. ``SINES`` is a table of integers, none of which lies near a tie.
- Float warps and blurs depend on the width of the vector unit. A ``Pen`` moves points in 64-bit integers and fills
  polygons in OpenCV's fixed point; soft things are small pictures enlarged by ``INTER_LINEAR_EXACT``.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import cv2
import numpy as np

Colour = tuple[int, int, int]  # red, green, blue; 0 to 255

UNIT = 1024  # a frame is a disc of this radius: all shapes are given in such units
FULL_TURN = 512  # steps of an angle; a power of two, so that outlines of 8, 16, 32 ... points hit them
ONE = 4096  # the value of a sine of 1
SINES = np.array([round(ONE * math.sin(2 * math.pi * step / FULL_TURN)) for step in range(FULL_TURN)], np.int64)
DIRECTIONS = np.stack((np.roll(SINES, -FULL_TURN // 4), SINES), axis=1)  # (512, 2): (cosine, sine) of each angle

_LEFT = np.array([-1, 1])  # (cosine, sine), swapped and times this, is a quarter turn on

_PIXEL_BITS = 8  # OpenCV draws at 1/256 of a pixel
_HALF_PIXEL = 1 << _PIXEL_BITS - 1  # OpenCV's zero is the middle of the first pixel, ours is its corner
_MATRIX_BITS = 14  # extra bits of the matrix of a frame: enough for a 16-pixel picture


class Draws:
    """Random integers that depend on ``key`` alone: the same on every machine and for every version of NumPy."""

    def __init__(self, *key: int):
        self._bits = np.random.PCG64(np.random.SeedSequence(key)).random_raw

    def between(self, low: int, high: int) -> int:
        """An integer from ``low`` to ``high``, both included."""
        return low + ((self._bits() >> 32) * (high - low + 1) >> 32)

    def chance(self, percent: int) -> bool:
        """True in ``percent`` of 100 calls."""
        return self.between(0, 99) < percent

    def choice(self, items: Sequence):
        """One of ``items``."""
        return items[self.between(0, len(items) - 1)]

    def turn(self) -> int:
        """Any angle."""
        return self.between(0, FULL_TURN - 1)

    def array(self, low: int, high: int, n: int) -> np.ndarray:
        """(n,) int64, each from ``low`` to ``high``, both included."""
        return ((self._bits(n) >> 32) * (high - low + 1) >> 32).view(np.int64) + low

    def noise(self, *shape: int) -> np.ndarray:
        """Array of ``shape``, uint8, each value as likely as any other."""
        n = math.prod(shape)
        return self._bits((n + 7) // 8).astype("<u8", copy=False).view(np.uint8)[:n].reshape(shape)

    def order(self, n: int) -> np.ndarray:
        """A permutation of 0 to n - 1, (n,) int64."""
        return np.argsort(self._bits(n), kind="stable").astype(np.int64) if n else np.empty(0, np.int64)


def shade(colour: Colour, percent: int) -> Colour:
    """``colour``, darker below 100 percent and lighter above."""
    return tuple(min(255, channel * percent // 100) for channel in colour)


def vary(draws: Draws, colour: Colour, amount: int) -> Colour:
    """``colour`` with each channel moved by up to ``amount``."""
    return tuple(max(0, min(255, channel + draws.between(-amount, amount))) for channel in colour)


def tones(draws: Draws, colour: Colour, amount: int = 14, n: int = 4) -> list[Colour]:
    """``n`` neighbours of ``colour``, for things that there are many of."""
    return [shade(colour, draws.between(100 - amount, 100 + amount)) for _ in range(n)]


class Pen:
    """Draws polygons in a frame: a disc of radius ``UNIT`` that lies somewhere, turned and tilted, in an image."""

    def __init__(self, image: np.ndarray, matrix: np.ndarray, x: int, y: int):
        self.image = image  # (size, size, 3) uint8, drawn on in place
        self._matrix = matrix  # (2, 2) int64: units -> 1/256 pixel, times 2**_MATRIX_BITS
        self._origin = np.array([x, y], np.int64)  # the same unit

    @classmethod
    def on(cls, image: np.ndarray, x: int, y: int, radius: int, *, turn: int = 0, tilt: int = 100) -> Pen:
        """A frame at (x, y) with ``radius``, in thousandths of the side; ``tilt``: height in percent of the width."""
        side = image.shape[0] << _PIXEL_BITS
        scale = (side * radius << _MATRIX_BITS) // (1000 * UNIT)
        matrix = scale * _rotation(turn) >> 12
        matrix[1] = matrix[1] * tilt // 100
        left, down = side * x // 1000 - _HALF_PIXEL, side * y // 1000 - _HALF_PIXEL
        return cls(image, matrix, left << _MATRIX_BITS, down << _MATRIX_BITS)

    def at(self, x: int, y: int, size: int = UNIT, turn: int = 0) -> Pen:
        """A smaller frame inside this one, centred on (x, y), with radius ``size``."""
        origin = self._origin + self._matrix @ np.array([x, y], np.int64)
        return Pen(self.image, self._matrix @ _rotation(turn) * size >> 22, int(origin[0]), int(origin[1]))

    def raised(self, height: int) -> Pen:
        """The same frame, lifted off the table: moved up in the image by ``height`` of its units."""
        lift = math.isqrt(int((self._matrix[0] ** 2).sum())) * height // UNIT * UNIT
        return Pen(self.image, self._matrix, int(self._origin[0]), int(self._origin[1]) - lift)

    def fill(self, outline: np.ndarray, colour: Colour) -> None:
        """Fill one outline, (points, 2) units."""
        cv2.fillPoly(self.image, [self._pixels(outline)], colour, cv2.LINE_AA, _PIXEL_BITS)

    def fill_between(self, outer: np.ndarray, inner: np.ndarray, colour: Colour) -> None:
        """Fill what lies inside ``outer`` and outside ``inner``."""
        cv2.fillPoly(self.image, [self._pixels(outer), self._pixels(inner)], colour, cv2.LINE_AA, _PIXEL_BITS)

    def fill_each(self, outlines: np.ndarray, colours: Sequence[Colour]) -> None:
        """Fill convex outlines, (n, points, 2) units, one over the other, with the colours in turn."""
        for number, outline in enumerate(self._pixels(outlines)):
            cv2.fillConvexPoly(self.image, outline, colours[number % len(colours)], cv2.LINE_AA, _PIXEL_BITS)

    def scatter(
        self,
        draws: Draws,
        outline: np.ndarray,
        colours: Sequence[Colour],
        *,
        n: int,
        reach: tuple[int, int] = (UNIT, UNIT),
        sizes: tuple[int, int] = (60, 100),
    ) -> None:
        """Fill ``n`` turned copies of a convex outline at random places of an ellipse with half axes ``reach``."""
        places = in_disc(draws, n) * np.array(reach) // UNIT
        copies = turned(outline, draws.array(0, FULL_TURN - 1, n)) * draws.array(*sizes, n)[:, None, None] // UNIT
        self.fill_each(copies + places[:, None], colours)

    def _pixels(self, points: np.ndarray) -> np.ndarray:
        moved = points @ self._matrix.T + self._origin
        return (moved >> _MATRIX_BITS).astype(np.int32)


def _rotation(turn: int) -> np.ndarray:
    cosine, sine = DIRECTIONS[turn % FULL_TURN].tolist()
    return np.array([[cosine, -sine], [sine, cosine]], np.int64)


# -- outlines: (points, 2) int64, in units ----------------------------------------------------------------------------


def _kept(make):
    """Make each outline once: pictures ask for the same few again and again, and nobody may change them."""

    @functools.lru_cache(maxsize=512)
    def kept(*args: int) -> np.ndarray:
        outline = make(*args)
        outline.flags.writeable = False
        return outline

    return functools.wraps(make)(kept)


def polar(radius: int | np.ndarray, turns: np.ndarray) -> np.ndarray:
    """Points at ``radius`` and angles ``turns``: shape of both, and 2."""
    return DIRECTIONS[turns % FULL_TURN] * np.asarray(radius)[..., None] // ONE


@_kept
def circle(radius: int = UNIT, points: int = 32) -> np.ndarray:
    """A disc; ``points`` divides 512."""
    return polar(radius, np.arange(0, FULL_TURN, FULL_TURN // points))


@_kept
def ellipse(width: int, height: int, points: int = 16) -> np.ndarray:
    """An ellipse with these half axes."""
    return circle(UNIT, points) * np.array([width, height]) // UNIT


def wobbly(draws: Draws, radius: int = UNIT, amount: int = 80, points: int = 32) -> np.ndarray:
    """A disc with an uneven edge: up to ``amount`` further in, in eight soft waves."""
    corners = draws.array(0, amount, 8)
    steps = np.arange(points) * 8
    left, part = steps // points, steps % points
    dents = (corners[left] * (points - part) + corners[(left + 1) % 8] * part) // points
    return polar(radius - dents, np.arange(0, FULL_TURN, FULL_TURN // points))


def arc(radius: int, start: int, span: int, points: int = 12) -> np.ndarray:
    """Points of an arc, not closed."""
    return polar(radius, start + np.arange(points) * span // (points - 1))


def band(inner: int, outer: int, start: int, span: int, points: int = 12) -> np.ndarray:
    """A strip along an arc: noodles, crusts, gloss."""
    return np.concatenate((arc(outer, start, span, points), arc(inner, start, span, points)[::-1]))


def slice_of(radius: int, span: int) -> np.ndarray:
    """A slice of a disc around the x axis, its tip in the middle."""
    return np.concatenate((np.zeros((1, 2), np.int64), arc(radius, -span // 2, span)))


@_kept
def capsule(length: int, width: int) -> np.ndarray:
    """A bar with round ends along the x axis; half sizes."""
    end = np.array([length - width, 0])
    return np.concatenate((polar(width, np.arange(-128, 129, 32)) + end, polar(width, np.arange(128, 385, 32)) - end))


@_kept
def box(width: int, height: int, corner: int = 0) -> np.ndarray:
    """A rectangle with half sizes, its corners cut by ``corner``."""
    right, top = width - corner, height - corner
    points = [(width, -top), (width, top), (right, height), (-right, height)]
    points += [(-width, top), (-width, -top), (-right, -height), (right, -height)]
    return np.array(points, np.int64)


def in_disc(draws: Draws, n: int) -> np.ndarray:
    """(n, 2) random points of a disc, evenly spread: the larger of two draws is a fair radius."""
    radius = np.maximum(draws.array(0, UNIT, n), draws.array(0, UNIT, n))
    return polar(radius, draws.array(0, FULL_TURN - 1, n))


def turned(outline: np.ndarray, turns: np.ndarray) -> np.ndarray:
    """One copy of ``outline`` for each of n angles: (n, points, 2)."""
    axes = DIRECTIONS[turns % FULL_TURN][:, None]  # (n, 1, 2): where the x axis goes; the y axis a quarter turn on
    return (outline[:, :1] * axes + outline[:, 1:] * (axes[..., ::-1] * _LEFT)) // ONE


# -- soft things ------------------------------------------------------------------------------------------------------


def enlarge(small: np.ndarray, size: int) -> np.ndarray:
    """A small uint8 picture at (size, size), smoothly."""
    return cv2.resize(small, (size, size), interpolation=cv2.INTER_LINEAR_EXACT)

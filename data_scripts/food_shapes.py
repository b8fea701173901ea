"""Shapes of food: each draws one helping in the frame of a pen, with the colours and the texture of its dish.

Each is a function of (pen, draws, look). A shape either arranges several equal items (rings, dumplings, fries) or is
drawn in a way of its own (noodles, soup).
Sizes are in units of `pen.UNIT`, a 1024th of the radius of the frame.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from data_scripts import pen as p
from data_scripts.pen import FULL_TURN, UNIT, Colour, Draws, Pen, shade, tones


@dataclass(frozen=True)
class Look:
    """What a shape needs to know of its dish: the colours of this picture and the texture."""

    body: Colour
    top: Colour
    texture: Callable[[Pen, Draws, Look, tuple[int, int]], None]

    def cover(self, pen: Pen, draws: Draws, width: int, height: int | None = None) -> None:
        """Draw the texture over an ellipse with these half axes."""
        self.texture(pen, draws, self, (width, width if height is None else height))


def solid(pen: Pen, outline: np.ndarray, colour: Colour, height: int = 90) -> Pen:
    """A thing with a side and a lighter middle; returns the frame of its upper face."""
    pen.fill(outline, shade(colour, 55))
    upper = pen.raised(height)
    upper.fill(outline, shade(colour, 88))
    upper.fill(outline * 7 // 8, shade(colour, 104))
    return upper


# -- items: one of several on a plate ---------------------------------------------------------------------------------


def ring(pen: Pen, draws: Draws, look: Look) -> None:
    outer, hole = p.wobbly(draws, UNIT, 50), p.circle(draws.between(300, 400), 16)
    pen.fill_between(outer, hole, shade(look.body, 55))
    upper = pen.raised(110)
    upper.fill_between(outer, hole, look.body)
    upper.fill_between(p.wobbly(draws, 930, 130), hole * 5 // 4, look.top)
    upper.fill(p.band(700, 790, draws.between(300, 340), 90), shade(look.top, 118))
    for turn in range(0, FULL_TURN, 64):
        x, y = p.polar(660, np.array(turn)).tolist()
        look.cover(upper.at(x, y, 230), draws, 900)


def ball(pen: Pen, draws: Draws, look: Look) -> None:
    upper = solid(pen, p.wobbly(draws, UNIT, 140), look.body, 160)
    upper.fill(p.wobbly(draws, 700, 200, 16), look.top)
    look.cover(upper, draws, 720)


def moon(pen: Pen, draws: Draws, look: Look) -> None:
    outline = np.concatenate((p.arc(UNIT, 0, 256, 16), p.arc(UNIT, 256, -256, 16) // np.array([1, -4])))
    upper = solid(pen.at(0, -380), outline, look.body, 120)
    upper.fill(p.band(820, 980, 20, 216, 16), look.top)
    look.cover(upper.at(0, 420), draws, 620, 300)


def triangle(pen: Pen, draws: Draws, look: Look) -> None:
    outline = p.polar(UNIT, np.array([0, 20, 160, 181, 331, 352]) - 10)
    upper = solid(pen, outline, look.body, 170)
    upper.fill(outline * 5 // 8, look.top)
    look.cover(upper, draws, 520)


def square(pen: Pen, draws: Draws, look: Look) -> None:
    upper = solid(pen, p.box(900, 900, 160), look.body, 200)
    upper.fill(p.box(760, 760, 120), shade(look.top, 104))
    look.cover(upper, draws, 680)


def log(pen: Pen, draws: Draws, look: Look) -> None:
    upper = solid(pen, p.capsule(UNIT, draws.between(250, 320)), look.body, 130)
    upper.fill(p.capsule(940, 130), look.top)
    upper.at(0, -60).fill(p.capsule(700, 26), shade(look.top, 125))
    look.cover(upper, draws, 880, 180)


def stick(pen: Pen, draws: Draws, look: Look) -> None:
    colour = draws.choice((look.body, look.top))
    solid(pen, p.box(UNIT, 150, 30), shade(colour, draws.between(88, 112)), 90)


def drum(pen: Pen, draws: Draws, look: Look) -> None:
    bone = p.capsule(620, 90) + np.array([560, 0])
    solid(pen, bone, (240, 228, 206), 80)
    upper = solid(pen.at(-300, 0), p.wobbly(draws, 680, 120) * np.array([5, 4]) // 4, look.body, 150)
    upper.fill(p.wobbly(draws, 420, 160, 16), look.top)
    look.cover(upper, draws, 480)


def shell(pen: Pen, draws: Draws, look: Look) -> None:
    outline = p.wobbly(draws, UNIT, 90) * np.array([10, 7]) // 10
    upper = solid(pen, outline, look.body, 110)
    upper.fill(outline * 3 // 4, shade(look.body, 170))
    upper.at(100, 0).fill(p.wobbly(draws, 520, 160, 16), look.top)
    look.cover(upper.at(100, 0), draws, 420, 300)


def pod(pen: Pen, draws: Draws, look: Look) -> None:
    upper = solid(pen, p.ellipse(UNIT, 460), shade(look.body, draws.between(86, 112)), 120)
    upper.fill_each(p.circle(230, 8)[None] + np.array([[[-480, 0]], [[0, 0]], [[480, 0]]]), [shade(look.top, 108)])
    look.cover(upper, draws, 700, 300)


def oval(pen: Pen, draws: Draws, look: Look) -> None:
    upper = solid(pen, p.ellipse(UNIT, 740, 32), look.body, 100)
    upper.fill(p.wobbly(draws, 560, 120), look.top)
    look.cover(upper, draws, 480)


def petal(pen: Pen, draws: Draws, look: Look) -> None:
    colour = draws.choice((look.body, look.body, look.top))
    outline = p.wobbly(draws, UNIT, 160) * np.array([10, 7]) // 10
    upper = solid(pen, outline, colour, 60)
    upper.fill(p.band(600, 680, draws.turn(), 140), shade(colour, 128))
    look.cover(upper, draws, 700, 460)


def sideways(pen: Pen, draws: Draws, look: Look) -> None:
    """A filled biscuit that stands on its edge."""
    colour = shade(look.body, draws.between(90, 108))
    for x, width, layer in ((-430, 330, colour), (0, 200, look.top), (430, 330, colour)):
        pen.at(x, 0).fill(p.capsule(880, width)[:, ::-1], shade(layer, 70))
        pen.at(x - 40, -40).fill(p.capsule(840, width - 60)[:, ::-1], layer)


def roll(pen: Pen, draws: Draws, look: Look) -> None:
    """A slice of a sushi roll: seaweed, rice, filling; or rice outside."""
    wrap = look.body
    rice = (246, 242, 230) if sum(wrap) < 300 else (226, 220, 204)
    pen.fill(p.circle(UNIT), shade(wrap, 60))
    upper = pen.raised(300)
    for lift in (100, 200, 300):
        pen.raised(lift).fill(p.circle(UNIT), shade(wrap, 60 + lift // 10))
    upper.fill(p.circle(UNIT), wrap)
    upper.fill(p.circle(860), rice)
    upper.scatter(draws, p.ellipse(UNIT, 500, 8), tones(draws, rice, 10), n=14, reach=(740, 740), sizes=(90, 130))
    upper.fill(p.wobbly(draws, 460, 100, 16), look.top)
    upper.at(-100, -100).fill(p.circle(160, 8), shade(look.top, 125))


@dataclass(frozen=True)
class Several:
    """A helping of equal items: how many, how large, how they lie."""

    item: Callable[[Pen, Draws, Look], None]
    counts: tuple[int, ...]
    spread: int = 620  # how far from the middle the outer ones lie
    full: int = 900  # radius of an item that lies alone; more of them are smaller
    heap: bool = False  # thrown at random places instead of laid out in a circle

    def __call__(self, pen: Pen, draws: Draws, look: Look) -> None:
        n = draws.choice(self.counts)
        size = self.full * 100 // _CROWD.get(n, 190 + 12 * n)
        start, facing = draws.turn(), draws.between(0, 2)
        for x, y in self._places(draws, n, start):
            spin = draws.between(-24, 24)
            turn = (start + spin, draws.turn(), draws.turn())[facing]
            self.item(pen.at(x, y, size * draws.between(90, 108) // 100, turn), draws, look)

    def _places(self, draws: Draws, n: int, start: int) -> list[list[int]]:
        if self.heap:
            return (p.in_disc(draws, n) * self.spread // UNIT).tolist()
        if n == 1:
            return [[0, 0]]
        outer = n if n < 6 else n - 1
        turns = start + np.arange(outer) * FULL_TURN // outer
        places = p.polar(self.spread * (85 + 3 * min(n, 8)) // 100, turns) + draws.array(-50, 50, outer)[:, None]
        return places.tolist() + ([[0, 0]] if n > outer else [])


_CROWD = {1: 100, 2: 155, 3: 175, 4: 200, 5: 225}  # percent by which items shrink, for n of them


# -- shapes drawn in a way of their own -------------------------------------------------------------------------------


def round_(pen: Pen, draws: Draws, look: Look) -> None:
    """A disc with a rim: pizza, fried eggs; now and then a slice is gone."""
    gap = draws.choice((0, 0, 0, 60))
    outline = p.wobbly(draws, UNIT, 60, 64)
    if gap:
        outline = np.concatenate((np.zeros((1, 2), np.int64), outline[gap // 8 :], outline[:1]))
    upper = solid(pen, outline, look.body, 60)
    upper.fill(outline * 108 // 128, shade(look.top, 82))
    upper.fill(outline * 102 // 128, look.top)
    start, span = (gap, FULL_TURN - gap) if gap else (0, FULL_TURN)
    for number in range(7):
        turn = start + span * (2 * number + 1) // 14
        x, y = p.polar(draws.between(480, 580), np.array(turn)).tolist()
        look.cover(upper.at(x, y, 260), draws, 900)


def wedge(pen: Pen, draws: Draws, look: Look) -> None:
    """A slice of a pie, its crust at the back."""
    span = draws.between(80, 118)
    pen = pen.at(-620, 0, 1500)
    outline = p.slice_of(UNIT, span)
    for height in (0, 70, 140):
        pen.raised(height).fill(outline, shade(look.top, 62 + height // 8))
    upper = pen.raised(210)
    upper.fill(outline, look.top)
    upper.fill(p.band(880, UNIT + 30, -span // 2, span), look.body)
    upper.fill(p.band(900, 940, -span // 2, span), shade(look.body, 118))
    look.cover(upper.at(600, 0, 380), draws, 900, 800)


def cake(pen: Pen, draws: Draws, look: Look) -> None:
    """A slice of a layer cake that lies on its side: one sees the layers."""
    pen = pen.at(0, 0, 1080)
    pen.raised(-80).fill(p.box(900, 560, 60), shade(look.body, 55))
    colours = (look.top, look.body, look.top, look.body, look.top)
    edges = (-560, -400, -110, 0, 300, 420)
    for colour, low, high in zip(colours, edges, edges[1:], strict=False):
        pen.fill(np.array([(-900, low), (900, low), (900, high + 30), (-900, high + 30)], np.int64), colour)
    pen.fill(np.array([(-900, 420), (900, 420), (900, 560), (-900, 560)], np.int64), look.body)
    pen.scatter(draws, p.circle(UNIT, 8), tones(draws, look.body, 22), n=24, reach=(800, 460), sizes=(22, 46))
    pen.fill(p.box(130, 560, 40) + np.array([-880, 0]), shade(look.top, 92))


def stack(pen: Pen, draws: Draws, look: Look) -> None:
    """Pancakes, one on the other."""
    upper = pen
    for number in range(draws.between(2, 5)):
        upper = pen.at(draws.between(-60, 60), draws.between(-60, 60), draws.between(880, 960)).raised(number * 150)
        outline = p.wobbly(draws, UNIT, 70)
        upper.raised(-70).fill(outline, shade(look.body, 58))
        upper.fill(outline, shade(look.body, 112))
        upper.fill(outline * 15 // 16, shade(look.top, draws.between(88, 108)))
    upper.fill(p.wobbly(draws, 780, 120), shade(look.top, 112))
    look.cover(upper, draws, 760)


def noodles(pen: Pen, draws: Draws, look: Look) -> None:
    """A tangle of arcs, with sauce in the middle."""
    pen.fill(p.wobbly(draws, 980, 160), shade(look.body, 62))
    n = 30
    centres = p.in_disc(draws, n) * 420 // UNIT
    radii, widths = draws.array(220, 600, n), draws.array(28, 44, n)
    starts, spans = draws.array(0, FULL_TURN - 1, n), draws.array(140, 400, n)
    colours = tones(draws, look.body, 16, 6)
    for number in range(n):
        if number == 24:
            _sauce(pen, draws, look)
        inner, outer = radii[number] - widths[number], radii[number] + widths[number]
        strand = p.band(inner, outer, starts[number], spans[number], 16) + centres[number]
        pen.fill(strand + np.array([0, 24]), shade(colours[number % 6], 62))
        pen.fill(strand, colours[number % 6])


def _sauce(pen: Pen, draws: Draws, look: Look) -> None:
    pen.fill(p.wobbly(draws, draws.between(440, 700), 240), look.top)
    look.cover(pen, draws, 520)


def leaves(pen: Pen, draws: Draws, look: Look) -> None:
    """A heap of leaves, with pieces on it."""
    leaf = np.array([(-UNIT, 0), (-500, -420), (300, -470), (UNIT, 0), (300, 470), (-500, 420)], np.int64)
    greens = tones(draws, look.body, 26, 6)
    pen.fill(p.wobbly(draws, 900, 240), shade(look.body, 52))
    pen.scatter(draws, leaf, greens, n=26, reach=(680, 680), sizes=(260, 400))
    pen.scatter(draws, p.capsule(UNIT, 50), [shade(look.body, 135)], n=8, reach=(620, 620), sizes=(160, 260))
    pen.scatter(draws, p.box(UNIT, 700, 300), tones(draws, look.top, 12), n=9, reach=(640, 640), sizes=(130, 210))
    look.cover(pen, draws, 680)


def bowl(pen: Pen, draws: Draws, look: Look) -> None:
    """Something liquid in a bowl of its own."""
    glaze = draws.choice(((240, 238, 232), (70, 84, 112), (172, 88, 60), (58, 56, 60), (206, 214, 200)))
    pen.raised(-160).fill(p.circle(900), shade(glaze, 55))
    pen.fill(p.circle(UNIT, 64), glaze)
    pen.fill(p.circle(930, 64), shade(glaze, 72))
    pen.fill(p.circle(870, 64), shade(look.body, 84))
    pen.fill(p.circle(820, 64), look.body)
    pen.scatter(draws, p.circle(UNIT, 16), tones(draws, look.body, 9), n=9, reach=(560, 560), sizes=(110, 220))
    look.cover(pen, draws, 620)
    pen.fill(p.band(720, 770, draws.between(290, 330), 80), shade(look.body, 128))


def sandwich(pen: Pen, draws: Draws, look: Look) -> None:
    """Layers between two halves of bread, seen from the side."""
    pen = pen.at(0, 0, 1060)
    slabs = ((620, look.body), (400, look.top), (220, (238, 190, 70)), (60, (120, 172, 70)), (-80, look.top))
    for y, colour in slabs:
        outline = p.capsule(draws.between(860, 960), 150) + np.array([0, y])
        pen.fill(outline, shade(colour, 62))
        pen.fill(outline - np.array([0, 50]), colour)
        if colour == look.top:
            look.cover(pen.at(0, y - 50), draws, 820, 100)
    dome = np.concatenate((p.arc(920, 256, 256, 20), np.array([(900, 120), (-900, 120)], np.int64)))
    pen.at(0, -190).fill(dome, shade(look.body, 78))
    pen.at(0, -210).fill(dome * 15 // 16, look.body)
    pen.at(0, -330).fill(p.band(560, 640, 290, 90), shade(look.body, 122))


def cup(pen: Pen, draws: Draws, look: Look) -> None:
    """A ribbed paper or china cup, filled to its edge."""
    ribs = p.polar(np.tile([UNIT, 920], 16), np.arange(0, FULL_TURN, 16))
    pen.raised(-200).fill(ribs * 7 // 8, shade(look.body, 50))
    pen.fill(ribs, shade(look.body, 78))
    pen.fill(p.circle(880), look.body)
    upper = pen.raised(140)
    upper.fill(p.wobbly(draws, 840, 110), shade(look.top, 86))
    upper.fill(p.wobbly(draws, 700, 110), look.top)
    look.cover(upper, draws, 620)


def scoops(pen: Pen, draws: Draws, look: Look) -> None:
    """One to three domes beside each other."""
    n = draws.between(1, 3)
    size = (760, 560, 500)[n - 1]
    for number in range(n):
        x, y = (0, 0) if n == 1 else p.polar(440, np.array(number * FULL_TURN // n + draws.between(0, 40))).tolist()
        colour = (look.body, look.top)[number % 2]
        scoop = pen.at(x, y, size)
        scoop.fill(p.wobbly(draws, 1080, 120), shade(colour, 66))
        upper = scoop.raised(200)
        upper.fill(p.wobbly(draws, 980, 90), shade(colour, 90))
        upper.fill(p.circle(760), colour)
        upper.at(-240, -260).fill(p.ellipse(300, 200), shade(colour, 114))
        look.cover(upper, draws, 700)


def mound(pen: Pen, draws: Draws, look: Look) -> None:
    """A loose heap: rice, chopped meat."""
    for height, radius, light in ((0, 960, 60), (80, 900, 84), (160, 740, 96), (230, 540, 106)):
        layer = pen.raised(height)
        layer.fill(p.wobbly(draws, radius, 160), shade(look.body, light))
        layer.scatter(
            draws, p.ellipse(UNIT, 560, 8), tones(draws, shade(look.body, light + 6), 12), n=14,
            reach=(radius, radius), sizes=(60, 100),
        )  # fmt: skip
    upper = pen.raised(160)
    upper.scatter(draws, p.box(UNIT, 800, 200), tones(draws, look.top), n=12, reach=(700, 700), sizes=(50, 100))
    look.cover(upper, draws, 640)


def lump(pen: Pen, draws: Draws, look: Look) -> None:
    """A piece of meat with a rim of fat."""
    outline = p.wobbly(draws, 960, 360) * np.array([10, 8]) // 10
    upper = solid(pen, outline, look.body, 150)
    upper.fill(outline * 3 // 4, shade(look.top, 106))
    look.cover(upper, draws, 640, 480)


def slab(pen: Pen, draws: Draws, look: Look) -> None:
    """One to three long pieces side by side."""
    n = draws.between(1, 3)
    for number in range(n):
        piece = pen.at(0, (2 * number - n + 1) * 340, 980 if n < 3 else 900, draws.between(-10, 10))
        upper = solid(piece, p.box(960, (480, 330, 310)[n - 1], 150), look.body, 140)
        upper.fill(p.box(820, (350, 220, 210)[n - 1], 110), look.top)
        look.cover(upper, draws, 740, (300, 190, 170)[n - 1])


SHAPES: dict[str, Callable[[Pen, Draws, Look], None]] = {
    "balls": Several(ball, (3, 4, 5, 6, 7)),
    "bowl": bowl,
    "cake": cake,
    "cup": cup,
    "drums": Several(drum, (3, 4, 5), full=980),
    "leaves": leaves,
    "logs": Several(log, (1, 2, 3, 4), spread=480, full=1020),
    "lump": lump,
    "moons": Several(moon, (1, 2, 3, 4, 5)),
    "mound": mound,
    "noodles": noodles,
    "ovals": Several(oval, (3, 4, 5, 6)),
    "petals": Several(petal, (6, 7, 8), full=1060),
    "pods": Several(pod, (14, 18), spread=780, full=1000, heap=True),
    "rings": Several(ring, (1, 2, 3, 4, 5)),
    "rolls": Several(roll, (2, 3, 4, 5, 6, 7)),
    "round": round_,
    "sandwich": sandwich,
    "scoops": scoops,
    "shells": Several(shell, (4, 5, 6, 7)),
    "sideways": Several(sideways, (3, 4, 5, 6)),
    "slab": slab,
    "squares": Several(square, (1, 2, 3)),
    "stack": stack,
    "sticks": Several(stick, (18, 24), spread=640, full=1500, heap=True),
    "triangles": Several(triangle, (1, 2, 3, 4, 5)),
    "wedge": wedge,
}

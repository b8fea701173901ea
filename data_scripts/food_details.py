"""Textures on food and garnishes over it.

A texture covers an ellipse with half axes ``reach`` in the frame of its pen; a garnish covers a whole helping.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from data_scripts import pen as p
from data_scripts.food_shapes import Look
from data_scripts.pen import UNIT, Draws, Pen, shade, tones

Reach = tuple[int, int]

# -- textures ---------------------------------------------------------------------------------------------------------


def plain(pen: Pen, draws: Draws, look: Look, reach: Reach) -> None:  # noqa: ARG001 - one signature for all textures
    pen.at(-reach[0] // 4, -reach[1] // 3).fill(p.ellipse(reach[0] // 3, reach[1] // 5), shade(look.top, 110))


def dots(pen: Pen, draws: Draws, look: Look, reach: Reach) -> None:
    side = min(reach)
    colours = [*tones(draws, look.body, 20, 2), *tones(draws, look.top, 25, 3)]
    pen.scatter(draws, p.circle(UNIT, 8), colours, n=8, reach=reach, sizes=(side // 11, side // 6))


def pores(pen: Pen, draws: Draws, look: Look, reach: Reach) -> None:
    pen.scatter(draws, p.circle(UNIT, 8), [shade(look.top, 76), shade(look.top, 84)], n=9, reach=reach, sizes=(30, 70))


def grains(pen: Pen, draws: Draws, look: Look, reach: Reach) -> None:
    colours = [*tones(draws, look.top, 22), shade(look.body, 114)]
    pen.scatter(draws, p.ellipse(UNIT, 420, 8), colours, n=16, reach=reach, sizes=(60, 110))


def pieces(pen: Pen, draws: Draws, look: Look, reach: Reach) -> None:
    pen.raised(-30).scatter(draws, p.box(UNIT, 900, 240), [shade(look.body, 66)], n=2, reach=reach, sizes=(120, 180))
    pen.scatter(draws, p.box(UNIT, 760, 240), tones(draws, look.top, 16), n=10, reach=reach, sizes=(110, 200))


def slices(pen: Pen, draws: Draws, look: Look, reach: Reach) -> None:  # noqa: ARG001
    """One slice of sausage, sometimes a mushroom or none."""
    colour = draws.choice(((176, 56, 42), (190, 70, 50), (222, 206, 176)))
    if draws.chance(15):
        return
    place = pen.at(draws.between(-200, 200), draws.between(-200, 200), max(reach) * draws.between(75, 105) // 100)
    place.fill(p.circle(UNIT, 16), shade(colour, 70))
    place.raised(60).fill(p.circle(900, 16), colour)
    place.scatter(draws, p.circle(UNIT, 8), [shade(colour, 122)], n=4, reach=(560, 560), sizes=(90, 150))


def strips(pen: Pen, draws: Draws, look: Look, reach: Reach) -> None:
    pen.scatter(draws, p.capsule(UNIT, 90), tones(draws, look.top, 18), n=14, reach=reach, sizes=(200, 420))


def filling(pen: Pen, draws: Draws, look: Look, reach: Reach) -> None:
    pen.fill(p.capsule(reach[0], max(60, reach[1] * 2 // 3)), look.top)
    pen.scatter(draws, p.box(UNIT, 700, 200), tones(draws, look.top, 30), n=10, reach=reach, sizes=(50, 110))


def swirl(pen: Pen, draws: Draws, look: Look, reach: Reach) -> None:
    start, side = draws.turn(), min(reach)
    for radius, light in ((side * 7 // 8, 120), (side * 5 // 8, 80), (side * 3 // 8, 116)):
        start += 150
        pen.fill(p.band(radius - side // 9, radius, start, 380, 20), shade(look.top, light))


def grid(pen: Pen, draws: Draws, look: Look, reach: Reach) -> None:
    """Pockets of a waffle: dark squares in light bars."""
    n = draws.between(3, 4)
    step = 2 * reach[0] // n
    places = np.array([(x, y) for x in range(n) for y in range(n)], np.int64) * step - reach[0] + step // 2
    pen.fill_each(p.box(step * 3 // 8, step * 3 // 8, step // 10) + places[:, None], [shade(look.top, 58)])
    pen.fill_each(p.box(step // 4, step // 4) + places[:, None] + np.array([0, step // 10]), [shade(look.top, 78)])


def lattice(pen: Pen, draws: Draws, look: Look, reach: Reach) -> None:
    """Strips of dough across each other."""
    pen.scatter(draws, p.circle(UNIT, 8), tones(draws, look.top, 24), n=10, reach=reach, sizes=(90, 160))
    for turn in (64, 192):
        for offset in range(-2, 3):
            length = reach[1] * (10 - 2 * abs(offset)) // 10
            bar = pen.at(0, 0, UNIT, turn).at(0, offset * reach[1] * 2 // 5)
            bar.fill(p.box(length, 90), shade(look.body, 76))
            bar.at(0, -24).fill(p.box(length, 62), shade(look.body, 112))


def layers(pen: Pen, draws: Draws, look: Look, reach: Reach) -> None:
    for number, light in enumerate((70, 112, 84)):
        place = pen.at(0, (number - 1) * reach[1] // 2 + draws.between(-20, 20))
        place.fill(p.capsule(reach[0] * 7 // 8, max(30, reach[1] // 9)), shade(look.body, light))


def ridges(pen: Pen, draws: Draws, look: Look, reach: Reach) -> None:  # noqa: ARG001
    _bars(pen, reach, 5, shade(look.top, 80), 40)


def ribs(pen: Pen, draws: Draws, look: Look, reach: Reach) -> None:  # noqa: ARG001
    _bars(pen, reach, 5, shade(look.body, 60), 60)
    _bars(pen.at(40, 0), reach, 5, shade(look.body, 128), 30)


def sear(pen: Pen, draws: Draws, look: Look, reach: Reach) -> None:  # noqa: ARG001
    """Marks of the grill, askew."""
    _bars(pen.at(0, 0, UNIT, draws.choice((40, 56, -40))), reach, 4, (84, 48, 32), 50)


def _bars(pen: Pen, reach: Reach, n: int, colour: p.Colour, width: int) -> None:
    for number in range(n):
        x = reach[0] * (2 * number - n + 1) // n
        height = reach[1] * (100 - 70 * abs(x) // max(1, reach[0])) // 100
        pen.at(x, 0).fill(p.box(min(width, reach[0] // 5), height), colour)


def pillow(pen: Pen, draws: Draws, look: Look, reach: Reach) -> None:
    outline = p.wobbly(draws, min(reach), 90)
    pen.fill(outline, shade(look.body, 86))
    pen.raised(70).fill(outline * 7 // 8, shade(look.body, 112))


TEXTURES: dict[str, Callable[[Pen, Draws, Look, Reach], None]] = {
    "dots": dots, "filling": filling, "grains": grains, "grid": grid, "lattice": lattice, "layers": layers,
    "pieces": pieces, "pillow": pillow, "plain": plain, "pores": pores, "ribs": ribs, "ridges": ridges, "sear": sear,
    "slices": slices, "strips": strips, "swirl": swirl,
}  # fmt: skip

# -- garnishes --------------------------------------------------------------------------------------------------------


def none(pen: Pen, draws: Draws) -> None:
    """Nothing."""


def basil(pen: Pen, draws: Draws) -> None:
    for _ in range(draws.between(2, 4)):
        leaf = pen.at(*_place(draws, 620), draws.between(170, 240), draws.turn())
        green = p.vary(draws, (66, 130, 54), 16)
        leaf.fill(p.ellipse(UNIT, 560), shade(green, 76))
        leaf.raised(90).fill(p.ellipse(940, 480), green)
        leaf.raised(90).fill(p.capsule(800, 50), shade(green, 132))


def herbs(pen: Pen, draws: Draws) -> None:
    greens = tones(draws, (86, 142, 62), 22)
    pen.scatter(draws, p.ellipse(UNIT, 560, 8), greens, n=14, reach=(700, 700), sizes=(36, 76))


def berries(pen: Pen, draws: Draws) -> None:
    colour = draws.choice(((176, 30, 52), (66, 62, 122), (206, 52, 60)))
    for _ in range(draws.between(2, 5)):
        berry = pen.at(*_place(draws, 760), draws.between(110, 160)).raised(500)
        berry.fill(p.circle(UNIT, 16), shade(colour, 72))
        berry.at(-90, -90).fill(p.circle(820, 16), colour)
        berry.at(-300, -340).fill(p.circle(240, 8), (250, 226, 226))


def butter(pen: Pen, draws: Draws) -> None:
    pat = pen.at(draws.between(-160, 160), draws.between(-160, 160), draws.between(200, 260), draws.turn()).raised(1500)
    pat.raised(-300).fill(p.box(UNIT, 900), (206, 164, 76))
    pat.fill(p.box(UNIT, 900, 90), (252, 232, 140))


def cream(pen: Pen, draws: Draws) -> None:
    blob = pen.at(*_place(draws, 380), draws.between(260, 360))
    for height, radius, light in ((0, UNIT, 80), (160, 860, 93), (300, 560, 100)):
        blob.raised(height).fill(p.wobbly(draws, radius, 180), shade((252, 248, 238), light))


def crumbs(pen: Pen, draws: Draws) -> None:
    colours = tones(draws, (214, 172, 110), 24)
    pen.scatter(draws, p.box(UNIT, 800, 300), colours, n=16, reach=(900, 900), sizes=(26, 66))


def lemon(pen: Pen, draws: Draws) -> None:
    turn = draws.turn()
    x, y = p.polar(760, np.array(draws.turn())).tolist()
    wedge = pen.at(x, y, draws.between(280, 340), turn)
    outline = np.concatenate((p.arc(UNIT, 0, 256, 14), np.zeros((1, 2), np.int64)))
    wedge.fill(outline, (214, 176, 40))
    wedge.fill(outline * 7 // 8, (252, 244, 196))
    for number in range(4):
        wedge.fill(np.concatenate((np.zeros((1, 2), np.int64), p.arc(780, 8 + number * 62, 54, 6))), (246, 216, 84))


def olives(pen: Pen, draws: Draws) -> None:
    colour = draws.choice(((48, 42, 50), (104, 112, 48)))
    for _ in range(draws.between(3, 6)):
        olive = pen.at(*_place(draws, 720), draws.between(90, 130))
        olive.fill(p.circle(UNIT, 16), shade(colour, 70))
        olive.raised(200).fill(p.circle(UNIT, 16), colour)
        olive.raised(200).fill(p.circle(400, 8), (196, 84, 52))


def sauce(pen: Pen, draws: Draws) -> None:
    """A zigzag over the food."""
    colour = draws.choice(((190, 40, 28), (232, 188, 48), (92, 52, 30)))
    turn, left = draws.turn(), draws.between(-700, -500)
    pen = pen.at(0, 0, UNIT, turn)
    for number in range(6):
        x = left + number * 210
        pen.at(x, 0, UNIT, 26 if number % 2 else -26).fill(p.capsule(360, 44), colour)


def sesame(pen: Pen, draws: Draws) -> None:
    colours = tones(draws, (244, 228, 186), 10)
    pen.raised(150).scatter(draws, p.ellipse(UNIT, 560, 8), colours, n=18, reach=(680, 560), sizes=(30, 52))


def sprinkles(pen: Pen, draws: Draws) -> None:
    colours = [(236, 76, 96), (70, 150, 220), (250, 214, 70), (110, 190, 100), (250, 250, 250)]
    pen.raised(80).scatter(draws, p.capsule(UNIT, 300), colours, n=22, reach=(820, 820), sizes=(40, 60))


def yolk(pen: Pen, draws: Draws) -> None:
    for _ in range(draws.between(1, 2)):
        egg = pen.at(*_place(draws, 360), draws.between(380, 460))
        egg.fill(p.wobbly(draws, UNIT, 260), (222, 214, 196))
        egg.raised(50).fill(p.wobbly(draws, 960, 240), (252, 250, 242))
        egg.raised(60).fill(p.circle(430, 16), (226, 150, 24))
        egg.raised(120).fill(p.circle(390, 16), (252, 186, 40))
        egg.raised(120).at(-120, -140).fill(p.circle(110, 8), (255, 240, 190))


def _place(draws: Draws, reach: int) -> list[int]:
    return (p.in_disc(draws, 1)[0] * reach // UNIT).tolist()


GARNISHES: dict[str, Callable[[Pen, Draws], None]] = {
    "basil": basil, "berries": berries, "butter": butter, "cream": cream, "crumbs": crumbs, "herbs": herbs,
    "lemon": lemon, "none": none, "olives": olives, "sauce": sauce, "sesame": sesame, "sprinkles": sprinkles,
    "yolk": yolk,
}  # fmt: skip

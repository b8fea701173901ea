"""Draw one plate of food: a table, what lies about on it, a plate, a dish, light, and the grain of a cheap camera.

``draw_plate(dish, number, size, seed)`` depends on its four arguments alone, not on how many others are drawn, by how
many processes or in what order; and it gives the same bytes on every machine (see `pen` for how).

What a network must learn to overlook is drawn anew for each picture: where the plate lies, how large, how turned and
seen from how high; the colour of light, its direction and a shadow across the table; the table, the plate, cutlery,
glasses and napkins; crumbs and leaves that belong to no dish.
"""

from __future__ import annotations

import cv2
import numpy as np

from data_scripts import pen as p
from data_scripts.food_details import GARNISHES, TEXTURES, herbs, lemon
from data_scripts.food_shapes import SHAPES, Look
from data_scripts.menu import COLOURS, MENU, Dish
from data_scripts.pen import UNIT, Colour, Draws, Pen, shade, tones, vary

DRAWING = 1  # raise it with every change of a pixel: cached files of an older drawing are made again
SMALLEST = 16  # pixels; below that a plate cannot be told from its food

_TABLES: tuple[Colour, ...] = (
    (158, 112, 72), (128, 90, 60), (196, 156, 112), (222, 214, 200), (112, 112, 114), (176, 182, 174), (112, 128, 140),
)  # fmt: skip
_CLOTHS: tuple[Colour, ...] = ((196, 60, 56), (72, 104, 160), (96, 140, 96), (226, 190, 92), (240, 236, 228))
_PLATES: tuple[Colour, ...] = (
    (244, 243, 238), (248, 246, 242), (238, 236, 232), (226, 220, 204), (244, 240, 226), (150, 172, 190), (84, 86, 92),
    (196, 150, 108), (168, 188, 168),
)  # fmt: skip
_STEEL: Colour = (190, 194, 200)


def draw_plate(dish: int, number: int, size: int = 64, seed: int = 0) -> np.ndarray:
    """Picture ``number`` of class ``dish`` (its place in the menu): (size, size, 3) uint8 RGB."""
    draws = Draws(seed, dish, number)
    image = _table(draws, size)
    tilt = draws.between(72, 100)
    plate = Pen.on(
        image, 500 + draws.between(-150, 150), 510 + draws.between(-150, 150), draws.between(270, 480),
        turn=draws.turn(), tilt=tilt,
    )  # fmt: skip
    _clutter(draws, image, tilt)
    _plate(draws, plate)
    _helping(draws, plate, MENU[dish])
    return _photograph(draws, image)


def _helping(draws: Draws, plate: Pen, dish: Dish) -> None:
    food = plate.at(draws.between(-130, 130), draws.between(-130, 130), draws.between(620, 860), draws.turn())
    look = Look(
        body=vary(draws, COLOURS[draws.choice(dish.body)], 22),
        top=vary(draws, COLOURS[draws.choice(dish.top)], 22),
        texture=TEXTURES[dish.texture],
    )
    SHAPES[dish.shape](food, draws, look)
    if draws.chance(80):
        GARNISHES[dish.garnish](food, draws)
    if draws.chance(25):
        draws.choice((herbs, lemon))(plate, draws)  # on any dish: garnish alone must not give it away


# -- what the food lies on --------------------------------------------------------------------------------------------


def _table(draws: Draws, size: int) -> np.ndarray:
    colour = vary(draws, draws.choice(_TABLES), 18)
    rows, columns = draws.choice(((4, 40), (40, 4), (12, 12), (5, 5), (3, 24)))
    amount = draws.between(24, 72)
    grain = (draws.noise(rows, columns, 1) * np.uint16(amount) >> 8) + np.array(colour, np.uint16) - amount // 2
    image = p.enlarge(np.clip(grain.view(np.int16), 0, 255).astype(np.uint8), size)
    if draws.chance(20):
        _checks(draws, image)
    return image


def _checks(draws: Draws, image: np.ndarray) -> None:
    """Stripes of a table cloth, one way or both."""
    colour, width = vary(draws, draws.choice(_CLOTHS), 20), draws.between(30, 90)
    both, turn = draws.chance(60), draws.turn()
    for frame_turn in (turn, turn + 128)[: 1 + both]:
        cloth = Pen.on(image, 500, 500, 1000, turn=frame_turn)
        places = np.array([(0, y) for y in range(-800, 801, 4 * width)], np.int64)
        cloth.fill_each(p.box(UNIT, width) + places[:, None], [colour])


def _plate(draws: Draws, pen: Pen) -> None:
    colour = vary(draws, draws.choice(_PLATES), 10)
    outline = p.box(980, 760, 60) if draws.chance(12) else p.circle(UNIT, 64)
    pen.raised(-70).fill(outline * 66 // 64, shade(colour, 42))
    pen.fill(outline, shade(colour, 92))
    if draws.chance(35):
        pen.fill_between(outline * 62 // 64, outline * 58 // 64, vary(draws, draws.choice(_CLOTHS), 20))
    pen.fill(outline * 48 // 64, shade(colour, 80))
    pen.raised(-16).fill(outline * 46 // 64, colour)


# -- what lies about --------------------------------------------------------------------------------------------------


def _clutter(draws: Draws, image: np.ndarray, tilt: int) -> None:
    for thing in (_napkin, _cutlery, _glass, _side_plate, _crumbs):
        if draws.chance(25):
            edge, along = draws.choice((40, 120, 880, 960)), draws.between(60, 940)
            x, y = (edge, along) if draws.chance(50) else (along, edge)
            thing(draws, Pen.on(image, x, y, draws.between(150, 260), turn=draws.turn(), tilt=tilt))


def _napkin(draws: Draws, pen: Pen) -> None:
    colour = vary(draws, draws.choice(_CLOTHS), 24)
    pen.raised(-40).fill(p.box(UNIT, 860), shade(colour, 50))
    pen.fill(p.box(UNIT, 860), colour)
    pen.fill(p.box(UNIT, 120), shade(colour, 84))


def _cutlery(draws: Draws, pen: Pen) -> None:
    for piece in (pen, pen.at(0, 300))[: draws.between(1, 2)]:
        piece = piece.at(0, 0, 1900)
        piece.raised(-20).fill(p.capsule(UNIT, 44), (70, 62, 56))
        piece.fill(p.capsule(UNIT, 44), _STEEL)
        if draws.chance(50):
            piece.at(820, 0).fill(p.ellipse(240, 130), shade(_STEEL, 90))
            piece.at(820, 0).fill(p.ellipse(190, 90), shade(_STEEL, 114))
        else:
            tines = np.array([[[700, y]] for y in (-90, -30, 30, 90)], np.int64)
            piece.fill_each(p.box(280, 16) + tines, [_STEEL])


def _glass(draws: Draws, pen: Pen) -> None:
    drink = vary(draws, draws.choice(((236, 240, 240), (122, 30, 44), (230, 190, 90), (84, 48, 32))), 14)
    pen.raised(-160).fill(p.circle(UNIT, 32), (64, 58, 54))
    for radius, colour in ((UNIT, (226, 232, 234)), (900, shade(drink, 74)), (820, drink)):
        pen.fill(p.circle(radius, 32), colour)
    pen.fill(p.band(620, 720, draws.turn(), 100), shade(drink, 135))


def _side_plate(draws: Draws, pen: Pen) -> None:
    """A small plate with a blob of anything on it."""
    small = pen.at(0, 0, 1200)
    _plate(draws, small)
    colour = COLOURS[draws.choice(tuple(COLOURS))]
    small.fill(p.wobbly(draws, 560, 200), shade(colour, 70))
    small.raised(90).fill(p.wobbly(draws, 540, 200), colour)
    small.scatter(draws, p.box(UNIT, 700, 200), tones(draws, colour, 26), n=8, reach=(420, 420), sizes=(80, 160))


def _crumbs(draws: Draws, pen: Pen) -> None:
    colour = COLOURS[draws.choice(("bread", "leaf", "tomato", "chocolate", "cream"))]
    pen.scatter(draws, p.box(UNIT, 700, 260), tones(draws, colour, 24), n=12, reach=(2600, 2600), sizes=(60, 150))


# -- light and camera -------------------------------------------------------------------------------------------------


def _photograph(draws: Draws, image: np.ndarray) -> np.ndarray:
    """Light falls on the scene, a shadow crosses it, and the camera adds its grain."""
    size = image.shape[0]
    if draws.chance(70):
        image = p.enlarge(p.enlarge(image, size * draws.between(60, 95) // 100), size)  # out of focus
    lit = cv2.multiply(image, p.enlarge(_light(draws), size), scale=1 / 128)  # exact: a product of bytes over 2**7
    strength = draws.between(4, 6)  # the grain is even: 16, 8 or 4 steps wide
    grain = draws.noise(size, size, 3) >> strength
    return cv2.subtract(cv2.add(lit, grain), (127 >> strength,) * 4)  # one number a channel; OpenCV counts four


def _light(draws: Draws) -> np.ndarray:
    """A small picture of the light, 128 for plain daylight: (9, 9, 3) uint8."""
    level, warmth = draws.between(100, 140), draws.between(-12, 12)
    across, down = draws.between(-5, 5), draws.between(-5, 5)
    steps = np.arange(-4, 5)
    light = level + across * steps[None, :] + down * steps[:, None]
    if draws.chance(40):
        light -= _shadow(draws, steps)
    tint = np.array([warmth, 0, -warmth])
    return np.clip(light[:, :, None] + tint, 30, 255).astype(np.uint8)


def _shadow(draws: Draws, steps: np.ndarray) -> np.ndarray:
    """A dark band, as of a window bar or somebody's arm."""
    x, y = p.polar(100, np.array(draws.turn())).tolist()
    distance = np.abs(x * steps[None, :] + y * steps[:, None] + draws.between(-300, 300))
    return np.where(distance < draws.between(70, 160), draws.between(15, 45), 0)

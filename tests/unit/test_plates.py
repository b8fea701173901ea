"""Drawn plates: the same bytes everywhere, each picture on its own, all dishes different, nothing but whole numbers."""

import hashlib
import itertools
import math
import subprocess
import sys

import cv2
import numpy as np
import pytest

from data_scripts import pen
from data_scripts.food_details import GARNISHES, TEXTURES
from data_scripts.food_shapes import SHAPES
from data_scripts.menu import COLOURS, MENU
from data_scripts.pen import Draws, Pen
from data_scripts.plates import draw_plate

# (dish, number, size, seed) -> first 16 hex digits of the SHA-256 of the pixels. Stored notebook outputs and cached
# files rely on them. Whoever changes a pixel raises plates.DRAWING and pins anew.
PINNED = {
    (0, 0, 64, 0): "c7611f9813db0ec4",
    (4, 7, 64, 0): "e103b24d5b9146c0",
    (6, 2, 299, 0): "5196fa40b09c0fad",
    (3, 1, 16, 1): "ae242fc15e10dfee",
    (7, 999, 64, 4294967295): "1abd2dd2afe1594b",
    (100, 5, 128, 0): "1d262ef3dab3fa50",
}
PINNED_MENU = "6ffc9da5a41085a5"
PINNED_DRAWS = {
    "between": [67, 11, 51, 35, 70],
    "array": [0, 2, -1, -5, -2],
    "noise": [[24, 94], [223, 245]],
    "order": [2, 1, 5, 0, 3, 4],
}


def digest(image):
    return hashlib.sha256(image.tobytes()).hexdigest()[:16]


@pytest.mark.parametrize("key", PINNED, ids=str)
def test_pictures_are_pinned_to_the_byte(key):
    """These pictures are the same on every machine, with every version of NumPy and OpenCV."""
    assert digest(draw_plate(*key)) == PINNED[key]


def test_all_dishes_are_pinned_to_the_byte():
    """So are two pictures of every dish, which between them use every shape, texture and most garnishes."""
    pictures = np.stack([draw_plate(dish, number, 48) for dish in range(len(MENU)) for number in range(2)])
    assert digest(pictures) == PINNED_MENU


def test_pictures_do_not_depend_on_threads_or_vector_instructions():
    """One OpenCV thread without its optimised code draws what several threads with it draw."""
    keys = [(dish, 3, 150) for dish in range(8)]
    expected = [digest(draw_plate(*key)) for key in keys]
    threads = cv2.getNumThreads()
    cv2.setNumThreads(1)
    cv2.setUseOptimized(False)
    try:
        actual = [digest(draw_plate(*key)) for key in keys]
    finally:
        cv2.setUseOptimized(True)
        cv2.setNumThreads(threads)
    assert actual == expected


def test_a_picture_does_not_depend_on_those_drawn_before():
    """Drawn first, last, twice or in a fresh process, a picture is the same."""
    code = "from data_scripts.plates import draw_plate; print(draw_plate(4, 7, 32, 5).sum())"
    alone = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    for dish, number in itertools.product(range(3), range(3)):
        draw_plate(dish, number, 32, 5)
    assert int(alone) == draw_plate(4, 7, 32, 5).sum()


@pytest.mark.parametrize("size", [16, 17, 64, 299, 400])
def test_any_size(size):
    """A picture is (size, size, 3) uint8, contiguous, and not all of one colour."""
    image = draw_plate(0, 0, size)
    assert (image.shape, image.dtype, image.flags.c_contiguous) == ((size, size, 3), np.uint8, True)
    assert image.std() > 10


def test_sizes_show_the_same_scene():
    """The large picture, made small, looks like the small one: the scene depends on seed, dish and number alone."""
    for number in range(5):
        large, small = draw_plate(4, number, 256), draw_plate(4, number, 64)
        shrunk = cv2.resize(large, (64, 64), interpolation=cv2.INTER_AREA)
        assert np.corrcoef(shrunk.ravel(), small.ravel())[0, 1] > 0.9


def test_seed_dish_and_number_each_change_the_picture():
    """No two of 60 keys give the same picture."""
    keys = itertools.product(range(5), range(4), [32], range(3))
    assert len({digest(draw_plate(*key)) for key in keys}) == 60


def test_the_menu_has_101_dishes_that_look_different():
    """Names and descriptions are all different, and every word of them is known."""
    assert len(MENU) == len({dish.name for dish in MENU}) == 101
    looks = {(dish.shape, dish.body, dish.top, dish.texture, dish.garnish) for dish in MENU}
    assert len(looks) == 101
    assert {dish.shape for dish in MENU} == set(SHAPES)
    assert {dish.texture for dish in MENU} == set(TEXTURES)
    assert {dish.garnish for dish in MENU} == set(GARNISHES)
    assert {colour for dish in MENU for colour in dish.body + dish.top} <= set(COLOURS)


def test_the_mean_colour_does_not_give_the_class_away():
    """The nearest mean colour of 40 pictures a class names fewer than 3 of 10 plates, where chance names 1 in 8."""
    colours = np.array([[draw_plate(dish, k, 32).mean(axis=(0, 1)) for k in range(65)] for dish in range(8)])
    centres = colours[:, :40].mean(axis=1)
    distances = np.linalg.norm(colours[:, 40:, None] - centres, axis=-1)
    right = (distances.argmin(axis=-1) == np.arange(8)[:, None]).mean()
    assert right < 0.3


# -- pen --------------------------------------------------------------------------------------------------------------


def test_draws_are_pinned():
    """These draws never change: every picture relies on them."""
    draws = Draws(1, 2, 3)
    assert [draws.between(0, 99) for _ in range(5)] == PINNED_DRAWS["between"]
    assert draws.array(-5, 5, 5).tolist() == PINNED_DRAWS["array"]
    assert draws.noise(2, 2).tolist() == PINNED_DRAWS["noise"]
    assert draws.order(6).tolist() == PINNED_DRAWS["order"]


@pytest.mark.parametrize("low_high", [(0, 0), (3, 5), (-7, 7), (0, 299)], ids=str)
def test_draws_reach_both_ends_and_no_further(low_high):
    """`between` and `array` include both of their ends."""
    draws = Draws(0)
    values = draws.array(*low_high, 5000)
    assert (values.min(), values.max()) == low_high
    singles = {draws.between(*low_high) for _ in range(5000)}
    assert (min(singles), max(singles)) == low_high


@pytest.mark.parametrize("n", [0, 1, 2, 50])
def test_order_is_a_permutation(n):
    """`order(n)` holds 0 to n - 1 once each."""
    assert sorted(Draws(4).order(n).tolist()) == list(range(n))


def test_no_sine_lies_near_a_tie():
    """The table of sines would be the same with a C library whose sine is wrong in its last thousand units."""
    exact = [pen.ONE * math.sin(2 * math.pi * step / pen.FULL_TURN) for step in range(pen.FULL_TURN)]
    nearest_tie = min(abs(value - math.floor(value) - 0.5) for value in exact)
    assert nearest_tie > 1e-4


def test_a_full_turn_changes_nothing():
    """Frames and outlines turned by 512 steps are where they were."""
    image = np.zeros((32, 32, 3), np.uint8)
    once, twice = Pen.on(image, 500, 500, 400, turn=37), Pen.on(image, 500, 500, 400, turn=37 + pen.FULL_TURN)
    drawn = []
    for frame in (once, twice):
        image[:] = 0
        frame.at(100, 0, 500, 5).fill(pen.box(900, 300, 40), (255, 200, 100))
        drawn.append(image.copy())
    assert drawn[0].any()
    assert np.array_equal(*drawn)


def test_kept_outlines_cannot_be_changed():
    """An outline that all pictures share refuses to be written to."""
    with pytest.raises(ValueError, match="read-only"):
        pen.circle(100)[0] = 0

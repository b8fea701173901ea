"""Augment changes what it says, by chance from its generator alone, and never the input or its type."""

import cv2
import numpy as np
import pytest

from helpers import Augment, CenterCrop
from helpers.augment import FILLS, _warped

EVERYTHING = {
    "crop": (24, 20),
    "rotation": 20,
    "width_shift": 0.1,
    "height_shift": 0.1,
    "shear": 10,
    "zoom": (0.8, 1.2),
    "horizontal_flip": True,
    "vertical_flip": True,
    "brightness": (0.7, 1.3),
}


@pytest.fixture
def image():
    """Random pixels, 32 x 28."""
    return np.random.default_rng(7).integers(0, 256, (32, 28, 3), dtype=np.uint8)


def dot_image(y, x, size=41):
    """Black, with one white square of 3 x 3 around (y, x)."""
    picture = np.zeros((size, size, 3), np.uint8)
    picture[y - 1 : y + 2, x - 1 : x + 2] = 255
    return picture


def dot_position(picture):
    """Centre of mass of the bright pixels, (y, x)."""
    ys, xs = np.nonzero(picture[:, :, 0] > 100)
    return ys.mean(), xs.mean()


@pytest.mark.parametrize("name", EVERYTHING)
def test_each_change_alone_keeps_type_and_input(image, name):
    """Each argument on its own gives uint8 of the stated shape, and leaves the input as it was."""
    augment = Augment(**{name: EVERYTHING[name]})
    before = image.copy()
    for seed in range(5):
        result = augment(image, np.random.default_rng(seed))
        assert result.dtype == np.uint8
        assert result.shape == augment.output_shape(image.shape)
        assert not np.shares_memory(result, image)
    np.testing.assert_array_equal(image, before)


@pytest.mark.parametrize("name", EVERYTHING)
def test_each_change_alone_does_something(image, name):
    """No argument is without effect: over some seeds the images differ from each other."""
    augment = Augment(**{name: EVERYTHING[name]})
    results = {augment(image, np.random.default_rng(seed)).tobytes() for seed in range(10)}
    assert len(results) > 1


def test_same_generator_state_gives_same_image(image):
    """The result is a pure function of the image and the generator's state; NumPy's global state is not used."""
    augment = Augment(**EVERYTHING)
    first = augment(image, np.random.default_rng(3))
    np.random.seed(1)  # noqa: NPY002 - to show that the global generator does not matter
    np.testing.assert_array_equal(augment(image, np.random.default_rng(3)), first)


def test_nothing_asked_is_a_copy(image):
    """Augment() with no argument returns the same pixels in a new array."""
    result = Augment()(image, np.random.default_rng(0))
    np.testing.assert_array_equal(result, image)
    assert result is not image


def test_flips_are_exact_with_and_without_a_warp(image):
    """A flip moves pixels without interpolating them; through the warp it gives the same picture."""
    seed = next(s for s in range(20) if np.random.default_rng(s).random(3)[2] < 0.5)
    sliced = Augment(horizontal_flip=True)(image, np.random.default_rng(seed))
    np.testing.assert_array_equal(sliced, image[:, ::-1])
    warped = Augment(horizontal_flip=True, rotation=1e-12)(image, np.random.default_rng(seed))
    np.testing.assert_array_equal(warped, sliced)


def test_rotation_turns_about_the_centre():
    """A dot right of the centre moves on a circle; 40 degrees at most, both ways are used."""
    angles = []
    for seed in range(40):
        picture = Augment(rotation=40, fill="constant")(dot_image(20, 32), np.random.default_rng(seed))
        y, x = dot_position(picture)
        assert np.hypot(y - 20, x - 20) == pytest.approx(12, abs=0.6)
        angles.append(np.degrees(np.arctan2(20 - y, x - 20)))
    assert max(np.abs(angles)) < 42
    assert min(angles) < -20
    assert max(angles) > 20


def test_zoom_shows_the_central_part():
    """zoom=(0.5, 0.5) shows the central half: a dot 5 pixels off the centre is then 10 off."""
    picture = Augment(zoom=(0.5, 0.5))(dot_image(20, 25), np.random.default_rng(0))
    assert dot_position(picture) == pytest.approx((20, 30), abs=0.5)


def test_shift_is_a_fraction_of_the_side():
    """width_shift=0.1 on 41 pixels moves a dot by at most 4.1 pixels, sideways only."""
    offsets = [
        dot_position(Augment(width_shift=0.1)(dot_image(20, 20), np.random.default_rng(seed))) for seed in range(40)
    ]
    sideways = np.array([x - 20 for _, x in offsets])
    assert np.abs(sideways).max() <= 4.6
    assert sideways.min() < -2
    assert sideways.max() > 2
    assert {round(y) for y, _ in offsets} == {20}


def test_shear_moves_rows_sideways():
    """Shear slides rows against each other: a dot above the centre moves along x, hardly along y."""
    moved = [dot_position(Augment(shear=20)(dot_image(8, 20), np.random.default_rng(seed))) for seed in range(20)]
    assert np.ptp([x for _, x in moved]) > 4
    assert np.ptp([y for y, _ in moved]) < 1


@pytest.mark.parametrize(
    ("value", "factor", "expected"), [(250, 1.2, 255), (0, 1.2, 0), (100, 0.5, 50), (200, 1.1, 220)]
)
def test_brightness_clips_instead_of_wrapping(value, factor, expected):
    """250 * 1.2 is 255, not 44: brightness is computed beyond uint8 and cut off."""
    picture = np.full((4, 4, 3), value, np.uint8)
    result = Augment(brightness=(factor, factor))(picture, np.random.default_rng(0))
    assert np.unique(result).tolist() == [expected]


def test_crop_reaches_every_place(image):
    """A crop of all but one pixel takes each of the four windows at some time, without changing pixels."""
    corners = set()
    for seed in range(40):
        result = Augment(crop=(31, 27))(image, np.random.default_rng(seed))
        place = [(t, x) for t in (0, 1) for x in (0, 1) if np.array_equal(result, image[t : t + 31, x : x + 27])]
        corners.update(place)
    assert corners == {(0, 0), (0, 1), (1, 0), (1, 1)}


def test_switching_one_change_on_leaves_the_others(image):
    """The draws of one change do not depend on which others are switched on."""
    rng_state = 11
    crop_alone = Augment(crop=(8, 8))(image, np.random.default_rng(rng_state))
    with_brightness = Augment(crop=(8, 8), brightness=(1, 1))(image, np.random.default_rng(rng_state))
    np.testing.assert_array_equal(crop_alone, with_brightness)


def test_own_function_runs_last_with_the_generator(image):
    """An own function gets the augmented image and the same generator, and may change its image in place."""

    def blot(picture, rng):
        picture[: rng.integers(1, 5)] = 0
        return picture

    before = image.copy()
    results = {Augment(function=blot)(image, np.random.default_rng(seed)).tobytes() for seed in range(10)}
    assert len(results) == 4
    np.testing.assert_array_equal(image, before)


BAD_RESULTS = {
    "float": (lambda image, rng: image / 255.0, "got shape (32, 28, 3) of float64."),
    "None": (lambda image, rng: None, "got NoneType."),
    "grey": (lambda image, rng: image[..., 0], "got shape (32, 28) of uint8."),
}


@pytest.mark.parametrize("case", BAD_RESULTS)
def test_own_function_must_return_a_uint8_image(image, case):
    """A function that returns floats, nothing or another number of axes is named as the cause."""
    function, got = BAD_RESULTS[case]
    with pytest.raises(TypeError) as caught:
        Augment(function=function)(image, np.random.default_rng(0))
    assert str(caught.value) == (
        f"the augment function must return a (height, width, 3) uint8 array; {got} Scaling to float belongs into the "
        "model: helpers.models.normalization."
    )


REFUSED = {
    "negative rotation": ({"rotation": -5}, "rotation must be a number from 0 to 180 degrees; got -5."),
    "shift in pixels": ({"width_shift": 5}, "width_shift must be a number from 0 to 1 of the width; got 5."),
    "zoom as Keras' single number": ({"zoom": 0.2}, "zoom must be two factors (low, high); got 0.2."),
    "zoom upside down": ({"zoom": (1, 0.8)}, "zoom must be (low, high) with 0 < low <= high; got (1.0, 0.8)."),
    "brightness below 0": ({"brightness": (-1, 1)},
                           "brightness must be (low, high) with 0 < low <= high; got (-1.0, 1.0)."),
    "unknown fill": ({"fill": "black"}, "fill must be one of reflect, nearest, wrap, constant; got 'black'."),
    "crop of nothing": ({"crop": (0, 5)}, "crop must be at least 1 pixel each way; got (0, 5)."),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_bad_arguments_are_refused_with_a_whole_sentence(case):
    """Each wrong argument names itself, its range and what was given."""
    arguments, sentence = REFUSED[case]
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the whole sentence is compared
        Augment(**arguments)
    assert str(caught.value) == sentence


def test_crop_larger_than_the_image_is_refused(image):
    """A window that does not fit names both sizes."""
    with pytest.raises(ValueError, match=r"^crop \(64, 64\) is larger than the image, \(32, 28\). Lower crop.$"):
        Augment(crop=(64, 64))(image, np.random.default_rng(0))


def test_float_image_is_refused(image):
    """A float image is an error that says where scaling belongs, not a silent wrong picture."""
    with pytest.raises(TypeError, match=r"^augment needs a \(height, width, 3\) uint8 array; got .* of float32"):
        Augment()(image.astype(np.float32), np.random.default_rng(0))


def test_center_crop_takes_the_middle(image):
    """CenterCrop cuts the middle, always the same."""
    np.testing.assert_array_equal(CenterCrop((10, 8))(image), image[11:21, 10:18])
    assert CenterCrop((10, 8)).output_shape((32, 28, 3)) == (10, 8, 3)


def test_repr_shows_what_was_asked():
    """The repr holds the arguments that differ from doing nothing."""
    assert repr(Augment(rotation=5, zoom=(0.8, 1))) == "Augment(rotation=5.0, zoom=(0.8, 1.0))"
    assert repr(Augment()) == "Augment()"


@pytest.mark.parametrize("fill", list(FILLS))
@pytest.mark.parametrize("size", [(299, 299), (64, 40), (1, 1), (3, 200)])
def test_the_fast_warp_gives_the_bytes_of_the_plain_one(fill, size):
    """Four channels are warped instead of three, for speed alone: maps of every kind, to other sizes too."""
    rng = np.random.default_rng(0)
    image = rng.integers(0, 256, (*size, 3), dtype=np.uint8)
    for width, height in (size[::-1], (size[1] // 2 + 1, size[0] + 5)):
        for _ in range(8):
            matrix = np.hstack([rng.normal(0, 1, (2, 2)), rng.normal(0, 20, (2, 1))])
            plain = cv2.warpAffine(
                image, matrix, (width, height), flags=cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP, borderMode=FILLS[fill]
            )
            assert (_warped(image, matrix, (width, height), FILLS[fill]) == plain).all()

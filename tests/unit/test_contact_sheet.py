"""The contact sheet: images of every kind as a person wants to see them, in a picture that stays small."""

import cv2
import numpy as np
import pytest

from helpers import contact_sheet
from helpers.contact_sheet import Thumbnail, as_rgb, sheet_jpeg, sheet_png, sheet_words, thumbnail_pixels
from helpers.images import encode_jpeg

RGB = np.random.default_rng(0).integers(0, 256, (6, 8, 3), dtype=np.uint8)
GREY = np.repeat(RGB[..., :1], 3, axis=-1)
FOREIGN = {
    "uint8": (RGB, RGB),
    "channels first": (RGB.transpose(2, 0, 1), RGB),
    "grey": (RGB[..., 0], GREY),
    "one channel": (RGB[..., :1], GREY),
    "one channel, first": (RGB[None, ..., 0], GREY),
    "alpha": (np.dstack([RGB, RGB[..., :1]]), RGB),
    "floats up to 1": ((RGB / 255).astype(np.float32), RGB),
    "floats up to 255": (RGB.astype(np.float64), RGB),
    "16 bits": (RGB.astype(np.uint16), RGB),
}


@pytest.mark.parametrize("case", FOREIGN)
def test_foreign_images_look_like_images(case):
    """Channels first, grey, floats: the same picture."""
    stored, seen = FOREIGN[case]
    assert (as_rgb(stored) == seen).all()


def test_numbers_of_any_range_are_stretched():
    """Images normalised to a mean of zero, and 16-bit ones, show from black to white; what is no number is black."""
    for values in (RGB / 127.5 - 1, RGB.astype(np.uint16) * 200):
        shown = as_rgb(values)
        assert (shown.min(), shown.max()) == (0, 255)
    assert as_rgb(np.full((2, 2, 3), np.nan)).max() == 0


@pytest.mark.parametrize("stored", [np.zeros(5, np.uint8), np.zeros((0, 4, 3)), np.zeros((2, 2, 2, 2)), np.zeros(5)])
def test_what_is_no_image_is_an_empty_tile(stored):
    """The report says what is wrong with it."""
    assert thumbnail_pixels(stored) is None


def test_thumbnails_keep_proportions():
    """A wide image lies in the middle of its tile; JPEG bytes are decoded."""
    wide = np.full((10, 40, 3), 200, np.uint8)
    for stored in (wide, np.frombuffer(encode_jpeg(wide), np.uint8)):
        tile = thumbnail_pixels(stored)
        assert tile.shape == (contact_sheet.TILE, contact_sheet.TILE, 3)
        rows = np.flatnonzero((tile > 190).all(axis=(1, 2)))
        assert (rows[0], len(rows)) == (31, 21)


def test_sheet_has_every_image_and_name():
    """Two splits, one image that cannot be shown; words for those who do not see it."""
    red = np.full((contact_sheet.TILE, contact_sheet.TILE, 3), (255, 0, 0), np.uint8)
    sheet = {"train": [Thumbnail(3, "soup", 0, red)] * 9, "test": [Thumbnail(5, "", -1, None)]}
    picture = cv2.imdecode(np.frombuffer(sheet_png(sheet), np.uint8), cv2.IMREAD_COLOR_RGB)
    assert picture.shape[1] == 726
    assert np.count_nonzero((picture == (255, 0, 0)).all(axis=-1)) == 9 * contact_sheet.TILE**2
    assert sheet_words(sheet) == "Contact sheet. train: " + ", ".join(["soup"] * 9) + "; test: row 5"


@pytest.mark.parametrize(
    ("label", "caption"), [("soup", "soup"), ("crème brûlée", "creme brulee"), ("寿司", "class 7"), ("", "class 7")]
)
def test_captions_are_letters_that_opencv_has(label, caption):
    """Accents are dropped; a name in other letters becomes the number of its class."""
    assert Thumbnail(0, label, 7, None).caption == caption


def test_embedded_sheet_is_small():
    """Noise is the worst that JPEG can get: quality falls until the picture fits."""
    noise = np.random.default_rng(0).integers(0, 256, (48, contact_sheet.TILE, contact_sheet.TILE, 3), dtype=np.uint8)
    sheet = {split: [Thumbnail(0, "x", 0, pixels) for pixels in noise[k::3]] for k, split in enumerate("abc")}
    data = sheet_jpeg(sheet)
    assert len(data) < 100_000
    assert cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR) is not None

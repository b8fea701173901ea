"""Pictures of every kind become the RGB array a person would expect; what is no picture is refused with the reason."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from PIL import Image, ImageOps

from helpers.images import ImageError, decode_jpeg, encode_jpeg, quiet_pillow, read_image, resize_image

RED, GREEN, BLUE, WHITE = (255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 255)


def block(colour, height=16, width=24) -> np.ndarray:
    """One-coloured image (height, width, len(colour)) uint8."""
    return np.broadcast_to(np.array(colour, np.uint8), (height, width, len(colour))).copy()


def palette(**options) -> Image.Image:
    picture = Image.new("P", (24, 16), 1)
    picture.putpalette([*BLUE, *GREEN])
    picture.info.update(options)
    return picture


def grey16(value: int) -> Image.Image:
    return Image.fromarray(np.full((16, 24), value, np.uint16))


def save(picture: Image.Image, folder, name: str, **options):
    path = folder / name
    picture.save(path, **options)
    return path


# name, the picture, how it is saved, the colour it must have, the largest allowed difference (JPEG is lossy)
KINDS = [
    ("rgb.png", Image.new("RGB", (24, 16), GREEN), {}, GREEN, 0),
    ("rgb.bmp", Image.new("RGB", (24, 16), GREEN), {}, GREEN, 0),
    ("rgb.webp", Image.new("RGB", (24, 16), GREEN), {"lossless": True}, GREEN, 0),
    ("rgb.jpg", Image.new("RGB", (24, 16), GREEN), {"quality": 95}, GREEN, 3),
    ("progressive.jpg", Image.new("RGB", (24, 16), BLUE), {"quality": 95, "progressive": True}, BLUE, 3),
    ("cmyk.jpg", Image.new("CMYK", (24, 16), (0, 255, 255, 0)), {"quality": 95}, RED, 3),
    ("grey.jpg", Image.new("L", (24, 16), 90), {"quality": 95}, (90, 90, 90), 1),
    ("grey.png", Image.new("L", (24, 16), 90), {}, (90, 90, 90), 0),
    ("see-through-grey-value.png", Image.new("L", (24, 16), 90), {"transparency": 90}, WHITE, 0),
    ("one-bit.png", Image.new("1", (24, 16), 1), {}, WHITE, 0),
    ("grey-alpha.png", Image.new("LA", (24, 16), (0, 128)), {}, (127, 127, 127), 0),
    ("rgba-half.png", Image.new("RGBA", (24, 16), (*RED, 128)), {}, (255, 127, 127), 0),
    ("rgba-clear.png", Image.new("RGBA", (24, 16), (*RED, 0)), {}, WHITE, 0),
    ("rgba.webp", Image.new("RGBA", (24, 16), (*BLUE, 128)), {"lossless": True}, (127, 127, 255), 0),
    ("see-through-colour.png", Image.new("RGB", (24, 16), RED), {"transparency": RED}, WHITE, 0),
    ("palette.png", palette(), {}, GREEN, 0),
    ("palette-clear.png", palette(), {"transparency": 1}, WHITE, 0),
    ("palette-half.png", palette(), {"transparency": bytes([255, 128])}, (127, 255, 127), 0),
    ("palette.bmp", palette(), {}, GREEN, 0),
    ("palette.gif", palette(), {}, GREEN, 0),
    ("grey16-dark.png", grey16(257), {}, (1, 1, 1), 0),
    ("grey16-half.png", grey16(32768), {}, (128, 128, 128), 0),
    ("grey16-full.png", grey16(65535), {}, WHITE, 0),
    ("png-inside.jpg", Image.new("RGB", (24, 16), GREEN), {"format": "PNG"}, GREEN, 0),
    ("gif-inside.jpg", palette(), {"format": "GIF"}, GREEN, 0),
]


@pytest.mark.parametrize(("name", "picture", "options", "colour", "tolerance"), KINDS, ids=[kind[0] for kind in KINDS])
def test_every_kind_becomes_rgb_of_the_right_colour(tmp_path, name, picture, options, colour, tolerance):
    """Shape, type and colour are right for palette, alpha, grey, 16-bit, CMYK and wrongly named files."""
    image = read_image(save(picture, tmp_path, name, **options))
    assert (image.shape, image.dtype) == ((16, 24, 3), np.uint8)
    np.testing.assert_allclose(image.astype(int), block(colour).astype(int), atol=tolerance)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("name", ["photo.jpg", "photo.png", "photo.webp"])
def test_exif_rotation_is_applied(tmp_path, orientation, name):
    """All eight orientations, in the three formats that carry EXIF, equal what Pillow's own function makes of them."""
    pixels = np.zeros((16, 32, 3), np.uint8)
    pixels[:8, :16], pixels[:8, 16:], pixels[8:, :16] = RED, GREEN, BLUE
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = save(Image.fromarray(pixels), tmp_path, name, exif=exif, **({"lossless": True} if "webp" in name else {}))
    with Image.open(path) as picture:
        expected = np.asarray(ImageOps.exif_transpose(picture).convert("RGB"))
    assert expected.shape[:2] == ((16, 32) if orientation < 5 else (32, 16))
    np.testing.assert_array_equal(read_image(path), expected)


def test_first_frame_of_an_animation(tmp_path):
    """An animated GIF counts as the picture it starts with."""
    frames = [Image.new("RGB", (24, 16), colour) for colour in (RED, BLUE)]
    path = save(frames[0], tmp_path, "moving.gif", save_all=True, append_images=frames[1:])
    np.testing.assert_array_equal(read_image(path), block(RED))


def test_damaged_exif_does_not_cost_the_picture(tmp_path):
    """EXIF bytes that make no sense are as good as none, and Pillow's warning about them can be kept quiet."""
    path = save(Image.new("RGB", (24, 16), WHITE), tmp_path, "odd.jpg", exif=b"Exif\x00\x00MM\x00*\xff\xff\xff\xff\x00")
    with quiet_pillow():
        np.testing.assert_array_equal(read_image(path), block(WHITE))
    with pytest.warns(UserWarning, match="^Corrupt EXIF data"):
        read_image(path)


NOT_PICTURE = "its bytes are not those of a PNG, JPEG, WebP, BMP or GIF picture"


def write_empty(path):
    path.write_bytes(b"")


def write_text(path):
    path.write_text("just words", encoding="utf-8")


def write_tiff(path):
    Image.new("RGB", (8, 8)).save(path, format="TIFF")


BROKEN = [
    ("empty", write_empty, "the file is empty"),
    ("text", write_text, NOT_PICTURE),
    ("tiff", write_tiff, NOT_PICTURE),
    ("missing", lambda _: None, "it cannot be read: No such file or directory"),
    ("folder", lambda path: path.mkdir(), "it cannot be read: Is a directory"),
]


@pytest.mark.parametrize(("case", "make", "message"), BROKEN, ids=[case[0] for case in BROKEN])
def test_what_is_no_picture_is_refused_with_the_reason(tmp_path, case, make, message):
    """Each kind of wrong file has its own words."""
    make(tmp_path / f"{case}.jpg")
    with pytest.raises(ImageError) as raised:
        read_image(tmp_path / f"{case}.jpg")
    assert str(raised.value) == message


@pytest.mark.parametrize("suffix", ["jpg", "png", "bmp", "webp", "gif", "progressive.jpg"])
@pytest.mark.parametrize("kept", [0.2, 0.5, 0.9])
def test_a_file_cut_short_is_refused(tmp_path, suffix, kept):
    """A picture that lost its tail never comes back half grey, in no format and at no place of the cut."""
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    options = {"progressive": True} if suffix.startswith("progressive") else {}
    path = save(Image.fromarray(noise), tmp_path, f"whole.{suffix}", **options)
    data = path.read_bytes()
    cut = tmp_path / f"cut.{suffix}"
    cut.write_bytes(data[: int(len(data) * kept)])
    with pytest.raises(ImageError, match=r"^it is cut short$|^it is damaged \(|^its bytes are not those"):
        read_image(cut)


def test_a_file_made_to_fill_the_memory_is_refused(tmp_path, monkeypatch):
    """Above Pillow's limit of pixels nothing is decoded, also between its warning and its error."""
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    expected = "it has more than 100 pixels (the limit of Pillow, against files made to fill the memory)"
    for name, size in (("large.png", (11, 11)), ("bomb.png", (30, 30))):
        path = save(Image.new("RGB", size), tmp_path, name)
        with quiet_pillow(), pytest.raises(ImageError) as raised:
            read_image(path)
        assert str(raised.value) == expected
    assert read_image(save(Image.new("RGB", (10, 10)), tmp_path, "fits.png")).shape == (10, 10, 3)


def test_stretch_keeps_the_whole_picture():
    """Left half red, right half blue stays so when the proportions change, in both directions."""
    image = np.concatenate([block(RED, 40, 60), block(BLUE, 40, 60)], axis=1)
    for size in ((20, 20), (80, 200), (10, 200), (80, 30)):
        resized = resize_image(image, size)
        assert resized.shape == (*size, 3)
        third = size[1] // 3
        np.testing.assert_array_equal(resized[:, :third], block(RED, size[0], third))
        np.testing.assert_array_equal(resized[:, -third:], block(BLUE, size[0], third))


def test_crop_takes_the_centre():
    """A wide picture loses its sides and a tall one its ends, and nothing is stretched."""
    wide = np.concatenate([block(RED, 40, 40), block(GREEN, 40, 40), block(BLUE, 40, 40)], axis=1)
    np.testing.assert_array_equal(resize_image(wide, (20, 20), "crop"), block(GREEN, 20, 20))
    np.testing.assert_array_equal(resize_image(wide.swapaxes(0, 1), (20, 20), "crop"), block(GREEN, 20, 20))


def test_shrinking_averages_and_does_not_pick():
    """A fine chequerboard becomes grey; picking pixels would leave it black or white."""
    board = np.indices((64, 64)).sum(axis=0) % 2 * 255
    image = np.repeat(board[..., np.newaxis], 3, axis=2).astype(np.uint8)
    assert set(np.unique(resize_image(image, (16, 16)))) <= {127, 128}


@pytest.mark.parametrize("how", ["stretch", "crop"])
@pytest.mark.parametrize("shape", [(1, 1), (1, 500), (500, 1), (299, 299), (3, 7)])
def test_any_shape_can_be_resized(shape, how):
    """Even a line one pixel wide gives an image of the size asked for, in C order."""
    resized = resize_image(np.full((*shape, 3), 77, np.uint8), (32, 48), how)
    np.testing.assert_array_equal(resized, np.full((32, 48, 3), 77, np.uint8))
    assert resized.flags.c_contiguous


def test_unknown_way_to_resize():
    """The sentence lists the two ways."""
    with pytest.raises(ValueError, match=r"^how must be one of stretch, crop; got 'pad'\.$"):
        resize_image(block(RED), (8, 8), "pad")


def test_jpeg_bytes_decode_to_nearly_the_image_that_was_encoded():
    """Channels keep their order, and quality 95 is close on a smooth picture."""
    ramp = np.linspace(0, 255, 64, dtype=np.uint8)
    image = np.stack(
        [np.broadcast_to(ramp, (64, 64)), np.broadcast_to(ramp[:, None], (64, 64)), np.full((64, 64), 40)], 2
    )
    data = encode_jpeg(image.astype(np.uint8))
    decoded = decode_jpeg(data)
    assert (decoded.shape, decoded.dtype) == ((64, 64, 3), np.uint8)
    assert np.abs(decoded.astype(int) - image).max() <= 8
    np.testing.assert_array_equal(decode_jpeg(np.frombuffer(data, np.uint8)), decoded)


@pytest.mark.parametrize("data", [b"", b"no JPEG"])
def test_bytes_that_are_no_jpeg(data):
    """The message counts the bytes, so that an empty row is seen at once."""
    with pytest.raises(ImageError) as raised:
        decode_jpeg(data)
    assert str(raised.value) == f"these {len(data)} bytes are not a JPEG image."


def test_importing_the_module_loads_neither_pillow_nor_keras():
    """Worker processes import it: they need NumPy and OpenCV alone."""
    code = "import sys, helpers.images; print([m for m in ('PIL', 'keras', 'tensorflow', 'h5py') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"

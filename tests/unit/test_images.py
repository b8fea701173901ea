"""Pictures of every kind become the RGB array a person would expect; what is no picture is refused with the reason."""

from __future__ import annotations

import io
import platform
import struct
import subprocess
import sys
import threading
import time
import zlib

import cv2
import numpy as np
import pytest
from PIL import Image, ImageCms, ImageFile, ImageOps

from helpers import images
from helpers.images import (
    MAX_PIXELS,
    ImageError,
    decode_jpeg,
    encode_jpeg,
    picture_kind,
    quiet_pillow,
    read_image,
    resize_image,
)

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


def saved(picture: Image.Image, kind: str, **options) -> bytes:
    """The bytes of a file of this kind."""
    file = io.BytesIO()
    picture.save(file, kind, **options)
    return file.getvalue()


def read_bytes(folder, data: bytes) -> np.ndarray:
    path = folder / "picture"
    path.write_bytes(data)
    return read_image(path)


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(size, depth: int, colour_type: int, rows: bytes, *extra: bytes, interlaced: bool = False) -> bytes:
    """A PNG file of filtered ``rows``; size is (width, height), ``extra`` are chunks in front of the pixels."""
    header = struct.pack(">IIBBBBB", *size, depth, colour_type, 0, 0, interlaced)
    parts = [chunk(b"IHDR", header), *extra, chunk(b"IDAT", zlib.compress(rows)), chunk(b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def pixel(depth: int, colour_type: int, *values: int, extra: bytes = b"") -> bytes:
    """A PNG of one pixel. Values of 16 bits, or one value of fewer."""
    row = struct.pack(f">{len(values)}H", *values) if depth == 16 else bytes([values[0] << (8 - depth)])
    return png((1, 1), depth, colour_type, b"\0" + row, extra)


def see_through(*values: int) -> bytes:
    return chunk(b"tRNS", struct.pack(f">{len(values)}H", *values))


def bmp(size, bits: int, compression: int, pixels: bytes, *, masks: bytes = b"", colours: bytes = b"") -> bytes:
    """A BMP file; a negative height means that the upper row comes first. With masks: the header that has alpha."""
    header = struct.pack("<iiHHIIiiII", *size, 1, bits, compression, len(pixels), 0, 0, len(colours) // 4, 0)
    header += masks + bytes(52) if masks else b""
    start = 14 + 4 + len(header) + len(colours)
    first = b"BM" + struct.pack("<IHHI", start + len(pixels), 0, 0, start)
    return first + struct.pack("<I", 4 + len(header)) + header + colours + pixels


def adobe(transform: int | None, *inks: int) -> bytes:
    """A CMYK or YCCK JPEG whose stored channels are 255 - inks; transform None leaves Adobe's segment out."""
    data = saved(Image.new("CMYK", (24, 16), inks), "JPEG", quality=95)
    start = data.index(b"\xff\xee")
    if transform is None:
        return data[:start] + data[start + 16 :]
    return data[: start + 15] + bytes([transform]) + data[start + 16 :]


def gif(canvas, frame, corner, transparent: bool) -> bytes:
    """A GIF whose only frame, all green, is smaller than its canvas; colour 0 (red) may be see-through."""
    codes = [code for _ in range(frame[0] * frame[1]) for code in (4, 1)] + [
        5
    ]  # clear, colour 1, ..., end; 3 bits each
    bits = sum(code << (3 * place) for place, code in enumerate(codes))
    packed = bits.to_bytes(3 * len(codes) // 8 + 1, "little")
    control = b"\x21\xf9\x04\x01\0\0\0\0" if transparent else b""
    head = b"GIF89a" + struct.pack("<HHBBB", *canvas, 0x80, 0, 0) + bytes([*RED, *GREEN])
    place = b"\x2c" + struct.pack("<HHHHB", *corner, *frame, 0)
    return head + control + place + b"\x02" + bytes([len(packed)]) + packed + b"\0;"


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


TWO_COLOURS = chunk(b"PLTE", bytes([*BLUE, *GREEN]))
MASKS = struct.pack("<IIII", 0xFF0000, 0xFF00, 0xFF, 0xFF000000)
# name, the file, the colour of all its pixels
RAW_KINDS = [
    ("grey of 1 bit", pixel(1, 0, 1), WHITE),
    ("grey of 2 bits", pixel(2, 0, 1), (85, 85, 85)),
    ("grey of 4 bits", pixel(4, 0, 1), (17, 17, 17)),
    ("grey of 1 bit, black is see-through", pixel(1, 0, 0, extra=see_through(0)), WHITE),
    ("grey of 2 bits, one is see-through", pixel(2, 0, 1, extra=see_through(1)), WHITE),
    ("grey of 4 bits, one is see-through", pixel(4, 0, 1, extra=see_through(1)), WHITE),
    ("grey of 4 bits, another is see-through", pixel(4, 0, 1, extra=see_through(2)), (17, 17, 17)),
    ("grey of 16 bits, one is see-through", pixel(16, 0, 700, extra=see_through(700)), WHITE),
    ("grey of 16 bits with alpha", pixel(16, 4, 0, 32768), (127, 127, 127)),
    ("colour of 16 bits", pixel(16, 2, 65535, 32768, 257), (255, 128, 1)),
    ("colour of 16 bits, one is see-through", pixel(16, 2, 25607, 9, 9, extra=see_through(25607, 9, 9)), WHITE),
    ("colour of 16 bits with alpha", pixel(16, 6, 65535, 0, 0, 32768), (255, 127, 127)),
    ("palette of 1 bit", pixel(1, 3, 1, extra=TWO_COLOURS), GREEN),
    ("palette of 2 bits", pixel(2, 3, 1, extra=TWO_COLOURS), GREEN),
    ("palette of 4 bits, see-through", pixel(4, 3, 1, extra=TWO_COLOURS + chunk(b"tRNS", b"\xff\0")), WHITE),
    ("gamma is not applied", pixel(8, 0, 100, extra=chunk(b"gAMA", struct.pack(">I", 100_000))), (100, 100, 100)),
    ("CMYK of Adobe", adobe(0, 0, 255, 255, 0), RED),
    ("CMYK without Adobe's segment", adobe(None, 0, 255, 255, 0), RED),
    ("CMYK, half black", adobe(0, 0, 0, 0, 128), (127, 127, 127)),
    ("YCCK of Adobe, red", adobe(2, 255 - 179, 255 - 171, 255, 0), RED),
    ("YCCK of Adobe, half black", adobe(2, 255, 127, 127, 128), (127, 127, 127)),
    ("BMP with alpha", bmp((1, 1), 32, 3, bytes([0, 0, 255, 128]), masks=MASKS), (255, 127, 127)),
    ("BMP of 32 bits without alpha", bmp((1, 1), 32, 0, bytes([0, 0, 255, 0])), RED),
    ("BMP of the oldest kind", b"BM" + struct.pack("<IHHIIHHHH", 30, 0, 0, 26, 12, 1, 1, 1, 24) + b"\0\0\xff\0", RED),
    ("BMP of 16 bits", bmp((1, 1), 16, 0, struct.pack("<HH", 0x7C00, 0)), RED),
    ("GIF, frame in a see-through canvas", gif((1, 1), (1, 1), (0, 0), transparent=True), GREEN),
]  # fmt: skip


@pytest.mark.parametrize(("name", "data", "colour"), RAW_KINDS, ids=[kind[0] for kind in RAW_KINDS])
def test_kinds_that_few_programs_write(tmp_path, name, data, colour):
    """Depths of 1 to 16 bits, see-through values, Adobe's CMYK and YCCK, and BMP's headers give the right colour."""
    del name
    pixels = read_bytes(tmp_path, data).reshape(-1, 3)
    np.testing.assert_allclose(pixels.astype(int), np.broadcast_to(colour, pixels.shape), atol=1)


def test_large_pictures_are_converted_in_bands(tmp_path, monkeypatch):
    """For every kind, a picture converted a few rows at a time equals the one converted at once."""
    noise = np.random.default_rng(1).integers(0, 256, (40, 24, 4), dtype=np.uint8)
    pictures = {"rgb.png": Image.fromarray(noise[..., :3]), "rgba.png": Image.fromarray(noise, "RGBA")}
    pictures |= {"cmyk.jpg": Image.fromarray(noise, "CMYK"), "grey.jpg": Image.fromarray(noise[..., 0])}
    pictures |= {
        "palette.gif": pictures["rgb.png"].quantize(),
        "grey16.png": Image.fromarray(noise[..., 0] * np.uint16(9)),
    }
    for name, picture in pictures.items():
        path = save(picture, tmp_path, name, exif=exif_of(6)) if name.endswith("jpg") else save(picture, tmp_path, name)
        at_once = read_image(path)
        with monkeypatch.context() as patch:
            patch.setattr(images, "_BAND_PIXELS", 24 * 7)
            np.testing.assert_array_equal(read_image(path), at_once)


def test_rows_of_a_bmp_from_either_end(tmp_path):
    """A negative height means that the upper row comes first; runs of equal pixels (RLE) are unpacked."""
    red, blue = bytes([0, 0, 255, 0]), bytes([255, 0, 0, 0])
    for height, pixels in ((2, blue + red), (-2, red + blue)):
        image = read_bytes(tmp_path, bmp((1, height), 24, 0, pixels))
        assert image.tolist() == [[list(RED)], [list(BLUE)]]
    runs = bytes([2, 1, 0, 0, 2, 0, 0, 1])  # two pixels of colour 1, end of row, two of colour 0, end
    image = read_bytes(tmp_path, bmp((2, 2), 8, 1, runs, colours=red + blue + bytes(1016)))
    assert image.tolist() == [[list(RED)] * 2, [list(BLUE)] * 2]


def test_an_interlaced_png_comes_in_order(tmp_path):
    """The seven passes are put where they belong."""
    pixels = np.random.default_rng(2).integers(0, 256, (9, 11, 3), dtype=np.uint8)
    passes = [(0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1)]
    parts = [pixels[top::down, left::right] for top, left, down, right in passes]
    rows = b"".join(b"\0" + row.tobytes() for part in parts for row in part)
    np.testing.assert_array_equal(read_bytes(tmp_path, png((11, 9), 8, 2, rows, interlaced=True)), pixels)


@pytest.mark.parametrize("transparent", [True, False])
def test_a_gif_frame_that_is_smaller_than_its_canvas(tmp_path, transparent):
    """It lies at its place; around it is white where the file has a see-through colour, else the background colour."""
    image = read_bytes(tmp_path, gif((6, 5), (2, 3), (1, 1), transparent))
    expected = block(WHITE if transparent else RED, 5, 6)
    expected[1:4, 1:3] = GREEN
    np.testing.assert_array_equal(image, expected)


SAMPLINGS = ["411", "420", "422", "440", "444"]


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("progressive", [0, 1])
def test_jpeg_files_of_every_sampling_equal_opencv(tmp_path, sampling, progressive):
    """Pillow's pixels and OpenCV's are the same ones: a picture looks alike whoever decodes it."""
    smooth = cv2.resize(np.random.default_rng(3).integers(0, 256, (6, 8, 3), dtype=np.uint8), (83, 61))
    flags = [cv2.IMWRITE_JPEG_QUALITY, 95, cv2.IMWRITE_JPEG_PROGRESSIVE, progressive, cv2.IMWRITE_JPEG_RST_INTERVAL, 3]
    flags += [cv2.IMWRITE_JPEG_SAMPLING_FACTOR, getattr(cv2, f"IMWRITE_JPEG_SAMPLING_FACTOR_{sampling}")]
    data = cv2.imencode(".jpg", smooth, flags)[1].tobytes()
    image = read_bytes(tmp_path, data)
    np.testing.assert_array_equal(image, decode_jpeg(data))
    assert np.abs(image[..., ::-1].astype(int) - smooth).mean() < 8


def test_colour_profiles_are_not_applied(tmp_path):
    """The pixels are those of the file, with or without a profile."""
    picture = Image.fromarray(np.random.default_rng(4).integers(0, 256, (16, 24, 3), dtype=np.uint8))
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("XYZ")).tobytes()
    for kind in ("PNG", "JPEG"):
        plain, marked = saved(picture, kind), saved(picture, kind, icc_profile=profile)
        assert len(marked) > len(plain)
        np.testing.assert_array_equal(read_bytes(tmp_path, marked), read_bytes(tmp_path, plain))


@pytest.mark.parametrize("size", [(1, 5000), (5000, 1), (1, 1)])
@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "BMP", "GIF"])
def test_very_thin_pictures(tmp_path, size, kind):
    """One pixel wide or high is a picture like any other."""
    options = {"lossless": True} if kind == "WEBP" else {}
    image = read_bytes(tmp_path, saved(Image.new("RGB", size, (90, 90, 90)), kind, **options))
    np.testing.assert_array_equal(image, block((90, 90, 90), size[1], size[0]))


def exif_of(orientation: int, thumbnail: bytes = b"") -> bytes:
    """EXIF data, as the encoders take it: an orientation, and a second directory with a thumbnail."""
    entries = struct.pack(">HHHIHH", 1, 0x0112, 3, 1, orientation, 0)
    if not thumbnail:
        return b"Exif\0\0MM\0*" + struct.pack(">I", 8) + entries + bytes(4)
    second = struct.pack(">HHHIIHHII", 2, 0x0201, 4, 1, 56, 0x0202, 4, 1, len(thumbnail)) + bytes(4)
    return b"Exif\0\0MM\0*" + struct.pack(">I", 8) + entries + struct.pack(">I", 26) + second + thumbnail


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


@pytest.mark.parametrize(("kind", "options"), [
    ("GIF", {}), ("WEBP", {"lossless": True}), ("PNG", {}), ("PNG", {"default_image": True}), ("MPO", {"quality": 95}),
])  # fmt: skip
def test_first_frame_of_an_animation(tmp_path, kind, options):
    """What moves counts as the picture it starts with, and a phone's file of several pictures (MPO) as its main one."""
    first, second = (Image.new("RGB", (24, 16), colour) for colour in (RED, BLUE))
    data = saved(first, kind, save_all=True, append_images=[second], **options)
    np.testing.assert_allclose(read_bytes(tmp_path, data).astype(int), block(RED), atol=3 if kind == "MPO" else 0)


def test_damaged_exif_does_not_cost_the_picture(tmp_path):
    """EXIF bytes that make no sense are as good as none, and Pillow's warning about them can be kept quiet."""
    path = save(Image.new("RGB", (24, 16), WHITE), tmp_path, "odd.jpg", exif=b"Exif\x00\x00MM\x00*\xff\xff\xff\xff\x00")
    with quiet_pillow():
        np.testing.assert_array_equal(read_image(path), block(WHITE))
    with pytest.warns(UserWarning, match="^Corrupt EXIF data"):
        read_image(path)


NOT_PICTURE = "its bytes are not those of a PNG, JPEG, WebP, BMP or GIF picture"


def another(kind: str) -> str:
    return f"it is a picture of the format {kind}, which is not read here: convert it to JPEG or PNG"


HEIC = b"\0\0\0\x18ftypheic\0\0\0\0mif1heic"
GREY = Image.new("L", (8, 8))
# the file, the format that its first bytes tell, what read_image says of it
BROKEN = {
    "empty": (b"", None, "the file is empty"),
    "text": (b"just words", None, NOT_PICTURE),
    "web page": (b"\n <!DOCTYPE html><p>404", None, "it is a web page, not a picture: the download went wrong"),
    "video": (b"\0\0\0\x18ftypisom\0\0\0\0", None, NOT_PICTURE),
    "tiff": (saved(GREY, "TIFF"), "TIFF", another("TIFF")),
    "avif": (saved(GREY.convert("RGB"), "AVIF"), "AVIF", another("AVIF")),
    "jpeg 2000": (saved(GREY, "JPEG2000"), "JPEG 2000", another("JPEG 2000")),
    "heic": (HEIC, "HEIC", another("HEIC")),
    "photoshop": (b"8BPS\0\x01" + bytes(20), "Photoshop", another("Photoshop")),
    "start of a png": (saved(GREY, "PNG")[:20], "PNG", "it is cut short"),
    "start of a jpeg": (saved(GREY, "JPEG")[:20], "JPEG", "it is cut short"),
    "start of a gif": (saved(GREY, "GIF")[:8], "GIF", "it is cut short, or damaged at its start"),
    "start of a bmp": (saved(GREY, "BMP")[:20], "BMP", "it is cut short"),
    "start of a webp": (saved(GREY, "WEBP")[:20], "WebP", "it is cut short"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_what_is_no_picture_is_refused_with_the_reason(tmp_path, case):
    """Each kind of wrong file has its own words; a format that is not read is named, with what to do."""
    data, kind, message = BROKEN[case]
    with pytest.raises(ImageError) as raised:
        read_bytes(tmp_path, data)
    assert str(raised.value) == message
    assert picture_kind(data[:18]) == kind


@pytest.mark.parametrize(("make", "reason"), [
    (lambda _: None, "No such file or directory"), (lambda path: path.mkdir(), "Is a directory"),
])  # fmt: skip
def test_what_cannot_be_read_gives_the_reason_of_the_system(tmp_path, make, reason):
    """A file that is not there, and a folder."""
    make(tmp_path / "a.jpg")
    with pytest.raises(ImageError) as raised:
        read_image(tmp_path / "a.jpg")
    assert str(raised.value) == f"it cannot be read: {reason}"


def test_a_file_larger_than_any_picture_is_not_read(tmp_path):
    """A video of many gigabytes that is called a picture costs nothing."""
    with (tmp_path / "film.jpg").open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(ImageError) as raised:
        read_image(tmp_path / "film.jpg")
    assert str(raised.value) == "it has 1,099,511,627,776 bytes, more than the largest picture that is read here"


# -- files that are cut short, or damaged -----------------------------------------------------------------------------

SMOOTH = cv2.resize(np.random.default_rng(0).integers(0, 256, (6, 8, 3), dtype=np.uint8), (64, 48))
NOISE = np.random.default_rng(0).integers(0, 256, (16, 24, 3), dtype=np.uint8)
LATER = [Image.fromarray(SMOOTH[::-1])]
WHOLE = {
    "jpg": saved(Image.fromarray(SMOOTH), "JPEG", quality=95),
    "progressive jpg": saved(Image.fromarray(SMOOTH), "JPEG", progressive=True),
    "png": saved(Image.fromarray(SMOOTH), "PNG"),
    "moving png": saved(Image.fromarray(NOISE), "PNG", save_all=True, append_images=[Image.fromarray(NOISE[::-1])]),
    "bmp": saved(Image.fromarray(NOISE), "BMP"),
    "webp": saved(Image.fromarray(SMOOTH), "WEBP"),
    "lossless webp": saved(Image.fromarray(NOISE), "WEBP", lossless=True),
    "gif": saved(Image.fromarray(NOISE), "GIF"),
    "moving gif": saved(Image.fromarray(SMOOTH), "GIF", save_all=True, append_images=LATER),
    "mpo": saved(Image.fromarray(SMOOTH), "MPO", save_all=True, append_images=LATER),
}
HAS_TAIL = {"gif", "moving gif", "mpo"}  # the first picture is whole before the file ends


def outcome(folder, data: bytes) -> np.ndarray | str:
    """The picture, or the reason why there is none."""
    try:
        return read_bytes(folder, data)
    except ImageError as error:
        return str(error)


@pytest.mark.parametrize("kind", WHOLE)
def test_a_file_cut_short_anywhere_is_refused(tmp_path, kind, capfd):
    """Cut at every tenth byte and at the last ones, no file comes back half grey, and nothing is printed."""
    data, good = WHOLE[kind], read_bytes(tmp_path, WHOLE[kind])
    cuts = [*range(0, len(data), 10), *range(len(data) - 9, len(data))]
    with quiet_pillow():
        outcomes = [outcome(tmp_path, data[:cut]) for cut in cuts]
    pictures = [image for image in outcomes if not isinstance(image, str)]
    assert all(np.array_equal(image, good) for image in pictures)
    assert bool(pictures) == (kind in HAS_TAIL)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("kind", ["jpg", "progressive jpg", "png", "moving png", "mpo"])
def test_a_tail_of_zeros_is_refused(tmp_path, kind):
    """A copy that broke off and kept its length: the missing part would be grey, black or any colour."""
    data, good = WHOLE[kind], read_bytes(tmp_path, WHOLE[kind])
    with quiet_pillow():
        outcomes = [outcome(tmp_path, data[:cut] + bytes(len(data) - cut)) for cut in range(0, len(data) - 4, 7)]
    assert all(isinstance(image, str) or np.array_equal(image, good) for image in outcomes)
    assert isinstance(outcomes[len(outcomes) // 4], str)


@pytest.mark.parametrize("kind", WHOLE)
def test_damage_gives_a_picture_or_a_reason_and_prints_nothing(tmp_path, kind, capfd):
    """Two hundred times one wrong byte: an ImageError or an array, no other exception, no line of a C library."""
    rng, kinds = np.random.default_rng(5), {"PNG": 0, "taken": 0}
    good = read_bytes(tmp_path, WHOLE[kind])
    for _ in range(200):
        data = bytearray(WHOLE[kind])
        data[rng.integers(len(data))] ^= rng.integers(1, 256)
        with quiet_pillow():
            image = outcome(tmp_path, bytes(data))
        if not isinstance(image, str):
            kinds["taken"] += 1
            kinds["PNG"] += not np.array_equal(image, good)
            assert (image.dtype, image.ndim, image.shape[2]) == (np.uint8, 3, 3)
    if "png" in kind:
        assert kinds["PNG"] == 0  # its checksums tell: a picture that is taken is the right one
    assert capfd.readouterr() == ("", "")


def test_one_wrong_byte_among_the_pixels_of_a_png_is_noticed(tmp_path):
    """Its checksum tells, although the data unpacks to a picture of the right size."""
    data = bytearray(saved(Image.fromarray(SMOOTH), "PNG", compress_level=0))
    data[len(data) // 2] ^= 1
    assert outcome(tmp_path, bytes(data)) == "it is damaged (wrong checksum of its pixels)"


def test_damage_inside_jpeg_data_is_not_noticed(tmp_path):
    """What the docstring says is not promised: forty wrong bytes in the middle give a picture of the right shape."""
    data = bytearray(WHOLE["jpg"])
    data[len(data) // 2 : len(data) // 2 + 40] = bytes(40)
    image = read_bytes(tmp_path, bytes(data))
    assert image.shape == SMOOTH.shape
    assert not np.array_equal(image, read_bytes(tmp_path, WHOLE["jpg"]))


@pytest.mark.parametrize("kind", ["jpg", "png", "bmp", "moving gif"])
def test_a_program_that_told_pillow_to_take_cut_files_changes_nothing(tmp_path, kind, monkeypatch):
    """LOAD_TRUNCATED_IMAGES does not reach read_image, and is as it was afterwards, also with many threads."""
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    (tmp_path / "cut").write_bytes(WHOLE[kind][: len(WHOLE[kind]) // 3])
    errors = []

    def read():
        for _ in range(20):
            try:
                read_image(tmp_path / "cut")
            except ImageError as error:
                errors.append(str(error))

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == ["it is cut short"] * 80
    assert ImageFile.LOAD_TRUNCATED_IMAGES is True


# -- files made to fill the memory ------------------------------------------------------------------------------------

SIDE = 9460  # squared: a little more than MAX_PIXELS
TOO_LARGE = "it has more than 89,478,485 pixels, the limit against files made to fill the memory"
TOO_MUCH_TEXT = "it holds a text or colour profile that fills the memory when it is unpacked"


def jpeg_that_claims(height: int, width: int) -> bytes:
    data = WHOLE["jpg"]
    frame = data.index(b"\xff\xc0")
    return data[: frame + 5] + struct.pack(">HH", height, width) + data[frame + 9 :]


def webp_that_claims(width: int, height: int, kind: str) -> bytes:
    if kind == "moving":
        moving = [Image.new("RGB", (8, 8), colour) for colour in (RED, BLUE)]
        data = saved(moving[0], "WEBP", save_all=True, append_images=moving[1:])
        return data[:24] + struct.pack("<I", width - 1)[:3] + struct.pack("<I", height - 1)[:3] + data[30:]
    data = saved(Image.new("RGB", (8, 8), RED), "WEBP", lossless=kind == "lossless")
    if kind == "lossless":
        return data[:21] + struct.pack("<I", (width - 1) | (height - 1) << 14) + data[25:]
    return data[:26] + struct.pack("<HH", width, height) + data[30:]


BOMBS = {
    "png": (png((SIDE, SIDE), 1, 0, b"\0"), TOO_LARGE),
    "huge png": (png((2**31 - 1, 2**31 - 1), 1, 0, b"\0"), TOO_LARGE),
    "jpg": (jpeg_that_claims(SIDE, SIDE), TOO_LARGE),
    "huge jpg": (jpeg_that_claims(65500, 65500), TOO_LARGE),
    "webp": (webp_that_claims(16383, 16383, "plain"), TOO_LARGE),
    "lossless webp": (webp_that_claims(16383, 16383, "lossless"), TOO_LARGE),
    "moving webp": (webp_that_claims(16383, 16383, "moving"), TOO_LARGE),
    "gif": (gif((65535, 65535), (1, 1), (0, 0), transparent=True), TOO_LARGE),
    "old bmp": (b"BM" + struct.pack("<IHHIIHHHH", 99, 0, 0, 26, 12, SIDE, SIDE, 1, 24) + bytes(73), TOO_LARGE),
    "bmp": (bmp((SIDE, -SIDE), 8, 1, bytes([0, 1]), colours=bytes(1024)), TOO_LARGE),
    "text of a png": (pixel(8, 0, 1, extra=chunk(b"zTXt", b"k\0\0" + zlib.compress(bytes(10**8)))), TOO_MUCH_TEXT),
    "profile of a png": (pixel(8, 0, 1, extra=chunk(b"iCCP", b"k\0\0" + zlib.compress(bytes(10**8)))), TOO_MUCH_TEXT),
}

TOO_LARGE_KINDS = [kind for kind, (_, message) in BOMBS.items() if message == TOO_LARGE]

REFUSES = """
import resource, sys
from helpers.images import ImageError, quiet_pillow, read_image
from PIL import Image
Image.init()
with quiet_pillow():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for path in sys.argv[1:]:
        try:
            read_image(path)
        except ImageError as error:
            print(error)
    print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


def test_a_file_made_to_fill_the_memory_is_refused_before_it_does(tmp_path):
    """Tiny files of pictures, canvases and texts without end are named, and none costs memory."""
    paths = []
    for name, (data, _) in BOMBS.items():
        paths.append(tmp_path / name)
        paths[-1].write_bytes(data)
    done = subprocess.run([sys.executable, "-c", REFUSES, *paths], capture_output=True, text=True, check=True)
    *said, grown_mb = done.stdout.splitlines()
    assert said == [message for _, message in BOMBS.values()]
    assert int(grown_mb) < 60 or platform.system() != "Linux"
    assert done.stderr == ""


@pytest.mark.parametrize("limit", [None, 10**12])
def test_the_limit_of_pixels_is_our_own(tmp_path, monkeypatch, limit):
    """A program that lifts Pillow's limit for itself does not lift ours."""
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", limit)
    for kind in ("png", "jpg", "gif", "bmp"):
        assert outcome(tmp_path, BOMBS[kind][0]) == TOO_LARGE
    assert SIDE**2 - MAX_PIXELS < 2 * SIDE


def test_a_lower_limit_of_the_program_holds_too(tmp_path, monkeypatch):
    """Twice above Pillow's own limit Pillow refuses; the sentence has that number."""
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    with quiet_pillow():
        assert outcome(tmp_path, WHOLE["png"]) == TOO_LARGE.replace("89,478,485", "100")
    assert read_image(save(Image.new("RGB", (10, 10)), tmp_path, "fits.png")).shape == (10, 10, 3)


FAULTS = """
import resource, sys
import numpy as np
from helpers.images import read_image, reuse_memory
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        read_image(sys.argv[1])
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
faults()
first = faults()
reuse_memory()
faults()
print(first, faults())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs the C library glibc")
def test_memory_of_one_picture_serves_the_next(tmp_path):
    """After reuse_memory(), reading asks the system for next to no new pages of memory."""
    path = save(Image.fromarray(cv2.resize(SMOOTH, (1000, 800))), tmp_path, "photo.jpg")
    done = subprocess.run([sys.executable, "-c", FAULTS, path], capture_output=True, text=True, check=True)
    before, after = map(int, done.stdout.split())
    assert after * 10 < before


# -- resizing ---------------------------------------------------------------------------------------------------------


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


# -- JPEG bytes in rows of a file -------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [b"", b"no JPEG", b"P6\n99999 99999\n255\n" + bytes(99)])
def test_bytes_that_are_no_jpeg(data):
    """The message counts the bytes, so that an empty row is seen at once."""
    with pytest.raises(ImageError) as raised:
        decode_jpeg(data)
    assert str(raised.value) == f"these {len(data)} bytes are not a JPEG image."


@pytest.mark.parametrize("kind", ["jpg", "progressive jpg", "png"])
def test_bytes_of_a_row_that_are_cut_short_are_refused(kind):
    """At every tenth byte: OpenCV alone would fill up the picture with grey, without a word."""
    data = WHOLE[kind]
    assert decode_jpeg(data).shape == SMOOTH.shape
    for cut in [*range(20, len(data), 10), len(data) - 1]:
        for bytes_or_array in (data[:cut], np.frombuffer(data[:cut], np.uint8)):
            with pytest.raises(ImageError) as raised:
                decode_jpeg(bytes_or_array)
            assert str(raised.value) == "it is cut short"


def with_segment(data: bytes, marker: int, content: bytes) -> bytes:
    """The JPEG with one more segment at its start."""
    return data[:2] + bytes([0xFF, marker]) + struct.pack(">H", len(content) + 2) + content + data[2:]


THUMBNAIL = saved(Image.new("RGB", (8, 8), RED), "JPEG")


@pytest.mark.parametrize(("name", "change"), [
    ("zeros behind it", lambda data: data + bytes(100)),
    ("junk behind it", lambda data: data + b"\xff\xd8\xff\xe1 more"),
    ("another picture behind it", lambda data: data + THUMBNAIL),
    ("fill bytes", lambda data: data.replace(b"\xff\xda", b"\xff\xff\xda", 1)),
    ("a comment that looks like an end", lambda data: with_segment(data, 0xFE, b"\xff\xda\xff\xd9")),
    ("a thumbnail", lambda data: with_segment(data, 0xE1, exif_of(1, THUMBNAIL))),
])  # fmt: skip
def test_bytes_around_a_picture_are_allowed_and_do_not_hide_a_cut(name, change):
    """The row still decodes to its pixels; without its own end it is refused, whatever other markers it holds."""
    whole = WHOLE["jpg"]
    np.testing.assert_array_equal(decode_jpeg(change(whole)), decode_jpeg(whole))
    if "behind" not in name:
        with pytest.raises(ImageError, match="^it is cut short$"):
            decode_jpeg(change(whole)[:-40])


def test_rows_that_something_else_wrote():
    """Grey, CMYK and sideways pictures come as RGB, upright; a PNG loses its transparency; its pixels have a limit."""
    assert decode_jpeg(saved(Image.new("L", (24, 16), 90), "JPEG"))[0, 0].tolist() == [90, 90, 90]
    for transform, inks in ((0, (0, 255, 255, 0)), (2, (255 - 179, 255 - 171, 255, 0)), (None, (0, 255, 255, 0))):
        np.testing.assert_allclose(decode_jpeg(adobe(transform, *inks)).astype(int), block(RED), atol=1)
    sideways = saved(Image.fromarray(SMOOTH), "JPEG", quality=95, exif=exif_of(6))
    np.testing.assert_array_equal(decode_jpeg(sideways), np.rot90(decode_jpeg(WHOLE["jpg"]), -1))
    assert decode_jpeg(saved(Image.new("RGBA", (24, 16), (*RED, 0)), "PNG"))[0, 0].tolist() == list(RED)
    for kind in TOO_LARGE_KINDS:
        with pytest.raises(ImageError, match=f"^{TOO_LARGE}$"):
            decode_jpeg(BOMBS[kind][0])


def test_the_look_at_markers_costs_next_to_nothing():
    """Less than 5 % of decoding a picture of 299 pixels (measured: about 1 %)."""
    data = encode_jpeg(cv2.resize(SMOOTH, (299, 299)))

    def best(work) -> float:
        times = []
        for _ in range(20):
            start = time.thread_time()
            for _ in range(5):
                work(data)
            times.append(time.thread_time() - start)
        return min(times)

    assert best(images._check_whole) < 0.05 * best(decode_jpeg)


def test_importing_the_module_loads_neither_pillow_nor_keras():
    """Worker processes import it: they need NumPy and OpenCV alone."""
    code = "import sys, helpers.images; print([m for m in ('PIL', 'keras', 'tensorflow', 'h5py') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"

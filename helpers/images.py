"""Pictures in, RGB arrays out: read a picture file, resize it, encode and decode the JPEG bytes that a file may hold.

An image is an array (height, width, 3) uint8, RGB, everywhere in the kit. Pillow reads other people's files: it prints
nothing, and raises on most that are cut short; what it lets pass is looked for here. OpenCV does the rest. Colour
profiles (ICC) and gamma are not applied, as in Keras.
"""

from __future__ import annotations

import io
import os
import struct
import threading
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import cv2
import numpy as np

if TYPE_CHECKING:
    from PIL import Image

JPEG_QUALITY = 95
RESIZE_MODES = ("stretch", "crop")

FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF")  # what read_image opens, whatever the file is called
MAX_PIXELS = 2**28 // 3  # 256 MiB as an RGB array; Pillow warns from the same number on
MAX_BYTES = 2**30  # of a file: more than any picture of so many pixels needs
ORIENTATION = 0x0112  # the EXIF tag
_BAND_PIXELS = 2**20  # converted at once: so the arrays in between stay small beside a large picture


class ImageError(ValueError):
    """The bytes are not a picture that can be used; the text says why."""


def read_image(path: str | os.PathLike) -> np.ndarray:
    """Read a PNG, JPEG, WebP, BMP or GIF file (by content, not by name) as (height, width, 3) uint8 RGB.

    Transparent pixels are laid on white, grey becomes RGB, 16 bits become 8, CMYK is converted (as Adobe writes it: 255
    is no ink), an EXIF rotation is applied, and an animation gives its first frame, an APNG or MPO its main picture.

    Raises
    ------
    ImageError
        Empty, of another format (HEIC, AVIF, TIFF ... are named), cut short, damaged, of more than ``MAX_PIXELS``.
        A tail of zeros (a copy that broke off but kept its length) is noticed in JPEG and PNG files, other damage of
        pixels in PNG files. *Not* noticed: damage inside JPEG, GIF, WebP and BMP data that still decodes.
    """
    from PIL import Image, UnidentifiedImageError  # here: worker processes import this module, and read no files

    try:
        data = _read_bytes(path)
        _check_whole(data)
        with _strict_pillow, Image.open(io.BytesIO(data), formats=FORMATS) as picture:
            _check_pixels(picture.width, picture.height)
            return np.ascontiguousarray(_upright(picture, _to_rgb(picture)))
    except ImageError:
        raise
    except UnidentifiedImageError:
        raise ImageError(_what_it_is(data)) from None
    except (Image.DecompressionBombWarning, Image.DecompressionBombError):
        raise ImageError(_too_large(min(MAX_PIXELS, Image.MAX_IMAGE_PIXELS or MAX_PIXELS))) from None
    except Exception as error:  # decoders meet hostile bytes with any exception: struct.error, SyntaxError, IndexError
        raise ImageError(_reason(error)) from error


def reuse_memory() -> None:
    """Let the C library keep freed arrays of up to 16 MiB for the next ones: for a process that reads many pictures.

    Otherwise it returns them to the system after each picture and gets fresh pages for the next, which can take longer
    than decoding. Up to 32 MiB of free memory stay with the process. Nothing happens where the library is not glibc.
    """
    np.empty(2**24, np.uint8)  # freed at once: glibc raises its limits for what it keeps to this size, and twice this


@contextmanager
def quiet_pillow() -> Iterator[None]:
    """Ignore Pillow's warnings (damaged EXIF data, many pixels) inside the block; what matters is an ImageError anyway.

    Around the whole loop and not inside ``read_image``, because Python's list of filters is shared by all threads.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"PIL\.")
        yield


def resize_image(image: np.ndarray, size: tuple[int, int], how: str = "stretch") -> np.ndarray:
    """Resize ``image`` to ``size``, (height, width) in pixels; an image of that size is returned as it is.

    ``how="stretch"`` keeps everything and lets the proportions change; ``"crop"`` cuts the largest centred part of
    the right proportions first. Shrinking averages areas, enlarging interpolates linearly.
    """
    if how not in RESIZE_MODES:
        raise ValueError(f"how must be one of {', '.join(RESIZE_MODES)}; got {how!r}.")
    if how == "crop":
        image = _centre_part(image, size)
    height, width = size
    smaller = min(height, image.shape[0]), min(width, image.shape[1])
    # In two steps, because OpenCV's area mode averages only where both sides shrink.
    if smaller != image.shape[:2]:
        image = cv2.resize(image, smaller[::-1], interpolation=cv2.INTER_AREA)
    if (height, width) != smaller:
        image = cv2.resize(image, (width, height), interpolation=cv2.INTER_LINEAR_EXACT)
    return np.ascontiguousarray(image)


def encode_jpeg(image: np.ndarray, quality: int = JPEG_QUALITY) -> bytes:
    """JPEG bytes of ``image``, (height, width, 3) uint8 RGB."""
    bgr = cv2.cvtColor(image, cv2.COLOR_RGB2BGR)
    done, data = cv2.imencode(".jpg", bgr, [cv2.IMWRITE_JPEG_QUALITY, quality])
    if not done:
        raise ImageError(f"OpenCV cannot encode an image of shape {image.shape} as JPEG.")
    return data.tobytes()


def decode_jpeg(data: bytes | np.ndarray) -> np.ndarray:
    """Image (height, width, 3) uint8 RGB of JPEG bytes, or of the uint8 array that HDF5 returns for them.

    For rows that something else wrote: grey and CMYK become RGB, an EXIF rotation is applied, bytes after the picture
    are allowed, and PNG bytes are decoded too (their transparency is dropped).

    Raises
    ------
    ImageError
        The bytes are not a picture, are cut short, or have more than ``MAX_PIXELS``. *Not* noticed: damage inside JPEG
        data; OpenCV's library may print a line about it. The checksums of ``inspector --verify`` find it.
    """
    data = data.tobytes() if isinstance(data, np.ndarray) else data
    _check_whole(data)
    try:
        image = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR_RGB) if data else None
    except cv2.error:  # hostile sizes
        image = None
    if image is None:
        raise ImageError(f"these {len(data)} bytes are not a JPEG image.")
    return image


# -- what the bytes are, and whether they are all there ---------------------------------------------------------------

_FIRST_BYTES = {
    b"\xff\xd8\xff": "JPEG",
    b"\x89PNG\r\n\x1a\n": "PNG",
    b"GIF87a": "GIF",
    b"GIF89a": "GIF",
    b"II*\0": "TIFF",
    b"MM\0*": "TIFF",
    b"8BPS": "Photoshop",
    b"\0\0\0\x0cjP  ": "JPEG 2000",
    b"\0\0\0\x0cJXL ": "JPEG XL",
    b"\xff\x0a": "JPEG XL",
}
_BRANDS = {b"heic": "HEIC", b"heix": "HEIC", b"hevc": "HEIC", b"mif1": "HEIC", b"avif": "AVIF", b"avis": "AVIF"}
_BMP_HEADERS = {b"\x28\0\0\0", b"\x6c\0\0\0", b"\x7c\0\0\0"}
_END_OF_IMAGE = b"\xff\xd9"
_CUT = "it is cut short"
_TOO_MUCH_TEXT = "Decompressed data too large"  # Pillow's words for a text or profile of more than a megabyte


def picture_kind(head: bytes) -> str | None:
    """Name of the picture format that a file with these first 18 bytes has, also of formats that are not read here."""
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "WebP"
    if head[4:8] == b"ftyp":
        return _BRANDS.get(head[8:12])
    # BMP's mark is two letters; zeros and the size of the second header tell it from a text
    if head[:2] == b"BM" and head[6:10] == b"\0\0\0\0" and head[14:18] in _BMP_HEADERS:
        return "BMP"
    return next((kind for start, kind in _FIRST_BYTES.items() if head.startswith(start)), None)


def _what_it_is(data: bytes) -> str:
    kind = picture_kind(data[:18])
    if kind is not None and kind.upper() in FORMATS:
        return f"{_CUT}, or damaged at its start"
    if kind is not None:
        return f"it is a picture of the format {kind}, which is not read here: convert it to JPEG or PNG"
    if data[:512].lstrip().lower().startswith((b"<!doctype html", b"<html")):
        return "it is a web page, not a picture: the download went wrong"
    return "its bytes are not those of a PNG, JPEG, WebP, BMP or GIF picture"


def _read_bytes(path: str | os.PathLike) -> bytes:
    path = Path(path)
    if path.is_char_device():  # some, like /dev/zero, never end
        raise ImageError("it is a device, not a file")
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size > MAX_BYTES:
            raise ImageError(f"it has {size:,} bytes, more than the largest picture that is read here")
        data = file.read()
    if not data:
        raise ImageError("the file is empty")
    return data


def _check_whole(data: bytes) -> None:
    """Refuse bytes that a decoder would take although a part is missing, and what is too large."""
    if data.startswith(b"\xff\xd8\xff"):
        _check_jpeg(data)
    elif data.startswith(b"\x89PNG"):
        _check_png(data)
    else:
        if data[:4] == b"RIFF" and data[8:12] == b"WEBP" and int.from_bytes(data[4:8], "little") + 8 > len(data):
            raise ImageError(_CUT)
        if len(data) >= 30:
            _check_pixels(*_claimed_size(data[:30]))


def _claimed_size(head: bytes) -> tuple[int, int]:
    """(width, height) that the first 30 bytes of a GIF, BMP or WebP file claim; (0, 0) for others."""
    if head.startswith(b"GIF8"):
        return struct.unpack_from("<HH", head, 6)
    if head[:2] == b"BM" and head[6:10] == bytes(4):
        if head[14] == 12:  # the oldest header
            return struct.unpack_from("<HH", head, 18)
        width, height = struct.unpack_from("<ii", head, 18)
        return abs(width), abs(height)
    if head[8:16] == b"WEBPVP8X":
        return 1 + int.from_bytes(head[24:27], "little"), 1 + int.from_bytes(head[27:30], "little")
    if head[8:16] == b"WEBPVP8L":
        bits = int.from_bytes(head[21:25], "little")
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    if head[8:16] == b"WEBPVP8 ":
        width, height = struct.unpack_from("<HH", head, 26)
        return width & 0x3FFF, height & 0x3FFF
    return 0, 0


def _check_jpeg(data: bytes) -> None:
    """Walk to the first scan, past thumbnails with markers of their own; behind it an end-of-image marker must come.

    A scan holds the bytes FF D9 as that marker only. Whatever follows it is allowed.
    """
    position = data.find(b"\xff", 2)
    while 0 <= position <= len(data) - 4:
        marker = data[position + 1]
        if marker == 0xFF:  # fill
            position += 1
        elif marker == 0xDA:
            if data.endswith(_END_OF_IMAGE) or data.find(_END_OF_IMAGE, position) > 0:
                return
            break
        elif marker <= 0x01 or 0xD0 <= marker <= 0xD9:  # no length follows
            position += 2
        else:
            if 0xC0 <= marker <= 0xCF and marker not in {0xC4, 0xC8, 0xCC} and position + 9 <= len(data):
                height, width = struct.unpack_from(">HH", data, position + 5)
                _check_pixels(width, height)
            position += 2 + struct.unpack_from(">H", data, position + 2)[0]
        position = data.find(b"\xff", position)
    raise ImageError(_CUT)


def _check_png(data: bytes) -> None:
    """All chunks up to the last are there, and those with pixels have the right checksum; Pillow looks at neither."""
    view, position = memoryview(data), 8
    while position + 12 <= len(data):
        length, kind = struct.unpack_from(">I4s", data, position)
        end = position + 8 + length
        if end + 4 > len(data):
            break
        if kind == b"IHDR" and length >= 8:
            _check_pixels(*struct.unpack_from(">II", data, position + 8))
        if kind == b"IDAT" and zlib.crc32(view[position + 4 : end]) != struct.unpack_from(">I", data, end)[0]:
            raise ImageError("it is damaged (wrong checksum of its pixels)")
        if kind == b"IEND":
            return
        position = end + 4
    raise ImageError(_CUT)


def _check_pixels(width: int, height: int) -> None:
    if width * height > MAX_PIXELS:
        raise ImageError(_too_large(MAX_PIXELS))


def _too_large(limit: int) -> str:
    return f"it has more than {limit:,} pixels, the limit against files made to fill the memory"


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.errno:
        return f"it cannot be read: {os.strerror(error.errno)}"
    text = str(error)
    if "truncated" in text.lower():
        return _CUT
    if text.startswith(_TOO_MUCH_TEXT):
        return "it holds a text or colour profile that fills the memory when it is unpacked"
    return f"it is damaged ({text or type(error).__name__})"


class _StrictPillow:
    """While any thread reads a picture, Pillow takes none that is cut short, whatever the user's program told it.

    ``ImageFile.LOAD_TRUNCATED_IMAGES = True`` is common advice. It holds for the whole process: pictures are half grey.
    """

    def __init__(self):
        self._lock, self._readers, self._wish = threading.Lock(), 0, False

    def __enter__(self):
        from PIL import ImageFile

        with self._lock:
            if self._readers == 0:
                self._wish = ImageFile.LOAD_TRUNCATED_IMAGES
                ImageFile.LOAD_TRUNCATED_IMAGES = False
            self._readers += 1

    def __exit__(self, *_):
        from PIL import ImageFile

        with self._lock:
            self._readers -= 1
            if self._readers == 0:
                ImageFile.LOAD_TRUNCATED_IMAGES = self._wish


_strict_pillow = _StrictPillow()


# -- from Pillow's modes to RGB ---------------------------------------------------------------------------------------


def _to_rgb(picture: Image.Image) -> np.ndarray:
    _correct_transparency(picture)
    picture.load()
    width, height = picture.size
    rows = max(1, _BAND_PIXELS // width)
    if rows >= height:
        return _band_to_rgb(picture)
    image = np.empty((height, width, 3), np.uint8)
    for top in range(0, height, rows):
        bottom = min(height, top + rows)
        image[top:bottom] = _band_to_rgb(picture.crop((0, top, width, bottom)))
    return image


def _band_to_rgb(picture: Image.Image) -> np.ndarray:
    if picture.mode.startswith("I"):
        return _from_16_bit(picture)
    if picture.mode in {"RGBA", "LA", "PA", "RGBa", "La"} or "transparency" in picture.info:
        return _on_white(np.asarray(picture.convert("RGBA")))
    return np.asarray(picture if picture.mode == "RGB" else picture.convert("RGB"))


def _correct_transparency(picture: Image.Image) -> None:
    """The colour of a PNG that stands for "see through", in 8 bits like the pixels that Pillow will make."""
    value = picture.info.get("transparency")
    if picture.format != "PNG" or value is None or not picture.tile:
        return
    stored = picture.tile[0][3]
    if stored in {"L;2", "L;4"}:
        picture.info["transparency"] = value * (85 if stored == "L;2" else 17)
    elif stored == "RGB;16B":
        picture.info["transparency"] = tuple(channel >> 8 for channel in value)


def _from_16_bit(picture: Image.Image) -> np.ndarray:
    """Grey of 16 bits; Pillow's own conversion cuts at 255, which turns such pictures white."""
    values = np.asarray(picture).astype(np.int64)
    if "transparency" in picture.info:  # one grey value stands for "see through"
        values = np.where(values == picture.info["transparency"], 65535, values)
    grey = ((values.clip(0, 65535) + 128) // 257).astype(np.uint8)  # 257 = 65535 / 255
    return np.repeat(grey[:, :, np.newaxis], 3, axis=2)


def _on_white(rgba: np.ndarray) -> np.ndarray:
    colour, alpha = rgba[..., :3].astype(np.uint16), rgba[..., 3:].astype(np.uint16)
    return ((colour * alpha + 255 * (255 - alpha) + 127) // 255).astype(np.uint8)


def _upright(picture: Image.Image, image: np.ndarray) -> np.ndarray:
    """Turn ``image`` as the EXIF tag of ``picture`` says; unreadable EXIF data counts as none."""
    try:
        orientation = picture.getexif().get(ORIENTATION, 1)
    except Exception:  # EXIF of a damaged header raises many kinds; the pixels are good all the same
        return image
    turns = {
        2: lambda rows: rows[:, ::-1],
        3: lambda rows: rows[::-1, ::-1],
        4: lambda rows: rows[::-1],
        5: lambda rows: rows.swapaxes(0, 1),
        6: lambda rows: np.rot90(rows, -1),
        7: lambda rows: rows[::-1, ::-1].swapaxes(0, 1),
        8: lambda rows: np.rot90(rows),
    }
    return turns[orientation](image) if orientation in turns else image


def _centre_part(image: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    height, width = image.shape[:2]
    scale = min(height / size[0], width / size[1])
    part_height = min(height, max(1, round(size[0] * scale)))
    part_width = min(width, max(1, round(size[1] * scale)))
    top, left = (height - part_height) // 2, (width - part_width) // 2
    return image[top : top + part_height, left : left + part_width]

"""Pictures in, RGB arrays out: read a picture file, resize it, encode and decode the JPEG bytes that a file may hold.

An image is an array (height, width, 3) uint8, RGB, everywhere in the kit. Pillow reads other people's files, because it
raises on one that is cut short; OpenCV does the rest. Colour profiles (ICC) are not applied, as in Keras.
"""

from __future__ import annotations

import io
import os
import warnings
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
ORIENTATION = 0x0112  # the EXIF tag


class ImageError(ValueError):
    """The bytes are not a picture that can be used; the text says why."""


def read_image(path: str | os.PathLike) -> np.ndarray:
    """Read a PNG, JPEG, WebP, BMP or GIF file (by content, not by name) as (height, width, 3) uint8 RGB.

    Transparent pixels are laid on white, grey becomes RGB, 16 bits become 8, CMYK is converted, an EXIF rotation is
    applied, and an animation gives its first frame.

    Raises
    ------
    ImageError
        Empty, not such a picture, cut short, damaged, or above Pillow's limit of pixels. *Not* noticed: damage inside
        JPEG data that still decodes.
    """
    from PIL import Image, UnidentifiedImageError  # here: worker processes import this module, and read no files

    try:
        data = Path(path).read_bytes()
        if not data:
            raise ImageError("the file is empty")
        with Image.open(io.BytesIO(data), formats=FORMATS) as picture:
            _check_pixels(picture, Image.MAX_IMAGE_PIXELS)
            picture.load()
            return np.ascontiguousarray(_upright(picture, _to_rgb(picture)))
    except ImageError:
        raise
    except UnidentifiedImageError:
        raise ImageError("its bytes are not those of a PNG, JPEG, WebP, BMP or GIF picture") from None
    except (Image.DecompressionBombWarning, Image.DecompressionBombError):
        raise ImageError(_too_large(Image.MAX_IMAGE_PIXELS)) from None
    except Exception as error:  # decoders meet hostile bytes with any exception: struct.error, SyntaxError, IndexError
        raise ImageError(_reason(error)) from error


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

    Raises
    ------
    ImageError
        The bytes are not a picture. Bytes cut short are *not* noticed: the missing part comes out grey.
    """
    buffer = data if isinstance(data, np.ndarray) else np.frombuffer(data, np.uint8)
    image = cv2.imdecode(buffer, cv2.IMREAD_COLOR_RGB) if len(buffer) else None
    if image is None:
        raise ImageError(f"these {len(buffer)} bytes are not a JPEG image.")
    return image


# -- from Pillow's modes to RGB ---------------------------------------------------------------------------------------


def _to_rgb(picture: Image.Image) -> np.ndarray:
    if picture.mode.startswith("I"):
        return _from_16_bit(picture)
    if picture.mode in {"RGBA", "LA", "PA", "RGBa", "La"} or "transparency" in picture.info:
        return _on_white(np.asarray(picture.convert("RGBA")))
    return np.asarray(picture.convert("RGB"))


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


def _check_pixels(picture: Image.Image, limit: int | None) -> None:
    if limit is not None and picture.width * picture.height > limit:
        raise ImageError(_too_large(limit))


def _too_large(limit: int) -> str:
    return f"it has more than {limit:,} pixels (the limit of Pillow, against files made to fill the memory)"


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.errno:
        return f"it cannot be read: {os.strerror(error.errno)}"
    text = str(error)
    if "truncated" in text.lower():
        return "it is cut short"
    return f"it is damaged ({text or type(error).__name__})"

"""A small folder of a user's own pictures, with the faults that such folders have, and what a build must make of each.

Every written picture is of one colour, which no other file of another content has: a row of the result says by its
colour which file it is.
"""

from __future__ import annotations

import os
import shutil
import struct
import unicodedata
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

CAFE = "caf\u00e9"  # as Linux writes it, NFC
CAFE_OF_A_MAC = unicodedata.normalize("NFD", CAFE)  # looks the same, and is another file name
CLASSES = ("apple pie", CAFE, "single")  # that get a number; "hollow" and "broken" do not
SIDEWAYS = 6  # the EXIF orientation of a phone held upright

SAME_CLASS = "a copy of a picture of the same class"
OTHER_CLASS = "the same bytes as {}, in another class: one of the labels is wrong"
NO_PICTURE = "its bytes are not those of a PNG, JPEG, WebP, BMP or GIF picture"
TOO_LARGE = "it has more than 89,478,485 pixels, the limit against files made to fill the memory"


@dataclass(frozen=True)
class Fate:
    """What becomes of a file: "written" into a class, "skipped" or "ignored" with the reason."""

    what: str
    class_name: str | None = None
    colour: tuple[int, int, int] | None = None  # of the whole image
    tolerance: int = 0
    reason: str | None = None
    twin: str = ""  # the file that is written in its place, or contradicts it


def make_hard_folder(folder: str | os.PathLike) -> dict[str, Fate]:
    """Make ``folder``; returns path below it (with forward slashes) -> what a build must make of the file.

    The file system must take any bytes as a name, tell "é" from "e" with an accent, and have symbolic links.
    """
    root = Path(folder)
    for name in ("apple pie", CAFE, CAFE_OF_A_MAC, "broken", "hollow", "single", ".trash"):
        (root / name).mkdir(parents=True)
    fates = {}
    for add in (_kinds, _names, _broken, _litter, _copies, _links):
        fates |= add(root)
    return fates


# -- parts ------------------------------------------------------------------------------------------------------------


def _kinds(root: Path) -> dict[str, Fate]:
    """Pictures of every kind, all good."""
    sideways = Image.Exif()
    sideways[0x0112] = SIDEWAYS
    palette = Image.new("P", (20, 16), 1)
    palette.putpalette([0, 0, 0, 10, 200, 30])
    frames = [Image.new("RGB", (20, 16), colour) for colour in ((250, 20, 120), (0, 0, 0))]
    pie = "apple pie"
    return {
        **_put(root, f"{pie}/IMG_0001.JPG", Image.new("RGB", (24, 12), (200, 40, 40)), (200, 40, 40), exif=sideways),
        **_put(root, f"{pie}/screenshot.png", Image.new("RGBA", (20, 16), (255, 0, 0, 128)), (255, 127, 127)),
        **_put(root, f"{pie}/print.jpg", Image.new("CMYK", (20, 16), (0, 255, 255, 0)), (255, 0, 0), quality=95),
        **_put(root, f"{pie}/scan.png", Image.fromarray(np.full((16, 20), 32768, np.uint16)), (128, 128, 128)),
        **_put(root, f"{pie}/icon.png", palette, (10, 200, 30)),
        **_put(root, f"{pie}/grey.jpeg", Image.new("L", (20, 16), 90), (90, 90, 90)),
        **_put(root, f"{pie}/moving.GIF", frames[0], (250, 20, 120), save_all=True, append_images=frames[1:]),
        **_put(root, f"{pie}/phone/2024/panorama.webp", _plain(20, 16, (10, 20, 230)), (10, 20, 230), lossless=True),
        **_put(root, f"{pie}/a png.jpg", _plain(20, 16, (30, 140, 140)), (30, 140, 140), kind="PNG"),
        **_put(root, f"{pie}/no ending", _plain(20, 16, (30, 60, 140)), (30, 60, 140), kind="PNG"),
        **_put(root, f"{pie}/thin.bmp", _plain(300, 1, (70, 170, 90)), (70, 170, 90)),
        **_put(root, "single/only.png", _plain(20, 16, (5, 90, 60)), (5, 90, 60)),
    }  # fmt: skip


def _names(root: Path) -> dict[str, Fate]:
    """Good pictures with names that programs stumble over. The two café folders are one class."""
    fates = {}
    names = ["two  spaces .png", "dots.in.a.name.png", "emoji \U0001f370.png", "new\nline.png", "-o.png", "100%.png"]
    names += [os.fsdecode(b"latin-\xe9.png"), f"{CAFE}.png", f"{CAFE_OF_A_MAC}.png"]
    for number, name in enumerate(names):
        folder = CAFE if number % 2 else CAFE_OF_A_MAC
        colour = (40, 20 * number, 250)
        fates |= _put(root, f"{folder}/{name}", _plain(20, 16, colour), colour)
    return fates


def _broken(root: Path) -> dict[str, Fate]:
    """Files named as pictures that are none, or not whole."""
    noise = np.random.default_rng(0).integers(0, 256, (48, 64, 3), dtype=np.uint8)
    whole = root / "broken" / "cut.jpg"
    Image.fromarray(noise).save(whole)
    data = whole.read_bytes()
    files = {
        "broken/cut.jpg": (data[: len(data) // 2], "it is cut short"),
        "broken/zeros.jpg": (data[: len(data) // 2] + bytes(len(data) // 2), "it is cut short"),
        "broken/empty.jpg": (b"", "the file is empty"),
        "single/empty.png": (b"", "the file is empty"),
        "broken/page.jpg": (
            b"<!DOCTYPE html><title>404</title>",
            "it is a web page, not a picture: the download went wrong",
        ),
        "broken/letter.gif": (b"Dear reader", NO_PICTURE),
        "broken/bomb.png": (_bomb(), TOO_LARGE),
        "broken/from a phone.jpg": (
            b"\0\0\0\x18ftypheic\0\0\0\0mif1heic",
            "it is a picture of the format HEIC, which is not read here: convert it to JPEG or PNG",
        ),
    }
    for name, (content, _) in files.items():
        (root / name).write_bytes(content)
    return {name: Fate("skipped", reason=reason) for name, (_, reason) in files.items()}


def _litter(root: Path) -> dict[str, Fate]:
    """Files that systems and programs leave behind."""
    for name in ("@eaDir", "__MACOSX"):
        (root / name).mkdir()
    files = {
        "apple pie/.DS_Store": "hidden",
        "apple pie/Thumbs.db": "not a picture",
        "apple pie/._IMG_0001.JPG": "hidden",
        "apple pie/notes.txt": "not a picture",
        "labels.csv": "outside the class folders",
        "cover.png": "outside the class folders",
        ".trash/old.png": "hidden",
        "@eaDir/thumbnail.png": "in a folder of the system",
        "__MACOSX/photo.png": "in a folder of the system",
    }
    for number, name in enumerate(files):
        if name.endswith(".png"):
            _plain(20, 16, (number, number, number)).save(root / name)
        else:
            (root / name).write_bytes(b"\0\0\0\1 litter")
    return {name: Fate("ignored", reason=reason) for name, reason in files.items()}


def _copies(root: Path) -> dict[str, Fate]:
    """The same bytes twice in a class, and in two classes."""
    first = _put(root, f"{CAFE}/cake.png", _plain(20, 16, (230, 120, 10)), (230, 120, 10))
    shutil.copyfile(root / CAFE / "cake.png", root / CAFE / "cake (1).png")
    placeholder = _plain(20, 16, (238, 238, 238))
    pies, cafes = "apple pie/not available.png", f"{CAFE}/not available.png"
    for name in (pies, cafes):
        placeholder.save(root / name)
    # "cake (1).png" comes first in the order of paths
    kept = first.pop(f"{CAFE}/cake.png")
    return {
        f"{CAFE}/cake (1).png": kept,
        f"{CAFE}/cake.png": Fate("ignored", reason=SAME_CLASS, twin=f"{CAFE}/cake (1).png"),
        **_contradiction(pies, cafes),
    }


def _links(root: Path) -> dict[str, Fate]:
    """Symbolic links to files, folders, nowhere and upwards."""
    fates = _put(root, "apple pie/shared.png", _plain(20, 16, (90, 90, 10)), (90, 90, 10))
    links = {
        "apple pie/gone.jpg": ("nowhere.jpg", "skipped", "it cannot be read: No such file or directory"),
        "apple pie/gone.txt": ("nowhere.txt", "ignored", "no regular file (a broken link, a pipe ...)"),
        "apple pie/itself": ("itself", "ignored", "no regular file (a broken link, a pipe ...)"),
        "apple pie/parent": ("..", "ignored", "a link to a folder"),
        "apple pie/more": ("../single", "ignored", "a link to a folder"),
        "everything": (".", "ignored", "a link to a folder"),
        "pies": ("apple pie", "ignored", "a link to a folder"),
    }
    for name, (target, what, reason) in links.items():
        (root / name).symlink_to(target)
        fates[name] = Fate(what, reason=reason)
    _plain(20, 16, (120, 10, 200)).save(root / "apple pie" / "elsewhere.png")
    (root / CAFE / "linked.png").symlink_to("../apple pie/elsewhere.png")
    (root / "apple pie" / "Link to shared.png").symlink_to("shared.png")  # a link gives way, although it sorts first
    fates["apple pie/Link to shared.png"] = Fate("ignored", reason=SAME_CLASS, twin="apple pie/shared.png")
    return fates | _contradiction("apple pie/elsewhere.png", f"{CAFE}/linked.png")


def _contradiction(one: str, other: str) -> dict[str, Fate]:
    """Equal files in two classes: both are left out."""
    return {
        path: Fate("skipped", reason=OTHER_CLASS.format(twin), twin=twin) for path, twin in ((one, other), (other, one))
    }


def _plain(width: int, height: int, colour: tuple[int, int, int]) -> Image.Image:
    return Image.new("RGB", (width, height), colour)


def _put(root: Path, name: str, picture: Image.Image, colour, *, kind: str | None = None, **options) -> dict[str, Fate]:
    """Save a good picture; returns its entry."""
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    picture.save(path, kind, **options)
    class_name = unicodedata.normalize("NFC", name.split("/")[0])
    return {name: Fate("written", class_name, colour, tolerance=4 if path.read_bytes()[:2] == b"\xff\xd8" else 0)}


def _bomb() -> bytes:
    """A PNG of 80 bytes that claims 60,000 x 60,000 pixels."""
    chunks = [
        (b"IHDR", struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0)),
        (b"IDAT", zlib.compress(b"")),
        (b"IEND", b""),
    ]
    parts = [
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)

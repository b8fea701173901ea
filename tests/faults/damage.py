"""Small HDF5 files of every storage, and ways to damage their bytes: what tests/faults/damaged_files.py is made of.

Every image carries its row and class (tests/coded.py), so that a wrong picture shows whatever was damaged.
"""

from __future__ import annotations

import dataclasses
import random
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
from coded import CLASS_NAMES, IMAGE_SHAPE, class_of_row, coded_images, make_coded_file

from helpers import HDF5Writer, RowReader
from helpers.images import encode_jpeg
from helpers.layout import crc_dataset

ROWS = {"train": 103, "valid": 11, "test": 9}  # 103 chunks fill more than one node of HDF5's index
SOME_BYTES = 32
BLOCKS = (512, 4096)
HUGE = [2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**62, 2**63 - 1, 2**63, 2**64 - 1]


@dataclasses.dataclass(frozen=True)
class Base:
    """A good file before it is damaged."""

    make: Callable[[Path], None]
    checksums: bool = False  # of the images, by their filter
    index_checksums: bool = False
    images: str = "train_img"
    labels: str = "train_labels"
    foreign: bool = False

    @property
    def names(self) -> dict[str, str]:
        """What a caller must say about it."""
        return {"images": self.images, "labels": self.labels} if self.foreign else {}


@dataclasses.dataclass
class Whole:
    """A good file as bytes, and what must come out of it."""

    base: Base
    content: bytes
    images: np.ndarray  # (n, height, width, 3) uint8
    numbers: np.ndarray  # (n,) int64
    class_names: tuple[str, ...]
    image_places: list[tuple[int, int]]  # first and last byte + 1 of each row
    label_places: list[tuple[int, int]]
    has_crc: bool
    jpeg: bool

    @property
    def other_places(self) -> list[tuple[int, int]]:
        """All that is neither image nor label: headers, index, attributes, heaps, sums."""
        edges, start = [], 0
        for first, last in sorted(set(self.image_places + self.label_places)):
            if first > start:
                edges.append((start, first))
            start = max(start, last)
        return [*edges, (start, len(self.content))]


# -- good files -------------------------------------------------------------------------------------------------------


def _coded(**options) -> Callable[[Path], None]:
    return lambda path: make_coded_file(path, rows=ROWS, **options)


def _with_crc(make: Callable[[Path], None]) -> Callable[[Path], None]:
    def made(path: Path) -> None:
        make(path)
        with h5py.File(path, "r+") as file:
            for split in ROWS:
                sums = [zlib.crc32(row.tobytes()) for row in file[f"{split}_img"][:]]
                file[crc_dataset(f"{split}_img")] = np.array(sums, np.uint32)

    return made


def _written(**options) -> Callable[[Path], None]:
    def made(path: Path) -> None:
        with HDF5Writer(path, IMAGE_SHAPE, CLASS_NAMES, **options) as writer:
            for split, n in ROWS.items():
                writer.append(split, coded_images(np.arange(n), split), class_of_row(np.arange(n)))

    return made


def _foreign(path: Path, *, libver="earliest", options=None, storage="raw") -> None:
    """Other names, in groups, and no attribute but a few words."""
    images = coded_images(np.arange(ROWS["train"]))
    with h5py.File(path, "w", libver=libver) as file:
        group = file.create_group("food").create_group("pictures")
        group.attrs["made by"] = "someone else"
        if storage == "raw":
            group.create_dataset("x", data=images, **(options or {}))
        else:
            data = group.create_dataset("x", (len(images),), h5py.vlen_dtype(np.uint8))
            for row, image in enumerate(images):
                data[row] = np.frombuffer(encode_jpeg(image), np.uint8)
            data.attrs["image_shape"] = IMAGE_SHAPE
        file["food/y"] = np.eye(len(CLASS_NAMES), dtype=np.uint8)[class_of_row(np.arange(len(images)))]


def _foreign_of(**options) -> Callable[[Path], None]:
    return lambda path: _foreign(path, **options)


_NAMED = {"images": "food/pictures/x", "labels": "food/y", "foreign": True}
_ONE, _EIGHT = (1, *IMAGE_SHAPE), (8, *IMAGE_SHAPE)
BASES = {
    "raw": Base(_coded()),
    "contiguous": Base(_coded(chunk_rows=None)),
    "gzip": Base(_coded(compression="gzip"), checksums=True),
    "gzip, 8 a chunk": Base(_coded(compression="gzip", chunk_rows=8), checksums=True),
    "lzf": Base(_coded(compression="lzf")),
    "sparse": Base(_coded(label_kind="sparse")),
    "raw, sums": Base(_with_crc(_coded())),
    "writer": Base(_written()),
    "writer jpeg": Base(_written(storage="jpeg")),
    "foreign jpeg": Base(_foreign_of(storage="jpeg"), **_NAMED),
    "foreign latest": Base(_foreign_of(libver="latest", options={"chunks": _ONE}), index_checksums=True, **_NAMED),
    "foreign growing": Base(
        _foreign_of(libver="latest", options={"chunks": _EIGHT, "maxshape": (None, *IMAGE_SHAPE), "compression": 4}),
        checksums=True,
        index_checksums=True,
        **_NAMED,
    ),
    "fletcher32": Base(_foreign_of(options={"chunks": _EIGHT, "fletcher32": True}), checksums=True, **_NAMED),
    "cut chunks": Base(
        _foreign_of(options={"chunks": (32, 8, 8, 1), "compression": 4, "shuffle": True}), checksums=True, **_NAMED
    ),
    "writer sparse": Base(_written(label_kind="sparse")),
    "lzf, shuffle": Base(_foreign_of(options={"chunks": _EIGHT, "compression": "lzf", "shuffle": True}), **_NAMED),
}


def whole(base: Base, path: Path) -> Whole:
    """Make the good file at ``path`` and take down what it holds, and where."""
    base.make(path)
    content = path.read_bytes()
    with h5py.File(path) as file, RowReader(path, base.images) as reader:
        images, labels = file[base.images], file[base.labels]
        stored = labels[:]
        return Whole(
            base,
            content,
            reader.read(range(len(images))),
            (stored.argmax(axis=1) if stored.ndim == 2 else stored).astype(np.int64),
            tuple(file.attrs.get("class_names", ())),
            _places(images, content),
            _places(labels, content),
            crc_dataset(base.images) in file,
            h5py.check_vlen_dtype(images.dtype) is not None,
        )


def _places(data: h5py.Dataset, content: bytes) -> list[tuple[int, int]]:
    if h5py.check_vlen_dtype(data.dtype) is not None:
        starts = [(content.index(stored.tobytes()), len(stored)) for stored in data[:]]
        return [(start, start + size) for start, size in starts]
    if data.chunks is None:
        start, size = data.id.get_offset(), data.nbytes // len(data)
        return [(start + row * size, start + row * size + size) for row in range(len(data))]
    places = [[] for _ in range(len(data))]
    data.id.chunk_iter(lambda chunk: _note(places, chunk, data.chunks[0]))
    return [place for row in places for place in row]


def _note(places, chunk, rows: int) -> None:
    for row in range(chunk.chunk_offset[0], min(len(places), chunk.chunk_offset[0] + rows)):
        places[row].append((chunk.byte_offset, chunk.byte_offset + chunk.size))


# -- damage -----------------------------------------------------------------------------------------------------------


def _flip(content: bytearray, places: list[tuple[int, int]], chance: random.Random) -> None:
    for _ in range(chance.randint(1, SOME_BYTES)):
        place = chance.randrange(*chance.choice(places))
        content[place] = content[place] ^ (1 << chance.randrange(8)) if chance.random() < 0.5 else chance.randrange(256)


def _flip_other(good: Whole, content: bytearray, chance: random.Random) -> None:
    _flip(content, _in_use(good), chance)


def _flip_few(good: Whole, content: bytearray, chance: random.Random) -> None:
    place = chance.randrange(*chance.choice(_in_use(good)))
    content[place] ^= 1 << chance.randrange(8)


def _in_use(good: Whole) -> list[tuple[int, int]]:
    """Headers and index without the long stretches of zeros that HDF5 leaves free: pieces of 16 bytes."""
    pieces = []
    for first, last in good.other_places:
        for start in range(first, last, 16):
            if any(good.content[start : min(start + 16, last)]):
                pieces.append((start, min(start + 16, last)))
    return pieces


def _flip_images(good: Whole, content: bytearray, chance: random.Random) -> None:
    _flip(content, good.image_places, chance)


def _flip_labels(good: Whole, content: bytearray, chance: random.Random) -> None:
    _flip(content, good.label_places, chance)


def _flip_anywhere(good: Whole, content: bytearray, chance: random.Random) -> None:
    _flip(content, [(0, len(content))], chance)


def _flip_names(good: Whole, content: bytearray, chance: random.Random) -> None:
    """Near the names of groups, datasets and attributes, and near the signatures of HDF5's parts."""
    words = [b"class_names", b"image_shape", b"complete", b"train", b"food"]
    words += [b"TREE", b"SNOD", b"HEAP", b"OHDR", b"GCOL"]
    found = [place for word in words for place in _all(good.content, word)]
    start = chance.choice(found)
    _flip(content, [(start, min(start + 64, len(content)))], chance)


def _all(content: bytes, word: bytes) -> list[int]:
    found, start = [], content.find(word)
    while start >= 0:
        found.append(start)
        start = content.find(word, start + 1)
    return found


def _zero_block(good: Whole, content: bytearray, chance: random.Random) -> None:
    size = chance.choice(BLOCKS)
    start = chance.randrange(0, len(content), 512)
    content[start : start + size] = bytes(len(content[start : start + size]))


def _cut(good: Whole, content: bytearray, chance: random.Random) -> None:
    del content[chance.randrange(len(content)) :]


def _cut_and_fill(good: Whole, content: bytearray, chance: random.Random) -> None:
    """As a copy that reserved the space and stopped: right size, zeros from some place on."""
    start = chance.randrange(len(content))
    content[start:] = bytes(len(content) - start)


def _swap(good: Whole, content: bytearray, chance: random.Random) -> None:
    size, step = chance.choice([(512, 512), (768, 1), (4096, 512)])
    size = min(size, len(content) // 2)
    one, other = (chance.randrange(0, len(content) - size + 1, step) for _ in range(2))
    content[one : one + size], content[other : other + size] = (
        content[other : other + size],
        content[one : one + size],
    )


def _append(good: Whole, content: bytearray, chance: random.Random) -> None:
    content += chance.randbytes(chance.choice([1, 512, 100_000]))


def _numbers(good: Whole, content: bytearray, chance: random.Random) -> None:
    """Numbers of the headers become huge, or some other number that the file holds: sides, rows, offsets."""
    pieces = _in_use(good)
    known = [*ROWS.values(), *IMAGE_SHAPE, 1, 8, 0, len(content), *(start for start, _ in chance.sample(pieces, 4))]
    for _ in range(chance.randint(1, 3)):
        size = chance.choice([1, 2, 4, 8])
        start = chance.choice(pieces)[0] // 8 * 8 + chance.randrange(0, 8, size)
        number = chance.choice(chance.choice([HUGE, known])) % 256**size
        content[start : start + size] = number.to_bytes(size, "little")


def _sides(good: Whole, content: bytearray, chance: random.Random) -> None:
    """Stored counts of rows, sides of images and sizes of chunks become another number, wherever they stand."""
    sides = sorted({len(good.images), *IMAGE_SHAPE, 8, len(CLASS_NAMES), len(good.images[0].tobytes())})
    for _ in range(chance.randint(1, 2)):
        side = chance.choice(sides)
        found = [
            place
            for code in ("<Q", "<I")
            for place in _all(good.content, struct.pack(code, side))
            if any(first <= place < last for first, last in good.other_places)
        ]
        if found:
            place = chance.choice(found)
            number = chance.choice([side - 1, side + 1, 2 * side, side // 2, side * 10_000, *HUGE])
            content[place : place + 4] = (number % 2**32).to_bytes(4, "little")
            if number >= 2**32:
                content[place + 4 : place + 8] = (number // 2**32).to_bytes(4, "little")


def _offsets(good: Whole, content: bytearray, chance: random.Random) -> None:
    """A stored place in the file becomes another one that is stored too: links in a circle, rows of one chunk."""
    pieces = [place for first, last in good.other_places for place in range(-(-first // 8) * 8, last - 7, 8)]
    numbers = {place: int.from_bytes(good.content[place : place + 8], "little") for place in pieces}
    offsets = [place for place, number in numbers.items() if 32 <= number < len(content)]
    for _ in range(chance.randint(1, 3)):
        number = numbers[chance.choice(offsets)] + chance.choice([0, 0, 0, 1, 8, 512])
        place = chance.choice(offsets)
        content[place : place + 8] = number.to_bytes(8, "little")


KINDS: dict[str, Callable[[Whole, bytearray, random.Random], None]] = {
    "flip, header or index": _flip_few,
    "flips, headers, index": _flip_other,
    "flips near names": _flip_names,
    "flips, images": _flip_images,
    "flips, labels": _flip_labels,
    "flips, anywhere": _flip_anywhere,
    "zeroed block": _zero_block,
    "cut short": _cut,
    "zeros to the end": _cut_and_fill,
    "blocks swapped": _swap,
    "junk appended": _append,
    "huge numbers": _numbers,
    "rows, sides, sizes": _sides,
    "offsets exchanged": _offsets,
}


def damaged(good: Whole, kind: str, chance: random.Random) -> bytes:
    """The bytes of a good file after damage of this kind."""
    content = bytearray(good.content)
    while content == good.content:  # a zeroed block of zeros is no damage
        KINDS[kind](good, content, chance)
    return bytes(content)

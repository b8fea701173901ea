"""Folders of small pictures whose colours say which they are, and what an HDF5 file made of them holds."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
from PIL import Image

from data_scripts.build_hdf5 import build_hdf5
from helpers import layout


def picture(path: Path, number: int = 0, class_number: int = 0, kind: str = "PNG") -> Path:
    """A one-coloured picture whose red says its class, and green and blue which one it is. PNG keeps them exactly.

    JPEG rounds colours; a comment keeps the files from being copies of each other.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    comment = {"comment": f"{class_number}/{number}"} if kind == "JPEG" else {}
    colour = (40 * class_number, number % 256, number // 256)
    Image.new("RGB", (20, 16), colour).save(path, format=kind, **comment)
    return path


def folder_of(root: Path, counts: dict[str, int], kind: str = "PNG", first: int = 0) -> Path:
    """A source with so many pictures in each class; all pictures differ. The first class has the number ``first``."""
    for class_number, (name, n) in enumerate(sorted(counts.items()), first):
        (root / name).mkdir(parents=True)
        for number in range(n):
            picture(root / name / f"{number:04d}.{kind.lower()}", number, class_number, kind)
    return root


def food101(root: Path, train: int = 15, test: int = 5) -> Path:
    """Two classes in the layout of Food-101, with its four other files."""
    lists = {"train": [], "test": []}
    for class_number, name in enumerate(["apple_pie", "baby_back_ribs"]):
        for number in range(train + test):
            picture(root / "images" / name / f"{number}.jpg", number, class_number)
            lists["train" if number < train else "test"].append(f"{name}/{number}")
    (root / "meta").mkdir()
    for name, lines in lists.items():
        (root / "meta" / f"{name}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (root / "meta" / "classes.txt").write_text("apple_pie\nbaby_back_ribs\n", encoding="utf-8")
    (root / "README.txt").write_text("Food-101", encoding="utf-8")
    return root


def messy_folder(root: Path) -> Path:
    """Two good classes, one of broken pictures only, one empty, and all the litter that real folders have."""
    folder_of(root, {"bread": 20, "soup": 20})
    picture(root / "bread" / "deep" / "nested.jpg", 250)
    data = picture(root / "bread" / "cut.jpg", kind="JPEG").read_bytes()
    (root / "bread" / "cut.jpg").write_bytes(data[: len(data) // 2])
    (root / "bread" / "empty.png").write_bytes(b"")
    (root / "soup" / "letter.jpg").write_text("Dear reader", encoding="utf-8")
    picture(root / "soup" / "no_ending", 251, 1)
    (root / "soup" / "BMP-notes").write_text("BMW and other cars", encoding="utf-8")
    (root / "broken").mkdir()
    (root / "broken" / "one.jpg").write_bytes(b"")
    (root / "hollow").mkdir()
    (root / "bread" / "Thumbs.db").write_bytes(b"\xd0\xcf\x11\xe0")
    (root / "bread" / ".DS_Store").write_bytes(b"\0\0\0\1Bud1")
    picture(root / ".trash" / "old.png")
    picture(root / "soup" / "._0001.png")
    picture(root / "cover.png")
    (root / "notes.txt").write_text("x", encoding="utf-8")
    (root / "soup" / "gone.jpg").symlink_to(root / "nowhere.jpg")
    (root / "soup" / "gone").symlink_to(root / "nowhere")
    (root / "soup" / "loop").symlink_to(root, target_is_directory=True)
    (root / "soup" / "linked.png").symlink_to(root / "soup" / "0001.png")
    return root


def quiet(source, out, **options):
    """Build images of 8 pixels without a bar."""
    return build_hdf5(source, out, progress=False, **{"size": 8, **options})


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def rows_in(path: Path) -> dict[str, list[tuple[int, int]]]:
    """Split -> (class number, picture number) of each row, both read from the pixels; the labels must agree."""
    rows = {}
    with h5py.File(path) as file:
        for split in layout.SPLITS:
            images, labels = file[f"{split}_img"][:], file[f"{split}_labels"][:]
            assert (labels.sum(axis=1) == 1).all()
            rows[split] = [(int(red) // 40, int(green) + 256 * int(blue)) for red, green, blue in images[:, 4, 4]]
            assert [number for number, _ in rows[split]] == labels.argmax(axis=1).tolist()
    return rows


def content(path: Path) -> tuple[dict, dict]:
    """All that a reader can see in the file: bytes of each row of each dataset, and the attributes."""
    with h5py.File(path, "r") as file:
        rows = {name: [np.asarray(row).tobytes() for row in file[name]] for name in layout.dataset_names(file)}
        return rows, {name: np.asarray(value).tolist() for name, value in file.attrs.items()}

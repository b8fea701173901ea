"""Which datasets of a file are images, and which are their labels: the kit's names, or a guess by words and shapes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

import h5py
import numpy as np

from helpers import layout, outside

MOST_LOOKED_AT = 5_000  # datasets of a foreign file
MOST_GUESSED = 20  # image datasets; a file of more stores each image by itself

_NAMES = {
    "train": "train",
    "training": "train",
    "valid": "valid",
    "val": "valid",
    "validation": "valid",
    "test": "test",
}
_LABEL_WORDS = {"label", "labels", "y", "target", "targets", "class", "classes"}


class _Candidate(NamedTuple):
    """A dataset as the guess sees it."""

    name: str
    rows: int
    ndim: int
    is_images: bool
    is_labels: bool


def guess_pairs(file: h5py.File) -> dict[str, tuple[str, str]]:
    """Pairs of image and label datasets, by split; the kit's own names first, else by shape and words in the name.

    Empty when there is none, or when more than 20 datasets look like images.
    """
    own = {split: (layout.image_dataset(split), layout.label_dataset(split)) for split in layout.SPLITS}
    if found := {split: pair for split, pair in own.items() if pair[0] in file and pair[1] in file}:
        return found
    candidates = list(_candidates(file))
    images = [each for each in candidates if each.is_images]
    if len(images) > MOST_GUESSED:
        return {}
    sums = {layout.crc_dataset(image.name) for image in images}
    labels = [each for each in candidates if each.is_labels and each.name not in sums]
    pairs: dict[str, tuple[str, str]] = {}
    for image in images:
        others = [label for label in labels if label.name != image.name]
        if others:
            best = max(others, key=lambda label, image=image: _fit(image, label))
            split = split_name(image.name)
            pairs[split if split not in pairs else image.name] = (image.name, best.name)
    return pairs


def looks_like_labels(data: h5py.Dataset) -> bool:
    """Numbers, one or a row of them an image."""
    return data.ndim in {1, 2} and data.dtype.kind in "uif" and data.size > 0


def split_name(image: str) -> str:
    """The split that an image dataset is named for, or else its name."""
    return next((split for split in layout.SPLITS if split in _words(image)), image)


def _candidates(file: h5py.File) -> Iterator[_Candidate]:
    for name in layout.dataset_names(file)[:MOST_LOOKED_AT]:
        try:
            data, sources = outside.find(file, name)
            if data is not None and not any(source.fault for source in sources):
                rows = layout.row_count(data)
                yield _Candidate(name, rows, data.ndim, _looks_like_images(data), looks_like_labels(data))
        except (OSError, RuntimeError, KeyError, ValueError, TypeError):  # damaged, or a type that NumPy does not have
            continue


def _looks_like_images(data: h5py.Dataset) -> bool:
    vlen = h5py.check_vlen_dtype(data.dtype)
    if data.ndim == 1:
        return vlen is not None and np.dtype(vlen) == np.uint8
    return data.ndim in {3, 4} and data.dtype.kind in "uif" and min(data.shape[1:3]) > 2


def _words(name: str) -> set[str]:
    return {_NAMES.get(word, word) for word in re.split(r"[^a-z]+", name.lower()) if word}


def _fit(image: _Candidate, label: _Candidate) -> tuple:
    shared = len(_words(image.name) & _words(label.name))
    return shared, image.rows == label.rows, bool(_words(label.name) & _LABEL_WORDS), label.ndim == 2

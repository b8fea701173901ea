"""What a small network learns from a folder of images of your own, beside two controls.

::

    python tests/benchmarks/real_images.py FOLDER --size 64 --epochs 15 --seeds 3

The folder becomes an HDF5 file in a temporary place; `fit_generator` trains on it with two worker processes and
augmentation. An accuracy says something only beside (1) the share of the largest class, which a constant answer
reaches, and (2) the same training on shuffled labels, where validation can only be chance.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from statistics import mean

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import h5py
import keras
import numpy as np

from data_scripts.build_hdf5 import build_hdf5
from helpers import Augment, HDF5Sequence, fit_generator, inspect_file
from helpers.models import normalization, small_cnn

CHANGE = Augment(rotation=15, width_shift=0.1, height_shift=0.1, zoom=(0.8, 1.1), horizontal_flip=True)


def main() -> int:
    options = parse()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "images.h5"
        print(build_hdf5(options.source, path, size=options.size, progress=sys.stderr.isatty()))
        report = inspect_file(path)
        print(report)
        control = shuffled_copy(path, Path(folder) / "shuffled.h5")
        runs = [
            {"labels": name, "seed": seed, **train(file, seed, options)}
            for seed in range(options.seeds)
            for name, file in (("true", path), ("shuffled", control))
        ]
        result = {"largest_class": largest_share(path), "runs": runs}
    show(result)
    if options.json:
        Path(options.json).write_text(json.dumps(result, indent=1))
    return 0 if report.ok else 1


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", help="a folder with one folder of images a class, or a Food-101 folder")
    parser.add_argument("--size", type=int, default=64, help="pixels a side (64)")
    parser.add_argument("--epochs", type=int, default=15, help="passes over the training split (15)")
    parser.add_argument("--seeds", type=int, default=3, help="number of runs, with seeds 0, 1, ... (3)")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--json", help="write the figures to this file")
    return parser.parse_args()


def shuffled_copy(path: Path, copy: Path) -> Path:
    """The same file with the labels of the training split in a random order."""
    shutil.copyfile(path, copy)
    with h5py.File(copy, "r+") as file:
        labels = file["train_labels"]
        labels[...] = labels[:][np.random.default_rng(0).permutation(len(labels))]
    return copy


def largest_share(path: Path) -> float:
    """Share of the commonest class in the validation split."""
    with HDF5Sequence(path, "valid") as valid:
        return float(np.bincount(valid.class_numbers).max() / valid.n)


def train(path: Path, seed: int, options: argparse.Namespace) -> dict[str, float]:
    """Accuracy of the last epoch on both splits."""
    keras.utils.set_random_seed(seed)
    settings = {"batch_size": options.batch_size, "seed": seed}
    with (
        HDF5Sequence(path, augment=CHANGE, workers=2, use_multiprocessing=True, **settings) as images,
        HDF5Sequence(path, "valid", **settings) as valid,
    ):
        model = small_cnn(images.image_shape, images.num_classes, normalization=normalization(path), seed=seed)
        model.compile(keras.optimizers.Adam(2e-3), "categorical_crossentropy", metrics=["accuracy"])
        history = fit_generator(model, images, epochs=options.epochs, validation_data=valid, verbose=0).history
    return {"train": history["accuracy"][-1], "valid": history["val_accuracy"][-1]}


def show(result: dict) -> None:
    for run in result["runs"]:
        print(f"{run['labels']:8} labels, seed {run['seed']}: train {run['train']:.3f}, valid {run['valid']:.3f}")
    for name in ("true", "shuffled"):
        runs = [run for run in result["runs"] if run["labels"] == name]
        train_mean, valid_mean = mean(run["train"] for run in runs), mean(run["valid"] for run in runs)
        print(f"{name:8} labels, mean of {len(runs)}: train {train_mean:.3f}, valid {valid_mean:.3f}")
    print(f"share of the largest class in valid: {result['largest_class']:.3f}")


if __name__ == "__main__":
    sys.exit(main())

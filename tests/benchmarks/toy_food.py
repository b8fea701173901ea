"""Is the toy food hard enough to teach, and not too hard? Trains the small network of the course and prints figures.

::

    python tests/benchmarks/toy_food.py [--folder data] [--json figures.json]

Three questions. Does the mean colour of a picture give its class away? It must not. Does a small network, with 700
pictures a class, reach 0.9 on the validation split within 90 s on 2 cores? Does augmentation gain at least 0.05, with
25 pictures a class, as the mean of three seeds? Time is counted in core seconds, 180 of them, because other programs
may be running; the load of the machine is printed beside it. Exit status 1 when an answer is no.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import h5py
import keras
import numpy as np

from data_scripts.make_toy_food import toy_food_file
from helpers.augment import Augment
from helpers.models import small_cnn

ENOUGH = {"width": 16, "epochs": 5}  # of 5,600 pictures
FEW = {"width": 8, "epochs": 100}  # of 200 pictures; as many steps with augmentation as without
FEW_PER_CLASS = 25
SEEDS = (0, 1, 2)
BATCH = 32
AUGMENT = Augment(
    rotation=180, width_shift=0.12, height_shift=0.12, zoom=(0.8, 1.25), horizontal_flip=True, vertical_flip=True
)
TARGETS = {"accuracy": 0.9, "core_seconds": 180, "gain": 0.05, "colour": 0.3}

Rows = tuple[np.ndarray, np.ndarray]  # images (n, 64, 64, 3) uint8, class numbers (n,)


class Batches(keras.utils.PyDataset):
    """Shuffled batches of arrays, augmented or not: order and pictures depend on (seed, epoch, row) alone."""

    def __init__(self, rows: Rows, seed: int, augment: Augment | None):
        super().__init__()
        self.images, self.labels = rows
        self.seed, self.augment, self.epoch = seed, augment, 0

    def __len__(self) -> int:
        return len(self.images) // BATCH

    def __getitem__(self, index: int) -> Rows:
        order = np.random.default_rng((self.seed, self.epoch)).permutation(len(self.images))
        rows = order[index * BATCH : (index + 1) * BATCH]
        return np.stack([self._image(row) for row in rows.tolist()]), self.labels[rows]

    def _image(self, row: int) -> np.ndarray:
        if self.augment is None:
            return self.images[row]
        return self.augment(self.images[row], np.random.default_rng((self.seed, self.epoch, row)))

    def on_epoch_end(self) -> None:
        self.epoch += 1


def load(folder: Path) -> tuple[Rows, Rows]:
    """Training and validation rows of 8 classes with 1,000 pictures each."""
    with h5py.File(toy_food_file(folder, per_class=1000)) as file:
        train, valid = (
            (file[f"{name}_img"][:], file[f"{name}_labels"][:].argmax(axis=1)) for name in ("train", "valid")
        )
    return train, valid


def fit(train: Rows, valid: Rows, *, width: int, epochs: int, seed: int = 0, augment: Augment | None = None) -> dict:
    """Train a new network; accuracies of the last epoch and what it cost."""
    keras.utils.set_random_seed(seed)
    model = small_cnn(train[0].shape[1:], 8, width=width, seed=seed)
    batches = Batches(train, seed, augment)
    rate = keras.optimizers.schedules.CosineDecay(3e-3, epochs * len(batches))
    model.compile(keras.optimizers.Adam(rate), "sparse_categorical_crossentropy", metrics=["accuracy"])
    wall, cpu = time.perf_counter(), time.process_time()
    history = model.fit(batches, epochs=epochs, verbose=0).history
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    accuracy = model.evaluate(*valid, batch_size=128, verbose=0, return_dict=True)["accuracy"]
    return {
        "train_accuracy": history["accuracy"][-1], "valid_accuracy": accuracy,
        "seconds": wall, "core_seconds": cpu, "load": os.getloadavg()[0],
    }  # fmt: skip


def colour_accuracy(train: Rows, valid: Rows) -> float:
    """Share of validation pictures that a network of the mean colour alone names rightly."""
    keras.utils.set_random_seed(0)
    means = [images.mean(axis=(1, 2)) for images in (train[0], valid[0])]
    scale = keras.layers.Normalization()
    scale.adapt(means[0])
    layers = [keras.Input((3,)), scale, keras.layers.Dense(64, "relu"), keras.layers.Dense(8, "softmax")]
    model = keras.Sequential(layers)
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    model.fit(means[0], train[1], batch_size=256, epochs=100, verbose=0)
    return model.evaluate(means[1], valid[1], verbose=0, return_dict=True)["accuracy"]


def first_of_each_class(rows: Rows, n: int) -> Rows:
    """The first ``n`` rows of each class."""
    chosen = np.sort(np.concatenate([np.flatnonzero(rows[1] == label)[:n] for label in range(8)]))
    return rows[0][chosen], rows[1][chosen]


def measure(folder: Path) -> dict:
    """All figures."""
    train, valid = load(folder)
    colour = colour_accuracy(train, valid)
    print(f"mean colour alone: {colour:.3f} of the validation pictures named rightly (chance 0.125)", flush=True)
    enough = fit(train, valid, **ENOUGH)
    print(f"{len(train[0]):,} pictures:      {_line(enough)}", flush=True)
    few, runs = first_of_each_class(train, FEW_PER_CLASS), {"plain": [], "augmented": []}
    for seed in SEEDS:
        for name, augment in (("plain", None), ("augmented", AUGMENT)):
            runs[name].append(fit(few, valid, **FEW, seed=seed, augment=augment))
            print(f"{len(few[0])} pictures, seed {seed}, {name:9}: {_line(runs[name][-1])}", flush=True)
    means = {name: float(np.mean([run["valid_accuracy"] for run in runs[name]])) for name in runs}
    gain = means["augmented"] - means["plain"]
    print(
        f"mean of {len(SEEDS)} seeds: plain {means['plain']:.3f}, augmented {means['augmented']:.3f}, gain {gain:+.3f}"
    )
    return {"colour": colour, "enough": enough, "few": runs, "means": means, "gain": gain}


def _line(run: dict) -> str:
    return (
        f"training {run['train_accuracy']:.3f}, validation {run['valid_accuracy']:.3f}; {run['seconds']:.0f} s, "
        f"{run['core_seconds']:.0f} core seconds, load {run['load']:.1f}"
    )


def missed(figures: dict) -> list[str]:
    """Names of the targets that the figures miss."""
    reached = {
        "colour": figures["colour"] <= TARGETS["colour"],
        "accuracy": figures["enough"]["valid_accuracy"] >= TARGETS["accuracy"],
        "core_seconds": figures["enough"]["core_seconds"] <= TARGETS["core_seconds"],
        "gain": figures["gain"] >= TARGETS["gain"],
    }
    return [name for name, good in reached.items() if not good]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--folder", type=Path, default=Path("data"), help="where toy data is cached (default: data)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    options = parser.parse_args()
    figures = measure(options.folder)
    figures["missed"] = missed(figures)
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    print("all targets reached" if not figures["missed"] else f"targets missed: {', '.join(figures['missed'])}")
    return 1 if figures["missed"] else 0


if __name__ == "__main__":
    sys.exit(main())

"""Does the GPU ever wait? Trains a real network from an HDF5 file, and the same network fed without any file.

::

    python tests/benchmarks/gpu.py [--json FILE] [--chart FILE]
    KERAS_BACKEND=jax python tests/benchmarks/gpu.py        # the other backend
    python tests/benchmarks/gpu.py --cpu                    # a short run without a GPU: it proves that all of it works
    python tests/benchmarks/gpu.py --readme                 # brings README's table up to gpu-BACKEND.json

InceptionV3 at 299x299 in mixed precision, on a file of 4,096 generated images, shuffled: HDF5Sequence through
fit_generator, against the same step fed one constant batch, against a generator that reads row by row, and against
the list index of the best-known answers. The ways take turns, a round each; a figure is the median of its ratios
within a round. The steps that compile and start workers are not counted.

Exit status 1 when a figure is not reached on a GPU, 2 when there is no GPU or no room on the disk.
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import cv2
import h5py
import keras
import numpy as np
from feed import machine
from feeding.data import photographs
from gpu_figures import BACKENDS, Run, figures, line, new_readme

from helpers import HDF5Sequence, HDF5Writer, fit_generator
from helpers.course.meters import StallMeter
from helpers.device import gpu_devices, install_line, precision
from helpers.models import BASES, small_cnn, transfer_model

HERE = Path(__file__).parent
README = HERE.parents[1] / "README.md"
SMALL = "small_cnn"
GPU = {
    "model": "InceptionV3", "size": 299, "images": 4096, "batch_size": 64, "steps": 300, "rounds": 3, "workers": 4,
    "precision": "mixed_float16",
}  # fmt: skip
CPU = {
    "model": SMALL, "size": 64, "images": 512, "batch_size": 16, "steps": 20, "rounds": 1, "workers": 2,
    "precision": "float32",  # a CPU computes in half precision many times as slowly
}  # fmt: skip
CLASSES = 101
_SKIPPED = 10  # steps at the start of each training: workers start, and the first one may compile
_NAIVE_STEPS = 8  # counted ones of a list index: some take seconds each
_BLOCK = 64  # images in memory while the file is made


class Clock(keras.callbacks.Callback):
    """When the counted steps began: once the device has done the skipped ones."""

    def __init__(self):
        super().__init__()
        self.start = 0.0

    def on_train_batch_end(self, batch, logs=None):
        if batch == _SKIPPED - 1:
            float(logs["loss"])  # a device works through what it was given later: wait for it
            self.start = time.perf_counter()


def main(arguments: list[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    if options.readme:
        README.write_text(new_readme(README.read_text(encoding="utf-8"), stored_runs()), encoding="utf-8")
        return 0
    gpus = gpu_devices()
    if not gpus and not options.cpu:
        print(no_gpu(), file=sys.stderr)
        return 2
    for name, value in (CPU if options.cpu else GPU).items():
        if getattr(options, name) is None:
            setattr(options, name, value)
    needed = options.images * options.size**2 * 3
    with tempfile.TemporaryDirectory(prefix="gpu-", dir=options.folder) as folder:
        free = shutil.disk_usage(folder).free
        if free < needed:
            print(f"the file needs {needed / 1e9:.1f} GB and {free / 1e9:.1f} GB are free in {folder}. Lower --images, "
                  "or name another disk by --folder.", file=sys.stderr)  # fmt: skip
            return 2
        print(f"{options.images:,} images, {needed / 1e9:.1f} GB, in the page cache; {device(gpus)} ...", flush=True)
        path = make_file(Path(folder, "images.h5"), options.images, options.size)
        result = measure(path, options, gpus)
    print("\n".join(map(line, result["figures"].values())))
    if not gpus:
        print("without a GPU these figures say only that everything works.")
    store(result, options)
    missed = [figure["words"] for figure in result["figures"].values() if figure["reached"] is False]
    return 1 if missed and gpus else 0


def measure(path: Path, options: argparse.Namespace, gpus: list[str]) -> dict:
    """All rounds; what is stored as JSON."""
    keras.utils.set_random_seed(0)
    with precision(options.precision):
        model = build_model(options)
    rounds: list[dict[str, Run]] = []
    with HDF5Sequence(path, batch_size=options.batch_size, workers=options.workers,
                      use_multiprocessing=options.processes) as sequence:  # fmt: skip
        ways = {
            "constant": (lambda: itertools.repeat(sequence.batch(0, 0)), options.steps),
            "sequence": (lambda: sequence, options.steps),
            "rows": (lambda: row_by_row(path, options.batch_size), max(_NAIVE_STEPS, options.steps // 10)),
            "list": (lambda: list_index(path, options.batch_size), _NAIVE_STEPS),
        }
        for way, _ in ways.values():
            train(model, way(), 2)  # compiles
        for number in range(options.rounds):
            rounds.append({name: timed(model, way(), steps, options.batch_size) for name, (way, steps) in ways.items()})
            rates = ", ".join(f"{name} {run.rate:,.0f}" for name, run in rounds[-1].items())
            print(f"round {number + 1} of {options.rounds}, images a second: {rates}", flush=True)
    return {
        "date": datetime.date.today().isoformat(),
        "backend": keras.backend.backend(),
        "device": device(gpus),
        "machine": machine(),
        "settings": {name: getattr(options, name) for name in (*GPU, "processes")},
        "rates": {name: [round(each[name].rate, 1) for each in rounds] for name in ways},
        "shares": [round(each["sequence"].share, 4) for each in rounds],
        "figures": {name: vars(figure) for name, figure in figures(rounds).items()},
    }


def build_model(options: argparse.Namespace) -> keras.Model:
    """The whole network is trained, from scratch: weights do not change how long a step takes."""
    shape = (options.size, options.size, 3)
    model = small_cnn(shape, CLASSES) if options.model == SMALL else transfer_model(shape, CLASSES, options.model)
    model.compile("sgd", "categorical_crossentropy")
    return model


def train(model, source, steps: int, *callbacks) -> None:
    fit_generator(model, source, steps, verbose=0, callbacks=list(callbacks))


def timed(model, source, steps: int, batch_size: int) -> Run:
    """Train; rate and share of waiting over all steps but the first."""
    clock, meter = Clock(), StallMeter()
    train(model, source, _SKIPPED + steps, clock, meter)  # its end waits for the device: it reads the metrics
    seconds = time.perf_counter() - clock.start
    return Run(steps * batch_size / seconds, sum(meter.waits_s[_SKIPPED:]) / sum(meter.steps_s[_SKIPPED:]))


def row_by_row(path: Path, batch_size: int):
    """The plain way that works: one read a row, in the training process."""
    with h5py.File(path, "r") as file:
        images, labels = file["train_img"], file["train_labels"][:].astype(np.float32)
        for rows in _shuffled(len(images), batch_size):
            yield np.stack([images[row] for row in rows]), labels[rows]


def list_index(path: Path, batch_size: int):
    """The way of the best-known answers: sorted row numbers as an index."""
    with h5py.File(path, "r") as file:
        images, labels = file["train_img"], file["train_labels"]
        for rows in map(sorted, _shuffled(len(images), batch_size)):
            yield images[rows], labels[rows].astype(np.float32)


def _shuffled(n: int, batch_size: int):
    chance = np.random.default_rng(0)
    while True:
        order = chance.permutation(n)
        for start in range(0, n - batch_size + 1, batch_size):
            yield order[start : start + batch_size]


def make_file(path: Path, images: int, size: int) -> Path:
    """Noise with the grain of photographs, raw, one image a chunk."""
    pictures = np.stack([cv2.resize(picture, (size, size)) for picture in photographs()])
    with HDF5Writer(path, (size, size, 3), [f"class {number}" for number in range(CLASSES)]) as writer:
        for start in range(0, images, _BLOCK):
            rows = np.arange(start, min(start + _BLOCK, images))
            moved = [np.roll(pictures[row % len(pictures)], 37 * row, axis=0) for row in rows]
            writer.append("train", np.stack(moved), rows % CLASSES)
    return path


def device(gpus: list[str]) -> str:
    """What it runs on, in the words of the backend."""
    if not gpus:
        return f"no GPU, {keras.backend.backend()}"
    if keras.backend.backend() == "jax":
        import jax  # only where it is the backend

        return f"{jax.devices()[0].device_kind}, jax"
    import tensorflow as tf  # the same

    first = tf.config.list_physical_devices("GPU")[0]
    return f"{tf.config.experimental.get_device_details(first).get('device_name', first.name)}, tensorflow"


def no_gpu() -> str:
    """What to do when Keras sees none."""
    return (
        f"Keras sees no GPU (backend {keras.backend.backend()}). On Linux or WSL2 with an NVIDIA driver: "
        f"{install_line()}. --cpu makes a short run without one."
    )


def store(result: dict, options: argparse.Namespace) -> None:
    """Write the files that were asked for."""
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    if options.chart:
        from gpu_figures import chart_bytes  # matplotlib

        medians = {name: statistics.median(rates) for name, rates in result["rates"].items()}
        options.chart.write_bytes(chart_bytes(medians, result["device"]))


def stored_runs() -> dict[str, dict]:
    """The runs whose JSON is kept beside this program, by backend: ``--json tests/benchmarks/gpu-BACKEND.json``."""
    paths = {backend: HERE / f"gpu-{backend}.json" for backend in BACKENDS}
    return {name: json.loads(path.read_text(encoding="utf-8")) for name, path in paths.items() if path.exists()}


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    shown = {name: f"(default: {GPU[name]}; with --cpu {CPU[name]})" for name in GPU}
    made.add_argument("--cpu", action="store_true", help="a short run, also without a GPU; its figures mean nothing")
    names = [*BASES, SMALL]
    made.add_argument("--model", choices=names, metavar="NAME", help=f"{', '.join(names)} {shown['model']}")
    made.add_argument("--precision", metavar="POLICY", help=f"a dtype policy of Keras {shown['precision']}")
    for name, text in {
        "size": "side of the images", "images": "images in the file", "batch_size": "images a step",
        "steps": "counted steps of a training", "rounds": "rounds", "workers": "workers of the HDF5Sequence",
    }.items():  # fmt: skip
        made.add_argument(f"--{name.replace('_', '-')}", type=_positive, metavar="N", help=f"{text} {shown[name]}")
    made.add_argument("--processes", action="store_true", help="worker processes instead of threads")
    made.add_argument("--folder", type=Path, help="where the temporary file goes (default: the system's place)")
    made.add_argument("--json", type=Path, metavar="FILE", help="write all rates and figures there")
    made.add_argument("--chart", type=Path, metavar="FILE", help="draw the rates as a PNG")
    made.add_argument("--readme", action="store_true", help="write README's table from the stored JSON, and end")
    return made


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1; got {number}.")
    return number


if __name__ == "__main__":
    sys.exit(main())

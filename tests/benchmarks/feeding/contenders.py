"""Every way of feeding that is measured: a name, a kind of work, how many rows of it, and how to run one round."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from helpers import HDF5Sequence, fit_generator

from . import peers
from .consume import ConstantBatches, CountingModel, rate_of_loop, rate_of_training
from .data import BATCH, CLASSES, MAX_ROWS, Files

# Images of an epoch of the slowest; two batches at least, for Keras makes two before it starts, which nobody times.
_FEW = 2 * BATCH
_FEWER = 16 * BATCH  # of work that takes a millisecond an image


@dataclass(frozen=True)
class Contender:
    """``run()`` gives images a second of verified work, after one epoch that is not timed."""

    name: str
    work: str  # "raw", "gzip" or "augmented"
    run: Callable[[], float]
    words: str  # for the table
    needs: str | None = None  # a package that may be missing


@dataclass
class Bench:
    """What all contenders share: files, the model, labels, and which rows each kind of work takes."""

    files: Files
    model: CountingModel = field(init=False)
    labels: np.ndarray = field(init=False)

    def __post_init__(self):
        self.model = CountingModel(self.files.n)
        self.labels = self.files.labels()

    def rows(self, most: int = MAX_ROWS) -> np.ndarray:
        """Rows from all over the file, ``most`` or all of them; slow work takes fewer, for rates are per image."""
        return np.sort(np.random.default_rng(0).permutation(self.files.n)[: min(most, self.files.n)])

    def fit(self, rows: np.ndarray, epochs: int, data: Callable[[int], object], repeats: int = 1, **options) -> float:
        """Rate of ``model.fit`` on ``data(all epochs)``; ``repeats`` is how often a row comes in an epoch."""

        def fit(epochs: int, callbacks: list) -> None:
            self.model.fit(data(epochs), epochs=epochs, callbacks=callbacks, verbose=0, **options)

        return rate_of_training(self.model, rows, epochs, fit, repeats)

    def steps(self, rows: np.ndarray) -> int:
        return -(-len(rows) // BATCH)


def contenders(bench: Bench) -> list[Contender]:
    """All of them, whether their package is there or not."""
    return [*_raw(bench), *_gzip(bench), *_augmented(bench)]


def missing(contender: Contender) -> str | None:
    """Why this contender cannot run here, or None."""
    if contender.needs is None or importlib.util.find_spec(contender.needs):
        return None
    return f"{contender.needs} is not installed"


def sequence(bench: Bench, work: str, rows: np.ndarray, *, workers: int, processes: bool) -> HDF5Sequence:
    """The kit's own generator for a kind of work."""
    return HDF5Sequence(
        bench.files.gzip if work == "gzip" else bench.files.raw,
        batch_size=BATCH,
        rows=rows,
        images="train_img",
        labels="train_labels",
        augment=peers.AUGMENT if work == "augmented" else None,
        workers=workers,
        use_multiprocessing=processes,
    )


def _raw(bench: Bench) -> list[Contender]:
    rows, fewer, few = bench.rows(), bench.rows(_FEWER), bench.rows(_FEW)
    contiguous, chunked = (peers.ListIndex(path, bench.labels) for path in (bench.files.contiguous, bench.files.raw))
    return [
        Contender("roofline", "raw", lambda: constant(bench, epochs=4), "Keras fed one constant batch"),
        *_ours(bench, "raw", rows, epochs=4),
        *_peers(bench, "raw", rows, epochs=1),
        Contender("tfrecord", "raw", lambda: _tfrecord(bench, epochs=1), "TFRecord of raw pixels, tf.data"),
        Contender(
            "keras processes", "raw", lambda: _keras_processes(bench, bench.rows(2 * _FEWER)),
            "the same PyDataset, Keras' own 2 processes",
        ),
        Contender(
            "list index, contiguous", "raw", lambda: _list_index(bench, contiguous, fewer),
            "generator of the best-known answers, contiguous file",
        ),
        Contender(
            "list index, chunked", "raw", lambda: _list_index(bench, chunked, few),
            "generator of the best-known answers, one-image chunks",
        ),
    ]  # fmt: skip


def _gzip(bench: Bench) -> list[Contender]:
    rows = bench.rows(_FEWER)
    return [
        *_ours(bench, "gzip", rows, epochs=2),
        Contender("1 worker", "gzip", _fit_ours(bench, "gzip", rows, 1, 1, False), "HDF5Sequence, 1 thread"),
        *_peers(bench, "gzip", rows, epochs=1),
    ]


def _augmented(bench: Bench) -> list[Contender]:
    rows, few = bench.rows(_FEWER), bench.rows(2 * _FEW)
    return [
        *_ours(bench, "augmented", rows, epochs=2),
        *_peers(bench, "augmented", rows, epochs=1),
        Contender("legacy", "augmented", lambda: _legacy(bench, few), "row reads, ImageDataGenerator.apply_transform"),
    ]


def _ours(bench: Bench, work: str, rows: np.ndarray, epochs: int) -> list[Contender]:
    return [
        Contender(
            f"{peers.WORKERS} {kind}", work, _fit_ours(bench, work, rows, epochs, peers.WORKERS, kind == "processes"),
            f"HDF5Sequence, {peers.WORKERS} {kind}",
        )
        for kind in ("threads", "processes")
    ]  # fmt: skip


def _peers(bench: Bench, work: str, rows: np.ndarray, epochs: int) -> list[Contender]:
    path = bench.files.gzip if work == "gzip" else bench.files.raw
    read = peers.Rows(path, bench.labels, peers.AUGMENT if work == "augmented" else None)
    how = " and OpenCV" if work == "augmented" else ""
    n = bench.files.n
    return [
        Contender(
            "PyDataset", work, lambda: bench.fit(rows, epochs, lambda _: peers.py_dataset(read, rows)),
            f"Keras PyDataset of row reads{how}",
        ),
        Contender(
            "from_generator", work, lambda: _from_generator(bench, read, rows, epochs),
            f"tf.data from_generator, row reads{how}",
        ),
        Contender(
            "PyTorch", work, lambda: _torch(n, read, rows, epochs), f"PyTorch DataLoader, 2 workers, row reads{how}",
            "torch",
        ),
        Contender(
            "Grain", work, lambda: rate_of_loop(n, rows, epochs, peers.grain_epochs(read, rows, epochs + 1)),
            f"Grain, 2 workers, row reads{how}", "grain",
        ),
    ]  # fmt: skip


def constant(bench: Bench, epochs: int) -> float:
    """Keras fed one constant NumPy batch by a PyDataset; nothing to verify but that all steps were trained."""
    rows = np.arange(BATCH)
    repeats = bench.files.n // BATCH
    data = ConstantBatches(repeats, BATCH)
    return bench.fit(rows, epochs, lambda _: data, repeats, shuffle=False)


def _fit_ours(bench: Bench, work: str, rows: np.ndarray, epochs: int, workers: int, processes: bool) -> Callable:
    def run() -> float:
        with sequence(bench, work, rows, workers=workers, processes=processes) as data:
            return rate_of_training(bench.model, rows, epochs, functools.partial(_fit_generator, bench.model, data))

    return run


def _fit_generator(model: CountingModel, data: HDF5Sequence, epochs: int, callbacks: list) -> None:
    fit_generator(model, data, epochs=epochs, callbacks=callbacks, verbose=0)


def _from_generator(bench: Bench, read: peers.Rows, rows: np.ndarray, epochs: int) -> float:
    dataset = peers.from_generator(read, rows)
    return bench.fit(rows, epochs, lambda _: dataset, steps_per_epoch=bench.steps(rows), shuffle=False)


def _tfrecord(bench: Bench, epochs: int) -> float:
    dataset = peers.tfrecord(bench.files.records, bench.files.n, CLASSES)
    rows = bench.rows()
    return bench.fit(rows, epochs, lambda _: dataset, steps_per_epoch=bench.steps(rows), shuffle=False)


def _torch(n: int, read: peers.Rows, rows: np.ndarray, epochs: int) -> float:
    loader = peers.torch_loader(read, rows)
    return rate_of_loop(n, rows, epochs, lambda: loader)


def _keras_processes(bench: Bench, rows: np.ndarray) -> float:
    read = peers.Rows(bench.files.raw, bench.labels)
    pool = {"workers": peers.WORKERS, "use_multiprocessing": True}
    return bench.fit(rows, 1, lambda _: peers.py_dataset(read, rows, **pool))


def _list_index(bench: Bench, generator: peers.ListIndex, rows: np.ndarray) -> float:
    return bench.fit(
        rows, 1, lambda total: generator.epochs(rows, total), steps_per_epoch=bench.steps(rows), shuffle=False
    )


def _legacy(bench: Bench, rows: np.ndarray) -> float:
    read = peers.Rows(bench.files.raw, bench.labels, peers.LegacyAugment())
    return bench.fit(rows, 1, lambda _: peers.py_dataset(read, rows))

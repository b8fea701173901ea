"""How well an epoch is mixed: what a batch reaches into, what it shows, and how far neighbours are taken apart."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from helpers.arguments import whole_number


@dataclass(frozen=True)
class Mixing:
    """Measures of one epoch's order; :func:`measure_mixing` makes them. "By chance": what a full shuffle would give."""

    blocks: float  # different blocks that a batch reaches into
    blocks_by_chance: float
    classes: float  # different classes that a batch shows
    classes_by_chance: float
    neighbour_entropy: float

    def __str__(self) -> str:
        return (
            f"{self.blocks:.1f} blocks and {self.classes:.1f} classes a batch (by chance {self.blocks_by_chance:.1f} "
            f"and {self.classes_by_chance:.1f}), entropy of neighbours {self.neighbour_entropy:.2f}"
        )


def measure_mixing(order, class_numbers, *, batch_size: int, block_rows: int) -> Mixing:
    """Measure the order in which an epoch serves its rows.

    Parameters
    ----------
    order : (n,) row numbers, each of 0 to n - 1 once, as served: ``np.concatenate(epoch_order.batches(epoch))``.
    class_numbers : (n,) class number of each row of the file.
    batch_size, block_rows : rows a batch, and neighbouring rows a block of the file.

    Raises
    ------
    ValueError
        ``order`` is not every row once, or there is not one class number a row.
    """
    order, class_numbers = np.asarray(order), np.asarray(class_numbers)
    whole_number("block_rows", block_rows, 1)
    entropy = neighbour_entropy(order, batch_size)  # it also checks the order
    if class_numbers.shape != order.shape:
        raise ValueError(
            f"class_numbers must have one number a row; got shape {class_numbers.shape} for {len(order)} rows."
        )
    blocks, classes = order // block_rows, class_numbers[order]
    return Mixing(
        blocks=distinct_a_batch(blocks, batch_size),
        blocks_by_chance=distinct_by_chance(np.unique(blocks, return_counts=True)[1], batch_size),
        classes=distinct_a_batch(classes, batch_size),
        classes_by_chance=distinct_by_chance(np.unique(classes, return_counts=True)[1], batch_size),
        neighbour_entropy=entropy,
    )


def distinct_a_batch(values, batch_size: int) -> float:
    """How many different ``values`` a full batch holds, on average; (n,) in the order served.

    A last batch that is not full is left out. Raises ValueError when no batch is full.
    """
    values = np.asarray(values)
    full = len(values) // whole_number("batch_size", batch_size, 1)
    if full == 0:
        raise ValueError(f"batch_size must be at most the {len(values)} rows of the epoch; got {batch_size}.")
    batches = np.sort(values[: full * batch_size].reshape(full, batch_size), axis=1)
    return float(np.mean(1 + np.count_nonzero(np.diff(batches, axis=1), axis=1)))


def distinct_by_chance(counts, batch_size: int) -> float:
    """How many different values ``batch_size`` rows hold on average when they are drawn from all rows by chance.

    ``counts`` says how many rows have each value. A value with c of the n rows is missed by the first draw with
    probability (n - c) / n, by the second with (n - 1 - c) / (n - 1), and so on.
    """
    counts = np.asarray(counts)
    left = counts.sum() - np.arange(whole_number("batch_size", batch_size, 1))  # rows not drawn yet, at each draw
    if left[-1] < 1:
        raise ValueError(f"batch_size must be at most the {counts.sum()} rows of the epoch; got {batch_size}.")
    missed = np.prod(np.maximum(left - counts[:, None], 0) / left, axis=1)
    return float(np.sum(1 - missed))


def neighbour_entropy(order, batch_size: int) -> float:
    """How far apart neighbours of the file are served, as an entropy: 0 for the order of the file, 1 for full shuffle.

    For each row r, take the distance in the order served from r to r + 1, in whole batches and with its sign (rounded
    down). These n - 1 distances have a distribution; its entropy is divided by the one that a full shuffle has on
    average, where each distance of d places, forwards or backwards, has the probability (n - d) / (n (n - 1)). So 0
    means that all neighbours are equally far apart, and a full shuffle comes out at about 1 (a little less for small n:
    a sample shows fewer different distances than there are).

    A block shuffle cannot take two neighbours of one block further apart than its groups are long.

    Raises ValueError when ``order`` is not every row of 0 to n - 1 once, or an epoch is not longer than a batch.
    """
    order = np.asarray(order)
    n = len(order)
    if not np.array_equal(np.sort(order), np.arange(n)):
        raise ValueError("order must hold each row of the file, 0 to n - 1, once.")
    if n <= whole_number("batch_size", batch_size, 1):
        raise ValueError(f"an epoch must be longer than a batch; got {n} rows and batch_size={batch_size}.")
    distances = np.diff(np.argsort(order)) // batch_size  # argsort of an order: the position of each row
    places = np.arange(1 - n, n)
    chances = (n - np.abs(places)) * (places != 0)
    expected = np.bincount(places // batch_size - (1 - n) // batch_size, weights=chances)
    return _entropy(np.unique(distances, return_counts=True)[1]) / _entropy(expected)


def _entropy(weights: np.ndarray) -> float:
    """Entropy, in nats, of the distribution that is proportional to ``weights``."""
    shares = weights[weights > 0] / weights.sum()
    return float(np.sum(shares * np.log(1 / shares)))

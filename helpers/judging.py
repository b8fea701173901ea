"""Judge a model: its answers row by row beside the truth, counts of mistakes, a report for each class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from helpers.arguments import whole_number


def judge(model, sequence) -> Judgement:
    """Ask ``model`` about every row of ``sequence`` and keep each answer beside its label and its row in the file.

    Parameters
    ----------
    model : whatever has ``predict(sequence, verbose=0)`` -> (rows, classes) probabilities.
    sequence : an :class:`helpers.HDF5Sequence` with shuffle=None, as it is by default for "valid" and "test".

    Raises
    ------
    ValueError
        The sequence shuffles, or leaves out rows: answers and labels would belong to different images.
    """
    if sequence.shuffle is not None:
        raise ValueError(
            f"the sequence must keep the order of the file, shuffle=None; got shuffle={sequence.shuffle!r}. Its "
            "answers would stand beside the labels of other images."
        )
    rows = np.concatenate([sequence.rows_of(0, batch) for batch in range(len(sequence))])
    if len(rows) != sequence.n:
        raise ValueError(
            f"the sequence must serve each of its {sequence.n} rows; it serves {len(rows)}. Open it without drop_last "
            "and without shard."
        )
    names = sequence.class_names or [str(number) for number in range(sequence.num_classes)]
    return Judgement(sequence.class_numbers, model.predict(sequence, verbose=0), names, rows)


@dataclass(frozen=True, eq=False)
class Judgement:
    """Answers beside the truth.

    Parameters
    ----------
    truth : (n,) class numbers.
    probabilities : (n, classes) floats, the answers of a model to the same images.
    class_names : one a class.
    rows : (n,) rows in the file; None: 0 to n - 1.
    """

    truth: np.ndarray
    probabilities: np.ndarray
    class_names: Sequence[str]
    rows: np.ndarray | None = None

    def __post_init__(self):
        shape = np.shape(self.probabilities)
        if len(shape) != 2 or shape != (len(self.truth), len(self.class_names)):
            raise ValueError(
                f"probabilities must be (labels, classes), here ({len(self.truth)}, {len(self.class_names)}); got "
                f"{shape}. Predict the images of these labels, with the model of these classes."
            )

    @cached_property
    def predicted(self) -> np.ndarray:
        """(n,) class numbers: the answers."""
        return np.argmax(self.probabilities, axis=1)

    @cached_property
    def matrix(self) -> np.ndarray:
        """Confusion matrix, (classes, classes) counts: true class down, answer across."""
        counts = np.zeros((len(self.class_names),) * 2, int)
        np.add.at(counts, (self.truth, self.predicted), 1)
        return counts

    @property
    def accuracy(self) -> float:
        """Share of right answers."""
        return float(np.mean(self.predicted == self.truth))

    @cached_property
    def counts(self) -> np.ndarray:
        """(classes,) images of each class."""
        return self.matrix.sum(axis=1)

    @cached_property
    def recall(self) -> np.ndarray:
        """(classes,) share of the images of a class that were found; nan for a class without images."""
        return _share(self.matrix.diagonal(), self.counts)

    @cached_property
    def precision(self) -> np.ndarray:
        """(classes,) share of the answers "this class" that were right; nan where it was never answered."""
        return _share(self.matrix.diagonal(), self.matrix.sum(axis=0))

    @cached_property
    def f1(self) -> np.ndarray:
        """(classes,) harmonic mean of precision and recall: 2 found / (images + answers); nan without either."""
        return _share(2 * self.matrix.diagonal(), self.counts + self.matrix.sum(axis=0))

    def top(self, k: int) -> float:
        """Share of the images whose true class is among the k classes of highest probability."""
        k = whole_number("k", k, 1, "top(1) is the accuracy.")
        best = np.argsort(-self.probabilities, axis=1, kind="stable")[:, :k]
        return float(np.mean((best == np.asarray(self.truth)[:, None]).any(axis=1)))

    def worst(self, count: int) -> np.ndarray:
        """Places, in ``truth``, of at most ``count`` wrong answers, the one the model was surest of first."""
        wrong = np.flatnonzero(self.predicted != self.truth)
        sureness = self.probabilities[wrong, self.predicted[wrong]]
        return wrong[np.argsort(-sureness, kind="stable")][:count]

    def file_rows(self, places) -> np.ndarray:
        """Rows in the file of these places."""
        return np.asarray(places) if self.rows is None else np.asarray(self.rows)[places]

    def report(self, most: int | None = None) -> str:
        """A table of text, one line a class, lowest F1 first: precision, recall, F1, images. ``most`` cuts it."""
        order = np.argsort(self.f1, kind="stable")[:most]
        names = [str(self.class_names[place]) for place in order]
        wide = max(len("class"), *map(len, names))
        lines = [f"{'class':<{wide}}  precision  recall    F1  images"]
        for name, place in zip(names, order, strict=True):
            lines.append(
                f"{name:<{wide}}  {self.precision[place]:>9.2f}  {self.recall[place]:>6.2f}  {self.f1[place]:.2f}"
                f"  {self.counts[place]:>6}"
            )
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"Judgement: {len(self.truth)} images of {len(self.class_names)} classes, {self.accuracy:.1%} right"


def _share(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    return np.divide(part, whole, out=np.full(len(whole), np.nan), where=whole > 0)

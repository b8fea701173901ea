"""Judging: answers beside their own labels and rows, and counts that can be checked on paper."""

from __future__ import annotations

import keras
import numpy as np
import pytest

from helpers import HDF5Sequence
from helpers.judging import Judgement, judge

TRUTH = np.array([0, 0, 0, 1, 1, 2])
ANSWERS = np.array([
    [0.8, 0.1, 0.1, 0.0],  # right
    [0.3, 0.6, 0.1, 0.0],  # pie called ribs
    [0.05, 0.9, 0.05, 0.0],  # pie called ribs, surely
    [0.1, 0.7, 0.2, 0.0],  # right
    [0.2, 0.5, 0.3, 0.0],  # right
    [0.4, 0.35, 0.25, 0.0],  # soup called pie
])
NAMES = ["pie", "ribs", "soup", "tart"]


def test_counts_of_mistakes_and_shares_by_class():
    """Recall by row, precision by column, F1 between them; what has no image or no answer has no share."""
    verdict = Judgement(TRUTH, ANSWERS, NAMES)
    assert verdict.matrix.tolist() == [[1, 2, 0, 0], [0, 2, 0, 0], [1, 0, 0, 0], [0, 0, 0, 0]]
    np.testing.assert_allclose(verdict.recall, [1 / 3, 1, 0, np.nan])
    np.testing.assert_allclose(verdict.precision, [1 / 2, 1 / 2, np.nan, np.nan])
    np.testing.assert_allclose(verdict.f1, [2 / 5, 2 / 3, 0, np.nan])
    assert verdict.accuracy == 0.5
    assert repr(verdict) == "Judgement: 6 images of 4 classes, 50.0% right"


def test_the_report_has_a_line_a_class_weakest_first():
    """Precision, recall, F1 and the number of images."""
    assert Judgement(TRUTH, ANSWERS, NAMES).report(3).splitlines() == [
        "class  precision  recall    F1  images",
        "soup         nan    0.00  0.00       1",
        "pie         0.50    0.33  0.40       3",
        "ribs        0.50    1.00  0.67       2",
    ]


def test_top_k_is_that_of_keras():
    """The share of images whose class is among the k likeliest, k beyond the classes included."""
    verdict = Judgement(TRUTH, ANSWERS, NAMES)
    assert [verdict.top(k) for k in (1, 2, 3, 9)] == pytest.approx([0.5, 5 / 6, 1.0, 1.0])
    rng = np.random.default_rng(0)
    answers, truth = rng.random((200, 20), np.float32), rng.integers(0, 20, 200)
    metric = keras.metrics.SparseTopKCategoricalAccuracy(5)
    metric.update_state(truth, answers)
    assert Judgement(truth, answers, list("abcdefghijklmnopqrst")).top(5) == pytest.approx(float(metric.result()))


def test_worst_mistakes_come_first_and_lead_back_to_the_file():
    """Those the model was surest of first; fewer where there are fewer."""
    verdict = Judgement(TRUTH, ANSWERS, NAMES, rows=np.arange(100, 106))
    assert verdict.worst(9).tolist() == [2, 1, 5]
    assert verdict.file_rows(verdict.worst(2)).tolist() == [102, 101]
    assert Judgement(TRUTH, ANSWERS, NAMES).file_rows([2, 1]).tolist() == [2, 1]


def test_answers_for_other_images_are_refused():
    """The sentence names both shapes."""
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the whole sentence is compared below
        Judgement(TRUTH, ANSWERS[:4], NAMES)
    assert str(caught.value) == (
        "probabilities must be (labels, classes), here (6, 4); got (4, 4). Predict the images of these labels, with "
        "the model of these classes."
    )


class KnowsTheCode:
    """A model that answers with the class of each image, which the coded file's labels hold."""

    def predict(self, sequence, verbose):
        return np.concatenate([sequence[number][1] for number in range(len(sequence))])


def test_judge_keeps_the_order_of_the_file(coded_file):
    """Each answer stands beside the label of its own row: a model that knows all labels makes no mistake."""
    with HDF5Sequence(coded_file, "valid", 7) as sequence:
        verdict = judge(KnowsTheCode(), sequence)
        assert verdict.accuracy == 1.0
        assert verdict.rows.tolist() == list(range(sequence.n))
        assert verdict.counts.tolist() == np.bincount(sequence.class_numbers, minlength=5).tolist()
    rows = np.array([8, 3, 11])
    with HDF5Sequence(coded_file, rows=rows, shuffle=None, batch_size=2) as sequence:
        assert judge(KnowsTheCode(), sequence).rows.tolist() == [8, 3, 11]


def test_judge_refuses_a_sequence_whose_answers_belong_elsewhere(coded_file):
    """Shuffled, or with rows left out: the two ways to compare answers with foreign labels."""
    with HDF5Sequence(coded_file, "valid", 7, shuffle="full") as sequence, pytest.raises(ValueError) as caught:  # noqa: PT011
        judge(KnowsTheCode(), sequence)
    assert str(caught.value) == (
        "the sequence must keep the order of the file, shuffle=None; got shuffle='full'. Its answers would stand "
        "beside the labels of other images."
    )
    with HDF5Sequence(coded_file, "valid", 7, drop_last=True) as sequence, pytest.raises(ValueError) as caught:  # noqa: PT011
        judge(KnowsTheCode(), sequence)
    n = sequence.n
    assert str(caught.value) == (
        f"the sequence must serve each of its {n} rows; it serves {n // 7 * 7}. Open it without drop_last and without "
        "shard."
    )


def test_evaluate_is_repeatable_to_the_bit(coded_file):
    """Two evaluations of one model on one split give equal numbers, with workers as without."""
    model = keras.Sequential([
        keras.Input((16, 16, 3), dtype="uint8"),
        keras.layers.Rescaling(1 / 255),
        keras.layers.Conv2D(8, 3),
        keras.layers.Flatten(),
        keras.layers.Dense(5, activation="softmax"),
    ])
    model.compile("sgd", "categorical_crossentropy", metrics=["accuracy", keras.metrics.TopKCategoricalAccuracy(3)])
    with HDF5Sequence(coded_file, "test", 7) as alone, HDF5Sequence(coded_file, "test", 7, workers=2) as helped:
        first = model.evaluate(alone, verbose=0)
        assert model.evaluate(alone, verbose=0) == first
        assert model.evaluate(helped, verbose=0) == first

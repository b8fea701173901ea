"""Functions that lesson 02 teaches, against their twins in helpers."""

import ast

import numpy as np
import pytest
from lesson_source import SOURCES

from helpers import EpochOrder


@pytest.fixture(scope="module")
def taught() -> dict:
    """The functions and classes of the lesson, by name; nothing else of it is run."""
    tree = ast.parse((SOURCES / "02_naive_train_on_batch.py").read_text(encoding="utf-8"))
    tree.body = [node for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    names = {"np": np}
    exec(compile(tree, "lesson 02", "exec"), names)
    return names


@pytest.mark.parametrize("n", [96, 100, 5])
@pytest.mark.parametrize("epoch", [0, 1])
def test_an_epoch_of_the_fair_loop_is_one_of_epoch_order(taught, n, epoch):
    """Seed and epoch give the batches of EpochOrder, the last and smaller one too."""
    order = taught["order_of"](epoch, n, seed=3)
    batches = [order[piece] for piece in taught["slices"](n, 32)]
    expected = EpochOrder(n, 32, "full", seed=3).batches(epoch)
    assert [batch.tolist() for batch in batches] == [batch.tolist() for batch in expected]


def test_watched_notes_the_rows_of_each_slice_and_passes_it_on(taught):
    """The stand-in returns what the data returns, and knows the rows, past the end too."""
    watched = taught["Watched"](np.arange(10, 20))
    assert watched[8:12].tolist() == [18, 19]
    assert [rows.tolist() for rows in watched.reads] == [[8, 9]]

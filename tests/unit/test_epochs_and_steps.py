"""Epochs, steps, shards and positions through the real fit: Keras 3 on TensorFlow and on JAX, and tf_keras.

``fit_generator``: step k of epoch e with S steps is item ``e * S + k`` of one endless stream, item g is batch
``g % len`` of pass ``g // len``. Keras' own ``fit``: epoch k of Keras is epoch k of the sequence.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from coded import make_coded_file
from received import Tables, digest

from helpers.batches import BatchSource

PACKAGES = {"Keras on TensorFlow": ("tensorflow", "fit_generator"), "Keras on JAX": ("jax", "fit_generator")}
PACKAGES |= {"tf_keras": ("tensorflow", "tf_keras")}
LENGTHS = (1, 2, 3, 11)  # 11: more than the queue of 10 holds
FEW = (1, 11)  # the lengths for tf_keras, whose feed is the same
VALID = {"path": None, "split": "valid", "batch_size": 7}
VALID_LENGTH = 6
FEEDS = ({"workers": 2}, {"workers": 0}, {"workers": 1, "max_queue_size": 1}, {"workers": 4, "max_queue_size": 3})


def steps_around(length: int) -> tuple[int, ...]:
    """Below, equal to and above the length; above 1 where there is a below, and never a whole number of passes."""
    return tuple(steps for steps in (length - 1 - length // 3, length, length + 1 + length // 3) if steps > 0)


SIZES = [(length, steps) for length in LENGTHS for steps in steps_around(length)]


def rules(length: int, steps: int) -> dict[str, tuple[list[dict], list[int], list[int]]]:
    """Calls of fit_generator, the items that they train on, and the item where each leaves the sequence."""
    some = {"steps_per_epoch": steps}
    later = length + length - 1  # the last batch of pass 1
    return {
        "a second call goes on": (
            [{**some, "epochs": 2}, {**some, "epochs": 1}],
            list(range(3 * steps)),
            [2 * steps, 3 * steps],
        ),
        "initial_epoch counts steps": (
            [{**some, "epochs": 4, "initial_epoch": 2}],
            list(range(2 * steps, 4 * steps)),
            [4 * steps],
        ),
        "set_position is heard": (
            [{"set_position": [1, length - 1]}, {**some, "epochs": 2}],
            list(range(later, later + 2 * steps)),
            [later, later + 2 * steps],
        ),
        "initial_epoch wins over the position": (
            [{"set_position": [1, length - 1]}, {**some, "epochs": 2, "initial_epoch": 1}],
            list(range(steps, 2 * steps)),
            [later, 2 * steps],
        ),
    }


def sequence_of(length: int, **more) -> dict:
    """Arguments of a sequence of ``length`` batches of 2; the last one holds a single image, except of one batch."""
    return {"rows": max(2, 2 * length - 1), "batch_size": 2, "seed": 3, **more}


def tables() -> tuple[dict[str, list[dict]], dict[str, tuple[dict, list, list[int]]]]:
    """Cases for each backend; and by their ids: sequence, items with None for a validation batch, positions."""
    by_backend, expected = {"tensorflow": [], "jax": []}, {}

    def add(package, name, sequence, calls, items, positions, **more):
        backend, api = PACKAGES[package]
        case = {"id": f"{package}: {name}", "api": api, "sequence": sequence, "calls": calls, **more}
        by_backend[backend].append(case)
        expected[case["id"]] = sequence, items, positions

    for package in PACKAGES:
        feeds = itertools.cycle(FEEDS)
        lengths = FEW if package == "tf_keras" else LENGTHS
        for length, steps in (size for size in SIZES if size[0] in lengths):
            for rule, (calls, items, positions) in rules(length, steps).items():
                sequence = sequence_of(length, **next(feeds))
                add(package, f"{rule}, {length} batches, {steps} steps", sequence, calls, items, positions)
            items = [*range(steps), *[None] * VALID_LENGTH, *range(steps, 2 * steps), *[None] * VALID_LENGTH]
            call = {"steps_per_epoch": steps, "epochs": 2, "workers": 2}
            name = f"validation at the same time, {length} batches, {steps} steps"
            add(package, name, sequence_of(length), [call], items, [2 * steps], validation=VALID)
        for length in lengths:
            name = f"steps are the length when left out, {length} batches"
            add(package, name, sequence_of(length, workers=2), [{"epochs": 2}], list(range(2 * length)), [2 * length])
        calls = [{"steps_per_epoch": 10, "epochs": 2}]
        processes = {"workers": 2, "use_multiprocessing": True}
        add(package, "worker processes, 3 batches, 10 steps", sequence_of(3, **processes), calls, list(range(20)), [20])
        for shard in range(3):
            sequence = {"batch_size": 8, "seed": 3, "shard": [shard, 3], "workers": 2}  # 103 rows: 24 * 4 + 7
            add(package, f"shard {shard} of 3, 5 batches, 7 steps", sequence, [{**calls[0], "steps_per_epoch": 7}],
                list(range(14)), [14])  # fmt: skip
    add("Keras on JAX", "a model that Keras has yet to build", sequence_of(3, workers=2), [{"epochs": 2}],
        list(range(6)), [6], new_model=True)  # fmt: skip
    return by_backend, expected


PLAIN_FEEDS = ({"workers": 0}, {"workers": 1}, {"workers": 2, "max_queue_size": 2})
PLAIN_PROCESSES = {"workers": 1, "use_multiprocessing": True}


def plain_tables() -> tuple[dict[str, list[dict]], dict[str, tuple[dict, list, list[int]]]]:
    """The same for Keras' own fit and its on_epoch_end()."""
    by_backend, expected = {"tensorflow": [], "jax": []}, {}

    def add(backend, name, sequence, calls, items, positions, **more):
        case = {"id": f"fit on {backend}: {name}", "api": "fit", "sequence": sequence, "calls": calls, **more}
        by_backend[backend].append(case)
        expected[case["id"]] = sequence, items, positions

    for backend, (number, feed), length in itertools.product(by_backend, enumerate(PLAIN_FEEDS), LENGTHS):
        sequence = sequence_of(length, **feed)
        items, positions = list(range(3 * length)), [3 * length]
        add(backend, f"{length} batches, {feed['workers']} workers", sequence, [{"epochs": 3}], items, positions)
        # In fewer than three batches a second too early call cannot be seen: set_position() says where to go on.
        where = [{"set_position": [2, 0]}] if length < 3 else []
        calls, positions = [{"epochs": 2}, *where, {"epochs": 1}], [*[2 * length] * (1 + len(where)), 3 * length]
        add(backend, f"a second call goes on, {length} batches, {number}", sequence, calls, items, positions)
    for length in LENGTHS:
        sequence, calls = sequence_of(length, **PLAIN_PROCESSES), [{"epochs": 2}]
        items, positions = list(range(2 * length)), [2 * length]
        add("tensorflow", f"{length} batches, processes", sequence, calls, items, positions, start_method="fork")
    return by_backend, expected


TABLES, EXPECTED = tables()
PLAIN_TABLES, PLAIN_EXPECTED = plain_tables()


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """The coded file; its training and validation images differ, so that a mix-up shows."""
    return make_coded_file(tmp_path_factory.mktemp("epochs") / "coded.h5")


@pytest.fixture(scope="module")
def trained(file, tmp_path_factory):
    """What the models of all cases received."""

    def filled(case: dict) -> dict:
        with_paths = {key: {**case[key], "path": str(file)} for key in ("sequence", "validation") if key in case}
        return {**case, **with_paths}

    merged = {name: [filled(case) for case in TABLES[name] + PLAIN_TABLES[name]] for name in TABLES}
    children = Tables(tmp_path_factory.mktemp("tables"), merged)
    yield children
    children.close()


class Names:
    """Digests as (pass, batch), and "valid" with its number: what a failed comparison shows."""

    def __init__(self, file, sequence: dict, items: list[int | None]):
        sequence = {key: value for key, value in sequence.items() if key in {"batch_size", "seed", "shard", "rows"}}
        if "rows" in sequence:
            sequence["rows"] = np.arange(sequence["rows"])
        self._source = BatchSource(file, **sequence)
        self._valid = BatchSource(file, "valid", VALID["batch_size"])
        self.length = len(self._source)
        self._names: dict[str, tuple] = {}
        for number in range(len(self._valid)):
            self._names.setdefault(digest(*self._valid.batch(0, number)), ("valid", number))
        passes = 2 + max(item for item in items if item is not None) // self.length
        for place in itertools.product(range(passes), range(self.length)):
            self._names.setdefault(self._digest(place), place)

    def of(self, digests: list[str]) -> list[tuple]:
        return [self._names.get(name, ("unknown", name)) for name in digests]

    def of_items(self, items: list[int | None]) -> list[tuple]:
        """What the rule says; batches that are equal in two passes (of few rows) have the name of the first."""
        numbers = itertools.cycle(range(len(self._valid)))
        return [
            ("valid", next(numbers)) if item is None else self._names[self._digest(divmod(item, self.length))]
            for item in items
        ]

    def close(self) -> None:
        self._source.close()
        self._valid.close()

    def _digest(self, place: tuple[int, int]) -> str:
        return digest(*self._source.batch(*place))


def check(trained, file, backend: str, case: str, expected: tuple[dict, list, list[int]]) -> None:
    """Compare each step that the model of ``case`` received, and each position, with the rule."""
    sequence, items, positions = expected
    result = trained.result(backend, case)
    names = Names(file, sequence, items)
    try:
        assert names.of(result["received"]) == names.of_items(items)
        assert result["positions"] == [list(divmod(item, names.length)) for item in positions]
    finally:
        names.close()


def cases_of(table: dict[str, list[dict]]) -> list:
    return [pytest.param(name, case["id"], id=case["id"]) for name in table for case in table[name]]


@pytest.mark.parametrize(("backend", "case"), cases_of(TABLES))
def test_the_model_receives_the_endless_stream(trained, file, backend, case):
    """fit_generator: each step in order, and the position afterwards, whatever the length, the steps and the start."""
    check(trained, file, backend, case, EXPECTED[case])


@pytest.mark.parametrize(("backend", "case"), cases_of(PLAIN_TABLES))
def test_plain_fit_receives_epoch_by_epoch(trained, file, backend, case):
    """Keras' own fit calls on_epoch_end() once too early; each epoch is still the whole of its own pass."""
    check(trained, file, backend, case, PLAIN_EXPECTED[case])


def test_three_shards_serve_each_row_of_a_pass_once(file):
    """Together the shards of the table above serve all 103 rows: the last global batch of 7 is enough for them."""
    sources = [BatchSource(file, batch_size=8, seed=3, shard=(number, 3)) for number in range(3)]
    for epoch in range(2):
        rows = [source.rows_of(epoch, index).tolist() for source in sources for index in range(len(source))]
        assert sorted(sum(rows, [])) == list(range(103))
    for source in sources:
        source.close()

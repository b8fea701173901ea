"""The same data everywhere: what the model receives depends on file, seed and epoch, and on nothing else."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from coded import class_of_row, coded_images, make_coded_file, one_hot
from received import AUGMENT, Tables, digest

from helpers.batches import BatchSource
from helpers.writer import HDF5Writer

ROWS, BATCH, EPOCHS = 103, 16, 3
STORAGES = ("raw", "gzip", "jpeg")
WORKERS = ((0, False), (1, False), (2, False), (4, False), (1, True), (2, True), (4, True))
QUEUES = (1, 2, 10)
START_METHODS = ("fork", "forkserver", "spawn")
APIS = {"tensorflow": ("fit_generator", "tf_keras"), "jax": ("fit_generator",)}


def case(storage, augment, workers, processes, queue, **more) -> dict:
    """One entry of the table: three epochs of this feed."""
    kind = "processes" if processes else "threads"
    name = f"{storage}-{'augmented' if augment else 'plain'}-{workers} {kind}-queue {queue}"
    sequence = {
        "storage": storage, "batch_size": BATCH, "seed": 3, "augment": augment, "workers": workers,
        "use_multiprocessing": processes, "max_queue_size": queue,
    }  # fmt: skip
    entry = {"api": "fit_generator", "sequence": sequence, "calls": [{"epochs": EPOCHS}], **more}
    extra = "-".join(str(entry[key]) for key in ("api", "start_method") if key in entry)
    return {"id": f"{extra}-{name}{'-slow step' if more.get('slow') else ''}", **entry}


EVERY_DAY = [
    *(case(storage, augment, 0, False, 10) for storage, augment in itertools.product(STORAGES, (False, True))),
    case("raw", False, 1, False, 1),
    case("raw", True, 2, False, 2, slow=True),
    case("raw", False, 4, False, 10, slow=True),
    case("gzip", False, 2, False, 10),
    case("gzip", True, 4, False, 1),
    case("jpeg", False, 4, False, 2),
    case("jpeg", True, 1, False, 10),
    case("raw", False, 2, True, 10, slow=True),
    case("raw", True, 1, True, 2),
    case("gzip", True, 2, True, 1),
    case("jpeg", False, 4, True, 2),
]
CLASSIC = [
    case("raw", True, 0, False, 10, api="tf_keras"),
    case("gzip", False, 4, False, 1, api="tf_keras"),
    case("raw", False, 2, True, 2, api="tf_keras"),
]
KERAS_POOL = [
    case("gzip", True, 2, False, 2, api="fit"),
    case("raw", True, 2, True, 2, api="fit", start_method="fork"),
    case("raw", True, 1, True, 10, api="fit", start_method="forkserver"),
    case("gzip", False, 1, True, 1, api="fit", start_method="spawn"),
]
KERAS_POOL_JAX = KERAS_POOL[:1]  # started processes know no backend, and JAX warns of a fork
CHILDREN = [case("gzip", True, 1, False, 10, api="children", start_method=method) for method in START_METHODS]
ALL = [
    case(storage, augment, *workers, queue, slow=queue == 2)
    for storage, augment, workers, queue in itertools.product(STORAGES, (False, True), WORKERS, QUEUES)
]
TABLE = {
    "tensorflow": EVERY_DAY + CLASSIC + KERAS_POOL,
    "jax": EVERY_DAY[::3] + KERAS_POOL_JAX,  # the feeds are the same; all of them nightly
    "numpy": CHILDREN,
}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The coded file in each storage; JPEG changes the pixels a little, and every reader has to see the same change."""
    folder = tmp_path_factory.mktemp("same_data")
    rows = np.arange(ROWS)
    with HDF5Writer(folder / "jpeg.h5", (16, 16, 3), list("abcde"), storage="jpeg") as writer:
        writer.append("train", coded_images(rows), class_of_row(rows))
    return {
        "raw": make_coded_file(folder / "raw.h5"),
        "gzip": make_coded_file(folder / "gzip.h5", compression="gzip"),
        "jpeg": folder / "jpeg.h5",
    }


@pytest.fixture(scope="module")
def reference(files):
    """``reference(storage, augment, epoch, seed)``: the batches of an epoch as this process makes them by itself."""
    known = {}

    def batches(storage: str, augment: bool, epoch: int, seed: int = 3) -> list[str]:
        key = storage, augment, epoch, seed
        if key not in known:
            source = BatchSource(files[storage], batch_size=BATCH, seed=seed, augment=AUGMENT if augment else None)
            known[key] = [digest(*source.batch(epoch, index)) for index in range(len(source))]
            source.close()
        return known[key]

    return batches


def start(files, folder, cases: dict[str, list[dict]]) -> Tables:
    """The children that train these tables, with the paths of the files filled in."""

    def filled(entry: dict) -> dict:
        sequence = dict(entry["sequence"])
        return {**entry, "sequence": {"path": str(files[sequence.pop("storage")]), **sequence}}

    return Tables(folder, {backend: [filled(entry) for entry in table] for backend, table in cases.items()})


@pytest.fixture(scope="module")
def trained(files, tmp_path_factory):
    """What the models of the everyday table received."""
    tables = start(files, tmp_path_factory.mktemp("tables"), TABLE)
    yield tables
    tables.close()


def three_epochs(reference, entry: dict) -> list[str]:
    """What the model of this case has to receive."""
    sequence = entry["sequence"]
    return sum((reference(sequence["storage"], sequence["augment"], epoch) for epoch in range(EPOCHS)), [])


def pairs(table: dict[str, list[dict]]) -> list:
    return [pytest.param(name, entry, id=f"{name}-{entry['id']}") for name in table for entry in table[name]]


@pytest.mark.parametrize(("backend", "entry"), pairs(TABLE))
def test_every_batch_is_the_same_for_every_feed(trained, reference, backend, entry):
    """Images and labels of epochs 0 to 2, in order, whoever made them and whatever received them."""
    assert trained.result(backend, entry["id"])["received"] == three_epochs(reference, entry)


@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.parametrize("backend", ["tensorflow", "jax"])
def test_every_batch_is_the_same_for_all_combinations(files, reference, tmp_path, backend):
    """Storage, augmentation, number and kind of workers, queue size: all 126 combinations."""
    tables = start(files, tmp_path, {backend: ALL})
    try:
        wrong = [
            entry["id"]
            for entry in ALL
            if tables.result(backend, entry["id"])["received"] != three_epochs(reference, entry)
        ]
    finally:
        tables.close()
    assert wrong == []


@pytest.mark.parametrize("storage", ["raw", "gzip"])
def test_the_reference_is_the_file_itself(files, reference, storage):
    """Lossless storage: the pixels written, each row with its label, exactly once an epoch."""
    source = BatchSource(files[storage], batch_size=BATCH, seed=3)
    for epoch in range(EPOCHS):
        rows = [source.rows_of(epoch, index) for index in range(len(source))]
        assert sorted(np.concatenate(rows).tolist()) == list(range(ROWS))
        expected = [digest(coded_images(some), one_hot(class_of_row(some))) for some in rows]
        assert reference(storage, False, epoch) == expected


@pytest.mark.parametrize("augment", [False, True])
@pytest.mark.parametrize("storage", STORAGES)
def test_epochs_and_seeds_differ(reference, storage, augment):
    """No batch comes back in another epoch or with another seed."""
    batches = [reference(storage, augment, epoch, seed) for epoch in range(EPOCHS) for seed in (3, 4)]
    every = sum(batches, [])
    assert len(set(every)) == len(every) == EPOCHS * 2 * -(-ROWS // BATCH)


def test_batches_asked_for_in_any_order_and_twice_are_the_same(files, reference):
    """A batch depends on (epoch, index) alone: neither on what was asked for before, nor on how often."""
    expected = {epoch: reference("gzip", True, epoch) for epoch in range(EPOCHS)}
    asked = [(epoch, index) for epoch in range(EPOCHS) for index in range(len(expected[0]))] * 2
    np.random.default_rng(0).shuffle(asked)
    source = BatchSource(files["gzip"], batch_size=BATCH, seed=3, augment=AUGMENT)
    for epoch, index in asked:
        assert digest(*source.batch(epoch, index)) == expected[epoch][index]
    source.close()

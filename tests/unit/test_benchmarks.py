"""The benchmark of feeding: it verifies the work, its figures are what they say, README shows what was stored."""

import json
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
from benchmarks.feeding import data, figures
from benchmarks.feeding.consume import CountingModel, Tally, WrongWorkError, rate_of_loop, rate_of_training
from benchmarks.scaling.figures import figures as figures_of_scale

from helpers import HDF5Sequence

ROOT = Path(__file__).parents[2]
FEED = ROOT / "tests" / "benchmarks" / "feed.py"
README = (ROOT / "README.md").read_text(encoding="utf-8")
STORED, STORED_LARGE = FEED.with_name("feed.json"), FEED.with_name("scale.json")
ROWS = np.arange(128)
PICTURES = data.photographs(2)
IMAGES = data.images_of(ROWS, PICTURES)
LABELS = np.eye(data.CLASSES, dtype=np.float32)[data.class_of_row(ROWS)]


def batches(images=IMAGES, labels=LABELS):
    """An epoch in batches of 64."""
    return [(images[start : start + 64], labels[start : start + 64]) for start in range(0, len(images), 64)]


def lost(images, labels):
    return images[:-1], labels[:-1]


def repeated(images, labels):
    return np.concatenate([images, images[:1]]), np.concatenate([labels, labels[:1]])


def label_of_the_neighbour(images, labels):
    return images, np.roll(labels, 1, axis=0)


BAD_WORK = {
    "lost": (
        lost,
        "each row must come once an epoch; 1 rows did not: row 127 came 0 times in 2 epochs.",
    ),
    "repeated": (
        repeated,
        "each row must come once an epoch; 1 rows did not: row 0 came 4 times in 2 epochs.",
    ),
    "label of the neighbour": (
        label_of_the_neighbour,
        "each image must come with its own label; 256 of them did not.",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def model():
    return CountingModel(len(ROWS))


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return data.make_files(tmp_path_factory.mktemp("feed"), 128)


@pytest.mark.parametrize("name", BAD_WORK)
def test_loop_refuses_a_rate_for_wrong_work(name):
    """A plain loop gives no rate when rows are lost or repeated, or labels are those of other rows."""
    spoil, message = BAD_WORK[name]
    with pytest.raises(WrongWorkError) as caught:
        rate_of_loop(len(ROWS), ROWS, 1, lambda: batches(*spoil(IMAGES, LABELS)))
    assert str(caught.value) == message


@pytest.mark.parametrize("name", BAD_WORK)
def test_training_refuses_a_rate_for_wrong_work(name, model):
    """The model that counts sees the same faults, through Keras."""
    spoil, message = BAD_WORK[name]
    images, labels = spoil(IMAGES, LABELS)

    def fit(epochs, callbacks):
        model.fit(images, labels, batch_size=64, epochs=epochs, callbacks=callbacks, verbose=0)

    with pytest.raises(WrongWorkError) as caught:
        rate_of_training(model, ROWS, 1, fit)
    assert str(caught.value) == message


def test_right_work_has_a_rate(model):
    """Both consumers give a rate when every row came once an epoch with its label."""

    def fit(epochs, callbacks):
        model.fit(IMAGES, LABELS, batch_size=64, epochs=epochs, callbacks=callbacks, verbose=0)

    assert rate_of_loop(len(ROWS), ROWS, 1, batches) > 0
    assert rate_of_training(model, ROWS, 1, fit) > 0


def test_a_row_that_was_not_asked_for_is_wrong():
    """A contender that reads only some rows must not bring others."""
    tally = Tally(128)
    tally.add(IMAGES[:65], LABELS[:65])
    with pytest.raises(WrongWorkError, match=r"1 rows did not: row 64 came 1 times in 1 epochs\."):
        tally.verify(np.arange(64), 1)


@pytest.mark.filterwarnings("ignore:Please import `affine_transform`:DeprecationWarning")  # Keras, of SciPy
def test_codes_survive_flip_zoom_and_shear():
    """Row and class are read back from augmented images: the kit's own, and those of the legacy generator."""
    from benchmarks.feeding.peers import AUGMENT, LegacyAugment

    for augment in (AUGMENT, LegacyAugment()):
        changed = np.stack([augment(image, np.random.default_rng(row)) for row, image in enumerate(IMAGES)])
        rows, numbers = data.decode(changed)
        assert rows.tolist() == ROWS.tolist()
        assert numbers.tolist() == data.class_of_row(ROWS).tolist()
        assert not np.array_equal(changed, IMAGES)


def test_all_formats_hold_the_same_images(files):
    """Raw, contiguous, gzip and TFRecord give the same pixels and classes."""
    import tensorflow as tf

    expected = data.images_of(ROWS, data.photographs())
    for path in (files.raw, files.contiguous, files.gzip):
        with h5py.File(path) as file:
            np.testing.assert_array_equal(file["train_img"][:], expected)
            np.testing.assert_array_equal(file["train_labels"][:], LABELS)
    with h5py.File(files.contiguous) as file:
        assert file["train_img"].chunks is None
    for record in tf.data.TFRecordDataset([str(path) for path in files.records]).take(20):
        example = tf.train.Example.FromString(record.numpy())
        image = np.frombuffer(example.features.feature["image"].bytes_list.value[0], np.uint8).reshape(data.SHAPE)
        row = data.decode(image[None])[0][0]
        np.testing.assert_array_equal(image, expected[row])
        assert example.features.feature["label"].int64_list.value[0] == data.class_of_row(row)


def test_chart_shows_every_rate():
    """The chart has one bar a contender, as long as its median rate, and words for those who cannot see it."""
    from benchmarks.feeding.chart import rates_chart

    words = {key: f"words of {key}" for key in RATES}
    figure = rates_chart({"rates": RATES, "words": words})
    (axes,) = figure.axes
    assert sorted(bar.get_width() for bar in axes.patches) == [2_000, 3_000, 7_000, 8_000, 10_000]
    assert [label.get_text() for label in axes.get_yticklabels()][0] == "words of raw: roofline"
    assert "words of raw: PyTorch 3,000" in figure.alt


def test_gzip_saves_as_little_as_on_photographs(files):
    """The compressed file has 80 to 95 % of the bytes, as photographs of this size have; labels aside."""
    with h5py.File(files.gzip) as file:
        stored = file["train_img"].id.get_storage_size()
        assert file["train_img"].compression == "gzip"
    assert 0.8 < stored / IMAGES.nbytes < 0.95


def test_the_kit_reads_every_file(files):
    """HDF5Sequence serves the three HDF5 files, with rows and labels that fit."""
    for path in (files.raw, files.contiguous, files.gzip):
        with HDF5Sequence(path, batch_size=64) as sequence:
            tally = Tally(128)
            for index in range(len(sequence)):
                tally.add(*sequence[index])
            tally.verify(ROWS, 1)


@pytest.mark.parametrize("n", [0, 64, 200, 65_600])
def test_number_of_images_is_checked(n, tmp_path):
    """Whole batches only, and not more rows than two bytes can number."""
    with pytest.raises(ValueError, match="number of images") as caught:
        data.make_files(tmp_path, n)
    assert str(caught.value) == f"the number of images must be a multiple of 64 from 128 to 65536; got {n}."


RATES = {
    "raw: roofline": [10_000.0, 20_000.0, 10_000.0],
    "raw: 2 threads": [6_500.0, 13_000.0, 7_000.0],
    "raw: 2 processes": [6_000.0, 14_000.0, 8_000.0],
    "raw: PyTorch": [3_000.0, 3_000.0, 3_000.0],
    "raw: Grain": [1_000.0, 9_000.0, 2_000.0],
}


def test_figures_are_medians_of_ratios_within_a_round():
    """A ratio is taken within each round, and the best of each side, by its median, stands for it."""
    measured = {figure.name: figure for figure in figures.figures(RATES, {"kill": [0.2, 6.0, 0.1]})}
    assert list(measured) == ["threads", "processes", "peers", "kill"]
    assert measured["threads"].value == pytest.approx(0.65)
    assert measured["threads"].reached
    assert measured["processes"].value == pytest.approx(0.7)
    peers = measured["peers"]  # 2 processes against PyTorch: 2, 4.67, 2.67
    assert (peers.low, peers.value, peers.high) == pytest.approx((2, 8 / 3, 14 / 3))
    assert (peers.against, peers.reached) == ("PyTorch", True)
    assert (measured["kill"].value, measured["kill"].high, measured["kill"].reached) == (0.2, 6.0, True)


MISSES = {
    "ratio below": ({"raw: roofline": [10_000.0], "raw: 2 threads": [6_499.0]}, {}, "threads"),
    "time above": ({}, {"kill": [5.01]}, "kill"),
}


@pytest.mark.parametrize("case", MISSES)
def test_a_miss_is_a_miss_by_however_little(case):
    """The measured number is compared, not the rounded one, and the printed one is rounded to the worse side."""
    rates, seconds, name = MISSES[case]
    (figure,) = figures.figures(rates, seconds)
    assert figure.name == name
    assert not figure.reached
    assert figures.missed([figure]) == [figure.words]
    assert "NOT REACHED" in figures.line(figure)


def test_printed_line():
    """A figure is one line: words, median, spread, target, verdict, and who was best on the other side."""
    (figure,) = [figure for figure in figures.figures(RATES, {}) if figure.name == "peers"]
    assert " ".join(figures.line(figure).split()) == (
        "against the best peer 2.6x (2x to 4.6x) at least 2.5x: reached [PyTorch]"
    )


STORED_EXAMPLE = {
    "date": "2026-01-31",
    "images": 4096,
    "rounds": 5,
    "rates": RATES,
    "machine": {"cores": 2, "cpu": "A CPU", "python": "3.11.7"},
    "figures": [
        {"words": "against A", "value": 160.9, "target": 150, "unit": "times", "reached": True, "against": ""},
        {"words": "against the best peer", "value": 2.48, "target": 2.5, "unit": "times", "reached": False,
         "against": "PyTorch"},
        {"words": "to an error", "value": 0.101, "target": 5, "unit": "s", "reached": True, "against": ""},
    ],
}  # fmt: skip


def test_readme_table_of_a_stored_run():
    """README's section: one row a figure, misses said, and where and how it was measured, with which peers."""
    assert figures.speed_table(STORED_EXAMPLE) == (
        "## How fast\n"
        "\n"
        "| figure | measured | target |\n"
        "| --- | --- | --- |\n"
        "| against A | 160x | ≥ 150x |\n"
        "| against the best peer (PyTorch) | 2.4x | ≥ 2.5x, not reached |\n"
        "| to an error | 0.11 s | ≤ 5 s |\n"
        "\n"
        "Measured on 2026-01-31 with 2 cores (A CPU), Python 3.11.7: 4,096 images of 299x299x3 in the page cache, "
        "batches of 64, shuffled; medians of 5 rounds, each ratio within a round, every row verified. The best peer is "
        "the fastest of PyTorch, Grain. `python tests/benchmarks/feed.py` prints the table, all rates and their spread."
    )


def test_readme_table_of_a_large_file():
    """The figures of scale.py follow, with the machine they were measured on."""
    machine = {"date": "2026-01-31", "cores": 2, "memory_gb": 25.3}
    large = {"machine": machine, "data": {"images": 101_000}}
    table = figures.speed_table(STORED_EXAMPLE, (large, [("building: peak memory", "108 MB", "at most 600 MB")]))
    assert table.startswith(figures.speed_table(STORED_EXAMPLE))
    assert table.removeprefix(figures.speed_table(STORED_EXAMPLE)) == (
        "\n\n| figure | measured | target |\n| --- | --- | --- |\n| building: peak memory | 108 MB | ≤ 600 MB |\n\n"
        "Measured on 2026-01-31 with 2 cores and 25 GB of memory: 101,000 images, written and trained on by a tiny "
        "model, batches of 64. Memory is that of all processes together. `python tests/benchmarks/scale.py` prints the "
        "table."
    )


def test_readme_needs_a_place_for_the_table():
    """The table goes between its marks; without them nothing is written."""
    text = "# Kit\n\n<!-- speed:begin -->\nold\n<!-- speed:end -->\n\nThe end.\n"
    table = figures.speed_table(STORED_EXAMPLE)
    assert figures.new_readme(text, STORED_EXAMPLE) == text.replace("old", table + "\n")
    with pytest.raises(ValueError, match="README") as caught:
        figures.new_readme("# Kit\n", STORED_EXAMPLE)
    assert str(caught.value) == (
        "README.md has no place for the speed table. Put <!-- speed:begin --> and <!-- speed:end --> into it, once "
        "each."
    )


def test_readme_shows_the_stored_run():
    """README's speed table is what the stored JSON gives; every figure of the table was measured."""
    stored, large = (json.loads(path.read_text(encoding="utf-8")) for path in (STORED, STORED_LARGE))
    assert figures.new_readme(README, stored, (large, figures_of_scale(large))) == README
    assert [figure["name"] for figure in stored["figures"]] == [target.name for target in figures.TARGETS]


@pytest.mark.nightly
@pytest.mark.timeout(240)
def test_command_prints_figures_and_verdict(tmp_path):
    """A small run of the kit against the roofline: needs, rates, figures, exit status, JSON without paths."""
    command = [sys.executable, FEED, "--images", "128", "--repeat", "1", "--only", "roofline", "2 threads"]
    command += ["--json", tmp_path / "feed.json", "--folder", tmp_path]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    stored = json.loads((tmp_path / "feed.json").read_text(encoding="utf-8"))
    assert result.stdout.startswith("128 images in four formats: 0.1 GB on the disk, removed at the end, ")
    assert [figure["name"] for figure in stored["figures"]] == ["threads"]
    assert result.returncode == (0 if stored["figures"][0]["reached"] else 1), result.stderr
    assert "2 threads, against Keras fed one constant batch" in result.stdout
    assert str(tmp_path) not in json.dumps(stored)
    assert [path.name for path in tmp_path.iterdir()] == ["feed.json"]

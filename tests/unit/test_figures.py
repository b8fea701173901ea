"""The pictures: each is tested by the data it draws and the text it carries, not by its pixels."""

import base64
import re
import subprocess
import sys

import h5py
import matplotlib
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from helpers.course import figures, style

NAMES = ["apple pie", "baby back ribs", "baklava", "beef carpaccio"]


def labels_of(axis_labels) -> list[str]:
    """The texts of tick labels, unwrapped."""
    return [label.get_text().replace("\n", " ") for label in axis_labels]


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "toy.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("train_img", (6, 8, 8, 3), np.uint8, chunks=(1, 8, 8, 3))
        file["extra/ids"] = np.arange(6)
        file.attrs["mean"] = [120.123456, 99.0, 1.5]
    return path


@pytest.fixture
def drawn(file):
    """One figure of each kind."""
    matrix = np.array([[5, 1], [0, 4]])
    return {
        "image_grid": figures.image_grid(np.zeros((5, 8, 8, 3), np.uint8), list("abcde"), title="Plates"),
        "bars": figures.bars(["row by row", "list index"], [8000, 52], "images/s", log=True),
        "bar_panels": figures.bar_panels(["raw", "jpeg"], {"MB": [60, 7], "images a second": [20_000, 700]}),
        "curves": figures.curves({"loss": [2, 1], "val_loss": [2, 1.5], "accuracy": [0.1, 0.5]}),
        "class_counts": figures.class_counts({"train": [3, 4], "valid": [1, 1]}, ["a", "b"]),
        "class_counts of many": figures.class_counts(np.arange(1, 102)),
        "order_strip": figures.order_strip({"sorted": [0, 0, 1, 1]}, class_names=["a", "b"], batch_size=2),
        "order_strip of rows": figures.order_strip({"rows": np.arange(50)}, kind="row"),
        "confusion_matrix": figures.confusion_matrix(matrix, ["a", "b"]),
        "timeline": figures.timeline({"worker 1": [(0, 1, "read"), (1, 3, "augment")], "step": [(0, 3, "wait")]}),
        "timelines": figures.timelines({"alone": {"a": [(0, 1, "read")]}, "two": {"worker 1": [(5, 7, "train")]}}),
        "stall_shares": figures.stall_shares({"this training": [[0, 1], [0.5, 1]], "slow": [[0.9, 1]]}, title="Feeds"),
        "chunks_and_reads": figures.chunks_and_reads((100, 64, 64, 3), (8, 16, 16, 1), row=13),
        "fork_and_handles": figures.fork_and_handles(),
        "batch_life": figures.batch_life(),
        "batch_life with slots": figures.batch_life(slots=True),
        "file_tree": figures.file_tree(file),
    }


def test_every_figure_has_a_sentence_for_listeners(drawn):
    """Each figure carries an alt text of at least a sentence."""
    assert {
        name: figure.alt.endswith(".") and len(figure.alt) >= 20 for name, figure in drawn.items()
    } == dict.fromkeys(drawn, True)


def test_every_figure_fits_the_column_and_is_large_enough_to_read(drawn):
    """All figures are as wide as a notebook column, and no text in them is smaller than 11 points."""
    for name, figure in drawn.items():
        assert figure.get_figwidth() * 100 == pytest.approx(700), name
        sizes = {text.get_fontsize() for text in figure.findobj(matplotlib.text.Text) if text.get_text().strip()}
        assert min(sizes) >= 11, name


def test_nothing_is_cut_off_at_the_edge(drawn):
    """All that is drawn lies within the picture."""
    for name, figure in drawn.items():
        canvas = FigureCanvasAgg(figure)
        canvas.draw()
        box = figure.get_tightbbox(canvas.get_renderer())
        width, height = figure.get_size_inches()
        assert min(box.x0, box.y0) >= -0.02, name
        assert (box.x1 <= width + 0.02, box.y1 <= height + 0.02) == (True, True), name


def test_drawing_leaves_pyplot_alone(drawn):
    """No figure is registered with pyplot, and the notebook's settings stay as they were."""
    assert "matplotlib.pyplot" not in sys.modules or matplotlib.pyplot.get_fignums() == []
    with matplotlib.rc_context({"font.size": 3}):
        figures.batch_life()
        assert matplotlib.rcParams["font.size"] == 3
    assert all(type(figure) is Figure for figure in drawn.values())


def test_a_notebook_setting_does_not_change_the_figures():
    """Whatever a notebook sets, the figure looks the same."""
    plain = figures.png_bytes(figures.bars(["a"], [1], "s"))
    with matplotlib.rc_context({"font.size": 30, "lines.linewidth": 9, "axes.facecolor": "red"}):
        assert figures.png_bytes(figures.bars(["a"], [1], "s")) == plain


def test_equal_figures_are_equal_bytes():
    """The PNG holds no time and no version: two runs store the same bytes."""
    first, second = (figures.png_bytes(figures.fork_and_handles()) for _ in range(2))
    assert first == second
    assert b"Software" not in first
    assert b"matplotlib" not in first


def test_use_style_applies_to_own_figures():
    """After use_style a figure of the notebook has the same letters."""
    with matplotlib.rc_context():
        figures.use_style()
        assert matplotlib.rcParams["font.size"] == 11
        assert matplotlib.rcParams["axes.prop_cycle"].by_key()["color"] == list(style.CYCLE)


# -- show -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def displayed(monkeypatch):
    """What show sends to the notebook."""
    sent = []
    monkeypatch.setattr("IPython.display.display", lambda data, raw: sent.append((data, raw)))
    return sent


def test_show_sends_an_image_with_alt_text(displayed):
    """The notebook gets one HTML image whose alt attribute is the escaped text, with the PNG inside."""
    figure = figures.bars(['the "naive" loop', "b"], [1, 2], "images/s")
    figures.show(figure)
    [(data, raw)] = displayed
    assert raw is True
    assert list(data) == ["text/html", "text/plain"]
    alt = re.search(r'alt="([^"]*)"', data["text/html"]).group(1)
    assert alt == "Bars in images/s. the &quot;naive&quot; loop: 1; b: 2."
    assert data["text/plain"] == f"Figure: {figure.alt}"
    image = base64.b64decode(re.search(r"base64,([^\"]*)", data["text/html"]).group(1))
    assert image == figures.png_bytes(figure)


def test_show_takes_an_own_figure_with_a_text(displayed):
    """A figure made elsewhere is shown with the text given."""
    figures.show(Figure(), alt="An empty sheet of paper.")
    assert displayed[0][0]["text/plain"] == "Figure: An empty sheet of paper."


@pytest.mark.parametrize("alt", [None, "", "  "])
def test_show_refuses_a_figure_without_text(alt, displayed):
    """A picture that nobody can hear is a mistake, said at once."""
    with pytest.raises(
        ValueError, match=r"^a figure needs a text for those who cannot see it; got none\. Pass alt='what it shows'\.$"
    ):
        figures.show(Figure(), alt=alt)
    assert displayed == []


# -- charts -----------------------------------------------------------------------------------------------------------


def test_image_grid_shows_each_image_under_its_title():
    """Images stay in order, unused places are empty."""
    images = np.arange(5, dtype=np.uint8)[:, None, None, None] * np.ones((1, 8, 8, 3), np.uint8)
    figure = figures.image_grid(images, ["a", "b", "c", "d", "e"], columns=3)
    assert [axes.images[0].get_array()[0, 0, 0] for axes in figure.axes if axes.images] == [0, 1, 2, 3, 4]
    assert [axes.get_title() for axes in figure.axes] == ["a", "b", "c", "d", "e", ""]
    assert figure.alt == "5 images in 2 rows of 3: a, b, c, d, e."


def test_bars_show_values_in_the_order_given():
    """Each bar has its length, its label and its number."""
    figure = figures.bars(
        ["row by row", "list index"], [8000, 52.25], "images/s", highlight="row by row", title="Speed"
    )
    axes = figure.axes[0]
    assert [bar.get_width() for bar in axes.patches] == [8000, 52.25]
    assert labels_of(axes.get_yticklabels()) == ["row by row", "list index"]
    assert [text.get_text() for text in axes.texts] == ["8,000", "52.2"]
    assert axes.yaxis_inverted()
    assert axes.patches[0].get_facecolor() != axes.patches[1].get_facecolor()
    assert figure.alt == "Speed. Bars in images/s. row by row: 8,000; list index: 52.2."


def test_bar_panels_give_each_unit_a_scale_of_its_own():
    """One panel a unit, each with all labels' bars and numbers; the longest bar ends well before its edge."""
    figure = figures.bar_panels(["raw", "jpeg"], {"MB": [60, 7.25], "images a second": [20_000, 700]}, highlight="raw")
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["MB", "images a second"]
    assert [[bar.get_width() for bar in axes.patches] for axes in figure.axes] == [[60, 7.25], [20_000, 700]]
    assert [[text.get_text() for text in axes.texts] for axes in figure.axes] == [["60", "7.25"], ["20,000", "700"]]
    assert labels_of(figure.axes[0].get_yticklabels()) == ["raw", "jpeg"]
    assert [axes.get_xlim()[1] for axes in figure.axes] == [96, 32_000]
    assert figure.alt == "Bars in 2 panels. MB: raw 60, jpeg 7.25; images a second: raw 20,000, jpeg 700."


def test_bars_on_a_log_scale_keep_room_for_the_numbers():
    """The longest bar ends well before the edge, where its number stands."""
    axes = figures.bars(["a", "b"], [10, 100_000], "images/s", log=True).axes[0]
    low, high = np.log10(axes.get_xlim())
    assert axes.get_xscale() == "log"
    assert (np.log10(100_000) - low) / (high - low) < 0.9
    assert low < np.log10(10)


class FakeHistory:
    history = {"loss": [2.0, 1.0], "accuracy": [0.1, 0.5], "val_loss": [2.5, 1.5], "val_accuracy": [0.1, 0.4]}


def test_curves_pair_training_and_validation():
    """A Keras history gives one panel a metric, with both curves over epochs counted from 1."""
    figure = figures.curves(FakeHistory())
    assert [axes.get_ylabel() for axes in figure.axes] == ["loss", "accuracy"]
    lines = figure.axes[0].lines
    assert [line.get_label() for line in lines] == ["training", "validation"]
    assert [list(line.get_ydata()) for line in lines] == [[2.0, 1.0], [2.5, 1.5]]
    assert list(lines[0].get_xdata()) == [1, 2]
    assert lines[1].get_linestyle() == "--"
    assert "val_loss from 2.5 to 1.5" in figure.alt


def test_curves_compare_runs_in_one_panel():
    """With y all series share a panel and keep their names."""
    figure = figures.curves({"plain": [0.1, 0.3], "augmented": [0.1, 0.5]}, y="validation accuracy")
    [axes] = figure.axes
    assert [line.get_label() for line in axes.lines] == ["plain", "augmented"]
    assert axes.get_ylabel() == "validation accuracy"


def test_class_counts_stack_the_splits():
    """The bars of one class add up to all its images."""
    figure = figures.class_counts({"train": [70, 60], "valid": [20, 10]}, ["pie", "ribs"], title="Classes")
    axes = figure.axes[0]
    assert [[bar.get_width() for bar in group] for group in axes.containers] == [[70, 60], [20, 10]]
    assert [bar.get_x() for bar in axes.containers[1]] == [70, 60]
    assert labels_of(axes.get_yticklabels()) == ["pie", "ribs"]
    assert figure.alt == "Classes. Images a class: 160 images of 2 classes; most pie (90), fewest ribs (70)."


def test_class_counts_of_many_classes_are_numbered():
    """101 classes are drawn by number, one bar each."""
    axes = figures.class_counts(np.arange(1, 102), [f"food {c}" for c in range(101)]).axes[0]
    assert [bar.get_height() for bar in axes.patches] == list(range(1, 102))
    assert axes.get_xlabel() == "class number, 0 (food 0) to 100 (food 100)"


def test_order_strip_draws_what_was_served():
    """A strip holds one colour an image in the order served, with a line between batches."""
    figure = figures.order_strip({"stored": [0, 0, 1, 1, 2], "shuffled": [2, 0, 1, 0, 1]}, batch_size=2)
    first, second = figure.axes
    assert first.images[0].get_array().tolist() == [[0, 0, 1, 1, 2]]
    assert second.images[0].get_array().tolist() == [[2, 0, 1, 0, 1]]
    assert [line.get_xdata()[0] for line in first.lines] == [2, 4]
    assert "stored: 5 images, the class changes 2 times of 4" in figure.alt


def test_order_strip_of_rows_says_how_many_follow():
    """For rows the text tells how often the next row of the file came next."""
    assert "3 of 4 images follow their neighbour" in figures.order_strip({"x": [0, 1, 2, 4, 5]}, kind="row").alt


def test_confusion_matrix_shows_counts_and_shares():
    """Numbers are counts, colours are shares of the true class; the text names the worst pair."""
    figure = figures.confusion_matrix([[6, 2], [0, 2]], ["pie", "ribs"])
    axes = figure.axes[0]
    assert axes.images[0].get_array().tolist() == [[0.75, 0.25], [0.0, 1.0]]
    assert [text.get_text() for text in axes.texts] == ["6", "2", "0", "2"]
    assert figure.alt == "Confusion matrix of 10 images: 80% right; most common mistake: pie taken for ribs (2)."


def test_timeline_adds_up_each_lane():
    """Bars lie where they were; the text sums them by kind."""
    figure = figures.timeline({"worker": [(0, 1, "read"), (2, 4, "read")], "step": [(1, 2.5, "wait")]})
    spans = [[path.get_extents().intervalx.tolist() for path in bar.get_paths()] for bar in figure.axes[0].collections]
    assert spans == [[[0, 1], [2, 4]], [[1, 2.5]]]
    assert figure.alt == "Timeline of worker, step. worker: read 3 s; step: wait 1.5 s."


def test_timelines_share_a_clock_that_starts_with_each_run():
    """Each run has a panel with its lanes, moved to begin at 0; the text tells them run by run."""
    figure = figures.timelines({
        "alone": {"steps": [(3, 5, "train")]},
        "together": {"worker": [(7, 8, "read")], "steps": [(8, 9, "train")]},
    })
    first, second = figure.axes
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["alone", "together"]
    assert labels_of(second.get_yticklabels()) == ["worker", "steps"]
    spans = [
        path.get_extents().intervalx.tolist()
        for axes in (first, second)
        for bar in axes.collections
        for path in bar.get_paths()
    ]
    assert spans == [[0, 2], [0, 1], [1, 2]]
    assert first.get_xlim() == second.get_xlim()
    assert figure.alt == (
        "Timelines of 2 runs. alone: Timeline of steps. steps: train 2 s; "
        "together: Timeline of worker, steps. worker: read 1 s; steps: train 1 s."
    )


def test_stall_shares_are_areas_over_the_seconds_of_training():
    """Each step is as wide as its seconds, and orange up to the share that it waited."""
    figure = figures.stall_shares({"fast": [[0, 1], [1, 4]], "slow": [[3, 4]]})
    all_work, waiting = figure.axes[0].patches
    assert waiting.get_data().edges.tolist() == [0, 1, 5]
    assert waiting.get_data().values.tolist() == [0, 25]
    assert all_work.get_data().values.tolist() == [100, 100]
    assert [axes.get_ylim() for axes in figure.axes] == [(0, 100), (0, 100)]
    assert figure.alt == (
        "Share of the time that training waited for data, over its steps. "
        "fast: 20% of the time waiting, 2 steps; slow: 75% of the time waiting, 1 step."
    )


def test_a_long_run_is_drawn_in_groups_and_loses_no_second():
    """1,000 steps become 80 bars; the orange area is still the time that was waited."""
    timed = np.column_stack([np.linspace(0, 0.5, 1000), np.full(1000, 1.0)])
    _, waiting = figures.stall_shares({"run": timed}).axes[0].patches
    values, edges, _ = waiting.get_data()
    assert len(values) == 80
    assert edges[-1] == 1000
    np.testing.assert_allclose((values / 100 * np.diff(edges)).sum(), timed[:, 0].sum())


def test_batch_life_in_detail_names_slot_and_pipe():
    """The detailed drawing has a slot where the map has a queue, and says what goes through the pipe."""
    plain, detailed = (
        [text.get_text() for text in figures.batch_life(slots=slots).axes[0].texts] for slots in (False, True)
    )
    assert ("queue" in plain, "slot" in plain) == (True, False)
    assert ("queue" in detailed, "slot" in detailed) == (False, True)
    assert 'the pipe: "make batch 37", "it lies in slot 3"' in detailed


# -- diagrams ---------------------------------------------------------------------------------------------------------

TOUCHED = [
    ("one image a chunk", (75750, 299, 299, 3), (1, 299, 299, 3), (1, 268203)),
    ("what h5py chooses for Food-101", (75750, 299, 299, 3), (2368, 10, 19, 1), (1440, 647884800)),
    ("contiguous", (10, 4, 4, 3), None, (1, 48)),
    ("edge chunks count whole", (10, 5, 5, 3), (2, 4, 4, 3), (4, 384)),
]


@pytest.mark.parametrize(
    ("shape", "chunks", "touched"), [case[1:] for case in TOUCHED], ids=[case[0] for case in TOUCHED]
)
def test_chunks_touched(shape, chunks, touched):
    """Chunks and bytes fetched for one image, counted by hand."""
    assert figures.chunks_touched(shape, chunks) == touched


def test_chunks_touched_agrees_with_hdf5(tmp_path):
    """The count is that of the chunks HDF5 really stores for the row."""
    with h5py.File(tmp_path / "x.h5", "w") as file:
        data = file.create_dataset("x", (20, 30, 30, 3), np.uint8, chunks=(4, 7, 11, 2))
        data[6] = 1
        assert data.id.get_num_chunks() == figures.chunks_touched(data.shape, data.chunks, 6)[0]


def test_chunks_and_reads_marks_the_fetched_rows():
    """The orange field spans all images of the chunk, the black one the image asked for."""
    figure = figures.chunks_and_reads((100, 64, 64, 3), {"eight": (8, 64, 64, 3)}, row=13)
    fields = {patch.get_facecolor()[:3]: (patch.get_x(), patch.get_width()) for patch in figure.axes[0].patches}
    assert fields[matplotlib.colors.to_rgb(style.ORANGE)] == (8, 8)
    assert fields[matplotlib.colors.to_rgb(style.BLACK)] == (13, 1)
    assert figure.alt == "To read one image of 12.3 kB: with eight, 1 chunk of 98.3 kB in all."


def test_file_tree_is_read_from_the_file(file):
    """Every dataset, group and attribute of the file stands in the tree."""
    figure = figures.file_tree(file)
    texts = [text.get_text() for text in figure.axes[0].texts]
    assert texts == [
        "toy.h5",
        "the file, also the root group /",
        "@mean",
        "120.1, 99.0, 1.5",
        "extra/",
        "group",
        "ids",
        "(6,) int64",
        "train_img",
        "(6, 8, 8, 3) uint8, chunks (1, 8, 8, 3)",
    ]


REFUSED = [
    (figures.image_grid, ([],), {}, "image_grid needs one title an image; got 0 images and 0 titles."),
    (figures.bars, (["a"], [1, 2], "s"), {}, "bars needs one value a label; got 1 labels and 2 values."),
    (figures.bars, (["a", "b"], [1, 0], "s"), {"log": True}, "a log scale needs values above 0; got 0 for 'b'."),
    (
        figures.bar_panels,
        (["a"], {"MB": [1], "s": [1, 2]}),
        {},
        "bar_panels needs one value a label in each panel; got 1 labels and MB: 1, s: 2.",
    ),
    (
        figures.bar_panels,
        (["a"], {}),
        {},
        "bar_panels needs one value a label in each panel; got 1 labels and no panels.",
    ),
    (figures.curves, ({},), {}, "curves has nothing to draw: the history is empty. Train for at least one epoch."),
    (
        figures.class_counts,
        ({"train": [1, 2], "valid": [1]},),
        {},
        "class_counts needs 2 counts a split; got [(2,), (1,)].",
    ),
    (
        figures.order_strip,
        ({"a": [1]},),
        {"kind": "x"},
        "order_strip needs strips with images and kind 'class' or 'row'; got kind 'x'.",
    ),
    (
        figures.confusion_matrix,
        ([[1, 2]],),
        {},
        "a confusion matrix is (classes, classes); got shape (1, 2) and 1 names.",
    ),
    (
        figures.timeline,
        ({"w": [(2, 1, "read")]},),
        {},
        "a bar is (start, end, kind) with kind one of read, augment, train, wait, other; "
        "got (2, 1, 'read') in lane 'w'.",
    ),
    (
        figures.timelines,
        ({"a": {}},),
        {},
        "timelines needs at least one run, and each run a lane; got {'a': {}}.",
    ),
    (
        figures.stall_shares,
        ({"run": []},),
        {},
        "stall_shares needs (seconds waited, seconds in all) of each step, 0 <= waited <= all; got [] for 'run'. Pass "
        "StallMeter.timed after a training.",
    ),
    (
        figures.stall_shares,
        ({"run": [[2, 1]]},),
        {},
        "stall_shares needs (seconds waited, seconds in all) of each step, 0 <= waited <= all; got [[2.0, 1.0]] for "
        "'run'. Pass StallMeter.timed after a training.",
    ),
    (figures.chunks_touched, ((5, 2, 2, 3), None, 5), {}, "row must be 0 to 4; got 5."),
]


@pytest.mark.parametrize(("function", "args", "options", "message"), REFUSED)
def test_wrong_input_is_refused(function, args, options, message):
    """Each wrong input has its own sentence."""
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the whole sentence is compared below
        function(*args, **options)
    assert str(caught.value) == message


NUMBERS = [
    (0, "0"),
    (52, "52"),
    (14500.4, "14,500"),
    (31.25, "31.2"),
    (0.12345, "0.123"),
    (1.5, "1.5"),
    (float("inf"), "inf"),
]


@pytest.mark.parametrize(("value", "text"), NUMBERS)
def test_numbers_on_labels_are_short(value, text):
    """Three digits that count, thousands with a comma, no useless zeros."""
    assert style.number(value) == text


def test_figures_import_no_keras_and_no_pyplot():
    """Lessons without Keras draw without paying for it."""
    code = (
        "from helpers.course import figures; import sys; figures.png_bytes(figures.batch_life()); "
        "print([m for m in ('keras', 'tensorflow', 'matplotlib.pyplot') if m in sys.modules])"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout == "[]\n"

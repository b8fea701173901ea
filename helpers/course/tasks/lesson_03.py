"""Questions on lesson 03: what a generator does, what is wrong with two famous ones, and a dataset by number."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import cv2
import h5py
import numpy as np

from helpers.course.probes import (
    AnswerRaised,
    Wrong,
    a_function,
    a_list,
    a_whole_number,
    attempt,
    describe,
    is_known_mistake,
    listed_backwards,
    of_shape,
    peak_bytes,
    run,
    same,
    task,
    that,
)

# --- 03.1 -----------------------------------------------------------------------------------------------------------

_LOG = ["open", 0, 4]


@task(
    "03.1",
    "What is in the log?",
    objective=1,
    points=2,
    hints={
        "the call counted": "Two generators were made. For how many of them was `next` called?",
        "one read ahead": "After a batch is handed out the function stands still. What makes it go on to the next one?",
        "one read behind": "The line before `yield` has run when the batch arrives. How many batches have arrived?",
        "starts anew": "Does `next` call the function again, or does it go on from the place where it stopped?",
        "ran to the end": "When would the line after the loop run, and was `next` called that often?",
        "only the loop": "The function has a line before its loop. It runs, too: once, and when?",
        "another log": "Put a finger on the first line of the function; move it on with each `next`, up to a `yield`.",
    },
    note="A call makes a generator and runs nothing; each next runs it up to one yield.",
)
def what_is_in_the_log(answer):
    that(not isinstance(answer, set | frozenset), "wrong type", "a list, which has an order", "a set")
    log = [str(entry) for entry in a_list(answer, "the log")]
    that(
        all(entry in {"open", "close"} or entry.lstrip("-").isdigit() for entry in log),
        "wrong type",
        'a list of "open", "close" and numbers',
        describe(answer),
    )
    yield
    mistakes = {
        "the call counted": ["open", "open", 0, 4],
        "one read ahead": ["open", 0, 4, 8],
        "one read behind": ["open", 0],
        "only the loop": [0, 4],
    }
    wanted = "what the lines wrote, in order"  # in words: the log itself would be the answer
    for name, value in mistakes.items():
        that(log != [str(one) for one in value], name, wanted, describe(answer))
    that("open" not in log[3:], "the call counted", wanted, describe(answer))
    that("close" not in log, "ran to the end", wanted, describe(answer))
    that(log.count("open") + log.count("0") < 3, "starts anew", wanted, describe(answer))
    that(log == _as_text(), "another log", wanted, describe(answer))
    yield


def _as_text() -> list[str]:
    return [str(entry) for entry in _LOG]


# --- 03.2 -----------------------------------------------------------------------------------------------------------

_EPOCHS = [(20_200, 64), (1_400, 32), (1_400, 350), (70_700, 100), (64, 64), (2_424, 128), (7, 5)]


@task(
    "03.2",
    "Steps, rounded up and down",
    objective=2,
    points=3,
    hints={
        "a float": "`np.floor`, `np.ceil` and `/` give floats. Keras counts steps with a whole number, an int.",
        "rounded down": "So many full batches there are. The rows after the last full one need a step as well.",
        "one step too many": "When batch_size divides n, nothing is left over after the last full batch.",
        "rows left over": "So many rows a rounded-down epoch misses. Asked for is the row where the next one starts.",
        "always row 0": "The generator never ends, and goes on where it stood. Keras does not set it back.",
        "a row beyond the end": "Rows are 0 to n - 1. When the pass was complete, which row follows the last one?",
        "last row of the epoch": "That is the last row that was trained on. The next epoch starts one row after it.",
        "another row": "How many rows have been used after n // batch_size steps? Rows count from 0.",
        "another number of steps": "Count by hand for 7 rows in batches of 5.",
    },
    note="Rounded up, an epoch is one pass; rounded down, the next epoch starts with the rest of this one.",
)
def steps_up_and_down(answer):
    function = a_function(answer, "n, batch_size")
    pairs = {case: a_list(run(function, *case), f"answer{case}") for case in _EPOCHS}
    for case, pair in pairs.items():
        that(len(pair) == 2, "wrong shape", f"answer{case}: two numbers, (steps, row)", f"{len(pair)} of them")
    numbers = {
        case: [_whole(one, f"answer{case}: {what}") for one, what in zip(pair, _WHAT, strict=True)]
        for case, pair in pairs.items()
    }
    yield
    for (n, size), (steps, _) in numbers.items():
        what, right = f"answer({n}, {size}): steps of one pass", -(-n // size)
        that(not (n % size and steps == n // size), "rounded down", f"{what}: all {n} rows", f"{steps}")
        that(not (n % size == 0 and steps == right + 1), "one step too many", f"{what}: {right}", steps)
        same(steps, right, "another number of steps", what)
    yield
    for (n, size), (_, row) in numbers.items():
        used = n // size * size
        what, right = f"answer({n}, {size}): the row where the second epoch starts", used % n
        mistakes = {
            "a row beyond the end": n,
            "rows left over": n - used,
            "last row of the epoch": used - 1,
            "always row 0": 0,
        }
        is_known_mistake(row, mistakes, right, what)
        same(row, right, "another row", what)
    yield


_WHAT = ("the number of steps", "the row")


def _whole(value: object, what: str) -> int:
    return a_whole_number(value, what, "a float" if isinstance(value, float | np.floating) else "wrong type")


# --- 03.3 -----------------------------------------------------------------------------------------------------------

_PLATE = (16, 12, 3)
_CLASSES = [2, 0, 3, 1, 4, 0, 2, 1, 3, 4, 0]
_RED, _BLUE, _NEW_BLUE = 220, 30, 130
_NAMES = [f"plate_{number:02}.jpg" for number in range(len(_CLASSES))]
_TOLERANCE = 12  # JPEG changes values a little, and each decoder in its own way
_DRY = object()


@task(
    "03.3",
    "Repair the directory generator",
    objective=3,
    points=4,
    hints={
        "file not found": "A list of a folder holds bare names, and `imread` looks for those beside the notebook. "
        "What it does not find it gives as None, without an error.",
        "labels missing": "`fit` wants pairs: inputs and targets. Which names are in this batch, and what is known of "
        "them?",
        "labels asked by path": "The keys of `labels` are names as `plate_03.jpg`, without the folder. Print the key.",
        "not bytes": "Look at `dtype`: four or eight times the memory of the file. Scaling belongs in the model.",
        "blue first": "The plates here are red. OpenCV reads blue, green, red; everything else here has red first.",
        "other pixels": "The plates have other values than in their files. What becomes of a fraction as uint8?",
        "wrong batch size": "A batch has batch_size files, but for the last one of a pass.",
        "ran dry": "Keras asks for batches as long as it trains. What does your function do after the last file?",
        "batches across the border": "A batch held files of two passes. The last batch of a pass may be smaller, "
        "so that a pass is an epoch.",
        "last batch dropped": "Some files were never served in a pass. What about the files after the last full batch?",
        "files twice": "A pass serves each file once. Is the list used up before it starts again?",
        "labels do not fit": "The label of a picture was another one's. Which list was shuffled, and which was not?",
        "all read at once": "A picture that was changed on disk before its turn came out unchanged. Read the files of "
        "a batch when that batch is asked for: all of them may not fit into memory.",
        "first pass not shuffled": "The first pass came in the order of the list. When does your function shuffle?",
        "every pass the same": "Two passes had one order. What is new when a pass begins?",
        "cannot be repeated": "One seed gave two orders. Whose dice do you throw, who else throws them, and where "
        "do they start?",
        "seed not used": "Two seeds gave one order. Where does `seed` come in?",
        "order of the listing": "We listed the same folder in another order, as another machine may, and your "
        "batches changed. In which order do the names stand before you shuffle?",
    },
    note="Paths, colours, labels, bytes, and an order that can be repeated: each fault of it was silent but the first.",
)
def directory_generator(answer):
    function = a_function(answer, "folder, labels, batch_size, seed")
    with _plates() as folder:
        first = _pull(_start(function, folder, 3), 6, folder)
        for batch in first:
            _is_pair(batch, "next(...)")
        yield
        for images, _ in first:
            _is_picture_batch(images)
        yield
        rows = [[_number(image) for image in np.asarray(images)] for images, _ in first]
        _is_two_passes(rows)
        for (_, labels), which in zip(first, rows, strict=True):
            _labels_of(labels, [_CLASSES[row] for row in which], "labels do not fit")
        _reads_late(function, folder)
        yield
        _order_of_files(function, folder, rows)
        yield


@contextmanager
def _plates() -> Iterator[Path]:
    """A folder of plates of one colour each; green tells which."""
    with tempfile.TemporaryDirectory() as name:
        for number in range(len(_NAMES)):
            _draw_plate(Path(name), number, _BLUE)
        yield Path(name)


def _draw_plate(folder: Path, number: int, blue: int) -> None:
    plate = np.full(_PLATE, (blue, 15 + 20 * number, _RED), np.uint8)  # OpenCV writes blue first
    (folder / _NAMES[number]).write_bytes(cv2.imencode(".jpg", plate)[1].tobytes())


def _start(function: Callable, folder: Path, seed: int, labels: dict | None = None) -> Iterator:
    call = f"answer(folder, labels, batch_size=4, seed={seed})"
    given = dict(zip(_NAMES, _CLASSES, strict=True)) if labels is None else labels
    with _explained(folder):
        result = run(function, folder, given, 4, seed, call=call)
    that(hasattr(result, "__iter__"), "wrong type", f"{call} gives a generator", describe(result))
    return attempt(lambda: iter(result), f"iter({call})")


def _pull(source: Iterator, count: int, folder: Path) -> list:
    batches = []
    for number in range(count):
        with _explained(folder):
            batch = attempt(lambda: next(source, _DRY), "next(answer(folder, labels, batch_size=4, seed=...))")
        that(batch is not _DRY, "ran dry", "a batch at each next(...), for ever", f"an end after {number} batches")
        batches.append(batch)
    return batches


@contextmanager
def _explained(folder: Path) -> Iterator[None]:
    """Give a wrong path, and a wrong key, their names; neither shows where the folder lies."""
    not_found = []
    imread = cv2.imread

    def watched(*args, **kwargs):
        picture = imread(*args, **kwargs)
        not_found.extend(args[:1] if picture is None else ())
        return picture

    try:
        with mock.patch("cv2.imread", watched):
            yield
    except AnswerRaised as raised:
        text = str(raised.error).replace(str(folder), "FOLDER")
        if isinstance(raised.error, KeyError):
            raise Wrong("labels asked by path", "keys as 'plate_03.jpg'", f"KeyError: {text}") from None
        if not_found or isinstance(raised.error, FileNotFoundError):
            _was_found([*not_found, ""][0], folder)
        raise
    if not_found:
        _was_found(not_found[0], folder)


def _was_found(path: object, folder: Path) -> None:
    shown = f" {str(path).replace(str(folder), 'FOLDER')!r}" if path else ""
    raise Wrong("file not found", "each picture is found", f"no picture{shown}")


def _is_pair(batch: object, what: str) -> None:
    sized = isinstance(batch, tuple | list)
    that(not (isinstance(batch, tuple) and len(batch) > 2), "wrong shape", f"{what} is a pair", "a longer tuple")
    that(sized and len(batch) == 2, "labels missing", f"{what} is a pair (images, labels)", describe(batch))


def _is_picture_batch(images: object) -> None:
    that(hasattr(images, "dtype"), "wrong type", "images are one array", describe(images))
    images = np.asarray(images)
    that(images.dtype == np.uint8, "not bytes", "images of uint8, as in the file", f"images of {images.dtype}")
    of_shape(images, (None, *_PLATE), "images")
    that(len(images), "wrong batch size", "batches of 4 files", "an empty one")
    red, _, blue = images.mean(axis=(0, 1, 2))
    that(red >= blue, "blue first", "red plates: most of channel 0", "most of channel 2")
    found = np.array([_number(image) for image in images])
    plates = np.array([np.full(_PLATE, (_RED, 15 + 20 * number, _BLUE)) for number in found])
    right = ((found >= 0) & (found < len(_NAMES))).all() and np.abs(plates - images).max() < _TOLERANCE
    that(right, "other pixels", "the plates of the files", f"a mean of {images.mean():.0f}")


def _number(image: np.ndarray) -> int:
    """Which plate it is: its green tells."""
    return round((float(image[..., 1].mean()) - 15) / 20)


def _labels_of(labels: object, right: list, name: str) -> None:
    labels = np.asarray(labels)
    that(labels.shape[:1] == (len(right),), name, f"{len(right)} labels for {len(right)} pictures", describe(labels))
    of_shape(labels, (len(right),), "labels")
    that(np.array_equal(labels, right), name, f"labels {right}", f"labels {labels.tolist()}")


def _is_two_passes(rows: list[list[int]]) -> None:
    """Two passes over all files, in batches of 4, 4 and 3."""
    served, files = [row for batch in rows for row in batch], len(_NAMES)
    sizes = [len(batch) for batch in rows]
    that(sizes[0] == 4, "wrong batch size", "a first batch of 4 files", f"one of {sizes[0]}")
    whole = [set(served[:files]), set(served[files : 2 * files])] == [set(range(files))] * 2
    if whole and sizes != [4, 4, 3, 4, 4, 3]:
        raise Wrong("batches across the border", "batches of 4, 4, 3 files, and again", f"batches of {sizes}")
    for half in (rows[:3], rows[3:]):
        once = [row for batch in half for row in batch]
        that(len(half[-1]) < 4, "last batch dropped", "batches of 4, 4, 3 files, and again", f"batches of {sizes}")
        that(len(set(once)) == len(once), "files twice", "each file once a pass", "some files twice")
        that(set(once) == set(range(files)), "last batch dropped", f"{files} files a pass", f"{len(once)} files")


def _reads_late(function: Callable, folder: Path) -> None:
    """A plate that is painted anew before its turn comes out in its new colour."""
    source = _start(function, folder, 3)
    _pull(source, 1, folder)
    for number in range(len(_NAMES)):
        _draw_plate(folder, number, _NEW_BLUE)
    images, _ = _pull(source, 2, folder)[-1]
    for number in range(len(_NAMES)):
        _draw_plate(folder, number, _BLUE)
    late = np.asarray(images)[..., 2].mean() > (_BLUE + _NEW_BLUE) / 2
    that(late, "all read at once", "a file is read when its batch is asked for", "the file as it was long before")


def _order_of_files(function: Callable, folder: Path, rows: list[list[int]]) -> None:
    passes = [[row for batch in half for row in batch] for half in (rows[:3], rows[3:])]
    in_list = sorted(passes[0]), sorted(passes[0], reverse=True), [_NAMES.index(file.name) for file in folder.iterdir()]
    that(passes[0] not in in_list, "first pass not shuffled", "a first pass in mixed order", "the order of the list")
    that(passes[0] != passes[1], "every pass the same", "another order in the second pass", "the same order")
    labels = dict(zip(_NAMES, _CLASSES, strict=True))
    again, other = _start(function, folder, 3, labels), _start(function, folder, 4)
    steps = [(_which(again, folder), _which(other, folder)) for _ in range(6)]  # in turn: shared dice would show
    that([one for one, _ in steps] == rows, "cannot be repeated", "seed 3 twice: one order", "two orders")
    that([two for _, two in steps] != rows, "seed not used", "seeds 3 and 4: two orders", "one order")
    that(list(labels) == _NAMES, "changed its input", "labels stay as they are", describe(labels))
    with listed_backwards():
        turned = _start(function, folder, 3)
        order = [_which(turned, folder) for _ in range(6)]
    that(order == rows, "order of the listing", "one order, however the folder is listed", "another order")


def _which(source: Iterator, folder: Path) -> list[int]:
    images, _ = _pull(source, 1, folder)[0]
    return [_number(image) for image in np.asarray(images)]


# --- 03.4 -----------------------------------------------------------------------------------------------------------

# One training. Best: val_loss in epoch 2, by little, val_accuracy in 3, loss and accuracy in 4; worst: 1.
_LOSS = [1.9, 2.1, 1.7, 1.4, 0.9, 1.2, 1.3, 1.25, 1.2, 1.2, 1.2]
_ACCURACY = [0.25, 0.15, 0.4, 0.6, 0.9, 0.8, 0.7, 0.72, 0.7, 0.7, 0.7]
_VAL_LOSS = [1.51, 2.3, 1.5, 1.6, 1.7, 1.9, 2.0, 1.9, 1.8, 1.8, 1.8]
_VAL_ACCURACY = [0.3, 0.1, 0.5, 0.75, 0.6, 0.65, 0.55, 0.6, 0.6, 0.6, 0.6]
_LOWEST = 2  # the epoch of the lowest validation loss
_KNOWN = ("loss", "accuracy", "val_loss", "val_accuracy")


@task(
    "03.4",
    "Save the best, stop in time",
    objective=5,
    points=3,
    hints={
        "unknown name": "Keras puts `val_` before the name of the metric as `compile` has it. Which names are there?",
        "old ending": "A whole model goes into one file whose ending Keras knows. What does lesson 03 say it is?",
        "weights alone": "The file holds numbers without the model. Which argument saves weights only?",
        "another file name": "The file is called `best`, with one ending, in the folder that the function is given.",
        "nothing saved": "After the training the folder was empty. Which callback writes a file?",
        "saves the last epoch": "The file held the last epoch. Which argument keeps the best one alone?",
        "another epoch": "The file held an epoch that is best in nothing. When is it written, and when not?",
        "watches the training": "The file held the epoch that is best on the training data. Asked for is validation.",
        "watches the loss": "The file held the epoch of the lowest validation loss. Asked for is the accuracy.",
        "wrong direction": "The file held the worst epoch. Is a high accuracy good or bad? See `mode`.",
        "never stops": "The training went on to its last epoch. Which callback ends it, and what does it watch?",
        "stops too early": "It ended sooner than `patience` says. Is it passed on? Does a small fall count, too?",
        "stops too late": "It ended later than `patience` says. What does it watch, and is the argument passed on?",
    },
    note="The names are those that fit reports: val_ and the metric; the best model is one .keras file.",
)
def save_the_best(answer):
    function = a_function(answer, "folder, patience")
    with tempfile.TemporaryDirectory() as name:
        callbacks = _callbacks_of(function, Path(name), 3)
        yield
        ended = _pretend_to_fit(callbacks)
        saved = _saved_epoch(Path(name))
        early = f"patience 3: the last epoch is {_LOWEST + 3}"
        that(ended >= _LOWEST + 3, "stops too early", early, ended)  # first: it decides what can be saved
        that(saved != 2, "watches the loss", "the file holds epoch 3", "epoch 2")
        that(saved != 1, "wrong direction", "the file holds epoch 3, the most accurate", "epoch 1, the least accurate")
        that(saved != 4, "watches the training", "the file holds epoch 3", "epoch 4")
        is_known_mistake(saved, {"saves the last epoch": ended}, 3, "the epoch in the file")
        same(saved, 3, "another epoch", "the epoch in the file")
        yield
    with tempfile.TemporaryDirectory() as name:
        shorter = _pretend_to_fit(_callbacks_of(function, Path(name), 2))
    for patience, last in ((3, ended), (2, shorter)):
        what, right = f"patience {patience}: the last epoch", _LOWEST + patience
        that(last < len(_LOSS) - 1, "never stops", f"{what} is {right}", "no stop")
        that(last >= right, "stops too early", f"{what} is {right}", last)
        that(last <= right, "stops too late", f"{what} is {right}", last)
    yield


def _callbacks_of(function: Callable, folder: Path, patience: int) -> list:
    import keras

    try:
        returned = run(function, folder, patience, call=f"answer(folder, {patience})")
    except AnswerRaised as raised:
        if isinstance(raised.error, ValueError) and ".weights.h5" in str(raised.error):
            raise Wrong("weights alone", "the whole model is saved", "a ValueError about weights") from None
        if isinstance(raised.error, ValueError) and ".keras" in str(raised.error):  # it shows the path of the folder
            raise Wrong("old ending", "a file name that Keras takes", "a ValueError about the file name") from None
        raise
    is_alone = isinstance(returned, keras.callbacks.Callback)
    that(not is_alone, "wrong type", "a list of Keras callbacks", f"one {type(returned).__name__}")
    callbacks = a_list(returned, "what is returned")
    for callback in callbacks:
        is_one = isinstance(callback, keras.callbacks.Callback)
        that(is_one, "wrong type", "a list of Keras callbacks", f"in the list: {describe(callback)}")
        monitor = getattr(callback, "monitor", "loss")
        that(monitor in _KNOWN, "unknown name", f"one of {', '.join(_KNOWN)}", f"monitor={monitor!r}")
    return callbacks


def _pretend_to_fit(callbacks: list) -> int:
    """Call the callbacks as fit does, with the values above; the weight of the model is the number of the epoch."""
    import keras

    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, use_bias=False)])
    model.compile("sgd", "mse", metrics=["accuracy"], run_eagerly=True)
    model.train_on_batch(np.zeros((1, 1)), np.zeros((1, 1)))  # so that the metrics have names
    model.stop_training = False

    def training() -> int:
        everything = keras.callbacks.CallbackList(callbacks, model=model, epochs=len(_LOSS), verbose=0, steps=1)
        model.set_weights([np.full((1, 1), -1.0)])
        everything.on_train_begin()
        for epoch, values in enumerate(zip(_LOSS, _ACCURACY, _VAL_LOSS, _VAL_ACCURACY, strict=True)):
            everything.on_epoch_begin(epoch)
            model.set_weights([np.full((1, 1), float(epoch))])
            everything.on_epoch_end(epoch, dict(zip(_KNOWN, values, strict=True)))
            if model.stop_training:
                break
        everything.on_train_end()
        return epoch

    return attempt(training, "model.fit(..., callbacks=answer(folder, patience))")


def _saved_epoch(folder: Path) -> int:
    import keras

    found = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    if found == ["best.keras"]:
        return round(float(keras.saving.load_model(folder / "best.keras", compile=False).get_weights()[0][0, 0]))
    expected = "one file in the folder: best, and the ending"
    that(found, "nothing saved", expected, "no file")
    that(not found[0].endswith(".weights.h5"), "weights alone", expected, found[0])
    that(any(name.endswith(".keras") for name in found), "old ending", expected, found[0])
    raise Wrong("another file name", expected, ", ".join(found[:3]))


# --- 03.5 -----------------------------------------------------------------------------------------------------------

_OF_THE_DATASET = ("workers", "use_multiprocessing", "max_queue_size")
_BATCH_BYTES = 128 * 224 * 224 * 3 * 4
_FAMOUS = {
    "generator": "train batches",
    "steps_per_epoch": 157,
    "validation_data": "valid batches",
    "validation_steps": 19,
    "epochs": 25,
    "max_queue_size": 100,
    "callbacks": ["checkpoint", "early_stop"],
}
_CALLS = [  # (the old call, bytes of a batch, bytes of memory)
    (_FAMOUS, _BATCH_BYTES, 2 * 10**9),
    ({"generator": "batches", "steps_per_epoch": 14, "workers": 4, "use_multiprocessing": True}, 1000, 5000),
    ({"generator": "batches", "max_queue_size": 10, "workers": 2, "verbose": 0}, 1000, 10**6),
    ({"generator": "batches", "max_queue_size": 10, "class_weight": {0: 1.0, 1: 2.0}, "shuffle": False}, 1000, 700),
    ({"generator": "batches", "max_queue_size": 8, "initial_epoch": 3, "validation_freq": 2}, 1000, 3999),
    ({"generator": "batches"}, 1000, 5000),
    ({"generator": "batches", "max_queue_size": 5, "use_multiprocessing": False}, 1000, 5000),
]


@task(
    "03.5",
    "An old call on today's Keras",
    objective=6,
    points=4,
    hints={
        "the two swapped": "First what `fit` is given, then what the dataset is given.",
        "generator kept its name": "Today's `fit` has no such argument. What is its first one called?",
        "settings left in fit": "Today's `fit` refuses these. Workers and queue are settings of the dataset.",
        "an argument lost": "Something that the old call said is in the wrong dictionary, or in neither.",
        "an argument added": "The old call does not name it, or it stands in both. What is not named stays unnamed.",
        "another value": "An argument went to the right place with another value than the old call had.",
        "queue in a fraction": "A queue holds whole batches: round down, to an int.",
        "queue too large": "Multiply: batches in the queue times bytes of a batch. Is that within memory_bytes?",
        "queue of no batch": "A queue of 0 holds nothing, or in Keras is without a limit. One batch must fit.",
        "queue enlarged": "The old call asked for fewer batches than there is room for. Leave its number as it is.",
        "queue too small": "More batches fit, and the old call asked for more.",
    },
    note="fit takes the data as x; workers and queue belong to the dataset, and a queue is memory.",
)
def old_call(answer):
    function = a_function(answer, "old, batch_bytes, memory_bytes")
    pairs = []
    for number, case in enumerate(_CALLS):
        call = f"answer({{{', '.join(repr(key) for key in case[0])}}}, {case[1]}, {case[2]})"
        parts = a_list(run(function, *case, call=call), call)
        that(len(parts) == 2, "wrong shape", f"{call}: two dictionaries", f"{len(parts)} of them")
        for part in parts:
            that(isinstance(part, Mapping), "wrong type", f"{call}: two dictionaries", f"in it: {describe(part)}")
        that(number or "x" not in parts[1], "the two swapped", f"{call}: x is for fit", "x is for the dataset")
        pairs.append((call, *case, *map(dict, parts)))
    yield
    for call, old, _, _, for_fit, for_dataset in pairs:
        that("generator" not in for_fit, "generator kept its name", f"{call}: no 'generator'", f"{list(for_fit)}")
        left = [key for key in _OF_THE_DATASET if key in for_fit]
        that(not left, "settings left in fit", f"{call}: not in fit", ", ".join(left))
        wanted = {"x": old["generator"]} | {
            key: value for key, value in old.items() if key not in {"generator", *_OF_THE_DATASET}
        }
        _same_arguments(for_fit, wanted, f"{call}: for fit")
        _same_names(for_dataset, [key for key in _OF_THE_DATASET if key in old], f"{call}: for the dataset")
    yield
    for call, old, _, _, _, for_dataset in pairs:
        for key in ("workers", "use_multiprocessing"):
            if key in old:
                same(for_dataset[key], old[key], "another value", f"{call}: {key}")
    yield
    for call, old, batch_bytes, memory_bytes, _, for_dataset in pairs:
        if "max_queue_size" in old:
            _is_queue(for_dataset["max_queue_size"], old["max_queue_size"], batch_bytes, memory_bytes, call)
    yield


def _same_names(got: dict, wanted: list, what: str) -> None:
    lost, added = [key for key in wanted if key not in got], [key for key in got if key not in wanted]
    that(not lost, "an argument lost", f"{what}: {', '.join(map(str, lost))}", f"only {list(got)}")
    that(not added, "an argument added", f"{what}: {wanted}", f"also {', '.join(map(str, added))}")


def _same_arguments(got: dict, wanted: dict, what: str) -> None:
    _same_names(got, list(wanted), what)
    for key, value in wanted.items():
        same(got[key], value, "another value", f"{what}: {key}")


def _is_queue(got: object, old: int, batch_bytes: int, memory_bytes: int, call: str) -> None:
    what = f"{call}: max_queue_size"
    size = a_whole_number(got, what, "queue in a fraction")
    that(size >= 1, "queue of no batch", f"{what} of 1 or more", size)
    fits = max(1, memory_bytes // batch_bytes)
    that(size <= old, "queue enlarged", f"{what}: at most the old call's {old}", size)
    that(size <= fits, "queue too large", f"{what}: within {memory_bytes} bytes", f"{size} x {batch_bytes} bytes")
    that(size == min(old, fits), "queue too small", f"{what}: as much as fits, and was asked for", size)


# --- 03.6 -----------------------------------------------------------------------------------------------------------

_EPOCHS_SEEN = 3


@dataclass(frozen=True)
class _Food:
    """A small file, the rows of it that are asked for, and what is in them."""

    path: Path
    images: str
    labels: str
    rows: np.ndarray
    batch_size: int
    pixels: np.ndarray
    targets: np.ndarray

    @property
    def length(self) -> int:
        return -(-len(self.rows) // self.batch_size)

    @property
    def parts(self) -> list[list[int]]:
        """The rows in the order they are given, batch by batch."""
        size = self.batch_size
        return [self.rows[start : start + size].tolist() for start in range(0, len(self.rows), size)]


@dataclass(frozen=True)
class _Batch:
    images: np.ndarray
    labels: np.ndarray
    rows: list[int]


@task(
    "03.6",
    "Batches by number, from your own file",
    objective=4,
    points=5,
    hints={
        "no batch by number": "A dataset has a length and gives batch k when asked for [k]: `__len__`, `__getitem__`. "
        "A generator knows only the next one.",
        "length is no whole number": "`np.floor`, `np.ceil` and `/` give floats; `len` takes an int alone.",
        "labels missing": "Without targets there is nothing to learn from. A batch is a pair.",
        "rows not asked for": "The file has more rows than `rows` names. Batch k is a part of `rows`, not of the file.",
        "rounded down": "The rows after the last full batch are a batch as well, a smaller one.",
        "one batch too many": "When batch_size divides the number of rows, nothing is left over.",
        "wrong batch size": "All batches have batch_size rows, but for the last, which has the rest.",
        "whole file in memory": "Making the object and one batch took the memory of all images. Which line reads, and "
        "how many rows? The file is larger than the memory.",
        "pixels changed": "Look at dtype and values: a batch is what is in the file. Scaling belongs in the model.",
        "labels do not fit": "Images and labels of a batch came from different rows. Look at what was sorted or "
        "shuffled between the two reads.",
        "not in the order of rows": "Without shuffling, row k of all batches together is rows[k]. Sorting for HDF5 "
        "must be undone, or the rows be read in another way.",
        "shuffled all the same": "With shuffle=False each epoch has the order of `rows`. What does `on_epoch_end` do?",
        "rows twice": "In an epoch some row came twice, so another one did not come.",
        "never shuffled": "shuffle is True, and the batches are those of `rows` as given, in that order.",
        "only batches shuffled": "Each batch holds the rows it always held. What was mixed: rows, or batch numbers?",
        "same order each epoch": "Keras calls `on_epoch_end` after each epoch. What changes in your dataset then?",
        "cannot be repeated": "Two datasets of one seed gave different batches. Every random number comes from `seed`.",
        "seed not used": "Two seeds gave the same batches. Where does `seed` come in?",
        "depends on other calls": "Asked backwards, or while another dataset was at work, batch k was another one. "
        "What decides its rows, beside seed, epoch and k?",
        "KeyError": "In each file the datasets have other names. Which arguments are for that?",
        "TypeError": "HDF5 takes a list of rows only when it increases. Lesson 02 has ways around that.",
        "ends like a generator": "StopIteration says that nothing is left. Who asks by number has `len` for that: "
        "each batch below it is there, as often as it is asked for.",
    },
    note="Batch k of an epoch is a function of the seed, the epoch and k: on any file, and for any number of workers.",
)
def batches_by_number(answer):
    function = a_function(answer, "path, images, labels, rows, batch_size, shuffle, seed")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        foods = _foods(Path(name))
        plain = [_made(function, food, shuffle=False) for food in foods]
        for made in plain:
            _raw_batch(made, 0)
        yield
        for made in plain:
            _has_length(made)
        first = [_epoch(made) for made in plain]
        _reads_little(function, Path(name))
        yield
        for made, batches in zip(plain, first, strict=True):
            _in_order(made, batches)
        yield
        shuffled = [_shuffles(_made(function, food, shuffle=True)) for food in foods]
        yield
        for food, epochs in zip(foods, shuffled, strict=True):
            _by_number_alone(function, food, epochs)
        yield


def _foods(folder: Path) -> list[_Food]:
    """One file of 28 rows, 17 of them asked for; one of 24 with other names, 16 of them asked for."""
    rng = np.random.default_rng(0)
    return [
        _food(rng, folder / "food.h5", ("train_img", "train_labels"), (28, 8, 6, 3), wanted=17, batch_size=5),
        _food(rng, folder / "other.h5", ("photos/pixels", "photos/kinds"), (24, 6, 8, 3), wanted=16, batch_size=4),
    ]


def _food(rng, path: Path, names: tuple[str, str], shape: tuple, *, wanted: int, batch_size: int) -> _Food:
    pixels = rng.integers(0, 256, shape, dtype=np.uint8)
    targets = np.eye(4, dtype="float32")[rng.permutation(shape[0]) % 4]
    with h5py.File(path, "w") as file:
        file[names[0]], file[names[1]] = pixels, targets
    return _Food(path, *names, rng.permutation(shape[0])[:wanted], batch_size, pixels, targets)


def _reads_little(function: Callable, folder: Path) -> None:
    """An object and one batch of it take much less memory than all images."""
    food = _food(
        np.random.default_rng(1), folder / "large.h5", ("x", "y"), (1500, 32, 32, 3), wanted=1500, batch_size=4
    )
    taken = peak_bytes(lambda: _raw_batch(_made(function, food, shuffle=True), 0))
    what = "an object and one batch of 4"
    that(taken < food.pixels.nbytes / 2, "whole file in memory", f"{what}: much less than all 1500 images", "as much")


@dataclass(frozen=True)
class _Made:
    """A dataset of the learner's, and the rows that it was given."""

    dataset: object
    food: _Food
    rows: np.ndarray
    call: str

    def rows_are_as_given(self) -> None:
        kept = np.array_equal(self.rows, self.food.rows)
        that(kept, "changed its input", f"{self.call}: rows stay as they are", "another order of rows")


def _made(function: Callable, food: _Food, *, shuffle: bool, seed: int = 3) -> _Made:
    call = f"answer(path, {food.images!r}, {food.labels!r}, rows, {food.batch_size}, {shuffle}, {seed})"
    rows = food.rows.copy()  # kept at hand: it may be changed at any later call
    args = food.path, food.images, food.labels, rows, food.batch_size, shuffle, seed
    dataset = attempt(lambda: function(*args), call)
    that(dataset is not None, "forgot to return", f"{call} returns something", "None")
    lacks = [name for name in ("__len__", "__getitem__") if not hasattr(type(dataset), name)]
    got = f"{describe(dataset) if lacks == ['__getitem__'] else type(dataset).__name__} without {' and '.join(lacks)}"
    that(not lacks, "no batch by number", f"{call} has a length and items", got)
    made = _Made(dataset, food, rows, call)
    made.rows_are_as_given()
    return made


def _raw_batch(made: _Made, index: int) -> tuple:
    call = f"{made.call}[{index}]"
    try:
        batch = attempt(lambda: made.dataset[index], call)
    except AnswerRaised as raised:
        if isinstance(raised.error, StopIteration):
            raise Wrong("ends like a generator", f"{call} is a batch", "StopIteration") from None
        raise
    _is_pair(batch, call)
    return batch


def _batch(made: _Made, index: int) -> _Batch:
    call, food = f"{made.call}[{index}]", made.food
    images, labels = map(np.asarray, _raw_batch(made, index))
    that(images.dtype == np.uint8, "pixels changed", f"{call}: images of uint8, as in the file", f"of {images.dtype}")
    of_shape(images, (None, *food.pixels.shape[1:]), f"{call}: images")
    known = {image.tobytes(): row for row, image in enumerate(food.pixels)}
    rows = [known.get(image.tobytes(), -1) for image in images]
    that(-1 not in rows, "pixels changed", f"{call}: images of the file", "other pixels")
    that(
        set(rows) <= set(food.rows.tolist()), "rows not asked for", f"{call}: some of `rows`", "other rows of the file"
    )
    made.rows_are_as_given()
    return _Batch(images, labels, rows)


def _has_length(made: _Made) -> None:
    what, food = f"{made.call}: len", made.food
    try:
        length = attempt(lambda: len(made.dataset), f"len({made.call})")
    except AnswerRaised as raised:
        if "cannot be interpreted as an integer" in str(raised.error):
            raise Wrong("length is no whole number", f"{what}: {food.length}", f"TypeError: {raised.error}") from None
        raise
    right, n = food.length, len(food.rows)
    is_known_mistake(length, {"rows not asked for": -(-len(food.pixels) // food.batch_size)}, right, what)
    is_known_mistake(length, {"rounded down": n // food.batch_size, "one batch too many": right + 1}, right, what)
    same(length, right, "wrong batch size", what)


def _epoch(made: _Made) -> list[_Batch]:
    batches = [_batch(made, index) for index in range(made.food.length)]
    sizes, right = [len(batch.rows) for batch in batches], [len(part) for part in made.food.parts]
    that(sizes == right, "wrong batch size", f"{made.call}: batches of {right} rows", f"of {sizes}")
    return batches


def _next_epoch(made: _Made) -> None:
    if not callable(getattr(made.dataset, "on_epoch_end", None)):
        raise Wrong("same order each epoch", f"{made.call} has a method on_epoch_end", "it has none")
    attempt(made.dataset.on_epoch_end, f"{made.call}.on_epoch_end()")
    made.rows_are_as_given()


def _labels_fit(made: _Made, batches: list[_Batch]) -> None:
    for index, batch in enumerate(batches):
        right = made.food.targets[batch.rows]
        of_shape(batch.labels, right.shape, f"{made.call}[{index}]: labels")
        that(
            np.array_equal(batch.labels, right),
            "labels do not fit",
            f"{made.call}[{index}]: the labels of rows {batch.rows}",
            "labels of other rows",
        )


def _in_order(made: _Made, batches: list[_Batch]) -> None:
    _labels_fit(made, batches)
    found = [batch.rows for batch in batches]
    that(found == made.food.parts, "not in the order of rows", f"{made.call}: rows {made.food.parts}", found)
    if hasattr(made.dataset, "on_epoch_end"):
        _next_epoch(made)
        same_again = [batch.rows for batch in _epoch(made)] == found
        that(same_again, "shuffled all the same", f"{made.call}: one order in all epochs", "another one in the second")


def _shuffles(made: _Made) -> list[list[_Batch]]:
    """The batches of a few epochs, each a fresh shuffle of all rows."""
    epochs = []
    for number in range(_EPOCHS_SEEN):
        if number:
            _next_epoch(made)
        batches = _epoch(made)
        _labels_fit(made, batches)
        rows = [row for batch in batches for row in batch.rows]
        that(len(set(rows)) == len(rows), "rows twice", f"{made.call}: each row once an epoch", f"rows {rows}")
        epochs.append(batches)
    given = [frozenset(part) for part in made.food.parts]
    parts = [[frozenset(batch.rows) for batch in batches] for batches in epochs]
    that(parts[0] != given, "never shuffled", f"{made.call}: rows in mixed order", "the order of `rows`")
    mixed = set(parts[0]) != set(given) and set(parts[1]) != set(parts[0])
    other = all(one != two for one, two in itertools.combinations(parts, 2))
    that(other, "same order each epoch", f"{made.call}: another order in each of {_EPOCHS_SEEN} epochs", "the same")
    that(mixed, "only batches shuffled", f"{made.call}: batches of other rows", "the same rows together")
    return epochs


def _by_number_alone(function: Callable, food: _Food, epochs: list[list[_Batch]]) -> None:
    wanted = [[batch.rows for batch in batches] for batches in epochs]
    again = _rows_of_epochs(_made(function, food, shuffle=True))
    that(again == wanted, "cannot be repeated", "seed 3 twice: the same batches", "other batches")
    other = _rows_of_epochs(_made(function, food, shuffle=True, seed=4))
    that(other != wanted, "seed not used", "seeds 3 and 4: other batches", "the same batches")
    turned, bystander = (_made(function, food, shuffle=True, seed=seed) for seed in (3, 5))
    for batches in wanted:
        _batch(bystander, 0)
        for index in [*reversed(range(food.length)), 1, 0]:
            found = _batch(turned, index).rows
            what = f"{turned.call}[{index}] is one batch, whoever asks for what before"
            that(found == batches[index], "depends on other calls", what, "another batch")
        _next_epoch(bystander)
        _next_epoch(turned)


def _rows_of_epochs(made: _Made) -> list[list[list[int]]]:
    epochs = []
    for number in range(_EPOCHS_SEEN):
        if number:
            _next_epoch(made)
        epochs.append([batch.rows for batch in _epoch(made)])
    return epochs

"""Augmentation at the ends of its ranges, with odd images and odd functions: no wrap, no moved label, no twin."""

from __future__ import annotations

import itertools
import subprocess
import sys

import h5py
import numpy as np
import pytest
from coded import classes_of, coded_images, rows_of

from helpers import Augment, CenterCrop, HDF5Sequence, fit_generator
from helpers.augment import FILLS
from helpers.batches import BatchSource

EVERYTHING = {"rotation": 20, "width_shift": 0.1, "height_shift": 0.1, "shear": 10, "zoom": (0.8, 1.2)}
EVERYTHING |= {"horizontal_flip": True, "vertical_flip": True, "brightness": (0.7, 1.3)}


@pytest.fixture
def image():
    """Random pixels, 32 x 28."""
    return np.random.default_rng(7).integers(0, 256, (32, 28, 3), dtype=np.uint8)


# -- arithmetic -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("factor", [1e-300, 0.01, 0.5, 1, 1.02, 1.2, 2, 9.99, 10])
def test_every_pixel_value_is_as_bright_as_in_floats(factor):
    """All 256 values times a factor, rounded and cut off: nothing wraps from white to black."""
    values = np.arange(256, dtype=np.uint8).reshape(16, 16, 1).repeat(3, axis=2)
    result = Augment(brightness=(factor, factor))(values, np.random.default_rng(0))
    wanted = np.clip(values.astype(np.float64) * factor, 0, 255)
    assert np.abs(result - wanted).max() <= 0.5
    assert result.dtype == np.uint8


A_FACTOR = "It is a factor: 1 changes nothing, 0.8 is 80 per cent."
BY_CHANCE = "Every other image is mirrored, by chance."
ODD_ARGUMENTS = {
    "brightness in per cent": ({"brightness": (80, 120)},
                               f"brightness must be at most 10; got (80.0, 120.0). {A_FACTOR}"),
    "a brightness that OpenCV makes black": ({"brightness": (1, 1e10)},
                                             f"brightness must be at most 10; got (1.0, 10000000000.0). {A_FACTOR}"),
    "a zoom that takes minutes": ({"zoom": (1, 1e9)}, f"zoom must be at most 10; got (1.0, 1000000000.0). {A_FACTOR}"),
    "a zoom without end": ({"zoom": (1, float("inf"))}, f"zoom must be at most 10; got (1.0, inf). {A_FACTOR}"),
    "a zoom that is no number": ({"zoom": (float("nan"), 1)},
                                 "zoom must be (low, high) with 0 < low <= high; got (nan, 1.0)."),
    "a zoom as a word": ({"zoom": "12"}, "zoom must be two factors (low, high); got '12'."),
    "a zoom of truths": ({"zoom": (True, 2)}, "zoom must be two factors (low, high); got (True, 2)."),
    "three factors": ({"brightness": (1, 1, 2)}, "brightness must be two factors (low, high); got (1, 1, 2)."),
    "a rotation as a truth": ({"rotation": True}, "rotation must be a number from 0 to 180 degrees; got True."),
    "a rotation that is no number": ({"rotation": float("nan")},
                                     "rotation must be a number from 0 to 180 degrees; got nan."),
    "a probability of a flip": ({"horizontal_flip": 0.5},
                                f"horizontal_flip must be True or False; got 0.5. {BY_CHANCE}"),
    "a word for a flip": ({"vertical_flip": "no"}, f"vertical_flip must be True or False; got 'no'. {BY_CHANCE}"),
}  # fmt: skip


@pytest.mark.parametrize("case", ODD_ARGUMENTS)
def test_arguments_that_mean_something_else_are_refused(case):
    """Per cents, probabilities and words would be taken, and change the images in another way."""
    arguments, message = ODD_ARGUMENTS[case]
    with pytest.raises((TypeError, ValueError)) as caught:
        Augment(**arguments)
    assert str(caught.value) == message


def test_numbers_of_numpy_are_taken(image):
    """As they come out of arithmetic with arrays."""
    ours = Augment(rotation=np.float32(5), zoom=np.array([0.5, 1]), horizontal_flip=np.True_, crop=np.array([8, 8]))
    plain = Augment(rotation=5, zoom=(0.5, 1), horizontal_flip=True, crop=(8, 8))
    assert repr(ours) == repr(plain)
    np.testing.assert_array_equal(ours(image, np.random.default_rng(1)), plain(image, np.random.default_rng(1)))


@pytest.mark.parametrize("augment", [Augment(brightness=(0.5, 1)), Augment(rotation=5), CenterCrop((1, 1))], ids=repr)
@pytest.mark.parametrize("shape", [(0, 5, 3), (5, 0, 3)])
def test_an_image_without_pixels_is_refused(augment, shape):
    """In words, where OpenCV speaks of its overloads."""
    with pytest.raises(ValueError) as caught:  # noqa: PT011 (the whole sentence is compared)
        augment(np.zeros(shape, np.uint8), np.random.default_rng(0))
    assert str(caught.value) == f"augment needs an image of at least 1 pixel; got shape {shape}."


# -- images -----------------------------------------------------------------------------------------------------------


def read_only(image):
    copy = image.copy()
    copy.setflags(write=False)
    return copy


VIEWS = {
    "upside down": lambda image: image[::-1, ::-1],
    "colours the other way round": lambda image: image[..., ::-1],
    "every third": lambda image: image[::2, ::3],
    "turned": lambda image: image.transpose(1, 0, 2),
    "in the order of Fortran": np.asfortranarray,
    "read-only": read_only,
    "one pixel repeated": lambda image: np.broadcast_to(image[:1, :1], image.shape),
    "one pixel": lambda image: image[:1, :1],
    "one line": lambda image: image[:1],
}


@pytest.mark.parametrize("case", VIEWS)
@pytest.mark.parametrize("changes", [{"horizontal_flip": True}, {"brightness": (0.5, 2)}, EVERYTHING], ids=len)
def test_an_image_in_any_memory_is_changed_alike(image, case, changes):
    """A view gives the bytes that its copy gives, and what it looks at stays as it was."""
    view, before = VIEWS[case](image), image.copy()
    for seed in range(4):
        result = Augment(**changes)(view, np.random.default_rng(seed))
        np.testing.assert_array_equal(result, Augment(**changes)(view.copy(order="C"), np.random.default_rng(seed)))
        assert not np.shares_memory(result, view)
    np.testing.assert_array_equal(image, before)


BORDERS = {"rotation": 180, "width_shift": 1, "height_shift": 1, "shear": 60, "zoom": (0.05, 10)}


@pytest.mark.parametrize("fill", [fill for fill in FILLS if fill != "constant"])
@pytest.mark.parametrize("name", [*BORDERS, "all"])
def test_the_label_is_in_the_pixels_at_every_border(coded_file, name, fill):
    """At the ends of each range, in random order: the class and row of an image are those of its label."""
    changes = BORDERS if name == "all" else {name: BORDERS[name]}
    augment = Augment(**changes, fill=fill, horizontal_flip=True, vertical_flip=True)
    source = BatchSource(coded_file, batch_size=20, augment=augment)
    seen = []
    for index in range(len(source)):
        images, labels = source.batch(1, index)
        assert images.dtype == np.uint8
        np.testing.assert_array_equal(labels.argmax(axis=1), classes_of(images))
        seen += rows_of(images).tolist()
    source.close()
    assert sorted(seen) == list(range(103))


# -- functions of the user --------------------------------------------------------------------------------------------


def blackens(image, rng):
    image[rng.integers(16)] = 0
    return image


FUNCTIONS = {
    "changes its image in place": blackens,
    "gives a view of it": lambda image, rng: image[::-1, 4:12],
    "gives it read-only": lambda image, rng: np.broadcast_to(image[:1, :1], image.shape),
    "gives it in the order of Fortran": lambda image, rng: np.asfortranarray(image),
}


@pytest.mark.parametrize("case", FUNCTIONS)
@pytest.mark.parametrize("wrapped", [False, True], ids=["bare", "in Augment"])
def test_a_function_gets_the_image_of_the_file_each_time(coded_file, case, wrapped):
    """Rows that come twice, in one batch and in the next, start from the file, whatever was done to them before."""
    function = FUNCTIONS[case]
    rows = [7, 7, 3, 7]
    augment = Augment(function=function) if wrapped else function
    source = BatchSource(coded_file, rows=rows, batch_size=4, shuffle=None, augment=augment)
    first, second = source.batch(0, 0)[0].copy(), source.batch(0, 0)[0]
    source.close()
    np.testing.assert_array_equal(first, second)
    np.testing.assert_array_equal(first[0], first[3])
    for row, result in zip(rows, first, strict=True):
        rng = np.random.default_rng([0, 0, row])
        if wrapped:
            Augment()(coded_images([row])[0], rng)  # what the other changes draw
        np.testing.assert_array_equal(result, function(coded_images([row])[0], rng))
    with h5py.File(coded_file) as file:
        np.testing.assert_array_equal(file["train_img"][:], coded_images(np.arange(103)))


BAD_RESULTS = {
    "nothing": (lambda image, rng: image.fill(0), "NoneType"),
    "0 to 1": (lambda image, rng: image / 255, "shape (16, 16, 3) of float64"),
    "not a number": (lambda image, rng: np.full_like(image, np.nan, np.float32), "shape (16, 16, 3) of float32"),
    "beyond 255": (lambda image, rng: image.astype(np.int64) + 300, "shape (16, 16, 3) of int64"),
    "a mask": (lambda image, rng: image > 5, "shape (16, 16, 3) of bool"),
    "grey": (lambda image, rng: image[..., :1], "shape (16, 16, 1) of uint8"),
    "with alpha": (lambda image, rng: np.dstack([image, image[..., 0]]), "shape (16, 16, 4) of uint8"),
    "a batch": (lambda image, rng: image[None], "shape (1, 16, 16, 3) of uint8"),
    "image and label": (lambda image, rng: (image, 0), "tuple"),
    "a list": (lambda image, rng: image.tolist(), "list"),
}


@pytest.mark.parametrize("case", BAD_RESULTS)
def test_a_function_that_gives_no_image_is_refused_at_once(coded_file, case):
    """When the source is made, not at the first batch in a worker; nothing is cast."""
    function, got = BAD_RESULTS[case]
    with pytest.raises(TypeError) as caught:
        BatchSource(coded_file, augment=function)
    assert str(caught.value) == (
        f"augment must return a (height, width, 3) uint8 array; got {got}. Scaling to float belongs into the model: "
        "helpers.models.normalization."
    )


def test_a_function_that_cuts_all_away_is_refused(coded_file):
    """Images of no height would be trained on."""
    with pytest.raises(
        ValueError, match=r"^augment must return an image of at least 1 pixel; got shape \(0, 16, 3\)\.$"
    ):
        BatchSource(coded_file, augment=lambda image, rng: image[:0])


LATER = {
    "another size": (lambda image: image[:8], ValueError, "augment must return images of one shape; row 37 became (8, "
                     "16, 3), the first image (16, 16, 3)."),
    "floats": (lambda image: image / 255, TypeError, "augment must return a (height, width, 3) uint8 array; got shape "
               "(16, 16, 3) of float64. Scaling to float belongs into the model: helpers.models.normalization."),
    "nothing": (lambda image: None, TypeError, "augment must return a (height, width, 3) uint8 array; got NoneType. "
                "Scaling to float belongs into the model: helpers.models.normalization."),
}  # fmt: skip


@pytest.mark.parametrize("case", LATER)
def test_one_odd_result_in_the_middle_is_an_error_with_its_place(coded_file, case):
    """Each image is looked at, not the first one alone; the note names the batch."""
    change, error, message = LATER[case]
    source = BatchSource(
        coded_file, batch_size=8, shuffle=None,
        augment=lambda image, rng: change(image) if rows_of(image[None])[0] == 37 else image,
    )  # fmt: skip
    with pytest.raises(error) as caught:
        source.batch(0, 4)
    source.close()
    assert str(caught.value) == message
    assert caught.value.__notes__[0].startswith("while making batch 4 of epoch 0 (rows 32, 33, 34, 35, 36, 37, 38, 39)")


# -- chance -----------------------------------------------------------------------------------------------------------


def writes_a_draw(image, rng):
    """Two bytes of chance into the blue channel; row and class stay readable in the others."""
    image[..., 2] = rng.integers(256)
    image[0, 0, 2] = rng.integers(256)
    return image


def draws_of(batches) -> dict[int, tuple[int, int]]:
    """Row -> what its function drew."""
    return {
        row: (int(image[8, 8, 2]), int(image[0, 0, 2]))
        for images, _ in batches
        for row, image in zip(rows_of(images).tolist(), images, strict=True)
    }


SERVED = {
    "in other batches": {"batch_size": 7},
    "in the order of the file": {"shuffle": None},
    "in blocks": {"shuffle": "block"},
    "the last ones alone": {"rows": np.arange(90, 103), "images": "train_img", "labels": "train_labels"},
}


@pytest.mark.parametrize("case", SERVED)
def test_an_image_draws_the_same_however_it_is_served(coded_file, case):
    """Chance comes from seed, epoch and row alone."""
    with HDF5Sequence(coded_file, batch_size=10, augment=writes_a_draw) as plain:
        expected = draws_of(plain)
    with HDF5Sequence(coded_file, augment=writes_a_draw, **{"batch_size": 10, **SERVED[case]}) as other:
        drawn = draws_of(other)
    assert drawn == {row: expected[row] for row in drawn}
    assert len(drawn) == (13 if "rows" in SERVED[case] else 103)


def test_shards_draw_as_one_process_does(coded_file):
    """Two machines that share an epoch are no twins of each other."""
    with HDF5Sequence(coded_file, batch_size=10, augment=writes_a_draw) as whole:
        expected = draws_of(whole)
    shards = []
    for number in range(2):
        with HDF5Sequence(coded_file, batch_size=5, shard=(number, 2), augment=writes_a_draw) as shard:
            shards.append(draws_of(shard))
    assert shards[0].keys().isdisjoint(shards[1])
    assert shards[0] | shards[1] == expected


def test_epochs_and_seeds_draw_anew(coded_file):
    """Of 103 images not ten draw the same two bytes in another epoch or under another seed."""
    drawn = []
    for seed, epoch in itertools.product(range(2), range(3)):
        with HDF5Sequence(coded_file, batch_size=10, seed=seed, augment=writes_a_draw) as sequence:
            sequence.set_position(epoch)
            drawn.append(draws_of(sequence))
    for first, second in itertools.combinations(drawn, 2):
        assert sum(first[row] == second[row] for row in range(103)) < 10
    assert all(len(set(draws.values())) > 95 for draws in drawn)  # no twins within an epoch


# -- dependencies -----------------------------------------------------------------------------------------------------

WITHOUT = """
import sys

for name in ("scipy", "PIL", "keras", "tensorflow", "tf_keras"):
    sys.modules[name] = None  # an import of it is an error
from helpers import Augment
from helpers.batches import BatchSource

source = BatchSource(sys.argv[1], batch_size=103, augment=Augment(**eval(sys.argv[2])))
print(source.batch(0, 0)[0].shape)
source.close()
"""


def test_augmentation_needs_nothing_but_numpy_and_opencv(coded_file):
    """Where Keras 2's ImageDataGenerator asks for SciPy at the first batch, every change here works without."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, coded_file, repr(EVERYTHING)], capture_output=True, text=True, check=False
    )
    assert (done.stderr, done.stdout) == ("", "(103, 16, 16, 3)\n")


def test_a_worker_process_augments_without_scipy(coded_file):
    """The same in the process of a worker, which is a program of its own."""
    keras = pytest.importorskip("keras")

    def look(image, rng):
        del rng
        if "scipy" in sys.modules:
            raise ImportError("scipy was imported")
        return image

    model = keras.Sequential([keras.Input((16, 16, 3)), keras.layers.Flatten(), keras.layers.Dense(5)])
    model.compile("sgd", "mse", run_eagerly=True)
    with HDF5Sequence(coded_file, batch_size=32) as sequence:
        sequence.source.augment = Augment(**EVERYTHING, function=look)  # not tried in this process, where SciPy may be
        fit_generator(model, sequence, verbose=0, workers=1, use_multiprocessing=True)
        assert sequence.position == (1, 0)

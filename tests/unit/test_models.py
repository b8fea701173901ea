"""Models: exact scaling, equal seeds, and bases that get the range they want."""

from __future__ import annotations

import urllib.error

import h5py
import keras
import numpy as np
import pytest

from helpers.device import precision
from helpers.layout import IncompleteFileError, LayoutError
from helpers.models import BASES, WeightsError, normalization, small_cnn, transfer_model, transfer_or_scratch, unfreeze

# Keras 3.15 converts TensorFlow variables by np.array(), for which NumPy 2 asks for a new signature.
saves_models = pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy:DeprecationWarning")


@pytest.fixture
def images() -> np.ndarray:
    """Four images with every value from 0 to 255, (4, 16, 16, 3) uint8."""
    return np.random.default_rng(0).permutation(np.arange(4 * 16 * 16 * 3) % 256).astype(np.uint8).reshape(4, 16, 16, 3)


def test_normalization_is_x_minus_mean_over_127_5(coded_file, images):
    """uint8 in, float32 out, with the mean of each channel from the file, whatever the dtype policy of the input."""
    with h5py.File(coded_file) as file:
        mean = file.attrs["mean"]
    result = keras.ops.convert_to_numpy(normalization(coded_file)(images))
    assert result.dtype == np.float32
    np.testing.assert_allclose(result, (images.astype(np.float64) - mean) / 127.5, atol=5e-7)


@saves_models
def test_a_saved_model_loads_without_the_file(coded_file, images, tmp_path):
    """The mean is part of the model, and no custom object is needed."""
    model = small_cnn((16, 16, 3), 5, normalization=normalization(coded_file))
    model.save(tmp_path / "model.keras")
    coded_file.unlink()
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(loaded(images), model(images))


def test_a_foreign_file_without_mean_is_refused_with_the_alternative(coded_file):
    """The sentence names the layer to use instead."""
    with h5py.File(coded_file, "r+") as file:
        del file.attrs["mean"]
    with pytest.raises(LayoutError) as caught:
        normalization(coded_file)
    assert str(caught.value) == (
        f"{coded_file} stores no channel means, so it was not written by this kit. Scale with "
        "keras.layers.Rescaling(1 / 127.5, offset=-1) instead, or rebuild the file: data_scripts.build_hdf5."
    )


def test_an_incomplete_file_is_refused(coded_file):
    """Its mean would be that of a part."""
    with h5py.File(coded_file, "r+") as file:
        file.attrs["complete"] = False
    with pytest.raises(IncompleteFileError, match="is incomplete"):
        normalization(coded_file)


def test_equal_seeds_make_equal_models(images):
    """All weights of small_cnn come from its seed, not from a global state."""
    keras.utils.set_random_seed(1)
    first = small_cnn((16, 16, 3), 5, seed=3)
    keras.utils.set_random_seed(2)
    second, other = small_cnn((16, 16, 3), 5, seed=3), small_cnn((16, 16, 3), 5, seed=4)
    np.testing.assert_array_equal(first(images), second(images))
    assert not np.array_equal(first(images), other(images))


def test_small_cnn_is_small():
    """Some 80,000 weights for 8 classes, a quarter of them at width 8; probabilities come out."""
    model = small_cnn((64, 64, 3), 8)
    assert model.count_params() == 80_376
    assert small_cnn((64, 64, 3), 8, width=8).count_params() == 20_608
    result = keras.ops.convert_to_numpy(model(np.zeros((2, 64, 64, 3), np.uint8)))
    assert result.shape == (2, 8)
    np.testing.assert_allclose(result.sum(axis=1), 1, rtol=1e-6)


def test_small_cnn_without_normalization_scales_to_one(images):
    """0 becomes -1 and 255 becomes 1."""
    scale = small_cnn((16, 16, 3), 5).layers[1]
    result = keras.ops.convert_to_numpy(scale(images))
    np.testing.assert_allclose([result.min(), result.max()], [-1, 1], atol=1e-6)


def test_small_cnn_learns(coded_file):
    """A few steps on 64 coded images lower the loss."""
    with h5py.File(coded_file) as file:
        images, labels = file["train_img"][:64], file["train_labels"][:64]
    model = small_cnn((16, 16, 3), 5, normalization=normalization(coded_file), width=4)
    model.compile(keras.optimizers.Adam(0.01), "categorical_crossentropy")
    losses = model.fit(images, labels, batch_size=16, epochs=8, verbose=0, shuffle=False).history["loss"]
    assert losses[-1] < 0.7 * losses[0]


@pytest.mark.parametrize("base", ["MobileNetV2", "MobileNetV3Small"])
def test_a_base_gets_the_range_it_was_trained_with(base):
    """-1 to 1 for one family, 0 to 255 for the other: what the base's own preprocess_input would give it."""
    model = transfer_model((32, 32, 3), 4, base)
    pixels = np.arange(32 * 32 * 3, dtype=np.int64).reshape(1, 32, 32, 3) % 256
    module = {"MobileNetV2": keras.applications.mobilenet_v2, "MobileNetV3Small": keras.applications.mobilenet_v3}[base]
    given = keras.ops.convert_to_numpy(model.layers[1](pixels.astype(np.uint8)))
    np.testing.assert_allclose(given, module.preprocess_input(pixels.astype(np.float32)), atol=1e-6)


def test_every_base_is_in_keras_and_its_range_is_the_one_keras_documents():
    """A scaled base has a preprocess_input to -1 .. 1; the others have one that does nothing."""
    modules = {
        "InceptionV3": "inception_v3",
        "Xception": "xception",
        "MobileNetV2": "mobilenet_v2",
        "ResNet50V2": "resnet_v2",
        "EfficientNetV2B0": "efficientnet_v2",
        "EfficientNetV2S": "efficientnet_v2",
        "MobileNetV3Small": "mobilenet_v3",
    }
    assert set(modules) == set(BASES)
    for base, module in modules.items():
        ends = getattr(keras.applications, module).preprocess_input(np.array([[[[0.0, 127.5, 255.0]]]], np.float32))
        expected = [-1, 0, 1] if BASES[base].scaled else [0, 127.5, 255]
        np.testing.assert_allclose(np.ravel(ends), expected, atol=1e-6, err_msg=base)


@saves_models
def test_weights_from_a_file_freeze_the_base(tmp_path):
    """The base gets the weights and stays as it is; only the new layer trains."""
    source = keras.applications.MobileNetV2(include_top=False, weights=None, input_shape=(32, 32, 3))
    source.save_weights(tmp_path / "base.weights.h5")
    model = transfer_model((32, 32, 3), 4, "MobileNetV2", weights=tmp_path / "base.weights.h5")
    for ours, theirs in zip(model.layers[2].get_weights(), source.get_weights(), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert len(model.trainable_weights) == 2
    assert len(transfer_model((32, 32, 3), 4, "MobileNetV2").trainable_weights) > 100


def test_no_network_is_said_with_the_way_out(monkeypatch):
    """A failed download names the choices, and nothing is trained from scratch in silence."""

    def offline(**options):
        raise Exception(f"URL fetch failure on https://example.org: None -- no network for {options['weights']}")

    monkeypatch.setattr(keras.applications, "MobileNetV2", offline)
    with pytest.raises(WeightsError) as caught:
        transfer_model((32, 32, 3), 4, "MobileNetV2", weights="imagenet")
    assert str(caught.value) == (
        "the ImageNet weights of MobileNetV2 could not be downloaded; is there a network? Pass weights=None to train "
        "from scratch, or the path of a weights file copied from another machine (~/.keras/models)."
    )


@pytest.fixture
def blocked(monkeypatch, tmp_path):
    """A machine without a network and without weights of earlier downloads; the list of what was asked for."""
    asked = []

    def refuse(url, *args):
        asked.append(url)
        raise urllib.error.URLError("Name or service not known")

    monkeypatch.setattr("keras.src.utils.file_utils.urlretrieve", refuse)
    monkeypatch.setattr("keras.src.backend.config.keras_home", lambda: str(tmp_path))
    return asked


def test_without_network_training_from_scratch_is_said_in_one_line(blocked, capsys):
    """Keras tries its download, and what follows is never silent; the whole model is trained then."""
    model = transfer_or_scratch((33, 32, 3), 4, "MobileNetV2", train_base=False)
    assert [url.rsplit("/", 1)[1][:12] for url in blocked] == ["mobilenet_v2"]
    assert capsys.readouterr().out.splitlines()[-1] == (
        "MobileNetV2 starts FROM SCRATCH: its ImageNet weights are not on this machine and could not be downloaded. "
        "All of it is trained. To change this, copy their file from another machine and pass its path as weights."
    )
    assert len(model.trainable_weights) > 100


@pytest.mark.parametrize(
    "error",
    [
        TimeoutError("timed out"),
        ConnectionResetError(104, "reset"),
        ValueError("Incomplete or corrupted file detected."),
    ],
    ids=["silent server", "line lost", "half a file"],
)
def test_every_failed_download_is_one(error, monkeypatch):
    """A server that falls silent, a lost line and half a file count as no network."""

    def fail(**options):
        raise error

    monkeypatch.setattr(keras.applications, "MobileNetV2", fail)
    with pytest.raises(WeightsError, match="the ImageNet weights of MobileNetV2 could not be downloaded"):
        transfer_model((32, 32, 3), 4, "MobileNetV2", weights="imagenet")


def test_another_error_of_keras_is_not_taken_for_a_missing_network(monkeypatch):
    """A fault in an argument is no reason to train from scratch."""

    def fail(**options):
        raise ValueError("something else")

    monkeypatch.setattr(keras.applications, "MobileNetV2", fail)
    with pytest.raises(ValueError, match="^something else$"):
        transfer_or_scratch((32, 32, 3), 4, "MobileNetV2")


def test_a_mistyped_path_is_an_error_and_no_training_from_scratch(tmp_path, capsys):
    """Only a download may fail; a path that was given must be there."""
    with pytest.raises(WeightsError, match="nowhere.h5 does not exist"):
        transfer_or_scratch((32, 32, 3), 4, "MobileNetV2", weights=tmp_path / "nowhere.h5")
    assert capsys.readouterr().out == ""


@pytest.fixture
def tiny_base(monkeypatch):
    """MobileNetV2 made of one convolution and one batch normalization, to train in a second."""

    def build(weights, include_top, input_shape):
        inputs = keras.Input(input_shape)
        x = keras.layers.Conv2D(4, 3, strides=4)(inputs)
        return keras.Model(inputs, keras.layers.BatchNormalization(momentum=0.5)(x), name="tiny")

    monkeypatch.setattr(keras.applications, "MobileNetV2", build)
    return build


@saves_models
@pytest.mark.parametrize("policy", ["float32", "mixed_float16"])
def test_head_first_then_the_base_with_its_statistics_fixed(tiny_base, policy, tmp_path, capsys):
    """The first phase trains the last layer alone, the second the base too, but for its batch normalization."""
    tiny_base(None, False, (32, 32, 3)).save_weights(tmp_path / "tiny.weights.h5")
    with precision(policy):
        model = transfer_or_scratch((32, 32, 3), 4, "MobileNetV2", weights=tmp_path / "tiny.weights.h5")
    assert capsys.readouterr().out == (
        f"MobileNetV2 starts from the weights in {tmp_path / 'tiny.weights.h5'}; "
        "at first only the new last layer is trained.\n"
    )
    rng = np.random.default_rng(0)
    images, labels = (
        rng.integers(0, 256, (32, 32, 32, 3), np.uint8),
        np.eye(4, dtype=np.float32)[rng.integers(0, 4, 32)],
    )

    def phase(rate):
        before = [weight.numpy() for weight in model.weights]
        model.compile(keras.optimizers.Adam(rate), "categorical_crossentropy")
        model.fit(images, labels, batch_size=8, epochs=1, verbose=0)
        changed = zip(model.weights, before, strict=True)
        return sorted(one.path for one, old in changed if not np.array_equal(one.numpy(), old))

    assert phase(1e-2) == ["classes/bias", "classes/kernel"]
    model.save(tmp_path / "head.keras")
    head = model.get_weights()
    unfreeze(model)
    assert [path.split("/")[-1] for path in phase(1e-3)] == ["bias", "kernel", "bias", "kernel"]
    model.save(tmp_path / "model.keras")
    with precision(policy):
        loaded = keras.models.load_model(tmp_path / "model.keras")
    assert len(loaded.trainable_weights) == 4
    assert [len(one.optimizer.variables) for one in (loaded, model)] == [len(model.optimizer.variables)] * 2
    np.testing.assert_array_equal(loaded(images), model(images))
    # Where the first phase was the better one. load_weights would ask for the optimizer of that phase, too.
    model.set_weights(keras.models.load_model(tmp_path / "head.keras", compile=False).get_weights())
    for now, then in zip(model.get_weights(), head, strict=True):
        np.testing.assert_array_equal(now, then)


@saves_models
def test_a_frozen_base_can_be_unfrozen_after_loading(tiny_base, tmp_path):
    """Freezing outlasts saving, and model.trainable = True would not end it: with TensorFlow it changes nothing."""
    tiny_base(None, False, (32, 32, 3)).save_weights(tmp_path / "tiny.weights.h5")
    transfer_model((32, 32, 3), 4, "MobileNetV2", weights=tmp_path / "tiny.weights.h5").save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert len(loaded.trainable_weights) == 2
    unfreeze(loaded)
    assert len(loaded.trainable_weights) == 4


def test_a_network_from_scratch_stays_as_trainable_as_it_was():
    """unfreeze keeps what learns already, batch normalization included."""
    model = small_cnn((16, 16, 3), 5)
    before = len(model.trainable_weights)
    unfreeze(model)
    assert len(model.trainable_weights) == before == 14


def test_augmentation_on_the_device_changes_training_images_alone(images):
    """It sees values from 0 to 255 before they are scaled, and nothing of it happens when the model is asked."""
    seen = []

    class Watch(keras.layers.Layer):
        def call(self, images, training=False):
            seen.append(images)
            return 255 - images if training else images

    augmentation = keras.Sequential([keras.layers.RandomFlip("horizontal", seed=1), Watch()])
    model = small_cnn((16, 16, 3), 5, augmentation=augmentation)
    prepare = model.layers[1]
    scaled = keras.ops.convert_to_numpy(prepare(images, training=False))
    np.testing.assert_allclose(scaled, images / 127.5 - 1, atol=1e-6)
    np.testing.assert_array_equal(keras.ops.convert_to_numpy(seen[-1]), images)
    changed = keras.ops.convert_to_numpy(prepare(images, training=True))
    np.testing.assert_allclose(np.sort(changed.ravel()), np.sort(-scaled.ravel()), atol=1e-6)


def test_the_base_keeps_its_place_behind_augmentation(tiny_base):
    """layers[2], with augmentation as without."""
    flip = keras.layers.RandomFlip("horizontal", seed=1)
    assert transfer_model((32, 32, 3), 4, "MobileNetV2", augmentation=flip).layers[2].name == "tiny"
    assert transfer_model((32, 32, 3), 4, "MobileNetV2").layers[2].name == "tiny"


BAD_MODELS = {
    "unknown base": (
        {"base": "VGG"},
        ValueError,
        "base must be one of InceptionV3, Xception, MobileNetV2, ResNet50V2, EfficientNetV2B0, EfficientNetV2S, "
        "MobileNetV3Small; got 'VGG'.",
    ),
    "too small": (
        {"image_shape": (64, 64, 3)},
        ValueError,
        "InceptionV3 takes images of (height, width, 3) with sides of at least 75; got (64, 64, 3).",
    ),
    "frozen without weights": (
        {"train_base": False},
        ValueError,
        "train_base=False keeps random weights for ever, because weights=None starts from scratch. Pass "
        'weights="imagenet" or a file, or leave train_base out.',
    ),
    "no such file": (
        {"weights": "nowhere.h5"},
        WeightsError,
        'weights must be None, "imagenet" or a file; nowhere.h5 does not exist. Weights that Keras downloaded before '
        "lie in ~/.keras/models.",
    ),
}


@pytest.mark.parametrize("case", BAD_MODELS)
def test_a_bad_transfer_model_is_refused(case):
    """Each sentence says the rule, what was got and what to do."""
    arguments, error, message = BAD_MODELS[case]
    with pytest.raises(error) as caught:
        transfer_model(**{"image_shape": (96, 96, 3), "num_classes": 4, **arguments})
    assert str(caught.value) == message

"""Models of the course: scaling as a layer, a small network for laptops, and transfer from a trained one."""

from __future__ import annotations

import logging
import os
import socket
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import keras

from helpers.layout import IncompleteFileError, LayoutError, explain_open_error, read_file_info

_HALF_RANGE = 127.5  # (x - mean) / 127.5 of uint8 lies within -2 and 2, and within -1 and 1 for a middling mean
_FILTERS = (1, 2, 4, 6)  # of the four blocks of small_cnn, in units of width
_DOWNLOAD_S = 30  # without a sign of the server; a firewall that drops packets would hold Keras up for minutes
_LOG = logging.getLogger(__name__)


class WeightsError(OSError):
    """Trained weights could not be had."""


class WeightsDownloadError(WeightsError):
    """Keras could not download them."""


@dataclass(frozen=True)
class _Base:
    """A network of ``keras.applications``: what it wants as input, and the smallest side that it takes."""

    scaled: bool  # True: values from -1 to 1. False: 0 to 255, the network scales them itself
    smallest_side: int


BASES = {
    "InceptionV3": _Base(scaled=True, smallest_side=75),
    "Xception": _Base(scaled=True, smallest_side=71),
    "MobileNetV2": _Base(scaled=True, smallest_side=32),
    "ResNet50V2": _Base(scaled=True, smallest_side=32),
    "EfficientNetV2B0": _Base(scaled=False, smallest_side=32),
    "EfficientNetV2S": _Base(scaled=False, smallest_side=32),
    "MobileNetV3Small": _Base(scaled=False, smallest_side=32),
}


def normalization(path: str | os.PathLike) -> keras.layers.Layer:
    """A layer that scales images on the device: uint8 to float32, ``(x - mean) / 127.5`` by the file's own mean.

    The mean, one number a channel, is that of the training split and is stored in the file. It becomes part of the
    model: a saved model loads without the file and without this package.

    Raises
    ------
    LayoutError
        The file stores no mean.
    HDF5FileError, IncompleteFileError
        The file does not open, or its writer was stopped.
    """
    info = read_file_info(path)
    if info.complete is False:
        raise IncompleteFileError(f"{path} is incomplete: the process that wrote it stopped early. Build it again.")
    if info.mean is None:
        raise LayoutError(
            f"{path} stores no channel means, so it was not written by this kit. Scale with "
            "keras.layers.Rescaling(1 / 127.5, offset=-1) instead, or rebuild the file: data_scripts.build_hdf5."
        )
    return keras.layers.Normalization(mean=list(info.mean), variance=[_HALF_RANGE**2] * 3, name="normalization")


def small_cnn(
    image_shape: tuple[int, int, int],
    num_classes: int,
    *,
    normalization: keras.layers.Layer | None = None,
    augmentation: keras.layers.Layer | None = None,
    width: int = 16,
    seed: int = 0,
) -> keras.Model:
    """A small convolutional network for a laptop, not compiled: four blocks and a mean over what is left of the image.

    Parameters
    ----------
    image_shape : (height, width, 3) of uint8 images, at least 16 a side.
    num_classes : outputs, with softmax.
    normalization : the layer from :func:`normalization`; None scales to -1 .. 1.
    augmentation : a layer, or a ``keras.Sequential`` of layers such as ``RandomFlip``, that changes images of values
        0 to 255 on the device, in training alone. None where workers do it (``helpers.Augment``).
    width : filters of the first block; 16 has some 80,000 weights, 8 a quarter of them.
    seed : fixes the first weights; equal seeds give equal models.
    """
    _check_shape(image_shape, 16, "small_cnn")
    inputs = keras.Input(image_shape, dtype="uint8", name="images")
    x = _prepared(augmentation, normalization or _scaled())(inputs)
    for block, factor in enumerate(_FILTERS):
        x = keras.layers.Conv2D(
            factor * width,
            3,
            padding="same",
            use_bias=False,
            kernel_initializer=keras.initializers.HeNormal(seed=seed + block),
            name=f"conv_{block + 1}",
        )(x)
        x = keras.layers.BatchNormalization(momentum=0.9, name=f"norm_{block + 1}")(x)
        x = keras.layers.ReLU(name=f"relu_{block + 1}")(x)
        x = keras.layers.MaxPooling2D(name=f"pool_{block + 1}")(x)
    x = keras.layers.GlobalAveragePooling2D(name="mean")(x)
    return keras.Model(inputs, _head(x, num_classes, seed + len(_FILTERS)), name="small_cnn")


def transfer_model(
    image_shape: tuple[int, int, int],
    num_classes: int,
    base: str = "InceptionV3",
    *,
    weights: str | os.PathLike | None = None,
    train_base: bool | None = None,
    augmentation: keras.layers.Layer | None = None,
    dropout: float = 0.2,
    seed: int = 0,
) -> keras.Model:
    """A network of ``keras.applications`` with a new last layer, not compiled; takes uint8 images and scales them.

    Parameters
    ----------
    image_shape : (height, width, 3) of uint8 images.
    num_classes : outputs, with softmax.
    base : one of :data:`BASES`. Each gets the range it was trained with: -1 to 1, or 0 to 255.
    weights : None starts from scratch; "imagenet" downloads them once; a path loads a ``.weights.h5`` or ``.h5`` file
        of the base without its top.
    train_base : False trains the new layer alone; None is False with trained weights and True from scratch.
    augmentation : as in :func:`small_cnn`.
    dropout : share of the features that is dropped before the last layer while training.
    seed : fixes dropout and the last layer; the base draws its first weights from Keras' global seed
        (``keras.utils.set_random_seed``).

    ``model.layers[2]`` is the base. Its batch statistics stay fixed when it starts frozen, also after
    :func:`unfreeze`: fine-tuning a few images would otherwise destroy them.

    Raises
    ------
    WeightsError
        No network, no such file, or one that does not open.
    ValueError
        An unknown base, images that are too small, a frozen base without weights.
    """
    if base not in BASES:
        raise ValueError(f"base must be one of {', '.join(BASES)}; got {base!r}.")
    _check_shape(image_shape, BASES[base].smallest_side, base)
    train_base = weights is None if train_base is None else train_base
    if weights is None and not train_base:
        raise ValueError(
            "train_base=False keeps random weights for ever, because weights=None starts from scratch. Pass "
            'weights="imagenet" or a file, or leave train_base out.'
        )
    network = _load_base(base, image_shape, weights)
    network.trainable = train_base
    inputs = keras.Input(image_shape, dtype="uint8", name="images")
    scaled = _scaled() if BASES[base].scaled else keras.layers.Rescaling(1.0, name="to_float")
    x = _prepared(augmentation, scaled)(inputs)
    x = keras.layers.GlobalAveragePooling2D(name="mean")(network(x))
    x = keras.layers.Dropout(dropout, seed=seed, name="dropout")(x)
    return keras.Model(inputs, _head(x, num_classes, seed), name=f"transfer_{base.lower()}")


def transfer_or_scratch(
    image_shape: tuple[int, int, int],
    num_classes: int,
    base: str = "InceptionV3",
    *,
    weights: str | os.PathLike | None = "imagenet",
    **options,
) -> keras.Model:
    """:func:`transfer_model`, from scratch where the ImageNet weights cannot be had; one line on stdout says which.

    Parameters
    ----------
    image_shape, num_classes, base, options : as in :func:`transfer_model`.
    weights : "imagenet" is Keras' copy on this machine, else its download, else none. A path is loaded or is an error,
        for a mistyped name must not cost hours of training from scratch. None starts from scratch.

    Raises
    ------
    WeightsError
        The file that ``weights`` names is not there, or does not open.
    ValueError
        What :func:`transfer_model` refuses.
    """
    try:
        model = transfer_model(image_shape, num_classes, base, weights=weights, **options)
    except WeightsDownloadError:
        _LOG.warning("%s starts from scratch: its ImageNet weights could not be downloaded", base)
        model = transfer_model(image_shape, num_classes, base, **{**options, "weights": None, "train_base": None})
        _say(
            f"{base} starts FROM SCRATCH: its ImageNet weights are not on this machine and could not be downloaded. "
            "All of it is trained. To change this, copy their file from another machine and pass its path as weights."
        )
        return model
    _say(f"{base} starts {_origin(weights)}; {_trained_part(model)}.")
    return model


def unfreeze(model: keras.Model) -> None:
    """Let a frozen base learn too, but not its batch normalization: the second phase. Heeded by the next ``compile``.

    ``model.trainable = True`` would not do: the model itself counts as trainable already, and with TensorFlow Keras
    takes this for no change. Nor does calling the base with ``training=False`` keep its statistics: ``fit`` overrides
    it. A frozen BatchNormalization does (all Keras 3.15).
    """
    statistics = [layer for layer in _leaves(model) if isinstance(layer, keras.layers.BatchNormalization)]
    frozen = [layer for layer in statistics if not layer.trainable]
    for layer in model.layers:
        layer.trainable = True
    for layer in frozen:
        layer.trainable = False


def _leaves(model: keras.Model) -> Iterator[keras.layers.Layer]:
    for layer in model.layers:
        yield from _leaves(layer) if hasattr(layer, "layers") else [layer]


def _origin(weights) -> str:
    if weights is None:
        return "from scratch, as asked"
    return "from its ImageNet weights" if weights == "imagenet" else f"from the weights in {weights}"


def _trained_part(model: keras.Model) -> str:
    return "all of it is trained" if model.layers[2].trainable else "at first only the new last layer is trained"


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")


def _load_base(base: str, image_shape, weights) -> keras.Model:
    build = getattr(keras.applications, base)
    options = {"include_top": False, "input_shape": tuple(image_shape)}
    if weights is None:
        return build(weights=None, **options)
    if weights == "imagenet":
        return _download(base, build, options)
    path = Path(weights)
    if not path.is_file():
        raise WeightsError(
            f'weights must be None, "imagenet" or a file; {path} does not exist. Weights that Keras downloaded '
            "before lie in ~/.keras/models."
        )
    network = build(weights=None, **options)
    try:
        network.load_weights(path)
    except OSError as error:  # h5py's: a download that broke off, an error page under this name
        raise WeightsError(explain_open_error(path, error)) from error
    return network


def _download(base: str, build, options: dict) -> keras.Model:
    try:
        with _impatient(), warnings.catch_warnings():
            # Without its top a network has one set of weights for all sizes; MobileNet warns of each but five (3.15).
            warnings.filterwarnings("ignore", message=".*input_shape. is undefined or")
            return build(weights="imagenet", **options)
    except Exception as error:
        if not _is_of_the_network(error):
            raise
        raise WeightsDownloadError(
            f"the ImageNet weights of {base} could not be downloaded; is there a network? Pass weights=None "
            "to train from scratch, or the path of a weights file copied from another machine (~/.keras/models)."
        ) from error


def _is_of_the_network(error: Exception) -> bool:
    """Keras raises a bare Exception when a download fails, ValueError for half a file; a lost line is an OSError."""
    if isinstance(error, (TimeoutError, ConnectionError)):
        return True
    return any(words in str(error) for words in ("URL fetch failure", "Incomplete or corrupted file"))


@contextmanager
def _impatient() -> Iterator[None]:
    """A limit on silence, for Keras' download sets none; whoever has set one keeps it."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(_DOWNLOAD_S if before is None else before)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)


def _prepared(augmentation: keras.layers.Layer | None, scale: keras.layers.Layer) -> keras.layers.Layer:
    """Augmentation comes first: layers such as RandomBrightness expect values from 0 to 255."""
    return scale if augmentation is None else keras.Sequential([augmentation, scale], name="augment_and_scale")


def _scaled() -> keras.layers.Layer:
    return keras.layers.Rescaling(1 / _HALF_RANGE, offset=-1.0, name="scale")


def _head(features, num_classes: int, seed: int):
    """Softmax in float32 whatever the precision policy: sums of half-precision exponentials lose small classes."""
    return keras.layers.Dense(
        num_classes,
        activation="softmax",
        dtype="float32",
        kernel_initializer=keras.initializers.GlorotUniform(seed=seed),
        name="classes",
    )(features)


def _check_shape(image_shape, smallest_side: int, name: str) -> None:
    sides = tuple(image_shape)
    if len(sides) != 3 or sides[2] != 3 or min(sides[:2]) < smallest_side:
        raise ValueError(
            f"{name} takes images of (height, width, 3) with sides of at least {smallest_side}; got {sides}."
        )

"""Models of the course: scaling as a layer, a small network for laptops, and transfer from a trained one."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import keras

from helpers.layout import IncompleteFileError, LayoutError, explain_open_error, read_file_info

_HALF_RANGE = 127.5  # (x - mean) / 127.5 of uint8 lies within -2 and 2, and within -1 and 1 for a middling mean
_FILTERS = (1, 2, 4, 6)  # of the four blocks of small_cnn, in units of width


class WeightsError(OSError):
    """Trained weights could not be had."""


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
    width: int = 16,
    seed: int = 0,
) -> keras.Model:
    """A small convolutional network for a laptop, not compiled: four blocks and a mean over what is left of the image.

    Parameters
    ----------
    image_shape : (height, width, 3) of uint8 images, at least 16 a side.
    num_classes : outputs, with softmax.
    normalization : the layer from :func:`normalization`; None scales to -1 .. 1.
    width : filters of the first block; 16 has some 80,000 weights, 8 a quarter of them.
    seed : fixes the first weights; equal seeds give equal models.
    """
    _check_shape(image_shape, 16, "small_cnn")
    inputs = keras.Input(image_shape, dtype="uint8", name="images")
    x = (normalization or _scaled())(inputs)
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
    dropout : share of the features that is dropped before the last layer while training.
    seed : fixes dropout and the last layer; the base draws its first weights from Keras' global seed
        (``keras.utils.set_random_seed``).

    ``model.layers[2]`` is the base. Its batch statistics stay fixed when it starts frozen, also after
    ``trainable = True``: fine-tuning a few images would otherwise destroy them.

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
    x = network(scaled(inputs)) if train_base else network(scaled(inputs), training=False)
    x = keras.layers.GlobalAveragePooling2D(name="mean")(x)
    x = keras.layers.Dropout(dropout, seed=seed, name="dropout")(x)
    return keras.Model(inputs, _head(x, num_classes, seed), name=f"transfer_{base.lower()}")


def _load_base(base: str, image_shape, weights) -> keras.Model:
    build = getattr(keras.applications, base)
    options = {"include_top": False, "input_shape": tuple(image_shape)}
    if weights is None or weights == "imagenet":
        try:
            return build(weights=weights, **options)
        except Exception as error:  # Keras raises a bare Exception when a download fails
            if "URL fetch failure" not in str(error):
                raise
            raise WeightsError(
                f"the ImageNet weights of {base} could not be downloaded; is there a network? Pass weights=None "
                "to train from scratch, or the path of a weights file copied from another machine (~/.keras/models)."
            ) from error
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

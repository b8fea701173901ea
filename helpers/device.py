"""The device that trains: how to get a GPU, its free memory, the batch that fits, the precision a model is built in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import keras

from helpers.arguments import whole_number
from helpers.machine import free_memory, gpus

_EXTRAS = {"tensorflow": "gpu-tf", "jax": "gpu-jax"}
_FLOAT_BYTES = 4
_BRANCHES = 2  # largest passages that a frozen base holds at once; 1.7 was measured
_COPIES = 4  # of a weight that is trained: itself, its gradient, and Adam's two means


def install_line() -> str:
    """What to type in the folder of this kit so that Keras' backend can use an NVIDIA GPU (Linux, WSL2)."""
    backend = keras.backend.backend()
    if backend not in _EXTRAS:
        raise ValueError(f"this kit installs GPU libraries for {' and '.join(_EXTRAS)}; Keras runs on {backend}.")
    return f'pip install -e ".[{_EXTRAS[backend]}]"'


def gpu_devices() -> list[str]:
    """The GPUs that Keras sees, such as ``["gpu:0"]``; JAX raises where TensorFlow has an empty list (Keras 3.15)."""
    try:
        return keras.distribution.list_devices("gpu")
    except RuntimeError:
        return []


def free_device_bytes() -> int:
    """Bytes that are free on the first GPU that Keras sees, or in this machine's memory where it sees none.

    Ask before the first model is built: TensorFlow and JAX take most of a GPU's memory for themselves when they first
    use it, and what they took no longer counts as free.
    """
    if not gpu_devices():
        return free_memory().free
    told = [gpu.free for gpu in gpus() if gpu.free is not None]
    if not told:
        raise RuntimeError(
            "Keras sees a GPU and nvidia-smi does not tell its free memory. Pass the bytes yourself, from its manual."
        )
    return told[0]


@dataclass(frozen=True)
class TrainingMemory:
    """Memory that one training step holds: ``fixed`` bytes, and ``per_image`` bytes for each image."""

    fixed: int
    per_image: int


def training_memory(model: keras.Model) -> TrainingMemory:
    """Count what a step with Adam keeps: weights, gradients, Adam's two means, and what the layers put out.

    Layers before the first one that is trained need no gradient, and their outputs are dropped: of these count the
    largest input and output of one layer, twice, for networks have branches. It is an estimate. Measured with
    TensorFlow on a CPU, a step holds 0.8 of what is counted an image; working memory of a GPU's libraries is not in it.
    """
    layers = list(_layers(model))
    trained = sum(_size(weight) for weight in model.trainable_weights)
    frozen = sum(_size(weight) for weight in model.non_trainable_weights)
    first = next((place for place, layer in enumerate(layers) if layer.trainable_weights), len(layers))
    sizes = [_output_bytes(layer) for layer in layers]
    passing = max((before + after for before, after in zip(sizes[:first], sizes[1:first], strict=False)), default=0)
    kept = sum(sizes[max(first - 1, 0) :])
    return TrainingMemory(_FLOAT_BYTES * (_COPIES * trained + frozen), max(_BRANCHES * passing, kept))


def fitting_batch_size(model: keras.Model, free_bytes: float, *, largest: int = 1024) -> int:
    """The largest power of two up to ``largest`` whose training step fits into ``free_bytes``; see training_memory.

    Raises
    ------
    ValueError
        Not even one image fits.
    """
    largest = whole_number("largest", largest, 1, "It is a number of images.")
    need = training_memory(model)
    images = min((free_bytes - need.fixed) // need.per_image, largest)
    if images < 1:
        raise ValueError(
            f"not one image fits: {model.name} needs {_mb(need.fixed)} for its weights and {_mb(need.per_image)} an "
            f"image, and {_mb(free_bytes)} are free. Take a smaller model or smaller images, or freeze its base."
        )
    return 1 << (int(images).bit_length() - 1)


@contextmanager
def precision(policy: str) -> Iterator[None]:
    """Models built under ``with`` compute by this policy, such as "mixed_float16"; later ones as before.

    Load a saved one under it, too. The layers remember their policy, the model does not: without it a loaded model
    trains on with neither the state of its optimizer nor the loss scaling that half precision needs (Keras 3.15).
    """
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(policy)
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)


def _layers(model) -> Iterator[keras.layers.Layer]:
    for layer in model.layers:
        if hasattr(layer, "layers"):  # a model inside the model
            yield from _layers(layer)
        else:
            yield layer


def _size(weight) -> int:
    return _product(weight.shape)


def _output_bytes(layer) -> int:
    """Of one image."""
    outputs = keras.tree.flatten(layer.output)
    return sum(_product(output.shape[1:]) * _bytes_of(output.dtype) for output in outputs)


def _bytes_of(dtype: str) -> int:
    return {"float16": 2, "bfloat16": 2, "float64": 8, "uint8": 1}.get(dtype, _FLOAT_BYTES)


def _product(shape) -> int:
    product = 1
    for side in shape:
        product *= side
    return product


def _mb(count: float) -> str:
    return f"{count / 1e6:,.0f} MB"

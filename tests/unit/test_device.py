"""The device: how to get one, its free memory, the batch that fits, and a precision that ends with its block."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import keras
import numpy as np
import pytest

from helpers import device
from helpers.device import fitting_batch_size, free_device_bytes, install_line, precision, training_memory
from helpers.machine import Gpu
from helpers.models import small_cnn, transfer_model


@pytest.mark.parametrize(("backend", "extra"), [("tensorflow", "gpu-tf"), ("jax", "gpu-jax")])
def test_the_install_line_fits_the_backend(backend, extra, monkeypatch):
    """Each backend has an extra of its own."""
    monkeypatch.setattr(keras.backend, "backend", lambda: backend)
    assert install_line() == f'pip install -e ".[{extra}]"'


def test_a_backend_that_is_not_served_is_named(monkeypatch):
    """Torch, for one."""
    monkeypatch.setattr(keras.backend, "backend", lambda: "torch")
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the whole sentence is compared below
        install_line()
    assert str(caught.value) == "this kit installs GPU libraries for tensorflow and jax; Keras runs on torch."


def test_memory_at_hand_is_that_of_the_gpu_or_of_the_machine(monkeypatch):
    """The first GPU that nvidia-smi tells of; without a GPU what this process may still use."""
    monkeypatch.setattr(device, "free_memory", lambda: SimpleNamespace(free=4_000))
    monkeypatch.setattr(keras.distribution, "list_devices", lambda kind: [])
    assert free_device_bytes() == 4_000
    monkeypatch.setattr(keras.distribution, "list_devices", lambda kind: ["gpu:0"])
    monkeypatch.setattr(device, "gpus", lambda: [Gpu("GTX 960", 2_000, 1_500)])
    assert free_device_bytes() == 1_500
    monkeypatch.setattr(device, "gpus", lambda: [Gpu("shy", None, None)])
    with pytest.raises(RuntimeError) as caught:
        free_device_bytes()
    assert str(caught.value) == (
        "Keras sees a GPU and nvidia-smi does not tell its free memory. Pass the bytes yourself, from its manual."
    )


def by_hand():
    """A model whose memory can be counted on paper."""
    inputs = keras.Input((4, 4, 3), dtype="uint8")  # 48 bytes
    x = keras.layers.Rescaling(1 / 255)(inputs)  # 48 numbers
    x = keras.layers.Conv2D(4, 1, use_bias=False, name="conv")(x)  # 64 numbers, 12 weights
    x = keras.layers.Flatten()(x)  # 64 numbers
    return keras.Model(inputs, keras.layers.Dense(5, use_bias=False)(x))  # 5 numbers, 320 weights


def test_training_memory_is_what_can_be_counted_on_paper():
    """Four numbers a weight, and each output from the input of the first trained layer on."""
    assert training_memory(by_hand()) == device.TrainingMemory(4 * 4 * 332, 4 * (48 + 64 + 64 + 5))


def test_a_frozen_base_costs_its_weights_and_the_widest_passage():
    """Its outputs are dropped as soon as the next layers have read them."""
    model = by_hand()
    model.get_layer("conv").trainable = False
    assert training_memory(model) == device.TrainingMemory(4 * (4 * 320 + 12), 2 * 4 * (64 + 64))


def test_half_precision_halves_outputs_and_no_weights():
    """Weights, gradients and Adam's means stay float32."""
    with precision("mixed_float16"):
        half = by_hand()
    assert training_memory(half) == device.TrainingMemory(4 * 4 * 332, 2 * (48 + 64 + 64 + 5))


def test_the_question_s_card_and_a_large_one():
    """InceptionV3 at 299 x 299: 8 images with 1.5 GB free, 512 with 80 GB."""
    model = transfer_model((299, 299, 3), 101, weights=None)
    assert fitting_batch_size(model, 1.5e9) == 8
    assert fitting_batch_size(model, 80e9) == 512
    assert fitting_batch_size(model, 80e9, largest=100) == 64
    model.layers[2].trainable = False
    assert fitting_batch_size(model, 1.5e9) > 8


def test_a_model_that_does_not_fit_at_all_is_refused_with_its_numbers():
    """The sentence names what it needs and what there is."""
    model = small_cnn((64, 64, 3), 8)
    need = training_memory(model)
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the whole sentence is compared below
        fitting_batch_size(model, 2e6)
    assert str(caught.value) == (
        f"not one image fits: small_cnn needs 1 MB for its weights and {need.per_image / 1e6:.0f} MB an image, and "
        "2 MB are free. Take a smaller model or smaller images, or freeze its base."
    )


def test_precision_ends_with_its_block_even_after_an_error():
    """What is built under it computes in half precision; the policy of later models is the one of before."""
    with precision("mixed_float16"):
        inside = small_cnn((16, 16, 3), 5)
    with pytest.raises(ZeroDivisionError), precision("mixed_float16"):
        raise ZeroDivisionError
    assert keras.config.dtype_policy().name == "float32"
    assert [inside.get_layer(name).compute_dtype for name in ("conv_1", "classes")] == ["float16", "float32"]
    assert small_cnn((16, 16, 3), 5).get_layer("conv_1").compute_dtype == "float32"


@pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy:DeprecationWarning")
def test_a_model_loaded_under_its_precision_still_scales_its_loss(tmp_path):
    """Loaded without it, Keras would leave the scaling away, and small gradients would be lost."""
    with precision("mixed_float16"):
        model = small_cnn((16, 16, 3), 5, width=2)
    model.compile("adam", "categorical_crossentropy")
    model.fit(np.zeros((4, 16, 16, 3), np.uint8), np.eye(5)[:4], verbose=0)
    model.save(tmp_path / "model.keras")
    with precision("mixed_float16"):
        loaded = keras.models.load_model(tmp_path / "model.keras")
    assert [type(one.optimizer).__name__ for one in (model, loaded)] == ["LossScaleOptimizer"] * 2


STEP = """
import sys, keras, numpy as np
from helpers.device import training_memory
from helpers.models import transfer_model
side, few, many, frozen = map(int, sys.argv[2:])
model = transfer_model((side, side, 3), 101, sys.argv[1])
model.layers[2].trainable = not frozen
model.compile("adam", "categorical_crossentropy")
def peak(batch):
    images, labels = np.zeros((batch, side, side, 3), np.uint8), np.eye(101, dtype=np.float32)[[0] * batch]
    for _ in range(2):
        model.train_on_batch(images, labels)
    return next(1024 * int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))
low = peak(few)
print((peak(many) - low) / (many - few) / training_memory(model).per_image)
"""


@pytest.mark.nightly
@pytest.mark.skipif(sys.platform != "linux", reason="the peak of a process is read from /proc")
@pytest.mark.parametrize(
    ("base", "side", "few", "many", "frozen"),
    [("MobileNetV2", 160, 24, 64, 0), ("InceptionV3", 299, 4, 12, 0), ("MobileNetV2", 160, 48, 128, 1)],
    ids=["small", "the question's", "frozen"],
)
def test_memory_of_a_step_is_about_what_was_counted(base, side, few, many, frozen):
    """Between two batch sizes a process grows by half to all of what training_memory says for the difference."""
    command = [sys.executable, "-c", STEP, base, *map(str, (side, few, many, frozen))]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=200)
    assert 0.5 < float(done.stdout.split()[-1]) < 1.1

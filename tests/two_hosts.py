"""One process of a training that several share: ``python tests/two_hosts.py FILE RESULT PORT PROCESS PROCESSES [HOW]``.

Keras on JAX: each process reads its shard of one file, and ``keras.distribution.DataParallel`` averages the gradients.
HOW: "dies" or "freezes", the last process at its third step; "shard" or "rest", all processes make that mistake.
"""

from __future__ import annotations

import os
import signal
import sys

os.environ["KERAS_BACKEND"] = "jax"
os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import keras
import numpy as np

from helpers import HDF5Sequence, fit_generator

BATCH, STEPS, EPOCHS = 24, 4, 2  # the global batch: halves and thirds of it are whole
HEARTBEAT_S = 10  # after so long a host that says nothing is given up


def compiled_model() -> keras.Model:
    """Nothing in it mixes the images of a batch or draws random numbers; the same weights in every process."""
    keras.utils.set_random_seed(0)
    layers = [keras.layers.Rescaling(1 / 255), keras.layers.Flatten(), keras.layers.Dense(5, activation="softmax")]
    model = keras.Sequential([keras.Input((16, 16, 3), dtype="uint8"), *layers])
    model.compile(keras.optimizers.SGD(0.1), "categorical_crossentropy", jit_compile=True)
    return model


class PowerCut(keras.callbacks.Callback):
    """The process stops at its third step: it is gone, or it is there and does nothing any more."""

    def __init__(self, how: str):
        super().__init__()
        self.signal = signal.SIGKILL if how == "dies" else signal.SIGSTOP

    def on_train_batch_end(self, batch, logs=None):
        if batch == 2:
            os.kill(os.getpid(), self.signal)


def main() -> None:
    file, result, port, process, processes, *how = sys.argv[1:]
    process, processes, how = int(process), int(processes), (how or ["well"])[0]
    if processes > 1:
        jax.distributed.initialize(
            f"127.0.0.1:{port}", processes, process, heartbeat_timeout_seconds=HEARTBEAT_S, initialization_timeout=60
        )
        keras.distribution.set_distribution(keras.distribution.DataParallel(auto_shard_dataset=False))
    model = compiled_model()
    shard = (0, 1) if how == "shard" else (process, processes)
    train = HDF5Sequence(file, batch_size=BATCH // processes, seed=3, drop_last=how != "rest", shard=shard, workers=2)
    cut = how in {"dies", "freezes"} and process == processes - 1
    history = fit_generator(model, train, STEPS, EPOCHS, verbose=0, callbacks=[PowerCut(how)] if cut else None)
    np.savez(result, *(np.asarray(weights) for weights in model.get_weights()), losses=history.history["loss"])


if __name__ == "__main__":
    main()

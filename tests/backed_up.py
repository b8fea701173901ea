"""A small training with a backup, and everything in it that could go wrong when it is stopped and goes on.

``python tests/backed_up.py FILE FOLDER RESULT KILL_AFTER`` trains in a process of its own, which kills itself with
SIGKILL after so many steps (0: never), and stores what the training came to.
"""

from __future__ import annotations

import os
import signal
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np

from helpers import Augment, HDF5Sequence, fit_generator
from helpers.training import BackupAndResume

STEPS, EPOCHS = 13, 3  # a pass over the 103 rows


class StoppedError(Exception):
    """Somebody pulled the plug."""


class Stop(keras.callbacks.Callback):
    """Stops the training after so many steps, by an exception or by SIGKILL."""

    def __init__(self, after: int, kill: bool = False):
        super().__init__()
        self.left, self.kill = after, kill

    def on_train_batch_end(self, batch, logs=None):
        self.left -= 1
        if self.left == 0:
            if self.kill:
                os.kill(os.getpid(), signal.SIGKILL)
            raise StoppedError


def sequence(file, **more) -> HDF5Sequence:
    """The rows in random order, each turned at random."""
    return HDF5Sequence(file, **{"batch_size": 8, "seed": 3, "augment": Augment(rotation=20), **more})


def small_model(units: int = 5, optimizer: str = "adam") -> keras.Model:
    """With layers that draw random numbers, one that keeps a mean, and a metric; the same at each call."""
    keras.utils.set_random_seed(0)
    model = keras.Sequential([
        keras.Input((16, 16, 3), dtype="uint8"),
        keras.layers.Rescaling(1 / 255),
        keras.layers.RandomFlip(),
        keras.layers.Flatten(),
        keras.layers.BatchNormalization(),
        keras.layers.Dropout(0.5),
        keras.layers.Dense(units, activation="softmax"),
    ])
    model.compile(optimizer, "categorical_crossentropy", metrics=["accuracy"])
    return model


def counting_callbacks() -> list:
    """They change the training by what they have counted, and by what they do when an epoch begins."""
    worse = {"monitor": "loss", "mode": "max"}  # the loss falls: no epoch but the first is an improvement
    return [
        keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.8 if epoch else rate),
        keras.callbacks.ReduceLROnPlateau(**worse, patience=2, factor=0.5),
        keras.callbacks.EarlyStopping(**worse, patience=EPOCHS, restore_best_weights=True, start_from_epoch=1),
    ]


def train(data, model, *more, epochs: int = EPOCHS, steps: int | None = None):
    """The training, always with the same callbacks, and ``more``."""
    callbacks = [*counting_callbacks(), *more]
    return fit_generator(model, data, steps, epochs, callbacks=callbacks, verbose=0)


def variables(model) -> list[np.ndarray]:
    """All numbers of the model and its optimizer."""
    return [np.array(keras.ops.convert_to_tensor(one)) for one in [*model.variables, *model.optimizer.variables]]


def main() -> None:
    file, folder, result, kill_after = sys.argv[1:]
    model = small_model()
    backup = BackupAndResume(folder, save_freq=5)
    history = train(sequence(file, workers=2), model, backup, Stop(int(kill_after), kill=True))
    np.savez(result, *variables(model), losses=history.history["loss"])


if __name__ == "__main__":
    main()

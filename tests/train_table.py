"""Trains a table of cases and writes down what the model received: ``python tests/train_table.py TABLE.json``.

``KERAS_BACKEND`` says on what. Each case is a dict: ``id``; ``sequence``, the arguments of HDF5Sequence, with
``rows`` as a number and ``augment`` as true; ``api``, who trains; ``calls``, the arguments of each call of it, or
``{"set_position": [epoch, batch]}``; ``validation``, arguments of another sequence. The answers are in TABLE.answer.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import sys
import time
import traceback
from pathlib import Path

import children
import numpy as np
from leaks import LeakWatch
from received import AUGMENT, CODES, MODULUS, code_weights, digest, digest_of_rows

CAPACITY = 2048  # images that one case may show to its model
SLOW_STEP_S = 0.01  # long enough for all workers to fill the queue


def main() -> None:
    table = Path(sys.argv[1])
    answers, models = {}, {}
    for case in json.loads(table.read_text()):
        watch = LeakWatch()
        try:
            answer = run(case, models)
            # Segments in /dev/shm are looked for by tests of the pool itself: other programs make some at any time.
            left = [phrase for phrase in watch.left_behind() if not phrase.startswith("shared-memory")]
            answers[case["id"]] = {"error": f"left behind: {left}"} if left else answer
        except Exception:
            answers[case["id"]] = {"error": traceback.format_exc()}
            models.clear()  # on JAX an interrupted fit has taken its variables away
        table.with_suffix(".partial").write_text(json.dumps(answers))
        table.with_suffix(".partial").replace(table.with_suffix(".answer"))


def run(case: dict, models: dict) -> dict:
    """Digests of all batches in the order received, and the sequence's position after each call."""
    with make_sequence(case["sequence"]) as sequence:
        if case["api"] == "children":
            return {"received": batches_of_a_child(sequence, case)}
        package = "tf_keras" if case["api"] == "tf_keras" else "keras"
        if package not in models or case.get("new_model"):
            models[package] = make_model(package)
        model, received = models[package]
        received.clear()
        train = train_by_fit if case["api"] == "fit" else train_by_fit_generator
        positions = [train(model, sequence, case, dict(call)) for call in case["calls"]]
        return {"received": received.digests(), "positions": positions}


def make_sequence(arguments: dict):
    from helpers import HDF5Sequence  # imports Keras, which a spawned worker of the table must not pay for twice

    arguments = dict(arguments)
    if "rows" in arguments:
        arguments["rows"] = np.arange(arguments["rows"])
    if arguments.pop("augment", False):
        arguments["augment"] = AUGMENT
    return HDF5Sequence(**arguments)


def train_by_fit_generator(model, sequence, case: dict, call: dict) -> tuple[int, int]:
    """One call; the position of the sequence after it."""
    from helpers import fit_generator

    if "set_position" in call:
        sequence.set_position(*call["set_position"])
        return sequence.position
    if case.get("slow"):
        call["callbacks"] = [slow_step(case["api"])]
    if "validation" not in case:
        fit_generator(model, sequence, verbose=0, **call)
        return sequence.position
    with make_sequence(case["validation"]) as validation:
        fit_generator(model, sequence, verbose=0, validation_data=validation, **call)
        assert validation.position == (0, 0)
    return sequence.position


def train_by_fit(model, sequence, case: dict, call: dict) -> tuple[int, int]:
    """One call of Keras' own fit, whose worker processes are started as the case says."""
    if "set_position" in call:
        sequence.set_position(*call["set_position"])
        return sequence.position
    with start_method(case.get("start_method")):
        model.fit(sequence, verbose=0, shuffle=False, **call)
    return sequence.position


@contextlib.contextmanager
def start_method(method: str | None):
    """Let Keras' own pools start their processes in this way; None leaves it as it is."""
    if method is None:
        yield
        return
    from keras.src.trainers.data_adapters import py_dataset_adapter as keras_pool

    # Keras 3.15 makes these once in a process, for the start method of that moment.
    keras_pool._WORKER_ID_QUEUE = keras_pool._SEQUENCE_COUNTER = None
    before, backend = multiprocessing.get_start_method(), os.environ["KERAS_BACKEND"]
    multiprocessing.set_start_method(method, force=True)
    # The new processes import Keras to unpickle the sequence: seconds with TensorFlow, and they train nothing.
    os.environ["KERAS_BACKEND"] = "numpy"
    try:
        yield
    finally:
        os.environ["KERAS_BACKEND"] = backend
        multiprocessing.set_start_method(before, force=True)


def batches_of_a_child(sequence, case: dict) -> list[str]:
    """Batches of three epochs, made by a process that inherited the used sequence (fork) or got it as a pickle."""
    sequence[0]  # its handle is open now
    asked = [(epoch, index) for epoch in range(3) for index in range(len(sequence))]
    context = multiprocessing.get_context(case["start_method"])
    receiving, sending = context.Pipe(duplex=False)
    child = context.Process(target=children.serve_batches, args=(sequence, asked, sending))
    child.start()
    sending.close()
    batches = receiving.recv()
    receiving.close()
    child.join()
    return [digest(*batch) for batch in batches]


class Log:
    """Reads what the metric wrote down."""

    def __init__(self, metric):
        self._metric = metric

    def clear(self) -> None:
        for variable in (self._metric.images, self._metric.steps):
            variable.assign(0)

    def digests(self) -> list[str]:
        images = int(np.asarray(self._metric.images))
        assert images < CAPACITY, f"{images} images were shown and {CAPACITY} are written down"
        rows = np.asarray(self._metric.log)[:images]
        steps = int(np.asarray(self._metric.steps))
        return [digest_of_rows(rows[rows[:, 0] == step, 1:]) for step in range(steps)]


def make_model(package: str):
    """A compiled model that answers checksums, and the log of what it received."""
    return make_classic_model() if package == "tf_keras" else make_keras_model()


def make_keras_model():
    import keras
    from keras import ops

    class Checksums(keras.layers.Layer):
        """(batch, CODES) float32 of images; its one weight is there because Keras wants something to train."""

        def build(self, shape):
            self.scale = self.add_weight(shape=(), initializer="zeros", name="scale")

        def call(self, images):
            pixels = ops.cast(ops.reshape(images, (-1, code_weights().shape[0])), "int32")
            sums = ops.sum(pixels[:, :, None] * code_weights()[None], axis=1)
            return ops.cast(ops.mod(sums, MODULUS), "float32") + 0.0 * self.scale

    class Received(keras.metrics.Metric):
        def __init__(self):
            super().__init__(name="received")
            self.log = self.add_variable((CAPACITY, 1 + 2 * CODES), "zeros", "float32", name="log")
            self.images = self.add_variable((), "zeros", "int32", name="images")
            self.steps = self.add_variable((), "zeros", "int32", name="steps")

        def update_state(self, y_true, y_pred, sample_weight=None):
            step = ops.zeros_like(y_pred[:, :1]) + ops.cast(self.steps, "float32")
            rows = ops.concatenate([step, y_pred, ops.cast(y_true, "float32")], axis=1)
            places = self.images + ops.arange(ops.shape(y_pred)[0], dtype="int32")
            self.log.assign(ops.scatter_update(self.log, places[:, None], rows))
            self.images.assign(self.images + ops.shape(y_pred)[0])
            self.steps.assign(self.steps + 1)

        def result(self):
            return ops.cast(self.images, "float32")

        def reset_state(self):
            """Keras resets metrics with each epoch; the log is of the whole case."""

    inputs = keras.Input((16, 16, 3), dtype="uint8")
    model = keras.Model(inputs, Checksums(dtype="float32")(inputs))
    metric = Received()
    on_tensorflow = keras.backend.backend() == "tensorflow"  # where compiling each shape of batch takes long
    jit_compile = False if on_tensorflow else "auto"
    model.compile("sgd", lambda y_true, y_pred: 0.0 * ops.mean(y_pred), metrics=[metric], jit_compile=jit_compile)
    return model, Log(metric)


def make_classic_model():
    import tensorflow as tf
    import tf_keras

    class Checksums(tf_keras.layers.Layer):
        def build(self, shape):
            self.scale = self.add_weight(name="scale", shape=(), initializer="zeros")

        def call(self, images):
            pixels = tf.cast(tf.reshape(images, (-1, code_weights().shape[0])), tf.int32)
            sums = tf.reduce_sum(pixels[:, :, None] * code_weights()[None], axis=1)
            return tf.cast(sums % MODULUS, tf.float32) + 0.0 * self.scale

    class Received(tf_keras.metrics.Metric):
        def __init__(self):
            super().__init__(name="received")
            self.log = self.add_weight("log", (CAPACITY, 1 + 2 * CODES), initializer="zeros", dtype=tf.float32)
            self.images = self.add_weight("images", (), initializer="zeros", dtype=tf.int32)
            self.steps = self.add_weight("steps", (), initializer="zeros", dtype=tf.int32)

        def update_state(self, y_true, y_pred, sample_weight=None):
            step = tf.zeros_like(y_pred[:, :1]) + tf.cast(self.steps, tf.float32)
            rows = tf.concat([step, y_pred, tf.cast(y_true, tf.float32)], axis=1)
            places = self.images + tf.range(tf.shape(y_pred)[0])
            self.log.scatter_nd_update(places[:, None], rows)
            self.images.assign_add(tf.shape(y_pred)[0])
            self.steps.assign_add(1)

        def result(self):
            return tf.cast(self.images, tf.float32)

        def reset_state(self):
            """As above."""

    model = tf_keras.Sequential([tf_keras.layers.InputLayer((16, 16, 3), dtype="uint8"), Checksums()])
    metric = Received()
    model.compile("sgd", lambda y_true, y_pred: 0.0 * tf.reduce_mean(y_pred), metrics=[metric])
    return model, Log(metric)


def slow_step(api: str):
    """A callback that lets the workers run ahead."""
    if api == "tf_keras":
        from tf_keras.callbacks import LambdaCallback
    else:
        from keras.callbacks import LambdaCallback
    return LambdaCallback(on_train_batch_end=lambda step, logs=None: time.sleep(SLOW_STEP_S))


if __name__ == "__main__":
    main()

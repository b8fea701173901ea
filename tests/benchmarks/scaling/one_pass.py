"""One training over the large file, in a process of its own.

``python -m scaling.one_pass FILE SHUFFLE CACHE KIND`` prints one line of JSON; scale.py watches the memory meanwhile.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["KERAS_BACKEND"] = "tensorflow"  # rows are counted in its graph

import keras
import tensorflow as tf

from helpers import HDF5Sequence, fit_generator

from .page_cache import prepare_cache
from .report import progress_bar

BATCH = 64
WORKERS = 2
EVERY = 32  # the model looks at every 32nd pixel of every 32nd line, so that feeding it is what takes the time
WARM_UP_STEPS = 20  # trained before the clock starts: making the graph takes a second
PAUSE_S = 2.0  # in the warm-up: the queue is full then, as it always is with a model that takes longer than its feed


class RowCount:
    """Counts, in the graph, how often each row number was seen in the pixels. 8 bytes a row, whatever an image has."""

    def __init__(self, images: int):
        self.images = images
        self._seen = tf.Variable(tf.zeros(images + 1, tf.int64))  # the last place: numbers that no row has
        self._torn = tf.Variable(0, dtype=tf.int64)
        self._mislabelled = tf.Variable(0, dtype=tf.int64)

    def look(self, images, labels) -> None:
        """Add a batch: images (batch, height, width, 3) uint8, labels (batch, classes) one-hot."""
        head = tf.cast(tf.reshape(images[:, 0, :2], (-1, 6))[:, :4], tf.int64)
        tail = tf.cast(tf.reshape(images[:, -1, -2:], (-1, 6))[:, 2:], tf.int64)
        rows = tf.reduce_sum(head[:, :3] * tf.constant([1, 2**8, 2**16], tf.int64), axis=1)
        rows = tf.minimum(rows, self.images)
        self._seen.scatter_add(tf.IndexedSlices(tf.ones_like(rows), rows))
        self._torn.assign_add(_number_true(tf.reduce_any(head != tail, axis=1)))
        self._mislabelled.assign_add(_number_true(head[:, 3] != tf.argmax(labels, axis=1)))

    def reset(self) -> None:
        for variable in (self._seen, self._torn, self._mislabelled):
            variable.assign(tf.zeros_like(variable))

    def faults(self) -> dict[str, int]:
        """Rows lost, doubled, unknown, torn (begin and end differ) and with a label that is not that of the pixels."""
        seen = self._seen.numpy()
        return {
            "lost": int((seen[:-1] == 0).sum()),
            "doubled": int((seen[:-1] > 1).sum()),
            "unknown": int(seen[-1]),
            "torn": int(self._torn.numpy()),
            "mislabelled": int(self._mislabelled.numpy()),
        }


def _number_true(values):
    return tf.reduce_sum(tf.cast(values, tf.int64))


class Thumbnail(keras.layers.Layer):
    """Every 32nd pixel as numbers from 0 to 1."""

    def call(self, images):
        return tf.cast(images[:, ::EVERY, ::EVERY], tf.float32) / 255


class CountingModel(keras.Model):
    """A model that counts the rows it is trained on, as it alone sees what Keras really trains with."""

    row_count: RowCount

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        self.row_count.look(x, y)
        return super().compute_loss(x, y, y_pred, sample_weight, training)


class StepWatch(keras.callbacks.Callback):
    """Seconds (of time.perf_counter) at the end of the first and of the last step."""

    def __init__(self, bar):
        super().__init__()
        self._bar = bar
        self.first = self.last = 0.0

    def on_train_batch_end(self, batch, logs=None):
        self.last = time.perf_counter()
        self.first = self.first or self.last
        self._bar.update(min(BATCH, self._bar.total - self._bar.n))


class OnePause(keras.callbacks.Callback):
    """Waits once, after the third step."""

    def on_train_batch_end(self, batch, logs=None):
        if batch == 2:
            time.sleep(PAUSE_S)


def tiny_model(image_shape, classes: int, row_count: RowCount) -> CountingModel:
    """One dense layer on a thumbnail."""
    inputs = keras.Input(image_shape, dtype="uint8")
    outputs = keras.layers.Dense(classes, "softmax")(keras.layers.Flatten()(Thumbnail()(inputs)))
    model = CountingModel(inputs, outputs)
    model.row_count = row_count
    model.compile("sgd", "categorical_crossentropy", jit_compile=False)
    return model


def read_from_disk() -> int:
    """Bytes that the disk read for this process and for the children that it has waited for."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("read_bytes:"))


def train(path: Path, shuffle: str, cache: str, kind: str) -> dict:
    """One pass: its speed, what was read from the disk for it, and what was wrong with the rows."""

    def sequence() -> HDF5Sequence:
        processes = kind == "processes"
        return HDF5Sequence(path, batch_size=BATCH, shuffle=shuffle, workers=WORKERS, use_multiprocessing=processes)

    with sequence() as images:
        rows = RowCount(images.n)
        model = tiny_model(images.image_shape, images.num_classes, rows)
        fit_generator(model, images, WARM_UP_STEPS, verbose=0, callbacks=[OnePause()])
    rows.reset()
    cached = prepare_cache(path, cache)
    before, start = read_from_disk(), time.perf_counter()
    with sequence() as images, progress_bar(f"{shuffle}, {cache}, {kind}", images.n) as bar:
        watch = StepWatch(bar)
        fit_generator(model, images, verbose=0, callbacks=[watch])
    seconds = time.perf_counter() - start
    return {
        "shuffle": shuffle,
        "cache": cache,
        "workers": f"{WORKERS} {kind}",
        "seconds": seconds,
        "first_batch_s": watch.first - start,
        "images_per_second": (rows.images - BATCH) / (watch.last - watch.first),
        "cached_before": cached,
        "read_from_disk": (read_from_disk() - before) / path.stat().st_size,
        "faults": rows.faults(),
    }


def main() -> int:
    try:
        print(json.dumps(train(Path(sys.argv[1]), *sys.argv[2:])))
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())

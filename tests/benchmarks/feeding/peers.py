"""What else feeds Keras, or could: Keras alone, tf.data, TFRecord, PyTorch, Grain; each in the best way we found.

The same for all: the same file and rows, batches of 64 uint8 images with one-hot labels, rows read one by one straight
into the batch (a list index is far slower, and is here as "list index"), two worker processes where there are workers,
workers that live on from epoch to epoch, OpenCV on one thread a worker for augmented work. PyTorch and Grain are taken
in a plain loop, without what Keras would add; tf.data and PyDataset go through ``Model.fit``, for which they are made.

Worker processes import this module, so it imports neither Keras nor TensorFlow at its top.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import cv2
import h5py
import numpy as np

from helpers import Augment

from .data import BATCH, SHAPE

AUGMENT = Augment(horizontal_flip=True, zoom=(0.8, 1), shear=6)
WORKERS = 2


class Rows:
    """Batches of rows through h5py, with one handle a process; ``rows -> (images, labels)``."""

    def __init__(self, path: Path, labels: np.ndarray, augment: Callable | None = None):
        self.path, self.labels, self.augment = path, labels, augment
        self._dataset, self._pid = None, None

    def __getstate__(self) -> dict:
        return self.__dict__ | {"_dataset": None, "_pid": None}

    def __call__(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        images = np.empty((len(rows), *SHAPE), np.uint8)
        self.read(rows, images)
        if self.augment is not None:
            self._change(rows, images)
        return images, self.labels[rows]

    def read(self, rows: np.ndarray, images: np.ndarray) -> None:
        """Read ``rows`` into ``images``, one by one."""
        if self._pid != os.getpid():
            self._dataset, self._pid = h5py.File(self.path, "r")["train_img"], os.getpid()
        for position, row in enumerate(rows.tolist()):
            self._dataset.read_direct(images, np.s_[row], np.s_[position])

    def _change(self, rows: np.ndarray, images: np.ndarray) -> None:
        cv2.setNumThreads(1)
        for position, row in enumerate(rows.tolist()):
            images[position] = self.augment(images[position], np.random.default_rng(row))


def shuffled(rows: np.ndarray, seed: int) -> Iterator[np.ndarray]:
    """The rows in a random order, a batch at a time."""
    order = np.random.default_rng(seed).permutation(rows)
    return (order[start : start + BATCH] for start in range(0, len(order), BATCH))


def epochs_of(read: Callable, rows: np.ndarray, epochs: Iterable[int]) -> Iterator:
    """Batches of epoch after epoch, shuffled anew in each."""
    return (read(batch) for epoch in epochs for batch in shuffled(rows, epoch))


class ListIndex:
    """What the best-known answers do: sort the batch's rows and index the HDF5 dataset with that list."""

    def __init__(self, path: Path, labels: np.ndarray):
        self._path, self._labels = path, labels

    def epochs(self, rows: np.ndarray, epochs: int) -> Iterator:
        with h5py.File(self._path, "r") as file:
            yield from epochs_of(lambda batch: self._read(file, np.sort(batch)), rows, range(epochs))

    def _read(self, file: h5py.File, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return file["train_img"][rows.tolist()], self._labels[rows]


class LegacyAugment:
    """Flip, zoom and shear of one image by ``ImageDataGenerator.apply_transform``, as in the best-known answer."""

    def __init__(self):
        import tensorflow as tf

        self._generator = tf.keras.preprocessing.image.ImageDataGenerator()

    def __call__(self, image: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        zoom = rng.uniform(0.8, 1)
        changes = {"zx": zoom, "zy": zoom, "shear": rng.uniform(-6, 6), "flip_horizontal": bool(rng.integers(2))}
        return self._generator.apply_transform(image, changes)


def py_dataset(read: Rows, rows: np.ndarray, **pool):
    """A ``keras.utils.PyDataset`` of row reads; Keras shuffles the order of its batches in every epoch."""
    import keras

    batches = list(shuffled(rows, seed=0))

    class Batches(keras.utils.PyDataset):
        def __len__(self) -> int:
            return len(batches)

        def __getitem__(self, index: int):
            return read(batches[index])

    return Batches(**pool)


def from_generator(read: Rows, rows: np.ndarray):
    """``tf.data.Dataset.from_generator`` of whole batches, made ahead; one endless generator lasts for all epochs."""
    import tensorflow as tf

    signature = (
        tf.TensorSpec((None, *SHAPE), tf.uint8),
        tf.TensorSpec((None, read.labels.shape[1]), tf.float32),
    )
    dataset = tf.data.Dataset.from_generator(
        lambda: epochs_of(read, rows, itertools.count()), output_signature=signature
    )
    return dataset.prefetch(tf.data.AUTOTUNE)


def tfrecord(paths: tuple[Path, ...], n: int, classes: int):
    """TFRecord of raw pixels: files read in parallel, a shuffle buffer of a quarter of the images, batches parsed."""
    import tensorflow as tf

    features = {"image": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64)}

    def parse(examples):
        parsed = tf.io.parse_example(examples, features)
        images = tf.io.decode_raw(parsed["image"], tf.uint8, fixed_length=int(np.prod(SHAPE)))
        return tf.reshape(images, (-1, *SHAPE)), tf.one_hot(parsed["label"], classes)

    files = tf.data.Dataset.from_tensor_slices([str(path) for path in paths]).shuffle(len(paths))
    records = files.interleave(tf.data.TFRecordDataset, num_parallel_calls=tf.data.AUTOTUNE, deterministic=False)
    batches = records.shuffle(n // 4).repeat().batch(BATCH)  # repeated, so that no epoch waits for a full buffer
    return batches.map(parse, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)


class TorchBatches:
    """A map-style dataset for ``torch.utils.data.DataLoader`` whose keys are the rows of a whole batch."""

    def __init__(self, read: Rows):
        self._read = read

    def __getitem__(self, rows: np.ndarray):
        import torch

        images, labels = self._read(rows)
        return torch.from_numpy(images), torch.from_numpy(labels)


class TorchSampler:
    """Rows of a batch, batch by batch, in a new order each epoch."""

    def __init__(self, rows: np.ndarray):
        self._rows, self._epoch = rows, 0

    def __len__(self) -> int:
        return -(-len(self._rows) // BATCH)

    def __iter__(self) -> Iterator[np.ndarray]:
        self._epoch += 1
        return shuffled(self._rows, self._epoch)


def torch_loader(read: Rows, rows: np.ndarray):
    """PyTorch's DataLoader with 2 persistent workers, each 4 batches ahead; started from a clean process, not forked
    from this one, which runs TensorFlow.
    """
    from torch.utils.data import DataLoader

    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch", __name__])
    return DataLoader(
        TorchBatches(read),
        batch_size=None,
        sampler=TorchSampler(rows),
        num_workers=WORKERS,
        persistent_workers=True,
        prefetch_factor=4,
        multiprocessing_context=context,
    )


class GrainRead:
    """What Grain's workers call: positions among the rows -> batch."""

    def __init__(self, read: Rows, rows: np.ndarray):
        self._read, self._rows = read, rows

    def __call__(self, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return self._read(self._rows[np.asarray(positions)])


def grain_epochs(read: Rows, rows: np.ndarray, epochs: int) -> Callable[[], Iterator]:
    """Grain with 2 worker processes over shuffled batches of row reads; a function that gives one epoch a call."""
    import grain
    from absl import flags

    flags.FLAGS.mark_as_parsed()  # Grain asks for flags that only absl's own kind of main would read
    dataset = grain.MapDataset.range(len(rows)).shuffle(seed=0).repeat(epochs).batch(BATCH).map(GrainRead(read, rows))
    ahead = grain.ReadOptions(num_threads=1, prefetch_buffer_size=2)
    workers = grain.MultiprocessingOptions(num_workers=WORKERS, per_worker_buffer_size=2)
    batches = iter(dataset.to_iter_dataset(ahead).mp_prefetch(workers))
    return lambda: itertools.islice(batches, len(rows) // BATCH)

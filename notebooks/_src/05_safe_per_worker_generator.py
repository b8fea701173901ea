# ---
# jupyter:
#   lesson:
#     keras: true
#     gpu: not needed
#     files: data/toy_food_8x250_64px_seed0_drawing1.h5 (25 MB); 69 MB more while it runs
#     max_minutes: 3
#     max_memory_mb: 1600
# ---

# %% [markdown]
# # 05 · A safe generator for every worker
#
# **In this lesson you will build** a generator of about 30 lines that gives the same batches to threads, forked and
# spawned processes, and measure what makes it fast.
#
# **You can, at the end,**
#
# 1. name the four rules of a safe generator, and show the lines that keep them;
# 2. prove that an epoch serves every row once, whoever reads it;
# 3. choose a shuffle for a file and a disk;
# 4. say what a list index, row reads, threads and processes cost, because you measured it;
# 5. say which rows `fit` leaves out when an epoch has fewer steps than batches;
# 6. put the kit's `HDF5Sequence` in the place of your own class.
#
# **You need** lesson 04: it broke generators in the ways that this lesson prevents.
#
# <!-- facts -->

# %% tags=["nbval-ignore-output"]
from helpers.course.lesson import fails_with, open_lesson  # versions and device; shows an error that is meant to come

open_lesson(keras=True)

# %% [markdown]
# ## 1. Four rules
#
# Most failures of lesson 04 come from breaking one of these four rules.
#
# - **Rule 1.** Keep the *path*, never a handle. Otherwise: a handle in a pickle, a handle used after it was closed.
# - **Rule 2.** Open *one handle a process*, and keep it under the number of that process. Otherwise: a worker that
#   reads through its parent's handle.
# - **Rule 3.** Make order and chance from *(seed, epoch, row)* alone. Otherwise: workers that draw the same random
#   numbers, and another order for each number of workers.
# - **Rule 4.** Ask for a batch *by its number*. Otherwise: two threads inside one Python generator, and workers that
#   repeat each other's batches.
#
# With them, a batch has this way from the file to the model:

# %%
from helpers.course import figures  # pictures in one style

figures.show(figures.batch_life())

# %% [markdown]
# We build it from left to right, on the toy data of lesson 01. In our class the order moves into the workers as well:
# a worker is told the number of a batch, and works out the rows itself.

# %%
from data_scripts.make_toy_food import toy_food_file  # drawn plates of food: made once, then found again

path = toy_food_file("data", classes=8, per_class=250, size=64, seed=0)
print(path)

# %% [markdown]
# ## 2. Order: row numbers from three numbers
#
# Many of us start with a shuffled array of rows and a counter that walks through it. Both are *state*: with two
# workers, whose counter is it?
#
# The way out is a function without state. `np.random.default_rng([seed, epoch])` is a source of random numbers that
# starts from two given numbers. The same two numbers give the same draws, in every process and on every machine (with
# the same version of NumPy).

# %%
import numpy as np  # arrays and random numbers


def rows_of(n, batch_size, seed, epoch, index):
    order = np.random.default_rng([seed, epoch]).permutation(n)
    return order[index * batch_size : (index + 1) * batch_size]


# %% [markdown]
# **Predict:** There are 10 rows, in batches of 4. We ask for batch 2, then for batch 0, then for batch 2 again. Will
# the third answer be the same as the first?

# %%
for index in (2, 0, 2):
    print(f"epoch 0, batch {index}: rows {rows_of(10, 4, seed=0, epoch=0, index=index)}")
print(f"epoch 1, batch 2: rows {rows_of(10, 4, seed=0, epoch=1, index=2)}")

# %% [markdown]
# It is the same, and batch 2 holds the two rows that are left over. Nobody remembers what was asked before, so it
# does not matter who asks, in which order, or how often. Another epoch gives another order.

# %% [markdown]
# **Checkpoint 1a.** Training stops in epoch 7 after batch 300. What must you store to go on with batch 301?
#
# <details><summary>Answer</summary>
#
# The seed and the two numbers 7 and 301. The order of epoch 7 is made from them again, as long as the file and the size
# of a batch stay what they were.
#
# </details>

# %% [markdown]
# ## 3. Reader: one handle for each process
#
# Every process has a number, `os.getpid()`. A forked child gets a copy of all the parent's variables, but its own
# number. So we keep handles in a dictionary, under the number of the process that opened them. (This first sketch is
# for a single file.)

# %%
import os  # the number of this process
from pathlib import Path  # file names

import h5py  # HDF5 files

files = {}


def open_here(path):
    if os.getpid() not in files:
        files[os.getpid()] = h5py.File(path, "r")
    return files[os.getpid()]


# %% [markdown]
# The first call opens the file, the second finds it. A forked child would look under *its* number, find nothing, and
# open the file itself. It never touches the handle that it inherited.
#
# A spawned worker inherits nothing: it gets the generator as a *pickle*, a string of bytes.
#
# **Predict:** What will `pickle` say to our dictionary with an open file in it?

# %%
import pickle  # objects as bytes, the way they travel to a worker

print("opened once:", open_here(path) is open_here(path), "| handles kept:", len(files))
with fails_with(TypeError):
    pickle.dumps(files)

# %% [markdown]
# A handle cannot travel, and need not: the path is enough. `pickle` asks an object what to take along by calling its
# method `__getstate__`. Ours will answer "everything, but with an empty dictionary".

# %% [markdown]
# ## 4. The whole generator
#
# Here are the four rules in one class. Read it with the list of section 1 beside it. `augment` is any function of
# `(image, rng)`, where `rng` is a source of random numbers as in section 2: one for each image, started from (seed,
# epoch, row). Nothing closes the handles; each ends with its process.


# %% tags=["long"]
class SafeBatches:
    """Batches of one split, made from (epoch, index) alone: the same in threads, forked and spawned processes."""

    def __init__(self, path, split="train", batch_size=32, seed=0, augment=None, shuffle=True):
        self.path, self.split, self.batch_size = Path(path).absolute(), split, batch_size  # rule 1
        self.seed, self.augment, self.shuffle = seed, augment, shuffle
        self._files = {}  # process number -> the handle that this process opened
        with h5py.File(path, "r") as file:
            self.labels = file[f"{split}_labels"][:]  # small: one byte a class and row

    def __len__(self):
        return -(-len(self.labels) // self.batch_size)  # rounded up: the last batch may be smaller

    def rows_of(self, epoch, index):  # rule 3, the order
        if not 0 <= index < len(self):
            raise IndexError(f"batch {index} was asked for; an epoch has batches 0 to {len(self) - 1}.")
        order = np.arange(len(self.labels))
        if self.shuffle:
            order = np.random.default_rng([self.seed, epoch]).permutation(order)
        return order[index * self.batch_size : (index + 1) * self.batch_size]

    def batch(self, epoch, index):  # rule 4
        rows = self.rows_of(epoch, index)
        data = self._file()[f"{self.split}_img"]
        images = np.stack([data[row] for row in rows])
        if self.augment is not None:  # rule 3, the chance
            chances = [np.random.default_rng([self.seed, epoch, row]) for row in rows]
            images = np.stack([self.augment(image, rng) for image, rng in zip(images, chances, strict=True)])
        return images, self.labels[rows].astype("float32")

    def _file(self):  # rule 2
        if os.getpid() not in self._files:
            self._files[os.getpid()] = h5py.File(self.path, "r")
        return self._files[os.getpid()]

    def __getstate__(self):  # rule 1, for pickles
        return {**self.__dict__, "_files": {}}


# %% [markdown]
# **Predict:** The training split has 1,400 rows, a batch 32. How many images does the last batch, number 43, hold?

# %%
train = SafeBatches(path, batch_size=32, seed=0)
images, labels = train.batch(epoch=0, index=43)
print(len(train), "batches; the last one:", images.shape, images.dtype, labels.shape, labels.dtype)

# %% [markdown]
# 24: 43 full batches are 1,376 rows, and the rest is served too. The images stay uint8, one byte a colour.
#
# Keras wants a `keras.utils.PyDataset`: an object with a length, items, and a word about the end of an epoch. That is
# a thin coat around our class.

# %%
import keras  # models, and the class of datasets that Keras reads


class SafeGenerator(keras.utils.PyDataset):
    def __init__(self, batches, **workers):
        super().__init__(**workers)  # workers=, use_multiprocessing=, max_queue_size=
        self.batches, self.epoch = batches, 0

    def __len__(self):
        return len(self.batches)

    def __getitem__(self, index):
        return self.batches.batch(self.epoch, index)

    def on_epoch_end(self):
        self.epoch += 1


# %% [markdown]
# Why two classes? A worker imports what its object is made of. We ask two fresh Python processes, with `run_in_child`
# from lesson 04, how much memory that takes.

# %%
from helpers.course.failures import run_in_child  # a fresh Python process, with limits

with_keras, without = run_in_child("import keras").peak_mb, run_in_child("import numpy, h5py").peak_mb
print("Keras costs a worker at least 5 times the memory:", with_keras > 5 * without)

# %% [markdown]
# So a worker should get the inner object, never the coat. The kit's `HDF5Sequence` (section 10) has the same two
# layers.

# %% [markdown]
# **Checkpoint 1b.** Name the four rules without looking, and find the lines of `SafeBatches` that keep each. Which
# lines would you have to delete to get the error of section 3 again?
#
# <details><summary>Answer</summary>
#
# 1. The path, never a handle: `self.path = ...` and `__getstate__`.
# 2. One handle a process: `_file`.
# 3. Order and chance from (seed, epoch, row): the two lines with `default_rng`.
# 4. Ask by number: `batch(epoch, index)`.
#
# The error comes back without the two lines of `__getstate__`, once a batch was read: then an open handle is in
# `_files`, and pickle refuses it.
#
# </details>

# %% [markdown]
# ## 5. Does it hold?
#
# First: every row once in an epoch. We do not ask the generator which rows it served, we look at the **pixels**. All
# pictures of the toy data differ, so a picture says which row it is.

# %%
with h5py.File(path, "r") as file:
    all_images, all_labels = file["train_img"][:], file["train_labels"][:]  # 17 MB of toys; Food-101 would not fit
row_of = {image.tobytes(): row for row, image in enumerate(all_images)}
print(len(row_of), "different pictures in", len(all_images), "rows")

# %% [markdown]
# **Predict:** We read epoch 0 and look up every picture. How many of the 1,400 rows come exactly once?

# %%
epoch = [train.batch(0, index) for index in range(len(train))]
served = np.array([row_of[image.tobytes()] for images, _ in epoch for image in images])
served_labels = np.concatenate([labels for _, labels in epoch])
print("rows that come exactly once:", np.count_nonzero(np.bincount(served, minlength=1400) == 1))
print("labels that belong to their picture:", np.count_nonzero((served_labels == all_labels[served]).all(axis=1)))

# %% [markdown]
# All of them, with their labels. Second: the same batches from everyone. A *fingerprint* of a batch, by `hashlib`,
# changes when a single bit of it changes. We let the images be mirrored by chance, so that a wrong random number
# would show as well.

# %%
import hashlib  # fingerprints of bytes

from helpers import Augment  # random changes of images: lesson 06


def fingerprint(batch):
    return hashlib.sha256(batch[0].tobytes() + batch[1].tobytes()).hexdigest()[:8]


mirrored = SafeBatches(path, batch_size=32, seed=0, augment=Augment(horizontal_flip=True))
wanted = [fingerprint(mirrored.batch(0, index)) for index in range(len(mirrored))]
print("no workers:", *wanted[:6], "...")

# %% [markdown]
# Now four threads share the one object, and the one handle in it. That is safe: `h5py` lets one thread at a time into
# HDF5.

# %%
from concurrent.futures import ThreadPoolExecutor  # a pool of threads

with ThreadPoolExecutor(4) as pool:
    by_threads = list(pool.map(lambda index: fingerprint(mirrored.batch(0, index)), range(len(mirrored))))
print("4 threads, same batches:", by_threads == wanted)

# %% [markdown]
# Next, two **spawned** processes. Lesson 04 showed that they cannot import a class from a notebook. The kit's
# `WorkerPool` sends the object by value instead, with the code of its class.

# %%
from helpers.workers import WorkerPool  # threads or spawned processes that answer in order

with WorkerPool(lambda index: fingerprint(mirrored.batch(0, index)), workers=2, processes=True) as pool:
    by_spawned = [pool.get(index) for index in range(len(mirrored))]
print("2 spawned processes, same batches:", by_spawned == wanted)

# %% [markdown]
# Last, two **forked** processes, in the hardest case: the parent has read before, so both children inherit an open
# handle. A fork of this notebook, which runs TensorFlow, may stand still for ever; so it happens in a fresh child.

# %%
import multiprocessing  # processes


def fork_lab(batches, wanted):
    batches.batch(0, 0)  # the parent's handle is open from here on
    context = multiprocessing.get_context("fork")
    answers = context.SimpleQueue()

    def work(first):
        found = {index: fingerprint(batches.batch(0, index)) for index in range(first, len(batches), 2)}
        answers.put((found, len(batches._files)))

    for first in (0, 1):
        context.Process(target=work, args=(first,)).start()
    (even, handles), (odd, _) = answers.get(), answers.get()
    same = [(even | odd)[index] for index in range(len(batches))] == wanted
    print(f"2 forked processes, same batches: {same}; handles a worker knows: {handles}")


# %%
can_fork = "fork" in multiprocessing.get_all_start_methods()
print(run_in_child(fork_lab, args=(mirrored, wanted)).output if can_fork else "This lab needs fork: Linux or macOS.")

# %% [markdown]
# A forked worker knows two handles: the inherited one, which it never uses, and its own.
#
# Rule 3 is the one that people forget. Here is an augmentation that takes its chance from Python's hidden global
# state, and no worker at all.
#
# **Predict:** We read the same 44 batches twice. How many of them are equal?

# %%
import random  # Python's own random numbers: one hidden state for the whole process


def careless(image, _):
    return image[:, ::-1] if random.random() < 0.5 else image


loose = SafeBatches(path, batch_size=32, seed=0, augment=careless)
first, second = ([fingerprint(loose.batch(0, index)) for index in range(len(loose))] for _ in range(2))
print("equal batches:", sum(one == two for one, two in zip(first, second, strict=True)), "of", len(loose))

# %% [markdown]
# None: two batches are equal only if each of their 32 images (24 in the last batch) has the same luck twice. Such a
# batch can never be made again: not after an interrupt, and not to look for a bug. NumPy's global
# `np.random.random()` is worse: in forked workers it also makes the twins of lesson 04. (Python's `random` starts anew
# after a fork.)

# %% [markdown]
# **Checkpoint 2.** Why do we decode rows from pixels, instead of printing `train.rows_of(0, index)`?
#
# <details><summary>Answer</summary>
#
# `rows_of` says what the generator *wanted* to read. A mistake after that (images in another order than labels, a
# read at the wrong place) would not show. The pixels say what arrived.
#
# </details>

# %% [markdown]
# ## 6. Full shuffle, block shuffle, no shuffle
#
# Our class knows two orders: all rows mixed, or the order of the file. The kit's `EpochOrder` has a third one. It
# cuts the file into blocks of neighbouring rows, mixes the blocks, keeps a few of them open, and mixes the rows of
# those.

# %%
from helpers import EpochOrder  # the kit's order: the same idea as rows_of

orders = {
    '"full": all rows mixed': EpochOrder(1400, 32, "full", seed=0),
    '"block": 4 blocks of 50 rows open at a time': EpochOrder(1400, 32, "block", seed=0, block_rows=50, open_blocks=4),
    "None: the order of the file": EpochOrder(1400, 32, None, seed=0),
}
strips = {name: np.concatenate(order.batches(0)) for name, order in orders.items()}
figures.show(figures.order_strip(strips, kind="row", title="One epoch of 1,400 rows"))

# %% [markdown]
# In the middle strip each stretch of 200 positions has colours from four blocks only.
#
# What is the block shuffle for? A spinning disk or a network disk is slow at jumps. The next cell counts for each
# batch into how many of the 28 blocks of 50 rows it reaches, and prints the median.

# %%
for name, order in orders.items():
    reached = [len(np.unique(rows // 50)) for rows in order.batches(0)]
    print(f"{name}: a batch reaches into {np.median(reached):.0f} blocks")

# %% [markdown]
# The rows of 4 blocks are used up together, and then nobody needs these blocks again in this epoch: the disk reads
# long stretches, and the system's file cache does the rest.
#
# The price: rows that are far apart in the file cannot meet in a batch. That is fine when the file itself is mixed,
# as ours is. It is a disaster when the file is sorted by class:

# %%
mixed = all_labels.argmax(axis=1)
for name, order in orders.items():
    for kind, classes in {"mixed": mixed, "sorted": np.sort(mixed)}.items():
        counts = [len(np.unique(classes[rows])) for rows in order.batches(0)]
        print(f"{name}; {kind} file: {np.mean(counts):.1f} classes a batch")

# %% [markdown]
# So: `"full"` wherever a jump is cheap (memory, an SSD). `"block"` for a file larger than the memory on a slow disk,
# if the file is mixed; `build_hdf5` writes it so. `None` for validation and test: nothing is learned there, and the
# predictions come in the order of the file.

# %% [markdown]
# **Checkpoint 3.** Your file has 27 GB, lies on a spinning disk, and your machine has 8 GB. Which shuffle?
#
# <details><summary>Answer</summary>
#
# `"block"`, after a look whether the file is mixed (`inspect_file` says so). If it is sorted by class, mix it once
# first; otherwise a batch sees a few classes only.
#
# </details>

# %% [markdown]
# ## 7. The speed ladder
#
# Toy pictures are small: 12 kB. Those of the question (lesson 00) have 299 x 299 pixels, 268 kB. To measure what
# the question would feel, we enlarge 256 toy pictures to that size.

# %%
from helpers import HDF5Writer  # lesson 01's writer
from helpers.images import resize_image  # another size, with OpenCV

big = Path("data/enlarged_256_299px.h5")
with HDF5Writer(big, (299, 299, 3), [f"class {number}" for number in range(8)]) as writer:
    for start in range(0, 256, 32):
        enlarged = np.stack([resize_image(image, (299, 299)) for image in all_images[start : start + 32]])
        writer.append("train", enlarged, all_labels[start : start + 32])

# %% [markdown]
# Two ways to read the 32 rows of a shuffled batch. The first is the one of the best-known answers: HDF5 gets the list
# of rows. It wants the list sorted, so the order is restored afterwards. The second is the one of our class.

# %%
data = h5py.File(big, "r")["train_img"]
rows = rows_of(256, 32, seed=0, epoch=0, index=0)


def by_list_index():
    return data[np.sort(rows)][np.argsort(np.argsort(rows))]  # sorted for HDF5, then back to the order asked for


def row_by_row():
    return np.stack([data[row] for row in rows])


print("the same pictures:", np.array_equal(by_list_index(), row_by_row()))

# %% [markdown]
# For comparison we also time one run of 32 neighbours, the easiest read there is.
#
# **Predict:** Which of the two is faster, the list or the single rows, and how many times?

# %% tags=["nbval-ignore-output"]
from helpers.course.meters import benchmark  # median seconds of a function

list_index = benchmark(by_list_index, repeat=3, warmup=0, items=32)
one_read_a_row = benchmark(row_by_row, items=32)
one_run = benchmark(lambda: data[64:96], items=32)
for name, timing in {"list": list_index, "rows": one_read_a_row, "one run of neighbours": one_run}.items():
    print(f"{name}: {timing.per_second:,.0f} images/s")

# %%
print("row by row is at least 5 times faster than the list:", one_read_a_row.times_faster_than(list_index) > 5)

# %% [markdown]
# HDF5 builds one selection out of the whole list, and that costs far more than the reads themselves. A run of
# neighbours, as in validation, is one read: the kit's `RowReader` looks for such runs.
#
# Now the workers. They read, and they augment as lesson 06 will: flip, zoom and shear. The items of the pool are
# numbered through the epochs: `divmod(item, len(batches))` turns item 11 of 8 batches an epoch into epoch 1, batch 3.

# %%
changes = Augment(horizontal_flip=True, zoom=(0.8, 1), shear=6)
batches = SafeBatches(big, batch_size=32, seed=0, augment=changes)


def measure(workers, processes=False, count=8):
    items = iter(range(1000))
    with WorkerPool(lambda item: batches.batch(*divmod(item, len(batches))), workers, processes=processes) as pool:

        def serve():
            for _ in range(count):
                pool.get(next(items))

        return benchmark(serve, repeat=3, items=32 * count)  # a run before, not measured, wakes the workers


# %% [markdown]
# **Predict:** Suppose two cores are free. Do two threads give twice the speed of none? And two processes?

# %% tags=["nbval-ignore-output"]
ladder = {
    "read: list index": list_index,
    "read: row by row": one_read_a_row,
    "read: one run": one_run,
    "augment too: no workers": measure(0),
    "augment too: 2 threads": measure(2),
    "augment too: 2 processes": measure(2, processes=True),
}
speeds = [timing.per_second for timing in ladder.values()]
title = "The ladder, at 299 x 299 pixels"
figures.show(figures.bars(list(ladder), speeds, "images/s", log=True, title=title, highlight="read: list index"))

# %%
print("augmented row reads, one thread, still beat the bare list:", speeds[3] > 5 * speeds[0])

# %% [markdown]
# Read the picture from top to bottom. Orange is the way of the best-known answers.
#
# - The largest step is the first: no worker can repair a list index.
# - Augmentation is now the slow part. OpenCV lets go of Python's lock (the *GIL*) while it works, so two threads use
#   two cores, if two are free.
# - Threads would not help a bare read (not in the picture): HDF5 has one lock for all its calls in a process.
# - Processes are *slower* than threads here, although they share no lock. The next section looks for the reason.
#
# Mind the log scale: a small difference between two bars may be a factor of two. Compare the numbers.

# %% [markdown]
# **Checkpoint 4a.** Somebody trains with the list index and sets `workers=8`. What do they win at most, compared with
# row reads and no workers?
#
# <details><summary>Answer</summary>
#
# Nothing, they lose. Eight times the top bar of the chart is still far below the second bar, and HDF5's lock would not
# even let eight threads win the eight times.
#
# </details>

# %% [markdown]
# ## 8. The next limit: the pipe
#
# A worker process has memory of its own. Its finished batch must come over: it is pickled, pushed through a pipe in
# small pieces, and put together again. We send one batch through such a pipe, as uint8 and as float32. A thread sends
# while we receive, because a pipe holds only a small piece at a time.

# %%
import threading  # the other end of the pipe

uint8_batch = row_by_row()
float32_batch = uint8_batch.astype(np.float32) / 255
sender, receiver = multiprocessing.Pipe()


def ship(batch):
    threading.Thread(target=sender.send, args=(batch,)).start()
    return receiver.recv()


print(f"uint8: {len(pickle.dumps(uint8_batch)) / 1e6:.1f} MB, float32: {len(pickle.dumps(float32_batch)) / 1e6:.1f} MB")

# %% [markdown]
# **Predict:** Read 32 pictures, augment them, send them through the pipe as uint8, or as float32. Which takes longest?

# %% tags=["nbval-ignore-output"]
chances = [np.random.default_rng([0, 0, row]) for row in rows]
costs = {
    "read 32 rows": one_read_a_row,
    "augment them": benchmark(lambda: [changes(*pair) for pair in zip(uint8_batch, chances, strict=True)]),
    "through the pipe as uint8": benchmark(lambda: ship(uint8_batch)),
    "through the pipe as float32": benchmark(lambda: ship(float32_batch)),
}
milliseconds = [1000 * timing.seconds for timing in costs.values()]
figures.show(figures.bars(list(costs), milliseconds, "ms", title="One batch of 32 images, 299 x 299"))

# %%
print("a float32 batch has", float32_batch.nbytes // uint8_batch.nbytes, "times the bytes of a uint8 batch")

# %% [markdown]
# There it is. Even as uint8 the pipe costs several times the read, and as float32 more than reading and augmenting
# together. Both ends work for it: the worker packs and sends, and the training process has to receive and unpack every
# batch itself. Two habits follow.
#
# - Send **uint8**, and let the model scale it (`normalization`, lesson 06): a quarter of the bytes.
# - Prefer **threads**. Processes win when a batch costs much *Python* work of your own, which holds the lock, and few
#   bytes. The next cell has such a case: `batches` are now small toy pictures, changed by a function that counts in
#   plain Python. Two threads take turns; two processes use two cores, and win more the freer these are.


# %% tags=["nbval-ignore-output"]
def plain_python(image, _):
    return image[:, ::-1] if sum(number % 7 for number in range(50_000)) % 2 else image


batches = SafeBatches(path, batch_size=32, seed=0, augment=plain_python)
ways = {"no workers": (0, False), "2 threads": (2, False), "2 processes": (2, True)}
for name, (workers, processes) in ways.items():
    timing = measure(workers, processes, count=4)
    print(f"{name}: {timing.items / min(timing.runs):,.0f} images/s in the best of 3 runs")

# %%
data.file.close()
big.unlink()  # 69 MB that nobody needs any more
print("the enlarged pictures are gone:", not big.exists())

# %% [markdown]
# **Checkpoint 4b.** A queue holds up to 10 finished batches. How many MB is that for the two kinds of batches above?
#
# <details><summary>Answer</summary>
#
# 86 MB of uint8, 343 MB of float32. The classic call `max_queue_size=100` would take 3.4 GB of float32.
#
# </details>

# %% [markdown]
# ## 9. Epochs and steps
#
# Keras calls one round of `steps_per_epoch` batches an epoch. What if that is fewer than the data has?
#
# We take 1,400 rows in the order of the file, in 40 batches of 35: so a picture of row *r* belongs to batch `r // 35`.
# And we build a model that trains nothing. It only writes down which batch it was given, by the first picture
# (`run_eagerly=True` lets it do so in plain Python).

# %%
from helpers.models import small_cnn  # a small network for laptops

trained = []


class Listener(keras.Model):
    def train_step(self, data):
        first_image = keras.ops.convert_to_numpy(data[0][0])
        trained.append(row_of[first_image.tobytes()] // 35)
        return {"loss": 0.0}


network = small_cnn((64, 64, 3), 8)
listener = Listener(network.inputs, network.outputs)
listener.compile(loss="categorical_crossentropy", run_eagerly=True)

# %% [markdown]
# Four epochs of 10 steps are 40 steps, as many as there are batches. `shuffle=False` keeps Keras from mixing the
# numbers of the batches.
#
# **Predict:** Two threads prepare the batches. Which of the 40 batches does the model meet in these 40 steps?

# %% tags=["nbval-ignore-output"]
batches_of_35 = SafeBatches(path, batch_size=35, shuffle=False)
generator = SafeGenerator(batches_of_35, workers=2, max_queue_size=3)
listener.fit(generator, steps_per_epoch=10, epochs=4, shuffle=False, verbose=0)
with_fit, trained = trained, []
print(with_fit)

# %%
print("steps:", len(with_fit), "| more than 10 batches never met:", len(set(with_fit)) < 30)

# %% [markdown]
# In every epoch `fit` lets the threads begin at batch 0 again. Only the few batches that are still in the queue come
# first: after batch 9 a few more, and then batch 0. Most of the data is never seen, and nothing says so. (With a
# shuffle, each epoch leaves out other rows, which is harder to notice.) Our generator is innocent: it answered every
# question right.
#
# > **Then and now.** `Model.fit_generator` left Keras in version 3; `fit` took over. The kit's
# > `helpers.fit_generator` has the classic arguments, and treats the data as one endless stream: step *k* of epoch
# > *e* is item *e* x steps + *k*.
#
# For that it must know the generator. It knows the kit's own class, `HDF5Sequence`. For any other it can only warn:

# %%
import warnings  # to show a warning in its place

from helpers import HDF5Sequence, fit_generator  # the kit's own generator, and the classic call on today's Keras

with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    fit_generator(listener, generator, steps_per_epoch=10, epochs=1, verbose=0)
print(caught[0].message)

# %% [markdown]
# Now the same four epochs of ten steps with the kit's class, also with two threads and a short queue.

# %%
trained.clear()
stream = HDF5Sequence(path, "train", batch_size=35, shuffle=None, workers=2, max_queue_size=3)
fit_generator(listener, stream, steps_per_epoch=10, epochs=4, verbose=0)
print("different batches met:", len(set(trained)), "of", len(stream))

# %% [markdown]
# Side by side:

# %%
import matplotlib.pyplot as plt  # a drawing of our own

figure, panels = plt.subplots(1, 2, sharey=True, layout="constrained")
for panel, (name, numbers) in zip(panels, {"fit": with_fit, "fit_generator": trained}.items(), strict=True):
    panel.plot(range(1, 41), numbers, "o")
    panel.set(title=name, xlabel="step (an epoch is 10 steps)", ylabel="batch", xticks=[1, 10, 20, 30, 40])
words = "Batch number against step. fit: a saw that begins at 0 again and again. fit_generator: one straight line."
figures.show(figure, alt=words)

# %% [markdown]
# **Checkpoint 5a.** Once more `fit`, with two threads, a queue of 3, 10 steps an epoch and the order of the file, but
# for 100 epochs. Which of the 1,400 rows does the model never meet?
#
# <details><summary>Answer</summary>
#
# It meets batches 0 to 9, and the few that were in the queue at the end of an epoch: up to about batch 13. The rows
# from about 14 x 35 = 490 on are left out, however many epochs you train.
#
# </details>

# %% [markdown]
# **Checkpoint 5b.** You have 40 batches and ask `fit_generator` for 3 epochs of 50 steps. How often is batch 0 trained
# on, without shuffling?
#
# <details><summary>Answer</summary>
#
# 150 steps are items 0 to 149 of the stream. Batch 0 is item 0, 40, 80 and 120: four times. The passes over the data
# do not care where an epoch of Keras begins.
#
# </details>

# %% [markdown]
# ## 10. The production class
#
# `HDF5Sequence` is our class, grown up. The order comes from `EpochOrder`, the rows from `RowReader`, and the batches
# are the same, bit for bit:

# %%
kit = HDF5Sequence(path, "train", batch_size=32, seed=0, augment=Augment(horizontal_flip=True))
same = [fingerprint(kit.batch(0, index)) for index in range(len(kit))]
print("the batches of our 30 lines:", same == wanted)

# %% [markdown]
# The grown-up part is what it refuses. Each line below is a mistake that would otherwise cost an hour.

# %%
from helpers.layout import LayoutError  # what the kit raises when a file does not hold what was asked for

mistakes = [
    lambda: HDF5Sequence(path, "validation"),
    lambda: HDF5Sequence(path, batch_size=2000, drop_last=True),
    lambda: HDF5Sequence(path, rows=np.array([True, False]), images="train_img", labels="train_labels"),
    lambda: HDF5Sequence(path, augment=lambda image, _: image / 255),
    lambda: HDF5Sequence(path)[44],
    lambda: fit_generator(listener, HDF5Sequence(path, label_kind="sparse"), verbose=0),
]
for mistake in mistakes:
    with fails_with(LayoutError, ValueError, TypeError, IndexError):
        mistake()

# %% [markdown]
# Beyond our class it reads JPEG bytes and files with other names of datasets, serves a list of rows, class numbers
# instead of one-hot labels, and shards for several machines (lesson 08).
#
# It trains, too. A short run, with two threads at work:

# %%
from helpers.models import normalization  # (x - mean) / 127.5 as a layer of the model

keras.utils.set_random_seed(0)
model = small_cnn(kit.image_shape, kit.num_classes, normalization=normalization(path), width=8)
model.compile("adam", "categorical_crossentropy", metrics=["accuracy"])
loss = fit_generator(model, kit, epochs=3, workers=2, verbose=0).history["loss"]
print("the loss fell:", loss[-1] < loss[0] - 0.1, "| the sequence stands at epoch", kit.epoch)

# %% [markdown]
# After three epochs the sequence stands at epoch 3: the next call goes on with the fourth order of rows, not with the
# first again.

# %% [markdown]
# **Checkpoint 6.** In your own training script, which lines change when `HDF5Sequence` replaces `SafeGenerator`?
#
# <details><summary>Answer</summary>
#
# Those that make it: `SafeBatches(...)` and `SafeGenerator(...)` become
# `HDF5Sequence(path, "train", batch_size=32, seed=0, augment=...)`. It is a `keras.utils.PyDataset` as well, so
# `model.fit` takes it unchanged. Better, write `fit_generator(model, ...)` for `model.fit(...)`: then workers, steps
# and resuming are taken care of.
#
# </details>

# %% [markdown]
# ## Key points
#
# - Path, one handle a process, chance from (seed, epoch, row), batches by number: then it does not matter who reads.
# - Reading row by row instead of by a list is the largest step; threads are the next; processes pay for every byte.
# - `fit` with workers and few steps leaves data out; `fit_generator` with an `HDF5Sequence` serves one endless
#   stream.

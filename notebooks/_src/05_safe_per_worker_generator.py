# ---
# jupyter:
#   lesson:
#     keras: true
#     gpu: not needed
#     files: data/toy_food_8x250_64px_seed0_drawing1.h5 (25 MB); 105 MB more while it runs
#     max_minutes: 3
#     max_memory_mb: 1600
# ---

# %% [markdown]
# # 05 · A safe generator for every worker
#
# **In this lesson you will build** a generator of about 30 lines that gives the same batches to threads, forked and
# spawned processes, and measure, step by step, what makes it fast.
#
# **You can, at the end,**
#
# 1. name the four rules of a safe generator, and show the lines that keep them;
# 2. prove that an epoch serves every row once, whoever reads it;
# 3. choose a shuffle for a file and a disk;
# 4. say what a list index, row reads, a pipe and a slot of shared memory cost, because you measured it;
# 5. say when threads are enough, and when processes are needed;
# 6. put the kit's `HDF5Sequence` and `fit_generator` in the place of your own class and of `fit`, and say why.
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
# - **Rule 3.** Make the order from *(seed, epoch)*, and chance from *(seed, epoch, row)*, alone. Otherwise: workers
#   that draw the same random numbers, and another order for each number of workers.
# - **Rule 4.** Ask for a batch *by its number*. Otherwise: two threads inside one Python generator, and workers that
#   repeat each other's batches.
#
# With them, a batch has this way from the file to the model:

# %%
from helpers.course import figures  # pictures in one style

figures.show(figures.batch_life())

# %% [markdown]
# We build it from left to right, on the toy data of lesson 01. Unlike in the picture, a worker of ours is told only the
# number of a batch, and works out the rows itself.

# %% [markdown]
# ## 2. Order: row numbers without state
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
# **Checkpoint 1a.** Training stops in epoch 7 after batch 300. What must you store to get batch 301 of the data?
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

from data_scripts.make_toy_food import toy_food_file  # drawn plates of food: made once, then found again

path = toy_food_file("data", classes=8, per_class=250, size=64, seed=0)
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
# Why two classes? A worker imports what its object is made of. NumPy and h5py take some 40 MB; Keras with TensorFlow
# takes some 600 MB, and seconds to start. So a worker should get the inner object, not the coat. (Keras' own pool sends
# the coat; the kit's `fit_generator` does not.) The kit's `HDF5Sequence` (section 13) has the same two layers.

# %% [markdown]
# **Checkpoint 1b.** Name the four rules without looking, and find the lines of `SafeBatches` that keep each. Which
# lines would you have to delete to get the error of section 3 again?
#
# <details><summary>Answer</summary>
#
# 1. The path, never a handle: `self.path = ...` and `__getstate__`.
# 2. One handle a process: `_file`.
# 3. Order from (seed, epoch), chance from (seed, epoch, row): the two lines with `default_rng`.
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
# pictures of the toy data differ, so a picture says which row it is: `row_of` finds it.
#
# **Predict:** We read epoch 0 and look up every picture. How many of the 1,400 rows come exactly once?

# %%
with h5py.File(path, "r") as file:
    all_images, all_labels = file["train_img"][:], file["train_labels"][:]  # 17 MB of toys; Food-101 would not fit
row_of = {image.tobytes(): row for row, image in enumerate(all_images)}
epoch = [train.batch(0, index) for index in range(len(train))]
served = np.array([row_of[image.tobytes()] for images, _ in epoch for image in images])
served_labels = np.concatenate([labels for _, labels in epoch])
print("different pictures:", len(row_of), "in", len(all_images), "rows")
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
# Now two threads share the one object, and the one handle in it. That is safe: `h5py` lets one thread at a time into
# HDF5. Then two **spawned** processes, fresh programs that inherit nothing. Lesson 04 showed that they cannot import a
# class from a notebook; the kit's `WorkerPool` sends the object by value instead, with the code of its class.

# %%
from helpers.workers import WorkerPool  # threads or processes that answer in order

for kind, processes in {"threads": False, "spawned processes": True}.items():
    with WorkerPool(lambda index: fingerprint(mirrored.batch(0, index)), workers=2, processes=processes) as pool:
        by_workers = [pool.get(index) for index in range(len(mirrored))]
    print(f"2 {kind}, same batches:", by_workers == wanted)

# %% [markdown]
# Last, two **forked** processes, in the hardest case: the parent has read before, so both children inherit an open
# handle. A fork of this notebook, which runs TensorFlow, may stand still for ever; so it happens in a fresh child, with
# `run_in_child` of lesson 04.

# %%
import multiprocessing  # processes

from helpers.course.failures import run_in_child  # a fresh Python process, with limits


def fork_lab(batches, wanted):
    batches.batch(0, 0)  # the parent's handle is open from here on
    context = multiprocessing.get_context("fork")
    answers = context.SimpleQueue()

    def work(first):
        found = {index: fingerprint(batches.batch(0, index)) for index in range(first, len(batches), 2)}
        answers.put((found, len(batches._files)))

    for first in (0, 1):
        context.Process(target=work, args=(first,)).start()
    (some, handles), (others, _) = answers.get(), answers.get()
    same = [(some | others)[index] for index in range(len(batches))] == wanted
    print(f"2 forked processes, same batches: {same}; handles a worker knows: {handles}")


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
# cuts the file into blocks of neighbouring rows, mixes the blocks, opens a few of them, mixes the rows of those, serves
# them all, and opens the next few.

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
# What is that for? A spinning disk or a network disk is slow at jumps, and fast at reading on. While four blocks are
# served, the kit already asks the system for the next four, in the order of the file. They wait in the *page cache*,
# the memory in which the system keeps what it has read. So the disk reads long stretches, and the jumps between the
# rows of a batch happen in memory. Lesson 08 counts the jumps that are left.
#
# The price: rows that are far apart in the file hardly ever meet in a batch. How much does that cost? We measure three
# things.
#
# - Into how many of the 28 **blocks** a batch reaches, on average.
# - How many of the 8 **classes** it shows.
# - The **entropy of neighbours**: are two rows that lie side by side in the file always served equally far apart (0),
#   or anywhere in the epoch (1)? It says how well the order itself is mixed, whatever the file holds.
#
# We ask for our file, whose rows were mixed when it was built, and for the same rows sorted by class.
#
# **Predict:** In the sorted file a class fills three and a half blocks. How many classes does a batch of the block
# shuffle show there?

# %%
from helpers.course.mixing import measure_mixing  # blocks and classes a batch, entropy of neighbours

classes = all_labels.argmax(axis=1)
for name, served in strips.items():
    print(name)
    for kind, numbers in {"mixed file": classes, "sorted file": np.sort(classes)}.items():
        print(f"  {kind:>11}: {measure_mixing(served, numbers, batch_size=32, block_rows=50)}")

# %% [markdown]
# About four: one for each open block, and sometimes one more. In the mixed file a batch shows nearly all classes, in
# every order: that mixing was done once, when the file was built. ("By chance" is what a full shuffle would give.)
#
# How would you know that a file is sorted? The inspector of lesson 01 looks at the labels. We give it a sorted copy:

# %%
import shutil  # copies of files

from helpers import inspect_file  # lesson 01: looks for faults and traps in a file

sorted_path = shutil.copy(path, "data/sorted_by_class.h5")
by_class = np.argsort(classes, kind="stable")
with h5py.File(sorted_path, "r+") as file:
    file["train_img"][:], file["train_labels"][:] = all_images[by_class], all_labels[by_class]
for warning in inspect_file(sorted_path).warnings:
    print(warning)

# %% [markdown]
# Now we train, four times: the same small network from the same first weights, the same number of steps, and only the
# order differs. To be quick we take every second pixel. `fit` gets the rows of each epoch in our order, and
# `shuffle=False` keeps Keras from mixing them again.

# %%
from helpers.models import small_cnn  # a small network for laptops

with h5py.File(path, "r") as file:
    unseen = file["valid_img"][:, ::2, ::2], file["valid_labels"][:]


def learn(order, file_rows):
    keras.utils.set_random_seed(0)
    model = small_cnn((32, 32, 3), 8, width=8)
    model.compile("adam", "categorical_crossentropy", metrics=["accuracy"])
    accuracy, loss = [], []
    for epoch in range(4):
        rows = file_rows[np.concatenate(order.batches(epoch))]
        images, labels = all_images[rows, ::2, ::2], all_labels[rows]
        history = model.fit(images, labels, batch_size=32, shuffle=False, validation_data=unseen, verbose=0).history
        accuracy, loss = accuracy + history["val_accuracy"], loss + history["loss"]
    return accuracy, loss


# %% [markdown]
# **Predict:** Which of the four learns best, and which worst: full shuffle, block shuffle of the mixed file, block
# shuffle of the sorted file, or the sorted file as it lies?

# %% tags=["nbval-ignore-output"]
full, block, unmixed = orders.values()
as_built = np.arange(1400)
ways = {
    "full": (full, as_built),
    "block": (block, as_built),
    "block, sorted": (block, by_class),
    "None, sorted": (unmixed, by_class),
}
learned = {name: learn(*way) for name, way in ways.items()}
accuracies = {name: accuracy for name, (accuracy, _) in learned.items()}
figures.show(figures.curves(accuracies, y="validation accuracy", title="The same steps in other orders"))

# %%
ends = {name: (accuracy[-1], loss[-1]) for name, (accuracy, loss) in learned.items()}
accuracy, loss = ends["full"]
print("block, mixed file: the training loss is within 0.15 of full:", abs(ends["block"][1] - loss) < 0.15)
print("block, sorted file: the training loss is at least 0.2 higher:", ends["block, sorted"][1] > loss + 0.2)
print("no shuffle, sorted file: the accuracy is at least 0.1 lower:", ends["None, sorted"][0] < accuracy - 0.1)
Path(sorted_path).unlink()

# %% [markdown]
# (On 400 pictures the accuracy jumps by some hundredths, so the first two lines compare the training loss.) In the
# mixed file the block shuffle keeps up with the full one. In the sorted file it falls behind: a batch of four classes
# pulls the weights towards these four, and the next group of blocks pulls them elsewhere. Without any shuffle the
# network mostly keeps what it saw last.
#
# A full shuffle does not care how the file is sorted: its curve would be like the first one for both files.
#
# So:
#
# - `"full"` wherever a jump is cheap: memory, an SSD.
# - `"block"` for a file larger than the memory on a slow disk, if the file is mixed. `build_hdf5` writes it so.
# - `None` for validation and test: nothing is learned there, and the predictions come in the order of the file.
#
# `HDF5Sequence(..., shuffle="block")` opens 8 blocks of 128 rows. A file of up to 1,024 rows has all its blocks open:
# that is a full shuffle.

# %% [markdown]
# **Checkpoint 3.** Your file has 27 GB, lies on a spinning disk, and your machine has 8 GB. Which shuffle?
#
# <details><summary>Answer</summary>
#
# `"block"`, after a look whether the file is mixed (`inspect_file` warns if it is not). If it is sorted by class, mix
# it once first: `rechunk` of lesson 01. Otherwise a batch sees a few classes only, and the network learns worse.
#
# </details>

# %% [markdown]
# ## 7. Rows, not lists
#
# Toy pictures are small: 12 kB. Those of the question (lesson 00) have 299 x 299 pixels, 268 kB. To measure what
# the question would feel, we have 256 training pictures drawn at that size.
#
# There are two ways to read the 32 rows of a shuffled batch. The first is the one of the best-known answers: HDF5 gets
# the list of rows. It wants the list sorted, so the order is restored afterwards. The second is the one of our class.

# %%
big = toy_food_file("data", classes=8, per_class=46, size=299, seed=0)  # 99 MB
data = h5py.File(big, "r")["train_img"]
rows = rows_of(256, 32, seed=0, epoch=0, index=0)


def by_list_index():
    return data[np.sort(rows)][np.argsort(np.argsort(rows))]  # sorted for HDF5, then back to the order asked for


def row_by_row():
    return np.stack([data[row] for row in rows])


print("the same pictures:", np.array_equal(by_list_index(), row_by_row()))

# %% [markdown]
# `speed` asks a pool of workers for batches of 32, one after the other, and counts images a second. Other programs
# disturb such a measurement, so it makes three short ones and keeps the best. With 0 workers the batches are made on
# the spot.

# %%
from time import perf_counter as clock  # seconds, for differences


def speed(function, workers, processes=False, slot_bytes=0):  # slot_bytes: section 9
    with WorkerPool(function, workers, processes=processes, ahead=4, answer_bytes=slot_bytes) as pool:
        for item in range(4 * workers):
            pool.get(item)  # not measured: the workers wake up
        item, best = 4 * workers, 0
        for _ in range(3):
            first, start = item, clock()
            while clock() < start + 0.3:
                pool.get(item)
                item += 1
            best = max(best, 32 * (item - first) / (clock() - start))
        return best


# %% [markdown]
# **Predict:** Which of the two is faster, and how many times?

# %% tags=["nbval-ignore-output"]
list_index, one_read_a_row = speed(lambda _: by_list_index(), 0), speed(lambda _: row_by_row(), 0)
print(f"list: {list_index:,.0f} images/s, row by row: {one_read_a_row:,.0f} images/s")

# %%
print("row by row is at least 5 times faster than the list:", one_read_a_row > 5 * list_index)

# %% [markdown]
# HDF5 fits the whole list to each chunk (lesson 01), and that costs far more than the reads themselves. No worker can
# repair it.

# %% [markdown]
# **Checkpoint 4a.** Somebody trains with the list index and sets `workers=8`. What do they win at most, compared with
# row reads and no workers?
#
# <details><summary>Answer</summary>
#
# Nothing, they lose. Eight times the first speed is still below the second one, and HDF5's lock (section 10) would not
# even let eight threads win the eight times.
#
# </details>

# %% [markdown]
# ## 8. The next limit: the pipe
#
# Now the workers. A worker *process* has memory of its own, so its finished batch must come over to the process that
# trains. The usual way is a **pipe**: the batch is *pickled* (packed into one string of bytes), pushed through in small
# pieces, and unpacked.
#
# First a worker process that has nothing to do: its batch is ready, it only sends it. Beside it, what a worker does
# otherwise: it reads 32 rows, and augments them as lesson 06 will (flip, zoom, shear).
#
# **Predict:** Read 32 pictures, augment them, send them through the pipe as uint8, or as float32. Which takes longest?

# %% tags=["nbval-ignore-output"]
changes = Augment(horizontal_flip=True, zoom=(0.8, 1), shear=6)
uint8_batch = row_by_row()
float32_batch = uint8_batch.astype(np.float32) / 255
speeds = {
    "read 32 rows": one_read_a_row,
    "augment them": speed(lambda item: [changes(image, np.random.default_rng(item)) for image in uint8_batch], 0),
    "through the pipe as uint8": speed(lambda _: uint8_batch, 1, True),
    "through the pipe as float32": speed(lambda _: float32_batch, 1, True),
}
milliseconds = [1000 * 32 / images_a_second for images_a_second in speeds.values()]
figures.show(figures.bars(list(speeds), milliseconds, "ms", title="One batch of 32 images, 299 x 299"))

# %%
print("a float32 batch has", float32_batch.nbytes // uint8_batch.nbytes, "times the bytes of a uint8 batch")
buffers = []
rest = pickle.dumps(uint8_batch, protocol=5, buffer_callback=buffers.append)
print("of", uint8_batch.nbytes, "bytes, all but", len(rest), "are pixels")

# %% [markdown]
# The pipe costs time for every byte: as uint8 several times what the read cost, and as float32 even more than four
# times that.
# Both ends work for it: the training process has to receive and unpack every batch itself. So send **uint8**, and let
# the model scale it (`normalization`, lesson 06).
#
# The last line shows a way out. Pickle can leave the pixels aside (`buffer_callback`). What remains, shape and type, is
# a hundred bytes or so. Could the pixels stay where they are, in memory that both processes see?

# %% [markdown]
# **Checkpoint 4b.** A queue holds up to 10 finished batches. How many MB is that for the two kinds of batches above?
#
# <details><summary>Answer</summary>
#
# 86 MB of uint8, 343 MB of float32. The classic call `max_queue_size=100` would take 3.4 GB of float32.
#
# </details>

# %% [markdown]
# ## 9. Slots instead of the pipe
#
# The system can lend two processes the same memory. A piece of it that holds one batch is called a **slot** here. The
# worker writes its batch into a slot; through the pipe it only says which one.
#
# The kit's `WorkerPool` does both. It pickles every answer, until we tell it how large one is (`answer_bytes`). Then it
# keeps slots, and calls our function with a second argument, `empty`: like `np.empty`, but its arrays lie in a slot.
# `BatchSource` is the kit's `SafeBatches`, and its method `item` knows that argument. (It numbers batches through the
# epochs: item 11 of 8 batches an epoch is epoch 1, batch 3.)
#
# **Predict:** Two processes, the same batches, once through the pipe and once in slots. How many times faster is the
# second?

# %% tags=["nbval-ignore-output"]
from helpers.batches import BatchSource  # SafeBatches, grown up

source = BatchSource(big, batch_size=32, seed=0)
pipe, slots = speed(source.item, 2, True), speed(source.item, 2, True, source.batch_bytes)
print(f"pipe: {pipe:,.0f} images/s, slots: {slots:,.0f} images/s, {slots / pipe:.1f} times as many")

# %% [markdown]
# The pixels are written once and never copied. (Nor is the memory new each time. The system hands out new memory page
# by page, at the first touch, and fills it with zeros: for a batch that can cost more than reading it.)

# %%
figures.show(figures.batch_life(slots=True))

# %% [markdown]
# The green arrow is the difficult part. *When* may a slot be written again? Try the simple answer, two slots in turns.
# The one who takes the batches keeps them for a while, as Keras does: it fetches ahead.
#
# `mmap.mmap(-1, n)` is n bytes of memory straight from the system, of the kind that processes can share.
#
# **Predict:** We keep four batches out of two slots. How many of them still show their own pictures?

# %%
import mmap  # memory straight from the system

pair = np.ndarray((2, 32, 64, 64, 3), np.uint8, buffer=mmap.mmap(-1, 2 * 32 * 64 * 64 * 3))


def serve(count, next_slot):
    for index in range(count):
        slot = next_slot(index)
        slot[:] = train.batch(0, index)[0]
        yield slot


kept = list(serve(4, lambda index: pair[index % 2]))
print("right:", sum(np.array_equal(batch, train.batch(0, index)[0]) for index, batch in enumerate(kept)), "of 4")
titles = ["batch 0, as served", "a moment later"]
figures.show(figures.image_grid([train.batch(0, 0)[0][0], kept[0][0]], titles, columns=4))

# %% [markdown]
# Two of four. Batches 2 and 3 were written over batches 0 and 1, under the hands of their owner, and nothing complains:
# the network would learn from wrong pictures with the old labels. More slots make this rarer, not impossible.
#
# A slot is free when *nobody refers to its array* any more. Python knows that moment, and `weakref.finalize` calls a
# function when it comes.

# %%
import math  # the product of a shape
import weakref  # what happens when an object goes


class Slots:
    def __init__(self, count, shape):
        self.shape, self.size, self.free = shape, math.prod(shape), list(range(count))
        self.memory = memoryview(mmap.mmap(-1, count * self.size))

    def empty(self):
        if not self.free:
            return np.empty(self.shape, np.uint8)  # all are lent: rather fresh memory than a wait without end
        number = self.free.pop()
        array = np.ndarray(self.shape, np.uint8, buffer=self.memory[number * self.size : (number + 1) * self.size])
        weakref.finalize(array, self.free.append, number)
        return array


# %% [markdown]
# **Predict:** We keep four batches out of three slots, then let go of all but *one image* of the first batch. How many
# slots are free then?

# %%
three = Slots(3, (32, 64, 64, 3))
kept = list(serve(4, lambda _: three.empty()))
print("right:", sum(np.array_equal(batch, train.batch(0, index)[0]) for index, batch in enumerate(kept)), "of 4")
image = kept[0][5]
del kept
print("free slots:", len(three.free), "of 3; the image is right:", np.array_equal(image, train.batch(0, 0)[0][5]))

# %% [markdown]
# All four are right (the fourth got fresh memory), and two slots are free: an image is a *view* of its batch, and keeps
# it. The kit's `helpers.slots` is this class, grown up: it knows any shape and type, and its memory can be shared with
# worker processes and goes away with the last of them.

# %% [markdown]
# **Checkpoint 4c.** Somebody calls `list(sequence)` and keeps all batches of an epoch. What would two slots in turns
# give them, what a pool that waits for a free slot, and what ours?
#
# <details><summary>Answer</summary>
#
# Two slots in turns: a list in which all batches but the last two hold wrong pictures. Waiting: no end, because nobody
# lets go of a slot. Ours: right batches, in fresh memory as soon as the slots are lent. That costs time, not truth.
#
# </details>

# %% [markdown]
# ## 10. Threads or processes?
#
# A thread has no pipe at all: it writes into the memory of the process that trains. But all threads of a process share
# two locks.
#
# - **HDF5's lock** lets one thread at a time into HDF5, also while it unpacks gzip.
# - **Python's lock** (the *GIL*) lets one thread at a time run Python. NumPy, OpenCV and reads of a file let go of it
#   while they work.
#
# The kit goes around the first one. `RowReader` asks HDF5 once where the bytes of the rows lie. From then on it reads
# them from the file itself, and unpacks them itself: a *direct* read. It can do so where a chunk holds whole rows,
# plain or gzip.
#
# **Predict:** A gzip file, one thread and two, through HDF5 and direct. Where does the second thread help?

# %% tags=["nbval-ignore-output"]
from helpers import RowReader  # the kit's reader: section 3, grown up

packed = Path("data/packed_32_299px.h5")
with h5py.File(packed, "w") as file:
    file.create_dataset("train_img", data=data[:32], chunks=(1, 299, 299, 3), compression="gzip")
packed_data, reader = h5py.File(packed, "r")["train_img"], RowReader(packed, "train_img")


def through_hdf5(_):
    return np.stack([packed_data[row] for row in range(32)])


def direct(_):
    return reader.read(range(32))


ways = {"through HDF5": through_hdf5, "direct": direct}
reads = {f"{name}, threads: {number}": speed(way, number) for name, way in ways.items() for number in (1, 2)}
figures.show(figures.bars(list(reads), list(reads.values()), "images/s", title="gzip rows, 299 x 299"))

# %% [markdown]
# Through HDF5 the second thread stands and waits. Read directly, both unpack at the same time, if two cores are free.
# (Direct wins with one thread, too: it unpacks with a faster library, libdeflate.)
#
# The second lock shows when the augmentation is plain *Python*. This one counts, for each toy picture, before it
# decides on a flip.


# %% tags=["nbval-ignore-output"]
def plain_python(image, _):
    return image[:, ::-1] if sum(number % 7 for number in range(30_000)) % 2 else image


slow = BatchSource(path, batch_size=32, seed=0, augment=plain_python)
for name, (workers, processes) in {"1 thread": (1, False), "2 threads": (2, False), "2 processes": (2, True)}.items():
    print(f"{name}: {speed(slow.item, workers, processes, slow.batch_bytes):,.0f} images/s")

# %%
print("read past HDF5:", reader.direct, "| the same pictures:", np.array_equal(direct(0), through_hdf5(0)))
with WorkerPool(slow.item, 2) as threads, WorkerPool(slow.item, 2, processes=True) as processes:
    pairs = [(fingerprint(threads.get(item)), fingerprint(processes.get(item))) for item in range(4)]
print("the same batches from threads and processes:", all(one == two for one, two in pairs))
reader.close()
packed_data.file.close()
packed.unlink()

# %% [markdown]
# Two threads take turns at Python's lock. Two processes have a lock each, and two free cores make them nearly twice as
# fast. (If they are not in your run, other programs hold the second core. Then the chart above cannot show a
# difference either: run both cells again when the machine is quiet.)
#
# | where the time of a batch goes | take | because |
# | --- | --- | --- |
# | reading plain or gzip rows (`RowReader(...).direct` is True) | threads | they read and unpack side by side |
# | augmenting with OpenCV or NumPy (`Augment`) | threads | these let go of Python's lock |
# | chunks that cut images; filters other than gzip | processes | only HDF5 can read them; each process has its own |
# | augmenting in Python of your own | processes | each process has its own Python |
#
# The batches are the same either way. In doubt begin with threads, measure, and change one argument.

# %% [markdown]
# **Checkpoint 5.** Your augmentation draws a text on each image, letter by letter, in Python loops. The file is plain.
# You have 4 cores. Threads or processes, and what limits the other choice?
#
# <details><summary>Answer</summary>
#
# Processes. Four threads would augment about as fast as one: Python's lock lets one at a time into the loops, however
# well they read.
#
# </details>

# %% [markdown]
# ## 11. Who waits for whom
#
# Workers pay when they make batches *while* the network trains. Let us look. The function of the pool writes down when
# it worked, and the loop when it waited and when it trained.

# %%
import threading  # the name of the thread that is at work

source = BatchSource(big, batch_size=32, seed=0, augment=changes)
spans = []


def watched(item, empty):
    start = clock()
    batch = source.item(item, empty)
    spans.append((threading.current_thread().name, start, clock(), "read"))
    return batch


def train_watched(workers):
    with WorkerPool(watched, workers, ahead=3, answer_bytes=source.batch_bytes) as pool:
        for item in range(8):
            asked, batch, got = clock(), pool.get(item, stop=8), clock()  # stop: there is no item 8
            network.train_on_batch(*batch)
            spans.extend([("training", asked, got, "wait"), ("training", got, clock(), "train")])


# %% [markdown]
# The network is tiny, so that a step takes about as long as a batch.
#
# **Predict:** Without workers the training step waits for every batch. With two workers, for which batch must it wait
# in any case?

# %% tags=["nbval-ignore-output"]
layers = keras.layers
seen = [keras.Input((299, 299, 3), dtype="uint8"), layers.Rescaling(1 / 255), layers.Conv2D(8, 7, strides=7)]
network = keras.Sequential([*seen, layers.GlobalAveragePooling2D(), layers.Dense(8, activation="softmax")])
network.compile("sgd", "categorical_crossentropy")
train_watched(workers=0)  # Keras prepares its first step: not to be seen here
runs = {}
for workers in (0, 2):
    spans.clear()
    train_watched(workers)
    runs[f"{workers} workers"] = lanes = {}
    for name, *span in sorted(spans):
        lanes.setdefault(name.removeprefix("helpers-"), []).append(span)
figures.show(figures.timelines(runs))

# %%
for name, lanes in runs.items():
    trained = [(start, end) for start, end, kind in lanes["training"] if kind == "train"]
    made = [(start, end) for lane in lanes if lane != "training" for start, end, _ in lanes[lane]]
    meanwhile = any(start < over and begun < end for start, end in made for begun, over in trained)
    print(f"{name}: {len(trained)} steps; batches are made while a step runs: {meanwhile}")

# %% [markdown]
# ("read" is reading and augmenting.) Above, the only thread reads or trains, never both. Below, the orange waits are
# too short to see after the first one, if the cores are free: there is nothing to train on before batch 0.
#
# Here the step runs on the same cores as the workers, and each makes the other slower. On a graphics card the blue bars
# would leave the cores alone. The share of orange *without workers* is the number to look at (`StallMeter`, lesson 07):
# workers cannot give you more than that.

# %% [markdown]
# ## 12. Epochs and steps
#
# Keras calls one round of `steps_per_epoch` batches an epoch. What if that is fewer than the data has?
#
# We take 1,400 rows in the order of the file, in 40 batches of 35: so a picture of row *r* belongs to batch `r // 35`.
# And we build a model that trains nothing. It only writes down which batch it was given, by the first picture
# (`run_eagerly=True` lets it do so in plain Python).

# %%
trained = []


class Listener(keras.Model):
    def train_step(self, data):
        first_image = keras.ops.convert_to_numpy(data[0][0])
        trained.append(row_of[first_image.tobytes()] // 35)
        return {"loss": 0.0}


ears = small_cnn((64, 64, 3), 8)
listener = Listener(ears.inputs, ears.outputs)
listener.compile(loss="categorical_crossentropy", run_eagerly=True)

# %% [markdown]
# Four epochs of 10 steps are 40 steps, as many as there are batches; two threads prepare them. First `fit` with our
# generator (`shuffle=False` keeps Keras from mixing the numbers of the batches), then the kit's class with its
# `fit_generator`.
#
# > **Then and now.** `Model.fit_generator` left Keras in version 3; `fit` took over. The kit's
# > `helpers.fit_generator` has the classic arguments, and treats the data as one endless stream: step *k* of epoch
# > *e* is item *e* x steps + *k*.
#
# **Predict:** Which of the 40 batches does the model meet in these 40 steps?

# %% tags=["nbval-ignore-output"]
import matplotlib.pyplot as plt  # a drawing of our own

from helpers import HDF5Sequence, fit_generator  # the kit's own generator, and the classic call on today's Keras

generator = SafeGenerator(SafeBatches(path, batch_size=35, shuffle=False), workers=2, max_queue_size=3)
listener.fit(generator, steps_per_epoch=10, epochs=4, shuffle=False, verbose=0)
with_fit, trained = trained, []
stream = HDF5Sequence(path, "train", batch_size=35, shuffle=None, workers=2, max_queue_size=3)
fit_generator(listener, stream, steps_per_epoch=10, epochs=4, verbose=0)

figure, panels = plt.subplots(1, 2, sharey=True, layout="constrained")
for panel, (name, numbers) in zip(panels, {"fit": with_fit, "fit_generator": trained}.items(), strict=True):
    panel.plot(range(1, 41), numbers, "o")
    panel.set(title=name, xlabel="step (an epoch is 10 steps)", ylabel="batch", xticks=[1, 10, 20, 30, 40])
words = "Batch number against step. fit: a saw that begins at 0 again and again. fit_generator: one straight line."
figures.show(figure, alt=words)

# %%
print("fit:", len(with_fit), "steps; more than 10 batches never met:", len(set(with_fit)) < 30)
print("fit_generator: different batches met:", len(set(trained)), "of", len(stream))

# %% [markdown]
# In every epoch `fit` lets the threads begin at batch 0 again. First come the batches that are still in the queue (3,
# and one in hand): so the second epoch is about 10 to 13, and then 0 to 5. Most of the data is never seen, and nothing
# says so. (With a shuffle, each epoch leaves out other rows, which is harder to notice.) Our generator is innocent: it
# answered every question right. `fit_generator` can serve the whole stream because it knows the kit's class; for
# another one it can only warn.

# %% [markdown]
# **Checkpoint 6a.** Once more `fit`, with two threads, a queue of 3, 10 steps an epoch and the order of the file, but
# for 100 epochs. Which of the 1,400 rows does the model never meet? And `fit_generator`, 3 epochs of 50 steps: how
# often does it serve batch 0?
#
# <details><summary>Answer</summary>
#
# `fit` meets batches 0 to 9, and the few that were in the queue at the end of an epoch: up to about batch 13. The rows
# from about 14 x 35 = 490 on are left out, however many epochs you train.
#
# `fit_generator` serves items 0 to 149 of the stream. Batch 0 is item 0, 40, 80 and 120: four times. The passes over
# the data do not care where an epoch of Keras begins.
#
# </details>

# %% [markdown]
# ## 13. The production class
#
# `HDF5Sequence` is our class, grown up. The order comes from `EpochOrder`, the rows from `RowReader`, and the batches
# are the same, bit for bit:

# %%
kit = HDF5Sequence(path, "train", batch_size=32, seed=0, augment=Augment(horizontal_flip=True))
same = [fingerprint(kit.batch(0, index)) for index in range(len(kit))]
print("the batches of our 30 lines:", same == wanted)

# %% [markdown]
# `fit_generator` gives it direct reads and slots, with threads or with processes, and hands the batches to TensorFlow
# in a way of its own that does not copy them. Here is the whole way we came, in one picture, for bare shuffled batches
# of 299 x 299 pixels. The last bar is the ceiling for the one above it (the others have no Keras in them): Keras gets
# *one constant batch* again and again, which nobody has to read. The model looks at one pixel: a step costs next to
# nothing. `source` is the inner object of section 4.
#
# **Predict:** How near does a real file come to the constant batch?


# %% tags=["nbval-ignore-output"]
import itertools  # repeat: the same thing again and again

shape = keras.Input((299, 299, 3), dtype="uint8")
one_pixel = keras.Sequential([shape, layers.Cropping2D(149), layers.Flatten(), layers.Dense(8, activation="softmax")])
one_pixel.compile("sgd", "categorical_crossentropy")
ours, theirs = SafeBatches(big, batch_size=32), HDF5Sequence(big, batch_size=32, workers=2, max_queue_size=4)
constant = itertools.repeat(theirs.batch(0, 0))
ladder = {
    "list index": list_index,
    "row by row": one_read_a_row,
    "2 threads, through HDF5": speed(lambda item: ours.batch(*divmod(item, 8)), 2),
    "2 processes, direct, pipe": speed(theirs.source.item, 2, True),
    "2 processes, direct, slots": speed(theirs.source.item, 2, True, theirs.source.batch_bytes),
    "2 threads, direct, slots": speed(theirs.source.item, 2, False, theirs.source.batch_bytes),
}
for name, feed in {"fit_generator, 2 threads": theirs, "Keras, one constant batch": constant}.items():
    for steps in (10, 500):  # the first call also prepares the step
        start = clock()
        fit_generator(one_pixel, feed, steps_per_epoch=steps, verbose=0)
    ladder[name] = 32 * steps / (clock() - start)
figures.show(figures.bars(list(ladder), list(ladder.values()), "images/s", log=True, title="The ladder"))

# %%
print("fit_generator is at least 10 times faster than the list:", ladder["fit_generator, 2 threads"] > 10 * list_index)
for opened in (data.file, source, theirs, ours._file()):
    opened.close()
big.unlink()  # 99 MB that nobody needs any more

# %% [markdown]
# Mind the log scale: a small difference between two bars may be a factor of two. The second bar reads the same 32 rows
# again and again. Two threads hand HDF5's one lock back and forth, and two processes wait for a pipe: both can be
# slower than no workers at all. Only the last two bars can be compared with each other. (`fit_generator` starts and
# ends its workers in this short run, too.)
#
# The other grown-up part is what the class refuses. Each line below is a mistake that would otherwise cost an hour.

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
# And when a worker dies? In lesson 04 Keras' own pool waited for ever, so we did it behind glass. Here it is safe in
# this very kernel: the worker is a program of its own. This augmentation ends its process, without a word, at the first
# row of batch 5; as a crash in a library would, or the system when memory is short.
#
# **Predict:** What does the error tell you: the worker, the batch, the rows, the file?

# %%
import re  # to leave out what differs in each run

from helpers.training import WorkerDiedError  # a worker ended without an answer

kernel, doomed = os.getpid(), all_images[kit.rows_of(0, 5)[0]]


def deadly(image, _):
    if os.getpid() != kernel and np.array_equal(image, doomed):  # in a worker alone
        os._exit(1)  # the end of this process, at once
    return image


model = small_cnn(kit.image_shape, kit.num_classes, width=8)
model.compile("adam", "categorical_crossentropy")
two = {"workers": 2, "use_multiprocessing": True}
try:
    fit_generator(model, HDF5Sequence(path, augment=deadly), verbose=0, **two)
except WorkerDiedError as error:
    print(re.sub(r"worker \d \(process \d+\)", "worker W (process P)", str(error)))
losses = fit_generator(model, kit, epochs=3, verbose=0, **two).history["loss"]
print("the next call: the loss fell:", losses[-1] < losses[0] - 0.1, "| the sequence stands at epoch", kit.epoch)

# %% [markdown]
# All four, and at once: the pipe of a process that is gone ends. A worker that is stuck is told after
# `stall_timeout_s`, with the line of code where it stands. An exception in your augmentation arrives as itself, with a
# note that names batch and rows. Nothing is left over: the other worker has been ended, and the next call works.
#
# After three epochs the sequence stands at epoch 3: the next call goes on with the fourth order of rows, not with the
# first again.

# %% [markdown]
# **Checkpoint 6b.** In your own training script, which lines change when `HDF5Sequence` replaces `SafeGenerator`?
#
# <details><summary>Answer</summary>
#
# Those that make it: `SafeBatches(...)` and `SafeGenerator(...)` become
# `HDF5Sequence(path, "train", batch_size=32, seed=0, augment=...)`. It is a `keras.utils.PyDataset` as well, so
# `model.fit` takes it unchanged. Better, write `fit_generator(model, ...)` for `model.fit(...)`: then workers, slots,
# steps and resuming are taken care of.
#
# </details>

# %% [markdown]
# ## Key points
#
# - Path, one handle a process, chance from (seed, epoch, row), batches by number: then it does not matter who reads.
# - Rows instead of a list is the largest step, slots instead of a pipe the next. Threads are enough, unless only HDF5
#   can read the file or the augmentation is Python of your own.
# - `fit` with workers and few steps leaves data out; `fit_generator` with an `HDF5Sequence` serves one endless
#   stream, and says which worker died at which rows.

# ---
# jupyter:
#   lesson:
#     keras: true
#     gpu: not needed
#     files: data/parts, data/my_plates.h5 (1 MB)
#     max_minutes: 1
#     max_memory_mb: 1000
# ---

# %% [markdown]
# # Exercises 05 · A safe generator for every worker
#
# **In these exercises you will** choose workers and shuffles, judge whether an epoch served every row once, compute
# what a pipe costs, mix blocks, write a generator that keeps the four rules on several files, and train from a file of
# your own with the kit's.
#
# **You need** [lesson 05](../05_safe_per_worker_generator.ipynb).
#
# <!-- how -->
#
# <!-- facts -->

# %% tags=["nbval-ignore-output"]
from helpers.course.checks import check  # looks at an answer, and gives a hint
from helpers.course.lesson import open_lesson  # versions and device, quiet logs, one style of pictures

open_lesson(keras=True)

# %% [markdown]
# ## 05.1 · What would you take?
#
# *Warm-up, 2 points.* Eight people ask. Four of them want to know what kind of workers makes their batches fastest.
# They have several cores, read with the kit's reader, and train with the kit's `fit_generator`:
#
# - **a** The rows are plain. The augmentation is the kit's `Augment`: flips and zooms, done by OpenCV.
# - **b** Each image is one gzip chunk, and nothing is augmented.
# - **c** The rows are plain. The augmentation visits each pixel in a Python loop.
# - **d** A chunk holds a quarter of an image and is packed with LZF, a filter that only HDF5 undoes here.
#
# The other four want to know how to mix the rows:
#
# - **e** Training, 27 GB on a spinning disk, 8 GB of memory. The rows were mixed when the file was built.
# - **f** Training, 5 GB on an SSD. The file is sorted by class.
# - **g** As e, but the file is sorted by class.
# - **h** Validation, on any disk.
#
# **Task.** `answer` is a dictionary from letter to word, such as `{"a": "threads", ...}`. For a to d the words are
# `"threads"` and `"processes"`. For e to h they are `"full"`, `"block"`, `"none"`, and `"mix first"`: no shuffle helps
# before the rows were mixed in a new file. Where threads are as fast as processes, take threads: they need less memory.
#
# **Look again at** [lesson 05, section 10](../05_safe_per_worker_generator.ipynb#10.-Threads-or-processes?) and
# [section 6](../05_safe_per_worker_generator.ipynb#6.-Full-shuffle,-block-shuffle,-no-shuffle).

# %%
### BEGIN SOLUTION
workers = {
    "a": "threads",  # OpenCV lets go of Python's lock
    "b": "threads",  # the kit unpacks gzip itself, without HDF5's lock
    "c": "processes",  # one thread at a time is inside a Python loop
    "d": "processes",  # each process has an HDF5, and so a lock, of its own
}
shuffles = {
    "e": "block",  # long stretches for the disk; in a mixed file a few blocks show nearly all classes
    "f": "full",  # jumps are cheap, and a full shuffle does not care how the file is sorted
    "g": "mix first",  # the open blocks would show few classes, and every jump of a full shuffle costs
    "h": "none",  # nothing is learned: the order of the file is the easiest to compare with
}
answer = workers | shuffles
### END SOLUTION

# %%
check("05.1", answer).points

# %% [markdown]
# ## 05.2 · Every row once: a judge
#
# *4 points.* "My generator serves every row once" is easily said. You will write the judge. It does not ask the
# generator: it looks at the pictures that arrived, as section 5 did.
#
# **Task.** Write a function `answer(images, labels, batches)`. `images` and `labels` are all rows of a file, (n,
# height, width, 3) of uint8 and (n, classes) of uint8; all pictures differ. `batches` is a list of pairs (images,
# labels), as a generator gave them in one epoch: images uint8, labels float32, in any order, the last batch smaller.
# Give a dictionary:
#
# - `"missing"`: list of the rows whose picture never came;
# - `"repeated"`: list of the rows whose picture came more than once;
# - `"wrong label"`: list of the rows whose picture came, at least once, with another label than the file's;
# - `"foreign"`: how many pictures came that are no row of the file.
#
# A list holds a row once. For a perfect epoch the lists are empty, and the number is 0.
#
# **Look again at** [lesson 05, section 5](../05_safe_per_worker_generator.ipynb#5.-Does-it-hold?).

# %%
import numpy as np  # arrays and random numbers


# %%
### BEGIN SOLUTION
def answer(images, labels, batches):
    row_of = {image.tobytes(): row for row, image in enumerate(images)}  # the picture itself says which row it is
    count, wrong, foreign = np.zeros(len(images), int), set(), 0
    for batch_images, batch_labels in batches:
        for image, label in zip(batch_images, batch_labels, strict=True):
            row = row_of.get(image.tobytes())
            if row is None:
                foreign += 1
                continue
            count[row] += 1
            if not np.array_equal(label, labels[row]):  # values: 1.0 as float32 is the 1 of the file
                wrong.add(row)
    return {
        "missing": np.flatnonzero(count == 0).tolist(),
        "repeated": np.flatnonzero(count > 1).tolist(),
        "wrong label": sorted(wrong),
        "foreign": foreign,
    }


### END SOLUTION

# %%
check("05.2", answer).points

# %% [markdown]
# ## 05.3 · What a pipe costs
#
# *3 points.* Sections 7 to 9 measured four prices: a list index, row reads, a pipe, a slot. With a small model you can
# say beforehand what they mean for your data:
#
# - A worker process makes a batch in `make_s` seconds (it reads and augments), one after the other. Workers do not
#   disturb each other.
# - Through a pipe go `pipe_bytes_s` bytes a second. While a batch goes through, its worker is busy with it, and so is
#   the training process, which receives one batch at a time. It does nothing else here.
# - A batch in a slot costs neither of them any time.
# - What limits the whole is the slowest part. (Who waits for whom costs nothing extra.)
#
# **Task.** Write a function `answer(shape, dtype, make_s, workers, pipe_bytes_s)` that gives two numbers, `(pipe,
# slots)`: how many **batches a second** arrive at most through pipes, and how many with slots. `shape` is that of the
# images of a batch, `dtype` a text such as `"uint8"`; labels are left out. For example, batches of 1,000,000 bytes:
#
# ```python
# answer((10, 100, 100, 10), "uint8", 0.09, 2, 100_000_000)  # about (20.0, 22.2)
# ```
#
# Then ask it about batches of 32 x 299 x 299 x 3 that come by a list index in 0.4 s, or row by row in 0.01 s, as uint8
# and as float32, with 1 worker and with 8.
#
# **Look again at** [lesson 05, section 8](../05_safe_per_worker_generator.ipynb#8.-The-next-limit:-the-pipe) and
# [section 9](../05_safe_per_worker_generator.ipynb#9.-Slots-instead-of-the-pipe).

# %%
import math  # the product of a shape


# %%
### BEGIN SOLUTION
def answer(shape, dtype, make_s, workers, pipe_bytes_s):
    send_s = math.prod(shape) * np.dtype(dtype).itemsize / pipe_bytes_s  # float32: four times the bytes, and the time
    sent = workers / (make_s + send_s)  # a worker makes a batch, then sends it
    received = 1 / send_s  # one process receives them all: more workers do not help it
    return min(sent, received), workers / make_s


### END SOLUTION

# %%
check("05.3", answer).points

# %% [markdown]
# ## 05.4 · Mix blocks
#
# *4 points.* A spinning disk wants long stretches, a network wants mixed batches. A block shuffle gives something to
# both. Block b of a file holds the rows from `b * block_rows` on, `block_rows` of them; the last block may be shorter.
#
# **Task.** Write a function `answer(n, batch_size, block_rows, open_blocks, seed, epoch)` that gives one epoch as a
# list of batches; a batch is a list (or an array) of row numbers.
#
# - Each of the rows 0 to n - 1 comes once. All batches are full, but for the last one, which may be smaller.
# - A block is *open* from the first of its rows that is served to the last one. Never are more than `open_blocks` open
#   at the same time.
# - Which blocks are open together is drawn by chance from all blocks. The rows of the open blocks are mixed, those of
#   different blocks with each other and those of one block among themselves.
# - Each pair (seed, epoch) has an order of its own, which is the same whenever you ask for it.
#
# With `n=12, batch_size=4, block_rows=2, open_blocks=3` one epoch might be `[[9, 4, 1, 8], [0, 5, 2, 10], [7, 6, 11,
# 3]]`: first the blocks 4, 2 and 0 are open, then the other three.
#
# **Look again at** [lesson 05,
# section 6](../05_safe_per_worker_generator.ipynb#6.-Full-shuffle,-block-shuffle,-no-shuffle).


# %%
### BEGIN SOLUTION
def answer(n, batch_size, block_rows, open_blocks, seed, epoch):
    rng = np.random.default_rng([seed, epoch])  # a list: seed + epoch would give two pairs one order
    starts = rng.permutation(np.arange(0, n, block_rows))  # single blocks are mixed, not groups of neighbours
    order = []
    for first in range(0, len(starts), open_blocks):
        opened = [np.arange(start, min(start + block_rows, n)) for start in starts[first : first + open_blocks]]
        order.append(rng.permutation(np.concatenate(opened)))  # all of them are served before others are opened
    order = np.concatenate(order)  # in one piece, so that a batch can reach over the end of a group
    return [order[start : start + batch_size] for start in range(0, n, batch_size)]


### END SOLUTION

# %%
check("05.4", answer).points

# %% [markdown]
# ## 05.5 · Keep the four rules
#
# *5 points.* The article of lesson 04 names three dangers of HDF5 with worker processes, says "Open the HDF5
# files within the child process", announces an example, and ends: the example is missing. Here is what people write
# instead. It breaks all four rules:
#
# ```python
# class Batches:
#     def __init__(self, path, batch_size, seed, augment):
#         self.file = h5py.File(path, "r")
#         self.rows = np.arange(len(self.file["train_img"]))
#         self.batch_size, self.augment, self.k = batch_size, augment, 0
#         np.random.seed(seed)
#
#     def __len__(self):
#         return len(self.rows) // self.batch_size
#
#     def next_batch(self):
#         if self.k == 0:
#             np.random.shuffle(self.rows)
#         rows = self.rows[self.k * self.batch_size : (self.k + 1) * self.batch_size]
#         self.k = (self.k + 1) % len(self)
#         images = self.file["train_img"][np.sort(rows)]
#         return np.stack([self.augment(image) for image in images]), self.file["train_labels"][:][rows]
# ```
#
# Yours will be the missing example, and a little more: the data comes in *several* files, as when each year has one of
# its own.

# %%
from pathlib import Path  # paths as objects

import h5py  # HDF5 files

paths = [Path(f"../data/parts/{year}.h5") for year in (2024, 2025, 2026)]
paths[0].parent.mkdir(parents=True, exist_ok=True)
for path, n in zip(paths, (30, 20, 25), strict=True):
    with h5py.File(path, "w") as file:
        file["train_img"] = np.random.default_rng(n).integers(0, 256, (n, 16, 16, 3), dtype=np.uint8)
        file["train_labels"] = np.eye(4, dtype=np.uint8)[np.arange(n) % 4]

# %% [markdown]
# **Task.** Write a class `answer(paths, batch_size, seed, augment)`. Each of the files `paths` holds `train_img` and
# `train_labels`. Rows are counted on through the files: above, row 30 is the first one of 2025. An object `g` has
#
# - `len(g)`: batches an epoch, the smaller last one among them;
# - `g.batch(epoch, index)`: a pair of arrays, images of uint8 and labels as in the files, the same whenever, wherever
#   and in whatever order it is asked for. In an epoch each row of all files comes once; the rows of all files are mixed
#   together. Each pair (seed, epoch) has an order of its own.
#
# `augment` is `None` or a function of (image, rng), which gives the image of uint8 to serve; `rng` is a
# `np.random.Generator` made from the seed, the epoch and the row (counted through the files) alone; each three of them
# give a chance of their own.
#
# It works in two threads at the same time, in a fresh process that gets `g` as a pickle (also after `g` has read), and
# in a fork of a process that has read. Each process opens each file once, itself, and keeps it open. Images are read
# when their batch is asked for. Write what it needs into the class itself, or take it from `helpers`: a worker gets the
# class, not your notebook.
#
# **Look again at** [lesson 05, section 4](../05_safe_per_worker_generator.ipynb#4.-The-whole-generator) and
# [section 3](../05_safe_per_worker_generator.ipynb#3.-Reader:-one-handle-for-each-process).

# %%
### BEGIN SOLUTION
import os  # the number of this process


class SafeParts:
    def __init__(self, paths, batch_size, seed, augment):
        self.paths, self.batch_size = [Path(path).absolute() for path in paths], batch_size  # rule 1: paths alone
        self.seed, self.augment, self._files = seed, augment, {}
        labels = []
        for path in self.paths:
            with h5py.File(path, "r") as file:  # closed again: nobody inherits it
                labels.append(file["train_labels"][:])
        self.starts = np.cumsum([0, *map(len, labels)])  # the first row of each file, and the number of all rows
        self.labels = np.concatenate(labels)

    def __len__(self):
        return -(-len(self.labels) // self.batch_size)

    def batch(self, epoch, index):  # rule 4: by number; nothing of a batch is kept in self
        order = np.random.default_rng([self.seed, epoch]).permutation(len(self.labels))  # rule 3: the order
        rows = order[index * self.batch_size : (index + 1) * self.batch_size]
        return np.stack([self._image(epoch, row) for row in rows]), self.labels[rows]

    def _image(self, epoch, row):
        part = np.searchsorted(self.starts, row, side="right") - 1
        image = self._file(self.paths[part])["train_img"][row - self.starts[part]]
        if self.augment is None:
            return image
        return self.augment(image, np.random.default_rng([self.seed, epoch, row]))  # rule 3: the chance

    def _file(self, path):  # rule 2: a handle for each process and each file
        if (os.getpid(), path) not in self._files:
            self._files[os.getpid(), path] = h5py.File(path, "r")
        return self._files[os.getpid(), path]

    def __getstate__(self):  # rule 1: handles stay behind
        return {**self.__dict__, "_files": {}}


answer = SafeParts
### END SOLUTION

# %%
check("05.5", answer).points

# %% [markdown]
# ## 05.6 · The kit's generator, on your own file
#
# *5 points.* How to write a custom generator that reads batches from one's own HDF5 file: that was the question behind
# this course. Now you know how, and need not: `HDF5Sequence` and `fit_generator` are there. Your own file, however,
# has names of its own, class numbers instead of one-hot rows, and nobody has split it. Here is one to practise on,
# sorted by class, as many files are:

# %%
numbers = np.sort(np.arange(150) % 4)
brightness = 40 + 50 * numbers[:, None, None, None]
with h5py.File("../data/my_plates.h5", "w") as file:
    file["photos"] = np.random.default_rng(0).integers(0, brightness, (150, 32, 32, 3), dtype=np.uint8)
    file["kinds"] = numbers
    print({name: (data.shape, data.dtype.name) for name, data in file.items()})

# %% [markdown]
# **Task.** Write a function `answer(model, path, images, labels, classes, seed)`. `images` and `labels` are the names
# of the two datasets in the file `path`, `classes` is the number of classes, and `model` is compiled with
# `categorical_crossentropy`. The function
#
# - splits the n rows of the file by chance: `n * 8 // 10` of them for training, all others for validation. `seed` alone
#   decides the split;
# - makes an `HDF5Sequence` for each part, with batches of 4 (nothing is dropped). The training rows are mixed anew each
#   epoch; the validation rows come in one order, always the same;
# - trains the model for 4 epochs of 5 steps, with validation on all validation rows after each epoch. Wherever the 20
#   steps are enough for it, the model meets every training row;
# - gives the two sequences, `(train, valid)`.
#
# **On your own file:** print its names and shapes, as above. Make `small_cnn((height, width, 3), classes)` from
# `helpers.models`, compile it, and call your function; leave `steps_per_epoch` out, and an epoch is one pass. A file
# that has one-hot labels needs no `classes`.
#
# **Look again at** [lesson 05, section 13](../05_safe_per_worker_generator.ipynb#13.-The-production-class), and for the
# steps [section 12](../05_safe_per_worker_generator.ipynb#12.-Epochs-and-steps).

# %%
from helpers import HDF5Sequence, fit_generator  # the kit's generator, and the classic call on today's Keras


# %%
### BEGIN SOLUTION
def answer(model, path, images, labels, classes, seed):
    with h5py.File(path, "r") as file:
        n = len(file[images])
    rows = np.random.default_rng(seed).permutation(n)  # one mixed list, cut once: no row can be in both parts
    names = {"images": images, "labels": labels, "classes": classes}
    train = HDF5Sequence(path, rows=rows[: n * 8 // 10], batch_size=4, seed=seed, shuffle="full", **names)
    # With rows= the kit shuffles, unless it is told not to.
    valid = HDF5Sequence(path, rows=rows[n * 8 // 10 :], batch_size=4, shuffle=None, **names)
    # fit would begin each epoch of 5 steps at batch 0 again; fit_generator goes on where the last one ended.
    fit_generator(model, train, steps_per_epoch=5, epochs=4, validation_data=valid, verbose=0)
    return train, valid


### END SOLUTION

# %%
check("05.6", answer).points

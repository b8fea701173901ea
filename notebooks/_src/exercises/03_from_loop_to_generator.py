# ---
# jupyter:
#   lesson:
#     keras: true
#     gpu: not needed
#     files: one toy file (0.3 MB), data/red_plates
#     max_minutes: 1
#     max_memory_mb: 900
# ---

# %% [markdown]
# # Exercises 03 · From the loop to the generator
#
# **In these exercises you will** say when a generator reads and how long an epoch is, repair the directory generator,
# set up callbacks, bring an old call to today's Keras, and write a dataset that gives batches by number.
#
# **You need** [lesson 03](../03_from_loop_to_generator.ipynb).
#
# <!-- how -->
#
# <!-- facts -->

# %% tags=["nbval-ignore-output"]
from helpers.course.checks import check  # looks at an answer, and gives a hint
from helpers.course.lesson import open_lesson  # versions and device, quiet logs, one style of pictures

open_lesson(keras=True)

# %% [markdown]
# ## 03.1 · What is in the log?
#
# *Warm-up, 2 points.* This generator notes what it does. `yield start` stands for reading and handing out a batch.
#
# ```python
# log = []
#
# def batches(n, batch_size):
#     log.append("open")
#     for start in range(0, n, batch_size):
#         log.append(start)
#         yield start
#     log.append("close")
#
# train, valid = batches(10, 4), batches(6, 4)
# first, second = next(train), next(train)
# ```
#
# **Task.** What does `log` hold after the last line? `answer` is that list, of texts and numbers. Decide before you
# run it.
#
# **Look again at** [lesson 03, section 1](../03_from_loop_to_generator.ipynb#1.-What-a-generator-is).

# %%
### BEGIN SOLUTION
# valid was called, but nobody asked it for a batch. train stands at its second yield, inside the loop.
answer = ["open", 0, 4]
### END SOLUTION

# %%
check("03.1", answer).points

# %% [markdown]
# ## 03.2 · Steps, rounded up and down
#
# *3 points.* A generator goes through n rows in batches, the last one smaller, and then starts again, for ever. Keras
# takes as many batches an epoch as we say. Published code says `n // batch_size`, or gives `np.floor(n / batch_size)`
# as a length.
#
# **Task.** Write a function `answer(n, batch_size)` that gives two whole numbers (ints), as `(steps, row)`:
#
# - `steps`: how many steps make an epoch that is one full pass;
# - `row`: the row where the **second** epoch starts if we say `steps_per_epoch=n // batch_size` instead.
#
# For 7 rows in batches of 5 that is `(2, 5)`: the one step of the first epoch takes rows 0 to 4. n is never smaller
# than `batch_size`.
#
# **Look again at** [lesson 03, section 3](../03_from_loop_to_generator.ipynb#3.-How-many-steps-are-an-epoch?).


# %%
### BEGIN SOLUTION
def answer(n, batch_size):
    steps = -(-n // batch_size)  # rounded up, and an int: no detour by floats
    row = n // batch_size * batch_size % n  # % n: after a complete pass it starts at row 0 again
    return steps, row


### END SOLUTION

# %%
check("03.2", answer).points

# %% [markdown]
# ## 03.3 · Repair the directory generator
#
# *4 points.* This is, in short, a generator that many people copied, and how it is called:
#
# ```python
# def directory_batches(folder, batch_size):
#     names, i = os.listdir(folder), 0
#     while True:
#         batch = []
#         for _ in range(batch_size):
#             if i == len(names):
#                 i = 0
#                 random.shuffle(names)
#             picture = cv2.resize(cv2.imread(names[i][0]), SIZE)
#             batch.append((picture.astype(float) - 128) / 128)
#             i += 1
#         yield np.array(batch)
#
# model.fit_generator(directory_batches("~/plates", 64), steps_per_epoch=len(os.listdir("~/plates")) // 64)
# ```
#
# Here is a folder to try yours on. Its plates are red, and have one size: nothing needs to be resized.

# %%
from pathlib import Path  # paths as objects

import cv2  # writes the plates; blue comes first
import numpy as np  # arrays

folder = Path("../data/red_plates")
folder.mkdir(parents=True, exist_ok=True)
labels = {}
for number in range(11):
    plate = np.full((16, 12, 3), (30, 15 + 20 * number, 220), np.uint8)
    labels[f"plate_{number:02}.jpg"] = number * 7 % 5
    _ = cv2.imwrite(str(folder / f"plate_{number:02}.jpg"), plate)
print(labels)

# %% [markdown]
# **Task.** Write a generator `answer(folder, labels, batch_size, seed)`. `folder` is a `Path` with nothing but JPEG
# files in it; `labels` gives the class of each file name. It never ends, and gives pairs `(images, labels)`:
#
# - images are an array (batch, height, width, 3) of uint8, red first; labels are the class numbers, an array (batch,);
# - each pass serves each file once; its last batch may be smaller, and no batch holds files of two passes;
# - each pass, the first one too, is shuffled anew;
# - `seed` alone decides the order: not the order in which the system lists the folder, and no dice that others throw;
# - a file is read when its batch is asked for.
#
# **Look again at** [lesson 03, section 5](../03_from_loop_to_generator.ipynb#5.-The-directory-generator).


# %%
### BEGIN SOLUTION
def answer(folder, labels, batch_size, seed):
    rng = np.random.default_rng(seed)  # our own dice: nobody else throws them
    files = sorted(folder.iterdir())  # whole paths, and the same order on every machine
    while True:
        order = rng.permutation(len(files))  # before the first pass as well
        for start in range(0, len(files), batch_size):
            part = [files[row] for row in order[start : start + batch_size]]
            images = [cv2.imread(str(file))[..., ::-1] for file in part]  # OpenCV gives blue first
            # Bytes stay bytes: a layer of the model scales them. Each label is found by the name of its file.
            yield np.stack(images), np.array([labels[file.name] for file in part])


### END SOLUTION

# %%
check("03.3", answer).points

# %% [markdown]
# ## 03.4 · Save the best, stop in time
#
# *3 points.* A model was compiled with `metrics=["accuracy"]`, and is trained with validation data. An old answer sets
# `monitor="val_acc"` and saves `best.hdf5`.
#
# **Task.** Write a function `answer(folder, patience)` that gives a list of callbacks for `fit`. After the training one
# file lies in `folder`: the whole model as it was after the epoch with the **highest accuracy on the validation
# data**, named `best` with the ending that Keras wants. And the training ends when the **validation loss** has not
# fallen below its lowest value for `patience` epochs.
#
# The check does not train: it tells your callbacks made-up values, epoch by epoch, and looks at the file and at the
# last epoch.
#
# **Look again at** [lesson 03, section 9](../03_from_loop_to_generator.ipynb#9.-Callbacks).

# %%
import keras  # models, training, callbacks


# %%
### BEGIN SOLUTION
def answer(folder, patience):
    return [
        # val_ and the metric's name as in compile; without save_best_only each epoch overwrites the one before.
        keras.callbacks.ModelCheckpoint(folder / "best.keras", monitor="val_accuracy", save_best_only=True),
        keras.callbacks.EarlyStopping(monitor="val_loss", patience=patience),
    ]


### END SOLUTION

# %%
check("03.4", answer).points

# %% [markdown]
# ## 03.5 · An old call on today's Keras
#
# *4 points.* Here are the arguments of a well-known call of Keras 2, and what became of them:
#
# | `fit_generator` of Keras 2 | today |
# | --- | --- |
# | `generator` | the first argument of `fit`; a keyword, too |
# | `workers`, `use_multiprocessing`, `max_queue_size` | settings of the dataset |
# | all others | arguments of `fit`, with their old names |
#
# The queue holds finished batches, in memory. That call has `max_queue_size=100`, for batches of 128 images of
# 224 x 224, as float32. How many GB is that? The computer of this course's question has 8.
#
# **Task.** Write a function `answer(old, batch_bytes, memory_bytes)`. `old` is a dictionary of the arguments of a call
# of `fit_generator`; a batch has `batch_bytes` bytes. Give two dictionaries, `(for_fit, for_dataset)`, which together
# hold what `old` says, with one change: `max_queue_size` is as large as in `old`, but no larger than fits into
# `memory_bytes`, and at least 1. What `old` does not name stays unnamed. `old` itself is not changed.
#
# ```python
# old = {"generator": source, "epochs": 3, "max_queue_size": 100}
# answer(old, 1000, 5500)  # ({"x": source, "epochs": 3}, {"max_queue_size": 5})
# ```
#
# **Look again at** [lesson 03, section 10](../03_from_loop_to_generator.ipynb#10.-fit_generator,-then-and-now), and
# fault 8 in [section 6](../03_from_loop_to_generator.ipynb#6.-The-shuffled-index-generator).


# %%
### BEGIN SOLUTION
def answer(old, batch_bytes, memory_bytes):
    of_dataset = ("workers", "use_multiprocessing", "max_queue_size")
    for_dataset = {name: old[name] for name in of_dataset if name in old}
    for_fit = {name: value for name, value in old.items() if name not in of_dataset}
    for_fit["x"] = for_fit.pop("generator")
    if "max_queue_size" in for_dataset:
        # 100 batches of 128 * 224 * 224 * 3 * 4 bytes are 7.7 GB: nearly all that the computer has.
        fits = max(1, memory_bytes // batch_bytes)  # 0 would be a queue without a limit
        for_dataset["max_queue_size"] = min(for_dataset["max_queue_size"], fits)
    return for_fit, for_dataset


### END SOLUTION

# %%
check("03.5", answer).points

# %% [markdown]
# ## 03.6 · Batches by number, from your own file
#
# *5 points.* The question behind this course asks for a good example of a generator that reads its batches from one
# large HDF5 file. You know the faults of the answers: labels are missing, the tail is dropped, the length is a float,
# it ends after one pass, it is never shuffled, the caller's list is reordered. A dataset by number has none of them.
# Here is a small file to try yours on:

# %%
import h5py  # HDF5 files from Python

from data_scripts.make_toy_food import toy_food_file  # drawn plates of food

path = toy_food_file("../data", classes=2, per_class=10, size=64, seed=0)
with h5py.File(path, "r") as file:
    for name in ("train_img", "train_labels"):
        print(name, file[name].shape, file[name].dtype)

# %% [markdown]
# **Task.** Write a class `answer(path, images, labels, rows, batch_size, shuffle, seed)`. `images` and `labels` are the
# names of two datasets in the file `path`, whatever they are called; `rows` is an array of the row numbers to serve,
# each once, in any order. An object `d` of it has
#
# - `len(d)`: the number of batches, the smaller last one among them;
# - `d[k]`: the pair `(images, labels)` of batch k, as it stands in the file: same values, images of uint8;
# - `d.on_epoch_end()`: moves to the next epoch; Keras calls it.
#
# With `shuffle=False` the rows come in the order of `rows`, in each epoch. With `shuffle=True` all rows are mixed anew
# in each epoch, the first one too. What is in `d[k]` depends on the seed, the epoch and k, and on nothing else: not on
# which batches were asked for before. The caller's `rows` stay as they are.
#
# Make it a `keras.utils.PyDataset`, and `fit` takes it. **On your own file:** print its names and shapes, as above.
# Give 80% of its rows, drawn at random, to one object with `shuffle=True`, the rest to one with `shuffle=False`, and
# train.
#
# **Look again at** [lesson 03, section 8](../03_from_loop_to_generator.ipynb#8.-Ask-by-number), and for the rows
# [section 6](../03_from_loop_to_generator.ipynb#6.-The-shuffled-index-generator).

# %%
### BEGIN SOLUTION
from helpers import RowReader  # rows in any order, without a list index


class Batches(keras.utils.PyDataset):
    def __init__(self, path, images, labels, rows, batch_size, shuffle, seed):
        super().__init__()
        self.images, self.labels = RowReader(path, images), RowReader(path, labels)
        self.given, self.batch_size = np.array(rows), batch_size  # a copy: the caller's array is left alone
        self.shuffle, self.seed, self.epoch = shuffle, seed, 0

    def __len__(self):
        return -(-len(self.given) // self.batch_size)

    def rows(self, k):
        order = self.given
        if self.shuffle:  # drawn anew from seed and epoch: no state that a call could leave behind
            order = np.random.default_rng([self.seed, self.epoch]).permutation(order)
        return order[k * self.batch_size : (k + 1) * self.batch_size]

    def __getitem__(self, k):
        rows = self.rows(k)  # one list for both, so that labels fit
        return self.images.read(rows), self.labels.read(rows)

    def on_epoch_end(self):
        self.epoch += 1


answer = Batches
### END SOLUTION

# %%
check("03.6", answer).points

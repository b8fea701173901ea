# ---
# jupyter:
#   lesson:
#     keras: false
#     gpu: not needed
#     files: none
#     max_minutes: 1
#     max_memory_mb: 500
# ---

# %% [markdown]
# # Exercises 02 · The naive loop
#
# **In these exercises you will** find out what each fault of a nested `train_on_batch` loop costs, and write what it
# lacks: validation and shuffling by hand.
#
# **You need** [lesson 02](../02_naive_train_on_batch.ipynb).
#
# <!-- how -->
#
# <!-- facts -->

# %% tags=["nbval-ignore-output"]
from helpers.course.checks import check  # looks at an answer, and gives a hint
from helpers.course.lesson import open_lesson  # versions and device, quiet logs, one style of pictures

open_lesson()

# %% [markdown]
# ## 02.1 · The rows that nobody reads
#
# *Warm-up, 2 points.* The question behind this course trains on 70,700 rows with this loop, 50 epochs long:
#
# ```python
# for i in range(100):
#     train_images = dataset["train_img"][i * 706 : (i + 1) * 706, ...]
# ```
#
# **Task.** How many of the 70,700 rows does the model never see? `answer` is that number.
#
# **Look again at** [lesson 02, section 2](../02_naive_train_on_batch.ipynb#2.-Which-rows-were-used?).

# %%
### BEGIN SOLUTION
answer = 70_700 - 100 * 706  # each epoch reads the same 70,600 rows
### END SOLUTION

# %%
check("02.1", answer).points

# %% [markdown]
# ## 02.2 · Pieces without a remainder
#
# *3 points.* No count typed by hand: the pieces come from the length of the data.
#
# **Task.** Write a function `answer(n, batch_size)` that gives a list of slices. Together they hold each of the rows 0
# to n - 1 once, in order; all have `batch_size` rows, but for the last, which may have fewer. For 10 rows by 3 they are
# `slice(0, 3)`, `slice(3, 6)`, `slice(6, 9)` and `slice(9, 10)`.
#
# **Look again at** [lesson 02, section 2](../02_naive_train_on_batch.ipynb#2.-Which-rows-were-used?).


# %%
### BEGIN SOLUTION
def answer(n, batch_size):
    return [slice(start, min(start + batch_size, n)) for start in range(0, n, batch_size)]


### END SOLUTION

# %%
check("02.2", answer).points

# %% [markdown]
# ## 02.3 · Six faults and their price
#
# *3 points.* Here is more of that loop, in short. `dataset` is an open HDF5 file of 70,700 training rows:
#
# ```python
# for i in range(50):
#     for i in range(100):
#         train_images = dataset["train_img"][i * 706 : (i + 1) * 706]
#         train_labels = dataset["train_labels"][i * 706 : (i + 1) * 706]
#         val_images = dataset["valid_img"][i * 202 : (i + 1) * 202]
#         val_labels = dataset["valid_labels"][i * 202 : (i + 1) * 202]
#         model.train_on_batch(train_images, train_labels)
# ```
#
# | | fault |
# | --- | --- |
# | 1 | the counts 100 and 706 are typed by hand |
# | 2 | both loops call their variable `i` |
# | 3 | validation images are read, and nothing is done with them |
# | 4 | every epoch asks for the same slices in the same order |
# | 5 | each step trains on 706 images |
# | 6 | reading and training take turns, in one thread |
#
# And twelve costs. Half of them are not what the loop costs; people believe they are.
#
# | | cost |
# | --- | --- |
# | a | the epochs do not run 50 times: the inner loop uses up the outer one |
# | b | a file sorted by class ends in a model with one answer to everything |
# | c | a step takes as long as the longer of reading and training |
# | d | a step takes as long as reading and training together |
# | e | 271 GB are read in vain, and nobody learns how good the model is on other images |
# | f | the model learns nothing, even from a file whose rows were mixed when it was built |
# | g | some rows never train the model |
# | h | the model trains on validation images, so its accuracy looks too good |
# | i | 189 MB of memory for the images, and that is all |
# | j | the last slice goes beyond the end of the file, and h5py raises an error |
# | k | what is named or set by the number of the epoch is wrong: files overwrite each other |
# | l | 22 times fewer updates an epoch than batches of 32 give, and much memory for the outputs of the layers |
#
# **Task.** Which cost belongs to which fault? `answer` is a dictionary: each fault's number with one letter, such as
# `{1: "a", 2: "b", 3: "c", 4: "d", 5: "e", 6: "f"}`. Two right pairs earn a point, four earn two, six three.
#
# **Look again at** lesson 02,
# [section 3](../02_naive_train_on_batch.ipynb#3.-Three-more-slips) and
# [section 4](../02_naive_train_on_batch.ipynb#4.-One-huge-batch).

# %%
### BEGIN SOLUTION
answer = {
    1: "g",  # 100 x 706 is 70,600: too few, so no slice fails and nothing is said
    2: "k",  # not "a": range keeps its own count, only the name i is lost
    3: "e",  # not "h": they are not among the arguments of train_on_batch
    4: "b",  # not "f": in a mixed file the harm is small
    5: "l",  # not "i": a model computes with float32, and keeps the outputs of its layers
    6: "d",  # "c" would be true if reading ran beside training
}
### END SOLUTION

# %%
check("02.3", answer).points

# %% [markdown]
# ## 02.4 · Validation by hand
#
# *4 points.* The question asks whether it is easier to write validation and shuffling by hand for `train_on_batch`. You
# can judge that after this exercise and 02.6: here is what validation takes.
#
# No Keras is needed to try it. This stand-in has the two methods of a model; its loss of an image is made up from the
# first pixel, and an image is "right" where its label says so.

# %%
import numpy as np  # arrays


class StandIn:
    def test_on_batch(self, images, labels, return_dict=False):
        values = {"loss": float(images[:, 0, 0, 0].mean()), "accuracy": float(labels[:, 0].mean())}
        return values if return_dict else list(values.values())

    def train_on_batch(self, images, labels, return_dict=False):  # a real one changes its weights here
        return self.test_on_batch(images, labels, return_dict)


some_images, some_labels = np.zeros((64, 8, 8, 3), np.uint8), np.eye(4)[np.zeros(64, int)]
print(StandIn().test_on_batch(some_images, some_labels, return_dict=True))

# %% [markdown]
# **Task.** Write a function `answer(model, images, labels, batch_size)`. `images` and `labels` are datasets of an open
# HDF5 file: slice them as you slice arrays. It gives a dictionary `{"loss": ..., "accuracy": ...}` of two numbers, the
# means over **all** rows.
#
# - The model gets each row once, with its own label, and no more than `batch_size` rows at a time.
# - No more than `batch_size` images are in memory at once.
# - The weights stay as they are.
#
# **Look again at** [lesson 02, section 5](../02_naive_train_on_batch.ipynb#5.-Validation-by-hand).


# %%
### BEGIN SOLUTION
def answer(model, images, labels, batch_size):
    n, totals = len(images), {"loss": 0.0, "accuracy": 0.0}
    for start in range(0, n, batch_size):
        part = slice(start, min(start + batch_size, n))  # one slice for both, so that labels fit
        values = model.test_on_batch(images[part], labels[part], return_dict=True)  # changes no weights
        for name in totals:
            totals[name] += (part.stop - part.start) * values[name]  # the last batch is smaller, and counts less
    return {name: total / n for name, total in totals.items()}


### END SOLUTION

# %%
check("02.4", answer).points

# %% [markdown]
# ## 02.5 · How long does the model wait?
#
# *3 points.* A timeline of a model is a list of bars `(start, end, kind)`; the kind is `"wait"` or `"train"`, and one
# bar begins where the one before ended. The clock may have been started earlier. An example, in milliseconds:

# %% tags=["constant-time"]
from helpers.course import figures  # the pictures of this course

spans = [(20, 50, "wait"), (50, 100, "train"), (100, 160, "wait"), (160, 180, "train")]
figures.show(figures.timeline({"model": spans}, unit="ms"))

# %% [markdown]
# **Task.** Write a function `answer(spans)` that gives two numbers, `(share, faster)`:
#
# - `share`: the part of the whole time that the model waits, between 0 and 1;
# - `faster`: how many times faster the training could be at most, if the next batches were read all the time **while**
#   the model trains, as far ahead as needed. Count the two kinds as a whole: all reading takes as long as all bars of
#   `"wait"` together.
#
# For one step of 30 ms reading and 50 ms training that is `(0.375, 1.6)`.
#
# **Look again at** [lesson 02, section 8](../02_naive_train_on_batch.ipynb#8.-Where-the-time-goes).


# %%
### BEGIN SOLUTION
def answer(spans):
    took = {"wait": 0, "train": 0}
    for start, end, kind in spans:
        took[kind] += end - start
    whole = took["wait"] + took["train"]
    # Side by side both must still be done: the longer part is what remains, and that may be the reading.
    return took["wait"] / whole, whole / max(took.values())


### END SOLUTION

# %%
check("02.5", answer).points

# %% [markdown]
# ## 02.6 · A fair epoch, on your own file
#
# *5 points.* Shuffling by hand is the other half of what `train_on_batch` lacks. Four slips are common: the labels stay
# in another order than the images, whole batches are mixed instead of rows, each epoch has the same order, and the last
# rows are left out.
#
# **Task.** Write a function `answer(model, path, images, labels, epoch, seed, batch_size)`, which trains one epoch.
# `images` and `labels` are the names of two datasets in the HDF5 file `path`. `model` has
# `train_on_batch(images, labels, return_dict=True)`, like that of Keras and like the stand-in above.
#
# - The model is trained on each row once. All batches have `batch_size` rows, but for the last, which may have fewer.
# - Images go in as they stand in the file, each with its own label. The labels may all be in memory, the images of one
#   batch alone.
# - All rows are mixed, and then cut into batches: every row can meet every other.
# - `seed` and `epoch` decide the order, and nothing else does: the same call has the same batches, another seed or
#   another epoch has others. Also (seed, epoch) = (0, 1) and (1, 0) differ.
# - The function gives the mean loss: a number, over all rows.
#
# **On your own file:** pass its path, the names of its two datasets, and a compiled model of Keras. Then
# `[answer(model, path, "train_img", "train_labels", epoch, 0, 32) for epoch in range(6)]` are the losses of six epochs.
# With 02.4 after each of them you have a training loop that is fair.
#
# **Look again at** [lesson 02, section 6](../02_naive_train_on_batch.ipynb#6.-Shuffling-by-hand) and
# [section 7](../02_naive_train_on_batch.ipynb#7.-A-fair-loop).

# %%
### BEGIN SOLUTION
import h5py  # HDF5 files from Python

from helpers import RowReader  # rows in any order, without a list index


def answer(model, path, images, labels, epoch, seed, batch_size):
    with h5py.File(path, "r") as file:
        all_labels = file[labels][:]  # small, so any order of rows is cheap
    order = np.random.default_rng([seed, epoch]).permutation(len(all_labels))  # our own dice, made from both numbers
    total = 0.0
    with RowReader(path, images) as reader:
        for start in range(0, len(order), batch_size):
            rows = order[start : start + batch_size]  # one list for images and labels
            values = model.train_on_batch(reader.read(rows), all_labels[rows], return_dict=True)
            total += len(rows) * values["loss"]  # a smaller last batch counts less
    return total / len(order)


### END SOLUTION

# %%
check("02.6", answer).points

# ---
# jupyter:
#   lesson:
#     keras: true
#     gpu: not needed
#     files: left_behind_2.h5 beside the data of the lessons (3 MB)
#     max_minutes: 2
#     max_memory_mb: 1400
# ---

# %% [markdown]
# # Capstone 09 · A file that somebody left behind
#
# **In these exercises you will** diagnose an HDF5 file with many faults, repair it with little memory, and train on it.
#
# A colleague has moved on. What is left is one file, and a note: "program stopped during the night, should be fine". It
# is not fine. Your functions will be tried on other files of the same kind, so they cannot know names and numbers by
# heart. At the end you have
#
# 1. looked at a file, and said what is slow and what is misleading in it;
# 2. found the rows that hold a picture;
# 3. turned labels of any kind into class numbers;
# 4. repaired the file, a few rows at a time;
# 5. trained a model on it, in less than a minute.
#
# **You need** lessons [01](../01_build_the_hdf5_file.ipynb) and [05](../05_safe_per_worker_generator.ipynb), and for
# the last exercise [07](../07_fit_generator_on_gpu.ipynb).
#
# <!-- how -->
#
# <!-- facts -->

# %% tags=["nbval-ignore-output"]
from helpers.course.checks import check  # looks at an answer, and gives a hint
from helpers.course.lesson import open_lesson  # versions and device, quiet logs, one style of pictures

open_lesson(keras=True)

# %% [markdown]
# This is the file. `bad_file` makes it; another `seed` makes another file of the kind, with other names, sizes and
# classes. Try your functions on some of them.

# %%
import h5py  # HDF5 files from Python
import numpy as np  # arrays

from helpers.course.bad_file import bad_file  # makes the file that was left behind
from helpers.course.figures import image_grid, show  # pictures of images

left_behind = bad_file("../data", seed=2)
with h5py.File(left_behind.path, "r") as file:
    images, labels = file[left_behind.images], file[left_behind.labels]
    print(left_behind.images, images.shape, images.dtype, "chunks:", images.chunks, images.compression)
    print(left_behind.labels, labels.shape, labels.dtype)
    shown = [0, 1, 100, 167, 200, 334, 335, 359]
    pictures = images[shown]

# %%
show(image_grid(pictures, [f"row {row}" for row in shown], columns=4))

# %% [markdown]
# ## 09.1 · Look before you touch
#
# *4 points.* What does the file tell about itself?
#
# **Task.** Write a function `answer(path, images, labels)`; `images` and `labels` are the names of the two datasets. It
# returns a dictionary:
#
# - `"chunks_per_image"`: how many chunks one image lies in (1 where there are no chunks);
# - `"packed"`: `True` if the chunks are compressed;
# - `"sorted"`: `True` if the rows that were written are sorted by class. (Labels that are floats may be off by a
#   millionth.)
# - `"label_kind"`: `"onehot"` or `"numbers"`.
#
# **Look again at** [lesson 01, section 4](../01_build_the_hdf5_file.ipynb#4.-Chunks) and
# [section 9](../01_build_the_hdf5_file.ipynb#9.-A-file-that-opens-is-not-yet-a-good-file).


# %%
### BEGIN SOLUTION
import math  # products


def answer(path, images, labels):
    with h5py.File(path, "r") as file:
        data, values = file[images], file[labels][:]
        chunk = data.chunks or data.shape  # no chunks: one piece
        written = np.array([data[row].any() for row in range(len(data))])
        numbers = values.argmax(axis=1) if values.ndim == 2 else np.round(values)
        return {
            # Axis 0 does not count: along it, one image lies in one chunk.
            "chunks_per_image": math.prod(
                -(-side // part) for side, part in zip(data.shape[1:], chunk[1:], strict=True)
            ),
            "packed": data.compression is not None,
            "sorted": bool((np.diff(numbers[written]) >= 0).all()),
            "label_kind": "onehot" if values.ndim == 2 else "numbers",
        }


### END SOLUTION

# %%
check("09.1", answer).points

# %% [markdown]
# ## 09.2 · The rows that hold a picture
#
# *3 points.* The program was stopped. Rows that it did not reach are in the file, too: HDF5 fills them with zeros. And
# once, somebody forgot to take the lens cap off.
#
# **Task.** Write a function `answer(path, images)` that gives the numbers of the rows whose picture is not all
# black, in the order of the file. A picture with a single pixel that is not 0 counts. Read no more than 64 images at a
# time: the next file may have 27 GB.
#
# **Look again at** [lesson 01, section 3](../01_build_the_hdf5_file.ipynb#3.-A-slice-reads-what-it-names).


# %%
### BEGIN SOLUTION
def answer(path, images):
    rows = []
    with h5py.File(path, "r") as file:
        data = file[images]
        for start in range(0, len(data), 64):
            # Labels cannot decide: 0 is a class, and the picture with the lens cap has a label.
            has_picture = data[start : start + 64].any(axis=(1, 2, 3))
            rows.extend(start + np.flatnonzero(has_picture))
    return rows


### END SOLUTION

# %%
check("09.2", answer).points

# %% [markdown]
# ## 09.3 · Floats that were class numbers
#
# *3 points.* Half of these files have one-hot labels as `float32`, the other half class numbers as `float64`. The
# numbers went through some arithmetic on their way: where a 2 should be, there may be 1.9999998.
#
# **Task.** Write a function `answer(labels)`. It takes either kind as an array, `(n, classes)` or `(n,)`, and returns
# the class numbers, `(n,)`, of an integer type. A 1 may be 0.9999998, too. A row of zeros, which nobody has written,
# may get any number; the others keep their places.
#
# **Look again at** [lesson 01, section 2](../01_build_the_hdf5_file.ipynb#2.-Small-numbers).


# %%
### BEGIN SOLUTION
def answer(labels):
    if labels.ndim == 2:
        return labels.argmax(axis=1)
    return np.round(labels).astype("int64")  # astype alone would cut 1.9999998 to 1


### END SOLUTION

# %%
check("09.3", answer).points

# %% [markdown]
# ## 09.4 · The repair
#
# *4 points.* Now write the file as it should have been.
#
# **Task.** Write a function `answer(path, images, labels, out)`. It makes the HDF5 file `out` with the datasets
# `train_img`, `train_labels`, `valid_img` and `valid_labels`:
#
# - every picture is in one of the splits, once, with its own label; about a fifth of each class is in `valid`;
# - the rows of both are mixed;
# - images are `uint8` and lie in whole-image chunks or in one piece; labels are class numbers of an integer type, or
#   one-hot `uint8`;
# - the inspector finds no fault (`inspect_file(out).ok`);
# - **memory**: at no time is more than half of the pixels in memory;
# - **time**: a shuffled epoch inflates each image once. (From the old file, it inflates every image dozens of times.)
#
# The kit's `HDF5Writer` may help; h5py alone is fine, too. The class names are in the attribute `class_names` of the
# file. Give the new file these names, and an attribute `complete` that is `True`: `HDF5Writer` does both.
#
# **Look again at** [lesson 01, section 7](../01_build_the_hdf5_file.ipynb#7.-Splits,-and-the-order-of-the-rows) and
# [section 10](../01_build_the_hdf5_file.ipynb#10.-Repair-a-file-that-somebody-else-made).


# %%
### BEGIN SOLUTION
from helpers import HDF5Writer, RowReader  # writes the kit's file; reads rows in any order


def answer(path, images, labels, out):
    with h5py.File(path, "r") as file:
        shape, names, values = file[images].shape, list(file.attrs["class_names"]), file[labels][:]
        starts = range(0, shape[0], 32)
        kept = np.concatenate([s + np.flatnonzero(file[images][s : s + 32].any(axis=(1, 2, 3))) for s in starts])
    numbers = values.argmax(axis=1) if values.ndim == 2 else np.round(values).astype("int64")
    rng, parts = np.random.default_rng(0), {"train": [], "valid": []}
    for number in range(len(names)):  # a fifth of each class, so that none is missing in a split
        rows = rng.permutation(kept[numbers[kept] == number])
        parts["valid"].append(rows[: len(rows) // 5])
        parts["train"].append(rows[len(rows) // 5 :])
    with RowReader(path, images) as reader, HDF5Writer(out, shape[1:], names) as writer:
        for split, rows in parts.items():
            mixed = rng.permutation(np.concatenate(rows))
            for start in range(0, len(mixed), 32):  # a few rows in memory at a time
                some = mixed[start : start + 32]
                writer.append(split, reader.read(some), numbers[some])


### END SOLUTION

# %%
check("09.4", answer).points

# %% [markdown]
# ## 09.5 · Train on it
#
# *2 points.* The proof of the repair is a model that learns from it.
#
# **Task.** Write a function `answer(path)`. `path` is a repaired file as in exercise 09.4, with one-hot labels, 400
# images of 32 x 32 pixels to train on. It returns a Keras model, trained, that takes `uint8` images as they lie in the
# file. On the images of `valid` it is right in half of the cases at least (by chance: a quarter), and the training
# takes **less than a minute**.
#
# **Look again at** [lesson 07, section 5](../07_fit_generator_on_gpu.ipynb#5.-Train).
#
# **And now your own file.** The five functions are written for any file of this kind. Give them yours: first the facts,
# then the rows, then the labels. What did you find that this course did not show?


# %%
### BEGIN SOLUTION
from helpers import HDF5Sequence, fit_generator
from helpers.models import normalization, small_cnn  # a small network, its first layer scales the pixels


def answer(path):
    train = HDF5Sequence(path, "train", batch_size=16, workers=2)
    valid = HDF5Sequence(path, "valid", batch_size=64)
    model = small_cnn(train.image_shape, train.num_classes, normalization=normalization(path))
    model.compile("adam", "categorical_crossentropy", metrics=["accuracy"])
    fit_generator(model, train, epochs=6, validation_data=valid, verbose=0)
    return model


### END SOLUTION

# %%
check("09.5", answer).points

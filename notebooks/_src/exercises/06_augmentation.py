# ---
# jupyter:
#   lesson:
#     keras: false
#     gpu: not needed
#     files: data/toy_food_8x250_64px_seed0_drawing1.h5 (25 MB)
#     max_minutes: 1
#     max_memory_mb: 700
# ---

# %% [markdown]
# # Exercises 06 · Augmentation
#
# **In these exercises you will** choose changes, calculate with bytes, prove that labels stay with their images, and
# couple a generator with augmentation.
#
# **You need** [lesson 06](../06_augmentation.ipynb).
#
# <!-- how -->
#
# <!-- facts -->

# %% tags=["nbval-ignore-output"]
from helpers.course.checks import check  # looks at an answer, and gives a hint
from helpers.course.lesson import open_lesson  # versions and device, quiet logs, one style of pictures

open_lesson()

# %% [markdown]
# ## 06.1 · Which changes leave the label true?
#
# *Warm-up, 2 points.* Five data sets:
#
# | name | pictures | label |
# |---|---|---|
# | `"digits"` | one digit, dark ink on white paper, upright | which digit: 0 to 9 |
# | `"plates"` | one plate, seen from straight above | which dish; tomato soup and spinach soup are two of them |
# | `"shoes"` | one shoe seen from above, its tip anywhere | left or right |
# | `"needles"` | the needle of a compass on a plain ground | its angle in the picture, in whole degrees |
# | `"grey cards"` | a card of one grey, which fills the picture | which of 16 shades of grey |
#
# And five changes: `"mirror"` (left becomes right), `"half turn"` (by 180 degrees), `"small turn"` (by up to 8
# degrees), `"brightness"` (all values times 0.8 to 1.2), `"colour"` (each hue moves round the colour circle: red may
# become green, grey stays grey).
#
# **Task.** `answer` is a dictionary: for each data set a list of all changes that leave every label true. For the cards
# it has the form `{"grey cards": ["mirror", ...], ...}`. There is a point when no change makes a label false, and
# another when you left out none that is safe.
#
# **Look again at** [lesson 06, section 1](../06_augmentation.ipynb#1.-Why-augment?).

# %%
### BEGIN SOLUTION
answer = {
    "digits": ["small turn", "brightness", "colour"],  # a mirrored 3 is none; a 6 becomes a 9
    "plates": ["mirror", "half turn", "small turn", "brightness"],  # red soup must not become green
    "shoes": ["half turn", "small turn", "brightness", "colour"],  # a mirrored left shoe is a right one
    "needles": ["brightness", "colour"],  # whatever moves the needle changes the angle, a small turn, too
    "grey cards": ["mirror", "half turn", "small turn", "colour"],  # the shade is all that counts
}
### END SOLUTION

# %%
check("06.1", answer).points

# %% [markdown]
# ## 06.2 · Brighter, and without its mean
#
# *4 points.* A generator in one answer to the question of this course reads uint8 images, then does this:
#
# ```python
# bx[:, :, :, 0] -= meanV[0]
# ```
#
# For three channels, with three means from a file. It stops with an error at the first batch. Others add 60 for a
# brighter picture, which gives no error, and is worse:

# %%
import numpy as np  # arrays and random numbers

print(np.array([100, 250], np.uint8) + np.uint8(60))

# %% [markdown]
# **Task.** `answer` is a dictionary with two functions, `{"brighter": ..., "centred": ...}`.
#
# - `brighter(image, rng)` is fit for `Augment(function=...)`. It draws one whole number from -60 to 60 with `rng`, and
#   adds it to every value of the image. What would be below 0 becomes 0, what would be above 255 becomes 255. It gives
#   an image (height, width, 3) uint8. It may write into `image`, which is a copy.
# - `centred(images, mean)` takes a batch (n, height, width, 3) uint8, and an array of three float64 numbers, the mean
#   of the *training split* in red, green, blue. It gives the images less the mean, each channel less its own: an array
#   of float32, not divided by anything. `images` stay as they are.
#
# For an image of 250 everywhere, and 20 drawn, `brighter` gives 255. A red value of 100 with a mean of 130.5 becomes
# -30.5 in `centred`.
#
# **Look again at** [lesson 06, section 6](../06_augmentation.ipynb#6.-Calculating-with-uint8), and
# [section 8](../06_augmentation.ipynb#8.-Crop-and-mean,-done-right).


# %%
### BEGIN SOLUTION
def brighter(image, rng):
    shift = rng.integers(-60, 61)  # one for the image; the upper end is not drawn, so 61
    wide = image.astype(np.int16) + shift  # int16 holds -60 to 315
    return wide.clip(0, 255).astype(np.uint8)  # first stop, then bytes: the other way round it has wrapped already


def centred(images, mean):
    # Both sides are float32. With a mean of float64 the result would be float64: twice the bytes.
    return images.astype(np.float32) - np.asarray(mean, np.float32)


answer = {"brighter": brighter, "centred": centred}
### END SOLUTION

# %%
check("06.2", answer).points

# %% [markdown]
# ## 06.3 · Do labels and images stay together?
#
# *3 points.* The generator of 06.2 hands each batch to Keras: `next(aug.flow(bx, by, batchSize))`. Unlike the whole
# file, one batch fits into memory. But `flow` shuffles. Do the labels come along? And what if somebody changes that
# line later? A proof beats trust.
#
# We call a **feed** any function `feed(images, labels, batch_size)` that gives one batch `(images, labels)`, as that
# line does. It takes images (n, height, width, 3) uint8 and one label an image, of any kind. A good feed may shuffle
# images and labels together, mirror or turn the images, and make floats of them; it never changes their colours. Here
# are a good one and a bad one, to try your proof on:


# %%
def good_feed(images, labels, batch_size):
    order = np.random.default_rng(0).permutation(len(images))[:batch_size]
    return images[order, :, ::-1].astype("float32"), labels[order]


def bad_feed(images, labels, batch_size):
    order = np.random.default_rng(0).permutation(len(images))[:batch_size]
    return images[order], labels[:batch_size]


# %% [markdown]
# **Task.** Write a function `answer(feed)` that calls `feed` with images and labels of your own making, and gives True
# when each label in the batch is with its own image, and False when any is not, be it one pair among many. You decide
# what the images look like: choose them so that each says which label is its own, however it is turned.
# `answer(good_feed)` is True, `answer(bad_feed)` is False.
#
# **Look again at** [lesson 06, section 5](../06_augmentation.ipynb#5.-Labels-that-get-lost).


# %%
### BEGIN SOLUTION
def answer(feed):
    numbers = np.arange(32)  # all different, so that no swap goes unseen
    # Image k is grey k everywhere: mirrored or turned, it still says k. (k must fit into uint8.)
    images = np.broadcast_to(numbers[:, None, None, None], (32, 8, 8, 3)).astype(np.uint8)
    seen, labels = feed(images, numbers, 32)
    return bool(np.array_equal(seen[:, 4, 4, 0], labels))  # pair by pair: the order may be another one


### END SOLUTION

# %%
check("06.3", answer).points

# %% [markdown]
# ## 06.4 · The wrapper, repaired: a generator coupled with changes
#
# *5 points.* The question asks: "How could I couple the custom batch generator with the image augmentations?" It found
# that `ImageDataGenerator.flow(x, y)` wants all samples at once. One answer wraps `apply_transform`, as section 3 does.
# Its core, in our words:
#
# ```python
# def __len__(self):
#     return np.floor(len(self.images) / self.batch_size)
#
# def __next__(self):
#     start = self.batches_made * self.batch_size
#     self.batches_made += 1
#     if start + self.batch_size > len(self.images):
#         raise StopIteration
#     batch = self.images[start : start + self.batch_size]
#     for position, image in enumerate(batch):
#         batch[position] = change_by_global_chance(image)
#     return batch * self.scale
# ```
#
# Count its faults before you go on: there are eight or more. Then write a class that has none of them.
#
# **Task.** Write a class `answer(path, batch_size, change, seed)`. The file `path` has the datasets `train_img`,
# (n, height, width, 3) uint8, and `train_labels`, (n, classes). `change(image, rng)` takes an image, (height, width, 3)
# uint8, and a generator as `np.random.default_rng` makes it, and gives a new uint8 image, always of one size, maybe not
# the old one. An object `d` of the class has
#
# - `len(d)`: the number of batches, the smaller last one among them;
# - `d.batch(epoch, k)`: the pair `(images, labels)` of batch k: changed images, uint8, and their labels as in the file.
#
# An epoch has each row once, in an order mixed anew in each epoch. What a batch holds depends on seed, epoch and k
# alone, not on which batches were asked for before. How a row is changed depends on seed, epoch and row alone, and each
# such triple has random numbers of its own. `d` can be pickled, so that it can travel to a worker, and reads only what
# it needs.
#
# **Look again at** [lesson 06, sections 3](../06_augmentation.ipynb#3.-The-transform-wrapper),
# [4](../06_augmentation.ipynb#4.-Keras'-own-iterator,-fed-from-HDF5) and
# [7](../06_augmentation.ipynb#7.-Augment:-one-image,-one-source-of-chance).

# %%
### BEGIN SOLUTION
from helpers import RowReader  # rows in any order; it holds a path, and opens the file in each process


class Coupled:
    def __init__(self, path, batch_size, change, seed):
        self.images, self.labels = RowReader(path, "train_img"), RowReader(path, "train_labels")
        self.batch_size, self.change, self.seed = batch_size, change, seed

    def __len__(self):
        return -(-len(self.images) // self.batch_size)  # rounded up, and an int

    def batch(self, epoch, k):
        # No counter and no kept generator: whoever asks, in whatever order, gets the same batch.
        order = np.random.default_rng([self.seed, epoch]).permutation(len(self.images))
        rows = order[k * self.batch_size : (k + 1) * self.batch_size]
        images = [
            # A list, not a sum: row 4 of epoch 0 and row 3 of epoch 1 must not be twins.
            self.change(image, np.random.default_rng([self.seed, epoch, row]))
            for image, row in zip(self.images.read(rows), rows, strict=True)
        ]
        return np.stack(images), self.labels.read(rows)  # stack takes the size that `change` gave


answer = Coupled
### END SOLUTION

# %%
check("06.4", answer).points

# %% [markdown]
# ## 06.5 · What it costs, and what it changes
#
# *3 points.* Workers read and change images while the model trains on others. Each worker has a core of its own, and
# the queue between them is long enough.
#
# **Task.** `answer` is a dictionary with three functions:
#
# - `"seconds"`: a function `(n, read_ms, change_ms, train_ms, workers)` that gives the seconds of an epoch of n images.
#   One worker needs `read_ms` milliseconds to read an image and `change_ms` to change it; the model needs `train_ms`
#   for an image.
# - `"workers"`: a function `(read_ms, change_ms, train_ms)` that gives the fewest workers with which the model never
#   waits for images, an int. Exactly as fast is fast enough.
# - `"gap_closed"`: a function `(plain, augmented)` of two histories, dictionaries as in `fit(...).history`, with the
#   keys `"accuracy"` and `"val_accuracy"`: one value an epoch. The gap of a run is the mean of the last 5 values of
#   `accuracy` less that of `val_accuracy`. How much smaller is the gap with augmentation than without?
#
# With 5 ms to read and change, and 2 ms to train, 1,000 images take one worker 5 s. A gap of 0.30 that has become 0.05
# is closed by 0.25.
#
# **Look again at** [lesson 06, section 9](../06_augmentation.ipynb#9.-What-does-it-cost?), and
# [section 10](../06_augmentation.ipynb#10.-Does-it-help?).

# %%
### BEGIN SOLUTION
import math  # to round up


def seconds(n, read_ms, change_ms, train_ms, workers):
    # Side by side: the slower of the two decides. Only the workers' part is shared.
    return n * max((read_ms + change_ms) / workers, train_ms) / 1000


def fewest_workers(read_ms, change_ms, train_ms):
    return math.ceil((read_ms + change_ms) / train_ms)  # math.ceil gives an int, np.ceil a float


def gap(history):
    return np.mean(history["accuracy"][-5:]) - np.mean(history["val_accuracy"][-5:])


answer = {
    "seconds": seconds,
    "workers": fewest_workers,
    "gap_closed": lambda plain, augmented: gap(plain) - gap(augmented),
}
### END SOLUTION

# %%
check("06.5", answer).points

# %% [markdown]
# ## 06.6 · Your own picture, as validation and training see it
#
# *4 points.* Before you train with changes, look at them. The same picture in several epochs shows whether you would
# still give it its label; beside it, what validation sees. Here is one of the toy plates, as it is in the file:

# %%
import h5py  # HDF5 files from Python

from data_scripts.make_toy_food import toy_food_file  # drawn plates of food
from helpers.course import figures  # pictures in one style

path = toy_food_file("../data", classes=8, per_class=250, size=64, seed=0)
with h5py.File(path, "r") as file:
    plate = file["train_img"][17]
figures.show(figures.image_grid([plate], ["in the file"], columns=4))

# %% [markdown]
# **Task.** Write a function `answer(path, images, row, change, crop, n)`. `images` is the name of a dataset of the file
# `path`, whatever it is called: (rows, height, width, 3) uint8. `change(image, rng)` gives a changed image of the same
# size, and may write into the array it is given. `crop` is `(height, width)` of a window, not larger than the image.
# The answer is one array (1 + n, crop height, crop width, 3) of uint8:
#
# - first, what validation sees of this row: the middle window of the image as it is in the file (the space above and
#   below it is equal, and so is that at the sides, or one pixel apart);
# - then what training sees in epochs 0 to n - 1: the image of the file, changed, and a window at a random place, where
#   each place is possible. (To cut first and change then is fine, too.)
#
# The same call gives the same pictures. Each epoch and each row has random numbers of its own, and more epochs do not
# change the first ones. Where does the mean belong? Not here: what a worker ships is a picture.
#
# **On your own file:** show six versions of a few rows, and ask at each one: would I still give it this label? The
# names of the datasets are in `print(list(h5py.File(path)))`.
#
# ```python
# pictures = answer(path, "train_img", 17, Augment(rotation=180, brightness=(0.7, 1.3)), (48, 48), 6)
# figures.show(figures.image_grid(pictures, ["valid", *(f"epoch {epoch}" for epoch in range(6))], columns=4))
# ```
#
# **Look again at** [lesson 06, section 8](../06_augmentation.ipynb#8.-Crop-and-mean,-done-right), and
# [section 7](../06_augmentation.ipynb#7.-Augment:-one-image,-one-source-of-chance).

# %%
### BEGIN SOLUTION
from helpers import CenterCrop  # the middle of an image


def answer(path, images, row, change, crop, n):
    with h5py.File(path, "r") as file:
        image = file[images][row]
    height, width = crop
    pictures = [CenterCrop(crop)(image)]  # validation: no change, no chance
    for epoch in range(n):
        rng = np.random.default_rng([epoch, row])  # new for each epoch and row, the same at each call
        changed = change(image.copy(), rng)  # a copy: `change` may write into it, and the next epoch starts afresh
        top = rng.integers(0, image.shape[0] - height + 1)  # + 1: the last place counts
        left = rng.integers(0, image.shape[1] - width + 1)
        pictures.append(changed[top : top + height, left : left + width])
    return np.stack(pictures)


### END SOLUTION

# %%
check("06.6", answer).points

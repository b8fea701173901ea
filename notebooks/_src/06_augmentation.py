# ---
# jupyter:
#   lesson:
#     keras: true
#     gpu: not needed
#     files: data/toy_food_8x250_64px_seed0_drawing1.h5 (25 MB)
#     max_minutes: 3
#     max_memory_mb: 1600
# ---

# %% [markdown]
# # 06 · Augmentation
#
# **In this lesson you will build** three ways to change the images of an HDF5 file at random, find what is wrong with
# two of them, and measure what the third costs and gains.
#
# **You can, at the end,**
#
# 1. choose changes that leave the label true;
# 2. name the faults of a wrapper around `apply_transform`, and of Keras' own iterator on an HDF5 file;
# 3. prove that every label still belongs to its image;
# 4. calculate with uint8 images without an overflow;
# 5. put crop, mean and changes where they belong: into the worker, or into the model;
# 6. measure the cost of augmentation, and its gain.
#
# **You need** lesson 05: the generator that augmentation is coupled to.
#
# <!-- facts -->

# %% tags=["nbval-ignore-output"]
from helpers.course.lesson import fails_with, open_lesson  # versions and device; shows an error that is meant to come

open_lesson(keras=True)

# %% [markdown]
# ## 1. Why augment?
#
# A network that sees the same 1,400 pictures again and again learns them by heart. Augmentation shows each picture a
# little differently in every epoch. Here is one row of the training file in six epochs:

# %%
import numpy as np  # arrays and random numbers

from data_scripts.make_toy_food import toy_food_file  # drawn plates of food: made once, then found again
from helpers import Augment, HDF5Sequence  # the kit's changes of images, and its generator
from helpers.course import figures  # pictures in one style

path = toy_food_file("data", classes=8, per_class=250, size=64, seed=0)
turned = Augment(rotation=180, zoom=(0.75, 1.15), horizontal_flip=True)
row_17 = HDF5Sequence(path, rows=[17], images="train_img", labels="train_labels", augment=turned, seed=0)
pictures = [row_17.batch(epoch, 0)[0][0] for epoch in range(6)]
figures.show(figures.image_grid(pictures, [f"epoch {epoch}" for epoch in range(6)]))

# %% [markdown]
# It is the same dish six times, and never the same pixels. (Where a turned image leaves a corner empty, its own mirror
# image fills it: hence the stripes, and the piece of a second plate.) The label stays. That is the one condition: **a
# change must leave the label true.** A plate may be turned by any angle. A written digit may not: 6 becomes 9.

# %% [markdown]
# **Checkpoint 1.** You classify photographs of traffic signs. Which of flip, rotation by 10 degrees, brightness would
# you leave out?
#
# <details><summary>Answer</summary>
#
# The flip: a mirrored "turn left" sign says "turn right". A small rotation and another brightness happen in the
# street, too.
#
# </details>

# %% [markdown]
# ## 2. Keras' classic needs arrays
#
# The classic tool is `ImageDataGenerator` with its method `flow`. Lesson 03 said that `flow` wants all the samples at
# once. Look closer: we hand it the dataset of an open file, without reading anything.
#
# > **Then and now.** `ImageDataGenerator` was the way in Keras 2. It is deprecated, not in Keras 3's own modules, and
# > still reachable as `tf.keras.preprocessing.image`. Its successors are layers such as `keras.layers.RandomFlip`.
#
# **Predict:** `train_img` holds 17.2 MB of uint8 on the disk. How many MB does `flow` keep in memory, and of which
# type?

# %%
import h5py  # HDF5 files
from tensorflow.keras.preprocessing.image import ImageDataGenerator, Iterator  # Keras 2's augmentation

file = h5py.File(path, "r")
dataset, train_labels = file["train_img"], file["train_labels"][:]
flow = ImageDataGenerator(horizontal_flip=True).flow(dataset, train_labels, batch_size=32)
print("in the file:", dataset.dtype, f"{dataset.nbytes / 1e6:.1f} MB")
print("in memory:  ", flow.x.dtype, f"{flow.x.nbytes / 1e6:.1f} MB, type {type(flow.x).__name__}")

# %% [markdown]
# Everything, as float32: four times the file. For the 19 GB of training images in the question's file that would be
# 76 GB. So people built around it, in two ways. Both are worth knowing, because you will meet them.

# %% [markdown]
# ## 3. The transform wrapper
#
# The way many of us start: read a slice of the dataset, and call `apply_transform` on each image.
# `ImageDataGenerator` has that method for one image and chosen numbers. Here they are a zoom (0.8 shows the middle 80 %
# of each side), a shear (the image is slanted, by up to 6 degrees) and a flip.

# %%
import random  # Python's own random numbers


class TransformWrapper:
    def __init__(self, images, batch_size, zoom=(0.8, 1.0), shear=6, scale=1 / 255):
        self.images, self.batch_size = images, batch_size
        self.zoom, self.shear, self.scale = zoom, shear, scale
        self.keras_side, self.batches_made = ImageDataGenerator(), 0

    def __len__(self):
        return np.floor(len(self.images) / self.batch_size)

    def __next__(self):
        start = self.batches_made * self.batch_size
        if start + self.batch_size > len(self.images):
            raise StopIteration
        self.batches_made += 1
        batch = self.images[start : start + self.batch_size]
        for position, image in enumerate(batch):
            zoom, shear = random.uniform(*self.zoom), random.uniform(-self.shear, self.shear)
            change = {"zx": zoom, "zy": zoom, "shear": shear, "flip_horizontal": random.random() < 0.5}
            batch[position] = self.keras_side.apply_transform(image, change)
        return batch * self.scale


# %% [markdown]
# It reads slices, never the whole file, and its pictures are right:

# %%
random.seed(0)
batch = next(TransformWrapper(dataset, 32))
figures.show(figures.image_grid([*dataset[:4], *batch[:4]], ["in the file"] * 4 + ["from the wrapper"] * 4, columns=4))

# %% [markdown]
# Now its faults, one by one. First, what a batch consists of.
#
# **Predict:** The wrapper was given `images`. What will `fit_generator` say when it asks for a batch to train on?

# %%
import keras  # models and layers

from helpers import fit_generator  # the classic call on today's Keras
from helpers.models import small_cnn  # a small network for laptops

model = small_cnn((64, 64, 3), 8)
model.compile("adam", "categorical_crossentropy")
try:
    fit_generator(model, TransformWrapper(dataset, 32), steps_per_epoch=3, verbose=0)
except ValueError as error:
    print(str(error).partition(" Received")[0])

# %% [markdown]
# **No labels.** The class never had any. Next: Python asks objects for their length, for an iterator, and for a
# pickle that can travel to a worker.

# %%
import pickle  # objects as bytes, the way they travel to a worker

wrapper = TransformWrapper(dataset, 32)
with fails_with(TypeError):
    len(wrapper)
with fails_with(TypeError):
    iter(wrapper)
with fails_with(TypeError):
    pickle.dumps(wrapper)

# %% [markdown]
# **A length that is no whole number**, because `np.floor` gives a float, as in lesson 03; **no iterator**, so `for
# batch in wrapper` does not work; and **a handle inside**, so no spawned worker can have it. Now we count batches, over
# two epochs, and look at the order: the first row of each batch, read from its pixels, without any change.

# %%
row_of = {image.tobytes(): row for row, image in enumerate(dataset[:])}  # the pixels say which row it is


def first_rows(wrapper):
    rows = []
    while (batch := next(wrapper, None)) is not None:
        rows.append(row_of[batch[0].astype(np.uint8).tobytes()])
    return rows


def unchanged_wrapper():
    wrapper = TransformWrapper(dataset, 32, scale=1)
    wrapper.keras_side.apply_transform = lambda image, _: image  # leave the pixels as they are
    return wrapper


# %% [markdown]
# **Predict:** 1,400 rows in batches of 32 are 43.75 batches. How many does the first epoch give, and how many the
# second?

# %%
wrapper = unchanged_wrapper()
first, second = first_rows(wrapper), first_rows(wrapper)
print("first epoch: ", len(first), "batches, rows", *first[:4], "...")
print("second epoch:", len(second), "batches; rows never served:", len(dataset) - 32 * len(first))
print("a new wrapper, rows", *first_rows(unchanged_wrapper())[:4], "...")

# %% [markdown]
# **One pass only**: the counter never goes back. **Rows left out**: the last 24, in each new wrapper again. **No
# shuffle**: a new wrapper gives the same rows in the same order, that of the file. One more: what is a batch made of,
# after `* self.scale`?

# %%
print(dataset.dtype, "in the file,", batch.dtype, "here:", batch.nbytes // dataset[:32].nbytes, "times the bytes")

# %% [markdown]
# **float64**: eight times the bytes, in every queue and through every pipe. (The assignment `batch[position] = ...`
# puts numbers into a uint8 array. It loses nothing here, because `apply_transform` gives uint8 back for uint8. Section
# 6 shows when it would.)
#
# And it is slow: section 9 measures that.

# %% [markdown]
# **Checkpoint 2a.** Which of the faults would a training run show you with an error, and which would it hide?
#
# <details><summary>Answer</summary>
#
# Errors: no labels, the length, no iterator, and, with processes, the handle. Running dry in the second epoch is an
# error of `helpers.fit_generator`; Keras' own `fit` only warns, as you saw in lesson 03. Hidden: the rows left out,
# the missing shuffle, and eight times the memory.
#
# </details>

# %% [markdown]
# ## 4. Keras' own iterator, fed from HDF5
#
# The second way keeps more of Keras. `flow` returns an `Iterator`, a dataset that knows how to shuffle and count. For
# the images of some rows it calls its own method `_get_batches_of_transformed_samples`. We write that method so that
# it reads them from the HDF5 file. `random_transform` draws the changes of an image and makes them; `standardize` would
# scale it, and does nothing here, because we ask for no scale.


# %%
class HDF5Iterator(Iterator):
    def __init__(self, images, labels, changes, batch_size, shuffle=True, seed=None):
        super().__init__(len(images), batch_size, shuffle, seed)
        self.images, self.labels, self.changes = images, labels, changes

    def _get_batches_of_transformed_samples(self, rows):
        batch = np.zeros((len(rows), *self.images.shape[1:]), "float32")
        for position, row in enumerate(rows):
            image = self.changes.random_transform(self.images[row].astype("float32"))
            batch[position] = self.changes.standardize(image)
        return batch, self.labels[rows]


# %%
changes = ImageDataGenerator(zoom_range=(0.8, 1.0), shear_range=6, horizontal_flip=True)
iterator = HDF5Iterator(dataset, train_labels, changes, batch_size=32, seed=0)
images, labels = iterator[43]
print("batches:", len(iterator), "| the last one:", images.shape, images.dtype, labels.shape)
keras.utils.set_random_seed(0)
history = fit_generator(model, iterator, steps_per_epoch=5, epochs=1, verbose=0)
print("it trains:", np.isfinite(history.history["loss"][0]))

# %% [markdown]
# Much better: labels, a whole length, and all rows, the last batch with the remaining 24. From Keras come a shuffle,
# and pass after pass. What is still wrong? Two things show at once.

# %%
with fails_with(TypeError):
    pickle.dumps(iterator)
print("bytes of a batch, against the file's:", images.nbytes // dataset[-24:].nbytes, "times")

# %% [markdown]
# It cannot travel to a spawned worker (a lock inside, and the handle), and it ships float32.
#
# **Predict:** `seed=0` is set. We ask for batch 3, and ask for it once more. Will the pixels be equal?

# %%
iterator = HDF5Iterator(dataset, train_labels, changes, batch_size=32, seed=0)
once, again = iterator[3], iterator[3]
print("same labels:", np.array_equal(once[1], again[1]), "| same pixels:", np.array_equal(once[0], again[0]))

# %% [markdown]
# No: the random numbers depend on *how many batches were asked for before*, and they come from NumPy's global state.
# With workers, the order of asking changes from run to run, and the pictures with it. This is rule 3 of lesson 05,
# broken.
#
# A variant of this idea is a class that only *looks* like an array, given to the untouched `flow`. We count its
# reads:


# %%
class LooksLikeAnArray:
    def __init__(self, dataset):
        self.dataset, self.shape, self.reads = dataset, dataset.shape, 0

    def __len__(self):
        return len(self.dataset)

    def __getitem__(self, row):
        self.reads += 1
        return self.dataset[row]


# %%
pretender = LooksLikeAnArray(dataset)
flow = ImageDataGenerator().flow(pretender, batch_size=32)
print("reads before the first batch:", pretender.reads, "| flow keeps:", type(flow.x).__name__, flow.x.dtype)

# %% [markdown]
# `flow` copies whatever it gets into an array, here one row at a time: 1,400 rows, and one more read to learn that they
# end. Nothing is won.

# %% [markdown]
# **Checkpoint 2b.** Your colleague's `HDF5Iterator` runs with `workers=2` and `seed=0`. Two runs give different
# losses. Why?
#
# <details><summary>Answer</summary>
#
# Both threads draw from one global random state, in an order that timing decides. The random numbers of a row must
# come from (seed, epoch, row), as in lesson 05.
#
# </details>

# %% [markdown]
# ## 5. Labels that get lost
#
# The worst fault gives no error at all. Suppose you hold a batch and its labels, and use `flow` to change the
# *images* only. We switch all changes off, so that the pixels still say which row they are.
#
# **Predict:** Of the 32 labels, how many still belong to the image at their place?

# %%
images, labels = dataset[:32], train_labels[:32].argmax(axis=1)
changed = next(ImageDataGenerator().flow(images, batch_size=32, seed=0))
rows = np.array([row_of[image.astype(np.uint8).tobytes()] for image in changed])
print("rows served:", *rows[:8], "...", "| labels that fit:", np.count_nonzero(labels[rows] == labels), "of 32")

# %% [markdown]
# `flow` shuffles by default. The labels did not go along; with 8 classes about 4 of 32 fit by luck, here it was 1. A
# training with them runs without an error, and has next to nothing to learn: expect a loss that stays near ln(8) =
# 2.08, the loss of guessing. Given both, `flow` keeps them together:

# %%
changed, together = next(ImageDataGenerator().flow(images, labels, batch_size=32, seed=0))
rows = np.array([row_of[image.astype(np.uint8).tobytes()] for image in changed])
print("labels that fit:", np.count_nonzero(labels[rows] == together), "of 32")

# %% [markdown]
# `Augment` cannot make this mistake: it never sees more than one image. The same proof, for a whole epoch of
# `HDF5Sequence`, with flips as the only change, because a flip can be undone: flip once more, and the pixels say their
# row again.

# %%
flips = HDF5Sequence(path, "train", batch_size=32, seed=0, augment=Augment(horizontal_flip=True), label_kind="sparse")
seen, right = [], 0
for index in range(len(flips)):
    for image, label in zip(*flips[index], strict=True):
        row = row_of.get(image.tobytes(), row_of.get(image[:, ::-1].tobytes()))
        seen.append(row)
        right += train_labels[row].argmax() == label
print("different rows:", len(set(seen)), "| labels that fit:", right, "of", len(seen))

# %% [markdown]
# **Checkpoint 3.** Why is it not enough to see the loss fall?
#
# <details><summary>Answer</summary>
#
# If only some of the labels are wrong, the loss still falls, just less. Pixels that say their row leave no doubt.
#
# </details>

# %% [markdown]
# ## 6. Calculating with uint8
#
# An image of type uint8 has values from 0 to 255, and no others.
#
# **Predict:** What is 250 + 60 in uint8?

# %%
bright = np.array([10, 100, 250], dtype=np.uint8)
print("plus 60:", bright + np.uint8(60), "| minus 60:", bright - np.uint8(60))
print("times 1.5, cut to uint8:", (bright * 1.5).astype(np.uint8))
with fails_with(TypeError):
    bright -= 117.3  # subtract a mean, in place

# %% [markdown]
# 310 does not fit, and 310 - 256 = 54 comes out, without a word; so does 10 - 60 + 256 = 206. A float that does not fit
# fares no better: 375 became 119. Subtracting a mean in place is at least an error. The picture of the silent fault,
# beside OpenCV's `add`, which stops at 255 (and `subtract` at 0):

# %%
import cv2  # OpenCV: image arithmetic that stops at 0 and 255

plate = dataset[17]
pictures = [plate, plate + np.uint8(60), cv2.add(plate, np.full_like(plate, 60))]
figures.show(figures.image_grid(pictures, ["in the file", "NumPy, plus 60", "OpenCV, plus 60"], columns=3))

# %% [markdown]
# One more trap is waiting in the other direction. What happens when float values are assigned into a uint8 array, as
# in the wrapper, but with the scaling inside the loop? Of two images we divide the first one only:

# %%
batch = dataset[:2]
batch[0] = batch[0] / 255
print("untouched:", batch[1].min(), "to", batch[1].max(), "| divided:", batch[0].min(), "to", batch[0].max())

# %% [markdown]
# Everything from 0 to below 1 is cut to 0: a black picture. The rule: **uint8 in, uint8 out** as long as it is a
# picture, with functions that stop at 255; float only inside the model.

# %% [markdown]
# **Checkpoint 4.** Two calculations with a uint8 image. `image // 2 + 200`, where the image is 200: which value? And
# `image / 255`: which type, and how many times the bytes?
#
# <details><summary>Answer</summary>
#
# 44: 100 + 200 = 300 does not fit, and 300 - 256 is left. `cv2.add` would stop at 255.
#
# float64, eight times. `image.astype("float32") / 255` is four times. With a layer in the model, the images stay uint8
# all the way through the queue.
#
# </details>

# %% [markdown]
# ## 7. `Augment`: one image, one source of chance
#
# `Augment` takes an image and a generator of random numbers, and gives a new image. Each of its changes alone, strong
# enough to be seen:

# %%
alone = {
    "as it is": Augment(),
    "rotation=40": Augment(rotation=40),
    "width_shift=0.3": Augment(width_shift=0.3),
    "shear=30": Augment(shear=30),
    "zoom=(0.5, 0.7)": Augment(zoom=(0.5, 0.7)),
    "horizontal_flip": Augment(horizontal_flip=True),
    "brightness": Augment(brightness=(1.3, 1.6)),
    "crop=(40, 40)": Augment(crop=(40, 40)),
}
pictures = [change(plate, np.random.default_rng(670)) for change in alone.values()]
figures.show(figures.image_grid(pictures, list(alone), columns=4))

# %% [markdown]
# The wrapper's numbers keep their meaning: `zoom=(0.8, 1.0)`, `shear=6` and a flip become `Augment(zoom=(0.8, 1),
# shear=6, horizontal_flip=True)`. All moves of an image are combined into *one* map, so its pixels are interpolated
# (mixed from their old neighbours) only once. We compare one zoom of both, and then test what `Augment` promises:

# %%
by_keras = ImageDataGenerator().apply_transform(plate, {"zx": 0.8, "zy": 0.8})
by_augment = Augment(zoom=(0.8, 0.8))(plate, np.random.default_rng(0))
print("at most 2 of 255 grey levels apart:", cv2.absdiff(by_keras, by_augment).max() <= 2)

# %%
classic = Augment(zoom=(0.8, 1), shear=6, horizontal_flip=True)
kept = plate.copy()
one, two = classic(plate, np.random.default_rng(5)), classic(plate, np.random.default_rng(5))
print("a new uint8 image:", one.dtype, one.shape, "| the input is untouched:", np.array_equal(plate, kept))
print("the same chance, the same image:", np.array_equal(one, two))

# %% [markdown]
# **Predict:** `HDF5Sequence` makes the generator from (seed, epoch, row). Below, a grey image becomes brighter or
# darker by chance. Which of the six numbers are equal?

# %%
grey = np.full((8, 8, 3), 100, np.uint8)
dimmer = Augment(brightness=(0.5, 1.5))
for epoch in (0, 1):
    values = [int(dimmer(grey, np.random.default_rng([0, epoch, row])).mean()) for row in (0, 1, 2)]
    print(f"epoch {epoch}, rows 0, 1, 2:", *values)

# %% [markdown]
# None: every row differs from its neighbours, and from itself in the next epoch. No two workers can be twins, because
# no worker keeps random numbers of its own.
#
# What `Augment` lacks, you add: `function=` is called last, as `function(image, rng)`. This one hides a square at a
# random place, so that the network does not rely on one detail. (It may write into `image`: that is a copy.)


# %%
def hide_a_patch(image, rng):
    top, left = rng.integers(0, 40, size=2)
    image[top : top + 24, left : left + 24] = 128
    return image


hiding = Augment(horizontal_flip=True, function=hide_a_patch)
pictures = [hiding(plate, np.random.default_rng(number)) for number in range(4)]
figures.show(figures.image_grid(pictures, columns=4))

# %% [markdown]
# The function stands in this notebook, and still travels to spawned processes: `WorkerPool` sends its code (lesson 04,
# section 10). And `Augment` checks what a function returns:

# %%
from helpers.workers import WorkerPool  # threads or spawned processes that answer in order

hidden = HDF5Sequence(path, "train", batch_size=32, seed=0, augment=hiding).source  # what a worker needs of it
with WorkerPool(lambda index: hidden.batch(0, index), workers=2, processes=True) as pool:
    from_workers = [pool.get(index)[0] for index in range(4)]
print("same images:", all(np.array_equal(images, hidden.batch(0, i)[0]) for i, images in enumerate(from_workers)))
with fails_with(TypeError):
    Augment(function=lambda image, _: image / 255)(plate, np.random.default_rng(0))

# %% [markdown]
# ## 8. Crop and mean, done right
#
# Two steps of the best-known generators are still missing: a random crop of 224 x 224 from larger images, and the mean.
# A crop changes the *shape*; validation needs the same shape, but nothing random. That is `CenterCrop`.

# %%
from helpers import CenterCrop  # the middle of an image

train = HDF5Sequence(path, "train", seed=0, augment=Augment(crop=(56, 56), horizontal_flip=True))
valid = HDF5Sequence(path, "valid", augment=CenterCrop((56, 56)))
print("train:", train[0][0].shape, "| valid:", valid[0][0].shape)

# %% [markdown]
# The mean of the training split lies in the file, written when it was built. `normalization(path)` is a layer that
# subtracts it *inside the model*. We compare it with the same calculation made in the worker.

# %%
from helpers.models import normalization  # (x - mean) / 127.5 as a layer of the model

images = dataset[:32]
mean = np.array(file.attrs["mean"], dtype=np.float32)
in_worker = (images.astype(np.float32) - mean) / 127.5
in_model = keras.ops.convert_to_numpy(normalization(path)(images))
print("the same numbers:", np.allclose(in_worker, in_model, atol=1e-5))
print("bytes to ship:", f"{in_worker.nbytes:,} from the worker, {images.nbytes:,} when the model does it")

# %% [markdown]
# The same numbers for a quarter of the bytes. And a saved model carries its mean along: nobody who uses it later can
# forget to subtract it.

# %% [markdown]
# **Checkpoint 5.** Where do you put each of these: random crop, mean subtraction, flip, one-hot labels?
#
# <details><summary>Answer</summary>
#
# Crop and flip into the worker: they work on uint8. The mean into the model. One-hot labels are no change of an image:
# leave them to the sequence, which gives them as they are asked for (`label_kind="onehot"`, as always, or
# `"sparse"`).
#
# </details>

# %% [markdown]
# ## 9. What does it cost?
#
# Five ways to flip, zoom and shear, at the 299 x 299 pixels of the question. Keras' layers are the modern way: they run
# inside the model, on its device. On a GPU that can be a good place; here the device may be a CPU. They count
# differently: `RandomZoom` -0.2 is our 0.8, and `RandomShear` 0.1 is about 6 degrees. The first call builds the graph;
# we make it now, so that it is not measured.

# %%
import tensorflow as tf  # to compile Keras' layers into one graph

from helpers.images import resize_image  # another size, with OpenCV

large = np.stack([resize_image(image, (299, 299)) for image in dataset[:16]])
layers = keras.Sequential([
    keras.layers.RandomFlip("horizontal"),
    keras.layers.RandomZoom((-0.2, 0.0)),
    keras.layers.RandomShear(0.1),
])
in_graph = tf.function(lambda images: layers(images, training=True))
print(in_graph(large).shape)

# %% [markdown]
# **Predict:** A longer bar means more images a second. Which of the five will be the shortest, and which the longest?

# %% tags=["nbval-ignore-output"]
from concurrent.futures import ThreadPoolExecutor  # a pool of threads

from helpers.course.meters import benchmark  # median seconds of a function

chances = [np.random.default_rng(number) for number in range(16)]
with ThreadPoolExecutor(2) as two_threads:
    timings = {
        "wrapper (SciPy)": benchmark(lambda: next(TransformWrapper(large.copy(), 16)), repeat=3, items=16),
        "HDF5Iterator (SciPy)": benchmark(lambda: HDF5Iterator(large, labels, changes, 16)[0], repeat=3, items=16),
        "Keras layers on this device": benchmark(lambda: in_graph(large), repeat=3, items=16),
        "Augment": benchmark(lambda: list(map(classic, large, chances)), repeat=15, items=16),
        "Augment, 2 threads": benchmark(lambda: list(two_threads.map(classic, large, chances)), repeat=15, items=16),
    }
speeds = [timing.per_second for timing in timings.values()]
figures.show(figures.bars(list(timings), speeds, "images/s", log=True, title="Flip, zoom and shear at 299 x 299"))

# %%
best = {name: min(timing.runs) for name, timing in timings.items()}  # other programs only make a run slower
print("Augment is at least 5 times faster than the wrapper:", best["wrapper (SciPy)"] > 5 * best["Augment"])

# %% [markdown]
# The axis is logarithmic: from one line to the next, the speed is ten times as high. The two SciPy bars are alike,
# because both end in `apply_transform`, which moves each colour on its own, as float. `Augment` leaves all of it to one
# call of OpenCV, on uint8. Whether Keras' layers are fast is a question of the device: look at the first cell.

# %% [markdown]
# **Checkpoint 6a.** Your GPU trains 400 images a second. Which bars of your chart can feed it?
#
# <details><summary>Answer</summary>
#
# Those that are longer than 400 images a second. Reading comes on top, but lesson 05 measured that it is a small
# part.
#
# </details>

# %% [markdown]
# ## 10. Does it help?
#
# It helps most when images are few. We train the same network twice on 320 images, once plain and once with the changes
# of section 1 (`turned`), and look at 400 validation images.


# %%
def train_on_few(augment):
    keras.utils.set_random_seed(0)
    model = small_cnn((64, 64, 3), 8, normalization=normalization(path), width=8)
    model.compile(keras.optimizers.Adam(3e-3), "categorical_crossentropy", metrics=["accuracy"])
    few = HDF5Sequence(path, rows=np.arange(320), images="train_img", labels="train_labels", augment=augment, seed=0)
    valid = HDF5Sequence(path, "valid", batch_size=200)
    return fit_generator(model, few, epochs=20, validation_data=valid, verbose=0).history


# %% [markdown]
# **Predict:** With augmentation, will the accuracy on the *training* images be higher or lower than without?

# %% tags=["nbval-ignore-output"]
plain, augmented = train_on_few(None), train_on_few(turned)
series = {
    "plain, training": plain["accuracy"],
    "plain, validation": plain["val_accuracy"],
    "augmented, training": augmented["accuracy"],
    "augmented, validation": augmented["val_accuracy"],
}
figures.show(figures.curves(series, y="accuracy", title="320 images, with and without augmentation"))

# %%
gaps = [np.mean(run["accuracy"][-5:]) - np.mean(run["val_accuracy"][-5:]) for run in (plain, augmented)]
print("the gap between training and validation is smaller with augmentation:", gaps[1] < gaps[0] - 0.05)

# %% [markdown]
# Lower on the training images, which are harder now, and closer to the accuracy on the validation images. Plain
# training was learning its 320 images by heart: that is what the wide gap between its two curves says. How many points
# of validation accuracy are won, one short run with one seed cannot say.

# %% [markdown]
# **Checkpoint 6b.** Training accuracy 0.99, validation 0.40. And another run: 0.45 and 0.43. Which one asks for more
# augmentation?
#
# <details><summary>Answer</summary>
#
# The first: it knows its images by heart. The second has not learned enough yet; it needs more epochs or a larger
# network, and more augmentation would make it slower still.
#
# </details>

# %% [markdown]
# ## Key points
#
# - One image, one label, one source of chance from (seed, epoch, row): labels stay, workers are never twins.
# - uint8 in, uint8 out; the mean and the scale are a layer of the model.
# - The old ways around `ImageDataGenerator` lose labels, rows, shuffling or memory, and SciPy makes them slow.

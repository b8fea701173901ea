# ---
# jupyter:
#   lesson:
#     keras: true
#     gpu: not needed
#     files: two toy files (25 MB), data/plates, data/best.keras
#     max_minutes: 3
#     max_memory_mb: 1000
# ---

# %% [markdown]
# # 03 · From the loop to the generator
#
# **In this lesson you will build** the two generators that most answers on the web propose, find what is wrong with
# them, and then a dataset that gives batches by number, for `fit` and for `fit_generator`.
#
# **You can, at the end,**
#
# 1. say what `yield` does, and when a row is read;
# 2. say how many steps an epoch has, and what happens when a generator ends early or steps are rounded down;
# 3. find the faults of a directory generator and of a shuffled index generator;
# 4. write a dataset whose batches depend on their number alone, and say why that is better than `yield`;
# 5. save the best model and stop in time, with names that Keras knows;
# 6. use `fit_generator`: the original one, and today's.
#
# **You need** lesson 02: the loop over `train_on_batch`, and the trap of the list index.
#
# <!-- facts -->

# %% tags=["nbval-ignore-output"]
from helpers.course.lesson import open_lesson  # versions and device, quiet logs, one style of pictures

open_lesson(keras=True)

# %% [markdown]
# ## 1. What a generator is
#
# In lesson 02 we called the model with each batch. Now we turn it round: Keras' own loop, `model.fit`, asks us for the
# next batch. Python's tool for "the next one, please" is the generator. A function with `yield` in it makes one.

# %%
import h5py  # HDF5 files from Python
import numpy as np  # arrays

from data_scripts.make_toy_food import toy_food_file  # drawn plates of food

path = toy_food_file("data", classes=8, per_class=250, size=64, seed=0)
log = []


def batches_once(batch_size):
    with h5py.File(path, "r") as file:
        for start in range(0, len(file["train_img"]), batch_size):
            stop = start + batch_size
            log.append(start)
            yield file["train_img"][start:stop], file["train_labels"][start:stop]


# %% [markdown]
# The log notes each read. The file has 1,400 training images.
#
# **Predict:** We call the function, and then ask for one batch. How many reads does the log hold after the call, and
# how many after `next`?

# %%
source = batches_once(100)
print("after the call:", len(log), "reads")
images, labels = next(source)
print("after next:    ", len(log), "read;", images.shape, images.dtype)

# %% [markdown]
# The call runs nothing. `next` runs the function up to its `yield`, hands out what stands there, and stops **inside**
# the loop; the following `next` goes on from there. One batch is in memory, however long the file is.

# %% [markdown]
# **Checkpoint 1.** What is printed, and by which line?
#
# ```python
# def two():
#     print("a")
#     yield 1
#     print("b")
#     yield 2
#
# g = two()
# next(g)
# ```
#
# <details><summary>Answer</summary>
#
# Only `a`, by `next(g)`. The call `two()` itself prints nothing, and `b` would need a second `next(g)`.
#
# </details>

# %% [markdown]
# ## 2. A generator runs dry
#
# We need a model to feed, and a very small one will do. `new_model` takes the library as an argument, because section
# 10 makes the same model with Keras 2.

# %%
import keras  # models and training


def new_model(library, learning_rate=0.003):
    library.utils.set_random_seed(0)
    layers = library.layers
    model = library.Sequential([
        library.Input((64, 64, 3)),
        layers.Rescaling(1 / 127.5, offset=-1),
        layers.AveragePooling2D(8),
        layers.Flatten(),
        layers.Dense(8, activation="softmax"),
    ])
    model.compile(library.optimizers.Adam(learning_rate), "categorical_crossentropy", metrics=["accuracy"])
    return model


# %% [markdown]
# `fit` takes a generator. It cannot know how many batches will come, so we say what an epoch is: 14 steps. A
# **callback** is an object whose methods `fit` calls on the way. Ours counts the steps that were really trained.

# %%
steps = []


class CountSteps(keras.callbacks.Callback):
    def on_epoch_begin(self, *_, **__):
        steps.append(0)

    def on_train_batch_end(self, *_, **__):
        steps[-1] += 1


# %% [markdown]
# Keras cannot shuffle what a generator gives, and would warn; `shuffle=False` says that we know.
#
# **Predict:** `batches_once(100)` has 14 batches. We ask for three epochs of 14 steps. Is there an error? How many
# steps has the second epoch, and what is its loss?

# %%
import warnings  # to catch a warning, and print it

with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    history = new_model(keras).fit(
        batches_once(100), steps_per_epoch=14, epochs=3, shuffle=False, verbose=0, callbacks=[CountSteps()]
    )
print("a warning:", str(caught[0].message).split(";")[0])
print("steps trained:", steps, " loss of epoch 2:", history.history["loss"][1])

# %% [markdown]
# No error, only a warning. Epoch 2 has no step and a loss of 0.0, and whatever keeps the epoch with the lowest loss
# will keep this one. Epoch 3 is stranger still. Before the training Keras had taken two batches, to learn their shapes;
# it kept them, and now trained on them.
#
# The cure: never end. (`yield from` hands out everything that another generator gives.)


# %%
def batches_for_ever(batch_size):
    while True:
        yield from batches_once(batch_size)


steps.clear()
history = new_model(keras).fit(
    batches_for_ever(100), steps_per_epoch=14, epochs=3, shuffle=False, verbose=0, callbacks=[CountSteps()]
)
print("steps trained:", steps, " loss falls:", history.history["loss"][2] < history.history["loss"][0])

# %% [markdown]
# ## 3. How many steps are an epoch?
#
# 1,400 rows in batches of 64 are 21.875 batches. Rounded down, the last 56 rows are left out; rounded up, the last
# batch is smaller. `//` rounds down, and with two minus signs it rounds up. The number must be an `int`, which
# `np.floor` does not give.

# %%
from helpers.course.lesson import fails_with  # prints the error that is meant to come

print("down:", 1400 // 64, " up:", -(-1400 // 64), " np.floor:", repr(np.floor(1400 / 64)))
with fails_with(TypeError):
    new_model(keras).fit(batches_for_ever(64), steps_per_epoch=np.floor(1400 / 64), shuffle=False, verbose=0)

# %% [markdown]
# Most published code rounds down. What happens to the last 56 rows then, if the generator never ends? A generator of
# row numbers shows it; `islice` takes the 21 batches that Keras would take.
#
# **Predict:** At which row does the second epoch start?

# %%
from itertools import islice


def rows_for_ever(n, batch_size):
    while True:
        yield from (np.arange(start, min(start + batch_size, n)) for start in range(0, n, batch_size))


source = rows_for_ever(1400, 64)
for epoch in range(3):
    served = np.concatenate(list(islice(source, 21)))
    print(f"epoch {epoch}: starts at row {served[0]}, ends at row {served[-1]}")

# %% [markdown]
# The rows are not lost. They open the next epoch, and an "epoch" is no longer a pass over the data. For training that
# does little harm. For validation it means other rows each time: section 6 shows what comes of it. Rounded up, epoch
# and pass are the same.

# %% [markdown]
# **Checkpoint 2.** 20,200 validation rows, batches of 128. How many steps make one full pass? What does
# `validation_steps=20200 // 128` do?
#
# <details><summary>Answer</summary>
#
# 20,200 / 128 = 157.8: 158 steps. With 157 the first validation leaves the last 104 rows out, and the second begins
# with them: each validation sees other rows.
#
# </details>

# %% [markdown]
# ## 4. Why not Keras' own generator?
#
# > **Then and now.** `ImageDataGenerator` was the usual way to augment images: `flow(x, y)` makes a generator, and
# > `fit_generator` trained on it. Today it is a legacy class, found under `tf.keras.preprocessing.image`.
#
# The question of this course says: "flow needs all the samples at once". Is that so? We give it a dataset of an open
# file, which could be read slice by slice, and measure memory.

# %% tags=["nbval-ignore-output"]
import tensorflow as tf  # the library that computes for Keras here; the legacy class is found through it

from helpers.course.meters import MemoryMeter  # the most memory used inside a block, above the start

augmenter = tf.keras.preprocessing.image.ImageDataGenerator()
with h5py.File(path, "r") as file, MemoryMeter() as meter:
    in_file_mb = file["train_img"].nbytes / 1e6
    flow = augmenter.flow(file["train_img"], file["train_labels"], batch_size=32)
print(f"images in the file: {in_file_mb:.0f} MB; memory after flow(), before any batch: {meter.peak_mb:.0f} MB more")

# %%
print("it holds", flow.x.shape, flow.x.dtype)
print("3 times the bytes of the file or more:", meter.peak_mb > 3 * in_file_mb)
print(f"for the 70,700 images of the question: {70_700 * 299 * 299 * 3 * 4 / 1e9:.0f} GB")
del flow

# %% [markdown]
# The question is right. `flow` copies everything into memory, as float32: four times the bytes in the file. So the
# batches must come from a generator of our own.

# %% [markdown]
# ## 5. The directory generator
#
# Many of us start with a generator that reads image files from a folder. We make such a folder: 12 plates.

# %%
from pathlib import Path  # paths as objects

from helpers.images import encode_jpeg  # RGB image -> bytes of a JPEG file

folder = Path("data/plates")
folder.mkdir(exist_ok=True)
with h5py.File(path, "r") as file:
    plates = file["valid_img"][:12]
for number, plate in enumerate(plates):
    (folder / f"plate_{number:02}.jpg").write_bytes(encode_jpeg(plate))

# %% [markdown]
# The generator lists the folder, reads as many files as a batch needs, scales to the range -1 to 1, and starts again
# with a shuffled list when it has come to the end. Two arguments are ours: `path_of` makes a path of a name, and
# `served` notes the names in the order they are read.

# %%
import random  # Python's own dice

import cv2  # reads and resizes images


def directory_batches(folder, batch_size, path_of, served):
    names = [file.name for file in folder.iterdir()]
    waiting = list(names)
    while True:
        batch = []
        while len(batch) < batch_size:
            if not waiting:
                random.shuffle(names)
                waiting = list(names)
            served.append(waiting.pop(0))
            picture = cv2.imread(path_of(served[-1]))
            small = cv2.resize(picture, (64, 64)).astype(float)
            batch.append((small - 128) / 128)
        yield np.stack(batch)


# %% [markdown]
# **Fault 1: the file is not found.** The list holds bare names, as `os.listdir` gives them too. One well-known version
# then reads `sample[0]`, as if each entry were a pair.
#
# **Predict:** Which of these three does OpenCV find: `name[0]`, `name`, `folder / name`?

# %%
cv2.utils.logging.setLogLevel(cv2.utils.logging.LOG_LEVEL_ERROR)  # no extra lines in the terminal
name = "plate_00.jpg"
for shown in (name[0], name, str(folder / name)):
    print(f"{shown!r}: found: {cv2.imread(shown) is not None}")
print("a folder called ~ is there:", Path("~").exists())
with fails_with(cv2.error):
    next(directory_batches(folder, 4, lambda name: name[0], []))

# %% [markdown]
# `name[0]` is the letter p, and a bare name is looked for beside the notebook. A folder written as `~` is not found
# either: the shell makes your home folder of that sign, Python does not. `imread` returns `None` and does not complain.
# The error comes one step later, from `resize`, and speaks of an empty size (`ssize.empty()`), not of a missing file.
#
# With the right path it runs. We look at what it gives.

# %%
served = []
source = directory_batches(folder, 12, lambda name: str(folder / name), served)
batch = next(source)
print(type(batch).__name__, batch.shape, batch.dtype)
print("bytes, against the uint8 of the file:", batch.nbytes // plates.nbytes, "times")
print(f"a batch of 64 at 299 x 299: {64 * 299 * 299 * 3 * 8 / 1e6:.0f} MB instead of {64 * 299 * 299 * 3 / 1e6:.0f}")

# %% [markdown]
# **Fault 2: eight times the memory.** `astype(float)` is float64. The model makes float32 of it at once.
#
# **Fault 3: the colours.** Something about the pictures is odd as well.

# %%
from helpers.course import figures  # the pictures of this course

first = cv2.imread(str(folder / name))
figures.show(figures.image_grid([plates[0], first], ["in the HDF5 file", "from cv2.imread"]))

# %% [markdown]
# OpenCV reads blue first, red last. A model trained in one order sees wrong colours in the other.
#
# **Fault 4: no labels.** The batch is images alone. What does Keras say?

# %%
try:
    new_model(keras).fit(source, steps_per_epoch=1, shuffle=False, verbose=0)
except ValueError as error:
    print(str(error).split(" Received")[0])

# %% [markdown]
# It wants pairs: inputs and targets (the labels).
#
# **Fault 5: the first pass is not shuffled.** The list is shuffled only when it has been used up. We took one batch of
# all 12 for ourselves; Keras took the second, before it complained.

# %%
listed = [file.name for file in folder.iterdir()]
print("first pass in the order of the list: ", served[:12] == listed)
print("second pass in the order of the list:", served[12:24] == listed)

# %% [markdown]
# Names of a class often stand together in such a list, and lesson 02 showed what an unshuffled pass does then. And the
# shuffle draws from Python's global `random` without a seed, so no run can be repeated.
#
# **Fault 6: one at a time.** Reading and decoding is work for several workers, and only one can use a generator:
# section 7.

# %% [markdown]
# ## 6. The shuffled index generator
#
# The best-known answer reads from HDF5. Training and validation are two lists of rows of one dataset (here 1,200 and
# 200 rows of `train_img`). Each pass shuffles the list, cuts it into batches, sorts each batch for HDF5, subtracts the
# mean, and lets `flow` augment.

# %%
rng = np.random.default_rng(0)


def shuffled_batches(path, rows, batch_size, subtract_mean=True, augmenter=None):
    file = h5py.File(path, "r")
    while True:
        rng.shuffle(rows)
        for start in range(0, len(rows), batch_size):
            part = rows[start : start + batch_size]
            part.sort()
            images, labels = file["train_img"][part], file["train_labels"][part]
            if subtract_mean:
                images -= file.attrs["mean"]
            if augmenter is not None:
                images, labels = next(augmenter.flow(images, labels, batch_size))
            yield images, labels


# %%
with fails_with(TypeError):
    next(shuffled_batches(path, np.arange(1200), 32))

# %% [markdown]
# **Fault 1: uint8 minus float.** (The error is a kind of `TypeError`.) `-=` must put the result into the array of
# bytes, where fractions have no place. `images - mean` would work, and be float64 again. Scaling belongs in the model:
# a layer does it on the device, and batches stay bytes. So we leave the mean out, and go on.
#
# **Predict:** `train_rows` counts from 0 to 1199. We ask for one batch. What does `train_rows` hold afterwards?

# %%
train_rows = np.arange(1200)
source = shuffled_batches(path, train_rows, 32, subtract_mean=False)
images, labels = next(source)
print(train_rows[:6], "...")
print("still 0, 1, 2 ...:", np.array_equal(train_rows, np.arange(1200)))

# %% [markdown]
# **Fault 2: your list is reordered.** `shuffle` works in place, and `part` is a view: sorting it sorts a piece of your
# array as well. Whoever uses the list elsewhere gets another order.
#
# **Fault 3: validation is shuffled too.** You note the true labels in the order of your list, ask the model for
# predictions through the generator, and compare one by one.
#
# **Predict:** The model is perfect: it answers every image rightly. There are 8 classes. What accuracy do you see?

# %%
with h5py.File(path, "r") as file:
    all_labels = file["train_labels"][:].argmax(axis=1)
valid_rows = np.arange(1200, 1400)
truth = all_labels[valid_rows]
source = shuffled_batches(path, valid_rows, 50, subtract_mean=False)
answers = np.concatenate([labels.argmax(axis=1) for images, labels in islice(source, 4)])  # a perfect model's
print(f"accuracy of the perfect model: {np.mean(answers == truth):.0%}")

# %% [markdown]
# About one in 8, which is chance: a prediction is compared with the label of some other image.
#
# **Fault 4, or none: the sort undoes the shuffle inside a batch.** Each batch comes in the order of the file. Does the
# model care? Its loss is the mean over the batch. We train two models with one batch, sorted and mixed.

# %%
mixed = rng.permutation(len(images))
one, two = new_model(keras), new_model(keras)
_ = one.train_on_batch(images, labels), two.train_on_batch(images[mixed], labels[mixed])
pairs = zip(one.get_weights(), two.get_weights(), strict=True)
print("same weights to 6 digits:", all(np.allclose(a, b, atol=1e-6) for a, b in pairs))

# %% [markdown]
# No fault: the order inside a batch does not matter here. But the sort is needed only because of the list index, and
# that is **fault 5**, the trap of lesson 02. We read images and labels of such batches through `RowReader` as well:

# %% tags=["nbval-ignore-output"]
from helpers import RowReader  # rows of one dataset, in any order, without a list index
from helpers.course.meters import benchmark  # runs a function a few times, and keeps the median

source = shuffled_batches(path, train_rows, 32, subtract_mean=False)
readers = [RowReader(path, name) for name in ("train_img", "train_labels")]


def next_by_row():
    rows = rng.permutation(1200)[:32]
    return [reader.read(rows) for reader in readers]


by_list, by_row = benchmark(lambda: next(source), items=32), benchmark(next_by_row, items=32)
figures.show(figures.bars(["list index", "RowReader"], [by_list.per_second, by_row.per_second], "images/s", log=True))

# %%
print("RowReader is at least 3 times faster:", by_row.times_faster_than(by_list) > 3)

# %% [markdown]
# **Fault 6, or none: `flow` shuffles as well.** It mixes the batch once more, inside. Do images and labels stay
# together? We write the class into the pixels, and read it back afterwards.

# %%
classes = rng.integers(8, size=32)
coded = np.broadcast_to(classes[:, None, None, None], (32, 64, 64, 3)).astype(np.uint8)
together, kept = next(augmenter.flow(coded, classes, 32, seed=0))
alone = next(augmenter.flow(coded, None, 32, seed=0))
print("images and labels given:", (together[:, 0, 0, 0] == kept).sum(), "of 32 fit;", together.dtype)
print("images alone given:     ", (alone[:, 0, 0, 0] == classes).sum(), "of 32 fit")

# %% [markdown]
# Given both, `flow` shuffles both: no harm, but a copy in float32, four times the bytes. Given the images alone, it
# separates them from their labels, and nothing complains.
#
# **Fault 7: steps rounded down.** A validation pass of 200 rows in batches of 64 has 4 steps; `200 // 64` are 3. We
# train a model for three epochs with a learning rate of 0, so it cannot change.

# %%
frozen = new_model(keras, learning_rate=0.0)
validation = shuffled_batches(path, valid_rows, 64, subtract_mean=False)
history = frozen.fit(
    batches_for_ever(100),
    steps_per_epoch=1,
    epochs=3,
    validation_data=validation,
    validation_steps=200 // 64,
    shuffle=False,
    verbose=0,
)
print("different validation losses:", len({round(loss, 4) for loss in history.history["val_loss"]}))

# %% [markdown]
# One model, three losses: each validation sees other rows. A callback that keeps the best model keeps the luckiest.
#
# **Fault 8: a queue of 100.** Such answers often set `max_queue_size=100`: up to 100 finished batches wait in memory.
# How much is that?

# %%
batch_mb = 128 * 299 * 299 * 3 * 4 / 1e6
print(
    f"a float32 batch of 128: {batch_mb:.0f} MB; 100 of them: {100 * batch_mb / 1000:.1f} GB, and again for validation"
)
with fails_with(TypeError):
    new_model(keras).fit(batches_for_ever(100), steps_per_epoch=1, max_queue_size=100, verbose=0)

# %% [markdown]
# Today's `fit` refuses the argument: it is now a setting of the dataset (section 8).
#
# **Fault 9: the file is opened and never closed.** While the generator lives, nobody can write to the file. We try
# that with a small file.

# %%
small = toy_food_file("data", classes=2, per_class=10, size=64, seed=0)
source = shuffled_batches(small, np.arange(14), 7, subtract_mean=False)
_ = next(source)
with fails_with(OSError):
    h5py.File(small, "r+")
source.close()
with h5py.File(small, "r+") as file:
    print("after source.close():", file.mode)

# %% [markdown]
# `close` ends the generator, and the file goes with it. With `with h5py.File(...)` inside, as in section 1, that is
# sure to happen. But hardly anybody calls `close` on a generator.

# %% [markdown]
# **Checkpoint 3.** A colleague's generator begins like this. Name three faults.
#
# ```python
# def batches(names, labels):
#     while True:
#         random.shuffle(names)
#         for k in range(len(names) // 32):
#             part = names[32 * k : 32 * (k + 1)]
#             yield np.array([cv2.imread(n) / 255 for n in part])
# ```
#
# <details><summary>Answer</summary>
#
# The labels are not given out, and would no longer fit: `names` is shuffled alone. The caller's list is reordered.
# `/ 255` gives float64. The rest after the last full batch is left out of each pass. Colours are blue first. Any
# three will do.
#
# </details>

# %% [markdown]
# ## 7. One generator, one consumer
#
# If the model waits for batches, two workers should make them at the same time. We try it with threads: one asks for a
# batch, and while that one is being made, we ask for the next. Two flags (`Event`) hold that moment: `inside` says that
# the generator is at work, `may_end` lets it finish.

# %%
import threading  # several lines of work in one process

inside, may_end = threading.Event(), threading.Event()


def slow_batches():
    while True:
        inside.set()
        may_end.wait()  # reading, decoding, augmenting
        yield "a batch"


# %%
source = slow_batches()
worker = threading.Thread(target=next, args=[source])
worker.start()
inside.wait()
with fails_with(ValueError):
    next(source)
may_end.set()
worker.join()

# %% [markdown]
# A generator stands at one place of its function. While one thread makes it run, another cannot. Processes do not help:
# a generator cannot be sent to one, and where each has its own, each gives the same batches.

# %%
import pickle  # how Python sends an object to another process

with fails_with(TypeError):
    pickle.dumps(source)
first, second = batches_for_ever(100), batches_for_ever(100)
print("two generators, the same first batch:", np.array_equal(next(first)[0], next(second)[0]))

# %% [markdown]
# The kit's `fit_generator` does not try, and says so:

# %%
from helpers import fit_generator  # the classic call, on today's Keras

with fails_with(ValueError):
    fit_generator(new_model(keras), batches_for_ever(100), steps_per_epoch=14, workers=2, verbose=0)

# %% [markdown]
# ## 8. Ask by number
#
# A generator knows only "the next one". The cure for nearly all of the above is to ask by number: **batch 17,
# please**. Whoever asks, and in whatever order, batch 17 is the same. Keras calls such an object a `PyDataset`: it
# has a length, and gives batches by index. Keras' own settings, `workers`, `use_multiprocessing` and `max_queue_size`,
# are arguments of its `__init__`: a class that takes `**settings` hands them on by `super().__init__(**settings)`.
#
# > **Then and now.** This is what Keras 2 called `keras.utils.Sequence`. The old name still works, for the same class.


# %%
class Batches(keras.utils.PyDataset):
    def __init__(self, path, split, batch_size, shuffle, seed=0):
        super().__init__()
        self.images = RowReader(path, f"{split}_img")
        self.labels = RowReader(path, f"{split}_labels")
        self.n, self.batch_size = len(self.images), batch_size
        self.shuffle, self.seed, self.epoch = shuffle, seed, 0

    def __len__(self):
        return -(-self.n // self.batch_size)

    def rows(self, index):
        order = np.arange(self.n)
        if self.shuffle:
            order = np.random.default_rng([self.seed, self.epoch]).permutation(self.n)
        return order[index * self.batch_size : (index + 1) * self.batch_size]

    def __getitem__(self, index):
        return self.images.read(self.rows(index)), self.labels.read(self.rows(index))

    def on_epoch_end(self):
        self.epoch += 1


# %% [markdown]
# The length is rounded up, once, here. `fit` calls `on_epoch_end`. The rows are a function of (seed, epoch, index),
# computed anew each time: no list to reorder, no place to remember. Pixels stay uint8. The reader takes rows in any
# order.

# %%
train = Batches(path, "train", 64, shuffle=True)
valid = Batches(path, "valid", 64, shuffle=False)
print(len(train), "batches; batch 17:", train[17][0].shape, train[17][0].dtype, train.rows(17)[:5])
served = np.concatenate([train.rows(index) for index in range(len(train))])
print("every row once:", np.array_equal(np.sort(served), np.arange(1400)))
print("labels fit:", np.array_equal(train[17][1].argmax(axis=1), all_labels[train.rows(17)]))

# %% [markdown]
# **Predict:** Two threads share the work and ask for the batches from the last to the first. Do they get the same
# batches as one thread that counts from 0?

# %%
from concurrent.futures import ThreadPoolExecutor  # a pool of threads

forward = [train[index][0] for index in range(len(train))]
with ThreadPoolExecutor(2) as pool:
    backward = [images for images, labels in pool.map(train.__getitem__, reversed(range(len(train))))]
print("same batches:", all(np.array_equal(a, b) for a, b in zip(forward, reversed(backward), strict=True)))

# %% [markdown]
# The kit's `HDF5Sequence` is the same thing, grown up: it adds augmentation, worker processes, files from other
# programs, and many checks. Same seed, same batches:

# %%
from helpers import HDF5Sequence

grown_up = HDF5Sequence(path, "train", batch_size=64, seed=0)
print("same images as HDF5Sequence:", all(np.array_equal(grown_up[k][0], forward[k]) for k in range(len(train))))

# %% [markdown]
# Lesson 05 builds towards it, after lesson 04 has shown what breaks with worker processes.

# %% [markdown]
# **Checkpoint 4.** Why can two workers share `Batches`, but not a generator?
#
# <details><summary>Answer</summary>
#
# A generator has one state, the place where it stopped; its next batch depends on all calls before. `train[17]` depends
# on seed, epoch and 17 alone. So workers cannot get in each other's way: share out the numbers, and no batch is made
# twice or left out.
#
# </details>

# %% [markdown]
# ## 9. Callbacks
#
# `fit` needs no steps now: the dataset has a length. And `fit` brings what our loop in lesson 02 lacked. Two ready-made
# callbacks are used in nearly every training: `ModelCheckpoint` saves the best model, `EarlyStopping` stops when it
# gets no better. Both need the name of what they watch (`monitor`). Old answers write `val_acc`, and `.hdf5` for the
# file:

# %%
early = keras.callbacks.EarlyStopping(monitor="val_acc")
with fails_with(ValueError):
    fit_generator(new_model(keras), train, epochs=1, validation_data=valid, callbacks=[early], verbose=0)
with fails_with(ValueError):
    keras.callbacks.ModelCheckpoint("best.hdf5")

# %% [markdown]
# Both are errors today. The name is `val_` and the metric as `compile` has it: `val_loss`, `val_accuracy`. A Keras
# model file ends in `.keras`. With the right names (and `shuffle=False`, because the dataset shuffles already):

# %%
best = keras.callbacks.ModelCheckpoint("data/best.keras", monitor="val_loss", save_best_only=True)
stop = keras.callbacks.EarlyStopping(monitor="val_loss", min_delta=0.05, patience=1)
model = new_model(keras)
history = model.fit(train, validation_data=valid, epochs=12, callbacks=[best, stop], shuffle=False, verbose=0)
print("stopped before 12 epochs:", len(history.history["loss"]) < 12)

# %% [markdown]
# `min_delta=0.05` and `patience=1` stop the training after one epoch that gains less than 0.05. That is strict, so that
# you see it stop. The file holds the best epoch:

# %%
again = keras.saving.load_model("data/best.keras")
loss = again.evaluate(valid, return_dict=True, verbose=0)["loss"]
print("the saved model has the lowest validation loss:", np.isclose(loss, min(history.history["val_loss"]), rtol=1e-4))

# %% [markdown]
# **Checkpoint 5.** The model was compiled with `metrics=["accuracy"]`. What does a callback monitor to watch the
# accuracy on the validation data, and what is the ending of the file?
#
# <details><summary>Answer</summary>
#
# `val_accuracy`, and `.keras`.
#
# </details>

# %% [markdown]
# ## 10. fit_generator, then and now
#
# > **Then and now.** In Keras 2, `fit` took arrays and `fit_generator` took generators. In Keras 3 there is `fit` for
# > both, and workers and queue are settings of the dataset. Keras 2 lives on as `tf_keras`, with the original method.

# %%
with fails_with(AttributeError):
    new_model(keras).fit_generator(batches_for_ever(100), steps_per_epoch=14, verbose=0)

# %%
import tf_keras  # Keras 2, still released

classic = new_model(tf_keras)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    history = classic.fit_generator(batches_for_ever(100), steps_per_epoch=14, epochs=3, verbose=0)
print(caught[0].message)
print("loss falls:", history.history["loss"][2] < history.history["loss"][0])

# %% [markdown]
# The original trains, and warns. A `PyDataset` is unknown to it. The kit's `fit_generator` has the arguments of the
# original. It drives today's Keras, and calls the original when the model is one of `tf_keras`. So one dataset feeds
# both.

# %%
for model in (new_model(keras), new_model(tf_keras)):
    history = fit_generator(model, HDF5Sequence(path, "train", 100), epochs=3, validation_data=valid, verbose=0)
    losses = history.history["loss"]
    print(type(model).__module__.split(".")[0], "loss falls:", losses[2] < losses[0], sorted(history.history))

# %% [markdown]
# And the generator that runs dry?

# %%
from helpers.training import GeneratorRanDryError

with fails_with(GeneratorRanDryError):
    fit_generator(new_model(keras), batches_once(100), steps_per_epoch=14, epochs=3, verbose=0)

# %% [markdown]
# An error that says what to do, instead of an epoch with loss 0.0.

# %% [markdown]
# **Checkpoint 6.** What must you pass to `fit_generator` with a plain generator that you may leave out with a
# dataset, and why?
#
# <details><summary>Answer</summary>
#
# `steps_per_epoch` (and `validation_steps` for validation): a generator has no length.
#
# </details>

# %% [markdown]
# ## Key points
#
# - A generator is lazy, must never end, and has one consumer. It needs `steps_per_epoch`, a whole number.
# - The generators of the well-known answers run, or nearly; what is wrong with them is silent: rows, labels, order,
#   memory. Check by reading back.
# - Ask by number: a dataset whose batch is a function of (seed, epoch, index) cures most of it, and workers
#   can share it.

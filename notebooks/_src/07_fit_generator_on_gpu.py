# ---
# jupyter:
#   lesson:
#     keras: true
#     gpu: not needed; the preset "full" needs one
#     files: a toy file of 50 MB, and a folder with the trained model (1 MB), in data/
#     max_minutes: 5
#     max_memory_mb: 1500
# ---

# %% [markdown]
# # 07 · A real run, on a laptop or a GPU
#
# **In this lesson you will build** a complete training run: checked file, model, training, report, and a saved model
# that trains on.
#
# **You can, at the end,**
#
# 1. turn a trial run on a laptop into a full run on a GPU by changing one word;
# 2. check a file and its classes before you pay for hours of training;
# 3. compute how large a batch your card can hold;
# 4. start a training with `fit_generator` that guards itself, and see whether it waits for data;
# 5. judge a model on images it has never seen, and find its worst mistakes in the file;
# 6. save a model, load it, and go on where it stopped.
#
# **You need** lessons 05 and 06: here everything comes together.
#
# <!-- facts -->

# %% tags=["nbval-ignore-output"]
from helpers.course.lesson import open_lesson  # versions and device, quiet logs, one style of pictures

open_lesson(keras=True)

# %% [markdown]
# ## 1. One word chooses the run
#
# A real training takes hours, and many mistakes show only at its end. So try everything out with a small one first:
# **the same notebook**, cell for cell, with drawn plates of food on a laptop (`classroom`), or with the question's
# data and model, Food-101 and InceptionV3, on a GPU (`full`).

# %%
PRESET = "classroom"  # or "full"

# %% [markdown]
# All that differs between the two stands in this one table. No other cell asks which run it is in. (Sections 3 and 8
# explain the model and the precision, section 5 the two phases.)

# %%
TABLE = {
    # name: (classroom, full)
    "toy_food": ({"classes": 8, "per_class": 500, "size": 64, "seed": 0}, None),
    "file": (None, "data/food101_299px.h5"),  # None: the toy food is drawn
    "needs_gpu": (False, True),
    "base": (None, "InceptionV3"),  # or "EfficientNetV2B0", "MobileNetV2"; None: the small network of this course
    "weights": (None, "imagenet"),  # downloaded once; or the path of a weights file
    "precision": ("float32", "mixed_float16"),
    "augment": ("workers", "workers"),  # or "device"
    "batch_size": (32, 64),
    "epochs": ((7, 2), (5, 15)),  # of the first phase and of the second
    "learning_rates": ((4e-3, 4e-4), (1e-3, 1e-4)),
    "top": (3, 5),  # how many answers a model may give
    "workers": (2, 4),
}
SETTINGS = {
    "classroom": {name: pair[0] for name, pair in TABLE.items()},
    "full": {name: pair[1] for name, pair in TABLE.items()},
}

# %% [markdown]
# The toy file is drawn if it is missing, as in lesson 00, here with 500 plates a dish instead of 250. `pathlib` makes
# a name a path.

# %%
from pathlib import Path

from data_scripts.make_toy_food import toy_food_file  # draws the toy data

settings = SETTINGS[PRESET]
toy_food, batch_size, seed = settings["toy_food"], settings["batch_size"], 0
path = toy_food_file("data", **toy_food) if toy_food else Path(settings["file"])

# %% [markdown]
# A run that cannot work should say so now, in one sentence, and not in an hour. Keras computes with a **backend**,
# TensorFlow or JAX, on a **device**, a GPU or the CPU; the line under the first cell names both. A GPU needs libraries
# of its backend, which `install_line` knows.

# %%
from helpers.device import install_line  # what to type, so that the backend can use a GPU


def what_is_missing(settings, path, gpus):
    if settings["needs_gpu"] and not gpus:
        line = install_line()
        return (
            f'This preset needs a GPU, and Keras sees none. Install its libraries: {line}. Or set PRESET = "classroom".'
        )
    if not path.exists():
        return f'{path} does not exist. Build it (section 8), or set PRESET = "classroom".'
    return None


# %% [markdown]
# **Predict:** The full run without a GPU, then with a GPU but without the file. What do the two lines say?

# %%
print(what_is_missing(SETTINGS["full"], Path("data/nowhere.h5"), gpus=[]))
print(what_is_missing(SETTINGS["full"], Path("data/nowhere.h5"), gpus=["gpu:0"]))

# %% [markdown]
# And now for the preset that was chosen. If anything is missing, the notebook stops at this cell. It also asks how much
# memory the device has free, before anything uses it.

# %%
import keras

from helpers.device import free_device_bytes, gpu_devices  # of the GPU, or of this machine; which GPUs Keras sees

gpus = gpu_devices()
if problem := what_is_missing(settings, path, gpus):
    raise RuntimeError(problem)
free_bytes = free_device_bytes()
print("ready:", PRESET)

# %% [markdown]
# **Checkpoint 1.** Set `PRESET = "full"` and run the notebook from the top. What happens on your computer? (Then set it
# back.)
#
# <details><summary>Answer</summary>
#
# Without a GPU or without the file, the cell above raises a `RuntimeError` whose last line is the sentence that says
# what to do. Nothing was downloaded, and no minute was lost.
#
# </details>

# %% [markdown]
# ## 2. Look at the file before you pay for hours
#
# `inspect_file` (lesson 01) reads the labels and a sample of the images, and lists what would spoil a training.

# %%
from helpers import inspect_file

report = inspect_file(path)
print(report.verdict)
print("faults:", len(report.faults), "warnings:", len(report.warnings))

# %% [markdown]
# Then the three readers. The images for training are changed a little by `Augment` each time they are read, in worker
# processes (lesson 06). Validation and test images are never changed.

# %%
from helpers import Augment, HDF5Sequence

augment = Augment(
    rotation=15,
    width_shift=0.05,
    height_shift=0.05,
    zoom=(0.85, 1.1),
    horizontal_flip=True,
    brightness=(0.85, 1.15),
)
workers = {"workers": settings["workers"], "use_multiprocessing": True}
in_workers = augment if settings["augment"] == "workers" else None  # section 3 has the other choice
train = HDF5Sequence(path, "train", batch_size, seed=seed, augment=in_workers, **workers)
valid = HDF5Sequence(path, "valid", batch_size)
test = HDF5Sequence(path, "test", batch_size)
for sequence in (train, valid, test):
    print(sequence)

# %% [markdown]
# How many images does each class have? `class_numbers` holds the class of every row.

# %%
import numpy as np  # arrays

from helpers.course.figures import class_counts, show  # a chart of counts; displays it with an alt text

counts = {
    name: np.bincount(sequence.class_numbers, minlength=train.num_classes)
    for name, sequence in {"train": train, "valid": valid, "test": test}.items()
}
show(class_counts(counts, [name.replace("_", " ") for name in train.class_names]))

# %% [markdown]
# All alike. Your own data will not be. Let us make an uneven set out of this one: all rows of all classes, but only 20
# of class 4. A model that never says "class 4" would be right nearly always. **Class weights** correct that: an error
# on a rare class counts more.

# %%
from helpers.training import balanced_class_weight  # rows / (classes * rows of the class)

rare = np.flatnonzero(train.class_numbers == 4)
few = np.setdiff1d(np.arange(train.n), rare[20:])
uneven = HDF5Sequence(path, "train", rows=few)
weights = balanced_class_weight(uneven)
print(f"rare class: {weights[4]:.1f}, another class: {weights[0]:.2f}")
print("even file: ", set(balanced_class_weight(train).values()))

# %% [markdown]
# The rare class has 20 rows, the others 350: one of its images counts 17.5 times as much as another one. For the even
# file every weight is 1.0, so that it does no harm to pass them always.

# %% [markdown]
# **Checkpoint 2.** A file has two classes: 900 healthy leaves, 100 sick ones. What are the balanced weights? What
# accuracy has a model that always says "healthy"?
#
# <details><summary>Answer</summary>
#
# 1000 / (2 x 900) = 0.56 and 1000 / (2 x 100) = 5. The lazy model has 90 % accuracy: in uneven data, accuracy alone
# says little.
#
# </details>

# %% [markdown]
# ## 3. The model, and what fits on the card
#
# Batches arrive as bytes. Scaling them is the first layer of the model, so it runs on the device, and whoever loads
# the model cannot forget it. `normalization` takes the mean of each colour from the file, and computes
# (byte - mean) / 127.5 (lesson 06). The *device* is the GPU, or the CPU where there is none.

# %%
from helpers.models import normalization, small_cnn, transfer_or_scratch

images, labels = train[0]
scaled = np.asarray(normalization(path)(images))
print("from the worker:", images.dtype, f"{images.nbytes / 1e6:.1f} MB")
print("on the device:  ", scaled.dtype, f"{scaled.nbytes / 1e6:.1f} MB")
print("between -2 and 2:", np.abs(scaled).max() < 2)

# %% [markdown]
# **Augmentation** can be layers of the model, too: they come before the scaling, and rest when the model is not
# trained. Then workers only read. Which is better is a question of who has time to spare (lesson 06, section 9). Let us
# measure both with this batch: what a training step takes longer for such layers, and what one worker takes.

# %% tags=["nbval-ignore-output"]
from helpers.course.figures import bars
from helpers.course.meters import benchmark  # median seconds of a function

layers = keras.layers
on_device = keras.Sequential([
    layers.RandomFlip("horizontal"),
    layers.RandomRotation(15 / 360, seed=seed),
    layers.RandomTranslation(0.05, 0.05, seed=seed),
    layers.RandomZoom((-0.15, 0.1), seed=seed),
])


def step_seconds(augmentation):
    probe = small_cnn(train.image_shape, train.num_classes, width=2, augmentation=augmentation)
    probe.compile("sgd", "categorical_crossentropy")
    return min(benchmark(lambda: probe.train_on_batch(images, labels), repeat=9, warmup=2).runs)


device_s = max(step_seconds(on_device) - step_seconds(None), 1e-6)  # 0 is too short for this clock
chance = np.random.default_rng(seed)
worker_s = min(benchmark(lambda: [augment(image, chance) for image in images], repeat=9).runs)
speeds = [len(images) / device_s, len(images) / worker_s]
show(bars(["layers on this device", "Augment in one worker"], speeds, "images/s", log=True))

# %%
print("on a CPU the layers take longer:", bool(gpus) or device_s > worker_s)

# %% [markdown]
# On a CPU the layers also take the cores that the model needs: leave augmentation to the workers. On a GPU that waits
# for its workers, `"augment": "device"` in the table is worth a try. The stall meter of section 5 will decide.

# %% [markdown]
# `small_cnn` starts from nothing. The other models take a network that has learned from a million photographs, and put
# a new last layer on top of it. At first only this layer is trained; the base, as the old network is called, is
# **frozen**. Where its weights cannot be downloaded, `transfer_or_scratch` says so in a line, and starts from nothing.
# `precision` ends with its block: what is built later computes as before.

# %%
from helpers.device import precision  # section 8

keras.utils.set_random_seed(seed)
shape, classes = train.image_shape, train.num_classes
options = {"augmentation": on_device if settings["augment"] == "device" else None, "seed": seed}
with precision(settings["precision"]):
    if settings["base"] is None:
        model = small_cnn(shape, classes, normalization=normalization(path), **options)
    else:
        model = transfer_or_scratch(shape, classes, settings["base"], weights=settings["weights"], **options)
print(model.name, f"with {model.count_params():,} weights")

# %% [markdown]
# How large may a batch be? A GPU has memory of its own. To train, it holds there the weights, their **gradient** (one
# number a weight, which says how the loss changes with it), and two numbers a weight for the optimizer Adam: four
# times the weights. And for every image of the batch it keeps what each layer put out: the gradient is computed from
# the last layer back to the first, and needs these outputs. Count this for the question's network:

# %%
from helpers.models import transfer_model  # transfer_or_scratch without the second choice

inception = transfer_model((299, 299, 3), 101, weights=None)


def layers_of(model):
    for layer in model.layers:
        if hasattr(layer, "layers"):  # a model inside the model
            yield from layers_of(layer)
        else:
            yield layer


def output_mb(model):
    numbers = sum(np.prod(layer.output.shape[1:]) for layer in layers_of(model))  # for one image
    return 4 * numbers / 1e6  # float32


weights_mb = 4 * 4 * inception.count_params() / 1e6
print(f"weights, gradient, Adam: {weights_mb:.0f} MB")
print(f"outputs of all layers: {output_mb(inception):.0f} MB an image")

# %% [markdown]
# **Predict:** The graphics card of the question (lesson 00) has 2 GB, of which 1.5 GB are free. Of the batches of 8,
# 32 and 706 images (the loop of lesson 02 used 706), which can it hold?

# %%
for images_a_batch in (8, 32, 706):
    needed = weights_mb + images_a_batch * output_mb(inception)
    print(f"{images_a_batch:>3} images: {needed:>7,.0f} MB, fits: {needed <= 1500}")

# %% [markdown]
# Eight. The sum is an estimate: a library need not keep every output, and wants working memory of its own. A frozen
# base is far cheaper: no gradient is computed in it, and its outputs can be dropped at once. So the order of things on
# a small card is: train the last layer with large batches, then the whole network with small ones (**fine-tuning**,
# section 5).
#
# And if it was too much after all? The error comes at the first step, and says which tensor (which array on the device)
# had no room. Here is one on purpose, of 40 million GB:

# %% tags=["nbval-ignore-output"]
from helpers.course.lesson import fails_with  # prints the error that the lines under it are meant to raise

with fails_with(Exception):
    keras.ops.ones((100_000_000, 100_000_000))

# %% [markdown]
# Such an error names `RESOURCE_EXHAUSTED` or `ResourceExhaustedError`. The cure: restart the kernel, for the backend
# keeps what it has taken; halve `batch_size`, and the learning rate with it; run again. All other cells stay as they
# are.
#
# `fitting_batch_size` counts as we did, for any model, and gives the largest power of two. Two other networks have far
# fewer weights.
#
# **Predict:** InceptionV3 has 22 million weights, MobileNetV2 a tenth of that. How many more images does a batch of
# MobileNetV2 have?

# %%
from helpers.device import fitting_batch_size

networks = {"InceptionV3": inception}
for base in ("EfficientNetV2B0", "MobileNetV2"):
    networks[base] = transfer_model((299, 299, 3), 101, base, weights=None)
for base, network in networks.items():
    small, large = (fitting_batch_size(network, free) for free in (1.5e9, 80e9))  # the question's card, a large one
    print(f"{base:<16} {network.count_params() / 1e6:>4.1f} million weights; batch of {small} or {large}")
print("the batch of this run fits:", batch_size <= fitting_batch_size(model, free_bytes))

# %% [markdown]
# None, and on the large card even fewer: what counts is what the layers put out, and the small networks put out as
# much.

# %% [markdown]
# **Checkpoint 3.** Half precision (section 8) halves what the layers put out, and leaves the weights as they are. How
# many images does the 1.5 GB card hold then?
#
# <details><summary>Answer</summary>
#
# 132 / 2 = 66 MB an image, and (1500 - 352) / 66 = 17.4. Try 16.
#
# </details>

# %% [markdown]
# ## 4. What watches the training
#
# Nobody sits beside a training for hours. **Callbacks** do; Keras calls them after each batch and each epoch (lesson
# 03). `val_` means: measured on the validation images.
#
# | callback | watches | does |
# | --- | --- | --- |
# | `ModelCheckpoint` | `val_accuracy` | saves the model whenever it is the best so far |
# | `EarlyStopping` | `val_accuracy` | stops after 6 epochs without a new best, goes back to the best |
# | `ReduceLROnPlateau` | `val_loss` | takes smaller steps when 2 epochs brought nothing |
# | `CSVLogger` | everything | writes a line an epoch into a file |
# | `TensorBoard` | everything | the same for the program `tensorboard`, which draws curves while the training runs |
# | `StallMeter` (this course) | the clock | measures how long each step waited for its batch |

# %%
from keras.callbacks import CSVLogger, EarlyStopping, ModelCheckpoint, ReduceLROnPlateau, TensorBoard

from helpers.course.meters import StallMeter

folder = Path("data") / f"run_07_{PRESET}"
folder.mkdir(exist_ok=True)
(folder / "log.csv").unlink(missing_ok=True)  # of a run before
meter = StallMeter(keep=True)  # over both phases
callbacks = [
    ModelCheckpoint(folder / "best.keras", monitor="val_accuracy", save_best_only=True),
    EarlyStopping(monitor="val_accuracy", patience=6, restore_best_weights=True),
    ReduceLROnPlateau(monitor="val_loss", factor=0.3, patience=2),
    CSVLogger(folder / "log.csv", append=True),  # the second phase writes on
    TensorBoard(folder / "tensorboard", write_graph=False),
    meter,
]

# %% [markdown]
# To look on, type `tensorboard --logdir data/run_07_classroom/tensorboard` in a second terminal, in this folder. It
# prints an address for your browser.

# %% [markdown]
# A guard that watches the wrong thing is worse than none. Old code says `val_acc` where Keras now says
# `val_accuracy`, and class weights that went through a JSON file have keys of text. The second mistake Keras does not
# even notice: it trains without weights. `fit_generator` checks both before the first batch.

# %%
from helpers import fit_generator

model.compile("adam", "categorical_crossentropy", metrics=["accuracy"])
old_name = EarlyStopping(monitor="val_acc")
with fails_with(ValueError):
    fit_generator(model, train, validation_data=valid, callbacks=[old_name], verbose=0)
with fails_with(TypeError):
    fit_generator(model, train, class_weight={"0": 9.0, "1": 1.0}, verbose=0)

# %% [markdown]
# ## 5. Train
#
# > **Then and now.** Keras 2 had `model.fit_generator(generator, steps_per_epoch=..., workers=..., ...)`, and
# > `evaluate_generator` and `predict_generator` beside it. In Keras 3 all three are gone: `fit`, `evaluate` and
# > `predict` take a generator themselves. The function `fit_generator` of this course takes the classic arguments,
# > and runs its own workers, which `fit` alone does less well (lesson 05).
#
# A run has two **phases**. In the first one only the new last layer of a frozen base is trained: it starts from random
# numbers, and its first large errors would spoil the base. In the second, *fine-tuning*, all learns, with steps a tenth
# as large. (In the classroom nothing is frozen: there the steps just get smaller.) A phase is a `compile` and a
# `fit_generator`, which goes on at the epoch where the one before ended.
#
# **Predict:** With 8 dishes, guessing is right once in 8. Which accuracy do you expect in the first epoch, and in the
# last one?

# %% tags=["nbval-ignore-output"]
history = {}  # of both phases: name -> a value an epoch


def train_phase(number):
    adam = keras.optimizers.Adam(settings["learning_rates"][number])
    top = keras.metrics.TopKCategoricalAccuracy(settings["top"], name="top")  # section 6
    model.compile(adam, "categorical_crossentropy", metrics=["accuracy", top])
    done = len(history.get("loss", []))
    part = fit_generator(
        model,
        train,
        initial_epoch=done,
        epochs=done + settings["epochs"][number],
        validation_data=valid,
        class_weight=balanced_class_weight(train),
        callbacks=callbacks,
        verbose=2,  # one line an epoch
    )
    for name, values in part.history.items():
        history.setdefault(name, []).extend(values)


train_phase(0)

# %% [markdown]
# Now the second phase. `unfreeze` lets the base learn, but for its **batch normalization**, layers that keep means of
# what they see: those of a million photographs are better than those of a few batches. It counts from the next
# `compile` on. The run ends with the weights of its best epoch, whichever phase that was in.

# %% tags=["nbval-ignore-output"]
from helpers.models import unfreeze

unfreeze(model)
train_phase(1)
best = keras.models.load_model(folder / "best.keras", compile=False)
model.set_weights(best.get_weights())

# %% [markdown]
# `loss` and `accuracy` are means over the epoch, on changed images, while the model was still learning. `val_loss` and
# `val_accuracy` are measured after the epoch, on unchanged images that it never trains on.

# %% tags=["nbval-ignore-output"]
from helpers.course.figures import curves  # training curves, validation dashed

show(curves(history))

# %%
best_accuracy = max(history["val_accuracy"])
print("best validation accuracy above 0.85:", best_accuracy > 0.85)

# %% [markdown]
# How to read the curves:
#
# - The dashed line jumps while the model learns in large steps, and calms down when the learning rate falls (the
#   picture of it), and again in the second phase.
# - Both accuracies rise: what the model learns also holds for images it has not trained on. If training rose alone, the
#   model would be learning its images by heart. Then more augmentation helps, or more images.
#
# Did the device wait for data? The meter has the seconds of every step, and how many of them were waiting. Beside it
# we put a **feed** (all that brings batches to the model) that is too slow on purpose: no workers, and an
# augmentation that dawdles 20 ms an image. Six steps of a tiny model are enough.

# %%
import time  # to be slow


def dawdle(image, _rng):
    time.sleep(0.02)
    return image


slow = HDF5Sequence(path, "train", batch_size, seed=seed, augment=dawdle, workers=0)
slow_meter, tiny = StallMeter(), small_cnn(slow.image_shape, slow.num_classes, width=4)
tiny.compile("adam", "categorical_crossentropy")
_ = fit_generator(tiny, slow, steps_per_epoch=6, callbacks=[slow_meter], verbose=0)

# %% [markdown]
# The first step also compiles the model and starts the workers, so it does not count. The slow feed may seem to start
# well: Keras asks for a batch ahead, and the second one was made during the long first step.

# %% tags=["nbval-ignore-output"]
from helpers.course.figures import stall_shares  # the share of each step that waited, over the whole run

show(stall_shares({"this training": meter.timed, "the slow feed": slow_meter.timed}))

# %%
print("the slow feed: more than half of the time is waiting:", slow_meter.share > 0.5)
print("this training: less than 5 % of the time is waiting: ", meter.share < 0.05)

# %% [markdown]
# Blue is work, orange is waiting. On a laptop the model is the slow part: the workers make the next batches while it
# computes. On a GPU the work shrinks, but a batch takes as long to make as before, and the rest of that time turns
# orange: a feed that was good enough here may be too slow there. Look at this picture first, before you buy a faster
# card. The cures, in this order: more `workers`, a file with whole-image chunks (lesson 01), lighter augmentation
# (lesson 06), or augmentation on the device (section 3).

# %% [markdown]
# **Checkpoint 4.** A step on a GPU takes 50 ms, of which 30 are waiting, although the workers never rest. How much
# faster does training get with a GPU of twice the speed? And with twice the workers, if a batch then comes in half
# the time?
#
# <details><summary>Answer</summary>
#
# Twice the GPU: 20 ms of work become 10, and the batch still arrives only every 50 ms: not faster at all. Twice the
# workers: a batch every 25 ms, more than the 20 ms of work, so training is twice as fast.
#
# </details>

# %% [markdown]
# ## 6. Judge
#
# Validation images have helped to choose the epoch and the learning rate. The **test** images have helped to choose
# nothing, and they are used here for the first time.

# %%
loss, accuracy, top = model.evaluate(test, verbose=0)
print("test accuracy above 0.8:", accuracy > 0.8)
print(f"among the best {settings['top']} answers above 0.9:", top > 0.9)
print("the same numbers again, to the bit:", model.evaluate(test, verbose=0) == [loss, accuracy, top])

# %% [markdown]
# With 101 classes, some of them hard to tell apart even for people, one answer is a strict judge: one also asks whether
# the true class is among the best **five** (`TopKCategoricalAccuracy`). With our 8 dishes we take three.

# %% [markdown]
# One number hides which dishes go wrong. For that we need the answer to every image. `test` is not shuffled, so that
# prediction number i belongs to row i of the file, and to `class_numbers[i]`.

# %%
probabilities = model.predict(test, verbose=0)  # (rows, classes)
truth, predicted = test.class_numbers, probabilities.argmax(axis=1)
print(probabilities.shape)
print("same accuracy as before:", abs(np.mean(predicted == truth) - accuracy) < 1e-3)

# %% [markdown]
# **Predict:** The same model and the same images, but read in shuffled order. Which share of the answers agrees with
# `class_numbers` now?

# %%
shuffled = HDF5Sequence(path, "test", batch_size, shuffle="full")
mixed_up = model.predict(shuffled, verbose=0).argmax(axis=1)
print("below 0.3:", np.mean(mixed_up == truth) < 0.3)

# %% [markdown]
# About one in eight, as few as by guessing. The model is as good as before: the answers just belong to other rows.
# When a report shows the accuracy of guessing after a training that went well, look for this mistake first.
#
# Now the **confusion matrix**: true dish down, answer across.

# %% tags=["nbval-ignore-output"]
from helpers.course.figures import confusion_matrix  # counts of true against predicted classes

matrix = np.zeros((test.num_classes, test.num_classes), int)
np.add.at(matrix, (truth, predicted), 1)  # adds 1 at each pair
names = [name.replace("_", " ") for name in test.class_names]
show(confusion_matrix(matrix, names))

# %% [markdown]
# Three numbers for each class. **Recall**: of the true pizzas, how many were found? A row of the matrix. **Precision**:
# of the answers "pizza", how many were right? A column. **F1** is high only where both are. The same from the helper,
# for your own projects: `judge` asks the model, refuses a shuffled sequence, and has the report, the lowest F1 first:

# %% tags=["nbval-ignore-output"]
from helpers.judging import judge

recall = matrix.diagonal() / matrix.sum(axis=1)
precision_of = matrix.diagonal() / np.maximum(matrix.sum(axis=0), 1)
verdict = judge(model, test)
print(verdict.report(8))

# %%
print("every test image is in the matrix once:", matrix.sum() == test.n)
print("classes worse than guessing:", int(np.sum(recall < 1 / test.num_classes)))
print("judge counts the same:", np.array_equal(verdict.matrix, matrix), np.array_equal(verdict.recall, recall))

# %% [markdown]
# Last, look at the mistakes themselves, those first where the model was most sure. Their row numbers lead straight back
# into the file.

# %% tags=["nbval-ignore-output"]
from helpers import RowReader
from helpers.course.figures import image_grid  # pictures side by side

wrong = np.flatnonzero(predicted != truth)
rows = wrong[np.argsort(-probabilities[wrong, predicted[wrong]])][:8]
with RowReader(path, "test_img") as reader:
    pictures = reader.read(rows)
titles = [f"row {row}: {names[truth[row]]}, called {names[predicted[row]]}" for row in rows]
show(image_grid(pictures, titles, columns=4))

# %% [markdown]
# Would you have known better? In real data, look for **wrong labels** here: the authors of Food-101 say that they did
# not clean its training images (75,750 in their own split).

# %%
print("right and wrong together:", np.sum(predicted == truth) + len(wrong))

# %% [markdown]
# **Checkpoint 5.** A class has recall 0.95 and precision 0.40. What does the model do?
#
# <details><summary>Answer</summary>
#
# It says this class far too often: it finds nearly all of its images, and most of its answers are wrong. Look down its
# column of the matrix for those it swallows.
#
# </details>

# %% [markdown]
# ## 7. Save, load, go on
#
# `best.keras` is the model of the best epoch: layers, weights, the means for scaling, the state of the optimizer.
# Loading needs Keras alone, neither the data file nor this course's code.

# %%
with precision(settings["precision"]):  # half precision (section 8) is lost without it
    loaded = keras.models.load_model(folder / "best.keras")
again = loaded.predict(test, verbose=0)
print("takes", loaded.input.dtype, "images of", loaded.input_shape[1:])
print("same answers as before:", np.allclose(again, probabilities, atol=1e-3))

# %% [markdown]
# Suppose that a training was stopped, by you or by a power cut, and should go on. What is needed? The model: loaded.
# The number of epochs that are done: one line each in the log, which the `csv` module reads.

# %%
import csv

with (folder / "log.csv").open() as file:
    done = len(list(csv.DictReader(file)))
print("epochs in the log are those of the training:", done == len(history["loss"]))

# %% [markdown]
# And the *data*: a new program starts with a new sequence. Its `position` is (epoch, batch), the next batch to be
# trained on: (0, 0). Sequences count epochs from 0, so the next epoch is number `done` (Keras counts from 1 when it
# prints). Would it be the same as if nothing had happened?
#
# **Predict:** The old sequence served that training; the new one was just made. Do they agree on the first batch of
# epoch `done`, pixel by pixel?

# %%
fresh = HDF5Sequence(path, "train", batch_size, seed=seed, augment=in_workers, **workers)
old_images, _ = train.batch(done, 0)
new_images, _ = fresh.batch(done, 0)
print("positions:", fresh.position, train.position == (done, 0))
print("same batch:", np.array_equal(old_images, new_images))

# %% [markdown]
# The old sequence stands at `(done, 0)`, the new one at the beginning, and yet the batch is the same. Same rows, same
# order, same augmentation: they depend on seed, epoch and row alone (lesson 05). Of the data, nothing has to be
# saved. `initial_epoch` tells `fit_generator` where to go on.
#
# One thing to know: the best epoch need not be the last one, and a power cut does not wait for the end of an epoch. For
# that there is one more callback, `BackupAndResume` of `helpers.training`. It saves the model, the optimizer, all that
# draws random numbers and the place in the data, every so many steps. Start the killed program again, and it goes on at
# the next batch. Let us pull the plug on a tiny model, in its second epoch of 8 steps:

# %%
from helpers.training import BackupAndResume


class PullThePlug(keras.callbacks.Callback):
    def on_train_batch_end(self, step, **_):
        if step == 4 and self.model.optimizer.iterations > 8:  # the fifth step of the second epoch
            raise RuntimeError("no power")


def train_with_a_backup(*more):
    data = HDF5Sequence(path, "train", batch_size, seed=seed, augment=in_workers)
    small = small_cnn(shape, classes, width=2, seed=seed)
    small.compile("adam", "categorical_crossentropy")
    backup = [BackupAndResume(folder / "backup", save_freq=4), *more]
    fit_generator(small, data, steps_per_epoch=8, epochs=3, callbacks=backup, verbose=0)
    return small.get_weights()


undisturbed = train_with_a_backup()
with fails_with(RuntimeError):
    train_with_a_backup(PullThePlug())
resumed = train_with_a_backup()  # a new model, a new sequence, the old backup
print("as if nothing had happened:", all(map(np.array_equal, resumed, undisturbed)))

# %% [markdown]
# The fifth step was lost: the last save was after the fourth. So it was trained again, and in the end the same numbers
# came out, to the last bit. (On a GPU, sums are added in varying order, and last digits differ.)
#
# The loaded model brings its compile along: loss, metrics, learning rate, and the state of Adam.

# %% tags=["nbval-ignore-output"]
more = fit_generator(
    loaded,
    fresh,
    initial_epoch=done,
    epochs=done + 1,  # the number of the last epoch, not how many more
    validation_data=valid,
    callbacks=[CSVLogger(folder / "one_more.csv")],  # a log of its own: other callbacks, other columns
    verbose=2,
)

# %%
print("epochs trained now:", len(more.epoch))
print("the sequence stands at the next one:", fresh.position == (done + 1, 0))
print("accuracy still above 0.8:", more.history["val_accuracy"][0] > 0.8)

# %% [markdown]
# **Checkpoint 6.** After 9 epochs you call `fit_generator(loaded, fresh, initial_epoch=9, epochs=5)`. What happens?
# Decide, then run it:

# %%
with fails_with(ValueError):
    fit_generator(loaded, fresh, initial_epoch=9, epochs=5, verbose=0)

# %% [markdown]
# ## 8. The full run
#
# On a machine with an NVIDIA GPU, Linux (or WSL2) and the folder `food-101` as it is downloaded:
#
# 1. Give the backend its GPU libraries, in the course's folder and environment: `pip install -e ".[gpu-tf]"` for
#    TensorFlow, or `pip install -e ".[gpu-jax]"` for JAX, which also needs the environment variable
#    `KERAS_BACKEND=jax`. The first cell names backend and GPU.
# 2. Build the file, once, in the terminal, in the folder `notebooks`:
#    `python -m data_scripts.build_hdf5 PATH/food-101 --out data/food101_299px.h5 --size 299`.
# 3. Set `PRESET = "full"`, and run all cells.
#
# What changes, beside the table of section 1?
#
# **The feed must be faster.** A device that trains N images a second wants N images a second. This is arithmetic, not a
# measurement:

# %% tags=["constant-time"]
for images_a_second in (50, 500, 2000):
    megabytes = images_a_second * 299 * 299 * 3 / 1e6
    print(f"{images_a_second:>4} images of 299 x 299: {megabytes:>4.0f} MB a second")

# %% [markdown]
# Then it matters that the workers read whole rows, that a batch stays in bytes until it is on the device, and that
# workers are processes of their own. They see no GPU, and take none of its memory.
#
# **Half precision.** With the policy `mixed_float16` the layers compute in numbers of two bytes, and the weights stay
# in four. That halves the memory of what layers put out, and many GPUs compute faster so. The last layer is an
# exception: small probabilities would be lost, so the course's models keep it in `float32`. Small gradients would be
# lost, too: Keras multiplies the loss by a large number, and divides the gradients by it, in models that were built
# **and loaded** under this policy. That is why section 7 loads under `precision`.

# %%
layer = keras.layers.Dense(8, dtype="mixed_float16")
layer.build((None, 4))
print("mixed_float16 computes in", layer.compute_dtype, "and keeps weights in", layer.kernel.dtype)
print("this run:", model.layers[1].dtype_policy.name, "| last layer:", model.layers[-1].compute_dtype)

# %% [markdown]
# **The batch.** The sum of section 3 decides. While the base is frozen, batches of 64 are cheap; the second phase needs
# 352 + 64 x 66 MB, about 4.6 GB. If the card runs out of memory, halve `batch_size` (section 3).

# %% [markdown]
# ## Key points
#
# - Try everything out small: one table of settings, the same cells, one word to change.
# - Choose on validation images, judge on test images, in file order; then look at the worst mistakes.
# - Model, log and seed are all that a run needs to go on: batches depend on seed, epoch and row alone.

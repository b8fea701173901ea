# ---
# jupyter:
#   lesson:
#     keras: true
#     gpu: not needed
#     files: none
#     max_minutes: 1
#     max_memory_mb: 900
# ---

# %% [markdown]
# # Exercises 07 · A real run
#
# **In these exercises you will** find what a change of preset does not reach, look at a file before you pay, compute a
# batch, say which side is too slow, judge a model, and write a run that goes on after a power cut.
#
# **You need** [lesson 07](../07_fit_generator_on_gpu.ipynb).
#
# <!-- how -->
#
# <!-- facts -->

# %% tags=["nbval-ignore-output"]
from helpers.course.checks import check  # looks at an answer, and gives a hint
from helpers.course.lesson import open_lesson  # versions and device, quiet logs, one style of pictures

open_lesson(keras=True)

# %% [markdown]
# ## 07.1 · What one word does not reach
#
# *Warm-up, 2 points.* A notebook has a table of settings, each with a value for the trial run and one for the full
# run. One word, `PRESET`, chooses between them. The trial run works, with the toy file: 8 classes, 800 validation rows.
# The full run has Food-101: 101 classes, 20,200 validation rows. These lines, not all of them well written, stand in
# the notebook:
#
# ```python
# a   path = Path(settings["file"])
# b   train = HDF5Sequence(path, "train", 32, seed=0)
# c   valid = HDF5Sequence(path, "valid", settings["batch_size"])
# d   model = small_cnn(train.image_shape, 8)
# e   weights = balanced_class_weight(train)
# f   adam = keras.optimizers.Adam(settings["learning_rate"])
# g   validation_steps = 800 // settings["batch_size"]
# h   names = [name.replace("_", " ") for name in valid.class_names]
# i   matrix = np.zeros((8, 8), int)  # the confusion matrix, after the training
# j   folder = Path("data") / f"run_{PRESET}"
# ```
#
# Line g is like one in a published answer, which says `2424 // batchSize`.
#
# **Task.** `PRESET` is set to `"full"`, and nothing else is changed. Which lines fail then, or still use a value of
# the trial run? `answer` is the list of their letters, such as `["a", "j"]`.
#
# **Look again at** [lesson 07, section 1](../07_fit_generator_on_gpu.ipynb#1.-One-word-chooses-the-run).

# %%
### BEGIN SOLUTION
# Each has a number that was typed by hand. b keeps the batch of the trial, d ends in 8 outputs for 101 classes,
# g looks at 768 of 20,200 rows without an error, and i fails when the hours of training are over.
answer = ["b", "d", "g", "i"]
### END SOLUTION

# %%
check("07.1", answer).points

# %% [markdown]
# ## 07.2 · Is this file worth an hour?
#
# *4 points.* A file of images can be wrong in ways that no training reports. It trains for hours, and learns nothing.
# Look for five of these problems first. Each has a word:
#
# | word | what is wrong |
# | --- | --- |
# | `"incomplete"` | the writer was stopped: the file's attribute `complete` is False |
# | `"lengths-differ"` | a split has more images than labels, or fewer |
# | `"labels"` | a split has a row of labels that is not a single 1 among zeros |
# | `"class-sorted"` | in a split the classes stand one after the other, in whatever order |
# | `"missing-class"` | a class has no row in `train` |
#
# The files have the names of the question: `train_img`, `train_labels`, and the same for `valid` and `test`. Their
# labels are one-hot, of any type of number. A sound file:

# %%
from data_scripts.make_toy_food import toy_food_file  # drawn plates of food
from helpers import inspect_file  # reads labels and a sample of images

path = toy_food_file("../data", classes=2, per_class=10, size=64, seed=0)
report = inspect_file(path)
print("ok:", report.ok, "| faults:", report.faults, "| warnings:", report.warnings)
print("images of each class in train:", report.splits["train"].counts)

# %% [markdown]
# **Task.** Write a function `answer(path)` that gives a list of the words that are true of the file, in any order; for
# a sound file an empty one. Build it on `inspect_file` or on h5py alone. The inspector's findings, in `report.faults`
# and `report.warnings`, have a `code`: `"incomplete"`, `"lengths-differ"` and `"class-sorted"` are such codes, and
# labels that are not a single 1 among zeros have `"onehot-sum"` or `"soft-labels"`. A missing class has none: count.
#
# **Look again at** lesson 07,
# [section 2](../07_fit_generator_on_gpu.ipynb#2.-Look-at-the-file-before-you-pay-for-hours), and at
# [lesson 04, section 19](../04_when_workers_break.ipynb#19.-A-file-that-only-looks-finished).


# %%
### BEGIN SOLUTION
def answer(path):
    report = inspect_file(path)
    # Sorted rows are a warning, not a fault: they can be trained on, if they are shuffled.
    codes = {finding.code for finding in [*report.faults, *report.warnings]}
    words = codes & {"incomplete", "lengths-differ", "class-sorted"}
    if codes & {"onehot-sum", "soft-labels"}:
        words.add("labels")
    if 0 in report.splits["train"].counts:  # no finding says this: whoever leaves out a class may mean it
        words.add("missing-class")
    return sorted(words)


### END SOLUTION

# %%
check("07.2", answer).points

# %% [markdown]
# ## 07.3 · What fits on the card?
#
# *3 points.* The question behind this course trains InceptionV3 on a GTX 960, a card with 2 GB, of which 1.5 GB are
# free. Its first batch, of 706 images, was far too large. What fits can be computed. All numbers on the card are
# float32, four bytes each:
#
# - for each weight that is trained: the weight, its gradient, and two numbers of the optimizer Adam;
# - for each frozen weight: the weight alone;
# - for each image of the batch: `outputs` numbers, which the layers put out and training must keep.
#
# **Task.** Write a function `answer(free_gb, weights, frozen, outputs)` that gives the largest batch that fits and is a
# power of two (1, 2, 4, 8, ...), as a whole number; 0 if not even one image fits. `free_gb` is in GB of 10^9 bytes,
# `weights` are all weights, and `frozen` how many of them are frozen. For the question's card,
# `answer(1.5, 22_000_000, 0, 33_000_000)` is 8.
#
# **Look again at** [lesson 07, section 3](../07_fit_generator_on_gpu.ipynb#3.-The-model,-and-what-fits-on-the-card).


# %%
### BEGIN SOLUTION
def answer(free_gb, weights, frozen, outputs):
    numbers = 4 * (weights - frozen) + frozen  # there before the first image comes
    images = (free_gb * 10**9 - 4 * numbers) // (4 * outputs)
    batch = 1
    while 2 * batch <= images:
        batch *= 2
    return batch if images >= 1 else 0  # images is below 0 when the weights alone do not fit


### END SOLUTION

# %%
check("07.3", answer).points

# %% [markdown]
# ## 07.4 · Which side is too slow?
#
# *4 points.* A training is slow, and there is money for a faster card, or for a faster disk and more cores. A
# `StallMeter` has two lists: `waits_s`, the seconds that each step waited for its batch, and `steps_s`, the seconds of
# each step, waiting included. For example:

# %%
waits = [4.0, 0.5, 0.0, 0.3]
steps = [6.0, 1.0, 0.4, 0.6]

# %% [markdown]
# **Task.** Write a function `answer(waits, steps)` that gives three things, `(share, gain, side)`. The first step,
# which compiles the model and starts the workers, counts in none of them.
#
# - `share`: the share of the time that was waiting, from 0 to 1;
# - `gain`: how many times as fast the training would be, at most, if no step had to wait (1.0 is: as fast as now);
# - `side`: the text `"feed"` if this gain is above 1.1, so that faster reading pays; otherwise `"model"`.
#
# For the example: 0.8 of 2 seconds were waiting, which leaves 1.2. So it is `(0.4, 1.667, "feed")`. More digits are
# as good.
#
# **Look again at** [lesson 07, section 5](../07_fit_generator_on_gpu.ipynb#5.-Train).


# %%
### BEGIN SOLUTION
def answer(waits, steps):
    # Sums, not a mean of shares: a long step is more of the time than a short one.
    waited, whole = sum(waits[1:]), sum(steps[1:])
    gain = whole / (whole - waited)
    return waited / whole, gain, "feed" if gain > 1.1 else "model"


### END SOLUTION

# %%
check("07.4", answer).points

# %% [markdown]
# ## 07.5 · Judge a model
#
# *5 points.* A trained model has been asked for its answers to the test images, batch by batch, in the order of the
# file. `batches` is a list of pairs `(probabilities, labels)`: probabilities (rows, classes) of float32, labels one-hot
# (rows, classes). The last batch may have fewer rows. For example:

# %%
import numpy as np  # arrays

batches = [
    (np.array([[0.9, 0.1], [0.2, 0.8], [0.7, 0.3]], np.float32), np.array([[1, 0], [1, 0], [0, 1]], np.uint8)),
    (np.array([[0.4, 0.6]], np.float32), np.array([[0, 1]], np.uint8)),
]

# %% [markdown]
# **Task.** Write a function `answer(batches)` that gives a dictionary of four things:
#
# - `"matrix"`: the confusion matrix, (classes, classes) whole numbers: the true class down (first axis), the answer
#   across;
# - `"recall"`: for each class, the share of its images that were found, (classes,);
# - `"top5"`: the share of all images whose true class is among the five classes of highest probability;
# - `"worst"`: a list of row numbers in the file: the three wrong answers of which the model was most sure, the surest
#   first. Fewer where there are fewer mistakes.
#
# Each class has an image. In the example row 1 is called class 1 and row 2 class 0, both wrongly. The matrix is
# `[[1, 1], [1, 1]]`, each recall is 0.5, `"top5"` is 1.0 with so few classes, and `"worst"` is `[1, 2]`.
#
# **Look again at** [lesson 07, section 6](../07_fit_generator_on_gpu.ipynb#6.-Judge).


# %%
### BEGIN SOLUTION
def answer(batches):
    # All rows together first: a mean over batches would give the few rows of the last one too much weight, and a
    # place in a batch is no row of the file.
    probabilities = np.concatenate([part for part, _ in batches])
    truth = np.concatenate([labels for _, labels in batches]).argmax(axis=1)
    predicted = probabilities.argmax(axis=1)
    classes = probabilities.shape[1]
    matrix = np.zeros((classes, classes), int)
    np.add.at(matrix, (truth, predicted), 1)  # matrix[truth, predicted] += 1 would count a pair only once
    best = np.argsort(-probabilities, axis=1)[:, :5]  # the minus puts the highest first
    wrong = np.flatnonzero(predicted != truth)
    surest_first = np.argsort(-probabilities[wrong, predicted[wrong]])
    return {
        "matrix": matrix,
        "recall": matrix.diagonal() / matrix.sum(axis=1),
        "top5": (best == truth[:, None]).any(axis=1).mean(),
        "worst": wrong[surest_first][:3].tolist(),  # places among the mistakes, turned into rows
    }


### END SOLUTION

# %%
check("07.5", answer).points

# %% [markdown]
# ## 07.6 · A run that goes on
#
# *5 points.* Now a run of your own, that guards itself and survives a power cut. All that it needs to know is in one
# folder. It is always started by the same call, the first time as well as after it was stopped:
#
# ```python
# settings = answer(folder, counts, more=10, patience=6)
# history = fit_generator(model, train, validation_data=valid, **settings)
# ```
#
# The model was compiled with `metrics=["accuracy"]`. At the first run `folder`, a `Path`, is there and empty; later it
# holds what earlier runs left. A run that is stopped in its first epoch leaves a `log.csv` of 0 bytes. `counts` is a
# list: how many training images each class has.
#
# **Task.** Write a function `answer(folder, counts, more, patience)` that gives a dictionary with four arguments of
# `fit_generator`:
#
# - `"initial_epoch"` and `"epochs"`: so that `more` epochs are added to those that the log has;
# - `"class_weight"`: for each class number, rows / (classes x rows of the class);
# - `"callbacks"`: a list. After the run the folder holds
#   - `best.keras`: the model as it was after the epoch with the highest `val_accuracy` **of all runs so far**,
#   - `last.keras`: the model after the last epoch,
#   - `log.csv`, as `CSVLogger` writes it, with a line for each epoch of **all runs so far**;
#
#   The callbacks also make the learning rate smaller when `val_loss` has not fallen for 2 epochs, and end the run
#   when `val_accuracy` has not been above its highest value of this run for `patience` epochs.
#
# The check does not train: it tells your callbacks made-up values, epoch by epoch, in several runs, and looks into the
# folder.
#
# **On your own data:** write a table of settings for your file, as in lesson 07, with a small run and a full one; let
# `counts` be `np.bincount(train.class_numbers)`. Start the small run, interrupt the kernel in the third epoch, load
# `last.keras`, and start it again with the same call. Does the log have each epoch once?
#
# **Look again at** [lesson 07, section 7](../07_fit_generator_on_gpu.ipynb#7.-Save,-load,-go-on), for the guards at
# [section 4](../07_fit_generator_on_gpu.ipynb#4.-What-watches-the-training), and at the documentation of
# `ModelCheckpoint` and `CSVLogger`: `help(keras.callbacks.ModelCheckpoint)`.

# %%
### BEGIN SOLUTION
import csv  # reads the log

from keras.callbacks import CSVLogger, EarlyStopping, ModelCheckpoint, ReduceLROnPlateau


def answer(folder, counts, more, patience):
    lines, log = [], folder / "log.csv"
    if log.exists():
        with log.open() as file:
            lines = list(csv.DictReader(file))  # no line at all in an empty file
    # A new checkpoint takes its first epoch for the best one, unless it is told how good the old best was.
    best = max((float(line["val_accuracy"]) for line in lines), default=None)
    return {
        "initial_epoch": len(lines),
        "epochs": len(lines) + more,  # the number of the last epoch
        "class_weight": {number: sum(counts) / (len(counts) * count) for number, count in enumerate(counts)},
        "callbacks": [
            ModelCheckpoint(
                folder / "best.keras", monitor="val_accuracy", save_best_only=True, initial_value_threshold=best
            ),
            ModelCheckpoint(folder / "last.keras"),  # the best model is older: a run goes on from the last one
            ReduceLROnPlateau(monitor="val_loss", factor=0.3, patience=2),
            EarlyStopping(monitor="val_accuracy", patience=patience),
            CSVLogger(log, append=True),  # without append the old lines are lost, and with them the epochs done
        ],
    }


### END SOLUTION

# %%
check("07.6", answer).points

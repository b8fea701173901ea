# ---
# jupyter:
#   lesson:
#     keras: true
#     gpu: not needed
#     files: data/toy_food_8x250_64px_seed0_drawing1.h5 (25 MB)
#     max_minutes: 3
#     max_memory_mb: 1100
# ---

# %% [markdown]
# # 02 · The naive loop
#
# **In this lesson you will build** a training loop over `train_on_batch`: first the way many of us start, with its
# faults measured one by one, then a fair one with validation and shuffling by hand.
#
# **You can, at the end,**
#
# 1. find out which rows of a file a loop really used;
# 2. name six faults of the nested loop, and say what each one costs;
# 3. compute loss and accuracy of a whole split from its batches;
# 4. shuffle by hand, and read rows in any order without the trap of the list index;
# 5. read a timeline of a training loop, and say how long the model waits.
#
# **You need** lesson 01: you know what a dataset, a slice and a one-hot label are. The file is made again here if it
# is missing.
#
# <!-- facts -->

# %% tags=["nbval-ignore-output"]
from helpers.course.lesson import open_lesson  # versions and device, quiet logs, one style of pictures

open_lesson(keras=True)

# %% [markdown]
# ## 1. The nested loop
#
# Someone has 101,000 images in one HDF5 file: 70,700 to train on, 20,200 for validation. The file has 27 GB, the
# machine has 8 GB of memory. `h5py` reads only the rows that a slice asks for. So a natural first idea is a loop in a
# loop: for each epoch, for each piece of the file, read a slice and train on it.
#
# We try that on the toy file: 1,400 images to train on.

# %%
import h5py  # HDF5 files from Python
import numpy as np  # arrays

from data_scripts.make_toy_food import toy_food_file  # drawn plates of food

path = toy_food_file("data", classes=8, per_class=250, size=64, seed=0)
file = h5py.File(path, "r")
for name in file:
    print(name, file[name].shape, file[name].dtype)

# %% [markdown]
# (`crc32` are the check sums of lesson 01. Training does not read them.)
#
# The model is small on purpose. It shrinks each image to 16 x 16 first, so that a step takes milliseconds even on a
# laptop, as a step of a large model does on a GPU. Its first layer scales the bytes to about -1 to 1, so a saved model
# takes its scaling along. `compile` sets how it learns: the optimizer (Adam), the loss, and what else to report.
# `set_random_seed` gives each new model the same first weights.

# %%
import keras  # models and training
from keras import layers

from helpers.models import normalization  # a layer: (pixel - mean of the training images) / 127.5


def new_model():
    keras.utils.set_random_seed(0)
    model = keras.Sequential([
        keras.Input((64, 64, 3), dtype="uint8"),
        normalization(path),
        layers.AveragePooling2D(4),
        layers.Conv2D(16, 3, activation="relu"),
        layers.MaxPooling2D(),
        layers.Conv2D(32, 3, activation="relu"),
        layers.Flatten(),
        layers.Dense(8, activation="softmax"),
    ])
    model.compile(keras.optimizers.Adam(0.003), "categorical_crossentropy", metrics=["accuracy"])
    return model


# %% [markdown]
# Now the loop. `model.train_on_batch` does one update of the weights with the images it is given. There are 20 pieces
# of 69 images, and beside each one a piece of 20 validation images. (`noqa` silences a linter, a program that checks
# code: one of the faults is so plain that even the linter sees it.)


# %%
def nested_loop(model, file, epochs):
    for n in range(epochs):
        for n in range(20):
            images = file["train_img"][n * 69 : (n + 1) * 69]
            labels = file["train_labels"][n * 69 : (n + 1) * 69]
            valid_images = file["valid_img"][n * 20 : (n + 1) * 20]  # noqa: F841
            valid_labels = file["valid_labels"][n * 20 : (n + 1) * 20]  # noqa: F841
            model.train_on_batch(images, labels)


# %%
nested_loop(new_model(), file, epochs=2)

# %% [markdown]
# It ran, it used little memory, and it printed nothing. Did the model learn? From which images? The loop does not
# say. We have to look.

# %% [markdown]
# ## 2. Which rows were used?
#
# A small class stands in for a dataset. It passes every slice on, and notes its rows. The loop gets a dictionary of
# such stand-ins instead of the file, and cannot tell the difference.


# %%
class Watched:
    def __init__(self, dataset):
        self.dataset = dataset
        self.reads = []

    def __getitem__(self, rows):
        self.reads.append(np.arange(len(self.dataset))[rows])
        return self.dataset[rows]


# %%
watched = {name: Watched(file[name]) for name in file}
nested_loop(new_model(), watched, epochs=2)
print(len(watched["train_img"].reads), "reads of train_img; the first one:", watched["train_img"].reads[0])

# %% [markdown]
# **Predict:** The file has 1,400 training rows. The loop asked for 20 pieces of 69, in two epochs. How many different
# rows did it use?

# %%
used = np.unique(np.concatenate(watched["train_img"].reads))
never = np.setdiff1d(np.arange(1400), used)
print(f"used: {len(used)} of 1400; never: {len(never)} rows, {never[0]} to {never[-1]}")

# %% [markdown]
# The last 20 rows are never asked for, however many epochs we train. 69 should have been 70. Nothing complains, because
# each slice by itself is right.
#
# The question that this course starts from had the same slip: 100 pieces of 706.

# %%
print(f"{100 * 706:,} of 70,700 rows are used, {70_700 - 100 * 706} never")

# %% [markdown]
# The cure: type no count by hand. Ask the dataset for its length, and let `range` step through it.


# %%
def slices(n, batch_size):
    return [slice(start, min(start + batch_size, n)) for start in range(0, n, batch_size)]


pieces = slices(len(file["train_img"]), batch_size=32)
print(len(pieces), "pieces; the last two:", pieces[-2:])
print("rows:", sum(piece.stop - piece.start for piece in pieces))

# %% [markdown]
# 43 full pieces and one of 24 rows: all 1,400. Remember the smaller last piece: section 5 needs it.

# %% [markdown]
# **Checkpoint 1.** A split has 20,200 rows. A loop reads `data[k * 64 : (k + 1) * 64]` for `k in range(315)`. How many
# rows does it never read? How would you find out without arithmetic?
#
# <details><summary>Answer</summary>
#
# 315 x 64 = 20,160, so 40 rows. Without arithmetic: pass a `Watched` dataset and count the rows it noted.
#
# </details>

# %% [markdown]
# ## 3. Three more slips
#
# **The number of the epoch is lost.** Both loops call their variable `n`. Say you want to save the model once an
# epoch, under the epoch's number.
#
# **Predict:** Three epochs of 20 pieces. How many names are in the list at the end, and which?

# %%
names = []
for n in range(3):
    for n in range(20):
        piece = slice(n * 69, (n + 1) * 69)  # here the model would train on it
    names.append(f"epoch_{n:02}.keras")
print(names)

# %% [markdown]
# Three: each `range` keeps its own count, so all epochs are trained. But `n` is 19 at the end of each, so the three
# files are one file, overwritten twice. A learning rate that should fall with the epoch would never fall.

# %% [markdown]
# **Validation images are read and never used.** The loop reads them, gives them a name, and drops them.

# %%
rows_read = sum(len(rows) for rows in watched["valid_img"].reads)
print(f"{rows_read} validation images read for nothing: {rows_read * 64 * 64 * 3 / 1e6:.1f} MB")
an_epoch = 20_200 * 299 * 299 * 3 / 1e9
print(f"in the question: {an_epoch:.1f} GB an epoch, {50 * an_epoch:.0f} GB in 50 epochs")

# %% [markdown]
# **Every epoch has the same order.** We compare the reads of the two epochs, and draw them. Dark is the start of the
# file, light its end.

# %%
from helpers.course import figures  # the pictures of this course

first, second = watched["train_img"].reads[:20], watched["train_img"].reads[20:]
print("same reads in both epochs:", all(np.array_equal(a, b) for a, b in zip(first, second, strict=True)))
strips = {"epoch 1": np.concatenate(first), "epoch 2": np.concatenate(second)}
figures.show(figures.order_strip(strips, kind="row"))

# %% [markdown]
# Does it matter? In this file not much, because its rows were mixed when it was built. In a file that is sorted by
# class it ruins the training. We can try that: the toy images fit into memory, so we train on them in two orders.

# %%
all_images, all_labels = file["train_img"][:], file["train_labels"][:]


def train_in_order(order, epochs=2, batch_size=32):
    model = new_model()
    for _ in range(epochs):
        for start in range(0, len(order), batch_size):
            rows = order[start : start + batch_size]
            model.train_on_batch(all_images[rows], all_labels[rows])
    return model


# %%
classes = all_labels.argmax(axis=1)
orders = {"order of our file": np.arange(1400), "sorted by class": np.argsort(classes, kind="stable")}
for name, order in orders.items():
    in_batch = [len(np.unique(classes[order[piece]])) for piece in pieces]
    print(f"{name}: a batch holds {min(in_batch)} to {max(in_batch)} of the 8 classes")
models = {name: train_in_order(order) for name, order in orders.items()}

# %% [markdown]
# **Predict:** Both models saw the same 1,400 images twice. What does the second one ("sorted by class") answer when it
# is shown 400 validation images, 50 of each class?

# %% tags=["nbval-ignore-output"]
answers = {}
for name, model in models.items():
    predicted = model.predict(file["valid_img"][:], verbose=0).argmax(axis=1)
    answers[name] = np.bincount(predicted, minlength=8)
    print(f"{name}: answers a class {answers[name]}")

# %%
print("more than 9 of 10 answers are one class:", {name: bool(max(n) > 360) for name, n in answers.items()})

# %% [markdown]
# In sorted order the model sees 175 images of one class in a row, then of the next. Each class undoes what the one
# before has taught, and in the end the model has one answer to everything. It need not be the class that came last: the
# model gives all classes nearly the same probability, whatever it is shown. Section 6 shuffles.

# %% [markdown]
# ## 4. One huge batch
#
# The question trained on 706 images in each step, because they "fit in the memory easily". They do, as bytes. A model
# computes with float32, four bytes a number, and keeps the output of every layer until the update is computed.
# InceptionV3 is a well-known model for images of 299 x 299 pixels; its first layer makes 32 maps of 149 x 149 numbers
# from each.

# %%
pixels = 706 * 299 * 299 * 3
print(f"706 images as uint8 in the file:      {pixels / 1e6:6,.0f} MB")
print(f"the same as float32 in the model:     {4 * pixels / 1e6:6,.0f} MB")
first_layer = 706 * 149 * 149 * 32
print(f"output of InceptionV3's first layer:  {4 * first_layer / 1e6:6,.0f} MB")

# %% [markdown]
# The output of this one layer fills the 2 GB card of the question, and many layers follow.
#
# There is a second price. One step is one update of the weights, whether it saw 32 images or 706.

# %%
for batch_size in (706, 32):
    print(f"batches of {batch_size}: {len(slices(70_700, batch_size)):,} updates an epoch")

# %% [markdown]
# With the large batches there are 22 times fewer. On the toy data we keep this ratio: batches of 704 against batches of
# 32, five epochs each, everything else the same. Both see the same images equally often.

# %% tags=["nbval-ignore-output"]
valid_images, valid_labels = file["valid_img"][:], file["valid_labels"][:]
accuracy = {}
for batch_size in (704, 32):
    model = train_in_order(np.arange(1400), epochs=5, batch_size=batch_size)
    accuracy[batch_size] = model.evaluate(valid_images, valid_labels, verbose=0)[1]
    print(f"batches of {batch_size}: {5 * len(slices(1400, batch_size))} updates, accuracy {accuracy[batch_size]:.2f}")

# %%
print("small batches are ahead by 0.1 or more:", accuracy[32] > accuracy[704] + 0.1)

# %% [markdown]
# The same images read and computed, and far less learned. One fault is left, the sixth: reading and training take
# turns, and the model waits while the file is read. Section 8 measures that.

# %% [markdown]
# **Checkpoint 2.** Here is the loop once more, with the numbers of the question. Name its six faults, and what each
# costs.
#
# ```python
# for n in range(epochs):
#     for n in range(100):
#         images = file["train_img"][n * 706 : (n + 1) * 706]
#         ...
#         valid_images = file["valid_img"][n * 202 : (n + 1) * 202]
#         ...
#         model.train_on_batch(images, labels)
# ```
#
# <details><summary>Answer</summary>
#
# 1. Counts typed by hand: 100 rows never train the model.
# 2. Two loops, one variable: the epoch's number is lost, and files overwrite each other.
# 3. Validation is read and not used: time and disk for nothing, and you do not know how good the model is.
# 4. The same order in every epoch: little harm in a mixed file, but in a sorted one the model learns nothing.
# 5. Huge batches: much memory, few updates.
# 6. Reading and training take turns in one thread: the model waits.
#
# </details>

# %% [markdown]
# ## 5. Validation by hand
#
# `train_on_batch` has a sister: `test_on_batch` computes loss and metrics of one batch and changes no weights. We call
# it on the model that was trained last.

# %%
part = model.test_on_batch(valid_images[:64], valid_labels[:64], return_dict=True)
print("reports:", sorted(part))
again = model.test_on_batch(valid_images[:64], valid_labels[:64], return_dict=True)
print("the same a second time:", np.isclose(part["loss"], again["loss"]))

# %% [markdown]
# Are the numbers about this batch alone? Earlier releases of Keras 3 returned the mean over all calls so far, and
# curves looked smooth and wrong. We ask for another batch, and then for the first one again.

# %%
other = model.test_on_batch(valid_images[64:128], valid_labels[64:128], return_dict=True)
third = model.test_on_batch(valid_images[:64], valid_labels[:64], return_dict=True)
print("another batch gives another loss:", not np.isclose(part["loss"], other["loss"]))
print("the first batch gives its own again:", np.isclose(part["loss"], third["loss"]))

# %% [markdown]
# Good: each call stands for itself. What is left is to put the batches together.
#
# **Predict:** A batch of 64 images is 100 % right, a last batch of 16 is 50 % right. What is the accuracy of all 80
# images?

# %%
right, size = np.array([1.0, 0.5]), np.array([64, 16])
print("plain mean of the two batches:", right.mean())
print("weighted by their size:       ", (right * size).sum() / size.sum())

# %% [markdown]
# 72 of 80 are right: 0.9. The plain mean lets each image of the small batch count four times. So we weight by size.


# %%
def evaluate_by_hand(model, file, batch_size=64):
    """Mean loss and accuracy over all rows of the validation split."""
    n, totals = len(file["valid_img"]), {"loss": 0.0, "accuracy": 0.0}
    for piece in slices(n, batch_size):
        images, labels = file["valid_img"][piece], file["valid_labels"][piece]
        part = model.test_on_batch(images, labels, return_dict=True)
        for name in totals:
            totals[name] += len(images) * float(part[name])
    return {name: total / n for name, total in totals.items()}


# %%
by_hand = evaluate_by_hand(model, file)
by_keras = model.evaluate(valid_images, valid_labels, return_dict=True, verbose=0)
for name in by_hand:
    print(f"{name}: equal to model.evaluate to 5 digits:", np.isclose(by_hand[name], by_keras[name], rtol=1e-5))

# %% [markdown]
# Our function holds 64 images in memory. `model.evaluate(valid_images, ...)` needed all 400.

# %% [markdown]
# **Checkpoint 3.** 20,200 validation images in batches of 64: how many images has the last batch? When is the plain
# mean over batches right after all?
#
# <details><summary>Answer</summary>
#
# 20,200 = 315 x 64 + 40: the last batch has 40. The plain mean is right only when all batches have the same size.
#
# </details>

# %% [markdown]
# ## 6. Shuffling by hand
#
# **First step: the order of the batches.** Mix the slices, read them as before. Slices stay fast, and each epoch has
# another order.

# %%
rng = np.random.default_rng(0)
in_file_order = np.arange(1400)
mixed_batches = np.concatenate([in_file_order[pieces[k]] for k in rng.permutation(len(pieces))])
mixed_rows = rng.permutation(1400)

# %%
strips = {"the file": in_file_order, "batches mixed": mixed_batches, "rows mixed": mixed_rows}
figures.show(figures.order_strip(strips, kind="row"))

# %% [markdown]
# In the middle strip each batch keeps one shade. However the batches are mixed, the same 32 images stay together. In a
# file sorted by class each batch would still hold one class or two.
#
# **Second step: the order of the rows**, as in the last strip. Now a batch is 32 rows from all over the file. Lesson 01
# gave HDF5 a list of rows as an index. What does it say to ours?

# %%
from helpers.course.lesson import fails_with  # prints the error that is meant to come

rows = mixed_rows[:32]
print(rows)
with fails_with(TypeError):
    file["train_img"][rows]

# %% [markdown]
# As in lesson 01: the list must be sorted, so many programs sort it. Then the images come in the order of the file, and
# the labels have to follow.
#
# **Predict:** Images are read by sorted rows, labels are taken by the rows as they were. The batch has 32 images of 8
# classes. How many labels fit their image?

# %%
print("read:", file["train_img"][np.sort(rows)].shape)
fits = classes[np.sort(rows)] == classes[rows]
print(f"{fits.sum()} of {len(rows)} labels fit")

# %% [markdown]
# By chance one label in 8 fits, about 4 of 32; here it was 2. Nothing complains: shapes and types are right. A model
# would train on nonsense.
#
# The list index has a second trap: lesson 01 measured how slow it is, and read row by row instead. The kit (`helpers`,
# the package that comes with this course) has `RowReader` for that. It takes rows in any order, repeated and negative
# ones too, and gives the images in the order asked for: nothing has to be sorted, and nothing put back.

# %%
from helpers import RowReader  # rows of one dataset, in any order

reader = RowReader(path, "train_img")
print("the images in the order asked for:", np.array_equal(reader.read(rows), all_images[rows]))

# %% [markdown]
# `benchmark`, from lesson 01, gives the median of several runs. Each run reads 32 fresh rows.

# %% tags=["nbval-ignore-output"]
from helpers.course.meters import benchmark

with_list = benchmark(lambda: file["train_img"][np.sort(rng.permutation(1400)[:32])], items=32)
with_reader = benchmark(lambda: reader.read(rng.permutation(1400)[:32]), items=32)
speeds = [with_list.per_second, with_reader.per_second]
figures.show(figures.bars(["list index", "RowReader"], speeds, "images/s", log=True))

# %%
print("RowReader is at least 3 times faster:", with_reader.times_faster_than(with_list) > 3)

# %% [markdown]
# **Checkpoint 4.** Someone shuffles the order of the slices each epoch and says: "my data is shuffled". What is not?
#
# <details><summary>Answer</summary>
#
# Which rows are in a batch: the same images meet in every epoch. In a class-sorted file every batch still has one or
# two classes.
#
# </details>

# %% [markdown]
# ## 7. A fair loop
#
# Now the parts come together. The order of an epoch is drawn from a seed and the number of the epoch: each epoch has
# its own, and a second run has the same ones. Images are read batch by batch. Labels are small (7 MB for the 70,700
# images of the question), so they stay in memory, where any order of rows is cheap.

# %%
batch_size = 32


def order_of(epoch, n, seed=0):
    return np.random.default_rng([seed, epoch]).permutation(n)


def train_one_epoch(model, epoch):
    """Train on every row once; returns the mean loss, weighted by batch size."""
    order, total = order_of(epoch, len(reader)), 0.0
    for piece in slices(len(order), batch_size):
        rows = order[piece]
        part = model.train_on_batch(reader.read(rows), all_labels[rows], return_dict=True)
        total += len(rows) * float(part["loss"])
    return total / len(order)


# %%
def train(model, epochs):
    """Train and validate; returns the values of each epoch."""
    history = {"loss": [], "val_loss": [], "val_accuracy": []}
    for epoch in range(epochs):
        history["loss"].append(train_one_epoch(model, epoch))
        for name, value in evaluate_by_hand(model, file).items():
            history[f"val_{name}"].append(value)
    return history


# %% [markdown]
# One call trains and validates. We draw what it returns.

# %% tags=["nbval-ignore-output"]
model = new_model()
history = train(model, epochs=6)
figures.show(figures.curves(history))

# %% [markdown]
# The training loss of an epoch is a mean over its steps, and the model was worse in the first ones. The validation loss
# is measured after the last step. So the first can be the higher one, as it is in epoch 1.

# %%
served = np.concatenate([order_of(epoch, 1400) for epoch in range(6)])
print("times each row was used in 6 epochs:", set(np.bincount(served).tolist()))
print("another order each epoch:", not np.array_equal(order_of(0, 1400), order_of(1, 1400)))
print("validation loss fell by 0.3 or more:", history["val_loss"][0] - history["val_loss"][-1] > 0.3)

# %% [markdown]
# `train_on_batch` gives no help with validation and shuffling. About thirty lines of our own do: every row once an
# epoch, in a new order, with a true validation loss.

# %% [markdown]
# ## 8. Where the time goes
#
# One fault is left: everything happens in one thread. We note for six steps when the file was read, and when the model
# trained. A timeline has *lanes*, one for the file and one for the model; each entry is a start, an end, and what was
# done.

# %%
import time  # a clock


def watch_steps(read, steps=6):
    """Lanes of a timeline; each time counts from the start of the first step."""
    order, lanes, begin = order_of(0, 1400), {"file": [], "model": []}, time.perf_counter()
    for piece in slices(1400, batch_size)[:steps]:
        rows = order[piece]
        start = time.perf_counter() - begin
        images = read(rows)
        ready = time.perf_counter() - begin
        model.train_on_batch(images, all_labels[rows])
        end = time.perf_counter() - begin
        lanes["file"].append((start, ready, "read"))
        lanes["model"] += [(start, ready, "wait"), (ready, end, "train")]
    return lanes


# %% [markdown]
# Two ways to read the same rows: the list index, sorted first and put back in order afterwards, and `RowReader`.


# %%
def by_list(rows):
    order = np.argsort(rows)
    return file["train_img"][rows[order]][np.argsort(order)]


print("same images:", np.array_equal(by_list(rows), reader.read(rows)))

# %% [markdown]
# Six steps of each. The reads of `RowReader` are so short that the picture may hardly show them:

# %% tags=["nbval-ignore-output"]
runs = {"list index": watch_steps(by_list), "RowReader": watch_steps(reader.read)}
lanes = {f"{lane}, {name}": spans for name, lanes in runs.items() for lane, spans in lanes.items()}
figures.show(figures.timeline(lanes))

# %% [markdown]
# Follow the upper two lanes from left to right: the file and the model take turns. At no moment is there reading while
# the model trains. The share of the time that the model waits is the number to watch.


# %%
def share_waiting(lanes):
    took = {kind: sum(end - start for start, end, k in lanes["model"] if k == kind) for kind in ("wait", "train")}
    return took["wait"] / (took["wait"] + took["train"])


# %% [markdown]
# **Predict:** A GPU may train in a tenth of the time, while reading takes as long as before. Does the share of waiting
# fall, stay, or grow?

# %% tags=["nbval-ignore-output"]
shares = {name: share_waiting(lanes) for name, lanes in runs.items()}
for name, share in shares.items():
    faster = share / (share + (1 - share) / 10)
    print(f"{name}: the model waits {share:4.0%} of the time; with a model 10 times faster: {faster:4.0%} (computed)")

# %%
waits = {name: sum(end - start for start, end, kind in lanes["file"]) for name, lanes in runs.items()}
print("the list index makes the model wait at least 3 times longer:", waits["list index"] > 3 * waits["RowReader"])

# %% [markdown]
# With `RowReader` the wait is short, because the images are small and the system keeps this little file in memory. It
# grows with larger images, a slow disk, and augmentation. And the faster the device trains, the larger is its share.
# The cure is to make the next batch **while** the model trains on this one. A loop of ours would need threads or
# processes for that. Keras has them, if it may ask us for batches: lesson 03.

# %% [markdown]
# **Checkpoint 5.** A step reads for 30 ms and trains for 50 ms. What share does the model wait? How much faster could
# training be at most, if reading ran beside it?
#
# <details><summary>Answer</summary>
#
# 30 of 80 ms: 0.375. When both run at the same time, a step takes as long as the longer part, 50 ms instead of 80: 1.6
# times faster.
#
# </details>

# %% [markdown]
# ## 9. When a loop of your own is right
#
# When one step is more than "batch in, update out": two models that train in turn (a GAN), batches that depend on what
# the model has just learned, several losses with rules of their own. Then write the loop, and take its batches from the
# classes of the next lessons. For everything else `model.fit`, Keras' own loop, brings what ours still lacks: it saves
# the best model, stops in time, shows progress, weights classes, and has batches made ahead.

# %%
reader.close()
file.close()

# %% [markdown]
# ## Key points
#
# - A loop with typed counts and one variable too few runs without an error. Watch which rows it reads.
# - Validation by hand is a mean weighted by batch size; shuffling by hand is a new order of rows each epoch, read
#   without a list index.
# - In one thread reading and training take turns. The share of time that the model waits is the number to watch.

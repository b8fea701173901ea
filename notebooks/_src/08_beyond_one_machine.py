# ---
# jupyter:
#   lesson:
#     keras: true
#     gpu: not needed
#     files: the toy file of lesson 00
#     max_minutes: 3
#     max_memory_mb: 1100
# ---

# %% [markdown]
# # 08 · Beyond one machine
#
# **In this lesson you will build** one training step out of three parts, made by three readers of one file.
#
# **You can, at the end,**
#
# 1. say which rows each of several processes reads, and which rows nobody reads;
# 2. name the mistakes in dividing a file that no error message shows;
# 3. say when several processes train exactly like one;
# 4. compute what an epoch of a larger file costs, and say where the computation stops being true;
# 5. say what `"block"` shuffling saves, and what it gives up;
# 6. name the tool for several devices, and for several machines.
#
# **You need** lessons 05 and 07.
#
# <!-- facts -->

# %% tags=["nbval-ignore-output"]
from helpers.course.lesson import open_lesson  # versions and device, quiet logs, one style of pictures

open_lesson(keras=True)

# %% [markdown]
# ## 1. One file, several readers
#
# Three computers train one model together. In each step every computer takes its own batch and computes a gradient
# (for each weight: how the loss changes with it), and the three gradients are averaged. All three then change their
# weights by the same amount, so that the three models stay the same model.
#
# Each computer runs the same program, as a process of its own. Each opens the same file. So they must agree, without
# talking, on who reads which rows. The agreement is a pair of numbers: `shard=(index, count)`, "I am number `index` of
# `count`". `EpochOrder`, which deals out the rows in this course, does the rest. Thirteen rows, three processes, two
# rows a batch:

# %%
from helpers import EpochOrder

for index in range(3):
    order = EpochOrder(n=13, batch_size=2, shuffle=None, seed=0, shard=(index, 3))
    print(f"process {index}:", [rows.tolist() for rows in order.batches(epoch=0)])

# %% [markdown]
# Read it column by column. The first batches together are rows 0 to 5: the **global batch** of six rows. Of these,
# process number 0 takes rows 0 and 3, number 1 takes 1 and 4, number 2 takes 2 and 5. Row 12 is missing: a third
# global batch would have one row for three processes. A process without a batch would have no gradient, and the
# others would wait for it for ever. So a rest with fewer rows than processes is dropped, and the number of batches is
# the same for all.
#
# **Predict:** With 16 rows instead of 13, the rest has four rows. How are they dealt out?

# %%
for index in range(3):
    order = EpochOrder(n=16, batch_size=2, shuffle=None, seed=0, shard=(index, 3))
    print(f"process {index}:", order.batch(epoch=0, index=2).tolist(), "dropped:", order.dropped_rows)

# %% [markdown]
# Two, one and one. Nothing is dropped, but the last batches differ in size. Remember that for section 3.
#
# With shuffling, the order of the epoch comes first and is then dealt out. All processes compute the *same* order,
# because they have the same seed. The picture shows who reads which row of a file of 38 rows, in three epochs.

# %%
import numpy as np  # arrays

owner = np.full((3, 38), 3)  # one line an epoch, one column a row of the file; 3 is nobody
for index in range(3):
    order = EpochOrder(n=38, batch_size=4, shuffle="full", seed=0, shard=(index, 3))
    for epoch in range(3):
        owner[epoch, np.concatenate(order.batches(epoch))] = index
print(owner[0])

# %% [markdown]
# The same numbers, drawn with `matplotlib`:

# %%
import matplotlib.pyplot as plt
from matplotlib.colors import ListedColormap

from helpers.course.figures import show  # displays a figure with a text for those who cannot see it
from helpers.course.style import BLUE, GREEN, GREY, ORANGE  # the colours of the course

colors = {"process 0": BLUE, "process 1": ORANGE, "process 2": GREEN, "nobody": GREY}
figure, axes = plt.subplots(figsize=(7, 2.2), layout="constrained")
axes.pcolormesh(owner, cmap=ListedColormap(list(colors.values())), edgecolors="white")
axes.set_xlabel("row of the file")
axes.set_yticks([0.5, 1.5, 2.5], ["epoch 0", "epoch 1", "epoch 2"])
axes.invert_yaxis()
patches = [plt.Rectangle((0, 0), 1, 1, color=color) for color in colors.values()]
figure.legend(patches, colors, loc="outside lower center", ncols=4)
show(figure, alt="Who reads which of 38 rows: three colours, evenly mixed; most rows change colour each epoch.")

# %% [markdown]
# In an epoch each row has one owner at most; in the next epoch it is often another one. Two grey rows an epoch are
# read by nobody: 38 = 3 x 12 + 2, and two rows are too few for three processes. They too are others each time. Over
# many epochs every row is used about equally often.

# %% [markdown]
# **Checkpoint 1.** 1,000 rows, 4 processes, `batch_size=32`. How many batches does each process make an epoch? How
# many rows are dropped?
#
# <details><summary>Answer</summary>
#
# The global batch is 4 x 32 = 128. 1,000 = 7 x 128 + 104, and 104 rows are enough for four: 8 batches, nothing dropped.
# The last batches have 26 rows each.
#
# </details>

# %% [markdown]
# ## 2. Three processes at work
#
# Does it hold with real processes and a real file? `BatchSource` makes the batches inside an `HDF5Sequence`, without
# Keras; that makes it light enough for a process of its own. This function reads one shard from beginning to end.

# %%
import os  # process numbers

from data_scripts.make_toy_food import toy_food_file  # the toy data of lesson 00
from helpers.batches import BatchSource

path = toy_food_file("data", classes=8, per_class=250, size=64, seed=0)
count = 3


def read_shard(index):
    source = BatchSource(path, "train", batch_size=20, seed=0, shard=(index, count))
    rows = np.concatenate([source.rows_of(0, batch) for batch in range(len(source))])
    pixels = sum(int(source.batch(0, batch)[0].sum()) for batch in range(len(source)))
    return os.getpid(), rows, pixels


# %% [markdown]
# `WorkerPool` is what runs the workers behind `fit_generator`. Here each of its processes plays one computer.

# %%
from helpers.workers import WorkerPool

with WorkerPool(read_shard, workers=count, processes=True) as pool:
    answers = [pool.get(index) for index in range(count)]
process_ids, rows_read, pixel_sums = zip(*answers, strict=True)

print("rows read by each:", [len(rows) for rows in rows_read])
print("read outside of this process:", os.getpid() not in process_ids)

# %% [markdown]
# **Predict:** Put the three lists of rows together. Which numbers appear how often?

# %%
import h5py  # HDF5 files

together = np.sort(np.concatenate(rows_read))
print("rows 0 to 1399, each exactly once:", np.array_equal(together, np.arange(1400)))
with h5py.File(path, "r") as file:
    print("same pixels as in the file:", sum(pixel_sums) == int(file["train_img"][:].sum()))

# %% [markdown]
# Nobody waited for anybody: each process has a handle of its own, and nobody writes (lesson 04).
# In a training program the line is `HDF5Sequence(path, "train", batch_size=20, shard=(index, 3))`.
#
# The agreement holds only while all processes pass the same file, `batch_size`, `seed` and `count`. No error tells you
# when they do not, because no process sees the others. Let us make two mistakes on purpose: seeds that differ, and
# `shard` forgotten.


# %%
def how_often(seeds, shards):
    times = np.zeros(1400, int)
    for seed, shard in zip(seeds, shards, strict=True):
        order = EpochOrder(n=1400, batch_size=20, shuffle="full", seed=seed, shard=shard)
        times[np.concatenate(order.batches(epoch=0))] += 1
    return np.bincount(times, minlength=4)


thirds = [(0, 3), (1, 3), (2, 3)]
print("rows read 0, 1, 2, 3 times")
print("right:        ", how_often([0, 0, 0], thirds))
print("three seeds:  ", how_often([0, 1, 2], thirds))
print("shard missing:", how_often([0, 0, 0], [(0, 1)] * 3))

# %% [markdown]
# With three seeds, 29 % of the rows are not read in this epoch, and others up to three times. Without `shard`, each
# process reads everything, and all three read the *same* rows in the same step: three computers do the work of one.

# %% [markdown]
# **Checkpoint 2.** A colleague seeds each process by its number "so that they do not all do the same". What should you
# tell her? Where do the random numbers of the augmentation come from?
#
# <details><summary>Answer</summary>
#
# The order needs one seed for all: it is `shard` that makes them do different things. Augmentation draws from (seed,
# epoch, row), and each row belongs to one process only, so two processes never change two images in the same way
# because of a common seed.
#
# </details>

# %% [markdown]
# ## 3. Three parts, one step
#
# One process with batches of 60, or three with batches of 20: is that the same training? First the rows.

# %%
from helpers import HDF5Sequence

whole = HDF5Sequence(path, "train", batch_size=60, seed=0)
parts = [HDF5Sequence(path, "train", batch_size=20, seed=0, shard=shard) for shard in thirds]

rows = whole.rows_of(epoch=0, index=5)
for index, part in enumerate(parts):
    print("every third row of the whole batch:", np.array_equal(rows[index::3], part.rows_of(0, 5)))
print("batches an epoch:", len(whole), [len(part) for part in parts])

# %% [markdown]
# Now the gradient: the direction in which a step moves the weights. `tensorflow`'s tape computes it for one batch and
# returns all its numbers as one long row.

# %%
import keras
import tensorflow as tf


def gradient(model, batch):
    images, labels = batch
    with tf.GradientTape() as tape:
        losses = keras.losses.categorical_crossentropy(labels, model(images, training=True))
        loss = keras.ops.mean(losses)
    pieces = tape.gradient(loss, model.trainable_weights)
    return np.concatenate([np.ravel(piece) for piece in pieces])


def difference(one, other):
    return np.linalg.norm(one - other) / np.linalg.norm(other)


# %% [markdown]
# The smallest possible model: every pixel times a weight, eight sums, softmax.

# %%
keras.utils.set_random_seed(0)
plain = keras.Sequential([
    keras.Input((64, 64, 3), dtype="uint8"),
    keras.layers.Rescaling(1 / 127.5, offset=-1),
    keras.layers.Flatten(),
    keras.layers.Dense(8, activation="softmax"),
])
mean_of_three = np.mean([gradient(plain, part[5]) for part in parts], axis=0)
print("equal up to rounding:", difference(mean_of_three, gradient(plain, whole[5])) < 1e-4)

# %% [markdown]
# Equal, up to the last digits of `float32`. This is why computers can share a training at all: the mean over 60 images
# is the mean of three means over 20.
#
# **Predict:** The last batch of the epoch has 20 rows for three processes: 7, 7 and 6. Is the plain mean of the three
# gradients right there too?

# %%
last = len(whole) - 1
sizes = [len(part.rows_of(0, last)) for part in parts]
gradients = [gradient(plain, part[last]) for part in parts]
right = gradient(plain, whole[last])
print("sizes:", sizes)
print("plain mean right:   ", difference(np.mean(gradients, axis=0), right) < 1e-4)
print("weighted mean right:", difference(np.average(gradients, axis=0, weights=sizes), right) < 1e-4)

# %% [markdown]
# No: an image in the batch of 6 would count more than one in a batch of 7. Either weight by the sizes, or leave that
# batch out: `drop_last=True` drops the last global batch when it is not full.
#
# And `small_cnn`, the model of lesson 07? It has layers of batch normalisation: each subtracts the mean of the batch,
# and divides by how far the numbers spread around it.

# %%
from helpers.models import small_cnn

cnn = small_cnn(whole.image_shape, whole.num_classes, width=8)
mean_of_three = np.mean([gradient(cnn, part[5]) for part in parts], axis=0)
off_by = difference(mean_of_three, gradient(cnn, whole[5]))
print("equal up to rounding:", off_by < 1e-4)
print("off by more than a hundredth:", off_by > 0.01)

# %% [markdown]
# Each process subtracts the mean of *its* batch. A mean over 20 images is not the mean over 60, so the three
# processes compute something else than one would. It still trains; it is no longer the same training. Everything that
# mixes the images of a batch has this property. So has a layer that draws random numbers, such as dropout: three
# processes draw other ones than one.

# %% [markdown]
# **Checkpoint 3.** Name three conditions under which a step of three processes equals a step of one.
#
# <details><summary>Answer</summary>
#
# The rows are the dealt-out global batch (same seed, file and `batch_size`); the gradients are averaged by the sizes
# of the batches, or all sizes are equal; and no layer mixes the images of a batch or draws random numbers.
#
# </details>

# %% [markdown]
# ## 4. What larger data costs
#
# How long is an epoch of a file 10 or 1,000 times as large? Three costs grow with the number of rows: memory, bytes
# to read, and jumps in the file (section 5). Memory first: pixels stay in the file, but order and labels do not.

# %%
label_bytes = whole.class_numbers.nbytes / whole.n  # one int64 a row
order_bytes = 2 * 8  # one int64 a row, for two epochs: workers read ahead
for n in (70_700, 10_000_000, 1_000_000_000):
    print(f"{n:>13,} rows: {n * (label_bytes + order_bytes) / 1e6:>8,.1f} MB in each process")

# %% [markdown]
# Nothing for Food-101, 240 MB for ten million rows. A thousand million rows need another design.
#
# Then bytes: one row of Food-101 at 299 pixels has 268,203. How fast do they come? Measure on this machine, with the
# reader of the course, 200 rows of that size (filled with noise), in random order.

# %% tags=["nbval-ignore-output"]
import tempfile  # a folder that is removed again
from pathlib import Path  # file names as objects

from helpers import HDF5Writer, RowReader
from helpers.course.meters import benchmark  # the median of several runs

rng = np.random.default_rng(0)
rows, buffer = rng.permutation(200), np.empty((200, 299, 299, 3), np.uint8)
noise = rng.integers(0, 256, buffer.shape, np.uint8)
with tempfile.TemporaryDirectory() as folder:
    with HDF5Writer(Path(folder, "noise.h5"), (299, 299, 3), ["noise"]) as writer:
        writer.append("train", noise, np.zeros(200, int))
    with RowReader(writer.path, "train_img") as reader:
        timing = benchmark(lambda: reader.read(rows, out=buffer), repeat=5, items=200)
bytes_a_second = timing.per_second * buffer[0].nbytes
print(f"{timing.per_second:,.0f} images a second, {bytes_a_second / 1e6:,.0f} MB a second")

# %% [markdown]
# A fast disk? No disk at all. The file has 54 MB and was written a moment ago: the system still holds it in free memory
# (the **page cache**). What was measured is copying from memory to memory. That says nothing about a file that does
# not fit.

# %%
import psutil  # asks the system about memory

memory_bytes = psutil.virtual_memory().total
print("the measured file fits into the memory of this machine:", buffer.nbytes < memory_bytes)

# %% [markdown]
# So the curve that we may draw with our own number ends where memory ends. Beyond it, the disk decides. We have not
# measured yours; two round numbers stand in for it. They are **assumptions**: change them and draw again.

# %%
ASSUMED = {"an SSD of 500 MB/s": 500e6, "a disk or network of 100 MB/s": 100e6}
SIZES_GB = {"toy file": 0.025, "Food-101": 27.1, "ten times Food-101": 271}


def epoch_minutes(gigabytes, rate):
    return np.asarray(gigabytes) * 1e9 / rate / 60


# %% tags=["nbval-ignore-output"]
gigabytes = np.geomspace(0.025, 1000, 60)
in_memory = gigabytes[gigabytes * 1e9 < memory_bytes]
figure, axes = plt.subplots(figsize=(7, 3.6), layout="constrained")
measured = epoch_minutes(in_memory, bytes_a_second)
axes.loglog(in_memory, measured, label="measured here, from the page cache")
for name, rate in ASSUMED.items():
    axes.loglog(gigabytes, epoch_minutes(gigabytes, rate), "--", label=f"assumed: {name}")
for name, size in SIZES_GB.items():
    axes.axvline(size, color=GREY, linewidth=1)
    axes.text(size, 3e-4, name, rotation=90, va="bottom", ha="right", color=GREY)
axes.set(xlabel="size of the pixels (GB)", ylabel="minutes of reading an epoch")
axes.legend(loc="upper left")
show(figure, alt="Minutes of reading against size; the measured line ends at the size of the memory.")

# %% [markdown]
# And the question of this course, 27.1 GB and a computer with 8 GB? There, the solid line would end at 8. What
# remains are the dashed ones. (They count all pixels. An epoch reads the training split, 70 % of them.)

# %% tags=["constant-time"]
for name, rate in ASSUMED.items():
    minutes = epoch_minutes(27.1 * 0.7, rate)  # 70 % are for training
    print(f"Food-101, {name}: {minutes:.1f} minutes of reading an epoch")

# %% [markdown]
# If the model needs longer than that for an epoch, nothing is lost: workers read while it trains. If not, several
# *readers* help only when each has a disk of its own. Three processes on one disk still share its 100 MB a second.
#
# May we trust such a line? It says two things: every byte is read once, and the next gigabyte takes as long as the one
# before. `python tests/benchmarks/cost_model.py`, in the course's folder, compares it with whole epochs of files of 1
# and 4 GB on your disk, read from memory and, on Linux, from the disk. It also deals the rows out over four files: for
# one reader **shard files** change nothing, for they are the same reads of the same bytes. They are of use where each
# computer copies its own part to a disk of its own.

# %% [markdown]
# **Checkpoint 4.** Your first epoch takes 9 minutes, the second 2, and nothing was changed. The file has 20 GB, the
# computer 32 GB. What happened, and which of the two numbers may you use for a file of 60 GB?
#
# <details><summary>Answer</summary>
#
# In the first epoch the disk was read; in the second everything came from the page cache. For 60 GB only the first
# counts: about three times 9 minutes, every epoch.
#
# </details>

# %% [markdown]
# ## 5. Long jumps
#
# Bytes are not the whole price. A spinning disk must move its arm before it reads; a network file system must ask a
# server. Reading rows in random order means many such jumps. `shuffle="block"` makes fewer, in two steps.
#
# 1. It permutes blocks of 128 neighbouring rows, opens eight blocks at a time, and shuffles the rows of these eight.
# 2. While eight blocks are served, `read_ahead` names the rows of the next eight, share by share, in the order of the
#    file. The system brings them into its page cache, and the mixed reads find them there.
#
# Here is what one epoch serves in the three orders:

# %%
from helpers.course.figures import order_strip  # one coloured line an image, in the order served

n, batch_size = 70_700, 64  # the training split of Food-101
orders = {kind: EpochOrder(n, batch_size, kind, seed=0) for kind in ("full", "block", None)}
strips = {str(kind): np.concatenate(order.batches(0))[:4096:8] for kind, order in orders.items()}
alt = "Rows in the order served. full: all colours mixed. block: eight colours at a time. None: one colour, file order."
show(order_strip(strips, kind="row"), alt=alt)

# %% [markdown]
# The first 4,096 images are drawn, every eighth. `full` takes rows from everywhere. `None` is still at the beginning
# of the file. `block` comes in slices of 1,024 images, 128 positions in the picture: while eight blocks are open,
# only their eight colours appear.
#
# Now count. The rows of a batch are visited in the order of the file, those that are read ahead too. A jump is a visit
# that does not go on with the next row. We call it *long* when it passes more than 128 rows, which is a block, or 34
# MB.
#
# **Predict:** A batch has 64 rows. How many long jumps does it need in each order, and how many jumps in all?

# %%
visits = {str(kind): order.batches(0) for kind, order in orders.items()}
block = orders["block"]
visits["block, read ahead"] = [block.read_ahead(0, index) for index in range(len(block))]


def jumps_a_batch(visits, longer_than):
    visited = np.concatenate([np.sort(rows) for rows in visits])
    return np.count_nonzero(np.abs(np.diff(visited)) > longer_than) / len(visits)


for name, rows in visits.items():
    print(f"{name:>17}: {jumps_a_batch(rows, 128):4.1f} long jumps a batch, {jumps_a_batch(rows, 1):4.1f} in all")

# %% [markdown]
# `full`: nearly one an image, and all are long. `block` alone has few long ones, one for each open block, but inside
# the blocks it still jumps from image to image. Read ahead, both kinds are nearly gone: one jump for each block of
# 128 rows, and that is two batches. `None`: none at all.
#
# What a jump costs is again an assumption: 10 milliseconds is usual for a spinning disk, and far too much for an SSD.
# Short jumps cost less than that, so the second line is too high.

# %% tags=["constant-time"]
for name, rows in visits.items():
    seconds = len(rows) * jumps_a_batch(rows, 1) * 0.010
    print(f"{name:>17}: {seconds / 60:4.1f} minutes of jumps an epoch")

# %% [markdown]
# Reading ahead needs memory for the eight blocks that are served and the eight that come: 2 x 8 x 34 MB, some 550 MB
# of page cache. And it needs a system that can be asked. Linux can; on macOS and Windows `"block"` saves the long
# jumps only.
#
# What does block shuffle give up? Two rows meet in a batch only if their blocks happen to be open together. In a file
# that is sorted by class, that would be fatal. In a file whose rows were shuffled once when it was built (`build_hdf5`
# does, lesson 01), neighbours have nothing in common, and little is lost. Lesson 05 trains both.
#
# So: `"full"` for memory and SSD. `"block"` where you have *measured* that jumps cost you, in a file that was shuffled
# when it was built.

# %% [markdown]
# **Checkpoint 5.** A file of ten classes is sorted by class, 5,120 rows each, which is 40 blocks. How many classes can
# at most be open at a time, and what do you do with this file?
#
# <details><summary>Answer</summary>
#
# At most eight of the ten, and a batch leans towards those that happen to be open. Build the file again with shuffled
# rows, or use `"full"`.
#
# </details>

# %% [markdown]
# ## 6. Who carries the gradients
#
# This course deals out rows. Exchanging gradients is the job of the backend. The simplest case is **one machine with
# several devices**: `MirroredStrategy` of TensorFlow. One process, one reader, *no* `shard`: each batch is cut into
# equal pieces, one a device, so `batch_size` is that of all devices together.
#
# No second GPU here? TensorFlow can split the CPU into two devices, if asked before anything else. So this runs in a
# child process (`run_in_child`, lesson 04). It shows how the program is written, and says nothing about speed.

# %%
from helpers.course.failures import run_in_child


def train_on_two_devices(path):
    import tensorflow as tf  # for the first time in this process

    cpu, half = tf.config.list_physical_devices("CPU")[0], tf.config.LogicalDeviceConfiguration()
    tf.config.set_logical_device_configuration(cpu, [half, half])
    from helpers import HDF5Sequence, fit_generator
    from helpers.models import small_cnn

    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    train = HDF5Sequence(path, "train", batch_size=64)
    with strategy.scope():  # weights made in here exist once on every device
        model = small_cnn(train.image_shape, train.num_classes, width=8)
        model.compile("adam", "categorical_crossentropy")
    history = fit_generator(model, train, epochs=2, steps_per_epoch=8, verbose=0)
    return strategy.num_replicas_in_sync, train.position, history.history["loss"]


# %% [markdown]
# Apart from the strategy and its `with`, it is the program of lesson 07.
#
# > **Then and now.** `keras.utils.multi_gpu_model` of old books is gone. `MirroredStrategy` took its place, and
# > `fit_generator` needs to know nothing of it.

# %%
outcome = run_in_child(train_on_two_devices, args=(path,), seconds=200)
devices, position, losses = outcome.result
print("devices:", devices)
print("batches trained on:", position[1])
print("loss fell:", losses[1] < losses[0])

# %% [markdown]
# An epoch of the file has 22 batches. Twice `steps_per_epoch=8` are its first 16, so `position` is (0, 16).
#
# And on other hardware? This is what was tried with the versions of this course (Keras 3.15,
# TensorFlow 2.21):
#
# | you have | what carries the gradients | `shard` |
# | --- | --- | --- |
# | one machine, several GPUs | `MirroredStrategy`, as above | none |
# | several machines, Keras on JAX | `keras.distribution` | (process, processes) |
# | several machines, Keras 3 on TensorFlow | a training loop of your own | (process, processes) |
# | several machines, `tf_keras` | `MultiWorkerMirroredStrategy` | (process, processes) |
# | several machines, *many* trainings to run | nothing: one training a machine | none |
#
# Keras 3 on TensorFlow has a gap: `fit` fails under `MultiWorkerMirroredStrategy`. With `tf_keras`, which is Keras 2
# (lesson 03), it works.
#
# Let us run the second line: **several machines, Keras on JAX**. Two processes of this machine play the two computers.
# They meet at an address that all of them know, here a free port of this machine. `DataParallel` averages the
# gradients; `auto_shard_dataset=False` tells Keras that we deal out the rows ourselves. This is the whole program of
# each of them:


# %%
def train_as(process, processes, address):
    os.environ["KERAS_BACKEND"] = "jax"  # before Keras is imported
    import jax

    if processes > 1:
        jax.distributed.initialize(address, processes, process, heartbeat_timeout_seconds=10)
    import keras

    from helpers import HDF5Sequence, fit_generator

    if processes > 1:
        keras.distribution.set_distribution(keras.distribution.DataParallel(auto_shard_dataset=False))
    keras.utils.set_random_seed(0)  # the same first weights everywhere
    layers = [keras.layers.Rescaling(1 / 255), keras.layers.Flatten(), keras.layers.Dense(8, activation="softmax")]
    model = keras.Sequential([keras.Input((64, 64, 3), dtype="uint8"), *layers])
    model.compile(keras.optimizers.SGD(0.01), "categorical_crossentropy")
    train = HDF5Sequence(path, "train", 64 // processes, drop_last=True, shard=(process, processes))
    return fit_generator(model, train, steps_per_epoch=10, epochs=2, verbose=0).history["loss"]


# %% [markdown]
# `drop_last=True`, because of section 3: with last batches of different sizes the weights of the two would drift
# apart, and no error would say so. `fit_generator` therefore refuses such a sequence here, and one whose `shard` was
# forgotten.
#
# **Predict:** Two processes with 32 rows each, or one with 64. Which of the three lists of losses will be the same?

# %%
from concurrent.futures import ThreadPoolExecutor  # each thread waits for a child

from helpers.course.failures import free_address  # of this machine: "127.0.0.1:" and a number that is free


def train_together(processes):
    address = free_address()
    jobs = [(process, processes, address) for process in range(processes)]
    with ThreadPoolExecutor() as threads:
        return list(threads.map(lambda job: run_in_child(train_as, args=job, seconds=200).result, jobs))


one, two = train_together(1), train_together(2)
print("losses of how many processes:", len(one), "and", len(two))
print("equal up to rounding:", np.allclose(two, one[0], rtol=1e-4))

# %% [markdown]
# All three. And if one computer fails? The other one waits for its gradient, and after 10 seconds without a sign of
# life (`heartbeat_timeout_seconds`) its program ends with an error. The tests of this course kill and freeze one of two
# to see that. Nobody goes on alone: start all of them again.
#
# Look at the last line of the table first. Ten trainings on ten machines are ten times as fast as one after the
# other, and need no line of this lesson.

# %% [markdown]
# **Checkpoint 6.** You move a training with `batch_size=64` to a machine with 4 GPUs under `MirroredStrategy`. You want
# 64 images a GPU. What do you pass as `batch_size` and as `shard`? And with four processes on JAX?
#
# <details><summary>Answer</summary>
#
# `MirroredStrategy`: `batch_size=256`, no `shard`. Four processes: `batch_size=64` and `shard=(process, 4)`. The global
# batch is 256 in both.
#
# </details>

# %% [markdown]
# ## Key points
#
# - `shard=(index, count)` deals out every global batch. Same file, seed and `batch_size` everywhere, or rows get lost.
# - Processes train exactly like one when batches are equal in size and no layer mixes images or draws random numbers.
# - A speed measured from the page cache says nothing about a file larger than memory.

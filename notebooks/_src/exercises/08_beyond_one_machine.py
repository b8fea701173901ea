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
# # Exercises 08 · Beyond one machine
#
# **In these exercises you will** choose tools for more devices, deal out the rows of a file, find mistakes that no
# process reports, average gradients, count what block shuffle saves, and compute what an epoch of your own file costs.
#
# **You need** [lesson 08](../08_beyond_one_machine.ipynb). All of it runs on one machine, without Keras.
#
# <!-- how -->
#
# <!-- facts -->

# %% tags=["nbval-ignore-output"]
from helpers.course.checks import check  # looks at an answer, and gives a hint
from helpers.course.lesson import open_lesson  # versions and device, quiet logs, one style of pictures

open_lesson()

# %% [markdown]
# ## 08.1 · Four ways to have more devices
#
# *Warm-up, 2 points.* Every GPU shall train on 32 images in each step. The file is read with
# `HDF5Sequence(path, "train", batch_size=..., shard=...)`. In A, B and C all GPUs train one model together; you write
# the program of the machine that is named. In D ten models are trained, to compare ten learning rates.
#
# | | you have | the program of |
# | --- | --- | --- |
# | A | one machine with 4 GPUs; Keras 3 on TensorFlow | this machine |
# | B | two machines with one GPU each; Keras on JAX | the second machine |
# | C | three machines with one GPU each; Keras 3 on TensorFlow | the first machine |
# | D | ten machines with one GPU each | any of them |
#
# | | tool |
# | --- | --- |
# | 1 | `MirroredStrategy` |
# | 2 | `keras.distribution` |
# | 3 | a training loop of your own |
# | 4 | nothing: each machine trains for itself |
# | 5 | `MultiWorkerMirroredStrategy` |
#
# **Task.** `answer` is a dictionary with the keys `"A"` to `"D"`. Each value is `(tool, batch_size, shard)`: the tool's
# number, the `batch_size` that the program passes, and its `shard`, which is a pair of numbers, or `None` for none.
#
# **Look again at** [lesson 08, section 6](../08_beyond_one_machine.ipynb#6.-Who-carries-the-gradients).

# %%
### BEGIN SOLUTION
answer = {
    "A": (1, 4 * 32, None),  # one process, one reader: the strategy cuts each batch into four
    "B": (2, 32, (1, 2)),  # indices begin at 0, so the second process is number 1
    "C": (3, 32, (0, 3)),  # tool 5 would be the natural choice, but fit of Keras 3 fails under it
    "D": (4, 32, None),  # ten trainings share no step: each reads all rows
}
### END SOLUTION

# %%
check("08.1", answer).points

# %% [markdown]
# ## 08.2 · Who reads which rows?
#
# *4 points.* What `EpochOrder` does is short enough to write yourself.
#
# **Task.** Write a function `answer(order, batch_size, index, count)`. `order` is an array: the rows of an epoch in the
# order in which they are served. The function gives the batches of process `index` of `count`, as a list of lists (or
# arrays) of rows:
#
# - the order is cut into global batches, each with `batch_size` rows for every process; the last may have fewer;
# - each of them is dealt out like cards: its first row to process 0, the next to process 1, and so on, then again;
# - all processes have the same number of batches, and none is empty. A rest that is too short for that is dropped.
#
# `answer(np.arange(16), 2, 0, 3)` gives `[[0, 3], [6, 9], [12, 15]]`.
#
# **Look again at** [lesson 08, section 1](../08_beyond_one_machine.ipynb#1.-One-file,-several-readers).


# %%
### BEGIN SOLUTION
def answer(order, batch_size, index, count):
    size = batch_size * count  # of a global batch
    whole = [order[start : start + size] for start in range(0, len(order), size)]
    # With fewer rows than processes, one process would have nothing, and the others would wait for it.
    return [batch[index::count] for batch in whole if len(batch) >= count]


### END SOLUTION

# %%
check("08.2", answer).points

# %% [markdown]
# ## 08.3 · Mistakes that nobody reports
#
# *5 points.* No process sees the rows of the others, so a wrong division raises no error. But it can be seen before the
# training, by putting the rows of all side by side. Here are four divisions of a file of 24 rows, sorted by class:

# %%
import numpy as np  # arrays

from helpers import EpochOrder  # which rows an epoch reads, and in which order

classes = np.repeat([0, 1, 2, 3], 6)  # the class of each row


def divided(seeds, shards):
    pairs = zip(seeds, shards, strict=True)
    return [EpochOrder(24, 4, "full", seed=seed, shard=shard).batches(epoch=0) for seed, shard in pairs]


divisions = {
    "by shard": divided([0, 0], [(0, 2), (1, 2)]),
    "a seed for each process": divided([0, 1], [(0, 2), (1, 2)]),
    "shard forgotten": divided([0, 0], [(0, 1), (0, 1)]),
    "halves of the file": [np.split(np.arange(12), 3), np.split(np.arange(12, 24), 3)],
}
for name, parts in divisions.items():
    print(f"{name:>23}: first batches", [part[0].tolist() for part in parts])

# %% [markdown]
# **Task.** Write a function `answer(parts, classes)`. `parts` has one list for each process: its batches of one epoch,
# as arrays of rows. `classes` is an array with the class of each row of the file. It gives a list (or a set) of those
# words that are true; for a faultless division it is empty.
#
# | word | what is wrong |
# | --- | --- |
# | `"twice"` | a row is read more than once in the epoch, by two processes or by one |
# | `"never"` | rows of the file are read by nobody, and they are at least as many as there are processes |
# | `"steps"` | the processes have different numbers of batches: in the end one waits for the others |
# | `"sizes"` | in some step the batches differ in size (of those processes that have a batch in this step) |
# | `"classes"` | a process meets a class of the file in none of its batches |
#
# **Look again at** [lesson 08, section 2](../08_beyond_one_machine.ipynb#2.-Three-processes-at-work) and
# [section 3](../08_beyond_one_machine.ipynb#3.-Three-parts,-one-step).


# %%
### BEGIN SOLUTION
def answer(parts, classes):
    of_each = [np.concatenate(part) for part in parts]
    times = np.bincount(np.concatenate(of_each), minlength=len(classes))  # how often each row is read
    most = max(map(len, parts))
    sizes = [{len(part[k]) for part in parts if k < len(part)} for k in range(most)]  # different ones in each step
    found = {
        "twice": times.max() > 1,
        "never": np.sum(times == 0) >= len(parts),  # fewer are dropped by right
        "steps": len(set(map(len, parts))) > 1,
        "sizes": any(len(different) > 1 for different in sizes),
        "classes": any(set(classes[rows]) != set(classes) for rows in of_each),
    }
    return [word for word, is_true in found.items() if is_true]


### END SOLUTION

# %%
check("08.3", answer).points

# %% [markdown]
# ## 08.4 · Exactly like one
#
# *4 points.* Three processes train a model together on 1,400 rows. Each makes batches of 20, and they average their
# three gradients. When is that the training of one process with batches of 60, up to rounding?
#
# | | set-up |
# | --- | --- |
# | a | same file and seed, `drop_last=True`, a plain mean of the gradients; convolutions and dense layers |
# | b | like a, but `drop_last=False` |
# | c | like a, but each process takes its own number as the seed of the order |
# | d | like a, but with batch normalisation after each convolution |
# | e | like a, but with a dropout layer |
# | f | like b, but the gradients are weighted by the sizes of their batches |
# | g | like a, with augmentation that draws its random numbers from (seed, epoch, row) |
#
# **Task.** `answer` is a pair of a function and a text.
#
# - The function has the arguments `(gradients, sizes)`. `gradients` has one list for each process, with one array for
#   each weight of the model: the gradient of the mean loss of its batch. `sizes` says how many rows the batches have.
#   It gives a list of arrays: the gradient of the mean loss of all rows together.
# - The text has the letters of those set-ups that train exactly like one process, such as `"bcd"`.
#
# **Look again at** [lesson 08, section 3](../08_beyond_one_machine.ipynb#3.-Three-parts,-one-step).


# %%
### BEGIN SOLUTION
def mean_gradient(gradients, sizes):
    of_weights = zip(*gradients, strict=True)  # from one list a process to one tuple a weight
    return [np.average(parts, axis=0, weights=sizes) for parts in of_weights]


# b: the last step has 7, 7 and 6 rows, and the plain mean counts an image in the 6 too much; f weights, and is right.
# c: the three batches are no longer thirds of one. d mixes the images of a batch, e throws dice of its own in each
# process. g throws dice, too, but they are made from the row, and not from the process.
answer = (mean_gradient, "afg")
### END SOLUTION

# %%
check("08.4", answer).points

# %% [markdown]
# ## 08.5 · What block shuffle saves, and what it gives up
#
# *3 points.* Two numbers weigh the orders of an epoch against each other: how often a disk has to jump far, and how
# well the classes are mixed. The picture shows a file of 24 rows, sorted into three classes, in three orders. Blocks
# have 4 rows, and two are open at a time: until these 8 rows are served, only their classes appear.

# %%
from helpers.course import figures  # the pictures of this course

kinds = np.repeat([0, 1, 2], 8)
orders = {name: EpochOrder(24, 4, name, seed=8, block_rows=4, open_blocks=2) for name in ("full", "block", None)}
strips = {str(name): kinds[np.concatenate(order.batches(0))] for name, order in orders.items()}
figures.show(figures.order_strip(strips))

# %% [markdown]
# **Task.** Write a function `answer(batches, classes, block_rows)` that gives two numbers, `(jumps, kinds)`. `batches`
# are those of one epoch, as arrays of rows; `classes` has the class of each row of the file.
#
# - `jumps`: long jumps **a batch**, that is of the whole epoch, divided by the number of batches. Within a batch the
#   rows are visited in the order of the file; then comes the next batch. From one visit to the next it is a long jump
#   if the numbers of the two rows differ by more than `block_rows`, forwards or backwards.
# - `kinds`: how many different classes a batch has, as a mean over the batches.
#
# For the batches `[0, 500, 1]` and `[900]` with `block_rows=128` there are two long jumps: 0, 1, 500, 900. So `jumps`
# is 1.0.
#
# **Look again at** [lesson 08, section 5](../08_beyond_one_machine.ipynb#5.-Long-jumps).


# %%
### BEGIN SOLUTION
def answer(batches, classes, block_rows):
    visits = np.concatenate([np.sort(rows) for rows in batches])  # in file order within a batch, not beyond it
    jumps = np.count_nonzero(np.abs(np.diff(visits)) > block_rows) / len(batches)
    kinds = np.mean([len(np.unique(classes[rows])) for rows in batches])
    return jumps, kinds


### END SOLUTION

# %%
check("08.5", answer).points

# %% [markdown]
# ## 08.6 · An epoch of your own file
#
# *5 points.* Before a file of the next size is built, its cost can be computed. These are the rules, those of the
# lesson:
#
# - The file holds `row_bytes` bytes of pixels for each row. The processes run on one machine with **one disk**, and
#   share the rows of an epoch by `shard`.
# - The first epoch reads from the disk. Later ones read from the page cache if all pixels fit into the memory that is
#   free for it. If they do not fit, count on nothing from there: the disk again.
# - Workers read while the model trains. An epoch lasts as long as the longer of the two.
# - Each process keeps three numbers of 8 bytes for each row of the whole file: a label, and the order of two epochs.
#
# The machine is a dictionary. Rates are bytes a second, for all processes together; `"training"` are the seconds that
# the model needs for an epoch.

# %%
machine = {"disk": 100e6, "cache": 4e9, "free": 5e9, "processes": 3, "training": 120.0}
rows, row_bytes = 70_700, 299 * 299 * 3
print(f"{rows * row_bytes / 1e9:.1f} GB of pixels, {machine['free'] / 1e9:.1f} GB free")

# %% [markdown]
# **Task.** Write a function `answer(rows, row_bytes, machine)`. It gives a dictionary of three numbers:
#
# - `"first"`: the seconds of the first epoch;
# - `"later"`: the seconds of each later one;
# - `"memory"`: the bytes of labels and orders, of all processes together.
#
# **On your own file:** `rows, *shape = file["train_img"].shape` and `row_bytes = np.prod(shape)`, if its pixels are
# uint8. `psutil.virtual_memory().available` says what is free now. For the rate of the disk, time an epoch of reading
# after a restart of the computer. Where does your file leave the page cache? And which would help more: a faster disk,
# more memory, or a faster model?
#
# **Look again at** [lesson 08, section 4](../08_beyond_one_machine.ipynb#4.-What-larger-data-costs).


# %%
### BEGIN SOLUTION
def answer(rows, row_bytes, machine):
    pixels = rows * row_bytes
    fits = pixels <= machine["free"]
    # Not divided by the processes: they share the rows, and the disk as well.
    from_disk = pixels / machine["disk"]
    from_cache = pixels / machine["cache"]
    return {
        "first": max(from_disk, machine["training"]),
        "later": max(from_cache if fits else from_disk, machine["training"]),
        "memory": rows * 3 * 8 * machine["processes"],  # each process makes the whole order for itself
    }


### END SOLUTION

# %%
check("08.6", answer).points

# ---
# jupyter:
#   lesson:
#     keras: false
#     reference: true
#     gpu: not needed
#     files: 25 MB in data/, and 50 MB more while it runs
#     max_minutes: 4
#     max_memory_mb: 400
# ---

# %% [markdown]
# # 04 · When workers break
#
# **In this lesson you will build** small labs. Each makes one failure of HDF5 files and worker processes happen,
# reads its error, repairs it, and runs again.
#
# **You can, at the end,**
#
# 1. say from a lock error who holds what, and keep readers and writers out of each other's way;
# 2. say which open handles survive a fork, a pickle or the end of a `with` block, and write code that needs none to;
# 3. give every worker random numbers and batches of its own;
# 4. notice a worker that died or a generator that ran dry, before you wait for ever or train on nothing;
# 5. say beforehand what arrays, labels and queues need in memory, and tell a finished file from a half-written one;
# 6. test advice about HDF5 and workers by experiment.
#
# **You need** lessons 01 (datasets, chunks) and 03 (index-based datasets). Labs that need Linux (fork, signals,
# memory limits) print one line elsewhere.
#
# <!-- facts -->

# %% tags=["nbval-ignore-output"]
from helpers.course.lesson import open_lesson  # versions and device, quiet logs, one style of pictures

open_lesson()

# %% [markdown]
# ## 1. Find your error
#
# You come with an error? Find it here and jump. (*Run > Run All Above Selected Cell* makes the cells there work, in
# a minute or two.) Everybody else reads on.
#
# | What you see | Section |
# | :--- | :--- |
# | `unable to lock file, errno = 11` | [3 · A writer locks readers out][3] |
# | `unable to lock file, errno = 37` | [4 · A disk that cannot lock][4] |
# | `unable to truncate a file which is already open`; `name already exists` | [5 · A cell that fails twice][5] |
# | wrong images now and then; `filter returned failure` | [6 · One handle inherited by workers][6] |
# | handles are opened on first use, and workers share them all the same | [7 · Opened late and still inherited][7] |
# | `h5py objects cannot be pickled` | [8 · A handle in a pickle][8] |
# | `identifier is not of specified type`; `invalid identifier type to function` | [9 · Used after close][9] |
# | `Can't get attribute 'Generator' on ...`; an epoch that never starts | [10 · A class from a notebook cell][10] |
# | `No such file or directory`, in a worker only | [11 · A file that workers cannot find][11] |
# | augmentation repeats itself in every worker | [12 · Twin random numbers][12] |
# | `generator already executing`; batches arrive twice | [13 · One generator and two workers][13] |
# | `fit` stands still, without an error | [14 · A worker that died][14] |
# | `Your input ran out of data`; an epoch with a loss of 0.0 | [15 · A generator that runs dry][15] |
# | `Unable to allocate` | [16 · The whole dataset at once][16] |
# | labels that take hundreds of MB; `data type float64` | [17 · Labels that weigh eight times as much][17] |
# | memory fills up in the first epoch, with a long queue | [18 · A queue of 100 batches][18] |
# | black images, no labels; `truncated file`; `file signature not found` | [19 · A file that only looks finished][19] |
# | the advice to put a `Lock` around the file | [20 · A lock around one handle][20] |
# | a segmentation fault | [21 · The article on trial][21] |
#
# [3]: #3.-A-writer-locks-readers-out
# [4]: #4.-A-disk-that-cannot-lock
# [5]: #5.-A-cell-that-fails-twice
# [6]: #6.-One-handle-inherited-by-workers
# [7]: #7.-Opened-late-and-still-inherited
# [8]: #8.-A-handle-in-a-pickle
# [9]: #9.-Used-after-close
# [10]: #10.-A-class-from-a-notebook-cell
# [11]: #11.-A-file-that-workers-cannot-find
# [12]: #12.-Twin-random-numbers
# [13]: #13.-One-generator-and-two-workers
# [14]: #14.-A-worker-that-died
# [15]: #15.-A-generator-that-runs-dry
# [16]: #16.-The-whole-dataset-at-once
# [17]: #17.-Labels-that-weigh-eight-times-as-much
# [18]: #18.-A-queue-of-100-batches
# [19]: #19.-A-file-that-only-looks-finished
# [20]: #20.-A-lock-around-one-handle
# [21]: #21.-The-article-on-trial
#
# Some faults print nothing and have nothing to do with workers. Other lessons show them:
#
# | What you see | Lesson and section |
# | :--- | :--- |
# | nothing is learned; labels belong to other images | [03 · 6. The shuffled index generator][03-6] |
# | some rows are never trained on | [05 · 12. Epochs and steps][05-12] |
# | rows in random order are slow to read | [05 · 7. Rows, not lists][05-7] |
# | even a single image is slow to read | [01 · 4. Chunks][01-4] |
# | the loss jumps: a batch holds one class only | [05 · 6. Full shuffle, block shuffle, no shuffle][05-6] |
# | augmented images have the labels of others | [06 · 5. Labels that get lost][06-5] |
# | class weights change nothing | [07 · 2. Look at the file before you pay for hours][07-2] |
#
# [03-6]: 03_from_loop_to_generator.ipynb#6.-The-shuffled-index-generator
# [05-12]: 05_safe_per_worker_generator.ipynb#12.-Epochs-and-steps
# [05-7]: 05_safe_per_worker_generator.ipynb#7.-Rows,-not-lists
# [01-4]: 01_build_the_hdf5_file.ipynb#4.-Chunks
# [05-6]: 05_safe_per_worker_generator.ipynb#6.-Full-shuffle,-block-shuffle,-no-shuffle
# [06-5]: 06_augmentation.ipynb#5.-Labels-that-get-lost
# [07-2]: 07_fit_generator_on_gpu.ipynb#2.-Look-at-the-file-before-you-pay-for-hours
#
# Not there? [ERRORS.md](ERRORS.md) lists every failure that the kit knows. Or ask in a terminal, with the error or in
# your own words: `python -m helpers.doctor --error "TEXT"`.

# %% [markdown]
# ## 2. Behind glass
#
# First the data: the training images of the toy file. They are small enough to hold in memory, so we keep them as the
# *truth* that later reads are compared with. Files that labs make go into a folder of their own.

# %%
import shutil  # copies files, removes folders
from pathlib import Path  # names of files

import h5py  # HDF5 files from Python
import numpy as np  # arrays

from data_scripts.make_toy_food import toy_food_file  # draws plates of food into an HDF5 file

path = toy_food_file("data", classes=8, per_class=250, size=64, seed=0)
with h5py.File(path, "r") as file:
    truth = file["train_img"][:]
print("the truth:", truth.shape, truth.dtype)

folder = Path("data/lab_04")
shutil.rmtree(folder, ignore_errors=True)
folder.mkdir()

# %% [markdown]
# A lab must not take this notebook down. So each runs in a *child process*: `run_in_child` starts a fresh Python with
# limits, runs one function there, and says how it ended. `lab` prints that, and keeps it under a name for the verdict
# at the end.
#
# When a lab fails with an error that the kit knows, a *card* is printed below it: what happened, why, where to look,
# the fix. Many failures print no error. Then `ask` finds the card from what you see, in your own words. A card that
# was printed before is only named.

# %%
from helpers.course.failures import run_in_child  # one function, one child, with limits
from helpers.error_search import explain  # the card that belongs to an error, or to a symptom

labs, cards = {}, {}  # name of a lab -> how it ended; card -> where it was printed first


def card_text(card, place):
    again = cards.setdefault(card, place) != place
    return "\n" + (f"{card.number} · {card.title}: this card stands above." if again else str(card))


def ask(words):
    card = explain(words)
    print(card_text(card, words) if card else "nothing found")


def lab(name, job, *args, **limits):
    outcome = labs[name] = run_in_child(job, args=args, **limits)
    quiet_success = outcome.ok and not outcome.last_error_line and outcome.output
    text = outcome.output.rstrip() if quiet_success else str(outcome)
    card = outcome.diagnosis
    print(text.replace(str(card), card_text(card, name)) if card else text)


# %% [markdown]
# Two labs to begin with. One goes well. The other could not go worse: `ctypes` reads memory at address 0, where no
# process may read.
#
# **Predict:** The second lab crashes. Will this notebook live on?

# %%
import ctypes  # calls C code


def say_hello():
    print("hello from a child")


def crash():
    ctypes.string_at(0)


lab("hello", say_hello)
lab("control: a crash", crash)

# %% [markdown]
# It does: only the child died. This lab is our *control*. If one of the labs below crashes like that, we will see it.

# %% [markdown]
# ## 3. A writer locks readers out
#
# HDF5 locks a file for as long as it is open. Readers share the lock. A writer wants it alone.
#
# **Predict:** This notebook opens the file for writing (`"r+"`). Meanwhile a child wants to read one label. What does
# it get?

# %%
food = folder / "food.h5"
shutil.copy(path, food)


def read_one():
    with h5py.File(food, "r") as file:
        print("read a label:", file["train_labels"][0].argmax())


def write_one():
    with h5py.File(food, "r+") as file:
        file.attrs["note"] = "checked"
    print("wrote a note")


with h5py.File(food, "r+"):
    lab("a writer, then a reader", read_one)

# %% [markdown]
# The error does not say who holds the lock. Mostly it is you: a notebook whose kernel still runs, with a file that
# was never closed.
#
# **Predict:** Now this notebook reads. First a child wants to write, then another one wants to read. Who fails?

# %%
with h5py.File(food, "r"):
    lab("a reader, then a writer", write_one)
    lab("a reader, then a reader", read_one)

# %% [markdown]
# The writer fails, with the same error. Readers do not disturb each other, and training only reads.
#
# **The repair:** never write into a file that others may read. Write a new file under another name, and rename it
# when it is complete. `HDF5Writer` does that, even while somebody reads the old file:

# %%
from helpers import HDF5Writer  # writes NAME.part, and renames it at the end


def build_again():
    with HDF5Writer(food, (64, 64, 3), ["bread", "soup"]) as writer:
        writer.append("train", truth[:4], [0, 1, 0, 1])


with h5py.File(food, "r") as old:
    lab("a reader, then HDF5Writer", build_again)
    print("who has it open still sees", len(old["train_img"]), "images")
with h5py.File(food, "r") as new:
    print("who opens it now sees", len(new["train_img"]))

# %% [markdown]
# **Checkpoint 1a.** Your training has been reading `food.h5` since yesterday. A colleague opens it with `"r+"` to
# mend a label. Who gets an error?
#
# <details><summary>Answer</summary>
#
# The colleague, at once. Your training goes on. Had the colleague come first, your training would not have started.
#
# </details>

# %% [markdown]
# ## 4. A disk that cannot lock
#
# Some network disks have no locks. Here is none, but one can be played: after `refuse_locks`, Linux answers each lock
# request of the process as such a disk does.
#
# **Predict:** Nobody else has the file open. Can a child read it there?

# %%
from helpers.course.disks import refuse_locks  # plays a disk without locks, for one process


def read_there(locking):
    refuse_locks()
    with h5py.File(path, "r", locking=locking) as file:
        print("read", len(file["train_img"]), "rows")


lab("a disk without locks", read_there, None, needs="a filter for system calls")

# %% [markdown]
# Nobody holds this file. The disk has no lock to give, and HDF5 does not go on without one. **The repair:** do not
# ask.

# %%
lab("a disk without locks, locking=False", read_there, False, needs="a filter for system calls")

# %% [markdown]
# **Predict:** Now a writer has a file open, with `locking=False`, and a reader comes, with `locking=False` too. Will
# anybody complain?


# %%
def read_unlocked():
    with h5py.File(food, "r", locking=False) as file:
        print("read a label:", file["train_labels"][0].argmax())


with h5py.File(food, "r+", locking=False):
    lab("a writer and a reader without locks", read_unlocked)

# %% [markdown]
# Nobody does. That is the price. Use `locking=False` for files that nobody writes to any more.

# %% [markdown]
# ## 5. A cell that fails twice
#
# This time the other opener is you. A cell opens a file and fails on the way. (`fails_with` prints an expected error
# and goes on.)

# %%
from helpers.course.lesson import fails_with  # shows an error that is meant to happen

with fails_with(ZeroDivisionError):
    file = h5py.File(folder / "mine.h5", "w")
    file.attrs["mean"] = 1 / 0

# %% [markdown]
# **Predict:** You correct the mistake and run the cell again. Does it work now?

# %%
with fails_with(OSError):
    file = h5py.File(folder / "mine.h5", "w")
    file.attrs["mean"] = 1 / 2

ask("unable to truncate a file which is already open")

# %% [markdown]
# No: you get another error. (`ask` takes a piece of it.) The file of the first try is still open, in the variable
# `file`.
#
# **The repair:** close it, and open files in a `with` block. That closes the file also when a line inside fails, so a
# second run works.

# %%
file.close()
with fails_with(ZeroDivisionError), h5py.File(folder / "mine.h5", "w") as mine:
    mine.attrs["mean"] = 1 / 0
with h5py.File(folder / "mine.h5", "w") as mine:
    mine.attrs["mean"] = 1 / 2
print("after the second run:", mine)

# %% [markdown]
# A relative of this failure: `"a"` opens a file and keeps what is in it.
#
# **Predict:** A cell adds a dataset to such a file, and is run twice. What does the second run say?


# %%
def add_labels():
    with h5py.File(folder / "grown.h5", "a") as grown:
        grown["labels"] = np.arange(3)


(folder / "grown.h5").unlink(missing_ok=True)  # so that you can run this cell again
add_labels()
with fails_with(OSError):
    add_labels()

with h5py.File(folder / "grown.h5", "a") as grown:
    del grown["labels"]
add_labels()
print("after del: no error")

# %% [markdown]
# The name is there already. Delete it first, or better make the whole file anew with `"w"`. (`create_dataset` says the
# same as a `ValueError`.)

# %% [markdown]
# **Checkpoint 1b.** `errno = 11`, `errno = 37`, "already open". Which one is about another process, which about this
# one, and which about the disk?
#
# <details><summary>Answer</summary>
#
# 11: another process has the file open. 37: the disk has no locks. "Already open": this very process has it open.
#
# </details>

# %% [markdown]
# ## 6. One handle inherited by workers
#
# A *fork* copies a whole process, open handles included. Here is a small pool of workers made that way: worker `n`
# runs `work(n)`, and sends the answer back.

# %%
import multiprocessing  # processes, and pipes between them


def in_workers(work, count):
    fork = multiprocessing.get_context("fork")
    answers, together = fork.SimpleQueue(), fork.Barrier(count)

    def begin(number):
        together.wait()  # until all are there
        answers.put((number, work(number)))

    workers = [fork.Process(target=begin, args=(number,)) for number in range(count)]
    for worker in workers:
        worker.start()
    found = dict(answers.get() for _ in workers)
    for worker in workers:
        worker.join()
    return [found[n] for n in range(count)]


# %% [markdown]
# The lab opens the file once, *before* the fork, and reads all of it, so that HDF5 knows already where each image lies.
# Then four workers read random rows through the inherited handle and compare each image with the truth.


# %%
def compare(read, rows):
    wrong, errors = 0, []
    for row in rows:
        try:
            wrong += not np.array_equal(read(row), truth[row])
        except OSError as error:
            errors.append(str(error))
    return wrong, errors


def share_a_handle(open_file, reads):
    data = open_file()["train_img"]
    _ = data[:]

    def work(number):
        rows = np.random.default_rng(number).integers(len(truth), size=reads)
        return compare(data.__getitem__, rows)

    wrong, errors = zip(*in_workers(work, 4), strict=True)
    print(f"{4 * reads:,} reads by 4 workers; wrong images: {'some' if sum(wrong) else 'none'}")
    return sum(wrong), sum(errors, [])


# %% [markdown]
# **Predict:** The file is opened in the usual way, by its path. How many of 20,000 images will be wrong?


# %%
def by_path():
    return h5py.File(path, "r")


lab("inherited, opened by path", share_a_handle, by_path, 5_000, needs="fork")
wrong, errors = labs["inherited, opened by path"].result or (None, [])
print("wrong images:", wrong, " failed reads:", len(errors))

# %% [markdown]
# None, and no read failed. Many texts on the web promise wrong data and errors here. They were right when they were
# written. An open file has a *position*, and a fork does not copy it: all handles share one. Up to HDF5 1.10.4 the
# library moved it (`lseek`) and then read from there (`read`). Between the two calls, another process could move it
# away. Since HDF5 1.10.5 (February 2019) one call asks for "12,288 bytes at place p" (`pread`), and the position does
# not matter any more. The wheels of h5py 2.10 still held the old library. Which HDF5 you have stands in the first
# output of this page.
#
# Now the same file, opened by Python and handed to h5py as a *file object*. People do that to read from archives or
# from a cloud.
#
# **Predict:** Same file, same rows, same workers; only `open(path, "rb")` is new. Wrong images?


# %%
def by_file_object():
    return h5py.File(path.open("rb"), "r")


lab("inherited, Python file object", share_a_handle, by_file_object, 5_000, needs="fork")
ask("some images are wrong, but only with several workers")

# %% [markdown]
# Wrong images, and no error: training would go on with them. Who only sees that something is odd has no text to search
# for. So the lab ends with `ask`.
#
# A compressed file is a little kinder, because damaged chunks do not unpack:

# %%
packed = folder / "packed.h5"
with h5py.File(packed, "w") as file:
    file.create_dataset("train_img", data=truth, chunks=(1, 64, 64, 3), compression="gzip")


def by_packed_file_object():
    return h5py.File(packed.open("rb"), "r")


lab("inherited, file object, gzip", share_a_handle, by_packed_file_object, 5_000, needs="fork")
wrong, errors = labs["inherited, file object, gzip"].result or (None, [])
print("some reads failed:", any("filter returned failure" in error for error in errors))

# %% [markdown]
# How many it was in this run (another number each time):

# %% tags=["nbval-ignore-output"]
for name in ("inherited, opened by path", "inherited, Python file object", "inherited, file object, gzip"):
    wrong, errors = labs[name].result or (None, [])
    print(f"{name:30} wrong images: {wrong}   failed reads: {len(errors)}   {errors[:1]}")

# %% [markdown]
# Why? A Python file object works as old HDF5 did: it goes to place p, then reads on from there. The fork copied the
# file object, but not the open file behind it, with its position. That exists once, and belongs to all:

# %%
from helpers.course import figures  # charts and drawings

figures.show(figures.fork_and_handles())

# %% [markdown]
# Now in slow motion, with nothing happening at the same time. HDF5 still has a driver that reads from the position,
# the old way: `driver="stdio"`. The parent reads row 0. Then a worker reads row 700, and ends. Then the parent reads
# row 1.
#
# **Predict:** What does the parent get for row 1?


# %%
def take_turns():
    data = h5py.File(path, "r", driver="stdio")["train_img"]
    first = data[0]
    in_workers(lambda _: data[700], 1)
    second = data[1]
    print("row 0 right:", np.array_equal(first, truth[0]), " row 1 right:", np.array_equal(second, truth[1]))
    return second


lab("taking turns on one handle", take_turns, needs="fork")
if labs["taking turns on one handle"].ok:
    images = [truth[1], labs["taking turns on one handle"].result, truth[701]]
    figures.show(figures.image_grid(images, ["row 1", "read as row 1", "row 701"]))

# %% [markdown]
# A strip of row 1, which had been read ahead. The rest comes from where the worker stopped reading: it is row 701,
# shifted a little, so that even the colours are wrong. No error, and no two reads at the same time.
#
# **The repair:** each process opens the file itself, by path.


# %%
def open_in_each(reads):
    def work(number):
        rows = np.random.default_rng(number).integers(len(truth), size=reads)
        with h5py.File(path, "r") as file:
            return compare(file["train_img"].__getitem__, rows)

    wrong, errors = zip(*in_workers(work, 4), strict=True)
    print(f"{4 * reads:,} reads by 4 workers; wrong images: {sum(wrong)}, failed reads: {len(sum(errors, []))}")
    return sum(wrong), sum(errors, [])


lab("opened in each worker", open_in_each, 5_000, needs="fork")

# %% [markdown]
# **Checkpoint 2a.** An inherited handle that was opened by path gave no wrong image. Why open one in each worker all
# the same?
#
# <details><summary>Answer</summary>
#
# It is right today by the grace of one system call. It breaks with another way of opening (file objects, other
# drivers), and where workers are not forked, a handle does not travel at all (section 8). A handle in each process is
# right everywhere, and costs one open.
#
# </details>

# %% [markdown]
# ## 7. Opened late and still inherited
#
# A well-known recipe for generators opens the file not in `__init__` but at the first batch, "so that each worker
# opens its own". Does it work with Keras? The next function trains a tiny Keras model with two worker processes.
# `get_batch` makes the batches of an index-based dataset.
#
# > **Then and now.** `fit_generator(generator, workers=2, use_multiprocessing=True)` became `fit(dataset)`: in Keras
# > 3 the two settings belong to the dataset, a `keras.utils.PyDataset`. `helpers.fit_generator` takes them as before.

# %%
from helpers.course.lesson import quiet_stderr  # TensorFlow writes to the terminal while it is imported


def tiny_model(keras):
    model = keras.Sequential([keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(8, activation="softmax")])
    model.compile(loss="categorical_crossentropy")
    return model


def fit_with_two_workers(get_batch, epochs=1):
    with quiet_stderr():
        import keras  # in the child only: it takes seconds, and 600 MB

        class Images(keras.utils.PyDataset):
            handle, opened_by, epoch = None, None, 0

            def __len__(self):
                return 8

            def __getitem__(self, index):
                return get_batch(self, index)

            def on_epoch_end(self):
                self.epoch += 1

        model = tiny_model(keras)
        print("training starts")
        model.fit(Images(workers=2, use_multiprocessing=True), epochs=epochs, verbose=0)


# %% [markdown]
# The lab notes, for each batch, which process made it, and which process had opened the handle it used.

# %%
import os  # process ids
from collections import Counter  # counts equal things


def drain(pipe):
    while not pipe.empty():
        yield pipe.get()


def watch_handles(open_it):
    notes, parent = multiprocessing.get_context("fork").SimpleQueue(), os.getpid()

    def get_batch(dataset, index):
        open_it(dataset)
        who = "the parent" if os.getpid() == parent else "a worker"
        opener = "itself" if dataset.opened_by == os.getpid() else "the parent"
        notes.put(f"made in {who}, handle opened by {opener}")
        rows = slice(32 * index, 32 * index + 32)
        return dataset.handle["train_img"][rows], dataset.handle["train_labels"][rows]

    fit_with_two_workers(get_batch)
    for note, batches in sorted(Counter(drain(notes)).items()):
        print(batches, "batches", note)


# %% [markdown]
# **Predict:** The dataset has 8 batches. Its handle is opened at the first batch. Who opens it, for whom?


# %%
def on_first_use(dataset):
    if dataset.handle is None:
        dataset.handle, dataset.opened_by = h5py.File(path, "r"), os.getpid()


# The clock of the lab starts late: on a busy computer, importing Keras takes a while.
patience = {"seconds": 60, "clock_starts_at": "training starts", "needs": "fork"}
lab("opened on first use", watch_handles, on_first_use, **patience)
ask("the file was opened at the first batch, in __getitem__, and workers share it all the same")

# %% [markdown]
# The parent was first: Keras looks at batches 0 and 1 to learn their shapes, before it starts any worker. Then it
# forks, and both workers inherit the open handle. Opening late is not enough.
#
# **The repair:** remember *who* opened the handle. Another process opens its own.


# %%
def once_a_process(dataset):
    if dataset.opened_by != os.getpid():
        dataset.handle, dataset.opened_by = h5py.File(path, "r"), os.getpid()


lab("opened once a process", watch_handles, once_a_process, **patience)

# %% [markdown]
# Only the condition is another. `RowReader` and `HDF5Sequence` of the kit keep their handles this way.

# %% [markdown]
# ## 8. A handle in a pickle
#
# Workers need not be forked. Windows and macOS *spawn* them: a fresh Python starts, and what it needs is sent as a
# *pickle*, a row of bytes. From Python 3.14 on Linux does not fork by default either.
#
# **Predict:** This object keeps a dataset of an open file. Can it be sent?

# %%
import pickle  # objects as bytes


class Images:
    def __init__(self, path):
        self.path = path
        self.data = h5py.File(path, "r")["train_img"]

    def __getitem__(self, row):
        return self.data[row]


with fails_with(TypeError):
    pickle.dumps(Images(path))

ask("h5py objects cannot be pickled")

# %% [markdown]
# It cannot: what stands in the memory of one process means nothing in another.
#
# **The repair:** send the path, and open again on the other side. `__getstate__` says what goes into the pickle,
# `__setstate__` what happens when it comes out.


# %%
class TravellingImages(Images):
    def __getstate__(self):
        return {"path": self.path}

    def __setstate__(self, state):
        self.__init__(**state)


arrived = pickle.loads(pickle.dumps(TravellingImages(path)))
print("row 5 is right after the journey:", np.array_equal(arrived[5], truth[5]))

# %% [markdown]
# The kit's `RowReader` does both: it opens once a process, and travels without its handle. Here it has a handle open,
# and still reaches a spawned worker:

# %%
from helpers import RowReader  # reads rows in any order, in any process


def send_a_reader():
    reader = RowReader(path, "train_img")
    reader.read([0])
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        image = pool.apply(reader.read, ([5],))[0]
    print("row 5 from the spawned worker is right:", np.array_equal(image, truth[5]))


lab("a reader, spawned", send_a_reader)

# %% [markdown]
# ## 9. Used after close
#
# **Predict:** A generator is made inside a `with` block, and asked for a batch after it. What happens?


# %%
def batches_of(data):
    for start in range(0, len(data), 32):
        yield data[start : start + 32]


with h5py.File(path, "r") as file:
    images = file["train_img"]
    batches = batches_of(images)

with fails_with(RuntimeError):
    next(batches)

ask("identifier is not of specified type")

# %% [markdown]
# A generator runs no line before it is asked for the first batch, and then its file is closed. The message does not
# say "closed". The card does. Each call words it differently:

# %%
with fails_with(KeyError):
    file["train_img"]
with fails_with(ValueError):
    list(file)
print(images)

# %% [markdown]
# Print the object: that says it, too. **The repair** is the same as before: pass the path, and open where the reading
# happens.


# %%
def batches_of_file(path):
    with h5py.File(path, "r") as file:
        yield from batches_of(file["train_img"])


batches = batches_of_file(path)
print("first batch:", next(batches).shape)
batches.close()

# %% [markdown]
# **Checkpoint 2b.** A colleague's class opens the file in `__init__`, keeps the dataset as `self.data`, and gets
# worker processes. Which of sections 6 to 9 will bite, and what one change avoids all four?
#
# <details><summary>Answer</summary>
#
# Forked workers share the handle (6); moving the open to the first batch does not help with Keras (7); spawned
# workers fail on the pickle (8); and a `with` block around the making of the object closes the file too early (9).
# Keep the **path**. Open when a batch is asked for, once in each process, and leave the handle out of the pickle.
#
# </details>

# %% [markdown]
# ## 10. A class from a notebook cell
#
# A pickle holds the *name* of a class, not its code. The worker imports the class by that name. A class of a notebook
# cell belongs to the module `__main__` of this kernel, and a spawned worker has another `__main__`. Keras hands the
# dataset to each worker when it starts. The next cell does the same with `initializer`, which is called once in each
# new worker; then we ask for `abs(-1)`, only to have some work. (`clock_starts_at` starts the clock of a lab when that
# text is printed; then it has 4 seconds.)
#
# **Predict:** The workers cannot import `Generator`. Will the lab end with an error?


# %%
class Generator:
    def __getitem__(self, index):
        return index, os.getpid()


def give_it_to_spawned_workers():
    with multiprocessing.get_context("spawn").Pool(2, initializer=print, initargs=(Generator(),)) as pool:
        pool.apply(abs, (-1,))


lab("a class of a cell, spawned", give_it_to_spawned_workers, seconds=4, clock_starts_at="Can't get attribute")
died = labs["a class of a cell, spawned"].output.count("Can't get attribute")
print("workers that died at birth: more than the two we asked for:", died > 2)

# %% [markdown]
# It would not end at all. A worker dies at birth, the pool starts another one, which dies too, and the call waits. In
# a notebook the cell hangs, and the log fills up.
#
# **The repair:** put code for workers into a module (a `.py` file), where workers can import it. Or use a pool that
# sends the code itself, not its name. `WorkerPool`, which `helpers.fit_generator` uses, does that (with
# `cloudpickle`):

# %%
from helpers.workers import WorkerPool  # workers that tell when something is wrong


def give_it_to_worker_pool():
    with WorkerPool(Generator().__getitem__, 2, processes=True) as pool:
        answers = [pool.get(index) for index in range(4)]
    print("answers:", [index for index, _ in answers])
    print("made in another process:", all(process != os.getpid() for _, process in answers))


lab("a class of a cell, WorkerPool", give_it_to_worker_pool)

# %% [markdown]
# ## 11. A file that workers cannot find
#
# `food.h5` is a *relative* path: it counts from the current folder.
#
# **Predict:** A worker starts. Then the program goes into another folder (`chdir`), where `food.h5` lies, and asks the
# worker to open `food.h5`. Which of the two finds it?

# %%
import contextlib  # contextlib.chdir: another current folder, for one block


def change_folder_after_the_start():
    with multiprocessing.get_context("spawn").Pool(1) as pool, contextlib.chdir(folder):
        print("the parent finds it:", Path("food.h5").exists())
        pool.apply(h5py.File, ("food.h5", "r"))


lab("a relative path in a worker", change_folder_after_the_start)
print(labs["a relative path in a worker"].output.splitlines()[0])

# %% [markdown]
# Only the program does. A worker keeps the folder in which it started.
#
# **The repair:** make the path absolute where it is first seen. `RowReader` does so when it is made:


# %%
def change_folder_and_send_a_reader():
    with multiprocessing.get_context("spawn").Pool(1) as pool, contextlib.chdir(folder):
        reader = RowReader("packed.h5", "train_img")
        image = pool.apply(reader.read, ([5],))[0]
        print("the worker finds it, and row 5 is right:", np.array_equal(image, truth[5]))


lab("an absolute path in a worker", change_folder_and_send_a_reader)

# %% [markdown]
# ## 12. Twin random numbers
#
# Augmentation draws random numbers. NumPy's global generator (`np.random.random()`) has a state, and a fork copies
# it. Keras starts new workers **every epoch**, and reseeds none. The lab notes what each batch draws from it, in two
# epochs of 8 batches, and beside it a number drawn from (seed, epoch, batch).

# %%
import time  # waits


def watch_random_numbers():
    notes, parent = multiprocessing.get_context("fork").SimpleQueue(), os.getpid()

    def get_batch(dataset, index):
        if os.getpid() != parent:
            time.sleep(0.05)  # a batch takes a while, so that both workers get some
            own = np.random.default_rng([0, dataset.epoch, index]).random()
            notes.put((os.getpid(), np.random.random(), own))  # noqa: NPY002
        return np.zeros((4, 8, 8, 3), np.uint8), np.eye(8, dtype=np.uint8)[:4]

    np.random.seed(0)  # noqa: NPY002 - your numbers are then ours
    fit_with_two_workers(get_batch, epochs=2)
    return list(drain(notes))


# %% [markdown]
# **Predict:** Each worker of each epoch draws a first number from the global generator. How many different first
# numbers are there?

# %%
lab("random numbers in workers", watch_random_numbers, **patience)
draws = labs["random numbers in workers"].result or []
first = {worker: number for worker, number, _ in reversed(draws)}  # of each worker the first draw remains
print("first numbers of all workers:", {round(number, 3) for number in first.values()})
print("16 batches drew fewer than 16 numbers:", len({number for _, number, _ in draws}) < 16)
ask("augmented images repeat in each epoch, with several workers")

# %% [markdown]
# One. All workers draw the same numbers in the same order, and those of the next epoch draw them again: where two
# workers share the batches evenly, each random change is made twice an epoch, and twice in the next. Nothing warns.
#
# **The repair:** a generator made from (seed, epoch, batch), or better (seed, epoch, row). The lab drew from one, too:

# %%
print("different numbers from (seed, epoch, batch):", len({own for *_, own in draws}))

# %% [markdown]
# A number for each batch. Now it does not matter which worker makes it, and a second run gives the same.

# %% [markdown]
# **Checkpoint 3a.** Somebody repairs the twins with `np.random.seed(os.getpid())` in each worker. The twins are gone.
# What is lost?
#
# <details><summary>Answer</summary>
#
# Repeatable runs. Process ids differ from run to run, and so does which worker makes which batch.
#
# </details>

# %% [markdown]
# ## 13. One generator and two workers
#
# A Python generator (`yield`) is a single line of work. First two *threads* ask it for batches, then two forked
# *processes*.
#
# **Predict:** Both threads run `list(numbers)` on the same generator. Do they share the six numbers?

# %%
import threading  # several lines of work in one process


def slow_numbers():
    for number in range(6):
        time.sleep(0.05)  # here a batch would be read
        yield number


def two_threads():
    numbers = slow_numbers()
    threads = [threading.Thread(target=list, args=(numbers,)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


lab("a generator, two threads", two_threads)

# %% [markdown]
# One thread died of it, the other went on alone. The program even "ended normally".
#
# **Predict:** Two forked workers have no such quarrel: each has its own copy of the generator, and takes what it can
# get. Which of the numbers 0 to 5 does each of them get?


# %%
def two_processes():
    numbers = slow_numbers()
    for batches in in_workers(lambda _: list(numbers), 2):
        print(batches)


lab("a generator, two processes", two_processes, needs="fork")
ask("the batches come twice with two workers")

# %% [markdown]
# Each of them gets all six. An epoch made of both streams trains on every batch two times, and takes as long as with
# one worker.
#
# **The repair:** an index instead of a stream. A pool of workers gets *numbers of batches*, each number once.


# %%
def batch_by_number(number):
    time.sleep(0.05)
    return number


def two_processes_by_number():
    with multiprocessing.get_context("fork").Pool(2) as pool:
        print(pool.map(batch_by_number, range(6)))


lab("by number, two processes", two_processes_by_number, needs="fork")

# %% [markdown]
# **Checkpoint 3b.** You find a class on the web that puts a lock around `next(generator)`, "to make it thread-safe".
# With 8 threads, how many batches are in work at a time?
#
# <details><summary>Answer</summary>
#
# One. The lock ends the error, and also the gain: seven threads wait.
#
# </details>

# %% [markdown]
# ## 14. A worker that died
#
# Systems kill processes: mostly when memory runs out, with the signal `SIGKILL`. The lab does the same to the worker
# that is about to make batch 5.
#
# **Predict:** What does `fit` do, now that batch 5 will never come?

# %%
import signal  # messages to processes


def die_on_batch_5():
    parent = os.getpid()

    def get_batch(_, index):
        if index == 5 and os.getpid() != parent:
            print("the worker with batch 5 is killed")
            os.kill(os.getpid(), signal.SIGKILL)
        return np.zeros((4, 8, 8, 3), np.uint8), np.eye(8, dtype=np.uint8)[:4]

    fit_with_two_workers(get_batch)


lab("a dead worker in fit", die_on_batch_5, seconds=4, clock_starts_at="is killed", needs="fork")
print(labs["a dead worker in fit"].output.rstrip())
ask("training hangs in the middle of an epoch, no error")

# %% [markdown]
# It waits. We stopped it 4 seconds after the death; Keras sets no limit. The pool has started a new worker, but
# nobody gives batch 5 to it.
#
# **The repair:** a pool that looks after its workers. The same death in `WorkerPool`. (A lab that fails shows its end,
# not what it printed before: the lines `got ...` are in its `output`.)


# %%
def die_on_5(item):
    if item == 5:
        os.kill(os.getpid(), signal.SIGKILL)
    return item


def ask_worker_pool():
    with WorkerPool(die_on_5, 1, processes=True, ahead=1, describe="batch {}".format) as pool:
        for item in range(8):
            print("got", pool.get(item))


lab("a dead worker in WorkerPool", ask_worker_pool, needs="signals")

# %% [markdown]
# The error comes at once, and names the worker, the signal and the batch. `fit_generator` adds the rows and the file
# (lesson 05, section 13).

# %% [markdown]
# **Checkpoint 4.** With `fit` and two workers an epoch stands still at 0 % of the processor. What is the first thing
# to find out, and where?
#
# <details><summary>Answer</summary>
#
# Whether a worker was killed. On Linux `dmesg` tells when the system killed a process for memory. If so: fewer
# workers, a shorter queue, smaller batches. `helpers.fit_generator` would have raised an error that names the batch.
#
# </details>

# %% [markdown]
# ## 15. A generator that runs dry
#
# The next failure needs no worker. This generator gives the 8 batches of one pass over 256 rows, and ends. `fit` is
# asked for three epochs of 8 steps.


# %%
def one_pass():
    with h5py.File(path, "r") as file:
        for start in range(0, 256, 32):
            rows = slice(start, start + 32)
            yield file["train_img"][rows], file["train_labels"][rows]


def fit_three_epochs(batches):
    with quiet_stderr():
        import keras
    steps = []
    count = keras.callbacks.LambdaCallback(on_train_batch_end=lambda step, **_: steps.append(step))
    asked = {"steps_per_epoch": 8, "epochs": 3, "shuffle": False, "callbacks": [count]}
    losses = tiny_model(keras).fit(batches(), verbose=0, **asked).history["loss"]
    print(f"{len(steps)} of 24 steps were trained; epochs with a loss of exactly 0.0: {losses.count(0.0)}")


# %% [markdown]
# **Predict:** Does `fit` raise an error, wait, or stop after the first epoch?

# %%
lab("a generator of one pass", fit_three_epochs, one_pass, seconds=90)
ask("the second epoch is logged with a loss of 0.0")

# %% [markdown]
# None of the three. It warns once, and goes on. Epoch 2 has no step, and a loss of 0.0 in the log: whatever keeps the
# epoch with the lowest loss will keep that one. Epoch 3 has two steps: Keras had taken two batches beforehand, to learn
# their shapes, and trains on them again. In a long log all this is easy to overlook.
#
# **The repair:** never end. (`yield from` hands out everything that another generator gives.)


# %%
def pass_after_pass():
    while True:
        yield from one_pass()


lab("a generator without end", fit_three_epochs, pass_after_pass, seconds=90)

# %% [markdown]
# And where somebody forgets that, `fit_generator` of the kit makes an error of it:


# %%
def fit_with_the_kit():
    with quiet_stderr():
        import keras

        from helpers import fit_generator
    fit_generator(tiny_model(keras), one_pass(), steps_per_epoch=8, epochs=3, verbose=0)


lab("a generator of one pass in fit_generator", fit_with_the_kit, seconds=90)

# %% [markdown]
# ## 16. The whole dataset at once
#
# `dataset[:]` reads everything. Here is a dataset of 40,000 images, 492 MB. (HDF5 stores a chunk only when it is
# written. None is, so the file is small. In memory a black image is as large as any other.)
#
# **Predict:** A child may ask for 512 MB of memory in all, its program code included. Does the array fit?

# %%
hollow = folder / "hollow.h5"
with h5py.File(hollow, "w") as file:
    images = file.create_dataset("train_img", (40_000, 64, 64, 3), np.uint8, chunks=(1, 64, 64, 3))
    print(f"as an array: {images.nbytes / 1e6:.0f} MB; the file is small: {hollow.stat().st_size < 1e6}")


def read_whole():
    with h5py.File(hollow, "r") as file:
        print(len(file["train_img"][:]), "images read")


lab("the whole dataset", read_whole, memory_mb=512)

# %% [markdown]
# It does not fit beside Python and NumPy. (469 MiB are the same 492 MB: a MiB has 1,048,576 bytes.) It fails at once,
# in one clear sentence, because there is a limit. Without one the system may kill a process instead, without a word:
# section 14.
#
# **The repair:** slices, of which one is in memory at a time.


# %%
def read_in_slices():
    count = 0
    with h5py.File(hollow, "r") as file:
        for start in range(0, len(file["train_img"]), 32):
            count += len(file["train_img"][start : start + 32])
    print(count, "images read")


lab("in slices", read_in_slices, memory_mb=512)
peak = labs["in slices"].peak_mb
print("peak memory below 200 MB:", peak < 200)

# %% [markdown]
# ## 17. Labels that weigh eight times as much
#
# Labels are small, so nobody looks at them. A one-hot label is a row of zeros with a single 1. `np.eye` makes such
# rows, and so does `keras.utils.to_categorical`. Both make `float64`. `np.eye` takes a dtype; `to_categorical` takes
# none, so add `.astype("uint8")`.
#
# **Predict:** How many bytes has one label of 1,000 classes? How many would do?

# %%
for dtype in (np.float64, np.uint8):
    label = np.eye(1_000, dtype=dtype)[7]
    print(f"one label as {label.dtype}: {label.nbytes:,} bytes")

# %% [markdown]
# A 0 and a 1 need one byte each. `float64` takes eight for them, in memory and in the file.
#
# **Predict:** 60,000 such labels, and a child that may ask for 512 MB, as in section 16. Do they fit?


# %%
def one_hot(dtype):
    numbers = np.arange(60_000) % 1_000
    labels = np.eye(1_000, dtype=dtype)[numbers]
    print(f"{len(labels):,} labels as {labels.dtype}: {labels.nbytes / 1e6:.0f} MB")


lab("labels as float64", one_hot, np.float64, memory_mb=512)

# %% [markdown]
# No, and no image has been read yet. Read such a message from its end: the *data type* says what to do.
#
# **The repair:** `dtype=np.uint8`, in memory and in `create_dataset`. Keras' losses take such labels as they are.
# Beside it `float64` again, without a limit, to measure what each of them takes.

# %%
lab("labels as uint8", one_hot, np.uint8, memory_mb=512)
lab("labels as float64, no limit", one_hot, np.float64, needs="a look at the peak memory of a process")
small, large = (labs[name].peak_mb for name in ("labels as uint8", "labels as float64, no limit"))
print("peak memory with uint8 below 150 MB:", small < 150, " with float64 above 480 MB:", large > 480)

# %% [markdown]
# **Checkpoint 5a.** A batch of 32 images as `batch / 255` is `float64`. How many bytes has an image of 64x64x3 then,
# instead of 12,288?
#
# <details><summary>Answer</summary>
#
# 98,304: eight times as many. And not only once: see the next section. Scale inside the model instead.
#
# </details>

# %% [markdown]
# ## 18. A queue of 100 batches
#
# Workers put finished batches into a queue, and the model takes them out. `max_queue_size` is its length: 10 in Keras,
# unless you say otherwise. Some recipes set it to 100, "so that the GPU never waits".
#
# **Predict:** 100 batches of 32 images, 299 pixels wide and high, as `float32`. How many GB?

# %%
from helpers.words import size_text  # bytes, as people write them


def bytes_in_queue(length, side, dtype):
    return length * 32 * side * side * 3 * np.dtype(dtype).itemsize


for length, side, dtype in ((100, 299, "float32"), (10, 299, "uint8"), (100, 64, "float32"), (10, 64, "uint8")):
    size = size_text(bytes_in_queue(length, side, dtype))
    print(f"{length:3} batches of {side} x {side} pixels as {dtype}: {size}")

# %% [markdown]
# 3.43 GB, and validation has a queue of its own. A queue is full whenever the model is slower than the workers, so
# also when all is well: at the latest while the model compiles, before its first step. The lab does without a model. A
# thread puts batches of the toy images into a queue of the same kind, and nobody takes one out before it is full.
#
# **Predict:** The estimate for the toy images is 157 MB. What will the lab say: an error, or nothing?

# %%
import queue  # a line in which things wait, of a limited length


def wait_in_queue(length, dtype):
    waiting = queue.Queue(length)

    def make():
        with h5py.File(path, "r") as file:
            for _ in range(120):
                waiting.put(file["train_img"][:32].astype(dtype))

    maker = threading.Thread(target=make)
    maker.start()
    while not waiting.full():
        time.sleep(0.01)  # the model is busy
    print(waiting.qsize(), "batches wait")
    for _ in range(120):
        waiting.get()
    maker.join()


lab("a queue of 100 float32 batches", wait_in_queue, 100, np.float32, needs="a look at the peak memory of a process")
ask("RAM fills up while the GPU is slow, max_queue_size=100")

# %% [markdown]
# No error: the memory was there. Where it is not, the system kills the process, and again nothing is printed.
#
# **The repair:** a short queue of `uint8` batches. A queue evens out batches that take longer than others; when the
# workers are too slow on average, 100 places run dry like 10.

# %%
lab("a queue of 10 uint8 batches", wait_in_queue, 10, np.uint8, needs="a look at the peak memory of a process")
long, short = (labs[f"a queue of {what} batches"].peak_mb for what in ("100 float32", "10 uint8"))
print("peak memory of the long queue: more than 140 MB higher:", long - short > 140)

# %% [markdown]
# The estimate holds, so make it before you set a length. `fit_generator` makes it for you, and warns when more memory
# is needed than is free.

# %% [markdown]
# ## 19. A file that only looks finished
#
# A process makes a file for 100 images, writes 60 of them, and is killed. In one version it had asked HDF5 to write
# out what it has (`flush`), in the other not.


# %%
def write_and_die(name, flush):
    with h5py.File(folder / name, "w") as file:
        images = file.create_dataset("train_img", (100, 64, 64, 3), np.uint8, chunks=(1, 64, 64, 3))
        labels = file.create_dataset("train_labels", (100, 8), np.uint8)
        images[:60], labels[:60, 0] = truth[:60], 1
        if flush:
            file.flush()
        os.kill(os.getpid(), signal.SIGKILL)


lab("killed before a flush", write_and_die, "lost.h5", False, needs="signals")
lab("killed after a flush", write_and_die, "half.h5", True, needs="signals")

# %% [markdown]
# Two more broken files: a copy that stopped half way, and a web page saved under the name.
#
# **Predict:** Which of the four files open without a complaint?

# %%
whole = path.read_bytes()
(folder / "cut.h5").write_bytes(whole[: len(whole) // 2])
(folder / "page.h5").write_text("<html><title>404 not found</title></html>")


def say_what_opens():
    for name in ("lost.h5", "half.h5", "cut.h5", "page.h5"):
        try:
            with h5py.File(folder / name, "r") as file:
                print(name, "opens:", file["train_img"].shape)
        except OSError as error:
            print(name, "fails:", str(error).split("(")[-1].split(": eof")[0].rstrip(")"))


lab("four broken files", say_what_opens)

# %% [markdown]
# One does: `half.h5`, with the full length.
#
# **Predict:** 60 of its 100 images were written. What are its rows 58 to 61?


# %%
def look_at_the_end():
    with h5py.File(folder / "half.h5", "r") as file:
        print("shape:", file["train_img"].shape)
        return file["train_img"][58:62], file["train_labels"][58:62].sum(axis=1)


lab("the end of half.h5", look_at_the_end)
if labs["the end of half.h5"].ok:
    images, ones = labs["the end of half.h5"].result
    titles = [f"row {row}, ones in its label: {n}" for row, n in zip(range(58, 62), ones, strict=True)]
    figures.show(figures.image_grid(images, titles, columns=4))
ask("images at the end of the file are black and have no label")

# %% [markdown]
# Rows that were never written read as zeros. HDF5 finds nothing wrong, and a model trains on 40 black images without
# a label.
#
# The *inspector* finds all four. Run it on a file before you train on it. Each fault has a code: `never-written` are
# rows that no one wrote, `onehot-sum` are labels whose ones do not add up to one.

# %%
from helpers import inspect_file  # looks at a file and says what is wrong with it

for name in ("lost.h5", "half.h5", "cut.h5", "page.h5"):
    report = inspect_file(folder / name)
    print(f"{name:8} ok: {report.ok}  faults: {', '.join(fault.code for fault in report.faults)}")

# %% [markdown]
# **The repair** is made by the writer of a file: no file has its final name before it is complete. `HDF5Writer`,
# killed in the same way:

# %%
from helpers.layout import HDF5FileError, open_file  # opens a file, or says in one sentence why not


def write_well_and_die():
    with HDF5Writer(folder / "safe.h5", (64, 64, 3), ["bread", "soup"]) as writer:
        writer.append("train", truth[:60], [0, 1] * 30)
        os.kill(os.getpid(), signal.SIGKILL)


lab("HDF5Writer, killed", write_well_and_die, needs="signals")
print("left:", sorted(file.name for file in folder.glob("safe*")))
with fails_with(HDF5FileError):
    open_file(folder / "safe.h5")

# %% [markdown]
# **Checkpoint 5b.** You open a file of unknown origin, and `train_img` has the length that you expect. What have you
# learned about its last rows?
#
# <details><summary>Answer</summary>
#
# Nothing. The length is fixed when the dataset is made, before any row is written.
#
# </details>

# %% [markdown]
# ## 20. A lock around one handle
#
# An article that many find says, in short: take a `multiprocessing.Lock`, so that processes take turns at the file;
# open the file in the child; share no handles. The lock first. Let two workers read through one inherited handle with
# such a lock, and then through handles of their own without. A slow disk is played: each read takes 5 ms longer. A
# worker notes when it asked for a read, when it began and when it ended.


# %%
def timed_reads(locked):
    fork = multiprocessing.get_context("fork")
    lock, gate = (fork.Lock() if locked else contextlib.nullcontext()), fork.Barrier(2)
    shared = h5py.File(path, "r")["train_img"]

    def work(_):
        data = shared if locked else h5py.File(path, "r")["train_img"]
        spans = []
        gate.wait()  # both start at once
        for row in range(20):
            asked = time.perf_counter()
            with lock:
                began = time.perf_counter()
                time.sleep(0.005)  # the slow disk
                _ = data[row]
                spans.append((asked, began, time.perf_counter()))
        return spans

    return in_workers(work, 2)


lab("one handle and a lock", timed_reads, True, needs="fork")
lab("a handle each, no lock", timed_reads, False, needs="fork")

# %% [markdown]
# **Predict:** While one worker reads, does the other one ever read too? With the lock, and without it?


# %%
def reads_together(spans):
    one, other = np.array(spans)[:, :, 1:]
    return sum(((other[:, 0] < ended) & (other[:, 1] > began)).any() for began, ended in one)


both = ("one handle and a lock", "a handle each, no lock")
for name in both:
    together = reads_together(labs[name].result) if labs[name].ok else 0
    print(f"{name:24} reads at the same time: {'some' if together else 'none'}")

# %% [markdown]
# With the lock, never: of two workers, one works and one waits. Without it, both work. Both runs, as they happened:

# %% tags=["nbval-ignore-output"]
lanes = {}
for name in both:
    spans = 1000 * np.array(labs[name].result or np.zeros((2, 1, 3)))
    for worker, reads in enumerate(spans - spans.min(), 1):
        bars = [[(asked, began, "wait"), (began, ended, "read")] for asked, began, ended in reads]
        lanes[f"{name}, worker {worker}"] = sum(bars, [])
figures.show(figures.timeline(lanes, unit="ms"))

# %% [markdown]
# Does the lock at least make a shared handle safe? Four workers, each with its own block of rows, one handle, one
# lock.
#
# **Predict:** `driver="stdio"` gave the wrong image in section 6. Nobody reads at the same time any more. Is it
# cured?


# %%
def share_with_lock(driver):
    lock = multiprocessing.get_context("fork").Lock()
    data = h5py.File(path, "r", driver=driver)["train_img"]
    _ = data[:]  # as in section 6

    def read(row):
        with lock:
            return data[row]

    wrong, errors = zip(*in_workers(lambda n: compare(read, range(350 * n, 350 * n + 350)), 4), strict=True)
    print(f"1,400 reads by 4 workers; wrong images: {'some' if sum(wrong) else 'none'}")
    return sum(wrong), sum(errors, [])


lab("stdio and a lock", share_with_lock, "stdio", needs="fork")
lab("by path and a lock", share_with_lock, None, needs="fork")

# %% [markdown]
# It is not. In section 6 nothing happened at the same time either. A lock puts reads one after the other; it does not
# give each process a position of its own. And a handle that was opened by path needs no lock.

# %% [markdown]
# ## 21. The article on trial
#
# The article names three dangers of HDF5 with worker processes: locking, "file not found" and segmentation faults.
# One lab is still missing. Four *threads* of one process read through one handle, and open and close the file again
# and again.


# %%
def threads_on_one_handle():
    data, wrong = h5py.File(path, "r")["train_img"], []

    def work(number):
        for row in np.random.default_rng(number).integers(len(truth), size=500):
            with h5py.File(path, "r") as file:
                other = file["train_img"][row]
            wrong.append(not np.array_equal(data[row], truth[row]) or not np.array_equal(other, truth[row]))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(f"{2 * len(wrong):,} reads by 4 threads, {len(wrong):,} of them after an open; wrong images: {sum(wrong)}")


lab("threads on one handle", threads_on_one_handle)

# %% [markdown]
# To judge, ask the outcomes: which labs ended with this word, and did this one go wrong?


# %%
def outcomes_with(labs, word):
    return [name for name, outcome in labs.items() if word in f"{outcome.signal} {outcome.last_error_line}"]


def went_wrong(labs, name):
    wrong, errors = labs[name].result or (0, ["the lab did not end"])
    return wrong > 0 or len(errors) > 0


# %% [markdown]
# Now the verdict. The first column is a danger that the article names. The statement beside it is ours, and so is the
# yes or no: it says whether the statement is true in the labs above, not whether the article is right. It is computed
# from their outcomes.


# %%
from IPython.display import Markdown, display  # formatted text


def verdict(labs):
    crashes = [name for name in outcomes_with(labs, "SIGSEGV") if not name.startswith("control")]
    missing = outcomes_with(labs, "FileNotFoundError")
    shared = [name for name in labs if name.startswith("inherited")]
    return [
        ("Locking", "readers of one file get lock errors", not labs["a reader, then a reader"].ok),
        ("Locking", "a reader gets a lock error from a writer", not labs["a writer, then a reader"].ok),
        ("Locking", "a Lock makes every shared handle right", not went_wrong(labs, "stdio and a lock")),
        ("File not found", "it came from an inherited handle", bool(set(missing) & set(shared))),
        ("File not found", f"it came from another lab: {', '.join(missing)}", bool(set(missing) - set(shared))),
        ("File not found", "opening in each worker is right", not went_wrong(labs, "opened in each worker")),
        ("Segmentation fault", f"one of {len(labs) - 1} labs crashed", bool(crashes)),
        ("Segmentation fault", "we would see a crash (the control)", bool(outcomes_with(labs, "SIGSEGV"))),
        ("Segmentation fault", "a shared handle did harm", any(went_wrong(labs, name) for name in shared)),
    ]


if labs["opened in each worker"].ok:
    rows = [f"| {claim} | {text} | **{'yes' if true else 'no'}** |" for claim, text, true in verdict(labs)]
    display(Markdown("\n".join(["| The article | Statement | In our labs |", "| :-- | :-- | :-- |", *rows])))

# %% [markdown]
# So, on today's versions:
#
# 1. **Locking.** Half true. Readers share a file freely; a writer locks them out, and they the writer. A
#    `multiprocessing.Lock` has no part in that. It makes workers wait for each other, and does not make a shared handle
#    right.
# 2. **File not found.** Only a relative path did it. An inherited handle did worse: wrong images, without an error. The
#    advice, *open the file in the child*, is right. With Keras it must say: once in each process (section 7).
# 3. **Segmentation faults.** None in our labs. The advice, *do not share handles between processes*, is right all the
#    same, for another reason: silent damage.
#
# The article ends with "a simplified example", and then stops: there is no code. Lesson 05 writes it.

# %% [markdown]
# **Checkpoint 6.** A web page from 2018 says: "h5py crashes when threads read one file." Which two labs do you need
# before you believe it, or stop believing it?
#
# <details><summary>Answer</summary>
#
# One that does what the page says, on the versions that you use. And a control that does crash, to know that your
# experiment would notice. (That no lab crashed does not prove that none ever will.)
#
# </details>

# %% [markdown]
# The labs' files go now. To repeat a lab, run section 2 and what stands above the lab again.

# %%
shutil.rmtree(folder)

# %% [markdown]
# ## Key points
#
# - Give workers a path and a number of a batch. Handles, generators and random states stay at home.
# - The dangerous failures are silent: wrong images, twin random numbers, black rows, an epoch that never ends, or that
#   trains on nothing. Compare with the truth, and count.
# - Write under another name and rename; read as many as you like; no `Lock` needed.

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
# # Exercises 04 · When workers break
#
# **In these exercises you will** say who locks whom, judge an article by experiments, write a reader and batches that
# any worker can use, look at a file before a long run, and find out what became of a job of your own.
#
# **You need** [lesson 04](../04_when_workers_break.ipynb). One part of 04.3 needs fork: elsewhere than on Linux it is
# left out, and its point is given.
#
# <!-- how -->
#
# <!-- facts -->

# %% tags=["nbval-ignore-output"]
from helpers.course.checks import check  # looks at an answer, and gives a hint
from helpers.course.lesson import open_lesson  # versions and device, quiet logs, one style of pictures

open_lesson()

# %% [markdown]
# ## 04.1 · Who may open it?
#
# *Warm-up, 2 points.* Eight scenes on Linux with one file, `food.h5`. Something happens first. Then somebody opens the
# file, with h5py's usual settings where no others are given:
#
# | | first | then |
# | --- | --- | --- |
# | 1 | a notebook has it open with `"r"` | a script opens it with `"r"` |
# | 2 | a notebook has it open with `"r"` | a script opens it with `"r+"` |
# | 3 | a notebook has it open with `"r+"` | a script opens it with `"r"` |
# | 4 | a cell runs `file = h5py.File("food.h5", "w")`, and its next line fails | the same cell is run again |
# | 5 | nobody has it open; it lies on a network disk without locks | a script opens it with `"r"` |
# | 6 | as in 5 | a script opens it with `"r"` and `locking=False` |
# | 7 | a notebook has it open with `"r"` | a script builds it anew with `HDF5Writer("food.h5", ...)` |
# | 8 | a notebook has it open with `"r+"` and `locking=False` | a script opens it with `"r"` and `locking=False` |
#
# And four outcomes of what is done then:
#
# | | outcome |
# | --- | --- |
# | a | no error |
# | b | `unable to lock file, errno = 11` |
# | c | `unable to lock file, errno = 37` |
# | d | `unable to truncate a file which is already open` |
#
# **Task.** Which outcome has each scene? `answer` is a dictionary: each scene's number with one letter, such as
# `{1: "d", 2: "d", ...}`. Four right ones earn a point, eight two.
#
# **Look again at** lesson 04, sections [3](../04_when_workers_break.ipynb#3.-A-writer-locks-readers-out),
# [4](../04_when_workers_break.ipynb#4.-A-disk-that-cannot-lock) and
# [5](../04_when_workers_break.ipynb#5.-A-cell-that-fails-twice).

# %%
### BEGIN SOLUTION
answer = {
    1: "a",  # readers share the lock
    2: "b",  # a writer wants it alone
    3: "b",  # and keeps it for itself
    4: "d",  # this very process has the file open: the variable `file` still holds it
    5: "c",  # the disk has none to give
    6: "a",  # nobody asks for one
    7: "a",  # it writes food.h5.part; the notebook goes on with the old file
    8: "a",  # nobody complains, and nothing protects the reader
}
### END SOLUTION

# %%
check("04.1", answer).points

# %% [markdown]
# ## 04.2 · The article on trial
#
# *3 points.* An article that many find, on HDF5 and worker processes, names three dangers: locking, "file not found"
# and segmentation faults. Against them it advises a `multiprocessing.Lock`, opening the file in the child, and sharing
# no handles. Here are nine experiments, all of them on today's versions, and what came out:
#
# | | experiment | outcome |
# | --- | --- | --- |
# | 1 | two processes open a file to read at the same time | both read their label |
# | 2 | four forked workers read through one handle, opened by its path | 20,000 of 20,000 images are right |
# | 3 | the same; the handle was opened from a Python file object | some images are wrong, no read fails |
# | 4 | the same with `driver="stdio"` and a `multiprocessing.Lock` around each read | some images are wrong |
# | 5 | two workers, one handle, a `Lock`; each notes when it reads | their reads never overlap |
# | 6 | Keras, two forked workers; `__getitem__` opens the file if no handle is there | all used the parent's handle |
# | 7 | a worker without any handle is sent a relative path from another folder | `FileNotFoundError` |
# | 8 | a child reads memory at address 0, on purpose | it ended by `SIGSEGV`, and we saw it |
# | 9 | four threads read through one handle, and open and close the file | 4,000 right images, no crash |
#
# Nine statements. Some are the article's, some come from other pages, some are nobody's:
#
# | | statement |
# | --- | --- |
# | a | Processes that only read one HDF5 file always get locking errors. |
# | b | A `multiprocessing.Lock` around a shared handle makes its reads right. |
# | c | With one handle and a lock, two workers read like one: the other waits. |
# | d | `FileNotFoundError` in a worker always comes from a handle that was inherited. |
# | e | A file that is opened in the data generator, at its first batch, is never shared. |
# | f | A handle that processes share can do harm without any error. |
# | g | A lab that crashes like experiment 8 would have been noticed. |
# | h | Handles shared by threads or processes can lead to a segmentation fault with today's h5py. |
# | i | Threads that share a handle never crash with today's h5py. |
#
# **Task.** What do these experiments, and nothing else, say of each statement? `answer` is a dictionary: each letter
# with `"yes"` (shown), `"no"` (refuted) or `"open"` (neither), such as `{"a": "open", "b": "open", ...}`. Three right
# ones earn a point, six two, nine three.
#
# **Look again at** lesson 04, sections [20](../04_when_workers_break.ipynb#20.-A-lock-around-one-handle) and
# [21](../04_when_workers_break.ipynb#21.-The-article-on-trial).

# %%
### BEGIN SOLUTION
answer = {
    "a": "no",  # 1: two readers, no error
    "b": "no",  # 4: with the lock, and still wrong. It puts reads in a row, but the position stays shared
    "c": "yes",  # 5
    "d": "no",  # 7: there was no handle to inherit; the relative path did it
    "e": "no",  # 6: Keras asks for the first batches in the parent, before it forks
    "f": "yes",  # 3
    "g": "yes",  # 8: without such a control, "no crash" would say nothing at all
    "h": "open",  # one crash would have shown it, and there was none
    "i": "open",  # 9 is 4,000 reads without a crash, and "never" is more than that
}
### END SOLUTION

# %%
check("04.2", answer).points

# %% [markdown]
# ## 04.3 · A reader that travels
#
# *4 points.* The advice of the article that holds is to open the file in the child. Its code is missing: write it.
# This class is what many write first:

# %%
import os  # process ids
from pathlib import Path  # names of files

import h5py  # HDF5 files from Python
import numpy as np  # arrays


class FirstTry:
    def __init__(self, path, name):
        self.data = h5py.File(path, "r")[name]

    def read(self, start, stop):
        return self.data[start:stop]


# %% [markdown]
# **Task.** Write a class (or a function that makes such an object) `answer(path, name)`. `name` is a dataset in the
# HDF5 file `path`. Its method `read(start, stop)` gives rows `start` to `stop - 1` as an array.
#
# - It can be pickled at any time, before its first read and after it. What comes out of the pickle reads, in another
#   process and in the same one.
# - `path` may be relative, and the program may go into another folder after the reader was made.
# - A forked child does not use the handle of its parent. Both go on reading.
# - A process opens the file once for all its reads, not once for each. (Opening it once more when the reader is made
#   is fine.)
# - Only the rows that are asked for are read.
#
# The class of a notebook cell can be pickled here: the check sends its code, too, as `WorkerPool` does.
#
# **Look again at** lesson 04, sections [7](../04_when_workers_break.ipynb#7.-Opened-late-and-still-inherited),
# [8](../04_when_workers_break.ipynb#8.-A-handle-in-a-pickle) and
# [11](../04_when_workers_break.ipynb#11.-A-file-that-workers-cannot-find).


# %%
### BEGIN SOLUTION
class Reader:
    def __init__(self, path, name):
        self.path = Path(path).absolute()  # a relative path counts from wherever the process is at that time
        self.name = name
        self.data, self.opened_by = None, None

    def read(self, start, stop):
        if self.opened_by != os.getpid():  # not "if self.data is None": a forked child inherits the data, too
            self.data, self.opened_by = h5py.File(self.path, "r")[self.name], os.getpid()
        return self.data[start:stop]

    def __getstate__(self):
        # The process id stays at home as well: in the same process it would say that the handle is there.
        return {"path": self.path, "name": self.name, "data": None, "opened_by": None}


answer = Reader
### END SOLUTION

# %%
check("04.3", answer).points

# %% [markdown]
# ## 04.4 · Batches and dice for every worker
#
# *4 points.* Forked workers share the state of NumPy's global dice, and a generator hands each of them the same
# batches. Both faults go when a batch is made from its number, and a random number from the row it is for.
#
# **Task.** Write a function `answer(number, epoch, seed, n, batch_size)` that gives a pair `(rows, draws)` for batch
# `number` (0, 1, 2, ...) of an epoch over the rows 0 to `n - 1`:
#
# - `rows`: the rows of this batch. The batches of an epoch hold each row once, in an order mixed anew by `seed` and
#   `epoch`; (seed, epoch) = (0, 1) and (1, 0) differ, too. All have `batch_size` rows, but for the last, which may
#   have fewer.
# - `draws`: for each of these rows a number from 0 to below 1, equally spread, as `random()` of a generator gives it:
#   the dice for its augmentation. It depends on `seed`, `epoch` and the row, and on nothing else; with another
#   `batch_size` or `n` the row keeps its number. Different triples (seed, epoch, row) get different numbers.
# - The same call gives the same, in whichever process, and whatever was asked before.
# - The global generators (`np.random`, `random`) are neither used nor changed.
#
# `answer(4, 0, 3, 23, 5)` gives 3 rows and 3 draws: the last batch of 23 rows by 5. For tests in this page, another
# worker is just another call.
#
# **Look again at** lesson 04, sections [12](../04_when_workers_break.ipynb#12.-Twin-random-numbers) and
# [13](../04_when_workers_break.ipynb#13.-One-generator-and-two-workers).


# %%
### BEGIN SOLUTION
def answer(number, epoch, seed, n, batch_size):
    # Each worker mixes all n numbers, and takes its part: cheap, and nobody has to tell the others anything.
    order = np.random.default_rng([seed, epoch]).permutation(n)
    rows = order[number * batch_size : (number + 1) * batch_size]
    # A list as seed keeps its numbers apart: their sum would be the same for (0, 1, 5) and (0, 0, 6).
    draws = [np.random.default_rng([seed, epoch, row]).random() for row in rows]
    return rows, draws


### END SOLUTION

# %%
check("04.4", answer).points

# %% [markdown]
# ## 04.5 · Before the night
#
# *4 points.* A run of a night should not end after ten minutes because memory is full, or train on black rows until
# the morning. All that can be known before.
#
# **Task.** Write a function `answer(path, images, labels, batch_size, queue)`. `images` and `labels` are the names of
# two datasets in the HDF5 file `path`: images of shape (rows, height, width, 3), and one-hot labels of shape (rows,
# classes). It gives a dictionary of four:
#
# - `"images"`: bytes of all images as one array in memory, in the type that they have in the file;
# - `"labels"`: bytes of all labels as `np.eye(classes)[numbers]` would make them;
# - `"queue"`: bytes of the images in a full queue: `queue` batches of `batch_size` images, as `float32`;
# - `"empty"`: the rows whose label nobody has written, as a list of their numbers.
#
# No more than `batch_size` images are read at a time; you may need none at all.
#
# For 1,000 images of 64 x 64 pixels as `uint8` with 8 classes, in batches of 32 and a queue of 10, the first three are
# 12,288,000, 64,000 and 15,728,640 bytes.
#
# **Look again at** lesson 04, sections [16](../04_when_workers_break.ipynb#16.-The-whole-dataset-at-once),
# [17](../04_when_workers_break.ipynb#17.-Labels-that-weigh-eight-times-as-much),
# [18](../04_when_workers_break.ipynb#18.-A-queue-of-100-batches) and
# [19](../04_when_workers_break.ipynb#19.-A-file-that-only-looks-finished).


# %%
### BEGIN SOLUTION
def answer(path, images, labels, batch_size, queue):
    with h5py.File(path, "r") as file:
        pictures, targets = file[images], file[labels]
        one = int(np.prod(pictures.shape[1:]))  # values of an image
        return {
            "images": pictures.size * pictures.dtype.itemsize,  # not what the file takes: it may be packed or hollow
            "labels": targets.size * np.dtype(np.float64).itemsize,  # np.eye makes float64 unless told otherwise
            "queue": queue * batch_size * one * np.dtype(np.float32).itemsize,
            # A photograph may be black. A label that was written has a one, wherever the gap is.
            "empty": np.flatnonzero(~targets[:].any(axis=1)).tolist(),
        }


### END SOLUTION

# %%
check("04.5", answer).points

# %% [markdown]
# ## 04.6 · What became of my job?
#
# *4 points.* `run_in_child` runs a function behind glass, and says how it ended. Three jobs, the first of which is
# fine. The numbers that they return are steps they have trained; each was asked for 24:

# %%
from helpers.course.failures import run_in_child  # one function, one child, with limits


def trains():
    return 24


def runs_dry():
    return 10


def waits_too_long():
    raise TimeoutError("batch 38 never came")


for job in (trains, runs_dry, waits_too_long):
    outcome = run_in_child(job)
    print(job.__name__, "|", outcome.ok, outcome.exit_code, outcome.signal, outcome.timed_out, outcome.result)
    print("   error:", outcome.last_error_line or "none", "| card:", outcome.diagnosis and outcome.diagnosis.number)

# %% [markdown]
# An outcome has these attributes:
#
# | attribute | what it says |
# | --- | --- |
# | `ok` | the job ended by itself with exit code 0 |
# | `exit_code`, `signal` | a number; the name of a signal that ended it (`"SIGKILL"`, `"SIGTERM"`, ...), or `None` |
# | `timed_out` | its time was up, and `run_in_child` ended it (with `SIGKILL`) |
# | `last_error_line` | the last error that it printed, also one of a thread or a worker, or `""` |
# | `diagnosis` | the card of the kit for that error, or for a crash in C code, or `None`; `card.number` is `"A3"` |
# | `result` | what the function returned, or `None` when it did not get so far |
#
# **Task.** Write a function `answer(outcome, steps)` that says in one word what became of a job that returns the number
# of steps it has trained, and was asked for `steps` of them:
#
# - the number of the card, such as `"A3"`, when the kit has one: that is the cause, whatever came of it;
# - `"stands still"`: no card, and its time was up;
# - `"killed"`: no card, and a signal ended it that `run_in_child` did not send;
# - `"unknown error"`: an error line without a card, or an exit code other than 0, and none of the above;
# - `"ran dry"`: none of these, and fewer steps than asked for;
# - `"fine"`: all steps, and nothing else to say.
#
# **On your own errors:** put the part of your program that fails into a function that returns its steps, and try
# `answer(run_in_child(my_training, seconds=120), steps)` before a long run. For an error that you only have as text,
# `from helpers.error_search import explain` finds the card with `explain("...")`, and so does
# `python -m helpers.doctor --error "..."` in a terminal. Symptoms in your own words work, too.
#
# **Look again at** lesson 04, sections [14](../04_when_workers_break.ipynb#14.-A-worker-that-died),
# [15](../04_when_workers_break.ipynb#15.-A-generator-that-runs-dry) and
# [2](../04_when_workers_break.ipynb#2.-Behind-glass).


# %%
### BEGIN SOLUTION
def answer(outcome, steps):
    if outcome.diagnosis is not None:  # first: a job that ended well, or was stopped, may have left an error
        return outcome.diagnosis.number
    if outcome.timed_out:  # before the signal: run_in_child stops with SIGKILL, too
        return "stands still"
    if outcome.signal is not None:
        return "killed"
    if outcome.last_error_line or not outcome.ok:  # a thread can die while the program ends with exit code 0
        return "unknown error"
    # No error, no signal: only the count tells. (0 steps are fewer, too.)
    return "fine" if outcome.result >= steps else "ran dry"


### END SOLUTION

# %%
check("04.6", answer).points

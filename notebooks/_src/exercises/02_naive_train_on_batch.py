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
# # Exercises 02 · The naive loop
#
# **In these exercises you will** find the faults of a nested `train_on_batch` loop, and write the parts of a fair one.
#
# **You need** [lesson 02](../02_naive_train_on_batch.ipynb).
#
# <!-- how -->
#
# <!-- facts -->

# %% tags=["nbval-ignore-output"]
from helpers.course.checks import check  # looks at an answer, and gives a hint
from helpers.course.lesson import open_lesson  # versions and device, quiet logs, one style of pictures

open_lesson()

# %% [markdown]
# ## 02.1 · The rows that nobody reads
#
# *Warm-up, 2 points.* The question behind this course trains on 70,700 rows with this loop, 50 epochs long:
#
# ```python
# for i in range(100):
#     train_images = dataset["train_img"][i * 706 : (i + 1) * 706, ...]
# ```
#
# **Task.** How many of the 70,700 rows does the model never see? `answer` is that number.
#
# **Look again at** [lesson 02, section 2](../02_naive_train_on_batch.ipynb#2.-Which-rows-were-used?).

# %%
### BEGIN SOLUTION
answer = 70_700 - 100 * 706  # each epoch reads the same 70,600 rows
### END SOLUTION

# %%
check("02.1", answer).points

# %% [markdown]
# ## 02.2 · Pieces without a remainder
#
# *3 points.* No count typed by hand: the pieces come from the length of the data.
#
# **Task.** Write a function `answer(n, batch_size)` that gives a list of slices. Together they hold each of the rows 0
# to n - 1 once, in order; all have `batch_size` rows, but for the last, which may have fewer. For 10 rows by 3 they are
# `slice(0, 3)`, `slice(3, 6)`, `slice(6, 9)` and `slice(9, 10)`.
#
# **Look again at** [lesson 02, section 2](../02_naive_train_on_batch.ipynb#2.-Which-rows-were-used?).


# %%
### BEGIN SOLUTION
def answer(n, batch_size):
    return [slice(start, min(start + batch_size, n)) for start in range(0, n, batch_size)]


### END SOLUTION

# %%
check("02.2", answer).points

# ---
# jupyter:
#   lesson:
#     keras: false
#     gpu: not needed
#     files: one toy file of 25 MB in data/, used by all lessons
#     max_minutes: 2
#     max_memory_mb: 400
# ---

# %% [markdown]
# # 00 · Start here
#
# **In this lesson you will build** the toy data that all lessons share, and a map of where they lead.
#
# **You can, at the end,**
#
# 1. compute how many bytes a set of images takes, and whether it fits into memory;
# 2. say what happens to a batch on its way from the file to the model;
# 3. check a machine before a course or a long run, and look an error up;
# 4. make the toy data, and say what its three splits are for.
#
# **You need** some Python and NumPy, and a rough idea of how a network is trained.
#
# <!-- facts -->

# %% [markdown]
# A lesson is made of text and of code cells. Select a code cell, by a click or with the arrow keys, and press
# **Shift+Enter**: it runs, its output appears below it, and the cursor moves on. Run all cells, from top to bottom.
#
# Without a mouse: *Enter* goes into a cell, *Escape* out of it; *Tab* goes to links and folded answers, *Enter* opens
# them; *Ctrl+Shift+C* finds every command by its name, such as *shut down kernel*. In a narrow window, *Ctrl+B* closes
# the list of files. (Should JupyterLab ask about news: *No* is fine.) This is the first code cell:

# %% tags=["nbval-ignore-output"]
from helpers.course.lesson import open_lesson  # prints versions, sets a style

open_lesson()

# %% [markdown]
# Three kinds of paragraph stand out in every lesson:
#
# - **Predict:** decide what the next cell will print *before* you run it. A wrong guess is where you learn most.
# - **Checkpoint:** a question at the end of a section. If you cannot answer it, read the section again. The answer is
#   folded away below it.
# - *Then and now*: what an old name, in books and forums, is called today.
#
# Lessons 01 to 08 have exercises, with checks that give hints; the last lines of a lesson lead to them. Work on a copy:
# `.venv/bin/python -m helpers.course.copy_exercises`, in a terminal, puts them into `notebooks/work/`.
#
# Versions, and measured seconds, speeds and memory, will differ on your machine. Everything else comes out as it stands
# here.

# %% [markdown]
# ## 1. The problem in numbers
#
# This question has been asked in many forms: *I want to teach a network 101 kinds of food. I have 101,000 photographs,
# resized to 299 by 299 pixels, with three colour values (red, green, blue) a pixel. All are in one HDF5 file: 70 % of
# them to train with, 20 % and 10 % to check the result. My computer has 8 GB of memory, of which 4 to 5 GB are free,
# and a graphics card with 2 GB. The file does not fit. How do I train?*
#
# The photographs are a public collection, Food-101. HDF5 is a file format for large arrays; lesson 01 is about it. A
# colour value is a whole number from 0 to 255, which takes one byte.
#
# **Predict:** How many GB (1 GB is 1,000,000,000 bytes) do the pixels of all photographs take?

# %%
n, height, width, channels = 101_000, 299, 299, 3

image_bytes = height * width * channels
file_gb = n * image_bytes / 1e9
print(f"one image: {image_bytes:,} bytes; all images: {file_gb:.1f} GB")

# %% [markdown]
# More than three times the whole memory. And it gets worse: a network computes with `float32` numbers, of 4 bytes each.
# The next cell draws the sizes to one scale; `bars` and `show` are this course's own.
#
# **Predict:** The longest bar is all images as `float32`. How many times the computer's memory is that?

# %%
from helpers.course.figures import bars, show

sizes_gb = {
    "all images, float32": 4 * file_gb,
    "all images, bytes": file_gb,
    "memory": 8,
    "free memory": 4.5,
    "graphics card": 2,
}
show(bars(list(sizes_gb), list(sizes_gb.values()), "GB", highlight="free memory"))

# %% [markdown]
# 13.5 times the memory, and 24 times the free part of it (orange). So the plan "load everything, then train" is dead,
# whatever the code looks like. How much *does* fit?

# %%
batch_size = 64
free_bytes = 4.5e9
print(f"images in free memory, as bytes:   {free_bytes / image_bytes:>8,.0f}")
print(f"images in free memory, as float32: {free_bytes / (4 * image_bytes):>8,.0f}")
print(f"one batch of {batch_size}, as bytes:   {batch_size * image_bytes / 1e6:.0f} MB")
print(f"one batch of {batch_size}, as float32: {4 * batch_size * image_bytes / 1e6:.0f} MB")

# %% [markdown]
# Training never needs all images at once. It needs one **batch**: a few dozen images and their labels, for one
# **step**, a small change of the network. A batch is small, even beside the 2 GB of the graphics card. So the images
# stay on the disk, and small pieces come into memory, are used, and are dropped.
#
# The rest of the course is about doing this *well*. Every image comes once an **epoch** (one pass over the training
# images), in a new order each time, and changed a little, so that the network does not learn it by heart. The network
# is checked on images it never trained on. And the data come so fast that it never waits.

# %% [markdown]
# **Checkpoint 1.** You have 20,000 photographs of 512 by 512 pixels and 16 GB of memory, nearly all free. Do they fit
# as bytes? As `float32`?
#
# <details><summary>Answer</summary>
#
# 20,000 x 512 x 512 x 3 bytes are 15.7 GB: just about, with nothing left for the network. As `float32` it is 62.9 GB:
# no.
#
# </details>

# %% [markdown]
# ## 2. The way of a batch
#
# This picture is the map of the course. Follow one batch from left to right.

# %%
from helpers.course.figures import batch_life  # draws the map

show(batch_life())

# %% [markdown]
# 1. **order** shuffles the row numbers of the file and cuts them into batches. No image is touched yet.
# 2. **reader** reads the images of these rows from the file, as bytes (NumPy calls this type `uint8`), through its own
#    *handle*: its own open file.
# 3. **augment** flips, turns and zooms each image a little, at random. Each image has a seed of its own, so that the
#    same run can be had again.
# 4. The finished batch waits in a **queue** until it is asked for.
# 5. **Keras**, the library that trains, takes it and scales its bytes to small `float32` numbers. This happens on
#    the *device*: the graphics card, or the processor where there is none. Then it makes one training step.
#
# Steps 2 and 3 can run in several **workers** (threads or processes of their own), while Keras trains on an earlier
# batch. That is where the speed comes from, and where most of the trouble comes from too.
#
# | lesson | the question it answers |
# | --- | --- |
# | [01](01_build_the_hdf5_file.ipynb) | How does a folder of photographs become one file that is fast to read? |
# | [02](02_naive_train_on_batch.ipynb) | What is wrong with a simple loop over `train_on_batch`, Keras' single step? |
# | [03](03_from_loop_to_generator.ipynb) | What is a generator, and what does Keras do with it? |
# | [04](04_when_workers_break.ipynb) | Why does it crash, hang or give wrong data as soon as there are workers? |
# | [05](05_safe_per_worker_generator.ipynb) | What does a generator look like that is safe, and how fast is it? |
# | [06](06_augmentation.ipynb) | How do I add augmentation (step 3) without mixing up the labels? |
# | [07](07_fit_generator_on_gpu.ipynb) | How do I train, judge, save and resume for real? |
# | [08](08_beyond_one_machine.ipynb) | What changes with several devices or machines? |
#
# > **Then and now.** Books and forums train with `model.fit_generator(generator)`, where the generator hands out one
# > batch after the other. Keras 3 has no such method: `model.fit` takes generators itself. This course's own
# > `fit_generator` is a function that takes the classic arguments and drives today's Keras.

# %% [markdown]
# **Checkpoint 2.** In which of the five steps does a batch become four times as large as in the file, and on which part
# of the machine?
#
# <details><summary>Answer</summary>
#
# In the last one: Keras turns the bytes into `float32` on the device. Until then a batch of 64 takes 17 MB, also in the
# queue, where several batches wait.
#
# </details>

# %% [markdown]
# ## 3. This machine
#
# The `doctor` looks at this computer: packages, disk, memory, cores. Each line starts with `ok`, `warn` (the course
# runs, something is worse) or `bad` (it will fail), and says what to do. Words you do not know yet, such as *fork* and
# *shared memory*, come in lesson 04.

# %% tags=["nbval-ignore-output"]
from pathlib import Path  # file names as objects

from helpers.doctor import examine

folder = Path("data")
folder.mkdir(exist_ok=True)
for check in examine(folder):
    print(check.line())

# %% [markdown]
# Your lines will differ. One must be `ok` on every machine, or no lesson works: HDF5 must be able to write a file in
# the folder of the course, and to lock it meanwhile (so that no other program changes it).

# %%
from helpers.doctor import locking

print(locking(folder).line())

# %% [markdown]
# Outside a notebook, `python -m helpers.doctor` in the terminal makes all these checks.
#
# The doctor also knows what goes wrong most often in this job. Give it the last line of an error:

# %%
from helpers.error_search import explain  # looks in the table of known errors

print(explain("TypeError: h5py objects cannot be pickled"))

# %% [markdown]
# Many faults of this job print no error at all. Then say what you see, in your own words:

# %%
print(explain("the last part of my pictures is black"))

# %% [markdown]
# In the terminal: `python -m helpers.doctor --error "the last part of my pictures is black"`. The advice is for later:
# you will cause both in lesson 04, and meet `HDF5Sequence` in lesson 05. All known errors stand in
# [ERRORS.md](ERRORS.md).

# %% [markdown]
# **Checkpoint 3.** A line of the doctor starts with `warn`: can you go on? And ask it about an error that it cannot
# know: what does `explain("FoodError: the soup is cold")` return?

# %%
print(explain("FoodError: the soup is cold"))

# %% [markdown]
# `None`: it does not guess. And with `warn` you can go on; only `bad` must be mended first.

# %% [markdown]
# ## 4. The toy data
#
# Food-101 is a large download. The lessons use pictures that `make_toy_food` draws on your machine: 8 dishes,
# 250 pictures each, 64 by 64 pixels. The first run takes some seconds. After that the file lies in `data/`, and its
# name says how it was made.

# %%
from data_scripts.make_toy_food import toy_food_file

path = toy_food_file("data", classes=8, per_class=250, size=64, seed=0)
print(path.name, f"{path.stat().st_size / 1e6:.0f} MB")

# %% [markdown]
# The pictures lie in three **splits**:
#
# - `train`: the network learns from these;
# - `valid`: it never learns from these. After each epoch they show how good it is on new images, so that *you* can
#   choose: when to stop, which model to keep;
# - `test`: looked at once, at the very end. After many choices made on `valid`, its number is a little too good; the
#   one of `test` is honest.
#
# They hold 70 %, 20 % and 10 % of each dish, as in the question above. `h5py` opens the file, which then works like a
# dictionary of arrays. Each split has two: its images (`_img`) and their labels (`_labels`).
#
# **Predict:** How many pictures are there in each split?

# %%
import h5py  # reads and writes HDF5 files

with h5py.File(path, "r") as file:
    for split in ("train", "valid", "test"):
        print(split, file[f"{split}_img"].shape, file[f"{split}_labels"].shape)

# %% [markdown]
# 1,400, 400 and 200. `(1400, 64, 64, 3)` means: 1,400 images of 64 lines, 64 columns, 3 colours. A label is a row of
# 8 numbers, one for each dish: a 1 at the right dish, zeros elsewhere. That is called **one-hot**. The names of the
# dishes stand in `file.attrs`, notes about the file as a whole. Here is the first picture of each dish:

# %%
from helpers.course.figures import image_grid  # pictures side by side

with h5py.File(path, "r") as file:
    names = [name.replace("_", " ") for name in file.attrs["class_names"]]
    first_rows = file["train_labels"][:].argmax(axis=0)  # the row of the first 1, by column
    pictures = [file["train_img"][row] for row in first_rows]
show(image_grid(pictures, names, columns=4))

# %% [markdown]
# Easy? Look at six pictures of one dish. Place, size, angle, light, plate and what lies around differ each time, and
# say nothing about the dish. A network has to learn to see past them.

# %%
with h5py.File(path, "r") as file:
    is_pizza = file["train_labels"][:, names.index("pizza")]  # 1 or 0 for each row
    pizzas = [file["train_img"][row] for row in is_pizza.nonzero()[0][:6]]
show(image_grid(pizzas, title="Six times pizza", columns=6))

# %% [markdown]
# Last, the idea of the whole course in one line: `file["train_img"][:batch_size]`. It names the rows of one batch (64,
# as in section 1), and HDF5 reads these and no others.

# %%
with h5py.File(path, "r") as file:
    batch = file["train_img"][:batch_size]
    everything = file["train_img"].nbytes
print(f"{batch.shape[0]} images, {batch.nbytes / 1e6:.1f} MB of {everything / 1e6:.1f} MB")

# %% [markdown]
# On the file of 27.1 GB the same line gives 17 MB. The next lesson counts the bytes that HDF5 reads for it, and shows
# how to spoil this.

# %% [markdown]
# **Checkpoint 4.** A friend trains for 30 epochs, keeps the epoch that was best on `test`, and reports that accuracy.
# What is wrong, and what should she have done?
#
# <details><summary>Answer</summary>
#
# She used `test` to choose, so its images are no longer new: the number is too good. Choose on `valid`, then look at
# `test` once.
#
# </details>

# %% [markdown]
# ## Key points
#
# - Count bytes first: images x height x width x 3, and four times that as `float32`.
# - The images stay on the disk. A batch at a time comes into memory: ordered, read, augmented, queued, trained on.
# - `train` to learn, `valid` to choose, `test` to report once.

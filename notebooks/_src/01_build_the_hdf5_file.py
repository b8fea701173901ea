# ---
# jupyter:
#   lesson:
#     keras: false
#     gpu: not needed
#     files: 35 MB in data/, and 140 MB more while it runs
#     max_minutes: 2
#     max_memory_mb: 400
# ---

# %% [markdown]
# # 01 · Build the HDF5 file
#
# **In this lesson you will build** one HDF5 file out of a folder of photographs, and know why it is fast to read.
#
# **You can, at the end,**
#
# 1. find your way in an HDF5 file: groups, datasets, attributes;
# 2. choose the type of images and labels, and compute what a wrong choice costs;
# 3. say which bytes a slice reads, and avoid the one index that is slow;
# 4. choose chunks and compression for images that are read in random order;
# 5. build a file from a folder, account for every picture, and say what "70/20/10" means row by row;
# 6. tell a good file from one that only opens.
#
# **You need** lesson 00. The toy data it makes is made again here if it is missing.
#
# <!-- facts -->

# %% tags=["nbval-ignore-output"]
from helpers.course.lesson import fails_with, open_lesson  # fails_with shows an expected error

open_lesson()

# %% [markdown]
# ## 1. A file with a tree inside
#
# An HDF5 file is like a small disk. It holds **groups** (its folders) and **datasets** (arrays of one type). Both can
# carry **attributes**: short notes, such as a name or a date. The `h5py` package opens it. Here is the tree of the toy
# file from lesson 00:

# %%
from data_scripts.make_toy_food import toy_food_file  # drawn once, then taken from data/
from helpers.course.figures import file_tree, show  # draw the tree; show a drawing

path = toy_food_file("data", classes=8, per_class=250, size=64, seed=0)
show(file_tree(path))

# %% [markdown]
# Six datasets: images and labels of three splits. (`chunks` is the subject of section 4.) Lines with `@` are
# attributes, here of the file as a whole. `mean` is the mean red, green and blue of the training images; `complete`
# says that the writer came to its end; the other three say how the file was made. In Python an open file behaves like
# a dictionary, and so does its `attrs`:

# %%
import h5py

with h5py.File(path, "r") as file:
    print(list(file))
    print(file["train_img"])
    print(list(file.attrs["class_names"][:3]))

# %% [markdown]
# (`|u1` is short for `uint8`.) `with` closes the file at the end of the block. `"r"` opens it for reading only. Other
# modes are `"r+"` (change an existing file), `"a"` (the same, or a new file) and `"w"`: a new file, which **empties an
# old one at once**.
#
# Now write a file. Assigning an array to a name makes a dataset. The groups on the way are made too, as `camera_1`
# here:

# %%
import numpy as np  # arrays

with h5py.File("data/first.h5", "w") as file:
    file["camera_1/images"] = np.zeros((5, 64, 64, 3), np.uint8)
    file["camera_1/labels"] = np.array([0, 2, 1, 0, 2])
    file["camera_1"].attrs["place"] = "canteen"
show(file_tree("data/first.h5"))

# %% [markdown]
# **Checkpoint 1.** In this tree, what would `file["camera_1"]["labels"][3]` give? And `file.attrs["place"]`?
#
# <details><summary>Answer</summary>
#
# 0, the fourth label; a group is again like a dictionary. The second is a `KeyError`: the attribute belongs to the
# group, so it is `file["camera_1"].attrs["place"]`.
#
# </details>

# %% [markdown]
# ## 2. Small numbers
#
# A dataset has one type for all its numbers, and the type decides how large the file is. An image of 64 by 64 pixels
# with 3 colours, one byte each, takes 12,288 bytes. Networks train best on small numbers, such as 0 to 1, so many of us
# store `image / 255`.
#
# **Predict:** How many bytes does this image take after the division?

# %%
with h5py.File(path, "r") as file:
    image = file["train_img"][0]
scaled = image / 255

for array in (image, scaled):
    print(array.dtype, f"{array.nbytes:,} bytes, {len(np.unique(array))} different values")

# %% [markdown]
# 98,304, eight times as many: NumPy answers a division of bytes with `float64`. Nothing is gained: there are as many
# different values as before. And a dataset takes the type of what it is given, without a word:

# %%
with h5py.File("data/scaled.h5", "w") as file:
    file["image"] = scaled
    print(file["image"].dtype)

# %% [markdown]
# Labels have the same trap. `np.eye(8)` is a table with ones on its diagonal; row 3 of it is the one-hot label of
# class 3.

# %%
numbers = np.array([3, 0, 7])
print(np.eye(8)[numbers].dtype, np.eye(8, dtype=np.uint8)[numbers].dtype)
print(np.eye(8, dtype=np.uint8)[numbers])

# %% [markdown]
# For the 101,000 images of 299 by 299 pixels of lesson 00, the choice of type looks like this:

# %%
from helpers.course.figures import bars  # a bar chart

image_gb = 101_000 * 299 * 299 * 3 / 1e9
sizes_gb = {"uint8": image_gb, "float32": 4 * image_gb, "float64": 8 * image_gb}
show(bars(list(sizes_gb), list(sizes_gb.values()), "GB in the file", highlight="uint8"))

# %% [markdown]
# So the file keeps bytes, as the camera made them. Every byte less in the file is a byte less to read, in every epoch.
# Scaling comes later: it is the first layer of the model, and runs on the device that trains (lesson 02).

# %% [markdown]
# **Checkpoint 2.** One-hot labels of 101,000 images and 101 classes: how many MB as `float64`, how many as `uint8`? And
# as class numbers, one `int64` (8 bytes) an image?
#
# <details><summary>Answer</summary>
#
# 101,000 x 101 x 8 bytes = 81.6 MB, 10.2 MB, and 0.8 MB. Labels are small beside the images either way. Still, there
# is no reason to store zeros and ones in eight bytes each.
#
# </details>

# %% [markdown]
# ## 3. A slice reads what it names
#
# `file["train_img"]` reads no image. Like the open file, it is only a *handle*: it knows where the images lie. They are
# read when you index it. Do not believe this, count it. h5py also reads from a Python file object, so we give it one
# that counts:

# %%
import io  # Python's own file objects


class CountingFile(io.FileIO):
    """A file that counts the bytes that are read from it."""

    total = 0

    def readinto(self, buffer):  # h5py fetches every byte with this method
        count = super().readinto(buffer)
        self.total += count
        return count


# %%
def bytes_read(path, name, read):
    """Bytes that HDF5 takes from the disk for read(dataset)."""
    with CountingFile(path) as raw, h5py.File(raw, "r") as file:
        dataset = file[name]
        before = raw.total
        read(dataset)
        return raw.total - before


# %% [markdown]
# `read` is a function: what to do with the dataset. The file holds 1,400 training images of 12,288 bytes, 17.2 MB.
#
# **Predict:** Four things to read: nothing, one image, 64 images, and only the *red* of 64 images. How many bytes does
# each take?

# %%
jobs = {
    "nothing": lambda images: images,
    "one image": lambda images: images[700],
    "64 images": lambda images: images[:64],
    "red of 64 images": lambda images: images[:64, :, :, 0],
}
for name, job in jobs.items():
    print(f"{name:<17}{bytes_read(path, 'train_img', job):>9,} bytes")

# %% [markdown]
# One image is 12,288 bytes; the 7,312 more are part of the table in which HDF5 looks up where the image lies. 64 images
# are 64 times 12,288 bytes, and a little more of the table. **Reading grows with the slice, not with the file**: this
# is what makes a 27 GB file usable.
#
# The last line is a surprise: a third of the numbers, but not a third of the bytes. Section 4 explains it.
#
# For training, the rows come in random order. A NumPy array takes a list of rows as an index. Does a dataset?

# %%
with h5py.File(path, "r") as file, fails_with(TypeError):
    _ = file["train_img"][[7, 2, 30]]

# %% [markdown]
# It does, in increasing order and no row twice. So sort the list, and it works; many published programs do so. Compare
# it with reading one row after the other. `benchmark` runs a function several times and keeps the median of the
# seconds. Every run gets fresh rows, so nothing is remembered from the last one.

# %%
from helpers.course.meters import benchmark


def speed(path, name, read, n=50):
    """Time read(dataset, rows) for n random rows, new ones in each run."""
    with h5py.File(path, "r") as file:
        dataset = file[name]
        batches = iter(np.random.default_rng(seed=0).permutation(len(dataset)).reshape(-1, n))
        return benchmark(lambda: read(dataset, next(batches)), items=n)


# %%
def by_list(dataset, rows):
    return dataset[np.sort(rows)]


def row_by_row(dataset, rows):
    return np.stack([dataset[row] for row in rows])


# %% [markdown]
# **Predict:** Which is faster: one call with a sorted list of 50 rows, or 50 calls?

# %% tags=["nbval-ignore-output"]
list_time = speed(path, "train_img", by_list)
row_time = speed(path, "train_img", row_by_row)
print("sorted list:", list_time)
print("row by row: ", row_time)

# %%
rows = np.arange(0, 1400, 28)  # 50 of them
list_bytes = bytes_read(path, "train_img", lambda images: by_list(images, rows))
row_bytes = bytes_read(path, "train_img", lambda images: row_by_row(images, rows))
print("both read the same bytes:", list_bytes == row_bytes)
print("row by row is at least 10 times faster:", row_time.times_faster_than(list_time) > 10)

# %% [markdown]
# The list looks like the clean way, and it is the slow one. The disk is not to blame: the time goes into fitting the
# list, as a whole, to each of the chunks that section 4 explains. Remember: **on an HDF5 dataset, slices and single
# rows; never a list of rows.** (From lesson 02 on, `helpers.RowReader` reads them so for you.)

# %% [markdown]
# **Checkpoint 3.** `images[[3, 4, 5, 6]]` and `images[3:7]` give the same array. Which do you write, and what do you
# write for rows 6, 3, 5?
#
# <details><summary>Answer</summary>
#
# The slice `images[3:7]`. For the others single rows: `np.stack([images[row] for row in (6, 3, 5)])`, which also keeps
# the order that was asked for.
#
# </details>

# %% [markdown]
# ## 4. Chunks
#
# There are two ways to lay an array onto a disk. **Contiguous**: in one piece. **Chunked**: cut into blocks of one
# shape, stored apart. Chunks let a dataset grow, and be compressed. But a chunk is read as a whole, into the *chunk
# cache*: 1 MB of memory where HDF5 keeps the last chunks. (Only an uncompressed chunk that is too large for it is read
# in parts.) That is why red alone cost as much as all colours: a chunk of our file is one image, `(1, 64, 64, 3)`.
#
# We store the same images in four layouts. `chunks=True` lets h5py choose.

# %%
layouts = {
    "contiguous": None,
    "one image": (1, 64, 64, 3),
    "32 images": (32, 64, 64, 3),
    "chunks=True": True,
}
with h5py.File(path, "r") as file:
    images = file["train_img"][:]
with h5py.File("data/layouts.h5", "w") as file:
    for name, chunks in layouts.items():
        print(f"{name:<12}", file.create_dataset(name, data=images, chunks=chunks).chunks)

# %% [markdown]
# h5py's choice cuts through the images: 175 of them, but only 16 lines, 16 columns and one colour. The next picture
# shows rows and lines of the three chunked layouts: black is the image asked for, orange is what must be read with it.
#
# **Predict:** To get one image, how many chunks must HDF5 read in each of the three layouts?

# %%
from helpers.course.figures import chunks_and_reads

chunks = {name: layouts[name] for name in ("one image", "32 images")} | {"chunks=True": (175, 16, 16, 1)}
show(chunks_and_reads(images.shape, chunks, row=250))

# %% [markdown]
# 1, 1 and 48. The picture shows 4 chunks from top to bottom. Along the columns there are 4 too, and 3 for the colours:
# 4 x 4 x 3 = 48. So far this is arithmetic. Now count what HDF5 reads for 50 random images, in all four layouts.
#
# **Predict:** An image has 12 kB. How many kB per image does the *contiguous* layout take, which has no chunks?

# %%
rows = np.random.default_rng(seed=0).permutation(1400)[:50]
for name in layouts:
    count = bytes_read("data/layouts.h5", name, lambda dataset: row_by_row(dataset, rows))
    print(f"{name:<12}{count / len(rows) / 1000:>8,.0f} kB an image")

# %% [markdown]
# 12: the image and nothing else. One often reads that chunks are what lets HDF5 read a part of an array; it is not so.
# "One image" adds the look-up table. "32 images" comes out a little below the 393 kB of the picture, because now and
# then two of the 50 images lie in a chunk that is still in the cache. With `chunks=True`, every image costs as much
# as 175.
#
# Bytes become time. On a log scale, each number on the axis is 10 times the one before:

# %% tags=["nbval-ignore-output"]
times = {name: speed("data/layouts.h5", name, row_by_row) for name in layouts}
speeds = [time.per_second for time in times.values()]
show(bars(list(times), speeds, "images a second", log=True))

# %%
whole, cut = times["one image"], times["chunks=True"]
print("one image per chunk is at least 5 times faster:", whole.times_faster_than(cut) > 5)

# %% [markdown]
# These files are small, so the operating system holds them in memory. From a real disk everything is slower, and every
# needless byte costs more.
#
# On a file of the real size, the same default is far worse. The next cell asks h5py what it would choose for the
# 70,700 training images (70 %) of 299 by 299 pixels. The file exists only in memory, and no pixel is written.

# %%
from helpers.course.figures import chunks_touched  # chunks of one image, and bytes

shape = (70_700, 299, 299, 3)
with h5py.File("none", "w", driver="core", backing_store=False) as file:
    chosen = file.create_dataset("train_img", shape, "uint8", chunks=True).chunks
count, touched = chunks_touched(shape, chosen)
print(f"{chosen}: {count:,} chunks, {touched / 1e6:,.0f} MB for one image of 0.27 MB")

# %% [markdown]
# So: **one whole image per chunk**, always stated. A contiguous dataset reads just as fast, but it cannot grow, and the
# program that builds a file rarely knows at the start how many pictures will turn out readable.

# %% [markdown]
# **Checkpoint 4a.** A file has chunks of `(3, 299, 299, 3)`. What does a random image cost, in chunks and in MB? What
# do the 3 neighbours `images[30:33]`, read as one slice, cost?
#
# <details><summary>Answer</summary>
#
# One chunk of 3 images, 0.8 MB, for one image of 0.27 MB. Rows 30 to 32 are just one chunk, so the three together cost
# the same 0.8 MB. Large chunks suit reading in order, small ones suit shuffled reading.
#
# </details>

# %% [markdown]
# ## 5. Compression
#
# One often reads that HDF5 compresses on the fly and saves space *without costing speed*. Test it. `gzip` and `lzf`,
# two *filters* of HDF5, are lossless: every pixel comes back exactly. JPEG is not, but it is made for photographs.
# HDF5 brings no JPEG filter; the bytes of each JPEG are stored as a row of its own length.

# %%
from helpers.images import decode_jpeg, encode_jpeg  # image -> JPEG bytes, and back

lossless = {"raw": None, "lzf": "lzf", "gzip": "gzip"}
with h5py.File("data/packed.h5", "w") as file:
    for name, filter_name in lossless.items():
        file.create_dataset(name, data=images, chunks=(1, 64, 64, 3), compression=filter_name)
    jpeg = file.create_dataset("jpeg", len(images), h5py.vlen_dtype(np.uint8))  # vlen: variable length
    for row, image in enumerate(images):
        jpeg[row] = np.frombuffer(encode_jpeg(image), np.uint8)

# %% [markdown]
# **Predict:** What share of the size does gzip save? And JPEG?

# %% tags=["nbval-ignore-output"]
with h5py.File("data/packed.h5", "r") as file:
    size_mb = {name: file[name].id.get_storage_size() / 1e6 for name in lossless}  # on the disk
    size_mb["jpeg"] = sum(map(len, file["jpeg"])) / 1e6
show(bars(list(size_mb), list(size_mb.values()), "MB", title="1,400 images of 64 x 64"))

# %% [markdown]
# gzip saves about a tenth, lzf next to nothing, JPEG about three quarters. And what do they cost to read?


# %% tags=["nbval-ignore-output"]
def decoded(dataset, rows):
    return np.stack([decode_jpeg(dataset[row]) for row in rows])


times = {name: speed("data/packed.h5", name, row_by_row) for name in lossless}
times["jpeg"] = speed("data/packed.h5", "jpeg", decoded)
speeds = [time.per_second for time in times.values()]
show(bars(list(times), speeds, "images a second", log=True))

# %%
print("gzip saves less than a quarter:", size_mb["gzip"] > 0.75 * size_mb["raw"])
print("JPEG saves more than half:", size_mb["jpeg"] < 0.5 * size_mb["raw"])
print("raw is 3 times faster than gzip, or more:", times["raw"].times_faster_than(times["gzip"]) > 3)

# %% [markdown]
# For pictures from a camera the claim is false. They have grain (our toy camera adds some too), and grain cannot be
# packed: a lossless filter works hard for little. JPEG saves a lot, but each image must be decoded in every epoch.
#
# The choice: **raw bytes** if the disk has room. **JPEG bytes** if it has not; then several workers decode (lesson 05).
# gzip or lzf for such images: no.

# %% [markdown]
# **Checkpoint 4b.** A colleague stores photographs with `compression="gzip"` and says nothing about chunks. What two
# things slow her training down?
#
# <details><summary>Answer</summary>
#
# Each image must be unpacked again in every epoch, for little space saved. And a filter needs chunks, so h5py chose
# them, as with `chunks=True`: every image is spread over many chunks, and all of them are unpacked for it.
#
# </details>

# %% [markdown]
# ## 6. From a folder to a file
#
# Real data comes as a folder of photographs, with one folder in it for each class, and it is never clean. We draw one
# with 4 dishes of 40 pictures, 256 by 256 pixels, and damage a copy of it the way downloads get damaged:

# %%
import shutil  # copies and removes folders
from pathlib import Path  # file names as objects

clean = toy_food_file("data", layout="folder", classes=4, per_class=40, size=256, seed=1)
shutil.rmtree("data/photos", ignore_errors=True)
photos = Path(shutil.copytree(clean, "data/photos"))
print(sorted(folder.name for folder in photos.iterdir()))

# %%
files = sorted(photos.rglob("*.jpg"))
files[45].write_bytes(files[45].read_bytes()[:3000])  # the connection broke
files[80].write_bytes(b"")  # the disk was full
files[120].write_text("<html>404 Not Found</html>")  # a web page, saved as a picture
(photos / "greek_salad" / "recipe.txt").write_text("Cut the cucumber ...")  # no picture
(photos / "bibimbap").mkdir(exist_ok=True)  # a class of which nothing arrived

# %% [markdown]
# Before we build: why not leave the pictures in their folder, and read them while training? Because then every epoch
# decodes and resizes every picture again. `read_image` gives the pixels of a picture file, `resize_image` the size that
# the network wants:

# %%
from helpers.images import ImageError, read_image, resize_image


def on_the_go(files):
    return np.stack([resize_image(read_image(file), (64, 64)) for file in files])


# %% [markdown]
# `row_time`, from section 3, is the time of 50 random rows. Section 5 decoded JPEG of 64 by 64 pixels; the pictures of
# the clean folder have 16 times as many pixels.
#
# **Predict:** How many times faster are the 50 rows of the HDF5 file than 50 of the pictures?

# %% tags=["nbval-ignore-output"]
clean_files = sorted(clean.rglob("*.jpg"))[:50]
folder_time = benchmark(lambda: on_the_go(clean_files), items=50)
print("from the folder:   ", folder_time)
print("from the HDF5 file:", row_time)

# %%
print("the file is at least 10 times faster:", row_time.times_faster_than(folder_time) > 10)

# %% [markdown]
# The file does the work once, and all epochs profit. The price is disk space: pixels take more room than JPEG.
#
# Many of us start to build it like this: walk through the folders, collect everything in a list, save the list.

# %%
images, labels = [], []
with fails_with(ImageError):
    for number, folder in enumerate(sorted(photos.iterdir())):
        for file in sorted(folder.glob("*.jpg")):
            images.append(resize_image(read_image(file), (64, 64)))
            labels.append(number)
print(len(images), "images in memory, none on disk; class numbers:", sorted(set(labels)))

# %% [markdown]
# Four faults at once:
#
# - one broken picture stops everything, perhaps after an hour, and the error does not say which;
# - all images are in memory until the end. With 27 GB they will not be;
# - the empty `bibimbap` has taken number 1: all later classes move up by one, and no image will ever be a 1;
# - the rows come sorted by class. Section 7 shows what that does.
#
# `build_hdf5` of this course avoids them. It reads a few pictures, appends them to the file, and forgets them; it skips
# what it cannot read; and it accounts for every file.

# %%
from data_scripts.build_hdf5 import build_hdf5

report = build_hdf5(photos, "data/photos.h5", size=64, seed=0, progress=False)
print(report)

# %% [markdown]
# (`stretch`: resized without keeping the proportions. `raw`: stored as pixels, not as JPEG.) Read such a report every
# time. Each file found is *written*, *skipped* with the reason, or *ignored*, so the sum must be right. `bibimbap` got
# no class number. In the terminal the same is
#
# ```
# python -m data_scripts.build_hdf5 FOLDER --out FILE.h5 --size 299
# ```
#
# Do the labels still fit the pictures? Look at the first rows of the file, titled by their own labels:

# %%
from helpers.course.figures import image_grid  # pictures side by side

with h5py.File("data/photos.h5", "r") as file:
    names = file.attrs["class_names"]
    numbers = file["train_labels"][:8].argmax(axis=1)
    show(image_grid(file["train_img"][:8], [names[number] for number in numbers], columns=4))

# %% [markdown]
# **Checkpoint 5a.** A class folder holds one picture only, and it is broken. What becomes of the class, and where do
# you read it?
#
# <details><summary>Answer</summary>
#
# Like the empty folder, it gets no class number: a number without pictures would be an output of the network that is
# never right. The report lists the picture as skipped, and the class in a line of its own, "class folders without a
# readable picture".
#
# </details>

# %% [markdown]
# ## 7. Splits, and the order of the rows
#
# "The standard split: 70 % train, 20 % validation, 10 % test." For Food-101, with 1,000 pictures in each of 101
# classes, and each class split alike:

# %%
for split, percent in (("train", 70), ("valid", 20), ("test", 10)):
    each = 1000 * percent // 100
    print(f"{split:<6}{each:>4} of each class, {101 * each:>7,} rows")

# %% [markdown]
# These are the sizes in the file that the question of lesson 00 is about; its `valid_img` has 20,200 rows. A split that
# treats each class alike is called **stratified**. `build_hdf5` makes such splits. Of 40 pictures, 28, 8 and 4 are due:

# %%
from helpers.course.figures import class_counts

show(class_counts(report.class_counts, report.class_names))

# %% [markdown]
# The three broken pictures are missing where they would have been: two from `train`, one from `test`. Nothing else
# moved, because the split is made before the pictures are read.
#
# Now the order *inside* a split. The loop of section 6 goes folder by folder. Suppose somebody then cuts the last tenth
# off its file, as a test set.
#
# **Predict:** How many of the 8 classes of the toy data are in the last tenth, if the rows are sorted by class?

# %%
with h5py.File(path, "r") as file:
    mixed = file["train_labels"][:].argmax(axis=1)
    names = file.attrs["class_names"]
in_order = np.sort(mixed)
for name, numbers in (("sorted", in_order), ("mixed", mixed)):
    tail = len(np.unique(numbers[-140:]))
    batches = [len(np.unique(numbers[start : start + 32])) for start in range(0, 1400, 32)]
    print(f"{name:<7} classes in the last tenth: {tail}, in 32 rows: {np.mean(batches):.1f}")

# %% [markdown]
# One. Such a test set asks about waffles only, and the training set has lost most of its waffles. The second number is
# what a batch of 32 neighbours holds, on average. Here is the whole split, one line an image, coloured by class:

# %%
from helpers.course.figures import order_strip

show(order_strip({"sorted by class": in_order, "mixed": mixed}, class_names=names))

# %% [markdown]
# In the upper strip, the network is told "all is apple pie" many times in a row, then "all is donuts". `build_hdf5`
# and `make_toy_food` mix the rows before writing, with a seed, so that the same folder always gives the same file.
# Then even a program that reads rows in file order sees a fair mix.

# %% [markdown]
# **Checkpoint 5b.** Food-101 comes with a split of its own: 750 pictures of each class to train, 250 to test. What is
# missing, and from which part do you take it?
#
# <details><summary>Answer</summary>
#
# It has no validation split, so every choice would be made on the test pictures. Take one from the training pictures,
# class by class: `build_hdf5` with `--split official` takes a fifth of them.
#
# </details>

# %% [markdown]
# ## 8. A file that opens is not yet a good file
#
# Before hours of training, look the file over. `inspect_file` reads all labels and a sample of the images, and says
# what is wrong, and what to do. In the terminal it is `python -m helpers.inspector FILE.h5`.

# %%
from helpers import inspect_file

inspect_file("data/photos.h5")

# %% [markdown]
# Nothing to complain about. Now break one. A naive program makes datasets of the full size, fills them, and is killed
# on the way, by full memory or a power cut. `run_in_child` runs it in a process of its own, a *child*. `flush` sends
# what was written to the disk; `os._exit` ends the child as hard as a kill.

# %%
from helpers.course.failures import run_in_child

naive_builder = """
import os, h5py, numpy as np
file = h5py.File("data/killed.h5", "w")
images = file.create_dataset("train_img", (1000, 64, 64, 3), "uint8", chunks=(1, 64, 64, 3))
labels = file.create_dataset("train_labels", (1000, 8), "uint8")
images[:600] = np.full((600, 64, 64, 3), 120, "uint8")
labels[:600] = np.eye(8, dtype="uint8")[np.arange(600) % 8]
file.flush()
os._exit(1)
"""
print(run_in_child(naive_builder))

# %% [markdown]
# **Predict:** Does the file open? If so, what is in row 900?

# %%
with h5py.File("data/killed.h5", "r") as file:
    print(file["train_img"].shape)
    print("row 900:", file["train_img"][900].max(), "is its largest pixel;", file["train_labels"][900])

# %% [markdown]
# It opens without a complaint. The last 400 images are black, and belong to no class. A training run would take them
# for data. The inspector does not:

# %%
report = inspect_file("data/killed.h5")
print("fit for training:", report.ok)
for fault in report.faults:
    print(fault)

# %% [markdown]
# `HDF5Writer`, which `build_hdf5` uses, goes another way. It writes to `NAME.part`, marks the file as `complete` at the
# very end, and only then gives it its name. Kill it in the same place:

# %%
safe_builder = """
import os, numpy as np
from helpers import HDF5Writer
with HDF5Writer("data/safe.h5", (64, 64, 3), ["pizza", "sushi"]) as writer:
    writer.append("train", np.full((600, 64, 64, 3), 120, "uint8"), np.arange(600) % 2)
    os._exit(1)
"""
print(run_in_child(safe_builder))
print([file.name for file in Path("data").glob("safe*")])

# %% [markdown]
# No `safe.h5`. **What has the final name is whole**, and an older file of this name would still be there. The `.part`
# is replaced at the next try. Here we tidy up:

# %%
for name in ("first.h5", "scaled.h5", "layouts.h5", "packed.h5", "killed.h5", "safe.h5.part"):
    Path("data", name).unlink(missing_ok=True)

# %% [markdown]
# **Checkpoint 6.** Somebody hands you a file of 1,000 images. It opens, has the right shapes, and the first images look
# fine. What do you check before you train, and with which command?
#
# <details><summary>Answer</summary>
#
# That every image was written, that each label row holds one 1, the chunks, and whether the rows are sorted by class.
# `inspect_file`, or `python -m helpers.inspector FILE.h5`, does all of it; with `--verify` it looks at every image.
#
# </details>

# %% [markdown]
# ## Key points
#
# - Bytes in, bytes out: store `uint8`, one whole image a chunk, uncompressed or as JPEG bytes.
# - Read slices or single rows. A list of rows, and `chunks=True`, are the two slow lines to avoid.
# - A builder streams, skips and reports, splits each class alike, mixes the rows, and names the file when it is whole.

# ---
# jupyter:
#   lesson:
#     keras: false
#     gpu: not needed
#     files: 45 MB in data/, and 250 MB more while it runs
#     max_minutes: 2
#     max_memory_mb: 400
#     reference: true
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
# 4. choose chunks and storage for images that are read in random order;
# 5. build a file from a folder of your own, account for every picture, and go on with a build that was stopped;
# 6. tell a good file from one that only opens, and repair a slow one.
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
# Nine datasets. Each of the three splits has images (`img`), labels, and `crc32`: one number an image, a sum of all its
# bytes, by which damage can be found later (section 9). `chunks` is the subject of section 4. Lines with `@` are
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
# A file of somebody else may have groups in groups. `.items()` gives names with what is under them, in a group as in
# the file, and `isinstance(file["camera_1"], h5py.Group)` tells a group from an `h5py.Dataset`. So a function can go
# down the whole tree: it calls itself for each group that it meets. `.attrs.items()` gives the attributes.

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
# rows; never a list of rows.** (From section 5 on, `helpers.RowReader` reads them so for you.)

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
# How does a dataset grow? It begins empty, with `None` in `maxshape` where it has no limit, and is resized for each
# batch. `compression="gzip"` would also pack its chunks:
#
# ```python
# images = file.create_dataset(
#     "images", (0, 64, 64, 3), "uint8", chunks=(1, 64, 64, 3), maxshape=(None, 64, 64, 3)
# )
# for batch in batches:
#     n = len(images)
#     images.resize(n + len(batch), axis=0)
#     images[n:] = batch
# ```

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
# ## 5. Storage: pixels, gzip or JPEG
#
# Pixels can be stored **raw**, as until now, or packed. **gzip** is a *filter* of HDF5, and lossless: every pixel comes
# back exactly. One often reads that it saves space *without costing speed*. **JPEG** is not lossless, but made for
# photographs. HDF5 has no filter for it; the bytes of each JPEG become a row of its own length.
#
# The builder of this course can do all three. `build_hdf5` makes a file out of a folder; section 6 looks at it more
# closely. Our folder holds 240 pictures of 299 by 299 pixels:

# %%
from data_scripts.build_hdf5 import build_hdf5

clean = toy_food_file("data", layout="folder", classes=4, per_class=60, size=299, seed=1)
storages = {"raw": {}, "gzip": {"compression": "gzip"}, "jpeg": {"storage": "jpeg"}}
built = {
    name: build_hdf5(clean, f"data/storage_{name}.h5", size=299, progress=False, **how)
    for name, how in storages.items()
}
print(built["raw"].rows)

# %% [markdown]
# Each file has 168 pictures to train on. How fast do they come back, in random order? `RowReader` from `helpers` reads
# rows, and unpacks them, whatever their storage. A pool of threads can share the work; we call them *workers*.

# %%
from concurrent.futures import ThreadPoolExecutor  # several threads at once

from helpers import RowReader


def shuffled_read(name, workers=1, n=16):
    """Time reading n random images, new ones in each run, shared out to the workers."""
    with RowReader(f"data/storage_{name}.h5", "train_img") as reader, ThreadPoolExecutor(workers) as pool:
        order = np.random.default_rng(seed=0).permutation(len(reader))[: 10 * n]
        batches = iter(order.reshape(10, workers, -1))
        return benchmark(lambda: list(pool.map(reader.read, next(batches))), items=n, repeat=8, warmup=2)


# %% [markdown]
# And why a file at all? The pictures could stay in their folder, and be read while training. So we time that as well:
# `read_image` gives the pixels of a picture file.

# %%
from helpers.images import read_image

files = sorted(clean.rglob("*.jpg"))


def folder_read(n=16):
    """Time reading n picture files, new ones in each run."""
    batches = iter(np.random.default_rng(seed=0).permutation(files)[: 10 * n].reshape(10, n))
    return benchmark(lambda: [read_image(file) for file in next(batches)], items=n, repeat=8, warmup=2)


# %% [markdown]
# **Predict:** Folder, raw, gzip and JPEG: which takes the most room? Which is read fastest, and by what factor?

# %% tags=["nbval-ignore-output"]
from helpers.course.figures import bar_panels  # bar charts side by side

reads = {"folder": folder_read()} | {name: shuffled_read(name) for name in storages}
size_mb = {"folder": sum(file.stat().st_size for file in files) / 1e6}
size_mb |= {name: report.size_bytes / 1e6 for name, report in built.items()}
panels = {
    "MB on the disk": list(size_mb.values()),
    "seconds to build": [0] + [report.seconds for report in built.values()],
    "images read a second": [read.per_second for read in reads.values()],
}
show(bar_panels(list(size_mb), panels, highlight="raw"))

# %%
print("JPEG is at least 5 times smaller than raw:", 5 * size_mb["jpeg"] < size_mb["raw"])
print("JPEG is at least 4 times smaller than gzip:", 4 * size_mb["jpeg"] < size_mb["gzip"])
for name in ("folder", "gzip", "jpeg"):
    print(f"raw is read at least 3 times faster than {name}:", reads["raw"].times_faster_than(reads[name]) > 3)

# %% [markdown]
# Raw is the largest, and far the fastest: nothing has to be unpacked. Folder, gzip and JPEG pay in every epoch, for
# every image. And gzip is beaten by JPEG: it reads about as slowly, and saves much less.
#
# How much gzip saves depends on the picture. Ours are drawn, with smooth surfaces. A camera adds *grain*, small random
# changes of every pixel. And there are pictures that are no photographs, such as a *mask*, which says for every pixel
# what it shows. `pack_rows` gives the bytes that the builder would store.

# %%
from helpers.images import decode_jpeg, encode_jpeg  # JPEG bytes -> image, and back
from helpers.writer import pack_rows

drawn, mask = read_image(files[0]), np.zeros((299, 299, 3), np.uint8)
grain = np.random.default_rng(seed=0).normal(0, 5, drawn.shape)
mask[100:200, 50:180] = 40  # here is pizza
mask[150:290, 150:290] = 41  # here is sushi
kinds = {"drawn": drawn, "with grain": np.clip(drawn + grain, 0, 255).astype(np.uint8), "mask": mask}

# %% [markdown]
# **Predict:** For which of the three is gzip the right choice?

# %%
print(f"{'':<11}  gzip   JPEG")
for name, image in kinds.items():
    gzip, jpeg = pack_rows(image[np.newaxis], compression="gzip").stored[0], encode_jpeg(image)
    exact = "JPEG is exact" if np.array_equal(decode_jpeg(jpeg), image) else "JPEG changes pixels"
    print(f"{name:<11}{len(gzip) / image.nbytes:>6.1%}{len(jpeg) / image.nbytes:>7.1%}   {exact}")

# %% [markdown]
# For the mask: it packs to next to nothing, and every pixel comes back. JPEG changes pixels. A photograph of pizza
# stays one, but in a mask the value *is* the class. With grain, gzip saves hardly anything.
#
# So far the files were small, and the system kept them in memory. A real disk delivers a certain number of bytes a
# second, whatever the processor can do. How many images is that?

# %%
image_bytes = {name: report.size_bytes / report.written for name, report in built.items()}
disks = {"network disk, 100 MB each second": 100e6, "SSD, 500 MB each second": 500e6}
print(f"{'':<34}   raw    JPEG")
for disk, rate in disks.items():
    print(f"{disk:<34}{rate / image_bytes['raw']:>6,.0f}{rate / image_bytes['jpeg']:>8,.0f}")

# %% [markdown]
# These are the most images that come off the disk in a second. The two bandwidths are round numbers: put yours there.
# Over the network, raw images arrive more slowly than one worker could unpack JPEG. Then JPEG wins, and several workers
# share the unpacking:

# %% tags=["nbval-ignore-output"]
for name in storages:
    one, two = shuffled_read(name).per_second, shuffled_read(name, workers=2).per_second
    print(f"{name:<5}{one:>8,.0f} images a second with one worker, {two:>8,.0f} with two")

# %%
print("from a slow disk, JPEG brings at least 5 times the images:", image_bytes["raw"] > 5 * image_bytes["jpeg"])

# %% [markdown]
# Two workers help where there is something to unpack, if two cores are idle. Raw rows only have to be copied.
#
# | storage | choose it |
# | --- | --- |
# | **raw** | if the disk has the room, and is in your machine. The default. |
# | **JPEG** (`--storage jpeg`) | if it has not, or the data come over a network. Use several workers (lesson 05). |
# | **gzip** (`--compression gzip`) | for masks, whose pixels must come back exactly. For photographs nearly never. |

# %% [markdown]
# **Checkpoint 4b.** A colleague stores photographs by `create_dataset(..., compression="gzip")` and says nothing about
# chunks. What two things slow her training down?
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
# Real data comes as a folder of photographs, with one folder in it for each class, and it is never clean. We take a
# copy of ours and do to it what happens to all such folders. First, what gets damaged on the way:

# %%
import shutil  # copies and removes files and folders
from pathlib import Path  # file names as objects

shutil.rmtree("data/photos", ignore_errors=True)
photos = Path(shutil.copytree(clean, "data/photos"))
apple_pie, donuts, salad, pancakes = (sorted(folder.glob("*.jpg")) for folder in sorted(photos.iterdir()))

donuts[5].write_bytes(donuts[5].read_bytes()[:3000])  # the connection broke
salad[0].write_text("<html>404 Not Found</html>")  # a web page, saved as a picture
(photos / "bibimbap").mkdir()  # a class of which nothing arrived
_ = (photos / "donuts" / ".DS_Store").write_text("left behind by a Mac")

# %% [markdown]
# Second, copies. They do harm: the same picture to train *and* to test is a question with a known answer, and the same
# picture in two classes is a wrong label.

# %%
_ = shutil.copy(apple_pie[3], photos / "apple_pie" / "pie (1).jpg")  # downloaded twice
_ = shutil.copy(salad[7], photos / "pancakes" / "lunch.jpg")  # sorted into two classes

# %% [markdown]
# Third, pictures that are fine, but not simply red, green and blue from top left to bottom right. A phone held upright
# stores its pictures lying on their side, with a note: turn me. A cut-out has an *alpha* channel, which says what is
# transparent. A picture made for a printer has four inks, called CMYK. Pillow, the package `PIL`, writes all of them:

# %%
from PIL import Image

turn_me = Image.Exif()
turn_me[0x0112] = 6  # the number of this note, and "by a quarter, clockwise"
upright = Image.open(clean / "pancakes" / pancakes[4].name).crop((60, 0, 240, 299))
upright.rotate(90, expand=True).save(pancakes[4], exif=turn_me)
Image.open(apple_pie[6]).convert("CMYK").save(apple_pie[6])

# %%
pixels = read_image(donuts[2])
inside = np.hypot(*np.mgrid[-149:150, -149:150])[..., np.newaxis] < 140  # a circle
cut_out = photos / "donuts" / "cut_out.png"
Image.fromarray(np.dstack([pixels * inside, 255 * inside]).astype(np.uint8)).save(cut_out)

# %% [markdown]
# Many of us start to build the file like this: walk through the folders, collect everything in a list, save the list.

# %%
from helpers.images import ImageError, resize_image

images, labels = [], []
with fails_with(ImageError):
    for number, folder in enumerate(sorted(photos.iterdir())):
        for file in sorted(folder.glob("*.jpg")):
            images.append(resize_image(read_image(file), (64, 64)))
            labels.append(number)
print(len(images), "images in memory, none on disk; class numbers:", sorted(set(labels)))

# %% [markdown]
# Five faults at once:
#
# - one broken picture stops everything, perhaps after an hour, and the error does not say which;
# - all images are in memory until the end. With 27 GB they will not be;
# - the empty `bibimbap` has taken number 1: all later classes move up by one, and no image will ever be a 1;
# - copies go in as if they were new pictures;
# - the rows come sorted by class. Section 7 shows what that does.
#
# `build_hdf5` avoids them. It reads a few pictures, appends them to the file, and forgets them; it skips what it cannot
# read; and it accounts for every file. There were 240 pictures. We added two copies, a cut-out and `.DS_Store`.
#
# **Predict:** How many of the 244 files become rows?

# %%
report = build_hdf5(photos, "data/photos.h5", size=64, seed=0, progress=False)
print(report)

# %% [markdown]
# 238 of them. (`stretch`: resized without keeping the proportions; `--resize crop` would cut out the centre.) Read such
# a report every time. Each file found is *written*, *skipped* because something is wrong with it, or *ignored* because
# it is not needed, so the sum must be right. Of two copies in one class one is kept. Of copies in two classes none is,
# because one of the labels must be wrong: decide, delete the other, and build again. `bibimbap` got no class number.
#
# And the three odd pictures? First what a simple program sees, which takes the numbers in the file as they lie there;
# beside it what `read_image` makes of them, with which `build_hdf5` reads.

# %%
from helpers.course.figures import image_grid  # pictures side by side

titles, shown = [], []
for name, file in (("phone", pancakes[4]), ("cut-out", cut_out)):
    titles += [f"{name}, as stored", f"{name}, read right"]
    shown += [np.asarray(Image.open(file))[..., :3], read_image(file)]
show(image_grid(shown, titles, columns=4))

# %% [markdown]
# The pancakes stand upright, and what was transparent is white instead of whatever colour lay below, here black. Now
# look for all three in the file. Its rows are mixed, so we compare every row with the picture that we want.

# %%
with h5py.File("data/photos.h5", "r") as file:
    names = file.attrs["class_names"]
    for picture in (pancakes[4], cut_out, apple_pie[6]):
        wanted = resize_image(read_image(picture), (64, 64))
        for split in ("train", "valid", "test"):
            same = (file[f"{split}_img"][:] == wanted).all(axis=(1, 2, 3))
            for row in np.flatnonzero(same):
                label = file[f"{split}_labels"][row].argmax()
                print(f"{picture.name}: row {row} of {split}, {names[label]}")

# %% [markdown]
# Each is there once, with its own label.

# %% [markdown]
# **Checkpoint 5a.** A scraped folder has 30 classes, and in each of them the same grey picture "no longer available". A
# class folder holds this picture only. What becomes of the pictures, and of the class?
#
# <details><summary>Answer</summary>
#
# The same bytes lie in several classes, so all 30 are skipped, and the report names each of them. The one class has no
# usable picture left. Like the empty folder, it gets no class number: a number without pictures would be an output of
# the network that is never right. The report has a line for it.
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
# treats each class alike is called **stratified**. `build_hdf5` makes such splits. Of 60 pictures, 42, 12 and 6 are
# due:

# %%
from helpers.course.figures import class_counts

show(class_counts(report.class_counts, report.class_names))

# %% [markdown]
# Copies are set aside before the split is made. The two broken pictures turn up later, when they are read: each is
# missing in the split where it would have been, and nothing else moves.
#
# Now the order *inside* a split. The loop of section 6 goes folder by folder. Suppose somebody then cuts the last tenth
# off its file, as a test set.
#
# **Predict:** How many of the 8 classes of the toy data are in the last tenth, if the rows are sorted by class?

# %%
with h5py.File(path, "r") as file:
    images = file["train_img"][:]
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
# ## 8. A build that is stopped
#
# A build of a large folder takes long, and something may come between: a full memory, a power cut. A naive program
# makes datasets of the full size, fills them, and is killed on the way. `run_in_child` runs it in a process of its own,
# a *child*. `flush` sends what was written to the disk; `os._exit` ends the child as hard as a kill.

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
# for data.
#
# `HDF5Writer`, which `build_hdf5` uses, goes another way. It writes to `NAME.part`, and at the very end gives the file
# its name. Now and then it makes a *checkpoint*: what was written until then can be gone on with. Let there be an older
# `safe.h5`, and kill a writer that is to replace it:

# %%
_ = shutil.copy("data/photos.h5", "data/safe.h5")  # an older file

safe_builder = """
import os, numpy as np
from helpers import HDF5Writer
with HDF5Writer("data/safe.h5", (64, 64, 3), ["pizza", "sushi"]) as writer:
    writer.append("train", np.full((600, 64, 64, 3), 120, "uint8"), np.arange(600) % 2)
    writer.checkpoint()
    writer.append("train", np.full((100, 64, 64, 3), 120, "uint8"), np.arange(100) % 2)
    os._exit(1)
"""
print(run_in_child(safe_builder))
print(*sorted(file.name for file in Path("data").glob("safe.h5*")))

# %% [markdown]
# **Predict:** Which classes has `safe.h5` now? And how many rows does a writer find that goes on with the part?

# %%
from helpers import HDF5Writer

with h5py.File("data/safe.h5", "r") as file:
    print("safe.h5:", *file.attrs["class_names"])
with HDF5Writer("data/safe.h5", (64, 64, 3), ["pizza", "sushi"], resume=True) as writer:
    print("found in the part:", writer.rows["train"], "rows")
    writer.append("train", np.full((100, 64, 64, 3), 120, "uint8"), np.arange(100) % 2)
with h5py.File("data/safe.h5", "r") as file:
    print("safe.h5:", *file.attrs["class_names"], "with", len(file["train_img"]), "rows")

# %% [markdown]
# The older file stayed until the new one was whole: **what has the final name is whole**. In the part were the 600 rows
# of the checkpoint; the 100 that came later were gone, without half a row left behind, and we appended them once more.
# (`.journal` makes this possible: before a byte of the checkpoint changes, its old value is noted there.)
#
# With `build_hdf5` you do not have to think of it. It makes a checkpoint every few hundred pictures, and one more when
# it stops by itself. Let it stop at a broken picture, instead of skipping it; careful people like that:

# %%
from data_scripts.build_hdf5 import BrokenImageError

late = Path(shutil.copytree(clean, "data/late", dirs_exist_ok=True))
broken = sorted(late.rglob("*.jpg"))[112]
broken.write_bytes(broken.read_bytes()[:3000])
with fails_with(BrokenImageError):
    build_hdf5(late, "data/late.h5", size=64, on_error="stop", progress=False)
print(*sorted(file.name for file in Path("data").glob("late.h5*")))

# %% [markdown]
# No `late.h5` yet. Repair the picture, and run the same call with `resume=True` (in the terminal: `--resume`). After a
# kill, a full disk, or the stop button of the notebook it is the same.

# %%
_ = shutil.copy(clean / broken.relative_to(late), broken)
print(build_hdf5(late, "data/late.h5", size=64, on_error="stop", progress=False, resume=True))

# %% [markdown]
# You may also run the failed cell again without `resume=True`. Then it begins at the first picture. In both cases the
# file in the end has the same content, as if nothing had happened.

# %% [markdown]
# **Checkpoint 5c.** You find `food.h5` and `food.h5.part` in a folder. Which of the two is a whole file? How do you get
# rid of the other?
#
# <details><summary>Answer</summary>
#
# `food.h5`, an older one. The part belongs to a build that is still running, or was stopped. Go on with it: the same
# command with `--resume`. Or build without, which begins anew. When it is done, the part is gone.
#
# </details>

# %% [markdown]
# ## 9. A file that opens is not yet a good file
#
# Before hours of training, look the file over. `inspect_file` reads all labels and a sample of the images, and says
# what is wrong, and what to do. In the terminal it is `python -m helpers.inspector FILE.h5`.

# %%
from helpers import inspect_file

inspect_file("data/photos.h5")

# %% [markdown]
# From top to bottom:
#
# - the **verdict**, in one line. *Faults* would follow it, and *warnings*: what costs time or accuracy only;
# - the coloured strip is the **order of the classes** along the rows, as in section 7. It should look like noise;
# - **a shuffled epoch** is foretold from the places of the chunks, without reading a pixel. "1x the images' own bytes":
#   nothing is read for nothing. Section 10 has another case;
# - how many **images of each class** are in each split (click to unfold): a missing class shows here;
# - the **contact sheet**: do pictures and labels fit? No program can tell you that. Look;
# - datasets and attributes, as in the tree of section 1.
#
# Our killed file gets another verdict:

# %%
report = inspect_file("data/killed.h5")
print("fit for training:", report.ok)
for fault in report.faults:
    print(fault)

# %% [markdown]
# One thing cannot be seen by looking: a byte that changed on the disk, or while the file was copied. We change one in a
# copy of the file. `byte_offset` is where a chunk, here the image of row 20, begins in the file.

# %%
shutil.copy("data/photos.h5", "data/damaged.h5")
with h5py.File("data/damaged.h5", "r") as file:
    place = file["train_img"].id.get_chunk_info_by_coord((20, 0, 0, 0)).byte_offset
    before = file["train_img"][20]
with Path("data/damaged.h5").open("r+b") as raw:
    raw.seek(place + 5000)
    raw.write(bytes([255 - before.ravel()[5000]]))

# %% [markdown]
# **Predict:** Does h5py complain, when it reads row 20?

# %%
with h5py.File("data/damaged.h5", "r") as file:
    changed = np.argwhere(file["train_img"][20] != before)
print("h5py read it; other than before at (line, column, colour):", *changed.tolist())
print("looked over:", inspect_file("data/damaged.h5").ok)
print(*inspect_file("data/damaged.h5", verify=True).faults)

# %% [markdown]
# It does not, and training would not either. But `train_crc32`, from section 1, holds a sum of every image, made when
# the file was built. `verify=True` (`--verify`) reads all images and compares. Do it once after each copy of a file.

# %% [markdown]
# **Checkpoint 6a.** Somebody hands you a file of 1,000 images. It opens, has the right shapes, and the first images
# look fine. What do you check before you train, and with which command?
#
# <details><summary>Answer</summary>
#
# That every image was written, that each label row holds one 1, the chunks, whether the rows are sorted by class, and
# whether pictures and labels fit. `inspect_file`, or `python -m helpers.inspector FILE.h5`, shows all of it; with
# `--verify` it looks at every image.
#
# </details>

# %% [markdown]
# ## 10. Repair a file that somebody else made
#
# A file that you did not build may be fit for training, and still slow. Here is one, with the habits of sections 4 and
# 7: chunks by default, rows sorted by class, and names of its own.

# %%
order = np.argsort(mixed, kind="stable")
with h5py.File("data/found.h5", "w") as file:
    file.create_dataset("pictures", data=images[order], chunks=True)
    file["targets"] = mixed[order]
    file.attrs["class_names"] = names
    file["pictures"].attrs["camera"] = "canteen"

# %% [markdown]
# **Predict:** The 1,400 images are 17.2 MB of pixels. Training reads each once an epoch, in random order. How many MB
# does it read from this file?

# %%
found = inspect_file("data/found.h5")
print("a shuffled epoch", found.splits["pictures"].cost)
for warning in found.warnings:
    print(warning)

# %% [markdown]
# 22 times the images, and that is what the inspector *foretells*; the file was not read for it. `rechunk` repairs: it
# writes the file anew, one image a chunk, and mixes the rows if they are sorted. Everything else in the file stays.

# %%
from data_scripts.rechunk import rechunk

print(rechunk("data/found.h5", "data/repaired.h5", progress=False))

# %% [markdown]
# Every row was read again from the new file and compared, before it got its name. (Also this can be killed, and goes on
# with `resume=True`.) What does an epoch cost now, as foretold and as measured?

# %%
repaired = inspect_file("data/repaired.h5")
print("a shuffled epoch", repaired.splits["pictures"].cost)
print("warnings:", repaired.warnings)
less = found.splits["pictures"].cost.bytes_read / repaired.splits["pictures"].cost.bytes_read
print(f"bytes read before: {less:.0f} times as many")
with h5py.File("data/repaired.h5", "r") as file:
    print("camera:", file["pictures"].attrs["camera"])

# %% [markdown]
# Bytes become time again:


# %% tags=["nbval-ignore-output"]
def batch_time(path):
    """Time batches of 64 random images."""
    with RowReader(path, "pictures") as reader:
        batches = iter(np.random.default_rng(seed=0).permutation(1400)[: 6 * 64].reshape(6, 64))
        return benchmark(lambda: reader.read(next(batches)), items=64)


slow, fast = batch_time("data/found.h5"), batch_time("data/repaired.h5")
show(bars(["found", "repaired"], [slow.per_second, fast.per_second], "images a second", log=True))

# %%
print("the repaired file is read at least 5 times faster:", fast.times_faster_than(slow) > 5)

# %% [markdown]
# **Checkpoint 6b.** A file has chunks of 64 whole images, packed with gzip, and its rows are mixed. Does `rechunk` help
# a training that reads the rows in random order? And a program that reads them from the first to the last?
#
# <details><summary>Answer</summary>
#
# The training, yes: for one image all 64 of its chunk are read and unpacked. The other program unpacks each chunk once
# in any case; there is little to gain. The line "a shuffled epoch" speaks of the first.
#
# </details>

# %% [markdown]
# ## 11. On your own folder
#
# Three commands are all you need:
#
# ```
# python -m data_scripts.build_hdf5 FOLDER --out FILE.h5 --size 299
# python -m helpers.inspector FILE.h5 --verify
# python -m data_scripts.rechunk FOREIGN.h5 FILE.h5   # only for a file that somebody else built
# ```
#
# What to look at, and what a script can ask for: the *exit status* (`echo $?` shows it), which is 0 when all went well.
#
# - `build_hdf5`: the sum of files, the skipped ones, classes that are missing. `FILE.h5.report.txt` has all names.
#   1: it was stopped, and `--resume` goes on. 2: it could not start, and says why.
# - `inspector`: the verdict, the classes of each split, and with `--html FILE.html` the contact sheet. 1: the file has
#   faults. 2: it cannot be read.
# - `rechunk`: "before" and "after", and whether the order was mixed. 1 and 2 as for `build_hdf5`.
#
# How much room and time will it take? The room is arithmetic. For the time, take what this machine needed in section 5
# for each million pixels of the pictures. That is a guess, and may be wrong by a factor of 3; after some seconds of
# building, the progress bar knows better.

# %% tags=["nbval-ignore-output"]
pictures, size = 20_000, 299  # your numbers
megapixels = 0.2  # of one of your pictures: 512 x 384

pixels_read = built["raw"].written * 299 * 299 / 1e6
minutes = pictures * megapixels * built["raw"].seconds / pixels_read / 60
print(f"raw:  {pictures * size * size * 3 / 1e9:.1f} GB")
print(f"JPEG: about {pictures * image_bytes['jpeg'] * (size / 299) ** 2 / 1e9:.1f} GB")
print(f"building: about {minutes:.0f} minutes with one worker; it takes one a core")

# %% [markdown]
# The builder makes the same estimate of the room, and refuses to start if the disk is too small. Here we tidy up:

# %%
for name in ("first", "scaled", "layouts", "storage_*", "killed", "safe", "late", "damaged", "found", "repaired"):
    for file in Path("data").glob(f"{name}.h5*"):
        file.unlink()
shutil.rmtree("data/late")
print("left over:", *sorted(file.name for file in Path("data").glob("*.part*")))

# %% [markdown]
# **Checkpoint 6c.** You have 50,000 photographs, 40 GB of free disk, and want 299 by 299 pixels. Raw or JPEG? What do
# you do when the power fails after two hours?
#
# <details><summary>Answer</summary>
#
# Raw needs 50,000 x 299 x 299 x 3 bytes = 13.4 GB: it fits, so raw. After the power cut, run the same command with
# `--resume` added.
#
# </details>

# %% [markdown]
# ## Key points
#
# - Bytes in, bytes out: store `uint8`, one whole image a chunk, raw if there is room, else as JPEG.
# - Read slices or single rows. A list of rows, and `chunks=True`, are the two slow lines to avoid.
# - Let the builder account for every picture, read its report, look at the contact sheet; repair what others built.

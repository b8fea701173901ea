# ---
# jupyter:
#   lesson:
#     keras: false
#     gpu: not needed
#     files: data/cameras.h5, and two small folders of pictures
#     max_minutes: 1
#     max_memory_mb: 400
# ---

# %% [markdown]
# # Exercises 01 · Build the HDF5 file
#
# **In these exercises you will** compute the size of a file, describe one that you do not know, read rows in any order,
# write a file without holding it in memory, find faults, and make a plan for a folder of pictures.
#
# **You need** [lesson 01](../01_build_the_hdf5_file.ipynb).
#
# <!-- how -->
#
# <!-- facts -->

# %% tags=["nbval-ignore-output"]
from helpers.course.checks import check  # looks at an answer, and gives a hint
from helpers.course.lesson import open_lesson  # versions and device, quiet logs, one style of pictures

open_lesson()

# %% [markdown]
# ## 01.1 · How large is the file?
#
# *Warm-up, 2 points.* The question behind this course has 101,000 images of 299 x 299 pixels with 3 colours, and as
# many one-hot labels for 101 classes. The file has 27.1 GB, says its author, but not of which types it is.
#
# **Task.** Write a function `answer(rows, image_type, label_type)` that gives the size of such a file in GB: `rows`
# images of that shape, and `rows` one-hot labels of 101 classes. The types are names: `"uint8"`, `"float32"` or
# `"float64"`. A GB has 10**9 bytes. Leave out the few bytes that HDF5 needs for itself, and do not round. For
# `(1000, "uint8", "uint8")` it is 0.268304.
#
# Then try your function on 101,000 rows: with which types are 27.1 GB possible? And what would the labels alone change?
#
# **Look again at** [lesson 01, section 2](../01_build_the_hdf5_file.ipynb#2.-Small-numbers).

# %%
import numpy as np  # arrays, and what their types need


# %%
### BEGIN SOLUTION
def answer(rows, image_type, label_type):
    image = 299 * 299 * 3 * np.dtype(image_type).itemsize
    label = 101 * np.dtype(label_type).itemsize  # one-hot: 101 numbers, all but one of them 0
    # For 101,000 rows: 27.1 as uint8, 108.4 as float32. Labels of float64 alone would make it 27.2.
    return rows * (image + label) / 1e9


### END SOLUTION

# %%
check("01.1", answer).points

# %% [markdown]
# ## 01.2 · What is in this file?
#
# *3 points.* Somebody gives you an HDF5 file and no description. Here is one to try your function on:

# %%
from pathlib import Path  # paths as objects

import h5py  # HDF5 files from Python

from helpers.course.figures import file_tree, show  # draw the tree; show a drawing

Path("../data").mkdir(exist_ok=True)
with h5py.File("../data/cameras.h5", "w") as file:
    file["camera_1/images"] = np.zeros((5, 64, 64, 3), np.uint8)
    file["gain"] = 0.5
    file.create_group("camera_2")
    file["camera_1"].attrs["place"] = "canteen"
    file.attrs["made"] = "Monday"
show(file_tree("../data/cameras.h5"))

# %% [markdown]
# **Task.** Write a function `answer(path)` that gives two dictionaries, `(datasets, attributes)`:
#
# - `datasets`: the whole name of each dataset, with a pair `(shape, type)`, such as `((5, 64, 64, 3), "uint8")`;
# - `attributes`: each attribute with its value. Its key is the name of what carries it, `@`, and its own name. The keys
#   for the file itself start with `@`.
#
# Groups may lie in groups. The file may be far larger than your memory: read no dataset. For `../data/cameras.h5` the
# two are
#
# ```python
# {"camera_1/images": ((5, 64, 64, 3), "uint8"), "gain": ((), "float64")}
# {"@made": "Monday", "camera_1@place": "canteen"}
# ```
#
# **Look again at** [lesson 01, section 1](../01_build_the_hdf5_file.ipynb#1.-A-file-with-a-tree-inside).


# %%
### BEGIN SOLUTION
def answer(path):
    datasets, attributes = {}, {}

    def look(name, item):
        if isinstance(item, h5py.Dataset):  # a group has no shape
            datasets[name] = (item.shape, str(item.dtype))
        for key, value in item.attrs.items():
            attributes[f"{name}@{key}"] = value

    with h5py.File(path, "r") as file:
        look("", file)  # visititems goes through all that is in the file, but leaves out the file itself
        file.visititems(look)
    return datasets, attributes


### END SOLUTION

# %%
check("01.2", answer).points

# %% [markdown]
# ## 01.3 · Rows in the order asked for
#
# *4 points.* The question assumes that one large file is better than single pictures. It is, if a shuffled batch costs
# its own bytes and no more. A published answer sorts the rows first, so that HDF5 takes them as a list:
#
# ```python
# rows.sort()
# images = file["images"][rows, :, :, :]
# ```
#
# The batch then comes in the order of the file, the list that was shuffled is changed, and a list as an index is slow.
#
# **Task.** Write a function `answer(dataset, rows)`. `dataset` is a dataset of an open file, with at least one axis and
# any type: images, or labels. `rows` is an array of row numbers, at least one, in any order. A number may stand there
# several times; -1 is the last row, as in Python. Give an array of these rows, in the order of `rows`, of the dataset's
# type, as `dataset[:][rows]` would. But read no more than the rows that are asked for, and hand HDF5 no list of rows.
#
# **Look again at** [lesson 01, section 3](../01_build_the_hdf5_file.ipynb#3.-A-slice-reads-what-it-names).


# %%
### BEGIN SOLUTION
def answer(dataset, rows):
    # One row after the other: the fast way, and each lands where it was asked for. h5py knows row -1.
    return np.stack([dataset[row] for row in rows])


### END SOLUTION

# %%
check("01.3", answer).points

# %% [markdown]
# ## 01.4 · Write as the batches come
#
# *5 points.* Articles praise HDF5 for its chunks and its compression. Both are choices, and h5py's own choice of chunks
# is bad for a training that reads rows at random.
#
# **Task.** Write a function `answer(path, batches, classes, kind)` that makes the file `path`. `batches` gives pairs:
# images (n, height, width, 3) of uint8, all of one size, and class numbers (n,). n differs from batch to batch, and
# nobody knows how many batches will come: together they may be larger than your memory, so write each batch before you
# ask for the next one. The file has
#
# - `train_img`: all images, in the order in which they came, as uint8, one whole image a chunk. If `kind` is `"masks"`
#   they are packed with gzip; if it is `"photos"` they are raw;
# - `train_labels`: one-hot, uint8, as many columns as `classes`, although a class may have no image;
# - the attribute `complete`, which is True.
#
# `batches` may stop with an error in the middle. Then the error reaches the caller, and what had been at `path` before,
# nothing or an older file, is still there unchanged. Called again, with batches that do not stop, your function makes
# the file.
#
# **Look again at** [lesson 01, section 4](../01_build_the_hdf5_file.ipynb#4.-Chunks),
# [section 5](../01_build_the_hdf5_file.ipynb#5.-Storage:-pixels,-gzip-or-JPEG) and
# [section 8](../01_build_the_hdf5_file.ipynb#8.-A-build-that-is-stopped).


# %%
### BEGIN SOLUTION
def grow(file, name, rows, **how):
    """Append rows to a dataset, which is made when the first ones come."""
    if name not in file:
        file.create_dataset(name, (0, *rows.shape[1:]), "uint8", maxshape=(None, *rows.shape[1:]), **how)
    dataset = file[name]
    dataset.resize(len(dataset) + len(rows), axis=0)
    dataset[-len(rows) :] = rows


def answer(path, batches, classes, kind):
    path = Path(path)
    part = path.with_name(path.name + ".part")  # "w" empties what an earlier call left there
    with h5py.File(part, "w") as file:
        for images, labels in batches:
            packed = "gzip" if kind == "masks" else None  # photographs hardly shrink, and are unpacked each time
            grow(file, "train_img", images, chunks=(1, *images.shape[1:]), compression=packed)
            grow(file, "train_labels", np.eye(classes, dtype=np.uint8)[labels], chunks=(1024, classes))
        file.attrs["complete"] = True
    part.replace(path)  # after an error we do not come here: what has the final name is whole


### END SOLUTION

# %%
check("01.4", answer).points

# %% [markdown]
# ## 01.5 · What is wrong with this file?
#
# *4 points.* A file that opens is not yet a good file. Here each fault has a name:
#
# | name | the fault |
# | --- | --- |
# | `"rows"` | there are more images than labels, or fewer |
# | `"label"` | a row of the labels is something else than a single 1 and zeros |
# | `"type"` | the images are not of uint8 |
# | `"chunks"` | to read one image, HDF5 must read more bytes than the image has |
# | `"order"` | all rows of a class lie together, class after class, in whatever order of the classes |
# | `"bytes"` | an image is not the one of which `train_crc32` holds the sum |
#
# `zlib.crc32` gives the sum of bytes, and `tobytes()` the bytes of an array:

# %%
import zlib  # sums of bytes

image = np.zeros((64, 64, 3), np.uint8)
print(zlib.crc32(image.tobytes()))
image[30, 30, 0] = 1
print(zlib.crc32(image.tobytes()))

# %% [markdown]
# **Task.** Write a function `answer(path)` that gives a set of the names of all faults of a file, such as
# `{"chunks", "order"}`; for a good file it is empty. The file has `train_img` (n, height, width, 3) and `train_labels`,
# a row of 3 numbers an image. It may also have `train_crc32`, with one sum an image; where it is missing, there is
# nothing to compare. Images may be cut into chunks or not.
#
# **Look again at** [lesson 01, section 9](../01_build_the_hdf5_file.ipynb#9.-A-file-that-opens-is-not-yet-a-good-file),
# and for the chunks [section 4](../01_build_the_hdf5_file.ipynb#4.-Chunks).

# %%
### BEGIN SOLUTION
from helpers.course.figures import chunks_touched  # chunks of one image, and bytes


def answer(path):
    faults = set()
    with h5py.File(path, "r") as file:
        images, labels = file["train_img"], file["train_labels"][:]
        if len(images) != len(labels):
            faults.add("rows")
        if ((labels == 1).sum(axis=1) != 1).any() or ((labels != 0).sum(axis=1) != 1).any():
            faults.add("label")  # rows that nobody wrote have no 1 at all
        if images.dtype != np.uint8:
            faults.add("type")
        if chunks_touched(images.shape, images.chunks)[1] > np.prod(images.shape[1:]):
            faults.add("chunks")
        numbers = labels.argmax(axis=1)
        if np.count_nonzero(np.diff(numbers)) == len(np.unique(numbers)) - 1:
            faults.add("order")  # the class changes as rarely as it can, upwards or not
        sums = file["train_crc32"][:] if "train_crc32" in file else []
        # One image after the other: a file may be larger than the memory.
        if any(zlib.crc32(images[row].tobytes()) != sums[row] for row in range(len(sums))):
            faults.add("bytes")
    return faults


### END SOLUTION

# %%
check("01.5", answer).points

# %% [markdown]
# ## 01.6 · From your own folder
#
# *5 points.* "The standard split: 70% train, 20% validation, 10% test." Before a file is built from a folder, each
# picture needs a class number and a split, and each file that is not used needs a reason. We make a folder to try
# yours on: three classes, one of them empty, a broken picture, and a copy.

# %%
from data_scripts.make_toy_food import toy_food_file  # drawn plates of food

folder = Path("../data/plan")
clean = toy_food_file("../data", layout="folder", classes=2, per_class=20, size=64, seed=0)
for file in sorted(clean.rglob("*.jpg")):
    copy = folder / file.relative_to(clean)
    copy.parent.mkdir(parents=True, exist_ok=True)
    _ = copy.write_bytes(file.read_bytes())
(folder / "bibimbap").mkdir(exist_ok=True)
_ = copy.with_name("copy.jpg").write_bytes(copy.read_bytes())
_ = copy.with_name("broken.jpg").write_bytes(copy.read_bytes()[:500])
print({place.name: len(list(place.iterdir())) for place in sorted(folder.iterdir())})

# %% [markdown]
# `read_image` gives the pixels of a picture file, or raises an `ImageError` that says why there are none:

# %%
from helpers.course.lesson import fails_with  # shows an expected error
from helpers.images import ImageError, read_image

with fails_with(ImageError):
    read_image(copy.with_name("broken.jpg"))

# %% [markdown]
# **Task.** Write a function `answer(folder, seed)`. `folder` is a `Path`; in it lies one folder for each class, and in
# those lie files. Give `(splits, left_out)`:
#
# - `splits`: a dictionary with the keys `"train"`, `"valid"` and `"test"`. Each has a list of pairs, the name of a
#   picture and its class number, such as `("donuts/03.jpg", 1)`;
# - `left_out`: a list of the names of all other files, written in the same way. Each file stands once, in one place.
#
# Left out is what `read_image` cannot read. Of files with the same bytes, one is kept if all lie in one class, none if
# they lie in several. Classes with at least one picture left have the numbers 0, 1, 2 ... in the order of their names;
# the others have no number. Of the pictures **of each class** that are left, 70% go to train, 20% to valid, 10% to
# test, drawn at random; the number of pictures of a class will be a multiple of ten. Each list is mixed. The same
# `folder` and `seed` give the same result, in whatever order the system lists the files; another seed draws anew.
#
# **On your own folder:** run your function on a copy of it, and look at each name in `left_out`. Then build the file
# with `python -m data_scripts.build_hdf5 FOLDER --out FILE.h5`, and compare the report with your plan.
#
# **Look again at** [lesson 01, section 6](../01_build_the_hdf5_file.ipynb#6.-From-a-folder-to-a-file) and
# [section 7](../01_build_the_hdf5_file.ipynb#7.-Splits,-and-the-order-of-the-rows).


# %%
### BEGIN SOLUTION
import hashlib  # short sums of bytes: all pictures together would not fit into memory


def is_picture(file):
    try:
        read_image(file)
    except ImageError:
        return False
    return True


def answer(folder, seed):
    files = sorted(folder.glob("*/*"))  # sorted: the same order on every machine
    sums = {file: hashlib.sha256(file.read_bytes()).digest() for file in files}
    classes_of = {}  # sum -> the classes in which such a picture lies
    for file in files:
        classes_of.setdefault(sums[file], set()).add(file.parent.name)

    usable, left_out, seen = {}, [], set()
    for file in files:
        name = file.relative_to(folder).as_posix()
        if sums[file] in seen or len(classes_of[sums[file]]) > 1 or not is_picture(file):
            left_out.append(name)
        else:
            usable.setdefault(file.parent.name, []).append(name)
        seen.add(sums[file])

    rng = np.random.default_rng(seed)
    splits = {"train": [], "valid": [], "test": []}
    for number, kind in enumerate(sorted(usable)):  # classes without a picture are not in it
        pairs = [(name, number) for name in rng.permutation(usable[kind]).tolist()]
        first, second = len(pairs) * 7 // 10, len(pairs) * 9 // 10
        splits["train"] += pairs[:first]
        splits["valid"] += pairs[first:second]
        splits["test"] += pairs[second:]
    for pairs in splits.values():
        rng.shuffle(pairs)  # otherwise the classes lie one after the other
    return splits, left_out


### END SOLUTION

# %%
check("01.6", answer).points

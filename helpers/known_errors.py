"""Errors that people meet in this job, what each means and what to do: the table behind ``helpers.doctor --error``.

To add one, append an entry: the error as it is printed, without what changes from case to case.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass

_ENOUGH = 0.6  # share of an entry's rare words, by weight, that a text must have
_ENOUGH_SHORT = 0.9  # for a text that is only a part of the error: share of its own words that the entry must have
_FEWEST_WORDS = 3


@dataclass(frozen=True)
class KnownError:
    """One error: ``texts`` as Python prints it, what it means, what to do."""

    code: str
    texts: tuple[str, ...]
    meaning: str
    advice: str

    def __str__(self) -> str:
        return f"{self.code}\n  Meaning: {self.meaning}\n  Do: {self.advice}"


KNOWN_ERRORS = (
    KnownError(
        "locked-by-a-writer",
        (
            "BlockingIOError: [Errno 11] Unable to synchronously open file (unable to lock file, errno = 11, error "
            "message = 'Resource temporarily unavailable')",
            "is open for writing in another process or notebook kernel",
        ),
        "Another process has the file open: a writer keeps readers out, and readers keep a writer out.",
        "Shut down the notebook kernel that holds it, or wait for the builder to end. Build under another name and "
        "rename, as HDF5Writer does.",
    ),
    KnownError(
        "no-locks-on-this-disk",
        (
            "OSError: [Errno 37] Unable to synchronously open file (unable to lock file, errno = 37, error message = "
            "'No locks available')",
            "OSError: unable to lock file, errno = 38, error message = 'Function not implemented'",
            "The disk that holds it does not support file locks (common on network disks)",
        ),
        "HDF5 locks each file it opens, and this disk (often a network disk) cannot lock.",
        "When nothing writes to the file: set HDF5_USE_FILE_LOCKING=FALSE before Python starts, or pass locking=False "
        "to h5py.File. Then nothing protects the file from a second writer.",
    ),
    KnownError(
        "truncated",
        (
            "OSError: Unable to synchronously open file (truncated file: eof = 96, sblock->base_addr = 0, "
            "stored_eof = 2048)",
        ),
        "The file is shorter than it says: a copy, download or build stopped early.",
        "Compare its size with the original, copy it again, or build it again.",
    ),
    KnownError(
        "not-hdf5",
        ("OSError: Unable to synchronously open file (file signature not found)",),
        "These bytes are not an HDF5 file: an HTML error page saved under the name, or a writer that was killed "
        "at once.",
        "python -m helpers.inspector FILE says which; download or build it again.",
    ),
    KnownError(
        "already-open-here",
        ("OSError: [Errno 17] Unable to synchronously create file (unable to truncate a file which is already open)",),
        "A handle from an earlier run of the cell is still open in this kernel.",
        "Open files in a with block, so that an error closes them; now close the old handle or restart the kernel.",
    ),
    KnownError(
        "closed-handle",
        (
            "ValueError: Invalid location identifier (invalid location identifier)",
            "ValueError: Not a location (invalid object ID)",
            "RuntimeError: Unable to get dataset (identifier is not of specified type)",
            "KeyError: Unable to synchronously open object (invalid identifier type to function)",
        ),
        "A dataset is used after its file was closed.",
        "Give the path to whatever reads, and let it open the file itself: RowReader(path, name).",
    ),
    KnownError(
        "handle-in-a-pickle",
        (
            "TypeError: h5py objects cannot be pickled",
            "TypeError: what the workers run cannot be sent to a process: cannot pickle '_thread.lock' object",
        ),
        "An open file or dataset is an attribute of something that is sent to a worker process.",
        "Send the path; open in the worker at the first read; drop the handle in __getstate__. HDF5Sequence does so.",
    ),
    KnownError(
        "damaged-chunk",
        (
            "OSError: Can't synchronously read data (inflate() failed)",
            "OSError: Can't synchronously read data (filter returned failure during read)",
            "HDF5FileError: row 7 of train_img in food.h5 cannot be read: its gzip chunk does not unpack. The file is "
            "damaged.",
        ),
        "A compressed chunk does not unpack: the file is damaged, or processes share one Python file object.",
        "python -m helpers.inspector FILE --verify finds the rows. Open files by path, once in each process.",
    ),
    KnownError(
        "rows-not-increasing",
        ("TypeError: Indexing elements must be in increasing order",),
        "HDF5 takes a list of rows only when it is sorted and has no row twice, and is slow even then.",
        "RowReader(path, name).read(rows) takes rows in any order, with repeats.",
    ),
    KnownError(
        "fit-generator-is-gone",
        (
            "AttributeError: 'Functional' object has no attribute 'fit_generator'",
            "AttributeError: 'Sequential' object has no attribute 'fit_generator'",
        ),
        "Keras 3 has no fit_generator method.",
        "from helpers import fit_generator; fit_generator(model, generator, ...) takes the same arguments.",
    ),
    KnownError(
        "workers-of-fit",
        (
            "TypeError: TensorFlowTrainer.fit() got an unexpected keyword argument 'workers'",
            "TypeError: TensorFlowTrainer.fit() got an unexpected keyword argument 'use_multiprocessing'",
            "TypeError: TensorFlowTrainer.fit() got an unexpected keyword argument 'max_queue_size'",
        ),
        "In Keras 3 workers belong to the data, not to fit.",
        "HDF5Sequence(path, workers=2, use_multiprocessing=True), or helpers.fit_generator with the classic arguments.",
    ),
    KnownError(
        "no-super-init",
        (
            "UserWarning: Your `PyDataset` class should call `super().__init__(**kwargs)` in its constructor. "
            "`**kwargs` "
            "can include `workers`, `use_multiprocessing`, `max_queue_size`. Do not pass these arguments to "
            "`fit()`, as "
            "they will be ignored.",
        ),
        "The class never told Keras about its workers: everything runs with one.",
        "Call super().__init__(workers=..., use_multiprocessing=...) first in __init__.",
    ),
    KnownError(
        "length-not-whole",
        (
            "TypeError: 'float' object cannot be interpreted as an integer",
            "TypeError: 'numpy.float64' object cannot be interpreted as an integer",
        ),
        "The number of batches is a float, as np.floor(n / batch_size) gives.",
        "return n // batch_size, or math.ceil(n / batch_size) to keep the last, smaller batch.",
    ),
    KnownError(
        "length-zero",
        ("ValueError: The PyDataset has length 0",),
        "There are fewer rows than one batch, and partial batches are dropped.",
        "Lower batch_size, or keep the partial batch: drop_last=False.",
    ),
    KnownError(
        "ran-out-of-data",
        (
            "UserWarning: Your input ran out of data; interrupting training. Make sure that your dataset or "
            "generator can "
            "generate at least `steps_per_epoch * epochs` batches. You may need to use the `.repeat()` function when "
            "building your dataset.",
        ),
        "The generator ended after one pass; Keras then logs an epoch with loss 0.0.",
        "Loop for ever inside the generator (while True), or use HDF5Sequence.",
    ),
    KnownError(
        "generator-shared-by-threads",
        ("ValueError: generator already executing",),
        "Two threads ask one Python generator for a batch at the same time.",
        "Use an index-based dataset such as HDF5Sequence; a lock around next() makes it safe, but serial.",
    ),
    KnownError(
        "incomplete-file",
        (
            "IncompleteFileError: is incomplete: the process that wrote it stopped early, and its last rows may "
            "be empty. "
            "Build it again.",
        ),
        "The builder was stopped before it wrote the mark complete; the last rows may be black images without label.",
        "Build it again.",
    ),
    KnownError(
        "out-of-memory",
        (
            "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 441. MiB for an array with shape and "
            "data type",
            "MemoryError: Unable to allocate array",
        ),
        "An array larger than the free memory was asked for: often a whole dataset (dataset[:]), or float64 "
        "copies of it.",
        "Read batch by batch; keep uint8 until the model; lower batch_size or max_queue_size.",
    ),
    KnownError(
        "out-of-gpu-memory",
        (
            "ResourceExhaustedError: OOM when allocating tensor with shape and type float on "
            "/job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc",
        ),
        "The model and one batch do not fit into the memory of the GPU.",
        "Lower batch_size; see with nvidia-smi whether another notebook kernel holds the GPU.",
    ),
    KnownError(
        "worker-died",
        (
            "WorkerDiedError: worker 1 (process 4242) was ended by SIGKILL while it made batch 3 of epoch 0",
            "WorkerDiedError: worker 2 ended with exit code 1 while it made batch 3 of epoch 0",
            "BrokenProcessPool: A process in the process pool was terminated abruptly while the future was "
            "running or pending.",
        ),
        "A worker process was killed, most often because memory ran out.",
        "Lower workers, batch_size or max_queue_size; on Linux, dmesg shows a kill for memory.",
    ),
    KnownError(
        "worker-stalled",
        (
            "WorkerStalledError: no answer for 60 s; waiting for batch 3 of epoch 0 from 2 worker processes, which are "
            "alive.",
        ),
        "A worker is stuck: a disk that does not answer, or an augment function that never returns.",
        "Read the stack under the message: it shows where. Raise stall_timeout_s if a batch may take that long.",
    ),
    KnownError(
        "class-of-a-notebook-cell",
        ("AttributeError: Can't get attribute 'Generator' on <module '__main__' (built-in)>",),
        "A worker process cannot find a class or function that was defined in a notebook cell or at the prompt.",
        "Move it into a module, or use HDF5Sequence and pass your function as augment=.",
    ),
    KnownError(
        "no-main-guard",
        (
            "RuntimeError: An attempt has been made to start a new process before the current process has finished its "
            "bootstrapping phase.",
        ),
        "A spawned process runs the script again, which starts processes again.",
        'Put the script\'s work under if __name__ == "__main__":. HDF5Sequence needs no such guard.',
    ),
    KnownError(
        "uint8-minus-float",
        (
            "numpy._core._exceptions._UFuncOutputCastingError: Cannot cast ufunc 'subtract' output from "
            "dtype('float64') "
            "to dtype('uint8') with casting rule 'same_kind'",
            "Cannot cast ufunc 'divide' output from dtype('float64') to dtype('uint8') with casting rule 'same_kind'",
        ),
        "A float result does not fit back into uint8 images, as in images -= mean.",
        "Scale in the model: helpers.models.normalization(path); or make a float32 copy first.",
    ),
    KnownError(
        "label-shape",
        (
            "ValueError: Arguments `target` and `output` must have the same shape. Received: target.shape=, "
            "output.shape=",
        ),
        "One-hot width and the model's last layer differ, or class numbers meet a loss for one-hot rows.",
        "Take the number of classes from generator.num_classes; sparse labels need a sparse_ loss.",
    ),
    KnownError(
        "scipy-missing",
        ("ImportError: Image transformations require SciPy. Install SciPy.",),
        "The old ImageDataGenerator warps images with SciPy.",
        "pip install scipy, or use helpers.Augment, which needs OpenCV only.",
    ),
    KnownError(
        "disk-full",
        (
            "OSError: [Errno 28] Can't write data (file write failed, errno = 28, error message = 'No space "
            "left on device')",
        ),
        "The disk is full.",
        'python -m helpers.doctor shows the free space; storage="jpeg" needs a tenth of raw images.',
    ),
)


def explain(text: str, table: tuple[KnownError, ...] = KNOWN_ERRORS) -> KnownError | None:
    """The entry whose rare words ``text`` shares most, or None when no entry is near enough."""
    said = _words(text)
    weights = _weights(table)
    best, best_score = None, 0.0
    for entry in table:
        for example in entry.texts:
            score = _score(said, _words(example), weights)
            if score > best_score:
                best, best_score = entry, score
    return best


def _words(text: str) -> set[str]:
    return set(re.findall(r"[a-z_][a-z0-9_]*|\d+", text.lower()))


def _weights(table) -> dict[str, float]:
    """Weight of each word: the fewer entries have it, the more it says."""
    found = Counter(word for entry in table for word in set().union(*map(_words, entry.texts)))
    return {word: math.log(1 + len(table) / count) for word, count in found.items()}


def _score(said: set[str], example: set[str], weights: dict[str, float]) -> float:
    common = sum(weights[word] for word in said & example)
    of_entry = common / sum(weights[word] for word in example)
    of_text = common / sum(weights.get(word, max(weights.values())) for word in said) if said else 0.0
    if of_entry >= _ENOUGH or (of_text >= _ENOUGH_SHORT and len(said & example) >= _FEWEST_WORDS):
        return of_entry + of_text
    return 0.0

"""A child that trains through the real ``fit_generator`` on command, so that what dies or hangs is not the test.

One command is one line of JSON on stdin, one answer is one line on stdout: how the training ended, whether every batch
was the right one, and what is left of the pool. ``remote.Trainer`` is the other end.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import gc
import json
import os
import resource
import signal
import sys
import threading
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import psutil
import tensorflow as tf
from coded import ROWS, class_of_row, coded_images, make_coded_file, one_hot, rows_of
from remote import BATCH_SIZE

from helpers import HDF5Sequence, fit_generator

GRACE_S = 3.0  # until what is left behind counts as left behind
GRANDCHILD_S = 7.0  # longer than an error may take
BALLAST: list[bytearray] = []


class Fault:
    """An augment function that goes wrong at one row, in one of many ways; it notes the moment first."""

    def __init__(self, kind: str, row: int, stamp: str):
        self.kind, self.row, self.stamp = kind, row, stamp
        self.home = os.getpid()

    def __call__(self, image, rng):
        del rng
        if int(rows_of(image[None])[0]) == self.row and (self.kind not in DEADLY or os.getpid() != self.home):
            Path(self.stamp).write_text(f"{time.monotonic()} {os.getpid()}")
            FAULTS[self.kind]()
        return image


def dies_by_sigkill():
    os.kill(os.getpid(), signal.SIGKILL)


def dies_with_a_grandchild():
    """The grandchild has copies of the worker's pipes: they do not end when the worker does."""
    if os.fork() == 0:
        time.sleep(GRANDCHILD_S)
        os._exit(0)
    os.kill(os.getpid(), signal.SIGKILL)


def dies_by_exit():
    os._exit(3)


def dies_by_sigsegv():
    ctypes.string_at(0)


def runs_out_of_memory():
    """All of the address space is taken: what fails next, if anything, is a line of the worker's own."""
    used = psutil.Process().memory_info().vms
    resource.setrlimit(resource.RLIMIT_AS, (used, used))
    for size in (2**16, 2**12, 2**8):
        with contextlib.suppress(MemoryError):
            while True:
                BALLAST.append(bytearray(size))


def asks_for_too_much():
    """One large array more than the process may have."""
    used = psutil.Process().memory_info().vms
    resource.setrlimit(resource.RLIMIT_AS, (used, used))
    np.ones(2**28)


def raises_memory_error():
    raise MemoryError("no room for the zoomed image")


def raises_zero_division():
    raise ZeroDivisionError("nothing to divide")


def raises_system_exit():
    sys.exit("augment gave up")


def raises_keyboard_interrupt():
    raise KeyboardInterrupt


def sleeps_in_augment():
    time.sleep(3600)


def sleeps_for_a_while():
    """Longer than an interrupt may take, and not for ever: a thread cannot be killed."""
    time.sleep(GRANDCHILD_S)


def loops_in_augment():
    while True:
        pass


def waits_for_a_lock():
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


def stops_itself():
    os.kill(os.getpid(), signal.SIGSTOP)


def prints_and_reads():
    """All that a careless function may do to the standard streams of its process."""
    print("from Python", flush=True)  # noqa: T201 - this is the fault
    os.write(1, b"\x00\xff from C\n" * 100)
    sys.stdin.read(10)


DEADLY = {
    "SIGKILL": dies_by_sigkill,
    "SIGKILL with a grandchild": dies_with_a_grandchild,
    "os._exit": dies_by_exit,
    "SIGSEGV": dies_by_sigsegv,
    "no memory left": runs_out_of_memory,
    "too large an array": asks_for_too_much,
    "SIGSTOP": stops_itself,
    "standard streams": prints_and_reads,
}
FAULTS = DEADLY | {
    "MemoryError": raises_memory_error,
    "ZeroDivisionError": raises_zero_division,
    "SystemExit": raises_system_exit,
    "KeyboardInterrupt": raises_keyboard_interrupt,
    "sleep": sleeps_in_augment,
    "short sleep": sleeps_for_a_while,
    "loop": loops_in_augment,
    "lock": waits_for_a_lock,
}


class Recorder(keras.Model):
    """Trains, and compares every batch that it is given, bit by bit, with the one that should have come."""

    def prepare(self, sequence, steps: int, say, command: dict) -> None:
        self.sequence, self.steps, self.say, self.command = sequence, steps, say, command
        self.step = 0
        self.wrong: list[int] = []
        self.kept: list = []
        self.mapped_bytes: list[int] = []

    def train_step(self, data):
        # Compiled: when an interrupt meets steps that are run op by op, TensorFlow 2.21 itself can crash (in
        # convert_to_eager_tensor), or stay in a "replica context" in which no later training works.
        with tf.control_dependencies([tf.numpy_function(self.look, data, tf.int64)]):
            return super().train_step(data)

    def look(self, images, labels) -> np.int64:
        """Within the compiled step: compare the batch."""
        self.check(self.step, images, labels)
        if self.command.get("keep"):
            self.kept.append((self.step, images, labels))
        return np.int64(0)

    def after_step(self) -> None:
        """In the main thread, where an interrupt is raised."""
        self.step += 1
        self.say({"event": "step", "step": self.step})
        if self.command.get("at_step", [0])[0] == self.step:
            CHANGES[self.command["at_step"][1]](Path(self.command["file"]))
        time.sleep(self.command.get("step_s", 0.0))
        if self.command.get("watch_memory"):
            self.mapped_bytes.append(shared_bytes())

    def check(self, step: int, images, labels) -> None:
        rows = self.sequence.rows_of(*divmod(step, len(self.sequence)))
        right = np.array_equal(np.asarray(images), coded_images(rows)) and np.array_equal(
            np.asarray(labels), one_hot(class_of_row(rows))
        )
        if not right:
            self.wrong.append(step)

    def check_kept(self) -> None:
        """Look at the kept batches again: nobody wrote into them since."""
        for step, images, labels in self.kept:
            self.check(step, images, labels)


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 8)


def delete(path: Path) -> None:
    path.unlink()


def replace(path: Path) -> None:
    """Another file of the same layout takes the name: every image and label of it is zero."""
    import h5py

    other = path.with_name("other.h5")
    with h5py.File(other, "w") as file:
        file.create_dataset("train_img", data=np.zeros((ROWS["train"], 16, 16, 3), np.uint8), chunks=(1, 16, 16, 3))
        file.create_dataset("train_labels", data=one_hot(np.zeros(ROWS["train"], np.int64)))
    other.replace(path)


def interrupt(path: Path) -> None:
    del path
    os.kill(os.getpid(), signal.SIGINT)


def leave(path: Path) -> None:
    del path
    sys.exit(3)


CHANGES = {"truncate": truncate, "delete": delete, "replace": replace, "interrupt": interrupt, "exit": leave}


def make_model() -> Recorder:
    """A small model, built and compiled once a process."""
    inputs = keras.Input((16, 16, 3), dtype="uint8")
    outputs = keras.layers.Dense(5, activation="softmax")(
        keras.layers.GlobalAveragePooling2D()(keras.layers.Rescaling(1 / 255)(inputs))
    )
    model = Recorder(inputs, outputs)
    model.compile(optimizer="sgd", loss="categorical_crossentropy")
    return model


def train(model: Recorder, command: dict, say) -> dict:
    """Train as the command says; how it ended, with the time at which the caller got the error."""
    fault = command.get("fault")
    sequence = HDF5Sequence(
        command["file"],
        "train",
        command.get("batch_size", BATCH_SIZE),
        augment=None if fault is None else Fault(fault, command["row"], command["stamp"]),
        workers=command.get("workers", 2),
        use_multiprocessing=command["processes"],
        max_queue_size=command.get("max_queue_size", 6),
        stall_timeout_s=command.get("stall_timeout_s", 60),
    )
    if command.get("before"):
        CHANGES[command["before"]](Path(command["file"]))
    steps = len(sequence)
    epochs = command.get("epochs", 1)
    model.prepare(sequence, steps, say, command)
    start = time.monotonic()
    after_step = keras.callbacks.LambdaCallback(on_train_batch_end=lambda step, logs: model.after_step())  # noqa: ARG005
    answer = _told_by(lambda: fit_generator(model, sequence, epochs=epochs, verbose=0, callbacks=[after_step]))
    answer["at"] = time.monotonic()
    answer["seconds"] = answer["at"] - start
    model.check_kept()
    model.kept.clear()
    tf.numpy_function(lambda: np.int64(0), [], tf.int64)  # TensorFlow lets go of arrays at its next call of Python
    model.sequence = None
    sequence.close()
    return answer | {
        "steps": model.step,
        "all_steps": steps * epochs,
        "wrong": model.wrong,
        "position": list(sequence.position),
        "mapped_bytes": model.mapped_bytes,
    }


def _told_by(function) -> dict:
    """Call ``function``, in which an interrupt is heard; how it ended."""
    try:
        try:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            function()
        finally:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
    except BaseException as error:  # also a second interrupt, which may come before the line above
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        return _told(error)
    return {"error": None}


def _told(error: BaseException) -> dict:
    return {
        "error": type(error).__name__,
        "message": str(error),
        "notes": list(getattr(error, "__notes__", ())),
        "cause": None if error.__cause__ is None else str(error.__cause__),
    }


def shared_bytes() -> int:
    """Bytes of this process's address space that are memfds or lie in /dev/shm."""
    total = 0
    for line in Path("/proc/self/maps").read_text().splitlines():
        if "memfd:" in line or "/dev/shm/" in line:
            start, end = line.split()[0].split("-")
            total += int(end, 16) - int(start, 16)
    return total


def residue(known_threads: set[int], grace_s: float) -> dict:
    """What is left of a pool, after a grace time: child processes, threads, open memfds, mapped shared bytes."""
    deadline = time.monotonic() + grace_s
    while True:
        gc.collect()
        left = {
            "children": [
                " ".join(child.cmdline())[:90]
                for child in psutil.Process().children(recursive=True)
                if child.status() != psutil.STATUS_ZOMBIE and "resource_tracker" not in " ".join(child.cmdline())
            ],
            "threads": [thread.name for thread in threading.enumerate() if thread.ident not in known_threads],
            "memfds": _open_memfds(),
            "shared_bytes": shared_bytes(),
        }
        if not any(left.values()) or time.monotonic() > deadline:
            return left
        time.sleep(0.05)


def _open_memfds() -> list[str]:
    found = []
    for entry in Path("/proc/self/fd").iterdir():
        try:
            target = str(entry.readlink())
        except OSError:  # the handle that listed the folder
            continue
        if "memfd:" in target:
            found.append(target)
    return found


def main() -> None:
    """Answer commands until stdin ends; fd 0 and 1 are taken away from whatever runs here."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    commands, answers = os.fdopen(os.dup(0), "r"), os.fdopen(os.dup(1), "w")
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(2, 1)

    def say(what: dict) -> None:
        answers.write(json.dumps(what) + "\n")
        answers.flush()

    model = make_model()
    say({"event": "ready"})
    for line in commands:
        command = json.loads(line)
        if command.get("exit") is not None:
            sys.exit(command["exit"])
        if command.get("make") is not None:
            make_coded_file(Path(command["make"]))
            say({"event": "end"})
            continue
        known = {thread.ident for thread in threading.enumerate()}
        answer = train(model, command, say)
        say({"event": "end", **answer, "left": residue(known, command.get("grace_s", GRACE_S))})


if __name__ == "__main__":
    main()

"""What a worker process runs: :func:`main`. It answers one item after the other until its standard input ends.

::

    parent --> standard input:   Start, then (item, slot) ...
    parent <-- standard output:  Ready, then Answer or Raised ...
    arrays                       in the slot, where they fit: only their place travels through the pipe

The parent starts it with ``subprocess``, as a program of its own: it inherits no memory, no locks and no threads, so it
does not matter what runs in the parent (TensorFlow's threads), whether its main script has a guard, and which system
this is. It imports the standard library, cloudpickle, NumPy and what its function needs; for batches that is h5py,
OpenCV and the modules of this package below ``workers``.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import pickle
import queue
import select
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import cloudpickle

from helpers import slots

# What the new process runs: this package from the folder the parent has it from, which its import path may not lead to
# any more (it begins with "" in a notebook, and the working directory changes); then the parent's import path; main().
COMMAND = (
    "import sys; sys.path.insert(0, sys.argv[1]); import helpers; sys.path[:] = sys.argv[2:]; "
    "from helpers.worker_process import main; main()"
)
KIT_FOLDER = str(Path(__file__).resolve().parents[1])
_LOOK_MS = 1000  # how often a worker without a task looks whether its parent is still there
_loading = threading.Event()  # set while a worker process loads its function
STACK_SIGNAL = getattr(signal, "SIGUSR1", None)  # asks a worker, also a stuck one, to write down where it is


@dataclass(frozen=True)
class Start:
    """The first message to a worker: its function, as cloudpickle bytes, and where slots and stacks are.

    ``memory`` None: there are no slots, and the function takes nothing but the item.
    """

    function: bytes
    memory: int | str | None
    memory_bytes: int
    slot_bytes: int
    stack_file: int | None
    parent: int


@dataclass(frozen=True)
class Ready:
    """The first message from a worker."""


@dataclass(frozen=True)
class Answer:
    """A pickle of what the function gave, and its arrays: a place in the slot (start, stop), or the bytes."""

    pickled: bytes
    buffers: tuple[tuple[int, int] | bytes, ...]

    def value(self, memory: memoryview):
        """What the function gave, its arrays lying in ``memory``."""
        return pickle.loads(
            self.pickled,
            buffers=[bytearray(part) if isinstance(part, bytes) else memory[slice(*part)] for part in self.buffers],
        )


class RemoteTraceError(Exception):
    """The cause of an exception from a worker process: its trace there, as text."""

    def __str__(self) -> str:
        return f'\n"""\n{self.args[0]}"""'


@dataclass(frozen=True)
class Raised:
    """An exception on its way from a worker: by cloudpickle, because its class may come from a notebook cell.

    ``payload`` None: it does not come back from a pickle, and ``text`` is all that travels. ``ends``: it is none that
    a program goes on after.
    """

    payload: bytes | None
    text: str
    notes: tuple[str, ...]
    trace: str
    ends: bool = False

    @classmethod
    def of(cls, error: BaseException) -> Raised:
        try:
            payload = cloudpickle.dumps(error)
            cloudpickle.loads(payload)
        except Exception:  # a lock in it, or an __init__ that does not take its args: pickling raises anything
            payload = None
        goes_on = isinstance(error, Exception)
        text = _text(error) if goes_on else repr(error)
        trace = "".join(traceback.format_exception(error))
        return cls(payload, text, tuple(getattr(error, "__notes__", ())), trace, ends=not goes_on)

    def error(self) -> Exception:
        error = self._error()
        for note in self.notes[len(getattr(error, "__notes__", ())) :]:  # a __reduce__ of its own may drop them
            error.add_note(note)
        error.__cause__ = self.cause()
        return error

    def cause(self) -> RemoteTraceError:
        return RemoteTraceError(self.trace)

    def _error(self) -> Exception:
        if self.payload is not None:
            with contextlib.suppress(Exception):  # its module may exist in the worker only
                error = cloudpickle.loads(self.payload)
                if isinstance(error, Exception):  # a __reduce__ may give anything
                    return error
        return RuntimeError(self.text)


def _text(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:  # its own __str__ fails
        return f"{type(error).__name__} (its text cannot be had: __str__ fails)"


def is_loading() -> bool:
    """Whether this process is a worker that imports what it will run."""
    return _loading.is_set()


def main() -> None:
    """Answer items until the parent closes the pipe, or is gone."""
    parent = os.getppid()
    tasks, answers = _take_pipes()
    try:
        if not _comes(tasks, parent):
            return
        start = pickle.load(tasks)
    except EOFError:  # closed, or the parent gone, before this process had begun
        return
    _prepare(start)
    function = _load(start.function)
    memory = memoryview(b"") if start.memory is None else slots.attach(start.memory, start.memory_bytes)
    todo: queue.SimpleQueue = queue.SimpleQueue()
    threading.Thread(target=_read_tasks, args=(tasks, todo, start.parent), daemon=True).start()
    _send(answers, Ready())
    while True:
        item, slot = todo.get()
        arena = slots.Arena(memory[:0] if slot is None else slots.slot_memory(memory, slot, start.slot_bytes))
        _send(answers, _answer(function, (item,) if start.memory is None else (item, arena.empty), arena))


def _answer(function: Callable, arguments: tuple, arena: slots.Arena) -> Answer | Raised:
    """Call ``function`` and pack what it gives, or raises. Arrays stay in the arena, or are copied to it."""
    try:
        value = function(*arguments)
        buffers: list[pickle.PickleBuffer] = []
        pickled = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
        return Answer(pickled, tuple(arena.place_of(buffer.raw()) or bytes(buffer.raw()) for buffer in buffers))
    except (SystemExit, KeyboardInterrupt):  # the process ends, as any program does
        raise
    except BaseException as error:
        return Raised.of(error)


def _take_pipes():
    """The pipes to the parent; what the function prints goes to standard error, and its input is empty."""
    tasks = os.fdopen(os.dup(0), "rb")
    answers = os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return tasks, answers


def _prepare(start: Start) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what an interrupt means
    if start.stack_file is not None:
        faulthandler.enable(start.stack_file)  # a crash in native code leaves its stack there
        faulthandler.register(STACK_SIGNAL, start.stack_file)


def _load(pickled: bytes) -> Callable:
    _loading.set()
    try:
        function = cloudpickle.loads(pickled)
    except Exception as error:  # a module that is missing here; an error now would look like a killed worker
        error.add_note("while a worker process loaded the function it runs")
        function = _Raises(error)
    _loading.clear()
    if "cv2" in sys.modules:
        sys.modules["cv2"].setNumThreads(1)  # the workers are the parallelism
    return function


class _Raises:
    def __init__(self, error: Exception):
        self._error = error

    def __call__(self, *_args):
        raise self._error


def _read_tasks(tasks, todo: queue.SimpleQueue, parent: int) -> None:
    """Hand on what comes; when the pipe ends, the parent is gone or done with us, whatever this process is at."""
    with contextlib.suppress(EOFError, pickle.UnpicklingError):
        while _comes(tasks, parent):
            todo.put(pickle.load(tasks))
    os._exit(0)


def _comes(tasks, parent: int) -> bool:
    """Wait for a task, or the end of the pipe; False: the parent is gone, and a fork of it holds the pipe open."""
    if not hasattr(select, "poll"):
        return True
    poll = select.poll()
    poll.register(tasks, select.POLLIN)
    while not poll.poll(_LOOK_MS):  # nothing is buffered: the parent sends a task when it has the last answer
        if os.getppid() != parent:
            return False
    return True


def _send(answers, message) -> None:
    try:
        pickle.dump(message, answers, protocol=5)
        answers.flush()
    except BrokenPipeError:
        os._exit(0)

"""Answers of a function, made ahead of the one who asks for them: by threads or processes, in order, with an end.

::

    consumer               WorkerPool                      worker 1..n: a thread each, which ...
    get(7)  ---------->  orders 7 .. 7+ahead-1  ------->  threads: calls function(item)
            <----------  waits for 7 alone      <-------  processes: asks its own process, through a pipe; the arrays
                                                          lie in a slot of shared memory and are not copied

Which worker is faster changes nothing: ``get(7)`` is ``function(7)``. The workers live until :meth:`WorkerPool.close`.

What goes wrong, and what is seen:

=====================  =====================================  ====================================================
what                   what the caller gets                   who cleans up
=====================  =====================================  ====================================================
function raises        that exception, the worker's trace     nobody: the pool goes on
                       as cause
a worker process dies  WorkerDiedError at the next get(),     the pool is of no more use; close() ends the others
                       also when it was idle
no answer in time      WorkerStalledError, with the stack of  close() kills processes; a thread cannot be killed,
                       the worker                             and is left behind (Python's end does not wait for it)
closed meanwhile       CancelledError                         close() itself
the parent is killed   (nothing is left to get it)            each worker sees its pipe end, and ends; the memory
                                                              has no name and goes with its last user
=====================  =====================================  ====================================================

Why own processes, started by ``subprocess``, and no pool of a library? Measured with two workers that import NumPy,
h5py and OpenCV (Python 3.11, Linux, 2 cores):

======================  ==========  ==========================  ====================  ==============================
                        first       a worker gets SIGKILL       the parent gets       needs a main guard, and
                        answer in                               SIGKILL               importable functions
======================  ==========  ==========================  ====================  ==============================
``subprocess``          0.17 s      seen at once, with signal   workers and memory    no
                                    and the task it was at      are gone
``concurrent.futures``  0.17 s      seen at once; all tasks     workers, tracker and  yes
(spawn, forkserver)                 fail, none is named         segment stay
loky                    0.27 s      seen after 0.1 s; all       workers, trackers     no
                                    tasks fail, none is named   and segment stay
``multiprocessing``     0.19 s      never: the task is lost,    workers, tracker and  yes; else it starts workers
Pool                                and the caller waits        segment stay          for ever
======================  ==========  ==========================  ====================  ==============================

An interrupt of the parent alone (a notebook's stop button) while workers are busy makes the executors of
``concurrent.futures`` and loky wait for them; here they are killed. The price is this module.
"""

from __future__ import annotations

import collections
import contextlib
import copy
import os
import pickle
import select
import signal
import subprocess
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Callable
from concurrent.futures import CancelledError

import cloudpickle
import numpy as np
import psutil

from helpers import worker_process
from helpers.slots import Arena, Slots, room_for, scratch_file

_PATIENCE_S = 2.0  # for a thread at work when a pool is closed; what takes longer (a stuck disk) is left behind
_LENT_SLOTS = 6  # Keras on TensorFlow holds two to four batches at a time; who keeps more gets copies
_LOOK_MS = 500  # how often a thread that waits for its process looks whether it is still there
_STACK_WAIT_S = 1.0  # for a stuck worker process to write down where it is
_STACK_FRAMES = 12  # of a stuck thread, from the function that it runs on: more is seldom read
_OVERDUE_S = (
    2.0  # a step of a fast model comes to a broken batch sooner, and the training ends in the same place each time
)
_ENDS_A_PROGRAM = "Something in it called sys.exit(), or raised what ends a program."
_TIME_IS_UP = object()


class WorkerDiedError(RuntimeError):
    """A worker process ended without an answer."""


class WorkerStalledError(RuntimeError, TimeoutError):
    """No answer came in time."""


class WorkerPool:
    """``get(item)`` is ``function(item)``, made ahead for items that are asked for in rising order.

    Parameters
    ----------
    function : takes an int. For processes it travels by cloudpickle, so it may come from a notebook cell.
    workers : how many; with 0 the answer is made when it is asked for.
    processes : worker processes instead of threads. They are programs of their own, never forks (a fork of a process
        that runs TensorFlow can stand still for ever), do not run the main script again, and see no GPU.
    ahead : items that are in work or ready at a time.
    timeout_s : seconds to wait for one answer.
    describe : words for an item in the sentences of errors.
    memory_advice : what the caller can do when a worker has too little memory, for the sentences of errors.
    answer_bytes : bytes of the arrays in an answer. With them the pool keeps slots of re-used memory, and ``function``
        is called with a second argument ``empty``, which is ``np.empty`` for arrays in a slot. A slot is used again
        when nobody refers to its arrays; a caller that keeps many answers gets copies, and never waits for ever.

    The pool starts with the first ``get`` or ``prepare``. It is safe to ask from several threads, also while another
    one closes it.
    """

    def __init__(
        self,
        function: Callable,
        workers: int,
        *,
        processes: bool = False,
        ahead: int = 10,
        timeout_s: float = 60,
        describe: Callable[[int], str] = "item {}".format,
        memory_advice: str = "lower workers, max_queue_size or batch_size",
        answer_bytes: int = 0,
    ):
        self._function = function
        self.workers = workers
        self.processes = bool(processes) and workers > 0
        self.ahead = max(ahead, workers, 1)
        self._timeout_s = timeout_s
        self._describe = describe
        self._memory_advice = memory_advice
        self._answer_bytes = answer_bytes
        self._board = _Board()
        self._slots: Slots | None = None
        self._starting = threading.Lock()
        self._workers: list[_Worker] = []
        self._end: weakref.finalize | None = None

    @property
    def closed(self) -> bool:
        return self._board.closed

    @property
    def most_held(self) -> int:
        """Answers that lie in memory at a time, at most: in work, ready, and lent to the consumer without a copy."""
        return self.ahead + self.workers + _LENT_SLOTS if self.workers else 1

    @property
    def overdue_error(self) -> Exception | None:
        """An error that the consumer does not come to, for slowness: a death, or what ``function`` raised 2 s ago."""
        return self._board.dead or self._board.overdue_error()

    def get(self, item: int, stop: int | None = None):
        """``function(item)``; items from ``stop`` on are not made ahead.

        Raises
        ------
        CancelledError
            The pool was closed meanwhile.
        WorkerDiedError, WorkerStalledError
            No answer will come; and whatever ``function`` raises.
        TypeError
            ``function`` cannot travel to a worker process.
        """
        if self.workers == 0:
            return self._function(item, np.empty) if self._answer_bytes else self._function(item)
        self.prepare(item, stop)
        answer = self._board.wait_for(item, self._window(item, stop), self._timeout_s)
        if answer is _TIME_IS_UP:
            raise WorkerStalledError(self._stalled(item))
        if isinstance(answer, _Failed):
            raise answer.error
        slots = self._slots  # close() in another thread lets go of them
        if slots is not None and slots.free_count < self.workers:
            return copy.deepcopy(answer)  # the consumer keeps what it gets: the slot must go back to the workers
        return answer

    def prepare(self, item: int, stop: int | None = None) -> None:
        """Let the workers begin with ``item``, and do not wait."""
        if self.workers:
            with self._starting:
                if self._end is None and not self.closed:
                    self._start()
            self._board.order(self._window(item, stop))

    def close(self) -> None:
        """End the workers, wait until they are gone, and let go of the memory. Closing twice is quiet."""
        self._board.close()
        with self._starting:  # a start in another thread comes to its end first
            end = self._end
        if end is not None:
            # In a thread of its own: an impatient second Ctrl-C interrupts the waiting, not the cleaning up.
            ending = threading.Thread(target=end, name="helpers-closing")
            try:
                ending.start()
            except RuntimeError:  # Python ends, and takes no new threads
                end()
            else:
                self._slots = None  # a traceback that is kept (IPython keeps the last one) keeps the pool
                ending.join()
        self._slots = None

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, *exc_info) -> None:
        self.close()

    def __repr__(self) -> str:
        kind = "processes" if self.processes else "threads"
        state = "closed" if self.closed else "running" if self._workers else "not started"
        return f"WorkerPool({self.workers} {kind}, {self.ahead} ahead): {state}"

    def _window(self, item: int, stop: int | None) -> range:
        return range(item, item + self.ahead if stop is None else max(min(item + self.ahead, stop), item + 1))

    def _start(self) -> None:
        if worker_process.is_loading():
            raise RuntimeError(
                "a worker process must not start workers of its own while it imports what it will run: the module of "
                "that function starts a training as soon as it is imported. Put the training into a function, or "
                'below `if __name__ == "__main__":`.'
            )
        pickled = _pickled(self._function) if self.processes else b""
        if self._answer_bytes:
            self._slots = Slots(self.most_held, room_for(self._answer_bytes, 0, 0), shared=self.processes)
        # Also at the end of Python, and when the pool was forgotten: a process must not outlive its use.
        self._end = weakref.finalize(self, _end, os.getpid(), self._board, self._workers)
        try:
            for number in range(1, self.workers + 1):
                maker = self._new_process(pickled) if self.processes else _Caller(self._function, self._slots)
                self._workers.append(_Worker(number, self._board, maker, self._describe))
            for worker in self._workers:
                worker.start()
        except BaseException:
            self._end()
            raise
        finally:
            if self._slots is not None and self.processes:
                self._slots.shared.close_handle()

    def _new_process(self, pickled: bytes) -> _Process:
        return _Process(pickled, self._slots, f"The usual cause is memory: {self._memory_advice}.")

    def _stalled(self, item: int) -> str:
        kind = "processes" if self.processes else "threads"
        text = (
            f"no answer for {self._timeout_s:g} s; waiting for {self._describe(item)} from {self.workers} worker "
            f"{kind}, which are alive. Often it is a disk that does not answer, or an augment function that never "
            "returns: the stack below shows where. Raise stall_timeout_s if a batch may take that long."
        )
        busy = [worker for worker in self._workers if worker.item is not None]
        stuck = [worker for worker in busy if worker.item == item] or busy
        return "\n".join([text, *(worker.where() for worker in stuck)])


def _end(owner: int, board: _Board, workers: list[_Worker]) -> None:
    if os.getpid() != owner:  # a forked child that ends: the workers are its parent's
        return
    board.close()
    for worker in workers:
        worker.maker.end()
    deadline = time.monotonic() + _PATIENCE_S
    for worker in workers:
        if worker.is_alive() and worker is not threading.current_thread():
            worker.join(max(0.0, deadline - time.monotonic()))
        worker.maker.clean_up(max(0.0, deadline - time.monotonic()))


class _Failed:
    def __init__(self, error: Exception):
        self.error = error
        self.at = time.monotonic()


class _Board:
    """What is to do, what is in work and what is ready; workers and consumers meet here."""

    def __init__(self):
        # The lock is taken itself, in C: an interrupt in Condition.__enter__, which is Python, would keep it locked.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self.closed = False
        self.dead: Exception | None = None
        self._todo: collections.deque[int] = collections.deque()
        self._in_work: set[int] = set()
        self._ready: dict[int, object] = {}
        self._asked: collections.Counter[int] = collections.Counter()
        self._window = range(0)

    def order(self, window: range) -> None:
        """Have the items of ``window`` made; forget what lies outside of it and nobody waits for."""
        with self._lock:
            if self.closed:
                return
            self._window = window
            for item in [item for item in self._ready if not self._is_wanted(item)]:
                del self._ready[item]
            known = self._ready.keys() | self._in_work
            waited_for = [item for item in self._asked if item not in window]
            self._todo = collections.deque(item for item in [*waited_for, *window] if item not in known)
            self._changed.notify_all()

    def wait_for(self, item: int, window: range, timeout_s: float):
        """The answer for ``item``, or ``_TIME_IS_UP``."""
        deadline = time.monotonic() + timeout_s
        with self._lock:
            self._asked[item] += 1
            try:
                while True:
                    self._check()
                    if item in self._ready:
                        return self._ready.pop(item)
                    if item not in self._in_work and item not in self._todo:  # another thread took it, or moved on
                        self.order(window)
                    if not self._changed.wait(deadline - time.monotonic()) and time.monotonic() >= deadline:
                        return _TIME_IS_UP
            finally:
                self._asked -= collections.Counter([item])

    def next_item(self, patience_s: float):
        """The next item to make; None when the pool is closed; ``_TIME_IS_UP`` when there is nothing to do."""
        with self._lock:
            came = self._changed.wait_for(lambda: self._todo or self.closed, patience_s)
            if self.closed:
                return None
            if not came:
                return _TIME_IS_UP
            item = self._todo.popleft()
            self._in_work.add(item)
            return item

    def put(self, item: int, answer: object) -> None:
        with self._lock:
            self._in_work.discard(item)
            if isinstance(answer, _Failed) and isinstance(answer.error, WorkerDiedError):
                self.tell_death(answer.error)
            if self._is_wanted(item):
                self._ready[item] = answer
            self._changed.notify_all()

    def tell_death(self, error: WorkerDiedError) -> None:
        with self._lock:
            if not self.closed:
                self.dead = self.dead or error
            self._changed.notify_all()

    def overdue_error(self) -> Exception | None:
        with self._lock:
            failed = [answer for answer in self._ready.values() if isinstance(answer, _Failed)]
        return next((answer.error for answer in failed if time.monotonic() > answer.at + _OVERDUE_S), None)

    def close(self) -> None:
        with self._lock:
            self.closed = True
            self._todo.clear()
            self._ready.clear()
            self._changed.notify_all()

    def _check(self) -> None:
        if self.closed:
            raise CancelledError
        if self.dead is not None:
            raise self.dead

    def _is_wanted(self, item: int) -> bool:
        return not self.closed and (item in self._window or item in self._asked)


class _Worker(threading.Thread):
    """Takes items from the board and puts answers there. It refers to the pool's parts, never to the pool."""

    def __init__(self, number: int, board: _Board, maker: _Caller | _Process, describe: Callable[[int], str]):
        super().__init__(name=f"helpers-worker-{number}", daemon=True)  # joined by close(); a stuck one is left behind
        self.item: int | None = None  # what it is at
        self.maker = maker
        self._words = f"worker {number}{maker.words}"
        self._board = board
        self._describe = describe

    def run(self) -> None:
        waited = "while it waited for its first task"
        while self._board.dead is None and (item := self._board.next_item(_LOOK_MS / 1000)) is not None:
            if item is _TIME_IS_UP:  # the other workers may have all the work for long: look after the idle process
                death = self.maker.idle_death()
                if death is not None:
                    self._board.tell_death(self._died(death, waited))
                continue
            self.item = item
            self._board.put(item, self._answer(item))
            self.item = None
            waited = f"while it waited, after {self._describe(item)}"

    def _died(self, death: _DeathError, when: str) -> WorkerDiedError:
        error = WorkerDiedError(f"{self._words} {death.how} {when}. {death.advice}")
        error.__cause__ = death.__cause__
        return error

    def _answer(self, item: int):
        try:
            return self.maker.make(item)
        except _DeathError as death:
            return _Failed(self._died(death, f"while it made {self._describe(item)}"))
        except Exception as error:
            return _Failed(error)
        except BaseException as error:  # without a word, sys.exit() would end the thread, and nobody would answer
            how = f"{self._words} ended with {error!r} while it made {self._describe(item)}."
            death = WorkerDiedError(f"{how} {_ENDS_A_PROGRAM}")
            death.__cause__ = error
            return _Failed(death)

    def where(self) -> str:
        """Words on what this worker is at, with its stack."""
        item = self.item
        at = "nothing any more" if item is None else self._describe(item)
        return f"{self._words} is at {at}:\n{self.maker.stack(self)}"


class _Caller:
    """Makes answers in the thread that asks."""

    words = ""

    def __init__(self, function: Callable, slots: Slots | None):
        self._function = function
        self._slots = slots

    def make(self, item: int):
        slots = self._slots
        if slots is None:
            return self._function(item)
        slot = slots.take()
        return self._function(item, np.empty if slot is None else Arena(slots.lend(slot)).empty)

    def stack(self, thread: threading.Thread) -> str:
        frame = sys._current_frames().get(thread.ident)
        frames = [] if frame is None else traceback.extract_stack(frame)
        own = [number for number, summary in enumerate(frames) if summary.filename == __file__]
        shown = frames[own[-1] + 1 if own else 0 :]
        return "".join(traceback.format_list(shown[-_STACK_FRAMES:])).rstrip()

    def idle_death(self) -> None:
        """A thread does not die alone."""

    def end(self) -> None:
        """A thread ends by itself when it sees that the board is closed."""

    def clean_up(self, patience_s: float) -> None:  # noqa: ARG002 (a process needs it)
        self._slots = None


class _DeathError(Exception):
    """A worker process is gone; ``how`` and ``advice`` are parts of a sentence."""

    def __init__(self, how: str, advice: str):
        super().__init__(how)
        self.how = how
        self.advice = advice


class _Process:
    """Makes answers in a process of its own; used by one thread, ended by any."""

    def __init__(self, function: bytes, slots: Slots | None, memory: str):
        self._slots = slots
        self._causes = {
            getattr(signal, "SIGKILL", None): memory,
            getattr(signal, "SIGBUS", None): memory,
            signal.SIGINT: "Something in it raised KeyboardInterrupt, or somebody interrupted it.",
        }
        self._stack_file = scratch_file("helpers-stack") if hasattr(os, "pread") else None
        inherited = () if self._stack_file is None else (self._stack_file,)
        if slots is None:
            memory = (None, 0, 0)
        else:
            memory = (slots.shared.handle, slots.shared.size, slots.slot_bytes)
            inherited += slots.shared.descriptors
        self._start_message = worker_process.Start(function, *memory, self._stack_file, os.getpid())
        try:
            self._process = _spawn(inherited)
        except BaseException:
            if self._stack_file is not None:
                os.close(self._stack_file)
            raise
        self._is_ready = False

    @property
    def words(self) -> str:
        return f" (process {self._process.pid})"

    def make(self, item: int):
        if not self._is_ready:
            self._ask(self._start_message)
            self._is_ready = True
        slot = None if self._slots is None else self._slots.take()
        reply = self._ask((item, slot))
        memory = memoryview(b"") if slot is None else self._slots.lend(slot)
        if isinstance(reply, worker_process.Raised):
            if reply.ends:
                raise _DeathError(f"ended with {reply.text}", _ENDS_A_PROGRAM) from reply.cause()
            raise reply.error()
        return reply.value(memory)

    def stack(self, _thread: threading.Thread) -> str:
        """What the process, which may be stuck, wrote down on a signal; without its thread that reads tasks."""
        if self._stack_file is None or not self._is_ready:
            return "  (where, cannot be asked: it is still starting, or this system has no signals)"
        before = os.fstat(self._stack_file).st_size
        self._process.send_signal(worker_process.STACK_SIGNAL)
        deadline = time.monotonic() + _STACK_WAIT_S
        written, size = -1, before
        while time.monotonic() < deadline and (size == before or size != written):  # until it writes no more
            written = size
            time.sleep(0.05)
            size = os.fstat(self._stack_file).st_size
        threads = self._written(before).strip().split("\n\n")
        shown = [text for text in threads if text and " in _read_tasks\n" not in f"{text}\n"]
        return (
            "\n".join(shown) or f"  (it does not write its stack; the system says it is: {_state(self._process.pid)})"
        )

    def idle_death(self) -> _DeathError | None:
        """How the process, which is at nothing, ended; None while it lives."""
        return None if self._process.poll() is None else self._death()

    def end(self) -> None:
        self._process.kill()  # it holds nothing that has to be put in order

    def clean_up(self, patience_s: float) -> None:
        with contextlib.suppress(
            subprocess.TimeoutExpired
        ):  # in the kernel, at a disk that does not answer: it ends then
            self._process.wait(patience_s)
        for pipe in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):  # what was not sent yet is for nobody
                pipe.close()
        if self._stack_file is not None:
            os.close(self._stack_file)
            self._stack_file = None
        self._slots = None

    def _ask(self, message):
        try:
            pickle.dump(message, self._process.stdin, protocol=5)
            self._process.stdin.flush()
            self._wait_for_reply()
            return pickle.load(self._process.stdout)
        except Exception as error:  # whatever it is: half a reply may be left in the pipe, for the next one to read
            raise self._death() from error

    def _wait_for_reply(self) -> None:
        """Until there is something to read, or the process is gone: its own children may hold the pipe open."""
        if not hasattr(select, "poll"):
            return
        poll = select.poll()
        poll.register(self._process.stdout, select.POLLIN)
        while not poll.poll(_LOOK_MS):
            if self._process.poll() is not None and not poll.poll(0):
                raise EOFError("the process is gone")

    def _death(self) -> _DeathError:
        try:
            code = self._process.wait(_STACK_WAIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()  # nobody would read what it writes
            return _DeathError("closed its pipe", "Something in it closed file descriptors that are not its own.")
        crash = self._written(0).partition("Fatal Python error")
        if crash[1]:
            return _DeathError(
                f"was ended by {_signal_name(code)}", f"That is a crash in native code, here:\n{''.join(crash[1:])}"
            )
        if code < 0:
            return _DeathError(
                f"was ended by {_signal_name(code)}", self._causes.get(-code, "Somebody, or a job system, ended it.")
            )
        if not self._is_ready:
            return _DeathError(f"ended with exit code {code}", "It could not start; standard error says why.")
        return _DeathError(f"ended with exit code {code}", "Something in it called os._exit() or sys.exit().")

    def _written(self, start: int) -> str:
        if self._stack_file is None:
            return ""
        return os.pread(self._stack_file, 2**16, start).decode(errors="replace")


def _spawn(inherited: tuple[int, ...]) -> subprocess.Popen:
    # In a process group of its own: Ctrl-C and a kernel's interrupt go to the whole group of the parent, and what they
    # mean is the parent's business.
    own_group = (
        {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP}
        if os.name == "nt"
        else {"process_group": 0, "pass_fds": inherited}
    )
    return subprocess.Popen(
        [sys.executable, "-P", "-c", worker_process.COMMAND, worker_process.KIT_FOLDER, *map(str, sys.path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=None if sys.__stderr__ is not None else subprocess.DEVNULL,  # a program that was started without one
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},  # a worker makes arrays: it must take no GPU memory
        **own_group,
    )


def _pickled(function: Callable) -> bytes:
    try:
        return cloudpickle.dumps(function)
    except Exception as error:  # pickling raises anything
        raise TypeError(
            f"what the workers run cannot be sent to a process: {error}. It, or the augment function in it, holds "
            "something that belongs to one process: an open file, a lock, a generator. Make that inside the function, "
            "or use threads: use_multiprocessing=False."
        ) from error


def _signal_name(code: int) -> str:
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"exit code {code}"


def _state(pid: int) -> str:
    try:
        return psutil.Process(pid).status()
    except psutil.Error:
        return "gone"

"""Answers of a function, made ahead of the one who asks for them: by threads or processes, in order, with an end.

::

    training thread            pool                              worker 1..n (threads or processes)
    get(7)  ------------->  submits 7 .. 7+ahead-1  ----------->  function(7), function(8), ...
            <-------------  waits for 7 alone       <-----------  answer, or the exception with its trace

Which worker is faster changes nothing: ``get(7)`` is ``function(7)``. The workers live until :meth:`WorkerPool.close`.

What goes wrong, and what is seen:

=====================  ==========================================  ==============================================
what                   what the caller gets                        who cleans up
=====================  ==========================================  ==============================================
function raises        that exception, the worker's trace as cause  nobody: the pool goes on
a worker process dies  WorkerDiedError                             the pool ends the other workers
no answer in time      WorkerStalledError                          close() kills processes; a thread is left alone,
                                                                   and Python waits for it when it ends
closed meanwhile       CancelledError                              close() kills what does not end by itself soon
the parent is killed   (nothing is left to get it)                 each worker sees that its parent is gone, and ends
=====================  ==========================================  ==============================================
"""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import CancelledError, Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing.context import SpawnContext, SpawnProcess

import cloudpickle

_PATIENCE_S = 2.0  # for the batches in work when a pool is closed; what takes longer (a stuck disk) is killed


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
    processes : worker processes instead of threads. They are spawned, never forked (a fork of a process that runs
        TensorFlow can stand still for ever), do not run the main script again, and see no GPU.
    ahead : items that are in work or ready at a time.
    timeout_s : seconds to wait for one answer.
    describe : words for an item in the sentences of errors.

    The pool starts with the first ``get``. It is safe to ask from several threads, also while another one closes it.
    """

    def __init__(
        self,
        function: Callable[[int], object],
        workers: int,
        *,
        processes: bool = False,
        ahead: int = 10,
        timeout_s: float = 60,
        describe: Callable[[int], str] = "item {}".format,
    ):
        self._function = function
        self._describe = describe
        self.workers = workers
        self.processes = bool(processes) and workers > 0
        self.ahead = max(ahead, workers, 1)
        self._timeout_s = timeout_s
        self._executor: Executor | None = None
        self._futures: dict[int, Future] = {}
        self._lock = threading.Lock()
        self._closed = False
        self._stalled = False

    @property
    def closed(self) -> bool:
        return self._closed

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
            return self._function(item)
        answer = self._wait_for(item, stop)
        if isinstance(answer, _Raised):
            raise answer.error() from RemoteTraceError(answer.trace)
        return answer

    def _wait_for(self, item: int, stop: int | None):
        future = self._future(item, stop)
        try:
            return future.result(self._timeout_s)
        except BrokenProcessPool as error:
            if self._closed:
                raise CancelledError from error
            raise WorkerDiedError(
                f"a worker process died (killed by the system, or a crash in native code) before "
                f"{self._describe(item)} was made. The usual cause is memory: lower workers, max_queue_size or "
                "batch_size."
            ) from error
        except TimeoutError as error:
            if future.done():  # the function itself raised it, or the answer came just now
                return future.result()
            self._stalled = True
            kind = "processes" if self.processes else "threads"
            raise WorkerStalledError(
                f"no answer for {self._timeout_s:g} s; waiting for {self._describe(item)} from {self.workers} worker "
                f"{kind}, which are alive. The usual cause is a disk that does not answer; raise stall_timeout_s if "
                "a batch may take that long."
            ) from error

    def close(self) -> None:
        """End the workers and wait until they are gone. Closing twice is quiet."""
        with self._lock:
            self._closed = True
            executor, self._executor = self._executor, None
            self._futures = {}
        if executor is None:
            return
        if not self.processes:
            executor.shutdown(wait=not self._stalled, cancel_futures=True)
            return
        # The public call for this, kill_workers(), comes with Python 3.14. Nothing is cancelled here by hand: the
        # thread that manages the pool ends with a trace when it meets a cancelled answer of a dead worker (3.11).
        processes, manager = list((executor._processes or {}).values()), executor._executor_manager_thread
        executor.shutdown(wait=False, cancel_futures=True)
        if manager is None:  # no process could be started
            return
        manager.join(0 if self._stalled else _PATIENCE_S)
        if manager.is_alive():
            for process in processes:
                process.kill()
            manager.join()

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, *exc_info) -> None:
        self.close()

    def __repr__(self) -> str:
        kind = "processes" if self.processes else "threads"
        state = "closed" if self._closed else "running" if self._executor else "not started"
        return f"WorkerPool({self.workers} {kind}, {self.ahead} ahead): {state}"

    def _future(self, item: int, stop: int | None) -> Future:
        with self._lock:
            if self._closed:
                future: Future = Future()
                future.cancel()
                return future
            for passed in [number for number in self._futures if number < item]:
                self._futures.pop(passed)  # left over from a jump forward
            last = item + self.ahead if stop is None else max(min(item + self.ahead, stop), item + 1)
            for wanted in range(item, last):
                if wanted not in self._futures:
                    self._futures[wanted] = self._submit(wanted)
            return self._futures.pop(item)

    def _submit(self, item: int) -> Future:
        if self._executor is None:
            self._executor = self._start()
        if not self.processes:
            return self._executor.submit(self._function, item)
        try:
            return self._executor.submit(_answer, item)
        except BrokenProcessPool as error:  # a worker died since the last call
            future: Future = Future()
            future.set_exception(error)
            return future

    def _start(self) -> Executor:
        if self.processes:
            payload = _packed(self._function)
            return ProcessPoolExecutor(self.workers, _Context(), initializer=_start_worker, initargs=(payload,))
        return ThreadPoolExecutor(self.workers, thread_name_prefix="helpers-worker")


class _Process(SpawnProcess):
    """A spawned process that does not import the main script: its function travels by value, it needs none."""

    @staticmethod
    def _Popen(process):  # noqa: N802 (multiprocessing's name)
        with _main_hidden():
            return SpawnProcess._Popen(process)


class _Context(SpawnContext):
    Process = _Process


_MAIN_LOCK = threading.Lock()


@contextlib.contextmanager
def _main_hidden():
    """Hide where the main script lies, so that a script needs no ``if __name__ == "__main__"`` guard."""
    main = sys.modules["__main__"]
    with _MAIN_LOCK:
        hidden = {name: main.__dict__.pop(name) for name in ("__file__", "__spec__") if name in main.__dict__}
        main.__spec__ = None
        try:
            yield
        finally:
            main.__dict__.pop("__spec__")
            main.__dict__.update(hidden)


_function: Callable[[int], object] | None = None  # in a worker process: what it was started for


def batch_of_item(source, item: int):
    """Item g of the endless stream of a ``BatchSource``: batch ``g % len`` of epoch ``g // len``."""
    return source.batch(*divmod(item, len(source)))


class RemoteTraceError(Exception):
    """The cause of an exception from a worker process: its trace there, as text."""

    def __str__(self) -> str:
        return f'\n"""\n{self.args[0]}"""'


@dataclass(frozen=True)
class _Raised:
    """An exception on its way from a worker: by cloudpickle, because its class may come from a notebook cell.

    ``payload`` None: it does not come back from a pickle, and ``text`` is all that travels.
    """

    payload: bytes | None
    text: str
    notes: tuple[str, ...]
    trace: str

    @classmethod
    def of(cls, error: Exception) -> _Raised:
        try:
            payload = cloudpickle.dumps(error)
            cloudpickle.loads(payload)
        except Exception:  # a lock in it, or an __init__ that does not take its args: pickling raises anything
            payload = None
        text = f"{type(error).__name__}: {error}"
        return cls(payload, text, tuple(getattr(error, "__notes__", ())), "".join(traceback.format_exception(error)))

    def error(self) -> Exception:
        if self.payload is not None:
            return cloudpickle.loads(self.payload)
        error = RuntimeError(self.text)
        for note in self.notes:
            error.add_note(note)
        return error


def _packed(function: Callable[[int], object]) -> bytes:
    try:
        return cloudpickle.dumps(function)
    except Exception as error:  # pickling raises anything
        raise TypeError(
            f"what the workers run cannot be sent to a process: {error}. It, or the augment function in it, holds "
            "something that belongs to one process: an open file, a lock, a generator. Make that inside the function, "
            "or use threads: use_multiprocessing=False."
        ) from error


def _start_worker(payload: bytes) -> None:
    global _function
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides what it means
    threading.Thread(target=_end_with_parent, daemon=True).start()
    os.environ.update(CUDA_VISIBLE_DEVICES="")  # a worker makes arrays: it must take no GPU memory
    try:
        _function = cloudpickle.loads(payload)
    except Exception as error:  # a module that is missing here; an error now would look like a killed worker
        error.add_note("while a worker process loaded the function it runs")
        _function = functools.partial(_raise, error)
    if "cv2" in sys.modules:
        sys.modules["cv2"].setNumThreads(1)  # the workers are the parallelism


def _end_with_parent() -> None:
    multiprocessing.parent_process().join()
    os._exit(1)


def _raise(error: Exception, item: int):
    del item
    raise error


def _answer(item: int):
    try:
        return _function(item)
    except Exception as error:
        return _Raised.of(error)

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
no answer in time      WorkerStalledError                          close() kills processes; a thread is left alone
the parent is killed   (nothing is left to get it)                 each worker sees that its parent is gone, and ends
=====================  ==========================================  ==============================================
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.context import SpawnContext, SpawnProcess

import cloudpickle


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
        """
        if self.workers == 0:
            return self._function(item)
        future = self._future(item, stop)
        try:
            return future.result(self._timeout_s)
        except BrokenProcessPool as error:
            raise WorkerDiedError(
                f"a worker process died (killed by the system, or a crash in native code) before "
                f"{self._describe(item)} was made. The usual cause is memory: lower workers, max_queue_size or "
                "batch_size."
            ) from error
        except TimeoutError as error:
            if future.done():  # the function itself raised it
                raise
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
            for future in self._futures.values():
                future.cancel()
            self._futures = {}
        if executor is None:
            return
        if self._stalled and self.processes:
            # The public call for this, terminate_workers(), comes with Python 3.14.
            for process in list((executor._processes or {}).values()):
                process.kill()
        executor.shutdown(wait=self.processes or not self._stalled, cancel_futures=True)

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
                self._futures.pop(passed).cancel()  # left over from a jump forward
            last = item + self.ahead if stop is None else max(min(item + self.ahead, stop), item + 1)
            for wanted in range(item, last):
                if wanted not in self._futures:
                    self._futures[wanted] = self._submit(wanted)
            return self._futures.pop(item)

    def _submit(self, item: int) -> Future:
        if self._executor is None:
            self._executor = self._start()
        if self.processes:
            return self._executor.submit(_answer, item)
        return self._executor.submit(self._function, item)

    def _start(self) -> Executor:
        if self.processes:
            payload = cloudpickle.dumps(self._function)
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


def _start_worker(payload: bytes) -> None:
    global _function
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides what it means
    threading.Thread(target=_end_with_parent, daemon=True).start()
    os.environ.update(CUDA_VISIBLE_DEVICES="")  # a worker makes arrays: it must take no GPU memory
    _function = cloudpickle.loads(payload)
    if "cv2" in sys.modules:
        sys.modules["cv2"].setNumThreads(1)  # the workers are the parallelism


def _end_with_parent() -> None:
    multiprocessing.parent_process().join()
    os._exit(1)


def _answer(item: int):
    return _function(item)

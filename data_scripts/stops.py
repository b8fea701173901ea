"""How a command line program stops when the system asks it to."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def sigterm_interrupts() -> Iterator[None]:
    """A job system or a container that ends sends SIGTERM: it saves what was done, like Ctrl-C."""
    if threading.current_thread() is not threading.main_thread():  # only that one may set handlers
        yield
        return

    def interrupt(*_):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)

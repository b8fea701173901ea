"""A test with a time limit of its own is not ended by the limit of all others.

pytest's ``faulthandler_timeout`` ends the whole run when a test is stuck in C code, where pytest-timeout cannot reach
it. It is one number for all tests, and some nightly ones take an hour by right.
"""

from __future__ import annotations

import faulthandler
import os

import pytest

GRACE_S = 30  # pytest-timeout comes first, and says it better
_STDERR = pytest.StashKey[int]()


def pytest_configure(config) -> None:
    config.stash[_STDERR] = os.dup(2)  # the real one: while a test runs, output is captured


def pytest_unconfigure(config) -> None:
    os.close(config.stash[_STDERR])


@pytest.fixture(autouse=True)
def own_time_limit(request):
    """For a test with ``@pytest.mark.timeout(SECONDS)``, set the clock of faulthandler anew; pytest stops it."""
    marker = request.node.get_closest_marker("timeout")
    if marker is not None:
        faulthandler.dump_traceback_later(marker.args[0] + GRACE_S, exit=True, file=request.config.stash[_STDERR])

"""One trainer for many faults: importing Keras costs 4 s, and training has to work after an error anyway."""

from __future__ import annotations

from pathlib import Path

import pytest
from remote import Trainer

_TRAINER = pytest.StashKey[Trainer]()
_HERE = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Before the watch for leaks looks: a trainer that is ready, a new one if a test killed it or left it hanging."""
    stash = item.config.stash
    if "trainer" in item.fixturenames and not (_TRAINER in stash and stash[_TRAINER].ready):
        _close(stash)
        stash[_TRAINER] = Trainer().wait_until_ready()


def pytest_runtest_teardown(item, nextitem):
    """The last fault test ends it: it holds 700 MB."""
    if nextitem is None or _HERE not in nextitem.path.parents:
        _close(item.config.stash)


@pytest.fixture
def trainer(request) -> Trainer:
    """A process that trains on command."""
    return request.config.stash[_TRAINER]


@pytest.fixture
def stamp(tmp_path) -> Path:
    """Where a fault writes down its moment and its process."""
    return tmp_path / "stamp"


def _close(stash: pytest.Stash) -> None:
    if _TRAINER in stash:
        stash[_TRAINER].close()
        del stash[_TRAINER]

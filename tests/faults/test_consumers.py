"""Whoever takes the batches, and however long: none is changed afterwards, and memory is used again."""

from __future__ import annotations

import sys

import pytest
from remote import NOTHING_LEFT

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux: /proc")

NIGHTLY = pytest.mark.nightly  # the cases between the two ends
CONSUMERS = [
    pytest.param({}, id="quick"),
    pytest.param({"step_s": 0.03, "epochs": 3}, id="slow", marks=NIGHTLY),
    pytest.param({"keep": True}, id="keeps every batch", marks=NIGHTLY),
    pytest.param({"keep": True, "step_s": 0.02, "epochs": 3}, id="slow, and keeps every batch"),
]


@pytest.mark.parametrize("processes", [False, True], ids=["threads", "processes"])
@pytest.mark.parametrize("command", CONSUMERS)
def test_no_batch_changes_after_it_was_handed_out(trainer, coded_file, processes, command):
    """Every pixel and label of every batch is compared as it comes, and kept ones again at the end."""
    answer = trainer.run(file=coded_file, processes=processes, **{"epochs": 4, **command}, max_queue_size=3)
    assert (answer["error"], answer["steps"]) == (None, answer["all_steps"])
    assert (answer["wrong"], answer["left"]) == ([], NOTHING_LEFT)


@pytest.mark.parametrize("keep", [False, True], ids=["lets go", "keeps all"])
def test_shared_memory_is_used_again(trainer, coded_file, keep):
    """Over 65 batches the shared memory of a pool stays what it was at the first step, for any consumer."""
    answer = trainer.run(file=coded_file, processes=True, epochs=5, keep=keep, watch_memory=True)
    assert (answer["error"], answer["wrong"], answer["steps"]) == (None, [], 65)
    assert len(set(answer["mapped_bytes"])) == 1
    batch_bytes = 8 * (16 * 16 * 3 + 4 * 5)
    most_held = 6 + 2 + 6  # ahead, in work, lent
    assert batch_bytes < answer["mapped_bytes"][0] <= most_held * (batch_bytes + 2 * 4096)

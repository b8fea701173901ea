"""Several devices and several hosts train as one does; a host that dies ends the training of the others."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from helpers.course.failures import run_in_child

HOST = Path(__file__).parents[1] / "two_hosts.py"
NOTICED_S = 60  # a heartbeat may be missing for 10 s before a host is given up; the rest is for a busy machine


LOST = "stopped sending heartbeats", "heartbeat timeout", "Connection reset by peer"  # in the words of JAX 0.10


def train_on_devices(path, count):
    """Losses and weights of a training on so many devices, in a process of its own."""
    import tensorflow as tf  # for the first time in this process

    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration() for _ in range(count)])
    import keras

    from helpers import HDF5Sequence, fit_generator

    strategy = tf.distribute.MirroredStrategy([f"CPU:{number}" for number in range(count)])
    keras.utils.set_random_seed(0)
    with strategy.scope():
        layers = [keras.layers.Rescaling(1 / 255), keras.layers.Flatten(), keras.layers.Dense(5, activation="softmax")]
        model = keras.Sequential([keras.Input((16, 16, 3), dtype="uint8"), *layers])
        model.compile(keras.optimizers.SGD(0.1), "categorical_crossentropy")
    train = HDF5Sequence(path, batch_size=16, seed=3, drop_last=True, workers=2)
    valid = HDF5Sequence(path, "valid", batch_size=20)
    history = fit_generator(model, train, epochs=2, validation_data=valid, verbose=0)
    return strategy.num_replicas_in_sync, history.history, model.get_weights()


@pytest.mark.nightly  # lesson 08 trains on two devices every day
def test_two_devices_train_as_one_does(coded_file):
    """MirroredStrategy cuts each batch in two; losses, validation and weights are the same up to rounding."""
    runs = [run_in_child(train_on_devices, args=(coded_file, count), seconds=200) for count in (1, 2)]
    assert [run.last_error_line for run in runs] == ["", ""]
    (one, logs, weights), (two, other_logs, other_weights) = (run.result for run in runs)
    assert (one, two) == (1, 2)
    assert set(logs) == set(other_logs) == {"loss", "val_loss"}
    for name, values in logs.items():
        np.testing.assert_allclose(other_logs[name], values, rtol=1e-5)
    for other, own in zip(other_weights, weights, strict=True):
        np.testing.assert_allclose(other, own, atol=1e-5)


def start(file, folder, processes: int, how: str = "well") -> list[subprocess.Popen]:
    """All processes of a training; each writes its weights to ``folder/PROCESS.npz`` and its log beside it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    running = []
    for process in range(processes):
        command = [sys.executable, HOST, file, folder / f"{process}.npz", port, process, processes, how]
        with (folder / f"{process}.log").open("w") as log:
            running.append(subprocess.Popen(list(map(str, command)), stdout=log, stderr=log, env={**os.environ}))
    return running


@pytest.fixture
def hosts(coded_file, tmp_path):
    """``hosts(2, "dies")``: the processes of a training that has begun; none is left behind."""
    started: list[subprocess.Popen] = []

    def begin(processes, how="well"):
        started.extend(start(coded_file, tmp_path, processes, how))
        return started

    yield begin
    for process in started:
        process.kill()
        process.wait()


@pytest.mark.nightly
@pytest.mark.parametrize("processes", [2, 3])
def test_several_hosts_train_as_one_does(coded_file, tmp_path, hosts, processes):
    """DataParallel on JAX: each reads its shard of one file; all end with the weights and losses of one process."""
    (tmp_path / "alone").mkdir()
    assert start(coded_file, tmp_path / "alone", 1)[0].wait(100) == 0
    assert [host.wait(150) for host in hosts(processes)] == [0] * processes
    with np.load(tmp_path / "alone" / "0.npz") as alone:
        for process in range(processes):
            with np.load(tmp_path / f"{process}.npz") as shared:
                for name in alone.files:
                    np.testing.assert_allclose(shared[name], alone[name], atol=1e-6)


@pytest.mark.nightly
@pytest.mark.parametrize("how", ["dies", "freezes"])
def test_a_host_that_is_gone_is_an_error_on_the_other(tmp_path, hosts, how):
    """The survivor does not wait for ever: it ends with an error that says so."""
    survivor, lost = hosts(2, how)
    if how == "dies":
        assert lost.wait(100) == -signal.SIGKILL
    started = time.monotonic()
    assert survivor.wait(100 + NOTICED_S) != 0
    log = (tmp_path / "0.log").read_text(errors="replace")
    assert any(sentence in log for sentence in LOST), log
    if how == "dies":
        assert time.monotonic() - started < NOTICED_S


MISTAKES = {
    "shard": "this is process 0 of 2 and generator has shard=(0, 1): make it with shard=(0, 2), so that each process "
    "reads its own part of every batch.",
    "rest": "the last batch of a pass over generator has 7 rows for 2 processes, which is not the same for all of "
    "them: their weights would drift apart without a word. Make the sequence with drop_last=True, or leave 1 rows out "
    "(rows=).",
}


@pytest.mark.nightly
@pytest.mark.parametrize("how", MISTAKES)
def test_what_several_hosts_would_get_wrong_is_refused(tmp_path, hosts, how):
    """A forgotten shard, and last batches of different sizes, are errors in each process before the first step."""
    assert [host.wait(150) != 0 for host in hosts(2, how)] == [True, True]
    assert f"ValueError: {MISTAKES[how]}\n" in (tmp_path / "0.log").read_text(errors="replace")

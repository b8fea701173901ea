"""Meters: they measure what was put in, and leave no thread."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

import keras
import numpy as np
import psutil
import pytest

from helpers import HDF5Sequence, fit_generator
from helpers.course import meters
from helpers.course.meters import MemoryMeter, StallMeter, Timing, benchmark

MB = 1_000_000


def test_benchmark_counts_runs_and_drops_the_warm_up():
    """repeat runs are timed after warmup untimed ones."""
    calls = []
    timing = benchmark(lambda: calls.append(time.sleep(0.1 if len(calls) == 0 else 0.01)), repeat=4, items=20)
    assert len(calls) == 5
    assert len(timing.runs) == 4
    assert 0.009 < timing.seconds < 0.09
    assert timing.per_second == pytest.approx(20 / timing.seconds)


def test_a_slow_run_does_not_move_the_median():
    """One run of four that is a hundred times slower hardly counts."""
    assert Timing((1.0, 1.0, 100.0, 1.1, 1.0)).seconds == 1.0


def test_times_faster_compares_items_not_runs():
    """A run of 100 images in 2 s is 5 times as fast as one of 10 images in 1 s."""
    fast, slow = Timing((2.0,), items=100), Timing((1.0,), items=10)
    assert fast.times_faster_than(slow) == pytest.approx(5)
    assert slow.times_faster_than(fast) == pytest.approx(0.2)
    assert str(fast) == "2 s (median of 1), 50 items/s"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"repeat": 0}, "repeat must be at least 1; got 0."),
        ({"warmup": -1}, "warmup must be at least 0; got -1."),
        ({"items": 0}, "items must be at least 1; got 0."),
    ],
)
def test_a_benchmark_of_nothing_is_refused(arguments, message):
    """The number and its rule are named."""
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        benchmark(lambda: None, **arguments)
    assert str(caught.value) == message


def use_memory(megabytes: int, seconds: float = 0.0) -> None:
    """Touch so much memory, hold it so long, and give it back."""
    block = np.ones(megabytes * MB, np.uint8)
    time.sleep(seconds)
    del block


def test_memory_meter_sees_a_peak_that_is_gone_again():
    """80 MB that were used and freed inside the block are the peak; the baseline is not part of it."""
    with MemoryMeter() as meter:
        use_memory(80)
    assert 75 < meter.peak_mb < 100
    assert meter.baseline_mb > 50


def test_memory_meter_starts_afresh():
    """A larger peak before the block does not count."""
    use_memory(200)
    with MemoryMeter() as meter:
        use_memory(20)
    assert meter.peak_mb < 60


def test_memory_meter_works_where_the_kernel_keeps_no_mark(monkeypatch):
    """The sampling thread finds a peak of 0.1 s, and is joined."""
    monkeypatch.setattr(meters, "_reset_peak_mark", lambda: False)
    with MemoryMeter() as meter:
        use_memory(80, seconds=0.1)
    assert 75 < meter.peak_mb < 100
    assert "MemoryMeter" not in {thread.name for thread in threading.enumerate()}


def test_memory_meter_joins_its_thread_after_an_error(monkeypatch):
    """An exception in the block passes through."""
    monkeypatch.setattr(meters, "_reset_peak_mark", lambda: False)
    with pytest.raises(ZeroDivisionError), MemoryMeter():
        raise ZeroDivisionError
    assert "MemoryMeter" not in {thread.name for thread in threading.enumerate()}


def test_memory_meter_counts_children_when_asked():
    """80 MB in a child process count with children=True, and not without."""
    program = "block = b'1' * 80_000_000; input()"

    def run_child():
        with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE) as child:
            deadline = time.monotonic() + 20
            while psutil.Process(child.pid).memory_info().rss < 85 * MB and time.monotonic() < deadline:
                time.sleep(0.02)
            time.sleep(0.2)
            child.communicate(b"\n")

    with MemoryMeter(children=True) as meter:
        run_child()
    assert 75 < meter.peak_mb < 130
    with MemoryMeter() as alone:
        run_child()
    assert alone.peak_mb < 20


def test_the_meters_need_no_keras():
    """Lessons that only read files stay small: importing the meters loads neither Keras nor TensorFlow."""
    program = (
        "import sys; from helpers.course.meters import MemoryMeter, benchmark; "
        "print(sorted({'keras', 'tensorflow'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def make_model():
    """A small compiled model of coded images."""
    model = keras.Sequential([
        keras.Input((16, 16, 3), dtype="uint8"),
        keras.layers.Rescaling(1 / 255),
        keras.layers.Flatten(),
        keras.layers.Dense(5, activation="softmax"),
    ])
    model.compile("sgd", "categorical_crossentropy")
    return model


def slow_batches(seconds: float):
    """A generator that takes so long for each batch."""
    while True:
        time.sleep(seconds)
        yield np.zeros((2, 16, 16, 3), np.uint8), np.eye(5, dtype=np.float32)[:2]


def test_stall_meter_sees_a_slow_source():
    """With 0.1 s a batch and a model that needs a few milliseconds, steps are mostly waiting."""
    meter = StallMeter()
    fit_generator(make_model(), slow_batches(0.1), 6, epochs=2, verbose=0, callbacks=[meter])
    assert meter.shares.shape == (12,)
    assert meter.share > 0.5
    assert repr(meter) == f"StallMeter: 12 steps, {100 * meter.share:.0f} % of the time waiting for data"


def test_stall_meter_sees_a_slow_model(coded_file):
    """With a model that takes 0.05 s a step and a source that is far ahead, steps hardly wait."""
    meter = StallMeter()
    slow = keras.callbacks.LambdaCallback(on_train_batch_begin=lambda step, logs: time.sleep(0.05))  # noqa: ARG005
    with HDF5Sequence(coded_file, batch_size=8) as sequence:
        fit_generator(make_model(), sequence, epochs=2, verbose=0, callbacks=[slow, meter])
    assert meter.shares.shape == (26,)
    assert meter.share < 0.2
    assert np.all((meter.shares >= 0) & (meter.shares <= 1))


def test_stall_meter_starts_afresh_with_each_training(coded_file):
    """A second training does not add to the first."""
    meter = StallMeter()
    with HDF5Sequence(coded_file, batch_size=8) as sequence:
        fit_generator(make_model(), sequence, 3, verbose=0, callbacks=[meter])
        fit_generator(make_model(), sequence, 4, verbose=0, callbacks=[meter])
    assert len(meter.steps_s) == 4
    assert meter.share < 1


def test_stall_meter_with_keep_adds_up_the_phases_of_a_run(coded_file):
    """The first step of each training, which compiles, counts in no share."""
    meter = StallMeter(keep=True)
    with HDF5Sequence(coded_file, batch_size=8) as sequence:
        for steps in (3, 4):
            fit_generator(make_model(), sequence, steps, verbose=0, callbacks=[meter])
    assert meter.shares.shape == (7,)
    expected = [[wait, step] for wait, step in zip(meter.waits_s, meter.steps_s, strict=True)]
    np.testing.assert_array_equal(meter.timed, expected[1:3] + expected[4:])
    assert meter.share == pytest.approx(meter.timed[:, 0].sum() / meter.timed[:, 1].sum())


def test_stall_meter_that_nobody_told_anything_says_so(coded_file):
    """Under plain Model.fit it cannot know, and does not answer 0 %."""
    meter = StallMeter()
    with HDF5Sequence(coded_file, batch_size=8) as sequence:
        make_model().fit(sequence, verbose=0, callbacks=[meter])
    with pytest.raises(RuntimeError, match="the meter heard of no batch"):
        _ = meter.share


def test_an_unused_stall_meter_has_no_share():
    """Nothing trained, nothing claimed."""
    assert np.isnan(StallMeter().share)
    assert StallMeter().shares.shape == (0,)
    assert StallMeter().timed.shape == (0, 2)

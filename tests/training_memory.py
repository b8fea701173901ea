"""Memory of a training with two worker processes, as JSON: ``python tests/training_memory.py FOLDER EPOCHS``.

Counted is what the processes made themselves: anonymous and shared memory, each page once (Linux, PSS). Pages of files
are left out: the share of a library's page that counts for a process depends on who else on the machine runs it.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from pathlib import Path

import psutil
from coded import make_coded_file

SHAPE = (128, 128, 3)
IMAGES, BATCH = 320, 32  # ten batches of 1.6 MB an epoch
BATCH_MB = BATCH * 128 * 128 * 3 / 1e6
QUEUES = (2, 40)
SLOW_STEPS, SLOW_STEP_S = 60, 0.05  # the workers are far ahead of such a step


def main() -> None:
    import keras

    from helpers import HDF5Sequence, fit_generator

    folder, epochs = Path(sys.argv[1]), int(sys.argv[2])
    path = make_coded_file(folder / "memory.h5", rows={"train": IMAGES}, shape=SHAPE)
    layers = [keras.layers.Rescaling(1 / 255), keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(5)]
    model = keras.Sequential([keras.Input(SHAPE, dtype="uint8"), *layers])
    model.compile("sgd", "mse")
    with HDF5Sequence(path, batch_size=BATCH, workers=2, use_multiprocessing=True) as sequence:

        def train(memory: list, **arguments):
            def look(number, logs=None):
                memory.append(pss_mb())

            def slow(step, logs=None):
                time.sleep(SLOW_STEP_S)
                look(step)

            slowly = arguments.pop("slowly", False)
            hook = {"on_train_batch_end": slow} if slowly else {"on_epoch_end": look}
            fit_generator(model, sequence, verbose=0, callbacks=[keras.callbacks.LambdaCallback(**hook)], **arguments)
            return memory

        answer = {"epochs_mb": train([], epochs=epochs)}
        calls = [train([], epochs=1)[0] for _ in range(epochs // 4)]
        answer["calls_mb"] = calls
        answer["queues_mb"] = {
            size: max(train([], steps_per_epoch=SLOW_STEPS, max_queue_size=size, slowly=True)) for size in QUEUES
        }
    sys.stdout.write(json.dumps(answer))


def pss_mb() -> float:
    """Memory of this process and of all its children, in MB."""
    here = psutil.Process(os.getpid())
    return sum(_pss_mb(process.pid) for process in [here, *here.children(recursive=True)])


def _pss_mb(pid: int) -> float:
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:  # it ended just now
        return 0.0
    found = re.findall(r"^Pss_(?:Anon|Shmem): +(\d+) kB", text, re.MULTILINE)
    return sum(map(int, found)) / 1000


if __name__ == "__main__":
    main()

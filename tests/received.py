"""What a model really received: children train tables of cases, and tests compare every step with the rule.

The model answers five checksums an image, whole numbers that float32 holds exactly, and a metric writes them down with
the labels inside the compiled step. So the proof covers all that lies between the file and the device: workers, queues,
shared memory, tf.data, JAX's own hand-over. One child trains the whole table of a backend, as importing one takes
seconds; it runs ``python tests/train_table.py``.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from coded import IMAGE_SHAPE

from helpers import Augment

CODES = 5  # as many as the coded file has classes: the model's answers look like probabilities of classes
MODULUS = 1_048_573  # a prime below 2 ** 20: exact in float32
AUGMENT = Augment(rotation=10, zoom=(0.9, 1), horizontal_flip=True, brightness=(0.8, 1.2))
TIME_LIMIT_S = 800  # for the longest table, on a busy machine; pytest's own limit ends the others earlier


def code_weights() -> np.ndarray:
    """(pixels, CODES) int32: what each pixel counts in each checksum; a sum over an image stays below 2 ** 31."""
    return np.random.default_rng(7).integers(1, 10_000, (int(np.prod(IMAGE_SHAPE)), CODES), np.int32)


def digest(images: np.ndarray, labels: np.ndarray) -> str:
    """Name of a batch of images (batch, height, width, 3) uint8 with one-hot labels (batch, classes)."""
    codes = images.reshape(len(images), -1).astype(np.int64) @ code_weights() % MODULUS
    return digest_of_rows(np.concatenate([codes, labels], axis=1))


def digest_of_rows(rows: np.ndarray) -> str:
    """Name of a batch as the metric wrote it down: (batch, CODES + classes), checksums and labels."""
    return hashlib.sha256(np.ascontiguousarray(rows, np.float32).tobytes()).hexdigest()[:16]


class Child:
    """A process that trains a table of cases on one backend while the test goes on; :meth:`result` waits for it."""

    def __init__(self, backend: str, cases: list[dict], folder: Path):
        self._table = folder / f"{backend}.json"
        self._table.write_text(json.dumps(cases))
        self._output = folder / f"{backend}.out"
        environment = {**os.environ, "KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "3", "JAX_PLATFORMS": "cpu"}
        command = [sys.executable, Path(__file__).with_name("train_table.py"), self._table]
        with self._output.open("w") as output:
            self._process = subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
            )
        self._results: dict[str, dict] | None = None

    def result(self, case: str) -> dict:
        """What the child says of ``case``; what went wrong there is an AssertionError."""
        if self._results is None:
            self._process.wait(TIME_LIMIT_S)
            answer = self._table.with_suffix(".answer")
            assert answer.exists(), f"the child ended with {self._process.returncode}:\n{self._output.read_text()}"
            self._results = json.loads(answer.read_text())
        assert case in self._results, f"the child did not come to {case}:\n{self._output.read_text()[-3000:]}"
        found = self._results[case]
        assert "error" not in found, f"{case}:\n{found.get('error')}"
        return found

    def close(self) -> None:
        """End the child, also in the middle of its table."""
        if self._process.poll() is None:
            self._process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(10)


class Tables:
    """The children of one test module, by backend: all are started with the first question."""

    def __init__(self, folder: Path, cases: dict[str, list[dict]]):
        self._children = {
            backend: Child(backend, table, folder) for backend, table in cases.items() if table and has(backend)
        }

    def result(self, backend: str, case: str) -> dict:
        """What the model received, and the rest that ``train_table`` tells of a case."""
        if backend not in self._children:
            pytest.skip(f"needs {backend}: pip install -e .[nightly]")
        return self._children[backend].result(case)

    def close(self) -> None:
        for child in self._children.values():
            child.close()


def has(backend: str) -> bool:
    """Whether Keras can run on this backend here."""
    return importlib.util.find_spec(backend) is not None

"""Right and wrong answers to the exercises of lesson 02; a wrong one stands under the name of its mistake."""

import numpy as np


def with_while(n, batch_size):
    """Another way to write it."""
    parts, start = [], 0
    while start < n:
        parts.append(slice(start, min(n, start + batch_size)))
        start += batch_size
    return tuple(parts)


def by_splitting(n, batch_size):
    """With NumPy."""
    starts = np.arange(0, n, batch_size)
    return [slice(int(start), int(stop)) for start, stop in zip(starts, [*starts[1:], n], strict=True)]


RIGHT = {
    "02.1": {"as a difference": 70_700 - 70_600, "of NumPy": np.int64(100)},
    "02.2": {"with while": with_while, "with NumPy": by_splitting},
}
WRONG = {
    "02.1": {
        "wrong type": "100",
        "rows of one piece": 706,
        "rows that are read": 70_600,
        "times 50 epochs": 5_000,
        "off by one": 101,
    },
    "02.2": {
        "not a function": [slice(0, 3)],
        "forgot to return": lambda n, batch_size: print([slice(0, n)]),
        "rows left over": lambda n, batch_size: [
            slice(k * batch_size, (k + 1) * batch_size) for k in range(n // batch_size)
        ],
        "stop beyond the end": lambda n, batch_size: [slice(k, k + batch_size) for k in range(0, n, batch_size)],
        "an empty piece": lambda n, batch_size: [
            slice(k * batch_size, min(n, (k + 1) * batch_size)) for k in range(n // batch_size + 1)
        ],
        "rows read twice": lambda n, batch_size: [
            slice(k, min(n, k + batch_size + 1)) for k in range(0, n, batch_size)
        ],
    },
}

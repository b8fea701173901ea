"""Train Keras from one HDF5 file that does not fit into memory.

Importing this package is cheap: what needs Keras is imported when it is first used, so worker processes and tools that
only read files never load it.
"""

from importlib import import_module

_HOMES = {
    "HDF5Sequence": "helpers.sequence",
    "fit_generator": "helpers.training",
    "Augment": "helpers.augment",
    "CenterCrop": "helpers.augment",
    "HDF5Writer": "helpers.writer",
    "RowReader": "helpers.reader",
    "EpochOrder": "helpers.order",
    "inspect_file": "helpers.inspector",
}

__all__ = list(_HOMES)


def __getattr__(name: str):
    if name not in _HOMES:
        raise AttributeError(f"module 'helpers' has no attribute {name!r}. It has: {', '.join(__all__)}.")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])

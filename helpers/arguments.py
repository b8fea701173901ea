"""Checks of single arguments that several modules share: whole numbers, yes or no."""

from __future__ import annotations

import operator

import numpy as np


def whole_number(name: str, value, lowest: int, hint: str = "") -> int:
    """``value`` as an int of at least ``lowest``. Raises TypeError (not whole, or True or False) or ValueError."""
    hint = hint and f" {hint}"
    try:
        number = None if isinstance(value, bool) else operator.index(value)  # True would pass for 1
    except TypeError:
        number = None
    if number is None:
        raise TypeError(f"{name} must be a whole number; got {value!r}.{hint}")
    if number < lowest:
        raise ValueError(f"{name} must be at least {lowest}; got {number}.{hint}")
    return number


def checked_flag(name: str, value, hint: str = "") -> bool:
    """A yes or no. Raises TypeError for anything else: the words "no" and "False", for one, count as true in Python."""
    if isinstance(value, (bool, np.bool_)) or (isinstance(value, int) and value in {0, 1}):
        return bool(value)
    hint = hint and f" {hint}"
    raise TypeError(f"{name} must be True or False; got {value!r}.{hint}")

"""Single arguments: what counts as a whole number, and as a yes or no."""

import numpy as np
import pytest

from helpers.arguments import checked_flag, whole_number


@pytest.mark.parametrize("value", [3, np.int64(3), np.uint8(3), np.array(3)])
def test_whole_numbers_of_every_kind_are_taken(value):
    """As a plain int."""
    number = whole_number("steps", value, 1)
    assert (type(number), number) == (int, 3)


NO_NUMBERS = {
    "true": (True, TypeError, "steps must be a whole number; got True. Count them."),
    "true of NumPy": (np.True_, TypeError, "steps must be a whole number; got np.True_. Count them."),
    "a float": (3.0, TypeError, "steps must be a whole number; got 3.0. Count them."),
    "a float of NumPy": (np.floor(3.5), TypeError, "steps must be a whole number; got np.float64(3.0). Count them."),
    "a word": ("3", TypeError, "steps must be a whole number; got '3'. Count them."),
    "nothing": (None, TypeError, "steps must be a whole number; got None. Count them."),
    "too few": (np.int64(0), ValueError, "steps must be at least 1; got 0. Count them."),
}


@pytest.mark.parametrize("case", NO_NUMBERS)
def test_what_is_no_whole_number_is_refused(case):
    """True would pass for 1, in Python."""
    value, error, message = NO_NUMBERS[case]
    with pytest.raises(error) as caught:
        whole_number("steps", value, 1, "Count them.")
    assert str(caught.value) == message


@pytest.mark.parametrize("value", ["no", "False", 0.5, 1.0, 2, None, [], np.array([True])])
def test_what_is_neither_yes_nor_no_is_refused(value):
    """Python has a truth for each of them."""
    with pytest.raises(TypeError) as caught:
        checked_flag("flip", value, "By chance.")
    assert str(caught.value) == f"flip must be True or False; got {value!r}. By chance."


@pytest.mark.parametrize("value", [True, False, 0, 1, np.True_, np.False_])
def test_yes_and_no_are_taken(value):
    """As a plain bool."""
    assert checked_flag("flip", value) is bool(value)

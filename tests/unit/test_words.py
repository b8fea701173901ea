"""Sizes, counts and names in words."""

import pytest

from helpers import words


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 bytes"), (999, "999 bytes"), (24_576, "24.6 kB"), (27.1e9, "27.1 GB"), (2e12, "2 TB")],
)
def test_sizes(count, text):
    """Three digits and a unit."""
    assert words.size_text(count) == text


def test_counts():
    """One fault, two faults."""
    assert [words.count_text(number, "fault") for number in (0, 1, 2, 5000)] == [
        "0 faults",
        "1 fault",
        "2 faults",
        "5,000 faults",
    ]


def test_lists_are_cut_off():
    """Of a long list the beginning is named."""
    assert words.listed(range(3)) == "0, 1, 2"
    assert words.listed(range(9), most=2) == "0, 1 ..."


def test_control_characters_are_spelled_out():
    """Letters of every alphabet stay as they are."""
    assert words.printable("crème 寿司\x1b[2J\n\udce9") == "crème 寿司\\x1b[2J\\n\\udce9"
    assert words.shortened("x" * 100) == "x" * 77 + "..."

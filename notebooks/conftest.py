"""Notebooks are tests: pytest runs each again and compares its outputs (tests/strict_nbval.py)."""

from strict_nbval import pytest_collect_file  # noqa: F401

collect_ignore = ["work"]  # a learner's own answers

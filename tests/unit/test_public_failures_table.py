"""The table of public failures: all 43 have tests, and these exist."""

import ast
from functools import cache
from pathlib import Path

import pytest
from public_failures import PUBLIC_FAILURES

TESTS = Path(__file__).parents[1]
GROUPS = {"A": 6, "B": 5, "C": 7, "D": 10, "E": 4, "F": 6, "G": 3, "H": 2}


@cache
def functions_of(name: str) -> dict[str, ast.FunctionDef]:
    """Test functions of a file, by name."""
    tree = ast.parse((TESTS / name).read_text(encoding="utf-8"))
    return {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_all_failures_are_in_the_table():
    """43 numbers in eight groups; one that is taken out or added is noticed."""
    expected = [f"{letter}{number}" for letter, count in GROUPS.items() for number in range(1, count + 1)]
    assert list(PUBLIC_FAILURES) == expected
    assert len(expected) == 43


@pytest.mark.parametrize("number", PUBLIC_FAILURES)
def test_a_failure_has_tests_that_run(number):
    """Each failure names at least one test; each exists, and is neither skipped nor left to nightly runs."""
    assert PUBLIC_FAILURES[number].tests
    for node_id in PUBLIC_FAILURES[number].tests:
        name, function = node_id.split("::")
        node = functions_of(name)[function]
        marks = " ".join(ast.unparse(decorator) for decorator in node.decorator_list)
        assert "nightly" not in marks, node_id
        assert "mark.skip(" not in marks, node_id
        assert "xfail" not in marks, node_id

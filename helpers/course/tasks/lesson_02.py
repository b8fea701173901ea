"""Questions on lesson 02: the naive loop, its faults, and a fair one by hand."""

from __future__ import annotations

import numpy as np

from helpers.course.probes import a_function, a_list, a_whole_number, is_known_mistake, run, same, task, that

_NEVER = 70_700 - 100 * 706


@task(
    "02.1",
    "The rows that nobody reads",
    objective=1,
    points=2,
    hints={
        "rows of one piece": "706 is the length of one piece. How many rows do all 100 pieces have together?",
        "rows that are read": "That is how many rows the loop reads. The question is how many of the 70,700 are left.",
        "times 50 epochs": "Each epoch reads the same rows again: 50 epochs leave out no more rows than one does.",
        "off by one": "A slice [0:706] has 706 rows: its stop is not one of them. So 100 pieces have exactly 70,600.",
    },
    note="A count typed by hand left 100 rows out, for ever, without an error.",
)
def rows_never_read(answer):
    count = a_whole_number(answer, "the number of rows")
    yield
    mistakes = {
        "rows of one piece": 706,
        "rows that are read": 70_600,
        "times 50 epochs": 50 * _NEVER,
        "off by one": _NEVER - 1,
    }
    is_known_mistake(count, mistakes, _NEVER, "rows that no slice asks for")
    is_known_mistake(count, {"off by one": _NEVER + 1}, _NEVER, "rows that no slice asks for")
    same(count, _NEVER, "off by one", "rows that no slice asks for")
    yield


_CASES = [(10, 3), (1_400, 32), (64, 64), (5, 64), (20_200, 64), (1, 1)]  # with and without a shorter last piece


@task(
    "02.2",
    "Pieces without a remainder",
    objective=1,
    points=3,
    hints={
        "rows left over": "n // batch_size counts full pieces alone. The rows after them need a shorter piece.",
        "stop beyond the end": "The last piece stops at n. A dataset forgives a larger stop, counting rows does not.",
        "an empty piece": "When batch_size divides n, the last full piece ends the file: no piece comes after it.",
        "rows read twice": "Each piece starts where the one before stopped, so that no row is in two pieces.",
    },
    note="The length comes from the data, and every row is in exactly one piece.",
)
def pieces(answer):
    function = a_function(answer, "n, batch_size")
    found = {case: a_list(run(function, *case), f"pieces of {case[0]} rows by {case[1]}") for case in _CASES}
    for case, parts in found.items():
        that(
            all(isinstance(part, slice) for part in parts),
            "wrong type",
            "a list of slices, such as [slice(0, 3), slice(3, 6)]",
            f"{parts[:2]} for n={case[0]}, batch_size={case[1]}",
        )
    yield
    for (n, batch_size), parts in found.items():
        called = f"answer({n}, {batch_size})"
        rows = [row for part in parts for row in range(part.start or 0, n if part.stop is None else part.stop)]
        that(len(rows) == len(set(rows)), "rows read twice", f"{called}: each row once", "some rows twice")
        that(set(range(n)) <= set(rows), "rows left over", f"{called}: all {n} rows", f"{len(set(rows))} rows")
        that(max(rows) < n, "stop beyond the end", f"{called}: the last stop is {n}", parts[-1])
    yield
    for (n, batch_size), parts in found.items():
        sizes = [len(range(n)[part]) for part in parts]
        right = [batch_size] * (n // batch_size) + [n % batch_size] * bool(n % batch_size)
        called = f"answer({n}, {batch_size})"
        that(0 not in sizes, "an empty piece", f"{called}: {len(right)} pieces", f"{len(sizes)} pieces")
        same(np.array(sizes), np.array(right), "wrong shape", f"{called}: rows in each piece")
    yield

"""The check of an answer: four outcomes, nothing leaks, nothing hangs, no answer breaks it."""

import logging
import sys
import threading
import time
import warnings

import numpy as np
import pytest

from helpers.course import probes
from helpers.course.checks import check
from helpers.course.probes import TASKS, a_function, a_whole_number, run, same, task

BLANK = "99.1 · not answered yet: 0 of 2 points. Replace None, run both cells."


@pytest.fixture(autouse=True)
def double(monkeypatch):
    """One exercise, 99.1: a function that doubles a number."""
    monkeypatch.setattr(probes, "TASKS", TASKS)
    hints = {"the half": "That is the other way.", "KeyError": "There is no dictionary here."}

    @task("99.1", "Double", objective=1, points=2, hints=hints, note="You can double.", limit_s=1)
    def questions(answer):
        result = a_whole_number(run(a_function(answer, "x"), 4), "the double of 4")
        yield
        same(result, 8, "the half", "the double of 4")
        yield

    yield
    del TASKS["99.1"]


@pytest.mark.parametrize("answer", [None, ...])
def test_blank_prints_one_fixed_line(answer, capsys):
    """A stub is no mistake: one line that never changes, and 0.0 points."""
    result = check("99.1", answer)
    assert capsys.readouterr().out == BLANK + "\n"
    assert (result.status, result.points, repr(result.points)) == ("blank", 0.0, "0.0")


def test_right_says_the_points_and_the_note(capsys):
    """A right answer gets its points, as a plain float, and one sentence."""
    assert repr(check("99.1", lambda x: 2 * x).points) == "2.0"
    assert capsys.readouterr().out == "99.1 · right: 2 of 2 points. You can double.\n"


def test_wrong_says_expected_got_and_hint(capsys):
    """A mistake with a name: the points so far, what was expected, what was there, where to look."""
    assert check("99.1", lambda x: x // 2).points == 1.0
    assert capsys.readouterr().out.splitlines() == [
        "99.1 · not yet: 1 of 2 points (the half)",
        "  expected: the double of 4: 8",
        "  got:      2",
        "  hint:     That is the other way.",
    ]


def test_an_error_of_the_answer_is_shown_with_its_call(capsys):
    """An answer that raises gets error, call, hint."""
    assert check("99.1", lambda x: {}["a"]).points == 0.0
    assert capsys.readouterr().out.splitlines() == [
        "99.1 · your code raised an error: 0 of 2 points (KeyError)",
        "  error:     KeyError: 'a'",
        "  called as: answer(4)",
        "  hint:      There is no dictionary here.",
    ]


def test_what_an_answer_prints_is_held_back_and_shown_with_the_mistake(capfd):
    """Prints, warnings and lines on stderr never reach the notebook, where a grader would take them for a failure."""

    def chatty(x):
        print("x is", x)  # noqa: T201 - what it prints is what is asked
        print("careful", file=sys.stderr)  # noqa: T201 - the same
        warnings.warn("old", stacklevel=1)
        return x // 2

    result = check("99.1", chatty)
    assert ("it printed", "x is 4") in result.lines
    assert capfd.readouterr() == (f"{result}\n", "")


def test_a_loop_without_end_is_ended():
    """An answer that does not come back is a mistake with a name, after the time of the exercise."""

    def endless(x):
        while True:
            pass

    started = time.monotonic()
    assert check("99.1", endless).name == "did not end"
    assert time.monotonic() - started < 30


def test_an_answer_that_swallows_the_interrupt_is_late_all_the_same():
    """A bare ``except`` around a slow loop does not make it quick."""

    def deaf(x):
        end = time.monotonic() + 2.5
        while time.monotonic() < end:
            try:  # noqa: SIM105 - as people write it
                time.sleep(0.05)
            except:  # noqa: E722 - what the answer should not do
                pass
        return 2 * x

    assert check("99.1", deaf).name == "did not end"


def test_old_log_handlers_are_silent_while_an_answer_runs(capfd):
    """A handler that was made before the check keeps the real stderr; it is held back, too."""
    logger, handler = logging.getLogger("answers"), logging.StreamHandler(sys.__stderr__)
    logger.addHandler(handler)
    try:
        result = check("99.1", lambda x: logger.error("careful") or 2 * x)
    finally:
        logger.removeHandler(handler)
    assert capfd.readouterr() == (f"{result}\n", "")
    assert logging.root.manager.disable == 0


def test_a_missing_name_leads_to_the_cells_above():
    """Whoever jumps to an exercise has not run the given cells."""
    result = check("99.1", lambda x: not_made_yet * x)  # noqa: F821 - that is what is asked
    assert "Run all cells above" in dict(result.lines)["hint"]


def test_an_answer_in_time_is_not_interrupted_later():
    """The clock of a check stops with it."""
    before = threading.active_count()
    check("99.1", lambda x: 2 * x)
    time.sleep(0.1)
    assert threading.active_count() == before


def test_in_another_thread_a_check_works_without_limit():
    """Only the main thread can be interrupted; elsewhere the answer is checked all the same."""
    found = []
    thread = threading.Thread(target=lambda: found.append(check("99.1", lambda x: 2 * x).points))
    thread.start()
    thread.join()
    assert found == [2.0]


class BadRepr:
    """Cannot be shown."""

    def __repr__(self):
        raise ValueError


WILD = {
    "a dictionary": {"a": 1},
    "not a number": float("nan"),
    "a module": np,
    "a class": dict,
    "a generator": (x for x in [1]),
    "no arguments": lambda: 1,
    "a builtin": print,
    "ragged": [[1], [1, 2]],
    "cannot be shown": BadRepr(),
    "returns what cannot be shown": lambda x: BadRepr(),
    "exits": lambda x: sys.exit(3),
    "text": "8",
    "an array": np.zeros((3, 3)),
    "raises in str": lambda x: (_ for _ in ()).throw(type("OddError", (Exception,), {"__str__": lambda self: 1 / 0})()),
}


@pytest.mark.parametrize("name", WILD)
def test_no_answer_breaks_the_check(name):
    """Whatever is handed in gets a verdict with no full points."""
    assert check("99.1", WILD[name]).points < 2


@pytest.mark.parametrize("number", ["77.7", 99.1, None, "double", "", "../x"])
def test_unknown_numbers_are_refused(number):
    """A number that is no exercise is an error of the notebook, with what there is."""
    with pytest.raises(ValueError, match="there is no exercise .*; its number is text, such as"):
        check(number, 1)

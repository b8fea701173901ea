"""Each rule for exercises: a good notebook passes, and each bad one is caught by its rule."""

import pytest
from exercise_lint import SOURCE_RULES, lint_exercises
from exercise_source import KINDS, assemble_exercises
from lesson_source import read_lesson

from helpers.course import probes
from helpers.course.probes import TASKS, Task

HEAD = """\
# ---
# jupyter:
#   lesson:
#     keras: false
# ---

# %% [markdown]
# # Exercises 98 · Numbers
#
# **In these exercises you will** count.
#
# **You need** nothing.
#
# <!-- how -->
#
# <!-- facts -->

# %% tags=["nbval-ignore-output"]
from helpers.course.checks import check  # looks at an answer
from helpers.course.lesson import open_lesson  # versions and device

open_lesson()
"""
ONE = """
# %% [markdown]
# ## 98.{k} · Task {k}
#
# **Task.** `answer` is {k}, on your own data.
#
# **Look again at** [the first cell](98_numbers.ipynb).

# %%
### BEGIN SOLUTION
answer = {k}
### END SOLUTION

# %%
check("98.{k}", answer).points
"""
GOOD = HEAD + "".join(ONE.format(k=k) for k in range(1, 5))


@pytest.fixture(autouse=True)
def numbers(monkeypatch):
    """Four exercises that are no part of the course."""
    tasks = {f"98.{k}": Task(f"98.{k}", f"Task {k}", 1, 1, {}, iter) for k in range(1, 6)}
    tasks.pop("98.5")
    monkeypatch.setattr(probes, "TASKS", TASKS)
    for number, one in tasks.items():
        monkeypatch.setitem(TASKS, number, one)


def faults(source, folder):
    """(blank, solved): the faults of both notebooks of a source."""
    path = folder / "98_numbers.py"
    path.write_text(source, encoding="utf-8")
    lesson = read_lesson(path)
    return [lint_exercises(assemble_exercises(lesson, None, kind, [lesson]), path, executed=False) for kind in KINDS]


def test_good_exercises_have_no_faults(tmp_path):
    """What keeps the rules is left in peace, blank and solved."""
    assert faults(GOOD, tmp_path) == [[], []]


def without(old, new=""):
    """The good source with one text replaced."""
    assert old in GOOD
    return GOOD.replace(old, new, 1)


SOLVED_1 = "### BEGIN SOLUTION\nanswer = 1\n### END SOLUTION\n"
CHECK_1 = '# %%\ncheck("98.1", answer).points\n'
BAD = {
    "no title": (without("# # Exercises 98 ·", "# # Some"), "head"),
    "no promise": (without("**In these exercises you will** count", "You count"), "head"),
    "not said how": (without("# <!-- how -->", "# nothing"), "head"),
    "another number": (without("## 98.2 ·", "## 98.3 ·"), "numbering"),
    "another title": (without("98.2 · Task 2", "98.2 · Task two"), "numbering"),
    "too few": (GOOD[: GOOD.index("\n# %% [markdown]\n# ## 98.4")], "numbering"),
    "no task": (without("**Task.** `answer` is 2", "`answer` is 2"), "tasks_in_full"),
    "no way back": (without("**Look again at**", "See"), "tasks_in_full"),
    "not on your own data": (GOOD.replace("is 4, on your own data", "is 4"), "tasks_in_full"),
    "no check": (without(CHECK_1), "answers"),
    "neither answer nor check": (without(ONE.format(k=2)[ONE.index("# %%\n###") :]), "numbering"),
    "a check of another exercise": (without('check("98.2"', 'check("98.3"'), "numbering"),
    "no answer": (without("# %%\n" + SOLVED_1), "answers"),
    "two solutions in one": (without(SOLVED_1, SOLVED_1 + SOLVED_1), "answers"),
    "code outside of the marks": (without("### BEGIN", "x = 1\n### BEGIN"), "answers"),
    "code after the marks": (without(SOLVED_1, SOLVED_1 + "print(1)\n"), "answers"),
    "more than the check": (without(CHECK_1, CHECK_1.replace("check(", "print(1)\ncheck(")), "answers"),
    "an answer is read": (without(CHECK_1, CHECK_1 + "\n# %%\nprint(answer)\n"), "answer_is_read_by_check_alone"),
    "a long solution": (without("answer = 1", "answer = 1\n" * 41), "code_lengths"),
    "a check is not compared": (without(CHECK_1, CHECK_1.replace("%%", '%% tags=["nbval-ignore-output"]')), "compared"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_exercises_are_caught_by_their_rule(case, tmp_path):
    """Each fault is found in one of the two notebooks at least, under the name of its rule."""
    source, rule = BAD[case]
    assert any(f"({rule})" in fault for found in faults(source, tmp_path) for fault in found)


def test_every_rule_of_its_own_has_a_bad_case():
    """A rule that nothing breaks proves nothing; those of lessons are proved with them."""
    own = {rule.__name__ for rule in SOURCE_RULES if rule.__module__ == "exercise_lint"}
    assert own == {rule for _, rule in BAD.values()}

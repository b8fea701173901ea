"""A small lesson that keeps every rule, in a course folder of its own; tests of the tool chain break it on purpose."""

from __future__ import annotations

from pathlib import Path

from build import Course

HEAD = """\
# ---
# jupyter:
#   lesson:
#     files: none
#     gpu: not needed
#     keras: false
#     max_memory_mb: 500
#     max_minutes: 1
# ---

# %% [markdown]
# # {number} · Count the batches
#
# **In this lesson you will build** a counter of batches.
#
# **You can, at the end,**
#
# 1. say how many batches an epoch has;
# 2. say how long counting takes.
#
# **You need** nothing.
#
# <!-- facts -->

# %% tags=["nbval-ignore-output"]
from helpers.course.lesson import open_lesson  # versions and device

open_lesson()
"""

MIDDLE = """\
# %% [markdown]
# ## 1. Count
#
# **Predict:** How many batches of 32 do 103 rows make?

# %%
rows, batch_size = 103, 32
print(-(-rows // batch_size), "batches")

# %% [markdown]
# Four: the last one holds 7 rows.

# %% [markdown]
# **Checkpoint 1.** How many are there of 96 rows?
#
# <details><summary>Answer</summary>
#
# 3
#
# </details>
"""

TIMED = """\
# %% [markdown]
# ## 2. Measure
#
# `time` has a clock.

# %% tags=["nbval-ignore-output"]
import time

started = time.perf_counter()
total = sum(range(1000))
print(f"{time.perf_counter() - started:.6f} s, at {time.perf_counter():.6f} s")  # never twice the same

# %% [markdown]
# **Checkpoint 2.** Is that below a second?

# %%
print("below a second:", time.perf_counter() - started < 1000)
"""

PICTURE = """\
# %% [markdown]
# ## 3. Look
#
# `figures` draws.

# %%
from helpers.course.figures import bars, show

show(bars(["one", "two"], [1, 2], "batches"), alt="Two bars: one batch and two batches.")
"""

END = """\
# %% [markdown]
# ## Key points
#
# - One.
# - Two.
# - Three.
"""


def good_source(number: str = "01", *, picture: bool = False) -> str:
    """Source of a lesson without faults."""
    parts = [HEAD.format(number=number), MIDDLE, TIMED, *([PICTURE] if picture else []), END]
    return "\n".join(parts)


def replaced(old: str, new: str, source: str | None = None) -> str:
    """The good lesson with one text replaced, which must be there."""
    source = good_source() if source is None else source
    assert old in source, f"{old!r} is not in the sample lesson"
    return source.replace(old, new)


def with_cell(code: str, *, tag: str = "") -> str:
    """The good lesson with one more code cell in its first section."""
    marks = f' tags=["{tag}"]' if tag else ""
    return replaced("# %% [markdown]\n# Four:", f"# %%{marks}\n{code}\n\n# %% [markdown]\n# Four:")


def make_course(folder: Path, sources: dict[str, str]) -> Course:
    """A course folder with these sources (name -> text) and a README with a place for the table."""
    course = Course(folder / "notebooks" / "_src", folder / "notebooks", folder / "README.md")
    course.sources.mkdir(parents=True)
    course.readme.write_text(
        "# Kit\n\n<!-- notebooks:begin -->\n<!-- notebooks:end -->\n\nThe end.\n", encoding="utf-8"
    )
    for name, text in sources.items():
        (course.sources / f"{name}.py").write_text(text, encoding="utf-8")
    return course

"""Take the pictures of JupyterLab that README shows: ``python tests/browser/screenshots.py``.

Needs Chromium, and an environment without nbgrader: its buttons are not what a learner sees.
"""

from __future__ import annotations

from pathlib import Path

from lab import answer_exercise, browser_page, copied, run_notebook, running_lab

ROOT = Path(__file__).parents[2]
PICTURE = ROOT / "notebooks" / "images" / "exercise.png"
EXERCISE = ROOT / "notebooks" / "exercises" / "02_naive_train_on_batch.ipynb"
WRONG = """\
def answer(n, batch_size):
    return [slice(k * batch_size, (k + 1) * batch_size) for k in range(n // batch_size)]"""


def main() -> None:
    """An exercise with a wrong answer, its check, and the hint."""
    with (
        copied(EXERCISE) as (folder, name),
        running_lab(folder) as address,
        browser_page(width=1000, height=620) as page,
    ):
        run_notebook(page, address, name)
        answer_exercise(page, "02.2", WRONG)
        place = page.locator(".jp-OutputArea", has_text="02.2 · not yet").first
        place.evaluate("output => output.scrollIntoView({block: 'end'})")
        page.wait_for_timeout(500)
        PICTURE.parent.mkdir(exist_ok=True)
        page.screenshot(path=PICTURE)


if __name__ == "__main__":
    main()

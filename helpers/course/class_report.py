"""How a class stands: each exercise by learner, and the commonest misconceptions by name.

    python -m helpers.course.class_report FOLDER
    python -m helpers.course.class_report FOLDER --run --csv class.csv

FOLDER holds one folder a learner (nbgrader's submitted/ or autograded/ as it is), or notebooks called
LEARNER_02_naive_train_on_batch.ipynb. Verdicts are read as the notebooks were saved; --run runs each again first, in
a copy, with the checks as the kit has them: that is learners' code, run with your rights.
"""

from __future__ import annotations

import argparse
import collections
import csv
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tqdm import tqdm

from helpers.course.submissions import Submission, Verdict, read_submissions, submitted_notebooks
from helpers.course.tasks import all_tasks, tasks_of
from helpers.words import count_text

_MARKS = {"blank": ".", "not run": "-"}
_LEGEND = "points; . not answered, - not run (open it, run all cells, save), empty: not handed in"
_MOST_NAMES = 5  # misconceptions shown an exercise: more is not a lesson plan


@dataclass(frozen=True)
class ClassReport:
    """The verdicts of a class; ``str()`` is the page for the teacher."""

    submissions: tuple[Submission, ...]

    @property
    def learners(self) -> list[str]:
        """Everybody who handed something in, by name."""
        return sorted({one.learner for one in self.submissions})

    @property
    def best(self) -> dict[tuple[str, str], Verdict]:
        """(learner, exercise) -> the verdict that counts: the best, where one was handed in twice."""
        best: dict[tuple[str, str], Verdict] = {}
        for one in self.submissions:
            for verdict in one.verdicts:
                key = one.learner, verdict.number
                if key not in best or _rank(verdict) > _rank(best[key]):
                    best[key] = verdict
        return best

    @property
    def misconceptions(self) -> dict[str, collections.Counter]:
        """Exercise -> how many learners ended at each named mistake, or error."""
        found: dict[str, collections.Counter] = collections.defaultdict(collections.Counter)
        for (_, number), verdict in self.best.items():
            if verdict.name:
                found[number][verdict.name] += 1
        return dict(sorted(found.items()))

    def __str__(self) -> str:
        lessons = sorted({number.partition(".")[0] for _, number in self.best})
        parts = [self._summary(), *(self._table(lesson) for lesson in lessons), self._mistakes(), self._problems()]
        return "\n\n".join(part for part in parts if part)

    def _summary(self) -> str:
        learners, notebooks = count_text(len(self.learners), "learner"), count_text(len(self.submissions), "notebook")
        return f"{learners}, {notebooks} with exercises.\nIn the tables: {_LEGEND}."

    def _table(self, lesson: str) -> str:
        tasks = tasks_of(lesson)
        best, width = self.best, max(8, *(len(name) for name in self.learners))
        head = [f"{'lesson ' + lesson:{width}}", *(f"{one.number:>6}" for one in tasks), f"{'all':>10}"]
        lines = ["".join(head), "".join([" " * width, *(f"{'of ' + str(one.points):>6}" for one in tasks)])]
        for learner in self.learners:
            row = [best.get((learner, one.number)) for one in tasks]
            if any(row):
                score = f"{sum(one.points for one in row if one):g} of {sum(one.points for one in tasks)}"
                lines.append("".join([f"{learner:{width}}", *(f"{_mark(one):>6}" for one in row), f"{score:>10}"]))
        right = [sum(_is_right(best.get((name, one.number))) for name in self.learners) for one in tasks]
        return "\n".join([*lines, "".join([f"{'right':{width}}", *(f"{count:>6}" for count in right)])])

    def _mistakes(self) -> str:
        if not self.misconceptions:
            return "No check ended at a mistake."
        tasks, lines = all_tasks(), ["The commonest misconceptions:"]
        for number, names in self.misconceptions.items():
            lines.append(f"{number} {tasks[number].title}" if number in tasks else number)
            for name, count in names.most_common(_MOST_NAMES):
                hint = tasks[number].hint(name) if number in tasks else ""
                lines.append(f"  {count:>3} x {name}: {hint}")
        return "\n".join(lines)

    def _problems(self) -> str:
        bad = [f"  {one.learner}, {one.path.name}: {one.problem}." for one in self.submissions if one.problem]
        return "\n".join(["Not to be graded as they are:", *bad]) if bad else ""


def write_csv(report: ClassReport, path: Path) -> None:
    """One row a learner and exercise: learner, exercise, points, of, status, mistake."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["learner", "exercise", "points", "of", "status", "mistake"])
        for (learner, number), one in sorted(report.best.items()):
            writer.writerow([learner, number, one.points, one.max_points, one.status, one.name])


def class_report(folder: Path, *, rerun: bool = False) -> ClassReport:
    """Read (or run again) every notebook with exercises below ``folder``."""
    found: Iterable[Submission] = read_submissions(folder, rerun=rerun)
    if rerun:
        found = tqdm(found, total=len(submitted_notebooks(folder)), unit="notebook", desc="running")
    return ClassReport(tuple(one for one in found if one.verdicts or one.problem))


def main(arguments: list[str] | None = None) -> int:
    """Command line; returns the exit code: 0 a report, 1 nothing to report on, 2 no such folder."""
    options = _parser().parse_args(arguments)
    if not options.folder.is_dir():
        return _stop(2, f"{options.folder} is not a folder. Give the one that holds a folder for each learner.")
    report = class_report(options.folder, rerun=options.run)
    if not report.submissions:
        return _stop(1, f"{options.folder} holds no notebook with exercises: no cell calls check(...).")
    print(report)  # noqa: T201 - a command line program
    if options.csv:
        write_csv(report, options.csv)
    return 0


def _rank(verdict: Verdict) -> tuple[bool, float, bool]:
    return verdict.status == "right", verdict.points, verdict.status in {"wrong", "raised"}


def _mark(verdict: Verdict | None) -> str:
    return "" if verdict is None else _MARKS.get(verdict.status, f"{verdict.points:g}")


def _is_right(verdict: Verdict | None) -> bool:
    return verdict is not None and verdict.status == "right"


def _stop(code: int, message: str) -> int:
    print(message, file=sys.stderr)  # noqa: T201 - a command line program
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m helpers.course.class_report",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="what the class handed in")
    parser.add_argument("--run", action="store_true", help="run each notebook again first, in a copy")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="write the table as CSV, too")
    return parser


if __name__ == "__main__":
    sys.exit(main())

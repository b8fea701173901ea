"""Exercise checks: ``check("05.3", answer)`` prints what is right, or the first thing that is not; ``.points`` counts.

A task (``helpers.course.tasks``) looks at the answer's type first, then its shape, then its values, by running it on
fresh inputs. It earns a point at each step, and ends at the first step that fails: expected, got, and a hint. Each
mistake that people are known to make has a name, which ``helpers.course.class_report`` counts over a class.

Four outcomes: not answered, raised an error, wrong, right.
"""

from __future__ import annotations

import contextlib
import io
import linecache
import logging
import textwrap
import threading
import time
import traceback
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

from helpers.course.lesson import quiet_stderr
from helpers.course.probes import ENDINGS, AnswerRaised, Task, Wrong, one_line
from helpers.course.tasks import find_task

_WIDTH = 72  # letters: what fits beside the prompts on a narrow screen
_PRINTED_LINES = 5  # of what the answer itself printed: enough to see why, few enough to keep the hint in sight
_BLANK_HINT = "Replace None, run both cells."
_TIME_NAME = "did not end"


@dataclass(frozen=True)
class Result:
    """What a check found; ``str()`` is what the learner reads, ``points`` what a grader counts (0.0 when blank)."""

    number: str
    status: str  # "blank", "raised", "wrong" or "right"
    points: float
    max_points: int
    name: str = ""  # of the mistake
    lines: tuple[tuple[str, str], ...] = ()  # ("expected", "44 pieces"), ...
    note: str = ""  # when right: what can now be said

    def __str__(self) -> str:
        score = f"{self.points:g} of {self.max_points} points"
        if self.status == "blank":
            return f"{self.number} · not answered yet: {score}. {_BLANK_HINT}"
        if self.status == "right":
            return _filled(f"{self.number} · right: {score}. {self.note}".rstrip(), "  ")
        said = "your code raised an error" if self.status == "raised" else "not yet"
        head = f"{self.number} · {said}: {score} ({self.name})"
        width = max(len(label) for label, _ in self.lines) + 3
        return "\n".join([head, *(_labelled(label, text, width) for label, text in self.lines)])

    __repr__ = __str__


def check(number: str, answer: object) -> Result:
    """Check the answer to one exercise, print what was found, and return it.

    Parameters
    ----------
    number : the exercise, such as ``"05.3"``.
    answer : what the exercise asks for: a value, a function or a class. ``None`` means not answered. Functions are
        called with copies of fresh inputs; what they print is held back, and shown with a mistake.

    Returns
    -------
    Result
        Its ``points`` is a float between 0.0 and the points of the exercise.

    Raises
    ------
    ValueError
        There is no exercise of this number.
    """
    task = find_task(number)
    result = Result(task.number, "blank", 0.0, task.points) if answer is None or answer is ... else _judge(task, answer)
    print(result)  # noqa: T201 - only exercises call this
    return result


def _judge(task: Task, answer: object) -> Result:
    """Let the task look at the answer, within its time, with everything that the answer prints held back."""
    earned, printed = 0, io.StringIO()
    try:
        with _held_back(printed), _time_limit(task.limit_s):
            for _ in task.grade(answer):
                earned += 1
    except Wrong as wrong:
        return _failed(task, earned, printed, wrong.name, [("expected", wrong.expected), ("got", wrong.got)])
    except _OutOfTimeError:
        lines = [("expected", f"an answer within {task.limit_s:g} s"), ("got", "it was still running")]
        return _failed(task, earned, printed, _TIME_NAME, lines)
    except AnswerRaised as raised:
        return _raised(task, earned, printed, raised.error, raised.call)
    except ENDINGS as error:  # the answer's own code, called by a library: its fault is a finding, not a crash here
        return _raised(task, earned, printed, error, "")
    if earned != task.points:
        raise AssertionError(f"task {task.number} has {task.points} points and gave {earned}: a fault of the kit.")
    return Result(task.number, "right", float(earned), task.points, note=task.note)


def _failed(task: Task, earned: int, printed: io.StringIO, name: str, lines: list[tuple[str, str]]) -> Result:
    lines = [*lines, ("hint", task.hint(name)), *_printed(printed)]
    return Result(task.number, "wrong", float(earned), task.points, name, tuple(lines))


def _raised(task: Task, earned: int, printed: io.StringIO, error: BaseException, call: str) -> Result:
    name = type(error).__name__
    lines = [("error", one_line(f"{name}: {_message(error)}", 200)), ("where", _where(error)), ("called as", call)]
    lines += [("hint", task.hint(name)), *_printed(printed)]
    return Result(task.number, "raised", float(earned), task.points, name, tuple(line for line in lines if line[1]))


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as inner:  # the answer's own exception may be broken, too
        return f"(its text cannot be shown: {type(inner).__name__})"


def _where(error: BaseException) -> str:
    """The last line of the learner's own cell that the error passed through, or ''."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_cell(frame.filename)]
    if not frames:
        return ""
    line = linecache.getline(frames[-1].filename, frames[-1].lineno).strip()
    return f"line {frames[-1].lineno} of your cell" + (f": {line}" if line else "")


def _is_cell(filename: str) -> bool:
    return "ipykernel_" in filename or filename.startswith("<ipython")


def _printed(printed: io.StringIO) -> list[tuple[str, str]]:
    lines = [line for line in printed.getvalue().splitlines() if line.strip()]
    return [("it printed", one_line(line, 120)) for line in lines[-_PRINTED_LINES:]]


def _filled(text: str, indent: str) -> str:
    return textwrap.fill(text, _WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def _labelled(label: str, text: str, width: int) -> str:
    return textwrap.fill(
        text,
        _WIDTH,
        initial_indent="  " + f"{label}:".ljust(width - 1),
        subsequent_indent=" " * (width + 1),
        break_long_words=False,
        break_on_hyphens=False,
    )


@contextlib.contextmanager
def _held_back(printed: io.StringIO) -> Iterator[None]:
    """Nothing that runs inside shows: a grader takes any line on stderr for a failure."""
    with (
        contextlib.redirect_stdout(printed),
        contextlib.redirect_stderr(printed),
        warnings.catch_warnings(),
        quiet_stderr(show=False),
    ):
        warnings.simplefilter("ignore")
        level = logging.root.manager.disable
        logging.disable(logging.CRITICAL)  # handlers made before keep the real stderr
        try:
            yield
        finally:
            logging.disable(level)


class _OutOfTimeError(Exception):
    """The answer did not come back in time."""


@contextlib.contextmanager
def _time_limit(seconds: float) -> Iterator[None]:
    """Interrupt the main thread after ``seconds``, and each second from then on; in other threads there is no limit.

    A loop of Python code ends at once. One call of C code that never returns cannot be interrupted: tasks run those in
    a child (``helpers.course.failures``). An answer that swallows the interrupt and ends later is late all the same.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    clock = _Clock(seconds)
    clock.start()
    try:
        yield
    except KeyboardInterrupt:
        if not clock.stop():
            raise
    finally:
        late = clock.stop()
    if late:
        raise _OutOfTimeError


class _Clock(threading.Thread):
    """Interrupts the main thread when the time is up, until it is stopped."""

    def __init__(self, seconds: float):
        super().__init__(name="time limit of a check", daemon=True)
        self._seconds, self._lock, self._stopped, self._late = seconds, threading.Lock(), threading.Event(), False

    def run(self) -> None:
        import _thread

        wait_s = self._seconds
        while not self._stopped.wait(wait_s):
            with self._lock:
                if not self._stopped.is_set():
                    self._late = True
                    _thread.interrupt_main()
            wait_s = 1.0

    def stop(self) -> bool:
        """Stop, and say whether the time was up; an interrupt that is still on its way is taken here."""
        while True:
            try:
                with self._lock:
                    self._stopped.set()
                if self._late:
                    time.sleep(0.01)
                return self._late
            except KeyboardInterrupt:
                if not self._late:
                    raise

"""What tasks are written in: ask an answer for its type, its shape, its values; each question ends in a named mistake.

    @task("02.2", "Pieces without a remainder", objective=1, points=2, hints={"rows left over": "..."})
    def pieces(answer):
        function = a_function(answer, "n, batch_size")
        result = a_list(run(function, 10, 3), "the pieces of 10 rows")
        yield                                                    # a point: the type is right
        same(len(result), 4, "rows left over", "number of pieces of 10 rows by 3")
        yield                                                    # another one

Answers may be written in any way: Python's and NumPy's numbers, lists, tuples and arrays count alike.
"""

from __future__ import annotations

import contextlib
import copy
import inspect
import numbers
import os
import re
import tempfile
import tracemalloc
from collections.abc import Callable, Iterator, KeysView, Mapping, Sequence, ValuesView
from dataclasses import dataclass, field
from pathlib import PurePath
from unittest import mock

import numpy as np

LIMIT_S = 60.0  # for one check: the slowest takes about 5 s on 2 cores, and a classroom's machines are slower

# Mistakes that any exercise can see; a task may word them anew under the same name.
COMMON_HINTS = {
    "not a function": "Give the function itself: `answer = f`, without brackets. `f(...)` is what one call returned.",
    "other arguments": "The exercise says which arguments the function takes, and in which order.",
    "wrong type": "Look at the type of your answer, or of what it returns. Did you run the cell above first?",
    "wrong shape": "Look at the shape: which axis has another length, and why?",
    "forgot to return": "A function without `return` gives None, also when it computed or printed the right thing.",
    "changed its input": "The caller still needs what it gave you. Work on a copy, or write into a new array.",
    "NameError": "That name is made in a cell above. Run all cells above (menu Run), then this one again.",
    "did not end": "It still ran when its time was up. Look for a loop that never ends, or try it on fewer rows.",
}
ENDINGS = (Exception, SystemExit, GeneratorExit)  # by which an answer may end; a KeyboardInterrupt is the learner's own
RAISED_HINT = "Make a new cell, call it there yourself in the same way, and read the whole trace."


class Wrong(Exception):  # noqa: N818 - a finding about an answer, not an error of the program
    """A question found a mistake: its name, what was expected and what was there, each as text for the learner."""

    def __init__(self, name: str, expected: object, got: object):
        super().__init__(name)
        self.name, self.expected, self.got = name, str(expected), str(got)


class AnswerRaised(Exception):  # noqa: N818 - as above
    """The answer raised ``error`` when it was called as ``call``."""

    def __init__(self, error: BaseException, call: str):
        super().__init__(call)
        self.error, self.call = error, call


@dataclass(frozen=True)
class Task:
    """One exercise: its questions, its points, and a hint for each mistake that has a name."""

    number: str  # "02.2"
    title: str
    objective: int  # of the lesson: the one it tests
    points: int
    hints: Mapping[str, str]
    grade: Callable[[object], Iterator[None]] = field(repr=False)  # yields at each point; raises Wrong
    note: str = ""  # what a learner can say after it
    limit_s: float = LIMIT_S

    def hint(self, name: str) -> str:
        """The hint for a mistake, or for an error by its type's name."""
        return self.hints.get(name) or COMMON_HINTS.get(name) or RAISED_HINT


_LISTS = (Sequence, np.ndarray, set, frozenset, KeysView, ValuesView)
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_FOLDER = re.compile(re.escape(tempfile.gettempdir()) + r"[/\\][^/\\\s]+")  # a temporary one, of this run

TASKS: dict[str, Task] = {}


def task(number: str, title: str, *, objective: int, points: int, hints: Mapping[str, str], note="", limit_s=LIMIT_S):
    """Register the decorated generator function as the questions of one exercise.

    ``hints`` maps the name of each mistake that the function raises (beside those in ``COMMON_HINTS``) to its hint, and
    may map an error's type ("TypeError") to one. ``points`` is the number of times the function yields.
    """

    def register(grade):
        TASKS[number] = Task(number, title, objective, points, dict(hints), grade, note, limit_s)
        return grade

    return register


# --- type -----------------------------------------------------------------------------------------------------------


def a_function(answer: object, arguments: str) -> Callable:
    """The answer as something that can be called with ``arguments`` ("n, batch_size"); a class is one, too."""
    expected = f"a function of ({arguments})"
    if not callable(answer):
        raise Wrong("not a function", expected, describe(answer))
    names = [name for name in arguments.split(", ") if name]
    try:
        inspect.signature(answer).bind(*names)
    except TypeError:
        raise Wrong("other arguments", expected, f"a function of {inspect.signature(answer)}") from None
    except ValueError:  # built in: it has no signature to look at
        pass
    return answer


def a_whole_number(value: object, what: str, name: str = "wrong type") -> int:
    """``value`` as an int: Python's, NumPy's, or an array of one; 3.0 is none."""
    value = _alone(value)
    if isinstance(value, bool | np.bool_) or not isinstance(value, numbers.Integral):
        raise Wrong(name, f"{what}: a whole number", describe(value))
    return int(value)


def a_number(value: object, what: str, name: str = "wrong type") -> float:
    """``value`` as a float: any real number, also NumPy's or Keras' of one element."""
    value = _alone(value)
    if isinstance(value, bool | np.bool_) or not isinstance(value, numbers.Real):
        raise Wrong(name, f"{what}: a number", describe(value))
    return float(value)


def a_truth(value: object, what: str, name: str = "wrong type") -> bool:
    """``value`` as a bool: Python's or NumPy's."""
    value = _alone(value)
    if not isinstance(value, bool | np.bool_):
        raise Wrong(name, f"{what}: True or False", describe(value))
    return bool(value)


def a_text(value: object, what: str, name: str = "wrong type") -> str:
    """``value`` as text."""
    if not isinstance(value, str):
        raise Wrong(name, f"{what}: text in quotes", describe(value))
    return str(value)


def a_list(value: object, what: str, name: str = "wrong type") -> list:
    """``value`` as a list: lists, tuples, ranges, arrays and sets (sorted) count alike."""
    if hasattr(value, "__array__") and not isinstance(value, np.ndarray | np.generic):
        value = np.asarray(value)  # a tensor
    no_axis = isinstance(value, np.ndarray) and value.ndim == 0
    if isinstance(value, str | bytes | Mapping) or no_axis or not isinstance(value, _LISTS):
        raise Wrong(name, f"{what}: a list", describe(value))
    if isinstance(value, set | frozenset):
        return sorted(value, key=lambda one: (str(type(one)), one)) if _comparable(value) else list(value)
    return list(value)


def _comparable(values: set | frozenset) -> bool:
    try:
        sorted(values, key=lambda one: (str(type(one)), one))
    except TypeError:
        return False
    return True


def a_dict(value: object, keys: Sequence, what: str, name: str = "wrong type") -> dict:
    """``value`` as a dictionary that has ``keys``."""
    if not isinstance(value, Mapping):
        wanted = f" with the keys {_names(keys)}" if keys else ""
        raise Wrong(name, f"{what}: a dictionary{wanted}", describe(value))
    if missing := [key for key in keys if key not in value]:
        raise Wrong(name, f"{what}: the keys {_names(keys)}", f"no {_names(missing)}; there are: {_names(value)}")
    return dict(value)


def an_array(value: object, what: str, *, dtype=None, shape=None, name: str = "wrong type") -> np.ndarray:
    """``value`` as an array, of ``dtype`` if given (then ``shape``, where None stands for any length)."""
    try:
        array = np.asarray(value)
    except (ValueError, TypeError):
        raise Wrong(name, f"{what}: an array", describe(value)) from None
    if array.dtype == object or array.dtype.kind in "US":
        raise Wrong(name, f"{what}: an array of numbers", describe(value))
    if dtype is not None and array.dtype != dtype:
        raise Wrong(name, f"{what}: an array of {np.dtype(dtype)}", f"an array of {array.dtype}")
    if shape is not None:
        of_shape(array, shape, what)
    return array


def _alone(value: object) -> object:
    """The one element of a NumPy array or a tensor without axes; everything else as it is."""
    if hasattr(value, "shape") and tuple(value.shape) == () and not isinstance(value, np.generic):
        return np.asarray(value)[()]
    return value


# --- shape ----------------------------------------------------------------------------------------------------------


def of_shape(array: np.ndarray, shape: tuple, what: str, name: str = "wrong shape") -> None:
    """``array`` has ``shape``, where None stands for any length."""
    fits = array.ndim == len(shape) and all(want in {None, got} for want, got in zip(shape, array.shape, strict=True))
    if not fits:
        raise Wrong(name, f"{what}: shape {_shape(shape)}", f"shape {_shape(array.shape)}")


def _shape(shape: tuple) -> str:
    return str(tuple("any" if length is None else length for length in shape)).replace("'", "")


# --- value ----------------------------------------------------------------------------------------------------------


def that(condition: object, name: str, expected: object, got: object) -> None:
    """``condition`` holds, or the mistake is called ``name``."""
    if not condition:
        raise Wrong(name, expected, got)


def same(got: object, expected: object, name: str, what: str) -> None:
    """``got`` equals ``expected`` (arrays and lists element by element), or the mistake is called ``name``."""
    if not _equal(got, expected):
        raise Wrong(name, f"{what}: {describe(expected)}", describe(got))


def close(got: float, expected: float, name: str, what: str, *, relative: float = 1e-5) -> None:
    """``got`` is within ``relative`` of ``expected``, or the mistake is called ``name``."""
    if not np.allclose(got, expected, rtol=relative, atol=1e-12):
        raise Wrong(name, f"{what}: {describe(expected)}", describe(got))


def is_known_mistake(got: object, mistakes: Mapping[str, object], expected: object, what: str) -> None:
    """When ``got`` is what a known mistake gives, say so by the mistake's name; ``mistakes`` maps names to values."""
    if _equal(got, expected):
        return
    for name, value in mistakes.items():
        if _equal(got, value):
            raise Wrong(name, f"{what}: {describe(expected)}", describe(got))


def _equal(one: object, other: object) -> bool:
    try:
        return _equal_parts(one, other)
    except Exception:  # things that cannot be compared are not equal
        return False


def _equal_parts(one: object, other: object) -> bool:
    if isinstance(one, Mapping) or isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_equal(one[key], other[key]) for key in one)
    try:
        a, b = np.asarray(one), np.asarray(other)
    except (ValueError, TypeError):  # ragged lists
        return len(one) == len(other) and all(_equal(x, y) for x, y in zip(one, other, strict=True))
    if a.dtype != object and b.dtype != object:
        return np.array_equal(a, b)
    if a.ndim and b.ndim:
        return len(a) == len(b) and all(_equal(x, y) for x, y in zip(a, b, strict=True))
    return bool(one == other)


# --- running an answer ----------------------------------------------------------------------------------------------


def run(function: Callable, *args, call: str = "", returns: bool = True, keeps_input: bool = True, **kwargs) -> object:
    """Call an answer with copies of the arguments.

    Raises AnswerRaised when it raises, and Wrong when it returns None (``returns``) or changes an array, list or
    dictionary it was given (``keeps_input``). ``call`` is how the call is shown; made from the arguments without it.
    """
    call = call or f"answer({', '.join([*map(_short, args), *(f'{k}={_short(v)}' for k, v in kwargs.items())])})"
    given = _copied(args), {key: _copied(value) for key, value in kwargs.items()}
    try:
        result = function(*given[0], **given[1])
    except Wrong:  # a stand-in that a task handed over has seen a mistake
        raise
    except ENDINGS as error:
        raise AnswerRaised(error, call) from error
    if returns and result is None:
        raise Wrong("forgot to return", f"{call} returns something", "None")
    if keeps_input:
        _unchanged(args, given[0], call)
        _unchanged(list(kwargs.values()), list(given[1].values()), call)
    return result


def attempt(function: Callable, call: str) -> object:
    """``function()``, which runs an answer in some way; its errors are the answer's, shown as those of ``call``."""
    try:
        return function()
    except Wrong:
        raise
    except ENDINGS as error:
        raise AnswerRaised(error, call) from error


def _copied(value: object) -> object:
    try:
        return copy.deepcopy(value)
    except Exception:  # open files, locks: handed over as they are
        return tuple(_copied(part) for part in value) if isinstance(value, tuple) else value


def _unchanged(before: Sequence, after: Sequence, call: str) -> None:
    for one, other in zip(before, after, strict=True):
        if isinstance(one, np.ndarray | list | dict | set) and not _equal(one, other):
            raise Wrong(
                "changed its input", f"{call} leaves its arguments as they are", f"{describe(other)} afterwards"
            )


def peak_bytes(work: Callable[[], object]) -> int:
    """The most memory, in arrays and other Python objects, that ``work()`` held at once above what there was before.

    What HDF5 and Keras keep for themselves is not seen. A learner's own tracing goes on undisturbed.
    """
    was_tracing = tracemalloc.is_tracing()
    if not was_tracing:
        tracemalloc.start()
    try:
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        work()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        if not was_tracing:
            tracemalloc.stop()


@contextlib.contextmanager
def listed_backwards() -> Iterator[None]:
    """The system lists folders in another order, as that of another machine may."""
    listdir, scandir = os.listdir, os.scandir
    with (
        mock.patch("os.listdir", lambda *where: listdir(*where)[::-1]),
        mock.patch("os.scandir", lambda *where: _Backwards(scandir(*where))),
    ):
        yield


class _Backwards:
    """What ``os.scandir`` gives, from the last to the first."""

    def __init__(self, entries):
        with entries:
            self._entries = iter(list(entries)[::-1])

    def __iter__(self):
        return self

    def __next__(self):
        return next(self._entries)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self._entries = iter(())


# --- words ----------------------------------------------------------------------------------------------------------


def describe(value: object) -> str:
    """A value in a few words: ``the array [0, 1, 2]``, ``a function``, ``3``, ``an array (32, 64, 64, 3) of uint8``."""
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, float):
        return _float_text(value)
    if value is None or isinstance(value, bool | numbers.Number):
        return f"{value}"
    if isinstance(value, np.ndarray):
        small = value.size <= 12 and value.ndim <= 1 and value.dtype != object
        return f"the array {value.tolist()}" if small else f"an array {value.shape} of {value.dtype}"
    if inspect.isclass(value):
        return f"the class {value.__name__}"
    if inspect.ismodule(value):
        return f"the module {value.__name__}"
    if isinstance(value, PurePath):
        return f"the path .../{value.name}"  # the folder differs from machine to machine
    if inspect.isgenerator(value):
        return "a generator"
    if inspect.isroutine(value):
        return "a function"
    return _short(value, 80)


def one_line(text: str, most: int) -> str:
    """``text`` on one line of at most ``most`` letters, without what differs from run to run."""
    text = " ".join(_FOLDER.sub("...", _ADDRESS.sub("", text)).split())
    return text if len(text) <= most else text[: most - 3] + "..."


def _short(value: object, most: int = 40) -> str:
    if isinstance(value, np.ndarray) and value.size > 12:
        return f"<array {value.shape} {value.dtype}>"
    try:
        return one_line(repr(value), most)
    except Exception:  # an answer's own __repr__ may fail: that is not what is asked
        return f"a {type(value).__name__}"


def _float_text(value: float) -> str:
    """Six digits, as the last ones differ from machine to machine; a whole number keeps its point."""
    text = f"{value:.6g}"
    return f"{text}.0" if text.lstrip("-").isdigit() else text


def _names(keys) -> str:
    return ", ".join(repr(key) for key in keys)

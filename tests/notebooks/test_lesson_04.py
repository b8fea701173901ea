"""The failure lab: its table of symptoms leads to what it promises, and its verdict follows from the outcomes."""

import ast
import re
from pathlib import Path

import nbformat
import pytest
from build import COURSE
from lesson_lint import readable
from lesson_source import SOURCES

from helpers.course.failures import Outcome

NAME = "04_when_workers_break"
TAUGHT = ("outcomes_with", "went_wrong", "verdict")


@pytest.fixture(scope="module")
def notebook():
    """The notebook as it is stored, with the outputs of the last build."""
    return nbformat.read(COURSE.notebooks / f"{NAME}.ipynb", as_version=4)


@pytest.fixture(scope="module")
def sections(notebook) -> dict[str, str]:
    """Number of a section -> its title, and all that a reader sees in it."""
    texts: dict[str, str] = {}
    number = ""
    for cell in notebook.cells:
        if heading := re.match(r"## (\d+)\. .*", cell.source):
            number = heading[1]
            texts[number] = heading[0][3:]
        if number:
            outputs = [readable(output) for output in cell.get("outputs", [])]
            texts[number] += "\n" + "\n".join([cell.source, *outputs])
    return texts


@pytest.fixture(scope="module")
def symptoms(sections) -> list[tuple[str, str]]:
    """(what you see, number of the section) of each row of the table."""
    rows = re.findall(r"^\| (.*) \| \[.*\]\[(\d+)\] \|$", sections["1"], re.MULTILINE)
    assert len(rows) == 16
    return rows


def test_every_symptom_leads_to_its_section(sections, symptoms):
    """A link in the table has the number, the title and the address of a section, as JupyterLab makes addresses."""
    for _, number in symptoms:
        title = sections[number].splitlines()[0]
        assert f"[{title.replace('.', ' ·', 1)}][{number}]" in sections["1"]
        assert f"\n[{number}]: #{title.replace(' ', '-')}\n" in sections["1"] + "\n"


def test_every_error_text_happens_in_its_section(notebook, symptoms):
    """An error text that the table promises stands in an output of the section it leads to."""
    outputs: dict[str, str] = {}
    number = ""
    for cell in notebook.cells:
        if heading := re.match(r"## (\d+)\. ", cell.source):
            number = heading[1]
        outputs[number] = outputs.get(number, "") + "".join(map(readable, cell.get("outputs", [])))
    promised = [
        (text.removesuffix(" on ..."), number)
        for words, number in symptoms
        for text in re.findall(r"`([^`]{8,})`", words)
    ]
    assert len(promised) >= 11
    for text, number in promised:
        assert text in outputs[number], f"section {number} shows no {text!r}"


@pytest.fixture(scope="module")
def taught() -> dict:
    """The functions of the verdict, by name; nothing else of the lesson is run."""
    tree = ast.parse(Path(SOURCES, f"{NAME}.py").read_text(encoding="utf-8"))
    tree.body = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name in TAUGHT]
    names: dict = {}
    exec(compile(tree, NAME, "exec"), names)
    return names


def outcome(exit_code=0, signal=None, error="", result=None) -> Outcome:
    """An outcome as a lab might have had it."""
    return Outcome(exit_code, signal, error, 50.0, 1.0, "", result=result)


GOOD, SOME_WRONG, SOME_FAILED = (0, []), (3, []), (0, ["filter returned failure"])
LABS = {
    "control: a crash": outcome(-11, "SIGSEGV"),
    "a reader, then a reader": outcome(),
    "a writer, then a reader": outcome(1, error="BlockingIOError: unable to lock file"),
    "inherited, opened by path": outcome(result=GOOD),
    "inherited, Python file object": outcome(result=SOME_WRONG),
    "opened in each worker": outcome(result=GOOD),
    "a relative path in a worker": outcome(1, error="FileNotFoundError: food.h5"),
    "stdio and a lock": outcome(result=SOME_WRONG),
}
AS_STORED = (False, True, False, False, True, True, False, True, True)


def test_verdict_as_it_stands_in_the_notebook(taught, notebook):
    """Outcomes like those of the labs give the yes and no that the notebook shows."""
    assert tuple(true for *_, true in taught["verdict"](LABS)) == AS_STORED
    table = next(
        readable(output)
        for cell in notebook.cells
        for output in cell.get("outputs", [])
        if "| The article |" in readable(output)
    )
    assert tuple(word == "yes" for word in re.findall(r"\*\*(yes|no)\*\*", table)) == AS_STORED


# What a lab could show on other versions -> the line of the verdict that then changes, and to what.
OTHER_WORLDS = {
    "readers lock each other out": ({"a reader, then a reader": outcome(1, error="BlockingIOError: x")}, 0, True),
    "writers do not lock": ({"a writer, then a reader": outcome()}, 1, False),
    "a lock repairs": ({"stdio and a lock": outcome(result=GOOD)}, 2, True),
    "a lock turns damage into errors": ({"stdio and a lock": outcome(result=SOME_FAILED)}, 2, False),
    "an inherited handle is not found": (
        {"inherited, opened by path": outcome(1, error="FileNotFoundError: x", result=SOME_FAILED)},
        3,
        True,
    ),
    "no path is lost": ({"a relative path in a worker": outcome()}, 4, False),
    "own handles give wrong images": ({"opened in each worker": outcome(result=SOME_WRONG)}, 5, False),
    "own handles fail": ({"opened in each worker": outcome(result=SOME_FAILED)}, 5, False),
    "a lab crashes": ({"threads on one handle": outcome(-11, "SIGSEGV")}, 6, True),
    "the control does not crash": ({"control: a crash": outcome()}, 7, False),
    "shared handles do no harm": ({"inherited, Python file object": outcome(result=GOOD)}, 8, False),
}


@pytest.mark.parametrize("case", OTHER_WORLDS)
def test_verdict_follows_the_outcomes(case, taught):
    """Each line of the verdict changes when the lab behind it ends in another way, and the lines beside it stay."""
    changed, line, true = OTHER_WORLDS[case]
    actual = [value for *_, value in taught["verdict"](LABS | changed)]
    expected = [*AS_STORED[:line], true, *AS_STORED[line + 1 :]]
    assert actual == expected

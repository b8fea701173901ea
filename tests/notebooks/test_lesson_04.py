"""The failure lab: each failure happens and each repair holds, its tables lead where they say, its verdict follows.

The tests read the outputs that are stored in the notebook. Strict nbval proves that a run gives the same outputs.
"""

import ast
import re
from pathlib import Path

import nbformat
import pytest
from build import COURSE
from lesson_lint import readable
from lesson_source import SOURCES

from helpers.course.failures import Outcome
from helpers.known_errors import known_errors

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
    assert len(rows) == 19
    return rows


def test_every_symptom_leads_to_its_section(sections, symptoms):
    """A link in the table has the number, the title and the address of a section, as JupyterLab makes addresses."""
    for _, number in symptoms:
        title = sections[number].splitlines()[0]
        assert f"[{title.replace('.', ' ·', 1)}][{number}]" in sections["1"]
        assert f"\n[{number}]: #{title.replace(' ', '-')}\n" in sections["1"] + "\n"


@pytest.fixture(scope="module")
def outputs(notebook) -> dict[str, str]:
    """Number of a section -> what its cells print."""
    texts: dict[str, str] = {}
    number = ""
    for cell in notebook.cells:
        if heading := re.match(r"## (\d+)\. ", cell.source):
            number = heading[1]
        texts[number] = texts.get(number, "") + "".join(map(readable, cell.get("outputs", [])))
    return texts


def test_every_error_text_happens_in_its_section(outputs, symptoms):
    """An error text that the table promises stands in an output of the section it leads to."""
    promised = [
        (text.removesuffix(" on ..."), number)
        for words, number in symptoms
        for text in re.findall(r"`([^`]{8,})`", words)
    ]
    assert len(promised) >= 13
    for text, number in promised:
        assert text in outputs[number], f"section {number} shows no {text!r}"


def test_links_to_other_lessons_lead_to_their_sections(sections):
    """A row for a fault that another lesson shows names a heading of that lesson, and its address in JupyterLab."""
    rows = re.findall(r"\[(\d\d) · (\d+\. .*?)\]\[([\d-]+)\] \|$", sections["1"], re.MULTILINE)
    assert len(rows) == 7
    lessons = {lesson.name[:2]: lesson.name for lesson in COURSE.lessons()}
    for lesson, title, label in rows:
        source = Path(SOURCES, f"{lessons[lesson]}.py").read_text(encoding="utf-8")
        assert f"\n# ## {title}\n" in source, f"lesson {lesson} has no section {title!r}"
        assert f"\n[{label}]: {lessons[lesson]}.ipynb#{title.replace(' ', '-')}\n" in sections["1"]


def test_the_index_of_errors_is_linked(sections):
    """The page that lists all failures lies where section 1 says, and so does the command that searches it."""
    assert "[ERRORS.md](ERRORS.md)" in sections["1"]
    assert (COURSE.notebooks / "ERRORS.md").exists()
    assert '`python -m helpers.doctor --error "TEXT"`' in sections["1"]


def test_cards_lead_here(sections, outputs):
    """Where a card says "shown in lesson 04", there is a section of that number and title, and it prints the card."""
    elsewhere = {
        "name-already-exists",  # 5 shows this error, and the card of its first one
        "never-closed",  # 19 shows three files that do not open, and the card of the one that does
        "not-hdf5",
        "truncated",
    }
    for entry in known_errors():
        if entry.taught.startswith("04 · "):
            number = entry.taught.removeprefix("04 · ").split(".")[0]
            assert sections[number].startswith(entry.taught.removeprefix("04 · ") + "\n")
            shown = "2" if entry.code == "crash-in-c-code" else number  # the control crashes first
            assert f"{entry.number} · {entry.title}" in outputs[shown] or entry.code in elsewhere, entry.code


# Section -> labs of it that must go wrong, and what they then print. A lab is found by its name. Where the failure is
# one of the notebook's own kernel, a piece of the cell's code stands for the name, in backticks.
FAILS = {
    "3": {
        "a writer, then a reader": "BlockingIOError: [Errno 11] Unable to synchronously open file (unable to lock file",
        "a reader, then a writer": "BlockingIOError: [Errno 11] Unable to synchronously open file (unable to lock file",
    },
    "4": {"a disk without locks": "OSError: [Errno 37] Unable to synchronously open file (unable to lock file"},
    "5": {
        '`file.attrs["mean"] = 1 / 2`': "(unable to truncate a file which is already open)",
        "`with fails_with(OSError):\n    add_labels()`": "OSError: Unable to create link (name already exists)",
    },
    "6": {
        "inherited, Python file object": "20,000 reads by 4 workers; wrong images: some",
        "inherited, file object, gzip": "some reads failed: True",
        "taking turns on one handle": "row 0 right: True  row 1 right: False",
    },
    "7": {"opened on first use": "8 batches made in a worker, handle opened by the parent"},
    "8": {"`pickle.dumps(Images(path))`": "TypeError: h5py objects cannot be pickled"},
    "9": {"`next(batches)\n`": "(identifier is not of specified type)"},
    "10": {"a class of a cell, spawned": "The child did not end within its time limit and was stopped."},
    "11": {"a relative path in a worker": "FileNotFoundError: [Errno 2] Unable to synchronously open file"},
    "12": {"random numbers in workers": "16 batches drew fewer than 16 numbers: True"},
    "13": {
        "a generator, two threads": "ValueError: generator already executing",
        "a generator, two processes": "[0, 1, 2, 3, 4, 5]\n[0, 1, 2, 3, 4, 5]\n",
    },
    "14": {"a dead worker in fit": "The child did not end within its time limit and was stopped."},
    "15": {"a generator of one pass": "10 of 24 steps were trained; epochs with a loss of exactly 0.0: 1"},
    "16": {"the whole dataset": "_ArrayMemoryError: Unable to allocate 469. MiB"},
    "17": {
        "labels as float64": "_ArrayMemoryError: Unable to allocate 458. MiB",
        "labels as float64, no limit": "with float64 above 480 MB: True",
    },
    "18": {"a queue of 100 float32 batches": "100 batches wait"},
    "19": {
        "killed before a flush": "The child was killed by SIGKILL.",
        "killed after a flush": "The child was killed by SIGKILL.",
        "four broken files": "page.h5 fails: file signature not found",
        "the end of half.h5": "row 60, ones in its label: 0",
    },
    "20": {
        "one handle and a lock": "The child ended normally.",  # slow: the cell after it compares
        "`reads_together(labs[name].result)`": "one handle and a lock    reads at the same time: none",
        "stdio and a lock": "1,400 reads by 4 workers; wrong images: some",
    },
}
REPAIRED = {
    "3": {
        "a reader, then a reader": "read a label: 0",
        "a reader, then HDF5Writer": "who has it open still sees 1400 images\nwho opens it now sees 4",
    },
    "4": {"a disk without locks, locking=False": "read 1400 rows"},
    "5": {"`file.close()`": "after the second run: <Closed HDF5 file>", '`del grown["labels"]`': "after del: no error"},
    "6": {"opened in each worker": "wrong images: 0, failed reads: 0"},
    "7": {"opened once a process": "8 batches made in a worker, handle opened by itself"},
    "8": {
        "`TravellingImages(path)`": "row 5 is right after the journey: True",
        "a reader, spawned": "row 5 from the spawned worker is right: True",
    },
    "9": {"`batches_of_file(path)\n`": "first batch: (32, 64, 64, 3)"},
    "10": {"a class of a cell, WorkerPool": "answers: [0, 1, 2, 3]\nmade in another process: True"},
    "11": {"an absolute path in a worker": "the worker finds it, and row 5 is right: True"},
    "12": {"`len({own for *_, own in draws})`": "different numbers from (seed, epoch, batch): 16"},
    "13": {"by number, two processes": "[0, 1, 2, 3, 4, 5]\n"},
    "14": {"a dead worker in WorkerPool": "WorkerDiedError: worker 1 (process N) was ended by SIGKILL"},
    "15": {
        "a generator without end": "24 of 24 steps were trained; epochs with a loss of exactly 0.0: 0",
        "a generator of one pass in fit_generator": "GeneratorRanDryError: the generator ended after 8 of 24 batches",
    },
    "16": {"in slices": "40000 images read\npeak memory below 200 MB: True"},
    "17": {"labels as uint8": "peak memory with uint8 below 150 MB: True"},
    "18": {"a queue of 10 uint8 batches": "peak memory of the long queue: more than 140 MB higher: True"},
    "19": {
        "`inspect_file(folder / name)`": "half.h5  ok: False  faults: never-written, onehot-sum",
        "HDF5Writer, killed": "left: ['safe.h5.part']",
    },
    "20": {
        "a handle each, no lock": "The child ended normally.",
        "`reads_together(labs[name].result)`": "a handle each, no lock   reads at the same time: some",
        "by path and a lock": "1,400 reads by 4 workers; wrong images: none",
    },
}
# Labs that are neither: they are compared with, or show a price.
NEITHER = {
    "hello": "hello from a child",
    "control: a crash": "The child was killed by SIGSEGV",
    "a writer and a reader without locks": "read a label: 0",
    "inherited, opened by path": "wrong images: 0  failed reads: 0",
    "threads on one handle": "4,000 reads by 4 threads, 2,000 of them after an open; wrong images: 0",
}
WITHOUT_A_FAILURE = {"1", "2", "21"}  # the tables, the tools, the verdict over the labs of the others


def test_every_section_has_a_failure_and_its_repair(sections):
    """Each section but those of tables, tools and verdict has a lab that must fail and one that must be repaired."""
    assert set(FAILS) == set(REPAIRED) == set(sections) - WITHOUT_A_FAILURE


def cells_of(notebook, section: str, name: str) -> str:
    """What the cells print that run the lab ``name``, or hold the code in backticks, in one section."""
    wanted = name.strip("`") if name.startswith("`") else f'lab("{name}",'
    number, printed, found = "", "", 0
    for cell in notebook.cells:
        if heading := re.match(r"## (\d+)\. ", cell.source):
            number = heading[1]
        if number == section and cell.cell_type == "code" and wanted in cell.source + "\n":
            printed += "".join(map(readable, cell.outputs))
            found += 1
    assert found == 1, f"section {section} has {found} cells with {wanted!r}"
    return printed


@pytest.mark.parametrize(
    ("section", "name"), [(section, name) for section, labs in FAILS.items() for name in labs], ids=str
)
def test_each_failure_still_happens(notebook, section, name):
    """What must go wrong goes wrong on the pinned versions, in the words that the table states."""
    assert FAILS[section][name] in cells_of(notebook, section, name)


@pytest.mark.parametrize(
    ("section", "name"), [(section, name) for section, labs in REPAIRED.items() for name in labs], ids=str
)
def test_each_repair_still_holds(notebook, section, name):
    """What must be repaired is repaired on the pinned versions."""
    assert REPAIRED[section][name] in cells_of(notebook, section, name)


def test_no_lab_is_left_unjudged(sections, notebook):
    """Every lab of the notebook stands in one of the tables; those that only compare show what they should, too."""
    text = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "code")
    judged = {name for labs in (*FAILS.values(), *REPAIRED.values()) for name in labs if not name.startswith("`")}
    assert set(re.findall(r'\blab\("([^"]+)"', text)) == judged | set(NEITHER)
    for name, printed in NEITHER.items():
        section = next(number for number, shown in sections.items() if f'lab("{name}"' in shown)
        assert printed in cells_of(notebook, section, name)


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
    "own handles never answer": ({"opened in each worker": outcome(-9, "SIGKILL")}, 5, False),
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

"""Each rule for learners: the good sample lesson passes, and each bad one is caught by its rule, at its cell."""

import copy

import lesson_lint
import nbformat
import pytest
from lesson_lint import Page, faults, lint
from lesson_source import Lesson, Measured, assemble
from nbformat.v4 import new_output
from sample_lessons import END, MIDDLE, good_source, make_course, replaced, with_cell

TIMED_FACT = 'print("below a second:", time.perf_counter() - started < 1000)'


def read(source, folder):
    """The lesson of a source text."""
    return make_course(folder, {"01_count": source}).lessons()[0]


def page_of(lesson: Lesson) -> Page:
    """The page of a source, not executed."""
    return Page(assemble(lesson, None, None, None), lesson.name, executed=False)


def executed_notebook(lesson: Lesson):
    """The notebook as if it had been run: numbered, with an output in each cell."""
    notebook = assemble(lesson, Measured(1, 150), None, None)
    for number, cell in enumerate([cell for cell in notebook.cells if cell.cell_type == "code"], 1):
        cell.execution_count, cell.outputs = number, [new_output("stream", name="stdout", text="4 batches\n")]
    return notebook


def test_good_lesson_has_no_faults(tmp_path):
    """A lesson that keeps the rules is left in peace."""
    lesson = read(good_source(picture=True), tmp_path)
    assert lint(executed_notebook(lesson), lesson.path) == []


def test_fault_says_notebook_cell_and_what_to_do(tmp_path):
    """The message holds file, cell, rule, what was got, what to do."""
    lesson = read(with_cell("_ = 1;"), tmp_path)
    assert lint(assemble(lesson, None, None, None), lesson.path, executed=False) == [
        "01_count.py, cell 4 (semicolons): the last line ends with ';'. Write _ = ... instead."
    ]


# case -> (source, rule that catches it, cell)
BAD_SOURCES = {
    "title without number": (replaced("# # 01 ·", "# # Lesson:"), "head", 0),
    "no promise": (replaced("**In this lesson you will build**", "You build"), "head", 0),
    "no objectives": (replaced("**You can, at the end,**", "You can"), "head", 0),
    "no table of facts": (replaced("# <!-- facts -->", "# nothing"), "head", 0),
    "open_lesson missing": (replaced("open_lesson()", "print(open_lesson)"), "opening", 1),
    "open_lesson compared": (
        replaced('# %% tags=["nbval-ignore-output"]\nfrom helpers', "# %%\nfrom helpers"),
        "opening",
        1,
    ),
    "sections out of order": (replaced("## 2. Measure", "## 3. Measure"), "sections", None),
    "no key points": (replaced(END, ""), "sections", None),
    "two key points": (replaced("# - Three.\n", ""), "sections", 10),
    "objective without checkpoint": (replaced("**Checkpoint 1.**", "A question:"), "checkpoints", 0),
    "checkpoint without objective": (replaced("**Checkpoint 1.**", "**Checkpoint 7.**"), "checkpoints", 5),
    "checkpoint without answer": (replaced("<details><summary>Answer</summary>", "<details>"), "checkpoints", 5),
    "no prediction": (replaced("**Predict:** How", "How"), "predictions", None),
    "prediction without question": (replaced("103 rows make?", "103 rows make."), "predictions", 2),
    "prediction far from its cell": (
        replaced("rows make?\n\n# %%\n", "rows make?\n\n# %% [markdown]\n# So:\n\n# %%\n"),
        "predictions",
        2,
    ),
    "old name without its box": (with_cell("fit_generator = None"), "then_and_now", None),
    "long cell": (with_cell("\n".join(f"a{i} = {i}" for i in range(21))), "lengths", 4),
    "long cells everywhere": (
        replaced("rows, batch_size = 103, 32\n", "\n".join(f"a{i} = {i}" for i in range(9)) + "\n", replaced(
            "total = sum(range(1000))\n", "\n".join(f"b{i} = {i}" for i in range(9)) + "\n", replaced(
                TIMED_FACT, "\n".join(f"c{i} = {i}" for i in range(9))))),
        "lengths",
        None,
    ),
    "many cells": (replaced(MIDDLE, MIDDLE + "\n# %%\nprint(1)\n\n# %% [markdown]\n# One.\n" * 45), "lengths", None),
    "three code cells in a row": (with_cell("print(1)\n\n# %%\nprint(2)"), "explanations", 5),
    "import without a word": (with_cell("import json\nprint(json.dumps(1))"), "imports", 4),
    "from-import without a word": (with_cell("from json import dumps\nprint(dumps(1))"), "imports", 4),
    "known magic": (with_cell("# %time print(1)").replace("# %time", "%time"), "magics", 4),
    "unknown magic": (with_cell("# %%fast\nprint(1)").replace("# %%fast", "%%fast"), "magics", None),
    "shell command": (with_cell("!ls"), "magics", 4),
    "does not parse": (with_cell("print(1"), "magics", 4),
    "trailing semicolon": (with_cell("print(1);"), "semicolons", 4),
    "semicolon before a comment": (with_cell("print(1);  # quiet"), "semicolons", 4),
    "network module": (with_cell("import requests  # fetches pages"), "network", 4),
    "network call": (with_cell("keras.utils.get_file('a', 'b')"), "network", 4),
    "pip": (with_cell("run('pip install x')"), "network", 4),
    "absolute path": (with_cell("open('/home/me/food.h5')"), "paths", 4),
    "home folder": (with_cell("open('~/food.h5')"), "paths", 4),
    "Windows path": (with_cell("open('C:\\\\data\\\\food.h5')"), "paths", 4),
    "sys.path": (with_cell("import sys  # the interpreter\n\nsys.path.append('..')"), "paths", 4),
    "os.chdir": (with_cell("import os  # files\n\nos.chdir('..')"), "paths", 4),
    "misspelt tag": (with_cell("print(1)", tag="nbval-ignore-ouput"), "known_tags", 4),
    "raises-exception": (with_cell("print(1)", tag="raises-exception"), "known_tags", 4),
    "chatty training": (with_cell("model.fit(data, epochs=2)"), "quiet_training", 4),
    "chatty fit_generator": (
        with_cell("fit_generator(model, data, verbose=1)").replace("Four:", "> **Then and now.** It was.\n#\n# Four:"),
        "quiet_training",
        4,
    ),
    "chatty evaluation": (with_cell("model.evaluate(data)"), "quiet_training", 4),
    "no fact after a measured time": (replaced("# %%\n" + TIMED_FACT, ""), "compared_after_ignored", 7),
    "picture in the text without alt": (replaced("Four:", "![](a.png) Four:"), "markdown_pictures", 4),
    "img tag in the text without alt": (replaced("Four:", '<img src="a.png"> Four:'), "markdown_pictures", 4),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_SOURCES)
def test_bad_source_is_caught(case, tmp_path):
    """A source that breaks a rule is caught by that rule, at that cell."""
    source, rule, cell = BAD_SOURCES[case]
    found = [(fault.rule, fault.cell) for fault in faults(page_of(read(source, tmp_path)))]
    if cell is None:
        assert rule in {name for name, _ in found}
    else:
        assert (rule, cell) in found


FINE_SOURCES = {
    "HDF5 name that starts with a slash": with_cell("print('/train_img')"),
    "a class of 35 lines, tagged": with_cell("\n".join(f"a{i} = {i}" for i in range(35)), tag="long"),
    "semicolon inside a text": with_cell("print('a;')"),
    "silent training": with_cell("model.fit(data, epochs=2, verbose=0)"),
    "import named in the text above": replaced("# Four:", "# Four (`json` is next):", with_cell("print(1)")).replace(
        "# %% [markdown]\n# ## 2.", "# %%\nimport json\n\nprint(json.dumps(1))\n\n# %% [markdown]\n# ## 2."
    ),
    "heading inside a code block": replaced("# Four:", "# ```\n# ## Not a section\n# ```\n#\n# Four:"),
}


@pytest.mark.parametrize("case", FINE_SOURCES)
def test_fine_source_is_left_in_peace(case, tmp_path):
    """What only looks like a broken rule is no fault."""
    assert [str(fault) for fault in faults(page_of(read(FINE_SOURCES[case], tmp_path)))] == []


def html(markup):
    """A displayed piece of HTML."""
    return new_output("display_data", data={"text/html": markup})


def printed(text, name="stdout"):
    """A printed text."""
    return new_output("stream", name=name, text=text)


# case -> (output of the compared cell 3, rule)
BAD_OUTPUTS = {
    "stored error": (new_output("error", ename="KeyError", evalue="'x'", traceback=[]), "errors"),
    "stderr": (printed("UserWarning: x\n", "stderr"), "errors"),
    "picture without alt text": (new_output("display_data", data={"image/png": "aGVsbG8="}), "pictures"),
    "SVG": (new_output("display_data", data={"image/svg+xml": "<svg/>"}), "pictures"),
    "HTML picture without alt": (html('<img src="data:image/png;base64,aGVs">'), "pictures"),
    "HTML picture with a poor alt": (html('<img alt="a plot" src="data:image/png;base64,aGVs">'), "pictures"),
    "widget": (
        new_output("display_data", data={"application/vnd.jupyter.widget-view+json": {"model_id": "1"}}),
        "pictures",
    ),
    "path of this machine": (printed("/home/me/kit/notebooks/data/toy.h5\n"), "private_paths"),
    "path of a package": (printed("lib/site-packages/keras/a.py\n"), "private_paths"),
    "seconds": (printed("took 3.2 s\n"), "same_everywhere"),
    "milliseconds": (printed("40ms a batch\n"), "same_everywhere"),
    "speed": (printed("900 img/s\n"), "same_everywhere"),
    "speed in words": (printed("12,000 images a second\n"), "same_everywhere"),
    "speed in HTML": (html("<td>14 MB/s</td>"), "same_everywhere"),
    "address": (printed("<object at 0x7f3a5c0d1e50>\n"), "same_everywhere"),
    "process number": (printed("worker pid 4711 died\n"), "same_everywhere"),
}


@pytest.mark.parametrize("case", BAD_OUTPUTS)
def test_bad_output_is_caught(case, tmp_path):
    """An output that a learner must not get, or that differs elsewhere, is caught at its cell."""
    output, rule = BAD_OUTPUTS[case]
    lesson = read(good_source(), tmp_path)
    notebook = executed_notebook(lesson)
    notebook.cells[3].outputs = [output]
    assert [(fault.rule, fault.cell) for fault in faults(Page(notebook, lesson.name, executed=True))] == [(rule, 3)]


FINE_OUTPUTS = {
    "a comparison of speeds": printed("at least 10 times faster: True\n"),
    "rows and shapes": printed("(103, 64, 64, 3) uint8, 103 rows, 4 steps\n"),
    "a picture of show": html('<img alt="Two bars, the second twice as long." src="data:image/png;base64,3sMsAAAA">'),
    "file in the data folder": printed("data/toy.h5\n"),
}


@pytest.mark.parametrize("case", FINE_OUTPUTS)
def test_fine_output_is_left_in_peace(case, tmp_path):
    """Facts that hold on every machine are no fault."""
    lesson = read(good_source(), tmp_path)
    notebook = executed_notebook(lesson)
    notebook.cells[3].outputs = [FINE_OUTPUTS[case]]
    assert lint(notebook, lesson.path) == []


def test_constant_time_is_allowed_where_tagged(tmp_path):
    """A time that is a constant is said to be one by a tag."""
    lesson = read(with_cell("print('limit 30 s')", tag="constant-time"), tmp_path)
    notebook = executed_notebook(lesson)
    notebook.cells[4].outputs = [printed("limit 30 s\n")]
    assert lint(notebook, lesson.path) == []


COUNTS = {
    "never executed": ([1, None, 3, 4], 3),
    "out of order": ([1, 3, 2, 4], 3),
    "run twice": ([1, 2, 3, 5], 9),
    "not from the start": ([2, 3, 4, 5], 1),
}


@pytest.mark.parametrize("case", COUNTS)
def test_cells_are_executed_from_top_to_bottom(case, tmp_path):
    """Execution numbers are 1 to n, else the first wrong cell is named."""
    counts, cell = COUNTS[case]
    lesson = read(good_source(), tmp_path)
    notebook = executed_notebook(lesson)
    for code, count in zip([cell for cell in notebook.cells if cell.cell_type == "code"], counts, strict=True):
        code.execution_count = count
    assert [(f.rule, f.cell) for f in faults(Page(notebook, lesson.name, executed=True))] == [("execution", cell)]


def test_large_notebook_is_caught(tmp_path):
    """A notebook too large to open quickly is a fault."""
    lesson = read(good_source(), tmp_path)
    notebook = executed_notebook(lesson)
    picture = "A" * 1_300_000
    notebook.cells[3].outputs = [html(f'<img alt="Two bars of equal length." src="data:image/png;base64,{picture}">')]
    assert [fault.rule for fault in faults(Page(notebook, lesson.name, executed=True))] == ["size"]


def test_every_rule_has_a_bad_sample():
    """No rule stands here that no sample breaks."""
    broken = {rule for _, rule, _ in BAD_SOURCES.values()} | {rule for _, rule in BAD_OUTPUTS.values()}
    rules = {rule.__name__ for rule in lesson_lint.SOURCE_RULES + lesson_lint.OUTPUT_RULES}
    assert rules - broken == {"execution", "size"}  # these two have tests of their own above


def test_lint_changes_nothing(tmp_path):
    """Looking at a notebook does not change it."""
    lesson = read(good_source(), tmp_path)
    notebook = executed_notebook(lesson)
    before = copy.deepcopy(notebook)
    lint(notebook, lesson.path)
    assert nbformat.writes(notebook) == nbformat.writes(before)

"""TEACHING.md, the teacher's plan: nothing left out, every link leads there, sums are right, commands exist."""

import importlib
import re
import shutil
import subprocess
import tomllib
import zipfile
from pathlib import Path

import nbformat
import pytest
from build import COURSE
from objectives_table import objectives_of

from helpers.course.tasks import all_tasks, tasks_of

ROOT = COURSE.notebooks.parent
PAGE = COURSE.notebooks / "TEACHING.md"
TEXT = PAGE.read_text(encoding="utf-8")
LESSONS = {lesson.name[:2]: lesson for lesson in COURSE.lessons()}
TARGET = r"\]\(((?:[^()\s]|\([^()]*\))+)\)"
COMMANDS = "\n".join(re.findall(r"```(?:bash|powershell)\n(.*?)```", TEXT, re.DOTALL))
MODULES = sorted(set(re.findall(r"python -m ((?:helpers|data_scripts)[\w.]*)", TEXT)))
SEAT_MB = 2000


def part(heading, text=TEXT):
    """What stands under a heading, until the next one of its level or above."""
    level = len(heading) - len(heading.lstrip("#"))
    return re.split(rf"^#{{1,{level}}} ", text.partition(f"{heading}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]


def rows_of(text):
    """The tables of a text: cells of each row, without heads and rules."""
    lines = [line for line in text.splitlines() if line.startswith("| ") and not line.startswith("| ---")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def headings(path):
    """Addresses of the headings of a file, as JupyterLab makes them; for Markdown also as GitHub does."""
    if path.suffix == ".ipynb":
        texts = [cell.source for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "markdown"]
    else:
        texts = [path.read_text(encoding="utf-8")]
    names = [line.lstrip("#")[1:] for text in texts for line in text.splitlines() if re.match(r"#+ ", line)]
    found = {name.replace(" ", "-").replace("`", "") for name in names}
    if path.suffix == ".md":
        found |= {re.sub(r"[^\w\- ]", "", name.lower()).replace(" ", "-") for name in names}
    return found


def sections(lesson):
    """Numbered headings of a lesson, in order."""
    return [line[3:] for cell in lesson.cells for line in cell.source.splitlines() if re.match(r"## \d", line)]


def section_minutes():
    """(lesson, section number) -> minutes in class, from the tables section by section."""
    found = {}
    for number, lesson in LESSONS.items():
        for row in rows_of(part(f"### {lesson.title}"))[1:]:
            found[number, int(re.match(r"\[(\d+)\.", row[0])[1])] = int(row[1])
    return found


MINUTES = section_minutes()


def linked(cell):
    """(lesson, section number) of each link to a section; two with " to " between them stand for all from one on."""
    ends = [(name[:2], int(n)) for name, n in re.findall(r"\]\((\d\d_\w+)\.ipynb#(\d+)\.", cell)]
    if re.search(r"\) to \[", cell):
        (lesson, first), (_, last) = ends
        return [(lesson, n) for n in range(first, last + 1)]
    return ends


def memory_mb():
    """Stored notebook -> MB of its kernel, as the build measured it; exercises that are not built yet are left out."""
    paths = [*COURSE.notebooks.glob("0*.ipynb"), *COURSE.notebooks.glob("exercises/0*.ipynb")]
    return {path: nbformat.read(path, as_version=4).metadata["lesson"] for path in paths}


@pytest.mark.parametrize("number", LESSONS)
def test_every_section_is_in_the_tables_and_no_other(number):
    """The table of a lesson has its sections, all and in order, each with its own words, minutes and an answer."""
    lesson = LESSONS[number]
    rows = rows_of(part(f"### {lesson.title}"))[1:]
    names = sections(lesson)
    anchors = [name.replace(" ", "-").replace("`", "") for name in names]
    links = [f"[{name}]({lesson.name}.ipynb#{there})" for name, there in zip(names, anchors, strict=True)]
    assert [row[0] for row in rows] == links
    assert [row for row in rows if len(row) != 4 or not all(row)] == []


def test_the_tables_are_those_of_the_lessons():
    """There is a table for each lesson, and for nothing else."""
    under = part("## Section by section")
    assert re.findall(r"^### (.+)$", under, re.MULTILINE) == [lesson.title for lesson in LESSONS.values()]


@pytest.mark.parametrize("number", LESSONS)
def test_minutes_of_a_lesson_are_the_sum_of_its_sections(number):
    """The line above a table says how long the whole lesson takes in class."""
    said = re.search(r"^(\d+) minutes in class\.$", part(f"### {LESSONS[number].title}"), re.MULTILINE)
    assert int(said[1]) == sum(minutes for (lesson, _), minutes in MINUTES.items() if lesson == number)


@pytest.mark.parametrize(("heading", "total"), [("### 90 minutes", 90), ("### Half a day", 240)])
def test_a_schedule_adds_up(heading, total):
    """Each row lasts as long as the sections it names, and all rows together as long as the schedule says."""
    *rows, last = rows_of(part(heading))[1:]
    for row in rows:
        if named := linked(row[1]):
            assert int(row[0]) == sum(MINUTES[one] for one in named), row
    assert [int(last[0]), sum(int(row[0]) for row in rows)] == [total, total]


def test_each_week_of_the_semester_is_ninety_minutes():
    """Report, lesson and exercises make 90 minutes a week, and the weeks teach every section once, in order."""
    taught = []
    for week, row in enumerate(rows_of(part("### A semester, a week at a time"))[1:], 1):
        named = linked(row[2])
        assert [int(row[0]), int(row[3])] == [week, sum(MINUTES[one] for one in named)]
        assert int(row[1]) + int(row[3]) + int(row[4]) == 90, row
        taught += named
    assert taught == list(MINUTES)


def test_exercises_come_in_the_week_of_their_section_or_later():
    """The weeks give every exercise once, and none before the section of its objective was taught."""
    taught, given = set(), []
    for row in rows_of(part("### A semester, a week at a time"))[1:]:
        taught |= set(linked(row[2]))
        for first, last in re.findall(r"(\d\d\.\d)(?: to (\d\d\.\d))?", row[5]):
            lesson = first[:2]
            numbers = [f"{lesson}.{n}" for n in range(int(first[3:]), int((last or first)[3:]) + 1)]
            given += numbers
            for task in tasks_of(lesson):
                if task.number in numbers and lesson in LESSONS:
                    promise = {one.number: one.section for one in objectives_of(LESSONS[lesson])}[task.objective]
                    assert (lesson, int(promise.partition(".")[0])) in taught, task.number
    assert sorted(given) == sorted(all_tasks())


@pytest.mark.parametrize("target", sorted(set(re.findall(TARGET, TEXT))))
def test_links_lead_to_a_file_and_a_heading(target):
    """Every link leads to a file that is there, and to a heading in it."""
    name, _, anchor = target.partition("#")
    path = (PAGE.parent / name).resolve() if name else PAGE
    assert path.exists()
    assert not anchor or anchor in headings(path)


def test_short_links_say_where_they_lead():
    """A link "05 · 4" leads to lesson 05, section 4."""
    short = re.findall(r"\[(\d\d) · (\d+)\]" + TARGET[2:], TEXT)
    assert len(short) > 30
    assert [one for one in short if not re.match(rf"{one[0]}_\w+\.ipynb#{one[1]}\.-", one[2])] == []


@pytest.mark.parametrize("module", MODULES)
def test_modules_of_the_commands_explain_themselves(module, capsys):
    """Every ``python -m`` of the kit that the page names exists, and has a --help."""
    with pytest.raises(SystemExit) as ended:
        importlib.import_module(module).main(["--help"])
    assert ended.value.code == 0
    assert f"python -m {module}" in capsys.readouterr().out


def test_the_report_and_the_copies_are_among_the_commands():
    """The commands that a teacher cannot do without are there, with options that their parsers know."""
    assert {"helpers.course.class_report", "helpers.course.copy_exercises", "helpers.course.nbgrader_course"} <= set(
        MODULES
    )
    report = importlib.import_module("helpers.course.class_report")
    assert "class_report FOLDER --run --csv class.csv" in COMMANDS
    assert report._parser().parse_args(["FOLDER", "--run", "--csv", "class.csv"]).run


def test_assignments_of_nbgrader_are_exercises():
    """Every assignment that a command names is a notebook with exercises."""
    named = set(re.findall(r"nbgrader \w+ (\d\d_\w+)", COMMANDS))
    assert named == {"02_naive_train_on_batch"}
    assert named <= {one.name for one in COURSE.exercises()}


def test_what_the_wheels_need_is_as_the_page_says():
    """One editable line is left out of the download, and setuptools alone builds the kit on the seat."""
    lines = (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert [line for line in lines if line.startswith("-")] == ["-e ."]
    assert [re.match(r"\w+", name)[0] for name in project["build-system"]["requires"]] == ["setuptools"]
    assert "teach" in project["project"]["optional-dependencies"]


@pytest.mark.skipif(shutil.which("git") is None or not (ROOT / ".git").exists(), reason="needs git and a repository")
def test_the_archive_for_learners_has_exercises_and_no_solution(tmp_path):
    """The command of the page makes an archive with lessons and blanks, without solutions and without tests."""
    (command,) = re.findall(r"^git archive .+$", COMMANDS, re.MULTILINE)
    archive = tmp_path / "class_kit.zip"
    subprocess.run(
        ["bash", "-euc", command.replace("../class_kit.zip", archive.as_posix())], cwd=ROOT, check=True, timeout=60
    )
    names = [Path(name).relative_to("kit").as_posix() for name in zipfile.ZipFile(archive).namelist()]
    assert {"requirements.txt", "README.md", "notebooks/00_start_here.ipynb"} <= set(names)
    assert any(name.startswith("notebooks/exercises/") for name in names)
    assert [name for name in names if re.match(r"tests|notebooks/solutions|notebooks/_src/exercises", name)] == []


def test_what_is_said_about_memory_is_what_was_measured():
    """On a seat of 2 GB: each notebook fits alone, lesson 05 needs most, then 06 and 07, and has no room beside it."""
    measured = memory_mb()
    lessons = {path.name[:2]: facts["memory_mb"] for path, facts in measured.items() if path.parent == COURSE.notebooks}
    others = [facts["memory_mb"] for path, facts in measured.items() if facts["keras"] and path.name[:2] != "05"]
    assert max(facts["memory_mb"] for facts in measured.values()) < SEAT_MB
    first, *next_two = sorted(lessons, key=lessons.get, reverse=True)[:3]
    assert (first, set(next_two)) == ("05", {"06", "07"})
    assert lessons["05"] + min(others) > SEAT_MB
    assert set(re.findall(r"\d+ [MG]B", TEXT)) - {"54 MB"} == {"2 GB"}


def test_labs_that_need_linux_are_in_the_sections_named():
    """The sections of lesson 04 that the page names are those with a lab that runs on Linux alone."""
    needy = set()
    for cell in LESSONS["04"].cells:
        if match := re.match(r"## (\d+)\.", cell.source):
            section = int(match[1])
        if re.search(r"^\s*lab\(.*(needs=|memory_mb=|\*\*patience)", cell.source, re.MULTILINE):
            needy.add(section)
    said = re.search(r"They stand in sections ([\d, and\n]+)\.", part("### Laptops with Windows or macOS"))[1]
    assert {int(number) for number in re.findall(r"\d+", said)} == needy


def test_readme_sends_teachers_here():
    """README names the page, and the two commands for exercises."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "](notebooks/TEACHING.md)" in readme
    for module in ("copy_exercises", "class_report"):
        assert f"python -m helpers.course.{module}" in readme

"""The index of errors: one page, made from the table, whose links lead to the sections that they name."""

import re

import nbformat
import pytest
from build import COURSE, Course, check, write_pages
from error_index import NAME, page

from helpers.known_errors import known_errors

LESSONS = [lesson.name for lesson in COURSE.lessons()]
TEXT = (COURSE.notebooks / NAME).read_text(encoding="utf-8")


def test_the_page_is_that_of_the_table():
    """What is stored is what the table makes today."""
    assert page(LESSONS) == TEXT


def test_every_row_has_all_its_cells():
    """Pipes and marks inside texts do not break a table: five cells a row, four in the last table."""
    rows = [line for line in TEXT.splitlines() if re.match(r"\| (<a id=.*></a>)?[A-I]\d+ \|", line)]
    counts = [len(re.findall(r"(?<!\\)\|", row)) - 1 for row in rows]
    assert counts == [5] * len(known_errors()) + [4] * len(known_errors())


@pytest.mark.parametrize("number", sorted({entry.number for entry in known_errors()}))
def test_links_lead_to_a_section(number):
    """The link of an entry is the address that JupyterLab gives to the heading of its section."""
    for entry in known_errors():
        if entry.number != number:
            continue
        link = re.search(re.escape(f"[{entry.taught}](") + r"([^)]*)\)", TEXT)[1]
        name, anchor = link.split("#")
        cells = nbformat.read(COURSE.notebooks / name, as_version=4).cells
        headings = [line[3:] for cell in cells for line in cell.source.splitlines() if line.startswith("## ")]
        assert anchor in {heading.replace(" ", "-").replace("`", "") for heading in headings}


def test_every_number_has_a_place_to_link_to():
    """ERRORS.md#a1 leads to the first entry of that number."""
    assert re.findall(r'<a id="(.*?)"></a>', TEXT) == list(dict.fromkeys(e.number.lower() for e in known_errors()))


def test_an_old_page_is_noticed_and_renewed(tmp_path):
    """--check names a page that differs from the table, a build renews it; a course without one gets none."""
    course = Course(COURSE.sources, tmp_path, COURSE.readme)
    write_pages(course)
    assert not (tmp_path / NAME).exists()
    (tmp_path / NAME).write_text("of yesterday", encoding="utf-8")
    fault = f"{NAME} differs from what it is made from. Run python notebooks/_src/build.py NAME --text."
    assert fault in check(course, [])
    write_pages(course)
    assert (tmp_path / NAME).read_text(encoding="utf-8") == TEXT
    assert fault not in check(course, [])

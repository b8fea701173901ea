"""Every text of the table of known errors happens on the versions under test, and leads to its entry."""

import platform
import re

import pytest
from provoked import FILTERED, FORKING, PROVOKED

from helpers.error_search import explain
from helpers.known_errors import known_errors

CASES = [(entry.code, number) for entry in known_errors() for number in range(len(entry.texts))]
NEEDS_LINUX = {*FORKING, *FILTERED}


def without_numbers(text: str) -> str:
    """The text without what differs from run to run: numbers, folders, colours and the breaks of lines."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", text)
    return re.sub(r"\s+", " ", re.sub(r"\d+", "N", re.sub(r"(?:/[\w.-]+)+/", "", text)))


def test_every_text_is_provoked():
    """No row of the index is written from memory: each entry has a provocation for each of its texts."""
    assert {entry.code: len(entry.texts) for entry in known_errors() if entry.texts} == {
        code: len(fails) for code, fails in PROVOKED.items()
    }


@pytest.mark.parametrize(("code", "number"), CASES, ids=[f"{code}-{number}" for code, number in CASES])
def test_the_text_is_printed_and_found(code, number, tmp_path, monkeypatch):
    """What is printed holds the text of the table, and the search finds the entry from all of it."""
    if code in NEEDS_LINUX and platform.system() != "Linux":
        pytest.skip("needs Linux")
    monkeypatch.chdir(tmp_path)
    text = next(entry for entry in known_errors() if entry.code == code).texts[number]
    said = PROVOKED[code][number]()
    assert without_numbers(text) in without_numbers(said)
    assert explain(said).code == code

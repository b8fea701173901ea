"""The doctor, asked about an error: ``--error``. Its checks of the machine are in test_doctor_checks.py."""

import io

from helpers import doctor

# -- looking an error up ----------------------------------------------------------------------------------------------

CARD = """\
A3 · An open file cannot be pickled (handle-in-a-pickle)
  What happened: Something that is sent to a worker process holds an open
    file or dataset.
  Why: Workers that are not forked (Windows, macOS, Python 3.14 on Linux)
    get their objects as a pickle, and an open file cannot travel in one.
  Where to look: The attributes of the object that is sent: self.file,
    self.data, anything of h5py, locks.
  Fix: Keep the path. Open in the worker, and leave the handle out in
    __getstate__. HDF5Sequence pickles at any time.
  Shown in: lesson 04 · 8. A handle in a pickle
Or is it this? A2 · Opened on first use, and still inherited (opened-late-still-inherited)
"""
PICKLED = "TypeError: h5py objects cannot be pickled"


def test_error_option_prints_the_card(capsys):
    """--error prints the card and what else it may be, with exit code 0."""
    assert doctor.main(["--error", PICKLED]) == 0
    assert capsys.readouterr().out == CARD


def test_error_is_read_from_the_standard_input(capsys, monkeypatch):
    """--error - takes a whole traceback, which no shell has to quote."""
    trace = f'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\n    train()\n{PICKLED}\n'
    monkeypatch.setattr("sys.stdin", io.StringIO(trace))
    assert doctor.main(["--error", "-"]) == 0
    assert capsys.readouterr().out.startswith("A3 · An open file cannot be pickled (handle-in-a-pickle)\n")


def test_unknown_error_is_one_line_and_exit_code_1(capsys):
    """--error with an unknown text says so in one line."""
    assert doctor.main(["--error", "what is this"]) == 1
    assert capsys.readouterr().out == (
        "Nothing found. Paste the last line of the error, or say in a sentence what you see.\n"
    )

"""What goes wrong while a batch is made arrives as it was raised, with its batch; data are never wrong."""

from __future__ import annotations

import sys

import h5py
import pytest
from coded import make_coded_file
from remote import ERROR_LIMIT_S, NOTHING_LEFT, moment_of, place_of, trains_well

KINDS = pytest.mark.parametrize("processes", [False, True], ids=["threads", "processes"])
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux: /proc")


def notes_of(where: str, row: int) -> list[str]:
    """What an error of augment carries."""
    return [f"while making {where}", f"while augmenting row {row}"]


RAISED = [
    ("ZeroDivisionError", "ZeroDivisionError", "nothing to divide", "raises_zero_division"),
    ("MemoryError", "MemoryError", "no room for the zoomed image", "raises_memory_error"),
]


@KINDS
@pytest.mark.parametrize(("fault", "error", "message", "function"), RAISED, ids=[case[0] for case in RAISED])
def test_an_exception_of_augment_keeps_its_class_and_names_the_batch(
    trainer, coded_file, stamp, processes, fault, error, message, function
):
    """Class, text, a note with batch, rows, dataset and file, and from a process the trace; then training works."""
    where, row = place_of(coded_file, 5)
    answer = trainer.run(file=coded_file, processes=processes, fault=fault, row=row, stamp=stamp)
    assert (answer["error"], answer["message"], answer["notes"]) == (error, message, notes_of(where, row))
    assert answer["at"] - moment_of(stamp)[0] < ERROR_LIMIT_S
    assert (f"in {function}\n" in answer["cause"]) if processes else (answer["cause"] is None)
    assert (answer["steps"], answer["wrong"], answer["left"]) == (5, [], NOTHING_LEFT)
    assert answer["position"] == [0, 5]
    assert trains_well(trainer, coded_file, processes=processes)


def test_an_array_that_is_too_large_for_a_worker_is_a_memory_error(trainer, coded_file, stamp):
    """A worker under a memory limit (RLIMIT_AS) tells what NumPy could not have."""
    where, row = place_of(coded_file, 5)
    answer = trainer.run(file=coded_file, processes=True, fault="too large an array", row=row, stamp=stamp)
    assert "MemoryError" in answer["error"]
    assert answer["message"].startswith("Unable to allocate 2.00 GiB for an array")
    assert answer["notes"] == notes_of(where, row)
    assert (answer["wrong"], answer["left"]) == ([], NOTHING_LEFT)


@pytest.mark.parametrize(
    ("fault", "raised"),
    [("SystemExit", "SystemExit('augment gave up')"), ("KeyboardInterrupt", "KeyboardInterrupt()")],
    ids=["SystemExit", "KeyboardInterrupt"],
)
def test_a_worker_thread_that_augment_tries_to_end_is_an_error(trainer, coded_file, stamp, fault, raised):
    """sys.exit() in a thread ends the thread, not the program: without care nobody would answer any more."""
    where, row = place_of(coded_file, 5)
    answer = trainer.run(file=coded_file, processes=False, fault=fault, row=row, stamp=stamp, limit_s=20)
    assert answer["error"] == "WorkerDiedError"
    assert answer["message"].split(" ", 2)[2] == (
        f"ended with {raised} while it made {where}. Something in it called sys.exit(), or raised what ends a program."
    )
    assert answer["at"] - moment_of(stamp)[0] < ERROR_LIMIT_S
    assert (answer["wrong"], answer["left"]) == ([], NOTHING_LEFT)


def test_what_augment_does_to_the_standard_streams_harms_nothing(trainer, coded_file, stamp):
    """Prints, bytes from C and reading stdin in a worker process do not reach the pipes between worker and parent."""
    _, row = place_of(coded_file, 5)
    assert trains_well(trainer, coded_file, processes=True, fault="standard streams", row=row, stamp=stamp)
    assert "from Python" in trainer.log()


@KINDS
def test_a_damaged_row_is_named(trainer, tmp_path, processes):
    """A flipped byte in a gzip chunk is an error with file, batch and rows, and the next file is read well."""
    file = make_coded_file(tmp_path / "damaged.h5", compression="gzip")
    where, row = place_of(file, 5)
    with h5py.File(file) as open_file:
        place = open_file["train_img"].id.get_chunk_info_by_coord((row, 0, 0, 0))
    with file.open("r+b") as raw:
        raw.seek(place.byte_offset + place.size // 2)
        byte = raw.read(1)[0]
        raw.seek(-1, 1)
        raw.write(bytes([byte ^ 0x55]))
    answer = trainer.run(file=file, processes=processes)
    assert answer["error"] is not None
    assert f"while making {where}" in answer["notes"]
    assert f"row {row} " in answer["message"]
    assert (answer["steps"], answer["wrong"], answer["left"]) == (5, [], NOTHING_LEFT)
    healthy = make_coded_file(tmp_path / "healthy.h5", compression="gzip")
    assert trains_well(trainer, healthy, processes=processes)


@KINDS
@pytest.mark.parametrize("chunk_rows", [1, None], ids=["chunked", "contiguous"])
def test_a_file_cut_short_while_training_is_an_error(trainer, tmp_path, processes, chunk_rows):
    """Rows behind the new end are not read as zeros."""
    file = make_coded_file(tmp_path / "cut.h5", chunk_rows=chunk_rows)
    answer = trainer.run(file=file, processes=processes, epochs=9, step_s=0.02, at_step=[4, "truncate"])
    assert answer["error"] is not None
    assert answer["steps"] < answer["all_steps"]
    assert [note for note in answer["notes"] if f"of train_img in {file}" in note]
    assert (answer["wrong"], answer["left"]) == ([], NOTHING_LEFT)


@KINDS
@pytest.mark.parametrize("change", ["delete", "replace"])
def test_a_file_that_goes_away_while_training_gives_no_wrong_batch(trainer, tmp_path, processes, change):
    """The rest is right, from the file that is still open, or there is an error that names it."""
    file = make_coded_file(tmp_path / "changed.h5")
    answer = trainer.run(file=file, processes=processes, epochs=3, at_step=[4, change])
    if answer["error"] is None:
        assert answer["steps"] == answer["all_steps"]
    else:
        assert str(file) in " ".join([answer["message"], *answer["notes"]])
    assert (answer["wrong"], answer["left"]) == ([], NOTHING_LEFT)


@KINDS
def test_a_file_that_was_replaced_before_training_is_refused(trainer, tmp_path, processes):
    """Labels were read when the sequence was made: images of a file written since do not belong to them."""
    file = make_coded_file(tmp_path / "replaced.h5")
    answer = trainer.run(file=file, processes=processes, before="replace")
    assert answer["error"] == "HDF5FileError"
    assert f"{file} was written anew since this reader was made" in answer["message"]
    assert (answer["steps"], answer["left"]) == (0, NOTHING_LEFT)

"""The benchmark of the full-size file, run small: what it counts, what it refuses, and what it leaves behind."""

from __future__ import annotations

import importlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import zlib
from pathlib import Path

import h5py
import numpy as np
import psutil
import pytest

FOLDER = Path(__file__).resolve().parents[1] / "benchmarks"
SCRIPT = FOLDER / "scale.py"
SMALLEST = 101  # images: one of each class, 27 MB

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="scale.py needs Linux")


@pytest.fixture(autouse=True)
def benchmark(monkeypatch):
    """The folder of benchmarks can be imported from."""
    monkeypatch.syspath_prepend(FOLDER)


def module(name: str):
    """``scale``, or a part of it."""
    return importlib.import_module(name)


def run(*arguments, timeout: float = 200) -> subprocess.CompletedProcess:
    """Run the command line."""
    command = [sys.executable, str(SCRIPT), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)


def small_result(peak: float = 900.0, **faults) -> dict:
    """What --json writes, as far as figures are made from it."""
    one = {
        "shuffle": "full", "cache": "cold", "workers": "2 threads", "images_per_second": 5000.0, "first_batch_s": 0.5,
        "cached_before": 0.0, "disk_mb_per_second": 2000.0, "peak_mb": peak,
        "faults": {"lost": 0, "doubled": 0, "unknown": 0, "torn": 0, "mislabelled": 0} | faults,
    }  # fmt: skip
    warm = {**one, "cache": "warm", "cached_before": 0.7, "shuffle": "block"}
    return {
        "data": {"gigabytes": 27.1},
        "build": {"peak_mb": 90.0, "mb_per_second": 400.0},
        "passes": {"full-cold": one, "block-warm": warm},
    }


# -- the file ---------------------------------------------------------------------------------------------------------


def test_27_gigabytes_are_101000_images():
    """The size asked for is rounded to whole images a class, as Food-101 has 1,000 of each."""
    big_file = module("scaling.big_file")
    assert big_file.image_count(27.1) == 101_000
    assert big_file.image_count(1) == 3737
    assert big_file.image_count(0) == SMALLEST


def test_every_image_of_the_file_says_its_row_and_class(tmp_path):
    """First and last bytes hold the row, little end first, and the class of the label; what is between differs."""
    big_file = module("scaling.big_file")
    big_file.build(tmp_path / "x.h5", 202)
    with h5py.File(tmp_path / "x.h5") as file:
        images, labels = file["train_img"][:].reshape(202, -1), file["train_labels"][:]
    for end in (images[:, :4], images[:, -4:]):
        assert (end[:, :3] @ [1, 256, 65536]).tolist() == list(range(202))
        assert end[:, 3].tolist() == labels.argmax(axis=1).tolist() == [*range(101), *range(101)]
    assert len(np.unique(images[:, 1000:1100], axis=0)) == 202


def test_the_noise_is_as_hard_to_compress_as_a_photograph():
    """gzip does not make the file small, so a disk or file system that compresses gains little."""
    big_file = module("scaling.big_file")
    _, batch = next(big_file.image_batches(SMALLEST))
    assert len(zlib.compress(batch[:8].tobytes(), 4)) > 0.6 * batch[:8].nbytes


def test_a_file_is_used_again_only_when_it_is_whole_and_ours(tmp_path):
    """Another number of images, a file that is not complete, one of another program, or no HDF5 at all is not."""
    big_file = module("scaling.big_file")
    path = tmp_path / "x.h5"
    big_file.build(path, SMALLEST)
    assert big_file.is_usable(path, SMALLEST)
    assert not big_file.is_usable(path, 2 * SMALLEST)
    for name, value in (("complete", False), ("source", "somebody")):
        copy = Path(shutil.copyfile(path, tmp_path / f"{name}.h5"))
        with h5py.File(copy, "r+") as file:
            file.attrs[name] = value
        assert not big_file.is_usable(copy, SMALLEST)
    (tmp_path / "text.h5").write_text("no HDF5")
    assert not big_file.is_usable(tmp_path / "text.h5", SMALLEST)
    assert not big_file.is_usable(tmp_path / "none.h5", SMALLEST)


# -- the page cache ---------------------------------------------------------------------------------------------------


@pytest.fixture
def file_on_disk(tmp_path) -> Path:
    """8 MB and a bit on a real disk."""
    kind = subprocess.run(["stat", "-f", "-c", "%T", tmp_path], capture_output=True, text=True, check=True).stdout
    if kind.strip() in {"tmpfs", "ramfs"}:
        pytest.skip("the folder for tests lies in memory: nothing there leaves the page cache")
    path = tmp_path / "x.bin"
    path.write_bytes(os.urandom(8_000_001))
    return path


def test_cold_means_that_the_disk_reads_every_byte(file_on_disk):
    """After a cold preparation nothing is cached, the kernel counts a read of the whole file, and all is cached."""
    page_cache = module("scaling.page_cache")
    assert page_cache.prepare_cache(file_on_disk, "cold") == 0
    before = psutil.Process().io_counters().read_bytes
    assert page_cache.read_through(file_on_disk) > 0
    assert psutil.Process().io_counters().read_bytes - before >= 8_000_001
    assert page_cache.cached_share(file_on_disk) == 1


def test_warm_means_that_the_whole_file_is_cached(file_on_disk):
    """A warm preparation reads what is missing."""
    page_cache = module("scaling.page_cache")
    page_cache.drop_pages(file_on_disk)
    assert page_cache.prepare_cache(file_on_disk, "warm") == 1


def test_a_file_that_stays_in_memory_is_no_cold_file(monkeypatch, tmp_path):
    """Where pages do not go, the run ends with a sentence instead of a figure that is called cold."""
    page_cache = module("scaling.page_cache")
    (tmp_path / "x.bin").write_bytes(bytes(10_000))
    monkeypatch.setattr(page_cache.os, "posix_fadvise", lambda *arguments: None)
    with pytest.raises(page_cache.CannotRunError) as caught:
        page_cache.drop_pages(tmp_path / "x.bin")
    assert str(caught.value) == (
        "x.bin must be out of the page cache for a cold pass; 100.0% of it stays. Either another program maps it, or "
        "it lies on a disk in memory (tmpfs): give another --folder."
    )


# -- memory -----------------------------------------------------------------------------------------------------------


def test_the_peak_counts_children_and_shared_pages_once():
    """A parent with 60 MB shared with a child, and a child with 40 MB of its own, make 100 MB more than nothing."""
    memory = module("scaling.memory")
    program = (
        "import mmap, subprocess, sys, os\n"
        "shared = mmap.mmap(-1, 60_000_000); shared.write(b'1' * 60_000_000)\n"
        "if os.fork() == 0:\n"
        "    own = b'2' * {own}; shared[::4096]; print('ready', flush=True); input()\n"
        "else:\n"
        "    os.wait()\n"
    )

    def peak(own: int) -> memory.Peak:
        command = [sys.executable, "-c", program.format(own=own)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
            parent.stdout.readline()
            seen = memory.Peak()
            seen.look(parent.pid)
            parent.communicate("\n")
        return seen

    large, small = peak(own=40_000_000), peak(own=1)
    assert 38 < large.megabytes - small.megabytes < 42
    assert 60 < small.megabytes < 100
    assert len(large.processes) == 2
    assert [59 < sum(part["shared_mb"] for part in seen.processes) < 61 for seen in (large, small)] == [True, True]
    files = max(part["program_files_mb"] for part in small.processes)
    assert small.megabytes == pytest.approx(
        sum(part["heap_mb"] + part["shared_mb"] for part in small.processes) + files
    )


def test_a_process_that_has_ended_counts_nothing():
    """Asking for the memory of one that is gone is no error."""
    memory = module("scaling.memory")
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    peak = memory.Peak()
    peak.look(child.pid)
    assert peak == memory.Peak()


# -- figures ----------------------------------------------------------------------------------------------------------


def test_figures_are_rows_of_a_table():
    """What, value and target as text; the cold passes are held against the disk, a half warm one says so."""
    scale = module("scale")
    assert scale.figures(small_result()) == [
        ("building 27.1 GB: peak memory", "90 MB", "at most 600 MB"),
        ("building 27.1 GB: speed", "400 MB/s", ""),
        ("training on 27.1 GB: peak memory", "900 MB", "at most 1,500 MB"),
        ("training on 27.1 GB: rows in each pass", "every row once", "every row once"),
        ("training on 27.1 GB: first batch after", "0.5 s", "at most 2.0 s"),
        (
            "training on 27.1 GB, full shuffle, cold, 2 threads",
            "5,000 images/s, 67% of the disk's 2,000 MB/s",
            "",
        ),
        ("training on 27.1 GB, block shuffle, warm (70% cached), 2 threads", "5,000 images/s", ""),
    ]
    assert scale.missed(small_result()) == []


MISSED = [
    ("memory", small_result(peak=1501), ["training on 27.1 GB: peak memory: 1,501 MB, not at most 1,500 MB"]),
    ("rows", small_result(lost=1, doubled=2), [
        "training on 27.1 GB: rows in each pass: 2 lost, 4 doubled, not every row once"
    ]),
    ("labels", small_result(mislabelled=3), [
        "training on 27.1 GB: rows in each pass: 6 mislabelled, not every row once"
    ]),
    ("build", {**small_result(), "build": {"peak_mb": 601.0, "mb_per_second": 1.0}}, [
        "building 27.1 GB: peak memory: 601 MB, not at most 600 MB"
    ]),
]  # fmt: skip


@pytest.mark.parametrize(("result", "phrases"), [case[1:] for case in MISSED], ids=[case[0] for case in MISSED])
def test_a_missed_target_is_named(result, phrases):
    """Each target that was not reached is a phrase with the figure and what it should have been."""
    scale = module("scale")
    assert scale.missed(result) == phrases


def test_peaks_of_two_sizes_are_compared_pass_by_pass():
    """5 % apart is good, a bit more is not."""
    scale = module("scale")
    small = {**small_result(peak=600), "data": {"gigabytes": 1.0}}
    good, bad = small_result(peak=629), small_result(peak=569)
    good["difference"], bad["difference"] = scale.difference(good, small), scale.difference(bad, small)
    assert scale.missed(good) == []
    assert scale.missed(bad) == ["training on 27.1 GB against 1 GB: difference of peaks: 5.2%, not at most 5.0%"]
    assert bad["difference"]["passes"] == pytest.approx({"full-cold": -31 / 600, "block-warm": -31 / 600})


# -- the command ------------------------------------------------------------------------------------------------------


def spoil(path: Path) -> None:
    """Row 6 becomes row 5, with the label of row 6; the end of row 8 changes; row 9 gets a number that no row has."""
    with h5py.File(path, "r+") as file:
        images = file["train_img"]
        images[6] = images[5]
        images[8, -1, -1, 1] = 99
        for place in (np.s_[9, 0, 0], np.s_[9, -1, -2, 2], np.s_[9, -1, -1, :2]):  # in both codes
            images[place] = 255


@pytest.mark.nightly
def test_a_small_run_builds_trains_and_reports(tmp_path):
    """One pass over 27 MB: exit status 0, figures in the JSON, the file kept; then it is used again, and compared."""
    arguments = ("--gigabytes", 0.03, "--folder", tmp_path, "--only", "full-warm", "--keep", "--json")
    first = run(*arguments, tmp_path / "first.json")
    assert first.returncode == 0, first.stderr
    result = json.loads((tmp_path / "first.json").read_text())
    assert result["data"] == {
        "gigabytes": pytest.approx(0.0272, abs=0.0005),
        "images": SMALLEST,
        "image_shape": [299, 299, 3],
    }
    one = result["passes"]["full-warm"]
    assert one["faults"] == {"lost": 0, "doubled": 0, "unknown": 0, "torn": 0, "mislabelled": 0}
    assert one["cached_before"] == 1
    assert 500 < one["peak_mb"] < 1500
    assert 0 < result["build"]["peak_mb"] < 300  # it lasts a third of a second: few looks
    assert result["missed"] == []
    assert str(tmp_path) not in (tmp_path / "first.json").read_text()

    spoil(tmp_path / f"scale-{SMALLEST}.h5")
    second = run(*arguments[:-2], "--against", tmp_path / "first.json", "--json", tmp_path / "second.json")
    result = json.loads((tmp_path / "second.json").read_text())
    assert result["build"] is None
    assert result["passes"]["full-warm"]["faults"] == {
        "lost": 2, "doubled": 1, "unknown": 1, "torn": 1, "mislabelled": 1
    }  # fmt: skip
    assert result["difference"]["gigabytes"] == pytest.approx(0.0272, abs=0.0005)
    assert second.returncode == 1
    assert (
        "missed: training on 0.0272 GB: rows in each pass: 2 lost, 1 doubled, 1 unknown, 1 torn, 1 mislabelled, "
        "not every row once\n" in second.stdout
    )
    assert not (tmp_path / f"scale-{SMALLEST}.h5").exists()


REFUSED = [
    ("size", ("--gigabytes", "nan"), r"^--gigabytes must be above 0; got nan\.\n$"),
    ("json", ("--json", "{folder}/none/x.json"), r"^the folder of --json must exist; got {folder}/none/x\.json\.\n$"),
    (
        "disk",
        ("--gigabytes", 1e9),
        r"^the file needs 1,020,000,000\.0 GB and {folder} has [\d,.]+ GB free\. Free some, give another --folder, "
        r"or ask for fewer --gigabytes\.\n$",
    ),
    ("folder", ("--folder", "{folder}/none"), r"^--folder must be a folder that exists; got {folder}/none\.\n$"),
    (
        "against",
        ("--gigabytes", 0.03, "--against", "{folder}/none.json"),
        r"^--against must be a file that --json wrote, with one of the passes of this run; got {folder}/none\.json\."
        r"\n$",
    ),
]


@pytest.mark.parametrize(("arguments", "message"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED])
def test_what_cannot_work_is_refused_before_anything_is_written(tmp_path, capsys, arguments, message):
    """Exit status 2 and one sentence; the folder stays empty."""
    scale = module("scale")
    folder = str(tmp_path)
    status = scale.main(["--folder", folder, *(str(argument).format(folder=folder) for argument in arguments)])
    assert status == 2
    assert re.search(message.format(folder=re.escape(folder)), capsys.readouterr().err)
    assert list(tmp_path.iterdir()) == []


def test_a_stopped_run_leaves_neither_files_nor_processes(tmp_path):
    """Ctrl-C while the file is built: exit status 130 within seconds, the folder empty, the builder gone."""
    command = [sys.executable, str(SCRIPT), "--gigabytes", "2", "--folder", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + 60
        while not list(tmp_path.glob("*.part")) and time.monotonic() < deadline:
            time.sleep(0.02)
        builders = psutil.Process(process.pid).children()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert (errors, process.returncode) == ("stopped.\n", 130)
    assert list(tmp_path.iterdir()) == []
    assert len(builders) == 1
    assert not builders[0].is_running()


def test_a_part_that_fails_shows_its_error(tmp_path, capfd):
    """The error of the process that builds or trains is printed, and the status named."""
    parts = module("scaling.parts")
    with pytest.raises(parts.PartFailedError) as caught:
        parts.run_part("big_file", tmp_path / "none" / "x.h5", SMALLEST)
    assert str(caught.value) == "big_file 101 ended with status 1; see above."
    assert f"the folder {tmp_path}/none does not exist. Create it first.\n" in capfd.readouterr().err

"""The repository itself: the README's two commands, the CI script that runs the second, pins, style, the leak watch."""

import ast
import os
import re
import subprocess
import sys
import time
from multiprocessing import shared_memory
from pathlib import Path

import h5py
import numpy as np
import pytest
from coded import class_of_row, classes_of, coded_images, one_hot, rows_of
from leaks import LeakWatch, open_handles

ROOT = Path(__file__).parents[2]
INSTALL = "python3 -m venv .venv && .venv/bin/pip install -q -r requirements.txt && "


def marked_command(name: str) -> list[str]:
    """Lines of the README's code blocks after the marker of this name."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(rf"<!-- command:{name} -->\s*```bash\n(.*?)\n```", readme, re.DOTALL)
    return [line for block in blocks for line in block.splitlines()]


def test_readme_has_exactly_the_two_commands():
    """One command opens the course at notebook 00, one runs all tests; both start from nothing but Python."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert re.findall(r"<!-- command:(\w+) -->", readme) == ["course", "test"]
    assert marked_command("course") == [f"{INSTALL}.venv/bin/jupyter lab notebooks/00_start_here.ipynb"]
    assert marked_command("test") == [f"{INSTALL}.venv/bin/pytest"]


def test_ci_runs_the_readme_command_in_a_new_environment(tmp_path):
    """`.ci/run` removes .venv and runs the README's test command, as it stands there."""
    for folder in (".ci", ".venv", "bin"):
        (tmp_path / folder).mkdir()
    script = tmp_path / ".ci" / "run"
    script.write_bytes((ROOT / ".ci" / "run").read_bytes())
    (tmp_path / "README.md").write_text(
        "# Kit\n\n<!-- command:course -->\n```bash\necho course\n```\n\n"
        "<!-- command:test -->\n```bash\ntest ! -e .venv && echo tests run\n```\n\n```bash\necho other\n```\n"
    )
    chromium = tmp_path / "bin" / "chromium"  # found, so that nothing is installed here
    chromium.write_text("")
    chromium.chmod(0o755)
    environment = os.environ | {"PATH": f"{chromium.parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(["bash", script], capture_output=True, text=True, env=environment, check=False)
    assert (done.returncode, done.stdout) == (0, "+ test ! -e .venv && echo tests run\ntests run\n")


def test_ci_fails_when_the_tests_fail(tmp_path):
    """The exit code of the test command is that of `.ci/run`."""
    (tmp_path / ".ci").mkdir()
    script = tmp_path / ".ci" / "run"
    script.write_text((ROOT / ".ci" / "run").read_text().replace("command -v chromium", "true"))
    (tmp_path / "README.md").write_text("<!-- command:test -->\n```bash\nexit 3\n```\n")
    done = subprocess.run(["bash", script], capture_output=True, text=True, check=False)
    assert done.returncode == 3


def test_every_requirement_is_pinned_with_a_reason():
    """requirements.txt holds exact pins, each with a comment that says why it is there."""
    lines = (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if line and not line.startswith(("#", "-e ."))]
    assert [line for line in pins if not re.fullmatch(r"[\w-]+==[\w.]+\s+# \S.*", line)] == []


@pytest.mark.parametrize("command", [["check"], ["format", "--check"]], ids=["lint", "format"])
def test_code_is_clean(command):
    """ruff finds nothing, in the package and in the sources of the notebooks alike."""
    done = subprocess.run(
        [sys.executable, "-m", "ruff", *command], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


def test_no_path_tricks():
    """Modules are found because the kit is installed: nothing changes sys.path."""
    sources = [
        path for folder in ("helpers", "data_scripts", "tests", "notebooks") for path in (ROOT / folder).rglob("*.py")
    ]
    assert [str(path) for path in sources if _changes_sys_path(path.read_text(encoding="utf-8"))] == []


@pytest.mark.parametrize("code", ["import sys; sys.path.insert(0, 'x')", "sys.path += ['x']", "sys.path[:0] = ['x']"])
def test_path_tricks_are_seen(code):
    """Each way to change sys.path is noticed, also in the middle of a line."""
    assert _changes_sys_path(code)


def _changes_sys_path(code: str) -> bool:
    """Whether code calls a method of sys.path or assigns to it; reading it is fine, and texts do not count."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            changed = [node.func.value]
        elif isinstance(node, (ast.Assign, ast.AugAssign)):
            changed = node.targets if isinstance(node, ast.Assign) else [node.target]
        else:
            continue
        if any(ast.unparse(each).split("[")[0] == "sys.path" for each in changed):
            return True
    return False


def test_every_test_says_what_it_proves():
    """Each test has a docstring of one sentence."""
    silent = []
    for path in (ROOT / "tests").rglob("test_*.py"):
        text = path.read_text(encoding="utf-8")
        for name, rest in re.findall(r"^    def (test_\w+)|^def (test_\w+)", text, re.MULTILINE):
            test = name or rest
            if not re.search(rf'def {test}\([^)]*\)(?: -> None)?:\n\s+"""\S', text):
                silent.append(f"{path.name}: {test}")
    assert silent == []


def test_coded_images_give_back_row_and_class(coded_file):
    """The code in the pixels survives what augmentation does: it is the same over the whole image."""
    with h5py.File(coded_file) as file:
        images, labels = file["train_img"][:], file["train_labels"][:]
    rows = np.arange(103)
    assert np.array_equal(rows_of(images), rows)
    assert np.array_equal(rows_of(images[:, ::-1, 4:12].astype(np.float32)), rows)
    assert np.array_equal(classes_of(images), class_of_row(rows))
    assert np.array_equal(labels, one_hot(class_of_row(rows)))


def test_coded_images_tell_large_rows_and_splits_apart():
    """Rows above 255 are read back, and the same row differs from split to split."""
    rows = np.array([0, 255, 256, 2047])
    assert np.array_equal(rows_of(coded_images(rows)), rows)
    assert not np.array_equal(coded_images(rows, "train"), coded_images(rows, "valid"))


def test_leak_watch_sees_an_open_handle(coded_file):
    """A file that a test forgets to close is reported."""
    watch = LeakWatch()
    file = h5py.File(coded_file)
    assert watch.left_behind(0) == ["1 open HDF5 handles"]
    file.close()
    assert watch.left_behind(0) == []


def test_leak_watch_sees_a_child_process():
    """A process that a test forgets to end is reported with its number and command."""
    watch = LeakWatch()
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        assert any(text.startswith(f"child processes {child.pid} (") for text in watch.left_behind(0))
    finally:
        child.kill()
        child.wait()
    assert watch.left_behind(0) == []


def test_leak_watch_sees_a_shared_memory_segment():
    """A segment that a test forgets to unlink is reported by name."""
    watch = LeakWatch()
    segment = shared_memory.SharedMemory(create=True, size=64)
    try:
        assert watch.left_behind(0) == [f"shared-memory segments {segment.name}"]
    finally:
        segment.close()
        segment.unlink()
    assert watch.left_behind(0) == []


def test_leak_watch_waits_a_moment():
    """What goes away by itself within the grace time is no leak."""
    watch = LeakWatch()
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(0.3)"])
    started = time.monotonic()
    assert watch.left_behind(20) == []
    assert time.monotonic() - started < 20
    child.wait()


def test_open_handles_counts_files_datasets_and_groups(coded_file):
    """Every open HDF5 object counts, not only files."""
    before = open_handles()
    with h5py.File(coded_file) as file:
        dataset, group = file["train_img"], file["/"]
        assert open_handles() - before == 3, (dataset, group)
    assert open_handles() == before

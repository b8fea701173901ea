"""What README shows is run as it stands there."""

import re
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

from data_scripts.make_toy_food import make_toy_food
from helpers.course import figures
from helpers.images import encode_jpeg

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(
    r"<!-- example:begin -->\n```python\n(.*?)```\n(?:\n```text\n(.*?)```\n)?<!-- example:end -->", README, re.DOTALL
)


def make_foreign_file(path):
    """Two hundred and forty JPEGs of mixed sizes with class numbers, under somebody else's names."""
    rng = np.random.default_rng(0)
    with h5py.File(path, "w") as file:
        data = file.create_dataset("data/pictures", (240,), dtype=h5py.vlen_dtype(np.uint8))
        for row in range(240):
            image = rng.integers(0, 256, (70 + row % 5, 80, 3), dtype=np.uint8)
            data[row] = np.frombuffer(encode_jpeg(image), np.uint8)
        file["data/kind"] = rng.integers(0, 3, 240)


@pytest.mark.timeout(180)
def test_examples_run_and_print_what_is_shown(tmp_path):
    """The examples run one after the other in a script without a main guard, and print what README prints."""
    assert len(EXAMPLES) == 3
    make_toy_food(tmp_path / "food.h5", progress=False)
    make_foreign_file(tmp_path / "theirs.h5")
    code = "\n".join(code for code, _ in EXAMPLES)
    code = code.replace("epochs=3", "epochs=3, verbose=0").replace("epochs=20", "epochs=1, verbose=0")  # for time
    (tmp_path / "example.py").write_text(code)
    result = subprocess.run([sys.executable, "example.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert result.stdout == "".join(printed for _, printed in EXAMPLES)


@pytest.mark.parametrize("number", [0, 1])
def test_examples_of_a_whole_training_are_ten_lines(number):
    """One's own file, and that of somebody else: at most ten lines of code, imports aside."""
    lines = [line for line in EXAMPLES[number][0].splitlines() if line.strip()]
    assert len([line for line in lines if not line.startswith(("import ", "from "))]) <= 10


@pytest.mark.parametrize("target", sorted(set(re.findall(r"\]\(([^)#]+)\)", README))))
def test_links_lead_somewhere(target):
    """Every file that README links to is there."""
    assert (Path(__file__).parents[2] / target).exists()


def test_picture_is_the_figure_of_today():
    """README's picture is what the code draws: pictures.py was run after the last change."""
    stored = (Path(__file__).parents[2] / "notebooks" / "images" / "batch_life.png").read_bytes()
    assert stored == figures.png_bytes(figures.batch_life())

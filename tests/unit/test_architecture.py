"""Who may import whom: files and workers stay light, arrows between modules point down."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import helpers

PACKAGE = Path(helpers.__file__).parent

# Lowest first. A module imports from lines above its own only.
LAYERS = [
    ["arguments", "images", "machine", "outside", "words", "first_look"],
    ["check", "device", "judging", "layout"],
    ["places", "slots", "part_file", "contact_sheet", "label_scan", "pairs", "tree", "folder_checks"],
    ["direct", "report_html"],
    ["heap"],
    ["reader", "order", "augment", "writer", "known_errors", "worker_process", "pixel_scan"],
    ["epoch_cost", "error_search"],
    ["report"],
    ["label_checks", "pixel_checks"],
    ["split_checks"],
    ["batches", "inspector", "models", "preflight", "workers", "hosts"],
    ["sequence", "file_checks"],
    ["feeds", "doctor", "backup"],
    ["training"],
]
LIGHT = ["layout", "images", "direct", "heap", "reader", "order", "augment", "writer", "part_file", "slots"]
LIGHT += ["worker_process", "batches", "workers", "inspector", "doctor", "file_checks"]
HEAVY = ("keras", "tensorflow", "jax", "torch", "matplotlib", "PIL", "scipy", "tf_keras")


def imported_helpers(path):
    """Modules of helpers that a source file imports, at its top or inside functions."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "helpers":
            parts = node.module.split(".")[1:]
            found.update([parts[0]] if parts else [alias.name for alias in node.names])
        elif isinstance(node, ast.Import):
            found.update(alias.name.split(".")[1] for alias in node.names if alias.name.startswith("helpers."))
    return found


def test_every_module_of_the_core_has_a_place():
    """A new module is put into the table of layers, or this fails."""
    modules = {path.stem for path in PACKAGE.glob("*.py")} - {"__init__"}
    assert modules == {name for layer in LAYERS for name in layer}


@pytest.mark.parametrize("name", [name for layer in LAYERS for name in layer])
def test_arrows_point_down(name):
    """A module of the core imports only modules below it, and never the course."""
    level = next(number for number, layer in enumerate(LAYERS) if name in layer)
    below = {other for layer in LAYERS[:level] for other in layer}
    assert imported_helpers(PACKAGE / f"{name}.py") <= below


def test_what_workers_import_is_light():
    """Importing all that a worker process needs loads no Keras, no plotting and no picture library."""
    modules = ", ".join(f"helpers.{name}" for name in LIGHT)
    code = f"import sys, {modules}; print(sorted(set({HEAVY!r}) & set(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "[]\n"


def test_helpers_itself_imports_nothing_heavy():
    """`import helpers` alone loads neither Keras nor h5py; its names arrive when they are used."""
    code = "import sys, helpers; print('h5py' in sys.modules, 'keras' in sys.modules, 'Augment' in dir(helpers))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "False False True\n"


def test_unknown_names_are_refused_with_the_list():
    """A misspelt name says what there is."""
    with pytest.raises(AttributeError, match="module 'helpers' has no attribute 'Sequence'. It has: HDF5Sequence, "):
        _ = helpers.Sequence


@pytest.mark.parametrize("name", helpers.__all__)
def test_every_public_name_exists(name):
    """All names in the table of contents can be had, and have a docstring."""
    assert getattr(helpers, name).__doc__

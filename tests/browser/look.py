"""Run a notebook in a real JupyterLab and photograph it from top to bottom.

python tests/browser/look.py NOTEBOOK OUT_DIR [--width 1280] [--height 900]
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from lab import browser_page, copied, run_notebook, running_lab


def main() -> int:
    """Exit code: 0 fine, 1 something a learner should not see (it is printed)."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("notebook", type=Path)
    parser.add_argument("out", type=Path, help="folder for the pictures 00.png, 01.png ...")
    parser.add_argument("--width", type=int, default=1280)
    parser.add_argument("--height", type=int, default=900)
    options = parser.parse_args()
    notebook = options.notebook.resolve()
    with (
        copied(notebook) as (folder, name),
        running_lab(folder) as address,
        browser_page(options.width, options.height) as page,
    ):
        outcome = run_notebook(page, address, name, screenshots=options.out)
    print(f"{notebook.name}: {outcome.seconds:.0f} s, {len(outcome.screenshots)} pictures in {options.out}")  # noqa: T201
    for fault in outcome.faults:
        print(fault)  # noqa: T201 - a command line program
    return 1 if outcome.faults else 0


if __name__ == "__main__":
    sys.exit(main())

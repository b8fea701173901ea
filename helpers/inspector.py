"""Look into an HDF5 file of images before training on it: what is in it, what is wrong with it, what to do.

``python -m helpers.inspector FILE`` prints the report; exit code 0: can be trained on (warnings allowed), 1: has
faults, 2: cannot be read. Opens the file read-only; memory does not depend on its size. Labels are read whole; of the
images a sample is looked at, or all of them with ``verify=True`` (``--verify``).
"""

from __future__ import annotations

import argparse
import errno
import os
import sys
from pathlib import Path

import h5py
from tqdm import tqdm

from helpers import layout, outside, split_checks
from helpers.pairs import guess_pairs, split_name
from helpers.pixel_scan import SAMPLED_IMAGES
from helpers.report import Report
from helpers.tree import attribute_words, read_tree
from helpers.words import count_text, listed

_CACHE_BYTES = 16 * 2**20  # of chunks, a dataset: a block of images that is read at once
_OPEN_CODES = {
    errno.ENOENT: "missing",
    errno.ENAMETOOLONG: "missing",
    errno.EISDIR: "folder",
    errno.ESPIPE: "not-a-file",
}
_NEXT_STEP = {
    "missing": "List the folder: the name may be spelled differently.",
    "folder": "python -m data_scripts.build_hdf5 FOLDER --out FILE.h5",
    "not-a-file": "Name the file itself.",
    "locked": "List who has it open: lsof FILE (Linux, macOS).",
    "never-closed": "If nothing writes to it, h5clear -s FILE removes the mark; its last rows may be missing.",
    "empty": "Nothing was written to it: build or download it again.",
    "truncated": "Compare its size and checksum with those of the original.",
    "not-hdf5": "Look at its first bytes: head -c 100 FILE.",
    "damaged": "Compare its checksum with that of the original.",
    "permission": "ls -l FILE shows whose it is.",
}

_GO_ON = "This is what a stopped build left: run the same command again with --resume."


def inspect_file(
    path: str | os.PathLike,
    *,
    images: str | None = None,
    labels: str | None = None,
    verify: bool = False,
    progress: bool = False,
) -> Report:
    """Inspect ``path``; what is wrong with the file is in the report, not raised.

    Parameters
    ----------
    images, labels : dataset names of a foreign file; without them pairs are guessed by name and shape.
    verify : look at every image instead of a sample, and compare it with its CRC-32 where the file has these.
    progress : show on stderr how far ``verify`` is.

    Raises
    ------
    LayoutError
        Only one of the two names is given.
    """
    if (images is None) != (labels is None):
        raise layout.LayoutError(
            f"images and labels name a pair of datasets: give both or neither; got {images!r} and {labels!r}."
        )
    report = Report(layout.file_path(path))
    try:
        with layout.open_file(path, rdcc_nbytes=_CACHE_BYTES) as file:
            report.size_bytes = report.path.stat().st_size
            _inspect_open(report, file, (images, labels) if images else None, verify, progress)
    except layout.HDF5FileError as error:
        code = _open_code(report.path, error)
        is_part = report.path.suffix == ".part" and code in {"never-closed", "not-hdf5", "damaged", "truncated"}
        report.add_fault(code, error.strerror, _GO_ON if is_part else _NEXT_STEP[code])
    except Exception as error:  # h5py meets damaged bytes with errors of every kind
        _report_damage(report, error)
    return report


def _open_code(path: Path, error: layout.HDF5FileError) -> str:
    said = str(error.__cause__ or "")
    if error.errno in _OPEN_CODES:
        return _OPEN_CODES[error.errno]
    for clue, code in (
        ("h5clear", "never-closed"),
        ("unable to lock file", "locked"),
        ("already open", "locked"),
        ("truncated file", "truncated"),
        ("ermission denied", "permission"),
    ):
        if clue in said:
            return code
    if "file signature not found" in said:
        with path.open("rb") as file:
            head = file.read(8)
        return "empty" if not head else "not-hdf5" if any(head) else "never-closed"
    return "damaged"


def _report_damage(report: Report, error: Exception) -> None:
    message = f"{report.path} opens, but what is in it cannot be read. HDF5 said: {error}"
    report.add_fault("damaged", message, _NEXT_STEP["damaged"])


def _inspect_open(report: Report, file: h5py.File, named: tuple[str, str] | None, verify: bool, progress: bool) -> None:
    tree = read_tree(file)
    report.entries, report.entries_complete = tree.entries, tree.complete
    report.attributes = attribute_words(file)
    report.readable = True
    if damaged := tree.names("damaged"):
        message = f"{count_text(len(damaged), 'object')} of {report.path} cannot be read: {listed(damaged)}."
        report.add_fault("damaged", message, _NEXT_STEP["damaged"])
    for sentence in tree.broken_links:
        report.add_fault("broken-link", f"{sentence}.", "Bring the other file back, or build this one again.")
    info = layout.file_info(file)
    report.class_names = info.class_names
    _check_end_mark(report, info)
    pairs = {split_name(named[0]): named} if named else guess_pairs(file)
    if not pairs:
        _report_no_pairs(report)
    elif info.kit_version is not None and not named:
        _check_names(report, file)
    _inspect_splits(report, file, pairs, verify, progress)
    _check_whole(report, file, info)


def _check_end_mark(report: Report, info: layout.FileInfo) -> None:
    if info.complete is False or (info.complete is None and info.kit_version is not None):
        report.add_fault(
            "incomplete",
            f"the process that wrote {report.path} stopped before its end; its last rows may be empty.",
            _GO_ON if report.path.suffix == ".part" else "Build it again; builders of this kit leave no such file.",
        )


def _check_names(report: Report, file: h5py.File) -> None:
    """HDF5Writer makes all three splits, empty ones too: what is not there was lost."""
    names = [name(split) for split in layout.SPLITS for name in (layout.image_dataset, layout.label_dataset)]
    if lost := [name for name in names if name not in file]:
        report.add_fault(
            "no-dataset",
            f"{report.path} was written by this kit, and has no dataset {', '.join(lost)}.",
            "The file is damaged, or was changed. Copy or build it again.",
        )


def _report_no_pairs(report: Report) -> None:
    report.add_fault(
        "no-images",
        f"no pair of images and labels was recognised among {listed(report.datasets) or 'no datasets'}.",
        "Name the datasets: --images NAME --labels NAME, or images= and labels=.",
    )


def _inspect_splits(report: Report, file: h5py.File, pairs: dict, verify: bool, progress: bool) -> None:
    total = sum(split_checks.rows_to_verify(file, images) for images, _ in pairs.values()) if progress and verify else 0
    with tqdm(total=total, unit=" images", disable=not total, desc="verify") as bar:
        for split, (images, labels) in pairs.items():
            try:
                split_checks.check_split(report, file, split, (images, labels), bar.update if verify else None)
            except Exception as error:  # of damaged bytes that no check has a name for
                _report_damage(report, error)


def _check_whole(report: Report, file: h5py.File, info: layout.FileInfo) -> None:
    """What is said about all splits together."""
    rows = {name: split.n for name, split in report.splits.items()}
    if rows and report.ok and not rows.get("train", max(rows.values())):
        report.add_fault(
            "no-rows",
            f"no image to train on is in {report.path}.",
            "Build it again with a training split, or name other datasets: --images NAME --labels NAME.",
        )
    if report.splits and info.class_names is None and info.kit_version is not None and _has_class_numbers(report, file):
        report.add_fault(
            "no-class-names",
            f"{report.path} was written by this kit, its labels are class numbers, and it does not say how many "
            "classes there are.",
            "The file is damaged, or was changed. Copy or build it again.",
        )
    elif report.splits and info.class_names is None:
        report.add_warning(
            "no-class-names",
            f"{report.path} does not say what its classes are called.",
            "Pass classes= to HDF5Sequence, or store them: file.attrs['class_names'] = [...].",
        )


def _has_class_numbers(report: Report, file: h5py.File) -> bool:
    labels = (outside.find(file, split.labels)[0] for split in report.splits.values())
    return any(isinstance(data, h5py.Dataset) and data.ndim == 1 for data in labels)


def main(argv: list[str] | None = None) -> int:
    """The command line. Returns the exit code."""
    options = _options(argv)
    report = inspect_file(
        options.file,
        images=options.images,
        labels=options.labels,
        verify=options.verify,
        progress=sys.stderr.isatty(),
    )
    print(report)  # noqa: T201 - a command line program
    if options.html:
        options.html.write_text(report.html_page(), encoding="utf-8")
    if options.sheet and any(report.sheet.values()):
        options.sheet.write_bytes(report.sheet_png())
    elif options.sheet:
        print(f"{options.sheet} was not written: there is no image to show.", file=sys.stderr)  # noqa: T201
    return report.exit_code


def _options(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m helpers.inspector",
        description=__doc__.split("\n\n")[0],
        epilog="Exit code 0: the file can be trained on (warnings allowed), 1: it has faults, 2: it cannot be read.",
    )
    parser.add_argument("file", metavar="FILE.h5", help="an HDF5 file of this kit, or of any other origin")
    parser.add_argument("--images", metavar="NAME", help="name of the image dataset of a foreign file")
    parser.add_argument("--labels", metavar="NAME", help="name of its label dataset")
    parser.add_argument(
        "--verify",
        action="store_true",
        help=f"look at every image, not at a sample of {SAMPLED_IMAGES} a split, and compare it with its CRC-32",
    )
    parser.add_argument("--sheet", metavar="FILE.png", type=Path, help="write some images of each split as one picture")
    parser.add_argument("--html", metavar="FILE.html", type=Path, help="write the report as a page, pictures included")
    options = parser.parse_args(argv)
    for path in filter(None, (options.sheet, options.html)):
        if not path.absolute().parent.is_dir():  # said before the file is read, which may take long
            parser.error(f"{path} cannot be written: the folder {path.absolute().parent} does not exist.")
    if options.sheet and options.sheet.suffix.lower() != ".png":
        parser.error(f"--sheet writes a PNG picture: give a name that ends with .png; got {options.sheet}.")
    if (options.images is None) != (options.labels is None):
        parser.error("--images and --labels name a pair of datasets: give both or neither.")
    return options


if __name__ == "__main__":
    sys.exit(main())

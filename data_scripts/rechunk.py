"""Repair an HDF5 file of images for training: chunks of one whole image, compression by choice, classes mixed.

::

    python -m data_scripts.rechunk slow.h5 fast.h5

Works on files of the kit and on others. The rules, each with a test:

- **Pairs** of images and labels are found as the inspector does, or named: ``--images NAME --labels NAME``, once a
  pair. Images get one image a chunk, labels about 1,024 rows. JPEG bytes stay as they are. Pairs that share labels stay
  together.
- **Order.** ``auto`` mixes a pair only if its labels are sorted by class (the inspector's rule); ``mix`` always does,
  ``keep`` never. Mixing is seeded, and each class is spread evenly over the rows. On the disk, the images of a mixed
  file lie in the order of the input.
- **Companions.** When a pair is mixed, every other dataset of exactly as many rows moves with it (boxes, file names,
  ids, masks); of several pairs with that many rows, with the one whose name is nearest. The report names them; ``--keep
  NAME`` leaves one alone. What looks like a pair of its own (``depth`` and ``depth_scale``) moves with it too, unless
  the names say that they are two splits. Numbers of rows that are stored elsewhere (lists of rows) are not changed.
- **Everything else** is copied unchanged: groups, other datasets, links inside the file, dimension scales, attributes
  with their types. References are refused. What other files hold (external links, virtual datasets, external storage)
  is brought in, and the report says so; a missing source is an error.
- **Sums.** A CRC-32 of each image is taken while it is read, compared with the stored one where the input has them, and
  stored. Every row is read from the new file again and compared before the file gets its name.
- **Kills.** The result is written to ``OUT.part``. After a kill, a full disk, Ctrl-C or SIGTERM, ``--resume`` goes on
  with it if input and options are the same, and refuses it otherwise.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import h5py
from tqdm import tqdm

from data_scripts import rechunk_plan as planning
from data_scripts.rechunk_copy import CopyError
from data_scripts.rechunk_move import Mover, describe
from data_scripts.rechunk_plan import COMPRESSIONS, ORDERS, Options, Plan
from data_scripts.rechunk_rows import DamagedRowError
from data_scripts.rechunk_sets import RechunkError, moved_names
from data_scripts.stops import sigterm_interrupts
from helpers import layout
from helpers.part_file import PartFile


@dataclass
class ImagesReport:
    """What became of one dataset of images."""

    images: str
    labels: str
    rows: int
    before: str  # shape, type, chunks, compression
    after: str
    mixed: bool
    companions: tuple[str, ...]
    scale: str = ""  # how numbers became uint8


@dataclass
class RechunkReport:
    """What was done; print it."""

    source: Path
    path: Path
    seed: int
    images: list[ImagesReport] = field(default_factory=list)
    copied: int = 0  # other datasets
    verified: dict[str, int] = field(default_factory=dict)  # dataset -> rows read again and found equal
    notes: list[str] = field(default_factory=list)
    size_before: int = 0
    size_bytes: int = 0
    seconds: float = 0.0

    def __str__(self) -> str:
        before, after = (f"{size / 1e6:,.1f} MB" for size in (self.size_before, self.size_bytes))
        lines = [f"{self.path}: {after}, made from {self.source} ({before})"]
        for each in self.images:
            order = f"mixed (seed {self.seed})" if each.mixed else "as it was"
            lines += [
                f"  {each.images}, {each.labels}: {each.rows} rows, order {order}",
                f"    before: {each.before}",
                f"    after:  {each.after}",
            ]
            lines += [f"    to uint8: {each.scale}"] if each.scale else []
            lines += [f"    moved with them: {', '.join(each.companions)}"] if each.companions else []
        lines += [f"  note: {note}" for note in self.notes]
        lines.append(f"  other datasets copied unchanged: {self.copied}")
        lines.append(
            "  read again and equal, row by row: " + ", ".join(f"{name} {rows}" for name, rows in self.verified.items())
        )
        return "\n".join(lines)


def rechunk(
    source,
    out,
    *,
    images: str | Sequence[str] | None = None,
    labels: str | Sequence[str] | None = None,
    keep: str | Sequence[str] | None = None,
    order: str = "auto",
    compression: str | None = None,
    seed: int = 0,
    to_uint8: bool = False,
    resume: bool = False,
    progress: bool = True,
) -> RechunkReport:
    """Write ``source`` anew as ``out``, repaired; the rules are at the top of this module.

    Memory stays below 600 MB, except where one compressed chunk that cuts the images is larger than 128 MB unpacked.

    Parameters
    ----------
    source : an HDF5 file.
    out : the file to make; an older one is replaced only when the new one is whole.
    images, labels : names of a pair of datasets, or two lists of them; None: found by name and shape.
    keep : names of datasets that stay as they are although they have a row for each image.
    order : "auto", "mix" or "keep".
    compression : of images: None, or "gzip" (level 4).
    seed : of the mixing.
    to_uint8 : store other numbers as uint8 if all lie in 0 to 1 (times 255) or in 0 to 255.
    resume : go on with an unfinished run of the same input and options.
    progress : say on stderr how much disk is needed, and draw a bar.

    Raises
    ------
    RechunkError, LayoutError, CopyError
        File or options are not usable. Nothing was written.
    DamagedRowError
        A row cannot be read, or is not what its CRC-32 says.
    HDF5FileError
        ``source`` does not open, or ``out`` cannot be made.
    OSError
        Writing failed; a full disk says how much is needed. What was written can be gone on with.
    """
    begin = time.perf_counter()
    options = Options(images, labels, keep, order, compression, seed, to_uint8)
    with layout.open_file(source) as file:
        source, out = planning.checked_paths(source, out)
        plan = planning.make_plan(file, source, out, options)
        report = RechunkReport(source, out, options.seed, notes=list(plan.notes))
        report.size_before = source.stat().st_size
        _write(file, plan, options, report, resume, progress)
    report.size_bytes, report.seconds = out.stat().st_size, time.perf_counter() - begin
    return report


def _write(file: h5py.File, plan: Plan, options: Options, report: RechunkReport, resume: bool, progress: bool) -> None:
    folder = report.path.resolve().parent
    with contextlib.ExitStack() as stack:
        part = _open_part(stack, plan, report.path, resume)
        if part.state is None:
            sentence = planning.space_sentence(plan, folder)
            if progress:
                print(f"rechunk: {sentence}", file=sys.stderr)
        pool = stack.enter_context(ThreadPoolExecutor())
        bar = stack.enter_context(tqdm(total=2 * plan.bytes_to_read, unit="B", unit_scale=True, disable=not progress))
        mover = Mover(file, part, plan, options, folder, pool, bar)
        try:
            mover.run()
            _fill_report(report, file, part, plan, mover)
            part.finish()
        except ValueError:  # rows or options: going on would end at the same place
            part.discard()
            raise
        except (OSError, RuntimeError) as error:
            raise planning.explained(error, plan, folder) from error


def _open_part(stack: contextlib.ExitStack, plan: Plan, path: Path, resume: bool) -> PartFile:
    part = stack.enter_context(PartFile(path, resume=resume))
    if part.state is not None and part.state.get("plan") != plan.digest:
        raise RechunkError(
            f"{part.part} was begun with another input or other options, so it cannot be gone on with. Restore them, "
            "or begin anew: leave out --resume."
        )
    return part


def _fill_report(report: RechunkReport, file: h5py.File, part: PartFile, plan: Plan, mover: Mover) -> None:
    moved = 0
    for rows in plan.sets:
        moved += len(moved_names(rows)) + sum(layout.crc_dataset(name) in file for name in rows.images)
        for name in rows.images:
            before, after = describe(file[name]), part.run(lambda name=name: describe(part.file[name]))
            mixed = rows.order is not None
            companions = tuple(rows.companions)
            report.images.append(
                ImagesReport(name, rows.labels, rows.n, before, after, mixed, companions, mover.scale_words(name))
            )
    report.verified = mover.verified
    report.copied = len(plan.found.dataset_names) - moved


# -- command line -----------------------------------------------------------------------------------------------------

EXAMPLES = """
examples:
  python -m data_scripts.rechunk slow.h5 fast.h5
  python -m data_scripts.rechunk slow.h5 fast.h5 --order keep --compression gzip
  python -m data_scripts.rechunk other.h5 fast.h5 --images data/x --labels data/y --keep data/anchors
  python -m data_scripts.rechunk slow.h5 fast.h5 --resume

exit status: 0 the file is written and was compared row by row; 1 the run stopped, an older file of that name is
untouched; 2 it could not start.
"""


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    given = _parser().parse_args(arguments)
    try:
        with sigterm_interrupts():
            report = rechunk(
                given.source,
                given.out,
                images=given.images,
                labels=given.labels,
                keep=given.keep,
                order=given.order,
                compression=None if given.compression == "none" else given.compression,
                seed=given.seed,
                to_uint8=given.to_uint8,
                resume=given.resume,
            )
    except (RechunkError, CopyError, layout.LayoutError, layout.HDF5FileError) as error:
        return _fail(str(error), 2)
    except DamagedRowError as error:
        return _fail(f"{error} Nothing was written under {given.out}.", 1)
    except OSError as error:
        return _fail(
            f"the run stopped: {error.strerror or error}. Nothing was written under {given.out}.{_go_on(given.out)}", 1
        )
    except KeyboardInterrupt:
        return _fail(f"interrupted. Nothing was written under {given.out}.{_go_on(given.out)}", 1)
    print(report)
    print(f"  {report.seconds:.1f} s")
    return 0


def _go_on(out: Path) -> str:
    part = PartFile(out).part
    return f" {part.name} stays: --resume goes on with it." if part.exists() else ""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m data_scripts.rechunk",
        description="Write an HDF5 file of images anew: one image a chunk, classes mixed, verified row by row.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("source", type=Path, metavar="IN", help="an HDF5 file; it is not changed")
    add("out", type=Path, metavar="OUT", help="the HDF5 file to make")
    add("--images", action="append", metavar="NAME", help="image dataset of a foreign file; repeat it for more pairs")
    add("--labels", action="append", metavar="NAME", help="its label dataset, in the same order")
    add("--keep", action="append", metavar="NAME", help="leave this dataset alone when the rows are mixed")
    add("--order", choices=ORDERS, default="auto", help="auto: mix if the labels are sorted by class (default auto)")
    add("--seed", type=int, default=0, help="of the mixing (default 0)")
    words = [name or "none" for name in COMPRESSIONS]
    add("--compression", choices=words, default="none", help="of the pixels; gzip is level 4 (default none)")
    add("--to-uint8", action="store_true", help="store numbers from 0 to 1 (times 255) or from 0 to 255 as uint8")
    add("--resume", action="store_true", help="go on with an unfinished run")
    return parser


def _fail(sentence: str, status: int) -> int:
    print(f"rechunk: {sentence}", file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main())

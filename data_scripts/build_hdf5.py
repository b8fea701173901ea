"""A folder of pictures, one folder a class, becomes one HDF5 file for training.

::

    python -m data_scripts.build_hdf5 photos --out photos.h5 --size 128

The rules, each with a test:

- **Classes** are the folders directly in SOURCE, sorted by name (in Unicode's NFC, so that a Mac and Linux agree);
  pictures may lie deeper inside them. A folder gets a class number only if at least one of its pictures can be used;
  the others are reported. A Food-101 folder (``images/CLASS/ID.jpg`` with ``meta/train.txt`` and ``meta/test.txt``) is
  recognised. Folders that systems make (``__MACOSX``, ``@eaDir`` ...) are no classes.
- **Pictures** are files named as PNG, JPEG, WebP, BMP or GIF, and files of another name whose first bytes are those of
  a picture (of HEIC, AVIF or TIFF too, which cannot be read and are skipped). Everything else is *ignored* and listed:
  hidden files (a dot in front), files outside the class folders.
- **Links** to files are the pictures they lead to. Links to folders are ignored; but a class folder may be a link, if
  it leads out of SOURCE. A broken link that is named as a picture is skipped.
- **Copies** (files with the same bytes) in one class are ignored but for one, so that no picture is in two splits.
  Copies in two classes are all skipped: one of the labels is wrong. The official split keeps what its lists name, and
  reports it. Resized or newly encoded copies are not found.
- **Broken pictures** are *skipped* with the reason, or stop the build. Each file found is written, skipped or ignored.
- **Splits** are stratified: of n pictures of a class, a split with share s gets n*s, rounded down or up so that the
  totals over all classes stay right as well. The first usable picture of a class always trains. The official split
  keeps Food-101's lists and takes a fifth of the training list, class by class, for validation. A picture found broken
  while writing is missing from its split, and nothing else moves.
- **Rows** are shuffled by the seed, and the pictures of a class spread evenly: every block of rows is a mix of classes.
- **A build that stops** (a kill, a full disk, a lost SOURCE, Ctrl-C) never leaves a file under the final name; an older
  one stays. What was done lies in ``OUT.part``, and ``--resume`` goes on with it. SOURCE is lost when the folder of a
  picture, or eight pictures, are gone that were there when the build began; fewer are skipped.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import hashlib
import shutil
import sys
import time
import warnings
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

import numpy as np
from tqdm import tqdm

from data_scripts.build_report import BuildReport
from data_scripts.folder import BuildError, LeftOut, find_pictures, set_copies_aside, stamp
from data_scripts.reading import Group, Picture, PictureReader, ReadGroup, SourceLostError, stamps_of
from data_scripts.splits import DEFAULT_SPLIT, BrokenImageError, Plan, broken, plan_rows
from data_scripts.stops import sigterm_interrupts
from helpers import outside
from helpers.batches import read_class_numbers
from helpers.doctor import usable_cores
from helpers.images import RESIZE_MODES, quiet_pillow
from helpers.layout import (
    LABEL_KINDS,
    SPLITS,
    STORAGES,
    HDF5FileError,
    LayoutError,
    file_path,
    read_file_info,
    read_split_info,
)
from helpers.part_file import PartFile
from helpers.words import printable, size_text
from helpers.workers import WorkerDiedError, WorkerPool, WorkerStalledError
from helpers.writer import HDF5Writer

ON_ERROR = ("skip", "stop")
GROUP_BYTES = 2**23  # pixels of a group of pictures that a worker reads at once, and that is appended at once
GROUP_PICTURES = 64  # at most: small pictures too are shared out evenly
LOST_FROM = 8  # pictures that were there when the build began: that is not the pictures' fault
WORKERS_FROM = 500  # pictures: for fewer, starting processes takes longer than they save
CHECKPOINT_PICTURES = 256  # likewise
CHECKPOINT_BYTES = 2**26  # of pixels, seconds of work, are lost at most; no clock, so that two builds are equal
STALL_S = 600.0  # for one group of pictures, from a disk that is asleep or far away
_IN_USE = {errno.EAGAIN, errno.EWOULDBLOCK, errno.EACCES, errno.EPERM}  # locked, or not to be read by this user
SAMPLED = 16  # pictures from which the size of JPEG or gzip rows is estimated


class BuildStoppedError(BuildError):
    """The build could not go on; what was done is kept for ``resume=True``."""


@dataclass(frozen=True)
class Options:
    """The options of a build that decide what is in the file, checked."""

    size: int = 299
    resize: str = "stretch"
    storage: str = "raw"
    compression: str | None = None
    label_kind: str = "onehot"
    split: tuple[float, float, float] | str = DEFAULT_SPLIT
    seed: int = 0
    on_error: str = "skip"

    def __post_init__(self):
        if not isinstance(self.size, (int, np.integer)) or not 1 <= self.size <= 65_500:  # 65,500 is JPEG's limit
            raise BuildError(f"size must be a whole number of pixels from 1 to 65500; got {self.size!r}.")
        if not isinstance(self.seed, (int, np.integer)) or not 0 <= self.seed < 2**63:  # the attribute has 64 bits
            raise BuildError(f"seed must be a whole number from 0 to 2**63 - 1; got {self.seed!r}.")
        for name, choices in (
            ("resize", RESIZE_MODES),
            ("storage", STORAGES),
            ("label_kind", LABEL_KINDS),
            ("on_error", ON_ERROR),
        ):
            if getattr(self, name) not in choices:
                raise BuildError(f"{name} must be one of {', '.join(choices)}; got {getattr(self, name)!r}.")
        if self.compression not in {None, "gzip"} or (self.compression and self.storage == "jpeg"):
            raise BuildError(
                f"compression must be None, or gzip with storage raw; got {self.compression!r} with {self.storage}."
            )
        if self.split != "official":
            object.__setattr__(self, "split", _checked_shares(self.split))

    @property
    def shares(self) -> tuple[Fraction, ...] | None:
        """The split as exact fractions that sum to 1; None for the official one."""
        if self.split == "official":
            return None
        exact = [Fraction(share).limit_denominator(1_000_000) for share in self.split]
        return tuple(share / sum(exact) for share in exact)

    @property
    def image_bytes(self) -> int:
        return self.size * self.size * 3

    @property
    def group_size(self) -> int:
        """Pictures that are read at once."""
        return max(1, min(GROUP_PICTURES, GROUP_BYTES // self.image_bytes))

    @property
    def form(self) -> str:
        """Size and storage in words."""
        storage = self.storage if self.compression is None else f"{self.storage} {self.compression}"
        return f"{self.size}x{self.size} ({self.resize}, {storage})"

    def describe(self, source: Path) -> str:
        """What the attribute ``source`` of the file says."""
        split = self.split if self.split == "official" else " ".join(map(str, self.split))
        return f"{printable(source.resolve().name)}: {self.form}, {self.label_kind}, split {split}"


def _checked_shares(split) -> tuple[float, float, float]:
    shares = () if isinstance(split, str) else tuple(split)
    good = len(shares) == 3 and all(isinstance(share, (int, float)) and 0 <= share <= 1 for share in shares)
    if not good or abs(sum(shares) - 1) > 1e-6 or shares[0] == 0:
        raise BuildError(
            "split must be 'official' or three shares (train, valid, test) that sum to 1, train above 0; "
            f"got {split!r}."
        )
    return shares


def build_hdf5(
    source,
    out,
    *,
    size: int = 299,
    resize: str = "stretch",
    storage: str = "raw",
    compression: str | None = None,
    label_kind: str = "onehot",
    split: tuple[float, float, float] | str = DEFAULT_SPLIT,
    seed: int = 0,
    workers: int | None = None,
    on_error: str = "skip",
    resume: bool = False,
    progress: bool = True,
) -> BuildReport:
    """Build the HDF5 file ``out`` from the folder ``source``; the rules are at the top of this module.

    Parameters
    ----------
    source : a folder with one folder a class, or a Food-101 folder.
    out : the file to make; an older one is replaced only when the new one is whole.
    size : side of the square images, in pixels.
    resize : "stretch" (all of the picture) or "crop" (its centre, not distorted).
    storage : "raw" pixels, or "jpeg" (quality 95).
    compression : None, or "gzip" for raw pixels.
    label_kind : "onehot" rows of uint8, or "sparse" class numbers.
    split : shares of (train, valid, test), or "official" for Food-101's own lists.
    seed : of splits and row order; the same folder and seed give the same file, byte for byte.
    workers : processes that read pictures; 1: this process alone. None: one a core, or 1 for fewer than 500 pictures.
    on_error : "skip" broken pictures and report them, or "stop".
    resume : go on with a build that was stopped; without one, build as usual. The content is the same in the end.
    progress : draw a progress bar with the rate on stderr, and a line for each picture that is skipped.

    Raises
    ------
    BuildError
        An option or the folder is not usable, or the disk has not enough room. BrokenImageError when a broken picture,
        BuildStoppedError when a full disk, a lost source or a dead worker stopped the build.
    HDF5FileError
        ``out`` cannot be written.

    Warns
    -----
    UserWarning
        There is only one class.
    """
    start = time.perf_counter()
    for name, value in (("source", source), ("out", out)):
        if value == "":  # of an unset variable in a shell; Path("") would be the working directory
            raise BuildError(f"{name} must name a {'folder' if name == 'source' else 'file'}; got nothing.")
    source, out = Path(source), file_path(out)
    options = Options(size, resize, storage, compression, label_kind, split, seed, on_error)
    _check_workers(workers)
    found = find_pictures(source)
    with quiet_pillow():
        if options.shares is not None:
            set_copies_aside(found)
        if found.skipped and on_error == "stop":
            raise broken(found.skipped[0].path, found.skipped[0].reason)
        plan = plan_rows(found, options.shares, seed, stop=on_error == "stop")
        if len(plan.class_names) == 1:
            warnings.warn(_one_class(source, plan.class_names[0]), stacklevel=2)
        build = _Build(plan, source, out, options, workers, progress)
        was_complete = resume and not outside.exists(PartFile(out).part) and _is_complete(plan, source, out, options)
        counts = _counts_in(out) if was_complete else build.run(resume)
    return BuildReport(
        path=out,
        form=options.form,
        class_names=plan.class_names,
        class_counts=counts,
        found=found.files,
        skipped_files=sorted(plan.skipped, key=lambda file: file.path),
        ignored_files=sorted(plan.ignored, key=lambda file: file.path),
        empty_classes=plan.empty_classes,
        unreadable_classes=plan.unreadable_classes,
        not_found=plan.not_found,
        copies=plan.copies,
        size_bytes=out.stat().st_size,
        seconds=time.perf_counter() - start,
        resumed_at=build.resumed_at,
        had_nothing_to_resume=resume and not was_complete and build.resumed_at is None,
        joined=found.joined,
        was_complete=was_complete,
    )


class _Build:
    """One run: reads the planned pictures group by group, appends them, and makes a checkpoint now and then."""

    def __init__(self, plan: Plan, source: Path, out: Path, options: Options, workers: int | None, progress: bool):
        self.resumed_at: int | None = None
        self._plan, self._source, self._out, self._options = plan, source, out, options
        self._show = progress
        self._groups = _groups(plan, options.group_size)
        self._digest = plan.digest(f"{replace(options, on_error='skip')} {options.group_size}")
        self._stamps = hashlib.sha256()  # of the pictures that are done
        self._skipped: list[LeftOut] = []  # while writing; those of the plan are found again when it is made
        self._counts = {split: [0] * len(plan.class_names) for split in SPLITS}
        if workers is None:
            workers = usable_cores() if plan.pictures >= WORKERS_FROM else 1
        self._workers = min(workers, len(self._groups))
        self._done = 0  # groups
        self._lost = 0  # pictures
        self._kept = 0  # pictures in the last checkpoint
        self._needed = 0  # bytes

    @property
    def _pictures_done(self) -> int:
        return sum(len(group) for group in self._groups[: self._done])

    def run(self, resume: bool) -> dict[str, list[int]]:
        """Write all rows; returns the rows of each class, by split, and adds to ``plan.skipped``."""
        reader = self._reader()
        self._needed = self._needed_bytes(reader)
        self._check_room()
        writer = self._writer(resume)
        try:
            with writer, self._pool(reader) as pool:
                if writer.state is not None:
                    self._go_on(writer)
                try:
                    self._write(writer, pool)
                finally:  # also at the end: what follows waits for the disk, and may be stopped too
                    self._save(writer)
        except BaseException as error:
            explained = self._explained(error, writer)
            if explained is error:
                raise
            raise explained from error
        self._plan.skipped += self._skipped
        return self._counts

    def _write(self, writer: HDF5Writer, pool: WorkerPool) -> None:
        done = self._pictures_done
        size = self._options.group_size
        every = max(1, min(CHECKPOINT_PICTURES // size, CHECKPOINT_BYTES // (size * self._options.image_bytes)))
        with tqdm(total=self._plan.pictures, initial=done, unit="img", disable=not self._show) as bar:
            for number in range(self._done, len(self._groups)):
                self._append(writer, number, pool.get(number, len(self._groups)), bar)
                bar.update(len(self._groups[number]))
                if (number + 1) % every == 0:
                    self._save(writer)

    def _append(self, writer: HDF5Writer, number: int, answer: ReadGroup, bar: tqdm) -> None:
        split, group = self._groups[number].split, self._groups[number].pictures
        failures = dict(answer.failures)
        if failures and self._options.on_error == "stop":
            place = min(failures)
            raise broken(group[place].path, failures[place])
        self._check_lost(group, answer)
        skipped = [LeftOut(group[place].path, reason) for place, reason in failures.items()]
        if self._show:
            for file in skipped:
                bar.write(f"skipped {printable(file.path)}: {file.reason}", file=sys.stderr)
        numbers = [picture.label for place, picture in enumerate(group) if place not in failures]
        counts = {**self._counts, split: self._counts[split].copy()}
        for label in numbers:
            counts[split][label] += 1
        if numbers:
            writer.append_packed(split, answer.rows, numbers)
        stamps = self._stamps.copy()
        stamps.update(repr(answer.stamps).encode())
        # At once, whenever an interrupt comes: what a checkpoint notes must be what is in the file.
        self._done, self._counts, self._skipped, self._stamps = number + 1, counts, self._skipped + skipped, stamps

    def _check_lost(self, group: tuple[Picture, ...], answer: ReadGroup) -> None:
        """A few pictures may have been deleted since the plan was made; more of them are a disk that is gone."""
        self._lost += len(answer.lost)
        if answer.lost and self._lost >= LOST_FROM:
            path, reason = group[answer.lost[0]].path, dict(answer.failures)[answer.lost[0]]
            raise SourceLostError(
                errno.ENOENT,
                f"{self._source} cannot be read any more: {self._lost} pictures that were there at first are not, such "
                f"as {path} ({reason}). Is its disk still there?",
            )

    # -- checkpoints ------------------------------------------------------------------------------------------------

    def _save(self, writer: HDF5Writer) -> None:
        """What was done outlives this process; after a write that failed, the last such moment does."""
        # With a picture lost nothing is kept: if its disk comes back, resuming writes it, and if not, the plan is
        # another one.
        if self._lost or not self._done or sum(writer.rows.values()) != sum(map(sum, self._counts.values())):
            return  # nothing to keep, or interrupted between the two
        skipped = [[file.path, file.reason] for file in self._skipped]
        state = {"plan": self._digest, "done": self._done, "counts": self._counts, "skipped": skipped}
        state["stamps"] = self._stamps.hexdigest()
        with contextlib.suppress(OSError, ValueError):
            writer.checkpoint(state)
            self._kept = self._pictures_done

    def _go_on(self, writer: HDF5Writer) -> None:
        state = writer.state
        if state["plan"] != self._digest:
            raise BuildError(
                f"{writer.part} was begun with other pictures or options, so it cannot be gone on with. Restore them, "
                "or build anew: leave out --resume."
            )
        self._done, self._counts = state["done"], state["counts"]
        for group in self._groups[: self._done]:
            self._stamps.update(repr(stamps_of(self._source, group)).encode())
        if state["stamps"] != self._stamps.hexdigest():
            raise BuildError(
                f"pictures in {self._source} changed since {writer.part} was made of them, so it cannot be gone on "
                "with. Build anew: leave out --resume."
            )
        for _ in tqdm(writer.check_rows(), desc="checking rows", unit=" groups", disable=not self._show):
            pass
        self._skipped = [LeftOut(path, reason) for path, reason in state["skipped"]]
        self.resumed_at = self._kept = self._pictures_done

    # -- room -------------------------------------------------------------------------------------------------------

    def _check_room(self) -> None:
        free = _free_bytes(self._out)
        if free is not None and self._needed > free:
            images = f"{self._plan.pictures} images of {self._options.form}"
            smaller = "a smaller size" if self._options.storage == "jpeg" else "a smaller size or storage jpeg"
            raise BuildError(
                f"{self._out} needs about {size_text(self._needed)} ({images}), and its disk has {size_text(free)} "
                f"free. Free some, choose another disk, or take {smaller}."
            )

    def _needed_bytes(self, reader: PictureReader) -> int:
        """Of the whole file; for JPEG and gzip by the mean of some pictures."""
        options = self._options
        image_bytes = options.image_bytes
        if options.storage == "jpeg" or options.compression:
            image_bytes = reader.mean_bytes(_spread_out(self._groups, SAMPLED)) or image_bytes
        label_bytes = len(self._plan.class_names) if options.label_kind == "onehot" else 8
        return int(self._plan.pictures * (image_bytes + label_bytes + 4 + 100))  # 100: HDF5's table of chunks

    def _explained(self, error: BaseException, writer: HDF5Writer) -> BaseException:
        """The error in words that say how far the build came, and how to go on."""
        first = "bring the missing pictures back and " if self._lost else ""
        kept = (
            f"{self._kept} of {self._plan.pictures} pictures are done and kept in {writer.part.name}: {first}go on "
            "with --resume (in Python resume=True), or delete it."
        )
        stopped = self._why_stopped(error)
        if stopped:
            return BuildStoppedError(f"{stopped} {kept}" if self._kept else stopped)
        is_known = isinstance(error, (BuildError, KeyboardInterrupt, OSError)) and not isinstance(error, HDF5FileError)
        if self._kept and is_known:
            error.add_note(kept)
        return error

    def _why_stopped(self, error: BaseException) -> str | None:
        if isinstance(error, WorkerStalledError):
            reading = self._groups[self._done].describe()
            return f"{self._source} does not answer: no picture came for {STALL_S:g} s, while waiting for {reading}."
        if isinstance(error, (SourceLostError, WorkerDiedError)):
            return str(error).rstrip()
        if not isinstance(error, OSError):
            return None
        needed = f"the whole file needs about {size_text(self._needed)}"
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            free = _free_bytes(self._out)
            there = "" if free is None else f", and {size_text(free)} were there for it"
            return f"the disk of {self._out} is full: {needed}{there}."
        if error.errno == errno.EFBIG:
            return (
                f"{self._out} may not become larger: {needed}, and its disk (FAT32 ends at 4 GB) or a limit of this "
                "account (ulimit -f) takes no file of that size. Raise the limit, or choose another disk."
            )
        return None

    def _writer(self, resume: bool) -> HDF5Writer:
        options = self._options
        return HDF5Writer(
            self._out,
            (options.size, options.size, 3),
            self._plan.class_names,
            storage=options.storage,
            label_kind=options.label_kind,
            compression=options.compression,
            seed=options.seed,
            source=options.describe(self._source),
            source_digest=_source_digest(self._plan, self._source, options),
            resume=resume,
        )

    def _reader(self) -> PictureReader:
        options = self._options
        return PictureReader(
            self._source, self._groups, options.size, options.resize, options.storage, options.compression
        )

    def _pool(self, reader: PictureReader) -> WorkerPool:
        return WorkerPool(
            reader.read,
            self._workers if self._workers > 1 else 0,
            processes=True,
            ahead=self._workers + 2,
            timeout_s=STALL_S,
            describe=lambda number: self._groups[number].describe(),
            memory_advice="lower --workers (in Python workers=)",
            answer_bytes=self._options.group_size * self._options.image_bytes,
        )


def _groups(plan: Plan, size: int) -> list[Group]:
    """The planned pictures, ``size`` at a time, each group of one split."""
    groups = []
    for split, rows in plan.rows.items():
        pictures = [Picture(path, label) for path, label in rows]
        groups += [Group(split, tuple(pictures[start : start + size])) for start in range(0, len(pictures), size)]
    return groups


def _spread_out(groups: list[Group], count: int) -> list[tuple[int, int]]:
    """(group, place in it) of about ``count`` pictures, spread over all."""
    places = [(number, place) for number, group in enumerate(groups) for place in range(len(group))]
    return places[:: max(1, len(places) // count)]


def _is_complete(plan: Plan, source: Path, out: Path, options: Options) -> bool:
    """Whether ``out`` is the finished file of these pictures and options. Raises BuildError when it is another one."""
    try:
        info = read_file_info(out)
    except HDF5FileError as error:
        if error.errno in _IN_USE:  # it may be whole, and somebody else's
            raise
        return False
    if info.complete is not True:
        return False
    if info.source_digest != _source_digest(plan, source, options):
        raise BuildError(
            f"{out} is complete, and was built from other pictures or with other options ({info.source}, seed "
            f"{info.seed}): there is nothing to resume. To replace it, leave out --resume."
        )
    return True


def _source_digest(plan: Plan, source: Path, options: Options) -> str:
    """Of names, sizes, classes and order of the pictures, and of the options; a copy of the folder has the same."""
    sizes = [stamp(source / path, time=False) for rows in plan.rows.values() for path, _ in rows]
    return hashlib.sha256(f"{plan.digest(str(replace(options, on_error='skip')))} {sizes}".encode()).hexdigest()


def _counts_in(path: Path) -> dict[str, list[int]]:
    counts = {}
    for split in SPLITS:
        numbers, count = read_class_numbers(read_split_info(path, split))
        counts[split] = np.bincount(numbers, minlength=count).tolist()
    return counts


def _free_bytes(out: Path) -> int | None:
    """Room for the whole file, with what a part takes already; None when the system does not say."""
    part = PartFile(out).part
    try:
        return shutil.disk_usage(part.parent).free + (part.stat().st_size if part.exists() else 0)
    except OSError:
        return None


def _check_workers(workers) -> None:
    if workers is not None and (not isinstance(workers, int) or not 1 <= workers <= 256):
        raise BuildError(f"workers must be None or a whole number from 1 to 256; got {workers!r}.")


def _one_class(source: Path, name: str) -> str:
    return (
        f"{source} has one class only, {name}: a model cannot learn from it. If the classes are the folders inside it, "
        f"pass {source / name} instead."
    )


# -- command line -----------------------------------------------------------------------------------------------------

EXAMPLES = """
examples:
  python -m data_scripts.build_hdf5 photos --out photos.h5 --size 128
  python -m data_scripts.build_hdf5 food-101 --out food.h5
  python -m data_scripts.build_hdf5 food-101 --out food.h5 --split official --storage jpeg
  python -m data_scripts.build_hdf5 photos --out photos.h5 --resize crop --on-error stop
  python -m data_scripts.build_hdf5 photos --out photos.h5 --resume     (after a kill, a full disk, Ctrl-C)

exit status: 0 the file is written (broken pictures are in the report); 1 the build stopped, an older file of that name
is untouched, and --resume goes on; 2 it could not start.
"""


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    given = _parser().parse_args(arguments)
    try:
        with sigterm_interrupts(), warnings.catch_warnings():
            warnings.simplefilter("default")
            warnings.showwarning = _print_warning
            report = build_hdf5(
                given.source,
                given.out,
                size=given.size,
                resize=given.resize,
                storage=given.storage,
                compression=given.compression,
                label_kind=given.label_kind,
                split=_split(given.split),
                seed=given.seed,
                workers=given.workers,
                on_error=given.on_error,
                resume=given.resume,
            )
    except (BrokenImageError, BuildStoppedError) as error:
        return _fail(_with_notes(str(error), error), 1)
    except (BuildError, HDF5FileError, LayoutError) as error:
        return _fail(_with_notes(str(error), error), 2)
    except OSError as error:
        return _fail(_with_notes(f"the build stopped: {error}.", error), 1)
    except KeyboardInterrupt as error:
        return _fail(_with_notes("interrupted.", error), 1)
    print(report)
    if not report.was_complete:
        print(f"  {report.seconds:.1f} s, {report.written / report.seconds:.0f} images a second")
        _save_report(report)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m data_scripts.build_hdf5",
        description="Build one HDF5 file from a folder of pictures with one folder a class.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("source", help="folder with one folder a class (nested below is fine), or a Food-101 folder")
    add("--out", required=True, metavar="FILE", help="the HDF5 file to make; FILE.report.txt lies beside it")
    add("--size", type=int, default=299, metavar="N", help="side of the square images in pixels (default 299)")
    add("--resize", choices=RESIZE_MODES, default="stretch", help="all of the picture, or its centre (default stretch)")
    add("--storage", choices=STORAGES, default="raw", help="pixels, or JPEG bytes of quality 95 (default raw)")
    add(
        "--split",
        nargs="+",
        default=list(map(str, DEFAULT_SPLIT)),
        metavar="SHARE",
        help="shares of train, valid and test (default 0.7 0.2 0.1), or the word official: Food-101's lists, "
        "a fifth of its training list for validation",
    )
    add("--compression", choices=("gzip",), help="pack raw pixels; photographs become little smaller (default: none)")
    add("--label-kind", choices=LABEL_KINDS, default="onehot", help="one-hot rows, or class numbers (default onehot)")
    add("--seed", type=int, default=0, help="of the splits and the order of rows (default 0)")
    add("--workers", type=int, metavar="N", help="processes that read pictures (default: one a core)")
    add("--resume", action="store_true", help="go on with a build that was stopped; without one, build as usual")
    add("--on-error", choices=ON_ERROR, default="skip", help="what a broken picture does (default skip)")
    return parser


def _split(words: list[str]) -> tuple[float, ...] | str:
    if words == ["official"]:
        return "official"
    with contextlib.suppress(ValueError):
        return tuple(map(float, words))
    return " ".join(words)  # Options refuses it, with the rule


def _print_warning(message, *_) -> None:
    print(f"warning: {message}", file=sys.stderr)


def _with_notes(sentence: str, error: BaseException) -> str:
    return " ".join([sentence, *getattr(error, "__notes__", ())])


def _fail(sentence: str, status: int) -> int:
    print(f"build_hdf5: {sentence}", file=sys.stderr)
    return status


def _save_report(report: BuildReport) -> None:
    path = report.path.with_name(report.path.name + ".report.txt")
    try:
        path.write_text(report.text(None) + "\n", encoding="utf-8")
        print(f"  all names: {path}")
    except OSError as error:
        print(f"warning: the HDF5 file is whole, but its report was not saved: {error}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())

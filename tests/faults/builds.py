"""Builds that are killed at random moments, or run out of room, are resumed; and what came of it, as a table.

    python tests/faults/builds.py --builds 100 --seed 0 --json builds.json

Each build makes an HDF5 file (raw, JPEG and gzip in turn) from a folder of drawn plates, some of them broken, with two
worker processes. It gets SIGKILL at a random moment of its run time, the parent alone or with its workers, and so does
the run that resumes it, up to twice; or its disk is full (a small tmpfs, where this user may mount one), or a limit on
the size of files stops it. Each time there must be no file under the final name but a whole one, or the older one as it
was, and the workers must be gone. At the end a run resumes it that nobody disturbs: content and report must be those of
a build that was never stopped. The exit code is 1 when anything went wrong.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
from photos import content, names
from tqdm import tqdm

from data_scripts.make_toy_food import make_toy_food
from helpers.inspector import inspect_file

STORAGES = {
    "raw": [],
    "JPEG": ["--storage", "jpeg", "--label-kind", "sparse"],
    "gzip": ["--compression", "gzip"],
}
KINDS = ["SIGKILL, all", "SIGKILL, parent", "full disk", "size limit"]
CLASSES, PER_CLASS, BROKEN = 8, 100, 12  # pictures
SIZE = 64  # pixels: 12 kB a row
OF_THIS_RUN = ("  resumed: ", "  there was nothing to resume")  # lines of a report that an unbroken build has not
GONE_S = 5.0  # until the last worker must have ended
END_S = 120.0  # for one build; it takes about a second
OLDER = b"an older file"
COLUMNS = ["builds", "stops", "too late", "resumed", "bad file", "unequal", "orphans", "unclear", "hangs", "median s"]

# Many small groups and checkpoints, so that there is something to resume at any moment. The disk "does not say" how
# full it is: otherwise a build that has not enough room does not start at all.
CHILD = """
import sys
from data_scripts import build_hdf5
build_hdf5.GROUP_PICTURES = 8
build_hdf5.CHECKPOINT_BYTES = 2**18
build_hdf5._free_bytes = lambda out: None
limit = int(sys.argv[1])
if limit:
    import resource
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
print("begun", flush=True)
sys.exit(build_hdf5.main(sys.argv[2:]))
"""


@dataclasses.dataclass
class Build:
    """One build, what was done to it, and what came of it."""

    kind: str
    storage: str
    kills: int = 1  # so many runs are stopped before the last one
    replaces: bool = False  # there is an older file of that name
    stops: int = 0
    too_late: int = 0  # it had ended
    resumed_at: int | None = None  # pictures that the last run found done
    bad_files: int = 0
    unequal: bool = False
    orphans: int = 0
    unclear: bool = False  # not status 1 and a sentence
    hang: bool = False
    told: str = ""
    seconds: float = 0.0  # of the last run

    @property
    def faulty(self) -> bool:
        return bool(self.bad_files or self.unequal or self.orphans or self.unclear or self.hang)


@dataclasses.dataclass
class Whole:
    """What a build that nobody stops makes."""

    content: tuple[dict, dict]
    report: list[str]
    size: int  # bytes
    seconds: float


class Run:
    """A build in a child process."""

    def __init__(self, source: Path, out: Path, storage: str, *more: str, limit: int = 0):
        options = ["--size", str(SIZE), "--workers", "2", *STORAGES[storage], *more]
        command = [sys.executable, "-c", CHILD, str(limit), str(source), "--out", str(out), *options]
        self._log = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115 - open as long as the run
        self._child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self._log, text=True)
        self._child.stdout.readline()  # "begun"
        self._start = time.monotonic()

    def kill_after(self, delay_s: float, *, workers_too: bool) -> tuple[bool, int]:
        """SIGKILL to the parent, or to all; (whether it came in time, workers that are still there after 5 s)."""
        time.sleep(delay_s)
        family = _family(self._child.pid)
        for process in [self._child, *(family if workers_too else [])]:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGKILL)
        code, _, _ = self.end()
        return code == -signal.SIGKILL, len(psutil.wait_procs(family, timeout=GONE_S)[1])

    def end(self) -> tuple[int | None, str, float]:
        """Wait for the end: exit code (None: it did not come), what it printed on stderr, seconds."""
        try:
            code = self._child.wait(END_S)
        except subprocess.TimeoutExpired:
            code = None
            for process in [self._child, *_family(self._child.pid)]:
                process.kill()
            self._child.wait()
        self._child.stdout.close()
        self._log.seek(0)
        with self._log:
            return code, self._log.read(), time.monotonic() - self._start


class Builder:
    """Makes the source, builds it once for each storage, and then does what is asked to builds."""

    def __init__(self, folder: Path, seed: int):
        self._folder, self._chance = folder, random.Random(seed)
        self._source = _make_source(folder / "plates", self._chance)
        self._may_mount = _may_mount(folder)
        self.whole = {storage: self._build_whole(storage) for storage in STORAGES}

    def do(self, build: Build) -> None:
        with self._place(build) as folder:
            out = folder / "plates.h5"
            if build.replaces:
                out.write_bytes(OLDER)
            for number in range(build.kills):
                self._stop(build, out, ["--resume"] if number else [])
                self._look(build, out)
            self._resume(build, out)

    def _stop(self, build: Build, out: Path, resume: list[str]) -> None:
        whole = self.whole[build.storage]
        room = int(self._chance.uniform(0.05, 1.0) * whole.size)
        if "SIGKILL" in build.kind:
            run = Run(self._source, out, build.storage, *resume)
            delay = self._chance.uniform(0, whole.seconds)
            in_time, orphans = run.kill_after(delay, workers_too=build.kind.endswith("all"))
            build.orphans += orphans
        else:
            is_limit = build.kind == "size limit"
            if not is_limit:
                _resize(out.parent, room)
            code, build.told, _ = Run(self._source, out, build.storage, *resume, limit=room if is_limit else 0).end()
            if not is_limit:
                _resize(out.parent, 4 * whole.size + 2**20)
            build.hang |= code is None
            in_time = code != 0
            words = f"{out} may not become larger: " if is_limit else f"the disk of {out} is full: "
            is_clear = code == 1 and f"build_hdf5: {words}the whole file needs about " in build.told
            build.unclear |= in_time and (not is_clear or "Traceback" in build.told)
        build.stops += in_time
        build.too_late += not in_time

    def _look(self, build: Build, out: Path) -> None:
        """Nothing but a whole file, or the older one, may have the final name."""
        if out.exists() and not (build.replaces and out.read_bytes() == OLDER):
            build.bad_files += not self._is_whole(out, build.storage)
        elif build.replaces and not out.exists():
            build.bad_files += 1

    def _resume(self, build: Build, out: Path) -> None:
        code, told, build.seconds = Run(self._source, out, build.storage, "--resume").end()
        build.hang |= code is None
        if code != 0:
            build.unequal, build.told = True, told
            return
        left = [name for name in names(out.parent) if name not in {"plates.h5", "plates.h5.report.txt"}]
        build.unequal = bool(left) or not self._is_whole(out, build.storage)
        report = out.with_name("plates.h5.report.txt")
        if report.exists():  # not where the file was whole already
            lines = report.read_text(encoding="utf-8").splitlines()[1:]
            found = re.fullmatch(r"  resumed: the first (\d+) pictures were done before", lines[2])
            build.resumed_at = int(found[1]) if found else None
            build.unequal |= [line for line in lines if not line.startswith(OF_THIS_RUN)] != self.whole[
                build.storage
            ].report

    def _is_whole(self, path: Path, storage: str) -> bool:
        return inspect_file(path).ok and content(path) == self.whole[storage].content

    def _build_whole(self, storage: str) -> Whole:
        out = self._folder / f"{storage}.h5"
        code, told, seconds = Run(self._source, out, storage).end()
        if code != 0:
            raise RuntimeError(told)
        report = out.with_name(f"{out.name}.report.txt").read_text(encoding="utf-8").splitlines()[1:]
        return Whole(content(out), report, out.stat().st_size, seconds)

    @contextlib.contextmanager
    def _place(self, build: Build) -> Iterator[Path]:
        """An empty folder for the build; for a full disk, one that is a disk of its own."""
        with tempfile.TemporaryDirectory(dir=self._folder) as name:
            is_disk = build.kind == "full disk" and self._may_mount
            if build.kind == "full disk" and not is_disk:
                build.kind = "size limit"  # what this user can have
            if is_disk:
                subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", name], check=True)
            try:
                yield Path(name)
            finally:
                if is_disk:
                    subprocess.run(["umount", "--lazy", name], check=True)


def _family(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def _resize(folder: Path, size: int) -> None:
    subprocess.run(["mount", "-o", f"remount,size={max(1, size // 4096) * 4}k", str(folder)], check=True)


def _may_mount(folder: Path) -> bool:
    if shutil.which("mount") is None:
        return False
    place = folder / "disk"
    place.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(place)], capture_output=True, check=False)
    if done.returncode == 0:
        subprocess.run(["umount", str(place)], check=True)
    return done.returncode == 0


def _make_source(folder: Path, chance: random.Random) -> Path:
    make_toy_food(folder, layout="folder", classes=CLASSES, per_class=PER_CLASS, size=48, progress=False)
    for path in chance.sample(sorted(folder.rglob("*.jpg")), BROKEN):
        path.write_bytes(path.read_bytes()[: chance.choice([0, 300])])
    return folder


def planned(count: int, seed: int) -> list[Build]:
    """``count`` builds: eight of ten are killed, the others run out of room; storages in turn."""
    chance = random.Random(seed)
    storages = list(STORAGES)
    builds = []
    for number in range(count):
        kind = KINDS[(0, 1, 2, 3, 0, 1, 0, 1, 0, 1)[number % 10]]
        kills = chance.choice([1, 1, 2, 3]) if "SIGKILL" in kind else 1
        builds.append(Build(kind, storages[number % 3], kills, replaces=chance.random() < 0.5))
    return builds


def table(builds: list[Build]) -> str:
    """A line for each kind of stop and for each storage, and one for all."""
    lines = [f"{'':16}" + "".join(f"{name:>9}" for name in COLUMNS)]
    for name in [*KINDS, *STORAGES, "all"]:
        these = [build for build in builds if name in (build.kind, build.storage, "all")]
        lines.append(f"{name:16}" + "".join(f"{cell:>9}" for cell in _cells(these)))
    return "\n".join(lines)


def _cells(builds: list[Build]) -> list:
    return [
        len(builds),
        sum(build.stops for build in builds),
        sum(build.too_late for build in builds),
        sum(build.resumed_at is not None for build in builds),
        sum(build.bad_files for build in builds),
        sum(build.unequal for build in builds),
        sum(build.orphans for build in builds),
        sum(build.unclear for build in builds),
        sum(build.hang for build in builds),
        f"{statistics.median(build.seconds for build in builds):.2f}" if builds else "-",
    ]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], epilog="Exit status 1: a bad file, an unequal one, or anything else wrong."
    )
    parser.add_argument("--builds", type=int, default=100, help="how many (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of moments and sizes (default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every build there")
    options = parser.parse_args()
    start = time.monotonic()
    builds = planned(options.builds, options.seed)
    with tempfile.TemporaryDirectory() as folder:
        builder = Builder(Path(folder), options.seed)
        for build in tqdm(builds, unit="build", disable=None):
            builder.do(build)
    print(table(builds))  # noqa: T201 - a command line program
    bad = [build for build in builds if build.faulty]
    for build in bad:
        print(build)  # noqa: T201
    print(f"{len(builds)} builds, {len(bad)} bad; {time.monotonic() - start:.0f} s in all")  # noqa: T201
    if options.json:
        options.json.write_text(json.dumps([dataclasses.asdict(build) for build in builds], indent=1))
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())

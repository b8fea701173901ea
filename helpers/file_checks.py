"""A file to train on, and the queue of its batches, against the memory of this machine: lines of helpers.doctor."""

from __future__ import annotations

import math
import shlex
import warnings
from collections.abc import Iterator
from contextlib import closing

from helpers import layout, machine, preflight
from helpers.batches import BatchSource
from helpers.check import Check, Plan
from helpers.inspector import inspect_file
from helpers.report import Report, SplitReport
from helpers.words import count_text, size_text
from helpers.workers import WorkerPool

CACHED_SHARE = 0.6  # of the free memory: a smaller file stays in the page cache
_COSTLY_CHUNKS = {"cut-chunks", "large-chunks", "costly-epoch"}  # the inspector's codes


def data_file(plan: Plan) -> Iterator[Check]:
    """Does the file open, do it and its queue fit into the memory, do its chunks suit shuffled reading?"""
    report = inspect_file(plan.file, images=plan.images, labels=plan.labels)
    yield _verdict(report)
    if not report.readable:
        return
    yield _file_in_memory(report)
    yield from _chunks(report)
    pair, odd = _pair(report, plan)
    if odd is not None:
        yield odd
    if pair is not None:
        yield from queue(plan, pair, report)


def _inspector(report: Report) -> str:
    return f"python -m helpers.inspector {shlex.quote(str(report.path))}"


def _verdict(report: Report) -> Check:
    if report.ok:
        return Check("ok", report.verdict)
    fault = report.faults[0]
    if fault.code == "no-images":
        return Check("warn", fault.message, "name its datasets: --images NAME --labels NAME")
    more = len(report.faults) - 1
    others = f" {count_text(more, 'fault')} more: {_inspector(report)}" if more else ""
    return Check("bad", fault.message, (fault.advice + others).strip() or _inspector(report))


def _file_in_memory(report: Report) -> Check:
    free = machine.free_memory().free
    text = f"the file has {size_text(report.size_bytes)}, and {size_text(free)} of memory are free"
    if any(warning.code == "outside-file" for warning in report.warnings):
        text += " (other files, which it names, are not counted)"
    if report.size_bytes <= CACHED_SHARE * free:
        return Check("ok", f"{text}: after the first epoch it is read from memory")
    return Check(
        "warn",
        f"{text}: it does not stay there, so every epoch reads from the disk, row by row",
        'on a hard disk or a network disk copy it to a local SSD, or use HDF5Sequence(shuffle="block")',
    )


def _chunks(report: Report) -> Iterator[Check]:
    found = next((warning for warning in report.warnings if warning.code in _COSTLY_CHUNKS), None)
    if found is not None:
        yield Check("warn", found.message, f"{found.advice} {_inspector(report)} shows what an epoch costs.")


def _pair(report: Report, plan: Plan) -> tuple[SplitReport | None, Check | None]:
    """The datasets that are meant, and what is odd about that."""
    pairs = report.splits
    if plan.images is not None or not pairs:
        return next(iter(pairs.values()), None), None
    pair = pairs.get(plan.split)
    if all(each.images != layout.image_dataset(split) for split, each in pairs.items()):
        pair = pair or next(iter(pairs.values()))
        names = f"--images {shlex.quote(pair.images)} --labels {shlex.quote(pair.labels)}"
        text = f"its datasets do not have this kit's names; taken: {pair.images} and {pair.labels}"
        return pair, Check("warn", text, f"name them, here and in HDF5Sequence(images=, labels=): {names}")
    if pair is None or not pair.n:
        filled = [split for split, each in pairs.items() if each.n]
        text = f"it has no images to serve in the split {plan.split}"
        return None, Check("warn", text, f"--split takes one of: {', '.join(filled) or 'none'}")
    return pair, None


def queue(plan: Plan, pair: SplitReport, report: Report) -> Iterator[Check]:
    """Batches that wait for the model, as :func:`helpers.fit_generator` counts them, against the free memory."""
    try:
        held, batch_bytes, float_bytes = _queue_sizes(plan, pair, report)
    except Exception as error:  # of a file that is odd, or gone meanwhile; what it says is what HDF5Sequence would say
        if report.ok:
            yield Check("warn", f"what a queue of its batches holds is not known: {error}", _inspector(report))
        return
    needed, free = preflight.queue_bytes([("", held, batch_bytes)]), machine.free_memory().free
    settings = f"batch_size={plan.batch_size}, max_queue_size={plan.max_queue_size}, workers={plan.workers}"
    text = (
        f"a queue ({settings}; validation has its own) holds up to {held} x {size_text(batch_bytes)} = "
        f"{size_text(needed)} ({size_text(held * float_bytes)} were it float32); {size_text(free)} of memory are free"
    )
    if needed <= preflight.QUEUE_SHARE * free:
        yield Check("ok", text)
    else:
        yield Check("warn" if needed <= free else "bad", text, "lower max_queue_size, workers or batch_size")


def _queue_sizes(plan: Plan, pair: SplitReport, report: Report) -> tuple[int, int, int]:
    """Batches held at most, and the bytes of one: as it is, and with float32 pixels."""
    # Where the file does not name its classes, as many as it uses: the size of a batch hardly depends on it.
    classes = len(pair.counts) if report.class_names is None else None
    with warnings.catch_warnings(action="ignore", category=layout.OutsideFileWarning):
        source = BatchSource(
            plan.file, batch_size=plan.batch_size, images=pair.images, labels=pair.labels, classes=classes
        )
    with closing(source):
        held = WorkerPool(source.item, plan.workers, ahead=plan.max_queue_size).most_held  # asked, never started
        pixels = plan.batch_size * math.prod(source.image_shape)
        return held, source.batch_bytes, source.batch_bytes + 3 * pixels

"""The labels of a split: what the scan found, as findings of the report."""

from __future__ import annotations

import h5py
import numpy as np

from helpers import tree
from helpers.label_scan import NEIGHBOURS, LabelScan
from helpers.report import Report
from helpers.words import RECHUNK


def report_labels(report: Report, labels: h5py.Dataset, scan: LabelScan) -> None:
    """Note rows that are no label, and rows sorted by class."""
    name = tree.object_name(labels)
    if scan.bad:
        _report_bad_labels(report, labels, name, scan)
    if scan.mix is not None and scan.mix.is_sorted:
        report.add_warning(
            "class-sorted",
            f"{name} is sorted by class: {NEIGHBOURS} neighbouring rows hold {scan.mix.neighbours:.1f} classes on "
            f"average; shuffled rows would hold {scan.mix.shuffled:.1f}.",
            f'Train with shuffle="full", and never cut validation rows off its end; or mix the rows: {RECHUNK}.',
        )


def _report_bad_labels(report: Report, labels: h5py.Dataset, name: str, scan: LabelScan) -> None:
    of = f"{scan.bad} of {len(labels)}"
    value = labels[scan.first_bad]
    if labels.ndim == 2 and np.isclose(value.sum(dtype=np.float64), 1, atol=1e-3):
        report.add_fault(
            "soft-labels",
            f"{of} rows of {name} sum to 1, but not as one 1 among zeros; the first is row {scan.first_bad}.",
            "Store one-hot rows or class numbers; smooth labels in the loss: label_smoothing=.",
        )
    elif labels.ndim == 2:
        report.add_fault(
            "onehot-sum",
            f"{of} rows of {name} do not sum to 1; the first is row {scan.first_bad}.",
            "Rows of zeros were never written: build the file again. Otherwise store one 1 a row.",
        )
    else:
        report.add_fault(
            "label-range",
            f"{of} class numbers in {name} are not in 0 to {scan.limit - 1}; the first is "
            f"{value} in row {scan.first_bad}.",
            "Number the classes from 0, in the order of class_names.",
        )

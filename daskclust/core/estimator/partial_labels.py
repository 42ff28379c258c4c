"""Partial labels as they are given to ``fit``: any names, any form, few or many."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daskclust.core.array_types import Bools
from daskclust.core.class_names import warn_of_similar
from daskclust.core.engine import is_dask, labeled_rows, missing_labels
from daskclust.core.estimator.validation import as_labels, unmasked
from daskclust.core.reduction import ClassStatistics, RowLabels
from daskclust.core.warn import warn
from daskclust.exceptions import ConstraintError, ConstraintWarning

#: No label, beside None: NumPy turns -1 into "-1" in an array of text.
_NONE, _NONE_TEXT = -1, "-1"


@dataclass(frozen=True)
class PartialLabels(RowLabels):
    """Labels of some rows, and the names of their classes: int64 or text, ascending."""

    classes: NDArray[Any]

    def without_negative(self) -> PartialLabels:
        """Return the labels, none of which is a negative number: such are often no label."""
        if self.classes.dtype.kind == "i" and len(self.classes) and self.classes[0] < 0:
            at = int(np.argmin(self.codes))
            raise ConstraintError(
                f"The label of row {self.rows[at]} is {self.classes[0]}; expected labels >= 0, or "
                "-1 for an unlabeled row. Renumber the classes, or use text."
            )
        return self

    def present(self, statistics: ClassStatistics) -> tuple[PartialLabels, ClassStatistics]:
        """Leave out classes and rows of weight 0, with a warning."""
        if statistics.first_weightless is None:
            return self, statistics
        kept = statistics.weight > 0
        gone = ", ".join(str(name) for name in self.classes[~kept].tolist())
        warn(
            f"Some labeled rows have sample_weight 0 or no value at all, the first is row "
            f"{statistics.first_weightless}: they count as absent"
            + (f", and so do the classes without other rows ({gone})." if gone else "."),
            ConstraintWarning,
        )
        mine = kept[self.codes]
        codes = (np.cumsum(kept) - 1).astype(np.int32)[self.codes[mine]]
        labels = replace(
            self,
            rows=self.rows[mine],
            codes=codes,
            n_classes=int(kept.sum()),
            classes=self.classes[kept],
        )
        masses = None if statistics.masses is None else statistics.masses[kept]
        return labels, ClassStatistics(
            statistics.weight[kept], statistics.mean[kept], statistics.scatter[kept], masses=masses
        )

    def digest(self) -> str:
        """Hash of the labels, the same for every form in which they may be given."""
        sha = hashlib.sha256(repr(self.classes.tolist()).encode())
        sha.update(self.rows.astype("<i8").tobytes())
        sha.update(self.codes.astype("<i4").tobytes())
        return sha.hexdigest()


def _none(values: NDArray[np.object_]) -> Bools:
    try:
        missing = missing_labels(values)
        # What pandas has for a missing value compares to nothing.
        there = values.copy()
        there[missing] = None
        for none in (_NONE, _NONE_TEXT):
            # By the values' own comparison, one by one, but not in a loop of Python.
            missing = missing | np.equal(there, np.array(none, dtype=object)).astype(bool)
        return missing
    except (TypeError, ValueError) as error:
        raise ConstraintError(
            f"y holds values that cannot be compared ({error}); expected integers or text, -1 "
            "where there is none."
        ) from error


def _whole(values: NDArray[Any]) -> NDArray[np.int64]:
    """Return floats as integers, or refuse others than whole numbers."""
    wrong = ~(np.isfinite(values) & (values == np.floor(values)))
    if wrong.any():
        raise ConstraintError(
            f"y holds the value {values[int(np.argmax(wrong))]}; expected integers or text, and "
            "-1 or NaN for rows without a label."
        )
    # Beyond these all floats are whole, and as int64 all are the same.
    huge = np.abs(values) >= 2.0**63
    if huge.any():
        raise ConstraintError(
            f"y holds {values[int(np.argmax(huge))]}; expected values below 2**63."
        )
    return values.astype(np.int64)


def known_labels(values: NDArray[Any]) -> tuple[NDArray[np.intp], NDArray[Any]]:
    """Places and labels of the labeled rows: integers (or whole floats) or text.

    -1 (also "-1"), NaN, None, pandas.NA and what is masked are no label.
    """
    values = np.asarray(unmasked(values))
    kind = values.dtype.kind
    if kind == "b":
        raise ConstraintError(
            "y has dtype bool, which cannot say which rows are unlabeled; expected integers or "
            "text. Use numpy.where(known, y.astype(int), -1)."
        )
    if kind not in "fiuUSO":
        raise ConstraintError(f"y has dtype {values.dtype}; expected integers or text.")
    if kind == "O":
        none = _none(values)
    elif kind in "US":
        none = values.astype(str) == _NONE_TEXT
    else:
        none = missing_labels(values) | (values == _NONE)
    places = np.flatnonzero(~none)
    labels = _whole(values[places]) if kind == "f" else values[places]
    if kind in "USO" and np.any(labels == (b"" if kind == "S" else "")):
        raise ConstraintError(
            "y holds an empty text, which is no name of a class; expected -1 or None where there "
            "is no label."
        )
    return places, labels


def _as_names(labels: NDArray[Any]) -> NDArray[Any]:
    if labels.dtype.kind == "O":
        items = labels.tolist()
        if all(isinstance(item, str) for item in items):
            return np.array(items, dtype=str)
        numbers = int | float | np.integer | np.floating
        if not all(isinstance(item, numbers) and not isinstance(item, bool) for item in items):
            kinds = sorted({type(item).__name__ for item in items})
            raise ConstraintError(
                f"y holds labels of the types {', '.join(kinds)}; expected all integers or all "
                "text."
            )
        labels = np.array(items)
        if labels.dtype.kind == "f":
            # Of columns with missing values.
            labels = _whole(labels)
    if labels.dtype.kind in "US":
        return labels.astype(str)
    if labels.dtype.kind == "u" and len(labels) and labels.max() > np.iinfo(np.int64).max:
        raise ConstraintError(f"y holds {labels.max()}; expected values below 2**63.")
    return labels.astype(np.int64)


def read_labels(y: Any, n_rows: float, *, max_classes: int | None = None) -> PartialLabels:
    """Read partial labels in whatever form; `max_classes`, where each is a cluster of its own."""
    rows, labels = np.empty(0, np.int64), np.empty(0, np.int64)
    if y is not None:
        y, length = as_labels(y), None
        if isinstance(y, tuple):
            rows, labels = y
            if rows.size and rows.dtype.kind not in "iu":
                raise ConstraintError(
                    f"The rows of y = (rows, labels) have dtype {rows.dtype}; expected integers. "
                    "For a mask, pass numpy.flatnonzero(mask)."
                )
            if rows.shape != labels.shape:
                raise ConstraintError(
                    f"y = (rows, labels) has shapes {rows.shape} and {labels.shape}; expected two "
                    "arrays of one length: row numbers, and a label for each."
                )
            rows = rows.astype(np.int64)
            if labels.size:
                places, labels = known_labels(labels)
                rows = rows[places]
            else:
                labels = labels.astype(np.int64)
        elif is_dask(y):
            rows, labels, length = labeled_rows(y, known_labels)
        else:
            (rows, labels), length = known_labels(y), len(y)
            rows = rows.astype(np.int64)
        if length is not None and n_rows != np.inf and length != n_rows:
            raise ConstraintError(
                f"y has shape ({length},); X has {n_rows} rows. Give one label a row, -1 where "
                "there is none, or y=(rows, labels)."
            )
    order = np.argsort(rows, kind="stable")
    rows, labels = rows[order], _as_names(labels)[order]
    if len(rows) and not 0 <= rows[0] <= rows[-1] < n_rows:
        row = int(rows[0] if rows[0] < 0 else rows[-1])
        raise ConstraintError(
            f"Row {row} is labeled; expected row numbers in [0, {n_rows}). Row numbers count "
            "from 0 over all of X."
        )
    repeats = np.flatnonzero(rows[1:] == rows[:-1])
    if repeats.size:
        row, a, b = rows[repeats[0]], labels[repeats[0]], labels[repeats[0] + 1]
        raise ConstraintError(
            f"Row {row} is labeled more than once ({a}, {b}); expected one label a row. "
            "Remove the repeated rows."
        )
    classes, codes = np.unique(labels, return_inverse=True)
    if classes.dtype.kind == "U" and not isinstance(y, tuple):
        # Names of a label map were looked at when it was read.
        warn_of_similar(classes.tolist())
    if max_classes is not None and len(classes) > max_classes:
        raise ConstraintError(
            f"y has {len(classes)} classes; n_clusters={max_classes}. Each class is a cluster of "
            f"its own: use n_clusters={len(classes)} or more, or label fewer classes."
        )
    return PartialLabels(rows, codes.astype(np.int32), len(classes), classes)


#: The request without labels.
NO_LABELS = read_labels(None, 0)

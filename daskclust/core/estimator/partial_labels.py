"""Partial labels as arguments of ``fit``: any names, any form, few or many."""

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

#: Values that mean "no label", in addition to None. NumPy converts -1 to "-1" in string arrays.
_NONE, _NONE_TEXT = -1, "-1"


@dataclass(frozen=True)
class PartialLabels(RowLabels):
    """Labels of some rows, and the names of their classes: int64 or strings, ascending."""

    classes: NDArray[Any]

    def without_negative(self) -> PartialLabels:
        """Return the labels; raise ConstraintError for negative ones: they often mean no label."""
        if self.classes.dtype.kind == "i" and len(self.classes) and self.classes[0] < 0:
            first = int(np.argmin(self.codes))
            raise ConstraintError(
                f"Labels must be >= 0, or -1 for an unlabeled row, got {self.classes[0]} in row "
                f"{self.rows[first]}. Renumber the classes, or use strings."
            )
        return self

    def present(self, statistics: ClassStatistics) -> tuple[PartialLabels, ClassStatistics]:
        """Remove classes and rows of weight 0, with a warning."""
        if statistics.first_weightless is None:
            return self, statistics
        has_weight = statistics.weight > 0
        absent = ", ".join(str(name) for name in self.classes[~has_weight].tolist())
        warn(
            f"Some labeled rows have sample_weight 0 or no values (the first is row "
            f"{statistics.first_weightless}). They are ignored"
            + (f", and so are the classes without other rows ({absent})." if absent else "."),
            ConstraintWarning,
        )
        selected = has_weight[self.codes]
        codes = (np.cumsum(has_weight) - 1).astype(np.int32)[self.codes[selected]]
        labels = replace(
            self,
            rows=self.rows[selected],
            codes=codes,
            n_classes=int(has_weight.sum()),
            classes=self.classes[has_weight],
        )
        masses = None if statistics.masses is None else statistics.masses[has_weight]
        return labels, ClassStatistics(
            statistics.weight[has_weight],
            statistics.mean[has_weight],
            statistics.scatter[has_weight],
            masses=masses,
        )

    def digest(self) -> str:
        """Return a hash of the labels, equal for all forms of the same labels."""
        sha = hashlib.sha256(repr(self.classes.tolist()).encode())
        sha.update(self.rows.astype("<i8").tobytes())
        sha.update(self.codes.astype("<i4").tobytes())
        return sha.hexdigest()


def _none(values: NDArray[np.object_]) -> Bools:
    try:
        missing = missing_labels(values)
        # Missing values of pandas cannot be compared.
        comparable = values.copy()
        comparable[missing] = None
        for none in (_NONE, _NONE_TEXT):
            # NumPy compares element by element, but without a Python loop.
            missing = missing | np.equal(comparable, np.array(none, dtype=object)).astype(bool)
        return missing
    except (TypeError, ValueError) as error:
        raise ConstraintError(
            "y must contain integers or strings, and -1 for unlabeled rows, got values that "
            f"cannot be compared ({error})."
        ) from error


def _whole(values: NDArray[Any]) -> NDArray[np.int64]:
    """Return floats as integers; raise ConstraintError if they are not integers."""
    wrong = ~(np.isfinite(values) & (values == np.floor(values)))
    if wrong.any():
        raise ConstraintError(
            f"y must contain integers or strings, and -1 or NaN for unlabeled rows, got "
            f"{values[int(np.argmax(wrong))]}."
        )
    # Larger floats are all integers, and they overflow int64.
    huge = np.abs(values) >= 2.0**63
    if huge.any():
        raise ConstraintError(
            f"y must contain integers below 2**63, got {values[int(np.argmax(huge))]}."
        )
    return values.astype(np.int64)


def known_labels(values: NDArray[Any]) -> tuple[NDArray[np.intp], NDArray[Any]]:
    """Return positions and labels of the labeled rows: integers (or integer floats) or strings.

    -1 (also "-1"), NaN, None, pandas.NA and masked values mean no label.
    """
    values = np.asarray(unmasked(values))
    kind = values.dtype.kind
    if kind == "b":
        raise ConstraintError(
            "y must contain integers or strings, got dtype bool, which cannot mark unlabeled rows. "
            "Use numpy.where(known, y.astype(int), -1)."
        )
    if kind not in "fiuUSO":
        raise ConstraintError(f"y must contain integers or strings, got dtype {values.dtype}.")
    if kind == "O":
        none = _none(values)
    elif kind in "US":
        none = values.astype(str) == _NONE_TEXT
    else:
        none = missing_labels(values) | (values == _NONE)
    positions = np.flatnonzero(~none)
    labels = _whole(values[positions]) if kind == "f" else values[positions]
    if kind in "USO" and np.any(labels == (b"" if kind == "S" else "")):
        raise ConstraintError(
            "y must not contain an empty string as a class name. Use -1 or None for unlabeled rows."
        )
    return positions, labels


def _as_names(labels: NDArray[Any]) -> NDArray[Any]:
    if labels.dtype.kind == "O":
        items = labels.tolist()
        if all(isinstance(item, str) for item in items):
            return np.array(items, dtype=str)
        numbers = int | float | np.integer | np.floating
        if not all(isinstance(item, numbers) and not isinstance(item, bool) for item in items):
            kinds = sorted({type(item).__name__ for item in items})
            raise ConstraintError(
                f"y must contain only integers or only strings, got the types {', '.join(kinds)}."
            )
        labels = np.array(items)
        if labels.dtype.kind == "f":
            # Integers in a column with missing values are floats.
            labels = _whole(labels)
    if labels.dtype.kind in "US":
        return labels.astype(str)
    if labels.dtype.kind == "u" and len(labels) and labels.max() > np.iinfo(np.int64).max:
        raise ConstraintError(f"y must contain integers below 2**63, got {labels.max()}.")
    return labels.astype(np.int64)


def read_labels(y: Any, n_rows: float, *, max_classes: int | None = None) -> PartialLabels:
    """Read partial labels in any form; `max_classes` is set if each class is a cluster."""
    rows, labels = np.empty(0, np.int64), np.empty(0, np.int64)
    if y is not None:
        y, length = as_labels(y), None
        if isinstance(y, tuple):
            rows, labels = y
            if rows.size and rows.dtype.kind not in "iu":
                raise ConstraintError(
                    f"The rows of y = (rows, labels) must be integers, got dtype {rows.dtype}. "
                    "For a mask, pass numpy.flatnonzero(mask)."
                )
            if rows.shape != labels.shape:
                raise ConstraintError(
                    "y = (rows, labels) must contain two arrays of the same length, row numbers "
                    f"and their labels, got shapes {rows.shape} and {labels.shape}."
                )
            rows = rows.astype(np.int64)
            if labels.size:
                positions, labels = known_labels(labels)
                rows = rows[positions]
            else:
                labels = labels.astype(np.int64)
        elif is_dask(y):
            rows, labels, length = labeled_rows(y, known_labels)
        else:
            (rows, labels), length = known_labels(y), len(y)
            rows = rows.astype(np.int64)
        if length is not None and n_rows != np.inf and length != n_rows:
            raise ConstraintError(
                f"y must have one label per row of X ({n_rows} rows), -1 for unlabeled rows, got "
                f"shape ({length},). Or use y=(rows, labels)."
            )
    order = np.argsort(rows, kind="stable")
    rows, labels = rows[order], _as_names(labels)[order]
    if len(rows) and not 0 <= rows[0] <= rows[-1] < n_rows:
        row = int(rows[0] if rows[0] < 0 else rows[-1])
        raise ConstraintError(
            f"Row numbers of y must be in [0, {n_rows}), got {row}. Row numbers count "
            "from 0 over all of X."
        )
    repeats = np.flatnonzero(rows[1:] == rows[:-1])
    if repeats.size:
        row, a, b = rows[repeats[0]], labels[repeats[0]], labels[repeats[0] + 1]
        raise ConstraintError(
            f"y must have one label per row, got several for row {row} ({a}, {b}). "
            "Remove the repeated rows."
        )
    classes, codes = np.unique(labels, return_inverse=True)
    if classes.dtype.kind == "U" and not isinstance(y, tuple):
        # Names of a label map were checked when it was read.
        warn_of_similar(classes.tolist())
    if max_classes is not None and len(classes) > max_classes:
        raise ConstraintError(
            f"y must have at most n_clusters={max_classes} classes, got {len(classes)}, because "
            f"each class is a cluster. Use n_clusters={len(classes)} or more, or label fewer "
            "classes."
        )
    return PartialLabels(rows, codes.astype(np.int32), len(classes), classes)


#: Partial labels without any labeled row.
NO_LABELS = read_labels(None, 0)

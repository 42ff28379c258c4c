"""Accuracy by class, as maps report it: by name or code, never by the best matching."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

from daskclust._types import Array, Floats, Ints
from daskclust.engine import as_label_vector, is_dask, unwrap
from daskclust.metrics._agreement import contingency_table

__all__ = ["AccuracyReport", "accuracy_of_counts", "accuracy_report", "wilson_interval"]

#: No label.
_NONE = -1
#: Of the standard normal distribution, for 95 %.
_Z = 1.959963984540054


def wilson_interval(right: Any, total: Any) -> Floats:
    """Return the Wilson score interval of shares, to 95 %.

    Parameters
    ----------
    right, total : array-like of int, of one shape

    Returns
    -------
    ndarray of shape (..., 2)
        NaN where there is nothing to share.

    Examples
    --------
    >>> wilson_interval(8, 10).round(3)
    array([0.49 , 0.943])
    """
    hits, n = np.asarray(right, dtype=np.float64), np.asarray(total, dtype=np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        share = hits / n
        middle = (share + _Z**2 / (2 * n)) / (1 + _Z**2 / n)
        half = _Z / (1 + _Z**2 / n) * np.sqrt(share * (1 - share) / n + _Z**2 / (4 * n**2))
    return np.stack([middle - half, middle + half], axis=-1).clip(0.0, 1.0)


@dataclass(frozen=True, repr=False)
class AccuracyReport:
    """How well labels tell known classes.

    Attributes
    ----------
    classes : list
        Classes that occur in the truth or in the labels, sorted.
    confusion : ndarray of shape (m, m), int64
        Rows of each true class (down) that have each label (across).
    unlabeled : ndarray of shape (m,), int64
        Rows of each true class whose label is -1; they count as wrong.
    n : int
        Rows that are compared.
    overall : float
        Share of the rows of the right class.
    overall_interval : ndarray of shape (2,)
        Wilson's, to 95 %, for independent rows: pixels of one polygon are not.
    kappa : float
        Cohen's.
    producers, users, f1 : ndarray of shape (m,), float64
        Producer's accuracy (recall), user's accuracy (precision), and their harmonic mean;
        NaN for producer's where the class is not in the truth, for user's where it is not
        among the labels.
    producers_interval, users_interval : ndarray of shape (m, 2)
    """

    classes: list[Any]
    confusion: Ints
    unlabeled: Ints
    n: int
    overall: float
    overall_interval: Floats
    kappa: float
    producers: Floats
    users: Floats
    f1: Floats
    producers_interval: Floats
    users_interval: Floats

    def __repr__(self) -> str:
        low, high = self.overall_interval
        return (
            f"Overall accuracy {self.overall:.3f} ({low:.3f} to {high:.3f}), kappa "
            f"{self.kappa:.3f}, on {self.n} rows of {len(self.classes)} classes"
        )

    def to_frame(self) -> Any:
        """Return one line for each class.

        Returns
        -------
        pandas.DataFrame
            Indexed by class; columns ``truth`` and ``labels`` (rows), ``producers``, ``users``,
            ``f1``, and the bounds ``producers_low``, ``producers_high``, ``users_low``,
            ``users_high``.  ``frame.attrs`` holds ``overall``, ``overall_low``,
            ``overall_high``, ``kappa`` and ``n``.
        """
        import pandas

        frame = pandas.DataFrame(
            {
                "truth": self.confusion.sum(axis=1) + self.unlabeled,
                "labels": self.confusion.sum(axis=0),
                "producers": self.producers,
                "users": self.users,
                "f1": self.f1,
                "producers_low": self.producers_interval[:, 0],
                "producers_high": self.producers_interval[:, 1],
                "users_low": self.users_interval[:, 0],
                "users_high": self.users_interval[:, 1],
            },
            index=pandas.Index(self.classes, name="class"),
        )
        low, high = self.overall_interval.tolist()
        frame.attrs.update(
            {
                "overall": self.overall,
                "overall_low": low,
                "overall_high": high,
                "kappa": self.kappa,
                "n": self.n,
            }
        )
        return frame

    def _repr_html_(self) -> str:
        """Return a table for notebooks."""
        frame = self.to_frame()
        return f"<p>{escape(repr(self))}</p>{frame.to_html(float_format='{:.3f}'.format)}"


def accuracy_of_counts(
    counts: Ints, classes: Sequence[Any], unlabeled: Ints | None = None
) -> AccuracyReport:
    """Return the report of a confusion matrix.

    Parameters
    ----------
    counts : ndarray of shape (m, m), int64
        Rows of each true class that have each label.
    classes : sequence of m names or codes
    unlabeled : ndarray of shape (m,), int64, optional
        Rows of each true class without a label.

    Examples
    --------
    >>> accuracy_of_counts(np.array([[3, 1], [0, 4]]), ["oak", "ash"])
    Overall accuracy 0.875 (0.529 to 0.978), kappa 0.750, on 8 rows of 2 classes
    """
    counts = np.asarray(counts, dtype=np.int64)
    none = np.zeros(len(counts), np.int64) if unlabeled is None else np.asarray(unlabeled)
    right = np.diag(counts)
    truth, found = counts.sum(axis=1) + none, counts.sum(axis=0)
    n, hits = int(truth.sum()), int(right.sum())
    # Python integers: products of counts overflow.
    chance = sum(int(a) * int(b) for a, b in zip(truth, found, strict=True)) / n**2 if n else 1.0
    overall = hits / n if n else float("nan")
    with np.errstate(invalid="ignore", divide="ignore"):
        producers, users = right / truth, right / found
        f1 = 2 * right / (truth + found)
    return AccuracyReport(
        list(classes),
        counts,
        none,
        n,
        overall,
        wilson_interval(hits, n),
        (overall - chance) / (1 - chance) if chance < 1 else float("nan"),
        producers,
        users,
        f1,
        wilson_interval(right, truth),
        wilson_interval(right, found),
    )


def _as_text(values: Any, name: str) -> Array | None:
    """Return labels that are text, "" for none; None for others."""
    data = unwrap(values)
    if is_dask(data):
        return None
    whole = np.ma.asanyarray(data)
    if whole.dtype.kind not in "USO" or whole.ndim != 1:
        return None
    gone = np.ma.getmaskarray(whole)
    plain = np.ma.getdata(whole)
    if whole.dtype.kind == "O":
        # None and NaN are no labels; other objects are numbers or text.
        gone = gone | np.array([item is None or item != item for item in plain], dtype=bool)
        kinds = {isinstance(item, str) for item in plain[~gone]}
        if len(kinds) > 1:
            raise ValueError(f"{name} holds numbers and text; expected one kind of labels.")
        if kinds == {False}:
            return None
    return np.where(gone, "", plain.astype(str))


def accuracy_report(truth: Any, labels: Any) -> AccuracyReport:
    """Compare labels with known classes, by name or code.

    Parameters
    ----------
    truth : array-like or dask.array.Array of shape (n,)
        Known classes: whole numbers, or text for NumPy; -1, None and "" are no class, and
        such rows are left out.
    labels : array-like or dask.array.Array of shape (n,)
        Classes that were found, of the same kind; rows without a label count as wrong.

    Returns
    -------
    AccuracyReport

    Raises
    ------
    ValueError
        For vectors of different length, text beside numbers, where nothing is known, and
        where truth and labels have no class in common.

    See Also
    --------
    clustering_accuracy : For clusters without names, under the best matching.

    Notes
    -----
    One pass.  *To the client*: the table of the pairs that occur.

    Examples
    --------
    >>> found = accuracy_report([0, 0, 1, 1, -1], [0, 1, 1, 1, 0])
    >>> found.overall, found.producers.tolist(), found.users.round(3).tolist()
    (0.75, [0.5, 1.0], [1.0, 0.667])
    """
    one, other = _as_text(truth, "truth"), _as_text(labels, "labels")
    names: Array | None = None
    if one is not None and other is not None:
        names = np.unique(np.concatenate([one, other]))
        names = names[(names != "") & (names != str(_NONE))]
        truth, labels = _numbers(one, names), _numbers(other, names)
    elif one is not None or other is not None:
        which = "labels" if one is None else "truth"
        raise ValueError(
            f"{which} is text and the other is not; expected names in both, or codes in both."
        )
    known, found = as_label_vector(truth, "truth"), as_label_vector(labels, "labels")
    table = contingency_table(known, found)
    table = table[table[:, 0] != _NONE]
    if not len(table):
        raise ValueError("truth holds no class; expected one row at least that is not -1.")
    codes = np.unique(table[:, :2])
    codes = codes[codes != _NONE]
    if not np.intersect1d(table[:, 0], table[:, 1]).size:
        shown = codes if names is None else names[codes]
        raise ValueError(
            f"truth and labels have no class in common, of {shown[:10].tolist()}; expected the "
            "same codes or names. For clusters without names use clustering_accuracy."
        )
    counts = np.zeros((len(codes), len(codes)), np.int64)
    none = np.zeros(len(codes), np.int64)
    rows = np.searchsorted(codes, table[:, 0])
    told = table[:, 1] != _NONE
    counts[rows[told], np.searchsorted(codes, table[told, 1])] = table[told, 2]
    none[rows[~told]] = table[~told, 2]
    return accuracy_of_counts(counts, (codes if names is None else names[codes]).tolist(), none)


def _numbers(texts: Array, names: Array) -> Ints:
    """Places of texts among sorted names, -1 for none."""
    at = np.minimum(np.searchsorted(names, texts), max(len(names) - 1, 0))
    found = names[at] == texts if len(names) else np.zeros(len(texts), bool)
    return np.where(found, at, _NONE)

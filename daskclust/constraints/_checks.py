"""Constraints as a user states them: refused where they cannot be meant."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from daskclust.exceptions import ConstraintError

__all__ = ["check_labeled", "check_pairs", "check_weight", "integers", "scalar_or_one"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


def integers(values: ArrayLike, name: str, *, whole: bool = False) -> Ints:
    """``values`` as int64, whatever their shape; only with `whole` floats that are integers."""
    try:
        array = np.asarray(values)
    except ValueError as error:  # ragged
        raise ConstraintError(f"{name} is not an array of integers: {error}") from error
    if array.size == 0:
        return array.astype(np.int64)
    if array.ndim == 0 and array.dtype.kind == "O":  # a set, a generator
        raise ConstraintError(
            f"{name} is of type {type(values).__name__}; expected an array of integers. "
            f"Pass list({name})."
        )
    if array.dtype.kind == "O" and all(isinstance(v, int | np.integer) for v in array.flat):
        array = np.array(array.tolist())
    kind = array.dtype.kind
    if kind == "b":
        raise ConstraintError(
            f"{name} has dtype bool; expected row numbers or labels as integers. "
            f"For a mask, pass numpy.flatnonzero(mask)."
        )
    if kind == "f":
        integral = bool(np.all(np.isfinite(array)) and np.all(array == np.floor(array)))
        if integral and whole:
            return array.astype(np.int64)
        remedy = (
            f"The values are whole numbers: pass {name}.astype(numpy.int64)."
            if integral
            else "Some values are not whole numbers"
            + ("; mark rows without a label by -1, not NaN." if whole else ".")
        )
        raise ConstraintError(f"{name} has dtype {array.dtype}; expected integers. {remedy}")
    if kind not in "iu":
        raise ConstraintError(
            f"{name} has dtype {array.dtype}; expected integers. Encode names as numbers first."
        )
    if kind == "u" and int(array.max()) > np.iinfo(np.int64).max:
        raise ConstraintError(
            f"{name} holds {int(array.max())}; expected values below 2**63. Renumber them."
        )
    return array.astype(np.int64)


def check_pairs(pairs: ArrayLike | None, name: str, n_rows: int) -> Ints:
    """Pairs of ``name`` as an int64 (m, 2) array of row numbers in [0, n_rows)."""
    if pairs is None:
        return np.empty((0, 2), dtype=np.int64)
    array = integers(pairs, name)
    if array.size == 0 and (array.ndim == 1 or array.shape[1:] == (2,)):
        return np.empty((0, 2), dtype=np.int64)
    if array.ndim != 2 or array.shape[1] != 2:
        raise ConstraintError(
            f"{name} has shape {array.shape}; expected (m, 2), one pair of row numbers a line."
        )
    outside = ((array < 0) | (array >= n_rows)).any(axis=1)
    if outside.any():
        at = int(np.argmax(outside))
        i, j = array[at].tolist()
        raise ConstraintError(
            f"{name}[{at}] = ({i}, {j}) is out of range; expected row numbers in [0, {n_rows}). "
            "Row numbers count from 0 over all of X."
        )
    selves = array[:, 0] == array[:, 1]
    if selves.any():
        at = int(np.argmax(selves))
        row = int(array[at, 0])
        raise ConstraintError(
            f"{name}[{at}] = ({row}, {row}) links row {row} to itself; expected two different "
            "rows. Remove that pair."
        )
    return array


def check_weight(weight: float | ArrayLike | None, name: str, n_pairs: int) -> Floats:
    """Weights of ``name``, one a pair: finite and not negative."""
    if weight is None:
        return np.ones(n_pairs)
    try:
        array = np.asarray(weight)
        if array.dtype.kind not in "iuf":
            raise TypeError(f"dtype {array.dtype}")
        array = array.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise ConstraintError(
            f"{name} is not numeric ({error}); expected a number or one number a pair."
        ) from error
    if array.ndim > 1 or (array.ndim == 1 and array.size != n_pairs):
        raise ConstraintError(
            f"{name} has shape {array.shape}; expected a number or shape ({n_pairs},), one weight "
            f"for each of the {n_pairs} pairs."
        )
    wrong = ~(np.isfinite(array) & (array >= 0))
    if wrong.any():
        where = "" if array.ndim == 0 else f"[{int(np.argmax(wrong))}]"
        value = float(array) if array.ndim == 0 else float(array[int(np.argmax(wrong))])
        raise ConstraintError(
            f"{name}{where} = {value}; expected finite weights >= 0. "
            "A weight of 0 switches a pair off; for constraints that must hold use COPKMeans."
        )
    return np.full(n_pairs, float(array)) if array.ndim == 0 else array


def check_labeled(labeled: tuple[ArrayLike, ArrayLike] | None, n_rows: int) -> tuple[Ints, Ints]:
    """Sorted labeled rows and their labels; -1 entries are dropped."""
    empty = np.empty(0, dtype=np.int64)
    if labeled is None:
        return empty, empty
    rows, labels = integers(labeled[0], "rows of y"), integers(labeled[1], "y", whole=True)
    if rows.ndim != 1 or rows.shape != labels.shape:
        raise ConstraintError(
            f"y = (rows, labels) has shapes {rows.shape} and {labels.shape}; expected two arrays "
            "of one length: row numbers, and a label for each."
        )
    outside = (rows < 0) | (rows >= n_rows)
    if outside.any():
        at = int(np.argmax(outside))
        raise ConstraintError(
            f"Labeled row number {at} is {int(rows[at])}; expected row numbers in [0, {n_rows}). "
            "Row numbers count from 0 over all of X."
        )
    if (labels < -1).any():
        at = int(np.argmax(labels < -1))
        raise ConstraintError(
            f"The label of row {int(rows[at])} is {int(labels[at])}; expected labels >= 0, or -1 "
            "for an unlabeled row. Renumber the classes."
        )
    known = labels >= 0
    rows, labels = rows[known], labels[known]
    order = np.argsort(rows, kind="stable")
    rows, labels = rows[order], labels[order]
    repeats = np.flatnonzero(rows[1:] == rows[:-1])
    if repeats.size:
        row, a, b = int(rows[repeats[0]]), int(labels[repeats[0]]), int(labels[repeats[0] + 1])
        raise ConstraintError(
            f"Row {row} is labeled more than once ({a}, {b}); expected one label a row. "
            "Remove the repeated rows."
        )
    return rows, labels


def scalar_or_one(weight: float | ArrayLike | None) -> float:
    """Weight of implied pairs: a scalar weight, and 1 where weights are per explicit pair."""
    if weight is None or np.ndim(weight) > 0:
        return 1.0
    return float(np.asarray(weight, dtype=np.float64))

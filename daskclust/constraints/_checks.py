"""Constraints as a user states them: refused where they cannot be meant."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from daskclust.exceptions import ConstraintError

__all__ = ["check_pairs", "check_weight", "scalar_or_one"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


def _refuse_mask(values: ArrayLike, name: str) -> None:
    if np.ma.is_masked(values):
        # NumPy would go on with what is below the mask.
        raise ConstraintError(
            f"{name} is a masked array with masked values; expected all of them. Leave such pairs "
            "out."
        )


def _integers(values: ArrayLike, name: str) -> Ints:
    """``values`` as int64, whatever their shape."""
    _refuse_mask(values, name)
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
            f"{name} has dtype bool; expected row numbers as integers. For a mask, pass "
            "numpy.flatnonzero(mask)."
        )
    if kind == "f":
        remedy = (
            f"The values are whole numbers: pass {name}.astype(numpy.int64)."
            if np.isfinite(array).all() and (array == np.floor(array)).all()
            else "Some values are not whole numbers."
        )
        raise ConstraintError(f"{name} has dtype {array.dtype}; expected integers. {remedy}")
    if kind not in "iu":
        raise ConstraintError(f"{name} has dtype {array.dtype}; expected row numbers as integers.")
    if kind == "u" and int(array.max()) > np.iinfo(np.int64).max:
        raise ConstraintError(f"{name} holds {int(array.max())}; expected values below 2**63.")
    return array.astype(np.int64)


def check_pairs(pairs: ArrayLike | None, name: str, n_rows: int) -> Ints:
    """Pairs of ``name`` as an int64 (m, 2) array of row numbers in [0, n_rows)."""
    if pairs is None:
        return np.empty((0, 2), dtype=np.int64)
    array = _integers(pairs, name)
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
    _refuse_mask(weight, name)
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


def scalar_or_one(weight: float | ArrayLike | None) -> float:
    """Weight of implied pairs: a scalar weight, and 1 where weights are per explicit pair."""
    if weight is None or np.ndim(weight) > 0:
        return 1.0
    return float(np.asarray(weight, dtype=np.float64))

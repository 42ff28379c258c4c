"""The first pass over any data: is it usable, where does it lie, which rows to start from.

One sweep carries what would otherwise be passes of their own: the check for NaN
and infinity, weights, means, variances and ranges of the columns, a weighted
sample of rows, and the moments of labeled rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daskclust._types import Array, Floats
from daskclust.kernels.moments import block_moments, first_nonfinite
from daskclust.kernels.rng import race_keys, smallest
from daskclust.kernels.survey import row_hash
from daskclust.reduction.class_moments import (
    ClassStatistics,
    RowLabels,
    add_classes,
    class_fields,
    class_statistics,
)
from daskclust.reduction.contract import Field, Partial, Reduction, RowBlock, top_dtype

__all__ = [
    "HEAVIEST",
    "LARGEST_VALUE",
    "LIGHTEST",
    "LOG_LARGEST",
    "NO_ROW",
    "SURVEY",
    "Survey",
    "SurveyRequest",
    "add_hash",
    "draw_picks",
    "found_in_any",
    "note_bad",
    "note_idle",
    "pick_rows",
    "survey_fields",
    "usable_weight",
]

NO_ROW = np.iinfo(np.int64).max
#: Weights between which neither their inverses nor their sums leave the range of float64.
LIGHTEST, HEAVIEST = 1e-140, 1e140
#: Squares of larger values, summed over rows and features, may overflow.
LARGEST_VALUE = 1e140
#: Logarithm of the largest product of a weight and a squared value.
LOG_LARGEST = float(np.log(1e300))


@dataclass(frozen=True)
class SurveyRequest:
    """The request of the first pass.

    Parameters
    ----------
    seeds : tuple of int
        One seed for each restart.
    n_picks : int
        Rows drawn for each seed, with probability proportional to their weight.
    labels : RowLabels, optional
        Labeled rows, which are not drawn; the moments of their classes are worked
        out.
    hashed : bool
        Whether the rows are hashed, which takes about half as long again for rows
        in memory: for what must know the data again.
    """

    n_features: int
    seeds: tuple[int, ...] = ()
    n_picks: int = 0
    labels: RowLabels | None = None
    hashed: bool = False


@dataclass(frozen=True)
class Survey:
    """The result of the first pass.

    Attributes
    ----------
    weight : float
        Total weight of the rows.
    mean, variance, low, high : ndarray of shape (p,), float64
        Weighted moments and ranges of the columns; rows of weight 0 do not count.
    idle : ndarray of shape (p,), float64
        Largest absolute values of the columns over rows of weight 0, which get labels,
        too; -inf without any.
    first_bad : tuple of (int, int), or None
        Row and column of the first NaN or infinity.
    bad_is_nan : bool
        Which of the two it is.
    bad_weight_row : int, or None
        First row whose weight is NaN, negative, or neither 0 nor between
        :data:`LIGHTEST` and :data:`HEAVIEST`.
    picks : structured ndarray of shape (n_seeds, n_picks)
        The drawn rows (``row == -1`` where there were not enough).
    classes : ClassStatistics
        Of the labeled rows; of no class where there are none.
    hash : int, or None
        Of all rows (:func:`daskclust.kernels.survey.row_hash`), where it was asked for.
    """

    weight: float
    mean: Floats
    variance: Floats
    low: Floats
    high: Floats
    idle: Floats
    first_bad: tuple[int, int] | None
    bad_is_nan: bool
    bad_weight_row: int | None
    picks: Array
    classes: ClassStatistics
    hash: int | None


def pick_rows(
    rows: RowBlock,
    keys: Floats,
    count: int,
    places: NDArray[np.intp] | None = None,
) -> Array:
    """Return records of the ``count`` rows of smallest key of one block, padded with none.

    Parameters
    ----------
    keys : ndarray of shape (n,), float64
        Infinite for rows that must not be taken.
    places : ndarray of shape (n,), optional
        Places of these rows, ascending; all rows of the block when omitted.

    Returns
    -------
    structured ndarray of shape (count,), of :func:`top_dtype`
    """
    chosen = smallest(keys, count)
    out: Array = Field((count,), "top", top_dtype(rows.x.shape[1])).identity()
    out["key"][: len(chosen)] = keys[chosen]
    if places is not None:
        chosen = places[chosen]
    out["row"][: len(chosen)] = rows.numbers(chosen)
    out["x"][: len(chosen)] = rows.x[chosen]
    return out


def survey_fields(state: SurveyRequest, n_sums: int) -> Mapping[str, Field]:
    """Return the fields of any first pass, with so many plain sums."""
    p, picks = state.n_features, (len(state.seeds), state.n_picks)
    return _fields_of(p, n_sums, picks, state.hashed)


@lru_cache
def _fields_of(p: int, n_sums: int, picks: tuple[int, int], hashed: bool) -> Mapping[str, Field]:
    return {
        **({"hash": Field((1,), "count", np.uint64)} if hashed else {}),
        "sums": Field((2, n_sums)),
        "moments": Field((3, p), "moments"),
        "low": Field((p,), "min"),
        "high": Field((p,), "max"),
        "idle": Field((p,), "max"),
        # Row and column packed into one integer would overflow: smallest row, then its column.
        "bad": Field((1,), "top", top_dtype(1)),
        "bad_weight": Field((), "min", np.int64),
        "picks": Field(picks, "top", top_dtype(p)),
    }


def usable_weight(rows: RowBlock, partial: Partial) -> Floats | None:
    """Return the weights, 0 for invalid ones; the first such row goes into the partial."""
    weight = rows.weight
    if weight is None:
        return None
    # NaN compares to nothing.
    usable = (weight == 0) | ((weight >= LIGHTEST) & (weight <= HEAVIEST))
    if usable.all():
        return weight
    partial["bad_weight"] = rows.numbers(np.flatnonzero(~usable)[:1])[0].reshape(())
    return np.where(usable, weight, 0.0)


def add_hash(partial: Partial, rows: RowBlock) -> None:
    """Hash the rows, where that was asked for."""
    if "hash" in partial:
        partial["hash"] = np.array([row_hash(rows.x, rows.weight, rows.runs)])


def note_bad(partial: Partial, rows: RowBlock, row: int, code: int) -> None:
    """Put the first value that must not be there into the partial."""
    partial["bad"]["row"] = rows.numbers(np.array([row]))
    partial["bad"]["key"] = partial["bad"]["row"]
    partial["bad"]["x"] = code


def note_idle(partial: Partial, rows: RowBlock, weight: Floats | None) -> None:
    """Put the sizes of values in rows of weight 0 into the partial, without NaN."""
    if weight is None or weight.all():
        return
    sizes = np.abs(rows.x[weight == 0]).astype(np.float64)
    partial["idle"] = np.fmax.reduce(sizes, axis=0, initial=0.0)


def draw_picks(
    partial: Partial,
    rows: RowBlock,
    state: SurveyRequest,
    mass: Floats,
) -> None:
    """Draw the rows to start from, with probability proportional to their mass."""
    for r, seed in enumerate(state.seeds):
        keys = race_keys(rows.uniforms(seed, 0), mass)
        partial["picks"][r] = pick_rows(rows, keys, state.n_picks)


def found_in_any(partial: Partial) -> dict[str, Any]:
    """Return the attributes of a :class:`Survey` that every first pass finds alike."""
    bad, weightless = partial["bad"][0], int(partial["bad_weight"])
    # The number of the column, from 1; negative for NaN.
    code = int(bad["x"][0])
    return {
        "low": partial["low"],
        "high": partial["high"],
        "idle": partial["idle"],
        "first_bad": None if bad["row"] < 0 else (int(bad["row"]), abs(code) - 1),
        "bad_is_nan": code < 0,
        "bad_weight_row": None if weightless == NO_ROW else weightless,
        "picks": partial["picks"],
        "hash": int(partial["hash"][0]) if "hash" in partial else None,
    }


def _fields(state: SurveyRequest) -> Mapping[str, Field]:
    p = state.n_features
    return {**survey_fields(state, p + 1), **class_fields(state.labels, p)}


def _block(rows: RowBlock, state: SurveyRequest) -> Partial:
    x = rows.x
    partial = {name: field.identity() for name, field in _fields(state).items()}
    weight = usable_weight(rows, partial)
    found = block_moments(x, weight, rows.segments())
    partial["sums"] = np.stack([found.hi, found.lo])
    partial["moments"] = found.moments
    partial["low"], partial["high"] = found.low, found.high
    note_idle(partial, rows, weight)
    if not found.finite:
        row, column = first_nonfinite(x)
        # NaN or infinity, by the sign of the column number.
        note_bad(partial, rows, row, -column - 1 if np.isnan(x[row, column]) else column + 1)
        return partial
    add_hash(partial, rows)
    add_classes(partial, rows, weight, state.labels)
    if state.n_picks:
        mass = np.ones(len(x)) if weight is None else weight
        if state.labels is not None:
            mass = mass.copy()
            for places, _ in state.labels.by_chunk(rows):
                mass[places] = 0.0
        draw_picks(partial, rows, state, mass)
    return partial


def _finalize(partial: Partial, state: SurveyRequest) -> Survey:
    sums, (weight, _, squares) = partial["sums"][0], partial["moments"]
    total = float(sums[-1])
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = sums[:-1] / total
        variance = squares / weight
    return Survey(
        weight=total,
        mean=mean,
        variance=variance,
        classes=class_statistics(partial),
        **found_in_any(partial),
    )


SURVEY = Reduction("survey", _fields, _block, _finalize)

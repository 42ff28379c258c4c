"""The first pass over data with missing values: what there is, and which rows to start from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from daskclust.kernels.mixtures.observed_moments import first_infinite, observed_moments
from daskclust.reduction.class_moments import ClassStatistics
from daskclust.reduction.contract import Field, Partial, Reduction, RowBlock
from daskclust.reduction.survey import (
    Survey,
    SurveyRequest,
    add_hash,
    draw_picks,
    found_in_any,
    note_bad,
    note_idle,
    survey_fields,
    usable_weight,
)

__all__ = ["OBSERVED", "ObservedSurvey", "begin_partial"]


@dataclass(frozen=True)
class ObservedSurvey(Survey):
    """What the first pass brought home, over the values that are there.

    Attributes
    ----------
    observed : ndarray of shape (p,), float64
        Weight of the values of each column.
    n_informed : int
        Rows of positive weight that have any value.
    """

    observed: NDArray[np.float64]
    n_informed: int


def _fields(state: SurveyRequest) -> Mapping[str, Field]:
    return survey_fields(state, 2 * state.n_features + 2)


def begin_partial(
    rows: RowBlock, fields: Mapping[str, Field]
) -> tuple[Partial, NDArray[np.float64] | None, bool]:
    """Begin the partial of a block in which NaN means missing.

    Returns
    -------
    partial : dict of str to ndarray
        With the hash of the rows, values in rows of weight 0, and what must not be there.
    weight : ndarray of shape (n,), float64, or None
        0 for weights that are none.
    usable : bool
        Whether no value is infinite.
    """
    partial = {name: field.identity() for name, field in fields.items()}
    weight = usable_weight(rows, partial)
    row, column = first_infinite(rows.x)
    if row >= 0:
        note_bad(partial, rows, row, column + 1)
        return partial, weight, False
    add_hash(partial, rows)
    note_idle(partial, rows, weight)
    return partial, weight, True


def _block(rows: RowBlock, state: SurveyRequest) -> Partial:
    x = rows.x
    partial, weight, usable = begin_partial(rows, _fields(state))
    if not usable:
        return partial
    found = observed_moments(x, weight, rows.segments())
    partial["sums"] = np.stack([found.hi, found.lo])
    partial["moments"] = found.moments
    partial["low"], partial["high"] = found.low, found.high
    if state.n_picks:
        mass = np.ones(len(x)) if weight is None else weight.copy()
        # A row without any value is nowhere: nothing starts there.
        mass[np.isnan(x).all(axis=1)] = 0.0
        draw_picks(partial, rows, state, mass)
    return partial


def _finalize(partial: Partial, state: SurveyRequest) -> ObservedSurvey:
    p = state.n_features
    sums, (_, _, squares) = partial["sums"][0], partial["moments"]
    observed = sums[p : 2 * p]
    with np.errstate(invalid="ignore", divide="ignore"):
        mean, variance = sums[:p] / observed, squares / observed
    return ObservedSurvey(
        weight=float(sums[2 * p]),
        mean=mean,
        variance=variance,
        classes=ClassStatistics(np.zeros(0), np.zeros((0, p)), np.zeros(0)),
        observed=observed,
        n_informed=int(sums[2 * p + 1]),
        **found_in_any(partial),
    )


#: As :data:`daskclust.reduction.SURVEY`, for data in which NaN means missing.
OBSERVED = Reduction("observed", _fields, _block, _finalize)

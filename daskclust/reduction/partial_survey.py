"""The first pass over data in which NaN means missing.

As :data:`daskclust.reduction.SURVEY`, of what is observed.  A block without missing values
takes its very way, so that data without any are found the same to the last bit.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from daskclust._types import Floats
from daskclust.kernels.moments import block_moments, observed_class_moments, observed_moments
from daskclust.kernels.survey import find_gaps
from daskclust.reduction.class_moments import add_classes, class_fields, class_statistics
from daskclust.reduction.contract import Field, Partial, Reduction, RowBlock
from daskclust.reduction.survey import (
    NO_ROW,
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

__all__ = ["PARTIAL_SURVEY", "PartialSurvey"]


@dataclass(frozen=True)
class PartialSurvey(Survey):
    """The result of the first pass, over the values that are there.

    Attributes
    ----------
    observed : ndarray of shape (p,), float64
        Weight of the values of each column.
    n_incomplete : int
        Rows that miss a value, those of weight 0 included.
    n_unobserved : int
        Rows that have none at all.
    first_unobserved : int, or None
        The first of these.
    informed : float
        Weight of the others.
    n_informed : int
        Number of the others that have a positive weight.
    """

    observed: Floats
    n_incomplete: int
    n_unobserved: int
    first_unobserved: int | None
    informed: float
    n_informed: int


def _fields(state: SurveyRequest) -> Mapping[str, Field]:
    p = state.n_features
    return {
        **survey_fields(state, 2 * p + 2),
        **class_fields(state.labels, p, missing=True),
        "rows": Field((3,), "count", np.int64),
        "first_unobserved": Field((), "min", np.int64),
    }


def _block(rows: RowBlock, state: SurveyRequest) -> Partial:
    # Chunk by chunk: which chunks were joined does not show in the way that each of them takes.
    chunks = [
        RowBlock(rows.x[at], None if rows.weight is None else rows.weight[at], (run,))
        for at, run in zip(rows.slices(), rows.runs, strict=True)
    ]
    parts = [_chunk(chunk, state) for chunk in chunks]
    return functools.reduce(lambda a, b: PARTIAL_SURVEY.combine(a, b, state), parts)


def _chunk(rows: RowBlock, state: SurveyRequest) -> Partial:
    x, p = rows.x, state.n_features
    partial = {name: field.identity() for name, field in _fields(state).items()}
    weight = usable_weight(rows, partial)
    missing, row, column = find_gaps(x)
    if row >= 0:
        note_bad(partial, rows, row, column + 1)
        return partial
    add_hash(partial, rows)
    note_idle(partial, rows, weight)
    incomplete, gone = missing > 0, missing == p
    if incomplete.any():
        found = observed_moments(x, weight, rows.segments())
        sums = np.stack([found.hi, found.lo])
    else:
        whole = block_moments(x, weight, rows.segments())
        sums = np.stack(
            [np.concatenate([s[:p], np.repeat(s[p:], p), s[p:], [0.0]]) for s in whole[:2]]
        )
        found = whole  # type: ignore[assignment]  # the fields below are the same
    mass = np.ones(len(x)) if weight is None else weight
    # The weight of the rows that are somewhere, in the place of their number.
    sums[:, -1] = sums[:, -2] if not gone.any() else (mass[~gone].sum(), 0.0)
    partial["sums"], partial["moments"] = sums, found.moments
    partial["low"], partial["high"] = found.low, found.high
    partial["rows"] = np.array([incomplete.sum(), gone.sum(), (~gone & (mass > 0)).sum()])
    if gone.any():
        first = rows.numbers(np.flatnonzero(gone)[:1])[0]
        partial["first_unobserved"] = np.asarray(first).reshape(())
    add_classes(partial, rows, weight, state.labels, moments=observed_class_moments, empty=gone)
    if state.n_picks:
        mass = np.where(gone, 0.0, mass)
        if state.labels is not None:
            for places, _ in state.labels.by_chunk(rows):
                mass[places] = 0.0
        draw_picks(partial, rows, state, mass)
    return partial


def _finalize(partial: Partial, state: SurveyRequest) -> PartialSurvey:
    p = state.n_features
    sums, (weight, _, squares) = partial["sums"][0], partial["moments"]
    observed, total = sums[p : 2 * p], float(sums[2 * p])
    first = int(partial["first_unobserved"])
    with np.errstate(invalid="ignore", divide="ignore"):
        mean, variance = sums[:p] / observed, squares / weight
    return PartialSurvey(
        weight=total,
        mean=mean,
        variance=variance,
        classes=class_statistics(partial),
        observed=observed,
        n_incomplete=int(partial["rows"][0]),
        n_unobserved=int(partial["rows"][1]),
        first_unobserved=None if first == NO_ROW else first,
        informed=float(sums[2 * p + 1]),
        n_informed=int(partial["rows"][2]),
        **found_in_any(partial),
    )


#: Observed values of the columns, rows to start from, and the classes of labeled rows.
PARTIAL_SURVEY = Reduction("partial-survey", _fields, _block, _finalize)

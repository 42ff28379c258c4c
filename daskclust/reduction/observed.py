"""The first pass over data with missing values: what there is, and which rows to start from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from daskclust.kernels.observed import first_infinite, observed_moments
from daskclust.kernels.sampling import race_keys
from daskclust.reduction.classes import ClassStatistics
from daskclust.reduction.contract import Field, Partial, Reduction, RowBlock, top_dtype
from daskclust.reduction.survey import Survey, SurveyRequest, pick_rows

__all__ = ["OBSERVED", "ObservedSurvey"]

_NO_ROW = np.iinfo(np.int64).max


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

    @property
    def complete(self) -> bool:
        """Whether nothing is missing in rows of positive weight, but for rounding."""
        return bool((self.observed >= self.weight * (1 - 1e-12)).all())


def _fields(state: SurveyRequest) -> Mapping[str, Field]:
    p = state.n_features
    return {
        "sums": Field((2, 2 * p + 2)),
        "moments": Field((3, p), "moments"),
        "low": Field((p,), "min"),
        "high": Field((p,), "max"),
        "bad": Field((1,), "top", top_dtype(1)),
        "bad_weight": Field((), "min", np.int64),
        "picks": Field((len(state.seeds), state.n_picks), "top", top_dtype(p)),
    }


def _block(rows: RowBlock, state: SurveyRequest) -> Partial:
    x, weight, _ = rows
    partial = {name: field.identity() for name, field in _fields(state).items()}
    if weight is not None:
        usable = np.isfinite(weight) & (weight >= 0)
        if not usable.all():
            partial["bad_weight"] = rows.numbers(np.flatnonzero(~usable)[:1])[0].reshape(())
            weight = np.where(usable, weight, 0.0)
    row, column = first_infinite(x)
    if row >= 0:
        partial["bad"]["row"] = rows.numbers(np.array([row]))
        partial["bad"]["key"] = partial["bad"]["row"]
        partial["bad"]["x"] = column + 1
        return partial
    found = observed_moments(x, weight, rows.segments())
    partial["sums"] = np.stack([found.hi, found.lo])
    partial["moments"] = found.moments
    partial["low"], partial["high"] = found.low, found.high
    if state.n_picks:
        mass = np.ones(len(x)) if weight is None else weight.copy()
        # A row without any value is nowhere: nothing starts there.
        mass[np.isnan(x).all(axis=1)] = 0.0
        for r, seed in enumerate(state.seeds):
            keys = race_keys(rows.uniforms(seed, 0), mass)
            partial["picks"][r] = pick_rows(rows, keys, state.n_picks)
    return partial


def _finalize(partial: Partial, state: SurveyRequest) -> ObservedSurvey:
    p = state.n_features
    sums, (_, _, squares) = partial["sums"][0], partial["moments"]
    observed = sums[p : 2 * p]
    bad = partial["bad"][0]
    wrong = int(partial["bad_weight"])
    with np.errstate(invalid="ignore", divide="ignore"):
        mean, variance = sums[:p] / observed, squares / observed
    return ObservedSurvey(
        weight=float(sums[2 * p]),
        mean=mean,
        variance=variance,
        low=partial["low"],
        high=partial["high"],
        first_bad=None if bad["row"] < 0 else (int(bad["row"]), int(bad["x"][0]) - 1),
        bad_is_nan=False,
        bad_weight_row=None if wrong == _NO_ROW else wrong,
        picks=partial["picks"],
        classes=ClassStatistics(np.zeros(0), np.zeros((0, p)), np.zeros(0)),
        observed=observed,
        n_informed=int(sums[2 * p + 1]),
    )


#: As :data:`daskclust.reduction.SURVEY`, for data in which NaN means missing.
OBSERVED = Reduction("observed", _fields, _block, _finalize)

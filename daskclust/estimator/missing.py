"""Missing values in the k-means family: the parameter ``missing``, and what data must not hold."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daskclust._warnings import warn
from daskclust.estimator.fitting import FirstPass
from daskclust.estimator.parameters import check_choice
from daskclust.estimator.values import check_survey, check_values, nonfinite_message
from daskclust.exceptions import MissingValuesWarning
from daskclust.kernels.mixtures.observed_moments import first_infinite
from daskclust.kernels.moments import first_nonfinite
from daskclust.reduction import Survey
from daskclust.reduction.partial_survey import PARTIAL_SURVEY, PartialSurvey

__all__ = [
    "check_block",
    "check_columns",
    "check_missing",
    "check_observed_survey",
    "check_observed_values",
    "infinite_message",
    "is_partial",
    "misses_values",
    "observing",
]

#: Starts that look at rows as they are.
_COMPLETE_STARTS = ("dkm++", "robin")


def is_partial(estimator: Any) -> bool:
    """Whether NaN means missing to an estimator of the family."""
    return getattr(estimator, "missing", "error") == "partial"


def check_missing(estimator: Any) -> None:
    """Check the parameter ``missing``, where there is one, and what cannot go with it.

    Raises
    ------
    ValueError
        For other values, and starts and metrics that need complete rows.
    """
    if not hasattr(estimator, "missing"):
        return
    check_choice(estimator.missing, "missing", ("error", "partial"))
    if is_partial(estimator) and getattr(estimator, "metric", "euclidean") != "euclidean":
        raise ValueError(
            f"metric={estimator.metric!r} needs complete rows and cannot go with missing="
            '"partial"; use metric="euclidean", on rows that are scaled as they should be.'
        )
    init = getattr(estimator, "init", None)
    if is_partial(estimator) and isinstance(init, str) and init in _COMPLETE_STARTS:
        raise ValueError(
            f'init={init!r} compares densities of complete rows and cannot go with missing="'
            'partial"; use "k-means||", "k-means++", "random", "maximin" or an array.'
        )


def infinite_message(row: int, column: int) -> str:
    """Say where the first infinity is, among rows in which NaN means missing."""
    return (
        f"Input X contains infinity: the first at row {row}, column {column}. NaN means missing; "
        "infinity does not. Replace it by NaN if the value is not known."
    )


def check_block(x: NDArray[Any], start: int, *, missing: bool) -> None:
    """Raise for the first infinity of a block, and the first NaN unless values may be missing.

    Parameters
    ----------
    x : ndarray of shape (n, p)
    start : int
        Number of its first row.
    missing : bool
    """
    row, column = first_infinite(x) if missing else first_nonfinite(x)
    if row < 0:
        return
    if missing:
        raise ValueError(infinite_message(start + row, column))
    raise ValueError(nonfinite_message(bool(np.isnan(x[row, column])), start + row, column))


def check_columns(observed: NDArray[np.float64], *, informed: bool) -> None:
    """Raise for columns without any value.

    Parameters
    ----------
    observed : ndarray of shape (p,), float64
        Weight of the values of each column.
    informed : bool
        Whether any row has a value.
    """
    if not informed:
        raise ValueError("X has no value at all: every entry is NaN.")
    empty = np.flatnonzero(observed <= 0)
    if len(empty):
        raise ValueError(
            f"Column {empty[0]} of X has no value at all: every entry is NaN. Drop the columns "
            f"{empty.tolist()}."
        )


def check_observed_values(survey: PartialSurvey) -> None:
    """Raise for infinities, values too large and unusable weights, where NaN means missing."""
    if survey.first_bad is not None:
        raise ValueError(infinite_message(*survey.first_bad))
    check_values(survey)


def check_observed_survey(survey: PartialSurvey) -> None:
    """Raise for what no fit can use, columns without any value included."""
    check_observed_values(survey)
    if survey.weight > 0:
        check_columns(survey.observed, informed=survey.informed > 0)
    check_survey(survey)


def _check(survey: PartialSurvey) -> None:
    check_observed_survey(survey)
    if survey.n_unobserved:
        warn(
            f"{survey.n_unobserved} row(s) of X have no value at all, the first is row "
            f"{survey.first_unobserved}: they are left out, and their label is -1.",
            MissingValuesWarning,
        )


def misses_values(survey: Survey) -> bool:
    """Whether the first pass found rows that miss a value."""
    return isinstance(survey, PartialSurvey) and survey.n_incomplete > 0


def observing(estimator: Any, first: FirstPass) -> FirstPass:
    """Return the first pass as ``missing`` wants it."""
    if not is_partial(estimator):
        return first
    return replace(first, reduction=PARTIAL_SURVEY, check=_check)

"""Opening data in which NaN means missing: the first pass, and what it must not find."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daskclust.engine import Rows, open_rows
from daskclust.kernels.mixtures.observed_moments import first_infinite
from daskclust.reduction.observed_survey import OBSERVED, ObservedSurvey
from daskclust.reduction.survey import SurveyRequest

__all__ = [
    "FillMissing",
    "OpenIncomplete",
    "check_finite_block",
    "infinite_value",
    "open_incomplete",
]

Float = NDArray[np.float64]


@dataclass(frozen=True)
class OpenIncomplete:
    """Data after their first pass.

    Attributes
    ----------
    X : ndarray or dask.array.Array
        As checked; what lazy results refer to.
    rows : Rows
    survey : ObservedSurvey
    seeds : tuple of int
        One for each restart.
    """

    X: Any
    rows: Rows
    survey: ObservedSurvey
    seeds: tuple[int, ...]


@dataclass(frozen=True)
class FillMissing:
    """Put a value in the place of each column's missing ones; travels to workers.

    Parameters
    ----------
    value : ndarray of shape (p,), float64
    """

    value: Float

    def __call__(self, x: NDArray[Any]) -> NDArray[Any]:
        """Return the rows, filled."""
        gone = np.isnan(x)
        return np.where(gone, self.value.astype(x.dtype), x) if gone.any() else x


def infinite_value(row: int, column: int) -> ValueError:
    """Return the error for an infinite value."""
    return ValueError(
        f"Input X contains infinity: the first at row {row}, column {column}. NaN means missing; "
        "infinity does not. Replace it by NaN if the value is not known."
    )


def check_finite_block(x: NDArray[Any], start: int) -> None:
    """Raise for the first infinity of a block whose first row is ``start``."""
    row, column = first_infinite(x)
    if row >= 0:
        raise infinite_value(start + row, column)


def check_survey(survey: ObservedSurvey, n_components: int, name: str) -> None:
    """Raise for what a first pass found wrong, naming the first fault.

    Parameters
    ----------
    survey : ObservedSurvey
    n_components : int
        Rows that are needed at least.
    name : str
        The parameter that asks for them.
    """
    if survey.first_bad is not None:
        raise infinite_value(*survey.first_bad)
    if survey.bad_weight_row is not None:
        raise ValueError(
            f"sample_weight of row {survey.bad_weight_row} is NaN, infinite or negative; "
            "weights must be finite and non-negative."
        )
    if survey.weight <= 0:
        raise ValueError("All sample weights are zero; at least one must be positive.")
    empty = np.flatnonzero(survey.observed <= 0)
    if survey.n_informed == 0:
        raise ValueError("X has no value at all: every entry is NaN.")
    if len(empty):
        raise ValueError(
            f"Column {empty[0]} of X has no value at all: every entry is NaN. Drop the columns "
            f"{empty.tolist()}."
        )
    if survey.n_informed < n_components:
        raise ValueError(
            f"n_samples={survey.n_informed} should be >= {name}={n_components}: so many rows have "
            f"a weight and any value that is not NaN. Ask for fewer."
        )


def open_incomplete(
    X: Any,
    weight: Any,
    *,
    seeds: tuple[int, ...],
    n_picks: int,
    n_components: int,
    name: str,
    hashed: bool = False,
) -> OpenIncomplete:
    """Bind checked data, and make the first pass.

    Parameters
    ----------
    X : ndarray or dask.array.Array of shape (n, p)
    weight : None, ndarray or dask.array.Array of shape (n,)
    seeds : tuple of int
        One for each restart.
    n_picks : int
        Rows drawn for each seed.
    n_components, name
        As of :func:`check_survey`.
    hashed : bool, default=False
        Whether the rows are hashed, for a checkpoint.
    """
    rows = open_rows(X, weight)
    if rows.n_rows == 0:
        raise ValueError(
            f"Found array with 0 sample(s) (shape=(0, {rows.n_features})) while a minimum "
            "of 1 is required."
        )
    survey: ObservedSurvey = rows.reduce(
        OBSERVED, SurveyRequest(rows.n_features, seeds, n_picks, hashed=hashed)
    )
    check_survey(survey, n_components, name)
    return OpenIncomplete(X, rows, survey, seeds)

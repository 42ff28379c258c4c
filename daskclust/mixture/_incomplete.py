"""Data in which NaN means missing: the first pass, and what it must not find."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daskclust.estimator.fitting import FirstPass
from daskclust.estimator.values import check_survey
from daskclust.kernels.mixtures.observed_moments import first_infinite
from daskclust.reduction.observed_survey import OBSERVED, ObservedSurvey

__all__ = ["FillMissing", "check_finite_block", "infinite_value", "observed_pass"]

Float = NDArray[np.float64]


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


def check_observed(survey: ObservedSurvey, n_components: int, name: str) -> None:
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
    check_survey(survey)
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


def observed_pass(
    n_components: int, name: str, *, seeds: tuple[int, ...] = (), n_picks: int = 0
) -> FirstPass:
    """Return the first pass over data in which NaN means missing.

    Parameters
    ----------
    n_components, name
        As of :func:`check_observed`.
    seeds : tuple of int
        One for each restart.
    n_picks : int
        Rows drawn for each seed.
    """
    check = partial(check_observed, n_components=n_components, name=name)
    return FirstPass(seeds, n_picks, reduction=OBSERVED, check=check)

"""First pass over incomplete data, and predictions for their rows from a fitted mixture."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daskclust.core.array_types import Floats
from daskclust.core.estimator.fit_loop import FirstPass
from daskclust.core.estimator.validation import check_survey
from daskclust.core.reduction.survey import PARTIAL_SURVEY, PartialSurvey
from daskclust.mixture.densities import Mixtures
from daskclust.mixture.expectation import impute, posteriors


def _check(survey: PartialSurvey, n_components: int, name: str, names: Any = None) -> None:
    check_survey(survey, None, names)
    if survey.n_informed < n_components:
        raise ValueError(
            f"n_samples={survey.n_informed} should be >= {name}={n_components}; n_samples counts "
            f"rows with a positive weight and at least one value. Use a smaller {name}."
        )


def observed_pass(
    n_components: int, name: str, *, seeds: tuple[int, ...] = (), n_picks: int = 0
) -> FirstPass:
    """Return the first pass over data in which NaN is a missing value.

    It fails if fewer than ``n_components`` rows have values.  ``name`` is the name of the parameter
    with this number.  ``n_picks`` rows are drawn for each seed.
    """
    check = partial(_check, n_components=n_components, name=name)
    return FirstPass(seeds, n_picks, reduction=PARTIAL_SURVEY, check=check)


@dataclass(frozen=True)
class MixtureFunction:
    """Function that returns labels, posteriors, likelihoods or imputed values of rows.

    The likelihood of a row is its mean log-likelihood over the models.
    """

    mixtures: Mixtures
    shift: Floats
    output: str

    def __call__(self, x: NDArray[Any]) -> NDArray[Any]:
        if self.output == "imputed":
            return impute(x, self.mixtures, self.shift)
        resp, total = posteriors(x, self.mixtures, self.shift)
        if self.output == "labels":
            return np.argmax(resp, axis=0).astype(np.int32)
        return resp.T.astype(x.dtype) if self.output == "posteriors" else total.mean(axis=0)

"""Data in which NaN means missing: the first pass, and what it must not find."""

from __future__ import annotations

from functools import partial

from daskclust.estimator.fitting import FirstPass
from daskclust.estimator.inputs import check_columns, check_survey, infinite_message
from daskclust.reduction.survey import PARTIAL_SURVEY, PartialSurvey


def _check(survey: PartialSurvey, n_components: int, name: str) -> None:
    """Raise for what a first pass found wrong, naming the first fault."""
    if survey.first_bad is not None:
        raise ValueError(infinite_message(*survey.first_bad))
    check_survey(survey)
    check_columns(survey.observed, informed=survey.n_informed > 0)
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
    n_components : int
        Rows that are needed at least.
    name : str
        The parameter that asks for them.
    seeds : tuple of int
        One for each restart.
    n_picks : int
        Rows drawn for each seed.
    """
    check = partial(_check, n_components=n_components, name=name)
    return FirstPass(seeds, n_picks, reduction=PARTIAL_SURVEY, check=check)

"""Values that no estimator can use, as passes find them: one wording for all."""

from __future__ import annotations

import numpy as np

from daskclust._warnings import warn
from daskclust.exceptions import PrecisionWarning
from daskclust.reduction import Survey
from daskclust.reduction.survey import HEAVIEST, LARGEST_VALUE, LIGHTEST, LOG_LARGEST

__all__ = [
    "check_range",
    "check_survey",
    "check_values",
    "check_weights",
    "nonfinite_message",
]

#: Steps between numbers near the mean, as a share of the spread, that are too coarse.
_COARSE = 1e-3


def nonfinite_message(is_nan: bool, row: int, column: int) -> str:
    """Say where the first NaN or infinity is."""
    what = "NaN" if is_nan else "infinity"
    remedy = (
        'if NaN means missing, use missing="partial" (KMeans, SemiSupervisedKMeans, SparseKMeans, '
        "PCKMeans, PCSKMeans) or an estimator that models missing values (GaussianMixture, PCKID)."
        if is_nan
        else "or use an estimator that models missing values, with NaN in its place."
    )
    return (
        f"Input X contains {what}: the first at row {row}, column {column}. Drop or mask such "
        f"rows, {remedy}"
    )


def check_weights(survey: Survey) -> None:
    """Raise for the first unusable weight."""
    if survey.bad_weight_row is not None:
        raise ValueError(
            f"sample_weight of row {survey.bad_weight_row} is NaN, infinite or negative, or too "
            "small or large to be summed; weights must be finite and non-negative: 0, or from "
            f"{LIGHTEST:g} to {HEAVIEST:g}. Divide them by their mean."
        )


def check_range(survey: Survey) -> None:
    """Raise for columns whose squares might overflow."""
    size = np.maximum(np.abs(survey.low), np.abs(survey.high))
    # Without any value the range is (inf, -inf).
    size[survey.low > survey.high] = 0.0
    # A row of weight 0 is measured, too: it gets a label, and 0 times infinity is NaN.
    size = np.maximum(size, survey.idle)
    if (size > LARGEST_VALUE).any():
        column = int(np.argmax(size))
        raise ValueError(
            f"Column {column} of X has values up to {size[column]:.3g} in size; squared distances "
            f"overflow beyond {LARGEST_VALUE:g}. Mask such values if they stand for missing data, "
            "else rescale the column."
        )
    largest = float(size.max(initial=0.0))
    # The logarithm, since the product itself would overflow.
    if largest and survey.weight > 0 and np.log(survey.weight) + 2 * np.log(largest) > LOG_LARGEST:
        raise ValueError(
            f"Weights of {survey.weight:.3g} in all, values up to {largest:.3g} in size: sums of "
            "squared distances overflow. Divide the weights by their mean, or rescale X."
        )


def warn_of_offsets(survey: Survey) -> None:
    """Warn where means are rounded to steps that are no longer small beside the spread."""
    mean, spread = survey.mean, float(np.sqrt(survey.variance.sum()))
    if not (np.isfinite(mean).all() and np.isfinite(spread) and spread > 0):
        return
    steps = np.spacing(np.abs(mean))
    column = int(np.argmax(steps))
    if steps[column] > _COARSE * spread:
        warn(
            f"Column {column} of X lies about {mean[column]:.3g}, where numbers of float64 are "
            f"{steps[column]:.3g} apart; rows spread by {spread:.3g} in all. Centers are rounded "
            "to such steps, and inertia and labels with them. Use X - X.mean(axis=0), or leave out "
            "constant columns.",
            PrecisionWarning,
        )


def check_values(survey: Survey) -> None:
    """Raise for the first NaN or infinity, values too large, and the first unusable weight."""
    if survey.first_bad is not None:
        raise ValueError(nonfinite_message(survey.bad_is_nan, *survey.first_bad))
    check_range(survey)
    check_weights(survey)


def check_survey(survey: Survey) -> None:
    """Raise for values that no fit can use, and for weights of nothing but zeros."""
    check_values(survey)
    if survey.weight <= 0:
        raise ValueError("All sample weights are zero; at least one must be positive.")
    warn_of_offsets(survey)

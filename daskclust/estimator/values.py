"""Values that no estimator can use, as passes find them: one wording for all."""

from __future__ import annotations

import numpy as np

from daskclust._types import Array, Floats
from daskclust._warnings import warn
from daskclust.exceptions import MissingValuesWarning, PrecisionWarning
from daskclust.kernels.moments import first_nonfinite
from daskclust.kernels.survey import find_gaps
from daskclust.reduction import Survey
from daskclust.reduction.partial_survey import PartialSurvey
from daskclust.reduction.survey import HEAVIEST, LARGEST_VALUE, LIGHTEST, LOG_LARGEST

__all__ = [
    "check_block",
    "check_columns",
    "check_observed_survey",
    "check_observed_values",
    "check_partial_survey",
    "check_range",
    "check_survey",
    "check_values",
    "check_weights",
    "infinite_message",
    "nonfinite_message",
]

#: Steps between numbers near the mean, as a share of the spread, that are too coarse.
_COARSE = 1e-3


def nonfinite_message(is_nan: bool, row: int, column: int) -> str:
    """Say where the first NaN or infinity is."""
    what = "NaN" if is_nan else "infinity"
    remedy = (
        '; if NaN means missing, fit with missing="partial" (KMeans, SemiSupervisedKMeans, '
        "SparseKMeans, PCKMeans, PCSKMeans; partial_fit takes complete rows only), or use an "
        "estimator that models missing values (GaussianMixture, PCKID, and LabelSpreading and "
        'SpectralClustering with views="auto").'
        if is_nan
        else ", or use an estimator that models missing values, with NaN in its place."
    )
    return (
        f"Input X contains {what}: the first at row {row}, column {column}. Drop or mask such "
        f"rows{remedy}"
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


def infinite_message(row: int, column: int) -> str:
    """Say where the first infinity is, among rows in which NaN means missing."""
    return (
        f"Input X contains infinity: the first at row {row}, column {column}. NaN means missing; "
        "infinity does not. Replace it by NaN if the value is not known."
    )


def check_block(x: Array, start: int, *, missing: bool) -> None:
    """Raise for the first infinity of a block, and the first NaN unless values may be missing.

    Parameters
    ----------
    x : ndarray of shape (n, p)
    start : int
        Number of its first row.
    """
    row, column = find_gaps(x)[1:] if missing else first_nonfinite(x)
    if row < 0:
        return
    if missing:
        raise ValueError(infinite_message(start + row, column))
    raise ValueError(nonfinite_message(bool(np.isnan(x[row, column])), start + row, column))


def check_columns(observed: Floats, *, informed: bool) -> None:
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


def check_partial_survey(survey: PartialSurvey) -> None:
    """Raise for what no fit can use; warn of rows without any value, which belong nowhere."""
    check_observed_survey(survey)
    if survey.n_unobserved:
        warn(
            f"{survey.n_unobserved} row(s) of X have no value at all, the first is row "
            f"{survey.first_unobserved}: they are left out, and their label is -1.",
            MissingValuesWarning,
        )

"""Values that no estimator can use, as passes find them: one wording for all."""

from __future__ import annotations

import numpy as np

from daskclust.reduction import Survey

__all__ = ["check_range", "check_survey", "check_values", "check_weights", "nonfinite_message"]

#: Squares of larger values, summed over rows and features, may overflow float64.
LARGEST_VALUE = 1e140


def nonfinite_message(is_nan: bool, row: int, column: int) -> str:
    """Say where the first NaN or infinity is."""
    what = "NaN" if is_nan else "infinity"
    return (
        f"Input X contains {what}: the first at row {row}, column {column}. Drop or mask such "
        "rows, or use an estimator that models missing values."
    )


def check_weights(survey: Survey) -> None:
    """Raise for the first unusable weight."""
    if survey.bad_weight_row is not None:
        raise ValueError(
            f"sample_weight of row {survey.bad_weight_row} is NaN, infinite or negative; "
            "weights must be finite and non-negative."
        )


def check_range(survey: Survey) -> None:
    """Raise for columns whose squares might overflow."""
    size = np.maximum(np.abs(survey.low), np.abs(survey.high))
    # Without any value the range is (inf, -inf).
    size[survey.low > survey.high] = 0.0
    if (size > LARGEST_VALUE).any():
        column = int(np.argmax(size))
        raise ValueError(
            f"Column {column} of X has values up to {size[column]:.3g} in size; squared distances "
            f"overflow beyond {LARGEST_VALUE:g}. Mask such values if they stand for missing data, "
            "else rescale the column."
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

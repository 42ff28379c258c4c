"""Values that no estimator can use, as passes find them: one wording for all."""

from __future__ import annotations

from daskclust.reduction import Survey

__all__ = ["check_survey", "check_values", "check_weights", "nonfinite_message"]


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


def check_values(survey: Survey) -> None:
    """Raise for the first NaN or infinity, and the first unusable weight."""
    if survey.first_bad is not None:
        raise ValueError(nonfinite_message(survey.bad_is_nan, *survey.first_bad))
    check_weights(survey)


def check_survey(survey: Survey) -> None:
    """Raise for values that no fit can use, and for weights of nothing but zeros."""
    check_values(survey)
    if survey.weight <= 0:
        raise ValueError("All sample weights are zero; at least one must be positive.")

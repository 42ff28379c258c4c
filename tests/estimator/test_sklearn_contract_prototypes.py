"""scikit-learn's own checks of an estimator, on the estimators on prototypes."""

from __future__ import annotations

from typing import Any

import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.estimator_checks import parametrize_with_checks

from daskclust import LabelSpreading, SpectralClustering
from daskclust.exceptions import ConstraintWarning

#: Checks that are expected to fail, and why.
EXPECTED_FAILURES = {
    "LabelSpreading": {
        "check_classifiers_regression_target": (
            "labels that are no whole numbers are refused, by the reader of labels that all "
            "estimators share, in other words than scikit-learn's"
        ),
    },
}


@pytest.mark.filterwarnings(f"ignore::{ConvergenceWarning.__module__}.ConvergenceWarning")
@pytest.mark.filterwarnings(f"ignore::{ConstraintWarning.__module__}.ConstraintWarning")
@parametrize_with_checks(
    [LabelSpreading(random_state=0), SpectralClustering(3, random_state=0)],
    expected_failed_checks=lambda estimator: EXPECTED_FAILURES.get(type(estimator).__name__, {}),
)
def test_contract(estimator: Any, check: Any) -> None:
    check(estimator)

"""scikit-learn's own checks of an estimator, on SemiSupervisedKMeans."""

from __future__ import annotations

from typing import Any

import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.estimator_checks import parametrize_with_checks

from daskclust import SemiSupervisedKMeans
from daskclust.exceptions import ConstraintWarning

#: Checks that are expected to fail, and why.
_TOO_MANY = "sets n_clusters=1 and gives labels of several classes, which is an error here"
EXPECTED_FAILURES = {
    "check_dont_overwrite_parameters": _TOO_MANY,
    "check_methods_sample_order_invariance": _TOO_MANY,
    "check_methods_subset_invariance": _TOO_MANY,
    "check_fit2d_1feature": _TOO_MANY,
    "check_fit2d_predict1d": _TOO_MANY,
}


@pytest.mark.filterwarnings(f"ignore::{ConvergenceWarning.__module__}.ConvergenceWarning")
@pytest.mark.filterwarnings(f"ignore::{ConstraintWarning.__module__}.ConstraintWarning")
@parametrize_with_checks(
    [SemiSupervisedKMeans(4, random_state=0)],
    expected_failed_checks=lambda estimator: EXPECTED_FAILURES,
)
def test_contract(estimator: Any, check: Any) -> None:
    check(estimator)

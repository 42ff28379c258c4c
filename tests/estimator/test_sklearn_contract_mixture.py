"""scikit-learn's own checks of an estimator, on GaussianMixture and PCKID."""

from __future__ import annotations

from typing import Any

import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.estimator_checks import parametrize_with_checks

from daskclust import PCKID, GaussianMixture

#: Checks that are expected to fail, and why.
EXPECTED_FAILURES: dict[str, str] = {}


@pytest.mark.filterwarnings(f"ignore::{ConvergenceWarning.__module__}.ConvergenceWarning")
@parametrize_with_checks(
    [
        GaussianMixture(2, random_state=0),
        GaussianMixture(2, covariance_type="diag", n_init=2, random_state=0),
        PCKID(2, n_initializations=2, max_components=3, n_init=3, random_state=0),
    ],
    expected_failed_checks=lambda estimator: EXPECTED_FAILURES,
)
def test_contract(estimator: Any, check: Any) -> None:
    check(estimator)

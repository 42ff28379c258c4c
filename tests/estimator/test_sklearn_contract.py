"""scikit-learn's own checks of an estimator, on KMeans."""

from __future__ import annotations

from typing import Any

import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.estimator_checks import parametrize_with_checks

from daskclust import KMeans

#: Checks that are expected to fail, and why.
EXPECTED_FAILURES: dict[str, str] = {}


@pytest.mark.filterwarnings(f"ignore::{ConvergenceWarning.__module__}.ConvergenceWarning")
@parametrize_with_checks(
    [
        KMeans(3, random_state=0),
        KMeans(2, n_init=2, metric="cosine", random_state=0),
        KMeans(2, metric="mahalanobis", max_iter=5, random_state=0),
    ],
    expected_failed_checks=lambda estimator: EXPECTED_FAILURES,
)
def test_contract(estimator: Any, check: Any) -> None:
    check(estimator)

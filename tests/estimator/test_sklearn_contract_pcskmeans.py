"""scikit-learn's own checks of an estimator, on PCSKMeans."""

from __future__ import annotations

from typing import Any

import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.estimator_checks import parametrize_with_checks

from daskclust import PCSKMeans
from daskclust.exceptions import ConstraintWarning

#: Checks that are expected to fail, and why.
EXPECTED_FAILURES: dict[str, str] = {}


@pytest.mark.filterwarnings(f"ignore::{ConvergenceWarning.__module__}.ConvergenceWarning")
@pytest.mark.filterwarnings(f"ignore::{ConstraintWarning.__module__}.ConstraintWarning")
@parametrize_with_checks(
    [
        PCSKMeans(3, random_state=0),
        PCSKMeans(2, sparsity=1.0, penalized_scores=True, penalty="constant", random_state=0),
    ],
    expected_failed_checks=lambda estimator: EXPECTED_FAILURES,
)
def test_contract(estimator: Any, check: Any) -> None:
    check(estimator)

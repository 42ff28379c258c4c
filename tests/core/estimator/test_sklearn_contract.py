"""scikit-learn's own checks of an estimator, on every estimator of the package."""

from __future__ import annotations

from typing import Any

import pytest
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.estimator_checks import check_estimator

import daskclust
from daskclust import (
    DBSCAN,
    HDBSCAN,
    PCKID,
    AgglomerativeClustering,
    COPKMeans,
    DPMeans,
    GaussianMixture,
    HierarchicalKMeans,
    KMeans,
    LabelSpreading,
    MPCKMeans,
    PCKMeans,
    PCSKMeans,
    SemiSupervisedKMeans,
    SparseKMeans,
    SpectralClustering,
)
from daskclust.exceptions import ConstraintWarning
from daskclust.preprocessing import StandardScaler

ESTIMATORS = [
    KMeans(3, random_state=0),
    KMeans(2, n_init=2, metric="cosine", random_state=0),
    HierarchicalKMeans((2, 2), random_state=0),
    DPMeans(0.5, max_clusters=20),
    SemiSupervisedKMeans(4, random_state=0),
    SparseKMeans(3, random_state=0),
    PCKMeans(3, random_state=0),
    MPCKMeans(3, random_state=0),
    COPKMeans(3, random_state=0),
    PCSKMeans(3, random_state=0),
    GaussianMixture(2, random_state=0),
    PCKID(2, n_initializations=2, max_components=3, n_init=3, random_state=0),
    LabelSpreading(random_state=0),
    LabelSpreading(classifier=None, random_state=0),
    SpectralClustering(3, random_state=0),
    AgglomerativeClustering(3, random_state=0),
    HDBSCAN(random_state=0),
    DBSCAN(),
    StandardScaler(),
    StandardScaler(with_mean=False),
    StandardScaler(with_std=False),
]

#: Checks that are expected to fail, and why.
EXPECTED_FAILURES: dict[type, dict[str, str]] = {
    COPKMeans: dict.fromkeys(
        (
            "check_dont_overwrite_parameters",
            "check_dtype_object",
            "check_fit2d_1feature",
            "check_fit2d_predict1d",
            "check_methods_sample_order_invariance",
            "check_methods_subset_invariance",
        ),
        "sets n_clusters=1 and labels of several classes, which hard constraints must refuse",
    ),
    DBSCAN: {
        "check_methods_subset_invariance": "score_samples counts among the rows that it is given"
    },
    DPMeans: {
        # The order of the rows decides which rows begin clusters.
        "check_sample_weight_equivalence_on_dense_data": "shuffles the rows"
    },
    LabelSpreading: {
        "check_classifiers_regression_target": (
            "labels that are not integers raise an error, by the reader of labels that all "
            "estimators share, in other words than scikit-learn's"
        ),
    },
    MPCKMeans: {
        "check_sample_weight_equivalence_on_dense_data": (
            "labels every row: repeated rows imply more pairs, but a weight adds no pair"
        )
    },
    SemiSupervisedKMeans: dict.fromkeys(
        (
            "check_dont_overwrite_parameters",
            "check_fit2d_1feature",
            "check_fit2d_predict1d",
            "check_methods_sample_order_invariance",
            "check_methods_subset_invariance",
        ),
        "sets n_clusters=1 and gives labels of several classes, which is an error here",
    ),
}


def test_every_estimator_of_the_package_is_checked() -> None:
    public = {getattr(daskclust, name) for name in daskclust.__all__} | {StandardScaler}
    kinds = {kind for kind in public if isinstance(kind, type) and issubclass(kind, BaseEstimator)}
    assert {type(estimator) for estimator in ESTIMATORS} == kinds


def _marks(model: BaseEstimator) -> Any:
    """Trees of the classifier are grown some hundred times in all checks."""
    return pytest.mark.slow if model.get_params().get("classifier") == "trees" else ()


@pytest.mark.filterwarnings(f"ignore::{ConvergenceWarning.__module__}.ConvergenceWarning")
@pytest.mark.filterwarnings(f"ignore::{ConstraintWarning.__module__}.ConstraintWarning")
@pytest.mark.parametrize(
    "estimator", [pytest.param(model, marks=_marks(model)) for model in ESTIMATORS], ids=repr
)
def test_contract(estimator: BaseEstimator) -> None:
    """Some 55 checks each, in one test: each would cost more to report than to run."""
    expected = EXPECTED_FAILURES.get(type(estimator), {})
    found = check_estimator(estimator, expected_failed_checks=expected, on_fail=None, on_skip=None)
    assert len(found) > 40
    failed = {
        check["check_name"]: check["exception"] for check in found if check["status"] == "failed"
    }
    assert not failed
    # Checks that are expected to fail do fail.
    passed = {check["check_name"] for check in found if check["status"] == "passed"}
    assert not passed & expected.keys()

"""scikit-learn's own tests of density clusters, on these classes through a small shim.

What cannot apply is left out: other metrics, precomputed distances and sparse matrices (there are
none here), functions and attributes of scikit-learn's trees, its choices of algorithm, and rows
that are infinite or missing (refused here).  ``test_hierarchical`` cannot be imported beside
strict markers: what of it applies, distances at a threshold, is written out below.
"""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest

import daskclust

#: Arguments of scikit-learn that say how, and not what.
_HOW = ("algorithm", "copy", "n_jobs", "leaf_size", "compute_full_tree", "memory")


class DBSCAN(daskclust.DBSCAN):
    """As scikit-learn's, with the numbers of the core rows."""

    def __init__(self, eps=0.5, *, min_samples=5, metric="euclidean", checkpoint=None, p=2):
        super().__init__(eps, min_samples=min_samples, metric=metric, checkpoint=checkpoint)
        self.p = p

    @property
    def core_sample_indices_(self):
        return np.flatnonzero(self.core_mask_)


def dbscan(X, eps=0.5, *, min_samples=5, sample_weight=None, **how):
    known = {key: value for key, value in how.items() if key not in _HOW}
    model = DBSCAN(eps, min_samples=min_samples, **known).fit(X, sample_weight=sample_weight)
    return model.core_sample_indices_, model.labels_


def shim(kind: type) -> Any:
    def make(*args, **params):
        return kind(*args, **{key: v for key, v in params.items() if key not in _HOW})

    return make


MODULES = {
    "test_dbscan": {"dbscan": dbscan, "DBSCAN": shim(DBSCAN)},
    "test_hdbscan": {"HDBSCAN": shim(daskclust.HDBSCAN)},
}

CASES: list[tuple[str, str, tuple[Any, ...]]] = [
    ("test_dbscan", "test_dbscan_feature", ()),
    ("test_dbscan", "test_pickle", ()),
    ("test_dbscan", "test_boundaries", ()),
    ("test_dbscan", "test_dbscan_core_samples_toy", ("brute",)),
    ("test_hdbscan", "test_hdbscan_feature_array", ()),
    ("test_hdbscan", "test_hdbscan_no_clusters", ()),
    ("test_hdbscan", "test_hdbscan_allow_single_cluster_with_epsilon", ()),
    ("test_hdbscan", "test_hdbscan_better_than_dbscan", ()),
    ("test_hdbscan", "test_hdbscan_usable_inputs", ([[1, 2], [3, 4]], {})),
    ("test_hdbscan", "test_hdbscan_too_many_min_samples", ()),
]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(("module", "name", "arguments"), CASES)
def test_of_scikit_learn(module, name, arguments, monkeypatch):
    found = importlib.import_module(f"sklearn.cluster.tests.{module}")
    for key, value in MODULES[module].items():
        monkeypatch.setattr(found, key, value)
    getattr(found, name)(*arguments)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_clusters_have_the_least_size():
    # scikit-learn's test of this has 198 sizes; some say as much.
    found = importlib.import_module("sklearn.cluster.tests.test_hdbscan")
    for size in (2, 3, 7, 20, 60, 150):
        labels = daskclust.HDBSCAN(size).fit_predict(found.X)
        if labels.max() >= 0:
            assert np.bincount(labels[labels >= 0]).min() >= size


@pytest.mark.parametrize("linkage", ["ward", "complete", "average", "single"])
@pytest.mark.parametrize(("threshold", "n_clusters"), [(0.5, 2), (1.0, 2), (1.5, 1)])
def test_a_threshold_is_a_height_that_no_merge_has(linkage, threshold, n_clusters):
    model = daskclust.AgglomerativeClustering(
        None, distance_threshold=threshold, linkage=linkage
    ).fit([[0], [1]])
    assert model.n_clusters_ == n_clusters


def test_single_linkage_leaves_no_neighbors_apart():
    X = np.random.default_rng(0).integers(-10, 10, (100, 3))
    model = daskclust.AgglomerativeClustering(None, distance_threshold=4, linkage="single").fit(X)
    far = np.sqrt(((X[:, None] - X) ** 2).sum(axis=2))
    apart = model.labels_[:, None] != model.labels_
    assert far[apart].min() >= 4

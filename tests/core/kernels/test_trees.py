"""The walk of rows through trees: by hand, and against scikit-learn's own."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier
from sklearn.tree import DecisionTreeClassifier

from daskclust.semisupervised.classifiers import Trees
from daskclust.semisupervised.tree_kernels import leaf_shares


def test_two_trees_by_hand() -> None:
    # The first asks whether column 1 is at most 2, the second is a leaf.
    shares = np.array([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]])
    nodes = {
        "roots": np.array([0, 3], np.int32),
        "children": np.array([[1, 2], [0, 0], [1, 1], [2, 2]], np.int32),
        "features": np.array([1, -1, -1, -1], np.int32),
        "thresholds": np.array([2, 0, 0, 0], np.float32),
    }
    x = np.array([[9.0, 2.0], [0.0, 2.1], [0.0, np.nan], [0.0, 1e300], [0.0, -1e300]])
    right, left = [0.25, 0.75], [0.75, 0.25]
    found = leaf_shares(x, **nodes, missing_go_left=np.zeros(4, bool), shares=shares)
    assert_array_equal(found, [left, right, right, right, left])
    found = leaf_shares(x, **nodes, missing_go_left=np.ones(4, bool), shares=shares)
    assert_array_equal(found, [left, right, left, right, left])


@pytest.mark.parametrize("gaps", [0.0, 0.3])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "classifier",
    [
        ExtraTreesClassifier(20, random_state=0),
        RandomForestClassifier(20, random_state=0, max_leaf_nodes=12),
        DecisionTreeClassifier(random_state=0, min_samples_leaf=5),
    ],
    ids=lambda one: type(one).__name__,
)
def test_probabilities_are_those_of_scikit_learn(classifier, dtype, gaps) -> None:
    rng = np.random.default_rng(0)
    y = rng.choice([1, 4, 5], 200)
    x, new = rng.normal(size=(200, 4)) + y[:, None], rng.normal(size=(700, 4)) * 4
    for one in (x, new):
        one[rng.random(one.shape) < gaps] = np.nan
    # Values at thresholds, too.
    new[:100] = x[:100]
    x, new = x.astype(dtype), new.astype(dtype)
    classifier.fit(x, y)
    trees = Trees.of(classifier, np.array([1, 4, 5]), 7)
    trees.check()
    found = trees.predict_proba(new)
    assert_allclose(found[:, [1, 4, 5]], classifier.predict_proba(new), rtol=0, atol=1e-15)
    assert not found[:, [0, 2, 3, 6]].any()
    for cut in (1, 300, 512):
        parts = [trees.predict_proba(new[:cut]), trees.predict_proba(new[cut:])]
        assert_array_equal(np.concatenate(parts), found)

"""Drift by hand."""

import dask.array as da
import numpy as np
from numpy.testing import assert_allclose

import daskclust
from daskclust.core.persistence.mixin import merge_classes
from daskclust.explain import drift


def _sets():
    rng = np.random.default_rng(0)
    old = rng.normal(size=(2000, 3)) + np.repeat([[0.0], [20.0]], 1000, axis=0)
    new = rng.normal(size=(1000, 3)) + np.repeat([[0.0], [20.0]], [900, 100], axis=0)
    new[:900, 1] += 3.0
    return old, new


def test_nothing_changed_for_the_rows_of_the_fit():
    old, _ = _sets()
    model = daskclust.KMeans(2, random_state=0, tol=0).fit(old)
    found = drift(model, old)
    assert found.psi < 1e-12
    assert abs(found.spread - 1) < 1e-9
    assert np.abs(found.shifts).max() < 1e-9


def test_changes_are_those_of_a_few_lines():
    old, new = _sets()
    model = daskclust.KMeans(2, random_state=0).fit(old)
    labels = model.predict(new)
    for X in (new, da.from_array(new, chunks=(300, 3))):
        found = drift(model, X)
        was, now = model.counts_ / 2000, np.bincount(labels, minlength=2) / 1000
        np.testing.assert_allclose(found.psi, ((now - was) * np.log(now / was)).sum())
        means = np.array([new[labels == c].mean(axis=0) for c in range(2)])
        widths = np.array([new[labels == c].std(axis=0) for c in range(2)])
        np.testing.assert_allclose(found.shifts, (means - model.cluster_centers_) / widths)
        squares = ((new - model.cluster_centers_[labels]) ** 2).sum() / 1000
        np.testing.assert_allclose(found.spread, np.sqrt(squares / (model.inertia_ / 2000)))
        frame = found.to_frame()
        moved = frame.loc[frame["size"].idxmax()]
        assert moved["feature"] == "x1"
        assert 2.5 < moved["feature_shift"] < 3.5
        assert "psi" in found._repr_html_()


def test_a_cluster_without_new_rows_and_a_model_that_keeps_no_shares():
    old, _ = _sets()
    model = daskclust.GaussianMixture(2, random_state=0).fit(old)
    found = drift(model, old[:1000])
    assert sorted(found.shares.tolist()) == [0.0, 1.0]
    assert found.psi > 1
    assert np.isnan(found.spread)
    assert "spread unknown" in repr(found)
    none = daskclust.SpectralClustering(2, random_state=0).fit(old)
    found = drift(none, old)
    assert np.isnan(found.psi)
    assert np.isnan(found.fit_shares).all()


def test_a_fit_of_no_iteration_keeps_no_shares():
    old, new = _sets()
    y = np.full(len(old), -1)
    y[[0, 1999]] = [0, 1]
    model = daskclust.SemiSupervisedKMeans(2, max_iter=0, random_state=0).fit(old, y)
    found = drift(model, new)
    assert np.isnan([found.psi, found.spread]).all()
    assert found.shares.tolist() == [0.9, 0.1]


def test_joined_clusters_have_the_shares_and_means_of_both():
    """The rows of the fit have no drift, for any names of the clusters."""
    X = np.array([[0.0], [1.0], [9.0], [10.0], [20.0], [21.0]])
    model = daskclust.KMeans(n_clusters=3, init=X[::2]).fit(X)
    merge_classes(model, {1: 0})
    found = drift(model, X)
    assert found.psi == 0
    assert found.labels.tolist() == [0, 2]
    assert found.fit_shares.tolist() == found.shares.tolist() == [4 / 6, 2 / 6]
    assert_allclose(found.shifts, 0, atol=1e-12)
    # Distances of the fit were those to the centers of each.
    assert np.isnan(found.spread)

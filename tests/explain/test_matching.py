"""The same clusters again: matched by rows or centers, and as the start of the next fit."""

import itertools

import dask.array as da
import numpy as np
import pytest

import daskclust
from daskclust import match_clusters


def _rows():
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(5, 3)) * 9
    return rng.normal(size=(500, 3)) + np.repeat(centers, 100, axis=0), centers


def test_permutations_are_found_by_centers_and_by_rows():
    X, centers = _rows()
    order = np.array([3, 0, 4, 1, 2])
    old = daskclust.KMeans(5, init=centers).fit(X)
    new = daskclust.KMeans(5, init=centers[order]).fit(X)
    expected = np.argsort(order)
    np.testing.assert_array_equal(match_clusters(old, new), expected)
    np.testing.assert_array_equal(match_clusters(old, new, X), expected)
    lazy = da.from_array(X, chunks=(130, 3))
    np.testing.assert_array_equal(match_clusters(old, new, lazy), expected)
    # New labels in the order of the old ones.
    np.testing.assert_array_equal(np.argsort(expected)[new.labels_], old.labels_)


def test_most_rows_agree_under_the_matching():
    rng = np.random.default_rng(1)
    for _ in range(20):
        old, new = rng.integers(0, 4, 60), rng.integers(0, 5, 60)
        found = match_clusters(old, new)
        assert sorted(found.tolist()) == [0, 1, 2, 3, 4]
        best = max(
            sum(np.sum((old == i) & (new == c)) for i, c in enumerate(chosen))
            for chosen in itertools.permutations(range(5), 4)
        )
        assert sum(np.sum((old == i) & (new == c)) for i, c in enumerate(found[:4])) == best


def test_fewer_new_clusters_and_rows_without_a_label():
    assert match_clusters([0, 0, 1, 2, -1], [1, 1, 0, -1, 0]).tolist() == [1, 0, -1]
    # Old 1 and new 3 share no row: one has vanished, the other is new.
    assert match_clusters([0, 0, 0, 1, 0], [2, 2, 2, 2, 3]).tolist() == [2, -1, 3]


def test_a_fitted_model_is_a_start():
    X, _ = _rows()
    old = daskclust.KMeans(5, random_state=0).fit(X)
    new = daskclust.KMeans(5, init=old).fit(X + 0.1)
    np.testing.assert_array_equal(match_clusters(old, new), np.arange(5))
    np.testing.assert_allclose(new.cluster_centers_, old.cluster_centers_ + 0.1, atol=0.05)
    with pytest.raises(
        ValueError, match=r"The initial centers must have shape \(4, 3\) for n_clusters=4 and 3"
    ):
        daskclust.KMeans(4, init=old).fit(X)
    with pytest.raises(ValueError, match="KMeans without centers"):
        daskclust.KMeans(5, init=daskclust.KMeans(5)).fit(X)


def test_a_model_that_began_with_another_is_saved_and_checkpointed(tmp_path):
    X, _ = _rows()
    old = daskclust.KMeans(5, random_state=0).fit(X)
    new = daskclust.KMeans(5, init=old, checkpoint=tmp_path / "c.npz").fit(X)
    new.save(tmp_path / "m.zarr")
    again = daskclust.load(tmp_path / "m.zarr")
    np.testing.assert_array_equal(again.predict(X), new.predict(X))


def test_centers_of_an_embedding_are_none_of_the_data():
    """PCKID's centers are in an embedding, which has as many dimensions as the data here."""
    X, _ = _rows()
    model = daskclust.PCKID(3, n_initializations=2, max_components=3, n_init=2, random_state=0)
    model.fit(X)
    assert model.cluster_centers_.shape[1] == X.shape[1] == 3
    with pytest.raises(ValueError, match=r"must have centers of the features of .*, got a PCKID"):
        match_clusters(model, model)
    with pytest.raises(
        ValueError, match="init must be an array, or a fitted model with cluster_centers_, got"
    ):
        daskclust.KMeans(3, init=model).fit(X)


def test_a_model_that_does_not_predict_is_named():
    X, _ = _rows()
    model = daskclust.DBSCAN(1.0)
    with pytest.raises(TypeError, match=r"must have predict, got a DBSCAN.*profiles\(None, X, lab"):
        daskclust.explain.profiles(model, X)
    with pytest.raises(
        ValueError, match=r"must be two models or .*, got KMeans and DBSCAN.*use labels_"
    ):
        match_clusters(daskclust.KMeans(5), model)


def test_what_cannot_be_matched_is_refused():
    X, _ = _rows()
    model = daskclust.KMeans(5, random_state=0).fit(X)
    with pytest.raises(ValueError, match="two models or two vectors of labels"):
        match_clusters(model, [0, 1])
    with pytest.raises(ValueError, match="must have the same features, got 3 and 2"):
        match_clusters(model, daskclust.KMeans(5, random_state=0).fit(X[:, :2]))
    spectral = daskclust.SpectralClustering(2, random_state=0).fit(X)
    with pytest.raises(ValueError, match="Pass rows that both models label as X"):
        match_clusters(model, spectral)
    assert len(match_clusters(model, spectral, X)) == 5
    with pytest.raises(ValueError, match="must both label at least one row"):
        match_clusters([-1], [0])


def test_models_of_columns_in_another_order_are_not_compared():
    pandas = pytest.importorskip("pandas", reason="needs the extra `dataframe`")
    table = pandas.DataFrame(_rows()[0], columns=list("abc"))
    old = daskclust.KMeans(5, random_state=0).fit(table)
    other = table[["b", "a", "c"]]
    new = daskclust.KMeans(5, random_state=0).fit(other)
    message = (
        "different features, or the same ones in another order: "
        "number 0 is 'a' in one and 'b' in the other"
    )
    with pytest.raises(ValueError, match=message):
        match_clusters(old, new)
    for kind in (daskclust.KMeans, daskclust.SemiSupervisedKMeans, daskclust.PCKMeans):
        with pytest.raises(ValueError, match=f"init and X have {message}"):
            kind(5, init=old).fit(other)
    # Rows without names are those of the model.
    daskclust.KMeans(5, init=old).fit(table.to_numpy())

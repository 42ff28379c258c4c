"""Profiles against pandas and scikit-learn, for any input and chunks."""

import dataclasses

import dask.array as da
import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.metrics import roc_auc_score

import daskclust
from daskclust.exceptions import MemoryPlanError, PerformanceWarning
from daskclust.explain import profiles
from daskclust.explain._labeled_rows import open_labeled
from daskclust.explain._profiles import profiles_of, sample_labeled
from daskclust.plotting import new_figure

LOADERS = {
    "iris": load_iris,
    "wine": load_wine,
    "cancer": load_breast_cancer,
    "digits": load_digits,
}


@pytest.mark.parametrize("name", LOADERS)
def test_equals_pandas_and_scikit_learn(name):
    X = LOADERS[name]().data
    model = daskclust.KMeans(n_clusters=4, random_state=0).fit(X)
    found = profiles(model, X)
    labels = np.asarray(model.labels_)
    frame, groups = found.to_frame(), pd.DataFrame(X).groupby(labels)
    shape = (4, X.shape[1])
    np.testing.assert_array_equal(found.sizes, groups.size())
    np.testing.assert_allclose(found.shares, groups.size() / len(X))
    np.testing.assert_allclose(frame["mean"].to_numpy().reshape(shape), groups.mean())
    np.testing.assert_allclose(found.deviations, groups.std(ddof=0), atol=1e-9)
    np.testing.assert_array_equal(found.lows, groups.min())
    np.testing.assert_array_equal(found.highs, groups.max())
    for c in range(4):
        own, rest = X[labels == c], X[labels != c]
        with np.errstate(invalid="ignore"):
            apart = (own.mean(0) - rest.mean(0)) / np.sqrt((own.var(0) + rest.var(0)) / 2)
        same = own.mean(0) == rest.mean(0)
        np.testing.assert_allclose(found.differences[c], np.where(same, 0.0, apart), atol=1e-9)
        for j in range(X.shape[1]):
            area = roc_auc_score(labels == c, X[:, j])
            assert abs(found.aucs[c, j] - area) <= found.auc_errors[c, j] + 1e-12
            assert abs(found.aucs[c, j] - area) < 0.002
        distances = np.linalg.norm(own - model.cluster_centers_[c], axis=1)
        np.testing.assert_allclose(found.nearest_distances[c], np.sort(distances)[:5])
        assert (labels[found.nearest_rows[c]] == c).all()


def test_quantiles_of_few_values_are_those_of_numpy():
    X = load_iris().data
    found = profiles(None, X, load_iris().target)
    for c in range(3):
        exact = np.quantile(X[load_iris().target == c], [0.05, 0.25, 0.5, 0.75, 0.95], axis=0)
        np.testing.assert_allclose(found.quantiles[c], exact.T, rtol=1e-12)
    assert not found.auc_errors.any()


@pytest.fixture(scope="module")
def planted():
    """Feature 3 distinguishes cluster 1, and a tail of feature 6 the small cluster 2."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30_000, 8))
    y = np.zeros(30_000, np.int64)
    y[10_000:20_000], y[29_900:] = 1, 2
    X[y == 1, 3] += 2.0
    X[y == 2, 6] += 9.0
    X[:, 7] = np.exp(X[:, 7] * 3)
    return X, y


def test_planted_features_are_found_first(planted):
    X, y = planted
    found = profiles(None, X, y)
    assert found.distinguishing(1, 1) == ["x3"]
    assert found.distinguishing("2", 1) == ["x6"]
    for c in range(3):
        for j in range(8):
            area = roc_auc_score(y == c, X[:, j])
            assert abs(found.aucs[c, j] - area) <= found.auc_errors[c, j] + 1e-12
            # A small cluster has quantiles, too.
            own = np.sort(X[y == c, j])
            ranks = np.searchsorted(own, found.quantiles[c, j]) / len(own)
            np.testing.assert_allclose(ranks, [0.05, 0.25, 0.5, 0.75, 0.95], atol=0.02)
    assert found.auc_errors.max() < 0.001


@pytest.mark.parametrize("chunks", [30_000, 7001, (100, 20_000, 0, 9900)])
def test_chunks_do_not_show(planted, chunks):
    X, y = planted
    rows = chunks if isinstance(chunks, tuple) else (chunks,) * (30_000 // chunks)
    rows = rows if sum(rows) == 30_000 else (*rows, 30_000 - sum(rows))
    whole = profiles(None, X, y)
    lazy = profiles(None, da.from_array(X, chunks=(rows, 8)), y)
    for name in ("sizes", "aucs", "auc_errors", "quantiles", "nearest_rows", "missing", "lows"):
        np.testing.assert_array_equal(getattr(lazy, name), getattr(whole, name), err_msg=name)
    np.testing.assert_allclose(lazy.means, whole.means, atol=1e-12)
    np.testing.assert_allclose(lazy.deviations, whole.deviations)


def test_lazy_rows_of_unknown_number(planted):
    X, _ = planted
    X = X.astype(np.float32)
    model = daskclust.KMeans(n_clusters=3, random_state=0).fit(X)
    lazy = da.from_array(X, chunks=(9000, 8))
    unknown = lazy[lazy[:, 0] > -np.inf]
    expected = profiles(model, X)
    with pytest.warns(PerformanceWarning, match="unknown length"):
        found = profiles(model, unknown)
    np.testing.assert_array_equal(found.aucs, expected.aucs)
    np.testing.assert_array_equal(found.nearest_rows, expected.nearest_rows)


def test_two_passes(planted):
    X, y = planted
    data = open_labeled(None, X, y)
    profiles_of(data, sample_labeled(data))
    assert data.rows.passes == 2


def test_missing_values_have_their_own_lines():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(400, 3))
    X[rng.random(X.shape) < 0.3] = np.nan
    X[:, 2] = np.nan
    y = rng.integers(0, 2, 400)
    found = profiles(None, X, y)
    table = pd.DataFrame(X).groupby(y)
    np.testing.assert_array_equal(found.missing, table.apply(lambda g: g.isna().sum()))
    np.testing.assert_allclose(found.means[:, :2], table.mean().to_numpy()[:, :2])
    assert np.isnan(found.means[:, 2]).all()
    assert np.isnan(found.aucs[:, 2]).all()
    there = ~np.isnan(X[:, 0])
    area = roc_auc_score(y[there] == 1, X[there, 0])
    assert abs(found.aucs[1, 0] - area) <= found.auc_errors[1, 0] + 1e-12
    assert found.distinguishing(1, 3)[-1] == "x2"


def test_categories_are_told_by_level():
    rng = np.random.default_rng(4)
    table = pd.DataFrame({"a": rng.normal(size=60), "b": rng.normal(size=60)})
    table.loc[30:, "a"] += 9
    model = daskclust.KMeans(n_clusters=2, random_state=0).fit(table)
    table["color"] = np.where(np.arange(60) < 30, "red", "blue")
    table.loc[0, "color"] = None
    found = profiles(model, table)
    assert found.features == ["a", "b", "color = blue", "color = red"]
    high = int(np.argmax(found.means[:, 0]))
    assert found.means[high, 2:].tolist() == [1.0, 0.0]
    assert found.missing[1 - high].tolist() == [0, 0, 1, 1]
    assert found.aucs[high, 2] == 1.0
    import dask.dataframe as dd

    lazy = dd.from_pandas(table.astype({"color": "category"}), npartitions=3)
    with pytest.warns(PerformanceWarning, match="unknown length"):
        np.testing.assert_allclose(profiles(model, lazy).aucs, found.aucs)
    text = dd.from_pandas(table, npartitions=3)
    with pytest.raises(ValueError, match=r"Column 'color' must have .* X.categorize"):
        profiles(model, text)


def test_text_labels_and_rows_without_a_label():
    X = np.arange(6.0)[:, None]
    found = profiles(None, X, np.array(["oak", "oak", "ash", "ash", "ash", "oak"]))
    assert found.names == ["ash", "oak"]
    assert found.sizes.tolist() == [3, 3]
    assert found.to_frame().loc[("ash", "x0"), "mean"] == 3.0
    without = profiles(None, X, np.array([0, 0, -1, -1, 1, 1]))
    assert without.labels.tolist() == [0, 1]
    assert without.shares.tolist() == [0.5, 0.5]


def test_masked_values_are_missing_without_a_model():
    X = np.ma.masked_equal([[1.0, 2.0], [3.0, -9.0], [5.0, 6.0], [-9.0, 8.0]], -9.0)
    found = profiles(None, X, [0, 0, 1, 1])
    assert found.means.tolist() == [[2.0, 2.0], [5.0, 7.0]]
    assert found.missing.tolist() == [[0.0, 1.0], [1.0, 0.0]]
    assert found.lows.min() == 1.0
    lazy = profiles(None, da.from_array(X, chunks=(3, 2)), [0, 0, 1, 1])
    np.testing.assert_array_equal(lazy.means, found.means)
    np.testing.assert_array_equal(lazy.aucs, found.aucs)


def test_a_cube_gives_pixels_and_wavelengths():
    image = np.zeros((6, 5, 3), np.float32)
    image[3:] = 5.0
    image += np.random.default_rng(0).random(image.shape, dtype=np.float32)
    image[0, 0] = np.nan
    cube = daskclust.open_cube(image, dims=("y", "x", "band"))
    model = daskclust.KMeans(n_clusters=2, random_state=0).fit(cube)
    found = profiles(model, cube)
    rows, pixels = found.nearest_rows, found.pixels
    valid = np.flatnonzero(np.isfinite(image).all(axis=2))
    np.testing.assert_array_equal(pixels[..., 0] * 5 + pixels[..., 1], valid[rows])
    assert found.features == ["band 0", "band 1", "band 2"]
    assert {"line", "column", "x", "y"} <= set(found.nearest().columns)
    assert "Nearest pixels" in found._repr_html_()


def test_sparse_models_tell_their_weights_and_distances_use_them():
    rng = np.random.default_rng(5)
    X = rng.normal(size=(300, 6))
    X[150:, 1] += 6
    model = daskclust.SparseKMeans(n_clusters=2, sparsity=1.2, random_state=0).fit(X)
    found = profiles(model, X)
    np.testing.assert_array_equal(found.feature_weights, model.feature_weights_)
    assert "weight" in found.to_frame()
    gaps = (X - model.cluster_centers_[model.labels_]) ** 2 @ model.feature_weights_
    own = np.flatnonzero(np.asarray(model.labels_) == 0)
    np.testing.assert_array_equal(found.nearest_rows[0], own[np.argsort(gaps[own])[:5]])


def test_nearest_rows_of_a_cluster_with_their_text():
    X = np.arange(12.0)[:, None] + np.repeat([0.0, 50.0], 6)[:, None]
    model = daskclust.KMeans(n_clusters=2, random_state=0).fit(X)
    found = profiles(model, X)
    names = [f"row {i}" for i in range(12)]
    lazy = da.from_array(np.array(names), chunks=5)
    for text in (names, np.array(names), pd.Series(names, index=range(12, 0, -1)), lazy):
        near = found.nearest(1, text=text)
        assert (near["cluster"] == 1).all()
        assert near["row"].tolist() == found.nearest_rows[1].tolist()
        assert near["text"].tolist() == [names[row] for row in near["row"]]
    assert len(found.nearest()) == 10
    with pytest.raises(ValueError, match="text must have a value for each row of X"):
        found.nearest(text=names[:3])
    with pytest.raises(ValueError, match="label must be in"):
        found.nearest(7)


@pytest.mark.parametrize("metric", ["cosine", "mahalanobis"])
def test_nearest_rows_are_those_of_the_metric(metric):
    rng = np.random.default_rng(6)
    X = rng.normal(size=(300, 4)) + np.repeat([[0.0], [4.0]], 150, axis=0)
    model = daskclust.KMeans(n_clusters=2, metric=metric, random_state=0).fit(X)
    found = profiles(model, X)
    distances = model.transform(X)
    for c in range(2):
        own = np.flatnonzero(np.asarray(model.labels_) == c)
        np.testing.assert_allclose(found.nearest_distances[c], np.sort(distances[own, c])[:5])


def test_one_cluster_has_no_rest():
    found = profiles(None, np.arange(4.0)[:, None], [0, 0, 0, 0])
    assert np.isnan(found.aucs).all()
    assert np.isnan(found.rest_means).all()
    assert found.describe(0) == "the only cluster"


def test_pictures():
    X = load_wine().data
    found = profiles(None, X, load_wine().target)
    ax = found.plot()
    assert len(ax.images) == 1
    assert [t.get_text() for t in ax.get_xticklabels()] == ["0", "1", "2"]
    own = new_figure().add_subplot()
    assert found.plot(own) is own


def test_what_cannot_be_explained_is_refused():
    X = np.zeros((4, 2))
    with pytest.raises(ValueError, match="model or y must be set"):
        profiles(None, X)
    with pytest.raises(ValueError, match="At least one row must have a label"):
        profiles(None, X, [-1, -1, -1, -1])
    X[2, 1] = np.inf
    with pytest.raises(ValueError, match=r"inf at row 2, column 1"):
        profiles(None, X, [0, 0, 1, 1])
    with pytest.raises(ValueError, match="label must be in"):
        profiles(None, X[:2], [0, 1]).distinguishing(7)
    with pytest.raises(MemoryPlanError, match="1100 clusters in 1000 features"):
        profiles(None, np.zeros((1100, 1000), np.float32), np.arange(1100))


@pytest.mark.parametrize(
    ("error", "shown"),
    [(0.0, "0"), (0.00149, "0.002"), (0.02, "0.02"), (0.096, "0.1"), (0.5, "0.5")],
)
def test_the_bound_of_the_auc_is_not_rounded_down(error: float, shown: str) -> None:
    found = profiles(None, np.array([[0.0], [2.0], [9.0], [11.0]]), [0, 0, 1, 1])
    found = dataclasses.replace(found, auc_errors=np.array([[error], [0.0]]))
    assert found.worst_auc_error == shown
    told = f"error at most {shown}." if error else "AUC are exact."
    assert told in found._repr_html_()


def test_what_is_missing_in_a_cluster_is_not_called_low():
    X = np.array([[0.0, np.nan], [1.0, np.nan], [0.5, 7.0], [1.5, 8.0]])
    found = profiles(None, X, np.array([0, 0, 1, 1]))
    assert found.describe(0).startswith("x0 low")
    assert "nan" not in found.describe(0) + found.describe(1)
    nothing = profiles(None, X[:, 1:], np.array([0, 0, 1, 1]))
    assert nothing.describe(0) == "no feature has values both here and in the rest"


def test_bands_of_one_wavelength_have_names_of_their_own():
    image = np.random.default_rng(0).random((6, 7, 3))
    cube = daskclust.open_cube(image, dims=("y", "x", "band"), wavelengths=[500, 500.001, 600])
    model = daskclust.KMeans(2, random_state=0).fit(cube)
    features = profiles(model, cube).features
    assert features == ["500 nm (band 0)", "500 nm (band 1)", "600 nm (band 2)"]

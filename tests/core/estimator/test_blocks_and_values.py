"""Blocks that are not what their metadata say, and values that no distance can hold."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import dask.array as da
import numpy as np
import pytest
from scipy import sparse

import daskclust
from daskclust import metrics
from daskclust.core.estimator.row_functions import RowFunction
from daskclust.core.estimator.transforms import EUCLIDEAN
from daskclust.core.kernels.nearest.assign import nearest
from daskclust.exceptions import ChunkError

RNG = np.random.default_rng(0)
X = np.concatenate([RNG.normal(size=(45, 3)), RNG.normal(size=(45, 3)) + 8])
LAZY = da.from_array(X, chunks=(30, 3))
WIDTHS = {"wide": lambda b: np.c_[b, b], "narrow": lambda b: b[:, :2]}


def lying(change: str) -> da.Array:
    """Rows whose metadata say 3 columns."""
    return LAZY.map_blocks(WIDTHS[change], dtype=X.dtype, chunks=LAZY.chunks, meta=X[:0])


def models() -> dict[str, object]:
    return {
        "kmeans": daskclust.KMeans(2, random_state=0),
        "sparse": daskclust.SparseKMeans(2, sparsity=1.5, random_state=0),
        "pckmeans": daskclust.PCKMeans(2, random_state=0),
        "copkmeans": daskclust.COPKMeans(2, random_state=0),
        "mpckmeans": daskclust.MPCKMeans(2, random_state=0),
        "semi-supervised": daskclust.SemiSupervisedKMeans(2, random_state=0),
        "dpmeans": daskclust.DPMeans(30.0),
        "mixture": daskclust.GaussianMixture(2, random_state=0),
        "pckid": daskclust.PCKID(2, random_state=0),
    }


#: One of centers, one that depends on the order of rows, one of densities.
THREE = ["kmeans", "dpmeans", "mixture"]


@cache
def fitted(name):
    return models()[name].fit(X)


METHODS = {
    "kmeans": ("predict", "transform", "score"),
    "dpmeans": ("predict", "transform", "score"),
    "mixture": ("predict", "predict_proba", "score", "impute"),
    "pckid": ("predict", "transform"),
}


@pytest.mark.parametrize("change", WIDTHS)
@pytest.mark.parametrize("name", THREE)
def test_a_fit_refuses_blocks_of_another_width(name, change):
    with pytest.raises(
        ChunkError, match=r"block at row 0 must have 3 columns.*got shape \(30, \d\)"
    ):
        models()[name].fit(lying(change))


@pytest.mark.parametrize("change", ["wide"])
@pytest.mark.parametrize("name", METHODS)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_every_method_refuses_blocks_of_another_width(name, change):
    model = fitted(name)
    methods = [m for m in METHODS[name] if hasattr(model, m)]
    assert len(methods) >= 2
    for method in methods:
        with pytest.raises(
            ChunkError, match=r"The block at row.*must have 3 columns, as its metadata"
        ):
            np.asarray(getattr(model, method)(lying(change)))


def lying_by(rows: int) -> da.Array:
    """Rows whose metadata say 30 a block."""
    return LAZY.map_blocks(
        lambda b: np.r_[b, b][:rows], dtype=X.dtype, chunks=LAZY.chunks, meta=X[:0]
    )


@pytest.mark.parametrize("rows", [15])
@pytest.mark.parametrize("name", METHODS)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_every_method_refuses_blocks_of_another_length(name, rows):
    model = fitted(name)
    other = lying_by(rows)
    with pytest.raises(ValueError, match=rf"must have 30 rows, as its metadata state, got {rows}"):
        models()[name].fit(other)
    for method in (m for m in METHODS[name] if hasattr(model, m)):
        with pytest.raises(
            ValueError, match=rf"must have 30 rows, as its metadata state, got {rows}"
        ):
            np.asarray(getattr(model, method)(other))
    unknown = da.Array(other.dask, other.name, ((np.nan,) * 3, (3,)), meta=other._meta)
    assert len(model.predict(unknown).compute()) == 3 * rows


@pytest.mark.parametrize("rows", [15, 60])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_kernel_between_rows_refuses_blocks_of_another_length(rows):
    model = fitted("pckid")
    other, wanted = lying_by(rows), model.kernel(X)
    for blocks in ((other,), (LAZY, other), (other, LAZY), (X, other), (other, X)):
        with pytest.raises(
            ChunkError, match=rf"row \d+ must have 30 rows, as its metadata state, got {rows}"
        ):
            model.kernel(*blocks).compute()
    np.testing.assert_array_equal(model.kernel(LAZY), wanted)
    unknown = da.Array(other.dask, other.name, ((np.nan,) * 3, (3,)), meta=other._meta)
    assert model.kernel(unknown, LAZY).compute().shape == (3 * rows, 90)


@pytest.mark.parametrize("change", [lambda b: b + 1j, lambda b: b.astype("datetime64[s]")])
def test_blocks_that_are_no_real_numbers_are_refused(change):
    other = LAZY.map_blocks(change, dtype=X.dtype, meta=X[:0])
    with pytest.raises(ChunkError, match="must contain real numbers, as its metadata state"):
        daskclust.KMeans(2, random_state=0).fit(other)
    with pytest.raises(ChunkError, match="must contain real numbers, as its metadata state"):
        daskclust.KMeans(2, random_state=0).fit(X).predict(other).compute()


@pytest.mark.parametrize("kind", [sparse.csr_matrix, sparse.csr_array])
def test_sparse_blocks_are_refused_with_the_remedy(kind):
    other = LAZY.map_blocks(kind, dtype=X.dtype, meta=X[:0])
    model = daskclust.KMeans(2, random_state=0).fit(X)
    for work in (
        lambda: model.fit(other),
        lambda: model.predict(other).compute(),
        lambda: metrics.simplified_silhouette_score(other, da.from_array(model.labels_, chunks=30)),
        lambda: daskclust.datasets.remove_values(other).compute(),
    ):
        with pytest.raises(TypeError, match=r"SciPy sparse matrix.*block.toarray\(\)"):
            work()


@pytest.mark.parametrize("change", [lambda b: b[:, None], lambda b: np.c_[b, b]])
def test_blocks_of_labels_and_weights_are_one_value_a_row(change):
    plain = da.from_array(np.repeat([0, 1], 45), chunks=30)
    other = plain.map_blocks(change, dtype=plain.dtype, chunks=plain.chunks, meta=np.empty(0, int))
    model = daskclust.SemiSupervisedKMeans(2, random_state=0)
    match = r"A block of \w+ must have one value per row.*got shape \(30, \d\)"
    for work in (
        lambda: model.fit(LAZY, other),
        lambda: model.fit(X, other),
        lambda: model.fit(LAZY, plain, sample_weight=other + 1.0),
        lambda: metrics.adjusted_rand_score(plain, other),
        lambda: metrics.contingency_table(other, plain),
        lambda: metrics.simplified_silhouette_score(LAZY, other),
        lambda: metrics.calinski_harabasz_score(LAZY, plain, sample_weight=other + 1.0),
        lambda: daskclust.pairs_from_labels(other, n_pairs=5),
    ):
        with pytest.raises(ChunkError, match=match):
            work()


@pytest.mark.parametrize("mechanism", ["mcar", "nmar"])
def test_removing_values_refuses_blocks_of_another_width(mechanism):
    with pytest.raises(ChunkError, match=r"The block at row.*must have 3 columns, as its metadata"):
        daskclust.datasets.remove_values(lying("narrow"), mechanism).compute()


def test_weights_that_are_missing_in_a_table_are_refused():
    pd = pytest.importorskip("pandas")
    dd = pytest.importorskip("dask.dataframe")
    weight = pd.Series(np.where(np.arange(90) == 7, np.nan, 1)).convert_dtypes()
    with (
        pytest.raises(ChunkError, match="sample_weight at row 0 must contain numbers"),
        pytest.warns(UserWarning, match="pandas extension dtypes"),
    ):
        daskclust.KMeans(2, random_state=0).fit(
            LAZY, sample_weight=dd.from_pandas(weight, npartitions=3)
        )


@pytest.mark.parametrize("change", WIDTHS)
def test_metrics_refuse_blocks_of_another_width(change):
    labels = np.repeat([0, 1], 45)
    with pytest.raises(ChunkError, match=r"The block at row.*must have 3 columns, as its metadata"):
        metrics.centroid_scores(lying(change), da.from_array(labels, chunks=30))


@pytest.mark.parametrize("make", [np.asarray, lambda x: da.from_array(x, chunks=(40, 3))])
@pytest.mark.parametrize("name", THREE)
def test_values_whose_squares_overflow_are_refused(name, make):
    x = X.copy()
    x[7, 1] = 1e160
    with pytest.raises(
        ValueError, match=r"Column 1 of X has absolute values up to.*squared distances"
    ):
        models()[name].fit(make(x))


def test_mahalanobis_refuses_values_whose_squares_overflow():
    x = X.copy()
    x[7, 1] = 1e160
    with pytest.raises(
        ValueError, match=r"Column 1 of X has absolute values up to 1e\+160; squared distances"
    ):
        daskclust.KMeans(2, metric="mahalanobis", random_state=0).fit(x)


def test_predictions_refuse_rows_at_infinite_distance():
    model = daskclust.KMeans(2, random_state=0).fit(X)
    x = X.copy()
    x[7, 1] = 1e160
    for method in (model.predict, model.transform):
        with pytest.raises(ValueError, match=r"Row 7 of X is so far"):
            method(x)
    with pytest.raises(
        ValueError, match=r"Column 1 of X has absolute values up to 1e\+160; squared distances"
    ):
        model.score(x)


@pytest.mark.parametrize("missing", ["error", "partial"])
@pytest.mark.parametrize("weights", [None, [0.0, 1.0, 2.0], [0.0, 0.0, 0.0]])
@pytest.mark.parametrize("column", range(3))
def test_predictions_refuse_values_whatever_their_weight(column, weights, missing):
    """A value is only looked for where a distance is not finite: each has to make one."""
    given = None if weights is None else np.array(weights)
    of_rows = RowFunction(X[[0, 50]], EUCLIDEAN, given, X.dtype, missing=missing == "partial")
    np.testing.assert_array_equal(of_rows(X, 0), nearest(X, X[[0, 50]], feature_weights=given)[0])
    for value, said in ((np.inf, "infinity"), (-np.inf, "infinity"), (np.nan, "NaN")):
        x = X.copy()
        x[7, column] = value
        if said == "NaN" and missing == "partial":
            assert of_rows(x, 100).shape == (90,)
            continue
        # The only value of its row, too.
        for others in (x[7], np.where(np.arange(3) == column, value, np.nan)):
            x[7] = others if missing == "partial" else x[7]
            for function in (of_rows, replace(of_rows, distances=True)):
                with pytest.raises(ValueError, match=f"row 107, column {column}"):
                    function(x, 100)


def test_rows_without_a_direction_get_label_0_whatever_the_chunks():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 5))
    x[::7] = 0.0
    for make in (np.asarray, *(lambda x, c=c: da.from_array(x, chunks=(c, 5)) for c in (13, 50))):
        model = daskclust.KMeans(4, metric="cosine", random_state=0)
        labels = np.asarray(model.fit(make(x)).labels_)
        assert not labels[::7].any()
        assert not np.asarray(model.predict(make(x)))[::7].any()


WEIGHTLESS = np.where(np.arange(90) == 3, 0.0, 1.0)


@pytest.mark.parametrize("value", [1e160, 1.7e308])
@pytest.mark.parametrize("name", THREE)
def test_huge_values_in_rows_of_weight_0_are_refused_as_in_others(name, value):
    # Such a row gets a label, too, and 0 times infinity is NaN in all sums.
    x = X.copy()
    x[3, 1] = value
    for rows in (x, da.from_array(x, chunks=(40, 3))):
        with pytest.raises(
            ValueError, match=r"Column 1 of X has absolute values up to.*squared distances"
        ):
            models()[name].fit(rows, sample_weight=WEIGHTLESS)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_huge_values_have_a_direction():
    x = X.copy()
    x[3] = 1e160
    model = daskclust.KMeans(2, metric="cosine", random_state=0).fit(x, sample_weight=WEIGHTLESS)
    assert np.isfinite(model.inertia_)


@pytest.mark.parametrize("weight", [5e-324, 1e-300, 1e300])
@pytest.mark.parametrize("name", THREE)
def test_weights_whose_inverse_or_sum_overflows_are_refused(name, weight):
    weights = np.ones(90)
    weights[7] = weight
    with pytest.raises(ValueError, match=r"weight of row 7 is .* too small or large"):
        models()[name].fit(X, sample_weight=weights)


def test_weights_times_squares_must_not_overflow():
    with pytest.raises(
        ValueError, match=r"Sums of squared distances overflow: the weights sum to 9e\+101, and X"
    ):
        daskclust.KMeans(2, random_state=0).fit(X * 1e100, sample_weight=np.full(90, 1e100))


@pytest.mark.parametrize("name", ["pckmeans", "mpckmeans"])
def test_prices_of_constraints_must_not_overflow(name):
    pair = [[0, 60]]
    with pytest.raises(daskclust.exceptions.ConstraintError, match="costs of violations overflow"):
        models()[name].fit(X * 1e100, must_link=pair, must_link_weight=1e120)
    with pytest.raises(daskclust.exceptions.ConstraintError, match="costs of violations overflow"):
        models()[name].fit(X, must_link=pair, must_link_weight=1e200)


def test_huge_labeled_rows_end_in_the_error_not_in_a_warning():
    x = X.copy()
    x[1] = 1e160
    y = np.where(np.arange(90) < 60, np.arange(90) // 45, -1)
    for rows in (x, da.from_array(x, chunks=(40, 3))):
        with pytest.raises(
            ValueError, match=r"Column 0 of X has absolute values up to 1e\+160; squared distances"
        ):
            daskclust.SemiSupervisedKMeans(2, random_state=0).fit(rows, y)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_an_offset_that_swallows_the_spread_is_told():
    with pytest.warns(
        daskclust.exceptions.PrecisionWarning, match=r"Column 0 of X has mean 1e\+14"
    ):
        daskclust.KMeans(2, random_state=0).fit(X + np.array([1e14, 0.0, 0.0]))
    # There is no warning for an offset that keeps the precision, or for equal rows.
    daskclust.KMeans(2, random_state=0).fit(X + 1e10)
    daskclust.KMeans(1, random_state=0).fit(np.full((5, 2), 1e17))


def test_the_kernel_of_blocks_of_another_width():
    model = daskclust.PCKID(2, n_initializations=2, max_components=3, random_state=0).fit(X)
    for change in WIDTHS:
        for pair in ((lying(change), None), (X, lying(change)), (lying(change), X)):
            with pytest.raises(
                ChunkError, match=r"The block at row.*must have 3 columns, as its metadata"
            ):
                model.kernel(*pair).compute()

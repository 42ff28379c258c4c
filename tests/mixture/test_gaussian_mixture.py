"""GaussianMixture: against scikit-learn, with values missing, and everything a user may hand it."""

from __future__ import annotations

import warnings

import dask
import dask.array as da
import numpy as np
import pandas as pd
import pytest
from helpers import chunks_of, values
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.mixture import GaussianMixture as SklearnMixture

from daskclust import GaussianMixture
from daskclust.datasets import remove_values
from daskclust.exceptions import CheckpointError
from daskclust.mixture import _em
from daskclust.testing import CountingScheduler
from daskclust.testing.strategies import row_chunks

pytestmark = pytest.mark.usefixtures("synchronous")

chunked = chunks_of(130)

TYPES = ["diag", "full"]
INITS = ["kmeans", "k-means++", "random", "random_from_data"]
P, K = 4, 3


def blobs(n=500, seed=0):
    rng = np.random.default_rng(seed)
    centers = rng.normal(scale=3.0, size=(K, P))
    truth = rng.integers(0, K, n)
    roots = np.eye(P) + 0.3 * rng.normal(size=(K, P, P))
    noise = np.einsum("nij,nj->ni", roots[truth], rng.normal(size=(n, P)))
    return centers[truth] + noise, truth


X, TRUTH = blobs()
GAPS = remove_values(X, "mcar", fraction=0.25, random_state=1)
WEIGHT = np.random.default_rng(9).integers(0, 4, len(X)).astype(float)


def start(kind, means=X[:K]):
    precisions = np.ones((K, P)) if kind == "diag" else np.array([np.eye(P)] * K)
    return {
        "weights_init": np.full(K, 1 / K),
        "means_init": means,
        "precisions_init": precisions,
    }


def quiet(model, *arguments, **keywords):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(*arguments, **keywords)


def assert_close(one, two, tolerance=1e-10):
    for name in ("weights_", "means_", "covariances_", "lower_bound_"):
        np.testing.assert_allclose(
            getattr(one, name), getattr(two, name), rtol=tolerance, atol=tolerance, err_msg=name
        )
    np.testing.assert_array_equal(values(one.labels_), values(two.labels_))


# Against scikit-learn, without missing values.


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("n_iter", [1, 2, 10])
@pytest.mark.parametrize("container", [np.asarray, chunked])
@pytest.mark.parametrize("reg_covar", [0.0, 1e-2])
def test_em_steps_equal_scikit_learns(kind, n_iter, container, reg_covar):
    common = {"covariance_type": kind, "max_iter": n_iter, "tol": 0.0, "reg_covar": reg_covar}
    theirs = quiet(SklearnMixture(K, **common, **start(kind)), X)
    ours = quiet(GaussianMixture(K, **common, **start(kind)), container(X))
    for name in ("weights_", "means_", "covariances_", "precisions_", "precisions_cholesky_"):
        np.testing.assert_allclose(
            getattr(ours, name), getattr(theirs, name), rtol=1e-10, atol=1e-10, err_msg=name
        )
    assert ours.lower_bound_ == pytest.approx(theirs.lower_bound_, abs=1e-10)
    np.testing.assert_array_equal(values(ours.labels_), theirs.predict(X))
    np.testing.assert_allclose(
        values(ours.predict_proba(container(X))), theirs.predict_proba(X), atol=1e-10
    )
    np.testing.assert_allclose(
        values(ours.score_samples(container(X))), theirs.score_samples(X), rtol=1e-10
    )
    assert ours.score(container(X)) == pytest.approx(theirs.score(X), rel=1e-12)
    assert ours.bic(container(X)) == pytest.approx(theirs.bic(X), rel=1e-12)
    assert ours.aic(container(X)) == pytest.approx(theirs.aic(X), rel=1e-12)


@pytest.mark.parametrize("kind", TYPES)
def test_stops_after_as_many_iterations_as_scikit_learn(kind):
    theirs = SklearnMixture(K, covariance_type=kind, **start(kind)).fit(X)
    ours = GaussianMixture(K, covariance_type=kind, **start(kind)).fit(X)
    assert ours.converged_
    assert ours.n_iter_ == theirs.n_iter_
    assert [r["iteration"] for r in ours.history_] == list(range(1, ours.n_iter_ + 1))


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("init", INITS)
def test_every_start_finds_the_blobs(kind, init):
    model = GaussianMixture(K, covariance_type=kind, init_params=init, n_init=4, random_state=0)
    model = quiet(model, X)
    theirs = SklearnMixture(K, covariance_type=kind, n_init=4, random_state=0).fit(X)
    assert model.score(X) >= theirs.score(X) - 0.02


# With values missing.


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("init", INITS)
@pytest.mark.parametrize("mechanism", ["mcar", "mar"])
def test_the_likelihood_of_what_is_observed_never_falls(kind, init, mechanism):
    data = remove_values(X, mechanism, fraction=0.3, random_state=2)
    data[7] = np.nan
    model = GaussianMixture(
        K, covariance_type=kind, init_params=init, reg_covar=0.0, tol=0.0, max_iter=40
    )
    bounds = [
        record["objective"] for record in quiet(model.set_params(random_state=3), data).history_
    ]
    assert (np.diff(bounds) >= -1e-12).all()
    assert bounds[-1] > bounds[0]
    assert model.score(data) >= bounds[-1] - 1e-12


@pytest.mark.parametrize("kind", TYPES)
def test_missing_values_estimate_what_complete_rows_do(kind):
    data, _ = blobs(6000, seed=4)
    whole = GaussianMixture(K, covariance_type=kind, random_state=0, tol=1e-6).fit(data)
    gaps = remove_values(data, "mcar", fraction=0.2, random_state=5)
    fit = GaussianMixture(K, covariance_type=kind, random_state=0, tol=1e-6).fit(gaps)
    order = [np.abs(fit.means_ - mean).sum(axis=1).argmin() for mean in whole.means_]
    np.testing.assert_allclose(fit.means_[order], whole.means_, atol=0.15)
    np.testing.assert_allclose(fit.weights_[order], whole.weights_, atol=0.02)
    np.testing.assert_allclose(fit.covariances_[order], whole.covariances_, atol=0.35)


def test_one_full_component_of_mar_data_is_not_biased_as_column_means_are():
    # The second value is seen only where the first is small, and rises with it.
    rng = np.random.default_rng(0)
    first = rng.normal(size=20_000)
    data = np.stack([first, first + 0.5 * rng.normal(size=first.size)], axis=1)
    data[first > 0.0, 1] = np.nan
    model = GaussianMixture(1, tol=1e-9, max_iter=500).fit(data)
    assert np.nanmean(data[:, 1]) < -0.7
    np.testing.assert_allclose(model.means_, 0.0, atol=0.03)
    np.testing.assert_allclose(model.covariances_[0], [[1.0, 1.0], [1.0, 1.25]], atol=0.06)


@pytest.mark.parametrize("kind", TYPES)
def test_one_component_of_complete_rows_and_one_value_missing_by_hand(kind):
    data = np.array([[0.0, 0.0], [2.0, 2.0], [4.0, np.nan]])
    model = quiet(
        GaussianMixture(1, covariance_type=kind, reg_covar=0.0, tol=0, max_iter=500), data
    )
    if kind == "diag":
        # Values are missing at random, so moments are those of the observed values.
        np.testing.assert_allclose(model.means_, [[2.0, 1.0]], rtol=1e-9)
        np.testing.assert_allclose(model.covariances_, [[8 / 3, 1.0]], rtol=1e-9)
        assert model.impute(data)[2].tolist() == pytest.approx([4.0, 1.0])
    else:
        # The second value is the first.
        np.testing.assert_allclose(model.means_, [[2.0, 2.0]], rtol=1e-4)
        np.testing.assert_allclose(model.covariances_[0], np.full((2, 2), 8 / 3), rtol=1e-3)
        assert model.impute(data)[2].tolist() == pytest.approx([4.0, 4.0], rel=1e-3)


@pytest.mark.parametrize("kind", TYPES)
def test_a_row_without_any_value_moves_nothing_but_the_count(kind):
    without = quiet(GaussianMixture(K, covariance_type=kind, **start(kind), max_iter=5), GAPS)
    extra = np.vstack([GAPS, np.full((50, P), np.nan)])
    model = quiet(GaussianMixture(K, covariance_type=kind, **start(kind), max_iter=5), extra)
    np.testing.assert_allclose(model.means_, without.means_, rtol=0, atol=0.2)
    np.testing.assert_allclose(model.predict_proba(extra)[-1], model.weights_, rtol=1e-12)
    np.testing.assert_allclose(model.score_samples(extra)[-1], 0.0, atol=1e-12)
    np.testing.assert_allclose(model.impute(extra)[-1], model.weights_ @ model.means_, rtol=1e-12)


@pytest.mark.parametrize("kind", TYPES)
def test_a_column_missing_in_a_whole_block_is_handled(kind):
    data = GAPS.copy()
    data[:200, 1] = np.nan
    one = quiet(GaussianMixture(K, covariance_type=kind, random_state=0), data)
    cut = quiet(GaussianMixture(K, covariance_type=kind, random_state=0), chunked(data, 100))
    assert_close(cut, one)


# Any container, any chunks, any scheduler.


@pytest.mark.parametrize("kind", TYPES)
@given(lengths=row_chunks(60), init=st.sampled_from(INITS), weighted=st.booleans())
def test_any_chunks_give_the_same_model(kind, lengths, init, weighted):
    data, weight = GAPS[:60], WEIGHT[:60] if weighted else None
    model = GaussianMixture(
        2, covariance_type=kind, init_params=init, random_state=0, max_iter=8, reg_covar=1e-2
    )
    whole = quiet(clone(model), data, sample_weight=weight)
    cut = quiet(clone(model), da.from_array(data, chunks=(lengths, P)), sample_weight=weight)
    assert_close(cut, whole, 1e-9)


def test_a_cluster_of_processes_gives_the_same_model(client):
    whole = quiet(GaussianMixture(K, random_state=0), GAPS)
    model = quiet(GaussianMixture(K, random_state=0), chunked(GAPS, 90))
    assert_close(model, whole)
    assert isinstance(model.labels_, da.Array)
    np.testing.assert_allclose(
        model.impute(chunked(GAPS, 77)).compute(), whole.impute(GAPS), rtol=1e-9, atol=1e-9
    )


def test_dask_in_is_dask_out_in_the_same_chunks():
    data = chunked(GAPS.astype(np.float32))
    model = quiet(GaussianMixture(K, random_state=0), data)
    for out, dtype, columns in (
        (model.labels_, np.int32, None),
        (model.predict(data), np.int32, None),
        (model.predict_proba(data), np.float32, K),
        (model.score_samples(data), np.float64, None),
        (model.impute(data), np.float32, P),
    ):
        assert isinstance(out, da.Array)
        assert out.chunks[0] == data.chunks[0]
        assert out.dtype == dtype == out.compute().dtype
        assert out.shape[1:] == (() if columns is None else (columns,))
    assert model.means_.dtype == model.covariances_.dtype == np.float64
    np.testing.assert_array_equal(model.predict(GAPS.astype(np.float32)), model.labels_.compute())


def test_a_table_with_gaps_brings_its_names():
    table = pd.DataFrame(GAPS, columns=list("abcd"))
    model = quiet(GaussianMixture(K, random_state=0), table)
    assert model.feature_names_in_.tolist() == list("abcd")
    assert_close(model, quiet(GaussianMixture(K, random_state=0), GAPS))


@pytest.mark.parametrize("kind", TYPES)
def test_an_integer_weight_equals_repetition_and_0_absence(kind):
    repeated = np.repeat(GAPS, WEIGHT.astype(int), axis=0)
    common = {"covariance_type": kind, "max_iter": 6, **start(kind)}
    weighted = quiet(GaussianMixture(K, **common), GAPS, sample_weight=WEIGHT)
    plain = quiet(GaussianMixture(K, **common), repeated)
    for name in ("weights_", "means_", "covariances_", "lower_bound_"):
        np.testing.assert_allclose(
            getattr(weighted, name), getattr(plain, name), rtol=1e-9, atol=1e-10
        )


@pytest.mark.parametrize("offset", [0.0, 1e4])
def test_where_the_data_lie_does_not_matter(offset):
    near = quiet(GaussianMixture(K, random_state=0, max_iter=5), GAPS)
    far = quiet(GaussianMixture(K, random_state=0, max_iter=5), GAPS + offset)
    np.testing.assert_allclose(far.means_ - offset, near.means_, atol=1e-6)
    np.testing.assert_allclose(far.covariances_, near.covariances_, atol=1e-6)


# Passes, restarts, starts, checkpoints.


@pytest.mark.parametrize("init", ["random", "random_from_data", "k-means++"])
def test_passes(init):
    data = chunked(GAPS, 100)
    scheduler = CountingScheduler()
    with dask.config.set(scheduler=scheduler):
        model = GaussianMixture(K, init_params=init, n_init=3, random_state=0, max_iter=4, tol=0)
        quiet(model, data)
    # The first pass, the start (the sample and K - 1 centers), one per iteration; restarts share
    # them all.
    passes = 1 + (K if init == "k-means++" else 0) + 1 + 4
    assert model.history_[-1]["passes"] == passes
    assert scheduler.calls in (passes, passes + 1)


def test_given_parameters_need_no_start():
    model = quiet(GaussianMixture(K, max_iter=4, tol=0, **start("full")), GAPS)
    assert model.history_[-1]["passes"] == 1 + 4


def test_given_means_replace_those_found():
    model = GaussianMixture(K, means_init=X[:K], random_state=0, max_iter=1)
    theirs = SklearnMixture(K, means_init=X[:K], random_state=0, max_iter=1)
    # From the clusters of k-means come weights and covariances.
    np.testing.assert_allclose(
        quiet(model, X).lower_bound_, quiet(theirs, X).lower_bound_, rtol=0.2
    )


def test_the_best_restart_is_kept():
    found = [
        quiet(GaussianMixture(K, init_params="random", random_state=s, max_iter=15), GAPS)
        for s in range(3)
    ]
    many = GaussianMixture(K, init_params="random", n_init=6, random_state=0, max_iter=15)
    quiet(many, GAPS)
    assert many.lower_bound_ >= min(model.lower_bound_ for model in found)
    assert many.lower_bound_ == pytest.approx(many.history_[-1]["objective"], abs=1e-8)


def test_warm_start_goes_on_where_the_last_fit_stopped():
    whole = quiet(GaussianMixture(K, max_iter=9, tol=0, **start("full")), GAPS)
    warm = GaussianMixture(K, max_iter=4, tol=0, warm_start=True, **start("full"))
    quiet(warm, GAPS)
    quiet(warm.set_params(max_iter=5), GAPS)
    assert_close(warm, whole)


@pytest.mark.parametrize(
    ("changed", "data"),
    [({"n_components": 4}, X), ({"covariance_type": "diag"}, X), ({}, X[:, :2])],
)
def test_a_warm_start_of_another_shape_is_refused(changed, data):
    model = quiet(GaussianMixture(K, random_state=0, warm_start=True), X)
    with pytest.raises(ValueError, match=r"warm_start=True, .*got \(3, 4, 4\)"):
        model.set_params(**changed).fit(data)


@pytest.mark.parametrize("kind", TYPES)
def test_a_fit_continues_from_its_checkpoint_to_the_same_bits(kind, tmp_path):
    path = tmp_path / "fit.npz"
    common = {"covariance_type": kind, "random_state": 0, "tol": 0.0, "n_init": 2}
    whole = quiet(GaussianMixture(K, max_iter=7, **common), GAPS)
    quiet(GaussianMixture(K, max_iter=3, checkpoint=path, **common), GAPS)
    again = quiet(GaussianMixture(K, max_iter=7, checkpoint=path, **common), GAPS)
    np.testing.assert_array_equal(again.means_, whole.means_)
    np.testing.assert_array_equal(again.covariances_, whole.covariances_)
    assert again.lower_bound_ == whole.lower_bound_
    with pytest.raises(CheckpointError, match="belongs to another fit"):
        GaussianMixture(K, checkpoint=path, **common).fit(GAPS + 1.0)


def test_rows_drawn_have_the_moments_of_the_mixture():
    for kind in TYPES:
        model = quiet(GaussianMixture(2, covariance_type=kind, random_state=0), GAPS)
        rows, labels = model.sample(40_000)
        assert rows.shape == (40_000, P)
        for k in range(2):
            part = rows[labels == k]
            assert len(part) / 40_000 == pytest.approx(model.weights_[k], abs=0.02)
            np.testing.assert_allclose(part.mean(axis=0), model.means_[k], atol=0.15)
            matrix = model.covariances_[k]
            matrix = np.diag(matrix) if kind == "diag" else matrix
            np.testing.assert_allclose(np.cov(part.T), matrix, atol=0.6)


# Singular components and the floor.


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("reg_covar", [0.0, 1e-6])
def test_constant_columns_are_of_no_consequence(kind, reg_covar):
    data = np.column_stack([GAPS, np.full(len(GAPS), 3.0)])
    fit = GaussianMixture(K, covariance_type=kind, random_state=0, reg_covar=reg_covar)
    plain = quiet(clone(fit), GAPS)
    model = quiet(clone(fit), data)
    np.testing.assert_allclose(model.means_[:, P], 3.0, rtol=1e-9)
    np.testing.assert_allclose(model.means_[:, :P], plain.means_, atol=1e-4)
    assert np.isfinite(model.predict_proba(data)).all()


@pytest.mark.parametrize("kind", TYPES)
def test_components_of_single_rows_meet_the_floor(kind):
    data = np.concatenate([X[:40], [[100.0] * P]])
    given = start(kind, np.zeros((K, P)))
    given["weights_init"] = [0.5, 0.5]
    given["means_init"] = [X[:40].mean(axis=0), [100.0] * P]
    given["precisions_init"] = given["precisions_init"][:2]
    model = GaussianMixture(2, covariance_type=kind, reg_covar=0.0, **given).fit(data)
    assert model.labels_[-1] == 1
    assert np.bincount(model.labels_).tolist() == [40, 1]
    if kind == "diag":
        np.testing.assert_allclose(
            model.covariances_[1], _em.MIN_VARIANCE * data.var(axis=0), rtol=1e-6
        )
    assert np.isfinite(model.score(data))


def test_a_doubled_column_is_no_obstacle_to_full_covariances():
    data = np.column_stack([GAPS, GAPS[:, 0]])
    model = quiet(GaussianMixture(K, reg_covar=0.0, random_state=0), data)
    assert np.isfinite(model.score(data))
    gone = data.copy()
    gone[:, 4] = np.nan
    there = ~np.isnan(data[:, 4])
    np.testing.assert_allclose(model.impute(gone)[there, 4], data[there, 4], atol=1e-3)


def test_more_components_than_distinct_rows():
    data = np.repeat(X[:2], 10, axis=0)
    model = quiet(GaussianMixture(4, covariance_type="diag", random_state=0), data)
    assert len(np.unique(model.labels_)) == 2
    assert model.weights_.sum() == pytest.approx(1.0)
    assert np.isfinite(model.score(data))


# Bad input.


@pytest.mark.parametrize("container", [np.asarray, chunked])
@pytest.mark.parametrize("bad", [np.inf, -np.inf])
def test_infinity_is_not_missing(container, bad):
    data = GAPS.copy()
    data[140, 2] = bad
    with pytest.raises(ValueError, match="contains infinity: the first at row 140, column 2"):
        GaussianMixture(K).fit(container(data))
    model = quiet(GaussianMixture(K, random_state=0), GAPS)
    for method in (model.predict, model.predict_proba, model.score_samples, model.impute):
        with pytest.raises(ValueError, match="infinity"):
            values(method(container(data)))
    with pytest.raises(ValueError, match="infinity: the first at row 140, column 2"):
        model.score(container(data))


def test_columns_or_data_without_any_value_are_refused():
    data = GAPS.copy()
    data[:, [1, 3]] = np.nan
    with pytest.raises(ValueError, match=r"column 1 contains only NaN.*Drop the columns 1, 3"):
        GaussianMixture(K).fit(data)
    with pytest.raises(ValueError, match=r"X must contain values, but every entry is NaN\."):
        GaussianMixture(1).fit(np.full((5, 2), np.nan))


@pytest.mark.parametrize("container", [np.asarray, chunked])
def test_more_components_than_rows_with_values_are_refused(container):
    data = np.full((9, P), np.nan)
    data[:2] = X[:2]
    with pytest.raises(ValueError, match="n_samples=2 should be >= n_components=3"):
        GaussianMixture(3).fit(container(data))
    with pytest.raises(ValueError, match="n_components=10 must be at most n_samples=9"):
        GaussianMixture(10).fit(container(data))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -1.0])
def test_bad_weights_are_named(bad):
    weight = np.ones(len(GAPS))
    weight[5] = bad
    with pytest.raises(ValueError, match="weight of row 5"):
        GaussianMixture(K).fit(GAPS, sample_weight=weight)
    with pytest.raises(ValueError, match="At least one sample weight must be positive"):
        GaussianMixture(K).fit(GAPS, sample_weight=np.zeros(len(GAPS)))


@pytest.mark.parametrize(
    ("parameter", "value", "message"),
    [
        ("weights_init", [0.5, 0.5, 0.5], "weights_init must be nonnegative and sum to 1"),
        ("weights_init", [1.0], r"weights_init must have shape \(3,\), got \(1,\)"),
        ("means_init", np.zeros((2, P)), r"means_init must have shape \(3, 4\), got \(2, 4\)"),
        ("means_init", np.full((K, P), np.nan), "means_init must be finite, got NaN"),
        ("precisions_init", np.zeros((K, P, P)), "must be positive definite"),
        ("precisions_init", np.triu(np.ones((K, P, P))), "must be symmetric"),
    ],
)
def test_a_parameter_out_of_range_is_refused_by_name(parameter, value, message):
    with pytest.raises(ValueError, match=message):
        GaussianMixture(**{"n_components": K, parameter: value}).fit(GAPS)


def test_other_bad_parameters():
    with pytest.raises(ValueError, match="must be positive"):
        GaussianMixture(K, covariance_type="diag", precisions_init=np.zeros((K, P))).fit(GAPS)
    with pytest.raises(TypeError):
        GaussianMixture(K, "diag")
    with pytest.raises(NotFittedError):
        GaussianMixture(K).predict_proba(GAPS)
    with pytest.raises(ValueError, match="features"):
        quiet(GaussianMixture(K), GAPS).predict(GAPS[:, :2])


def test_no_convergence_is_a_warning():
    with pytest.warns(ConvergenceWarning, match="max_iter=2 iterations"):
        GaussianMixture(K, max_iter=2, tol=0.0, random_state=0).fit(GAPS)


@pytest.mark.parametrize("method", ["predict", "predict_proba", "score_samples", "impute"])
def test_masked_values_of_blocks_are_missing_after_the_fit_too(method):
    def masked(block):
        return np.ma.array(np.where(np.isnan(block), 1e6, block), mask=np.isnan(block))

    model = GaussianMixture(K, random_state=0, max_iter=3, tol=0.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(chunked(GAPS))
    rows = chunked(GAPS).map_blocks(masked, dtype=GAPS.dtype)
    want = values(getattr(model, method)(chunked(GAPS)))
    np.testing.assert_array_equal(values(getattr(model, method)(rows)), want)


def test_absent_rows_may_miss_values():
    x = np.array([[16.0, 1.0], [np.nan, 2.0], [0.5, 3.0]])
    model = GaussianMixture(1, random_state=0).fit(x, sample_weight=[0.0, 0.0, 2.0])
    np.testing.assert_allclose(model.means_, [[0.5, 3.0]])

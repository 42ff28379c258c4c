"""PCKID: against its dense definition, for any chunks, and everything a user may hand it."""

from __future__ import annotations

import dask
import dask.array as da
import numpy as np
import pytest
from helpers import chunks_of, values
from hypothesis import given, settings
from oracles.pckid import dense_embedding, dense_kernel, members
from sklearn.base import clone
from sklearn.metrics import adjusted_rand_score

import daskclust.cluster.lloyd as lloyd
import daskclust.mixture._ensemble as spectrum
from daskclust import PCKID
from daskclust.cluster.lloyd import LloydProblem
from daskclust.core.kernels.nearest.assign import nearest
from daskclust.datasets import make_sparse_blobs, remove_values
from daskclust.exceptions import CheckpointError
from daskclust.mixture._em import Floor, maximize
from daskclust.mixture._ensemble import Member, Pool, train_member
from daskclust.mixture.expectation import accumulate_mixtures
from daskclust.testing import CountingScheduler
from daskclust.testing.strategies import row_chunks

pytestmark = pytest.mark.usefixtures("synchronous")

chunked = chunks_of(70)

P, K = 5, 3
WHOLE, TRUTH = make_sparse_blobs(
    240, n_clusters=K, n_informative=P, n_uninformative=0, random_state=0
)
X = remove_values(WHOLE, "mcar", fraction=0.25, random_state=0)
X[3] = np.nan
SMALL = {"n_initializations": 3, "max_components": 5, "n_init": 4, "random_state": 0}
SOLVERS = ["gram", "kernel", "randomized"]


def pckid(solver, power_iterations=4, **parameters):
    """Return an estimator with a fixed solver of the eigenvectors."""
    model = PCKID(K, **parameters)
    model._solver, model._power_iterations = solver, power_iterations
    return model


def aligned(embedding, like):
    return embedding * np.sign((embedding * like).sum(axis=0))


# The definition.


@pytest.mark.parametrize("kind", ["diag", "full"])
@pytest.mark.parametrize("solver", SOLVERS)
def test_equals_the_dense_definition(kind, solver):
    model = pckid(solver, covariance_type=kind, **SMALL).fit(chunked(X))
    kernel = dense_kernel(model, X)
    np.testing.assert_allclose(model.kernel(X), kernel, atol=1e-11)
    embedding, eigenvalues = dense_embedding(kernel, K)
    tolerance = 1e-8 if solver != "randomized" else 3e-6
    np.testing.assert_allclose(model.eigenvalues_, eigenvalues, rtol=tolerance)
    found = values(model.embedding_)
    np.testing.assert_allclose(aligned(found, embedding), embedding, atol=tolerance)
    assert {r["solver"] for r in model.history_ if r["stage"] == "spectrum"} == {solver}


def test_the_kernel_is_in_0_to_1_and_at_most_1_on_the_diagonal():
    model = PCKID(K, **SMALL).fit(X)
    kernel = model.kernel(X)
    assert kernel.min() >= 0.0
    assert kernel.max() <= 1.0
    np.testing.assert_allclose(kernel, kernel.T, atol=1e-14)
    assert np.linalg.eigvalsh(kernel).min() > -1e-9
    np.testing.assert_allclose(model.kernel(X[:7], X[5:30]), kernel[:7, 5:30], atol=1e-14)


def test_members_are_as_many_and_as_large_as_the_paper_says():
    model = PCKID(K, **SMALL).fit(X)
    assert [m.sizes[0] for m in members(model)] == [2, 3, 4, 5] * 3
    assert len(model._weights) == 3 * (5 * 6 // 2 - 1)


@pytest.mark.parametrize("full", [False, True], ids=["diag", "full"])
def test_a_member_is_trained_as_section_3_1_says(full):
    mean, floor = np.nanmean(X, axis=0), Floor.of(0.0, np.nanvar(X, axis=0), min_fraction=1e-3)
    rows = X[~np.isnan(X).all(axis=1)]
    member = Member(size=4, seed=11, n_rows=60, em_iter=3, full=full)
    found = train_member(Pool(rows, mean, floor), member)
    rng = np.random.Generator(np.random.Philox(11))
    x = rows[np.sort(rng.choice(len(rows), 60, replace=False))]
    filled = np.where(np.isnan(x), mean, x)
    labels = nearest(filled, filled[rng.choice(60, 4, replace=False)])[0]
    parts = [filled[labels == k] for k in range(4)]
    weights = np.array([len(part) for part in parts]) / 60
    means = np.array([part.mean(axis=0) for part in parts])
    covariances = [np.cov(part.T, bias=True) for part in parts]
    covariances = covariances if full else [np.diag(c) for c in covariances]
    mixtures = type(found)(weights, means, floor(np.array(covariances), not full), (4,))
    for _ in range(3):
        sums = accumulate_mixtures(x, mixtures, shift=mean).sums.sum(axis=0)
        mixtures = maximize(sums, mixtures, mean, floor)
    for name in ("weights", "means", "covariances"):
        np.testing.assert_allclose(
            getattr(found, name), getattr(mixtures, name), rtol=1e-7, atol=1e-12
        )


def test_no_em_iteration_leaves_the_start():
    model = PCKID(K, em_iter=0, **SMALL).fit(X)
    assert np.isfinite(values(model.embedding_)).all()


def test_a_column_that_a_subsample_lacks_takes_the_mean_of_all():
    rows = X[10:60].copy()
    rows[:, 2] = np.nan
    pool = Pool(rows, np.full(P, 7.0), Floor.of(0.0, np.ones(P), min_fraction=1e-3))
    found = train_member(pool, Member(3, 0, 40, 5, False))
    np.testing.assert_allclose(found.means[:, 2], 7.0)
    assert np.isfinite(found.covariances).all()


def test_finds_clusters_of_incomplete_rows():
    model = PCKID(K, n_initializations=5, max_components=8, random_state=0).fit(X)
    informed = np.arange(len(X)) != 3
    assert adjusted_rand_score(TRUTH[informed], model.labels_[informed]) > 0.9


# New rows.


@pytest.mark.parametrize("solver", SOLVERS)
def test_transform_and_predict_of_the_rows_of_the_fit_are_those_of_the_fit(solver):
    model = pckid(solver, **SMALL).fit(X)
    np.testing.assert_allclose(model.transform(X), model.embedding_, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(model.predict(X), model.labels_)


def test_rows_never_seen_are_projected():
    model = pckid("kernel", **SMALL).fit(X[:200])
    # Coordinates follow from the kernel to the rows of the fit (Nystroem).
    kernel = model.kernel(X[200:], X[:200])
    expected = kernel @ model.embedding_ / model.eigenvalues_
    np.testing.assert_allclose(model.transform(X[200:]), expected, atol=1e-9)


def test_embedding_dim():
    model = PCKID(K, embedding_dim=6, **SMALL).fit(X)
    assert model.embedding_.shape == (240, 6)
    assert model.eigenvalues_.shape == (6,)
    assert model.get_feature_names_out().tolist() == [f"pckid{i}" for i in range(6)]
    np.testing.assert_allclose(
        model.fit_transform(X), clone(model).fit(X).embedding_, rtol=1e-9, atol=1e-9
    )


# Containers, chunks, schedulers.


@pytest.mark.parametrize("solver", SOLVERS)
@settings(max_examples=5)
@given(lengths=row_chunks(240))
def test_any_chunks_give_the_same_model(solver, lengths):
    model = pckid(solver, **SMALL)
    whole = clone(model).fit(X)
    cut = clone(model).fit(da.from_array(X, chunks=(lengths, P)))
    np.testing.assert_allclose(cut._means, whole._means, rtol=1e-8)
    np.testing.assert_allclose(values(cut.embedding_), whole.embedding_, atol=3e-6)
    np.testing.assert_array_equal(values(cut.labels_), whole.labels_)


@pytest.mark.parametrize("kept", [True, False])
def test_a_cluster_of_processes_gives_the_same_model(client, kept, monkeypatch):
    if not kept:
        monkeypatch.setattr(spectrum, "_MAX_STORED", 0)
    whole = pckid("randomized", **SMALL).fit(X)
    lazy = chunked(X).map_blocks(np.copy, dtype=float)
    model = pckid("randomized", **SMALL).fit(lazy)
    np.testing.assert_allclose(model._means, whole._means, rtol=1e-8)
    np.testing.assert_allclose(values(model.embedding_), whole.embedding_, atol=3e-6)
    np.testing.assert_array_equal(values(model.labels_), whole.labels_)


def test_features_kept_or_made_anew_are_the_same(monkeypatch):
    kept = pckid("randomized", **SMALL).fit(X)
    monkeypatch.setattr(spectrum, "_MAX_STORED", 0)
    anew = pckid("randomized", **SMALL).fit(X)
    np.testing.assert_allclose(anew.embedding_, kept.embedding_, atol=1e-6)


def test_dask_in_is_dask_out():
    data = chunked(X.astype(np.float32))
    model = PCKID(K, **SMALL).fit(data)
    for out, dtype, columns in (
        (model.labels_, np.int32, None),
        (model.predict(data), np.int32, None),
        (model.embedding_, np.float32, K),
        (model.transform(data), np.float32, K),
        (model.kernel(data, X[:9]), np.float64, 9),
    ):
        assert isinstance(out, da.Array)
        assert out.chunks[0] == data.chunks[0]
        assert out.dtype == dtype == out.compute().dtype
        assert out.shape[1:] == (() if columns is None else (columns,))
    whole = model.kernel(data)
    assert whole.chunks == (data.chunks[0], data.chunks[0])
    np.testing.assert_allclose(whole.compute(), model.kernel(X.astype(np.float32)), atol=1e-12)
    assert model.eigenvalues_.dtype == model.cluster_centers_.dtype == np.float64


def test_chunks_of_unknown_length():
    data = chunked(X)
    data = data[~da.isnan(data).all(axis=1)]
    with pytest.warns(Warning, match="unknown length"):
        model = PCKID(K, **SMALL).fit(data)
    whole = PCKID(K, **SMALL).fit(np.delete(X, 3, axis=0))
    np.testing.assert_array_equal(values(model.labels_), whole.labels_)


def test_masked_values_of_blocks_are_missing_everywhere():
    # Hidden values below the mask are far from all rows.
    masked = da.ma.masked_invalid(chunked(X)).map_blocks(_with_nonsense_below, dtype=X.dtype)
    model, want = PCKID(K, **SMALL).fit(masked), PCKID(K, **SMALL).fit(chunked(X))
    for name in ("predict", "transform", "kernel"):
        found, expected = getattr(model, name)(masked), getattr(want, name)(chunked(X))
        np.testing.assert_array_equal(values(found), values(expected))
    np.testing.assert_array_equal(values(model.labels_), values(want.labels_))


def _with_nonsense_below(block):
    return np.ma.array(np.where(np.isnan(block.data), 1e6, block.data), mask=block.mask)


# Solvers, passes, training, checkpoints.


@pytest.mark.parametrize(("solver", "spectral"), [("gram", 1), ("kernel", 1), ("randomized", 1)])
def test_passes(solver, spectral):
    scheduler = CountingScheduler()
    with dask.config.set(scheduler=scheduler):
        model = pckid(solver, max_iter=1, **SMALL).fit(chunked(X))
    # The first look, the pool, the eigenvectors; the members are one round trip, too.
    records = [r for r in model.history_ if r["stage"] == "spectrum"]
    assert records[-1]["passes"] == 2 + spectral
    # The embedding, then those over it: a first look, and an iteration.
    assert model.history_[-1]["passes"] == 2 + spectral + 1 + 2
    # The embedding is made once; k-means: a first look, an iteration, the end.
    assert scheduler.calls <= 2 + 1 + spectral + 1 + 3


def test_the_way_of_least_work_is_taken():
    choose = spectrum.choose_solver
    assert choose(500, 13_920, 784, 12, 4, True) == "kernel"
    assert choose(100_000, 150, 20, 12, 4, False) == "gram"
    assert choose(100_000, 13_920, 20, 12, 4, True) == "randomized"
    assert choose(10**9, 13_920, 20, 12, 4, False) == "randomized"
    assert PCKID(K, **SMALL).fit(X).history_[0]["solver"] == "gram"


#: A pool of 40 rows, whose directions differ from those of all rows.
FEW = {**SMALL, "max_samples": 20}


def test_more_power_iterations_come_closer(monkeypatch):
    monkeypatch.setattr(spectrum, "_MAX_ROTATION", 0.0)
    exact = pckid("kernel", **FEW).fit(X)
    errors = []
    for n_iter in (1, 2, 4, 8):
        model = pckid("randomized", n_iter, **FEW).fit(X)
        assert sum(r["stage"] == "spectrum" for r in model.history_) == n_iter
        gap = aligned(model.embedding_, exact.embedding_) - exact.embedding_
        errors.append(np.abs(gap).max())
    assert errors[0] > 10 * errors[1]
    assert errors[1] > 3 * errors[2]
    assert errors[3] < 1e-5


def test_power_iterations_end_where_little_is_left_to_turn():
    exact = pckid("kernel", **FEW).fit(X)
    model = pckid("randomized", 30, **FEW).fit(X)
    turns = [r["center_shift"] for r in model.history_ if r["stage"] == "spectrum"]
    assert len(turns) < 10
    gap = aligned(model.embedding_, exact.embedding_) - exact.embedding_
    # In units of the whole: columns have length sqrt(eigenvalue).
    assert np.linalg.norm(gap) < 2e-3 * np.linalg.norm(exact.embedding_)


@pytest.mark.parametrize("rank", [3, 5])
def test_eigenpairs_follow_from_one_product(rank):
    rng = np.random.default_rng(0)
    vectors = np.linalg.qr(rng.standard_normal((9, rank)))[0]
    matrix = vectors * np.arange(rank, 0, -1.0) @ vectors.T
    basis = np.linalg.qr(rng.standard_normal((9, 6)))[0]
    found, lengths = spectrum._eigenpairs(basis, matrix @ basis, 4, 1e-13)
    # The basis has as many columns as the matrix has directions, so the result is exact.
    np.testing.assert_allclose(found.T @ found, np.eye(4), atol=1e-12)
    if rank == 5:
        np.testing.assert_allclose(lengths, [5.0, 4.0, 3.0, 2.0], rtol=1e-10)
        np.testing.assert_allclose(np.abs(vectors[:, :4].T @ found), np.eye(4), atol=1e-9)
    else:
        # Three directions for four that are wanted.
        assert lengths[3] < 1e-12


def test_members_are_trained_on_a_budget_of_rows(monkeypatch):
    seen = []

    def noting(pool, member):
        seen.append((len(pool.x), member.n_rows))
        return train_member(pool, member)

    monkeypatch.setattr("daskclust.mixture._ensemble.train_member", noting)
    PCKID(K, **SMALL).fit(X)
    assert set(seen) == {(239, 120)}
    seen.clear()
    model = PCKID(K, max_samples=30, subsample=0.25, **SMALL).fit(chunked(X))
    assert {pool for pool, _ in seen} <= {119, 120}
    assert {rows for _, rows in seen} == {30}
    whole = PCKID(K, max_samples=30, subsample=0.25, **SMALL).fit(X)
    np.testing.assert_allclose(model._means, whole._means, rtol=1e-8)


@pytest.mark.parametrize(
    ("subsample", "max_samples", "pool", "rows"),
    # All rows; those that the budget leaves; never more than ten times the budget.
    [(0.05, 30, 239, 12), (0.5, 20, 40, 20), (0.01, 10, 100, 3), (0.05, 10, 100, 10)],
)
def test_the_pool_is_bounded_however_small_a_share_is_asked_for(
    subsample, max_samples, pool, rows, monkeypatch
):
    seen = []

    def noting(pool, member):
        seen.append((len(pool.x), member.n_rows))
        return train_member(pool, member)

    monkeypatch.setattr("daskclust.mixture._ensemble.train_member", noting)
    small = {**SMALL, "max_components": 3}
    PCKID(K, subsample=subsample, max_samples=max_samples, **small).fit(X)
    # The row without any value is in some pools.
    assert {(found + (found < pool), drawn) for found, drawn in seen} == {(pool, rows)}


@pytest.mark.parametrize("container", [np.asarray, chunked])
@pytest.mark.parametrize(
    ("solver", "stage", "call"),
    [("gram", "spectrum", 1), ("randomized", "spectrum", 3), ("gram", "k-means", 3)],
)
def test_a_fit_continues_from_its_checkpoint(solver, stage, call, container, tmp_path, monkeypatch):
    path, data = tmp_path / "fit.npz", container(X)
    monkeypatch.setattr(spectrum, "_MAX_ROTATION", 0.0)
    whole = pckid(solver, **SMALL).fit(data)
    target = spectrum.Spectrum if stage == "spectrum" else LloydProblem
    step, calls = target.step, []

    def failing(*arguments):
        calls.append(stage)
        if len(calls) == call:
            raise KeyboardInterrupt
        return step(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(target, "step", failing)
        with pytest.raises(KeyboardInterrupt):
            pckid(solver, checkpoint=path, **SMALL).fit(data)
    # One file, and nothing that it holds is made again.
    assert list(tmp_path.iterdir()) == [path]
    monkeypatch.setattr("daskclust.mixture.pckid.train_members", None)
    if stage == "k-means":
        monkeypatch.setattr(spectrum.Spectrum, "step", None)
        monkeypatch.setattr(lloyd, "initial_centers", None)
    for _ in range(2):  # the second time, from the end
        again = pckid(solver, checkpoint=path, **SMALL).fit(data)
        np.testing.assert_array_equal(values(again.embedding_), values(whole.embedding_))
        np.testing.assert_array_equal(values(again.labels_), values(whole.labels_))
        np.testing.assert_array_equal(again.cluster_centers_, whole.cluster_centers_)
        assert again.inertia_ == whole.inertia_
        assert [(r["stage"], r["iteration"]) for r in again.history_] == [
            (r["stage"], r["iteration"]) for r in whole.history_
        ]
    with pytest.raises(CheckpointError, match="belongs to another fit"):
        pckid(solver, checkpoint=path, **SMALL).fit(X * 2.0)
    with pytest.raises(CheckpointError, match="n_init was 4, is 5"):
        pckid(solver, checkpoint=path, **{**SMALL, "n_init": 5}).fit(X)


def test_the_same_seed_gives_the_same_bits_and_another_another():
    models = [PCKID(K, **{**SMALL, "random_state": s}).fit(X) for s in (1, 1, 2)]
    np.testing.assert_array_equal(models[0].embedding_, models[1].embedding_)
    assert not np.array_equal(models[0]._means, models[2]._means)


# Bad input.


def test_columns_without_values_and_constant_ones():
    data = X.copy()
    data[:, 2] = np.nan
    with pytest.raises(ValueError, match="column 2 contains only NaN"):
        PCKID(K, **SMALL).fit(data)
    data[:, 2] = 5.0
    # No row is left without any other value.
    data[:, 0] = WHOLE[:, 0]
    model = PCKID(K, **SMALL).fit(data)
    without = PCKID(K, **SMALL).fit(np.delete(data, 2, axis=1))
    np.testing.assert_allclose(
        aligned(model.embedding_, without.embedding_), without.embedding_, atol=1e-6
    )


def test_more_clusters_than_rows_with_values():
    data = np.full((8, P), np.nan)
    data[:2] = WHOLE[:2]
    with pytest.raises(ValueError, match="n_samples=2 should be >= n_clusters=3"):
        PCKID(K, **SMALL).fit(data)


def test_members_need_as_many_rows_as_components():
    with pytest.raises(ValueError, match=r"at least max_components=30, got n_samples=15 rows"):
        PCKID(K, random_state=0).fit(X[5:35])
    with pytest.raises(ValueError, match=r"at least max_components=5, .*max_samples=4"):
        PCKID(K, max_samples=4, **SMALL).fit(X)

"""KMeans of many clusters in many dimensions: passes that know what the pass before found."""

from __future__ import annotations

import dask
import dask.array as da
import numpy as np
import pytest
from numpy.testing import assert_array_equal

from daskclust import KMeans, SemiSupervisedKMeans
from daskclust.cluster import lloyd
from daskclust.cluster.lloyd import MIN_CACHED_FEATURES
from daskclust.core.engine.rows import OpenRows

N, P, K = 3000, 128, 130


def rows() -> np.ndarray:
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(90, P))
    return (centers[rng.integers(90, size=N)] + 2.0 * rng.normal(size=(N, P))).astype(np.float16)


X = rows()
WEIGHT = np.random.default_rng(1).integers(0, 4, N).astype(float)


def fitted(data, **options) -> KMeans:
    # Random rows: initial centers from a sample of all rows would leave few iterations.
    model = KMeans(K, init="random", n_init=1, max_iter=12, tol=0.0, random_state=0, **options)
    return model.fit(data, sample_weight=WEIGHT)


def same(model: KMeans, other: KMeans) -> None:
    assert_array_equal(model.cluster_centers_, other.cluster_centers_)
    assert_array_equal(np.asarray(model.labels_), np.asarray(other.labels_))
    assert (model.inertia_, model.n_iter_) == (other.inertia_, other.n_iter_)


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, bool]]:
    """Names of the passes, and whether they were handed what the one before left."""
    seen, reduce = [], OpenRows.reduce

    def noted(self, reduction, state, carry=None):
        seen.append((reduction.name, carry is not None and carry.cache is not None))
        return reduce(self, reduction, state, carry)

    monkeypatch.setattr(OpenRows, "reduce", noted)
    return seen


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_it_is_the_model_without_bounds(metric, monkeypatch, passes) -> None:
    model = fitted(X, metric=metric)
    assert passes.count(("assign-kept", True)) > 5
    assert passes.count(("assign-kept", False)) == 1
    monkeypatch.setattr(lloyd, "MIN_CACHED_FEATURES", np.inf)
    same(fitted(X, metric=metric), model)


def test_many_centers_of_few_features_have_bounds_too(monkeypatch, passes) -> None:
    def fitted() -> KMeans:
        x = X[:, :8].astype(np.float32)
        return KMeans(1000, init=x[:1000], max_iter=5, tol=0.0).fit(x)

    model = fitted()
    assert passes.count(("assign-kept", True)) > 2
    monkeypatch.setattr(lloyd, "MIN_CACHED_FEATURES", np.inf)
    same(fitted(), model)


def test_fewer_centers_have_bounds_while_they_hardly_move(monkeypatch, passes) -> None:
    def fitted() -> KMeans:
        x = X[:, :40].astype(np.float32)
        return KMeans(110, init=x[:110], max_iter=40, tol=0.0).fit(x)

    model = fitted()
    names = [name for name, _ in passes if name.startswith("assign")]
    begin = names.index("assign-kept")
    assert begin > 1
    assert passes.count(("assign-kept", True)) > 3
    monkeypatch.setattr(lloyd, "MIN_CACHED_FEATURES", np.inf)
    same(fitted(), model)
    monkeypatch.setattr(lloyd, "MIN_CACHED_FEATURES", MIN_CACHED_FEATURES)
    # A restart more: all their passes are shared, and none is kept.
    passes.clear()
    KMeans(110, init="random", n_init=2, max_iter=3, random_state=0).fit(X[:, :40])
    assert "assign-kept" not in {name for name, _ in passes}


def test_what_a_lost_worker_must_make_again_is_bounded(monkeypatch, passes) -> None:
    model = fitted(X)
    passes.clear()
    monkeypatch.setattr(lloyd, "_REPEATED_BYTES", 0)
    same(fitted(X), model)
    kept = [carried for name, carried in passes if name == "assign-kept"]
    assert kept == ([False, True, True, True] * len(kept))[: len(kept)]


@pytest.mark.parametrize("scheduler", ["synchronous", "threads"])
def test_chunks_and_schedulers_change_nothing(scheduler, passes) -> None:
    with dask.config.set(scheduler=scheduler):
        model = fitted(da.from_array(X, chunks=((1, 900, N - 901), -1)))
    assert ("assign-kept", True) in passes
    same(model, fitted(X))


def test_too_little_memory_changes_nothing(monkeypatch, passes) -> None:
    model = fitted(X)
    passes.clear()
    monkeypatch.setattr(OpenRows, "can_keep", lambda self, bytes_a_row: False)
    same(fitted(X), model)
    assert not [name for name, _ in passes if name == "assign-kept"]


def test_labels_of_rows_in_memory_are_those_of_the_last_pass(monkeypatch) -> None:
    asked, row_labels = [], lloyd.row_labels
    monkeypatch.setattr(lloyd, "row_labels", lambda *args: (asked.append(1), row_labels(*args))[1])
    model = fitted(X)
    assert not asked
    assert_array_equal(model.labels_, model.predict(X))
    assert model.labels_.dtype == np.int32
    # Lazy labels have any chunks; rows may have no direction.
    assert fitted(da.from_array(X)).labels_.chunks == ((N,),)
    fitted(X, metric="cosine")
    assert len(asked) == 2


def test_labeled_rows_keep_their_clusters(monkeypatch, passes) -> None:
    y = np.full(N, -1)
    y[[5, 9, 700]] = 0, 0, 1

    def fitted() -> SemiSupervisedKMeans:
        return SemiSupervisedKMeans(K, max_iter=8, tol=0.0, random_state=0).fit(X, y)

    model = fitted()
    assert ("assign-kept", True) in passes
    monkeypatch.setattr(lloyd, "MIN_CACHED_FEATURES", np.inf)
    same(fitted(), model)

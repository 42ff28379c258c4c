"""Near duplicates: the selected rows equal those of brute force, for any chunks."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daskclust import HierarchicalKMeans, deduplicate


def brute(X, labels, threshold, metric, keep="first"):
    x = X.astype(np.float64)
    if metric == "cosine":
        norm = np.linalg.norm(x, axis=1, keepdims=True)
        x = np.divide(x, norm, out=x, where=norm > 0)
        far = 1 - x @ x.T
    else:
        far = np.sqrt(((x[:, None] - x) ** 2).sum(axis=2))
    near = (far < threshold) & (labels[:, None] == labels)
    earlier = np.tril(near, -1) if keep == "first" else np.triu(near, 1)
    return ~earlier.any(axis=1)


def rows(seed: int = 0, n: int = 400) -> np.ndarray:
    rng = np.random.default_rng(seed)
    originals = rng.normal(size=(60, 5))
    return originals[rng.integers(0, 60, n)] + 0.01 * rng.normal(size=(n, 5))


@given(
    seed=st.integers(0, 99),
    metric=st.sampled_from(["cosine", "euclidean"]),
    keep=st.sampled_from(["first", "last"]),
    k=st.integers(1, 5),
    threshold=st.sampled_from([0.0, 0.001, 0.03, 0.5, 2.0]),
)
def test_by_brute_force(seed, metric, keep, k, threshold):
    X = rows(seed, 90).astype(np.float32)
    given = {"metric": metric, "keep": keep, "n_clusters": k, "random_state": 0}
    found = deduplicate(X, threshold=threshold, **given)
    labels = HierarchicalKMeans(k, metric=metric, random_state=0).fit(X).labels_
    np.testing.assert_array_equal(found, brute(X, labels, threshold, metric, keep))


@pytest.mark.parametrize("chunks", [37, 400, (1, 398, 1)])
@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_chunks_change_nothing(chunks, dtype, monkeypatch):
    X = rows().astype(dtype)
    expected = deduplicate(X, threshold=0.01, n_clusters=6, random_state=0)
    assert 60 <= expected.sum() < 200
    monkeypatch.setitem(deduplicate.__globals__, "_TASK_BYTES", X.nbytes // 4)
    lazy = da.from_array(X, chunks=(chunks, -1))
    found = deduplicate(lazy, threshold=0.01, n_clusters=6, random_state=0)
    assert isinstance(found, da.Array)
    assert found.chunks == (lazy.chunks[0],)
    np.testing.assert_array_equal(found.compute(scheduler="threads"), expected)


def test_many_rows_of_one_cluster_are_compared_by_slabs(monkeypatch):
    X = rows(n=500)
    expected = deduplicate(X, threshold=0.01, n_clusters=1)
    monkeypatch.setitem(deduplicate.__globals__, "_ROWS_AT_ONCE", 64)
    np.testing.assert_array_equal(deduplicate(X, threshold=0.01, n_clusters=1), expected)


def test_same_rows_go_and_rows_of_zeros_stay():
    X = np.array([[3.0, 1.0], [0.0, 0.0], [3.0, 1.0], [6.0, 2.0], [0.0, 0.0]])
    kept = [True, True, False, False, True]
    assert deduplicate(X, threshold=1e-9).tolist() == kept
    assert deduplicate(X, threshold=1e-9, keep="last").tolist() == [False, True, False, True, True]
    kept = [True, True, False, True, False]
    assert deduplicate(X, threshold=1e-9, metric="euclidean").tolist() == kept
    # Strictly nearer.
    assert deduplicate(X, threshold=0.0).all()


def test_rows_of_zeros_alone_stay():
    X = np.zeros((5, 3), np.float32)
    assert deduplicate(X, threshold=0.1, n_clusters=2).tolist() == 5 * [True]
    lazy = deduplicate(da.from_array(X, chunks=(2, 3)), threshold=0.1)
    assert lazy.chunks == ((2, 2, 1),)
    assert lazy.compute().all()
    # Other errors are still raised.
    with pytest.raises(ValueError, match="NaN"):
        deduplicate(np.full((5, 3), np.nan), threshold=0.1)


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"threshold": -0.1}, "threshold must be a number >= 0 and <= 2.0, got -0.1"),
        ({"threshold": 2.1}, "threshold must be .*, got 2.1"),
        ({"threshold": np.nan}, r"threshold must be .*, got nan\."),
        (
            {"threshold": 1.0, "metric": "cityblock"},
            r"metric must be one of 'cosine', 'euclidean', got 'cityblock'\.",
        ),
        ({"threshold": 1.0, "keep": "any"}, r"keep must be one of 'first', 'last', got 'any'\."),
        ({"threshold": 1.0, "n_clusters": 0}, "n_clusters must be an integer >= 1, got 0"),
        ({"threshold": 1.0, "n_clusters": 9999}, "n_clusters=9999"),
    ],
)
def test_bad_parameters_are_named(given, match):
    with pytest.raises(ValueError, match=match):
        deduplicate(rows(), **given)


def test_bad_values_are_named():
    X = rows()
    X[3, 1] = np.inf
    with pytest.raises(ValueError, match="row 3"):
        deduplicate(X, threshold=0.1)

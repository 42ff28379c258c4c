"""Masked rows do not count; weights may be normalized, and must have one value per row."""

from __future__ import annotations

import dask
import dask.array as da
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daskclust import metrics

RNG = np.random.default_rng(0)
TRUTH = RNG.integers(0, 3, 60)
X = RNG.normal(size=(60, 2)) + 3.0 * TRUTH[:, None]
FOUND = np.where(RNG.random(60) < 0.8, TRUTH, RNG.integers(0, 3, 60))
HIDDEN = RNG.random(60) < 0.3
AGREEMENT = [
    metrics.adjusted_rand_score,
    metrics.normalized_mutual_info_score,
    metrics.pairwise_f_score,
    metrics.clustering_accuracy,
]
CENTROID = [
    metrics.simplified_silhouette_score,
    metrics.calinski_harabasz_score,
    metrics.davies_bouldin_score,
]


@pytest.fixture(autouse=True)
def _synchronous():
    with dask.config.set(scheduler="sync"):
        yield


def lazy(array):
    return da.from_array(array, chunks=(17, *array.shape[1:]), asarray=False)


@pytest.mark.parametrize(
    ("make", "dtype"), [(np.asanyarray, np.int64), (lazy, np.uint8), (lazy, np.float32)]
)
@pytest.mark.parametrize("score", AGREEMENT)
def test_masked_labels_are_no_labels(score, dtype, make):
    truth = np.ma.masked_array(TRUTH.astype(dtype), HIDDEN)
    want = score(TRUTH[~HIDDEN], FOUND[~HIDDEN])
    assert score(make(truth), make(FOUND), ignore_masked=True) == pytest.approx(want)
    assert score(make(FOUND), make(truth), ignore_masked=True) == pytest.approx(
        score(FOUND[~HIDDEN], TRUTH[~HIDDEN])
    )
    # Of a class of their own they are never.
    for pair in ((truth, FOUND), (FOUND, truth)):
        with pytest.raises(ValueError, match=r"masked labels .*ignore_masked=True"):
            score(*map(make, pair))


@pytest.mark.parametrize("make", [lambda a: a, lazy], ids=["numpy", "dask"])
def test_no_function_takes_a_masked_label_for_a_class(make):
    truth = np.ma.masked_array(TRUTH, HIDDEN)
    for call in (
        lambda: metrics.contingency_table(make(truth), make(FOUND)),
        lambda: metrics.agreement_scores(make(truth), make(FOUND)),
        lambda: metrics.match_labels(make(truth), make(FOUND)),
        lambda: metrics.centroid_scores(make(X), make(truth)),
    ):
        with pytest.raises(ValueError, match="masked labels"):
            call()
    open_mask = np.ma.masked_array(TRUTH, np.zeros(60, bool))
    assert metrics.adjusted_rand_score(make(open_mask), make(TRUTH)) == 1.0
    with pytest.raises(ValueError, match="masked labels"):
        metrics.silhouette_score(X, truth)


@pytest.mark.parametrize("score", [*AGREEMENT, metrics.silhouette_score])
def test_missing_labels_are_masked_labels(score):
    rows = X if score is metrics.silhouette_score else FOUND

    def scored(labels, rows=rows, **masked):
        return score(rows, labels, **masked)

    want = scored(TRUTH[~HIDDEN] + 5, rows[~HIDDEN])
    floats = np.where(HIDDEN, np.nan, TRUTH + 5)
    nullable = pd.Series(np.where(HIDDEN, None, TRUTH + 5), dtype="Int64")
    names = pd.Series(np.where(HIDDEN, None, TRUTH.astype(str)), dtype=object)
    for labels in (
        floats,
        floats.astype(object),
        pd.Series(floats),
        nullable,
        nullable.astype(object),
        names,
        names.astype("string"),
        names.astype("category"),
        lazy(floats),
        lazy(floats.astype(object)),
        lazy(names.to_numpy()),
    ):
        assert scored(labels, ignore_masked=True) == pytest.approx(want)
        with pytest.raises(ValueError, match=r"has NaN .*ignore_masked=True"):
            scored(labels)
    table = metrics.contingency_table(nullable, FOUND, ignore_masked=True)
    np.testing.assert_array_equal(np.unique(table[:, 0]), [5, 6, 7])


@pytest.mark.parametrize("make", [lambda a: a, lazy], ids=["numpy", "dask"])
@pytest.mark.parametrize("score", CENTROID)
def test_masked_labels_and_values_of_rows_do_not_count(score, make):
    labels = np.ma.masked_array(FOUND, HIDDEN)
    want = score(X[~HIDDEN], FOUND[~HIDDEN])
    assert score(make(X), make(labels), ignore_masked=True) == pytest.approx(want)
    hidden = np.ma.masked_array(X, np.repeat(HIDDEN[:, None], 2, axis=1))
    assert score(make(hidden), make(labels), ignore_masked=True) == pytest.approx(want)
    with pytest.raises(
        ValueError, match=r"X must contain finite values, got nan at row.*column 0"
    ) as caught:
        score(make(hidden), make(FOUND))
    # The first invalid row of any block, because blocks are checked independently.
    assert HIDDEN[int(str(caught.value).split("row ")[1].split(",")[0])]


def test_masked_values_are_no_values_for_all_pairs_of_rows():
    hidden = np.ma.masked_array(X, False)
    hidden[3, 1] = np.ma.masked
    with pytest.raises(ValueError, match="NaN"):
        metrics.silhouette_score(hidden, FOUND)


@pytest.mark.parametrize("score", CENTROID)
def test_masked_weights_and_columns_of_weights_are_refused(score):
    weight = np.ma.masked_array(np.ones(60), np.arange(60) == 7)
    with pytest.raises(ValueError, match=r"sample_weight.*in row 7"):
        score(X, FOUND, sample_weight=weight)
    with pytest.raises(
        ValueError, match="sample_weight must be finite, non-negative and not too small or large to"
    ):
        score(lazy(X), lazy(FOUND), sample_weight=lazy(weight))
    with pytest.raises(
        ValueError, match=r"sample_weight must have one weight per row.*got shape \(60, 1\)"
    ):
        score(X, FOUND, sample_weight=np.ones((60, 1)))


def test_masked_centers_are_refused():
    centers = np.ma.masked_array(np.zeros((3, 2)), [[0, 0], [0, 1], [0, 0]])
    with pytest.raises(
        ValueError, match=r"centers must not contain masked values, got one at \(1, 1\)"
    ):
        metrics.simplified_silhouette_score(X, FOUND, centers=centers)


@given(scale=st.sampled_from([1.0, 1 / 60, 1e-9]))
def test_normalized_weights_are_those_of_rows(scale):
    with dask.config.set(scheduler="sync"):
        for score in CENTROID:
            want = score(X, FOUND)
            assert score(X, FOUND, sample_weight=np.full(60, scale)) == pytest.approx(want)
        want = metrics.centroid_scores(X, FOUND)
        found = metrics.centroid_scores(X, FOUND, sample_weight=np.full(60, scale))
        assert found.silhouette_error == pytest.approx(want.silhouette_error)
        assert found.calinski_harabasz == pytest.approx(want.calinski_harabasz)


def test_a_cluster_of_small_weight_is_not_alone_but_a_single_row_is():
    x = np.array([[0.0], [2.0], [9.0], [11.0], [50.0]])
    labels = np.array([0, 0, 1, 1, 2])
    want = metrics.simplified_silhouette_score(x, labels)
    # By hand: rows of 0 and 1 are 1 from their own mean and 11, 9, 9, 11 or so from the other.
    scores = [1 - 1 / 10, 1 - 1 / 8, 1 - 1 / 8, 1 - 1 / 10, 0.0]
    assert want == pytest.approx(np.mean(scores))
    weight = np.array([0.3, 0.3, 0.2, 0.2, 0.5])
    found = metrics.simplified_silhouette_score(x, labels, sample_weight=weight)
    assert found == pytest.approx(np.average(scores, weights=weight))


@pytest.mark.parametrize("far", [1e300, -1e300, 2.0**63])
def test_labels_that_no_integer_holds_are_refused(far):
    with pytest.raises(ValueError, match="below 2\\*\\*63"):
        metrics.contingency_table([0.0, far], [0, 1])
    with pytest.raises(ValueError, match="below 2\\*\\*63"):
        metrics.contingency_table(np.array([0, 2**64 - 1], np.uint64), [0, 1])


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("value", [1e160, -1.7e308])
def test_values_and_weights_whose_squares_overflow_are_refused(lazy, value):
    def make(array):
        return da.from_array(array, chunks=(10, *array.shape[1:])) if lazy else array

    x, labels = np.random.default_rng(0).normal(size=(30, 2)), np.arange(30) % 3
    x[4, 1] = value
    with pytest.raises(ValueError, match="squared distances overflow"):
        metrics.calinski_harabasz_score(make(x), make(labels))
    with pytest.raises(ValueError, match="too small or large"):
        metrics.davies_bouldin_score(
            make(np.zeros((30, 2))), make(labels), sample_weight=make(np.full(30, 5e-324))
        )


@pytest.mark.parametrize("lazy", [False, True])
def test_masked_weights_of_rows_left_out_do_not_matter(lazy):
    X = np.array([[0.0], [1.0], [9.0], [10.0], [5.0]])
    labels = np.array([0, 0, 1, 1, -1])
    whole = np.array([1.0, 2.0, 1.0, 3.0, 1.0])
    expected = metrics.simplified_silhouette_score(X[:4], labels[:4], sample_weight=whole[:4])

    def score(masked_row):
        weight = np.ma.masked_array(whole, np.arange(5) == masked_row)
        given = [X, labels, weight]
        if lazy:
            given = [da.from_array(a, chunks=(2, *a.shape[1:])) for a in given]
        return metrics.simplified_silhouette_score(
            given[0], given[1], sample_weight=given[2], ignore_masked=True
        )

    np.testing.assert_allclose(score(4), expected, rtol=1e-12)
    with pytest.raises(ValueError, match="row 1"):
        score(1)

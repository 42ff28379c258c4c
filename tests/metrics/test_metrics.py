"""Scores of clusterings: definitions written out, scikit-learn, any chunks, bad input."""

from __future__ import annotations

from functools import reduce
from itertools import combinations, pairwise, permutations

import dask
import dask.array as da
import numpy as np
import pytest
import sklearn.metrics
from helpers import chunks_of
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import make_blobs

from daskclust import KMeans, metrics
from daskclust.core.kernels.moments import label_moments, merge_label_moments, own_and_other
from daskclust.core.kernels.pair_counts import count_label_pairs, merge_label_pairs
from daskclust.exceptions import ChunkError
from daskclust.testing import CountingScheduler
from daskclust.testing.strategies import row_chunks

pytestmark = pytest.mark.usefixtures("synchronous")

chunked = chunks_of(70)

RNG = np.random.default_rng(0)
TRUTH = RNG.integers(0, 4, 300)
LABELS = np.where(RNG.random(300) < 0.7, TRUTH, RNG.integers(0, 6, 300))
X = RNG.normal(size=(300, 3)) + 2.0 * TRUTH[:, None]
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


# Kernels, by hand and by brute force.


@given(seed=st.integers(0, 2**32 - 1), lengths=row_chunks(40), wide=st.booleans())
def test_counts_of_pairs_are_those_of_a_loop_for_any_cut(seed, lengths, wide):
    rng = np.random.default_rng(seed)
    # Labels far apart are sorted instead of put in a dense table.
    step = 2**40 if wide else 1
    a, b = rng.integers(-2, 4, 40) * step, rng.integers(0, 3, 40) * step
    expected: dict[tuple[int, int], int] = {}
    for pair in zip(a.tolist(), b.tolist(), strict=True):
        expected[pair] = expected.get(pair, 0) + 1
    ends = np.cumsum([0, *lengths])
    tables = [count_label_pairs(a[s:e], b[s:e]) for s, e in pairwise(ends)]
    for found in (
        count_label_pairs(a, b),
        reduce(merge_label_pairs, tables),
        reduce(merge_label_pairs, tables[::-1]),
    ):
        assert [(*pair, count) for pair, count in sorted(expected.items())] == [
            tuple(row) for row in found.tolist()
        ]


@given(seed=st.integers(0, 2**32 - 1), lengths=row_chunks(40), offset=st.sampled_from([0.0, 1e8]))
def test_moments_by_label_are_those_of_numpy_for_any_cut(seed, lengths, offset):
    rng = np.random.default_rng(seed)
    x, labels = rng.normal(size=(40, 3)) + offset, rng.integers(-1, 3, 40)
    weight = rng.integers(0, 3, 40).astype(float)
    ends = np.cumsum([0, *lengths])
    parts = [label_moments(x[s:e], labels[s:e], weight[s:e]) for s, e in pairwise(ends) if e > s]
    found = merge_label_moments(parts)
    repeated, names = (
        np.repeat(x, weight.astype(int), axis=0),
        np.repeat(labels, weight.astype(int)),
    )
    assert found.labels.tolist() == np.unique(names).tolist()
    for i, label in enumerate(found.labels):
        rows = repeated[names == label]
        assert found.weights[i] == len(rows)
        np.testing.assert_allclose(found.means[i], rows.mean(axis=0), rtol=1e-12)
        squares = ((rows - rows.mean(axis=0)) ** 2).sum()
        assert found.squares[i] == pytest.approx(squares, rel=1e-6, abs=1e-12)


def test_own_and_other_distances_are_those_of_a_loop():
    centers, labels = X[:4] + 0.5, LABELS % 4
    weights = np.array([1.0, 0.0, 2.0])
    own, other = own_and_other(X, centers, labels, weights)
    for i in range(len(X)):
        squared = [(weights * (X[i] - c) ** 2).sum() for c in centers]
        assert own[i] == pytest.approx(squared.pop(labels[i]), rel=1e-12)
        assert other[i] == pytest.approx(min(squared), rel=1e-12)
    assert own_and_other(X, centers[:1], np.zeros(300, int))[1].tolist() == [np.inf] * 300


# Agreement of two label vectors.


def test_pairwise_f_counts_pairs():
    both = in_truth = in_labels = 0
    truth, labels = TRUTH[:60], LABELS[:60]
    for i, j in combinations(range(60), 2):
        same_class, same_cluster = truth[i] == truth[j], labels[i] == labels[j]
        both += same_class and same_cluster
        in_truth += same_class
        in_labels += same_cluster
    precision, recall = both / in_labels, both / in_truth
    expected = 2 * precision * recall / (precision + recall)
    assert metrics.pairwise_f_score(truth, labels) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("truth", "labels", "expected"),
    [
        ([0, 0, 1, 1], [5, 5, 3, 3], 1.0),
        ([0, 0, 1, 1], [0, 1, 2, 3], 0.5),  # more clusters than classes
        ([0, 1, 2, 3], [7, 7, 7, 8], 0.5),  # fewer
        ([0, 0, 0], [1, 1, 1], 1.0),
        ([0, 0, 0, 1, 1], [0, 0, 1, 1, 1], 0.8),
    ],
)
def test_accuracy_by_hand(truth, labels, expected):
    assert metrics.clustering_accuracy(truth, labels) == expected


def test_accuracy_is_the_best_of_all_matchings():
    truth, labels = TRUTH % 3, LABELS % 4
    best = max(
        np.mean(np.array(numbers)[labels] == truth) for numbers in permutations([0, 1, 2, -9])
    )
    assert metrics.clustering_accuracy(truth, labels) == pytest.approx(best)


@given(seed=st.integers(0, 2**32 - 1), k=st.integers(1, 12))
def test_the_same_partition_scores_1_to_the_last_bit(seed, k):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, k, 50)
    renamed = rng.permutation(k)[labels]
    assert metrics.agreement_scores(labels, renamed) == dict.fromkeys(
        ("ari", "nmi", "pairwise_f", "accuracy"), 1.0
    )


@pytest.mark.parametrize("name", ["adjusted_rand_score", "normalized_mutual_info_score"])
@pytest.mark.parametrize(
    ("truth", "labels"),
    [
        (TRUTH, LABELS),
        (TRUTH, TRUTH[::-1]),
        (TRUTH, np.zeros(300, int)),
        (np.zeros(5), np.zeros(5)),
        (np.arange(5), np.arange(5)),
        (np.arange(5), np.zeros(5)),
        ([True, False, True], [1, 0, 1]),
        (["b", "a", "b", "c"], ["x", "x", "y", "y"]),
        ([], []),
    ],
)
def test_equals_scikit_learn(name, truth, labels):
    expected = getattr(sklearn.metrics, name)(truth, labels)
    assert getattr(metrics, name)(truth, labels) == pytest.approx(expected, rel=1e-12, abs=1e-15)


@pytest.mark.parametrize("score", AGREEMENT)
def test_counts_beyond_integers_do_not_overflow(score, monkeypatch):
    table = np.array([[0, 0, 4_000_000_000], [1, 1, 5_000_000_000], [1, 0, 1]])
    monkeypatch.setattr(f"{score.__module__}.contingency_table", lambda *_, **__: table)
    assert 0.99 < score([0], [0]) <= 1.0


@given(one=row_chunks(300), two=row_chunks(300))
def test_agreement_is_the_same_to_the_bit_for_any_chunks(one, two):
    expected = metrics.agreement_scores(TRUTH, LABELS)
    truth, labels = da.from_array(TRUTH, chunks=(one,)), da.from_array(LABELS, chunks=(two,))
    assert metrics.agreement_scores(truth, labels) == expected
    assert metrics.agreement_scores(TRUTH, labels) == expected
    assert metrics.agreement_scores(truth, LABELS) == expected


@pytest.mark.parametrize("score", AGREEMENT)
def test_agreement_takes_one_pass(score):
    counting = CountingScheduler()
    # The vectors are not persisted, because no further pass follows.
    with dask.config.set({"scheduler": counting, "daskclust.persist": False}):
        lazy = chunked(LABELS, 10).map_blocks(np.negative)
        found = score(chunked(TRUTH, 14), lazy)
    assert counting.calls == 1
    assert found == score(TRUTH, -LABELS)


def test_masked_rows_are_left_out_on_request():
    truth, labels = TRUTH.copy(), LABELS.copy()
    truth[:40], labels[30:70] = -1, -1
    kept = (truth >= 0) & (labels >= 0)
    for score in AGREEMENT:
        expected = score(truth[kept], labels[kept])
        assert score(truth, labels, ignore_masked=True) == expected
        assert score(chunked(truth), chunked(labels, 9), ignore_masked=True) == expected
        assert score(truth, labels) != expected
    with pytest.raises(ValueError, match="At least one row must have a label other than -1"):
        metrics.adjusted_rand_score([-1, 0], [0, -1], ignore_masked=True)


def test_labels_of_unknown_chunks_are_matched_by_block():
    whole = chunked(np.c_[TRUTH, LABELS])
    keep = whole[:, 0] >= 1
    with pytest.warns(Warning, match="unknown length"):
        found = metrics.adjusted_rand_score(whole[keep][:, 0], whole[keep][:, 1])
    kept = TRUTH >= 1
    assert found == metrics.adjusted_rand_score(TRUTH[kept], LABELS[kept])
    with pytest.raises(ChunkError, match="compute_chunk_sizes"):
        metrics.adjusted_rand_score(whole[keep][:, 0], LABELS)
    with pytest.raises(ChunkError, match="compute_chunk_sizes"):
        metrics.adjusted_rand_score(whole[keep][:, 0], chunked(LABELS, 100))


@pytest.mark.parametrize("make", [np.asarray, chunked])
@pytest.mark.parametrize("score", AGREEMENT)
def test_vectors_that_cannot_be_compared_are_refused(score, make):
    with pytest.raises(ValueError, match=r"300.*299"):
        score(make(TRUTH), make(LABELS[1:]))
    with pytest.raises(
        ValueError, match=r"labels_true must have one label per row.*got shape \(300, 3\)"
    ):
        score(make(X), make(LABELS))
    for bad in (0.5, np.nan, np.inf):
        labels = LABELS.astype(float)
        labels[250] = bad
        with pytest.raises(
            ValueError, match=f"labels_pred must (contain integers.*got {bad}|.*has NaN)"
        ):
            score(make(TRUTH), make(labels))
    with pytest.raises(TypeError, match="ignore_masked must be True or False, got 'yes'"):
        score(make(TRUTH), make(LABELS), ignore_masked="yes")


def test_lazy_labels_may_be_text():
    names = TRUTH.astype(str)
    want = metrics.contingency_table(names, LABELS)
    for truth in (chunked(names), chunked(names.astype(object))):
        for labels in (LABELS, chunked(LABELS.astype(str)), chunked(LABELS)):
            np.testing.assert_array_equal(metrics.contingency_table(truth, labels), want)
            assert metrics.agreement_scores(truth, labels) == metrics.agreement_scores(
                TRUTH, LABELS
            )


def test_dask_labels_beyond_the_numbers_of_a_column_are_refused():
    huge = np.array([0, 2**60 + 1])
    with pytest.raises(ValueError, match="can represent"):
        metrics.adjusted_rand_score(da.from_array(huge), huge)
    assert metrics.adjusted_rand_score(huge, huge) == 1.0


@pytest.mark.parametrize(
    ("truth", "labels", "numbers"),
    [
        ([0, 0, 1, 1], [1, 1, 0, 0], [1, 0]),
        ([0, 0, 0, 2], [4, 4, 1, 3], [3, 4, 5, 2, 0]),  # 0, 1 and 2 match no class
        ([0, 1, 1], [0, 0, 0], [1]),
    ],
)
def test_clusters_take_the_numbers_of_their_classes(truth, labels, numbers):
    assert metrics.match_labels(np.array(truth), np.array(labels)).tolist() == numbers


# Rows against the means of their clusters.


def simplified_silhouette(x, labels, centers):
    scores = []
    for row, label in zip(x, labels, strict=True):
        distances = np.linalg.norm(centers - row, axis=1)
        a, b = distances[label], np.delete(distances, label).min()
        scores.append(0.0 if (labels == label).sum() == 1 else (b - a) / max(a, b))
    return np.array(scores)


MEANS = np.array([X[LABELS == label].mean(axis=0) for label in range(6)])


@pytest.mark.parametrize("make", [np.asarray, chunked])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_centroid_scores_equal_their_definitions(make, dtype):
    data = X.astype(dtype)
    scores = metrics.centroid_scores(make(data), make(LABELS))
    tolerance = 1e-5 if dtype == np.float32 else 1e-9
    for name in ("calinski_harabasz", "davies_bouldin"):
        expected = getattr(sklearn.metrics, f"{name}_score")(data, LABELS)
        assert getattr(scores, name) == pytest.approx(expected, rel=tolerance)
        assert getattr(metrics, f"{name}_score")(make(data), LABELS) == pytest.approx(
            expected, rel=tolerance
        )
    rows = simplified_silhouette(X, LABELS, MEANS)
    assert scores.silhouette == pytest.approx(rows.mean(), rel=tolerance)
    assert scores.silhouette_error == pytest.approx(rows.std() / np.sqrt(300), rel=1e-4)
    np.testing.assert_allclose(scores.centers, MEANS, rtol=tolerance)
    assert scores.labels.tolist() == list(range(6))


def test_a_row_alone_in_its_cluster_counts_0():
    labels = np.r_[9, TRUTH[1:]]
    names, index = np.unique(labels, return_inverse=True)
    centers = np.array([X[labels == name].mean(axis=0) for name in names])
    expected = simplified_silhouette(X, index, centers).mean()
    assert metrics.simplified_silhouette_score(X, labels) == pytest.approx(expected)


@pytest.mark.parametrize("make", [np.asarray, chunked])
def test_the_silhouette_is_that_of_scikit_learn(make):
    rows, truth = make_blobs(400, centers=4, random_state=0, cluster_std=2.0)
    for data, labels in ((rows, truth), (X, LABELS), (X.astype(np.float32), LABELS)):
        expected = sklearn.metrics.silhouette_score(data, labels)
        assert metrics.silhouette_score(make(data), make(labels)) == pytest.approx(expected)
        assert abs(metrics.simplified_silhouette_score(make(data), make(labels)) - expected) > 0.01
        masked, more = np.r_[labels, -1], np.r_[data, [[1e9] * data.shape[1]]]
        found = metrics.silhouette_score(make(more), make(masked), ignore_masked=True)
        assert found == pytest.approx(expected)


def test_the_silhouette_of_a_sample_is_that_of_scikit_learn(monkeypatch):
    expected = sklearn.metrics.silhouette_score(X, LABELS, sample_size=120, random_state=3)
    found = metrics.silhouette_score(X, LABELS, sample_size=120, random_state=3)
    assert found == expected
    with pytest.raises(ValueError, match="sample_size"):
        metrics.silhouette_score(X, LABELS, sample_size=1)
    # The sample of a Dask array does not depend on the chunks.
    one, two = (
        metrics.silhouette_score(
            da.from_array(X, chunks=(size, 3)), LABELS, sample_size=120, random_state=3
        )
        for size in (300, 41)
    )
    assert one == two == pytest.approx(sklearn.metrics.silhouette_score(X, LABELS), abs=0.15)
    monkeypatch.setattr("daskclust.metrics._centroid._MAX_ROWS", 299)
    with pytest.raises(ValueError, match=r"got 300\. .*simplified_silhouette_score"):
        metrics.silhouette_score(chunked(X), LABELS)


@given(one=row_chunks(300), two=row_chunks(300))
def test_centroid_scores_do_not_depend_on_chunks(one, two):
    expected = metrics.centroid_scores(X, LABELS)
    found = metrics.centroid_scores(
        da.from_array(X, chunks=(one, 3)), da.from_array(LABELS, chunks=(two,))
    )
    for name in ("silhouette", "calinski_harabasz", "davies_bouldin", "silhouette_error"):
        assert getattr(found, name) == pytest.approx(getattr(expected, name), rel=1e-12)


@pytest.mark.parametrize("score", CENTROID)
@pytest.mark.parametrize("make", [np.asarray, chunked])
def test_weights_equal_repetition_and_masked_rows_are_not_looked_at(score, make):
    weight = RNG.integers(0, 3, 300)
    repeated = np.repeat(np.arange(300), weight)
    expected = score(X[repeated], LABELS[repeated])
    data, labels = X.copy(), LABELS.copy()
    found = score(make(data), make(labels), sample_weight=weight)
    assert found == pytest.approx(expected, rel=1e-12)
    labels[weight == 0], data[weight == 0] = -1, np.nan
    found = score(make(data), make(labels), sample_weight=np.maximum(weight, 1), ignore_masked=True)
    assert found == pytest.approx(expected, rel=1e-12)


def test_passes_over_the_data():
    lazy = chunked(X).map_blocks(np.positive)
    model = KMeans(4, random_state=0).fit(X)
    lazy_labels = model.predict(lazy)
    arguments = {"centers": model.cluster_centers_}
    wanted = [
        (metrics.simplified_silhouette_score, arguments, 1),
        (metrics.davies_bouldin_score, arguments, 1),
        (metrics.centroid_scores, arguments, 1),
        (metrics.calinski_harabasz_score, {}, 1),
        (metrics.simplified_silhouette_score, {}, 2),
        (metrics.davies_bouldin_score, {}, 2),
    ]
    for score, given_, passes in wanted:
        counting = CountingScheduler()
        with dask.config.set({"scheduler": counting, "daskclust.persist": False}):
            score(lazy, lazy_labels, **given_)
        assert counting.calls == passes, score


def test_known_centers_save_a_pass_and_leave_out_empty_clusters():
    means = np.insert(MEANS, 2, 100.0, axis=0)
    labels = LABELS + (LABELS >= 2)
    one = metrics.centroid_scores(X, labels, centers=means)
    two = metrics.centroid_scores(X, labels)
    assert one.labels.tolist() == [0, 1, 3, 4, 5, 6]
    # The empty cluster's center is there to be compared with, far as it is.
    assert one.silhouette == pytest.approx(two.silhouette)
    assert one.davies_bouldin == pytest.approx(two.davies_bouldin)
    assert one.calinski_harabasz == pytest.approx(two.calinski_harabasz)
    for bad in (7, -1):
        labels[[5, 8]] = bad
        with pytest.raises(ValueError, match="got another label in row 5"):
            metrics.centroid_scores(chunked(X), labels, centers=means)
    assert (
        metrics.centroid_scores(X, labels, centers=means, ignore_masked=True).weights.sum() == 298
    )


def test_rows_on_their_centers_score_as_in_scikit_learn():
    data, labels = np.repeat([[0.0], [3.0]], 3, axis=0), np.repeat([0, 1], 3)
    assert metrics.davies_bouldin_score(data, labels) == 0.0
    assert metrics.calinski_harabasz_score(data, labels) == 1.0
    assert metrics.simplified_silhouette_score(data, labels) == 1.0
    assert metrics.simplified_silhouette_score(np.zeros((4, 1)), [0, 0, 1, 1]) == 0.0


@pytest.mark.parametrize("score", CENTROID)
@pytest.mark.parametrize("make", [np.asarray, chunked])
def test_what_has_no_score_is_refused(score, make):
    with pytest.raises(ValueError, match=r"Number of labels is 1\..*a single cluster"):
        score(make(X), make(np.zeros(300, int)))
    with pytest.raises(ValueError, match="Number of labels is 300"):
        score(make(X), make(np.arange(300)))
    with pytest.raises(ValueError, match="Number of labels is 0"):
        score(make(X), make(np.full(300, -1)), ignore_masked=True)
    with pytest.raises(ValueError, match="X and labels must have the same length, got 300 and 299"):
        score(make(X), make(LABELS[1:]))
    with pytest.raises(ValueError, match=r"X must have .*got shape \(300,\)"):
        score(make(X[:, 0]), make(LABELS))
    data = X.copy()
    data[123, 1] = np.nan
    with pytest.raises(
        ValueError, match="must contain finite values, got nan at row 123, column 1"
    ):
        score(make(data), make(LABELS))
    with pytest.raises(ValueError, match="weight of row 7"):
        score(make(X), make(LABELS), sample_weight=np.where(np.arange(300) == 7, -1.0, 1.0))


@pytest.mark.parametrize(
    "score", [metrics.simplified_silhouette_score, metrics.davies_bouldin_score]
)
def test_centers_that_do_not_fit_are_refused(score):
    for bad in (MEANS[:, :2], MEANS[:1], MEANS * np.nan):
        with pytest.raises(ValueError, match="centers must be finite"):
            score(X, LABELS, centers=bad)
    data = X.copy()
    data[123, 1] = np.inf
    with pytest.raises(
        ValueError, match="X must contain finite values, got inf at row 123, column 1"
    ):
        score(data, LABELS, centers=MEANS)


@pytest.mark.parametrize("seed", range(20))
def test_sparse_and_dense_matchings_agree(seed, monkeypatch):
    rng = np.random.default_rng(seed)
    truth, labels = rng.integers(0, 12, 50), rng.integers(0, 9, 50)
    dense = metrics.clustering_accuracy(truth, labels)
    monkeypatch.setattr("daskclust.metrics._agreement._DENSE", 0)
    monkeypatch.setattr("daskclust.metrics._agreement._CELLS_PER_COUNT", 0)
    assert metrics.clustering_accuracy(truth, labels) == dense
    assert metrics.clustering_accuracy(labels, truth) == dense


def test_as_many_classes_as_rows_are_matched_without_a_table_of_all_pairs():
    n = 20_000  # a dense table has 400 million cells
    order = np.random.default_rng(0).permutation(n)
    assert metrics.clustering_accuracy(np.arange(n), order) == 1.0
    # Every second class is split in two; half of its rows count.
    assert metrics.clustering_accuracy(np.arange(n) // 2, order) == 0.5


@pytest.mark.parametrize("bad", [-1, 2**24, 2**62])
def test_labels_that_no_table_of_numbers_holds_are_refused(bad):
    with pytest.raises(ValueError, match=f"must be between 0 and .*, got {bad}"):
        metrics.match_labels(np.array([0, 1]), np.array([0, bad]))


def test_no_rows_have_no_numbers():
    assert metrics.match_labels(np.empty(0, int), np.empty(0, int)).shape == (0,)

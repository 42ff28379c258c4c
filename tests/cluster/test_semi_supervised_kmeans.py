"""SemiSupervisedKMeans: by hand, against a serial program, and the statements of its paper."""

from __future__ import annotations

from itertools import combinations

import dask
import dask.array as da
import numpy as np
import pytest
import sklearn.cluster
from helpers import chunks_of, values
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.semi_supervised import class_centroids, constrained_kmeans
from scipy.optimize import linear_sum_assignment
from sklearn.exceptions import ConvergenceWarning

import daskclust
from daskclust import KMeans, SemiSupervisedKMeans
from daskclust.app.commands._estimators import takes_labels
from daskclust.exceptions import (
    CheckpointError,
    ConstraintError,
    ConstraintWarning,
    DaskclustWarning,
)
from daskclust.testing import CountingScheduler
from daskclust.testing.strategies import row_chunks

pytestmark = pytest.mark.usefixtures("synchronous")

chunked = chunks_of(70)

INITS = ["ss-k-means||", "ss-k-means++", "seeded-random"]
BY_INIT = pytest.mark.parametrize("init", INITS)
BY_CLAMP = pytest.mark.parametrize("clamp", [True, False])
#: Of one law, which is tried by start and by clamp: a third of the profile's examples for each.
SOME_EACH = settings(max_examples=settings().max_examples // 3)


def mixture(n=240, k=6, p=3, side=6.0, seed=0):
    return daskclust.datasets.make_gaussian_mixture(
        n, n_components=k, n_features=p, side=side, random_state=seed
    )


X, TRUTH = mixture()
#: Ten labels in each of four of the six classes.
Y = np.full(len(X), -1)
for _c in range(4):
    Y[np.flatnonzero(TRUTH == _c)[:10]] = _c
KNOWN = np.flatnonzero(Y >= 0)
ONE = np.ones(len(X))


def assert_same(found, want, tolerance=0.0):
    """The same model; to the last bit unless rounding may differ."""
    np.testing.assert_array_equal(values(found.labels_), values(want.labels_))
    np.testing.assert_array_equal(found.classes_, want.classes_)
    assert found.n_iter_ == want.n_iter_
    np.testing.assert_allclose(
        found.cluster_centers_, want.cluster_centers_, rtol=tolerance, atol=tolerance
    )
    assert found.inertia_ == pytest.approx(want.inertia_, rel=max(tolerance, 1e-15))


# By hand.

LINE = np.array([[0.0], [1.0], [4.0], [5.0], [9.0]])


@pytest.mark.parametrize("container", [np.asarray, lambda x: da.from_array(x, chunks=(2, 1))])
def test_five_points_by_hand(container):
    # Row 2 is labeled like row 0, though row 4's cluster comes to be nearer.
    y = np.array([7, -1, 7, -1, 3])
    start = SemiSupervisedKMeans(2, n_init=1, max_iter=0).fit(container(LINE), y)
    assert start.classes_.tolist() == [3, 7]
    assert start.cluster_centers_.tolist() == [[9.0], [2.0]]
    # Row 3 at 5 is nearer to 2 than to 9.
    assert values(start.labels_).tolist() == [1, 1, 1, 1, 0]
    assert start.inertia_ == 4 + 1 + 4 + 9
    assert start.n_iter_ == 0
    assert start.history_ == []

    model = SemiSupervisedKMeans(2, n_init=1, tol=0.0).fit(container(LINE), y)
    assert model.cluster_centers_.tolist() == [[9.0], [2.5]]
    assert values(model.labels_).tolist() == [1, 1, 1, 1, 0]
    assert model.inertia_ == 6.25 + 2.25 + 2.25 + 6.25
    assert [record["objective"] for record in model.history_] == [18.0, 17.0]


def test_clamped_rows_keep_their_label_and_pull_their_center_by_hand():
    y = np.array([0, -1, 1, -1, 0])
    clamped = SemiSupervisedKMeans(2, n_init=1, tol=0.0).fit(LINE, y)
    # Classes at 4.5 and 4: row 1 goes to 1, row 3 to 0; then (0, 5, 9) and (1, 4); then again.
    assert clamped.labels_.tolist() == [0, 1, 1, 0, 0]
    np.testing.assert_allclose(clamped.cluster_centers_.ravel(), [14 / 3, 2.5])
    assert clamped.predict(LINE).tolist() == [1, 1, 0, 0, 0]
    free = SemiSupervisedKMeans(2, clamp=False, n_init=1, tol=0.0).fit(LINE, y)
    assert free.labels_.tolist() == [1, 1, 1, 0, 0]
    np.testing.assert_array_equal(free.predict(LINE), free.labels_)
    np.testing.assert_allclose(free.cluster_centers_.ravel(), [7.0, 5 / 3])


def test_weights_count_in_centroids_by_hand():
    model = SemiSupervisedKMeans(1, n_init=1, max_iter=0)
    model.fit(LINE, [0, 0, -1, -1, -1], sample_weight=[3.0, 1.0, 1.0, 2.0, 1.0])
    assert model.cluster_centers_.tolist() == [[0.25]]
    assert model.inertia_ == 3 * 0.25**2 + 0.75**2 + 3.75**2 + 2 * 4.75**2 + 8.75**2


# Against others.


@BY_CLAMP
@given(
    seed=st.integers(0, 2**32 - 1),
    n_classes=st.integers(0, 4),
    share=st.floats(0.0, 1.0),
    weighted=st.booleans(),
    max_iter=st.sampled_from([0, 1, 2, 100]),
)
def test_equals_the_serial_program(clamp, seed, n_classes, share, weighted, max_iter):
    rng = np.random.default_rng(seed)
    rows, truth = mixture(60, 4, 2, 5.0, seed)
    weight = rng.integers(1, 4, 60).astype(float) if weighted else np.ones(60)
    y = np.where((rng.random(60) < share) & (truth < n_classes), truth, -1)
    codes = np.unique(y[y >= 0], return_inverse=True)[1]
    coded = np.full(60, -1)
    coded[y >= 0] = codes
    given_ = class_centroids(rows, coded, weight)
    start = np.concatenate([given_, rows[rng.choice(60, 4 - len(given_), replace=False)]])
    labels, centers, inertia, n_iter = constrained_kmeans(
        rows, coded, start, weight, clamp=clamp, max_iter=max_iter
    )
    if len(np.unique(labels)) < 4:
        return  # the serial program leaves empty clusters as they are
    model = SemiSupervisedKMeans(4, init=start, clamp=clamp, max_iter=max_iter, tol=0.0)
    model.fit(rows, y, sample_weight=weight)
    if any(record["passes"] > i + 2 for i, record in enumerate(model.history_)):
        return  # a cluster was empty on the way
    np.testing.assert_array_equal(model.labels_, labels)
    np.testing.assert_allclose(model.cluster_centers_, centers, rtol=1e-9, atol=1e-12)
    assert model.inertia_ == pytest.approx(inertia, rel=1e-9)
    assert abs(model.n_iter_ - n_iter) <= 1


@pytest.mark.parametrize("container", [np.asarray, chunked])
def test_seeded_kmeans_is_scikit_learn_from_the_centroids(container):
    y = np.where(np.arange(len(X)) % 3 == 0, TRUTH, -1)
    start = class_centroids(X, y, ONE)
    theirs = sklearn.cluster.KMeans(6, init=start, n_init=1).fit(X)
    ours = SemiSupervisedKMeans(6, init="ss-k-means||", clamp=False).fit(container(X), y)
    np.testing.assert_array_equal(values(ours.labels_), theirs.labels_)
    assert ours.n_iter_ == theirs.n_iter_
    assert ours.inertia_ == pytest.approx(theirs.inertia_, rel=1e-9)


@pytest.mark.parametrize(
    ("init", "plain"), [("ss-k-means||", "k-means||"), ("ss-k-means++", "k-means++")]
)
@pytest.mark.parametrize("y", [None, np.full(len(X), -1), ([], [])], ids=["none", "-1", "empty"])
def test_without_labels_it_is_kmeans(init, plain, y):
    theirs = KMeans(6, init=plain, random_state=5).fit(X)
    ours = SemiSupervisedKMeans(6, init=init, random_state=5).fit(X, y)
    np.testing.assert_array_equal(ours.cluster_centers_, theirs.cluster_centers_)
    assert ours.inertia_ == theirs.inertia_
    assert ours.history_[-1]["passes"] == theirs.history_[-1]["passes"]
    assert ours.classes_.tolist() == []


def test_seeded_random_without_labels_is_random_restarts():
    theirs = KMeans(6, init="random", random_state=5).fit(X)
    ours = SemiSupervisedKMeans(6, init="seeded-random", random_state=5).fit(X)
    np.testing.assert_array_equal(ours.cluster_centers_, theirs.cluster_centers_)


# The start.


@BY_INIT
@pytest.mark.parametrize("weighted", [False, True])
def test_the_start_is_centroids_then_unlabeled_rows(init, weighted):
    weight = np.random.default_rng(0).integers(1, 4, len(X)).astype(float) if weighted else ONE
    for seed in range(5):
        model = SemiSupervisedKMeans(6, init=init, max_iter=0, n_init=1, random_state=seed)
        model.fit(X, Y, sample_weight=weight)
        centers = model.cluster_centers_
        known = class_centroids(X, Y, weight)
        if init == "ss-k-means||":
            # Means of the rows near the classes.
            apart = ((centers[:, None] - known) ** 2).sum(axis=2)
            assert linear_sum_assignment(apart.T)[1].tolist() == [0, 1, 2, 3]
        else:
            np.testing.assert_allclose(centers[:4], known, rtol=1e-13)
            for center in centers[4:]:
                (row,) = np.flatnonzero((X == center).all(axis=1))
                assert Y[row] == -1


@BY_INIT
def test_all_classes_leave_nothing_to_sample(init):
    y = np.where(np.arange(len(X)) % 4 == 0, TRUTH, -1)
    model = SemiSupervisedKMeans(6, init=init, max_iter=1, random_state=0, n_init=7).fit(X, y)
    # The survey, one iteration, the last assignment.
    assert [record["passes"] for record in model.history_] == [2]
    start = SemiSupervisedKMeans(6, init=init, max_iter=0).fit(X, y)
    np.testing.assert_allclose(start.cluster_centers_, class_centroids(X, y, ONE), rtol=1e-13)


def test_ss_kmeans_plus_plus_draws_by_d2_from_unlabeled_rows_only():
    # Class 0 at 0; unlabeled rows at distances 1, 2, 3 and a labeled one far away.
    rows = np.array([[-50.0], [50.0], [1.0], [2.0], [3.0]])
    y = np.array([0, 0, -1, -1, -1])
    drawn = [
        SemiSupervisedKMeans(2, init="ss-k-means++", max_iter=0, random_state=seed)
        .fit(rows, y)
        .cluster_centers_[1, 0]
        for seed in range(280)
    ]
    counts = np.array([drawn.count(x) for x in (1.0, 2.0, 3.0)])
    assert counts.sum() == 280
    expected = 280 * np.array([1, 4, 9]) / 14
    # 0.999 of chi squared with 2 degrees of freedom.
    assert ((counts - expected) ** 2 / expected).sum() < 13.8


def test_ss_kmeans_parallel_finds_30_easy_blobs_from_every_seed():
    rng = np.random.default_rng(5)
    centers = np.stack(np.meshgrid(range(6), range(5)), axis=-1).reshape(30, 2) * 20.0
    truth = np.repeat(np.arange(30), 60)
    rows = centers[truth] + rng.normal(size=(1800, 2))
    y = np.where((truth < 12) & (np.arange(1800) % 10 == 0), truth, -1)
    for seed in range(5):
        model = SemiSupervisedKMeans(30, random_state=seed).fit(rows, y)
        assert (model.labels_[truth < 12] == truth[truth < 12]).all()
        assert len(set(zip(model.labels_.tolist(), truth.tolist(), strict=True))) == 30


def test_an_array_or_a_callable_is_taken_as_it_is():
    start = np.concatenate([class_centroids(X, Y, ONE), X[:2]])
    given_ = SemiSupervisedKMeans(6, init=start).fit(X, Y)
    seen = []

    def init(data, n_clusters, random_state):
        seen.append((data, n_clusters, random_state.randint(2**31)))
        return start

    model = SemiSupervisedKMeans(6, init=init, n_init=2, random_state=0).fit(X, Y)
    assert_same(model, given_)
    assert len({number for _, _, number in seen}) == 2
    assert all(data is not None and k == 6 for data, k, _ in seen)


# The paper.


@pytest.mark.parametrize("g", [1, 2, 5, 6])
def test_lemma_4_1_holds_exactly_over_all_subsets(g):
    rows = X[:6]
    least = ((rows - rows.mean(axis=0)) ** 2).sum()
    costs = [
        SemiSupervisedKMeans(1, n_init=1, max_iter=0).fit(rows, (list(subset), [0] * g)).inertia_
        for subset in combinations(range(6), g)
    ]
    assert np.mean(costs) == pytest.approx((1 + (6 - g) / (g * 5)) * least, rel=1e-12)


@pytest.mark.parametrize("init", INITS[:1])
def test_with_all_classes_labeled_seeds_cost_as_lemma_4_1_expects(init):
    k, n, g = 12, 100, 5
    rows, truth = mixture(k * n, k, 15, 40.0)
    least = sum(((rows[truth == c] - rows[truth == c].mean(axis=0)) ** 2).sum() for c in range(k))
    members = np.stack([np.flatnonzero(truth == c) for c in range(k)])
    ratios = []
    for seed in range(120):
        rng = np.random.default_rng(seed)
        known = np.concatenate([rng.choice(mine, g, replace=False) for mine in members])
        model = SemiSupervisedKMeans(k, init=init, max_iter=0, random_state=seed)
        ratios.append(model.fit(rows, (known, truth[known])).inertia_ / least)
    expected = 1 + (n - g) / (g * (n - 1))
    assert expected == pytest.approx(1.1919, abs=1e-4)
    error = np.std(ratios, ddof=1) / np.sqrt(len(ratios))
    # Narrow enough to exclude 1 + 1/g = 1.2, and within four standard errors.
    assert error < 0.002
    assert abs(np.mean(ratios) - expected) < 4 * error


def test_expected_seeds_stay_below_theorem_4_7():
    k, n_classes = 12, 6
    rows, truth = mixture(600, k, 5, 10.0)
    least = sum(((rows[truth == c] - rows[truth == c].mean(axis=0)) ** 2).sum() for c in range(k))
    costs = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        known = np.concatenate(
            [rng.choice(np.flatnonzero(truth == c), 5, replace=False) for c in range(n_classes)]
        )
        model = SemiSupervisedKMeans(k, init="ss-k-means++", max_iter=0, random_state=seed)
        costs.append(model.fit(rows, (known, truth[known])).inertia_)
    assert np.mean(costs) < 8 * (2 + np.log(k - n_classes)) * least


# Labels in every form.


def test_one_label_is_enough_and_every_row_may_have_one():
    one = SemiSupervisedKMeans(6, random_state=0, max_iter=0).fit(X, ([17], ["here"]))
    assert ((one.cluster_centers_ - X[17]) ** 2).sum(axis=1).argmin() == 0
    everything = SemiSupervisedKMeans(6, n_init=1).fit(X, TRUTH)
    np.testing.assert_array_equal(everything.labels_, TRUTH)
    np.testing.assert_allclose(
        everything.cluster_centers_, class_centroids(X, TRUTH, ONE), rtol=1e-12
    )
    assert everything.n_iter_ == 1


# Chunks, schedulers, passes.


@BY_INIT
@BY_CLAMP
@SOME_EACH
@given(
    lengths=row_chunks(len(X)),
    label_lengths=row_chunks(len(X)),
    dtype=st.sampled_from([np.float32, np.float64]),
    weighted=st.booleans(),
)
def test_any_chunks_give_the_same_model(init, clamp, lengths, label_lengths, dtype, weighted):
    weight = np.random.default_rng(1).integers(0, 3, len(X)) if weighted else None
    if weighted:
        weight[KNOWN] = 1 + KNOWN % 2
    rows = X.astype(dtype)
    options = {"init": init, "clamp": clamp, "random_state": 3, "n_init": 2}
    want = SemiSupervisedKMeans(6, **options).fit(rows, Y, sample_weight=weight)
    found = SemiSupervisedKMeans(6, **options).fit(
        da.from_array(rows, chunks=(lengths, -1)),
        da.from_array(Y, chunks=(label_lengths,)),
        sample_weight=weight,
    )
    assert_same(found, want, 1e-12)


@BY_INIT
@given(lengths=row_chunks(len(X)))
def test_any_chunks_give_the_same_seeds_to_the_last_bit(init, lengths):
    model = SemiSupervisedKMeans(6, init=init, n_init=1, max_iter=0, random_state=3)
    want = model.fit(X, Y).cluster_centers_
    found = model.fit(da.from_array(X, chunks=(lengths, -1)), Y).cluster_centers_
    np.testing.assert_array_equal(found, want)


@BY_INIT
@pytest.mark.parametrize("n_init", [1, 3])
def test_passes(init, n_init):
    """One look, the start, the iterations: labels cost no pass of their own."""
    scheduler = CountingScheduler()
    data = chunked(X)
    with dask.config.set(scheduler=scheduler):
        model = SemiSupervisedKMeans(6, init=init, n_init=n_init, random_state=0)
        model.fit(data, (KNOWN, Y[KNOWN]))
    start = {"ss-k-means||": 1, "ss-k-means++": 2, "seeded-random": 0}[init]
    passes = 1 + start + len(model.history_)
    assert model.history_[-1]["passes"] == passes
    assert scheduler.calls in (passes, passes + 1)
    assert scheduler.names[0] == "daskclust-survey"


def test_rounds_do_not_grow_with_k():
    rows, truth = mixture(18_000, 40, 3, 20.0)
    y = np.where(np.arange(18_000) < 500, truth, -1)
    for k in (41, 60, 70):
        model = SemiSupervisedKMeans(k, random_state=0, max_iter=1).fit(rows, y)
        assert model.history_[0]["passes"] == 1 + 5 + 2 + 1


@pytest.mark.parametrize("scheduler", ["threads", "cluster"])
@pytest.mark.parametrize("init", INITS[:1])
def test_any_scheduler_gives_the_same_model(init, scheduler, request):
    want = SemiSupervisedKMeans(6, init=init, random_state=0).fit(chunked(X), Y)
    if scheduler == "cluster":
        scheduler = request.getfixturevalue("client")
    with dask.config.set(scheduler=scheduler):
        data = chunked(X)
        for y in (Y, chunked(Y, 90), chunked(np.where(Y < 0, "-1", Y.astype(str)), 90)):
            found = SemiSupervisedKMeans(6, init=init, random_state=0).fit(data, y)
            assert found.classes_.astype(int).tolist() == want.classes_.tolist()
            np.testing.assert_array_equal(found.cluster_centers_, want.cluster_centers_)
            np.testing.assert_array_equal(values(found.labels_), want.labels_.compute())
            assert found.history_[-1]["passes"] == want.history_[-1]["passes"]


def test_labels_are_lazy_and_chunked_like_the_data():
    data = da.from_array(X, chunks=((100, 0, 100, 40), (3,)))
    model = SemiSupervisedKMeans(6, random_state=0).fit(data, Y)
    assert isinstance(model.labels_, da.Array)
    assert model.labels_.chunks == ((100, 0, 100, 40),)
    assert model.labels_.dtype == np.int32
    np.testing.assert_array_equal(model.labels_.compute()[KNOWN], Y[KNOWN])
    assert isinstance(model.cluster_centers_, np.ndarray)
    assert isinstance(model.classes_, np.ndarray)


def test_rows_of_unknown_number():
    data = chunked(X)[da.from_array(np.ones(len(X), bool), chunks=70)]
    want = SemiSupervisedKMeans(6, random_state=0).fit(X, Y)
    with pytest.warns(daskclust.exceptions.PerformanceWarning, match="unknown length"):
        model = SemiSupervisedKMeans(6, random_state=0).fit(data, (KNOWN, Y[KNOWN]))
    np.testing.assert_array_equal(model.labels_.compute(), want.labels_)


# Weights.


@BY_INIT
@BY_CLAMP
def test_an_integer_weight_equals_repetition_from_the_same_start(init, clamp):
    weight = np.random.default_rng(0).integers(1, 4, len(X))
    start = SemiSupervisedKMeans(6, init=init, max_iter=0, random_state=0).fit(
        X, Y, sample_weight=weight
    )
    options = {"init": start.cluster_centers_, "clamp": clamp}
    one = SemiSupervisedKMeans(6, **options).fit(X, Y, sample_weight=weight)
    two = SemiSupervisedKMeans(6, **options).fit(np.repeat(X, weight, axis=0), np.repeat(Y, weight))
    np.testing.assert_array_equal(np.repeat(one.labels_, weight), two.labels_)
    np.testing.assert_allclose(one.cluster_centers_, two.cluster_centers_, rtol=1e-12)
    assert one.inertia_ == pytest.approx(two.inertia_, rel=1e-12)


@BY_CLAMP
def test_weight_0_equals_absence(clamp):
    weight = np.ones(len(X))
    weight[::3] = 0.0
    start = np.concatenate([class_centroids(X, np.where(weight, Y, -1), ONE), X[1:3]])
    far = np.where(weight[:, None] > 0, X, X + 1e6)
    options = {"init": start, "clamp": clamp}
    with pytest.warns(ConstraintWarning, match="sample_weight 0 or no values"):
        model = SemiSupervisedKMeans(6, **options).fit(far, Y, sample_weight=weight)
    want = SemiSupervisedKMeans(6, **options).fit(X[weight > 0], Y[weight > 0])
    np.testing.assert_array_equal(model.labels_[weight > 0], want.labels_)
    np.testing.assert_allclose(model.cluster_centers_, want.cluster_centers_, rtol=1e-9)
    assert model.inertia_ == pytest.approx(want.inertia_, rel=1e-9)


@pytest.mark.parametrize("init", INITS[:2])
@BY_CLAMP
@pytest.mark.parametrize("container", [chunked])
def test_a_class_whose_rows_are_absent_is_absent(init, clamp, container):
    weight = np.where(Y == 2, 0.0, 1.0)
    names = np.array(["a", "b", "c", "d", "-1"])[Y]
    model = SemiSupervisedKMeans(6, init=init, clamp=clamp, random_state=1)
    with pytest.warns(ConstraintWarning, match=r"and so are the classes without other rows \(c\)"):
        found = model.fit(container(X), names, sample_weight=weight)
    assert found.classes_.tolist() == ["a", "b", "d"]
    # Labels of rows with weight 0 are ignored.
    plain = np.where(Y == 2, "-1", names)
    want = SemiSupervisedKMeans(6, init=init, clamp=clamp, random_state=1).fit(
        container(X), plain, sample_weight=weight
    )
    assert_same(found, want)


def test_all_labeled_rows_absent_is_no_label():
    with pytest.warns(ConstraintWarning, match=r"\(0, 1, 2, 3\)"):
        model = SemiSupervisedKMeans(6, random_state=0).fit(
            X, Y, sample_weight=np.where(Y < 0, 1.0, 0.0)
        )
    assert model.classes_.tolist() == []
    want = KMeans(6, random_state=0).fit(X, sample_weight=np.where(Y < 0, 1.0, 0.0))
    np.testing.assert_array_equal(model.cluster_centers_, want.cluster_centers_)


def test_labels_on_masked_pixels_are_left_out():
    """Masked pixels are not rows, and a class without other pixels is dropped."""
    scene = daskclust.datasets.make_hyperspectral_cube(
        shape=(20, 24), n_bands=8, n_classes=3, chunks=(10, 12), nodata_fraction=0.2, random_state=0
    )
    cube = daskclust.open_cube(scene.cube, dims=("y", "x", "band"), nodata=scene.nodata)
    few = np.full(scene.truth.shape, -1)
    few[::4, ::3] = scene.truth[::4, ::3]
    few[scene.truth < 0] = 7
    with pytest.warns(DaskclustWarning, match=r"labeled pixels are left out: 89 have no data"):
        rows, labels = cube.rows_of(few)
    model = SemiSupervisedKMeans(3, random_state=0).fit(cube.samples, (rows, labels))
    assert model.classes_.tolist() == [0, 1, 2]
    on_map = values(cube.to_map(model.labels_))
    assert (on_map[scene.truth < 0] == -1).all()
    known = (few >= 0) & (scene.truth >= 0)
    np.testing.assert_array_equal(on_map[known], scene.truth[known])


# Few distinct rows.


@BY_INIT
@BY_CLAMP
def test_unlabeled_rows_that_all_lie_on_a_centroid(init, clamp):
    """No squared distance is left to sample by: the centroid is repeated, and its copy empty."""
    rows = np.repeat([[0.0, 0.0], [9.0, 9.0]], 10, axis=0)
    y = np.where(np.arange(20) == 0, 0, -1)
    y[10] = 1
    with pytest.warns(ConvergenceWarning, match=r"clusters \(2\) found smaller than .* \(4\)"):
        model = SemiSupervisedKMeans(4, init=init, clamp=clamp, random_state=0).fit(rows, y)
    assert model.cluster_centers_.tolist()[:2] == [[0.0, 0.0], [9.0, 9.0]]
    assert model.labels_.tolist() == [0] * 10 + [1] * 10
    assert model.inertia_ == 0.0


@BY_INIT
@BY_CLAMP
def test_fewer_unlabeled_rows_than_missing_centers(init, clamp):
    rows = np.arange(8.0)[:, None]
    y = np.array([0, 0, 0, 1, 1, 1, 1, -1])
    model = SemiSupervisedKMeans(5, init=init, clamp=clamp, random_state=0)
    if clamp:
        # Labeled rows cannot found a cluster.
        with pytest.warns(ConvergenceWarning, match=r"\(3\) found smaller than n_clusters \(5\)"):
            model.fit(rows, y)
        assert model.labels_.tolist()[:7] == y[:7].tolist()
    else:
        model.fit(rows, y)
        assert len(set(model.labels_.tolist())) == 5


@BY_CLAMP
def test_an_empty_cluster_is_founded_by_an_unlabeled_row(clamp):
    rows = np.array([[0.0], [30.0], [1.0], [2.0], [20.0]])
    y = np.array([0, 0, -1, -1, -1])
    start = np.array([[0.0], [500.0]])
    model = SemiSupervisedKMeans(2, init=start, clamp=clamp, max_iter=1).fit(rows, y)
    founder = 20.0 if clamp else 30.0
    assert model.cluster_centers_[1, 0] == founder


# Bad input.


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (np.zeros(len(X), bool), r"dtype bool.*numpy\.where\(known, y\.astype\(int\), -1\)"),
        (Y + 0.5, r"must contain integers or strings.*got -?\d\.5"),
        (Y.astype(complex), "must contain integers or strings, got dtype complex128"),
        (
            np.array([*["a"] * 239, 3.5], object),
            "only integers or only strings, got the types float, str",
        ),
        (TRUTH[:-1], r"y must have one label per row of X \(240 rows\).*got shape \(239,\)"),
        (np.stack([Y, Y], axis=1), r"one label per row.*got shape \(240, 2\)"),
        (
            np.arange(len(X)) % 7,
            "y must have at most n_clusters=6 classes, got 7, because each class",
        ),
        (([0, 1, 2], [0, 1]), r"shapes \(3,\) and \(2,\)"),
        (([0, 240], [0, 1]), r"Row numbers of y must be in \[0, 240\), got 240"),
        (([-1, 4], [0, 1]), r"Row numbers of y must be in \[0, 240\), got -1"),
        (([3, 5, 3], [0, 1, 1]), r"several for row 3 \(0, 1\)"),
        (([0.0, 1.0], [0, 1]), "must be integers, got dtype float64"),
        ((Y >= 0, Y), r"The rows of y = \(rows, labels\) must be integers, got dtype"),
        (([0, 1], [True, False]), "dtype bool"),
        (np.uint64(2**63) + np.arange(len(X), dtype=np.uint64) % 2, "must contain integers below"),
    ],
)
def test_labels_that_cannot_be_used(y, message):
    scheduler = CountingScheduler()
    with dask.config.set(scheduler=scheduler):
        for data in (X, chunked(X)):
            with pytest.raises(ConstraintError, match=message):
                SemiSupervisedKMeans(6).fit(data, y)
    assert scheduler.calls == 0


def test_dask_labels_that_cannot_be_used():
    with pytest.raises(ConstraintError, match="y must contain integers or strings, got dtype"):
        SemiSupervisedKMeans(6).fit(chunked(X), chunked(Y == 0))


def test_dask_labels_of_unknown_or_other_length():
    y = chunked(Y)
    want = SemiSupervisedKMeans(6, random_state=0).fit(X, Y)
    found = SemiSupervisedKMeans(6, random_state=0).fit(chunked(X), y[y > -2])
    assert_same(found, want, 1e-12)
    with pytest.raises(
        ConstraintError,
        match=r"y must have one label per row of X \(240 rows\).*got shape \(200,\)",
    ):
        SemiSupervisedKMeans(6).fit(chunked(X), y[:200])


def test_bad_rows_and_too_few_rows():
    bad = X.copy()
    bad[7, 1] = np.nan
    with pytest.raises(ValueError, match="row 7, column 1"):
        SemiSupervisedKMeans(6).fit(bad, Y)
    with pytest.raises(ValueError, match="n_clusters=6 must be at most n_samples=3"):
        SemiSupervisedKMeans(6).fit(X[:3], Y[:3])


def test_centers_of_another_number_are_refused():
    with pytest.raises(ValueError, match=r"must have shape \(6, 3\)"):
        SemiSupervisedKMeans(6, init=X[:3]).fit(X, Y)


# Several clusters a class.

ENDS = np.array([[0.0], [1.0], [10.0], [11.0], [13.0], [20.0], [21.0]])
#: Class "outer" lies at both ends of class "inner"; the row at 13 is nearer to the latter.
ENDS_Y = ["outer", None, "inner", None, "outer", "outer", None]


def classes_of(model, labels):
    """Names of the classes of clusters."""
    return model.classes_[model.cluster_classes_[values(labels)]]


@pytest.mark.parametrize("container", [np.asarray, lambda x: da.from_array(x, chunks=(2, 1))])
def test_a_class_of_two_blobs_by_hand(container):
    options = {"clusters_per_class": 2, "tol": 0.0, "random_state": 0}
    start = SemiSupervisedKMeans(3, **{**options, "max_iter": 0}).fit(container(ENDS), ENDS_Y)
    assert start.classes_.tolist() == ["inner", "outer"]
    assert start.cluster_classes_.tolist() == [0, 1, 1]
    assert start.cluster_classes_.dtype == np.int64
    # One labeled row is one cluster; 0, 13, 20 are best cut after 0.
    assert start.cluster_centers_.tolist() == [[10.0], [0.0], [16.5]]
    assert values(start.labels_).tolist() == [1, 1, 0, 0, 2, 2, 2]
    assert start.inertia_ == 1 + 1 + 12.25 + 12.25 + 20.25

    model = SemiSupervisedKMeans(3, **options).fit(container(ENDS), ENDS_Y)
    assert model.cluster_centers_.tolist() == [[10.5], [0.5], [18.0]]
    assert model.inertia_ == 4 * 0.25 + 25 + 4 + 9
    assert (
        classes_of(model, model.labels_).tolist() == ["outer"] * 2 + ["inner"] * 2 + ["outer"] * 3
    )
    # The row at 13 kept its class, not its nearest center.
    assert values(model.predict(container(ENDS))).tolist() == [1, 1, 0, 0, 0, 2, 2]

    free = SemiSupervisedKMeans(3, clamp=False, **options).fit(container(ENDS), ENDS_Y)
    assert values(free.labels_).tolist() == [1, 1, 0, 0, 0, 2, 2]
    np.testing.assert_allclose(free.cluster_centers_.ravel(), [34 / 3, 0.5, 20.5])
    assert free.cluster_classes_.tolist() == [0, 1, 1]


@BY_CLAMP
def test_classes_at_opposite_corners(clamp):
    """Two classes with equal centroids: one cluster per class cannot separate them."""
    rng = np.random.default_rng(0)
    corner = np.arange(400) % 4
    rows = np.array([[0, 0], [9, 9], [0, 9], [9, 0]])[corner] + rng.normal(size=(400, 2))
    truth = corner // 2
    y = np.where(np.arange(400) < 40, truth, -1)
    model = SemiSupervisedKMeans(4, clusters_per_class=2, clamp=clamp, random_state=0).fit(rows, y)
    assert model.cluster_classes_.tolist() == [0, 0, 1, 1]
    assert (classes_of(model, model.labels_) == truth).all()
    assert (classes_of(model, model.predict(rows)) == truth).all()
    with_one = SemiSupervisedKMeans(2, clamp=clamp, random_state=0).fit(rows, y)
    assert (classes_of(with_one, with_one.labels_) == truth).mean() < 0.9


def test_one_cluster_a_class_is_the_default():
    model = SemiSupervisedKMeans(6, random_state=0).fit(X, Y)
    assert model.cluster_classes_.tolist() == [0, 1, 2, 3, -1, -1]
    assert SemiSupervisedKMeans(6).fit(X).cluster_classes_.tolist() == [-1] * 6
    # Without labels there are neither clusters of classes nor a pass to fetch labeled rows.
    several = SemiSupervisedKMeans(6, clusters_per_class=3, random_state=0).fit(X)
    plain = SemiSupervisedKMeans(6, random_state=0).fit(X)
    assert_same(several, plain)
    assert several.history_[-1]["passes"] == plain.history_[-1]["passes"]
    # A class of one labeled row has one cluster, however many are allowed.
    few = np.full(len(X), -1)
    few[KNOWN[::10]] = Y[KNOWN[::10]]
    assert_same(
        SemiSupervisedKMeans(6, clusters_per_class=3, random_state=0).fit(X, few),
        SemiSupervisedKMeans(6, random_state=0).fit(X, few),
        1e-12,
    )


def sizes_of(rows, coded, weight, limit):
    """Clusters of each class."""
    there = weight > 0
    classes = np.unique(coded[there & (coded >= 0)])
    return [min(limit, len(np.unique(rows[there & (coded == c)], axis=0))) for c in classes]


# A few random rows far away may leave nearly all others in one cluster.
@pytest.mark.filterwarnings("ignore:One cluster contains")
@BY_CLAMP
@given(
    seed=st.integers(0, 2**32 - 1),
    limit=st.integers(2, 4),
    n_others=st.integers(0, 2),
    n_away=st.integers(0, 2),
    share=st.floats(0.05, 1.0),
    weighted=st.booleans(),
    max_iter=st.sampled_from([0, 1, 2, 100]),
)
def test_several_clusters_equal_the_serial_program(
    clamp, seed, limit, n_others, n_away, share, weighted, max_iter
):
    rng = np.random.default_rng(seed)
    rows, truth = mixture(60, 4, 2, 5.0, seed)
    weight = rng.integers(1, 4, 60).astype(float) if weighted else np.ones(60)
    y = np.where((rng.random(60) < share) & (truth < 2), truth, -1)
    codes = np.full(60, -1)
    codes[y >= 0] = np.unique(y[y >= 0], return_inverse=True)[1]
    sizes = sizes_of(rows, codes, weight, limit)
    n_others = n_others if sizes else 2
    of_class = np.repeat(np.arange(len(sizes)), sizes)
    of_cluster = np.concatenate([of_class, np.full(n_others, -1)]).astype(int)
    start = rows[rng.choice(60, len(of_cluster), replace=False)]
    if clamp:
        # Clusters of the first class that are empty at first.
        start[: min(n_away, len(of_class))] += [[100.0, 200.0]]
    labels, centers, inertia, n_iter = constrained_kmeans(
        rows, codes, start, weight, clamp=clamp, max_iter=max_iter, cluster_classes=of_cluster
    )
    model = SemiSupervisedKMeans(
        len(of_cluster),
        init=start,
        clusters_per_class=limit,
        clamp=clamp,
        max_iter=max_iter,
        tol=0.0,
    )
    model.fit(rows, y, sample_weight=weight)
    np.testing.assert_array_equal(model.cluster_classes_, of_cluster)
    fetch = bool(len(sizes))
    if any(record["passes"] > i + 2 + fetch for i, record in enumerate(model.history_)):
        # A cluster without labeled rows was empty, which the serial program leaves.
        assert n_others or not clamp
        return
    np.testing.assert_array_equal(model.labels_, labels)
    np.testing.assert_allclose(model.cluster_centers_, centers, rtol=1e-9, atol=1e-12)
    assert model.inertia_ == pytest.approx(inertia, rel=1e-9)
    assert abs(model.n_iter_ - n_iter) <= 1


def test_an_empty_cluster_of_a_class_is_founded_by_a_row_of_the_class():
    rows = np.array([[0.0], [4.0], [4.0], [30.0], [31.0]])
    y = [5, 5, 5, -1, -1]
    start = np.array([[1.0], [-500.0], [30.0]])
    model = SemiSupervisedKMeans(3, init=start, clusters_per_class=2, max_iter=1).fit(rows, y)
    # Both rows at 4, 3 away from 1, not the row at 31: they are one point.
    assert model.cluster_centers_.ravel().tolist() == [0.0, 4.0, 30.5]
    assert model.cluster_classes_.tolist() == [0, 0, -1]
    # That took no pass: the look, the labeled rows, the iteration.
    assert model.history_[-1]["passes"] == 3


@BY_INIT
@BY_CLAMP
@SOME_EACH
@given(
    lengths=row_chunks(len(X)),
    dtype=st.sampled_from([np.float32, np.float64]),
    weighted=st.booleans(),
)
def test_several_clusters_are_the_same_for_any_chunks(init, clamp, lengths, dtype, weighted):
    weight = None
    if weighted:
        weight = np.random.default_rng(1).integers(0, 3, len(X))
        weight[KNOWN] = 1 + KNOWN % 2
    rows = X.astype(dtype)
    model = SemiSupervisedKMeans(
        10, init=init, clusters_per_class=2, clamp=clamp, random_state=3, n_init=2
    )
    data = da.from_array(rows, chunks=(lengths, -1))
    want = sklearn.clone(model).fit(rows, Y, sample_weight=weight)
    found = sklearn.clone(model).fit(data, Y, sample_weight=weight)
    assert_same(found, want, 1e-12)
    np.testing.assert_array_equal(found.cluster_classes_, want.cluster_classes_)
    model.set_params(max_iter=0, n_init=1)
    start = sklearn.clone(model).fit(rows, Y).cluster_centers_
    np.testing.assert_array_equal(model.fit(data, Y).cluster_centers_, start)


@BY_INIT
def test_passes_with_several_clusters(init):
    scheduler = CountingScheduler()
    with dask.config.set(scheduler=scheduler):
        model = SemiSupervisedKMeans(10, init=init, clusters_per_class=2, n_init=3, random_state=0)
        model.fit(chunked(X), (KNOWN, Y[KNOWN]))
    start = {"ss-k-means||": 1, "ss-k-means++": 2, "seeded-random": 0}[init]
    passes = 1 + 1 + start + len(model.history_)
    assert model.history_[-1]["passes"] == passes
    assert scheduler.calls in (passes, passes + 1)
    # Nothing to sample: one start is all starts.
    model.set_params(n_clusters=8, max_iter=1).fit(X, Y)
    assert [record["passes"] for record in model.history_] == [3]


@BY_CLAMP
def test_weights_with_several_clusters(clamp):
    """An integer weight equals repetition, 0 absence: for the start, too."""
    y = np.where(np.arange(len(X)) % 2, TRUTH, -1)
    weight = np.random.default_rng(0).integers(0, 4, len(X))
    options = {"clusters_per_class": 2, "clamp": clamp, "random_state": 0}
    far = np.where(weight[:, None] > 0, X, X + 1e3)
    with pytest.warns(ConstraintWarning, match="sample_weight 0 or no values"):
        one = SemiSupervisedKMeans(12, **options).fit(far, y, sample_weight=weight)
    two = SemiSupervisedKMeans(12, **options).fit(
        np.repeat(X, weight, axis=0), np.repeat(y, weight)
    )
    np.testing.assert_array_equal(np.repeat(one.labels_, weight), two.labels_)
    np.testing.assert_allclose(one.cluster_centers_, two.cluster_centers_, rtol=1e-9)
    assert one.inertia_ == pytest.approx(two.inertia_, rel=1e-9)
    if clamp:
        # Labeled rows that are absent keep their class, too.
        known = y >= 0
        np.testing.assert_array_equal(classes_of(one, one.labels_[known]), y[known])


def test_rows_without_weight_make_no_cluster():
    rows = np.array([[0.0], [1.0], [7.0], [20.0], [21.0]])
    y, weight = [0, 0, 0, -1, -1], [2.0, 2.0, 0.0, 1.0, 1.0]
    model = SemiSupervisedKMeans(3, clusters_per_class=3, random_state=0)
    with pytest.warns(ConstraintWarning, match="the first is row 2"):
        model.fit(rows, y, sample_weight=weight)
    assert model.cluster_classes_.tolist() == [0, 0, -1]
    assert model.cluster_centers_.ravel().tolist() == [0.0, 1.0, 20.5]
    assert model.labels_.tolist() == [0, 1, 1, 2, 2]


def test_more_clusters_of_classes_than_clusters():
    for data in (X, chunked(X)):
        with pytest.raises(
            ConstraintError,
            match=r"n_clusters must be at least 12, got 11: the 4 classes of y have 12 clusters .*"
            r"Use n_clusters=12 or more, or a smaller clusters_per_class",
        ):
            SemiSupervisedKMeans(11, clusters_per_class=3).fit(data, Y)
    assert SemiSupervisedKMeans(12, clusters_per_class=3).fit(X, Y).n_iter_ > 0


def test_several_clusters_interrupted_and_saved(tmp_path):
    options = {"clusters_per_class": 3, "tol": 0.0, "init": "seeded-random", "n_init": 2}
    options["random_state"] = 0
    want = SemiSupervisedKMeans(14, **options).fit(X, Y)
    assert want.n_iter_ > 2
    path = tmp_path / "fit.npz"
    SemiSupervisedKMeans(14, **{**options, "max_iter": 2}, checkpoint=path).fit(X, Y)
    model = SemiSupervisedKMeans(14, **options, checkpoint=path).fit(X, (KNOWN, Y[KNOWN]))
    assert_same(model, want)
    np.testing.assert_array_equal(model.cluster_classes_, want.cluster_classes_)
    options["clusters_per_class"] = 2
    with pytest.raises(CheckpointError, match="clusters_per_class was"):
        SemiSupervisedKMeans(14, **options, checkpoint=path).fit(X, Y)
    model.save(tmp_path / "m.zarr")
    loaded = daskclust.load(tmp_path / "m.zarr")
    assert loaded.clusters_per_class == 3
    np.testing.assert_array_equal(loaded.cluster_classes_, model.cluster_classes_)
    assert loaded.cluster_classes_.dtype == model.cluster_classes_.dtype
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))


# Interrupted fits.


def test_an_interrupted_fit_goes_on_to_the_identical_model(tmp_path):
    options = {"random_state": 0, "tol": 0.0, "init": "seeded-random", "n_init": 2}
    want = SemiSupervisedKMeans(6, **options).fit(X, Y)
    assert want.n_iter_ > 2
    path = tmp_path / "fit.npz"
    SemiSupervisedKMeans(6, **{**options, "max_iter": 2}, checkpoint=path).fit(X, Y)
    model = SemiSupervisedKMeans(6, **options, checkpoint=path).fit(X, (KNOWN, Y[KNOWN]))
    assert_same(model, want)
    assert [r["objective"] for r in model.history_] == [r["objective"] for r in want.history_]
    other = Y.copy()
    other[KNOWN[0]] = -1
    with pytest.raises(CheckpointError, match="labels was"):
        SemiSupervisedKMeans(6, **options, checkpoint=path).fit(X, other)


def test_the_command_line_hands_over_labels():
    assert takes_labels(SemiSupervisedKMeans())
    assert not takes_labels(KMeans())


def test_a_saved_model_keeps_its_classes(tmp_path):
    for y in (Y, np.array(["a", "b", "c", "d", "-1"])[Y], None):
        model = SemiSupervisedKMeans(6, random_state=0).fit(X, y)
        model.save(tmp_path / "m.zarr", overwrite=True)
        loaded = daskclust.load(tmp_path / "m.zarr")
        np.testing.assert_array_equal(loaded.classes_, model.classes_)
        assert loaded.classes_.dtype.kind == model.classes_.dtype.kind
        np.testing.assert_array_equal(loaded.predict(X), model.predict(X))

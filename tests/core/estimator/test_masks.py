"""Masked values never count as the hidden values."""

from __future__ import annotations

import warnings

import dask
import dask.array as da
import numpy as np
import pytest

import daskclust as dc
from daskclust import datasets, selection
from daskclust.exceptions import ConstraintError

RNG = np.random.default_rng(0)
CLASSES = np.arange(90) % 3
X = RNG.normal(size=(90, 3)) + 6.0 * CLASSES[:, None]
HIDDEN = RNG.random(X.shape) < 0.1
HIDDEN[4, 0] = True
HIDDEN[:4] = False
#: The hidden values would change every mean.
MASKED_X = np.ma.masked_array(np.where(HIDDEN, 1e6, X), HIDDEN)
HOLES = np.where(HIDDEN, np.nan, X)
KNOWN = np.where(np.arange(90) < 30, CLASSES, -1)
MASKED_Y = np.ma.masked_array(np.where(KNOWN < 0, 7, KNOWN), KNOWN < 0)


@pytest.fixture(autouse=True)
def _synchronous():
    with dask.config.set(scheduler="sync"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def lazy(array):
    return da.from_array(array, chunks=(25, *array.shape[1:]), asarray=False)


CLUSTERERS = [
    dc.KMeans(3, random_state=0),
    dc.SemiSupervisedKMeans(3, random_state=0),
    dc.DPMeans(50.0),
    dc.PCKMeans(3, random_state=0),
    dc.SparseKMeans(3, random_state=0),
]
MIXTURES = [
    dc.GaussianMixture(2, random_state=0),
    dc.PCKID(2, n_initializations=2, max_components=3, random_state=0),
]


def name_of(model):
    return type(model).__name__


@pytest.mark.parametrize("model", CLUSTERERS[::2], ids=name_of)
def test_masked_values_are_an_error_that_names_the_row(model):
    with pytest.raises(ValueError, match="got one in row 4"):
        model.fit(MASKED_X)
    with pytest.raises(ValueError, match="contains NaN: the first at row 4, column 0"):
        model.fit(lazy(MASKED_X))
    with pytest.raises(ValueError, match="got one in row 4"):
        model.fit(X).predict(MASKED_X)


@pytest.mark.parametrize("model", MIXTURES, ids=name_of)
def test_masked_values_are_missing_where_missing_values_are_modeled(model):
    want = model.fit(HOLES).labels_
    np.testing.assert_array_equal(model.predict(MASKED_X), model.predict(HOLES))
    np.testing.assert_array_equal(model.fit(MASKED_X).labels_, want)
    np.testing.assert_array_equal(model.fit(lazy(MASKED_X)).labels_.compute(), want)
    whole = np.ma.masked_array(np.arange(60).reshape(20, 3), np.arange(60).reshape(20, 3) == 7)
    holes = np.where(whole.mask, np.nan, whole.data)
    np.testing.assert_array_equal(model.fit(whole).labels_, model.fit(holes).labels_)


@pytest.mark.parametrize("model", [*CLUSTERERS[1::2], MIXTURES[0]], ids=name_of)
def test_masked_weights_are_refused(model):
    weight = np.ma.masked_array(np.ones(90), np.arange(90) == 7)
    with pytest.raises(ValueError, match=r"sample_weight.*in row 7"):
        model.fit(X, sample_weight=weight)
    with pytest.raises(ValueError, match="weight of row 7 is NaN"):
        model.fit(lazy(X), sample_weight=lazy(weight))


@pytest.mark.parametrize("make", [np.asanyarray, lazy])
def test_pairs_come_from_labels_that_are_not_masked(make):
    plain = dc.pairs_from_labels(KNOWN)
    for found, expected in zip(dc.pairs_from_labels(make(MASKED_Y)), plain, strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("kind", ["must_link", "cannot_link"])
def test_masked_pairs_and_their_weights_are_refused(kind):
    pairs = np.array([[0, 1], [2, 3]])
    model = dc.PCKMeans(3, random_state=0)
    with pytest.raises(ConstraintError, match=f"{kind} must not contain masked values"):
        model.fit(X, **{kind: np.ma.masked_array(pairs, pairs == 3)})
    weight = np.ma.masked_array([1.0, 2.0], [False, True])
    with pytest.raises(ConstraintError, match=f"{kind}_weight must not contain masked"):
        model.fit(X, **{kind: pairs, f"{kind}_weight": weight})


@pytest.mark.parametrize(
    "model",
    [
        dc.MPCKMeans(3),
        dc.PCSKMeans(3),
        dc.COPKMeans(3),
        dc.SpectralClustering(3, n_prototypes=9, views="standard"),
    ],
    ids=lambda model: type(model).__name__,
)
def test_masked_blocks_are_an_error_that_names_the_row(model):
    hidden = lazy(X).map_blocks(lambda b: np.ma.masked_array(b, b > b.max() - 1e-9), dtype=X.dtype)
    with pytest.raises(ValueError, match=r"the first at row \d+, column \d"):
        model.set_params(random_state=0).fit(hidden)


def test_masked_rows_of_labels_are_refused():
    rows = np.ma.masked_array(np.arange(5), np.arange(5) == 2)
    with pytest.raises(ConstraintError, match="at position 2"):
        CLUSTERERS[1].fit(X, (rows, CLASSES[:5]))


def test_masked_parameters_are_refused():
    centers = np.ma.masked_array(X[:3], X[:3] == X[1, 2])
    with pytest.raises(
        ValueError, match=r"init must not contain masked values, got one at \(1, 2\)"
    ):
        dc.KMeans(3, init=centers).fit(X)
    with pytest.raises(
        ValueError, match=r"means_init must not contain masked values, got one at \(1, 2\)"
    ):
        dc.GaussianMixture(3, means_init=centers).fit(X)


@pytest.mark.parametrize("mechanism", ["mcar", "nmar"])
def test_masked_values_are_missing_already(mechanism):
    want = datasets.remove_values(HOLES, mechanism, fraction=0.2, random_state=0)
    found = datasets.remove_values(MASKED_X, mechanism, fraction=0.2, random_state=0)
    np.testing.assert_array_equal(found, want)
    found = datasets.remove_values(lazy(MASKED_X), mechanism, fraction=0.2, random_state=0)
    np.testing.assert_array_equal(np.asarray(found), want)


def test_no_label_is_no_class_in_the_choice_of_sparsity():
    model = dc.PCSKMeans(3, random_state=0)
    rows = np.flatnonzero(KNOWN >= 0)
    options = {"grid": [1.2, 1.6], "method": "f-score", "random_state": 0}
    want = selection.choose_sparsity(model, X, y=(rows, KNOWN[rows]), **options)
    for y in [(np.arange(90), MASKED_Y), lazy(MASKED_Y)]:
        found = selection.choose_sparsity(model, X, y=y, **options)
        np.testing.assert_array_equal(found.scores, want.scores)


@pytest.mark.parametrize("model", [CLUSTERERS[0], MIXTURES[0]], ids=name_of)
def test_lazy_masked_weights_are_refused_beside_any_rows(model):
    weight = lazy(np.ma.masked_array(np.ones(90), np.arange(90) == 7))
    with pytest.raises(ValueError, match=r"sample_weight.*in row 7"):
        model.fit(X, sample_weight=weight)
    with pytest.raises(ValueError, match="weight of row 7 is NaN"):
        # As in a table: the lengths of the chunks are unknown.
        model.fit(uncounted(lazy(X)), sample_weight=uncounted(weight))


def uncounted(array):
    unknown = (np.nan,) * array.numblocks[0]
    return da.Array(array.dask, array.name, (unknown, *array.chunks[1:]), meta=array._meta)


class OnGpu(np.ndarray):
    """Array that says, like those of CuPy, that its values are on a GPU."""

    @property
    def __cuda_array_interface__(self):
        return {}


@pytest.mark.parametrize("lazy", [False, True])
def test_arrays_on_a_gpu_are_refused_with_the_remedy(lazy):
    rows = X.view(OnGpu)
    rows = da.from_array(rows, asarray=False) if lazy else rows
    labels = np.arange(len(X)) % 2
    for work in (
        lambda: dc.KMeans(2).fit(rows),
        lambda: dc.metrics.davies_bouldin_score(rows, labels),
        lambda: dc.metrics.silhouette_score(rows, labels),
    ):
        with pytest.raises(TypeError, match=r"memory of the CPU, got .* Use X\.get\(\) of CuPy"):
            work()


def test_arrays_of_the_array_api_give_the_results_of_numpy():
    xp = pytest.importorskip("array_api_strict")
    x = np.random.default_rng(0).random((60, 3))
    labels = np.where(np.arange(60) < 6, np.arange(60) % 3, -1)
    array = xp.asarray(x)
    model, expected = dc.KMeans(3, random_state=0).fit(array), dc.KMeans(3, random_state=0).fit(x)
    np.testing.assert_array_equal(model.labels_, expected.labels_)
    np.testing.assert_array_equal(model.predict(array), expected.predict(x))
    np.testing.assert_array_equal(model.transform(array), expected.transform(x))
    found = dc.LabelSpreading(random_state=0).fit(array, xp.asarray(labels))
    np.testing.assert_array_equal(
        found.labels_, dc.LabelSpreading(random_state=0).fit(x, labels).labels_
    )
    for score in (dc.metrics.davies_bouldin_score, dc.metrics.silhouette_score):
        assert score(array, xp.asarray(model.labels_)) == score(x, model.labels_)
    with pytest.raises(RuntimeError, match="device1"):
        dc.KMeans(3).fit(xp.asarray(x, device=xp.Device("device1")))

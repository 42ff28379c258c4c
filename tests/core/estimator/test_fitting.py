"""The common sequence of all fits: a fit that fails leaves the estimator unchanged."""

from __future__ import annotations

import copy
import warnings

import dask
import dask.array as da
import numpy as np
import pandas as pd
import pytest
from distributed import Client, LocalCluster
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from daskclust import (
    DBSCAN,
    HDBSCAN,
    PCKID,
    AgglomerativeClustering,
    COPKMeans,
    DPMeans,
    GaussianMixture,
    KMeans,
    LabelSpreading,
    MPCKMeans,
    PCKMeans,
    PCSKMeans,
    SemiSupervisedKMeans,
    SparseKMeans,
    SpectralClustering,
    on_iteration,
)
from daskclust.core.estimator.fit_loop import best_restart, fit
from daskclust.core.estimator.validation import check_data
from daskclust.exceptions import CheckpointError, ConstraintError

pytestmark = pytest.mark.usefixtures("few_trees")

RNG = np.random.default_rng(0)
X = np.array([[0.0, 0, 0], [6.0, 0, 3], [0.0, 6, 3]])[RNG.integers(3, size=90)]
X = X + RNG.normal(size=(90, 3))
TABLE = pd.DataFrame(X, columns=["red", "green", "blue"])
#: Another table, whose fit would leave other attributes behind.
OTHER = np.concatenate([X * 2.0, X[:, :1]], axis=1)

MODELS = [
    KMeans(3, random_state=0),
    SemiSupervisedKMeans(3, random_state=0),
    DPMeans(9.0),
    SparseKMeans(3, random_state=0),
    PCKMeans(3, random_state=0),
    MPCKMeans(3, random_state=0),
    PCSKMeans(3, random_state=0),
    COPKMeans(3, random_state=0),
    GaussianMixture(3, random_state=0),
    PCKID(3, n_initializations=2, max_components=4, n_init=2, random_state=0),
]
CONSTRAINED = [m for m in MODELS if isinstance(m, PCKMeans | MPCKMeans | PCSKMeans | COPKMeans)]


def name_of(value):
    return type(value).__name__


BY_MODEL = pytest.mark.parametrize("model", MODELS, ids=name_of)
#: One of centers, one of densities, one with an ensemble: the sequence of a fit is shared.
THREE = [MODELS[0], MODELS[8], MODELS[9]]
BY_THREE = pytest.mark.parametrize("model", THREE, ids=name_of)
BY_TWO = pytest.mark.parametrize("model", THREE[:2], ids=name_of)


@pytest.fixture(autouse=True)
def _quiet():
    with warnings.catch_warnings(), dask.config.set(scheduler="sync"):
        warnings.simplefilter("ignore")
        yield


def state(model):
    return dict(vars(model))


def assert_unchanged(model, before):
    """Each attribute is the object that it was: nothing set, replaced or deleted."""
    after = vars(model)
    assert after.keys() == before.keys()
    assert [name for name in after if after[name] is not before[name]] == []


def assert_fails_cleanly(model, error, data, match=None, **given):
    """Neither an unfitted nor a fitted model is changed by a fit that fails."""
    fresh = clone(model)
    before = state(fresh)
    with pytest.raises(error, match=match):
        fresh.fit(data, **given)
    assert_unchanged(fresh, before)
    with pytest.raises(NotFittedError):
        check_is_fitted(fresh)
    # Fitted with other parameters if need be, so that only this fit can fail.
    fitted = fitted_like(model)
    predicted = np.asarray(fitted.predict(TABLE))
    before = state(fitted)
    with pytest.raises(error, match=match):
        fitted.fit(data, **given)
    assert_unchanged(fitted, before)
    np.testing.assert_array_equal(fitted.predict(TABLE), predicted)
    assert fitted.feature_names_in_.tolist() == ["red", "green", "blue"]


def fitted_like(model):
    easy = clone(model)
    if callable(easy.get_params().get("init")):
        easy.set_params(init=X[:3])
    params = model.get_params(deep=False)
    return easy.set_params(checkpoint=None).fit(TABLE).set_params(**params)


def chunked(x, rows=25):
    return da.from_array(x, chunks=(rows, x.shape[1]))


@BY_THREE
@pytest.mark.parametrize("make", [np.asarray, chunked], ids=["numpy", "dask"])
def test_values_found_bad_in_a_pass(model, make):
    bad = OTHER.copy()
    bad[70, 3] = np.inf
    assert_fails_cleanly(model, ValueError, make(bad), "infinity: the first at row 70, column 3")


@BY_THREE
def test_data_refused_without_a_pass(model):
    assert_fails_cleanly(model, ValueError, OTHER.ravel())
    assert_fails_cleanly(model, ValueError, np.array([["a", "b"]]))


@BY_TWO
def test_weights_found_bad_in_a_pass(model):
    weight = np.ones(90)
    weight[3] = -1.0
    assert_fails_cleanly(model, ValueError, OTHER, "weight of row 3", sample_weight=weight)
    assert_fails_cleanly(
        model,
        ValueError,
        OTHER,
        "At least one sample weight must be positive",
        sample_weight=np.zeros(90),
    )


@pytest.mark.parametrize(
    "model", [*THREE[:2], HDBSCAN(), DBSCAN(1.0), AgglomerativeClustering()], ids=name_of
)
def test_weights_that_are_all_zero_speak_of_no_metric(model):
    with pytest.raises(ValueError, match=r"must be positive, got only zeros\.$"):
        clone(model).fit(X, sample_weight=np.zeros(90))


@BY_THREE
def test_a_listener_that_interrupts(model):
    def interrupt(record):
        raise KeyboardInterrupt

    # The model is fitted before anybody listens.
    fitted = clone(model).fit(TABLE)
    before = state(fitted)
    with on_iteration(interrupt), pytest.raises(KeyboardInterrupt):
        fitted.fit(OTHER)
    assert_unchanged(fitted, before)
    assert fitted.n_features_in_ == 3
    fresh = clone(model)
    before = state(fresh)
    with on_iteration(interrupt), pytest.raises(KeyboardInterrupt):
        fresh.fit(OTHER)
    assert_unchanged(fresh, before)


@pytest.mark.parametrize("model", [MODELS[0], MODELS[6]], ids=name_of)
def test_a_start_that_raises_or_is_no_start(model):
    def failing(data, k, random_state):
        raise LookupError("no start today")

    def short(data, k, random_state):
        return np.zeros((k - 1, data.shape[1]))

    start = clone(model).set_params(init=failing)
    assert_fails_cleanly(start, LookupError, OTHER, "no start today")
    start = clone(model).set_params(init=short)
    assert_fails_cleanly(start, ValueError, OTHER, r"got \(2, 4\)")


@pytest.mark.parametrize("model", CONSTRAINED[::3], ids=name_of)
def test_constraints_that_cannot_be_read(model):
    assert_fails_cleanly(model, ConstraintError, OTHER, must_link=[[0, 90]])
    assert_fails_cleanly(model, ConstraintError, OTHER, y=np.zeros(7, int))


@BY_THREE
def test_a_checkpoint_of_another_fit(model, tmp_path):
    path = tmp_path / "fit.npz"
    clone(model).set_params(checkpoint=path).fit(X)
    other = clone(model).set_params(checkpoint=path)
    assert_fails_cleanly(other, CheckpointError, OTHER, "belongs to another fit")


@BY_THREE
def test_names_of_features_go_with_the_fit_that_had_none(model):
    fitted = clone(model).fit(TABLE)
    assert fitted.feature_names_in_.tolist() == ["red", "green", "blue"]
    assert not hasattr(fitted.fit(OTHER), "feature_names_in_")
    assert fitted.n_features_in_ == 4


@BY_THREE
def test_a_model_in_use_by_its_own_listener_is_the_last_one_until_the_fit_has_ended(model):
    fitted = clone(model).fit(TABLE)
    before, seen = state(fitted), []
    with on_iteration(lambda record: seen.append(state(fitted))):
        fitted.fit(OTHER)
    assert seen
    for attributes in seen:
        assert attributes.keys() == before.keys()
        assert all(attributes[name] is before[name] for name in before)


@BY_MODEL
@pytest.mark.parametrize("make", [chunked], ids=["dask"])
def test_fitting_opened_data_is_the_fit(model, make):
    data = check_data(make(X))
    found, again = (fit(clone(model), data) for _ in range(2))
    alone = clone(model).fit(make(X))
    for fitted in (found, again):
        np.testing.assert_array_equal(np.asarray(fitted.labels_), np.asarray(alone.labels_))
        assert fitted.n_features_in_ == 3
        assert vars(fitted).keys() == vars(alone).keys()


def test_an_attribute_of_a_subclass_set_before_its_fit_stays():
    class Scaled(KMeans):
        def fit(self, X, y=None, *, sample_weight=None):
            self.scale_ = X.std(axis=0)
            return super().fit(X / self.scale_)

    model = Scaled(3, random_state=0).fit(X)
    np.testing.assert_array_equal(model.scale_, X.std(axis=0))
    assert copy.copy(model).n_features_in_ == 3


def test_the_best_restart_is_the_first_of_those_that_differ_by_rounding():
    assert best_restart([2.0, 1.0 + 1e-12, 1.0]) == 1
    assert best_restart([2.0, 1.0 + 1e-6, 1.0]) == 2
    assert best_restart([np.inf, np.inf]) == 0
    with pytest.raises(ValueError, match=r"must be numbers, got \[1\.0, nan\]"):
        best_restart([1.0, np.nan])
    # Relative to 0 nothing is equal but 0; logarithms are compared to 1.
    assert best_restart([1e-12, 0.0]) == 1
    assert best_restart([1e-12, -1e-12], at_least=1.0) == 0
    assert best_restart([-3.0, -5.0, -5.0 - 1e-12], at_least=1.0) == 1


def test_results_outlive_the_cluster_of_the_fit():
    partly = np.where(np.arange(len(X)) < 30, np.arange(len(X)) % 3, -1)
    lazy = da.from_array(X, chunks=(40, X.shape[1])).map_blocks(np.copy, dtype=X.dtype)
    models = (
        (KMeans(3, random_state=0), {}),
        (GaussianMixture(2, random_state=0), {}),
        (PCKID(3, n_initializations=2, max_components=3, random_state=0), {}),
        (LabelSpreading(9, random_state=0), {"y": partly}),
        (SpectralClustering(3, n_prototypes=9, random_state=0), {}),
    )
    with (
        LocalCluster(
            n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0"
        ) as cluster,
        Client(cluster),
    ):
        later = [
            result
            for model, given in models
            for result in (model.fit(lazy, **given).labels_, getattr(model, "embedding_", None))
            if isinstance(result, da.Array)
        ]
    assert len(later) == len(models) + 1
    for result in later:
        assert len(result.compute(scheduler="sync")) == len(X)


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        (np.full(90, "2020-01-01", "M8[D]"), "must contain numbers, got dtype datetime64"),
        (np.ones(90) + 1j, "sample_weight must contain numbers, got dtype complex128"),
        (np.full(90, "1"), "sample_weight must contain numbers, got dtype <U1"),
        (np.array(["heavy"] * 90, object), "must contain numbers, got an invalid value"),
        (
            da.from_array(np.ones(90) + 1j, chunks=30),
            "sample_weight must contain numbers, got dtype complex128",
        ),
    ],
)
def test_weights_that_are_no_numbers(weight, message):
    with pytest.raises(ValueError, match=message):
        HDBSCAN(5).fit(np.ones((90, 2)), sample_weight=weight)


def test_true_is_no_number():
    for model in (KMeans(2, tol=True), DBSCAN(eps=True)):
        with pytest.raises(TypeError, match=r" must be a number .*, got True"):
            model.fit(np.ones((90, 2)))

"""Label spreading and spectral clustering on rows with missing values."""

from __future__ import annotations

import warnings

import dask.array as da
import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

import daskclust
from daskclust import LabelSpreading, SpectralClustering
from daskclust.core.engine import open_rows
from daskclust.core.reduction import SURVEY, SurveyRequest
from daskclust.exceptions import ConstraintError, ConstraintWarning, MissingValuesWarning
from daskclust.semisupervised.feature_views import (
    MISSING_VALUE_VIEWS,
    choose_views,
    find_completions,
)

#: A few rows may hang together with no labeled one.
pytestmark = pytest.mark.filterwarnings("ignore:No label reaches")


def make(n=400, share=0.3, seed=0):
    """Two classes of correlated features, a third of the values hidden, none of the rows empty."""
    rng = np.random.default_rng(seed)
    classes = rng.integers(2, size=n)
    X = rng.normal(size=(n, 1)) + 0.3 * rng.normal(size=(n, 6)) + 3.0 * classes[:, None]
    gaps = rng.random(X.shape) < share
    gaps[np.arange(n), rng.integers(6, size=n)] = False
    return np.where(gaps, np.nan, X), classes, X


def known(classes):
    rows = np.concatenate([np.flatnonzero(classes == c)[:5] for c in (0, 1)])
    rows.sort()
    return rows, classes[rows]


@pytest.mark.parametrize("views", ["auto", ("pckid", "mixture")])
def test_labels_travel_where_values_are_missing(views, tmp_path):
    X, classes, _ = make()
    model = LabelSpreading(60, views=views, random_state=0).fit(X, known(classes))
    assert adjusted_rand_score(classes, model.labels_) > 0.7
    new, truth, _ = make(seed=5)
    assert adjusted_rand_score(truth, model.predict(new)) > 0.6
    shares = model.predict_proba(new)
    np.testing.assert_allclose(shares.sum(axis=1), 1.0)
    model.save(tmp_path / "model.zarr")
    loaded = daskclust.load(tmp_path / "model.zarr")
    np.testing.assert_array_equal(loaded.predict_proba(new), shares)


@pytest.mark.parametrize("make_model", [LabelSpreading, SpectralClustering])
def test_any_chunks_give_the_same(make_model):
    X, classes, _ = make()
    given = (known(classes),) if make_model is LabelSpreading else ()
    size = {"n_prototypes": 40, "random_state": 0}
    whole = make_model(**size).fit(X, *given).labels_
    found = make_model(**size).fit(da.from_array(X, chunks=(53, 6)), *given).labels_
    assert isinstance(found, da.Array)
    np.testing.assert_array_equal(found.compute(), whole)


def test_a_row_without_any_value_is_told_and_nothing_is_said_of_it():
    X, classes, _ = make()
    X[[307, 309]] = np.nan
    with pytest.warns(MissingValuesWarning, match=r"2 row\(s\) .* first is row 307"):
        model = LabelSpreading(40, random_state=0).fit(X, known(classes))
    np.testing.assert_allclose(model.predict_proba(X)[[307, 309]], 0.5)
    np.testing.assert_array_equal(model.margin(X)[[307, 309]], 0.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        clusters = SpectralClustering(2, n_prototypes=40, random_state=0).fit(X).labels_
    assert clusters[[307, 309]].tolist() == [-1, -1]
    assert (np.delete(clusters, [307, 309]) >= 0).all()


@pytest.mark.filterwarnings("ignore::daskclust.exceptions.MissingValuesWarning")
def test_labels_of_rows_without_any_value_are_told_and_count_for_nothing():
    X, classes, _ = make()
    rows, labels = known(classes)
    X[rows[3]] = np.nan
    message = f"no value at all and are ignored; the first is row {rows[3]}"
    with pytest.warns(ConstraintWarning, match=message):
        model = LabelSpreading(40, classifier=None, random_state=0).fit(X, (rows, labels))
    without = np.delete(rows, 3), np.delete(labels, 3)
    other = LabelSpreading(40, classifier=None, random_state=0).fit(X, without)
    np.testing.assert_array_equal(model.predict_proba(X), other.predict_proba(X))
    X[rows] = np.nan
    with pytest.raises(ConstraintError, match="no value at all"):
        LabelSpreading(40, random_state=0).fit(X, (rows, labels))
    with pytest.warns(ConstraintWarning, match=r"2 constrained row\(s\) .* no value at all"):
        SpectralClustering(2, n_prototypes=40, random_state=0).fit(X, must_link=[rows[:2]])


@pytest.mark.parametrize("views", ["standard", "raw", ("mixture", "angle")])
def test_views_that_need_complete_rows_say_so(views):
    X, classes, _ = make()
    with pytest.raises(ValueError, match=r"contains NaN|need complete rows"):
        LabelSpreading(40, views=views, random_state=0).fit(X, known(classes))


def test_what_cannot_be_used_is_refused():
    X, classes, _ = make()
    infinite, unseen = X.copy(), X.copy()
    infinite[3, 2] = np.inf
    unseen[:, 4] = np.nan
    model = LabelSpreading(40, random_state=0)
    with pytest.raises(ValueError, match="infinity: the first at row 3, column 2"):
        model.fit(infinite, known(classes))
    with pytest.raises(ValueError, match="column 4 contains only NaN"):
        model.fit(unseen, known(classes))
    with pytest.raises(ValueError, match="infinity: the first at row 3"):
        model.fit(X, known(classes)).predict(infinite)


def test_views_are_found_from_what_is_observed():
    X, _, full = make(share=0.2)
    mean, mixture, kernel, none = find_completions(("mean", "mixture", "pckid", "raw"), X, 0)
    assert none is None
    filled = mixture(X)
    there = ~np.isnan(X)
    np.testing.assert_array_equal(filled[there], X[there])
    # Better than the means of the columns.
    means = np.broadcast_to(np.nanmean(X, axis=0), X.shape)
    wrong = ((filled - full)[~there] ** 2).mean()
    assert wrong < 0.5 * ((means - full)[~there] ** 2).mean()
    np.testing.assert_allclose(mean(X), np.where(there, X, means))
    coordinates = kernel(X)
    assert coordinates.shape == (400, kernel.basis.shape[1])
    assert np.isfinite(coordinates).all()
    complete = open_rows(full).reduce(SURVEY, SurveyRequest(full.shape[1]))
    assert choose_views("auto", ("standard",), complete, joined=True) == ("standard",)
    assert MISSING_VALUE_VIEWS == ("mean", "mixture", "pckid")

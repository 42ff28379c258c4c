"""Rules against the tree that they are read from, and over all rows."""

from html import escape

import dask.array as da
import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_wine

import daskclust
from daskclust.app.report.sections import explained_page
from daskclust.core.estimator import row_functions
from daskclust.core.kernels.nearest.assign import nearest
from daskclust.exceptions import PerformanceWarning
from daskclust.explain import explained, rules


def test_fidelity_is_that_of_the_tree_over_all_rows():
    X = load_wine().data
    model = daskclust.KMeans(n_clusters=3, random_state=0).fit(X)
    found = rules(model, X)
    labels, given = np.asarray(model.labels_), found.tree.predict(X)
    assert found.fidelity == np.mean(given == labels)
    np.testing.assert_allclose(found.recalls, [np.mean(given[labels == c] == c) for c in range(3)])
    assert sum(rule.rows for rule in found.rules) == len(X)
    assert len(rules(model, X, max_leaves=2).rules) == 2
    # No more leaves than rows can be wanted, or have room.
    assert len(rules(model, X, max_leaves=10**9).rules) <= len(X)
    lazy = rules(model, da.from_array(X, chunks=(50, -1)))
    assert str(lazy) == str(found)


def test_conditions_select_the_rows_that_they_count():
    table = pd.DataFrame(load_wine().data, columns=load_wine().feature_names)
    table.columns = [name.replace("/", "_") for name in table.columns]
    model = daskclust.KMeans(n_clusters=4, random_state=0).fit(table)
    labels = np.asarray(model.labels_)
    for rule in rules(model, table).rules:
        rows = np.ones(len(table), bool)
        for condition in rule.conditions:
            rows &= table.eval(condition).to_numpy()
        assert rows.sum() == rule.rows
        assert np.mean(labels[rows] == int(rule.cluster)) == rule.precision


def test_intervals_select_the_rows_where_rounded_thresholds_do_not():
    x = 1e6 + np.arange(64, dtype=np.float64)[:, None] / 8
    model = daskclust.KMeans(2, init=x[[10, 50]], n_init=1).fit(x)
    found = rules(model, x)
    assert found.fidelity == 1
    for rule in found.rules:
        ((feature, low, high, or_missing),) = rule.intervals
        assert (feature, or_missing) == ("x0", False)
        inside = (low < x[:, 0]) & (x[:, 0] <= high)
        assert inside.sum() == rule.rows
        assert len(set(model.labels_[inside])) == 1
    # Six digits put both thresholds before the first row, or behind the last one.
    assert {str(rule).split()[-1] for rule in found.rules} == {"1e+06"}


def test_planted_threshold_of_a_large_set_and_a_rare_cluster():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60_000, 5))
    X[:30, 2] += 50
    model = daskclust.KMeans(2, init=np.array([np.zeros(5), [0, 0, 50, 0, 0]])).fit(X)
    found = rules(model, X)
    # 30 rows of 60 000 are in the sample nevertheless.
    assert found.fidelity == 1.0
    assert found.rules[0].conditions[0].startswith("x2")
    assert "fidelity 1.000" in str(found)
    assert "100.0%" in found._repr_html_()


def test_rules_that_take_minutes_are_left_out_unless_asked_for(monkeypatch):
    X = load_wine().data
    model = daskclust.KMeans(n_clusters=3, random_state=0).fit(X)
    assert explained(model, X)[1] is not None
    monkeypatch.setattr("daskclust.explain._rules._MAX_AUTOMATIC", 178 * 13 * 3 - 1)
    with pytest.warns(PerformanceWarning, match="Rules of 3 clusters were skipped: a tree of 178"):
        told = explained(model, X)
    assert told[1].startswith("Rules of 3 clusters were skipped")
    assert told[0].sizes.sum() == len(X)
    assert rules(model, X).fidelity > 0.9
    page = explained_page("Wine", *told)
    assert "<h2>Rules</h2>" in page
    assert escape(told[1]) in page


def test_clusters_without_a_leaf_are_told():
    X = load_wine().data
    model = daskclust.KMeans(n_clusters=5, random_state=0).fit(X)
    assert not rules(model, X).without_rule
    found = rules(model, X, max_leaves=2)
    labels, given = np.asarray(model.labels_), found.tree.predict(X)
    absent = sorted(set(range(5)) - set(given))
    assert len(absent) == 3
    most = [np.bincount(given[labels == c], minlength=5) for c in absent]
    assert found.without_rule == [
        (str(c), str(counts.argmax()), counts.max() / counts.sum())
        for c, counts in zip(absent, most, strict=True)
    ]
    frame = found.to_frame()
    assert frame.cluster[frame.rule.isna()].tolist() == [str(c) for c in absent]
    assert frame.rows.sum() == len(X)
    for name, other, share in found.without_rule:
        why = "in the sampled rows it is not the largest cluster of any of the 2 leaves"
        said = (
            f"{name}: no rule, because {why}; {share:.1%} of its rows follow the rules of {other}"
        )
        assert said in str(found).splitlines()
        assert f"<p>{said}.</p>" in found._repr_html_()


def test_missing_values_are_told():
    X = np.zeros((200, 2))
    X[100:, 0] = 5.0
    X[:50, 1] = np.nan
    X[100:150, 0] = np.nan
    X[100:150, 1] = 9.0
    start = np.array([[0.0, 9.0], [2.5, 0.0]])
    model = daskclust.KMeans(2, init=start, missing="partial").fit(X)
    found = rules(model, X)
    given = found.tree.predict(X.astype(np.float32))
    assert found.fidelity == np.mean(given == np.asarray(model.labels_))
    assert any("missing" in str(rule) for rule in found.rules)


def test_one_cluster_has_no_rules():
    X = np.zeros((9, 1))
    model = daskclust.KMeans(1).fit(X)
    assert explained(model, X)[1] == "Rules were skipped, because they need at least 2 clusters."
    with pytest.raises(ValueError, match="rows of at least 2 clusters"):
        rules(model, X)
    with pytest.raises(ValueError, match="max_leaves"):
        rules(model, X, max_leaves=1)


def test_rows_in_memory_are_labeled_once(monkeypatch):
    X = np.random.default_rng(0).normal(size=(400, 3))
    model = daskclust.KMeans(3, random_state=0).fit(X)
    labeled = []

    def counting(x, *args, **kwargs):
        labeled.append(len(x))
        return nearest(x, *args, **kwargs)

    monkeypatch.setattr(row_functions, "nearest", counting)
    rules(model, X)
    assert sum(labeled) == len(X)


def test_labels_of_a_model_that_does_not_predict():
    # The call that a report of DBSCAN's labels makes.
    X = np.random.default_rng(0).normal(size=(60, 2)) * 0.1 + np.repeat([0, 5], 30)[:, None]
    X[0] = 99.0
    model = daskclust.DBSCAN(1.0, min_samples=3).fit(X)
    found, told = explained(model, X, labels=model.labels_)
    assert sorted(found.sizes) == [1, 29, 30]
    assert len(told.rules) >= 2
    with pytest.raises(TypeError, match="must have predict"):
        explained(model, X)

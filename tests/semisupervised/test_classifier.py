"""A classifier beside the graph: weights from labels left out, kept parts, bad input."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from helpers import moons, spread_by_less
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import make_blobs
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.mixture import GaussianMixture
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.utils import get_tags

import daskclust
from daskclust import LabelSpreading
from daskclust.exceptions import ConstraintWarning, ModelFormatError
from daskclust.semisupervised import classifiers, spreading
from daskclust.semisupervised.active_learning import Doubt
from daskclust.semisupervised.classifiers import (
    Linear,
    Trees,
    as_classifier,
    fit_classifier,
)
from daskclust.semisupervised.node_labels import LabelPlan
from daskclust.semisupervised.predict import margins, mixed

pytestmark = pytest.mark.filterwarnings("ignore:No label reaches", "ignore:.*have no values")


def noisy(n: int = 400, seed: int = 0, columns: int = 6) -> tuple[np.ndarray, np.ndarray]:
    """One column that tells three classes apart, among louder ones that do not."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    x = rng.normal(scale=3.0, size=(n, columns))
    x[:, 0] = y + rng.uniform(-0.4, 0.4, n)
    return x, y


@pytest.fixture
def less(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spread labels by less, for what is compared bit for bit however well it foretells."""
    spread_by_less(monkeypatch)


def some(y: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    rows = np.arange(0, len(y), len(y) // count)
    return rows, y[rows]


# Ten labels a class: 8 (8 / 10)^2.
@pytest.mark.parametrize(("count", "most"), [(18, 8.0), (30, 5.12), (90, 1.0)])
def test_weights_by_a_search_over_a_grid(count: int, most: float) -> None:
    rng = np.random.default_rng(0)
    known = np.eye(3)[rng.integers(0, 3, count)]
    noise = rng.dirichlet(np.ones(3), (2, count))
    # A graph that knows some, less than it takes to be trusted wholly.
    parts = [0.1 * known + 0.9 / 3, 0.5 * known + 0.5 * noise[1]]
    found = spreading.mix(parts, known, np.ones(count)).weights
    skill = 1 + np.log((known * parts[0]).sum(axis=1)).mean() / np.log(3)
    trust = (2 * skill) ** 2
    assert 0.01 < trust < 0.9

    def drawn(one: float, other: float) -> float:
        loss = -np.log((known * mixed((one, other), *parts)).sum(axis=1)).sum()
        drawn = most * ((min(one, 1) - trust) ** 2 + (other - 1 + trust) ** 2)
        # Steadily on, and a little beyond.
        above = max(one - 1, 0)
        return loss + drawn + 2 * most * (1 - trust) * above + 0.5 * above**2

    def least(ones: np.ndarray, others: np.ndarray) -> tuple[float, float]:
        values = np.array([[drawn(one, other) for other in others] for one in ones])
        at = np.unravel_index(values.argmin(), values.shape)
        return ones[at[0]], others[at[1]]

    # It is convex: first a grid of all, then a fine one about its best.
    rough = least(np.linspace(0, 3, 61), np.linspace(0, 3, 61))
    fine = [np.maximum(at + np.linspace(-0.15, 0.15, 31), 0) for at in rough]
    assert_allclose(found, least(*fine), atol=0.011)
    assert found[1] > 0.3


def test_without_a_classifier_there_is_the_graph_alone() -> None:
    X, truth = moons()
    y = (np.array([0, 5, 300, 305]), truth[[0, 5, 300, 305]])
    model = LabelSpreading(random_state=0, classifier=None).fit(X, y)
    assert model.classifier_ is None
    assert model.mixing_weights_.tolist() == [1.0, 0.0]
    assert np.isnan(list(model.left_out_log_loss_.values())).all()
    mixture = LabelSpreading(random_state=0).fit(X, y)
    alone = mixture._posterior
    assert alone.views[0].graphs[0].probabilities.tolist() == (
        model._posterior.views[0].graphs[0].probabilities.tolist()
    )


def test_left_out_losses_are_those_of_models_that_never_saw_the_labels(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Each of eight folds has 50 trees.
    monkeypatch.setattr(classifiers, "_TREES", 400)
    X, truth = noisy(600)
    rows, labels = some(truth, 60)
    model = LabelSpreading(random_state=0).fit(X, (rows, labels))
    losses = {"spread": [], "classifier": []}
    monkeypatch.setattr(classifiers, "_TREES", 50)
    for fold in range(8):
        out = np.arange(len(rows)) % 8 == fold
        part = LabelSpreading(random_state=0).fit(X, (rows[~out], labels[~out]))
        alone = LabelSpreading(random_state=0, classifier=None).fit(X, (rows[~out], labels[~out]))
        for name, found in (
            ("spread", alone.predict_proba(X[rows[out]])),
            ("classifier", part.classifier_.predict_proba(X[rows[out]])),
        ):
            right = found[np.arange(out.sum()), labels[out]]
            losses[name].append(-np.log(np.maximum(right, 1e-3)).mean())
    for name, found in losses.items():
        assert model.left_out_log_loss_[name] == pytest.approx(np.mean(found), rel=0.25)


@pytest.mark.usefixtures("less")
def test_any_chunks_and_scheduler_give_the_same_mixture() -> None:
    X, truth = noisy()
    expected = LabelSpreading(30, random_state=0).fit(X, some(truth, 80))
    assert expected.mixing_weights_[1] > 0
    for scheduler, chunks in (("synchronous", (130, 6)), ("threads", (57, 6))):
        with dask.config.set(scheduler=scheduler):
            chunked = da.from_array(X, chunks=chunks)
            model = LabelSpreading(30, random_state=0).fit(chunked, some(truth, 80))
            assert_array_equal(model.mixing_weights_, expected.mixing_weights_)
            assert_array_equal(model.predict_proba(chunked).compute(), expected.predict_proba(X))


def test_missing_values_are_taken_by_both_parts() -> None:
    X, truth = noisy()
    X[np.random.default_rng(1).random(X.shape) < 0.1] = np.nan
    X[7] = np.nan
    y = some(truth, 100)
    model = LabelSpreading(random_state=0).fit(X, y)
    assert model.mixing_weights_[1] > 0
    assert_allclose(model.predict_proba(X[7:8]), 1 / 3)
    assert (model.labels_ == truth).mean() > 0.7
    with pytest.raises(ValueError, match="does not take NaN"):
        LabelSpreading(classifier=LogisticRegression()).fit(X, y)


@pytest.mark.parametrize(
    "classifier",
    [
        "trees",
        RandomForestClassifier(10),
        LogisticRegression(),
        LinearDiscriminantAnalysis(),
        make_pipeline(StandardScaler(), LogisticRegression()),
    ],
    ids=str,
)
@pytest.mark.usefixtures("less")
def test_a_loaded_model_has_the_bits_of_the_saved_one(classifier: Any, tmp_path: Path) -> None:
    X, truth = noisy(columns=16)
    model = LabelSpreading(30, random_state=0, classifier=classifier).fit(X, some(truth, 80))
    assert model.mixing_weights_[1] > 0
    model.save(tmp_path / "m.zarr")
    if isinstance(classifier, str):
        loaded = daskclust.load(tmp_path / "m.zarr")
    else:
        with pytest.warns(UserWarning, match="classifier"):
            loaded = daskclust.load(tmp_path / "m.zarr")
    assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))
    assert_array_equal(loaded.mixing_weights_, model.mixing_weights_)
    assert loaded.left_out_log_loss_ == model.left_out_log_loss_
    assert_allclose(
        loaded.classifier_.predict_proba(X), model.classifier_.predict_proba(X), atol=1e-12
    )


@pytest.mark.usefixtures("less")
def test_a_classifier_of_unknown_parts_is_used_and_not_saved(tmp_path: Path) -> None:
    X, truth = noisy()
    model = LabelSpreading(30, random_state=0, classifier=GaussianNB()).fit(X, some(truth, 80))
    assert model.mixing_weights_[1] > 0
    with pytest.raises(
        ModelFormatError, match=r"GaussianNB\(\) cannot be saved, because a model contains no"
    ):
        model.save(tmp_path / "m.zarr")
    assert not (tmp_path / "m.zarr").exists()


class Broken(GaussianNB):
    """Knows nothing of rows far away."""

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        return np.where(np.abs(X[:, :1]) > 90, np.nan, super().predict_proba(X))


def test_probabilities_that_are_none_are_an_error() -> None:
    X, truth = noisy()
    model = LabelSpreading(30, random_state=0, classifier=Broken()).fit(X, some(truth, 80))
    assert model.mixing_weights_[1] > 0
    with pytest.raises(ValueError, match=r"Broken\(\) must be finite, got \[nan nan nan\] for"):
        model.predict(np.full((2, 6), 99.0))


def test_tags_tell_whether_values_may_be_missing() -> None:
    for classifier, taken in (("trees", True), (None, True), (LogisticRegression(), False)):
        assert get_tags(LabelSpreading(classifier=classifier)).input_tags.allow_nan == taken


@pytest.mark.usefixtures("less")
def test_a_checkpoint_serves_any_classifier(tmp_path: Path) -> None:
    X, truth = noisy()
    y = some(truth, 80)
    path = tmp_path / "fit.npz"
    LabelSpreading(30, random_state=0, classifier=None, checkpoint=path).fit(X, y)
    again = LabelSpreading(30, random_state=0, checkpoint=path).fit(X, y)
    expected = LabelSpreading(30, random_state=0).fit(X, y)
    assert again.history_[-1]["passes"] == expected.history_[-1]["passes"]
    assert_array_equal(again.predict_proba(X), expected.predict_proba(X))


@pytest.mark.parametrize("several", [False, True])
def test_linear_parts_predict_what_scikit_learn_does(several: bool) -> None:
    X, truth = noisy()
    truth = truth if several else (truth > 0).astype(int)
    for one in (
        LogisticRegression(),
        LinearDiscriminantAnalysis(),
        make_pipeline(StandardScaler(with_mean=False), LogisticRegression()),
    ):
        fitted, learned = fit_classifier(one, X, truth, np.ones(len(X)), np.arange(4))
        assert isinstance(learned, Linear)
        known = learned.predict_proba(X)[:, : truth.max() + 1]
        assert_allclose(known, fitted.predict_proba(X), atol=1e-12)
    other = LogisticRegression(solver="liblinear")
    if not several:
        assert isinstance(fit_classifier(other, X, truth, np.ones(len(X)), np.arange(4))[1], Linear)


@pytest.mark.parametrize(
    ("classifier", "message"),
    [
        ("forest", "classifier must be .* got 'forest'"),
        (GaussianNB, "an object, not its class"),
        (3, "classifier must be .* got 3"),
        (GaussianMixture(2), r"or None, got GaussianMixture\(n_components=2\)"),
        (SVC(), "must have predict_proba, got SVC"),
    ],
)
def test_classifiers_that_cannot_be_used(classifier: Any, message: str) -> None:
    X, truth = moons()
    with pytest.raises(ValueError, match=message):
        LabelSpreading(classifier=classifier).fit(X, some(truth, 10))


def test_a_classifier_that_needs_more_labels_says_so() -> None:
    X, truth = moons()
    rows = [0, 1, 2, 300, 301, 302]
    message = r"cannot be fitted to 6 labeled rows with 2 of the smallest class \(n_splits=5 cannot"
    with pytest.raises(ValueError, match=message):
        LabelSpreading(30, classifier=CalibratedClassifierCV(SVC())).fit(X, (rows, truth[rows]))


def test_rows_that_are_all_equal_have_the_shares_of_their_labels() -> None:
    X = np.ones((100, 3))
    model = LabelSpreading(random_state=0).fit(X, ([0, 1, 2, 3], [0, 0, 0, 1]))
    assert model.mixing_weights_.tolist() == [1.0, 0.0]
    found = model.predict_proba(X)
    assert_array_equal(found, np.broadcast_to(found[0], found.shape))
    assert (model.predict(X) == 0).all()


@pytest.mark.parametrize(
    ("rows", "labels", "fitted"),
    [
        ([5], [3], False),
        ([5, 6, 7], [3, 3, 3], False),
        ([5, 400], [3, 4], True),
        ([5, 6, 7, 400], [3, 3, 3, 4], True),
    ],
    ids=["one label", "one class", "one row a class", "one class of one row"],
)
@pytest.mark.usefixtures("less")
def test_too_few_labels_leave_the_graph_alone(rows: list, labels: list, fitted: bool) -> None:
    X, _ = moons()
    model = LabelSpreading(random_state=0).fit(X, (rows, labels))
    alone = LabelSpreading(random_state=0, classifier=None).fit(X, (rows, labels))
    assert model.mixing_weights_.tolist() == [1.0, 0.0]
    assert (model.classifier_ is not None) == fitted
    assert_array_equal(model.predict_proba(X), alone.predict_proba(X))
    if fitted:
        assert model.history_[-1]["advice"].startswith("Too few labels to weigh trees")


@pytest.mark.usefixtures("less")
def test_two_rows_of_each_class_leave_a_fold_of_one_class() -> None:
    X, truth = moons()
    y = (np.array([0, 1, 300, 301]), truth[[0, 1, 300, 301]])
    for classifier in ("trees", LogisticRegression()):
        model = LabelSpreading(random_state=0, classifier=classifier).fit(X, y)
        assert np.isfinite(list(model.left_out_log_loss_.values())).all()


@pytest.mark.usefixtures("less")
def test_rows_of_weight_zero_and_their_class_teach_nothing() -> None:
    X, truth = noisy()
    rows, labels = some(truth, 80)
    weight = np.ones(len(X))
    weight[rows[labels == 1]] = 0
    with pytest.warns(ConstraintWarning, match="weight 0"):
        model = LabelSpreading(random_state=0).fit(X, (rows, labels), sample_weight=weight)
    assert model.classes_.tolist() == [0, 1, 2]
    assert model.classifier_.classes_.tolist() == [0, 2]
    assert (model.predict(X) != 1).all()


def test_equal_rows_are_in_one_fold() -> None:
    X, truth = noisy()
    rows, labels = some(truth, 40)
    y = daskclust.core.estimator.partial_labels.read_labels((rows, labels), len(X))
    x = np.repeat(X[rows[::2]], 2, axis=0)
    codes = np.repeat(y.codes[::2], 2)
    plan = LabelPlan(rows, codes, np.ones(40, bool), x=x, weights=np.eye(3)[codes], labels=y)
    training = spreading.Training(plan, as_classifier("trees", 0, 6), 0)
    assert len(training.points.x) == 20
    for fold in training.folds:
        assert_array_equal(fold.rows[::2], fold.rows[1::2])
    assert sum(fold.rows.astype(int) for fold in training.folds).tolist() == [1] * 40


@pytest.mark.usefixtures("less")
def test_questions_go_by_the_margin_of_the_mixture_however_sharp_it_is() -> None:
    X, truth = noisy()
    model = LabelSpreading(30, random_state=0).fit(X, some(truth, 80))
    posterior = model._posterior
    one, other = posterior.weights.tolist()
    assert other > 0
    graph = replace(posterior, weights=np.array([1.0, 0.0]))
    share = other / (one + other)
    even = mixed((1 - share, share), graph(X), posterior.classifier.predict_proba(X))
    for sharpness in (0.5, 1.0, 3.0):
        sharper = replace(posterior, weights=sharpness * np.array([one, other]))
        found = Doubt(sharper)(X)
        assert_allclose(found[:, 0], 1 - margins(even), atol=1e-9)
        assert_allclose(found[:, 2:], sharper(X), atol=1e-9)
        assert_allclose(found[:, 1], 1 - sharper(X).max(axis=1), atol=1e-9)
    # Trees without a say change no question.
    blind = Doubt(replace(posterior, weights=np.array([1.8, 0.0])))(X)
    assert_array_equal(blind[:, 0], Doubt(graph)(X)[:, 0])


def test_trees_of_a_fold_never_saw_its_labels() -> None:
    X, truth = noisy(90)
    folds = np.arange(90) % 8
    folds[0] = -1
    classes = np.arange(3)
    data = (as_classifier("trees", 0, 6), X, truth, np.ones(90), classes)
    whole, parts = fit_classifier(*data, folds)
    assert len(whole.estimators_) == len(parts.trees.roots) == 100
    changed = np.where(folds == 2, (truth + 1) % 3, truth)
    _, other = fit_classifier(data[0], X, changed, np.ones(90), classes, folds)
    wrong = other.trees.of_fold(2, 8).predict_proba(X)
    assert_array_equal(wrong, parts.trees.of_fold(2, 8).predict_proba(X))
    assert (other.trees.of_fold(3, 8).predict_proba(X) != wrong).any()
    # Together these are all trees.
    each = [parts.trees.of_fold(f, 8) for f in range(8)]
    sums = sum(trees.predict_proba(X) * len(trees.roots) for trees in each)
    assert_allclose(sums / 100, ExtraTreesClassifier.predict_proba(whole, X), atol=1e-12)


def test_trees_that_lead_nowhere_are_refused() -> None:
    X, truth = noisy(60)
    _, learned = fit_classifier(as_classifier("trees", 0, 6), X, truth, np.ones(60), np.arange(3))
    trees = learned.trees
    parts = vars(trees)

    def refused(message: str, **changed: np.ndarray) -> None:
        with pytest.raises(ValueError, match=message):
            Trees(**{**parts, **changed}).check()

    loop = trees.children.copy()
    loop[0] = 0
    refused("must come after their parents", children=loop)
    far = trees.children.copy()
    far[0, 1] = len(far)
    refused("must come after their parents", children=far)
    leaf = trees.children.copy()
    leaf[trees.features < 0] = 99
    refused("must have shares", children=leaf)
    refused("must start at 0 and ascend", roots=trees.roots[::-1])
    refused(
        "must have 2 children", children=np.column_stack([trees.children, trees.children[:, 0]])
    )
    with pytest.raises(ValueError, match="must be at most 1"):
        replace(learned, linear_share=1.5).check()


def slanted(n: int = 600, columns: int = 30, factors: int = 12) -> tuple[np.ndarray, np.ndarray]:
    """Two classes, apart in a direction of all columns in which loud factors say nothing."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, n)
    signs = np.where(np.arange(columns) % 2, 1.0, -1.0)
    x = 3 * rng.normal(size=(n, factors)) @ rng.normal(size=(factors, columns))
    x -= np.outer(x @ signs, signs) / columns
    return x + np.outer(y - 0.5, signs) + 0.5 * rng.normal(size=(n, columns)), y


def test_linear_functions_know_what_graph_and_trees_do_not() -> None:
    # Thirty principal components are those of the factors.
    X, truth = slanted(columns=40, factors=35)
    y = some(truth, 200)
    alone = LabelSpreading(random_state=0, classifier=None).fit(X, y)
    model = LabelSpreading(random_state=0).fit(X, y)
    assert model.score(X, truth) > alone.score(X, truth) + 0.2
    assert model.mixing_weights_[1] > model.mixing_weights_[0]
    assert model.history_[-1]["advice"].startswith(
        "Linear functions predict better than the spread"
    )
    assert model._posterior.classifier.linear_share > 0.9


def test_trees_and_linear_functions_are_one_classifier(tmp_path: Path) -> None:
    X, truth = slanted(columns=8)
    X[np.random.default_rng(1).random(X.shape) < 0.1] = np.nan
    rows, labels = some(truth, 60)
    model = LabelSpreading(30, random_state=0).fit(X, (rows, labels))
    share = 0.4
    both = replace(model._posterior.classifier, linear_share=share)
    model._posterior = replace(model._posterior, classifier=both, weights=np.array([0.6, 0.7]))
    model.classifier_.linear_share_ = share
    assert_allclose(both.fill, np.nanmean(X[rows], axis=0))
    filled = np.where(np.isnan(X), both.fill, X)
    by_trees, by_linear = both.trees.predict_proba(X), both.by_linear(X)
    assert_array_equal(by_linear, both.linear.predict_proba(np.clip(filled, both.low, both.high)))
    logs = (1 - share) * np.log(np.maximum(by_trees, 1e-3))
    logs += share * np.log(np.maximum(by_linear, 1e-3))
    expected = np.exp(logs) / np.exp(logs).sum(axis=1, keepdims=True)
    assert_allclose(both.predict_proba(X), expected)
    assert_allclose(model.classifier_.predict_proba(X), expected, atol=1e-12)
    model.save(tmp_path / "m.zarr")
    loaded = daskclust.load(tmp_path / "m.zarr")
    assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))
    assert_array_equal(loaded.classifier_.predict_proba(X), both.predict_proba(X))


def test_weights_of_labeled_rows_are_repetitions_in_the_linear_part() -> None:
    X, truth = slanted(40, columns=5)
    X[::7, 2] = np.nan
    weight = np.arange(40) % 3 + 1.0
    classifier = as_classifier("trees", 0, 5)
    weighted = fit_classifier(classifier, X, truth, weight, np.arange(2))[1]
    times = weight.astype(int)
    repeated = fit_classifier(
        classifier,
        np.repeat(X, times, axis=0),
        np.repeat(truth, times),
        np.ones(sum(times)),
        np.arange(2),
    )[1]
    assert_allclose(weighted.fill, repeated.fill)
    assert_allclose(weighted.by_linear(X), repeated.by_linear(X), atol=1e-3)


@pytest.mark.parametrize(("skill", "trust"), [(-0.3, 0.0), (0.25, 0.25), (0.5, 1.0), (0.9, 1.0)])
def test_a_graph_that_foretells_no_better_than_chance_is_not_where_weights_begin(
    skill: float, trust: float
) -> None:
    known = np.eye(2)[[0, 1]]
    right = 0.5 ** (1 - skill)
    graph = known * right + (1 - known) * (1 - right)
    # What says nothing has no say over its weight.
    nothing = np.full((2, 2), 0.5)
    found = spreading.mix([graph, nothing, nothing], known, np.ones(2), 0.25)
    assert found.weights[1] == pytest.approx(1 - trust, abs=1e-3)
    if trust < 1:
        assert found.linear_share == pytest.approx(0.25, abs=1e-3)
    assert found.losses["spread"] == pytest.approx((1 - skill) * np.log(2), abs=1e-4)


@pytest.mark.parametrize(("of_three", "of_two"), [(0.25, -1.0), (0.0, 0.625)])
def test_two_labels_of_a_class_say_nothing_against_the_graph(
    of_three: float, of_two: float
) -> None:
    """All labels foretell -0.25 and 0.25 beyond chance, those of the class of three 0.25 and 0."""
    known = np.eye(2)[[0, 0, 0, 1, 1]]
    right = (0.5 ** (1 - np.repeat([of_three, of_two], [3, 2])))[:, None]
    graph = known * right + (1 - known) * (1 - right)
    nothing = np.full((5, 2), 0.5)
    found = spreading.mix([graph, nothing, nothing], known, np.ones(5), 0.25)
    # (2 * 0.25)^2 is the graph's.
    assert found.weights[1] == pytest.approx(0.75, abs=1e-3)
    # What is told of the loss is that of all labels.
    skill = (3 * of_three + 2 * of_two) / 5
    assert found.losses["spread"] == pytest.approx((1 - skill) * np.log(2), abs=1e-4)


@pytest.mark.parametrize("gaps", [0.0, 0.4, 1.0])
def test_rows_that_miss_values_begin_with_the_graph(gaps: float) -> None:
    """Trees and linear functions of filled rows won labels that they then got wrong."""
    known = np.eye(2)[[0, 1]]
    chance = np.full((2, 2), 0.5)
    # Nothing tells anything: weights stay where they begin.
    found = spreading.mix([chance, chance, chance], known, np.ones(2), 0.25, gaps)
    assert_allclose(found.weights, [gaps, 1 - gaps], atol=1e-3)


def test_parts_that_all_err_leave_doubt_and_not_the_first_class() -> None:
    known = np.eye(2)[np.arange(400) % 2]
    wrong = 0.999 - 0.998 * known
    found = spreading.mix([wrong, wrong], known, np.ones(400))
    assert found.weights.tolist() == [0.05, 0.0]
    proba = mixed(tuple(found.weights), wrong, wrong)
    assert_array_equal(proba.argmax(axis=1), wrong.argmax(axis=1))
    assert proba.max() < 0.6


def test_linear_functions_do_not_go_on_far_beyond_the_labeled_rows() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 3))
    codes = (x[:, 0] > 0).astype(int)
    # A feature that labeled rows hardly show.
    x[:, 2] = 1e-3 * codes
    fitted, learned = fit_classifier(
        as_classifier("trees", 0, 3), x, codes, np.ones(40), np.arange(2)
    )
    far, near = np.array([[3.0, 0, 0]]), np.array([[3.0, 0, 0]])
    far[0, 2], near[0, 2] = -50, -0.5e-3
    assert_array_equal(learned.by_linear(far), learned.by_linear(near))
    assert_allclose(learned.linear.predict_proba(far)[0, 0], 1)
    assert learned.by_linear(far)[0, 0] < 0.8
    inside = np.array([[0.5, 0.5, 1.4e-3]])
    assert_array_equal(learned.by_linear(inside), learned.linear.predict_proba(inside))
    for rows in (far, near, inside):
        assert_allclose(learned.predict_proba(rows), fitted.predict_proba(rows), atol=1e-9)


def test_graph_without_weight_is_not_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the classifier has a weight: the result is that of the whole evaluation."""
    x, y = make_blobs(300, centers=3, random_state=0)
    labels = np.where(np.arange(300) % 10 == 0, y, -1)
    posterior = daskclust.LabelSpreading(20, random_state=0).fit(x, labels)._posterior
    posterior = replace(posterior, weights=np.array([0.0, 1.5]))
    x[5] = np.nan
    whole = mixed((0.0, 1.5), posterior.by_graph(x), posterior.classifier.predict_proba(x))
    whole[5] = 1 / 3
    monkeypatch.setattr(type(posterior), "by_graph", None)
    assert_allclose(posterior(x), whole, rtol=0, atol=1e-9)

"""Choice among estimators by pairs left out: definitions written out, folds, passes, bad input."""

from __future__ import annotations

from typing import Any

import dask
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from helpers import chunks_of, moons
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.cluster import SpectralClustering as ForeignClustering

from daskclust import COPKMeans, KMeans, LabelSpreading, PCKMeans, SpectralClustering
from daskclust.exceptions import ConstraintError, ConstraintWarning
from daskclust.selection import choose_by_pairs
from daskclust.testing import CountingScheduler

pytestmark = pytest.mark.usefixtures("synchronous")

RNG = np.random.default_rng(0)
TRUTH = RNG.integers(3, size=300)
X = np.array([[0.0, 0.0], [3.0, 0.0], [0.0, 3.0]])[TRUTH] + RNG.normal(size=(300, 2))
chunked = chunks_of(70)


def drawn(truth: np.ndarray, count: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Return pairs of random rows, answered truly; some rows are in several pairs."""
    rng = np.random.default_rng(seed)
    pairs = np.array([rng.choice(len(truth) // 3, 2, replace=False) for _ in range(count)])
    same = truth[pairs[:, 0]] == truth[pairs[:, 1]]
    return {"must_link": pairs[same], "cannot_link": pairs[~same]}


PAIRS = drawn(TRUTH, 40)
MODELS = [KMeans(3, random_state=0), PCKMeans(3, random_state=0, penalty="constant")]


def by_hand(model: Any, found: Any, weight: np.ndarray | None = None) -> np.ndarray:
    """Fit to the pairs of all folds but one, and compare the labels with those of that fold."""
    pairs, fold = found.details["pairs"], found.details["fold"]
    must = np.arange(len(pairs)) < len(PAIRS["must_link"])
    held = np.zeros(len(pairs), bool)
    for number in range(fold.max() + 1):
        out, rest = fold == number, fold != number
        own = clone(model)
        if isinstance(model, PCKMeans):
            links = {"must_link": pairs[rest & must], "cannot_link": pairs[rest & ~must]}
            if weight is not None:
                links["must_link_weight"] = weight[rest & must]
                links["cannot_link_weight"] = weight[rest & ~must]
            own.fit(X, **links)
        else:
            own.fit(X)
        labels = own.predict(X)[pairs[out]]
        held[out] = (labels[:, 0] == labels[:, 1]) == must[out]
    return held


def test_scores_are_their_definition() -> None:
    found = choose_by_pairs(MODELS, X, **PAIRS, random_state=0)
    n_must = len(PAIRS["must_link"])
    assert_array_equal(
        found.details["pairs"], np.concatenate([PAIRS["must_link"], PAIRS["cannot_link"]])
    )
    for at, model in enumerate(MODELS):
        held = by_hand(model, found)
        assert_array_equal(found.details["satisfied"][at], held)
        assert found.details["must_link"][at] == held[:n_must].mean()
        assert found.details["cannot_link"][at] == held[n_must:].mean()
        expected = (held[:n_must].mean() + held[n_must:].mean()) / 2
        assert found.scores[at] == pytest.approx(expected)
        assert_array_equal(found.estimators[0].labels_, clone(MODELS[0]).fit(X).labels_)
        assert_array_equal(found.estimators[1].labels_, clone(MODELS[1]).fit(X, **PAIRS).labels_)
    assert (found.parameter, found.criterion) == ("candidate", "pairs")
    assert found.details["failures"] == {}


def test_standard_errors_and_the_choice_by_hand() -> None:
    """Rows 0, 1 and 2 are must-linked: their two pairs are one observation."""
    data = np.array([[0.0], [0.1], [4.0], [9.0], [9.1], [9.2], [0.2], [0.3], [9.3], [9.4]])
    must, cannot = [[0, 1], [1, 2], [3, 4], [6, 7]], [[0, 3], [7, 8], [6, 9], [5, 8]]
    model = KMeans(2, init=[[0.0], [9.0]])
    found = choose_by_pairs([model], data, must, cannot, n_folds=2, random_state=0)
    # Row 2 goes with the low rows: all must-links hold, and of the cannot-links all but 5-8.
    assert found.details["satisfied"][0].tolist() == [True] * 7 + [False]
    assert found.scores[0] == (1.0 + 0.75) / 2
    # Four units: the residuals are 0.25, 0.25, 0.25 and -0.75.
    error = np.sqrt(4 / 3 * (3 * 0.25**2 + 0.75**2)) / 4
    assert found.standard_errors[0] == pytest.approx(error / 2)
    weighted = choose_by_pairs(
        [model],
        data,
        must,
        cannot,
        cannot_link_weight=[1, 1, 1, 3],
        n_folds=2,
        random_state=0,
    )
    assert weighted.scores[0] == (1.0 + 0.5) / 2


def test_the_first_candidate_within_a_standard_error_is_chosen() -> None:
    fits = [("KMeans", {"max_iter": [1, 2, 300]}), PCKMeans(3, penalty="constant")]
    found = choose_by_pairs(fits, X, **PAIRS, n_clusters=3, random_state=1)
    satisfied = found.details["satisfied"].astype(float)
    n_must = len(PAIRS["must_link"])
    best = int(np.argmax(found.scores))
    assert found.best_index == best
    within = []
    for at in range(4):
        change = satisfied[best] - satisfied[at]
        # No pair implies another one here, or both change alike.
        parts = [change[:n_must], change[n_must:]]
        error = np.sqrt(sum((part**2).sum() / len(part) ** 2 for part in parts)) / 2
        within.append(found.scores[best] - found.scores[at] <= error)
    assert found.one_se_index == int(np.argmax(within))


def test_a_graph_is_chosen_where_clusters_are_not_round() -> None:
    rows, truth = moons()
    pairs = drawn(truth, 40)
    found = choose_by_pairs(None, rows, **pairs, n_clusters=2, random_state=0)
    assert found.one_se_value == found.best_value == "SpectralClustering"
    assert found.grid[-1] == "KMeans"
    assert len(set(found.grid)) == len(found.estimators) == len(found.scores)
    assert np.isfinite(found.scores).all()
    ax = found.plot()
    assert [tick.get_text() for tick in ax.get_xticklabels()] == found.grid.tolist()
    assert ax.get_legend().get_texts()[0].get_text() == "best: SpectralClustering"
    plt.close(ax.figure)


def test_weights_reach_the_fits() -> None:
    n_must = len(PAIRS["must_link"])
    weight = RNG.integers(1, 4, 40).astype(float)
    given = {"must_link_weight": weight[:n_must], "cannot_link_weight": weight[n_must:]}
    found = choose_by_pairs(MODELS[1:], X, **PAIRS, **given, random_state=0)
    held = by_hand(MODELS[1], found, weight)
    assert_array_equal(found.details["satisfied"][0], held)
    expected = np.average(held[:n_must], weights=weight[:n_must])
    assert found.details["must_link"][0] == pytest.approx(expected)


@pytest.mark.parametrize("kind", ["must_link", "cannot_link"])
def test_one_kind_of_pairs_is_enough(kind: str) -> None:
    found = choose_by_pairs(MODELS, X, **{kind: PAIRS[kind]}, random_state=0)
    assert_array_equal(found.scores, found.details[kind])
    other = {"must_link": "cannot_link", "cannot_link": "must_link"}[kind]
    assert np.isnan(found.details[other]).all()
    assert np.isfinite(found.standard_errors).all()


def test_chunks_schedulers_and_containers_do_not_change_the_choice() -> None:
    models = [*MODELS, SpectralClustering(3, n_prototypes=30)]
    expected = choose_by_pairs(models, X, **PAIRS, random_state=0)
    for rows in (chunked(X), chunked(X, 101), pd.DataFrame(X, columns=["a", "b"])):
        found = choose_by_pairs(models, rows, **PAIRS, random_state=0)
        assert_array_equal(found.details["satisfied"], expected.details["satisfied"])
        assert_array_equal(np.asarray(found.estimators[2].labels_), expected.estimators[2].labels_)
    with dask.config.set(scheduler="threads"):
        found = choose_by_pairs(models, chunked(X, 33), **PAIRS, random_state=0)
    assert_allclose(found.scores, expected.scores)


def test_all_fits_share_their_passes() -> None:
    lazy = chunked(X, 60).map_blocks(np.positive)

    def passes_of(model: Any, **pairs: np.ndarray) -> int:
        # Computed, not read from history_, which ends with the restart that is returned.
        counting = CountingScheduler()
        with dask.config.set(scheduler=counting):
            clone(model).fit(lazy, **pairs)
        return counting.calls

    with dask.config.set({"daskclust.persist": False}):
        found = choose_by_pairs(MODELS, lazy, **PAIRS, random_state=0)
        alone = [passes_of(MODELS[0])]
        for fold in range(-1, 5):
            rest = found.details["fold"] != fold
            must = np.arange(len(rest)) < len(PAIRS["must_link"])
            pairs = found.details["pairs"]
            links = {"must_link": pairs[rest & must], "cannot_link": pairs[rest & ~must]}
            alone.append(passes_of(MODELS[1], **links))
    # Two fetches of rows by number meet a pass of other fits over all rows: of the paired rows
    # during the survey, and of the sample of PCKMeans during the first iteration of KMeans.
    assert max(alone) <= found.passes <= max(alone) + 2
    assert found.passes < sum(alone)


def test_candidates_that_cannot_satisfy_the_pairs_have_no_score() -> None:
    # Four rows that are all apart do not fit into three clusters.
    four = [[a, b] for a in range(4) for b in range(a)]
    given = {"must_link": PAIRS["must_link"], "cannot_link": four}
    with pytest.warns(ConstraintWarning, match="COPKMeans.* failed and has no score"):
        found = choose_by_pairs([COPKMeans(3), *MODELS], X, **given, random_state=0)
    assert np.isnan(found.scores[0])
    assert found.estimators[0] is None
    assert found.best_index in (1, 2)
    assert found.one_se_index in (1, 2)
    assert list(found.details["failures"]) == ["COPKMeans(n_clusters=3)"]
    with pytest.raises(ConstraintError, match=r"All candidates failed.*COPKMeans"):
        choose_by_pairs([COPKMeans(3)], X, **given, random_state=0)


def test_pairs_that_contradict_each_other_are_reported() -> None:
    must = np.concatenate([PAIRS["must_link"], [[200, 201]]])
    with pytest.warns(ConstraintWarning, match="contradict each other: 200-201"):
        found = choose_by_pairs(MODELS, X, must, [[200, 201]], random_state=0)
    # One of both is satisfied whatever the labels are: they are left out together.
    assert (found.details["satisfied"][:, -2:].sum(axis=1) == 1).all()
    assert found.details["fold"][-1] == found.details["fold"][-2]


@pytest.mark.parametrize(
    ("candidates", "given", "error", "message"),
    [
        (
            ["KMeans"],
            {},
            ValueError,
            "n_clusters must be set, because the candidate 'KMeans' is a name",
        ),
        (
            ["KMean"],
            {"n_clusters": 3},
            ValueError,
            r"candidates\[0\] must be an estimator or a name, got 'KMean'",
        ),
        ("KMeans", {"n_clusters": 3}, ValueError, "candidates must be a list"),
        ([], {}, ValueError, "at least one"),
        ([("KMeans", 3)], {"n_clusters": 3}, ValueError, "dict of parameters"),
        (
            [(KMeans(3), {"penalty": [1]})],
            {},
            ValueError,
            "must have parameters of KMeans, got 'penalty'",
        ),
        (
            [(KMeans(3), {"init": "random"})],
            {},
            ValueError,
            "must have a list of values for 'init', got 'random'",
        ),
        ([ForeignClustering(3)], {}, ValueError, "estimator of daskclust with a method predict"),
        ([LabelSpreading()], {}, ValueError, "does not require labels, got LabelSpreading"),
        ([KMeans(3, checkpoint="fit.npz")], {}, ValueError, "cannot share one checkpoint"),
        ([KMeans(0)], {}, ValueError, "n_clusters"),
        (MODELS, {"n_folds": 1}, ValueError, "n_folds"),
        (
            MODELS,
            {"n_folds": 41},
            ConstraintError,
            "must contain at least n_folds=41 groups of pairs",
        ),
        (
            MODELS,
            {"must_link": None, "cannot_link": None},
            ConstraintError,
            r"must contain at least n_folds=5 groups of pairs.*got 0",
        ),
        (
            MODELS,
            {"must_link": [[0, 300]]},
            ConstraintError,
            r"must_link must contain row numbers in \[0, 300\), got \(0, 300\) at",
        ),
    ],
)
def test_what_cannot_be_used_is_refused(
    candidates: Any, given: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        choose_by_pairs(candidates, X, **{**PAIRS, **given})


def test_pairs_that_imply_each_other_are_too_few_for_the_folds() -> None:
    rows = np.arange(8)
    chain = np.stack([rows[:-1], rows[1:]], axis=1)
    with pytest.raises(ConstraintError, match=r"at least n_folds=5 groups of pairs.*got 1"):
        choose_by_pairs(MODELS, X, chain)


def test_an_error_names_the_candidate() -> None:
    bad = X.copy()
    bad[7, 1] = np.nan
    with pytest.raises(ValueError, match="row 7, column 1") as caught:
        choose_by_pairs(MODELS, bad, **PAIRS, random_state=0)
    assert "candidate KMeans" in caught.value.__notes__[0]


def test_pairs_by_index_labels() -> None:
    names = np.array([f"row {i}" for i in range(300)])
    named = {name: names[pairs] for name, pairs in PAIRS.items()}
    found = choose_by_pairs(MODELS, pd.DataFrame(X, index=names), **named, random_state=0)
    want = choose_by_pairs(MODELS, X, **PAIRS, random_state=0)
    assert_array_equal(found.scores, want.scores)
    assert_array_equal(found.details["pairs"], want.details["pairs"])

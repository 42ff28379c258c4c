"""Small random clustering problems, and fits of them without their expected warnings."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from daskclust import PCSKMeans
from daskclust.core.engine import Rows
from daskclust.core.estimator.fit_loop import OpenData
from daskclust.core.initialization.problem import Initialization
from daskclust.core.reduction import SURVEY, SurveyRequest
from daskclust.exceptions import ConstraintWarning

__all__ = [
    "SEEDS",
    "Problem",
    "assert_same_model",
    "initialization_of",
    "quiet_fit",
    "random_problem",
    "tangled_problem",
]

SEEDS = st.integers(0, 2**32 - 1)


def initialization_of(
    rows: Rows, k: int, seeds: tuple[int, ...] = (0,), **options: Any
) -> Initialization:
    """An initialization of open rows, which are surveyed in one pass."""
    survey = rows.reduce(SURVEY, SurveyRequest(rows.n_features, seeds, k))
    return Initialization(OpenData(None, rows, survey, seeds, None, None), k, **options)


class Problem(NamedTuple):
    """Rows, a start, a bound, and pairs, many of them wrong."""

    X: NDArray[np.float64]
    start: NDArray[np.float64]
    sparsity: float
    must_link: NDArray[np.int64]
    cannot_link: NDArray[np.int64]

    @property
    def links(self) -> dict[str, Any]:
        """The pairs as arguments of ``fit``."""
        return {"must_link": self.must_link, "cannot_link": self.cannot_link}

    def model(self, kind: Any = PCSKMeans, **parameters: Any) -> Any:
        """An estimator for this problem."""
        given = {"init": self.start, **parameters}
        # The penalty of the papers, unless another one is given.
        defaults = {"sparsity": self.sparsity, "penalty": "distance"}
        known = kind().get_params()
        given = {name: value for name, value in defaults.items() if name in known} | given
        return kind(len(self.start), **given)


def _random_pairs(rng: np.random.Generator, n: int, count: int) -> NDArray[np.int64]:
    left = rng.integers(n, size=count)
    return np.stack([left, (left + rng.integers(1, n, size=count)) % n], axis=1)


def random_problem(
    seed: int, n: int = 40, p: int = 5, k: int = 3, n_pairs: tuple[int, int] = (12, 12)
) -> Problem:
    """Clusters that overlap, in two features of which the first means more."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p))
    X[:, :2] += rng.integers(k, size=(n, 1)) * [3.0, 1.5]
    start = X[rng.choice(n, k, replace=False)]
    pairs = [_random_pairs(rng, n, m) for m in n_pairs]
    return Problem(X, start, float(rng.uniform(1.05, np.sqrt(p))), *pairs)


def tangled_problem(seed: int) -> Problem:
    """A dozen rows with so many wrong pairs that gamma' of Eq. 15 is often negative."""
    rng = np.random.default_rng(seed)
    m = int(rng.integers(2, 9))
    X = rng.normal(size=(14, 3))
    X[:, 0] += rng.integers(0, 2, 14) * rng.uniform(0, 4)
    return Problem(X, X[:2], 1.3, _random_pairs(rng, 14, m), _random_pairs(rng, 14, m))


def quiet_fit(model: Any, *arguments: Any, **keywords: Any) -> Any:
    """Fit where random data contradict themselves, and loops may meet their limits."""
    with warnings.catch_warnings():
        for category in (ConstraintWarning, ConvergenceWarning):
            warnings.simplefilter("ignore", category)
        return model.fit(*arguments, **keywords)


def violations(model: Any) -> list[tuple[int, int, str]]:
    """Return the explicit pairs that the labels of a model violate, sorted."""
    pairs = model.contradicting_pairs_
    return sorted(pairs[pairs.violated][["i", "j", "kind"]].tolist())


def assert_same_model(a: Any, b: Any, tolerance: float = 1e-9) -> None:
    """Same labels and rounds; all else they have within a relative tolerance."""
    np.testing.assert_array_equal(np.asarray(a.labels_), np.asarray(b.labels_))
    assert a.n_iter_ == b.n_iter_
    for name in (
        "cluster_centers_",
        "feature_weights_",
        "assignment_weights_",
        "feature_scores_",
        "metric_weights_",
        "inertia_",
        "objective_",
    ):
        assert hasattr(a, name) == hasattr(b, name), name
        if not hasattr(b, name):
            continue
        got, want = getattr(a, name), getattr(b, name)
        size = np.abs(want).max()
        np.testing.assert_allclose(got, want, rtol=0, atol=tolerance * size, err_msg=name)

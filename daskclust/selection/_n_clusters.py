"""The number of clusters, and the price of one."""

from __future__ import annotations

import numbers
import sys
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone

from daskclust.core.array_types import Array, Floats, Ints
from daskclust.core.engine import Job, Rows, is_dask, labeled_rows, open_rows
from daskclust.core.estimator.base import BaseClusterer
from daskclust.core.estimator.fit_loop import draw_seeds
from daskclust.core.estimator.validation import (
    check_choice,
    check_integer,
    check_rows,
    check_values,
    check_weight,
)
from daskclust.core.initialization.deterministic import farthest_first_delta
from daskclust.core.kernels.linkage import cut_tree, link
from daskclust.core.persistence.schema import saved_entries
from daskclust.core.reduction import SPREAD, SURVEY, Spread, SpreadRequest, SurveyRequest
from daskclust.core.reduction.row_views import UniformBox
from daskclust.density.agglomerative import AgglomerativeClustering
from daskclust.metrics import CentroidScores, ari_of_table, centroid_scores
from daskclust.selection._grid import (
    Grid,
    Selection,
    check_references,
    fit_references,
    open_grid,
    overrides,
    selected,
    survey_job,
)
from daskclust.selection._stability import fit_halves

_CENTROID = ("silhouette", "calinski_harabasz", "davies_bouldin")


def _check_ks(ks: Any, n_rows: int) -> Ints:
    values = list(np.atleast_1d(np.asarray(ks, dtype=object)))
    bad = [k for k in values if not isinstance(k, numbers.Integral) or not 1 <= int(k) <= n_rows]
    if bad or not values:
        raise ValueError(
            f"ks={ks!r} is not usable{f' because of {bad[0]!r}' if bad else ''}; expected a list "
            f"of integers with 1 <= k <= n_samples = {n_rows}."
        )
    return np.unique(np.array(values, dtype=np.int64))


def choose_n_clusters(
    estimator: Any,
    X: Any,
    ks: Any,
    *,
    method: Literal["fits", "tree"] = "fits",
    criterion: Literal[
        "silhouette", "calinski_harabasz", "davies_bouldin", "gap", "bic", "stability", "height"
    ]
    | None = None,
    n_references: int = 10,
    random_state: Any = None,
) -> Selection:
    """Choose the number of clusters, or of components of a mixture.

    Parameters
    ----------
    estimator : estimator of this package
        Unfitted, with ``n_clusters`` (or ``n_components``); cloned for each fit.
        ``random_state=None`` is replaced by one seed for all fits.
    X : array-like, dask.array.Array, DataFrame or xarray.DataArray of shape (n, p)
    ks : array-like of int
        Numbers to try, ``1 <= k <= n``.
    method : {"fits", "tree"}, default="fits"
        ``"fits"``: a fit for each k.  ``"tree"``: one fit of an
        :class:`~daskclust.AgglomerativeClustering`, whose tree is cut at each k.
    criterion : {"silhouette", "calinski_harabasz", "davies_bouldin", "gap", "bic", \
"stability", "height"}, default=None
        ``"silhouette"`` when omitted, of a tree ``"height"``.  The first three as in
        :func:`daskclust.metrics.centroid_scores`, so the silhouette is the simplified one, in the
        metric and under the feature weights of the estimator.  ``"gap"``: ``mean_b log W_b(k) -
        log W(k)`` of [1]_, with W the ``inertia_`` on the data and W_b that on data drawn uniformly
        from their bounding box.
        ``"bic"``: the estimator's ``bic``, for mixtures.  ``"stability"``: mean adjusted Rand
        index between the fit and fits to random halves of the rows (:func:`stability`), for any
        estimator with ``predict``; the largest number within 0.01 of the best
        is chosen.  Of a tree ``"height"``: by how much the merge to k - 1
        clusters is higher than that to k, as a logarithm; ``"stability"``: mean adjusted Rand
        index, by weight, between the cut and that of trees of random halves of the leaves.
    n_references : int, default=10
        Draws from the box, for ``"gap"``; halves, for ``"stability"`` and of trees.
    random_state : int, RandomState, Generator or None, default=None
        An int gives the same result for any chunks, scheduler and number of workers.

    Returns
    -------
    Selection
        ``standard_errors``: for ``"gap"``, of the references, with the factor ``sqrt(1 + 1/B)`` of
        [1]_; for ``"silhouette"``, of a mean over independent rows; for ``"stability"``, of the
        mean over the halves; else NaN.  For ``"gap"`` the one-standard-error choice is that of
        [1]_, the smallest k with ``gap(k) >= gap(k+1) - se(k+1)`` over the ks that were tried.
        ``details`` for ``"gap"``: ``log_inertia`` (g,) and ``log_reference`` (B, g); for
        ``"stability"``: ``agreement`` (B, g).

    Raises
    ------
    ValueError
        For ks out of range, an estimator or criterion that do not fit each other,
        a grid on which the criterion is nowhere defined, and what the fits raise.

    Notes
    -----
    *Passes* over the data: those of the longest fit, and one for the criterion (none for
    ``"gap"``), as all fits share them, halves included.  References read nothing: their rows are
    drawn where they are needed.  *Memory* of a worker thread: that of one fit, times the fits that
    advance together (g, or 64 on references).

    An estimator whose class overrides ``fit`` is fitted by that ``fit``, to X as given, one after
    another: such fits share no passes, ``passes`` does not count them, and ``"gap"`` is refused,
    as references are never whole.

    References
    ----------
    .. [1] Tibshirani, R., Walther, G., Hastie, T. (2001). Estimating the number of
       clusters in a data set via the gap statistic. JRSS B 63.

    Examples
    --------
    >>> import numpy as np
    >>> import daskclust
    >>> from daskclust.selection import choose_n_clusters
    >>> X = np.repeat([[0.0], [5.0], [9.0]], 20, axis=0) + np.random.default_rng(0).random((60, 1))
    >>> choose_n_clusters(daskclust.KMeans(), X, range(1, 6), random_state=0).best
    3
    """
    check_choice(method, "method", ("fits", "tree"))
    check_integer(n_references, "n_references", 2)
    if method == "tree":
        of_tree: Any = "height" if criterion is None else criterion
        return choose_cut(
            estimator, X, _check_ks(ks, sys.maxsize), of_tree, int(n_references), random_state
        )
    criterion = "silhouette" if criterion is None else criterion
    check_choice(criterion, "criterion", (*_CENTROID, "gap", "bic", "stability"))
    parameter = "n_components" if hasattr(estimator, "n_components") else "n_clusters"
    _check_fit(estimator, criterion)
    grid = open_grid(estimator, X, parameter, random_state)
    values = _check_ks(ks, grid.data.rows.n_rows)
    if criterion == "gap":
        return _by_gap(grid, values, int(n_references))
    if criterion == "stability":
        return _by_stability(grid, values, int(n_references))
    judge = _bic if criterion == "bic" else _spread
    found = grid.run([Job(partial(_fit_and, judge, grid, k)) for k in values.tolist()])
    models = [model for model, _ in found]
    if criterion == "bic":
        scores = np.array([score for _, score in found], dtype=np.float64)
    else:
        scores = np.array([_score(spread, criterion) for _, spread in found])
    errors = np.full(len(values), np.nan)
    if criterion == "silhouette":
        errors = np.array([_score(spread, "silhouette_error") for _, spread in found])
    return _selection(grid, criterion, values, scores, errors, models)


def _check_fit(estimator: Any, criterion: str) -> None:
    """Raise for a criterion that the estimator has nothing for."""
    if criterion == "bic":
        fits, what = hasattr(estimator, "bic"), "a method bic, as mixtures have"
    elif criterion == "stability":
        fits, what = hasattr(estimator, "predict"), "a method predict"
    else:
        fits, what = isinstance(estimator, BaseClusterer), "centers, as the k-means family has"
        if fits and criterion == "gap":
            entries = saved_entries(type(estimator))
            # A metric that is learned makes the inertia what it is, whatever k is.
            fits = "inertia_" in entries and "metric_weights_" not in entries
            what = "an inertia_ in a given metric, as KMeans has"
    if not fits:
        raise ValueError(
            f"criterion={criterion!r} needs an estimator with {what}; got {estimator!r}."
        )


def _fit_and(judge: Any, grid: Grid, k: int, rows: Rows) -> tuple[Any, Any]:
    model = grid.fit(k, rows)
    return model, judge(model, grid, rows)


def _bic(model: Any, grid: Grid, rows: Rows) -> float:
    if overrides(model, "fit", "bic", "score"):
        return float(model.bic(grid.X))
    return float(model._bic(rows))


def _spread(model: Any, grid: Grid, rows: Rows) -> CentroidScores | None:
    """Make the pass behind the centroid-based criteria, in the estimator's own space."""
    if not grid.shares_passes:
        return _spread_of_labels(model.labels_, grid)
    if len(model._centers) < 2:
        return None
    if not model._metric.is_identity:
        rows = rows.transformed(model._metric)
    weights = model._prediction_weights
    spread: Spread = rows.reduce(SPREAD, SpreadRequest(model._centers, feature_weights=weights))
    filled = spread.weights > 0
    if filled.sum() < 2:
        return None
    return CentroidScores(
        np.flatnonzero(filled), model._centers[filled], spread.of(filled), weights
    )


def _spread_of_labels(labels: Any, grid: Grid) -> CentroidScores | None:
    """Score labels on X as given: the space of a fit of the user's own is not known."""
    found = labeled_rows(labels, _first_of_each)[1] if is_dask(labels) else labels
    if not 2 <= len(np.unique(found)) < grid.data.rows.n_rows:
        return None
    return centroid_scores(grid.data.X, labels)


def _first_of_each(labels: NDArray[Any]) -> tuple[NDArray[np.intp], NDArray[Any]]:
    found, places = np.unique(labels, return_index=True)
    return places, found


def _score(scores: CentroidScores | None, name: str) -> float:
    return np.nan if scores is None else float(getattr(scores, name))


def _by_gap(grid: Grid, values: Ints, n_references: int) -> Selection:
    check_references(grid)
    rows = grid.data.rows
    survey, *models = grid.run(
        [survey_job(grid), *(Job(partial(grid.fit, k)) for k in values.tolist())]
    )
    box = partial(UniformBox, survey.low, survey.high, rows.dtype, grid.seed)
    reference = fit_references(grid, values.tolist(), n_references, box, _log_inertia)
    observed = np.array([_log_inertia(model) for model in models])
    scores = reference.mean(axis=0) - observed
    errors = reference.std(axis=0) * np.sqrt(1 + 1 / n_references)
    details = {"log_inertia": observed, "log_reference": reference}
    return _selection(grid, "gap", values, scores, errors, models, details)


#: Difference of mean agreements up to which two numbers of clusters are equally stable.
_EQUALLY_STABLE = 0.01


def _by_stability(grid: Grid, values: Ints, n_draws: int) -> Selection:
    found = fit_halves(grid, values.tolist(), n_draws)
    agreement = np.column_stack([one.agreement for one in found])
    # A single cluster is always the same.
    agreement[:, values == 1] = np.nan
    scores, errors = agreement.mean(axis=0), agreement.std(axis=0, ddof=1) / np.sqrt(n_draws)
    models = [one.estimator for one in found]
    details = {"agreement": agreement}
    chosen = _selection(grid, "stability", values, scores, errors, models, details)
    # Unions of well separated groups are as stable as the groups: take the finest partition.
    equal = np.flatnonzero(scores >= chosen.scores[chosen.best_index] - _EQUALLY_STABLE)
    finest = int(equal[np.argmax(values[equal])])
    return replace(chosen, best_index=finest)


def _log_inertia(model: Any) -> float:
    # As many clusters as distinct rows leave nothing: no gap there.
    return float(np.log(model.inertia_)) if model.inertia_ > 0 else np.nan


def _first_gap(scores: Floats, errors: Floats) -> int:
    """Smallest k whose gap is no less than the next one's, but for its standard error."""
    enough = np.flatnonzero(scores[:-1] >= scores[1:] - errors[1:])
    return int(enough[0]) if len(enough) else len(scores) - 1


def _selection(
    grid: Grid,
    criterion: str,
    values: Ints,
    scores: Floats,
    errors: Floats,
    models: list[Any],
    details: dict[str, Any] | None = None,
) -> Selection:
    if np.isnan(scores).all():
        raise ValueError(
            f"criterion={criterion!r} is not defined for any of ks={values.tolist()}: give a k "
            "from 2 to the number of distinct rows."
        )
    greater, passes = criterion not in _LESS_IS_BETTER, grid.data.rows.passes
    found = selected(
        grid.parameter, passes, criterion, values, scores, errors, models, details, greater
    )
    if criterion != "gap":
        return found
    known = np.flatnonzero(~np.isnan(scores))
    return replace(found, one_se_index=int(known[_first_gap(scores[known], errors[known])]))


#: Criteria of which the least is the best.
_LESS_IS_BETTER = ("davies_bouldin", "bic")
TreeCriterion = Literal["height", "stability"]


def _gaps(heights: Floats, ks: Ints) -> Floats:
    """Return for each k how much higher the merge to k - 1 clusters is than that to k, as a log.

    NaN for one cluster, and for as many as there are leaves.  Rows in one place merge at the
    height of rounding, so that a cut which parts the others stands out.
    """
    m = len(heights) + 1
    least = np.finfo(np.float64).eps * heights[np.isfinite(heights)].max(initial=0.0)
    heights = np.maximum(heights, least)
    out = np.full(len(ks), np.nan)
    there = (ks > 1) & (ks < m)
    above, below = heights[m - ks[there]], heights[m - ks[there] - 1]
    with np.errstate(divide="ignore", invalid="ignore"):
        gap = np.log(above) - np.log(below)
    out[there] = np.where(np.isfinite(gap), gap, np.nan)
    return out


def _agreement(a: Ints, b: Ints, weights: Floats) -> float:
    table = np.zeros((a.max() + 1, b.max() + 1))
    np.add.at(table, (a, b), weights)
    return ari_of_table(table)


def choose_cut(
    estimator: Any, X: Any, ks: Array, criterion: TreeCriterion, n_halves: int, random_state: Any
) -> Selection:
    """Choose where to cut one tree; arguments of ``choose_n_clusters``."""
    if not isinstance(estimator, AgglomerativeClustering):
        raise ValueError(
            f"method='tree' needs a tree: an AgglomerativeClustering; got {estimator!r}."
        )
    check_choice(criterion, "criterion", ("height", "stability"))
    (seed,) = draw_seeds(random_state, 1)
    model = clone(estimator).set_params(n_clusters=None, distance_threshold=0.0)
    if model.random_state is None:
        model.set_params(random_state=seed % 2**32)
    model.fit(X)
    m = model.n_leaves_
    if ks[-1] > m:
        raise ValueError(
            f"ks go up to {ks[-1]}, the tree has {m} leaves; expected no more. Give smaller ks, or "
            "raise n_prototypes where X has more distinct rows."
        )
    weights, leaves = model.leaf_weights_, model._leaves
    if not model.linkage_[:, 2].any():
        raise ValueError("All rows of X are in one place; expected two or more distinct rows.")
    rng = np.random.default_rng(seed)
    cuts = [cut_tree(model.linkage_, weights, int(k)) for k in ks]
    gaps, stable = np.full((n_halves, len(ks)), np.nan), np.full((n_halves, len(ks)), np.nan)
    for b in range(n_halves):
        half = np.sort(rng.choice(m, max(m // 2, 2), replace=False)) if m > 3 else np.arange(m)
        tree = link(leaves[half], weights[half], model.linkage)
        gaps[b] = _gaps(tree[:, 2], ks)
        for i, k in enumerate(ks.tolist()):
            if 1 < k <= len(half):
                of_half = cut_tree(tree, weights[half], k)
                stable[b, i] = _agreement(cuts[i][half], of_half, weights[half])
    if criterion == "height":
        scores, spread = _gaps(model.linkage_[:, 2], ks), gaps
    else:
        scores, spread = stable.mean(axis=0), stable
    if np.isnan(scores).all():
        raise ValueError(
            f"ks={ks.tolist()}: the {criterion} of a cut is defined for more than one cluster and "
            f"fewer than the {m} leaves; expected such a number."
        )
    errors = spread.std(axis=0, ddof=1) / (1.0 if criterion == "height" else np.sqrt(n_halves))
    details = {
        "heights": model.linkage_[:, 2][::-1][: int(ks[-1])],
        "gaps": gaps,
        "agreement": stable,
    }
    models = [model.cut(int(k)) for k in ks]
    passes = int(model.history_[-1]["passes"]) if model.history_ else 1
    return selected("n_clusters", passes, criterion, ks, scores, errors, models, details)


def suggest_delta(X: Any, n_clusters: int, *, sample_weight: Any = None) -> float:
    """Suggest ``delta`` of :class:`~daskclust.DPMeans` for about so many clusters.

    The farthest-first heuristic of [1]_: starting from the mean, take the row farthest from all
    points taken, ``n_clusters`` times; delta is the squared distance of the last one.  Outliers
    make delta too large and the clusters too few.  In many dimensions a single row is about as far
    from its own cluster as from the others.  ``DPMeans(n_clusters_hint=n_clusters)`` uses the same
    delta, but begins with so many centers of k-means, and finds these clusters.

    Parameters
    ----------
    X : array-like, dask.array.Array, DataFrame or xarray.DataArray of shape (n, p)
    n_clusters : int
    sample_weight : array-like or dask.array.Array of shape (n,), optional
        Rows of weight 0 are absent.

    Returns
    -------
    float

    Raises
    ------
    ValueError
        For NaN or infinity in X, and for fewer distinct rows than ``n_clusters``.

    Notes
    -----
    *Passes*: ``n_clusters + 1``.  *To the client*: a row a worker thread and pass.

    References
    ----------
    .. [1] Kulis, B., Jordan, M. (2012). Revisiting k-means: new algorithms via
       Bayesian nonparametrics. ICML.

    Examples
    --------
    >>> import numpy as np
    >>> suggest_delta(np.array([[0.0], [1.0], [10.0], [11.0]]), 2)  # mean, 0, then 11
    30.25
    """
    check_integer(n_clusters, "n_clusters", 1)
    X = check_rows(BaseEstimator(), X, reset=True)
    rows = open_rows(X, check_weight(sample_weight, X))
    survey = rows.reduce(SURVEY, SurveyRequest(rows.n_features))
    check_values(survey)
    delta = farthest_first_delta(rows, survey.mean, int(n_clusters))
    if delta <= 0:
        raise ValueError(
            f"X has fewer distinct rows than n_clusters={n_clusters}, so no positive delta gives "
            "so many clusters. Ask for fewer."
        )
    return delta

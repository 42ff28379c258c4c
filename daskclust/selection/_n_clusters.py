"""Choice of the number of clusters, or of the cost of a cluster (delta)."""

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
    weights_for,
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
            f"ks must be a list of integers with 1 <= k <= n_samples = {n_rows}, got {ks!r}"
            f"{f', which contains {bad[0]!r}' if bad else ''}."
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

    Use it to compare several numbers.  If a distance is easier to choose than a number, use
    :class:`~daskclust.DPMeans`.

    Parameters
    ----------
    estimator : estimator of this package
        Unfitted, with ``n_clusters`` (or ``n_components``).  It is cloned for each fit.  If its
        ``random_state`` is None, all fits use the same seed.
    X : array-like, dask.array.Array, DataFrame or xarray.DataArray of shape (n, p)
        Rows.
    ks : array-like of int
        Candidate numbers, ``1 <= k <= n``.
    method : {"fits", "tree"}, default="fits"
        Computation of the clusterings:

        - ``"fits"``: a fit for each k.
        - ``"tree"``: one fit of an :class:`~daskclust.AgglomerativeClustering`, whose tree is cut
          at each k.
    criterion : {"silhouette", "calinski_harabasz", "davies_bouldin", "gap", "bic", \
"stability", "height"}, default=None
        Score of a clustering.  None means ``"silhouette"``, or ``"height"`` for a tree.

        - ``"silhouette"`` (simplified), ``"calinski_harabasz"``, ``"davies_bouldin"``: see
          :func:`daskclust.metrics.centroid_scores`, with the estimator's metric and feature
          weights.
        - ``"gap"``: gap statistic [1]_, ``mean_b log W_b(k) - log W(k)``.  W is ``inertia_`` for X.
          W_b is ``inertia_`` for data drawn uniformly from the bounding box of X.
        - ``"bic"``: the estimator's ``bic``, for mixtures.
        - ``"stability"``: mean adjusted Rand index between the fit and fits to random halves of the
          rows (see :func:`stability`), for any estimator with ``predict``.  The choice is the
          largest number whose score is within 0.01 of the best.  For a tree, halves of the leaves
          replace halves of the rows.
        - ``"height"``, for a tree: log-ratio of two heights.  They are the heights of the merge to
          k - 1 clusters and of the merge to k clusters.
    n_references : int, default=10
        Number of reference data sets for ``"gap"``, and number of random halves for ``"stability"``
        and trees.
    random_state : int, RandomState, Generator or None, default=None
        An int gives the same result for any chunks, scheduler and number of workers.

    Returns
    -------
    Selection
        ``standard_errors`` are:

        - for ``"gap"``: the standard deviation over the B references, times ``sqrt(1 + 1/B)`` [1]_;
        - for ``"silhouette"``: the error for independent rows;
        - for ``"stability"``: the error of the mean over the halves;
        - for other criteria: NaN.

        The one-standard-error choice of ``"gap"`` is the smallest k with ``gap(k) >= gap(k+1) -
        se(k+1)`` among the candidates [1]_.  ``details`` contains ``log_inertia`` (g,) and
        ``log_reference`` (B, g) for ``"gap"``, and ``agreement`` (B, g) for ``"stability"``.

    Raises
    ------
    ValueError
        For ks out of range, an estimator that does not support the criterion, candidates for which
        the criterion is not defined, and errors of the fits.

    See Also
    --------
    suggest_delta : Choose ``delta`` of DPMeans for a number of clusters.
    stability : Stability of a single clustering.

    Notes
    -----
    *Passes*: all fits, also to halves, share the passes of the longest fit.  The criterion takes
    one more pass (except ``"gap"``).  References need no pass: workers generate their rows.
    *Memory* of a worker thread: the memory of one fit, times the number of concurrent fits (g, or
    64 for references).

    If the class of the estimator overrides ``fit``, fits do not share passes, and ``passes`` does
    not count them.  ``"gap"`` is not supported, because references are generated block by block.

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
    >>> choose_n_clusters(daskclust.KMeans(), X, range(1, 6), random_state=0).best_value
    3
    """
    check_choice(method, "method", ("fits", "tree"))
    check_integer(n_references, "n_references", 2)
    if method == "tree":
        cut_criterion: Any = "height" if criterion is None else criterion
        return choose_cut(
            estimator,
            X,
            _check_ks(ks, sys.maxsize),
            cut_criterion,
            int(n_references),
            random_state,
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
    measure = _bic if criterion == "bic" else _spread
    fits = grid.run([Job(partial(_fit_and_measure, measure, grid, k)) for k in values.tolist()])
    models = [model for model, _ in fits]
    if criterion == "bic":
        scores = np.array([score for _, score in fits], dtype=np.float64)
    else:
        scores = np.array([_score(spread, criterion) for _, spread in fits])
    errors = np.full(len(values), np.nan)
    if criterion == "silhouette":
        errors = np.array([_score(spread, "silhouette_error") for _, spread in fits])
    return _selection(grid, criterion, values, scores, errors, models)


def _check_fit(estimator: Any, criterion: str) -> None:
    if criterion == "bic":
        is_supported, requirement = hasattr(estimator, "bic"), "a method bic, as mixtures have"
    elif criterion == "stability":
        is_supported, requirement = hasattr(estimator, "predict"), "a method predict"
    else:
        is_supported, requirement = (
            isinstance(estimator, BaseClusterer),
            "centers, as the k-means family has",
        )
        if is_supported and criterion == "gap":
            entries = saved_entries(type(estimator))
            # Inertias in different learned metrics are not comparable.
            is_supported = "inertia_" in entries and "metric_weights_" not in entries
            requirement = "an inertia_ in a given metric, as KMeans has"
    if not is_supported:
        raise ValueError(
            f"estimator must have {requirement} for criterion={criterion!r}, got {estimator!r}."
        )


def _fit_and_measure(measure: Any, grid: Grid, k: int, rows: Rows) -> tuple[Any, Any]:
    model = grid.fit(k, rows)
    return model, measure(model, grid, rows)


def _bic(model: Any, grid: Grid, rows: Rows) -> float:
    if overrides(model, "fit", "bic", "score"):
        return float(model.bic(grid.X))
    return float(model._bic(rows))


def _spread(model: Any, grid: Grid, rows: Rows) -> CentroidScores | None:
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
    """Score labels on X, because the metric of a user-defined fit is unknown."""
    occurring = labeled_rows(labels, _first_of_each)[1] if is_dask(labels) else labels
    if not 2 <= len(np.unique(occurring)) < grid.data.rows.n_rows:
        return None
    return centroid_scores(grid.data.X, labels)


def _first_of_each(labels: NDArray[Any]) -> tuple[NDArray[np.intp], NDArray[Any]]:
    values, positions = np.unique(labels, return_index=True)
    return positions, values


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


#: Numbers of clusters whose mean agreements differ by at most this number are equally stable.
_EQUALLY_STABLE = 0.01


def _by_stability(grid: Grid, values: Ints, n_draws: int) -> Selection:
    fits = fit_halves(grid, values.tolist(), n_draws)
    agreement = np.column_stack([halves.agreement for halves in fits])
    # A single cluster is always stable.
    agreement[:, values == 1] = np.nan
    scores, errors = agreement.mean(axis=0), agreement.std(axis=0, ddof=1) / np.sqrt(n_draws)
    models = [halves.estimator for halves in fits]
    details = {"agreement": agreement}
    chosen = _selection(grid, "stability", values, scores, errors, models, details)
    # Unions of separate groups are as stable as the groups, so choose the largest number.
    equal = np.flatnonzero(scores >= chosen.scores[chosen.best_index] - _EQUALLY_STABLE)
    largest = int(equal[np.argmax(values[equal])])
    return replace(chosen, best_index=largest)


def _log_inertia(model: Any) -> float:
    # The gap is not defined for an inertia of 0, with as many clusters as distinct rows.
    return float(np.log(model.inertia_)) if model.inertia_ > 0 else np.nan


def _first_gap(scores: Floats, errors: Floats) -> int:
    """Return the position of the smallest k whose gap is at least the next gap minus its error."""
    large_gaps = np.flatnonzero(scores[:-1] >= scores[1:] - errors[1:])
    return int(large_gaps[0]) if len(large_gaps) else len(scores) - 1


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
            f"ks must contain a number from 2 to the number of distinct rows for criterion="
            f"{criterion!r}, got {values.tolist()}."
        )
    greater, passes = criterion not in _LESS_IS_BETTER, grid.data.rows.passes
    selection = selected(
        grid.parameter, passes, criterion, values, scores, errors, models, details, greater
    )
    if criterion != "gap":
        return selection
    defined = np.flatnonzero(~np.isnan(scores))
    return replace(
        selection, one_se_index=int(defined[_first_gap(scores[defined], errors[defined])])
    )


#: Criteria for which lower values are better.
_LESS_IS_BETTER = ("davies_bouldin", "bic")
TreeCriterion = Literal["height", "stability"]


def _log_height_ratios(heights: Floats, ks: Ints) -> Floats:
    """Return the log-ratio of the heights of the merges to k - 1 and to k clusters, for each k.

    The result is NaN for one cluster, and for as many clusters as leaves.  Heights of 0 are
    replaced by the rounding error, so the ratio is large for a cut that joins only equal rows.
    """
    m = len(heights) + 1
    min_height = np.finfo(np.float64).eps * heights[np.isfinite(heights)].max(initial=0.0)
    heights = np.maximum(heights, min_height)
    out = np.full(len(ks), np.nan)
    is_defined = (ks > 1) & (ks < m)
    above, below = heights[m - ks[is_defined]], heights[m - ks[is_defined] - 1]
    with np.errstate(divide="ignore", invalid="ignore"):
        gap = np.log(above) - np.log(below)
    out[is_defined] = np.where(np.isfinite(gap), gap, np.nan)
    return out


def _agreement(a: Ints, b: Ints, weights: Floats) -> float:
    table = np.zeros((a.max() + 1, b.max() + 1))
    np.add.at(table, (a, b), weights)
    return ari_of_table(table)


def choose_cut(
    estimator: Any, X: Any, ks: Array, criterion: TreeCriterion, n_halves: int, random_state: Any
) -> Selection:
    """Choose the cut of a tree.  See ``choose_n_clusters`` for the arguments."""
    if not isinstance(estimator, AgglomerativeClustering):
        raise ValueError(
            f"estimator must be an AgglomerativeClustering for method='tree', got {estimator!r}."
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
            f"ks must be at most {m}, the number of leaves of the tree, got {ks[-1]}. Use smaller "
            "ks, or raise n_prototypes if X has more distinct rows."
        )
    weights, leaves = model.leaf_weights_, model._leaves
    if not model.linkage_[:, 2].any():
        raise ValueError("X must have at least two distinct rows, got equal rows.")
    rng = np.random.default_rng(seed)
    cuts = [cut_tree(model.linkage_, weights, int(k)) for k in ks]
    gaps, agreement = np.full((n_halves, len(ks)), np.nan), np.full((n_halves, len(ks)), np.nan)
    for b in range(n_halves):
        half = np.sort(rng.choice(m, max(m // 2, 2), replace=False)) if m > 3 else np.arange(m)
        tree = link(leaves[half], weights[half], model.linkage)
        gaps[b] = _log_height_ratios(tree[:, 2], ks)
        for i, k in enumerate(ks.tolist()):
            if 1 < k <= len(half):
                half_labels = cut_tree(tree, weights[half], k)
                agreement[b, i] = _agreement(cuts[i][half], half_labels, weights[half])
    if criterion == "height":
        scores, spread = _log_height_ratios(model.linkage_[:, 2], ks), gaps
    else:
        scores, spread = agreement.mean(axis=0), agreement
    if np.isnan(scores).all():
        raise ValueError(
            f"ks must contain a number between 1 and the {m} leaves, both excluded, for criterion="
            f"{criterion!r}, got {ks.tolist()}."
        )
    errors = spread.std(axis=0, ddof=1) / (1.0 if criterion == "height" else np.sqrt(n_halves))
    details = {
        "heights": model.linkage_[:, 2][::-1][: int(ks[-1])],
        "gaps": gaps,
        "agreement": agreement,
    }
    models = [model.cut(int(k)) for k in ks]
    passes = int(model.history_[-1]["passes"]) if model.history_ else 1
    return selected("n_clusters", passes, criterion, ks, scores, errors, models, details)


def suggest_delta(X: Any, n_clusters: int, *, sample_weight: Any = None) -> float:
    """Suggest ``delta`` of :class:`~daskclust.DPMeans` for about ``n_clusters`` clusters.

    Use it if you know the approximate number of clusters, but no distance.

    This is the farthest-first heuristic of [1]_.  The first point is the mean.  Then the row that
    is farthest from all points is added, ``n_clusters`` times.  delta is the squared distance of
    the last row to the points before it.  With outliers, delta is too large, and there are too few
    clusters.  In many dimensions, rows are about as far from their own cluster as from others.
    Then use ``DPMeans(n_clusters_hint=n_clusters)``: it uses the same delta, but is initialized by
    centers of k-means.

    Parameters
    ----------
    X : array-like, dask.array.Array, DataFrame or xarray.DataArray of shape (n, p)
        Rows.
    n_clusters : int
        Approximate number of clusters.
    sample_weight : array-like or dask.array.Array of shape (n,), optional
        Weights; rows of weight 0 are ignored.
        Cubes also accept an image (y, x) and ``"area"``; see
        :meth:`daskclust.Cube.row_weights`.

    Returns
    -------
    float
        Suggested ``delta``.

    Raises
    ------
    ValueError
        For NaN or infinity in X, and for fewer distinct rows than ``n_clusters``.

    Notes
    -----
    *Passes*: ``n_clusters + 1``.  *To the client*: one row per worker thread and pass.

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
    sample_weight = weights_for(X, sample_weight)
    X = check_rows(BaseEstimator(), X, reset=True)
    rows = open_rows(X, check_weight(sample_weight, X))
    survey = rows.reduce(SURVEY, SurveyRequest(rows.n_features))
    check_values(survey)
    delta = farthest_first_delta(rows, survey.mean, int(n_clusters))
    if delta <= 0:
        raise ValueError(
            f"n_clusters must be at most the number of distinct rows of X, got {n_clusters}. Use a "
            "smaller n_clusters."
        )
    return delta

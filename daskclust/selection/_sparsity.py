"""Choice of the sparsity of sparse k-means, by permuted columns or by held-out labels."""

from __future__ import annotations

import inspect
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from daskclust.core.array_types import Floats
from daskclust.core.engine import Job
from daskclust.core.estimator.partial_labels import read_labels
from daskclust.core.estimator.validation import check_choice, check_integer
from daskclust.core.reduction import Survey
from daskclust.core.reduction.row_views import PermutedColumns
from daskclust.metrics import pairwise_f_score
from daskclust.selection._grid import (
    Grid,
    Selection,
    check_references,
    fit_references,
    open_grid,
    selected,
    survey_job,
)

#: Maximum number of bytes of the rows that are sent to the workers, which permute their columns.
_POOL_BYTES = 2**23
#: Number of values of the default grid.
_N_GRID = 10


def _sparsity_grid(grid: Any, p: int) -> Floats:
    max_sparsity = float(np.sqrt(p))
    if grid is None:
        return np.unique(np.geomspace(min(1.1, max_sparsity), max_sparsity, _N_GRID))
    values = np.asarray(grid, dtype=np.float64)
    # Values slightly above sqrt(p) are accepted, because the user may have rounded.
    is_valid = (values >= 1) & (values <= max_sparsity * (1 + 1e-3))
    if values.ndim != 1 or not values.size or not is_valid.all():
        invalid = values[~is_valid].ravel()[:1]
        raise ValueError(
            "grid must be a list of values with 1 <= sparsity <= sqrt(n_features) = "
            f"{max_sparsity:.6g}, got {grid!r}"
            f"{f', which contains {invalid[0]}' if invalid.size else ''}."
        )
    return np.unique(values)


def choose_sparsity(
    estimator: Any,
    X: Any,
    y: Any = None,
    *,
    method: Literal["gap", "f-score"] = "gap",
    grid: Any = None,
    n_references: int = 10,
    n_folds: int = 5,
    random_state: Any = None,
) -> Selection:
    """Choose ``sparsity`` of sparse k-means, with or without constraints.

    Use it for :class:`SparseKMeans` and :class:`PCSKMeans`.  With labels, ``method="f-score"`` is
    more direct; without labels, use the gap statistic.

    Parameters
    ----------
    estimator : SparseKMeans or PCSKMeans
        Unfitted.  It is cloned for each fit.  If its ``random_state`` is None, all fits use the
        same seed.
    X : array-like, dask.array.Array, DataFrame or xarray.DataArray of shape (n, p)
        Rows.
    y : array-like or dask.array.Array of shape (n,), or (rows, labels), optional
        Partial labels for ``method="f-score"``; -1 means that a row has no label.
    method : {"gap", "f-score"}, default="gap"
        Score of a sparsity:

        - ``"gap"``: permutation gap statistic [1]_, ``log O(s) - mean_b log O_b(s)``.  O is the
          objective (Eq. 4 of the PCSKM paper) for X.  O_b is the objective for data with permuted
          columns.
        - ``"f-score"``: pairwise F-score of held-out labeled rows, in ``n_folds`` stratified folds.
          Labels of the other folds are constraints if the estimator accepts them.
    grid : array-like of float, optional
        Values of sparsity, ``1 <= s <= sqrt(p)``.  Default: 10 values from 1.1 to ``sqrt(p)`` with
        equal ratios.
    n_references : int, default=10
        Number of permutations for ``"gap"``.
    n_folds : int, default=5
        Number of folds for ``"f-score"``.
    random_state : int, RandomState, Generator or None, default=None
        An int gives the same result for any chunks, scheduler and number of workers.

    Returns
    -------
    Selection
        Estimators are fitted to all rows and all labels.  For ``"gap"``, ``standard_errors`` are
        the standard deviation over the B references, times ``sqrt(1 + 1/B)`` [2]_, and ``details``
        contains ``log_objective`` (g,) and ``log_reference`` (B, g).  For ``"f-score"``, they are
        standard errors of the mean over folds, and ``details`` contains ``fold_scores`` (folds, g).

    Raises
    ------
    ValueError
        For an estimator without ``sparsity``, a grid out of range, missing, unused or too few
        labels, and errors of the fits.

    Warns
    -----
    ConvergenceWarning
        As in the fits.  Each message is shown once.

    See Also
    --------
    choose_n_clusters : Choose the number of clusters.

    Notes
    -----
    *Passes*: all fits share the passes of the longest fit, the initialization and the first round.
    See :func:`choose_n_clusters` for estimators whose class overrides ``fit``.  References need no
    pass: workers permute the values of each column.  For more than 8 MiB of data, they permute a
    uniform sample of rows, and repeat it with shifted columns.  *Memory* of a worker thread: the
    memory of one fit, times the number of concurrent fits (g, or 64 for references), and twice the
    sample.

    References
    ----------
    .. [1] Witten, D., Tibshirani, R. (2010). A framework for feature selection in
       clustering. JASA 105.
    .. [2] Tibshirani, R., Walther, G., Hastie, T. (2001). Estimating the number of
       clusters in a data set via the gap statistic. JRSS B 63.

    Examples
    --------
    >>> import daskclust
    >>> from daskclust.selection import choose_sparsity
    >>> X, _ = daskclust.datasets.make_sparse_blobs(
    ...     150, n_informative=4, n_uninformative=16, random_state=0
    ... )
    >>> model = daskclust.SparseKMeans(3)
    >>> result = choose_sparsity(model, X, grid=[1.2, 2.0, 4.4], n_references=3, random_state=0)
    >>> result.best_value
    2.0
    """
    check_choice(method, "method", ("gap", "f-score"))
    check_integer(n_references, "n_references", 2)
    check_integer(n_folds, "n_folds", 2)
    if (method == "gap") != (y is None):
        raise ValueError(
            "y must be None for method='gap', got labels. Omit y, or use method='f-score'."
            if y is not None
            else "y must be set for method='f-score', got None. Pass y with the known labels."
        )
    opened = open_grid(estimator, X, "sparsity", random_state)
    values = _sparsity_grid(grid, opened.data.X.shape[1])
    if method == "gap":
        return _by_gap(opened, values, int(n_references))
    return _by_folds(opened, values, y, int(n_folds))


def _log_objective(model: Any) -> float:
    with np.errstate(divide="ignore"):
        return float(np.log(model.feature_weights_ @ np.maximum(model.feature_scores_, 0.0)))


def _by_gap(grid: Grid, values: Floats, n_references: int) -> Selection:
    check_references(grid)
    rows = grid.data.rows
    n_pool = max(rows.n_features, _POOL_BYTES // (rows.dtype.itemsize * rows.n_features))
    jobs = [survey_job(grid, min(n_pool, rows.n_rows))]
    jobs += [Job(partial(grid.fit, value)) for value in values.tolist()]
    survey, *models = grid.run(jobs)
    pool = _pool(survey, rows.dtype)
    reference = fit_references(
        grid,
        values.tolist(),
        n_references,
        partial(PermutedColumns, pool, grid.seed),
        _log_objective,
    )
    observed = np.array([_log_objective(model) for model in models])
    if not (np.isfinite(observed).all() and np.isfinite(reference).all()):
        raise ValueError(
            "The weighted between-cluster sum of squares must be positive for all values, got 0, "
            "because no feature separates the clusters. Use n_clusters >= 2, and data that vary."
        )
    scores = observed - reference.mean(axis=0)
    errors = reference.std(axis=0) * np.sqrt(1 + 1 / n_references)
    details = {"log_objective": observed, "log_reference": reference}
    return selected("sparsity", rows.passes, "gap", values, scores, errors, models, details)


def _pool(survey: Survey, dtype: Any) -> NDArray[Any]:
    picks = survey.picks[0]
    drawn = picks[picks["row"] >= 0]
    return np.ascontiguousarray(drawn[np.argsort(drawn["row"])]["x"].T, dtype=dtype)


def _folds(labels: NDArray[np.int32], n_folds: int, seed: int) -> NDArray[np.intp]:
    """Assign labeled rows to folds at random, with equal numbers of each class."""
    rng = np.random.default_rng(seed)
    fold = np.empty(len(labels), np.intp)
    n_assigned = 0
    for label in np.unique(labels):
        members = rng.permutation(np.flatnonzero(labels == label))
        fold[members] = (n_assigned + np.arange(len(members))) % n_folds
        n_assigned += len(members)
    return fold


def _by_folds(grid: Grid, values: Floats, y: Any, n_folds: int) -> Selection:
    partial_labels = read_labels(y, grid.data.rows.n_rows)
    rows, labels = partial_labels.rows, partial_labels.classes[partial_labels.codes]
    if len(rows) < 2 * n_folds or len(np.unique(labels)) < 2:
        raise ValueError(
            f"y must have at least {2 * n_folds} labeled rows of 2 classes for {n_folds} folds, "
            f"got {len(rows)} rows of {len(np.unique(labels))} classes. Label more rows, or use "
            "method='gap'."
        )
    fold = _folds(partial_labels.codes, n_folds, grid.seed)
    takes_labels = "must_link" in inspect.signature(type(grid.estimator).fit).parameters
    all_labels: dict[str, Any] = {"y": (rows, labels)} if takes_labels else {}
    jobs = [Job(partial(grid.fit, value, **all_labels)) for value in values.tolist()]
    if takes_labels:
        for f in range(n_folds):
            fold_labels: dict[str, Any] = {"y": (rows[fold != f], labels[fold != f])}
            jobs += [Job(partial(grid.fit, value, **fold_labels)) for value in values.tolist()]
    models = grid.run(jobs)
    labeled_rows, _ = grid.data.rows.take(rows)
    fold_scores = np.empty((n_folds, len(values)))
    for f in range(n_folds):
        held_out = fold == f
        for g in range(len(values)):
            # Without label constraints, all folds use the same fit.
            model = models[(f + 1) * len(values) + g if takes_labels else g]
            predicted = model.predict(labeled_rows[held_out])
            fold_scores[f, g] = pairwise_f_score(partial_labels.codes[held_out], predicted)
    scores = fold_scores.mean(axis=0)
    errors = fold_scores.std(axis=0, ddof=1) / np.sqrt(n_folds)
    details = {"fold_scores": fold_scores}
    passes = grid.data.rows.passes
    models = models[: len(values)]
    return selected("sparsity", passes, "f-score", values, scores, errors, models, details)

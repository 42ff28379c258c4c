"""How sparse: by permuted columns, or by held-out labels."""

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

#: Bytes of the rows whose columns are permuted: all rows, or a sample, which travels to workers.
_POOL_BYTES = 2**23
#: Values of a grid that is not given.
_N_GRID = 10


def _sparsity_grid(grid: Any, p: int) -> Floats:
    most = float(np.sqrt(p))
    if grid is None:
        return np.unique(np.geomspace(min(1.1, most), most, _N_GRID))
    values = np.asarray(grid, dtype=np.float64)
    # sqrt(p) written with a few digits is meant as sqrt(p).
    good = (values >= 1) & (values <= most * (1 + 1e-3))
    if values.ndim != 1 or not values.size or not good.all():
        bad = values[~good].ravel()[:1]
        raise ValueError(
            f"grid={grid!r} is not usable{f' because of {bad[0]}' if bad.size else ''}; expected a "
            f"list of values with 1 <= sparsity <= sqrt(n_features) = {most:.6g}."
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

    Parameters
    ----------
    estimator : SparseKMeans or PCSKMeans
        Unfitted; cloned for each fit.  ``random_state=None`` is replaced by one
        seed for all fits.
    X : array-like, dask.array.Array, DataFrame or xarray.DataArray of shape (n, p)
    y : array-like or dask.array.Array of shape (n,), or (rows, labels), optional
        Partial labels, -1 = none, for ``method="f-score"``.
    method : {"gap", "f-score"}, default="gap"
        ``"gap"``: the permutation gap statistic of Witten & Tibshirani [1]_, ``log O(s) - mean_b
        log O_b(s)``, with O the objective (Eq. 4 of the PCSKM paper) on the data and O_b that on
        data whose columns are permuted.  ``"f-score"``: pairwise F-score of labeled rows that were
        held out, over ``n_folds`` folds within the classes; the labels of the other folds are
        constraints where the estimator takes any.
    grid : array-like of float, optional
        Values of sparsity, ``1 <= s <= sqrt(p)``; by default 10 from 1.1 on, at equal ratios.
    n_references : int, default=10
        Permutations, for ``"gap"``.
    n_folds : int, default=5
        For ``"f-score"``.
    random_state : int, RandomState, Generator or None, default=None
        An int gives the same result for any chunks, scheduler and number of workers.

    Returns
    -------
    Selection
        ``standard_errors``: standard deviation over the B references times
        ``sqrt(1 + 1/B)`` [2]_, or the standard error of the mean over folds.  ``details``:
        ``log_objective`` (g,) and ``log_reference`` (B, g), or ``fold_scores``
        (folds, g).  Estimators are fitted on all rows (and all labels).

    Raises
    ------
    ValueError
        For an estimator without ``sparsity``, a grid out of range, labels where
        none are used or too few where they are, and what the fits raise.

    Warns
    -----
    ConvergenceWarning
        As the fits on the data do, each message once.

    Notes
    -----
    *Passes* over the data: those of the longest fit, as all fits share them; the common part of
    fits, such as the start and the first round, is computed once.  An estimator whose class
    overrides ``fit`` is treated as in :func:`choose_n_clusters`.  References read nothing: a row
    of a reference is made of values of each column, permuted, where it is needed.  For up to 8 MiB
    of data these are exact permutations; beyond, permutations of a uniform sample of rows that
    large, which every further run of so many rows repeats with columns shifted against each other.
    *Memory* of a worker thread: that of one fit, times the fits that advance together (g, or 64 on
    references), and twice the sample.

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
    >>> found = choose_sparsity(model, X, grid=[1.2, 2.0, 4.4], n_references=3, random_state=0)
    >>> found.best
    2.0
    """
    check_choice(method, "method", ("gap", "f-score"))
    check_integer(n_references, "n_references", 2)
    check_integer(n_folds, "n_folds", 2)
    if (method == "gap") != (y is None):
        raise ValueError(
            "method='gap' uses no labels; leave y out, or use method='f-score'."
            if y is not None
            else "method='f-score' scores labeled rows; give y with the labels that are known."
        )
    opened = open_grid(estimator, X, "sparsity", random_state)
    values = _sparsity_grid(grid, opened.data.X.shape[1])
    if method == "gap":
        return _by_gap(opened, values, int(n_references))
    return _by_folds(opened, values, y, int(n_folds))


def _log_objective(model: Any) -> float:
    """Log of the weighted between-cluster sum of squares."""
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
            "No feature separates the clusters, so there is no gap to measure. Use n_clusters of "
            "at least 2, and data that vary."
        )
    scores = observed - reference.mean(axis=0)
    errors = reference.std(axis=0) * np.sqrt(1 + 1 / n_references)
    details = {"log_objective": observed, "log_reference": reference}
    return selected("sparsity", rows.passes, "gap", values, scores, errors, models, details)


def _pool(survey: Survey, dtype: Any) -> NDArray[Any]:
    """Return the rows that were drawn, in the order of the data, transposed."""
    picks = survey.picks[0]
    taken = picks[picks["row"] >= 0]
    return np.ascontiguousarray(taken[np.argsort(taken["row"])]["x"].T, dtype=dtype)


def _folds(labels: NDArray[np.int32], n_folds: int, seed: int) -> NDArray[np.intp]:
    """Fold of each labeled row: the rows of a class are dealt out in random order."""
    rng = np.random.default_rng(seed)
    fold = np.empty(len(labels), np.intp)
    dealt = 0
    for label in np.unique(labels):
        members = rng.permutation(np.flatnonzero(labels == label))
        fold[members] = (dealt + np.arange(len(members))) % n_folds
        dealt += len(members)
    return fold


def _by_folds(grid: Grid, values: Floats, y: Any, n_folds: int) -> Selection:
    given = read_labels(y, grid.data.rows.n_rows)
    rows, labels = given.rows, given.classes[given.codes]
    if len(rows) < 2 * n_folds or len(np.unique(labels)) < 2:
        raise ValueError(
            f"y labels {len(rows)} rows of {len(np.unique(labels))} classes; {n_folds} folds need "
            f"at least {2 * n_folds} labeled rows of 2 classes. Label more rows, or use "
            "method='gap'."
        )
    fold = _folds(given.codes, n_folds, grid.seed)
    takes_labels = "must_link" in inspect.signature(type(grid.estimator).fit).parameters
    whole: dict[str, Any] = {"y": (rows, labels)} if takes_labels else {}
    jobs = [Job(partial(grid.fit, value, **whole)) for value in values.tolist()]
    if takes_labels:
        for f in range(n_folds):
            known: dict[str, Any] = {"y": (rows[fold != f], labels[fold != f])}
            jobs += [Job(partial(grid.fit, value, **known)) for value in values.tolist()]
    models = grid.run(jobs)
    held_out, _ = grid.data.rows.take(rows)
    fold_scores = np.empty((n_folds, len(values)))
    for f in range(n_folds):
        held = fold == f
        for g in range(len(values)):
            # Labels that are not used are held out of every fit.
            model = models[(f + 1) * len(values) + g if takes_labels else g]
            found = model.predict(held_out[held])
            fold_scores[f, g] = pairwise_f_score(given.codes[held], found)
    scores = fold_scores.mean(axis=0)
    errors = fold_scores.std(axis=0, ddof=1) / np.sqrt(n_folds)
    details = {"fold_scores": fold_scores}
    passes = grid.data.rows.passes
    models = models[: len(values)]
    return selected("sparsity", passes, "f-score", values, scores, errors, models, details)

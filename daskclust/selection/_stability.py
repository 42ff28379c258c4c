"""Stability of a clustering and of its rows, from fits to random halves of the rows."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial
from operator import methodcaller
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from sklearn.base import clone

from daskclust.core.array_types import Array, Floats, Ints
from daskclust.core.engine import Job, is_dask, map_rows
from daskclust.core.estimator.validation import check_integer
from daskclust.core.reduction.label_tables import AGREEMENT, AgreementRequest
from daskclust.core.reduction.row_views import Subsampled
from daskclust.metrics import ari_of_table
from daskclust.selection._grid import Grid, open_grid

#: Fraction of the rows in a half.
_HALF = 0.5


@dataclass(frozen=True)
class PredictLabels:
    """Function that labels rows with a fitted model."""

    model: Any

    @classmethod
    def of(cls, model: Any) -> PredictLabels:
        """Return the function for a copy of the model without ``labels_``."""
        small = copy(model)
        small.__dict__.pop("labels_", None)
        return cls(small)

    def __call__(self, x: Array) -> Array:
        return np.asarray(self.model.predict(x))


@dataclass(frozen=True)
class Halves:
    """Fit to all rows for one value of the parameter, fits to halves, and their agreement.

    ``tables`` (B, k, k) are the weights of the rows by their labels in ``estimator`` and in the fit
    to a half.
    """

    estimator: Any
    half_models: tuple[Any, ...]
    tables: Floats

    @property
    def agreement(self) -> Floats:
        """Adjusted Rand index (B,) of ``estimator`` and each fit to a half, over all rows."""
        return np.array([ari_of_table(table) for table in self.tables])


def fit_halves(grid: Grid, values: Sequence[int], n_draws: int) -> list[Halves]:
    """Fit each value of the parameter to all rows and to halves.  All fits share passes."""
    if not grid.shares_passes:
        raise ValueError(
            f"{type(grid.estimator).__name__} must not override fit, because fits to halves of the "
            "rows use the fit of daskclust. Use an estimator of daskclust on preprocessed data."
        )
    jobs = []
    for value in values:
        jobs.append(Job(partial(grid.fit, value)))
        for draw in range(n_draws):
            seeded = _with_seed(grid, draw)
            view = Subsampled(_HALF, grid.seed, draw)
            jobs.append(Job(partial(seeded.fit, value), (view,)))
    models = grid.run(jobs)
    step = 1 + n_draws
    groups = [models[i : i + step] for i in range(0, len(models), step)]
    requests = [
        AgreementRequest(
            PredictLabels.of(full),
            tuple(PredictLabels.of(half) for half in half_models),
            int(value),
        )
        for value, (full, *half_models) in zip(values, groups, strict=True)
    ]
    tables = grid.run([Job(methodcaller("reduce", AGREEMENT, full)) for full in requests])
    return [
        Halves(full, tuple(half_models), table)
        for (full, *half_models), table in zip(groups, tables, strict=True)
    ]


def _with_seed(grid: Grid, draw: int) -> Grid:
    """Return the grid with another seed, because equal initializations look stable."""
    model = clone(grid.estimator)
    if "random_state" in model.get_params():
        seeds = np.random.SeedSequence([grid.seed, draw]).generate_state(1)
        model.set_params(random_state=int(seeds[0]))
    return replace(grid, estimator=model)


@dataclass(frozen=True)
class Stability:
    """Agreement of a fit with fits to random halves, see :func:`stability`.

    Attributes
    ----------
    score : float
        Mean of ``agreement``.
    agreement : ndarray of shape (n_draws,), float64
        Adjusted Rand index of the fit to all rows and each fit to a half, over all rows.
    rows : ndarray or dask.array.Array of shape (n,), float64
        Fraction of the fits to halves that assign the row to the matching cluster.  Lazy, and
        chunked like X, for Dask input.
    estimator : estimator
        Estimator fitted to all rows.
    passes : int
        Number of passes over the data.
    """

    score: float
    agreement: Floats
    rows: Any = field(repr=False)
    estimator: Any = field(repr=False)
    passes: int


@dataclass(frozen=True)
class _MatchingFraction:
    """Function that returns the fraction of fits that assign the matching cluster to a row."""

    reference: PredictLabels
    half_models: tuple[PredictLabels, ...]
    matches: tuple[Ints, ...]

    def __call__(self, x: NDArray[Any], start: int) -> Floats:
        if not len(x):
            return np.empty(0)
        labels = self.reference(x)
        is_match = [
            match[half(x)] == labels
            for half, match in zip(self.half_models, self.matches, strict=True)
        ]
        return np.mean(is_match, axis=0, dtype=np.float64)


def stability(estimator: Any, X: Any, *, n_draws: int = 10, random_state: Any = None) -> Stability:
    """Measure how much a clustering depends on the sampled rows and on the initialization.

    Use it to find rows or clusters whose labels are not reliable.

    The estimator is fitted to all rows, and with other seeds to random halves of the rows.  The
    clusters of each half are matched with the clusters of all rows, so that as many rows as
    possible agree.

    Parameters
    ----------
    estimator : estimator of this package with ``n_clusters`` (or ``n_components``)
        Unfitted; it is cloned for each fit.
    X : array-like, dask.array.Array, DataFrame or xarray.DataArray of shape (n, p)
        Rows.
    n_draws : int, default=10
        Number of halves.
    random_state : int, RandomState, Generator or None, default=None
        An int gives the same result for any chunks, scheduler and number of workers.

    Returns
    -------
    Stability

    Raises
    ------
    ValueError
        For an estimator without ``predict`` or whose class overrides ``fit``, and errors of the
        fits.

    See Also
    --------
    choose_n_clusters : With ``criterion="stability"``, for several numbers of clusters.

    Notes
    -----
    A stable clustering may be wrong.  Few clusters are often more stable than the true number.  A
    fit that makes the same error each time is also stable.

    *Passes*: all fits share the passes of the longest fit; the agreement takes one more.  Each
    computation of ``rows`` is another pass.
    *Memory* of a worker thread: the memory of one fit, times ``n_draws + 1``.

    Examples
    --------
    >>> import numpy as np
    >>> import daskclust
    >>> from daskclust.selection import stability
    >>> X = np.repeat([[0.0], [5.0], [9.0]], 20, axis=0) + np.random.default_rng(0).random((60, 1))
    >>> result = stability(daskclust.KMeans(3), X, random_state=0)
    >>> result.score, result.rows.shape
    (1.0, (60,))
    """
    check_integer(n_draws, "n_draws", 2)
    if not hasattr(estimator, "predict"):
        raise ValueError(
            f"estimator must have predict, got {estimator!r}. Use an unfitted estimator such as "
            "daskclust.KMeans(3)."
        )
    parameter = "n_components" if hasattr(estimator, "n_components") else "n_clusters"
    grid = open_grid(estimator, X, parameter, random_state)
    value = int(getattr(estimator, parameter))
    (fits,) = fit_halves(grid, [value], int(n_draws))
    matches = []
    for table in fits.tables:
        rows_of_match, columns_of_match = linear_sum_assignment(-table)
        match = np.empty(value, np.int64)
        match[columns_of_match] = rows_of_match
        matches.append(match)
    matching_fraction = _MatchingFraction(
        PredictLabels.of(fits.estimator),
        tuple(PredictLabels.of(columns_of_match) for columns_of_match in fits.half_models),
        tuple(matches),
    )
    data = grid.data
    lengths = data.rows.lengths if is_dask(data.X) else None
    rows = map_rows(data.X, matching_fraction, dtype=np.float64, lengths=lengths, name="stability")
    agreement = fits.agreement
    return Stability(float(agreement.mean()), agreement, rows, fits.estimator, data.rows.passes)

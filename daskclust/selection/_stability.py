"""How stable a clustering is, as a whole and row by row: fits to random halves of the rows."""

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

#: Share of the rows that each fit sees.
SHARE = 0.5


@dataclass(frozen=True)
class Labels:
    """Labels of rows by a fitted model; travels to the workers."""

    model: Any

    @classmethod
    def of(cls, model: Any) -> Labels:
        """Leave out what is as long as the data."""
        small = copy(model)
        small.__dict__.pop("labels_", None)
        return cls(small)

    def __call__(self, x: Array) -> Array:
        return np.asarray(self.model.predict(x))


@dataclass(frozen=True)
class Halves:
    """One value of the parameter: the fit, fits to halves, and their agreement.

    ``tables`` (B, k, k) are the weight of the rows by both labels, those of ``estimator`` first.
    """

    estimator: Any
    others: tuple[Any, ...]
    tables: Floats

    @property
    def agreement(self) -> Floats:
        """Adjusted Rand index of each half with the whole, over all rows; (B,)."""
        return np.array([ari_of_table(table) for table in self.tables])


def fit_halves(grid: Grid, values: Sequence[int], n_draws: int) -> list[Halves]:
    """Fit all values to all rows and to halves of them; all fits share their passes."""
    if not grid.shares_passes:
        raise ValueError(
            f"{type(grid.estimator).__name__} has a fit of its own, which is given all of X; fits "
            "to halves of the rows need the package's. Use an estimator of daskclust on data "
            "prepared beforehand."
        )
    jobs = []
    for value in values:
        jobs.append(Job(partial(grid.fit, value)))
        for draw in range(n_draws):
            own = _with_seed(grid, draw)
            view = Subsampled(SHARE, grid.seed, draw)
            jobs.append(Job(partial(own.fit, value), (view,)))
    models = grid.run(jobs)
    step = 1 + n_draws
    groups = [models[i : i + step] for i in range(0, len(models), step)]
    requests = [
        AgreementRequest(Labels.of(one), tuple(Labels.of(other) for other in others), int(value))
        for value, (one, *others) in zip(values, groups, strict=True)
    ]
    tables = grid.run([Job(methodcaller("reduce", AGREEMENT, one)) for one in requests])
    return [
        Halves(one, tuple(others), table)
        for (one, *others), table in zip(groups, tables, strict=True)
    ]


def _with_seed(grid: Grid, draw: int) -> Grid:
    """Return the grid with another random state: the same start would look like stability."""
    model = clone(grid.estimator)
    if "random_state" in model.get_params():
        seeds = np.random.SeedSequence([grid.seed, draw]).generate_state(1)
        model.set_params(random_state=int(seeds[0]))
    return replace(grid, estimator=model)


@dataclass(frozen=True)
class Stability:
    """Agreement of a fit with fits to random halves; made by :func:`stability`.

    Attributes
    ----------
    score : float
        Mean of ``agreement``.
    agreement : ndarray of shape (n_draws,), float64
        Adjusted Rand index of each half's fit with the fit to all rows, over all rows.
    rows : ndarray or dask.array.Array of shape (n,), float64
        For each row the share of the halves in which it has the cluster that matches its
        own.  Lazy, and chunked like X, for Dask input.
    estimator : estimator
        Fitted to all rows.
    passes : int
        Over the data.
    """

    score: float
    agreement: Floats
    rows: Any = field(repr=False)
    estimator: Any = field(repr=False)
    passes: int


@dataclass(frozen=True)
class _Share:
    """Share of the fits in which rows have the matching cluster; travels to the workers."""

    reference: Labels
    others: tuple[Labels, ...]
    matches: tuple[Ints, ...]

    def __call__(self, x: NDArray[Any], start: int) -> Floats:
        if not len(x):
            return np.empty(0)
        own = self.reference(x)
        same = [
            match[other(x)] == own for other, match in zip(self.others, self.matches, strict=True)
        ]
        return np.mean(same, axis=0, dtype=np.float64)


def stability(estimator: Any, X: Any, *, n_draws: int = 10, random_state: Any = None) -> Stability:
    """Measure how far a clustering depends on which rows it has seen, and on its start.

    The estimator is fitted to all rows, and to random halves of them with other random states;
    all fits share their passes.  Clusters of a half are matched with those of the whole so that
    most rows agree.

    Parameters
    ----------
    estimator : estimator of this package with ``n_clusters`` (or ``n_components``)
        Unfitted; cloned for each fit.
    X : array-like, dask.array.Array, DataFrame or xarray.DataArray of shape (n, p)
    n_draws : int, default=10
        Halves.
    random_state : int, RandomState, Generator or None, default=None
        An int gives the same result for any chunks, scheduler and number of workers.

    Returns
    -------
    Stability

    Raises
    ------
    ValueError
        For an estimator without ``predict`` or with a ``fit`` of the user's own, and what the
        fits raise.

    See Also
    --------
    choose_n_clusters : With ``criterion="stability"``, over a grid.

    Notes
    -----
    A stable clustering need not be right: few clusters are often more stable than the true
    number, and a fit that fails in the same way each time is stable, too.

    *Passes*: those of the longest fit, and one; one more each time that ``rows`` is computed.
    *Memory* of a worker thread: that of one fit, times ``n_draws + 1``.

    Examples
    --------
    >>> import numpy as np
    >>> import daskclust
    >>> from daskclust.selection import stability
    >>> X = np.repeat([[0.0], [5.0], [9.0]], 20, axis=0) + np.random.default_rng(0).random((60, 1))
    >>> found = stability(daskclust.KMeans(3), X, random_state=0)
    >>> found.score, found.rows.shape
    (1.0, (60,))
    """
    check_integer(n_draws, "n_draws", 2)
    if not hasattr(estimator, "predict"):
        raise ValueError(
            f"estimator={estimator!r} has no predict; expected an unfitted estimator of daskclust "
            "that labels new rows, such as daskclust.KMeans(3)."
        )
    parameter = "n_components" if hasattr(estimator, "n_components") else "n_clusters"
    grid = open_grid(estimator, X, parameter, random_state)
    value = int(getattr(estimator, parameter))
    (found,) = fit_halves(grid, [value], int(n_draws))
    matches = []
    for table in found.tables:
        own, other = linear_sum_assignment(-table)
        match = np.empty(value, np.int64)
        match[other] = own
        matches.append(match)
    share = _Share(
        Labels.of(found.estimator),
        tuple(Labels.of(other) for other in found.others),
        tuple(matches),
    )
    data = grid.data
    lengths = data.rows.lengths if is_dask(data.X) else None
    rows = map_rows(data.X, share, dtype=np.float64, lengths=lengths, name="stability")
    agreement = found.agreement
    return Stability(float(agreement.mean()), agreement, rows, found.estimator, data.rows.passes)

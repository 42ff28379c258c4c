"""How stable a clustering is, as a whole and row by row."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from daskclust._types import Floats, Ints
from daskclust.engine import is_dask, map_rows
from daskclust.estimator.parameters import check_integer
from daskclust.selection._grid import open_grid
from daskclust.selection._halves import Labels, fit_halves


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
        With an int the result does not depend on the chunks, the scheduler or the number of
        workers.

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

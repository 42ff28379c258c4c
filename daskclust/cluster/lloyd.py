"""One iteration of Lloyd's algorithm for several restarts at once, and repairs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from daskclust.engine import Rows, Step
from daskclust.estimator.spaces import Metric
from daskclust.reduction import (
    ASSIGN,
    FARTHEST,
    CenterSets,
    ClassStatistics,
    ClusterStatistics,
    FarthestRequest,
)

__all__ = [
    "LloydState",
    "first_least",
    "found_clusters",
    "lloyd_step",
    "means",
    "relocate_empty",
    "settle",
]

Float = NDArray[np.float64]
#: Farthest rows asked for, for each empty cluster: some may be unfit.
_SPARE = 4


#: Inertias that differ by less, relatively, are those of the same clusters.
_SAME = 1e-9


def first_least(inertia: Sequence[float] | Float) -> int:
    """Return the number of the first try whose inertia is the least, but for rounding.

    Tries often end in the same clusters, numbered differently; the last bits of
    their sums depend on the chunks and must not choose between them.

    Examples
    --------
    >>> first_least([3.0, 2.0 + 1e-12, 2.0])
    1
    """
    costs = np.asarray(inertia)
    return int(np.flatnonzero(costs <= costs.min() * (1 + _SAME))[0])


@dataclass(frozen=True)
class LloydState:
    """All restarts of one fit.

    Attributes
    ----------
    centers : ndarray of shape (r, k, p), float64
    inertia : ndarray of shape (r,), float64
        Of the last assignment; of the present centers where ``settled``.
    converged : ndarray of shape (r,), bool
        Whether the restart moves no more than the tolerance.
    settled : ndarray of shape (r,), bool
        Whether it does not move at all: labels, centers and inertia agree.
    n_iter : ndarray of shape (r,), int
    """

    shapes: ClassVar[Mapping[str, str]] = {
        "centers": "f r k p",
        "inertia": "f r",
        "converged": "b r",
        "settled": "b r",
        "n_iter": "i r",
    }

    centers: Float
    inertia: Float
    converged: NDArray[np.bool_]
    settled: NDArray[np.bool_]
    n_iter: NDArray[np.int64]

    @classmethod
    def begin(cls, centers: Float) -> LloydState:
        """Return the state before the first iteration."""
        r = len(centers)
        return cls(
            centers,
            np.full(r, np.inf),
            np.zeros(r, bool),
            np.zeros(r, bool),
            np.zeros(r, np.int64),
        )


def relocate_empty(
    rows: Rows,
    centers: Float,
    sums: Float,
    counts: Float,
    *,
    feature_weights: Float | None = None,
    shift: Float | None = None,
) -> tuple[Float, Float]:
    """Give empty clusters the rows farthest from their centers.

    Parameters
    ----------
    rows : Rows
    centers : ndarray of shape (k, p), float64
        By which rows were assigned.
    sums, counts : ndarray of shape (k, p) and (k,), float64
        Statistics of that assignment.
    feature_weights, shift
        As in :class:`daskclust.reduction.CenterSets`.

    Returns
    -------
    sums, counts : ndarray
        With each empty cluster made of one row (ties by row number), taken from
        the cluster it was in.  A cluster stays empty where every row lies on
        its center: there are fewer distinct rows than clusters.

    Notes
    -----
    One pass, only when a cluster is empty.
    """
    empty = np.flatnonzero(counts <= 0)
    if not len(empty):
        return sums, counts
    request = FarthestRequest(centers, _SPARE * len(empty), feature_weights, shift)
    far = rows.reduce(FARTHEST, request)["x"]
    return found_clusters(sums, counts, ((v[:-2], v[-2], int(v[-1])) for v in far))


def found_clusters(
    sums: Float, counts: Float, founders: Iterable[tuple[Float, float, int]]
) -> tuple[Float, Float]:
    """Make each empty cluster of one row, taken from the cluster it was in.

    Parameters
    ----------
    sums, counts : ndarray of shape (k, p) and (k,), float64
    founders : iterable of (row, weight, cluster)
        Best first; the only row of a cluster is passed over.

    Returns
    -------
    sums, counts : ndarray
        New arrays; clusters stay empty where there are too few founders.
    """
    sums, counts = sums.copy(), counts.copy()
    waiting = np.flatnonzero(counts <= 0).tolist()
    for row, weight, donor in founders:
        if not waiting:
            break
        if counts[donor] <= weight:
            # The only row of its cluster: moving it would empty that one.
            continue
        k = waiting.pop(0)
        sums[k], counts[k] = weight * row, weight
        sums[donor] -= sums[k]
        counts[donor] -= weight
    return sums, counts


def means(centers: Float, sums: Float, counts: Float) -> Float:
    """Means of the clusters; a cluster without rows keeps its center."""
    filled = counts > 0
    moved = centers.copy()
    moved[filled] = sums[filled] / counts[filled, None]
    return moved


def _assign(
    rows: Rows, centers: Float, shift: Float | None, clamped: ClassStatistics | None
) -> ClusterStatistics:
    stats: ClusterStatistics = rows.reduce(ASSIGN, CenterSets(centers, shift=shift))
    return stats if clamped is None else clamped.joined(stats, centers)


def lloyd_step(
    rows: Rows,
    metric: Metric,
    tolerance: float,
    shift: Float | None,
    state: LloydState,
    *,
    clamped: ClassStatistics | None = None,
) -> Step[LloydState]:
    """Assign all rows and move the centers of the restarts that still move.

    Parameters
    ----------
    rows : Rows
        Those that are assigned to the nearest center.
    metric : Metric
    tolerance : float
        Squared shift of all centers of a restart up to which it has converged.
    shift : ndarray of shape (p,), optional
        A point amid the data.
    state : LloydState
    clamped : ClassStatistics, optional
        Of more rows, which belong to a cluster whatever their distance.
    """
    active = np.flatnonzero(~state.converged)
    stats = _assign(rows, state.centers[active], shift, clamped)
    centers, inertia = state.centers.copy(), state.inertia.copy()
    converged, settled = state.converged.copy(), state.settled.copy()
    n_iter = state.n_iter.copy()
    shifts: list[Any] = []
    for at, r in enumerate(active):
        sums, counts = relocate_empty(
            rows, state.centers[r], stats.sums[at], stats.counts[at], shift=shift
        )
        centers[r] = metric.project(means(state.centers[r], sums, counts))
        inertia[r] = stats.inertia[at].sum()
        moved = float(((centers[r] - state.centers[r]) ** 2).sum())
        shifts.append(moved)
        settled[r] = moved == 0.0
        converged[r] = moved <= tolerance
        n_iter[r] += 1
    return Step(
        state=LloydState(centers, inertia, converged, settled, n_iter),
        objective=float(inertia.min()),
        center_shift=float(np.sqrt(max(shifts))),
        finished=bool(converged.all()),
    )


def settle(
    rows: Rows, shift: Float | None, state: LloydState, *, clamped: ClassStatistics | None = None
) -> LloydState:
    """Make the inertia that of the present centers: a last E-step where centers moved."""
    loose = np.flatnonzero(~state.settled)
    if not len(loose):
        return state
    stats = _assign(rows, state.centers[loose], shift, clamped)
    inertia = state.inertia.copy()
    inertia[loose] = stats.inertia.sum(axis=1)
    return replace(state, inertia=inertia)

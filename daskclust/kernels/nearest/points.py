"""Lloyd's iterations over a few weighted points, as those that a start has drawn."""

from __future__ import annotations

from typing import Any

from daskclust._types import Floats
from daskclust.kernels.compiling import compiled
from daskclust.kernels.nearest.assign import check_rows, no_statistics
from daskclust.kernels.nearest.implementation import sweeps

__all__ = ["cluster_points"]


@compiled(counted=False)
def _move(hi: Any, lo: Any, n_fixed: int, centers: Any) -> bool:
    """Move centers to the means of their points; return whether one has moved."""
    p = centers.shape[1]
    moved = False
    for c in range(n_fixed, centers.shape[0]):
        weight = hi[c, p] + lo[c, p]
        if weight > 0.0:
            for j in range(p):
                mean = (hi[c, j] + lo[c, j]) / weight
                moved |= mean != centers[c, j]
                centers[c, j] = mean
    return moved


def cluster_points(
    points: Floats,
    mass: Floats,
    centers: Floats,
    *,
    max_iter: int,
    shift: Floats,
    n_fixed: int = 0,
) -> tuple[Floats, float]:
    """Move centers until none of a few weighted points changes its cluster.

    Parameters
    ----------
    points : ndarray of shape (m, p), float64
    mass : ndarray of shape (m,), float64
        Weights; points of weight 0 are left out.
    centers : ndarray of shape (k, p), float64
    max_iter : int, at least 1
    shift : ndarray of shape (p,), float64
        A point amid the others.
    n_fixed : int, default=0
        So many centers, the first, stay where they are; and so do those without points.

    Returns
    -------
    centers : ndarray of shape (k, p), float64
    cost : float
        Weighted squared distances to the nearest of the last centers that were compared: of those
        returned, but for ``max_iter``.

    Notes
    -----
    Cost ``O(m k p)`` an iteration, in one thread.

    Examples
    --------
    >>> import numpy as np
    >>> points = np.array([[0.0], [1.0], [9.0]])
    >>> cluster_points(
    ...     points, np.ones(3), np.array([[0.0], [1.0]]), max_iter=9, shift=np.zeros(1)
    ... )
    (array([[0.5],
           [9. ]]), 0.5)
    """
    points, centers = check_rows(points, centers, shift=shift)
    if len(mass) != len(points):
        raise ValueError(f"{len(points)} points have {len(mass)} weights.")
    centers = centers.copy()
    stats = no_statistics(*centers.shape)
    sweep = sweeps(points, mass, centers, shift, stats)
    for _ in range(max_iter):
        sweep()
        if not _move(stats.hi, stats.lo, n_fixed, centers):
            break
    return centers, float((stats.hi[:, -1] + stats.lo[:, -1]).sum())

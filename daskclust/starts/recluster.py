"""Candidates of k-means|| on the client: few weighted points, clustered to centers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from daskclust.estimator.restarts import best_restart
from daskclust.kernels.nearest.assign import accumulate
from daskclust.kernels.starts.d2_sampling import draw_apart

__all__ = ["recluster"]

Float = NDArray[np.float64]

#: Iterations of weighted Lloyd on the candidates; they are few and it converges fast.
_RECLUSTER_ITER = 100
#: Runs on the candidates, of which the best is kept; fewer where candidates times k is large.
_RECLUSTER_TRIES = 8
_RECLUSTER_WORK = 20_000_000


def _in_order(points: Float, mass: Float, n_fixed: int) -> tuple[Float, Float]:
    """Sort candidates, but for the fixed ones, by their values.

    Where there are as many candidates as distinct rows, nothing then shows which
    rows were drawn when, and integer weights equal repetition to the last bit.
    """
    order = n_fixed + np.lexsort(points[n_fixed:].T[::-1])
    order = np.concatenate([np.arange(n_fixed), order])
    return points[order], mass[order]


def recluster(points: Float, mass: Float, k: int, seed: int, n_fixed: int = 0) -> Float:
    """Cluster weighted candidates to at most k centers: weighted k-means++, then Lloyd.

    Parameters
    ----------
    points : ndarray of shape (m, p), float64
        Distinct candidates.
    mass : ndarray of shape (m,), float64
        Weight that each attracts.
    k : int
    seed : int
    n_fixed : int, default=0
        How many of the candidates, from the first, are centers that do not move.

    Returns
    -------
    ndarray of shape (min(k, m), p), float64
    """
    if len(points) <= k:
        return points
    used = (mass > 0) | (np.arange(len(mass)) < n_fixed)
    if used.sum() <= k:
        # Candidates nobody is nearest to are still better than repeated ones.
        return np.concatenate([points[used], points[~used]])[:k]
    points, mass = _in_order(points[used], mass[used], n_fixed)
    tries = max(1, min(_RECLUSTER_TRIES, _RECLUSTER_WORK // (len(points) * k)))
    found = [
        _cluster_candidates(points, mass, k, int(word), n_fixed)
        for word in np.random.SeedSequence(seed).generate_state(tries)
    ]
    return found[best_restart([cost for _, cost in found])][0]


def _cluster_candidates(
    points: Float, mass: Float, k: int, seed: int, n_fixed: int
) -> tuple[Float, float]:
    """Return k centers of weighted points, and the weighted squared distances to them."""
    p = points.shape[1]
    center = np.average(points, axis=0, weights=mass)
    uniforms = np.zeros(k)
    uniforms[n_fixed:] = np.random.Generator(np.random.Philox(seed)).random(k - n_fixed)
    centers = points[draw_apart(points, mass, k, uniforms, n_fixed)]
    for _ in range(_RECLUSTER_ITER):
        stats = accumulate(points, centers, weight=mass, shift=center)
        total = stats.hi + stats.lo
        filled = total[:, p] > 0
        filled[:n_fixed] = False
        moved = centers.copy()
        moved[filled] = total[filled, :p] / total[filled, p : p + 1]
        if np.array_equal(moved, centers):
            break
        centers = moved
    return centers, float(total[:, p + 1].sum())

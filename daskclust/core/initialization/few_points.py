"""Clustering of a few weighted points in memory."""

from __future__ import annotations

from functools import partial

import numpy as np

from daskclust.core.array_types import Floats
from daskclust.core.engine import side_by_side
from daskclust.core.estimator.fit_loop import best_restart
from daskclust.core.initialization.samples import is_large
from daskclust.core.kernels.draws import draw_apart, draw_greedy, in_tiles, n_draws
from daskclust.core.kernels.nearest.assign import cluster_points

#: Maximum number of iterations of weighted Lloyd on few points, and for large ``k p``.
_MAX_ITER, _LARGE_MAX_ITER = 100, 10
#: Maximum number of runs on few points, and maximum total of points times k of the runs.
_TRIES, _WORK = 8, 20_000_000
#: Points times k times features from which threads are used.
_THREADING = 2**16


def choose_among(points: Floats, mass: Floats, k: int, seed: int) -> Floats:
    """Choose min(k, m) distinct points (m, p) by greedy k-means++, weighted by `mass` (m,)."""
    used = _used_points(points, mass, k)
    if used is None:
        return _first_points(points, mass, k)
    points, mass = used
    uniforms = np.random.Generator(np.random.Philox(seed)).random((k, n_draws(k)))
    return points[draw_greedy(in_tiles(points, mass), k, uniforms)]


def cluster_few(points: Floats, mass: Floats, k: int, seed: int) -> Floats:
    """Cluster weighted points to (min(k, m), p): weighted k-means++, then Lloyd."""
    used = _used_points(points, mass, k)
    if used is None:
        return _first_points(points, mass, k)
    points, mass = used
    work = len(points) * k
    tries = max(1, min(_TRIES, _WORK // work))
    center = np.average(points, axis=0, weights=mass)

    def attempt(word: int) -> tuple[Floats, float]:
        uniforms = np.random.Generator(np.random.Philox(word)).random(k)
        drawn = points[draw_apart(points, mass, k, uniforms)]
        n_iterations = _LARGE_MAX_ITER if is_large(*drawn.shape) else _MAX_ITER
        return cluster_points(points, mass, drawn, max_iter=n_iterations, shift=center)

    words = np.random.SeedSequence(seed).generate_state(tries).tolist()
    calls = [partial(attempt, word) for word in words]
    is_large_problem = work * points.shape[1] >= _THREADING
    results = side_by_side(calls) if is_large_problem else [call() for call in calls]
    return results[best_restart([cost for _, cost in results])][0]


def _used_points(points: Floats, mass: Floats, k: int) -> tuple[Floats, Floats] | None:
    """Return the points with weight, and their weights; None if there are at most k of them.

    They are sorted by value, so that results do not depend on the order of draws.
    """
    used = mass > 0
    if len(points) <= k or used.sum() <= k:
        return None
    points, mass = points[used], mass[used]
    order = np.lexsort(points.T[::-1])
    return points[order], mass[order]


def _first_points(points: Floats, mass: Floats, k: int) -> Floats:
    """Return at most k points, those with a positive weight first."""
    if len(points) <= k:
        return points
    # Points without rows are still better than repeated points.
    return np.concatenate([points[mass > 0], points[mass <= 0]])[:k]

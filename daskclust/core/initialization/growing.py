"""Initial centers by k-means on samples that grow.

A center that averages many rows is nearer to any row than a center that is a single row, or the
mean of a few: in many dimensions the squared distances are about ``p (1 + 1 / m)`` for the mean of
m rows.  So the centers of one set must be comparable.  Here all of them start as rows and are
iterated on rows.

Early iterations do not need all rows: the squared error of the mean of m sampled rows is of the
order ``1 / m``.  So several sets of centers are tried on a small part of a uniform sample, and
the worse half is dropped after a few iterations.  When the centers move less than this error, the
part is doubled.  A uniform sample contains few outliers, which may cause most of the inertia, so
the farthest rows are added to every part.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray

from daskclust.core.array_types import Array, Floats, Ints
from daskclust.core.engine import Rows, open_rows, side_by_side, without_passes
from daskclust.core.initialization.problem import Initialization
from daskclust.core.initialization.samples import MANY, NARROW, Sample, filled, first_rows
from daskclust.core.initialization.steps import MOMENTUM, LloydStep
from daskclust.core.initialization.swaps import (
    CHEAP,
    WeightedRows,
    improve_by_swaps,
    products_per_swap,
)
from daskclust.core.kernels.blas import one_blas_thread
from daskclust.core.kernels.draws import (
    draw_greedy,
    draw_in_batches,
    in_tiles,
    in_wide_tiles,
    n_draws,
)
from daskclust.core.reduction import ASSIGN, CenterSets

#: Maximum squared shift that counts as noise, as a fraction of the squared standard error.
_SHARE = 0.1
#: Iterations on a part before the first one with momentum: most parts take few iterations.
_PLAIN = 2
#: Iterations on a part after which the worse half of the tries is dropped.
_TRIAL = 4
#: Maximum number of iterations on a part, for any ``max_iter``, so that a resumed fit starts at the
#: same centers.
_MAX_ITER = 300
#: Lower bound for cluster weights, smaller than any real weight.
_TINY = 1e-140
#: Maximum number of tries of a restart, maximum of rows times centers of all its tries together,
#: and iterations of each try before the worse half is dropped.
_TRIES, _WORK, _TRIAL_ITERATIONS = 8, 2**20, 2
#: Maximum cost of swaps of centers, in passes over all rows.
_SWAP_PASSES = 4
#: Maximum number of sets that are improved by swaps, and number of swaps of each that is cheap.
_IMPROVED, _SWAPS = 4, 20
#: Number of principal directions in addition to two per cluster, because noise may have a larger
#: variance than the clusters, and minimum number of features per direction for using them.
_SPARE_DIRECTIONS, _MUCH_WIDER = 8, 1.5
#: Iterations of the search for principal directions.
_SUBSPACE_ITERATIONS = 4
#: Passes over all rows that greedy draws from the sample may take if ``k p`` is large.
_DRAW_PASSES = 3
#: Time of a draw of narrow rows, in registers, relative to a pass with as many multiplications.
_SLOWER = 1.5
#: Multiplications up to which an iteration on the sample has the precision of the rows: compiling
#: kernels for a second precision takes seconds.
_SMALL = 2**18
#: Words that separate the random numbers of the tries from those of other draws.
_OF_TRIES, _OF_DIRECTIONS = 2**33 + 1, 2**33 + 2


def draw_tries(
    sample: Sample,
    k: int,
    seed: int,
    mean: Floats,
    *,
    count: int,
    candidates: Floats,
    known: Floats,
) -> list[Floats]:
    """Find sets of centers for one restart on the first part of the sample.

    Centers are drawn by greedy k-means++, iterated, and improved by swaps.  If rows have many more
    features than ``2 k + 8``, this is done in the space of that many principal directions.  For
    many centers, only one set is drawn, in the time of at most three passes over all rows.

    Parameters
    ----------
    sample : Sample
        Rows to draw from.
    k : int
        Number of centers of a set.  A set has fewer if the rows have fewer distinct values.
    seed : int
        Seed of the restart.
    mean : ndarray of shape (p,)
        Replaces missing values.
    count : int
        Number of sampled rows to draw from, without the farthest ones.
    candidates : ndarray of shape (m, p)
        Additional rows to draw from.
    known : ndarray of shape (f, p)
        Known centers.  Every second set starts with them.

    Returns
    -------
    list of ndarray of shape (<= k, p), float64
    """
    part, weight, _ = sample.part(min(count, sample.n_drawn))
    rows = filled(part, mean) if np.isnan(part).any() else part
    n_more = len(known) + len(candidates)
    if n_more:
        rows = np.concatenate([known, candidates, rows])
        weight = np.append(np.full(n_more, weight.sum() / sample.n_rows), weight)
    if k < MANY:
        return _improved_sets(rows, weight, k, seed, len(known), sample.n_rows)
    slowdown = 1.0 if rows.shape[1] >= NARROW else _SLOWER
    max_draws = max(2, int(_DRAW_PASSES * sample.n_rows / (slowdown * len(rows))))
    n_sets = 2 if len(known) else 1
    sets = _greedy_sets(rows, weight, k, seed, n_sets, min(n_draws(k), max_draws), len(known))
    return [rows[positions].astype(np.float64) for positions in sets]


def _improved_sets(
    rows: Array, weight: Floats, k: int, seed: int, n_known: int, n_rows: int
) -> list[Floats]:
    """Draw sets of centers from weighted rows, (m, p); return the best one after swaps.

    The first `n_known` rows are known centers.  `n_rows` is the number of rows of the data.
    """
    p = rows.shape[1]
    n_directions = 2 * k + _SPARE_DIRECTIONS
    narrow = p > _MUCH_WIDER * n_directions
    # About the mean and scaled to size 1, single precision is sufficient.
    origin = (weight / weight.sum()) @ rows
    z = rows - origin
    extent = float(max(z.max(initial=0.0), -z.min(initial=0.0))) or 1.0
    z = (z / extent).astype(np.float32)
    directions = _principal(z, weight, n_directions, seed) if narrow else None
    points = z
    if directions is not None:
        # Double precision, so that equal rows stay equal after rounding.
        points = (z @ directions.astype(np.float64)).astype(np.float32)
    n_sets = max(2, min(_TRIES, _WORK // (first_rows(k) * k)))
    drawn = _greedy_sets(points, weight, k, seed, n_sets, n_draws(k), n_known)
    if min(map(len, drawn)) < k:
        return [rows[min(drawn, key=len)].astype(np.float64)]
    if points.size * k <= _SMALL:
        points = points.astype(rows.dtype)
    inside = WeightedRows(points, weight, weight @ points / weight.sum())
    sets = [points[positions].astype(np.float64) for positions in drawn]
    best = _best_after_swaps(inside, sets, max(CHEAP, _SWAP_PASSES * n_rows * k * p))
    if directions is not None:
        best = best @ directions.T
    return [best * extent + origin]


def _best_after_swaps(rows: WeightedRows, sets: list[Floats], n_products: int) -> Floats:
    """Iterate sets of centers (k, p), and improve the best of them by swaps; return the best set.

    All swaps together take about `n_products` multiplications.
    """
    k = len(sets[0])
    n_improved = max(1, min(_IMPROVED, CHEAP // (_SWAPS * products_per_swap(rows.x, k))))
    while len(sets) > n_improved:
        results = side_by_side([partial(rows.iterate, c, _TRIAL_ITERATIONS) for c in sets])
        n_better = max(n_improved, len(sets) // 2)
        sets = [results[t][0] for t in _best_first([cost for _, cost in results])[:n_better]]
    improved = side_by_side(
        [partial(improve_by_swaps, rows, centers, n_products // n_improved) for centers in sets]
    )
    return improved[_best_first([cost for _, cost in improved])[0]][0]


def _principal(z: Array, weight: Floats, n: int, seed: int) -> Array:
    """Return `n` orthonormal directions of large variance of weighted rows (m, p) about 0, (p, n).

    Randomized subspace iteration (Halko, Martinsson and Tropp 2011); cost ``O(m p n)``.
    """
    mass = (weight / weight.max()).astype(z.dtype)[:, None]
    rng = np.random.default_rng([seed, _OF_DIRECTIONS])
    basis = rng.standard_normal((z.shape[1], n), z.dtype)
    with one_blas_thread():
        for _ in range(_SUBSPACE_ITERATIONS):
            basis, _ = np.linalg.qr(z.T @ (mass * (z @ basis)))
    return np.asarray(basis)


def _greedy_sets(
    points: Array, mass: Floats, k: int, seed: int, n_sets: int, n_draws_each: int, n_first: int = 0
) -> list[NDArray[np.intp]]:
    """Draw sets of k positions by greedy k-means++.

    Sets 0, 2, ... start with the first `n_first` points.
    """
    streams = [np.random.default_rng([seed, _OF_TRIES, t]) for t in range(n_sets)]
    firsts = [0 if t % 2 else n_first for t in range(n_sets)]
    if points.shape[1] >= NARROW:
        wide = in_wide_tiles(points, mass)
        return [
            draw_in_batches(wide, k, n_draws_each, rng, side_by_side, first)
            for rng, first in zip(streams, firsts, strict=True)
        ]
    tiles = in_tiles(points, mass)
    return [
        draw_greedy(tiles, k, rng.random((k, n_draws_each)), first)
        for rng, first in zip(streams, firsts, strict=True)
    ]


def _best_first(costs: list[float]) -> NDArray[np.intp]:
    """Order sets by cost; costs that are equal in single precision keep their order."""
    relative = np.asarray(costs) / max(min(costs), _TINY)
    return np.argsort(np.round(relative, 5), kind="stable")


def grow(problem: Initialization, tries: Floats, sample: Sample) -> Floats:
    """Improve the tries (r, t, k, p) of each restart on doubling parts; return the best, (r, k, p).

    The sample is in the space of the metric.  No other rows are read.
    """
    r, _, k, p = tries.shape
    sizes = [sample.n_drawn]
    while sizes[-1] // 2 > 0.75 * min(first_rows(k), sample.n_drawn):
        sizes.append(sizes[-1] // 2)
    for size in reversed(sizes):
        x, weight, spread = sample.part(size)
        rows = open_rows(x, weight, n_clusters=k)
        with without_passes():
            settled, inertia = _settle(problem, rows, tries.reshape(-1, k, p), spread, r)
        last = size == sample.n_drawn
        selected = _ranked(inertia, r)[:, :1] if last else _better_half(inertia, r)
        tries = settled[selected]
    return tries[:, 0]


def _settle(
    problem: Initialization, rows: Rows, centers: Floats, spread: float, n_restarts: int
) -> tuple[Floats, Floats]:
    """Iterate each set until its shifts are below the noise; return centers and inertia.

    ``spread`` is the squared weight of the sampled rows divided by their weight.
    """
    step = LloydStep(rows, problem.metric, problem.shift, MOMENTUM, _PLAIN)
    centers, points = centers.copy(), centers.copy()
    inertia = np.full(len(centers), np.inf)
    moving = list(range(len(centers)))
    for n_iter in range(1, _MAX_ITER + 1):
        state = CenterSets(points[moving], shift=problem.shift, missing=problem.missing)
        stats = rows.reduce(ASSIGN, state)
        moving_next = []
        for i, s in enumerate(moving):
            means, _, before = step.means(points[s], centers[s], stats, i)
            squared = ((means - points[s]) ** 2).sum(axis=1)
            noise = spread * stats.inertia[i] / np.maximum(stats.counts[i], _TINY) ** 2
            # Each cluster has its own noise: the noise of a few far rows would hide the others.
            relative = np.divide(
                squared, noise, out=np.where(squared > 0, np.inf, 0.0), where=noise > 0
            )
            centers[s], inertia[s] = means, stats.inertia[i].sum()
            points[s] = step.ahead(before, means, n_iter)
            if relative.mean() > _SHARE and squared.sum() > problem.max_shift:
                moving_next.append(s)
        moving = moving_next
        if n_iter == _TRIAL:
            better = set(_better_half(inertia, n_restarts).ravel().tolist())
            moving = [s for s in moving if s in better]
        if not moving:
            break
    return centers, inertia


def _ranked(inertia: Floats, n_restarts: int) -> Ints:
    """Return the positions of each restart's sets, best first, (r, t)."""
    costs = inertia.reshape(n_restarts, -1)
    # Rounding must not decide between equal solutions with other cluster numbers.
    costs = np.round(costs / np.maximum(costs.min(axis=1, keepdims=True), _TINY), 9)
    first = np.arange(0, inertia.size, costs.shape[1])
    return first[:, None] + np.argsort(costs, axis=1, kind="stable")


def _better_half(inertia: Floats, n_restarts: int) -> Ints:
    ranked = _ranked(inertia, n_restarts)
    return ranked[:, : -(-ranked.shape[1] // 2)]

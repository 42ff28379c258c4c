"""Lloyd's algorithm on growing samples, before it runs on all rows.

Early iterations do not need all rows: the squared error of the mean of m sampled rows is
of the order ``1 / m``.  So one uniform sample is fetched, and several starts are tried on
a small part of it, of which the worse half is dropped after a few iterations.  When the centers
move less than this sampling error, the part is doubled.  Then Lloyd iterations run on all rows,
to the same tolerance.  In both, after a few iterations, centers move with momentum
(:data:`MOMENTUM`); the final centers are means.

A uniform sample contains few of the outliers, which may cause most of the inertia.  So
the farthest rows are all taken, and the sample represents the other rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from daskclust._types import Floats
from daskclust.cluster.lloyd import LloydProblem
from daskclust.engine import open_rows
from daskclust.kernels.starts.greedy import draw_greedy, in_tiles, n_draws
from daskclust.reduction import ASSIGN, CenterSets
from daskclust.starts.samples import Sample, draw_sample, filled, first_rows

__all__ = [
    "MOMENTUM",
    "greedy_tries",
    "grown",
    "nested_start",
]


#: How far centers go on, as a share of their last move: about half as many iterations where many
#: rows lie between clusters.
MOMENTUM = 0.9
#: Squared moves, over the squared standard errors of the means, that are lost in noise.
_SHARE = 0.1
#: Iterations on a part before the first with momentum: most parts take few.
_PLAIN = 2
#: Iterations on a part after which the worse half of the tries is dropped: few of them would win.
_TRIAL = 4
#: Iterations on a part at most, whatever ``max_iter``: fits that go on where others were cut off
#: must begin at the same centers.
_MOST = 300
#: Below any weight of a cluster.
_TINY = 1e-140
#: Tries of a restart; fewer where rows times centers are many.
_TRIES, _WORK = 8, 2**20
#: Draws of their own, beside those of the start and the sample.
_OF_TRIES = 2**33 + 1


def greedy_tries(
    sample: Sample, candidates: Floats, k: int, seed: int, mean: Floats
) -> Floats | None:
    """Draw several starts by greedy k-means++ from candidates and a part of the sample.

    Candidates are rows far apart, so that small clusters without a sampled row have some,
    too.

    Parameters
    ----------
    sample : Sample
    candidates : ndarray of shape (m, p), float64
    k, seed : int
    mean : ndarray of shape (p,)
        Values that replace missing values of rows.

    Returns
    -------
    ndarray of shape (t, k, p), float64, or None
        None where the part has fewer than k distinct rows.
    """
    part, weight, _ = sample.part(first_rows(k))
    points = np.concatenate([candidates, filled(part, mean)])
    each = np.full(len(candidates), weight.sum() / sample.n_rows)
    mass = np.concatenate([each, weight])
    tiles, found = in_tiles(points, mass), []
    for t in range(max(1, min(_TRIES, _WORK // (first_rows(k) * k)))):
        uniforms = np.random.default_rng([seed, _OF_TRIES, t]).random((k, n_draws(k)))
        places = draw_greedy(tiles, k, uniforms)
        if len(places) < k:
            return None
        found.append(points[places])
    return np.stack(found)


def _settled(
    level: LloydProblem, centers: Floats, spread: float, n_restarts: int
) -> tuple[Floats, Floats]:
    """Iterate each set until its moves drown in noise; return centers and inertia.

    After some iterations, only the better half of each restart's sets goes on.  ``spread`` is the
    squared weight of the drawn rows over their weight.
    """
    centers, points = centers.copy(), centers.copy()
    inertia = np.full(len(centers), np.inf)
    moving = list(range(len(centers)))
    for n_iter in range(1, _MOST + 1):
        state = CenterSets(points[moving], shift=level.shift, missing=level.missing)
        stats = level.rows.reduce(ASSIGN, state)
        still = []
        for at, s in enumerate(moving):
            moved, _ = level.moved(points[s], stats, at)
            squared = ((moved - points[s]) ** 2).sum(axis=1)
            noise = spread * stats.inertia[at] / np.maximum(stats.counts[at], _TINY) ** 2
            # Each cluster by its own noise: that of a few far rows would hide all the others.
            share = np.divide(
                squared, noise, out=np.where(squared > 0, np.inf, 0.0), where=noise > 0
            )
            before = level.behind(points[s], centers[s], moved, stats.counts[at])
            centers[s], inertia[s] = moved, stats.inertia[at].sum()
            points[s] = level.ahead(before, moved, n_iter)
            if share.mean() > _SHARE and squared.sum() > level.tolerance:
                still.append(s)
        moving = still
        if n_iter == _TRIAL:
            better = set(_better_half(inertia, n_restarts).ravel().tolist())
            moving = [s for s in moving if s in better]
        if not moving:
            break
    return centers, inertia


def _ranked(inertia: Floats, n_restarts: int) -> NDArray[np.intp]:
    """Return the places of each restart's sets, the best first: shape (r, t)."""
    costs = inertia.reshape(n_restarts, -1)
    # Equal solutions, numbered differently, are not chosen between by rounding.
    costs = np.round(costs / np.maximum(costs.min(axis=1, keepdims=True), _TINY), 9)
    first = np.arange(0, inertia.size, costs.shape[1])
    return first[:, None] + np.argsort(costs, axis=1, kind="stable")


def _better_half(inertia: Floats, n_restarts: int) -> NDArray[np.intp]:
    ranked = _ranked(inertia, n_restarts)
    return ranked[:, : -(-ranked.shape[1] // 2)]


def _parts(smallest: int, largest: int) -> list[int]:
    """Sizes that double, from about the smallest up to the largest."""
    sizes = [largest]
    while sizes[0] // 2 > 0.75 * smallest:
        sizes.insert(0, sizes[0] // 2)
    return sizes


def grown(problem: LloydProblem, tries: Sequence[Floats], sample: Sample) -> Floats:
    """Improve the tries of each restart on doubling parts of the sample; keep the best.

    Parameters
    ----------
    problem : LloydProblem
        The problem on all rows; these are not read.
    tries : sequence of ndarray of shape (t, k, p), float64
        One array for each restart, all of the same shape.
    sample : Sample
        Sample in the space of the metric.

    Returns
    -------
    ndarray of shape (r, k, p), float64
    """
    sets = np.stack(tries)
    r, _, k, p = sets.shape
    for size in _parts(min(first_rows(k), sample.n_drawn), sample.n_drawn):
        x, weight, spread = sample.part(size)
        level = replace(problem, rows=open_rows(x, weight, n_clusters=k), n_plain=_PLAIN)
        settled, inertia = _settled(level, sets.reshape(-1, k, p), spread, r)
        last = size == sample.n_drawn
        better = _ranked(inertia, r)[:, :1] if last else _better_half(inertia, r)
        sets = settled[better]
    return sets[:, 0]


def nested_start(
    problem: LloydProblem,
    k: int,
    mean: Floats,
    tries: Callable[[Sample], Sequence[Floats] | None],
    otherwise: Callable[[], Floats],
    total: float,
    seed: int,
) -> Floats:
    """Find starting centers of all restarts on samples.

    Parameters
    ----------
    problem : LloydProblem
        The problem on all rows.
    k, mean, total, seed
        See :func:`draw_sample`.
    tries : callable(sample) -> sequence of ndarray of shape (t, k, p), or None
        Starts to try, for each restart.
    otherwise : callable() -> ndarray of shape (r, k, p)
        Finds the centers if there are no tries, or if most of the weight is in few rows.

    Returns
    -------
    ndarray of shape (r, k, p), float64

    Notes
    -----
    Two passes; all other work is done on the client, on the threads used for NumPy input.
    """
    sample = draw_sample(
        problem.rows, k, mean, total, seed, shift=problem.shift, missing=problem.missing
    )
    if sample.total <= 0 or sample.size < min(first_rows(k), problem.rows.n_rows) / 2:
        return otherwise()
    found = tries(sample)
    return otherwise() if found is None else grown(problem, found, sample)

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
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from daskclust._types import Array, Floats
from daskclust.cluster.lloyd import LloydProblem
from daskclust.engine import Rows, open_rows
from daskclust.kernels.rng import draw_numbers
from daskclust.kernels.starts.greedy import draw_greedy, in_tiles, n_draws
from daskclust.reduction import ASSIGN, FARTHEST, CenterSets, FarthestRequest

__all__ = [
    "MOMENTUM",
    "Sample",
    "draw_sample",
    "greedy_tries",
    "grown",
    "nested_start",
    "pays",
    "sample_rows",
]


#: How far centers go on, as a share of their last move: about half as many iterations where many
#: rows lie between clusters.
MOMENTUM = 0.9
#: Bytes of the sample at most: it lies with the client.
_BYTES = 2**28
#: Rows of the sample, and rows for each cluster, that leave little noise.
_ROWS, _ROWS_EACH = 2**16, 256
#: Rows of the smallest part, and rows for each cluster.
_FIRST, _FIRST_EACH = 2**12, 10
#: Rows, at least, from which others are far.
_USUAL = 16
#: Below so many rows for each cluster the smallest part is all rows.
_LEAST_EACH = 10
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
#: Draws of their own, beside those of the start.
_OF_ROWS, _OF_TRIES = 2**33, 2**33 + 1


def _first(k: int) -> int:
    """Rows of the smallest part."""
    return max(_FIRST, _FIRST_EACH * k)


def _far(rows: Rows, k: int) -> int:
    """Rows that are taken since they are far off."""
    return max(1, min(_first(k) // 4, rows.n_rows // 8))


def sample_rows(rows: Rows, k: int) -> int:
    """Return the size of the sample: at most a quarter of the rows, unless there are few rows."""
    fit = _BYTES // (rows.n_features * rows.dtype.itemsize)
    wanted = min(rows.n_rows // 4, max(_ROWS, _ROWS_EACH * k), fit)
    return min(rows.n_rows, max(wanted, _first(k)))


def pays(rows: Rows, k: int) -> bool:
    """Whether samples save work: enough rows, and enough of them fit the client."""
    fits = _first(k) * rows.n_features * rows.dtype.itemsize <= _BYTES
    return fits and rows.n_rows >= max(2 * _FIRST, _LEAST_EACH * k)


@dataclass(frozen=True)
class Sample:
    """The farthest rows, and a uniform sample of the others in random order.

    Attributes
    ----------
    rows : ndarray of shape (f + m, p)
        The f farthest rows, each of which represents only itself, and the sample.  The first
        rows of the sample are a smaller uniform sample.
    weight : ndarray of shape (f + m,)
        Their weights, positive.
    n_far : int
        The number f.
    total : float
        Total weight of all other rows.
    n_rows : int
        Number of all rows.
    """

    rows: Array
    weight: Floats
    n_far: int
    total: float
    n_rows: int

    @property
    def n_drawn(self) -> int:
        """Rows of the sample."""
        return len(self.rows) - self.n_far

    @property
    def size(self) -> float:
        """Effective size of the sample (Kish): rows of equal weight with the same variance."""
        drawn = self.weight[self.n_far :]
        return float(drawn.sum() ** 2 / (drawn**2).sum()) if len(drawn) else 0.0

    def part(self, count: int) -> tuple[Array, Floats, float]:
        """Return the farthest rows and so many sampled ones, with weights that stand for all.

        Rows are a view, which is read-only.  The third is the squared weight of the
        sampled rows over their weight.
        """
        end = self.n_far + count
        weights = self.weight[:end].copy()
        drawn = weights[self.n_far :]
        mass, squares = drawn.sum(), (drawn**2).sum()
        times = self.total / mass
        drawn *= times
        return self.rows[:end], weights, float(times * squares / mass)


def draw_sample(problem: LloydProblem, k: int, mean: Floats, total: float, seed: int) -> Sample:
    """Draw rows by their numbers, independent of chunks.

    Parameters
    ----------
    problem : LloydProblem
    k : int
    mean : ndarray of shape (p,)
        Values that replace missing values of rows that become centers.
    total : float
        Weight of all rows.
    seed : int

    Notes
    -----
    Two passes: one for the drawn rows, one for the rows farthest from the first drawn
    rows.
    """
    rows = problem.rows
    rng = np.random.default_rng([seed, _OF_ROWS])
    numbers = draw_numbers(rows.n_rows, sample_rows(rows, k), int(rng.integers(2**63)))
    x, weight = rows.take(numbers)
    order = rng.permutation(len(x))
    order = order[weight[order] > 0]
    # Drawn rows lie where most rows are: what is far from all of them is rare.
    usual = _filled(x[order[: max(k, _USUAL)]], mean)
    if not len(usual):
        return Sample(x[:0], weight[:0], 0, 0.0, rows.n_rows)
    request = FarthestRequest(usual, _far(rows, k), shift=problem.shift, missing=problem.missing)
    found = rows.reduce(FARTHEST, request)
    n_far, far_weight = len(found), found["x"][:, -2]
    order = order[~np.isin(numbers[order], found["row"])]
    # Parts are views: the only copy.
    joined = np.empty((n_far + len(order), rows.n_features), rows.dtype)
    joined[:n_far] = found["x"][:, :-2]
    np.take(x, order, axis=0, out=joined[n_far:], mode="clip")
    # Rounding may leave a little less than nothing.
    others = max(total - float(far_weight.sum()), 0.0)
    return Sample(joined, np.append(far_weight, weight[order]), n_far, others, rows.n_rows)


def _filled(x: Array, mean: Floats) -> Floats:
    """Rows in double precision, with the mean of what they miss."""
    filled = x.astype(np.float64)
    gaps = np.isnan(filled)
    # Complete rows may lie in another space than the means.
    return np.where(gaps, mean, filled) if gaps.any() else filled


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
    part, weight, _ = sample.part(_first(k))
    points = np.concatenate([candidates, _filled(part, mean)])
    each = np.full(len(candidates), weight.sum() / sample.n_rows)
    mass = np.concatenate([each, weight])
    tiles, found = in_tiles(points, mass), []
    for t in range(max(1, min(_TRIES, _WORK // (_first(k) * k)))):
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
    for size in _parts(min(_first(k), sample.n_drawn), sample.n_drawn):
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
    sample = draw_sample(problem, k, mean, total, seed)
    if sample.total <= 0 or sample.size < min(_first(k), problem.rows.n_rows) / 2:
        return otherwise()
    found = tries(sample)
    return otherwise() if found is None else grown(problem, found, sample)

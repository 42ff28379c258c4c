"""Starting centres for all restarts at once, in passes that they share.

The number of passes does not depend on the number of clusters, but for
``"k-means++"`` and ``"maximin"``, which are sequential by definition.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daskclust.cluster._lloyd import first_least
from daskclust.engine import Rows
from daskclust.kernels.assign import accumulate, nearest
from daskclust.reduction import CANDIDATES, CARRY_BYTES, CandidateRound, Survey

__all__ = [
    "STRING_INITS",
    "Start",
    "fill_up",
    "n_survey_picks",
    "neighbourhood_centres",
    "recluster",
    "sample_centres",
]

Float = NDArray[np.float64]

#: Starts that sample rows; arrays and callables are taken as they are.
STRING_INITS = ("k-means||", "k-means++", "random")
#: Iterations of weighted Lloyd on the candidates; they are few and it converges fast.
_RECLUSTER_ITER = 100
#: Runs on the candidates, of which the best is kept; fewer where candidates times k is large.
_RECLUSTER_TRIES = 8
_RECLUSTER_WORK = 20_000_000


@dataclass(frozen=True)
class Start:
    """Starting centres of all restarts.

    Attributes
    ----------
    centres : ndarray of shape (r, k, p), float64
        Repeated rows stand in where there were too few distinct ones.
    n_distinct : int
        Distinct starting centres of the poorest restart.
    """

    centres: Float
    n_distinct: int


def n_survey_picks(init: Any, n_clusters: int) -> int:
    """How many rows of each restart the first pass shall draw for a start."""
    if not isinstance(init, str):
        return 0
    return n_clusters if init == "random" else 1


def _padded(found: list[Float], k: int) -> Start:
    """Stack the restarts' centres, repeating the first where one has too few."""
    centres = [np.concatenate([c, np.repeat(c[:1], k - len(c), axis=0)]) for c in found]
    return Start(np.stack(centres), min(len(c) for c in found))


def _picked(picks: NDArray[Any]) -> Float:
    return picks["x"][picks["row"] >= 0].astype(np.float64)


def sample_centres(
    rows: Rows,
    survey: Survey,
    init: str,
    n_clusters: int,
    seeds: tuple[int, ...],
    *,
    oversampling_factor: float,
    init_rounds: int,
    shift: Float | None,
) -> Start:
    """Sample starting centres.

    Parameters
    ----------
    rows : Rows
    survey : Survey
        Of the first pass, with the rows it drew.
    init : {"k-means||", "k-means++", "random"}
    n_clusters : int
    seeds : tuple of int
        One for each restart.
    oversampling_factor, init_rounds
        Of ``"k-means||"``.
    shift : ndarray of shape (p,), optional
        A point amid the data.

    Returns
    -------
    Start

    Notes
    -----
    Passes: 0 more for ``"random"``, ``n_clusters`` for ``"k-means++"`` and
    ``init_rounds + 1`` for ``"k-means||"``, however many restarts there are.
    """
    first = [_picked(picks) for picks in survey.picks]
    if init == "random":
        return _padded(first, n_clusters)
    if init == "k-means++":
        return _sequential(rows, first, n_clusters, seeds, shift)
    return _oversampled(rows, first, n_clusters, seeds, oversampling_factor, init_rounds, shift)


def _sequential(
    rows: Rows, first: list[Float], k: int, seeds: tuple[int, ...], shift: Float | None
) -> Start:
    """Draw one row after another with probability ``w D^2`` (Algorithm 2 of the notes)."""
    centres = list(first)
    fresh, carry = tuple(first), None
    keep = rows.can_keep(CARRY_BYTES * len(seeds))
    sampling = CANDIDATES if keep else CANDIDATES.without_carry()
    for round_ in range(1, k):
        if not keep:
            fresh, carry = tuple(centres), None
        known = tuple(len(c) - len(f) for c, f in zip(centres, fresh, strict=True))
        state = CandidateRound(fresh, known, seeds, round_, 1, shift=shift)
        result, carry = rows.scan(sampling, state, carry)
        fresh = tuple(_picked(picks) for picks in result.picks)
        centres = [np.concatenate(pair) for pair in zip(centres, fresh, strict=True)]
        if not any(len(f) for f in fresh):
            break
    return _padded(centres, k)


def _oversampled(
    rows: Rows,
    first: list[Float],
    k: int,
    seeds: tuple[int, ...],
    factor: float,
    n_rounds: int,
    shift: Float | None,
) -> Start:
    """Draw rounds of about ``factor * k`` rows each, then cluster the candidates."""
    candidates, mass = _candidates(rows, first, k, seeds, factor, n_rounds, shift)
    chosen = [
        recluster(points, weight, k, seed)
        for points, weight, seed in zip(candidates, mass, seeds, strict=True)
    ]
    return _padded(chosen, k)


def _candidates(
    rows: Rows,
    first: list[Float],
    k: int,
    seeds: tuple[int, ...],
    factor: float,
    n_rounds: int,
    shift: Float | None,
) -> tuple[list[Float], list[Float]]:
    """Oversample candidates and weigh them by the rows they attract.

    Bahmani et al. (2012), with draws of exactly ``factor * k`` rows by a race.
    The candidates of each restart begin with ``first``.
    """
    per_round = max(1, round(factor * k))
    candidates = list(first)
    fresh, carry = tuple(first), None
    keep = rows.can_keep(CARRY_BYTES * len(seeds))
    sampling = CANDIDATES if keep else CANDIDATES.without_carry()
    round_, drawn = 1, True
    while True:
        if not keep:
            fresh, carry = tuple(candidates), None
        known = tuple(len(c) - len(f) for c, f in zip(candidates, fresh, strict=True))
        # Rounds go on beyond `init_rounds` only while a restart has too few candidates.
        hungry = any(len(c) < k for c in candidates) and drawn
        last = round_ > n_rounds and not hungry
        state = CandidateRound(
            fresh, known, seeds, round_, 0 if last else per_round, weigh=last, shift=shift
        )
        result, carry = rows.scan(sampling, state, carry)
        if last:
            break
        fresh = tuple(_picked(picks) for picks in result.picks)
        drawn = any(len(f) for f in fresh)
        candidates = [np.concatenate(pair) for pair in zip(candidates, fresh, strict=True)]
        round_ += 1
    return candidates, result.mass


def neighbourhood_centres(centroids: Float, weights: Float, k: int) -> Float:
    """Choose at most k neighbourhoods: the largest, then weighted farthest-first.

    The "Seeding" of the PCSKM paper: the next maximises the least
    ``|c - c'| sqrt(n n')`` to those chosen.

    Parameters
    ----------
    centroids : ndarray of shape (h, p), float64
        Largest first.
    weights : ndarray of shape (h,), float64
        Rows of each neighbourhood.
    k : int

    Returns
    -------
    ndarray of shape (min(h, k), p), float64
    """
    if not len(centroids):
        return centroids
    chosen = [0]
    least = np.full(len(centroids), np.inf)
    while len(chosen) < min(k, len(centroids)):
        last = chosen[-1]
        length = np.linalg.norm(centroids - centroids[last], axis=1)
        least = np.minimum(least, length * np.sqrt(weights * weights[last]))
        least[chosen] = -1.0
        chosen.append(int(np.argmax(least)))
    return centroids[chosen]


def fill_up(
    rows: Rows,
    known: Float,
    k: int,
    seed: int,
    factor: float,
    n_rounds: int,
    survey: Survey,
) -> Float:
    """Add sampled centres to known ones, which stay as they are.

    Candidates are oversampled by D^2 away from the known centres; the missing
    ones are drawn from them, weighted by the rows they attract, one after
    another.

    Parameters
    ----------
    rows : Rows
    known : ndarray of shape (m, p), float64, 0 < m < k
    k : int
    seed : int
    factor, n_rounds
        As of ``"k-means||"``.
    survey : Survey

    Returns
    -------
    ndarray of shape (k, p), float64
    """
    (points,), (mass,) = _candidates(
        rows, [known], k - len(known), (seed,), factor, n_rounds, survey.mean
    )
    fresh, mass = _in_order(points[len(known) :], mass[len(known) :])
    rng = np.random.Generator(np.random.Philox(seed))
    return _padded([_spread(fresh, mass, known, k, rng)], k).centres[0]


def _spread(points: Float, mass: Float, chosen: Float, k: int, rng: np.random.Generator) -> Float:
    """Add points to those chosen, one after another, with probability ``mass D^2``.

    Fewer than k come back where no point is away from those chosen.
    """
    centres = list(chosen)
    if not centres and len(points):
        centres = [points[rng.choice(len(points), p=mass / mass.sum())]]
    if not len(points):
        return np.array(centres)
    squared = nearest(points, np.array(centres))[1]
    while len(centres) < k:
        # Where all that is left attracts no row, it is still better than a repeated centre.
        odds = squared * mass if (squared * mass).any() else squared
        steps = odds.cumsum()
        if steps[-1] == 0:
            break
        pick = min(int(np.searchsorted(steps, rng.random() * steps[-1], "right")), len(points) - 1)
        centres.append(points[pick])
        squared = np.minimum(squared, nearest(points, points[pick : pick + 1])[1])
    return np.array(centres)


def _in_order(points: Float, mass: Float) -> tuple[Float, Float]:
    """Sort candidates by their values.

    Where there are as many candidates as distinct rows, nothing then shows which
    rows were drawn when, and integer weights equal repetition to the last bit.
    """
    order = np.lexsort(points.T[::-1])
    return points[order], mass[order]


def recluster(points: Float, mass: Float, k: int, seed: int) -> Float:
    """Cluster weighted candidates to at most k centres: weighted k-means++, then Lloyd.

    Parameters
    ----------
    points : ndarray of shape (m, p), float64
        Distinct candidates.
    mass : ndarray of shape (m,), float64
        Weight that each attracts.
    k : int
    seed : int

    Returns
    -------
    ndarray of shape (min(k, m), p), float64
    """
    if len(points) <= k:
        return points
    used = mass > 0
    if used.sum() <= k:
        # Candidates nobody is nearest to are still better than repeated ones.
        return np.concatenate([points[used], points[~used]])[:k]
    points, mass = _in_order(points[used], mass[used])
    tries = max(1, min(_RECLUSTER_TRIES, _RECLUSTER_WORK // (len(points) * k)))
    found = [
        _cluster_candidates(points, mass, k, int(word))
        for word in np.random.SeedSequence(seed).generate_state(tries)
    ]
    return found[first_least([cost for _, cost in found])][0]


def _cluster_candidates(points: Float, mass: Float, k: int, seed: int) -> tuple[Float, float]:
    """Return k centres of weighted points, and the weighted squared distances to them."""
    p = points.shape[1]
    centre = np.average(points, axis=0, weights=mass)
    rng = np.random.Generator(np.random.Philox(seed))
    centres = _spread(points, mass, np.empty((0, p)), k, rng)
    for _ in range(_RECLUSTER_ITER):
        stats = accumulate(points, centres, weight=mass, shift=centre)
        total = stats.hi + stats.lo
        filled = total[:, p] > 0
        moved = centres.copy()
        moved[filled] = total[filled, :p] / total[filled, p : p + 1]
        if np.array_equal(moved, centres):
            break
        centres = moved
    return centres, float(total[:, p + 1].sum())

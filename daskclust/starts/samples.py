"""A sample of rows that lies with the client: what starts try first, or draw from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from daskclust._types import Array, Floats
from daskclust.engine import Rows, side_by_side
from daskclust.kernels.rng import draw_numbers
from daskclust.kernels.starts.greedy import draw_in_batches, n_draws
from daskclust.reduction import FARTHEST, FarthestRequest

__all__ = [
    "Sample",
    "draw_sample",
    "filled",
    "first_rows",
    "grows",
    "is_large",
    "large_starts",
    "n_candidates",
    "pays",
    "sample_rows",
]


#: Bytes of the sample at most.
_BYTES = 2**28
#: Rows of the sample, and rows for each cluster, that leave little noise.
_ROWS, _ROWS_EACH = 2**16, 256
#: Rows of the smallest part, and rows for each cluster.
_FIRST, _FIRST_EACH = 2**12, 10
#: Rows, at least, from which others are far.
_USUAL = 16
#: Below so many rows for each cluster the smallest part is all rows.
_LEAST_EACH = 10
#: Clusters times features, from which the cost of a start is counted in passes over all rows.
_LARGE = 2**14
#: Then: rows for each cluster, below which iterations on the sample lead astray; rows from which
#: others are far, and far rows, at most.
_GROWN_EACH, _LARGE_USUAL, _LARGE_FAR = 64, 256, 1024
#: Passes over all rows that greedy draws from the sample may take, by multiplications.
_DRAW_PASSES = 3
#: Draws of their own, beside those of the rounds of k-means||.
_OF_ROWS, _OF_LARGE = 2**33, 2**33 + 2


def is_large(k: int, p: int) -> bool:
    """Whether centers are so many, and so wide, that drawing them costs many passes."""
    return k * p >= _LARGE


def first_rows(k: int) -> int:
    """Rows of the smallest part."""
    return max(_FIRST, _FIRST_EACH * k)


def _fit(rows: Rows) -> int:
    """Rows that fit the client."""
    return _BYTES // (max(1, rows.n_features) * rows.dtype.itemsize)


def _wanted(rows: Rows, k: int) -> int:
    return min(rows.n_rows // 4, max(_ROWS, _ROWS_EACH * k), _fit(rows))


def pays(rows: Rows, k: int) -> bool:
    """Whether samples save work: enough rows, and enough of them fit the client."""
    room = first_rows(k) <= _fit(rows)
    return room and rows.n_rows >= max(2 * _FIRST, _LEAST_EACH * k)


def grows(rows: Rows, k: int) -> bool:
    """Whether iterations on parts of the sample lead to better centers on all rows."""
    return not is_large(k, rows.n_features) or _wanted(rows, k) >= _GROWN_EACH * k


def sample_rows(rows: Rows, k: int) -> int:
    """Return the size of the sample: at most a quarter of the rows, unless there are few rows."""
    return min(rows.n_rows, max(_wanted(rows, k), first_rows(k)))


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


def draw_sample(
    rows: Rows,
    k: int,
    mean: Floats,
    total: float,
    seed: int,
    *,
    shift: Floats | None = None,
    missing: bool = False,
    size: int | None = None,
) -> Sample:
    """Draw rows by their numbers, independent of chunks.

    Parameters
    ----------
    rows : Rows
    k : int
    mean : ndarray of shape (p,)
        Values that replace missing values of rows that become centers.
    total : float
        Weight of all rows.
    seed : int
    shift : ndarray of shape (p,), optional
        A point amid the data.
    missing : bool, default=False
        Whether values are missing.
    size : int, optional
        Rows to draw, :func:`sample_rows` by default.

    Notes
    -----
    Two passes: one for the drawn rows, one for the rows farthest from the first drawn
    rows.
    """
    rng = np.random.default_rng([seed, _OF_ROWS])
    numbers = draw_numbers(rows.n_rows, size or sample_rows(rows, k), int(rng.integers(2**63)))
    x, weight = rows.take(numbers)
    order = rng.permutation(len(x))
    order = order[weight[order] > 0]
    # Drawn rows lie where most rows are: what is far from all of them is rare.
    large = is_large(k, rows.n_features)
    usual = filled(x[order[: min(k, _LARGE_USUAL) if large else max(k, _USUAL)]], mean)
    if not len(usual):
        return Sample(x[:0], weight[:0], 0, 0.0, rows.n_rows)
    most = min(first_rows(k) // 4, rows.n_rows // 8, _LARGE_FAR if large else rows.n_rows)
    request = FarthestRequest(usual, max(1, most), shift=shift, missing=missing)
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


def filled(x: Array, mean: Floats) -> Floats:
    """Rows in double precision, with the mean of what they miss."""
    filled = x.astype(np.float64)
    gaps = np.isnan(filled)
    # Complete rows may lie in another space than the means.
    return np.where(gaps, mean, filled) if gaps.any() else filled


def large_starts(
    sample: Sample, k: int, seeds: Sequence[int], mean: Floats, n_candidates: int
) -> list[Floats] | None:
    """Draw starts of many clusters from a part of the sample, by greedy k-means++.

    Parameters
    ----------
    sample : Sample
    k : int
    seeds : sequence of int
        One for each start.
    mean : ndarray of shape (p,)
        Values that replace missing values of rows.
    n_candidates : int
        Rows of the part, beside the farthest.

    Returns
    -------
    list of ndarray of shape (k, p), float64, or None
        None where the part has fewer than k distinct rows.

    Notes
    -----
    Three times the multiplications of a pass over all rows, for each start; two draws for each
    center are made even so.
    """
    if sample.total <= 0 or sample.size < k:
        return None
    part, weight, _ = sample.part(n_candidates)
    points = filled(part, mean) if np.isnan(part).any() else part
    draws = min(n_draws(k), max(2, _DRAW_PASSES * sample.n_rows // len(points)))
    found = []
    for seed in seeds:
        rng = np.random.default_rng([seed, _OF_LARGE])
        places = draw_in_batches(points, weight, k, draws, rng, side_by_side)
        if len(places) < k:
            return None
        found.append(points[places].astype(np.float64))
    return found


def n_candidates(rows: Rows, k: int, factor: float, n_rounds: int) -> int:
    """Return how many rows such starts are drawn from: as many as k-means|| would draw.

    No more than fit the client, but for twice the clusters.
    """
    wanted = max(_FIRST, n_rounds * round(factor * k))
    return min(rows.n_rows, max(2 * k, min(wanted, _fit(rows))))

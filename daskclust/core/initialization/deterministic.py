"""Initializations without random numbers: maximin, DKM++ and ROBIN, and the price of a cluster.

DKM++ and ROBIN use all pairs of rows, or of a uniform sample of ``daskclust.init-rows`` rows.
"""

from __future__ import annotations

import logging
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from daskclust.config import setting
from daskclust.core.array_types import Array, Floats
from daskclust.core.engine import Carry, Rows
from daskclust.core.kernels.local_density import local_densities, local_outlier_factors
from daskclust.core.kernels.nearest.assign import direct_distances
from daskclust.core.reduction import (
    FARTHEST_FIRST,
    FARTHEST_FIRST_BYTES,
    FarthestFirst,
    Reduction,
    Survey,
)

logger = logging.getLogger("daskclust")

#: Initializations that use all pairs of rows.
DENSITY_INITS = ("dkm++", "robin")
#: Range of local outlier factors in which ROBIN chooses rows: no outliers, and no dense cores.
_INLIER = (0.95, 1.05)


def row_budget(n_clusters: int) -> int:
    return max(int(setting("init-rows")), n_clusters)


def density_picks(n_clusters: int, n_rows: float) -> int:
    """Return the number of rows that the first pass draws: 0 if all rows are compared.

    `n_rows` is NaN if it is not known yet.
    """
    budget = row_budget(n_clusters)
    return 0 if n_rows <= budget else budget


def _rows_to_compare(rows: Rows, survey: Survey, k: int) -> tuple[Floats, Floats]:
    """Return all rows with their weights, or the sample that was drawn by weight."""
    if rows.n_rows <= row_budget(k):
        x, weight = rows.take(np.arange(rows.n_rows))
        present = weight > 0
        return x[present].astype(np.float64), weight[present]
    picks = survey.picks[0]
    picks = np.sort(picks[picks["row"] >= 0], order="row")
    return np.ascontiguousarray(picks["x"], dtype=np.float64), np.ones(len(picks))


def density_centers(rows: Rows, survey: Survey, init: str, k: int) -> Floats:
    """Return at most k rows that are chosen by their local density.

    There are fewer than k rows if fewer rows are distinct.  This takes one pass if all rows are
    compared, and otherwise none.  The time is O(m^2 p) for m compared rows.
    """
    x, weight = _rows_to_compare(rows, survey, k)
    if rows.n_rows > row_budget(k):
        logger.warning(
            'init="%s" used a uniform sample of %d of %d rows; set '
            '"daskclust.init-rows" in the Dask configuration for another number.',
            init,
            len(x),
            rows.n_rows,
        )
    chosen = dkm_rows(x, weight, k) if init == "dkm++" else robin_rows(x, weight, k)
    return x[chosen]


def _distances_to(x: Floats, row: int) -> Floats:
    return np.sqrt(direct_distances(x, x[row : row + 1])[:, 0])


def dkm_rows(x: Floats, weight: Floats, k: int) -> NDArray[np.intp]:
    """Choose the densest row, then the rows with the largest density times distance (DKM++).

    Return at most k rows, in the order of choice.  Of equal rows, the lowest number is chosen.
    """
    densities = local_densities(x, weight)
    low, high = densities.density.min(), densities.density.max()
    # If all rows are equally dense, only the distance counts.
    density = (densities.density - low) / (high - low) if high > low else np.ones(len(x))
    chosen = [int(density.argmax())]
    distance = np.full(len(x), np.inf)
    while len(chosen) < k:
        distance = np.minimum(distance, _distances_to(x, chosen[-1]) / (densities.largest or 1.0))
        merit = density * distance
        if not merit.any():
            # The row with density 0 may be the only row that is left.
            merit = distance
        if not merit.any():
            break
        chosen.append(int(merit.argmax()))
    return np.array(chosen)


def robin_rows(x: Floats, weight: Floats, k: int) -> NDArray[np.intp]:
    """Choose distant rows that are not outliers (ROBIN).

    The first row is the candidate farthest from the mean.  Each further row is the candidate
    farthest from the chosen rows.  Candidates are the rows whose local outlier factor is within
    0.05 of 1.  If no such row is left, they are the rows with a factor below 1.05, and then all
    rows.  Return at most k rows, ascending.  Of equal rows, the lowest number is chosen.
    """
    factors = local_outlier_factors(x, weight)
    low, high = _INLIER
    stages = [(factors > low) & (factors < high), factors < high, np.ones(len(x), bool)]
    center = np.average(x, axis=0, weights=weight)
    distance = np.sqrt(direct_distances(x, center[None])[:, 0])
    chosen: list[int] = []
    while len(chosen) < k:
        # The first row may equal the mean; the others must differ from the chosen rows.
        candidates = [stage & ((distance > 0) | (not chosen)) for stage in stages]
        best = next((stage for stage in candidates if stage.any()), None)
        if best is None:
            break
        row = int(np.where(best, distance, -1.0).argmax())
        distances = _distances_to(x, row)
        distance = distances if not chosen else np.minimum(distance, distances)
        chosen.append(row)
    return np.sort(np.array(chosen))


def maximin_centers(
    rows: Rows, k: int, shift: Floats | None, missing: Floats | None = None
) -> Floats:
    """Choose the row of the largest norm, then repeatedly the row farthest from the chosen rows.

    `missing` (p,) replaces missing values of chosen rows; None if all values are observed.  There
    are k passes, and each pass compares the rows with one more center.  If memory suffices, a cache
    of 8 bytes per row saves earlier comparisons.  Return fewer than k rows if fewer are distinct.

    Katsavounidis, I., Kuo, C.-C., Zhang, Z. (1994). A new initialization technique for generalized
    Lloyd iteration. IEEE Signal Processing Letters 1.
    """

    def chosen(record: Array) -> Floats:
        x: Floats = record["x"].astype(np.float64)
        return x if missing is None else np.where(np.isnan(x), missing, x)

    origin = np.zeros((1, rows.n_features))
    request = FarthestFirst(origin, shift, missing is not None)
    record = rows.reduce(FARTHEST_FIRST.without_carry(), request)
    # Rows of norm 0 are not found; if all rows have norm 0, the origin is the first center.
    centers = chosen(record) if len(record) else origin
    search, carry = _search(rows), Carry()
    while len(centers) < k:
        record = rows.reduce(search, replace(request, points=centers), carry)
        if not len(record):
            break
        centers = np.concatenate([centers, chosen(record)])
    return centers


def _search(rows: Rows) -> Reduction:
    keep = rows.can_keep(FARTHEST_FIRST_BYTES)
    return FARTHEST_FIRST if keep else FARTHEST_FIRST.without_carry()


def farthest_first_delta(rows: Rows, mean: Floats, n_clusters: int) -> float:
    """Return the price of a cluster for DP-means with about `n_clusters` clusters.

    This is the squared distance of row number `n_clusters` in farthest-first order to the rows
    before it, or 0 if fewer rows are distinct.  It takes `n_clusters` passes.
    """
    search, points, carry, delta = _search(rows), mean[None], Carry(), 0.0
    for _ in range(n_clusters):
        record = rows.reduce(search, FarthestFirst(points, mean), carry)
        if not len(record):
            return 0.0
        delta = -float(record["key"][0])
        points = np.concatenate([points, record["x"].astype(np.float64)])
    return delta

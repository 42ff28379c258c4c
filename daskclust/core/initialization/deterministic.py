"""Starts without chance: maximin, DKM++ and ROBIN, and the price of clusters by farthest rows.

DKM++ and ROBIN look at all pairs of rows, or of a uniform sample of ``daskclust.init-rows``.
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

#: Starts that look at all pairs of rows.
DENSITY_INITS = ("dkm++", "robin")
#: Local outlier factors of rows that ROBIN takes for neither outliers nor dense cores.
_INLIER = (0.95, 1.05)


def row_budget(n_clusters: int) -> int:
    return max(int(setting("init-rows")), n_clusters)


def density_picks(n_clusters: int, n_rows: float) -> int:
    """How many rows the first pass draws: 0 within the budget; ``n_rows`` may be NaN, not known."""
    budget = row_budget(n_clusters)
    return 0 if n_rows <= budget else budget


def _rows_to_compare(rows: Rows, survey: Survey, k: int) -> tuple[Floats, Floats]:
    """Return all rows with their weights, or the sample drawn in proportion to them."""
    if rows.n_rows <= row_budget(k):
        x, weight = rows.take(np.arange(rows.n_rows))
        present = weight > 0
        return x[present].astype(np.float64), weight[present]
    picks = survey.picks[0]
    picks = np.sort(picks[picks["row"] >= 0], order="row")
    return np.ascontiguousarray(picks["x"], dtype=np.float64), np.ones(len(picks))


def density_centers(rows: Rows, survey: Survey, init: str, k: int) -> Floats:
    """Choose at most k rows by the density about them, fewer where fewer are distinct.

    One more pass where all rows are within the budget, else none; time O(budget^2 p).
    """
    x, weight = _rows_to_compare(rows, survey, k)
    if rows.n_rows > row_budget(k):
        logger.warning(
            'init="%s" was worked out on a uniform sample of %d of %d rows; set '
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
    """Choose the densest row, then those of the largest density times distance (DKM++).

    At most k, in the order of choice; ties go to the lowest row.
    """
    found = local_densities(x, weight)
    low, high = found.density.min(), found.density.max()
    # Where all are equally dense, only the distance counts.
    density = (found.density - low) / (high - low) if high > low else np.ones(len(x))
    chosen = [int(density.argmax())]
    least = np.full(len(x), np.inf)
    while len(chosen) < k:
        least = np.minimum(least, _distances_to(x, chosen[-1]) / (found.largest or 1.0))
        merit = density * least
        if not merit.any():
            # The sparsest row has density 0, and may be all that is left.
            merit = least
        if not merit.any():
            break
        chosen.append(int(merit.argmax()))
    return np.array(chosen)


def robin_rows(x: Floats, weight: Floats, k: int) -> NDArray[np.intp]:
    """Choose far-off rows that are no outliers (ROBIN).

    Each is the row farthest from those chosen, the first from the mean, among the rows whose local
    outlier factor is within 0.05 of 1; among those below 1.05 where none is, then among all.
    Returns at most k rows, ascending; ties go to the lowest row.
    """
    factors = local_outlier_factors(x, weight)
    low, high = _INLIER
    stages = [(factors > low) & (factors < high), factors < high, np.ones(len(x), bool)]
    center = np.average(x, axis=0, weights=weight)
    least = np.sqrt(direct_distances(x, center[None])[:, 0])
    chosen: list[int] = []
    while len(chosen) < k:
        # The first may lie on the mean, the others on no chosen row.
        fit = [stage & ((least > 0) | (not chosen)) for stage in stages]
        best = next((stage for stage in fit if stage.any()), None)
        if best is None:
            break
        row = int(np.where(best, least, -1.0).argmax())
        distances = _distances_to(x, row)
        least = distances if not chosen else np.minimum(least, distances)
        chosen.append(row)
    return np.sort(np.array(chosen))


def maximin_centers(
    rows: Rows, k: int, shift: Floats | None, missing: Floats | None = None
) -> Floats:
    """Choose the row of the largest norm, then always the row farthest from those chosen.

    `missing` (p,), where values are: what a chosen row takes for them. k passes, each of which
    measures one more center; 8 bytes a row are kept between them where they fit. Fewer than k
    where there are not so many distinct rows.

    Katsavounidis, I., Kuo, C.-C., Zhang, Z. (1994). A new initialization technique for generalized
    Lloyd iteration. IEEE Signal Processing Letters 1.
    """

    def chosen(found: Array) -> Floats:
        x: Floats = found["x"].astype(np.float64)
        return x if missing is None else np.where(np.isnan(x), missing, x)

    origin = np.zeros((1, rows.n_features))
    request = FarthestFirst(origin, shift, missing is not None)
    found = rows.reduce(FARTHEST_FIRST.without_carry(), request)
    # Rows of norm 0 are not found; where all rows are such, one of them is the start.
    centers = chosen(found) if len(found) else origin
    search, carry = _search(rows), Carry()
    while len(centers) < k:
        found = rows.reduce(search, replace(request, points=centers), carry)
        if not len(found):
            break
        centers = np.concatenate([centers, chosen(found)])
    return centers


def _search(rows: Rows) -> Reduction:
    keep = rows.can_keep(FARTHEST_FIRST_BYTES)
    return FARTHEST_FIRST if keep else FARTHEST_FIRST.without_carry()


def farthest_first_delta(rows: Rows, mean: Floats, n_clusters: int) -> float:
    """Squared distance of the ``n_clusters``-th row in farthest-first order from the mean, or 0.

    ``n_clusters`` passes; 8 bytes a row are kept where they fit, else all points measured again.
    """
    search, points, carry, delta = _search(rows), mean[None], Carry(), 0.0
    for _ in range(n_clusters):
        found = rows.reduce(search, FarthestFirst(points, mean), carry)
        if not len(found):
            return 0.0
        delta = -float(found["key"][0])
        points = np.concatenate([points, found["x"].astype(np.float64)])
    return delta

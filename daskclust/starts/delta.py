"""A price of clusters from a wanted number of them."""

from __future__ import annotations

import numpy as np

from daskclust._types import Floats
from daskclust.engine import Rows
from daskclust.reduction import FARTHEST_FIRST, FARTHEST_FIRST_BYTES, FarthestFirst

__all__ = ["farthest_first_delta"]


def farthest_first_delta(rows: Rows, mean: Floats, n_clusters: int) -> float:
    """Squared distance of the ``n_clusters``-th row in farthest-first order from the mean.

    Parameters
    ----------
    mean : ndarray of shape (p,), float64

    Returns
    -------
    float
        0 where there are not so many distinct rows.

    Notes
    -----
    ``n_clusters`` passes, each of which measures one more point; 8 bytes a row
    are kept between them where they fit, else all points are measured again.
    """
    keep = rows.can_keep(FARTHEST_FIRST_BYTES)
    search = FARTHEST_FIRST if keep else FARTHEST_FIRST.without_carry()
    points, carry = mean[None], None
    delta = 0.0
    for _ in range(n_clusters):
        found, carry = rows.scan(search, FarthestFirst(points, mean), carry)
        if not len(found):
            return 0.0
        delta = -float(found["key"][0])
        points = np.concatenate([points, found["x"].astype(np.float64)])
    return delta

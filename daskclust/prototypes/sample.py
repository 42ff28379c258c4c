"""A sample of the rows, and prototypes found by k-means on it.

Views and prototypes are found from the same sample: all rows of data up to
:data:`SAMPLE_ROWS`, so many of larger data.  It is drawn by row number, of a cube by
place in the image, and so does not depend on the chunks.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from daskclust._types import Array, Floats
from daskclust.cluster.kmeans import KMeans
from daskclust.engine import Rows
from daskclust.kernels.rng import draw_numbers
from daskclust.kernels.starts.d2_sampling import draw_apart
from daskclust.prototypes.views import SampleRows

__all__ = [
    "SAMPLE_ROWS",
    "find_prototypes",
    "sample_cube",
    "sample_rows",
    "sample_size",
]


#: Rows of the sample, or so many a prototype if that is more.
SAMPLE_ROWS, ROWS_A_PROTOTYPE = 2**16, 64


def sample_size(n_prototypes: int) -> int:
    """Rows of the sample of large data.

    Examples
    --------
    >>> sample_size(400), sample_size(2000)
    (65536, 128000)
    """
    return max(SAMPLE_ROWS, ROWS_A_PROTOTYPE * n_prototypes)


def sample_rows(rows: Rows, count: int, seed: int) -> SampleRows:
    """Draw rows of a table; one pass.  Rows of weight 0 are absent."""
    values, weight = rows.take(draw_numbers(rows.n_rows, count, seed))
    return _present(values, weight)


def _present(values: Array, weight: Floats) -> SampleRows:
    kept = weight > 0
    if not kept.any():
        raise ValueError(
            f"None of the {len(weight)} rows drawn as a sample has a positive sample_weight; "
            "leave out the rows of weight 0."
        )
    return SampleRows(values[kept], weight[kept])


def sample_cube(cube: Any, count: int, seed: int) -> SampleRows:
    """Draw pixels of a cube, and neighbors of some of them; one pass.

    Sample weights are left to the counts: what the views and prototypes are made of does
    not have to weigh exactly.
    """
    from daskclust.cube.graph import sample_pixels

    x, neighbors = sample_pixels(cube, count, cube.n_valid, seed)
    return SampleRows(x, np.ones(len(x)), neighbors)


def find_prototypes(
    z: Floats, weight: Floats, count: int, max_iter: int, seed: int
) -> tuple[Floats, int]:
    """Find prototypes by k-means++ and Lloyd's algorithm.

    Parameters
    ----------
    z : ndarray of shape (m, q), float64
        The sample in one space.
    weight : ndarray of shape (m,), float64
    count : int
        At most m.
    max_iter, seed : int

    Returns
    -------
    prototypes : ndarray of shape (k, q), float64
        Different from each other, in lexicographic order; fewer than ``count`` where the
        sample has fewer different rows.
    n_iter : int

    Notes
    -----
    Cost O(m k q) for the start, and for each iteration.
    """
    uniforms = np.random.Generator(np.random.Philox(seed)).random(min(count, len(z)))
    # The sample is here: one start by k-means++ takes a third of the time of rounds and of
    # restarts on their candidates, and labels travel along its prototypes as well.
    starts = z[draw_apart(z, weight, len(uniforms), uniforms)]
    model = KMeans(len(starts), init=starts, max_iter=max_iter)
    with warnings.catch_warnings():
        # Fewer different rows than prototypes are no fault: there are fewer prototypes.
        warnings.simplefilter("ignore", ConvergenceWarning)
        # In single precision: nothing but a good place depends on it.
        model.fit(np.ascontiguousarray(z, dtype=np.float32), sample_weight=weight)
    return np.unique(model.cluster_centers_, axis=0), model.n_iter_

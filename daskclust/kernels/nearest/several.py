"""The few nearest centers of every row of a block, and their squared distances.

Distances are direct differences in float64, the very numbers by which
:func:`daskclust.kernels.nearest.assign.nearest` settles its ties, and equal ones
go to the lowest center: a row's neighbors depend on nothing but the row.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from daskclust.kernels.nearest._row_loops import row_distance

__all__ = ["nearest_several"]

Float = NDArray[np.float64]


@njit(nogil=True, cache=True)
def _search(x: Any, centers: Any, indices: Any, distances: Any) -> None:
    m = indices.shape[1]
    for i in range(x.shape[0]):
        found = 0
        for c in range(centers.shape[0]):
            d = row_distance(x, i, centers, c, centers[0], 1.0, centers)
            if found == m and not d < distances[i, m - 1]:
                continue
            at = found if found < m else m - 1
            while at > 0 and d < distances[i, at - 1]:
                distances[i, at] = distances[i, at - 1]
                indices[i, at] = indices[i, at - 1]
                at -= 1
            distances[i, at] = d
            indices[i, at] = c
            if found < m:
                found += 1


def nearest_several(x: NDArray[Any], centers: Float, count: int) -> tuple[NDArray[np.int32], Float]:
    """Find the nearest centers of each row, nearest first.

    Parameters
    ----------
    x : ndarray of shape (n, q), float32 or float64
        One block of rows, finite.
    centers : ndarray of shape (k, q), float64
    count : int
        How many; at most k.

    Returns
    -------
    indices : ndarray of shape (n, count), int32
        Ties go to the lowest center.
    distances : ndarray of shape (n, count), float64
        Squared distances by direct differences.

    Raises
    ------
    ValueError
        For more neighbors than centers.

    Notes
    -----
    Cost O(n k q); memory of the result alone.

    Examples
    --------
    >>> import numpy as np
    >>> nearest_several(np.array([[1.0]]), np.array([[9.0], [0.0], [2.0]]), 2)
    (array([[1, 2]], dtype=int32), array([[1., 1.]]))
    """
    if not 1 <= count <= len(centers):
        raise ValueError(f"count={count}; expected 1 to {len(centers)}, the number of centers.")
    indices = np.empty((len(x), count), np.int32)
    distances = np.empty((len(x), count))
    if len(x):
        _search(
            np.ascontiguousarray(x),
            np.ascontiguousarray(centers, dtype=np.float64),
            indices,
            distances,
        )
    return indices, distances

"""The few nearest centers of every row of a block, and their squared distances.

Distances are direct differences in float64, the very numbers by which
:func:`daskclust.kernels.nearest.assign.nearest` settles its ties, and equal ones
go to the lowest center: a row's neighbors depend on nothing but the row.  Where there
are many centers, scores by a matrix product in single precision tell beforehand which
of them cannot be among the nearest, whatever the product's rounding.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from daskclust._types import Array, Floats
from daskclust.kernels.blas import one_blas_thread
from daskclust.kernels.compiling import compiled
from daskclust.kernels.nearest._row_loops import row_distance

__all__ = ["nearest_several"]


#: Centers from which on scores are worth their product, and rows that are scored at a time.
_SCORED, _SLAB = 64, 512
#: Rounding units of single and of double precision, and what is lost of tiny products.
_SINGLE, _DOUBLE, _TINY = 2.0**-24, 2.0**-53, 2.0**-1074
#: Terms of scores, and distances, beyond which they or their squares may be infinite.
_LARGE, _FAR = 1e37, 1e150
#: Exponent of the centers below which they are not scaled further.
_SMALL = -1000


@compiled()
def _insert(indices: Any, distances: Any, i: int, found: int, c: int, d: float) -> int:
    """Put a center among the nearest so far; return their number."""
    m = indices.shape[1]
    if found == m and not d < distances[i, m - 1]:
        return found
    at = found if found < m else m - 1
    while at > 0 and d < distances[i, at - 1]:
        distances[i, at] = distances[i, at - 1]
        indices[i, at] = indices[i, at - 1]
        at -= 1
    distances[i, at] = d
    indices[i, at] = c
    return min(found + 1, m)


@compiled()
def _search(x: Any, centers: Any, indices: Any, distances: Any) -> None:
    for i in range(x.shape[0]):
        found = 0
        for c in range(centers.shape[0]):
            d = row_distance(x, i, centers, c, centers[0], 1.0, centers)
            found = _insert(indices, distances, i, found, c, d)


@compiled()
def _search_scored(
    x: Any, centers: Any, scores: Any, slack: Any, near: Any, indices: Any, distances: Any
) -> None:
    m = indices.shape[1]
    least = np.empty(m, np.float32)
    for i in range(x.shape[0]):
        least[:] = np.inf
        limit, count = np.float32(np.inf), 0
        for c in range(centers.shape[0]):
            score = scores[i, c]
            # Scores that are no numbers are for the distances to decide.
            if score > limit:
                continue
            near[count] = c
            count += 1
            if score < least[m - 1]:
                at = m - 1
                while at > 0 and score < least[at - 1]:
                    least[at] = least[at - 1]
                    at -= 1
                least[at] = score
                limit = np.float32(least[m - 1] + slack[i])
        found = 0
        for t in range(count):
            c = near[t]
            if scores[i, c] > limit:
                continue
            d = row_distance(x, i, centers, c, centers[0], 1.0, centers)
            found = _insert(indices, distances, i, found, c, d)


class _Scores:
    """``|c|^2 - 2 z c`` of rows and centers, moved to the mean of the centers and scaled.

    Parameters
    ----------
    centers : ndarray of shape (k, q), float64
    """

    def __init__(self, centers: Floats) -> None:
        self.shift = centers.mean(axis=0)
        moved = centers - self.shift
        # By a power of 2, which rounds nothing: products are neither too large nor too small.
        self.scale = float(np.ldexp(1.0, -max(int(np.frexp(np.abs(moved).max())[1]), _SMALL)))
        moved *= self.scale
        squares = (moved * moved).sum(axis=1)
        self.length = float(np.sqrt(squares.max()))
        self.squares = squares.astype(np.float32)
        self.turned = np.ascontiguousarray(-2.0 * moved.T, dtype=np.float32)

    def __call__(self, x: Array, out: NDArray[np.float32]) -> Floats:
        """Score rows into ``out``; return by how much neighbors may seem apart that tie.

        A product of q terms is off by q units of single precision, its factors and the sum
        by a few more; a direct distance by q units of double precision, or by what is
        smaller than any number.  Both sides of a comparison may be off.
        """
        z = (x - self.shift) * self.scale
        length, far, terms = np.sqrt((z * z).sum(axis=1)), self.length, z.shape[1] + 4
        slack = _SINGLE * (length + far) * far + _DOUBLE * (length + far) ** 2
        slack = 5 * terms * (slack + _TINY * self.scale * self.scale)
        sure = (length * (far + 1) + far**2 < _LARGE) & ((length + far) / self.scale < _FAR)
        slack[~sure] = np.inf
        np.matmul(z.astype(np.float32), self.turned, out=out)
        out += self.squares
        found: Floats = slack
        return found


def nearest_several(x: Array, centers: Floats, count: int) -> tuple[NDArray[np.int32], Floats]:
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
    Cost O(n k q); memory of the result, and of the scores of 512 rows.

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
    x = np.ascontiguousarray(x)
    centers = np.ascontiguousarray(centers, dtype=np.float64)
    if len(centers) < _SCORED:
        _search(x, centers, indices, distances)
        return indices, distances
    near = np.empty(len(centers), np.int32)
    scores = np.empty((min(_SLAB, len(x)), len(centers)), np.float32)
    # What is not finite is left to the distances.
    with one_blas_thread(), np.errstate(over="ignore", invalid="ignore"):
        score = _Scores(centers)
        for start in range(0, len(x), _SLAB):
            rows = x[start : start + _SLAB]
            own = slice(start, start + len(rows))
            slack = score(rows, scores[: len(rows)])
            _search_scored(rows, centers, scores, slack, near, indices[own], distances[own])
    return indices, distances

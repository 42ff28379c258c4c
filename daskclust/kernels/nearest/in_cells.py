"""Nearest points of every row, looked for in the cells around it only."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from daskclust._types import Floats, Ints
from daskclust.kernels.compiling import compiled
from daskclust.kernels.nearest._row_loops import row_distance

__all__ = ["nearest_in_cells"]


@compiled()
def _search(
    x: Any, points: Any, starts: Any, cells: Any, skip: Any, indices: Any, distances: Any
) -> None:
    m = indices.shape[1]
    for i in range(x.shape[0]):
        found = 0
        for at_cell in range(cells.shape[1]):
            cell = cells[i, at_cell]
            for c in range(starts[cell], starts[cell + 1]):
                if c == skip[i]:
                    continue
                d = row_distance(x, i, points, c, points[0], 1.0, points)
                # Ties go to the lowest point, in whatever order cells are looked through.
                if found == m and not (
                    d < distances[i, m - 1] or (d == distances[i, m - 1] and c < indices[i, m - 1])
                ):
                    continue
                at = found if found < m else m - 1
                while at > 0 and (
                    d < distances[i, at - 1]
                    or (d == distances[i, at - 1] and c < indices[i, at - 1])
                ):
                    distances[i, at] = distances[i, at - 1]
                    indices[i, at] = indices[i, at - 1]
                    at -= 1
                distances[i, at] = d
                indices[i, at] = c
                if found < m:
                    found += 1


def nearest_in_cells(
    x: Floats,
    points: Floats,
    starts: Ints,
    cells: NDArray[np.int32],
    count: int,
    skip: Ints | None = None,
) -> tuple[Ints, Floats]:
    """Find the nearest points of each row among those of its cells, nearest first.

    Parameters
    ----------
    x : ndarray of shape (n, q), float64
    points : ndarray of shape (m, q), float64
        Sorted by cell.
    starts : ndarray of shape (cells + 1,), int64
        Where the points of each cell begin; the last is m.
    cells : ndarray of shape (n, c), int32
        Different cells to look through for each row.
    count : int
    skip : ndarray of shape (n,), int64, optional
        A point that is not looked at, for each row; -1 for none.

    Returns
    -------
    indices : ndarray of shape (n, count), int64
        Ties go to the lowest point; -1 where the cells hold too few.
    distances : ndarray of shape (n, count), float64
        Squared; infinite where there is no point.

    Examples
    --------
    >>> import numpy as np
    >>> points = np.array([[0.0], [1.0], [5.0]])
    >>> nearest_in_cells(np.array([[0.8]]), points, np.array([0, 2, 3]), np.array([[0]]), 3)
    (array([[ 1,  0, -1]]), array([[0.04, 0.64,  inf]]))
    """
    indices = np.full((len(x), count), -1, np.int64)
    distances = np.full((len(x), count), np.inf)
    if len(x) and len(points):
        none = np.full(len(x), -1, np.int64) if skip is None else skip
        points = np.ascontiguousarray(points)
        _search(np.ascontiguousarray(x), points, starts, cells, none, indices, distances)
    return indices, distances

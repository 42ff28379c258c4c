"""Rows of a block in a linear space, the same to the last bit however blocks are cut.

A matrix product by BLAS adds in an order that depends on the number of rows, so that
a row's image would depend on its block; here each row is worked out by itself.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from daskclust._types import Array, Floats
from daskclust.kernels.compiling import compiled

__all__ = ["project_rows", "unit_rows"]


@compiled()
def _project(x: Any, unit: Any, center: Any, matrix: Any, out: Any) -> None:
    p, q = matrix.shape
    row = np.empty(p)
    for i in range(x.shape[0]):
        peak = 0.0
        for j in range(p):
            row[j] = x[i, j]
            peak = max(peak, abs(row[j]))
        if unit and peak > 0.0:
            # Two steps, so that neither tiny nor huge rows under- or overflow.
            total = 0.0
            for j in range(p):
                row[j] /= peak
                total += row[j] * row[j]
            length = np.sqrt(total)
            for j in range(p):
                row[j] /= length
        for k in range(q):
            out[i, k] = 0.0
        for j in range(p):
            gap = row[j] - center[j]
            for k in range(q):
                out[i, k] += gap * matrix[j, k]


def project_rows(x: Array, unit: bool, center: Floats, matrix: Floats) -> Floats:
    """Return ``(u - center) @ matrix`` with u the rows, scaled to length 1 where ``unit``.

    Parameters
    ----------
    x : ndarray of shape (n, p), float32 or float64
    unit : bool
        A row of zeros has no direction; it stays zero.
    center : ndarray of shape (p,), float64
    matrix : ndarray of shape (p, q), float64

    Returns
    -------
    ndarray of shape (n, q), float64

    Examples
    --------
    >>> import numpy as np
    >>> project_rows(np.array([[3.0, 4.0]]), True, np.zeros(2), np.eye(2))
    array([[0.6, 0.8]])
    """
    out = np.empty((len(x), matrix.shape[1]))
    if len(x):
        _project(
            np.ascontiguousarray(x),
            bool(unit),
            np.ascontiguousarray(center, dtype=np.float64),
            np.ascontiguousarray(matrix, dtype=np.float64),
            out,
        )
    return out


def unit_rows(x: Array) -> Floats:
    """Return the rows in float64, scaled to length 1; a row of zeros stays zero.

    Examples
    --------
    >>> import numpy as np
    >>> unit_rows(np.array([[3.0, 4.0], [0.0, 0.0]]))
    array([[0.6, 0.8],
           [0. , 0. ]])
    """
    wide = np.asarray(x, dtype=np.float64)
    peak = np.abs(wide).max(axis=1, keepdims=True, initial=0.0)
    wide = np.divide(wide, peak, out=np.zeros_like(wide), where=peak > 0)
    length = np.sqrt((wide * wide).sum(axis=1, keepdims=True))
    return np.divide(wide, length, out=wide, where=length > 0)

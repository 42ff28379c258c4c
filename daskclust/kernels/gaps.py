"""Where values are missing or infinite, in one sweep over a block."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from daskclust._types import Array
from daskclust.kernels.compiling import compiled

__all__ = ["Gaps", "find_gaps"]


class Gaps(NamedTuple):
    """Missing values of a block.

    Attributes
    ----------
    missing : ndarray of shape (n,), int32
        Missing values of each row.
    row, column : int
        Place of the first infinity in row order; -1 if there is none.
    """

    missing: NDArray[np.int32]
    row: int
    column: int


@compiled()
def _sweep(x: Any, out: Any) -> int:
    first = -1
    for i in range(x.shape[0]):
        missing = infinite = 0
        for j in range(x.shape[1]):
            missing += x[i, j] != x[i, j]
            infinite += abs(x[i, j]) == np.inf
        out[i] = missing
        if infinite and first < 0:
            first = i
    return first


def find_gaps(x: Array) -> Gaps:
    """Count the missing values of each row, and find the first infinity.

    Parameters
    ----------
    x : ndarray of shape (n, p), float32 or float64

    Examples
    --------
    >>> import numpy as np
    >>> find_gaps(np.array([[0.0, np.nan], [2.0, -np.inf]]))
    Gaps(missing=array([1, 0], dtype=int32), row=1, column=1)
    """
    missing = np.empty(len(x), np.int32)
    row = int(_sweep(np.ascontiguousarray(x), missing))
    column = int(np.isinf(x[row]).argmax()) if row >= 0 else -1
    return Gaps(missing, row, column)

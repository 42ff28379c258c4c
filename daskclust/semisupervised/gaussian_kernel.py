"""Gaussian kernel of many distances, in vector code.

NumPy's exponential of float64 takes three times as long on processors without AVX-512.
"""

from __future__ import annotations

from math import factorial
from typing import Any

import numpy as np

from daskclust.core.array_types import Floats
from daskclust.core.kernels.compiling import compiled, read_only

#: Number of elements per step, so that they stay in the first-level cache.
_BLOCK = 256
#: Lower bound of the exponent; below it the result is practically 0.
_LEAST = -700.0
#: 1 / log(2), and log(2) in two parts, of which the first has few digits.
_PER_LOG2, _LOG2, _LOG2_REST = 1.4426950408889634, 0.693147180369123816490, 1.90821492927058770e-10
#: Coefficients of the third to the twelfth power of the exponential.
_C3, _C4, _C5, _C6, _C7, _C8, _C9, _C10, _C11, _C12 = (1 / factorial(n) for n in range(3, 13))


@compiled()
def _gaussians(products: Any, rows: Any, points: Any) -> None:
    n, m = products.shape
    bits = np.empty(_BLOCK, np.int64)
    scale = bits.view(np.float64)
    x = np.empty(_BLOCK)
    for i in range(n):
        for start in range(0, m, _BLOCK):
            size = min(_BLOCK, m - start)
            out, own = products[i, start : start + size], points[start : start + size]
            for j in range(size):
                value = 2.0 * out[j] - rows[i] - own[j]
                value = value if value < 0.0 else 0.0
                x[j] = value if value > _LEAST else _LEAST
            for j in range(size):
                # ``2^k`` by its exponent.
                bits[j] = (np.int64(np.int32(np.floor(x[j] * _PER_LOG2 + 0.5))) + 1023) << 52
            for j in range(size):
                k = np.floor(x[j] * _PER_LOG2 + 0.5)
                r = (x[j] - k * _LOG2) - k * _LOG2_REST
                high = ((((_C12 * r + _C11) * r + _C10) * r + _C9) * r + _C8) * r + _C7
                low = (((((_C6 * r + _C5) * r + _C4) * r + _C3) * r + 0.5) * r + 1.0) * r + 1.0
                r3 = r * r * r
                out[j] = (high * (r3 * r3 * r) + low) * scale[j]


def gaussians(products: Floats, rows: Floats, points: Floats) -> None:
    """Turn scalar products (n, m) into ``exp(-|row - point|^2)``, in place.

    ``rows`` (n,) and ``points`` (m,) are squared lengths.  Each element is computed independently
    of the others, with a relative error of a few units in the last place of the exponent.
    """
    _gaussians(products, read_only(rows), read_only(points))

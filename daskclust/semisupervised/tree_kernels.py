"""Prediction of decision trees: the mean of the class shares at the leaves of all trees."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from daskclust.core.array_types import Array, Bools, Floats
from daskclust.core.kernels.compiling import compiled

#: Number of rows that go through all trees at a time, so that they stay in the cache.
_SLAB = 512
_LARGEST = float(np.finfo(np.float32).max)


@compiled(counted=False)
def _walk(x: Any, start: int, stop: int, nodes: Any, out: Any) -> None:
    roots, children, features, thresholds, missing_go_left, shares = nodes
    for t in range(len(roots)):
        for i in range(start, stop):
            node = np.uintp(roots[t])
            feature = features[node]
            while feature >= 0:
                value = x[i, np.uintp(feature)]
                right = not value <= thresholds[node]
                # A missing value is neither less nor equal.
                if right and value != value and missing_go_left[node]:
                    right = False
                node = np.uintp(children[node, np.uintp(right)])
                feature = features[node]
            leaf = np.uintp(children[node, 0])
            for c in range(shares.shape[1]):
                out[i, c] += shares[leaf, c]


def leaf_shares(
    x: Array,
    roots: NDArray[np.int32],
    children: NDArray[np.int32],
    features: NDArray[np.int32],
    thresholds: NDArray[np.float32],
    missing_go_left: Bools,
    shares: Floats,
) -> Floats:
    """Return the mean of the shares (s, c) at the leaves of each row, over all trees.

    Rows are compared in single precision, as in the fit.  ``roots`` (t,) is the first node of each
    tree.  ``children`` (m, 2) are the left and the right node; at a leaf, both are the index of its
    shares.  ``features`` (m,) are the compared columns, -1 at a leaf.  Values up to ``thresholds``
    (m,) go left, and missing values if ``missing_go_left``.
    """
    rows = np.ascontiguousarray(np.clip(x, -_LARGEST, _LARGEST), dtype=np.float32)
    nodes = (
        np.asarray(roots, np.int32),
        np.asarray(children, np.int32),
        np.asarray(features, np.int32),
        np.asarray(thresholds, np.float32),
        missing_go_left,
        np.asarray(shares, np.float64),
    )
    out = np.zeros((len(x), shares.shape[1]))
    for start in range(0, len(x), _SLAB):
        _walk(rows, start, min(start + _SLAB, len(x)), nodes, out)
    out /= len(roots)
    return out

"""Decision trees side by side: what the leaves of all trees say of a row, on average."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from daskclust.core.array_types import Array, Bools, Floats
from daskclust.core.kernels.compiling import compiled

#: Rows that go through all trees at a time: they stay near, and a tree does for so many.
_SLAB = 512
_LARGEST = float(np.finfo(np.float32).max)


@compiled(counted=False)
def _walk(x: Any, start: int, stop: int, nodes: Any, out: Any) -> None:
    roots, children, features, thresholds, gaps_left, shares = nodes
    for t in range(len(roots)):
        for i in range(start, stop):
            node = np.uintp(roots[t])
            feature = features[node]
            while feature >= 0:
                value = x[i, np.uintp(feature)]
                right = not value <= thresholds[node]
                # A missing value is neither less nor equal.
                if right and value != value and gaps_left[node]:
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
    gaps_left: Bools,
    shares: Floats,
) -> Floats:
    """Return the mean of the shares (s, c) at the leaves that rows fall into, tree by tree.

    Rows are taken in single precision, as trees are grown.  ``roots`` (t,) is the first node of
    each tree; ``children`` (m, 2) the left and right node, at a leaf the number of its shares,
    twice; ``features`` (m,) the column that is compared, -1 at a leaf.  Values up to
    ``thresholds`` (m,) go left, and missing ones where ``gaps_left``.
    """
    rows = np.ascontiguousarray(np.clip(x, -_LARGEST, _LARGEST), dtype=np.float32)
    nodes = (
        np.asarray(roots, np.int32),
        np.asarray(children, np.int32),
        np.asarray(features, np.int32),
        np.asarray(thresholds, np.float32),
        gaps_left,
        np.asarray(shares, np.float64),
    )
    out = np.zeros((len(x), shares.shape[1]))
    for start in range(0, len(x), _SLAB):
        _walk(rows, start, min(start + _SLAB, len(x)), nodes, out)
    out /= len(roots)
    return out

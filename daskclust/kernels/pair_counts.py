"""Counts of pairs of nodes, as sorted keys: what a graph is made of, merged exactly.

The count of the pair (a, b) out of k nodes has the key ``a k + b``.  Counts of whole
weights are whole numbers, so that no order of merging shows in them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from daskclust._types import Floats, Ints


class PairCounts(NamedTuple):
    """Weights of pairs.

    Attributes
    ----------
    keys : ndarray of int64
        Ascending, each once.
    counts : ndarray of float64
    """

    keys: Ints
    counts: Floats

    def matrix(self, k: int) -> Floats:
        """Return the symmetric matrix of shape (k, k): pairs count in both orders.

        Examples
        --------
        >>> import numpy as np
        >>> PairCounts(np.array([1, 2]), np.array([3.0, 4.0])).matrix(2)
        array([[0., 7.],
               [7., 0.]])
        """
        flat = np.zeros(k * k)
        flat[self.keys] = self.counts
        full: Floats = flat.reshape(k, k)
        return full + full.T


def count_pairs(a: NDArray, b: NDArray, weight: Floats | None, k: int) -> PairCounts:
    """Sum the weights of pairs of nodes.

    Parameters
    ----------
    a, b : ndarray of shape (n,), int
        Nodes in [0, k).
    weight : ndarray of shape (n,), float64, optional
        1 by default; pairs of weight 0 are left out.
    k : int

    Examples
    --------
    >>> import numpy as np
    >>> count_pairs(np.array([0, 1, 0]), np.array([1, 0, 1]), None, 2)
    PairCounts(keys=array([1, 2]), counts=array([2., 1.]))
    """
    keys = a.astype(np.int64) * k + b
    if weight is None:
        found, counts = np.unique(keys, return_counts=True)
        return PairCounts(found, counts.astype(np.float64))
    found, places = np.unique(keys, return_inverse=True)
    sums: Floats = np.bincount(places.ravel(), weights=weight, minlength=len(found)).astype(float)
    return PairCounts(found[sums > 0], sums[sums > 0])


def merge_counts(parts: Sequence[PairCounts]) -> PairCounts:
    """Add counts.

    Examples
    --------
    >>> import numpy as np
    >>> one = PairCounts(np.array([1]), np.array([2.0]))
    >>> merge_counts([one, one])
    PairCounts(keys=array([1]), counts=array([4.]))
    """
    if not parts:
        return PairCounts(np.empty(0, np.int64), np.empty(0))
    if len(parts) == 1:
        return parts[0]
    keys, places = np.unique(np.concatenate([part.keys for part in parts]), return_inverse=True)
    weight = np.concatenate([part.counts for part in parts])
    counts = np.bincount(places.ravel(), weights=weight, minlength=len(keys))
    return PairCounts(keys, counts.astype(np.float64))


def count_near(indices: NDArray[np.int32], weight: Floats | None, k: int) -> PairCounts:
    """Count the pairs among the nearest nodes of each row, the lower node first.

    Of two nearest nodes this is the connectivity of Tasdemir & Merenyi (2009); of more,
    the weights of an anchor graph whose anchors count alike.

    Parameters
    ----------
    indices : ndarray of shape (n, m), int32
        Different nodes in each row.
    weight : ndarray of shape (n,), float64, optional
    k : int

    Examples
    --------
    >>> import numpy as np
    >>> count_near(np.array([[2, 0], [0, 2]]), None, 3)
    PairCounts(keys=array([2]), counts=array([2.]))
    """
    m = indices.shape[1]
    parts = []
    for i in range(m):
        for j in range(i + 1, m):
            low = np.minimum(indices[:, i], indices[:, j])
            high = np.maximum(indices[:, i], indices[:, j])
            parts.append(count_pairs(low, high, weight, k))
    return merge_counts(parts)


def count_adjacent(nodes: NDArray[np.int32], k: int) -> PairCounts:
    """Count the nodes of horizontally and vertically adjacent pixels.

    Parameters
    ----------
    nodes : ndarray of shape (height, width), int32
        Nearest node of each pixel, -1 where the pixel is masked.
    k : int

    Examples
    --------
    >>> import numpy as np
    >>> count_adjacent(np.array([[0, 1], [-1, 1]], dtype=np.int32), 2)
    PairCounts(keys=array([1, 3]), counts=array([1., 1.]))
    """
    return merge_counts(
        [
            count_edges(nodes[:, :-1].ravel(), nodes[:, 1:].ravel(), k),
            count_edges(nodes[:-1].ravel(), nodes[1:].ravel(), k),
        ]
    )


def count_edges(a: NDArray[np.int32], b: NDArray[np.int32], k: int) -> PairCounts:
    """Count pairs of pixels side by side, the lower node first; -1 is no pixel.

    Examples
    --------
    >>> import numpy as np
    >>> count_edges(np.array([1, -1]), np.array([0, 0]), 2)
    PairCounts(keys=array([1]), counts=array([1.]))
    """
    both = (a >= 0) & (b >= 0)
    a, b = a[both], b[both]
    return count_pairs(np.minimum(a, b), np.maximum(a, b), None, k)

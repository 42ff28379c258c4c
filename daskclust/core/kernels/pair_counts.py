"""Counts of pairs: of nodes, what a graph is made of, and of labels; merged exactly.

The count of the pair (a, b) out of k nodes has the key ``a k + b``.  Counts of whole
weights are whole numbers, so that no order of merging shows in them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from daskclust.core.array_types import Floats, Ints


class PairCounts(NamedTuple):
    """Weights of pairs; keys ascend, each once."""

    keys: Ints
    counts: Floats

    def matrix(self, k: int) -> Floats:
        """Return the symmetric matrix of shape (k, k): pairs count in both orders."""
        flat = np.zeros(k * k)
        flat[self.keys] = self.counts
        full: Floats = flat.reshape(k, k)
        return full + full.T

    def sparse(self, k: int) -> csr_matrix:
        """Return the :meth:`matrix` as a sparse matrix."""
        half = csr_matrix((self.counts, (self.keys // k, self.keys % k)), shape=(k, k))
        return (half + half.T).tocsr()

    def degrees(self, k: int) -> Floats:
        """Return the sums of the rows of the :meth:`matrix`, (k,)."""
        ends = np.concatenate([self.keys // k, self.keys % k])
        sums: Floats = np.bincount(ends, np.tile(self.counts, 2), k).astype(np.float64)
        return sums


def count_pairs(a: NDArray, b: NDArray, weight: Floats | None, k: int) -> PairCounts:
    """Sum the weights of pairs of nodes in [0, k); pairs of weight 0 are left out."""
    keys = a.astype(np.int64) * k + b
    if weight is None:
        found, counts = np.unique(keys, return_counts=True)
        return PairCounts(found, counts.astype(np.float64))
    found, places = np.unique(keys, return_inverse=True)
    sums: Floats = np.bincount(places.ravel(), weights=weight, minlength=len(found)).astype(float)
    return PairCounts(found[sums > 0], sums[sums > 0])


def merge_counts(parts: Sequence[PairCounts]) -> PairCounts:
    if not parts:
        return PairCounts(np.empty(0, np.int64), np.empty(0))
    if len(parts) == 1:
        return parts[0]
    keys, places = np.unique(np.concatenate([part.keys for part in parts]), return_inverse=True)
    weight = np.concatenate([part.counts for part in parts])
    counts = np.bincount(places.ravel(), weights=weight, minlength=len(keys))
    return PairCounts(keys, counts.astype(np.float64))


def count_near(indices: NDArray[np.int32], weight: Floats | None, k: int) -> PairCounts:
    """Count the pairs among the nearest nodes (n, m) of each row, the lower node first.

    Of two nearest nodes this is the connectivity of Tasdemir & Merenyi (2009); of more,
    the weights of an anchor graph whose anchors count alike.
    """
    pairs = combinations(indices.T, 2)
    parts = [count_pairs(np.minimum(a, b), np.maximum(a, b), weight, k) for a, b in pairs]
    return merge_counts(parts)


def count_adjacent(nodes: NDArray[np.int32], k: int) -> PairCounts:
    """Count the nodes of horizontally and vertically adjacent pixels; -1 is a masked pixel."""
    pairs = (nodes[:, :-1], nodes[:, 1:]), (nodes[:-1], nodes[1:])
    return merge_counts([count_edges(a.ravel(), b.ravel(), k) for a, b in pairs])


def count_edges(a: NDArray[np.int32], b: NDArray[np.int32], k: int) -> PairCounts:
    """Count pairs of pixels side by side, the lower node first; -1 is no pixel."""
    both = (a >= 0) & (b >= 0)
    a, b = a[both], b[both]
    return count_pairs(np.minimum(a, b), np.maximum(a, b), None, k)


#: Cells up to which pairs of labels are counted in a dense table: no sorting.
_DENSE = 2**20
#: Cells for each row of tables up to which these are merged so, too.
_SPARSEST = 64


def _label_table(a: Ints, b: Ints, counts: Ints | None, most: int) -> Ints:
    """Add up the counts of equal pairs, by as many cells at most; 1 each by default."""
    if not len(a):
        return np.empty((0, 3), np.int64)
    low_a, low_b = int(a.min()), int(b.min())
    width = int(b.max()) - low_b + 1
    if (int(a.max()) - low_a + 1) * width <= most:
        cells = np.bincount((a - low_a) * width + (b - low_b), counts)
        found = np.flatnonzero(cells)
        # Whole numbers below 2**53: exact.
        sums = cells[found].astype(np.int64)
        return np.stack([found // width + low_a, found % width + low_b, sums], axis=1)
    order = np.lexsort((b, a))
    a, b = a[order], b[order]
    starts = np.flatnonzero(np.r_[True, (a[1:] != a[:-1]) | (b[1:] != b[:-1])])
    sums = np.add.reduceat(np.ones(len(a), np.int64) if counts is None else counts[order], starts)
    return np.stack([a[starts], b[starts], sums], axis=1)


def count_label_pairs(a: Ints, b: Ints) -> Ints:
    """Count how often each pair of labels occurs: label, label and count (m, 3), sorted."""
    return _label_table(a, b, None, _DENSE)


def merge_label_pairs(one: Ints, other: Ints) -> Ints:
    joined = np.concatenate([one, other])
    a, b, counts = joined.T
    return _label_table(a, b, counts, min(_DENSE, _SPARSEST * len(joined)))

"""Counts of pairs of nodes, which are the edges of graphs, and of labels; merged exactly.

The count of the pair (a, b) of k nodes has the key ``a k + b``.  Counts with integer weights are
integers, so they do not depend on the order of merging.
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
    """Weights of pairs; keys are ascending and distinct."""

    keys: Ints
    counts: Floats

    def matrix(self, k: int) -> Floats:
        """Return the symmetric matrix (k, k); pairs count in both orders."""
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
    """Sum the weights of pairs of nodes in [0, k); pairs of weight 0 are omitted."""
    keys = a.astype(np.int64) * k + b
    if weight is None:
        pair_keys, counts = np.unique(keys, return_counts=True)
        return PairCounts(pair_keys, counts.astype(np.float64))
    pair_keys, positions = np.unique(keys, return_inverse=True)
    sums: Floats = np.bincount(positions.ravel(), weights=weight, minlength=len(pair_keys)).astype(
        float
    )
    return PairCounts(pair_keys[sums > 0], sums[sums > 0])


def merge_counts(parts: Sequence[PairCounts]) -> PairCounts:
    if not parts:
        return PairCounts(np.empty(0, np.int64), np.empty(0))
    if len(parts) == 1:
        return parts[0]
    keys, positions = np.unique(np.concatenate([part.keys for part in parts]), return_inverse=True)
    weight = np.concatenate([part.counts for part in parts])
    counts = np.bincount(positions.ravel(), weights=weight, minlength=len(keys))
    return PairCounts(keys, counts.astype(np.float64))


def count_near(indices: NDArray[np.int32], weight: Floats | None, k: int) -> PairCounts:
    """Count the pairs among the nearest nodes (n, m) of each row, the lower node first.

    For two nearest nodes this is the connectivity of Tasdemir & Merenyi (2009); for more nodes, the
    weights of an anchor graph with equal anchors.
    """
    pairs = combinations(indices.T, 2)
    parts = [count_pairs(np.minimum(a, b), np.maximum(a, b), weight, k) for a, b in pairs]
    return merge_counts(parts)


def count_adjacent(nodes: NDArray[np.int32], k: int) -> PairCounts:
    """Count the nodes of horizontally and vertically adjacent pixels; -1 marks a masked pixel."""
    pairs = (nodes[:, :-1], nodes[:, 1:]), (nodes[:-1], nodes[1:])
    return merge_counts([count_edges(a.ravel(), b.ravel(), k) for a, b in pairs])


def count_edges(a: NDArray[np.int32], b: NDArray[np.int32], k: int) -> PairCounts:
    """Count pairs of adjacent pixels, the lower node first; -1 marks a missing pixel."""
    both = (a >= 0) & (b >= 0)
    a, b = a[both], b[both]
    return count_pairs(np.minimum(a, b), np.maximum(a, b), None, k)


#: Maximum number of cells of a dense table in which pairs of labels are counted without sorting.
_DENSE = 2**20
#: Maximum number of cells per row of tables that are merged in a dense table.
_SPARSEST = 64


def _label_table(a: Ints, b: Ints, counts: Ints | None, max_cells: int) -> Ints:
    """Add up the counts of equal pairs (default 1), in a table of at most ``max_cells`` cells."""
    if not len(a):
        return np.empty((0, 3), np.int64)
    low_a, low_b = int(a.min()), int(b.min())
    width = int(b.max()) - low_b + 1
    if (int(a.max()) - low_a + 1) * width <= max_cells:
        cells = np.bincount((a - low_a) * width + (b - low_b), counts)
        nonzero = np.flatnonzero(cells)
        # Integers below 2**53, which are exact.
        sums = cells[nonzero].astype(np.int64)
        return np.stack([nonzero // width + low_a, nonzero % width + low_b, sums], axis=1)
    order = np.lexsort((b, a))
    a, b = a[order], b[order]
    starts = np.flatnonzero(np.r_[True, (a[1:] != a[:-1]) | (b[1:] != b[:-1])])
    sums = np.add.reduceat(np.ones(len(a), np.int64) if counts is None else counts[order], starts)
    return np.stack([a[starts], b[starts], sums], axis=1)


def count_label_pairs(a: Ints, b: Ints) -> Ints:
    """Count the occurrences of each pair of labels: label, label and count (m, 3), sorted."""
    return _label_table(a, b, None, _DENSE)


def merge_label_pairs(first: Ints, second: Ints) -> Ints:
    joined = np.concatenate([first, second])
    a, b, counts = joined.T
    return _label_table(a, b, counts, min(_DENSE, _SPARSEST * len(joined)))

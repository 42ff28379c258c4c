"""How often labels occur, alone and in pairs: tables of counts that can be merged."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from daskclust._types import Ints

Table = Ints

#: Cells up to which pairs are counted in a dense table: no sorting.
_DENSE = 2**20
#: Cells for each row of tables up to which these are merged so, too.
_SPARSEST = 64


def _sorted_table(a: Ints, b: Ints, count: Ints) -> Table:
    """Add up the counts of equal pairs."""
    order = np.lexsort((b, a))
    a, b, count = a[order], b[order], count[order]
    first = np.ones(len(a), dtype=bool)
    first[1:] = (a[1:] != a[:-1]) | (b[1:] != b[:-1])
    starts = np.flatnonzero(first)
    total = np.add.reduceat(count, starts) if len(starts) else count[:0]
    return np.stack([a[starts], b[starts], total], axis=1)


def count_pairs(a: Ints, b: Ints) -> Table:
    """Count how often each pair of labels occurs: label, label and count (m, 3), sorted.

    O(n) for labels in a small range, else O(n log n).
    """
    if not len(a):
        return np.empty((0, 3), np.int64)
    low_a, low_b = int(a.min()), int(b.min())
    width = int(b.max()) - low_b + 1
    if (int(a.max()) - low_a + 1) * width > _DENSE:
        return _sorted_table(a, b, np.ones(len(a), np.int64))
    cells = np.bincount((a - low_a) * width + (b - low_b))
    found = np.flatnonzero(cells)
    return np.stack([found // width + low_a, found % width + low_b, cells[found]], axis=1)


def merge_counts(tables: Sequence[Table]) -> Table:
    """Merge tables of :func:`count_pairs`: associative, in any order the same."""
    tables = [table for table in tables if len(table)]
    if not tables:
        return np.empty((0, 3), np.int64)
    low_a, low_b = (min(int(table[:, i].min()) for table in tables) for i in (0, 1))
    high_a, high_b = (max(int(table[:, i].max()) for table in tables) for i in (0, 1))
    width = high_b - low_b + 1
    joined = np.concatenate(tables)
    if (high_a - low_a + 1) * width <= min(_DENSE, _SPARSEST * len(joined)):
        cells = np.zeros((high_a - low_a + 1) * width, np.int64)
        for table in tables:
            # Each pair once in a table.
            cells[(table[:, 0] - low_a) * width + (table[:, 1] - low_b)] += table[:, 2]
        found = np.flatnonzero(cells)
        return np.stack([found // width + low_a, found % width + low_b, cells[found]], axis=1)
    return _sorted_table(joined[:, 0], joined[:, 1], joined[:, 2])

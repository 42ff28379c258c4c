"""Numbers of centers of the levels of a hierarchy, and estimates of passes, files and memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from daskclust.core.array_types import Floats, Ints
from daskclust.core.engine import PART, row_record

#: Number of leaves from which an integer `n_clusters` gets a level of parents.
_TWO_LEVELS = 1000
#: Maximum number of tasks of a refinement.  Each task writes a file section for each other task.
MAX_SPANS = 128
#: Maximum number of rounds in which large leaves are divided.
MAX_ROUNDS = 24


def totals_of(n_clusters: Any) -> tuple[int, ...]:
    """Return the requested number of centers of each level, for at least two levels.

    >>> totals_of(20), totals_of(2000), totals_of((5, 20, 20))
    ((20, 20), (11, 2000), (5, 100, 2000))
    """
    if isinstance(n_clusters, tuple | list):
        totals = np.cumprod(n_clusters, dtype=object).tolist()
    else:
        k = int(n_clusters)
        totals = [k if k < _TWO_LEVELS else choose_parents(k), k]
    return tuple(map(int, totals if len(totals) > 1 else 2 * totals))


def choose_parents(n_clusters: int) -> int:
    """Return the number of parents for ``n_clusters`` leaves: a quarter of the square root.

    A row is compared with ``m`` parents and ``k / m`` children.  The sum is smallest for ``m =
    sqrt(k)``.  With a quarter of these parents, a row needs about twice as many comparisons, and
    the loss of accuracy is a third as large.

    >>> choose_parents(2000), choose_parents(100_000)
    (11, 79)
    """
    return max(1, round(np.sqrt(n_clusters) / 4))


def distribute_children(total: int, weights: Floats, max_children: Ints) -> Ints:
    """Distribute children in proportion to weights, from one to ``max_children`` per parent.

    The sum of the result is as near to ``total`` as the limits allow.

    >>> distribute_children(6, np.array([1.0, 2.0, 9.0]), np.array([9, 9, 9]))
    array([1, 1, 4])
    >>> distribute_children(6, np.array([1.0, 2.0, 9.0]), np.array([1, 9, 3]))
    array([1, 2, 3])
    """
    max_children = np.maximum(max_children, 1)
    # Round, so that the order of summation of the weights does not matter.
    ideal = np.round(total * weights / weights.sum(), 6)
    sizes = np.clip(np.floor(ideal).astype(np.int64), 1, max_children)
    while sizes.sum() != total:
        missing = int(total - sizes.sum())
        adjustable = np.flatnonzero(sizes < max_children if missing > 0 else sizes > 1)
        if not len(adjustable):
            break
        shortfall = ideal[adjustable] - sizes[adjustable]
        chosen = np.argsort(-shortfall if missing > 0 else shortfall, kind="stable")[: abs(missing)]
        sizes[adjustable[chosen]] += np.sign(missing)
    return sizes


def passes_of_levels(params: Mapping[str, Any]) -> int:
    """Return the maximum number of passes over all rows after the passes of the first level.

    There is one pass per further level, and one that counts the rows of the leaves.  Each division
    of large leaves takes two passes, because rows are counted again.
    """
    totals = totals_of(params["n_clusters"])
    divides_leaves = params.get("max_cluster_size") is not None
    if totals[0] == totals[-1] and not divides_leaves:
        return 0
    return len(totals) + 2 * MAX_ROUNDS * divides_leaves


def bytes_of_levels(
    params: Mapping[str, Any], shape: tuple[int, int], dtype: np.dtype[Any], block_rows: int
) -> tuple[int, int]:
    """Return the bytes of temporary files, and the bytes of memory of the largest task.

    Assumptions: a parent has up to twice the average number of rows, rows are stored as `dtype`,
    and the rows of a parent are nearest to leaves of `n_probe` parents.
    """
    (n, p), totals = shape, totals_of(params["n_clusters"])
    divides_leaves = params.get("max_cluster_size") is not None
    if totals[0] == totals[-1] and not divides_leaves:
        return 0, 0
    k, m = totals[-1], totals[-2]
    record, values = row_record(dtype, p).itemsize, p * dtype.itemsize
    # Records are sorted before they are written.
    written_bytes = 2 * block_rows * values + 2 * min(PART, block_rows * record)
    rows = min(n, -(-2 * n // totals[0]))
    parent_bytes = rows * values + max(rows * record, 8 * p * min(rows, 10 * -(-k // m)))
    # Sums of leaves exist twice while their array grows.
    probe = m if params["n_probe"] == "all" else min(m, int(params["n_probe"]))
    n_leaves = min(k, -(-m // min(m, MAX_SPANS)) * probe * -(-k // m))
    refined_bytes = parent_bytes + 2 * n_leaves * p * 8 if params["refine"] else 0
    sums = min(n, probe * k) * row_record(np.dtype(np.float64), p).itemsize
    spill = n * record * (1 + divides_leaves) + (sums if params["refine"] else 0)
    return spill, max(written_bytes, parent_bytes, refined_bytes) + 4 * k * p

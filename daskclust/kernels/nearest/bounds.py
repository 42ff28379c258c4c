"""Nearest centers by bounds: rows whose cluster cannot have changed are not scored.

When a row is scored against all centers, lower bounds on the distances to the few nearest centers
are stored, and one lower bound for all others (Drake and Hamerly, 2012).  In later passes a bound
is reduced by the distance between the center and its position at that time; this is at most the
sum of its steps.  If the bounds do not exclude a center, the distance to it is computed.  If they
exclude too few centers, the row is scored again.

Results equal those of :func:`daskclust.kernels.nearest.assign.accumulate` bit for bit.  Bounds
include the rounding error of scores, so scoring a skipped row would give the same cluster.  All
rows are summed in the same order, and their distances are computed in the same order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daskclust.kernels.nearest._bound_state import LARGEST, NEAR, Past, RowState
from daskclust.kernels.nearest.assign import BlockStatistics, check_rows, no_statistics
from daskclust.kernels.nearest.implementation import bounded_scan

__all__ = [
    "Past",
    "RowState",
    "accumulate_bounded",
    "bytes_a_row",
    "no_past",
    "no_state",
    "past_of",
]

Float = NDArray[np.float64]


def _most_measured(k: int) -> int:
    """Centers that a row is measured against at most: they take a fraction of a full search."""
    return max(2, min(8, k // 40))


def bytes_a_row() -> int:
    """Bytes of state for each row.

    Examples
    --------
    >>> bytes_a_row()
    80
    """
    return 16 + 8 * NEAR


def no_state(n: int) -> RowState:
    """Allocate the state of n rows that were not scored yet.

    Examples
    --------
    >>> no_state(2).scored
    array([-1, -1], dtype=int32)
    """
    return RowState(
        np.zeros(n, np.int32),
        np.empty(n, np.float32),
        np.full(n, -1, np.int32),
        np.empty((n, NEAR), np.int32),
        np.empty((n, NEAR), np.float32),
        np.empty(n, np.float32),
    )


def no_past(k: int) -> Past:
    """Return the past of k centers without earlier passes."""
    return Past(0, np.empty((0, k), np.float32), np.empty((0, 1), np.int32))


def past_of(centers: Float, before: Sequence[Float], first: int) -> Past:
    """Compute the distances of centers from their earlier positions.

    Parameters
    ----------
    centers : ndarray of shape (k, p), float64
    before : sequence of ndarray of shape (k, p), float64
        Centers of the earlier passes, oldest first.
    first : int
        Number of the oldest pass.

    Returns
    -------
    Past

    Notes
    -----
    Cost O(G k p) for G passes.

    Examples
    --------
    >>> import numpy as np
    >>> past_of(np.array([[0.0], [4.0]]), [np.array([[0.0], [1.0]])], 3).movers
    array([[1, 0]], dtype=int32)
    """
    k = len(centers)
    if not before:
        return no_past(k)
    with np.errstate(over="ignore"):
        gaps = np.stack(before)
        gaps -= centers
        steps = np.sqrt(np.einsum("gkp,gkp->gk", gaps, gaps))
    # Up by more than rounding takes: differences, squares, sum, root, and the lower precision;
    # a center whose squared steps are too small for float64 has moved all the same.
    moved = np.minimum(steps, LARGEST) * (1.0 + 2.0**-20)
    moved[steps > LARGEST] = np.inf
    still = steps == 0.0
    moved[still] = np.where((gaps[still] != 0.0).any(axis=1), 1e-37, 0.0)
    moved[(moved > 0.0) & (moved < 1e-37)] = 1e-37
    narrow = moved.astype(np.float32)
    count = min(k, _most_measured(k) + 2)
    if count < k:
        top = np.argpartition(-narrow, count - 1, axis=1)[:, :count]
    else:
        top = np.broadcast_to(np.arange(k), narrow.shape)
    order = np.argsort(-np.take_along_axis(narrow, top, axis=1), axis=1, kind="stable")
    movers = np.take_along_axis(top, order, axis=1).astype(np.int32)
    return Past(first, narrow, np.ascontiguousarray(movers))


def accumulate_bounded(
    x: NDArray[Any],
    centers: Float,
    past: Past,
    rows: RowState,
    number: int,
    *,
    weight: Float | None = None,
    shift: Float | None = None,
    segments: NDArray[np.int64] | None = None,
    into: BlockStatistics | None = None,
) -> tuple[BlockStatistics, int, int]:
    """Assign a block's rows and sum them by cluster; score only rows whose cluster may change.

    Parameters
    ----------
    x, centers, weight, shift, segments
        As of :func:`daskclust.kernels.nearest.assign.accumulate`.
    past : Past
        Past of these centers (:func:`past_of`).
    rows : RowState
        State of the same rows after an earlier pass, or :func:`no_state`; updated in place.
    number : int
        Number of this pass: one more than that of the newest earlier pass, if any.
    into : BlockStatistics, optional
        Statistics of earlier rows, to which these are added; new ones by default.

    Returns
    -------
    statistics : BlockStatistics
        As of ``accumulate``, bit for bit.
    n_scored : int
        Number of rows scored against all centers.
    n_measured : int
        Number of distances computed to single centers.

    Notes
    -----
    Cost O(p) for a skipped row, O(k p) for a scored row.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.array([[0.0], [1.0], [10.0]])
    >>> old, new = np.array([[0.0], [9.0]]), np.array([[0.5], [10.0]])
    >>> rows = no_state(3)
    >>> accumulate_bounded(x, old, no_past(2), rows, 0)[1]
    3
    >>> accumulate_bounded(x, new, past_of(new, [old], 0), rows, 1)[1]
    0
    """
    x, centers = check_rows(x, centers, shift=shift)
    n, (k, p) = len(x), centers.shape
    if weight is not None and len(weight) != n:
        raise ValueError(f"{n} rows have {len(weight)} weights.")
    if len(rows.label) != n or past.moved.shape[1] != k:
        raise ValueError(
            f"the state of {len(rows.label)} rows and the past of {past.moved.shape[1]} centers "
            f"meet {n} rows and {k} centers."
        )
    stats = no_statistics(k, p) if into is None else into
    if not n:
        return stats, 0, 0
    weights = np.empty(0) if weight is None else weight
    ends = np.array([n]) if segments is None else segments
    scored, measured = bounded_scan(
        x, weights, centers, shift, ends, stats, number, past, rows, _most_measured(k)
    )
    return stats, scored, measured

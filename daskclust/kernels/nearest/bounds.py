"""Nearest centers by bounds: rows whose cluster cannot have changed are not read.

When a row is scored against all centers, lower bounds on the distances to the few nearest centers
are stored, and one lower bound for all others (Drake and Hamerly, 2012).  In later passes a bound
is reduced by the distance between the center and its position at that time; this is at most the
sum of its steps.  If the bounds do not exclude a center, the row is compared with its near centers
and with those that have moved far.  If these do not tell, it is scored again.

Sums of each segment of rows by cluster are kept, too: where no row came or went they are the same,
and the rows are not read.

Results equal those of :func:`daskclust.kernels.nearest.assign.accumulate` bit for bit.  Bounds
include the rounding error of scores, so scoring a skipped row would give the same cluster.  Sums
that change are made anew in the same order.  Only inertia, where rows are not read, follows from
the sums: it is off by some units in the last place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from daskclust._types import Array, Floats, Ints
from daskclust.kernels.nearest._bound_state import (
    LARGEST,
    NEAR,
    UNKNOWN,
    CellState,
    Past,
    RowState,
)
from daskclust.kernels.nearest.assign import SEGMENT, BlockStatistics, check_rows, no_statistics
from daskclust.kernels.nearest.implementation import bounded_scan

__all__ = [
    "CellState",
    "Past",
    "RowState",
    "Work",
    "accumulate_bounded",
    "bytes_a_row",
    "no_cells",
    "no_past",
    "no_state",
    "past_of",
]


#: The centers that have moved farthest, which are told apart.
_MOVERS = NEAR + 2


class Work(NamedTuple):
    """What a bounded pass did.

    Attributes
    ----------
    scored : int
        Rows scored against all centers.
    compared : int
        Comparisons of a row with eight centers.
    changed : int
        Rows that changed their cluster; the first is that of all rows before.
    summed : int
        Rows that were summed.
    """

    scored: int
    compared: int
    changed: int
    summed: int


def bytes_a_row(k: int, p: int) -> int:
    """Bytes of state for each row: its bounds, and its share of the sums of a segment.

    Examples
    --------
    >>> bytes_a_row(8, 16), bytes_a_row(10_000, 16)
    (92, 228)
    """
    return 28 + 8 * NEAR + 8 * (p + 1) * min(k, SEGMENT) // SEGMENT


def no_cells(ends: Ints, k: int, p: int) -> CellState | None:
    """Allocate sums of segments that are not known yet; None where these are too short.

    With fewer rows than clusters most sums change with each pass, and take more room than rows.

    Examples
    --------
    >>> no_cells(np.array([4096, 8192]), 10, 3).sums.shape
    (20, 3)
    """
    n, count = int(ends[-1]) if len(ends) else 0, len(ends)
    if count * k > n or count > 2 * (1 + n // SEGMENT):
        return None
    return CellState(
        np.empty((count * k, p)), np.empty((count, k)), np.full(count, UNKNOWN, np.int8)
    )


def no_state(n: int) -> RowState:
    """Allocate the state of n rows that were not scored yet.

    Examples
    --------
    >>> no_state(2).scored
    array([-1, -1], dtype=int32)
    """

    def never() -> NDArray[np.int32]:
        return np.full(n, -1, np.int32)

    return RowState(
        np.zeros(n, np.int32),
        np.empty(n, np.float32),
        np.empty(n, np.float32),
        never(),
        np.zeros((n, NEAR), np.int32),
        np.empty((n, NEAR), np.float32),
        never(),
        np.empty(n, np.float32),
        never(),
    )


def no_past(k: int) -> Past:
    """Return the past of k centers without earlier passes."""
    return Past(0, np.empty((0, k), np.float32), np.empty((0, _MOVERS), np.int32))


def past_of(centers: Floats, before: Sequence[Floats], first: int, most: int | None = None) -> Past:
    """Compute the distances of centers from their earlier positions.

    Parameters
    ----------
    centers : ndarray of shape (k, p), float64
    before : sequence of ndarray of shape (k, p), float64
        Centers of the earlier passes, oldest first.
    first : int
        Number of the oldest pass.
    most : int, optional
        How many earlier passes are known at most; no limit by default.

    Returns
    -------
    Past

    Notes
    -----
    Cost O(G k p) for G passes.

    Examples
    --------
    >>> import numpy as np
    >>> past_of(np.array([[0.0], [4.0]]), [np.array([[0.0], [1.0]])], 3).movers[:, :3]
    array([[1, 0, 0]], dtype=int32)
    """
    k = len(centers)
    if not before:
        return no_past(k)
    steps, lengths = np.empty((2, len(before), k))
    gap = np.empty(centers.shape)
    with np.errstate(over="ignore"):
        # One by one: all at once take more memory than the fast caches have.
        for g, old in enumerate(before):
            np.subtract(old, centers, out=gap)
            np.einsum("kp,kp->k", gap, gap, out=steps[g])
            np.einsum("kp->k", np.abs(gap, out=gap), out=lengths[g])
    np.sqrt(steps, out=steps)
    # Up by more than rounding takes: differences, squares, sum, root, and the lower precision;
    # a center whose squared steps are too small for float64 has moved all the same.
    moved = np.minimum(steps, LARGEST) * (1.0 + 2.0**-20)
    moved[steps > LARGEST] = np.inf
    moved[(lengths > 0.0) & (moved < 1e-37)] = 1e-37
    narrow = moved.astype(np.float32)
    count = min(k, _MOVERS)
    if count < k:
        top = np.argpartition(-narrow, count - 1, axis=1)[:, :count]
    else:
        top = np.broadcast_to(np.arange(k), narrow.shape)
    order = np.argsort(-np.take_along_axis(narrow, top, axis=1), axis=1, kind="stable")
    movers = np.take_along_axis(top, order, axis=1).astype(np.int32)
    # There are always as many: the last stands for those that are not.
    movers = np.pad(movers, ((0, 0), (0, _MOVERS - count)), mode="edge")
    renewed = 0 if most is None else max(0, len(before) - most // 2)
    return Past(first, narrow, np.ascontiguousarray(movers), renewed)


def _by_centers(stats: BlockStatistics, old: Floats, new: Floats) -> None:
    """Make inertia in statistics by the old centers that of the same clusters by new ones.

    ``sum |x - c'|^2 = sum |x - c|^2 + 2 (c - c') (S - W c) + W |c - c'|^2`` for sums S of
    weight W; nothing large cancels where c is near the mean.
    """
    p = old.shape[1]
    weights, step = stats.hi[:, p], old - new
    off = stats.hi[:, :p] - weights[:, None] * old
    more = np.einsum("kp,kp->k", step, 2.0 * off + weights[:, None] * step)
    stats.hi[:, p + 1] += stats.lo[:, p + 1] + more
    stats.lo[:, p + 1] = 0.0


def accumulate_bounded(
    x: Array,
    centers: Floats,
    past: Past,
    rows: RowState,
    number: int,
    *,
    weight: Floats | None = None,
    shift: Floats | None = None,
    segments: Ints | None = None,
    into: BlockStatistics | None = None,
    cells: CellState | None = None,
    before: tuple[BlockStatistics, Floats] | None = None,
    measured: bool = False,
) -> tuple[BlockStatistics, Work]:
    """Assign a block's rows and sum them by cluster; read only rows whose cluster may change.

    Parameters
    ----------
    x, weight, shift, segments, into
        As of :func:`daskclust.kernels.nearest.assign.accumulate`.
    centers : ndarray of shape (k, p), float64
    past : Past
        Of these centers.
    rows : RowState
        Of these rows; brought up to date.
    number : int
        Of this pass: 0 or more, and more than those before.
    cells : CellState, optional
        Of these segments; brought up to date.  Without it all rows are read.
    before : tuple of BlockStatistics and ndarray of shape (k, p), optional
        Statistics of these rows in the pass before, brought up to date, and its centers; only
        with ``cells``, and instead of ``into``.
    measured : bool, default=False
        Whether inertia is measured, for which all rows are read, even if it could follow from
        the sums.

    Returns
    -------
    stats : BlockStatistics
    work : Work

    Notes
    -----
    Cost O(1) for a row that bounds decide, O(p) for one that is compared or whose cluster of
    its segment has changed, O(k p) for a row that is scored.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.array([[0.0], [1.0], [10.0]])
    >>> old, new = np.array([[0.0], [9.0]]), np.array([[0.5], [10.0]])
    >>> rows = no_state(3)
    >>> accumulate_bounded(x, old, no_past(2), rows, 0)[1].scored
    3
    >>> accumulate_bounded(x, new, past_of(new, [old], 0), rows, 1)[1].scored
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
    ends = np.array([n]) if segments is None else segments
    if cells is not None and cells.weights.shape != (len(ends), k):
        raise ValueError(
            f"sums of {' x '.join(map(str, cells.weights.shape))} segments and clusters meet "
            f"{len(ends)} segments and {k} centers."
        )
    adding = before is None or cells is None
    if before is None or cells is None:
        stats = no_statistics(k, p) if into is None else into
        measured = True
    else:
        stats, old = before
        measured = measured or bool((cells.state == UNKNOWN).any())
        if not measured:
            _by_centers(stats, old, centers)
    if not n:
        return stats, Work(0, 0, 0, 0)
    weights = np.empty(0) if weight is None else weight
    work = bounded_scan(
        x, weights, centers, shift, ends, stats, number, past, rows, cells, adding, measured
    )
    return stats, Work(*work.tolist())

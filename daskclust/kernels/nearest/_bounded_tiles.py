"""Loops over the rows of a block that read only rows whose bounds do not decide them.

The arithmetic of a row, and its order, are those of :mod:`daskclust.kernels.nearest._tiles`: rows
that are scored go through the same register tiles, gathered.  Sums of a segment by cluster are
made anew, in row order, where a row came or went, and are kept otherwise.

Imports the loops of the plain pass; others import from
:mod:`daskclust.kernels.nearest.bounds`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from daskclust._types import Array, Floats, Ints
from daskclust.kernels.compensated import add_plain
from daskclust.kernels.compiling import compiled, inner
from daskclust.kernels.nearest._bound_decisions import (
    AHEAD,
    Nearby,
    Rounding,
    Window,
    ask_bounds,
    ask_near,
    note,
)
from daskclust.kernels.nearest._bound_state import (
    KNOWN,
    MIXED,
    NEAR,
    UNKNOWN,
    CellState,
    Past,
    RowState,
)
from daskclust.kernels.nearest._layout import Layout, lay_out, tile_rows
from daskclust.kernels.nearest._row_loops import (
    LINE_BYTES,
    add_row,
    pack_row,
    prefetch,
    row_distance,
)
from daskclust.kernels.nearest._tiles import (
    doubt,
    exact_nearest,
    keep_inside,
    make_room,
    rounding,
    score_tile,
    with_weights,
)

__all__ = ["bounded_scan"]


@inner(counted=False)
def _score_waiting(
    x: Any,
    start: Any,
    count: Any,
    number: Any,
    lanes: Any,
    centers: Any,
    layout: Any,
    norms: Any,
    packed: Any,
    scores: Any,
    rows: Any,
    off: Any,
    bound: Any,
    window: Any,
) -> bool:
    """Score the rows that bounds do not decide; return whether any was moved by its doubt."""
    first, final, waiting = window
    size, top = packed.shape[0], np.intp(0)
    points = centers.points
    moved = False
    for at in range(0, count, size):
        some = min(size, count - at)
        for w in range(some):
            pack_row(x, start + waiting[at + w], layout.shift, packed, w)  # type: ignore[call-arg]
        score_tile(packed, top, some, layout, scores)
        keep_inside(scores, some, points.shape[0])
        for w in range(some):
            t = waiting[at + w]
            i = start + t
            label = np.intp(scores.nearest[w])
            squared = row_distance(x, i, points, label, points[0], 1.0, points)
            low, next_low = scores.low[w], scores.next_low[w]
            note(i, w, number, lanes, scores, squared, norms[label], off, rows)
            first[t] = final[t] = label
            # `not >`: what overflowed is doubtful, too.
            if not (next_low - low > doubt(squared, low, bound)):
                exact = exact_nearest(x, i, centers)
                if exact != label:
                    moved = True
                    final[t] = exact
                    # Bounds are of another center.
                    rows.decided[i] = -1
    return moved


@inner(counted=False)
def _mark_changed(
    x: Any,
    row_weights: Any,
    start: Any,
    m: Any,
    points: Any,
    rows: Any,
    window: Any,
    measured: Any,
    dirty: Any,
    gains: Any,
) -> Any:
    """Mark the clusters that rows left or came to, and by how much inertia grew; return how many.

    Clusters where rows in doubt leave a trace of rounding are marked, too.
    """
    first, final = window.first, window.final
    labels, count = rows.label[start : start + m], np.intp(0)
    for t in range(m):
        new = final[t]
        if labels[t] == new and first[t] == new:
            continue
        i, old = start + t, np.intp(labels[t])
        dirty[first[t]] = dirty[new] = 1
        if old == new:
            continue
        count += 1
        dirty[old] = dirty[new] = 1
        labels[t] = new
        if not measured:
            weight = row_weights[i] if row_weights.size else 1.0
            gains[new] += weight * row_distance(x, i, points, new, points[0], 1.0, points)
            gains[old] -= weight * row_distance(x, i, points, old, points[0], 1.0, points)
    return count


@inner(counted=False)
def _sum_segment(
    x: Any,
    row_weights: Any,
    start: Any,
    m: Any,
    size: Any,
    lines: Any,
    points: Any,
    window: Any,
    moved: Any,
    dirty: Any,
    sums: Any,
    totals: Any,
    squares: Any,
) -> Any:
    """Sum the rows of the marked clusters, in the order of the plain pass; return how many."""
    first, final = window.first, window.final
    count = np.intp(0)
    for begin in range(0, m, size):
        some = min(size, m - begin)
        for t in range(begin, begin + some):
            label = np.intp(first[np.uintp(t)])
            if not dirty[np.uintp(label)]:
                continue
            count += 1
            i = start + t
            if t + AHEAD < m and dirty[first[t + AHEAD]]:
                for line in range(lines):
                    prefetch(x, i + AHEAD, line)  # type: ignore[call-arg]
            weight = row_weights[i] if row_weights.size else 1.0
            squared = add_row(x, i, points, label, points[0], weight, sums)
            if moved:
                squares[t - begin] = squared
            else:
                totals[label, 0] += weight
                totals[label, 1] += weight * squared
        if not moved:
            continue
        # As the plain pass: rows in doubt are moved at the end of their tile.
        for t in range(begin, begin + some):
            label, exact = np.intp(first[t]), np.intp(final[t])
            if label == exact:
                continue
            i = start + t
            weight = row_weights[i] if row_weights.size else 1.0
            for j in range(sums.shape[1]):
                v = weight * np.float64(x[i, j])
                sums[label, j] -= v
                sums[exact, j] += v
            squares[t - begin] = row_distance(x, i, points, exact, points[0], 1.0, points)
        for t in range(begin, begin + some):
            exact = np.intp(final[t])
            if dirty[exact]:
                weight = row_weights[start + t] if row_weights.size else 1.0
                totals[exact, 0] += weight
                totals[exact, 1] += weight * squares[t - begin]
    return count


@compiled(counted=False)
def _scan(
    x: Any,
    row_weights: Any,
    centers: Any,
    layout: Any,
    nearby: Any,
    ends: Any,
    stats: Any,
    number: Any,
    past: Any,
    rows: Any,
    cells: Any,
    kept: Any,
    adding: Any,
    measured: Any,
    packed: Any,
    scores: Any,
    window: Any,
    dirty: Any,
    touched: Any,
    totals: Any,
    squares: Any,
    gains: Any,
    work: Any,
) -> None:
    """Go over the segments of a block; :func:`bounded_scan` has the parameters, and the room."""
    p = x.shape[1]
    points = centers.points
    k = points.shape[0]
    hi, lo = stats
    size = packed.shape[0]
    lanes = scores.best.shape[1] if scores.best.shape[0] else 0
    lines = -(-p * x.itemsize // LINE_BYTES)
    bound = rounding(layout, k)
    floor = 64.0 * (p + 8) * np.float64(np.finfo(x.dtype).tiny)
    limit = min(np.float64(np.finfo(x.dtype).max), 1e70) / 128
    off = Rounding(
        np.float64(bound),
        floor,
        limit,
        (1.0 - 1e-12) / (1.0 + 2.0 * np.float64(bound)),
        (1.0 + 1e-12) / (1.0 - 2.0 * min(np.float64(bound), 0.25)),
    )

    start = np.intp(0)
    for segment in range(ends.size):
        m = ends[segment] - start
        place = segment if kept else np.intp(0)
        sums, weights = cells.sums[place * k : place * k + k], cells.weights[place]
        count = ask_bounds(start, m, nearby.norms, past, rows, off, window)
        count = ask_near(x, start, count, number, lines, past, nearby, rows, off, window, work)
        for t in range(m):
            window.first[t] = window.final[t]
        moved = False
        if count:
            work[0] += count
            moved = _score_waiting(
                x,
                start,
                count,
                number,
                lanes,
                centers,
                layout,
                nearby.norms,
                packed,
                scores,
                rows,
                off,
                bound,
                window,
            )
        for c in range(k):
            dirty[c] = 0
        work[2] += _mark_changed(
            x, row_weights, start, m, points, rows, window, measured, dirty, gains
        )
        whole = measured or not kept or cells.state[place] != KNOWN
        for c in range(k):
            if whole:
                dirty[c] = 1
            if dirty[c]:
                touched[c] = 1
                sums[c] = 0.0
                totals[c] = 0.0
        work[3] += _sum_segment(
            x,
            row_weights,
            start,
            m,
            size,
            lines,
            points,
            window,
            moved,
            dirty,
            sums,
            totals,
            squares,
        )
        for c in range(k):
            if dirty[c]:
                weights[c] = totals[c, 0]
        cells.state[place] = MIXED if moved else KNOWN
        for c in range(k):
            if weights[c] != 0.0:
                if adding:
                    add_plain(hi[c, :p], lo[c, :p], sums[c])
                    add_plain(hi[c, p:], lo[c, p:], totals[c])
                elif measured:
                    add_plain(hi[c, p + 1 :], lo[c, p + 1 :], totals[c, 1:])
        start = ends[segment]
    if adding:
        return
    for c in range(k):
        if not touched[c]:
            continue
        for j in range(p + 1):
            hi[c, j] = lo[c, j] = 0.0
        for segment in range(ends.size):
            if cells.weights[segment, c] != 0.0:
                add_plain(hi[c, :p], lo[c, :p], cells.sums[segment * k + c])
                add_plain(hi[c, p : p + 1], lo[c, p : p + 1], cells.weights[segment, c : c + 1])


def _nearby(centers: Floats, layout: Layout, dtype: np.dtype[Any]) -> Nearby:
    """Lay out centers a row each, as those of the tiles."""
    # What overflows makes rows be scored.
    with np.errstate(over="ignore", invalid="ignore"):
        moved = centers - layout.shift.astype(np.float64)
        norms = (moved**2).sum(axis=1)
        return Nearby(
            (-2.0 * moved).astype(dtype),
            norms.astype(dtype),
            norms,
            layout.shift,
            np.empty(NEAR, dtype),
        )


def bounded_scan(
    x: Array,
    row_weights: Floats,
    centers: Floats,
    shift: Floats | None,
    ends: Ints,
    stats: Any,
    number: int,
    past: Past,
    rows: RowState,
    cells: CellState | None,
    adding: bool,
    measured: bool,
) -> Ints:
    """One sweep over a block that reads only the rows whose bounds do not decide them.

    Parameters
    ----------
    x, row_weights, centers, shift, ends, stats
        As of :func:`daskclust.kernels.nearest._tiles.scan`.
    number : int
        Of this pass.
    past : Past
        Of these centers.
    rows : RowState
        Of these rows; brought up to date.
    cells : CellState, optional
        Of these segments; brought up to date.  Without it all rows are summed.
    adding : bool
        Whether ``stats`` are those of other rows, to which these are added; else they are those
        of these rows in the pass before.  Always without cells.
    measured : bool
        Whether distances of all rows are summed; else the inertia in ``stats`` is that of the
        same clusters as before, with the present centers.

    Returns
    -------
    work : ndarray of shape (4,), int64
        Rows that were scored against all centers, scores of eight centers, rows that
        changed their cluster, rows that were summed.
    """
    layout: Layout = lay_out(centers, None, shift, x.dtype)
    exact = with_weights(centers, None)
    size = tile_rows(x.shape[1], x.dtype.itemsize)
    k, p = centers.shape
    longest = int(np.diff(ends, prepend=0).max())
    kept = cells is not None
    if cells is None:
        cells = CellState(np.empty((k, p)), np.empty((1, k)), np.full(1, UNKNOWN, np.int8))
    hi, lo = stats
    if measured and not adding:
        hi[:, p + 1] = lo[:, p + 1] = 0.0
    work, gains = np.zeros(4, np.int64), np.zeros(k)
    _scan(
        x,
        row_weights,
        exact,
        layout,
        _nearby(centers, layout, x.dtype),
        ends,
        tuple(stats),
        number,
        past,
        rows,
        cells,
        kept,
        adding,
        measured,
        np.zeros((size, p), x.dtype),
        make_room(size, layout, x.dtype),
        Window(
            np.empty(longest, np.int32), np.empty(longest, np.int32), np.empty(longest, np.int64)
        ),
        np.zeros(k, np.int8),
        np.zeros(k, np.int8),
        np.zeros((k, 2)),
        np.empty(size),
        gains,
        work,
    )
    if not measured:
        hi[:, p + 1] = np.maximum(hi[:, p + 1] + gains, 0.0)
    return work

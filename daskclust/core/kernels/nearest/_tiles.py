"""Compiled loops over tiles of the rows of a block, which contain the emitted code.

A tile is scored against all centers while it is in the first-level cache.  Then the doubtful rows
of the tile are decided exactly, and its rows are summed or measured.  Each loop contains one kind
of vector code, because LLVM runs out of registers otherwise.

A call passes an array as nine numbers, so a call with all arrays of a tile takes as long as ten
rows with few features.  Code for each tile is therefore inlined into the loop and counts no
references.  Only the scoring of panels is a call, because it needs all registers.

Rows with missing values use the same loops: a tile is copied with 0 for missing values, and a bit
for each observed value.  The last argument, ``gaps``, is empty for complete rows: Numba removes
branches on the length of a tuple before it compiles them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from daskclust.core.array_types import Array, Bools, Floats, Ints
from daskclust.core.kernels.compensated import flush
from daskclust.core.kernels.compiling import compiled, inner, read_only
from daskclust.core.kernels.nearest._scores import (
    LONG_ROWS,
    NARROW_BYTES,
    ROWS,
    WAYS,
    few_narrow,
    few_pair,
    few_wide,
    lowest_in_rows,
    score_pair,
    score_tail,
    score_wide,
)
from daskclust.core.kernels.nearest._simd import LANE_BYTES, SUM_LANES
from daskclust.core.kernels.nearest.row_loops import (
    LINE_BYTES,
    pack_row,
    prefetch,
    row_distance,
)

#: Layouts of centers: half a vector, one vector, two vectors, panels of one, panels of two.
NARROW, WIDE, TWO, PANELS, PAIRS = range(5)

#: Number of features of a byte of bits, and of a table lookup.
_BYTE, _GROUP = 8, 4
#: Factor of the tile length for rows with missing values: tables are four times as long as a panel
#: and are in the second-level cache, so more rows share the loads.
_LONGER = 2
#: Bytes of packed rows that share the first-level cache with the centers.
_TILE_BYTES = 16384
#: Maximum number of rows of a tile, and its divisor, on all processors: sums of rows that change
#: their cluster at the end of a tile must not depend on the register width.
_MOST_ROWS, _ROW_UNIT = 64, 8
#: Maximum ratio of the mean square of centers to their variance, up to which rows are not shifted.
_NEAR_ORIGIN = 16.0
#: Bytes of a cache line.
_LINE_BYTES = 64


class Layout(NamedTuple):
    """Centers in the layout of register tiles.

    ``panels`` (P, q, width) contain ``-2 c`` of the shifted centers, one center per column, in the
    precision of the rows; ``consts`` (P, width) contain ``|c|^2``, infinite for padding.  ``tail``
    (q, narrow) and ``tail_consts`` are the same for the centers after the last whole panel, or
    empty.  ``variant`` is one of the five layouts, and ``lanes`` the number of lanes of the running
    minima.  ``active`` (q,) are the features of non-zero weight, and ``scales`` (q,) their weights.
    ``shift`` (p,) is subtracted before rows are scored.  If ``in_place``, rows are scored without a
    copy, with all features and without a shift.
    """

    panels: NDArray
    consts: NDArray
    tail: NDArray
    tail_consts: NDArray
    variant: int
    lanes: int
    shift: NDArray
    active: NDArray[np.intp]
    scales: Floats
    in_place: bool


@compiled(counted=False)
def _place(centers, layout, limit):
    """Write centers into a layout; return True if the norm of each of them is below a limit."""
    shift, active, scales = layout.shift, layout.active, layout.scales
    panels, consts, tail, tail_consts = layout[:4]
    width = consts.shape[1]
    below = True
    for c in range(centers.shape[0]):
        square = 0.0
        panel, lane = c // width, c % width
        for q in range(active.size):
            j = active[q]
            moved = centers[c, j] - np.float64(shift[j])
            square += scales[q] * (moved * moved)
            if c < consts.size:
                panels[panel, q, lane] = -2.0 * moved * scales[q]
            else:
                tail[q, c - consts.size] = -2.0 * moved * scales[q]
        if c < consts.size:
            consts[panel, lane] = square
        else:
            tail_consts[c - consts.size] = square
        below &= consts.dtype.type(square) < limit
    return below


def place(centers: Floats, layout: Layout, *, observed: bool = False) -> Any:
    """Write centers into a layout, replacing the previous ones.

    Return the relative error of a score, in the precision of the rows.  It is infinite if the
    scores of centers may overflow.
    """
    q, dtype = layout.active.size, layout.panels.dtype
    kind = np.finfo(dtype)
    # A score's terms are at most |x|^2 + |c|^2, and |x|^2 is bounded by the doubt.
    if not _place(centers, layout, kind.max / dtype.type(16)):
        return dtype.type(np.inf)
    terms = q + _n_bytes(q) * (_BYTE // _GROUP) if observed else q
    return dtype.type((terms + 8) * float(kind.eps))


def _is_near_origin(centers: Floats, shift: NDArray) -> bool:
    """Return True if scores of unshifted rows lose no relevant precision."""
    return bool(np.square(centers).sum() <= _NEAR_ORIGIN * np.square(centers - shift).sum())


def choose_origin(
    centers: Floats, shift: Floats | None, dtype: np.dtype, *, may_stay: bool = True
) -> tuple[NDArray, bool]:
    """Return the point that is subtracted from rows, and True if rows are not copied."""
    # Rows with overflow are decided exactly, without a shift.
    with np.errstate(over="ignore", invalid="ignore"):
        shift = (centers.mean(axis=0) if shift is None else shift).astype(dtype)
        in_place = may_stay and _is_near_origin(centers, shift)
    if in_place:
        shift[:] = 0
    return shift, in_place


def lay_out(
    centers: Floats, feature_weights: Floats | None, shift: Floats | None, dtype: np.dtype
) -> Layout:
    """Allocate a layout for centers (k, p), for rows of a given precision; see :func:`sweeper`."""
    k, p = centers.shape
    active = np.arange(p) if feature_weights is None else np.flatnonzero(feature_weights)
    q = active.size
    shift, in_place = choose_origin(centers, shift, dtype, may_stay=q == p)
    full = LANE_BYTES // dtype.itemsize
    narrow = NARROW_BYTES // dtype.itemsize
    # Padding takes as long as centers.  Panels of two vectors use each broadcast feature twice.
    vectors = k // full + (k % full > narrow)
    if k <= narrow:
        variant, width = NARROW, narrow
    elif k <= full:
        variant, width = WIDE, full
    elif k <= 2 * full:
        variant, width = TWO, 2 * full
    elif vectors % 2 and vectors < 8:
        variant, width = PANELS, full
    else:
        variant, width = PAIRS, 2 * full
    has_tail = k > width and 0 < k % width <= narrow
    n_panels = k // width if has_tail else -(-k // width)
    panels = on_lines((n_panels, q, width), dtype)
    panels[-1] = 0  # padding of the last panel
    return Layout(
        panels,
        np.full((n_panels, width), np.inf, dtype),
        np.zeros((q, has_tail * narrow), dtype),
        np.full(has_tail * narrow, np.inf, dtype),
        variant,
        min(width, full),
        shift,
        active,
        np.ones(q) if feature_weights is None else feature_weights[active].astype(np.float64),
        in_place,
    )


def on_lines(shape: tuple[int, ...], dtype: np.dtype[Any] | type) -> Array:
    """Return an uninitialized array aligned to cache lines, from which loads are faster."""
    n_bytes = math.prod(shape) * np.dtype(dtype).itemsize
    room = np.empty(n_bytes + _LINE_BYTES, np.uint8)
    start = -room.__array_interface__["data"][0] % _LINE_BYTES
    return np.ndarray(shape, dtype, room, start)


def tile_rows(q: int, itemsize: int, n_tiles: int = 1) -> int:
    """Return the number of rows with q numbers that are processed together."""
    rows = n_tiles * _TILE_BYTES // max(1, q * itemsize) // _ROW_UNIT * _ROW_UNIT
    return min(_MOST_ROWS, max(_ROW_UNIT, rows))


class _Centers(NamedTuple):
    """Centers (k, p) for exact distances, and weights of features (p,), or () if all are 1."""

    points: Floats
    weights: Any


class _Tile(NamedTuple):
    """Results of the T rows of a tile.

    ``best``, ``second`` and ``vector`` (T, lanes) are the running minima of each lane: smallest
    score, second smallest score, and vector number of the smallest.  The other arrays are by row.
    """

    best: NDArray
    second: NDArray
    vector: NDArray[np.int32]
    low: NDArray
    next_low: NDArray
    nearest: NDArray[np.int32]
    squared: Floats
    weight: Floats


class _Tables(NamedTuple):
    """Initial values of scores, by the pattern of observed values.

    Constants are like those of a layout, but 0 for centers.  ``sums`` (P, groups, WAYS, width) and
    ``tail_sums`` (groups, WAYS, narrow) are sums of ``w c^2`` over the features, of a group of
    four, whose bits are set.
    """

    consts: NDArray
    tail_consts: NDArray
    sums: NDArray
    tail_sums: NDArray


class _Gaps(NamedTuple):
    """Bits of observed values (T, bytes) of a tile, and rows without values of positive weight."""

    bits: NDArray[np.uint8]
    nowhere: Bools


@inner(counted=False, forceinline=True)
def _pack_tile(x, start, m, layout, packed, gaps):
    """Copy the rows of a tile minus the shift, with 0 for missing values."""
    shift, active = layout.shift, layout.active
    whole = active.size == x.shape[1]
    bits: Any = () if len(gaps) == 0 else gaps.bits
    if whole:
        for t in range(m):
            nowhere = pack_row(x, start + t, shift, packed, bits, t)
            if len(gaps) > 0:
                gaps.nowhere[t] = nowhere
    elif len(gaps) == 0:
        for t in range(m):
            for j in range(active.size):
                packed[t, j] = x[start + t, active[j]] - shift[active[j]]
    else:
        for t in range(m):
            for byte in range(bits.shape[1]):
                bits[t, byte] = 0
            some = False
            for j in range(active.size):
                value = x[start + t, active[j]]
                has = value == value
                some |= has
                packed[t, j] = value - shift[active[j]] if has else x.dtype.type(0)
                bits[t, j >> 3] |= np.uint8(has) << np.uint8(j & 7)
            # A complete row is used even if all features have weight 0.
            if active.size == 0:
                missing = 0
                for j in range(x.shape[1]):
                    missing += x[start + t, j] != x[start + t, j]
                some = missing == 0
            gaps.nowhere[t] = not some


@inner(counted=False, forceinline=True)
def keep_inside(tile, m, k):
    """Replace padding by center 0.  It wins only if scores overflow, and such rows are doubtful."""
    nearest = tile.nearest
    for t in range(m):
        nearest[t] = nearest[t] if nearest[t] < k else 0


@inner(counted=False, forceinline=True)
def add_totals(tile, m, totals):
    nearest, squared, weight = tile.nearest, tile.squared, tile.weight
    for t in range(m):
        label = np.intp(nearest[t])
        totals[label, 0] += weight[t]
        totals[label, 1] += weight[t] * squared[t]


@inner(counted=False)
def _score_panels(rows, first, m, variant, panels, consts, best, second, vector, bits, table):
    for c in range(panels.shape[0]):
        if variant == PANELS:
            for t in range(0, m, LONG_ROWS):
                i = first + t
                score_wide(rows, i, panels, consts, c, best, second, vector, t, bits, table)
        else:
            for t in range(0, m, ROWS):
                i = first + t
                score_pair(rows, i, panels, consts, c, best, second, vector, t, bits, table)


@inner(counted=False)
def _score_tail(rows, first, m, tail, consts, c, best, second, vector, bits, table):
    """Like :func:`_score_panels`, for the last centers; ``c`` is the number of vectors before."""
    for t in range(0, m, LONG_ROWS):
        i = first + t
        score_tail(rows, i, tail, consts, c, best, second, vector, t, bits, table)


@inner(counted=False, forceinline=True)
def score_tile(rows, first, m, layout, tile, tables, gaps):
    """Write smallest and second smallest score, and nearest center, of the rows of a tile."""
    panels, consts, tail, tail_consts, variant = layout[:5]
    best, second, vector, low, next_low, nearest = tile[:6]
    if len(gaps) == 0:
        bits = table = tail_table = None
    else:
        first, bits = np.intp(0), gaps.bits  # rows are always copied here
        consts, tail_consts, table, tail_table = tables
    if variant == NARROW:
        for t in range(0, m, LONG_ROWS):
            few_narrow(rows, first + t, panels, consts, low, next_low, nearest, t, bits, table)
    elif variant == WIDE:
        for t in range(0, m, LONG_ROWS):
            few_wide(rows, first + t, panels, consts, low, next_low, nearest, t, bits, table)
    elif variant == TWO:
        for t in range(0, m, ROWS):
            few_pair(rows, first + t, panels, consts, low, next_low, nearest, t, bits, table)
    else:
        _score_panels(rows, first, m, variant, panels, consts, best, second, vector, bits, table)
        if tail_consts.size:
            c = consts.size // best.shape[1]
            _score_tail(
                rows, first, m, tail, tail_consts, c, best, second, vector, bits, tail_table
            )
        for t in range(0, m, ROWS):
            lowest_in_rows(best, second, vector, low, next_low, nearest, t)


@inner(counted=False)
def _prefetch_row(x, i, lines):
    """Prefetch a row, because processors stop prefetching during the long scoring."""
    for line in range(lines):
        prefetch(x, i, line)


@inner(counted=False)
def _distance(x, i, centers, c, gaps):
    points, weights = centers
    return row_distance(x, i, points, c, weights, 1.0, (), gaps)


@inner(counted=False, forceinline=True)
def add_tile(x, start, m, lines, centers, tile, sums, gaps):
    """Measure the rows of a tile, and add them to cluster sums unless ``sums`` is ()."""
    points, weights = centers
    nearest, squared, scales = tile.nearest, tile.squared, tile.weight
    for t in range(m):
        _prefetch_row(x, start + m + t, lines)
        c = np.intp(nearest[t])
        squared[t] = row_distance(x, start + t, points, c, weights, scales[t], sums, gaps)


@inner(counted=False)
def exact_nearest(x, i, centers, gaps):
    """Return the nearest center by direct differences; the lowest of equally near centers."""
    least = np.inf
    label = 0
    for c in range(centers.points.shape[0]):
        d = _distance(x, i, centers, c, gaps)
        if d < least:
            least = d
            label = c
    return label


@inner(counted=False)
def doubt(squared, low, bound):
    """Return the difference of two scores below which rounding may have swapped them.

    It has the precision of the scores, so that it does not overflow before the scores.
    """
    return bound * (type(low)(9) * type(low)(squared) - type(low)(5) * low)


@inner(counted=False)
def _any_doubtful(tile, m, bound):
    """Return True if rounding may have swapped the two nearest centers of a row of a tile.

    ``|x|^2`` of the shifted row is its squared distance minus its score.  The bound follows from
    ``|c| <= |x| + |x - c|``.
    """
    low, next_low, squared = tile.low, tile.next_low, tile.squared
    doubtful = False
    for t in range(m):
        # `not >` is also true for NaN, so rows with overflow are doubtful.
        doubtful |= not (next_low[t] - low[t] > doubt(squared[t], low[t], bound))
    return doubtful


@inner(counted=False)
def move_row(x, i, t, exact, centers, tile, sums, gaps):
    label = np.intp(tile.nearest[t])
    if exact == label:
        return
    if sums.size:
        weight, half = tile.weight[t], sums.shape[1] // 2
        for j in range(x.shape[1]):
            v = weight * np.float64(x[i, j])
            if len(gaps) == 0:
                sums[label, j] -= v
                sums[exact, j] += v
            elif v == v:
                sums[label, j] -= v
                sums[exact, j] += v
                sums[label, half + j] -= weight
                sums[exact, half + j] += weight
    tile.nearest[t] = exact
    tile.squared[t] = _distance(x, i, centers, exact, gaps)


@inner(counted=False)
def _settle(x, start, m, centers, tile, bound, sums, gaps):
    low, next_low, squared = tile.low, tile.next_low, tile.squared
    for t in range(m):
        if next_low[t] - low[t] > doubt(squared[t], low[t], bound):
            continue
        i = start + t
        exact = exact_nearest(x, i, centers, gaps)
        move_row(x, i, t, exact, centers, tile, sums, gaps)


@compiled(counted=False)
def _scan(x, row_weights, centers, layout, bound, ends, out, room, tables, gaps):
    """Process the tiles of a block; see :func:`sweeper`, which allocates the buffers."""
    (hi, lo), labels, distances = out
    packed, tile, sums, totals = room
    n, p = x.shape
    k, size = centers.points.shape[0], packed.shape[0]
    weighted, want_stats, want_rows = row_weights.size > 0, hi.size > 0, labels.size > 0
    in_place = layout.in_place
    nearest, squared, weight, next_low = tile.nearest, tile.squared, tile.weight, tile.next_low
    lines = -(-p * x.itemsize // LINE_BYTES)
    if len(gaps) == 0:
        # Copying rows prefetches them.
        lines = lines if in_place else 0

    # These are not literal zeros, for which Numba would compile the called functions again.
    top = np.intp(0)
    start = top
    segment = 0
    while start < n:
        # A tile never crosses the end of a segment.
        m = min(size, ends[segment] - start)
        rows, first = packed, top
        if len(gaps) == 0:
            if in_place and start + m + LONG_ROWS <= n:
                rows, first = x, start
            else:
                _pack_tile(x, start, m, layout, packed, gaps)
        else:
            _pack_tile(x, start, m, layout, packed, gaps)
        score_tile(rows, first, m, layout, tile, tables, gaps)
        keep_inside(tile, m, k)
        if len(gaps) > 0:
            nowhere = gaps.nowhere
            for t in range(m):
                weight[t] = row_weights[start + t] if weighted else 1.0
                if nowhere[t]:
                    # The row has no center, because all its distances are equal.
                    weight[t], next_low[t] = 0.0, np.inf
        elif weighted:
            for t in range(m):
                weight[t] = row_weights[start + t]
        if want_stats:
            add_tile(x, start, m, lines, centers, tile, sums, gaps)
        else:
            add_tile(x, start, m, lines, centers, tile, (), gaps)
        if k > 1 and _any_doubtful(tile, m, bound):
            _settle(x, start, m, centers, tile, bound, sums, gaps)
        if want_stats:
            add_totals(tile, m, totals)
        if want_rows:
            for t in range(m):
                distances[start + t] = squared[t]
                if len(gaps) == 0:
                    labels[start + t] = nearest[t]
                else:
                    labels[start + t] = np.int32(-1) if gaps.nowhere[t] else nearest[t]
        start += m
        if start == ends[segment]:
            segment += 1
            if want_stats:
                flush(hi, lo, sums, totals, 1 if len(gaps) == 0 else 2)


def _lay_tables(layout: Layout, exact: _Centers) -> _Tables:
    centers, active, dtype = exact.points, layout.active, layout.panels.dtype
    n_panels, width = layout.consts.shape
    n_groups = _n_bytes(active.size) * _BYTE // _GROUP
    squared = np.zeros((len(centers), n_groups * _GROUP))
    with np.errstate(over="ignore", invalid="ignore"):
        shift = layout.shift[active].astype(np.float64)
        squared[:, : active.size] = layout.scales * (centers[:, active] - shift) ** 2
        there = np.arange(WAYS)[:, None] >> np.arange(_GROUP) & 1
        sums = squared.reshape(len(centers), n_groups, _GROUP) @ there.T.astype(np.float64)
        flat = np.zeros((n_groups, WAYS, n_panels * width + layout.tail_consts.size), dtype)
        flat[..., : len(centers)] = sums.transpose(1, 2, 0)
    n_whole = n_panels * width
    whole = on_lines((n_panels, n_groups, WAYS, width), dtype)
    whole[...] = flat[..., :n_whole].reshape(n_groups, WAYS, n_panels, width).transpose(2, 0, 1, 3)
    consts = np.where(np.arange(flat.shape[2]) < len(centers), 0.0, np.inf).astype(dtype)
    return _Tables(
        consts[:n_whole].reshape(n_panels, width),
        consts[n_whole:],
        whole,
        np.ascontiguousarray(flat[..., n_whole:]),
    )


def _n_bytes(q: int) -> int:
    return max(1, -(-q // _BYTE))


def with_weights(centers: Floats, feature_weights: Floats | None) -> _Centers:
    """Return centers in the form for compiled code."""
    if feature_weights is None:
        return _Centers(read_only(centers), ())
    weights = np.ascontiguousarray(feature_weights, dtype=np.float64)
    return _Centers(read_only(centers), read_only(weights))


def make_tile(size: int, layout: Layout, dtype: np.dtype[Any]) -> _Tile:
    """Allocate a tile; compiled code would take a second longer to compile this."""
    # Centers that fit one vector have no running minima.
    panels = layout.variant in (PANELS, PAIRS)
    make, shape = (on_lines, (size, layout.lanes)) if panels else (np.empty, (0, layout.lanes))
    return _Tile(
        make(shape, dtype),
        make(shape, dtype),
        make(shape, np.int32),
        np.empty(size, dtype),
        np.empty(size, dtype),
        np.empty(size, np.int32),
        np.empty(size),
        np.ones(size),
    )


def sweeper(
    x: Array,
    row_weights: Floats,
    centers: Floats,
    feature_weights: Floats | None,
    shift: Floats | None,
    ends: Ints,
    stats: Any,
    labels: NDArray[np.int32],
    distances: Floats,
    *,
    observed: bool = False,
) -> Callable[[], None]:
    """Return a function that processes a block once, with the current values of ``centers``.

    It computes labels, distances and sums if there are output arrays.  Rows (n, p), n > 0, are
    C-contiguous, and without NaN unless ``observed``.  ``row_weights`` is (n,) or empty;
    ``ends`` are the ends of the segments, the last one is n.  Sums are added to the two arrays
    ``stats``, of shape (k, p + 2), or (k, 2p + 2) if ``observed``.  ``labels`` and ``distances``
    (n,) receive the nearest center of each row and the squared distance to it, or -1 and 0 for rows
    without values.  Empty outputs are not computed.  The function keeps references to all arrays.
    """
    x, row_weights = read_only(x), read_only(row_weights)
    layout = lay_out(centers, feature_weights, shift, x.dtype)
    exact = with_weights(centers, feature_weights)
    n_sums, q = len(centers) if stats[0].size else 0, layout.active.size
    width = -(-x.shape[1] // SUM_LANES) * SUM_LANES
    size = tile_rows(q, x.dtype.itemsize, _LONGER if observed else 1)
    tables: Any = ()
    gaps: Any = ()
    if observed:
        tables = _lay_tables(layout, exact)
        gaps = _Gaps(np.zeros((size, _n_bytes(q)), np.uint8), np.empty(size, np.bool_))
        width *= 2
    packed, tile = np.zeros((size, q), x.dtype), make_tile(size, layout, x.dtype)
    room = packed, tile, np.zeros((n_sums, width)), np.zeros((n_sums, 2))
    out = tuple(stats), labels, distances

    def sweep() -> None:
        bound = place(exact.points, layout, observed=observed)
        _scan(x, row_weights, exact, layout, bound, ends, out, room, tables, gaps)

    return sweep

"""Centers as the register tiles want them.

Imports the register widths (:mod:`daskclust.kernels.nearest._scores`), and compiles.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from daskclust._types import Array, Floats
from daskclust.kernels.compiling import compiled
from daskclust.kernels.nearest._scores import NARROW_BYTES
from daskclust.kernels.nearest._simd import LANE_BYTES

#: How centers are laid out: one half-width vector, one vector, panels of one, panels of two.
NARROW, WIDE, PANELS, PAIRS = range(4)

#: Bytes of packed rows that share the first-level cache with the centers.
_TILE_BYTES = 16384
#: Rows of a tile: at most, and what they are a multiple of, on any processor: sums of rows
#: that change their cluster at the end of a tile must not depend on the registers' width.
_MOST_ROWS, _ROW_UNIT = 64, 8
# Data are near the origin when the centers' mean square is at most this multiple of their
# variance.
_NEAR_ORIGIN = 16.0
_LINE_BYTES = 64


class Layout(NamedTuple):
    """Centers laid out for the register tiles, and what the scan needs to know of them.

    Attributes
    ----------
    panels : ndarray of shape (P, q, width)
        ``-2 c`` of the shifted centers, one center a column, in the precision of the rows.
    consts : ndarray of shape (P, width)
        ``|c|^2``; infinite for padding.
    tail, tail_consts : ndarray of shape (q, narrow) and (narrow,), or empty
        The same for the centers beyond the last whole panel.
    variant : int
        :data:`NARROW`, :data:`WIDE`, :data:`PANELS` or :data:`PAIRS`.
    lanes : int
        Lanes of the running minima.
    shift : ndarray of shape (p,)
        Subtracted from rows before they are scored.
    active : ndarray of shape (q,), intp
        Features of non-zero weight.
    in_place : bool
        Whether rows are scored where they lie: all features, no shift.
    """

    panels: NDArray
    consts: NDArray
    tail: NDArray
    tail_consts: NDArray
    variant: int
    lanes: int
    shift: NDArray
    active: NDArray[np.intp]
    in_place: bool


@compiled(counted=False)
def _is_near_origin(centers: Any, shift: Any) -> bool:
    """Whether scores of rows as they are lose no digits worth a shifted copy of each row."""
    square, spread = 0.0, 0.0
    for c in range(centers.shape[0]):
        for j in range(centers.shape[1]):
            gap = centers[c, j] - shift[j]
            square += centers[c, j] * centers[c, j]
            spread += gap * gap
    return bool(square <= _NEAR_ORIGIN * spread)


@compiled(counted=False)
def _place(
    centers: Any,
    weights: Any,
    shift: Any,
    active: Any,
    panels: Any,
    consts: Any,
    tail: Any,
    tail_consts: Any,
) -> None:
    width = consts.shape[1]
    for c in range(centers.shape[0]):
        square = 0.0
        panel, lane = c // width, c % width
        for q in range(active.size):
            j = active[q]
            moved = centers[c, j] - np.float64(shift[j])
            weight = weights[j] if weights.size else 1.0
            square += weight * (moved * moved)
            if c < consts.size:
                panels[panel, q, lane] = -2.0 * moved * weight
            else:
                tail[q, c - consts.size] = -2.0 * moved * weight
        if c < consts.size:
            consts[panel, lane] = square
        else:
            tail_consts[c - consts.size] = square


_NO_WEIGHTS = np.empty(0)


def _choose_panels(k: int, full: int, narrow: int) -> tuple[int, int]:
    """Choose variant and width of the panels of k centers.

    ``full`` and ``narrow`` are the lanes of a vector and of half a one.  Padding
    costs as much as centers do, so a few centers beyond whole vectors get half a
    vector; panels of two use each broadcast feature twice.
    """
    if k <= narrow:
        return NARROW, narrow
    if k <= full:
        return WIDE, full
    vectors = k // full + (k % full > narrow)
    if vectors % 2 and vectors < 8:
        return PANELS, full
    return PAIRS, 2 * full


def choose_origin(
    centers: Floats, shift: Floats | None, dtype: np.dtype, *, may_stay: bool = True
) -> tuple[NDArray, bool]:
    """Return the point that is subtracted from rows, and whether they stay as they are."""
    # What overflows makes rows take the exact path, which does not need it.
    with np.errstate(over="ignore", invalid="ignore"):
        shift = (centers.mean(axis=0) if shift is None else shift).astype(dtype)
    in_place = may_stay and bool(_is_near_origin(centers, shift))
    if in_place:
        shift[:] = 0
    return shift, in_place


def lay_out(
    centers: Floats, feature_weights: Floats | None, shift: Floats | None, dtype: np.dtype
) -> Layout:
    """Lay out centers of shape (k, p) for rows of a precision; the parameters of ``scan``."""
    k, p = centers.shape
    active = np.arange(p) if feature_weights is None else np.flatnonzero(feature_weights)
    q, weights = active.size, whole_weights(feature_weights)
    shift, in_place = choose_origin(centers, shift, dtype, may_stay=q == p)
    full = LANE_BYTES // dtype.itemsize
    narrow = NARROW_BYTES // dtype.itemsize
    variant, width = _choose_panels(k, full, narrow)
    has_tail = k > width and 0 < k % width <= narrow
    n_panels = k // width if has_tail else -(-k // width)
    panels = on_lines((n_panels, q, width), dtype)
    panels[-1] = 0  # what pads the last one
    layout = Layout(
        panels,
        np.full((n_panels, width), np.inf, dtype),
        np.zeros((q, has_tail * narrow), dtype),
        np.full(has_tail * narrow, np.inf, dtype),
        variant,
        min(width, full),
        shift,
        active,
        in_place,
    )
    place(centers, weights, layout)
    return layout


def whole_weights(feature_weights: Floats | None) -> Floats:
    """Return feature weights as compiled code takes them; none at all where they are ones."""
    if feature_weights is None:
        return _NO_WEIGHTS
    return np.ascontiguousarray(feature_weights, dtype=np.float64)


def place(centers: Floats, weights: Floats, layout: Layout) -> None:
    """Put other centers in the place of those that were laid out; as many, in the same space."""
    _place(centers, weights, layout.shift, layout.active, *layout[:4])


def on_lines(shape: tuple[int, ...], dtype: np.dtype[Any] | type) -> Array:
    """Make an array, not filled, that begins at a line of the cache.

    The widest vectors are as long as a line; one that lies across two takes two loads.
    """
    n_bytes = math.prod(shape) * np.dtype(dtype).itemsize
    room = np.empty(n_bytes + _LINE_BYTES, np.uint8)
    start = -room.__array_interface__["data"][0] % _LINE_BYTES
    return np.ndarray(shape, dtype, room, start)


def tile_rows(q: int, itemsize: int, n_tiles: int = 1) -> int:
    """Rows of q numbers that are worked on together; so many times the usual number."""
    rows = n_tiles * _TILE_BYTES // max(1, q * itemsize) // _ROW_UNIT * _ROW_UNIT
    return min(_MOST_ROWS, max(_ROW_UNIT, rows))

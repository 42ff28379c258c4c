"""Search for the few nearest centers, and for the nearest leaf of a tree of centers.

Distances are direct differences in float64.  Of equally near centers, the lowest wins.  If there
are many centers, scores in single precision exclude centers that cannot be among the nearest, in
spite of rounding.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from daskclust.core.array_types import Array, Floats, Ints
from daskclust.core.kernels.compiling import compiled, inner, read_only
from daskclust.core.kernels.nearest._scores import (
    GROUP,
    ROWS,
    WIDTH,
    lane_minima,
    lowest_bit,
    not_above,
    write_scores,
)
from daskclust.core.kernels.nearest.assign import nearest
from daskclust.core.kernels.nearest.row_loops import row_distance

#: Minimum number of centers for which scores are computed.
_SCORED = 24
#: Number of rows that are scored together, and minimum number of rows for which this is done.
_TILE = 16
#: Rounding units of single and double precision, and smallest positive number.
_SINGLE, _DOUBLE, _TINY = 2.0**-24, 2.0**-53, 2.0**-1074
#: Bounds of terms of scores, and of distances, above which they or their squares may be infinite.
_LARGE, _FAR = 1e37, 1e150
#: Minimum exponent to which centers are scaled.
_SMALL = -1000


@compiled()
def _insert(indices: Any, distances: Any, i: int, found: int, c: int, d: float) -> int:
    """Insert a center into the nearest centers so far; return their number."""
    m = indices.shape[1]
    if found == m and not d < distances[i, m - 1]:
        return found
    at = found if found < m else m - 1
    while at > 0 and d < distances[i, at - 1]:
        distances[i, at] = distances[i, at - 1]
        indices[i, at] = indices[i, at - 1]
        at -= 1
    distances[i, at] = d
    indices[i, at] = c
    return min(found + 1, m)


@compiled()
def _search(x: Any, centers: Any, indices: Any, distances: Any) -> None:
    for i in range(x.shape[0]):
        found = 0
        for c in range(centers.shape[0]):
            d = row_distance(x, i, centers, c, (), 1.0, (), ())
            found = _insert(indices, distances, i, found, c, d)


@inner(counted=False)
def _score_tile(rows, m, panels, consts, scores):
    for c in range(panels.shape[0]):
        for t in range(0, m, ROWS):
            write_scores(rows, t, panels, consts, c, scores)


@inner()
def _bound(scores, t, lows, least):
    """Return an upper bound of the m-th smallest score of a row, where m is the size of `least`.

    The bound is the m-th smallest of the minima of groups of centers.  With more groups the bound
    is closer but takes longer, so there are between 2 m and 4 m groups.  If m is larger than
    :data:`GROUP`, the bound is the m-th smallest score itself.
    """
    m, n_groups = least.size, GROUP
    lane_minima(scores, t, lows)
    while n_groups >= 4 * m:
        n_groups //= 2
        for lane in range(n_groups):
            low, other = lows[lane], lows[n_groups + lane]
            lows[lane] = low if low < other else other
    least[:] = np.inf
    for low in lows[:n_groups] if m <= n_groups else scores[t]:
        if low < least[m - 1]:
            # No further branches, because processors cannot predict them.
            for j in range(m):
                other = least[j]
                least[j] = low if low < other else other
                low = other if low < other else low
    return least[m - 1]


@inner()
def _lay_out(centers, shift, scale):
    """Return panels of ``-2 c``, the ``|c|^2``, infinite for padding, and the maximum ``|c|``."""
    k, p = centers.shape
    n_panels = -(-k // GROUP) * GROUP // WIDTH
    panels = np.zeros((n_panels, p, WIDTH), np.float32)
    consts, most = np.full((n_panels, WIDTH), np.float32(np.inf)), 0.0
    for c in range(k):
        panel, lane, square = c // WIDTH, c % WIDTH, 0.0
        for j in range(p):
            moved = (centers[c, j] - shift[j]) * scale
            square += moved * moved
            panels[panel, j, lane] = -2.0 * moved
        consts[panel, lane] = square
        if not square <= most:
            most = square
    return panels, consts, np.sqrt(most)


@compiled()
def _search_scored(x, centers, shift, scale, indices, distances):
    """Compute distances of centers whose score is within the slack of an upper bound.

    Scores are ``|c|^2 - 2 z c`` of shifted and scaled rows z and centers c.  The scores of a tile
    of rows remain in the first-level cache.
    """
    (k, p), m = centers.shape, indices.shape[1]
    lows, least = np.empty(GROUP, np.float32), np.empty(m, np.float32)
    z, slack = np.zeros((_TILE, p), np.float32), np.empty(_TILE)
    panels, consts, far = _lay_out(centers, shift, scale)
    scores = np.empty((_TILE, consts.size), np.float32)
    for first in range(0, x.shape[0], _TILE):
        size = min(_TILE, x.shape[0] - first)
        for t in range(size):
            square = 0.0
            for j in range(p):
                moved = (x[first + t, j] - shift[j]) * scale
                z[t, j] = moved
                square += moved * moved
            length = np.sqrt(square)
            # The slack is the maximum difference of the scores of equally near centers.  The error
            # of a product of q terms is q units of single precision, and a few units for its
            # factors and the sum.  The error of a direct distance is q units of double precision,
            # or the smallest positive number.  Both sides of a comparison may have these errors.
            error = _SINGLE * (length + far) * far + _DOUBLE * (length + far) ** 2
            # If scores could be infinite, only distances are used.
            sure = length * (far + 1) + far**2 < _LARGE and length + far < _FAR * scale
            slack[t] = 5 * (p + 4) * (error + _TINY * scale * scale) if sure else np.inf
        _score_tile(z, size, panels, consts, scores)
        for t in range(size):
            found = 0
            limit = np.float32(_bound(scores, t, lows, least) + slack[t])
            for start in range(0, k, GROUP):
                # If scores are NaN, distances decide.
                bits: Any = not_above(scores, t, start, limit)
                while bits != 0:
                    c = start + lowest_bit(bits)
                    bits &= bits - 1
                    if c < k:
                        d = row_distance(x, first + t, centers, c, (), 1.0, (), ())
                        found = _insert(indices, distances, first + t, found, c, d)


def nearest_several(x: Array, centers: Floats, count: int) -> tuple[NDArray[np.int32], Floats]:
    """Return the ``count`` nearest centers of each row, nearest first, and squared distances."""
    if not 1 <= count <= len(centers):
        raise ValueError(f"count must be in 1..{len(centers)}, the number of centers, got {count}.")
    indices = np.empty((len(x), count), np.int32)
    distances = np.empty((len(x), count))
    x = np.ascontiguousarray(x)
    centers = np.ascontiguousarray(centers, dtype=np.float64)
    if len(centers) < _SCORED or len(x) < _TILE:
        _search(x, centers, indices, distances)
        return indices, distances
    # Rows and centers are shifted to the mean of the centers, and scaled by a power of 2, which is
    # exact, so that products do not overflow or underflow.
    with np.errstate(over="ignore", invalid="ignore"):
        shift = centers.mean(axis=0)
        size = int(np.frexp(np.abs(centers - shift).max())[1])
        scale = float(np.ldexp(1.0, -max(size, _SMALL)))
    _search_scored(x, centers, shift, scale, indices, distances)
    return indices, distances


@compiled(counted=False)
def _merge(
    indices: Any, distances: Any, others: Any, other_distances: Any, shift: int, at: Any, d: Any
) -> None:
    n, m = at.shape
    for i in range(n):
        a, b = 0, 0
        for j in range(m):
            has_a, has_b = a < indices.shape[1], b < others.shape[1]
            if has_a and (not has_b or distances[i, a] <= other_distances[i, b]):
                at[i, j], d[i, j] = indices[i, a], distances[i, a]
                a += 1
            else:
                at[i, j], d[i, j] = shift + others[i, b], other_distances[i, b]
                b += 1


def merge_nearest(
    first: tuple[NDArray[np.int32], Floats],
    second: tuple[NDArray[np.int32], Floats],
    shift: int,
    count: int,
) -> tuple[NDArray[np.int32], Floats]:
    """Return the ``count`` nearest nodes of rows from the nearest nodes of two groups.

    Of equally near nodes, those of the first group win.  Each group has its nodes nearest first,
    and their squared distances.  The nodes of the second group have numbers from ``shift`` on.
    """
    count = min(count, first[0].shape[1] + second[0].shape[1])
    indices = np.empty((len(first[0]), count), np.int32)
    distances = np.empty(indices.shape)
    _merge(*map(read_only, (*first, *second)), shift, indices, distances)
    return indices, distances


class CenterTree(NamedTuple):
    """Tree of centers with one or more levels, from the top.

    The children of center i of level l are ``starts[l][i]:starts[l][i + 1]`` of the next, at least
    one.
    """

    levels: tuple[Array, ...]
    starts: tuple[Ints, ...]

    @classmethod
    def of(cls, top: Floats, sizes: Ints, nodes: Array) -> CenterTree:
        """Return the tree of a first level and further levels.  The last `sizes` may be missing."""
        levels: list[Array] = [top]
        starts: list[Ints] = []
        while len(sizes):
            own, sizes = np.split(sizes, [len(levels[-1])])
            starts.append(np.concatenate([[0], np.cumsum(own)]).astype(np.int64))
            children, nodes = np.split(nodes, [starts[-1][-1]])
            levels.append(children)
        return cls(tuple(levels), tuple(starts))

    @property
    def leaves(self) -> Array:
        return self.levels[-1]

    def upto(self, depth: int) -> CenterTree:
        return CenterTree(self.levels[:depth], self.starts[: depth - 1])


def _among_children(
    x: Array, parents: NDArray[np.int32], starts: Ints, centers: Array, count: int
) -> tuple[NDArray[np.int32], Floats]:
    """Return the nearest children of the `parents` (n, c) of each row; -1 stands for no node."""
    order = np.argsort(parents, axis=None, kind="stable")
    ends = np.searchsorted(parents.ravel()[order], np.arange(len(starts)))
    found = np.full((parents.size, count), -1, np.int32)
    # Missing nodes come last, after nodes at infinite distance.
    squared = np.full(found.shape, np.nan)
    for parent in np.flatnonzero(np.diff(ends)):
        at = order[ends[parent] : ends[parent + 1]]
        own = centers[starts[parent] : starts[parent + 1]]
        rows = x[at // parents.shape[1]]
        if count == 1:
            found[at, 0], squared[at, 0] = nearest(rows, own)
        else:
            several = slice(min(count, len(own)))
            found[at, several], squared[at, several] = nearest_several(rows, own, several.stop)
        found[at] += np.where(found[at] < 0, 0, starts[parent]).astype(np.int32)
    width = parents.shape[1] * count
    found, squared = found.reshape(len(x), width), squared.reshape(len(x), width)
    best = np.lexsort((found, squared))[:, :count]
    return np.take_along_axis(found, best, 1), np.take_along_axis(squared, best, 1)


def nearest_leaf(
    x: Array, tree: CenterTree, n_probe: int | None
) -> tuple[NDArray[np.int32], Floats]:
    """Return the nearest leaf below the `n_probe` nearest parents of each row (None: all).

    Of equally near leaves, the lowest wins.  Distances are squared.  The cost for two levels is
    ``O(n p (m + n_probe k / m))``.
    """
    above = tree.levels[:-1]
    if n_probe is None or not above or n_probe >= len(above[-1]):
        return nearest(x, tree.leaves)
    probed = nearest_several(x, above[0], min(n_probe, len(above[0])))[0]
    for centers, starts in zip(above[1:], tree.starts, strict=False):
        probed = _among_children(x, probed, starts, centers, n_probe)[0]
    labels, squared = _among_children(x, probed, tree.starts[-1], tree.leaves, 1)
    return labels[:, 0], squared[:, 0]

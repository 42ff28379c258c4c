"""The few nearest of many points: of all, of the cells around a row, or below its parents.

Distances are direct differences in float64, and equal ones go to the lowest point.  Where there are
many centers, scores by a matrix product in single precision tell beforehand which of them cannot be
among the nearest, whatever the product's rounding.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from daskclust.core.array_types import Array, Floats, Ints
from daskclust.core.kernels.blas import one_blas_thread
from daskclust.core.kernels.compiling import compiled, inner, read_only
from daskclust.core.kernels.nearest._scores import GROUP, lane_minima, not_above
from daskclust.core.kernels.nearest.assign import nearest
from daskclust.core.kernels.nearest.row_loops import row_distance

#: Centers from which on scores are worth their product, and rows that are scored at a time.
_SCORED, _SLAB = 64, 256
#: Rounding units of single and of double precision, and what is lost of tiny products.
_SINGLE, _DOUBLE, _TINY = 2.0**-24, 2.0**-53, 2.0**-1074
#: Terms of scores, and distances, beyond which they or their squares may be infinite.
_LARGE, _FAR = 1e37, 1e150
#: Exponent of the centers below which they are not scaled further.
_SMALL = -1000


@compiled()
def _insert(indices: Any, distances: Any, i: int, found: int, c: int, d: float) -> int:
    """Put a center among the nearest so far; return their number."""
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


@inner()
def _lower(least: Any, value: float) -> None:
    """Put a value among the smallest ones, ascending."""
    if not value < least[-1]:
        return
    at = len(least) - 1
    while at > 0 and value < least[at - 1]:
        least[at] = least[at - 1]
        at -= 1
    least[at] = value


@compiled()
def _search(x: Any, centers: Any, indices: Any, distances: Any) -> None:
    for i in range(x.shape[0]):
        found = 0
        for c in range(centers.shape[0]):
            d = row_distance(x, i, centers, c, (), 1.0, (), ())
            found = _insert(indices, distances, i, found, c, d)


@compiled()
def _search_scored(x, centers, scores, slack, near, indices, distances):
    """Measure the centers whose score is within the slack of the row's m-th smallest score.

    The m-th smallest of the minima of some groups of centers is an upper bound of it.
    Groups of scores are compared with the bound; single scores are looked at only where one of
    a group is not above.  Rows of scores are padded to whole groups.
    """
    m, k = indices.shape[1], centers.shape[0]
    lows, least = np.empty(GROUP, np.float32), np.empty(m, np.float32)
    for i in range(x.shape[0]):
        least[:] = np.inf
        if m <= GROUP:
            lane_minima(scores, i, lows)
            for lane in range(GROUP):
                _lower(least, lows[lane])
        limit = np.float32(least[m - 1] + slack[i])
        least[:] = np.inf
        count = 0
        for start in range(0, k, GROUP):
            # Scores that are no numbers are for the distances to decide.
            bits: Any = not_above(scores, i, start, limit)
            c = start
            while bits != 0 and c < k:
                if bits & 1:
                    score = scores[i, c]
                    near[count] = c
                    count += 1
                    if score < least[m - 1]:
                        _lower(least, score)
                        limit = min(limit, np.float32(least[m - 1] + slack[i]))
                bits >>= 1
                c += 1
        found = 0
        for t in range(count):
            c = near[t]
            if scores[i, c] > limit:
                continue
            d = row_distance(x, i, centers, c, (), 1.0, (), ())
            found = _insert(indices, distances, i, found, c, d)


def nearest_several(x: Array, centers: Floats, count: int) -> tuple[NDArray[np.int32], Floats]:
    """Return the ``count`` nearest centers of each row, nearest first, and squared distances."""
    if not 1 <= count <= len(centers):
        raise ValueError(f"count must be in 1..{len(centers)}, the number of centers, got {count}.")
    indices = np.empty((len(x), count), np.int32)
    distances = np.empty((len(x), count))
    x = np.ascontiguousarray(x)
    centers = np.ascontiguousarray(centers, dtype=np.float64)
    if len(centers) < _SCORED:
        _search(x, centers, indices, distances)
        return indices, distances
    near, terms = np.empty(len(centers), np.int32), centers.shape[1] + 4
    padding = -len(centers) % GROUP
    scores = np.empty((min(_SLAB, len(x)), len(centers) + padding), np.float32)
    # What is not finite is left to the distances.
    with one_blas_thread(), np.errstate(over="ignore", invalid="ignore"):
        # Scores are ``|c|^2 - 2 z c``, of what is moved to the mean of the centers, and scaled by
        # a power of 2, which rounds nothing: products are neither too large nor too small.
        shift = centers.mean(axis=0)
        moved = centers - shift
        scale = float(np.ldexp(1.0, -max(int(np.frexp(np.abs(moved).max())[1]), _SMALL)))
        moved *= scale
        squares = (moved * moved).sum(axis=1)
        far, squares = float(np.sqrt(squares.max())), squares.astype(np.float32)
        squares = np.pad(squares, (0, padding), constant_values=np.inf)
        # The last row is multiplied by 1: squares are added by the product.
        turned = np.pad(-2.0 * moved.T, ((0, 1), (0, padding))).astype(np.float32)
        turned[-1] = squares
        for start in range(0, len(x), _SLAB):
            own = slice(start, start + _SLAB)
            z = (x[own] - shift) * scale
            length, found = np.sqrt((z * z).sum(axis=1)), scores[: len(z)]
            # By how much neighbors that tie may seem apart.  A product of q terms is off by q units
            # of single precision, its factors and the sum by a few more; a direct distance by q
            # units of double precision, or by what is smaller than any number.  Both sides of a
            # comparison may be off.
            slack = _SINGLE * (length + far) * far + _DOUBLE * (length + far) ** 2
            slack = 5 * terms * (slack + _TINY * scale * scale)
            sure = (length * (far + 1) + far**2 < _LARGE) & ((length + far) / scale < _FAR)
            slack[~sure] = np.inf
            rows = np.ones((len(z), len(turned)), np.float32)
            rows[:, :-1] = z
            np.matmul(rows, turned, out=found)
            _search_scored(x[own], centers, scores, slack, near, indices[own], distances[own])
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
    """Return the ``count`` nearest nodes of rows in two groups; ties go to the first group.

    Each group has its nodes nearest first, and their squared distances.  The nodes of the second
    group have numbers from ``shift`` on.
    """
    count = min(count, first[0].shape[1] + second[0].shape[1])
    indices = np.empty((len(first[0]), count), np.int32)
    distances = np.empty(indices.shape)
    _merge(*map(read_only, (*first, *second)), shift, indices, distances)
    return indices, distances


class CenterTree(NamedTuple):
    """Centers of one or more levels, root first.

    The children of center i of level l are ``starts[l][i]:starts[l][i + 1]`` of the next, at least
    one.
    """

    levels: tuple[Array, ...]
    starts: tuple[Ints, ...]

    @classmethod
    def of(cls, top: Floats, sizes: Ints, nodes: Array) -> CenterTree:
        """Return the tree of the first level and all others; the last `sizes` may be missing."""
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
    """Find the nearest children of each row's `parents` (n, c), -1 for none; as many, or -1."""
    order = np.argsort(parents, axis=None, kind="stable")
    ends = np.searchsorted(parents.ravel()[order], np.arange(len(starts)))
    found = np.full((parents.size, count), -1, np.int32)
    # What is missing comes last, after what is too far for a number.
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
    """Find the nearest of the children of each row's ``n_probe`` nearest parents; None for all.

    Ties go to the lowest leaf.  Distances are squared.  Cost ``O(n p (m + n_probe k / m))`` of two
    levels.
    """
    above = tree.levels[:-1]
    if n_probe is None or not above or n_probe >= len(above[-1]):
        return nearest(x, tree.leaves)
    probed = nearest_several(x, above[0], min(n_probe, len(above[0])))[0]
    for centers, starts in zip(above[1:], tree.starts, strict=False):
        probed = _among_children(x, probed, starts, centers, n_probe)[0]
    labels, squared = _among_children(x, probed, tree.starts[-1], tree.leaves, 1)
    return labels[:, 0], squared[:, 0]

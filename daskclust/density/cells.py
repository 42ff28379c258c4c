"""DBSCAN of rows in boxes that cut space, each exactly, on a grid of cells.

Cells are so small that any two rows of one are neighbors: the core rows of a cell belong to one
cluster, and a cell with enough rows holds core rows only.  Neighbors lie at most two cells away.
The grid is the same for all boxes, so that cells tell which clusters of two boxes are one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from daskclust.core.array_types import Array, Bools, Floats, Ints
from daskclust.core.kernels.compiling import compiled, inner
from daskclust.core.kernels.linkage import find_root


@dataclass(frozen=True)
class BoxTree:
    """Cuts of space by one feature at a time; leaves are boxes, numbered from 0.

    ``axis`` (t,) is the feature of each cut, -1 for a box; rows below ``at`` (t,) lie on the left
    side; ``left`` and ``right`` (t,) are the nodes of the two sides, of a box its number, twice.
    """

    axis: Ints
    at: Floats
    left: Ints
    right: Ints

    def __len__(self) -> int:
        return int((self.axis < 0).sum())

    def faces(self, p: int) -> tuple[Floats, Floats]:
        """Return the lower and the upper faces, (boxes, p): infinite outwards, all of space."""
        low, high = np.full((len(self.axis), p), -np.inf), np.full((len(self.axis), p), np.inf)
        for node, f in enumerate(self.axis.tolist()):
            if f >= 0:
                sides = [self.left[node], self.right[node]]
                low[sides], high[sides] = low[node], high[node]
                high[sides[0], f] = low[sides[1], f] = self.at[node]
        boxes = np.flatnonzero(self.axis < 0)
        boxes = boxes[np.argsort(self.left[boxes])]
        return low[boxes], high[boxes]

    def share(self, x: Array, margin: float) -> tuple[Ints, Ints]:
        """Return (rows, boxes): rows, and boxes that they are in or within `margin` of."""
        nodes = (self.axis, self.at, self.left, self.right)
        rows, boxes = np.empty((2, 0), np.int64)
        rows, boxes = np.empty((2, _share(nodes, x, margin, rows, boxes)), np.int64)
        _share(nodes, x, margin, rows, boxes)
        return rows, boxes


@compiled()
def _share(nodes: Any, x: Array, margin: float, rows: Array, boxes: Array) -> int:
    """Fill in the pairs, or only count them where there is no room."""
    axis, at, left, right = nodes
    waiting = np.empty(len(axis) + 1, np.int64)
    n = 0
    for i in range(len(x)):
        waiting[0] = 0
        size = 1
        while size:
            size -= 1
            node = waiting[size]
            f = axis[node]
            if f < 0:
                if n < len(rows):
                    rows[n] = i
                    boxes[n] = left[node]
                n += 1
                continue
            value = float(x[i, f])
            if value >= at[node] - margin:
                waiting[size] = right[node]
                size += 1
            if value < at[node] + margin:
                waiting[size] = left[node]
                size += 1
    return n


def grow_boxes(sample: Floats, rows_a_box: float, least: float) -> BoxTree:
    """Cut space until no box holds more than so many rows of a sample, or sides are narrow."""
    axis: list[int] = []
    at: list[float] = []
    left: list[int] = []
    right: list[int] = []
    n_boxes = 0
    # Rows, and the node and side that they come from.
    waiting: list[tuple[Ints, int, list[int]]] = [(np.arange(len(sample)), -1, [])]
    while waiting:
        rows, parent, side = waiting.pop(0)
        node = len(axis)
        if parent >= 0:
            side[parent] = node
        f, cut = _cut(sample[rows], least) if len(rows) > rows_a_box else (-1, 0.0)
        axis.append(f)
        at.append(cut)
        left.append(n_boxes)
        right.append(n_boxes)
        if f < 0:
            n_boxes += 1
            continue
        below = sample[rows, f] < cut
        waiting.append((rows[below], node, left))
        waiting.append((rows[~below], node, right))
    return BoxTree(np.array(axis), np.array(at), np.array(left), np.array(right))


def _cut(x: Floats, least: float) -> tuple[int, float]:
    """Return feature and place of a cut near the middle row; -1 where there is none."""
    spread = x.max(axis=0) - x.min(axis=0)
    for f in np.argsort(-spread, kind="stable"):
        if not spread[f] > 0.0:
            break
        middle = float(np.median(x[:, f]))
        edge = x[:, f].min(), x[:, f].max()
        cut = min(max(middle, edge[0] + least), edge[1] - least) if least > 0.0 else middle
        if edge[0] < cut <= edge[1] and min(cut - edge[0], edge[1] - cut) >= least:
            return int(f), cut
    return -1, 0.0


#: Cells along one feature, at most: rounding of quotients stays far below the slack of a cell.
MOST_CELLS = 2.0**38
#: Share of a cell's side by which rows of one cell are nearer than `eps`.
_SLACK = 2.0**-10


@dataclass(frozen=True)
class BoxClusters:
    """Clusters of the rows in and around one box, numbered from 0 within it.

    ``rows`` (m,) are places of rows inside the box: a border row once for each cluster it borders
    on, noise not at all.  ``founders`` (k,) are the least numbers of the core rows of each cluster;
    ``cells`` (c, p) lie near the faces of the box and hold core rows of ``owners``.
    """

    rows: Ints
    clusters: Ints
    core: Bools
    founders: Ints
    cells: Ints
    owners: Ints


class _Grid(NamedTuple):
    """Rows sorted by cell: those of cell c are ``first[c]:first[c + 1]``.

    ``beside`` (c, s) are the cells around each, -1 for none; neighbors are as far apart as the root
    of ``limit``.
    """

    x: Floats
    first: Ints
    beside: Array
    limit: float


@inner()
def _near(x: Array, i: int, j: int, limit: float) -> bool:
    total = 0.0
    for f in range(x.shape[1]):
        d = x[i, f] - x[j, f]
        total += d * d
    return total <= limit


@inner()
def _find(keys: Array, key: int) -> int:
    low, high = 0, len(keys)
    while low < high:
        middle = (low + high) // 2
        if keys[middle] < key:
            low = middle + 1
        else:
            high = middle
    return low if low < len(keys) and keys[low] == key else -1


@compiled()
def _neighbors(keys: Array, places: Array, shifts: Array, steps: Array, sizes: Array) -> Array:
    """Return the cell at each shift (s, p) from each cell, or -1.

    ``keys`` (c,) ascend; ``places`` (c, p) are ranks of the cells' coordinates, ``steps`` (p, 5,
    ranks) the rank after a step of -2 to 2, or -1.
    """
    out = np.empty((len(keys), len(shifts)), np.int32)
    for c in range(len(keys)):
        for s in range(len(shifts)):
            key = 0
            for f in range(places.shape[1]):
                rank = steps[f, shifts[s, f] + 2, places[c, f]]
                if rank < 0:
                    key = -1
                    break
                key = key * sizes[f] + rank
            out[c, s] = _find(keys, key) if key >= 0 else -1
    return out


@compiled()
def _weight_around(grid: _Grid, weight: Array, known: Array, least: float) -> Array:
    """Return the weight of the neighbors of known rows, 0 of others; summed up to `least` only."""
    x, first, beside, limit = grid
    out = np.zeros(len(x))
    for c in range(len(first) - 1):
        own = 0.0
        for i in range(first[c], first[c + 1]):
            own += weight[i]
        for i in range(first[c], first[c + 1]):
            if not known[i]:
                continue
            found = own
            for s in range(beside.shape[1]):
                if found >= least:
                    break
                d = beside[c, s]
                if d >= 0:
                    for j in range(first[d], first[d + 1]):
                        if _near(x, i, j, limit):
                            found += weight[j]
                            if found >= least:
                                break
            out[i] = found
    return out


@compiled()
def _join_cells(grid: _Grid, core: Array) -> Array:
    """Return the cluster of each cell as the number of one of its cells; -1 without core rows."""
    x, first, beside, limit = grid
    n, p = len(first) - 1, x.shape[1]
    parent = np.arange(n)
    filled = np.zeros(n, np.bool_)
    low = np.full((n, p), np.inf)
    high = np.full((n, p), -np.inf)
    for c in range(n):
        for i in range(first[c], first[c + 1]):
            if core[i]:
                filled[c] = True
                for f in range(p):
                    low[c, f] = min(low[c, f], x[i, f])
                    high[c, f] = max(high[c, f], x[i, f])
    # The nearest cells of all first: most others are joined by then, and need no look.
    for s in range(beside.shape[1]):
        for c in range(n):
            d = beside[c, s]
            if d < 0 or not filled[c] or not filled[d]:
                continue
            a, b = find_root(parent, c), find_root(parent, d)
            if a == b:
                continue
            joined = False
            for i in range(first[c], first[c + 1]):
                if not core[i]:
                    continue
                apart = 0.0
                for f in range(p):
                    gap = max(low[d, f] - x[i, f], x[i, f] - high[d, f], 0.0)
                    apart += gap * gap
                if apart > limit:
                    continue
                for j in range(first[d], first[d + 1]):
                    if core[j] and _near(x, i, j, limit):
                        joined = True
                        break
                if joined:
                    break
            if joined:
                parent[max(a, b)] = min(a, b)
    out = np.empty(n, np.int64)
    for c in range(n):
        out[c] = find_root(parent, c) if filled[c] else -1
    return out


@compiled()
def _name_rows(
    grid: _Grid, core: Array, own: Array, owner: Array, rows: Array, clusters: Array
) -> int:
    """Fill in (row, cluster) of the rows in the box, or only count them."""
    x, first, beside, limit = grid
    seen = np.empty(beside.shape[1] + 1, np.int64)
    n = 0
    for c in range(len(first) - 1):
        for i in range(first[c], first[c + 1]):
            if not own[i]:
                continue
            size = 0
            if owner[c] >= 0:
                # A core row of its own cell is a neighbor of each of its rows.
                seen[0] = owner[c]
                size = 1
            if not core[i]:
                for s in range(beside.shape[1]):
                    d = beside[c, s]
                    if d < 0 or owner[d] < 0:
                        continue
                    known = False
                    for k in range(size):
                        known |= seen[k] == owner[d]
                    if known:
                        continue
                    for j in range(first[d], first[d + 1]):
                        if core[j] and _near(x, i, j, limit):
                            seen[size] = owner[d]
                            size += 1
                            break
            for k in range(size):
                if n < len(rows):
                    rows[n] = i
                    clusters[n] = seen[k]
                n += 1
    return n


def _shifts(p: int) -> Ints:
    """Return the steps to all cells that may hold neighbors, the nearest first."""
    steps = np.stack(np.meshgrid(*[np.arange(-2, 3)] * p, indexing="ij"), axis=-1).reshape(-1, p)
    steps = steps[steps.any(axis=1)]
    # Between cells two steps apart in every feature lies a whole cell's diagonal, eps or all but.
    return np.asarray(steps[np.argsort((steps**2).sum(axis=1), kind="stable")])


def _sorted_by_cell(x: Array, origin: Floats, eps: float) -> tuple[_Grid, Ints, Ints]:
    """Sort rows into cells; return these, the order of the rows, and the cell of each (n, p)."""
    n, p = x.shape
    x = np.ascontiguousarray(x, np.float64)
    side = eps / np.sqrt(p) * (1.0 - _SLACK)
    cells = np.floor((x - origin) / side).astype(np.int64)
    ranks = np.empty_like(cells)
    values, sizes = [], np.empty(p, np.int64)
    for f in range(p):
        found, ranks[:, f] = np.unique(cells[:, f], return_inverse=True)
        values.append(found)
        sizes[f] = len(found)
    keys = np.zeros(n, np.int64)
    for f in range(p):
        keys = keys * sizes[f] + ranks[:, f]
    order = np.argsort(keys, kind="stable")
    keys, first = np.unique(keys[order], return_index=True)
    heads = order[first]
    first = np.append(first, n)
    steps = np.full((p, 5, int(sizes.max())), -1)
    for f, found in enumerate(values):
        for step in range(-2, 3):
            at = np.searchsorted(found, found + step)
            there = at < len(found)
            there[there] = found[at[there]] == found[there] + step
            steps[f, step + 2, : len(found)][there] = at[there]
    beside = _neighbors(keys, ranks[heads], _shifts(p), steps, sizes)
    return _Grid(x[order], first, beside, eps * eps), order, cells


def cluster_box(
    x: Array,
    numbers: Ints,
    weight: Floats | None,
    low: Floats,
    high: Floats,
    origin: Floats,
    eps: float,
    min_samples: float,
) -> BoxClusters:
    """Find the clusters of the rows in a box; ``x`` are those, and all within ``2 eps`` around it.

    ``numbers`` are those of the rows in the data.  Rows at the lower faces of the box belong to it,
    rows at the upper ones do not.  ``origin`` is that of the grid, the same for all boxes.
    """
    n, p = x.shape
    if not n:
        none = np.empty(0, np.int64)
        return BoxClusters(none, none, none.astype(bool), none, np.empty((0, p), np.int64), none)
    grid, order, cells = _sorted_by_cell(x, origin, eps)
    x, first, _, _ = grid
    heads, numbers = order[first[:-1]], numbers[order]
    mass = np.ones(n) if weight is None else weight[order]
    margin = _margin(eps, low, high)
    own = ((x >= low) & (x < high)).all(axis=1)
    known = ((x >= low - margin) & (x < high + margin)).all(axis=1)
    known &= mass > 0.0  # A row of weight 0 is none: it joins nothing.
    core = _weight_around(grid, mass, known, min_samples) >= min_samples
    owner = _join_cells(grid, core)
    rows, clusters = np.empty((2, 0), np.int64)
    rows, clusters = np.empty((2, _name_rows(grid, core, own, owner, rows, clusters)), np.int64)
    _name_rows(grid, core, own, owner, rows, clusters)
    filled = np.flatnonzero(owner >= 0)
    roots, local = np.unique(owner[filled], return_inverse=True)
    of_cell = np.full(len(owner), -1)
    of_cell[filled] = local
    founders = np.full(len(roots), np.iinfo(np.int64).max)
    cell_of_row = np.repeat(np.arange(len(owner)), np.diff(first))
    np.minimum.at(founders, of_cell[cell_of_row[core]], numbers[core])
    # Core rows that another box sees, too: outside this one, or just inside.
    inside = ((x >= low + margin) & (x < high - margin)).all(axis=1)
    faces = np.unique(cell_of_row[core & ~inside])
    return BoxClusters(
        order[rows],
        of_cell[owner[clusters]] if len(filled) else clusters,
        core[rows],
        founders,
        cells[heads[faces]],
        of_cell[faces],
    )


def count_neighbors(
    x: Array, low: Floats, high: Floats, origin: Floats, eps: float
) -> tuple[Ints, Floats]:
    """Return places of the rows in a box, and how many of all rows are within `eps` of each."""
    if not len(x):
        return np.empty(0, np.int64), np.empty(0)
    grid, order, _ = _sorted_by_cell(x, origin, eps)
    own = ((grid.x >= low) & (grid.x < high)).all(axis=1)
    return order[own], _weight_around(grid, np.ones(len(x)), own, np.inf)[own]


def _margin(eps: float, low: Floats, high: Floats) -> float:
    """Return a little more than eps: faces and rows are rounded."""
    faces = np.abs(np.concatenate([low, high]))
    largest = float(faces[np.isfinite(faces)].max(initial=0.0))
    return eps * (1.0 + 1e-9) + 4.0 * float(np.spacing(largest))

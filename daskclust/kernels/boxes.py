"""Boxes that cut space into parts of about as many rows each, with a margin around each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from daskclust._types import Array, Floats, Ints
from daskclust.kernels.compiling import compiled

__all__ = ["BoxTree", "grow_boxes"]


@dataclass(frozen=True)
class BoxTree:
    """Cuts of space by one feature at a time; leaves are boxes, numbered from 0.

    Attributes
    ----------
    axis : ndarray of shape (t,), int64
        Feature of each cut; -1 for a box.
    at : ndarray of shape (t,), float64
        Rows below it lie on the left side.
    left, right : ndarray of shape (t,), int64
        Nodes of the two sides; of a box its number, twice.
    """

    axis: Ints
    at: Floats
    left: Ints
    right: Ints

    def __len__(self) -> int:
        """Return the number of boxes."""
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
        """Return (rows, boxes): each row with each box that it is in, or nearer to than `margin`.

        Examples
        --------
        >>> tree = grow_boxes(np.arange(8.0)[:, None], 4, 0.0)
        >>> tree.share(np.array([[0.0], [3.0], [9.0]]), 1.0)
        (array([0, 1, 1, 2]), array([0, 0, 1, 1]))
        """
        parts = (self.axis, self.at, self.left, self.right, x, margin)
        none = np.empty(0, np.int64)
        size = _share(*parts, none, none)
        rows, boxes = np.empty(size, np.int64), np.empty(size, np.int64)
        _share(*parts, rows, boxes)
        return rows, boxes


@compiled()
def _share(
    axis: Array,
    at: Array,
    left: Array,
    right: Array,
    x: Array,
    margin: float,
    rows: Array,
    boxes: Array,
) -> int:
    """Fill in the pairs, or only count them where there is no room."""
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
    """Cut space until no box holds more than so many rows of a sample.

    Parameters
    ----------
    sample : ndarray of shape (s, p), float64
    rows_a_box : float
    least : float
        Boxes are not cut where both sides would be narrower.

    Returns
    -------
    BoxTree
    """
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

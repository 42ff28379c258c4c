"""Nearest leaf of every row, looked for below the nearest parents only."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from daskclust._types import Array, Floats, Ints
from daskclust.kernels.nearest.assign import nearest
from daskclust.kernels.nearest.several import nearest_several

__all__ = ["CenterTree", "nearest_leaf"]


class CenterTree(NamedTuple):
    """Centers of two levels.

    Attributes
    ----------
    parents : ndarray of shape (m, p), float64
    leaves : ndarray of shape (k, p), float32 or float64
        The children of one parent follow one another.
    starts : ndarray of shape (m + 1,), int64
        First leaf of each parent, of which each has one or more; the last is k.
    """

    parents: Floats
    leaves: NDArray[Any]
    starts: Ints


def nearest_leaf(
    x: Array, tree: CenterTree, n_probe: int | None
) -> tuple[NDArray[np.int32], Floats]:
    """Find the nearest of the children of each row's nearest parents.

    Parameters
    ----------
    x : ndarray of shape (n, p), float32 or float64
    tree : CenterTree
    n_probe : int or None
        Parents whose children are looked at; None for all leaves.

    Returns
    -------
    labels : ndarray of shape (n,), int32
        Ties go to the lowest leaf.
    squared : ndarray of shape (n,), float64
        Squared distances, by direct differences.

    Notes
    -----
    Cost ``O(n p (m + n_probe k / m))``.  What is found for a row depends on that row alone.

    Examples
    --------
    >>> import numpy as np
    >>> leaves = np.array([[0.0], [4.9], [8.0]])
    >>> tree = CenterTree(np.array([[1.0], [8.0]]), leaves, np.array([0, 2, 3]))
    >>> nearest_leaf(np.array([[4.6], [0.4]]), tree, 1)[0]
    array([2, 0], dtype=int32)
    >>> nearest_leaf(np.array([[4.6], [0.4]]), tree, 2)[0]
    array([1, 0], dtype=int32)
    """
    if n_probe is None or n_probe >= len(tree.parents):
        return nearest(x, tree.leaves)
    probed = nearest_several(x, tree.parents, n_probe)[0].ravel()
    order = np.argsort(probed, kind="stable")
    rows = order // n_probe
    ends = np.searchsorted(probed[order], np.arange(len(tree.parents) + 1))
    labels, squared = np.full(len(x), -1, np.int32), np.full(len(x), np.inf)
    for parent in np.flatnonzero(np.diff(ends)):
        at, first = rows[ends[parent] : ends[parent + 1]], tree.starts[parent]
        found, distances = nearest(x[at], tree.leaves[first : tree.starts[parent + 1]])
        # Parents come in the order of their leaves: of equal ones the lowest stays.
        better = (distances < squared[at]) | (labels[at] < 0)
        labels[at[better]] = found[better] + np.int32(first)
        squared[at[better]] = distances[better]
    return labels, squared

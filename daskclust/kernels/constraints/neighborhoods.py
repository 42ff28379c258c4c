"""Must-links joined one after another, where cannot-links leave them."""

from __future__ import annotations

import numpy as np

from daskclust._types import Ints
from daskclust.kernels.compiling import compiled

__all__ = ["agreeing_components"]


@compiled()
def _root(parent: Ints, i: int) -> int:
    while parent[i] != i:
        parent[i] = parent[parent[i]]
        i = parent[i]
    return i


@compiled()
def _join(left: Ints, right: Ints, foes: Ints, classes: Ints, parent: Ints) -> None:
    # The cannot-links of a component are a chain of their ends, joined when components are.
    n, n_foes = len(parent), len(foes)
    first, last = np.full(n, -1), np.full(n, -1)
    count = np.zeros(n, np.int64)
    after = np.full(2 * n_foes, -1)
    for end in range(2 * n_foes):
        i = foes[end // 2, end % 2]
        if first[i] < 0:
            first[i] = end
        else:
            after[last[i]] = end
        last[i] = end
        count[i] += 1
    for e in range(len(left)):
        a, b = _root(parent, left[e]), _root(parent, right[e])
        if a == b or (classes[a] >= 0 and classes[b] >= 0 and classes[a] != classes[b]):
            continue
        if count[a] > count[b]:
            a, b = b, a
        end = first[a]
        while end >= 0 and _root(parent, foes[end // 2, 1 - end % 2]) != b:
            end = after[end]
        if end >= 0:
            continue
        parent[a] = b
        classes[b] = max(classes[a], classes[b])
        count[b] += count[a]
        if first[b] < 0:
            first[b], last[b] = first[a], last[a]
        elif first[a] >= 0:
            after[last[b]] = first[a]
            last[b] = last[a]
    for i in range(n):
        parent[i] = _root(parent, i)


def agreeing_components(left: Ints, right: Ints, cannot_link: Ints, classes: Ints) -> Ints:
    """Join must-linked rows in order, but never two rows that may not be together.

    A must-link is passed over when its ends are by then in groups of which some
    rows are cannot-linked, or have different classes.  Without contradictions
    these are the connected components.

    Parameters
    ----------
    left, right : ndarray of shape (m,), int64
        Must-links, those to be trusted most first.
    cannot_link : ndarray of shape (q, 2), int64
    classes : ndarray of shape (n,), int64
        Class of each row, -1 for none; rows of one class are not joined by that.

    Returns
    -------
    ndarray of shape (n,), int64
        Number of each row's group, in the order of their smallest row.

    Notes
    -----
    About O(n + m + q log q), as long as refused must-links meet a cannot-link soon.

    Examples
    --------
    >>> import numpy as np
    >>> left, right = np.array([0, 1, 2]), np.array([1, 2, 3])
    >>> agreeing_components(left, right, np.array([[0, 2]]), np.full(4, -1))
    array([0, 0, 1, 1])
    """
    n = len(classes)
    parent = np.arange(n)
    _join(
        np.ascontiguousarray(left, dtype=np.int64),
        np.ascontiguousarray(right, dtype=np.int64),
        np.ascontiguousarray(cannot_link, dtype=np.int64).reshape(-1, 2),
        np.array(classes, dtype=np.int64),
        parent,
    )
    _, first, inverse = np.unique(parent, return_index=True, return_inverse=True)
    rank = np.empty(len(first), dtype=np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[inverse]

"""The ordered pass: constrained rows are assigned one after another (Eq. 16)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from daskclust.kernels.compiling import compiled
from daskclust.kernels.constraints._arrays import Ints, as_bools, as_floats, as_ints
from daskclust.kernels.constraints.implied import ImpliedPairs

__all__ = ["ordered_pass"]


@compiled()
def _dot(points: Any, row: int, sums: Any, c: int, k: int) -> float:
    """``points[row] . sums[c, k]`` in four chains, which do not wait for each other."""
    q = points.shape[1]
    one, two, three, four = 0.0, 0.0, 0.0, 0.0
    whole = q - q % 4
    for j in range(0, whole, 4):
        one += points[row, j] * sums[c, k, j]
        two += points[row, j + 1] * sums[c, k, j + 1]
        three += points[row, j + 2] * sums[c, k, j + 2]
        four += points[row, j + 3] * sums[c, k, j + 3]
    for j in range(whole, q):
        one += points[row, j] * sums[c, k, j]
    return (one + two) + (three + four)


@compiled()
def _add_row(
    points: Any,
    lengths: Any,
    row: int,
    c: int,
    k: int,
    sign: float,
    number: Any,
    sums: Any,
    squares: Any,
) -> None:
    """Add (sign 1) or take out (sign -1) a labeled row of class ``c`` in cluster ``k``."""
    for j in range(points.shape[1]):
        sums[c, k, j] += sign * points[row, j]
    squares[c, k] += sign * lengths[row]
    number[c, k] += int(sign)
    if number[c, k] == 0:
        # Rounding of the taken-out rows must not outlive them.
        squares[c, k] = 0.0
        for j in range(points.shape[1]):
            sums[c, k, j] = 0.0


@compiled()
def _repulsion(
    points: Any,
    lengths: Any,
    row: int,
    c: int,
    k: int,
    dot_same: float,
    number: Any,
    sums: Any,
    squares: Any,
    box_length: float,
) -> float:
    """Price of joining the rows of other classes in cluster ``k``; never negative."""
    any_class = number.shape[0] - 1
    other = number[any_class, k] - number[c, k]
    if other == 0:
        return 0.0
    dot = _dot(points, row, sums, any_class, k) - dot_same
    far = other * lengths[row] - 2.0 * dot + (squares[any_class, k] - squares[c, k])
    return max(other * box_length - max(far, 0.0), 0.0)


@compiled()
def _count_rows(
    labels: Any,
    slot: Any,
    classes: Any,
    points: Any,
    lengths: Any,
    number: Any,
    sums: Any,
    squares: Any,
) -> None:
    """Statistics of the labeled rows of each (class, cluster); the last class is all of them."""
    n_classes = number.shape[0] - 1
    for i in range(labels.size):
        if slot[i] >= 0 and labels[i] >= 0:
            s = slot[i]
            _add_row(points, lengths, s, classes[s], labels[i], 1.0, number, sums, squares)
    for c in range(n_classes):
        number[n_classes] += number[c]
        squares[n_classes] += squares[c]
        sums[n_classes] += sums[c]


def _statistics(
    implied: ImpliedPairs, labels: Ints, small: Any, n_clusters: int
) -> tuple[Any, ...]:
    """Return the statistics of the labeled rows, those of the last pass where it moved none."""
    kept = implied.kept
    if "labels" in kept and np.array_equal(kept["labels"], labels):
        statistics: tuple[Any, ...] = kept["statistics"]
        if statistics[0].shape[1] == n_clusters:
            return statistics
    shape = (implied.n_classes + 1, n_clusters)
    statistics = (
        np.zeros(shape, dtype=np.int64),
        np.zeros((*shape, implied.points.shape[1])),
        np.zeros(shape),
    )
    _count_rows(small, implied.slot, implied.classes, implied.points, implied.lengths, *statistics)
    return statistics


@compiled()
def _ordered_pass(
    distances: Any,
    labels: Any,
    indptr: Any,
    neighbors: Any,
    costs: Any,
    is_must_link: Any,
    slot: Any,
    classes: Any,
    points: Any,
    lengths: Any,
    n_classes: int,
    box_length: float,
    must_weight: float,
    cannot_weight: float,
    constant: bool,
    number: Any,
    sums: Any,
    squares: Any,
) -> int:
    m, n_clusters = distances.shape
    # Per cluster, for one row: the price of joining it, and must-link cost towards it.
    prices = np.zeros((2, n_clusters))
    repel, attract = prices[0], prices[1]
    scores = np.empty(n_clusters)
    dots = np.zeros(n_clusters)
    any_class = n_classes
    changed = 0
    for i in range(m):
        old = labels[i]
        row = slot[i] if n_classes > 0 else -1
        c = classes[row] if row >= 0 else 0
        total = 0.0
        for e in range(indptr[i], indptr[i + 1]):
            k = labels[neighbors[e]]
            if k < 0:
                continue  # a partner without a label has no say
            # Without a branch on the kind, which nobody could predict.
            kind = np.int64(is_must_link[e])
            prices[kind, k] += costs[e]
            total += kind * costs[e]
        if row >= 0:
            for k in range(n_clusters):
                same = number[c, k]
                # The row itself is among the rows of its class in its old cluster.
                partners = same - 1 if k == old else same
                dots[k] = 0.0
                if constant:
                    attract[k] += must_weight * partners
                    total += must_weight * partners
                    repel[k] += cannot_weight * (number[any_class, k] - same)
                elif same > 0:
                    dots[k] = _dot(points, row, sums, c, k)
                    if partners > 0:
                        near = same * lengths[row] - 2.0 * dots[k] + squares[c, k]
                        near = must_weight * max(near, 0.0)
                        attract[k] += near
                        total += near

        for k in range(n_clusters):
            scores[k] = distances[i, k] + ((total - attract[k]) + repel[k])
        best = 0
        if row >= 0 and not constant:
            # The row mostly stays in its old cluster; without one it mostly joins its class.  With
            # that one's score known, most others are too dear before the rows of other classes in
            # them are counted.
            best = max(old, 0)
            if old < 0:
                for k in range(1, n_clusters):
                    if scores[k] < scores[best]:
                        best = k
            lowest = np.inf
            for step in range(-1, n_clusters):
                k = best if step < 0 else step
                if scores[k] < lowest or (scores[k] == lowest and k < best):
                    repel[k] += cannot_weight * _repulsion(
                        points, lengths, row, c, k, dots[k], number, sums, squares, box_length
                    )
                    scores[k] = distances[i, k] + ((total - attract[k]) + repel[k])
                    if scores[k] < lowest or (scores[k] == lowest and k < best):
                        lowest = scores[k]
                        best = k
        else:
            lowest = scores[0]
            for k in range(1, n_clusters):
                if scores[k] < lowest:
                    lowest = scores[k]
                    best = k
        for k in range(n_clusters):
            attract[k] = 0.0
            repel[k] = 0.0

        if best != old:
            changed += 1
            labels[i] = best
            if row >= 0:
                if old >= 0:
                    _add_row(points, lengths, row, c, old, -1.0, number, sums, squares)
                    _add_row(points, lengths, row, any_class, old, -1.0, number, sums, squares)
                _add_row(points, lengths, row, c, best, 1.0, number, sums, squares)
                _add_row(points, lengths, row, any_class, best, 1.0, number, sums, squares)
    return changed


_NO_INTS = np.empty(0, dtype=np.int64)
_NO_FLOATS = np.empty(0)
_NO_POINTS = np.empty((0, 0))
_NO_STATISTICS = (np.zeros((1, 0), dtype=np.int64), np.zeros((1, 0, 0)), np.zeros((1, 0)))


def ordered_pass(
    distances: ArrayLike,
    labels: ArrayLike,
    indptr: ArrayLike,
    neighbors: ArrayLike,
    costs: ArrayLike,
    is_must_link: ArrayLike,
    implied: ImpliedPairs | None = None,
) -> tuple[Ints, int]:
    """Assign the constrained rows once, one after another (Eq. 16).

    Rows are visited in index order.  Row i joins the cluster k of the smallest
    ``distances[i, k] + penalties``: a must-link whose partner is in a cluster
    other than k adds its cost, a cannot-link whose partner is in k adds its cost.
    Every pair of the row counts in full, which makes the score the exact change of
    the objective.  Ties go to the lowest cluster.  A partner without a label is
    ignored; a label given in this pass counts at once, otherwise the one
    handed in does.

    Parameters
    ----------
    distances : array of shape (m, K)
        Squared distances to the centers, in the weighted space (times the row's
        sample weight, if there is one).
    labels : int array of shape (m,)
        Labels of the pass before, -1 = none yet.  Not changed.
    indptr : int array of shape (m + 1,)
        Row i's pairs are the entries ``indptr[i]:indptr[i + 1]`` of the next three;
        each pair is entered at both its ends.
    neighbors : int array of shape (2 n_pairs,)
        The other end.
    costs : array of shape (2 n_pairs,)
        Price of a violation (:func:`pair_costs`).
    is_must_link : bool array of shape (2 n_pairs,)
        True for must-links, False for cannot-links.
    implied : ImpliedPairs, optional
        Labeled rows among the m, whose pairs are not listed; both sorts of
        pairs may occur together.

    Returns
    -------
    labels : int64 array of shape (m,)
        The new labels, all >= 0.
    n_changed : int
        Rows whose label differs from the one handed in; 0 = converged.

    Notes
    -----
    Cost O(m K + n_pairs), plus O(n_labeled K q) with `implied` (q = features of
    positive weight).  Serial by nature; releases the GIL.

    The statistics of labeled rows are rebuilt from the labels at the start of
    each pass, so rounding does not build up; after a pass that moved no row they
    are kept for the next, since they are the same.
    """
    d = as_floats(distances)
    new = np.array(labels, dtype=np.int64)
    # Compiled code does not check its indices.
    if d.ndim != 2 or d.shape[0] != new.size or new.max(initial=-1) >= d.shape[1]:
        raise ValueError(
            f"distances has shape {d.shape} and labels {new.size} entries of at most "
            f"{new.max(initial=-1)}; expected distances (m, K) and m labels in [-1, K)."
        )
    # Labels of partners are read all over the place: small ones stay in the processor's cache.
    small = new.astype(np.int8 if d.shape[1] <= np.iinfo(np.int8).max else np.int32)
    # One call with every argument positional: Numba compiles a single version.
    if implied is None:
        tail: tuple[Any, ...] = (
            _NO_INTS,
            _NO_INTS,
            _NO_POINTS,
            _NO_FLOATS,
            0,
            0.0,
            0.0,
            0.0,
            False,
            *_NO_STATISTICS,
        )
    else:
        tail = (
            implied.slot,
            implied.classes,
            implied.points,
            implied.lengths,
            implied.n_classes,
            implied.box_length,
            implied.must_link_weight,
            implied.cannot_link_weight,
            implied.constant,
            *_statistics(implied, new, small, d.shape[1]),
        )
    changed = _ordered_pass(
        d,
        small,
        as_ints(indptr),
        as_ints(neighbors),
        as_floats(costs),
        as_bools(is_must_link),
        *tail,
    )
    if implied is not None:
        implied.kept.clear()
        if not changed:
            # Nothing was added or taken out: they are what they would be if built anew.
            implied.kept.update(labels=new, statistics=tail[-3:])
    return small.astype(np.int64), int(changed)

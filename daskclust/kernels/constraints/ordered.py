"""The ordered pass: constrained rows are assigned one after another (Eq. 16)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from daskclust._types import Array
from daskclust.kernels.compiling import compiled, inner
from daskclust.kernels.constraints.pairs import (
    Bools,
    Floats,
    ImpliedPairs,
    Ints,
    Labeled,
    as_bools,
    as_floats,
    as_ints,
)


class _Pairs(NamedTuple):
    """Listed pairs; row i's are the entries ``indptr[i]:indptr[i + 1]`` of the other arrays."""

    indptr: Ints
    neighbors: Ints
    costs: Floats
    is_must_link: Bools


class _Statistics(NamedTuple):
    """Number, sum and sum of squared lengths of the labeled rows of each (class, cluster).

    Of shape (n_classes + 1, K), (n_classes + 1, K, q) and (n_classes + 1, K); the
    last class is all of them.
    """

    number: Ints
    sums: Floats
    squares: Floats


class _Prices(NamedTuple):
    """The price of one row in each cluster.

    ``penalties`` (2, K), :data:`_REPEL`: cannot-link price of joining the cluster;
    :data:`_ATTRACT`: must-link cost towards it.  ``scores`` (K,) are distance plus penalties,
    ``dots`` (K,) the row times the sum of the rows of its class in the cluster.
    """

    penalties: Floats
    scores: Floats
    dots: Floats


#: Rows of ``penalties``; the kind of a listed pair, as a number.
_REPEL, _ATTRACT = 0, 1

# Compiled code counts the references to every array that it takes out of a tuple.  That is
# dear beside the work on one cluster or pair: what is called for each takes plain arrays.


@inner()
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
def _all_squares(length: float, n: int, dot: float, squares: float) -> float:
    """Sum of squared distances of a point to n others, never negative.

    ``length`` is the point's squared length, ``dot`` its product with the others'
    sum, ``squares`` the sum of their squared lengths.
    """
    return max(n * length - 2.0 * dot + squares, 0.0)


@inner()
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
def _count_rows(labels, labeled, statistics):
    """Fill the statistics, which are 0, from the labels of all m rows."""
    slot, classes, n_classes = labeled.slot, labeled.classes, labeled.n_classes
    points, lengths, (number, sums, squares) = labeled.points, labeled.lengths, statistics
    for i in range(labels.size):
        if slot[i] >= 0 and labels[i] >= 0:
            s = slot[i]
            _add_row(points, lengths, s, classes[s], labels[i], 1.0, number, sums, squares)
    for c in range(n_classes):
        number[n_classes] += number[c]
        squares[n_classes] += squares[c]
        sums[n_classes] += sums[c]


def _statistics(implied: ImpliedPairs, labels: Ints, small: Array, n_clusters: int) -> _Statistics:
    """Return the statistics of the labeled rows, those of the last pass where it moved none."""
    kept, labeled = implied.kept, implied.rows
    if "labels" in kept and np.array_equal(kept["labels"], labels):
        statistics: _Statistics = kept["statistics"]
        if statistics.number.shape[1] == n_clusters:
            return statistics
    shape = (labeled.n_classes + 1, n_clusters)
    statistics = _Statistics(
        np.zeros(shape, dtype=np.int64),
        np.zeros((*shape, labeled.points.shape[1])),
        np.zeros(shape),
    )
    _count_rows(small, labeled, statistics)
    return statistics


@inner()
def _add_listed(
    labels: Any,
    i: int,
    indptr: Any,
    neighbors: Any,
    costs: Any,
    is_must_link: Any,
    penalties: Any,
) -> float:
    """Add the costs of row i's listed pairs; return the must-link costs of them all."""
    total = 0.0
    for e in range(indptr[i], indptr[i + 1]):
        k = labels[neighbors[e]]
        if k < 0:
            continue  # a partner without a label has no say
        # Without a branch on the kind, which processors could not predict.
        kind = np.int64(is_must_link[e])
        penalties[kind, k] += costs[e]
        total += kind * costs[e]
    return total


@inner()
def _add_constant(
    c: int,
    old: int,
    total: float,
    must_weight: float,
    cannot_weight: float,
    number: Any,
    penalties: Any,
) -> float:
    """Add the implied pairs of a row of class ``c``, 1 each; return ``total`` with them."""
    any_class = number.shape[0] - 1
    for k in range(number.shape[1]):
        same = number[c, k]
        # The row itself is among the rows of its class in its old cluster.
        partners = same - 1 if k == old else same
        penalties[_ATTRACT, k] += must_weight * partners
        total += must_weight * partners
        penalties[_REPEL, k] += cannot_weight * (number[any_class, k] - same)
    return total


@inner()
def _add_attraction(
    row: int, old: int, total: float, labeled: Any, statistics: Any, prices: Any
) -> float:
    """Add a labeled row's implied must-links by their lengths; return ``total`` with them."""
    penalties, _, dots = prices
    number, sums, squares = statistics
    points, length, c = labeled.points, labeled.lengths[row], labeled.classes[row]
    weight = labeled.must_link_weight
    for k in range(number.shape[1]):
        same = number[c, k]
        # The row itself is among the rows of its class in its old cluster.
        partners = same - 1 if k == old else same
        dots[k] = 0.0
        if same > 0:
            dots[k] = _dot(points, row, sums, c, k)
            if partners > 0:
                near = weight * _all_squares(length, same, dots[k], squares[c, k])
                penalties[_ATTRACT, k] += near
                total += near
    return total


@inner()
def _lowest(scores):
    """Cluster of the lowest score, the first of equals."""
    best, lowest = 0, scores[0]
    for k in range(1, scores.size):
        if scores[k] < lowest:
            best, lowest = k, scores[k]
    return best


@inner()
def _score(distances: Any, i: int, k: int, total: float, penalties: Any) -> float:
    """Distance plus penalties: the must-links towards other clusters, the cannot-links to k."""
    return distances[i, k] + ((total - penalties[_ATTRACT, k]) + penalties[_REPEL, k])


@inner()
def _lowest_repelled(
    distances: Any, i: int, old: int, total: float, labeled: Any, statistics: Any, prices: Any
) -> int:
    """Cluster of the lowest score once implied cannot-links are added, the first of equals.

    A labeled row mostly stays in its old cluster; without one it mostly joins its
    class.  With that one's score known, most others are too dear before the rows of
    other classes in them are counted.
    """
    penalties, scores, dots = prices
    number, sums, squares = statistics
    row, points = labeled.slot[i], labeled.points
    c, any_class, length = labeled.classes[row], labeled.n_classes, labeled.lengths[row]
    box_length, weight = labeled.box_length, labeled.cannot_link_weight
    best = old if old >= 0 else _lowest(scores)
    lowest = np.inf
    for step in range(-1, scores.size):
        k = best if step < 0 else step
        if not (scores[k] < lowest or (scores[k] == lowest and k < best)):
            continue
        others = number[any_class, k] - number[c, k]
        if others > 0:
            dot = _dot(points, row, sums, any_class, k) - dots[k]
            far = _all_squares(length, others, dot, squares[any_class, k] - squares[c, k])
            penalties[_REPEL, k] += weight * max(others * box_length - far, 0.0)
        scores[k] = _score(distances, i, k, total, penalties)
        if scores[k] < lowest or (scores[k] == lowest and k < best):
            lowest = scores[k]
            best = k
    return best


@compiled()
def _ordered_pass(distances, labels, pairs, labeled, statistics, prices):
    """Assign all rows in turn; ``prices`` is scratch.  Return how many labels changed."""
    m, n_clusters = distances.shape
    indptr, neighbors, costs, is_must_link = pairs
    penalties, scores, _ = prices
    number, sums, squares = statistics
    slot, classes, points, lengths, n_classes = labeled[:5]
    constant, must_weight = labeled.constant, labeled.must_link_weight
    cannot_weight = labeled.cannot_link_weight
    changed = 0
    for i in range(m):
        old = np.int64(labels[i])
        row = slot[i] if n_classes > 0 else -1
        c = classes[row] if row >= 0 else 0
        for k in range(n_clusters):
            penalties[_REPEL, k] = 0.0
            penalties[_ATTRACT, k] = 0.0
        total = 0.0
        if indptr[i] < indptr[i + 1]:
            total = _add_listed(labels, i, indptr, neighbors, costs, is_must_link, penalties)
        if row >= 0 and constant:
            total = _add_constant(c, old, total, must_weight, cannot_weight, number, penalties)
        elif row >= 0:
            total = _add_attraction(row, old, total, labeled, statistics, prices)
        for k in range(n_clusters):
            scores[k] = _score(distances, i, k, total, penalties)
        if row >= 0 and not constant:
            best = _lowest_repelled(distances, i, old, total, labeled, statistics, prices)
        else:
            best = _lowest(scores)
        if best != old:
            changed += 1
            labels[i] = best
            if row >= 0:
                for at in (c, n_classes):  # its class, and all of them
                    if old >= 0:
                        _add_row(points, lengths, row, at, old, -1.0, number, sums, squares)
                    _add_row(points, lengths, row, at, best, 1.0, number, sums, squares)
    return changed


#: In place of labeled rows where there are none.
_NONE_LABELED = Labeled(
    np.empty(0, dtype=np.int64),
    np.empty(0, dtype=np.int64),
    np.empty((0, 0)),
    np.empty(0),
    0,
    0.0,
    0.0,
    0.0,
    False,
)
_NO_STATISTICS = _Statistics(
    np.zeros((1, 0), dtype=np.int64), np.zeros((1, 0, 0)), np.zeros((1, 0))
)


def ordered_pass(
    distances: ArrayLike,
    labels: ArrayLike,
    indptr: ArrayLike,
    neighbors: ArrayLike,
    costs: ArrayLike,
    is_must_link: ArrayLike,
    implied: ImpliedPairs | None = None,
) -> tuple[Ints, int]:
    """Assign the constrained rows once, one after another (Eq. 16); return labels and changes.

    Rows are visited in index order.  Row i joins the cluster k of the smallest
    ``distances[i, k] + penalties``: a must-link whose partner is in a cluster
    other than k adds its cost, a cannot-link whose partner is in k adds its cost.
    Every pair of the row counts in full, which makes the score the exact change of
    the objective.  Ties go to the lowest cluster.  A partner without a label is
    ignored; a label given in this pass counts at once, otherwise the one
    handed in does.

    ``distances`` (m, K) are squared, in the weighted space, times the row's sample weight;
    ``labels`` (m,) those of the pass before, -1 for none yet, not changed.  Row i's pairs are the
    entries ``indptr[i]:indptr[i + 1]`` of ``neighbors``, ``costs`` (:func:`pair_costs`) and
    ``is_must_link`` (2 n_pairs,): each pair is entered at both its ends.  ``implied`` are labeled
    rows among the m, whose pairs are not listed.

    Cost O(m K + n_pairs), plus O(n_labeled K q) with ``implied`` (q = features of
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
    n_clusters = d.shape[1]
    statistics = _NO_STATISTICS
    labeled = _NONE_LABELED if implied is None else implied.rows
    if implied is not None:
        statistics = _statistics(implied, new, small, n_clusters)
    pairs = _Pairs(as_ints(indptr), as_ints(neighbors), as_floats(costs), as_bools(is_must_link))
    prices = _Prices(np.zeros((2, n_clusters)), np.empty(n_clusters), np.zeros(n_clusters))
    changed = _ordered_pass(d, small, pairs, labeled, statistics, prices)
    if implied is not None:
        implied.kept.clear()
        if not changed:
            # Nothing was added or taken out: they are what they would be if built anew.
            implied.kept.update(labels=new, statistics=statistics)
    return small.astype(np.int64), int(changed)

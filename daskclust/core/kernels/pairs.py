"""Pairs of rows, listed or implied by labels: violated pairs, and the cost of violations.

Only rows in a pair, or with a label, interact.  They are fetched once, numbered 0..m-1 in order,
and assigned one after another (:func:`ordered_pass`).

Penalties (with feature weights w, and sides Delta of the bounding box):

- violated must-link: ``f = sum_j w_j (x - x')_j^2``,
- violated cannot-link: ``f-bar = sum_j w_j (Delta_j^2 - (x - x')_j^2)``,
- both are 1 with ``penalty="constant"``, and ``sum_j w_j unit_j`` with ``penalty="scaled"``,

times the weight of the pair.

Explicit pairs have two forms: a list (one entry per pair), and compressed rows (``indptr``, ...,
one entry per pair and row), as in :class:`daskclust.core.constraints.PairwiseConstraints`.

Partial labels imply pairs that are never listed.  Two labeled rows of one class are must-linked,
and two rows of different classes are cannot-linked.  All sums over such pairs follow from the
number, the sum and the sum of squares of the rows of each (class, cluster):  O(L K p) for L labeled
rows instead of O(L^2 p).
"""

from __future__ import annotations

import operator
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np

from daskclust.core.array_types import Array, Bools, Floats, Ints
from daskclust.core.kernels.compiling import compiled, inner
from daskclust.core.kernels.nearest.assign import check_rows
from daskclust.core.kernels.nearest.row_loops import OBSERVED, row_distance

Penalty = Literal["distance", "constant", "scaled"]


@dataclass(frozen=True, eq=False)
class Violations:
    """Sums over the pairs that a labeling violates, each pair once, times its weight.

    ``must_link`` (p,) is ``sum (x - x')_j^2`` over violated must-links: f of Eq. 15 by feature and
    without feature weights.  ``cannot_link`` (p,) is ``sum (Delta_j^2 - (x - x')_j^2)`` over
    violated cannot-links, f-bar.  A mass is the sum of the weights of the violated pairs.  ``+``
    adds the sums of two sets of pairs.
    """

    must_link: Floats
    cannot_link: Floats
    must_link_mass: float
    cannot_link_mass: float
    n_must_link: int
    n_cannot_link: int

    def __add__(self, other: Violations) -> Violations:
        return Violations(*map(operator.add, vars(self).values(), vars(other).values()))

    @property
    def mass(self) -> float:
        """Sum of the weights of all violated pairs."""
        return self.must_link_mass + self.cannot_link_mass

    def feature_sums(self, unit: Floats | None = None) -> Floats:
        """Return the term that Eq. 15 subtracts from gamma and Eq. 12 adds to the WCSS; shape (p,).

        `unit` (p,) is the cost of each pair with ``penalty="scaled"``, by feature; None for
        distances.
        """
        return self.must_link + self.cannot_link if unit is None else self.mass * unit

    def objective(
        self, weights: Floats, *, penalty: Penalty = "distance", unit: Floats | None = None
    ) -> float:
        """Return the penalty part of the objective (Eq. 8, 10, 13) for feature weights (p,)."""
        if penalty == "constant":
            return self.mass
        return float(np.sum(weights * self.feature_sums(unit)))


@compiled()
def _pair_lengths(x, wide, left, right, weights, out):
    for e in range(left.size):
        out[e] = row_distance(x, left[e], wide, right[e], weights, 1.0, (), OBSERVED)


def pair_lengths(x: Array, left: Ints, right: Ints, weights: Floats) -> Floats:
    """Return the squared distance of each pair over the values that both observe.

    It is ``sum_j w_j (x_l - x_r)_j^2``, with the same bits as the distances of
    :func:`daskclust.core.kernels.nearest.assign.direct_distances`.
    """
    out = np.empty(left.size)
    if out.size:
        _pair_lengths(*check_rows(x, x, weights=weights), left, right, weights, out)
    return out


def pair_costs(
    lengths: Floats,
    is_must_link: Bools,
    pair_weights: Floats,
    box_length: float | Floats,
    *,
    penalty: Penalty = "distance",
) -> Floats:
    """Return the cost of violating each pair (f and f-bar of Eq. 13, times the pair's weight).

    ``box_length`` is ``sum_j w_j Delta_j^2``.  With missing values, it is given per pair, over the
    features that both rows observe.
    """
    if penalty != "distance":
        return pair_weights.copy()
    return pair_weights * np.where(is_must_link, lengths, box_length - lengths)


def violated_pairs(labels: Ints, left: Ints, right: Ints, is_must_link: Bools) -> Bools:
    """Return a mask of violated pairs; pairs with an unlabeled row (-1) are not violated."""
    a, b = labels[left], labels[right]
    violated: Bools = ((a == b) != is_must_link) & (a >= 0) & (b >= 0)
    return violated


#: Maximum number of distances that are added together.
_ADDED = 2**20


def pair_contradictions(distances: Floats, left: Ints, right: Ints, is_must_link: Bools) -> Floats:
    """Return the cost of each pair: the least increase of the distances that satisfies the pair.

    `distances` (m, k) are the distances of the rows to the centers.  The increase is relative to
    the assignment of both rows to their nearest centers.  If there is one cluster, a cannot-link
    has infinite cost.
    """
    nearest = distances.argmin(axis=1)
    least = distances[np.arange(len(distances)), nearest]
    costs = np.zeros(len(left))
    apart = nearest[left] != nearest[right]
    must = np.flatnonzero(is_must_link & apart)
    step = max(1, _ADDED // distances.shape[1])
    for some in (must[at : at + step] for at in range(0, len(must), step)):
        a, b = left[some], right[some]
        costs[some] = (distances[a] + distances[b]).min(axis=1) - (least[a] + least[b])
    cannot = ~(is_must_link | apart)
    if cannot.any():
        others = distances.copy()
        others[np.arange(len(distances)), nearest] = np.inf
        away = others.min(axis=1) - least
        costs[cannot] = np.minimum(away[left[cannot]], away[right[cannot]])
    return costs


@compiled()
def _explicit_sums(x, left, right, is_must_link, pair_weights, violated, box2, must, cannot):
    for e in range(left.size):
        if not violated[e]:
            continue
        i = left[e]
        k = right[e]
        b = pair_weights[e]
        for j in range(box2.size):
            d = np.float64(x[i, j]) - np.float64(x[k, j])
            if d != d:
                continue  # a value is missing
            if is_must_link[e]:
                must[j] += b * (d * d)
            else:
                cannot[j] += b * (box2[j] - d * d)


def explicit_violations(
    x: Array,
    labels: Ints,
    left: Ints,
    right: Ints,
    is_must_link: Bools,
    pair_weights: Floats,
    box2: Floats,
) -> Violations:
    """Return sums over the explicit pairs that the labels (-1 for none) violate.

    ``box2`` are the squared sides of the bounding box.  Cost O(n_pairs + n_violated p).
    """
    violated = violated_pairs(labels, left, right, is_must_link)
    must, cannot = np.zeros(box2.size), np.zeros(box2.size)
    _explicit_sums(x, left, right, is_must_link, pair_weights, violated, box2, must, cannot)
    broken_must, broken_cannot = violated & is_must_link, violated & ~is_must_link
    return Violations(
        must,
        cannot,
        float(pair_weights[broken_must].sum()),
        float(pair_weights[broken_cannot].sum()),
        int(np.count_nonzero(broken_must)),
        int(np.count_nonzero(broken_cannot)),
    )


#: Approximate number of rows from which a central row is chosen.
_ORIGIN_ROWS = 1000


class Labeled(NamedTuple):
    """Labeled rows for one set of feature weights.

    ``slot`` (m,) is the number of each row among the labeled rows, -1 without a label; ``classes``
    (n_labeled,) are in [0, n_classes).  ``points`` (n_labeled, q) are the labeled rows, shifted and
    multiplied by the square root of the feature weights, with the q features of positive weight;
    they have no columns for constant penalties.  ``lengths`` are the squared lengths of the points.
    ``box_length`` is ``sum_j w_j Delta_j^2``.  Every implied pair has the weight of its kind.
    ``constant`` means a penalty of 1 per pair.
    """

    slot: Ints
    classes: Ints
    points: Floats
    lengths: Floats
    n_classes: int
    box_length: float
    must_link_weight: float
    cannot_link_weight: float
    constant: bool


@dataclass(frozen=True, eq=False)
class ImpliedPairs:
    """Result of :func:`implied_pairs`; ``kept`` contains data that the next pass may reuse."""

    rows: Labeled
    kept: dict[str, Any] = field(default_factory=dict, repr=False)


def _origin(x: Array, rows: Ints) -> Floats:
    """Return a row near the mean, as a central origin that keeps integer data integer."""
    x = x[rows[:: max(1, rows.size // _ORIGIN_ROWS)]]
    mean = x.mean(axis=0, dtype=np.float64)
    distances = np.sum((x - mean) ** 2, axis=1)
    origin: Floats = x[int(np.argmin(distances))].astype(np.float64)
    return origin


@compiled()
def _fill_points(x, rows, origin, active, root, points, lengths):
    for i in range(rows.size):
        length = 0.0
        for a in range(active.size):
            j = active[a]
            value = (np.float64(x[rows[i], j]) - origin[j]) * root[a]
            points[i, a] = value
            length += value * value
        lengths[i] = length


def implied_pairs(
    x: Array,
    classes: Ints,
    weights: Floats,
    box2: Floats,
    *,
    must_link_weight: float = 1.0,
    cannot_link_weight: float = 1.0,
    penalty: Penalty = "distance",
) -> ImpliedPairs:
    """Prepare the pairs implied by partial labels (-1 for none), without listing them.

    Let N, S and Q be the number, sum and sum of squared lengths of the labeled rows of one class in
    one cluster (weighted and shifted).  The sum of the squared distances of a row y to all of them
    is ``N |y|^2 - 2 y.S + Q``.  Memory O(n_labeled q) here and O(n_classes K q) in a pass.
    """
    labeled = np.flatnonzero(classes >= 0)
    slot = np.full(classes.size, -1, dtype=np.int64)
    slot[labeled] = np.arange(labeled.size)
    active = np.flatnonzero(weights > 0) if penalty == "distance" and labeled.size else np.arange(0)
    points, lengths = np.empty((labeled.size, active.size)), np.zeros(labeled.size)
    if active.size:
        # |y|^2 - 2 y.y' + |y'|^2 loses precision for data far from the origin.
        origin = _origin(x, labeled)
        _fill_points(x, labeled, origin, active, np.sqrt(weights[active]), points, lengths)
    return ImpliedPairs(
        Labeled(
            slot=slot,
            classes=classes[labeled],
            points=points,
            lengths=lengths,
            n_classes=int(classes.max(initial=-1)) + 1,
            box_length=float(np.sum(weights * box2)),
            must_link_weight=float(must_link_weight),
            cannot_link_weight=float(cannot_link_weight),
            constant=penalty != "distance",
        )
    )


@compiled()
def _class_statistics(x, origin, rows, classes, labels, sums, squares):
    for i in range(rows.size):
        c = classes[i]
        k = labels[i]
        for j in range(origin.size):
            value = np.float64(x[rows[i], j]) - origin[j]
            sums[c, k, j] += value
            squares[c, k, j] += value * value


@compiled()
def _add_across(number, sums, squares, box2, out):
    """Add ``box2 - (x - x')^2`` over the pairs of rows of one group that are in different parts.

    Each pair of rows is counted twice; the function returns twice the number of pairs.
    """
    n_groups, n_parts, p = sums.shape
    count = 0
    total_s = np.empty(p)
    total_q = np.empty(p)
    for g in range(n_groups):
        total = 0
        total_s[:] = 0.0
        total_q[:] = 0.0
        for k in range(n_parts):
            total += number[g, k]
            for j in range(p):
                total_s[j] += sums[g, k, j]
                total_q[j] += squares[g, k, j]
        for k in range(n_parts):
            n = number[g, k]
            rest = total - n
            if n == 0 or rest == 0:
                continue
            count += n * rest
            for j in range(p):
                s = sums[g, k, j]
                q = squares[g, k, j]
                lengths = n * (total_q[j] - q) + rest * q - 2.0 * s * (total_s[j] - s)
                out[j] += n * rest * box2[j] - lengths
    return count


def implied_violations(
    x: Array,
    labels: Ints,
    classes: Ints,
    box2: Floats,
    *,
    must_link_weight: float = 1.0,
    cannot_link_weight: float = 1.0,
) -> Violations:
    """Return sums over the pairs implied by partial labels that the labels violate.

    For two groups of rows, ``N Q' + N' Q - 2 S S'`` is the sum of squared differences over all
    pairs of rows of both.  Cost O(n_labeled p + n_classes K p) time and memory.
    """
    used = np.flatnonzero((classes >= 0) & (labels >= 0))
    must, cannot = np.zeros(box2.size), np.zeros(box2.size)
    if used.size == 0:
        return Violations(must, cannot, 0.0, 0.0, 0, 0)
    given, clusters = classes[used], labels[used]
    # Clusters without a labeled row are irrelevant: renumber the others to save memory.
    present = np.bincount(clusters) > 0
    clusters = (np.cumsum(present) - 1)[clusters]
    shape = (int(given.max()) + 1, int(present.sum()))
    cells = np.bincount(given * shape[1] + clusters, minlength=shape[0] * shape[1])
    number = cells.astype(np.int64).reshape(shape)
    if (np.count_nonzero(number, axis=0) <= 1).all() and (
        np.count_nonzero(number, axis=1) <= 1
    ).all():
        # Each class is in its own cluster, so no pair is violated.
        return Violations(must, cannot, 0.0, 0.0, 0, 0)
    origin = _origin(x, used)
    sums, squares = np.zeros((*shape, box2.size)), np.zeros((*shape, box2.size))
    _class_statistics(x, origin, used, given, clusters, sums, squares)
    # Must-links are violated within a class across clusters, and cannot-links within a cluster
    # across classes.
    n_must = _add_across(number, sums, squares, np.zeros(box2.size), must)
    by_cluster = [np.ascontiguousarray(a.swapaxes(0, 1)) for a in (number, sums, squares)]
    n_cannot = _add_across(*by_cluster, box2, cannot)
    # Rounding may give negative sums of squares if all differences are 0.
    must = 0.5 * np.maximum(0.0 - must, 0.0)
    return Violations(
        must_link_weight * must,
        cannot_link_weight * 0.5 * cannot,
        must_link_weight * (n_must // 2),
        cannot_link_weight * (n_cannot // 2),
        n_must // 2,
        n_cannot // 2,
    )


# The ordered pass: constrained rows are assigned one after another (Eq. 16).


class _Pairs(NamedTuple):
    """Listed pairs; the pairs of row i are ``indptr[i]:indptr[i + 1]`` of the other arrays."""

    indptr: Ints
    neighbors: Ints
    costs: Floats
    is_must_link: Bools


class _Statistics(NamedTuple):
    """Number, sum (n_classes + 1, K, q), squared lengths of labeled rows; last class: all."""

    number: Ints
    sums: Floats
    squares: Floats


class _Prices(NamedTuple):
    """The cost of one row in each cluster.

    ``penalties`` (2, K) are the cannot-link costs of joining the cluster (:data:`_REPEL`), and the
    must-link costs of pairs with rows in the cluster (:data:`_ATTRACT`).  ``scores`` (K,) are
    distance plus penalties, and ``dots`` (K,) the row times the sum of the rows of its class in the
    cluster.
    """

    penalties: Floats
    scores: Floats
    dots: Floats


#: Rows of ``penalties``, and numbers of the kinds of listed pairs.
_REPEL, _ATTRACT = 0, 1

# Compiled code counts references to every array that it takes out of a tuple.  This is slow
# compared with the work on one cluster or pair, so inner functions take plain arrays.


@inner()
def _dot(points: Any, row: int, sums: Any, c: int, k: int) -> float:
    """Return ``points[row] . sums[c, k]``, in four sums that processors compute in parallel."""
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
    """Return the sum of squared distances of a point to n others, never negative."""
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
    for j in range(points.shape[1]):
        sums[c, k, j] += sign * points[row, j]
    squares[c, k] += sign * lengths[row]
    number[c, k] += int(sign)
    if number[c, k] == 0:
        # Rounding errors of removed rows must not remain.
        squares[c, k] = 0.0
        for j in range(points.shape[1]):
            sums[c, k, j] = 0.0


@compiled()
def _count_rows(labels, labeled, statistics):
    """Add the labels of all m rows to the statistics, which are 0 before."""
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
    """Return the statistics of the labeled rows; reuse the last ones if no row has moved."""
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
    """Add the costs of row i's listed pairs; return the sum of their must-link costs."""
    total = 0.0
    for e in range(indptr[i], indptr[i + 1]):
        k = labels[neighbors[e]]
        if k < 0:
            continue  # a partner without a label has no effect
        # The kind is an index and not a branch, because processors could not predict the branch.
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
    """Add the implied pairs of a row of class ``c``, 1 each; return the updated ``total``."""
    any_class = number.shape[0] - 1
    for k in range(number.shape[1]):
        same = number[c, k]
        # The row itself is one of the rows of its class in its old cluster.
        partners = same - 1 if k == old else same
        penalties[_ATTRACT, k] += must_weight * partners
        total += must_weight * partners
        penalties[_REPEL, k] += cannot_weight * (number[any_class, k] - same)
    return total


@inner()
def _add_attraction(
    row: int, old: int, total: float, labeled: Any, statistics: Any, prices: Any
) -> float:
    """Add a labeled row's implied must-links by length; return the updated ``total``."""
    penalties, _, dots = prices
    number, sums, squares = statistics
    points, length, c = labeled.points, labeled.lengths[row], labeled.classes[row]
    weight = labeled.must_link_weight
    for k in range(number.shape[1]):
        same = number[c, k]
        # The row itself is one of the rows of its class in its old cluster.
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
    best, lowest = 0, scores[0]
    for k in range(1, scores.size):
        if scores[k] < lowest:
            best, lowest = k, scores[k]
    return best


@inner()
def _score(distances: Any, i: int, k: int, total: float, penalties: Any) -> float:
    """Return distance plus must-link costs to others plus cannot-link costs to cluster k."""
    return distances[i, k] + ((total - penalties[_ATTRACT, k]) + penalties[_REPEL, k])


@inner()
def _lowest_repelled(
    distances: Any, i: int, old: int, total: float, labeled: Any, statistics: Any, prices: Any
) -> int:
    """Return the cluster of the lowest score including implied cannot-links; ties: the first.

    A labeled row usually stays in its old cluster, or joins its class if it has none.  After the
    score of that cluster is computed, most other clusters cost too much even before the rows of
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
    """Assign all rows in turn; ``prices`` is a buffer.  Return the number of changed labels."""
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
                for at in (c, n_classes):  # its class, and all classes
                    if old >= 0:
                        _add_row(points, lengths, row, at, old, -1.0, number, sums, squares)
                    _add_row(points, lengths, row, at, best, 1.0, number, sums, squares)
    return changed


#: Placeholder without labeled rows.
_NO_INTS = np.empty(0, dtype=np.int64)
_NONE_LABELED = Labeled(_NO_INTS, _NO_INTS, np.empty((0, 0)), np.empty(0), 0, 0.0, 0.0, 0.0, False)
_NO_STATISTICS = _Statistics(
    np.zeros((1, 0), dtype=np.int64), np.zeros((1, 0, 0)), np.zeros((1, 0))
)


def ordered_pass(
    distances: Floats,
    labels: Ints,
    indptr: Ints,
    neighbors: Ints,
    costs: Floats,
    is_must_link: Bools,
    implied: ImpliedPairs | None = None,
) -> tuple[Ints, int]:
    """Assign the constrained rows once, one after another (Eq. 16); return labels and changes.

    Row i joins the cluster k with the smallest ``distances[i, k] + penalties``.  A must-link whose
    partner is in another cluster than k adds its cost, and so does a cannot-link whose partner is
    in k.  Every pair of the row counts fully, so the score is the exact change of the objective.
    Ties go to the lowest cluster.  A partner without a label is ignored.  Labels that were changed
    earlier in this pass count; the other rows have their old labels.

    ``distances`` (m, K) are squared, in the weighted space, times the sample weight of the row.
    ``labels`` (m,) are the labels of the last pass, -1 for none; they are not modified.  The pairs
    of row i are the entries ``indptr[i]:indptr[i + 1]`` (2 n_pairs,): each pair is listed for both
    rows.

    Cost O(m K + n_pairs), plus O(n_labeled K q) with ``implied`` (q features of positive weight).
    The statistics of labeled rows are recomputed at the start of each pass, so that rounding errors
    do not accumulate.  After a pass that moved no row, they are reused.
    """
    n_clusters = distances.shape[-1]
    # Compiled code does not check its indices.
    if distances.shape != (labels.size, n_clusters) or labels.max(initial=-1) >= n_clusters:
        raise ValueError(
            "distances must have shape (m, K), with m labels in [-1, K), got shape "
            f"{distances.shape} and {labels.size} labels up to {labels.max(initial=-1)}."
        )
    # Labels of partners are read in random order: small types stay in the processor's cache.
    small = labels.astype(np.int8 if n_clusters <= np.iinfo(np.int8).max else np.int32)
    statistics = _NO_STATISTICS
    labeled = _NONE_LABELED if implied is None else implied.rows
    if implied is not None:
        statistics = _statistics(implied, labels, small, n_clusters)
    pairs = _Pairs(indptr, neighbors, costs, is_must_link)
    prices = _Prices(np.zeros((2, n_clusters)), np.empty(n_clusters), np.zeros(n_clusters))
    changed = _ordered_pass(distances, small, pairs, labeled, statistics, prices)
    if implied is not None:
        implied.kept.clear()
        if not changed:
            # No row was added or removed, so the statistics would be the same if recomputed.
            implied.kept.update(labels=labels.copy(), statistics=statistics)
    return small.astype(np.int64), int(changed)

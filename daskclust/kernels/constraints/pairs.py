"""Pairs of rows, listed or implied by labels: what violations cost, and what labels violate.

Only rows that occur in a pair, or carry a label, interact.  They are gathered
once, renumbered 0..m-1 in the order of their global row numbers, and assigned
one after another (:mod:`daskclust.kernels.constraints.ordered`); everything else is assigned
block by block elsewhere.

Penalties (with weights w of the features and the bounding box's sides Delta):

- violated must-link: ``f = sum_j w_j (x - x')_j^2``,
- violated cannot-link: ``f-bar = sum_j w_j (Delta_j^2 - (x - x')_j^2)``,
- either is 1 with ``penalty="constant"``,

times the weight of the pair.

Explicit pairs come in two forms: a list (``left``, ``right``, ``is_must_link``,
one entry a pair), and compressed rows of the doubled list (``indptr``,
``neighbors``, ... one entry a pair and end), as
:class:`daskclust.constraints.PairwiseConstraints` holds them.

Partial labels imply pairs that are never listed: two labeled rows of one class are must-linked,
two of different classes cannot-linked.  All sums over such pairs follow from the number, the sum
and the sum of squares of the rows of each (class, cluster): O(L K p) for L labeled rows
instead of O(L^2 p).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from daskclust._types import Array, Bools, Floats, Ints
from daskclust.kernels.compiling import compiled
from daskclust.kernels.nearest.implementation import row_distance_observed

Penalty = Literal["distance", "constant"]


def as_rows(x: ArrayLike) -> Array:
    """``x`` as a C-contiguous float32 or float64 matrix; copied only when it is not one."""
    array = np.asarray(x)
    if array.dtype != np.float32:
        array = array.astype(np.float64, copy=False)
    return np.ascontiguousarray(array)


def as_ints(values: ArrayLike) -> Ints:
    return np.ascontiguousarray(values, dtype=np.int64)


def as_floats(values: ArrayLike) -> Floats:
    return np.ascontiguousarray(values, dtype=np.float64)


def as_bools(values: ArrayLike) -> Bools:
    return np.ascontiguousarray(values, dtype=np.bool_)


def check_penalty(penalty: str) -> None:
    if penalty not in ("distance", "constant"):
        raise ValueError(f"penalty={penalty!r}; expected 'distance' or 'constant'.")


@dataclass(frozen=True, eq=False)
class Violations:
    """What a labeling violates, each pair once, times its weight; ``+`` adds sets of pairs.

    ``must_link`` (p,) is ``sum (x - x')_j^2`` over violated must-links, f of Eq. 15 by feature and
    without feature weights; ``cannot_link`` (p,) ``sum (Delta_j^2 - (x - x')_j^2)`` over violated
    cannot-links, f-bar.  A mass is the sum of the weights of the violated pairs.
    """

    must_link: Floats
    cannot_link: Floats
    must_link_mass: float
    cannot_link_mass: float
    n_must_link: int
    n_cannot_link: int

    def __add__(self, other: Violations) -> Violations:
        return Violations(
            self.must_link + other.must_link,
            self.cannot_link + other.cannot_link,
            self.must_link_mass + other.must_link_mass,
            self.cannot_link_mass + other.cannot_link_mass,
            self.n_must_link + other.n_must_link,
            self.n_cannot_link + other.n_cannot_link,
        )

    @property
    def feature_sums(self) -> Floats:
        """The term that Eq. 15 subtracts from gamma, and Eq. 12 adds to the WCSS; shape (p,)."""
        return self.must_link + self.cannot_link

    def objective(self, weights: ArrayLike, *, penalty: Penalty = "distance") -> float:
        """Penalty part of the objective (Eq. 8, 10, 13) under feature weights (p,)."""
        check_penalty(penalty)
        if penalty == "constant":
            return self.must_link_mass + self.cannot_link_mass
        return float(np.sum(as_floats(weights) * self.feature_sums))


@compiled()
def _pair_lengths(x, wide, left, right, weights, out):
    for e in range(left.size):
        out[e] = row_distance_observed(x, left[e], wide, right[e], weights, 1.0, wide)


def pair_lengths(x: ArrayLike, left: ArrayLike, right: ArrayLike, weights: ArrayLike) -> Floats:
    """Squared distance of each pair over what both observe, ``sum_j w_j (x_l - x_r)_j^2``.

    To the last bit those of :func:`daskclust.kernels.nearest.assign.direct_distances`: a row is as
    far from its partner as from a center that lies on it.
    """
    left, right = as_ints(left), as_ints(right)
    rows = as_rows(x)
    out = np.empty(left.size)
    if not out.size:
        return out
    _pair_lengths(rows, as_floats(rows), left, right, as_floats(weights), out)
    return out


def pair_costs(
    lengths: ArrayLike,
    is_must_link: ArrayLike,
    pair_weights: ArrayLike,
    box_length: float | Floats,
    *,
    penalty: Penalty = "distance",
) -> Floats:
    """Price of violating each pair (f and f-bar of Eq. 13, times the weight of the pair).

    ``lengths`` are those of :func:`pair_lengths`, not used with constant penalties.  ``box_length``
    is ``sum_j w_j Delta_j^2``, the weighted squared diagonal of the bounding box; of each pair,
    over the features that both rows observe, where values are missing.
    """
    check_penalty(penalty)
    weights = as_floats(pair_weights)
    if penalty == "constant":
        return weights.copy()
    lengths = as_floats(lengths)
    return weights * np.where(as_bools(is_must_link), lengths, box_length - lengths)


def violated_pairs(
    labels: ArrayLike, left: ArrayLike, right: ArrayLike, is_must_link: ArrayLike
) -> Bools:
    """Which pairs the labels violate; a pair with an unlabeled end (-1) is not violated."""
    labels = np.asarray(labels)
    a, b = labels[np.asarray(left)], labels[np.asarray(right)]
    violated: Bools = ((a == b) != as_bools(is_must_link)) & (a >= 0) & (b >= 0)
    return violated


@compiled()
def _explicit_sums(x, left, right, is_must_link, pair_weights, violated, box2, must, cannot):
    for e in range(left.size):
        if not violated[e]:
            continue
        i = left[e]
        k = right[e]
        b = pair_weights[e]
        if is_must_link[e]:
            for j in range(box2.size):
                d = np.float64(x[i, j]) - np.float64(x[k, j])
                if d == d:  # over what both rows observe
                    must[j] += b * (d * d)
        else:
            for j in range(box2.size):
                d = np.float64(x[i, j]) - np.float64(x[k, j])
                if d == d:
                    cannot[j] += b * (box2[j] - d * d)


def explicit_violations(
    x: ArrayLike,
    labels: ArrayLike,
    left: ArrayLike,
    right: ArrayLike,
    is_must_link: ArrayLike,
    pair_weights: ArrayLike,
    box2: ArrayLike,
) -> Violations:
    """Sum up what the labels violate among explicit pairs.

    Rows are those of the ordered pass, NaN where a value is missing; a row with label -1 violates
    nothing.  ``box2`` are the squared sides of the bounding box, ``(max_j - min_j)^2``.
    Cost O(n_pairs + n_violated p).
    """
    left, right = as_ints(left), as_ints(right)
    must_link, b = as_bools(is_must_link), as_floats(pair_weights)
    box = as_floats(box2)
    violated = violated_pairs(labels, left, right, must_link)
    must, cannot = np.zeros(box.size), np.zeros(box.size)
    _explicit_sums(as_rows(x), left, right, must_link, b, violated, box, must, cannot)
    broken_must, broken_cannot = violated & must_link, violated & ~must_link
    return Violations(
        must,
        cannot,
        float(b[broken_must].sum()),
        float(b[broken_cannot].sum()),
        int(np.count_nonzero(broken_must)),
        int(np.count_nonzero(broken_cannot)),
    )


#: Rows among which a central one is looked for, about.
_ORIGIN_ROWS = 1000


class Labeled(NamedTuple):
    """Labeled rows under one set of feature weights.

    ``slot`` (m,) is the number of each row among the labeled ones, -1 without a class; ``classes``
    (n_labeled,) lie in [0, n_classes).  ``points`` (n_labeled, q) are the labeled rows, shifted,
    times the root of the feature weights, of the q features of positive weight only, none with
    constant penalties; ``lengths`` their squared lengths.  ``box_length`` is ``sum_j w_j
    Delta_j^2``.  Every implied pair has the weight of its kind; ``constant``: penalty 1 a pair.
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
    """What :func:`implied_pairs` prepares; ``kept`` is what the next ordered pass may use again."""

    rows: Labeled
    kept: dict[str, Any] = field(default_factory=dict, repr=False)


def _origin(x: Array, rows: Ints) -> Floats:
    """Return a row nearest to the mean, a central origin that keeps integer data integer."""
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
    x: ArrayLike,
    classes: ArrayLike,
    weights: ArrayLike,
    box2: ArrayLike,
    *,
    must_link_weight: float = 1.0,
    cannot_link_weight: float = 1.0,
    penalty: Penalty = "distance",
) -> ImpliedPairs:
    """Prepare the pairs implied by partial labels, without listing them.

    With N, S and Q the number, sum and sum of squared lengths of
    the labeled rows of one class in one cluster (weighted space, shifted),
    the squared distances of a row y to all of them add up to
    ``N |y|^2 - 2 y.S + Q``.  A pass over L labeled rows therefore costs
    O(L K q) instead of O(L^2 q).

    Classes are -1 for rows without a label; ``box2`` are the squared sides of the bounding box of
    all data.  Cost O(m p) time; O(n_labeled q) memory here and O(n_classes K q) in a pass.
    """
    check_penalty(penalty)
    rows = as_rows(x)
    given = as_ints(classes)
    w = as_floats(weights)
    labeled = np.flatnonzero(given >= 0)
    slot = np.full(given.size, -1, dtype=np.int64)
    slot[labeled] = np.arange(labeled.size)
    active = np.flatnonzero(w > 0) if penalty == "distance" and labeled.size else np.arange(0)
    points, lengths = np.empty((labeled.size, active.size)), np.zeros(labeled.size)
    if active.size:
        # |y|^2 - 2 y.y' + |y'|^2 cancels for data far from the origin.
        origin = _origin(rows, labeled)
        _fill_points(rows, labeled, origin, active, np.sqrt(w[active]), points, lengths)
    return ImpliedPairs(
        Labeled(
            slot=slot,
            classes=given[labeled],
            points=points,
            lengths=lengths,
            n_classes=int(given.max(initial=-1)) + 1,
            box_length=float(np.sum(w * as_floats(box2))),
            must_link_weight=float(must_link_weight),
            cannot_link_weight=float(cannot_link_weight),
            constant=penalty == "constant",
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
    """Add, for the rows of one group in two parts, what their squared differences lack to a box.

    By feature, for groups along the first axis and parts along the second.  Each pair of rows of
    two parts is met twice; twice their number is returned.
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
    x: ArrayLike,
    labels: ArrayLike,
    classes: ArrayLike,
    box2: ArrayLike,
    *,
    must_link_weight: float = 1.0,
    cannot_link_weight: float = 1.0,
) -> Violations:
    """Sum up what the labels violate among the pairs that partial labels imply.

    The closed form of :func:`implied_pairs`, by feature: of two groups of rows,
    ``N Q' + N' Q - 2 S S'`` is the sum of squared differences over all pairs
    across.  Equals :func:`explicit_violations` of the listed pairs to rounding.
    Cost O(n_labeled p + n_classes K p) time and memory.
    """
    given, clusters = as_ints(classes), as_ints(labels)
    box = as_floats(box2)
    used = np.flatnonzero((given >= 0) & (clusters >= 0))
    must, cannot = np.zeros(box.size), np.zeros(box.size)
    if used.size == 0:
        return Violations(must, cannot, 0.0, 0.0, 0, 0)
    given = given[used]
    # Clusters without a labeled row take part in nothing: renumber, so that memory is small.
    clusters = clusters[used]
    present = np.bincount(clusters) > 0
    clusters = (np.cumsum(present) - 1)[clusters]
    shape = (int(given.max()) + 1, int(present.sum()))
    cells = np.bincount(given * shape[1] + clusters, minlength=shape[0] * shape[1])
    number = cells.astype(np.int64).reshape(shape)
    if (np.count_nonzero(number, axis=0) <= 1).all() and (
        np.count_nonzero(number, axis=1) <= 1
    ).all():
        # Every class in a cluster of its own: nothing is violated.
        return Violations(must, cannot, 0.0, 0.0, 0, 0)
    rows = as_rows(x)
    origin = _origin(rows, used)
    sums, squares = np.zeros((*shape, box.size)), np.zeros((*shape, box.size))
    _class_statistics(rows, origin, used, given, as_ints(clusters), sums, squares)
    # Must-links are violated within a class across clusters, cannot-links the other way round.
    n_must = _add_across(number, sums, squares, np.zeros(box.size), must)
    by_cluster = [np.ascontiguousarray(a.swapaxes(0, 1)) for a in (number, sums, squares)]
    n_cannot = _add_across(*by_cluster, box, cannot)
    # Sums of squares are not negative; where all differences are 0, rounding might say so.
    must = 0.5 * np.maximum(0.0 - must, 0.0)
    return Violations(
        must_link_weight * must,
        cannot_link_weight * 0.5 * cannot,
        must_link_weight * (n_must // 2),
        cannot_link_weight * (n_cannot // 2),
        n_must // 2,
        n_cannot // 2,
    )

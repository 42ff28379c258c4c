"""Pairwise constraints on one machine: the ordered pass and what its labels violate.

Only rows that occur in a pair, or carry a label, interact.  They are gathered
once, renumbered 0..m-1 in the order of their global row numbers, and assigned
here one after another (Eq. 16 of the PCSKM paper, read as the published program
does); everything else is assigned block by block elsewhere.

Penalties (with weights w of the features and the bounding box's sides Delta):

- violated must-link: ``f = sum_j w_j (x - x')_j^2``,
- violated cannot-link: ``f-bar = sum_j w_j (Delta_j^2 - (x - x')_j^2)``,
- either is 1 with ``penalty="constant"``,

times the weight of the pair.

Partial labels imply a pair for every two labelled rows.  These are never listed:
the penalties of a row against all labelled rows follow from the number, the sum
and the sum of squares of the rows of each (class, cluster), see
:func:`implied_pairs`.

Explicit pairs come in two forms: a list (``left``, ``right``, ``is_must_link``,
one entry a pair), and compressed rows of the doubled list (``indptr``,
``neighbours``, ... one entry a pair and end), as
:class:`daskclust.constraints.PairwiseConstraints` holds them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numba import njit
from numpy.typing import ArrayLike, NDArray

from daskclust.kernels._rows import row_distance_weighted

__all__ = [
    "ImpliedPairs",
    "Penalty",
    "Violations",
    "explicit_violations",
    "implied_pairs",
    "implied_violations",
    "ordered_pass",
    "pair_costs",
    "pair_lengths",
    "violated_pairs",
]

Penalty = Literal["distance", "constant"]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


def _rows(x: ArrayLike) -> NDArray[Any]:
    """``x`` as a C-contiguous float32 or float64 matrix; copied only when it is not one."""
    array = np.asarray(x)
    if array.dtype != np.float32:
        array = array.astype(np.float64, copy=False)
    return np.ascontiguousarray(array)


def _ints(values: ArrayLike) -> Ints:
    return np.ascontiguousarray(values, dtype=np.int64)


def _floats(values: ArrayLike) -> Floats:
    return np.ascontiguousarray(values, dtype=np.float64)


def _bools(values: ArrayLike) -> Bools:
    return np.ascontiguousarray(values, dtype=np.bool_)


def _check_penalty(penalty: str) -> None:
    if penalty not in ("distance", "constant"):
        raise ValueError(f"penalty={penalty!r}; expected 'distance' or 'constant'.")


# --- explicit pairs ------------------------------------------------------------------------


@njit(nogil=True, cache=True)
def _pair_lengths(x: Any, wide: Any, left: Any, right: Any, weights: Any, out: Any) -> None:
    for e in range(left.size):
        out[e] = row_distance_weighted(x, left[e], wide, right[e], weights, 1.0, wide)


def pair_lengths(x: ArrayLike, left: ArrayLike, right: ArrayLike, weights: ArrayLike) -> Floats:
    """Weighted squared distance of each pair, ``sum_j w_j (x_l - x_r)_j^2``.

    Parameters
    ----------
    x : float array of shape (m, p)
        Rows.
    left, right : int array of shape (n_pairs,)
        Row numbers of the two ends.
    weights : array of shape (p,)
        Feature weights, ones for plain squared distances.

    Returns
    -------
    float64 array of shape (n_pairs,)

    Notes
    -----
    Cost O(n_pairs p) time; O(m p) memory for float32 rows, else none beyond the
    result.  Differences are taken directly, in float64, and summed in the order of
    :func:`daskclust.kernels.assign.direct_distances`: a row is to the last bit as
    far from its partner as from a centre that lies on it, so that such ties are
    ties.
    """
    left, right = _ints(left), _ints(right)
    rows = _rows(x)
    out = np.empty(left.size)
    _pair_lengths(rows, _floats(rows), left, right, _floats(weights), out)
    return out


def pair_costs(
    lengths: ArrayLike,
    is_must_link: ArrayLike,
    pair_weights: ArrayLike,
    box_length: float,
    *,
    penalty: Penalty = "distance",
) -> Floats:
    """Price of violating each pair (f and f-bar of Eq. 13, times the weight of the pair).

    Parameters
    ----------
    lengths : array of shape (n_pairs,)
        Weighted squared distances of the pairs (:func:`pair_lengths`).
    is_must_link : bool array of shape (n_pairs,)
        True for must-links, False for cannot-links.
    pair_weights : array of shape (n_pairs,)
        Weight of each pair.
    box_length : float
        ``sum_j w_j Delta_j^2``, the weighted squared diagonal of the bounding box.
    penalty : {"distance", "constant"}
        With ``"constant"`` the price is the pair's weight; `lengths` is not used.

    Returns
    -------
    float64 array of shape (n_pairs,)
    """
    _check_penalty(penalty)
    weights = _floats(pair_weights)
    if penalty == "constant":
        return weights.copy()
    lengths = _floats(lengths)
    return weights * np.where(_bools(is_must_link), lengths, box_length - lengths)


def violated_pairs(
    labels: ArrayLike, left: ArrayLike, right: ArrayLike, is_must_link: ArrayLike
) -> Bools:
    """Which pairs the labels violate; a pair with an unlabelled end (-1) is not violated.

    Parameters
    ----------
    labels : int array of shape (m,)
        Cluster of each row, -1 = none.
    left, right : int array of shape (n_pairs,)
        Row numbers of the two ends.
    is_must_link : bool array of shape (n_pairs,)
        True for must-links, False for cannot-links.

    Returns
    -------
    bool array of shape (n_pairs,)
    """
    labels = np.asarray(labels)
    a, b = labels[np.asarray(left)], labels[np.asarray(right)]
    violated: Bools = ((a == b) != _bools(is_must_link)) & (a >= 0) & (b >= 0)
    return violated


# --- pairs implied by labels ---------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ImpliedPairs:
    """Labelled rows, prepared for ordered passes under one set of feature weights.

    Made by :func:`implied_pairs`; valid for all passes between two changes of
    the feature weights.

    Attributes
    ----------
    slot : int64 array of shape (m,)
        Number of the row among the labelled rows, -1 for rows without a class.
    classes : int64 array of shape (n_labelled,)
        Class 0..n_classes-1 of each labelled row.
    points : float64 array of shape (n_labelled, q)
        Labelled rows, shifted, times the root of the feature weights; the q
        features of positive weight only, and none with constant penalties.
    n_classes : int
        Number of classes.
    box_length : float
        ``sum_j w_j Delta_j^2``.
    must_link_weight, cannot_link_weight : float
        Weight of every implied pair.
    constant : bool
        True for penalty 1 a pair, whatever its length.
    """

    slot: Ints
    classes: Ints
    points: Floats
    n_classes: int
    box_length: float
    must_link_weight: float
    cannot_link_weight: float
    constant: bool


def _origin(x: NDArray[Any]) -> Floats:
    """Return the row nearest to the mean, a central origin that keeps integer data integer."""
    mean = x.mean(axis=0, dtype=np.float64)
    distances = np.sum((x - mean) ** 2, axis=1)
    origin: Floats = x[int(np.argmin(distances))].astype(np.float64)
    return origin


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

    Two labelled rows of one class are must-linked, two of different classes
    cannot-linked.  With N, S and Q the number, sum and sum of squared lengths of
    the labelled rows of one class in one cluster (weighted space, shifted),
    the squared distances of a row y to all of them add up to
    ``N |y|^2 - 2 y.S + Q``.  A pass over L labelled rows therefore costs
    O(L K q) instead of O(L^2 q).

    Parameters
    ----------
    x : float array of shape (m, p)
        Rows of the ordered pass.
    classes : int array of shape (m,)
        Class 0, 1, ... of each row, -1 for rows without a label.
    weights : array of shape (p,)
        Feature weights.
    box2 : array of shape (p,)
        Squared sides of the bounding box of all data, ``(max_j - min_j)^2``.
    must_link_weight, cannot_link_weight : float
        Weight of every implied pair.
    penalty : {"distance", "constant"}
        See the module's description.

    Returns
    -------
    ImpliedPairs

    Notes
    -----
    Cost O(m p) time; O(n_labelled q) memory here and O(n_classes K q) in a pass.
    """
    _check_penalty(penalty)
    rows = _rows(x)
    given = _ints(classes)
    w = _floats(weights)
    labelled = np.flatnonzero(given >= 0)
    slot = np.full(given.size, -1, dtype=np.int64)
    slot[labelled] = np.arange(labelled.size)
    active = np.flatnonzero(w > 0) if penalty == "distance" and labelled.size else np.arange(0)
    if active.size:
        points = rows[labelled].astype(np.float64)
        # |y|^2 - 2 y.y' + |y'|^2 cancels for data far from the origin.
        points = np.ascontiguousarray((points - _origin(points))[:, active] * np.sqrt(w[active]))
    else:
        points = np.empty((labelled.size, 0))
    return ImpliedPairs(
        slot=slot,
        classes=given[labelled],
        points=points,
        n_classes=int(given.max(initial=-1)) + 1,
        box_length=float(np.sum(w * _floats(box2))),
        must_link_weight=float(must_link_weight),
        cannot_link_weight=float(cannot_link_weight),
        constant=penalty == "constant",
    )


@njit(nogil=True, cache=True)
def _add_row(
    points: Any, row: int, c: int, k: int, sign: float, number: Any, sums: Any, squares: Any
) -> None:
    """Add (sign 1) or take out (sign -1) a labelled row of class ``c`` in cluster ``k``."""
    q = points.shape[1]
    length = 0.0
    for j in range(q):
        sums[c, k, j] += sign * points[row, j]
        length += points[row, j] * points[row, j]
    squares[c, k] += sign * length
    number[c, k] += int(sign)
    if number[c, k] == 0:
        # Rounding of the taken-out rows must not outlive them.
        squares[c, k] = 0.0
        for j in range(q):
            sums[c, k, j] = 0.0


@njit(nogil=True, cache=True)
def _ordered_pass(
    distances: Any,
    labels: Any,
    indptr: Any,
    neighbours: Any,
    costs: Any,
    is_must_link: Any,
    slot: Any,
    classes: Any,
    points: Any,
    n_classes: int,
    box_length: float,
    must_weight: float,
    cannot_weight: float,
    constant: bool,
) -> int:
    m, n_clusters = distances.shape
    q = points.shape[1]
    # Per cluster, for one row: must-link cost towards it, and the price of joining it.
    attract = np.zeros(n_clusters)
    repel = np.zeros(n_clusters)
    # Row n_classes holds the sums over all classes.
    number = np.zeros((n_classes + 1, n_clusters), dtype=np.int64)
    squares = np.zeros((n_classes + 1, n_clusters))
    sums = np.zeros((n_classes + 1, n_clusters, q))
    any_class = n_classes
    if n_classes > 0:
        for i in range(m):
            if slot[i] >= 0 and labels[i] >= 0:
                s = slot[i]
                _add_row(points, s, classes[s], labels[i], 1.0, number, sums, squares)
                _add_row(points, s, any_class, labels[i], 1.0, number, sums, squares)

    changed = 0
    for i in range(m):
        old = labels[i]
        row = slot[i] if n_classes > 0 else -1
        has_pairs = indptr[i + 1] > indptr[i] or row >= 0
        if has_pairs:
            attract[:] = 0.0
            repel[:] = 0.0
        for e in range(indptr[i], indptr[i + 1]):
            k = labels[neighbours[e]]
            if k < 0:
                continue  # a partner without a label has no say
            if is_must_link[e]:
                attract[k] += costs[e]
            else:
                repel[k] += costs[e]
        if row >= 0:
            c = classes[row]
            length = 0.0
            for j in range(q):
                length += points[row, j] * points[row, j]
            for k in range(n_clusters):
                same = number[c, k]
                other = number[any_class, k] - same
                if constant:
                    # The row itself is among the rows of its class in its old cluster.
                    attract[k] += must_weight * (same - 1 if k == old else same)
                    repel[k] += cannot_weight * other
                    continue
                if same + other == 0:
                    continue
                dot_same = 0.0
                dot_all = 0.0
                for j in range(q):
                    dot_same += points[row, j] * sums[c, k, j]
                    dot_all += points[row, j] * sums[any_class, k, j]
                near = 0.0
                if same > (1 if k == old else 0):
                    # The row itself, if it is among them, contributes 0.
                    near = same * length - 2.0 * dot_same + squares[c, k]
                    attract[k] += must_weight * max(near, 0.0)
                if other > 0:
                    far = (
                        other * length
                        - 2.0 * (dot_all - dot_same)
                        + (squares[any_class, k] - squares[c, k])
                    )
                    repel[k] += cannot_weight * (other * box_length - max(far, 0.0))

        best = 0
        if has_pairs:
            total = 0.0
            for k in range(n_clusters):
                total += attract[k]
            lowest = distances[i, 0] + ((total - attract[0]) + repel[0])
            for k in range(1, n_clusters):
                score = distances[i, k] + ((total - attract[k]) + repel[k])
                if score < lowest:
                    lowest = score
                    best = k
        else:
            lowest = distances[i, 0]
            for k in range(1, n_clusters):
                if distances[i, k] < lowest:
                    lowest = distances[i, k]
                    best = k

        if best != old:
            changed += 1
            labels[i] = best
            if row >= 0:
                c = classes[row]
                if old >= 0:
                    _add_row(points, row, c, old, -1.0, number, sums, squares)
                    _add_row(points, row, any_class, old, -1.0, number, sums, squares)
                _add_row(points, row, c, best, 1.0, number, sums, squares)
                _add_row(points, row, any_class, best, 1.0, number, sums, squares)
    return changed


_NO_INTS = np.empty(0, dtype=np.int64)
_NO_POINTS = np.empty((0, 0))


def ordered_pass(
    distances: ArrayLike,
    labels: ArrayLike,
    indptr: ArrayLike,
    neighbours: ArrayLike,
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
        Squared distances to the centres, in the weighted space (times the row's
        sample weight, if there is one).
    labels : int array of shape (m,)
        Labels of the pass before, -1 = none yet.  Not changed.
    indptr : int array of shape (m + 1,)
        Row i's pairs are the entries ``indptr[i]:indptr[i + 1]`` of the next three;
        each pair is entered at both its ends.
    neighbours : int array of shape (2 n_pairs,)
        The other end.
    costs : array of shape (2 n_pairs,)
        Price of a violation (:func:`pair_costs`).
    is_must_link : bool array of shape (2 n_pairs,)
        True for must-links, False for cannot-links.
    implied : ImpliedPairs, optional
        Labelled rows among the m, whose pairs are not listed; both sorts of
        pairs may occur together.

    Returns
    -------
    labels : int64 array of shape (m,)
        The new labels, all >= 0.
    n_changed : int
        Rows whose label differs from the one handed in; 0 = converged.

    Notes
    -----
    Cost O(m K + n_pairs), plus O(n_labelled K q) with `implied` (q = features of
    positive weight).  Serial by nature; releases the GIL.

    The statistics of labelled rows are rebuilt from the labels at the start of
    each pass, so rounding does not build up.
    """
    d = _floats(distances)
    new = np.array(labels, dtype=np.int64)
    # Compiled code does not check its indices.
    if d.ndim != 2 or d.shape[0] != new.size or new.max(initial=-1) >= d.shape[1]:
        raise ValueError(
            f"distances has shape {d.shape} and labels {new.size} entries of at most "
            f"{new.max(initial=-1)}; expected distances (m, K) and m labels in [-1, K)."
        )
    # One call with every argument positional: Numba compiles a single version.
    if implied is None:
        tail: tuple[Any, ...] = (_NO_INTS, _NO_INTS, _NO_POINTS, 0, 0.0, 0.0, 0.0, False)
    else:
        tail = (
            implied.slot,
            implied.classes,
            implied.points,
            implied.n_classes,
            implied.box_length,
            implied.must_link_weight,
            implied.cannot_link_weight,
            implied.constant,
        )
    changed = _ordered_pass(
        d,
        new,
        _ints(indptr),
        _ints(neighbours),
        _floats(costs),
        _bools(is_must_link),
        *tail,
    )
    return new, int(changed)


# --- what the labels violate ---------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Violations:
    """What a labelling violates, each violated pair once, times its weight.

    Totals of explicit and implied pairs are added with ``+``.

    Attributes
    ----------
    must_link : float64 array of shape (p,)
        ``sum (x - x')_j^2`` over violated must-links: f of Eq. 15, by feature and
        without feature weights.
    cannot_link : float64 array of shape (p,)
        ``sum (Delta_j^2 - (x - x')_j^2)`` over violated cannot-links: f-bar.
    must_link_mass, cannot_link_mass : float
        Sum of the weights of the violated pairs.
    n_must_link, n_cannot_link : int
        Number of violated pairs.
    """

    must_link: Floats
    cannot_link: Floats
    must_link_mass: float
    cannot_link_mass: float
    n_must_link: int
    n_cannot_link: int

    def __add__(self, other: Violations) -> Violations:
        """Totals over both sets of pairs."""
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
        """What Eq. 15 subtracts from gamma, and Eq. 12 adds to the WCSS; shape (p,)."""
        return self.must_link + self.cannot_link

    def objective(self, weights: ArrayLike, *, penalty: Penalty = "distance") -> float:
        """Penalty part of the objective (Eq. 8, 10, 13) under feature weights (p,)."""
        _check_penalty(penalty)
        if penalty == "constant":
            return self.must_link_mass + self.cannot_link_mass
        return float(np.sum(_floats(weights) * self.feature_sums))


@njit(nogil=True, cache=True)
def _explicit_sums(
    x: Any,
    left: Any,
    right: Any,
    is_must_link: Any,
    pair_weights: Any,
    violated: Any,
    box2: Any,
    must: Any,
    cannot: Any,
) -> None:
    for e in range(left.size):
        if not violated[e]:
            continue
        i = left[e]
        k = right[e]
        b = pair_weights[e]
        if is_must_link[e]:
            for j in range(box2.size):
                d = np.float64(x[i, j]) - np.float64(x[k, j])
                must[j] += b * (d * d)
        else:
            for j in range(box2.size):
                d = np.float64(x[i, j]) - np.float64(x[k, j])
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

    Parameters
    ----------
    x : float array of shape (m, p)
        Rows of the ordered pass.
    labels : int array of shape (m,)
        Cluster of each row, -1 = none (violates nothing).
    left, right : int array of shape (n_pairs,)
        Row numbers of the two ends.
    is_must_link : bool array of shape (n_pairs,)
        True for must-links, False for cannot-links.
    pair_weights : array of shape (n_pairs,)
        Weight of each pair.
    box2 : array of shape (p,)
        Squared sides of the bounding box, ``(max_j - min_j)^2``.

    Returns
    -------
    Violations

    Notes
    -----
    Cost O(n_pairs + n_violated p).
    """
    left, right = _ints(left), _ints(right)
    must_link, b = _bools(is_must_link), _floats(pair_weights)
    box = _floats(box2)
    violated = violated_pairs(labels, left, right, must_link)
    must, cannot = np.zeros(box.size), np.zeros(box.size)
    _explicit_sums(_rows(x), left, right, must_link, b, violated, box, must, cannot)
    broken_must, broken_cannot = violated & must_link, violated & ~must_link
    return Violations(
        must,
        cannot,
        float(b[broken_must].sum()),
        float(b[broken_cannot].sum()),
        int(np.count_nonzero(broken_must)),
        int(np.count_nonzero(broken_cannot)),
    )


@njit(nogil=True, cache=True)
def _class_statistics(
    points: Any, classes: Any, labels: Any, number: Any, sums: Any, squares: Any
) -> None:
    for i in range(classes.size):
        c = classes[i]
        k = labels[i]
        number[c, k] += 1
        for j in range(points.shape[1]):
            value = points[i, j]
            sums[c, k, j] += value
            squares[c, k, j] += value * value


@njit(nogil=True, cache=True)
def _implied_sums(
    number: Any,
    sums: Any,
    squares: Any,
    box2: Any,
    must: Any,
    cannot: Any,
) -> tuple[int, int]:
    """Twice the violated sums, and twice the numbers of violated pairs."""
    n_classes, n_clusters, p = sums.shape
    n_must = 0
    n_cannot = 0
    total_s = np.empty(p)
    total_q = np.empty(p)
    # Must-links: the rows of one class in one cluster against the rest of the class.
    for c in range(n_classes):
        total = 0
        total_s[:] = 0.0
        total_q[:] = 0.0
        for k in range(n_clusters):
            total += number[c, k]
            for j in range(p):
                total_s[j] += sums[c, k, j]
                total_q[j] += squares[c, k, j]
        for k in range(n_clusters):
            n = number[c, k]
            rest = total - n
            if n == 0 or rest == 0:
                continue
            n_must += n * rest
            for j in range(p):
                s = sums[c, k, j]
                q = squares[c, k, j]
                must[j] += n * (total_q[j] - q) + rest * q - 2.0 * s * (total_s[j] - s)
    # Cannot-links: the same, of one cluster against the other classes in the cluster.
    for k in range(n_clusters):
        total = 0
        total_s[:] = 0.0
        total_q[:] = 0.0
        for c in range(n_classes):
            total += number[c, k]
            for j in range(p):
                total_s[j] += sums[c, k, j]
                total_q[j] += squares[c, k, j]
        for c in range(n_classes):
            n = number[c, k]
            rest = total - n
            if n == 0 or rest == 0:
                continue
            n_cannot += n * rest
            for j in range(p):
                s = sums[c, k, j]
                q = squares[c, k, j]
                lengths = n * (total_q[j] - q) + rest * q - 2.0 * s * (total_s[j] - s)
                cannot[j] += n * rest * box2[j] - lengths
    return n_must, n_cannot


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

    Parameters
    ----------
    x : float array of shape (m, p)
        Rows of the ordered pass.
    labels : int array of shape (m,)
        Cluster of each row, -1 = none (violates nothing).
    classes : int array of shape (m,)
        Class 0, 1, ... of each row, -1 for rows without one.
    box2 : array of shape (p,)
        Squared sides of the bounding box, ``(max_j - min_j)^2``.
    must_link_weight, cannot_link_weight : float
        Weight of every implied pair.

    Returns
    -------
    Violations

    Notes
    -----
    Cost O(n_labelled p + n_classes K p) time and memory.
    """
    given, clusters = _ints(classes), _ints(labels)
    box = _floats(box2)
    used = np.flatnonzero((given >= 0) & (clusters >= 0))
    must, cannot = np.zeros(box.size), np.zeros(box.size)
    if used.size == 0:
        return Violations(must, cannot, 0.0, 0.0, 0, 0)
    points = _rows(x)[used].astype(np.float64)
    points -= _origin(points)
    # Clusters without a labelled row take part in nothing: renumber, so that memory is small.
    _, clusters = np.unique(clusters[used], return_inverse=True)
    shape = (int(given.max()) + 1, int(clusters.max()) + 1)
    number = np.zeros(shape, dtype=np.int64)
    sums, squares = np.zeros((*shape, box.size)), np.zeros((*shape, box.size))
    _class_statistics(points, given[used], _ints(clusters), number, sums, squares)
    n_must, n_cannot = _implied_sums(number, sums, squares, box, must, cannot)
    # Sums of squares are not negative; where all differences are 0, rounding might say so.
    must = 0.5 * np.maximum(must, 0.0)
    return Violations(
        must_link_weight * must,
        cannot_link_weight * 0.5 * cannot,
        must_link_weight * (n_must // 2),
        cannot_link_weight * (n_cannot // 2),
        n_must // 2,
        n_cannot // 2,
    )

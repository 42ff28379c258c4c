"""Pairs that are listed: their lengths and prices, and what labels violate among them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from daskclust.kernels.compiling import compiled
from daskclust.kernels.constraints._arrays import (
    Bools,
    Floats,
    Penalty,
    Violations,
    as_bools,
    as_floats,
    as_ints,
    as_rows,
    check_penalty,
)
from daskclust.kernels.nearest.implementation import row_distance_weighted

__all__ = ["explicit_violations", "pair_costs", "pair_lengths", "violated_pairs"]


@compiled()
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
    :func:`daskclust.kernels.nearest.assign.direct_distances`: a row is to the last bit as
    far from its partner as from a center that lies on it, so that such ties are
    ties.
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
    check_penalty(penalty)
    weights = as_floats(pair_weights)
    if penalty == "constant":
        return weights.copy()
    lengths = as_floats(lengths)
    return weights * np.where(as_bools(is_must_link), lengths, box_length - lengths)


def violated_pairs(
    labels: ArrayLike, left: ArrayLike, right: ArrayLike, is_must_link: ArrayLike
) -> Bools:
    """Which pairs the labels violate; a pair with an unlabeled end (-1) is not violated.

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
    violated: Bools = ((a == b) != as_bools(is_must_link)) & (a >= 0) & (b >= 0)
    return violated


@compiled()
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

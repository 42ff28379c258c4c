"""Pairs of rows that may miss values: their lengths, and those that labels imply, listed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daskclust.constraints import PairwiseConstraints
from daskclust.exceptions import ConstraintError
from daskclust.kernels.constraints import pair_lengths
from daskclust.kernels.nearest.observed import incomplete_rows
from daskclust.kernels.nearest.observed_few import observed_pair_boxes, observed_pair_lengths

__all__ = ["ListedPairs", "box_of_pairs", "lengths_of_pairs", "listed_pairs"]

Float = NDArray[np.float64]
Ints = NDArray[np.int64]

#: Labeled rows whose pairs may be listed: some two million of them.
_LISTED_ROWS = 2000


@dataclass(frozen=True, eq=False)
class ListedPairs:
    """Explicit pairs, as :class:`PairwiseConstraints` has them; see there."""

    pair_left: Ints
    pair_right: Ints
    pair_is_must_link: NDArray[np.bool_]
    pair_weight: Float
    indptr: Ints
    neighbors: Ints
    pair_index: Ints
    is_must_link: NDArray[np.bool_]
    n_classes: int


def lengths_of_pairs(x: NDArray[Any], left: Ints, right: Ints, weights: Float) -> Float:
    """Weighted squared distance of each pair, over what both rows observe."""
    if incomplete_rows(x).any():
        return observed_pair_lengths(x, left, right, weights)
    return pair_lengths(x, left, right, weights)


def box_of_pairs(x: NDArray[Any], left: Ints, right: Ints, sides: Float) -> float | Float:
    """Sum of the sides; of each pair over what both rows observe, where any misses a value."""
    if incomplete_rows(x).any():
        return observed_pair_boxes(x, left, right, sides)
    return float(sides.sum())


def listed_pairs(c: PairwiseConstraints, x: NDArray[Any]) -> PairwiseConstraints | ListedPairs:
    """Return the constraints, with the pairs that labels imply listed where rows miss values.

    The sums by class and cluster that stand for implied pairs want complete rows.

    Raises
    ------
    ConstraintError
        For more than some 2000 labeled rows among which some miss values.
    """
    labeled = np.flatnonzero(c.classes >= 0)
    if not len(labeled) or not incomplete_rows(x[labeled]).any():
        return c
    if len(labeled) > _LISTED_ROWS:
        raise ConstraintError(
            f"y has {len(labeled)} labels, and some of their rows miss values: their pairs are "
            f"listed, for at most {_LISTED_ROWS} labels. Use fewer labels, SemiSupervisedKMeans, "
            "or complete labeled rows."
        )
    a, b = np.triu_indices(len(labeled), 1)
    same = c.classes[labeled[a]] == c.classes[labeled[b]]
    weight = np.where(same, c.implied_must_link_weight, c.implied_cannot_link_weight)
    left = np.concatenate([c.pair_left, labeled[a]])
    right = np.concatenate([c.pair_right, labeled[b]])
    must = np.concatenate([c.pair_is_must_link, same])
    weight = np.concatenate([c.pair_weight, weight])
    ends = np.concatenate([left, right])
    order = np.argsort(ends, kind="stable")
    indptr = np.zeros(len(x) + 1, dtype=np.int64)
    np.cumsum(np.bincount(ends, minlength=len(x)), out=indptr[1:])
    index = np.tile(np.arange(len(left)), 2)[order]
    return ListedPairs(
        pair_left=left,
        pair_right=right,
        pair_is_must_link=must,
        pair_weight=weight,
        indptr=indptr,
        neighbors=np.concatenate([right, left])[order],
        pair_index=index,
        is_must_link=must[index],
        n_classes=0,
    )

"""Pairs that labels imply, listed: what rows that miss values need."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from daskclust._types import Bools, Floats, Ints
from daskclust.cluster.constrained.rows import ConstrainedRows
from daskclust.constraints import PairwiseConstraints
from daskclust.exceptions import ConstraintError

__all__ = ["ListedPairs", "listed_pairs"]


#: Labeled rows whose pairs may be listed: some two million of them.
_LISTED_ROWS = 2000


@dataclass(frozen=True, eq=False)
class ListedPairs:
    """Explicit pairs, as :class:`PairwiseConstraints` has them; see there."""

    pair_left: Ints
    pair_right: Ints
    pair_is_must_link: Bools
    pair_weight: Floats
    indptr: Ints
    neighbors: Ints
    pair_index: Ints
    is_must_link: Bools
    n_classes: int


def listed_pairs(rows: ConstrainedRows) -> PairwiseConstraints | ListedPairs:
    """Return the constraints, with the pairs that labels imply listed where rows miss values.

    The sums by class and cluster that stand for implied pairs want complete rows.

    Raises
    ------
    ConstraintError
        For more than some 2000 labeled rows among which some miss values.
    """
    c = rows.constraints
    labeled = np.flatnonzero(c.classes >= 0)
    if not rows.incomplete[labeled].any():
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
    indptr = np.zeros(len(rows) + 1, dtype=np.int64)
    np.cumsum(np.bincount(ends, minlength=len(rows)), out=indptr[1:])
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

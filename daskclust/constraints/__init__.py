"""Pairwise constraints as a user states them, checked and indexed.

:class:`PairwiseConstraints` takes must-links, cannot-links and partial labels in
global row numbers, refuses what cannot be meant, finds contradictions, and keeps
what the kernels need: the *constrained* rows (those in a pair or with a label) and the
pairs in local numbering, that is, positions among the constrained rows.  Partial
labels imply a pair for every two labeled rows; those are never listed.

:func:`pairs_from_labels` draws explicit pairs from labels, for experiments.
"""

from daskclust.constraints._indexed import (
    VIOLATION_DTYPE,
    PairwiseConstraints,
    check_pairs,
    pairs_by_row,
    pairs_from_labels,
)

__all__ = [
    "VIOLATION_DTYPE",
    "PairwiseConstraints",
    "check_pairs",
    "pairs_by_row",
    "pairs_from_labels",
]

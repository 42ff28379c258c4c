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

Partial labels imply a pair for every two labeled rows.  These are never listed:
the penalties of a row against all labeled rows follow from the number, the sum
and the sum of squares of the rows of each (class, cluster), see
:func:`implied_pairs`.

Explicit pairs come in two forms: a list (``left``, ``right``, ``is_must_link``,
one entry a pair), and compressed rows of the doubled list (``indptr``,
``neighbors``, ... one entry a pair and end), as
:class:`daskclust.constraints.PairwiseConstraints` holds them.
"""

from daskclust.kernels.constraints._arrays import Penalty, Violations
from daskclust.kernels.constraints.explicit import (
    explicit_violations,
    pair_costs,
    pair_lengths,
    violated_pairs,
)
from daskclust.kernels.constraints.implied import (
    ImpliedPairs,
    implied_pairs,
    implied_violations,
)
from daskclust.kernels.constraints.ordered import ordered_pass

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

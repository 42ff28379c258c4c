"""Labeled rows: which become nodes, which are references, and which are only counted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from daskclust.core.array_types import Array, Bools, Floats, Ints
from daskclust.core.engine import Rows
from daskclust.core.estimator.partial_labels import NO_LABELS, PartialLabels
from daskclust.core.reduction import RowLabels
from daskclust.core.warn import warn
from daskclust.exceptions import ConstraintError, ConstraintWarning


class RowNodes:
    """Different rows of positive weight that become nodes, in an order of their values.

    ``x`` (k, p) has each once, ``node`` (m,) the node of each row, ``weight`` (k,) the sums.
    """

    def __init__(self, x: Array, weight: Floats) -> None:
        if len(x):
            # Missing values come first: NaN has no order.
            keys = np.where(np.isnan(x), -np.inf, x)
            _, first, self.node = np.unique(keys, axis=0, return_index=True, return_inverse=True)
            self.x, self.node = x[first], self.node.ravel()
        else:
            self.x, self.node = x, np.empty(0, np.intp)
        sums = np.bincount(self.node, weights=weight, minlength=len(self.x))
        self.weight: Floats = sums.astype(np.float64)

    def sums(self, values: Floats) -> Floats:
        """Add the values of equal rows: (m, c) to (k, c)."""
        out = np.zeros((len(self.x), values.shape[1]))
        np.add.at(out, self.node, values)
        return out


def take_rows(rows: Rows, numbers: Ints) -> tuple[Array, Floats]:
    """Fetch rows by (sorted, unique) number; no pass where there are none."""
    if not len(numbers):
        return np.empty((0, rows.n_features), rows.dtype), np.empty(0)
    x, weight = rows.take(numbers)
    # A row without any value is nowhere.
    return x, np.where(np.isnan(x).all(axis=1), 0.0, weight)


#: Labeled rows that are nodes, and labeled rows that are fetched at all, at most: so many
#: times the number of prototypes, and a share of its square.
NODES_A_PROTOTYPE, REFERENCES_A_PAIR = 2, 1 / 2


@dataclass(frozen=True)
class LabelPlan:
    """The treatment of the labeled rows.

    ``rows`` and ``codes`` are those that are fetched, ascending; those that are no nodes are
    references only.  ``others`` are all that are no nodes; None where all are.  Known after the
    fetch are their values, the weights of their classes (k, c), and ``labels`` as given.
    """

    rows: Ints
    codes: NDArray[np.int32]
    is_node: Bools
    others: RowLabels | None
    x: Array = field(default_factory=lambda: np.empty((0, 0)))
    weights: Floats = field(default_factory=lambda: np.empty((0, 0)))
    labels: PartialLabels = NO_LABELS

    def present(self, x: Array, weight: Floats) -> tuple[LabelPlan, Array, Floats]:
        """Leave out rows of weight 0 with a warning; ConstraintError if no node is left."""
        kept = weight > 0
        if kept.all():
            return self, x, weight
        if not (kept & self.is_node).any():
            raise ConstraintError(
                "All labeled rows have sample_weight 0 or no value at all, which is absence; "
                "expected at least one that has a positive weight and a value."
            )
        warn(
            f"{int((~kept).sum())} labeled row(s) have sample_weight 0 or no value at all, the "
            f"first is row {int(self.rows[~kept][0])}: they count as absent.",
            ConstraintWarning,
        )
        plan = replace(
            self, rows=self.rows[kept], codes=self.codes[kept], is_node=self.is_node[kept]
        )
        return plan, x[kept], weight[kept]


def chosen(codes: NDArray[np.int32], n_classes: int, count: int, seed: int) -> Bools:
    """Choose rows evenly among the classes: small ones whole, of the others the same number.

    What is chosen depends on the order of the rows.
    """
    sizes = np.bincount(codes, minlength=n_classes)
    left, quota = count, np.zeros(n_classes, np.int64)
    order = np.argsort(sizes, kind="stable")
    for position, c in enumerate(order):
        quota[c] = min(sizes[c], left // (n_classes - position))
        left -= quota[c]
    rng = np.random.default_rng(seed)
    shuffled = rng.permutation(len(codes))
    by_class = shuffled[np.argsort(codes[shuffled], kind="stable")]
    starts = np.cumsum(sizes) - sizes
    rank = np.empty(len(codes), np.int64)
    rank[by_class] = np.arange(len(codes)) - np.repeat(starts, sizes)
    return np.asarray(rank < quota[codes])


def plan_labels(
    labels: PartialLabels,
    n_prototypes: int,
    seed: int,
    places: Callable[[Ints], Ints] | None = None,
) -> LabelPlan:
    """Decide what becomes of the labeled rows, by their number.

    ``places`` are those of pixels, whose row numbers depend on the chunks.
    """
    count, n_classes = len(labels.rows), labels.n_classes
    n_nodes = max(NODES_A_PROTOTYPE * n_prototypes, n_classes)
    if count <= n_nodes:
        return LabelPlan(labels.rows, labels.codes, np.ones(count, bool), None)
    n_fetched = max(int(REFERENCES_A_PAIR * n_prototypes**2), n_nodes)
    order = np.arange(count) if places is None else np.argsort(places(labels.rows))
    drawn = chosen(labels.codes[order], n_classes, min(n_fetched, count), seed)
    fetched = order[drawn]
    nodes = fetched[chosen(labels.codes[fetched], n_classes, n_nodes, seed)]
    fetched.sort()
    is_node = np.isin(fetched, nodes)
    other = np.ones(count, bool)
    other[nodes] = False
    others = RowLabels(labels.rows[other], labels.codes[other], n_classes)
    return LabelPlan(labels.rows[fetched], labels.codes[fetched], is_node, others)

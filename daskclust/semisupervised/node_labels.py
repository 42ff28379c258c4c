"""Labeled rows that become nodes, train the classifier, or only count for prototypes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from daskclust.core.array_types import Array, Bools, Floats, Ints
from daskclust.core.engine import Rows
from daskclust.core.estimator.partial_labels import NO_LABELS, PartialLabels
from daskclust.core.warn import warn
from daskclust.exceptions import ConstraintError, ConstraintWarning


class RowNodes:
    """Distinct rows of positive weight that become nodes, sorted by their values.

    ``x`` (k, p) contains each row once, ``node`` (m,) is the node of each given row, and ``weight``
    (k,) the sum of the weights.
    """

    def __init__(self, x: Array, weight: Floats) -> None:
        if len(x):
            # Missing values are sorted first, because NaN has no order.
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
    """Fetch rows by their ascending and distinct numbers; one pass if there are any."""
    if not len(numbers):
        return np.empty((0, rows.n_features), rows.dtype), np.empty(0)
    x, weight = rows.take(numbers)
    # A row without any value has no position.
    return x, np.where(np.isnan(x).all(axis=1), 0.0, weight)


#: Maximum number of labeled rows that are nodes, as a multiple of the number of prototypes.
NODES_PER_PROTOTYPE = 2
#: Maximum number of labeled rows that train the classifier, unless more are nodes.
TRAINING_ROWS = 10_000


@dataclass(frozen=True)
class LabelPlan:
    """Labeled rows that are fetched, and the labeled rows that become nodes.

    ``rows`` and ``codes`` (m,) are the numbers of the fetched rows, ascending, and their classes.
    ``is_node`` (m,) is True for fetched rows that become nodes.  The other fields are set after the
    fetch: ``x`` (m, p) are the values of the rows, ``weights`` (m, c) the weights of their classes,
    and ``labels`` all labels of the fit.
    """

    rows: Ints
    codes: NDArray[np.int32]
    is_node: Bools
    x: Array = field(default_factory=lambda: np.empty((0, 0)))
    weights: Floats = field(default_factory=lambda: np.empty((0, 0)))
    labels: PartialLabels = NO_LABELS

    def present(self, x: Array, weight: Floats) -> tuple[LabelPlan, Array, Floats]:
        """Omit rows of weight 0 with a warning; ConstraintError if no node remains."""
        is_present = weight > 0
        if is_present.all():
            return self, x, weight
        if not (is_present & self.is_node).any():
            raise ConstraintError(
                "At least one labeled row must have a positive sample_weight and a value. All "
                "labeled rows have sample_weight 0 or no value at all; label other rows."
            )
        warn(
            f"{int((~is_present).sum())} labeled row(s) have sample_weight 0 or no value at all "
            f"and are ignored; the first is row {int(self.rows[~is_present][0])}.",
            ConstraintWarning,
        )
        plan = replace(
            self,
            rows=self.rows[is_present],
            codes=self.codes[is_present],
            is_node=self.is_node[is_present],
        )
        return plan, x[is_present], weight[is_present]


def draw_evenly(codes: NDArray[np.int32], n_classes: int, count: int, seed: int) -> Bools:
    """Draw rows evenly from the classes; classes with fewer rows are drawn completely.

    The draw depends on the order of the rows.
    """
    sizes = np.bincount(codes, minlength=n_classes)
    remaining, quota = count, np.zeros(n_classes, np.int64)
    order = np.argsort(sizes, kind="stable")
    for position, c in enumerate(order):
        quota[c] = min(sizes[c], remaining // (n_classes - position))
        remaining -= quota[c]
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
    positions: Callable[[Ints], Ints] | None = None,
) -> LabelPlan:
    """Plan the treatment of labeled rows.

    ``positions`` returns the positions of pixels in the image, because their row numbers depend on
    the chunks.
    """
    count, n_classes = len(labels.rows), labels.n_classes
    n_nodes = max(NODES_PER_PROTOTYPE * n_prototypes, n_classes)
    n_fetched = max(TRAINING_ROWS, n_nodes)
    order = np.arange(count) if positions is None else np.argsort(positions(labels.rows))
    fetched = order
    if count > n_fetched:
        fetched = order[draw_evenly(labels.codes[order], n_classes, n_fetched, seed)]
    nodes = fetched
    if count > n_nodes:
        nodes = fetched[draw_evenly(labels.codes[fetched], n_classes, n_nodes, seed)]
    fetched = np.sort(fetched)
    return LabelPlan(labels.rows[fetched], labels.codes[fetched], np.isin(fetched, nodes))

"""The rows that constraints touch: fetched once, assigned one after another.

Rows without a constraint do not interact, so they are assigned block by block.
The touched rows are assigned here in one ordered pass, in row order, which gives
exactly the labels of the serial algorithm whatever the chunking.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from daskclust._warnings import warn
from daskclust.constraints import PairwiseConstraints
from daskclust.engine import Rows
from daskclust.exceptions import ConstraintWarning
from daskclust.kernels.constraints import (
    ImpliedPairs,
    Penalty,
    Violations,
    explicit_violations,
    implied_pairs,
    implied_violations,
    ordered_pass,
    pair_costs,
    pair_lengths,
)
from daskclust.kernels.nearest.assign import direct_distances, label_sums

__all__ = ["Assignment", "TouchedRows"]

Float = NDArray[np.float64]
Ints = NDArray[np.int64]


class Assignment(NamedTuple):
    """What one ordered pass yields.

    Attributes
    ----------
    labels : ndarray of shape (m,), int64
    n_changed : int
        Rows whose label is another than before.
    sums, counts : ndarray of shape (k, p) and (k,), float64
        Weighted sums and weights of the touched rows by cluster.
    inertia : float
        Weighted squared distances of the touched rows to their centers.
    """

    labels: Ints
    n_changed: int
    sums: Float
    counts: Float
    inertia: float


class _Prices(NamedTuple):
    """Costs of violations under one set of feature weights."""

    weights: Float
    pair_costs: Float
    edge_costs: Float
    implied: ImpliedPairs | None


def _warn_weightless(
    given: PairwiseConstraints, remaining: PairwiseConstraints, weightless: NDArray[np.bool_]
) -> None:
    n_pairs = given.n_pairs - remaining.n_pairs
    n_labels = int(((given.classes >= 0) & weightless).sum())
    warn(
        f"{int(weightless.sum())} constrained row(s) have sample_weight 0, the first is row "
        f"{int(given.rows[weightless][0])}: they count as absent, and their {n_pairs} pair(s) and "
        f"{n_labels} label(s) are left out.",
        ConstraintWarning,
    )


@dataclass
class TouchedRows:
    """Constraints with the rows they touch.

    Parameters
    ----------
    constraints : PairwiseConstraints
    x : ndarray of shape (m, p)
        The touched rows, in row order.
    weight : ndarray of shape (m,), float64
        Their sample weights.
    box2 : ndarray of shape (p,), float64
        Squared sides of the bounding box of all data, ``Delta_j^2``.
    penalty : {"distance", "constant"}

    Notes
    -----
    Cost of a pass O(m k q + pairs) on the client, for q features of non-zero
    weight; memory O(m (p + k)).
    """

    constraints: PairwiseConstraints
    x: NDArray[Any]
    weight: Float
    box2: Float
    penalty: Penalty
    _prices: _Prices | None = field(default=None, repr=False)

    @classmethod
    def fetch(
        cls,
        rows: Rows,
        constraints: PairwiseConstraints,
        box2: Float,
        penalty: Penalty,
    ) -> Self:
        """Fetch the touched rows in one pass that reads only the chunks concerned."""
        if not constraints.n_touched:
            empty = np.empty((0, rows.n_features))
            return cls(constraints, empty, np.empty(0), box2, penalty)
        x, weight = rows.take(constraints.rows)
        if (weight == 0).any():
            remaining = constraints.without(weight == 0)
            _warn_weightless(constraints, remaining, weight == 0)
            kept = np.searchsorted(constraints.rows, remaining.rows)
            constraints, x, weight = remaining, x[kept], weight[kept]
        return cls(constraints, x, weight, box2, penalty)

    def __len__(self) -> int:
        return len(self.x)

    def unlabeled(self) -> Ints:
        """Labels before any pass: none."""
        return np.full(len(self), -1, dtype=np.int64)

    def _price(self, weights: Float) -> _Prices:
        """Costs of violations, worked out once for each set of feature weights."""
        if self._prices is not None and np.array_equal(self._prices.weights, weights):
            return self._prices
        c = self.constraints
        lengths = pair_lengths(self.x, c.pair_left, c.pair_right, weights)
        costs = pair_costs(
            lengths,
            c.pair_is_must_link,
            c.pair_weight,
            float(weights @ self.box2),
            penalty=self.penalty,
        )
        implied = None
        if c.n_classes:
            implied = implied_pairs(
                self.x,
                c.classes,
                weights,
                self.box2,
                must_link_weight=c.implied_must_link_weight,
                cannot_link_weight=c.implied_cannot_link_weight,
                penalty=self.penalty,
            )
        self._prices = _Prices(weights.copy(), costs, costs[c.pair_index], implied)
        return self._prices

    def assign(self, centers: Float, weights: Float, labels: Ints) -> Assignment:
        """Assign the touched rows, one after another (Eq. 16).

        Parameters
        ----------
        centers : ndarray of shape (k, p), float64
        weights : ndarray of shape (p,), float64
            Feature weights.
        labels : ndarray of shape (m,), int64
            Labels of the last pass, -1 for none.
        """
        k, p = centers.shape
        if not len(self):
            return Assignment(labels, 0, np.zeros((k, p)), np.zeros(k), 0.0)
        prices = self._price(weights)
        c = self.constraints
        distances = direct_distances(self.x, centers, weights) * self.weight[:, None]
        after, n_changed = ordered_pass(
            distances,
            labels,
            c.indptr,
            c.neighbors,
            prices.edge_costs,
            c.is_must_link,
            prices.implied,
        )
        sums, counts = label_sums(self.x, self.weight, after, k)
        inertia = float(distances[np.arange(len(after)), after].sum())
        return Assignment(after, n_changed, sums, counts, inertia)

    def founders(
        self, centers: Float, weights: Float, labels: Ints
    ) -> Iterator[tuple[Float, float, int]]:
        """Yield (row, weight, cluster) of rows off their centers, the farthest first."""
        m = len(self)
        lengths = direct_distances(self.x, centers, weights)[np.arange(m), labels]
        for i in np.argsort(-lengths, kind="stable"):
            if lengths[i] > 0:
                yield self.x[i].astype(np.float64), float(self.weight[i]), int(labels[i])

    def violations(self, labels: Ints) -> Violations:
        """Sum over the violated pairs, explicit and implied, each pair once."""
        c = self.constraints
        total = explicit_violations(
            self.x, labels, c.pair_left, c.pair_right, c.pair_is_must_link, c.pair_weight, self.box2
        )
        if c.n_classes:
            total = total + implied_violations(
                self.x,
                labels,
                c.classes,
                self.box2,
                must_link_weight=c.implied_must_link_weight,
                cannot_link_weight=c.implied_cannot_link_weight,
            )
        return total

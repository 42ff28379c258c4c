"""Constraints that may be violated at a price: rows are assigned one after another.

One ordered pass, in row order, gives exactly the labels of the serial algorithm
whatever the chunks are.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, Self, cast

import numpy as np

from daskclust._types import Floats, Ints
from daskclust.cluster.constrained.pairs import ListedPairs, listed_pairs
from daskclust.cluster.constrained.rows import ConstrainedRows, RowAssignment
from daskclust.constraints import PairwiseConstraints
from daskclust.estimator.fitting import OpenData
from daskclust.exceptions import ConstraintError
from daskclust.kernels.constraints import (
    ImpliedPairs,
    Penalty,
    Violations,
    explicit_violations,
    implied_pairs,
    implied_violations,
    ordered_pass,
    pair_costs,
)
from daskclust.reduction import Survey
from daskclust.reduction.survey import HEAVIEST, LOG_LARGEST

__all__ = ["SoftConstraints"]


class _Prices(NamedTuple):
    """Costs of violations under one set of feature weights."""

    edge_costs: Floats
    implied: ImpliedPairs | None


def _check_prices(rows: ConstrainedRows, survey: Survey) -> None:
    """Refuse weights of pairs whose products with squared distances leave float64."""
    c = rows.constraints
    heaviest = float(np.max(c.pair_weight, initial=0.0))
    if c.n_classes:
        heaviest = max(heaviest, c.implied_must_link_weight, c.implied_cannot_link_weight)
    sizes = np.maximum(np.maximum(np.abs(survey.low), np.abs(survey.high)), survey.idle)
    largest = float(sizes.max())
    # By logarithms, since the product itself would overflow.
    if max(heaviest, 1.0) > HEAVIEST or (
        heaviest * largest > 0 and np.log(heaviest) + 2 * np.log(largest) > LOG_LARGEST
    ):
        raise ConstraintError(
            f"Constraint weights up to {heaviest:.3g}, values of X up to {largest:.3g} in size: "
            "costs of violations overflow. Use smaller weights (1 is the default; constraints "
            "that must hold are for COPKMeans), or rescale X."
        )


@dataclass(frozen=True, eq=False)
class SoftConstraints:
    """Assign rows in order, each at the least cost of distance and violations (Eq. 16).

    Parameters
    ----------
    rows : ConstrainedRows
    box2 : ndarray of shape (p,), float64
        Squared sides of the bounding box of all data, ``Delta_j^2``.
    penalty : {"distance", "constant"}
    n_kept : int
        Sets of feature weights whose prices are kept, one for each restart.

    Notes
    -----
    Cost of a pass O(m k + pairs) on the client, and O(pairs q) for q features of
    non-zero weight when these change; memory O(m k + r (m p + pairs)) for r
    restarts that differ in their weights.
    """

    rows: ConstrainedRows
    box2: Floats
    penalty: Penalty
    n_kept: int = 1
    _prices: dict[bytes, _Prices] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def of(
        cls, rows: ConstrainedRows, data: OpenData, penalty: str, *, from_origin: bool = False
    ) -> Self:
        """Return the rule for some data, whose box may be stretched to the origin."""
        _check_prices(rows, data.survey)
        low, high = data.survey.low, data.survey.high
        low = np.minimum(low, 0.0) if from_origin else low
        return cls(rows, (high - low) ** 2, cast(Penalty, penalty), len(data.seeds))

    @cached_property
    def _pairs(self) -> PairwiseConstraints | ListedPairs:
        """All pairs that are priced one by one."""
        return self.rows.constraints if self.rows.are_complete else listed_pairs(self.rows)

    def assign(self, distances: Floats, weights: Floats, labels: Ints) -> RowAssignment:
        """Assign the rows, one after another; each sees the newest labels of its partners."""
        if not len(self.rows):
            return RowAssignment(labels, {})
        prices, c = self._price(weights), self._pairs
        after, _ = ordered_pass(
            distances,
            labels,
            c.indptr,
            c.neighbors,
            prices.edge_costs,
            c.is_must_link,
            prices.implied,
        )
        return RowAssignment(after, {})

    def violations(self, labels: Ints) -> Violations | None:
        """Sum over the violated pairs, explicit and implied, each pair once."""
        if not len(self.rows):
            return None
        x, c, given = self.rows.x, self._pairs, self.rows.constraints
        total = explicit_violations(
            x, labels, c.pair_left, c.pair_right, c.pair_is_must_link, c.pair_weight, self.box2
        )
        if c.n_classes:
            total = total + implied_violations(
                x,
                labels,
                given.classes,
                self.box2,
                must_link_weight=given.implied_must_link_weight,
                cannot_link_weight=given.implied_cannot_link_weight,
            )
        return total

    def cost(self, violations: Violations, weights: Floats) -> float:
        """Price of these violations under feature weights."""
        return violations.objective(weights, penalty=self.penalty)

    def attributes(self, labels: Ints) -> dict[str, Any]:
        """Return the violated pairs and the classes."""
        return self.rows.attributes(labels)

    def _price(self, weights: Floats) -> _Prices:
        """Costs of violations, computed once for each set of feature weights."""
        key = weights.tobytes()
        prices = self._prices.pop(key, None) or self._new_prices(weights)
        self._prices[key] = prices
        if len(self._prices) > self.n_kept:
            # The least recently used one.
            del self._prices[next(iter(self._prices))]
        return prices

    def _new_prices(self, weights: Floats) -> _Prices:
        c, given = self._pairs, self.rows.constraints
        costs = pair_costs(
            self.rows.pair_lengths(c.pair_left, c.pair_right, weights),
            c.pair_is_must_link,
            c.pair_weight,
            self.rows.pair_boxes(c.pair_left, c.pair_right, weights * self.box2),
            penalty=self.penalty,
        )
        implied = None
        if c.n_classes:
            implied = implied_pairs(
                self.rows.x,
                given.classes,
                weights,
                self.box2,
                must_link_weight=given.implied_must_link_weight,
                cannot_link_weight=given.implied_cannot_link_weight,
                penalty=self.penalty,
            )
        return _Prices(costs[c.pair_index], implied)

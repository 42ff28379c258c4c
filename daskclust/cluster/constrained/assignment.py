"""Assignment of constrained rows, with soft and with hard constraints.

Soft: rows are assigned one after another in row order, so labels do not depend on chunks.
Hard: rows connected by must-links are one group, which is assigned to one cluster.  Groups that a
cannot-link connects are assigned to different clusters.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from daskclust.cluster.constrained.groups import (
    color,
    greedy,
    improve,
    search,
    smallest_last,
    solve_small,
)
from daskclust.cluster.constrained.iteration import Assignment, ConstrainedRows
from daskclust.core.array_types import Floats, Ints
from daskclust.core.constraints import PairwiseConstraints, pairs_by_row
from daskclust.core.kernels.nearest.assign import observed_pair_boxes
from daskclust.core.kernels.pairs import (
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
from daskclust.core.reduction import Survey
from daskclust.core.reduction.survey import HEAVIEST, LOG_LARGEST
from daskclust.exceptions import ConstraintError


@dataclass(eq=False)
class SoftConstraints(Assignment):
    """Rows are assigned in order, with the lowest cost of distance and violations (Eq. 16).

    - `pairs`: pairs with individual costs.
    - `implied`: weights of the must-links and cannot-links that labels imply.
    - `box2` (p,): squared sides of the bounding box of the data, ``Delta_j^2``.
    - `n_cached`: maximum number of feature weights whose costs are cached, one per restart.

    A pass takes O(m k + pairs) time on the client, and O(pairs q) after weights have changed, for q
    features of non-zero weight.  The memory is O(m k + r (m p + pairs)) for r restarts with
    different weights.
    """

    rows: ConstrainedRows
    pairs: PairwiseConstraints
    implied: tuple[float, float]
    box2: Floats
    penalty: Penalty
    n_cached: int = 1
    _costs: dict[bytes, tuple[Floats, ImpliedPairs | None]] = field(
        default_factory=dict, init=False, repr=False
    )

    @classmethod
    def of(
        cls,
        rows: ConstrainedRows,
        survey: Survey,
        penalty: Penalty,
        n_cached: int,
        *,
        from_origin: bool = False,
    ) -> Self:
        """Return the assignment for the rows of a fit; raise ConstraintError if costs overflow.

        With `from_origin`, the bounding box contains the origin.
        """
        c = rows.constraints
        heaviest = float(np.max(c.pair_weight, initial=0.0))
        if c.n_classes:
            heaviest = max(heaviest, c.implied_must_link_weight, c.implied_cannot_link_weight)
        low, high = survey.low, survey.high
        largest = float(np.maximum(np.maximum(np.abs(low), np.abs(high)), survey.idle).max())
        # Compare logarithms, because the product could overflow.
        if max(heaviest, 1.0) > HEAVIEST or (
            heaviest * largest > 0 and np.log(heaviest) + 2 * np.log(largest) > LOG_LARGEST
        ):
            raise ConstraintError(
                f"The costs of violations overflow: constraint weights are up to {heaviest:.3g}, "
                f"and absolute values of X up to {largest:.3g}. Use smaller weights (the default "
                "is 1), COPKMeans for constraints that must hold, or rescale X."
            )
        low = np.minimum(low, 0.0) if from_origin else low
        implied = c.implied_must_link_weight, c.implied_cannot_link_weight
        if penalty == "scaled":
            implied_weight = implied_pair_weight(c)
            implied = implied[0] * implied_weight, implied[1] * implied_weight
        pairs = c if rows.are_complete else listed_pairs(rows, implied)
        return cls(rows, pairs, implied, (high - low) ** 2, penalty, n_cached)

    def assign(
        self, distances: Floats, weights: Floats, labels: Ints, unit: Floats | None
    ) -> tuple[Ints, dict[str, Any]]:
        """Assign the rows in order, given the current labels of the other rows of their pairs."""
        if not len(self.rows.x):
            return labels, {}
        (costs, implied), c = self._pair_costs(weights, unit), self.pairs
        after, _ = ordered_pass(
            distances, labels, c.indptr, c.neighbors, costs, c.is_must_link, implied
        )
        return after, {}

    def violations(self, labels: Ints) -> Violations | None:
        if not len(self.rows.x):
            return None
        x, c, given = self.rows.x, self.pairs, self.rows.constraints
        total = explicit_violations(
            x, labels, c.pair_left, c.pair_right, c.pair_is_must_link, c.pair_weight, self.box2
        )
        if c.n_classes:
            total = total + implied_violations(
                x,
                labels,
                given.classes,
                self.box2,
                must_link_weight=self.implied[0],
                cannot_link_weight=self.implied[1],
            )
        return total

    def _pair_costs(
        self, weights: Floats, unit: Floats | None
    ) -> tuple[Floats, ImpliedPairs | None]:
        """Return the costs of violated pairs for feature weights, from the cache if possible."""
        key = weights.tobytes()
        if key in self._costs:
            # Move the entry to the end, because the first entry is removed next.
            self._costs[key] = self._costs.pop(key)
            return self._costs[key]
        if len(self._costs) == self.n_cached:
            del self._costs[next(iter(self._costs))]
        rows, c, given = self.rows, self.pairs, self.rows.constraints
        ends, sides = (c.pair_left, c.pair_right), weights * self.box2
        pair_cost = 1.0 if unit is None else float(np.sum(weights * unit))
        costs = pair_cost * pair_costs(
            pair_lengths(rows.x, *ends, weights),
            c.pair_is_must_link,
            c.pair_weight,
            # With missing values, use the box of the features observed in both rows.
            float(sides.sum()) if rows.are_complete else observed_pair_boxes(rows.x, *ends, sides),
            penalty=self.penalty,
        )
        implied = None
        if c.n_classes:
            implied = implied_pairs(
                rows.x,
                given.classes,
                weights,
                self.box2,
                must_link_weight=pair_cost * self.implied[0],
                cannot_link_weight=pair_cost * self.implied[1],
                penalty=self.penalty,
            )
        self._costs[key] = costs[c.pair_index], implied
        return self._costs[key]


#: Number of labels per class from which the weight of their pairs decreases.
_FULL_LABELS = 4


def implied_pair_weight(constraints: PairwiseConstraints) -> float:
    """Return the weight of a pair that labels imply, with ``penalty="scaled"``.

    It bounds the total weight of the pairs of a row with a class, for any number of labels.
    """
    n_labels = int((constraints.classes >= 0).sum())
    return min(1.0, _FULL_LABELS * constraints.n_classes / n_labels) if n_labels else 1.0


#: Maximum number of labeled rows whose pairs are listed.  They have two million pairs.
_LISTED_ROWS = 2000


def listed_pairs(rows: ConstrainedRows, implied: tuple[float, float]) -> PairwiseConstraints:
    """Return constraints in which implied pairs are explicit if labeled rows have missing values.

    Without missing values, sums over classes represent the implied pairs.
    """
    c = rows.constraints
    labeled = np.flatnonzero(c.classes >= 0)
    if not np.isnan(rows.x[labeled]).any():
        return c
    if len(labeled) > _LISTED_ROWS:
        raise ConstraintError(
            f"At most {_LISTED_ROWS} rows can have labels if labeled rows have missing values, got "
            f"{len(labeled)}. Use fewer labels, SemiSupervisedKMeans, or complete labeled rows."
        )
    a, b = np.triu_indices(len(labeled), 1)
    same = c.classes[labeled[a]] == c.classes[labeled[b]]
    left = np.concatenate([c.pair_left, labeled[a]])
    right = np.concatenate([c.pair_right, labeled[b]])
    must = np.concatenate([c.pair_is_must_link, same])
    return replace(
        c,
        pair_left=left,
        pair_right=right,
        pair_is_must_link=must,
        pair_weight=np.concatenate([c.pair_weight, np.where(same, *implied)]),
        **pairs_by_row(left, right, must, len(rows.x)),
        classes=np.full_like(c.classes, -1),
        class_values=c.class_values[:0],
    )


#: Maximum number of nodes of the search for a valid assignment.
_FEASIBLE = 200_000
#: Maximum number of groups among which a small set without a valid assignment is searched.
_EXPLAINED = 200


@dataclass(frozen=True, eq=False)
class Groups:
    """Groups of must-linked rows, and the graph of cannot-links between them.

    The constraints do not contradict each other.
    """

    constraints: PairwiseConstraints
    k: int

    @cached_property
    def of_row(self) -> Ints:
        """Return the group of each constrained row."""
        return self.constraints.component

    @cached_property
    def first_row(self) -> Ints:
        """First constrained row of each group."""
        return np.unique(self.of_row, return_index=True)[1].astype(np.int64)

    def __len__(self) -> int:
        return len(self.first_row)

    @cached_property
    def graph(self) -> tuple[Ints, Ints]:
        """Distinct cannot-links between groups, as compressed sparse rows."""
        c = self.constraints
        cannot = ~c.pair_is_must_link
        left, right = self.of_row[c.pair_left[cannot]], self.of_row[c.pair_right[cannot]]
        if c.n_classes > 1:
            # Labels imply cannot-links between all classes.
            labeled = np.flatnonzero(c.classes >= 0)
            _, first = np.unique(c.classes[labeled], return_index=True)
            groups = self.of_row[labeled[first]]
            a, b = np.triu_indices(len(groups), 1)
            left = np.concatenate([left, groups[a]])
            right = np.concatenate([right, groups[b]])
        n = len(self)
        ends = np.concatenate([left, right]), np.concatenate([right, left])
        graph = csr_array((np.ones(len(ends[0])), ends), shape=(n, n))
        graph.sum_duplicates()
        return graph.indptr.astype(np.int64), graph.indices.astype(np.int64)

    @cached_property
    def order(self) -> tuple[Ints, int]:
        """Groups in smallest-last order, and the number of groups in the k-core."""
        return smallest_last(*self.graph, self.k)

    @cached_property
    def components(self) -> tuple[Ints, Ints]:
        """Starts and members of the graph's components."""
        indptr, neighbors = self.graph
        n = len(self)
        graph = csr_array((np.ones(len(neighbors)), neighbors, indptr), shape=(n, n))
        count, component = connected_components(graph, directed=False)
        starts = np.zeros(count + 1, dtype=np.int64)
        np.cumsum(np.bincount(component, minlength=count), out=starts[1:])
        return starts, np.argsort(component, kind="stable").astype(np.int64)

    @cached_property
    def feasible_labels(self) -> Ints:
        """Assignment of the groups that satisfies all constraints.

        Raises ConstraintError if there is no such assignment (the message lists rows), or if the
        search ends early.
        """
        c = self.constraints
        if c.n_classes > self.k:
            raise ConstraintError(
                f"n_clusters must be at least {c.n_classes}, the number of classes of y, because "
                f"classes must be in different clusters, got {self.k}. Use more clusters, or "
                "PCKMeans, which may violate constraints."
            )
        order, n_core = self.order
        labels, state = color(*self.graph, order, n_core, self.k, _FEASIBLE)
        if state == 0:
            raise ConstraintError(
                f"The search for an assignment of the constrained rows to {self.k} clusters gave "
                f"up after {_FEASIBLE} steps: {n_core} groups of rows have {self.k} or more "
                "cannot-linked groups each. Use more clusters, fewer cannot-links, or PCKMeans, "
                "which may violate constraints."
            )
        if state < 0:
            raise ConstraintError(self._why_impossible(np.sort(order[:n_core])))
        return labels

    def _is_impossible(self, members: Ints) -> bool:
        n = len(self)
        labels, local = np.full(n, -1, dtype=np.int64), np.full(n, -1, dtype=np.int64)
        costs = np.zeros((n, self.k))
        return bool(search(costs, *self.graph, members, local, labels, _FEASIBLE // 10, True) == -1)

    def _why_impossible(self, members: Ints) -> str:
        """Return a message that lists a small set of rows without a valid assignment."""
        if len(members) <= _EXPLAINED:
            for v in members:
                fewer = members[members != v]
                if self._is_impossible(fewer):
                    members = fewer
        rows = self.constraints.rows[self.first_row[members]].tolist()
        indptr, neighbors = self.graph
        inside = [np.isin(neighbors[indptr[v] : indptr[v + 1]], members).sum() for v in members]
        named = ", ".join(map(str, rows[:12])) + (", ..." if len(rows) > 12 else "")
        joined = (
            "Must-links connect further rows to these rows. "
            if len(self.first_row) < len(self.of_row)
            else ""
        )
        if min(inside) == len(members) - 1:
            why = f"Rows {named} are all cannot-linked to each other and need {len(rows)} clusters"
        else:
            why = f"The cannot-links among rows {named} need more than {self.k} clusters"
        return (
            f"{why}; n_clusters={self.k}. {joined}Use more clusters, fewer cannot-links, or "
            "PCKMeans, which may violate constraints."
        )


def check_feasible(constraints: PairwiseConstraints, k: int) -> None:
    """Raise ConstraintError unless all constraints can hold with k clusters."""
    constraints.refuse_contradictions()
    _ = Groups(constraints, k).feasible_labels


#: Maximum number of nodes of the search for the cheapest assignment of a small component.
_CHEAPEST = 2_000
#: Maximum number of sweeps over all groups that exchange clusters.
_SWEEPS = 100


@dataclass(eq=False)
class HardConstraints(Assignment):
    """Groups of rows are assigned so that every constraint holds."""

    rows: ConstrainedRows
    k: int

    @cached_property
    def groups(self) -> Groups:
        return Groups(self.rows.constraints, self.k)

    def assign(
        self, distances: Floats, weights: Floats, labels: Ints, unit: Floats | None
    ) -> tuple[Ints, dict[str, Any]]:
        """Assign groups of rows; ``exact`` in the record is True if the cost is minimal."""
        if not len(self.rows.x):
            return labels, {"exact": True}
        order, starts = self._rows_by_group
        costs = np.add.reduceat(distances[order], starts, axis=0)
        chosen, exact = self.assign_groups(costs, labels[self.groups.first_row])
        return chosen[self.groups.of_row], {"exact": exact}

    @cached_property
    def _rows_by_group(self) -> tuple[Ints, Ints]:
        """Rows in the order of their groups, and the position of the first row of each group."""
        of_row = self.groups.of_row
        order = np.argsort(of_row, kind="stable")
        return order, np.searchsorted(of_row[order], np.arange(len(self.groups)))

    def assign_groups(self, costs: Floats, before: Ints) -> tuple[Ints, bool]:
        """Return the cluster of each group, and True if the total cost is known to be minimal.

        The cost is at most the cost of the previous clusters ``before`` (-1 in the first pass).
        """
        groups = self.groups
        graph, (starts, members) = groups.graph, groups.components
        labels = np.full(len(groups), -1, dtype=np.int64)
        greedy(costs, *graph, groups.order[0], labels)
        is_incomplete = np.logical_or.reduceat(labels[members] < 0, starts[:-1])
        known = bool((before >= 0).all())
        for component in (
            members[starts[i] : starts[i + 1]] for i in np.flatnonzero(is_incomplete)
        ):
            labels[component] = (
                before[component] if known else _renamed(costs, groups.feasible_labels, component)
            )
        improve(costs, *graph, labels, _SWEEPS)
        if known:
            other = before.copy()
            improve(costs, *graph, other, _SWEEPS)
            cheaper = self._totals(costs, labels) < self._totals(costs, other)
            use_other = np.repeat(~cheaper, np.diff(starts))
            labels[members[use_other]] = other[members[use_other]]
        exact = solve_small(costs, *graph, starts, members, labels, _CHEAPEST)
        for i in np.flatnonzero(~exact):
            component = members[starts[i] : starts[i + 1]]
            labels[component] = _renamed(costs, labels, component)
            edges = (graph[0][component + 1] - graph[0][component]).sum()
            # If all groups are cannot-linked to each other, the best permutation is optimal.
            exact[i] = edges == len(component) * (len(component) - 1)
        if not exact.all():
            improve(costs, *graph, labels, _SWEEPS)
        return labels, bool(exact.all())

    def _totals(self, costs: Floats, labels: Ints) -> Floats:
        starts, members = self.groups.components
        group_costs = costs[members, labels[members]]
        total: Floats = np.add.reduceat(group_costs, starts[:-1])
        return total


def _renamed(costs: Floats, labels: Ints, groups: Ints) -> Ints:
    """Return labels of some groups after the cheapest permutation of the clusters."""
    k = costs.shape[1]
    total_costs = np.zeros((k, k))
    np.add.at(total_costs, labels[groups], costs[groups])
    new_labels = linear_sum_assignment(total_costs)[1]
    renamed: Ints = new_labels[labels[groups]]
    return renamed

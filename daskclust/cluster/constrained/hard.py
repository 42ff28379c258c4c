"""Constraints that hold without exception: groups of rows are assigned together."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment

from daskclust._types import Floats, Ints
from daskclust.cluster.constrained.groups import Groups
from daskclust.cluster.constrained.rows import ConstrainedRows, RowAssignment
from daskclust.kernels.constraints import Violations
from daskclust.kernels.constraints.coloring import greedy, improve, solve_small

__all__ = ["HardConstraints"]


#: Nodes of the search for the cheapest assignment of a small component.
_CHEAPEST = 2_000
#: Sweeps of moving single groups.
_SWEEPS = 100


@dataclass(frozen=True, eq=False)
class HardConstraints:
    """Assign groups of rows such that every constraint holds.

    Parameters
    ----------
    rows : ConstrainedRows
        Of constraints that can all hold.
    k : int
        Number of clusters.
    """

    rows: ConstrainedRows
    k: int

    @cached_property
    def groups(self) -> Groups:
        """Groups of must-linked rows."""
        return Groups(self.rows.constraints, self.k)

    def assign(self, distances: Floats, weights: Floats, labels: Ints) -> RowAssignment:
        """Assign groups of rows; the record says whether as cheaply as can be (``exact``)."""
        if not len(self.rows):
            return RowAssignment(labels, {"exact": True})
        order, starts = self._rows_by_group
        costs = np.add.reduceat(distances[order], starts, axis=0)
        chosen, exact = self.assign_groups(costs, labels[self.groups.first_row])
        return RowAssignment(chosen[self.groups.of_row], {"exact": exact})

    def violations(self, labels: Ints) -> None:
        """There are none."""

    def cost(self, violations: Violations, weights: Floats) -> float:
        """Infinite: no violation has a price."""
        return np.inf

    def attributes(self, labels: Ints) -> dict[str, Any]:
        """Return the violated pairs, none, and the classes."""
        return self.rows.attributes(labels)

    @cached_property
    def _rows_by_group(self) -> tuple[Ints, Ints]:
        """Rows in the order of their groups, and where each group starts."""
        of_row = self.groups.of_row
        order = np.argsort(of_row, kind="stable")
        return order, np.searchsorted(of_row[order], np.arange(len(self.groups)))

    def assign_groups(self, costs: Floats, before: Ints) -> tuple[Ints, bool]:
        """Give each group a cluster.

        Parameters
        ----------
        costs : ndarray of shape (n_groups, k), float64
        before : ndarray of shape (n_groups,), int64
            Clusters that satisfy the constraints, or -1 for all.

        Returns
        -------
        labels : ndarray of shape (n_groups,), int64
            Satisfying all constraints; no dearer than ``before``.
        exact : bool
            Whether they are known to be the cheapest.
        """
        groups = self.groups
        graph, (starts, members) = groups.graph, groups.components
        labels = np.full(len(groups), -1, dtype=np.int64)
        greedy(costs, *graph, groups.order[0], labels)
        stuck = np.logical_or.reduceat(labels[members] < 0, starts[:-1])
        known = bool((before >= 0).all())
        for part in (members[starts[i] : starts[i + 1]] for i in np.flatnonzero(stuck)):
            labels[part] = before[part] if known else _renamed(costs, groups.feasible_labels, part)
        improve(costs, *graph, labels, _SWEEPS)
        if known:
            other = before.copy()
            improve(costs, *graph, other, _SWEEPS)
            cheaper = self._totals(costs, labels) < self._totals(costs, other)
            keep = np.repeat(~cheaper, np.diff(starts))
            labels[members[keep]] = other[members[keep]]
        exact = solve_small(costs, *graph, starts, members, labels, _CHEAPEST)
        for i in np.flatnonzero(~exact):
            part = members[starts[i] : starts[i + 1]]
            labels[part] = _renamed(costs, labels, part)
            edges = (graph[0][part + 1] - graph[0][part]).sum()
            # All in different clusters: who goes where is all there is to choose.
            exact[i] = edges == len(part) * (len(part) - 1)
        if not exact.all():
            improve(costs, *graph, labels, _SWEEPS)
        return labels, bool(exact.all())

    def _totals(self, costs: Floats, labels: Ints) -> Floats:
        """Cost of each component."""
        starts, members = self.groups.components
        each = costs[members, labels[members]]
        total: Floats = np.add.reduceat(each, starts[:-1])
        return total


def _renamed(costs: Floats, labels: Ints, part: Ints) -> Ints:
    """Labels of some groups, with clusters exchanged for each other at the least cost."""
    k = costs.shape[1]
    price = np.zeros((k, k))
    np.add.at(price, labels[part], costs[part])
    names = linear_sum_assignment(price)[1]
    renamed: Ints = names[labels[part]]
    return renamed

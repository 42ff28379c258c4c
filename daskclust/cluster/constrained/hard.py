"""Constraints that hold without exception: groups of rows, and which may not meet.

Rows that must-links join are one group, which is assigned as one; groups that a
cannot-link joins never share a cluster.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from daskclust.cluster.constrained.iteration import PassProblem
from daskclust.cluster.constrained.rows import Assignment, TouchedRows
from daskclust.constraints import PairwiseConstraints
from daskclust.engine import Step
from daskclust.exceptions import ConstraintError
from daskclust.kernels.constraints.coloring import (
    color,
    greedy,
    improve,
    search,
    smallest_last,
    solve_small,
)
from daskclust.kernels.nearest.assign import direct_distances, label_sums

__all__ = ["Groups", "HardProblem", "HardRows"]

Float = NDArray[np.float64]
Ints = NDArray[np.int64]

#: Nodes of the search for any assignment, and for the cheapest of a small component.
_FEASIBLE, _CHEAPEST = 200_000, 2_000
#: Sweeps of moving single groups.
_SWEEPS = 100
#: Groups up to which the smallest impossible set of them is looked for.
_EXPLAINED = 200


@dataclass(frozen=True, eq=False)
class Groups:
    """Groups of must-linked rows, and the graph of cannot-links between them.

    Parameters
    ----------
    constraints : PairwiseConstraints
        Without contradictions.
    k : int
        Number of clusters.

    Raises
    ------
    ConstraintError
        If the groups cannot be shared out to k clusters, naming rows.
    """

    constraints: PairwiseConstraints
    k: int

    def __post_init__(self) -> None:
        """Refuse what is impossible at once."""
        self._any  # noqa: B018

    @cached_property
    def of_row(self) -> Ints:
        """Group of each touched row."""
        return self.constraints.must_link_components()

    @cached_property
    def first_row(self) -> Ints:
        """Least touched row of each group."""
        return np.unique(self.of_row, return_index=True)[1].astype(np.int64)

    def __len__(self) -> int:
        return len(self.first_row)

    @cached_property
    def _graph(self) -> tuple[Ints, Ints]:
        """Cannot-links between groups as compressed rows, each once."""
        c = self.constraints
        cannot = ~c.pair_is_must_link
        left, right = self.of_row[c.pair_left[cannot]], self.of_row[c.pair_right[cannot]]
        if c.n_classes > 1:
            # Labels: any two classes.  There are no more of them than clusters.
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
    def _order(self) -> tuple[Ints, int]:
        return smallest_last(*self._graph, self.k)

    @cached_property
    def _components(self) -> tuple[Ints, Ints]:
        """Starts and members of the graph's components."""
        indptr, neighbors = self._graph
        n = len(self)
        graph = csr_array((np.ones(len(neighbors)), neighbors, indptr), shape=(n, n))
        count, component = connected_components(graph, directed=False)
        starts = np.zeros(count + 1, dtype=np.int64)
        np.cumsum(np.bincount(component, minlength=count), out=starts[1:])
        return starts, np.argsort(component, kind="stable").astype(np.int64)

    @cached_property
    def _any(self) -> Ints:
        """Some assignment, if there is one."""
        c = self.constraints
        if c.n_classes > self.k:
            raise ConstraintError(
                f"y has {c.n_classes} classes, which must be in different clusters; n_clusters="
                f"{self.k}. Ask for at least {c.n_classes} clusters, or use PCKMeans, which may "
                "violate constraints."
            )
        order, n_core = self._order
        labels, state = color(*self._graph, order, n_core, self.k, _FEASIBLE)
        if state == 0:
            raise ConstraintError(
                f"No assignment of the constrained rows to {self.k} clusters was found in "
                f"{_FEASIBLE} steps, nor a proof that there is none: {n_core} groups of rows have "
                f"{self.k} or more cannot-linked groups each. Ask for more clusters, give fewer "
                "cannot-links, or use PCKMeans, which may violate constraints."
            )
        if state < 0:
            raise ConstraintError(self._why_impossible(np.sort(order[:n_core])))
        return labels

    # --- why there is none ---------------------------------------------------------------------

    def _is_impossible(self, members: Ints) -> bool:
        n = len(self)
        labels, local = np.full(n, -1, dtype=np.int64), np.full(n, -1, dtype=np.int64)
        costs = np.zeros((n, self.k))
        return bool(
            search(costs, *self._graph, members, local, labels, _FEASIBLE // 10, True) == -1
        )

    def _why_impossible(self, members: Ints) -> str:
        """Name rows that cannot be shared out, as few as are found by leaving groups out."""
        if len(members) <= _EXPLAINED:
            for v in members:
                fewer = members[members != v]
                if self._is_impossible(fewer):
                    members = fewer
        rows = self.constraints.rows[self.first_row[members]].tolist()
        indptr, neighbors = self._graph
        inside = [np.isin(neighbors[indptr[v] : indptr[v + 1]], members).sum() for v in members]
        named = ", ".join(map(str, rows[:12])) + (", ..." if len(rows) > 12 else "")
        joined = (
            "Must-links join rows to the ones named. "
            if len(self.first_row) < len(self.of_row)
            else ""
        )
        if min(inside) == len(members) - 1:
            why = f"Rows {named} are all cannot-linked to each other and need {len(rows)} clusters"
        else:
            why = f"The cannot-links among rows {named} need more than {self.k} clusters"
        return (
            f"{why}; n_clusters={self.k}. {joined}Ask for more clusters, remove a cannot-link, or "
            "use PCKMeans, which may violate constraints."
        )

    # --- the cheapest --------------------------------------------------------------------------

    def assign(self, costs: Float, before: Ints) -> tuple[Ints, bool]:
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
        graph, (starts, members) = self._graph, self._components
        labels = np.full(len(self), -1, dtype=np.int64)
        greedy(costs, *graph, self._order[0], labels)
        stuck = np.logical_or.reduceat(labels[members] < 0, starts[:-1])
        known = bool((before >= 0).all())
        for part in (members[starts[i] : starts[i + 1]] for i in np.flatnonzero(stuck)):
            labels[part] = before[part] if known else _renamed(costs, self._any, part)
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

    def _totals(self, costs: Float, labels: Ints) -> Float:
        """Cost of each component."""
        starts, members = self._components
        each = costs[members, labels[members]]
        total: Float = np.add.reduceat(each, starts[:-1])
        return total


def _renamed(costs: Float, labels: Ints, part: Ints) -> Ints:
    """Labels of some groups, with clusters exchanged for each other at the least cost."""
    k = costs.shape[1]
    price = np.zeros((k, k))
    np.add.at(price, labels[part], costs[part])
    names = linear_sum_assignment(price)[1]
    renamed: Ints = names[labels[part]]
    return renamed


@dataclass
class HardRows(TouchedRows):
    """Touched rows whose constraints hold without exception."""

    groups: Groups = field(init=False, repr=False)
    #: Whether the last assignment is known to be the cheapest.
    exact: bool = field(default=True, init=False, repr=False)

    @cached_property
    def _by_group(self) -> tuple[Ints, Ints]:
        """Rows in the order of their groups, and where each group starts."""
        of_row = self.groups.of_row
        order = np.argsort(of_row, kind="stable")
        return order, np.searchsorted(of_row[order], np.arange(len(self.groups)))

    def assign(self, centers: Float, weights: Float, labels: Ints) -> Assignment:
        """Assign groups of rows; the arguments are those of the base class."""
        k, p = centers.shape
        if not len(self):
            return Assignment(labels, 0, np.zeros((k, p)), np.zeros(k), 0.0)
        distances = direct_distances(self.x, centers, weights) * self.weight[:, None]
        order, starts = self._by_group
        costs = np.add.reduceat(distances[order], starts, axis=0)
        chosen, self.exact = self.groups.assign(costs, labels[self.groups.first_row])
        after = chosen[self.groups.of_row]
        sums, counts = label_sums(self.x, self.weight, after, k)
        inertia = float(distances[np.arange(len(after)), after].sum())
        return Assignment(after, int((after != labels).sum()), sums, counts, inertia)


@dataclass(frozen=True)
class HardProblem(PassProblem):
    """Passes of which each record tells whether its assignment is the cheapest."""

    touched: HardRows

    def step(self, state: Any) -> Step[Any]:
        """Make one pass, and end where nothing changes any more."""
        step = super().step(state)
        return replace(step, extra={**step.extra, "exact": self.touched.exact})

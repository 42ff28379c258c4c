"""Groups of must-linked rows, and whether all constraints on them can hold.

Rows that must-links join are one group, which is assigned as one; groups that a
cannot-link joins never share a cluster.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from daskclust._types import Ints
from daskclust.constraints import PairwiseConstraints
from daskclust.exceptions import ConstraintError
from daskclust.kernels.constraints.coloring import color, search, smallest_last

__all__ = ["Groups", "check_feasible"]


#: Nodes of the search for any assignment.
_FEASIBLE = 200_000
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
    """

    constraints: PairwiseConstraints
    k: int

    @cached_property
    def of_row(self) -> Ints:
        """Group of each constrained row."""
        return self.constraints.component

    @cached_property
    def first_row(self) -> Ints:
        """Least constrained row of each group."""
        return np.unique(self.of_row, return_index=True)[1].astype(np.int64)

    def __len__(self) -> int:
        return len(self.first_row)

    @cached_property
    def graph(self) -> tuple[Ints, Ints]:
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
    def order(self) -> tuple[Ints, int]:
        """Groups in smallest-last order, and how many of them may find no cluster free."""
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
        """Some assignment of the groups that satisfies all constraints.

        Raises
        ------
        ConstraintError
            If there is none, naming rows, or if none is found.
        """
        c = self.constraints
        if c.n_classes > self.k:
            raise ConstraintError(
                f"y has {c.n_classes} classes, which must be in different clusters; n_clusters="
                f"{self.k}. Ask for at least {c.n_classes} clusters, or use PCKMeans, which may "
                "violate constraints."
            )
        order, n_core = self.order
        labels, state = color(*self.graph, order, n_core, self.k, _FEASIBLE)
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

    def _is_impossible(self, members: Ints) -> bool:
        n = len(self)
        labels, local = np.full(n, -1, dtype=np.int64), np.full(n, -1, dtype=np.int64)
        costs = np.zeros((n, self.k))
        return bool(search(costs, *self.graph, members, local, labels, _FEASIBLE // 10, True) == -1)

    def _why_impossible(self, members: Ints) -> str:
        """Name rows that cannot be shared out, as few as are found by leaving groups out."""
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


def check_feasible(constraints: PairwiseConstraints, k: int) -> None:
    """Raise unless all constraints can hold.

    Raises
    ------
    ConstraintError
        For contradictions, and for rows that cannot be shared out to k clusters.
    """
    constraints.refuse_contradictions()
    _ = Groups(constraints, k).feasible_labels

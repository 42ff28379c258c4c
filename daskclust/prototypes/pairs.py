"""Constraints of rows, brought to nodes: who is to be with whom."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from daskclust._types import Array, Bools, Floats, Ints
from daskclust._warnings import warn
from daskclust.constraints import PairwiseConstraints
from daskclust.engine import Rows
from daskclust.estimator.partial_labels import PartialLabels
from daskclust.exceptions import ConstraintWarning
from daskclust.kernels.nearest.several import nearest_several
from daskclust.prototypes.labeled import (
    NODES_A_PROTOTYPE,
    LabelPlan,
    RowNodes,
    plan_labels,
    take_rows,
)
from daskclust.prototypes.views import Space


@dataclass(frozen=True)
class NodePairs:
    """Constraints, and the rows that they touch.

    Attributes
    ----------
    constraints : PairwiseConstraints
        Explicit pairs only.
    plan : LabelPlan
        Of the labeled rows; the pairs that they imply are not listed.
    must_weight, cannot_weight : float
        Of implied pairs.
    rows : ndarray of shape (m,), int64
        All that are fetched.
    x : ndarray of shape (m, p)
    is_node : ndarray of shape (m,), bool
    nodes : RowNodes
        Of the rows that are nodes.
    """

    constraints: PairwiseConstraints
    plan: LabelPlan
    must_weight: float
    cannot_weight: float
    rows: Ints
    x: Array
    is_node: Bools
    nodes: RowNodes

    @classmethod
    def fetch(
        cls,
        rows: Rows,
        constraints: PairwiseConstraints,
        labels: PartialLabels,
        n_prototypes: int,
        seed: int,
    ) -> NodePairs:
        """Fetch the rows that constraints touch; one pass that reads the chunks concerned."""
        plan = plan_labels(labels, n_prototypes, seed)
        must, cannot = (
            constraints.implied_must_link_weight,
            constraints.implied_cannot_link_weight,
        )
        wanted = np.union1d(constraints.rows, plan.rows)
        x, weight = take_rows(rows, wanted)
        absent = weight == 0
        if absent.any():
            warn(
                f"{int(absent.sum())} constrained row(s) have sample_weight 0 or no value at all, "
                f"the first is row {int(wanted[absent][0])}: they count as absent, with their "
                "constraints.",
                ConstraintWarning,
            )
            constraints = constraints.without(np.isin(constraints.rows, wanted[absent]))
            kept = ~np.isin(plan.rows, wanted[absent])
            plan = replace(
                plan, rows=plan.rows[kept], codes=plan.codes[kept], is_node=plan.is_node[kept]
            )
            wanted, x, weight = wanted[~absent], x[~absent], weight[~absent]
        is_node = np.ones(len(wanted), bool)
        limit = NODES_A_PROTOTYPE * n_prototypes
        if len(wanted) > limit:
            chosen = np.random.default_rng(seed).choice(len(wanted), limit, replace=False)
            is_node = np.zeros(len(wanted), bool)
            is_node[chosen] = True
        nodes = RowNodes(x[is_node], weight[is_node])
        return cls(constraints, plan, must, cannot, wanted, x, is_node, nodes)

    @property
    def any(self) -> bool:
        """Whether there are constraints at all."""
        return bool(len(self.rows)) or self.plan.others is not None

    def _node_of(self, space: Space, prototypes: Floats) -> Ints:
        """Node of each fetched row: its own, or its nearest prototype."""
        node = np.empty(len(self.rows), np.int64)
        node[self.is_node] = len(prototypes) + self.nodes.node
        rest = ~self.is_node
        if rest.any():
            node[rest] = nearest_several(space(self.x[rest]), prototypes, 1)[0][:, 0]
        return node

    def matrix(self, space: Space, prototypes: Floats, classes: Floats) -> Floats:
        """Return what nodes are to each other: positive together, negative apart.

        Parameters
        ----------
        prototypes : ndarray of shape (k, q)
        classes : ndarray of shape (k, c)
            Weights of labeled rows that are not fetched, by their nearest prototype.

        Returns
        -------
        ndarray of shape (k + nodes, k + nodes)
            In [-1, 1].
        """
        n = len(prototypes) + len(self.nodes.x)
        node = self._node_of(space, prototypes)
        out = np.zeros((n, n))
        c = self.constraints
        if c.n_pairs:
            at = node[np.searchsorted(self.rows, c.rows)]
            left, right = at[c.pair_left], at[c.pair_right]
            signed = np.where(c.pair_is_must_link, c.pair_weight, -c.pair_weight)
            np.add.at(out, (left, right), signed)
            np.add.at(out, (right, left), signed)
        if len(self.plan.rows):
            table = np.zeros((n, max(int(self.plan.codes.max()) + 1, classes.shape[1])))
            table[: len(classes), : classes.shape[1]] += classes
            np.add.at(
                table, (node[np.searchsorted(self.rows, self.plan.rows)], self.plan.codes), 1.0
            )
            total = table.sum(axis=1)
            share = np.divide(
                table, total[:, None], out=np.zeros_like(table), where=total[:, None] > 0
            )
            labeled = (total > 0).astype(np.float64)
            same = share @ share.T
            out += self.must_weight * same
            out -= self.cannot_weight * (np.outer(labeled, labeled) - same)
        np.fill_diagonal(out, 0.0)
        peak = np.abs(out).max(initial=0.0)
        return out / peak if peak > 0 else out

"""The pass that counts the rows of the leaves of a tree of centers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from daskclust._types import Floats
from daskclust.kernels.compensated import sum_terms
from daskclust.kernels.nearest.several import CenterTree, nearest_leaf
from daskclust.reduction.contract import Field, Partial, Reduction, RowBlock

__all__ = ["LEAF_STATISTICS", "LeafQuery", "LeafStatistics"]


@dataclass(frozen=True)
class LeafQuery:
    """Ask for what lies nearest to each leaf; see :func:`nearest_leaf`."""

    tree: CenterTree
    n_probe: int | None = None


class LeafStatistics(NamedTuple):
    """The result of the pass.

    Attributes
    ----------
    counts, inertia : ndarray of shape (k,), float64
        Weight of each leaf's rows, and their weighted squared distances to it.
    """

    counts: Floats
    inertia: Floats


def _fields(state: LeafQuery) -> Mapping[str, Field]:
    return {"stats": Field((2, len(state.tree.leaves), 2), "sum")}


def _block(rows: RowBlock, state: LeafQuery) -> Partial:
    k = len(state.tree.leaves)
    labels, squared = nearest_leaf(rows.x, state.tree, state.n_probe)
    weight = np.ones(len(labels)) if rows.weight is None else rows.weight
    cost = np.where(weight > 0, weight * squared, 0.0)
    found: list[Floats] = []
    for at in rows.slices():
        sums = [np.bincount(labels[at], of[at], k).astype(np.float64) for of in (weight, cost)]
        found.append(np.column_stack(sums))
    return {"stats": sum_terms(found)}


def _finalize(partial: Partial, state: LeafQuery) -> LeafStatistics:
    stats = partial["stats"][0]
    return LeafStatistics(stats[:, 0], stats[:, 1])


#: Nearest leaf of every row; weights and squared distances by leaf.
LEAF_STATISTICS = Reduction("leaf-statistics", _fields, _block, _finalize)

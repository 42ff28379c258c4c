"""Assignment passes: statistics of the clusters, and the rows farthest from their centers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from daskclust.core.array_types import Array, Floats
from daskclust.core.kernels.compensated import sum_terms
from daskclust.core.kernels.nearest.assign import (
    BlockStatistics,
    accumulate,
    nearest,
    off_center,
)
from daskclust.core.kernels.nearest.bounds import Kept, Moves, accumulate_kept
from daskclust.core.kernels.nearest.k_nearest import CenterTree, nearest_leaf
from daskclust.core.kernels.rng import smallest
from daskclust.core.kernels.sparse import dense
from daskclust.core.reduction.contract import Field, Partial, Reduction, RowBlock, top_dtype


@dataclass(frozen=True)
class CenterSets:
    """Several sets of centers (r, k, p) for one pass, with their feature weights (r, p).

    `shift` (p,) is a point near the data.  With `missing`, NaN is a missing value, and distances
    use the observed values.
    """

    centers: Floats
    feature_weights: Floats | None = None
    shift: Floats | None = None
    missing: bool = False

    def weights(self, r: int) -> Floats | None:
        """Return the feature weights of one set, or None if all are 1."""
        if self.feature_weights is None or (self.feature_weights[r] == 1).all():
            return None
        return self.feature_weights[r]


class Clusters(NamedTuple):
    """Weighted sums (k, p) and weights (k,) of clusters.

    ``masses`` (k, p) are the weights of observed values; None if no value is missing.
    """

    sums: Floats
    counts: Floats
    masses: Floats | None = None

    def means(self, centers: Floats) -> Floats:
        """Return means of observed values; `centers` if a cluster or feature has no values."""
        if self.masses is not None:
            return np.divide(self.sums, self.masses, out=centers.copy(), where=self.masses > 0)
        nonempty = self.counts > 0
        means = centers.copy()
        means[nonempty] = self.sums[nonempty] / self.counts[nonempty, None]
        return means


class ClusterStatistics(NamedTuple):
    """Statistics as in :class:`Clusters` for each set; `inertia` (r, k) is for the old centers."""

    sums: Floats
    counts: Floats
    inertia: Floats
    masses: Floats | None = None

    def of(self, r: int) -> Clusters:
        masses = None if self.masses is None else self.masses[r]
        return Clusters(self.sums[r], self.counts[r], masses)


@lru_cache
def _fields_of(r: int, k: int, n: int) -> Mapping[str, Field]:
    return {"stats": Field((2, r, k, n))}


def _assign_fields(state: CenterSets) -> Mapping[str, Field]:
    r, k, p = state.centers.shape
    return _fields_of(r, k, 2 * p + 2 if state.missing else p + 2)


def _assign_block(rows: RowBlock, state: CenterSets) -> Partial:
    stats, segments = _assign_fields(state)["stats"].identity(), rows.segments()
    for r, centers in enumerate(state.centers):
        statistics = accumulate(
            rows.x,
            centers,
            weight=rows.weight,
            feature_weights=state.weights(r),
            shift=state.shift,
            segments=segments,
            missing=state.missing,
            into=None if state.missing else BlockStatistics(*stats[:, r]),
        )
        if state.missing:
            stats[:, r] = statistics
    return {"stats": stats}


def _assign_finalize(partial: Partial, state: CenterSets) -> ClusterStatistics:
    stats = partial["stats"][0]
    p = state.centers.shape[-1]
    masses = stats[..., p : 2 * p] if state.missing else None
    return ClusterStatistics(stats[..., :p], stats[..., -2], stats[..., -1], masses)


#: Nearest center of every row: sums, weights and squared distances by cluster.
ASSIGN = Reduction("assign", _assign_fields, _assign_block, _assign_finalize)


@dataclass(frozen=True)
class MovedCenters:
    """Centers without feature weights or missing values, and their moves since the last pass."""

    sets: CenterSets
    moves: Moves | None = None


def _kept_fields(state: MovedCenters) -> Mapping[str, Field]:
    return _assign_fields(state.sets)


def _kept_block(rows: RowBlock, state: MovedCenters, bounds: Kept | None) -> tuple[Partial, Kept]:
    stats = _kept_fields(state)["stats"].identity()
    _, kept = accumulate_kept(
        rows.x,
        state.sets.centers[0],
        weight=rows.weight,
        shift=state.sets.shift,
        segments=rows.segments(),
        kept=bounds,
        moves=state.moves,
        into=BlockStatistics(*stats[:, 0]),
    )
    return {"stats": stats}, kept


def _kept_finalize(partial: Partial, state: MovedCenters) -> ClusterStatistics:
    return _assign_finalize(partial, state.sets)


#: The same results as ``ASSIGN``.  Bounds from the last pass show that some labels cannot have
#: changed; distances are computed only for the other rows.
ASSIGN_WITH_BOUNDS = Reduction(
    "assign-kept", _kept_fields, _kept_block, _kept_finalize, carries=True
)


@dataclass(frozen=True)
class FarthestRequest:
    """State of the pass that finds the rows farthest from their centers."""

    centers: Floats
    count: int
    feature_weights: Floats | None = None
    shift: Floats | None = None
    missing: bool = False


def _farthest_fields(state: FarthestRequest) -> Mapping[str, Field]:
    p = state.centers.shape[1]
    # The last two values of a record are weight and cluster.
    return {"rows": Field((state.count,), "top", top_dtype(p + 2))}


def _farthest_block(rows: RowBlock, state: FarthestRequest) -> Partial:
    labels, distances = nearest(
        rows.x,
        state.centers,
        feature_weights=state.feature_weights,
        shift=state.shift,
        missing=state.missing,
    )
    keys = np.negative(distances, out=distances)
    if rows.weight is not None:
        keys[rows.weight == 0] = np.inf
    chosen = smallest(keys, state.count)
    m = len(chosen)
    weight = np.ones(m) if rows.weight is None else rows.weight[chosen]
    out = _farthest_fields(state)["rows"].identity()
    out["key"][:m] = keys[chosen]
    out["row"][:m] = rows.numbers(chosen)
    out["x"][:m] = np.column_stack([dense(rows.x[chosen]), weight, labels[chosen]])
    return {"rows": out}


def _farthest_finalize(partial: Partial, state: FarthestRequest) -> Array:
    records = partial["rows"]
    records = records[records["row"] >= 0]
    return records[off_center(records["x"][:, :-2], -records["key"], state.feature_weights)]


#: Rows farthest from their nearest center, sorted by distance and row number.  The values of a
#: record are the row, its weight and its cluster.  Rows at their center are omitted, because they
#: are not useful as new centers.
FARTHEST = Reduction("farthest", _farthest_fields, _farthest_block, _farthest_finalize)


@dataclass(frozen=True)
class LeafQuery:
    tree: CenterTree
    n_probe: int | None = None


class LeafStatistics(NamedTuple):
    """Weight of the rows of each leaf, and sum of their weighted squared distances to it, (k,)."""

    counts: Floats
    inertia: Floats


def _fields(state: LeafQuery) -> Mapping[str, Field]:
    return {"stats": Field((2, len(state.tree.leaves), 2), "sum")}


def _block(rows: RowBlock, state: LeafQuery) -> Partial:
    k = len(state.tree.leaves)
    labels, squared = nearest_leaf(rows.x, state.tree, state.n_probe)
    weight = np.ones(len(labels)) if rows.weight is None else rows.weight
    cost = np.where(weight > 0, weight * squared, 0.0)
    # A row with NaN has no nearest leaf. Its cost is NaN, and the caller reports the row.
    labels = np.maximum(labels, 0)
    sums = [
        np.column_stack([np.bincount(labels[chunk], values[chunk], k) for values in (weight, cost)])
        for chunk in rows.slices()
    ]
    return {"stats": sum_terms(np.asarray(chunk_sums, np.float64) for chunk_sums in sums)}


def _finalize(partial: Partial, state: LeafQuery) -> LeafStatistics:
    stats = partial["stats"][0]
    return LeafStatistics(stats[:, 0], stats[:, 1])


#: Nearest leaf of every row; weights and squared distances by leaf.
LEAF_STATISTICS = Reduction("leaf-statistics", _fields, _block, _finalize)

"""The pass of DP-means: nearest clusters of all rows, and the clusters that rows found.

In which cluster a row lies depends on the clusters founded before it, anywhere in
the data.  A group of blocks is told which rows of *other* groups are thought to
have founded clusters; its own founders it finds itself, in row order.  If all
groups together find just the founders they were told, these are the founders of
the serial algorithm, and the sums made on the way are its sums.

So the reduction is sequential within a group, and how many clusters its rows found
is decided by the data: O(K p) numbers for K clusters in the end, which
``max_clusters`` bounds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from daskclust._types import Array, Floats, Ints
from daskclust.kernels.compensated import add_pairs, add_plain
from daskclust.kernels.dp_means import found_in_order
from daskclust.kernels.nearest.assign import direct_distances, label_sums, nearest
from daskclust.reduction.contract import Field, Merge, Partial, Reduction, RowBlock

__all__ = ["FOUNDING", "Founders", "Founding", "FoundingRequest"]


@dataclass(frozen=True)
class Founders:
    """Rows that founded clusters, in row order.

    Attributes
    ----------
    rows : ndarray of shape (m,), int64
        Global numbers, ascending.
    points : ndarray of shape (m, p), float64
        Their values.
    """

    rows: Ints
    points: Floats

    @classmethod
    def none(cls, p: int) -> Founders:
        """Return the founders of nothing."""
        return cls(np.empty(0, np.int64), np.empty((0, p)))

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, which: Any) -> Founders:
        return Founders(self.rows[which], self.points[which])

    def joined(self, other: Founders) -> Founders:
        """Return both, in row order."""
        rows = np.concatenate([self.rows, other.rows])
        return Founders(rows, np.concatenate([self.points, other.points]))[np.argsort(rows)]

    def thinned(self, settled: int, delta: float) -> Founders:
        """Drop rows that are within delta of one before them.

        The first ``settled`` stay, whatever their distances.
        """
        kept = np.ones(len(self), bool)
        for i in range(settled, len(self)):
            before = self.points[:i][kept[:i]]
            if len(before):
                kept[i] = direct_distances(self.points[i : i + 1], before).min() > delta
        return self[kept]


@dataclass(frozen=True)
class FoundingRequest:
    """One pass of DP-means.

    Parameters
    ----------
    means : ndarray of shape (k, p), float64
        Clusters at the start of the iteration.
    guess : Founders
        Rows thought to found a cluster in this iteration.
    shift : ndarray of shape (p,), float64
        A point amid the data.
    """

    means: Floats
    guess: Founders
    delta: float
    max_clusters: int | None
    shift: Floats


class Founding(NamedTuple):
    """The result of a pass.

    Attributes
    ----------
    founders : Founders
        That all groups found.
    stats : ndarray of shape (k + m, p + 2), float64
        Sums, weights and squared distances of the means' and of the founders'
        clusters; meaningful where the founders are those of the guess.
    farthest : float
        Largest squared distance of a row to its cluster.
    """

    founders: Founders
    stats: Floats
    farthest: float


def _founder_dtype(p: int) -> np.dtype:
    """Record of a row that founded a cluster, and that cluster's sums as a pair."""
    pair = [(name, np.float64, (p + 2,)) for name in ("hi", "lo")]
    return np.dtype([("row", np.int64), ("x", np.float64, (p,)), *pair])


def _by_row(a: Array, b: Array) -> Array:
    joined = np.concatenate([a, b])
    return joined[np.argsort(joined["row"], kind="stable")]


#: Records of disjoint rows, in row order.
_BY_ROW = Merge("by row", np.empty, _by_row)
_ANY = Merge("any", np.zeros, np.logical_or)


def _fields(state: FoundingRequest) -> Mapping[str, Field]:
    k, p = state.means.shape
    told = len(state.guess)
    return {
        # Sums, weights and squared distances by cluster: of the means and the guessed founders.
        "stats": Field((2, k + told, p + 2)),
        "founders": Field((None,), _BY_ROW, _founder_dtype(p)),
        # Which guessed founders lie among the rows worked through.
        "met": Field((told,), _ANY, np.bool_),
        "farthest": Field((), "max"),
    }


class _Group:
    """The clusters that the rows of a group may join, as it is worked through."""

    def __init__(self, request: FoundingRequest, before: Partial) -> None:
        self.request = request
        known = before["founders"]
        self.own = Founders(known["row"], known["x"])
        self.n_told = before["stats"].shape[1]
        own_stats = np.stack([known["hi"], known["lo"]])
        # A copy, which the rows of the block are added to.
        self.stats = np.concatenate([before["stats"], own_stats], axis=1)
        self._met = before["met"].copy()
        self._known: tuple[int, int] | None = None

    def clusters(self, start: int) -> tuple[Floats, Ints]:
        """Centers older than row ``start``, oldest first, and their places in the sums."""
        guess, k = self.request.guess, len(self.request.means)
        n_before = int(np.searchsorted(guess.rows, start))
        if self._known != (n_before, len(self.own)):
            self._known = n_before, len(self.own)
            told = np.flatnonzero(~self._met[:n_before])
            founders = guess[told].joined(self.own)
            places = np.concatenate([k + told, self.n_told + np.arange(len(self.own))])
            order = np.argsort(np.concatenate([guess.rows[told], self.own.rows]))
            self._centers = np.concatenate([self.request.means, founders.points])
            self._places = np.concatenate([np.arange(k), places[order]])
        return self._centers, self._places

    def capacity(self, n_clusters: int, size: int) -> int:
        """How many clusters rows may found where there are so many."""
        most = self.request.max_clusters
        return size if most is None else max(0, min(size, most - n_clusters))

    def work(self, x: Array, weight: Floats, start: int) -> float:
        """Assign consecutive rows; return the largest squared distance."""
        centers, places = self.clusters(start)
        short, distances = nearest(x, centers, shift=self.request.shift)
        labels = short.astype(np.int64)
        found = found_in_order(
            x,
            weight,
            self.request.delta,
            self.capacity(len(centers), len(x)),
            len(centers),
            labels,
            distances,
        )
        if len(found):
            places = np.concatenate([places, self.stats.shape[1] + np.arange(len(found))])
            self.own = self.own.joined(Founders(start + found, x[found].astype(np.float64)))
            grown = np.zeros((2, len(found), self.stats.shape[2]))
            self.stats = np.concatenate([self.stats, grown], axis=1)
        # Those of the guess that lie here have been found anew, or refuted.
        here = np.searchsorted(self.request.guess.rows, [start, start + len(x)])
        if here[1] > here[0]:
            self._met[here[0] : here[1]] = True
            self._known = None
        sums, weights = label_sums(x, weight, places[labels], self.stats.shape[1])
        inertia = np.bincount(places[labels], weight * distances, self.stats.shape[1])
        terms = np.column_stack([sums, weights, inertia]).astype(np.float64)
        add_plain(self.stats[0].ravel(), self.stats[1].ravel(), terms.ravel())
        return float(distances.max(where=weight > 0, initial=0.0))

    def partial(self, farthest: float) -> Partial:
        """Return what the group has to tell so far."""
        hi, lo = self.stats[:, self.n_told :]
        founders = np.empty(len(self.own), _founder_dtype(self.stats.shape[2] - 2))
        founders["row"], founders["x"] = self.own.rows, self.own.points
        founders["hi"], founders["lo"] = hi, lo
        return {
            "stats": self.stats[:, : self.n_told],
            "founders": founders,
            "met": self._met,
            "farthest": np.array(farthest),
        }


def _block(rows: RowBlock, state: FoundingRequest, before: Partial) -> Partial:
    """Work through a block; O(n K p) for K clusters in the end.

    Memory beyond the block: O(K p), and what a segment of ``SEGMENT`` rows founds.
    """
    group = _Group(state, before)
    farthest = float(before["farthest"])
    weight = np.ones(len(rows.x)) if rows.weight is None else rows.weight
    start = 0
    for stop in rows.segments():
        if stop > start:
            first = int(rows.numbers(np.array([start]))[0])
            part = slice(start, int(stop))
            farthest = max(farthest, group.work(rows.x[part], weight[part], first))
        start = int(stop)
    return group.partial(farthest)


def _finalize(partial: Partial, state: FoundingRequest) -> Founding:
    k = len(state.means)
    own = partial["founders"]
    founders = Founders(own["row"], own["x"])
    # One group alone has never been merged, and its sums are not rounded yet.
    hi, lo = add_pairs(tuple(partial["stats"]), (np.zeros(()), np.zeros(())))
    stats = hi
    if np.array_equal(founders.rows, state.guess.rows):
        told = add_pairs((hi[k:], lo[k:]), (own["hi"], own["lo"]))[0]
        stats = np.concatenate([hi[:k], told])
    return Founding(founders, stats, max(0.0, float(partial["farthest"])))


#: Nearest clusters of all rows, and the clusters that rows found on the way, given a guess.
FOUNDING = Reduction("dp-means", _fields, _block, _finalize, sequential=True)

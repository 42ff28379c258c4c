"""DP-means on row blocks: the number of clusters follows from the price of one.

In which cluster a row lies depends on the clusters founded before it, anywhere in the data.  A
group of blocks is told which rows of *other* groups are thought to have founded clusters; its own
founders it finds itself, in row order.  If all groups together find just the founders they were
told, these and the sums made on the way are those of the serial algorithm.  Partials are as long as
rows found clusters: O(K p) numbers in the end, which ``max_clusters`` bounds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from daskclust.cluster.dpmeans_kernels import found_in_order
from daskclust.cluster.lloyd import useless_clusters
from daskclust.core.array_types import Array, Bools, Floats, Ints
from daskclust.core.engine import Rows
from daskclust.core.estimator.base import BaseClusterer
from daskclust.core.estimator.fit_loop import (
    DataAlone,
    FirstPass,
    OpenData,
    Step,
    draw_seeds,
    row_labels,
)
from daskclust.core.estimator.transforms import EUCLIDEAN
from daskclust.core.estimator.validation import Data, check_integer, check_real
from daskclust.core.initialization.deterministic import farthest_first_delta
from daskclust.core.initialization.sampled import sample_centers
from daskclust.core.kernels.compensated import add_pairs, add_plain
from daskclust.core.kernels.nearest.assign import direct_distances, label_sums, nearest
from daskclust.core.persistence.schema import Entry, Number
from daskclust.core.reduction import ASSIGN, CenterSets, ClusterStatistics, Survey
from daskclust.core.reduction.contract import Field, Merge, Partial, Reduction, RowBlock
from daskclust.core.warn import warn


@dataclass(frozen=True)
class Founders:
    """Rows that founded clusters: global numbers, ascending, and values (m, p)."""

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
        """Drop rows within delta of one before them, but none of the first ``settled``."""
        kept = np.ones(len(self), bool)
        for i in range(settled, len(self)):
            before = self.points[:i][kept[:i]]
            if len(before):
                kept[i] = direct_distances(self.points[i : i + 1], before).min() > delta
        return self[kept]


@dataclass(frozen=True)
class FoundingRequest:
    """One pass of DP-means.

    `means` (k, p): clusters at the start of the iteration. `guess`: rows thought to found one in
    it. `shift` (p,): a point amid the data.
    """

    means: Floats
    guess: Founders
    delta: float
    max_clusters: int | None
    shift: Floats


class Founding(NamedTuple):
    """The founders that all groups found.

    `stats` (k + m, p + 2): sums, weights and squared distances of the means' and of the founders'
    clusters; meaningful where the founders are those of the guess. `farthest`: largest squared
    distance of a row to its cluster.
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

    def work(self, x: Array, weight: Floats, start: int) -> float:
        """Assign consecutive rows; return the largest squared distance."""
        centers, places = self.clusters(start)
        short, distances = nearest(x, centers, shift=self.request.shift)
        labels, most = short.astype(np.int64), self.request.max_clusters
        may_found = len(x) if most is None else max(0, min(len(x), most - len(centers)))
        found = found_in_order(
            x, weight, self.request.delta, may_found, len(centers), labels, distances
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
    """Work through a block; O(n K p) time for K clusters in the end, O(K p) memory beside it."""
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


@dataclass(frozen=True)
class _State:
    """`inertia` and `farthest` (see :class:`Founding`) are of the last assignment.

    `settled`: whether that changed nothing. `repaired`: whether a collapsed fit was repaired.
    """

    centers: Annotated[Floats, "f m p"]
    delta: Annotated[float, "f"]
    inertia: Annotated[float, "f"]
    farthest: Annotated[float, "f"]
    settled: Annotated[bool, "b"]
    repaired: Annotated[bool, "b"]


@dataclass(frozen=True)
class _Problem(DataAlone):
    """DP-means from one cluster, the mean of all rows; from `n_clusters_hint` if delta is None."""

    kind: ClassVar[type[_State]] = _State

    rows: Rows
    survey: Survey
    seeds: tuple[int, ...]
    delta: float | None
    n_clusters_hint: int
    max_clusters: int | None
    max_iter: int
    tolerance: float

    def begin(self) -> _State:
        mean = self.survey.mean
        if self.delta is not None:
            return _State(mean[None], self.delta, np.inf, np.inf, False, False)
        delta = farthest_first_delta(self.rows, mean, self.n_clusters_hint)
        most = self.n_clusters_hint if self.max_clusters is None else self.max_clusters
        centers = self._sampled_centers(min(most, self.n_clusters_hint))
        return _State(centers, delta, np.inf, np.inf, False, False)

    def _sampled_centers(self, k: int) -> Floats:
        """Return the distinct centers, at most `k`, of the initialization of k-means."""
        centers = sample_centers(
            self.rows,
            self.survey,
            "k-means||",
            min(k, self.rows.n_rows),
            self.seeds,
            oversampling_factor=2.0,
            init_rounds=5,
            shift=self.survey.mean,
        )[0]
        _, first = np.unique(centers, axis=0, return_index=True)
        return centers[np.sort(first)]

    def step(self, state: _State) -> Step[_State]:
        """Assign all rows, founding clusters on the way; then move the centers."""
        founders, stats, farthest = self._assign(state)
        p = state.centers.shape[1]
        sums, counts, inertia = stats[:, :p], stats[:, p], float(stats[:, p + 1].sum())
        before = np.concatenate([state.centers, founders.points])
        filled = counts > 0
        centers = sums[filled] / counts[filled, None]
        shift = float(((centers - before[filled]) ** 2).sum())
        same = not len(founders) and bool(filled.all())
        found = _State(
            centers, state.delta, inertia, farthest, same and shift == 0.0, state.repaired
        )
        finished = same and shift <= self.tolerance
        if finished and self.delta is not None and not found.repaired:
            few = useless_clusters(centers, counts[filled], inertia)
            other = self._repaired(found, few) if few.any() else None
            found, finished = other or found, other is None
        return Step(
            state=found,
            objective=found.inertia + found.delta * len(found.centers),
            center_shift=float(np.sqrt(shift)),
            finished=finished,
            extra={
                "n_clusters": len(centers),
                "founded": len(founders),
                "dropped": int(np.count_nonzero(~filled)),
            },
        )

    def _repaired(self, state: _State, few: Bools) -> _State | None:
        """Return the centers of the initialization of k-means if their inertia is smaller."""
        centers = self._sampled_centers(len(state.centers))
        last = CenterSets(centers[None], shift=self.survey.mean)
        stats: ClusterStatistics = self.rows.reduce(ASSIGN, last)
        inertia = float(stats.inertia.sum())
        if not inertia < state.inertia:
            return None
        warn(
            f"{few.sum()} of {len(few)} clusters contained few rows, and these rows are not "
            f"outliers. The fit continued from {len(centers)} centers of k-means.",
            ConvergenceWarning,
        )
        return replace(state, centers=centers, inertia=inertia, repaired=True)

    def _assign(self, state: _State) -> Founding:
        """Find out which rows found clusters, and the sums of all clusters then.

        A pass tells what follows from a guess.  Up to the first row in which both differ, and in
        that row, this is right: so each pass settles the founders of one more group of blocks at
        least, and a guess that is confirmed is right altogether.
        """
        guess = Founders.none(state.centers.shape[1])
        while True:
            request = FoundingRequest(
                state.centers, guess, state.delta, self.max_clusters, self.survey.mean
            )
            told: Founding = self.rows.reduce(FOUNDING, request)
            found = told.founders
            wrong = np.setxor1d(found.rows, guess.rows)
            if not len(wrong):
                return told
            settled = int(np.searchsorted(found.rows, wrong[0], side="right"))
            guess = found.thinned(settled, state.delta)
            if self.max_clusters is not None:
                guess = guess[: max(0, self.max_clusters - len(state.centers))]


class DPMeans(BaseClusterer):
    """DP-means: k-means that founds a cluster wherever a row is too far from all.

    Exactly the serial algorithm of Kulis & Jordan [1]_ (Algorithm 3 of the lecture notes, with
    means moved once an iteration) in row order, whatever the chunks: a row whose squared distance
    to all clusters exceeds delta founds a new one, which the rows after it may join at once.  No
    iteration raises ``inertia + delta K``.

    Parameters
    ----------
    delta : float or None, default=None
        Price of a cluster, lambda of [1]_.  None: suggested from ``n_clusters_hint``, as by
        :func:`daskclust.selection.suggest_delta`; the fit then begins with so many centers, those
        of the initialization of :class:`KMeans`, instead of the mean.
    n_clusters_hint : int, default=8
        Number of clusters wanted, about; used where ``delta`` is None only.
    max_clusters : int or None, default=None
        When there are so many clusters, rows that are too far join the nearest.
    max_iter : int, default=300
        Maximum number of iterations.
    tol : float, default=0.0
        The fit has converged when no cluster is founded or dropped and the squared shift of all
        centers is at most ``tol`` times the mean variance of the features; 0: as in [1]_.
    random_state : int, RandomState, Generator or None, default=None
        Seed of the centers of k-means.  A fit with a given ``delta`` draws nothing unless it
        collapses (see Notes).
    checkpoint : path-like, default=None
        As in :class:`KMeans`.

    Attributes
    ----------
    cluster_centers_ : ndarray of shape (K, p), float64
        Means of the clusters, in the order of their founding.
    n_clusters_ : int
        Number of clusters K.
    delta_ : float
        Price of a cluster that was used.
    labels_ : ndarray or dask.array.Array of shape (n,), int32
        As in :class:`KMeans`.
    inertia_ : float
        Weighted sum of squared distances to the centers.
    objective_ : float
        ``inertia_ + delta_ * n_clusters_``.
    n_iter_ : int
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (p,)
        Names of the columns, where X has names.
    history_ : list of dict
        As in :class:`KMeans`, with ``n_clusters``, ``founded`` and ``dropped`` (left empty).

    Raises
    ------
    ValueError
        For NaN or infinity in X, and parameters out of range.
    CheckpointError
        As in :class:`KMeans`.

    Warns
    -----
    ConvergenceWarning
        If no row founds a cluster, so that there is one; if ``max_clusters`` kept rows from it; if
        a collapsed fit continued from other centers.

    Notes
    -----
    In many dimensions a single row is as far from the rows of its own cluster as from all others,
    and founds a cluster of its own.  If the fit ends with clusters of few rows that are not
    outliers, it continues from as many centers of :class:`KMeans` if their inertia is smaller, with
    a warning.  Nothing else departs from [1]_ for a given delta.

    *Passes*: 1 to check the data, ``n_clusters_hint`` for a suggested delta and those of the
    initialization of :class:`KMeans`, 1 an iteration in
    which no cluster is founded, and 1 at the end unless the centers stood still.  Where
    clusters are founded, each group of blocks finds those of its own rows, given a guess of the
    others; the pass is made again until the guess is confirmed: twice where clusters are well
    separated, at most once a group (a few a worker thread) and once more.

    *Memory* of a worker thread: one block (two, when blocks are read on the way) and O(K p).  *To
    the client*: O(K p) a group and pass.  A delta so small that K grows with n costs O(n K p);
    ``max_clusters`` is the guard.

    A weight counts as so many repetitions of a row.  With weights below 1 the objective may rise
    when such a row founds a cluster.

    References
    ----------
    .. [1] Kulis, B., Jordan, M. (2012). Revisiting k-means: new algorithms via
       Bayesian nonparametrics. ICML.

    Examples
    --------
    >>> import numpy as np
    >>> import daskclust
    >>> X = np.array([[0.0], [1.0], [9.0], [10.0], [20.0]])
    >>> model = daskclust.DPMeans(delta=9.0).fit(X)
    >>> model.n_clusters_, model.labels_, model.objective_
    (3, array([1, 1, 0, 0, 2], dtype=int32), 28.0)
    """

    _saved_state: ClassVar[Mapping[str, Entry]] = {
        "inertia_": Number(low=0),
        "objective_": Number(low=0),
        "delta_": Number(low=0),
        "n_clusters_": Number(int, low=1, dim="k"),
    }
    _resumes_with: ClassVar[tuple[str, ...]] = ("max_iter",)

    def _check_sizes(self) -> None:
        """Nothing to compare: the number of clusters is found."""

    def __init__(
        self,
        delta: float | None = None,
        *,
        n_clusters_hint: int = 8,
        max_clusters: int | None = None,
        max_iter: int = 300,
        tol: float = 0.0,
        random_state: Any = None,
        checkpoint: Any = None,
    ) -> None:
        self.delta = delta
        self.n_clusters_hint = n_clusters_hint
        self.max_clusters = max_clusters
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state
        self.checkpoint = checkpoint

    def _check_parameters(self) -> None:
        if self.delta is not None:
            check_real(self.delta, "delta", 0, boundaries="neither")
        check_integer(self.n_clusters_hint, "n_clusters_hint", 1)
        if self.max_clusters is not None:
            check_integer(self.max_clusters, "max_clusters", 1)
        check_integer(self.max_iter, "max_iter", 1)
        check_real(self.tol, "tol", 0)

    def _read(self, data: Data) -> None:
        """Nothing is given besides X."""

    def _first_pass(self, data: Data, read: None) -> FirstPass:
        return FirstPass(draw_seeds(self.random_state, 1), 1)

    def _problem(self, data: OpenData, read: None) -> _Problem:
        survey = data.survey
        return _Problem(
            data.rows,
            survey,
            data.seeds,
            None if self.delta is None else float(self.delta),
            int(self.n_clusters_hint),
            None if self.max_clusters is None else int(self.max_clusters),
            int(self.max_iter),
            float(self.tol * survey.variance.mean()),
        )

    def _finish(
        self, data: OpenData, problem: _Problem, state: _State, history: list[dict[str, Any]]
    ) -> None:
        inertia = state.inertia
        if not state.settled:
            last = CenterSets(state.centers[None], shift=data.survey.mean)
            inertia = float(data.rows.reduce(ASSIGN, last).inertia.sum())
        self._metric = EUCLIDEAN
        self._centers = self.cluster_centers_ = state.centers
        self.n_clusters_ = len(state.centers)
        self.delta_ = float(state.delta)
        self.inertia_ = inertia
        self.objective_ = self.inertia_ + self.delta_ * self.n_clusters_
        self.n_iter_ = len(history)
        self.history_ = history
        self.labels_ = row_labels(data, self._row_function(data.rows.dtype))
        if state.farthest > state.delta:
            warn(
                f"max_clusters={self.max_clusters} is reached, and a row is still at squared "
                f"distance {state.farthest:.6g} > delta = {state.delta:.6g} of its cluster. Use a "
                "larger max_clusters or delta.",
                ConvergenceWarning,
            )
        elif self.n_clusters_ == 1 and state.delta > 0 and not history[0]["founded"]:
            warn(
                f"No row is farther than delta = {state.delta:.6g} from the mean (the largest "
                f"squared distance is {state.farthest:.6g}), so there is one cluster. Use a "
                "smaller delta for more.",
                ConvergenceWarning,
            )

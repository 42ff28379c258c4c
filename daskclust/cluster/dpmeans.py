"""DP-means on blocks of rows: the cost of a cluster determines the number of clusters.

The cluster of a row depends on clusters of all earlier rows.  A row that begins a cluster is called
its *founder*.  Each group of blocks receives a guess: the founders in *other* groups.  It finds the
founders among its own rows, in row order.  If all groups together find exactly the guessed
founders, the result equals the result of the serial algorithm.  A partial has one record per
founder, O(K p) numbers for K clusters; ``max_clusters`` bounds K.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from daskclust.cluster.dpmeans_kernels import add_founders
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
from daskclust.core.estimator.parameters import COMMON, COUNT, NOT_NEGATIVE, POSITIVE, Constraints
from daskclust.core.estimator.transforms import EUCLIDEAN
from daskclust.core.estimator.validation import Data
from daskclust.core.initialization.centers import initial_centers
from daskclust.core.initialization.deterministic import farthest_first_delta
from daskclust.core.initialization.problem import Initialization
from daskclust.core.kernels.compensated import add_pairs, add_plain
from daskclust.core.kernels.nearest.assign import direct_distances, label_sums, nearest
from daskclust.core.persistence.schema import Entry, Number
from daskclust.core.reduction import ASSIGN, CenterSets, ClusterStatistics, Survey
from daskclust.core.reduction.contract import Field, Merge, Partial, Reduction, RowBlock
from daskclust.core.warn import warn

#: Relative increase of delta for a single cluster, larger than the rounding error of distances.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Founders:
    """Rows that begin clusters: ascending row numbers, and values (m, p)."""

    rows: Ints
    points: Floats

    @classmethod
    def without_rows(cls, p: int) -> Founders:
        """Return an empty set of founders."""
        return cls(np.empty(0, np.int64), np.empty((0, p)))

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: Any) -> Founders:
        return Founders(self.rows[index], self.points[index])

    def joined(self, other: Founders) -> Founders:
        """Return the founders of both sets, in row order."""
        rows = np.concatenate([self.rows, other.rows])
        return Founders(rows, np.concatenate([self.points, other.points]))[np.argsort(rows)]

    def thinned(self, settled: int, delta: float) -> Founders:
        """Drop rows within delta of an earlier row, but keep the first ``settled`` rows."""
        remains = np.ones(len(self), bool)
        for i in range(settled, len(self)):
            before = self.points[:i][remains[:i]]
            if len(before):
                remains[i] = direct_distances(self.points[i : i + 1], before).min() > delta
        return self[remains]


@dataclass(frozen=True)
class FoundingRequest:
    """State of one pass of DP-means.

    `means` (k, p) are the clusters before the iteration.  `guess` are the assumed founders of the
    iteration.  `shift` (p,) is a point near the center of the data.
    """

    means: Floats
    guess: Founders
    delta: float
    max_clusters: int | None
    shift: Floats


class Founding(NamedTuple):
    """Founders of all groups, and sums of the clusters.

    `stats` (k + m, p + 2) are sums, weights and squared distances of the k clusters of the means
    and the m clusters of the founders.  They are valid only if the founders equal the guess.
    `farthest` is the largest squared distance of a row to its cluster.
    """

    founders: Founders
    stats: Floats
    farthest: float


def _founder_dtype(p: int) -> np.dtype:
    """Return the dtype of a founder: its row, and the sums of its cluster as compensated pairs."""
    pair = [(name, np.float64, (p + 2,)) for name in ("hi", "lo")]
    return np.dtype([("row", np.int64), ("x", np.float64, (p,)), *pair])


def _by_row(a: Array, b: Array) -> Array:
    joined = np.concatenate([a, b])
    return joined[np.argsort(joined["row"], kind="stable")]


#: Merge records of disjoint rows in row order.
_BY_ROW = Merge("by row", np.empty, _by_row)
_ANY = Merge("any", np.zeros, np.logical_or)


def _fields(state: FoundingRequest) -> Mapping[str, Field]:
    k, p = state.means.shape
    n_guessed = len(state.guess)
    return {
        # Sums, weights and squared distances of the clusters of means and guessed founders.
        "stats": Field((2, k + n_guessed, p + 2)),
        "founders": Field((None,), _BY_ROW, _founder_dtype(p)),
        # Mask of the guessed founders whose rows have been visited.
        "visited": Field((n_guessed,), _ANY, np.bool_),
        "farthest": Field((), "max"),
    }


class _Group:
    """Clusters that the rows of one group may join, updated while its rows are visited."""

    def __init__(self, request: FoundingRequest, before: Partial) -> None:
        self.request = request
        records = before["founders"]
        self.own_founders = Founders(records["row"], records["x"])
        self.n_guessed = before["stats"].shape[1]
        founder_sums = np.stack([records["hi"], records["lo"]])
        # A copy, because the rows of the block are added to it.
        self.stats = np.concatenate([before["stats"], founder_sums], axis=1)
        self._visited = before["visited"].copy()
        self._cached_for: tuple[int, int] | None = None

    def clusters(self, start: int) -> tuple[Floats, Ints]:
        """Return the centers that exist before row ``start``, and their rows in the sums."""
        guess, k = self.request.guess, len(self.request.means)
        n_before = int(np.searchsorted(guess.rows, start))
        if self._cached_for != (n_before, len(self.own_founders)):
            self._cached_for = n_before, len(self.own_founders)
            pending = np.flatnonzero(~self._visited[:n_before])
            founders = guess[pending].joined(self.own_founders)
            rows_of_sums = np.concatenate(
                [k + pending, self.n_guessed + np.arange(len(self.own_founders))]
            )
            order = np.argsort(np.concatenate([guess.rows[pending], self.own_founders.rows]))
            self._centers = np.concatenate([self.request.means, founders.points])
            self._rows_of_sums = np.concatenate([np.arange(k), rows_of_sums[order]])
        return self._centers, self._rows_of_sums

    def assign_rows(self, x: Array, weight: Floats, start: int) -> float:
        """Assign consecutive rows; return the largest squared distance."""
        centers, rows_of_sums = self.clusters(start)
        nearest_labels, distances = nearest(x, centers, shift=self.request.shift)
        labels, limit = nearest_labels.astype(np.int64), self.request.max_clusters
        max_new = len(x) if limit is None else max(0, min(len(x), limit - len(centers)))
        new_rows = add_founders(
            x, weight, self.request.delta, max_new, len(centers), labels, distances
        )
        if len(new_rows):
            rows_of_sums = np.concatenate(
                [rows_of_sums, self.stats.shape[1] + np.arange(len(new_rows))]
            )
            self.own_founders = self.own_founders.joined(
                Founders(start + new_rows, x[new_rows].astype(np.float64))
            )
            no_sums = np.zeros((2, len(new_rows), self.stats.shape[2]))
            self.stats = np.concatenate([self.stats, no_sums], axis=1)
        # Guessed founders among these rows are known to be right or wrong now.
        guessed = np.searchsorted(self.request.guess.rows, [start, start + len(x)])
        if guessed[1] > guessed[0]:
            self._visited[guessed[0] : guessed[1]] = True
            self._cached_for = None
        sums, weights = label_sums(x, weight, rows_of_sums[labels], self.stats.shape[1])
        inertia = np.bincount(rows_of_sums[labels], weight * distances, self.stats.shape[1])
        terms = np.column_stack([sums, weights, inertia]).astype(np.float64)
        add_plain(self.stats[0].ravel(), self.stats[1].ravel(), terms.ravel())
        return float(distances.max(where=weight > 0, initial=0.0))

    def partial(self, farthest: float) -> Partial:
        """Return the partial of the rows visited so far."""
        hi, lo = self.stats[:, self.n_guessed :]
        founders = np.empty(len(self.own_founders), _founder_dtype(self.stats.shape[2] - 2))
        founders["row"], founders["x"] = self.own_founders.rows, self.own_founders.points
        founders["hi"], founders["lo"] = hi, lo
        return {
            "stats": self.stats[:, : self.n_guessed],
            "founders": founders,
            "visited": self._visited,
            "farthest": np.array(farthest),
        }


def _block(rows: RowBlock, state: FoundingRequest, before: Partial) -> Partial:
    """Visit the rows of a block; O(n K p) time for K clusters in the end, O(K p) extra memory."""
    group = _Group(state, before)
    farthest = float(before["farthest"])
    weight = np.ones(len(rows.x)) if rows.weight is None else rows.weight
    start = 0
    for stop in rows.segments():
        if stop > start:
            first = int(rows.numbers(np.array([start]))[0])
            segment = slice(start, int(stop))
            farthest = max(farthest, group.assign_rows(rows.x[segment], weight[segment], first))
        start = int(stop)
    return group.partial(farthest)


def _finalize(partial: Partial, state: FoundingRequest) -> Founding:
    k = len(state.means)
    records = partial["founders"]
    founders = Founders(records["row"], records["x"])
    # Round the sums of a single group, which were not merged.
    hi, lo = add_pairs(tuple(partial["stats"]), (np.zeros(()), np.zeros(())))
    stats = hi
    if np.array_equal(founders.rows, state.guess.rows):
        founder_stats = add_pairs((hi[k:], lo[k:]), (records["hi"], records["lo"]))[0]
        stats = np.concatenate([hi[:k], founder_stats])
    return Founding(founders, stats, max(0.0, float(partial["farthest"])))


#: Find the nearest clusters of all rows and the founders, for a guess of the founders.
FOUNDING = Reduction("dp-means", _fields, _block, _finalize, sequential=True)


@dataclass(frozen=True)
class _State:
    """State between iterations.

    `inertia` and `farthest` (see :class:`Founding`) belong to the last assignment.  `settled` is
    True if this assignment changed nothing.  `repaired` is True if a collapsed fit was repaired.
    """

    centers: Annotated[Floats, "f m p"]
    delta: Annotated[float, "f"]
    inertia: Annotated[float, "f"]
    farthest: Annotated[float, "f"]
    settled: Annotated[bool, "b"]
    repaired: Annotated[bool, "b"]


@dataclass(frozen=True)
class _Problem(DataAlone):
    """DP-means that begins at the mean of all rows, or without delta at centers of k-means."""

    kind: ClassVar[type[_State]] = _State

    data: OpenData
    delta: float | None
    n_clusters_hint: int
    max_clusters: int | None
    max_iter: int
    tolerance: float

    @property
    def rows(self) -> Rows:
        return self.data.rows

    @property
    def survey(self) -> Survey:
        survey: Survey = self.data.survey
        return survey

    def begin(self) -> _State:
        mean = self.survey.mean
        if self.delta is not None:
            return _State(mean[None], self.delta, np.inf, np.inf, False, False)
        delta = farthest_first_delta(self.rows, mean, self.n_clusters_hint)
        if self.n_clusters_hint == 1:
            # The rounding error of the mean must not make the farthest row a founder.
            return _State(mean[None], delta * (1 + _ROUNDING), np.inf, np.inf, False, False)
        limit = self.n_clusters_hint if self.max_clusters is None else self.max_clusters
        centers = self._sampled_centers(min(limit, self.n_clusters_hint))
        return _State(centers, delta, np.inf, np.inf, False, False)

    def _sampled_centers(self, k: int) -> Floats:
        k = min(k, self.rows.n_rows)
        centers = initial_centers(Initialization(self.data, k))[0]
        _, first = np.unique(centers, axis=0, return_index=True)
        return centers[np.sort(first)]

    def step(self, state: _State) -> Step[_State]:
        """Assign all rows and create clusters for far rows; then move the centers."""
        founders, stats, farthest = self._assign(state)
        p = state.centers.shape[1]
        sums, counts, inertia = stats[:, :p], stats[:, p], float(stats[:, p + 1].sum())
        before = np.concatenate([state.centers, founders.points])
        filled = counts > 0
        centers = sums[filled] / counts[filled, None]
        shift = float(((centers - before[filled]) ** 2).sum())
        no_change = not len(founders) and bool(filled.all())
        new_state = _State(
            centers, state.delta, inertia, farthest, no_change and shift == 0.0, state.repaired
        )
        finished = no_change and shift <= self.tolerance
        if finished and self.delta is not None and not new_state.repaired:
            useless = useless_clusters(centers, counts[filled], inertia)
            restarted = self._repaired(new_state, useless) if useless.any() else None
            new_state, finished = restarted or new_state, restarted is None
        return Step(
            state=new_state,
            objective=new_state.inertia + new_state.delta * len(new_state.centers),
            center_shift=float(np.sqrt(shift)),
            finished=finished,
            extra={
                "n_clusters": len(new_state.centers),
                "founded": len(founders),
                "dropped": int(np.count_nonzero(~filled)),
            },
        )

    def _repaired(self, state: _State, useless: Bools) -> _State | None:
        """Return a state with centers of the initialization of k-means if they are better."""
        centers = self._sampled_centers(len(state.centers))
        center_sets = CenterSets(centers[None], shift=self.survey.mean)
        stats: ClusterStatistics = self.rows.reduce(ASSIGN, center_sets)
        inertia = float(stats.inertia.sum())
        if not inertia < state.inertia:
            return None
        warn(
            f"{useless.sum()} of {len(useless)} clusters contained few rows, and these rows are "
            f"not outliers. The fit continued from {len(centers)} centers of k-means.",
            ConvergenceWarning,
        )
        return replace(state, centers=centers, inertia=inertia, repaired=True)

    def _assign(self, state: _State) -> Founding:
        """Find the founders and the sums of all clusters.

        A pass returns the founders that follow from a guess.  They are correct up to and including
        the first founder that differs from the guess.  So each pass makes the founders of at least
        one more group correct.  If the pass returns the guess, all founders are correct.
        """
        guess = Founders.without_rows(state.centers.shape[1])
        while True:
            request = FoundingRequest(
                state.centers, guess, state.delta, self.max_clusters, self.survey.mean
            )
            result: Founding = self.rows.reduce(FOUNDING, request)
            new_guess = result.founders
            differing = np.setxor1d(new_guess.rows, guess.rows)
            if not len(differing):
                return result
            settled = int(np.searchsorted(new_guess.rows, differing[0], side="right"))
            guess = new_guess.thinned(settled, state.delta)
            if self.max_clusters is not None:
                guess = guess[: max(0, self.max_clusters - len(state.centers))]


class DPMeans(BaseClusterer):
    """DP-means: k-means that finds the number of clusters from a distance.

    Use it when you know how far a row may be from its center, but not the number of clusters.  If
    you know the number, use :class:`KMeans`.  If clusters have any shape, use :class:`HDBSCAN`.

    A row whose squared distance to all centers exceeds ``delta`` becomes a new cluster.

    The fit minimizes ``inertia + delta K`` over the number of clusters K and their means [1]_.

    Parameters
    ----------
    delta : float or None, default=None
        Cost of a cluster (lambda of [1]_), and squared distance above which a row becomes a new
        cluster.  If None, :func:`daskclust.selection.suggest_delta` chooses it for about
        ``n_clusters_hint`` clusters, and initial centers of :class:`KMeans` replace the initial
        mean of all rows.
    n_clusters_hint : int, default=8
        Approximate number of clusters.  Used only for ``delta=None``.
    max_clusters : int or None, default=None
        Maximum number of clusters.  At this number, far rows join the nearest cluster.
    max_iter : int, default=300
        Maximum number of iterations.
    tol : float, default=0.0
        The fit has converged when the set of clusters is unchanged and the squared shift of all
        centers is at most ``tol`` times the mean variance of the features.
    random_state : int, RandomState, Generator or None, default=None
        Seed for the initial centers of k-means.  A fit with ``delta`` uses them only if it
        collapses (see Notes).
    checkpoint : path-like, default=None
        As in :class:`KMeans`.

    Attributes
    ----------
    cluster_centers_ : ndarray of shape (K, p), float64
        Means of the clusters, oldest first.
    n_clusters_ : int
        Number of clusters K.
    delta_ : float
        Cost of a cluster: ``delta``, or the chosen value.
    labels_ : ndarray or dask.array.Array of shape (n,), int32
        As in :class:`KMeans`.
    inertia_ : float
        Weighted sum of squared distances to the centers.
    objective_ : float
        ``inertia_ + delta_ * n_clusters_``.
    n_iter_ : int
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (p,)
        Names of the columns, if X has names.
    history_ : list of dict
        As in :class:`KMeans`, with the numbers of clusters (``n_clusters``), of new clusters
        (``founded``) and of removed empty clusters (``dropped``).

    Raises
    ------
    ValueError, CheckpointError
        As in :class:`KMeans`.

    See Also
    --------
    KMeans : K-means with a given number of clusters.
    HDBSCAN : Density-based clusters, without a number of clusters.
    daskclust.selection.suggest_delta : Suggest ``delta`` for a number of clusters.

    Notes
    -----
    For any chunks, each iteration equals the serial algorithm in row order.  The user guide
    ("k-means") describes collapsed fits, warnings, passes and memory.

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
        """Do nothing: the number of clusters is a result."""

    _parameter_constraints: ClassVar[Constraints] = {
        "delta": [POSITIVE, None],
        "n_clusters_hint": [COUNT],
        "max_clusters": [COUNT, None],
        "max_iter": [COUNT],
        "tol": [NOT_NEGATIVE],
        **COMMON,
    }

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

    def _read(self, data: Data) -> None:
        """Do nothing: X is the only input."""

    def _first_pass(self, data: Data, read: None) -> FirstPass:
        return FirstPass(draw_seeds(self.random_state, 1), 1)

    def _problem(self, data: OpenData, read: None) -> _Problem:
        survey = data.survey
        return _Problem(
            data,
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
            center_sets = CenterSets(state.centers[None], shift=data.survey.mean)
            inertia = float(data.rows.reduce(ASSIGN, center_sets).inertia.sum())
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
                f"max_clusters={self.max_clusters} is reached, but the squared distance of a row "
                f"to its cluster is {state.farthest:.6g}, more than delta = {state.delta:.6g}. "
                "Use a larger max_clusters or delta.",
                ConvergenceWarning,
            )
        elif self.n_clusters_ == 1 and state.delta > 0 and not history[0]["founded"]:
            warn(
                f"The fit ended with one cluster: no row is farther than delta = {state.delta:.6g} "
                f"from the mean (the largest squared distance is {state.farthest:.6g}). Use a "
                "smaller delta for more clusters.",
                ConvergenceWarning,
            )

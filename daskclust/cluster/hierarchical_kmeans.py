"""K-means in levels, for very many clusters."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from daskclust.cluster.kmeans import (
    KMeans,
    batch_record,
    can_follow,
    check_batch,
    fit_first_batch,
)
from daskclust.cluster.level_fit import HierarchyProblem
from daskclust.cluster.level_sizes import totals_of
from daskclust.cluster.level_updates import (
    LEAF_SUMS,
    Insertion,
    LargeLeaf,
    LeafSums,
    divide_leaf,
    group_leaves,
)
from daskclust.cluster.lloyd import LloydProblem
from daskclust.core.array_types import Array as AnyArray
from daskclust.core.array_types import Floats, Ints
from daskclust.core.engine import (
    Rows,
    as_matrix,
    map_independent,
    map_rows,
    open_rows,
    working_dtype,
)
from daskclust.core.estimator.base import BaseClusterer, warn_few_distinct
from daskclust.core.estimator.fit_loop import (
    FirstPass,
    OpenData,
    best_restart,
    draw_seeds,
    fit,
    row_labels,
)
from daskclust.core.estimator.parameters import (
    COMMON,
    COUNT,
    NOT_NEGATIVE,
    Constraints,
    Interval,
    StrOptions,
)
from daskclust.core.estimator.row_functions import check_block, check_squares
from daskclust.core.estimator.transforms import Metric
from daskclust.core.estimator.validation import (
    Data,
    check_enough_rows,
    check_integer,
    check_rows,
    check_weight,
    forget_range,
)
from daskclust.core.kernels.nearest.k_nearest import CenterTree, nearest_leaf
from daskclust.core.persistence.mixin import OF_CLASSES
from daskclust.core.persistence.schema import Array, Number
from daskclust.core.reduction import Survey
from daskclust.core.reduction.assign import LEAF_STATISTICS, LeafQuery
from daskclust.core.storage.shuffle_files import Spill
from daskclust.core.warn import warn

MetricName = Literal["euclidean", "cosine"]
#: Minimum width of a leaf, as a multiple of the rounding error of float32.
_MIN_WIDTH = 8
#: Maximum number of empty leaves that a warning lists.
_MAX_LISTED = 100


class HierarchicalKMeans(BaseClusterer):
    """K-means in levels, for a thousand to a million clusters of rows that exceed the memory.

    Use it when you need 1000 clusters or more, for example to deduplicate or index embeddings, and
    :class:`KMeans` takes too long.  With fewer clusters, use :class:`KMeans`, which is more
    accurate.

    The clusters of the first level are the *parents*.  The rows of each parent are clustered
    separately, into *leaves* or into the parents of a further level.  Refinements then move each
    leaf to the mean of its nearest rows.

    Parameters
    ----------
    n_clusters : int or tuple of int, default=8
        Number of clusters:

        - an integer k: k leaves.  There are two levels for k of at least 1000, else one level.
        - a tuple ``(m, c, ...)``: m parents, with c children per parent on average, and so on.
    n_probe : int or "all", default=4
        Number of nearest parents of each level whose children are compared with a row.
    refine : int, default=1
        Number of refinements.
    metric : {"euclidean", "cosine"}, default="euclidean"
        As in :class:`KMeans`.
    max_iter : int, default=25
        Maximum number of iterations of each level.
    tol : float, default=1e-4
        As in :class:`KMeans`.
    max_cluster_size : int, default=None
        Maximum total weight of the rows of a leaf.  Larger leaves are divided at the end.
    spill : path-like or str, default=None
        Folder or URL for temporary files.  All workers must have access to it under the same name.
        Default: the folder of the checkpoint, else Dask's ``temporary-directory``, else the folder
        of the system.
    random_state : int, RandomState, Generator or None, default=None
        An int gives the same result for any chunks, scheduler and number of workers.
    checkpoint : path-like, default=None
        As in :class:`KMeans`.

    Attributes
    ----------
    cluster_centers_ : ndarray of shape (k, p), float32
        Leaves, ordered by parent.
    parents_ : ndarray of shape (k,), int64
        Parent of each leaf, in the level above.
    level_centers_ : list of ndarray
        Centers of each level: float64 for the first level, float32 for the other levels.
    labels_ : ndarray or dask.array.Array of shape (n,), int32
        Leaf of each row, see :meth:`predict`.
    counts_ : ndarray of shape (k,), float64
        Total weight of the rows of each leaf.
    empty_leaves_ : ndarray, int64
        Numbers of the leaves without rows.
    inertia_ : float
        Weighted sum of squared distances of the rows to their leaves.
    n_iter_ : int
        Iterations of the first level.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (p,)
        Names of the columns, if X has names.
    history_ : list of dict
        As in :class:`KMeans`, with records of groups of parents, refinements, and the final count.

    Raises
    ------
    ValueError, CheckpointError
        As in :class:`KMeans`, and for float64 values that float32 leaves cannot represent.
    OSError
        If the folder for temporary files is full, or if some workers have no access to it.

    See Also
    --------
    KMeans : One level, exact.
    deduplicate : Select one row of each group of near duplicates.

    Notes
    -----
    The user guide ("k-means") describes passes, memory and accuracy.

    References
    ----------
    .. [1] Nister, D., Stewenius, H. (2006). Scalable recognition with a vocabulary tree. CVPR.

    Examples
    --------
    >>> import numpy as np, daskclust
    >>> X = np.array([[0.0], [1.0], [10.0], [12.0], [50.0], [55.0]], np.float16)
    >>> model = daskclust.HierarchicalKMeans((2, 2), random_state=0).fit(X)
    >>> model.parents_.tolist(), sorted(model.cluster_centers_.ravel().tolist())
    ([0, 0, 0, 1], [0.5, 10.0, 12.0, 52.5])
    """

    _saved_state: ClassVar[Mapping[str, Any]] = {
        "inertia_": Number(low=0),
        "counts_": Array("k", low=0),
        "_centers": None,
        "_above": Array("s p"),
        "_sizes": Array("s", kind="i", low=1),
        "_n_top": Number(int, low=1),
    }
    _resumes_with: ClassVar[tuple[str, ...]] = ("spill",)

    _parameter_constraints: ClassVar[Constraints] = {
        "n_clusters": [COUNT, tuple, list],
        "n_probe": [COUNT, StrOptions("all")],
        "refine": [Interval(Integral, 0)],
        "metric": [StrOptions("euclidean", "cosine")],
        "max_iter": [COUNT],
        "tol": [NOT_NEGATIVE],
        "max_cluster_size": [COUNT, None],
        "spill": [str, os.PathLike, None],
        **COMMON,
    }

    def __init__(
        self,
        n_clusters: Any = 8,
        *,
        n_probe: Any = 4,
        refine: int = 1,
        metric: MetricName = "euclidean",
        max_iter: int = 25,
        tol: float = 1e-4,
        max_cluster_size: int | None = None,
        spill: Any = None,
        random_state: Any = None,
        checkpoint: Any = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.n_probe = n_probe
        self.refine = refine
        self.metric = metric
        self.max_iter = max_iter
        self.tol = tol
        self.max_cluster_size = max_cluster_size
        self.spill = spill
        self.random_state = random_state
        self.checkpoint = checkpoint

    # Set by fit.  `_above`: centers of all levels except the leaves, transformed by the metric and
    # ordered by level.  `_n_top`: number of centers of the first level.  `_sizes`: number of
    # children of each center.
    _above: Floats
    _n_top: int
    _sizes: Ints

    def _check_parameters(self) -> None:
        super()._check_parameters()
        levels = self.n_clusters if isinstance(self.n_clusters, tuple | list) else [self.n_clusters]
        if not levels:
            raise ValueError(
                f"n_clusters must be an integer or a tuple of clusters per level, got "
                f"{self.n_clusters!r}. For 1000 parents with 100 children each, use (1000, 100)."
            )
        for level in levels:
            check_integer(level, "n_clusters", 1)

    @property
    def _totals(self) -> tuple[int, ...]:
        return totals_of(self.n_clusters)

    @property
    def _has_one_level(self) -> bool:
        return self._totals[0] == self._totals[-1] and self.max_cluster_size is None

    @property
    def _probe(self) -> int | None:
        return None if self.n_probe == "all" else int(self.n_probe)

    def _kmeans(self, k: int, seed: Any) -> KMeans:
        return KMeans(
            k, max_iter=self.max_iter, tol=self.tol, metric=self.metric, random_state=seed
        )

    def fit(self, X: Any, y: Any = None, *, sample_weight: Any = None) -> Self:
        """Find the clusters.

        Parameters
        ----------
        X : array-like, dask.array.Array, DataFrame or xarray.DataArray of shape (n, p)
            Rows to cluster.
        y : ignored
        sample_weight : array-like or dask.array.Array of shape (n,), optional
            Weights of the rows: an integer weight equals repetition, 0 absence.
            Cubes also accept an image (y, x) and ``"area"``; see
            :meth:`daskclust.Cube.row_weights`.

        Returns
        -------
        self
        """
        with Spill(self._spill_base()) as spill:
            return fit(self, X, sample_weight, spill=spill)

    @available_if(can_follow)
    def partial_fit(self, X: Any, y: Any = None, *, sample_weight: Any = None) -> Self:
        """Update the leaves with one batch of rows, for example of a stream.

        Each leaf moves to the mean of all rows that were assigned to it in any batch (``counts_``
        is their weight).  Parents do not move.  A call is one batch for any chunks.

        With ``max_cluster_size``, leaves above the limit are divided by k-means of their rows in
        the batch.  Earlier rows are not stored, and are assumed to be distributed around their mean
        like the rows of the batch.  The center of a part is the mean of the leaf, plus the
        deviation of the rows of the part from the mean of the batch.  The weight is divided in
        proportion.  A leaf with fewer than two distinct rows in the batch is not divided.

        Parameters
        ----------
        X : array-like, dask.array.Array, DataFrame or xarray.DataArray of shape (n, p)
            The batch.  The first batch is a :meth:`fit`, with at least as many rows as leaves.
        y : ignored
        sample_weight : array-like or dask.array.Array of shape (n,), optional

        Returns
        -------
        self
            ``labels_`` are the labels of the batch for the new leaves, ``inertia_`` is the inertia
            of the batch for the previous leaves, ``n_iter_`` counts batches (and iterations of
            ``fit``), and ``history_`` has one more record.

        Raises
        ------
        ValueError
            For rows with another number of features, NaN or infinity, means that float32 cannot
            represent, invalid weights, and parameters that do not match the fit.
        AttributeError
            For ``metric="cosine"``.
        OSError
            As in :meth:`fit`, if leaves are divided.

        Notes
        -----
        *Passes*: 1 per batch, and 1 if leaves are divided, which writes their rows to temporary
        files.  Division changes the numbers of later leaves, and removes the names of clusters.  A
        call that fails changes nothing.  ``checkpoint`` is for ``fit`` only; use :meth:`save` to
        store the state between batches.

        Leaves are float32.  A batch does not move a leaf by less than the rounding error of
        float32.

        Examples
        --------
        >>> import numpy as np, daskclust
        >>> X = np.array([[0.0], [2.0], [10.0], [50.0]], np.float32)
        >>> model = daskclust.HierarchicalKMeans((2, 2), random_state=0).fit(X)
        >>> model = model.partial_fit(np.array([[53.0], [56.0]], np.float32))
        >>> model.cluster_centers_.ravel().max(), model.counts_.max()
        (np.float32(53.0), np.float64(3.0))
        """
        self._check_parameters()
        if not hasattr(self, "cluster_centers_"):
            fit_first_batch(self, X, sample_weight, checkpoint=None, spill=self._spill_base())
            return self
        self._check_sizes()
        if len(self.cluster_centers_) < self._totals[-1]:
            raise ValueError(
                f"n_clusters={self.n_clusters!r} gives {self._totals[-1]} leaves, but the model "
                f"has {len(self.cluster_centers_)}, because the rows of its fit have few distinct "
                "values. Fit the model again, with more rows or fewer clusters."
            )
        start_time = time.perf_counter()
        X, sample_weight, passes = check_batch(self, X, sample_weight)
        rows = open_rows(X, check_weight(sample_weight, X))
        query = self._query(rows)
        stats: LeafSums = rows.reduce(LEAF_SUMS, query)
        if not np.isfinite(stats.inertia):
            # This raises an error that names the invalid row.
            self._assigned(X, sample_weight)
        tree, counts, updated = query.tree, self.counts_.copy(), stats.leaves
        old_centers = tree.leaves[updated].astype(np.float64)
        sums = old_centers * counts[updated, None] + stats.sums
        counts[updated] += stats.counts
        means = sums / counts[updated, None]
        if np.abs(means).max(initial=0.0) > np.finfo(np.float32).max:
            raise ValueError(
                "X must have values that float32 can represent, because this is the type of the "
                f"leaves, got a mean of {np.abs(means).max():.3g}. Rescale X."
            )
        leaves = tree.leaves.copy()
        leaves[updated] = means
        draft = copy(self)
        large = updated[counts[updated] > (self.max_cluster_size or np.inf)]
        if self._is_flat:
            draft._above = leaves
        if len(large):
            passes += 1
            leaves, counts, sizes = self._divided(X, rows, query, large, leaves, counts)
            draft._sizes = np.concatenate([self._sizes[: -len(sizes)], sizes])
        if len(leaves) > len(tree.leaves):
            for name in OF_CLASSES:
                draft.__dict__.pop(name, None)
        draft.cluster_centers_, draft.counts_ = leaves.astype(np.float32), counts
        function = draft._leaf_function(working_dtype(X.dtype))
        draft.labels_ = map_rows(X, function, dtype=np.int32, name="predict")
        record = batch_record(self, stats.inertia, means - old_centers, start_time, passes + 1)
        draft.inertia_, draft.n_iter_ = stats.inertia, record["iteration"]
        draft.history_ = [*self.history_, record]
        forget_range(draft)  # the range of the previous data
        self.__dict__ = draft.__dict__
        return self

    def _divided(
        self, X: Any, rows: Rows, query: LeafQuery, large: Ints, leaves: AnyArray, counts: Floats
    ) -> tuple[AnyArray, Floats, Ints]:
        """Divide large leaves by their rows; return all leaves, weights and numbers of children."""
        assert self.max_cluster_size is not None
        seed_of_fit = draw_seeds(self.random_state, 1)[0]
        seeds = np.random.SeedSequence([seed_of_fit, len(self.history_)]).generate_state(len(large))
        tasks = [
            LargeLeaf(position, leaves[leaf].astype(np.float64), float(counts[leaf]), int(seed))
            for position, (leaf, seed) in enumerate(zip(large.tolist(), seeds, strict=True))
        ]
        with Spill(self._spill_base()) as spill:
            grouping = group_leaves(X, rows, query, large, spill)
            shared = (grouping, self._kmeans(1, None), int(self.max_cluster_size))
            parts = map_independent(X, "divide", divide_leaf, shared, tasks)
        centers, weights = zip(*parts, strict=True)
        starts = query.tree.starts[-1] if query.tree.starts else np.arange(len(leaves) + 1)
        inserted = Insertion.of(large, list(map(len, centers)), starts)
        return inserted.put(leaves, centers), inserted.put(counts, weights), inserted.sizes

    def _spill_base(self) -> Any:
        if self.spill is not None:
            return self.spill
        path = getattr(self.checkpoint, "path", self.checkpoint)
        return None if path is None else Path(path).absolute().parent

    def _read(self, data: Data, spill: Spill | None = None) -> Spill:
        check_enough_rows(data, self._totals[-1])
        if spill is None:
            raise TypeError(
                "HierarchicalKMeans is not supported in grids of daskclust.selection, because its "
                "fits cannot share passes. Use KMeans, on a sample if there are many rows, or "
                "compare inertia_ of separate fits."
            )
        if not self._has_one_level:
            spill.check()
        return spill

    def _first_pass(self, data: Data, read: Spill) -> FirstPass:
        return self._kmeans(self._totals[0], self.random_state)._first_pass(data, None)

    def _problem(self, data: OpenData, read: Spill) -> LloydProblem | HierarchyProblem:
        totals = self._totals
        if data.rows.dtype == np.float64:
            _check_precision(data.survey, totals[-1])
        top = self._kmeans(totals[0], None)._problem(data, None)
        if self._has_one_level:
            return top
        return HierarchyProblem(
            data.X,
            top,
            totals,
            self._probe,
            int(self.refine),
            None if self.max_cluster_size is None else int(self.max_cluster_size),
            self._kmeans(1, None),
            read,
            data.seeds[0],
        )

    def _finish(
        self,
        data: OpenData,
        problem: LloydProblem | HierarchyProblem,
        state: Any,
        history: list[dict[str, Any]],
    ) -> None:
        if isinstance(problem, LloydProblem):
            state = problem.settle(state)
            best = best_restart(state.inertia)
            self._metric = problem.metric
            self.counts_, self.inertia_ = state.counts[best], float(state.inertia[best])
            self._above = top = state.centers[best]
            self._sizes = np.ones(len(top), np.int64)
            self.cluster_centers_ = top.astype(np.float32)
        else:
            best = 0
            self._metric = problem.top.metric
            self.counts_, self.inertia_ = state.leaf_counts, float(state.leaf_inertia)
            top, *between, self.cluster_centers_ = state.tree.levels
            self._above, self._sizes = np.concatenate([top, *between]), state.sizes
        self._n_top = len(top)
        self.n_iter_ = int(state.n_iter[best])
        self.history_ = history
        distinct = len(np.unique(self.cluster_centers_, axis=0))
        warn_few_distinct(distinct, max(len(self.cluster_centers_), self._totals[-1]))
        empty = self.empty_leaves_
        if len(empty):
            ellipsis = ", ..." if len(empty) > _MAX_LISTED else ""
            warn(
                f"{len(empty)} of {len(self.counts_)} leaves are empty: "
                f"{', '.join(map(str, empty[:_MAX_LISTED].tolist()))}{ellipsis} (empty_leaves_). "
                "No row has these labels. Use fewer clusters, or ignore these centers.",
                ConvergenceWarning,
            )
        self.labels_ = row_labels(data, self._leaf_function(data.rows.dtype))

    @property
    def empty_leaves_(self) -> Ints:
        """Numbers of the leaves without rows."""
        check_is_fitted(self)
        return np.flatnonzero(self.counts_ <= 0)

    @property
    def _is_flat(self) -> bool:
        return len(self._above) == len(self.cluster_centers_) == self._n_top

    @property
    def _centers(self) -> AnyArray:  # type: ignore[override]
        """Leaves, transformed by the metric."""
        return self._above if self._is_flat else self.cluster_centers_

    def _tree(self) -> CenterTree:
        top, between = np.split(self._above, [self._n_top])
        nodes = np.concatenate([between.astype(np.float32), self.cluster_centers_])
        return CenterTree.of(top, self._sizes, nodes)

    @property
    def level_centers_(self) -> list[AnyArray]:
        """Centers of each level, the first level first."""
        check_is_fitted(self)
        return list(self._tree().levels)

    @property
    def parents_(self) -> Ints:
        """Parent of each leaf."""
        check_is_fitted(self)
        sizes = np.diff(self._tree().starts[-1])
        return np.repeat(np.arange(len(sizes)), sizes)

    def _leaf_function(self, dtype: Any, depth: int = 0) -> LeafFunction:
        """Return the function that assigns rows to a level (1, 2, ...), or to leaves for 0."""
        tree = CenterTree((self._above[: self._n_top],), ()) if self._is_flat else self._tree()
        names = getattr(self, "feature_names_in_", None)
        centers = tree.upto(depth or len(tree.levels))
        return LeafFunction(centers, self._probe, self._metric, dtype, names)

    def predict(self, X: Any, level: int = -1) -> Any:
        """Return the nearest leaf of each row, among the leaves of its nearest parents.

        Parameters
        ----------
        X : array-like or dask.array.Array of shape (n_samples, n_features)
        level : int, default=-1
            Level whose labels are returned: 0 is the first, -1 the leaves.

        Returns
        -------
        labels : ndarray or dask.array.Array of shape (n_samples,), int32
            Lazy, with the chunks of X, for a Dask array.  Values of X are then checked during the
            computation.

        Raises
        ------
        ValueError
            For NaN and infinity, another number of features, and a level that does not exist.
        """
        check_is_fitted(self)
        n_levels = len(self.level_centers_)
        if not isinstance(level, int | np.integer) or level not in range(-n_levels, n_levels):
            raise ValueError(
                f"level must be between 0 (the first) and {n_levels - 1}, or -1 (leaves), got "
                f"{level!r}."
            )
        X = check_rows(self, X, reset=False)
        function = self._leaf_function(working_dtype(X.dtype), level % n_levels + 1)
        return map_rows(X, function, dtype=np.int32, name="predict")

    def _inertia(self, X: Any, sample_weight: Any) -> float:
        rows = open_rows(X, check_weight(sample_weight, X)).transformed(
            None if self._metric.is_identity else self._metric
        )
        inertia = float(rows.reduce(LEAF_STATISTICS, self._query(rows)).inertia.sum())
        if not np.isfinite(inertia):
            # This raises an error that names the invalid row.
            self._assigned(X, sample_weight)
        return inertia

    def _query(self, rows: Rows) -> LeafQuery:
        function = self._leaf_function(rows.dtype)
        return LeafQuery(function.tree, function.n_probe)

    def _check_sizes(self) -> None:
        k, bound = len(self.cluster_centers_), self.max_cluster_size
        levels, remaining = [self._n_top], self._sizes
        while len(remaining):
            m = int(remaining[: levels[-1]].sum())
            remaining = remaining[levels[-1] :]
            levels.append(m)
        if levels[-1] != k or sum(levels[:-1]) != len(self._above):
            raise ValueError("the numbers of children do not match the number of centers")
        totals = self._totals
        # A fit of one level has an equal second level.
        totals = totals if totals[0] < totals[-1] or bound is not None else totals[:2]
        # Rows of weight 0 may reduce the number of centers; max_cluster_size may increase it.
        max_centers = (*totals[:-1], max(totals[-1], k if bound is not None else 0))
        if [levels[0], len(levels)] != [totals[0], len(totals)] or (
            np.array(levels) > max_centers
        ).any():
            raise ValueError(
                f"The levels must have {', '.join(map(str, totals))} centers, as in n_clusters="
                f"{self.n_clusters!r} with max_cluster_size={bound!r}, got "
                f"{', '.join(map(str, levels))}. Set the parameters of the fit, or fit again."
            )
        # With fewer distinct rows than leaves, each row is a leaf, except for rounding.
        squares = np.linalg.norm(self.cluster_centers_.astype(np.float64), axis=1) ** 2
        rounding = 64 * np.finfo(np.float32).eps ** 2 * float(self.counts_ @ squares)
        if k < totals[-1] and self.inertia_ > rounding:
            raise ValueError(
                f"n_clusters={self.n_clusters!r} gives {totals[-1]} leaves, got {k}; with fewer "
                f"leaves the inertia must be 0, got {self.inertia_:.6g}"
            )


@dataclass(frozen=True)
class LeafFunction:
    """Function that assigns the rows of a block in ``predict``; it is sent to workers once."""

    tree: CenterTree
    n_probe: int | None
    metric: Metric
    dtype: np.dtype[Any]
    #: Names of the columns, for messages.
    names: Any = None

    @property
    def nbytes(self) -> int:
        """Bytes of the centers."""
        return sum(int(centers.nbytes) for centers in self.tree.levels)

    def __call__(self, x: NDArray[Any], start: int) -> NDArray[Any]:
        """Return the leaves of the rows."""
        x = as_matrix(x, self.dtype)
        z = self.metric(x)
        labels, squared = nearest_leaf(z, self.tree, self.n_probe)
        if not np.isfinite(squared).all():
            # A value that is not finite makes the distance not finite.
            check_block(x, start, missing=False, names=self.names)
            check_squares(squared, start)
        return self.metric.break_ties(z, labels)


def _check_precision(survey: Survey, k: int) -> None:
    """Raise ValueError if float32 is too coarse for k leaves of these float64 rows."""
    size = np.maximum(np.abs(survey.low), np.abs(survey.high))
    column, spread = int(np.argmax(size)), float(np.sqrt(survey.variance.max()))
    # Approximate width of a leaf.
    width = spread * k ** (-1 / len(size))
    kind = np.finfo(np.float32)
    if 0 < width < max(_MIN_WIDTH * kind.eps * size[column], kind.tiny) or size[column] > kind.max:
        raise ValueError(
            f"X must not be finer than float32, the type of the leaves, got values up to "
            f"{size[column]:.3g} in column {column}, standard deviations of columns up to "
            f"{spread:.3g}, and {k} clusters. Subtract the mean of each column, or rescale X."
        )

"""K-means of k-means, for very many clusters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from daskclust._types import Array as AnyArray
from daskclust._types import Floats, Ints
from daskclust.cluster.hierarchy import (
    Fitter,
    HierarchyProblem,
    HierarchyState,
    Spill,
    choose_parents,
)
from daskclust.cluster.kmeans import KMeans
from daskclust.cluster.lloyd import LloydProblem, LloydState
from daskclust.engine import as_matrix, map_rows, open_rows, working_dtype
from daskclust.estimator.base import BaseClusterer, RowFunction, warn_few_distinct
from daskclust.estimator.fitting import (
    FirstPass,
    OpenData,
    best_restart,
    fit,
    row_labels,
    settled,
)
from daskclust.estimator.inputs import Data, check_block, check_rows, check_weight
from daskclust.estimator.parameters import check_choice, check_integer, check_real
from daskclust.estimator.spaces import Metric
from daskclust.kernels.nearest.several import CenterTree, nearest_leaf
from daskclust.persistence.schema import Array, Number
from daskclust.reduction.assign import LEAF_STATISTICS, LeafQuery

__all__ = ["HierarchicalKMeans"]

MetricName = Literal["euclidean", "cosine", "sam"]
#: Leaves from which an integer `n_clusters` gets a level of parents.
_TWO_LEVELS = 1000


@dataclass(frozen=True)
class LeafFunction:
    """Handles a block's rows in ``predict``; travels to workers, once."""

    tree: CenterTree
    n_probe: int | None
    metric: Metric
    dtype: np.dtype[Any]

    @property
    def nbytes(self) -> int:
        """Bytes of the centers."""
        return int(self.tree.parents.nbytes + self.tree.leaves.nbytes)

    def __call__(self, x: NDArray[Any], start: int) -> NDArray[Any]:
        """Leaves of the rows."""
        x = as_matrix(x, self.dtype)
        check_block(x, start, missing=False)
        x = self.metric(x)
        labels, squared = nearest_leaf(x, self.tree, self.n_probe)
        if not np.isfinite(squared).all():
            row = start + int(np.flatnonzero(~np.isfinite(squared))[0])
            raise ValueError(
                f"Row {row} of X is so far from the centers that squared distances overflow. Mask "
                "values that stand for missing data, else rescale the features."
            )
        return self.metric.break_ties(x, labels)


class HierarchicalKMeans(BaseClusterer):
    """K-means of k-means: a thousand to a million clusters, of rows that fit no memory.

    The first level is :class:`KMeans`. One pass puts the rows of each of its clusters, the
    *parents*, together in temporary files; the rows of each parent are then clustered by
    themselves, one task each, to the *leaves*.  Refinement passes compare each row with the
    leaves of its nearest parents, and move the leaves to the means of all their rows.

    Parameters
    ----------
    n_clusters : int or (int, int), default=8
        Leaves k.  A pair ``(m, c)`` is of m parents with c leaves each on average: m c leaves
        are given out in proportion to the weights of the parents, one or more to each, and no
        more than it has rows.  With an integer from 1000 on there are ``sqrt(k) / 4`` parents;
        below, and with ``(k, 1)``, it is ``KMeans(k)`` to the last bit.
    n_probe : int or "all", default=4
        Nearest parents with whose leaves a row is compared.  ``"all"``: with every leaf.
    refine : int, default=1
        Refinement passes.
    metric : {"euclidean", "cosine", "sam"}, default="euclidean"
        See :class:`KMeans`.
    max_iter : int, default=25
        Iterations of each level at most.
    tol : float, default=1e-4
        See :class:`KMeans`.
    max_cluster_size : int, default=None
        Rows (their weight) of a leaf at most.  In the end leaves with more are divided, for
        which there may be more than k of them; rows that are all the same cannot be.
    spill : path-like or str, default=None
        Folder or URL for the rows by parents, that all workers reach under the same name.
        Default: the folder of the checkpoint, else Dask's ``temporary-directory``, else that of
        the system.  It is removed in the end, also after an error.
    random_state : int, RandomState, Generator or None, default=None
        With an int the result does not depend on the chunks, the scheduler or the number of
        workers.
    checkpoint : path-like, default=None
        See :class:`KMeans`: written after each iteration of the first level, each 64 parts and
        each refinement.  Where a fit goes on, one pass puts the rows by parents again.

    Attributes
    ----------
    cluster_centers_ : ndarray of shape (k, p), float32
        Leaves; those of one parent follow one another.
    parents_ : ndarray of shape (k,), int64
        Parent of each leaf.
    level_centers_ : list of ndarray
        Centers of the parents, float64, and of the leaves.
    labels_ : ndarray or dask.array.Array of shape (n,), int32
        Leaf of each row, see :meth:`predict`.
    counts_ : ndarray of shape (k,), float64
        Weight of the rows of each leaf.
    inertia_ : float
        Weighted sum of squared distances of the rows to their leaves.
    n_iter_ : int
        Iterations of the first level.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (p,)
        Where X has names.
    history_ : list of dict
        See :class:`KMeans`: records of the first level, of each 64 parts (``objective`` is
        their inertia), of refinements (the inertia of the rows before the leaves moved), and of
        the last measurement.

    Raises
    ------
    ValueError
        For NaN or infinity in X, fewer rows than clusters, and parameters out of range.
    OSError
        The folder for the rows is full, or some workers do not reach it.
    CheckpointError
        See :class:`KMeans`.

    See Also
    --------
    KMeans : One level, exact.

    Notes
    -----
    *Passes*: those of ``KMeans(m)``, one that writes ``n (p itemsize + 16)`` bytes, and one in the
    end.  Parts and refinements read what was written instead.  *Multiplications* of an iteration:
    ``n p m`` of the first level and ``n p k / m`` of the parts, in place of ``n p k``; a
    refinement makes ``n p (m + n_probe k / m)``.  *Memory*: the client holds O(k p); a worker
    thread the rows of one parent, a block, and the centers.

    Fewer parents cost more and lose less: of 60 742 text vectors (p = 256) at k = 2000, 11 and 22
    parents ended 1.6 and 2.6 % above one level, in half of its time; with ``n_probe="all"`` and
    five refinements 1.0 and 1.4 %, in 0.7 of its time.

    References
    ----------
    .. [1] Nister, D., Stewenius, H. (2006). Scalable recognition with a vocabulary tree. CVPR.

    Examples
    --------
    >>> import numpy as np, daskclust
    >>> X = np.array([[0.0], [1.0], [10.0], [12.0], [50.0], [55.0]], np.float16)
    >>> model = daskclust.HierarchicalKMeans((2, 2), random_state=0).fit(X)
    >>> model.parents_.tolist(), sorted(model.cluster_centers_.ravel().tolist())
    ([0, 1, 1, 1], [0.5, 10.0, 12.0, 52.5])
    """

    _saved_state: ClassVar[Mapping[str, Any]] = {
        "inertia_": Number(low=0),
        "counts_": Array("k", low=0),
        "_centers": None,
        "_top": Array("m", "p"),
        "parents_": Array("k", kind="i", low=0, below="m"),
    }
    _resumes_with: ClassVar[tuple[str, ...]] = ("spill",)
    _synonyms = {"metric": {"sam": "cosine"}}  # noqa: RUF012

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

    # Set by fit: the parents, in the space in which rows are compared.
    _top: Floats

    def _check_parameters(self) -> None:
        levels = self.n_clusters if isinstance(self.n_clusters, tuple | list) else [self.n_clusters]
        if not 1 <= len(levels) <= 2:
            raise ValueError(
                f"n_clusters={self.n_clusters!r}; expected an integer, or a pair: parents, and "
                "leaves of each on average."
            )
        for level in levels:
            check_integer(level, "n_clusters", 1)
        if self.n_probe != "all":
            if isinstance(self.n_probe, str):
                check_choice(self.n_probe, "n_probe", ("all",))
            check_integer(self.n_probe, "n_probe", 1)
        check_integer(self.refine, "refine", 0)
        check_integer(self.max_iter, "max_iter", 1)
        check_real(self.tol, "tol", 0)
        check_choice(self.metric, "metric", get_args(MetricName))
        if self.max_cluster_size is not None:
            check_integer(self.max_cluster_size, "max_cluster_size", 1)

    @property
    def _levels(self) -> tuple[int, int]:
        """Parents, and all leaves."""
        if isinstance(self.n_clusters, tuple | list):
            m, each = (*map(int, self.n_clusters), 1)[:2]
            return m, m * each
        k = int(self.n_clusters)
        return (k if k < _TWO_LEVELS else choose_parents(k)), k

    @property
    def _probe(self) -> int | None:
        return None if self.n_probe == "all" else int(self.n_probe)

    def _kmeans(self, k: int, seed: Any) -> KMeans:
        return KMeans(
            k, max_iter=self.max_iter, tol=self.tol, metric=self.metric, random_state=seed
        )

    def _check_n_clusters(self, n_rows: float) -> None:
        if n_rows < self._levels[1]:
            raise ValueError(
                f"n_samples={n_rows} should be >= n_clusters={self._levels[1]}. Ask for fewer "
                "clusters."
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

        Returns
        -------
        self
        """
        with Spill(self._spill_base()) as spill:
            return fit(self, X, sample_weight, spill=spill)

    def _spill_base(self) -> Any:
        if self.spill is not None:
            return self.spill
        path = getattr(self.checkpoint, "path", self.checkpoint)
        return None if path is None else Path(path).absolute().parent

    def _read(self, data: Data, spill: Spill | None = None) -> Spill:
        self._check_n_clusters(data.n_rows)
        if spill is None:
            raise TypeError("HierarchicalKMeans shares no passes with other fits; use its fit.")
        return spill

    def _first_pass(self, data: Data, read: Spill) -> FirstPass:
        return self._kmeans(self._levels[0], self.random_state)._first_pass(data, None)

    def _problem(self, data: OpenData, read: Spill) -> LloydProblem | HierarchyProblem:
        m, k = self._levels
        top = self._kmeans(m, None)._problem(data, None)
        if m == k and self.max_cluster_size is None:
            return top
        return HierarchyProblem(
            data.X,
            top,
            k,
            self._probe,
            int(self.refine),
            None if self.max_cluster_size is None else int(self.max_cluster_size),
            Fitter(partial(_fit_part, self._kmeans(1, None))),
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
            self._finish_flat(problem, state)
        else:
            self._finish_tree(problem, state)
        self.history_ = history
        warn_few_distinct(len(np.unique(self.cluster_centers_, axis=0)), len(self.cluster_centers_))
        self.labels_ = row_labels(data, self._leaf_function(data.rows.dtype))

    def _finish_flat(self, problem: LloydProblem, state: LloydState) -> None:
        state = problem.settle(state)
        best = best_restart(state.inertia)
        self._metric = problem.metric
        self._top = state.centers[best]
        self.cluster_centers_ = self._top.astype(np.float32)
        self.parents_ = np.arange(len(self._top))
        self.counts_, self.inertia_ = state.counts[best], float(state.inertia[best])
        self.n_iter_ = int(state.n_iter[best])

    def _finish_tree(self, problem: HierarchyProblem, state: HierarchyState) -> None:
        self._metric = problem.top.metric
        self._top = state.centers[0]
        self.cluster_centers_ = state.leaves
        self.parents_ = np.repeat(np.arange(len(state.sizes)), state.sizes)
        self.counts_, self.inertia_ = state.leaf_counts, float(state.leaf_inertia)
        self.n_iter_ = int(state.n_iter[0])

    @property
    def _is_flat(self) -> bool:
        return len(self._top) == len(self.cluster_centers_)

    @property
    def _centers(self) -> AnyArray:  # type: ignore[override]
        """Leaves, in the space in which rows are compared."""
        return self._top if self._is_flat else self.cluster_centers_

    @property
    def level_centers_(self) -> list[AnyArray]:
        """Centers of the parents, and of the leaves."""
        check_is_fitted(self)
        return [self._top, self.cluster_centers_]

    def _tree(self) -> CenterTree:
        starts: Ints = np.searchsorted(self.parents_, np.arange(len(self._top) + 1))
        return CenterTree(self._top, self._centers, starts)

    def _leaf_function(self, dtype: Any) -> LeafFunction:
        # One leaf a parent: these are all leaves.
        probe = None if self._is_flat else self._probe
        return LeafFunction(self._tree(), probe, self._metric, dtype)

    def predict(self, X: Any, level: int = -1) -> Any:
        """Nearest leaf of each row, among those of its nearest parents.

        Parameters
        ----------
        X : array-like or dask.array.Array of shape (n_samples, n_features)
        level : int, default=-1
            -1 or 1 for leaves, 0 for parents.

        Returns
        -------
        labels : ndarray or dask.array.Array of shape (n_samples,), int32
            Lazy, and chunked like X, for a Dask array: values of X are checked
            when it is computed.

        Raises
        ------
        ValueError
            For NaN and infinity, another number of features, and another level.
        """
        check_is_fitted(self)
        if level not in (-1, 0, 1):
            raise ValueError(f"level={level!r}; expected 0 (parents), or 1 or -1 (leaves).")
        X = check_rows(self, X, reset=False)
        dtype = working_dtype(X.dtype)
        function: Any = self._leaf_function(dtype)
        if level == 0:
            function = RowFunction(self._top, self._metric, None, dtype)
        return map_rows(X, function, dtype=np.int32, name="predict")

    def _inertia(self, X: Any, sample_weight: Any) -> float:
        rows = open_rows(X, check_weight(sample_weight, X)).transformed(
            None if self._metric.is_identity else self._metric
        )
        function = self._leaf_function(rows.dtype)
        found = rows.reduce(LEAF_STATISTICS, LeafQuery(function.tree, function.n_probe))
        if not np.isfinite(found.inertia.sum()):
            # Says where.
            self._assigned(X, sample_weight)
        return float(found.inertia.sum())

    def _check_loaded(self) -> None:
        if (np.diff(self.parents_) < 0).any() or len(np.unique(self.parents_)) != len(self._top):
            raise ValueError("parents_ is not sorted, or there are parents without leaves.")


def _fit_part(
    model: KMeans, x: AnyArray, weight: Floats, k: int, seed: int
) -> tuple[Floats, float]:
    """Cluster the rows of one parent."""
    model = KMeans(**{**model.get_params(), "n_clusters": k, "random_state": seed})
    state = settled(model, Data(x, None if (weight == 1).all() else weight))
    best = best_restart(state.inertia)
    return state.centers[best], float(state.inertia[best])

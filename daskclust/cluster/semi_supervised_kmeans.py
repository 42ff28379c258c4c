"""K-means that is initialized by labeled rows, with or without fixed labels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Integral
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from daskclust.cluster.lloyd import (
    ClassClusters,
    LloydClusterer,
    LloydProblem,
    LloydState,
)
from daskclust.core.array_types import Floats, Ints
from daskclust.core.engine import Rows
from daskclust.core.estimator.fit_loop import FirstPass, OpenData, draw_seeds, fit
from daskclust.core.estimator.parameters import (
    CENTERS,
    COUNT,
    FLAG,
    MISSING,
    RESTARTS,
    Constraints,
    Interval,
    StrOptions,
)
from daskclust.core.estimator.partial_labels import PartialLabels, read_labels
from daskclust.core.estimator.validation import (
    Data,
    InitWithLabels,
    Missing,
    check_enough_rows,
)
from daskclust.core.initialization.few_points import cluster_few
from daskclust.core.initialization.methods import n_survey_picks
from daskclust.core.initialization.problem import Initialization
from daskclust.core.initialization.steps import fill_empty
from daskclust.core.kernels.nearest.assign import accumulate, nearest
from daskclust.core.persistence.schema import Array, Classes, Entry
from daskclust.core.reduction import ClassStatistics, Clusters, ClusterStatistics, RowLabels
from daskclust.exceptions import ConstraintError

#: Initialization of the centers without a class.
_SAMPLERS = {
    "auto": "k-means||",
    "ss-k-means||": "k-means||",
    "ss-k-means++": "k-means++",
    "seeded-random": "random",
}


class SemiSupervisedKMeans(LloydClusterer):
    """K-means with partial labels, for data of any size.

    Use it when you have labels of some rows, and each class is a compact cluster or a few of them.
    If you know pairs of rows instead of classes, use :class:`PCKMeans`; if classes have any shape,
    :class:`LabelSpreading`.

    Cluster c is class ``classes_[c]``.  Its initial center is the mean of the labeled rows of this
    class [1]_.  The remaining clusters have no class.  Labels may also be omitted.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of clusters k, at least the number of clusters of all classes.
    init : {"auto", "ss-k-means||", "ss-k-means++", "seeded-random"}, array of shape (k, p), \
fitted model or callable, default="auto"
        Initialization of the centers without a class, from the unlabeled rows:

        - ``"auto"``: ``"ss-k-means||"``.  If all clusters have classes, the centers of k-means are
          also tried, and the better result is used.
        - ``"ss-k-means||"``: as ``"k-means||"`` of :class:`KMeans`, with fixed class means.
        - ``"ss-k-means++"``: one row per pass, with probability proportional to ``w D^2`` [1]_.
        - ``"seeded-random"``: rows drawn at random, as in [2]_.
        - an array, a fitted model, or a callable, as in :class:`KMeans`.  The first centers belong
          to the classes.
    clusters_per_class : int, default=1
        Maximum number of clusters of each class.  Labels and predictions are numbers of clusters;
        ``classes_[cluster_classes_[labels]]`` are their classes.
    clamp : bool, default=True
        If True, labeled rows stay in clusters of their class (Constrained-KMeans of [2]_).  If
        False, labels are only used for the initial centers (Seeded-KMeans), and may be wrong.
    n_init : int or "auto", default="auto"
        Number of restarts, which share every pass.  ``"auto"`` is 10 for ``"seeded-random"`` and
        callables, else 1.
    max_iter : int, default=300
        Maximum number of iterations.  With 0 the rows are assigned to the initial centers.
    tol : float, default=1e-4
        As in :class:`KMeans`.
    missing : {"error", "partial"}, default="error"
        As in :class:`KMeans`.
    random_state : int, RandomState, Generator or None, default=None
        An int gives the same result for any chunks, scheduler and number of workers.
    checkpoint : path-like, default=None
        As in :class:`KMeans`; labels must be the same, too.

    Attributes
    ----------
    cluster_centers_ : ndarray of shape (k, p), float64
        Centers; the first centers belong to the classes.
    observed_coordinates_ : ndarray of shape (k, p), bool
        As in :class:`KMeans`.
    labels_ : ndarray or dask.array.Array of shape (n,), int32
        As in :class:`KMeans`; with ``clamp``, labeled rows belong to a cluster of their class.
    classes_ : ndarray of shape (n_classes,), int64 or text
        Labels in ascending order.
    cluster_classes_ : ndarray of shape (k,), int64
        Class of each cluster, as an index into ``classes_``; -1 for clusters without a class.
    inertia_ : float
        Weighted sum of squared distances of the rows to the centers of ``labels_``.
    n_iter_ : int
        Iterations of the selected restart.
    counts_ : ndarray of shape (k,), float64
        Total weight of the rows of each cluster.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (p,)
        Names of the columns, if X has names.
    history_ : list of dict
        As in :class:`KMeans`.

    Raises
    ------
    ConstraintError, ValueError, CheckpointError
        For invalid labels, data and parameters, and for a checkpoint of another fit.

    See Also
    --------
    KMeans : K-means without labels.
    LabelSpreading : Classes of any shape, from a few labels.

    Notes
    -----
    The user guide ("k-means") describes restarts, clamping, warnings, passes and memory.

    References
    ----------
    .. [1] Yoder, J., Priebe, C. E. (2017). Semi-supervised k-means++. Journal of
       Statistical Computation and Simulation 87.
    .. [2] Basu, S., Banerjee, A., Mooney, R. (2002). Semi-supervised clustering by
       seeding. ICML.

    Examples
    --------
    Two of six rows have labels, and the third cluster has no class:

    >>> import numpy as np
    >>> import daskclust
    >>> X = np.array([[0.0], [1.0], [10.0], [11.0], [20.0], [21.0]])
    >>> y = ["low", -1, -1, "high", -1, -1]
    >>> model = daskclust.SemiSupervisedKMeans(3, random_state=0).fit(X, y)
    >>> model.classes_.tolist(), model.labels_.tolist()
    (['high', 'low'], [1, 1, 0, 0, 2, 2])
    >>> model.fit(X, ([0, 3], ["low", "high"])).labels_.tolist()
    [1, 1, 0, 0, 2, 2]

    A class with two clusters, on both sides of another class:

    >>> y = ["outer", "outer", "inner", -1, "outer", -1]
    >>> model = daskclust.SemiSupervisedKMeans(3, clusters_per_class=2, random_state=0).fit(X, y)
    >>> model.labels_.tolist(), model.cluster_classes_.tolist()
    ([1, 1, 0, 0, 2, 2], [0, 1, 1])
    >>> model.classes_[model.cluster_classes_[model.predict([[2.0], [9.0], [22.0]])]].tolist()
    ['outer', 'inner', 'outer']
    """

    #: True, because y is optional but not ignored.
    _uses_labels: ClassVar[bool] = True

    _saved_state: ClassVar[Mapping[str, Entry]] = {
        "classes_": Classes(),
        "cluster_classes_": Array("k", kind="i", low=-1),
    }

    _parameter_constraints: ClassVar[Constraints] = {
        **RESTARTS,
        "init": [*CENTERS, StrOptions(*_SAMPLERS)],
        "clusters_per_class": [COUNT],
        "clamp": [FLAG],
        "max_iter": [Interval(Integral, 0)],
        "missing": [MISSING],
    }

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        init: InitWithLabels = "auto",
        clusters_per_class: int = 1,
        clamp: bool = True,
        n_init: Any = "auto",
        max_iter: int = 300,
        tol: float = 1e-4,
        missing: Missing = "error",
        random_state: Any = None,
        checkpoint: Any = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.init: Any = init
        self.clusters_per_class = clusters_per_class
        self.clamp = clamp
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.missing = missing
        self.random_state = random_state
        self.checkpoint = checkpoint

    def _n_seeds(self, n_classes: int) -> int:
        """Return the number of restarts that use random numbers, at least 1."""
        if n_classes == self.n_clusters and self._compares_initializations:
            # One additional restart begins at the class means.
            return 1 if self.n_init == "auto" else max(1, int(self.n_init) - 1)
        is_random = callable(self.init) or (
            isinstance(self.init, str) and n_classes < self.n_clusters
        )
        if not is_random:
            # Restarts would be equal.
            return 1
        if self.n_init == "auto":
            return 10 if callable(self.init) or self.init == "seeded-random" else 1
        return int(self.n_init)

    @property
    def _compares_initializations(self) -> bool:
        return isinstance(self.init, str) and self.init == "auto"

    def fit(self, X: Any, y: Any = None, *, sample_weight: Any = None) -> Self:
        """Find the clusters.

        Parameters
        ----------
        X : array-like, dask.array.Array, DataFrame or xarray.DataArray of shape (n, p)
            Rows to cluster.
        y : array-like or dask.array.Array of shape (n,), or (rows, labels), optional
            Partial labels: integers, whole floats, or text.  -1, NaN, None, a masked value and
            pandas' missing values mean "no label".  Alternatively global row numbers and their
            labels.  For a cube also a label map of shape (y, x), or its path.
        sample_weight : array-like or dask.array.Array of shape (n,), optional
            Weights of the rows: an integer weight equals repetition, 0 absence.
            Cubes also accept an image (y, x) and ``"area"``; see
            :meth:`daskclust.Cube.row_weights`.

        Returns
        -------
        self
        """
        return fit(self, X, sample_weight, y=y)

    def _read(self, data: Data, y: Any = None) -> PartialLabels:
        check_enough_rows(data, self.n_clusters)
        return read_labels(y, data.n_rows, max_classes=self.n_clusters)

    def _first_pass(self, data: Data, read: PartialLabels) -> FirstPass:
        sampler = _SAMPLERS[self.init] if isinstance(self.init, str) else None
        return FirstPass(
            draw_seeds(self.random_state, self._n_seeds(read.n_classes)),
            n_survey_picks(sampler, self.n_clusters),
            labels=read,
        )

    def _problem(self, data: OpenData, read: PartialLabels) -> LloydProblem:
        survey = data.survey
        labels, statistics = read.present(survey.classes)
        if statistics.masses is not None and self.clusters_per_class > 1:
            raise ValueError(
                "Labeled rows must not have missing values if clusters_per_class is more than 1, "
                f"got clusters_per_class={self.clusters_per_class} and labeled rows with NaN. Use "
                "clusters_per_class=1, or omit the labels of these rows."
            )
        # A feature without values in the labeled rows of a class gets the mean of all rows.
        statistics = replace(statistics, mean=statistics.filled(survey.mean))
        classes = class_clusters(data.rows, labels, statistics, int(self.clusters_per_class))
        count = int(classes.sizes.sum())
        if count > self.n_clusters:
            raise ConstraintError(
                f"n_clusters must be at least {count}, got {self.n_clusters}: the "
                f"{len(classes.sizes)} classes of y have {count} clusters in total for "
                f"clusters_per_class={self.clusters_per_class}. Use n_clusters={count} or more, or "
                "a smaller clusters_per_class."
            )
        unlabeled = data.rows.excluding(labels.rows)
        return LloydProblem(
            unlabeled if self.clamp else data.rows,
            self._initialization(data, unlabeled, classes),
            int(self.max_iter),
            float(self.tol * survey.variance.mean()),
            classes=classes,
            clamped=classes if self.clamp else None,
        )

    def _initialization(
        self, data: OpenData, unlabeled: Rows, classes: ClassClusters
    ) -> Initialization:
        class_centers: Floats | None = None
        init, compares = self.init, False
        if isinstance(self.init, str):
            init, class_centers = _SAMPLERS[self.init], classes.centers(data.seeds[0])
            complete = len(class_centers) == self.n_clusters
            compares = complete and self._compares_initializations and self.n_init != 1
            data = replace(
                data,
                rows=data.rows if init == "k-means||" else unlabeled,
                # Without sampled centers, restarts would be equal.
                seeds=data.seeds[:1] if complete and not compares else data.seeds,
            )
        return Initialization(
            data,
            self.n_clusters,
            init,
            class_centers,
            compares=compares,
        )

    def _finish(
        self,
        data: OpenData,
        problem: LloydProblem,
        state: LloydState,
        history: list[dict[str, Any]],
    ) -> None:
        super()._finish(data, problem, state, history)
        assert problem.classes is not None
        sizes = problem.classes.sizes
        self.classes_ = problem.classes.labels.classes
        self.cluster_classes_ = np.full(self.n_clusters, -1)
        self.cluster_classes_[: sizes.sum()] = np.repeat(np.arange(len(sizes)), sizes)

    def _check_sizes(self) -> None:
        super()._check_sizes()
        classes_of_clusters = self.cluster_classes_[self.cluster_classes_ >= 0]
        if not np.array_equal(np.unique(classes_of_clusters), np.arange(len(self.classes_))):
            raise ValueError(
                f"cluster_classes_ must contain all {len(self.classes_)} classes, got "
                f"{np.unique(classes_of_clusters).tolist()}"
            )


def class_clusters(
    rows: Rows, labels: PartialLabels, statistics: ClassStatistics, limit: int
) -> ClassClusters:
    """Return the clusters of the classes, at most ``limit`` per class.

    If ``limit`` is more than 1, one pass reads the chunks that contain labels.
    """
    if limit == 1 or not labels.n_classes:
        return OneCluster(labels, statistics)
    x, weight = rows.take(labels.rows)
    members = [labels.codes == c for c in range(labels.n_classes)]
    return SeveralClusters(labels, [LabeledRows.of(x[m], weight[m]) for m in members], limit)


@dataclass(frozen=True)
class OneCluster:
    """One cluster per class: cluster c is class c, with the class mean as initial center."""

    labels: PartialLabels
    statistics: ClassStatistics

    @property
    def sizes(self) -> Ints:
        """Number of clusters of each class: 1."""
        return np.ones(self.labels.n_classes, np.int64)

    def centers(self, seed: int) -> Floats:
        """Return the centroids of the classes."""
        return self.statistics.mean

    def joined(self, stats: ClusterStatistics, centers: Floats) -> ClusterStatistics:
        """Add the rows of class c to cluster c."""
        return self.statistics.joined(stats, centers)

    def assigned(self, centers: Floats) -> RowLabels:
        """Return the labels, which are also the clusters."""
        return self.labels


@dataclass(frozen=True, eq=False)
class LabeledRows:
    """Distinct labeled rows of one class, in ascending order.

    `weights` (d,): total weight of the rows equal to this point; 0 if they all have weight 0.
    `point_of_row` (m,): index of the point of each row.
    """

    points: NDArray[np.floating]
    weights: Floats
    point_of_row: NDArray[np.intp]

    @classmethod
    def of(cls, x: NDArray[np.floating], weight: Floats) -> LabeledRows:
        """Merge equal rows."""
        points, point_of_row = np.unique(x, axis=0, return_inverse=True)
        point_of_row = point_of_row.reshape(-1)
        return cls(points, np.bincount(point_of_row, weight).astype(np.float64), point_of_row)

    @property
    def n_present(self) -> int:
        """Number of distinct rows with a positive weight."""
        return int((self.weights > 0).sum())

    def centers(self, count: int, seed: int) -> Floats:
        """Return sorted centers of a weighted k-means of the rows."""
        present = self.weights > 0
        points = self.points[present].astype(np.float64)
        centers = cluster_few(points, self.weights[present], count, seed)
        if len(centers) < count:
            # All squared distances are 0 in float64, so take any points.
            centers = points[:count]
        return centers[np.lexsort(centers.T[::-1])]

    def founders(self, centers: Floats) -> Iterator[tuple[Floats, float, int]]:
        """Yield (point, weight, cluster) of points away from their centers, farthest first."""
        clusters, distances = nearest(self.points, centers)
        for i in np.argsort(-distances, kind="stable"):
            if distances[i] > 0 and self.weights[i] > 0:
                yield self.points[i].astype(np.float64), float(self.weights[i]), int(clusters[i])


class SeveralClusters:
    """Up to ``limit`` clusters per class, at most as many as distinct rows with a positive weight.

    The clusters of a class have consecutive numbers.
    """

    def __init__(self, labels: PartialLabels, classes: Sequence[LabeledRows], limit: int) -> None:
        self.labels = labels
        self._classes = tuple(classes)
        self.sizes = np.array([min(limit, rows.n_present) for rows in classes], np.int64)

    @cached_property
    def _slices(self) -> list[slice]:
        ends = np.cumsum(self.sizes).tolist()
        return [slice(end - size, end) for end, size in zip(ends, self.sizes, strict=True)]

    def centers(self, seed: int) -> Floats:
        """Return centers computed from the labeled rows of each class separately."""
        seeds = np.random.SeedSequence(seed).generate_state(len(self._classes))
        classes = zip(self._classes, self.sizes.tolist(), seeds.tolist(), strict=True)
        return np.concatenate(
            [rows.centers(size, class_seed) for rows, size, class_seed in classes]
        )

    def joined(self, stats: ClusterStatistics, centers: Floats) -> ClusterStatistics:
        """Add each labeled row to the nearest cluster of its class.

        An empty cluster gets the row of its class that is farthest from its center.
        """
        sums, counts, inertia = stats.sums.copy(), stats.counts.copy(), stats.inertia.copy()
        p = centers.shape[-1]
        for r in range(len(centers)):
            for rows, members in zip(self._classes, self._slices, strict=True):
                class_centers = centers[r, members]
                block = accumulate(rows.points, class_centers, weight=rows.weights)
                total = block.hi + block.lo
                sums[r, members] += total[:, :p]
                counts[r, members] += total[:, p]
                inertia[r, members] += total[:, p + 1]
                if (counts[r, members] <= 0).any():
                    empty = Clusters(sums[r, members], counts[r, members])
                    founded = fill_empty(empty, rows.founders(class_centers), class_centers)
                    sums[r, members], counts[r, members] = founded.sums, founded.counts
        return ClusterStatistics(sums, counts, inertia, stats.masses)

    def assigned(self, centers: Floats) -> RowLabels:
        """Return the nearest cluster of its class for each labeled row."""
        clusters = np.empty_like(self.labels.codes)
        for c, (rows, members) in enumerate(zip(self._classes, self._slices, strict=True)):
            nearest_points, _ = nearest(rows.points, centers[members])
            clusters[self.labels.codes == c] = members.start + nearest_points[rows.point_of_row]
        return RowLabels(self.labels.rows, clusters, int(self.sizes.sum()))

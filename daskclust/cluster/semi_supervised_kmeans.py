"""K-means that starts from labeled rows, and may keep their labels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
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
from daskclust.core.estimator.partial_labels import PartialLabels, read_labels
from daskclust.core.estimator.validation import (
    Data,
    InitWithLabels,
    Missing,
    check_choice,
    check_enough_rows,
    check_integer,
    given_centers,
)
from daskclust.core.initialization.growing import match
from daskclust.core.initialization.sampled import cluster_few, n_survey_picks, sample_centers
from daskclust.core.initialization.steps import found_clusters
from daskclust.core.kernels.nearest.assign import accumulate, nearest
from daskclust.core.persistence.schema import Array, Classes, Entry
from daskclust.core.reduction import ClassStatistics, Clusters, ClusterStatistics, RowLabels
from daskclust.exceptions import ConstraintError

#: How the centers are sampled that no class provides.
_SAMPLERS = {
    "auto": "k-means||",
    "ss-k-means||": "k-means||",
    "ss-k-means++": "k-means++",
    "seeded-random": "random",
}


class SemiSupervisedKMeans(LloydClusterer):
    """K-means with partial labels, for data of any size.

    The centroid of each labeled class is the first center of a cluster, and the
    remaining centers are sampled away from these [1]_.  Cluster c is class
    ``classes_[c]``; there may be fewer classes than clusters, or none.  A class of
    several blobs may have several clusters (``clusters_per_class``); labels and
    predictions are numbers of clusters then, too, and
    ``classes_[cluster_classes_[labels]]`` are their classes where
    ``cluster_classes_[labels]`` is not -1.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of clusters k, at least the number of clusters of all classes.
    init : {"auto", "ss-k-means||", "ss-k-means++", "seeded-random"}, array of shape (k, p) or \
callable, default="auto"
        How the centers that no class provides are found among the unlabeled rows.
        ``"auto"`` is ``"ss-k-means||"``, and if the classes provide all centers, unconstrained
        k-means, matched to the classes, is a second restart: a few labels do not tell where the
        center of a class is.
        ``"ss-k-means++"``: one a pass, with probability proportional to ``w D^2`` (Algorithm 3 of
        [1]_).  ``"ss-k-means||"``: candidates drawn so in a few rounds, weighted by the unlabeled
        rows they attract and clustered, beside the centroids of the classes.
        ``"seeded-random"``: at random, as in [2]_.  Without any label these are k-means||,
        k-means++ and random rows.  An array (its first rows are the centers of the classes) or a
        callable, which is given ``(X, n_clusters, random_state)``, is taken as it is.
    clusters_per_class : int, default=1
        Clusters m of each class, but no more than it has distinct labeled rows.  With 1 a class
        starts at its centroid, with more at the centers of k-means on its labeled rows alone (on
        the client, the best of some runs), in ascending order.  The clusters of the first class
        come first.
    clamp : bool, default=True
        Labeled rows keep their label (Constrained-KMeans of [2]_): they belong to the nearest
        cluster of their class, and a cluster that loses all its rows starts again from the
        labeled row of its class farthest from its center.  False: labels are for the start only
        (Seeded-KMeans).  If some labels may be wrong, use False, or :class:`PCKMeans`, which may
        violate labels.
    n_init : int or "auto", default="auto"
        Restarts, of which the one of least inertia is kept; they share every pass.  ``"auto"`` is
        10 for ``"seeded-random"`` and callables, else 1.  If the classes provide all centers,
        ``init="auto"`` has at least two restarts (one for ``n_init=1``), other methods have one.
    max_iter : int, default=300
        Maximum number of iterations.  0 only makes the start and assigns the rows to it.
    tol : float, default=1e-4
        As in :class:`KMeans`.
    oversampling_factor : float, default=2.0
        Candidates a round of ``"ss-k-means||"``, over the centers that no class provides.
    init_rounds : int, default=5
        Rounds of ``"ss-k-means||"``; more follow only while there are too few candidates.
    missing : {"error", "partial"}, default="error"
        As in :class:`KMeans`.
    random_state : int, RandomState, Generator or None, default=None
        An int gives the same result for any chunks, scheduler and number of workers.
    checkpoint : path-like, default=None
        As in :class:`KMeans`; labels must be the same, too.

    Attributes
    ----------
    cluster_centers_ : ndarray of shape (k, p), float64
        Centers; the first belong to the classes.
    observed_coordinates_ : ndarray of shape (k, p), bool
        Whether any row of the cluster has a value of the feature.  Where it is False, the
        coordinate of the center says nothing about the cluster.  With ``missing="partial"`` only.
    labels_ : ndarray or dask.array.Array of shape (n,), int32
        As in :class:`KMeans`, but a cluster of the own class for labeled rows with ``clamp``.
    classes_ : ndarray of shape (n_classes,), int64 or text
        Labels in ascending order.
    cluster_classes_ : ndarray of shape (k,), int64
        Class of each cluster, as a place in ``classes_``; -1 for clusters of no class.
    inertia_ : float
        Weighted sum of squared distances of the rows to the centers of ``labels_``.
    n_iter_ : int
        Iterations of the restart that was kept.
    counts_ : ndarray of shape (k,), float64
        Weight of the rows of which each center is the mean.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (p,)
        Names of the columns, where X has names.
    history_ : list of dict
        As in :class:`KMeans`.

    Raises
    ------
    ConstraintError
        For more classes, or clusters of classes, than clusters, rows out of range or labeled
        twice, another number of labels than rows, and labels that are neither whole numbers nor
        text.
    ValueError
        As in :class:`KMeans`.
    CheckpointError
        As in :class:`KMeans`, and for a checkpoint of other labels.

    Warns
    -----
    ConstraintWarning
        If labeled rows have sample weight 0: they are absent, and so is a class
        without other rows.
    ConvergenceWarning
        If fewer than k centers differ: repeated ones stand in, and their clusters stay empty.

    Notes
    -----
    *Passes*: 1 to check the data and sum the classes, those of the initialization, and the rest as
    for :class:`KMeans`.  The initialization takes as many passes as ``"k-means||"`` of
    :class:`KMeans`; with ``"ss-k-means++"`` one for each center that no class provides, at most 2
    more without labels; with ``"seeded-random"`` none.  It takes none if the classes provide all
    centers and there is no second kind of restart.  *Memory* of a worker thread and *to the
    client*: as for :class:`KMeans`, and 12 bytes a labeled row.

    ``clusters_per_class = m > 1`` brings the L labeled rows to the client in one more pass over
    their chunks: L p values, and O(r L m p) operations an iteration for r restarts, with ``clamp``.

    With every class labeled, by g of its n rows drawn at random, and classes that are the clusters
    of least cost, the expected cost of the start is ``1 + (n - g) / (g (n - 1))`` of the least
    (Lemma 4.1 of [1]_).  The other centers cost at most ``8 (2 + log m)`` times the least in
    expectation (Theorem 4.7) with ``"ss-k-means++"``; phi and D^2 are squared distances there.

    References
    ----------
    .. [1] Yoder, J., Priebe, C. E. (2017). Semi-supervised k-means++. Journal of
       Statistical Computation and Simulation 87.
    .. [2] Basu, S., Banerjee, A., Mooney, R. (2002). Semi-supervised clustering by
       seeding. ICML.

    Examples
    --------
    >>> import numpy as np
    >>> import daskclust
    >>> X = np.array([[0.0], [1.0], [10.0], [11.0], [20.0], [21.0]])
    >>> y = ["low", -1, -1, "high", -1, -1]
    >>> model = daskclust.SemiSupervisedKMeans(3, random_state=0).fit(X, y)
    >>> model.classes_.tolist(), model.labels_.tolist()
    (['high', 'low'], [1, 1, 0, 0, 2, 2])
    >>> model.fit(X, ([0, 3], ["low", "high"])).labels_.tolist()
    [1, 1, 0, 0, 2, 2]

    A class at both ends of another:

    >>> y = ["outer", "outer", "inner", -1, "outer", -1]
    >>> model = daskclust.SemiSupervisedKMeans(3, clusters_per_class=2, random_state=0).fit(X, y)
    >>> model.labels_.tolist(), model.cluster_classes_.tolist()
    ([1, 1, 0, 0, 2, 2], [0, 1, 1])
    >>> model.classes_[model.cluster_classes_[model.predict([[2.0], [9.0], [22.0]])]].tolist()
    ['outer', 'inner', 'outer']
    """

    #: Of partial labels: y may be omitted, but is not ignored.
    _uses_labels: ClassVar[bool] = True

    _saved_state: ClassVar[Mapping[str, Entry]] = {
        "classes_": Classes(),
        "cluster_classes_": Array("k", kind="i", low=-1),
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
        oversampling_factor: float = 2.0,
        init_rounds: int = 5,
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
        self.oversampling_factor = oversampling_factor
        self.init_rounds = init_rounds
        self.missing = missing
        self.random_state = random_state
        self.checkpoint = checkpoint

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_integer(self.max_iter, "max_iter", 0)
        check_integer(self.clusters_per_class, "clusters_per_class", 1)
        if not isinstance(self.clamp, bool | np.bool_):
            raise TypeError(
                f"clamp={self.clamp!r} must be True (labeled rows keep their label) or False "
                "(labels are for the start only)."
            )
        if isinstance(self.init, str):
            check_choice(self.init, "init", tuple(_SAMPLERS))

    def _n_seeds(self, n_classes: int) -> int:
        """Return the number of restarts in which chance has a part, at least 1."""
        if n_classes == self.n_clusters and self._compares_kinds:
            # One more restart begins at the class centroids.
            return 1 if self.n_init == "auto" else max(1, int(self.n_init) - 1)
        chance = callable(self.init) or (isinstance(self.init, str) and n_classes < self.n_clusters)
        if not chance:
            # The same centers every time: one start is all starts.
            return 1
        if self.n_init == "auto":
            return 10 if callable(self.init) or self.init == "seeded-random" else 1
        return int(self.n_init)

    @property
    def _compares_kinds(self) -> bool:
        return isinstance(self.init, str) and self.init == "auto"

    def fit(self, X: Any, y: Any = None, *, sample_weight: Any = None) -> Self:
        """Find the clusters.

        Parameters
        ----------
        X : array-like, dask.array.Array, DataFrame or xarray.DataArray of shape (n, p)
            Rows to cluster.
        y : array-like or dask.array.Array of shape (n,), or (rows, labels), optional
            Partial labels: integers, whole floats, or text.  -1, NaN, a mask, None and what pandas
            has for a missing value mean "no label".  Or global row numbers and their labels; of a
            cube also a label map of shape (y, x), or its path.
        sample_weight : array-like or dask.array.Array of shape (n,), optional
            Weights of the rows: an integer weight equals repetition, 0 absence.

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
                f"clusters_per_class={self.clusters_per_class} clusters the labeled rows of a "
                "class, and some of them miss values; expected complete labeled rows. Use "
                "clusters_per_class=1, or leave such labels out."
            )
        # A feature that no labeled row of a class has is at the mean of all.
        statistics = replace(statistics, mean=statistics.filled(survey.mean))
        classes = class_clusters(data.rows, labels, statistics, int(self.clusters_per_class))
        count = int(classes.sizes.sum())
        if count > self.n_clusters:
            raise ConstraintError(
                f"The {len(classes.sizes)} classes of y have {count} clusters by "
                f"clusters_per_class={self.clusters_per_class} and their distinct labeled rows; "
                f"n_clusters={self.n_clusters}. Use n_clusters={count} or more, or a smaller "
                "clusters_per_class."
            )
        unlabeled = data.rows.excluding(labels.rows)
        return LloydProblem(
            unlabeled if self.clamp else data.rows,
            partial(self._start, data, unlabeled, classes),
            int(self.max_iter),
            float(self.tol * survey.variance.mean()),
            shift=survey.mean,
            classes=classes,
            clamped=classes if self.clamp else None,
            missing=survey.n_incomplete > 0,
        )

    def _start(self, data: OpenData, unlabeled: Rows, classes: ClassClusters) -> Floats:
        k = self.n_clusters
        if not isinstance(self.init, str):
            return given_centers(self.init, data.X, k, data.rows.n_features, data.seeds)
        fixed, sampler = classes.centers(data.seeds[0]), _SAMPLERS[self.init]
        both = len(fixed) == k and self._compares_kinds and self.n_init != 1
        found = sample_centers(
            data.rows if sampler == "k-means||" else unlabeled,
            data.survey,
            sampler,
            k,
            # Restarts differ in the sampled centers only.
            data.seeds if len(fixed) < k or both else data.seeds[:1],
            oversampling_factor=self.oversampling_factor,
            init_rounds=self.init_rounds,
            shift=data.survey.mean,
            fixed=None if both else fixed,
            missing=data.survey.n_incomplete > 0,
        )
        return np.stack([fixed, *(match(each, fixed) for each in found)]) if both else found

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
        named = self.cluster_classes_[self.cluster_classes_ >= 0]
        if not np.array_equal(np.unique(named), np.arange(len(self.classes_))):
            raise ValueError(
                f"cluster_classes_ name the classes {np.unique(named).tolist()}; classes_ has "
                f"{len(self.classes_)}"
            )


def class_clusters(
    rows: Rows, labels: PartialLabels, statistics: ClassStatistics, limit: int
) -> ClassClusters:
    """Return the clusters of the classes, at most ``limit`` each.

    Of more than one each, one pass reads the chunks with labels.
    """
    if limit == 1 or not labels.n_classes:
        return OneCluster(labels, statistics)
    x, weight = rows.take(labels.rows)
    members = [labels.codes == c for c in range(labels.n_classes)]
    return SeveralClusters(labels, [LabeledRows.of(x[m], weight[m]) for m in members], limit)


@dataclass(frozen=True)
class OneCluster:
    """Cluster c is class c, and starts at its centroid."""

    labels: PartialLabels
    statistics: ClassStatistics

    @property
    def sizes(self) -> Ints:
        """One for each class."""
        return np.ones(self.labels.n_classes, np.int64)

    def centers(self, seed: int) -> Floats:
        """Centroids of the classes."""
        return self.statistics.mean

    def joined(self, stats: ClusterStatistics, centers: Floats) -> ClusterStatistics:
        """Add the rows of class c to cluster c."""
        return self.statistics.joined(stats, centers)

    def assigned(self, centers: Floats) -> RowLabels:
        """Return the labels: they are the clusters."""
        return self.labels


@dataclass(frozen=True, eq=False)
class LabeledRows:
    """Labeled rows of one class: a point for each distinct row, in ascending order.

    `mass` (d,): weight of the rows that are this point; 0 where all of them are absent. `places`
    (m,): point of each row.
    """

    points: NDArray[np.floating]
    mass: Floats
    places: NDArray[np.intp]

    @classmethod
    def of(cls, x: NDArray[np.floating], weight: Floats) -> LabeledRows:
        """Merge equal rows."""
        points, places = np.unique(x, axis=0, return_inverse=True)
        places = places.reshape(-1)
        return cls(points, np.bincount(places, weight).astype(np.float64), places)

    @property
    def n_present(self) -> int:
        """Distinct rows that have a weight."""
        return int((self.mass > 0).sum())

    def centers(self, count: int, seed: int) -> Floats:
        """Cluster the rows: weighted k-means++, then Lloyd; centers in ascending order."""
        there = self.mass > 0
        points = self.points[there].astype(np.float64)
        found = cluster_few(points, self.mass[there], count, seed)
        if len(found) < count:
            # Points so close that their squared distances are 0: any of them will do.
            found = points[:count]
        return found[np.lexsort(found.T[::-1])]

    def founders(self, centers: Floats) -> Iterator[tuple[Floats, float, int]]:
        """Yield (row, weight, cluster) of the points off their centers, the farthest first."""
        clusters, distances = nearest(self.points, centers)
        for i in np.argsort(-distances, kind="stable"):
            if distances[i] > 0 and self.mass[i] > 0:
                yield self.points[i].astype(np.float64), float(self.mass[i]), int(clusters[i])


class SeveralClusters:
    """Each class has up to ``limit`` clusters, but no more than distinct rows of some weight.

    Those of one class are beside each other.
    """

    def __init__(self, labels: PartialLabels, classes: Sequence[LabeledRows], limit: int) -> None:
        self.labels = labels
        self._classes = tuple(classes)
        self.sizes = np.array([min(limit, rows.n_present) for rows in classes], np.int64)

    @cached_property
    def _own(self) -> list[slice]:
        """Clusters of each class."""
        ends = np.cumsum(self.sizes).tolist()
        return [slice(end - size, end) for end, size in zip(ends, self.sizes, strict=True)]

    def centers(self, seed: int) -> Floats:
        """Centers found among the labeled rows of each class alone."""
        seeds = np.random.SeedSequence(seed).generate_state(len(self._classes))
        each = zip(self._classes, self.sizes.tolist(), seeds.tolist(), strict=True)
        return np.concatenate([rows.centers(size, word) for rows, size, word in each])

    def joined(self, stats: ClusterStatistics, centers: Floats) -> ClusterStatistics:
        """Add each labeled row to the nearest cluster of its class.

        A cluster that is empty then is founded by the row of its class farthest from
        its center, and stays with the class.
        """
        sums, counts, inertia = stats.sums.copy(), stats.counts.copy(), stats.inertia.copy()
        p = centers.shape[-1]
        for r in range(len(centers)):
            for rows, own in zip(self._classes, self._own, strict=True):
                near = centers[r, own]
                block = accumulate(rows.points, near, weight=rows.mass)
                total = block.hi + block.lo
                sums[r, own] += total[:, :p]
                counts[r, own] += total[:, p]
                inertia[r, own] += total[:, p + 1]
                if (counts[r, own] <= 0).any():
                    empty = Clusters(sums[r, own], counts[r, own])
                    founded = found_clusters(empty, rows.founders(near), near)
                    sums[r, own], counts[r, own] = founded.sums, founded.counts
        return ClusterStatistics(sums, counts, inertia, stats.masses)

    def assigned(self, centers: Floats) -> RowLabels:
        """Nearest cluster of its class for each labeled row."""
        clusters = np.empty_like(self.labels.codes)
        for c, (rows, own) in enumerate(zip(self._classes, self._own, strict=True)):
            found, _ = nearest(rows.points, centers[own])
            clusters[self.labels.codes == c] = own.start + found[rows.places]
        return RowLabels(self.labels.rows, clusters, int(self.sizes.sum()))

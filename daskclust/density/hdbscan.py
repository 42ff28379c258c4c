"""HDBSCAN of data of any size."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self, get_args

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from daskclust.config import check_choice
from daskclust.core.array_types import Array, Floats, Ints
from daskclust.core.estimator.fit_loop import OpenData, fit
from daskclust.core.estimator.transforms import EUCLIDEAN
from daskclust.core.estimator.validation import Data, check_enough_rows, check_integer, check_real
from daskclust.core.kernels.linkage import number_by_weight
from daskclust.core.persistence.mixin import check_count
from daskclust.core.persistence.schema import Array as Stored
from daskclust.core.persistence.schema import Entry, Records
from daskclust.core.warn import warn
from daskclust.density.condensed_tree import (
    CONDENSED,
    Bubbles,
    Method,
    condense,
    core_distances,
    cut_longest,
    density_tree,
    prune,
    select_clusters,
    spanning_edges,
)
from daskclust.density.leaves import (
    Cut,
    Leaves,
    LeavesProblem,
    TreeEstimator,
    count_rows,
    without_metric,
)

#: Density at which a cluster of bubbles begins, as a multiple of the density at which it separates
#: from other clusters.  Bubbles connect regions that single rows do not, so clusters of bubbles
#: separate at a density that is too low.
_BIRTH = 1.08
#: Mean density of the rows of a cluster, as a multiple of the density of its split, below which the
#: cluster is discarded.  A few bubbles that are close by chance may have enough rows for a cluster.
_CHANCE = 1.3
#: Default `min_samples` if `n_clusters` is set: a row or prototype itself and 5 others.
_NEIGHBORS = 6.0
#: Minimum weight on both sides of a cut, as a fraction of the mean weight of a cluster.
_SHARE = 0.25


@dataclass(frozen=True)
class _Membership:
    """Function that computes labels or scores of rows from nearest leaves and distances to them.

    ``births`` and ``deaths`` (k + 1,) are densities of the clusters, and their last element is
    noise.  The other arrays have one element per leaf.
    """

    wanted: Literal["labels", "probabilities", "outliers"]
    labels: Ints
    falls: Floats
    ends: Floats
    core: Floats
    scales: Floats
    births: Floats
    deaths: Floats

    def __call__(self, leaves: Ints, distances: Floats) -> Array:
        """Return labels, or shares between 0 and 1."""
        # The core distance of the bubble if it were so large that it just reached the row.
        reach = distances * self.scales[leaves]
        with np.errstate(divide="ignore", invalid="ignore"):
            density = 1.0 / np.maximum(reach, self.core[leaves])
            density = np.minimum(density, self.falls[leaves])
            if self.wanted == "outliers":
                ends = self.ends[leaves]
                scores = (ends - density) / ends
                return np.where(np.isfinite(density) & (ends > 0.0), scores, 0.0)
            labels = self.labels[leaves]
            labels = np.where(density >= self.births[labels], labels, -1)
            if self.wanted == "labels":
                return labels.astype(np.int32)
            deaths = self.deaths[labels]
            share = np.minimum(density, deaths) / deaths
            share[~np.isfinite(density) | (deaths == 0.0)] = 1.0
            share[labels < 0] = 0.0
            return share


class HDBSCAN(TreeEstimator):
    """HDBSCAN of data of any size: clusters of any shape and density, and noise.

    Use it when clusters are dense regions of any shape, and other rows are noise.  Set
    ``n_clusters`` if the number of clusters is known: then each row belongs to a cluster.
    Prototypes represent the rows by their number, mean and extent (data bubbles [1]_).  The
    density tree of the prototypes is computed on the client.  If there are no more rows than
    prototypes, the rows are the leaves, and clusters equal scikit-learn's.

    Parameters
    ----------
    min_cluster_size : int or float, default=5
        Minimum number of rows of a cluster: an integer of at least 2, or a fraction of all rows.
        With ``n_clusters``, labels do not depend on this parameter, but ``condensed_tree_`` and
        outlier scores do.  An integer then counts prototypes if there are more rows than
        prototypes.
    n_clusters : int, default=None
        Number of clusters.  If None, clusters are chosen by their stability, and other rows are
        noise.
    min_samples : int, default=None
        Minimum number of rows in the neighborhood of a core row, including the row itself; by
        default ``min_cluster_size``.  With larger values more rows are noise.  With
        ``n_clusters``, the default is 6, and this parameter counts prototypes if there are more
        rows than prototypes.
    n_prototypes : int, default=20000
        Maximum number of leaves of the tree.
    cluster_selection_method : {"eom", "leaf"}, default="eom"
        Choice of clusters from the condensed tree.  This parameter and the next two are not
        supported with ``n_clusters``.

        - ``"eom"``: the clusters of the largest total stability (excess of mass).
        - ``"leaf"``: the leaves of the condensed tree.
    cluster_selection_epsilon : float, default=0.0
        Distance below which clusters are not split.
    allow_single_cluster : bool, default=False
        If True, all rows may be one cluster.
    random_state : int, RandomState, Generator or None, default=None
        Determines which rows are drawn as prototypes.  With an int, results do not depend on
        chunks, scheduler and workers.
    checkpoint : path-like, default=None
        As in :class:`KMeans`.

    Attributes
    ----------
    labels_ : ndarray or dask.array.Array of shape (n,), int32
        Cluster of each row, -1 for noise.  Cluster 0 has the largest weight.  Lazy, and chunked
        like X, for Dask input.
    probabilities_ : ndarray or dask.array.Array of shape (n,), float64
        Strength of the membership of each row in its cluster; 0 for noise.  With ``n_clusters``,
        ``1 - outlier_scores_``.  Lazy for Dask input.
    outlier_scores_ : ndarray or dask.array.Array of shape (n,), float64
        GLOSH score of each row: 0 in the center of a cluster, close to 1 for rows that are much
        less dense than the rows around them.  Lazy for Dask input.
    n_clusters_ : int
    condensed_tree_ : structured ndarray
        ``parent``, ``child``, ``lambda_val`` (1 / distance), ``child_size`` (rows).  Children
        below the number of leaves are leaves; the root is the number of leaves.
    leaf_weights_ : ndarray of shape (m,), float64
        Weight of the rows of each leaf.  If rows are the leaves, and their weights are integers
        with a sum of at most ``n_prototypes``, a row of weight 3 is three leaves.  With
        ``n_clusters``, equal rows are one leaf.
    n_iter_ : int
        Number of passes that moved the prototypes: 2, or 0 if rows are the leaves.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (p,)
        Names of the columns, if X has names.
    history_ : list of dict
        One record per pass, with ``objective`` (inertia of the prototypes).

    Raises
    ------
    ValueError
        If X has NaN or infinity (the message names the first) or fewer rows than
        ``min_samples`` or ``n_clusters``, and if parameters are out of range.
    CheckpointError
        If the checkpoint is damaged or belongs to other data or parameters.

    Warns
    -----
    ConstraintWarning
        If there are fewer leaves than ``n_clusters``.
    ConvergenceWarning
        If all rows are noise, or if a cut into ``n_clusters`` clusters separates equal prototypes.

    See Also
    --------
    DBSCAN : Exact, with one density for all clusters.
    AgglomerativeClustering : Hierarchies of other linkages.
    KMeans : Faster if clusters are round and there is no noise.

    Notes
    -----
    A row is noise if its core distance is larger than the distance at which its cluster begins.
    The core distance of a row is the core distance of its bubble.  If the row is outside the
    bubble, the bubble is enlarged until it reaches the row.  A cluster of bubbles begins at 1.08
    times the density at which it separates from other clusters.  A cluster whose rows leave, on
    average, below 1.3 times that density is discarded.

    *With* ``n_clusters``, the longest edges of the minimum spanning tree of mutual reachability
    distances are cut, as in Lumbermark [5]_.  The core distance is the distance to the fifth
    neighbor by default.  An edge is cut if both sides keep at least a quarter of the mean weight of
    a cluster.  A leaf of the spanning tree counts only by its weight above the mean weight of a
    point.  If there are too few such edges, the bound is halved until there are enough.  Distances
    and neighbors of prototypes are those of their means.  Use a threshold of the outlier scores to
    mark noise: ``np.where(model.outlier_scores_ > 0.9, -1, model.labels_)``, and
    ``np.where(model.score_samples(X) < -0.9, -1, model.predict(X))``.

    *Passes*: 1 to check the data and draw the prototypes, 1 to fetch them, 2 to move them, and 1
    each for ``labels_``, ``probabilities_`` and ``outlier_scores_``.  A pass compares each row
    with all m prototypes.  With ``n_clusters`` there is one pass less.  *On the client*: m leaves
    take O(m^2 p) time (about 10 s for 20 000 leaves of 8 features) and O(m p) memory.  No array
    of length n is sent to the client.

    *Time and memory for many rows*, with 10 features and 20 000 prototypes: a pass takes about 2 s
    of processor time per 100 000 rows, and the tree 6 s for any number of rows.  A fit of 1e6 rows
    takes about 100 s with ``n_clusters`` and 130 s without it, and a fit of 1e8 rows 6 minutes on
    32 cores if reading is fast enough.  A task holds a block of rows and the prototypes (2 MB),
    the client less than 20 MB.

    With two features and much noise, prototypes are coarse.  Use :class:`DBSCAN`, which is exact.

    References
    ----------
    .. [1] Breunig, M. et al. (2001). Data bubbles: quality preserving performance boosting for
       hierarchical clustering. SIGMOD.
    .. [2] Campello, R., Moulavi, D., Sander, J. (2013). Density-based clustering based on
       hierarchical density estimates. PAKDD.
    .. [3] dos Santos, J. et al. (2019). Hierarchical density-based clustering using
       MapReduce. IEEE Transactions on Big Data 7.
    .. [4] Malzer, C., Baum, M. (2020). A hybrid approach to hierarchical density-based cluster
       selection. MFI.
    .. [5] Gagolewski, M. (2026). Lumbermark: resistant clustering by chopping up mutual
       reachability minimum spanning trees. arXiv:2604.07143.

    Examples
    --------
    >>> import numpy as np
    >>> import daskclust
    >>> X = np.array([[0.0], [0.1], [0.2], [5.0], [5.1], [5.2], [50.0]])
    >>> daskclust.HDBSCAN(min_cluster_size=2).fit(X).labels_
    array([ 0,  0,  0,  1,  1,  1, -1], dtype=int32)
    >>> model = daskclust.HDBSCAN(n_clusters=2, min_samples=2).fit(X)
    >>> model.labels_
    array([1, 1, 1, 0, 0, 0, 0], dtype=int32)
    >>> model.outlier_scores_.round(2)
    array([0.  , 0.  , 0.  , 0.  , 0.  , 0.  , 0.89])
    """

    _saved_state: ClassVar[Mapping[str, Entry]] = {
        "condensed_tree_": Records(
            tuple((str(name), CONDENSED[name].str) for name in CONDENSED.names or ())
        ),
        "_core": Stored("m", low=0.0),
        "_scales": Stored("m", low=0.0),
        # The last element is noise.  These come before the labels, which must be below k.
        "_births": Stored("k", finite=False, low=0.0),
        "_deaths": Stored("k", finite=False, low=0.0),
        "_labels": Stored("m", kind="i", low=-1, below="k"),
        "_falls": Stored("m", finite=False, low=0.0),
        "_ends": Stored("m", finite=False, low=0.0),
        "_edges": Stored("e three", low=0.0, optional=True),
    }
    _n_lloyd = 2
    _depends_on_units: ClassVar[bool] = True
    _of_rows: ClassVar[tuple[str, ...]] = ("labels_", "probabilities_", "outlier_scores_")

    @without_metric
    def __init__(
        self,
        min_cluster_size: float = 5,
        *,
        n_clusters: int | None = None,
        min_samples: int | None = None,
        n_prototypes: int = 20_000,
        cluster_selection_method: Method = "eom",
        cluster_selection_epsilon: float = 0.0,
        allow_single_cluster: bool = False,
        random_state: Any = None,
        checkpoint: Any = None,
    ) -> None:
        self.min_cluster_size = min_cluster_size
        self.n_clusters = n_clusters
        self.min_samples = min_samples
        self.n_prototypes = n_prototypes
        self.cluster_selection_method: Any = cluster_selection_method
        self.cluster_selection_epsilon = cluster_selection_epsilon
        self.allow_single_cluster = allow_single_cluster
        self.random_state = random_state
        self.checkpoint = checkpoint

    def _check_parameters(self) -> None:
        super()._check_parameters()
        count_rows(self.min_cluster_size, 1.0, "min_cluster_size")
        if self.min_samples is not None:
            check_integer(self.min_samples, "min_samples", 1)
        check_choice(self.cluster_selection_method, "cluster_selection_method", get_args(Method))
        check_real(self.cluster_selection_epsilon, "cluster_selection_epsilon", 0.0)
        if not isinstance(self.allow_single_cluster, bool | np.bool_):
            raise TypeError(
                f"allow_single_cluster must be True or False, got {self.allow_single_cluster!r}."
            )
        if self.n_clusters is None:
            return
        self._check_n_clusters(self.n_clusters)
        for name, default in (
            ("cluster_selection_method", "eom"),
            ("cluster_selection_epsilon", 0.0),
            ("allow_single_cluster", False),
        ):
            if getattr(self, name) != default:
                raise ValueError(
                    f"{name}={getattr(self, name)!r} is not supported with "
                    f"n_clusters={self.n_clusters}, which cuts the longest edges of the tree. "
                    f"Omit {name} or n_clusters."
                )

    def fit(self, X: Any, y: Any = None, *, sample_weight: Any = None) -> Self:
        """Compute the density tree and choose clusters from it.

        Parameters
        ----------
        X : array-like, dask.array.Array, DataFrame, xarray.DataArray or Cube of shape (n, p)
            Rows to cluster.
        y : ignored
        sample_weight : array-like or dask.array.Array of shape (n,), optional
            Weights of the rows.  An integer weight is equivalent to repeating the row, and 0 to
            leaving it out.

        Returns
        -------
        self
        """
        return fit(self, X, sample_weight)

    def _read(self, data: Data) -> None:
        n = int(data.n_rows)
        if n < 2:
            raise ValueError(f"X must have at least 2 rows, got n_samples={n}.")
        check_enough_rows(data, self.n_clusters or 0)

    @property
    def _finds_noise(self) -> bool:
        return self.n_clusters is None

    def _check_sizes(self) -> None:
        check_count(self, "n_clusters_", len(self._births) - 1)
        if (self.n_clusters is None) == hasattr(self, "_edges"):
            raise ValueError("A model must have a spanning tree if and only if it has n_clusters.")
        if self.n_clusters is None:
            return
        m = len(self.leaf_weights_)
        if self.n_clusters_ != min(self.n_clusters, m):
            check_count(self, "n_clusters", self.n_clusters_)
        ends = self._edges[:, :2].T
        is_tree = self._edges.shape == (m - 1, 3) and (ends == np.floor(ends)).all()
        if is_tree and m > 1 and ends.max() < m:
            graph = coo_array((np.ones(m - 1), ends.astype(np.int64)), (m, m))
            is_tree = connected_components(graph, directed=False)[0] == 1
        elif m > 1:
            is_tree = False
        if not is_tree or (np.diff(self._edges[:, 2]) < 0.0).any() or self._labels.min() < 0:
            raise ValueError(f"The edges must be a spanning tree of {m} leaves, sorted by length.")

    def _problem(self, data: OpenData, read: None) -> LeavesProblem:
        n = float(data.survey.weight)
        if self.min_samples is not None and n < self.min_samples:
            raise ValueError(
                f"min_samples ({self.min_samples}) must be at most the number of samples in X, "
                f"n_samples={n:g} by weight. Lower min_samples."
            )
        return self._find_leaves(data, EUCLIDEAN, np.empty(0, np.int64))

    def _finish(
        self, data: OpenData, problem: LeavesProblem, state: Leaves, history: list[dict[str, Any]]
    ) -> None:
        leaves, (rows, own) = problem.leaves(state), problem.rows_of_leaves(state)
        weights = leaves.weights
        whole = (weights == np.floor(weights)).all() and weights.sum() <= self.n_prototypes
        if problem.n_lloyd == 0 and self.n_clusters is not None:
            # Equal rows are one leaf, and leaves are sorted, so the order of rows does not matter.
            leaves, places = leaves.distinct()
            own = places[own]
        elif problem.n_lloyd == 0 and whole:
            # The order of leaves decides which of several equal distances is merged first.  A row
            # of weight 3 therefore gives the same tree as three rows only if it is three leaves.
            times = weights.astype(np.int64)
            leaves, own = leaves.repeated(times), np.cumsum(times) - times
        self._keep(problem, leaves, history)
        m = len(leaves.weights)
        smallest = count_rows(self.min_cluster_size, data.survey.weight, "min_cluster_size")
        if self.n_clusters is None:
            bubbles, samples = (
                Bubbles.of_sums(leaves.centers, leaves.weights, leaves.squares),
                smallest,
            )
        else:
            # Points have no extent, and each prototype counts as one point.
            counts = np.ones(m) if problem.n_lloyd else leaves.weights
            bubbles, samples = Bubbles(leaves.centers, counts, np.zeros(m)), _NEIGHBORS
            if problem.n_lloyd and self.min_cluster_size >= 1:
                smallest *= float(leaves.weights.mean())
        if self.min_samples is not None:
            samples = float(self.min_samples)
        samples = min(samples, float(bubbles.weights.sum()))
        self._core, self._scales = core_distances(bubbles, samples), bubbles.shares(samples)
        edges = spanning_edges(bubbles, self._core)
        condensed = condense(
            density_tree(edges, leaves.weights), leaves.weights, self._core, smallest
        )
        later = 1.0
        if problem.n_lloyd:
            of_density = 1.0 / leaves.centers.shape[1]
            condensed, later = prune(condensed, m, _CHANCE**of_density), _BIRTH**of_density
        self.condensed_tree_ = condensed.view(np.recarray)
        chosen = select_clusters(
            condensed,
            m,
            self.cluster_selection_method,
            float(self.cluster_selection_epsilon),
            bool(self.allow_single_cluster),
            later=later,
        )
        self._falls, self._ends = chosen.falls, chosen.ends
        if self.n_clusters is not None:
            self._edges = edges
            self._map_leaves(data, problem, (rows, own))
            self._set_cut(self.n_clusters)
            self.outlier_scores_ = self._of_fit(data, "outliers", np.float64, rows, own)
            self.probabilities_ = 1.0 - self.outlier_scores_
            return
        self._labels = chosen.labels
        self._births = np.append(chosen.births, np.inf)
        self._deaths = np.append(chosen.deaths, 0.0)
        self.n_clusters_ = int(chosen.labels.max()) + 1
        if self.n_clusters_ == 0:
            warn(
                f"All rows are noise: no density separates clusters of at least {smallest:g} rows "
                f"(min_samples={samples:g}). Lower min_cluster_size or min_samples, or set "
                "allow_single_cluster=True if one cluster is expected.",
                ConvergenceWarning,
            )
        for name, wanted, dtype in (
            ("labels_", "labels", np.int32),
            ("probabilities_", "probabilities", np.float64),
            ("outlier_scores_", "outliers", np.float64),
        ):
            self.__dict__[name] = self._of_fit(data, wanted, dtype, rows, own)

    def _of_fit(self, data: OpenData, wanted: Any, dtype: Any, rows: Ints, own: Ints) -> Any:
        """Return labels or scores of the rows of the fit, some of which are leaves."""
        membership = self._membership(wanted)
        values = membership(own, np.zeros(len(own))) if len(own) else np.empty(0, dtype)
        patch = rows, values
        return self._map(data.X, membership, dtype, wanted, data.rows.lengths, patch, data.rows)

    def _set_cut(self, n_clusters: int, most: int | None = None) -> None:
        """Cut the tree into clusters, and set the attributes of the clusters."""
        weights = self.leaf_weights_
        wanted = self._count_cut(n_clusters, 1 + int((self._edges[:, 2] > 0.0).sum()))
        labels, _ = cut_longest(self._edges, weights, wanted, _SHARE, most)
        self._labels, self.n_clusters_ = number_by_weight(labels, weights), wanted
        # Each row belongs to a cluster, at any distance.
        self._births = np.append(np.zeros(wanted), np.inf)
        self._deaths = np.zeros(wanted + 1)
        self._label_rows(self._labels)

    def cut(self, n_clusters: int, most: int | None = None) -> Self:
        """Cut the tree into another number of clusters, without a new fit.

        Parameters
        ----------
        n_clusters : int
            Number of clusters.
        most : int, optional
            Number of clusters from which the minimum weight of a cluster is computed.  The
            default is ``n_clusters``, as in a fit.  Cuts with the same ``most`` are nested.

        Returns
        -------
        HDBSCAN
            A fitted copy.

        Raises
        ------
        ValueError
            For a model that was fitted without ``n_clusters``, and for more clusters than leaves
            or than ``most``.
        """
        self._check_has_edges()
        self._check_n_leaves(n_clusters)
        if most is not None:
            check_integer(most, "most", n_clusters)
        copy = self._copied(n_clusters=n_clusters)
        copy._set_cut(n_clusters, most)
        return copy

    def cut_table(self, most: int = 12) -> list[Cut]:
        """Return height and smallest cluster of nested cuts into 2, 3, ... clusters.

        A large step between two heights indicates a good number of clusters:
        :func:`daskclust.plotting.draw_cuts` shows it.

        Parameters
        ----------
        most : int, default=12
            Largest number of clusters, as in :meth:`cut`.

        Returns
        -------
        list of (n_clusters, height, smallest)
            ``height`` is the length of the last edge that is cut for that many clusters;
            ``smallest`` is the weight of the smallest cluster.

        Raises
        ------
        ValueError
            For a model that was fitted without ``n_clusters``.

        Examples
        --------
        >>> import numpy as np, daskclust
        >>> X = np.concatenate([np.arange(20.0), 50 + np.arange(20.0), 80 + np.arange(20.0)])
        >>> model = daskclust.HDBSCAN(n_clusters=2).fit(X[:, None])
        >>> for cut in model.cut_table(4):
        ...     print(cut.n_clusters, cut.height, cut.smallest)
        2 31.0 20.0
        3 11.0 20.0
        4 3.0 7.0
        """
        self._check_has_edges()
        check_integer(most, "most", 2)
        weights, most = self.leaf_weights_, min(most, len(self.leaf_weights_))
        cuts = []
        for k in range(2, most + 1):
            labels, lengths = cut_longest(self._edges, weights, k, _SHARE, most)
            cuts.append(Cut(k, float(lengths[-1]), float(np.bincount(labels, weights).min())))
        return cuts

    def _check_has_edges(self) -> None:
        check_is_fitted(self)
        if self.n_clusters is None:
            raise ValueError(
                "The model was fitted with n_clusters=None and does not have a tree to cut. Fit "
                "HDBSCAN(n_clusters=2), and cut its tree into any number of clusters."
            )

    def _membership(self, wanted: Any) -> _Membership:
        names = ("labels", "falls", "ends", "core", "scales", "births", "deaths")
        return _Membership(wanted, *(getattr(self, f"_{name}") for name in names))

    def _label_of(self) -> Any:
        return self._membership("labels")

    def score_samples(self, X: Any) -> Any:
        """Return minus the GLOSH score of each row: 0 is normal, -1 is an outlier.

        Parameters
        ----------
        X : array-like, dask.array.Array or Cube of shape (n_samples, n_features)

        Returns
        -------
        scores : ndarray or dask.array.Array of shape (n_samples,), float64
            Lazy, and chunked like X, for Dask input.
        """
        return -self._map(self._checked(X), self._membership("outliers"), np.float64, "score")

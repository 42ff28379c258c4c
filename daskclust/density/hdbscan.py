"""HDBSCAN for data of any size."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral
from typing import Any, ClassVar, Literal, Self, get_args

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from daskclust.core.array_types import Array, Floats, Ints
from daskclust.core.estimator.fit_loop import OpenData, fit
from daskclust.core.estimator.parameters import (
    COMMON,
    COUNT,
    FLAG,
    NOT_NEGATIVE,
    Constraints,
    Interval,
    StrOptions,
)
from daskclust.core.estimator.transforms import EUCLIDEAN
from daskclust.core.estimator.validation import Data, check_enough_rows, check_integer
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
    ROWS,
    Cut,
    Leaves,
    LeavesProblem,
    TreeEstimator,
    count_rows,
    explain_metric,
)

#: Density at which a cluster of bubbles begins, as a multiple of the density at which it separates
#: from other clusters.  Bubbles can connect regions that their rows do not connect.
_BIRTH_FACTOR = 1.08
#: Minimum mean density of the rows of a cluster, as a multiple of the density at which the cluster
#: separates.  It removes clusters of a few bubbles that are close by chance.
_MIN_MEAN_DENSITY = 1.3
#: Default `min_samples` with `n_clusters`: the row or prototype itself and 5 neighbors.
_NEIGHBORS = 6.0
#: Minimum weight on each side of a cut, as a fraction of the mean weight of a cluster.
_MIN_SIDE = 0.25


@dataclass(frozen=True)
class _Membership:
    """Function that computes labels or scores of rows from their nearest leaves and distances.

    ``births`` and ``deaths`` (k + 1,) are the densities at which clusters begin and end; the last
    element is for noise.  The other arrays have one element per leaf: see :class:`Selection`.
    """

    output: Literal["labels", "probabilities", "outliers"]
    labels: Ints
    falls: Floats
    ends: Floats
    core: Floats
    scales: Floats
    births: Floats
    deaths: Floats

    def __call__(self, leaves: Ints, distances: Floats) -> Array:
        """Return labels, or numbers between 0 and 1."""
        # The core distance of a bubble that is just large enough to contain the row.
        reach = distances * self.scales[leaves]
        with np.errstate(divide="ignore", invalid="ignore"):
            density = 1.0 / np.maximum(reach, self.core[leaves])
            density = np.minimum(density, self.falls[leaves])
            if self.output == "outliers":
                ends = self.ends[leaves]
                scores = (ends - density) / ends
                return np.where(np.isfinite(density) & (ends > 0.0), scores, 0.0)
            labels = self.labels[leaves]
            labels = np.where(density >= self.births[labels], labels, -1)
            if self.output == "labels":
                return labels.astype(np.int32)
            deaths = self.deaths[labels]
            strengths = np.minimum(density, deaths) / deaths
            strengths[~np.isfinite(density) | (deaths == 0.0)] = 1.0
            strengths[labels < 0] = 0.0
            return strengths


class HDBSCAN(TreeEstimator):
    """HDBSCAN for data of any size: clusters of any shape and density, and noise.

    Use it when clusters are dense regions of any shape, and other rows are noise.  Set
    ``n_clusters`` if the number of clusters is known: then each row belongs to a cluster.
    Weighted prototypes (data bubbles [1]_) represent the rows.  With at most ``n_prototypes`` rows,
    clusters equal scikit-learn's.

    Parameters
    ----------
    min_cluster_size : int or float, default=5
        Minimum number of rows of a cluster: an integer of at least 2, or a fraction of all rows.
        With ``n_clusters``, it affects only ``condensed_tree_`` and outlier scores (see Notes).
    n_clusters : int, default=None
        Number of clusters.  If None, clusters are chosen by their stability, and other rows are
        noise.
    min_samples : int, default=None
        Minimum number of rows in the neighborhood of a core row, including the row itself.  The
        default is ``min_cluster_size``, or 6 with ``n_clusters``.  Larger values give more noise.
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
        Cluster of each row, -1 for noise.  Cluster 0 has the largest weight.  Lazy for Dask input.
    probabilities_ : ndarray or dask.array.Array of shape (n,), float64
        Strength of the membership of each row in its cluster; 0 for noise.
    outlier_scores_ : ndarray or dask.array.Array of shape (n,), float64
        GLOSH score of each row: 0 in the center of a cluster, close to 1 for outliers.
    n_clusters_, n_iter_, n_features_in_ : int
        ``n_iter_`` is the number of passes that moved prototypes: 0 if rows are the leaves.
    condensed_tree_ : structured ndarray
        ``parent``, ``child``, ``lambda_val`` (1 / distance), ``child_size``, as in scikit-learn.
    leaf_weights_ : ndarray of shape (m,), float64
        Weight of the rows of each leaf.
    feature_names_in_ : ndarray of shape (p,)
    history_ : list of dict
        One record per pass, with ``objective`` (inertia of the prototypes).

    Raises
    ------
    ValueError
        For NaN, infinity, too few rows, and parameters out of range.
    CheckpointError
        If the checkpoint is damaged or belongs to other data or parameters.

    Warns
    -----
    ConvergenceWarning
        If all rows are noise, or if equal prototypes are in different clusters.

    See Also
    --------
    DBSCAN : Exact, with one density for all clusters.
    AgglomerativeClustering : Hierarchies of other linkages.
    KMeans : Faster for round clusters without noise.

    Notes
    -----
    With ``n_clusters`` and more rows than prototypes, ``min_samples`` and an integer
    ``min_cluster_size`` count prototypes instead of rows.  Rows above a threshold of
    ``outlier_scores_`` can be treated as noise.
    *Cost*: 4 passes, and 1 for each result.  A pass compares each row with all m prototypes.  The
    tree takes O(m^2 p) time and O(m p) memory on the client.  The user guide ("Trees and
    density") describes noise, ``n_clusters`` and times.

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
        # The last element is for noise.  Declared before the labels, which must be below k.
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

    _parameter_constraints: ClassVar[Constraints] = {
        "min_cluster_size": [*ROWS],
        "n_clusters": [COUNT, None],
        "min_samples": [COUNT, None],
        "n_prototypes": [Interval(Integral, 2)],
        "cluster_selection_method": [StrOptions(*get_args(Method))],
        "cluster_selection_epsilon": [NOT_NEGATIVE],
        "allow_single_cluster": [FLAG],
        **COMMON,
    }

    @explain_metric
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
            Cubes also accept an image (y, x) and ``"area"``; see
            :meth:`daskclust.Cube.row_weights`.

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
        leaves, (rows, row_leaves) = problem.leaves(state), problem.rows_of_leaves(state)
        weights = leaves.weights
        are_counts = (weights == np.floor(weights)).all() and weights.sum() <= self.n_prototypes
        if problem.n_lloyd == 0 and self.n_clusters is not None:
            # Equal rows are one leaf, and leaves are sorted, so results do not depend on the order
            # of the rows.
            leaves, new_numbers = leaves.distinct()
            row_leaves = new_numbers[row_leaves]
        elif problem.n_lloyd == 0 and are_counts:
            # The order of leaves breaks ties between equal distances.  A row of weight 3 therefore
            # gives the same tree as three rows only if it becomes three leaves.
            n_copies = weights.astype(np.int64)
            leaves, row_leaves = leaves.repeated(n_copies), np.cumsum(n_copies) - n_copies
        self._store_leaves(problem, leaves, history)
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
        self._core, self._scales = (
            core_distances(bubbles, samples),
            bubbles.extent_fractions(samples),
        )
        edges = spanning_edges(bubbles, self._core)
        condensed = condense(
            density_tree(edges, leaves.weights), leaves.weights, self._core, smallest
        )
        birth_factor = 1.0
        if problem.n_lloyd:
            exponent = 1.0 / leaves.centers.shape[1]
            condensed, birth_factor = (
                prune(condensed, m, _MIN_MEAN_DENSITY**exponent),
                _BIRTH_FACTOR**exponent,
            )
        self.condensed_tree_ = condensed.view(np.recarray)
        chosen = select_clusters(
            condensed,
            m,
            self.cluster_selection_method,
            float(self.cluster_selection_epsilon),
            bool(self.allow_single_cluster),
            birth_factor=birth_factor,
        )
        self._falls, self._ends = chosen.falls, chosen.ends
        if self.n_clusters is not None:
            self._edges = edges
            self._map_leaves(data, problem, (rows, row_leaves))
            self._set_cut(self.n_clusters)
            self.outlier_scores_ = self._map_fit_rows(
                data, "outliers", np.float64, rows, row_leaves
            )
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
        for name, output, dtype in (
            ("labels_", "labels", np.int32),
            ("probabilities_", "probabilities", np.float64),
            ("outlier_scores_", "outliers", np.float64),
        ):
            self.__dict__[name] = self._map_fit_rows(data, output, dtype, rows, row_leaves)

    def _map_fit_rows(
        self, data: OpenData, output: Any, dtype: Any, rows: Ints, leaves: Ints
    ) -> Any:
        """Return labels or scores of the rows of the fit.  The rows ``rows`` are ``leaves``."""
        membership = self._membership(output)
        values = membership(leaves, np.zeros(len(leaves))) if len(leaves) else np.empty(0, dtype)
        patch = rows, values
        return self._map(data.X, membership, dtype, output, data.rows.lengths, patch, data.rows)

    def _set_cut(self, n_clusters: int, most: int | None = None) -> None:
        weights = self.leaf_weights_
        n_cut = self._count_cut(n_clusters, 1 + int((self._edges[:, 2] > 0.0).sum()))
        labels, _ = cut_longest(self._edges, weights, n_cut, _MIN_SIDE, most)
        self._labels, self.n_clusters_ = number_by_weight(labels, weights), n_cut
        # Densities that assign each row to a cluster, at any distance.
        self._births = np.append(np.zeros(n_cut), np.inf)
        self._deaths = np.zeros(n_cut + 1)
        self._label_rows(self._labels)

    def cut(self, n_clusters: int, most: int | None = None) -> Self:
        """Cut the tree into another number of clusters, without a new fit.

        Parameters
        ----------
        n_clusters : int
            Number of clusters.
        most : int, optional
            Number of clusters that sets the minimum weight of a cluster: a quarter of the total
            weight divided by ``most``.  The default is ``n_clusters``, as in a fit.  Cuts with the
            same ``most`` are nested.

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
        """Return the heights and smallest clusters of nested cuts into 2, 3, ... clusters.

        A large step between two heights indicates a good number of clusters:
        :func:`daskclust.plotting.draw_cuts` shows it.

        Parameters
        ----------
        most : int, default=12
            Largest number of clusters, as in :meth:`cut`.

        Returns
        -------
        list of (n_clusters, height, smallest)
            ``height`` is the length of the last edge that is cut; ``smallest`` is the weight of
            the smallest cluster.

        Raises
        ------
        ValueError
            For a model that was fitted without ``n_clusters``.

        Examples
        --------
        >>> import numpy as np, daskclust
        >>> X = np.concatenate([np.arange(20.0), 50 + np.arange(20.0), 80 + np.arange(20.0)])
        >>> model = daskclust.HDBSCAN(n_clusters=2).fit(X[:, None])
        >>> for cut in model.cut_table(3):
        ...     print(cut.n_clusters, cut.height, cut.smallest)
        2 31.0 20.0
        3 11.0 20.0
        """
        self._check_has_edges()
        check_integer(most, "most", 2)
        weights, most = self.leaf_weights_, min(most, len(self.leaf_weights_))
        cuts = []
        for k in range(2, most + 1):
            labels, lengths = cut_longest(self._edges, weights, k, _MIN_SIDE, most)
            cuts.append(Cut(k, float(lengths[-1]), float(np.bincount(labels, weights).min())))
        return cuts

    def _check_has_edges(self) -> None:
        check_is_fitted(self)
        if self.n_clusters is None:
            raise ValueError(
                "n_clusters must be set before the fit to cut the tree, got n_clusters=None. Fit "
                "HDBSCAN(n_clusters=2), then cut its tree into any number of clusters."
            )

    def _membership(self, output: Any) -> _Membership:
        names = ("labels", "falls", "ends", "core", "scales", "births", "deaths")
        return _Membership(output, *(getattr(self, f"_{name}") for name in names))

    def _label_function(self) -> Any:
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

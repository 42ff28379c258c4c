"""Agglomerative clustering for data of any size."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from numbers import Integral, Real
from typing import Any, ClassVar, Literal, Self, get_args

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.spatial.distance import cdist
from sklearn.utils.validation import check_is_fitted

from daskclust.core.array_types import Array, Floats, Ints
from daskclust.core.constraints import check_pairs
from daskclust.core.estimator.fit_loop import OpenData, fit
from daskclust.core.estimator.parameters import (
    COMMON,
    COUNT,
    NOT_NEGATIVE,
    Constraints,
    Interval,
    StrOptions,
    check_value,
)
from daskclust.core.estimator.transforms import EUCLIDEAN, Metric, UnitSphere, Whitened
from daskclust.core.estimator.validation import Data, check_enough_rows, check_integer
from daskclust.core.kernels.linkage import Linkage, adjacency, cut_tree, link, link_adjacent
from daskclust.core.persistence.mixin import check_count
from daskclust.core.persistence.schema import Array as Stored
from daskclust.core.persistence.schema import Entry
from daskclust.core.reduction.connectivity import Connectivity
from daskclust.core.warn import warn
from daskclust.density.leaves import (
    Cut,
    Leaves,
    LeavesProblem,
    TreeEstimator,
    codes_of_leaves,
    explain_metric,
)
from daskclust.exceptions import ConstraintError, ConstraintWarning

View = Literal["auto", "raw", "standard", "angle"]
#: Default `gini_threshold`.
_GINI = 0.3


class AgglomerativeClustering(TreeEstimator):
    """Agglomerative clustering for data of any size, on weighted prototypes.

    Use it when you want a hierarchy of clusters that can be cut at several numbers of clusters.
    Prototypes represent the rows, and the tree of the prototypes is computed on the client.  With
    at most ``n_prototypes`` rows, the rows are the leaves, and the tree equals SciPy's.

    Parameters
    ----------
    n_clusters : int or None, default=2
        Number of clusters at which the tree is cut.  Use None with a ``distance_threshold``.
    linkage : {"ward", "average", "complete", "single", "genie"}, default="ward"
        Distance between two clusters, and height of their merge.

        - ``"ward"``: ``sqrt(2 u v / (u + v)) |a - b|`` for clusters with weights u, v and means
          a, b [1]_.
        - ``"average"``: mean distance over all pairs of rows.  The distance of two rows is the
          distance of their prototypes.
        - ``"complete"``: largest distance of their prototypes.
        - ``"single"``: smallest distance of their prototypes.
        - ``"genie"``: as ``"single"``.  If the weights of all clusters are too unequal, only a
          cluster of the smallest weight may merge with another cluster [3]_.
    gini_threshold : float, default=0.3
        Gini index of the weights of all clusters above which ``"genie"`` calls them too unequal,
        between 0 and 1.  With 1, ``"genie"`` is single linkage.  Not supported with other linkages.
    distance_threshold : float, default=None
        Height at or above which clusters are not merged.  It requires ``n_clusters=None``.
    n_prototypes : int, default=2000
        Maximum number of leaves of the tree.
    views : {"auto", "raw", "standard", "angle"}, default="auto"
        Scaling of the rows before they are compared.

        - ``"auto"`` and ``"raw"``: no scaling, so that heights equal SciPy's.
        - ``"standard"``: features are divided by their standard deviation.
        - ``"angle"``: rows are divided by their length.
    connectivity : {"adjacent"}, sparse matrix or array-like of shape (n, n), or None, default=None
        Pairs of rows whose clusters may merge.

        - ``"adjacent"``: clusters of a cube merge only if some of their pixels are adjacent.
        - matrix, for example from :func:`sklearn.neighbors.kneighbors_graph`: nonzero elements
          are the pairs.  There must be no more rows than prototypes.  The matrix is made
          symmetric.  As in scikit-learn, distances of clusters use only connected pairs of rows,
          except with Ward's linkage.
        - None: all pairs.
    random_state : int, RandomState, Generator or None, default=None
        Determines which rows are drawn as prototypes.  With an int, results do not depend on
        chunks, scheduler and workers.  Cubes are an exception: their rows are numbered block by
        block, so the size of blocks changes which rows are drawn.
    checkpoint : path-like, default=None
        As in :class:`KMeans`.

    Attributes
    ----------
    linkage_ : ndarray of shape (m - 1, 4), float64
        Tree, as SciPy's linkage matrix.  Merges that constraints forbid have infinite height.
    children_ : ndarray of shape (m - 1, 2), int64
        The two clusters of each merge: 0 to m - 1 are leaves, m + i is the result of merge i.
    leaf_weights_ : ndarray of shape (m,), float64
        Weight of the rows of each leaf.
    labels_ : ndarray or dask.array.Array of shape (n,), int32
        Cluster of the leaf nearest to each row.  Cluster 0 has the largest weight.
    n_clusters_, n_leaves_, n_iter_, n_features_in_ : int
        ``n_iter_`` is the number of passes that moved prototypes: 0 if rows are the leaves.
    feature_names_in_ : ndarray of shape (p,)
    history_ : list of dict
        One record per pass, with ``objective`` (inertia of the prototypes).

    Raises
    ------
    ValueError, ConstraintError, CheckpointError
        For NaN, infinity, unusable parameters or constraints, or a damaged checkpoint.

    See Also
    --------
    KMeans : Faster for a known number of round clusters.
    HDBSCAN : Clusters of any shape, with noise.

    Notes
    -----
    *Cost*: 8 passes, and 1 for adjacent pixels.  A tree of m leaves takes O(m^2 p) time and
    ``2 m^2`` bytes on the client.  The user guide ("Trees and density") has a table.

    References
    ----------
    .. [1] Ward, J. (1963). Hierarchical grouping to optimize an objective function. Journal
       of the American Statistical Association 58.
    .. [2] Muellner, D. (2011). Modern hierarchical, agglomerative clustering algorithms.
       arXiv:1109.2378.
    .. [3] Gagolewski, M., Bartoszuk, M., Cena, A. (2016). Genie: a new, fast, and
       outlier-resistant hierarchical clustering algorithm. Information Sciences 363.

    Examples
    --------
    >>> import numpy as np
    >>> import daskclust
    >>> X = np.array([[0.0], [1.0], [10.0], [11.0], [50.0]])
    >>> model = daskclust.AgglomerativeClustering(3).fit(X)
    >>> model.labels_
    array([0, 0, 1, 1, 2], dtype=int32)
    >>> model.cut(2).labels_
    array([0, 0, 0, 0, 1], dtype=int32)
    """

    _saved_state: ClassVar[Mapping[str, Entry]] = {
        "linkage_": Stored("n four", finite=False, low=0.0, optional=True),
        "_codes": Stored("m", kind="i", low=0, below="m"),
    }
    _n_lloyd = 5

    _parameter_constraints: ClassVar[Constraints] = {
        "n_clusters": [COUNT, None],
        "linkage": [StrOptions(*get_args(Linkage))],
        "gini_threshold": [Interval(Real, 0, 1, closed="both")],
        "distance_threshold": [NOT_NEGATIVE, None],
        "n_prototypes": [Interval(Integral, 2)],
        "views": [StrOptions(*get_args(View))],
        "connectivity": ["array-like", "sparse matrix", StrOptions("adjacent"), None],
        **COMMON,
    }

    @explain_metric
    def __init__(
        self,
        n_clusters: int | None = 2,
        *,
        linkage: Linkage = "ward",
        gini_threshold: float = _GINI,
        distance_threshold: float | None = None,
        n_prototypes: int = 2000,
        views: View = "auto",
        connectivity: Literal["adjacent"] | Any = None,
        random_state: Any = None,
        checkpoint: Any = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.linkage: Any = linkage
        self.gini_threshold = gini_threshold
        self.distance_threshold = distance_threshold
        self.n_prototypes = n_prototypes
        self.views: Any = views
        self.connectivity = connectivity
        self.random_state = random_state
        self.checkpoint = checkpoint

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.linkage != "genie" and self.gini_threshold != _GINI:
            raise ValueError(
                f"gini_threshold={self.gini_threshold!r} requires linkage='genie', got "
                f"linkage={self.linkage!r}. Omit gini_threshold, or change linkage."
            )
        _check_cut(self.n_clusters, self.distance_threshold, "distance_threshold")
        if self.n_clusters is not None:
            self._check_n_clusters(self.n_clusters)

    def fit(
        self, X: Any, y: Any = None, *, cannot_link: Any = None, sample_weight: Any = None
    ) -> Self:
        """Compute the tree and cut it.

        Parameters
        ----------
        X : array-like, dask.array.Array, DataFrame, xarray.DataArray or Cube of shape (n, p)
            Rows to cluster.
        y : ignored
        cannot_link : array-like of shape (c, 2), int, optional
            Pairs of row numbers that must be in different clusters.  Each of these rows is a
            leaf.
        sample_weight : array-like or dask.array.Array of shape (n,), optional
            Weights of the rows.  An integer weight is equivalent to repeating the row, and 0 to
            leaving it out.
            Cubes also accept an image (y, x) and ``"area"``; see
            :meth:`daskclust.Cube.row_weights`.

        Returns
        -------
        self
        """
        return fit(self, X, sample_weight, cannot_link=cannot_link)

    def _read(self, data: Data, cannot_link: Any = None) -> Ints:
        check_enough_rows(data, self.n_clusters or 0)
        if data.n_rows < 2:
            raise ValueError(f"X must have at least 2 rows, got n_samples={data.n_rows}.")
        if isinstance(self.connectivity, str) and data.cube is None:
            raise ValueError(
                f"connectivity={self.connectivity!r} requires a cube, got X without pixel "
                "positions. Use daskclust.open_cube, or connectivity=None."
            )
        if self._connects_rows:
            n, shape = int(data.n_rows), np.shape(self.connectivity)
            if shape != (n, n):
                raise ValueError(
                    f"connectivity must have the shape {n, n}, got {shape}. Pass a matrix with a "
                    "row and a column for each row of X."
                )
            weights = coo_array(self.connectivity).data
            if weights.dtype.kind not in "biuf" or not np.isfinite(weights).all():
                raise ValueError(
                    "connectivity must be a matrix of finite numbers, got NaN, infinity or other "
                    f"values ({weights.dtype}). Use 0 for rows that are not connected."
                )
            if n > self.n_prototypes:
                raise ValueError(
                    f"A matrix connectivity must have at most n_prototypes={self.n_prototypes} "
                    f"rows, so that the rows are the leaves of the tree, got {n} rows. Raise "
                    f"n_prototypes to {n} (memory: {2e-9 * n * n:.2g} GB), or use fewer rows."
                )
        return check_pairs(cannot_link, "cannot_link", int(data.n_rows))

    def _problem(self, data: OpenData, read: Ints) -> LeavesProblem:
        linked_rows = np.unique(read).astype(np.int64)
        if data.weight is not None and len(linked_rows):
            # Rows of weight 0 are not leaves.
            linked_rows = linked_rows[data.rows.take(linked_rows)[1] > 0.0]
        if data.rows.n_rows > self.n_prototypes < len(linked_rows):
            raise ConstraintError(
                f"cannot_link must contain at most n_prototypes={self.n_prototypes} rows, because "
                f"each of them is a leaf, got {len(linked_rows)}. Raise n_prototypes, or pass "
                "fewer pairs."
            )
        return self._find_leaves(
            data, self._view_metric(data), linked_rows, read, cannot_link=read.tolist()
        )

    @property
    def _depends_on_units(self) -> bool:
        return self.views != "standard"

    def _view_metric(self, data: OpenData) -> Metric:
        if self.views == "angle":
            return UnitSphere()
        if self.views != "standard":
            return EUCLIDEAN
        deviation = np.sqrt(data.survey.variance)
        varies = deviation > 0
        if not varies.any():
            return EUCLIDEAN
        scale = np.diag(deviation)[:, varies]
        return Whitened(
            data.survey.mean, np.diag(1.0 / np.where(varies, deviation, 1.0))[:, varies], scale.T
        )

    def _finish(
        self, data: OpenData, problem: LeavesProblem, state: Leaves, history: list[dict[str, Any]]
    ) -> None:
        leaves, row_leaves = problem.leaves(state), problem.rows_of_leaves(state)
        self._store_leaves(problem, leaves, history)
        pairs = _between_leaves(problem.read, row_leaves)
        compute_tree = link
        if self._connects_rows:
            adjacent = adjacency(
                _connect_components(self.connectivity, row_leaves[0], leaves.centers),
                len(row_leaves[0]),
            )
            compute_tree = partial(link_adjacent, adjacent=adjacent, by_edges=True)
        elif self.connectivity is not None:
            compute_tree = partial(
                link_adjacent, adjacent=self._adjacent_leaves(data, leaves, row_leaves)
            )
        self.linkage_ = compute_tree(
            leaves.centers,
            leaves.weights,
            self.linkage,
            cannot_link=pairs,
            gini_threshold=float(self.gini_threshold),
        )
        self._map_leaves(data, problem, row_leaves)
        self._set_cut(self.n_clusters, self.distance_threshold)

    def _check_sizes(self) -> None:
        m, tree = self.n_leaves_, self.linkage_
        if tree.shape != (m - 1, 4) or np.isnan(tree).any():
            raise ValueError(
                f"linkage_ must have the shape ({m - 1}, 4) for {m} leaves, and no NaN, got "
                f"{tree.shape}."
            )
        merged = tree[:, :2].ravel()
        exist = np.repeat(m + np.arange(m - 1), 2) > merged
        if not (exist & (merged == np.floor(merged))).all() or len(set(merged)) < len(merged):
            raise ValueError("linkage_ must be a tree, got a merge of unknown or merged clusters.")
        check_count(self, "n_clusters_", len(np.unique(self._codes)))
        if self.n_clusters is not None and self.n_clusters_ != min(self.n_clusters, m):
            check_count(self, "n_clusters", self.n_clusters_)

    def _adjacent_leaves(self, data: OpenData, leaves: Leaves, own: tuple[Ints, Ints]) -> Array:
        connectivity = Connectivity((self._metric,), (leaves.centers,), 1, own=own)
        _, (pairs,) = data.cube.count_neighbors(connectivity, data.weight)
        return adjacency(pairs.keys, len(leaves.centers))

    @property
    def _connects_rows(self) -> bool:
        return self.connectivity is not None and not isinstance(self.connectivity, str)

    @property
    def children_(self) -> Ints:
        """Two clusters of each merge."""
        return self.linkage_[:, :2].astype(np.int64)

    @property
    def n_leaves_(self) -> int:
        """Number of leaves of the tree."""
        return len(self.leaf_weights_)

    def _set_cut(self, n_clusters: int | None, height: float | None) -> None:
        heights = self.linkage_[:, 2]
        n_min = 1 + int(np.isinf(heights).sum())
        if height is not None:
            n_cut = 1 + int((heights >= height).sum())
        else:
            n_cut = int(n_clusters or 0)
            if n_cut < n_min:
                raise ConstraintError(
                    f"n_clusters must be at least {n_min} with this cannot_link and connectivity, "
                    f"got {n_cut}. Raise n_clusters, or remove constraints."
                )
            n_cut = self._count_cut(n_cut, 1 + int((heights > 0.0).sum()))
        self.n_clusters_ = n_cut
        self._codes = cut_tree(self.linkage_, self.leaf_weights_, n_cut)
        self._label_rows(self._codes)

    def cut(self, n_clusters: int | None = None, height: float | None = None) -> Self:
        """Cut the tree into another number of clusters, without a new fit.

        Pass either ``n_clusters`` or ``height``.

        Parameters
        ----------
        n_clusters : int, optional
            Number of clusters.
        height : float, optional
            Height at or above which clusters are not merged.

        Returns
        -------
        AgglomerativeClustering
            A fitted copy.

        Raises
        ------
        ValueError
            If not exactly one argument is passed, and for more clusters than leaves.
        """
        check_is_fitted(self)
        _check_cut(n_clusters, height, "height")
        if n_clusters is not None:
            self._check_n_leaves(n_clusters)
        copy = self._copied(n_clusters=n_clusters, distance_threshold=height)
        copy._set_cut(n_clusters, height)
        return copy

    def cut_table(self, most: int = 12) -> list[Cut]:
        """Return the heights and smallest clusters of the cuts into 2, 3, ... clusters.

        A large step between two heights indicates a good number of clusters:
        :func:`daskclust.plotting.draw_cuts` shows it.

        Parameters
        ----------
        most : int, default=12
            Largest number of clusters.

        Returns
        -------
        list of (n_clusters, height, smallest)
            ``height`` is the height of the next merge, which leaves ``n_clusters - 1`` clusters;
            ``smallest`` is the weight of the smallest cluster.

        Examples
        --------
        >>> import numpy as np, daskclust
        >>> X = np.array([[0.0], [1.0], [10.0], [11.0], [50.0]])
        >>> for cut in daskclust.AgglomerativeClustering(3).fit(X).cut_table(3):
        ...     print(cut.n_clusters, round(cut.height, 1), cut.smallest)
        2 56.3 1.0
        3 14.1 1.0
        """
        check_is_fitted(self)
        check_integer(most, "most", 2)
        heights, weights = self.linkage_[:, 2], self.leaf_weights_
        n_min = 2 + int(np.isinf(heights).sum())
        cuts = []
        for k in range(n_min, min(most, self.n_leaves_) + 1):
            sizes = np.bincount(cut_tree(self.linkage_, weights, k), weights)
            cuts.append(Cut(k, float(heights[self.n_leaves_ - k]), float(sizes.min())))
        return cuts

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        """Show the cuts of a fitted tree below the parameters, in notebooks."""
        bundle: dict[str, str] = super()._repr_mimebundle_(**kwargs)
        if "text/html" in bundle and hasattr(self, "linkage_"):
            bundle["text/html"] += self._cuts_as_html()
        return bundle

    def _cuts_as_html(self) -> str:
        rows = "".join(
            f"<tr{' style=font-weight:bold' if cut.n_clusters == self.n_clusters_ else ''}>"
            f'<td class="n">{cut.n_clusters}</td><td class="n">{cut.height:.4g}</td>'
            f'<td class="n">{cut.smallest:g}</td></tr>'
            for cut in self.cut_table(max(12, min(self.n_clusters_ + 2, 40)))
        )
        names = ("clusters", "height", "size of the smallest")
        head = "".join(f'<th class="n">{name}</th>' for name in names)
        return (
            "<table style='text-align:right'>"
            f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
        )

    def _label_function(self) -> Any:
        return partial(codes_of_leaves, codes=self._codes.astype(np.int32))

    def score_samples(self, X: Any) -> Any:
        """Return minus the distance of each row to its nearest leaf: higher is more normal.

        Parameters
        ----------
        X : array-like, dask.array.Array or Cube of shape (n_samples, n_features)

        Returns
        -------
        scores : ndarray or dask.array.Array of shape (n_samples,), float64
            Lazy, and chunked like X, for Dask input.
        """
        return self._map(self._checked(X), _negative_distances, np.float64, "score")


def _negative_distances(leaves: Array, distances: Floats) -> Floats:
    return -np.asarray(distances, np.float64)


def _check_cut(n_clusters: Any, height: Any, name: str) -> None:
    if (n_clusters is None) == (height is None):
        raise ValueError(
            f"n_clusters or {name} must be set, and the other must be None, got "
            f"n_clusters={n_clusters!r}, {name}={height!r}."
        )
    if n_clusters is not None:
        check_integer(n_clusters, "n_clusters", 1)
        return
    check_value(height, name, NOT_NEGATIVE)


def _between_leaves(pairs: Ints, row_leaves: tuple[Ints, Ints]) -> Ints:
    """Return pairs of rows as pairs of leaves, without rows of weight 0."""
    rows, leaves = row_leaves
    if not len(pairs) or not len(rows):
        return np.empty((0, 2), np.int64)
    positions = np.searchsorted(rows, pairs).clip(max=len(rows) - 1)
    have_weight = (rows[positions] == pairs).all(axis=1)
    return leaves[positions[have_weight]]


def _connect_components(connectivity: Any, rows: Ints, points: Floats) -> Ints:
    """Connect the components of a matrix; return the keys ``a n + b`` of its connected rows."""
    n = len(rows)
    graph = coo_array(coo_array(connectivity).tocsr()[rows][:, rows])
    a, b = graph.nonzero()
    count, components = connected_components(graph, directed=False)
    if count > 1:
        warn(
            f"the number of connected components of the connectivity matrix is {count} > 1. "
            "Completing it to avoid stopping the tree early.",
            ConstraintWarning,
        )
        order = np.argsort(components, kind="stable")
        starts = np.searchsorted(components[order], np.arange(count))
        keys = [a * n + b]
        for component in range(count - 1):
            # Connect this component with each later component by the nearest pair of rows, or by
            # all pairs of this distance.
            members, later_rows = (
                order[starts[component] : starts[component + 1]],
                order[starts[component + 1] :],
            )
            distances = cdist(points[members], points[later_rows])
            shortest = np.minimum.reduceat(
                distances.min(axis=0), starts[component + 1 :] - starts[component + 1]
            )
            i, j = np.nonzero(distances == shortest[components[later_rows] - component - 1])
            keys.append(members[i] * n + later_rows[j])
        return np.concatenate(keys).astype(np.int64)
    return (a * n + b).astype(np.int64)

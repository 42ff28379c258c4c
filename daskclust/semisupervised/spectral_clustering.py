"""Spectral clustering on a graph of rows or prototypes, with or without constraints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, diags
from sklearn.base import ClusterMixin
from sklearn.utils.validation import check_is_fitted

from daskclust.core.array_types import Array, Floats, Ints
from daskclust.core.constraints import PairwiseConstraints
from daskclust.core.engine import Rows
from daskclust.core.estimator.base import warn_few_distinct
from daskclust.core.estimator.fit_loop import OpenData, fit, row_labels
from daskclust.core.estimator.parameters import COMMON, COUNT, NOT_NEGATIVE, Constraints, StrOptions
from daskclust.core.estimator.partial_labels import NO_LABELS, PartialLabels, read_labels
from daskclust.core.estimator.row_functions import CheckedRows
from daskclust.core.estimator.validation import (
    Data,
    Views,
    check_enough_rows,
)
from daskclust.core.initialization.few_points import cluster_few
from daskclust.core.kernels.nearest.k_nearest import nearest_several
from daskclust.core.kernels.pair_counts import PairCounts
from daskclust.core.persistence.mixin import check_count
from daskclust.core.persistence.schema import Array as Stored
from daskclust.core.persistence.schema import Entry, Fields, Number, OneOf
from daskclust.core.warn import warn
from daskclust.exceptions import ConstraintWarning
from daskclust.semisupervised.base import BasePrototypes
from daskclust.semisupervised.feature_views import (
    SPACE,
    VIEWS,
    Space,
    check_views,
    choose_views,
    views_take_missing,
)
from daskclust.semisupervised.graph import (
    Embedding,
    leading_eigenvectors,
    neighbor_graph,
    unit_rows,
)
from daskclust.semisupervised.node_labels import draw_evenly, take_rows
from daskclust.semisupervised.pair_metric import LinkedNodes, NodeLinks
from daskclust.semisupervised.predict import near_values
from daskclust.semisupervised.problem import PrototypeProblem, PrototypeState

__all__ = ["SpectralClustering"]

#: Maximum number of labeled rows that are fetched, evenly from the classes.
_MAX_LABELED = 2**14


@dataclass(frozen=True)
class ConstrainedRows:
    """Constraints, and the values ``x`` (m, p) of the constrained rows.

    ``constraints`` are the explicit pairs.  ``rows`` (m,) are the numbers of all fetched rows,
    ``labeled`` the numbers of labeled rows, and ``codes`` the classes of labeled rows.
    """

    constraints: PairwiseConstraints
    rows: Ints
    x: Array
    labeled: Ints
    codes: Ints

    @classmethod
    def fetch(
        cls, rows: Rows, constraints: PairwiseConstraints, labels: PartialLabels, seed: int
    ) -> ConstrainedRows:
        """Fetch the constrained rows; one pass that reads only their chunks."""
        drawn = draw_evenly(labels.codes, labels.n_classes, _MAX_LABELED, seed)
        labeled, codes = labels.rows[drawn], labels.codes[drawn].astype(np.int64)
        wanted = np.union1d(constraints.rows, labeled)
        x, weight = take_rows(rows, wanted)
        absent = weight == 0
        if absent.any():
            warn(
                f"{int(absent.sum())} constrained row(s) have sample_weight 0 or no value at all "
                f"and are ignored with their constraints; the first is row "
                f"{int(wanted[absent][0])}.",
                ConstraintWarning,
            )
            constraints = constraints.without(np.isin(constraints.rows, wanted[absent]))
            present = ~np.isin(labeled, wanted[absent])
            labeled, codes = labeled[present], codes[present]
            wanted, x = wanted[~absent], x[~absent]
        return cls(constraints, wanted, x, labeled, codes)

    @property
    def any(self) -> bool:
        """True if there are pairs or labels."""
        return bool(self.constraints.n_pairs or len(self.labeled))

    def on_nodes(self, space: Space, nodes: Floats) -> NodeLinks:
        """Return the constraints of the nodes that are nearest to the rows."""
        node = nearest_several(space(self.x), nodes, 1)[0][:, 0].astype(np.int64)
        c = self.constraints
        pairs = node[np.searchsorted(self.rows, c.rows)]
        labeled = node[np.searchsorted(self.rows, self.labeled)]
        return NodeLinks(c, pairs[c.pair_left], pairs[c.pair_right], labeled, self.codes)


#: Number of neighbors of a node in the graph, including itself.
_NEIGHBORS = 10
#: Weight added to each edge, also to edges without rows, relative to the mean number of rows.
_MIN_EDGE_WEIGHT = 0.05
#: Number of eigenvectors beyond the number of clusters to which constraints give weights.
_FURTHER = 5


@dataclass(frozen=True)
class NodeGraph:
    """Graph of the nodes, with the number of rows near each node."""

    graph: csr_matrix
    mass: Floats
    n_clusters: int
    seed: int

    @classmethod
    def of(
        cls, nodes: Floats, near: PairCounts, n_near: int, n_clusters: int, seed: int
    ) -> NodeGraph:
        """Connect ``nodes`` (k, q) with their neighbors; weight edges by the rows near both ends.

        ``near`` counts, for pairs of nodes, the rows that have both among their ``n_near`` nearest
        nodes.
        """
        # A row is counted once for each of its other near nodes.
        mass = near.degrees(len(nodes)) / max(min(n_near, len(nodes)) - 1, 1)
        counts = (near.sparse(len(nodes)) + diags(mass)).tocsr()
        mean = counts.sum() / max(counts.nnz, 1)
        edges = neighbor_graph(nodes, _NEIGHBORS)
        graph = (
            edges.multiply(counts / mean if mean > 0 else counts) + _MIN_EDGE_WEIGHT * edges
        ).tocsr()
        return cls(graph, np.maximum(mass, 0.0), n_clusters, seed)

    @property
    def n_dimensions(self) -> int:
        """Number of eigenvectors without constraints."""
        return min(self.n_clusters, len(self.mass))

    def embed(self) -> Embedding:
        """Embed the nodes by the leading eigenvectors, scaled to length 1."""
        values, vectors = leading_eigenvectors(self.graph, self.n_dimensions)
        return Embedding(values, unit_rows(vectors))

    def link(self, links: NodeLinks) -> tuple[LinkedNodes, Embedding]:
        """Add constraints to more eigenvectors; also return the embedding without constraints."""
        d = self.n_dimensions
        values, vectors = leading_eigenvectors(self.graph, min(d + _FURTHER, len(self.mass)))
        linked = LinkedNodes.of(links, vectors, d, self.seed)
        return linked, Embedding(values[:d], linked.vectors[:, :d])

    def cluster(self, vectors: Floats) -> Ints:
        """Cluster the nodes by their coordinates (k, d)."""
        centers = cluster_few(vectors, self.mass, self.n_clusters, self.seed)
        return nearest_several(vectors, centers, 1)[0][:, 0].astype(np.int64)


@dataclass(frozen=True)
class ClusterVote:
    """Function that returns clusters of rows by the vote of their nearest nodes.

    A fitted SpectralClustering predicts with it; it is sent to the workers.
    """

    space: Space
    nodes: Floats
    clusters: Ints
    n_neighbors: int

    def __call__(self, x: Array) -> NDArray[np.int32]:
        """Return clusters (n,): the lowest number in case of ties, -1 for rows without values."""
        members = np.eye(int(self.clusters.max()) + 1)[self.clusters]
        votes = near_values(self.space(x), self.nodes, members, self.n_neighbors)
        labels = np.where(np.isnan(x).all(axis=1), -1, votes.argmax(axis=1))
        return labels.astype(np.int32)


#: Entry of a :class:`ClusterVote`.
_VOTE = OneOf(
    {
        ClusterVote: Fields(
            {
                "space": SPACE,
                "nodes": Stored("t s"),
                "clusters": Stored("t", kind="i", low=0, below="d"),
                "n_neighbors": Number(int, low=1),
            }
        )
    }
)


#: Number of nearest nodes of a row whose pairs are counted.
_COUNTED = 5
#: Maximum number of rows that are nodes themselves.
_MAX_NODES = 5000
#: Number of prototypes for more rows, and minimum number of prototypes per cluster.  With fewer
#: prototypes per cluster than neighbors of a node, most edges would lead to other clusters.
_PROTOTYPES, _PROTOTYPES_A_CLUSTER = 1000, _NEIGHBORS
#: Minimum gain in satisfied left-out constraints for using constraints, in standard errors.  Random
#: pairs, which would distort the clusters, seldom exceed it.
_MIN_GAIN = 1.5
#: Maximum number of k-means iterations for the prototypes.
_LLOYD = 15


def _count_nodes(n_rows: int, n_clusters: int) -> int:
    """Return the number of nodes of a graph."""
    if n_rows <= _MAX_NODES:
        return n_rows
    return min(max(_PROTOTYPES, _PROTOTYPES_A_CLUSTER * n_clusters), _MAX_NODES)


class _Read(NamedTuple):
    """Arguments of ``fit`` in addition to X."""

    labels: PartialLabels
    constraints: PairwiseConstraints
    views: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class _Problem(PrototypeProblem):
    """Fit on prototypes with constraints."""

    constrained: ConstrainedRows


class SpectralClustering(ClusterMixin, BasePrototypes):
    """Spectral clustering on prototypes, for data of any size, with or without constraints.

    Use it when clusters have any shape and you know their number.  If rows of all classes have
    labels, use :class:`LabelSpreading`; if clusters are compact, :class:`KMeans`.

    If there are at most 5000 rows, the rows are the nodes of a graph.  More rows are represented by
    prototypes.  Each node is connected with its nine nearest neighbors.  One pass counts, for
    each edge, the rows that have both ends among their five nearest nodes, as in an anchor graph
    [1]_.  The weight of an edge grows with this count.  The leading eigenvectors [3]_ of the graph
    are clustered, and each row gets a cluster by the vote of its nearest nodes.

    Constraints, as pairs or as labels of some rows, fit a metric of the eigenvectors [2]_.  They
    influence the clusters but need not hold: if they must, use :class:`COPKMeans`.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of clusters.
    n_prototypes : int or "auto", default="auto"
        Maximum number of prototypes.  With fewer rows, the rows are the nodes.  ``"auto"`` is 5000
        for at most 5000 rows, else 1000, or 10 per cluster if that is more (at most 5000).
    views : {"auto", "raw", "standard", "angle", "whitened", "mean", "mixture", "pckid"} or \
tuple of str, default="auto"
        Scaled copies of the rows, see :class:`LabelSpreading`, side by side in one space.  If
        values are missing, ``"auto"`` is ``("mixture", "pckid")``.
    n_neighbors : int, default=5
        Number of nearest nodes that vote for the cluster of a row.
    pair_strength : float or "auto", default="auto"
        Weight of a pair relative to the graph.

        - 0 ignores pairs and labels.
        - 1 gives a violated pair the same cost as a change of the metric by 1.
        - ``"auto"`` is 1 if its clusters satisfy more left-out constraints than the clusters
          without constraints (by 1.5 standard errors, in two-fold cross-validation), and else 0.
    random_state : int, RandomState, Generator or None, default=None
        An int gives the same result for any chunks, scheduler and number of workers.
    checkpoint : path-like, default=None
        File from which a repeated fit with the same data, constraints and parameters resumes.

    Attributes
    ----------
    labels_ : ndarray or dask.array.Array of shape (n,), int32
        Cluster of each row.  Lazy, and chunked like X, for Dask input.
    prototypes_ : ndarray of shape (m, p), float64
        Nodes as rows; in the views ``"angle"`` and ``"whitened"`` directions, NaN in ``"pckid"``.
    embedding_ : ndarray of shape (m, d), float64
        Nodes in the space of the eigenvectors, scaled to length 1.
    eigenvalues_ : ndarray of shape (d,), float64
        Leading eigenvalues of the graph, the largest first; d is n_clusters, or the number of nodes
        if that is less.
    pair_strength_ : float
        Strength that was used; 0 without constraints.
    n_iter_ : int
        Number of k-means iterations for the prototypes.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (p,)
        Names of the columns, if X has names.
    history_ : list of dict
        One record; its entries are described in the user guide.

    Raises
    ------
    ConstraintError
        For pairs, weights or labels that cannot be used.
    ValueError
        For NaN or infinity in X, fewer rows than clusters, and invalid parameters.

    Warns
    -----
    ConstraintWarning
        If constraints contradict each other, affect rows of sample weight 0, or are not used.

    See Also
    --------
    LabelSpreading : For labels of all classes.
    KMeans : Faster, for round clusters; the model consists of the centers.

    Notes
    -----
    The user guide ("Prototype graphs") describes the graph, the metric, passes and memory.

    References
    ----------
    .. [1] Liu, W., He, J., Chang, S.-F. (2010). Large graph construction for scalable
       semi-supervised learning. ICML.
    .. [2] Li, Z., Liu, J., Tang, X. (2009). Constrained clustering via spectral regularization.
       CVPR.
    .. [3] Ng, A. Y., Jordan, M. I., Weiss, Y. (2002). On spectral clustering: analysis and an
       algorithm. NIPS.

    Examples
    --------
    >>> import numpy as np
    >>> import daskclust
    >>> angle = np.linspace(0, np.pi, 300)
    >>> moon = np.column_stack([np.cos(angle), np.sin(angle)])
    >>> X = np.concatenate([moon, [1.0, 0.4] - moon])
    >>> labels = daskclust.SpectralClustering(2, random_state=0).fit(X).labels_
    >>> len(set(labels[:300])), len(set(labels[300:])), bool(labels[0] != labels[300])
    (1, 1, True)
    """

    #: y contains partial labels, or is None.
    _uses_labels: ClassVar[bool] = True

    _saved_state: ClassVar[Mapping[str, Entry]] = {
        "embedding_": Stored("m d"),
        "eigenvalues_": Stored("d"),
        "_vote": _VOTE,
        "pair_strength_": Number(low=0.0, optional=True),
    }

    _parameter_constraints: ClassVar[Constraints] = {
        "n_clusters": [COUNT],
        "n_prototypes": [COUNT, StrOptions("auto")],
        "views": [tuple, list, StrOptions("auto", *VIEWS)],
        "n_neighbors": [COUNT],
        "pair_strength": [NOT_NEGATIVE, StrOptions("auto")],
        **COMMON,
    }

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        n_prototypes: int | Literal["auto"] = "auto",
        views: Views = "auto",
        n_neighbors: int = 5,
        pair_strength: float | Literal["auto"] = "auto",
        random_state: Any = None,
        checkpoint: Any = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.n_prototypes: Any = n_prototypes
        self.views: Any = views
        self.n_neighbors = n_neighbors
        self.pair_strength: Any = pair_strength
        self.random_state = random_state
        self.checkpoint = checkpoint

    def _check_sizes(self) -> None:
        self._vote.space.check(self.n_features_in_, self._vote.nodes)
        # The number of clusters is at most the number of nodes.
        if not len(self.eigenvalues_) == len(self._vote.clusters) <= self.n_clusters:
            check_count(self, "n_clusters", len(self.eigenvalues_))

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        must_link: Any = None,
        cannot_link: Any = None,
        must_link_weight: Any = None,
        cannot_link_weight: Any = None,
        sample_weight: Any = None,
    ) -> Self:
        """Find the clusters.

        Parameters
        ----------
        X : array-like, dask.array.Array, DataFrame, xarray.DataArray or Cube
            Rows, of shape (n, p); the samples of a cube.
        y : array-like or dask.array.Array of shape (n,), or (rows, labels), optional
            Partial labels, as :meth:`SemiSupervisedKMeans.fit` takes them.  Two labeled rows are
            must-linked when their labels agree, else cannot-linked.
        must_link, cannot_link : array-like of shape (m, 2), int, optional
            Pairs of global row numbers.
        must_link_weight, cannot_link_weight : float or array-like of shape (m,), optional
            Weights of the pairs, 1 by default.  A weight of 0 disables a pair.  A single number
            also applies to the pairs that labels imply.  Only the proportions of weights matter.
        sample_weight : array-like or dask.array.Array of shape (n,), optional
            Weights of the rows; rows of weight 0 are ignored.
            Cubes also accept an image (y, x) and ``"area"``; see
            :meth:`daskclust.Cube.row_weights`.

        Returns
        -------
        self
        """
        return fit(
            self,
            X,
            sample_weight,
            y=y,
            must_link=must_link,
            cannot_link=cannot_link,
            must_link_weight=must_link_weight,
            cannot_link_weight=cannot_link_weight,
        )

    def _read(
        self,
        data: Data,
        y: Any = None,
        must_link: Any = None,
        cannot_link: Any = None,
        must_link_weight: Any = None,
        cannot_link_weight: Any = None,
    ) -> _Read:
        check_enough_rows(data, self.n_clusters)
        views = check_views(self.views, is_cube=data.cube is not None)
        labels = read_labels(y, data.n_rows)
        given = (must_link, cannot_link, must_link_weight, cannot_link_weight)
        constraints = PairwiseConstraints.from_fit_arguments(int(data.n_rows), *given)
        all_constraints = constraints
        if constraints.n_pairs and len(labels.rows):
            all_constraints = PairwiseConstraints.from_fit_arguments(
                int(data.n_rows), *given, (labels.rows, labels.codes)
            )
        all_constraints.warn_of_contradictions()
        if self.pair_strength == 0:
            labels, constraints = (
                NO_LABELS,
                constraints.without(np.ones(len(constraints.rows), bool)),
            )
        return _Read(labels, constraints, views)

    def _problem(self, data: OpenData, read: _Read) -> _Problem:
        seed, n_rows = data.seeds[0], int(data.rows.n_rows)
        if isinstance(self.n_prototypes, str):
            n_prototypes = _count_nodes(n_rows, int(self.n_clusters))
        else:
            n_prototypes = min(int(self.n_prototypes), n_rows)
        return _Problem(
            rows=data.rows,
            cube=data.cube,
            weight=data.weight,
            views=choose_views(self.views, read.views, data.survey, joined=True),
            joined=True,
            n_prototypes=n_prototypes,
            n_near=_COUNTED,
            lloyd_iter=_LLOYD,
            seed=seed,
            extra=np.empty((0, data.rows.n_features), data.rows.dtype),
            known=lambda: {"constraints": [read.constraints.digest(), read.labels.digest()]},
            constrained=ConstrainedRows.fetch(data.rows, read.constraints, read.labels, seed),
        )

    def _finish(
        self,
        data: OpenData,
        problem: _Problem,
        state: PrototypeState,
        history: list[dict[str, Any]],
    ) -> None:
        (nodes,), (counts,) = problem.nodes(state), problem.counts(state)
        k, rows = int(self.n_clusters), problem.constrained
        graph = NodeGraph.of(nodes, counts.near, problem.n_near, k, problem.seed)
        links = rows.on_nodes(problem.spaces(state)[0], nodes) if rows.any else None
        embedding, self.pair_strength_ = self._embed(graph, links)
        clusters = graph.cluster(embedding.vectors)
        (space,) = problem.spaces(state)
        self._vote = ClusterVote(space, nodes, clusters, int(self.n_neighbors))
        self.embedding_, self.eigenvalues_ = embedding.vectors, embedding.values
        self._set_fitted(problem, state, [nodes], history)
        warn_few_distinct(len(np.unique(clusters)), k)
        self.labels_ = row_labels(
            data, CheckedRows(self._vote, data.rows.dtype, views_take_missing(problem.views))
        )

    def _embed(self, graph: NodeGraph, links: NodeLinks | None) -> tuple[Embedding, float]:
        """Embed the nodes, and choose the strength of the constraints."""
        if links is None:
            return graph.embed(), 0.0
        linked, unconstrained = graph.link(links)
        auto = isinstance(self.pair_strength, str)
        strength = 1.0 if auto else float(self.pair_strength)
        gain = linked.gain(graph.cluster) if auto else np.inf
        if gain > _MIN_GAIN and strength > 0:
            return unconstrained._replace(vectors=linked.embed(strength)), strength
        if gain < -_MIN_GAIN:
            warn(
                "Left-out constraints are satisfied less often if the other constraints are used, "
                "so no constraint is used (pair_strength_ is 0). Check the pairs and labels, or "
                "set pair_strength.",
                ConstraintWarning,
            )
        return unconstrained, 0.0

    @property
    def _space(self) -> Space:
        return self._vote.space

    def _nodes_of_views(self) -> list[tuple[Space, Floats]]:
        return [(self._vote.space, self._vote.nodes)]

    def predict(self, X: Any) -> Any:
        """Return the cluster of each row.

        Parameters
        ----------
        X : array-like, dask.array.Array or Cube of shape (n_samples, n_features)

        Returns
        -------
        labels : ndarray or dask.array.Array of shape (n_samples,), int32
            Lazy, and chunked like X, for a Dask array or a cube.

        Raises
        ------
        ValueError
            For NaN or infinity, and another number of features.
        """
        check_is_fitted(self)
        return self._map(X, self._vote, np.int32, "predict")

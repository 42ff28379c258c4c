"""Spectral clustering on a graph of prototypes, and constraints of rows brought to its nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, diags
from sklearn.base import ClusterMixin
from sklearn.utils.validation import check_is_fitted

from daskclust.core.array_types import Array, Bools, Floats, Ints
from daskclust.core.constraints import PairwiseConstraints
from daskclust.core.engine import Rows
from daskclust.core.estimator.base import warn_few_distinct
from daskclust.core.estimator.fit_loop import OpenData, fit, row_labels
from daskclust.core.estimator.partial_labels import NO_LABELS, PartialLabels, read_labels
from daskclust.core.estimator.row_functions import CheckedRows
from daskclust.core.estimator.validation import (
    Data,
    Views,
    check_choice,
    check_enough_rows,
    check_integer,
    check_real,
)
from daskclust.core.initialization.sampled import cluster_few
from daskclust.core.kernels.nearest.k_nearest import nearest_several
from daskclust.core.kernels.pair_counts import PairCounts
from daskclust.core.persistence.mixin import check_count
from daskclust.core.persistence.schema import Array as Stored
from daskclust.core.persistence.schema import Entry, Number
from daskclust.core.warn import warn
from daskclust.exceptions import ConstraintWarning
from daskclust.semisupervised.base import BasePrototypes
from daskclust.semisupervised.feature_views import Space, check_views, takes_gaps, views_of_gaps
from daskclust.semisupervised.graph import (
    Embedding,
    bend,
    carrier,
    embed,
    neighbor_graph,
    normalized,
    propagate_pairs,
)
from daskclust.semisupervised.node_labels import (
    NODES_A_PROTOTYPE,
    LabelPlan,
    RowNodes,
    plan_labels,
    take_rows,
)
from daskclust.semisupervised.predict import near_values
from daskclust.semisupervised.problem import PrototypeProblem, PrototypeState

#: All pairs, or all labeled rows.
_ALL = slice(None)


@dataclass(frozen=True)
class NodePairs:
    """Constraints, and the rows that they touch.

    ``constraints`` are explicit pairs only; labels of the ``plan`` imply others.  ``rows`` (m,) are
    all that are fetched, ``nodes`` those that are nodes.
    """

    constraints: PairwiseConstraints
    plan: LabelPlan
    rows: Ints
    x: Array
    is_node: Bools
    nodes: RowNodes

    @classmethod
    def fetch(
        cls,
        rows: Rows,
        constraints: PairwiseConstraints,
        labels: PartialLabels,
        n_prototypes: int,
        seed: int,
    ) -> NodePairs:
        """Fetch the rows that constraints touch; one pass that reads the chunks concerned."""
        plan = plan_labels(labels, n_prototypes, seed)
        wanted = np.union1d(constraints.rows, plan.rows)
        x, weight = take_rows(rows, wanted)
        absent = weight == 0
        if absent.any():
            warn(
                f"{int(absent.sum())} constrained row(s) have sample_weight 0 or no value at all, "
                f"the first is row {int(wanted[absent][0])}: they count as absent, with their "
                "constraints.",
                ConstraintWarning,
            )
            constraints = constraints.without(np.isin(constraints.rows, wanted[absent]))
            kept = ~np.isin(plan.rows, wanted[absent])
            plan = replace(
                plan, rows=plan.rows[kept], codes=plan.codes[kept], is_node=plan.is_node[kept]
            )
            wanted, x, weight = wanted[~absent], x[~absent], weight[~absent]
        is_node = np.ones(len(wanted), bool)
        limit = NODES_A_PROTOTYPE * n_prototypes
        if len(wanted) > limit:
            chosen = np.random.default_rng(seed).choice(len(wanted), limit, replace=False)
            is_node = np.zeros(len(wanted), bool)
            is_node[chosen] = True
        nodes = RowNodes(x[is_node], weight[is_node])
        return cls(constraints, plan, wanted, x, is_node, nodes)

    @property
    def any(self) -> bool:
        """Whether there are constraints at all."""
        return bool(self.constraints.n_pairs or len(self.plan.rows) or self.plan.others is not None)

    def on_nodes(self, space: Space, prototypes: Floats, classes: Floats) -> NodeLinks:
        """Bring the constraints to the nodes.

        ``classes`` (k, c) are weights of labeled rows that are not fetched, by their nearest
        prototype.
        """
        node = np.empty(len(self.rows), np.int64)
        node[self.is_node] = len(prototypes) + self.nodes.node
        rest = ~self.is_node
        if rest.any():
            node[rest] = nearest_several(space(self.x[rest]), prototypes, 1)[0][:, 0]
        c, plan = self.constraints, self.plan
        pairs, labeled = np.searchsorted(self.rows, c.rows), np.searchsorted(self.rows, plan.rows)
        return NodeLinks(
            n_nodes=len(prototypes) + len(self.nodes.x),
            constraints=c,
            left=pairs[c.pair_left],
            right=pairs[c.pair_right],
            labeled=labeled,
            codes=plan.codes,
            node=node,
            classes=classes,
        )


@dataclass(frozen=True)
class NodeLinks:
    """Constraints of fetched rows, and the node of each: pairs, and labels that imply pairs.

    ``left`` and ``right`` (n_pairs,) are the places of the ends of the explicit pairs among the
    fetched rows, ``labeled`` (m,) those of labeled rows, ``codes`` (m,) their classes, and ``node``
    the node of each fetched row.  ``classes`` (k, c) are weights of further labeled rows at
    prototypes.
    """

    n_nodes: int
    constraints: PairwiseConstraints
    left: Ints
    right: Ints
    labeled: Ints
    codes: NDArray[np.int32]
    node: Ints
    classes: Floats

    def matrix(self, pairs: Bools | slice = _ALL, labels: Bools | slice = _ALL) -> Floats:
        """Return what nodes are to each other, in [-1, 1]: positive together, negative apart.

        ``pairs`` and ``labels`` select the explicit pairs and the labeled rows that count.
        """
        n, c = self.n_nodes, self.constraints
        out = np.zeros((n, n))
        left, right = self.node[self.left[pairs]], self.node[self.right[pairs]]
        signed = np.where(c.pair_is_must_link, c.pair_weight, -c.pair_weight)[pairs]
        np.add.at(out, (left, right), signed)
        np.add.at(out, (right, left), signed)
        if len(self.codes):
            table = np.zeros((n, max(int(self.codes.max()) + 1, self.classes.shape[1])))
            table[: len(self.classes), : self.classes.shape[1]] += self.classes
            np.add.at(table, (self.node[self.labeled[labels]], self.codes[labels]), 1.0)
            total = table.sum(axis=1)
            share = np.divide(
                table, total[:, None], out=np.zeros_like(table), where=total[:, None] > 0
            )
            has_label = (total > 0).astype(np.float64)
            same = share @ share.T
            out += c.implied_must_link_weight * same
            out -= c.implied_cannot_link_weight * (np.outer(has_label, has_label) - same)
        np.fill_diagonal(out, 0.0)
        peak = np.abs(out).max(initial=0.0)
        return out / peak if peak > 0 else out

    def _distinct(self) -> tuple[Ints, Ints]:
        """Return the first of the labeled rows of each node and class, and the number of each."""
        keys = np.column_stack([self.node[self.labeled], self.codes])
        _, first, number = np.unique(keys, axis=0, return_index=True, return_inverse=True)
        return first, number.reshape(-1)

    def folds(self, seed: int) -> tuple[Ints, Ints]:
        """Return the fold of each pair and of each labeled row; classes are dealt out evenly.

        Equal rows of one class are in one fold.
        """
        first, number = self._distinct()
        order = np.lexsort((np.random.default_rng(seed).random(len(first)), self.codes[first]))
        fold = np.empty(len(first), np.int64)
        fold[order] = np.arange(len(first)) % _FOLDS
        return self.constraints.folds(_FOLDS, seed), fold[number]

    def satisfied(self, clusters: Ints, pairs: Bools, labels: Bools) -> Floats:
        """Return the weight that the clusters of the fetched rows satisfy of selected constraints.

        First come the selected pairs, then the selected labeled rows, each with the sum of the
        pairs that it implies together with all labeled rows that are not selected.  Equal rows of
        one class count once.
        """
        c = self.constraints
        same = clusters[self.left] == clusters[self.right]
        found = np.where(same == c.pair_is_must_link, c.pair_weight, 0.0)[pairs]
        if not labels.any():
            return found
        first, _ = self._distinct()
        codes, own, out = self.codes[first], clusters[self.labeled[first]], labels[first]
        table = np.zeros((int(codes.max()) + 1, int(clusters.max()) + 1))
        np.add.at(table, (codes[~out], own[~out]), 1.0)
        together = table[codes[out], own[out]]
        apart = table.sum() - table.sum(axis=1)[codes[out]] - table.sum(axis=0)[own[out]]
        apart += together
        of_rows = c.implied_must_link_weight * together + c.implied_cannot_link_weight * apart
        return np.concatenate([found, of_rows])


#: Number of neighbors of a node in the graph, including itself.
_NEIGHBORS = 10
#: Weight added to each edge, also to edges without rows, relative to the mean number of rows.
_EMPTY = 0.05
#: Damping of the propagation of constraints: a larger value propagates them further.
_PAIRS_ALPHA = 0.8


@dataclass(frozen=True)
class NodeGraph:
    """Graph of the nodes, with the number of rows near each node.

    ``similarity`` is the graph of neighbors, without counts of rows, as a dense, normalized matrix.
    ``carried_by`` is its :func:`carrier`.  Both are None if there are no constraints.
    """

    graph: csr_matrix
    mass: Floats
    similarity: Floats | None
    carried_by: Floats | None
    n_clusters: int
    seed: int

    @classmethod
    def of(
        cls,
        nodes: Floats,
        near: PairCounts,
        n_near: int,
        n_clusters: int,
        seed: int,
        *,
        constrained: bool,
    ) -> NodeGraph:
        """Connect ``nodes`` (k, q) with their neighbors; weight edges by the rows near both ends.

        ``near`` counts, for pairs of nodes, the rows that have both among their ``n_near`` nearest
        nodes.
        """
        # A row near a node counts for each of the other nodes that it is near to.
        mass = near.degrees(len(nodes)) / max(min(n_near, len(nodes)) - 1, 1)
        counts = (near.sparse(len(nodes)) + diags(mass)).tocsr()
        mean = counts.sum() / max(counts.nnz, 1)
        edges = neighbor_graph(nodes, _NEIGHBORS)
        graph = (edges.multiply(counts / mean if mean > 0 else counts) + _EMPTY * edges).tocsr()
        if not constrained:
            return cls(graph, mass, None, None, n_clusters, seed)
        # Constraints are propagated along edges without weights.
        similarity = normalized(edges.toarray(), loops=True)
        carried_by = carrier(similarity, _PAIRS_ALPHA)
        return cls(graph, mass, similarity, carried_by, n_clusters, seed)

    def carried(self, wanted: Floats) -> Floats:
        """Propagate constraints (k, k) between the nodes."""
        assert self.carried_by is not None
        return propagate_pairs(wanted, self.carried_by)

    def cluster(
        self, carried: Floats | None = None, strength: float = 0.0
    ) -> tuple[Embedding, Ints]:
        """Embed the nodes by the leading eigenvectors, and cluster them there.

        ``carried`` are propagated constraints.  With constraints this takes O(k^3) time, and a few
        matrices of ``8 k^2`` bytes.
        """
        graph: Floats | csr_matrix = self.graph
        if carried is not None and strength > 0 and carried.any():
            assert self.similarity is not None
            graph = bend(self.similarity, carried, strength)
        embedding = embed(graph, min(self.n_clusters, len(self.mass)))
        centers = cluster_few(
            embedding.vectors, np.maximum(self.mass, 0.0), self.n_clusters, self.seed
        )
        clusters = nearest_several(embedding.vectors, centers, 1)[0][:, 0].astype(np.int64)
        return embedding, clusters


#: Strengths of constraints that are compared with none.  The strong one is that of the method.
_SOFT, _STRONG = 0.1, 1.0
#: Standard errors by which the strong one must be better.  Below 1 chance misleads it on some
#: round clusters; 2 gives up half of the gain from 20 pairs.
_SURE = 1.5
#: Parts of the constraints that are left out one after another.
_FOLDS = 5
#: Weights of satisfied constraints that differ by less, relatively, are equal.
_EQUAL = 1e-9


def choose_strength(graph: NodeGraph, links: NodeLinks, free: Ints) -> float:
    """Choose how strongly constraints bend the graph, by the constraints left out in each fold.

    The strong one must satisfy more than the soft one by ``_SURE`` standard errors.  No constraint
    is used if the clusters without constraints satisfy more than those of the strength chosen.
    ``free`` are the clusters of the fetched rows without constraints.
    """
    pairs, labels = links.folds(graph.seed)
    none: list[Floats] = []
    soft: list[Floats] = []
    strong: list[Floats] = []
    for fold in range(_FOLDS):
        out = pairs == fold, labels == fold
        if not (out[0].any() or out[1].any()):
            continue
        carried = graph.carried(links.matrix(~out[0], ~out[1]))
        none.append(links.satisfied(free, *out))
        for strength, found in ((_SOFT, soft), (_STRONG, strong)):
            clusters = graph.cluster(carried, strength)[1]
            found.append(links.satisfied(clusters[links.node], *out))
    gain = np.concatenate(strong) - np.concatenate(soft)
    is_strong = gain.sum() > _SURE * np.sqrt((gain**2).sum())
    most = np.concatenate(strong if is_strong else soft).sum()
    if np.concatenate(none).sum() > most * (1 + _EQUAL):
        return 0.0
    return _STRONG if is_strong else _SOFT


@dataclass(frozen=True)
class ClusterVote:
    """Clusters of rows, by vote of their nearest nodes; travels to the workers."""

    space: Space
    nodes: Floats
    clusters: Ints
    n_neighbors: int

    def __call__(self, x: Array) -> NDArray[np.int32]:
        """Return clusters, (n,); ties go to the first."""
        members = np.eye(int(self.clusters.max()) + 1)[self.clusters]
        votes = near_values(self.space(x), self.nodes, members, self.n_neighbors)[0]
        # A row without any value belongs nowhere.
        found = np.where(np.isnan(x).all(axis=1), -1, votes.argmax(axis=1))
        return found.astype(np.int32)


#: Number of nearest nodes of a row whose pairs are counted.
_COUNTED = 5
#: Maximum number of nodes of a graph without constraints; so many rows are nodes themselves.
_MOST_NODES = 5000
#: Number of prototypes of more rows, and minimum number of prototypes per cluster.  With fewer
#: prototypes than neighbors of a node, most edges of a cluster lead to other clusters.
_PROTOTYPES, _PROTOTYPES_A_CLUSTER = 1000, _NEIGHBORS
#: Number of prototypes with constraints, whose graph is dense.
_LINKED_PROTOTYPES = 400
#: Iterations of k-means for the prototypes, at most.
_LLOYD = 15


def _count_nodes(n_rows: int, n_clusters: int) -> int:
    """Return the number of nodes of a graph without constraints."""
    if n_rows <= _MOST_NODES:
        return n_rows
    return min(max(_PROTOTYPES, _PROTOTYPES_A_CLUSTER * n_clusters), _MOST_NODES)


class _Read(NamedTuple):
    """Arguments of ``fit`` besides X."""

    labels: PartialLabels
    constraints: PairwiseConstraints
    views: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class _Problem(PrototypeProblem):
    """The constraints, with what any fit on prototypes needs."""

    pairs: NodePairs


class SpectralClustering(ClusterMixin, BasePrototypes):
    """Spectral clustering on prototypes, for data of any size, with or without constraints.

    If there are at most 5000 rows, the rows are the nodes of a graph.  More rows are represented by
    prototypes.  Each node is connected with its nine nearest neighbors.  One pass counts, for
    each edge, the rows that have both ends among their five nearest nodes, as in an anchor graph
    [1]_.  The weight of an edge grows with this count.  The leading eigenvectors [3]_ of the graph
    are clustered, and each row gets a cluster by the vote of its nearest nodes.

    Parameters
    ----------
    n_clusters : int, default=8
    n_prototypes : int or "auto", default="auto"
        Maximum number of prototypes.  With fewer rows, the rows are the nodes.

        - ``"auto"``: 5000 if there are at most 5000 rows.  For more rows 1000, or 10 for each
          cluster if that is more, up to 5000.  With constraints, 400.
        - int: this number.
    views : {"auto", "raw", "standard", "angle", "whitened", "mean", "mixture", "pckid"} or \
tuple of str, default="auto"
        Spaces in which rows are compared, see :class:`LabelSpreading`; several count side by
        side, with the same prototypes.  Where values are missing, ``"auto"`` is
        ``("mixture", "pckid")``.
    n_neighbors : int, default=5
        Nearest nodes that vote for the cluster of a row.
    pair_strength : float in [0, 1] or "auto", default="auto"
        Influence of pairs and labels on the graph.  0 ignores them; 1 is that of [2]_, which a
        few wrong pairs can mislead.  ``"auto"`` chooses among 0, 0.1 and 1 by the constraints
        that are left out in five-fold cross-validation: 1 if its clusters satisfy clearly more
        of them than those of 0.1 (by 1.5 standard errors), and 0 if clusters without
        constraints satisfy the most.
    random_state : int, RandomState, Generator or None, default=None
        An int gives the same result for any chunks, scheduler and number of workers.
    checkpoint : path-like, default=None
        File that holds the prototypes, and then the counts; a fit started again with the
        same data, constraints and parameters continues from it.

    Attributes
    ----------
    labels_ : ndarray or dask.array.Array of shape (n,), int32
        Cluster of each row.  Lazy, and chunked like X, for Dask input.
    prototypes_ : ndarray of shape (m, p), float64
        Rows of the data's kind; in the views ``"angle"`` and ``"whitened"`` directions;
        NaN in ``"pckid"``.
    embedding_ : ndarray of shape (m, d), float64
        Prototypes in the space of the eigenvectors, each of length 1.  If the rows are the nodes,
        there is one prototype for each distinct row.
    eigenvalues_ : ndarray of shape (d,), float64
        The largest first; d is n_clusters, or the number of nodes if that is less.
    pair_strength_ : float
        The strength that was used; 0 without constraints.
    n_iter_ : int
        Iterations of k-means, for the prototypes.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (p,)
        Names of the columns, where X has names.
    history_ : list of dict
        One record, with ``objective`` (number of connected pairs of nodes), ``passes``,
        ``seconds`` and ``nodes``.

    Raises
    ------
    ConstraintError
        For pairs, weights or labels that cannot be used.
    ValueError
        For NaN or infinity in X (naming the first), fewer rows than clusters, and
        parameters out of range.
    CheckpointError
        If the checkpoint is broken or belongs to other data, constraints or parameters.

    Warns
    -----
    ConstraintWarning
        If constraints contradict each other, touch rows of sample weight 0, or are not used
        because left-out constraints are satisfied more often without them.
    ConvergenceWarning
        If there are fewer distinct rows than clusters.

    See Also
    --------
    LabelSpreading : With labels of the classes; better where there are any.
    KMeans : Where clusters are round; faster, and its centers are all there is to it.

    Notes
    -----
    *Constraints*, listed or implied by partial labels, are propagated on the nodes [2]_; rows that
    they touch are nodes of their own, up to twice as many as prototypes.  They bend the graph and
    need not hold: where they must, use :class:`COPKMeans` on the clusters.  Cross-validation of
    ``pair_strength`` leaves out must-linked groups as a whole, so that the other pairs do not
    imply them, and labeled rows one by one.  It makes no pass over the data, and clusters the
    nodes eleven more times.  The pass that counts the graph counts it without these rows, too:
    strength 0 gives the clusters of a fit without constraints.

    *Passes* and *on the client*: as for :class:`LabelSpreading`; there is one set of prototypes,
    and no labeled rows are read where there are no constraints.

    It is not always better than k-means: round clusters of like size are found as well without
    a graph.

    *Time on the client*: without constraints the graph is sparse.  5000 rows of two features take
    half a second, and 5000 rows of many features take some seconds.

    References
    ----------
    .. [1] Liu, W., He, J., Chang, S.-F. (2010). Large graph construction for scalable
       semi-supervised learning. ICML.
    .. [2] Lu, Z., Peng, Y. (2013). Exhaustive and efficient constraint propagation.
       International Journal of Computer Vision 103.
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

    #: Whether y holds partial labels; it may be omitted.
    _uses_labels: ClassVar[bool] = True

    _saved_state: ClassVar[Mapping[str, Entry]] = {
        "embedding_": Stored("m d"),
        "eigenvalues_": Stored("d"),
        "_nodes": Stored("t s"),
        "_clusters": Stored("t", kind="i", low=0, below="d"),
        "pair_strength_": Number(low=0.0, optional=True),
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

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_integer(self.n_clusters, "n_clusters", 1)
        if isinstance(self.n_prototypes, str):
            check_choice(self.n_prototypes, "n_prototypes", ("auto",))
        else:
            check_integer(self.n_prototypes, "n_prototypes", 1)
        if isinstance(self.pair_strength, str):
            check_choice(self.pair_strength, "pair_strength", ("auto",))
        else:
            check_real(self.pair_strength, "pair_strength", 0, maximum=1)

    def _check_sizes(self) -> None:
        super()._check_sizes()
        # No more clusters than nodes, however many were asked for.
        if not len(self.eigenvalues_) == len(self._clusters) <= self.n_clusters:
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
            Rows, of shape (n, p); of a cube its `samples`.
        y : array-like or dask.array.Array of shape (n,), or (rows, labels), optional
            Partial labels, as :meth:`SemiSupervisedKMeans.fit` takes them.  Two labeled rows are
            must-linked when their labels agree, else cannot-linked.
        must_link, cannot_link : array-like of shape (m, 2), int, optional
            Pairs of global row numbers.
        must_link_weight, cannot_link_weight : float or array-like of shape (m,), optional
            Weights of the pairs, 1 by default, 0 for none; a single number holds for the
            pairs that labels imply, too.  Only their proportions matter.
        sample_weight : array-like or dask.array.Array of shape (n,), optional
            Weights of the rows, 0 for absence.

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
        PairwiseConstraints.from_fit_arguments(
            int(data.n_rows), *given, (labels.rows, labels.codes)
        ).warn_of_contradictions()
        if self.pair_strength == 0:
            labels, constraints = (
                NO_LABELS,
                constraints.without(np.ones(len(constraints.rows), bool)),
            )
        return _Read(labels, constraints, views)

    def _problem(self, data: OpenData, read: _Read) -> _Problem:
        seed = data.seeds[0]
        auto = isinstance(self.n_prototypes, str)
        n_prototypes = _LINKED_PROTOTYPES if auto else int(self.n_prototypes)
        pairs = NodePairs.fetch(data.rows, read.constraints, read.labels, n_prototypes, seed)
        n_rows = int(data.rows.n_rows)
        n_linked = min(n_prototypes, n_rows)
        n_alone = _count_nodes(n_rows, int(self.n_clusters)) if auto else n_linked
        both = pairs.any and self.pair_strength == "auto"
        return _Problem(
            rows=data.rows,
            cube=data.cube,
            weight=data.weight,
            views=views_of_gaps(self.views, read.views, data.survey, joined=True),
            joined=True,
            n_alone=n_alone if both else None,
            n_prototypes=n_linked if pairs.any else n_alone,
            n_near=_COUNTED,
            lloyd_iter=_LLOYD,
            seed=seed,
            extra=pairs.nodes.x,
            labels=pairs.plan.others,
            known=lambda: {"constraints": [read.constraints.digest(), read.labels.digest()]},
            pairs=pairs,
        )

    def _finish(
        self,
        data: OpenData,
        problem: _Problem,
        state: PrototypeState,
        history: list[dict[str, Any]],
    ) -> None:
        space, n_neighbors = problem.spaces(state)[0], int(self.n_neighbors)
        nodes, *alone = problem.nodes(state)
        counts, *counts_alone = problem.counts(state)
        prototypes = problem.prototypes(state)[0]
        k, seed, pairs = int(self.n_clusters), problem.seed, problem.pairs
        graph = NodeGraph.of(nodes, counts.near, problem.n_near, k, seed, constrained=pairs.any)
        carried, strength = None, 0.0
        if pairs.any:
            links = pairs.on_nodes(space, prototypes, counts.classes)
            carried = graph.carried(links.matrix())
        if alone:
            free = NodeGraph.of(
                alone[0], counts_alone[0].near, problem.n_near, k, seed, constrained=False
            )
            vote = ClusterVote(space, alone[0], free.cluster()[1], n_neighbors)
            strength = choose_strength(graph, links, vote(pairs.x).astype(np.int64))
            if strength == 0:
                nodes, graph, prototypes = alone[0], free, alone[0]
                warn(
                    "Constraints that were left out are satisfied more often without the others "
                    "than with them, so no constraint is used (pair_strength_ is 0). Check the "
                    "pairs and labels, or set pair_strength.",
                    ConstraintWarning,
                )
        elif pairs.any:
            strength = float(self.pair_strength)
        embedding, self._clusters = graph.cluster(carried, strength)
        self.pair_strength_ = strength
        self._nodes = nodes
        self.embedding_, self.eigenvalues_ = embedding.vectors[: len(prototypes)], embedding.values
        self._keep(problem, state, [prototypes], history, nodes=[len(nodes)])
        warn_few_distinct(len(np.unique(self._clusters)), k)
        self.labels_ = row_labels(
            data, CheckedRows(self._vote(), data.rows.dtype, takes_gaps(problem.views))
        )

    def _vote(self) -> ClusterVote:
        return ClusterVote(self._space, self._nodes, self._clusters, int(self.n_neighbors))

    def predict(self, X: Any) -> Any:
        """Cluster of each row.

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
        return self._map(X, self._vote(), np.int32, "predict")

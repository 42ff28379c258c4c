"""Pairwise-constrained k-means on row blocks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from daskclust.cluster.constrained.assignment import SoftConstraints
from daskclust.cluster.constrained.base import (
    CONSTRAINED_ATTRIBUTES,
    ConstrainedClusterer,
    PairwiseFit,
)
from daskclust.cluster.constrained.iteration import ConstrainedRows, Rules
from daskclust.cluster.constrained.updates import PlainMeans
from daskclust.core.estimator.fit_loop import OpenData
from daskclust.core.estimator.validation import InitWithPairs, Missing, PairPenalty
from daskclust.core.persistence.schema import Entry


class PCKMeans(PairwiseFit, ConstrainedClusterer):
    """Pairwise-constrained k-means, PCKM, for data of any size.

    Constraints are soft [1]_: a violated one adds a cost, and is accepted where the clusters gain
    more than that.  Minimizes Eq. 8 of [2]_,

    ``sum_i |x_i - m|^2 + violated must-links f + violated cannot-links f-bar``

    over clusters and their means m.  Without constraints it is k-means.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of clusters k.
    init : {"auto", "ss-k-means||", "ss-k-means++", "neighborhoods", "k-means||", "k-means++", \
"random", "maximin", "dkm++", "robin"}, array of shape (k, p) or callable, default="auto"
        As in :class:`PCSKMeans`.
    n_init : int or "auto", default="auto"
        Number of restarts.  They share every pass over the data, and the one with the lowest
        objective is kept.  With ``init="auto"`` the kinds of initial centers alternate, and
        ``"auto"`` is one restart of each kind; after 5 passes only the better one is iterated.
        With any other ``init``, ``"auto"`` is 1.  Equal initial centers are iterated once.
    penalty : {"scaled", "distance", "constant"} or float, default="scaled"
        Cost of a violated constraint, times the weight of the pair:

        - ``"scaled"``: one mean squared distance of a row to its center, in k-means without
          constraints.
        - A number: the factor of this cost.  In a Gaussian model, the log-odds that a pair is
          right are half the factor times the number of features.
        - ``"distance"``: the cost of [1]_ and [2]_, ``f = |x - x'|^2`` for a must-link and
          ``f-bar = |Delta|^2 - |x - x'|^2`` for a cannot-link, with Delta the diagonal of the
          data's bounding box.  A violation costs much more than a row in the wrong cluster, so
          wrong pairs distort the clusters.
        - ``"constant"``: 1.
    max_iter : int, default=100
        Maximum number of passes.
    tol : float, default=0.0
        The fit has converged when the squared shift of all centers is at most ``tol`` times the
        mean variance of the features; 0: when a pass changes nothing at all.
    missing : {"error", "partial"}, default="error"
        As in :class:`KMeans`.
    random_state : int, RandomState, Generator or None, default=None
        An int gives the same result for any chunks, scheduler and number of workers.
    checkpoint : path-like, default=None
        As in :class:`KMeans`; constraints must be the same, too.

    Attributes
    ----------
    cluster_centers_ : ndarray of shape (k, p), float64
        Means of the clusters.
    observed_coordinates_ : ndarray of shape (k, p), bool
        Whether any row of the cluster has a value of the feature.  Where it is False, the
        coordinate of the center says nothing about the cluster.  With ``missing="partial"`` only.
    labels_ : ndarray or dask.array.Array of shape (n,), int32
        Cluster of each row.  Constrained rows have the labels of the last ordered
        pass.  Lazy for Dask input.
    contradicting_pairs_ : record array of (i, j, kind, weight, cost, violated)
        Explicit pairs that contradict the clusters, sorted by decreasing cost.
        ``i`` and ``j`` are row numbers; ``X.index[pairs.i]`` gives labels of a DataFrame.
        ``cost`` is the least increase of the squared distances to the centers, weighted by
        ``sample_weight``, that satisfies the pair.  The increase is relative to the assignment of
        both rows to their nearest centers.  ``violated`` is True if ``labels_`` violate the pair.
    constraint_violations_ : record array of (i, j, kind)
        Pairs of ``contradicting_pairs_`` that ``labels_`` violate.
    classes_ : ndarray of shape (n_classes,), int64 or text
        Labels in ``y``, in ascending order.  They are not the names of the clusters.
    inertia_ : float
        Sum of squared distances of the rows to the centers by which ``labels_`` were made; these
        are ``cluster_centers_`` where the last pass changed nothing.
    objective_ : float
        Eq. 8 for ``labels_`` and the same centers.
    n_iter_ : int
        Passes, the last that changes nothing included.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (p,)
        Names of the columns, where X has names.
    history_ : list of dict
        One record a pass, as in :class:`KMeans`; ``objective`` is Eq. 8, ``moved`` rows that
        changed, where all are constrained.  Also ``inertia``, ``repaired`` (whether an empty
        cluster was given a row), ``converged``.  Of several restarts, the one kept; records that
        :func:`daskclust.on_iteration` hands out have all of them, under ``restarts``.

    Raises
    ------
    ConstraintError
        For pairs out of range, self-links, labels of the wrong length, weights that are
        NaN or negative.
    ValueError
        For NaN or infinity in X, fewer rows than clusters, parameters out of range.
    CheckpointError
        As in :class:`KMeans`, and for a checkpoint of other constraints.

    Warns
    -----
    ConstraintWarning
        If constraints contradict each other, naming the chain, or belong to rows
        of ``sample_weight`` 0, which are absent.
    ConvergenceWarning
        If the fit was cut off by ``max_iter``; if a cluster is left empty, since there are fewer
        distinct rows than clusters or the constraints leave none for it.

    Notes
    -----
    *Scaled penalty*: at most 10 iterations without constraints, from the initial centers of the
    fit, give the mean squared distance; of several restarts the best one counts.  The cost of a
    violation is the same in all iterations.  Labels in ``y`` imply pairs of weight
    ``min(1, 4 c / l)`` for l labels of c classes: a label is one piece of evidence, so a row's
    pairs with its own class weigh as much as 4 pairs at most.

    *Order*: constrained rows are assigned in row order, given the labels that the other rows of
    their pairs have at that moment.  *Memory* and what reaches the client: see the notes of
    :class:`PCSKMeans`. *Passes*: 1 to check the data, 1 to fetch the constrained rows, those of
    the initialization, at most 10 without constraints (``"scaled"`` or ``init="auto"``), and 1 an
    iteration of all restarts together; 1 more whenever a cluster of a restart is empty.

    References
    ----------
    .. [1] Basu, S., Banerjee, A., Mooney, R. (2004). Active semi-supervision for
       pairwise constrained clustering. SDM.
    .. [2] Vouros, A., Vasilaki, E. (2021). A semi-supervised sparse K-Means
       algorithm. Pattern Recognition Letters 142.

    Examples
    --------
    >>> import daskclust
    >>> X = [[0.0], [1.0], [4.0], [6.0], [7.0]]
    >>> model = daskclust.PCKMeans(2, init=[[0.0], [7.0]])
    >>> model.fit(X).labels_.tolist()
    [0, 0, 1, 1, 1]
    >>> model.fit(X, must_link=[[1, 2], [0, 2]], must_link_weight=10.0).labels_.tolist()
    [0, 0, 0, 1, 1]
    """

    _saved_state: ClassVar[Mapping[str, Entry]] = CONSTRAINED_ATTRIBUTES
    _resumes_with: ClassVar[tuple[str, ...]] = ("max_iter",)

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        init: InitWithPairs = "auto",
        n_init: Any = "auto",
        penalty: PairPenalty = "scaled",
        max_iter: int = 100,
        tol: float = 0.0,
        missing: Missing = "error",
        random_state: Any = None,
        checkpoint: Any = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.init: Any = init
        self.n_init = n_init
        self.penalty = penalty
        self.max_iter = max_iter
        self.tol = tol
        self.missing = missing
        self.random_state = random_state
        self.checkpoint = checkpoint

    def _rules(self, data: OpenData, rows: ConstrainedRows) -> Rules:
        assignment = SoftConstraints.of(rows, data.survey, self._penalty, 2 * len(data.seeds))
        return assignment, PlainMeans(self.tol * data.survey.variance)

"""Pairwise-constrained k-means on blocks of rows."""

from __future__ import annotations

from typing import Any, ClassVar

from daskclust.cluster.constrained.base import PairwiseClusterer
from daskclust.core.estimator.parameters import MISSING, Constraints
from daskclust.core.estimator.validation import InitWithPairs, Missing, PairPenalty


class PCKMeans(PairwiseClusterer):
    """K-means with soft must-links and cannot-links (PCKM), for data of any size.

    Use it when all features matter, and you know some pairs of rows that belong together
    (must-links) or apart (cannot-links), some of which may be wrong.  If every pair must hold, use
    :class:`COPKMeans`; if most features are uninformative, :class:`PCSKMeans`; if the features have
    different scales, :class:`MPCKMeans`.

    A violated pair has a cost [1]_.  The fit violates it if the clusters gain more than this cost.
    It minimizes Eq. 8 of [2]_,

    ``sum_i |x_i - m|^2 + violated must-links f + violated cannot-links f-bar``

    over clusters and their means m.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of clusters k.
    init : {"auto", "ss-k-means||", "ss-k-means++", "neighborhoods", "k-means||", "k-means++", \
"random", "maximin", "dkm++", "robin"}, array of shape (k, p), fitted model \
or callable, default="auto"
        Initialization of the centers.  A neighborhood is a set of rows connected by must-links or
        by a label.

        - ``"auto"``: the better of two kinds of initial centers, which are the clusters without
          constraints, and the means of the neighborhoods, completed with some of these clusters.
        - ``"neighborhoods"``: the means of the neighborhoods, the largest first, then
          farthest-first with distances weighted by ``sqrt(n_a n_b)``.  Missing centers are drawn
          among the other rows as in ``"k-means++"``.
        - ``"ss-k-means++"``: as ``"neighborhoods"``, but if constraints contradict each other, the
          longest must-links between two cannot-linked neighborhoods are ignored.
        - ``"ss-k-means||"``: the neighborhoods of ``"ss-k-means++"`` if there are k, else as
          ``"k-means||"``, matched to these neighborhoods.
        - ``"k-means||"``, ``"k-means++"``, ``"random"``, ``"maximin"``, ``"dkm++"``, ``"robin"``:
          as in :class:`KMeans`, without pairs and labels.
        - an array, a fitted model with k clusters, or a callable that is called as
          ``init(X, n_clusters, random_state)`` and returns the centers.
    n_init : int or "auto", default="auto"
        Number of restarts, which share every pass over the data.  The restart with the lowest
        objective is selected.  ``"auto"`` is one restart of each kind of initial centers for
        ``init="auto"``, of which only the better one continues after 5 passes, and 1 else.
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
        mean variance of the features.  With 0 it has converged when a pass changes nothing.
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
        As in :class:`KMeans`.
    labels_ : ndarray or dask.array.Array of shape (n,), int32
        Cluster of each row.  Constrained rows have the labels of the last ordered pass.  Lazy for
        Dask input.
    contradicting_pairs_ : record array of (i, j, kind, weight, cost, violated)
        Explicit pairs that contradict the clusters, sorted by decreasing cost.
        ``i`` and ``j`` are row numbers; ``X.index[pairs.i]`` gives labels of a DataFrame.
        ``cost`` is the smallest increase of the squared distances to the centers, weighted by
        ``sample_weight``, that satisfies the pair.  The increase is relative to the assignment of
        both rows to their nearest centers.  ``violated`` is True if ``labels_`` violate the pair.
    constraint_violations_ : record array of (i, j, kind)
        Pairs of ``contradicting_pairs_`` that ``labels_`` violate.
    classes_ : ndarray of shape (n_classes,), int64 or text
        Labels in ``y``, in ascending order.  They are not the names of the clusters.
    inertia_ : float
        Sum of squared distances of the rows to the centers used for ``labels_``.  These are
        ``cluster_centers_`` if the last pass changed nothing.
    objective_ : float
        Eq. 8 for ``labels_`` and the same centers.
    n_iter_ : int
        Number of passes, including the last pass that changes nothing.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (p,)
        Names of the columns, if X has names.
    history_ : list of dict
        One record per pass, as in :class:`KMeans`, with ``objective`` (Eq. 8), ``moved`` (number of
        rows that changed, if all rows are constrained), ``inertia``, ``repaired`` (True if an empty
        cluster received a row) and ``converged``.  Records of :func:`daskclust.on_iteration`
        contain all restarts under ``restarts``, and ``history_`` those of the selected restart.

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
        If constraints contradict each other, naming the chain, or belong to rows of
        ``sample_weight`` 0, which are ignored.
    ConvergenceWarning
        If ``max_iter`` is reached; if a cluster is empty because there are fewer distinct rows than
        clusters, or because the constraints leave no rows for it.

    See Also
    --------
    PCSKMeans : Soft constraints and weights of the features.
    MPCKMeans : Soft constraints and a learned metric.
    COPKMeans : Constraints that always hold.
    SemiSupervisedKMeans : K-means with partial labels.

    Notes
    -----
    *Scaled penalty*: at most 10 iterations without constraints, from the initial centers of the
    fit, give the mean squared distance; the restart with the lowest inertia is used.  The cost of a
    violation is the same in all iterations.  Labels in ``y`` imply pairs of weight
    ``min(1, 4 c / l)`` for l labels of c classes.  A label is a single piece of evidence, so the
    pairs of a row with its own class count as at most 4 pairs.

    *Order*: constrained rows are assigned in row order, given the present labels of the other rows
    of their pairs.  *Memory* and *to the client*: see :class:`PCSKMeans`.  *Passes*: 1 to check the
    data, 1 to fetch the constrained rows, the passes of the initialization, at most 10 without
    constraints (for ``"scaled"`` or ``init="auto"``), 1 per iteration of all restarts together, and
    1 whenever a cluster is empty.

    References
    ----------
    .. [1] Basu, S., Banerjee, A., Mooney, R. (2004). Active semi-supervision for
       pairwise constrained clustering. SDM.
    .. [2] Vouros, A., Vasilaki, E. (2021). A semi-supervised sparse K-Means
       algorithm. Pattern Recognition Letters 142.

    Examples
    --------
    Must-links move the row at 4 to the other cluster:

    >>> import daskclust
    >>> X = [[0.0], [1.0], [4.0], [6.0], [7.0]]
    >>> model = daskclust.PCKMeans(2, init=[[0.0], [7.0]])
    >>> model.fit(X).labels_.tolist()
    [0, 0, 1, 1, 1]
    >>> model.fit(X, must_link=[[1, 2], [0, 2]], must_link_weight=10.0).labels_.tolist()
    [0, 0, 0, 1, 1]
    """

    _resumes_with: ClassVar[tuple[str, ...]] = ("max_iter",)

    _parameter_constraints: ClassVar[Constraints] = {
        **PairwiseClusterer._parameter_constraints,
        "missing": [MISSING],
    }

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

"""Pairwise-constrained k-means on blocks of rows."""

from __future__ import annotations

from typing import Any, ClassVar

from daskclust.cluster.constrained.base import PairwiseClusterer
from daskclust.core.estimator.parameters import MISSING, Constraints
from daskclust.core.estimator.validation import InitWithPairs, Missing, PairPenalty


class PCKMeans(PairwiseClusterer):
    """K-means with soft must-links and cannot-links (PCKM), for data of any size.

    Use it when all features matter, and you know pairs of rows that belong together (must-links)
    or apart (cannot-links).  Some pairs may be wrong.

    The fit minimizes the squared distances to the means of the clusters plus the costs of violated
    pairs [1]_ (Eq. 8 of [2]_).  The user guide ("Pairs and feature weights") has the details.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of clusters k.
    init : {"auto", "ss-k-means||", "ss-k-means++", "neighborhoods", "k-means||", "k-means++", \
"random", "maximin", "dkm++", "robin"}, array of shape (k, p), fitted model \
or callable, default="auto"
        Initialization of the centers.  A *neighborhood* is a set of rows connected by must-links or
        by a label.

        - ``"auto"``: two initializations, of which the better result is used: the clusters without
          constraints, and the means of the neighborhoods.  If there are too few neighborhoods,
          some of the clusters without constraints are added.
        - ``"neighborhoods"``: the means of large and distant neighborhoods, then rows drawn as in
          ``"k-means++"``.
        - ``"ss-k-means++"``: as ``"neighborhoods"``, without contradicting must-links.
        - ``"ss-k-means||"``: as ``"k-means||"``, matched to neighborhoods.
        - other options: as in :class:`KMeans`, without pairs and labels.
    n_init : int or "auto", default="auto"
        Number of restarts, which share every pass.  ``"auto"`` is 2 for ``init="auto"``, else 1.
    penalty : {"scaled", "distance", "constant"} or float, default="scaled"
        Cost of a violated constraint, times the weight of the pair:

        - ``"scaled"``: the mean squared distance of a row to its center in a fit without
          constraints.
        - a number: the cost of ``"scaled"`` times this factor.
        - ``"distance"``: the cost of [1]_ and [2]_, which is much higher.
        - ``"constant"``: 1.
    max_iter : int, default=100
        Maximum number of passes.
    tol : float, default=0.0
        As in :class:`KMeans`.  With 0 the fit has converged when a pass changes nothing.
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
        Cluster of each row.  Lazy for Dask input.
    contradicting_pairs_ : record array of (i, j, kind, weight, cost, violated)
        Pairs that contradict the clusters, sorted by decreasing cost.  The cost is the smallest
        increase of the squared distances that satisfies the pair.
    constraint_violations_ : record array of (i, j, kind)
        Pairs of ``contradicting_pairs_`` that ``labels_`` violate.
    classes_ : ndarray of shape (n_classes,), int64 or text
        Labels in ``y``, in ascending order.  They are not the names of the clusters.
    inertia_ : float
        Sum of squared distances of the rows to the centers used for ``labels_``.
    objective_ : float
        Eq. 8 for ``labels_`` and the same centers.
    n_iter_ : int
        Number of passes, including the last pass that changes nothing.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (p,)
        Names of the columns, if X has names.
    history_ : list of dict
        One record per pass, see the user guide.

    Raises
    ------
    ConstraintError, ValueError, CheckpointError
        For invalid constraints, data and parameters, and for a checkpoint of another fit.

    See Also
    --------
    PCSKMeans : Soft constraints if most features are uninformative.
    COPKMeans : Constraints that always hold.
    MPCKMeans : Soft constraints if the features have different scales.

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

"""Pairwise-constrained k-means with metric learning, on blocks of rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from numpy.typing import NDArray

from daskclust.cluster.constrained.assignment import SoftConstraints
from daskclust.cluster.constrained.base import PairwiseClusterer
from daskclust.cluster.constrained.iteration import Assignment, ConstrainedRows, Update
from daskclust.cluster.constrained.updates import DiagonalMetric
from daskclust.core.estimator.fit_loop import OpenData
from daskclust.core.estimator.validation import InitWithPairs, PairPenalty
from daskclust.core.persistence.schema import Array, Entry


class MPCKMeans(PairwiseClusterer):
    """K-means with soft constraints and a learned metric (MPCKM), for data of any size.

    Use it when you know some pairs of rows that belong together (must-links) or apart
    (cannot-links), or labels of some rows, and the features have different scales or noise.  If the
    scales are comparable, use :class:`PCKMeans`.  If most features are uninformative, use
    :class:`PCSKMeans`.

    The fit learns a weight ``a_j > 0`` of each feature [1]_.  It minimizes Eq. 10 of [2]_,

    ``sum_j a_j [WCSS_j + violated must-links_j + violated cannot-links_j]
    - n sum_j log a_j``

    over clusters, their means, and a.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of clusters k.
    init : {"auto", "ss-k-means||", "ss-k-means++", "neighborhoods", "k-means||", "k-means++", \
"random", "maximin", "dkm++", "robin"}, array of shape (k, p), fitted model \
or callable, default="auto"
        Initialization of the centers, see :class:`PCKMeans`.
    n_init : int or "auto", default="auto"
        As in :class:`PCKMeans`.
    penalty : {"scaled", "distance", "constant"} or float, default="scaled"
        Cost of a violated constraint, times the weight of the pair:

        - ``"scaled"``: as in :class:`PCKMeans`, in the metric.
        - a number: the cost of ``"scaled"`` times this factor.
        - ``"distance"``: the cost of [1]_, which is much higher.
        - ``"constant"``: 1.
    max_iter : int, default=100
        Maximum number of passes.
    tol : float, default=0.0
        As in :class:`PCKMeans`, in the metric.
    random_state : int, RandomState, Generator or None, default=None
        An int gives the same result for any chunks, scheduler and number of workers.
    checkpoint : path-like, default=None
        As in :class:`KMeans`; constraints must be the same, too.

    Attributes
    ----------
    cluster_centers_ : ndarray of shape (k, p), float64
        Means of the clusters.
    labels_ : ndarray or dask.array.Array of shape (n,), int32
        As in :class:`PCKMeans`.
    metric_weights_ : ndarray of shape (p,), float64
        Weights a of the metric, also used by ``predict``.  The weight of a feature is not updated
        if the feature is constant within all clusters and in all violated pairs.
    contradicting_pairs_ : record array of (i, j, kind, weight, cost, violated)
        As in :class:`PCKMeans`, with costs in the learned metric.
    constraint_violations_ : record array of (i, j, kind)
        Pairs of ``contradicting_pairs_`` that ``labels_`` violate.
    classes_ : ndarray of shape (n_classes,), int64 or text
        Labels in ``y``, in ascending order.  They are not the names of the clusters.
    inertia_ : float
        As in :class:`PCKMeans`, in the metric used for ``labels_``.
    objective_ : float
        Eq. 10 for ``labels_``, ``cluster_centers_`` and ``metric_weights_``.
    n_iter_ : int
        Number of passes.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (p,)
        Names of the columns, if X has names.
    history_ : list of dict
        As in :class:`PCKMeans`; ``objective`` is Eq. 10 after the pass.

    Raises
    ------
    ConstraintError, ValueError, CheckpointError
        As in :class:`PCKMeans`.

    See Also
    --------
    PCKMeans : Soft constraints with equal weights of the features.
    PCSKMeans : Soft constraints and feature selection.
    COPKMeans : Constraints that always hold.

    Notes
    -----
    The user guide ("Pairs and feature weights") describes penalties, weights, passes and memory.

    References
    ----------
    .. [1] Bilenko, M., Basu, S., Mooney, R. (2004). Integrating constraints and
       metric learning in semi-supervised clustering. ICML.
    .. [2] Vouros, A., Vasilaki, E. (2021). A semi-supervised sparse K-Means
       algorithm. Pattern Recognition Letters 142.

    Examples
    --------
    The clusters differ in the first feature, which has a small scale:

    >>> import numpy as np
    >>> import daskclust
    >>> X = np.random.default_rng(0).normal(size=(100, 2)) * [0.1, 1.0]
    >>> X[:50, 0] += 2
    >>> model = daskclust.MPCKMeans(2, random_state=0).fit(X, y=([0, 1, 98, 99], [0, 0, 1, 1]))
    >>> bool(model.metric_weights_[0] > 50 * model.metric_weights_[1])
    True
    """

    _saved_state: ClassVar[Mapping[str, Entry]] = {
        "metric_weights_": Array("p", low=0),
    }
    _resumes_with: ClassVar[tuple[str, ...]] = ("max_iter",)
    # Tests that compare with the program WekaUT change these: a_j = 0.01 n / S_j, a bounding box
    # that contains the origin, and ``tol`` for the change of the objective.
    _metric_scale: ClassVar[float] = 1.0
    _box_from_origin: ClassVar[bool] = False
    _tol_of_objective: ClassVar[bool] = False

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        init: InitWithPairs = "auto",
        n_init: Any = "auto",
        penalty: PairPenalty = "scaled",
        max_iter: int = 100,
        tol: float = 0.0,
        random_state: Any = None,
        checkpoint: Any = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.init: Any = init
        self.n_init = n_init
        self.penalty = penalty
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state
        self.checkpoint = checkpoint

    @property
    def _depends_on_units(self) -> bool:
        return False  # because the metric is learned

    def _assignment(self, data: OpenData, rows: ConstrainedRows) -> Assignment:
        return SoftConstraints.of(
            rows, data.survey, self._penalty, 2 * len(data.seeds), from_origin=self._box_from_origin
        )

    def _update(self, data: OpenData, assignment: Assignment) -> Update:
        return DiagonalMetric(
            self.tol * data.survey.variance,
            survey=data.survey,
            assignment=assignment,
            scale=self._metric_scale,
            least_gain=float(self.tol) if self._tol_of_objective else None,
        )

    @property
    def _prediction_weights(self) -> NDArray[Any] | None:  # type: ignore[override]
        return self.metric_weights_

"""Pairwise-constrained k-means with metric learning on row blocks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from numpy.typing import NDArray

from daskclust.cluster.constrained.assignment import SoftConstraints
from daskclust.cluster.constrained.base import (
    CONSTRAINED_ATTRIBUTES,
    ConstrainedClusterer,
    PairwiseFit,
)
from daskclust.cluster.constrained.iteration import ConstrainedRows, Rules
from daskclust.cluster.constrained.updates import DiagonalMetric
from daskclust.core.estimator.fit_loop import OpenData
from daskclust.core.estimator.validation import InitWithPairs, PairPenalty, check_choice, check_real
from daskclust.core.persistence.schema import Array, Entry


class MPCKMeans(PairwiseFit, ConstrainedClusterer):
    """Metric pairwise-constrained k-means, MPCKM, for data of any size.

    Finds clusters that respect soft must-links, cannot-links and partial labels, and at the same
    time one diagonal metric [1]_, weights ``a_j > 0`` of the features (1 at the start), in which
    clusters are narrow and violated constraints cheap.  Minimizes Eq. 10 of [2]_,

    ``sum_j a_j [WCSS_j + violated must-links_j + violated cannot-links_j]
    - n sum_j log a_j``

    over clusters, their means, and a.  Eq. 12 is misprinted there: the minimizer is
    ``a_j = n / S_j``, with S_j the brackets above and each violated pair once.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of clusters k.
    init : {"auto", "ss-k-means||", "ss-k-means++", "neighborhoods", "k-means||", "k-means++", \
"random", "maximin", "dkm++", "robin"}, array of shape (k, p) or callable, default="auto"
        As in :class:`PCSKMeans`.
    n_init : int or "auto", default="auto"
        As in :class:`PCKMeans`.
    penalty : {"scaled", "distance", "constant"} or float, default="scaled"
        Cost of a violated constraint, times the weight of the pair:

        - ``"scaled"``: ``sum_j a_j u_j``, with u_j the mean squared difference of a row and its
          center in the clusters without constraints.
        - A number: the factor of this cost; see :class:`PCKMeans`.
        - ``"distance"``: the cost of [1]_, ``f = sum_j a_j (x - x')_j^2`` for a must-link and
          ``f-bar = sum_j a_j (Delta_j^2 - (x - x')_j^2)`` for a cannot-link, with Delta the sides
          of the data's bounding box.
        - ``"constant"``: 1.
    metric_scale : float, default=1.0
        c in ``a_j = c n / S_j``, and before the sum of logarithms.  0.01 in WekaUT.
    box : {"data", "origin"}, default="data"
        Delta is ``max - min``; or ``max - min(min, 0)``, as in WekaUT and in the published PCSKM
        program: the result then depends on where the data lie.
    criterion : {"shift", "objective"}, default="shift"
        What ``tol`` bounds: the squared shift of all centers over the mean variance of the
        features, both in the metric (0: until a pass changes nothing); or the change of the
        objective from pass to pass, as in WekaUT.
    max_iter : int, default=100
        Maximum number of passes.
    tol : float, default=0.0
        See ``criterion``.
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
        Weights a of the metric, by which ``predict`` assigns.  A feature that does not vary within
        the clusters, and adds to no violation, keeps the weight it had.
    contradicting_pairs_ : record array of (i, j, kind, weight, cost, violated)
        Explicit pairs that contradict the clusters, sorted by decreasing cost, as in
        :class:`PCKMeans`.  Costs use the learned metric.
    constraint_violations_ : record array of (i, j, kind)
        Pairs of ``contradicting_pairs_`` that ``labels_`` violate.
    classes_ : ndarray of shape (n_classes,), int64 or text
        Labels in ``y``, in ascending order.  They are not the names of the clusters.
    inertia_ : float
        As in :class:`PCKMeans`, in the metric by which ``labels_`` were made.
    objective_ : float
        Eq. 10 for ``labels_``, ``cluster_centers_`` and ``metric_weights_``.
    n_iter_ : int
        Passes.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (p,)
        Names of the columns, where X has names.
    history_ : list of dict
        As in :class:`PCKMeans`; ``objective`` is Eq. 10 after the pass.

    Raises
    ------
    ConstraintError, ValueError, CheckpointError
        As in :class:`PCKMeans`.

    Warns
    -----
    ConstraintWarning, ConvergenceWarning
        As in :class:`PCKMeans`.

    Notes
    -----
    *Order*, *memory*, what reaches the client and *passes*: see the notes of
    :class:`PCKMeans`.  The weights follow from the sums and counts of the clusters.
    S_j is ``TSS_j - BSS_j``, exact to 1e-15 TSS_j.

    ``penalty="distance", metric_scale=0.01, box="origin", criterion="objective", tol=1e-5`` with
    ``max_iter`` large gives what WekaUT's MPCK-Means (single diagonal metric) gives
    from the same centers.

    References
    ----------
    .. [1] Bilenko, M., Basu, S., Mooney, R. (2004). Integrating constraints and
       metric learning in semi-supervised clustering. ICML.
    .. [2] Vouros, A., Vasilaki, E. (2021). A semi-supervised sparse K-Means
       algorithm. Pattern Recognition Letters 142.

    Examples
    --------
    >>> import numpy as np
    >>> import daskclust
    >>> X = np.random.default_rng(0).normal(size=(100, 2)) * [0.1, 1.0]
    >>> X[:50, 0] += 2
    >>> model = daskclust.MPCKMeans(2, random_state=0).fit(X, y=([0, 1, 98, 99], [0, 0, 1, 1]))
    >>> bool(model.metric_weights_[0] > 50 * model.metric_weights_[1])
    True
    """

    _saved_state: ClassVar[Mapping[str, Entry]] = {
        **CONSTRAINED_ATTRIBUTES,
        "metric_weights_": Array("p", low=0),
    }
    _resumes_with: ClassVar[tuple[str, ...]] = ("max_iter",)

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        init: InitWithPairs = "auto",
        n_init: Any = "auto",
        penalty: PairPenalty = "scaled",
        metric_scale: float = 1.0,
        box: Literal["data", "origin"] = "data",
        criterion: Literal["shift", "objective"] = "shift",
        max_iter: int = 100,
        tol: float = 0.0,
        random_state: Any = None,
        checkpoint: Any = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.init: Any = init
        self.n_init = n_init
        self.penalty = penalty
        self.metric_scale = metric_scale
        self.box = box
        self.criterion = criterion
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state
        self.checkpoint = checkpoint

    @property
    def _depends_on_units(self) -> bool:
        return False  # it learns the metric

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_real(self.metric_scale, "metric_scale", 0, boundaries="neither")
        check_choice(self.box, "box", ("data", "origin"))
        check_choice(self.criterion, "criterion", ("shift", "objective"))

    def _rules(self, data: OpenData, rows: ConstrainedRows) -> Rules:
        assignment = SoftConstraints.of(
            rows, data.survey, self._penalty, 2 * len(data.seeds), from_origin=self.box == "origin"
        )
        rule = DiagonalMetric(
            self.tol * data.survey.variance,
            survey=data.survey,
            assignment=assignment,
            scale=float(self.metric_scale),
            least_gain=float(self.tol) if self.criterion == "objective" else None,
        )
        return assignment, rule

    @property
    def _prediction_weights(self) -> NDArray[Any] | None:  # type: ignore[override]
        return self.metric_weights_

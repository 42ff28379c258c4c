"""Pairwise-constrained sparse k-means on blocks of rows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Real
from typing import Any, ClassVar

from daskclust.cluster.constrained.base import PairwiseClusterer
from daskclust.cluster.constrained.iteration import Assignment, Update
from daskclust.cluster.constrained.updates import (
    SPARSE_ATTRIBUTES,
    SPARSE_RESTARTS,
    SparseWeights,
    sparsity_bound,
)
from daskclust.core.estimator.fit_loop import OpenData
from daskclust.core.estimator.parameters import COUNT, FLAG, MISSING, Constraints, Interval
from daskclust.core.estimator.validation import (
    InitWithPairs,
    Missing,
    PairPenalty,
)
from daskclust.core.persistence.schema import Entry


class PCSKMeans(PairwiseClusterer):
    """Sparse k-means with must-links and cannot-links (PCSKM), for data of any size.

    Use it when most features carry no information about the clusters, and you know a few pairs of
    rows that belong together (must-links) or apart (cannot-links), or labels of some rows.  If all
    features matter, use :class:`PCKMeans`.  If the pairs must hold, use :class:`COPKMeans`.

    Each feature has a weight ``w_j >= 0``, which is 0 for uninformative features.  The fit
    maximizes Eq. 13 of [1]_.  The user guide ("Pairs and feature weights") has the details.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of clusters k.
    sparsity : float or None, default=None
        L1 bound of the weights, from 1 to ``sqrt(p)``.  A smaller bound selects fewer features.
        None means ``sqrt(p)``.
    penalized_scores : bool, default=False
        If True, the costs of violated constraints are subtracted from the scores of the features
        (Eq. 15).
    init : {"auto", "ss-k-means||", "ss-k-means++", "neighborhoods", "k-means||", "k-means++", \
"random", "maximin", "dkm++", "robin"}, array of shape (k, p), fitted model \
or callable, default="auto"
        Initialization of the centers, see :class:`PCKMeans`.
    n_init : int or "auto", default="auto"
        Number of restarts, which share every pass.  ``"auto"`` is 8 with ``init="auto"`` (4 without
        must-links and labels), 4 with other initializations that use random numbers, else 1.
    penalty : {"scaled", "distance", "constant"} or float, default="scaled"
        Cost of a violated constraint, as in :class:`PCKMeans`, with distances weighted by w.
    max_iter : int, default=25
        Maximum number of passes in a round, during which the weights do not change.
    max_outer_iter : int, default=25
        Maximum number of rounds.
    tol : float, default=1e-4
        Convergence tolerance: maximum relative change of the weights in a round (Eq. 7).
    missing : {"error", "partial"}, default="error"
        As in :class:`KMeans`.
    random_state : int, RandomState, Generator or None, default=None
        An int gives the same result for any chunks, scheduler and number of workers.
    checkpoint : path-like, default=None
        As in :class:`KMeans`; constraints and ``max_iter`` must be the same, too.

    Attributes
    ----------
    cluster_centers_ : ndarray of shape (k, p), float64
        Means of the clusters.
    observed_coordinates_ : ndarray of shape (k, p), bool
        As in :class:`KMeans`.
    labels_ : ndarray or dask.array.Array of shape (n,), int32
        Cluster of each row, for distances with ``assignment_weights_``.  Lazy for Dask input.
    feature_weights_ : ndarray of shape (p,), float64
        Weights w, of unit Euclidean length.
    feature_scores_ : ndarray of shape (p,), float64
        Scores of the features, see ``penalized_scores``.
    assignment_weights_ : ndarray of shape (p,), float64
        Weights of the round before, used for ``labels_`` and ``predict``.
    contradicting_pairs_ : record array of (i, j, kind, weight, cost, violated)
        As in :class:`PCKMeans`, with distances weighted by ``assignment_weights_``.
    constraint_violations_ : record array of (i, j, kind)
        Pairs of ``contradicting_pairs_`` that ``labels_`` violate.
    classes_ : ndarray of shape (n_classes,), int64 or text
        Labels in ``y``, in ascending order.  They are not the names of the clusters.
    inertia_ : float
        As in :class:`PCKMeans`, weighted by ``assignment_weights_``.
    objective_ : float
        Eq. 13 for ``feature_weights_``.
    n_iter_ : int
        Number of rounds.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (p,)
        Names of the columns, if X has names.
    history_ : list of dict
        One record per pass, see the user guide.

    Raises
    ------
    ConstraintError, ValueError, CheckpointError
        As in :class:`PCKMeans`, and for a sparsity out of range.

    See Also
    --------
    SparseKMeans : The same without constraints.
    PCKMeans : Soft constraints without feature weights.
    daskclust.selection.choose_sparsity : Choose ``sparsity``.

    References
    ----------
    .. [1] Vouros, A., Vasilaki, E. (2021). A semi-supervised sparse K-Means
       algorithm. Pattern Recognition Letters 142.
    .. [2] Witten, D., Tibshirani, R. (2010). A framework for feature selection in
       clustering. JASA 105.

    Examples
    --------
    Of 6 features, only the first differs between the clusters:

    >>> import numpy as np
    >>> import daskclust
    >>> rng = np.random.default_rng(0)
    >>> X = np.hstack([np.repeat([[0.0], [8.0]], 50, axis=0), rng.normal(size=(100, 5))])
    >>> X[:, 0] += rng.normal(size=100)
    >>> model = daskclust.PCSKMeans(2, sparsity=1.1, random_state=0)
    >>> model = model.fit(X, must_link=[[0, 1]], cannot_link=[[0, 99]])
    >>> int(model.feature_weights_.argmax())
    0

    Partial labels instead of pairs, for the same rows; -1 means that a row has no label:

    >>> y = np.full(100, -1)
    >>> y[[0, 1, 99]] = [0, 0, 1]
    >>> model = model.fit(X, y)
    >>> int(model.feature_weights_.argmax()), len(model.contradicting_pairs_)
    (0, 0)
    """

    _saved_state: ClassVar[Mapping[str, Entry]] = SPARSE_ATTRIBUTES
    _n_auto: ClassVar[Mapping[str, int]] = {**SPARSE_RESTARTS, "auto": 8}
    _n_survivors: ClassVar[int] = 2

    _parameter_constraints: ClassVar[Constraints] = {
        **PairwiseClusterer._parameter_constraints,
        "sparsity": [Interval(Real, 1), None],
        "penalized_scores": [FLAG],
        "max_outer_iter": [COUNT],
        "missing": [MISSING],
    }
    #: Maximum cost of violated constraints, as a fraction of the sum of scores (Eq. 15: no limit).
    _penalty_share: ClassVar[float] = math.inf

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        sparsity: float | None = None,
        penalized_scores: bool = False,
        init: InitWithPairs = "auto",
        n_init: Any = "auto",
        penalty: PairPenalty = "scaled",
        max_iter: int = 25,
        max_outer_iter: int = 25,
        tol: float = 1e-4,
        missing: Missing = "error",
        random_state: Any = None,
        checkpoint: Any = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.sparsity = sparsity
        self.penalized_scores = penalized_scores
        self.init: Any = init
        self.n_init = n_init
        self.penalty = penalty
        self.max_iter = max_iter
        self.max_outer_iter = max_outer_iter
        self.tol = tol
        self.missing = missing
        self.random_state = random_state
        self.checkpoint = checkpoint

    def _check_features(self, n_features: int) -> None:
        super()._check_features(n_features)
        sparsity_bound(self.sparsity, n_features)

    def _update(self, data: OpenData, assignment: Assignment) -> Update:
        return SparseWeights(
            float(self.tol),
            max_rounds=int(self.max_outer_iter),
            survey=data.survey,
            assignment=assignment,
            sparsity=sparsity_bound(self.sparsity, data.rows.n_features),
            penalty_share=self._penalty_share if self.penalized_scores else 0.0,
        )

"""Sparse k-means on blocks of rows."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Real
from typing import Any, ClassVar

from daskclust.cluster.constrained.base import ConstrainedClusterer
from daskclust.cluster.constrained.iteration import Assignment, Update
from daskclust.cluster.constrained.updates import (
    SPARSE_ATTRIBUTES,
    SPARSE_RESTARTS,
    SparseWeights,
    sparsity_bound,
)
from daskclust.core.estimator.fit_loop import OpenData
from daskclust.core.estimator.parameters import (
    CENTERS,
    COUNT,
    MISSING,
    RESTARTS,
    Constraints,
    Interval,
    StrOptions,
)
from daskclust.core.estimator.validation import Init, Missing
from daskclust.core.initialization.methods import STRING_INITS
from daskclust.core.persistence.schema import Entry


class SparseKMeans(ConstrainedClusterer):
    """Sparse k-means, which selects features, for data of any size.

    Use it when most features carry no information about the clusters, and you have neither labels
    nor pairs.  With some pairs or labels, use :class:`PCSKMeans`.  If all features matter, use
    :class:`KMeans`.

    Each feature has a weight ``w_j >= 0``, which is 0 for uninformative features [1]_.  The fit
    maximizes the weighted between-cluster sum of squares (Eq. 4 of [2]_).

    Parameters
    ----------
    n_clusters : int, default=8
        Number of clusters k.
    sparsity : float or None, default=None
        L1 bound of the weights, from 1 to ``sqrt(p)``.  A smaller bound selects fewer features.
        None means ``sqrt(p)``.
    init : {"k-means||", "k-means++", "random", "maximin", "dkm++", "robin"}, \
array of shape (k, p), fitted model or callable, default="k-means||"
        Initialization of the centers, as in :class:`KMeans`.
    n_init : int or "auto", default="auto"
        Number of restarts, which share every pass over the data.  The restart with the largest
        objective (Eq. 4) is selected.  After 2 rounds only the best two continue.  ``"auto"`` is 4
        with ``"k-means||"``, ``"k-means++"`` and ``"random"``, else 1.
    max_iter : int, default=25
        Maximum number of passes in a round.  The weights are fixed during a round.
    max_outer_iter : int, default=25
        Maximum number of rounds.
    tol : float, default=1e-4
        The fit has converged when ``sum |w - w_old| / sum |w_old| <= tol`` after a round (Eq. 7).
    missing : {"error", "partial"}, default="error"
        As in :class:`KMeans`.
    random_state : int, RandomState, Generator or None, default=None
        An int gives the same result for any chunks, scheduler and number of workers.
    checkpoint : path-like, default=None
        As in :class:`KMeans`; ``max_iter`` must be the same, too.

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
        Between-cluster sum of squares of each feature (gamma, Eq. 6).
    assignment_weights_ : ndarray of shape (p,), float64
        As in :class:`PCSKMeans`.
    inertia_ : float
        As in :class:`PCSKMeans`.
    objective_ : float
        Eq. 4 for ``feature_weights_``.
    n_iter_ : int
        Number of rounds.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (p,)
        Names of the columns, if X has names.
    history_ : list of dict
        As in :class:`PCSKMeans`.

    Raises
    ------
    ValueError, CheckpointError
        As in :class:`PCSKMeans`.

    See Also
    --------
    PCSKMeans : Sparse k-means with must-links and cannot-links.
    KMeans : K-means with equal weights.
    daskclust.selection.choose_sparsity : Choose ``sparsity``.

    Notes
    -----
    *Passes*: 1 to check the data, the passes of the initialization, and 1 per iteration of all
    restarts together.  *Memory* of a worker thread and *to the client*: as for :class:`PCSKMeans`.

    References
    ----------
    .. [1] Witten, D., Tibshirani, R. (2010). A framework for feature selection in
       clustering. JASA 105.
    .. [2] Vouros, A., Vasilaki, E. (2021). A semi-supervised sparse K-Means
       algorithm. Pattern Recognition Letters 142.

    Examples
    --------
    Of 6 features, only feature 2 differs between the clusters:

    >>> import numpy as np
    >>> import daskclust
    >>> X = np.random.default_rng(0).normal(size=(100, 6))
    >>> X[:50, 2] += 8
    >>> model = daskclust.SparseKMeans(2, sparsity=1.1, random_state=0).fit(X)
    >>> int(model.feature_weights_.argmax()), int((model.labels_[:50] == model.labels_[0]).sum())
    (2, 50)
    """

    _saved_state: ClassVar[Mapping[str, Entry]] = SPARSE_ATTRIBUTES
    _n_auto: ClassVar[Mapping[str, int]] = SPARSE_RESTARTS
    _n_survivors: ClassVar[int] = 2

    _parameter_constraints: ClassVar[Constraints] = {
        **RESTARTS,
        "init": [*CENTERS, StrOptions(*STRING_INITS)],
        "max_outer_iter": [COUNT],
        "sparsity": [Interval(Real, 1), None],
        "missing": [MISSING],
    }

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        sparsity: float | None = None,
        init: Init = "k-means||",
        n_init: Any = "auto",
        max_iter: int = 25,
        max_outer_iter: int = 25,
        tol: float = 1e-4,
        missing: Missing = "error",
        random_state: Any = None,
        checkpoint: Any = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.sparsity = sparsity
        self.init: Any = init
        self.n_init = n_init
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
        )

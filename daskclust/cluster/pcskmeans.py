"""Pairwise-constrained sparse k-means on row blocks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from daskclust.cluster.constrained.assignment import SoftConstraints
from daskclust.cluster.constrained.base import (
    CONSTRAINED_ATTRIBUTES,
    ConstrainedClusterer,
    PairwiseFit,
)
from daskclust.cluster.constrained.iteration import ConstrainedRows, Rules
from daskclust.cluster.constrained.updates import (
    SPARSE_ATTRIBUTES,
    SPARSE_RESTARTS,
    SparseWeights,
    sparsity_bound,
)
from daskclust.core.estimator.fit_loop import OpenData
from daskclust.core.estimator.validation import (
    InitWithPairs,
    Missing,
    PairPenalty,
    check_choice,
    check_integer,
)
from daskclust.core.persistence.schema import Entry

#: Of the sum of all scores, what violated constraints may take with ``"scaled"``.
_SHARE = 0.5


class PCSKMeans(PairwiseFit, ConstrainedClusterer):
    """Pairwise-constrained sparse k-means, PCSKM, for data of any size.

    Finds clusters that follow some known pairs of rows, and the features in which they
    differ [1]_.  Use it when most features carry no information about the clusters, and you know
    a few pairs of rows that belong together (must-links) or apart (cannot-links), or labels of
    some rows.  If all features matter, use :class:`PCKMeans`; if the pairs must hold,
    :class:`COPKMeans`.

    >>> import numpy as np
    >>> import daskclust
    >>> rng = np.random.default_rng(0)
    >>> X = np.hstack([np.repeat([[0.0], [8.0]], 50, axis=0), rng.normal(size=(100, 5))])
    >>> X[:, 0] += rng.normal(size=100)
    >>> model = daskclust.PCSKMeans(2, sparsity=1.1, random_state=0)
    >>> model = model.fit(X, must_link=[[0, 1]], cannot_link=[[0, 99]])
    >>> int(model.feature_weights_.argmax())
    0

    Constraints are soft: a violated pair has a cost.  Each feature has a weight ``w_j >= 0``;
    those of uninformative features become 0.  The fit maximizes Eq. 13 of [1]_,

    ``sum_j w_j [TSS_j - WCSS_j - violated must-links_j - violated cannot-links_j]``

    subject to ``|w|_2 <= 1`` and ``|w|_1 <= s``.  Without constraints it is the
    sparse k-means of Witten & Tibshirani [2]_.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of clusters k.
    sparsity : float or None, default=None
        L1 bound s, ``1 <= s <= sqrt(p)``: the smaller, the fewer features.  None
        is ``sqrt(p)``: weights differ, but none is forced to 0.
    penalized_scores : bool or "scaled", default=False
        False: features are scored by ``gamma_j = TSS_j - WCSS_j`` (Eq. 6), as the published
        program does; constraints act through the assignment only.  True subtracts the costs of
        violated constraints (gamma', Eq. 15; distances if the penalty is constant).  If they
        outweigh every feature's score, the fit ends with the last weights and a warning.
        ``"scaled"`` multiplies them by one factor <= 1, so that they take at most half of the sum
        of all gamma: some score is then positive if clusters differ at all.
    init : {"auto", "ss-k-means||", "ss-k-means++", "neighborhoods", "k-means||", "k-means++", \
"random", "maximin", "dkm++", "robin"}, array of shape (k, p) or callable, default="auto"
        How the initial centers are found.  These methods use pairs and labels:

        - ``"auto"`` compares two kinds of initial centers: the clusters without constraints, and
          the means of the must-link neighborhoods (rows of one label are one neighborhood).  If
          there are fewer than k neighborhoods, some of the clusters are added.
        - ``"neighborhoods"``: the means of the neighborhoods, the largest first, then
          farthest-first with distances weighted by ``sqrt(n_a n_b)``.  Missing centers are drawn
          among the other rows, one per pass, with probability proportional to the squared
          distance to the centers so far.
        - ``"ss-k-means++"``: the same, unless constraints contradict each other.  Of the
          must-links that join two neighborhoods with a cannot-link between them, the longest are
          ignored.
        - ``"ss-k-means||"``: these neighborhoods if there are k, else the centers of
          ``"k-means||"``.

        All other methods use no constraint.  ``"random"`` draws rows. ``"maximin"`` takes the row
        farthest from those taken, ``"dkm++"`` dense rows far apart, ``"robin"`` rows far apart
        that are no outliers: these three are deterministic.  A
        callable is given ``(X, n_clusters, random_state)`` and returns the centers.
    n_init : int or "auto", default="auto"
        Number of restarts.  They share every pass over the data, and the one with the largest
        objective (Eq. 13) is kept.  With ``init="auto"`` the kinds of initial centers alternate.
        ``"auto"`` is 8 with ``init="auto"`` (4 without must-links and labels), 4 with
        ``"k-means||"``, ``"k-means++"`` and ``"random"``, else 1; after 2 rounds only the best two
        are iterated.  Equal initial centers are iterated once.
    penalty : {"scaled", "distance", "constant"} or float, default="scaled"
        Cost of a violated constraint, times the weight of the pair:

        - ``"scaled"``: one mean squared distance of a row to its center, weighted by w, in the
          clusters of :class:`SparseKMeans`.
        - A number: the factor of this cost; see :class:`PCKMeans`.
        - ``"distance"``: the cost of [1]_, ``f = sum_j w_j (x - x')_j^2`` for a must-link and
          ``f-bar = sum_j w_j (Delta_j^2 - (x - x')_j^2)`` for a cannot-link, with Delta the sides
          of the data's bounding box.
        - ``"constant"``: 1.
    max_iter : int, default=25
        Maximum number of passes in a round, in which the weights are fixed.
    max_outer_iter : int, default=25
        Maximum number of rounds; each finds the weights anew.
    tol : float, default=1e-4
        The outer loop ends when ``sum |w - w_old| / sum |w_old| <= tol`` (Eq. 7).
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
        Whether any row of the cluster has a value of the feature.  Where it is False, the
        coordinate of the center says nothing about the cluster.  With ``missing="partial"`` only.
    labels_ : ndarray or dask.array.Array of shape (n,), int32
        Cluster of each row, under ``assignment_weights_``.  Constrained rows
        have the labels of the last ordered pass.  Lazy for Dask input.
    feature_weights_ : ndarray of shape (p,), float64
        Weights w, of unit Euclidean length.
    feature_scores_ : ndarray of shape (p,), float64
        gamma, or gamma' as ``penalized_scores`` says.
    assignment_weights_ : ndarray of shape (p,), float64
        Weights of the distances by which ``labels_`` were made and by which ``predict`` assigns:
        those of the round before the last, hence within ``tol`` of ``feature_weights_`` on
        convergence; ones after a single round.
    contradicting_pairs_ : record array of (i, j, kind, weight, cost, violated)
        Explicit pairs that contradict the clusters, sorted by decreasing cost, as in
        :class:`PCKMeans`.  Features are weighted by ``assignment_weights_``.
    constraint_violations_ : record array of (i, j, kind)
        Pairs of ``contradicting_pairs_`` that ``labels_`` violate.
    classes_ : ndarray of shape (n_classes,), int64 or text
        Labels in ``y``, in ascending order.  They are not the names of the clusters.
    inertia_ : float
        Sum of squared distances, weighted by ``assignment_weights_``, of the
        rows to the centers by which ``labels_`` were made; these are
        ``cluster_centers_`` unless the last inner run was cut off.
    objective_ : float
        Eq. 13 under ``feature_weights_``.
    n_iter_ : int
        Outer rounds; inner passes are in ``history_``.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (p,)
        Names of the columns, where X has names.
    history_ : list of dict
        One record a pass: ``iteration``, ``round``, ``objective`` (what the
        inner loop lowers: weighted squared distances and violated pairs, Eq. 8
        under the weights of the round), ``center_shift``, ``moved`` (rows that
        changed, where all are constrained), ``inertia`` (without the violated
        pairs), ``repaired`` (whether an empty cluster was given a row),
        ``seconds``, ``passes``; at the end of a round
        also ``weight_change``, ``converged`` (whether that is within ``tol``),
        ``weights_kept`` and ``weights_tied`` (see Warns).  Of several restarts, the one
        kept; records that :func:`daskclust.on_iteration` hands out have all of them,
        under ``restarts``.

    Raises
    ------
    ConstraintError
        For pairs out of range, self-links, labels of the wrong length, weights
        that are NaN or negative.
    ValueError
        For NaN or infinity in X, fewer rows than clusters, sparsity out of
        range.
    CheckpointError
        As in :class:`KMeans`, and for a checkpoint of other constraints.

    Warns
    -----
    ConstraintWarning
        If constraints contradict each other, naming the chain, or belong to rows
        of ``sample_weight`` 0, which are absent.
    ConvergenceWarning
        If the outer loop was cut off by its limit; if no feature has a positive score, as with one
        cluster, so that the last weights are kept; if more than s^2 features share the largest
        score, so that the bound s cannot be met; if a cluster is left empty.

    Notes
    -----
    *Order*: constrained rows are assigned in row order, given the labels that the other rows of
    their pairs have at that moment; labels are forgotten at each round.  This is what the
    published program does, and it matters.  The result is that of the serial algorithm for any
    chunks.

    *Passes*: 1 to check the data, 1 to fetch the constrained rows, those of the initialization,
    those of :class:`SparseKMeans` (``"scaled"`` or ``init="auto"``), and 1 an
    inner iteration of all r restarts together, as many as the slowest makes; 1 more whenever a
    cluster of a restart is empty.  Features of weight 0 are skipped in the distance work.
    *Memory* of a worker thread: one block (two, when blocks are read on the way) and O(r k p).
    *On the client*: the m constrained rows, O(m (p + k + r) + pairs) memory and O(r (m k p +
    pairs)) time a pass.  The O(m^2) pairs that labels imply are never listed.  *To the client*:
    O(r k p) a worker thread and pass, never anything of length n.

    Where the published program gives up because a cluster is empty, the row farthest from its
    center becomes its new center here, an unconstrained row if there is one.

    References
    ----------
    .. [1] Vouros, A., Vasilaki, E. (2021). A semi-supervised sparse K-Means
       algorithm. Pattern Recognition Letters 142.
    .. [2] Witten, D., Tibshirani, R. (2010). A framework for feature selection in
       clustering. JASA 105.

    Examples
    --------
    Partial labels instead of pairs, for the rows and the model of above; -1 is none:

    >>> y = np.full(100, -1)
    >>> y[[0, 1, 99]] = [0, 0, 1]
    >>> model = model.fit(X, y)
    >>> int(model.feature_weights_.argmax()), len(model.contradicting_pairs_)
    (0, 0)
    """

    _saved_state: ClassVar[Mapping[str, Entry]] = {**CONSTRAINED_ATTRIBUTES, **SPARSE_ATTRIBUTES}
    _n_auto: ClassVar[Mapping[str, int]] = {**SPARSE_RESTARTS, "auto": 8}
    _n_survivors: ClassVar[int] = 2

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        sparsity: float | None = None,
        penalized_scores: bool | str = False,
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

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_integer(self.max_outer_iter, "max_outer_iter", 1)
        if not isinstance(self.penalized_scores, bool | np.bool_):
            if not isinstance(self.penalized_scores, str):
                raise TypeError(
                    f"penalized_scores={self.penalized_scores!r} must be True (Eq. 15), "
                    '"scaled" or False (Eq. 6).'
                )
            check_choice(self.penalized_scores, "penalized_scores", ("scaled",))

    def _check_features(self, n_features: int) -> None:
        super()._check_features(n_features)
        sparsity_bound(self.sparsity, n_features)

    def _rules(self, data: OpenData, rows: ConstrainedRows) -> Rules:
        assignment = SoftConstraints.of(rows, data.survey, self._penalty, 2 * len(data.seeds))
        share = math.inf if self.penalized_scores else 0.0
        if isinstance(self.penalized_scores, str):
            share = _SHARE
        rule = SparseWeights(
            data.survey,
            assignment,
            sparsity_bound(self.sparsity, data.rows.n_features),
            float(self.tol),
            int(self.max_outer_iter),
            share,
        )
        return assignment, rule

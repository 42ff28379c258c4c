"""K-means under hard constraints, on blocks of rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

from daskclust.cluster.constrained.assignment import HardConstraints, check_feasible
from daskclust.cluster.constrained.base import CONSTRAINED_ATTRIBUTES, ConstrainedClusterer
from daskclust.cluster.constrained.iteration import Assignment, ConstrainedRows
from daskclust.core.constraints import PairwiseConstraints
from daskclust.core.estimator.fit_loop import OpenData, fit
from daskclust.core.estimator.validation import InitWithPairs
from daskclust.core.persistence.schema import Entry


class COPKMeans(ConstrainedClusterer):
    """K-means with hard must-links and cannot-links (COP-KMeans), for data of any size.

    Use it when every pair must hold: rows that belong together (must-links) or apart
    (cannot-links).  ``fit`` raises an error if no assignment satisfies all pairs.  If some pairs
    may be wrong, use :class:`PCKMeans`.

    The fit minimizes ``sum_i |x_i - m|^2`` over the clusters that satisfy all constraints, and
    their means m.

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
    max_iter : int, default=100
        Maximum number of passes.
    tol : float, default=0.0
        As in :class:`PCKMeans`.
    random_state : int, RandomState, Generator or None, default=None
        An int gives the same result for any chunks, scheduler and number of workers.
    checkpoint : path-like, default=None
        As in :class:`KMeans`; constraints must be the same, too.

    Attributes
    ----------
    cluster_centers_ : ndarray of shape (k, p), float64
        Means of the clusters.
    labels_ : ndarray or dask.array.Array of shape (n,), int32
        Cluster of each row; no constraint is violated.  Lazy for Dask input.
    contradicting_pairs_ : record array of (i, j, kind, weight, cost, violated)
        Explicit pairs that contradict the clusters, sorted by decreasing cost, as in
        :class:`PCKMeans`.  No pair is violated, but a wrong pair has a large cost.
    constraint_violations_ : record array of (i, j, kind)
        Always empty, because no pair is violated.
    classes_ : ndarray of shape (n_classes,), int64 or text
        Labels in ``y``, in ascending order.  They are not the names of the clusters.
    inertia_ : float
        As in :class:`PCKMeans`.
    objective_ : float
        Equal to ``inertia_``.
    n_iter_ : int
        Number of passes, including the last pass that changes nothing.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (p,)
        Names of the columns, if X has names.
    history_ : list of dict
        As in :class:`PCKMeans`, and ``exact``: True if the assignment is known to be the cheapest
        assignment that satisfies the constraints.

    Raises
    ------
    ConstraintError
        If the constraints contradict each other, or need more than k clusters.
    ValueError, CheckpointError
        As in :class:`PCKMeans`.

    See Also
    --------
    PCKMeans : Constraints that may be violated at a cost.
    PCSKMeans : Soft constraints and feature selection.
    SemiSupervisedKMeans : Labels that hold, without pairs.

    Notes
    -----
    The user guide ("Pairs and feature weights") describes the assignment, warnings, passes and
    memory.  ``predict`` returns the nearest center: constraints concern the rows of ``fit`` only.

    References
    ----------
    .. [1] Wagstaff, K., Cardie, C., Rogers, S., Schroedl, S. (2001). Constrained
       k-means clustering with background knowledge. ICML.

    Examples
    --------
    A must-link and a cannot-link override the distances:

    >>> import daskclust
    >>> X = [[0.0], [1.0], [5.0], [6.0], [7.0]]
    >>> model = daskclust.COPKMeans(2, init=[[0.0], [7.0]])
    >>> model.fit(X, must_link=[[0, 2]], cannot_link=[[0, 1]]).labels_.tolist()
    [1, 0, 1, 1, 1]
    """

    _saved_state: ClassVar[Mapping[str, Entry]] = CONSTRAINED_ATTRIBUTES
    _resumes_with: ClassVar[tuple[str, ...]] = ("max_iter",)

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        init: InitWithPairs = "auto",
        n_init: Any = "auto",
        max_iter: int = 100,
        tol: float = 0.0,
        random_state: Any = None,
        checkpoint: Any = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.init: Any = init
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state
        self.checkpoint = checkpoint

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        must_link: Any = None,
        cannot_link: Any = None,
        sample_weight: Any = None,
    ) -> Self:
        """Find the clusters.

        Parameters
        ----------
        X : array-like, dask.array.Array, DataFrame or xarray.DataArray of shape (n, p)
            Rows to cluster.
        y : array-like or dask.array.Array of shape (n,), or (rows, labels), optional
            Partial labels, as ``PCKMeans.fit`` takes them.
        must_link, cannot_link : array-like of shape (m, 2), int, optional
            Pairs of global row numbers.  If X is a pandas DataFrame, text and dates are looked up
            in its index; integers are row numbers.
        sample_weight : array-like or dask.array.Array of shape (n,), optional
            Weights of the rows: an integer weight equals repetition, 0 absence.
            Cubes also accept an image (y, x) and ``"area"``; see
            :meth:`daskclust.Cube.row_weights`.

        Returns
        -------
        self
        """
        return fit(self, X, sample_weight, y=y, must_link=must_link, cannot_link=cannot_link)

    def _check_constraints(self, constraints: PairwiseConstraints, *, weighted: bool) -> None:
        # With weights, rows of weight 0 are only known after the rows are fetched.
        if not weighted:
            check_feasible(constraints, self.n_clusters)

    def _assignment(self, data: OpenData, rows: ConstrainedRows) -> Assignment:
        check_feasible(rows.constraints, self.n_clusters)
        return HardConstraints(rows, self.n_clusters)

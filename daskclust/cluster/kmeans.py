"""K-means on row blocks."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray

from daskclust.cluster.lloyd import LloydClusterer, LloydProblem
from daskclust.engine import Rows
from daskclust.estimator.fitting import (
    FirstPass,
    OpenData,
    draw_seeds,
    fit,
    misses_values,
    observing,
)
from daskclust.estimator.inputs import Data
from daskclust.estimator.parameters import check_choice, check_integer, given_centers
from daskclust.estimator.spaces import (
    COVARIANCE,
    EUCLIDEAN,
    MeanState,
    Metric,
    UnitSphere,
    Whitened,
)
from daskclust.starts.sampled import (
    DETERMINISTIC_INITS,
    STRING_INITS,
    n_survey_picks,
    sample_centers,
)

__all__ = ["KMeans"]

Float = NDArray[np.float64]
#: "sam" is another name of "cosine".
MetricName = Literal["euclidean", "cosine", "sam", "mahalanobis"]


class KMeans(LloydClusterer):
    """K-means clustering of data of any size (Algorithm 1 of the lecture notes).

    Parameters
    ----------
    n_clusters : int, default=8
        Number of clusters k.
    init : {"k-means||", "k-means++", "random", "maximin", "dkm++", "robin"}, \
array of shape (k, p) or callable, default="k-means||"
        Start.  ``"k-means||"`` draws ``oversampling_factor * k`` candidates in
        each of ``init_rounds`` rounds with probability proportional to ``w D^2``
        and clusters the candidates, weighted by the rows they attract.
        ``"k-means++"`` draws one center a pass (Algorithm 2 of the notes).
        ``"random"`` draws rows.  Chance has no part in the next three:
        ``"maximin"`` takes the row of the largest norm, then always the row
        farthest from those taken, one a pass [3]_; ``"dkm++"`` the rows of the
        largest local density times distance to those taken [4]_; ``"robin"``
        rows far from each other whose local outlier factor is near 1 [5]_.  The
        last two compare all rows up to ``daskclust.init-rows`` (5000), and a
        uniform sample of so many beyond that.  A callable is given
        ``(X, n_clusters, random_state)`` and returns the centers.
    n_init : int or "auto", default="auto"
        Restarts, of which the one of least inertia is kept.  They advance
        together and share every pass over the data.  ``"auto"`` is 10 for
        ``init="random"`` and callables, else 1.  Starts in which chance has no
        part are made once.
    max_iter : int, default=300
        Iterations at most.
    tol : float, default=1e-4
        A restart has converged when the squared shift of all its centers is at
        most ``tol`` times the mean variance of the features.
    oversampling_factor : float, default=2.0
        Candidates a round of ``"k-means||"``, as a multiple of ``n_clusters``.
    init_rounds : int, default=5
        Rounds of ``"k-means||"``; more follow only while there are fewer
        candidates than clusters.
    algorithm : {"auto", "lloyd"}, default="auto"
        Both are Lloyd's algorithm, the only one so far.
    metric : {"euclidean", "cosine", "sam", "mahalanobis"}, default="euclidean"
        ``"cosine"`` clusters directions: rows and centers are scaled to unit length and
        squared distances are ``2 - 2 cos(angle)``.  ``"sam"`` (spectral angle mapper) is
        another name of it, with the same models and checkpoints.
        ``"mahalanobis"`` whitens by the pooled covariance of the data, which
        takes one more pass; directions without variance are dropped.
    missing : {"error", "partial"}, default="error"
        What NaN in X is: an error, or a missing value.  With ``"partial"`` distances and
        means are over what is observed (no row is filled in), which never raises the sum
        of squares over the observed values, as k-POD [6]_; inertia is that sum.  Data without
        missing values are clustered the same, to the last bit, and as fast.  Rows with
        no value at all get label -1 and a warning.
    random_state : int, RandomState, Generator or None, default=None
        An int fixes the result whatever the chunks, the scheduler and the
        number of workers.
    checkpoint : path-like, default=None
        File that holds the newest state, replaced atomically after each pass of the
        start and each iteration; a fit started again with the same data, parameters
        (``max_iter`` may differ) and version of daskclust continues from it to the
        identical model.  The first pass then hashes the rows, for which it takes up to
        twice as long where they are in memory.

    Attributes
    ----------
    cluster_centers_ : ndarray of shape (k, p), float64
        Centers, in the space of the data.
    labels_ : ndarray or dask.array.Array of shape (n,), int32
        Cluster of each row: the nearest center, ties to the lowest.  Lazy, and
        chunked like X, for Dask input.
    inertia_ : float
        Weighted sum of squared distances to the centers, in the metric, by
        direct differences in float64.
    n_iter_ : int
        Iterations of the restart that was kept.
    n_features_in_ : int
        Number of features p.
    feature_names_in_ : ndarray of shape (p,)
        Names of the columns, where X has names.
    history_ : list of dict
        One record an iteration: ``iteration``, ``objective`` (inertia of the
        assignment, the least of all restarts), ``center_shift`` (the largest of
        the restarts still moving), ``moved`` (None: not known), ``seconds``,
        ``passes`` (over the data so far).  For ``"dkm++"`` and ``"robin"`` the
        first also has ``init_rows``, how many rows they compared; a sample is
        logged as a warning, too.

    Raises
    ------
    ValueError
        For NaN or infinity in X (naming the first), fewer rows than clusters,
        and parameters out of range.
    CheckpointError
        If the checkpoint is damaged or belongs to other data, parameters or another
        version, or a parameter hides what it is (such as a callable with a lock).

    Warns
    -----
    ConvergenceWarning
        If there are fewer distinct rows than clusters.
    PrecisionWarning
        If float64 hardly holds the spread of the data beside their offset.
    PerformanceWarning
        If chunks are cut along the features, or of unknown length.

    Notes
    -----
    *Passes*: 1 to look at the data, those of the start (``init_rounds + 1``; k - 1
    of ``"k-means++"``, k of ``"maximin"``; at most 1 of the others), 1 an
    iteration, 1 whenever a cluster is empty, and 1 at the end unless the centers
    stood still.  *Memory* of a worker thread: one block (two, when
    blocks are read on the way) and O(r k p) for r restarts; k-means|| keeps 12
    bytes a row and restart while it samples, where twice that fits
    ``daskclust.persist-fraction`` of the free memory; else it measures all
    candidates again in each round, with the same result.  *To the client*: O(r k p) a
    worker thread and pass, never anything of length n.

    Rounds of k-means|| draw as if every row were measured against every candidate,
    but measure only rows that may win: their old distance bounds the odds.  The
    weights of candidates are counted on all rows up to 65 536 (or 50 a candidate),
    and on a sample of about so many beyond, which they hardly notice.

    Sums of clusters are of the values as they are, in float64.  Where data lie so far
    from 0 that the steps of float64 show beside their spread, centers are a few steps off,
    and inertia is above that of scikit-learn, which subtracts the mean first (0.1 to 0.5 %
    at an offset of 1e14 standard deviations).  A ``PrecisionWarning`` then asks for that.

    Labels are exact: a row whose two nearest centers cannot be told apart in the
    input's precision is decided by direct differences in float64.

    References
    ----------
    .. [1] Arthur, D., Vassilvitskii, S. (2007). k-means++: the advantages of
       careful seeding. SODA.
    .. [2] Bahmani, B. et al. (2012). Scalable k-means++. VLDB.
    .. [3] Katsavounidis, I., Kuo, C.-C., Zhang, Z. (1994). A new initialization
       technique for generalized Lloyd iteration. IEEE Signal Processing Letters 1.
    .. [4] Nidheesh, N., Abdul Nazeer, K., Ameer, P. (2017). An enhanced
       deterministic k-means clustering algorithm for cancer subtype prediction
       from gene expression data. Computers in Biology and Medicine 91.
    .. [5] Al Hasan, M., Chaoji, V., Salem, S., Zaki, M. (2009). Robust partitional
       clustering by outlier and density insensitive seeding. Pattern Recognition
       Letters 30.
    .. [6] Chi, J., Chi, E., Baraniuk, R. (2016). k-POD: a method for k-means clustering
       of missing data. The American Statistician 70.

    Examples
    --------
    >>> import dask.array as da
    >>> import daskclust
    >>> X = da.concatenate([da.zeros((50, 2), chunks=25), da.ones((50, 2), chunks=25)])
    >>> model = daskclust.KMeans(n_clusters=2, random_state=0).fit(X)
    >>> model.inertia_
    0.0
    >>> model.labels_.chunks
    ((25, 25, 25, 25),)
    """

    _synonyms = {"metric": {"sam": "cosine"}}  # noqa: RUF012

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        init: Any = "k-means||",
        n_init: Any = "auto",
        max_iter: int = 300,
        tol: float = 1e-4,
        oversampling_factor: float = 2.0,
        init_rounds: int = 5,
        algorithm: Literal["auto", "lloyd"] = "auto",
        metric: MetricName = "euclidean",
        missing: Literal["error", "partial"] = "error",
        random_state: Any = None,
        checkpoint: Any = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.init = init
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.oversampling_factor = oversampling_factor
        self.init_rounds = init_rounds
        self.algorithm = algorithm
        self.metric = metric
        self.missing = missing
        self.random_state = random_state
        self.checkpoint = checkpoint

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_integer(self.max_iter, "max_iter", 1)
        check_choice(self.algorithm, "algorithm", ("auto", "lloyd"))
        check_choice(self.metric, "metric", get_args(MetricName))
        if isinstance(self.init, str):
            check_choice(self.init, "init", STRING_INITS)

    @property
    def _is_angular(self) -> bool:
        return self.metric in ("cosine", "sam")

    def _n_restarts(self) -> int:
        chance = isinstance(self.init, str) and self.init not in DETERMINISTIC_INITS
        if chance or callable(self.init):
            if self.n_init == "auto":
                return 10 if callable(self.init) or self.init == "random" else 1
            return int(self.n_init)
        # The same centers every time: one start is all starts.
        return 1

    def fit(self, X: Any, y: Any = None, *, sample_weight: Any = None) -> Self:
        """Find the clusters.

        Parameters
        ----------
        X : array-like, dask.array.Array, DataFrame or xarray.DataArray of shape (n, p)
            Rows to cluster.
        y : ignored
        sample_weight : array-like or dask.array.Array of shape (n,), optional
            Weights of the rows: an integer weight equals repetition, 0 absence.

        Returns
        -------
        self
        """
        return fit(self, X, sample_weight)

    def _first_pass(self, data: Data, read: None) -> FirstPass:
        first = FirstPass(
            draw_seeds(self.random_state, self._n_restarts()),
            n_survey_picks(self.init, self.n_clusters, data.X.shape[0]),
            transform=UnitSphere() if self._is_angular else None,
        )
        return observing(self, first)

    def _problem(self, data: OpenData, read: None) -> LloydProblem:
        survey, rows = data.survey, data.rows
        metric: Metric = EUCLIDEAN
        tolerance = float(self.tol * survey.variance.mean())
        if self._is_angular:
            metric = UnitSphere()
        elif self.metric == "mahalanobis":
            covariance = rows.reduce(COVARIANCE, MeanState(survey.mean))
            metric = Whitened.from_covariance(survey.mean, covariance)
            # Whitened features have variance 1.
            rows, tolerance = rows.transformed(metric), float(self.tol)
        shift = survey.mean if metric.is_identity else None
        start = partial(self._start, data, rows, metric, shift)
        return LloydProblem(
            rows,
            start,
            int(self.max_iter),
            tolerance,
            metric,
            shift,
            missing=misses_values(survey),
        )

    def _start(self, data: OpenData, rows: Rows, metric: Metric, shift: Any) -> Float:
        """Find the starting centers of all restarts, in the metric's space."""
        k, p = self.n_clusters, data.rows.n_features
        if not isinstance(self.init, str):
            given = given_centers(self.init, data.X, k, p, data.seeds)
            return np.stack([metric(centers) for centers in given])
        survey = data.survey
        if isinstance(metric, Whitened):
            survey = replace(survey, picks=_whitened_picks(survey.picks, metric))
        return sample_centers(
            rows,
            survey,
            self.init,
            k,
            data.seeds,
            oversampling_factor=self.oversampling_factor,
            init_rounds=self.init_rounds,
            shift=shift,
            missing=misses_values(survey),
        ).centers


def _whitened_picks(picks: NDArray[Any], metric: Whitened) -> NDArray[Any]:
    """Rows that were drawn, in the whitened space."""
    p, q = metric.forward.shape
    white = np.zeros(picks.shape, dtype=[("key", float), ("row", int), ("x", float, (q,))])
    white["key"], white["row"] = picks["key"], picks["row"]
    white["x"] = metric(picks["x"].reshape(-1, p)).reshape(white["x"].shape)
    return white

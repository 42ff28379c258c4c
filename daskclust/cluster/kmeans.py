"""K-means on row blocks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from daskclust.cluster.lloyd import LloydState, first_least, lloyd_step, settle
from daskclust.engine import Rows, iterate, map_rows
from daskclust.estimator.base import EUCLIDEAN, BaseClusterer, OpenData, warn_few_distinct
from daskclust.estimator.parameters import (
    check_choice,
    check_init_array,
    check_integer,
    check_real,
)
from daskclust.estimator.spaces import COVARIANCE, MeanState, Metric, UnitSphere, Whitened
from daskclust.persistence.schema import Entry, Number
from daskclust.starts.deterministic import note_start
from daskclust.starts.sampled import (
    DETERMINISTIC_INITS,
    STRING_INITS,
    Start,
    n_survey_picks,
    sample_centers,
)

__all__ = ["KMeans"]


class KMeans(BaseClusterer):
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
    metric : {"euclidean", "cosine", "mahalanobis"}, default="euclidean"
        ``"cosine"`` clusters directions (spectral angles): rows and centers are
        scaled to unit length and squared distances are ``2 - 2 cos(angle)``.
        ``"mahalanobis"`` whitens by the pooled covariance of the data, which
        takes one more pass; directions without variance are dropped.
    random_state : int, RandomState, Generator or None, default=None
        An int fixes the result whatever the chunks, the scheduler and the
        number of workers.
    checkpoint : path-like, default=None
        File that holds the newest state, replaced atomically every iteration;
        a fit started again with the same data and parameters (``max_iter`` may
        differ) continues from it to the identical model.

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
        If the checkpoint is broken or belongs to other data or parameters.

    Warns
    -----
    ConvergenceWarning
        If there are fewer distinct rows than clusters.
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

    _saved_state: ClassVar[Mapping[str, Entry]] = {"inertia_": Number(low=0)}

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
        algorithm: str = "auto",
        metric: str = "euclidean",
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
        self.random_state = random_state
        self.checkpoint = checkpoint

    def _check_parameters(self) -> None:
        check_integer(self.n_clusters, "n_clusters", 1)
        check_integer(self.max_iter, "max_iter", 1)
        check_real(self.tol, "tol", 0)
        check_real(self.oversampling_factor, "oversampling_factor", 0, boundaries="neither")
        check_integer(self.init_rounds, "init_rounds", 1)
        check_choice(self.algorithm, "algorithm", ("auto", "lloyd"))
        check_choice(self.metric, "metric", ("euclidean", "cosine", "mahalanobis"))
        if self.n_init != "auto":
            check_integer(self.n_init, "n_init", 1)
        if isinstance(self.init, str):
            check_choice(self.init, "init", STRING_INITS)

    def _n_restarts(self) -> int:
        chance = isinstance(self.init, str) and self.init not in DETERMINISTIC_INITS
        if chance or callable(self.init):
            if self.n_init == "auto":
                return 10 if callable(self.init) or self.init == "random" else 1
            return int(self.n_init)
        # The same centers every time: one start is all starts.
        return 1

    def fit(self, X: Any, y: Any = None, *, sample_weight: Any = None) -> KMeans:
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
        self._check_parameters()
        X, weight = self._check_data(X, sample_weight)
        # What is known without a pass is checked without one.
        if not (isinstance(self.init, str) or callable(self.init)):
            check_init_array(self.init, self.n_clusters, X.shape[1])
        self._check_n_clusters(X.shape[0])
        data = self._open(
            X,
            weight,
            n_restarts=self._n_restarts(),
            n_picks=n_survey_picks(self.init, self.n_clusters, X.shape[0]),
            metric=UnitSphere() if self.metric == "cosine" else EUCLIDEAN,
        )
        self._check_n_clusters(data.rows.n_rows)
        rows, metric, tolerance = self._enter_metric(data)
        shift = data.survey.mean if metric.is_identity else None
        fitted = iterate(
            rows,
            lambda: LloydState.begin(self._start(data, rows, metric, shift).centers),
            partial(lloyd_step, rows, metric, tolerance, shift),
            kind=LloydState,
            max_iter=self.max_iter,
            name=type(self).__name__,
            checkpoint=self._checkpoint(data, ignore=("max_iter",)),
        )
        note_start(fitted.history, self.init, rows.n_rows, self.n_clusters)
        state = settle(rows, shift, fitted.state)
        self._finish(data, metric, state, fitted.history)
        return self

    def _enter_metric(self, data: OpenData) -> tuple[Rows, Metric, float]:
        """Return the rows in the metric's space, the metric, and the tolerance there."""
        if self.metric == "mahalanobis":
            covariance = data.rows.reduce(COVARIANCE, MeanState(data.survey.mean))
            white = Whitened.from_covariance(data.survey.mean, covariance)
            # Whitened features have variance 1.
            return data.rows.transformed(white), white, float(self.tol)
        metric = UnitSphere() if self.metric == "cosine" else EUCLIDEAN
        return data.rows, metric, float(self.tol * data.survey.variance.mean())

    def _start(self, data: OpenData, rows: Rows, metric: Metric, shift: Any) -> Start:
        """Find the starting centers of all restarts, in the metric's space."""
        k, p = self.n_clusters, data.rows.n_features
        if isinstance(self.init, str):
            survey = data.survey
            if isinstance(metric, Whitened):
                picks = np.zeros(
                    survey.picks.shape,
                    dtype=[("key", float), ("row", int), ("x", float, (metric.forward.shape[1],))],
                )
                picks["key"], picks["row"] = survey.picks["key"], survey.picks["row"]
                picks["x"] = metric(survey.picks["x"].reshape(-1, p)).reshape(picks["x"].shape)
                survey = replace(survey, picks=picks)
            return sample_centers(
                rows,
                survey,
                self.init,
                k,
                data.seeds,
                oversampling_factor=self.oversampling_factor,
                init_rounds=self.init_rounds,
                shift=shift,
            )
        if callable(self.init):
            given = [self.init(data.X, k, np.random.RandomState(s % 2**32)) for s in data.seeds]
        else:
            given = [self.init]
        centers = [metric(check_init_array(c, k, p)) for c in given]
        return Start(np.stack(centers), k)

    def _finish(self, data: OpenData, metric: Metric, state: LloydState, history: list) -> None:
        best = first_least(state.inertia)
        self._metric = metric
        self._centers = state.centers[best]
        self.cluster_centers_ = metric.restore(self._centers)
        self.inertia_ = float(state.inertia[best])
        self.n_iter_ = int(state.n_iter[best])
        self.history_ = history
        n_distinct = len(np.unique(self._centers, axis=0))
        if n_distinct < self.n_clusters:
            warn_few_distinct(n_distinct, self.n_clusters)
        self.labels_ = map_rows(
            data.X,
            self._row_function(data.rows.dtype),
            dtype=np.int32,
            lengths=data.rows.lengths,
        )

"""K-means on row blocks, and on batches of a stream."""

from __future__ import annotations

import time
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any, Literal, Self, get_args

import numpy as np
from sklearn.utils.metaestimators import available_if

from daskclust.cluster.lloyd import LloydClusterer, LloydProblem
from daskclust.core.array_types import Floats
from daskclust.core.engine import map_rows, open_rows, working_dtype
from daskclust.core.estimator.fit_loop import FirstPass, OpenData, draw_seeds
from daskclust.core.estimator.transforms import (
    COVARIANCE,
    EUCLIDEAN,
    MeanState,
    Metric,
    UnitSphere,
    Whitened,
)
from daskclust.core.estimator.validation import (
    Data,
    Init,
    check_choice,
    check_integer,
    check_rows,
    check_survey,
    check_weight,
    forget_range,
    given_centers,
    is_partial,
)
from daskclust.core.initialization.growing import SampledKMeans
from daskclust.core.initialization.sampled import (
    DETERMINISTIC_INITS,
    STRING_INITS,
    improve_on_sample,
    n_survey_picks,
    sample_centers,
)
from daskclust.core.initialization.samples import is_complete
from daskclust.core.initialization.steps import MOMENTUM
from daskclust.core.reduction import SURVEY, SurveyRequest


def can_follow(model: Any) -> bool:
    """Whether means can be updated by batches; raise if parameters do not allow it."""
    if model.metric != "euclidean":
        raise AttributeError(
            f"metric={model.metric!r} cannot go with partial_fit, whose centers are means of rows "
            'as they are; use metric="euclidean", on rows that are scaled as they should be.'
        )
    if is_partial(model):
        raise AttributeError(
            'missing="partial" cannot go with partial_fit, which keeps one weight a center and not '
            'one a feature; use missing="error" on complete rows, or fit.'
        )
    return True


Algorithm = Literal["auto", "lloyd", "nested"]
#: "sam" is another name of "cosine".
MetricName = Literal["euclidean", "cosine", "sam", "mahalanobis"]
_ANGULAR = {"cosine": UnitSphere(), "sam": UnitSphere()}


class KMeans(LloydClusterer):
    """K-means clustering of data of any size, by Lloyd's algorithm.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of clusters k.
    init : {"k-means||", "k-means++", "random", "maximin", "dkm++", "robin"}, \
array of shape (k, p), fitted model or callable, default="k-means||"
        Initialization of the centers:

        - ``"k-means||"``: k-means on a sample of the rows that grows (see Notes).
        - ``"k-means++"``: one row after another, one per pass, with probability proportional to
          ``w D^2`` [1]_.  Each is the best of ``2 + ln k`` draws, judged on a sample of the rows.
        - ``"random"``: rows drawn at random.
        - ``"maximin"``: the row of the largest norm, then always the row farthest from those
          chosen, one per pass [3]_.
        - ``"dkm++"``: rows of the largest local density times distance to those chosen [4]_.
        - ``"robin"``: rows far from each other whose local outlier factor is near 1 [5]_.
        - an array, a fitted model of as many clusters (whose centers are used, and their order),
          or a callable, which gets ``(X, n_clusters, random_state)`` and returns the centers.

        ``"maximin"``, ``"dkm++"`` and ``"robin"`` are deterministic.  The last two compare all
        rows up to ``daskclust.init-rows`` (5000), and a uniform sample of that size beyond.

        A named initialization may choose rows that attract few other rows.  If the fit converges to
        clusters of few rows that are not outliers, it continues from the centers of
        ``"k-means||"`` if their inertia is smaller, and emits a ``ConvergenceWarning``.  Centers of
        an array, a model or a callable are not replaced; the fit only warns if one cluster contains
        nearly all rows.
    n_init : int or "auto", default="auto"
        Restarts, of which the one of least inertia is kept.  They advance
        together and share every pass over the data.  ``"auto"`` is 10 for
        ``init="random"`` and callables, else 1.  Deterministic starts are made once.
    max_iter : int, default=300
        Maximum number of iterations.
    tol : float, default=1e-4
        A restart has converged when the squared shift of all its centers is at
        most ``tol`` times the mean variance of the features.
    oversampling_factor : float, default=2.0
        Candidates per round of ``"k-means||"``, as a multiple of ``n_clusters``.
    init_rounds : int, default=5
        Rounds of ``"k-means||"``.  More follow only while there are fewer candidates than
        clusters.
    algorithm : {"auto", "lloyd", "nested"}, default="auto"
        Iterations:

        - ``"lloyd"``: plain iterations on all rows.
        - ``"nested"``: the initial centers, whatever ``init``, are first iterated on a sample that
          grows (see Notes).  From the fourth iteration on, momentum adds 0.9 times the last shift
          of each center to its update, which mostly takes fewer iterations; inertia may rise for
          some of them.  The final centers are means.
        - ``"auto"``: ``"nested"`` for ``init="k-means||"`` and more than 8192 rows, or 20 per
          cluster, else ``"lloyd"``.
    metric : {"euclidean", "cosine", "sam", "mahalanobis"}, default="euclidean"
        ``"cosine"`` clusters directions: rows and centers are scaled to unit length and
        squared distances are ``2 - 2 cos(angle)``; a row of zeros has no direction, gets label
        0 and has weight 0: no center, count or inertia holds it.  ``"sam"`` (spectral angle
        mapper) is another name of it, with the same models and checkpoints.
        ``"mahalanobis"`` whitens by the pooled covariance of the data, which
        takes one more pass; directions without variance are dropped.
    missing : {"error", "partial"}, default="error"
        How NaN in X is treated: as an error, or as a missing value.  With ``"partial"``
        distances and means use the observed values only; nothing is imputed.  No iteration
        raises the sum of squares over the observed values, which k-POD [6]_ minimizes, too;
        ``inertia_`` is that sum.  Data without missing values give the same model, to the last
        bit, in the same time.  Rows without any value get label -1, with a warning.
    random_state : int, RandomState, Generator or None, default=None
        An int gives the same result for any chunks, scheduler and number of workers.
    checkpoint : path-like, default=None
        File that holds the newest state, replaced atomically after each pass of the
        start and each iteration; a fit started again with the same data, parameters
        (``max_iter`` may differ) and version of daskclust continues from it and ends with the
        same model.  The first pass then hashes the rows, for which it takes up to twice as long
        where they are in memory.

    Attributes
    ----------
    cluster_centers_ : ndarray of shape (k, p), float64
        Centers, in the space of the data.
    observed_coordinates_ : ndarray of shape (k, p), bool
        Whether any row of the cluster has a value of the feature.  Where it is False, the
        coordinate of the center says nothing about the cluster.  With ``missing="partial"`` only.
    labels_ : ndarray or dask.array.Array of shape (n,), int32
        The nearest center of each row, ties to the lowest.  Lazy, and chunked like X, for Dask
        input.
    inertia_ : float
        Weighted sum of squared distances to the centers, in the metric.
    n_iter_ : int
        Iterations of the restart that was kept, over all rows.
    counts_ : ndarray of shape (k,), float64
        Weight of the rows of which each center is the mean.
    n_features_in_ : int
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
    *Initialization*.  ``"k-means||"`` draws a uniform sample of 65 536 rows or 256 per cluster, at
    most a quarter of all rows and 256 MiB.  Of up to 8192 rows, or 20 per cluster, the sample is
    all rows.  Otherwise the farthest rows (up to 1024, or 2.5 per cluster) are added, and
    candidates from ``init_rounds`` rounds, in which each row is drawn with probability
    proportional to ``w D^2`` [2]_.  Up to 8 sets of centers are drawn by greedy k-means++ from
    these rows and iterated.  The best set is improved by swaps: two clusters are merged and a
    third one is split if that lowers the cost.  With more than ``3 k + 12`` features this is done
    in the space of ``2 k + 8`` principal directions.  Then the centers are iterated on the
    sample, which is doubled each time they move less than its noise [7]_.  Candidates are never
    averaged: in many dimensions the mean of a few rows is nearer to any row than a single row is,
    and attracts nearly all of them.  Of 256 clusters or more one set is drawn, without swaps, and
    without rounds if ``k p`` is 16 384 or more or there are fewer than 160 rows per cluster.

    *Passes*: 1 to check the data, those of the initialization, 1 per iteration, 1 whenever a
    cluster is empty, and 1 at the end unless the centers stood still.  The initialization takes
    ``init_rounds + 2`` passes for ``"k-means||"`` (1 if the sample is all rows, 2 without rounds),
    ``k + 1`` for ``"k-means++"``, k for ``"maximin"`` and at most 1 for the others.  ``"nested"``
    with these takes 2 more.  If collapsed centers are compared with those of ``"k-means||"``, this
    takes the passes of ``"k-means||"`` and one more.
    *Memory* of a worker thread: one block (two, when blocks are read on the way) and O(r k p)
    for r restarts; k-means|| keeps 12 bytes a row and restart while it samples, where twice
    that fits ``daskclust.persist-fraction`` of the free memory; else it measures all candidates
    again in each round, with the same result.  *To the client*: O(r k p) a worker thread and
    pass, never anything of length n.

    Sums of clusters are of the values as they are, in float64.  Where data lie so far from 0 that
    the steps of float64 show beside their spread, inertia is above that of scikit-learn, which
    subtracts the mean first (0.1 to 0.5 % at an offset of 1e14 standard deviations).  A
    ``PrecisionWarning`` then asks for that.

    An iteration makes ``n p k`` multiplications, less those that bounds save where ``k p`` is
    large.  From 1000 clusters on :class:`HierarchicalKMeans` takes less; its notes have figures.

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
    .. [7] Newling, J., Fleuret, F. (2016). Nested mini-batch k-means. NeurIPS.
    .. [8] Sculley, D. (2010). Web-scale k-means clustering. WWW.

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
        init: Init = "k-means||",
        n_init: Any = "auto",
        max_iter: int = 300,
        tol: float = 1e-4,
        oversampling_factor: float = 2.0,
        init_rounds: int = 5,
        algorithm: Algorithm = "auto",
        metric: MetricName = "euclidean",
        missing: Literal["error", "partial"] = "error",
        random_state: Any = None,
        checkpoint: Any = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.init: Any = init
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
        check_choice(self.algorithm, "algorithm", get_args(Algorithm))
        check_choice(self.metric, "metric", get_args(MetricName))
        if isinstance(self.init, str):
            check_choice(self.init, "init", STRING_INITS)

    @available_if(can_follow)
    def partial_fit(self, X: Any, y: Any = None, *, sample_weight: Any = None) -> Self:
        """Let the centers follow a batch of rows, of a stream or of data that arrive in parts.

        Each center becomes the mean of all rows it was ever given (``counts_`` is their
        weight), like scikit-learn's ``MiniBatchKMeans`` without reassignment (Sculley 2010).  A
        call is one batch, whatever its chunks; for one batch a block, loop over ``X.blocks``.

        Parameters
        ----------
        X : array-like, dask.array.Array, DataFrame or xarray.DataArray of shape (n, p)
            The batch.  The first must have at least ``n_clusters`` rows: it finds the start,
            as ``fit`` with one iteration.
        y : ignored
        sample_weight : array-like or dask.array.Array of shape (n,), optional

        Returns
        -------
        self
            With ``labels_`` those of the batch by the new centers, ``inertia_`` that of the batch
            by the centers it met, ``n_iter_`` the number of batches (after ``fit`` of
            iterations and batches), and one more record in ``history_``.

        Raises
        ------
        ValueError
            For rows of another width, NaN or infinity, and unusable weights.
        AttributeError
            Where means of rows cannot be carried on: with a ``metric`` other than
            ``"euclidean"``, and ``missing="partial"``.

        Notes
        -----
        One pass; those of a ``fit`` with one iteration for the first batch.  A call that fails
        changes nothing.  ``checkpoint`` is for ``fit``: :meth:`save` keeps the state between
        batches.

        Examples
        --------
        >>> import numpy as np, daskclust
        >>> model = daskclust.KMeans(2, random_state=0)
        >>> for batch in ([[0.0], [10.0]], [[2.0], [10.0]], [[1.0], [13.0]]):
        ...     _ = model.partial_fit(np.array(batch))
        >>> sorted(model.cluster_centers_.ravel().tolist()), model.counts_.tolist()
        ([1.0, 11.0], [3.0, 3.0])
        """
        self._check_parameters()
        if not hasattr(self, "cluster_centers_"):
            first = copy(self)
            first.max_iter, first.checkpoint = 1, None
            first.fit(X, sample_weight=sample_weight)
            first.inertia_ = first.history_[-1]["objective"]
            params = self.get_params(deep=False)
            kept = {name: v for name, v in vars(first).items() if name not in params}
            self.__dict__.update(kept)
            return self
        if not hasattr(self, "counts_"):
            raise ValueError(
                "The model was saved by a version that kept no counts_, the weight of the rows of "
                "which each center is the mean; without them centers cannot be carried on. Fit it "
                "anew."
            )
        if len(self.counts_) != self.n_clusters:
            raise ValueError(
                f"n_clusters={self.n_clusters}, but the model has {len(self.counts_)} centers; "
                f"partial_fit carries these on. Set n_clusters={len(self.counts_)}, or fit anew."
            )
        began = time.perf_counter()
        X = check_rows(self, X, reset=False)
        passes = 1
        if sample_weight is not None:
            # Weights are looked at before they count, once and for all.
            request = SurveyRequest(X.shape[1])
            check_survey(open_rows(X, check_weight(sample_weight, X)).reduce(SURVEY, request))
            passes += 1
        stats = self._assigned(X, sample_weight)
        # ``(counts c + sums) / (counts + weights)``; a center without new rows stays.
        batch = stats.counts[0]
        counts = self.counts_ + batch
        sums = self._centers * self.counts_[:, None] + stats.sums[0]
        centers = np.divide(
            sums, counts[:, None], out=self._centers.copy(), where=batch[:, None] > 0
        )
        dtype = working_dtype(X.dtype)
        function = self._row_function(dtype).with_centers(centers, None)
        labels = map_rows(X, function, dtype=np.int32, name="predict")
        inertia = float(stats.inertia.sum())
        record = {
            "iteration": self.n_iter_ + 1,
            "objective": inertia,
            "center_shift": float(np.sqrt(((centers - self._centers) ** 2).sum())),
            "moved": None,
            "seconds": time.perf_counter() - began,
            "passes": self.history_[-1]["passes"] + passes,
        }
        forget_range(self)  # which no pass over the batch has found
        self._centers, self.counts_, self.labels_ = centers, counts, labels
        self.cluster_centers_, self.inertia_ = centers.copy(), inertia
        self.n_iter_ += 1
        self.history_ = [*self.history_, record]
        return self

    def _first_pass(self, data: Data, read: None) -> FirstPass:
        # Of starts without chance one is all starts.
        init, n_restarts = self.init, 1
        if callable(init) or (isinstance(init, str) and init not in DETERMINISTIC_INITS):
            auto = 10 if callable(init) or init == "random" else 1
            n_restarts = auto if self.n_init == "auto" else int(self.n_init)
        n_picks = n_survey_picks(init, self.n_clusters, data.X.shape[0])
        return FirstPass(
            draw_seeds(self.random_state, n_restarts),
            # At least one row, with which k-means|| begins if the fit collapses.
            max(1, n_picks) if isinstance(init, str) else n_picks,
            transform=_ANGULAR.get(self.metric),
        )

    def _problem(self, data: OpenData, read: None) -> LloydProblem:
        survey = data.survey
        metric: Metric = _ANGULAR.get(self.metric, EUCLIDEAN)
        tolerance = float(self.tol * survey.variance.mean())
        if self.metric == "mahalanobis":
            covariance = data.rows.reduce(COVARIANCE, MeanState(survey.mean))
            metric = Whitened.from_covariance(survey.mean, covariance)
            # Whitened features have variance 1.
            tolerance = float(self.tol)
            data = replace(
                data, rows=data.rows.transformed(metric), survey=_whitened(survey, metric)
            )
        shift = survey.mean if metric.is_identity else None
        problem = LloydProblem(
            data.rows,
            partial(self._start, data, metric, shift, tolerance),
            int(self.max_iter),
            tolerance,
            metric,
            shift,
            missing=survey.n_incomplete > 0,
        )
        grown = isinstance(self.init, str) and self.init == "k-means||"
        grown &= not is_complete(data.rows, self.n_clusters)
        if self.algorithm == "nested" or (self.algorithm == "auto" and grown):
            problem = replace(problem, momentum=MOMENTUM)
        if isinstance(self.init, str) and self.init != "k-means||":
            # A fixed seed, because some initializations are deterministic.
            again = partial(self._sampled, data, "k-means||", (0,), metric, shift, tolerance)
            problem = replace(problem, again=again)
        return problem

    def _sampled(
        self,
        data: OpenData,
        init: str,
        seeds: tuple[int, ...],
        metric: Metric,
        shift: Floats | None,
        tol: float,
    ) -> Floats:
        return sample_centers(
            data.rows,
            data.survey,
            init,
            self.n_clusters,
            seeds,
            oversampling_factor=self.oversampling_factor,
            init_rounds=self.init_rounds,
            shift=shift,
            missing=data.survey.n_incomplete > 0,
            metric=metric,
            tolerance=tol,
        )

    def _start(self, data: OpenData, metric: Metric, shift: Floats | None, tol: float) -> Floats:
        k, missing = self.n_clusters, data.survey.n_incomplete > 0
        if not isinstance(self.init, str):
            given = given_centers(self.init, data.X, k, data.X.shape[1], data.seeds)
            centers = np.stack([metric(centers) for centers in given])
        else:
            centers = self._sampled(data, self.init, data.seeds, metric, shift, tol)
            if self.init == "k-means||":
                return centers
        if self.algorithm == "nested":
            level = SampledKMeans(metric, tol, shift, missing)
            return improve_on_sample(data.rows, data.survey, centers, data.seeds[0], level)
        return centers


def _whitened(survey: Any, metric: Whitened) -> Any:
    """Return the survey with the rows that it drew in the metric's space."""
    picks, (p, q) = survey.picks, metric.forward.shape
    white: Any = np.zeros(picks.shape, dtype=[("key", float), ("row", int), ("x", float, (q,))])
    white["key"], white["row"] = picks["key"], picks["row"]
    white["x"] = metric(picks["x"].reshape(-1, p)).reshape(white["x"].shape)
    return replace(survey, picks=white)

"""K-means on row blocks."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.metaestimators import available_if

from daskclust._types import Floats
from daskclust.cluster.lloyd import LloydClusterer, LloydProblem
from daskclust.cluster.nested import MOMENTUM, greedy_tries, nested_start
from daskclust.cluster.streams import can_follow, follow
from daskclust.engine import Rows
from daskclust.estimator.choices import Init
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
    draw_candidates,
    n_survey_picks,
    sample_centers,
)
from daskclust.starts.samples import (
    Sample,
    grows,
    is_large,
    large_starts,
    n_candidates,
    pays,
)

__all__ = ["KMeans"]

Algorithm = Literal["auto", "lloyd", "nested"]
#: "sam" is another name of "cosine".
MetricName = Literal["euclidean", "cosine", "sam", "mahalanobis"]


class KMeans(LloydClusterer):
    """K-means clustering of data of any size, by Lloyd's algorithm.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of clusters k.
    init : {"k-means||", "k-means++", "random", "maximin", "dkm++", "robin"}, \
array of shape (k, p), fitted model or callable, default="k-means||"
        How the first centers are found.  ``"k-means||"`` [2]_ draws ``oversampling_factor * k``
        candidates in each of ``init_rounds`` rounds with probability proportional to ``w D^2``
        and clusters the candidates, each weighted by the number of rows nearest to it.  Where
        ``k p`` is 16 384 or more (embeddings), that would take as long as dozens of iterations:
        as many candidates are drawn uniformly then, with the 1024 rows farthest from some of
        them, and centers are chosen from these by greedy k-means++ [1]_, in up to three times
        the multiplications of an iteration (more where there are fewer than 7 rows a cluster).
        ``"k-means++"`` draws one center a pass [1]_.  ``"random"`` draws rows.  The next three
        are deterministic: ``"maximin"`` takes the row of the largest norm, then always the row
        farthest from those taken, one a pass [3]_; ``"dkm++"`` the rows of the largest local
        density times distance to those taken [4]_; ``"robin"`` rows far from each other whose
        local outlier factor is near 1 [5]_.  The last two compare all rows up to
        ``daskclust.init-rows`` (5000), and a uniform sample of so many beyond that.  A callable
        is given ``(X, n_clusters, random_state)`` and returns the centers.  A fitted model of as
        many clusters gives its centers, and so its order of the clusters.
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
        Candidates a round of ``"k-means||"``, as a multiple of ``n_clusters``.
    init_rounds : int, default=5
        Rounds of ``"k-means||"``; more follow only while there are fewer
        candidates than clusters.
    algorithm : {"auto", "lloyd", "nested"}, default="auto"
        Where the iterations begin.  ``"lloyd"`` iterates on all rows.  ``"nested"`` iterates on
        a sample first, which is doubled each time the centers move less than its noise [7]_,
        then on all rows, to the same tolerance.  From the fourth iteration on, each center goes
        0.9 times its last move beyond its mean (Nesterov's momentum), which mostly takes fewer
        iterations; inertia may rise for some of them.  The final centers are means.
        With ``init="k-means||"`` up to 8 starts are drawn by greedy k-means++ from
        the candidates and the sample, and on each part of it the worse half is dropped after
        four iterations.
        ``"auto"`` is ``"nested"`` with ``init="k-means||"``, at least 8192 rows, and 10 rows a
        cluster, where 10 rows a cluster fit 256 MiB.  Where ``k p`` is 16 384 or more and the
        sample has fewer than 64 rows a cluster, of that it takes the momentum only.
    metric : {"euclidean", "cosine", "sam", "mahalanobis"}, default="euclidean"
        ``"cosine"`` clusters directions: rows and centers are scaled to unit length and
        squared distances are ``2 - 2 cos(angle)``.  ``"sam"`` (spectral angle mapper) is
        another name of it, with the same models and checkpoints.
        ``"mahalanobis"`` whitens by the pooled covariance of the data, which
        takes one more pass; directions without variance are dropped.
    missing : {"error", "partial"}, default="error"
        How NaN in X is treated: as an error, or as a missing value.  With ``"partial"``
        distances and means use the observed values only; nothing is imputed.  No iteration
        raises the sum of squares over the observed values, which k-POD [6]_ minimizes, too;
        ``inertia_`` is that sum.  Data without missing values give the same model, to the last
        bit, in the same time.  Rows without any value get label -1, with a warning.
    random_state : int, RandomState, Generator or None, default=None
        With an int the result does not depend on the chunks, the scheduler or the number of
        workers.
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
    labels_ : ndarray or dask.array.Array of shape (n,), int32
        Cluster of each row: the nearest center, ties to the lowest.  Lazy, and
        chunked like X, for Dask input.
    inertia_ : float
        Weighted sum of squared distances to the centers, in the metric, by
        direct differences in float64.
    n_iter_ : int
        Iterations of the restart that was kept, over all rows.
    counts_ : ndarray of shape (k,), float64
        Weight of the rows of which each center is the mean.
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
    *Passes*: 1 to check the data, those of the start (``init_rounds + 1``, or 2 where ``k p`` is
    16 384 or more; k - 1 of ``"k-means++"``, k of ``"maximin"``; at most 1 of the others), 1 an
    iteration, 1 whenever a cluster is empty, and 1 at the end unless the centers stood still.
    *Memory* of a worker thread: one block (two, when blocks are read on the way) and O(r k p)
    for r restarts; k-means|| keeps 12 bytes a row and restart while it samples, where twice
    that fits ``daskclust.persist-fraction`` of the free memory; else it measures all candidates
    again in each round, with the same result.  *To the client*: O(r k p) a worker thread and
    pass, never anything of length n.

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

    ``"nested"`` makes 2 passes more (of k-means|| 1) and leaves it to the client to iterate on
    the sample, of 65 536 rows or 256 a cluster, at most a quarter of all and 256 MiB.  Rows are
    drawn by their number, whatever the chunks; the 1024 rows (or 2.5 a cluster) that lie
    farthest from some of them are all taken beside, since a sample says little of few rows
    that are most of the inertia.

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

    @available_if(can_follow)
    def partial_fit(self, X: Any, y: Any = None, *, sample_weight: Any = None) -> Self:
        """Let the centers follow a batch of rows, of a stream or of data that arrive in parts.

        Each center becomes the mean of all rows it was ever given (``counts_`` is their
        weight), like scikit-learn's ``MiniBatchKMeans`` without reassignment [9]_.  A call is
        one batch, whatever its chunks; for one batch a block, loop over ``X.blocks``.

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

        References
        ----------
        .. [9] Sculley, D. (2010). Web-scale k-means clustering. WWW.

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
        return follow(self, X, sample_weight)

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
        problem = LloydProblem(
            rows,
            partial(self._start, data, rows, metric, shift),
            int(self.max_iter),
            tolerance,
            metric,
            shift,
            missing=misses_values(survey),
        )
        if not self._is_nested(rows):
            return problem
        problem = replace(problem, momentum=MOMENTUM)
        if self.algorithm == "auto" and not grows(rows, self.n_clusters):
            return problem
        return replace(problem, start=partial(self._nested_start, data, problem))

    def _is_nested(self, rows: Rows) -> bool:
        """Whether samples come first."""
        if self.algorithm != "auto":
            return self.algorithm == "nested"
        drawn = isinstance(self.init, str) and self.init == "k-means||"
        return drawn and pays(rows, self.n_clusters)

    def _start(self, data: OpenData, rows: Rows, metric: Metric, shift: Any) -> Floats:
        """Find the starting centers of all restarts, in the metric's space."""
        k, p = self.n_clusters, data.rows.n_features
        if not isinstance(self.init, str):
            given = given_centers(self.init, data.X, k, p, data.seeds)
            return np.stack([metric(centers) for centers in given])
        survey = _in_space(data.survey, metric)
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

    def _nested_start(self, data: OpenData, problem: LloydProblem) -> Floats:
        """Find the starting centers of all restarts on samples that grow."""
        k, seeds, rows = self.n_clusters, data.seeds, problem.rows
        survey = _in_space(data.survey, problem.metric)
        start = partial(nested_start, problem, k, survey.mean, total=survey.weight, seed=seeds[0])
        if not (isinstance(self.init, str) and self.init == "k-means||"):
            given = problem.start()
            return start(lambda _: list(given[:, None]), lambda: given)
        if is_large(k, rows.n_features):
            count = n_candidates(rows, k, self.oversampling_factor, self.init_rounds)
            return start(
                lambda sample: _alone(large_starts(sample, k, seeds, survey.mean, count)),
                problem.start,
            )
        drawn = draw_candidates(
            rows,
            survey,
            k,
            seeds,
            oversampling_factor=self.oversampling_factor,
            init_rounds=self.init_rounds,
            shift=problem.shift,
            missing=problem.missing,
        )

        def tries(sample: Sample) -> list[Floats] | None:
            found = [
                greedy_tries(sample, points, k, seed, survey.mean)
                for points, seed in zip(drawn.points, seeds, strict=True)
            ]
            return None if any(f is None for f in found) else [f for f in found if f is not None]

        return start(tries, lambda: drawn.clustered(k).centers)


def _alone(starts: list[Floats] | None) -> list[Floats] | None:
    """Return starts as tries, one of each restart."""
    return None if starts is None else [start[None] for start in starts]


def _in_space(survey: Any, metric: Metric) -> Any:
    """Return the survey with the rows that it drew in the metric's space."""
    if not isinstance(metric, Whitened):
        return survey
    return replace(survey, picks=_whitened_picks(survey.picks, metric))


def _whitened_picks(picks: NDArray[Any], metric: Whitened) -> NDArray[Any]:
    """Rows that were drawn, in the whitened space."""
    p, q = metric.forward.shape
    white = np.zeros(picks.shape, dtype=[("key", float), ("row", int), ("x", float, (q,))])
    white["key"], white["row"] = picks["key"], picks["row"]
    white["x"] = metric(picks["x"].reshape(-1, p)).reshape(white["x"].shape)
    return white

"""K-means on blocks of rows, and on batches of a stream."""

from __future__ import annotations

import time
from copy import copy
from dataclasses import replace
from typing import Any, ClassVar, Literal, Self, get_args

import numpy as np
from sklearn.utils.metaestimators import available_if

from daskclust.cluster.lloyd import LloydClusterer, LloydProblem
from daskclust.core.array_types import Floats
from daskclust.core.engine import map_rows, open_rows, working_dtype
from daskclust.core.estimator.fit_loop import FirstPass, OpenData, draw_seeds
from daskclust.core.estimator.parameters import (
    CENTERS,
    COUNT,
    MISSING,
    POSITIVE,
    RESTARTS,
    Constraints,
    StrOptions,
)
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
    check_rows,
    check_survey,
    check_weight,
    forget_range,
    is_partial,
    weights_for,
)
from daskclust.core.initialization.methods import (
    DETERMINISTIC_INITS,
    STRING_INITS,
    n_survey_picks,
)
from daskclust.core.initialization.problem import Initialization
from daskclust.core.initialization.samples import is_complete
from daskclust.core.initialization.steps import MOMENTUM
from daskclust.core.reduction import SURVEY, SurveyRequest


def can_follow(model: Any) -> bool:
    """Return True if the parameters support `partial_fit`, else raise AttributeError."""
    if model.metric != "euclidean":
        raise AttributeError(
            'partial_fit requires metric="euclidean", because its centers are means of unscaled '
            f'rows; got metric={model.metric!r}. Scale the rows, and use metric="euclidean".'
        )
    if is_partial(model):
        raise AttributeError(
            'partial_fit requires missing="error", because it stores one weight per center and not '
            'one per feature; got missing="partial". Use complete rows, or use fit.'
        )
    return True


def fit_first_batch(model: Any, X: Any, sample_weight: Any, **params: Any) -> None:
    """Fit a model to its first batch, with other parameters `params` during this fit only."""
    initial = copy(model)
    vars(initial).update(params)
    initial.fit(X, sample_weight=sample_weight)
    params_of_model = model.get_params(deep=False)
    vars(model).update(
        {name: value for name, value in vars(initial).items() if name not in params_of_model}
    )


def check_batch(model: Any, X: Any, sample_weight: Any) -> tuple[Any, Any, int]:
    """Check a later batch; return its rows, its weights and the number of passes."""
    # Parameters may have changed after the fit, so check the fitted attributes.
    if not model._metric.is_identity or hasattr(model, "observed_coordinates_"):
        raise ValueError(
            'partial_fit requires a model that was fitted with metric="euclidean" and '
            'missing="error". Fit the model again.'
        )
    sample_weight = weights_for(X, sample_weight)
    X = check_rows(model, X, reset=False)
    if sample_weight is not None:
        request = SurveyRequest(X.shape[1])
        check_survey(open_rows(X, check_weight(sample_weight, X)).reduce(SURVEY, request))
    return X, sample_weight, int(sample_weight is not None)


def batch_record(
    model: Any, inertia: float, shifts: Floats, start_time: float, passes: int
) -> dict[str, Any]:
    """Return the record of a batch for ``history_``."""
    return {
        "iteration": model.n_iter_ + 1,
        "objective": inertia,
        "center_shift": float(np.sqrt((shifts**2).sum())),
        "moved": None,
        "seconds": time.perf_counter() - start_time,
        "passes": model.history_[-1]["passes"] + passes,
    }


Algorithm = Literal["auto", "lloyd", "nested"]
MetricName = Literal["euclidean", "cosine", "mahalanobis"]
_ANGULAR = {"cosine": UnitSphere()}


class KMeans(LloydClusterer):
    """K-means clustering of data of any size, by Lloyd's algorithm.

    Use it when all features matter, the clusters are compact, and you can choose their number.
    For 1000 clusters or more, :class:`HierarchicalKMeans` is faster.  If some rows have labels, use
    :class:`SemiSupervisedKMeans`; if most features are uninformative, :class:`SparseKMeans`.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of clusters k.
    init : {"k-means||", "k-means++", "random", "maximin", "dkm++", "robin"}, \
array of shape (k, p), fitted model or callable, default="k-means||"
        Initialization of the centers:

        - ``"k-means||"``: k-means on a growing sample of the rows [2]_ [7]_.
        - ``"k-means++"``: rows drawn with probability proportional to ``w D^2`` [1]_.
        - ``"random"``: rows drawn at random.
        - ``"maximin"`` [3]_, ``"dkm++"`` [4]_, ``"robin"`` [5]_: rows that are far apart, without
          random numbers.
        - an array, a fitted model, or a callable ``init(X, n_clusters, random_state)``.
    n_init : int or "auto", default="auto"
        Number of restarts.  ``"auto"`` is 10 for ``init="random"`` and callables, else 1.
    max_iter : int, default=300
        Maximum number of iterations.
    tol : float, default=1e-4
        Convergence tolerance: maximum squared shift of the centers in an iteration, relative to the
        mean variance of the features.
    oversampling_factor : float, default=2.0
        Candidates per round of ``"k-means||"``, as a multiple of ``n_clusters``.
    init_rounds : int, default=5
        Minimum number of rounds of ``"k-means||"``.
    algorithm : {"auto", "lloyd", "nested"}, default="auto"
        Iterations of the fit:

        - ``"lloyd"``: plain iterations on all rows.
        - ``"nested"``: iterations on a growing sample, then on all rows with momentum.
        - ``"auto"``: ``"nested"`` for ``init="k-means||"`` and many rows, else ``"lloyd"``.
    metric : {"euclidean", "cosine", "mahalanobis"}, default="euclidean"
        Distance of rows and centers:

        - ``"euclidean"``: Euclidean distance.
        - ``"cosine"``: Euclidean distance of rows and centers scaled to length 1.  Rows of zeros
          are ignored.
        - ``"mahalanobis"``: Euclidean distance of rows whitened by the covariance of the data.
    missing : {"error", "partial"}, default="error"
        Treatment of NaN in X:

        - ``"error"``: NaN raises an error.
        - ``"partial"``: NaN is a missing value, and is not imputed [6]_.
    random_state : int, RandomState, Generator or None, default=None
        An int gives the same result for any chunks, scheduler and number of workers.
    checkpoint : path-like, default=None
        File with the newest state of the fit.  A fit with the same data, parameters (``max_iter``
        may differ) and version of daskclust resumes from it and gives the same model.

    Attributes
    ----------
    cluster_centers_ : ndarray of shape (k, p), float64
        Centers, in the units of the data.
    observed_coordinates_ : ndarray of shape (k, p), bool
        True if a row of the cluster has a value of the feature.  Only with ``missing="partial"``.
    labels_ : ndarray or dask.array.Array of shape (n,), int32
        Nearest center of each row.  Lazy, with the chunks of X, for Dask input.
    inertia_ : float
        Weighted sum of squared distances of the rows to their centers, in the metric.
    n_iter_ : int
        Iterations of the selected restart over all rows.
    counts_ : ndarray of shape (k,), float64
        Total weight of the rows of each cluster.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (p,)
        Names of the columns, if X has names.
    history_ : list of dict
        One record per iteration, see Notes.

    Raises
    ------
    ValueError, CheckpointError
        For invalid data or parameters, and for a damaged checkpoint or the checkpoint of another
        fit.

    See Also
    --------
    HierarchicalKMeans : A thousand to a million clusters.
    SemiSupervisedKMeans : K-means with partial labels.
    SparseKMeans : K-means that selects features.

    Notes
    -----
    X may be a SciPy CSR matrix or a Dask array of such blocks.  The user guide ("k-means")
    describes sparse rows, options, records, warnings, passes, memory and precision.

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

    _parameter_constraints: ClassVar[Constraints] = {
        **RESTARTS,
        "init": [*CENTERS, StrOptions(*STRING_INITS)],
        "oversampling_factor": [POSITIVE],
        "init_rounds": [COUNT],
        "algorithm": [StrOptions(*get_args(Algorithm))],
        "metric": [StrOptions(*get_args(MetricName))],
        "missing": [MISSING],
    }

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

    def _first_pass(self, data: Data, read: None) -> FirstPass:
        # Restarts of a deterministic initialization are equal.
        init, n_restarts = self.init, 1
        if callable(init) or (isinstance(init, str) and init not in DETERMINISTIC_INITS):
            auto = 10 if callable(init) or init == "random" else 1
            n_restarts = auto if self.n_init == "auto" else int(self.n_init)
        n_picks = n_survey_picks(init, self.n_clusters, data.X.shape[0])
        return FirstPass(
            draw_seeds(self.random_state, n_restarts),
            # The fallback of a collapsed fit, k-means||, begins at one drawn row.
            max(1, n_picks) if isinstance(init, str) else n_picks,
            transform=_ANGULAR.get(self.metric),
        )

    def _problem(self, data: OpenData, read: None) -> LloydProblem:
        metric: Metric = _ANGULAR.get(self.metric, EUCLIDEAN)
        tolerance = float(self.tol * data.survey.variance.mean())
        if self.metric == "mahalanobis":
            data, metric = _whitened(data)
            # Whitened features have variance 1.
            tolerance = float(self.tol)
        initialization = Initialization(
            data,
            self.n_clusters,
            self.init,
            oversampling_factor=self.oversampling_factor,
            init_rounds=self.init_rounds,
            metric=metric,
            tolerance=tolerance,
            on_sample=self.algorithm == "nested",
        )
        is_named = isinstance(self.init, str)
        is_parallel = is_named and self.init == "k-means||"
        is_sampled = is_parallel and not is_complete(data.rows, self.n_clusters)
        is_nested = self.algorithm == "nested" or (self.algorithm == "auto" and is_sampled)
        return LloydProblem(
            data.rows,
            initialization,
            int(self.max_iter),
            tolerance,
            momentum=MOMENTUM if is_nested else 0.0,
            fallback=initialization.fallback() if is_named and not is_parallel else None,
        )

    @available_if(can_follow)
    def partial_fit(self, X: Any, y: Any = None, *, sample_weight: Any = None) -> Self:
        """Update the centers with one batch of rows, for example of a stream.

        Each center becomes the mean of all rows that were assigned to it in any batch
        (``counts_`` is their weight), like scikit-learn's ``MiniBatchKMeans`` without reassignment
        (Sculley 2010).  A call is one batch for any chunks; for one batch per block, loop over
        ``X.blocks``.

        Parameters
        ----------
        X : array-like, sparse matrix, dask.array.Array, DataFrame or xarray.DataArray, (n, p)
            The batch.  The first batch must have at least ``n_clusters`` rows.  It initializes the
            centers like ``fit`` with one iteration.
        y : ignored
        sample_weight : array-like or dask.array.Array of shape (n,), optional
            Cubes also accept an image (y, x) and ``"area"``; see
            :meth:`daskclust.Cube.row_weights`.

        Returns
        -------
        self
            ``labels_`` are the labels of the batch for the new centers, ``inertia_`` is the inertia
            of the batch for the previous centers, ``n_iter_`` counts batches (and iterations of
            ``fit``), and ``history_`` has one more record.

        Raises
        ------
        ValueError
            For rows with another number of features, NaN or infinity, and invalid weights.
        AttributeError
            For a ``metric`` other than ``"euclidean"``, and for ``missing="partial"``.

        Notes
        -----
        One pass per batch; the first batch takes the passes of ``fit`` with one iteration.  A call
        that fails changes nothing.  ``checkpoint`` is for ``fit`` only; use :meth:`save` to store
        the state between batches.

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
            fit_first_batch(self, X, sample_weight, max_iter=1, checkpoint=None)
            self.inertia_ = self.history_[-1]["objective"]
            return self
        if not hasattr(self, "counts_"):
            raise ValueError(
                "counts_ is missing: the model was saved by a version that did not store the total "
                "weight of each cluster. partial_fit cannot update its centers. Fit the model "
                "again."
            )
        if len(self.counts_) != self.n_clusters:
            raise ValueError(
                f"n_clusters must be {len(self.counts_)}, the number of centers of the model, got "
                f"{self.n_clusters}. Set n_clusters={len(self.counts_)}, or fit the model again."
            )
        start_time = time.perf_counter()
        X, sample_weight, passes = check_batch(self, X, sample_weight)
        stats = self._assigned(X, sample_weight)
        # New centers are ``(counts c + sums) / (counts + weights)``; other centers do not change.
        batch_counts = stats.counts[0]
        counts = self.counts_ + batch_counts
        sums = self._centers * self.counts_[:, None] + stats.sums[0]
        centers = np.divide(
            sums, counts[:, None], out=self._centers.copy(), where=batch_counts[:, None] > 0
        )
        dtype = working_dtype(X.dtype)
        function = self._row_function(dtype).with_centers(centers, None)
        labels = map_rows(X, function, dtype=np.int32, name="predict")
        inertia = float(stats.inertia.sum())
        record = batch_record(self, inertia, centers - self._centers, start_time, passes + 1)
        forget_range(self)  # the range of the previous data
        self._centers, self.counts_, self.labels_ = centers, counts, labels
        self.cluster_centers_, self.inertia_ = centers.copy(), inertia
        self.n_iter_ += 1
        self.history_ = [*self.history_, record]
        return self


def _whitened(data: OpenData) -> tuple[OpenData, Whitened]:
    survey = data.survey
    covariance = data.rows.reduce(COVARIANCE, MeanState(survey.mean))
    metric = Whitened.from_covariance(survey.mean, covariance)
    picks, (p, q) = survey.picks, metric.forward.shape
    white_picks: Any = np.zeros(
        picks.shape, dtype=[("key", float), ("row", int), ("x", float, (q,))]
    )
    white_picks["key"], white_picks["row"] = picks["key"], picks["row"]
    white_picks["x"] = metric(picks["x"].reshape(-1, p)).reshape(white_picks["x"].shape)
    rows, survey = data.rows.transformed(metric), replace(survey, picks=white_picks)
    return replace(data, rows=rows, survey=survey), metric

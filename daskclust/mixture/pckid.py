"""Spectral clustering of incomplete data with the probabilistic cluster kernel (PCKID)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from numbers import Integral, Real
from typing import Any, ClassVar, Literal, Self

import numpy as np
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    ClusterMixin,
    TransformerMixin,
)
from sklearn.utils.validation import check_is_fitted

from daskclust.cluster.kmeans import KMeans
from daskclust.core.array_types import Array, Floats
from daskclust.core.engine import Fitted, as_matrix, is_dask, map_rows, pair_rows, working_dtype
from daskclust.core.estimator.base import map_new_rows
from daskclust.core.estimator.fit_loop import (
    FirstPass,
    FitPredict,
    OpenData,
    draw_seeds,
    fit,
    open_checkpoint,
)
from daskclust.core.estimator.parameters import (
    COMMON,
    COUNT,
    NOT_NEGATIVE,
    Constraints,
    Interval,
    StrOptions,
)
from daskclust.core.estimator.row_functions import CheckedRows, check_block
from daskclust.core.estimator.validation import (
    Data,
    check_output,
    check_rows,
)
from daskclust.core.kernels.nearest.assign import nearest
from daskclust.core.persistence.mixin import Saveable, check_count
from daskclust.core.persistence.schema import Array as Stored
from daskclust.core.persistence.schema import Covariances, Entry, Number, Plain
from daskclust.core.reduction import RowBlock
from daskclust.mixture._em import Floor
from daskclust.mixture._ensemble import (
    OVERSAMPLING,
    Member,
    Pool,
    Spectrum,
    SpectrumState,
    choose_solver,
    draw_pool,
    pool_basis,
    train_members,
)
from daskclust.mixture.densities import Mixtures
from daskclust.mixture.expectation import kernel_block, project
from daskclust.mixture.predict import MixtureFunction, observed_pass

#: Default of ``max_samples``: maximum number of rows that train a member.
MAX_SAMPLES = 10_000
#: Minimum fraction of the pool that trains a member, unless the pool is all rows.
MIN_POOL_SHARE = 0.1


class PCKID(
    FitPredict,
    Saveable,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
    ClusterMixin,
    BaseEstimator,
):
    """Spectral clustering of data with missing values (PCKID), for data of any size.

    Use it when many values are missing and clusters are not compact.  For compact clusters,
    :class:`KMeans` with ``missing="partial"`` or :class:`GaussianMixture` is much faster.  If some
    rows have labels, use :class:`LabelSpreading`.

    The fit trains an ensemble of Gaussian mixtures.  The kernel of two rows is the dot product of
    their posteriors, averaged over the ensemble (Eq. 6 of [1]_).  K-means clusters the rows in the
    leading coordinates of kernel PCA (Eq. 4).  NaN is a missing value.  Values are not imputed.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of clusters k.
    n_initializations : int, default=30
        Number of mixtures Q of each size.
    max_components : int, default=30
        Maximum number of components G: mixtures have 2, 3, ... G components.
    subsample : float, default=0.5
        Fraction of the rows that trains each member of the ensemble.
    max_samples : int or None, default=None
        Maximum number of rows that train a member; None means 10 000.  If the fraction
        ``subsample`` is more rows, the rows of all members are drawn from a pool of
        ``max_samples / subsample`` rows (at most 10 ``max_samples``).
    em_iter : int, default=10
        Number of EM iterations of each member.
    covariance_type : {"diag", "full"}, default="diag"
        Parameters of each component's covariance in the members:

        - ``"diag"``: a variance for each feature.
        - ``"full"``: a covariance matrix.
    n_init : int, default=100
        Number of restarts of k-means in the embedding.  They begin at random rows and share every
        pass.
    embedding_dim : int or None, default=None
        Number of coordinates d of the embedding; None means ``n_clusters``.
    max_iter : int, default=300
        Maximum number of iterations of k-means.
    tol : float, default=1e-4
        Tolerance of k-means in the embedding, as in :class:`KMeans`.
    random_state : int, RandomState, Generator or None, default=None
        An int gives the same result, up to rounding, for any chunks, scheduler and number of
        workers.
    checkpoint : path-like, default=None
        As in :class:`KMeans`.  It is written after the ensemble is trained and after each
        iteration.  A fit that resumes during k-means computes the embedding again, in one pass.

    Attributes
    ----------
    labels_ : ndarray or dask.array.Array of shape (n,), int32
        Cluster of each row.  Lazy for Dask input.
    embedding_ : ndarray or dask.array.Array of shape (n, d)
        Coordinates of kernel PCA, not centered (Eq. 4).  Lazy for Dask input.
    eigenvalues_ : ndarray of shape (d,), float64
        Largest eigenvalues of the kernel matrix.
    cluster_centers_ : ndarray of shape (k, d), float64
        Centers in the embedding.
    inertia_ : float
        Sum of squared distances of rows to their centers, in the embedding.
    n_iter_, n_features_in_ : int
    feature_names_in_ : ndarray of shape (p,)
    history_ : list of dict
        One record per iteration for eigenvectors (``stage`` is ``"spectrum"``), then for k-means.

    Raises
    ------
    ValueError, CheckpointError
        For infinity, too few rows with values, parameters out of range, or a damaged checkpoint.

    See Also
    --------
    GaussianMixture : A single mixture with missing values.
    SpectralClustering : Spectral clustering on a graph of prototypes.
    KMeans : Compact clusters; with ``missing="partial"`` also for missing values.

    Notes
    -----
    *Cost*: a few passes, and Q (G - 1) tasks that train the mixtures.  Time is linear in n after
    the training.  The user guide ("Mixtures and missing values") describes passes and memory.

    *Eigenvectors* are exact for few rows or few mixtures.  Otherwise, power iterations with QR and
    a Nystrom step approximate them ([2]_, [3]_).  ``history_`` contains the solver.

    References
    ----------
    .. [1] Løkse, S., Bianchi, F. M., Salberg, A.-B., Jenssen, R. (2017). Spectral
       clustering using PCKID: a probabilistic cluster kernel for incomplete data.
       SCIA.
    .. [2] Halko, N., Martinsson, P. G., Tropp, J. A. (2011). Finding structure with
       randomness. SIAM Review.
    .. [3] Tropp, J. A., Yurtsever, A., Udell, M., Cevher, V. (2017). Fixed-rank approximation
       of a positive-semidefinite matrix from streaming data. NeurIPS.

    Examples
    --------
    >>> import numpy as np
    >>> import daskclust
    >>> X, truth = daskclust.datasets.make_sparse_blobs(
    ...     100, n_clusters=2, n_informative=4, n_uninformative=0, random_state=0
    ... )
    >>> X = daskclust.datasets.remove_values(X, fraction=0.2, random_state=0)
    >>> model = daskclust.PCKID(2, n_initializations=3, max_components=5, random_state=0).fit(X)
    >>> model.embedding_.shape
    (100, 2)
    >>> float(model.kernel(X[:1], X[:1])[0, 0]) <= 1.0
    True
    """

    _saved_state: ClassVar[Mapping[str, Entry]] = {
        "cluster_centers_": Stored("k d"),
        "eigenvalues_": Stored("d", low=0.0),
        "inertia_": Number(low=0),
        "n_iter_": Number(int, low=0),
        "history_": Plain(list, records=True),
        "_weights": Stored("D", low=0.0),
        "_means": Stored("D p"),
        "_covariances": Covariances("D p | D p p", high=1e300),
        "_sizes": Stored("m", kind="i", low=1, total="D"),
        "_basis": Stored("D d"),
        "_shift": Stored("p"),
        "_single": Number(bool),
    }
    _of_rows: ClassVar[tuple[str, ...]] = ("labels_", "embedding_")
    _resumes_with: ClassVar[tuple[str, ...]] = ("max_iter",)

    _parameter_constraints: ClassVar[Constraints] = {
        "n_clusters": [COUNT],
        "n_initializations": [COUNT],
        "max_components": [Interval(Integral, 2)],
        "subsample": [Interval(Real, 0, 1, closed="right")],
        "max_samples": [COUNT, None],
        "em_iter": [Interval(Integral, 0)],
        "covariance_type": [StrOptions("diag", "full")],
        "n_init": [COUNT],
        "embedding_dim": [COUNT, None],
        "max_iter": [COUNT],
        "tol": [NOT_NEGATIVE],
        **COMMON,
    }
    #: Minimum variance of a member, as a fraction of the column's variance.
    _min_variance: ClassVar[float] = 1e-3
    #: Solver for the eigenvectors: an element of :data:`SOLVERS`.
    _solver: ClassVar[str] = "auto"
    #: Maximum number of power iterations of the solver ``"randomized"``.
    _power_iterations: ClassVar[int] = 4

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        n_initializations: int = 30,
        max_components: int = 30,
        subsample: float = 0.5,
        max_samples: Any = None,
        em_iter: int = 10,
        covariance_type: Literal["full", "diag"] = "diag",
        n_init: int = 100,
        embedding_dim: Any = None,
        max_iter: int = 300,
        tol: float = 1e-4,
        random_state: Any = None,
        checkpoint: Any = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.n_initializations = n_initializations
        self.max_components = max_components
        self.subsample = subsample
        self.max_samples = max_samples
        self.em_iter = em_iter
        self.covariance_type = covariance_type
        self.n_init = n_init
        self.embedding_dim = embedding_dim
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state
        self.checkpoint = checkpoint

    def fit(self, X: Any, y: Any = None) -> Self:
        """Train the ensemble, embed the rows and cluster them.

        Parameters
        ----------
        X : array-like, dask.array.Array, DataFrame or xarray.DataArray of shape (n, p)
            Rows; NaN where a value is missing.
        y : ignored

        Returns
        -------
        self
        """
        return fit(self, X)

    def _check_sizes(self) -> None:
        check_count(self, "n_clusters", len(self.cluster_centers_))
        sizes = self._sizes
        max_members = int(self.n_initializations) * (int(self.max_components) - 1)
        if len(sizes) > max_members or sizes.max() > self.max_components:
            raise ValueError(
                f"n_initializations={self.n_initializations} and "
                f"max_components={self.max_components} allow {max_members} mixtures, got "
                f"{len(sizes)} mixtures of up to {sizes.max()} components"
            )

    def _read(self, data: Data) -> tuple[int, ...]:
        """Draw seeds for the members, the pool, the basis and k-means."""
        n_members = self.n_initializations * (self.max_components - 1)
        return draw_seeds(self.random_state, n_members + 3)

    def _first_pass(self, data: Data, read: tuple[int, ...]) -> FirstPass:
        return observed_pass(self.n_clusters, "n_clusters")

    def _problem(self, data: OpenData, read: tuple[int, ...]) -> Spectrum:
        rows = data.rows
        n_features = self.n_initializations * (
            self.max_components * (self.max_components + 1) // 2 - 1
        )
        n_vectors = self.n_clusters if self.embedding_dim is None else self.embedding_dim
        n_vectors = min(n_vectors, n_features, rows.n_rows)
        width = min(n_vectors + OVERSAMPLING, n_features)
        solver = self._solver
        if solver == "auto":
            stored = rows.can_keep(4 * n_features)
            solver = choose_solver(
                rows.n_rows, n_features, rows.n_features, width, self._power_iterations, stored
            )
        *seeds, pool_seed, basis_seed, kmeans_seed = read

        def initial_state() -> SpectrumState:
            ensemble, pool = self._train(data, seeds, pool_seed)
            basis = np.eye(n_features, width)
            if solver == "randomized":
                shift = data.survey.mean
                basis = pool_basis(pool.x, ensemble, shift, n_vectors, width, basis_seed)
            return SpectrumState(
                **ensemble.arrays,
                sizes=np.array(ensemble.sizes, dtype=np.int64),
                basis=basis,
                values=np.zeros(width),
                n_iter=0,
            )

        return Spectrum(
            rows,
            data.survey.mean,
            solver,
            n_vectors,
            self._power_iterations,
            initial_state,
            kmeans_seed,
        )

    def _train(self, data: OpenData, seeds: list[int], pool_seed: int) -> tuple[Mixtures, Pool]:
        # Densities are inaccurate for smaller variances.
        floor = Floor.of(0.0, data.survey.variance, min_fraction=max(self._min_variance, 1e-9))
        n = data.rows.n_rows
        limit = MAX_SAMPLES if self.max_samples is None else self.max_samples
        pool_share = max(self.subsample, MIN_POOL_SHARE)
        n_pool = min(n, int(np.ceil(limit / pool_share)))
        pool = draw_pool(data.rows, n_pool, pool_seed, data.survey.mean, floor)
        share = min(pool_share, self.subsample * (n / n_pool))
        n_member = min(limit, int(np.ceil(share * len(pool.x))))
        if n_member < self.max_components:
            raise ValueError(
                f"n_samples must be at least max_components={self.max_components}, got n_samples="
                f"{n_member} rows that train a member (subsample={self.subsample} of {len(pool.x)} "
                f"rows with any value, max_samples={self.max_samples}). Lower max_components, or "
                "raise subsample or max_samples."
            )
        sizes = list(range(2, self.max_components + 1)) * self.n_initializations
        full = self.covariance_type == "full"
        members = [
            Member(size, seed, n_member, self.em_iter, full)
            for size, seed in zip(sizes, seeds, strict=True)
        ]
        return train_members(data.X, data.rows, pool, members), pool

    def _finish(
        self, data: OpenData, problem: Spectrum, state: SpectrumState, history: list[dict[str, Any]]
    ) -> None:
        self._weights, self._means = state.weights, state.means
        self._covariances, self._sizes = state.covariances, state.sizes
        self._shift = problem.shift
        self._basis = state.basis / np.sqrt(len(state.sizes))
        self._single = problem.dtype == np.float32
        self.eigenvalues_ = state.values
        embed = CheckedRows(self._embedding(), working_dtype(data.X.dtype), missing=True)
        if is_dask(data.X):
            # K-means persists the blocks that it reads, and `embedding_` stays lazy.
            self.embedding_ = map_rows(
                data.X,
                embed,
                dtype=embed.dtype,
                n_columns=len(state.values),
                lengths=data.rows.lengths,
                like=data.rows,
                name="embedding",
            )
        else:
            self.embedding_ = data.rows.map("embedding", partial(_apply_to_block, function=embed))
        checkpoint = self.checkpoint
        if checkpoint is not None:
            finished_fit = Fitted(state, history, True, history[-1]["passes"])
            checkpoint = open_checkpoint(self, data, problem.identity).following(finished_fit)
        kmeans = KMeans(
            self.n_clusters,
            init="random",
            n_init=self.n_init,
            max_iter=self.max_iter,
            tol=self.tol,
            random_state=problem.kmeans_seed,
            checkpoint=checkpoint,
        ).fit(Data(self.embedding_, has_units=False))
        self.cluster_centers_ = kmeans.cluster_centers_
        self.inertia_ = kmeans.inertia_
        self.n_iter_ = kmeans.n_iter_
        self.labels_ = kmeans.labels_
        # The embedding takes one pass.
        passes = history[-1]["passes"] + 1
        self.history_ = history + [
            {**record, "stage": "k-means", "passes": passes + record["passes"]}
            for record in kmeans.history_
        ]

    @property
    def ensemble_(self) -> Mixtures:
        """All models of the ensemble."""
        sizes = tuple(self._sizes.tolist())
        return Mixtures(self._weights, self._means, self._covariances, sizes)

    @property
    def basis_(self) -> Floats:
        """Matrix that maps the posteriors of all models to coordinates, (D, d)."""
        return self._basis

    def _embedding(self, centers: Floats | None = None) -> Embedding:
        dtype = np.dtype(np.float32 if self._single else np.float64)
        return Embedding(self.ensemble_, self._shift, self._basis, dtype, centers)

    def transform(self, X: Any) -> Any:
        """Return the coordinates of rows, also of new rows, in the embedding.

        Parameters
        ----------
        X : array-like or dask.array.Array of shape (n_samples, n_features)
            NaN where a value is missing.

        Returns
        -------
        ndarray or dask.array.Array of shape (n_samples, d)
            float32 for float32 input, else float64.  Lazy for a Dask array.
        """
        check_is_fitted(self)
        check_output(self, X)
        n_columns = self._n_features_out
        embed = self._embedding()
        return map_new_rows(self, X, embed, "transform", missing=True, n_columns=n_columns)

    def fit_transform(self, X: Any, y: Any = None, **params: Any) -> Any:
        """Fit and return ``embedding_``.

        Parameters
        ----------
        X, y
            As for ``fit``.

        Returns
        -------
        ndarray or dask.array.Array of shape (n_samples, d)
        """
        check_output(self, X)
        return self.fit(X, y, **params).embedding_

    def predict(self, X: Any) -> Any:
        """Return the nearest center of each row, also of new rows, in the embedding.

        Parameters
        ----------
        X : array-like or dask.array.Array of shape (n_samples, n_features)
            NaN where a value is missing.

        Returns
        -------
        labels : ndarray or dask.array.Array of shape (n_samples,), int32
            Lazy, with the chunks of X, for a Dask array.
        """
        check_is_fitted(self)
        nearest_center = self._embedding(self.cluster_centers_)
        return map_new_rows(self, X, nearest_center, "predict", np.int32, missing=True)

    def score_samples(self, X: Any) -> Any:
        """Return the log-likelihood of each row's observed values, averaged over the ensemble.

        Parameters
        ----------
        X : array-like or dask.array.Array of shape (n_samples, n_features)
            NaN where a value is missing.

        Returns
        -------
        ndarray or dask.array.Array of shape (n_samples,), float64
            Lazy, with the chunks of X, for a Dask array.
        """
        check_is_fitted(self)
        likelihood = MixtureFunction(self.ensemble_, self._shift, "likelihood")
        return map_new_rows(self, X, likelihood, "score_samples", np.float64, missing=True)

    def kernel(self, X: Any, Y: Any = None) -> Any:
        """Return the kernel between rows (Eq. 6), in [0, 1].

        Parameters
        ----------
        X : array-like or dask.array.Array of shape (n, n_features)
        Y : array-like or dask.array.Array of shape (m, n_features), optional
            Default: X.

        Returns
        -------
        ndarray or dask.array.Array of shape (n, m), float64
            Lazy for Dask input, with one block for each pair of input blocks.
        """
        check_is_fitted(self)
        X = check_rows(self, X, reset=False)
        Y = X if Y is None else check_rows(self, Y, reset=False)
        return pair_rows(X, Y, Kernel(self.ensemble_, self._shift))

    @property
    def _n_features_out(self) -> int:
        return int(self._basis.shape[1])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


@dataclass(frozen=True)
class Embedding:
    """Function that returns coordinates or clusters of the rows of a block.

    ``basis`` (D, d) are eigenvectors divided by the square root of the number of models.  ``dtype``
    is the type of the posteriors.  With ``centers``, the result is the nearest center.
    """

    mixtures: Mixtures
    shift: Floats
    basis: Floats
    dtype: Any
    centers: Floats | None = None

    def __call__(self, x: Array) -> Array:
        """Return one result per row; coordinates have the dtype of the rows."""
        coordinates = project(x, self.mixtures, self.shift, self.basis, self.dtype)
        coordinates = coordinates.astype(x.dtype, copy=False)
        return coordinates if self.centers is None else nearest(coordinates, self.centers)[0]


def _apply_to_block(rows: RowBlock, function: CheckedRows) -> Array:
    return function(rows.x, rows.runs[0][0])


@dataclass(frozen=True)
class Kernel:
    """Function that returns the kernel between the rows of two blocks."""

    mixtures: Mixtures
    shift: Floats

    def __call__(self, x: Array, y: Array) -> Floats:
        """Return the kernel between all pairs of rows."""
        blocks = [as_matrix(rows, np.dtype(np.float64)) for rows in (x, y)]
        for rows in blocks:
            check_block(rows, 0, missing=True)
        return kernel_block(blocks[0], blocks[1], self.mixtures, self.shift)

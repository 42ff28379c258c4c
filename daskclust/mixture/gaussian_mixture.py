"""Gaussian mixtures for complete and incomplete data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Literal, Self

import numpy as np
from sklearn.base import BaseEstimator, DensityMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from daskclust.cluster.lloyd import LloydProblem
from daskclust.core.array_types import Array, Floats, Ints
from daskclust.core.engine import Rows, open_rows
from daskclust.core.estimator.base import map_new_rows
from daskclust.core.estimator.fit_loop import (
    FirstPass,
    FitPredict,
    OpenData,
    best_restart,
    draw_seeds,
    fit,
    iterate,
    row_labels,
)
from daskclust.core.estimator.parameters import (
    COMMON,
    COUNT,
    FLAG,
    NOT_NEGATIVE,
    Constraints,
    StrOptions,
)
from daskclust.core.estimator.row_functions import CheckedRows, infinite_message
from daskclust.core.estimator.validation import (
    Data,
    check_enough_rows,
    check_integer,
    check_rows,
    fetched,
    without_mask,
)
from daskclust.core.initialization.centers import initial_centers
from daskclust.core.initialization.problem import Initialization
from daskclust.core.persistence.mixin import Saveable, check_count
from daskclust.core.persistence.schema import Array as Stored
from daskclust.core.persistence.schema import Covariances, Entry, Number, Plain
from daskclust.core.reduction.survey import PARTIAL_SURVEY, SurveyRequest
from daskclust.core.warn import warn
from daskclust.mixture._em import EMProblem, EMState, Floor, maximize_initial
from daskclust.mixture.densities import Mixtures, stack_models
from daskclust.mixture.predict import MixtureFunction, observed_pass
from daskclust.mixture.reductions import INITIAL_SUMS, LIKELIHOOD, InitialPosteriors, MixtureStack

#: Parameters of k-means for ``"kmeans"``, see :class:`daskclust.KMeans`.
_MAX_ITER, _TOL = 300, 1e-4


class GaussianMixture(FitPredict, Saveable, DensityMixin, BaseEstimator):
    """Gaussian mixture with missing values, fitted by EM, for data of any size.

    Use it when clusters have different shapes, when they overlap, or when values are missing.  For
    compact clusters of complete rows, :class:`KMeans` is faster.  NaN is a missing value: the fit
    uses the observed values of each row (Algorithm 1 of [1]_, after [2]_).

    Parameters
    ----------
    n_components : int, default=1
        Number of components K.
    covariance_type : {"full", "diag"}, default="full"
        Parameters of each component's covariance:

        - ``"full"``: a covariance matrix.
        - ``"diag"``: a variance for each feature.
    tol : float, default=1e-3
        Convergence tolerance: a restart ends when its mean log-likelihood per row changes by less
        than ``tol`` in an iteration.
    reg_covar : float, default=1e-6
        Value added to every variance.
    max_iter : int, default=100
        Maximum number of EM iterations.
    n_init : int, default=1
        Number of restarts, which share every pass.  The restart with the largest likelihood is
        selected.
    init_params : {"kmeans", "k-means++", "random", "random_from_data"}, default="kmeans"
        Initialization of the posteriors:

        - ``"kmeans"``: the clusters of :class:`KMeans`.
        - ``"k-means++"``: the nearest of K rows drawn by k-means++.
        - ``"random_from_data"``: the nearest of K rows drawn at random.
        - ``"random"``: random posteriors.

        For distances, column means replace missing values.
    weights_init : array-like of shape (K,), default=None
        Initial weights.
    means_init : array-like of shape (K, p), default=None
        Initial means.
    precisions_init : array-like of shape (K, p) or (K, p, p), default=None
        Initial precisions (inverses of covariances).
    random_state : int, RandomState, Generator or None, default=None
        An int gives the same result, up to rounding, for any chunks, scheduler and number of
        workers.
    warm_start : bool, default=False
        If True, the parameters of the last fit initialize the next fit.
    checkpoint : path-like, default=None
        As in :class:`KMeans`.

    Attributes
    ----------
    weights_, means_ : ndarray of shape (K,) and (K, p), float64
        Weights and means of the components.
    covariances_, precisions_, precisions_cholesky_ : ndarray of shape (K, p) or (K, p, p), float64
        Variances or covariance matrices, their inverses, and Cholesky factors of the inverses.
    converged_ : bool
        True if the selected restart converged.
    lower_bound_ : float
        Mean log-likelihood per row, before the last update of the parameters.
    labels_ : ndarray or dask.array.Array of shape (n,), int32
        Component with the largest posterior.  Lazy for Dask input.
    n_iter_, n_features_in_ : int
    feature_names_in_ : ndarray
    history_ : list of dict
        One record per iteration.  ``objective`` is the largest mean log-likelihood of the restarts.

    Raises
    ------
    ValueError, CheckpointError
        For infinity, too few rows with values, parameters out of range, or a damaged checkpoint.

    See Also
    --------
    KMeans : Compact clusters; with ``missing="partial"`` also for missing values.
    PCKID : Spectral clustering of data with missing values.
    daskclust.selection.choose_n_clusters : Choose the number of components.

    Notes
    -----
    *Cost*: 1 pass per iteration, O(K p) or O(K p^2) work per row.  The user guide ("Mixtures and
    missing values") describes assumptions, lower bounds of variances, and memory.

    References
    ----------
    .. [1] Løkse, S., Bianchi, F. M., Salberg, A.-B., Jenssen, R. (2017). Spectral
       clustering using PCKID: a probabilistic cluster kernel for incomplete data.
       SCIA.
    .. [2] Ghahramani, Z., Jordan, M. (1994). Supervised learning from incomplete
       data via an EM approach. NIPS.

    Examples
    --------
    Two clusters with missing values, which are then imputed:

    >>> import numpy as np
    >>> import daskclust
    >>> X = np.array([[0.0, 0.1], [0.2, np.nan], [np.nan, 0.0], [9.0, 9.1], [9.2, 9.0]])
    >>> model = daskclust.GaussianMixture(2, covariance_type="diag", random_state=0).fit(X)
    >>> model.labels_[0] == model.labels_[1], model.labels_[0] == model.labels_[3]
    (np.True_, np.False_)
    >>> model.impute(X)[2].round(3)
    array([0.1, 0. ])
    """

    _saved_state: ClassVar[Mapping[str, Entry]] = {
        "weights_": Stored("k", low=0.0),
        "means_": Stored("k p"),
        "covariances_": Covariances("k p | k p p", high=1e300),
        "converged_": Number(bool),
        "lower_bound_": Number(),
        "n_iter_": Number(int, low=0),
        "history_": Plain(list, records=True),
        "_shift": Stored("p"),
    }
    _resumes_with: ClassVar[tuple[str, ...]] = ("max_iter", "warm_start")

    _parameter_constraints: ClassVar[Constraints] = {
        "n_components": [COUNT],
        "covariance_type": [StrOptions("full", "diag")],
        "tol": [NOT_NEGATIVE],
        "reg_covar": [NOT_NEGATIVE],
        "max_iter": [COUNT],
        "n_init": [COUNT],
        "init_params": [StrOptions("kmeans", "k-means++", "random", "random_from_data")],
        "weights_init": ["array-like", None],
        "means_init": ["array-like", None],
        "precisions_init": ["array-like", None],
        "warm_start": [FLAG],
        **COMMON,
    }

    def __init__(
        self,
        n_components: int = 1,
        *,
        covariance_type: Literal["full", "diag"] = "full",
        tol: float = 1e-3,
        reg_covar: float = 1e-6,
        max_iter: int = 100,
        n_init: int = 1,
        init_params: Literal["kmeans", "k-means++", "random", "random_from_data"] = "kmeans",
        weights_init: Any = None,
        means_init: Any = None,
        precisions_init: Any = None,
        random_state: Any = None,
        warm_start: bool = False,
        checkpoint: Any = None,
    ) -> None:
        self.n_components = n_components
        self.covariance_type = covariance_type
        self.tol = tol
        self.reg_covar = reg_covar
        self.max_iter = max_iter
        self.n_init = n_init
        self.init_params = init_params
        self.weights_init = weights_init
        self.means_init = means_init
        self.precisions_init = precisions_init
        self.random_state = random_state
        self.warm_start = warm_start
        self.checkpoint = checkpoint

    def _check_sizes(self) -> None:
        check_count(self, "n_components", len(self.weights_), "components")
        if (self.covariance_type == "full") != (self.covariances_.ndim == 3):
            raise ValueError(
                f"covariance_type={self.covariance_type!r} does not match covariances_ of shape "
                f"{self.covariances_.shape}"
            )
        if not abs(float(self.weights_.sum()) - 1.0) <= 1e-6:
            raise ValueError(f"weights_ must sum to 1, got a sum of {self.weights_.sum()}")

    def fit(self, X: Any, y: Any = None, *, sample_weight: Any = None) -> Self:
        """Estimate the parameters.

        Parameters
        ----------
        X : array-like, dask.array.Array, DataFrame or xarray.DataArray of shape (n, p)
            Rows; NaN where a value is missing.
        y : ignored
        sample_weight : array-like or dask.array.Array of shape (n,), optional
            Weights of the rows.  An integer weight is equivalent to repeating the row, and 0 to
            leaving it out.
            Cubes also accept an image (y, x) and ``"area"``; see
            :meth:`daskclust.Cube.row_weights`.

        Returns
        -------
        self
        """
        return fit(self, X, sample_weight)

    @property
    def _is_warm(self) -> bool:
        return bool(self.warm_start) and hasattr(self, "converged_")

    def _fixed_parameters(self, n_features: int) -> dict[str, Floats]:
        """Return the initial parameters that the user set, or the parameters of the last fit."""
        k, p, full = self.n_components, n_features, self.covariance_type == "full"
        shape = (k, p, p) if full else (k, p)
        parameters = {}
        if self.weights_init is not None:
            weights = _array(self.weights_init, "weights_init", (k,))
            if (weights < 0).any() or not np.isclose(weights.sum(), 1.0):
                raise ValueError(
                    f"weights_init must be nonnegative and sum to 1, got {weights.tolist()}."
                )
            parameters["weights"] = weights
        if self.means_init is not None:
            parameters["means"] = _array(self.means_init, "means_init", (k, p))
        if self.precisions_init is not None:
            precisions = _array(self.precisions_init, "precisions_init", shape)
            parameters["covariances"] = _covariances(precisions, full)
        if not self._is_warm:
            return parameters
        if self.covariances_.shape != shape:
            raise ValueError(
                f"The covariances of the last fit must have shape {shape} for warm_start=True, "
                f"n_components={k}, covariance_type={self.covariance_type!r} and {p} features, got "
                f"{self.covariances_.shape}. Use warm_start=False, or the parameters of the last "
                "fit."
            )
        return dict(self._mixtures().arrays)

    def _check_features(self, n_features: int) -> None:
        self._fixed_parameters(n_features)

    def _read(self, data: Data) -> dict[str, Floats]:
        check_enough_rows(data, self.n_components, "components")
        return self._fixed_parameters(data.X.shape[1])

    def _first_pass(self, data: Data, read: dict[str, Floats]) -> FirstPass:
        k, complete = self.n_components, len(read) == 3
        n_picks = {"random": 0, "random_from_data": k}.get(self.init_params, 1)
        return observed_pass(
            k,
            "n_components",
            # If all parameters are set, all restarts would be equal.
            seeds=draw_seeds(self.random_state, 1 if complete else self.n_init),
            n_picks=0 if complete else n_picks,
        )

    def _problem(self, data: OpenData, read: dict[str, Floats]) -> EMProblem:
        floor = Floor.of(self.reg_covar, data.survey.variance)
        return EMProblem(
            data.rows,
            partial(self._initial_state, data, floor, read),
            int(self.max_iter),
            data.survey.mean,
            floor,
            float(self.tol),
            read if self._is_warm else {},
        )

    def _initial_state(self, data: OpenData, floor: Floor, fixed: Mapping[str, Floats]) -> EMState:
        """Compute the initial parameters of all restarts.

        ``fixed`` contains parameters that are set already.  If it has weights, means and
        covariances, no pass is needed.  Otherwise, the passes for initial centers are followed by
        one pass.
        """
        r, k, p = len(data.seeds), self.n_components, data.rows.n_features
        full, mean = self.covariance_type == "full", data.survey.mean
        parameters: dict[str, Floats] = {}
        if len(fixed) < 3:
            random = self.init_params == "random"
            no_centers = np.broadcast_to(mean, (r, k, p)).copy()
            centers = no_centers if random else _centers(data, self.init_params, k)
            state = InitialPosteriors(centers, mean, full, data.seeds if random else ())
            sums = data.rows.reduce(INITIAL_SUMS, state)
            origin = centers if full else np.broadcast_to(mean, centers.shape)
            models = [
                maximize_initial(sums[i], origin[i], mean, floor, full=full) for i in range(r)
            ]
            stacked = stack_models(models).arrays
            parameters = {name: a.reshape(r, k, *a.shape[1:]) for name, a in stacked.items()}
        for name, value in fixed.items():
            parameters[name] = np.broadcast_to(value, (r, *value.shape)).copy()
        return EMState.begin(**parameters)

    def _finish(
        self, data: OpenData, problem: EMProblem, state: EMState, history: list[dict[str, Any]]
    ) -> None:
        best = best_restart(-state.bound, at_least=1.0)
        self.weights_ = state.weights[best]
        self.means_ = state.means[best]
        self.covariances_ = state.covariances[best]
        self.converged_ = bool(state.converged[best])
        self.lower_bound_ = float(state.bound[best])
        self.n_iter_ = int(state.n_iter[best])
        self.history_ = history
        self._shift = problem.shift
        if not self.converged_:
            warn(
                f"EM did not converge in max_iter={self.max_iter} iterations to tol={self.tol}. "
                "Increase max_iter or tol, or try other init_params.",
                ConvergenceWarning,
            )
        labels = CheckedRows(self._function("labels"), data.rows.dtype, missing=True)
        self.labels_ = row_labels(data, labels)

    @property
    def precisions_cholesky_(self) -> Floats:
        """Upper triangular factors of the precisions, as in scikit-learn."""
        if self.covariances_.ndim == 2:
            return np.asarray(1.0 / np.sqrt(self.covariances_))
        lower = np.linalg.cholesky(self.covariances_)
        return np.asarray(np.linalg.inv(lower).transpose(0, 2, 1))

    @property
    def precisions_(self) -> Floats:
        """Inverses of the covariances."""
        factors = self.precisions_cholesky_
        return factors**2 if factors.ndim == 2 else factors @ factors.transpose(0, 2, 1)

    def _mixtures(self) -> Mixtures:
        return Mixtures(self.weights_, self.means_, self.covariances_, (len(self.weights_),))

    def _function(self, output: str) -> MixtureFunction:
        return MixtureFunction(self._mixtures(), self._shift, output)

    def _map(self, X: Any, output: str, dtype: Any = None, n_columns: int | None = None) -> Any:
        check_is_fitted(self)
        function = self._function(output)
        return map_new_rows(self, X, function, output, dtype, missing=True, n_columns=n_columns)

    def predict(self, X: Any) -> Any:
        """Return the component with the largest posterior for each row.

        Parameters
        ----------
        X : array-like or dask.array.Array of shape (n_samples, n_features)
            NaN where a value is missing.

        Returns
        -------
        labels : ndarray or dask.array.Array of shape (n_samples,), int32
            Lazy, with the chunks of X, for a Dask array.

        Raises
        ------
        ValueError
            For infinity in X, and another number of features.
        """
        return self._map(X, "labels", np.int32)

    def predict_proba(self, X: Any) -> Any:
        """Return the posterior of each component, given the observed values.

        Parameters
        ----------
        X : array-like or dask.array.Array of shape (n_samples, n_features)

        Returns
        -------
        posteriors : ndarray or dask.array.Array of shape (n_samples, n_components)
            float32 for float32 input, else float64.
        """
        check_is_fitted(self)
        return self._map(X, "posteriors", n_columns=len(self.weights_))

    def score_samples(self, X: Any) -> Any:
        """Return the log-likelihood of the observed values of each row.

        Parameters
        ----------
        X : array-like or dask.array.Array of shape (n_samples, n_features)

        Returns
        -------
        ndarray or dask.array.Array of shape (n_samples,), float64
        """
        return self._map(X, "likelihood", np.float64)

    def impute(self, X: Any) -> Any:
        """Replace missing values by their conditional means, given the observed values.

        Parameters
        ----------
        X : array-like or dask.array.Array of shape (n_samples, n_features)

        Returns
        -------
        ndarray or dask.array.Array of shape (n_samples, n_features)
            Lazy for a Dask array; float32 for float32 input, else float64.  A row without any
            value is set to the mean of the mixture.
        """
        check_is_fitted(self)
        return self._map(X, "imputed", n_columns=self.n_features_in_)

    def _likelihood(self, rows: Rows) -> float:
        likelihood = rows.reduce(LIKELIHOOD, MixtureStack(self._mixtures(), self._shift))
        if not np.isfinite(likelihood[0]):
            # Another pass finds the row for the message.
            survey = rows.reduce(PARTIAL_SURVEY, SurveyRequest(rows.n_features))
            if survey.first_bad is not None:
                raise ValueError(infinite_message(*survey.first_bad))
        return float(likelihood[0])

    def _open(self, X: Any) -> Rows:
        check_is_fitted(self)
        return open_rows(check_rows(self, X, reset=False))

    def score(self, X: Any, y: Any = None) -> float:
        """Return the mean log-likelihood of the observed values of a row.

        Parameters
        ----------
        X : array-like or dask.array.Array of shape (n_samples, n_features)
        y : ignored

        Returns
        -------
        float
            Mean over the rows, computed in one pass.
        """
        return self._likelihood(self._open(X))

    def _n_parameters(self) -> int:
        k, p = self.means_.shape
        n_variances = p if self.covariances_.ndim == 2 else p * (p + 1) // 2
        return k * (n_variances + p + 1) - 1

    def _bic(self, rows: Rows) -> float:
        n = rows.n_rows
        return -2 * self._likelihood(rows) * n + self._n_parameters() * float(np.log(n))

    def bic(self, X: Any) -> float:
        """Return the Bayesian information criterion; lower values are better.

        Parameters
        ----------
        X : array-like or dask.array.Array of shape (n_samples, n_features)

        Returns
        -------
        float
        """
        return self._bic(self._open(X))

    def aic(self, X: Any) -> float:
        """Return the Akaike information criterion; lower values are better.

        Parameters
        ----------
        X : array-like or dask.array.Array of shape (n_samples, n_features)

        Returns
        -------
        float
        """
        rows = self._open(X)
        return -2 * self._likelihood(rows) * rows.n_rows + 2 * self._n_parameters()

    def sample(self, n_samples: int = 1) -> tuple[Floats, Ints]:
        """Draw complete rows from the mixture.

        Parameters
        ----------
        n_samples : int, default=1
            Number of rows.

        Returns
        -------
        X : ndarray of shape (n_samples, n_features)
            Rows, sorted by component.
        y : ndarray of shape (n_samples,)
            Component of each row.
        """
        check_is_fitted(self)
        check_integer(n_samples, "n_samples", 1)
        state = self.random_state
        rng: Any = state if isinstance(state, np.random.Generator) else check_random_state(state)
        counts = rng.multinomial(n_samples, self.weights_)
        labels = np.repeat(np.arange(len(counts)), counts)
        noise = rng.standard_normal((n_samples, self.n_features_in_))
        if self.covariances_.ndim == 2:
            noise *= np.sqrt(self.covariances_)[labels]
        else:
            lower = np.linalg.cholesky(self.covariances_)
            start = 0
            for factor, count in zip(lower, counts, strict=True):
                noise[start : start + count] = noise[start : start + count] @ factor.T
                start += count
        return self.means_[labels] + noise, labels

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags


def _array(value: Any, name: str, shape: tuple[int, ...]) -> Floats:
    array = np.array(without_mask(fetched(value, name), name), dtype=np.float64)
    if array.shape != shape:
        raise ValueError(f"{name} must have shape {shape}, got {array.shape}.")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite, got NaN or infinity.")
    return array


def _covariances(precisions: Floats, full: bool) -> Floats:
    name = "precisions_init"
    if not full:
        if (precisions <= 0).any():
            raise ValueError(f"{name} must be positive, got a minimum of {precisions.min()}.")
        return 1.0 / precisions
    if not np.allclose(precisions, precisions.transpose(0, 2, 1)):
        raise ValueError(f"{name} must be symmetric, got a matrix that is not symmetric.")
    smallest = np.linalg.eigvalsh(precisions).min()
    if smallest <= 0:
        raise ValueError(
            f"{name} must be positive definite, got a matrix with eigenvalue {smallest}."
        )
    return np.asarray(np.linalg.inv(precisions))


@dataclass(frozen=True)
class FillMissing:
    """Function that replaces missing values by the ``value`` (p,) of their column."""

    value: Floats

    def __call__(self, x: Array) -> Array:
        """Return the rows without missing values."""
        missing = np.isnan(x)
        return np.where(missing, self.value.astype(x.dtype), x) if missing.any() else x


def _centers(data: OpenData, init_params: str, k: int) -> Floats:
    """Return initial centers of all restarts, with column means for missing values."""
    survey = data.survey
    picks = survey.picks.copy()
    picks["x"] = np.where(np.isnan(picks["x"]), survey.mean, picks["x"])
    # Rows of weight 0 are also filled, because 0 times NaN is NaN.
    filled = data.rows.transformed(FillMissing(survey.mean))
    initialization = Initialization(
        replace(data, rows=filled, survey=replace(survey, picks=picks, n_incomplete=0)),
        k,
        {"kmeans": "k-means||", "random_from_data": "random"}.get(init_params, init_params),
    )
    if init_params != "kmeans":
        return initial_centers(initialization)
    tolerance = float(_TOL * survey.variance.mean())
    problem = LloydProblem(filled, initialization, _MAX_ITER, tolerance)
    centers: Floats = iterate(problem, "GaussianMixture (k-means initialization)").state.centers
    return centers

"""Gaussian mixtures of complete and incomplete data."""

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
from daskclust.core.estimator.row_functions import CheckedRows, infinite_message
from daskclust.core.estimator.validation import (
    Data,
    check_choice,
    check_enough_rows,
    check_integer,
    check_real,
    check_rows,
    fetched,
    without_mask,
)
from daskclust.core.initialization.sampled import sample_centers
from daskclust.core.persistence.mixin import Saveable, check_count
from daskclust.core.persistence.schema import Array as Stored
from daskclust.core.persistence.schema import Covariances, Entry, Number, Plain
from daskclust.core.reduction.survey import PARTIAL_SURVEY, SurveyRequest
from daskclust.core.warn import warn
from daskclust.mixture._em import EMProblem, EMState, Floor, maximize_start
from daskclust.mixture.densities import Mixtures, stack_models
from daskclust.mixture.predict import MixtureFunction, observed_pass
from daskclust.mixture.reductions import INITIAL_SUMS, LIKELIHOOD, InitialPosteriors, MixtureStack

INIT_PARAMS = ("kmeans", "k-means++", "random", "random_from_data")
#: Of k-means, see :class:`daskclust.KMeans`.
_MAX_ITER, _TOL, _OVERSAMPLING, _ROUNDS = 300, 1e-4, 2.0, 5


class GaussianMixture(FitPredict, Saveable, DensityMixin, BaseEstimator):
    """Gaussian mixture by EM, for data of any size, complete or not.

    NaN means missing, at random (MAR): whether a value is missing may depend on what is observed of
    its row, not on the value itself.  Nothing is filled in: a row counts with the values it has
    (Algorithm 1 of [1]_, after [2]_).

    Parameters
    ----------
    n_components : int, default=1
        Number of components K.
    covariance_type : {"full", "diag"}, default="full"
        Covariance matrices, or variances only.
    tol : float, default=1e-3
        A restart has converged when an iteration changes its mean log-likelihood by less.
    reg_covar : float, default=1e-6
        Added to every variance.
    max_iter : int, default=100
        Maximum number of EM iterations.
    n_init : int, default=1
        Restarts, of which the one of largest likelihood is kept; they share every pass.
    init_params : {"kmeans", "k-means++", "random", "random_from_data"}, default="kmeans"
        Posteriors to start from: k-means clusters, the rows nearest to centers drawn by k-means++
        or to rows drawn at random, or random numbers.  Where distances are needed, missing values
        are taken to be their column's mean; the first means and variances are those of the values
        that are there.
    weights_init : array-like of shape (K,), default=None
    means_init : array-like of shape (K, p), default=None
    precisions_init : array-like of shape (K, p) or (K, p, p), default=None
        First parameters, instead of those of ``init_params``.
    random_state : int, RandomState, Generator or None, default=None
        An int gives the same result, to rounding, for any chunks, scheduler and number of workers.
    warm_start : bool, default=False
        Start from the parameters of the last fit, if there was one.
    checkpoint : path-like, default=None
        As in :class:`KMeans`.

    Attributes
    ----------
    weights_ : ndarray of shape (K,), float64
    means_ : ndarray of shape (K, p), float64
    covariances_ : ndarray of shape (K, p) or (K, p, p), float64
        Variances, or covariance matrices.
    precisions_, precisions_cholesky_ : ndarray, of the shape of ``covariances_``
        Their inverses, and the upper triangular factors of these.
    converged_ : bool
    lower_bound_ : float
        Mean log-likelihood of a row's observed values in the last E-step, before the last change of
        the parameters; ``score`` gives that of the final ones.
    labels_ : ndarray or dask.array.Array of shape (n,), int32
        Component of largest posterior, ties to the lowest.  Lazy, and chunked like X, for Dask
        input.
    n_iter_ : int
        Iterations of the restart that was kept.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (p,)
        Names of the columns, where X has names.
    history_ : list of dict
        As in :class:`KMeans`, with ``objective`` the mean log-likelihood, the largest of all
        restarts, and ``center_shift`` that of the mean that moved most.

    Raises
    ------
    ValueError
        For infinity in X (naming the first), a column without any value, fewer rows with any value
        than components, and parameters out of range.
    CheckpointError
        As in :class:`KMeans`.

    Warns
    -----
    ConvergenceWarning
        If the restart that was kept did not converge.

    Notes
    -----
    *Passes*: 1 to check the data, those of the start (k-means|| and Lloyd iterations for
    ``"kmeans"``, K + 1 for ``"k-means++"``, and 1), 1 an EM iteration.  *Memory* of a worker
    thread: one block (two, when blocks are read on the way), O(r K p) for r restarts (O(r K
    p^2) when full) and, for rows that miss something, O(r K) numbers a row of the block when
    full.  *To the client*: O(r K p) or O(r K p^2) a worker thread and pass, never anything of
    length n.

    *Work* of an iteration, per row: O(K p), or O(K p^2) when full, and O(K p^3) for each pattern of
    missing values in a block.  Densities are worked out in float64.

    *Floor*: no variance falls below 1e-9 of its column's variance (no eigenvalue of a full
    covariance below 1e-12, features scaled to unit variance; a constant column counts as one of
    variance 1), beyond ``reg_covar``.  The likelihood of the observed values never falls from one
    iteration to the next, unless these act.  A row without any value has the weights as its
    posterior, likelihood 1, and moves nothing but the weights.  A component that has lost all its
    rows keeps its place with weight 0.

    References
    ----------
    .. [1] Løkse, S., Bianchi, F. M., Salberg, A.-B., Jenssen, R. (2017). Spectral
       clustering using PCKID: a probabilistic cluster kernel for incomplete data.
       SCIA.
    .. [2] Ghahramani, Z., Jordan, M. (1994). Supervised learning from incomplete
       data via an EM approach. NIPS.

    Examples
    --------
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

    def _check_parameters(self) -> None:
        check_integer(self.n_components, "n_components", 1)
        check_integer(self.max_iter, "max_iter", 1)
        check_integer(self.n_init, "n_init", 1)
        check_real(self.tol, "tol", 0)
        check_real(self.reg_covar, "reg_covar", 0)
        check_choice(self.covariance_type, "covariance_type", ("full", "diag"))
        check_choice(self.init_params, "init_params", INIT_PARAMS)
        if not isinstance(self.warm_start, bool | np.bool_):
            raise TypeError(f"warm_start={self.warm_start!r}; it must be True or False.")

    def _check_sizes(self) -> None:
        check_count(self, "n_components", len(self.weights_), "components")
        if (self.covariance_type == "full") != (self.covariances_.ndim == 3):
            raise ValueError(f"covariance_type={self.covariance_type!r} with other covariances")
        if not abs(float(self.weights_.sum()) - 1.0) <= 1e-6:
            raise ValueError(f"weights_ sum to {self.weights_.sum()}, not to 1")

    def fit(self, X: Any, y: Any = None, *, sample_weight: Any = None) -> Self:
        """Estimate the parameters.

        Parameters
        ----------
        X : array-like, dask.array.Array, DataFrame or xarray.DataArray of shape (n, p)
            Rows; NaN where a value is missing.
        y : ignored
        sample_weight : array-like or dask.array.Array of shape (n,), optional
            Weights of the rows: an integer weight equals repetition, 0 absence.

        Returns
        -------
        self
        """
        return fit(self, X, sample_weight)

    @property
    def _is_warm(self) -> bool:
        return bool(self.warm_start) and hasattr(self, "converged_")

    def _first_parameters(self, n_features: int) -> dict[str, Floats]:
        """Return the first parameters that are given, checked, or left by the last fit."""
        k, p, full = self.n_components, n_features, self.covariance_type == "full"
        shape = (k, p, p) if full else (k, p)
        given = {}
        if self.weights_init is not None:
            weights = _array(self.weights_init, "weights_init", (k,))
            if (weights < 0).any() or not np.isclose(weights.sum(), 1.0):
                raise ValueError(
                    f"weights_init={weights.tolist()}; weights must not be negative, and sum to 1."
                )
            given["weights"] = weights
        if self.means_init is not None:
            given["means"] = _array(self.means_init, "means_init", (k, p))
        if self.precisions_init is not None:
            precisions = _array(self.precisions_init, "precisions_init", shape)
            given["covariances"] = _covariances(precisions, full)
        if not self._is_warm:
            return given
        if self.covariances_.shape != shape:
            raise ValueError(
                f"warm_start=True, but the covariances of the last fit have shape "
                f"{self.covariances_.shape}; n_components={k} and covariance_type="
                f"{self.covariance_type!r} on {p} features ask for {shape}. Use "
                "warm_start=False, or fit as before."
            )
        return dict(self._mixtures().arrays)

    def _check_features(self, n_features: int) -> None:
        self._first_parameters(n_features)

    def _read(self, data: Data) -> dict[str, Floats]:
        check_enough_rows(data, self.n_components, "components")
        return self._first_parameters(data.X.shape[1])

    def _first_pass(self, data: Data, read: dict[str, Floats]) -> FirstPass:
        k, found = self.n_components, len(read) == 3
        n_picks = {"random": 0, "random_from_data": k}.get(self.init_params, 1)
        return observed_pass(
            k,
            "n_components",
            # The same parameters every time: one start is all starts.
            seeds=draw_seeds(self.random_state, 1 if found else self.n_init),
            n_picks=0 if found else n_picks,
        )

    def _problem(self, data: OpenData, read: dict[str, Floats]) -> EMProblem:
        floor = Floor.of(self.reg_covar, data.survey.variance)
        return EMProblem(
            data.rows,
            partial(self._start, data, floor, read),
            int(self.max_iter),
            data.survey.mean,
            floor,
            float(self.tol),
            read if self._is_warm else {},
        )

    def _start(self, data: OpenData, floor: Floor, given: Mapping[str, Floats]) -> EMState:
        """Find the first parameters of all restarts.

        Those ``given`` replace what was found; nothing is looked for when all three are.  Passes:
        1, besides those of the centers (k-means|| and Lloyd iterations for ``"kmeans"``, K + 1 for
        ``"k-means++"``, otherwise none).
        """
        r, k, p = len(data.seeds), self.n_components, data.rows.n_features
        full, mean = self.covariance_type == "full", data.survey.mean
        parameters: dict[str, Floats] = {}
        if len(given) < 3:
            random = self.init_params == "random"
            nowhere = np.broadcast_to(mean, (r, k, p)).copy()
            centers = nowhere if random else _centers(data, self.init_params, k)
            state = InitialPosteriors(centers, mean, full, data.seeds if random else ())
            sums = data.rows.reduce(INITIAL_SUMS, state)
            origin = centers if full else np.broadcast_to(mean, centers.shape)
            found = [maximize_start(sums[i], origin[i], mean, floor, full=full) for i in range(r)]
            stacked = stack_models(found).arrays
            parameters = {name: a.reshape(r, k, *a.shape[1:]) for name, a in stacked.items()}
        for name, value in given.items():
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
        """Upper factors of the precisions, as in scikit-learn."""
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
        """Component of largest posterior of each row.

        Parameters
        ----------
        X : array-like or dask.array.Array of shape (n_samples, n_features)
            NaN where a value is missing.

        Returns
        -------
        labels : ndarray or dask.array.Array of shape (n_samples,), int32
            Lazy, and chunked like X, for a Dask array.

        Raises
        ------
        ValueError
            For infinity, and another number of features.
        """
        return self._map(X, "labels", np.int32)

    def predict_proba(self, X: Any) -> Any:
        """Posterior of each component, given the values that are there.

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
        """Log-likelihood of the values that are there of each row: higher is more normal.

        Parameters
        ----------
        X : array-like or dask.array.Array of shape (n_samples, n_features)

        Returns
        -------
        ndarray or dask.array.Array of shape (n_samples,), float64
        """
        return self._map(X, "likelihood", np.float64)

    def impute(self, X: Any) -> Any:
        """Replace missing values by their conditional means, given those that are there.

        Parameters
        ----------
        X : array-like or dask.array.Array of shape (n_samples, n_features)

        Returns
        -------
        ndarray or dask.array.Array of shape (n_samples, n_features)
            Lazy for a Dask array; float32 for float32 input, else float64.  A row without any
            value gets the mean of the mixture.
        """
        check_is_fitted(self)
        return self._map(X, "imputed", n_columns=self.n_features_in_)

    def _likelihood(self, rows: Rows) -> float:
        """Mean log-likelihood of a row: one pass."""
        found = rows.reduce(LIKELIHOOD, MixtureStack(self._mixtures(), self._shift))
        if not np.isfinite(found[0]):
            # Only now is a second look worth its pass: to say where the fault lies.
            survey = rows.reduce(PARTIAL_SURVEY, SurveyRequest(rows.n_features))
            if survey.first_bad is not None:
                raise ValueError(infinite_message(*survey.first_bad))
        return float(found[0])

    def _open(self, X: Any) -> Rows:
        check_is_fitted(self)
        return open_rows(check_rows(self, X, reset=False))

    def score(self, X: Any, y: Any = None) -> float:
        """Mean log-likelihood of the values that are there of a row.

        Parameters
        ----------
        X : array-like or dask.array.Array of shape (n_samples, n_features)
        y : ignored

        Returns
        -------
        float
            Computed in one pass.
        """
        return self._likelihood(self._open(X))

    def _n_parameters(self) -> int:
        k, p = self.means_.shape
        each = p if self.covariances_.ndim == 2 else p * (p + 1) // 2
        return k * (each + p + 1) - 1

    def _bic(self, rows: Rows) -> float:
        n = rows.n_rows
        return -2 * self._likelihood(rows) * n + self._n_parameters() * float(np.log(n))

    def bic(self, X: Any) -> float:
        """Bayesian information criterion: the lower, the better.

        Parameters
        ----------
        X : array-like or dask.array.Array of shape (n_samples, n_features)

        Returns
        -------
        float
        """
        return self._bic(self._open(X))

    def aic(self, X: Any) -> float:
        """Akaike information criterion: the lower, the better.

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

        Returns
        -------
        X : ndarray of shape (n_samples, n_features)
            Sorted by component.
        y : ndarray of shape (n_samples,)
            Component of each.
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
        raise ValueError(f"{name} has shape {array.shape}; expected {shape}.")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} contains NaN or infinity; its values must be finite.")
    return array


def _covariances(precisions: Floats, full: bool) -> Floats:
    name = "precisions_init"
    if not full:
        if (precisions <= 0).any():
            raise ValueError(f"{name} has values that are not positive: {precisions.min()}.")
        return 1.0 / precisions
    if not np.allclose(precisions, precisions.transpose(0, 2, 1)):
        raise ValueError(f"{name} has matrices that are not symmetric.")
    least = np.linalg.eigvalsh(precisions).min()
    if least <= 0:
        raise ValueError(
            f"{name} has matrices that are not positive definite (eigenvalue {least})."
        )
    return np.asarray(np.linalg.inv(precisions))


@dataclass(frozen=True)
class FillMissing:
    """Put a value (p,) in the place of each column's missing ones; travels to workers."""

    value: Floats

    def __call__(self, x: Array) -> Array:
        """Return the rows, filled."""
        gone = np.isnan(x)
        return np.where(gone, self.value.astype(x.dtype), x) if gone.any() else x


def _centers(data: OpenData, init_params: str, k: int) -> Floats:
    """Centers of all restarts, missing values taken to be the column's mean."""
    survey = data.survey
    picks = survey.picks.copy()
    picks["x"] = np.where(np.isnan(picks["x"]), survey.mean, picks["x"])
    # Rows of weight 0, too: the survey does not see what they miss, and 0 times NaN is NaN.
    filled = data.rows.transformed(FillMissing(survey.mean))
    found = sample_centers(
        filled,
        replace(survey, picks=picks),
        {"kmeans": "k-means||", "random_from_data": "random"}.get(init_params, init_params),
        k,
        data.seeds,
        oversampling_factor=_OVERSAMPLING,
        init_rounds=_ROUNDS,
        shift=survey.mean,
    )
    if init_params != "kmeans":
        return found
    tolerance = float(_TOL * survey.variance.mean())
    problem = LloydProblem(filled, lambda: found, _MAX_ITER, tolerance, shift=survey.mean)
    centers: Floats = iterate(problem, "GaussianMixture (k-means start)").state.centers
    return centers

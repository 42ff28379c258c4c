"""Gaussian mixtures of complete and incomplete data."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, DensityMixin
from sklearn.exceptions import ConvergenceWarning

from daskclust._warnings import warn
from daskclust.engine import Checkpoint, Fingerprint, iterate, map_rows
from daskclust.estimator.base import draw_seeds
from daskclust.estimator.inputs import check_rows, check_weight
from daskclust.estimator.parameters import check_choice, check_integer, check_real
from daskclust.mixture._em import EMState, Floor, em_step
from daskclust.mixture._fitted import FittedMixture
from daskclust.mixture._given import given_parameters, last_parameters
from daskclust.mixture._incomplete import (
    OpenIncomplete,
    open_incomplete,
)
from daskclust.mixture._start import INIT_PARAMS, n_start_picks, start_models
from daskclust.persistence.saveable import Saveable
from daskclust.persistence.schema import Array, Covariances, Entry, Number, Plain

__all__ = ["GaussianMixture"]

Float = NDArray[np.float64]
#: Bounds that differ by less are those of the same solution.
_SAME = 1e-9


class GaussianMixture(Saveable, FittedMixture, DensityMixin, BaseEstimator):
    """Gaussian mixture by EM, for data of any size, complete or not.

    NaN means missing.  Values are taken to be missing at random (MAR): whether a
    value is missing may depend on what is observed of its row, not on the value
    itself.  Nothing is filled in: a row counts with the values it has (Algorithm 1
    of [1]_, after [2]_).

    Parameters
    ----------
    n_components : int, default=1
        Number of components K.
    covariance_type : {"full", "diag"}, default="full"
        Covariance matrices, or variances only.
    tol : float, default=1e-3
        A restart has converged when an iteration changes its mean log-likelihood
        by less.
    reg_covar : float, default=1e-6
        Added to every variance.
    max_iter : int, default=100
        EM iterations at most.
    n_init : int, default=1
        Restarts, of which the one of largest likelihood is kept.  They advance
        together and share every pass over the data.
    init_params : {"kmeans", "k-means++", "random", "random_from_data"}, default="kmeans"
        Posteriors to start from: k-means clusters, the rows nearest to centers
        drawn by k-means++ or to rows drawn at random, or random numbers.  For the
        first three, missing values are taken to be their column's mean; the first
        means and variances are those of the values that are there.
    weights_init : array-like of shape (K,), default=None
    means_init : array-like of shape (K, p), default=None
    precisions_init : array-like of shape (K, p) or (K, p, p), default=None
        First parameters, instead of those of ``init_params``; it is not consulted
        when all three are given.
    random_state : int, RandomState, Generator or None, default=None
        An int fixes the result whatever the chunks, the scheduler and the number
        of workers (to rounding).
    warm_start : bool, default=False
        Start from the parameters of the last fit, if there was one.
    checkpoint : path-like, default=None
        File that holds the newest state, replaced atomically every iteration; a
        fit started again with the same data and parameters (``max_iter`` may
        differ) continues from it.

    Attributes
    ----------
    weights_ : ndarray of shape (K,), float64
    means_ : ndarray of shape (K, p), float64
    covariances_ : ndarray of shape (K, p) or (K, p, p), float64
        Variances, or covariance matrices.
    precisions_, precisions_cholesky_ : ndarray, of the shape of ``covariances_``
        Their inverses, and the (upper) factors of these, as in scikit-learn.
    converged_ : bool
    lower_bound_ : float
        Mean log-likelihood of a row's observed values, of the last E-step (before
        the last change of the parameters), as in scikit-learn.  ``score`` gives
        that of the final parameters.
    labels_ : ndarray or dask.array.Array of shape (n,), int32
        Component of largest posterior, ties to the lowest.  Lazy, and chunked
        like X, for Dask input.
    n_iter_ : int
        Iterations of the restart that was kept.
    n_features_in_ : int
        Number of features p.
    feature_names_in_ : ndarray of shape (p,)
        Names of the columns, where X has names.
    history_ : list of dict
        One record an iteration: ``iteration``, ``objective`` (mean log-likelihood,
        the largest of all restarts), ``center_shift`` (of the mean that moved
        most), ``moved`` (None), ``seconds``, ``passes`` (over the data so far).

    Raises
    ------
    ValueError
        For infinity in X (naming the first), a column without any value, fewer
        rows with any value than components, and parameters out of range.
    CheckpointError
        If the checkpoint is broken or belongs to other data or parameters.

    Warns
    -----
    ConvergenceWarning
        If the restart that was kept did not converge.

    Notes
    -----
    *Passes*: 1 to look at the data, those of the start (k-means|| and Lloyd
    iterations for ``"kmeans"``, K - 1 for ``"k-means++"``, and 1), 1 an EM
    iteration.  *Memory* of a worker thread: one block (two, when blocks are read on
    the way), O(r K p) for r restarts (O(r K p^2) when full) and, for rows that miss
    something, O(r K) numbers a row of the block when full.  *To the client*: O(r K p)
    or O(r K p^2) a worker thread and pass, never anything of length n.

    *Work* of an iteration, per row: O(K p), or O(K p^2) when full.  Full
    covariances are factorized once for each pattern of missing values in a block,
    O(K p^3): the fewer patterns, the better.

    *Floor*: no variance falls below 1e-9 of its column's variance (no eigenvalue of
    a full covariance below 1e-12, features scaled to unit variance; a constant
    column counts as of variance 1), beyond ``reg_covar``.  The likelihood of the
    observed values never falls from one iteration to the next, unless the floor or
    ``reg_covar`` acts.  A row without any value has the weights as its posterior,
    likelihood 1, and moves nothing but the weights.  A component that has lost all
    its rows keeps its place with weight 0.

    float32 rows are read as such; densities are worked out in float64.

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
        "weights_": Array("k", low=0.0),
        "means_": Array("k", "p"),
        "covariances_": Covariances("k", "p", "|", "k", "p", "p", high=1e300),
        "converged_": Number(bool),
        "lower_bound_": Number(),
        "n_iter_": Number(int, low=0),
        "history_": Plain(list, records=True),
        "_shift": Array("p"),
    }

    def __init__(
        self,
        n_components: int = 1,
        *,
        covariance_type: str = "full",
        tol: float = 1e-3,
        reg_covar: float = 1e-6,
        max_iter: int = 100,
        n_init: int = 1,
        init_params: str = "kmeans",
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

    def _check_loaded(self) -> None:
        if (self.covariance_type == "full") != (self.covariances_.ndim == 3):
            raise ValueError(f"covariance_type={self.covariance_type!r} with other covariances")
        if not abs(float(self.weights_.sum()) - 1.0) <= 1e-6:
            raise ValueError(f"weights_ sum to {self.weights_.sum()}, not to 1")

    def fit(self, X: Any, y: Any = None, *, sample_weight: Any = None) -> GaussianMixture:
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
        self._check_parameters()
        X = check_rows(self, X, reset=True)
        weight = check_weight(sample_weight, X)
        given = given_parameters(self, X.shape[1])
        warm = bool(self.warm_start) and hasattr(self, "converged_")
        if warm:
            given = last_parameters(self, X.shape[1])
        k = self.n_components
        if X.shape[0] < k:
            raise ValueError(
                f"n_samples={X.shape[0]} should be >= n_components={k}. Ask for fewer components."
            )
        found = len(given) == 3
        data = open_incomplete(
            X,
            weight,
            # The same parameters every time: one start is all starts.
            seeds=draw_seeds(self.random_state, 1 if found else self.n_init),
            n_picks=0 if found else n_start_picks(self.init_params, k),
            n_components=k,
            name="n_components",
        )
        full = self.covariance_type == "full"
        floor = Floor.of(self.reg_covar, data.survey.variance)
        fitted = iterate(
            data.rows,
            lambda: start_models(data, self.init_params, k, floor, full=full, given=given),
            partial(em_step, data.rows, data.survey.mean, floor, self.tol),
            kind=EMState,
            max_iter=self.max_iter,
            name=type(self).__name__,
            checkpoint=self._checkpoint(data, given if warm else {}),
        )
        self._finish(data, fitted.state, fitted.history)
        return self

    def _checkpoint(self, data: OpenIncomplete, given: dict[str, Any]) -> Checkpoint | None:
        if self.checkpoint is None:
            return None
        params = self.get_params(deep=False)
        for name in ("checkpoint", "max_iter", "warm_start"):
            params.pop(name)
        params.update({f"{name}_": value for name, value in given.items()})
        fingerprint = Fingerprint(type(self).__name__, params, data.rows.n_rows, data.survey)
        return Checkpoint(self.checkpoint, fingerprint)

    def _finish(self, data: OpenIncomplete, state: EMState, history: list) -> None:
        bound = state.bound
        # The first of equal restarts, but for rounding.
        best = int(np.flatnonzero(bound >= bound.max() - _SAME * max(1.0, abs(bound.max())))[0])
        self.weights_ = state.weights[best]
        self.means_ = state.means[best]
        self.covariances_ = state.covariances[best]
        self.converged_ = bool(state.converged[best])
        self.lower_bound_ = float(bound[best])
        self.n_iter_ = int(state.n_iter[best])
        self.history_ = history
        self._shift = data.survey.mean
        if not self.converged_:
            warn(
                f"EM did not converge in max_iter={self.max_iter} iterations to tol={self.tol}. "
                "Increase max_iter or tol, or try other init_params.",
                ConvergenceWarning,
            )
        self.labels_ = map_rows(
            data.X,
            self._function("labels", data.rows.dtype),
            dtype=np.int32,
            lengths=data.rows.lengths,
        )

    def fit_predict(self, X: Any, y: Any = None, *, sample_weight: Any = None) -> Any:
        """Fit and return ``labels_``.

        Parameters
        ----------
        X, y, sample_weight
            As for ``fit``.

        Returns
        -------
        labels : ndarray or dask.array.Array of shape (n_samples,), int32
        """
        return self.fit(X, y, sample_weight=sample_weight).labels_

    def __sklearn_tags__(self) -> Any:
        """Tell scikit-learn what this estimator takes."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = False
        tags.input_tags.allow_nan = True
        return tags

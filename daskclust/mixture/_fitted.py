"""Common to mixtures of incomplete rows: the first pass, and rows under a fitted mixture."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from daskclust._types import Floats, Ints
from daskclust.engine import Rows, open_rows
from daskclust.estimator.base import map_new_rows
from daskclust.estimator.fitting import FirstPass
from daskclust.estimator.inputs import check_integer, check_rows, check_survey, infinite_message
from daskclust.kernels.mixtures.densities import Mixtures
from daskclust.kernels.mixtures.posteriors import impute, posteriors
from daskclust.reduction.mixtures import LIKELIHOOD, MixtureStack
from daskclust.reduction.survey import PARTIAL_SURVEY, PartialSurvey, SurveyRequest


def _check(survey: PartialSurvey, n_components: int, name: str) -> None:
    check_survey(survey)
    if survey.n_informed < n_components:
        raise ValueError(
            f"n_samples={survey.n_informed} should be >= {name}={n_components}: so many rows have "
            f"a weight and any value that is not NaN. Ask for fewer."
        )


def observed_pass(
    n_components: int, name: str, *, seeds: tuple[int, ...] = (), n_picks: int = 0
) -> FirstPass:
    """Return the first pass over data in which NaN means missing.

    The parameter ``name`` asks for ``n_components`` rows at least.  There is a seed for each
    restart, and ``n_picks`` rows are drawn for each.
    """
    check = partial(_check, n_components=n_components, name=name)
    return FirstPass(seeds, n_picks, reduction=PARTIAL_SURVEY, check=check)


@dataclass(frozen=True)
class MixtureFunction:
    """Labels, posteriors, likelihood or imputed values of a block's rows; travels to workers.

    The likelihood is the mean of the models' log-likelihoods.
    """

    mixtures: Mixtures
    shift: Floats
    output: str

    def __call__(self, x: NDArray[Any]) -> NDArray[Any]:
        if self.output == "imputed":
            return impute(x, self.mixtures, self.shift)
        shares, total = posteriors(x, self.mixtures, self.shift)
        if self.output == "labels":
            return np.argmax(shares, axis=0).astype(np.int32)
        return shares.T.astype(x.dtype) if self.output == "posteriors" else total.mean(axis=0)


class FittedMixture:
    """Everything of a mixture but its fit."""

    # Set by fit.
    weights_: Floats
    means_: Floats
    covariances_: Floats
    n_features_in_: int
    _shift: Floats
    random_state: Any

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

    def _map(self, X: Any, output: str, dtype: Any = None, n_columns: int | None = None) -> Any:
        check_is_fitted(self)
        function = MixtureFunction(self._mixtures(), self._shift, output)
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
        """Log-likelihood of the values that are there of each row.

        The higher, the more normal; rows that miss values are compared by those they have.

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
            Lazy for a Dask array; float32 for float32 input, else float64.  Values
            that are there stay as they are; a row without any gets the mean of the
            mixture.
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

"""M-step of Gaussian mixtures, lower bounds of variances, and one EM iteration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np

from daskclust.core.array_types import Array, Bools, Floats, Ints
from daskclust.core.engine import Rows
from daskclust.core.estimator.fit_loop import DataAlone, Step
from daskclust.mixture.densities import Mixtures
from daskclust.mixture.expectation import move_diagonal
from daskclust.mixture.reductions import EXPECTATION, MixtureStack

#: Minimum variance, as a fraction of the variance of the column.  Densities of smaller variances
#: are inaccurate.
MIN_VARIANCE = 1e-9
#: Minimum eigenvalue of a full covariance, for features scaled by their standard deviation.
MIN_EIGENVALUE = 1e-12
#: Mass added to each component to prevent division by 0, as in scikit-learn.
_TINY = 10 * np.finfo(np.float64).eps


@dataclass(frozen=True)
class EMState:
    """State of all restarts of a fit.

    ``bound`` (r,) is the mean log-likelihood of a row before the last update of the parameters.
    """

    weights: Annotated[Floats, "f r k"]
    means: Annotated[Floats, "f r k p"]
    covariances: Annotated[Floats, "f r k p | r k p p"]
    bound: Annotated[Floats, "f r"]
    converged: Annotated[Bools, "b r"]
    n_iter: Annotated[Ints, "i r"]

    @classmethod
    def begin(cls, weights: Floats, means: Floats, covariances: Floats) -> EMState:
        r = len(weights)
        return cls(
            weights,
            means,
            covariances,
            np.full(r, -np.inf),
            np.zeros(r, bool),
            np.zeros(r, np.int64),
        )

    def mixtures(self, chosen: Any) -> Mixtures:
        """Return the models of the chosen restarts."""
        weights, means = self.weights[chosen], self.means[chosen]
        r, k = weights.shape
        covariances = self.covariances[chosen]
        return Mixtures(
            weights.reshape(-1),
            means.reshape(r * k, -1),
            covariances.reshape(r * k, *covariances.shape[2:]),
            (k,) * r,
        )


@dataclass(frozen=True)
class Floor:
    """Function that keeps covariances invertible.

    It adds ``reg_covar`` to every variance.  Then it raises small variances to the fraction
    ``min_fraction`` of ``variance`` (p,), the variances of the columns (1 for a constant column).
    The default fraction is ``MIN_VARIANCE``, or ``MIN_EIGENVALUE`` for full covariances.
    """

    reg_covar: float
    variance: Floats
    min_fraction: float | None = None

    @classmethod
    def of(cls, reg_covar: float, variance: Floats, min_fraction: float | None = None) -> Floor:
        return cls(float(reg_covar), np.where(variance > 0, variance, 1.0), min_fraction)

    def __call__(self, covariances: Floats, diagonal: bool) -> Floats:
        min_fraction = MIN_VARIANCE if diagonal else MIN_EIGENVALUE
        min_fraction = min_fraction if self.min_fraction is None else self.min_fraction
        if diagonal:
            regularized = covariances + self.reg_covar
            return np.maximum(regularized, min_fraction * self.variance, out=regularized)
        p = len(self.variance)
        scale = np.sqrt(self.variance)
        regularized = covariances.copy()
        regularized.reshape(-1, p * p)[:, :: p + 1] += self.reg_covar
        matrices = regularized.reshape(-1, p, p)
        scaled = matrices / np.outer(scale, scale)
        scaled = (scaled + scaled.transpose(0, 2, 1)) / 2
        for index, matrix in enumerate(scaled):
            values, vectors = np.linalg.eigh(matrix)
            if values[0] < min_fraction:
                repaired = (vectors * np.maximum(values, min_fraction)) @ vectors.T
                matrices[index] = repaired * np.outer(scale, scale)
        return regularized


def maximize(sums: Floats, mixtures: Mixtures, shift: Floats, floor: Floor) -> Mixtures:
    """Compute the new parameters from the sums of one pass (M-step).

    This is the M-step of Algorithm 1 of the PCKID paper, with deviations from the new means.  A
    component without mass keeps its mean and covariance, and its weight becomes 0.  The sums (see
    :class:`MixtureSums`) must come from a pass with ``mixtures``.
    """
    p = mixtures.means.shape[1]
    mass = sums[:, 0]
    n = mass + _TINY
    if mixtures.diagonal:
        means, covariances = np.empty((2, *mixtures.means.shape))
        move_diagonal(sums, n, mixtures.means, mixtures.covariances, shift, (means, covariances))
    else:
        delta = sums[:, 1 : p + 1] / n[:, None]
        second = sums[:, p + 1 :].reshape(-1, p, p) / n[:, None, None]
        covariances = second - delta[:, :, None] * delta[:, None, :]
        means = mixtures.means + delta
    massless = np.flatnonzero(~(mass > 0))
    means[massless], covariances[massless] = (
        mixtures.means[massless],
        mixtures.covariances[massless],
    )
    covariances = floor(covariances, mixtures.diagonal)
    covariances[massless] = mixtures.covariances[massless]
    return Mixtures(_normalized_weights(mass, mixtures.sizes), means, covariances, mixtures.sizes)


def _normalized_weights(mass: Floats, sizes: tuple[int, ...]) -> Floats:
    starts = np.cumsum((0, *sizes))[:-1]
    mass = np.where(mass > 0, mass + _TINY, 0.0)
    return np.asarray(mass / np.repeat(np.add.reduceat(mass, starts), sizes))


def maximize_initial(
    sums: Floats, centers: Floats, mean: Floats, floor: Floor, *, full: bool
) -> Mixtures:
    """Compute the initial parameters of one model from the sums of `accumulate_start`.

    Means and variances are computed from observed values.  In products of two features, the center
    replaces missing values, so that the matrix is positive definite.  A component without values
    in a column gets the mean and variance of the column.  The sums are of deviations from
    ``centers``, or from the mean for diagonal covariances.
    """
    p = len(mean)
    mass = sums[:, 0]
    squares, firsts, n_observed = np.split(sums[:, 1 : 3 * p + 1], 3, axis=1)
    observed = n_observed > 0
    divisor = np.where(observed, n_observed, 1.0)
    delta = firsts / divisor
    means = np.where(observed, centers + delta, mean)
    variances = np.where(observed, squares / divisor - delta**2, floor.variance)
    if full:
        n = np.where(mass > 0, mass, 1.0)[:, None]
        mean_shift = firsts / n
        covariances = sums[:, 3 * p + 1 :].reshape(-1, p, p) / n[..., None]
        covariances -= mean_shift[:, :, None] * mean_shift[:, None, :]
        diagonal = np.arange(p)
        covariances[:, diagonal, diagonal] = np.maximum(
            covariances[:, diagonal, diagonal], variances
        )
    else:
        covariances = variances
    covariances = floor(covariances, not full)
    return Mixtures(_normalized_weights(mass, (len(mass),)), means, covariances, (len(mass),))


@dataclass(frozen=True)
class EMProblem(DataAlone):
    """EM for several restarts, which share all passes.

    A restart has converged when its mean log-likelihood changes by less than ``tolerance``.
    ``warm`` contains the parameters of the last fit if they initialize this fit, else it is empty.
    """

    kind: ClassVar[type[EMState]] = EMState

    rows: Rows
    begin: Callable[[], EMState]
    max_iter: int
    shift: Floats
    floor: Floor
    tolerance: float
    warm: Mapping[str, Floats]

    def identity(self) -> Mapping[str, Any]:
        """Return the parameters of the last fit if they initialize this fit."""
        return {f"{name}_": value for name, value in self.warm.items()}

    def step(self, state: EMState) -> Step[EMState]:
        """Run an iteration of the restarts that have not converged, in one pass."""
        active = np.flatnonzero(~state.converged)
        before = state.mixtures(active)
        result = self.rows.reduce(EXPECTATION, MixtureStack(before, self.shift))
        after = maximize(result.sums, before, self.shift, self.floor)

        def with_active(name: str, values: Array) -> Array:
            column: Array = getattr(state, name).copy()
            column[active] = values.reshape(len(active), *column.shape[1:])
            return column

        unchanged = np.abs(result.likelihood - state.bound[active]) < self.tolerance
        new_state = EMState(
            **{name: with_active(name, values) for name, values in after.arrays.items()},
            bound=with_active("bound", result.likelihood),
            converged=with_active("converged", unchanged),
            n_iter=with_active("n_iter", state.n_iter[active] + 1),
        )
        return Step(
            state=new_state,
            objective=float(new_state.bound.max()),
            center_shift=float(np.sqrt(((after.means - before.means) ** 2).sum(axis=1).max())),
            finished=bool(new_state.converged.all()),
        )

"""Parameters of Gaussian mixtures from sums: the M-step, its floor, and one iteration."""

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

#: Least variance, as a share of the column's: below it densities lose their digits.
LEAST_VARIANCE = 1e-9
#: Least eigenvalue of a full covariance, features scaled by their standard deviation.
LEAST_EIGENVALUE = 1e-12
#: Added to the mass of a component, as scikit-learn does.
_TINY = 10 * np.finfo(np.float64).eps


@dataclass(frozen=True)
class EMState:
    """All restarts of one fit.

    ``bound`` (r,) is the mean log-likelihood of a row, before the last change of the parameters.
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
        """Stack the models of some restarts."""
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
    """The terms that keep covariances invertible.

    ``reg_covar`` is added to every variance; of ``variance`` (p,), that of the columns and 1 for a
    constant one, the share ``least`` is left, or those above.
    """

    reg_covar: float
    variance: Floats
    least: float | None = None

    @classmethod
    def of(cls, reg_covar: float, variance: Floats, least: float | None = None) -> Floor:
        return cls(float(reg_covar), np.where(variance > 0, variance, 1.0), least)

    def __call__(self, covariances: Floats, diagonal: bool) -> Floats:
        """Return covariances that are regularized, and not singular."""
        least = LEAST_VARIANCE if diagonal else LEAST_EIGENVALUE
        least = least if self.least is None else self.least
        if diagonal:
            raised = covariances + self.reg_covar
            return np.maximum(raised, least * self.variance, out=raised)
        p = len(self.variance)
        scale = np.sqrt(self.variance)
        raised = covariances.copy()
        raised.reshape(-1, p * p)[:, :: p + 1] += self.reg_covar
        matrices = raised.reshape(-1, p, p)
        scaled = matrices / np.outer(scale, scale)
        scaled = (scaled + scaled.transpose(0, 2, 1)) / 2
        for at, matrix in enumerate(scaled):
            values, vectors = np.linalg.eigh(matrix)
            if values[0] < least:
                lifted = (vectors * np.maximum(values, least)) @ vectors.T
                matrices[at] = lifted * np.outer(scale, scale)
        return raised


def maximize(sums: Floats, mixtures: Mixtures, shift: Floats, floor: Floor) -> Mixtures:
    """Parameters from the sums of one pass (the M-step, Algorithm 1 of the PCKID paper).

    Deviations are from the new means; a component that has lost all its mass keeps
    its place, with no weight.  Sums of :class:`MixtureSums` were taken under ``mixtures``.
    """
    p = mixtures.means.shape[1]
    mass = sums[:, 0]
    # As scikit-learn: no division by 0.
    n = mass + _TINY
    if mixtures.diagonal:
        means, covariances = np.empty((2, *mixtures.means.shape))
        move_diagonal(sums, n, mixtures.means, mixtures.covariances, shift, (means, covariances))
    else:
        gap = sums[:, 1 : p + 1] / n[:, None]
        second = sums[:, p + 1 :].reshape(-1, p, p) / n[:, None, None]
        covariances = second - gap[:, :, None] * gap[:, None, :]
        means = mixtures.means + gap
    dead = np.flatnonzero(~(mass > 0))
    means[dead], covariances[dead] = mixtures.means[dead], mixtures.covariances[dead]
    covariances = floor(covariances, mixtures.diagonal)
    covariances[dead] = mixtures.covariances[dead]
    return Mixtures(_shares_of(mass, mixtures.sizes), means, covariances, mixtures.sizes)


def _shares_of(mass: Floats, sizes: tuple[int, ...]) -> Floats:
    """Weights of the components of each model."""
    starts = np.cumsum((0, *sizes))[:-1]
    mass = np.where(mass > 0, mass + _TINY, 0.0)
    return np.asarray(mass / np.repeat(np.add.reduceat(mass, starts), sizes))


def maximize_start(
    sums: Floats, centers: Floats, mean: Floats, floor: Floor, *, full: bool
) -> Mixtures:
    """First parameters of one model from sums over given posteriors, of `accumulate_start`.

    Means and variances are those of the values that are there; products of two features take
    missing values to lie on the center, which keeps the matrix positive.  A component without any
    value of a column takes the column's mean and variance.  ``centers`` are what deviations were
    from: for diagonal covariances, the mean.
    """
    p = len(mean)
    mass = sums[:, 0]
    squares, firsts, there = np.split(sums[:, 1 : 3 * p + 1], 3, axis=1)
    known = there > 0
    divisor = np.where(known, there, 1.0)
    gap = firsts / divisor
    means = np.where(known, centers + gap, mean)
    variances = np.where(known, squares / divisor - gap**2, floor.variance)
    if full:
        n = np.where(mass > 0, mass, 1.0)[:, None]
        drift = firsts / n
        covariances = sums[:, 3 * p + 1 :].reshape(-1, p, p) / n[..., None]
        covariances -= drift[:, :, None] * drift[:, None, :]
        at = np.arange(p)
        covariances[:, at, at] = np.maximum(covariances[:, at, at], variances)
    else:
        covariances = variances
    covariances = floor(covariances, not full)
    return Mixtures(_shares_of(mass, (len(mass),)), means, covariances, (len(mass),))


@dataclass(frozen=True)
class EMProblem(DataAlone):
    """EM for several restarts, which share every pass.

    A restart has converged when its mean log-likelihood gains less than ``tolerance``.  ``warm``
    are the parameters of the last fit, where this one starts from them.
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
        """Return what the last fit left, where this one starts from it."""
        return {f"{name}_": value for name, value in self.warm.items()}

    def step(self, state: EMState) -> Step[EMState]:
        """Make one iteration of all restarts that still move: one pass."""
        active = np.flatnonzero(~state.converged)
        before = state.mixtures(active)
        found = self.rows.reduce(EXPECTATION, MixtureStack(before, self.shift))
        after = maximize(found.sums, before, self.shift, self.floor)

        def moved(name: str, values: Array) -> Array:
            column: Array = getattr(state, name).copy()
            column[active] = values.reshape(len(active), *column.shape[1:])
            return column

        stands = np.abs(found.likelihood - state.bound[active]) < self.tolerance
        new = EMState(
            **{name: moved(name, values) for name, values in after.arrays.items()},
            bound=moved("bound", found.likelihood),
            converged=moved("converged", stands),
            n_iter=moved("n_iter", state.n_iter[active] + 1),
        )
        return Step(
            state=new,
            objective=float(new.bound.max()),
            center_shift=float(np.sqrt(((after.means - before.means) ** 2).sum(axis=1).max())),
            finished=bool(new.converged.all()),
        )

"""First parameters of Gaussian mixtures, for all restarts at once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from daskclust._types import Array, Floats
from daskclust.cluster.lloyd import LloydProblem
from daskclust.engine import iterate
from daskclust.estimator.fitting import OpenData
from daskclust.kernels.mixtures.densities import stack_models
from daskclust.mixture._em import EMState, Floor, maximize_start
from daskclust.reduction.mixtures import INITIAL_SUMS, InitialPosteriors
from daskclust.starts.sampled import sample_centers

__all__ = ["INIT_PARAMS", "n_start_picks", "start_models"]


INIT_PARAMS = ("kmeans", "k-means++", "random", "random_from_data")
#: Of k-means, see :class:`daskclust.KMeans`.
_MAX_ITER, _TOL, _OVERSAMPLING, _ROUNDS = 300, 1e-4, 2.0, 5


@dataclass(frozen=True)
class FillMissing:
    """Put a value in the place of each column's missing ones; travels to workers.

    Parameters
    ----------
    value : ndarray of shape (p,), float64
    """

    value: Floats

    def __call__(self, x: Array) -> Array:
        """Return the rows, filled."""
        gone = np.isnan(x)
        return np.where(gone, self.value.astype(x.dtype), x) if gone.any() else x


def n_start_picks(init_params: str, n_components: int) -> int:
    """Return how many rows the first pass draws for each restart."""
    return {"random": 0, "random_from_data": n_components}.get(init_params, 1)


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
    ).centers
    if init_params != "kmeans":
        return found
    tolerance = float(_TOL * survey.variance.mean())
    problem = LloydProblem(filled, lambda: found, _MAX_ITER, tolerance, shift=survey.mean)
    fitted = iterate(
        filled,
        problem.begin,
        problem.step,
        kind=problem.kind,
        max_iter=problem.max_iter,
        name="GaussianMixture (k-means start)",
    )
    return fitted.state.centers


def start_models(
    data: OpenData,
    init_params: str,
    n_components: int,
    floor: Floor,
    *,
    full: bool,
    given: dict[str, Any],
) -> EMState:
    """Find the first parameters of all restarts.

    Parameters
    ----------
    data : OpenData
    init_params : {"kmeans", "k-means++", "random", "random_from_data"}
    n_components : int
    floor : Floor
    full : bool
        Whether covariances are full.
    given : dict
        ``weights``, ``means`` and ``covariances`` that replace what was found;
        nothing is looked for when all three are given.

    Notes
    -----
    Passes: 1, besides those of the centers (k-means|| and Lloyd iterations for
    ``"kmeans"``, K - 1 for ``"k-means++"``, otherwise none).
    """
    r, k, p = len(data.seeds), n_components, data.rows.n_features
    mean = data.survey.mean
    parameters: dict[str, Floats] = {}
    if len(given) < 3:
        random = init_params == "random"
        nowhere = np.broadcast_to(mean, (r, k, p)).copy()
        centers = nowhere if random else _centers(data, init_params, k)
        state = InitialPosteriors(centers, mean, full, data.seeds if random else ())
        sums = data.rows.reduce(INITIAL_SUMS, state)
        origin = centers if full else np.broadcast_to(mean, centers.shape)
        found = [maximize_start(sums[i], origin[i], mean, floor, full=full) for i in range(r)]
        stacked = stack_models(found).arrays
        parameters = {name: a.reshape(r, k, *a.shape[1:]) for name, a in stacked.items()}
    for name, value in given.items():
        parameters[name] = np.broadcast_to(value, (r, *value.shape)).copy()
    return EMState.begin(**parameters)

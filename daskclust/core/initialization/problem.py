"""The problem of an initialization: data, method and parameters."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from daskclust.core.array_types import Floats
from daskclust.core.engine import Rows
from daskclust.core.estimator.fit_loop import OpenData
from daskclust.core.estimator.transforms import EUCLIDEAN, Metric
from daskclust.core.reduction import Survey

#: Maximum squared shift of converged centers, as a fraction of the mean variance.
_TOL = 1e-4


@dataclass(frozen=True)
class Initialization:
    """Everything that determines the initial centers of all restarts of a fit.

    :func:`~daskclust.core.initialization.centers.initial_centers` finds these centers.

    Parameters
    ----------
    data : OpenData
        Rows and survey, in the space of the metric, and one seed per restart.
    n_clusters : int
        Number of centers k.
    init : str, array of shape (k, p), fitted model or callable
        One of :data:`~daskclust.core.initialization.methods.STRING_INITS`, or the centers.
    known : ndarray of shape (m, p), optional
        Known centers, which come first.
    oversampling_factor, init_rounds : float, int
        Candidates per round as a multiple of k, and number of rounds, of ``"k-means||"``.
    metric : Metric
        Metric in whose space the rows are.
    tolerance : float, optional
        Squared shift at which centers have converged.  Default: 1e-4 times the mean variance.
    on_sample : bool
        True to iterate the centers on samples that grow.  ``"k-means||"`` always does that.
    compares : bool
        If all centers are known: True to also find centers without them.  The known centers are
        then the first restart, and the others are matched to them.
    """

    data: OpenData
    n_clusters: int
    init: Any = "k-means||"
    known: Floats | None = None
    oversampling_factor: float = 2.0
    init_rounds: int = 5
    metric: Metric = EUCLIDEAN
    tolerance: float | None = None
    on_sample: bool = False
    compares: bool = False

    @property
    def rows(self) -> Rows:
        return self.data.rows

    @property
    def survey(self) -> Survey:
        survey: Survey = self.data.survey
        return survey

    @property
    def seeds(self) -> tuple[int, ...]:
        return self.data.seeds

    @property
    def shift(self) -> Floats | None:
        """A point near the rows, (p,); None in a space in which the rows are near 0."""
        return self.survey.mean if self.metric.is_identity else None

    @property
    def missing(self) -> bool:
        return bool(self.survey.n_incomplete > 0)

    @property
    def max_shift(self) -> float:
        """Squared shift at which a set of centers has converged."""
        if self.tolerance is not None:
            return self.tolerance
        return _TOL * float(self.survey.variance.mean())

    def fallback(self) -> Initialization:
        """Return the initialization that replaces this one if the fit collapses.

        It has a fixed seed, because this initialization may be deterministic.
        """
        survey = replace(self.survey, picks=self.survey.picks[:1])
        return replace(
            self,
            data=replace(self.data, survey=survey, seeds=(0,)),
            init="k-means||",
            on_sample=False,
        )

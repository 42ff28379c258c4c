"""Grids of fits that share their passes, on data and on generated references."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from operator import methodcaller
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import ConvergenceWarning

from daskclust.core.array_types import Array, Floats
from daskclust.core.engine import Job, Rows, open_blank, run_together
from daskclust.core.estimator.fit_loop import draw_seeds, fit
from daskclust.core.estimator.validation import Data, check_data
from daskclust.core.reduction import SURVEY, SurveyRequest
from daskclust.core.reduction.row_views import View


def one_standard_error(scores: Floats, errors: Floats, best: int) -> int:
    """Return the first position whose score is at most a standard error below the best score.

    Higher scores are better.  Values are ordered from simple to complex.  NaN is a missing value.
    """
    slack = 0.0 if np.isnan(errors[best]) else errors[best]
    return int(np.flatnonzero(scores[: best + 1] >= scores[best] - slack)[0])


@dataclass(frozen=True)
class Selection:
    """Scores for a grid of parameter values, and the value to choose.

    Attributes
    ----------
    parameter : str
        Name of the parameter.
    criterion : str
        Name of the score.
    grid : ndarray of shape (g,)
        Values of the parameter, in ascending order.
    scores : ndarray of shape (g,), float64
        Score of each value; NaN if the criterion is not defined, for example for one cluster.
    standard_errors : ndarray of shape (g,), float64
        Standard errors of the scores; NaN if unknown.
    greater_is_better : bool
        True if higher scores are better.
    best_index : int
        Index of the best score; the first index if scores are equal.
    one_se_index : int
        Index of the simplest value (fewest clusters, smallest sparsity) whose score is within one
        standard error of the best.
    estimators : tuple
        Estimators fitted to all rows, one for each value.
    passes : int
        Number of passes over the data, for all fits together.
    details : dict
        Numbers from which the scores are computed; see the function that returns the selection.
    """

    parameter: str
    criterion: str
    grid: Array
    scores: Floats
    standard_errors: Floats
    greater_is_better: bool
    best_index: int
    one_se_index: int
    estimators: tuple[Any, ...] = field(repr=False)
    passes: int
    details: dict[str, Any] = field(repr=False, default_factory=dict)

    @property
    def best_value(self) -> Any:
        """Value with the best score."""
        return self.grid[self.best_index].item()

    @property
    def one_se_value(self) -> Any:
        """Simplest value whose score is within one standard error of the best."""
        return self.grid[self.one_se_index].item()

    @property
    def best_estimator(self) -> Any:
        """Estimator for the best score, fitted to all rows."""
        return self.estimators[self.best_index]

    @property
    def one_se_estimator(self) -> Any:
        """Estimator for the one-standard-error choice, fitted to all rows."""
        return self.estimators[self.one_se_index]

    def plot(self, ax: Any = None) -> Any:
        """Draw the scores with their standard errors, and mark both choices.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Axes to draw into.  Default: axes of a new figure.

        Returns
        -------
        matplotlib Axes

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        """
        from daskclust.plotting import draw_selection

        return draw_selection(self, ax)


#: Number of concurrent fits to references.  They read no data, so more fits would not save passes.
_CONCURRENT = 64


def overrides(estimator: Any, *methods: str) -> bool:
    """Return True if a class outside this package defines one of these methods."""
    for method in methods:
        owner = next((base for base in type(estimator).__mro__ if method in vars(base)), None)
        if owner is None or owner.__module__.partition(".")[0] != __name__.partition(".")[0]:
            return True
    return False


@dataclass(frozen=True)
class Grid:
    """Data opened once for all fits, and the unfitted estimator whose parameter varies."""

    X: Any
    data: Data
    estimator: Any
    parameter: str
    seed: int

    @property
    def shares_passes(self) -> bool:
        """True if ``fit`` is defined in this package.  Other estimators are fitted to X itself."""
        return not overrides(self.estimator, "fit")

    def fit(self, value: Any, rows: Rows, data: Data | None = None, **labels: Any) -> Any:
        """Return a clone with this value of the parameter, fitted to `data` (default: all data).

        ``rows`` is a handle to the data whose passes are shared.
        """
        model = clone(self.estimator).set_params(**{self.parameter: value})
        if not self.shares_passes:
            return model.fit(self.X, **labels)
        return fit(model, (data or self.data).through(rows), **labels)

    def run(self, jobs: Sequence[Job]) -> list[Any]:
        """Run jobs on the data.  They share passes if the estimator supports this."""
        if self.shares_passes:
            return run_grid(self.data.rows, jobs)
        with _warn_once(()):
            return [job.run(self.data.rows) for job in jobs]


def selected(
    parameter: str,
    passes: int,
    criterion: str,
    values: Array,
    scores: Floats,
    errors: Floats,
    models: Sequence[Any],
    details: dict[str, Any] | None = None,
    greater: bool = True,
) -> Selection:
    """Create a selection from scores.  At least one score must not be NaN."""
    signed = scores if greater else -scores
    best = int(np.nanargmax(signed))
    return Selection(
        parameter=parameter,
        criterion=criterion,
        grid=values,
        scores=scores,
        standard_errors=errors,
        greater_is_better=greater,
        best_index=best,
        one_se_index=one_standard_error(signed, errors, best),
        estimators=tuple(models),
        passes=passes,
        details=details or {},
    )


def open_grid(estimator: Any, X: Any, parameter: str, random_state: Any) -> Grid:
    """Open the data once for all fits."""
    params = estimator.get_params() if isinstance(estimator, BaseEstimator) else {}
    if parameter not in params:
        raise ValueError(
            f"estimator must have the parameter {parameter!r}, got {estimator!r}. Use for example "
            "daskclust.SparseKMeans() for sparsity, or daskclust.KMeans() for n_clusters."
        )
    if params.get("checkpoint") is not None:
        raise ValueError(
            "checkpoint must be None, because fits cannot share one checkpoint, got "
            f"{params['checkpoint']!r}."
        )
    (seed,) = draw_seeds(random_state, 1)
    model = clone(estimator)
    if params.get("random_state", seed) is None:
        # With equal seeds, differences between fits are due to the parameter.
        model.set_params(random_state=seed % 2**32)
    return Grid(X, check_data(X), model, parameter, seed)


@contextmanager
def _warn_once(silent: type[Warning] | tuple[()]) -> Iterator[None]:
    """Emit each warning of many fits once; suppress warnings of class ``silent``."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    emitted = set()
    for warning in caught:
        key = warning.category, str(warning.message)
        if key not in emitted and not issubclass(warning.category, silent):
            emitted.add(key)
            warnings.warn_explicit(
                str(warning.message), warning.category, warning.filename, warning.lineno
            )


def run_grid(rows: Rows, jobs: Sequence[Job], silent: type[Warning] | tuple[()] = ()) -> list[Any]:
    """Run jobs that share passes; emit each warning once, and suppress class ``silent``."""
    with _warn_once(silent):
        return run_together(rows, jobs)


def survey_job(grid: Grid, n_picks: int = 0) -> Job:
    """Return a job that surveys the data and draws rows."""
    request = SurveyRequest(grid.data.X.shape[1], (grid.seed,), n_picks)
    return Job(methodcaller("reduce", SURVEY, request))


def fit_references(
    grid: Grid,
    values: Sequence[Any],
    n_references: int,
    view: Callable[[int], View],
    measure: Callable[[Any], float],
) -> Floats:
    """Fit all values to reference data and measure the fits: (n_references, g).

    ``view`` generates the rows of a reference, so no data are read.
    """
    blank, placeholder = open_blank(grid.data.X, grid.data.rows)
    reference_data = Data(placeholder, origin=grid.data.origin)

    # One view per reference, so that fits of one reference share work.
    views = [view(number) for number in range(n_references)]

    def job(value: Any, number: int) -> Job:
        return Job(lambda rows: measure(grid.fit(value, rows, reference_data)), (views[number],))

    jobs = [job(value, number) for number in range(n_references) for value in values]
    measures: list[float] = []
    for start in range(0, len(jobs), _CONCURRENT):
        # References have no clusters, so their fits converge slowly, and the warning is not useful.
        measures += run_grid(blank, jobs[start : start + _CONCURRENT], ConvergenceWarning)
    return np.array(measures, dtype=np.float64).reshape(n_references, len(values))


def check_references(grid: Grid) -> None:
    """Raise ValueError for an estimator that cannot be fitted to reference data."""
    if callable(getattr(grid.estimator, "init", None)):
        raise ValueError(
            "init must not be callable with references, because a callable needs all rows, and "
            "references are generated block by block. Use a named init such as init='k-means||'."
        )
    if not grid.shares_passes:
        raise ValueError(
            f"{type(grid.estimator).__name__} must not override fit with references, because its "
            "fit needs all rows, and references are generated block by block. Use a criterion "
            "without references, or an estimator of daskclust on preprocessed data."
        )

"""Grids of fits that share their passes, on data and on made-up references, and their curves."""

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
    """Return the first place whose score is within a standard error, if any, of the best.

    Scores are the larger the better, simplest first; NaN where there is none.
    """
    slack = 0.0 if np.isnan(errors[best]) else errors[best]
    return int(np.flatnonzero(scores[: best + 1] >= scores[best] - slack)[0])


@dataclass(frozen=True)
class Selection:
    """Scores over a grid of parameter values, and the choice they suggest.

    Attributes
    ----------
    parameter : str
        Name of the parameter.
    criterion : str
    grid : ndarray of shape (g,)
        Its values, ascending.
    scores : ndarray of shape (g,), float64
        NaN where the criterion is not defined, as for one cluster.
    standard_errors : ndarray of shape (g,), float64
        NaN where none is known.
    greater_is_better : bool
    best_index : int
        Of the best score; the first of equal ones.
    one_se_index : int
        Of the simplest value (fewest clusters, smallest sparsity) that is as good
        within one standard error.
    estimators : tuple
        Fitted on all rows, one for each value.
    passes : int
        Over the data, for all fits together.
    details : dict
        What the scores were made of; see the function that made them.
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
    def best(self) -> Any:
        """Value of the best score."""
        return self.grid[self.best_index].item()

    @property
    def one_se(self) -> Any:
        """Simplest value within one standard error of the best."""
        return self.grid[self.one_se_index].item()

    @property
    def best_estimator(self) -> Any:
        """Estimator of the best score, fitted on all rows."""
        return self.estimators[self.best_index]

    @property
    def one_se_estimator(self) -> Any:
        """Estimator of the one-standard-error choice, fitted on all rows."""
        return self.estimators[self.one_se_index]

    def plot(self, ax: Any = None) -> Any:
        """Draw the curve with its standard errors and both choices.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            A new figure's when omitted.

        Returns
        -------
        matplotlib Axes

        Raises
        ------
        ImportError
            Without matplotlib.
        """
        from daskclust.plotting import draw_selection

        return draw_selection(self, ax)


#: Fits on reference data that advance together: they read nothing, so more would save nothing.
_TOGETHER = 64


def overrides(estimator: Any, *methods: str) -> bool:
    """Whether a class outside this package defines one of the methods of an estimator."""
    for method in methods:
        owner = next((base for base in type(estimator).__mro__ if method in vars(base)), None)
        if owner is None or owner.__module__.partition(".")[0] != __name__.partition(".")[0]:
            return True
    return False


@dataclass(frozen=True)
class Grid:
    """The data of all fits, opened once, and the unfitted estimator that is varied."""

    X: Any
    data: Data
    estimator: Any
    parameter: str
    seed: int

    @property
    def shares_passes(self) -> bool:
        """Whether ``fit`` is the package's; any other is called as it is, with X as given."""
        return not overrides(self.estimator, "fit")

    def fit(self, value: Any, rows: Rows, data: Data | None = None, **given: Any) -> Any:
        """Return a clone with the parameter set to a value, fitted to the grid's data, or others.

        ``rows`` is a handle to the data, whose passes are shared.
        """
        model = clone(self.estimator).set_params(**{self.parameter: value})
        if not self.shares_passes:
            return model.fit(self.X, **given)
        return fit(model, (data or self.data).through(rows), **given)

    def run(self, jobs: Sequence[Job]) -> list[Any]:
        """Run jobs on the data, which share passes where the estimator lets them."""
        if self.shares_passes:
            return run_grid(self.data.rows, jobs)
        with _said_once(()):
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
    """Choose by scores, of which some are numbers."""
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
            f"estimator={estimator!r} has no parameter {parameter!r}. Give an unfitted estimator "
            "that has it, such as daskclust.SparseKMeans() for sparsity or daskclust.KMeans() "
            "for n_clusters."
        )
    if params.get("checkpoint") is not None:
        raise ValueError("The fits of a grid cannot share one checkpoint. Use checkpoint=None.")
    (seed,) = draw_seeds(random_state, 1)
    model = clone(estimator)
    if params.get("random_state", seed) is None:
        # The same for all fits, so that values are compared and not seeds.
        model.set_params(random_state=seed % 2**32)
    return Grid(X, check_data(X), model, parameter, seed)


@contextmanager
def _said_once(silent: type[Warning] | tuple[()]) -> Iterator[None]:
    """Say only once what many fits warn of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    said = set()
    for warning in caught:
        what = warning.category, str(warning.message)
        if what not in said and not issubclass(warning.category, silent):
            said.add(what)
            warnings.warn_explicit(
                str(warning.message), warning.category, warning.filename, warning.lineno
            )


def run_grid(rows: Rows, jobs: Sequence[Job], silent: type[Warning] | tuple[()] = ()) -> list[Any]:
    """Run jobs that share passes; what they warn of is said once, or not at all."""
    with _said_once(silent):
        return run_together(rows, jobs)


def survey_job(grid: Grid, n_picks: int = 0) -> Job:
    """Return a job that makes the first pass, and draws rows from it."""
    request = SurveyRequest(grid.data.X.shape[1], (grid.seed,), n_picks)
    return Job(methodcaller("reduce", SURVEY, request))


def fit_references(
    grid: Grid,
    values: Sequence[Any],
    n_references: int,
    view: Callable[[int], View],
    measure: Callable[[Any], float],
) -> Floats:
    """Measure fits of all values on reference data, whose rows ``view`` makes: (n_references, g).

    Reads nothing.
    """
    blank, stand_in = open_blank(grid.data.X, grid.data.rows)
    made = Data(stand_in, origin=grid.data.origin)

    # One view a reference, so that fits which share it are recognized.
    views = [view(number) for number in range(n_references)]

    def job(value: Any, number: int) -> Job:
        return Job(lambda rows: measure(grid.fit(value, rows, made)), (views[number],))

    jobs = [job(value, number) for number in range(n_references) for value in values]
    found: list[float] = []
    for start in range(0, len(jobs), _TOGETHER):
        # Without clusters fits converge slowly; that needs no warning.
        found += run_grid(blank, jobs[start : start + _TOGETHER], ConvergenceWarning)
    return np.array(found, dtype=np.float64).reshape(n_references, len(values))


def check_references(grid: Grid) -> None:
    """Raise ValueError for an estimator that cannot be fitted to reference data."""
    if callable(getattr(grid.estimator, "init", None)):
        raise ValueError(
            "A callable init is given the data; reference data are made row by row and never "
            "whole. Use a named init, such as init='k-means||'."
        )
    if not grid.shares_passes:
        raise ValueError(
            f"{type(grid.estimator).__name__} has a fit of its own, which is given the data; "
            "reference data are made row by row and never whole. Use a criterion without "
            "references, or an estimator of daskclust on data prepared beforehand."
        )

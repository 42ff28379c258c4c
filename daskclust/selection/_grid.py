"""Grids of fits that share their passes, on the data and on made-up references."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import ConvergenceWarning

from daskclust.engine import Job, Rows, open_blank, open_rows, run_together
from daskclust.estimator.inputs import check_rows
from daskclust.estimator.restarts import draw_seeds
from daskclust.reduction import SURVEY, Survey, SurveyRequest
from daskclust.reduction.views import View

__all__ = ["Data", "fit_references", "look_at", "open_data", "run_grid"]

Float = NDArray[np.float64]

#: Fits on reference data that advance together: they read nothing, so more would save nothing.
_TOGETHER = 64


@dataclass(frozen=True)
class Data:
    """The data of all fits, and the estimator that is varied.

    Attributes
    ----------
    X : array-like, dask.array.Array, DataFrame or xarray.DataArray
        As given.
    rows : Rows
    estimator : BaseEstimator
        Unfitted.
    parameter : str
        What is varied.
    seed : int
    """

    X: Any
    rows: Rows
    estimator: Any
    parameter: str
    seed: int

    def fit(self, value: Any, X: Any = None, **fit_params: Any) -> Any:
        """Return a clone with the parameter set, fitted."""
        model = clone(self.estimator).set_params(**{self.parameter: value})
        return model.fit(self.X if X is None else X, **fit_params)


def open_data(estimator: Any, X: Any, parameter: str, random_state: Any) -> Data:
    """Bind the data once for all fits.

    Raises
    ------
    ValueError
        If the estimator has no such parameter, or has a checkpoint.
    """
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
    return Data(X, open_rows(check_rows(BaseEstimator(), X, reset=True)), model, parameter, seed)


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


def look_at(data: Data, n_picks: int = 0) -> Job:
    """Return a job that makes the first pass, and draws rows from it."""
    request = SurveyRequest(data.rows.n_features, (data.seed,), n_picks)

    def look() -> Survey:
        survey: Survey = open_rows(data.X).reduce(SURVEY, request)
        return survey

    return Job(look)


def fit_references(
    data: Data,
    grid: Sequence[Any],
    n_references: int,
    view: Callable[[int], View],
    measure: Callable[[Any], float],
) -> Float:
    """Measure fits of the whole grid on reference data.

    Parameters
    ----------
    data : Data
    grid : sequence
    n_references : int
    view : callable(number) -> View
        Makes the rows of a reference.
    measure : callable(fitted estimator) -> float

    Returns
    -------
    ndarray of shape (n_references, g), float64

    Notes
    -----
    Reads nothing.  ``_TOGETHER`` fits advance together.
    """
    if callable(getattr(data.estimator, "init", None)):
        raise ValueError(
            "A callable init is given the data; reference data are made row by row and never "
            "whole. Use a named init, such as init='k-means||'."
        )
    blank, stand_in = open_blank(check_rows(BaseEstimator(), data.X, reset=True), data.rows)

    # One view a reference, so that fits which share it are recognized.
    views = [view(number) for number in range(n_references)]

    def job(value: Any, number: int) -> Job:
        return Job(lambda: measure(data.fit(value, stand_in)), (views[number],))

    jobs = [job(value, number) for number in range(n_references) for value in grid]
    found: list[float] = []
    for start in range(0, len(jobs), _TOGETHER):
        # Without clusters fits converge slowly; that is no news.
        found += run_grid(blank, jobs[start : start + _TOGETHER], ConvergenceWarning)
    return np.array(found, dtype=np.float64).reshape(n_references, len(grid))

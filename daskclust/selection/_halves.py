"""Fits to random halves of the rows, and how far they agree with the fit to all."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from sklearn.base import clone

from daskclust._types import Array, Floats
from daskclust.engine import Job, Rows
from daskclust.metrics import ari_of_table
from daskclust.reduction.label_tables import AGREEMENT, AgreementRequest
from daskclust.reduction.views import Subsampled
from daskclust.selection._grid import Grid

#: Share of the rows that each fit sees.
SHARE = 0.5


@dataclass(frozen=True)
class Labels:
    """Labels of rows by a fitted model; travels to the workers."""

    model: Any

    @classmethod
    def of(cls, model: Any) -> Labels:
        """Leave out what is as long as the data."""
        small = copy(model)
        small.__dict__.pop("labels_", None)
        return cls(small)

    def __call__(self, x: Array) -> Array:
        """Return the labels of a block of rows."""
        return np.asarray(self.model.predict(x))


@dataclass(frozen=True)
class Halves:
    """One value of the parameter: the fit, fits to halves, and their agreement.

    Attributes
    ----------
    estimator : estimator
        Fitted to all rows.
    others : tuple of estimators
    tables : ndarray of shape (B, k, k)
        Weight of the rows by both labels, those of ``estimator`` first.
    """

    estimator: Any
    others: tuple[Any, ...]
    tables: Floats

    @property
    def agreement(self) -> Floats:
        """Adjusted Rand index of each half with the whole, over all rows; (B,)."""
        return np.array([ari_of_table(table) for table in self.tables])


def fit_halves(grid: Grid, values: Sequence[int], n_draws: int) -> list[Halves]:
    """Fit all values to all rows and to halves of them; all fits share their passes.

    Raises
    ------
    ValueError
        For an estimator whose ``fit`` is the user's own.
    """
    if not grid.shares_passes:
        raise ValueError(
            f"{type(grid.estimator).__name__} has a fit of its own, which is given all of X; fits "
            "to halves of the rows need the package's. Use an estimator of daskclust on data "
            "prepared beforehand."
        )
    jobs = []
    for value in values:
        jobs.append(Job(partial(grid.fit, value)))
        for draw in range(n_draws):
            own = _with_seed(grid, draw)
            view = Subsampled(SHARE, grid.seed, draw)
            jobs.append(Job(partial(own.fit, value), (view,)))
    models = grid.run(jobs)
    step = 1 + n_draws
    groups = [models[i : i + step] for i in range(0, len(models), step)]
    requests = [
        AgreementRequest(Labels.of(one), tuple(Labels.of(other) for other in others), int(value))
        for value, (one, *others) in zip(values, groups, strict=True)
    ]

    def count(request: AgreementRequest, rows: Rows) -> Floats:
        tables: Floats = rows.reduce(AGREEMENT, request)
        return tables

    tables = grid.run([Job(partial(count, request)) for request in requests])
    return [
        Halves(one, tuple(others), table)
        for (one, *others), table in zip(groups, tables, strict=True)
    ]


def _with_seed(grid: Grid, draw: int) -> Grid:
    """Return the grid with another random state: the same start would look like stability."""
    model = clone(grid.estimator)
    if "random_state" in model.get_params():
        seeds = np.random.SeedSequence([grid.seed, draw]).generate_state(1)
        model.set_params(random_state=int(seeds[0]))
    return replace(grid, estimator=model)

"""Cells of rows around prototypes, and which of them are worth a question.

Questions need no graph of their own kind: rows are summed up by prototypes in all views side
by side, one pass finds how doubtful the rows around each are and which row stands for them,
and the choice is made on the client.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from daskclust._types import Array, Floats, Ints
from daskclust.engine import Rows, open_rows
from daskclust.estimator.inputs import as_cube, check_rows, cube_of_fit
from daskclust.estimator.values import check_values
from daskclust.kernels.nearest.several import nearest_several
from daskclust.prototypes.label_spreading import LabelSpreading
from daskclust.prototypes.picks import spread_out, squared_gaps
from daskclust.prototypes.posterior import Posterior
from daskclust.prototypes.sample import find_prototypes, sample_cube, sample_rows, sample_size
from daskclust.prototypes.views import SampleRows, Space, check_views, find_views
from daskclust.reduction import SURVEY, SurveyRequest
from daskclust.reduction.cells import CELLS, SAME, CellRequest, CellTable
from daskclust.reduction.survey import LARGEST_VALUE

__all__ = ["DOUBTS", "Cells", "Doubt", "OpenRows", "find_cells", "open_for_questions"]


#: Prototypes: at least so many, so many a question, at most so many; a tenth of the rows.
_LEAST, _A_QUESTION, _MOST, _ROWS_A_PROTOTYPE = 400, 4, 2000, 10
#: Rows asked in vain whose places are looked at, at most.
_VAIN = 4096
#: Iterations of k-means for the prototypes.
_LLOYD = 15
#: Columns of :class:`Doubt` before the classes.
DOUBTS = 2


@dataclass(frozen=True)
class Doubt:
    """How doubtful rows are; travels to the workers.

    Parameters
    ----------
    posterior : Posterior
    """

    posterior: Posterior

    def __call__(self, x: Array) -> Floats:
        """Return (n, 2 + c): 1 less the margin, 1 less the best probability, probabilities."""
        found = self.posterior(x)
        if found.shape[1] == 1:
            # Nothing is known of other classes: all rows are alike.
            return np.column_stack([np.ones(len(x)), np.zeros(len(x)), found])
        best = np.partition(found, found.shape[1] - 2, axis=1)[:, -2:]
        return np.column_stack([1 - best[:, 1] + best[:, 0], 1 - best[:, 1], found])


@dataclass(frozen=True)
class OpenRows:
    """Data opened for questions.

    Attributes
    ----------
    rows : Rows
    cube : Cube or None
    model : LabelSpreading or None
    """

    rows: Rows
    cube: Any
    model: LabelSpreading | None

    def sample(self, count: int, seed: int) -> SampleRows:
        """Draw rows, of a cube by their place in the image; one pass."""
        if self.cube is None:
            found = sample_rows(self.rows, count, seed)
        else:
            found = sample_cube(self.cube, count, seed)
        # As a float: the limit is beyond float32.  NaN is not below it either.
        if found.x.size and not float(np.abs(found.x).max()) <= LARGEST_VALUE:
            # Only now is a look at all values worth its pass: to say where the fault lies.
            check_values(self.rows.reduce(SURVEY, SurveyRequest(self.rows.n_features)))
        return found

    @property
    def knows_its_labels(self) -> bool:
        """Whether all labeled rows of the model are nodes of it."""
        return self.model is None or self.model._posterior().spaces[0].references is None

    @property
    def labeled(self) -> Floats:
        """The labeled nodes of the model, in all views side by side."""
        if self.model is None:
            return np.empty((0, 0))
        spaces = self.model._posterior().spaces
        return np.hstack([one.nodes[one.n_prototypes :] for one in spaces])


@dataclass(frozen=True)
class Cells:
    """The rows around each prototype.

    Attributes
    ----------
    space : Space
        All views side by side.
    nodes : ndarray of shape (k, q), float64
    labeled : ndarray of shape (l, q), float64
        Points whose class is known.
    table : CellTable
    """

    space: Space
    nodes: Floats
    labeled: Floats
    table: CellTable

    def place(self, points: Floats) -> Ints:
        """Return the cell of each point."""
        if not len(points):
            return np.empty(0, np.int64)
        return nearest_several(points, self.nodes, 1)[0][:, 0].astype(np.int64)

    def choose(self, count: int) -> tuple[Ints, Ints]:
        """Choose rows to ask about, and their cells.

        Doubtful cells far from what is known come first.  A cell is asked about at the row
        nearest to its prototype, or, where it holds a labeled row already, at a row drawn by
        its doubt.  Where cells run out, rows are drawn evenly.
        """
        table = self.table
        cells = np.arange(len(self.nodes))
        asked_about = np.zeros(len(cells), bool)
        # Rows that were asked in vain repel as labeled ones do: who has no answer to one has
        # none to its neighbors.
        asked = np.concatenate([self.labeled, table.vain])
        asked_about[self.place(asked)] = True
        candidates = np.where(asked_about & (table.drawn >= 0), table.drawn, table.medoids)
        mass = np.where(candidates >= 0, table.doubts[:, 0], 0.0)
        picked = spread_out(self.nodes, mass, asked, count)
        rows = np.concatenate([candidates[picked], table.anywhere])
        places = np.concatenate([cells[picked], table.anywhere_cells])
        _, first = np.unique(rows, return_index=True)
        first = np.sort(first)[:count]
        return rows[first].astype(np.int64), places[first]


def open_for_questions(X: Any, model: LabelSpreading | None) -> OpenRows:
    """Open data, as a model takes them if there is one; no pass but to count rows.

    Raises
    ------
    ValueError
        For another number of features than the model's, and what is no table of numbers.
    """
    cube = as_cube(X)
    if model is None:
        data = check_rows(BaseEstimator(), X, reset=True)
    else:
        data = check_rows(model, X, reset=False)
        cube = None if cube is None else cube_of_fit(model, cube)
    return OpenRows(open_rows(data), cube, model)


def _count_prototypes(n_rows: int, count: int) -> int:
    wanted = min(max(_LEAST, _A_QUESTION * count), _MOST)
    return min(wanted, max(n_rows // _ROWS_A_PROTOTYPE, 2), n_rows)


def find_cells(
    data: OpenRows,
    known: Ints,
    count: int,
    seed: int,
    vain: Ints | None = None,
) -> Cells:
    """Find prototypes, and what lies around each; two passes.

    Parameters
    ----------
    data : OpenRows
    known : ndarray of int64
        Rows that are not to be asked about, ascending.
    count : int
        Of the questions.
    seed : int
    vain : ndarray of int64, optional
        Those of them without an answer, ascending.

    Raises
    ------
    ValueError
        If the model was fitted to other rows, or holds labels that X does not have; for NaN
        and infinity.
    """
    n_prototypes = _count_prototypes(data.rows.n_rows, count)
    sample = data.sample(sample_size(n_prototypes), seed)
    doubt: Callable[[Array], Floats] | None = None
    n_doubts = 1
    if data.model is None:
        space: Space = find_views(check_views("auto", is_cube=data.cube is not None), sample)
        labeled = np.empty((0, space.n_dimensions))
    else:
        space, labeled = data.model._space, data.labeled
        doubt = Doubt(data.model._posterior())
        n_doubts = DOUBTS + len(data.model.classes_)
    size = min(n_prototypes, len(sample.x))
    nodes, _ = find_prototypes(space(sample.x), sample.weight, size, _LLOYD, seed)
    vain = np.empty(0, np.int64) if vain is None else vain
    vain = vain[:: max(-(-len(vain) // _VAIN), 1)]
    request = CellRequest(space, nodes, known, labeled, doubt, n_doubts, count, seed, vain)
    table: CellTable = data.rows.reduce(CELLS, request)
    # Of several points in one place only one is met.
    missed = squared_gaps(labeled[~table.met], labeled[table.met]) > 4 * SAME
    if missed.any():
        raise ValueError(
            f"{int(missed.sum())} of the {len(table.met)} labeled rows that model was fitted "
            "with are not in X; expected the data of the fit. Pass the X that model was fitted "
            "on, or leave out model and give y."
        )
    return Cells(space, nodes, labeled, table)

"""Which rows and pairs are worth a question, and what the answers would change.

Rows are summed up by prototypes in all views side by side; one pass finds how doubtful the rows
around each are and which row stands for them, and the choice is made on the client.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator

from daskclust.core.array_types import Array, Bools, Floats, Ints
from daskclust.core.engine import Rows, open_rows
from daskclust.core.estimator.validation import Scene, check_rows, check_values, scaled_as_fit
from daskclust.core.kernels.nearest.k_nearest import nearest_several
from daskclust.core.reduction import SURVEY, SurveyRequest
from daskclust.core.reduction.connectivity import CELLS, SAME, CellRequest, CellTable
from daskclust.core.reduction.survey import LARGEST_VALUE
from daskclust.semisupervised.excluded import Excluded, read_excluded
from daskclust.semisupervised.feature_views import SampleRows, Space, check_views, find_views
from daskclust.semisupervised.label_spreading import LabelSpreading
from daskclust.semisupervised.predict import Posterior, margins, sharpened
from daskclust.semisupervised.problem import (
    count_prototypes,
    draw_sample,
    find_prototypes,
    sample_size,
)

#: Digits by which nodes are compared: sums in another order must not decide.
_DIGITS = 12


def squared_to_nearest(points: Floats, others: Floats) -> Floats:
    """Squared distance of each point to the nearest of others; infinity without any."""
    found = np.full(len(points), np.inf)
    for other in others:
        np.minimum(found, ((points - other) ** 2).sum(axis=1), out=found)
    return found


def spread_out(points: Floats, mass: Floats, known: Floats, count: int) -> Ints:
    """Choose up to ``count`` heavy points far from those that are known and from each other.

    Farthest-first with weights: the next point is the one whose mass times distance to the
    nearest known or chosen one is the largest.  (By squared distances outliers come first.)
    Without known points the heaviest one is the first.  Points on known or chosen ones come last,
    the heaviest first; those of mass 0 never.  Cost O((m + count) k q).
    """
    left = np.asarray(mass, dtype=np.float64).copy()
    squares = squared_to_nearest(points, known)
    chosen: list[int] = []
    while len(chosen) < count and (left > 0).any():
        scores = left if np.isinf(squares).all() else left * np.sqrt(squares)
        if not (scores > 0).any():
            scores = left
        # Relative to the largest: equal scores differ in their last bits.
        best = int(np.argmax(np.round(scores / scores.max(), _DIGITS)))
        chosen.append(best)
        left[best] = 0.0
        squares = np.minimum(squares, ((points - points[best]) ** 2).sum(axis=1))
    return np.array(chosen, dtype=np.int64)


@dataclass(frozen=True)
class Answers:
    """Answers for the points that were asked about.

    ``component`` (m,) are those of must-links; ``apart`` tells which of them have a cannot-link
    between them; ``neighborhoods`` are components that are all apart from each other, the largest
    first.
    """

    component: Ints
    apart: Bools
    neighborhoods: Ints

    @classmethod
    def of(cls, component: Ints, left: Ints, right: Ints) -> Answers:
        """Find the neighborhoods; ends of the cannot-links are positions in ``component``."""
        count = int(component.max(initial=-1)) + 1
        apart = np.zeros((count, count), bool)
        a, b = component[left], component[right]
        apart[a, b] = apart[b, a] = True
        np.fill_diagonal(apart, False)
        sizes = np.bincount(component, minlength=count)
        chosen: list[int] = []
        for one in np.argsort(-sizes, kind="stable"):
            if apart[one, chosen].all():
                chosen.append(int(one))
        return cls(component, apart, np.array(chosen, np.int64))

    @property
    def undecided(self) -> Ints:
        """Components that are in no neighborhood."""
        count = len(self.apart)
        return np.setdiff1d(np.arange(count), self.neighborhoods)

    def knows(self, one: int, other: int) -> bool:
        a, b = self.component[one], self.component[other]
        return bool(a == b or self.apart[a, b])


def expected_questions(shares: Floats) -> Floats:
    """How many questions place a point, if the most probable neighborhood is asked first."""
    order = -np.sort(-shares, axis=1)
    found: Floats = order @ np.arange(1.0, shares.shape[1] + 1)
    return found


def normalized_uncertainty(shares: Floats) -> Floats:
    """Entropy by the number of questions that it takes to resolve it (NPU; Xiong et al. 2014)."""
    safe = np.where(shares > 0, shares, 1.0)
    entropy = 0.0 - (shares * np.log(safe)).sum(axis=1)  # never -0
    return np.asarray(entropy / expected_questions(shares))


def first_pairs(count: int) -> list[tuple[int, int]]:
    """Pairs of the first points, where nothing is known: all among as few as possible."""
    pairs = ((earlier, later) for later in itertools.count(1) for earlier in range(later))
    return list(itertools.islice(pairs, count))


#: How far an answer travels, as labels do, and how much one row may differ from its cell, as a
#: share of the mean variance.
_ALPHA, _NOISE = 0.9, 0.25


class Foresight(NamedTuple):
    """Shares of all rows after each answer, one draw of answers a line.

    Those with another class than now; growth of the mean probability of the best class.
    """

    changed: Floats
    gain: Floats


def influence(graph: Floats, known: Ints, asked: Ints, noise: float = _NOISE) -> Floats:
    """How much each cell follows the answer at each asked cell: (len(asked), k).

    The field has the covariance ``(I - alpha S)^(-1)``, as label spreading has; it is conditioned
    on the known cells, then on one asked cell after another.  ``noise`` is the variance of an
    answer, in units of the mean variance.  Cost O(k^3 + (len(known) + len(asked)) k^2).
    """
    k = len(graph)
    covariance = np.linalg.inv(np.eye(k) - _ALPHA * graph)
    spare = noise * float(np.trace(covariance)) / k
    steps = []
    for cell in (*np.unique(known), *asked):
        column = covariance[:, cell].copy()
        step = column / (column[cell] + spare)
        covariance -= np.outer(step, column)
        steps.append(step)
    return np.array(steps[len(np.unique(known)) :]).reshape(len(asked), k)


def foresee(
    shares: Floats, mass: Floats, asked: Ints, moves: Floats, draws: int, seed: int
) -> Foresight:
    """Draw answers as the model believes in them, and let them travel as :func:`influence` tells.

    Cost O(draws n k c).
    """
    rng = np.random.default_rng(seed)
    part = mass / mass.sum()
    now, before = shares.argmax(axis=1), float(part @ shares.max(axis=1))
    changed, gain = np.empty((2, draws, len(asked)))
    for d in range(draws):
        field = shares.copy()
        for j, (cell, move) in enumerate(zip(asked, moves, strict=True)):
            believed = np.clip(field[cell], 0.0, None)
            answer = np.zeros(shares.shape[1])
            limit = rng.random() * believed.sum()
            answer[
                np.searchsorted(np.cumsum(believed), limit, side="right").clip(0, len(answer) - 1)
            ] = 1
            field += move[:, None] * (answer - field[cell])
            changed[d, j] = part[field.argmax(axis=1) != now].sum()
            gain[d, j] = part @ np.clip(field.max(axis=1), 0.0, 1.0) - before
    return Foresight(changed, gain)


#: Prototypes: at least so many, so many a question, at most so many.
_LEAST, _A_QUESTION, _MOST = 400, 4, 2000
#: Rows asked in vain whose places are looked at, at most.
_VAIN = 4096
#: How far an answer in vain reaches: so many times the distance between prototypes.
_REACH = 2.0
#: Iterations of k-means for the prototypes.
_LLOYD = 15
#: Columns of :class:`Doubt` before the classes.
DOUBTS = 2


@dataclass(frozen=True)
class Doubt:
    """How doubtful rows are; travels to the workers.

    Margins are those of the mixture with weights that add up to 1.  How sharp the mixture is, which
    a few labels left out decide, changes no class, but it would draw the questions to rows between
    known classes, away from those where nothing is known.
    """

    posterior: Posterior

    def __call__(self, x: Array) -> Floats:
        """Return (n, 2 + c): 1 less the margin, 1 less the best probability, probabilities."""
        sharpness = float(self.posterior.weights.sum()) or 1.0
        even = replace(self.posterior, weights=self.posterior.weights / sharpness)(x)
        probabilities = sharpened(even, sharpness)
        if probabilities.shape[1] == 1:
            # Other classes are unknown, so that all rows are equally uncertain.
            return np.column_stack([np.ones(len(x)), np.zeros(len(x)), probabilities])
        return np.column_stack([1 - margins(even), 1 - probabilities.max(axis=1), probabilities])


@dataclass(frozen=True)
class QuestionData:
    """Data opened for questions; rows that are `excluded` have the weight 0."""

    rows: Rows
    cube: Any
    model: LabelSpreading | None
    excluded: Excluded | None = None

    def sample(self, n_prototypes: int, seed: int) -> SampleRows:
        """Draw rows, of a cube by their place in the image; one pass, and one over a mask."""
        if self.excluded is None:
            found = draw_sample(self.rows, self.cube, n_prototypes, seed)
        else:
            found = self._sample_of_others(self.excluded, sample_size(n_prototypes), seed)
        # As a float: the limit is beyond float32.  NaN is not below it either.
        if found.x.size and not float(np.abs(found.x).max()) <= LARGEST_VALUE:
            # Only now is a look at all values worth its pass: to say where the fault lies.
            check_values(self.rows.reduce(SURVEY, SurveyRequest(self.rows.n_features)))
        return found

    def _sample_of_others(self, excluded: Excluded, count: int, seed: int) -> SampleRows:
        """Draw rows that are not excluded."""
        if self.cube is not None:
            without = excluded.image(self.cube)
            x, neighbors = self.cube.sample_pixels(count, seed, without=without)
            return SampleRows(x, np.ones(len(x)), neighbors)
        # The mask alone is read: as data of one column, of which rows are drawn by weight.
        kept = excluded.kept
        request = SurveyRequest(1, (seed,), count)
        drawn = open_rows(kept[:, None], kept).reduce(SURVEY, request).picks[0]["row"]
        return SampleRows(*self.rows.take(np.sort(drawn[drawn >= 0])))

    @property
    def knows_its_labels(self) -> bool:
        """Whether all labeled rows of the model are nodes of it."""
        return self.model is None or not self.model._posterior.has_other_labels

    @property
    def labeled(self) -> Floats:
        """The labeled nodes of the model, in all views side by side."""
        if self.model is None:
            return np.empty((0, 0))
        graphs = [view.graphs[0] for view in self.model._posterior.views]
        return np.hstack([graph.nodes[graph.n_prototypes :] for graph in graphs])


@dataclass(frozen=True)
class Cells:
    """The rows around each prototype, in the space of all views side by side.

    ``labeled`` are points whose class is known.
    """

    space: Space
    nodes: Floats
    labeled: Floats
    table: CellTable

    def place(self, points: Floats) -> Ints:
        if not len(points):
            return np.empty(0, np.int64)
        return nearest_several(points, self.nodes, 1)[0][:, 0].astype(np.int64)

    def _tellable(self) -> Floats:
        """Return by how much rows asked in vain make each cell less worth a question: (k,).

        Who has no answer to a row has none to its neighbors.  Farther away it says nothing: many
        such rows lie everywhere, and would keep questions from whole classes.
        """
        if not len(self.table.vain):
            return np.ones(len(self.nodes))
        near = nearest_several(self.nodes, self.nodes, min(2, len(self.nodes)))[1][:, -1]
        reach = _REACH * float(np.sqrt(np.median(near))) or 1.0
        apart = np.sqrt(squared_to_nearest(self.nodes, self.table.vain))
        return np.asarray(np.minimum(apart / reach, 1.0))

    def choose(self, count: int) -> tuple[Ints, Ints]:
        """Choose rows to ask about, and their cells, doubtful ones far from what is known first.

        A cell is asked about at the row nearest to its prototype, or, where it holds a labeled row
        already, at a row drawn by its doubt.  Where cells run out, rows are drawn evenly.
        """
        table = self.table
        cells = np.arange(len(self.nodes))
        asked_about = np.zeros(len(cells), bool)
        asked = np.concatenate([self.labeled, table.vain])
        asked_about[self.place(asked)] = True
        candidates = np.where(asked_about & (table.drawn >= 0), table.drawn, table.medoids)
        mass = np.where(candidates >= 0, table.doubts[:, 0], 0.0)
        picked = spread_out(self.nodes, mass * self._tellable(), self.labeled, count)
        rows = np.concatenate([candidates[picked], table.anywhere])
        places = np.concatenate([cells[picked], table.anywhere_cells])
        _, first = np.unique(rows, return_index=True)
        first = np.sort(first)[:count]
        return rows[first].astype(np.int64), places[first]


def open_for_questions(X: Any, model: LabelSpreading | None, exclude: Any = None) -> QuestionData:
    """Open data, as a model takes them if there is one; no pass but to count rows.

    `exclude` are the rows that must not be asked about, as :func:`read_excluded` takes them.
    """
    cube: Any = X if isinstance(X, Scene) else None
    if model is None:
        data = check_rows(BaseEstimator(), X, reset=True)
    else:
        data = check_rows(model, X, reset=False)
        cube = None if cube is None else scaled_as_fit(model, cube)
    if exclude is None:
        return QuestionData(open_rows(data), cube, model)
    excluded = read_excluded(exclude, data, cube)
    return QuestionData(open_rows(data, excluded.kept), cube, model, excluded)


def find_cells(
    data: QuestionData, known: Ints, count: int, seed: int, vain: Ints | None = None
) -> Cells:
    """Find prototypes, and what lies around each; two passes.

    ``known`` are rows that are not to be asked about, ``vain`` those of them without an answer,
    both ascending; ``count`` is that of the questions.
    """
    wanted = min(max(_LEAST, _A_QUESTION * count), _MOST)
    n_prototypes = count_prototypes(wanted, data.rows.n_rows)
    sample = data.sample(n_prototypes, seed)
    if data.excluded is not None:
        if not len(sample.x):
            raise ValueError(
                f"exclude leaves none of the {data.rows.n_rows} rows to ask about; expected rows "
                "that somebody can label. Exclude fewer."
            )
        n_prototypes = count_prototypes(n_prototypes, len(sample.x))
    doubt: Callable[[Array], Floats] | None = None
    n_doubts = 1
    if data.model is None:
        space: Space = find_views(check_views("auto", is_cube=data.cube is not None), sample)
        labeled = np.empty((0, space.n_dimensions))
    else:
        space, labeled = data.model._space, data.labeled
        doubt = Doubt(data.model._posterior)
        n_doubts = DOUBTS + len(data.model.classes_)
    size = min(n_prototypes, len(sample.x))
    found = find_prototypes(space(sample.x), sample.weight, size, _LLOYD, seed)
    nodes = found.centers
    vain = np.empty(0, np.int64) if vain is None else vain
    vain = vain[:: max(-(-len(vain) // _VAIN), 1)]
    request = CellRequest(space, nodes, known, labeled, doubt, n_doubts, count, seed, vain)
    table: CellTable = data.rows.reduce(CELLS, request)
    if data.excluded is None:
        _check_all_met(labeled, table.met)
    return Cells(space, nodes, labeled, table)


def _check_all_met(labeled: Floats, met: Bools) -> None:
    """Refuse labeled rows that are not in X; excluded rows may be labeled, and are not met."""
    # Of several points in one place only one is met.
    missed = squared_to_nearest(labeled[~met], labeled[met]) > 4 * SAME
    if missed.any():
        raise ValueError(
            f"{int(missed.sum())} of the {len(met)} labeled rows that model was fitted "
            "with are not in X; expected the data of the fit. Pass the X that model was fitted "
            "on, or leave out model and give y."
        )

"""Choose rows and pairs to ask about, and estimate the effect of the answers.

Prototypes in all views side by side represent the rows.  One pass computes the uncertainty of the
rows around each prototype, and a row that represents them.  The client chooses.
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

#: Number of decimals by which scores are compared, so that rounding errors do not decide.
_DIGITS = 12


def squared_to_nearest(points: Floats, others: Floats) -> Floats:
    """Return squared distances of points to the nearest of ``others``; infinity without any."""
    squares = np.full(len(points), np.inf)
    for other in others:
        np.minimum(squares, ((points - other) ** 2).sum(axis=1), out=squares)
    return squares


def spread_out(points: Floats, mass: Floats, known: Floats, count: int) -> Ints:
    """Choose up to ``count`` points with a large mass, far from known points and from each other.

    This is a farthest-first traversal with weights.  The next point has the largest product of its
    mass and its distance to the nearest known or chosen point.  (Squared distances would prefer
    outliers.)  Without known points, the first point is the one with the largest mass.  Points that
    equal known or chosen points come last, ordered by mass.  Points of mass 0 are never chosen.
    Cost O((m + count) k q).
    """
    remaining = np.asarray(mass, dtype=np.float64).copy()
    squares = squared_to_nearest(points, known)
    chosen: list[int] = []
    while len(chosen) < count and (remaining > 0).any():
        scores = remaining if np.isinf(squares).all() else remaining * np.sqrt(squares)
        if not (scores > 0).any():
            scores = remaining
        # Scores relative to the maximum, because equal scores differ in their last bits.
        best = int(np.argmax(np.round(scores / scores.max(), _DIGITS)))
        chosen.append(best)
        remaining[best] = 0.0
        squares = np.minimum(squares, ((points - points[best]) ** 2).sum(axis=1))
    return np.array(chosen, dtype=np.int64)


@dataclass(frozen=True)
class Answers:
    """Answers about points.

    ``component`` (m,) are the connected components of must-links.  ``apart`` (c, c) is True for
    components with a cannot-link between them.  ``neighborhoods`` are components that all have
    cannot-links with each other, the largest first.
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
        for candidate in np.argsort(-sizes, kind="stable"):
            if apart[candidate, chosen].all():
                chosen.append(int(candidate))
        return cls(component, apart, np.array(chosen, np.int64))

    @property
    def undecided(self) -> Ints:
        """Components that are not neighborhoods."""
        count = len(self.apart)
        return np.setdiff1d(np.arange(count), self.neighborhoods)

    def knows(self, first: int, second: int) -> bool:
        a, b = self.component[first], self.component[second]
        return bool(a == b or self.apart[a, b])


def expected_questions(shares: Floats) -> Floats:
    """Return the expected number of questions per point, the most probable neighborhood first."""
    descending = -np.sort(-shares, axis=1)
    count: Floats = descending @ np.arange(1.0, shares.shape[1] + 1)
    return count


def normalized_uncertainty(shares: Floats) -> Floats:
    """Return the entropy per expected question (NPU; Xiong et al. 2014)."""
    safe = np.where(shares > 0, shares, 1.0)
    entropy = 0.0 - (shares * np.log(safe)).sum(axis=1)  # 0 instead of -0
    return np.asarray(entropy / expected_questions(shares))


def first_pairs(count: int) -> list[tuple[int, int]]:
    """Return the first pairs without any answers: all pairs among as few points as possible."""
    pairs = ((earlier, later) for later in itertools.count(1) for earlier in range(later))
    return list(itertools.islice(pairs, count))


#: Weight of the neighbors when an answer is spread, and variance of a row within its cell, as a
#: fraction of the mean variance.
_ALPHA, _NOISE = 0.9, 0.25


class Foresight(NamedTuple):
    """Effects of answers, with one row per draw and one column per answer.

    ``changed`` is the share of the data whose class changes, and ``gain`` the increase of the mean
    probability of the most probable class.
    """

    changed: Floats
    gain: Floats


def influence(graph: Floats, known: Ints, asked: Ints, noise: float = _NOISE) -> Floats:
    """Return the weight of the answer at each asked cell for each cell, (len(asked), k).

    The field has the covariance ``(I - alpha S)^(-1)``, as in label spreading.  It is conditioned
    on the known cells, and then on each asked cell in turn.  ``noise`` is the variance of an
    answer, in units of the mean variance.  Cost O(k^3 + (len(known) + len(asked)) k^2).
    """
    k = len(graph)
    covariance = np.linalg.inv(np.eye(k) - _ALPHA * graph)
    noise_variance = noise * float(np.trace(covariance)) / k
    steps = []
    for cell in (*np.unique(known), *asked):
        column = covariance[:, cell].copy()
        step = column / (column[cell] + noise_variance)
        covariance -= np.outer(step, column)
        steps.append(step)
    return np.array(steps[len(np.unique(known)) :]).reshape(len(asked), k)


def foresee(
    shares: Floats, mass: Floats, asked: Ints, moves: Floats, draws: int, seed: int
) -> Foresight:
    """Draw answers from the probabilities of the model, and spread them by :func:`influence`.

    Cost O(draws n k c).
    """
    rng = np.random.default_rng(seed)
    fractions = mass / mass.sum()
    classes, certainty = shares.argmax(axis=1), float(fractions @ shares.max(axis=1))
    changed, gain = np.empty((2, draws, len(asked)))
    for d in range(draws):
        field = shares.copy()
        for j, (cell, move) in enumerate(zip(asked, moves, strict=True)):
            probabilities = np.clip(field[cell], 0.0, None)
            answer = np.zeros(shares.shape[1])
            limit = rng.random() * probabilities.sum()
            answer[
                np.searchsorted(np.cumsum(probabilities), limit, side="right").clip(
                    0, len(answer) - 1
                )
            ] = 1
            field += move[:, None] * (answer - field[cell])
            changed[d, j] = fractions[field.argmax(axis=1) != classes].sum()
            gain[d, j] = fractions @ np.clip(field.max(axis=1), 0.0, 1.0) - certainty
    return Foresight(changed, gain)


#: Minimum number of prototypes, number per question, and maximum number.
_MIN_PROTOTYPES, _PROTOTYPES_PER_QUESTION, _MAX_PROTOTYPES = 400, 4, 2000
#: Maximum number of questions without an answer that are considered.
_MAX_SKIPPED = 4096
#: Distance up to which a question without an answer has an effect, as a multiple of the distance
#: between prototypes.
_REACH = 2.0
#: Maximum number of k-means iterations for the prototypes.
_LLOYD = 15
#: Columns of :class:`Doubt` before the classes.
DOUBTS = 2


@dataclass(frozen=True)
class Doubt:
    """Function that returns the uncertainty of rows; it is sent to the workers.

    Margins are computed with weights scaled to a sum of 1.  The sum of the weights does not change
    classes, and it is inaccurate, because it depends on few left-out labels.  With a large sum,
    questions would move from regions without labels to the boundaries of known classes.
    """

    posterior: Posterior

    def __call__(self, x: Array) -> Floats:
        """Return columns (n, 2 + c): 1 - margin, 1 - largest probability, and probabilities."""
        sharpness = float(self.posterior.weights.sum()) or 1.0
        even = replace(self.posterior, weights=self.posterior.weights / sharpness)(x)
        probabilities = sharpened(even, sharpness)
        if probabilities.shape[1] == 1:
            # Other classes are unknown, so all rows are equally uncertain.
            return np.column_stack([np.ones(len(x)), np.zeros(len(x)), probabilities])
        return np.column_stack([1 - margins(even), 1 - probabilities.max(axis=1), probabilities])


@dataclass(frozen=True)
class QuestionData:
    """Data opened for questions; excluded rows have weight 0."""

    rows: Rows
    cube: Any
    model: LabelSpreading | None
    excluded: Excluded | None = None

    def sample(self, n_prototypes: int, seed: int) -> SampleRows:
        """Draw rows, or pixels of a cube; one pass, and one over the mask of excluded rows."""
        if self.excluded is None:
            sample = draw_sample(self.rows, self.cube, n_prototypes, seed)
        else:
            sample = self._sample_without(self.excluded, sample_size(n_prototypes), seed)
        # As a float, because the limit exceeds float32; also true for NaN.
        if sample.x.size and not float(np.abs(sample.x).max()) <= LARGEST_VALUE:
            # A pass over all values names the first invalid one.
            check_values(self.rows.reduce(SURVEY, SurveyRequest(self.rows.n_features)))
        return sample

    def _sample_without(self, excluded: Excluded, count: int, seed: int) -> SampleRows:
        """Draw rows that are not excluded."""
        if self.cube is not None:
            without = excluded.image(self.cube)
            x, neighbors = self.cube.sample_pixels(count, seed, without=without)
            return SampleRows(x, np.ones(len(x)), neighbors)
        # Only the mask is read, as data of one column with the mask as weight.
        included = excluded.included
        request = SurveyRequest(1, (seed,), count)
        drawn = open_rows(included[:, None], included).reduce(SURVEY, request).picks[0]["row"]
        return SampleRows(*self.rows.take(np.sort(drawn[drawn >= 0])))

    @property
    def knows_its_labels(self) -> bool:
        """True if all labeled rows of the model are nodes."""
        return self.model is None or not self.model._posterior.has_other_labels

    @property
    def labeled(self) -> Floats:
        """Labeled nodes of the model, in all views side by side."""
        if self.model is None:
            return np.empty((0, 0))
        graphs = [view.graphs[0] for view in self.model._posterior.views]
        return np.hstack([graph.nodes[graph.n_prototypes :] for graph in graphs])


@dataclass(frozen=True)
class Cells:
    """Cells of the prototypes in the space of all views side by side.

    ``labeled`` are points with a known class.
    """

    space: Space
    nodes: Floats
    labeled: Floats
    table: CellTable

    def cells_of(self, points: Floats) -> Ints:
        """Return the cell of each point."""
        if not len(points):
            return np.empty(0, np.int64)
        return nearest_several(points, self.nodes, 1)[0][:, 0].astype(np.int64)

    def _answer_factors(self) -> Floats:
        """Return the factors (k,) of cells near questions without an answer.

        If a question has no answer, questions about its neighbors are less likely to be answered.
        The effect is limited to neighbors.  Otherwise, many questions without an answer would
        prevent questions about complete classes.
        """
        if not len(self.table.skipped):
            return np.ones(len(self.nodes))
        near = nearest_several(self.nodes, self.nodes, min(2, len(self.nodes)))[1][:, -1]
        reach = _REACH * float(np.sqrt(np.median(near))) or 1.0
        apart = np.sqrt(squared_to_nearest(self.nodes, self.table.skipped))
        return np.asarray(np.minimum(apart / reach, 1.0))

    def choose(self, count: int) -> tuple[Ints, Ints]:
        """Choose rows, and their cells: uncertain cells far from known points first.

        The question of a cell is the row nearest to its prototype.  If the cell has a labeled row,
        it is a row drawn by its uncertainty.  After all cells, rows are drawn evenly.
        """
        table = self.table
        cells = np.arange(len(self.nodes))
        asked_about = np.zeros(len(cells), bool)
        asked = np.concatenate([self.labeled, table.skipped])
        asked_about[self.cells_of(asked)] = True
        candidates = np.where(asked_about & (table.drawn >= 0), table.drawn, table.medoids)
        mass = np.where(candidates >= 0, table.uncertainties[:, 0], 0.0)
        picked = spread_out(self.nodes, mass * self._answer_factors(), self.labeled, count)
        rows = np.concatenate([candidates[picked], table.anywhere])
        places = np.concatenate([cells[picked], table.anywhere_cells])
        _, first = np.unique(rows, return_index=True)
        first = np.sort(first)[:count]
        return rows[first].astype(np.int64), places[first]


def open_for_questions(X: Any, model: LabelSpreading | None, exclude: Any = None) -> QuestionData:
    """Open data for a model, if any; a pass only counts rows of unknown number.

    ``exclude`` are rows without questions, see :func:`read_excluded`.
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
    return QuestionData(open_rows(data, excluded.included), cube, model, excluded)


def find_cells(
    data: QuestionData, known: Ints, count: int, seed: int, skipped: Ints | None = None
) -> Cells:
    """Find prototypes and their cells for ``count`` questions; two passes.

    ``known`` are row numbers without further questions, and ``skipped`` are the known rows
    whose question had no answer; both ascend.
    """
    wanted = min(max(_MIN_PROTOTYPES, _PROTOTYPES_PER_QUESTION * count), _MAX_PROTOTYPES)
    n_prototypes = count_prototypes(wanted, data.rows.n_rows)
    sample = data.sample(n_prototypes, seed)
    if data.excluded is not None:
        if not len(sample.x):
            raise ValueError(
                f"exclude must leave some of the {data.rows.n_rows} rows for questions, got a mask "
                "of all rows. Exclude fewer rows."
            )
        n_prototypes = count_prototypes(n_prototypes, len(sample.x))
    uncertainty: Callable[[Array], Floats] | None = None
    n_columns = 1
    if data.model is None:
        space: Space = find_views(check_views("auto", is_cube=data.cube is not None), sample)
        labeled = np.empty((0, space.n_dimensions))
    else:
        space, labeled = data.model._space, data.labeled
        uncertainty = Doubt(data.model._posterior)
        n_columns = DOUBTS + len(data.model.classes_)
    size = min(n_prototypes, len(sample.x))
    nodes = find_prototypes(space(sample.x), sample.weight, size, _LLOYD, seed).centers
    skipped = np.empty(0, np.int64) if skipped is None else skipped
    skipped = skipped[:: max(-(-len(skipped) // _MAX_SKIPPED), 1)]
    request = CellRequest(
        space, nodes, known, labeled, uncertainty, n_columns, count, seed, skipped
    )
    table: CellTable = data.rows.reduce(CELLS, request)
    if data.excluded is None:
        _check_all_are_rows(labeled, table.is_row)
    return Cells(space, nodes, labeled, table)


def _check_all_are_rows(labeled: Floats, is_row: Bools) -> None:
    """Raise ValueError for labeled points that are not rows of X."""
    # For equal labeled points, `is_row` is True for only one point.
    absent = squared_to_nearest(labeled[~is_row], labeled[is_row]) > 4 * SAME
    if absent.any():
        raise ValueError(
            f"X must be the data of the fit of model, but {int(absent.sum())} of its {len(is_row)} "
            "labeled rows are not in X. Pass the X of the fit, or y instead of model."
        )

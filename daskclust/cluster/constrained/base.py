"""Base classes of the constrained estimators: sequence of the fit, initial centers, results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from daskclust.cluster.constrained.assignment import SoftConstraints
from daskclust.cluster.constrained.groups import agreeing_components
from daskclust.cluster.constrained.iteration import (
    Assignment,
    ConstrainedLloyd,
    ConstrainedRows,
    RestartState,
    Update,
)
from daskclust.cluster.constrained.updates import within_scatter
from daskclust.core.array_types import Floats, Ints
from daskclust.core.constraints import PairwiseConstraints
from daskclust.core.estimator.base import BaseClusterer, note_observed, warn_few_distinct
from daskclust.core.estimator.fit_loop import (
    FirstPass,
    OpenData,
    draw_seeds,
    fit,
    iterate,
    row_labels,
)
from daskclust.core.estimator.parameters import (
    CENTERS,
    NOT_NEGATIVE,
    RESTARTS,
    Constraints,
    StrOptions,
)
from daskclust.core.estimator.transforms import EUCLIDEAN
from daskclust.core.estimator.validation import (
    Data,
    check_enough_rows,
    check_missing,
)
from daskclust.core.initialization.centers import initial_centers
from daskclust.core.initialization.methods import (
    STRING_INITS,
    n_survey_picks,
    note_compared_rows,
)
from daskclust.core.initialization.problem import Initialization
from daskclust.core.kernels.draws import draw_apart
from daskclust.core.kernels.nearest.assign import (
    direct_distances,
    label_sums,
    observed_label_sums,
)
from daskclust.core.kernels.pairs import Penalty, pair_lengths
from daskclust.core.persistence.schema import CONTRADICTING_PAIRS, Classes, Entry, Number
from daskclust.core.reduction import RowLabels, Survey
from daskclust.core.warn import warn
from daskclust.exceptions import ConstraintWarning

#: Initializations from must-link neighborhoods, and how they initialize the other centers.
_NEIGHBORHOOD_INITS = {
    "neighborhoods": "k-means++",
    "ss-k-means||": "k-means||",
    "ss-k-means++": "k-means++",
}
#: A warning is emitted if constraints raise the within-cluster sum of squares by more than this
#: factor.
_COST_RATIO = 2.0
#: Minimum fraction of violated pairs for a warning, and number of pairs that it lists.
_MANY_VIOLATED, _NAMED_PAIRS = 0.2, 10
#: Part of the seed for drawing neighborhoods, which differs from the seeds of other draws.
_NEIGHBORHOOD_STREAM = 2**33 + 3
#: Maximum number of iterations without constraints, unless features are weighted in rounds.
FREE_ITERATIONS = 10
#: Attributes of constraints in a saved model.
CONSTRAINED_ATTRIBUTES: Mapping[str, Entry] = {
    "contradicting_pairs_": CONTRADICTING_PAIRS,
    "classes_": Classes(),
}


class ConstrainedClusterer(BaseClusterer):
    """Base class of the estimators that iterate :class:`ConstrainedLloyd`.

    A subclass chooses the assignment of constrained rows, and the update after each iteration.
    """

    _saved_state: ClassVar[Mapping[str, Entry]] = {
        "inertia_": Number(low=0),
        "objective_": Number(),
    }

    _parameter_constraints: ClassVar[Constraints] = {
        **RESTARTS,
        "init": [*CENTERS, StrOptions("auto", *_NEIGHBORHOOD_INITS, *STRING_INITS)],
    }
    #: Number of restarts with ``n_init="auto"``, by initialization.  The default is 1.
    _n_auto: ClassVar[Mapping[str, int]] = {"auto": 2}
    #: Number of these restarts that are iterated until they converge.
    _n_survivors: ClassVar[int] = 1

    n_clusters: int
    init: Any
    n_init: Any
    max_iter: int
    tol: float
    random_state: Any
    contradicting_pairs_: Any
    classes_: Any

    @property
    def constraint_violations_(self) -> Any:
        """Violated explicit pairs, a record array of (i, j, kind)."""
        pairs = self.contradicting_pairs_
        return pairs[pairs.violated][["i", "j", "kind"]].copy().view(np.recarray)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_missing(self)

    #: Factor of the scaled penalty; None for other penalties.
    _factor: float | None = None

    @property
    def _compares_initializations(self) -> bool:
        return isinstance(self.init, str) and self.init == "auto"

    def _n_restarts(self) -> int:
        if self.n_init != "auto":
            return int(self.n_init)
        return self._n_auto.get(self.init, 1) if isinstance(self.init, str) else 1

    def _read(self, data: Data, **given: Any) -> PairwiseConstraints:
        check_enough_rows(data, self.n_clusters)
        constraints = PairwiseConstraints.from_fit_arguments(int(data.n_rows), **given)
        self._check_constraints(constraints, weighted=data.weight is not None)
        n_groups = constraints.n_groups
        if n_groups < self.n_clusters:
            warn(
                f"The must-links and labels leave {n_groups} group(s) of rows that stay together, "
                f"fewer than n_clusters={self.n_clusters}. Use n_clusters={n_groups} or less, or "
                "remove must-links.",
                ConstraintWarning,
            )
        return constraints

    def _check_constraints(self, constraints: PairwiseConstraints, *, weighted: bool) -> None:
        """Warn if soft constraints contradict each other."""
        constraints.warn_of_contradictions()
        if constraints.n_classes > self.n_clusters:
            warn(
                f"y has {constraints.n_classes} classes for n_clusters={self.n_clusters}, so some "
                "of the cannot-links between classes will be violated. Use n_clusters="
                f"{constraints.n_classes} or more, or fewer classes.",
                ConstraintWarning,
            )

    def _first_pass(self, data: Data, read: PairwiseConstraints) -> FirstPass:
        n_restarts = self._n_restarts()
        has_neighborhoods = read.pair_is_must_link.any() or read.n_classes
        if self._compares_initializations and (has_neighborhoods or self.n_init == "auto"):
            # Every second restart begins at must-link neighborhoods, if there are any.
            n_restarts = -(-n_restarts // 2)
        picks = n_survey_picks(self.init, self.n_clusters, data.X.shape[0])
        # At least one row is drawn, because labels may change the initialization.
        return FirstPass(draw_seeds(self.random_state, n_restarts), max(1, picks))

    def _assignment(self, data: OpenData, rows: ConstrainedRows) -> Assignment:
        return Assignment()

    def _update(self, data: OpenData, assignment: Assignment) -> Update:
        return Update(self.tol * data.survey.variance)

    def _problem(self, data: OpenData, read: PairwiseConstraints) -> ConstrainedLloyd:
        rows = ConstrainedRows.fetch(data.rows, read)
        assignment = self._assignment(data, rows)
        begin = partial(self._initial_states, data, rows)
        return self._lloyd(data, rows, assignment, begin)

    def _lloyd(
        self,
        data: OpenData,
        rows: ConstrainedRows,
        assignment: Assignment,
        begin: Callable[[], Sequence[RestartState]],
        limit: int | None = None,
    ) -> ConstrainedLloyd:
        """Return the iterations; with a single round, `limit` is their maximum number."""
        update, max_passes = self._update(data, assignment), int(self.max_iter)
        single_round = limit is not None and update.max_rounds == 1
        return ConstrainedLloyd(
            data.rows,
            data.rows.excluding(rows.constraints.rows),
            rows,
            assignment,
            update,
            begin,
            data.survey,
            max_iter=limit if limit and single_round else max_passes * update.max_rounds,
            max_passes=max_passes,
            n_survivors=self._n_survivors if self.n_init == "auto" else None,
        )

    def _initial_states(self, data: OpenData, rows: ConstrainedRows) -> list[RestartState]:
        auto = self._compares_initializations
        sets = (
            initial_centers(Initialization(data, self.n_clusters))
            if auto
            else self._centers_of_restarts(data, rows)
        )
        m, missing = len(rows.x), bool(data.survey.n_incomplete > 0)
        states = [RestartState.begin(centers, None, m, missing=missing) for centers in sets]
        if not m or not (auto or self._factor is not None):
            return states
        free, best = self._without_constraints(data, sets)
        spread = within_scatter(free[best], data.survey) / data.survey.weight
        if auto:
            states = [
                RestartState.begin(centers, weights, m, missing=missing)
                for centers, weights in self._alternate_initializations(data, rows, free)
            ]
        unit = None if self._factor is None else self._factor * spread
        return [replace(state, unit=unit, spread=spread) for state in states]

    def _without_constraints(
        self, data: OpenData, sets: Floats
    ) -> tuple[tuple[RestartState, ...], int]:
        """Iterate without constraints; return the restarts and the index of the best restart."""
        no_constraints = PairwiseConstraints.from_fit_arguments(data.rows.n_rows)
        rows, missing = (
            ConstrainedRows.fetch(data.rows, no_constraints),
            bool(data.survey.n_incomplete > 0),
        )
        states = [RestartState.begin(centers, None, 0, missing=missing) for centers in sets]
        problem = self._lloyd(data, rows, Assignment(), lambda: states, FREE_ITERATIONS)
        restarts = iterate(problem, f"{type(self).__name__} (no constraints)").state
        return restarts, problem.best(restarts)

    def _alternate_initializations(
        self, data: OpenData, rows: ConstrainedRows, free: Sequence[RestartState]
    ) -> list[tuple[Floats, Floats | None]]:
        """Return centers and weights, alternately without constraints and from neighborhoods."""
        k, initializations = self.n_clusters, list[tuple[Floats, Floats | None]]()
        n_from_pairs = self._n_restarts() - len(free)
        for i, (state, seed) in enumerate(zip(free, data.seeds, strict=False)):
            if not state.dropped:
                initializations.append((state.centers, state.weights))
            neighborhoods = choose_neighborhoods(rows, k, agreeing=True, seed=seed if i else None)
            if i >= n_from_pairs or not len(neighborhoods.centroids):
                continue
            known = np.where(
                np.isnan(neighborhoods.centroids), data.survey.mean, neighborhoods.centroids
            )
            points = np.concatenate([known, state.centers])
            mass = np.concatenate([neighborhoods.weights, state.counts])
            uniforms = np.random.default_rng([seed, _NEIGHBORHOOD_STREAM]).random(k)
            drawn = draw_apart(points, mass, k, uniforms, len(known))
            # With fewer than k distinct points, points are repeated.
            initializations.append((points[np.resize(drawn, k)], None))
        return initializations

    def _centers_of_restarts(self, data: OpenData, constrained: ConstrainedRows) -> Floats:
        k, rows = self.n_clusters, data.rows
        if not isinstance(self.init, str) or self.init not in _NEIGHBORHOOD_INITS:
            return initial_centers(Initialization(data, k, self.init))
        neighborhoods = choose_neighborhoods(constrained, k, agreeing=self.init != "neighborhoods")
        # A feature without values in a neighborhood gets the mean of all rows.
        known = np.where(
            np.isnan(neighborhoods.centroids), data.survey.mean, neighborhoods.centroids
        )
        n_missing = k - len(known)
        is_drawn = _NEIGHBORHOOD_INITS[self.init] != "k-means||" and n_missing > 0
        if is_drawn and rows.n_rows - len(neighborhoods.rows) >= n_missing:
            # These rows already belong to an initial center.
            rows = rows.excluding(neighborhoods.rows)
        data = replace(data, rows=rows)
        return initial_centers(Initialization(data, k, _NEIGHBORHOOD_INITS[self.init], known))

    @property
    def _prediction_weights(self) -> Floats | None:  # type: ignore[override]
        w: Floats | None = getattr(self, "assignment_weights_", None)
        return None if w is None or (w == 1).all() else w

    def _finish(
        self,
        data: OpenData,
        problem: ConstrainedLloyd,
        state: tuple[RestartState, ...],
        history: list[dict[str, Any]],
    ) -> None:
        note_compared_rows(history, self.init, data.rows.n_rows, self.n_clusters)
        number = problem.best(state)
        best, constraints = state[number], problem.constrained.constraints
        if history and "restarts" in history[0]:
            passes = history[-1]["passes"]
            # Only the records of the selected restart remain.
            history = [
                {key: value for key, value in record.items() if key != "restarts"}
                | record["restarts"][number]
                for record in history
                if record["restarts"][number] is not None
            ]
            # Passes are those of all restarts.
            history[-1]["passes"] = passes
        self.history_ = history
        self._metric = EUCLIDEAN
        self._centers = self.cluster_centers_ = best.centers
        self.n_iter_ = len(self.history_)
        self.inertia_ = float(self.history_[-1]["inertia"])
        for name, value in problem.update.attributes(best).items():
            setattr(self, name, value)
        problem.update.warn(best, self.history_[-1])
        _warn_of_costly_pairs(best, data.survey)
        if type(problem.assignment) is not Assignment:
            self.contradicting_pairs_ = _contradicting_pairs(problem.constrained, best)
            self.classes_ = constraints.class_values
            if isinstance(problem.assignment, SoftConstraints):
                _warn_of_violations(self.contradicting_pairs_, constraints.n_pairs)
        warn_few_distinct(int((best.counts > 0).sum()), self.n_clusters)
        note_observed(self, None if best.masses is None else best.masses > 0)
        function = self._row_function(data.rows.dtype)
        if not best.settled:
            # The last pass moved the centers, but labels are for the centers before.
            w = best.assignment_weights
            function = function.with_centers(best.assignment_centers, None if (w == 1).all() else w)
        known = RowLabels(constraints.rows, best.labels.astype(np.int32), self.n_clusters)
        self.labels_ = row_labels(data, function, known)


def _warn_of_costly_pairs(state: RestartState, survey: Survey) -> None:
    if state.spread is None:
        return
    w = state.assignment_weights
    before = float(w @ state.spread) * survey.weight
    after = float(w @ within_scatter(state, survey))
    if after > _COST_RATIO * before > 0:
        warn(
            f"The constraints raise the within-cluster sum of squares to {after / before:.2g} "
            "times its value without them. Check the pairs in contradicting_pairs_, or use "
            'PCKMeans with penalty="scaled" and weights of 1: it violates constraints that cost '
            "too much.",
            ConstraintWarning,
        )


def _contradicting_pairs(constrained: ConstrainedRows, state: RestartState) -> Any:
    distances = direct_distances(
        constrained.x, state.assignment_centers, state.assignment_weights, missing=True
    )
    distances *= constrained.weight[:, None]
    return constrained.constraints.contradicting(state.labels, distances)


def _warn_of_violations(contradicting: Any, n_pairs: int) -> None:
    """Warn if many pairs are violated, and name those that contradict the clusters most."""
    violated = contradicting[contradicting.violated]
    if len(violated) < max(_NAMED_PAIRS, _MANY_VIOLATED * n_pairs):
        return
    names = (f"{pair.i}-{pair.j} ({pair.kind})" for pair in violated[:_NAMED_PAIRS])
    warn(
        f"{len(violated)} of {n_pairs} pairs are violated ({len(violated) / n_pairs:.0%}). These "
        f"contradict the clusters most: {', '.join(names)}. Check these pairs. "
        "contradicting_pairs_ lists all pairs that contradict the clusters.",
        ConstraintWarning,
    )


class PairwiseClusterer(ConstrainedClusterer):
    """Base class of the estimators whose constraints may be violated at a cost."""

    _saved_state: ClassVar[Mapping[str, Entry]] = CONSTRAINED_ATTRIBUTES
    _parameter_constraints: ClassVar[Constraints] = {
        **ConstrainedClusterer._parameter_constraints,
        "penalty": [NOT_NEGATIVE, StrOptions("scaled", "distance", "constant")],
    }

    penalty: Any

    @property
    def _factor(self) -> float | None:  # type: ignore[override]
        if isinstance(self.penalty, str):
            return 1.0 if self.penalty == "scaled" else None
        return float(self.penalty)

    @property
    def _penalty(self) -> Penalty:
        return self.penalty if self._factor is None else "scaled"

    def _assignment(self, data: OpenData, rows: ConstrainedRows) -> Assignment:
        return SoftConstraints.of(rows, data.survey, self._penalty, 2 * len(data.seeds))

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        must_link: Any = None,
        cannot_link: Any = None,
        must_link_weight: Any = None,
        cannot_link_weight: Any = None,
        sample_weight: Any = None,
    ) -> Self:
        """Find the clusters.

        Parameters
        ----------
        X : array-like, dask.array.Array, DataFrame or xarray.DataArray of shape (n, p)
            Rows to cluster.
        y : array-like or dask.array.Array of shape (n,), or (rows, labels), optional
            Partial labels, as in :meth:`SemiSupervisedKMeans.fit`.  Two labeled rows are
            must-linked if their labels agree, and cannot-linked otherwise.  Labels are not names of
            clusters.
        must_link, cannot_link : array-like of shape (m, 2), int, optional
            Pairs of global row numbers.  If X is a pandas DataFrame, text and dates are looked up
            in its index; integers are row numbers.  A repeated pair counts repeatedly.
        must_link_weight, cannot_link_weight : float or array-like of shape (m,), optional
            Weights of the pairs, 1 by default.  A weight of 0 disables a pair.  A single number
            also applies to the pairs that labels imply.
        sample_weight : array-like or dask.array.Array of shape (n,), optional
            Weights of the rows: an integer weight equals repetition, 0 absence.  They do not change
            the weights of pairs.
            Cubes also accept an image (y, x) and ``"area"``; see
            :meth:`daskclust.Cube.row_weights`.

        Returns
        -------
        self
        """
        return fit(
            self,
            X,
            sample_weight,
            y=y,
            must_link=must_link,
            cannot_link=cannot_link,
            must_link_weight=must_link_weight,
            cannot_link_weight=cannot_link_weight,
        )


class Neighborhoods(NamedTuple):
    """Groups of rows that belong together.

    `centroids` (h, p) are NaN for a feature without values.  `weights` (h,) are total weights.
    `rows` (m,) are the ascending numbers of the rows of all groups.
    """

    centroids: Floats
    weights: Floats
    rows: Ints


def agreeing_groups(constrained: ConstrainedRows) -> Ints:
    """Group must-linked rows and rows of one label, without violating cannot-links.

    Must-links are used by decreasing weight, then by increasing length.  A must-link is skipped if
    it would join groups that a cannot-link separates.  Groups are numbered in the order of their
    smallest rows.
    """
    c = constrained.constraints
    if not c.n_contradictions:
        return c.component
    must = np.flatnonzero(c.pair_is_must_link)
    left, right = c.pair_left[must], c.pair_right[must]
    lengths = pair_lengths(constrained.x, left, right, np.ones(constrained.x.shape[1]))
    low, high = np.minimum(left, right), np.maximum(left, right)
    order = np.lexsort((high, low, lengths, -c.pair_weight[must]))
    # Each labeled row is joined to the next row of its class, before all pairs.
    labeled = np.flatnonzero(c.classes >= 0)
    labeled = labeled[np.argsort(c.classes[labeled], kind="stable")]
    same = c.classes[labeled[1:]] == c.classes[labeled[:-1]]
    left = np.concatenate([labeled[:-1][same], left[order]])
    right = np.concatenate([labeled[1:][same], right[order]])
    cannot = np.flatnonzero(~c.pair_is_must_link)
    cannot_links = np.column_stack([c.pair_left[cannot], c.pair_right[cannot]])
    return agreeing_components(left, right, cannot_links, c.classes)


def choose_neighborhoods(
    constrained: ConstrainedRows, k: int, *, agreeing: bool, seed: int | None = None
) -> Neighborhoods:
    """Choose at most k neighborhoods: the largest, then weighted farthest-first.

    This is the "Seeding" of the PCSKM paper: the next neighborhood maximizes the smallest
    ``|c - c'| sqrt(n n')`` to the chosen neighborhoods.  With a `seed`, neighborhoods are drawn in
    proportion to ``n |c - c'|^2`` instead.  Neighborhoods are :func:`agreeing_groups` if
    `agreeing`, else the components of the must-links, as in the paper.  The result also contains
    the rows of neighborhoods that are not chosen.
    """
    c = constrained.constraints
    group = agreeing_groups(constrained) if agreeing else c.component
    # Rows in groups of several rows, and labeled rows.
    used = np.flatnonzero((np.bincount(group)[group] > 1) | (c.classes >= 0))
    if not len(used):
        return Neighborhoods(constrained.x[:0].astype(np.float64), np.empty(0), c.rows[:0])
    _, number = np.unique(group[used], return_inverse=True)
    arguments = constrained.x[used], constrained.weight[used], number, int(number.max()) + 1
    if constrained.are_complete:
        sums, weights = label_sums(*arguments)
        centroids = sums / weights[:, None]
    else:
        sums, masses, weights = observed_label_sums(*arguments)
        centroids = np.divide(sums, masses, out=np.full_like(sums, np.nan), where=masses > 0)
    order = np.argsort(-weights, kind="stable")
    centroids, weights = centroids[order], weights[order]
    if seed is not None and len(centroids) > k:
        observed = ~np.isnan(centroids)
        mean = np.where(observed, centroids, 0.0).sum(axis=0) / np.maximum(observed.sum(axis=0), 1)
        points = np.where(observed, centroids, mean)
        drawn = draw_apart(points, weights, k, np.random.default_rng(seed).random(k))
        return Neighborhoods(centroids[drawn], weights[drawn], c.rows[used])
    chosen: list[int] = []
    min_distances = np.full(len(centroids), np.inf)
    while len(chosen) < min(k, len(centroids)):
        # All distances are infinite at first, so the first choice is the largest neighborhood.
        new = int(np.argmax(min_distances))
        distances = direct_distances(
            centroids, centroids[new : new + 1], missing=not constrained.are_complete
        )
        min_distances = np.minimum(
            min_distances, np.sqrt(distances[:, 0]) * np.sqrt(weights * weights[new])
        )
        chosen.append(new)
        min_distances[chosen] = -1.0
    return Neighborhoods(centroids[chosen], weights[chosen], c.rows[used])

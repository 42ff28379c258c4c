"""Iterations of constrained k-means: assign all rows, fill empty clusters, move the centers.

Rows without a constraint are assigned block by block.  The constrained rows are few: they are
fetched once and assigned on the client.  An estimator combines an :class:`Assignment` of the
constrained rows and an :class:`Update` after each iteration.  :class:`ConstrainedLloyd` iterates
with them.  All restarts of a fit share every pass over the data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, NamedTuple, Self

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from daskclust.core.array_types import Array, Floats, Ints
from daskclust.core.constraints import PairwiseConstraints
from daskclust.core.engine import Rows
from daskclust.core.estimator.fit_loop import Step, best_restart
from daskclust.core.initialization.steps import fill_empty, relocate_empty
from daskclust.core.kernels.nearest.assign import (
    direct_distances,
    label_sums,
    observed_label_sums,
    off_center,
)
from daskclust.core.kernels.pairs import Penalty, Violations
from daskclust.core.reduction import ASSIGN, CenterSets, Clusters, Survey
from daskclust.core.warn import warn
from daskclust.exceptions import ConstraintWarning

#: Minimum number of iterations before restarts are compared.
_COMPARED_PASSES = 5


@dataclass(frozen=True, eq=False)
class ConstrainedRows:
    """Constraints and the rows to which they apply.

    `x` (m, p) are the constrained rows, in row order.  `weight` (m,) are their positive sample
    weights.  `are_complete` is True if no value is missing.
    """

    constraints: PairwiseConstraints
    x: Array
    weight: Floats
    are_complete: bool

    @classmethod
    def fetch(cls, rows: Rows, constraints: PairwiseConstraints) -> Self:
        """Fetch the constrained rows in one pass over the chunks that contain them.

        Rows of weight 0 and rows without values are removed, with their constraints.
        """
        if not len(constraints.rows):
            return cls(constraints, np.empty((0, rows.n_features)), np.empty(0), True)
        x, weight = rows.take(constraints.rows)
        missing = np.isnan(x)
        is_unused = (weight == 0) | missing.all(axis=1)
        if is_unused.any():
            remaining = constraints.without(is_unused)
            n_labels = int(((constraints.classes >= 0) & is_unused).sum())
            warn(
                f"{int(is_unused.sum())} constrained row(s) have sample_weight 0 or no values (the "
                f"first is row {int(constraints.rows[is_unused][0])}). They are ignored, including "
                f"their {constraints.n_pairs - remaining.n_pairs} pair(s) and {n_labels} label(s).",
                ConstraintWarning,
            )
            positions = np.searchsorted(constraints.rows, remaining.rows)
            constraints, x, weight = remaining, x[positions], weight[positions]
            missing = missing[positions]
        return cls(constraints, x, weight, not missing.any())

    def farthest(
        self, centers: Floats, weights: Floats, labels: Ints
    ) -> Iterator[tuple[Floats, float, int]]:
        """Yield (row, weight, cluster) of rows away from their centers, farthest first."""
        distances = direct_distances(self.x, centers, weights, missing=True)
        lengths = distances[np.arange(len(labels)), labels]
        is_off_center = off_center(self.x, lengths, weights)
        for i in np.argsort(-lengths, kind="stable"):
            if is_off_center[i]:
                yield self.x[i].astype(np.float64), float(self.weight[i]), int(labels[i])


class Assignment:
    """Assignment of the constrained rows; the base class is for fits without constraints."""

    #: Cost of a violated pair.
    penalty: Penalty = "constant"

    def assign(
        self, distances: Floats, weights: Floats, labels: Ints, unit: Floats | None
    ) -> tuple[Ints, dict[str, Any]]:
        """Return new labels of the constrained rows, and entries of ``history_``.

        `distances` (m, k) are weighted squared distances to the centers, with the feature weights
        `weights` (p,).  `labels` (m,) are previous labels, or -1.  `unit` (p,) is the cost of a
        violated pair by feature, for ``penalty="scaled"``.
        """
        return labels, {}

    def violations(self, labels: Ints) -> Violations | None:
        """Return sums over the violated pairs; None if pairs cannot be violated."""
        return None


@dataclass(frozen=True, kw_only=True)
class RestartState:
    """State of one restart after an iteration.

    - `centers` (k, p): means of the clusters.
    - `weights` (p,): newest feature weights of distances.
    - `assignment_centers`, `assignment_weights`: centers and weights of the last assignment.
    - `labels` (m,): labels of the constrained rows, or -1.
    - `sums` (k, p), `counts` (k,): statistics of the clusters; NaN before the first labels.
    - `masses` (k, p): weight of the observed values, if some values are missing.
    - `round`: number of the round, from 1.  `passes`: iterations in this round.
    - `settled`: True if the last iteration changed nothing.
    - `n_refounded`: number of iterations in which a constrained row filled an empty cluster.
    - `unit` (p,): cost of a violated pair of weight 1 by feature, for ``penalty="scaled"``.
    - `spread` (p,): mean squared difference of rows and centers without constraints, if computed.
    - `dropped`: True if the restart ended early because other restarts were better.
    """

    centers: Annotated[Floats, "f k p"]
    weights: Annotated[Floats, "f p"]
    assignment_centers: Annotated[Floats, "f k p"]
    assignment_weights: Annotated[Floats, "f p"]
    labels: Annotated[Ints, "i t"]
    sums: Annotated[Floats, "f k p"]
    counts: Annotated[Floats, "f k"]
    masses: Annotated[Floats | None, "? f k p"] = None
    objective: Annotated[float, "f"] = np.inf
    round: Annotated[int, "i"] = 1
    passes: Annotated[int, "i"] = 0
    settled: Annotated[bool, "b"] = False
    finished: Annotated[bool, "b"] = False
    n_refounded: Annotated[int, "i"] = 0
    unit: Annotated[Floats | None, "? f p"] = None
    spread: Annotated[Floats | None, "? f p"] = None
    dropped: Annotated[bool, "b"] = False

    @classmethod
    def begin(
        cls, centers: Floats, weights: Floats | None, n_constrained: int, *, missing: bool
    ) -> Self:
        """Return the state before the first iteration; `weights` are ones by default."""
        weights = np.ones(centers.shape[1]) if weights is None else weights
        return cls(
            centers=centers,
            weights=weights,
            assignment_centers=centers,
            assignment_weights=weights,
            labels=np.full(n_constrained, -1, dtype=np.int64),
            sums=np.full_like(centers, np.nan),
            counts=np.full(len(centers), np.nan),
            masses=np.full_like(centers, np.nan) if missing else None,
        )

    @property
    def observed(self) -> Floats:
        """Weights of the clusters (k,), or of their observed values (k, p)."""
        return self.counts if self.masses is None else self.masses

    def forget_labels(self) -> Self:
        return replace(
            self,
            labels=np.full_like(self.labels, -1),
            sums=np.full_like(self.sums, np.nan),
            counts=np.full_like(self.counts, np.nan),
            settled=False,
        )


class Iteration(NamedTuple):
    """One iteration of one restart.

    `squared_shift` is the weighted squared shift of all centers.  `repaired` is True if an empty
    cluster received a row.  `refounded` is True if this row is constrained; labels are then reset.
    `last` is True if the round has the maximum number of passes.
    """

    before: RestartState
    state: RestartState
    squared_shift: float
    repaired: bool
    refounded: bool
    last: bool
    violations: Violations | None

    def has_converged(self, tolerance: Floats) -> bool:
        """Return True if the weighted squared shift is at most the weighted mean of `tolerance`.

        `tolerance` has shape (p,).  If it is 0, nothing may have changed.
        """
        if self.state.settled or self.repaired or not tolerance.any():
            return bool(self.state.settled)
        allowed = float((self.state.assignment_weights * tolerance).mean())
        return self.squared_shift <= allowed


@dataclass(frozen=True)
class Update:
    """Update after the centers have moved; the base class minimizes Eq. 8 with fixed weights.

    `tolerance` (p,): see :meth:`Iteration.has_converged`.  `max_rounds`: maximum number of rounds,
    which differ by their feature weights.
    """

    tolerance: Any
    max_rounds: int = field(default=1, kw_only=True)

    def is_comparable(self, state: RestartState) -> bool:
        """Return True if the cost of a restart predicts its final cost."""
        return state.passes >= _COMPARED_PASSES

    def update(self, iteration: Iteration) -> tuple[RestartState, dict[str, Any]]:
        """Return the state for the next iteration, and entries of the record."""
        converged = iteration.has_converged(self.tolerance)
        return replace(iteration.state, finished=converged), {"converged": converged}

    def cost(self, state: RestartState) -> float:
        """Return the cost by which restarts are compared."""
        return state.objective

    def attributes(self, state: RestartState) -> dict[str, Any]:
        """Return the fitted attributes that depend on the update."""
        return {"objective_": float(state.objective)}

    def warn(self, state: RestartState, record: Mapping[str, Any]) -> None:
        """Warn if the fit did not converge; `record` is the last one."""
        if not record["converged"]:
            warn(
                f"The clusters had not converged after {state.passes} passes (max_iter). Raise "
                "max_iter, or tol.",
                ConvergenceWarning,
            )


@dataclass(frozen=True)
class ConstrainedLloyd:
    """Constrained k-means with an assignment of the constrained rows and an update.

    `start` returns the initial states of all restarts.  `max_iter` is the maximum number of
    iterations, and `max_passes` the maximum number in a round.  As soon as restarts are comparable,
    only `n_survivors` of them continue; None means all.
    """

    kind: ClassVar[Any] = tuple[RestartState, ...]

    rows: Rows
    unconstrained: Rows
    constrained: ConstrainedRows
    assignment: Assignment
    update: Update
    start: Callable[[], Sequence[RestartState]]
    survey: Survey
    max_iter: int
    max_passes: int
    n_survivors: int | None = None

    @property
    def missing(self) -> bool:
        return bool(self.survey.n_incomplete > 0)

    @property
    def sizes(self) -> Mapping[str, int]:
        return {"t": len(self.constrained.x)}

    def identity(self) -> Mapping[str, Any]:
        return {"constraints": self.constrained.constraints.digest()}

    def begin(self) -> tuple[RestartState, ...]:
        """Return the initial states; restarts with equal centers are iterated once."""
        states: list[RestartState] = []
        for state in self.start():
            if not any(np.array_equal(state.centers, other.centers) for other in states):
                states.append(state)
        return tuple(states)

    def step(self, restarts: tuple[RestartState, ...]) -> Step[tuple[RestartState, ...]]:
        """Iterate all restarts that are not finished, in one pass."""
        active = [r for r, state in enumerate(restarts) if not state.finished]
        sets = CenterSets(
            np.stack([restarts[r].centers for r in active]),
            np.stack([restarts[r].weights for r in active]),
            shift=self.survey.mean,
            missing=self.missing,
        )
        stats = self.unconstrained.reduce(ASSIGN, sets)
        states = list(restarts)
        records: list[dict[str, Any] | None] = [None] * len(restarts)
        provisional = False
        for i, r in enumerate(active):
            states[r], records[r], may_change = self._iterate(
                restarts[r], stats.of(i), float(stats.inertia[i].sum())
            )
            provisional |= may_change
        states = self._drop_worst(states)
        new_records = [record for record in records if record is not None]
        single = len(records) == 1
        return Step(
            tuple(states),
            objective=min(record["objective"] for record in new_records),
            center_shift=max(record["center_shift"] for record in new_records),
            moved=new_records[0]["moved"] if single else None,
            finished=all(state.finished for state in states),
            extra=new_records[0] if single else {"restarts": records},
            provisional=provisional,
        )

    def best(self, restarts: Sequence[RestartState]) -> int:
        """Return the restart with the lowest cost that was not dropped."""
        remaining = [r for r, state in enumerate(restarts) if not state.dropped]
        if len(remaining) == 1:
            return remaining[0]
        return remaining[best_restart([self.update.cost(restarts[r]) for r in remaining])]

    def _drop_worst(self, restarts: list[RestartState]) -> list[RestartState]:
        """Drop all but the `n_survivors` best restarts as soon as all are comparable."""
        if self.n_survivors is None or any(state.dropped for state in restarts):
            return restarts
        for state in restarts:
            # Restarts without labels cannot be compared.
            has_clusters = not np.isnan(state.counts).any()
            if not (state.finished or (has_clusters and self.update.is_comparable(state))):
                return restarts
        worst = list(range(len(restarts)))
        for _ in range(min(self.n_survivors, len(worst))):
            worst.pop(best_restart([self.update.cost(restarts[r]) for r in worst]))
        return [
            replace(state, finished=True, dropped=True) if r in worst else state
            for r, state in enumerate(restarts)
        ]

    def _iterate(
        self, state: RestartState, others: Clusters, inertia: float
    ) -> tuple[RestartState, dict[str, Any], bool]:
        """Assign the constrained rows of a restart, and move its centers.

        `others` and `inertia` are statistics of the unconstrained rows.  Return the new state, the
        record, and True if the state depends on the maximum number of passes.
        """
        w, rows = state.weights, self.constrained
        distances = direct_distances(rows.x, state.centers, w, missing=self.missing)
        distances *= rows.weight[:, None]
        labels, entries = self.assignment.assign(distances, w, state.labels, state.unit)
        if others.masses is None:
            sums, counts = label_sums(rows.x, rows.weight, labels, len(others.counts))
            assigned = Clusters(others.sums + sums, others.counts + counts)
        else:
            constrained_sums = observed_label_sums(rows.x, rows.weight, labels, len(others.counts))
            assigned = Clusters(
                others.sums + constrained_sums.sums,
                others.counts + constrained_sums.counts,
                others.masses + constrained_sums.masses,
            )
        inertia += float(distances[np.arange(len(labels)), labels].sum())
        violations = self.assignment.violations(labels)
        cost = 0.0
        if violations is not None:
            cost = violations.objective(w, penalty=self.assignment.penalty, unit=state.unit)
        last = state.passes + 1 == self.max_passes
        clusters, refounded = self._fill_empty(state, labels, assigned, last)
        sums, counts, masses = clusters
        repaired = clusters is not assigned and not np.array_equal(counts, assigned.counts)
        n_moved = int((labels != state.labels).sum())
        # In the first iteration, previous statistics are NaN, so they differ.
        settled = not (repaired or n_moved) and (
            np.array_equal(sums, state.sums) and np.array_equal(counts, state.counts)
        )
        centers = clusters.means(state.centers)
        new_state = replace(
            state,
            centers=centers,
            assignment_centers=state.centers,
            assignment_weights=w,
            labels=labels,
            sums=sums,
            counts=counts,
            masses=masses,
            objective=inertia + cost,
            passes=state.passes + 1,
            settled=settled,
        )
        if refounded:
            new_state = replace(new_state, n_refounded=state.n_refounded + 1).forget_labels()
        squared_shift = float((w * (centers - state.centers) ** 2).sum())
        updated, update_entries = self.update.update(
            Iteration(state, new_state, squared_shift, repaired, refounded, last, violations)
        )
        record = {
            "objective": float(updated.objective),
            "center_shift": float(np.sqrt(squared_shift)),
            "moved": n_moved if len(labels) == self.rows.n_rows else None,
            **entries,
            **update_entries,
            "inertia": inertia,
            "repaired": repaired,
        }
        # With more passes, a constrained row might fill a cluster that is empty.
        return updated, record, last and bool((new_state.counts <= 0).any())

    def _fill_empty(
        self, state: RestartState, labels: Ints, clusters: Clusters, last: bool
    ) -> tuple[Clusters, bool]:
        """Give each empty cluster the row farthest from its center.

        Unconstrained rows come first.  If a constrained row fills a cluster, labels are reset and
        the second value is True, because the row would otherwise return to the cluster of its
        pairs.  This happens at most k times per restart, because constraints may make k clusters
        impossible.
        """
        if (clusters.counts > 0).all():
            return clusters, False
        clusters = relocate_empty(
            self.unconstrained,
            state.centers,
            clusters,
            feature_weights=state.weights,
            shift=self.survey.mean,
        )
        may_refound = state.n_refounded < len(clusters.counts) and not last
        if not (len(self.constrained.x) and may_refound and (clusters.counts <= 0).any()):
            return clusters, False
        before = clusters.counts
        farthest = self.constrained.farthest(state.centers, state.weights, labels)
        clusters = fill_empty(clusters, farthest, state.centers)
        return clusters, not np.array_equal(clusters.counts, before)

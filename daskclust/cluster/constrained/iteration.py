"""Iterations of constrained k-means: assign all rows, repair empty clusters, move the centers.

Rows without a constraint do not interact, so they are assigned block by block.  The constrained
rows are few: fetched once, kept on the client, and assigned there by a rule that sees all of them.
The estimators of the family differ in how constrained rows are assigned (:class:`AssignmentRule`)
and in what follows when the centers have moved (:class:`UpdateRule`).  The restarts of a fit share
every pass over the data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Annotated, Any, ClassVar, NamedTuple, Protocol, Self

import numpy as np

from daskclust.core.array_types import Array, Floats, Ints
from daskclust.core.constraints import PairwiseConstraints
from daskclust.core.engine import Rows
from daskclust.core.estimator.fit_loop import Step, best_restart
from daskclust.core.initialization.steps import found_clusters, relocate_empty
from daskclust.core.kernels.nearest.assign import (
    direct_distances,
    label_sums,
    observed_label_sums,
    off_center,
)
from daskclust.core.kernels.pairs import Penalty, Violations
from daskclust.core.reduction import ASSIGN, CenterSets, Clusters
from daskclust.core.warn import warn
from daskclust.exceptions import ConstraintWarning


@dataclass(frozen=True, eq=False)
class ConstrainedRows:
    """Constraints with the rows they concern.

    `x` (m, p): the constrained rows, in row order. `weight` (m,): their sample weights, all
    positive. `are_complete`: whether none misses a value: then kernels for complete rows will do.
    """

    constraints: PairwiseConstraints
    x: Array
    weight: Floats
    are_complete: bool

    @classmethod
    def fetch(cls, rows: Rows, constraints: PairwiseConstraints) -> Self:
        """Fetch the constrained rows in one pass that reads only the chunks concerned.

        Rows of weight 0, and those without any value, are absent, and so are their constraints.
        """
        if not len(constraints.rows):
            return cls(constraints, np.empty((0, rows.n_features)), np.empty(0), True)
        x, weight = rows.take(constraints.rows)
        missing = np.isnan(x)
        absent = (weight == 0) | missing.all(axis=1)
        if absent.any():
            remaining = constraints.without(absent)
            n_labels = int(((constraints.classes >= 0) & absent).sum())
            warn(
                f"{int(absent.sum())} constrained row(s) have sample_weight 0 or no value at all, "
                f"the first is row {int(constraints.rows[absent][0])}: they count as absent, and "
                f"their {constraints.n_pairs - remaining.n_pairs} pair(s) and {n_labels} label(s) "
                "are left out.",
                ConstraintWarning,
            )
            kept = np.searchsorted(constraints.rows, remaining.rows)
            constraints, x, weight = remaining, x[kept], weight[kept]
            missing = missing[kept]
        return cls(constraints, x, weight, not missing.any())

    def farthest(
        self, centers: Floats, weights: Floats, labels: Ints
    ) -> Iterator[tuple[Floats, float, int]]:
        """Yield (row, weight, cluster) of rows off their centers, the farthest first."""
        distances = direct_distances(self.x, centers, weights, missing=True)
        lengths = distances[np.arange(len(labels)), labels]
        off = off_center(self.x, lengths, weights)
        for i in np.argsort(-lengths, kind="stable"):
            if off[i]:
                yield self.x[i].astype(np.float64), float(self.weight[i]), int(labels[i])


class AssignmentRule(Protocol):
    """How the constrained rows are assigned, and what violated constraints cost."""

    @property
    def penalty(self) -> Penalty:
        """Price of a violation, where there can be any."""

    def assign(
        self, distances: Floats, weights: Floats, labels: Ints, unit: Floats | None
    ) -> tuple[Ints, dict[str, Any]]:
        """Assign all rows; return their labels, and what ``history_`` tells of them.

        `distances` (m, k): weighted squared distances to the centers. `weights` (p,): feature
        weights of these distances. `labels` (m,), int64: labels before, -1 for none. `unit`
        (p,): price of a violated pair by feature, with ``penalty="scaled"``.
        """

    def violations(self, labels: Ints) -> Violations | None:
        """Sum over the violated pairs, each once; None where there can be none."""


class NoConstraints:
    """The rule of estimators without constraints."""

    penalty: ClassVar[Penalty] = "constant"

    def assign(
        self, distances: Floats, weights: Floats, labels: Ints, unit: Floats | None
    ) -> tuple[Ints, dict[str, Any]]:
        return labels, {}

    def violations(self, labels: Ints) -> None:
        """There are none."""


class Start(NamedTuple):
    """Initial centers (k, p) and feature weights (p,) of a restart; None: ones."""

    centers: Floats
    weights: Floats | None = None


class Starts(NamedTuple):
    """Starts of all restarts; `unit` and `spread` (p,) as in :class:`RestartState`."""

    starts: Sequence[Start]
    unit: Floats | None = None
    spread: Floats | None = None


@dataclass(frozen=True, kw_only=True)
class RestartState:
    """Where a restart stands.

    :meth:`stack` puts the restarts of a fit into one such state, along a new first
    axis of every field: what a checkpoint holds.

    `centers` (k, p): means of the clusters. `weights` (p,): newest feature weights of distances.
    `assignment_centers`, `assignment_weights`: those by which rows were last assigned. `labels`
    (m,): of the constrained rows, -1 for none. `sums` (k, p), `counts` (k,): statistics of the
    clusters; NaN where the constrained rows have no labels. `masses` (k, p): weight of the values
    of each feature, where some are missing. `round`: from 1, iterations under the same feature
    weights; `passes`: those made in this round. `settled`: whether the last iteration changed
    nothing. `n_refounded`: how often a constrained row has founded an empty cluster anew. `unit`
    (p,): price of a violated pair of weight 1 by feature, the same for all restarts; None if the
    penalty is not ``"scaled"``. `spread` (p,): mean squared difference of rows and centers in the
    clusters without constraints, if these were found. `dropped`: whether the restart ended early,
    being behind others.
    """

    centers: Annotated[Floats, "f r k p"]
    weights: Annotated[Floats, "f r p"]
    assignment_centers: Annotated[Floats, "f r k p"]
    assignment_weights: Annotated[Floats, "f r p"]
    labels: Annotated[Ints, "i r t"]
    sums: Annotated[Floats, "f r k p"]
    counts: Annotated[Floats, "f r k"]
    masses: Annotated[Floats | None, "? f r k p"] = None
    objective: Annotated[float, "f r"] = np.inf
    round: Annotated[int, "i r"] = 1
    passes: Annotated[int, "i r"] = 0
    settled: Annotated[bool, "b r"] = False
    finished: Annotated[bool, "b r"] = False
    n_refounded: Annotated[int, "i r"] = 0
    unit: Annotated[Floats | None, "? f r p"] = None
    spread: Annotated[Floats | None, "? f r p"] = None
    dropped: Annotated[bool, "b r"] = False

    @classmethod
    def begin(cls, start: Start, n_constrained: int, common: Starts, missing: bool = False) -> Self:
        centers, weights = start
        if weights is None:
            weights = np.ones(centers.shape[1])
        return cls(
            centers=centers,
            weights=weights,
            assignment_centers=centers,
            assignment_weights=weights,
            labels=np.full(n_constrained, -1, dtype=np.int64),
            sums=np.full_like(centers, np.nan),
            counts=np.full(len(centers), np.nan),
            masses=np.full_like(centers, np.nan) if missing else None,
            unit=common.unit,
            spread=common.spread,
        )

    def forget_labels(self) -> Self:
        return replace(
            self,
            labels=np.full_like(self.labels, -1),
            sums=np.full_like(self.sums, np.nan),
            counts=np.full_like(self.counts, np.nan),
            settled=False,
        )

    @classmethod
    def stack(cls, restarts: Sequence[Self]) -> Self:
        columns: dict[str, Any] = {}
        for each in fields(cls):
            values = [getattr(restart, each.name) for restart in restarts]
            if values[0] is not None:
                # One restart is not copied: there may be many labels.
                columns[each.name] = (
                    np.stack(values) if len(values) > 1 else np.asarray(values[0])[None]
                )
        made = cls(**columns)
        # Taken apart by the next iteration, unless it is that of another process.
        vars(made)["restarts"] = tuple(restarts)
        return made

    @cached_property
    def restarts(self) -> tuple[Self, ...]:
        """The restarts, each by itself."""
        columns = {each.name: getattr(self, each.name) for each in fields(self)}
        there = {name: column for name, column in columns.items() if column is not None}
        return tuple(
            type(self)(**{name: column[r] for name, column in there.items()})
            for r in range(len(self.centers))
        )


class Iteration(NamedTuple):
    """The result of one iteration of one restart.

    `inertia`: weighted squared distances to the centers by which rows were assigned.
    `squared_shift`: of all centers, weighted. `moved`: rows that changed their cluster, where all
    are constrained. `repaired`: whether an empty cluster was given a row; `refounded`: a
    constrained one, so that labels are forgotten. `last`: whether no iteration of this round may
    follow. `violations`: None where there can be none. `extra`: more for the record.
    """

    before: RestartState
    state: RestartState
    inertia: float
    squared_shift: float
    moved: int | None
    repaired: bool
    refounded: bool
    last: bool
    violations: Violations | None
    extra: Mapping[str, Any]

    def stands_still(self, tolerance: Floats) -> bool:
        """Whether the weighted squared shift is at most the weighted mean of a tolerance (p,).

        0: nothing may have changed at all.
        """
        if self.state.settled or self.repaired or not tolerance.any():
            return bool(self.state.settled)
        allowed = float((self.state.assignment_weights * tolerance).mean())
        return self.squared_shift <= allowed


class UpdateRule(Protocol):
    """Weights, rounds and the end, after the centers have moved."""

    @property
    def max_rounds(self) -> int: ...

    def is_comparable(self, state: RestartState) -> bool:
        """Return whether a restart is so far that its cost predicts its final cost."""

    def update(self, done: Iteration) -> tuple[RestartState, dict[str, Any]]:
        """Return the state from which the next iteration goes on, and more for the record."""

    def cost(self, state: RestartState) -> float:
        """Return what the restart that is kept has least of."""

    def attributes(self, state: RestartState) -> dict[str, Any]:
        """Return the attributes of an estimator that depend on the rule."""

    def warn(self, state: RestartState, record: Mapping[str, Any]) -> None:
        """Warn where the fit did not end as it should; ``record`` is that of its end."""


#: Of an estimator of the family.
Rules = tuple[AssignmentRule, UpdateRule]


@dataclass(frozen=True)
class ConstrainedLloyd:
    """The iterated problem: constrained rows, a rule to assign them, and a rule of updates.

    `start`: finds the starts of all restarts, and the unit of their penalties. `mean` (p,): of the
    data. `max_iter`, `max_passes`: iterations at most, and those of a round. `n_survivors`: number
    of restarts that are iterated to the end, once all are comparable; None: all.
    """

    kind: ClassVar[type[RestartState]] = RestartState

    rows: Rows
    unconstrained: Rows
    constrained: ConstrainedRows
    assignment: AssignmentRule
    rule: UpdateRule
    start: Callable[[], Starts]
    mean: Floats
    max_iter: int
    max_passes: int
    missing: bool = False
    n_survivors: int | None = None

    @property
    def sizes(self) -> Mapping[str, int]:
        return {"t": len(self.constrained.x)}

    def identity(self) -> Mapping[str, Any]:
        return {"constraints": self.constrained.constraints.digest()}

    def begin(self) -> RestartState:
        """Find the starts; those that are the same are iterated once."""
        common = self.start()
        starts: list[Start] = []
        for start in common.starts:
            if not any(np.array_equal(start.centers, other.centers) for other in starts):
                starts.append(start)
        m = len(self.constrained.x)
        states = [RestartState.begin(start, m, common, self.missing) for start in starts]
        return RestartState.stack(states)

    def step(self, state: RestartState) -> Step[RestartState]:
        """Make an iteration of all restarts that are not finished, in one pass."""
        restarts = list(state.restarts)
        active = np.flatnonzero(~np.asarray(state.finished))
        sets = CenterSets(
            state.centers[active], state.weights[active], shift=self.mean, missing=self.missing
        )
        stats = self.unconstrained.reduce(ASSIGN, sets)
        records: list[dict[str, Any] | None] = [None] * len(restarts)
        provisional = False
        for at, r in enumerate(active.tolist()):
            done = self._iterate(restarts[r], stats.of(at), float(stats.inertia[at].sum()))
            restarts[r], more = self.rule.update(done)
            # Before another iteration, a constrained row might have founded the empty cluster.
            provisional |= done.last and bool((done.state.counts <= 0).any())
            records[r] = {
                "objective": float(restarts[r].objective),
                "center_shift": float(np.sqrt(done.squared_shift)),
                "moved": done.moved,
                **done.extra,
                **more,
                "inertia": done.inertia,
                "repaired": done.repaired,
            }
        restarts = self._without_losers(restarts)
        # An iteration of one restart is on record as it is, of several side by side.
        made = [record for record in records if record is not None]
        alone = len(records) == 1
        return Step(
            RestartState.stack(restarts),
            objective=min(record["objective"] for record in made),
            center_shift=max(record["center_shift"] for record in made),
            moved=made[0]["moved"] if alone else None,
            finished=all(restart.finished for restart in restarts),
            extra=made[0] if alone else {"restarts": records},
            provisional=provisional,
        )

    def best(self, restarts: Sequence[RestartState]) -> int:
        """Return the restart of the least cost among those that were not dropped."""
        there = [r for r, each in enumerate(restarts) if not each.dropped]
        if len(there) == 1:
            return there[0]
        return there[best_restart([self.rule.cost(restarts[r]) for r in there])]

    def _without_losers(self, restarts: list[RestartState]) -> list[RestartState]:
        """End the restarts behind the `n_survivors` best, once all are comparable."""
        if self.n_survivors is None or any(restart.dropped for restart in restarts):
            return restarts
        for each in restarts:
            # Without labels there are no clusters to compare.
            if not each.finished and (
                np.isnan(each.counts).any() or not self.rule.is_comparable(each)
            ):
                return restarts
        left = list(range(len(restarts)))
        for _ in range(min(self.n_survivors, len(left))):
            left.pop(best_restart([self.rule.cost(restarts[r]) for r in left]))
        return [
            replace(each, finished=True, dropped=True) if r in left else each
            for r, each in enumerate(restarts)
        ]

    def _iterate(self, state: RestartState, others: Clusters, inertia: float) -> Iteration:
        """Assign the constrained rows of a restart, beside the others, and move its centers."""
        w, rows = state.weights, self.constrained
        # Only where the first pass found missing values are they looked for in every iteration.
        distances = direct_distances(rows.x, state.centers, w, missing=self.missing)
        distances *= rows.weight[:, None]
        labels, extra = self.assignment.assign(distances, w, state.labels, state.unit)
        if others.masses is None:
            sums, counts = label_sums(rows.x, rows.weight, labels, len(others.counts))
            assigned = Clusters(others.sums + sums, others.counts + counts)
        else:
            own = observed_label_sums(rows.x, rows.weight, labels, len(others.counts))
            assigned = Clusters(
                others.sums + own.sums, others.counts + own.counts, others.masses + own.masses
            )
        inertia += float(distances[np.arange(len(labels)), labels].sum())
        violations = self.assignment.violations(labels)
        cost = 0.0
        if violations is not None:
            cost = violations.objective(w, penalty=self.assignment.penalty, unit=state.unit)
        last = state.passes + 1 == self.max_passes
        clusters, refounded = self._repair(state, labels, assigned, last)
        sums, counts, masses = clusters
        repaired = clusters is not assigned and not np.array_equal(counts, assigned.counts)
        n_moved = int((labels != state.labels).sum())
        # Statistics before the first iteration are NaN, and equal to none.
        settled = not (repaired or n_moved) and (
            np.array_equal(sums, state.sums) and np.array_equal(counts, state.counts)
        )
        centers = clusters.means(state.centers)
        after = replace(
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
            after = replace(after, n_refounded=state.n_refounded + 1).forget_labels()
        return Iteration(
            before=state,
            state=after,
            inertia=inertia,
            squared_shift=float((w * (centers - state.centers) ** 2).sum()),
            moved=n_moved if len(labels) == self.rows.n_rows else None,
            repaired=repaired,
            refounded=refounded,
            last=last,
            violations=violations,
            extra=extra,
        )

    def _repair(
        self, state: RestartState, labels: Ints, clusters: Clusters, last: bool
    ) -> tuple[Clusters, bool]:
        """Give each empty cluster the row farthest from its center; the published program gives up.

        Unconstrained rows come first.  The constraints of a row would move it back to its partners,
        so labels are forgotten when a constrained row has founded one (returned, too).  That may
        happen k times a restart: constraints may leave rows for fewer than k clusters.
        """
        if (clusters.counts > 0).all():
            return clusters, False
        clusters = relocate_empty(
            self.unconstrained,
            state.centers,
            clusters,
            feature_weights=state.weights,
            shift=self.mean,
        )
        may_refound = state.n_refounded < len(clusters.counts) and not last
        if not (len(self.constrained.x) and may_refound and (clusters.counts <= 0).any()):
            return clusters, False
        before = clusters.counts
        farthest = self.constrained.farthest(state.centers, state.weights, labels)
        clusters = found_clusters(clusters, farthest, state.centers)
        return clusters, not np.array_equal(clusters.counts, before)

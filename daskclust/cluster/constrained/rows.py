"""The rows in constraints: fetched once, kept on the client.

Rows without a constraint do not interact, so they are assigned block by block.
The constrained rows are few; they are assigned on the client, by a rule that sees
all of them at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Protocol, Self

import numpy as np

from daskclust._types import Array, Bools, Floats, Ints
from daskclust._warnings import warn
from daskclust.constraints import PairwiseConstraints
from daskclust.engine import Rows
from daskclust.exceptions import ConstraintWarning
from daskclust.kernels.constraints import Violations, pair_lengths
from daskclust.kernels.nearest.observed_few import (
    observed_distances,
    observed_pair_boxes,
    observed_pair_lengths,
)

__all__ = ["AssignmentRule", "ConstrainedRows", "NoConstraints", "RowAssignment"]


@dataclass(frozen=True, eq=False)
class ConstrainedRows:
    """Constraints with the rows they concern.

    Parameters
    ----------
    constraints : PairwiseConstraints
    x : ndarray of shape (m, p)
        The constrained rows, in row order.
    weight : ndarray of shape (m,), float64
        Their sample weights, all positive.
    incomplete : ndarray of shape (m,), bool
        Rows that miss a value.
    """

    constraints: PairwiseConstraints
    x: Array
    weight: Floats
    incomplete: Bools

    @classmethod
    def fetch(cls, rows: Rows, constraints: PairwiseConstraints) -> Self:
        """Fetch the constrained rows in one pass that reads only the chunks concerned.

        Rows of weight 0, and those without any value, are absent, and so are their constraints.
        """
        if not constraints.n_constrained:
            none = np.empty(0)
            return cls(constraints, np.empty((0, rows.n_features)), none, none.astype(bool))
        x, weight = rows.take(constraints.rows)
        gaps = np.isnan(x)
        incomplete = gaps.any(axis=1)
        absent = (weight == 0) | gaps.all(axis=1)
        if absent.any():
            remaining = constraints.without(absent)
            _warn_weightless(constraints, remaining, absent)
            kept = np.searchsorted(constraints.rows, remaining.rows)
            constraints, x, weight = remaining, x[kept], weight[kept]
            incomplete = incomplete[kept]
        return cls(constraints, x, weight, incomplete)

    def __len__(self) -> int:
        return len(self.x)

    @cached_property
    def are_complete(self) -> bool:
        """Whether none misses a value: then kernels for complete rows will do."""
        return not self.incomplete.any()

    def pair_lengths(self, left: Ints, right: Ints, weights: Floats) -> Floats:
        """Weighted squared distance of each pair, over what both rows observe."""
        measure = pair_lengths if self.are_complete else observed_pair_lengths
        return measure(self.x, left, right, weights)

    def pair_boxes(self, left: Ints, right: Ints, sides: Floats) -> float | Floats:
        """Sum of the sides; of each pair over what both rows observe, where any misses a value."""
        if self.are_complete:
            return float(sides.sum())
        return observed_pair_boxes(self.x, left, right, sides)

    def attributes(self, labels: Ints) -> dict[str, Any]:
        """Return the attributes of an estimator that depend on constraints."""
        return {
            "constraint_violations_": self.constraints.violations(labels),
            "classes_": self.constraints.class_values,
        }

    def farthest(
        self, centers: Floats, weights: Floats, labels: Ints
    ) -> Iterator[tuple[Floats, float, int]]:
        """Yield (row, weight, cluster) of rows off their centers, the farthest first."""
        lengths = observed_distances(self.x, centers, weights)[np.arange(len(self)), labels]
        for i in np.argsort(-lengths, kind="stable"):
            if lengths[i] > 0:
                yield self.x[i].astype(np.float64), float(self.weight[i]), int(labels[i])


def _warn_weightless(
    given: PairwiseConstraints, remaining: PairwiseConstraints, weightless: Bools
) -> None:
    n_pairs = given.n_pairs - remaining.n_pairs
    n_labels = int(((given.classes >= 0) & weightless).sum())
    warn(
        f"{int(weightless.sum())} constrained row(s) have sample_weight 0 or no value at all, the "
        f"first is row {int(given.rows[weightless][0])}: they count as absent, and their {n_pairs} "
        "pair(s) and "
        f"{n_labels} label(s) are left out.",
        ConstraintWarning,
    )


class RowAssignment(NamedTuple):
    """Clusters of the constrained rows.

    Attributes
    ----------
    labels : ndarray of shape (m,), int64
    record : dict
        What the rule has to say about them, for ``history_``.
    """

    labels: Ints
    record: dict[str, Any]


class AssignmentRule(Protocol):
    """How the constrained rows are assigned, and what violated constraints cost."""

    def assign(self, distances: Floats, weights: Floats, labels: Ints) -> RowAssignment:
        """Assign all rows.

        Parameters
        ----------
        distances : ndarray of shape (m, k), float64
            Weighted squared distances to the centers.
        weights : ndarray of shape (p,), float64
            Feature weights of these distances.
        labels : ndarray of shape (m,), int64
            Labels before, -1 for none.
        """

    def violations(self, labels: Ints) -> Violations | None:
        """Sum over the violated pairs, each once; None where there can be none."""

    def cost(self, violations: Violations, weights: Floats) -> float:
        """Price of these violations under feature weights."""

    def attributes(self, labels: Ints) -> dict[str, Any]:
        """Return the attributes of an estimator that depend on constraints."""


class NoConstraints:
    """The rule of estimators without constraints."""

    def assign(self, distances: Floats, weights: Floats, labels: Ints) -> RowAssignment:
        """Assign no rows."""
        return RowAssignment(labels, {})

    def violations(self, labels: Ints) -> None:
        """There are none."""

    def cost(self, violations: Violations, weights: Floats) -> float:
        """Nothing."""
        return 0.0

    def attributes(self, labels: Ints) -> dict[str, Any]:
        """Return none."""
        return {}

"""Candidates for centers: rows drawn in passes over the data, far from the rows drawn before."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

import numpy as np

from daskclust.core.array_types import Floats, Ints
from daskclust.core.engine import Carry
from daskclust.core.engine.checkpoint import saved_stage
from daskclust.core.initialization.few_points import choose_among
from daskclust.core.initialization.problem import Initialization
from daskclust.core.initialization.samples import filled
from daskclust.core.kernels.nearest.assign import nearest
from daskclust.core.reduction import (
    ATTRACTED,
    CANDIDATES,
    CARRY_BYTES,
    Attraction,
    CandidateRound,
)

#: Minimum number of rows, and rows per candidate, that weigh the candidates. If there are more
#: rows, a sample of that size is used, because weights need not be exact.
_WEIGHED_ROWS, _WEIGHED_EACH = 2**16, 50


@dataclass(frozen=True)
class _Drawn:
    """Candidates of all restarts, one after another, and the number of rounds that drew them."""

    points: Annotated[Floats, "f m p"]
    sizes: Annotated[Ints, "i r"]
    n_rounds: Annotated[int, "i"]


@dataclass
class Candidates:
    """Candidates (m_r, p) of all restarts: known points, followed by drawn rows."""

    problem: Initialization
    points: list[Floats]
    n_rounds: int = 0
    carry: Carry = field(default_factory=Carry)

    def draw(self, n_picks: int) -> bool:
        """Draw rows for each restart by ``w D^2``; return False if no rows were left."""
        problem, rows = self.problem, self.problem.rows
        self.n_rounds += 1
        state = CandidateRound(
            tuple(self.points),
            problem.seeds,
            self.n_rounds,
            # At most the number of rows, because memory is allocated for all picks.
            min(n_picks, rows.n_rows),
            shift=problem.shift,
            missing=problem.missing,
        )
        keep = rows.can_keep(CARRY_BYTES * len(problem.seeds))
        sampling = CANDIDATES if keep else CANDIDATES.without_carry()
        picks_of = rows.reduce(sampling, state, self.carry)
        mean = problem.survey.mean
        drawn = [filled(picks["x"][picks["row"] >= 0], mean) for picks in picks_of]
        self.points = [np.concatenate(pair) for pair in zip(self.points, drawn, strict=True)]
        return any(len(d) for d in drawn)

    def draw_best(self, n_draws: int, sample: Floats, weight: Floats) -> bool:
        """Draw rows by ``w D^2`` and add the one that lowers the cost of a sample most.

        `weight` are the weights of the sample.  Returns False if no row was left.
        """
        before = self.points
        any_left = self.draw(n_draws)
        for r, chosen in enumerate(before):
            drawn = self.points[r][len(chosen) :]
            if len(drawn) > 1:
                squared = nearest(sample, chosen)[1]
                costs = [weight @ np.minimum(squared, nearest(sample, c[None])[1]) for c in drawn]
                drawn = drawn[np.argmin(costs)][None]
            self.points[r] = np.concatenate([chosen, drawn])[: self.problem.n_clusters]
        return any_left

    def oversample(self) -> None:
        """Draw the rounds of k-means|| (Bahmani et al. 2012)."""
        problem = self.problem
        per_round = max(1, round(problem.oversampling_factor * problem.n_clusters))

        def draw() -> _Drawn:
            any_left = True
            # There are more rounds than `init_rounds` only if a restart has too few candidates.
            while any_left and (
                self.n_rounds < problem.init_rounds
                or any(len(c) < problem.n_clusters for c in self.points)
            ):
                any_left = self.draw(per_round)
            sizes = np.array([len(c) for c in self.points])
            return _Drawn(np.concatenate(self.points), sizes, self.n_rounds)

        sizes = {"p": problem.rows.n_features, "r": len(problem.seeds)}
        drawn = saved_stage("candidates", _Drawn, draw, **sizes)
        self.points = np.split(drawn.points, np.cumsum(drawn.sizes)[:-1])
        self.n_rounds = drawn.n_rounds

    def choose(self) -> list[Floats]:
        """Choose centers among the candidates by the weight of their nearest rows; one pass.

        If there are many rows, a sample of them is weighed.  Centers are candidates, not means of
        candidates, because the mean of a few candidates is nearer to any row than each of them.
        """
        problem = self.problem
        n_rows_used = max(_WEIGHED_ROWS, _WEIGHED_EACH * max(len(c) for c in self.points))
        rate = None
        if problem.rows.n_rows > n_rows_used:
            rate = float(2.0 ** np.floor(np.log2(n_rows_used / problem.survey.weight)))
        state = Attraction(tuple(self.points), problem.seeds, rate, problem.shift, problem.missing)
        weights: list[Floats] = problem.rows.reduce(ATTRACTED, state)
        return [
            choose_among(points, weight, problem.n_clusters, seed)
            for points, weight, seed in zip(self.points, weights, problem.seeds, strict=True)
        ]

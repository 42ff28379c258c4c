"""Initial centers of all restarts of a fit, found in shared passes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial, wraps
from typing import Annotated, Any

import numpy as np

from daskclust.core.array_types import Floats, Ints
from daskclust.core.engine import Carry, Rows, side_by_side
from daskclust.core.engine.checkpoint import saved_stage
from daskclust.core.estimator.fit_loop import best_restart
from daskclust.core.estimator.transforms import EUCLIDEAN, Metric
from daskclust.core.initialization.deterministic import (
    DENSITY_INITS,
    density_centers,
    density_picks,
    maximin_centers,
    row_budget,
)
from daskclust.core.initialization.growing import SampledKMeans, draw_tries, grow, match
from daskclust.core.initialization.samples import (
    Sample,
    draw_sample,
    draws_at_once,
    filled,
    first_rows,
    grows,
    is_complete,
    is_large,
    n_candidates,
)
from daskclust.core.kernels.draws import draw_apart, draw_greedy, in_tiles, n_draws
from daskclust.core.kernels.nearest.assign import cluster_points, nearest
from daskclust.core.reduction import (
    ATTRACTED,
    CANDIDATES,
    CARRY_BYTES,
    Attraction,
    CandidateRound,
    Survey,
)

#: Maximum squared shift of converged centers, as a fraction of the mean variance.
_TOL = 1e-4

#: Initializations without random numbers (except for a sample of the rows, if there are too many).
DETERMINISTIC_INITS = ("maximin", *DENSITY_INITS)
#: Initializations that draw rows, in contrast to arrays and callables.
STRING_INITS = ("k-means||", "k-means++", "random", *DETERMINISTIC_INITS)

#: Minimum number of rows, and rows per candidate, that weigh the candidates. If there are more
#: rows, a sample of that size is used, because weights need not be exact.
_WEIGHED_ROWS, _WEIGHED_EACH = 2**16, 50


def n_survey_picks(init: Any, n_clusters: int, n_rows: float = np.nan) -> int:
    if not isinstance(init, str) or init == "maximin":
        return 0
    if init in DENSITY_INITS:
        return density_picks(n_clusters, n_rows)
    return n_clusters if init == "random" else 1


def _padded(centers: list[Floats], k: int) -> Floats:
    """Stack centers of restarts, (r, k, p); repeat the first center if there are too few."""
    return np.stack([np.concatenate([c, np.repeat(c[:1], k - len(c), axis=0)]) for c in centers])


@dataclass(frozen=True)
class _Centers:
    """Initial centers of all restarts."""

    centers: Annotated[Floats, "f r c q"]


def _stage_of_centers(find: Callable[..., Floats]) -> Callable[..., Floats]:
    """Wrap a function so that a checkpoint saves the centers that it returns."""

    @wraps(find)
    def wrapped(
        rows: Rows, survey: Any, init: str, n_clusters: int, seeds: Any, **options: Any
    ) -> Floats:
        def make() -> _Centers:
            return _Centers(find(rows, survey, init, n_clusters, seeds, **options))

        sizes = {"r": len(seeds), "c": n_clusters, "q": rows.n_features}
        return saved_stage("centers", _Centers, make, **sizes).centers

    return wrapped


@_stage_of_centers
def sample_centers(
    rows: Rows,
    survey: Survey,
    init: str,
    n_clusters: int,
    seeds: tuple[int, ...],
    *,
    oversampling_factor: float,
    init_rounds: int,
    shift: Floats | None,
    fixed: Floats | None = None,
    missing: bool = False,
    metric: Metric = EUCLIDEAN,
    tolerance: float | None = None,
) -> Floats:
    """Find initial centers of all restarts, (r, k, p), by one of :data:`STRING_INITS`.

    Known centers, `fixed` (m, p), come first.  ``"k-means||"`` matches the centers that it finds to
    them if there are fewer than k; the other methods keep them and sample rows away from them.  A
    row that becomes a center takes the means of the columns for its missing values.  `metric` and
    `tolerance` (of a squared shift, default 1e-4 times the mean variance) are those of the fit.

    Passes of all restarts together: 0 for ``"random"``, one per center except the first for
    ``"k-means++"``, one per center for ``"maximin"``, at most 1 for ``"dkm++"`` and ``"robin"``,
    ``init_rounds + 2`` for ``"k-means||"`` (1 if the sample consists of all rows, 2 for many wide
    centers).
    """
    k = n_clusters
    if not rows.n_features:
        # The metric may remove all directions: then all rows are equal.
        return np.zeros((len(seeds), k, 0))
    if init in DETERMINISTIC_INITS:
        single_set = (
            maximin_centers(rows, k, shift, survey.mean if missing else None)
            if init == "maximin"
            else density_centers(rows, survey, init, k)
        )
        return _padded([single_set] * len(seeds), k)
    picks = [filled(drawn["x"][drawn["row"] >= 0], survey.mean) for drawn in survey.picks]
    known = picks[0][:0] if fixed is None else fixed
    if len(known) == k:
        return _padded([known] * len(seeds), k)
    if init == "k-means||":
        drawn = Candidates(rows, survey, picks, seeds, 0, shift, missing)
        if tolerance is None:
            tolerance = _TOL * float(survey.variance.mean())
        level = SampledKMeans(metric, tolerance, shift, missing)
        grown = _grown_centers(drawn, level, k, known, oversampling_factor, init_rounds)
        return np.stack([match(centers, known) for centers in grown])
    if init == "random":
        return _padded([np.concatenate([known, p])[:k] for p in picks], k)
    first = [known] * len(seeds) if len(known) else picks
    drawn = Candidates(rows, survey, first, seeds, len(known), shift, missing)
    return _drawn_apart(drawn, k)


def _drawn_apart(drawn: Candidates, k: int) -> Floats:
    """Draw one row after another with probability ``w D^2`` (Algorithm 2 of the notes).

    Without known centers, each row is the best of several draws, evaluated on a sample of the rows.
    """
    draw = partial(drawn.draw, 1)
    if not drawn.n_fixed:
        sample = sample_of(drawn, k)
        if sample.n_drawn and sample.total > 0:
            part, weight, _ = sample.part(min(first_rows(k), sample.n_drawn))
            draw = partial(drawn.draw_best, k, n_draws(k), filled(part, drawn.survey.mean), weight)
    while max(len(c) for c in drawn.points) < k and draw():
        pass
    return _padded(drawn.points, k)


def _grown_centers(
    drawn: Candidates,
    level: SampledKMeans,
    k: int,
    known: Floats,
    oversampling_factor: float,
    init_rounds: int,
) -> Floats:
    """Find centers on growing samples, or among candidates if a sample is not representative."""
    rows, survey, seeds = drawn.rows, drawn.survey, drawn.seeds
    complete = is_complete(rows, k)
    if not (complete or draws_at_once(rows, k)):
        drawn.oversample(k, oversampling_factor, init_rounds)
    count = n_candidates(rows, k, oversampling_factor, init_rounds)
    growing = grows(rows, k)
    size = None if growing or complete else count
    sample = sample_of(drawn, k, size)
    if complete or _is_representative(sample, k):
        tries = [
            draw_tries(
                sample,
                k,
                seed,
                survey.mean,
                count=count,
                candidates=points if drawn.made else points[:0],
                known=known,
            )
            for points, seed in zip(drawn.points, seeds, strict=True)
        ]
        if all(len(centers) == k for sets in tries for centers in sets):
            sets = np.array(tries)
            return grow(level, sets, sample) if growing else sets[:, 0]
        if complete:
            # The rows have fewer than k distinct values.
            return _padded([sets[-1] for sets in tries], k)
    if not drawn.made:
        drawn.oversample(k, oversampling_factor, init_rounds)
    return drawn.chosen(k)


def _is_representative(sample: Sample, k: int) -> bool:
    """Return False if few rows have most of the weight: a uniform sample is then useless."""
    return sample.total > 0 and sample.size >= min(first_rows(k), sample.n_rows) / 2


def improve_on_sample(
    rows: Rows, survey: Survey, centers: Floats, seed: int, level: SampledKMeans
) -> Floats:
    """Iterate centers of all restarts, (r, k, p), on growing samples; two passes."""
    k = centers.shape[1]
    sample = draw_sample(
        rows, k, survey.mean, survey.weight, seed, shift=level.shift, missing=level.missing
    )
    return grow(level, centers[:, None], sample) if _is_representative(sample, k) else centers


def sample_of(drawn: Candidates, k: int, size: int | None = None) -> Sample:
    """Draw the sample of a fit: see :func:`daskclust.core.initialization.samples.draw_sample`."""
    survey = drawn.survey
    draw = partial(
        draw_sample,
        drawn.rows,
        k,
        survey.mean,
        survey.weight,
        drawn.seeds[0],
        shift=drawn.shift,
        missing=drawn.missing,
        size=size,
    )
    return saved_stage("sample", Sample, draw, p=drawn.rows.n_features)


@dataclass(frozen=True)
class _Drawn:
    """Candidates of all restarts, one after another, and the number of rounds that drew them."""

    points: Annotated[Floats, "f m p"]
    sizes: Annotated[Ints, "i r"]
    made: Annotated[int, "i"]


@dataclass
class Candidates:
    """Candidates (m_r, p) of all restarts, drawn in rounds after `n_fixed` known centers."""

    rows: Rows
    survey: Survey
    points: list[Floats]
    seeds: tuple[int, ...]
    n_fixed: int
    shift: Floats | None
    missing: bool
    made: int = 0
    carry: Carry = field(default_factory=Carry)

    def draw(self, n_picks: int) -> bool:
        """Draw rows for each restart by ``w D^2``; return False if no rows were left."""
        self.made += 1
        state = CandidateRound(
            tuple(self.points),
            self.seeds,
            self.made,
            # At most the number of rows, because memory is allocated for all picks.
            min(n_picks, self.rows.n_rows),
            shift=self.shift,
            missing=self.missing,
        )
        keep = self.rows.can_keep(CARRY_BYTES * len(self.seeds))
        sampling = CANDIDATES if keep else CANDIDATES.without_carry()
        picks_of = self.rows.reduce(sampling, state, self.carry)
        mean = self.survey.mean
        drawn = [filled(picks["x"][picks["row"] >= 0], mean) for picks in picks_of]
        self.points = [np.concatenate(pair) for pair in zip(self.points, drawn, strict=True)]
        return any(len(d) for d in drawn)

    def oversample(self, k: int, factor: float, n_rounds: int) -> None:
        """Draw rounds of ``factor`` rows per missing center (Bahmani et al. 2012)."""
        per_round = max(1, round(factor * (k - self.n_fixed)))

        def draw() -> _Drawn:
            left = True
            # There are more than `n_rounds` rounds only if a restart has too few candidates.
            while left and (self.made < n_rounds or any(len(c) < k for c in self.points)):
                left = self.draw(per_round)
            sizes = np.array([len(c) for c in self.points])
            return _Drawn(np.concatenate(self.points), sizes, self.made)

        drawn = saved_stage("candidates", _Drawn, draw, p=self.rows.n_features, r=len(self.seeds))
        self.points = np.split(drawn.points, np.cumsum(drawn.sizes)[:-1])
        self.made = drawn.made

    def draw_best(self, k: int, n_draws: int, rows: Floats, weight: Floats) -> bool:
        """Draw rows by ``w D^2`` and add the one that lowers the cost of a sample most.

        `rows` and `weight` are the sample.  Returns False if no row was left.
        """
        before = self.points
        left = self.draw(n_draws)
        for r, chosen in enumerate(before):
            drawn = self.points[r][len(chosen) :]
            if len(drawn) > 1:
                squared = nearest(rows, chosen)[1]
                costs = [weight @ np.minimum(squared, nearest(rows, c[None])[1]) for c in drawn]
                drawn = drawn[np.argmin(costs)][None]
            self.points[r] = np.concatenate([chosen, drawn])[:k]
        return left

    def chosen(self, k: int) -> Floats:
        """Choose centers by the weight of the rows that candidates attract; one pass.

        A sample of the rows may be used.  Candidates are not averaged: the mean of a few candidates
        is nearer to any row than the candidates are.
        """
        n_rows_used = max(_WEIGHED_ROWS, _WEIGHED_EACH * max(len(c) for c in self.points))
        rate = None
        if self.rows.n_rows > n_rows_used:
            rate = float(2.0 ** np.floor(np.log2(n_rows_used / self.survey.weight)))
        state = Attraction(tuple(self.points), self.seeds, rate, self.shift, self.missing)
        weights: list[Floats] = self.rows.reduce(ATTRACTED, state)
        centers = [
            choose_among(points, weight, k, seed)
            for points, weight, seed in zip(self.points, weights, self.seeds, strict=True)
        ]
        return _padded(centers, k)


def choose_among(points: Floats, mass: Floats, k: int, seed: int) -> Floats:
    """Choose min(k, m) distinct points (m, p) by greedy k-means++, weighted by `mass` (m,)."""
    if len(points) <= k:
        return points
    used = mass > 0
    if used.sum() <= k:
        # Points without rows are still better than repeated points.
        return np.concatenate([points[used], points[~used]])[:k]
    points, mass = _by_value(points[used], mass[used])
    uniforms = np.random.Generator(np.random.Philox(seed)).random((k, n_draws(k)))
    return points[draw_greedy(in_tiles(points, mass), k, uniforms)]


def _by_value(points: Floats, mass: Floats) -> tuple[Floats, Floats]:
    """Sort points by value, so that results do not depend on the order of draws."""
    order = np.lexsort(points.T[::-1])
    return points[order], mass[order]


#: Maximum number of iterations of weighted Lloyd on few points, and for large ``k p``.
_FEW_ITER, _FEW_LARGE_ITER = 100, 10
#: Maximum number of runs on few points, and maximum total of points times k of the runs.
_FEW_TRIES, _FEW_WORK = 8, 20_000_000
#: Points times k times features from which threads are used.
_FEW_THREADING = 2**16


def cluster_few(points: Floats, mass: Floats, k: int, seed: int) -> Floats:
    """Cluster weighted points to (min(k, m), p): weighted k-means++, then Lloyd."""
    if len(points) <= k:
        return points
    used = mass > 0
    if used.sum() <= k:
        return np.concatenate([points[used], points[~used]])[:k]
    points, mass = _by_value(points[used], mass[used])
    work = len(points) * k
    tries = max(1, min(_FEW_TRIES, _FEW_WORK // work))
    center = np.average(points, axis=0, weights=mass)

    def attempt(word: int) -> tuple[Floats, float]:
        uniforms = np.random.Generator(np.random.Philox(word)).random(k)
        drawn = points[draw_apart(points, mass, k, uniforms)]
        n_iterations = _FEW_LARGE_ITER if is_large(*drawn.shape) else _FEW_ITER
        return cluster_points(points, mass, drawn, max_iter=n_iterations, shift=center)

    words = np.random.SeedSequence(seed).generate_state(tries).tolist()
    calls = [partial(attempt, word) for word in words]
    large = work * points.shape[1] >= _FEW_THREADING
    results = side_by_side(calls) if large else [call() for call in calls]
    return results[best_restart([cost for _, cost in results])][0]


def note_start(history: list[dict[str, Any]], init: Any, n_rows: int, k: int) -> None:
    if history and isinstance(init, str) and init in DENSITY_INITS:
        history[0]["init_rows"] = min(n_rows, row_budget(k))


def passes_of_start(params: Mapping[str, Any]) -> int | None:
    """Return the maximum number of passes of an initialization, or None if it is unknown."""
    init = params.get("init", params.get("init_params"))
    if not isinstance(init, str):
        return 0
    k = params.get("n_clusters", params.get("n_components", 1))
    # The rounds, and the two passes of the sample.
    rounds = int(params.get("init_rounds", 5)) + 2
    grown = ("k-means||", "kmeans", "auto", "ss-k-means||")
    known = dict.fromkeys(grown, rounds) | dict.fromkeys(DENSITY_INITS, 1)
    known |= {"k-means++": k + 1, "ss-k-means++": k, "neighborhoods": k, "maximin": k}
    known |= {"random": 0, "seeded-random": 0}
    more = 2 if params.get("algorithm") == "nested" and init not in grown else 0
    return known[init] + more if init in known else None

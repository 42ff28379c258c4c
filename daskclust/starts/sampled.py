"""Starting centers for all restarts at once, in passes that they share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from daskclust._types import Array, Floats
from daskclust.engine import Carry, Rows, side_by_side
from daskclust.estimator.fitting import best_restart
from daskclust.kernels.nearest.assign import cluster_points
from daskclust.kernels.rng import draw_numbers
from daskclust.kernels.starts.draws import (
    draw_apart,
    draw_greedy,
    draw_in_batches,
    in_tiles,
    n_draws,
)
from daskclust.reduction import (
    ATTRACTED,
    CANDIDATES,
    CARRY_BYTES,
    FARTHEST,
    Attraction,
    CandidateRound,
    FarthestRequest,
    Survey,
)
from daskclust.starts.deterministic import (
    DENSITY_INITS,
    density_centers,
    density_picks,
    maximin_centers,
    row_budget,
)

#: Bytes of the sample at most.
_BYTES = 2**28
#: Rows of the sample, and rows for each cluster, that leave little noise.
_ROWS, _ROWS_EACH = 2**16, 256
#: Rows of the smallest part, and rows for each cluster.
_FIRST, _FIRST_EACH = 2**12, 10
#: Rows, at least, from which others are far.
_USUAL = 16
#: Below so many rows for each cluster the smallest part is all rows.
_LEAST_EACH = 10
#: Clusters times features, from which the cost of a start is counted in passes over all rows.
_LARGE = 2**14
#: Then: rows for each cluster, below which iterations on the sample lead astray; rows from which
#: others are far, and far rows, at most.
_GROWN_EACH, _LARGE_USUAL, _LARGE_FAR = 64, 256, 1024
#: Passes over all rows that greedy draws from the sample may take, by multiplications.
_DRAW_PASSES = 3
#: Features below which draws are compared one center after another, in registers: better centers,
#: in so many times the time of a pass of as many multiplications.
_NARROW, _SLOWER = 64, 1.5
#: Clusters from which rounds of k-means|| are left out, too, where rows for each are fewer than
#: that: rounds would take many passes, to draw much of the data.
_MANY, _ROUNDS_EACH = 256, 160
#: Draws of their own, beside those of the rounds of k-means||.
_OF_ROWS, _OF_LARGE = 2**33, 2**33 + 2


def is_large(k: int, p: int) -> bool:
    """Whether centers are so many, and so wide, that drawing them costs many passes."""
    return k * p >= _LARGE


def drawn_at_once(rows: Rows, k: int) -> bool:
    """Whether centers are drawn from one sample of the rows, and not in rounds over all rows."""
    return is_large(k, rows.n_features) or (k >= _MANY and rows.n_rows < _ROUNDS_EACH * k)


def first_rows(k: int) -> int:
    return max(_FIRST, _FIRST_EACH * k)


def _fit(rows: Rows) -> int:
    """Rows that fit the client."""
    return _BYTES // (max(1, rows.n_features) * rows.dtype.itemsize)


def _wanted(rows: Rows, k: int) -> int:
    return min(rows.n_rows // 4, max(_ROWS, _ROWS_EACH * k), _fit(rows))


def pays(rows: Rows, k: int) -> bool:
    """Whether samples save work: enough rows, and enough of them fit the client."""
    fit = first_rows(k) <= _fit(rows)
    return fit and rows.n_rows >= max(2 * _FIRST, _LEAST_EACH * k)


def grows(rows: Rows, k: int) -> bool:
    """Whether iterations on parts of the sample lead to better centers on all rows."""
    return not is_large(k, rows.n_features) or _wanted(rows, k) >= _GROWN_EACH * k


@dataclass(frozen=True)
class Sample:
    """The `n_far` farthest rows, which stand for themselves, and a sample of the others.

    It is uniform, in random order, so that its first rows are a smaller one; `weight` is positive,
    `total` that of all rows but the farthest, `n_rows` their number.
    """

    rows: Array
    weight: Floats
    n_far: int
    total: float
    n_rows: int

    @property
    def n_drawn(self) -> int:
        return len(self.rows) - self.n_far

    @property
    def size(self) -> float:
        """Effective size of the sample (Kish): rows of equal weight with the same variance."""
        drawn = self.weight[self.n_far :]
        return float(drawn.sum() ** 2 / (drawn**2).sum()) if len(drawn) else 0.0

    def part(self, count: int) -> tuple[Array, Floats, float]:
        """Return the farthest rows and some sampled ones, a view, with weights that stand for all.

        The third is the squared weight of the sampled rows over their weight.
        """
        end = self.n_far + count
        weights = self.weight[:end].copy()
        drawn = weights[self.n_far :]
        mass, squares = drawn.sum(), (drawn**2).sum()
        times = self.total / mass
        drawn *= times
        return self.rows[:end], weights, float(times * squares / mass)


def draw_sample(
    rows: Rows,
    k: int,
    mean: Floats,
    total: float,
    seed: int,
    *,
    shift: Floats | None = None,
    missing: bool = False,
    size: int | None = None,
) -> Sample:
    """Draw rows by their numbers, independent of chunks, and those farthest from them: two passes.

    `mean` (p,) replaces missing values of rows that become centers; `total` is the weight of all.
    """
    rng = np.random.default_rng([seed, _OF_ROWS])
    size = size or min(rows.n_rows, max(_wanted(rows, k), first_rows(k)))
    numbers = draw_numbers(rows.n_rows, size, int(rng.integers(2**63)))
    x, weight = rows.take(numbers)
    order = rng.permutation(len(x))
    order = order[weight[order] > 0]
    # Drawn rows lie where most rows are: what is far from all of them is rare.
    large = drawn_at_once(rows, k)
    usual = filled(x[order[: min(k, _LARGE_USUAL) if large else max(k, _USUAL)]], mean)
    if not len(usual):
        return Sample(x[:0], weight[:0], 0, 0.0, rows.n_rows)
    most = min(first_rows(k) // 4, rows.n_rows // 8, _LARGE_FAR if large else rows.n_rows)
    request = FarthestRequest(usual, max(1, most), shift=shift, missing=missing)
    found = rows.reduce(FARTHEST, request)
    n_far, far_weight = len(found), found["x"][:, -2]
    order = order[~np.isin(numbers[order], found["row"])]
    # Parts are views: the only copy.
    joined = np.empty((n_far + len(order), rows.n_features), rows.dtype)
    joined[:n_far] = found["x"][:, :-2]
    np.take(x, order, axis=0, out=joined[n_far:], mode="clip")
    # Rounding may leave a little less than nothing.
    others = max(total - float(far_weight.sum()), 0.0)
    return Sample(joined, np.append(far_weight, weight[order]), n_far, others, rows.n_rows)


def filled(x: Array, mean: Floats) -> Floats:
    """Rows in double precision, with the mean of what they miss."""
    filled = x.astype(np.float64)
    missing = np.isnan(filled)
    # Complete rows may lie in another space than the means.
    return np.where(missing, mean, filled) if missing.any() else filled


def large_starts(
    sample: Sample, k: int, seeds: Sequence[int], mean: Floats, n_candidates: int
) -> list[Floats] | None:
    """Draw starts (k, p), one a seed, from `n_candidates` rows of the sample, by greedy k-means++.

    None where these have fewer than k distinct rows. Each takes the time of three passes over all
    rows, as far as multiplications tell, but two draws for each center are made even so.
    """
    if sample.total <= 0 or sample.size < k:
        return None
    part, weight, _ = sample.part(n_candidates)
    points = filled(part, mean) if np.isnan(part).any() else part
    m, p = points.shape
    tiles = in_tiles(points, weight) if p < _NARROW else None
    times = 1.0 if tiles is None else _SLOWER
    draws = min(n_draws(k), max(2, int(_DRAW_PASSES * sample.n_rows / (times * m))))
    found = []
    for seed in seeds:
        rng = np.random.default_rng([seed, _OF_LARGE])
        if tiles is not None:
            places = draw_greedy(tiles, k, rng.random((k, draws)))
        else:
            places = draw_in_batches(points, weight, k, draws, rng, side_by_side)
        if len(places) < k:
            return None
        found.append(points[places].astype(np.float64))
    return found


def n_candidates(rows: Rows, k: int, factor: float, n_rounds: int) -> int:
    """Return how many rows such starts are drawn from: as k-means|| would draw, if they fit."""
    wanted = max(_FIRST, n_rounds * round(factor * k))
    if rows.n_features < _NARROW:
        wanted = min(wanted, max(rows.n_rows // 2, 4 * k))
    return min(rows.n_rows, max(2 * k, min(wanted, _fit(rows))))


#: Starts in which chance has no part (but for the sample of rows, where there are too many).
DETERMINISTIC_INITS = ("maximin", *DENSITY_INITS)
#: Starts that find rows; arrays and callables are taken as they are.
STRING_INITS = ("k-means||", "k-means++", "random", *DETERMINISTIC_INITS)

#: Up to 2**16 rows, or 50 a candidate, all rows weigh the candidates; of more rows a sample of
#: that size does: weights need not be exact.
_WEIGHED_ROWS, _WEIGHED_EACH = 2**16, 50


def n_survey_picks(init: Any, n_clusters: int, n_rows: float = np.nan) -> int:
    if not isinstance(init, str) or init == "maximin":
        return 0
    if init in DENSITY_INITS:
        return density_picks(n_clusters, n_rows)
    return n_clusters if init == "random" else 1


def _padded(found: list[Floats], k: int) -> Floats:
    """Stack the restarts' centers, (r, k, p), repeating the first where one has too few."""
    return np.stack([np.concatenate([c, np.repeat(c[:1], k - len(c), axis=0)]) for c in found])


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
) -> Floats:
    """Find starting centers of all restarts, (r, k, p), by one of :data:`STRING_INITS`.

    Centers that are `fixed` (m, p) come first, and others are sampled away from them. A row that
    becomes a center takes the means of the columns for what it misses.

    Passes, of all restarts together: 0 more for ``"random"``, one for each center but the first for
    ``"k-means++"``, one for each for ``"maximin"``, at most 1 for ``"dkm++"`` and ``"robin"``,
    ``init_rounds + 1`` for ``"k-means||"`` (2 for many centers).
    """
    if init in DETERMINISTIC_INITS:
        only = (
            maximin_centers(rows, n_clusters, shift, survey.mean if missing else None)
            if init == "maximin"
            else density_centers(rows, survey, init, n_clusters)
        )
        return _padded([only] * len(seeds), n_clusters)
    picks = [filled(drawn["x"][drawn["row"] >= 0], survey.mean) for drawn in survey.picks]
    known = picks[0][:0] if fixed is None else fixed
    if len(known) == n_clusters:
        return _padded([known] * len(seeds), n_clusters)
    if init == "random":
        return _padded([np.concatenate([known, p])[:n_clusters] for p in picks], n_clusters)
    first = [known] * len(seeds) if len(known) else picks
    if init == "k-means||" and not len(known) and drawn_at_once(rows, n_clusters):
        count = n_candidates(rows, n_clusters, oversampling_factor, init_rounds)
        sample = draw_sample(
            rows,
            n_clusters,
            survey.mean,
            survey.weight,
            seeds[0],
            shift=shift,
            missing=missing,
            size=count,
        )
        chosen = large_starts(sample, n_clusters, seeds, survey.mean, count)
        if chosen is not None:
            return _padded(chosen, n_clusters)
    drawn = Candidates(rows, survey, first, seeds, len(known), shift, missing)
    if init == "k-means++":
        # One row after another with probability ``w D^2`` (Algorithm 2 of the notes).
        while max(len(c) for c in drawn.points) < n_clusters and drawn.draw(1):
            pass
        return _padded(drawn.points, n_clusters)
    drawn.oversample(n_clusters, oversampling_factor, init_rounds)
    return drawn.clustered(n_clusters)


@dataclass
class Candidates:
    """Candidates (m_r, p) of all restarts, drawn in rounds; the first `n_fixed` do not move."""

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
        """Draw rows for each restart by ``w D^2``; return whether there were any left."""
        self.made += 1
        state = CandidateRound(
            tuple(self.points),
            self.seeds,
            self.made,
            # No more than there are: memory is taken for all of them.
            min(n_picks, self.rows.n_rows),
            shift=self.shift,
            missing=self.missing,
        )
        keep = self.rows.can_keep(CARRY_BYTES * len(self.seeds))
        sampling = CANDIDATES if keep else CANDIDATES.without_carry()
        found = self.rows.reduce(sampling, state, self.carry)
        mean = self.survey.mean
        drawn = [filled(picks["x"][picks["row"] >= 0], mean) for picks in found]
        self.points = [np.concatenate(pair) for pair in zip(self.points, drawn, strict=True)]
        return any(len(d) for d in drawn)

    def oversample(self, k: int, factor: float, n_rounds: int) -> None:
        """Draw rounds of ``factor`` rows for each missing center (Bahmani et al. 2012)."""
        per_round = max(1, round(factor * (k - self.n_fixed)))
        left = True
        # Rounds go on beyond `n_rounds` only while a restart has too few candidates.
        while left and (self.made < n_rounds or any(len(c) < k for c in self.points)):
            left = self.draw(per_round)

    def clustered(self, k: int) -> Floats:
        """Cluster the candidates, weighted by rows, or a sample, that they attract; one pass."""
        enough = max(_WEIGHED_ROWS, _WEIGHED_EACH * max(len(c) for c in self.points))
        rate = None
        if self.rows.n_rows > enough:
            rate = float(2.0 ** np.floor(np.log2(enough / self.survey.weight)))
        state = Attraction(tuple(self.points), self.seeds, rate, self.shift, self.missing)
        weights: list[Floats] = self.rows.reduce(ATTRACTED, state)
        found = [
            recluster(points, weight, k, seed, self.n_fixed)
            for points, weight, seed in zip(self.points, weights, self.seeds, strict=True)
        ]
        return _padded(found, k)


#: Iterations of weighted Lloyd on the candidates; they are few and it converges fast.
_RECLUSTER_ITER, _RECLUSTER_LARGE_ITER = 100, 10
#: Runs on the candidates, of which the best is kept; fewer where candidates times k is large.
_RECLUSTER_TRIES = 8
_RECLUSTER_WORK = 20_000_000
#: Candidates times k times features from which threads pay.
_RECLUSTER_THREADING = 2**16


def recluster(points: Floats, mass: Floats, k: int, seed: int, n_fixed: int = 0) -> Floats:
    """Cluster distinct candidates by weight to (min(k, m), p): weighted k-means++, then Lloyd."""
    if len(points) <= k:
        return points
    used = (mass > 0) | (np.arange(len(mass)) < n_fixed)
    if used.sum() <= k:
        # Candidates without rows of their own are still better than repeated ones.
        return np.concatenate([points[used], points[~used]])[:k]
    points, mass = points[used], mass[used]
    # By their values, but for the fixed ones: where there are as many candidates as distinct rows,
    # nothing then shows which were drawn when, and weights equal repetition to the last bit.
    order = n_fixed + np.lexsort(points[n_fixed:].T[::-1])
    order = np.concatenate([np.arange(n_fixed), order])
    points, mass = points[order], mass[order]
    work = len(points) * k
    tries = max(1, min(_RECLUSTER_TRIES, _RECLUSTER_WORK // work))
    center = np.average(points, axis=0, weights=mass)

    def attempt(word: int) -> tuple[Floats, float]:
        uniforms = np.zeros(k)
        uniforms[n_fixed:] = np.random.Generator(np.random.Philox(word)).random(k - n_fixed)
        drawn = points[draw_apart(points, mass, k, uniforms, n_fixed)]
        most = _RECLUSTER_LARGE_ITER if is_large(*drawn.shape) else _RECLUSTER_ITER
        return cluster_points(points, mass, drawn, max_iter=most, shift=center, n_fixed=n_fixed)

    words = np.random.SeedSequence(seed).generate_state(tries).tolist()
    calls = [partial(attempt, word) for word in words]
    large = work * points.shape[1] >= _RECLUSTER_THREADING
    found = side_by_side(calls) if large else [call() for call in calls]
    return found[best_restart([cost for _, cost in found])][0]


def note_start(history: list[dict[str, Any]], init: Any, n_rows: int, k: int) -> None:
    if history and isinstance(init, str) and init in DENSITY_INITS:
        history[0]["init_rows"] = min(n_rows, row_budget(k))


def passes_of_start(params: Mapping[str, Any]) -> int | None:
    """Return the passes of a start at most, from an estimator's parameters; None if unknown."""
    init = params.get("init", params.get("init_params"))
    if not isinstance(init, str):
        return 0
    k = params.get("n_clusters", params.get("n_components", 1))
    rounds = int(params.get("init_rounds", 5)) + 1
    algorithm = params.get("algorithm")
    is_nested = algorithm == "nested" or (algorithm == "auto" and init == "k-means||")
    drawn = dict.fromkeys(("auto", "neighborhoods", "ss-k-means||"), rounds)
    known = dict.fromkeys(("k-means||", "kmeans"), rounds) | dict.fromkeys(DENSITY_INITS, 1)
    known |= {"k-means++": k - 1, "ss-k-means++": k, "maximin": k, "random": 0, "seeded-random": 0}
    # The sample, and the farthest rows.
    more = 2 if is_nested else 0
    return drawn.get(init, known[init] + more if init in known else None)

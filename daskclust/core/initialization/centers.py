"""Initial centers of all restarts of a fit, found in shared passes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from scipy.optimize import linear_sum_assignment

from daskclust.core.array_types import Floats
from daskclust.core.engine.checkpoint import saved_stage
from daskclust.core.estimator.validation import given_centers
from daskclust.core.initialization.candidates import Candidates
from daskclust.core.initialization.deterministic import density_centers, maximin_centers
from daskclust.core.initialization.growing import draw_tries, grow
from daskclust.core.initialization.methods import DETERMINISTIC_INITS
from daskclust.core.initialization.problem import Initialization
from daskclust.core.initialization.samples import (
    Sample,
    can_compare,
    can_iterate,
    draw_sample,
    draws_at_once,
    fewest_rows,
    filled,
    first_rows,
    grows,
    is_complete,
    n_candidates,
)
from daskclust.core.kernels.draws import n_draws
from daskclust.core.kernels.nearest.assign import direct_distances


@dataclass(frozen=True)
class _Centers:
    """Initial centers of all restarts."""

    centers: Annotated[Floats, "f r c q"]


def initial_centers(problem: Initialization) -> Floats:
    """Find the initial centers of all restarts, (r, k, p), in the space of the metric.

    Known centers come first.  If there are fewer than k, ``"k-means||"`` matches its centers to
    them; the other methods keep them and sample rows far from them.  Missing values of a row that
    becomes a center are replaced by the means of the columns.

    Passes of all restarts together: 0 for ``"random"``, one per center except the first for
    ``"k-means++"``, one per center for ``"maximin"``, at most 1 for ``"dkm++"`` and ``"robin"``,
    ``init_rounds + 2`` for ``"k-means||"`` (1 if the sample consists of all rows, 2 for many wide
    centers).  `on_sample` takes two more, except for ``"k-means||"``.
    """
    data, k = problem.data, problem.n_clusters
    is_named = isinstance(problem.init, str)
    if is_named:
        sizes = {"r": len(problem.seeds), "c": k, "q": problem.rows.n_features}
        stage = saved_stage("centers", _Centers, lambda: _Centers(_named(problem)), **sizes)
        centers = stage.centers
        if problem.compares and problem.known is not None:
            matched = (match(each, problem.known) for each in centers)
            return np.stack([problem.known, *matched])
    else:
        centers_given = given_centers(problem.init, data.X, k, data.X.shape[1], problem.seeds)
        centers = np.stack([problem.metric(each) for each in centers_given])
    is_grown = is_named and problem.init == "k-means||"
    if problem.on_sample and not is_grown and can_iterate(problem.rows, k):
        sample = draw_sample(problem)
        if _is_representative(sample, k):
            return grow(problem, centers[:, None], sample)
    return centers


def _named(problem: Initialization) -> Floats:
    """Find the centers by one of the named initializations."""
    rows, survey, k, init = problem.rows, problem.survey, problem.n_clusters, problem.init
    n_restarts = len(problem.seeds)
    if not rows.n_features:
        # The metric may remove all directions: then all rows are equal.
        return np.zeros((n_restarts, k, 0))
    if init in DETERMINISTIC_INITS:
        single_set = (
            maximin_centers(rows, k, problem.shift, survey.mean if problem.missing else None)
            if init == "maximin"
            else density_centers(rows, survey, init, k)
        )
        return _padded([single_set] * n_restarts, k)
    picks = [filled(drawn["x"][drawn["row"] >= 0], survey.mean) for drawn in survey.picks]
    known = problem.known
    if known is None or problem.compares:
        known = picks[0][:0]
    if len(known) == k:
        return _padded([known] * n_restarts, k)
    if init == "k-means||":
        return np.stack([match(centers, known) for centers in _on_samples(problem, picks, known)])
    if init == "random":
        return _padded([np.concatenate([known, p])[:k] for p in picks], k)
    if len(known):
        return _drawn_apart(problem, [known] * n_restarts)
    return _drawn_best(problem, picks)


def _padded(centers: list[Floats], k: int) -> Floats:
    """Stack centers of restarts, (r, k, p); repeat the first center if there are too few."""
    return np.stack([np.concatenate([c, np.repeat(c[:1], k - len(c), axis=0)]) for c in centers])


def _drawn_apart(problem: Initialization, known: list[Floats]) -> Floats:
    """Draw one row after another with probability ``w D^2``, after known centers."""
    drawn = Candidates(problem, known)
    while max(len(c) for c in drawn.points) < problem.n_clusters and drawn.draw(1):
        pass
    return _padded(drawn.points, problem.n_clusters)


def _drawn_best(problem: Initialization, picks: list[Floats]) -> Floats:
    """Draw one row after another with probability ``w D^2`` (Algorithm 2 of the notes).

    Each row is the best of several draws, evaluated on a sample of the rows.
    """
    k = problem.n_clusters
    if not can_compare(problem.rows, k):
        return _drawn_apart(problem, picks)
    sample = _saved_sample(problem)
    if not (sample.n_drawn and sample.total > 0):
        return _drawn_apart(problem, picks)
    part, weight, _ = sample.part(min(first_rows(k), sample.n_drawn))
    rows, drawn = filled(part, problem.survey.mean), Candidates(problem, picks)
    while max(len(c) for c in drawn.points) < k and drawn.draw_best(n_draws(k), rows, weight):
        pass
    return _padded(drawn.points, k)


def _on_samples(problem: Initialization, picks: list[Floats], known: Floats) -> Floats:
    """Find centers on growing samples, or among candidates if a sample is not representative."""
    rows, k = problem.rows, problem.n_clusters
    drawn = Candidates(problem, picks)
    if not can_iterate(rows, k):
        drawn.oversample()
        return _padded(drawn.choose(), k)
    complete, growing = is_complete(rows, k), grows(rows, k)
    if not (complete or draws_at_once(rows, k)):
        drawn.oversample()
    count = n_candidates(rows, k, problem.oversampling_factor, problem.init_rounds)
    sample = _saved_sample(problem, None if growing or complete else count)
    if complete or _is_representative(sample, k):
        tries = [
            draw_tries(
                sample,
                k,
                seed,
                problem.survey.mean,
                count=count,
                candidates=points if drawn.n_rounds else points[:0],
                known=known,
            )
            for points, seed in zip(drawn.points, problem.seeds, strict=True)
        ]
        if all(len(centers) == k for sets in tries for centers in sets):
            sets = np.array(tries)
            return grow(problem, sets, sample) if growing else sets[:, 0]
        if complete:
            # The rows have fewer than k distinct values.
            return _padded([sets[-1] for sets in tries], k)
    if not drawn.n_rounds:
        drawn.oversample()
    return _padded(drawn.choose(), k)


def _saved_sample(problem: Initialization, size: int | None = None) -> Sample:
    """Draw the sample of a fit, or load it from its checkpoint."""
    p = problem.rows.n_features
    return saved_stage("sample", Sample, lambda: draw_sample(problem, size), p=p)


def _is_representative(sample: Sample, k: int) -> bool:
    """Return False if few rows have most of the weight: a uniform sample is then useless."""
    return sample.total > 0 and sample.size >= fewest_rows(k, sample.n_rows)


def match(centers: Floats, known: Floats) -> Floats:
    """Order centers (k, p) so that center i belongs to known center i, for `known` (m, p).

    The sum of squared distances between known centers and their partners is minimal.
    """
    if not len(known):
        return centers
    _, partners = linear_sum_assignment(direct_distances(known, centers))
    others = np.setdiff1d(np.arange(len(centers)), partners)
    return centers[np.concatenate([partners, others])]

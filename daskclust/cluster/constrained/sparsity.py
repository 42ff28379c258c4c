"""Feature scores and sparse feature weights of SKM and PCSKM.

The weights maximize ``sum_j w_j gamma_j`` subject to ``|w|_2 <= 1``,
``|w|_1 <= s`` and ``w >= 0`` (Eq. 4 and 14 of the PCSKM paper).  The solution is
the soft-thresholded positive part of the scores (Eq. 5).  The threshold Delta is
found in closed form: between two neighboring scores the active set is constant,
and ``|w|_1 = s`` is a quadratic equation in Delta.

Everything is computed from the *gaps* to the largest score, ``d_j = max - gamma_j``,
after dividing by that score.  Sums of gaps do not cancel, so the result is
accurate when the leading scores are almost equal, and nothing over- or underflows
whatever the unit of the data.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from daskclust.core.array_types import Floats

#: Scores within this relative distance of the largest one are tied with it.  Rounding in the
#: sums is some 1e-15, so the weights of equal features do not hang on the order of summation.
TIE_TOLERANCE = 1e-12

#: Relative slack of "s**2 equals an integer": squaring sqrt(t) rounds.
_SQUARE_TOLERANCE = 1e-12


class FeatureWeights(NamedTuple):
    """Sparse feature weights, of unit length, and the threshold that was subtracted from scores.

    ``tied``: t > sparsity**2 features share the largest score, so that no threshold reaches
    ``|w|_1 = sparsity``; the weights are ``1 / sqrt(t)`` on exactly those features.
    """

    weights: Floats
    delta: float
    tied: bool


class _Threshold(NamedTuple):
    """Scaled solution: weights are proportional to ``max(reach - gap, 0)``."""

    top: float  # largest score
    gaps: Floats  # (p,) 1 - score / top in [0, 1], 1 for scores that are not positive
    reach: float  # 1 - Delta / top
    tied: bool


def between_scores(sums: ArrayLike, counts: ArrayLike, mean: ArrayLike) -> Floats:
    """Between-cluster sum of squares of each feature (gamma, Eq. 6), not negative.

    Computed from the clusters' sums (k, p) as ``sum_k n_k (m_kj - mu_j)^2``: without a pass of its
    own and without cancellation.  ``counts`` are the weights (k,) of the clusters, or (k, p) of the
    values of each feature where some are missing.
    """
    sums = np.asarray(sums, dtype=np.float64)
    counts = np.asarray(counts, dtype=np.float64)
    if counts.ndim == 2:
        means = np.divide(sums, counts, out=np.zeros_like(sums), where=counts > 0)
        of_observed: Floats = np.sum(counts * (means - np.asarray(mean)) ** 2, axis=0)
        return of_observed
    filled = counts > 0
    weights = counts[filled]
    shifts = sums[filled] / weights[:, None] - np.asarray(mean, dtype=np.float64)
    # Not through BLAS: its summation order depends on the build and the number of threads.
    scores: Floats = np.sum(weights[:, None] * shifts * shifts, axis=0)
    return scores


def _solve(scores: Floats, sparsity: float) -> _Threshold | None:
    """Closed-form threshold in scaled gaps, or None when no score is positive."""
    if scores.ndim != 1:
        raise ValueError(f"scores has shape {scores.shape}; expected one dimension, (p,).")
    if not math.isfinite(sparsity) or sparsity < 1:
        raise ValueError(
            f"sparsity={sparsity!r}; expected a finite number of at least 1 (weights of unit "
            "Euclidean length have an L1 norm between 1 and sqrt(p)). Choose 1 <= sparsity."
        )
    finite = np.isfinite(scores)
    if not finite.all():
        j = int(np.argmin(finite))
        raise ValueError(
            f"The score of feature {j} is {scores[j]}; expected finite scores. "
            "Rescale the features, or remove NaN and infinite values from the data."
        )
    top = float(scores.max(initial=0.0))
    if top <= 0.0:
        return None
    # Subtracted before dividing: the difference of two neighboring scores is exact.  A score
    # below 0 counts as 0, gap 1, which is where the threshold 0 is.
    gaps = (top - np.maximum(scores, 0.0)) / top
    gaps[gaps <= TIE_TOLERANCE] = 0.0

    d = np.sort(gaps[gaps < 1.0])
    size = np.arange(1, d.size + 1)
    s1 = np.cumsum(d)
    s2 = np.cumsum(d * d)
    # L1 and L2 norm of the thresholded scores when the threshold is the next lower score, that
    # is, with exactly the m largest active.  (Delta = 0, reach 1, is the last of them.)
    step = np.append(d[1:], 1.0)
    norm1 = size * step - s1
    norm2 = np.sqrt(np.maximum(size * step * step - 2.0 * step * s1 + s2, 0.0))
    if norm1[-1] <= sparsity * norm2[-1]:
        return _Threshold(top, gaps, 1.0, False)

    ties = int(np.searchsorted(d, 0.0, side="right"))
    square = sparsity * sparsity
    if ties >= square * (1.0 - _SQUARE_TOLERANCE):
        # Any threshold in [next score, top) gives equal weights on the ties.  If ties equals
        # the square, that is the solution; if it is more, no threshold reaches s.
        reach = float(d[ties]) if ties < d.size else 1.0
        return _Threshold(top, gaps, reach, ties > square * (1.0 + _SQUARE_TOLERANCE))

    # |w|_1 falls as the threshold rises, so the active set is the smallest m whose norm at the
    # next lower score is at least s.  The ratio is at most sqrt(m), hence m > s**2.  Tied scores
    # enter together; before the last of them both norms are 0.
    reached = norm1 >= sparsity * norm2
    reached[: ties - 1] = False
    m = int(np.argmax(reached)) + 1
    active = d[:m]
    mean = float(active.sum()) / m
    spread = float(np.sum((active - mean) ** 2))
    room = m * (m - square)
    # Delta = (S1 - s sqrt((m S2 - S1^2) / (m - s^2))) / m, written in gaps: a sum of two
    # non-negative terms, and (m S2 - S1^2) / m is the spread about the mean.
    reach = mean + sparsity * math.sqrt(spread / room) if room > 0.0 else float(step[m - 1])
    return _Threshold(top, gaps, min(max(reach, float(active[-1])), float(step[m - 1])), False)


def soft_threshold(scores: ArrayLike, sparsity: float) -> float:
    """Threshold Delta for which the weights of Eq. 5 have L1 norm ``sparsity``, s >= 1.

    0 when the positive scores, at unit L2 norm, have L1 norm <= s already, and when there is none.
    Otherwise, with m the number of scores above Delta and S1, S2 the sums of these scores and of
    their squares, ``Delta = (S1 - s sqrt((m S2 - S1^2) / (m - s^2))) / m``.  If t >= s**2 features
    share the largest score (within :data:`TIE_TOLERANCE`), the next lower score.

    Cost O(p log p).  ``Delta(c * scores) = c * Delta(scores)`` for every scale c.
    """
    solution = _solve(np.asarray(scores, dtype=np.float64), sparsity)
    if solution is None:
        return 0.0
    return solution.top * (1.0 - solution.reach)


def feature_weights(
    scores: ArrayLike,
    sparsity: float,
    *,
    threshold: Callable[[Floats, float], float] = soft_threshold,
) -> FeatureWeights | None:
    """Sparse feature weights from feature scores (Eq. 5 on the positive part).

    ``threshold`` finds Delta from the scores with negative ones set to 0; for instance the
    bisection of the published program.  None when no score is positive, where Eq. 5 has no
    solution: keep the last weights.
    """
    values = np.asarray(scores, dtype=np.float64)
    solution = _solve(values, sparsity)
    if solution is None:
        return None
    positive = np.maximum(values, 0.0)
    if threshold is soft_threshold:
        delta = solution.top * (1.0 - solution.reach)
        # In gaps, because max(gamma - Delta, 0) cancels when the leading scores almost agree; but
        # with no threshold the scores themselves are better.
        kept = (
            np.maximum(solution.reach - solution.gaps, 0.0)
            if solution.reach < 1.0
            else positive / solution.top
        )
    else:
        delta = float(threshold(positive, sparsity))
        # A negative Delta (the published bisection on tiny scores) must not revive a score of 0.
        kept = np.where(positive > 0.0, np.maximum(positive - delta, 0.0), 0.0) / solution.top
    largest = float(kept.max())
    if not largest > 0.0:
        raise ValueError(
            f"The threshold function returned Delta={delta!r} for scores of at most "
            f"{solution.top!r}; expected Delta below the largest score, so that a feature remains."
        )
    # The largest entry is scaled to 1 first: squares of tiny entries would underflow.
    kept = kept / largest
    return FeatureWeights(kept / math.sqrt(float(np.sum(kept * kept))), delta, solution.tied)

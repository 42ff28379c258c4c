"""Feature scores and sparse feature weights of SparseKMeans and PCSKMeans.

The weights maximize ``sum_j w_j gamma_j`` subject to ``|w|_2 <= 1``, ``|w|_1 <= s`` and ``w >= 0``
(Eq. 4 and 14 of the PCSKM paper).  The solution is the soft-thresholded positive part of the scores
(Eq. 5).  The threshold Delta has a closed form: between two neighboring scores the set of positive
weights is constant, and ``|w|_1 = s`` is a quadratic equation in Delta.

All computations use *gaps*, ``1 - gamma_j / max gamma``, instead of scores.  Sums of gaps do not
cancel, so the result is accurate if the largest scores are almost equal.  Gaps do not depend on the
unit of the data, so they do not overflow or underflow.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from daskclust.core.array_types import Floats

#: Maximum gap of scores that are tied with the largest score.  The rounding errors of sums are
#: about 1e-15, so equal features have equal weights for any order of summation.
TIE_TOLERANCE = 1e-12

#: Relative tolerance for comparing ``s**2`` with an integer, because s may be a rounded root.
_SQUARE_TOLERANCE = 1e-12


class FeatureWeights(NamedTuple):
    """Sparse feature weights, and the threshold that was subtracted from the scores.

    `weights` (p,): unit Euclidean length. `delta`: threshold. `tied`: True if t > sparsity**2
    features share the largest score.  Their weights are ``1 / sqrt(t)``, and all other weights are
    0, because no threshold gives ``|w|_1 = sparsity``.
    """

    weights: Floats
    delta: float
    tied: bool


class _Threshold(NamedTuple):
    """Scaled solution: weights are proportional to ``max(reach - gap, 0)``.

    `top`: largest score. `gaps` (p,): ``1 - score / top``, or 1 for scores that are not positive.
    `reach`: ``1 - Delta / top``. `tied`: as in :class:`FeatureWeights`.
    """

    top: float
    gaps: Floats
    reach: float
    tied: bool


def between_scores(sums: ArrayLike, counts: ArrayLike, mean: ArrayLike) -> Floats:
    """Return the between-cluster sum of squares of each feature (gamma, Eq. 6).

    The formula ``sum_k n_k (m_kj - mu_j)^2`` uses `sums` of the clusters (k, p), so it needs no
    pass, and it does not cancel.  `counts` are the weights of the clusters (k,), or the weights of
    their observed values (k, p).
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
    # The order of summation of BLAS depends on its build and the number of threads.
    scores: Floats = np.sum(weights[:, None] * shifts * shifts, axis=0)
    return scores


def _solve(scores: Floats, sparsity: float) -> _Threshold | None:
    """Return the solution in closed form, or None if no score is positive."""
    if scores.ndim != 1:
        raise ValueError(f"scores must have shape (p,), got {scores.shape}. Use scores.ravel().")
    if not math.isfinite(sparsity) or sparsity < 1:
        raise ValueError(
            f"sparsity must be a finite number of at least 1, got {sparsity!r}. Weights of unit "
            "Euclidean length have an L1 norm between 1 and sqrt(p). Use sparsity=1 or more."
        )
    finite = np.isfinite(scores)
    if not finite.all():
        j = int(np.argmin(finite))
        raise ValueError(
            f"scores must be finite, got {scores[j]} for feature {j}. Rescale the features, or "
            "remove NaN and infinite values from the data."
        )
    top = float(scores.max(initial=0.0))
    if top <= 0.0:
        return None
    # The difference of two neighboring scores is exact, so it is computed before the division.
    # Negative scores count as 0, so their gap is 1.
    gaps = (top - np.maximum(scores, 0.0)) / top
    gaps[gaps <= TIE_TOLERANCE] = 0.0

    d = np.sort(gaps[gaps < 1.0])
    size = np.arange(1, d.size + 1)
    s1 = np.cumsum(d)
    s2 = np.cumsum(d * d)
    # L1 and L2 norms of the thresholded scores for m = 1, 2, ... positive weights.  The threshold
    # is the next lower score; for the largest m it is 0, with gap 1.
    step = np.append(d[1:], 1.0)
    norm1 = size * step - s1
    norm2 = np.sqrt(np.maximum(size * step * step - 2.0 * step * s1 + s2, 0.0))
    if norm1[-1] <= sparsity * norm2[-1]:
        return _Threshold(top, gaps, 1.0, False)

    ties = int(np.searchsorted(d, 0.0, side="right"))
    square = sparsity * sparsity
    if ties >= square * (1.0 - _SQUARE_TOLERANCE):
        # Any threshold between the next score and `top` gives equal weights to the tied features.
        # Their L1 norm is s if the number of ties is s**2.  With more ties it is always larger.
        reach = float(d[ties]) if ties < d.size else 1.0
        return _Threshold(top, gaps, reach, ties > square * (1.0 + _SQUARE_TOLERANCE))

    # |w|_1 decreases with the threshold.  So the number m of positive weights is the smallest m
    # whose norm ratio at the next lower score is at least s.  The ratio is at most sqrt(m), so
    # m > s**2.  Tied scores get positive weights together: both norms are 0 for fewer of them.
    reached = norm1 >= sparsity * norm2
    reached[: ties - 1] = False
    m = int(np.argmax(reached)) + 1
    active = d[:m]
    mean = float(active.sum()) / m
    spread = float(np.sum((active - mean) ** 2))
    room = m * (m - square)
    # The formula of `soft_threshold` in gaps is a sum of two terms that are not negative.  The
    # spread is ``(m S2 - S1^2) / m``.
    reach = mean + sparsity * math.sqrt(spread / room) if room > 0.0 else float(step[m - 1])
    return _Threshold(top, gaps, min(max(reach, float(active[-1])), float(step[m - 1])), False)


def soft_threshold(scores: ArrayLike, sparsity: float) -> float:
    """Return the threshold Delta for which the weights of Eq. 5 have the L1 norm s = `sparsity`.

    ``Delta = (S1 - s sqrt((m S2 - S1^2) / (m - s^2))) / m``, with m the number of scores above
    Delta, S1 their sum and S2 the sum of their squares.  There are two exceptions:

    - Delta is 0 if no score is positive, or if the weights have an L1 norm of at most s without a
      threshold.
    - Delta is the next lower score if s**2 or more features share the largest score (up to
      :data:`TIE_TOLERANCE`).

    Delta is proportional to the scores.  Cost O(p log p).
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
    """Return sparse feature weights for scores (p,), by Eq. 5 for the positive scores.

    Return None if no score is positive, because Eq. 5 then has no solution.  `threshold` is a
    function of the scores and the sparsity that returns Delta, for example the bisection of the
    published program.  It is called with 0 in place of negative scores.
    """
    values = np.asarray(scores, dtype=np.float64)
    solution = _solve(values, sparsity)
    if solution is None:
        return None
    positive = np.maximum(values, 0.0)
    if threshold is soft_threshold:
        delta = solution.top * (1.0 - solution.reach)
        # Gaps are more accurate if the largest scores are almost equal.  Without a threshold
        # (reach 1), scores are more accurate.
        thresholded = (
            np.maximum(solution.reach - solution.gaps, 0.0)
            if solution.reach < 1.0
            else positive / solution.top
        )
    else:
        delta = float(threshold(positive, sparsity))
        # The published bisection may return a negative Delta for tiny scores.  Features of score 0
        # must still have weight 0.
        thresholded = (
            np.where(positive > 0.0, np.maximum(positive - delta, 0.0), 0.0) / solution.top
        )
    largest = float(thresholded.max())
    if not largest > 0.0:
        raise ValueError(
            f"threshold must return a number below the largest score {solution.top!r}, got "
            f"{delta!r}. Otherwise no feature has a positive weight."
        )
    # Squares of tiny entries would underflow, so the largest entry is first scaled to 1.
    thresholded = thresholded / largest
    return FeatureWeights(
        thresholded / math.sqrt(float(np.sum(thresholded * thresholded))), delta, solution.tied
    )

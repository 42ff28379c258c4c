"""The published PCSKM program's behavior, as plain loops.

Written from the description of what the program does, to be read, not to be fast;
it shares no code with the package.  Without constraints it is SKM.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from .published import bisection_threshold

CONVERGED, OUTER_LIMIT, EMPTY, BAD_WEIGHT = -1, -3, 1, 3
#: Not of the program: Eq. 15 has no solution, and the run ends with the weights it had.
KEPT = 4


@dataclass
class Fit:
    """Outcome of a run; ``passes`` counts outer rounds."""

    labels: NDArray[np.int64]
    weights: NDArray[np.float64]
    weights_of_labels: NDArray[np.float64]
    centers: NDArray[np.float64]
    passes: int
    status: int


def closed_threshold(scores: NDArray[np.float64], sparsity: float) -> float:
    """Delta by the formula, trying every size of the active set in turn."""
    g = sorted((v for v in scores.tolist() if v > 0), reverse=True)
    if sum(g) <= sparsity * sum(v * v for v in g) ** 0.5:
        return 0.0
    for m in range(1, len(g) + 1):
        if m <= sparsity**2:
            continue
        s1, s2 = sum(g[:m]), sum(v * v for v in g[:m])
        delta = (s1 - sparsity * ((m * s2 - s1 * s1) / (m - sparsity**2)) ** 0.5) / m
        following = g[m] if m < len(g) else 0.0
        if following <= delta < g[m - 1]:
            return delta
    raise AssertionError("no active set fits: tied scores")


def pck_run(
    x: NDArray[np.float64],
    centers: NDArray[np.float64],
    must_link: NDArray[np.int64],
    cannot_link: NDArray[np.int64],
    box: float,
    max_inner: int,
) -> tuple[NDArray[np.int64], NDArray[np.float64], bool]:
    """Passes to convergence in one space: labels, centers, and whether a cluster was empty."""
    n, k = len(x), len(centers)
    partners: list[list[tuple[int, bool, float]]] = [[] for _ in range(n)]
    for pairs, is_must in ((must_link, True), (cannot_link, False)):
        lengths = np.sum(np.ascontiguousarray(x[pairs[:, 0]] - x[pairs[:, 1]]) ** 2, axis=1)
        for (a, b), length in zip(pairs.tolist(), lengths.tolist(), strict=True):
            partners[a].append((b, is_must, length))
            partners[b].append((a, is_must, length))
    found = [-1] * n
    for _ in range(max_inner):
        before = found.copy()
        # Centers stay where they are in a pass.
        scores = np.ascontiguousarray((x[:, None] - centers) ** 2).sum(axis=2).tolist()
        for i, score in enumerate(scores):
            for other, is_must, length in partners[i]:
                if found[other] < 0:
                    continue
                if not is_must:
                    score[found[other]] += box - length
                    continue
                for cluster in range(k):
                    if cluster != found[other]:
                        score[cluster] += length
            found[i] = score.index(min(score))
        labels = np.array(found)
        if any(not np.any(labels == cluster) for cluster in range(k)):
            return labels, centers, True
        centers = np.array([x[labels == cluster].mean(axis=0) for cluster in range(k)])
        if found == before:
            break
    return labels, centers, False


def pcskm(
    x: NDArray[np.float64],
    initial: NDArray[np.float64],
    sparsity: float,
    must_link: NDArray[np.int64],
    cannot_link: NDArray[np.int64],
    *,
    threshold: Literal["closed", "bisection"] = "closed",
    stretched_box: bool = False,
    max_outer: int = 25,
    max_inner: int = 25,
    penalized: bool = False,
) -> Fit:
    """PCSKM, and SKM when there are no pairs, as the published program runs them.

    The program stretches the bounding box to the origin; ``stretched_box=False`` does not.
    It does not penalize the scores (Eq. 15) either.
    """
    find = closed_threshold if threshold == "closed" else bisection_threshold
    p = x.shape[1]
    lower = np.minimum(x.min(axis=0), 0.0) if stretched_box else x.min(axis=0)
    sides2 = (x.max(axis=0) - lower) ** 2
    weights, assign = np.full(p, 1 / np.sqrt(p)), np.ones(p)
    centers = initial
    labels = np.full(len(x), -1)
    for passes in range(1, max_outer + 1):
        root = np.sqrt(assign)
        box = float(np.sum(sides2 * assign))
        labels, _, empty = pck_run(x * root, centers * root, must_link, cannot_link, box, max_inner)
        if empty:
            return Fit(labels, weights, assign, centers, passes, EMPTY)
        centers = np.array([x[labels == k].mean(axis=0) for k in range(len(centers))])
        gamma = np.sum((x - x.mean(axis=0)) ** 2, axis=0)
        for k in range(len(centers)):
            gamma = gamma - np.sum((x[labels == k] - centers[k]) ** 2, axis=0)
        if penalized:
            for a, b in must_link:
                gamma = gamma - (x[a] - x[b]) ** 2 * (labels[a] != labels[b])
            for a, b in cannot_link:
                gamma = gamma - (sides2 - (x[a] - x[b]) ** 2) * (labels[a] == labels[b])
            gamma = np.maximum(gamma, 0.0)
            if not gamma.any():
                return Fit(labels, weights, assign, centers, passes, KEPT)
        kept = np.sign(gamma) * np.maximum(np.abs(gamma) - find(gamma, sparsity), 0.0)
        length = float(np.sqrt(np.sum(kept**2)))
        if length == 0 or np.any(kept < 0):
            return Fit(labels, weights, assign, centers, passes, BAD_WEIGHT)
        new = kept / length
        change = float(np.sum(np.abs(new - weights)) / np.sum(np.abs(weights)))
        weights = new
        if change <= 1e-4:
            return Fit(labels, weights, assign, centers, passes, CONVERGED)
        if passes < max_outer:
            assign = weights
    return Fit(labels, weights, assign, centers, max_outer, OUTER_LIMIT)

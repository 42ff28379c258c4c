"""Violations, Eq. 13 and Eq. 15 of the PCSKM paper, pair by pair."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Pair", "between", "list_pairs", "objective", "penalized_scores", "violated"]


@dataclass(frozen=True)
class Pair:
    """One pair of rows, its kind and its weight; implied ones stem from labels."""

    i: int
    j: int
    is_must: bool
    weight: float = 1.0
    implied: bool = False


def list_pairs(
    must_link: Any = (),
    cannot_link: Any = (),
    must_weight: Any = 1.0,
    cannot_weight: Any = 1.0,
    y: Any = None,
) -> list[Pair]:
    """Every pair, also those that labels imply (with the scalar weights, or 1)."""
    pairs = []
    for links, weights, is_must in (
        (must_link, must_weight, True),
        (cannot_link, cannot_weight, False),
    ):
        each = np.broadcast_to(np.asarray(weights, float), (len(links),))
        pairs += [
            Pair(int(i), int(j), is_must, float(w)) for (i, j), w in zip(links, each, strict=True)
        ]
    if y is not None:
        for i, j in combinations([i for i, label in enumerate(y) if label >= 0], 2):
            same = y[i] == y[j]
            weight = must_weight if same else cannot_weight
            pairs.append(Pair(i, j, same, float(weight) if np.ndim(weight) == 0 else 1.0, True))
    return pairs


def violated(labels: Any, pairs: list[Pair]) -> list[Pair]:
    """Pairs that the labels violate, in their order."""
    return [pair for pair in pairs if (labels[pair.i] == labels[pair.j]) != pair.is_must]


def between(x: NDArray[Any], labels: Any, weight: Any = None) -> NDArray[np.float64]:
    """TSS - WCSS by feature: gamma, Eq. 6."""
    x = np.asarray(x, np.float64)
    weight = np.ones(len(x)) if weight is None else np.asarray(weight, float)

    def squares(rows: NDArray[Any], w: NDArray[Any]) -> NDArray[np.float64]:
        return (w[:, None] * (rows - np.average(rows, axis=0, weights=w)) ** 2).sum(axis=0)

    total = squares(x, weight)
    for k in np.unique(labels[weight > 0]):
        mine = labels == k
        total = total - squares(x[mine], weight[mine])
    return total


def _prices(x: NDArray[Any], broken: list[Pair], box2: NDArray[Any]) -> NDArray[np.float64]:
    total = np.zeros(x.shape[1])
    for pair in broken:
        squared = (x[pair.i].astype(float) - x[pair.j].astype(float)) ** 2
        total += pair.weight * (squared if pair.is_must else box2 - squared)
    return total


def penalized_scores(
    x: NDArray[Any], labels: Any, pairs: list[Pair], weight: Any = None
) -> NDArray[np.float64]:
    """gamma', Eq. 15 with the brackets of Eq. 13: each violated pair once."""
    box2 = np.ptp(np.asarray(x, float), axis=0) ** 2
    return between(x, labels, weight) - _prices(x, violated(labels, pairs), box2)


def objective(
    x: NDArray[Any],
    labels: Any,
    weights: NDArray[Any],
    pairs: list[Pair],
    penalty: str = "distance",
    weight: Any = None,
) -> float:
    """Eq. 13 under feature weights ``weights``."""
    if penalty == "constant":
        price = sum(pair.weight for pair in violated(labels, pairs))
        return float(weights @ between(x, labels, weight)) - price
    return float(weights @ penalized_scores(x, labels, pairs, weight))

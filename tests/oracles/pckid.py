"""PCKID by its definition: the dense kernel (Eq. 6) and its eigenvectors (Eq. 4)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from daskclust import PCKID
from daskclust.mixture.densities import Mixtures
from oracles.mixtures import posteriors

__all__ = ["dense_embedding", "dense_kernel", "members"]

Float = NDArray[np.float64]


def members(model: PCKID) -> list[Mixtures]:
    """The trained mixtures of a model, one by one."""
    found, start = [], 0
    for size in model._sizes:
        part = slice(start, start + size)
        found.append(
            Mixtures(
                model._weights[part], model._means[part], model._covariances[part], (int(size),)
            )
        )
        start += size
    return found


def dense_kernel(model: PCKID, X: Float) -> Float:
    """Eq. 6: the mean over members of the products of posteriors."""
    total = np.zeros((len(X), len(X)))
    for mixtures in members(model):
        shares, _ = posteriors(X, mixtures)
        total += shares.T @ shares
    return total / len(model._sizes)


def dense_embedding(kernel: Float, d: int) -> tuple[Float, Float]:
    """Eq. 4: leading eigenvectors times the roots of their eigenvalues, and these."""
    values, vectors = np.linalg.eigh(kernel)
    values, vectors = values[::-1][:d], vectors[:, ::-1][:, :d]
    return vectors * np.sqrt(values), values

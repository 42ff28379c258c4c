"""Gaussian mixtures with missing values by brute force: a row and a component at a time."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

from daskclust.mixture.densities import Mixtures

__all__ = ["Expectation", "conditional", "expectation", "posteriors"]

Float = NDArray[np.float64]


class Expectation(NamedTuple):
    """Posteriors (D, n), log-likelihoods (m, n) and the sums of an EM iteration (D, s)."""

    shares: Float
    likelihood: Float
    sums: Float


def covariance_of(mixtures: Mixtures, k: int) -> Float:
    """Covariance matrix of a component."""
    matrix = mixtures.covariances[k]
    return np.diag(matrix) if matrix.ndim == 1 else matrix


def conditional(row: NDArray[Any], mixtures: Mixtures, k: int) -> tuple[Float, Float]:
    """Deviation from a component's mean, missing values expected, and their covariance."""
    there = ~np.isnan(row)
    gone = ~there
    mean, matrix = mixtures.means[k], covariance_of(mixtures, k)
    inverse = np.linalg.inv(matrix[np.ix_(there, there)])
    gap, rest = np.zeros(len(row)), np.zeros_like(matrix)
    gap[there] = row[there] - mean[there]
    tied = matrix[np.ix_(gone, there)] @ inverse
    gap[gone] = tied @ gap[there]
    rest[np.ix_(gone, gone)] = matrix[np.ix_(gone, gone)] - tied @ matrix[np.ix_(there, gone)]
    return gap, rest


def posteriors(x: Float, mixtures: Mixtures) -> tuple[Float, Float]:
    """Shares of the components in each row, and its log-likelihood in each mixture.

    A density at a time, for the rows of which the same is observed.
    """
    scores = np.zeros((len(mixtures.means), len(x)))
    for there in np.unique(~np.isnan(x), axis=0):
        at = (~np.isnan(x) == there).all(axis=1)
        for k in range(len(scores)):
            scores[k, at] = np.log(mixtures.weights[k])
            if there.any():
                matrix = covariance_of(mixtures, k)[np.ix_(there, there)]
                density = multivariate_normal(mixtures.means[k][there], matrix)
                scores[k, at] += density.logpdf(x[np.ix_(at, there)])
    parts = [scores[a:b] for a, b in pairwise(mixtures.bounds)]
    likelihood = np.array([logsumexp(part, axis=0) for part in parts])
    shares = np.concatenate(
        [np.exp(part - total) for part, total in zip(parts, likelihood, strict=True)]
    )
    return shares, likelihood


def expectation(x: NDArray[Any], weight: Float, mixtures: Mixtures, shift: Float) -> Expectation:
    """One E-step, by the definitions."""
    x = x.astype(np.float64)
    shares, likelihood = posteriors(x, mixtures)
    sums = np.zeros((len(shares), mixtures.n_statistics))
    for k in range(len(shares)):
        for i, row in enumerate(x):
            w = weight[i] * shares[k, i]
            there = ~np.isnan(row)
            z = np.where(there, row - shift, 0.0)
            if mixtures.diagonal:
                sums[k] += w * np.concatenate([[1.0], z**2, z, there])
            else:
                gap, rest = conditional(row, mixtures, k)
                sums[k] += w * np.concatenate([[1.0], gap, (np.outer(gap, gap) + rest).ravel()])
    return Expectation(shares, likelihood, sums)

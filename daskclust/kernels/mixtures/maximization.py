"""New means and variances of diagonal mixtures from the sums of a pass."""

from __future__ import annotations

from typing import Any

from daskclust.kernels.compiling import compiled

__all__ = ["move_diagonal"]


@compiled(counted=False, error_model="numpy")
def move_diagonal(sums: Any, mass: Any, means: Any, variances: Any, shift: Any, out: Any) -> None:
    """Write the means and variances that follow from the sums of ``g``, ``g o x^2``, ``g o x``.

    A missing value counts with the old mean and variance of its column.  Variances are
    not bounded below.

    Parameters
    ----------
    sums : ndarray of shape (D, 3p + 1), float64
        See :class:`daskclust.kernels.mixtures.expectation.MixtureSums`.
    mass : ndarray of shape (D,), float64
        Of the components; positive.
    means, variances : ndarray of shape (D, p), float64
        Under which the sums were taken.
    shift : ndarray of shape (p,), float64
    out : tuple of two ndarrays of shape (D, p), float64
        Receive means and variances.

    Examples
    --------
    A row with value 3, and one without, which counts as 0: the variance is theirs, 2.25, and
    half of the old one.

    >>> import numpy as np
    >>> sums, mass = np.array([[2.0, 9.0, 3.0, 1.0]]), np.array([2.0])
    >>> means, variances = np.empty((2, 1, 1))
    >>> move_diagonal(
    ...     sums, mass, np.zeros((1, 1)), np.ones((1, 1)), np.zeros(1), (means, variances)
    ... )
    >>> float(means[0, 0]), float(variances[0, 0])
    (1.5, 2.75)
    """
    d, p = means.shape
    new_means, new_variances = out
    for k in range(d):
        n = mass[k]
        for j in range(p):
            square, first, there = sums[k, 1 + j], sums[k, 1 + p + j], sums[k, 1 + 2 * p + j]
            # About the old mean; the missing values' share of the variance is the old variance.
            old = means[k, j] - shift[j]
            gap = (first - old * there) / n
            absent = n - there
            if absent <= 1e-9 * n:
                absent = 0.0
            second = square - 2 * old * first + old * old * there
            new_means[k, j] = means[k, j] + gap
            new_variances[k, j] = (second + absent * variances[k, j]) / n - gap * gap

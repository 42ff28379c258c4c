"""Moments of the labeled rows of a block, by class."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from daskclust._types import Array, Floats, Ints
from daskclust.kernels.compiling import compiled

__all__ = ["ClassMoments", "class_moments", "observed_class_moments"]


class ClassMoments(NamedTuple):
    """Statistics of the labeled rows of one block.

    Attributes
    ----------
    hi, lo : ndarray of shape (n_classes, p + 1), float64
        Weighted column sums of each class and, last, its weight, as unevaluated pairs.
    moments : ndarray of shape (3, n_classes, p), float64
        Weight, mean and sum of squared deviations from it, as
        :func:`daskclust.kernels.moments.merge_moments` merges them.
    """

    hi: Floats
    lo: Floats
    moments: Floats


@compiled()
def _sums(
    x: Any, places: Any, codes: Any, weights: Any, weighted: Any, hi: Any, lo: Any
) -> None:  # pragma: no cover
    p = x.shape[1]
    for at in range(places.size):
        i, c = places[at], codes[at]
        w = weights[i] if weighted else 1.0
        for j in range(p + 1):
            term = w * np.float64(x[i, j]) if j < p else w
            total = hi[c, j] + term
            part = total - hi[c, j]
            lo[c, j] += (hi[c, j] - (total - part)) + (term - part)
            hi[c, j] = total


@compiled()
def _squares(
    x: Any, places: Any, codes: Any, weights: Any, weighted: Any, means: Any, squares: Any
) -> None:  # pragma: no cover
    for at in range(places.size):
        i, c = places[at], codes[at]
        w = weights[i] if weighted else 1.0
        if w == 0.0:
            continue
        for j in range(x.shape[1]):
            gap = np.float64(x[i, j]) - means[c, j]
            squares[c, j] += w * gap * gap


def class_moments(
    x: Array,
    places: Ints,
    codes: NDArray[np.int32],
    weight: Floats | None,
    n_classes: int,
) -> ClassMoments:
    """Sum the labeled rows of a block by class.

    Every row joins a compensated sum, so that means do not show where blocks were
    cut: labeled rows are few, and seeds are to be the same for any chunks.

    Parameters
    ----------
    x : ndarray of shape (n, p), float32 or float64
        Finite.
    places : ndarray of shape (m,), int64
        Places of the labeled rows in the block.
    codes : ndarray of shape (m,), int32, in [0, n_classes)
    weight : ndarray of shape (n,), float64, or None
    n_classes : int

    Returns
    -------
    ClassMoments

    Notes
    -----
    Cost O(m p), memory O(n_classes p).

    Examples
    --------
    >>> import numpy as np
    >>> x = np.array([[1.0], [7.0], [3.0]])
    >>> found = class_moments(x, np.array([0, 2]), np.array([1, 1], np.int32), None, 2)
    >>> found.hi  # sum and weight
    array([[0., 0.],
           [4., 2.]])
    >>> found.moments[1:, 1].ravel()  # mean, squared deviations
    array([2., 2.])
    """
    p = x.shape[1]
    if len(codes) and not 0 <= codes.min() <= codes.max() < n_classes:
        # Compiled code does not check its indices.
        raise ValueError(f"codes lie in [{codes.min()}, {codes.max()}]; expected [0, {n_classes}).")
    hi, lo = np.zeros((n_classes, p + 1)), np.zeros((n_classes, p + 1))
    weights = np.empty(0) if weight is None else weight
    _sums(x, places, codes, weights, weight is not None, hi, lo)
    total = np.repeat(hi[:, p:] + lo[:, p:], p, axis=1)
    means = np.divide(hi[:, :p] + lo[:, :p], total, out=np.zeros((n_classes, p)), where=total > 0)
    squares = np.zeros((n_classes, p))
    _squares(x, places, codes, weights, weight is not None, means, squares)
    return ClassMoments(hi, lo, np.stack([total, means, squares]))


def observed_class_moments(
    x: Array,
    places: Ints,
    codes: NDArray[np.int32],
    weight: Floats | None,
    n_classes: int,
) -> ClassMoments:
    """Sum what the labeled rows of a block observe, by class.

    Parameters
    ----------
    x, places, codes, weight, n_classes
        See :func:`daskclust.kernels.class_moments.class_moments`; NaN where a value is
        missing.

    Returns
    -------
    ClassMoments
        ``hi`` and ``lo`` are of shape (n_classes, 2p + 1): sums, weights of the values, and
        the weight of the rows that observe anything.

    Notes
    -----
    Cost O(m p) time and memory for m labeled rows in the block.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.array([[1.0, np.nan], [3.0, 5.0]])
    >>> observed_class_moments(x, np.arange(2), np.zeros(2, np.int32), None, 1).hi
    array([[4., 5., 2., 1., 2.]])
    """
    p = x.shape[1]
    rows, at = x[places], np.arange(len(places))
    gone = np.isnan(rows)
    # One by itself, not weighted: rows of equal weight then sum exactly.
    w = None if weight is None else weight[places]
    if gone.all(axis=1).any():
        w = np.where(gone.all(axis=1), 0.0, 1.0 if w is None else w)
    found = class_moments(np.where(gone, rows.dtype.type(0), rows), at, codes, w, n_classes)
    there = class_moments((~gone).astype(np.float64), at, codes, w, n_classes)
    hi = np.concatenate([found.hi[:, :p], there.hi[:, :p], found.hi[:, p:]], axis=1)
    lo = np.concatenate([found.lo[:, :p], there.lo[:, :p], found.lo[:, p:]], axis=1)
    total = hi + lo
    sums, masses = total[:, :p], total[:, p : 2 * p]
    means = np.divide(sums, masses, out=np.zeros_like(sums), where=masses > 0)
    squares = np.where(gone, 0.0, rows - means[codes]) ** 2
    if w is not None:
        squares *= w[:, None]
    scatter = np.zeros_like(sums)
    np.add.at(scatter, codes, squares)
    return ClassMoments(hi, lo, np.stack([masses, means, scatter]))

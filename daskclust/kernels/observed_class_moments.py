"""Moments of the labeled rows of a block, by class, over the values that are there."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from daskclust._types import Array, Floats, Ints
from daskclust.kernels.class_moments import ClassMoments, class_moments

__all__ = ["observed_class_moments"]


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

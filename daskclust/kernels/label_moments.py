"""How rows lie about the means of their labels: moments by label, silhouettes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from daskclust._types import Floats, Ints
from daskclust.kernels.nearest.assign import SEGMENT, direct_distances, label_sums

__all__ = ["LabelMoments", "label_moments", "merge_label_moments", "own_and_other"]


class LabelMoments(NamedTuple):
    """Weight, mean and spread of the rows of each label.

    Attributes
    ----------
    labels : ndarray of shape (m,), int64
        Labels that occur, sorted.
    weights : ndarray of shape (m,), float64
    means : ndarray of shape (m, p), float64
    squares : ndarray of shape (m,), float64
        Weighted squared distances to the mean.
    rows : ndarray of shape (m,), float64
        Number of rows, where a weight above 1 stands for so many.
    """

    labels: Ints
    weights: Floats
    means: Floats
    squares: Floats
    rows: Floats


def _sum_by(index: NDArray[np.intp], values: Floats, k: int) -> Floats:
    out: Floats = np.bincount(index, weights=values, minlength=k).astype(np.float64)
    return out


def label_moments(x: NDArray, labels: Ints, weight: Floats | None) -> LabelMoments:
    """Moments of the rows of one block by their labels.

    Parameters
    ----------
    x : ndarray of shape (n, p)
    labels : ndarray of shape (n,), int64
    weight : ndarray of shape (n,), float64, optional
        Labels of no weight at all do not occur.

    Examples
    --------
    >>> import numpy as np
    >>> found = label_moments(np.array([[0.0], [2.0], [9.0]]), np.array([4, 4, 7]), None)
    >>> found.labels, found.means.ravel(), found.squares
    (array([4, 7]), array([1., 9.]), array([2., 0.]))
    """
    weight = np.ones(len(x)) if weight is None else weight
    found, index = np.unique(labels, return_inverse=True)
    k, p = len(found), x.shape[1]
    # About a row of each label, so that sums keep their digits whatever the offset of the data.
    origin = np.empty((k, p))
    origin[index[::-1]] = x[::-1]
    gaps = np.empty_like(x, dtype=np.float64)
    np.subtract(x, origin[index], out=gaps)
    sums, weights = label_sums(gaps, weight, index, k)
    shift = np.divide(sums, weights[:, None], out=np.zeros((k, p)), where=weights[:, None] > 0)
    gaps -= shift[index]
    squares = _sum_by(index, weight * np.einsum("ij,ij->i", gaps, gaps), k)
    rows = _sum_by(index, np.where(weight > 0, np.maximum(weight, 1.0), 0.0), k)
    kept = weights > 0
    means = (origin + shift)[kept]
    return LabelMoments(found[kept], weights[kept], means, squares[kept], rows[kept])


def merge_label_moments(parts: Sequence[LabelMoments]) -> LabelMoments:
    """Merge moments of disjoint rows (Chan et al.); associative up to rounding.

    Examples
    --------
    >>> import numpy as np
    >>> one = label_moments(np.array([[0.0]]), np.array([4]), None)
    >>> two = label_moments(np.array([[2.0]]), np.array([4]), None)
    >>> merge_label_moments([one, two]).squares
    array([2.])
    """
    labels, index = np.unique(np.concatenate([p.labels for p in parts]), return_inverse=True)
    every = LabelMoments(
        index,
        np.concatenate([p.weights for p in parts]),
        np.concatenate([p.means for p in parts]),
        np.concatenate([p.squares for p in parts]),
        np.concatenate([p.rows for p in parts]),
    )
    k = len(labels)
    weights = _sum_by(index, every.weights, k)
    origin = np.empty((k, every.means.shape[1]))
    origin[index[::-1]] = every.means[::-1]
    gaps = every.means - origin[index]
    shift = np.zeros_like(origin)
    np.add.at(shift, index, gaps * every.weights[:, None])
    shift /= weights[:, None]
    gaps -= shift[index]
    between = every.weights * np.einsum("ij,ij->i", gaps, gaps)
    squares = _sum_by(index, every.squares + between, k)
    rows = _sum_by(index, every.rows, k)
    return LabelMoments(labels, weights, origin + shift, squares, rows)


def own_and_other(
    x: NDArray,
    centers: Floats,
    labels: Ints,
    feature_weights: Floats | None = None,
) -> tuple[Floats, Floats]:
    """Squared distance of each row to its own center and to the nearest other one.

    Parameters
    ----------
    x : ndarray of shape (n, p)
    centers : ndarray of shape (k, p), float64
    labels : ndarray of shape (n,), int64, in [0, k)
    feature_weights : ndarray of shape (p,), float64, optional

    Returns
    -------
    own, other : ndarray of shape (n,), float64
        By direct differences; ``other`` is infinite for a single center.

    Examples
    --------
    >>> import numpy as np
    >>> own_and_other(np.array([[1.0]]), np.array([[0.0], [4.0]]), np.array([1]))
    (array([9.]), array([1.]))
    """
    own, other = np.empty(len(x)), np.empty(len(x))
    for start in range(0, len(x), SEGMENT):
        part = slice(start, start + SEGMENT)
        squared = direct_distances(x[part], centers, feature_weights)
        at = np.arange(len(squared)), labels[part]
        own[part] = squared[at]
        squared[at] = np.inf
        other[part] = squared.min(axis=1)
    return own, other

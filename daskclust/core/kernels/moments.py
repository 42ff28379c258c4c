"""First and second moments of the columns of a block: of all rows, by class, and by label."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from daskclust.core.array_types import Floats, Ints
from daskclust.core.kernels import sparse
from daskclust.core.kernels.compensated import add_plain, two_sum
from daskclust.core.kernels.compiling import compiled, read_only
from daskclust.core.kernels.nearest.assign import (
    SEGMENT,
    check_plain,
    direct_distances,
    label_sums,
)


class BlockMoments(NamedTuple):
    """Column statistics of the rows of non-zero weight of one block.

    ``hi`` and ``lo`` (p + 1,) are pairs for weighted column sums and, last, for the weight.
    ``moments`` (3, p) are weight, mean and sum of squared deviations.  ``finite`` is True if all
    values are finite, including rows of weight 0.

    With missing values, the sums (2p + 2,) are followed by the weight of each column's values, the
    weight of the rows, and the number of rows with values; ``finite`` is not computed.
    """

    hi: Floats
    lo: Floats
    moments: Floats
    low: Floats
    high: Floats
    finite: bool


@compiled(fastmath={"contract"})
def _segment(x, start, stop, weights, weighted, columns):
    """Add rows ``start .. stop - 1`` to the columns; return their weight.

    The columns contain weighted sums of the values minus a shift, and of their squares, the
    smallest and the largest value, and a probe that becomes NaN if a row of weight 0 is not finite.
    """
    p = x.shape[1]
    shift, sums, squares, low, high, probe = columns
    total = 0.0
    for i in range(start, stop):
        w = 1.0
        if weighted:
            w = weights[i]
            if w == 0.0:
                for j in range(p):
                    v = np.float64(x[i, j])
                    probe[j] += v - v
                continue
        total += w
        for j in range(p):
            v = np.float64(x[i, j])
            d = v - shift[j]
            wd = w * d
            sums[j] += wd
            squares[j] += wd * d
            low[j] = min(low[j], v)
            high[j] = max(high[j], v)
    return total


def first_nonfinite(x: Any) -> tuple[int, int]:
    """Return row and column of the first NaN or infinity in row order, or (-1, -1)."""
    if isinstance(x, sparse.SparseRows):
        return sparse.first_nonfinite(x)
    found: tuple[int, int] = _first_nonfinite(x)
    return found


@compiled()
def _first_nonfinite(x: NDArray) -> tuple[int, int]:
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            if not np.isfinite(x[i, j]):
                return i, j
    return -1, -1


def merge_moments(a: Floats, b: Floats) -> Floats:
    """Merge (weight, mean, sum of squared deviations) of two sets of rows (Chan et al.)."""
    weight = a[0] + b[0]
    share = np.divide(b[0], weight, out=np.zeros_like(weight), where=weight > 0)
    # Values whose squares overflow raise an error later, by the range of all rows.
    with np.errstate(over="ignore", invalid="ignore"):
        gap = b[1] - a[1]
        return np.stack([weight, a[1] + gap * share, a[2] + b[2] + gap**2 * a[0] * share])


@compiled()
def _origins(x, start, stop, weights, weighted, origin):
    """Write the first value of each column to ``origin``, or 0 without values."""
    p = x.shape[1]
    found = np.zeros(p, np.bool_)
    left = p
    for i in range(start, stop):
        if left == 0:
            return
        if weighted and weights[i] == 0.0:
            continue
        for j in range(p):
            if not found[j] and not np.isnan(x[i, j]):
                origin[j], found[j] = x[i, j], True
                left -= 1


@compiled()
def _observed_segment(x, start, stop, weights, weighted, origin, mass, sums, squares, low, high):
    """Add rows relative to the origin of each column; missing values add 0, without a branch."""
    p = x.shape[1]
    total, informed = 0.0, 0.0
    for i in range(start, stop):
        w = weights[i] if weighted else 1.0
        if w == 0.0:
            continue
        total += w
        missing = 0
        for j in range(p):
            v = np.float64(x[i, j])
            has = v == v
            missing += not has
            d = v - origin[j] if has else 0.0
            mass[j] += w if has else 0.0
            sums[j] += w * d
            squares[j] += w * d * d
            low[j] = min(low[j], v if has else np.inf)
            high[j] = max(high[j], v if has else -np.inf)
        informed += missing < p
    return total, informed


def block_moments(
    x: Any,
    weight: Floats | None = None,
    segments: Ints | None = None,
    *,
    missing: bool = False,
) -> BlockMoments:
    """Return column statistics in one loop; ``segments`` are the ends of segments of plain sums."""
    if isinstance(x, sparse.SparseRows):
        return BlockMoments(*sparse.moments(x, weight))
    n, p = x.shape
    hi, lo = np.zeros((2, 2 * p + 2 if missing else p + 1))
    moments, probe = np.zeros((3, p)), np.zeros(p)
    low, high = np.full(p, np.inf), np.full(p, -np.inf)
    weights, weighted = np.empty(0) if weight is None else weight, weight is not None
    x, weights = read_only(x), read_only(weights)
    start = 0
    # The check of the values reports infinity and overflow, so warnings of NumPy are ignored.
    with np.errstate(invalid="ignore", over="ignore"):
        for stop in [n] if segments is None else segments:
            if stop == start:
                continue
            # Squares relative to a row of the segment keep their precision for any offset of the
            # data. The row must have positive weight, because rows of weight 0 may have any values.
            origin, mass, sums, squares = np.zeros((4, p))
            if missing:
                _origins(x, start, stop, weights, weighted, origin)
                total, informed = _observed_segment(
                    x, start, stop, weights, weighted, origin, mass, sums, squares, low, high
                )
                terms = np.concatenate([sums + mass * origin, mass, [total, informed]])
            else:
                first = start if weight is None else start + int(np.argmax(weight[start:stop] != 0))
                origin[:] = x[first]
                columns = origin, sums, squares, low, high, probe
                total = _segment(x, start, stop, weights, weighted, columns)
                mass[:] = total
                terms = np.append(sums + total * origin, total)
            add_plain(hi, lo, terms)
            if total:
                mean = np.divide(sums, mass, out=np.zeros(p), where=mass > 0)
                deviation = np.maximum(squares - sums * mean, 0.0)
                moments = merge_moments(moments, np.stack([mass, origin + mean, deviation]))
            start = stop
    finite = missing or bool(np.isfinite(hi).all() and np.isfinite(probe).all())
    # The sum may overflow although all values are finite.
    return BlockMoments(hi, lo, moments, low, high, finite or first_nonfinite(x)[0] < 0)


class ClassMoments(NamedTuple):
    """Statistics of the labeled rows of one block.

    ``hi`` and ``lo`` (n_classes, p + 1) are weighted column sums and, last, the weight.  With
    missing values, the weights of the values of each feature follow the sums.
    """

    hi: Floats
    lo: Floats
    moments: Floats


@compiled()
def _class_sums(x, places, codes, weights, hi, lo):  # pragma: no cover
    p, last = x.shape[1], hi.shape[1] - 1
    observed = last > p
    for at in range(places.size):
        i, c = places[at], codes[at]
        w = weights[i] if weights.size else 1.0
        found = not observed
        for j in range(p):
            v = np.float64(x[i, j])
            if observed and v != v:
                continue
            found = True
            hi[c, j], error = two_sum(hi[c, j], w * v)
            lo[c, j] += error
            if observed:
                hi[c, p + j], error = two_sum(hi[c, p + j], w)
                lo[c, p + j] += error
        if found:
            hi[c, last], error = two_sum(hi[c, last], w)
            lo[c, last] += error


@compiled()
def _class_squares(x, places, codes, weights, missing, means, squares):  # pragma: no cover
    for at in range(places.size):
        i, c = places[at], codes[at]
        w = weights[i] if weights.size else 1.0
        if w == 0.0:
            continue
        for j in range(x.shape[1]):
            gap = np.float64(x[i, j]) - means[c, j]
            if not missing:
                squares[c, j] += w * gap * gap
            elif gap == gap:
                squares[c, j] += gap * gap * w


def class_moments(
    x: Any,
    places: Ints,
    codes: NDArray[np.int32],
    weight: Floats | None,
    n_classes: int,
    *,
    missing: bool = False,
) -> ClassMoments:
    """Sum the labeled rows of a block, at ``places`` with classes ``codes``, by class.

    All sums are compensated, because there are few labeled rows and initial centers must not depend
    on chunks.  If values may be ``missing``, the last weight is the weight of rows with values.
    """
    p = x.shape[1]
    if len(codes) and not 0 <= codes.min() <= codes.max() < n_classes:
        # Compiled code does not check its indices.
        raise ValueError(f"codes must be in [0, {n_classes}), got [{codes.min()}, {codes.max()}].")
    hi, lo = np.zeros((2, n_classes, 2 * p + 1 if missing else p + 1))
    if isinstance(x, sparse.SparseRows):
        of_classes = np.zeros((3, n_classes, p))
        for c in np.unique(codes):
            members = places[codes == c]
            of_rows = None if weight is None else weight[members]
            hi[c], lo[c], of_classes[:, c], *_ = sparse.moments(x[members], of_rows)
        return ClassMoments(hi, lo, of_classes)
    x, weights = read_only(x), read_only(np.empty(0) if weight is None else weight)
    _class_sums(x, places, codes, weights, hi, lo)
    total = hi + lo
    masses = total[:, p : 2 * p] if missing else np.repeat(total[:, p:], p, axis=1)
    means = np.divide(total[:, :p], masses, out=np.zeros((n_classes, p)), where=masses > 0)
    squares = np.zeros((n_classes, p))
    _class_squares(x, places, codes, weights, missing, means, squares)
    return ClassMoments(hi, lo, np.stack([masses, means, squares]))


class LabelMoments(NamedTuple):
    """Weight, mean and weighted squared distances to the mean of each label, sorted.

    ``rows`` is the number of rows; a weight above 1 counts as that many rows.
    """

    labels: Ints
    weights: Floats
    means: Floats
    squares: Floats
    rows: Floats


def _sum_by(index: NDArray[np.intp], values: Floats, k: int) -> Floats:
    out: Floats = np.bincount(index, weights=values, minlength=k).astype(np.float64)
    return out


def label_moments(x: Any, labels: Ints, weight: Floats | None) -> LabelMoments:
    """Return moments of the rows of a block by label; labels without weight are omitted."""
    weight = np.ones(len(x)) if weight is None else weight
    distinct, index = np.unique(labels, return_inverse=True)
    k = len(distinct)
    if isinstance(x, sparse.SparseRows):
        means, squared = sparse.label_means(x, weight, index, k)
    else:
        means, squared = _label_means(x, weight, index, k)
    weights, squares = _sum_by(index, weight, k), _sum_by(index, weight * squared, k)
    rows = _sum_by(index, np.where(weight > 0, np.maximum(weight, 1.0), 0.0), k)
    positive = weights > 0
    return LabelMoments(
        distinct[positive],
        weights[positive],
        means[positive],
        squares[positive],
        rows[positive],
    )


def _label_means(
    x: NDArray, weight: Floats, index: NDArray[np.intp], k: int
) -> tuple[Floats, Floats]:
    # Sums are relative to a row of each label, so that they are precise for any offset of the data.
    origin = np.empty((k, x.shape[1]))
    origin[index[::-1]] = x[::-1]
    gaps = np.empty_like(x, dtype=np.float64)
    np.subtract(x, origin[index], out=gaps)
    sums, weights = label_sums(gaps, weight, index, k)
    shift = np.divide(sums, weights[:, None], out=np.zeros_like(sums), where=weights[:, None] > 0)
    gaps -= shift[index]
    return origin + shift, np.einsum("ij,ij->i", gaps, gaps)


def merge_label_moments(parts: Sequence[LabelMoments]) -> LabelMoments:
    """Merge moments of disjoint rows (Chan et al.); associative up to rounding."""
    every = LabelMoments(*(np.concatenate(column) for column in zip(*parts, strict=True)))
    labels, index = np.unique(every.labels, return_inverse=True)
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
    x: Any,
    centers: Floats,
    labels: Ints,
    feature_weights: Floats | None = None,
) -> tuple[Floats, Floats]:
    """Return squared distances of rows to their own, and the nearest other center or infinity."""
    if isinstance(x, sparse.SparseRows):
        check_plain(feature_weights, False)
        return sparse.own_and_other(x, centers, labels)
    own, other = np.empty(len(x)), np.empty(len(x))
    for start in range(0, len(x), SEGMENT):
        part = slice(start, start + SEGMENT)
        squared = direct_distances(x[part], centers, feature_weights)
        at = np.arange(len(squared)), labels[part]
        own[part] = squared[at]
        squared[at] = np.inf
        other[part] = squared.min(axis=1)
    return own, other

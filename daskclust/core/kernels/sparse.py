"""Rows of which only the values that are not zero are stored, and kernels on blocks of them.

Every kernel takes time and memory in proportion to the stored values and the size of the centers.
Sums and distances are float64.  The functions of the other kernel modules call those of this module
for sparse rows, with the same arguments and results.

A distance is ``sum_s (x_j - c_j)^2 + (|c|^2 - sum_s c_j^2)``, where s are the stored values of the
row.  It is exactly 0 for a row that equals its center, because both sums of squares then have the
same terms in the same order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse, vstack

from daskclust.core.array_types import Array, Bools, Floats, Ints
from daskclust.core.kernels.compensated import two_sum
from daskclust.core.kernels.compiling import compiled, inner, read_only
from daskclust.core.kernels.rng import mixed

#: Relative rounding error of the score of a center, and of a distance.
_SCORE, _DISTANCE = 16 * float(np.finfo(np.float64).eps), 8 * float(np.finfo(np.float64).eps)


def canonical(x: Any) -> Any:
    """Return a SciPy matrix as CSR with sorted, unique indices and without stored zeros.

    The argument is not changed.

    >>> canonical(csr_array(([1.0, 2.0, 0.0], [1, 1, 0], [0, 3]), shape=(1, 2))).data
    array([3.])
    """
    rows = x.tocsr()
    # A new object, because the methods below change the matrix.
    rows = type(rows)((rows.data, rows.indices, rows.indptr), shape=rows.shape)
    # Compiled code does not check indices.
    rows.check_format(full_check=True)
    if not rows.has_canonical_format:
        rows = rows.copy()
        rows.sum_duplicates()
    if not rows.data.all():
        rows = rows.copy()
        rows.eliminate_zeros()
    return rows


@dataclass(frozen=True, eq=False)
class SparseRows:
    """Rows in CSR format with sorted, unique indices and without stored zeros.

    Slices are views of the values.  The rows of a block are never converted to a dense array as a
    whole; :func:`dense` converts a few of them.
    """

    data: Array
    indices: Ints
    indptr: Ints
    n_columns: int

    @classmethod
    def of(cls, x: Any) -> SparseRows:
        """Return the rows of a SciPy matrix, which is not changed."""
        rows = canonical(x)
        return cls(rows.data, rows.indices, rows.indptr, rows.shape[1])

    @property
    def shape(self) -> tuple[int, int]:
        return len(self), self.n_columns

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.data.dtype

    @property
    def ndim(self) -> int:
        return 2

    @property
    def size(self) -> int:
        """Number of values, stored or not."""
        return len(self) * self.n_columns

    @property
    def nbytes(self) -> int:
        return self.data.nbytes + self.indices.nbytes + self.indptr.nbytes

    def __len__(self) -> int:
        return len(self.indptr) - 1

    def __getitem__(self, rows: Any) -> SparseRows:
        if isinstance(rows, slice):
            low, high, _ = rows.indices(len(self))
            ends = self.indptr[low : max(low, high) + 1]
            stored = slice(ends[0], ends[-1])
            return SparseRows(
                self.data[stored], self.indices[stored], ends - ends[0], self.n_columns
            )
        chosen = self.matrix()[np.flatnonzero(rows) if rows.dtype == bool else rows]
        return SparseRows(chosen.data, chosen.indices, chosen.indptr, self.n_columns)

    def astype(self, dtype: Any) -> SparseRows:
        return self.with_values(self.data.astype(dtype, copy=False))

    def with_values(self, data: Array) -> SparseRows:
        return SparseRows(data, self.indices, self.indptr, self.n_columns)

    def matrix(self) -> Any:
        """Return a SciPy array that shares the values."""
        return csr_array((self.data, self.indices, self.indptr), shape=self.shape)

    def stored(self) -> Bools:
        """Return a mask of the rows that are not all zeros."""
        return np.diff(self.indptr) > 0

    @property
    def parts(self) -> tuple[Array, Ints, Ints]:
        """The arrays as compiled code takes them."""
        return read_only(self.data), read_only(self.indices), read_only(self.indptr)


def is_sparse(X: Any) -> bool:
    """Return True for a SciPy matrix and a Dask array whose blocks are SciPy matrices."""
    return issparse(X) or issparse(getattr(X, "_meta", None))


def split_last(x: Array | SparseRows) -> tuple[Any, Ints]:
    """Return rows without their last column, and the last column as integers."""
    if not isinstance(x, SparseRows):
        return np.ascontiguousarray(x[:, :-1]), x[:, -1].astype(np.int64)
    last = x.n_columns - 1
    is_last = x.indices == last
    n_before = np.append(0, np.cumsum(is_last))[x.indptr]
    values = np.zeros(len(x), np.int64)
    values[np.diff(n_before) > 0] = x.data[is_last]
    parts = x.data[~is_last], x.indices[~is_last], x.indptr - n_before.astype(x.indptr.dtype)
    return SparseRows(*parts, last), values


def dense(x: Array | SparseRows) -> Array:
    """Return a few rows as an array."""
    return x.matrix().toarray() if isinstance(x, SparseRows) else x


def concatenated(blocks: Sequence[Any]) -> Any:
    """Join blocks of rows, which are all dense or all sparse."""
    if not isinstance(blocks[0], SparseRows):
        return np.concatenate(blocks)
    joined = vstack([x.matrix() for x in blocks], format="csr")
    return SparseRows(joined.data, joined.indices, joined.indptr, joined.shape[1])


@inner(counted=False)
def _distance(data, indices, start, stop, center, norm):
    total, own = 0.0, 0.0
    for t in range(start, stop):
        c = center[indices[t]]
        d = np.float64(data[t]) - c
        total += d * d
        own += c * c
    return total + max(norm - own, 0.0)


@compiled()
def _norms(centers, out):
    # In the order of the columns, like the sum of a row's stored values.
    for c in range(centers.shape[0]):
        total = 0.0
        for j in range(centers.shape[1]):
            total += centers[c, j] * centers[c, j]
        out[c] = total


@inner(counted=False, fastmath={"contract"})
def _score(data, indices, start, stop, columns, norms, scores):
    """Write ``|c|^2 - 2 x.c`` for each center; return the squared length of the row."""
    length = 0.0
    for c in range(scores.size):
        scores[c] = norms[c]
    # Four values at a time, so that a score is loaded and stored for each four of them.
    t = start
    while t + 4 <= stop:
        v, w, x, y = (
            np.float64(data[t]),
            np.float64(data[t + 1]),
            np.float64(data[t + 2]),
            np.float64(data[t + 3]),
        )
        length += (v * v + w * w) + (x * x + y * y)
        v, w, x, y = -2.0 * v, -2.0 * w, -2.0 * x, -2.0 * y
        a, b = columns[indices[t]], columns[indices[t + 1]]
        d, e = columns[indices[t + 2]], columns[indices[t + 3]]
        for c in range(scores.size):
            scores[c] += (v * a[c] + w * b[c]) + (x * d[c] + y * e[c])
        t += 4
    for last in range(t, stop):
        v = np.float64(data[last])
        length += v * v
        a = columns[indices[last]]
        for c in range(scores.size):
            scores[c] -= 2.0 * v * a[c]
    return length


@compiled()
def _nearest(data, indices, indptr, columns, norms, excluded, labels, squared):
    k = norms.size
    scores, distances = np.empty(k), np.empty(k)
    for i in range(indptr.size - 1):
        start, stop = indptr[i], indptr[i + 1]
        length = _score(data, indices, start, stop, columns, norms, scores)
        if excluded.size:
            scores[excluded[i]] = np.inf
        lowest, own = scores[0], norms[0]
        for c in range(1, k):
            if scores[c] < lowest:
                lowest, own = scores[c], norms[c]
        # Centers whose scores differ by rounding are compared by their distances.
        limit = lowest + _SCORE * (length + own)
        smallest = np.inf
        for c in range(k):
            distances[c] = np.inf
            if scores[c] <= limit:
                distances[c] = _distance(data, indices, start, stop, columns[:, c], norms[c])
                smallest = min(smallest, distances[c])
        best = -1
        for c in range(k):
            if best < 0 and distances[c] <= smallest * (1.0 + _DISTANCE) and distances[c] < np.inf:
                best = c
        labels[i] = max(best, 0)
        squared[i] = distances[best] if best >= 0 else np.nan


@compiled()
def _own(data, indices, indptr, centers, norms, labels, squared):
    for i in range(indptr.size - 1):
        c = labels[i]
        squared[i] = _distance(data, indices, indptr[i], indptr[i + 1], centers[c], norms[c])


@compiled()
def _add_rows(data, indices, indptr, weights, labels, order, hi, lo):
    for i in order:
        w = 1.0
        if weights.size:
            w = weights[i]
            if w == 0.0:
                continue
        label = labels[i]
        for t in range(indptr[i], indptr[i + 1]):
            j = indices[t]
            total, error = two_sum(hi[label, j], w * np.float64(data[t]))
            hi[label, j] = total
            lo[label, j] += error


@compiled()
def _add_totals(weights, labels, squared, hi, lo):
    p = hi.shape[1] - 2
    for i in range(labels.size):
        w = weights[i] if weights.size else 1.0
        if w == 0.0:
            continue
        label = labels[i]
        total, error = two_sum(hi[label, p], w)
        hi[label, p] = total
        lo[label, p] += error
        total, error = two_sum(hi[label, p + 1], w * squared[i])
        hi[label, p + 1] = total
        lo[label, p + 1] += error


@compiled()
def _approach(data, indices, indptr, candidates, norms, places, distance, seen):
    for place in places:
        start, stop = indptr[place], indptr[place + 1]
        for c in range(seen[place], candidates.shape[0]):
            to_new = _distance(data, indices, start, stop, candidates[c], norms[c])
            distance[place] = min(distance[place], to_new)
        seen[place] = candidates.shape[0]


@compiled()
def _column_sums(data, indices, indptr, weights, hi, lo, masses, low, high):
    """Add weighted values, and the weight of the stored values, by column."""
    for i in range(indptr.size - 1):
        w = weights[i] if weights.size else 1.0
        if w == 0.0:
            continue
        for t in range(indptr[i], indptr[i + 1]):
            j = indices[t]
            v = np.float64(data[t])
            total, error = two_sum(hi[j], w * v)
            hi[j] = total
            lo[j] += error
            masses[j] += w
            low[j] = min(low[j], v)
            high[j] = max(high[j], v)


@compiled()
def _column_squares(data, indices, indptr, weights, means, squares):
    for i in range(indptr.size - 1):
        w = weights[i] if weights.size else 1.0
        if w == 0.0:
            continue
        for t in range(indptr[i], indptr[i + 1]):
            d = np.float64(data[t]) - means[indices[t]]
            squares[indices[t]] += w * d * d


@compiled()
def _unit(data, indptr, out):
    for i in range(indptr.size - 1):
        peak = 0.0
        for t in range(indptr[i], indptr[i + 1]):
            size = abs(np.float64(data[t]))
            # A NaN stays: nothing is larger.
            if size > peak or size != size:
                peak = size
        usable = np.isfinite(peak) and peak > 0.0
        norm = 0.0
        if usable:
            for t in range(indptr[i], indptr[i + 1]):
                norm += (np.float64(data[t]) / peak) ** 2
        for t in range(indptr[i], indptr[i + 1]):
            out[t] = np.float64(data[t]) / peak / np.sqrt(norm) if usable else data[t]


_NO_WEIGHTS, _NO_LABELS = np.empty(0), np.empty(0, np.int32)


def _weights(weight: Floats | None) -> Floats:
    return read_only(_NO_WEIGHTS if weight is None else np.ascontiguousarray(weight, np.float64))


def _checked(x: SparseRows, centers: Floats) -> tuple[Floats, Floats]:
    """Return centers as compiled code takes them, and their squared lengths."""
    p = x.n_columns
    if centers.ndim != 2 or centers.shape[1] != p or not len(centers):
        raise ValueError(f"There must be centers with {p} features, got shape {centers.shape}.")
    points = np.ascontiguousarray(centers, dtype=np.float64)
    norms = np.empty(len(points))
    _norms(read_only(points), norms)
    return read_only(points), norms


def nearest(
    x: SparseRows, centers: Floats, excluded: Ints | None = None
) -> tuple[NDArray[np.int32], Floats]:
    """Return the nearest center of each row, and the squared distance; NaN for invalid rows.

    ``excluded`` (n,) is a center of each row that is not compared, of at least two.
    """
    points, norms = _checked(x, centers)
    labels, squared = np.empty(len(x), np.int32), np.empty(len(x))
    columns = read_only(np.ascontiguousarray(points.T))
    others = _NO_LABELS if excluded is None else _codes(excluded, len(x), len(points))
    _nearest(*x.parts, columns, read_only(norms), read_only(others), labels, squared)
    return labels, squared


def _codes(labels: Ints, n: int, k: int) -> NDArray[np.int32]:
    """Return labels as compiled code takes them, which does not check its indices."""
    if len(labels) != n or (n and not 0 <= labels.min() <= labels.max() < k):
        raise ValueError(f"There must be {n} labels in [0, {k}), got {labels}.")
    return read_only(np.ascontiguousarray(labels, np.int32))


def own_and_other(x: SparseRows, centers: Floats, labels: Ints) -> tuple[Floats, Floats]:
    """Return squared distances of rows to their own, and the nearest other center or infinity."""
    own = _own_distances(x, centers, labels)
    if len(centers) == 1:
        return own, np.full(len(x), np.inf)
    return own, nearest(x, centers, labels)[1]


def _own_distances(x: SparseRows, centers: Floats, labels: Ints) -> Floats:
    points, norms = _checked(x, centers)
    squared = np.empty(len(x))
    _own(*x.parts, points, read_only(norms), _codes(labels, len(x), len(points)), squared)
    return squared


def label_means(x: SparseRows, weight: Floats, labels: Ints, k: int) -> tuple[Floats, Floats]:
    """Return the means of the rows of each label, and the squared distances of rows to them.

    The mean of a label without weight is 0.
    """
    hi, lo = np.zeros((2, k, x.n_columns))
    _add_by_label(x, _weights(weight), _codes(labels, len(x), k), hi, lo)
    total = np.bincount(labels, weight, k)[:, None]
    means = np.divide(hi + lo, total, out=np.zeros_like(hi), where=total > 0)
    return means, _own_distances(x, means, labels)


def _add_by_label(
    x: SparseRows, weights: Floats, labels: NDArray[np.int32], hi: Floats, lo: Floats
) -> None:
    # The sums of one cluster fit in the processor's cache, but the sums of all clusters may not.  A
    # stable order adds the rows of a cluster in row order.
    order = read_only(np.argsort(labels, kind="stable"))
    _add_rows(*x.parts, weights, read_only(labels), order, hi, lo)


def accumulate(
    x: SparseRows, centers: Floats, weight: Floats | None, hi: Floats, lo: Floats
) -> None:
    """Add the rows to the sums, weights and squared distances of their clusters, (k, p + 2)."""
    labels, squared = nearest(x, centers)
    weights = _weights(weight)
    _add_by_label(x, weights, labels, hi, lo)
    _add_totals(weights, labels, squared, hi, lo)


def approach(
    x: SparseRows,
    candidates: Floats,
    places: NDArray[np.intp],
    distance: Floats,
    seen: NDArray[np.int32],
) -> None:
    """Update the squared distances of some rows by the candidates after the first ``seen``."""
    points, norms = _checked(x, candidates)
    _approach(*x.parts, points, read_only(norms), read_only(places), distance, seen)


def first_nonfinite(x: SparseRows) -> tuple[int, int]:
    """Return row and column of the first NaN or infinity in row order, or (-1, -1)."""
    bad = np.flatnonzero(~np.isfinite(x.data))
    if not len(bad):
        return -1, -1
    row = np.searchsorted(x.indptr, bad[0], side="right") - 1
    return int(row), int(x.indices[bad[0]])


def moments(
    x: SparseRows, weight: Floats | None
) -> tuple[Floats, Floats, Floats, Floats, Floats, bool]:
    """Return the fields of :class:`~daskclust.core.kernels.moments.BlockMoments`."""
    p, weights = x.n_columns, _weights(weight)
    hi, lo = np.zeros((2, p + 1))
    masses, low, high = np.zeros(p), np.full(p, np.inf), np.full(p, -np.inf)
    _column_sums(*x.parts, weights, hi[:p], lo[:p], masses, low, high)
    n_used = len(x) if weight is None else int(np.count_nonzero(weight))
    hi[p] = total = float(len(x)) if weight is None else float(weight.sum())
    used = x if weight is None else x[weight != 0]
    has_zeros = np.bincount(used.indices, minlength=p) < n_used
    low[has_zeros] = np.minimum(low[has_zeros], 0.0)
    high[has_zeros] = np.maximum(high[has_zeros], 0.0)
    mean, squares = np.zeros(p), np.zeros(p)
    # The check of the values reports infinity and overflow.
    with np.errstate(invalid="ignore", over="ignore"):
        if total:
            mean = (hi[:p] + lo[:p]) / total
        _column_squares(*x.parts, weights, mean, squares)
        squares += np.maximum(total - masses, 0.0) * mean**2
    statistics = np.stack([np.full(p, total), mean, squares])
    return hi, lo, statistics, low, high, first_nonfinite(x)[0] < 0


def totals(x: SparseRows, n_sums: int, factors: Floats) -> tuple[Floats, int]:
    """Return sums of values and of absolute values by column, and the number of invalid values."""
    finite = np.isfinite(x.data)
    values = np.where(finite, x.data, 0).astype(np.float64) * factors[x.indices]
    groups = x.indices % n_sums
    sums = [np.bincount(groups, v, minlength=n_sums) for v in (values, np.abs(values))]
    return np.array(sums), int(len(finite) - np.count_nonzero(finite))


def largest_values(x: Array | SparseRows) -> Floats:
    """Return the largest absolute value of each column that is not NaN, at least 0."""
    if not isinstance(x, SparseRows):
        sizes = np.abs(x).astype(np.float64)
        return np.asarray(np.fmax.reduce(sizes, axis=0, initial=0.0))
    largest = np.zeros(x.n_columns)
    np.fmax.at(largest, x.indices, np.abs(x.data).astype(np.float64))
    return largest


def of_unit_length(x: SparseRows) -> SparseRows:
    """Scale rows to unit length; rows with NaN or infinity, and rows of zeros, are unchanged."""
    out = np.empty_like(x.data)
    data, _, indptr = x.parts
    _unit(data, indptr, out)
    return x.with_values(out)


def row_hash(
    x: SparseRows, weight: Floats | None, runs: tuple[tuple[int, int], ...] | None
) -> np.uint64:
    """Return the sum, modulo 2**64, of a hash of each row's number, values and weight."""
    step = np.uint64(0x9E3779B97F4A7C15)
    bits = np.ascontiguousarray(x.data, dtype=np.float64).view(np.uint64)
    places = (x.indices.astype(np.uint64) + np.uint64(1)) * step
    ends = np.append(np.uint64(0), np.cumsum(mixed(bits ^ mixed(places)), dtype=np.uint64))
    of_rows = ends[x.indptr[1:]] - ends[x.indptr[:-1]]
    runs = ((0, len(x)),) if runs is None else runs
    numbers = np.concatenate([np.arange(start, start + size) for start, size in runs])
    words = mixed(of_rows + mixed(numbers.astype(np.uint64) * step))
    if weight is not None:
        words = mixed(words ^ np.ascontiguousarray(weight, np.float64).view(np.uint64))
    words = mixed(words + np.uint64(x.dtype.itemsize))
    return np.uint64(words.sum(dtype=np.uint64))

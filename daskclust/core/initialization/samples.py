"""Samples of the rows on which initial centers are found, and the sizes of these samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from daskclust.core.array_types import Array, Floats
from daskclust.core.engine import Rows
from daskclust.core.initialization.problem import Initialization
from daskclust.core.kernels.rng import draw_numbers
from daskclust.core.kernels.sparse import dense
from daskclust.core.reduction import FARTHEST, FarthestRequest

#: Maximum size of the sample, in bytes.
_BYTES = 2**28
#: Maximum bytes of the dense sample of sparse rows, and minimum rows to compare draws.
_SPARSE_BYTES, _SPARSE_ROWS = 2**27, 2**9
#: Rows of the sample, and rows per cluster, that leave little noise in the centers.
_ROWS, _ROWS_EACH = 2**16, 256
#: Rows of the smallest part, and rows per cluster.
_FIRST, _FIRST_EACH = 2**12, 10
#: Rows per cluster on which centers are sought before parts grow.
_TRIED_EACH = 256
#: Minimum number of sampled rows from which the distances of the farthest rows are measured.
_USUAL = 16
#: ``k p`` from which the cost of an initialization is counted in passes over all rows.
_LARGE = 2**14
#: Limits for large ``k p``: minimum number of sampled rows per cluster for iterations on a sample,
#: maximum number of sampled rows from which the distances of the farthest rows are measured, and
#: maximum number of farthest rows.
_GROWN_EACH, _LARGE_USUAL, _LARGE_FAR = 64, 256, 1024
#: Multiplications of an iteration on all rows that is cheap in any case.
_CHEAP = 2**31
#: Number of clusters from which k-means|| is skipped if there are fewer rows per cluster than the
#: second number: its rounds would take many passes and draw much of the data.
MANY, _ROUNDS_EACH = 256, 160
#: Number of features below which draws are compared one center after another, in registers.
NARROW = 64
#: Maximum number of values of a sample of all rows in which equal rows are merged.
_MERGED_VALUES = 2**20
#: Word that separates the random numbers of the sample from those of other draws.
_OF_ROWS = 2**33


def is_large(k: int, p: int) -> bool:
    """Return True if k centers with p features are so large that drawing them costs many passes."""
    return k * p >= _LARGE


def first_rows(k: int) -> int:
    """Return the number of rows of the smallest part."""
    return max(_FIRST, _FIRST_EACH * k)


def tried_rows(k: int) -> int:
    """Return the number of rows on which sets of centers are tried."""
    return max(first_rows(k), _TRIED_EACH * k) if k < MANY else first_rows(k)


def _n_fitting(rows: Rows) -> int:
    """Return the maximum number of rows of a sample in the memory of the client."""
    n_bytes = _SPARSE_BYTES if rows.is_sparse else _BYTES
    return n_bytes // (max(1, rows.n_features) * rows.dtype.itemsize)


def fewest_rows(k: int, n_rows: int) -> float:
    """Return the number of rows, or of effective rows, from which a sample is representative."""
    return min(first_rows(k), n_rows) / 2


def can_iterate(rows: Rows, k: int) -> bool:
    """Return False if rows are sparse and so wide that a representative sample is too large."""
    return not rows.is_sparse or fewest_rows(k, rows.n_rows) <= _n_fitting(rows)


def can_compare(rows: Rows, k: int) -> bool:
    """Return False if rows are sparse and so wide that too few of them fit to compare draws."""
    useful = min(max(_SPARSE_ROWS, _FIRST_EACH * k), rows.n_rows)
    return not rows.is_sparse or useful <= _n_fitting(rows)


def is_complete(rows: Rows, k: int) -> bool:
    """Return True if the sample consists of all rows."""
    return rows.n_rows <= min(max(2 * first_rows(k), tried_rows(k)), _n_fitting(rows))


def sample_size(rows: Rows, k: int) -> int:
    """Return the number of rows of the sample, without the farthest ones."""
    if is_complete(rows, k):
        return rows.n_rows
    n_wanted = max(tried_rows(k), min(rows.n_rows // 4, max(_ROWS, _ROWS_EACH * k)))
    return min(rows.n_rows, max(2 * k, min(n_wanted, _n_fitting(rows))))


def draws_at_once(rows: Rows, k: int) -> bool:
    """Return True if rounds of k-means|| would take as long as many iterations."""
    return is_large(k, rows.n_features) or (k >= MANY and rows.n_rows < _ROUNDS_EACH * k)


def n_candidates(rows: Rows, k: int, factor: float, n_rounds: int) -> int:
    """Return the number of sampled rows from which centers are drawn."""
    if k < MANY or not draws_at_once(rows, k):
        return tried_rows(k)
    # As many rows as k-means|| would draw, if they fit.
    n_wanted = max(_FIRST, n_rounds * round(factor * k))
    if rows.n_features < NARROW:
        n_wanted = min(n_wanted, max(rows.n_rows // 2, 4 * k))
    return min(rows.n_rows, max(2 * k, min(n_wanted, _n_fitting(rows))))


def grows(rows: Rows, k: int) -> bool:
    """Return True if iterations on parts of the sample lead to better centers on all rows."""
    size = sample_size(rows, k)
    cheap = is_complete(rows, k) and size * k * rows.n_features <= _CHEAP
    return cheap or size >= _GROWN_EACH * k or not is_large(k, rows.n_features)


@dataclass(frozen=True)
class Sample:
    """The `n_far` farthest rows, followed by a uniform sample of all other rows.

    The sampled rows are in random order, so the first of them are a smaller sample.  `weight` (m,)
    is positive. `total`: weight of all rows except the farthest rows. `n_rows`: number of all rows.
    """

    rows: Annotated[Array, "f4|f m p"]
    weight: Annotated[Floats, "f m"]
    n_far: Annotated[int, "i"]
    total: Annotated[float, "f"]
    n_rows: Annotated[int, "i"]

    @property
    def n_drawn(self) -> int:
        return len(self.rows) - self.n_far

    @property
    def size(self) -> float:
        """Effective size of the sample (Kish): rows of equal weight with the same variance."""
        drawn = self.weight[self.n_far :]
        return float(drawn.sum() ** 2 / (drawn**2).sum()) if len(drawn) else 0.0

    def part(self, count: int) -> tuple[Array, Floats, float]:
        """Return the farthest rows and `count` sampled rows (a view), and their weights.

        The weights of the sampled rows are scaled to the weight of all rows that they represent.
        The third value is the sum of the squares of the scaled weights, divided by their sum.
        """
        end = self.n_far + count
        weights = self.weight[:end].copy()
        drawn = weights[self.n_far :]
        mass, squares = drawn.sum(), (drawn**2).sum()
        times = self.total / mass
        drawn *= times
        return self.rows[:end], weights, float(times * squares / mass)


def _distinct(x: Array, weight: Floats) -> tuple[NDArray[np.intp], Floats]:
    """Merge equal rows: return the first row of each set, sorted by values, and the set's weight.

    The order depends only on the values, so an integer weight gives the same result as repetition.
    """
    # float64 for any dtype.  Adding 0 turns -0 into 0, which has other bits.
    bits = np.ascontiguousarray(np.add(x, 0.0, dtype=np.float64)).view(np.int64)
    # Big-endian bytes have the same order as the numbers.
    keys = (bits ^ ((bits >> 63) | np.int64(-(2**63)))).astype(">i8")
    row_keys = keys.view(f"V{keys.shape[1] * keys.itemsize}").ravel()
    used = np.flatnonzero(weight > 0)
    order = used[np.argsort(row_keys[used], kind="stable")]
    new = np.append(True, row_keys[order[1:]] != row_keys[order[:-1]])[: len(order)]
    firsts: NDArray[np.intp] = order[new]
    merged = np.bincount(np.cumsum(new) - 1, weight[order], len(firsts))
    return firsts, merged.astype(np.float64)


def draw_sample(problem: Initialization, size: int | None = None) -> Sample:
    """Draw rows by their numbers, independent of chunks, and the rows farthest from them.

    `size` is the number of rows without the farthest ones, default :func:`sample_size`.  Takes two
    passes, or one if the sample consists of all rows.
    """
    rows, k, missing = problem.rows, problem.n_clusters, problem.missing
    rng = np.random.default_rng([problem.seeds[0], _OF_ROWS])
    size = size or sample_size(rows, k)
    if rows.is_sparse:
        size = min(size, _n_fitting(rows))
    numbers = draw_numbers(rows.n_rows, size, int(rng.integers(2**63)))
    x, weight = rows.take(numbers)
    x = dense(x)
    if size == rows.n_rows and x.size <= _MERGED_VALUES:
        firsts, merged = _distinct(x, weight)
        weight = np.zeros(size)
        weight[firsts] = merged
    else:
        firsts = np.arange(len(x))
    order = rng.permutation(firsts)
    order = order[weight[order] > 0]
    if missing:
        # Rows without values have no position.
        order = order[~np.isnan(x[order]).all(axis=1)]
    if size == rows.n_rows:
        return Sample(x[order], weight[order], 0, float(weight[order].sum()), len(order))
    # Sampled rows are typical rows: a row that is far from all of them is rare.
    large = draws_at_once(rows, k)
    typical = filled(
        x[order[: min(k, _LARGE_USUAL) if large else max(k, _USUAL)]], problem.survey.mean
    )
    if not len(typical):
        return Sample(x[:0], weight[:0], 0, 0.0, rows.n_rows)
    max_far = min(first_rows(k) // 4, rows.n_rows // 8, _LARGE_FAR if large else rows.n_rows)
    if rows.is_sparse:
        max_far = min(max_far, size // 4)  # they are dense, too
    request = FarthestRequest(typical, max(1, max_far), shift=problem.shift, missing=missing)
    farthest = rows.reduce(FARTHEST, request)
    n_far, far_weight = len(farthest), farthest["x"][:, -2]
    order = order[~np.isin(numbers[order], farthest["row"])]
    # Parts are views of this copy.
    joined = np.empty((n_far + len(order), rows.n_features), rows.dtype)
    joined[:n_far] = farthest["x"][:, :-2]
    np.take(x, order, axis=0, out=joined[n_far:], mode="clip")
    # Rounding may lead to a slightly negative weight.
    others = max(problem.survey.weight - float(far_weight.sum()), 0.0)
    return Sample(joined, np.append(far_weight, weight[order]), n_far, others, rows.n_rows)


def filled(x: Array, mean: Floats) -> Floats:
    """Return rows in double precision, with missing values replaced by the mean."""
    filled = x.astype(np.float64)
    missing = np.isnan(filled)
    # Complete rows may be in another space than the means.
    return np.where(missing, mean, filled) if missing.any() else filled

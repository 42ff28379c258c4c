"""One row of each group of near duplicates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from daskclust.cluster.hierarchical_kmeans import HierarchicalKMeans
from daskclust.core.array_types import Array, Bools, Floats
from daskclust.core.engine import compute, decide_within_groups, is_dask, make_rows, working_dtype
from daskclust.core.estimator.transforms import EUCLIDEAN, Metric, UnitSphere
from daskclust.core.estimator.validation import (
    Data,
    check_choice,
    check_data,
    check_integer,
    check_real,
)
from daskclust.core.kernels.blas import one_blas_thread

MetricName = Literal["cosine", "euclidean"]
Keep = Literal["first", "last"]
#: Rows of a cluster, on average; those that are compared at a time; bytes of the rows of a task.
_EACH, _SLAB, _PART = 4096, 1024, 2**27
#: Of squared lengths, beyond any rounding of products: what is nearer is measured by differences.
_DOUBT = 1e-12


@dataclass(frozen=True)
class _Keeper:
    """Which rows of a cluster are kept; travels to workers."""

    squared: float
    metric: Metric
    last: bool

    def __call__(self, x: Array) -> Bools:
        """Keep the rows that have no near one before them, or after them."""
        z = self.metric(x.astype(working_dtype(x.dtype), copy=False)).astype(np.float64)
        z = z[::-1] if self.last else z
        kept = np.ones(len(z), bool)
        # Rows of zeros have no direction: they are near none.
        usable = np.ones(len(z), bool)
        if not self.metric.is_identity:
            usable &= z.any(axis=1)
        # Near the origin, where squares keep their digits.
        z = z - z.mean(axis=0)
        lengths = np.einsum("ij,ij->i", z, z)
        for low in range(0, len(z), _SLAB):
            rows = slice(low, low + _SLAB)
            for start in range(0, low + 1, _SLAB):
                before = slice(start, start + _SLAB)
                near = self._near(z[rows], z[before], lengths[rows], lengths[before])
                near &= usable[rows, None] & usable[before]
                if start == low:
                    near = np.tril(near, -1)
                kept[rows] &= ~near.any(axis=1)
        return kept[::-1] if self.last else kept

    def _near(
        self, z: Floats, others: Floats, lengths: Floats, of_others: Floats
    ) -> NDArray[np.bool_]:
        with one_blas_thread():
            squares = lengths[:, None] + of_others - 2.0 * (z @ others.T)
        near: NDArray[np.bool_] = squares < self.squared
        doubt = _DOUBT * (lengths[:, None] + of_others)
        for i, j in np.argwhere(np.abs(squares - self.squared) <= doubt):
            near[i, j] = ((z[i] - others[j]) ** 2).sum() < self.squared
        return near


def deduplicate(
    X: Any,
    *,
    threshold: float,
    metric: MetricName = "cosine",
    n_clusters: int | None = None,
    keep: Keep = "first",
    random_state: Any = None,
) -> Any:
    """Choose rows so that near duplicates go (SemDeDup).

    Rows are clustered, and a row goes if another one of its cluster that lies before it is nearer
    than `threshold`.

    Parameters
    ----------
    X : array-like, dask.array.Array, DataFrame or xarray.DataArray of shape (n, p)
    threshold : float
        Distance: ``1 - cos(angle)`` in [0, 2], or the Euclidean distance.
    metric : {"cosine", "euclidean"}, default="cosine"
    n_clusters : int, default=None
        Clusters within which rows are compared; None for one for each 4096 rows.  With 1 all rows
        are compared, which no sample of many rows should be.
    keep : {"first", "last"}, default="first"
        Which of the near rows stays; with ``"last"`` the order is turned around.
    random_state : int, RandomState, Generator or None, default=None
        Of the clusters.

    Returns
    -------
    kept : ndarray or dask.array.Array of shape (n,), bool
        True where a row is kept.  Lazy, and chunked like X, for a Dask array; the clusters are
        found at once.

    Raises
    ------
    ValueError
        For NaN or infinity in X, and parameters out of range.

    See Also
    --------
    HierarchicalKMeans : Finds the clusters.

    Notes
    -----
    Costs the fit, and ``n p m / 2`` multiplications of clusters of m rows.  Near rows of
    different clusters are both kept.  A task holds the rows of some clusters, of about 128 MiB; the
    client nothing of length n.  A row of zeros has no direction, and is kept under ``"cosine"``.

    References
    ----------
    .. [1] Abbas, A. et al. (2023). SemDeDup: data-efficient learning at web-scale through semantic
       deduplication. arXiv:2303.09540.

    Examples
    --------
    >>> import numpy as np, daskclust
    >>> X = np.array([[1.0, 0.0], [0.0, 1.0], [2.0, 0.01], [3.0, 0.0]])
    >>> daskclust.deduplicate(X, threshold=0.01).tolist()
    [True, True, False, False]
    """
    check_choice(metric, "metric", get_args(MetricName))
    check_choice(keep, "keep", get_args(Keep))
    check_real(threshold, "threshold", 0)
    if metric == "cosine":
        check_real(threshold, "threshold", 0, maximum=2.0)
    if n_clusters is not None:
        check_integer(n_clusters, "n_clusters", 1)
    data = check_data(X)
    rows = data.rows
    k = max(1, rows.n_rows // _EACH) if n_clusters is None else int(n_clusters)
    try:
        # The threshold is in the units of X, whatever they are.
        model = HierarchicalKMeans(k, metric=metric, random_state=random_state)
        model.fit(Data(data.X, has_units=False))
    except ValueError:
        if metric != "cosine":
            raise
        found = data.X.any()
        if is_dask(found):
            (found,) = compute("the rows of zeros", found)
        if found:
            raise
        # Rows of zeros alone, of which no cluster has a center.
        if not is_dask(data.X):
            return np.ones(rows.n_rows, bool)
        return make_rows(rows.lengths, _keep_all, dtype=np.bool_, name="deduplicate")
    space: Metric = UnitSphere() if metric == "cosine" else EUCLIDEAN
    # Rows of length 1 are |a - b|^2 = 2 (1 - cos) apart.
    squared = 2.0 * threshold if metric == "cosine" else threshold**2
    size = rows.n_rows * data.X.shape[1] * np.dtype(data.X.dtype).itemsize
    return decide_within_groups(
        data.X,
        model._leaf_function(rows.dtype),
        _Keeper(float(squared), space, keep == "last"),
        lengths=rows.lengths,
        n_parts=int(min(k, max(1, size // _PART))),
        name="deduplicate",
    )


def _keep_all(x: Array, start: int) -> Bools:
    return np.ones(len(x), bool)

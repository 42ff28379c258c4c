"""Select one row of each group of near duplicates."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from daskclust.cluster.hierarchical_kmeans import HierarchicalKMeans
from daskclust.core.array_types import Array, Bools, Floats
from daskclust.core.engine import compute, decide_within_groups, is_dask, make_rows, working_dtype
from daskclust.core.estimator.parameters import Interval, check_value
from daskclust.core.estimator.transforms import EUCLIDEAN, Metric, UnitSphere
from daskclust.core.estimator.validation import (
    Data,
    check_choice,
    check_data,
    check_integer,
)
from daskclust.core.kernels.blas import one_blas_thread

MetricName = Literal["cosine", "euclidean"]
Keep = Literal["first", "last"]
#: Average number of rows per cluster; rows compared at a time; bytes of the rows of a task.
_ROWS_PER_CLUSTER, _ROWS_AT_ONCE, _TASK_BYTES = 4096, 1024, 2**27
#: Squared distances are computed again by differences if they are nearer to the threshold than
#: this fraction of the squared lengths.
_ROUNDING = 1e-12


@dataclass(frozen=True)
class _RowSelector:
    """Function that selects the rows of a cluster; it is sent to workers."""

    squared: float
    metric: Metric
    last: bool

    def __call__(self, x: Array) -> Bools:
        """Return a mask of rows that are not near an earlier (for `last`: later) row."""
        z = self.metric(x.astype(working_dtype(x.dtype), copy=False)).astype(np.float64)
        z = z[::-1] if self.last else z
        selected = np.ones(len(z), bool)
        # A row of zeros has no direction, so it is not near other rows.
        usable = np.ones(len(z), bool)
        if not self.metric.is_identity:
            usable &= z.any(axis=1)
        # Center the rows, so that squares have small rounding errors.
        z = z - z.mean(axis=0)
        lengths = np.einsum("ij,ij->i", z, z)
        for low in range(0, len(z), _ROWS_AT_ONCE):
            rows = slice(low, low + _ROWS_AT_ONCE)
            for start in range(0, low + 1, _ROWS_AT_ONCE):
                before = slice(start, start + _ROWS_AT_ONCE)
                near = self._near_pairs(z[rows], z[before], lengths[rows], lengths[before])
                near &= usable[rows, None] & usable[before]
                if start == low:
                    near = np.tril(near, -1)
                selected[rows] &= ~near.any(axis=1)
        return selected[::-1] if self.last else selected

    def _near_pairs(
        self, z: Floats, other_rows: Floats, lengths: Floats, other_lengths: Floats
    ) -> NDArray[np.bool_]:
        with one_blas_thread():
            squares = lengths[:, None] + other_lengths - 2.0 * (z @ other_rows.T)
        is_near: NDArray[np.bool_] = squares < self.squared
        rounding = _ROUNDING * (lengths[:, None] + other_lengths)
        for i, j in np.argwhere(np.abs(squares - self.squared) <= rounding):
            is_near[i, j] = ((z[i] - other_rows[j]) ** 2).sum() < self.squared
        return is_near


def deduplicate(
    X: Any,
    *,
    threshold: float,
    metric: MetricName = "cosine",
    n_clusters: int | None = None,
    keep: Keep = "first",
    random_state: Any = None,
) -> Any:
    """Select rows so that no two near duplicates remain (SemDeDup).

    Use it to remove near duplicates from embeddings, images or spectra before training or
    labeling.  Rows are clustered with :class:`HierarchicalKMeans`.  A row is removed if an earlier
    row of its cluster is nearer than `threshold` [1]_.

    Parameters
    ----------
    X : array-like, dask.array.Array, DataFrame or xarray.DataArray of shape (n, p)
        Rows.
    threshold : float
        Distance below which rows are duplicates.
    metric : {"cosine", "euclidean"}, default="cosine"
        Distance of two rows:

        - ``"cosine"``: ``1 - cos(angle)``, in [0, 2].
        - ``"euclidean"``: Euclidean distance.
    n_clusters : int, default=None
        Number of clusters within which rows are compared.  None means one per 4096 rows.  With 1,
        all pairs of rows are compared, which is slow for many rows.
    keep : {"first", "last"}, default="first"
        Row to select from each group of duplicates.
    random_state : int, RandomState, Generator or None, default=None
        Seed of the clusters.

    Returns
    -------
    selected : ndarray or dask.array.Array of shape (n,), bool
        Mask of the selected rows.  Lazy, with the chunks of X, for a Dask array: only the clusters
        are computed immediately.

    Raises
    ------
    ValueError
        For NaN or infinity in X, and parameters out of range.

    See Also
    --------
    HierarchicalKMeans : Computes the clusters.

    Notes
    -----
    *Cost*: the fit, and ``n p m / 2`` multiplications for clusters of m rows.  *Memory* of a task:
    the rows of some clusters, about 128 MiB.  Near rows in different clusters are both selected.
    With ``"cosine"``, a row of zeros has no direction and is always selected.

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
    max_threshold = 2.0 if metric == "cosine" else None
    check_value(
        threshold,
        "threshold",
        Interval(Real, 0, max_threshold, closed="both" if max_threshold else "left"),
    )
    if n_clusters is not None:
        check_integer(n_clusters, "n_clusters", 1)
    data = check_data(X)
    rows = data.rows
    k = max(1, rows.n_rows // _ROWS_PER_CLUSTER) if n_clusters is None else int(n_clusters)
    try:
        # The threshold has the units of X, so X is not checked for different scales.
        model = HierarchicalKMeans(k, metric=metric, random_state=random_state)
        model.fit(Data(data.X, has_units=False))
    except ValueError:
        if metric != "cosine":
            raise
        nonzero = data.X.any()
        if is_dask(nonzero):
            (nonzero,) = compute("the rows of zeros", nonzero)
        if nonzero:
            raise
        # All rows are zeros, so no cluster has a center.
        if not is_dask(data.X):
            return np.ones(rows.n_rows, bool)
        return make_rows(rows.lengths, _select_all, dtype=np.bool_, name="deduplicate")
    space: Metric = UnitSphere() if metric == "cosine" else EUCLIDEAN
    # For rows of length 1, |a - b|^2 = 2 (1 - cos).
    squared = 2.0 * threshold if metric == "cosine" else threshold**2
    size = rows.n_rows * data.X.shape[1] * np.dtype(data.X.dtype).itemsize
    return decide_within_groups(
        data.X,
        model._leaf_function(rows.dtype),
        _RowSelector(float(squared), space, keep == "last"),
        lengths=rows.lengths,
        n_parts=int(min(k, max(1, size // _TASK_BYTES))),
        name="deduplicate",
    )


def _select_all(x: Array, start: int) -> Bools:
    return np.ones(len(x), bool)

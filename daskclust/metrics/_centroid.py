"""Cluster scores from distances of rows to cluster means, in O(n k)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import sklearn.metrics

from daskclust.core.array_types import Floats, Ints
from daskclust.core.engine import (
    Rows,
    as_label_vector,
    is_dask,
    open_labeled_rows,
    unwrap,
    working_dtype,
)
from daskclust.core.estimator.fit_loop import draw_seeds
from daskclust.core.estimator.validation import (
    check_integer,
    check_on_cpu,
    check_weight,
    fetched,
    without_mask,
)
from daskclust.core.kernels.moments import LabelMoments
from daskclust.core.kernels.rng import draw_numbers
from daskclust.core.kernels.sparse import canonical, is_sparse, split_last
from daskclust.core.reduction import SPREAD, Spread, SpreadRequest
from daskclust.core.reduction.label_tables import LABEL_MOMENTS, LabelMomentsRequest

_NO_LABEL = -1


@dataclass(frozen=True)
class CentroidScores:
    """Scores of a clustering, and the statistics from which they are computed.

    Attributes
    ----------
    labels : ndarray of shape (k,), int64
        Labels of the clusters, sorted.
    centers : ndarray of shape (k, p), float64
        Means of the clusters.
    spread : Spread
        Weights of the clusters, and sums over their rows.
    feature_weights : ndarray of shape (p,), optional
        Weights of the squared distance.
    """

    labels: Ints
    centers: Floats
    spread: Spread
    feature_weights: Floats | None = None

    @property
    def weights(self) -> Floats:
        """Total weight of the rows of each cluster, of shape (k,)."""
        return self.spread.weights

    @cached_property
    def silhouette(self) -> float:
        """Mean of :func:`simplified_silhouette_score`, in [-1, 1]; higher is better."""
        return float(self._row_silhouettes[0].sum() / self.weights.sum())

    @cached_property
    def silhouette_error(self) -> float:
        """Standard error of :attr:`silhouette`, for independent rows."""
        variance = self._row_silhouettes[1].sum() / self.weights.sum() - self.silhouette**2
        return float(np.sqrt(max(variance, 0.0) / self.spread.rows.sum()))

    @property
    def _row_silhouettes(self) -> tuple[Floats, Floats]:
        # A row that is alone in its cluster scores 0 (Rousseeuw), not 1.
        alone = self.spread.rows <= 1
        return (
            np.where(alone, 0.0, self.spread.silhouettes),
            np.where(alone, 0.0, self.spread.silhouette_squares),
        )

    @cached_property
    def calinski_harabasz(self) -> float:
        """Ratio of between- and within-cluster variance, each divided by its degrees of freedom."""
        within = float(self.spread.squares.sum())
        n = float(self.spread.rows.sum())
        return _calinski_harabasz(self.weights, self.centers, within, n, self.feature_weights)

    @cached_property
    def davies_bouldin(self) -> float:
        """Mean over clusters of the largest ``(s_i + s_j) / d_ij``; lower is better."""
        within = self.spread.distances / self.weights
        scale = 1.0 if self.feature_weights is None else np.sqrt(self.feature_weights)
        scaled = self.centers * scale
        distances_of_centers = np.linalg.norm(scaled[:, None] - scaled[None], axis=2)
        if np.allclose(within, 0) or np.allclose(distances_of_centers, 0):
            return 0.0
        distances_of_centers[distances_of_centers == 0] = np.inf
        ratios = (within[:, None] + within) / distances_of_centers
        np.fill_diagonal(ratios, -np.inf)
        return float(ratios.max(axis=1).mean())


def _calinski_harabasz(
    weights: Floats,
    centers: Floats,
    within: float,
    n: float,
    feature_weights: Floats | None = None,
) -> float:
    k = len(weights)
    squares = (centers - np.average(centers, axis=0, weights=weights)) ** 2
    if feature_weights is not None:
        squares = squares * feature_weights
    between = float(weights @ squares.sum(axis=1))
    return 1.0 if within == 0 else float(between * (n - k) / (within * (k - 1)))


def _check_number(k: int, n: float) -> None:
    if not 2 <= k < n:
        why = "a single cluster" if k == 1 else f"{k} clusters of {n:g} rows"
        raise ValueError(
            f"Number of labels is {k}. Valid values are 2 to n_samples - 1 (inclusive): the score "
            f"is not defined for {why}."
        )


def _matrix(X: Any) -> Any:
    """Return rows as a Dask array, a CSR matrix, or an array with NaN for masked values."""
    X = unwrap(X)
    check_on_cpu(X)
    if is_dask(X):
        return X
    if is_sparse(X) and X.ndim == 2:
        return canonical(X)
    X = np.asanyarray(X)
    return np.ma.filled(X.astype(np.float64), np.nan) if np.ma.is_masked(X) else np.asarray(X)


def _open(X: Any, labels: Any, sample_weight: Any, ignore_masked: Any) -> Rows:
    if not isinstance(ignore_masked, bool | np.bool_):
        raise TypeError(f"ignore_masked must be True or False, got {ignore_masked!r}.")
    X = _matrix(X)
    if X.ndim != 2 or X.dtype.kind not in "fiub":
        raise ValueError(
            f"X must have shape (n, p) and real numbers, got shape {X.shape} and dtype {X.dtype}."
        )
    if ignore_masked and np.ma.is_masked(sample_weight):
        # The first pass raises an error if a used row has such a weight, as for Dask arrays.
        sample_weight = np.ma.filled(sample_weight.astype(np.float64), np.nan)
    sample_weight = check_weight(sample_weight, X)
    labels = as_label_vector(labels, "labels", masked=bool(ignore_masked))
    return open_labeled_rows(X, labels, sample_weight, masked=bool(ignore_masked))


def _find_moments(rows: Rows, ignore_masked: bool) -> LabelMoments:
    ignored = _NO_LABEL if ignore_masked else None
    request = LabelMomentsRequest(rows.n_features - 1, ignored)
    moments: LabelMoments = rows.reduce(LABEL_MOMENTS, request)
    _check_number(len(moments.labels), moments.rows.sum())
    return moments


def _check_centers(centers: Any, n_features: int) -> Floats:
    centers = fetched(centers, "centers")
    out = np.array(without_mask(centers, "centers"), dtype=np.float64, order="C", ndmin=2)
    if out.ndim != 2 or out.shape[1] != n_features or len(out) < 2 or not np.isfinite(out).all():
        raise ValueError(
            f"centers must be finite numbers of shape (k, {n_features}) with k >= 2, got shape "
            f"{np.shape(centers)}. Row c must be the mean of the rows labeled c."
        )
    return out


def centroid_scores(
    X: Any,
    labels: Any,
    *,
    centers: Any = None,
    sample_weight: Any = None,
    ignore_masked: bool = False,
) -> CentroidScores:
    """Compute three scores: simplified silhouette, Calinski-Harabasz and Davies-Bouldin.

    Use it to compare clusterings of the same data without a truth.

    Parameters
    ----------
    X : array-like, sparse matrix or dask.array.Array of shape (n, p)
        Rows.  The blocks of a Dask array may be sparse matrices.
    labels : array-like or dask.array.Array of shape (n,)
        Whole numbers.  Their chunks may differ from the chunks of X.
    centers : array-like of shape (k, p), optional
        Means of the clusters 0 to k - 1, such as ``cluster_centers_``, to save one pass.  Labels
        must then be in [0, k) or masked.  Clusters without rows are ignored.
    sample_weight : array-like or dask.array.Array of shape (n,), optional
        An integer weight is equivalent to repeating the row, and 0 to leaving it out.  A row with
        a weight below 1 counts as one row, so weights may be normalized.
    ignore_masked : bool, default=False
        If True, ignore rows labeled -1, also if they contain NaN.

    Returns
    -------
    CentroidScores

    Raises
    ------
    ValueError
        For fewer than 2 clusters, and for as many clusters as rows.  Without ``centers`` also for
        NaN or infinity in a row with a positive weight.

    Notes
    -----
    *Passes*: 1 with ``centers``, else 2, of O(n k p).  *To the client*: O(k p) per worker thread.

    Examples
    --------
    >>> import numpy as np
    >>> scores = centroid_scores(np.array([[0.0], [2.0], [9.0], [11.0]]), [0, 0, 1, 1])
    >>> round(scores.silhouette, 3), scores.calinski_harabasz, round(scores.davies_bouldin, 3)
    (0.887, 40.5, 0.222)
    """
    rows = _open(X, labels, sample_weight, ignore_masked)
    if centers is None:
        moments = _find_moments(rows, ignore_masked)
        names, means = moments.labels, moments.means
    else:
        means = _check_centers(centers, rows.n_features - 1)
        names = np.arange(len(means))
    ignored = _NO_LABEL if ignore_masked else None
    spread: Spread = rows.reduce(SPREAD, SpreadRequest(means, names, ignored))
    if spread.stray_row is not None:
        raise ValueError(
            f"labels must be in [0, {len(means)}) for centers of shape {means.shape}, got another "
            f"label in row {spread.stray_row}"
            + (" (-1 is allowed)." if ignore_masked else ". Use ignore_masked=True to ignore -1.")
        )
    if not np.isfinite(spread.squares).all():
        # Another pass finds the invalid row, and raises an error with its number.
        _find_moments(rows, ignore_masked)
    filled = spread.weights > 0
    _check_number(int(filled.sum()), float(spread.rows.sum()))
    return CentroidScores(names[filled], means[filled], spread.of(filled))


def simplified_silhouette_score(
    X: Any,
    labels: Any,
    *,
    centers: Any = None,
    sample_weight: Any = None,
    ignore_masked: bool = False,
) -> float:
    """Return the mean simplified silhouette ``(b - a) / max(a, b)`` of the rows, in O(n k).

    For each row, a is the distance to the mean of its cluster, and b is the distance to the nearest
    mean of another cluster.  Its values differ from :func:`silhouette_score`, which uses distances
    to all rows of a cluster.

    Parameters
    ----------
    X, labels, centers, sample_weight, ignore_masked
        See :func:`centroid_scores`.

    Returns
    -------
    float
        In [-1, 1]; higher is better.  Rows alone in their cluster score 0.

    Raises
    ------
    ValueError
        As :func:`centroid_scores`.

    See Also
    --------
    silhouette_score : Silhouette of scikit-learn, from all pairs of rows.

    Examples
    --------
    >>> import numpy as np
    >>> round(simplified_silhouette_score(np.array([[0.0], [2.0], [9.0], [11.0]]), [0, 0, 1, 1]), 3)
    0.887
    """
    return centroid_scores(
        X, labels, centers=centers, sample_weight=sample_weight, ignore_masked=ignore_masked
    ).silhouette


#: Maximum number of rows of a Dask array for which all pairs are compared.
_MAX_ROWS = 2**15


def silhouette_score(
    X: Any,
    labels: Any,
    *,
    sample_size: int | None = None,
    random_state: Any = None,
    ignore_masked: bool = False,
) -> float:
    """Return the mean silhouette ``(b - a) / max(a, b)`` of the rows, as in scikit-learn.

    For each row, a is the mean distance to the other rows of its cluster, and b is the mean
    distance to the rows of the nearest other cluster.

    Parameters
    ----------
    X : array-like, sparse matrix or dask.array.Array of shape (n, p)
        Rows.  The blocks of a Dask array may be sparse matrices.
    labels : array-like or dask.array.Array of shape (n,)
        Whole numbers.  Their chunks may differ from the chunks of X.
    sample_size : int, optional
        Number of rows to draw and compare with each other.  Default: all rows.
    random_state : int, RandomState, Generator or None, default=None
        Seed of the sample.  For a Dask array the sample does not depend on the chunks.  For a NumPy
        array it is the sample of :func:`sklearn.metrics.silhouette_score`.
    ignore_masked : bool, default=False
        If True, ignore rows labeled -1, even if they contain NaN.  For a Dask array they are
        removed from the drawn sample.

    Returns
    -------
    float
        In [-1, 1]; higher is better.  Rows alone in their cluster score 0.

    Raises
    ------
    ValueError
        For fewer than 2 clusters, for as many clusters as rows, for NaN or infinity, and for a Dask
        array of more than 32 768 rows without `sample_size`.

    See Also
    --------
    simplified_silhouette_score : Distances to means instead of rows, in O(n k), for any size.

    Notes
    -----
    The time is O(n^2 p), or O(m^2 p) for a sample of m rows.  *Passes* for Dask arrays: 1.  *To the
    client*: the compared rows.

    Examples
    --------
    >>> import numpy as np
    >>> round(silhouette_score(np.array([[0.0], [2.0], [9.0], [11.0]]), [0, 0, 1, 1]), 3)
    0.775
    """
    if sample_size is not None:
        check_integer(sample_size, "sample_size", 2)
    X = unwrap(X)
    if is_dask(X) or is_dask(labels):
        rows = _open(X, labels, None, ignore_masked)
        count = rows.n_rows if sample_size is None else int(sample_size)
        if sample_size is None and count > _MAX_ROWS:
            raise ValueError(
                f"X must have at most {_MAX_ROWS} rows for all pairs of a Dask array, got "
                f"{count}. Use sample_size=10_000, or simplified_silhouette_score for all rows."
            )
        numbers = draw_numbers(rows.n_rows, count, draw_seeds(random_state, 1)[0])
        X, labels = split_last(rows.take(numbers)[0])
        X, sample_size = X.matrix() if rows.is_sparse else X, None
    else:
        labels = as_label_vector(labels, "labels", masked=ignore_masked)
        X = _matrix(X)
        X = X.astype(working_dtype(X.dtype), copy=False)
    if ignore_masked:
        has_label = labels != _NO_LABEL
        X, labels = X[has_label], labels[has_label]
    if sample_size is not None:
        if isinstance(random_state, np.random.Generator):
            random_state = draw_seeds(random_state, 1)[0] % 2**32
        sample_size = min(int(sample_size), len(labels))
    return float(
        sklearn.metrics.silhouette_score(
            X, labels, sample_size=sample_size, random_state=random_state
        )
    )


def calinski_harabasz_score(
    X: Any, labels: Any, *, sample_weight: Any = None, ignore_masked: bool = False
) -> float:
    """Return the ratio of between- and within-cluster variance (Calinski-Harabasz).

    Each variance is divided by its degrees of freedom.

    Parameters
    ----------
    X, labels, sample_weight, ignore_masked
        See :func:`centroid_scores`.

    Returns
    -------
    float
        The value of :func:`sklearn.metrics.calinski_harabasz_score`; higher is better.

    Raises
    ------
    ValueError
        As :func:`centroid_scores`.

    Notes
    -----
    One pass.

    Examples
    --------
    >>> import numpy as np
    >>> calinski_harabasz_score(np.array([[0.0], [2.0], [9.0], [11.0]]), [0, 0, 1, 1])
    40.5
    """
    moments = _find_moments(_open(X, labels, sample_weight, ignore_masked), ignore_masked)
    within, n = float(moments.squares.sum()), float(moments.rows.sum())
    return _calinski_harabasz(moments.weights, moments.means, within, n)


def davies_bouldin_score(
    X: Any,
    labels: Any,
    *,
    centers: Any = None,
    sample_weight: Any = None,
    ignore_masked: bool = False,
) -> float:
    """Return the mean over clusters of the largest ``(s_i + s_j) / d_ij`` (Davies-Bouldin).

    s is the mean distance of the rows of a cluster to its mean, and d is the distance of two means.

    Parameters
    ----------
    X, labels, centers, sample_weight, ignore_masked
        See :func:`centroid_scores`.

    Returns
    -------
    float
        The value of :func:`sklearn.metrics.davies_bouldin_score`; lower is better.

    Raises
    ------
    ValueError
        As :func:`centroid_scores`.

    Examples
    --------
    >>> import numpy as np
    >>> round(davies_bouldin_score(np.array([[0.0], [2.0], [9.0], [11.0]]), [0, 0, 1, 1]), 3)
    0.222
    """
    return centroid_scores(
        X, labels, centers=centers, sample_weight=sample_weight, ignore_masked=ignore_masked
    ).davies_bouldin

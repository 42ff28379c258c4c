"""Centers that are updated with each batch of rows."""

from __future__ import annotations

import time
from copy import copy
from typing import Any

import numpy as np

from daskclust._types import Floats
from daskclust.engine import map_rows, open_rows, working_dtype
from daskclust.estimator.inputs import check_rows, check_weight
from daskclust.estimator.parameters import is_partial
from daskclust.estimator.values import check_survey
from daskclust.reduction import SURVEY, ClusterStatistics, SurveyRequest

__all__ = ["can_follow", "follow", "followed"]


def followed(
    centers: Floats, counts: Floats, batch: ClusterStatistics, at: int = 0
) -> tuple[Floats, Floats]:
    """Move centers to the means of all rows assigned to them so far (Sculley 2010).

    Parameters
    ----------
    centers : ndarray of shape (k, p), float64
    counts : ndarray of shape (k,), float64
        Weight of the rows assigned to each center so far.
    batch : ClusterStatistics
        Statistics of the new rows, assigned to these centers.
    at : int, default=0
        Number of the center set in the batch.

    Returns
    -------
    centers : ndarray of shape (k, p), float64
        ``(counts c + sums) / (counts + weights)``; a cluster without any row so far keeps
        its center.
    counts : ndarray of shape (k,), float64

    References
    ----------
    .. [1] Sculley, D. (2010). Web-scale k-means clustering. WWW.

    Examples
    --------
    A mean of 3 rows at 1.0 meets a row at 5.0.

    >>> import numpy as np
    >>> batch = ClusterStatistics(np.array([[[5.0]]]), np.array([[1.0]]), np.array([[16.0]]))
    >>> followed(np.array([[1.0]]), np.array([3.0]), batch)
    (array([[2.]]), array([4.]))
    """
    total = counts + batch.counts[at]
    sums = centers * counts[:, None] + batch.sums[at]
    moved = np.divide(sums, total[:, None], out=centers.copy(), where=batch.counts[at][:, None] > 0)
    return moved, total


def can_follow(model: Any) -> bool:
    """Whether means can be updated by batches; raise if parameters do not allow it."""
    if model.metric != "euclidean":
        raise AttributeError(
            f"metric={model.metric!r} cannot go with partial_fit, whose centers are means of rows "
            'as they are; use metric="euclidean", on rows that are scaled as they should be.'
        )
    if is_partial(model):
        raise AttributeError(
            'missing="partial" cannot go with partial_fit, which keeps one weight a center and not '
            'one a feature; use missing="error" on complete rows, or fit.'
        )
    return True


def follow(model: Any, X: Any, sample_weight: Any) -> Any:
    """Update the centers with one batch; the first batch finds the start."""
    if not hasattr(model, "cluster_centers_"):
        return _begun(model, X, sample_weight)
    if not hasattr(model, "counts_"):
        raise ValueError(
            "The model was saved by a version that kept no counts_, the weight of the rows of "
            "which each center is the mean; without them centers cannot be carried on. Fit it anew."
        )
    if len(model.counts_) != model.n_clusters:
        raise ValueError(
            f"n_clusters={model.n_clusters}, but the model has {len(model.counts_)} centers; "
            f"partial_fit carries these on. Set n_clusters={len(model.counts_)}, or fit anew."
        )
    return _moved(model, X, sample_weight)


def _begun(model: Any, X: Any, sample_weight: Any) -> Any:
    """Find the start in the first batch, and move it once."""
    first = copy(model)
    first.max_iter, first.checkpoint = 1, None
    first.fit(X, sample_weight=sample_weight)
    first.inertia_ = first.history_[-1]["objective"]
    params = model.get_params(deep=False)
    vars(model).update({name: v for name, v in vars(first).items() if name not in params})
    return model


def _moved(model: Any, X: Any, sample_weight: Any) -> Any:
    """Move the centers of a fitted model by one batch; nothing changes where that fails."""
    began = time.perf_counter()
    X = check_rows(model, X, reset=False)
    passes = 1
    if sample_weight is not None:
        # Weights are looked at before they count, once and for all.
        request = SurveyRequest(X.shape[1])
        check_survey(open_rows(X, check_weight(sample_weight, X)).reduce(SURVEY, request))
        passes += 1
    stats = model._assigned(X, sample_weight)
    centers, counts = followed(model._centers, model.counts_, stats)
    dtype = working_dtype(X.dtype)
    function = model._row_function(dtype).with_centers(centers, None)
    labels = map_rows(X, function, dtype=np.int32, name="predict")
    inertia = float(stats.inertia.sum())
    record = {
        "iteration": model.n_iter_ + 1,
        "objective": inertia,
        "center_shift": float(np.sqrt(((centers - model._centers) ** 2).sum())),
        "moved": None,
        "seconds": time.perf_counter() - began,
        "passes": model.history_[-1]["passes"] + passes,
    }
    model._centers, model.counts_, model.labels_ = centers, counts, labels
    model.cluster_centers_, model.inertia_ = centers.copy(), inertia
    model.n_iter_ += 1
    model.history_ = [*model.history_, record]
    return model

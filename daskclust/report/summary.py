"""What is told about a label map: sizes, agreement with a truth, a small picture of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import dask.array as da
import numpy as np
from numpy.typing import NDArray

from daskclust.cube.layout import BlockGrid, flatten
from daskclust.engine import compute

__all__ = ["MapSummary", "agreement_of", "as_classes", "n_clusters_of", "summarize"]

#: Pixels along the longer side of the small map.
_SIDE = 1000


@dataclass(frozen=True)
class MapSummary:
    """A label map in numbers.

    Attributes
    ----------
    sizes : ndarray of shape (k,), int64
        Pixels of each cluster.
    preview : ndarray of shape (rows, columns), int
        Every ``step``-th pixel; -1 where there are no data.
    step : int
    """

    sizes: NDArray[np.int64]
    preview: NDArray[Any]
    step: int


def _count(block: NDArray[Any], n_clusters: int) -> NDArray[np.int64]:
    counts = np.bincount(block[block >= 0].ravel(), minlength=n_clusters)
    return counts[None, None, :n_clusters].astype(np.int64)


def summarize(image: da.Array, n_clusters: int) -> MapSummary:
    """Count clusters and take a small map, in one pass over the label map."""
    counts = da.map_blocks(
        _count,
        image,
        n_clusters=n_clusters,
        new_axis=2,
        chunks=((1,) * image.numblocks[0], (1,) * image.numblocks[1], (n_clusters,)),
        dtype=np.int64,
        meta=np.empty((0, 0, 0), np.int64),
    )
    step = max(1, -(-max(image.shape) // _SIDE))
    small = image[::step, ::step]
    sizes, preview = compute("the summary of the map", counts.sum(axis=(0, 1)), small)
    return MapSummary(sizes, preview, step)


def as_classes(values: Any, none: tuple[int, ...]) -> da.Array:
    """Return a map of classes with -1 where there is none."""
    classes = da.asarray(values).astype(np.int64)
    return da.where(da.isin(classes, list(none)), -1, classes)


def agreement_of(image: da.Array, truth: da.Array, grid: BlockGrid) -> dict[str, Any]:
    """Compare a label map with a map of known classes, -1 = none.

    Parameters
    ----------
    image, truth : dask.array.Array of shape (y, x), integer
    grid : BlockGrid

    Returns
    -------
    dict
        Scores, ``pixels`` compared, and the confusion matrix: ``classes``, ``clusters``
        and ``counts``.

    Raises
    ------
    ValueError
        No pixel has both a class and a cluster.
    """
    from daskclust.metrics import agreement_scores, contingency_table

    known, found = flatten(truth, grid), flatten(image, grid)
    table = contingency_table(known, found, ignore_masked=True)
    classes, rows = np.unique(table[:, 0], return_inverse=True)
    clusters, columns = np.unique(table[:, 1], return_inverse=True)
    counts = np.zeros((len(classes), len(clusters)), dtype=np.int64)
    counts[rows, columns] = table[:, 2]
    return {
        **agreement_scores(known, found, ignore_masked=True),
        "pixels": int(counts.sum()),
        "classes": classes.tolist(),
        "clusters": clusters.tolist(),
        "counts": counts.tolist(),
    }


def n_clusters_of(model: Any) -> int:
    """Return the number of clusters that a fitted model has found."""
    for name in ("cluster_centers_", "means_"):
        centers = getattr(model, name, None)
        if centers is not None:
            return len(centers)
    if not hasattr(model, "n_clusters"):
        return len(model.classes_)
    return int(getattr(model, "n_clusters_", None) or model.n_clusters)

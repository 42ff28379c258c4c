"""Summary of a label map: sizes, agreement with known classes, a small picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import dask.array as da
import numpy as np
from numpy.typing import NDArray

from daskclust._types import Ints
from daskclust.cube import LabelMap, area_table
from daskclust.cube.label_map import signed_codes
from daskclust.cube.layout import BlockGrid, flatten
from daskclust.engine import compute

__all__ = ["MapSummary", "NothingInCommonError", "agreement_of", "as_classes", "summarize"]

#: Pixels along the longer side of the small map.
_SIDE = 2500


class NothingInCommonError(ValueError):
    """No pixel has both a class and a cluster, so that nothing can be compared."""


@dataclass(frozen=True)
class MapSummary:
    """A label map in numbers.

    Attributes
    ----------
    sizes : ndarray of shape (k,), int64
        Pixels of each code.
    preview : ndarray of shape (rows, columns), int
        Places among the codes of every ``step``-th pixel; -1 where there are no data.
    step : int
    values : ndarray of shape (rows, columns), float32, or None
        Margins of the same pixels, NaN for none.
    square_meters : tuple of float, or None
        Area of each code; None if the map has no coordinate system.
    """

    sizes: Ints
    preview: NDArray[Any]
    step: int
    values: NDArray[np.float32] | None = None
    square_meters: tuple[float, ...] | None = None


def _count(block: NDArray[Any], codes: Ints) -> Ints:
    at = _places(block[block >= 0].ravel(), codes)
    return np.bincount(at[at >= 0], minlength=len(codes))[None, None].astype(np.int64)


def _places(labels: NDArray[Any], codes: Ints) -> Ints:
    """Return where labels stand among ascending codes, -1 for those that are not there."""
    at = np.searchsorted(codes, labels)
    at[at == len(codes)] = 0
    return np.where(codes[at] == labels, at, -1)


def summarize(
    image: da.Array, codes: Sequence[int], *, values: Any = None, cube: Any = None
) -> MapSummary:
    """Count the pixels of each code and take a small map, in one pass over the label map.

    Parameters
    ----------
    image : dask.array.Array of shape (y, x), integer
        -1 for none.
    codes : sequence of int
        Ascending.
    values : dask.array.Array of shape (y, x), optional
        Numbers of the pixels, of which a small map is taken, too.
    cube : Cube, optional
        Where the map lies; with a coordinate system, one more pass adds up areas.
    """
    known = np.asarray(codes, dtype=np.int64)
    counts = da.map_blocks(
        _count,
        image,
        codes=known,
        new_axis=2,
        chunks=((1,) * image.numblocks[0], (1,) * image.numblocks[1], (len(known),)),
        dtype=np.int64,
        meta=np.empty((0, 0, 0), np.int64),
    )
    step = max(1, -(-max(image.shape) // _SIDE))
    small = [image[::step, ::step], *([] if values is None else [values[::step, ::step]])]
    sizes, preview, *more = compute("the summary of the map", counts.sum(axis=(0, 1)), *small)
    margins = np.asarray(more[0], dtype=np.float32) if more else None
    areas = None if cube is None else _areas(image, cube, codes)
    return MapSummary(sizes, _places(np.asarray(preview), known), step, margins, areas)


def _areas(image: da.Array, cube: Any, codes: Sequence[int]) -> tuple[float, ...] | None:
    if cube.georeference.crs_text() is None:
        return None
    where = LabelMap(image, place=cube.georeference, dimension_names=cube.dimension_names)
    try:
        table = area_table(where)
    except ImportError:  # without pyproj there are only counts
        return None
    found = {row.code: row.square_meters for row in table}
    areas = [0.0 if code not in found else found[code] for code in codes]
    return None if None in areas else tuple(float(area or 0.0) for area in areas)


def as_classes(values: Any, none: tuple[int, ...]) -> da.Array:
    """Return a map of classes with -1 where there is none."""
    return signed_codes(da.asarray(values), none)


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
    NothingInCommonError
        No pixel has both a class and a cluster.
    """
    from daskclust.metrics import agreement_scores, contingency_table

    known, found = flatten(truth, grid), flatten(image, grid)
    table = contingency_table(known, found)
    table = table[(table[:, :2] >= 0).all(axis=1)]
    if not len(table):
        raise NothingInCommonError("No pixel has both a class and a cluster to compare.")
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

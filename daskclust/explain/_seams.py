"""Clusters of the tiles of a mosaic, and their differences at the seams between tiles."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

from daskclust.core.array_types import Floats, Ints
from daskclust.core.estimator.validation import check_integer
from daskclust.explain._labeled_rows import labels_of, name_of_label
from daskclust.scenes import Cube
from daskclust.scenes.mosaic_seams import count_seams


@dataclass(frozen=True, repr=False)
class TileDrift:
    """Fractions of clusters by tile of a mosaic, and differences at the seams.

    Attributes
    ----------
    tiles : list of str
        Names of the tiles that have pixels.
    labels : ndarray of shape (k,), int64
        Labels that occur, sorted.
    names : list of str
        Names of the clusters.
    sizes : ndarray of shape (m,), int64
        Number of labeled pixels of each tile.
    shares : ndarray of shape (m, k), float64
        Fraction of the pixels of each tile in each cluster.
    seams : ndarray of shape (s, 2), int64
        Positions in `tiles` of adjacent tiles.
    seam_sizes : ndarray of shape (s, 2), int64
        Number of pixels near each seam, in both tiles.
    distances : ndarray of shape (s,), float64
        Total variation distance between the fractions of clusters on the two sides of each seam,
        from 0 (equal) to 1 (no common cluster).
    """

    tiles: list[str]
    labels: Ints
    names: list[str]
    sizes: Ints
    shares: Floats
    seams: Ints
    seam_sizes: Ints
    distances: Floats

    def __repr__(self) -> str:
        largest = f"{self.distances.max():.3f}" if len(self.distances) else "none"
        return (
            f"TileDrift of {len(self.tiles)} tiles, {len(self.seams)} seams, largest distance "
            f"{largest}"
        )

    def to_frame(self) -> Any:
        """Return a table with a line for each tile, largest distance first.

        Returns
        -------
        pandas.DataFrame
            Columns ``tile``, ``size``, ``distance`` (mean over the seams of the tile, weighted by
            pixels; NaN without seams), ``neighbor`` (with the largest distance),
            ``neighbor_distance``, and the fraction of each cluster.
        """
        import pandas

        m = len(self.tiles)
        weight = np.tile(self.seam_sizes.sum(axis=1), 2)
        tile, neighbor_tile = self.seams.T.ravel(), self.seams[:, ::-1].T.ravel()
        distance = np.tile(self.distances, 2)
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = np.bincount(tile, weight * distance, m) / np.bincount(tile, weight, m)
        largest, neighbor = np.full(m, np.nan), np.full(m, None, object)
        for position in np.argsort(distance, kind="stable").tolist():
            largest[tile[position]], neighbor[tile[position]] = (
                distance[position],
                self.tiles[neighbor_tile[position]],
            )
        columns = {"tile": self.tiles, "size": self.sizes, "distance": mean, "neighbor": neighbor}
        columns["neighbor_distance"] = largest
        for name, share in zip(self.names, self.shares.T, strict=True):
            columns[f"share {name}"] = share
        frame = pandas.DataFrame(columns)
        return frame.sort_values("distance", ascending=False, kind="stable", ignore_index=True)

    def _repr_html_(self) -> str:
        return f"{self.to_frame().to_html(index=False)}<p>{escape(repr(self))}</p>"


def tile_drift(model: Any, X: Any, y: Any = None, *, width: int = 8) -> TileDrift:
    """Compare the clusters of adjacent tiles of a mosaic.

    Use it to find tiles whose clusters differ from the clusters of adjacent tiles, for example
    because of haze, another date or another processing.

    Parameters
    ----------
    model : fitted estimator, or None
        Model whose ``predict`` returns the clusters.
    X : Cube
        Cube of :func:`daskclust.open_mosaic`.
    y : array-like or dask.array.Array of shape (n,), optional
        Labels of the rows if `model` is None, such as ``labels_``; negative for rows without a
        label.
    width : int, default=8
        Width in pixels of the strips on both sides of a seam.

    Returns
    -------
    TileDrift

    Raises
    ------
    TypeError
        If X is not a cube.
    ValueError
        If not exactly one of `model` and `y` is set.  If the cube is not a mosaic, or if a mosaic
        has several dates or ``overlap="mean"``.

    Notes
    -----
    A pixel belongs to the tile of its first band.  It is near a seam if a pixel of another tile is
    at most `width` pixels away in the same row or column.  Land cover may also change at a seam:
    compare the distance of a seam with the distances of other seams.

    The function labels the pixels, and reads the first band of the tiles once.  *To the client*:
    counts by tile, neighbor and cluster for each block.

    Examples
    --------
    >>> import daskclust, numpy as np, xarray
    >>> from daskclust.explain import tile_drift
    >>> tiles = []
    >>> for left, value in [(0.0, 1.0), (4.0, 9.0)]:
    ...     tile = xarray.DataArray(
    ...         np.full((1, 4, 4), value), dims=("band", "y", "x"), name=f"from {left}",
    ...         coords={"y": 3.5 - np.arange(4), "x": left + 0.5 + np.arange(4)},
    ...     )
    ...     tiles.append(tile.rio.write_crs("EPSG:32633"))
    >>> cube = daskclust.open_mosaic(tiles)
    >>> model = daskclust.KMeans(2, random_state=0).fit(cube)
    >>> tile_drift(model, cube)
    TileDrift of 2 tiles, 1 seams, largest distance 1.000
    """
    check_integer(width, "width", 1)
    if not isinstance(X, Cube):
        raise TypeError(f"X must be a cube of daskclust.open_mosaic, got {type(X).__name__}.")
    if X.items is None:
        raise ValueError(
            "X must be a mosaic of one date with one item per pixel, got "
            + (
                "a mosaic of several dates or with overlap='mean'. Open each date alone, with "
                "overlap='first' or 'last'."
                if X.item_names
                else "another cube. Use daskclust.open_mosaic."
            )
        )
    rows, classes = labels_of(model, X, y)
    labels = X.to_map(rows)
    tile, other, label, count = count_seams(X.items, labels, X.chunks, int(width))
    numbers, is_whole = np.unique(tile), other < 0
    known = np.unique(label)
    if not len(numbers):
        raise ValueError("X must have pixels with labels, got none.")
    tile, label = np.searchsorted(numbers, tile), np.searchsorted(known, label)
    table = np.zeros((len(numbers), len(known)), np.int64)
    np.add.at(table, (tile[is_whole], label[is_whole]), count[is_whole])
    is_near = ~is_whole & np.isin(other, numbers)
    pairs = np.stack([tile, np.searchsorted(numbers, other)])[:, is_near]
    seams, at = np.unique(np.sort(pairs, axis=0), axis=1, return_inverse=True)
    sides = np.zeros((seams.shape[1], 2, len(known)), np.int64)
    np.add.at(
        sides, (at.ravel(), (pairs[0] > pairs[1]).astype(int), label[is_near]), count[is_near]
    )
    # The other side of a seam may have no labeled pixel.
    has_both = sides.sum(axis=2).all(axis=1)
    sides, seams = sides[has_both], seams.T[has_both]
    sizes = sides.sum(axis=2)
    fractions = sides / sizes[:, :, None]
    return TileDrift(
        [X.item_names[number] for number in numbers.tolist()],
        known,
        [name_of_label(model, classes, number) for number in known.tolist()],
        table.sum(axis=1),
        table / table.sum(axis=1, keepdims=True),
        seams,
        sizes,
        0.5 * np.abs(fractions[:, 0] - fractions[:, 1]).sum(axis=1),
    )

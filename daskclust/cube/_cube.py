"""A cube opened: which pixels are rows, and labels back to the image."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

import dask.array as da
import numpy as np
from numpy.typing import ArrayLike, NDArray

from daskclust.cube import _blocks
from daskclust.cube._grids import pixel_grid
from daskclust.cube._html import cube_html
from daskclust.cube._images import Image, open_image
from daskclust.cube._label_maps import as_data_array
from daskclust.cube._labels import as_codes
from daskclust.cube._metadata import Names
from daskclust.cube._pixel_rows import PixelRows
from daskclust.cube._writing import write_labels, write_values
from daskclust.cube.formats.vector import PixelGrid
from daskclust.cube.label_map import LabelMap
from daskclust.cube.layout import flatten
from daskclust.cube.pictures import plot_cube
from daskclust.engine import compute

__all__ = ["Cube"]


class Cube(PixelRows):
    """An image cube as rows for clustering; made by :func:`daskclust.open_cube`.

    Attributes
    ----------
    chunks : tuple of tuples
        Block sizes along y and x.
    wavelengths : ndarray of shape (bands kept,), float64, or None
        Band centers in nm (taken for nm where no unit says otherwise); None where
        there are none.
    dimension_names : tuple of str
        Names of y and x in the store.
    attributes : dict
        The stored array's attributes.
    nodata : tuple of numbers
        Values that mean "no data", besides NaN.

    Notes
    -----
    The number of valid pixels per block is needed for `samples`, `n_valid`,
    `n_masked` and the methods.  It is counted at the first need, once, by one pass
    over the store on the user's scheduler; no pass where neither a nodata value nor
    NaN is possible and no mask was given, unless ``scale="standard"`` needs the
    statistics; ``scale="whitened"`` takes one more pass, over a sample of the pixels.
    The pass that counts finds bands without any data: from then on they are no longer
    among `shape`, `bands`, `wavelengths` and `samples`, and a warning names them.
    """

    def _repr_html_(self) -> str:
        # Nothing is counted for a look.
        return cube_html(self, self.n_valid if "_survey" in self.__dict__ else None)

    def plot(
        self, bands: int | Sequence[int] | None = None, *, ax: Any = None, title: str | None = None
    ) -> Any:
        """Draw the cube in colors, or one of its bands.

        Parameters
        ----------
        bands : int or sequence of 3 int, default=None
            Stored numbers: of one band, or of those for red, green and blue.  None takes
            the bands nearest to red, green and blue light, three spread over the cube where
            it has no wavelengths, and the first one where there are fewer than three.
        ax : matplotlib Axes, default=None
            None makes a new figure.
        title : str, default=None
            None names the bands.

        Returns
        -------
        matplotlib Axes

        Raises
        ------
        ImportError
            Without matplotlib.
        ValueError
            No such bands.

        Notes
        -----
        One pass over the chunks that hold these bands; large scenes are thinned out to 1500
        pixels a side.  Axes are in the units of the coordinate system.

        Examples
        --------
        >>> import zarr
        >>> from daskclust import open_cube
        >>> values = zarr.array(np.array([[[1], [-9]], [[2], [3]]], dtype="int16"))
        >>> ax = open_cube(values, dims=("y", "x", "band"), nodata=-9).plot(0)
        >>> ax.get_xlabel(), ax.get_title(loc="left")
        ('column', 'band 0')
        """
        return plot_cube(self, bands, ax=ax, title=title)

    def label_map(
        self,
        labels: Any,
        *,
        classes: ArrayLike | None = None,
        class_names: Sequence[str] | Mapping[int, str] | None = None,
    ) -> LabelMap:
        """Make a map of labels to look at, with names, colors and areas of its classes.

        Parameters
        ----------
        labels : array of shape (n_valid,)
            As for :meth:`to_map`; numbers, or text with `classes`.
        classes : array of shape (k,), default=None
            A model's ``classes_``, for labels that are text: these become the codes
            0, ..., k - 1, and the names.
        class_names : sequence of str or mapping of int to str, default=None
            Meanings of the labels 0, 1, ..., or by label.

        Returns
        -------
        LabelMap
            Lazy.

        Examples
        --------
        >>> import zarr
        >>> from daskclust import open_cube
        >>> values = zarr.array(np.array([[[1], [-9]], [[2], [3]]], dtype="int16"))
        >>> cube = open_cube(values, dims=("y", "x", "band"), nodata=-9)
        >>> cube.label_map(np.array([1, 0, 1]), class_names=["wheat", "water"]).area()[1].pixels
        2
        """
        codes, names = as_codes(labels, classes, class_names)
        return LabelMap(
            self.to_map(codes),
            names=names,
            place=self.georeference,
            dimension_names=self.dimension_names,
        )

    @property
    def pixel_grid(self) -> PixelGrid:
        """Shape, transform and coordinate system of the image."""
        return pixel_grid(self.georeference, self.shape[:2], self.dimension_names)

    def open_map(
        self,
        name: str,
        image: Any,
        *,
        variable: str | None = None,
        class_column: str | None = None,
    ) -> Image:
        """Open an image of the size of the cube, such as a label map; nothing is computed.

        Parameters
        ----------
        name : str
            Of the argument, for messages.
        image : array of shape (y, x), xarray.DataArray, zarr.Group, str or path
        variable : str, default=None
            Array inside a store.
        class_column : str, default=None
            Of a vector file or a CSV file.

        Raises
        ------
        ValueError
            Another shape, or another coordinate system or position than the cube.
        """
        return open_image(
            name,
            image,
            self._grid.shape,
            place=self._place,
            variable=variable,
            names=self.dimension_names,
            chunks=self.chunks,
            class_column=class_column,
        )

    # Labels back to the image

    def to_map(self, labels: Any, *, fill_value: float = -1) -> da.Array:
        """Put one value per row back onto the image.

        Parameters
        ----------
        labels : array of shape (n_valid,)
            NumPy, or Dask chunked like `samples` (another chunking costs a rechunk).
        fill_value : number, default=-1
            Value of masked pixels, and of those whose labels are masked.

        Returns
        -------
        dask.array.Array of shape (y, x)
            Lazy, in the cube's blocks.  Of the labels' dtype, or of one that holds
            `fill_value`, too: unsigned labels become int64 for a negative one, integers
            float64 for NaN and other numbers that are no integers.

        Raises
        ------
        ValueError
            Another number of labels than valid pixels.

        Notes
        -----
        Blocks with masked pixels are read again, to know which.

        Examples
        --------
        >>> import zarr
        >>> from daskclust import open_cube
        >>> values = zarr.array(np.array([[[1], [-9]], [[2], [3]]], dtype="int16"))
        >>> cube = open_cube(values, dims=("y", "x", "band"), nodata=-9)
        >>> cube.to_map(np.array([5, 6, 7])).compute().tolist()
        [[5, -1], [6, 7]]
        """
        return self._image(labels, fill_value)

    def rows_of(
        self,
        label_map: Any,
        *,
        unlabeled: int | Sequence[int] = -1,
        variable: str | None = None,
        class_column: str | None = None,
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Turn a label map into global row numbers and labels.

        The result is the ``y=(rows, labels)`` of the semi-supervised estimators.

        Parameters
        ----------
        label_map : array of shape (y, x), integer or bool, or a store of one
            NumPy, Dask, Zarr or xarray; or a path or group, with `variable` where it
            has several two-dimensional arrays.  A path may also be of a raster file,
            a vector file (GeoJSON, GeoPackage, Shapefile: pixels whose center a feature
            covers), or a CSV file with row and column, or x and y, and class.
            Of a bool map, the True pixels with label 1.
        unlabeled : int or sequence of int, default=-1
            Values that mean "no label", besides those that the attributes of a stored
            map declare; ground truth often uses 0, then pass 0.
        variable : str, default=None
            Array inside the store.
        class_column : str, default=None
            Of a vector or CSV file; None takes the only one that can be meant.  Names
            become the codes 0, 1, ... in their alphabetical order (see :meth:`open_map`).

        Returns
        -------
        rows : ndarray of shape (m,), int64
            Ascending row numbers of `samples`.  Labeled pixels that are masked are left out.
        labels : ndarray of shape (m,), int64

        Raises
        ------
        ValueError
            Another shape, no integers, or a map that states another coordinate system
            or position than the cube.

        Notes
        -----
        Runs on the user's scheduler and reads only blocks that hold labels.

        Examples
        --------
        >>> import zarr
        >>> from daskclust import open_cube
        >>> values = zarr.array(np.array([[[1], [-9]], [[2], [3]]], dtype="int16"))
        >>> cube = open_cube(values, dims=("y", "x", "band"), nodata=-9)
        >>> rows, labels = cube.rows_of(np.array([[0, 1], [-1, 2]]))
        >>> rows.tolist(), labels.tolist()
        ([0, 2], [0, 2])
        """
        opened = self.open_map("label_map", label_map, variable=variable, class_column=class_column)
        image = opened.values
        if image.dtype.kind not in "iub":
            raise ValueError(f"label_map has dtype {image.dtype}; expected integers or booleans.")
        values = (unlabeled,) if isinstance(unlabeled, int | np.integer) else tuple(unlabeled)
        values = (0,) if image.dtype.kind == "b" else (*values, *opened.nodata)
        rows_of = self._per_block(
            _blocks.block_rows_of,
            flatten(image, self._grid),
            sizes=(1,) * self._grid.count,
            dtype=object,
            token="daskclust-rows-of",
            unlabeled=values,
        )
        (found,) = compute("the reading of labels", rows_of)
        offsets = accumulate(self.block_counts, initial=0)
        rows = [block[0] + offset for block, offset in zip(found, offsets, strict=False)]
        return np.concatenate(rows), np.concatenate([block[1] for block in found])

    def write_labels(
        self,
        labels: Any,
        store: Any,
        *,
        overwrite: bool = False,
        n_clusters: int | None = None,
        class_names: Names | None = None,
        class_colors: Mapping[int, str] | None = None,
        attributes: Mapping[str, Any] | None = None,
    ) -> Any:
        """Write labels as an image into a new Zarr group, or a GeoTIFF.

        Parameters
        ----------
        labels : array of shape (n_valid,), integer
            NumPy, or Dask chunked like `samples`; -1 means none.
        store : str, path or zarr store
            The target.  With a distributed cluster, workers must see it too.  A name that
            ends in .tif becomes a cloud-optimized GeoTIFF with colors, class names, nodata
            and coordinate system, written by the client.
        overwrite : bool, default=False
            Replace a label map that daskclust has written; never anything else.
        n_clusters : int, default=None
            Number of clusters, where known: up to 32 767 are stored as int16.
        class_names : sequence of str or mapping of int to str, default=None
            Meanings of the labels 0, 1, ..., or by label; ``cluster_0``, ... by default.
        class_colors : mapping of int to str, default=None
            Colors by label, as ``#rrggbb``; well told apart by default.
        attributes : mapping, default=None
            More attributes of the group, such as where the labels come from; JSON values,
            stored without the credentials of URLs.

        Returns
        -------
        zarr.Group or Path
            Of a GeoTIFF its path.
            Else open for reading, with the array ``labels`` (y, x), int16 or int32,
            ``_FillValue = -1``, CF ``flag_values`` and ``flag_meanings`` (of the clusters
            that are known and the labels that occur), and the georeference of the cube
            unchanged (attributes, coordinates, grid mapping).

        Raises
        ------
        FileExistsError
            The target exists and `overwrite` is False, or it is no label map of daskclust.
        StoreError
            A worker does not see the cube or the target, or blocks are missing in it.
        ValueError
            The target is the cube's own store, or holds it.
            Another number of labels than valid pixels, or labels outside -1 to
            the largest number of the dtype; or the (local) files of the cube changed
            since its valid pixels were counted.

        Notes
        -----
        One task per block on the user's scheduler writes one chunk, so that no chunk
        is shared.  A local target appears under its name only when it is whole.

        Examples
        --------
        >>> import zarr
        >>> from daskclust import open_cube
        >>> values = zarr.array(np.array([[[1], [-9]], [[2], [3]]], dtype="int16"))
        >>> cube = open_cube(values, dims=("y", "x", "band"), nodata=-9)
        >>> written = cube.write_labels(np.array([0, 0, 1]), zarr.storage.MemoryStore())
        >>> written["labels"][:].tolist(), written["labels"].attrs["flag_meanings"]
        ([[0, -1], [0, 1]], 'cluster_0 cluster_1')
        """
        return write_labels(
            self,
            labels,
            store,
            overwrite=overwrite,
            n_clusters=n_clusters,
            class_names=class_names,
            class_colors=class_colors,
            attributes=attributes,
        )

    def write_map(
        self,
        values: Any,
        store: Any,
        *,
        overwrite: bool = False,
        names: Sequence[str] | None = None,
        attributes: Mapping[str, Any] | None = None,
    ) -> Any:
        """Write numbers of the rows, such as margins or probabilities, as an image.

        Parameters
        ----------
        values : array of shape (n_valid,) or (n_valid, m), float
            NumPy, or Dask chunked like `samples`; float64 stays, other numbers become
            float32.
        store : str or path
            A name that ends in .tif becomes a cloud-optimized GeoTIFF of m bands, any
            other one a Zarr group with the array ``values``, (y, x) or (band, y, x).
        overwrite : bool, default=False
            Replace a map of values that daskclust has written; never anything else.
        names : sequence of str, default=None
            Of the m bands.
        attributes : mapping, default=None
            More attributes; JSON values.

        Returns
        -------
        zarr.Group or Path

        Raises
        ------
        FileExistsError
            The target exists and `overwrite` is False, or it is no such map of daskclust.
        ValueError
            Another number of rows than valid pixels, or of names than of columns.

        Notes
        -----
        Masked pixels are NaN.  A GeoTIFF is written by the client, a row of blocks at a
        time; Zarr by one task a block.

        Examples
        --------
        >>> import zarr
        >>> from daskclust import open_cube
        >>> values = zarr.array(np.array([[[1], [-9]], [[2], [3]]], dtype="int16"))
        >>> cube = open_cube(values, dims=("y", "x", "band"), nodata=-9)
        >>> written = cube.write_map(np.array([0.5, 0.25, 1.0]), zarr.storage.MemoryStore())
        >>> written["values"][:].tolist()
        [[0.5, nan], [0.25, 1.0]]
        """
        return write_values(
            self, values, store, overwrite=overwrite, names=names, attributes=attributes
        )

    def to_xarray(
        self,
        labels: Any,
        *,
        fill_value: float = -1,
        name: str = "labels",
        class_names: Names | None = None,
    ) -> Any:
        """Put one value per row back onto the image, as an ``xarray.DataArray``.

        Parameters
        ----------
        labels : array of shape (n_valid,)
            As for :meth:`to_map`.
        fill_value : number, default=-1
            Value of masked pixels.
        name : str, default="labels"
        class_names : sequence of str or mapping of int to str, default=None
            Meanings of the labels 0, 1, ..., or by label, for the attributes ``flag_values`` and
            ``flag_meanings``.

        Returns
        -------
        xarray.DataArray of shape (y, x)
            Lazy, with the cube's coordinates and georeference.

        Raises
        ------
        ImportError
            Without xarray.

        Examples
        --------
        >>> import zarr
        >>> from daskclust import open_cube
        >>> values = zarr.array(np.array([[[1], [-9]], [[2], [3]]], dtype="int16"))
        >>> cube = open_cube(values, dims=("y", "x", "band"), nodata=-9)
        >>> cube.to_xarray(np.array([5, 6, 7])).dims
        ('y', 'x')
        """
        return as_data_array(
            self.to_map(labels, fill_value=fill_value),
            self._place,
            self.dimension_names,
            fill_value=fill_value,
            name=name,
            class_names=class_names,
        )

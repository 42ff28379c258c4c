"""Values of the rows back on the image: as arrays, as maps to look at, and in files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import dask.array as da
from numpy.typing import ArrayLike

from daskclust.cube._label_maps import as_data_array
from daskclust.cube._labels import as_codes, as_numbers
from daskclust.cube._metadata import Names, as_names
from daskclust.cube._pixel_rows import PixelRows
from daskclust.cube._writing import write_labels, write_values
from daskclust.cube.label_map import LabelMap

__all__ = ["MappedRows"]


class MappedRows(PixelRows):
    """The rows of a cube, and where their values lie on the image; :class:`Cube` is the whole."""

    def to_map(
        self, labels: Any, *, fill_value: float = -1, classes: ArrayLike | None = None
    ) -> da.Array:
        """Put one value per row back onto the image.

        Parameters
        ----------
        labels : array of shape (n_valid,)
            NumPy, or Dask chunked like `samples` (another chunking costs a rechunk).
            Numbers, or text, which becomes codes: see `classes`.
        fill_value : number, default=-1
            Value of masked pixels, and of those whose labels are masked.
        classes : array of shape (k,), default=None
            A model's ``classes_``, for labels that are text: these become 0, ..., k - 1,
            and -1 where they are none of them.  None takes the sorted names of a NumPy
            array; lazy text needs them.

        Returns
        -------
        dask.array.Array of shape (y, x)
            Lazy, in the cube's blocks.  Of the labels' dtype, or of one that holds
            `fill_value`, too: unsigned labels become int64 for a negative one, integers
            float64 for NaN and other numbers that are no integers.

        Raises
        ------
        ValueError
            Another number of labels than valid pixels, or lazy text without `classes`.

        Notes
        -----
        Blocks with masked pixels are read again, to know which.

        Examples
        --------
        >>> import numpy as np, zarr
        >>> from daskclust import open_cube
        >>> values = zarr.array(np.array([[[1], [-9]], [[2], [3]]], dtype="int16"))
        >>> cube = open_cube(values, dims=("y", "x", "band"), nodata=-9)
        >>> cube.to_map(np.array([5, 6, 7])).compute().tolist()
        [[5, -1], [6, 7]]
        """
        return self._image(as_numbers(labels, classes)[0], fill_value)

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
            0, ..., k - 1, and the names.  As of :meth:`to_map`.
        class_names : sequence of str or mapping of int to str, default=None
            Meanings of the labels 0, 1, ..., or by label.

        Returns
        -------
        LabelMap
            Lazy.

        Examples
        --------
        >>> import numpy as np, zarr
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

    def to_xarray(
        self,
        labels: Any,
        *,
        fill_value: float = -1,
        name: str = "labels",
        classes: ArrayLike | None = None,
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
        classes : array of shape (k,), default=None
            A model's ``classes_``, for labels that are text; as of :meth:`to_map`.
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
        >>> import numpy as np, zarr
        >>> from daskclust import open_cube
        >>> values = zarr.array(np.array([[[1], [-9]], [[2], [3]]], dtype="int16"))
        >>> cube = open_cube(values, dims=("y", "x", "band"), nodata=-9)
        >>> cube.to_xarray(np.array([5, 6, 7])).dims
        ('y', 'x')
        """
        codes, names = as_numbers(labels, classes)
        return as_data_array(
            self.to_map(codes, fill_value=fill_value),
            self._place,
            self.dimension_names,
            fill_value=fill_value,
            name=name,
            class_names=class_names if names is None else {**names, **as_names(class_names)},
        )

    def write_labels(
        self,
        labels: Any,
        store: Any,
        *,
        overwrite: bool = False,
        n_clusters: int | None = None,
        classes: ArrayLike | None = None,
        class_names: Names | None = None,
        class_colors: Mapping[int, str] | None = None,
        attributes: Mapping[str, Any] | None = None,
    ) -> Any:
        """Write labels as an image into a new Zarr group, or a GeoTIFF.

        Parameters
        ----------
        labels : array of shape (n_valid,), integer or text
            NumPy, or Dask chunked like `samples`; -1 means none.  Text becomes codes, with
            the text as their names: see `classes`.
        store : str, path or zarr store
            The target.  With a distributed cluster, workers must see it too.  A name that
            ends in .tif becomes a cloud-optimized GeoTIFF with colors, class names, nodata
            and coordinate system, written by the client.
        overwrite : bool, default=False
            Replace a label map that daskclust has written; never anything else.
        n_clusters : int, default=None
            Number of clusters, where known: up to 32 767 are stored as int16.
        classes : array of shape (k,), default=None
            A model's ``classes_``, for labels that are text; as of :meth:`to_map`.
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
        >>> import numpy as np, zarr
        >>> from daskclust import open_cube
        >>> values = zarr.array(np.array([[[1], [-9]], [[2], [3]]], dtype="int16"))
        >>> cube = open_cube(values, dims=("y", "x", "band"), nodata=-9)
        >>> written = cube.write_labels(np.array([0, 0, 1]), zarr.storage.MemoryStore())
        >>> written["labels"][:].tolist(), written["labels"].attrs["flag_meanings"]
        ([[0, -1], [0, 1]], 'cluster_0 cluster_1')
        """
        codes, names = as_numbers(labels, classes)
        return write_labels(
            self,
            codes,
            store,
            overwrite=overwrite,
            n_clusters=n_clusters,
            class_names=class_names if names is None else {**names, **as_names(class_names)},
            class_colors=class_colors,
            attributes=attributes,
        )

    def write_map(
        self,
        values: Any,
        store: Any,
        *,
        overwrite: bool = False,
        names: Iterable[Any] | None = None,
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
        names : iterable, default=None
            Of the m bands: text, or whatever ``str`` makes text of, such as ``model.classes_``.
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
        >>> import numpy as np, zarr
        >>> from daskclust import open_cube
        >>> values = zarr.array(np.array([[[1], [-9]], [[2], [3]]], dtype="int16"))
        >>> cube = open_cube(values, dims=("y", "x", "band"), nodata=-9)
        >>> written = cube.write_map(np.array([0.5, 0.25, 1.0]), zarr.storage.MemoryStore())
        >>> written["values"][:].tolist()
        [[0.5, nan], [0.25, 1.0]]
        """
        return write_values(
            self,
            values,
            store,
            overwrite=overwrite,
            names=None if names is None else [str(name) for name in names],
            attributes=attributes,
        )

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
            NumPy, or Dask with the chunks of `samples` (other chunks are rechunked).
            Numbers, or text, which `classes` turns into codes.
        fill_value : number, default=-1
            Value of masked pixels, and of pixels whose label is masked.
        classes : array of shape (k,), default=None
            The model's ``classes_``, if labels are text.  Class i becomes the code i, any
            other text -1.  None takes the sorted distinct names in a NumPy array; lazy
            text needs `classes`.

        Returns
        -------
        dask.array.Array of shape (y, x)
            Lazy, with the blocks of the cube as chunks.  The dtype is that of the labels
            if it can hold `fill_value`.  Otherwise unsigned labels become int64 (negative
            `fill_value`), and integers become float64 (`fill_value` NaN or not an
            integer).

        Raises
        ------
        ValueError
            The number of labels is not `n_valid`, or labels are lazy text without
            `classes`.

        Notes
        -----
        Blocks with masked pixels are read again to find these pixels.

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
            One label per valid pixel, in the order of `samples`.  NumPy, or Dask with the
            chunks of `samples`.  Numbers, or text, which `classes` turns into codes.
        classes : array of shape (k,), default=None
            The model's ``classes_``, if labels are text.  Class i becomes the code i, any
            other text -1.  These texts are the names in the map.  None takes the sorted
            distinct names in a NumPy array; lazy text needs `classes`.
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
            One label per valid pixel, in the order of `samples`.  NumPy, or Dask with the
            chunks of `samples`.  Numbers, or text, which `classes` turns into codes.
        fill_value : number, default=-1
            Value of masked pixels.
        name : str, default="labels"
        classes : array of shape (k,), default=None
            The model's ``classes_``, if labels are text.  Class i becomes the code i, any
            other text -1.  None takes the sorted distinct names in a NumPy array; lazy
            text needs `classes`.
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
            xarray is not installed.

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
            NumPy, or Dask with the chunks of `samples`; -1 means "no label".  `classes`
            turns text into codes, and the text becomes the names of the classes.
        store : str, path or zarr store
            The target.  The workers of a distributed cluster must be able to reach it.
            If the name ends in .tif, the client writes a cloud-optimized GeoTIFF with
            colors, class names, nodata value and coordinate system.
        overwrite : bool, default=False
            Replace a label map that daskclust has written; nothing else is ever replaced.
        n_clusters : int, default=None
            Number of clusters, if known.  Up to 32 767 clusters are stored as int16.
        classes : array of shape (k,), default=None
            The model's ``classes_``, if labels are text.  Class i becomes the code i, any
            other text -1.  None takes the sorted distinct names in a NumPy array; lazy
            text needs `classes`.
        class_names : sequence of str or mapping of int to str, default=None
            Meanings of the labels 0, 1, ..., or by label; ``cluster_0``, ... by default.
        class_colors : mapping of int to str, default=None
            Colors by label, as ``#rrggbb``; distinct colors by default.
        attributes : mapping, default=None
            More attributes of the group, such as the origin of the labels.  JSON values;
            credentials in URLs are not stored.

        Returns
        -------
        zarr.Group or Path
            The path of a GeoTIFF, else the group, open for reading.  Its array ``labels``
            (y, x) is int16 or int32 with ``_FillValue = -1``.  CF ``flag_values`` and
            ``flag_meanings`` list the known clusters and all labels that occur.  The
            georeference of the cube (attributes, coordinates, grid mapping) is copied
            unchanged.

        Raises
        ------
        FileExistsError
            The target exists and `overwrite` is False, or daskclust has not written it.
        StoreError
            A worker cannot reach the cube or the target, or blocks of the target are
            missing.
        ValueError
            The target is the cube's own store or contains it.  The number of labels is
            not `n_valid`, or a label is less than -1 or too large for the dtype.  The
            local files of the cube were changed after its valid pixels were counted.

        Notes
        -----
        One task per block writes one chunk, on the active Dask scheduler.  A local target
        appears under its name only when it is complete.

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
            NumPy, or Dask with the chunks of `samples`.  float64 is kept; other types
            become float32.
        store : str or path
            The target.  If the name ends in .tif, a cloud-optimized GeoTIFF of m bands;
            otherwise a Zarr group with the array ``values``, (y, x) or (band, y, x).
        overwrite : bool, default=False
            Replace a map of values that daskclust has written; nothing else is ever
            replaced.
        names : iterable, default=None
            Names of the m bands, such as ``model.classes_``; converted by ``str``.
        attributes : mapping, default=None
            More attributes; JSON values.

        Returns
        -------
        zarr.Group or Path

        Raises
        ------
        FileExistsError
            The target exists and `overwrite` is False, or it is not a map of values that
            daskclust has written.
        ValueError
            `values` does not have `n_valid` rows, or there are not m names.

        Notes
        -----
        Masked pixels are NaN.  The client writes a GeoTIFF, one row of blocks at a time.
        A Zarr group is written by one task per block.

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

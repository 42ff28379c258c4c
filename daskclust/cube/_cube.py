"""An open cube: its rows, maps and picture, and images of the same size."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daskclust._types import Ints
from daskclust.cube import _blocks
from daskclust.cube._grids import pixel_grid
from daskclust.cube._html import cube_html
from daskclust.cube._images import Image, are_features, open_image, read_image
from daskclust.cube._resampling import resampled
from daskclust.cube._row_maps import MappedRows
from daskclust.cube.formats.vector import PixelGrid
from daskclust.cube.layout import flatten
from daskclust.cube.pictures import plot_cube
from daskclust.engine import compute

__all__ = ["Cube"]


class Cube(MappedRows):
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
    The number of valid pixels per block is needed for `samples`, `n_valid`, `n_masked`
    and the methods.  It is counted once, on first use, by one pass over the store on the
    active Dask scheduler.  This pass is skipped if neither a nodata value nor NaN can
    occur, no mask was given, and ``scale`` is not ``"standard"``.  ``scale="whitened"``
    takes one more pass, over a sample of the pixels.  The counting pass also finds bands
    without any data.  They are then removed from `shape`, `bands`, `wavelengths` and
    `samples`, and a warning names them.
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
            Stored number of one band, or of the three bands for red, green and blue.
            None takes the bands nearest to red, green and blue light.  Without
            wavelengths, None takes three bands spread over the cube; with fewer than
            three bands, the first one.
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
            matplotlib is not installed.
        ValueError
            A band does not exist.

        Notes
        -----
        One pass over the chunks that hold these bands; large scenes are reduced to at
        most 1500 pixels a side.  Axes are in the units of the coordinate system.

        Examples
        --------
        >>> import numpy as np, zarr
        >>> from daskclust import open_cube
        >>> values = zarr.array(np.array([[[1], [-9]], [[2], [3]]], dtype="int16"))
        >>> ax = open_cube(values, dims=("y", "x", "band"), nodata=-9).plot(0)
        >>> ax.get_xlabel(), ax.get_title(loc="left")
        ('column', 'band 0')
        """
        return plot_cube(self, bands, ax=ax, title=title)

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
        resample: bool = False,
    ) -> Image:
        """Open an image of the size of the cube, such as a label map; nothing is computed.

        Parameters
        ----------
        name : str
            Name of the argument, for messages.
        image : array of shape (y, x), xarray.DataArray, zarr.Group, str or path
        variable : str, default=None
            Array inside a store.
        class_column : str, default=None
            Column of the classes in a vector file or a CSV file.
        resample : bool, default=False
            Whether an image of integers or booleans on another grid is brought to that of
            the cube: each pixel takes the value where its center lies, -1 (False) outside.
            Both must say where they lie.

        Raises
        ------
        ValueError
            The image has another shape, coordinate system or position than the cube, or,
            with `resample`, no pixel in common.
        """
        if resample and not are_features(image):
            found = read_image(name, image, variable)
            same = found.values.shape == self._grid.shape
            if not same or self._place.differences(found.place):
                found = resampled(name, found, self.pixel_grid, self.chunks)
            image, variable = found, None
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

    def rows_of(
        self,
        label_map: Any,
        *,
        unlabeled: int | Sequence[int] = -1,
        variable: str | None = None,
        class_column: str | None = None,
        resample: bool = False,
    ) -> tuple[Ints, NDArray[Any]]:
        """Turn a label map into global row numbers and labels.

        Pass the result to a semi-supervised estimator as ``y=(rows, labels)``.

        Parameters
        ----------
        label_map : array of shape (y, x), integer or bool, or a store of one
            NumPy, Dask, Zarr or xarray; or a path or group, with `variable` if it has
            several two-dimensional arrays.  A path may also name a raster file, a vector
            file (GeoJSON, GeoPackage, Shapefile) or a CSV file.  A feature in a vector
            file labels the pixels whose center it covers.  A CSV file has columns for row
            and column, or x and y, and one for the class.  In a bool map the True pixels
            have the label 1.
        unlabeled : int or sequence of int, default=-1
            Values that mean "no label", besides those that the attributes of a stored map
            declare.  Pass 0 if 0 means unlabeled, as in many ground truth maps.  Class
            names always count as labels.
        variable : str, default=None
            Array inside the store.
        class_column : str, default=None
            Column of the classes in a vector or CSV file; None takes the only candidate.
        resample : bool, default=False
            Whether a map on another grid is brought to that of the cube, by the nearest of
            its pixels; else it is refused.

        Returns
        -------
        rows : ndarray of shape (m,), int64
            Ascending row numbers of `samples`.  Labeled pixels that are masked are left out.
        labels : ndarray of shape (m,), int64 or str
            Class names, if `label_map` is the path of a vector or CSV file whose classes
            are text; the ``classes_`` of a model fitted to them are these names.
            Otherwise codes, even if an image opened by :meth:`open_map` has names for
            them.

        Raises
        ------
        ValueError
            The map has another shape than the cube, its values are not integers, or it
            states another coordinate system or position than the cube.

        Notes
        -----
        Runs on the user's scheduler and reads only blocks that hold labels.

        Examples
        --------
        >>> import numpy as np, zarr
        >>> from daskclust import open_cube
        >>> values = zarr.array(np.array([[[1], [-9]], [[2], [3]]], dtype="int16"))
        >>> cube = open_cube(values, dims=("y", "x", "band"), nodata=-9)
        >>> rows, labels = cube.rows_of(np.array([[0, 1], [-1, 2]]))
        >>> rows.tolist(), labels.tolist()
        ([0, 2], [0, 2])
        """
        opened = self.open_map(
            "label_map",
            label_map,
            variable=variable,
            class_column=class_column,
            resample=resample,
        )
        image = opened.values
        if image.dtype.kind not in "iub":
            raise ValueError(f"label_map has dtype {image.dtype}; expected integers or booleans.")
        values = (unlabeled,) if isinstance(unlabeled, int | np.integer) else tuple(unlabeled)
        values = (0,) if image.dtype.kind == "b" else (*values, *opened.nodata)
        names = opened.meanings if are_features(label_map) else None
        if names is not None:
            # Their codes are nobody's: no value of the user's can mean one of them.
            values = opened.nodata
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
        labels = np.concatenate([block[1] for block in found])
        if names is not None:
            labels = np.array([names[code] for code in range(len(names))])[labels]
        return np.concatenate(rows), labels

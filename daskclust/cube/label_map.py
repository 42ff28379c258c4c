"""A map of class codes with their names and colors, and its georeference."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import dask.array as da
import numpy as np
from numpy.typing import NDArray

from daskclust.colors import class_colors
from daskclust.cube._georeference import NOWHERE, Georeference, PixelGrid, pixel_grid
from daskclust.cube._images import read_image
from daskclust.cube._metadata import Names, as_names, flags
from daskclust.cube._writing import write_map
from daskclust.cube.areas import AreaTable, areas_of
from daskclust.cube.pictures import label_map_html, plot_label_map
from daskclust.storage.seen import values_of
from daskclust.storage.stores import local_path


class LabelMap:
    """A map of class codes; made by :func:`open_label_map` and by ``Cube.label_map``.

    Parameters
    ----------
    values : array of shape (y, x), integer
        NumPy or Dask.
    nodata : sequence of int, default=(-1,)
        Values that mean "no class".
    names : mapping of int to str, default=None
        Names of codes.  A code without a name is named by its number.
    colors : mapping of int to str, default=None
        Colors of codes, as ``#rrggbb``.  Other codes get the colors of
        :func:`daskclust.colors.class_colors`.
    place : Georeference, optional
    dimension_names : tuple of str, default=("y", "x")
    title : str, default="label map"
        For messages and pictures.

    Attributes
    ----------
    values : dask.array.Array of shape (y, x), signed integers
        Lazy; -1 where there is no class.
    names, colors : dict of int
        Of the codes that have a name or a color.
    georeference : Georeference

    Raises
    ------
    ValueError
        Values are not integers, or not of two dimensions.

    Examples
    --------
    >>> found = LabelMap(np.array([[0, 1], [255, 1]], "uint8"), nodata=[255], names={1: "wheat"})
    >>> found
    <LabelMap 2 x 2 pixels, 1 class named>
    >>> found.values.compute().tolist(), found.name_of(1), found.name_of(0)
    ([[0, 1], [-1, 1]], 'wheat', '0')
    """

    def __init__(
        self,
        values: Any,
        *,
        nodata: Any = (-1,),
        names: Mapping[int, str] | None = None,
        colors: Mapping[int, str] | None = None,
        place: Georeference = NOWHERE,
        dimension_names: tuple[str, str] = ("y", "x"),
        title: str = "label map",
    ) -> None:
        # A hidden pixel has no class.
        found = read_image(title, values)
        values, nodata = found.values, (*nodata, *found.nodata)
        if values.ndim != 2 or values.dtype.kind not in "iub":
            raise ValueError(
                f"The {title} has shape {values.shape} and dtype {values.dtype}; expected integer "
                "codes of shape (y, x)."
            )
        lazy = values if isinstance(values, da.Array) else da.from_array(values)
        self.values = signed_codes(lazy, tuple(int(value) for value in nodata))
        self.names = {int(code): str(name) for code, name in (names or {}).items() if code >= 0}
        self.colors = {int(code): str(color) for code, color in (colors or {}).items()}
        self.georeference = place
        self.dimension_names = dimension_names
        self.title = title

    def __repr__(self) -> str:
        y, x = self.shape
        named = f"{len(self.names)} class{'' if len(self.names) == 1 else 'es'} named"
        return f"<LabelMap {y} x {x} pixels, {named}>"

    @property
    def shape(self) -> tuple[int, int]:
        """(y, x)."""
        height, width = self.values.shape
        return int(height), int(width)

    @property
    def grid(self) -> PixelGrid:
        """Transform and coordinate system of the pixels."""
        return pixel_grid(self.georeference, self.shape, self.dimension_names)

    def name_of(self, code: int) -> str:
        """Return the name of a class; its number if it has no name."""
        return self.names.get(code, str(code))

    def color_of(self, code: int) -> str:
        """Return the color of a class, as ``#rrggbb``."""
        return self.colors.get(code) or class_colors([code])[code]

    def area(self) -> AreaTable:
        """Return pixels and area of each class; see :func:`daskclust.cube.area_table`."""
        return areas_of(self)

    def plot(self, *, ax: Any = None, title: str | None = None) -> Any:
        """Draw the map with a legend of its classes.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            None makes a new figure.
        title : str, default=None

        Returns
        -------
        matplotlib Axes

        Raises
        ------
        ImportError
            matplotlib is not installed.

        Notes
        -----
        Large maps are reduced to at most 1500 pixels a side by taking every n-th pixel;
        all blocks are read.

        Examples
        --------
        >>> ax = LabelMap(np.array([[0, 1], [-1, 1]]), names={0: "wheat", 1: "water"}).plot()
        >>> [text.get_text() for text in ax.get_legend().get_texts()]
        ['wheat', 'water', 'no class']
        """
        return plot_label_map(self, ax=ax, title=title)

    def write(
        self, store: Any, *, overwrite: bool = False, attributes: Mapping[str, Any] | None = None
    ) -> Any:
        """Write the map, all of whose codes must have names, as ``Cube.write_labels`` does.

        Parameters
        ----------
        store : str or path
            A name that ends in ``.tif`` makes a GeoTIFF, any other a Zarr store.
        overwrite : bool, default=False
            Replace a label map that daskclust has written.
        attributes : mapping, optional
            JSON values to keep beside the map.

        Returns
        -------
        Path or zarr.Group

        Raises
        ------
        FileExistsError
            Something is there, and `overwrite` is False or daskclust has not written it.

        Examples
        --------
        >>> import tempfile
        >>> found = LabelMap(np.array([[0, 1], [-1, 1]]), names={0: "wheat", 1: "water"})
        >>> group = found.write(tempfile.mkdtemp() + "/map.zarr")
        >>> open_label_map(group).names
        {0: 'wheat', 1: 'water'}
        """
        return write_map(self, store, overwrite=overwrite, attributes=attributes)

    def to_xarray(self) -> Any:
        """Return an ``xarray.DataArray`` with coordinates and coordinate system; lazy.

        Raises
        ------
        ImportError
            xarray is not installed.
        """
        return as_data_array(
            self.values,
            self.georeference,
            self.dimension_names,
            fill_value=-1,
            name="labels",
            class_names=self.names or None,
            class_colors={code: self.color_of(code) for code in self.names},
        )

    def _repr_html_(self) -> str:
        return label_map_html(self)


def open_label_map(source: Any, *, variable: str | None = None) -> LabelMap:
    """Open a label map in a file or store, or one that xarray or NumPy holds.

    Parameters
    ----------
    source : str, path, zarr.Group or zarr.Array, xarray.DataArray, array of shape (y, x)
        A map that ``Cube.write_labels`` has written, or any other raster of integers: Zarr
        v2 or v3, GeoTIFF, NetCDF, ``.npy``.
    variable : str, default=None
        Array inside a store; None takes the only one of two dimensions.

    Returns
    -------
    LabelMap
        Lazy: only metadata are read.

    Raises
    ------
    FileNotFoundError
        There is no such file or store.
    ValueError
        There is no two-dimensional array of integers, or there are several.

    Examples
    --------
    >>> open_label_map(np.array([[0, 1], [-1, 1]])).shape
    (2, 2)
    """
    if isinstance(source, LabelMap):
        return source
    found = read_image("the label map", source, variable)
    path = local_path(source)
    nodata = found.nodata or (() if found.values.dtype.kind in "ub" else (-1,))
    return LabelMap(
        found.values,
        nodata=nodata,
        names=found.meanings,
        colors=found.colors,
        place=found.place,
        dimension_names=found.names,
        title="label map" if path is None else f"label map {path.name!r}",
    )


def area_table(label_map: Any, *, variable: str | None = None) -> AreaTable:
    """Count the pixels of each class of a map, and sum their areas.

    Parameters
    ----------
    label_map : LabelMap, str, path, zarr.Group, xarray.DataArray, array of shape (y, x)
        A file or store that ``Cube.write_labels`` has written, the result of
        ``Cube.to_xarray(labels)``, or any other raster of integers.
    variable : str, default=None
        Array inside a store.

    Returns
    -------
    AreaTable
        One :class:`ClassArea` for each class that has a name or occurs, by ascending
        code.

    Raises
    ------
    ImportError
        The map has a coordinate system, and pyproj is not installed.
    ValueError
        The map does not hold integers, or pyproj does not know its coordinate system.

    Notes
    -----
    Areas are those on the ellipsoid.  In degrees, the area of a pixel depends on its
    latitude.  In a projection, it is the product of the pixel's sides if that is correct
    to 1 % everywhere on the map (UTM); otherwise it is computed pixel by pixel (Web
    Mercator).  Without a coordinate system there are only counts.

    Cost: one pass over the map on the active Dask scheduler, one block at a time in
    memory.

    Examples
    --------
    >>> found = area_table(np.array([[0, 1], [1, -1]]))
    >>> [(row.code, row.pixels, row.square_meters) for row in found]
    [(0, 1, None), (1, 2, None)]
    >>> found.unclassified
    1
    """
    return areas_of(open_label_map(label_map, variable=variable))


def signed_codes(values: da.Array, nodata: tuple[int, ...]) -> da.Array:
    """Return signed codes of the same blocks, -1 for every value that means none.

    Codes of 2**63 and more are an error when they are met.
    """
    wanted = np.dtype(np.int64 if values.dtype.itemsize > 2 else np.int32)
    if values.dtype == np.int32:
        wanted = np.dtype(np.int32)
    return da.map_blocks(
        _codes, values, nodata=nodata, dtype=wanted, meta=np.empty((0, 0), wanted), to=wanted
    )


def _codes(block: NDArray[Any], *, nodata: tuple[int, ...], to: np.dtype[Any]) -> NDArray[Any]:
    none = np.zeros(block.shape, bool)
    for value in nodata:
        none |= block == value
    codes = np.where(none, 0, block) if none.any() else block
    if codes.dtype == np.uint64 and codes.size and codes.max() > np.iinfo(np.int64).max:
        raise ValueError(f"The label map holds {codes.max()}; expected codes below 2**63.")
    codes = codes.astype(to)
    codes[none] = -1
    return codes


def as_data_array(
    image: da.Array,
    place: Georeference,
    names: tuple[str, str],
    *,
    fill_value: float,
    name: str,
    class_names: Names | None,
    class_colors: Mapping[int, str] | None = None,
) -> Any:
    """Wrap a label map with the cube's coordinates; see :meth:`daskclust.Cube.to_xarray`."""
    try:
        import xarray
    except ImportError as error:
        raise ImportError(
            "xarray is not installed. Use: pip install 'daskclust[xarray]', or to_map."
        ) from error
    coordinates = {
        key: (found.dims, values_of(found.values), dict(found.attributes))
        for key, found in place.coordinates.items()
    }
    attributes = {"long_name": "cluster", **place.group_attributes, **place.attributes}
    # Where xarray wants it: in the attributes it would be refused when written.
    encoding = {"_FillValue": fill_value}
    mapping = attributes.pop("grid_mapping", None)
    if mapping is not None:
        encoding["grid_mapping"] = mapping
    if mapping in coordinates:
        # Said there, and no mapping can be written as NetCDF.
        attributes.pop("_CRS", None)
    if class_names is not None:
        attributes.update(flags(as_names(class_names), class_names, class_colors))
        if "class_names" in attributes:
            attributes["class_names"] = json.dumps(attributes["class_names"])
    out = xarray.DataArray(image, coordinates, names, name, attributes)
    out.encoding.update(encoding)
    return out

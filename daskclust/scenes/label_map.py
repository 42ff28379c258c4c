"""A map of class codes with names, colors and georeference; and changes between two maps."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dask.array as da
import numpy as np
from numpy.typing import NDArray

from daskclust.colors import Legend, class_colors, positions_of_names
from daskclust.core.array_types import Floats, Ints
from daskclust.core.storage.stored_array import values_of
from daskclust.core.storage.stores import local_path
from daskclust.scenes._georeference import NOWHERE, Georeference, PixelGrid, pixel_grid
from daskclust.scenes._metadata import flags
from daskclust.scenes._open_array import Image, read_image
from daskclust.scenes._writing import label_writer, write_together
from daskclust.scenes.areas import AreaTable, areas_of
from daskclust.scenes.label_images import resampled
from daskclust.scenes.pictures import draw_labels, label_map_html


class LabelMap:
    """A map of class codes, as :func:`open_label_map` and ``Cube.label_map`` return it.

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
    position : Georeference, optional
    title : str, default="label map"
        Title in messages and pictures.

    Attributes
    ----------
    values : dask.array.Array of shape (y, x), signed integers
        Lazy; -1 means "no class".
    names, colors : dict of int
        Names and colors by code, for codes with a name or a color.
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
        position: Georeference = NOWHERE,
        title: str = "label map",
    ) -> None:
        # Masked pixels have no class.
        image = read_image(title, values)
        values, nodata = image.values, (*nodata, *image.nodata)
        if values.ndim != 2 or values.dtype.kind not in "iub":
            raise ValueError(
                f"The {title} must contain integer codes of shape (y, x), got shape {values.shape} "
                f"and dtype {values.dtype}."
            )
        lazy = values if isinstance(values, da.Array) else da.from_array(values)
        self.values = signed_codes(lazy, tuple(int(value) for value in nodata))
        self.names = {int(code): str(name) for code, name in (names or {}).items() if code >= 0}
        self.colors = {int(code): str(color) for code, color in (colors or {}).items()}
        self.georeference = position
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
    def dimension_names(self) -> tuple[str, str]:
        """Names of y and x."""
        return self.georeference.names

    @property
    def grid(self) -> PixelGrid:
        """Transform and coordinate system of the pixels."""
        return pixel_grid(self.georeference, self.shape)

    def name_of(self, code: int) -> str:
        """Return the name of a class; its number if it has no name."""
        return self.names.get(code, str(code))

    def color_of(self, code: int) -> str:
        """Return the color of a class, as ``#rrggbb``."""
        return self.colors.get(code) or class_colors([code])[code]

    def area(self) -> AreaTable:
        """Return pixels and area of each class; see :func:`daskclust.scenes.area_table`."""
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
        >>> from daskclust.scenes import LabelMap
        >>> ax = LabelMap(np.array([[0, 1], [-1, 1]]), names={0: "wheat", 1: "water"}).plot()
        >>> [text.get_text() for text in ax.get_legend().get_texts()]
        ['wheat', 'water', 'no class']
        """
        return draw_labels(self, ax=ax, title=title)

    def write(
        self,
        store: Any,
        *,
        overwrite: bool = False,
        attributes: Mapping[str, Any] | None = None,
    ) -> Any:
        """Write the map like ``Cube.write_labels``; all codes must have names.

        Parameters
        ----------
        store : str or path
            A name that ends in ``.tif`` makes a GeoTIFF, any other a Zarr store.
        overwrite : bool, default=False
            Replace a label map that daskclust has written.
        attributes : mapping, optional
            JSON values to keep with the map.

        Returns
        -------
        Path or zarr.Group

        Raises
        ------
        FileExistsError
            The target exists, and `overwrite` is False or daskclust has not written it.

        Examples
        --------
        >>> import tempfile
        >>> from daskclust.scenes import LabelMap, open_label_map
        >>> found = LabelMap(np.array([[0, 1], [-1, 1]]), names={0: "wheat", 1: "water"})
        >>> group = found.write(tempfile.mkdtemp() + "/map.zarr")
        >>> open_label_map(group).names
        {0: 'wheat', 1: 'water'}
        """
        writer = label_writer(
            self.values,
            self.georeference,
            store,
            dtype=self.values.dtype,
            names=self.names,
            colors=self.colors,
            overwrite=overwrite,
            attributes=attributes,
        )
        return write_together(writer)[0]

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
            fill_value=-1,
            name="labels",
            class_names=self.names or None,
            class_colors={code: self.color_of(code) for code in self.names},
        )

    def _repr_html_(self) -> str:
        return label_map_html(self)


def open_label_map(source: Any, *, variable: str | None = None) -> LabelMap:
    """Open a label map from a file, a store, or an array of xarray or NumPy.

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
        The file or store does not exist.
    ValueError
        The source has no two-dimensional array of integers, or several.

    Examples
    --------
    >>> open_label_map(np.array([[0, 1], [-1, 1]])).shape
    (2, 2)
    """
    if isinstance(source, LabelMap):
        return source
    image = read_image("the label map", source, variable)
    path = local_path(source)
    nodata = image.nodata or (() if image.values.dtype.kind in "ub" else (-1,))
    return LabelMap(
        image.values,
        nodata=nodata,
        names=image.meanings,
        colors=image.colors,
        position=image.position,
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
    Areas are areas on the ellipsoid.  In degrees, the area of a pixel depends on its latitude.  In
    a projection, it is the product of the pixel's sides if this is correct to 1 % everywhere on the
    map (UTM).  Otherwise it is computed pixel by pixel (Web Mercator).  Without a coordinate system
    there are only counts.

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
    return open_label_map(label_map, variable=variable).area()


def signed_codes(values: da.Array, nodata: tuple[int, ...]) -> da.Array:
    """Return signed codes of the same blocks, -1 for each value that means no class.

    Codes of 2**63 and more raise an error when they are read.
    """
    is_wide = values.dtype.itemsize > 2 and values.dtype != np.int32
    signed = np.dtype(np.int64 if is_wide else np.int32)
    return da.map_blocks(_codes, values, nodata=nodata, meta=np.empty((0, 0), signed), to=signed)


def _codes(block: NDArray[Any], *, nodata: tuple[int, ...], to: np.dtype[Any]) -> NDArray[Any]:
    none = np.zeros(block.shape, bool)
    for value in nodata:
        none |= block == value
    codes = np.where(none, 0, block) if none.any() else block
    if codes.dtype == np.uint64 and codes.size and codes.max() > np.iinfo(np.int64).max:
        raise ValueError(f"The label map must contain codes below 2**63, got {codes.max()}.")
    codes = codes.astype(to)
    codes[none] = -1
    return codes


def as_data_array(
    image: da.Array,
    position: Georeference,
    *,
    fill_value: float,
    name: str,
    class_names: Mapping[int, str] | None,
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
        key: (coordinate.dims, values_of(coordinate.values), dict(coordinate.attributes))
        for key, coordinate in position.coordinates.items()
    }
    attributes = {"long_name": "cluster", **position.group_attributes, **position.attributes}
    # xarray does not write _FillValue as an attribute.
    encoding = {"_FillValue": fill_value}
    mapping = attributes.pop("grid_mapping", None)
    if mapping is not None:
        encoding["grid_mapping"] = mapping
    if mapping in coordinates:
        # The grid mapping states the coordinate system, and NetCDF cannot store a mapping.
        attributes.pop("_CRS", None)
    if class_names is not None:
        attributes.update(flags(class_names, class_names, class_colors))
        if "class_names" in attributes:
            attributes["class_names"] = json.dumps(attributes["class_names"])
    out = xarray.DataArray(image, coordinates, position.names, name, attributes)
    out.encoding.update(encoding)
    return out


#: A pair of codes is stored as one number: (old code + 1) times this base, plus new code + 1.
_BASE = 2**31
#: Maximum number of pairs of classes that are compared.
_MAX_PAIRS = 2**22
#: Color of unchanged pixels.
_SAME_COLOR = "#d9d9d9"


@dataclass(frozen=True)
class Changes:
    """Pixels and areas that changed from each class to each other class.

    Attributes
    ----------
    compared_by : str
        ``"name"``, ``"code"``, or ``"overlap"``: the one-to-one matching of most shared pixels.
    legend : Legend
        Legend of the m classes of both maps: first the classes of the old map, then new classes
        without an old class.
    new_codes : dict of int
        Code in the new map by code, for classes of the new map.
    new_names : dict of str
    pixels : ndarray of shape (m, m), int64
        Pixels by class of the old map (rows) and class of the new map (columns).
    square_meters : ndarray of shape (m, m) or None
        None if the maps have no coordinate system.
    only_old, only_new : int
        Pixels with a class in only one of the maps, which are not compared.
    matched : LabelMap
        The new map with the codes, names and colors of the old map.
    changed : LabelMap
        0 for unchanged pixels, else the number of the transition; the most frequent one is 1.
    """

    compared_by: str
    legend: Legend
    new_codes: dict[int, int]
    new_names: dict[int, str]
    pixels: Ints
    square_meters: Floats | None
    only_old: int
    only_new: int
    matched: LabelMap
    changed: LabelMap

    @property
    def unchanged(self) -> float:
        """Fraction of the pixels in both maps with the same class."""
        return float(np.trace(self.pixels) / max(1, self.pixels.sum()))

    def transitions(self) -> list[tuple[int, int]]:
        """Return indices of the old and the new class of each change, the most frequent first."""
        return _transitions(self.pixels)


def compare_maps(
    old: LabelMap, new: LabelMap, *, match: str = "auto", resample: bool = False
) -> Changes:
    """Compare two label maps of one grid.

    Parameters
    ----------
    match : {"auto", "name", "code", "overlap"}, default="auto"
        Method of matching classes: by name, by code, or one to one by the number of shared
        pixels.  "auto": by name if both maps have names, by code if neither has, else by overlap.
    resample : bool, default=False
        If True, a new map on another grid is resampled to the old map's grid (nearest pixel).

    Raises
    ------
    ValueError
        The maps have different positions, or no common pixel, or no common class by name or code.

    Notes
    -----
    One pass.  The maps of the result are lazy.

    Examples
    --------
    >>> names = {0: "water", 1: "wheat"}
    >>> old = LabelMap(np.array([[0, 0], [1, 1]]), names=names)
    >>> new = LabelMap(np.array([[5, 4], [4, 4]]), names={4: "wheat", 5: "water"})
    >>> changes = compare_maps(old, new)
    >>> changes.compared_by, changes.pixels.tolist(), changes.unchanged
    ('name', [[1, 1], [0, 2]], 0.75)
    """
    new = _on_grid(old, new, resample)
    pairs = da.map_blocks(_pair, old.values, new.values, meta=np.empty((0, 0), np.int64))
    pair_map = LabelMap(pairs, position=old.georeference)
    table = pair_map.area()
    of_pairs = np.array([row.code for row in table], np.int64)
    mine, theirs = of_pairs // _BASE - 1, of_pairs % _BASE - 1
    size = np.array([row.pixels for row in table], np.int64)
    both = (mine >= 0) & (theirs >= 0)
    if not both.any():
        raise ValueError("No pixel has a class in both maps, so there is nothing to compare.")
    olds = sorted({*old.names, *mine[mine >= 0].tolist()})
    news = sorted({*new.names, *theirs[theirs >= 0].tolist()})
    if len(olds) * len(news) > _MAX_PAIRS:
        raise ValueError(
            f"The maps must have at most {_MAX_PAIRS} pairs of an old and a new class, got "
            f"{len(olds)} old and {len(news)} new classes. Compare maps of classes, not of "
            "segments."
        )
    counts = np.zeros((len(olds), len(news)), np.int64)
    indices = np.searchsorted(olds, mine[both]), np.searchsorted(news, theirs[both])
    counts[indices] = size[both]
    old_legend, new_legend = (
        Legend.of(olds, old.names, old.colors),
        Legend.of(news, new.names, new.colors),
    )
    by = _way(old, new, old_legend, new_legend) if match == "auto" else match
    partner = _partners(by, old_legend, new_legend, counts)
    # New classes without an old one follow the old ones.
    without_old = np.flatnonzero(partner < 0)
    partner[without_old] = len(olds) + np.arange(len(without_old))
    names = [*old_legend.names]
    for name in (new_legend.names[position] for position in without_old.tolist()):
        names.append(f"{name} (new)" if name in names else name)
    codes = (*olds, *range(olds[-1] + 1, olds[-1] + 1 + len(without_old)))
    colors = (*old_legend.colors, *Legend.of(codes).colors[len(olds) :])
    legend = Legend(codes, tuple(names), colors)
    matched_codes = [codes[position] for position in partner.tolist()]
    m = len(codes)
    pixels = np.zeros((m, m), np.int64)
    pixels[indices[0], partner[indices[1]]] = size[both]
    areas = None
    if table[0].square_meters is not None:
        areas = np.zeros((m, m))
        meters = np.array([row.square_meters for row in table], dtype=np.float64)
        areas[indices[0], partner[indices[1]]] = meters[both]
    transitions = _transitions(pixels)
    transition_number = {move: 1 + position for position, move in enumerate(transitions)}
    kinds = np.full(len(table), -1)
    ends = zip(indices[0].tolist(), partner[indices[1]].tolist(), strict=True)
    kinds[both] = [0 if a == b else transition_number[a, b] for a, b in ends]
    return Changes(
        by,
        legend,
        dict(zip(matched_codes, news, strict=True)),
        dict(zip(matched_codes, new_legend.names, strict=True)),
        pixels,
        areas,
        int(size[theirs < 0].sum()),
        int(size[mine < 0].sum()),
        _recoded(new, news, matched_codes, legend),
        _recoded(pair_map, of_pairs.tolist(), kinds.tolist(), _of_moves(transitions, legend)),
    )


def _pair(old: NDArray[Any], new: NDArray[Any]) -> Ints:
    for values in (old, new):
        if values.size and values.max() >= _BASE - 1:
            raise ValueError(f"A map must contain codes below {_BASE - 1}, got {values.max()}.")
    pairs = (old.astype(np.int64) + 1) * _BASE + (new.astype(np.int64) + 1)
    return np.where(pairs == 0, -1, pairs)


def _on_grid(old: LabelMap, new: LabelMap, resample: bool) -> LabelMap:
    """Return the new map on the grid and in the blocks of the old map."""
    differing = old.georeference.differences(new.georeference, whose="the first one's")
    if new.shape != old.shape:
        differing = [f"it has {new.shape} pixels, the first one {old.shape}", *differing]
    values = new.values
    if differing and not resample:
        raise ValueError(
            f"The second map lies elsewhere than the first: {'; '.join(differing)}. To resample it "
            "to the grid of the first map (nearest pixel), use --resample."
        )
    if differing:
        image = Image(values, (-1,), new.georeference)
        chunks = old.values.chunks
        on_old_grid = resampled("the second map", image, old.grid, chunks, to="the first map")
        values = on_old_grid.values
    return LabelMap(
        values.rechunk(old.values.chunks),
        names=new.names,
        colors=new.colors,
        position=old.georeference,
    )


def _way(old: LabelMap, new: LabelMap, one: Legend, other: Legend) -> str:
    if not old.names and not new.names:
        return "code"
    has_names = old.names and new.names and not (one.is_of_clusters or other.is_of_clusters)
    return "name" if has_names else "overlap"


def _partners(by: str, old_legend: Legend, new_legend: Legend, counts: Ints) -> Ints:
    """Return the index of the old class of each new class, -1 for none."""
    out = np.full(len(new_legend.codes), -1, np.int64)
    if by == "overlap":
        from scipy.optimize import linear_sum_assignment  # workers load this module, not that one

        rows, columns = linear_sum_assignment(counts, maximize=True)
        shared = counts[rows, columns] > 0
        out[columns[shared]] = rows[shared]
        return out
    mine: Sequence[Any] = old_legend.names if by == "name" else old_legend.codes
    theirs: Sequence[Any] = new_legend.names if by == "name" else new_legend.codes
    out[:] = (
        positions_of_names(mine, theirs)
        if by == "name"
        else [mine.index(code) if code in mine else -1 for code in theirs]
    )
    if (out < 0).all():
        raise ValueError(
            f"The maps have no class in common by {by}: {list(mine)[:10]} and "
            f"{list(theirs)[:10]}. Use --match overlap, or the same names."
        )
    return out


def _transitions(pixels: Ints) -> list[tuple[int, int]]:
    changed = pixels.copy()
    np.fill_diagonal(changed, 0)
    order = np.argsort(-changed, axis=None, kind="stable")[: np.count_nonzero(changed)]
    return list(
        zip(*(indices.tolist() for indices in np.unravel_index(order, changed.shape)), strict=True)
    )


def _recoded(
    label_map: LabelMap, keys: Sequence[int], values: Sequence[int], legend: Legend
) -> LabelMap:
    """Return a map whose ascending codes `keys` are replaced by `values`."""
    recoding = Legend.of(()).of_labels(np.array([-1, *keys]), np.array([-1, *values]))
    return LabelMap(
        recoding.encode(label_map.values),
        names=legend.by_code,
        colors=legend.color_by_code,
        position=label_map.georeference,
    )


def _of_moves(transitions: Sequence[tuple[int, int]], legend: Legend) -> Legend:
    """Return the legend of transitions, each with the color of its new class."""
    names = ["unchanged", *(f"{legend.names[a]} -> {legend.names[b]}" for a, b in transitions)]
    colors = [_SAME_COLOR, *(legend.colors[b] for _, b in transitions)]
    return Legend(tuple(range(len(names))), tuple(names), tuple(colors))

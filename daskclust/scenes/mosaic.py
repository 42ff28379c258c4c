"""One cube from many files: tiles of different coordinate systems, resolutions and dates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, get_args

from daskclust.config import check_choice
from daskclust.scenes._cube import Cube
from daskclust.scenes._opening import open_cube
from daskclust.scenes.mosaic_image import Overlap, Resampling, mosaic_image
from daskclust.scenes.mosaic_items import dates_of, read_items
from daskclust.scenes.mosaic_tiles import open_tiles


def open_mosaic(
    items: Any,
    *,
    time: Sequence[Any] | Literal["names", "datetime"] | None = None,
    assets: Sequence[str] | None = None,
    like: Any = None,
    crs: Any = None,
    resolution: float | tuple[float, float] | None = None,
    region: Sequence[float] | None = None,
    resampling: Resampling = "nearest",
    overlap: Overlap = "first",
    skip_damaged: bool = False,
    exclude_classes: Sequence[int] | None = None,
    **options: Any,
) -> Cube:
    """Open many files as one cube on one grid.

    Use it when a region is not one file: tiles in several coordinate systems, bands of several
    resolutions, or several dates.  No pixels are read.  Each block of the cube reads only the
    files that overlap with it.

    Parameters
    ----------
    items : iterable of items, or path or dict of STAC items
        Tiles of the mosaic.  A path is that of a STAC item collection (.json, .geojson) or of a
        stac-geoparquet file (.parquet).  An item is

        - a path or URL of a raster file,
        - a DataArray with a coordinate system, as ``rioxarray.open_rasterio`` returns it,
        - a Sentinel-2 SAFE folder, its zip file, or an EOPF Zarr store,
        - the folder of a TESSERA tile,
        - a list of these, whose bands are joined; their resolutions may differ, and their order
          must be the same in all items,
        - a STAC item (of pystac, or a dict); `assets` names its bands.
    time : sequence, "names" or "datetime", optional
        Date of each item.  ``"names"`` reads the date in the name of a Sentinel-2 product, else the
        year in the name of a folder, such as ``2024/tile.tif``.  ``"datetime"`` takes the days
        (UTC) of STAC items.  The items of a date form one mosaic.  The bands of all dates, in
        ascending order, are the features.
    assets : sequence of str, optional
        Names of the assets of STAC items that are bands, or of the bands of Sentinel-2 products,
        such as ``["B02", "B8A"]``.  Default: all bands of a product.
    like : Cube, DataArray, GeoBox or path, optional
        Object with the target grid.
    crs : str, int or object, optional
        Coordinate system of the target grid.  Default: the one that most pixels have.
    resolution : float or (float, float), optional
        Width and height of a pixel in units of `crs`.  Default: the resolution that most pixels
        of the coordinate system have.
    region : (left, bottom, right, top), optional
        Bounds of the target grid in `crs`.  Default: bounds of all tiles.
    resampling : {"nearest", "bilinear", "cubic", "average"}, default="nearest"
        Method by which tiles of another grid are resampled.
    overlap : {"first", "last", "mean"}, default="first"
        Value of a pixel in several tiles.

        - ``"first"``, ``"last"``: the first or last item that has data there.
        - ``"mean"``: mean of the items that have data there.
    skip_damaged : bool, default=False
        If True, items with files that cannot be opened are left out, with a warning.  A date of
        which all items are left out is an error.
    exclude_classes : sequence of int, optional
        Classes of the scene classification (SCL) of Sentinel-2 L2A products whose pixels are
        missing in the item.  Default: 0, 1, 3, 8, 9 and 10 (no data, saturated, cloud shadow,
        clouds, cirrus); () keeps all.
    **options
        Further options of :func:`open_cube`, such as ``scale`` or ``wavelengths``.

    Returns
    -------
    Cube

    Raises
    ------
    ValueError
        If there are no tiles, or a tile has no coordinate system.  If the numbers or names of bands
        differ between items.  If a field of a STAC item is invalid.  If the grid is outside all
        tiles, crosses the antimeridian or has more than 1e11 pixels.  If codes of AlphaEarth would
        be averaged.  If a scene classification does not cover the bands.
    OSError
        If a file cannot be opened.  Tasks raise it if a file cannot be read.

    See Also
    --------
    open_cube : One file, or the bands of one place.

    Notes
    -----
    Missing values of each file (``nodata``, masks, alpha bands) are missing in the cube.  Stored
    integers are kept if all tiles have the same type, nodata value, scale and offset.  Otherwise,
    values are decoded to float32 (float64 for more than 16 bits).

    STAC items that state ``proj:code`` (or ``proj:epsg``), ``proj:transform`` and ``proj:shape``
    are not opened.  ``raster:bands`` (or ``bands``) state types, missing values, scales and
    offsets.  If they do not state type and missing value, one file of each asset is opened, and its
    metadata are used for the other files.  Reading a file that differs from its item is an error.

    Bands of Sentinel-2 have their finest resolution, and the scale and offsets that the metadata
    of the product state: products before and after processing baseline 04.00 can be mixed.  The
    classification is resampled by nearest neighbor.  Tiles of AlphaEarth are recognized by their
    bands ``A00`` to ``A63`` and their nodata value, as in :func:`open_cube`.  Their rows may run
    from south to north.  Pass ``quantization="alphaearth"`` if the names are missing.

    Reprojection is GDAL's without approximation, so that values do not depend on blocks.  Near
    the border of a tile, resampling uses the pixels of this tile only.

    Examples
    --------
    >>> import numpy as np, rasterio, tempfile, os
    >>> folder = tempfile.mkdtemp()
    >>> for i in range(2):
    ...     grid = rasterio.transform.from_origin(500_000 + 40 * i, 5_100_000, 10, 10)
    ...     with rasterio.open(
    ...         os.path.join(folder, f"{i}.tif"), "w", driver="GTiff", width=4, height=4, count=2,
    ...         dtype="uint8", crs="EPSG:32633", transform=grid, nodata=0,
    ...     ) as file:
    ...         file.write(np.full((2, 4, 4), i + 1, np.uint8))
    >>> import daskclust
    >>> cube = daskclust.open_mosaic(sorted(os.scandir(folder), key=lambda entry: entry.name))
    >>> cube.shape
    (4, 8, 2)
    """
    check_choice(resampling, "resampling", get_args(Resampling))
    check_choice(overlap, "overlap", get_args(Overlap))
    listed = read_items(items)
    dates = None if time is None else dates_of(listed, time)
    opened = open_tiles(listed, assets, skip_damaged)
    image, cube_items = mosaic_image(
        opened, (like, crs, resolution, region), dates, resampling, overlap, exclude_classes
    )
    cube = open_cube(image, **options)
    cube.item_names = {number: tiles[0].shown for number, tiles in opened}
    cube.items = cube_items
    return cube

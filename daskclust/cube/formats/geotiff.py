"""Maps as GeoTIFF: cloud-optimized, with color table, class names, nodata and coordinate system."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daskclust.cube.formats.found import needs_extra
from daskclust.cube.formats.vector import PixelGrid

__all__ = ["write_cog"]

_TILE = 512
#: GDAL's color tables belong to bytes and 16-bit numbers without sign.
_MOST_COLORS = 2**16 - 1
#: Where GDAL keeps what a GeoTIFF has no place for.
_BESIDE = ".aux.xml"
Block = tuple[slice, slice, NDArray[Any]]


def write_cog(
    path: str | os.PathLike[str],
    blocks: Iterable[Block],
    grid: PixelGrid,
    *,
    dtype: Any,
    count: int = 1,
    nodata: float,
    class_names: Mapping[int, str] | None = None,
    colors: Mapping[int, Sequence[int]] | None = None,
    tags: Mapping[str, str] | None = None,
    band_names: Sequence[str] | None = None,
    check: Callable[[], None] | None = None,
) -> None:
    """Write a map as a cloud-optimized GeoTIFF that is whole or absent.

    Parameters
    ----------
    path : str or path
        Of the file; it must not exist.
    blocks : iterable of (rows, columns, values)
        Disjoint windows that together cover the image; values of shape (rows, columns)
        or (bands, rows, columns).
    grid : PixelGrid
    dtype : dtype
        Of the file.
    count : int, default=1
        Bands.
    nodata : float
    class_names : mapping of int to str, optional
        Written as the raster's categories, which GIS show as a legend.
    colors : mapping of int to (red, green, blue), optional
        Color table; only for bytes and 16-bit numbers.
    tags : mapping of str to str, optional
        More metadata of the file.
    band_names : sequence of str, optional
    check : callable(), optional
        Called before the file gets its name; raises where the map must not be kept.

    Notes
    -----
    Memory: one block, and GDAL's cache.  A plain tiled GeoTIFF is written beside the
    target first, then copied by GDAL's COG driver, which adds overviews (nearest
    neighbor for classes).
    """
    with needs_extra(f"{str(path)!r}"):
        import rasterio
        from affine import Affine
        from rasterio.shutil import copy
        from rasterio.windows import Window
    target = Path(path)
    plain = target.with_name(f".{target.name}.{uuid.uuid4().hex}.partial.tif")
    whole = target.with_name(f".{target.name}.{uuid.uuid4().hex}.partial")
    profile: dict[str, Any] = {
        "driver": "GTiff",
        "height": grid.shape[0],
        "width": grid.shape[1],
        "count": count,
        "dtype": np.dtype(dtype).name,
        "nodata": nodata,
        "tiled": True,
        "blockxsize": _TILE,
        "blockysize": _TILE,
        "compress": "deflate",
        "bigtiff": "if_safer",
        "interleave": "band",
    }
    if grid.crs is not None:
        profile["crs"] = grid.crs
        profile["transform"] = Affine(*grid.transform)
    try:
        with rasterio.open(plain, "w", **profile) as file:
            for rows, cols, values in blocks:
                window = Window.from_slices(rows, cols)
                if values.ndim == 2:
                    file.write(values.astype(dtype, copy=False), 1, window=window)
                else:
                    file.write(values.astype(dtype, copy=False), window=window)
            file.update_tags(**dict(tags or {}))
            for number, name in enumerate(band_names or (), start=1):
                file.set_band_description(number, name)
            if colors and max(colors) <= _MOST_COLORS and np.dtype(dtype).kind == "u":
                file.write_colormap(1, {int(k): (*map(int, c[:3]), 255) for k, c in colors.items()})
        if class_names:
            _write_categories(plain, class_names)
        kind = "nearest" if np.dtype(dtype).kind in "iu" else "average"
        copy(
            str(plain),
            str(whole),
            driver="COG",
            COMPRESS="DEFLATE",
            BLOCKSIZE=_TILE,
            OVERVIEW_RESAMPLING=kind,
            BIGTIFF="IF_SAFER",
        )
        if check is not None:
            check()
        categories = whole.with_name(whole.name + _BESIDE)
        if categories.exists():
            # First, so that a map is never there without its classes.
            categories.replace(target.with_name(target.name + _BESIDE))
        whole.replace(target)
    finally:
        for scratch in (plain, whole):
            for left in scratch.parent.glob(scratch.name + "*"):
                left.unlink(missing_ok=True)


def _write_categories(path: Path, names: Mapping[int, str]) -> None:
    """Name the values 0, 1, ... of a GeoTIFF, as GDAL keeps categories: beside the file.

    GDAL writes category names of a GeoTIFF to an ``.aux.xml``; the COG driver copies
    them along.
    """
    from xml.sax.saxutils import escape

    highest = max(names)
    rows = "".join(
        f"      <Category>{escape(names.get(code, ''))}</Category>\n" for code in range(highest + 1)
    )
    path.with_name(path.name + _BESIDE).write_text(
        '<PAMDataset>\n  <PAMRasterBand band="1">\n    <CategoryNames>\n'
        f"{rows}    </CategoryNames>\n  </PAMRasterBand>\n</PAMDataset>\n",
        encoding="utf-8",
    )

"""Maps as GeoTIFF: cloud-optimized, with color table, class names, nodata and coordinate system."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from daskclust._types import Array
from daskclust.cube.formats.found import maybe_unplaced, needs_extra
from daskclust.cube.formats.vector import PixelGrid
from daskclust.storage.atomic import hidden_sibling, naming, put_in_place, remove_stale
from daskclust.storage.urls import redact

__all__ = ["GEOTIFF_ENDINGS", "MARK", "Legend", "check_cog", "is_geotiff", "tags_of", "write_cog"]

_TILE = 512
#: GDAL's color tables belong to bytes and 16-bit numbers without sign.
_MOST_COLORS = 2**16 - 1
#: Where GDAL keeps what a GeoTIFF has no place for.
_BESIDE = ".aux.xml"
Block = tuple[slice, slice, Array]
#: Endings of names that ask for a GeoTIFF.
GEOTIFF_ENDINGS = (".tif", ".tiff")
#: Tag of the files that daskclust writes: what they are.
MARK = "daskclust"


@dataclass(frozen=True)
class Legend:
    """What the values of a map mean.

    Attributes
    ----------
    names : mapping of int to str
        Written as the raster's categories, which GIS show as a legend.
    colors : mapping of int to (red, green, blue)
        Color table; only for bytes and 16-bit numbers.
    """

    names: Mapping[int, str] = field(default_factory=dict)
    colors: Mapping[int, Sequence[int]] = field(default_factory=dict)


def is_geotiff(path: object) -> bool:
    """Whether a target is a GeoTIFF by the ending of its name.

    Examples
    --------
    >>> is_geotiff("map.tif"), is_geotiff("map.zarr")
    (True, False)
    """
    return isinstance(path, str | os.PathLike) and os.fspath(path).lower().endswith(GEOTIFF_ENDINGS)


def tags_of(path: str | os.PathLike[str]) -> dict[str, str] | None:
    """Return the tags of a file that daskclust has written; None for anything else."""
    with needs_extra(f"{str(path)!r}"):
        import rasterio
    try:
        with maybe_unplaced(), rasterio.open(path) as file:
            tags: dict[str, str] = file.tags()
    except rasterio.errors.RasterioIOError:
        return None
    return tags if MARK in tags else None


def check_cog(path: str | os.PathLike[str], *, kind: str, overwrite: bool) -> None:
    """Refuse a target that exists, unless it is a map of daskclust that may be replaced.

    Raises
    ------
    FileExistsError
    ValueError
        The target is a URL.
    """
    name = os.fspath(path)
    if "://" in name:
        raise ValueError(f"{redact(name)!r} is a URL; a GeoTIFF is written to a local path.")
    with needs_extra(f"{name!r}"):
        import rasterio  # noqa: F401
    if not Path(name).exists():
        return
    if not overwrite:
        raise FileExistsError(
            f"{name!r} exists already; choose another name or pass overwrite=True (--overwrite)."
        )
    tags = tags_of(name) if Path(name).is_file() else None
    if tags is None or tags[MARK] != kind:
        what = "was not written by daskclust" if tags is None else f"is a {tags[MARK]}"
        raise FileExistsError(
            f"{name!r} {what}; overwrite replaces a {kind} written by daskclust only. Choose "
            "another name, or remove it yourself."
        )


def write_cog(
    path: str | os.PathLike[str],
    blocks: Iterable[Block],
    grid: PixelGrid,
    *,
    dtype: Any,
    count: int = 1,
    nodata: float,
    legend: Callable[[], Legend] | None = None,
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
    legend : callable() -> Legend, optional
        Called when all blocks are written: what their values mean.
    tags : mapping of str to str, optional
        More metadata of the file.
    band_names : sequence of str, optional
    check : callable(), optional
        Called before the file gets its name; raises where the map must not be kept.

    Raises
    ------
    OSError
        The file cannot be written, such as on a disk that is full.

    Notes
    -----
    Memory: one block, and GDAL's cache.  A plain tiled GeoTIFF is written beside the
    target first, then copied by GDAL's COG driver, which adds overviews (nearest
    neighbor for classes).  GDAL forgets errors of its cache: the copy is read again, and
    compared with what was written by a checksum of each block.
    """
    with needs_extra(f"{str(path)!r}"):
        import rasterio
        from affine import Affine
        from rasterio.shutil import copy
        from rasterio.windows import Window
    target = Path(path)
    plain, whole = hidden_sibling(target, "partial"), hidden_sibling(target, "partial")
    written: list[tuple[Any, int]] = []
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
        with _errors_of_writing(path), maybe_unplaced():
            opened = rasterio.open(plain, "w", **profile)
        with _errors_of_writing(path), opened as file:
            for rows, cols, values in blocks:
                window = Window.from_slices(rows, cols)
                bands = (values if values.ndim == 3 else values[None]).astype(dtype, copy=False)
                file.write(bands, window=window)
                written.append((window, _checksum(bands)))
            file.update_tags(**dict(tags or {}))
            for number, name in enumerate(band_names or (), start=1):
                file.set_band_description(number, name)
            said = Legend() if legend is None else legend()
            names, colors = said.names, said.colors
            if names:
                file.update_tags(
                    1,
                    flag_values=",".join(map(str, names)),
                    flag_meanings=" ".join("_".join(name.split()) for name in names.values()),
                )
            if colors and max(colors) <= _MOST_COLORS and np.dtype(dtype).kind == "u":
                file.write_colormap(1, {int(k): (*map(int, c[:3]), 255) for k, c in colors.items()})
        if names and 0 <= min(names) and max(names) <= _MOST_COLORS:
            with naming(target):
                _write_categories(plain, names)
        kind = "nearest" if np.dtype(dtype).kind in "iu" else "average"
        with _errors_of_writing(path), maybe_unplaced():
            copy(
                str(plain),
                str(whole),
                driver="COG",
                COMPRESS="DEFLATE",
                BLOCKSIZE=_TILE,
                OVERVIEW_RESAMPLING=kind,
                BIGTIFF="IF_SAFER",
            )
            with rasterio.open(whole) as file:
                if any(_checksum(file.read(window=at)) != value for at, value in written):
                    raise _unwritten(path, "it does not hold what was written to it")
        if check is not None:
            check()
        categories = whole.with_name(whole.name + _BESIDE)
        if categories.exists():
            # First, so that a map is never there without its classes.
            categories.replace(target.with_name(target.name + _BESIDE))
        put_in_place(whole, target)
        remove_stale(target)
    finally:
        for scratch in (plain, whole):
            for left in scratch.parent.glob(scratch.name + "*"):
                left.unlink(missing_ok=True)


def _checksum(bands: Array) -> int:
    return zlib.crc32(np.ascontiguousarray(bands).data)


@contextmanager
def _errors_of_writing(path: str | os.PathLike[str]) -> Iterator[None]:
    """Let errors of GDAL, some of which are no public classes, say what could not be written."""
    try:
        yield
    except Exception as error:
        if type(error).__module__.split(".")[0] != "rasterio":
            raise
        raise _unwritten(path, str(error)) from error


def _unwritten(path: str | os.PathLike[str], why: str) -> OSError:
    return OSError(f"{redact(path)!r} could not be written: {why}. Is there room on the disk?")


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

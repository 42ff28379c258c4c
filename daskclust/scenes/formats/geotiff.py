"""Maps as GeoTIFF: cloud-optimized, with color table, class names, nodata and coordinate system."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from daskclust.colors import Legend
from daskclust.core.array_types import Array
from daskclust.core.storage.atomic_write import hidden_sibling
from daskclust.core.storage.outputs import JOB, Group, Output, Written, json_text
from daskclust.core.storage.redact import redact, redact_all
from daskclust.scenes._georeference import IDENTITY, PixelGrid
from daskclust.scenes.formats.format_detection import maybe_unplaced, needs_extra

_TILE = 512
#: Largest code with a color: GDAL supports color tables for unsigned 8-bit and 16-bit integers.
_MAX_COLOR = 2**16 - 1
#: Suffix of the file in which GDAL stores metadata that GeoTIFF does not support.
_METADATA_SUFFIX = ".aux.xml"
#: Suffixes of GeoTIFF files.
GEOTIFF_ENDINGS = (".tif", ".tiff")
#: Tag of the files that daskclust writes, with the kind of the file.
_MARK = "daskclust"
#: Kinds of maps.
LABEL_MAP, VALUE_MAP = "label map", "map of values"


def is_geotiff(path: object) -> bool:
    """Return True if a target has the suffix of a GeoTIFF.

    >>> is_geotiff("map.tif"), is_geotiff("map.zarr")
    (True, False)
    """
    return isinstance(path, str | os.PathLike) and os.fspath(path).lower().endswith(GEOTIFF_ENDINGS)


class GeoTiff(Output):
    """A cloud-optimized GeoTIFF with a tag of daskclust."""

    def check_location(self) -> None:
        """Raise an error for URLs, and if rasterio is missing."""
        if "://" in os.fspath(self.location):
            raise ValueError(
                f"{redact(self.location)!r} is a URL; a GeoTIFF is written to a local path."
            )
        with needs_extra(f"{os.fspath(self.location)!r}"):
            import rasterio  # noqa: F401

    def written(self) -> Written | None:
        """Return the tags of the file; the job is stored as JSON."""
        with needs_extra(f"{str(self.location)!r}"):
            import rasterio
        if self.path is None or not self.path.is_file():
            return None
        try:
            with maybe_unplaced(), rasterio.open(self.path) as file:
                tags: dict[str, Any] = file.tags()
        except rasterio.errors.RasterioIOError:
            return None
        if _MARK not in tags:
            return None
        return Written(tags[_MARK], {**tags, JOB: json.loads(tags.get(JOB, "null"))})


def map_at(location: Any, kind: str, *, overwrite: bool = False) -> Output:
    """Return the output of a map: a GeoTIFF if its name has such a suffix, else a Zarr group.

    >>> type(map_at("map.tif", "label map")).__name__, type(map_at("map", "label map")).__name__
    ('GeoTiff', 'Group')
    """
    return (GeoTiff if is_geotiff(location) else Group)(location, kind, overwrite=overwrite)


def environment() -> AbstractContextManager[Any]:
    """Return the context of GDAL for files that are open at the same time."""
    import rasterio

    env: AbstractContextManager[Any] = rasterio.Env()
    return env


def write_cog(
    output: GeoTiff,
    windows: Iterable[tuple[slice, slice]],
    grid: PixelGrid,
    *,
    dtype: Any,
    count: int = 1,
    nodata: float,
    legend: Callable[[], Legend] | None = None,
    attributes: Mapping[str, Any] | None = None,
    band_names: Sequence[str] | None = None,
    check: Callable[[], None] | None = None,
) -> Generator[None, Array, Path]:
    """Write a map atomically as a cloud-optimized GeoTIFF; a generator.

    `windows` (rows, columns) are disjoint and cover the image.  The generator receives the values
    of each window, of shape (rows, columns) or (bands, rows, columns), and returns the path.
    `legend` is called when all blocks are written.  `check` is called before the file gets its
    name; it raises an error if the map must not be written.  `attributes` are stored as tags, as
    text or JSON, without credentials in URLs.  Their ``long_name`` names a single band of numbers.

    Memory: one block, and GDAL's cache.  A tiled GeoTIFF is first written next to the target.  Then
    GDAL's COG driver copies it and adds overviews (nearest neighbor for classes).  GDAL ignores
    errors of its cache, so the copy is read again and compared by a checksum of each block.
    """
    import rasterio
    from affine import Affine
    from rasterio.shutil import copy
    from rasterio.windows import Window

    target = Path(output.location)
    plain = hidden_sibling(target, "partial")
    checksums: list[tuple[Any, int]] = []
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
    if grid.crs is not None or grid.transform != IDENTITY:
        # The transform may be known without a coordinate system.
        profile["transform"] = Affine(*grid.transform)
    stored = redact_all(dict(attributes or {}))
    texts = {k: v if isinstance(v, str) else json_text(v) for k, v in stored.items()}
    tags = {_MARK: output.kind, **texts}
    if band_names is None and legend is None and count == 1 and "long_name" in texts:
        band_names = [texts["long_name"]]
    with output.new() as scratch_file:
        try:
            with _errors_of_writing(target), maybe_unplaced():
                opened = rasterio.open(plain, "w", **profile)
            with _errors_of_writing(target), opened as file:
                for rows, cols in windows:
                    values = yield
                    window = Window.from_slices(rows, cols)
                    bands = (values if values.ndim == 3 else values[None]).astype(dtype, copy=False)
                    file.write(bands, window=window)
                    checksums.append((window, _checksum(bands)))
                file.update_tags(**tags)
                for number, name in enumerate(band_names or (), start=1):
                    file.set_band_description(number, name)
                drawn_legend = Legend((), (), ()) if legend is None else legend()
                names = drawn_legend.by_code
                if names:
                    file.update_tags(
                        1,
                        flag_values=",".join(map(str, names)),
                        flag_meanings=" ".join("_".join(name.split()) for name in names.values()),
                        # Unchanged names: meanings have no blanks, so two names may become equal.
                        class_names=json.dumps({str(code): name for code, name in names.items()}),
                    )
                if names and max(names) <= _MAX_COLOR and np.dtype(dtype).kind == "u":
                    colors = drawn_legend.color_by_code.items()
                    table = {code: (*bytes.fromhex(color[1:]), 255) for code, color in colors}
                    file.write_colormap(1, table)
            if names and 0 <= min(names) and max(names) <= _MAX_COLOR:
                _write_categories(plain, names)
            kind = "nearest" if np.dtype(dtype).kind in "iu" else "average"
            with _errors_of_writing(target), maybe_unplaced():
                copy(
                    str(plain),
                    str(scratch_file),
                    driver="COG",
                    COMPRESS="DEFLATE",
                    BLOCKSIZE=_TILE,
                    OVERVIEW_RESAMPLING=kind,
                    BIGTIFF="IF_SAFER",
                )
                with rasterio.open(scratch_file) as file:
                    if any(_checksum(file.read(window=at)) != value for at, value in checksums):
                        raise _unwritten(target, "its content differs from the written values")
            if check is not None:
                check()
            # Another program may have written a map; its categories must stay.
            output.check()
            categories = scratch_file.with_name(scratch_file.name + _METADATA_SUFFIX)
            old_categories = target.with_name(target.name + _METADATA_SUFFIX)
            if categories.exists():
                # The categories are written before the map, so that a map always has its classes.
                categories.replace(old_categories)
            else:
                # Remove the categories of the replaced map.
                old_categories.unlink(missing_ok=True)
        finally:
            for scratch in (plain.name, scratch_file.name + _METADATA_SUFFIX):
                for rest in scratch_file.parent.glob(scratch + "*"):
                    rest.unlink(missing_ok=True)
    return target


def _checksum(bands: Array) -> int:
    return zlib.crc32(np.ascontiguousarray(bands).data)


@contextmanager
def _errors_of_writing(path: str | os.PathLike[str]) -> Iterator[None]:
    """Name the file in errors of GDAL, some of whose classes are private."""
    try:
        yield
    except Exception as error:
        if type(error).__module__.split(".")[0] != "rasterio":
            raise
        raise _unwritten(path, str(error)) from error


def _unwritten(path: str | os.PathLike[str], reason: str) -> OSError:
    return OSError(
        f"{redact(path)!r} could not be written: {reason}. Check that the disk is not full."
    )


def _write_categories(path: Path, names: Mapping[int, str]) -> None:
    """Write names of the values 0, 1, ... of a GeoTIFF to a second file, like GDAL.

    The COG driver copies the second file.
    """
    from xml.sax.saxutils import escape

    highest = max(names)
    rows = "".join(
        f"      <Category>{escape(names.get(code, ''))}</Category>\n" for code in range(highest + 1)
    )
    path.with_name(path.name + _METADATA_SUFFIX).write_text(
        '<PAMDataset>\n  <PAMRasterBand band="1">\n    <CategoryNames>\n'
        f"{rows}    </CategoryNames>\n  </PAMRasterBand>\n</PAMDataset>\n",
        encoding="utf-8",
    )

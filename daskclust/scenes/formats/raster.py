"""GeoTIFF, COG, VRT, ENVI and other formats of GDAL, by rasterio and rioxarray."""

from __future__ import annotations

import errno
import html
import os
import re
import zipfile
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
from dask.base import tokenize

from daskclust.core.storage.redact import redact
from daskclust.core.storage.retry import Retries, patience_of_gdal, reason_of
from daskclust.core.storage.stored_array import SeenFiles
from daskclust.core.storage.stores import opening_errors
from daskclust.core.warn import warn
from daskclust.exceptions import DaskclustWarning
from daskclust.scenes._georeference import Coordinate, Described
from daskclust.scenes.bands import in_descriptions, in_nm, truth_values
from daskclust.scenes.formats.format_detection import (
    BAD_BANDS,
    BAND_NAMES,
    NODATA_OF_BANDS,
    block_of,
    maybe_unplaced,
    needs_extra,
)

#: Maximum number of blocks of a file whose position is checked.
_CHECKED_BLOCKS = 2000
#: Keys by which an ENVI header states the layout of the pixels; without them GDAL would guess.
_ENVI_NEEDS = ("samples", "lines", "bands", "data type", "interleave")


def check_whole(file: Any, name: str) -> None:
    """Raise OSError for a truncated local file, if its driver returns the positions of pixels.

    At most ``_CHECKED_BLOCKS`` entries of the file's table of blocks are read, and no pixels.
    """
    if not Path(name).is_file():
        return
    size = Path(name).stat().st_size
    if file.driver in ("GTiff", "COG"):
        ends = _ends_of_blocks(file)
    elif file.driver == "ENVI":
        _check_envi_header([Path(part) for part in file.files])
        if file.tags(ns="ENVI").get("file_compression", "0") != "0":
            return
        pixels = file.count * file.height * file.width * np.dtype(file.dtypes[0]).itemsize
        ends = int(file.tags(ns="ENVI").get("header_offset", 0)) + pixels
    else:
        return
    if ends > size:
        raise OSError(
            f"{name!r} is cut off: it has {size} bytes, and pixels lie up to byte {ends}. Copy or "
            "download it again."
        )


def _ends_of_blocks(file: Any) -> int:
    """Return the end of the last block of a GeoTIFF in bytes, among the checked blocks."""
    height, width = file.block_shapes[0]
    down, across = -(-file.height // height), -(-file.width // width)
    # With pixel interleaving, all bands are in the same blocks.
    is_by_band = file.tags(ns="IMAGE_STRUCTURE").get("INTERLEAVE") != "PIXEL"
    bands = file.count if is_by_band else 1
    total = bands * down * across
    ends = 0
    for block in np.unique(np.linspace(0, total - 1, min(total, _CHECKED_BLOCKS)).astype(np.int64)):
        band, block_of_band = divmod(int(block), down * across)
        y, x = divmod(block_of_band, across)
        keys = f"BLOCK_OFFSET_{x}_{y}", f"BLOCK_SIZE_{x}_{y}"
        tag_values = [file.get_tag_item(key, "TIFF", bidx=band + 1) for key in keys]
        if None not in tag_values:  # a block without data is not stored
            ends = max(ends, sum(int(value) for value in tag_values))
    return ends


def _check_envi_header(files: list[Path]) -> None:
    """Raise OSError for a header without the layout of the pixels, which would be misread."""
    for header in files:
        if header.suffix.lower() != ".hdr":
            continue
        text = header.read_text(encoding="utf-8", errors="replace")
        stated = {line.split("=")[0].strip().lower() for line in text.splitlines() if "=" in line}
        missing = [key for key in _ENVI_NEEDS if key not in stated]
        if missing or text.count("{") > text.count("}"):
            problem = f"it lacks {', '.join(missing)}" if missing else "a brace is not closed"
            raise OSError(
                f"The ENVI header {str(header)!r} is incomplete: {problem}. Copy or download it "
                "again."
            )


_ENVI_DATA = ("", ".img", ".dat", ".bsq", ".bil", ".bip", ".raw", ".bin")
#: Files of a zipped store, and suffixes of images that are read from archives.
_ZARR = (".zarray", ".zgroup", ".zmetadata", "zarr.json")
_ZIPPED = (".tif", ".tiff", ".jp2")
#: Maximum bytes of GDAL's cache of decoded blocks in a process.
_CACHE_BYTES = 2**26
#: Suffix of the files in which GDAL stores further metadata, and maximum number of bytes read.
_METADATA_SUFFIX, _MAX_METADATA = ".aux.xml", 2**24
_CENTER_UM = "CENTRAL_WAVELENGTH_UM"
_WAVELENGTH_TAGS = ("wavelength", "WAVELENGTH", "Wavelength", "center_wavelength")
_UNIT_TAGS = ("wavelength_units", "wavelength_unit", "WAVELENGTH_UNITS", "wavelength units")


def envi_data_file(header: Path) -> Path:
    """Return the data file of an ENVI header."""
    stem = header.with_suffix("")
    for suffix in _ENVI_DATA:
        file = stem.with_name(stem.name + suffix)
        if file.is_file():
            return file
    raise FileNotFoundError(
        f"The ENVI header {str(header)!r} must have a data file next to it, {stem.name!r} alone "
        f"or with one of the endings {', '.join(_ENVI_DATA[1:])}, got none."
    )


def zipped_image(name: str) -> str | None:
    """Return the only image in a local zip file; None for other files, such as a zipped store.

    Raise ValueError if an archive contains several images, or neither an image nor a Zarr store.
    """
    if not name.lower().endswith(".zip") or not zipfile.is_zipfile(name):
        return None
    with opening_errors(name), zipfile.ZipFile(name) as file:
        members = [member for member in file.namelist() if not member.endswith("/")]
    if any(Path(member).name in _ZARR for member in members):
        return None
    images = [member for member in members if member.lower().endswith(_ZIPPED)]
    if len(images) == 1:
        return images[0]
    shown = ", ".join(members[:4]) + (", ..." if len(members) > 4 else "")
    raise ValueError(
        f"{name!r} must contain a Zarr store or one file {' or '.join(_ZIPPED)}, got "
        f"{len(images)} images and no Zarr store ({shown}). Unpack it first."
    )


def _centers(file: Any) -> Any:
    n = file.count
    envi = file.tags(ns="ENVI")
    centers = in_nm(envi.get("wavelength"), envi.get("wavelength_units"), n)
    if centers is not None:
        return centers
    tags = [file.tags(i + 1) for i in range(n)]
    imagery = [file.tags(i + 1, ns="IMAGERY").get(_CENTER_UM) for i in range(n)]
    if None not in imagery:
        return in_nm(imagery, "um", n)
    dataset = file.tags()
    for name in _WAVELENGTH_TAGS:
        stated = [tag.get(name) for tag in tags]
        units = {next((tag[u] for u in _UNIT_TAGS if u in tag), None) for tag in (*tags, dataset)}
        # For ENVI headers with an unknown unit, GDAL gives bands numbers without a unit.
        stated_units = {unit for unit in units if unit} or {envi.get("wavelength_units")}
        values = stated if None not in stated else dataset.get(name)
        centers = (
            None
            if values is None or len(stated_units) > 1
            else in_nm(values, stated_units.pop(), n)
        )
        if centers is not None:
            return centers
    return in_descriptions(file.descriptions)


def _common_or_all(values: Sequence[Any]) -> Any:
    """Return the common value if all values are equal."""
    return values[0] if len({repr(value) for value in values}) == 1 else list(values)


def _attributes(file: Any) -> dict[str, Any]:
    """Return the attributes of the values of a file, by band if they differ."""
    from rasterio.enums import ColorInterp

    n = file.count
    attributes: dict[str, Any] = {}
    if len(set(map(repr, file.nodatavals))) > 1:
        nodata = file.nodatavals
        attributes[NODATA_OF_BANDS] = [[] if value is None else [value] for value in nodata]
    elif file.nodatavals[0] is not None:
        attributes["_FillValue"] = file.nodatavals[0]
    if any(scale != 1.0 for scale in file.scales):
        attributes["scale_factor"] = _common_or_all(file.scales)
    if any(offset != 0.0 for offset in file.offsets):
        attributes["add_offset"] = _common_or_all(file.offsets)
    is_good = truth_values(file.tags(ns="ENVI").get("bbl"), n)
    if is_good is not None:
        attributes[BAD_BANDS] = (~is_good).tolist()
    if file.units[0] and len(set(file.units)) == 1:
        attributes["units"] = file.units[0]
    if any(file.descriptions):
        attributes[BAND_NAMES] = [name or "" for name in file.descriptions]
    if n == 1:
        with suppress(ValueError):  # the file has no color table
            table = file.colormap(1)
            attributes["flag_colors"] = {
                str(code): list(color[:3]) for code, color in table.items()
            }
    alpha = [kind == ColorInterp.alpha for kind in file.colorinterp]
    if any(alpha) and not all(alpha):
        # Hidden pixels are masked; the mask itself is not a feature.
        bad_bands = attributes.get(BAD_BANDS, [False] * n)
        attributes[BAD_BANDS] = [bad or hides for bad, hides in zip(bad_bands, alpha, strict=True)]
    # Other programs write the tags of a single band for the whole file.
    tags = {**(file.tags() if n == 1 else {}), **file.tags(1)}
    if "class_names" in tags:
        attributes["class_names"] = tags["class_names"]
    elif (categories := _categories(file)) is not None:
        attributes["class_names"] = categories
    names = tags.get("flag_meanings"), tags.get("flag_values")
    if all(names):
        attributes["flag_meanings"], attributes["flag_values"] = names
    return attributes


def _categories(file: Any) -> dict[str, str] | None:
    """Return the category names of a file of one band, by value, from its metadata file."""
    metadata_file = Path(f"{file.name}{_METADATA_SUFFIX}")
    if (
        file.count != 1
        or not metadata_file.is_file()
        or metadata_file.stat().st_size > _MAX_METADATA
    ):
        return None
    text = metadata_file.read_text(encoding="utf-8", errors="replace")
    match = re.search("<CategoryNames>(.*?)</CategoryNames>", text, flags=re.DOTALL)
    if match is None:
        return None
    names = re.findall("<Category>(.*?)</Category>|<Category */>", match[1], flags=re.DOTALL)
    categories = {str(code): html.unescape(name).strip() for code, name in enumerate(names)}
    return {code: name for code, name in categories.items() if name} or None


def open_raster(path: str | os.PathLike[str]) -> Described:
    """Open a raster file as a lazy, undecoded image (band, y, x).

    `path` is a file that GDAL reads, the header of an ENVI file, or a URL for GDAL. Chunks are
    multiples of the file's own blocks, with all bands.
    """
    with needs_extra(f"{str(path)!r}"):
        import rasterio  # noqa: F401
        import rioxarray  # noqa: F401
    name = str(path)
    if name.lower().endswith(".hdr") and Path(name).is_file():
        name = str(envi_data_file(Path(name)))
    inside = zipped_image(name)
    if inside is not None:
        # GDAL's name of a file in an archive.
        name = f"zip://{Path(name).absolute()}!/{inside}"
    with patience_of_gdal(Retries.configured().timeout), maybe_unplaced():
        return _open(name, redact(name))


def _open(name: str, shown: str) -> Described:
    import rasterio
    import rioxarray
    from rasterio.enums import MaskFlags

    try:
        with rasterio.open(name) as file:
            if file.count == 0 and file.subdatasets:
                raise ValueError(
                    f"{shown!r} must have bands at its top level, got {len(file.subdatasets)} "
                    f"images below it. Open one of them, such as {redact(file.subdatasets[0])!r}."
                )
            if file.dtypes and len(set(file.dtypes)) > 1:
                raise ValueError(
                    f"The bands of {shown!r} must have one data type, got "
                    f"{sorted(set(file.dtypes))}. Convert them with gdal_translate -ot."
                )
            attributes = _attributes(file)
            centers = _centers(file)
            dtype = np.dtype(file.dtypes[0])
            rows, cols = block_of(file.block_shapes[0], file.shape, dtype.itemsize * file.count)
            check_whole(file, name)
            still = file.transform.is_identity
            # Pixels are hidden by a mask inside the file or next to it, or by an alpha band.
            hidden = any(MaskFlags.per_dataset in flags for flags in file.mask_flag_enums)
            if still and file.crs is None and file.gcps[0]:
                warn(
                    f"{shown!r} has its position from {len(file.gcps[0])} ground control points, "
                    "which maps do not support: maps will have only rows and columns. Warp it to a "
                    "grid first, for example with gdalwarp.",
                    DaskclustWarning,
                )
            # The archive of the file, and the sources of a mosaic, must not change either.
            # Metadata files of GDAL contain no pixels, and viewers may write them at any time.
            pixel_files = [item for item in file.files if not item.endswith(".aux.xml")]
            files = SeenFiles([*pixel_files, name.removeprefix("zip://").partition("!/")[0]])
            is_placed = file.crs is not None or not still
            # Rotated images, and images with control points, have no positions along y and x.
            is_straight = file.transform.b == file.transform.d == 0 and not file.gcps[0]
            transform = file.transform
        # If a mask hides pixels, numbers become floats, and hidden pixels NaN.
        image: Any = rioxarray.open_rasterio(
            name,
            masked=hidden,
            # rioxarray computes coordinates by deprecated calls of affine.
            parse_coordinates=False,
            lock=False,
            cache=False,
        )
    except rasterio.errors.RasterioIOError as error:
        raise OSError(
            f"{shown!r} cannot be read as an image: {redact(error)}. Is the file complete, and "
            "in a format of GDAL?"
        ) from error
    changed = Path(name).stat().st_mtime_ns if Path(name).is_file() else None
    pixels = da.from_array(
        _Bands(name, image, files, unplaced=still),
        chunks=(-1, rows, cols),
        name=f"raster-{tokenize(name, changed, (rows, cols))}",
        asarray=False,
        fancy=False,
        meta=np.empty((0, 0, 0), image.dtype),
    )
    coordinates = {
        key: Coordinate(item.dims, item.values, dict(item.attrs))
        for key, item in image.coords.items()
        if is_placed and key in ("spatial_ref", "y", "x")
    }
    mapping = "spatial_ref" if coordinates else None
    if is_placed and is_straight:
        for key, step, edge in (("y", transform.e, transform.f), ("x", transform.a, transform.c)):
            centers_of_pixels = step * np.arange(image.sizes[key]) + (0.5 * step + edge)
            coordinates[key] = Coordinate((key,), centers_of_pixels)
    if centers is not None:
        coordinates["wavelength"] = Coordinate(("band",), centers, {"units": "nm"})
    return Described(
        pixels,
        f"The DataArray {Path(name).stem!r}",
        ("band", "y", "x"),
        attributes,
        # Labels are converted back to integers.
        encoding={"dtype": dtype} if hidden else {},
        mapping=mapping,
        find=coordinates.get,
    )


def cache_of_gdal() -> Any:
    """Return a context in which GDAL keeps few decoded blocks.

    By default, the cache takes 5 % of the memory of the machine. A worker may have less.
    """
    import rasterio

    own = {} if "GDAL_CACHEMAX" in os.environ else {"GDAL_CACHEMAX": _CACHE_BYTES}
    return rasterio.Env(**own)


class _Bands:
    """The bands of a file for tasks: an image of rioxarray that reads values on demand."""

    def __init__(self, name: str, image: Any, files: SeenFiles, *, unplaced: bool) -> None:
        self.name, self._image, self._files = name, image, files
        self.shape, self.dtype, self.ndim = image.shape, image.dtype, image.ndim
        # Filters of warnings apply to all threads, so they are changed only if necessary.
        self._quiet = maybe_unplaced if unplaced else nullcontext

    def __getitem__(self, key: Any) -> np.ndarray[Any, Any]:
        self._files.check()
        failed: Exception | None = None
        try:
            with self._quiet(), cache_of_gdal():
                return np.asarray(self._image.variable[key].values)
        except Exception as error:
            # Close the image, so that a retry opens the file again.
            self._image.close()
            if type(error).__module__.split(".")[0] != "rasterio":
                raise
            failed = self._error(error)
        # Not raised from the error of GDAL, which other processes cannot unpickle.
        raise failed

    def _error(self, error: Exception) -> OSError:
        """Return the exception to raise for an error of GDAL, whose classes may be private."""
        local = self.name.removeprefix("zip://").partition("!/")[0]
        if os.path.isabs(local) and not local.startswith("/vsi"):
            if not os.path.exists(local):
                return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), local)
            if not os.access(local, os.R_OK):
                return PermissionError(errno.EACCES, os.strerror(errno.EACCES), local)
        return OSError(f"{redact(self.name)!r}: {reason_of(error)}")

"""Satellite products as they are on disk: files and metadata of the bands of one item."""

from __future__ import annotations

import os
import re
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import dask.array as da
import numpy as np

from daskclust.core.storage.npy import NpyFile
from daskclust.core.storage.redact import redact
from daskclust.core.storage.stores import local_path, open_store
from daskclust.core.warn import warn
from daskclust.exceptions import DaskclustWarning
from daskclust.scenes._georeference import NOWHERE
from daskclust.scenes.formats.format_detection import needs_extra
from daskclust.scenes.quantization import with_scales

#: Central wavelengths in nm of the bands of Sentinel-2A.  The number of a band in the metadata of
#: a product is its position here.
_WAVELENGTHS = {
    "B01": 442.7,
    "B02": 492.7,
    "B03": 559.8,
    "B04": 664.6,
    "B05": 704.1,
    "B06": 740.5,
    "B07": 782.8,
    "B08": 832.8,
    "B8A": 864.7,
    "B09": 945.1,
    "B10": 1373.5,
    "B11": 1613.7,
    "B12": 2202.4,
}
#: Classes of the scene classification (SCL) without a clear view of the surface: no data,
#: saturated, cloud shadow, cloud of medium and high probability, thin cirrus.
UNCLEAR_CLASSES = (0, 1, 3, 8, 9, 10)
#: Value of pixels without data in all integer bands of Sentinel-2.
_NO_DATA = 0.0
#: First processing baseline whose metadata must state offsets.
_BASELINE_WITH_OFFSETS = 4.0
_SAFE_IMAGES = re.compile(r"(?:^|/)GRANULE/[^/]+/IMG_DATA/")
_SAFE_ZIP = re.compile(r"(?:S2[A-D]_MSIL[12][AC]_[^/]*|\.SAFE)\.zip$", re.IGNORECASE)
_SAFE_BAND = re.compile(r"(.+)_(B\d[\dA]|SCL)(?:_(\d\d)m)?\.jp2")
_EOPF_NAME = re.compile(r"/?S2[A-D]_MSIL[12][AC]_[^/]*\.zarr$")
_EOPF_BANDS, _EOPF_MASK = "measurements/reflectance", "conditions/mask/l2a_classification/r20m"
_ZARR_MARKS = ("zarr.json", ".zgroup", ".zarray")
#: Folder in which geotessera stores the grids of all tiles, next to the folders of the years.
_TESSERA_GRIDS = "global_0.1_degree_tiff_all"
#: Number of rows and columns of TESSERA that are read together.
_TESSERA_BLOCK = 256
_DATE = re.compile(r"_((?:19|20)\d{6})T\d{6}")
_YEAR = re.compile(r"(?:19|20)\d\d")


@dataclass(frozen=True)
class Band:
    """File or DataArray of a band, or of several bands.

    ``metadata`` are fields of the tile that replace those of the file.
    """

    source: Any
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Product:
    """Bands of a product, and its scene classification if it has one."""

    bands: list[Band]
    classes: Band | None = None


def is_product(source: Any) -> bool:
    """Return True for the path of a SAFE folder or its zip, an EOPF store or a TESSERA tile."""
    return _reader_of(source) is not None


def open_product(source: Any, bands: Sequence[str] | None) -> Product | None:
    """Return the chosen bands of a product, or None for any other source; reads no pixels."""
    reader = _reader_of(source)
    if reader is None:
        return None
    shown = redact(os.fspath(source))
    with needs_extra(shown):
        product = reader(source)
    if product.classes is None and "MSIL2A" in shown.rstrip("/").rpartition("/")[2]:
        warn(
            f"The product {shown!r} of level 2A has no scene classification (SCL), so its clouds "
            "are not missing. Download the classification, or pass a mask.",
            DaskclustWarning,
        )
    if bands is None:
        return product
    by_name = {
        band.metadata["names"][0]: band for band in product.bands if "names" in band.metadata
    }
    missing = [name for name in bands if name not in by_name]
    if missing:
        raise ValueError(
            f"The bands must be among {list(by_name)} in the product {shown!r}, got {missing}."
        )
    return Product([by_name[name] for name in bands], product.classes)


def date_of(source: Any) -> np.datetime64:
    """Return the date in the name of a product, else the year that a folder of its path names.

    >>> date_of("S2A_MSIL2A_20240501T101559_N0510_R065_T33UUP_20240501T160000.SAFE")
    np.datetime64('2024-05-01')
    >>> date_of("global_0.1_degree_representation/2024/grid_0.15_52.05")
    np.datetime64('2024')
    """
    name = os.fspath(source) if isinstance(source, str | os.PathLike) else ""
    parts = name.rstrip("/").split("/")
    date = _DATE.search(parts[-1])
    if date is not None:
        return np.datetime64(f"{date[1][:4]}-{date[1][4:6]}-{date[1][6:]}")
    years = [part for part in parts if _YEAR.fullmatch(part)]
    if not years:
        raise ValueError(
            "time='names' requires items with a date in their names, or a year among their "
            f"folders, got {redact(name) if name else type(source).__name__!r}. Pass the dates."
        )
    return np.datetime64(years[-1])


def _reader_of(source: Any) -> Callable[[Any], Product] | None:
    if not isinstance(source, str | os.PathLike):
        return None
    if _EOPF_NAME.search(os.fspath(source).rstrip("/")):
        return _open_eopf
    if _SAFE_ZIP.search(os.fspath(source)):
        return _open_safe
    folder = local_path(source)
    if folder is None or not folder.is_dir():
        return None
    if any((folder / mark).exists() for mark in _ZARR_MARKS):
        return _open_eopf if (folder / _EOPF_BANDS).is_dir() else None
    if folder.suffix.upper() == ".SAFE" or any(folder.glob("MTD_MSIL*.xml")):
        return _open_safe
    if (folder / f"{folder.name}.npy").exists() or any(folder.glob("*_scales.npy")):
        return _open_tessera
    return None


# Sentinel-2 in the SAFE format


def _names_and_texts(source: Any) -> tuple[list[str], dict[str, bytes], str]:
    """Return names of files, contents of metadata files, and what precedes names for GDAL.

    `source` is a SAFE folder, or the path or URL of its zip file.
    """
    path = os.fspath(source)
    if not path.lower().endswith(".zip"):
        folder = Path(path)
        names = [file.relative_to(folder).as_posix() for file in sorted(folder.rglob("*.jp2"))]
        found = [file for file in map(folder.joinpath, _QUANTITIES) if file.is_file()]
        return names, {str(file): file.read_bytes() for file in found}, f"{folder}/"
    import fsspec

    is_url = "://" in path
    path = path if is_url else os.path.abspath(path)
    try:
        with fsspec.open(path, "rb") as file, zipfile.ZipFile(file) as archive:
            names = sorted(archive.namelist())
            texts = {
                f"{redact(path)}/{name}": archive.read(name)
                for name in names
                if name.rpartition("/")[2] in _QUANTITIES
            }
    except zipfile.BadZipFile as error:
        raise OSError(
            f"The file {redact(path)!r} must be a zip file of a SAFE folder, got the error: "
            f"{error}. Download it again."
        ) from None
    return names, texts, f"{'zip+' if is_url else 'zip://'}{path}!/"


def _open_safe(source: Any) -> Product:
    shown = redact(os.fspath(source))
    names, texts, prefix = _names_and_texts(source)
    files: dict[str, tuple[int, str]] = {}
    scenes: dict[str, str] = {}
    for path in names:
        match = _SAFE_BAND.fullmatch(path.rpartition("/")[2])
        if match is None or not _SAFE_IMAGES.search(path):
            continue
        scenes.setdefault(match[1], path)
        # The names of level 1C do not state a resolution: there is one file per band.
        found = int(match[3] or 0), path
        files[match[2]] = min(found, files.get(match[2], found))
    if files.keys() <= {"SCL"}:
        raise FileNotFoundError(
            f"The product {shown!r} must contain bands of Sentinel-2, such as "
            "GRANULE/*/IMG_DATA/R10m/*_B02_10m.jp2, got none. Download it again."
        )
    if len(scenes) > 1:
        raise ValueError(
            f"The product {shown!r} must contain the bands of one tile and date, got "
            f"{list(scenes.values())}. Move other files."
        )
    scale, offsets = _reflectance_of_safe(shown, texts)
    classes = files.pop("SCL", None)
    return Product(
        [
            Band(
                prefix + files[name][1],
                {
                    "names": (name,),
                    "nodata": (_NO_DATA,),
                    "scales": (scale,),
                    "offsets": (offsets[name],),
                    "wavelengths": (wavelength,),
                },
            )
            for name, wavelength in _WAVELENGTHS.items()
            if name in files
        ],
        None if classes is None else Band(prefix + classes[1]),
    )


def _reflectance_of_safe(shown: str, texts: Mapping[str, bytes]) -> tuple[float, dict[str, float]]:
    """Return the scale of all bands, and the offset of each band, from the metadata file."""
    if not texts:
        raise FileNotFoundError(
            f"The product {shown!r} must contain {' or '.join(_QUANTITIES)}, which states the "
            "scale and the offsets of the bands, got neither. Download it again."
        )
    path, text = next(iter(texts.items()))
    quantity, offset = _QUANTITIES[path.rpartition("/")[2]]
    try:
        root = ElementTree.fromstring(text)
        total = float(root.findtext(f".//{quantity}", ""))
        baseline = float(root.findtext(".//PROCESSING_BASELINE", ""))
        stated = {int(one.attrib["band_id"]): float(one.text or "") for one in root.iter(offset)}
        if stated or baseline >= _BASELINE_WITH_OFFSETS:
            offsets = {name: stated[number] for number, name in enumerate(_WAVELENGTHS)}
        else:
            offsets = dict.fromkeys(_WAVELENGTHS, 0.0)
        if not (total > 0 and np.isfinite([total, *offsets.values()]).all()):
            raise ValueError(f"{quantity} is {total:g}")
    except (ElementTree.ParseError, LookupError, ValueError) as error:
        raise OSError(
            f"The file {path!r} must state PROCESSING_BASELINE, {quantity} and, from "
            f"baseline 04.00 on, {offset} of the 13 bands, got the error: {error!r}. Download it "
            "again."
        ) from error
    return 1.0 / total, {name: value / total for name, value in offsets.items()}


#: Names of metadata files, and their elements with the quantification value and the offsets.
_QUANTITIES = {
    "MTD_MSIL2A.xml": ("BOA_QUANTIFICATION_VALUE", "BOA_ADD_OFFSET"),
    "MTD_MSIL1C.xml": ("QUANTIFICATION_VALUE", "RADIO_ADD_OFFSET"),
}


# Sentinel-2 in EOPF Zarr


def _open_eopf(source: Any) -> Product:
    import rioxarray  # noqa: F401
    import xarray

    shown = redact(os.fspath(source))
    root: Any = open_store(source)
    # Stores on web servers, which cannot be listed, have consolidated metadata.
    is_consolidated = root.metadata.consolidated_metadata is not None

    def images(group: str) -> Any:
        if group not in root:
            return {}
        path = f"{root.path}/{group}".strip("/")
        # Decoded values would be floats, which take twice the memory.
        return xarray.open_dataset(
            root.store,
            engine="zarr",
            group=path,
            chunks={},
            mask_and_scale=False,
            consolidated=is_consolidated,
        ).data_vars

    found: dict[str, Band] = {}
    for group in (f"{_EOPF_BANDS}/{size}" for size in ("r10m", "r20m", "r60m")):
        for key, image in images(group).items():
            name = str(key).upper()
            if name not in _WAVELENGTHS or name in found:
                continue
            scale, offset = _reflectance_of_eopf(image, f"{shown}/{group}/{key}")
            metadata = {
                "names": (name,),
                "scales": (scale,),
                "offsets": (offset,),
                "wavelengths": (_WAVELENGTHS[name],),
                "shown": f"{shown}/{group}/{key}",
            }
            if image.dtype.kind in "iu":
                metadata["nodata"] = (_NO_DATA,)
            found[name] = Band(_with_system(image, root.attrs, shown), metadata)
    if not found:
        raise FileNotFoundError(
            f"The store {shown!r} must contain bands of Sentinel-2, such as "
            f"{_EOPF_BANDS}/r10m/b02, got none. Download it again."
        )
    classes = images(_EOPF_MASK).get("scl")
    return Product(
        [found[name] for name in _WAVELENGTHS if name in found],
        None
        if classes is None
        else Band(
            _with_system(classes, root.attrs, shown),
            {"shown": f"{shown}/{_EOPF_MASK}/scl"},
        ),
    )


def _reflectance_of_eopf(image: Any, shown: str) -> tuple[float, float]:
    """Return scale and offset of an array; floats have been decoded by a codec of the store."""
    if image.dtype.kind == "f":
        return 1.0, 0.0
    stated = {**image.attrs.get("_eopf_attrs", {}), **image.attrs}
    try:
        return float(stated["scale_factor"]), float(stated["add_offset"])
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"The array {shown!r} must state scale_factor and add_offset, or contain floats, got "
            f"the attributes {sorted(stated)} and dtype {image.dtype}."
        ) from error


def _with_system(image: Any, attributes: Mapping[str, Any], shown: str) -> Any:
    """Return an image with the coordinate system that it, or its product, states."""
    if image.rio.crs is not None:
        return image
    found = attributes.get("stac_discovery", {}).get("properties", {})
    for stated in (image.attrs, attributes.get("other_metadata", {}), found):
        for key in ("proj:epsg", "proj:code", "horizontal_CRS_code"):
            if stated.get(key) is not None:
                return image.rio.write_crs(stated[key])
    raise ValueError(
        f"The store {shown!r} must state a coordinate system as proj:epsg or "
        "horizontal_CRS_code, got none."
    )


# TESSERA


def _open_tessera(source: Any) -> Product:
    import rasterio
    import rioxarray  # noqa: F401
    import xarray

    folder = Path(source).absolute()
    tiles = [path for path in folder.glob("*.npy") if not path.stem.endswith("_scales")]
    if len(tiles) != 1:
        raise FileNotFoundError(
            f"The folder {str(folder)!r} must contain the embeddings of one TESSERA tile, "
            f"{folder.name}.npy, got {sorted(path.name for path in tiles)}."
        )
    path, name = tiles[0], tiles[0].stem
    scales = path.with_name(f"{name}_scales.npy")
    if not scales.is_file():
        raise FileNotFoundError(
            f"The TESSERA tile {str(path)!r} must have scales in {str(scales)!r}, got no such "
            "file. Download it again."
        )
    grids = [
        *sorted(folder.glob(f"{name}*.tif*")),
        *(parent / _TESSERA_GRIDS / f"{name}.tiff" for parent in folder.parents),
    ]
    grid = next((path for path in grids if path.is_file()), None)
    if grid is None:
        raise FileNotFoundError(
            f"The TESSERA tile {str(path)!r} must have a file with its grid, {name}.tiff, in its "
            f"folder or in a folder {_TESSERA_GRIDS} above it, got none. Download the land masks."
        )
    with rasterio.open(grid) as file:
        crs, transform, shape = file.crs, file.transform, file.shape
    codes, factors = NpyFile(path), NpyFile(scales)
    if codes.dtype != np.int8 or codes.ndim != 3 or codes.shape[:2] != shape:
        raise ValueError(
            f"The TESSERA tile {str(path)!r} must have codes of dtype int8 and shape {shape} + "
            f"(bands,), as its grid {str(grid)!r} has, got {codes.dtype} {codes.shape}."
        )
    if factors.dtype.kind != "f" or factors.shape != shape:
        raise ValueError(
            f"The file {str(scales)!r} must have floats of shape {shape}, got {factors.dtype} "
            f"{factors.shape}."
        )
    block = _TESSERA_BLOCK, _TESSERA_BLOCK
    embeddings = with_scales(
        da.from_array(codes, chunks=(*block, -1), asarray=False),
        (0, 1, 2),
        da.from_array(factors, chunks=block, asarray=False),
        NOWHERE,
        (),
    )
    image = xarray.DataArray(embeddings, dims=("y", "x", "band"), name=name).rio.write_crs(crs)
    return Product([Band(image, {"transform": tuple(transform)[:6], "shown": str(path)})])

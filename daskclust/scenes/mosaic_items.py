"""STAC items of a mosaic: collections in files, and the metadata that items state."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daskclust.config import check_choice
from daskclust.core.storage.redact import redact
from daskclust.scenes.formats.format_detection import needs_extra
from daskclust.scenes.products import date_of

_JSON, _PARQUET = (".json", ".geojson"), (".parquet", ".geoparquet")
#: Endings of files of STAC items.
OF_STAC_ITEMS = (*_JSON, *_PARQUET)


@dataclass(frozen=True)
class StatedBand:
    """Type, missing value, scale and offset of a band; None where an item does not state them."""

    name: str
    dtype: np.dtype[Any] | None
    nodata: float | None
    scale: float | None
    offset: float | None


@dataclass(frozen=True)
class Asset:
    """One file of a STAC item.

    `grid` are coordinate system (WKT), transform and shape.  `grid` and `bands` are None if the
    item does not state them.
    """

    name: str
    href: str
    grid: tuple[str, tuple[float, ...], tuple[int, int]] | None
    bands: tuple[StatedBand, ...] | None


@dataclass(frozen=True)
class StacItem:
    """A STAC item; relative names of files begin at `folder`."""

    id: str
    properties: Mapping[str, Any]
    assets: Mapping[str, Mapping[str, Any]]
    folder: str | None = None

    def asset(self, name: str) -> Asset:
        """Return a file, with the metadata that the item states."""
        own = self.assets[name]
        shown = f"the asset {name!r} of the STAC item {self.id!r}"
        href = _stated(own, "href", shown)
        if href is None:
            raise ValueError(f"href must be a path or URL, got none in {shown}.")
        if self.folder is not None and "://" not in href and not os.path.isabs(href):
            href = f"{self.folder}/{href.removeprefix('./')}"
        return Asset(name, href, _grid({**self.properties, **own}, shown), _bands(name, own, shown))


def _stated(facts: Mapping[str, Any], field: str, shown: str) -> Any:
    """Return a field of an item, None if it is missing; raise an error if it is invalid."""
    value = facts.get(field)
    expected, convert = _FIELDS[field]
    if value is None:
        return None
    try:
        return convert(value)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(
            f"{field} must be {expected}, got {value!r} in {shown}. Correct the item."
        ) from None


def _number(value: Any) -> float:
    if isinstance(value, bool):
        raise TypeError
    return float(value)


def _finite(value: Any) -> float:
    if isinstance(value, str) or not np.isfinite(_number(value)):
        raise ValueError
    return _number(value)


def _scale(value: Any) -> float:
    if not _finite(value):
        raise ValueError
    return _finite(value)


def _shape(value: Any) -> tuple[int, int]:
    height, width = map(_finite, value)
    if min(height, width) < 1 or height % 1 or width % 1:
        raise ValueError
    return int(height), int(width)


def _transform(value: Any) -> tuple[float, ...]:
    numbers = tuple(map(_finite, value))
    if len(numbers) not in (6, 9) or numbers[0] * numbers[4] == numbers[1] * numbers[3]:
        raise ValueError
    return numbers[:6]


def _band_list(value: Any) -> list[Mapping[str, Any]]:
    if isinstance(value, str) or not all(isinstance(band, Mapping) for band in value):
        raise TypeError
    return list(value)


#: Fields of STAC items: what they must be, and the function that converts them.
_FIELDS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "href": ("a path or URL", os.fspath),
    "proj:shape": ("two positive integers (height, width)", _shape),
    "proj:transform": ("6 or 9 finite numbers of an invertible transform", _transform),
    "raster:bands": ("a list with one object per band", _band_list),
    "bands": ("a list with one object per band", _band_list),
    "nodata": ('a number, "nan", "inf" or "-inf"', _number),
    "scale": ("a finite number other than 0", _scale),
    "offset": ("a finite number", _finite),
}


def dates_of(items: Sequence[Any], time: Sequence[Any] | str) -> NDArray[np.datetime64]:
    """Return the date of each item; `time` are the dates, "names" or "datetime"."""
    if isinstance(time, str):
        check_choice(time, "time", ("names", "datetime"))
        time = [date_of(item) if time == "names" else _day_of(item) for item in items]
    # Equal dates of different units, such as days and seconds, become one date.
    dates = np.array([np.datetime64(date) for date in time], "datetime64")
    n_missing = np.isnat(dates).sum()
    if n_missing or len(dates) != len(items):
        raise ValueError(
            f"time must have {len(items)} dates, one per item, got {len(dates)}"
            + (f", and {n_missing} of them are missing." if n_missing else ".")
        )
    return dates


def _day_of(item: Any) -> np.datetime64:
    """Return the date (UTC) of a STAC item."""
    if not isinstance(item, StacItem):
        raise ValueError(
            f'time="datetime" requires STAC items, got {type(item).__name__}. Pass the dates, or '
            'time="names".'
        )
    value = item.properties.get("datetime") or item.properties.get("start_datetime")
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            value = None
    if not isinstance(value, datetime):
        raise ValueError(
            f'time="datetime" requires a datetime of each STAC item, got none in {item.id!r}. '
            "Pass the dates as time=."
        )
    value = value.astimezone(UTC) if value.tzinfo else value
    return np.datetime64(value.date())


def _grid(
    facts: Mapping[str, Any], shown: str
) -> tuple[str, tuple[float, ...], tuple[int, int]] | None:
    codes = (facts.get("proj:code"), facts.get("proj:epsg"), facts.get("proj:wkt2"))
    system = next((code for code in codes if code is not None), facts.get("proj:projjson"))
    transform, shape = (_stated(facts, f"proj:{name}", shown) for name in ("transform", "shape"))
    if system is None or transform is None or shape is None:
        return None
    text = json.dumps(system) if isinstance(system, Mapping) else str(system)
    wkt = _wkt(f"EPSG:{text}" if text.isdigit() else text)
    return None if wkt is None else (wkt, transform, shape)


@lru_cache(maxsize=64)
def _wkt(text: str) -> str | None:
    from rasterio.crs import CRS
    from rasterio.errors import CRSError

    try:
        return str(CRS.from_user_input(text).to_wkt())
    except CRSError:
        return None


def _bands(name: str, asset: Mapping[str, Any], shown: str) -> tuple[StatedBand, ...] | None:
    listed = _stated(asset, "raster:bands", shown) or _stated(asset, "bands", shown)
    if not listed:
        return None
    found = []
    for number, band in enumerate(listed, start=1):
        facts = {
            key.removeprefix("raster:"): value
            for part in (asset, band)
            for key, value in part.items()
            if value is not None
        }
        try:
            dtype = np.dtype(facts["data_type"])
        except (KeyError, TypeError):
            dtype = None
        nodata, scale, offset = (
            _stated(facts, key, f"band {number} of {shown}")
            for key in ("nodata", "scale", "offset")
        )
        own = name if len(listed) == 1 else f"{name} {band.get('name') or number}"
        found.append(StatedBand(own, dtype, nodata, scale, offset))
    return tuple(found)


def read_items(items: Any) -> list[Any]:
    """Return the items of a mosaic; STAC items become :class:`StacItem`, others stay."""
    folder = None
    if isinstance(items, str | os.PathLike):
        path = os.fspath(items)
        ending = os.path.splitext(path)[1].lower()
        folder = path.rpartition("/")[0] if "://" in path else str(Path(path).absolute().parent)
        if ending not in OF_STAC_ITEMS:
            raise ValueError(
                "items must be a list of tiles, or the path of STAC items (.json, .geojson, "
                f".parquet), got {redact(path)!r}. Pass [{redact(path)!r}] for one tile."
            )
        items = _from_json(path) if ending in _JSON else _from_parquet(path)
    if isinstance(items, Mapping):
        kind = items.get("type")
        if kind not in ("FeatureCollection", "Feature"):
            raise ValueError(
                "items must be a STAC item or item collection (type Feature or FeatureCollection), "
                f"got the type {kind!r}. Pass the items of the catalog."
            )
        items = items.get("features", ()) if kind == "FeatureCollection" else [items]
    return [_stac_item(item, folder) for item in items]


def _stac_item(item: Any, folder: str | None) -> Any:
    if isinstance(item, Mapping):
        if "assets" not in item:
            raise ValueError(
                f"A STAC item must have assets, got {sorted(item)}. Pass items, not only features."
            )
        return StacItem(
            str(item.get("id", "?")), item.get("properties") or {}, item["assets"], folder
        )
    if not hasattr(item, "assets"):
        return item
    assets = {}
    for name, asset in item.assets.items():
        absolute = getattr(asset, "get_absolute_href", lambda: None)()
        assets[name] = {**getattr(asset, "extra_fields", {}), "href": absolute or asset.href}
    properties = dict(getattr(item, "properties", {}))
    if getattr(item, "datetime", None) is not None:
        properties["datetime"] = item.datetime
    return StacItem(str(getattr(item, "id", "?")), properties, assets)


def _from_json(path: str) -> Any:
    import fsspec

    with fsspec.open(path, "rt", encoding="utf-8") as file:
        try:
            found = json.load(file)
        except ValueError as error:
            raise ValueError(
                f"{redact(path)!r} must be JSON of STAC items, got invalid JSON ({error})."
            ) from None
    if not isinstance(found, Mapping):
        raise ValueError(
            f"{redact(path)!r} must be a STAC item collection, got {type(found).__name__}."
        )
    return found


def _from_parquet(path: str) -> Iterable[Any]:
    """Read stac-geoparquet: properties are columns, and assets a column of structures."""
    with needs_extra("A stac-geoparquet file"):
        from pyarrow import parquet
    import fsspec

    with fsspec.open(path, "rb") as file:
        stored = parquet.ParquetFile(file)
        names = stored.schema_arrow.names
        if "assets" not in names:
            raise ValueError(
                f"{redact(path)!r} must be stac-geoparquet with a column 'assets', got the columns "
                f"{names}."
            )
        wanted = ["id", "assets", "datetime", "start_datetime"]
        columns = [name for name in names if name in wanted or name.startswith("proj:")]
        rows = stored.read(columns=columns).to_pylist()
    rows = [{"assets": {}, **_without_none(row)} for row in rows]
    return [{"id": row.get("id", "?"), "properties": row, "assets": row["assets"]} for row in rows]


def _without_none(value: Any) -> Any:
    """Return a mapping without the None values that columns have for missing entries."""
    if not isinstance(value, Mapping):
        return value
    return {key: _without_none(part) for key, part in value.items() if part is not None}


def assets_of(item: StacItem, names: Sequence[str] | None) -> list[Asset]:
    """Return the assets of an item that are bands of a mosaic."""
    if not names:
        raise ValueError(
            "assets must name the bands of STAC items, got None. This item has the assets "
            f"{sorted(item.assets)}."
        )
    missing = [name for name in names if name not in item.assets]
    if missing:
        raise ValueError(
            f"The STAC item {item.id!r} must have the assets {list(names)}, "
            f"got {sorted(item.assets)}. Choose other assets, or leave the item out."
        )
    return [item.asset(name) for name in names]

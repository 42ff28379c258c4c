"""Mosaics of STAC items: item collections, stac-geoparquet, and stated metadata."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import daskclust

rasterio = pytest.importorskip("rasterio", reason="needs the extra `raster`")
pytest.importorskip("rioxarray", reason="needs the extra `raster`")

from rasterio.transform import from_origin  # noqa: E402

LEFT, TOP = 500_000.0, 5_100_000.0


def write(path: Path, values: Any, left: float, **options: Any) -> None:
    """Write an array (y, x) as a GeoTIFF."""
    values = np.asarray(values)
    profile = {"driver": "GTiff", "count": 1, "crs": "EPSG:32633", "nodata": 0, **options}
    profile |= {"height": values.shape[0], "width": values.shape[1], "dtype": values.dtype}
    with rasterio.open(path, "w", transform=from_origin(left, TOP, 10, 10), **profile) as file:
        file.write(values, 1)


def feature(number: int, **stated: Any) -> dict[str, Any]:
    """Return an item whose asset `red` states all metadata; None removes one of them."""
    facts = {
        "proj:transform": [10, 0, LEFT + 40 * number, 0, -10, TOP, 0, 0, 1],
        "proj:shape": [4, 4],
        "raster:bands": [{"data_type": "uint16", "nodata": 0}],
        **stated,
    }
    asset = {"href": f"./{number}.tif", **{k: v for k, v in facts.items() if v is not None}}
    properties = {"datetime": f"2024-05-0{number + 1}T23:00:00Z", "proj:code": "EPSG:32633"}
    return {
        "type": "Feature",
        "stac_version": "1.0.0",
        "id": f"item {number}",
        "geometry": None,
        "properties": properties,
        "links": [],
        "assets": {"red": asset},
    }


@pytest.fixture
def values(tmp_path: Path) -> Any:
    """Values (y, x) of two tiles side by side, which are written to files."""
    values = np.random.default_rng(0).integers(1, 9000, (4, 8), np.uint16)
    for number in range(2):
        part = values[:, 4 * number : 4 * number + 4]
        write(tmp_path / f"{number}.tif", part, LEFT + 40 * number)
    return values


def collection(folder: Path, features: Any = None) -> str:
    path = folder / "items.json"
    features = [feature(0), feature(1)] if features is None else features
    path.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    return str(path)


def band(cube: Any) -> Any:
    return cube.to_map(cube.samples[:, 0].astype(float)).compute()


def count_openings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    opened: list[str] = []
    original = rasterio.open

    def counting(name: Any, *args: Any, **options: Any) -> Any:
        opened.append(str(name))
        return original(name, *args, **options)

    monkeypatch.setattr(rasterio, "open", counting)
    return opened


def test_stated_metadata_replace_opening(
    values: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = count_openings(monkeypatch)
    cube = daskclust.open_mosaic(collection(tmp_path), assets=["red"])
    assert not opened
    assert cube.shape == (4, 8, 1)
    assert cube.band_names == ["red"]
    np.testing.assert_array_equal(band(cube), values)
    assert len(set(opened)) == 2
    assert tuple(cube.geobox.transform)[:6] == (10, 0, LEFT, 0, -10, TOP)


@pytest.mark.parametrize("bands", [None, [{}], [{"data_type": "uint16"}]])
def test_one_file_is_opened_for_missing_types(
    bands: Any, values: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    features = [feature(number, **{"raster:bands": bands}) for number in range(2)]
    opened = count_openings(monkeypatch)
    cube = daskclust.open_mosaic(collection(tmp_path, features), assets=["red"])
    assert len(opened) == 1
    np.testing.assert_array_equal(band(cube), values)


def test_files_without_a_stated_grid_are_opened(values: Any, tmp_path: Path) -> None:
    features = [feature(0, **{"proj:shape": None}), feature(1)]
    cube = daskclust.open_mosaic(collection(tmp_path, features), assets=["red"])
    np.testing.assert_array_equal(band(cube), values)


def test_scale_and_offset_of_items(values: Any, tmp_path: Path) -> None:
    bands = [
        [{"data_type": "uint16", "nodata": 0, "scale": 0.5, "offset": offset}] for offset in (1, 0)
    ]
    features = [feature(number, **{"raster:bands": bands[number]}) for number in range(2)]
    cube = daskclust.open_mosaic(collection(tmp_path, features), assets=["red"])
    expected = values * 0.5
    expected[:, :4] += 1
    np.testing.assert_allclose(band(cube), expected)


def test_dates_of_items(values: Any, tmp_path: Path) -> None:
    path = collection(tmp_path)
    cube = daskclust.open_mosaic(path, assets=["red"], time="datetime")
    assert cube.band_names == ["2024-05-01 red", "2024-05-02 red"]
    features = [feature(0), feature(1)]
    features[1]["properties"]["datetime"] = "2024-05-01T23:30:00-01:00"  # the next day in UTC
    cube = daskclust.open_mosaic(collection(tmp_path, features), assets=["red"], time="datetime")
    assert cube.band_names == ["2024-05-01 red", "2024-05-02 red"]
    del features[1]["properties"]["datetime"]
    with pytest.raises(ValueError, match=r"requires a datetime of each STAC item.*'item 1'"):
        daskclust.open_mosaic(collection(tmp_path, features), assets=["red"], time="datetime")
    with pytest.raises(ValueError, match='"datetime" requires STAC items, got str'):
        daskclust.open_mosaic([str(tmp_path / "0.tif")], time="datetime")
    same = [np.datetime64("2024-05-01"), np.datetime64("2024-05-01T00:00")]
    assert daskclust.open_mosaic(path, assets=["red"], time=same).shape == (4, 8, 1)
    with pytest.raises(ValueError, match="one per item, got 2, and 1 of them are missing"):
        daskclust.open_mosaic(path, assets=["red"], time=["2024-05-01", None])


def test_dicts_and_pystac(values: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for items in (
        [feature(0), feature(1)],
        {"type": "FeatureCollection", "features": [feature(0), feature(1)]},
    ):
        np.testing.assert_array_equal(band(daskclust.open_mosaic(items, assets=["red"])), values)
    pystac = pytest.importorskip("pystac", reason="is no dependency")
    items = pystac.ItemCollection.from_file(collection(tmp_path))
    for item in items:
        item.assets["red"].href = str(tmp_path / item.assets["red"].href)
    opened = count_openings(monkeypatch)
    for listed in (items, list(items)):
        cube = daskclust.open_mosaic(listed, assets=["red"], time="datetime")
        assert not opened
        assert cube.band_names == ["2024-05-01 red", "2024-05-02 red"]


def test_stac_geoparquet(values: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="needs the extra `dataframe`")
    from pyarrow import parquet

    rows = []
    for number in range(2):
        item = feature(number)
        other = {"href": "none.tif"} if number else None  # a column has it for all items
        stamp = np.datetime64(item["properties"]["datetime"][:-1]).item()
        rows.append(
            {
                "id": item["id"],
                "assets": {**item["assets"], "other": other},
                "datetime": stamp,
                "proj:code": "EPSG:32633",
                "eo:cloud_cover": 5.0,
            }
        )
    path = tmp_path / "items.parquet"
    parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    opened = count_openings(monkeypatch)
    cube = daskclust.open_mosaic(path, assets=["red"])
    assert not opened
    np.testing.assert_array_equal(band(cube), values)
    with pytest.raises(ValueError, match="The STAC item 'item 0' must have the assets"):
        daskclust.open_mosaic(path, assets=["other"])
    parquet.write_table(pyarrow.table({"a": [1]}), path)
    with pytest.raises(ValueError, match="must be stac-geoparquet with a column 'assets'"):
        daskclust.open_mosaic(path, assets=["red"])


@pytest.mark.parametrize(
    ("stated", "wrong"),
    [
        ({"proj:shape": [4, 5]}, "another shape"),
        ({"proj:transform": [10, 0, LEFT + 3, 0, -10, TOP]}, "another transform"),
        ({"proj:code": "EPSG:32632"}, "another coordinate system"),
        ({"raster:bands": [{"data_type": "int16", "nodata": 0}]}, "another data type"),
        ({"raster:bands": [{"data_type": "uint16", "nodata": 9}]}, "another missing value"),
    ],
)
def test_items_that_differ_from_their_file(
    stated: Any, wrong: str, values: Any, tmp_path: Path
) -> None:
    cube = daskclust.open_mosaic(collection(tmp_path, [feature(0, **stated)]), assets=["red"])
    with pytest.raises(ValueError, match=rf"STAC item of '.*0\.tif' must describe.*{wrong}"):
        cube.samples.compute(scheduler="synchronous")


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("proj:shape", [4], "two positive integers"),
        ("proj:shape", [4, 0], "two positive integers"),
        ("proj:shape", "44", "two positive integers"),
        ("proj:transform", [10, 0, LEFT, 0, -10], "6 or 9 finite numbers"),
        ("proj:transform", [0, 0, LEFT, 0, -10, TOP], "6 or 9 finite numbers"),
        ("proj:transform", {"a": 10}, "6 or 9 finite numbers"),
        ("raster:bands", {"nodata": 0}, "a list with one object per band"),
        ("raster:bands", [0], "a list with one object per band"),
        ("nodata", "none", "a number"),
        ("nodata", [0], "a number"),
        ("nodata", True, "a number"),
        ("scale", 0, "a finite number other than 0"),
        ("scale", "0.1", "a finite number other than 0"),
        ("offset", float("nan"), "a finite number"),
        ("href", 3, "a path or URL"),
        ("href", None, "a path or URL"),
    ],
)
def test_invalid_fields_of_an_item_are_named(
    field: str, value: Any, expected: str, values: Any, tmp_path: Path
) -> None:
    is_of_band = field in ("nodata", "scale", "offset")
    stated = {"raster:bands": [{"data_type": "uint16", field: value}]} if is_of_band else {}
    item = feature(1, **stated)
    if not is_of_band:
        item["assets"]["red"][field] = value
    pattern = rf"^{field} must be {expected}.*, got .* in .*asset 'red' of the STAC item 'item 1'"
    with pytest.raises(ValueError, match=pattern):
        daskclust.open_mosaic([feature(0), item], assets=["red"])


def test_nodata_may_be_the_word_nan(values: Any, tmp_path: Path) -> None:
    bands = [{"data_type": "float32", "nodata": "nan"}]
    item = feature(0, **{"raster:bands": bands})
    write(tmp_path / "0.tif", np.float32([[1, np.nan]] * 4 * np.ones(1)), LEFT, nodata=np.nan)
    item["assets"]["red"]["proj:shape"] = [4, 2]
    cube = daskclust.open_mosaic(collection(tmp_path, [item]), assets=["red"])
    np.testing.assert_array_equal(band(cube), [[1, -1]] * 4)  # -1: missing


def test_a_date_without_items_is_an_error(values: Any, tmp_path: Path) -> None:
    (tmp_path / "1.tif").unlink()
    with (
        pytest.warns(daskclust.exceptions.DaskclustWarning, match="1 of 2 items are left out"),
        pytest.raises(ValueError, match="whose files can be opened, got none for 2024-05-02"),
    ):
        daskclust.open_mosaic(
            collection(tmp_path), assets=["red"], time="datetime", skip_damaged=True
        )


def test_scale_of_the_file_that_the_item_does_not_state(values: Any, tmp_path: Path) -> None:
    with rasterio.open(tmp_path / "0.tif", "r+") as file:
        file.scales = (0.5,)
    cube = daskclust.open_mosaic(collection(tmp_path, [feature(0)]), assets=["red"])
    with pytest.raises(ValueError, match="the file has another scale or offset"):
        cube.samples.compute(scheduler="synchronous")
    stated = {"raster:bands": [{"data_type": "uint16", "nodata": 0, "scale": 0.5}]}
    cube = daskclust.open_mosaic(collection(tmp_path, [feature(0, **stated)]), assets=["red"])
    cube.samples.compute(scheduler="synchronous")


def test_bad_input(values: Any, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"or the path of STAC items .*Pass \['.*0\.tif'\]"):
        daskclust.open_mosaic(str(tmp_path / "0.tif"))
    with pytest.raises(ValueError, match=r"assets must be None, got \['red'\], because an item"):
        daskclust.open_mosaic([tmp_path / "0.tif"], assets=["red"])
    path = tmp_path / "items.json"
    for text, message in [
        ("{", "must be JSON of STAC items"),
        ("[]", "must be a STAC item collection, got list"),
        ('{"type": "Catalog"}', "got the type 'Catalog'"),
        ('{"type": "FeatureCollection", "features": [{"id": 1}]}', "STAC item must have assets"),
        ('{"type": "FeatureCollection", "features": []}', "must have at least one tile"),
    ]:
        path.write_text(text)
        with pytest.raises(ValueError, match=message):
            daskclust.open_mosaic(path, assets=["red"])
    (tmp_path / "1.tif").unlink()
    with pytest.raises(OSError, match=r"1\.tif' cannot be opened: the file does not exist"):
        daskclust.open_mosaic(collection(tmp_path), assets=["red"])
    with pytest.warns(daskclust.exceptions.DaskclustWarning, match="1 of 2 items are left out"):
        cube = daskclust.open_mosaic(collection(tmp_path), assets=["red"], skip_damaged=True)
    np.testing.assert_array_equal(band(cube), values[:, :4])

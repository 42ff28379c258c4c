"""Scenes, labels and maps as others make them: masks, alpha, places half stated, seams."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import daskclust
from daskclust.exceptions import DaskclustWarning
from daskclust.scenes import area_table, open_label_map

rasterio = pytest.importorskip("rasterio", reason="needs the extra `raster`")
pytest.importorskip("rioxarray", reason="needs the extra `raster`")
pytest.importorskip("pyogrio", reason="needs the extra `raster`")
from rasterio.control import GroundControlPoint  # noqa: E402
from rasterio.enums import ColorInterp  # noqa: E402
from rasterio.transform import from_origin  # noqa: E402

HIDDEN = np.zeros((6, 8), bool)
HIDDEN[:2, 3:] = True
UTM = {"crs": "EPSG:32632", "transform": from_origin(600_000, 5_200_000, 10, 10)}


def write(path: Path, values: np.ndarray, **profile: Any) -> Any:
    """Open a new GeoTIFF, with its bands written."""
    shape = {"count": len(values), "height": values.shape[1], "width": values.shape[2]}
    file = rasterio.open(path, "w", driver="GTiff", dtype=values.dtype, **shape, **profile)
    file.write(values)
    return file


@pytest.mark.parametrize("kind", ["inside", "beside", "alpha"])
@pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")
def test_what_gdal_hides_is_no_data(kind: str, tmp_path: Path) -> None:
    values = np.random.default_rng(0).integers(1, 200, (3, 6, 8)).astype(np.uint8)
    path = tmp_path / "t.tif"
    shown = np.where(HIDDEN, 0, 255).astype(np.uint8)
    if kind == "alpha":
        with write(path, np.concatenate([values, shown[None]]), **UTM) as file:
            assert file.colorinterp[-1] == ColorInterp.alpha
    else:
        with (
            rasterio.Env(GDAL_TIFF_INTERNAL_MASK=kind == "inside"),
            write(path, values, **UTM) as f,
        ):
            f.write_mask(shown)
    assert (tmp_path / "t.tif.msk").exists() == (kind == "beside")
    cube = daskclust.open_cube(path)
    assert_array_equal(cube.valid.compute(), ~HIDDEN)
    assert cube.shape == (6, 8, 3)
    assert_array_equal(cube.samples.compute(), np.moveaxis(values, 0, 2)[~HIDDEN])
    # Of labels alike: what is hidden is none.
    labels = cube.rows_of(np.where(HIDDEN, -1, values[0].astype(int)))
    if kind == "alpha":
        with write(tmp_path / "l.tif", np.stack([values[0], shown]), alpha="YES", **UTM) as file:
            assert file.colorinterp[-1] == ColorInterp.alpha
    else:
        with write(tmp_path / "l.tif", values[:1], **UTM) as file:
            file.write_mask(shown)
    for got, want in zip(cube.rows_of(tmp_path / "l.tif"), labels, strict=True):
        assert_array_equal(got, want)


def test_labels_of_two_bands_are_told_so(tmp_path: Path) -> None:
    with write(tmp_path / "l.tif", np.ones((2, 6, 8), np.uint8), **UTM):
        pass
    cube = daskclust.open_cube(np.ones((6, 8, 2)), dims=("y", "x", "band"))
    with pytest.raises(ValueError, match="must have one band, of labels, got 2"):
        cube.rows_of(tmp_path / "l.tif")


def test_a_transform_without_a_system_is_kept(tmp_path: Path) -> None:
    with write(tmp_path / "t.tif", np.ones((2, 6, 8), np.float32), transform=UTM["transform"]):
        pass
    cube = daskclust.open_cube(tmp_path / "t.tif")
    cube.write_labels(np.zeros(48, int), tmp_path / "map.tif")
    with rasterio.open(tmp_path / "map.tif") as file:
        assert file.transform == UTM["transform"]
        assert file.crs is None


@pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")
@pytest.mark.parametrize("kind", ["tif", "xarray", "array"])
def test_an_image_without_a_place_gets_none(kind: str, tmp_path: Path) -> None:
    values: Any = np.ones((2, 6, 8), np.float32)
    with write(tmp_path / "t.tif", values):
        pass
    source: Any = tmp_path / "t.tif" if kind == "tif" else values
    if kind == "xarray":
        # It has coordinates when it is asked for them: the numbers of rows and columns.
        source = pytest.importorskip("xarray").DataArray(values, dims=("band", "y", "x"))
    cube = daskclust.open_cube(source, dims=("band", "y", "x"))
    assert cube.pixel_grid.transform == (1, 0, 0, 0, 1, 0)
    written = cube.write_labels(np.zeros(48, int), tmp_path / "map.zarr")
    assert set(written.array_keys()) == {"labels"}
    cube.write_labels(np.zeros(48, int), tmp_path / "map.tif")
    with rasterio.open(tmp_path / "map.tif") as file:
        assert file.transform.is_identity


@pytest.mark.parametrize("degrees", ["degrees_", "degree_", "degrees"])
def test_latitudes_and_longitudes_alone_place_a_map(degrees: str, tmp_path: Path) -> None:
    """In all spellings of CF: degrees_north, degree_north, degrees_N, degreesN and so on."""
    north, east = ("N", "E") if degrees == "degrees" else ("north", "east")
    xarray = pytest.importorskip("xarray")
    scene = xarray.DataArray(
        np.random.default_rng(0).normal(size=(2, 6, 8)).astype("float32"),
        dims=("band", "lat", "lon"),
        coords={
            "lat": ("lat", 50 - 0.5 * np.arange(6), {"units": degrees + north}),
            "lon": ("lon", 5 + 0.5 * np.arange(8), {"units": degrees + east}),
        },
        name="t",
    )
    scene.to_netcdf(tmp_path / "t.nc")
    cube = daskclust.open_cube(tmp_path / "t.nc")
    cube.write_labels(np.zeros(48, int), tmp_path / "map.tif")
    with rasterio.open(tmp_path / "map.tif") as file:
        assert file.crs == "EPSG:4326"
        assert_array_equal(np.array(file.transform)[:6], [0.5, 0, 4.75, 0, -0.5, 50.25])


def place(tmp_path: Path, **profile: Any) -> daskclust.Cube:
    with write(tmp_path / "scene.tif", np.ones((2, 16, 16), np.float32), **profile):
        pass
    return daskclust.open_cube(tmp_path / "scene.tif")


def polygons(path: Path, items: list[tuple[Any, Any]], crs: str) -> Path:
    """Write boxes (west, south, east, north) with a class each, as GeoJSON of a system."""
    features = [
        {
            "type": "Feature",
            "properties": {"class": name},
            "geometry": {
                "type": "Polygon",
                "coordinates": [[[w, s], [e, s], [e, n], [w, n], [w, s]]],
            },
        }
        for (w, s, e, n), name in items
    ]
    system = {"type": "name", "properties": {"name": crs}}
    whole = {"type": "FeatureCollection", "crs": system, "features": features}
    path.write_text(json.dumps(whole))
    return path


def test_polygons_across_the_date_line_label_themselves(tmp_path: Path) -> None:
    pyproj = pytest.importorskip("pyproj")
    fiji = "urn:ogc:def:crs:EPSG::32701"
    there = pyproj.Transformer.from_crs(4326, 32701, always_xy=True).transform
    corners = np.array([there(x, y) for x in (179.8, -179.8) for y in (-10.8, -11.2)])
    box = (*corners.min(axis=0), *corners.max(axis=0))
    path = polygons(tmp_path / "p.geojson", [(box, "reef")], fiji)
    globe = np.ones((180, 360, 1), np.float32)
    profile = {"crs": "EPSG:4326", "transform": from_origin(-180, 0, 0.1, 0.1)}
    with write(tmp_path / "g.tif", np.moveaxis(globe[:180], 2, 0)[:, :, :], **profile):
        pass
    # The western hemisphere by the seam: 0.2 of the 0.4 degrees lie here.
    cube = daskclust.open_cube(tmp_path / "g.tif")
    rows, labels = cube.rows_of(path)
    assert set(labels) == {"reef"}
    lines, columns = np.unravel_index(rows, (180, 360))
    assert columns.max() <= 2
    assert 105 <= lines.min() <= lines.max() <= 114
    assert 4 <= len(rows) <= 16


@pytest.mark.parametrize("west", [179.92, -180.08])
def test_labels_beyond_the_seam_of_a_scene_across_it_label_pixels(
    west: float, tmp_path: Path
) -> None:
    cube = place(tmp_path, crs="EPSG:4326", transform=from_origin(west, 10, 0.01, 0.01))
    boxes = [((179.93, 9.95, 179.96, 9.97), "reef"), ((-179.95, 9.95, -179.93, 9.97), "sand")]
    path = polygons(tmp_path / "p.geojson", boxes, "urn:ogc:def:crs:OGC:1.3:CRS84")
    rows, labels = cube.rows_of(path)
    found = np.full(16 * 16, "", dtype=object)
    found[rows] = labels
    expected = np.full((16, 16), "", dtype=object)
    expected[3:5, 1:4], expected[3:5, 13:15] = "reef", "sand"
    assert_array_equal(found.reshape(16, 16), expected)
    points = tmp_path / "p.csv"
    points.write_text("lon,lat,class\n179.935,9.965,reef\n-179.935,9.965,sand\n")
    rows, labels = cube.rows_of(points)
    assert dict(zip(rows.tolist(), labels.tolist(), strict=True)) == {49: "reef", 62: "sand"}


@pytest.mark.parametrize("scene", [UTM, {"crs": "EPSG:4326", "transform": from_origin(0, 8, 1, 1)}])
def test_a_polygon_that_is_not_split_at_the_seam_is_refused(
    scene: dict[str, Any], tmp_path: Path
) -> None:
    # It covered all of the globe but what it was drawn around.
    cube = place(tmp_path, **scene)
    boxes = [((-180, -85, 180, 85), "sea"), ((179.9, -5, -179.9, 5), "reef")]
    path = polygons(tmp_path / "p.geojson", boxes, "urn:ogc:def:crs:OGC:1.3:CRS84")
    with pytest.raises(
        ValueError, match=r"Feature 1 of .* from longitude 179.9 to -179.9, .* split"
    ):
        cube.rows_of(path)


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_places_beyond_the_system_of_the_image_are_outside(tmp_path: Path) -> None:
    cube = place(tmp_path, **UTM)
    for line in ("lon,lat,class\n500,91,reef\n", "row,column,class\n1e30,2,reef\n"):
        (tmp_path / "p.csv").write_text(line)
        with pytest.raises(ValueError, match=r"line 2: the pixel .* lies outside the image"):
            cube.rows_of(tmp_path / "p.csv")


def test_contradictions_and_classes_that_vanish_are_told(tmp_path: Path) -> None:
    cube = place(tmp_path, **UTM)
    system = "urn:ogc:def:crs:EPSG::32632"
    field = (600_000, 5_199_900, 600_050, 5_200_000)
    overlap = (600_040, 5_199_900, 600_090, 5_200_000)
    path = polygons(tmp_path / "p.geojson", [(field, "wheat"), (overlap, "rye")], system)
    with pytest.raises(ValueError, match=r"'rye' and 'wheat' .* \(row 0, column 4\)"):
        cube.rows_of(path)
    # The same class may be said twice, also by three features.
    path = polygons(tmp_path / "p.geojson", [(field, "wheat"), (overlap, "wheat")], system)
    assert len(cube.rows_of(path)[0]) == 9 * 10
    small, far = (600_101, 5_199_901, 600_102, 5_199_902), (0, 0, 10, 10)
    items = [(field, "wheat"), (small, "tree"), (far, "sea")]
    path = polygons(tmp_path / "p.geojson", items, system)
    with (
        pytest.warns(DaskclustWarning, match=r"2 of the 3 classes .*'sea', 'tree'"),
        pytest.warns(DaskclustWarning, match=r"outside of the scene: 2 \(sea\); .*: 1 \(tree\)"),
    ):
        _, labels = cube.rows_of(path)
    assert set(labels) == {"wheat"}


def test_degrees_of_a_scene_without_a_place_are_refused(tmp_path: Path) -> None:
    cube = daskclust.open_cube(np.ones((16, 16, 2)), dims=("y", "x", "band"))
    (tmp_path / "p.csv").write_text("lon,lat,class\n7.25,5.75,wheat\n")
    with pytest.raises(ValueError, match=r"degrees \(lon, lat\), and the image states no"):
        cube.rows_of(tmp_path / "p.csv")


def test_points_are_read_without_guesses(tmp_path: Path) -> None:
    cube = daskclust.open_cube(np.ones((16, 16, 2)), dims=("y", "x", "band"))
    (tmp_path / "p.csv").write_text("row,column,class\n0,1,None\n0,2,NA\n0,3,\n0,4,nan\n")
    rows, labels = cube.rows_of(tmp_path / "p.csv")
    assert (rows.tolist(), labels.tolist()) == ([1, 2, 4], ["None", "NA", "nan"])
    (tmp_path / "p.csv").write_text("row,column,class\n0,1,2,\n1,2,3,\n")
    with pytest.raises(ValueError, match="line 2 must have 3 fields, as many as the header, got 4"):
        cube.rows_of(tmp_path / "p.csv")
    (tmp_path / "p.csv").write_text("row,column,class\n0,1,3.0\n1,2,7.0\n")
    assert cube.rows_of(tmp_path / "p.csv")[1].tolist() == [3, 7]


def test_names_of_a_map_are_those_that_were_written(tmp_path: Path) -> None:
    cube = place(tmp_path, **UTM)
    names = {0: "dry soil", 1: "dry_soil", 2: "", 3: "low vegetation"}
    cube.write_labels(np.arange(256) % 4, tmp_path / "map.tif", class_names=names)
    assert open_label_map(tmp_path / "map.tif").names == names
    assert [row.name for row in area_table(tmp_path / "map.tif")] == list(names.values())
    # Of others' files, the categories that GDAL keeps beside them.
    with rasterio.open(tmp_path / "map.tif") as file:
        values, profile = file.read(), file.profile
    with rasterio.open(tmp_path / "other.tif", "w", **{**profile, "driver": "GTiff"}) as file:
        file.write(values)
    (tmp_path / "other.tif.aux.xml").write_text(
        "<PAMDataset><PAMRasterBand band='1'><CategoryNames><Category>dry soil</Category>"
        "<Category></Category><Category>sand &amp; gravel</Category></CategoryNames>"
        "</PAMRasterBand></PAMDataset>"
    )
    found = open_label_map(tmp_path / "other.tif").names
    assert (found[0], found[2]) == ("dry soil", "sand & gravel")


@pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")
def test_control_points_that_maps_do_not_have_are_told(tmp_path: Path) -> None:
    points = [
        GroundControlPoint(row, column, 7 + column / 10, 50 - row / 10)
        for row in (0, 5)
        for column in (0, 7)
    ]
    with write(tmp_path / "t.tif", np.ones((1, 6, 8), np.float32)) as file:
        file.gcps = (points, rasterio.crs.CRS.from_epsg(4326))
    with pytest.warns(DaskclustWarning, match=r"4 ground control points.* gdalwarp"):
        daskclust.open_cube(tmp_path / "t.tif")


def test_polygons_that_the_edge_of_a_projection_cuts_are_refused(tmp_path: Path) -> None:
    mercator = {"crs": "EPSG:3857", "transform": from_origin(-2.0037e7, 8e6, 1e6, 1e6)}
    cube = place(tmp_path, **mercator)
    box = (600_000, 8_700_000, 900_000, 9_000_000)
    path = polygons(tmp_path / "p.geojson", [(box, "reef")], "urn:ogc:def:crs:EPSG::32760")
    with pytest.raises(ValueError, match=r"Feature 0 of .* crosses an edge"):
        cube.rows_of(path)


def test_coordinates_that_are_no_degrees_are_told(tmp_path: Path) -> None:
    cube = place(tmp_path, **UTM)
    box = (600_010, 5_199_900, 600_050, 5_199_950)
    path = polygons(tmp_path / "p.geojson", [(box, "wheat")], "urn:ogc:def:crs:XYZ::99")
    with pytest.raises(ValueError, match=r"must have coordinates in degrees, .* got values up to"):
        cube.rows_of(path)

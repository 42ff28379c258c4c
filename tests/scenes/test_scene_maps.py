"""Labels from files of any kind, and maps that GIS open."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
import zarr
from numpy.testing import assert_array_equal

from daskclust.exceptions import DaskclustWarning
from daskclust.scenes.formats import geotiff

rasterio = pytest.importorskip("rasterio", reason="needs the extra `raster`")
xarray = pytest.importorskip("xarray", reason="needs the extra `raster`")
pytest.importorskip("rioxarray", reason="needs the extra `raster`")
pytest.importorskip("pyogrio", reason="needs the extra `raster`")

from pyproj import CRS, Transformer  # noqa: E402
from rasterio.transform import from_origin  # noqa: E402

from daskclust import SemiSupervisedKMeans, open_cube  # noqa: E402
from daskclust.scenes import write_together  # noqa: E402

SHAPE = 40, 50


@pytest.fixture
def scene(tmp_path: Path) -> Path:
    values = np.random.default_rng(0).integers(0, 3000, (3, *SHAPE)).astype("int16")
    values[:, :5, :5] = -9999
    return write_raster(tmp_path / "scene.tif", values)


def write_raster(path: Path, values: np.ndarray, **more: Any) -> Path:
    options = {
        "height": SHAPE[0],
        "width": SHAPE[1],
        "count": len(values),
        "dtype": values.dtype.name,
        "crs": "EPSG:32632",
        "transform": from_origin(600_000, 5_200_000, 30, 30),
        "nodata": -9999,
        **more,
    }
    with rasterio.open(path, "w", driver="GTiff", **options) as file:
        file.write(values)
    return path


# Maps


def test_a_label_map_as_geotiff(scene: Path, tmp_path: Path) -> None:
    cube = open_cube(scene, chunks=(16, 32))
    labels = np.arange(cube.n_valid) % 3
    path = cube.write_labels(
        labels, tmp_path / "m.tif", class_names=["wheat", "sugar beet"], n_clusters=3
    )
    assert path == tmp_path / "m.tif"
    with rasterio.open(path) as file:
        image = file.read(1)
        assert file.crs.to_epsg() == 32632
        assert file.transform == from_origin(600_000, 5_200_000, 30, 30)
        assert file.nodata == 255
        assert file.tags()["daskclust"] == "label map"
        assert len({file.colormap(1)[k] for k in range(3)}) == 3
        assert file.tags(ns="IMAGE_STRUCTURE")["LAYOUT"] == "COG"
    assert_array_equal(image, cube.to_map(labels, fill_value=255).compute())
    # And back, with names.
    rows, found = cube.rows_of(path)
    assert_array_equal(found, labels)
    assert_array_equal(rows, np.arange(cube.n_valid))
    assert cube.open_map("map", path).meanings == {0: "wheat", 1: "sugar beet", 2: "cluster_2"}
    with pytest.raises(FileExistsError, match="exists already"):
        cube.write_labels(labels, path)
    cube.write_labels(labels[::-1].copy(), path, overwrite=True)
    assert_array_equal(cube.rows_of(path)[1], labels[::-1])
    before = scene.read_bytes()
    with pytest.raises(FileExistsError, match="was not written by daskclust"):
        cube.write_labels(labels, scene, overwrite=True)
    assert scene.read_bytes() == before
    with pytest.raises(ValueError, match="Labels must be from"):
        cube.write_labels(labels * 200, tmp_path / "n.tif", n_clusters=3)
    assert not list(tmp_path.glob("*n.tif*"))


def test_names_that_are_not_taken_are_told(scene: Path) -> None:
    cube = open_cube(scene, chunks=(16, 32))
    numbers, store = np.arange(cube.n_valid) % 2, zarr.storage.MemoryStore
    with pytest.warns(DaskclustWarning, match="give class_names"):
        cube.write_labels(numbers, store(), classes=["dry soil", "water"])
    told = cube.write_labels(numbers, store(), classes=["a", "b"], class_names=["dry soil", "b"])
    assert told["labels"].attrs["class_names"] == {"0": "dry soil", "1": "b"}


def test_classes_beside_a_map_are_its_own(
    scene: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cube = open_cube(scene, chunks=(16, 32))
    labels, place, beside = np.arange(cube.n_valid) % 3, tmp_path / "m.tif", "m.tif.aux.xml"
    plainly = geotiff._write_categories

    def later(*where: Any) -> None:
        monkeypatch.setattr(geotiff, "_write_categories", plainly)
        plainly(*where)
        cube.write_labels(labels, place, class_names=["a", "b", "c"])

    # Another process was quicker: the loser left its names beside the map of the other.
    monkeypatch.setattr(geotiff, "_write_categories", later)
    with pytest.raises(FileExistsError, match="exists already"):
        cube.write_labels(labels, place, class_names=["x", "y", "z"], n_clusters=3)
    assert "<Category>a</Category>" in (tmp_path / beside).read_text()
    # Codes without a table of names: those of the map that is replaced stayed.
    cube.write_labels(labels * 40_000, place, n_clusters=90_000, overwrite=True)
    assert [path.name for path in tmp_path.iterdir() if "m.tif" in path.name] == ["m.tif"]


def test_maps_of_numbers(scene: Path, tmp_path: Path) -> None:
    cube = open_cube(scene, chunks=(16, 32))
    values = np.random.default_rng(1).random((cube.n_valid, 2)).astype("float32")
    wanted = np.stack([cube.to_map(values[:, k], fill_value=np.nan).compute() for k in (0, 1)])
    cube.write_map(values, tmp_path / "p.tif", names=["one", "two"])
    with rasterio.open(tmp_path / "p.tif") as file:
        assert_array_equal(file.read(), wanted)
        assert file.descriptions == ("one", "two")
        assert np.isnan(file.nodata)
    written = cube.write_map(values, tmp_path / "p.zarr")
    assert_array_equal(written["values"][:], wanted)
    assert_array_equal(cube.write_map(values[:, 0], tmp_path / "o.zarr")["values"][:], wanted[0])
    with pytest.raises(FileExistsError, match="is a map of values"):
        cube.write_labels(np.zeros(cube.n_valid, int), tmp_path / "p.zarr", overwrite=True)
    with pytest.raises(ValueError, match="one name for each of the 2 bands, got 3"):
        cube.write_map(values, tmp_path / "q.tif", names=["a", "b", "c"])
    with pytest.raises(ValueError, match="labels for"):
        cube.write_map(values[1:], tmp_path / "q.tif")


# Labels


@pytest.mark.parametrize("endings", [("tif", "zarr"), ("zarr", "zarr"), ("tif", "tif")])
def test_maps_that_are_written_together_are_those_of_single_writes(
    scene: Path, tmp_path: Path, endings: tuple[str, str]
) -> None:
    cube = open_cube(scene, chunks=(16, 32))
    labels = da.from_array(np.arange(cube.n_valid) % 3, chunks=100)
    values = da.from_array(np.linspace(0, 1, cube.n_valid), chunks=100)
    paths = [tmp_path / f"{n}{k}.{end}" for n in ("one", "two") for k, end in enumerate(endings)]
    single = cube.write_labels(labels, paths[0]), cube.write_map(values, paths[1])
    writers = [
        cube.write_labels(labels, paths[2], compute=False),
        cube.write_map(values, paths[3], compute=False),
    ]
    assert not paths[2].exists()
    together = write_together(*writers)
    for own, other in zip(single, together, strict=True):
        if isinstance(own, Path):
            assert own.read_bytes() == other.read_bytes()
        else:
            assert sorted(own) == sorted(other)
            for name in own:
                assert_array_equal(own[name][...], other[name][...])
    with pytest.raises(ValueError, match="must be used once"):
        write_together(*writers)


def test_a_map_that_fails_leaves_no_other(scene: Path, tmp_path: Path) -> None:
    cube = open_cube(scene, chunks=(16, 32))
    labels = da.from_array(np.arange(cube.n_valid) % 3, chunks=100)

    def fail(block: np.ndarray) -> np.ndarray:
        raise RuntimeError("no values")

    broken = da.from_array(np.zeros(cube.n_valid), chunks=100).map_blocks(fail, dtype=float)
    paths = tmp_path / "labels.tif", tmp_path / "values.zarr"
    with pytest.raises(RuntimeError, match="no values"):
        write_together(
            cube.write_labels(labels, paths[0], compute=False),
            cube.write_map(broken, paths[1], compute=False),
        )
    assert not any(path.exists() for path in paths)
    assert [path.name for path in tmp_path.iterdir()] == [scene.name]


def test_labels_from_polygons_points_and_rasters(scene: Path, tmp_path: Path) -> None:
    cube = open_cube(scene, chunks=(16, 32))
    to_degrees = Transformer.from_crs("EPSG:32632", "EPSG:4326", always_xy=True)

    def square(top: int, left: int, name: str) -> dict[str, Any]:
        corners = [(left, top), (left + 4, top), (left + 4, top + 3), (left, top + 3), (left, top)]
        ring = [to_degrees.transform(600_000 + 30 * x, 5_200_000 - 30 * y) for x, y in corners]
        geometry = {"type": "Polygon", "coordinates": [ring]}
        return {"type": "Feature", "properties": {"crop": name}, "geometry": geometry}

    features = [square(10, 10, "wheat"), square(30, 40, "beet")]
    vector = tmp_path / "fields.geojson"
    vector.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    rows, labels = cube.rows_of(vector)
    image = np.full(SHAPE, -1, "int16")
    image[10:13, 10:14], image[30:33, 40:44] = 1, 0  # by name
    wanted = cube.rows_of(image)
    assert_array_equal(rows, wanted[0])
    names = np.array(["beet", "wheat"])
    assert_array_equal(labels, names[wanted[1]])
    # No value of the user's means a name, of an opened image neither.
    assert_array_equal(cube.rows_of(vector, unlabeled=0)[1], labels)
    opened = cube.open_map("labels", vector)
    assert opened.meanings == {0: "beet", 1: "wheat"}
    assert_array_equal(cube.rows_of(opened, unlabeled=0)[1], labels)
    model = SemiSupervisedKMeans(2, random_state=0).fit(cube, (rows, labels))
    assert model.classes_.tolist() == ["beet", "wheat"]
    table = tmp_path / "pixels.csv"
    y, x = np.nonzero(image >= 0)
    table.write_text(
        "row,column,kind\n" + "".join(f"{r},{c},{image[r, c]}\n" for r, c in zip(y, x, strict=True))
    )
    raster = write_raster(tmp_path / "few.tif", image[None], nodata=-1)
    for source in (table, raster):
        found = cube.rows_of(source)
        assert_array_equal(found[0], wanted[0])
        assert_array_equal(found[1], wanted[1])
    with pytest.raises(KeyError, match="no column 'x'"):
        cube.rows_of(table, class_column="x")
    with pytest.raises(ValueError, match="has no columns"):
        cube.rows_of(raster, class_column="kind")
    far = write_raster(
        tmp_path / "far.tif", image[None], nodata=-1, transform=from_origin(0, 0, 30, 30)
    )
    with pytest.raises(ValueError, match="lies elsewhere"):
        cube.rows_of(far)
    features[:] = [square(1000, 1000, "out")]
    vector.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    with pytest.raises(ValueError, match="None of the 1 features"):
        cube.rows_of(vector)


def test_codes_beyond_a_map_are_refused_before_anything_is_computed(
    scene: Path, tmp_path: Path
) -> None:
    cube = open_cube(scene)

    def never(block: np.ndarray) -> np.ndarray:
        raise AssertionError("computed")

    zeros = da.zeros(cube.n_valid, dtype=np.int64, chunks=(cube.block_counts,))
    lazy = zeros.map_blocks(never, dtype=np.int64, meta=np.empty(0, np.int64))
    large = np.full(cube.n_valid, 2**31 - 1)
    for name in ("m.zarr", "m.tif"):
        for labels, more in ((large, {}), (lazy, {"class_names": {2**40: "far"}})):
            with pytest.raises(ValueError, match="at most 2147483646, the largest in a label map"):
                cube.write_labels(labels, tmp_path / name, **more)
    assert not list(tmp_path.glob("*m.*"))


@pytest.mark.slow
def test_a_geotiff_holds_codes_beyond_two_bytes(scene: Path, tmp_path: Path) -> None:
    cube = open_cube(scene)
    path = cube.write_labels(
        np.arange(cube.n_valid) + 70_000, tmp_path / "m.tif", n_clusters=80_000
    )
    assert_array_equal(cube.rows_of(path)[1], np.arange(cube.n_valid) + 70_000)


def test_text_labels_become_codes_with_names(scene: Path, tmp_path: Path) -> None:
    cube = open_cube(scene, chunks=(16, 32))
    codes = np.arange(cube.n_valid) % 2
    text = np.array(["beet", "wheat"])[codes]
    lazy = da.from_array(text, chunks=(cube.block_counts,))
    wanted = cube.to_map(codes).compute()
    assert_array_equal(cube.to_map(text).compute(), wanted)
    assert_array_equal(cube.to_map(lazy, classes=["beet", "wheat"]).compute(), wanted)
    hidden = np.ma.masked_where(np.arange(len(text)) == 7, text)
    assert (cube.to_map(hidden).compute() != wanted).sum() == 1
    found = cube.to_xarray(lazy, classes=np.array(["beet", "wheat"]))
    assert found.attrs["flag_meanings"] == "beet wheat"
    for name in ("t.zarr", "t.tif"):
        path = tmp_path / name
        cube.write_labels(lazy, path, classes=["beet", "wheat"], class_names={1: "Wheat"})
        assert_array_equal(cube.rows_of(str(path))[1], codes)
        assert cube.open_map("m", str(path)).meanings == {0: "beet", 1: "Wheat"}
    for call in (cube.to_map, cube.to_xarray, lambda y: cube.write_labels(y, tmp_path / "n")):
        with pytest.raises(ValueError, match="require classes="):
            call(lazy)
    cube.write_map(np.zeros((cube.n_valid, 2), "f4"), tmp_path / "n.tif", names=np.array([3, 7]))
    with rasterio.open(tmp_path / "n.tif") as file:
        assert file.descriptions == ("3", "7")


# Coordinate systems


@pytest.mark.filterwarnings("ignore:.* labeled pixels are left out")
def test_systems_are_compared_by_what_they_are(scene: Path, tmp_path: Path) -> None:
    cube = open_cube(scene)
    image = np.zeros(SHAPE, "int16")
    group = zarr.open_group(zarr.storage.MemoryStore(), mode="w")
    array = group.create_array("labels", data=image, dimension_names=("y", "x"))
    for said in (
        {"proj:code": "EPSG:32632"},
        {"proj:projjson": CRS.from_epsg(32632).to_json_dict()},
        {"proj:wkt2": CRS.from_epsg(32632).to_wkt(pretty=True)},
        {"crs": "epsg:32632"},
    ):
        array.attrs.put(said)
        assert len(cube.rows_of(group)[0]) == cube.n_valid
    array.attrs.put({"proj:code": "EPSG:32633"})
    with pytest.raises(ValueError, match=r"lies elsewhere than the cube: its .*EPSG:32633"):
        cube.rows_of(group)


def test_a_system_that_xarray_made_a_variable_is_found(tmp_path: Path) -> None:
    data = xarray.DataArray(
        np.ones((4, 5, 2), "int16"),
        dims=("y", "x", "band"),
        coords={"y": np.arange(4.0), "x": np.arange(5.0)},
        name="cube",
    ).to_dataset()
    data = data.rio.write_crs("EPSG:32632")
    data.to_zarr(tmp_path / "s.zarr", zarr_format=3, consolidated=False)
    opened = xarray.open_zarr(tmp_path / "s.zarr", consolidated=False)
    assert "spatial_ref" in opened.data_vars
    cube = open_cube(opened)
    found = cube.to_xarray(np.zeros(20, "int16"))
    assert found.rio.crs.to_epsg() == 32632

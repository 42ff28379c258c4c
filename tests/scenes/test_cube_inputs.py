"""Cubes from elsewhere than a Zarr folder, label maps from stores, and georeferences."""

from __future__ import annotations

import re
import uuid

import dask
import dask.array as da
import numpy as np
import pytest
import zarr
from numpy.testing import assert_array_equal

import daskclust
from daskclust import open_cube
from daskclust.scenes._georeference import Coordinate, Georeference

DIMS = ("y", "x", "band")


def scene(shape=(23, 19), n_bands=4):
    return daskclust.datasets.make_hyperspectral_cube(
        zarr.storage.MemoryStore(),
        shape=shape,
        n_bands=n_bands,
        n_classes=3,
        chunks=(7, 5),
        nodata_fraction=0.3,
        random_state=0,
    )


@pytest.fixture(scope="module")
def group():
    return scene()


# Shards


# Arrays and xarray objects


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1)])
@pytest.mark.parametrize("kind", ["numpy", "dask"])
@pytest.mark.parametrize("scale", ["none", "standard"])
def test_arrays_are_cubes_too(group, order, kind, scale):
    values = group["cube"][:].transpose(order)
    names = tuple(DIMS[axis] for axis in order)
    if kind == "dask":
        values = da.from_array(values, chunks=tuple((7, 5, 2)[axis] for axis in order))
    same = open_cube(group, chunks=(7, 5), scale=scale)
    cube = open_cube(values, dims=names, nodata=-9999, chunks=(7, 5), scale=scale)
    assert_array_equal(cube.samples.compute(), same.samples.compute())
    assert_array_equal(cube.valid.compute(), same.valid.compute())
    labels = np.arange(cube.n_valid)
    assert_array_equal(cube.to_map(labels).compute(), same.to_map(labels).compute())
    written = cube.write_labels(labels, zarr.storage.MemoryStore())
    assert_array_equal(written["labels"][:], same.to_map(labels).compute())
    assert_array_equal(cube.rows_of(group["truth"])[0], same.rows_of(group["truth"])[0])


def test_dask_cubes_are_cut_along_their_chunks(group):
    values = da.from_array(group["cube"][:], chunks=(8, 6, 1))
    with dask.config.set({"daskclust.persist": False}):
        cube = open_cube(
            values, dims=DIMS, nodata=-9999, bad_bands=[1], mask=group["truth"][:] == 0
        )
        assert cube.chunks == ((8, 8, 7), (6, 6, 6, 1))
        model = daskclust.KMeans(3, random_state=0).fit(cube.samples)
        assert model.labels_.chunks == (cube.samples.chunks[0],)
    assert cube.valid.compute().sum() == (group["truth"][:] > 0).sum()


def test_what_no_cube_can_be_made_of():
    with pytest.raises(ValueError, match="order cannot be guessed"):
        open_cube(np.zeros((2, 2, 2)))
    with pytest.raises(ValueError, match=r"daskclust.open_table"):
        open_cube(np.zeros((2, 2)), dims=("y", "x"))
    with pytest.raises(ValueError, match="none of them empty"):
        open_cube(np.zeros((2, 0, 2)), dims=DIMS)
    with pytest.raises(ValueError, match="must contain numbers"):
        open_cube(np.full((2, 2, 2), "a"), dims=DIMS)
    with pytest.raises(ValueError, match="Omit variable"):
        open_cube(np.zeros((2, 2, 2)), dims=DIMS, variable="cube")


@pytest.fixture
def dataset(group):
    xarray = pytest.importorskip("xarray")
    values = group["cube"][:]
    values[group["truth"][:] < 0] = np.nan
    cube = xarray.DataArray(
        values.transpose(2, 0, 1),
        {
            "band": np.arange(4),
            "wavelength": ("band", [0.4, 0.5, 0.6, 0.7], {"units": "um"}),
            "y": np.linspace(50, 40, 23),
            "x": np.linspace(1, 2, 19),
            "spatial_ref": ((), 0, {"crs_wkt": "the plane", "GeoTransform": "1 0 0 0 1 0"}),
        },
        ("band", "y", "x"),
        attrs={"grid_mapping": "spatial_ref"},
    )
    height = cube[0].drop_vars(["wavelength", "band"])
    return xarray.Dataset({"reflectance": cube, "height": height})


def test_xarray_in_and_out(dataset, group, tmp_path):
    xarray = pytest.importorskip("xarray")
    same = open_cube(group, chunks=(23, 19))
    labels = np.arange(same.n_valid) % 3
    dataset.to_zarr(tmp_path / "scene.zarr", zarr_format=2)
    with (
        xarray.open_zarr(tmp_path / "scene.zarr") as chunked,
        xarray.open_zarr(tmp_path / "scene.zarr", chunks=None) as unread,
    ):
        for item in (dataset, dataset.reflectance, chunked, unread):
            cube = open_cube(item, chunks=(23, 19))
            assert_array_equal(cube.samples.compute(), same.samples.compute())
            assert cube.wavelengths.tolist() == [400, 500, 600, 700]
            assert cube.dimension_names == ("y", "x")
            out = cube.to_xarray(labels, class_names=["a", "b", "c"])
            assert_array_equal(out.values, same.to_map(labels).compute())
            assert_array_equal(out.y, dataset.y)
            assert out.spatial_ref.attrs["crs_wkt"] == "the plane"
            assert out.attrs["flag_meanings"] == "a b c"
        written = cube.write_labels(labels, tmp_path / "labels.zarr")
    assert written["spatial_ref"].attrs["crs_wkt"] == "the plane"
    assert written["labels"].attrs["grid_mapping"] == "spatial_ref"
    out.to_dataset().to_zarr(tmp_path / "out.zarr", zarr_format=2)
    for name in ("out.zarr", "labels.zarr"):
        with xarray.open_zarr(tmp_path / name, consolidated=False) as back:
            assert_array_equal(np.isnan(back.labels), out.values == -1)
            assert_array_equal(back.y, dataset.y)
            # As xarray decodes it, float with NaN, and as it is stored.
            for label_map in (back.labels, tmp_path / name):
                assert_array_equal(cube.rows_of(label_map)[1], labels)
    stored = open_cube(tmp_path / "scene.zarr", chunks=(23, 19))
    assert_array_equal(stored.samples.compute(), same.samples.compute())
    assert_array_equal(stored.to_xarray(labels).y, dataset.y)


def test_datasets_are_checked(dataset):
    with pytest.raises(KeyError, match="No variable 'other'"):
        open_cube(dataset, variable="other")
    with pytest.raises(ValueError, match="Omit variable"):
        open_cube(dataset.reflectance, variable="reflectance")
    with pytest.raises(ValueError, match="2 three-dimensional"):
        open_cube(dataset.assign(second=dataset.reflectance))
    with pytest.raises(ValueError, match="must have three dimensions"):
        open_cube(dataset.height)


def test_wavelength_units(group):
    values = group["cube"][:]

    def centers(**attributes):
        parent = zarr.open_group(zarr.storage.MemoryStore(), mode="w")
        array = parent.create_array(
            "cube", shape=values.shape, dtype="f4", dimension_names=DIMS, attributes=attributes
        )
        return open_cube(array).wavelengths

    assert centers(wavelength=[1, 2, 3, 4], wavelength_units="µm").tolist() == [1e3, 2e3, 3e3, 4e3]
    assert centers(wavelengths=[1, 2, 3, 4], wavelength_units="nm").tolist() == [1, 2, 3, 4]
    found = centers(wavelength=[20_000, 10_000, 5_000, 2_500], wavelength_units="cm-1")
    assert found.tolist() == [500, 1000, 2000, 4000]
    assert centers(wavelength=[1, 2, 3]) is None
    assert centers(wavelength="red green blue nir") is None


# URLs


def test_a_url_is_read_and_written(group):
    url = f"memory://{uuid.uuid4().hex}/scene.zarr"
    copy = zarr.open_group(url, mode="w")
    array = copy.create_array(
        "cube",
        shape=group["cube"].shape,
        chunks=group["cube"].chunks,
        dtype="f4",
        dimension_names=DIMS,
        attributes=dict(group["cube"].attrs),
    )
    array[...] = group["cube"][...]
    cube = open_cube(url)
    assert_array_equal(cube.samples.compute(), open_cube(group).samples.compute())
    target = url.replace("scene", "labels")
    labels = np.zeros(cube.n_valid, int)
    cube.write_labels(labels, target)
    assert_array_equal(cube.rows_of(target)[1], labels)
    with pytest.raises(FileExistsError):
        cube.write_labels(labels, target)
    model = daskclust.KMeans(2, random_state=0).fit(cube.samples)
    model.save(url.replace("scene", "model"))
    loaded = daskclust.load(url.replace("scene", "model"))
    assert_array_equal(loaded.predict(cube.samples), model.labels_)


def test_a_url_that_nothing_can_open(monkeypatch):
    with pytest.raises(FileNotFoundError, match="must be a Zarr group or a Zarr array"):
        open_cube("memory://nothing/there.zarr")
    with pytest.raises(ValueError, match=r"'coop://pigeon/x' cannot be opened.*fsspec package"):
        open_cube("coop://pigeon/x")

    def missing(protocol):
        raise ImportError("Install s3fs to access S3")

    monkeypatch.setattr("fsspec.core.get_filesystem_class", missing)
    with pytest.raises(ImportError, match=r"Install s3fs.*fsspec package"):
        open_cube("s3://bucket/x.zarr")


# Label maps and masks from stores


def test_label_maps_from_stores(group, tmp_path):
    cube = open_cube(group)
    truth = group["truth"][:]
    rows, labels = cube.rows_of(truth)
    store = zarr.open_group(tmp_path / "t.zarr", mode="w")

    def put(name, values, names=None, **attributes):
        array = store.create_array(
            name,
            shape=values.shape,
            chunks=(4, 4),
            dtype=values.dtype,
            dimension_names=names,
            attributes=attributes,
        )
        array[...] = values

    put("truth", truth, ("y", "x"), _FillValue=-1)
    for source in (tmp_path / "t.zarr", str(tmp_path / "t.zarr"), store, store["truth"]):
        assert_array_equal(cube.rows_of(source), (rows, labels))
    # Classes from 1, 0 declared as none; and stored on its side.
    put("upright", (truth + 1).T.astype(np.uint8), ("x", "y"), nodata=0)
    found = cube.rows_of(tmp_path / "t.zarr", variable="upright")
    assert_array_equal(found, (rows, labels + 1))
    with pytest.raises(ValueError, match="2 two-dimensional arrays"):
        cube.rows_of(store)
    with pytest.raises(KeyError, match="No array 'other'"):
        cube.rows_of(store, variable="other")
    with pytest.raises(ValueError, match="is a single array"):
        cube.rows_of(truth, variable="truth")
    put("other", truth[:-1])
    with pytest.raises(ValueError, match=r"shape of the image, \(23, 19\), got \(22, 19\)"):
        cube.rows_of(store, variable="other")
    put("mask", truth == 0)
    masked = open_cube(group, mask=store["mask"])
    assert masked.n_valid == (truth > 0).sum()


HERE = Georeference(
    {"grid_mapping": "crs"},
    {},
    {
        "crs": Coordinate((), np.int32(0), {"crs_wkt": "PLANE[1]", "GeoTransform": "1 2 0 3 0 4"}),
        "y": Coordinate(("y",), np.array([5.0, 9.0])),
    },
)


@pytest.mark.parametrize(
    ("there", "differs"),
    [
        (HERE, ""),
        (Georeference(), ""),
        (Georeference({"crs_wkt": "PLANE[1]"}), ""),
        (
            Georeference({"crs_wkt": "PLANE[2]"}),
            "system is unknown: PLANE\\[2\\], the cube's unknown: PLANE",
        ),
        (Georeference({"GeoTransform": [1, 2, 0, 3, 0, 4]}), ""),
        (Georeference({}, {"GeoTransform": [1, 2, 0, 3, 0, 5]}), r"2 x 5 .*, the cube's .* 2 x 4 "),
        (Georeference({}, {}, {"y": Coordinate(("y",), np.array([5.0, 9.0 + 1e-12]))}), ""),
        (Georeference({}, {}, {"y": Coordinate(("y",), np.array([9.0, 5.0]))}), "coordinate 'y'"),
        (Georeference({}, {}, {"y": Coordinate(("y",), np.array([1.0]))}), "coordinate 'y'"),
    ],
)
def test_differences_of_place(there, differs):
    found = HERE.differences(there)
    assert bool(found) == bool(differs)
    if differs:
        assert re.search(differs, found[0])


def test_a_label_map_of_another_place_is_refused(group, tmp_path):
    values = group["cube"][:]
    parent = zarr.open_group(tmp_path / "c.zarr", mode="w", attributes={"proj:code": "EPSG:32632"})
    parent.create_array("cube", data=values, dimension_names=DIMS)
    cube = open_cube(tmp_path / "c.zarr")
    labels = cube.write_labels(np.zeros(cube.n_valid, int), tmp_path / "l.zarr")
    assert len(cube.rows_of(labels)[0]) == cube.n_valid
    zarr.open_group(tmp_path / "l.zarr", mode="a").attrs["proj:code"] = "EPSG:4326"
    with pytest.raises(ValueError, match=r"EPSG:4326.*Reproject"):
        cube.rows_of(tmp_path / "l.zarr")
    with pytest.raises(ValueError, match="mask lies elsewhere"):
        open_cube(tmp_path / "c.zarr", mask=tmp_path / "l.zarr")
    assert len(cube.rows_of(labels["labels"][:])[0]) == cube.n_valid


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"bad_bands": [1, 0, 0, 1]}, "each band number once, or booleans"),
        (
            {"mask": ("clouds", np.zeros((3, 2), bool))},
            r"pair \(array .* tuple of 2 items",
        ),
        ({"mask": ["scene.nc", "clouds"]}, "list of 2 items with text"),
    ],
)
def test_arguments_that_would_be_taken_for_something_else_are_refused(given, match):
    with pytest.raises(ValueError, match=match):
        open_cube(np.zeros((3, 2, 4)), dims=("y", "x", "band"), **given)


def test_a_variable_that_is_no_name_is_refused(tmp_path):
    group = zarr.create_group(tmp_path / "g.zarr")
    group.create_array("a", data=np.zeros((3, 2, 4)))
    with pytest.raises(KeyError, match="No array 1 in the store"):
        open_cube(tmp_path / "g.zarr", variable=1)

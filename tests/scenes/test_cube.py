"""Cubes: which pixels become which rows, and labels back to the right pixels."""

from __future__ import annotations

import pickle

import dask
import dask.array as da
import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from daskclust.core.storage.stores import decode_fill_value, encode_fill_value
from daskclust.datasets import make_hyperspectral_cube
from daskclust.exceptions import ChunkError, PerformanceWarning
from daskclust.scenes import open_cube


def make_array(values, chunks, *, names=("y", "x", "band"), store=None, **attributes):
    group = zarr.open_group(zarr.storage.MemoryStore() if store is None else store, mode="w")
    array = group.create_array(
        "cube",
        shape=values.shape,
        chunks=chunks,
        dtype=values.dtype,
        dimension_names=names,
        attributes=attributes,
    )
    array[...] = values
    return group


def expected_rows(values, valid, block):
    """Row numbers by an independent route: sort the valid pixels by block, then by line."""
    y, x = np.nonzero(valid)
    order = np.lexsort((x, y, x // block[1], y // block[0]))
    return values[y[order], x[order]], (y[order], x[order])


def random_cube(seed, shape=(23, 19, 5), nodata=-9):
    rng = np.random.default_rng(seed)
    values = rng.integers(0, 1000, shape).astype(np.int16)
    gone = rng.random(shape[:2]) < 0.3
    gone[:8, :8] = True  # a block without any valid pixel
    values[gone] = nodata
    return values, ~gone


@pytest.fixture
def example():
    values, valid = random_cube(0)
    return make_array(values, (7, 5, 5), _FillValue=-9), values, valid


# Samples


def test_samples_are_the_valid_pixels_in_block_order(example):
    group, values, valid = example
    cube = open_cube(group)
    rows, _ = expected_rows(values, valid, (7, 5))
    assert cube.samples.numblocks == (16, 1)
    assert not np.isnan(cube.samples.shape).any()
    assert cube.samples.shape == (valid.sum(), 5)
    assert 0 in cube.samples.chunks[0]  # the block without valid pixels stays, empty
    assert cube.samples.dtype == np.float32
    assert_array_equal(cube.samples.compute(), rows)
    assert_array_equal(cube.valid.compute(), valid)
    assert cube.valid.chunks == cube.chunks == ((7, 7, 7, 2), (5, 5, 5, 4))
    assert cube.n_valid == valid.sum()
    assert cube.n_masked == (~valid).sum()
    assert "23 x 19" in repr(cube)


@pytest.mark.parametrize("names", [("band", "y", "x"), ("Latitude", "bands", "lon"), None])
def test_dimensions_go_by_name(example, names):
    _, values, valid = example
    order = (2, 0, 1) if names is None or names[0] == "band" else (0, 2, 1)
    stored = values.transpose(order)
    chunks = np.array([7, 5, 2])[list(order)]  # bands spread over chunks, too
    group = make_array(stored, tuple(int(c) for c in chunks), names=names, _FillValue=-9)
    cube = open_cube(group, dims=("band", "row", "column") if names is None else None)
    rows, _ = expected_rows(values, valid, (7, 5))
    assert cube.samples.numblocks == (16, 1)
    assert_array_equal(cube.samples.compute(), rows)
    assert (
        cube.dimension_names
        == {0: ("row", "column"), 1: ("Latitude", "lon"), 2: ("y", "x")}[
            0 if names is None else 1 if names[0] == "Latitude" else 2
        ]
    )


def test_zarr_v2(example, tmp_path):
    _, values, valid = example
    group = zarr.open_group(tmp_path / "v2.zarr", mode="w", zarr_format=2)
    array = group.create_array("cube", shape=values.shape, chunks=(7, 5, 5), dtype=values.dtype)
    array[...] = values
    with pytest.raises(ValueError, match=r'dims=\("y", "x", "band"\)'):
        open_cube(tmp_path / "v2.zarr")
    array.attrs.update({"_ARRAY_DIMENSIONS": ["y", "x", "band"], "missing_value": -9})
    cube = open_cube(str(tmp_path / "v2.zarr"), variable="cube")
    assert_array_equal(cube.valid.compute(), valid)
    alone = open_cube(tmp_path / "v2.zarr" / "cube")
    assert_array_equal(alone.samples.compute(), cube.samples.compute())


def test_shards_are_the_blocks():
    values, valid = random_cube(1, (24, 24, 3))
    group = zarr.open_group(zarr.storage.MemoryStore(), mode="w")
    array = group.create_array(
        "cube",
        shape=values.shape,
        chunks=(4, 4, 3),
        shards=(12, 8, 3),
        dtype=values.dtype,
        dimension_names=("y", "x", "band"),
        attributes={"nodata": -9},
    )
    array[...] = values
    cube = open_cube(group)
    assert cube.chunks == ((12, 12), (8, 8, 8))
    assert_array_equal(cube.samples.compute(), expected_rows(values, valid, (12, 8))[0])


def test_salinas(data_dir):
    path = data_dir / "data" / "hsi_salinas_a.zarr.zip"
    with pytest.raises(ValueError, match="order cannot be guessed"):
        open_cube(path)
    cube = open_cube(path, dims=("y", "x", "band"))
    with np.load(data_dir / "data" / "hsi_salinas_a.npz") as arrays:
        values, truth = arrays["cube"], arrays["gt"]
    rows, (y, x) = expected_rows(values, np.ones(truth.shape, bool), (32, 32))
    assert cube.n_masked == 0
    assert_array_equal(cube.samples.compute(), rows)
    numbers, labels = cube.rows_of(truth, unlabeled=0)
    assert_array_equal(labels, truth[y, x][numbers])
    assert len(labels) == (truth > 0).sum()
    with pytest.raises(ValueError, match="three-dimensional arrays"):
        open_cube(make_array(truth, (32, 32), names=("y", "x")))


def test_zip_store_reaches_other_processes(data_dir):
    cube = open_cube(data_dir / "data" / "hsi_salinas_a.zarr.zip", dims=("y", "x", "band"))
    source = pickle.loads(pickle.dumps(cube._source))
    assert_array_equal(source.read(4), cube._source.read(4))
    with dask.config.set(scheduler="processes", num_workers=1):
        assert cube.samples[:5].sum().compute() == cube.samples[:5].sum().compute(scheduler="sync")


# Nodata, masks, bands


@pytest.mark.parametrize("attribute", ["_FillValue", "missing_value", "nodata"])
@pytest.mark.parametrize("form", ["plain", "base64", "list"])
def test_nodata_attributes(attribute, form):
    values = np.arange(12, dtype=np.float32).reshape(2, 2, 3)
    values[0, 1, 2] = -9999
    value = {
        "plain": -9999.0,
        "base64": encode_fill_value(-9999.0, values.dtype),
        "list": [-9999],
    }[form]
    cube = open_cube(make_array(values, (2, 2, 3), **{attribute: value}))
    assert cube.valid.compute().tolist() == [[True, False], [True, True]]
    ignored = open_cube(make_array(values, (2, 2, 3), **{attribute: value}), nodata=None)
    assert ignored.n_masked == 0
    other = open_cube(make_array(values, (2, 2, 3), **{attribute: value}), nodata=0)
    assert other.valid.compute().tolist() == [[False, True], [True, True]]


def test_nan_is_nodata_but_the_fill_value_of_zarr_is_not():
    values = np.zeros((2, 2, 2), np.float64)
    values[1, 0, 1] = np.nan
    cube = open_cube(make_array(values, (2, 2, 2)))  # fill_value 0
    assert cube.valid.compute().tolist() == [[True, True], [False, True]]
    assert cube.samples.dtype == np.float64


@pytest.mark.parametrize("nodata", [-1, 70_000, 0.5, np.nan, np.inf])
def test_nodata_that_the_dtype_cannot_hold_matches_nothing(nodata):
    values = np.zeros((2, 2, 2), np.uint16)
    values[0, 0] = 65535
    assert open_cube(make_array(values, (1, 2, 2)), nodata=nodata).n_masked == 0


def test_lowest_float32_as_nodata():
    values = np.ones((1, 2, 1), np.float32)
    values[0, 0, 0] = np.finfo(np.float32).min
    assert open_cube(make_array(values, (1, 2, 1)), nodata=-3.4028235e38).n_masked == 1
    assert open_cube(make_array(values, (1, 2, 1)), nodata=-3.4028234663852886e38).n_masked == 1


def test_fill_value_attribute_forms():
    assert decode_fill_value(encode_fill_value(1.5, np.dtype("f4"))) == 1.5
    assert np.isnan(decode_fill_value(encode_fill_value(np.nan, np.dtype("f4"))))
    with pytest.raises(ValueError, match="nodata="):
        decode_fill_value("none given")
    with pytest.raises(ValueError, match="nodata="):
        decode_fill_value([1, 2])


@pytest.mark.parametrize("kind", ["numpy", "list", "dask", "zarr"])
@pytest.mark.parametrize("attribute", [{"_FillValue": -9}, {}])
def test_mask(kind, attribute):
    values, valid = random_cube(3)
    excluded = np.random.default_rng(1).random(values.shape[:2]) < 0.4
    mask = {
        "numpy": lambda: excluded,
        "list": lambda: excluded.tolist(),
        "dask": lambda: da.from_array(excluded, chunks=(10, 4)),
        "zarr": lambda: zarr.array(excluded, chunks=(6, 9)),
    }[kind]()
    cube = open_cube(make_array(values, (7, 5, 5), **attribute), mask=mask)
    both = ~excluded & (valid if attribute else True)
    assert_array_equal(cube.valid.compute(), both)
    assert_array_equal(cube.samples.compute(), expected_rows(values, both, (7, 5))[0])
    labels = np.arange(cube.n_valid)
    assert_array_equal(cube.to_map(labels).compute() >= 0, both)


def test_bad_bands_do_not_count(example):
    values = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    values[0, 0, 1] = np.nan
    group = make_array(values, (1, 3, 4), wavelength=[400.0, 500.0, 600.0, 700.0])
    assert open_cube(group).n_masked == 1
    for bad in ([1], [False, True, False, False], np.array([-3])):
        cube = open_cube(group, bad_bands=bad)
        assert cube.n_masked == 0
        assert cube.shape == (2, 3, 3)
        assert cube.bands.tolist() == [0, 2, 3]
        assert cube.wavelengths.tolist() == [400.0, 600.0, 700.0]
        assert_array_equal(cube.samples.compute(), values.reshape(6, 4)[:, [0, 2, 3]])
    assert open_cube(group, bad_bands=[]).shape == (2, 3, 4)
    for wrong in ([4], [0.5], [True], [0, 1, 2, 3]):
        with pytest.raises(ValueError, match="bad_bands"):
            open_cube(group, bad_bands=wrong)


@pytest.mark.parametrize("dtype", [np.int16, np.int32, np.float32])
def test_incomplete_pixels_can_be_kept(dtype):
    values = np.arange(8, dtype=dtype).reshape(2, 2, 2)
    values[0, 0] = -9
    values[1, 1, 0] = -9
    cube = open_cube(make_array(values, (1, 2, 2)), nodata=-9, incomplete="keep")
    assert cube.n_masked == 1
    assert_array_equal(cube.samples.compute(), [[2, 3], [4, 5], [np.nan, 7]])
    scaled = open_cube(
        make_array(values, (1, 2, 2)), nodata=-9, incomplete="keep", scale="standard"
    )
    assert_allclose(np.nanmean(scaled.samples.compute(), axis=0), 0, atol=1e-6)
    unit = open_cube(make_array(values, (1, 2, 2)), nodata=-9, incomplete="keep", scale="unit")
    assert_allclose(np.nansum(unit.samples.compute() ** 2, axis=1), 1, rtol=1e-6)


def test_wavelengths_beside_the_cube(tmp_path):
    group = make_hyperspectral_cube(tmp_path / "s.zarr", shape=(9, 9), n_bands=11, random_state=0)
    cube = open_cube(group, bad_bands=[0])
    assert_array_equal(cube.wavelengths, group["wavelength"][1:])
    # The array of a store belongs to its group.
    assert_array_equal(open_cube(group["cube"]).wavelengths, group["wavelength"][:])
    assert_array_equal(cube.valid.compute(), group["truth"][:] >= 0)


# Scaling


def test_standard_scale_is_over_valid_pixels():
    values, valid = random_cube(4)
    values = values.astype(np.float64)
    values[valid] += 1e6  # a large mean must cost no digits
    values[..., 3] = np.where(valid, 7.0, -9)  # constant
    cube = open_cube(make_array(values, (3, 2, 5)), nodata=-9, scale="standard")
    got = cube.samples.compute()
    rows, _ = expected_rows(values, valid, (3, 2))
    std = rows.std(axis=0)
    std[3] = 1.0
    assert_allclose(got, (rows - rows.mean(axis=0)) / std, atol=1e-9)


def test_statistics_of_many_blocks_are_merged_in_groups(monkeypatch):
    monkeypatch.setattr("daskclust.scenes.survey._FOLD", 3)
    values, valid = random_cube(5)
    cube = open_cube(make_array(values, (3, 2, 5)), nodata=-9, scale="standard")
    assert_allclose(cube.samples.compute().mean(axis=0), 0, atol=1e-5)
    assert_allclose(cube.samples.compute().std(axis=0), 1, atol=1e-5)
    assert cube.n_valid == valid.sum()


def test_scale_of_another_cube():
    values, _ = random_cube(4)
    group = make_array(values, (7, 5, 5), _FillValue=-9)
    cube = open_cube(group, scale="standard")
    part = open_cube(group, chunks=(7, 5), scale=cube.scaling, bad_bands=[])
    assert_array_equal(part.samples.compute(), cube.samples.compute())
    assert_array_equal(part.scaling, cube.scaling)
    assert open_cube(group).scaling is None
    counter = Counter()
    with dask.config.set(scheduler=counter):
        _ = open_cube(group, nodata=None, scale=cube.scaling).samples
    assert counter.calls == 0
    mean, std = cube.scaling
    for wrong in ((mean, std[:2]), (mean, 0 * std), (mean,), 3, (mean, np.nan * std)):
        with pytest.raises(ValueError, match="scale"):
            open_cube(group, scale=wrong)


def test_unit_scale():
    values = np.array([[[3, 4], [0, 0]]], dtype=np.int16)
    cube = open_cube(make_array(values, (1, 2, 2)), scale="unit")
    assert_allclose(cube.samples.compute(), [[0.6, 0.8], [0, 0]], rtol=1e-6)
    assert cube.samples.dtype == np.float32


# Passes over the store


class Counter:
    """A scheduler that counts its calls."""

    def __init__(self):
        self.calls = 0

    def __call__(self, graph, keys, **kwargs):
        self.calls += 1
        return dask.get(graph, keys, **kwargs)


@pytest.mark.parametrize(
    ("options", "passes"), [({}, 1), ({"nodata": None}, 0), ({"scale": "standard"}, 1)]
)
def test_valid_pixels_are_counted_once(example, options, passes):
    counter = Counter()
    with dask.config.set(scheduler=counter):
        cube = open_cube(example[0], **options)
        _ = cube.valid
        assert counter.calls == 0
        _ = cube.samples, cube.n_valid, cube.n_masked
        _ = cube.to_map(da.zeros(cube.n_valid, chunks=100, dtype=int)), cube.samples
    assert counter.calls == passes


# Labels back


@pytest.mark.parametrize("rechunk", [None, 11])
def test_map_round_trip(example, rechunk):
    group, _, valid = example
    cube = open_cube(group)
    labels = da.arange(cube.n_valid, chunks=(cube.samples.chunks[0],))
    if rechunk:
        labels = labels.rechunk(rechunk)
    image = cube.to_map(labels)
    assert image.chunks == cube.chunks
    values = image.compute()
    assert_array_equal(values >= 0, valid)
    _, at = expected_rows(values, valid, (7, 5))
    assert_array_equal(values[at], np.arange(cube.n_valid))
    assert_array_equal(cube.to_map(np.arange(cube.n_valid)).compute(), values)


def test_map_of_other_dtypes(example):
    cube = open_cube(example[0])
    assert cube.to_map(np.ones(cube.n_valid, np.uint8)).compute().min() == -1
    assert cube.to_map(np.ones(cube.n_valid, np.uint8), fill_value=0).dtype == np.uint8
    shares = cube.to_map(np.full(cube.n_valid, 0.5), fill_value=np.nan).compute()
    assert_array_equal(np.isnan(shares), ~example[2])


def test_labels_of_unknown_block_lengths(example):
    cube = open_cube(example[0])
    labels = cube.samples[:, 0].astype(np.int64)
    unknown = da.map_blocks(
        np.copy, labels, chunks=((np.nan,) * labels.numblocks[0],), dtype=labels.dtype
    )
    assert_array_equal(cube.to_map(unknown).compute(), cube.to_map(labels).compute())
    other = da.map_blocks(np.copy, da.zeros(6, chunks=3), chunks=((np.nan,) * 2,), dtype=float)
    with pytest.raises(ChunkError, match="compute_chunk_sizes"):
        cube.to_map(other)


def test_wrong_number_of_labels(example):
    cube = open_cube(example[0])
    for labels in (np.zeros(3, int), da.zeros(3, dtype=int), np.zeros((3, 1), int)):
        with pytest.raises(ValueError, match=r"labels must have one (value per row|dimension)"):
            cube.to_map(labels)


@given(
    seed=st.integers(0, 2**32 - 1),
    shape=st.tuples(st.integers(1, 12), st.integers(1, 12)),
    stored=st.tuples(st.integers(1, 5), st.integers(1, 5), st.integers(1, 3)),
    chunks=st.none() | st.tuples(st.integers(1, 9), st.integers(1, 9)),
    gaps=st.sampled_from([0.0, 0.3, 0.9, 1.0]),
)
def test_round_trip_over_misaligned_chunks(seed, shape, stored, chunks, gaps):
    rng = np.random.default_rng(seed)
    values = rng.integers(0, 99, (*shape, 3)).astype(np.int16)
    valid = rng.random(shape) >= gaps
    values[~valid] = -9
    group = make_array(values, stored, _FillValue=-9)
    with dask.config.set(scheduler="sync"):
        cube = open_cube(group, chunks=chunks)
        block = chunks or stored[:2]
        rows, (y, x) = expected_rows(values, valid, block)
        assert_array_equal(cube.samples.compute(), rows)
        labels = rng.integers(0, 7, cube.n_valid)
        lazy = da.from_array(labels, chunks=4) if cube.n_valid else labels
        written = cube.write_labels(lazy, zarr.storage.MemoryStore())["labels"]
        truth = np.full(shape, -1)
        truth[y, x] = labels
        assert_array_equal(written[:], truth)
        assert_array_equal(cube.to_map(lazy).compute(), truth)
        numbers, found = cube.rows_of(written)
        assert_array_equal(numbers, np.arange(cube.n_valid))
        assert_array_equal(found, labels)


@pytest.mark.filterwarnings("ignore:.* labeled pixels are left out")
def test_rows_of(example):
    group, values, valid = example
    cube = open_cube(group)
    rng = np.random.default_rng(0)
    truth = rng.integers(-1, 4, valid.shape).astype(np.int8)
    _, at = expected_rows(values, valid, (7, 5))
    flat = truth[at]
    for image in (truth, da.from_array(truth, chunks=(4, 9)), zarr.array(truth, chunks=(23, 3))):
        rows, labels = cube.rows_of(image)
        assert_array_equal(rows, np.flatnonzero(flat >= 0))
        assert_array_equal(labels, flat[flat >= 0])
    for wrong in ("a", "0", 0.5, (0, "a")):
        with pytest.raises(TypeError, match="`unlabeled` must be one or more integers"):
            cube.rows_of(truth, unlabeled=wrong)
    rows, labels = cube.rows_of(truth, unlabeled=(-1, 0))
    assert_array_equal(rows, np.flatnonzero(flat > 0))
    rows, labels = cube.rows_of(truth == 2)
    assert_array_equal(rows, np.flatnonzero(flat == 2))
    assert set(labels) == {1}
    assert len(cube.rows_of(np.full(valid.shape, -1))[0]) == 0
    # NaN is no label.
    floats = np.where(truth < 1, np.nan, truth)
    chunked, stored = da.from_array(floats, chunks=(4, 9)), zarr.array(floats, chunks=(23, 3))
    for image in (floats, chunked, stored, np.ma.masked_invalid(floats), floats.astype("f4")):
        rows, labels = cube.rows_of(image, unlabeled=7)
        assert_array_equal(rows, np.flatnonzero(flat > 0))
        assert_array_equal(labels, flat[flat > 0])
    with pytest.raises(ValueError, match=r"must contain whole numbers, .* dtype float64 with 0\.5"):
        cube.rows_of(np.where(truth == 2, 0.5, truth))
    with pytest.raises(ValueError, match="must have the shape of the image"):
        cube.rows_of(truth[1:])


# Label maps in Zarr


def test_written_labels(tmp_path):
    values, valid = random_cube(6)
    group = make_array(
        values,
        (7, 5, 5),
        names=("lat", "lon", "band"),
        store=tmp_path / "in.zarr",
        _FillValue=-9,
        grid_mapping="crs_here",
        units="1",
        **{"spatial:transform": [1, 0, 0, 0, -0.5, 50.25]},
    )
    group.attrs["proj:code"] = "EPSG:32632"
    group.attrs["title"] = "not the label map's"
    mapping = group.create_array("crs_here", shape=(), dtype="int32")
    mapping.attrs["spatial_ref"] = "x"
    mapping[...] = 3
    lat = group.create_array("lat", shape=(23,), dtype="float64", dimension_names=("lat",))
    lat[:] = np.linspace(50, 39, 23)
    cube = open_cube(tmp_path / "in.zarr")
    labels = np.arange(cube.n_valid) % 3
    written = cube.write_labels(
        labels, tmp_path / "deep" / "out.zarr", class_names=["wheat", "bare soil"]
    )
    array = written["labels"]
    assert array.dtype == np.int16
    assert array.chunks == (7, 5)
    attributes = dict(array.attrs)
    # For GDAL.
    assert attributes.pop("_CRS")["url"].endswith("/EPSG/0/32632")
    assert attributes == {
        "_ARRAY_DIMENSIONS": ["lat", "lon"],
        "long_name": "cluster",
        "grid_mapping": "crs_here",
        "spatial:transform": [1, 0, 0, 0, -0.5, 50.25],
        "_FillValue": -1,
        "flag_values": [0, 1, 2],
        "flag_meanings": "wheat bare_soil cluster_2",
        # With their blanks, which CF does not allow.
        "class_names": {"0": "wheat", "1": "bare soil", "2": "cluster_2"},
        "flag_colors": "#0072b2 #e69f00 #009e73",
    }
    assert dict(written.attrs) == {
        "proj:code": "EPSG:32632",
        "daskclust_written": {"kind": "label map", "members": ["crs_here", "labels", "lat"]},
    }
    assert_array_equal(written["lat"][:], lat[:])
    assert written["crs_here"][()] == 3
    assert written["crs_here"].attrs["spatial_ref"] == "x"
    assert sorted(written.array_keys()) == ["crs_here", "labels", "lat"]
    assert_array_equal(array[:], cube.to_map(labels).compute())
    assert_array_equal(array[:] == -1, ~valid)
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["out.zarr"]


def test_label_dtype(example):
    cube = open_cube(example[0])
    lazy = da.zeros(cube.n_valid, chunks=(cube.samples.chunks[0],), dtype=np.int64)

    def dtype_of(labels, **options):
        return cube.write_labels(labels, zarr.storage.MemoryStore(), **options)["labels"].dtype

    assert dtype_of(lazy) == np.int32
    assert dtype_of(lazy.astype(np.int8)) == np.int16
    assert dtype_of(lazy, n_clusters=3) == np.int16
    assert dtype_of(lazy.compute()) == np.int16
    with pytest.raises(ValueError, match="pass n_clusters="):
        dtype_of(lazy + 40_000, n_clusters=3)
    with pytest.raises(ValueError, match="must be from -1 to"):
        dtype_of(lazy - 2)
    with pytest.raises(ValueError, match="must be integers"):
        dtype_of(lazy.astype(float))


def test_xarray_reads_the_labels(example, tmp_path):
    xarray = pytest.importorskip("xarray")
    cube = open_cube(example[0])
    cube.write_labels(np.zeros(cube.n_valid, int), tmp_path / "l.zarr")
    with xarray.open_zarr(tmp_path / "l.zarr", consolidated=False) as dataset:
        assert_array_equal(np.isnan(dataset["labels"].values), ~example[2])


def test_refusal_to_overwrite(example, tmp_path):
    cube = open_cube(example[0])
    labels = np.zeros(cube.n_valid, int)
    cube.write_labels(labels, tmp_path / "l.zarr")
    with pytest.raises(FileExistsError, match="overwrite=True"):
        cube.write_labels(labels + 1, tmp_path / "l.zarr")
    assert open_cube_labels(tmp_path / "l.zarr").max() == 0
    cube.write_labels(labels + 1, tmp_path / "l.zarr", overwrite=True)
    assert open_cube_labels(tmp_path / "l.zarr").max() == 1
    memory = zarr.storage.MemoryStore()
    cube.write_labels(labels, memory)
    with pytest.raises(FileExistsError, match="overwrite=True"):
        cube.write_labels(labels, memory)
    cube.write_labels(labels, memory, overwrite=True)
    with pytest.raises(TypeError, match="must be a path"):
        cube.write_labels(labels, example[0])


def open_cube_labels(path):
    return zarr.open_group(path, mode="r")["labels"][:]


@pytest.mark.parametrize("scheduler", ["sync", "threads"])
def test_crash_leaves_nothing_and_keeps_the_old(example, tmp_path, monkeypatch, scheduler):
    def left():
        # With threads, a task that was running may write once more below the hidden name.
        names = [path.name for path in tmp_path.iterdir()]
        return [name for name in names if scheduler == "sync" or not name.startswith(".")]

    monkeypatch.setitem(dask.config.config, "scheduler", scheduler)
    cube = open_cube(example[0])
    good = da.zeros(cube.n_valid, chunks=(cube.samples.chunks[0],), dtype=int)

    def fail(block, block_info=None):
        if block_info[0]["chunk-location"][0] == 9:
            raise RuntimeError("a worker died")
        return block

    bad = da.map_blocks(fail, good, dtype=int, meta=np.empty(0, int))
    with pytest.raises(RuntimeError, match="a worker died"):
        cube.write_labels(bad, tmp_path / "l.zarr")
    assert left() == []
    cube.write_labels(good, tmp_path / "l.zarr")
    with pytest.raises(RuntimeError, match="a worker died"):
        cube.write_labels(bad, tmp_path / "l.zarr", overwrite=True)
    assert left() == ["l.zarr"]
    assert open_cube_labels(tmp_path / "l.zarr").max() == 0


def test_target_that_appears_meanwhile_is_kept(example, tmp_path):
    cube = open_cube(example[0])
    zeros = da.zeros(cube.n_valid, chunks=(cube.samples.chunks[0],), dtype=int)

    def intrude(block):
        (tmp_path / "l.zarr").mkdir(exist_ok=True)
        (tmp_path / "l.zarr" / "zarr.json").write_text("{}")
        return block

    with pytest.raises(FileExistsError):
        cube.write_labels(
            da.map_blocks(intrude, zeros, dtype=int, meta=np.empty(0, int)), tmp_path / "l.zarr"
        )
    assert [path.name for path in tmp_path.iterdir()] == ["l.zarr"]


@pytest.mark.parametrize("local", [True, False])
def test_store_that_changed_is_noticed(local, tmp_path):
    values = np.zeros((4, 4, 2), np.int16)
    # Times of chunks are not compared: other pixels are valid.
    store = tmp_path / "c.zarr" if local else zarr.storage.MemoryStore()
    group = make_array(values, (2, 2, 2), store=store, _FillValue=-9)
    group["cube"][0, 0] = -9
    cube = open_cube(group)
    labels = np.zeros(cube.n_valid, int)
    group["cube"][0, 1] = -9
    with pytest.raises(ValueError, match=r"[oO]pen it again"):
        cube.to_map(labels).compute()


# Wrong usage


def test_what_is_not_a_cube(tmp_path, example):
    with pytest.raises(
        FileNotFoundError, match=r"The Zarr store.*does not exist; use the path of an"
    ):
        open_cube(tmp_path / "none.zarr")
    (tmp_path / "text").write_text("")
    with pytest.raises(OSError, match="cannot be read as an image"):
        open_cube(tmp_path / "text")
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match="must be a Zarr group or a Zarr array"):
        open_cube(tmp_path / "empty")
    group = example[0]
    with pytest.raises(KeyError, match="cube"):
        open_cube(group, variable="other")
    with pytest.raises(ValueError, match="single array"):
        open_cube(group["cube"], variable="cube")
    group.create_array("second", shape=(2, 2, 2), dtype="i2")
    with pytest.raises(ValueError, match=r"2 three-dimensional arrays"):
        open_cube(group)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"scale": "other"},
            r"scale must be one of 'none', 'standard', 'unit', 'angle', 'whitened', got 'other'\.",
        ),
        ({"incomplete": "drop"}, r"incomplete must be one of 'mask', 'keep', got 'drop'\."),
        ({"nodata": "none"}, "nodata must be .*, got 'none'"),
        ({"mask": np.zeros((2, 2), bool)}, "mask must have the shape of the image"),
        ({"mask": np.zeros((23, 19))}, "must be bool"),
        ({"dims": ("y", "x", "depth")}, "depth"),
        ({"dims": ("y", "x", "lat")}, "one each"),
        ({"dims": ("y", "x")}, "one each"),
        ({"dims": "yxb"}, "dims must be three names"),
        ({"chunks": (0, 4)}, "positive integers"),
        ({"chunks": (2, 4, 4)}, "positive integers"),
    ],
)
def test_parameters_are_checked(example, options, message):
    with pytest.raises(ValueError, match=message):
        open_cube(example[0], **options)


def test_too_large_blocks_are_divided(monkeypatch, example):
    monkeypatch.setattr("daskclust.scenes._metadata._BLOCK_BYTES", 200)
    _, values, valid = example
    group = make_array(values, (23, 19, 1), _FillValue=-9)  # one band per chunk
    with pytest.warns(PerformanceWarning, match="Rechunk the store"):
        cube = open_cube(group)
    block = cube.chunks[0][0], cube.chunks[1][0]
    assert block[0] * block[1] * 5 * 2 <= 200
    assert_array_equal(cube.samples.compute(), expected_rows(values, valid, block)[0])
    assert open_cube(group, chunks=(23, 19)).samples.numblocks == (1, 1)


@pytest.mark.parametrize("value", [0.1, 1e-3 / 3, 7e9 / 11])
def test_the_scale_of_a_constant_band_is_1(value):
    rng = np.random.default_rng(0)
    scene = np.stack([rng.normal(size=(23, 31)), np.full((23, 31), value)], axis=-1)
    cube = open_cube(
        da.from_array(scene, chunks=(7, 9, 2)), dims=("y", "x", "band"), scale="standard"
    )
    assert (np.asarray(cube.samples)[:, 1] == 0.0).all()
    assert cube.scaling[1][1] == 1.0


# Dask's other array mode, chosen at import


@pytest.mark.parametrize("complete", [True, False], ids=["no nodata", "nodata"])
def test_labels_of_a_store_that_changed_are_not_written(tmp_path, complete):
    attributes = {} if complete else {"_FillValue": -9}
    values = np.arange(32, dtype=np.int16).reshape(4, 4, 2)
    group = make_array(values, (2, 2, 2), store=tmp_path / "c.zarr", **attributes)
    cube = open_cube(group)
    labels = np.zeros(cube.n_valid, int)
    cube.write_labels(labels, tmp_path / "before.zarr")
    group["cube"][3, 3] = 7  # as many valid pixels as before, but other values
    with pytest.raises(ValueError, match="Open the cube and fit again"):
        cube.write_labels(labels, tmp_path / "after.zarr")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["before.zarr", "c.zarr"]
    open_cube(group).write_labels(labels, tmp_path / "after.zarr")

"""Masks of NumPy, fill values by their bits, codes, and constants: no value goes astray."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

import daskclust
from daskclust import open_cube

DIMS = ("y", "x", "band")


def stored(values: np.ndarray, path: Any = None, chunks: Any = None, **attributes: Any) -> Any:
    group = zarr.create_group(zarr.storage.MemoryStore() if path is None else path)
    group.create_array(
        "cube", data=values, chunks=chunks or "auto", dimension_names=DIMS, attributes=attributes
    )
    return group


# Values that mean "no data" at either end of what there is, and amid it


@pytest.mark.parametrize(
    ("dtype", "nodata"),
    [
        ("i2", (-9999,)),
        ("i2", (0,)),
        ("i2", (32767,)),
        ("i2", (-9999, 32767)),
        ("i4", (-9999, 0)),
        ("u1", (0, 255)),
        ("u1", (127, 128)),
        ("u1", (200, 255)),
        ("u2", (65535,)),
    ],
)
@pytest.mark.parametrize("low", [-4, 120])
def test_no_data_of_whole_numbers_wherever_it_lies(
    dtype: str, nodata: tuple[int, ...], low: int
) -> None:
    rng = np.random.default_rng(0)
    for count, values in ((0, nodata), *((1, (value,)) for value in nodata), (40, nodata)):
        # Above all of them, below, or some are values like others.
        data = rng.integers(max(low, np.iinfo(dtype).min), low + 9, (9, 8, 3)).astype(dtype)
        data.ravel()[rng.choice(data.size, count, replace=False)] = rng.choice(values, count)
        names = dict(zip(("_FillValue", "missing_value"), nodata, strict=False))
        cube = open_cube(stored(data, chunks=(4, 8, 3), **names), dims=DIMS)
        valid = ~np.isin(data, nodata).any(axis=2)
        assert_array_equal(cube.valid.compute(), valid)
        assert_array_equal(cube.samples.compute(), data[valid])


# Masked arrays


@given(
    seed=st.integers(0, 2**32 - 1),
    dtype=st.sampled_from(["i2", "u1", "f4", "f8"]),
    kind=st.sampled_from(["numpy", "dask"]),
    incomplete=st.sampled_from(["mask", "keep"]),
    scale=st.sampled_from(["none", "standard", "unit"]),
)
def test_masked_pixels_are_no_rows(
    seed: int, dtype: str, kind: str, incomplete: Any, scale: Any
) -> None:
    rng = np.random.default_rng(seed)
    data = rng.integers(1, 100, (7, 6, 3)).astype(dtype)
    mask = rng.random((7, 6, 3)) < 0.2
    data[mask] = rng.integers(100, 127)  # what lies under the mask counts for nothing
    cube = np.ma.masked_array(data, mask)
    given = cube if kind == "numpy" else da.from_array(cube, chunks=(3, 4, 3))
    opened = open_cube(given, dims=DIMS, incomplete=incomplete, scale=scale, chunks=(3, 4))
    plain = np.where(mask, np.nan, data.astype(float)).astype(
        "f4" if np.dtype(dtype).itemsize <= 2 or dtype == "f4" else "f8"
    )
    expected = open_cube(plain, dims=DIMS, incomplete=incomplete, scale=scale, chunks=(3, 4))
    assert opened.block_counts == expected.block_counts
    assert_array_equal(opened.valid.compute(), expected.valid.compute())
    found = opened.samples.compute()
    assert not np.ma.isMaskedArray(found)
    np.testing.assert_allclose(found, expected.samples.compute(), rtol=1e-6)
    if scale == "standard":
        for one, other in zip(opened.scaling or (), expected.scaling or (), strict=True):
            np.testing.assert_allclose(one, other)


def test_a_mask_that_a_dask_array_hides_is_an_error() -> None:
    plain = da.ones((4, 4, 2), dtype="i2", chunks=(2, 2, 2))
    hidden = plain.map_blocks(
        lambda block: np.ma.masked_array(block, block > 0), dtype="i2", meta=np.empty((0, 0, 0))
    ).astype("i2")
    hidden._meta = np.empty((0, 0, 0), "i2")
    cube = open_cube(hidden, dims=DIMS)
    with pytest.raises(ValueError, match="masked array, but its Dask array has no mask"):
        cube.samples.compute(scheduler="sync")


@pytest.mark.parametrize("lazy", [False, True])
def test_masked_labels_are_no_labels(lazy: bool) -> None:
    cube = open_cube(np.arange(32, dtype="i2").reshape(4, 4, 2), dims=DIMS, chunks=(2, 2))
    classes = np.arange(16).reshape(4, 4) % 3
    mask = np.zeros((4, 4), bool)
    mask[1] = True
    expected = cube.rows_of(np.where(mask, -1, classes))
    for dtype in ("i8", "u1", "u8", "i2"):
        given: Any = np.ma.masked_array(classes.astype(dtype), mask)
        found = cube.rows_of(da.from_array(given, chunks=2) if lazy else given)
        assert_array_equal(found, expected)
    flags: Any = np.ma.masked_array(np.ones((4, 4), bool), mask)
    rows, labels = cube.rows_of(da.from_array(flags, chunks=2) if lazy else flags)
    assert len(rows) == 12
    assert set(labels) == {1}
    # As a mask, what is hidden is excluded.
    left = open_cube(
        np.arange(32, dtype="i2").reshape(4, 4, 2),
        dims=DIMS,
        mask=np.ma.masked_array(np.zeros((4, 4), bool), mask),
    )
    assert left.n_valid == 12
    floats: Any = np.ma.masked_array(classes.astype(float), mask)
    assert_array_equal(cube.rows_of(da.from_array(floats, chunks=2) if lazy else floats), expected)


@pytest.mark.parametrize("dtype", ["i8", "u1", "i2"])
@pytest.mark.parametrize("kind", ["numpy", "dask", "hidden"])
def test_masked_labels_are_no_values_of_a_map(dtype: str, kind: str) -> None:
    cube = open_cube(np.arange(32, dtype="i2").reshape(4, 4, 2), dims=DIMS, chunks=(2, 2))
    plain = np.arange(16).astype(dtype) % 3
    mask = np.arange(16) % 5 == 1
    labels: Any = np.ma.masked_array(plain, mask)
    if kind == "dask":
        labels = da.from_array(labels, chunks=4)
    elif kind == "hidden":
        labels = da.from_array(plain, chunks=16).map_blocks(
            lambda block: np.ma.masked_array(block, mask[: len(block)]),
            dtype=dtype,
            meta=plain[:0],
        )
    expected = cube.to_map(np.where(mask, -1, plain.astype(int))).compute()
    found = cube.to_map(labels).compute()
    assert not np.ma.isMaskedArray(found)
    assert_array_equal(found, expected)
    assert_array_equal(
        cube.to_map(labels, fill_value=7).compute(), np.where(expected < 0, 7, expected)
    )
    written = cube.write_labels(labels, zarr.storage.MemoryStore())
    assert_array_equal(written["labels"][:], expected)
    assert list(written["labels"].attrs["flag_values"]) == [0, 1, 2]


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("target", ["values.zarr", "values.tif"])
def test_masked_values_are_not_written(lazy: bool, target: str, tmp_path: Path) -> None:
    cube = open_cube(np.arange(32, dtype="i2").reshape(4, 4, 2), dims=DIMS, chunks=(2, 2))
    mask = np.arange(16) % 5 == 1
    given: Any = np.ma.masked_array(np.where(mask, 1e9, np.arange(16.0)), mask)[:, None]
    cube.write_map(da.from_array(given, chunks=(4, 1)) if lazy else given, tmp_path / target)
    found = open_cube(tmp_path / target)
    expected = cube.to_map(np.where(mask, np.nan, np.arange(16.0)), fill_value=np.nan).compute()
    assert_array_equal(found.to_map(found.samples[:, 0], fill_value=np.nan).compute(), expected)


def test_masked_codes_are_no_classes_and_have_no_area() -> None:
    codes: Any = np.ma.masked_array([[0, 1], [7, 1]], [[0, 0], [1, 0]])
    for values in (codes, da.from_array(codes, chunks=1)):
        area = daskclust.scenes.LabelMap(values).area()
        assert [(row.code, row.pixels) for row in area] == [(0, 1), (1, 2)]


def test_masked_lists_of_bands_and_numbers_of_scales_are_refused() -> None:
    image = np.arange(32, dtype="i2").reshape(4, 4, 2)
    one: Any = np.ma.masked_array([0, 1], [False, True])
    for options in ({"bad_bands": one}, {"bands": one}, {"scale": (one, [1, 1])}):
        with pytest.raises(ValueError, match=r"must not contain masked values, got one at \(1,\)"):
            open_cube(image, dims=DIMS, **options)


def test_masks_that_an_image_does_not_declare_are_refused() -> None:
    cube = open_cube(np.arange(32, dtype="i2").reshape(4, 4, 2), dims=DIMS, chunks=(2, 2))
    plain = np.arange(16).reshape(4, 4) % 3
    hidden = da.from_array(plain, chunks=4).map_blocks(
        lambda block: np.ma.masked_equal(block, 2), dtype=plain.dtype, meta=plain[:0]
    )
    with pytest.raises(ValueError, match="block of label_map is a masked array"):
        cube.rows_of(hidden)
    with pytest.raises(ValueError, match="block of the label map is a masked array"):
        daskclust.scenes.area_table(hidden)


def test_unsigned_labels_are_written() -> None:
    cube = open_cube(np.arange(32, dtype="i2").reshape(4, 4, 2), dims=DIMS, chunks=(2, 2))
    written = cube.write_labels(np.full(16, 3, "u1"), zarr.storage.MemoryStore())
    assert (written["labels"][:] == 3).all()


# Codes and fill values


def test_unsigned_fill_values_go_by_their_bits() -> None:
    values = np.array([[[255, 1]], [[254, 2]]], dtype="u1")
    assert open_cube(stored(values, _FillValue=-1)).n_valid == 1
    assert open_cube(stored(values, _FillValue=-1, _Unsigned="true")).nodata == (255,)
    assert open_cube(stored(values.astype("u2"), _FillValue=-1)).nodata == (65535,)
    assert open_cube(stored(values, _FillValue=-300)).nodata == ()
    signed = open_cube(stored(values.view("i1"), _FillValue=-1, _Unsigned="true"))
    assert signed.nodata == (255,)
    assert signed.samples.compute().tolist() == [[254, 2]]


@pytest.mark.parametrize(
    "attributes",
    [
        {"flag_values": 3, "flag_meanings": "wood"},
        {"flag_values": 3, "flag_meanings": "wood water"},
        {"flag_values": "x", "flag_meanings": "wood"},
        {"flag_values": [None], "flag_meanings": "wood"},
        {"flag_values": ["Infinity"], "flag_meanings": "wood"},
        {"_FillValue": "Infinity"},
        {"_FillValue": "NaN"},
        {"missing_value": "-Infinity"},
    ],
)
def test_odd_attributes_of_label_maps(tmp_path: Path, attributes: dict[str, Any]) -> None:
    cube = open_cube(np.arange(8, dtype="i2").reshape(2, 2, 2), dims=DIMS)
    group = zarr.create_group(tmp_path / "l.zarr")
    group.create_array(
        "classes",
        data=np.array([[3, 3], [-1, 3]], "i2"),
        dimension_names=DIMS[:2],
        attributes=attributes,
    )
    rows, labels = cube.rows_of(tmp_path / "l.zarr")
    assert rows.tolist() == [0, 1, 3]
    assert labels.tolist() == [3, 3, 3]
    opened = cube.open_map("labels", tmp_path / "l.zarr")
    assert opened.meanings in (None, {3: "wood"})


def test_the_largest_unsigned_label() -> None:
    cube = open_cube(np.arange(8, dtype="i2").reshape(2, 2, 2), dims=DIMS)
    largest = np.iinfo(np.uint64).max
    classes = np.array([[1, 2], [largest, 3]], np.uint64)
    with pytest.raises(ValueError, match=f"must contain labels up to .* got {largest}"):
        cube.rows_of(classes)
    rows, labels = cube.rows_of(classes, unlabeled=largest)
    assert rows.tolist() == [0, 1, 3]
    assert labels.tolist() == [1, 2, 3]
    with pytest.raises(ValueError, match=f"must fit into int64, got {largest}"):
        cube.to_map(classes.ravel()).compute()
    assert cube.to_map(classes.ravel(), fill_value=0).compute().max() == largest


@pytest.mark.parametrize(
    ("dtype", "fill", "expected"),
    [
        ("i4", np.nan, "f8"),
        ("u1", np.nan, "f8"),
        ("i4", 0.5, "f8"),
        ("i4", np.inf, "f8"),
        ("i1", 300, "i4"),
        ("u1", -1, "i8"),
        ("u1", 300, "u2"),
        ("i4", -1, "i4"),
        ("f4", np.nan, "f4"),
        ("?", -1, "i8"),
    ],
)
def test_fill_values_of_another_kind(dtype: str, fill: float, expected: str) -> None:
    values = np.array([[[1], [-9]], [[2], [3]]], dtype="i2")
    cube = open_cube(stored(values, _FillValue=-9))
    image = cube.to_map(np.array([1, 0, 1], dtype), fill_value=fill)
    assert image.dtype == np.dtype(expected)
    found = image.compute()
    assert found.dtype == np.dtype(expected)
    assert_array_equal(found, np.array([[1, fill], [0, 1]], dtype=float))


def test_only_the_codes_that_occur_are_listed(tmp_path: Path) -> None:
    cube = open_cube(np.arange(32, dtype="i2").reshape(4, 4, 2), dims=DIMS, chunks=(2, 2))
    codes = np.array([7, 3_000_000, 5, 7] * 4)
    codes[3] = -1
    attributes = cube.write_labels(codes, tmp_path / "l.zarr")["labels"].attrs
    assert attributes["flag_values"] == [5, 7, 3_000_000]
    assert attributes["flag_meanings"] == "cluster_5 cluster_7 cluster_3000000"
    named = cube.write_labels(
        codes % 8, tmp_path / "n.zarr", n_clusters=3, class_names=["a", "b", "c d"]
    )["labels"].attrs
    assert named["flag_values"] == [0, 1, 2, 5, 7]
    assert named["flag_meanings"] == "a b c_d cluster_5 cluster_7"


# Constant bands


@given(
    value=st.floats(-1e12, 1e12, allow_subnormal=False),
    n=st.integers(1, 40),
    chunk=st.integers(1, 13),
    dtype=st.sampled_from(["f4", "f8", "i4"]),
)
def test_a_constant_band_is_centered_not_blown_up(
    value: float, n: int, chunk: int, dtype: str
) -> None:
    values = np.empty((n, 3, 2), dtype)
    values[..., 0] = int(value) % 1000 if dtype == "i4" else value
    values[..., 1] = np.arange(3 * n).reshape(n, 3)
    cube = open_cube(values, dims=DIMS, scale="standard", chunks=(chunk, 2))
    scaling = cube.scaling
    assert scaling is not None
    assert scaling[1][0] == 1.0
    assert (cube.samples.compute()[:, 0] == 0.0).all()


def test_public_description(tmp_path: Path) -> None:
    values = np.arange(5 * 4 * 3, dtype="i2").reshape(5, 4, 3)
    for cube in (
        open_cube(stored(values, tmp_path / "c.zarr", chunks=(2, 2, 3)), bad_bands=[1]),
        open_cube(values, dims=DIMS, bad_bands=[1], chunks=(2, 2)),
    ):
        assert cube.stored.shape == (5, 4, 3)
        assert cube.stored.nbytes == values.nbytes
        assert cube.stored.may_be_masked is False
        assert cube.blocks.count == 6
        assert_array_equal(cube.stored_bands([2, 0]).compute(), values[..., [2, 0]])
        assert cube.survey_blocks([0, 5])[0] == 4 + 2
        assert cube.georeference.attributes == {}
    assert daskclust.open_cube(values, dims=DIMS, nodata=3).stored.may_be_masked

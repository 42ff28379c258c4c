"""Scenes as files come: what is in them, and what their attributes mean, on every route."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from numpy.testing import assert_array_equal

from daskclust import open_cube
from daskclust.exceptions import DaskclustWarning
from daskclust.scenes.bands import parse_bands

xarray = pytest.importorskip("xarray", reason="needs the extra `xarray`")

DIMS = ("y", "x", "band")


def crop(bands: int = 4) -> np.ndarray:
    values = np.random.default_rng(1).integers(1, 3000, (12, 10, bands)).astype("int16")
    values[:3, :4] = -32768
    return values


def stored(values: np.ndarray, **attributes: Any) -> zarr.Array:
    return zarr.create_array(
        zarr.storage.MemoryStore(),
        data=values,
        chunks=(5, 4, values.shape[2]),
        dimension_names=DIMS,
        attributes=attributes,
    )


# CF


@pytest.mark.parametrize("scale", [1e-4, [1e-4, 2e-4, 1e-3, 1.0]], ids=["one", "a-band"])
def test_scale_and_offset_make_samples(scale: Any) -> None:
    values = crop()
    cube = open_cube(stored(values, _FillValue=-32768, scale_factor=scale, add_offset=-0.1))
    valid = (values != -32768).all(axis=2)
    wanted = (values.astype("f8") * np.asarray(scale) - 0.1).astype("f4")
    assert cube.samples.dtype == np.float32
    assert_array_equal(cube.to_map(cube.samples[:, 1]).compute()[valid], wanted[valid][:, 1])
    assert cube.values["add_offset"] == -0.1
    assert cube.values["scale_factor"] == scale
    kept = open_cube(
        stored(values, _FillValue=-32768, scale_factor=scale, add_offset=-0.1), bad_bands=[0, 2]
    )
    assert_array_equal(kept.samples.compute(), cube.samples[:, [1, 3]].compute())


def test_xarray_decodes_to_the_same_samples(tmp_path: Path) -> None:
    array = xarray.DataArray(
        crop(),
        dims=DIMS,
        name="cube",
        attrs={"_FillValue": np.int16(-32768), "scale_factor": 1e-4, "add_offset": 0.25},
    )
    array.to_dataset().to_zarr(tmp_path / "s.zarr", zarr_format=3, consolidated=False)
    path = open_cube(tmp_path / "s.zarr", chunks=(5, 4))
    decoded = xarray.open_zarr(tmp_path / "s.zarr", consolidated=False)
    assert decoded.cube.dtype == np.float64
    other = open_cube(decoded, chunks=(5, 4))
    assert path.samples.dtype == other.samples.dtype == np.float32
    assert_array_equal(path.samples.compute(), other.samples.compute())
    for scale in ("standard", "unit"):
        one, two = (
            open_cube(s, chunks=(5, 4), scale=scale) for s in (tmp_path / "s.zarr", decoded)
        )
        assert_array_equal(one.samples.compute(), two.samples.compute())


@pytest.mark.parametrize(
    "attributes",
    [
        {"valid_range": [0, 2000]},
        {"valid_min": 0, "valid_max": 2000},
        {"_FillValue": -32768, "valid_max": 2000},
        {"valid_range": "0, 2000"},
    ],
)
def test_numbers_outside_the_valid_range_are_none(attributes: dict[str, Any]) -> None:
    values = crop()
    cube = open_cube(stored(values, **attributes))
    assert_array_equal(cube.valid.compute(), ((values >= 0) & (values <= 2000)).all(axis=2))
    assert open_cube(stored(values, **attributes), nodata=None).n_masked == 0


def test_unsigned_numbers_in_signed_ones() -> None:
    values = np.array([[[200, 1]], [[255, 2]]], dtype="u1")
    cube = open_cube(stored(values.view("i1"), _FillValue=-1, _Unsigned="true", scale_factor=0.5))
    assert cube.samples.compute().tolist() == [[100.0, 0.5]]


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"scale_factor": [1.0, 2.0]}, "one for each of the 4 bands"),
        ({"scale_factor": "big"}, "must have a finite scale_factor"),
        ({"scale_factor": 0}, "makes all values the same"),
        ({"valid_range": [1]}, "valid_range of two numbers"),
        ({"valid_range": [5, 1]}, "smaller number first"),
    ],
)
def test_attributes_that_mean_nothing_are_told(attributes: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        open_cube(stored(crop(), **attributes))


def test_zarr_2_of_xarray_keeps_nodata_in_the_metadata(tmp_path: Path) -> None:
    array = xarray.DataArray(crop(), dims=DIMS, name="cube", attrs={"_FillValue": np.int16(-32768)})
    array.to_dataset().to_zarr(tmp_path / "v2.zarr", zarr_format=2, consolidated=False)
    group = zarr.open_group(tmp_path / "v2.zarr", mode="r")
    assert "_FillValue" not in group["cube"].attrs
    cube = open_cube(tmp_path / "v2.zarr")
    assert cube.nodata == (-32768,)
    assert cube.n_masked == 12


# Bands


def test_bands_without_data_are_left_out_and_named() -> None:
    values = crop(6)
    values[:, :, [1, 2, 5]] = -32768
    values[5:, :, 3] = -32768  # of whole blocks, but not of all
    expected = (values[:, :, [0, 3, 4]] != -32768).all(axis=2)
    for scale in ("none", "standard"):
        cube = open_cube(
            stored(values, _FillValue=-32768, wavelength=[400.0, 410, 420, 430, 440, 450]),
            scale=scale,
        )
        with pytest.warns(DaskclustWarning, match=r"Bands 1-2,5 hold no data.*3 of 6 bands"):
            assert cube.n_valid == expected.sum()
        assert cube.bands.tolist() == [0, 3, 4]
        assert cube.shape == (12, 10, 3)
        assert cube.wavelengths.tolist() == [400, 430, 440]
        assert_array_equal(cube.valid.compute(), expected)
        own = open_cube(stored(values, _FillValue=-32768), bad_bands=[1, 2, 5], scale=scale)
        assert_array_equal(cube.samples.compute(), own.samples.compute())
    asked = open_cube(stored(values, _FillValue=-32768), bands=[0, 1, 3])
    with pytest.raises(ValueError, match="got the bands 1 without data"):
        _ = asked.n_valid
    nan = open_cube(stored(values, _FillValue=-32768), incomplete="keep")
    with pytest.warns(DaskclustWarning, match="Bands 1-2,5"):
        assert nan.samples.shape == (120 - 12, 3)


def test_a_scene_without_data_has_no_band_to_blame() -> None:
    cube = open_cube(stored(np.full((4, 4, 3), -1, "int16"), _FillValue=-1))
    assert cube.n_valid == 0
    assert cube.shape == (4, 4, 3)


@pytest.mark.parametrize(
    "attributes", [{"bbl": [1, 0, 1, 1]}, {"bbl": "{1, 0, 1, 1}"}, {"bad_bands": [0, 1, 0, 0]}]
)
def test_bad_bands_of_the_file_are_left_out(attributes: Any) -> None:
    assert open_cube(stored(crop(), **attributes)).bands.tolist() == [0, 2, 3]
    assert open_cube(stored(crop(), **attributes), bad_bands=None).bands.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("text", "kept"),
    [("1", [0, 2, 3]), ("0-1,3", [2]), ("405nm-420nm", [0, 3]), ("0.42um-0.43um,0", [1])],
)
def test_bands_by_number_and_wavelength(text: str, kept: list[int]) -> None:
    array = stored(crop(), wavelength=[400.0, 410.0, 420.0, 430.0])
    assert open_cube(array, bad_bands=text).bands.tolist() == kept


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x", "must be a band"),
        ("4", "below 4"),
        ("3-1", "must begin with its lower end"),
        ("1.5", "wavelengths need a unit"),
        ("500nm-600nm", "has no band; it has 400 to 430 nm"),
        ("400nm-430nm", "drops all 4"),
    ],
)
def test_bands_that_are_not_there(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        open_cube(stored(crop(), wavelength=[400.0, 410.0, 420.0, 430.0]), bad_bands=text)


def test_wavelengths_need_wavelengths() -> None:
    assert parse_bands("3nm")[0].by_wavelength
    with pytest.raises(ValueError, match="the cube states none"):
        open_cube(stored(crop()), bad_bands="400nm-450nm")


# Shapes


def test_bands_as_variables_and_stacks() -> None:
    values = crop()
    whole = open_cube(stored(values), chunks=(5, 4)).samples.compute()
    images = {f"B{n}": (("y", "x"), values[:, :, n]) for n in range(4)}
    data = xarray.Dataset({**images, "spatial_ref": 0})
    assert_array_equal(open_cube(data, chunks=(5, 4)).samples.compute(), whole)
    part = open_cube(data, variable=["B2", "B0"], chunks=(5, 4))
    assert_array_equal(part.samples.compute(), whole[:, [2, 0]])
    group = zarr.open_group(zarr.storage.MemoryStore(), mode="w")
    for name, (_, image) in images.items():
        group.create_array(name, data=image, chunks=(5, 4), dimension_names=("y", "x"))
    assert_array_equal(open_cube(group).samples.compute(), whole)
    with pytest.raises(ValueError, match="differ in dtype: 'B0' has int16, 'B1' has int32"):
        open_cube(data.assign(B1=data.B1.astype("int32")))
    dates = xarray.DataArray(
        np.stack([values, values + 1]).transpose(0, 3, 1, 2), dims=("time", "band", "y", "x")
    )
    stack = open_cube(dates, chunks=(5, 4))
    assert stack.shape == (12, 10, 8)
    assert_array_equal(stack.samples.compute(), np.concatenate([whole, whole + 1], axis=1))


def test_swath_names_of_dimensions(tmp_path: Path) -> None:
    array = xarray.DataArray(crop(), dims=("downtrack", "crosstrack", "bands"))
    assert open_cube(array).shape == (12, 10, 4)


def test_npy_files(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", crop())
    cube = open_cube(tmp_path / "a.npy", dims=DIMS, chunks=(5, 4), nodata=-32768)
    wanted = open_cube(stored(crop()), nodata=-32768)
    assert_array_equal(cube.samples.compute(), wanted.samples.compute())
    np.save(tmp_path / "a.npy", crop() + 1)
    with pytest.raises((OSError, ValueError), match=r"another file|written to|sees other values"):
        cube.write_labels(np.zeros(cube.n_valid, int), tmp_path / "l.zarr")


def test_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.tif").write_bytes(b"II*\x00")
    monkeypatch.setitem(sys.modules, "rasterio", None)
    with pytest.raises(ImportError, match=r"pip install 'daskclust\[raster\]'"):
        open_cube(tmp_path / "a.tif")

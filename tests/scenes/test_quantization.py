"""Embeddings with one byte per band: meanings of codes, and warnings about unknown codes."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
import zarr

import daskclust
from daskclust.exceptions import QuantizationWarning

rng = np.random.default_rng(0)
CODES = rng.integers(-127, 128, (12, 10, 64)).astype(np.int8)
CODES[2, 3] = -128
NAMES = [f"A{band:02d}" for band in range(64)]
HERE = np.delete(CODES.reshape(-1, 64), 23, axis=0).astype(float)


def write(folder: Path, attributes: dict, codes: np.ndarray = CODES) -> Path:
    group = zarr.open_group(folder / "c.zarr", mode="w")
    array = group.create_array(
        "cube", data=codes, chunks=(6, 10, codes.shape[2]), dimension_names=("y", "x", "band")
    )
    array.attrs.update(attributes)
    return folder / "c.zarr"


def rows(cube: daskclust.Cube) -> np.ndarray:
    return np.asarray(cube.samples)


def ordered(x: np.ndarray) -> np.ndarray:
    return x[np.lexsort(x.T)]


@pytest.mark.parametrize("known", [True, False])
def test_alphaearth(tmp_path: Path, known: bool):
    attributes = {"band_names": NAMES, "_FillValue": -128} if known else {}
    quantization = "auto" if known else "alphaearth"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cube = daskclust.open_cube(write(tmp_path, attributes), quantization=quantization)
    found = rows(cube)
    assert found.dtype == np.float32
    assert cube.n_valid == 119
    expected = np.sign(HERE) * (HERE / 127.5) ** 2
    np.testing.assert_allclose(ordered(found), ordered(expected.astype(np.float32)), rtol=1e-6)


def test_xarray_names_its_bands():
    xarray = pytest.importorskip("xarray")
    array = xarray.DataArray(CODES, dims=("y", "x", "band"), coords={"band": NAMES})
    array.attrs["nodata"] = -128
    found = rows(daskclust.open_cube(array))
    expected = np.sign(HERE) * (HERE / 127.5) ** 2
    np.testing.assert_allclose(ordered(found), ordered(expected.astype(np.float32)), rtol=1e-6)


def test_by_hand():
    codes = np.array([-127, -51, 0, 51, 127], np.int8).reshape(1, 5, 1).repeat(64, axis=2)
    cube = daskclust.open_cube(codes, dims=("y", "x", "band"), quantization="alphaearth")
    expected = [-0.99217, -0.16, 0.0, 0.16, 0.99217]
    np.testing.assert_allclose(np.sort(rows(cube)[:, 7]), expected, atol=1e-5)


@pytest.mark.parametrize("nodata", [{}, {"_FillValue": -128}])
def test_tessera(tmp_path: Path, nodata: dict):
    scales = rng.random((12, 10)).astype(np.float32)
    scales[5, 5], scales[5, 6] = np.nan, np.inf
    cube = daskclust.open_cube(write(tmp_path, nodata), scales=scales)
    scales[5, 6] = np.nan
    wide = CODES.astype(np.float32) * scales[:, :, None]
    gone = np.isnan(scales) | (np.array(bool(nodata)) & (CODES == -128).all(axis=2))
    assert cube.n_valid == (~gone).sum()
    np.testing.assert_array_equal(ordered(rows(cube)), ordered(wide[~gone]))
    labels = daskclust.KMeans(3, random_state=0).fit(cube).labels_
    assert cube.to_map(labels).shape == (12, 10)


@pytest.mark.parametrize("wrong", [-1.0, -np.inf])
def test_scales_that_are_none(tmp_path: Path, wrong: float):
    scales = np.ones((12, 10), np.float32)
    scales[7, 2] = wrong
    with pytest.raises(ValueError, match=f"must contain numbers >= 0, .* got {wrong:g} "):
        daskclust.KMeans(3).fit(daskclust.open_cube(write(tmp_path, {}), scales=scales))


def test_codes_without_a_meaning_are_told(tmp_path: Path):
    path = write(tmp_path, {})
    with pytest.warns(QuantizationWarning, match="int8 codes of the 64 bands"):
        cube = daskclust.open_cube(path)
    np.testing.assert_array_equal(ordered(rows(cube)), ordered(CODES.reshape(-1, 64)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        daskclust.open_cube(path, quantization=None)
        daskclust.open_cube(write(tmp_path, {"scale_factor": 0.5}))
        daskclust.open_cube(write(tmp_path, {}, CODES.astype(np.uint8)))


@pytest.mark.parametrize(
    ("given", "match"),
    [
        (
            {"quantization": "int8"},
            r"quantization must be one of 'auto', 'alphaearth', 'tessera', got 'int8'\.",
        ),
        ({"quantization": "tessera"}, "scales must be one float per pixel"),
        ({"quantization": None, "scales": np.ones((12, 10))}, "scales must be one float per pixel"),
        ({"scales": np.ones((3, 3))}, "scales"),
        ({"scales": np.ones((12, 10), int)}, "must contain floats"),
    ],
)
def test_what_does_not_fit_is_named(tmp_path: Path, given: dict, match: str):
    with pytest.raises(ValueError, match=match):
        daskclust.open_cube(write(tmp_path, {}), **given)


def test_values_are_no_codes(tmp_path: Path):
    with pytest.raises(ValueError, match="must contain the stored codes"):
        daskclust.open_cube(
            write(tmp_path, {}, CODES.astype(np.float32)), quantization="alphaearth"
        )
    with pytest.raises(ValueError, match="must have the 64 bands"):
        daskclust.open_cube(write(tmp_path, {}, CODES[..., :9]), quantization="alphaearth")

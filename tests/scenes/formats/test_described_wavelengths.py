"""Wavelengths where files write them as text."""

import numpy as np
import pytest

import daskclust


@pytest.mark.parametrize("style", ["{:g} nm", "Band ({:g} nm)", "{:g} Nanometers", "{:g}nm"])
def test_wavelengths_in_descriptions_of_bands(tmp_path, style):
    rasterio = pytest.importorskip("rasterio")
    centers = [418.24, 650.5, 2200.0]
    place = rasterio.transform.from_origin(500000, 5000000, 30, 30)
    profile = {"driver": "GTiff", "height": 4, "width": 5, "count": 3, "dtype": "float32"}
    profile |= {"crs": "EPSG:32633", "transform": place}
    with rasterio.open(tmp_path / "a.tif", "w", **profile) as file:
        file.write(np.ones((3, 4, 5), np.float32))
        file.descriptions = [style.format(center) for center in centers]
    found = daskclust.open_cube(tmp_path / "a.tif")
    np.testing.assert_allclose(found.wavelengths, centers)


@pytest.mark.parametrize(
    ("unit", "expected"),
    [
        ("Index", None),
        ("Parsecs", None),
        ("Micrometers", [1e3, 2e3, 3e3]),
        ("Unknown", [1e3, 2e3, 3e3]),
    ],
)
def test_an_envi_header_says_in_what_unit(tmp_path, unit, expected):
    pytest.importorskip("rasterio")
    np.ones((3, 4, 5), np.int16).tofile(tmp_path / "a.img")
    (tmp_path / "a.hdr").write_text(
        "ENVI\nsamples = 5\nlines = 4\nbands = 3\nheader offset = 0\ndata type = 2\n"
        "file type = ENVI Standard\ninterleave = bsq\nbyte order = 0\n"
        f"wavelength units = {unit}\nwavelength = {{1, 2, 3}}\n"
    )
    found = daskclust.open_cube(tmp_path / "a.hdr").wavelengths
    assert (None if found is None else found.tolist()) == expected


def test_bands_of_several_units_have_no_wavelengths(tmp_path):
    rasterio = pytest.importorskip("rasterio")
    place = rasterio.transform.from_origin(500000, 5000000, 30, 30)
    profile = {"driver": "GTiff", "height": 4, "width": 5, "count": 2, "dtype": "float32"}
    with rasterio.open(tmp_path / "a.tif", "w", **profile, transform=place) as file:
        file.write(np.ones((2, 4, 5), np.float32))
        file.update_tags(1, wavelength="800", wavelength_units="nm")
        file.update_tags(2, wavelength="1.2", wavelength_units="um")
    assert daskclust.open_cube(tmp_path / "a.tif").wavelengths is None

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

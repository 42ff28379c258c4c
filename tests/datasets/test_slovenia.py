"""The real scene of the package."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import daskclust
from daskclust.datasets import load_slovenia

pytest.importorskip("rasterio")


def test_scenes_and_polygons(tmp_path: Path) -> None:
    found = load_slovenia(tmp_path / "a")
    assert sum(path.stat().st_size for path in load_slovenia()) < 2**20
    assert "MIT License" in found.licence.read_text()
    cubes = [daskclust.open_cube(str(path)) for path in (found.scene, found.second)]
    for cube in cubes:
        assert (cube.shape, cube.n_masked) == ((101, 100, 10), 0)
        # NDVI of woods: low in January, high in July.
        winter, summer = np.asarray(cube.samples)[:, [0, 3]].mean(axis=0)
        assert winter < summer - 0.1
    _, labels = cubes[0].rows_of(str(found.fields), class_column="class")
    assert sorted(np.unique(labels)) == ["built", "forest", "grassland", "shrubland"]
    assert load_slovenia(tmp_path / "a") == found
    found.scene.write_bytes(b"mine")
    with pytest.raises(FileExistsError, match=r"must not contain other files .*scene.tif'"):
        load_slovenia(tmp_path / "a")
    assert found.scene.read_bytes() == b"mine"

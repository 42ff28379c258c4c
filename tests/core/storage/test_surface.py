"""Undocumented features of xarray and fsspec that the package uses, with a test for each.

If a release changes one of them, the test names the function of
``daskclust.core.storage.private_api`` that has to follow.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fsspec.asyn import AsyncFileSystem
from fsspec.implementations.local import LocalFileSystem

from daskclust.core.storage import private_api
from daskclust.core.storage.retry import files_in
from daskclust.core.storage.stored_array import arrays_in

VALUES = np.arange(24.0).reshape(6, 4)


def scene() -> Any:
    xarray = pytest.importorskip("xarray", reason="needs the extra `xarray`")
    return xarray.Dataset({"v": (("y", "x"), VALUES)})


@pytest.mark.parametrize("engine", ["h5netcdf", "scipy"])
def test_the_file_behind_an_array_of_xarray(tmp_path: Path, engine: str) -> None:
    path = tmp_path / "a.nc"
    stored = scene()
    if engine == "h5netcdf":
        pytest.importorskip("h5netcdf", reason="needs the extra `raster`")
    stored.to_netcdf(path, engine=engine)
    import xarray

    with xarray.open_dataset(path, engine=engine, chunks={"y": 3}) as opened:
        graph = dict(opened["v"].data.__dask_graph__())
        assert files_in(graph) == [str(path)], "_manager or _args: file_of_xarray()"


def test_the_array_of_zarr_in_layers_of_xarray(tmp_path: Path) -> None:
    scene().to_zarr(tmp_path / "a.zarr", consolidated=False)
    import xarray

    opened = xarray.open_zarr(tmp_path / "a.zarr", consolidated=False)
    found = [*arrays_in(dict(opened["v"].data.__dask_graph__()))]
    assert found, "array or _array: inside_xarray()"
    assert found[0].shape == VALUES.shape


def test_file_systems_that_walk_through_folders() -> None:
    class Lists(AsyncFileSystem):
        async def _find(self, path: str, **options: Any) -> list[str]:
            return [path]

    assert private_api.walks(LocalFileSystem()), "find: walks()"
    assert private_api.walks(AsyncFileSystem()), "_find: walks()"
    assert not private_api.walks(Lists(skip_instance_cache=True)), "_find: walks()"

"""Scenes in stores of other packages: whatever is a store of Zarr is read."""

from __future__ import annotations

from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
import zarr

from daskclust import HierarchicalKMeans, KMeans, load, open_cube
from daskclust.cube._metadata import dimension_names

CODES = np.random.default_rng(0).integers(-127, 128, (20, 30, 64)).astype(np.int8)


def write(store: Any) -> None:
    group = zarr.open_group(store, mode="w")
    names = ("y", "x", "band")
    group.create_array("embedding", data=CODES, chunks=(10, 30, 64), dimension_names=names)


def obstore_store() -> Any:
    obstore = pytest.importorskip("obstore.store", reason="obstore is not installed")
    store = zarr.storage.ObjectStore(obstore.MemoryStore())
    write(store)
    return store


def virtual_store(folder: Path) -> Any:
    """A file of HDF5 whose chunks VirtualiZarr names."""
    parsers = pytest.importorskip("virtualizarr.parsers", reason="VirtualiZarr is not installed")
    h5py = pytest.importorskip("h5py")
    obstore = pytest.importorskip("obstore.store")
    registry = pytest.importorskip("obspec_utils.registry")
    path = folder / "codes.nc"
    with h5py.File(path, "w") as file:
        codes = file.create_dataset("embedding", data=CODES, chunks=(10, 30, 64), compression=4)
        for axis, name in enumerate(("y", "x", "band")):
            file[name] = np.arange(CODES.shape[axis])
            file[name].make_scale(name)
            codes.dims[axis].attach_scale(file[name])
    found = registry.ObjectStoreRegistry({"file://": obstore.LocalStore()})
    return parsers.HDFParser()(url=path.as_uri(), registry=found)


def icechunk_store() -> Any:
    icechunk = pytest.importorskip("icechunk", reason="icechunk is not installed")
    repository = icechunk.Repository.create(icechunk.in_memory_storage())
    session = repository.writable_session("main")
    write(session.store)
    session.commit("codes")
    return repository.readonly_session("main").store


@pytest.mark.filterwarnings("ignore:Numcodecs codecs are not in the Zarr version 3")
@pytest.mark.parametrize(
    "make", [zarr.storage.MemoryStore, obstore_store, icechunk_store, virtual_store]
)
def test_a_scene_is_read_from_a_store(make, tmp_path: Path) -> None:
    store = make(tmp_path) if make is virtual_store else make()
    if make is zarr.storage.MemoryStore:
        write(store)
    cube = open_cube(store, quantization="alphaearth")
    known = open_cube(CODES, dims=("y", "x", "band"), quantization="alphaearth")
    fits = [KMeans(4, max_iter=3, random_state=0).fit(c).labels_ for c in (cube, known)]
    np.testing.assert_array_equal(*(labels.compute() for labels in fits))


class Version3(zarr.storage.MemoryStore):
    """A store that holds version 3 alone, as icechunk does, and says so as icechunk does."""

    def exists(self, key: str) -> Awaitable[bool]:
        if key.rpartition("/")[2] in (".zarray", ".zgroup", ".zattrs", ".zmetadata"):
            raise KeyError(f"v2 key not found at `{key}`")
        return super().exists(key)


def new_obstore() -> Any:
    obstore = pytest.importorskip("obstore.store", reason="obstore is not installed")
    return zarr.storage.ObjectStore(obstore.MemoryStore())


def new_icechunk() -> Any:
    icechunk = pytest.importorskip("icechunk", reason="icechunk is not installed")
    return icechunk.Repository.create(icechunk.in_memory_storage()).writable_session("main").store


@pytest.mark.parametrize("make", [zarr.storage.MemoryStore, Version3, new_obstore, new_icechunk])
@pytest.mark.parametrize("inner", ["", "maps/first"])
def test_maps_and_models_are_written_to_a_store(make, inner) -> None:
    store = make()
    place = zarr.storage.StorePath(store, inner) if inner else store
    cube = open_cube(CODES, dims=("y", "x", "band"), quantization="alphaearth")
    model = KMeans(4, max_iter=3, random_state=0).fit(cube)
    for overwrite in (False, True):
        written = cube.write_labels(model.labels_, place, overwrite=overwrite)
        only_version_3 = make in (Version3, new_icechunk)
        assert written.metadata.zarr_format == (3 if only_version_3 else 2)
    image = written["labels"]
    np.testing.assert_array_equal(image[...].ravel(), model.labels_.compute())
    assert dict(image.attrs)["_FillValue"] == -1
    assert dimension_names(image) == ("y", "x")
    model.save(zarr.storage.StorePath(store, "model"))
    again = load(zarr.storage.StorePath(store, "model"))
    np.testing.assert_array_equal(again.cluster_centers_, model.cluster_centers_)


@pytest.mark.parametrize("make", [new_obstore, new_icechunk])
def test_rows_in_a_store_are_clustered(make) -> None:
    store, rows = make(), CODES.reshape(-1, 64)
    array = zarr.create_array(store, name="rows", data=rows, chunks=(100, 64))
    fits = [
        HierarchicalKMeans((3, 4), random_state=0).fit(x).labels_
        for x in (da.from_zarr(array), rows)
    ]
    np.testing.assert_array_equal(fits[0].compute(), fits[1])

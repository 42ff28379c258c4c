"""Scenes in stores of other packages: whatever is a store of Zarr is read."""

from __future__ import annotations

from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

from daskclust import HierarchicalKMeans, KMeans, deduplicate, load, open_cube
from daskclust.scenes._metadata import dimension_names
from daskclust.tables import open_table

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


def virtual_store(folder: Path, values: Any = CODES, axes: Any = ("y", "x", "band")) -> Any:
    """A file of HDF5 whose chunks VirtualiZarr names."""
    parsers = pytest.importorskip("virtualizarr.parsers", reason="VirtualiZarr is not installed")
    h5py = pytest.importorskip("h5py")
    obstore = pytest.importorskip("obstore.store")
    registry = pytest.importorskip("obspec_utils.registry")
    path = folder / "codes.nc"
    with h5py.File(path, "w") as file:
        chunks = (10, *values.shape[1:])
        codes = file.create_dataset("embedding", data=values, chunks=chunks, compression=4)
        for axis, name in enumerate(axes):
            file[name] = np.arange(values.shape[axis])
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


@pytest.mark.filterwarnings("ignore:Numcodecs codecs are not in the Zarr version 3")
@pytest.mark.parametrize("dtype", ["int8", "float16", "float32"])
@pytest.mark.parametrize("make", [zarr.storage.MemoryStore, new_obstore, new_icechunk, None])
def test_vectors_in_a_store_are_a_table(make, dtype, tmp_path: Path) -> None:
    """Fits, `predict` and `deduplicate` are those of rows in memory, and labels lie beside them."""
    rows = np.repeat(CODES.reshape(-1, 64), 2, axis=0).astype(dtype)
    if make is None:
        store = virtual_store(tmp_path, rows, ("row", "value"))
    else:
        store = make()
        zarr.create_array(store, name="embedding", data=rows, chunks=(100, 64))
    place = zarr.storage.StorePath(store, "embedding")
    table = open_table(place)
    assert (table.columns, table.dtype, table.n_features) == (("embedding",), rows.dtype, 64)
    known = HierarchicalKMeans((3, 4), random_state=0).fit(rows)
    for x in (table.samples, open_table(zarr.open(store, mode="r")["embedding"]).samples):
        model = HierarchicalKMeans((3, 4), random_state=0).fit(x)
        np.testing.assert_array_equal(model.labels_.compute(), known.labels_)
        np.testing.assert_array_equal(model.predict(x).compute(), known.labels_)
    found = deduplicate(table.samples, threshold=1e-6, n_clusters=4, random_state=0)
    np.testing.assert_array_equal(found.compute(), np.arange(len(rows)) % 2 == 0)
    target = zarr.storage.MemoryStore() if make is None else store
    written = table.write_labels(model.labels_, zarr.storage.StorePath(target, "labels"))
    np.testing.assert_array_equal(written["label"][...], known.labels_)
